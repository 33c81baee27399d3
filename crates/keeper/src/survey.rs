//! What absent disks mean for the stripes that have chunks on them, and which stripes are nearest to loss.
//!
//! Invariants:
//! 1. A survey takes at most a twentieth of the time, however large the store is.

use std::time::Duration;

use claystone_chunk::DiskId;
use claystone_env::Moment;
use claystone_meta::StripeRecord;

use crate::keeper::PAGE;
use crate::snapshot::{Outlook, Snapshot};
use crate::status::{AtRisk, Unreachable};
use crate::{Keeper, KeeperError};

/// What absent disks mean, and when that was looked at.
#[derive(Debug, Clone, Default)]
pub(crate) struct Survey {
    pub(crate) unreachable: Unreachable,
    pub(crate) worst: Vec<AtRisk>,
    next: Moment,
}

impl Keeper {
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

pub(crate) fn at_risk_of(snapshot: &Snapshot, stripe: &StripeRecord) -> AtRisk {
    let exposure = snapshot.exposure(stripe);
    AtRisk {
        stripe: stripe.id.to_string(),
        code: stripe.code.to_string(),
        tolerance_left: exposure.tolerance_left,
        chunks_lost: exposure.lost.iter().map(|chunk| chunk.0).collect(),
        chunks_unreachable: exposure.unreachable,
    }
}

pub(crate) const AT_RISK_MAX: usize = 20;
const SURVEY_EVERY: Duration = Duration::from_secs(30);
