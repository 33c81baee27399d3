//! Which stripes are left alone for a while because an attempt at them failed.
//!
//! Invariants:
//! 1. The pause doubles with each failure in a row, from `retry_min` to `retry_max`: nothing is tried in a hot loop.
//! 2. At most `DEFERRED_MAX` stripes are remembered; the one that is due first makes room.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use claystone_chunk::StripeId;
use claystone_env::Moment;

/// Why an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// More of the stripe is lost than its code can recover.
    Unrecoverable,
    /// It can be recovered only when a disk that is silent now answers again.
    Unreachable,
    /// There is no disk for its chunks, or none with room.
    NoDisk,
    /// A disk failed or did not answer.
    Failed,
}

#[derive(Debug, Clone, Copy)]
struct Deferral {
    until: Moment,
    failures: u32,
    cause: Cause,
}

/// Failed attempts by stripe.
#[derive(Debug, Clone, Default)]
pub struct Backoff(BTreeMap<StripeId, Deferral>);

impl Backoff {
    /// An attempt failed, or there is no use in one. A stripe that is waiting already goes on waiting as it did.
    pub fn failed(&mut self, stripe: StripeId, now: Moment, cause: Cause, min: Duration, max: Duration) {
        if let Some(known) = self.0.get_mut(&stripe)
            && known.until > now
        {
            known.cause = cause;
            return;
        }
        let failures = self.0.get(&stripe).map_or(1, |known| known.failures + 1);
        let doubled = min.saturating_mul(1 << (failures - 1).min(DOUBLINGS_MAX));
        let until = now.after(doubled.min(max));
        if self.0.len() >= DEFERRED_MAX && !self.0.contains_key(&stripe) {
            let first = self.0.iter().min_by_key(|(_, known)| known.until);
            if let Some(id) = first.map(|(id, _)| *id) {
                self.0.remove(&id);
            }
        }
        self.0.insert(stripe, Deferral { until, failures, cause });
    }

    /// An attempt succeeded, or the stripe is gone.
    pub fn forget(&mut self, stripe: StripeId) {
        self.0.remove(&stripe);
    }

    /// Something changed (a disk returned or was added): everything may be tried at once.
    pub fn lift(&mut self) {
        self.0.clear();
    }

    /// Stripes to leave alone now.
    pub fn deferred(&self, now: Moment) -> BTreeSet<StripeId> {
        let waiting = self.0.iter().filter(|(_, known)| known.until > now);
        waiting.map(|(id, _)| *id).collect()
    }

    /// Stripes whose last attempt failed for this cause.
    pub fn count(&self, cause: Cause) -> usize {
        self.0.values().filter(|known| known.cause == cause).count()
    }

    /// Stripes remembered.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Forgets all stripes but these.
    pub fn retain(&mut self, keep: impl Fn(StripeId) -> bool) {
        self.0.retain(|id, _| keep(*id));
    }
}

const DEFERRED_MAX: usize = 65_536;
const DOUBLINGS_MAX: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Duration = Duration::from_secs(30);
    const MAX: Duration = Duration::from_secs(100);

    #[test]
    fn pauses_double_up_to_the_bound() {
        let mut backoff = Backoff::default();
        let stripe = StripeId(7);
        let mut now = Moment::default();
        for pause in [30, 60, 100, 100] {
            backoff.failed(stripe, now, Cause::Failed, MIN, MAX);
            let last = now.after(Duration::from_secs(pause - 1));
            assert!(backoff.deferred(last).contains(&stripe), "{pause}");
            now = now.after(Duration::from_secs(pause));
            assert!(backoff.deferred(now).is_empty(), "{pause}");
        }
        backoff.forget(stripe);
        backoff.failed(stripe, now, Cause::Unrecoverable, MIN, MAX);
        assert!(backoff.deferred(now.after(MIN)).is_empty());
        assert_eq!(backoff.count(Cause::Unrecoverable), 1);
        assert_eq!(backoff.count(Cause::Failed), 0);
    }

    #[test]
    fn memory_is_bounded() {
        let mut backoff = Backoff::default();
        for id in 0..DEFERRED_MAX as u128 + 10 {
            let now = Moment(Duration::from_secs(id as u64));
            backoff.failed(StripeId(id), now, Cause::Failed, MIN, MAX);
            if id > DEFERRED_MAX as u128 {
                break;
            }
        }
        assert_eq!(backoff.len(), DEFERRED_MAX);
    }
}
