//! What a run did, and how many faults it met.

use std::fmt;
use std::iter::Sum;
use std::ops::AddAssign;

use claystone_sim::TraceSum;

/// Faults, by their kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultCounts {
    /// Power cuts.
    pub cuts: u64,
    /// Operations of the device that failed.
    pub failed: u64,
    /// Sectors that failed softly.
    pub soft: u64,
    /// Sectors that were lost, flipped, stale or overwritten.
    pub hurt: u64,
}

impl FaultCounts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.hard() + self.soft
    }

    /// All but soft ones.
    pub fn hard(&self) -> u64 {
        self.cuts + self.failed + self.hurt
    }
}

impl AddAssign for FaultCounts {
    fn add_assign(&mut self, more: FaultCounts) {
        self.cuts += more.cuts;
        self.failed += more.failed;
        self.soft += more.soft;
        self.hurt += more.hurt;
    }
}

impl Sum for FaultCounts {
    fn sum<I: Iterator<Item = FaultCounts>>(each: I) -> FaultCounts {
        each.fold(FaultCounts::default(), |mut sum, more| {
            sum += more;
            sum
        })
    }
}

impl fmt::Display for FaultCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FaultCounts { cuts, failed, soft, hurt } = self;
        let hard = self.hard();
        write!(
            f,
            "{hard} hard faults: {cuts} power cuts, {failed} failed operations, {hurt} hurt sectors; and {soft} soft failures"
        )
    }
}

/// What a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskReport {
    /// Everything that happened, as one number.
    pub trace: TraceSum,
    /// Steps that were done.
    pub steps: u64,
    /// Steps that found no space.
    pub refused: u64,
    /// Groups that were scrubbed in passing.
    pub passed: u64,
    /// Operations of the device.
    pub operations: u64,
    /// What went wrong.
    pub faults: FaultCounts,
    /// Whether the fault of a case with one fault was reached.
    pub reached: bool,
    /// Errors that named what was lost beyond repair.
    pub named: u64,
}
