//! Who writes or flushes now, and how merging gives way to them.
//!
//! A client's write is short, and waits for whatever else its disks, the processors and the log are busy with at that
//! moment. So a merge takes short steps, one at a time while somebody writes, and begins none of them during a write.
//! But a step waits so long at most: beside writes that never end merging goes on, more slowly.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use claystone_env::{Clock, Moment, timeout};
use tokio::sync::Notify;

/// The writes that are under way.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    under_way: AtomicU64,
    /// The last of them has ended.
    ended: Notify,
    /// When one last began.
    last: Mutex<Option<Moment>>,
}

/// A write under way, until this is dropped.
#[derive(Debug)]
pub(crate) struct Writing<'a>(&'a Pace);

impl Pace {
    /// A write begins.
    pub(crate) fn enter(&self, now: Moment) -> Writing<'_> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        self.under_way.fetch_add(1, Ordering::AcqRel);
        Writing(self)
    }

    /// Whether somebody wrote a moment ago.
    pub(crate) fn is_wanted(&self, now: Moment) -> bool {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_busy() || last.is_some_and(|last| now.since(last) < LATELY)
    }

    /// Waits until no write is under way, but `wait_max` at most. Other tasks of this thread run in any case.
    pub(crate) async fn give_way(&self, clock: &dyn Clock, wait_max: Duration) {
        if !self.is_busy() || wait_max.is_zero() {
            tokio::task::yield_now().await;
            return;
        }
        let none_is_left = async {
            loop {
                let ended = self.ended.notified();
                let mut ended = std::pin::pin!(ended);
                // Whoever ends after the look below wakes this.
                ended.as_mut().enable();
                if !self.is_busy() {
                    return;
                }
                ended.await;
            }
        };
        timeout(clock, wait_max, none_is_left).await;
    }

    fn is_busy(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if self.0.under_way.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.ended.notify_waiters();
        }
    }
}

/// Merging gives way for so long after a write: another one may come.
const LATELY: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const WAIT_MAX: Duration = Duration::from_millis(1);

    #[tokio::test]
    async fn a_step_begins_between_writes_or_soon() {
        let env = claystone_host::env().expect("an environment");
        let (clock, pace) = (&*env.clock, Pace::default());
        assert!(!pace.is_wanted(clock.now()));
        let (first, second) = (pace.enter(clock.now()), pace.enter(clock.now()));
        assert!(pace.is_wanted(clock.now()));
        let mut step = Box::pin(pace.give_way(clock, WAIT_MAX));
        assert!(step.as_mut().now_or_never().is_none());
        drop(first);
        assert!(step.as_mut().now_or_never().is_none(), "one is under way");
        drop(second);
        assert!(step.as_mut().now_or_never().is_some(), "none is under way");
        assert!(!pace.is_wanted(clock.now().after(LATELY)));
        // One that never ends does not hold it up for ever.
        let _endless = pace.enter(clock.now());
        pace.give_way(clock, WAIT_MAX).await;
        pace.give_way(clock, Duration::ZERO).await;
    }
}
