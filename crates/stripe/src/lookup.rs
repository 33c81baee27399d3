//! Keeps reclaim away from what somebody has just found by a record and has not claimed yet.
//!
//! ```text
//! reader     begins ---- reads a record ---- claims what it names ---- ends
//! reclaim                       sees the stripe dead: waits for all that began before, then looks for claims
//! ```
//!
//! Invariants:
//! 1. Whoever begins when a stripe is known to be dead does not find it any more. So nothing that was seen dead is found by
//!    anybody when those are done that had begun by then.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Those under way now. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lookups(Arc<Mutex<UnderWay>>);

#[derive(Debug, Default)]
struct UnderWay {
    begun: u64,
    numbers: BTreeSet<u64>,
}

/// A point in the order in which they begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookupsBegun(u64);

/// Somebody reads records and is about to claim what they name. Hold it until then, and no longer.
#[derive(Debug)]
#[must_use = "what is found may be reclaimed before it is claimed"]
pub struct Lookup {
    lookups: Lookups,
    number: u64,
}

impl Lookups {
    fn lock(&self) -> MutexGuard<'_, UnderWay> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self) -> Lookup {
        let mut under_way = self.lock();
        let number = under_way.begun;
        under_way.begun += 1;
        under_way.numbers.insert(number);
        drop(under_way);
        Lookup { lookups: self.clone(), number }
    }

    pub(crate) fn begun(&self) -> LookupsBegun {
        LookupsBegun(self.lock().begun)
    }

    pub(crate) fn are_done(&self, begun: LookupsBegun) -> bool {
        self.lock().numbers.first().is_none_or(|first| *first >= begun.0)
    }
}

impl Drop for Lookup {
    fn drop(&mut self) {
        self.lookups.lock().numbers.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_had_begun_are_waited_for_and_no_later_ones() {
        let lookups = Lookups::default();
        assert!(lookups.are_done(lookups.begun()), "nobody looks");
        let (one, two) = (lookups.begin(), lookups.begin());
        let then = lookups.begun();
        let later = lookups.begin();
        drop(two);
        assert!(!lookups.are_done(then));
        drop(one);
        assert!(lookups.are_done(then) && !lookups.are_done(lookups.begun()));
        drop(later);
        assert!(lookups.are_done(lookups.begun()));
    }
}
