//! The face of this crate: what upkeep remembers, and the steps that a simulation takes one by one.
//!
//! Invariants:
//! 1. Repair, drain and spread never work at the same time, so no two tasks move chunks of one stripe.
//! 2. What is remembered here is a cache: absences, pauses, progress. All that decides about data is in the records.
//! 3. The state's lock is never held across an await.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use claystone_chunk::{DiskId, StripeId};
use claystone_code::CodeSpec;
use claystone_env::{Env, Moment, timeout};
use claystone_meta::{DiskState, Meta, MetaError};
use claystone_stripe::{DamageReports, LookupsBegun, Stripes};
use tokio::sync::Notify;

use crate::backoff::{Backoff, Cause};
use crate::losses::Losses;
use crate::pace::{Activity, Pacing};
use crate::policies::Followed;
use crate::progress::{JobKind, JobReport, Progress};
use crate::queue::Queue;
use crate::status::{ConversionTotals, RepairTotals, ScrubReport};
use crate::survey::Survey;
use crate::waiting::WaitingChanges;
use crate::{KeeperError, Settings, SettingsError};

/// Keeps the store in repair. Cheap to clone; calls may come from many tasks.
#[derive(Clone)]
pub struct Keeper {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) env: Env,
    pub(crate) meta: Arc<dyn Meta>,
    pub(crate) stripes: Stripes,
    pub(crate) settings: Settings,
    pub(crate) pacing: Pacing,
    pub(crate) activity: Activity,
    state: Mutex<State>,
    pub(crate) damage: tokio::sync::Mutex<DamageReports>,
    /// Held by whoever moves chunks: repair, drain or spread.
    pub(crate) moving: tokio::sync::Mutex<()>,
    /// Held by whoever verifies; the last stripe that the background walk looked at.
    pub(crate) walk: tokio::sync::Mutex<Option<StripeId>>,
    /// Held by whoever reclaims.
    pub(crate) reclaiming: tokio::sync::Mutex<()>,
    /// Whether what the records know of heat was read; held by whoever reads it.
    pub(crate) heats_loaded: tokio::sync::Mutex<bool>,
    /// When this began.
    pub(crate) started: Moment,
    /// Something changed that may make another stripe more urgent than those planned: end the batch. `move_wake` is
    /// notified with it, so that planning anew does not depend on who clears this.
    pub(crate) replan: AtomicBool,
    pub(crate) move_wake: Notify,
    pub(crate) scrub_wake: Notify,
    pub(crate) reclaim_wake: Notify,
    pub(crate) convert_wake: Notify,
}

/// What upkeep remembers between steps.
#[derive(Default)]
pub(crate) struct State {
    /// Disks that do not answer, and since when that is known.
    pub(crate) absent_since: BTreeMap<DiskId, Moment>,
    /// Disks that answered when last looked at, and whether they took writes.
    pub(crate) present: BTreeMap<DiskId, bool>,
    /// Of repairs.
    pub(crate) backoff: Backoff,
    pub(crate) drain_backoff: Backoff,
    pub(crate) queue: Queue,
    pub(crate) verify_backoff: Backoff,
    pub(crate) convert_backoff: Backoff,
    /// Conversions that wait for repair, by each of their stripes, and when they were planned.
    pub(crate) waiting_changes: WaitingChanges,
    /// Buckets with a policy, by name.
    pub(crate) followed: BTreeMap<String, Followed>,
    pub(crate) converted: ConversionTotals,
    pub(crate) jobs: BTreeMap<JobKind, Progress>,
    pub(crate) finished: BTreeMap<JobKind, JobReport>,
    pub(crate) totals: BTreeMap<(CodeSpec, bool), RepairTotals>,
    pub(crate) soft_errors: BTreeMap<DiskId, u64>,
    pub(crate) full_scrub: Option<FullScrub>,
    pub(crate) last_scrub: Option<ScrubReport>,
    pub(crate) losses: Losses,
    pub(crate) dead_since: BTreeMap<StripeId, (Moment, LookupsBegun)>,
    pub(crate) sweep_wanted: BTreeSet<DiskId>,
    /// Draining disks that nothing names, and since when that is known.
    pub(crate) empty_since: BTreeMap<DiskId, Moment>,
    pub(crate) sweep_at: Option<Moment>,
    pub(crate) uploads_at: Option<Moment>,
    pub(crate) survey: Option<Survey>,
    pub(crate) waits_for: Option<String>,
    /// What a person should know of how the store is set up.
    pub(crate) remarks: Vec<String>,
}

impl State {
    /// Everything may be tried at once.
    pub(crate) fn lift_backoffs(&mut self) {
        for backoff in [&mut self.backoff, &mut self.drain_backoff, &mut self.verify_backoff, &mut self.convert_backoff]
        {
            backoff.lift();
        }
    }
}

/// A scrub that somebody asked for and that is not done.
#[derive(Debug, Clone, Default)]
pub(crate) struct FullScrub {
    /// The last stripe it has read.
    pub(crate) after: Option<StripeId>,
    pub(crate) report: ScrubReport,
}

/// What [`Keeper::run_until_idle`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Idle {
    /// Nothing was left to do; otherwise the rounds ran out.
    pub settled: bool,
    /// Chunks rebuilt.
    pub repaired: u64,
    /// Chunks moved off draining disks.
    pub moved: u64,
    /// Stripes verified.
    pub verified: u64,
    /// Chunks found damaged.
    pub damaged: u64,
    /// Dead stripes forgotten.
    pub forgotten: u64,
    /// Chunks deleted that no record named.
    pub orphans: u64,
    /// Conversions carried out.
    pub converted: u64,
}

impl Keeper {
    /// Upkeep of this store. Nothing runs before [`Keeper::start`] or one of the steps is called.
    ///
    /// # Errors
    /// A setting outside its limits.
    pub fn new(
        env: Env,
        meta: Arc<dyn Meta>,
        stripes: Stripes,
        damage: DamageReports,
        settings: Settings,
    ) -> Result<Keeper, SettingsError> {
        settings.check()?;
        let activity = Activity::new(env.clock.clone());
        let pacing = Pacing::new(env.clock.clone(), activity.clone(), settings.bytes_per_second_max);
        let started = env.clock.now();
        let inner = Inner {
            env,
            meta,
            stripes,
            settings,
            pacing,
            activity,
            state: Mutex::default(),
            damage: tokio::sync::Mutex::new(damage),
            moving: tokio::sync::Mutex::default(),
            walk: tokio::sync::Mutex::default(),
            reclaiming: tokio::sync::Mutex::default(),
            heats_loaded: tokio::sync::Mutex::default(),
            started,
            replan: AtomicBool::new(false),
            move_wake: Notify::new(),
            scrub_wake: Notify::new(),
            reclaim_wake: Notify::new(),
            convert_wake: Notify::new(),
        };
        Ok(Keeper { inner: Arc::new(inner) })
    }

    /// Where protocol crates tell what clients are doing, so that upkeep yields to them.
    pub fn activity(&self) -> Activity {
        self.inner.activity.clone()
    }

    /// Says in the status why [`Keeper::start`] has not been called yet, or with `None` that nothing is in its way.
    pub fn wait_for(&self, reason: Option<String>) {
        self.state().waits_for = reason;
    }

    /// Says in the status what a person should know of how the store is set up, from now on. Returns what was not said before.
    pub fn remark(&self, remarks: Vec<String>) -> Vec<String> {
        let before = std::mem::replace(&mut self.state().remarks, remarks.clone());
        remarks.into_iter().filter(|remark| !before.contains(remark)).collect()
    }

    /// Takes every step until none finds work, at most `rounds` times: upkeep without loops, for simulations and tests.
    ///
    /// # Errors
    /// The metadata store failed.
    pub async fn run_until_idle(&self, rounds: usize) -> Result<Idle, KeeperError> {
        let mut idle = Idle::default();
        for _ in 0..rounds {
            let damage = self.damage_once().await?;
            let losses = self.losses_once().await?;
            let repair = self.repair_once().await?;
            let drain = self.drain_once().await?;
            let reclaim = self.reclaim_once().await?;
            let convert = self.convert_once().await?;
            let scrub = self.scrub_once().await?;
            self.survey().await?;
            idle.converted += convert.converted();
            idle.repaired += repair.chunks;
            idle.moved += drain.chunks;
            idle.verified += scrub.verified;
            idle.damaged += damage.damaged + losses.damaged + scrub.damaged;
            idle.forgotten += reclaim.forgotten;
            idle.orphans += reclaim.orphans;
            let worked =
                repair.chunks + repair.converted + repair.conflicts + drain.chunks + drain.conflicts + drain.removed;
            let worked = worked + convert.converted() + convert.spread;
            let found = damage.damaged + losses.damaged + scrub.damaged + scrub.verified;
            let found = found + reclaim.forgotten + reclaim.orphans;
            if worked + found == 0 && scrub.wrapped && !losses.more {
                idle.settled = true;
                break;
            }
        }
        Ok(idle)
    }

    /// Changes what is to be done with a disk, in the records first and then for readers and writers.
    ///
    /// # Errors
    /// As [`set_disk_state`](claystone_meta::DiskRecords::set_disk_state).
    pub async fn set_disk_state(&self, disk: DiskId, state: DiskState) -> Result<(), MetaError> {
        self.inner.meta.set_disk_state(disk, state).await?;
        let stores = self.inner.stripes.stores();
        if state == DiskState::Removed {
            stores.remove(disk);
        } else {
            stores.update(disk, |member| member.record.state = state);
        }
        self.disks_changed();
        Ok(())
    }

    /// A disk was added, returned, left or changed: plan anew, and try again what had failed.
    pub fn disks_changed(&self) {
        self.state().lift_backoffs();
        self.wake_moves();
        self.inner.reclaim_wake.notify_one();
    }

    pub(crate) fn wake_moves(&self) {
        self.inner.replan.store(true, Ordering::Relaxed);
        self.inner.move_wake.notify_one();
    }

    pub(crate) fn wake_scrub(&self) {
        self.inner.scrub_wake.notify_one();
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Moment {
        self.inner.env.clock.now()
    }

    /// Whether something is being repaired, or will be at once.
    pub(crate) fn repairs(&self) -> bool {
        self.state().jobs.get(&JobKind::Repair).is_some_and(|job| !job.is_waiting())
    }

    /// A bucket's policy was set: look at once.
    pub fn policy_changed(&self) {
        self.state().waiting_changes = WaitingChanges::default();
        self.inner.convert_wake.notify_one();
    }

    /// Waits for a call to a disk that should take a moment; `None`: it hangs.
    pub(crate) async fn patiently<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        timeout(&*self.inner.env.clock, PATIENCE, call).await
    }

    /// Remembers that a stripe is not to be tried by a job for a while: what cannot be moved may be repaired, and what is no matter for
    /// repair stays remembered by a drain.
    pub(crate) fn defer(&self, job: JobKind, stripe: StripeId, cause: Cause) {
        let settings = &self.inner.settings;
        let now = self.now();
        let mut state = self.state();
        let backoff = if job == JobKind::Drain { &mut state.drain_backoff } else { &mut state.backoff };
        backoff.failed(stripe, now, cause, settings.retry_min, settings.retry_max);
    }
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keeper")
    }
}

/// Stripes planned at once.
pub(crate) const BATCH: usize = 256;
/// Records of a page of a walk.
pub(crate) const PAGE: usize = 256;
/// Ten times what a disk in trouble takes to give up a command.
const PATIENCE: Duration = Duration::from_secs(60);
