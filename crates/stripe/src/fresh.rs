//! New chunks that nobody names yet: begun, synced, read back, or deleted again; and kept ones, synced before they are named anew.

use claystone_chunk::{ChunkId, ChunkWriter, DiskId, Durability, StripeId};
use claystone_meta::StripeRecord;
use futures::future::{join_all, try_join_all};

use crate::writer::in_time;
use crate::{Pace, StripeError, Stripes};

/// A name and the disk for it.
pub(crate) type Target = (ChunkId, DiskId);

/// Begins chunks, all of the same length.
pub(crate) async fn create(
    stripes: &Stripes,
    targets: &[Target],
    chunk_bytes: u64,
) -> Result<Vec<Box<dyn ChunkWriter>>, StripeError> {
    let creates = targets.iter().map(|(chunk, disk)| async move {
        let store = stripes.stores.readable(*disk).ok_or(StripeError::TooFewDisks { needed: 1, available: 0 })?;
        Ok(in_time(stripes, *disk, store.create(*chunk, chunk_bytes)).await?)
    });
    try_join_all(creates).await
}

/// Syncs chunks of `stripe` and reads them back. Returns bytes read.
pub(crate) async fn settle(
    stripes: &Stripes,
    stripe: StripeId,
    writers: Vec<Box<dyn ChunkWriter>>,
    targets: &[Target],
    chunk_bytes: u64,
    pace: &dyn Pace,
) -> Result<u64, StripeError> {
    let settled = writers.into_iter().zip(targets).map(|(writer, (chunk, disk))| async move {
        in_time(stripes, *disk, writer.commit(Durability::Synced)).await?;
        let store = stripes.stores.readable(*disk).ok_or(StripeError::NotVerified { stripe })?;
        pace.admit(chunk_bytes).await;
        let verdict = in_time(stripes, *disk, store.verify(*chunk)).await?;
        if !verdict.lost_sectors.is_empty() || verdict.info.bytes != chunk_bytes {
            return Err(StripeError::NotVerified { stripe });
        }
        Ok(verdict.bytes_read)
    });
    Ok(try_join_all(settled).await?.into_iter().sum())
}

/// Syncs chunks that a record names and that were acknowledged before they were synced, on the disks that answer: with other parity they
/// would be more than its code tolerates to lose.
pub(crate) async fn settle_kept(stripes: &Stripes, record: &StripeRecord) -> Result<(), StripeError> {
    let syncs = record.places.iter().flatten().filter_map(|place| stripes.stores.readable(place.disk));
    let syncs = syncs.map(|store| async move { in_time(stripes, store.disk(), store.sync()).await });
    try_join_all(syncs).await?;
    Ok(())
}

/// Deletes chunks from the disks that answer; whether all are gone.
pub(crate) async fn delete_all(stripes: &Stripes, chunks: &[Target]) -> bool {
    let deletes = chunks.iter().map(|(chunk, disk)| async move {
        let Some(store) = stripes.stores.readable(*disk) else { return false };
        in_time(stripes, *disk, store.delete(*chunk)).await.is_ok()
    });
    join_all(deletes).await.into_iter().all(|gone| gone)
}
