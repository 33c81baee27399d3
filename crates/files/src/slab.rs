//! A slab: where pages of the page file and their sums lie.
//!
//! Invariants:
//! 1. Sums sector i of slot s begins at `first + (2 i + s) copies`, page j at `first + (2 t + j) copies`, with t sums
//!    sectors; each takes `copies` sectors in a row.

use claystone_env::{SECTOR_BYTES, Sector};

/// Sums in a sums sector.
pub const SUMS: u64 = 1018;

/// Consecutive pages of the page file in consecutive sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slab {
    /// Where it begins.
    pub first: Sector,
    /// How many pages it has.
    pub pages: u64,
}

impl Slab {
    /// Its sums sectors, each slot of each counted once.
    pub fn sums_sectors(&self) -> u64 {
        self.pages.div_ceil(SUMS)
    }

    /// Sectors of the device that it takes.
    pub fn sectors(&self, copies: u64) -> u64 {
        (2 * self.sums_sectors() + self.pages) * copies
    }

    /// Where a slot (0 or 1) of a sums sector begins.
    pub fn sums_place(&self, number: u64, slot: u64, copies: u64) -> Sector {
        Sector(self.first.0 + (2 * number + slot) * copies)
    }

    /// Where a page of the slab begins.
    pub fn page_place(&self, page: u64, copies: u64) -> Sector {
        Sector(self.first.0 + (2 * self.sums_sectors() + page) * copies)
    }
}

const _: () = assert!(24 + 4 * SUMS as usize == SECTOR_BYTES, "a sums sector is full");
