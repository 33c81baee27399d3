//! Reads every sector of a stripe's chunks.
//!
//! What nobody has verified may have been acknowledged before all of it was synced: it is synced before it is read back, so that what
//! is called verified is on its disks, and not in memory that the power of a node takes.

use claystone_chunk::{ChunkError, DiskId, StoreState};
use claystone_code::ChunkIndex;
use claystone_meta::StripeRecord;
use futures::future::join_all;

use crate::{Layout, Pace, Stripes};

/// What became of one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChunkVerdict {
    /// Every sector was read and its checksum is right.
    Verified,
    /// Some sectors are lost.
    SectorsLost(Vec<u64>),
    /// The chunk is not there, or lost as a whole.
    Lost,
    /// Its disk did not answer, or was not asked, so nothing is known.
    Unknown,
    /// The record gives it no place.
    Unplaced,
}

/// What was found of a stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// Chunk by chunk.
    pub chunks: Vec<ChunkVerdict>,
    /// Bytes read.
    pub bytes_read: u64,
}

impl Verification {
    /// Whether every chunk is in place and right: only then a stripe may be called healthy.
    pub fn healthy(&self) -> bool {
        self.chunks.iter().all(|verdict| *verdict == ChunkVerdict::Verified)
    }

    /// Chunks that are known to be bad and need repair.
    pub fn lost(&self) -> Vec<ChunkIndex> {
        let lost = |verdict: &ChunkVerdict| {
            matches!(verdict, ChunkVerdict::SectorsLost(_) | ChunkVerdict::Lost | ChunkVerdict::Unplaced)
        };
        let indices = self.chunks.iter().enumerate().filter(|(_, verdict)| lost(verdict));
        indices.map(|(index, _)| ChunkIndex(index as u16)).collect()
    }
}

/// Reads back a stripe's chunks, or those on one disk only.
pub(crate) async fn verify(
    stripes: &Stripes,
    record: &StripeRecord,
    only: Option<DiskId>,
    pace: &dyn Pace,
) -> Verification {
    let Ok(layout) = Layout::of(record) else {
        // Nothing can be said of chunks whose record is damaged.
        return Verification { chunks: vec![ChunkVerdict::Unknown; record.places.len().max(1)], bytes_read: 0 };
    };
    // Whoever patches the stripe meanwhile would make what was read old before it is told.
    let Ok(_hold) = stripes.share(record.id).await else {
        return Verification { chunks: vec![ChunkVerdict::Unknown; record.places.len().max(1)], bytes_read: 0 };
    };
    let verdicts = record.places.iter().enumerate().map(|(at, place)| async move {
        let Some(place) = place else { return (ChunkVerdict::Unplaced, 0) };
        if only.is_some_and(|disk| disk != place.disk) {
            return (ChunkVerdict::Unknown, 0);
        }
        let Some(store) = stripes.stores.readable(place.disk) else { return (ChunkVerdict::Unknown, 0) };
        let id = record.chunk_id(ChunkIndex(at as u16)).expect("it has a place");
        if record.verified.is_none()
            && let Err(error) = store.sync().await
        {
            tracing::debug!(chunk = %id, %error, "a chunk could not be synced to be verified");
            return (ChunkVerdict::Unknown, 0);
        }
        pace.admit(layout.chunk_bytes()).await;
        match store.verify(id).await {
            // A chunk of another length is some other chunk, whatever its checksums say.
            Ok(verdict) if verdict.info.bytes != layout.chunk_bytes() => (ChunkVerdict::Lost, verdict.bytes_read),
            Ok(verdict) if verdict.lost_sectors.is_empty() => (ChunkVerdict::Verified, verdict.bytes_read),
            Ok(verdict) => (ChunkVerdict::SectorsLost(verdict.lost_sectors), verdict.bytes_read),
            Err(ChunkError::NotFound { .. } | ChunkError::ChunkLost { .. }) => (ChunkVerdict::Lost, 0),
            Err(error) => {
                tracing::debug!(chunk = %id, %error, "a chunk could not be verified");
                (ChunkVerdict::Unknown, 0)
            }
        }
    });
    let (chunks, bytes): (Vec<ChunkVerdict>, Vec<u64>) = join_all(verdicts).await.into_iter().unzip();
    Verification { chunks, bytes_read: bytes.into_iter().sum() }
}

/// Deletes every chunk on a disk that takes deletes; says whether each of these did. A chunk on any other disk is an
/// orphan, for whoever sweeps that disk when it is back.
pub(crate) async fn discard(stripes: &Stripes, record: &StripeRecord) -> bool {
    let deletes = record.places.iter().enumerate().map(|(at, place)| async move {
        let Some(place) = place else { return true };
        let Some(id) = record.chunk_id(ChunkIndex(at as u16)) else { return true };
        match stripes.stores.readable(place.disk) {
            Some(store) if store.state() == StoreState::Serving => store.delete(id).await.is_ok(),
            _ => true,
        }
    });
    join_all(deletes).await.into_iter().all(|gone| gone)
}
