//! From one code to another with the data where it is: which old chunks are read, and what sums of them the new ones are.
//!
//! A conversion takes as many stripes of the old code, and makes as many of the new one, as hold the same data chunks:
//! three of `pc:2x5` (30 data chunks) make one `pc:6x5`. Data chunk i of all is data chunk i of all afterwards, with the
//! same bytes; parity is kept, computed or dropped.
//!
//! Invariants:
//! 1. Every chunk of every new stripe is either kept or written, once; data is kept.
//! 2. A plan is plain data, and whoever executes it makes no choice; [`Converter`] does the sums.
//!
//! Left out: where chunks lie, and lost chunks: a stripe is repaired before it is converted.

mod converter;
mod planner;

#[cfg(test)]
mod tests;

use std::fmt;

use thiserror::Error;

pub use self::{
    converter::Converter,
    planner::{plan_conversion, plan_conversion_without},
};
use crate::{ChunkIndex, CodeSpec, SpecError};

/// A chunk of one of several stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StripeChunk {
    /// Which stripe, counted from 0.
    pub stripe: u16,
    /// Which of its chunks.
    pub chunk: ChunkIndex,
}

impl fmt::Display for StripeChunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.stripe, self.chunk)
    }
}

/// An old chunk that is a new one as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kept {
    /// Its name in the old stripes.
    pub from: StripeChunk,
    /// Its name in the new stripes.
    pub to: StripeChunk,
}

/// How the written chunks are made of those that were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Making {
    /// `writes[i]` is the sum over `(at, coefficient)` in `sums[i]` of coefficient * `reads[at]`, in GF(2^8), at equal
    /// offsets.
    Sums(Vec<Vec<(u16, u8)>>),
    /// The new code encodes what was read, which is all data: its chunks are no sums of whole chunks over GF(2^8).
    Encode,
}

/// What a plan should have little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConversionGoal {
    /// One place reads and computes: as few chunks read in all as are known to do.
    FewestReads,
    /// Each new parity is made of as few old ones as are known to do, even if others were read for another new one. This
    /// is how HACFS counts, and it moves less where sums are computed beside their chunks.
    ShortSums,
    /// New parity is made of data alone, all that it covers is read, and what is wrong with old parity does not get into it.
    DataOnly,
}

/// A conversion, as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversionPlan {
    /// The old code.
    pub from: CodeSpec,
    /// The new code.
    pub to: CodeSpec,
    /// Old stripes that go in.
    pub sources: u16,
    /// New stripes that come out.
    pub targets: u16,
    /// Old chunks that stay, ascending in the new name; all data is among them.
    pub kept: Vec<Kept>,
    /// Old chunks to read, ascending.
    pub reads: Vec<StripeChunk>,
    /// New chunks to write, ascending.
    pub writes: Vec<StripeChunk>,
    /// What the writes are.
    pub making: Making,
}

impl ConversionPlan {
    /// Bytes read when a chunk has so many.
    pub fn bytes_read(&self, chunk_bytes: u64) -> u64 {
        self.reads.len() as u64 * chunk_bytes
    }

    /// Bytes written when a chunk has so many.
    pub fn bytes_written(&self, chunk_bytes: u64) -> u64 {
        self.writes.len() as u64 * chunk_bytes
    }

    /// Bytes that go into sums when a chunk has so many: each written chunk counts the chunks that it is the sum of. For
    /// [`Making::Encode`] these are all data chunks of its stripe; what the code couples besides is not counted.
    pub fn bytes_combined(&self, chunk_bytes: u64) -> u64 {
        let terms = match &self.making {
            Making::Sums(sums) => sums.iter().map(Vec::len).sum(),
            Making::Encode => self.writes.len() * usize::from(self.to.shape().data),
        };
        terms as u64 * chunk_bytes
    }

    /// Chunks that travel if every sum is computed where one of its terms lies; `None` for [`Making::Encode`], which
    /// needs all data in one place.
    pub fn transfers(&self) -> Option<u64> {
        match &self.making {
            Making::Sums(sums) => Some(sums.iter().map(|sum| sum.len().saturating_sub(1) as u64).sum()),
            Making::Encode => None,
        }
    }

    /// Old chunks that are not kept: superfluous once the new stripes are in place.
    pub fn dropped(&self) -> Vec<StripeChunk> {
        let mut stay: Vec<StripeChunk> = self.kept.iter().map(|kept| kept.from).collect();
        stay.sort_unstable();
        let chunks = self.from.shape().chunks();
        let all = (0..self.sources).flat_map(|stripe| (0..chunks).map(move |chunk| (stripe, ChunkIndex(chunk))));
        let all = all.map(|(stripe, chunk)| StripeChunk { stripe, chunk });
        all.filter(|chunk| stay.binary_search(chunk).is_err()).collect()
    }

    /// The first new stripe that, while the old chunks `lost` cannot be read, survives fewer further losses than some old
    /// stripe whose data it has: none of those that are merged is to become less safe for the others. A new code that survives less
    /// even when all is whole is held to what it does then.
    pub fn weakens(&self, lost: &[StripeChunk]) -> Option<Weakened> {
        let of = |chunks: &[StripeChunk], stripe: u16| -> Vec<ChunkIndex> {
            chunks.iter().filter(|chunk| chunk.stripe == stripe).map(|chunk| chunk.chunk).collect()
        };
        let left: Vec<i32> = (0..self.sources).map(|source| self.from.tolerance_left(&of(lost, source))).collect();
        let whole = i32::from(self.to.tolerance());
        let weakened = |target: u16| {
            let kept: Vec<&Kept> = self.kept.iter().filter(|kept| kept.to.stripe == target).collect();
            let before = kept.iter().map(|kept| left[usize::from(kept.from.stripe)]).max()?.min(whole);
            let gone: Vec<ChunkIndex> =
                kept.iter().filter(|kept| lost.contains(&kept.from)).map(|kept| kept.to.chunk).collect();
            let after = self.to.tolerance_left(&gone);
            (after < before).then_some(Weakened { target, before, after })
        };
        (0..self.targets).find_map(weakened)
    }
}

/// A new stripe that survives less than it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weakened {
    /// Which of the new stripes.
    pub target: u16,
    /// Further losses it should survive: what the safest of its old stripes does, or the new code as a whole.
    pub before: i32,
    /// Those that it would.
    pub after: i32,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoConversion {
    /// The old code is none.
    #[error("the old code {spec} is not valid")]
    From {
        /// The old code.
        spec: CodeSpec,
        /// What is wrong with it.
        source: SpecError,
    },
    /// The new code is none.
    #[error("the new code {spec} is not valid")]
    To {
        /// The new code.
        spec: CodeSpec,
        /// What is wrong with it.
        source: SpecError,
    },
    /// Both codes are the same.
    #[error("stripes of {spec} have that code already")]
    Same {
        /// Both codes.
        spec: CodeSpec,
    },
    /// The least number of data chunks that fills whole stripes of both codes is out of proportion.
    #[error("{from} and {to} meet at {data} data chunks, the limit is {limit}")]
    TooWide {
        /// The old code.
        from: CodeSpec,
        /// The new code.
        to: CodeSpec,
        /// The least common multiple of their data chunks.
        data: u32,
        /// [`CONVERSION_DATA_MAX`].
        limit: u32,
    },
}

/// The most data chunks of one conversion.
pub const CONVERSION_DATA_MAX: u32 = 4096;
