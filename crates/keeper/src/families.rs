//! Which stripes are to be merged some day, by the policies of buckets: what of them is rebuilt, or moved off a disk, goes where they
//! can be.
//!
//! Invariants:
//! 1. A policy that cannot be read keeps no chunk from being rebuilt: it goes anywhere then.

use claystone_code::CodeSpec;
use claystone_meta::HeatPolicy;
use claystone_stripe::{Family, Housing, Pace, Rebuilt, StripeError};

use crate::Keeper;
use crate::plan::Task;

/// The policies that there are.
#[derive(Debug, Default)]
pub(crate) struct Families(Vec<HeatPolicy>);

impl Families {
    /// That of a stripe of this code. Of several the first: stripes are in lanes by the codes that they were written for, and
    /// where two policies have one fast code, those of the other find fewer partners.
    fn of(&self, code: CodeSpec) -> Option<Family> {
        let policy = self.0.iter().find(|policy| policy.fast == code || policy.is_fresh(code))?;
        Some(Family { fast: policy.fast, compact: policy.compact })
    }
}

impl Keeper {
    pub(crate) async fn families(&self) -> Families {
        match self.inner.meta.buckets().await {
            Ok(buckets) => Families(buckets.into_iter().filter_map(|bucket| bucket.policy).collect()),
            Err(error) => {
                tracing::warn!(%error, "policies cannot be read: chunks are rebuilt where stripes may not find partners");
                Families::default()
            }
        }
    }

    /// Rebuilds the chunks of a task where the stripe can be merged, if it is to be.
    pub(crate) async fn rebuild(
        &self,
        task: &Task,
        families: &Families,
        pace: &dyn Pace,
    ) -> Result<Rebuilt, StripeError> {
        let housing = Housing { family: families.of(task.stripe.code), displacing: &task.displacing };
        self.inner.stripes.rebuild_in(&task.stripe, &task.chunks, housing, pace).await
    }
}
