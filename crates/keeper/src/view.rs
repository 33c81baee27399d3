//! The disks and the stripes as they are found now, from records and stores.
//!
//! Invariants:
//! 1. Since when a disk does not answer is remembered from the first look that finds it so; nothing else of a look is.

use std::collections::BTreeMap;
use std::time::Duration;

use claystone_chunk::{DiskId, StripeId};
use claystone_meta::{DiskRecord, DiskState, StripeRecord};
use claystone_stripe::Member;

use crate::keeper::BATCH;
use crate::queue::Queue;
use crate::snapshot::{Condition, Snapshot};
use crate::{Keeper, KeeperError};

/// The disks as records and stores show them now.
pub(crate) struct View {
    pub(crate) records: Vec<DiskRecord>,
    pub(crate) members: BTreeMap<DiskId, Member>,
    pub(crate) conditions: BTreeMap<DiskId, Condition>,
    /// Disks that do not answer though nobody gave them up.
    pub(crate) absent: Vec<DiskId>,
}

impl Keeper {
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
            state.lift_backoffs();
            state.survey = None;
        }
        drop(state);
        if !returned.is_empty() {
            self.inner.reclaim_wake.notify_one();
        }
        Ok(View { records, members, conditions, absent })
    }

    /// The stripes to look at for repair: those that the records call degraded, those with chunks on disks that have been
    /// absent for too long, of either the first or, where there are more, the most urgent too, and those that readers had to
    /// decode several times lately. Stripes that wait after a failure are among them and beyond the batch, so that
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
        if complete {
            self.state().queue = Queue::default();
        } else {
            let urgent = self.most_urgent(view, &deferred).await?;
            stripes.extend(urgent.into_iter().map(|stripe| (stripe.id, stripe)));
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
}

const SPACE_TIMEOUT: Duration = Duration::from_secs(1);
