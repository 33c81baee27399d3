//! A code with further copies of its data chunks: what a stripe is kept as while it is new, until the copies are dropped.
//!
//! A stripe of `hybrid:CODExR` has the chunks of CODE, data and parity, then the second copies of the data chunks in their
//! order, then the third ones. So it is a stripe of CODE as soon as the copies are gone: nothing is read, nothing computed.
//!
//! Invariants:
//! 1. A data chunk is lost with all its copies only, and a stripe with what its code does not recover of data and parity.
//! 2. A lost data chunk or copy is repaired from one other chunk.
//! 3. Copies may share disks with copies of other data, as all of one replica may; data and parity share none.

use crate::{ChunkIndex, CodeSpec, Shape, linear::Generator};

/// A code that may have copies of its data beside it: its chunks are sums of chunks over GF(2^8), and stripes of it go into
/// wider ones by their parities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Coded {
    /// [`CodeSpec::Lrc`].
    Lrc {
        /// Data chunks, k.
        data: u8,
        /// Groups, l: local parity chunks.
        local: u8,
        /// Global parity chunks, g.
        global: u8,
    },
    /// [`CodeSpec::Product`].
    Product {
        /// Rows of data chunks, r.
        rows: u8,
        /// Columns of data chunks, c.
        columns: u8,
    },
    /// [`CodeSpec::Mergeable`].
    Mergeable {
        /// Data chunks, k.
        data: u8,
        /// Parity chunks, m.
        parity: u8,
    },
}

impl Coded {
    /// The code itself.
    pub const fn spec(self) -> CodeSpec {
        match self {
            Self::Lrc { data, local, global } => CodeSpec::Lrc { data, local, global },
            Self::Product { rows, columns } => CodeSpec::Product { rows, columns },
            Self::Mergeable { data, parity } => CodeSpec::Mergeable { data, parity },
        }
    }

    /// The one that is this code, if it may have copies beside it.
    pub const fn of(spec: CodeSpec) -> Option<Self> {
        match spec {
            CodeSpec::Lrc { data, local, global } => Some(Self::Lrc { data, local, global }),
            CodeSpec::Product { rows, columns } => Some(Self::Product { rows, columns }),
            CodeSpec::Mergeable { data, parity } => Some(Self::Mergeable { data, parity }),
            _ => None,
        }
    }

    /// The size of a stripe with `copies` of each data chunk, the data chunk itself included.
    pub(crate) fn shape(self, copies: u8) -> Shape {
        let shape = self.spec().shape();
        Shape { parity: shape.parity.saturating_add(shape.data.saturating_mul(u16::from(copies) - 1)), ..shape }
    }
}

/// The data chunk that chunk `chunk` is a copy of, if it is one.
pub(crate) fn copied(coded: Coded, chunk: ChunkIndex) -> Option<ChunkIndex> {
    let shape = coded.spec().shape();
    chunk.0.checked_sub(shape.chunks()).map(|copy| ChunkIndex(copy % shape.data))
}

/// [`CodeSpec::tolerance_left`]: what the code has left, of which a data chunk is lost with its last copy. While no data chunk is
/// lost, one of those that a stripe is lost with is one, since parity alone loses none, and it is lost with all its copies.
pub(crate) fn tolerance_left(coded: Coded, copies: u8, is_lost: &[bool]) -> i32 {
    let spec = coded.spec();
    let (data, chunks) = (spec.shape().data, spec.shape().chunks());
    let left = |at: u16| {
        let further = (1..u16::from(copies)).map(|copy| chunks + (copy - 1) * data + at);
        std::iter::once(at).chain(further).filter(|chunk| !is_lost[usize::from(*chunk)]).count() as i32
    };
    let is_gone = |chunk: &u16| if *chunk < data { left(*chunk) == 0 } else { is_lost[usize::from(*chunk)] };
    let gone: Vec<ChunkIndex> = (0..chunks).filter(is_gone).map(ChunkIndex).collect();
    if gone.iter().any(|chunk| chunk.0 < data) {
        return spec.tolerance_left(&gone);
    }
    let with = |at: u16| {
        let gone: Vec<ChunkIndex> = gone.iter().copied().chain([ChunkIndex(at)]).collect();
        left(at) + spec.tolerance_left(&gone).max(-1)
    };
    (0..data).map(with).min().expect("a code has a data chunk")
}

/// The generator of the code, `coded`, with `copies` of each data chunk, itself included.
pub(crate) fn generator(coded: &Generator, copies: u8) -> Generator {
    let (data, chunks) = (coded.data(), coded.chunks());
    let further = (1..u16::from(copies)).flat_map(|_| (0..data).map(ChunkIndex));
    let parity = coded.parity().iter().cloned().chain(further.clone().map(|of| coded.vector(of)));
    let check = |(copy, of): (u16, ChunkIndex)| vec![of, ChunkIndex(copy)];
    let checks = coded.checks().iter().cloned().chain((chunks..).zip(further.clone()).map(check));
    Generator::new(data, parity.collect(), checks.collect())
}
