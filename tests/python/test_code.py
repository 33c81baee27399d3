"""The Python package: every family round trip, buffers without copies, misuse with the numbers, stubs in step."""

import itertools
import math
import pathlib
import random
import re
import subprocess
import sys
import threading

import pytest

import claystone
from claystone import ClaystoneError, Code, Conversion, Unrecoverable

# Every family, and shortened codes of those that have them.
FAMILIES = [
    "replica:3",
    "mirror:4x3",
    "hybrid:rsm:6+3x2",
    "mixed:4+2x3:0+2",
    "rs:1+1",
    "rs:4+2",
    "rs:10+4",
    "rs:201+3",
    "isal:6+3",
    "klauspost:6+3",
    "rsm:6+3",
    "rs:1019+4",
    "rs:300+19",
    "lrc:12+2+2",
    "lrc:12+6+2",
    "lrc:6+2+2",
    "pc:2x5",
    "pc:6x5",
    "clay:4+2:5",
    "clay:3+2:4",
    "clay:6+3:7",
    "clay:10+4:13",
]


def encoded(code, sub_bytes):
    tile = code.alpha * sub_bytes
    data = [bytes((at * 7 + chunk * 31) % 256 for at in range(tile)) for chunk in range(code.data)]
    return data + [bytes(parity) for parity in code.encode(data)]


def some_losses(code, most=150):
    """Sets of as many chunks as may be lost, and of two: all of them, or some of all."""
    for losses in sorted({1, min(2, code.tolerance), code.tolerance}):
        step = -(-math.comb(code.chunks, losses) // most)
        if step == 1:
            yield from itertools.combinations(range(code.chunks), losses)
        else:
            drawn = random.Random(losses)
            yield from (sorted(drawn.sample(range(code.chunks), losses)) for _ in range(min(most, 4000 // code.chunks)))


@pytest.mark.parametrize("spec", FAMILIES)
def test_what_is_lost_comes_back(spec):
    code = Code(spec)
    chunks = encoded(code, 24)
    for lost in some_losses(code):
        plan = code.plan(lost, lost=lost, sub_bytes=24)
        assert plan.want == list(lost)
        fetched = [read.cut(chunks[read.chunk], 24) for read in plan.reads]
        assert sum(map(len, fetched)) == plan.bytes_read(24)
        assert code.recover(plan, fetched) == [chunks[chunk] for chunk in lost]


@pytest.mark.parametrize("spec", FAMILIES)
def test_parity_grows_chunk_by_chunk(spec):
    code = Code(spec)
    chunks = encoded(code, 5)
    parity = [bytearray(code.alpha * 5) for _ in range(code.parity)]
    for first in range(0, code.data, 7):
        code.encode_add(first, chunks[first : min(first + 7, code.data)], parity)
    assert parity == chunks[code.data :]


@pytest.mark.parametrize("spec", FAMILIES)
def test_a_changed_chunk_reaches_the_parity_or_asks_for_encoding(spec):
    code = Code(spec)
    chunks = [bytearray(chunk) for chunk in encoded(code, 9)]
    delta = bytes(at % 251 for at in range(code.alpha * 9))
    changed = code.data - 1
    touched = code.update(changed)
    if spec.startswith("clay:"):
        assert touched is None
        return
    for parity in touched:
        code.apply_delta(changed, parity, delta, chunks[parity])
    chunks[changed] = bytearray(a ^ b for a, b in zip(chunks[changed], delta))
    assert chunks[code.data :] == code.encode(chunks[: code.data])


@pytest.mark.parametrize(
    "spec, reads",
    [
        ("replica:3", 1),
        ("mirror:4x3", 1),
        ("rs:1019+4", 1019),
        ("lrc:12+2+2", 6),
        ("lrc:12+6+2", 2),
        ("pc:2x5", 2),
        ("clay:6+3:8", 8 / 3),
        ("clay:10+4:13", 13 / 4),
    ],
)
def test_a_repair_reads_what_its_family_promises(spec, reads):
    code = Code(spec)
    assert code.plan([0], lost=[0]).bytes_read(4096) == reads * code.alpha * 4096


def test_which_chunks_are_lost_decides():
    assert Code("pc:2x5").plan([0, 1, 2, 3], lost=[0, 1, 2, 3]).want == [0, 1, 2, 3]
    with pytest.raises(Unrecoverable):
        Code("pc:2x5").plan([0], lost=[0, 1, 5, 6])
    assert Code("lrc:12+2+2").plan([0, 6], lost=[0, 6, 12, 13]).want == [0, 6]
    with pytest.raises(Unrecoverable):
        Code("lrc:12+2+2").plan([0], lost=[0, 1, 2, 3, 12])


def test_clay_reads_less():
    tile = 8 * 4096
    assert Code("clay:4+2:5").plan([1], lost=[1]).bytes_read(4096) == 2.5 * tile
    assert Code("rs:4+2").plan([1], lost=[1], sub_bytes=tile).bytes_read(tile) == 4 * tile


def test_bytes_are_used_where_they_are():
    code = Code("rs:2+2")
    whole = bytearray(range(256)) * 4
    view = memoryview(whole)
    code.encode_into([view[:256], view[256:512]], [view[512:768], view[768:]])
    assert [whole[512:768], whole[768:]] == code.encode([bytes(whole[:256]), bytes(whole[256:512])])
    parity = [bytearray(256), bytearray(256)]
    for chunk in range(2):
        code.encode_add(chunk, [view[chunk * 256 : chunk * 256 + 256]], parity)
    assert parity == [whole[512:768], whole[768:]]


def test_numpy_arrays_are_buffers():
    numpy = pytest.importorskip("numpy")
    code = Code("clay:4+2:5")
    data = numpy.arange(4 * 8 * 100, dtype=numpy.uint8).reshape(4, -1)
    parity = numpy.zeros((2, 800), dtype=numpy.uint8)
    code.encode_into(list(data), list(parity))
    assert [bytes(row) for row in parity] == [bytes(made) for made in code.encode(list(data))]
    with pytest.raises(BufferError, match="contiguous"):
        code.encode([data[:, ::2]] * 4)
    with pytest.raises(BufferError):
        code.encode([data.astype(numpy.float32)] * 4)


def test_a_change_reaches_the_parity():
    code = Code("rs:3+2")
    chunks = [bytearray(chunk) for chunk in encoded(code, 50)]
    delta = bytes(range(50))
    chunks[1] = bytearray(a ^ b for a, b in zip(chunks[1], delta))
    assert code.update(1) == [3, 4]
    for parity in code.update(1):
        code.apply_delta(1, parity, delta, chunks[parity])
    assert chunks[3:] == code.encode(chunks[:3])
    assert Code("clay:4+2:5").update(0) is None


@pytest.mark.parametrize("spec", FAMILIES)
def test_a_wrong_chunk_is_named(spec):
    code = Code(spec)
    chunks = [bytearray(chunk) for chunk in encoded(code, 16)]
    assert code.locate(chunks) == []
    if code.tolerance >= 2:
        chunks[code.data // 2][-1] ^= 1
        assert code.locate(chunks) == [code.data // 2]
    if code.tolerance >= 4 and spec.startswith("rs:"):
        assert code.locate([*chunks[:-1], None]) == [code.data // 2]
    with pytest.raises(ClaystoneError, match="0 chunks can be read"):
        code.locate([None] * code.chunks)


@pytest.mark.parametrize(
    "source, target, goal, reads, writes",
    [
        ("pc:2x5", "pc:6x5", "short-sums", 18, 6),
        ("pc:6x5", "pc:2x5", "fewest-reads", None, 18),
        ("lrc:12+6+2", "lrc:12+2+2", "fewest-reads", 6, 2),
        ("lrc:12+2+2", "lrc:12+6+2", "fewest-reads", 10, 6),
        ("rsm:6+3", "rsm:12+3", "fewest-reads", 6, 3),
        ("rsm:6+3", "rsm:12+3", "data-only", 12, 3),
        ("rsm:10+4", "rsm:20+4", "fewest-reads", 8, 4),
        ("rs:4+2", "clay:4+2:5", "fewest-reads", 4, 2),
    ],
)
def test_a_conversion_makes_what_the_new_code_makes(source, target, goal, reads, writes):
    conversion, old, new = Conversion(source, target, goal=goal), Code(source), Code(target)
    assert len(conversion.writes) == writes and len(conversion.reads) == (reads or len(conversion.reads))
    assert conversion.combined >= writes
    tile = old.alpha * new.alpha * 5
    data = [[bytes([stripe * 40 + chunk + 1]) * tile for chunk in range(old.data)] for stripe in range(conversion.sources)]
    stripes = [chunks + old.encode(chunks) for chunks in data]
    made = {to: stripes[stripe][chunk] for (stripe, chunk), to in conversion.kept}
    fetched = [stripes[stripe][chunk] for stripe, chunk in conversion.reads]
    made |= dict(zip(conversion.writes, conversion.apply(fetched)))
    written = [bytearray(tile) for _ in conversion.writes]
    conversion.apply_into(fetched, written)
    assert written == [made[name] for name in conversion.writes]
    for stripe in range(conversion.targets):
        chunks = [made[stripe, chunk] for chunk in range(new.chunks)]
        assert chunks[new.data :] == new.encode(chunks[: new.data])


def test_info_and_properties():
    code = Code("clay:16+4:19")
    assert (code.data, code.parity, code.chunks, code.alpha, code.tolerance) == (16, 4, 20, 1024, 4)
    assert code.info()["overhead"] == 1.25
    assert repr(code) == 'claystone.Code("clay:16+4:19")'
    read = Code("clay:4+2:5").plan([0], lost=[0]).reads[0]
    assert read.chunk == 1 and all(start < end <= 8 for start, end in read.ranges)


@pytest.mark.parametrize(
    "call, says",
    [
        (lambda: Code("rs:4"), r"rs:K\+M"),
        (lambda: Code("nothing"), "unknown code family"),
        (lambda: Code("clay:4+2:9"), "helpers"),
        (lambda: Code("rs:2+1").encode([b"1"]), "1 data buffers were given, 2 are needed"),
        (lambda: Code("rs:2+1").encode([b"12", b"1"]), "data buffer 1 has 1 bytes, 2 are needed"),
        (lambda: Code("clay:4+2:5").encode([b"123456789"] * 4), "9 bytes does not divide into 8"),
        (lambda: Code("rs:2+1").plan([3]), "no chunk 3"),
        (lambda: Code("rs:2+1").plan([0], lost=[7]), "no chunk 7"),
        (lambda: Code("rs:2+1").plan([0, 0]), "wanted twice"),
        (lambda: Code("rs:2+1").plan([0], costs=[1]), "1 costs were given, 3 are needed"),
        (lambda: Code("rs:2+1").plan([0], sub_bytes=0), "sub_bytes"),
        (lambda: Code("rs:2+1").plan([0], granule=0), "granule"),
        (lambda: Code("rs:2+1").plan([1 << 16]), "65536 is not a number of 16 bits"),
        (lambda: Code("rs:2+1").plan([-1]), "-1 is not a number of 16 bits"),
        (lambda: Code("rs:2+1").plan([0], costs=[1 << 100, 1, None]), f"{1 << 100} is not a number of 32 bits"),
        (lambda: Code("rs:2+1").plan([0], sub_bytes=1 << 32), "4294967296 is not a number of 32 bits"),
        (lambda: Code("rs:2+1").plan([0]).bytes_read(1 << 32), "4294967296 is not"),
        (lambda: Code("rs:2+1").plan([0], lost=[0]).reads[0].cut(b"1", 1 << 32), "4294967296 is not"),
        (lambda: Code("rs:2+1").update(1 << 16), "65536 is not"),
        (lambda: Code("rs:2+1").encode_add(1 << 16, [], []), "65536 is not"),
        (lambda: Code("rs:2+1").apply_delta(0, -1, b"", bytearray()), "-1 is not"),
        (lambda: Code("rs:2+1").recover(Code("rs:3+1").plan([0]), [b""]), r"made by rs:3\+1"),
        (lambda: Code("rs:2+1").recover(Code("rs:2+1").plan([0], lost=[0]), [b"1"]), "1 fetched buffers"),
        (lambda: Code("rs:2+1").recover(Code("rs:2+1").plan([0], lost=[0]), [b"12", b"1"]), "has 1 bytes"),
        (lambda: Code("rs:2+1").update(2), "no data chunk 2"),
        (lambda: Code("rs:2+1").apply_delta(0, 1, b"", bytearray()), "no parity chunk 1"),
        (lambda: Code("clay:4+2:5").apply_delta(0, 4, bytes(8), bytearray(8)), "encoding the tile again"),
        (lambda: Code("rs:2+1").plan([0], lost=[0]).reads[0].cut(b"1", 2), "has 1 bytes"),
        (lambda: Code("rs:2+1").plan([0]).bytes_read(1, 0), "granule"),
        (lambda: Code("rs:2+2").locate([b"1"]), "1 chunks were given, 4 are needed"),
        (lambda: Code("rs:2+2").locate([b"1", b"1", b"12", None]), "has 2 bytes, 1 are needed"),
        (lambda: Code("rs:2+1").locate([b"1", b"1", None]), "2 chunks can be read, 3 are needed"),
        (lambda: Conversion("rs:4+", "rs:4+2"), r"rs:K\+M"),
        (lambda: Conversion("rs:4+2", "rs:8+2", goal="cheap"), 'no goal "cheap"'),
        (lambda: Conversion("rsm:6+3", "rsm:12+3").apply([b"1"]), "1 fetched buffers were given, 6 are needed"),
    ],
)
def test_misuse_is_refused_with_the_numbers(call, says):
    with pytest.raises(ClaystoneError, match=says):
        call()


def test_whatever_gives_one_after_the_other_is_a_list():
    code = Code("rs:4+2")
    data = [bytes([chunk]) * 8 for chunk in range(4)]
    parity = code.encode(iter(data))
    assert parity == code.encode(tuple(data))
    chunks = data + parity
    plan = code.plan((chunk for chunk in [0]), lost={0}, costs=iter([1, None, 1, 1, 1, 1]), sub_bytes=8)
    fetched = (read.cut(chunks[read.chunk], 8) for read in plan.reads)
    assert code.recover(plan, fetched) == [data[0]]
    assert code.locate(iter(chunks)) == []
    conversion = Conversion("rsm:2+2", "rsm:4+2")
    old = [[bytes([stripe + chunk]) * 8 for chunk in range(2)] for stripe in range(2)]
    old = [stripe + Code("rsm:2+2").encode(stripe) for stripe in old]
    written = conversion.apply(old[stripe][chunk] for stripe, chunk in conversion.reads)
    assert written == Code("rsm:4+2").encode(old[0][:2] + old[1][:2])
    with pytest.raises(TypeError):
        code.encode(4)
    with pytest.raises(TypeError):
        code.plan([0.5])


def test_too_much_lost():
    with pytest.raises(Unrecoverable, match="of 6 chunks 3 independent ones can be read, 4 are needed"):
        Code("rs:4+2").plan([0], lost=[0, 1, 2])


def test_buffers_that_cannot_be_written_or_overlap():
    code = Code("rs:2+1")
    with pytest.raises(BufferError, match="read-only"):
        code.encode_into([b"1", b"2"], [b"3"])
    room = memoryview(bytearray(30))
    with pytest.raises(ClaystoneError, match="overlaps"):
        code.encode_into([room[:10], room[10:20]], [room[19:29]])
    with pytest.raises(TypeError):
        code.encode(["text", "text"])


def test_threads_share_a_code():
    code = Code("clay:4+2:5")
    data = [bytes([chunk]) * (8 * 16384) for chunk in range(4)]
    expected = code.encode(data)
    results = []
    threads = [threading.Thread(target=lambda: results.append(code.encode(data))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


def test_the_types_are_in_the_package():
    assert (pathlib.Path(claystone.__file__).parent / "py.typed").exists()



def test_the_example_of_the_readme_runs():
    readme = pathlib.Path(__file__).parents[2] / "python" / "README.md"
    examples = re.findall(r"^```python\n(.*?)^```$", readme.read_text(), re.DOTALL | re.MULTILINE)
    assert examples
    for example in examples:
        exec(compile(example, str(readme), "exec"), {})


def test_codes_run_with_the_tier_that_is_asked_for():
    program = "import claystone; claystone.force_tier('scalar'); print(claystone.Code('rs:4+2').tier)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "scalar\n"
    tier = Code("rs:4+2").tier
    claystone.force_tier(tier)
    if tier != "scalar":
        with pytest.raises(ClaystoneError, match="too late"):
            claystone.force_tier("scalar")
    with pytest.raises(ClaystoneError, match="unknown instruction set"):
        claystone.force_tier("sse9")
