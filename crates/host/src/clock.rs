//! The machine's clocks.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use claystone_env::{Clock, Moment, WallTime};
use futures::future::{BoxFuture, FutureExt};

/// Monotonic time since it was started, and the system's wall time. Sleeps need a tokio runtime.
#[derive(Debug, Clone, Copy)]
pub struct HostClock {
    started: Instant,
}

impl HostClock {
    /// A clock whose [`Moment`] is zero now.
    pub fn start() -> HostClock {
        HostClock { started: Instant::now() }
    }
}

impl Clock for HostClock {
    fn now(&self) -> Moment {
        Moment(self.started.elapsed())
    }

    fn wall(&self) -> WallTime {
        // A clock set before 1970 shows as 1970.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallTime { unix_ms: since.as_millis() as u64 }
    }

    fn sleep(&self, delay: Duration) -> BoxFuture<'static, ()> {
        // Made inside the future, so that no runtime is needed before it is polled.
        async move { tokio::time::sleep(delay).await }.boxed()
    }
}
