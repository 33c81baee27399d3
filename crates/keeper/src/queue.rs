//! Which stripes are repaired next where more have lost chunks than one batch takes: the most urgent of all.
//!
//! The records give those first that survive the fewest further losses, as far as they know. They do not know of disks that are silent, and
//! of as endangered stripes they give the oldest. So all of them are looked through once, and the most urgent are remembered by
//! their ids; batches are taken from these until none is left, or a disk comes or goes.
//!
//! Invariants:
//! 1. At most [`QUEUED_MAX`] are remembered, and no other was more urgent when all were looked through.
//! 2. While no disk comes or goes, looking takes at most one part in [`LOOK_SHARE`] of the time.
//! 3. What is read from here is looked at anew: what is whole by then is forgotten.
//!
//! Left out: stripes that lost chunks since. They are found as where there is no queue, by how many more losses they survive.

use std::collections::{BTreeMap, BTreeSet};

use claystone_chunk::{DiskId, StripeId};
use claystone_env::Moment;
use claystone_meta::StripeRecord;

use crate::keeper::{BATCH, PAGE};
use crate::plan::{Urgency, plan_repairs};
use crate::policies::LOOK_SHARE;
use crate::snapshot::{Condition, Snapshot};
use crate::view::View;
use crate::{Keeper, KeeperError};

/// The most urgent repairs of all.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: BTreeSet<Urgency>,
    /// The disks as they were when all were looked through.
    conditions: BTreeMap<DiskId, Condition>,
    /// When to look again at the earliest.
    next: Option<Moment>,
}

impl Queue {
    fn is_due(&self, conditions: &BTreeMap<DiskId, Condition>, deferred: &BTreeSet<StripeId>, now: Moment) -> bool {
        let is_done = || self.waiting.iter().all(|urgency| deferred.contains(&urgency.stripe));
        self.conditions != *conditions || (self.next.is_none_or(|next| now >= next) && is_done())
    }

    /// Adds one, and forgets the least urgent if there are too many.
    fn add(&mut self, urgency: Urgency) {
        self.waiting.insert(urgency);
        if self.waiting.len() > QUEUED_MAX {
            self.waiting.pop_last();
        }
    }
}

impl Keeper {
    /// A batch of the most urgent of all stripes with lost chunks, but for those that are deferred.
    pub(crate) async fn most_urgent(
        &self,
        view: &View,
        deferred: &BTreeSet<StripeId>,
    ) -> Result<Vec<StripeRecord>, KeeperError> {
        let is_due = self.state().queue.is_due(&view.conditions, deferred, self.now());
        if is_due {
            let queue = self.look_through(view).await?;
            self.state().queue = queue;
        }
        let snapshot = Snapshot { disks: view.conditions.clone(), ..Snapshot::default() };
        let (mut stripes, mut stay) = (Vec::new(), Vec::new());
        while stripes.len() < BATCH {
            let Some(urgency) = self.state().queue.waiting.pop_first() else { break };
            if deferred.contains(&urgency.stripe) {
                stay.push(urgency);
                continue;
            }
            // One of which the records cannot be read now is not forgotten.
            let record = match self.inner.meta.stripe(urgency.stripe).await {
                Ok(record) => record,
                Err(error) => {
                    self.state().queue.waiting.extend(stay.into_iter().chain([urgency]));
                    return Err(error.into());
                }
            };
            if let Some(record) = record.filter(|record| !snapshot.exposure(record).lost.is_empty()) {
                stay.push(urgency);
                stripes.push(record);
            }
        }
        // They go when they are repaired.
        self.state().queue.waiting.extend(stay);
        Ok(stripes)
    }

    /// Puts all stripes with lost chunks in their order.
    async fn look_through(&self, view: &View) -> Result<Queue, KeeperError> {
        let began = self.now();
        let mut queue = Queue { conditions: view.conditions.clone(), ..Queue::default() };
        let mut snapshot = Snapshot { disks: view.conditions.clone(), ..Snapshot::default() };
        let mut take = |stripes: Vec<StripeRecord>| {
            snapshot.stripes = stripes;
            let tasks = plan_repairs(&snapshot, usize::MAX).tasks;
            tasks.iter().for_each(|task| queue.add(task.urgency(&snapshot.hot)));
        };
        for ids in self.inner.meta.degraded_ids(LOOKED_AT_MAX).await?.chunks(PAGE) {
            let mut stripes = Vec::with_capacity(ids.len());
            for id in ids {
                stripes.extend(self.inner.meta.stripe(*id).await?);
            }
            take(stripes);
        }
        for disk in self.given_up_by_time(view) {
            let mut after = None;
            loop {
                let page = self.inner.meta.stripes_on(disk, after, PAGE).await?;
                after = page.last().map(|stripe| stripe.id).filter(|_| page.len() == PAGE);
                take(page);
                if after.is_none() {
                    break;
                }
            }
        }
        let now = self.now();
        queue.next = Some(now.after(now.since(began) * LOOK_SHARE));
        Ok(queue)
    }
}

/// Some 6 MiB of memory, and repairs for many minutes.
const QUEUED_MAX: usize = 1 << 16;
/// Of those that the records call degraded: 16 MiB of ids.
const LOOKED_AT_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use claystone_chunk::Generation;
    use claystone_code::ChunkIndex;
    use claystone_meta::ChunkPlace;

    use super::*;
    use crate::plan::Task;

    /// Of a stripe that has lost a chunk.
    fn urgency(id: u128, chunk: u16) -> Urgency {
        let place = ChunkPlace { disk: DiskId(1), generation: Generation(0), damaged: true };
        let stripe = StripeRecord {
            id: StripeId(id),
            code: "rs:2+1".parse().expect("valid"),
            data_bytes: 1,
            bands: Vec::new(),
            origins: BTreeMap::new(),
            sub_bytes: 65_536,
            places: vec![Some(place); 3],
            revision: 0,
            verified: None,
        };
        Task { stripe, chunks: vec![ChunkIndex(chunk)], displacing: Vec::new(), tolerance_left: 0 }
            .urgency(&BTreeSet::new())
    }

    #[test]
    fn the_least_urgent_are_forgotten() {
        let mut queue = Queue::default();
        (0..QUEUED_MAX as u128).for_each(|id| queue.add(urgency(id, 2)));
        queue.add(urgency(QUEUED_MAX as u128, 0));
        assert_eq!(queue.waiting.len(), QUEUED_MAX);
        let ends = [queue.waiting.first(), queue.waiting.last()].map(|urgency| urgency.map(|urgency| urgency.stripe.0));
        assert_eq!(ends, [Some(QUEUED_MAX as u128), Some(QUEUED_MAX as u128 - 2)]);
    }

    #[test]
    fn it_is_looked_again_when_a_disk_comes_or_goes_or_after_a_while_when_it_is_empty() {
        let now = Moment::default().after(std::time::Duration::from_secs(9));
        let later = now.after(std::time::Duration::from_secs(20));
        let disks = BTreeMap::from([(DiskId(1), Condition::Absent)]);
        let queue = Queue { conditions: disks.clone(), next: Some(later), ..Queue::default() };
        let none = BTreeSet::new();
        assert!(!queue.is_due(&disks, &none, now) && queue.is_due(&disks, &none, later));
        assert!(queue.is_due(&BTreeMap::from([(DiskId(1), Condition::Gone)]), &none, now));
        assert!(Queue::default().is_due(&disks, &none, now));
        // One that cannot be repaired does not keep all others from being looked at.
        let mut queue = queue;
        queue.add(urgency(7, 0));
        assert!(!queue.is_due(&disks, &none, later));
        assert!(queue.is_due(&disks, &BTreeSet::from([StripeId(7)]), later));
    }
}
