//! Who reads now, so that a stripe is let go only when nobody reads it any more.
//!
//! A reader takes a token before he looks where bytes are. Whoever has changed that waits for the tokens of before: of all
//! of them, also those that somebody waited for in vain, or waits for now.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use claystone_env::{Clock, timeout};

/// The reads under way.
#[derive(Debug, Default)]
pub(crate) struct Readers(Mutex<Generations>);

/// Reads that began between two calls of [`Readers::gone`] have one token together.
#[derive(Debug, Default)]
struct Generations {
    current: Arc<()>,
    /// Those before, as long as one of their reads lasts: no more than there are reads.
    earlier: Vec<Weak<()>>,
}

impl Readers {
    /// A read begins; it ends when this is dropped.
    pub(crate) fn enter(&self) -> Arc<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).current.clone()
    }

    /// Waits until every read has ended that began before this was called. False: one of them takes longer than `limit`.
    pub(crate) async fn gone(&self, clock: &dyn Clock, limit: Duration) -> bool {
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).next();
        let ended = async {
            while before.iter().any(|reads| reads.strong_count() > 0) {
                clock.sleep(PAUSE).await;
            }
        };
        timeout(clock, limit, ended).await.is_some()
    }
}

impl Generations {
    /// Later reads are of the next generation. Returns those before.
    fn next(&mut self) -> Vec<Weak<()>> {
        let before = std::mem::take(&mut self.current);
        self.earlier.push(Arc::downgrade(&before));
        drop(before);
        self.earlier.retain(|reads| reads.strong_count() > 0);
        self.earlier.clone()
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
        let later = readers.enter();
        let mut gone = std::pin::pin!(readers.gone(&*env.clock, Duration::from_secs(600)));
        assert!(futures::poll!(gone.as_mut()).is_pending());
        let last = readers.enter();
        drop(later);
        assert!(!readers.gone(&*env.clock, Duration::ZERO).await, "one that was waited for in vain still reads");
        drop(before);
        assert!(gone.await);
        assert!(!readers.gone(&*env.clock, Duration::from_millis(5)).await);
        drop(last);
        assert!(readers.gone(&*env.clock, Duration::from_secs(600)).await);
        assert!(readers.0.lock().expect("no panic").earlier.len() <= 1);
    }
}
