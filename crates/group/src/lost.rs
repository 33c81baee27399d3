//! Sectors that no retry read, in memory: who brings data into groups in the background does not ask for them again.
//!
//! A retry takes a drive tens of milliseconds, and seconds where it fails. A group of which more is lost than parity replaces would be retried with each
//! update of it.
//!
//! ```text
//! unknown --a retry fails, or reads what is wrong--> lost --written, or read and right--> unknown
//! ```
//!
//! Invariants:
//! 1. What is here is never an answer to a reader: readers and scrubs ask the device, and what reads then is lost no more.
//! 2. At most [`PLACES_MAX`] are remembered; what is found beyond that is retried each time.
//! 3. Nothing of it is stored: whoever opens the disk tries again.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use claystone_env::Sector;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LostPlaces(Mutex<BTreeSet<u64>>);

impl LostPlaces {
    /// No retry reads this.
    pub fn note(&self, place: Sector) {
        let mut places = self.places();
        if places.len() < PLACES_MAX {
            places.insert(place.0);
        }
    }

    /// These are written anew, or were read.
    pub fn forget(&self, sectors: Range<u64>) {
        let mut places = self.places();
        let gone: Vec<u64> = places.range(sectors).copied().collect();
        for place in gone {
            places.remove(&place);
        }
    }

    /// Whether no retry read it.
    pub fn holds(&self, place: Sector) -> bool {
        self.places().contains(&place.0)
    }

    /// Those of a range, ascending.
    pub fn among(&self, sectors: Range<u64>) -> Vec<u64> {
        self.places().range(sectors).copied().collect()
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.places().len() as u64
    }

    fn places(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// 4 MiB of memory at most.
const PLACES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use claystone_env::Sector;

    use super::{LostPlaces, PLACES_MAX};

    #[test]
    fn so_many_are_remembered_until_they_are_written() {
        let lost = LostPlaces::default();
        (0..2 * PLACES_MAX as u64).for_each(|place| lost.note(Sector(place)));
        assert_eq!(lost.count(), PLACES_MAX as u64);
        lost.forget(3..5);
        assert_eq!(lost.among(1..8), [1, 2, 5, 6, 7]);
        assert!(lost.holds(Sector(2)) && !lost.holds(Sector(3)));
        lost.note(Sector(1 << 40));
        assert!(lost.holds(Sector(1 << 40)), "there is room again");
    }
}
