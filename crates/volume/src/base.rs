//! Bytes of stripes as they are coded: what a volume reads where it has no diff, and all that a snapshot reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use claystone_chunk::ByteRange;
use claystone_code::ChunkIndex;
use claystone_meta::{Meta, StripeRecord};
use claystone_stripe::{Hold, StripeError, Stripes};

use crate::BlocksError;
use crate::geometry::Geometry;

/// Reads stripes of one geometry.
pub(crate) struct Base {
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
    pub(crate) async fn read(&self, stripe: &StripeRecord, range: ByteRange) -> Result<BaseRead, BlocksError> {
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
        let hold = self.stripes.share(stripe.id).await.map_err(|error| lost(range, &error))?;
        let current = match self.meta.stripe(stripe.id).await {
            Ok(Some(current)) => current,
            // It is about to get a record, or it lost the last one a moment ago: its chunks are there.
            Ok(None) => stripe.clone(),
            Err(error) => return Err(lost(range, &error)),
        };
        match self.column(&current, spot.column, spot.offset, range.bytes, &hold).await {
            Ok(content) => Ok(BaseRead { content, current: Some(current) }),
            Err(_) => Err(self.first_lost(&current, range, &hold).await),
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
