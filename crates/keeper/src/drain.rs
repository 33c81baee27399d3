//! Empties disks that are to leave, and lets go of disks that nothing names any more.
//!
//! ```text
//! draining --every chunk moved--> removed        its chunks are copied, or rebuilt where they cannot be read
//! lost     --nothing names it---> removed        repair has rebuilt its chunks elsewhere
//! ```
//!
//! A move passes through the states of a repair (module `repair`): copy, read back, swap, delete. A crash in between
//! leaves the chunk where it was, or in both places with one of them named.
//!
//! Invariants:
//! 1. A disk is removed only when no live stripe and no volume's log names it, and a draining one only when that was
//!    so for `reclaim_after`. Should a slower write name it after all, that chunk counts as lost and is rebuilt; where more of its stripe are than
//!    its code tolerates, the records refuse it.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use claystone_chunk::{DiskId, StripeId};
use claystone_meta::{DiskRecord, DiskState, DiskTally};

use crate::backoff::Cause;
use crate::batch::carry_out_all;
use crate::families::Families;
use crate::keeper::BATCH;
use crate::plan::{Task, plan_drain};
use crate::progress::JobKind;
use crate::repair::Outcome;
use crate::snapshot::Snapshot;
use crate::status::counted;
use crate::view::View;
use crate::{Keeper, KeeperError};

/// What one step of draining did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DrainRound {
    /// Chunks moved.
    pub chunks: u64,
    /// Stripes that changed under a move.
    pub conflicts: u64,
    /// Stripes that failed and wait.
    pub failed: u64,
    /// Chunks for which there is no other disk.
    pub waiting_chunks: u64,
    /// Logs of volumes, once for each disk, that have yet to leave disks without chunks.
    pub waiting_logs: u64,
    /// Disks that are empty and removed now.
    pub removed: u64,
}

impl Keeper {
    /// Moves one batch of chunks off each draining disk and removes disks that nothing names.
    ///
    /// # Errors
    /// The metadata store failed; what was committed before stays.
    pub async fn drain_once(&self) -> Result<DrainRound, KeeperError> {
        let _moving = self.inner.moving.lock().await;
        self.inner.replan.store(false, Ordering::Relaxed);
        let view = self.observe().await?;
        let mut round = DrainRound::default();
        let leaving = view.records.iter().filter(|disk| matches!(disk.state, DiskState::Draining | DiskState::Lost));
        let mut left = 0;
        // All stripes on draining disks, if they were read to the end.
        let mut all: Option<BTreeSet<StripeId>> = Some(BTreeSet::new());
        for disk in leaving {
            if disk.state == DiskState::Draining {
                let (stripes, is_all) = self.drain(&view, disk.id, &mut round).await?;
                all = all.filter(|_| is_all).map(|all| all.into_iter().chain(stripes).collect());
            }
            let DiskTally { chunks, logs, .. } = self.inner.meta.disk_tally(disk.id).await?;
            if chunks == 0 {
                round.waiting_logs += logs;
            }
            if self.is_empty_for_good(disk, chunks + logs) {
                self.set_disk_state(disk.id, DiskState::Removed).await?;
                tracing::info!(disk = %disk.id, path = disk.path, "nothing names this disk any more: it is removed");
                round.removed += 1;
            } else if disk.state == DiskState::Draining {
                left += chunks;
            }
        }
        if let Some(all) = all {
            self.state().drain_backoff.retain(|stripe| all.contains(&stripe));
        }
        let chunks = round.waiting_chunks;
        let waiting = (round.chunks == 0 && chunks > 0).then(|| {
            let chunks = counted(chunks, "chunk of draining disks has", "chunks of draining disks have");
            format!("waiting for a disk: {chunks} none to go to; add one with `claystone disk add PATH`")
        });
        self.job_left(JobKind::Drain, left, waiting);
        Ok(round)
    }

    /// Whether nothing names a disk, and nothing will: a write that chose a draining disk before it was draining may
    /// be committed a while after it was found empty.
    fn is_empty_for_good(&self, disk: &DiskRecord, names: u64) -> bool {
        let now = self.now();
        let mut state = self.state();
        if names > 0 {
            state.empty_since.remove(&disk.id);
            return false;
        }
        let since = *state.empty_since.entry(disk.id).or_insert(now);
        let for_good = disk.state == DiskState::Lost || now.since(since) >= self.inner.settings.reclaim_after;
        if for_good {
            state.empty_since.remove(&disk.id);
        }
        for_good
    }

    /// Moves one batch off a disk. Returns the stripes that it read there, and whether these are all.
    async fn drain(
        &self,
        view: &View,
        disk: DiskId,
        round: &mut DrainRound,
    ) -> Result<(Vec<StripeId>, bool), KeeperError> {
        let (deferred, remembered) = {
            let state = self.state();
            (state.drain_backoff.deferred(self.now()), state.drain_backoff.len())
        };
        let limit = BATCH + remembered;
        let stripes = self.inner.meta.stripes_on(disk, None, limit).await?;
        let found = (stripes.iter().map(|stripe| stripe.id).collect(), stripes.len() < limit);
        self.job_left(JobKind::Drain, self.inner.meta.disk_tally(disk).await?.chunks, None);
        if !stripes.is_empty() {
            self.state().empty_since.remove(&disk);
        }
        let snapshot = Snapshot { disks: view.conditions.clone(), stripes, deferred, ..Snapshot::default() };
        let plan = plan_drain(&snapshot, disk, BATCH);
        for (stripes, cause) in [(&plan.unreachable, Cause::Unreachable), (&plan.waiting, Cause::NoDisk)] {
            for stripe in stripes {
                self.defer(JobKind::Drain, *stripe, cause);
            }
        }
        round.waiting_chunks += plan.waiting_chunks;
        let families = if plan.tasks.is_empty() { Families::default() } else { self.families().await };
        let urgent = || self.inner.replan.load(Ordering::Relaxed);
        let take = |outcome: Outcome| match outcome {
            Outcome::Done { chunks, .. } => round.chunks += chunks,
            Outcome::Converted | Outcome::Changed => round.conflicts += 1,
            Outcome::Failed => round.failed += 1,
        };
        let at_once = self.inner.settings.repair_concurrency;
        carry_out_all(plan.tasks, at_once, |_| !urgent(), |task| self.relocate(task, &families), take).await?;
        Ok(found)
    }

    async fn relocate(&self, task: Task, families: &Families) -> Result<Outcome, KeeperError> {
        let pacer = self.inner.pacing.pacer(self.inner.settings.repair_share);
        let result = pacer.watch(self.rebuild(&task, families, &pacer)).await;
        self.conclude(JobKind::Drain, &task.stripe, result).await
    }
}
