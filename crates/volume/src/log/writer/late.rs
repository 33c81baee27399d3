//! Disks that are late with what others have long done: the log goes on without them.
//!
//! ```text
//!                          enough have ended                     patience is over
//!  all of them were asked ------------------> others are waited for -----------------> late: as if they had failed
//!                         \------------- all have ended in time -------------> done
//! ```
//!
//! Invariants:
//! 1. A disk is late only beside others: as long as fewer than half of those that were asked have ended, or fewer have done it than
//!    copies that must be there, all are waited for, up to the timeout. So where the machine or all disks are slow none is late,
//!    nor are two slow ones because the third one is fast.
//! 2. Copies that must be there are all but one, and two at least. Lateness costs no more than one copy: while any segment has fewer
//!    than that nobody is late, so that neither one disk after another is left, nor the last one that has a segment.
//! 3. Who was late a short while ago is no measure for others. When patience is over two short steps more are waited for, so that a
//!    process that stood still for a while does not blame disks.
//! 4. What a late disk was asked goes on without anybody who waits for it: while it does, and for as long as any answer may take, the
//!    disk gets no segment. It is silent when that takes too long.
//!
//! What a late disk does yet is harmless, as what one does after an error is. It is in no list of a segment's disks any more before
//! anybody is told, nor in the volume's record: nobody reads its copies, where they end does not count, and nothing more is
//! appended to them. An append that comes there late brings bytes that the other copies have at the same place, so an opening that reads
//! it finds what it finds there; a copy that is made anew on the disk meanwhile has the same there too. Under another owner's fence it is
//! refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use claystone_chunk::{DiskId, SegmentError};
use claystone_env::{Env, Moment, timeout};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};

use super::appends::Outcome;

/// What a disk was asked for.
pub(super) type Asked = (DiskId, BoxFuture<'static, Result<(), SegmentError>>);

/// The disks that were late. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Late(Arc<Mutex<BTreeMap<DiskId, LateDisk>>>);

#[derive(Debug, Default)]
struct LateDisk {
    /// What it was asked and has not done.
    under_way: usize,
    /// Up to when others may be waited for that were asked together with it.
    until: Moment,
}

impl Late {
    /// Whether a disk is late, or was it a short while ago.
    pub(super) fn has(&self, disk: DiskId, now: Moment) -> bool {
        self.disks().get(&disk).is_some_and(|late| late.under_way > 0 || now < late.until)
    }

    fn add(&self, disk: DiskId, until: Moment) {
        let mut disks = self.disks();
        let late = disks.entry(disk).or_default();
        late.under_way += 1;
        late.until = late.until.max(until);
    }

    fn ended(&self, disk: DiskId) {
        if let Some(late) = self.disks().get_mut(&disk) {
            late.under_way -= 1;
        }
    }

    fn disks(&self) -> MutexGuard<'_, BTreeMap<DiskId, LateDisk>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long disks are waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// When enough of them have ended.
    pub(super) for_others: Duration,
    /// So many must have done it.
    pub(super) fewest: usize,
    /// The most that any of them is waited for: they see to that themselves.
    pub(super) limit: Duration,
}

/// The outcome of what several disks were asked at once, in the order of their ids; those that are late failed.
pub(super) async fn all_but_late(env: Env, late: Late, patience: Patience, asked: Vec<Asked>) -> Outcome {
    let disks: Vec<DiskId> = asked.iter().map(|(disk, _)| *disk).collect();
    let named = |(disk, operation): Asked| operation.map(move |result| (disk, result));
    let mut under_way: FuturesUnordered<_> = asked.into_iter().map(named).collect();
    let mut outcome = Outcome::new();
    while let Some(ended) = under_way.next().await {
        outcome.push(ended);
        let done = outcome.iter().filter(|(_, result)| result.is_ok()).count();
        if done >= patience.fewest && are_a_measure(&outcome, &disks, |disk| late.has(disk, env.clock.now())) {
            break;
        }
    }
    for step in [patience.for_others, patience.for_others / STEP, patience.for_others / STEP] {
        let rest = async {
            while let Some(ended) = under_way.next().await {
                outcome.push(ended);
            }
        };
        if timeout(&*env.clock, step, rest).await.is_some() {
            break;
        }
    }
    let until = env.clock.now().after(patience.limit);
    for disk in disks {
        if outcome.iter().any(|(ended, _)| *ended == disk) {
            continue;
        }
        late.add(disk, until);
        let reason = format!("no answer for {:?} while other disks have done it", patience.for_others);
        outcome.push((disk, Err(SegmentError::Unavailable { disk, reason })));
    }
    if !under_way.is_empty() {
        let go_on = async move {
            while let Some((disk, _)) = under_way.next().await {
                late.ended(disk);
            }
        };
        env.tasks.spawn("late disks of a log", go_on.boxed());
    }
    outcome.sort_by_key(|(disk, _)| *disk);
    outcome
}

/// Whether those that have ended say how long it takes.
fn are_a_measure(outcome: &Outcome, disks: &[DiskId], is_late: impl Fn(DiskId) -> bool) -> bool {
    let counted = disks.iter().filter(|disk| !is_late(**disk)).count();
    let ended = || outcome.iter().filter(|(disk, _)| !is_late(*disk));
    2 * ended().count() >= counted && ended().any(|(_, result)| result.is_ok())
}

/// The steps after the first are short. That one is as long as it can be: a timer that is due before all others wakes a thread when it is
/// set, and each append sets one.
const STEP: u32 = 8;

#[cfg(test)]
mod tests {
    use claystone_sim::{World, run};

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const PATIENCE: Patience =
        Patience { for_others: Duration::from_secs(1), fewest: 2, limit: Duration::from_secs(30) };

    /// Asks disks that take so long each, and fail where they do; which failed or were late, and how long all of it took.
    async fn failed(world: &World, late: &Late, disks: &[(u64, bool)]) -> (Vec<u64>, u128) {
        let env = world.process("node").env().clone();
        let start = env.clock.now();
        let asked = (0..).zip(disks).map(|(number, (ms, works))| {
            let (clock, ms, works, disk) = (env.clock.clone(), *ms, *works, DiskId(number));
            let operation = async move {
                clock.sleep(MS * ms as u32).await;
                let error = || SegmentError::Unavailable { disk, reason: "it fails".to_owned() };
                if works { Ok(()) } else { Err(error()) }
            };
            (disk, operation.boxed())
        });
        let outcome = all_but_late(env.clone(), late.clone(), PATIENCE, asked.collect()).await;
        assert!(outcome.iter().map(|(disk, _)| disk.0).eq(0..disks.len() as u128));
        let failed = outcome.iter().filter(|(_, result)| result.is_err()).map(|(disk, _)| disk.0 as u64).collect();
        (failed, env.clock.now().since(start).as_millis())
    }

    #[test]
    fn a_disk_is_late_beside_others_and_never_alone() {
        run(1, |world| async move {
            let works = |took: &[u64]| took.iter().map(|ms| (*ms, true)).collect::<Vec<_>>();
            for (disks, expected) in [
                (works(&[5, 5, 5]), (vec![], 5)),
                (works(&[5, 20_000, 10]), (vec![1], 1260)),
                (works(&[5, 990, 10]), (vec![], 990)),
                // One copy would be left.
                (works(&[5, 20_000]), (vec![], 20_000)),
                (vec![(5, false), (20_000, true), (10, true)], (vec![0], 20_000)),
                // All are slow, or more than half of them, or there is no other.
                (works(&[5000, 5900, 5100]), (vec![], 5900)),
                (works(&[5, 20_000, 20_000]), (vec![], 20_000)),
                (works(&[20_000]), (vec![], 20_000)),
                (vec![], (vec![], 0)),
                // One fails, and enough others have done it.
                (vec![(5, false), (20_000, true), (10, true), (10, true)], (vec![0, 1], 1260)),
            ] {
                assert_eq!(failed(&world, &Late::default(), &disks).await, expected, "{disks:?}");
            }
        });
    }

    #[test]
    fn who_is_late_is_no_measure_for_others() {
        run(2, |world| async move {
            let (late, clock) = (Late::default(), world.clock());
            assert_eq!(failed(&world, &late, &[(5, true), (20_000, true), (5, true)]).await.0, [1]);
            // It is fast again, and now another one takes long.
            assert_eq!(failed(&world, &late, &[(3000, true), (5, true), (2900, true)]).await, (vec![], 3000));
            assert_eq!(failed(&world, &late, &[(3000, true), (5, true), (5, true)]).await, (vec![0], 1255));
            assert!(late.has(DiskId(1), clock.now()) && !late.has(DiskId(2), clock.now()));
            clock.sleep(PATIENCE.limit).await;
            assert!(!late.has(DiskId(1), clock.now()));
            assert_eq!(failed(&world, &late, &[(3000, true), (5, true), (5, true)]).await.0, [0]);
        });
    }
}
