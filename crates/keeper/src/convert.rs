//! Carries out one conversion: stripes become others over the same data chunks (`claystone_stripe`'s `convert` has the
//! states, and what a crash in each of them leaves).
//!
//! Invariants:
//! 1. The transaction and what follows a refusal are a task of their own: who asked may go away, and the claims on the new
//!    chunks outlive it.
//! 2. Dropped chunks are left to reclaim, which waits for whoever still reads by the old records.
//!
//! Left out: which stripes get which code, and when (`conversions`, `policies`).

use claystone_chunk::StripeId;
use claystone_code::{CodeSpec, ConversionGoal, NoConversion, plan_conversion};
use claystone_meta::{MetaError, StripeRecord};
use claystone_stripe::{Converted, Family, StripeError};

use crate::Keeper;
use crate::status::ConversionBytes;

/// Why stripes stay as they are.
#[derive(Debug, thiserror::Error)]
pub enum ConversionError {
    /// The codes have no conversion.
    #[error(transparent)]
    NoConversion(#[from] NoConversion),
    /// A stripe is gone.
    #[error("stripe {stripe} is gone")]
    Gone {
        /// The stripe.
        stripe: StripeId,
    },
    /// The stripes have different codes.
    #[error("stripe {stripe} has {code}, the others {expected}")]
    OtherCode {
        /// The stripe.
        stripe: StripeId,
        /// Its code.
        code: CodeSpec,
        /// The code of the first.
        expected: CodeSpec,
    },
    /// A stripe is given twice.
    #[error("stripe {stripe} is named twice")]
    Repeated {
        /// The stripe.
        stripe: StripeId,
    },
    /// Too few or too many stripes to fill stripes of the new code.
    #[error("{expected} stripes of {from} at once become {to}, not {given}")]
    OtherCount {
        /// The old code.
        from: CodeSpec,
        /// The new code.
        to: CodeSpec,
        /// Stripes that a conversion takes.
        expected: u16,
        /// Stripes given.
        given: usize,
    },
    /// What was written since the conversion was planned has the room that it takes below the bucket's bound.
    #[error("stripe {stripe} finds no room below the bound of its bucket any more")]
    NoRoom {
        /// The stripe.
        stripe: StripeId,
    },
    /// No progress for too long; it was given up.
    #[error("a conversion to {to} made no progress and was given up")]
    Stuck {
        /// The new code.
        to: CodeSpec,
    },
    /// New chunks could not be made.
    #[error(transparent)]
    Stripe(#[from] StripeError),
    /// The records could not be changed. After `Unavailable` nobody knows whether they were.
    #[error(transparent)]
    Meta(#[from] MetaError),
}

impl Keeper {
    /// Makes stripes of the code `to` of these, in the order of their data chunks, at the pace of upkeep. Returns the new
    /// ones.
    ///
    /// # Errors
    /// All of [`ConversionError`]; everything is as it was, but for `Meta(Unavailable)`.
    pub async fn convert(&self, sources: &[StripeId], to: CodeSpec) -> Result<Vec<StripeRecord>, ConversionError> {
        Ok(self.convert_counted(sources, to, None).await?.0)
    }

    /// As [`Keeper::convert`], into stripes that can be merged if they are fast ones of `family`; returns the bytes read and
    /// written too.
    pub(crate) async fn convert_counted(
        &self,
        sources: &[StripeId],
        to: CodeSpec,
        family: Option<Family>,
    ) -> Result<(Vec<StripeRecord>, ConversionBytes), ConversionError> {
        let mut records: Vec<StripeRecord> = Vec::with_capacity(sources.len());
        for &stripe in sources {
            if records.iter().any(|record| record.id == stripe) {
                return Err(ConversionError::Repeated { stripe });
            }
            let record = self.inner.meta.stripe(stripe).await?.ok_or(ConversionError::Gone { stripe })?;
            let expected = records.first().map_or(record.code, |first| first.code);
            if record.code != expected {
                return Err(ConversionError::OtherCode { stripe, code: record.code, expected });
            }
            records.push(record);
        }
        let Some(from) = records.first().map(|record| record.code) else {
            return Ok((Vec::new(), ConversionBytes::default()));
        };
        let plan = plan_conversion(from, to, ConversionGoal::FewestReads)?;
        if usize::from(plan.sources) != records.len() {
            let (expected, given) = (plan.sources, records.len());
            return Err(ConversionError::OtherCount { from, to, expected, given });
        }
        let pacer = self.inner.pacing.pacer(self.inner.settings.repair_share);
        let converted = match family {
            Some(family) => pacer.watch(self.inner.stripes.convert_in_lanes(&records, &plan, family, &pacer)).await,
            None => pacer.watch(self.inner.stripes.convert(&records, &plan, &pacer)).await,
        };
        let Some(converted) = converted else {
            // It had no time to delete what it wrote.
            self.request_sweep();
            return Err(ConversionError::Stuck { to });
        };
        let converted = converted?;
        let bytes = ConversionBytes {
            data_bytes: records.iter().map(|record| record.data_bytes).sum(),
            read_bytes: converted.bytes_read,
            written_bytes: converted.bytes_written,
            verified_bytes: converted.bytes_verified,
        };
        let sources = records.iter().map(|record| (record.id, record.data_bytes)).collect();
        Ok((self.name(converted, sources).await?, bytes))
    }

    /// Commits a conversion, or deletes its chunks. `sources` are the stripes with the bytes that each holds: the new ones are
    /// as hot as they were.
    async fn name(
        &self,
        converted: Converted,
        sources: Vec<(StripeId, u64)>,
    ) -> Result<Vec<StripeRecord>, ConversionError> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let (meta, stripes, env) = (self.inner.meta.clone(), self.inner.stripes.clone(), self.inner.env.clone());
        let task = async move {
            let result = meta.convert(converted.change.clone()).await;
            if let Ok(targets) = &result {
                let targets: Vec<StripeId> = targets.iter().map(|target| target.id).collect();
                stripes.heats().inherit(&sources, &targets, env.clock.wall());
            }
            // After `Unavailable` perhaps it is committed: the records tell the sweep later.
            if matches!(&result, Err(error) if !matches!(error, MetaError::Unavailable { .. })) {
                stripes.discard_converted(converted).await;
            }
            // Whoever asked may have gone away.
            let _ = sender.send(result);
        };
        self.inner.env.tasks.spawn("convert", Box::pin(task));
        let stopped = |_| MetaError::Unavailable { reason: "the store is stopping".to_owned() };
        Ok(receiver.await.map_err(stopped)??)
    }
}
