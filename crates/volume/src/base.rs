//! Bytes of stripes as they are coded: what a volume reads where it has no diff, and all that a snapshot reads.
//!
//! Invariants:
//! 1. Bytes are called lost only after the stripe was decoded, or could not be, as nobody changed it and as its record was
//!    then. Who merges it, or cannot tell its record, is waited for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use claystone_chunk::{ByteRange, StripeId};
use claystone_code::ChunkIndex;
use claystone_env::Clock;
use claystone_meta::{Meta, StripeRecord};
use claystone_stripe::{Hold, StripeError, Stripes};

use crate::BlocksError;
use crate::geometry::Geometry;

/// Reads stripes of one geometry.
pub(crate) struct Base {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) meta: Arc<dyn Meta>,
    pub(crate) stripes: Stripes,
    pub(crate) geometry: Geometry,
}

/// What a read found.
pub(crate) struct BaseRead {
    pub(crate) content: Bytes,
    /// The stripe as the records have it, where they had to be asked.
    pub(crate) current: Option<StripeRecord>,
}

impl Base {
    /// Bytes of one chunk of a stripe, by where they are in the volume.
    ///
    /// `waits`: asked each time when whoever changes the stripe did not come to an end in the time that a read may take. A
    /// merge has a bound for each of its steps, but not one that is shorter than a read's: a disk that does not answer can hold
    /// up the log, an overwrite and a sync one behind the other.
    ///
    /// # Errors
    /// `Lost`, `Unavailable`, and what `waits` says.
    pub(crate) async fn read(
        &self,
        stripe: &StripeRecord,
        range: ByteRange,
        waits: impl Fn() -> Result<(), BlocksError>,
    ) -> Result<BaseRead, BlocksError> {
        let spot = self.geometry.spot(range.offset);
        let ranges = BTreeMap::from([(spot.column, ByteRange { offset: spot.offset, bytes: range.bytes })]);
        if let Some(mut read) = self.stripes.read_columns_plain(stripe, &ranges).await {
            let content = read.remove(&spot.column).expect("what was asked for is answered");
            return Ok(BaseRead { content, current: None });
        }
        // To decode, the stripe must stay as it is, and be known as it is now: a chunk that missed a merge has no place
        // any more, and one that was rebuilt has another.
        // The claim comes before the record: what that names stays while this reads, also where the code changes.
        let _claim = self.stripes.claim(stripe.id);
        let hold = self.share(stripe.id, waits).await?;
        let current = self.current(stripe, range).await?;
        match self.column(&current, spot.column, spot.offset, range.bytes, &hold).await {
            Ok(content) => Ok(BaseRead { content, current: Some(current) }),
            Err(_) => Err(self.first_lost(&current, range, &hold).await),
        }
    }

    async fn share(&self, stripe: StripeId, waits: impl Fn() -> Result<(), BlocksError>) -> Result<Hold, BlocksError> {
        loop {
            match self.stripes.share(stripe).await {
                Ok(hold) => return Ok(hold),
                Err(error) => {
                    tracing::warn!(%error, "a read waits for a stripe that is being changed");
                    waits()?;
                }
            }
        }
    }

    /// A stripe as the records have it now.
    async fn current(&self, stripe: &StripeRecord, range: ByteRange) -> Result<StripeRecord, BlocksError> {
        let mut tries = 0;
        loop {
            match self.meta.stripe(stripe.id).await {
                Ok(Some(current)) => return Ok(current),
                // It is about to get a record, or it lost the last one a moment ago: its chunks are there.
                Ok(None) => return Ok(stripe.clone()),
                Err(error) => {
                    tries += 1;
                    if tries == LOOKUPS_MAX {
                        tracing::warn!(stripe = %stripe.id, %error, "where bytes of a volume are cannot be looked up");
                        return Err(BlocksError::Unavailable { range, reason: error.to_string() });
                    }
                    self.clock.sleep(LOOKUP_PAUSE).await;
                }
            }
        }
    }

    async fn column(
        &self,
        stripe: &StripeRecord,
        column: ChunkIndex,
        offset: u64,
        bytes: u64,
        hold: &Hold,
    ) -> Result<Bytes, StripeError> {
        let ranges = BTreeMap::from([(column, ByteRange { offset, bytes })]);
        let mut read = self.stripes.read_columns(stripe, &ranges, hold).await?;
        Ok(read.remove(&column).expect("what was asked for is answered"))
    }

    /// The error of the first page of a range of one chunk that is lost.
    async fn first_lost(&self, stripe: &StripeRecord, range: ByteRange, hold: &Hold) -> BlocksError {
        let page_bytes = u64::from(self.geometry.page_bytes);
        let mut at = range.offset;
        while at < range.end() {
            let end = ((at / page_bytes + 1) * page_bytes).min(range.end());
            let spot = self.geometry.spot(at);
            if let Err(error) = self.column(stripe, spot.column, spot.offset, end - at, hold).await {
                return lost(ByteRange { offset: at, bytes: end - at }, &error);
            }
            at = end;
        }
        BlocksError::Lost { range }
    }
}

fn lost(range: ByteRange, error: &dyn std::fmt::Display) -> BlocksError {
    tracing::warn!(offset = range.offset, bytes = range.bytes, %error, "bytes of a volume are lost");
    BlocksError::Lost { range }
}

/// How often a record is looked up before its bytes are unavailable, and how long each failure is waited out.
const LOOKUPS_MAX: u32 = 20;
const LOOKUP_PAUSE: Duration = Duration::from_millis(100);
