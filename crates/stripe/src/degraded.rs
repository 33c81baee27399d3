//! Which stripes readers must decode again and again, because a chunk is lost or its disk does not answer.
//!
//! A degraded read decodes for its reader and writes nothing back. Upkeep asks here whose repair would spare the most.
//!
//! Invariants:
//! 1. At most [`STRIPES_MAX`] stripes are remembered; those that are not hot make room, then the oldest.
//! 2. A read that is decoded because a disk is slow does not count: nothing is to be repaired.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use claystone_chunk::StripeId;
use claystone_env::Moment;

/// Degraded reads by stripe. Cheap to clone; calls may come from many tasks.
#[derive(Debug, Clone, Default)]
pub struct DegradedReads(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    stripes: BTreeMap<StripeId, Reads>,
    turned_hot: u64,
}

/// A count and when it was that.
#[derive(Debug, Clone, Copy)]
struct Reads {
    count: f64,
    as_of: Moment,
}

impl DegradedReads {
    /// A reader had to decode chunks of a stripe.
    pub(crate) fn read(&self, stripe: StripeId, now: Moment) {
        let mut state = self.state();
        let before = state.of(stripe, now);
        // However often it was read: it is forgotten within minutes when it is whole again.
        let count = (before + 1.0).min(2.0 * HOT_READS);
        state.stripes.insert(stripe, Reads { count, as_of: now });
        state.turned_hot += u64::from(before < HOT_READS && before + 1.0 >= HOT_READS);
        state.make_room(now);
    }

    /// Stripes that were read degraded several times within minutes.
    pub fn hot(&self, now: Moment) -> BTreeSet<StripeId> {
        let mut state = self.state();
        state.forget_below(COUNT_MIN, now);
        state.stripes.iter().filter(|(_, reads)| reads.decayed(now) >= HOT_READS).map(|(stripe, _)| *stripe).collect()
    }

    /// How often a stripe has become one of [`DegradedReads::hot`].
    pub fn turned_hot(&self) -> u64 {
        self.state().turned_hot
    }

    /// A stripe is whole again, or gone.
    pub fn forget(&self, stripe: StripeId) {
        self.state().stripes.remove(&stripe);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn of(&self, stripe: StripeId, now: Moment) -> f64 {
        self.stripes.get(&stripe).map_or(0.0, |reads| reads.decayed(now))
    }

    fn make_room(&mut self, now: Moment) {
        if self.stripes.len() > STRIPES_MAX {
            self.forget_below(HOT_READS, now);
        }
        while self.stripes.len() > STRIPES_MAX {
            self.stripes.pop_first();
        }
    }

    fn forget_below(&mut self, least: f64, now: Moment) {
        self.stripes.retain(|_, reads| reads.decayed(now) >= least);
    }
}

impl Reads {
    fn decayed(&self, now: Moment) -> f64 {
        self.count * 0.5f64.powf(now.since(self.as_of).as_secs_f64() / HALF_LIFE.as_secs_f64())
    }
}

/// Three reads within two minutes, say, or four within eight.
const HOT_READS: f64 = 2.5;
const HALF_LIFE: Duration = Duration::from_secs(600);
const COUNT_MIN: f64 = 0.1;
const STRIPES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn several_reads_within_minutes_make_a_stripe_hot_and_an_hour_cools_it() {
        let reads = DegradedReads::default();
        for second in 0..2 {
            reads.read(StripeId(1), at(second));
        }
        assert_eq!((reads.hot(at(2)), reads.turned_hot()), (BTreeSet::new(), 0));
        reads.read(StripeId(1), at(2));
        reads.read(StripeId(1), at(3));
        assert_eq!((reads.hot(at(3)), reads.turned_hot()), (BTreeSet::from([StripeId(1)]), 1));
        assert_eq!(reads.hot(at(3600)), BTreeSet::new());
        // Reads that lie far apart do not add up.
        for hour in 0..9 {
            reads.read(StripeId(2), at(3600 * hour));
        }
        assert_eq!(reads.turned_hot(), 1);
        (0..3).for_each(|_| reads.read(StripeId(2), at(40_000)));
        reads.forget(StripeId(2));
        assert_eq!(reads.hot(at(40_000)), BTreeSet::new());
    }

    #[test]
    fn a_stripe_that_was_read_very_often_cools_as_soon() {
        let reads = DegradedReads::default();
        (0..10_000).for_each(|_| reads.read(StripeId(1), at(0)));
        assert_eq!(reads.hot(at(599)).len(), 1);
        assert_eq!(reads.hot(at(602)), BTreeSet::new());
    }

    #[test]
    fn memory_is_bounded_and_the_least_read_go() {
        let reads = DegradedReads::default();
        (0..3).for_each(|_| reads.read(StripeId(9_999_999), at(0)));
        (0..2 * STRIPES_MAX as u128).for_each(|stripe| reads.read(StripeId(stripe), at(1)));
        assert!(reads.state().stripes.len() <= STRIPES_MAX);
        assert_eq!(reads.hot(at(1)), BTreeSet::from([StripeId(9_999_999)]));
    }
}
