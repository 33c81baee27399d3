//! What a disk's groups saw: how often sectors failed, and what became of it.
//!
//! Invariants:
//! 1. Counts only grow, and are read one by one: a snapshot taken during an operation may show half of it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the disk was opened.
#[derive(Debug, Default)]
pub struct Statistics {
    pub(crate) sectors_read: AtomicU64,
    pub(crate) sectors_bridged: AtomicU64,
    pub(crate) sectors_fail_fast: AtomicU64,
    pub(crate) soft_failures: AtomicU64,
    pub(crate) mismatches: AtomicU64,
    pub(crate) mended: AtomicU64,
    pub(crate) mismatches_mended: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) retries_avoided: AtomicU64,
    pub(crate) sums_learnt: AtomicU64,
    pub(crate) mends_not_written: AtomicU64,
    pub(crate) sectors_lost: AtomicU64,
}

/// The counts at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatisticsNow {
    /// Sectors asked of the device.
    pub sectors_read: u64,
    /// Those of them that were to be read at once or not at all.
    pub sectors_fail_fast: u64,
    /// Sectors that did not read at once.
    pub soft_failures: u64,
    /// Sectors that were read and whose CRC was not theirs.
    pub mismatches: u64,
    /// Data sectors that failed in any way, and that others or a cache gave back.
    pub mended: u64,
    /// Those of them whose CRC was not theirs.
    pub mismatches_mended: u64,
    /// Sectors that the device was asked to retry after it had failed.
    pub retries: u64,
    /// Soft failures that were mended without a retry.
    pub retries_avoided: u64,
    /// Sums sectors made anew from their groups.
    pub sums_learnt: u64,
    /// Mended sectors that the device did not take.
    pub mends_not_written: u64,
    /// Data sectors that were wanted and could not be had.
    pub sectors_lost: u64,
}

impl Statistics {
    /// Sectors that were read though not needed, on the way between others ([`Groups::with_bridge`](crate::Groups::with_bridge)),
    /// so far. They are in [`StatisticsNow::sectors_read`] too.
    pub fn sectors_bridged(&self) -> u64 {
        self.sectors_bridged.load(Ordering::Relaxed)
    }

    /// The counts now.
    pub fn now(&self) -> StatisticsNow {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        StatisticsNow {
            sectors_read: of(&self.sectors_read),
            sectors_fail_fast: of(&self.sectors_fail_fast),
            soft_failures: of(&self.soft_failures),
            mismatches: of(&self.mismatches),
            mended: of(&self.mended),
            mismatches_mended: of(&self.mismatches_mended),
            retries: of(&self.retries),
            retries_avoided: of(&self.retries_avoided),
            sums_learnt: of(&self.sums_learnt),
            mends_not_written: of(&self.mends_not_written),
            sectors_lost: of(&self.sectors_lost),
        }
    }
}

impl StatisticsNow {
    /// The chance that a sector does not read at once, p_h, as it was seen; `None` before anything was read so.
    // Source: [lec §3.1]
    pub fn soft_rate(&self) -> Option<f64> {
        (self.sectors_fail_fast > 0).then(|| self.soft_failures as f64 / self.sectors_fail_fast as f64)
    }
}

/// Adds to a count.
pub(crate) fn count(counter: &AtomicU64, more: usize) {
    if more > 0 {
        counter.fetch_add(more as u64, Ordering::Relaxed);
    }
}
