//! A clock that goes on by a millisecond at each look, so that of two changes the later one shows.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use claystone_env::{Clock, Moment, WallTime};

/// See the module. It begins in 2001.
#[derive(Debug, Default)]
pub struct SteppingClock {
    looks: AtomicU64,
}

impl Clock for SteppingClock {
    fn now(&self) -> Moment {
        Moment(Duration::from_millis(self.looks.fetch_add(1, Ordering::Relaxed)))
    }

    fn wall(&self) -> WallTime {
        WallTime { unix_ms: 1_000_000_000_000 + self.looks.fetch_add(1, Ordering::Relaxed) }
    }

    fn sleep(&self, delay: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.looks.fetch_add(delay.as_millis() as u64, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    }
}
