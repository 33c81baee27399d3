//! Moves data chunks apart that share a disk, so that their stripe can be converted.
//!
//! Copies may be written and repaired where few disks have room, several data chunks on one. Codes that a policy converts them to
//! want all chunks apart, and a conversion moves no data; so chunks that share a disk are copied to others first, as soon as there
//! are disks with room that have none of them.
//!
//! Invariants:
//! 1. A move passes through the states of a repair (module `repair`): copy, read back, swap, delete.
//! 2. All that share disks are moved, or nothing: what is half apart cannot be converted.
//! 3. A repair waits for no more stripes than are moved at once.

use claystone_chunk::StripeId;

use crate::backoff::Cause;
use crate::batch::carry_out_all;
use crate::policies::BATCH;
use crate::progress::JobKind;
use crate::repair::Outcome;
use crate::{Keeper, KeeperError};

impl Keeper {
    /// Moves the data chunks of a batch of these stripes apart. Returns how many stripes are apart now.
    pub(crate) async fn spread(&self, crowded: &[StripeId]) -> Result<u64, KeeperError> {
        let at_once = self.inner.settings.repair_concurrency;
        let mut spread = 0;
        for some in crowded[..crowded.len().min(BATCH)].chunks(at_once) {
            // Who waits for it is next: it is let go of after each few.
            let _moving = self.inner.moving.lock().await;
            let take = |outcome: Outcome| spread += u64::from(matches!(outcome, Outcome::Done { .. }));
            let act = |stripe| self.spread_one(stripe);
            carry_out_all(some.iter().copied(), at_once, |_| !self.repairs(), act, take).await?;
        }
        Ok(spread)
    }

    async fn spread_one(&self, stripe: StripeId) -> Result<Outcome, KeeperError> {
        let Some(stripe) = self.inner.meta.stripe(stripe).await? else { return Ok(Outcome::Changed) };
        let pacer = self.inner.pacing.pacer(self.inner.settings.repair_share);
        let (cause, error) = match pacer.watch(self.inner.stripes.spread(&stripe, &pacer)).await {
            Some(Ok(Some(rebuilt))) => {
                return self.conclude(JobKind::Drain, &stripe, Some(Ok(rebuilt))).await;
            }
            Some(Ok(None)) => (Cause::NoDisk, "no disks have room for them".to_owned()),
            Some(Err(error)) => (Cause::Failed, error.to_string()),
            None => {
                // It had no time to delete what it wrote.
                self.request_sweep();
                (Cause::Failed, "it hung".to_owned())
            }
        };
        tracing::info!(stripe = %stripe.id, error, "data chunks are moved apart later");
        // Others come first meanwhile, for which there may be disks.
        let (now, settings) = (self.now(), &self.inner.settings);
        self.state().convert_backoff.failed(stripe.id, now, cause, settings.retry_min, settings.retry_max);
        Ok(Outcome::Failed)
    }
}
