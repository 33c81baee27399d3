//! What to read and how to use it, as plain data.
//!
//! Invariants:
//! 1. A plan's reads are in ascending chunk order, one per chunk; each one's ranges are ascending, non-empty and
//!    non-adjacent.
//! 2. A plan speaks of one tile; it holds for every tile of a stripe.
//! 3. Whoever executes a plan makes no choice.
//!
//! Left out: how plans are found (`reed_solomon`, `linear::planner`, `clay::planner`, `replicated`).

use std::{fmt, ops::Range};

use thiserror::Error;

use crate::{CodeSpec, Matrix};

/// The place of a chunk in its stripe: data chunks first, parity chunks after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkIndex(pub u16);

impl ChunkIndex {
    /// The place as an array index.
    pub fn at(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for ChunkIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The sub-chunks to read of one chunk, in each tile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkRead {
    /// Which chunk.
    pub chunk: ChunkIndex,
    /// Ascending, non-empty, non-adjacent ranges within one tile of alpha sub-chunks.
    pub sub_chunks: Vec<Range<u32>>,
}

impl ChunkRead {
    /// Sub-chunks in all ranges.
    pub fn sub_chunks_total(&self) -> u64 {
        self.sub_chunks.iter().map(|range| u64::from(range.end - range.start)).sum()
    }

    /// The planned ranges of one tile, concatenated: what `recover` wants for this read.
    ///
    /// # Panics
    /// If `tile` is shorter than the last range's end.
    pub fn cut(&self, tile: &[u8], sub_bytes: u32) -> Vec<u8> {
        let mut ranges = vec![0; self.sub_chunks_total() as usize * sub_bytes as usize];
        self.cut_into(tile, sub_bytes, &mut ranges);
        ranges
    }

    /// As [`cut`](Self::cut), into a buffer of just that length.
    ///
    /// # Panics
    /// If `tile` is shorter than the last range's end, or `into` than the ranges.
    pub fn cut_into(&self, tile: &[u8], sub_bytes: u32, into: &mut [u8]) {
        let at = |sub: u32| sub as usize * sub_bytes as usize;
        let mut rest = into;
        for range in &self.sub_chunks {
            let (to, behind) = rest.split_at_mut(at(range.end - range.start));
            to.copy_from_slice(&tile[at(range.start)..at(range.end)]);
            rest = behind;
        }
    }
}

/// How `recover` turns what was read into what was wanted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// Nothing is computed: `want[j]` is a copy of `reads[from[j]]`.
    Copy {
        /// One entry for each wanted chunk.
        from: Vec<u16>,
    },
    /// `want[j]` is the sum over all reads i of `matrix[j][i] * reads[i]` in GF(2^8).
    Matrix(Matrix),
    /// With the syndromes s, each the parity of the data that was read (zeros for the rest) plus one parity chunk that was
    /// read, a lost data chunk is a sum of products of them in GF(2^16), and a lost parity chunk is that plus the parity of
    /// the data that was read. Chunks that were read are copies.
    Syndromes {
        /// The sums over planes, the low and the high bytes of symbols, in GF(2^8): two rows for each wanted chunk that is
        /// not read, two terms for each of the first parity chunks read, as many of them as there are data chunks that are
        /// not read.
        sums: Matrix,
    },
    /// Clay's layered decoding from whole chunks; every chunk that is not read is taken as erased.
    ClayDecode,
    /// Clay's repair from some planes of many chunks.
    ClayRepair {
        /// One after the other; each repairs the lost chunks of one section.
        stages: Vec<RepairStage>,
    },
}

/// A stage of a Clay repair: the planes it reads are those whose digit of `section` is one of `digits` and that no stage
/// before it reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RepairStage {
    /// The section of the chunks that it repairs.
    pub section: u16,
    /// Ascending; all of them where the stage decodes what is left.
    pub digits: Vec<u16>,
    /// Readable chunks that it does not read. Ascending.
    pub aloof: Vec<ChunkIndex>,
}

/// What to read, and how to make the wanted chunks of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadPlan {
    /// The wanted chunks, in the order they were asked for.
    pub want: Vec<ChunkIndex>,
    /// What to read, in ascending chunk order.
    pub reads: Vec<ChunkRead>,
    /// How the wanted chunks are made.
    pub method: Method,
    /// Sub-chunks in a tile.
    pub alpha: u32,
}

impl ReadPlan {
    /// Sub-chunks read in each tile, over all chunks.
    pub fn sub_chunks_total(&self) -> u64 {
        self.reads.iter().map(ChunkRead::sub_chunks_total).sum()
    }

    /// Bytes read of one tile, over all chunks, when a store reads whole granules: each range is widened to multiples
    /// of `granule` from the tile's start, cut at the tile's end; ranges that then touch or overlap count once.
    ///
    /// # Panics
    /// If `granule` is 0.
    pub fn bytes_read(&self, sub_bytes: u32, granule: u32) -> u64 {
        self.reads.iter().map(|read| granule_bytes(&read.sub_chunks, self.alpha, sub_bytes, granule)).sum()
    }
}

/// Bytes read of one chunk's tile when each range is widened to whole granules and cut at the tile's end.
pub(crate) fn granule_bytes(ranges: &[Range<u32>], alpha: u32, sub_bytes: u32, granule: u32) -> u64 {
    assert!(granule > 0, "a granule of no bytes");
    let (sub_bytes, granule) = (u64::from(sub_bytes), u64::from(granule));
    let tile_end = u64::from(alpha) * sub_bytes;
    let (mut total, mut counted_to) = (0, 0);
    for range in ranges {
        let start = u64::from(range.start) * sub_bytes / granule * granule;
        let end = (u64::from(range.end) * sub_bytes).next_multiple_of(granule).min(tile_end);
        total += end.saturating_sub(start.max(counted_to));
        counted_to = counted_to.max(end);
    }
    total
}

/// What reading would cost, chunk by chunk.
#[derive(Clone, Copy, Debug)]
pub struct ReadCosts<'a> {
    /// One entry per chunk of the stripe: `None` if it cannot be read, else its cost; lower is cheaper. Costs only
    /// rank chunks against each other: a plan never reads more bytes to reach cheaper chunks.
    pub chunks: &'a [Option<u32>],
    /// Bytes of a sub-chunk.
    pub sub_bytes: u32,
    /// The least a store reads, in bytes, aligned to the tile's start; 4096 normally.
    pub granule: u32,
}

/// Too much is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "{spec}: {wanted_lost} wanted chunks are lost; of {chunks} chunks {available} independent ones can be read, {needed} are needed"
)]
pub struct Unrecoverable {
    /// The code.
    pub spec: CodeSpec,
    /// Wanted chunks that cannot be read.
    pub wanted_lost: u16,
    /// Chunks that can be read; where some determine others (local groups), as many as are independent.
    pub available: u16,
    /// Chunks that recovery needs.
    pub needed: u16,
    /// Chunks of the stripe.
    pub chunks: u16,
}

/// How a change of one data chunk reaches the parity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdatePlan {
    /// Each parity changes by coefficient * (old data + new data), at the same offsets, in the code's field.
    Delta(Vec<(ChunkIndex, u16)>),
    /// The whole tile must be encoded again.
    Reencode,
}
