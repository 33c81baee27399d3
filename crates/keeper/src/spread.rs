//! Moves data chunks apart that share a disk, so that their stripe can be converted.
//!
//! Copies may be written and repaired where few disks have room, several data chunks on one. Codes that a policy converts them to
//! want all chunks apart, and a conversion moves no data; so chunks that share a disk are copied to others first, as soon as there
//! are disks with room that have none of them.
//!
//! Invariants:
//! 1. A move passes through the states of a repair (module `repair`): copy, read back, swap, delete.
//! 2. All that share disks are moved, or nothing: what is half apart cannot be converted.

use claystone_chunk::StripeId;
use claystone_stripe::StripeError;
use futures::StreamExt;
use futures::stream;

use crate::backoff::Cause;
use crate::plan::Task;
use crate::policies::BATCH;
use crate::progress::JobKind;
use crate::repair::Outcome;
use crate::{Keeper, KeeperError};

impl Keeper {
    /// Moves the data chunks of a batch of these stripes apart. Returns how many stripes are apart now.
    pub(crate) async fn spread(&self, crowded: &[StripeId]) -> Result<u64, KeeperError> {
        if crowded.is_empty() {
            return Ok(0);
        }
        let _moving = self.inner.moving.lock().await;
        let mut outcomes = stream::iter(crowded.iter().copied().take(BATCH))
            .take_while(|_| std::future::ready(!self.repairs()))
            .map(|stripe| self.spread_one(stripe))
            .buffer_unordered(self.inner.settings.repair_concurrency);
        let mut spread = 0;
        while let Some(outcome) = outcomes.next().await {
            spread += u64::from(matches!(outcome?, Some(Outcome::Done { .. })));
        }
        Ok(spread)
    }

    /// `None`: there are too few disks for it.
    async fn spread_one(&self, stripe: StripeId) -> Result<Option<Outcome>, KeeperError> {
        let Some(stripe) = self.inner.meta.stripe(stripe).await? else { return Ok(Some(Outcome::Changed)) };
        let pacer = self.inner.pacing.pacer(self.inner.settings.repair_share);
        let result = match pacer.watch(self.inner.stripes.spread(&stripe, &pacer)).await {
            Some(Ok(None)) => return Ok(None),
            Some(Ok(Some(rebuilt))) => Ok(rebuilt),
            Some(Err(error)) => Err(error),
            None => Err(StripeError::Held { stripe: stripe.id }),
        };
        if let Err(error) = &result {
            tracing::info!(stripe = %stripe.id, %error, "data chunks are moved apart later");
            let settings = &self.inner.settings;
            let now = self.now();
            let (min, max) = (settings.retry_min, settings.retry_max);
            self.state().convert_backoff.failed(stripe.id, now, Cause::Failed, min, max);
            return Ok(Some(Outcome::Failed));
        }
        let task = Task { tolerance_left: stripe.code.tolerance().into(), chunks: Vec::new(), stripe };
        self.conclude(JobKind::Drain, &task, Some(result)).await.map(Some)
    }
}
