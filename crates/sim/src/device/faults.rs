//! What goes wrong on an emulated device, by rate or once.
//!
//! Invariants:
//! 1. Each read of a sector from the medium fails softly with probability [`DeviceFaults::soft`], whatever was read
//!    before: alone, or in bursts within one read whose rate is the same.
//! 2. A sector that failed softly under [`Effort::FailFast`] costs a retry when it is next read under
//!    [`Effort::Retry`], and is then read. An earlier read that happens to succeed settles it too.
//! 3. A rate of zero draws nothing, so it does not shift other draws.

use std::collections::BTreeSet;

use claystone_env::{Effort, Random, SECTOR_BYTES, Sector, SectorFailure, SectorRange};

use super::medium::Medium;

/// How often what goes wrong. Rates are probabilities.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DeviceFaults {
    /// A sector does not read at once; for each read of a sector. The paper's p_h.
    pub soft: f64,
    /// How many consecutive sectors fail softly together, on average; 0 where each fails by itself.
    pub burst_sectors: f64,
    /// A sector turns out to be lost, until it is written; for each read of a sector.
    pub latent: f64,
    /// A bit of a sector has flipped on the medium, unnoticed; for each read of a sector.
    pub flip: f64,
    /// A write goes to other sectors of the device, unnoticed; for each write.
    pub misdirect: f64,
    /// An operation fails as [`SimDevice::fail_after`](crate::SimDevice::fail_after) says; for each operation.
    pub fail: f64,
}

impl DeviceFaults {
    /// Soft failures alone, each sector by itself.
    pub fn soft(rate: f64) -> DeviceFaults {
        DeviceFaults { soft: rate, ..DeviceFaults::default() }
    }

    pub(super) fn check(&self) {
        for rate in [self.soft, self.latent, self.flip, self.misdirect, self.fail] {
            assert!((0.0..=1.0).contains(&rate), "{rate} is no probability");
        }
        if self.burst_sectors != 0.0 {
            assert!(self.burst_sectors >= 1.0, "a burst of {} sectors", self.burst_sectors);
            assert!(self.soft < 1.0 && self.burst_begins() <= 1.0, "bursts so short cannot fail at rate {}", self.soft);
        }
    }

    /// The chance that a burst begins behind a sector that was read, such that the share of failed sectors is `soft`:
    /// a chain of two states leaves "failing" with 1 / burst_sectors.
    fn burst_begins(&self) -> f64 {
        self.soft / (self.burst_sectors * (1.0 - self.soft))
    }
}

/// The faults of a device under way.
#[derive(Debug, Default)]
pub struct FaultState {
    pub rates: DeviceFaults,
    pub cut_after: Option<u64>,
    pub fail_after: Option<u64>,
    pub remove_after: Option<u64>,
    pub misdirect_to: Option<Sector>,
    // Sectors that failed softly and were not read since.
    failing: BTreeSet<u64>,
    in_burst: bool,
}

/// What reading a sector came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    Read,
    Retried,
    Failed(SectorFailure),
}

impl FaultState {
    /// Whether power goes during this operation.
    pub fn cuts(&mut self) -> bool {
        counted_down(&mut self.cut_after)
    }

    /// Whether this operation fails.
    pub fn fails(&mut self, random: &dyn Random) -> bool {
        counted_down(&mut self.fail_after) | happens(self.rates.fail, random)
    }

    /// Whether the device is gone from this operation on.
    pub fn is_last(&mut self) -> bool {
        counted_down(&mut self.remove_after)
    }

    /// Where a write goes.
    pub fn aim(&mut self, range: SectorRange, sectors: u64, random: &dyn Random) -> Sector {
        // So that it stays on the device.
        let places = sectors - range.sectors + 1;
        match self.misdirect_to.take() {
            Some(first) => Sector(first.0.min(places - 1)),
            None if happens(self.rates.misdirect, random) => Sector(random.below(places)),
            None => range.first,
        }
    }

    /// Begins a read of consecutive sectors: it may begin within a burst.
    pub fn begin_read(&mut self, random: &dyn Random) {
        self.in_burst = self.rates.burst_sectors > 0.0 && happens(self.rates.soft, random);
    }

    /// What comes of reading a sector.
    pub fn read(&mut self, sector: u64, effort: Effort, medium: &mut Medium, random: &dyn Random) -> Found {
        let soft = self.fails_softly(random);
        if medium.is_cached(sector) {
            return Found::Read;
        }
        if happens(self.rates.flip, random) {
            medium.flip_bit(sector, random.below(SECTOR_BYTES as u64 * 8) as usize);
        }
        if happens(self.rates.latent, random) {
            medium.make_lost(sector..sector + 1);
        }
        match effort {
            Effort::FailFast if soft || medium.is_lost(sector) => {
                self.failing.insert(sector);
                Found::Failed(SectorFailure::Soft)
            }
            Effort::FailFast => {
                self.failing.remove(&sector);
                Found::Read
            }
            Effort::Retry => match self.failing.remove(&sector) || soft {
                _ if medium.is_lost(sector) => Found::Failed(SectorFailure::Lost),
                true => Found::Retried,
                false => Found::Read,
            },
        }
    }

    fn fails_softly(&mut self, random: &dyn Random) -> bool {
        if self.rates.burst_sectors == 0.0 {
            return happens(self.rates.soft, random);
        }
        let fails = self.in_burst;
        let goes_on = if fails { 1.0 - 1.0 / self.rates.burst_sectors } else { self.rates.burst_begins() };
        self.in_burst = happens(goes_on, random);
        fails
    }
}

fn counted_down(after: &mut Option<u64>) -> bool {
    match after {
        Some(0) => {
            *after = None;
            true
        }
        Some(left) => {
            *left -= 1;
            false
        }
        None => false,
    }
}

/// Whether something of probability `rate` happens, to 2^-53.
fn happens(rate: f64, random: &dyn Random) -> bool {
    rate > 0.0 && ((random.next_u64() >> 11) as f64) < rate * (1u64 << 53) as f64
}
