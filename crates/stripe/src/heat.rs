//! How much each stripe is read: decayed counts in memory, which upkeep writes to the records every few minutes.
//!
//! A read of all bytes of a stripe adds 1, of a tenth of them a tenth; a half-life later it counts half. So the heat of
//! bytes is the same whatever stripe they are in, and the thresholds of fast and compact stripes can be compared.
//!
//! What was counted since the last write is lost in a crash. Nothing but the choice of codes depends on it, and what is
//! read still is counted again.
//!
//! Invariants:
//! 1. At most [`STRIPES_MAX`] stripes are remembered; the coolest make room.
//! 2. What is forgotten here is forgotten in the records with the next write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use claystone_chunk::StripeId;
use claystone_env::WallTime;
use claystone_meta::HeatRecord;

/// The heat of stripes. Cheap to clone; calls may come from many tasks.
#[derive(Debug, Clone)]
pub struct Heats(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    half_life: Duration,
    stripes: BTreeMap<StripeId, Heat>,
    /// Those of which the records say something else.
    unwritten: BTreeSet<StripeId>,
}

/// A count and when it was that.
#[derive(Debug, Clone, Copy)]
struct Heat {
    count: f64,
    as_of: WallTime,
}

impl Heats {
    /// Nothing was read yet.
    ///
    /// # Panics
    /// If the half-life is nothing.
    pub fn new(half_life: Duration) -> Heats {
        assert!(!half_life.is_zero(), "a half-life is longer than nothing");
        Heats(Arc::new(Mutex::new(State { half_life, stripes: BTreeMap::new(), unwritten: BTreeSet::new() })))
    }

    /// A read counts half after so long.
    pub fn half_life(&self) -> Duration {
        self.state().half_life
    }

    /// So many of the bytes of a stripe of `data_bytes` are read.
    pub fn read(&self, stripe: StripeId, bytes: u64, data_bytes: u64, now: WallTime) {
        assert!(bytes <= data_bytes, "{bytes} bytes of {data_bytes}");
        let mut state = self.state();
        let count = state.of(stripe, now) + bytes as f64 / data_bytes.max(1) as f64;
        state.set(stripe, count, now);
    }

    /// The heat of a stripe: 0 if it is not known to be read.
    pub fn of(&self, stripe: StripeId, now: WallTime) -> f64 {
        self.state().of(stripe, now)
    }

    /// The heat that the records know, at the start; what was counted since then is added to it.
    pub fn load(&self, known: &[HeatRecord], now: WallTime) {
        let mut state = self.state();
        for HeatRecord { stripe, count, as_of } in known {
            let counted = state.of(*stripe, now);
            let is_counted = counted > 0.0;
            if is_counted {
                let count = counted + state.decayed(Heat { count: *count, as_of: *as_of }, now);
                state.set(*stripe, count, now);
            } else if !state.unwritten.contains(stripe) {
                state.stripes.insert(*stripe, Heat { count: *count, as_of: *as_of });
            }
        }
        state.make_room(now);
    }

    /// Stripes of which the records say something else, at most `limit`, with what they are to say; a count of 0 where a stripe
    /// is forgotten. They count as written from now on.
    pub fn take_unwritten(&self, now: WallTime, limit: usize) -> Vec<HeatRecord> {
        let mut state = self.state();
        state.forget_cold(now);
        let ids: Vec<StripeId> = state.unwritten.iter().take(limit).copied().collect();
        let record = |stripe: &StripeId| {
            let heat = state.stripes.get(stripe).copied().unwrap_or(Heat { count: 0.0, as_of: now });
            HeatRecord { stripe: *stripe, count: heat.count, as_of: heat.as_of }
        };
        let records = ids.iter().map(record).collect();
        ids.iter().for_each(|stripe| {
            state.unwritten.remove(stripe);
        });
        records
    }

    /// They were not written after all.
    pub fn put_back(&self, records: &[HeatRecord]) {
        self.state().unwritten.extend(records.iter().map(|record| record.stripe));
    }

    /// Stripes are gone, and the records know that.
    pub fn forget(&self, stripes: &[StripeId]) {
        let mut state = self.state();
        for stripe in stripes {
            state.stripes.remove(stripe);
            state.unwritten.remove(stripe);
        }
    }

    /// Targets of a conversion are as hot as the sources were, each source counted by its bytes: which bytes of a stripe are
    /// read is not known, so all of them count as read alike.
    ///
    /// Two stripes read 3 times and once, of equal length, merge into one read twice; split again, both count as read twice
    /// until they are read differently.
    pub fn inherit(&self, sources: &[(StripeId, u64)], targets: &[StripeId], now: WallTime) {
        let mut state = self.state();
        let all: u64 = sources.iter().map(|(_, data_bytes)| data_bytes).sum();
        let read: f64 = sources.iter().map(|(source, data_bytes)| state.of(*source, now) * *data_bytes as f64).sum();
        for (source, _) in sources {
            state.stripes.remove(source);
            state.unwritten.insert(*source);
        }
        let count = read / all.max(1) as f64;
        if count >= COUNT_MIN {
            targets.iter().for_each(|target| state.set(*target, count, now));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn of(&self, stripe: StripeId, now: WallTime) -> f64 {
        self.stripes.get(&stripe).map_or(0.0, |heat| self.decayed(*heat, now))
    }

    fn decayed(&self, heat: Heat, now: WallTime) -> f64 {
        // A clock that was set back decays nothing.
        let seconds = now.unix_ms.saturating_sub(heat.as_of.unix_ms) as f64 / 1000.0;
        heat.count * 0.5f64.powf(seconds / self.half_life.as_secs_f64())
    }

    fn set(&mut self, stripe: StripeId, count: f64, now: WallTime) {
        self.stripes.insert(stripe, Heat { count, as_of: now });
        self.unwritten.insert(stripe);
        self.make_room(now);
    }

    /// Forgets the cooler half, so that this is seldom done.
    fn make_room(&mut self, now: WallTime) {
        if self.stripes.len() <= STRIPES_MAX {
            return;
        }
        let mut counts: Vec<f64> = self.stripes.values().map(|heat| self.decayed(*heat, now)).collect();
        let middle = counts.len() / 2;
        let (_, median, _) = counts.select_nth_unstable_by(middle, f64::total_cmp);
        let least = *median;
        self.forget_below(least, now);
        // All alike: the oldest go.
        while self.stripes.len() > STRIPES_MAX {
            let (stripe, _) = self.stripes.pop_first().expect("there are more than the bound");
            self.unwritten.insert(stripe);
        }
    }

    fn forget_cold(&mut self, now: WallTime) {
        self.forget_below(COUNT_MIN, now);
    }

    fn forget_below(&mut self, least: f64, now: WallTime) {
        let is_below = |(_, heat): &(&StripeId, &Heat)| self.decayed(**heat, now) < least;
        let below: Vec<StripeId> = self.stripes.iter().filter(is_below).map(|(stripe, _)| *stripe).collect();
        for stripe in below {
            self.stripes.remove(&stripe);
            self.unwritten.insert(stripe);
        }
    }
}

/// Stripes remembered: some 20 MiB of memory, and 16 TiB of objects, in the longest stripes, that are read.
const STRIPES_MAX: usize = 1 << 18;
/// What counts less is as good as never read: a hundredth of a read is the finest threshold.
const COUNT_MIN: f64 = 0.005;

#[cfg(test)]
mod tests {
    use super::*;

    const HALF_LIFE: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> WallTime {
        WallTime { unix_ms: 1_000_000 + seconds * 1000 }
    }

    #[test]
    fn a_read_counts_by_its_bytes_and_half_after_a_half_life() {
        let heats = Heats::new(HALF_LIFE);
        assert_eq!(heats.of(StripeId(7), at(0)), 0.0);
        heats.read(StripeId(7), 100, 100, at(0));
        heats.read(StripeId(7), 50, 100, at(10));
        assert_eq!((heats.of(StripeId(7), at(10)), heats.of(StripeId(7), at(20))), (1.0, 0.5));
        assert_eq!(heats.of(StripeId(7), at(5)), 1.0, "a clock that was set back");
        assert_eq!(heats.of(StripeId(8), at(10)), 0.0, "its neighbour was not read");
    }

    #[test]
    fn what_changed_is_written_once_and_what_has_cooled_is_forgotten() {
        let heats = Heats::new(HALF_LIFE);
        (1..=3).for_each(|id| heats.read(StripeId(id), 1, 1, at(0)));
        let record = |id, count, seconds| HeatRecord { stripe: StripeId(id), count, as_of: at(seconds) };
        assert_eq!(heats.take_unwritten(at(0), 2), [record(1, 1.0, 0), record(2, 1.0, 0)]);
        assert_eq!(heats.take_unwritten(at(10), 9), [record(3, 1.0, 0)]);
        assert_eq!(heats.take_unwritten(at(10), 9), []);
        heats.put_back(&[record(2, 1.0, 0)]);
        heats.read(StripeId(1), 1, 1, at(10));
        assert_eq!(heats.take_unwritten(at(10), 9), [record(1, 1.5, 10), record(2, 1.0, 0)]);
        // Eight half-lives: less than a two hundredth of one read.
        assert_eq!(heats.take_unwritten(at(80), 9), [record(2, 0.0, 80), record(3, 0.0, 80)]);
        heats.forget(&[StripeId(1)]);
        assert_eq!((heats.of(StripeId(1), at(10)), heats.take_unwritten(at(99), 9)), (0.0, vec![]));
    }

    #[test]
    fn what_the_records_know_is_added_to_what_was_counted_since() {
        let heats = Heats::new(HALF_LIFE);
        heats.read(StripeId(1), 1, 1, at(10));
        let known = [1, 2].map(|id| HeatRecord { stripe: StripeId(id), count: 4.0, as_of: at(0) });
        heats.load(&known, at(10));
        assert_eq!([1, 2].map(|id| heats.of(StripeId(id), at(10))), [3.0, 2.0]);
        let unwritten = heats.take_unwritten(at(10), 9);
        assert_eq!(unwritten, [HeatRecord { stripe: StripeId(1), count: 3.0, as_of: at(10) }]);
    }

    #[test]
    fn targets_are_as_hot_as_the_bytes_of_the_sources() {
        let heats = Heats::new(HALF_LIFE);
        heats.read(StripeId(1), 10, 10, at(0));
        (0..4).for_each(|_| heats.read(StripeId(2), 30, 30, at(0)));
        heats.inherit(&[(StripeId(1), 10), (StripeId(2), 30)], &[StripeId(3)], at(0));
        // 10 bytes once and 30 bytes four times: 130 of 40.
        assert_eq!([1, 2, 3].map(|id| heats.of(StripeId(id), at(0))), [0.0, 0.0, 3.25]);
        heats.inherit(&[(StripeId(3), 40)], &[StripeId(4), StripeId(5)], at(10));
        assert_eq!([3, 4, 5].map(|id| heats.of(StripeId(id), at(10))), [0.0, 1.625, 1.625]);
        let zero: Vec<u128> =
            heats.take_unwritten(at(10), 9).iter().filter(|it| it.count == 0.0).map(|it| it.stripe.0).collect();
        assert_eq!(zero, [1, 2, 3]);
    }

    #[test]
    fn memory_is_bounded_and_the_coolest_go() {
        let heats = Heats::new(HALF_LIFE);
        let known = |id: usize| HeatRecord { stripe: StripeId(id as u128), count: 1.0 + (id % 7) as f64, as_of: at(0) };
        heats.load(&(0..STRIPES_MAX).map(known).collect::<Vec<_>>(), at(0));
        assert_eq!(heats.state().stripes.len(), STRIPES_MAX);
        heats.read(StripeId(u128::MAX), 1, 1, at(0));
        let left = heats.state().stripes.len();
        assert!((STRIPES_MAX / 2..STRIPES_MAX).contains(&left), "{left}");
        assert_eq!([6, 0].map(|id| heats.of(StripeId(id), at(0))), [7.0, 0.0]);
    }
}
