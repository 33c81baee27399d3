//! New chunks that nobody names yet: begun, synced, read back, or deleted again; and kept ones, beside which they find their disks, synced before they
//! are named anew.

use claystone_chunk::{ChunkId, ChunkWriter, DiskId, Durability, StripeId};
use claystone_code::{ChunkIndex, CodeSpec};
use claystone_meta::{ChunkPlace, StripeRecord};
use futures::future::{join_all, try_join_all};

use crate::writer::in_time;
use crate::{Candidate, Pace, Placed, StripeError, Stripes};

/// A name and the disk for it.
pub(crate) type Target = (ChunkId, DiskId);

/// The disks with room for new chunks of this length.
pub(crate) fn roomy(stripes: &Stripes, chunk_bytes: u64) -> Vec<Candidate> {
    let has_room = |candidate: &Candidate| candidate.free_bytes > 2 * chunk_bytes;
    stripes.stores.candidates().into_iter().filter(has_room).collect()
}

/// Where the chunks are that a stripe under `code` keeps, of all its chunks in order, for [`place_chunks`](crate::place_chunks).
///
/// # Errors
/// A chunk and its disk, on which another one is with which it may not share it.
pub(crate) fn kept_places<'a>(
    stripes: &Stripes,
    code: CodeSpec,
    places: impl IntoIterator<Item = &'a Option<ChunkPlace>>,
) -> Result<Vec<Placed>, (ChunkIndex, DiskId)> {
    let mut disks: Vec<(ChunkIndex, DiskId)> = Vec::new();
    let mut kept: Vec<Placed> = Vec::new();
    for (chunk, place) in (0..).map(ChunkIndex).zip(places) {
        let Some(place) = place else { continue };
        if disks.iter().any(|(other, disk)| *disk == place.disk && !code.may_share_disk(chunk, *other)) {
            return Err((chunk, place.disk));
        }
        disks.push((chunk, place.disk));
        // A disk that is no member takes nothing, so its node does not matter.
        if let Some(member) = stripes.stores.member(place.disk) {
            kept.push(Placed { chunk, disk: place.disk, node: member.record.node });
        }
    }
    Ok(kept)
}

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
