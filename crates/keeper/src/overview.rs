//! The store as it is, for people: put together from records, disks and what upkeep remembers.
//!
//! Invariants:
//! 1. What is waited for is said with what to do about it.

use claystone_chunk::StoreState;
use claystone_env::ParityVerdict;
use claystone_meta::{DiskRecord, DiskState, DiskTally};
use claystone_stripe::Member;

use crate::backoff::Cause;
use crate::notes::over_bound;
use crate::progress::JobReport;
use crate::snapshot::Snapshot;
use crate::status::{AtRisk, DiskStatus, SectorStatus, Status, StripeCounts, counted};
use crate::survey::{AT_RISK_MAX, at_risk_of};
use crate::view::View;
use crate::{Keeper, KeeperError};

impl Keeper {
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
        waiting.extend(policies.iter().filter_map(over_bound));
        waiting.extend(state.remarks.iter().cloned());
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
    let volumes = counted(*logs, "volume", "volumes");
    waits.then(|| format!("disk {id} at {path} is kept until the logs of {volumes} have left it"))
}

const AT_RISK_LOOKED_AT_MAX: usize = 1000;
