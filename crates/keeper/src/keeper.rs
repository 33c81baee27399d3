//! The face of this crate: what upkeep remembers, its loops, and the steps that a simulation takes one by one.
//!
//! Six loops run once [`Keeper::start`] was called; each only repeats a public step:
//!
//! ```text
//! damage    handle_damage     as reports of reads arrive
//! move      repair_once, drain_once, survey      until nothing is left, then at a wake-up or every 5 s
//! scrub     scrub_once        page by page; rests while a repair is under way, unless somebody asked for a scrub
//! reclaim   reclaim_once      every 10 s, and when a disk returns
//! convert   convert_once      every minute while buckets have policies; rests while a repair is under way
//! heat      write_heats       every 5 minutes
//! ```
//!
//! Invariants:
//! 1. Repair, drain and spread never work at the same time, so no two tasks move chunks of one stripe.
//! 2. What is remembered here is a cache: absences, pauses, progress. All that decides about data is in the records.
//! 3. The state's lock is never held across an await.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use claystone_chunk::{DiskId, StoreState, StripeId};
use claystone_code::CodeSpec;
use claystone_env::{Env, Moment, ParityVerdict, Task, timeout};
use claystone_meta::{DiskRecord, DiskState, DiskTally, Meta, MetaError, StripeRecord};
use claystone_stripe::{DamageReports, Member, Stripes};
use futures::future::select;
use tokio::sync::Notify;

use crate::backoff::{Backoff, Cause};
use crate::pace::{Activity, Pacing};
use crate::policies::{Followed, LOOK_SHARE, WaitingChanges};
use crate::progress::{JobKind, JobReport, Progress};
use crate::snapshot::{Condition, Outlook, Snapshot};
use crate::status::{
    AtRisk, ConversionTotals, DiskStatus, RepairTotals, ScrubReport, SectorStatus, Status, StripeCounts, Unreachable,
};
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
    activity: Activity,
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
    move_wake: Notify,
    scrub_wake: Notify,
    reclaim_wake: Notify,
    convert_wake: Notify,
}

/// What upkeep remembers between steps.
#[derive(Default)]
pub(crate) struct State {
    /// Disks that do not answer, and since when that is known.
    absent_since: BTreeMap<DiskId, Moment>,
    /// Disks that answered when last looked at, and whether they took writes.
    present: BTreeMap<DiskId, bool>,
    pub(crate) backoff: Backoff,
    pub(crate) verify_backoff: Backoff,
    pub(crate) convert_backoff: Backoff,
    /// Conversions that wait for repair, by each of their stripes, and when they were planned.
    pub(crate) waiting_changes: WaitingChanges,
    /// Buckets with a policy, by name.
    pub(crate) followed: BTreeMap<String, Followed>,
    pub(crate) converted: ConversionTotals,
    jobs: BTreeMap<JobKind, Progress>,
    finished: BTreeMap<JobKind, JobReport>,
    totals: BTreeMap<(CodeSpec, bool), RepairTotals>,
    pub(crate) soft_errors: BTreeMap<DiskId, u64>,
    pub(crate) full_scrub: Option<FullScrub>,
    pub(crate) last_scrub: Option<ScrubReport>,
    pub(crate) dead_since: BTreeMap<StripeId, Moment>,
    pub(crate) sweep_wanted: BTreeSet<DiskId>,
    /// Draining disks that nothing names, and since when that is known.
    pub(crate) empty_since: BTreeMap<DiskId, Moment>,
    pub(crate) sweep_at: Option<Moment>,
    pub(crate) uploads_at: Option<Moment>,
    survey: Option<Survey>,
    waits_for: Option<String>,
}

/// A scrub that somebody asked for and that is not done.
#[derive(Debug, Clone, Default)]
pub(crate) struct FullScrub {
    /// The last stripe it has read.
    pub(crate) after: Option<StripeId>,
    pub(crate) report: ScrubReport,
}

/// What absent disks mean, and when that was looked at.
#[derive(Debug, Clone, Default)]
struct Survey {
    unreachable: Unreachable,
    worst: Vec<AtRisk>,
    next: Moment,
}

/// The disks as records and stores show them now.
pub(crate) struct View {
    pub(crate) records: Vec<DiskRecord>,
    pub(crate) members: BTreeMap<DiskId, Member>,
    pub(crate) conditions: BTreeMap<DiskId, Condition>,
    /// Disks that do not answer though nobody gave them up.
    pub(crate) absent: Vec<DiskId>,
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

    /// Starts the loops. Cancel the tasks to stop; what they had under way is taken up from the records later.
    pub fn start(&self) -> Vec<Task> {
        let tasks = &self.inner.env.tasks;
        vec![
            tasks.spawn("keeper-damage", Box::pin(self.clone().damage_loop())),
            tasks.spawn("keeper-move", Box::pin(self.clone().move_loop())),
            tasks.spawn("keeper-scrub", Box::pin(self.clone().scrub_loop())),
            tasks.spawn("keeper-reclaim", Box::pin(self.clone().reclaim_loop())),
            tasks.spawn("keeper-convert", Box::pin(self.clone().convert_loop())),
            tasks.spawn("keeper-heat", Box::pin(self.clone().heat_loop())),
        ]
    }

    /// Says in the status why [`Keeper::start`] has not been called yet, or with `None` that nothing is in its way.
    pub fn wait_for(&self, reason: Option<String>) {
        self.state().waits_for = reason;
    }

    /// Takes every step until none finds work, at most `rounds` times: upkeep without loops, for simulations and tests.
    ///
    /// # Errors
    /// The metadata store failed.
    pub async fn run_until_idle(&self, rounds: usize) -> Result<Idle, KeeperError> {
        let mut idle = Idle::default();
        for _ in 0..rounds {
            let damage = self.damage_once().await?;
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
            idle.damaged += damage.damaged + scrub.damaged;
            idle.forgotten += reclaim.forgotten;
            idle.orphans += reclaim.orphans;
            let worked =
                repair.chunks + repair.converted + repair.conflicts + drain.chunks + drain.conflicts + drain.removed;
            let worked = worked + convert.converted() + convert.spread;
            let found = damage.damaged + scrub.damaged + scrub.verified + reclaim.forgotten + reclaim.orphans;
            if worked + found == 0 && scrub.wrapped {
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
        self.state().backoff.lift();
        self.state().verify_backoff.lift();
        self.state().convert_backoff.lift();
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

    async fn move_loop(self) {
        loop {
            match self.move_round().await {
                Ok(true) => {}
                Ok(false) => self.rest(&self.inner.move_wake, MOVE_EVERY).await,
                Err(error) => self.failed("repair", &error).await,
            }
        }
    }

    async fn move_round(&self) -> Result<bool, KeeperError> {
        let repair = self.repair_once().await?;
        let drain = self.drain_once().await?;
        self.survey().await?;
        Ok(repair.chunks + repair.converted + repair.conflicts + drain.chunks + drain.conflicts + drain.removed > 0)
    }

    async fn scrub_loop(self) {
        loop {
            let asked = self.state().full_scrub.is_some();
            if self.repairs() && !asked {
                self.rest(&self.inner.scrub_wake, MOVE_EVERY).await;
                continue;
            }
            match self.scrub_once().await {
                Ok(round) if round.wrapped => self.rest(&self.inner.scrub_wake, SCRUB_EVERY).await,
                Ok(_) => {}
                Err(error) => self.failed("scrub", &error).await,
            }
        }
    }

    async fn reclaim_loop(self) {
        loop {
            match self.reclaim_once().await {
                Ok(round) if round.forgotten + round.orphans > 0 => {}
                Ok(_) => self.rest(&self.inner.reclaim_wake, RECLAIM_EVERY).await,
                Err(error) => self.failed("reclaim", &error).await,
            }
        }
    }

    async fn convert_loop(self) {
        loop {
            if self.repairs() {
                self.rest(&self.inner.convert_wake, MOVE_EVERY).await;
                continue;
            }
            let began = self.now();
            match self.convert_once().await {
                // The next look says what came of it, and what is left.
                Ok(round) if round.converted() + round.spread > 0 => {}
                Ok(_) => {
                    // Large buckets are looked through less often: it takes at most a twentieth of the time.
                    let took = self.now().since(began);
                    self.rest(&self.inner.convert_wake, self.inner.settings.convert_every.max(took * LOOK_SHARE)).await;
                }
                Err(error) => self.failed("conversion", &error).await,
            }
        }
    }

    async fn heat_loop(self) {
        loop {
            self.inner.env.clock.sleep(self.inner.settings.heat_every).await;
            if let Err(error) = self.write_heats().await {
                self.failed("writing heat", &error).await;
            }
        }
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

    async fn damage_loop(self) {
        while let Some(first) = {
            let mut reports = self.inner.damage.lock().await;
            reports.recv().await
        } {
            if let Err(error) = self.handle_damage(vec![first]).await {
                self.failed("damage reports", &error).await;
            }
        }
    }

    async fn rest(&self, wake: &Notify, limit: Duration) {
        let woken = std::pin::pin!(wake.notified());
        select(woken, self.inner.env.clock.sleep(limit)).await;
    }

    async fn failed(&self, what: &str, error: &KeeperError) {
        let KeeperError::Meta(cause) = error;
        tracing::warn!(what, %cause, "upkeep could not go on and tries again in {ERROR_REST:?}");
        self.inner.env.clock.sleep(ERROR_REST).await;
    }

    /// Waits for a call to a disk that should take a moment; `None`: it hangs.
    pub(crate) async fn patiently<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        timeout(&*self.inner.env.clock, PATIENCE, call).await
    }

    /// Looks at the disks: what is known of them, which of them answer, and for how long others have not.
    pub(crate) async fn observe(&self) -> Result<View, KeeperError> {
        let records = self.inner.meta.disks().await?;
        let stores = self.inner.stripes.stores();
        stores.refresh_space(&*self.inner.env.clock, SPACE_TIMEOUT).await;
        let members: BTreeMap<DiskId, Member> =
            stores.members().into_iter().map(|member| (member.record.id, member)).collect();
        let now = self.now();
        let mut state = self.state();
        let mut conditions = BTreeMap::new();
        let mut absent = Vec::new();
        let mut present = BTreeMap::new();
        for record in &records {
            let member = members.get(&record.id);
            let given_up = matches!(record.state, DiskState::Lost | DiskState::Removed);
            let readable = member.is_some_and(Member::readable);
            let condition = if given_up {
                Condition::Gone
            } else if readable {
                let writable = member.is_some_and(Member::writable);
                present.insert(record.id, writable);
                if writable { Condition::Writable } else { Condition::Readable }
            } else {
                absent.push(record.id);
                let since = *state.absent_since.entry(record.id).or_insert(now);
                if now.since(since) >= self.inner.settings.absent_after { Condition::Gone } else { Condition::Absent }
            };
            conditions.insert(record.id, condition);
        }
        state.absent_since.retain(|disk, _| absent.contains(disk));
        let is_back = |(disk, writable): &(&DiskId, &bool)| {
            state.present.get(disk).is_none_or(|was_writable| **writable && !was_writable)
        };
        let returned: Vec<DiskId> = present.iter().filter(is_back).map(|(disk, _)| *disk).collect();
        let changed = state.present != present;
        state.present = present;
        // A disk that was away, or took no deletes, may hold chunks that were rebuilt elsewhere or whose objects are gone.
        state.sweep_wanted.extend(&returned);
        if changed {
            state.backoff.lift();
            state.verify_backoff.lift();
            state.convert_backoff.lift();
            state.survey = None;
        }
        drop(state);
        if !returned.is_empty() {
            self.inner.reclaim_wake.notify_one();
        }
        Ok(View { records, members, conditions, absent })
    }

    /// The stripes to look at for repair: those that the records call degraded, those with chunks on disks that have been
    /// absent for too long, and those that readers had to decode several times lately. Stripes that wait after a failure are among them and beyond the batch, so that
    /// however many wait, there is room for those that do not.
    pub(crate) async fn snapshot(&self, view: &View) -> Result<(Snapshot, bool), KeeperError> {
        let (deferred, remembered) = {
            let state = self.state();
            (state.backoff.deferred(self.now()), state.backoff.len())
        };
        let limit = BATCH + remembered;
        let mut stripes: BTreeMap<StripeId, StripeRecord> = BTreeMap::new();
        let mut complete = true;
        let mut add = |page: Vec<StripeRecord>| {
            complete &= page.len() < limit;
            stripes.extend(page.into_iter().map(|stripe| (stripe.id, stripe)));
        };
        add(self.inner.meta.degraded(limit).await?);
        for disk in self.given_up_by_time(view) {
            add(self.inner.meta.stripes_on(disk, None, limit).await?);
        }
        let mut hot = self.inner.stripes.degraded_reads().hot(self.now());
        let others: Vec<StripeId> =
            hot.iter().filter(|stripe| !stripes.contains_key(stripe)).take(BATCH).copied().collect();
        let conditions = Snapshot { disks: view.conditions.clone(), ..Snapshot::default() };
        for stripe in others {
            match self.inner.meta.stripe(stripe).await? {
                Some(record) if !conditions.exposure(&record).whole() => drop(stripes.insert(stripe, record)),
                // It was deleted or converted, or its disks are back.
                _ => self.inner.stripes.degraded_reads().forget(stripe),
            }
        }
        hot.retain(|stripe| stripes.contains_key(stripe));
        let disks = view.conditions.clone();
        Ok((Snapshot { disks, stripes: stripes.into_values().collect(), deferred, hot }, complete))
    }

    /// Disks that count as gone because they have been absent for too long, not because a record says so.
    pub(crate) fn given_up_by_time<'a>(&self, view: &'a View) -> impl Iterator<Item = DiskId> + use<'a> {
        view.absent.iter().copied().filter(|disk| view.conditions.get(disk) == Some(&Condition::Gone))
    }

    /// Remembers that a stripe is not to be tried for a while.
    pub(crate) fn defer(&self, stripe: StripeId, cause: Cause) {
        let settings = &self.inner.settings;
        let now = self.now();
        self.state().backoff.failed(stripe, now, cause, settings.retry_min, settings.retry_max);
    }

    /// Begins, updates or ends a job by what is left of it.
    pub(crate) fn job_left(&self, kind: JobKind, left: u64, waiting: Option<String>) {
        let now = self.now();
        let mut state = self.state();
        if left > 0 {
            let job = state.jobs.entry(kind).or_insert_with(|| Progress::new(kind, now, left));
            job.set_left(left);
            job.set_waiting(waiting);
        } else if let Some(mut job) = state.jobs.remove(&kind) {
            job.set_left(0);
            job.set_waiting(None);
            let report = JobReport { finished: true, ..job.report(now) };
            state.finished.insert(kind, report);
        }
    }

    /// Counts work of a job.
    pub(crate) fn job_advance(&self, kind: JobKind, done: u64, bytes: u64) {
        let now = self.now();
        if let Some(job) = self.state().jobs.get_mut(&kind) {
            job.advance(now, done, bytes);
        }
    }

    /// Counts what a rebuild cost.
    pub(crate) fn count_repair(&self, stripe: &StripeRecord, cost: RepairTotals) {
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

    /// Looks through the stripes on absent disks: how many cannot be read, how many survive no more loss. Does nothing
    /// while every disk answers, or when the last look was a short while ago.
    ///
    /// # Errors
    /// The metadata store failed.
    pub async fn survey(&self) -> Result<(), KeeperError> {
        let view = self.observe().await?;
        let began = self.now();
        if view.absent.is_empty() {
            self.state().survey = None;
            return Ok(());
        }
        if self.state().survey.as_ref().is_some_and(|last| began < last.next) {
            return Ok(());
        }
        let snapshot = Snapshot { disks: view.conditions.clone(), ..Snapshot::default() };
        let mut survey = Survey::default();
        for (nth, disk) in view.absent.iter().enumerate() {
            let mut after = None;
            loop {
                let page = self.inner.meta.stripes_on(*disk, after, PAGE).await?;
                for stripe in &page {
                    // A stripe on several absent disks is counted with the first of them.
                    let on = |disk: &DiskId| stripe.places.iter().flatten().any(|place| place.disk == *disk);
                    if !view.absent[..nth].iter().any(on) {
                        survey.add(&snapshot, stripe);
                    }
                }
                let Some(last) = page.last().filter(|_| page.len() == PAGE) else { break };
                after = Some(last.id);
            }
        }
        // Large stores are looked through less often: it takes at most a twentieth of the time.
        let took = self.now().since(began);
        survey.next = self.now().after(SURVEY_EVERY.max(took * 20));
        self.state().survey = Some(survey);
        Ok(())
    }

    /// The store as it is.
    ///
    /// # Errors
    /// The metadata store failed.
    pub async fn status(&self) -> Result<Status, KeeperError> {
        let view = self.observe().await?;
        let tally = self.inner.meta.tally().await?;
        let mut disks = Vec::with_capacity(view.records.len());
        let mut unanswered = false;
        for record in &view.records {
            let tally = self.inner.meta.disk_tally(record.id).await?;
            unanswered |= view.absent.contains(&record.id) && tally.chunks > 0;
            disks.push(self.disk_status(&view, record, tally));
        }
        let snapshot = Snapshot { disks: view.conditions.clone(), ..Snapshot::default() };
        // Those beyond tolerance come last there, and first here.
        let looked_at = if tally.unrecoverable > 0 { AT_RISK_LOOKED_AT_MAX } else { AT_RISK_MAX };
        let mut at_risk: Vec<AtRisk> =
            self.inner.meta.degraded(looked_at).await?.iter().map(|stripe| at_risk_of(&snapshot, stripe)).collect();
        let policies = self.policy_status();
        let state = self.state();
        let survey = state.survey.clone().filter(|_| unanswered).unwrap_or_default();
        at_risk.extend(survey.worst);
        at_risk.sort_by(|a, b| (a.tolerance_left, &a.stripe).cmp(&(b.tolerance_left, &b.stripe)));
        at_risk.dedup_by(|a, b| a.stripe == b.stripe);
        at_risk.truncate(AT_RISK_MAX);
        let unreachable = unanswered.then_some(survey.unreachable);
        let unrecoverable = state.backoff.count(Cause::Unrecoverable) as u64;
        let conversions = state.converted;
        let stripes = StripeCounts::new(tally, unrecoverable, unreachable);
        let overall = stripes.overall();
        let now = self.now();
        let jobs: Vec<JobReport> = state.jobs.values().map(|job| job.report(now)).collect();
        let mut waiting: Vec<String> = state.waits_for.iter().map(|reason| format!("upkeep waits: {reason}")).collect();
        waiting.extend(jobs.iter().filter_map(|job| job.waiting.clone()));
        waiting.extend(disks.iter().filter_map(absence_note));
        waiting.extend(disks.iter().filter_map(parity_note));
        waiting.extend(disks.iter().filter_map(log_note));
        Ok(Status {
            overall,
            summary: overall.to_string(),
            unix_ms: self.inner.env.clock.wall().unix_ms,
            stripes,
            at_risk,
            disks,
            jobs,
            finished: state.finished.values().cloned().collect(),
            waiting,
            repair: state.totals.values().cloned().collect(),
            policies,
            conversions,
            scrub: state.full_scrub.as_ref().map(|scrub| scrub.report.clone()).or(state.last_scrub.clone()),
            requests: self.inner.activity.requests() as u64,
        })
    }

    fn disk_status(&self, view: &View, record: &DiskRecord, tally: DiskTally) -> DiskStatus {
        let member = view.members.get(&record.id);
        let space = member.map(|member| member.space).unwrap_or_default();
        let reason = match member.map(|member| &member.store) {
            None => Some("it is not open".to_owned()),
            Some(Err(absence)) => Some(absence.reason.clone()),
            Some(Ok(store)) => match store.state() {
                StoreState::Serving => None,
                StoreState::ReadOnly { reason } | StoreState::Failed { reason } => Some(reason),
            },
        };
        let store = member.and_then(|member| member.store.as_ref().ok());
        let sectors = store.and_then(|store| store.sectors()).map(SectorStatus::from);
        let state = self.state();
        let absent_for = state.absent_since.get(&record.id).map(|since| self.now().since(*since));
        let left = absent_for.map(|absent| self.inner.settings.absent_after.saturating_sub(absent));
        DiskStatus {
            id: record.id.to_string(),
            node: record.node.to_string(),
            path: record.path.clone(),
            state: match record.state {
                DiskState::Active => "active",
                DiskState::Draining => "draining",
                DiskState::Lost => "lost",
                DiskState::Removed => "removed",
            }
            .to_owned(),
            present: member.is_some_and(Member::readable),
            writable: member.is_some_and(Member::writable),
            reason,
            rebuild_in_seconds: left.filter(|left| !left.is_zero()).map(|left| left.as_secs_f64().ceil() as u64),
            total_bytes: space.total_bytes,
            free_bytes: space.free_bytes,
            chunks: tally.chunks,
            damaged: tally.damaged,
            logs: tally.logs,
            soft_errors: state.soft_errors.get(&record.id).copied().unwrap_or(0),
            sectors,
        }
    }
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keeper")
    }
}

impl Survey {
    fn add(&mut self, snapshot: &Snapshot, stripe: &StripeRecord) {
        let exposure = snapshot.exposure(stripe);
        self.unreachable.stripes += 1;
        self.unreachable.at_risk += u64::from(exposure.tolerance_left <= 0);
        self.unreachable.unreadable += u64::from(exposure.outlook != Outlook::Recoverable);
        self.worst.push(at_risk_of(snapshot, stripe));
        if self.worst.len() >= 2 * AT_RISK_MAX {
            self.worst.sort_by_key(|stripe| stripe.tolerance_left);
            self.worst.truncate(AT_RISK_MAX);
        }
    }
}

fn at_risk_of(snapshot: &Snapshot, stripe: &StripeRecord) -> AtRisk {
    let exposure = snapshot.exposure(stripe);
    AtRisk {
        stripe: stripe.id.to_string(),
        code: stripe.code.to_string(),
        tolerance_left: exposure.tolerance_left,
        chunks_lost: exposure.lost.iter().map(|chunk| chunk.0).collect(),
        chunks_unreachable: exposure.unreachable,
    }
}

fn absence_note(disk: &DiskStatus) -> Option<String> {
    let seconds = disk.rebuild_in_seconds?;
    let DiskStatus { id, path, .. } = disk;
    let reason = disk.reason.as_deref().unwrap_or("it does not answer");
    Some(format!(
        "disk {id} at {path} is absent ({reason}): its chunks are rebuilt elsewhere in {seconds} s unless it returns; \
         `claystone disk replace {id}` begins at once"
    ))
}

fn parity_note(disk: &DiskStatus) -> Option<String> {
    let sectors = disk.sectors.as_ref().filter(|sectors| sectors.parity_verdict == ParityVerdict::TooLittle.word())?;
    let seen = sectors.soft_measured?;
    let wanted = match sectors.parity_wanted {
        Some(wanted) => format!("{wanted} are wanted"),
        None => "no number suffices".to_owned(),
    };
    Some(format!(
        "disk {} at {}: {seen:.1e} of its sectors do not read at once, for which its {} parity sectors a group are too \
         few ({wanted}): drain it, and format it anew with --soft-failures, or replace the drive",
        disk.id, disk.path, sectors.parity
    ))
}

fn log_note(disk: &DiskStatus) -> Option<String> {
    let DiskStatus { id, path, logs, .. } = disk;
    let waits = disk.state != "active" && disk.chunks == 0 && *logs > 0;
    waits.then(|| format!("disk {id} at {path} is kept until the logs of {logs} volumes have left it"))
}

/// Stripes planned at once.
pub(crate) const BATCH: usize = 256;
/// Records of a page of a walk.
pub(crate) const PAGE: usize = 256;
const AT_RISK_MAX: usize = 20;
const AT_RISK_LOOKED_AT_MAX: usize = 1000;
/// Stripes below are counted apart: with few sectors a chunk, whole sectors weigh more than the code.
const LARGE_BYTES: u64 = 256 << 10;
const MOVE_EVERY: Duration = Duration::from_secs(5);
const SCRUB_EVERY: Duration = Duration::from_secs(60);
const RECLAIM_EVERY: Duration = Duration::from_secs(10);
const SURVEY_EVERY: Duration = Duration::from_secs(30);
const SPACE_TIMEOUT: Duration = Duration::from_secs(1);
/// Ten times what a disk in trouble takes to give up a command.
const PATIENCE: Duration = Duration::from_secs(60);
const ERROR_REST: Duration = Duration::from_secs(5);
