from collections.abc import Iterable
from typing import Any, Literal, Protocol, Self, final

__all__ = ["ClaystoneError", "Code", "Conversion", "Plan", "Read", "Unrecoverable", "__version__", "force_tier"]

__version__: str

_Tier = Literal["scalar", "neon", "avx2", "avx2-gfni", "avx512-gfni"]

def force_tier(tier: _Tier) -> None:
    """Has all codes of this process run with one instruction set, before the first code or conversion is made; else the fastest is taken."""

class _Buffer(Protocol):
    """Anything with a buffer of bytes: bytes, bytearray, memoryview, mmap, NumPy arrays of uint8."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

class ClaystoneError(ValueError):
    """A wrong argument; the text has the numbers."""

class Unrecoverable(ClaystoneError):
    """Too many chunks are lost."""

@final
class Read:
    """What to read of one chunk."""

    @property
    def chunk(self) -> int: ...
    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Sub-chunks of each tile, as (start, end)."""
    def cut(self, tile: _Buffer, sub_bytes: int) -> bytearray:
        """The ranges of one tile, one after the other: what `Code.recover` wants."""

@final
class Plan:
    """What to read, and how to make the wanted chunks of it."""

    @property
    def want(self) -> list[int]: ...
    @property
    def reads(self) -> list[Read]: ...
    @property
    def alpha(self) -> int: ...
    def bytes_read(self, sub_bytes: int, granule: int = 1) -> int:
        """Bytes read of one tile, over all chunks, when ranges are widened to whole granules."""

@final
class Code:
    """An erasure code, named by its spec: "rs:4+2", "lrc:12+2+2", "pc:2x5", "clay:16+4:19", and as docs/codes.md has them all.

    Chunks count from 0, data first.
    """

    def __new__(cls, spec: str) -> Self: ...
    @property
    def spec(self) -> str: ...
    @property
    def data(self) -> int: ...
    @property
    def parity(self) -> int: ...
    @property
    def chunks(self) -> int: ...
    @property
    def alpha(self) -> int:
        """Sub-chunks in a tile: every buffer is a multiple of this long."""
    @property
    def tolerance(self) -> int:
        """Chunks that may be lost, whichever they are."""
    @property
    def tier(self) -> _Tier:
        """The instruction set that it runs with."""
    def info(self) -> dict[str, Any]:
        """The properties above, with overhead: bytes stored for each byte."""
    def encode(self, data: Iterable[_Buffer]) -> list[bytearray]:
        """The parity of one tile."""
    def encode_into(self, data: Iterable[_Buffer], parity: Iterable[_Buffer]) -> None:
        """As `encode`, into buffers of the caller."""
    def encode_add(self, first: int, data: Iterable[_Buffer], parity: Iterable[_Buffer]) -> None:
        """Adds the data chunks from `first` on to parity that began as zeros."""
    def plan(
        self,
        want: Iterable[int],
        *,
        lost: Iterable[int] = (),
        costs: Iterable[int | None] | None = None,
        sub_bytes: int = 4096,
        granule: int = 1,
    ) -> Plan:
        """Plans to get the chunks in `want`. `costs` has one entry for each chunk, None where it cannot be read."""
    def recover(self, plan: Plan, fetched: Iterable[_Buffer]) -> list[bytearray]:
        """Carries out a plan on one tile; `fetched` has one buffer for each of `plan.reads`."""
    def recover_into(self, plan: Plan, fetched: Iterable[_Buffer], out: Iterable[_Buffer]) -> None:
        """As `recover`, into buffers of the caller."""
    def update(self, chunk: int) -> list[int] | None:
        """Parity chunks that change with a data chunk; None if the tile must be encoded again."""
    def apply_delta(self, chunk: int, parity_chunk: int, delta: _Buffer, parity: _Buffer) -> None:
        """Brings parity up to date: `delta` is old bytes XOR new bytes of `chunk` at the same place."""
    def locate(self, chunks: Iterable[_Buffer | None]) -> list[int]:
        """The chunks of one tile whose bytes are wrong though nobody said so; None stands for one that cannot be read.

        With r chunks to spare up to r / 2 wrong ones are found.
        """

@final
class Conversion:
    """How stripes of one code become stripes of another: data stays, parity is made of what is read.

    Chunks are (stripe, chunk), counted from 0, of the old stripes or the new. By the goal as few chunks are read in all as are
    known to do ("fewest-reads"), or each new parity is made of as few old ones ("short-sums"), or of data alone, all that it
    covers ("data-only"): what is wrong with old parity does not get into it.
    """

    def __new__(
        cls, source: str, target: str, *, goal: Literal["fewest-reads", "short-sums", "data-only"] = "fewest-reads"
    ) -> Self: ...
    @property
    def sources(self) -> int:
        """Old stripes that go in."""
    @property
    def targets(self) -> int:
        """New stripes that come out."""
    @property
    def kept(self) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Chunks that stay as they are, by their old name and their new; all data is among them."""
    @property
    def reads(self) -> list[tuple[int, int]]:
        """Old chunks to read."""
    @property
    def writes(self) -> list[tuple[int, int]]:
        """New chunks to write."""
    @property
    def combined(self) -> int:
        """Chunks that go into sums: each written chunk counts those that it is the sum of."""
    def apply(self, fetched: Iterable[_Buffer]) -> list[bytearray]:
        """The chunks to write, of those to read: whole tiles of the new code, all equally long."""
    def apply_into(self, fetched: Iterable[_Buffer], written: Iterable[_Buffer]) -> None:
        """As `apply`, into buffers of the caller."""
