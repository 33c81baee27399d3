//! Operations of a merge take turns: a writer's append waits behind them at its disk, so only a few are under way.
//!
//! ```text
//!  waiting --fewer count than may--> under way, counts --PATIENCE--> under way, does not count
//!                                          |                             |
//!                                          +-----------> ended <---------+
//! ```
//!
//! An operation that takes long stops counting, and the next one begins beside it. So a disk that does not answer delays
//! what comes behind it by [`PATIENCE`] and not by its timeout; and when that is over it counts as absent, so that what
//! still comes for it fails at once. Silent disks cost one timeout together.
//!
//! Invariants:
//! 1. No more count at once than may, and [`UNDER_WAY_MAX`] are under way at most.
//! 2. While one waits, one is under way.

use std::collections::BTreeMap;
use std::time::Duration;

use claystone_env::{Clock, Moment, timeout};
use futures::stream::{FuturesUnordered, StreamExt};

use crate::volume::Inner;

impl Inner {
    /// Carries out operations of a merge, so many at once as [`at_once`] says. Returns what they return, in their order.
    pub(super) async fn in_turn<T, F: Future<Output = T>>(&self, operations: impl IntoIterator<Item = F>) -> Vec<T> {
        take_turns(&*self.env.clock, || self.at_once(), operations).await
    }

    /// Whether operations come one after another, for somebody who writes.
    pub(super) fn gives_way(&self) -> bool {
        self.at_once() == 1
    }

    fn at_once(&self) -> usize {
        let now = self.env.clock.now();
        at_once(self.pace.is_wanted(now), self.toll.held_up_bytes(now))
    }
}

/// How many operations count at once: one where somebody writes; the more, the more bytes wait for merging; and all, where
/// nobody does either.
fn at_once(is_wanted: bool, held_up_bytes: u64) -> usize {
    match held_up_bytes {
        0 if is_wanted => 1,
        0 => AT_ONCE,
        // With two beside who flushes each short write, his flushes took more than twice as long as without a merge.
        bytes => bytes.div_ceil(HELD_UP_BYTES).min(AT_ONCE as u64) as usize,
    }
}

/// Carries out operations, of which so many count at once as `at_once` says then, one at least.
async fn take_turns<T, F: Future<Output = T>>(
    clock: &dyn Clock,
    at_once: impl Fn() -> usize,
    operations: impl IntoIterator<Item = F>,
) -> Vec<T> {
    let mut waiting = operations.into_iter().enumerate().peekable();
    let mut turns = Turns::default();
    let mut under_way = FuturesUnordered::new();
    let mut ended = BTreeMap::new();
    loop {
        let now = clock.now();
        while turns.is_free(now, at_once())
            && let Some((number, operation)) = waiting.next()
        {
            turns.began.insert(number, now);
            under_way.push(async move { (number, operation.await) });
        }
        let patience = turns.patience(now).filter(|_| waiting.peek().is_some());
        let next = match patience {
            Some(patience) => timeout(clock, patience, under_way.next()).await,
            None => Some(under_way.next().await),
        };
        match next {
            Some(Some((number, result))) => {
                turns.began.remove(&number);
                ended.insert(number, result);
            }
            Some(None) => return ended.into_values().collect(),
            // One counts no more.
            None => {}
        }
    }
}

/// The operations under way: their numbers, and when they began.
#[derive(Debug, Default)]
struct Turns {
    began: BTreeMap<usize, Moment>,
}

impl Turns {
    /// Whether another one may begin, where so many may count.
    fn is_free(&self, now: Moment, at_once: usize) -> bool {
        let count = self.began.values().filter(|began| now.since(**began) < PATIENCE).count();
        count < at_once && self.began.len() < UNDER_WAY_MAX
    }

    /// How long it takes until one of those that count does not.
    fn patience(&self, now: Moment) -> Option<Duration> {
        let left = self.began.values().map(|began| PATIENCE.saturating_sub(now.since(*began)));
        left.filter(|left| !left.is_zero()).min()
    }
}

/// Reads, overwrites or syncs that count at once.
const AT_ONCE: usize = 8;
/// For so many bytes that wait there is one more of them.
const HELD_UP_BYTES: u64 = 8 << 10;
/// Longer than a working drive takes for one of them, mostly also a hard disk with others before it: a second one would not
/// make that faster.
const PATIENCE: Duration = Duration::from_millis(100);
/// What a merge has under way without writers a disk takes well, also where all of it is slow.
const UNDER_WAY_MAX: usize = AT_ONCE;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use claystone_sim::run;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const TIMEOUT: Duration = Duration::from_secs(30);

    /// How long each operation took to end from the start of all, of operations that take so long each.
    async fn ends(clock: &dyn Clock, at_once: usize, took: &[Duration]) -> Vec<Duration> {
        let start = clock.now();
        let operations = took.iter().map(|took| async move {
            clock.sleep(*took).await;
            clock.now().since(start)
        });
        take_turns(clock, || at_once, operations.collect::<Vec<_>>()).await
    }

    #[test]
    fn who_waits_for_merging_has_it_hurry_by_how_much_he_writes() {
        for (is_wanted, held_up_bytes, at_once) in [
            (false, 0, AT_ONCE),
            (true, 0, 1),
            (true, 4096, 1),
            (true, 8192, 1),
            (true, 8193, 2),
            (true, 16 * 4096, AT_ONCE),
            (false, 1 << 30, AT_ONCE),
        ] {
            assert_eq!(super::at_once(is_wanted, held_up_bytes), at_once, "{is_wanted} {held_up_bytes}");
        }
    }

    #[test]
    fn a_silent_disk_delays_what_comes_behind_it_by_a_patience() {
        run(1, |world| async move {
            let clock = world.clock();
            let took = [10 * MS, TIMEOUT, 10 * MS, TIMEOUT, 10 * MS, 10 * MS];
            let expected = [10 * MS, 10 * MS + TIMEOUT, 120 * MS, 120 * MS + TIMEOUT, 230 * MS, 240 * MS];
            assert_eq!(ends(&*clock, 1, &took).await, expected);
            assert!(ends(&*clock, 1, &[]).await.is_empty());
        });
    }

    #[test]
    fn no_more_count_at_once_than_may() {
        run(2, |world| async move {
            let clock = world.clock();
            for at_once in [1, 2, 8] {
                let (under_way, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
                let operations = (0..20).map(|number| {
                    let (clock, under_way, most) = (&clock, &under_way, &most);
                    async move {
                        most.fetch_max(under_way.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
                        clock.sleep((1 + number % 7) * 10 * MS).await;
                        under_way.fetch_sub(1, Ordering::AcqRel);
                        number
                    }
                });
                let ended = take_turns(&*clock, || at_once, operations.collect::<Vec<_>>()).await;
                assert_eq!(ended, Vec::from_iter(0..20), "in their order");
                assert_eq!(most.into_inner(), at_once);
            }
        });
    }

    #[test]
    fn where_all_is_slow_a_few_are_under_way() {
        run(3, |world| async move {
            let ends = ends(&*world.clock(), 1, &[TIMEOUT; 10]).await;
            // The ninth begins when the first has ended, and the tenth when the second has.
            assert_eq!(ends[7], 7 * PATIENCE + TIMEOUT);
            assert_eq!(ends[8..], [2 * TIMEOUT, PATIENCE + 2 * TIMEOUT]);
        });
    }
}
