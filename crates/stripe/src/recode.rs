//! Gives a stripe another code over the same data chunks: they stay where they are, only parity is written.
//!
//! ```text
//!            Stripes::recode             Meta::recode             Stripes::discard_superseded
//!  as it was ---------------> recoded ------------------> named ------------------------------> done
//!      ^                         |                          |
//!      +---- StripeChanged ------+                          +--> claimed: the sweep deletes the old parity later
//!            (new parity deleted)
//! ```
//!
//! | state | what holds | after a crash |
//! |---|---|---|
//! | as it was | the data and the old parity are a codeword of the old code | the same |
//! | recoded | all chunks are synced, also data that was acknowledged before; the new parity was read back, nobody names it, a claim keeps reclaim away | as it was; the new parity is garbage |
//! | named | one transaction named the new code with its parity; the data chunks are the same, by name and disk | the old parity is garbage |
//! | done | nothing of the old parity is left on disks that answer | the same |
//!
//! The tolerance of the old code holds until the transaction, that of the new one from there on. Readers with the old record
//! hold a claim, so that the chunks which it names stay until they are done.
//!
//! Invariants:
//! 1. New parity has names that no chunk of the stripe had before: a generation beyond all of its record.
//! 2. A stripe never comes to survive fewer further losses than it did, unless the new code as a whole does.
//! 3. Who merges has the stripe alone, and this shares it: what was read is what is there when the caller commits, unless
//!    the record changed, which the transaction sees.

use claystone_chunk::{ChunkId, DiskId, Generation};
use claystone_code::{ChunkIndex, CodeSpec, ErasureCode};
use claystone_env::aligned_buffer;
use claystone_meta::{ChunkPlace, Recode, StripeRecord};
use futures::future::try_join_all;

use bytes::{Bytes, BytesMut};

use crate::fresh::{create, delete_all, settle, settle_kept};
use crate::gather::{Sources, Window, gather};
use crate::rebuild::windows;
use crate::writer::in_time;
use crate::{Candidate, Claim, Hold, Layout, Pace, Placed, StripeError, Stripes, place_chunks, sub_bytes_for};

/// New parity on its disks, synced and read back, not yet named.
#[derive(Debug)]
pub struct Recoded {
    /// The change of the record to commit.
    pub change: Recode,
    /// Hold it until the change is committed.
    pub claim: Claim,
    /// Nobody changed the data meanwhile; hold it until the change is committed.
    pub hold: Hold,
    /// Bytes of the new chunks.
    pub bytes_written: u64,
    /// Bytes read of the data, whole sectors.
    pub bytes_read: u64,
    /// Bytes read back to verify the new chunks.
    pub bytes_verified: u64,
}

pub(crate) async fn recode(
    stripes: &Stripes,
    record: &StripeRecord,
    code: CodeSpec,
    pace: &dyn Pace,
) -> Result<Recoded, StripeError> {
    assert_ne!(code, record.code, "the stripe has this code");
    let layout = same_layout(record, code)?;
    let claim = stripes.claim_record(record);
    let hold = stripes.share(record.id).await?;
    check_exposure(stripes, record, code, &Sources::new(stripes, record, stripes.settings.read_timeout))?;
    settle_kept(stripes, record).await?;
    let targets = targets(stripes, record, code, layout.chunk_bytes())?;
    match fill(stripes, record, code, &targets, &layout, pace).await {
        Ok((bytes_read, bytes_verified)) => {
            let place = |(chunk, disk): &(ChunkId, DiskId)| ChunkPlace {
                disk: *disk,
                generation: chunk.generation,
                damaged: false,
            };
            let change = Recode {
                stripe: record.id,
                expected_revision: record.revision,
                code,
                sub_bytes: sub_bytes_for(code),
                parity: targets.iter().map(place).collect(),
            };
            let bytes_written = layout.chunk_bytes() * targets.len() as u64;
            Ok(Recoded { change, claim, hold, bytes_written, bytes_read, bytes_verified })
        }
        Err(error) => {
            // Some of the new chunks may be committed already, and nobody will ever name them.
            delete_all(stripes, &targets).await;
            Err(error)
        }
    }
}

/// The layout of the stripe, if its data lies under the new code as it does now.
fn same_layout(record: &StripeRecord, code: CodeSpec) -> Result<Layout, StripeError> {
    let old = Layout::of(record)?;
    code.validate()?;
    let lengths = |layout: &Layout| (layout.shape().data, layout.tile_bytes(), layout.chunk_bytes());
    let recoded = StripeRecord { code, sub_bytes: sub_bytes_for(code), ..record.clone() };
    let new = Layout::of_data(&recoded)?;
    if lengths(&old) != lengths(&new) {
        return Err(StripeError::OtherLayout { stripe: record.id, from: record.code, to: code });
    }
    Ok(new)
}

/// Whether the stripe under the new code survives as much as now, without the chunks that cannot be read whole.
fn check_exposure(
    stripes: &Stripes,
    record: &StripeRecord,
    code: CodeSpec,
    sources: &Sources,
) -> Result<(), StripeError> {
    let is_whole = |index: &ChunkIndex| {
        let place = record.places[index.at()].as_ref();
        place.is_some_and(|place| !place.damaged && stripes.stores.readable(place.disk).is_some())
            && !sources.has_failed(*index)
    };
    let (data, chunks) = (record.code.shape().data, record.code.shape().chunks());
    let lost: Vec<ChunkIndex> = (0..chunks).map(ChunkIndex).filter(|index| !is_whole(index)).collect();
    let lost_data: Vec<ChunkIndex> = lost.iter().copied().filter(|index| index.0 < data).collect();
    let (before, after) = (record.code.tolerance_left(&lost), code.tolerance_left(&lost_data));
    if after < before.min(code.tolerance().into()) {
        return Err(StripeError::Exposed { stripe: record.id, to: code, before, after });
    }
    Ok(())
}

/// Names and disks of the new parity.
fn targets(
    stripes: &Stripes,
    record: &StripeRecord,
    code: CodeSpec,
    chunk_bytes: u64,
) -> Result<Vec<(ChunkId, DiskId)>, StripeError> {
    let shape = code.shape();
    let mut taken: Vec<Placed> = Vec::new();
    for (chunk, place) in (0..shape.data).map(ChunkIndex).zip(&record.places) {
        let Some(place) = place else { continue };
        let beside = |other: &&Placed| other.disk == place.disk && !code.may_share_disk(chunk, other.chunk);
        if taken.iter().any(|other| beside(&other)) {
            return Err(StripeError::Crowded { stripe: record.id, to: code, disk: place.disk });
        }
        // A disk that is no member takes nothing, so its node does not matter.
        if let Some(member) = stripes.stores.member(place.disk) {
            taken.push(Placed { chunk, disk: place.disk, node: member.record.node });
        }
    }
    let has_room = |candidate: &Candidate| candidate.free_bytes > 2 * chunk_bytes;
    let candidates: Vec<Candidate> = stripes.stores.candidates().into_iter().filter(has_room).collect();
    let parity: Vec<ChunkIndex> = (shape.data..shape.chunks()).map(ChunkIndex).collect();
    let disks = place_chunks(code, &candidates, &taken, &parity, |bound| stripes.env.random.below(bound));
    let Some(disks) = disks.into_iter().collect::<Option<Vec<DiskId>>>() else {
        return Err(StripeError::TooFewDisks { needed: code.disks_min().into(), available: candidates.len() });
    };
    // Beyond what the record names; and a random step, as in a rebuild, beyond what it does not name any more.
    let last = record.places.iter().flatten().map(|place| place.generation.0).max().unwrap_or(0);
    let generation = Generation(last.wrapping_add(1 + stripes.env.random.below(1 << 20) as u32));
    let chunk = |index| ChunkId { stripe: record.id, index, generation };
    Ok(parity.into_iter().map(chunk).zip(disks).collect())
}

/// Writes the new parity and reads it back. Returns bytes read of the data and bytes read back.
async fn fill(
    stripes: &Stripes,
    record: &StripeRecord,
    spec: CodeSpec,
    targets: &[(ChunkId, DiskId)],
    layout: &Layout,
    pace: &dyn Pace,
) -> Result<(u64, u64), StripeError> {
    let (old, new) = (record.code.build()?, spec.build()?);
    let data: Vec<ChunkIndex> = (0..layout.shape().data).map(ChunkIndex).collect();
    // Nobody waits for this: hedging early would only read more than the data.
    let mut sources = Sources::new(stripes, record, stripes.settings.read_timeout / 10);
    let mut writers = create(stripes, targets, layout.chunk_bytes()).await?;
    let mut bytes_read = 0;
    // In windows of the old code's sub-chunks, as they are decoded if data is lost; their tiles are the new code's.
    for window in windows(stripes, &Layout::of(record)?) {
        let window_bytes = window.tiles * window.tile_bytes;
        pace.admit(window_bytes * (data.len() + targets.len()) as u64).await;
        let gathered = gather(stripes, record, &*old, window, &data, &mut sources).await?;
        bytes_read += gathered.bytes_read;
        let parity = encode(&*new, window, &gathered.chunks);
        let appends = writers.iter_mut().zip(targets).zip(parity);
        try_join_all(appends.map(|((writer, (_, disk)), bytes)| in_time(stripes, *disk, writer.append(bytes)))).await?;
    }
    check_exposure(stripes, record, spec, &sources)?;
    let bytes_verified = settle(stripes, record.id, writers, targets, layout.chunk_bytes(), pace).await?;
    Ok((bytes_read, bytes_verified))
}

/// The parity of a window, tile by tile.
fn encode(code: &dyn ErasureCode, window: Window, data: &[Bytes]) -> Vec<Bytes> {
    let tile_bytes = window.tile_bytes as usize;
    let bytes = tile_bytes * window.tiles as usize;
    let buffer = |_| {
        let mut buffer = aligned_buffer(bytes);
        buffer.resize(bytes, 0);
        buffer
    };
    let mut parity: Vec<BytesMut> = (0..code.shape().parity).map(buffer).collect();
    for start in (0..bytes).step_by(tile_bytes) {
        let tile = start..start + tile_bytes;
        let sources: Vec<&[u8]> = data.iter().map(|chunk| &chunk[tile.clone()]).collect();
        let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(|chunk| &mut chunk[tile.clone()]).collect();
        code.encode(&sources, &mut targets);
    }
    parity.into_iter().map(BytesMut::freeze).collect()
}

/// The chunks that `before` names and `after` does not, and their disks.
fn superseded(before: &StripeRecord, after: &StripeRecord) -> Vec<(ChunkId, DiskId)> {
    let named = |record: &StripeRecord| -> Vec<(ChunkId, DiskId)> {
        let indices = (0..record.places.len() as u16).map(ChunkIndex);
        indices.filter_map(|index| Some((record.chunk_id(index)?, record.places[index.at()]?.disk))).collect()
    };
    let kept = named(after);
    named(before).into_iter().filter(|chunk| !kept.contains(chunk)).collect()
}

pub(crate) async fn discard_superseded(stripes: &Stripes, before: &StripeRecord, after: &StripeRecord) -> bool {
    assert_eq!(before.id, after.id, "records of one stripe");
    // Asked once the new record is committed: who claims the stripe from now on reads by that.
    !stripes.is_record_claimed(before) && delete_all(stripes, &superseded(before, after)).await
}
