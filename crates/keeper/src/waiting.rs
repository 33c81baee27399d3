//! Conversions of stripes that have lost chunks: planned as if they were whole, and remembered until repair comes to the stripes
//! and decides which of both comes first (`order`).
//!
//! Invariants:
//! 1. A stripe is in one change at most, and a change is given once.
//! 2. All parts of all buckets are looked at. Changes of some [`STRIPES_MAX`] stripes are remembered, and planned anew after `convert_every` at the earliest, whatever comes
//!    of planning: a policy that cannot be read is not read again with each batch of repairs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use claystone_chunk::StripeId;
use claystone_env::Moment;
use claystone_meta::{BucketId, HeatPolicy};

use crate::conversions::{Change, Resident, Standing, plan_conversions};
use crate::policies::{LOOK_SHARE, Look};
use crate::view::View;
use crate::{Keeper, KeeperError};

/// A conversion that would be carried out if none of its stripes had lost anything.
#[derive(Debug, Clone)]
pub(crate) struct WaitingChange {
    pub(crate) bucket: BucketId,
    pub(crate) policy: HeatPolicy,
    pub(crate) change: Change,
}

/// What was planned for stripes that have lost chunks.
#[derive(Debug, Default)]
pub(crate) struct WaitingChanges {
    by_stripe: BTreeMap<StripeId, Arc<WaitingChange>>,
    /// When to look again.
    next: Option<Moment>,
}

impl WaitingChanges {
    /// The change of a stripe, which is given once, whichever of its stripes is asked for.
    pub(crate) fn take(&mut self, stripe: StripeId) -> Option<WaitingChange> {
        let waiting = self.by_stripe.get(&stripe)?.clone();
        waiting.change.sources.iter().for_each(|source| drop(self.by_stripe.remove(source)));
        Some(WaitingChange::clone(&waiting))
    }

    /// Remembers a change, unless there are enough, or a stripe of it is in another: two buckets may share it.
    fn add(&mut self, waiting: WaitingChange) {
        let is_known = waiting.change.sources.iter().any(|source| self.by_stripe.contains_key(source));
        if self.by_stripe.len() < STRIPES_MAX && !is_known {
            let waiting = Arc::new(waiting);
            self.by_stripe.extend(waiting.change.sources.iter().map(|source| (*source, waiting.clone())));
        }
    }
}

impl Keeper {
    /// Plans what would be converted if it had lost nothing, unless that was done a short while ago.
    pub(crate) async fn plan_waiting_changes(&self, view: &View) -> Result<(), KeeperError> {
        let began = self.now();
        if self.state().waiting_changes.next.is_some_and(|next| began < next) {
            return Ok(());
        }
        // Until then, whatever comes of it.
        self.state().waiting_changes.next = Some(began.after(self.inner.settings.convert_every));
        let mut waiting = WaitingChanges::default();
        for bucket in self.inner.meta.buckets().await? {
            let Some(policy) = bucket.policy else { continue };
            self.load_heats().await?;
            let mut after = None;
            loop {
                let Look { mut snapshot, end, .. } = self.look_at_bucket(&bucket, policy, view, after).await?;
                let is_hurt = |stripe: &&Resident| stripe.standing.lacks_chunks();
                let ids: BTreeSet<StripeId> =
                    snapshot.stripes.iter().filter(is_hurt).map(|stripe| stripe.stripe).collect();
                let is_hurt = |stripe: &&mut Resident| ids.contains(&stripe.stripe);
                snapshot.stripes.iter_mut().filter(is_hurt).for_each(|stripe| stripe.standing = Standing::Ready);
                let changes = if ids.is_empty() { Vec::new() } else { plan_conversions(&snapshot, usize::MAX) };
                let changes =
                    changes.into_iter().filter(|change| change.sources.iter().any(|source| ids.contains(source)));
                changes.for_each(|change| waiting.add(WaitingChange { bucket: bucket.id, policy, change }));
                after = end;
                if after.is_none() {
                    break;
                }
            }
        }
        // As the loop of conversions: it takes at most a twentieth of the time.
        let took = self.now().since(began);
        waiting.next = Some(self.now().after(self.inner.settings.convert_every.max(took * LOOK_SHARE)));
        self.state().waiting_changes = waiting;
        Ok(())
    }
}

const STRIPES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::why::Why;

    fn waiting(sources: &[u128]) -> WaitingChange {
        let policy = HeatPolicy::named("rsm-6+3").expect("a preset");
        let why = Why::Cold { heat: 0.0, cold_below: policy.cold_below, sources: sources.len() as u16 };
        let sources = sources.iter().copied().map(StripeId).collect();
        WaitingChange {
            bucket: BucketId(1),
            policy,
            change: Change { sources, to: policy.compact, saved_bytes: 1, why },
        }
    }

    #[test]
    fn a_stripe_is_in_one_change_which_is_given_once() {
        let mut changes = WaitingChanges::default();
        changes.add(waiting(&[1, 2]));
        changes.add(waiting(&[2, 3]));
        assert_eq!(changes.take(StripeId(3)).map(|waiting| waiting.change), None);
        let given = changes.take(StripeId(2)).expect("it was added");
        assert_eq!(given.change.sources, [StripeId(1), StripeId(2)]);
        assert!(changes.take(StripeId(1)).is_none());
    }

    #[test]
    fn so_many_are_remembered() {
        let mut changes = WaitingChanges::default();
        (0..STRIPES_MAX as u128).for_each(|at| changes.add(waiting(&[2 * at, 2 * at + 1])));
        assert_eq!(changes.by_stripe.len(), STRIPES_MAX);
    }
}
