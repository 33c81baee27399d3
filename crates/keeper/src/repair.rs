//! Rebuilds what is lost, one stripe after another, most endangered first.
//!
//! The life of one repair, what holds in each state, and what a crash (or a cancelled task) in it leaves:
//!
//! ```text
//!            plan_repairs          Stripes::rebuild                 Meta::swap           delete
//!  lost ---------------> planned ------------------> rebuilt ------------------> named ----------> superseded
//!   ^                       |                           |   \                      |               chunk gone
//!   |      failure: backoff |          StripeChanged    |    \ unknown result      |
//!   +-----------------------+<--------------------------+     +--> decided by the  |
//!   |                              (new chunks deleted)            record          v
//!   +<------------------------------------------------------------------------ unverified --scrub--> verified
//! ```
//!
//! | state | what holds | after a crash |
//! |---|---|---|
//! | lost | the record shows it: no place, marked damaged, or on a disk that is gone | the same; planned again |
//! | planned | nothing but memory changed | the same; planned again |
//! | rebuilt | new chunks are synced and were read back; no record names them, a claim keeps reclaim away | the record still names the old places; the new chunks are orphans, which the sweep at the start deletes |
//! | named | one transaction named the new chunks; readers that come use them | the old chunks, if their disk lives, are superseded: the sweep deletes them |
//! | superseded chunk gone | nothing of the old generation is left on disks that answer | nothing to do |
//! | unverified | the stripe as a whole was not read back since the swap | the same; scrub reads it back, and only then it counts as healthy |
//!
//! The record decides in every state: a chunk is rebuilt under a generation that was never used, so no crash can make
//! an old chunk pass for a new one. If the swap's result is unknown (the database failed), neither old nor new chunks
//! are deleted; the sweep asks the record later.
//!
//! Invariants:
//! 1. Old chunks are deleted only after the swap that supersedes them is known to be committed.
//! 2. A claim on the stripe is held from before the first new chunk until after the swap.
//! 3. A stripe that is to be converted too is converted first if that reads less (`order`).
//! 4. A stripe that failed is left alone for a bounded, growing while; it never holds up others.

use std::sync::atomic::Ordering;
use std::time::Duration;

use std::collections::BTreeSet;

use claystone_chunk::{ChunkError, ChunkId, StripeId};
use claystone_code::{ConversionGoal, StripeChunk, plan_conversion};
use claystone_meta::{ChunkPlace, MetaError, StripeRecord, Swap};
use claystone_stripe::{Claim, Hold, Rebuilt, StripeError};

use crate::backoff::Cause;
use crate::batch::carry_out_all;
use crate::conversions::Change;
use crate::convert::ConversionError;
use crate::families::Families;
use crate::keeper::BATCH;
use crate::order::{OrderCosts, order_costs};
use crate::plan::{Plan, Task, plan_repairs};
use crate::progress::JobKind;
use crate::scrub::Look;
use crate::snapshot::Snapshot;
use crate::status::{RepairTotals, counted};
use crate::view::View;
use crate::waiting::WaitingChange;
use crate::{Keeper, KeeperError};

/// What one step of repair did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RepairRound {
    /// Stripes rebuilt.
    pub stripes: u64,
    /// Chunks rebuilt.
    pub chunks: u64,
    /// Conversions carried out because that was the cheaper way to begin with.
    pub converted: u64,
    /// Bytes read to rebuild them.
    pub bytes_read: u64,
    /// Stripes that changed under a repair and are planned again.
    pub conflicts: u64,
    /// Stripes that failed and wait for their next attempt.
    pub failed: u64,
    /// Chunks for which there is no disk.
    pub waiting_chunks: u64,
    /// Stripes that cannot be recovered, whatever disk returns.
    pub unrecoverable: u64,
    /// Stripes that cannot be recovered until an absent disk returns.
    pub unreachable: u64,
}

/// A stripe that turned hot waits so long at most until a batch that has begun gives way to it.
const HOT_WAITS_MAX: Duration = Duration::from_secs(30);

/// Stripes below are counted apart: with few sectors a chunk, whole sectors weigh more than the code.
const LARGE_BYTES: u64 = 256 << 10;

/// What a swap must not outlive.
type Held = (Claim, Hold);

/// What is done for a task.
enum Work {
    /// It is carried out.
    Repair(Task),
    /// Its stripe is converted first, with others perhaps; if that fails, it is carried out.
    Convert(WaitingChange, Task),
}

/// How a task ended.
pub(crate) enum Outcome {
    /// New places are committed.
    Done { chunks: u64, bytes_read: u64 },
    /// Stripes were converted, and what is still lost of them is planned anew.
    Converted,
    /// The stripe is not as it was planned on.
    Changed,
    /// It was deferred.
    Failed,
}

impl Keeper {
    /// Plans and carries out one batch of repairs. Ends early when something changed that may be more urgent.
    ///
    /// # Errors
    /// The metadata store failed; what was committed before stays.
    pub async fn repair_once(&self) -> Result<RepairRound, KeeperError> {
        let _moving = self.inner.moving.lock().await;
        self.inner.replan.store(false, Ordering::Relaxed);
        let view = self.observe().await?;
        let (snapshot, complete) = self.snapshot(&view).await?;
        let mut plan = plan_repairs(&snapshot, BATCH);
        self.remember(&snapshot, &plan, complete);
        let left = self.chunks_left(&view).await?;
        let waiting = waiting_for(&plan, left);
        self.job_left(JobKind::Repair, left, waiting.clone());
        let mut round = RepairRound {
            waiting_chunks: plan.waiting_chunks,
            unrecoverable: plan.unrecoverable.len() as u64,
            unreachable: plan.unreachable.len() as u64,
            ..RepairRound::default()
        };
        let work = self.arrange(std::mem::take(&mut plan.tasks), &view, &snapshot).await;
        let families = if work.is_empty() { Families::default() } else { self.families().await };
        let degraded_reads = self.inner.stripes.degraded_reads();
        let hot = degraded_reads.turned_hot();
        let began = self.now();
        let urgent = || {
            let turned_hot = || degraded_reads.turned_hot() != hot && self.now().since(began) >= HOT_WAITS_MAX;
            self.inner.replan.load(Ordering::Relaxed) || turned_hot()
        };
        let take = |outcome: Outcome| match outcome {
            Outcome::Done { chunks, bytes_read } => {
                round.stripes += 1;
                round.chunks += chunks;
                round.bytes_read += bytes_read;
            }
            Outcome::Converted => round.converted += 1,
            Outcome::Changed => round.conflicts += 1,
            Outcome::Failed => round.failed += 1,
        };
        let at_once = self.inner.settings.repair_concurrency;
        carry_out_all(work, at_once, |_| !urgent(), |work| self.carry_out_work(work, &families), take).await?;
        if round.stripes + round.converted > 0 {
            let left = self.chunks_left(&view).await?;
            self.job_left(JobKind::Repair, left, waiting);
            self.wake_scrub();
        }
        Ok(round)
    }

    /// Holds back stripes that no attempt can help now, so that they take no room in the next snapshot's batch.
    fn remember(&self, snapshot: &Snapshot, plan: &Plan, complete: bool) {
        for (stripes, cause) in [
            (&plan.unrecoverable, Cause::Unrecoverable),
            (&plan.unreachable, Cause::Unreachable),
            (&plan.waiting, Cause::NoDisk),
        ] {
            for stripe in stripes {
                self.defer(JobKind::Repair, *stripe, cause);
            }
        }
        if complete {
            // What is degraded no more, or deleted, needs no pause.
            let ids: std::collections::BTreeSet<_> = snapshot.stripes.iter().map(|stripe| stripe.id).collect();
            self.state().backoff.retain(|stripe| ids.contains(&stripe));
        }
    }

    /// Chunks that need repair: what the records count as lost, and all on disks that were absent for too long.
    async fn chunks_left(&self, view: &View) -> Result<u64, KeeperError> {
        let mut left = self.inner.meta.tally().await?.chunks_lost;
        for disk in self.given_up_by_time(view) {
            let tally = self.inner.meta.disk_tally(disk).await?;
            left += tally.chunks - tally.damaged.min(tally.chunks);
        }
        Ok(left)
    }

    /// What to do for these repairs, in their order: where stripes wait to be converted, and doing that first reads less, the
    /// conversion stands in for the repairs of all its stripes. Policies that cannot be read keep no repair from its turn, and what
    /// survives no further loss waits for no look at them.
    async fn arrange(&self, tasks: Vec<Task>, view: &View, snapshot: &Snapshot) -> Vec<Work> {
        let may_wait = |task: &Task| task.tolerance_left > 0;
        if !tasks.is_empty()
            && tasks.iter().all(may_wait)
            && let Err(error) = self.plan_waiting_changes(view).await
        {
            tracing::warn!(%error, "what waits to be converted cannot be planned: stripes are repaired first");
        }
        let mut converted: BTreeSet<StripeId> = BTreeSet::new();
        let mut work = Vec::with_capacity(tasks.len());
        for task in tasks {
            if converted.contains(&task.stripe.id) {
                continue;
            }
            let waiting = may_wait(&task).then(|| self.state().waiting_changes.take(task.stripe.id)).flatten();
            match waiting {
                Some(waiting) if matches!(self.converts_first(&waiting.change, snapshot).await, Ok(true)) => {
                    converted.extend(&waiting.change.sources);
                    work.push(Work::Convert(waiting, task));
                }
                _ => work.push(Work::Repair(task)),
            }
        }
        work
    }

    async fn converts_first(&self, change: &Change, snapshot: &Snapshot) -> Result<bool, KeeperError> {
        let mut lost: Vec<StripeChunk> = Vec::new();
        let mut from = None;
        for (stripe, source) in (0..).zip(&change.sources) {
            let Some(record) = self.inner.meta.stripe(*source).await? else { return Ok(false) };
            lost.extend(snapshot.missing(&record).into_iter().map(|chunk| StripeChunk { stripe, chunk }));
            if from.replace(record.code).is_some_and(|code| code != record.code) {
                return Ok(false);
            }
        }
        let plan = from.and_then(|from| plan_conversion(from, change.to, ConversionGoal::FewestReads).ok());
        let plan = plan.filter(|plan| usize::from(plan.sources) == change.sources.len());
        Ok(plan.and_then(|plan| order_costs(&plan, &lost)).is_some_and(OrderCosts::converts_first))
    }

    async fn carry_out_work(&self, work: Work, families: &Families) -> Result<Outcome, KeeperError> {
        match work {
            Work::Repair(task) => self.repair(task, families).await,
            Work::Convert(waiting, task) => {
                match self.carry_out(waiting.bucket, &waiting.policy, &waiting.change).await {
                    Ok(()) => Ok(Outcome::Converted),
                    Err(ConversionError::Meta(error @ MetaError::Unavailable { .. })) => Err(error.into()),
                    Err(error) => {
                        // The others are planned again with the next batch.
                        self.conversion_failed(&waiting.change, &error);
                        self.repair(task, families).await
                    }
                }
            }
        }
    }

    async fn repair(&self, task: Task, families: &Families) -> Result<Outcome, KeeperError> {
        let pacer = self.inner.pacing.pacer(self.inner.settings.repair_share);
        let rebuild = self.rebuild(&task, families, &pacer);
        let result = pacer.watch(rebuild).await;
        self.conclude(JobKind::Repair, &task.stripe, result).await
    }

    /// Commits what was rebuilt, or remembers why it was not (`None`: it hung). Also ends a move of drain.
    pub(crate) async fn conclude(
        &self,
        job: JobKind,
        stripe: &StripeRecord,
        result: Option<Result<Rebuilt, StripeError>>,
    ) -> Result<Outcome, KeeperError> {
        let rebuilt = match result {
            Some(Ok(rebuilt)) => rebuilt,
            Some(Err(error)) => return self.explain(job, stripe, error).await,
            None => {
                tracing::warn!(stripe = %stripe.id, code = %stripe.code, "a rebuild hung and was given up for now");
                // It had no time to delete what it wrote.
                self.request_sweep();
                self.defer(job, stripe.id, Cause::Failed);
                return Ok(Outcome::Failed);
            }
        };
        // Copies that gave way are named too, without a place.
        let chunks = rebuilt.swap.places.iter().filter(|(_, place)| place.is_some()).count() as u64;
        let cost = RepairTotals {
            chunks,
            bytes_rebuilt: rebuilt.bytes_rebuilt,
            bytes_read: rebuilt.bytes_read,
            bytes_verified: rebuilt.bytes_verified,
            ..RepairTotals::default()
        };
        if !self.commit(stripe, rebuilt).await? {
            return Ok(Outcome::Changed);
        }
        {
            let mut state = self.state();
            state.backoff.forget(stripe.id);
            state.drain_backoff.forget(stripe.id);
        }
        self.inner.stripes.degraded_reads().forget(stripe.id);
        self.job_advance(job, chunks, cost.bytes_read + cost.bytes_rebuilt + cost.bytes_verified);
        let bytes_read = cost.bytes_read;
        if job == JobKind::Repair {
            self.count_repair(stripe, cost);
        }
        Ok(Outcome::Done { chunks, bytes_read })
    }

    /// Counts what a rebuild cost.
    fn count_repair(&self, stripe: &StripeRecord, cost: RepairTotals) {
        let large = stripe.data_bytes >= LARGE_BYTES;
        let mut state = self.state();
        let totals = state.totals.entry((stripe.code, large)).or_insert_with(|| RepairTotals {
            code: stripe.code.to_string(),
            large,
            ..RepairTotals::default()
        });
        totals.stripes += 1;
        totals.chunks += cost.chunks;
        totals.bytes_rebuilt += cost.bytes_rebuilt;
        totals.bytes_read += cost.bytes_read;
        totals.bytes_verified += cost.bytes_verified;
    }

    /// Names the new chunks and deletes those they supersede. `false`: the stripe changed, and the new chunks are
    /// deleted.
    async fn commit(&self, before: &StripeRecord, rebuilt: Rebuilt) -> Result<bool, KeeperError> {
        let is_safe = rebuilt.is_as_safe(&self.inner.stripes, before);
        let Rebuilt { swap, claim, hold, .. } = rebuilt;
        if !is_safe {
            // Planned again, on what is there now.
            self.delete_new(&swap).await;
            return Ok(false);
        }
        let (committed, (claim, hold)) = self.swap(swap.clone(), (claim, hold)).await?;
        drop(hold);
        match committed {
            Ok(_) => {
                drop(claim);
                if self.inner.stripes.is_record_claimed(before) {
                    // Somebody reads by the old record: the sweep deletes the old chunks later.
                    self.request_sweep();
                } else {
                    self.delete_superseded(before, &swap).await;
                }
                Ok(true)
            }
            Err(MetaError::StripeChanged { .. }) => {
                self.delete_new(&swap).await;
                drop(claim);
                Ok(false)
            }
            // Perhaps the swap is committed: the record tells the sweep later.
            Err(error) => Err(error.into()),
        }
    }

    /// Commits a swap as a task of its own: when upkeep is stopped, the transaction may still happen, and the claim on
    /// the new chunks and the hold on the old ones must outlive it.
    async fn swap(&self, swap: Swap, held: Held) -> Result<(Result<StripeRecord, MetaError>, Held), KeeperError> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let meta = self.inner.meta.clone();
        let task = async move {
            let result = meta.swap(swap).await;
            // Whoever waited may have been stopped; the sweep looks after the chunks then.
            let _ = sender.send((result, held));
        };
        self.inner.env.tasks.spawn("swap", Box::pin(task));
        let stopped = |_| KeeperError::Meta(MetaError::Unavailable { reason: "the store is stopping".to_owned() });
        receiver.await.map_err(stopped)
    }

    /// Deletes the chunks of a swap that is not made.
    async fn delete_new(&self, swap: &Swap) {
        for (index, place) in &swap.places {
            if let Some(place) = place {
                let generation = place.generation;
                self.delete(ChunkId { stripe: swap.stripe, index: *index, generation }, place).await;
            }
        }
    }

    async fn delete_superseded(&self, before: &StripeRecord, swap: &Swap) {
        for (index, new) in &swap.places {
            let old = before.places[index.at()].as_ref();
            if let (Some(id), Some(place)) = (before.chunk_id(*index), old)
                && new.as_ref() != Some(place)
            {
                self.delete(id, place).await;
            }
        }
    }

    /// Deletes a chunk if its disk answers; the sweep gets it otherwise.
    async fn delete(&self, id: ChunkId, place: &ChunkPlace) {
        if let Some(store) = self.inner.stripes.stores().readable(place.disk)
            && let Some(Err(error)) = self.patiently(store.delete(id)).await
        {
            tracing::debug!(chunk = %id, disk = %place.disk, %error, "a chunk was left for the sweep");
        }
    }

    /// Finds out why a rebuild failed and holds the stripe back accordingly.
    async fn explain(&self, job: JobKind, stripe: &StripeRecord, error: StripeError) -> Result<Outcome, KeeperError> {
        let current = self.inner.meta.stripe(stripe.id).await?;
        if current.is_none_or(|current| current.revision != stripe.revision) {
            return Ok(Outcome::Changed);
        }
        let cause = match &error {
            StripeError::TooFewDisks { .. } | StripeError::Chunk(ChunkError::DiskFull { .. }) => Cause::NoDisk,
            StripeError::Unrecoverable { .. } => {
                // The scrub's look marks what else is damaged, and tells lost chunks from silent disks.
                let look = self.look(stripe).await?;
                match look {
                    // The rebuild met stores that failed or were late, and these answer again.
                    Look { recoverable: true, .. } => Cause::Failed,
                    Look { unknown: 1.., .. } => Cause::Unreachable,
                    _ => Cause::Unrecoverable,
                }
            }
            _ => Cause::Failed,
        };
        tracing::warn!(stripe = %stripe.id, code = %stripe.code, ?cause, %error, "a stripe could not be rebuilt");
        self.defer(job, stripe.id, cause);
        Ok(Outcome::Failed)
    }
}

/// Why repair stands still, if nothing of the plan can be carried out while so many chunks are left.
fn waiting_for(plan: &Plan, left: u64) -> Option<String> {
    if !plan.tasks.is_empty() {
        return None;
    }
    let (chunks, unreachable, lost) = (plan.waiting_chunks, plan.unreachable.len(), plan.unrecoverable.len());
    let mut reasons = Vec::new();
    if chunks > 0 {
        reasons.push(format!(
            "waiting for a disk: {} none to go to; add one with `claystone disk add PATH`",
            counted(chunks, "chunk has", "chunks have")
        ));
    }
    if unreachable > 0 {
        let stripes = counted(unreachable as u64, "stripe", "stripes");
        reasons.push(format!("waiting for absent disks: {stripes} cannot be recovered without them"));
    }
    if lost > 0 {
        let (one, many) = ("stripe has lost more chunks than its", "stripes have lost more chunks than their");
        reasons.push(format!("{} code can recover", counted(lost as u64, one, many)));
    }
    if plan.deferred > 0 {
        let (one, many) = ("stripe could not be rebuilt and is", "stripes could not be rebuilt and are");
        reasons.push(format!("{} tried again later", counted(plan.deferred, one, many)));
    }
    if reasons.is_empty() && left > 0 {
        // They are counted as lost, and in no plan.
        let chunks = counted(left, "chunk belongs", "chunks belong");
        reasons.push(format!("{chunks} to stripes whose records cannot be read"));
    }
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scrubs and conversions wait for a repair that goes on, not for one that cannot.
    #[test]
    fn what_no_record_tells_of_is_said_to_wait() {
        assert_eq!(waiting_for(&Plan::default(), 0), None);
        let says = waiting_for(&Plan::default(), 1).expect("it stands still");
        assert!(says.contains("1 chunk belongs to stripes whose records cannot be read"), "{says}");
        let plan = Plan { deferred: 1, ..Plan::default() };
        let says = waiting_for(&plan, 1).expect("it stands still");
        assert!(!says.contains("records"), "{says}");
    }
}
