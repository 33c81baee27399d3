//! Simulated time on tokio's paused clock.
//!
//! Invariants:
//! 1. One tick of tokio's timer, a millisecond, is one simulated microsecond: the timer is no finer, and disks are.
//! 2. Time passes only while every task waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use claystone_env::{Clock, Moment, WallTime};
use futures::future::{BoxFuture, FutureExt};
use tokio::time::Instant;

const TICKS: u32 = 1000;
const TOKIO_SLEEP_MAX: Duration = Duration::from_secs(10 * 365 * 86400);
const SLEEP_MAX: Duration = Duration::from_secs(100 * 365 * 86400);

/// The clock of a process: the world's time, and a wall clock that may be wrong.
#[derive(Debug, Clone)]
pub struct SimClock {
    began: Instant,
    wall_at_begin_ms: u64,
    wall_error_ms: Arc<AtomicI64>,
}

impl SimClock {
    /// A clock that begins now. Within [`run`](crate::run) only.
    pub(crate) fn new(wall_at_begin_ms: u64) -> SimClock {
        SimClock { began: Instant::now(), wall_at_begin_ms, wall_error_ms: Arc::default() }
    }

    /// The same time with a wall clock of its own.
    pub(crate) fn for_process(&self) -> SimClock {
        SimClock { wall_error_ms: Arc::default(), ..self.clone() }
    }

    /// Sets how far the wall clock is ahead of the truth.
    pub fn set_wall_error_ms(&self, error_ms: i64) {
        self.wall_error_ms.store(error_ms, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Moment {
        Moment(self.began.elapsed() / TICKS)
    }

    fn wall(&self) -> WallTime {
        let right = self.wall_at_begin_ms + self.now().0.as_millis() as u64;
        WallTime { unix_ms: right.saturating_add_signed(self.wall_error_ms.load(Ordering::Relaxed)) }
    }

    fn sleep(&self, delay: Duration) -> BoxFuture<'static, ()> {
        let delay = delay.min(SLEEP_MAX) * TICKS;
        let end = Instant::now() + delay;
        async move {
            // One sleep of tokio ends after 30 years at the latest, which are 11 days here. Nearly all are shorter, and to ask for the
            // time costs as much as to sleep.
            if delay <= TOKIO_SLEEP_MAX {
                if !delay.is_zero() {
                    tokio::time::sleep_until(end).await;
                }
                return;
            }
            while Instant::now() < end {
                tokio::time::sleep_until(end.min(Instant::now() + TOKIO_SLEEP_MAX)).await;
            }
        }
        .boxed()
    }
}
