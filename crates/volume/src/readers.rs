//! Who reads now, so that a stripe is let go only when nobody reads it any more.
//!
//! A reader takes a token before he looks where bytes are. Whoever has changed that waits for the tokens of before.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use claystone_env::{Clock, timeout};

/// The reads under way.
#[derive(Debug, Default)]
pub(crate) struct Readers(Mutex<Arc<()>>);

impl Readers {
    /// A read begins; it ends when this is dropped.
    pub(crate) fn enter(&self) -> Arc<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until every read has ended that began before this was called. False: one of them takes longer than `limit`.
    pub(crate) async fn gone(&self, clock: &dyn Clock, limit: Duration) -> bool {
        let before = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let ended = async {
            while Arc::strong_count(&before) > 1 {
                clock.sleep(PAUSE).await;
            }
        };
        timeout(clock, limit, ended).await.is_some()
    }
}

const PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reads_that_began_before_are_waited_for_and_later_ones_are_not() {
        let env = claystone_host::env().expect("an environment");
        let readers = Readers::default();
        let before = readers.enter();
        assert!(!readers.gone(&*env.clock, Duration::from_millis(5)).await);
        // That one is not asked for again.
        let later = readers.enter();
        drop(before);
        let mut gone = std::pin::pin!(readers.gone(&*env.clock, Duration::from_secs(600)));
        assert!(futures::poll!(gone.as_mut()).is_pending());
        let last = readers.enter();
        drop(later);
        assert!(gone.await);
        drop(last);
    }
}
