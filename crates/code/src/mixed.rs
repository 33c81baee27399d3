//! Some data chunks with copies and the others with parity: what a stripe is of which a part is written much.
//!
//! A stripe of `mixed:K+MxC:A+B` has the K data chunks, then the M parity chunks of `rs:K+M` with zeros in the place of the data
//! chunks A and B, then the second copies of A and B in this order, then the third ones. A data chunk goes from the one to the other where it is:
//! parity is made anew, its own copies are written or dropped, and those of others stay.
//!
//! Invariants:
//! 1. A stripe is lost with all copies of one mirrored chunk, or with more than M of the other data chunks and the parity: each of these sets
//!    bears its own losses, and a chunk of one may share a disk with a chunk of another. But no two data chunks do, which may come to be of one set.
//! 2. A change of a mirrored chunk reaches its own copies only, one of another the parity only.
//! 3. Some data chunk is mirrored, and some is not: `mirror` has all and `rs` none.

use crate::{ChunkIndex, SpecError, grs::Grs, linear::Generator};

/// Numbers of data chunks, up to 32 of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkSet(u32);

impl ChunkSet {
    /// The most data chunks of a code of which a part is in such a set.
    pub const DATA_MAX: u16 = 32;

    /// The first `count` data chunks.
    ///
    /// # Panics
    /// If these are more than [`DATA_MAX`](Self::DATA_MAX).
    pub fn first(count: u16) -> ChunkSet {
        (0..count).map(ChunkIndex).collect()
    }

    /// Whether a chunk is one of them.
    pub fn contains(self, chunk: ChunkIndex) -> bool {
        chunk.0 < Self::DATA_MAX && self.0 >> chunk.0 & 1 == 1
    }

    /// This one too.
    ///
    /// # Panics
    /// If it is beyond [`DATA_MAX`](Self::DATA_MAX).
    #[must_use]
    pub fn with(self, chunk: ChunkIndex) -> ChunkSet {
        assert!(chunk.0 < Self::DATA_MAX, "chunk {chunk} in a set of the first {}", Self::DATA_MAX);
        ChunkSet(self.0 | 1 << chunk.0)
    }

    /// All but this one.
    #[must_use]
    pub fn without(self, chunk: ChunkIndex) -> ChunkSet {
        if self.contains(chunk) { ChunkSet(self.0 & !(1 << chunk.0)) } else { self }
    }

    /// How many.
    pub fn count(self) -> u16 {
        self.0.count_ones() as u16
    }

    /// None.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Those that are not in `other`.
    #[must_use]
    pub fn minus(self, other: ChunkSet) -> ChunkSet {
        ChunkSet(self.0 & !other.0)
    }

    /// Each, ascending.
    pub fn iter(self) -> impl Iterator<Item = ChunkIndex> + Clone {
        (0..Self::DATA_MAX).map(ChunkIndex).filter(move |chunk| self.contains(*chunk))
    }
}

impl FromIterator<ChunkIndex> for ChunkSet {
    fn from_iter<I: IntoIterator<Item = ChunkIndex>>(chunks: I) -> ChunkSet {
        chunks.into_iter().fold(ChunkSet::default(), ChunkSet::with)
    }
}

/// The numbers of a mixed code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mixed {
    pub(crate) data: u8,
    pub(crate) parity: u8,
    pub(crate) copies: u8,
    pub(crate) mirrored: ChunkSet,
}

impl Mixed {
    /// Chunks of the data and the parity.
    fn coded(&self) -> u16 {
        u16::from(self.data) + u16::from(self.parity)
    }

    /// Parity chunks and further copies.
    pub(crate) fn redundant(&self) -> u16 {
        u16::from(self.parity) + self.mirrored.count() * u16::from(self.copies).saturating_sub(1)
    }

    /// The data chunk that `chunk` is a further copy of, if it is one.
    pub(crate) fn copied(&self, chunk: ChunkIndex) -> Option<ChunkIndex> {
        let copy = chunk.0.checked_sub(self.coded())?;
        self.mirrored.iter().nth(usize::from(copy % self.mirrored.count()))
    }

    /// [`CodeSpec::lost_with`](crate::CodeSpec::lost_with).
    pub(crate) fn set_of(&self, chunk: ChunkIndex) -> Option<ChunkIndex> {
        if self.mirrored.contains(chunk) { Some(chunk) } else { self.copied(chunk) }
    }

    /// [`CodeSpec::disks_min`](crate::CodeSpec::disks_min): wherever the others lie, there is one for a data chunk, which is beside no other data and
    /// nothing of its set.
    pub(crate) fn disks_min(&self) -> u16 {
        u16::from(self.data) + u16::from(self.parity).max(u16::from(self.copies).saturating_sub(1))
    }

    /// [`CodeSpec::may_share_disk`](crate::CodeSpec::may_share_disk).
    pub(crate) fn may_share_disk(&self, one: ChunkIndex, other: ChunkIndex) -> bool {
        let are_data = one.0.max(other.0) < u16::from(self.data);
        !are_data && self.set_of(one) != self.set_of(other)
    }

    /// [`CodeSpec::tolerance`](crate::CodeSpec::tolerance).
    pub(crate) fn tolerance(&self) -> u16 {
        u16::from(self.parity).min(u16::from(self.copies).saturating_sub(1))
    }

    /// [`CodeSpec::tolerance_left`](crate::CodeSpec::tolerance_left).
    pub(crate) fn tolerance_left(&self, is_lost: &[bool]) -> i32 {
        let lost = || (0..).map(ChunkIndex).zip(is_lost).filter(|(_, is_lost)| **is_lost).map(|(chunk, _)| chunk);
        let of = |set: Option<ChunkIndex>| lost().filter(|chunk| self.set_of(*chunk) == set).count() as i32;
        let mirrored = self.mirrored.iter().map(|data| i32::from(self.copies) - 1 - of(Some(data)));
        let left: Vec<i32> = mirrored.chain([i32::from(self.parity) - of(None)]).collect();
        match left.iter().filter(|left| **left < 0).sum() {
            0 => left.into_iter().min().expect("the parity"),
            missing => missing,
        }
    }

    /// Whether some of its data chunks are mirrored and some are not.
    ///
    /// # Errors
    /// [`SpecError::NotMixed`].
    pub(crate) fn validate(&self) -> Result<(), SpecError> {
        let data = u16::from(self.data);
        let in_data = self.mirrored.iter().all(|chunk| chunk.0 < data);
        match in_data && !self.mirrored.is_empty() && self.mirrored.count() < data && data <= ChunkSet::DATA_MAX {
            true => Ok(()),
            false => Err(SpecError::NotMixed { data }),
        }
    }

    pub(crate) fn generator(&self) -> Generator {
        let (data, parity) = (u16::from(self.data), u16::from(self.parity));
        let grs = Grs::cauchy(data, parity);
        let is_coded = |chunk: &u16| !self.mirrored.contains(ChunkIndex(*chunk));
        let row = |at: u16| -> Vec<u8> {
            (0..data).map(|chunk| if is_coded(&chunk) { grs.coefficient(at, chunk) } else { 0 }).collect()
        };
        let copies = (1..self.copies).flat_map(|_| self.mirrored.iter());
        let copy = |of: ChunkIndex| (0..data).map(|chunk| u8::from(chunk == of.0)).collect();
        let rows = (0..parity).map(row).chain(copies.clone().map(copy)).collect();
        // The first parity is the sum of the data that it has.
        let sum = (0..data).filter(is_coded).chain([data]).map(ChunkIndex).collect();
        let checks = (self.coded()..).map(ChunkIndex).zip(copies).map(|(copy, of)| vec![of, copy]);
        Generator::new(data, rows, [sum].into_iter().chain(checks).collect())
    }
}
