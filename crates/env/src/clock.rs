//! Time: a monotonic moment for intervals, wall time for what people see.
//!
//! Invariants:
//! 1. [`Clock::now`] never goes back.
//! 2. Nothing orders events by [`WallTime`]; it may jump either way.

use std::time::Duration;

use futures::future::{BoxFuture, Either, select};

/// A point on the monotonic clock: the time since the world (process or simulation) began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(pub Duration);

impl Moment {
    /// Time passed from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment `delay` after this one.
    pub fn after(self, delay: Duration) -> Moment {
        Moment(self.0 + delay)
    }
}

/// Wall-clock time in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WallTime {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub unix_ms: u64,
}

/// Where time comes from.
pub trait Clock: Send + Sync + 'static {
    /// The monotonic time.
    fn now(&self) -> Moment;
    /// The wall-clock time.
    fn wall(&self) -> WallTime;
    /// Completes `delay` from now. Dropping the future cancels it.
    fn sleep(&self, delay: Duration) -> BoxFuture<'static, ()>;
}

/// Runs `future` for at most `limit`; `None` means that time ran out and the future was dropped.
///
/// A future that is ready together with the limit counts as in time.
pub async fn timeout<F: Future>(clock: &dyn Clock, limit: Duration, future: F) -> Option<F::Output> {
    let sleep = clock.sleep(limit);
    let future = std::pin::pin!(future);
    match select(future, sleep).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(((), _)) => None,
    }
}
