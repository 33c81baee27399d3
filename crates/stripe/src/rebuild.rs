//! Rebuilds lost chunks of a stripe from the others.
//!
//! A rebuilt chunk passes through `writing -> synced -> read back`; only then the caller gets the swap that names it.
//! A crash before the swap is committed leaves a chunk in a generation that no record names.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use claystone_chunk::{ChunkId, DiskId, Generation};
use claystone_code::ChunkIndex;
use claystone_meta::{ChunkPlace, StripeRecord, Swap};
use futures::future::try_join_all;

use crate::fresh::{Target, create, delete_all, roomy, settle};
use crate::gather::{Sources, Window, gather};
use crate::lanes::Disks;
use crate::writer::in_time;
use crate::{Claim, Family, Hold, Layout, Member, Placed, StripeError, Stripes, place_chunks, rehouse};

/// Lets background work wait its turn. Called before each step with the bytes it is about to read and write.
#[async_trait]
pub trait Pace: Send + Sync {
    /// Waits until the step may go on.
    async fn admit(&self, bytes: u64);
}

/// No waiting.
#[derive(Debug, Clone, Copy)]
pub struct Unpaced;

#[async_trait]
impl Pace for Unpaced {
    async fn admit(&self, _bytes: u64) {}
}

/// What the disks of new chunks are chosen by.
#[derive(Debug, Clone, Copy, Default)]
pub struct Housing<'a> {
    /// Of a stripe of the fast code of it, or of copies of its data chunks: what a merge keeps goes where the stripe can be merged, if
    /// there are disks.
    pub family: Option<Family>,
    /// Chunks to which copies give way where no disk is free for them ([`rehouse`]).
    pub displacing: &'a [ChunkIndex],
}

impl Rebuilt {
    /// Whether the stripe, of this record, is no less safe with the new chunks than without them, as disks are now: copies that give way may have become
    /// the last of their data since.
    pub fn is_as_safe(&self, stripes: &Stripes, record: &StripeRecord) -> bool {
        let answers = |place: &ChunkPlace| !place.damaged && stripes.stores.readable(place.disk).is_some();
        let lacks = |with_new: bool| {
            let place_of = |index: ChunkIndex| {
                let new = self.swap.places.iter().find(|(new, _)| *new == index).filter(|_| with_new);
                new.map_or(record.places[index.at()], |(_, place)| *place)
            };
            let chunks = (0..record.code.shape().chunks()).map(ChunkIndex);
            chunks.filter(|index| !place_of(*index).as_ref().is_some_and(answers)).collect::<Vec<_>>()
        };
        let gives_way = self.swap.places.iter().any(|(_, place)| place.is_none());
        !gives_way || record.code.tolerance_left(&lacks(true)) >= record.code.tolerance_left(&lacks(false))
    }
}

/// Where the new chunks of a stripe go.
pub(crate) struct Targets {
    /// Names and disks.
    pub(crate) chunks: Vec<Target>,
    /// Copies that lie where some of these go, and that the stripe is without then.
    pub(crate) give_way: Vec<ChunkIndex>,
}

/// Chunks rebuilt on their new disks, synced and read back, not yet named.
#[derive(Debug)]
pub struct Rebuilt {
    /// The change of the record to commit.
    pub swap: Swap,
    /// Hold it until the swap is committed.
    pub claim: Claim,
    /// Nobody changed the other chunks meanwhile; hold it until the swap is committed.
    pub hold: Hold,
    /// Bytes of the chunks that were rebuilt.
    pub bytes_rebuilt: u64,
    /// Bytes read from other chunks to rebuild them, whole sectors.
    pub bytes_read: u64,
    /// Bytes read back to verify the new chunks.
    pub bytes_verified: u64,
}

pub(crate) async fn rebuild(
    stripes: &Stripes,
    record: &StripeRecord,
    lost: &[ChunkIndex],
    housing: Housing<'_>,
    pace: &dyn Pace,
) -> Result<Rebuilt, StripeError> {
    let layout = Layout::of(record)?;
    let claim = stripes.claim_record(record);
    let hold = stripes.share(record.id).await?;
    let targets = targets(stripes, record, lost, housing, layout.chunk_bytes())?;
    rebuild_on(stripes, record, targets, &layout, (claim, hold), pace).await
}

/// Copies data chunks that lie on one disk with others of them to disks without any. `None`: they lie apart, or there are too
/// few such disks.
pub(crate) async fn spread(
    stripes: &Stripes,
    record: &StripeRecord,
    pace: &dyn Pace,
) -> Result<Option<Rebuilt>, StripeError> {
    let layout = Layout::of(record)?;
    let claim = stripes.claim_record(record);
    let hold = stripes.share(record.id).await?;
    let Some(chunks) = targets_apart(stripes, record, layout.chunk_bytes()) else { return Ok(None) };
    let targets = Targets { chunks, give_way: Vec::new() };
    rebuild_on(stripes, record, targets, &layout, (claim, hold), pace).await.map(Some)
}

pub(crate) async fn rebuild_on(
    stripes: &Stripes,
    record: &StripeRecord,
    Targets { chunks: targets, give_way }: Targets,
    layout: &Layout,
    (claim, hold): (Claim, Hold),
    pace: &dyn Pace,
) -> Result<Rebuilt, StripeError> {
    let lost: Vec<ChunkIndex> = targets.iter().map(|(chunk, _)| chunk.index).collect();
    match fill(stripes, record, &lost, &targets, layout, pace).await {
        Ok((bytes_read, bytes_verified)) => {
            let place = |(chunk, disk): &Target| {
                let place = ChunkPlace { disk: *disk, generation: chunk.generation, damaged: false };
                (chunk.index, Some(place))
            };
            let swap = Swap {
                stripe: record.id,
                expected_revision: record.revision,
                places: targets.iter().map(place).chain(give_way.into_iter().map(|copy| (copy, None))).collect(),
                lease: None,
            };
            let bytes_rebuilt = layout.chunk_bytes() * lost.len() as u64;
            Ok(Rebuilt { swap, claim, hold, bytes_rebuilt, bytes_read, bytes_verified })
        }
        Err(error) => {
            // Some of the new chunks may be committed already, and nobody will ever name them.
            delete_all(stripes, &targets).await;
            Err(error)
        }
    }
}

/// Writes the new chunks and reads them back. Returns bytes read from other chunks and bytes read back.
async fn fill(
    stripes: &Stripes,
    record: &StripeRecord,
    lost: &[ChunkIndex],
    targets: &[Target],
    layout: &Layout,
    pace: &dyn Pace,
) -> Result<(u64, u64), StripeError> {
    let code = record.code.build()?;
    // Nobody waits for a rebuild: hedging early would only read more than the plan.
    let mut sources = Sources::new(stripes, record, stripes.settings.read_timeout / 10);
    let mut writers = create(stripes, targets, layout.chunk_bytes()).await?;
    let mut bytes_read = 0;
    for window in windows(stripes, layout) {
        let window_bytes = window.tiles * window.tile_bytes;
        pace.admit(window_bytes * (u64::from(code.shape().data) + lost.len() as u64)).await;
        let gathered = gather(stripes, record, &*code, window, lost, &mut sources).await?;
        bytes_read += gathered.bytes_read;
        let appends = writers.iter_mut().zip(targets).zip(gathered.chunks);
        try_join_all(appends.map(|((writer, (_, disk)), bytes)| in_time(stripes, *disk, writer.append(bytes)))).await?;
    }
    let bytes_verified = settle(stripes, record.id, writers, targets, layout.chunk_bytes(), pace).await?;
    Ok((bytes_read, bytes_verified))
}

/// Names and disks of the new chunks. A chunk goes back to its own disk where that takes writes and has room (damage
/// of one chunk is no reason to leave a disk), else to one that may have it beside what it has of this stripe, in the lane of
/// the stripe if it is of a family and there is one. Where no disk is free for a chunk, copies give way to it ([`rehouse`]).
fn targets(
    stripes: &Stripes,
    record: &StripeRecord,
    lost: &[ChunkIndex],
    Housing { family, displacing }: Housing<'_>,
    chunk_bytes: u64,
) -> Result<Targets, StripeError> {
    let has_room = |free_bytes: u64| free_bytes > 2 * chunk_bytes;
    let members: BTreeMap<DiskId, _> =
        stripes.stores.members().into_iter().map(|member| (member.record.id, member)).collect();
    let chunk = |index| new_name(stripes, record, index);
    let mut targets: BTreeMap<ChunkIndex, DiskId> = BTreeMap::new();
    let mut lies: BTreeMap<ChunkIndex, DiskId> = BTreeMap::new();
    let mut missing: Vec<ChunkIndex> = Vec::new();
    for (index, place) in (0..).map(ChunkIndex).zip(&record.places) {
        let member = place.and_then(|place| members.get(&place.disk));
        let is_lost = lost.contains(&index);
        match (place, member) {
            (Some(place), Some(member)) if is_lost && member.writable() && has_room(member.space.free_bytes) => {
                targets.insert(index, place.disk);
                lies.insert(index, place.disk);
                continue;
            }
            // A chunk that leaves its disk counts no longer: neither there nor for the node.
            (Some(place), Some(_)) if !is_lost => drop(lies.insert(index, place.disk)),
            _ => {}
        }
        let answers = member.is_some_and(Member::readable);
        if is_lost || !answers || place.is_none_or(|place| place.damaged) {
            missing.push(index);
        }
    }
    let homeless: Vec<ChunkIndex> = lost.iter().copied().filter(|index| !targets.contains_key(index)).collect();
    let candidates = roomy(stripes, chunk_bytes);
    let known: Vec<_> = members.values().map(|member| member.record.clone()).collect();
    let place = |lies: &BTreeMap<ChunkIndex, DiskId>, chunks: &[ChunkIndex]| {
        let placed = |(chunk, disk): (&ChunkIndex, &DiskId)| {
            // One that came since is a candidate only.
            let candidate =
                || candidates.iter().find(|candidate| candidate.disk == *disk).map(|found| found.node.clone());
            let node = members.get(disk).map(|member| member.record.node.clone()).or_else(candidate)?;
            Some(Placed { chunk: *chunk, disk: *disk, node })
        };
        let taken: Vec<Placed> = lies.iter().filter_map(placed).collect();
        let draw = |bound| stripes.env.random.below(bound);
        match family {
            Some(family) => {
                let disks = Disks { candidates: &candidates, known: &known };
                stripes.lanes.place_beside(record.code, family, disks, &taken, chunks, draw)
            }
            None => place_chunks(record.code, &candidates, &taken, chunks, draw),
        }
    };
    let is_candidate = |disk| candidates.iter().any(|candidate| candidate.disk == disk);
    let may_give_way = |chunk, disk| {
        displacing.contains(&chunk) && is_candidate(disk) && targets.values().all(|target| *target != disk)
    };
    let found = rehouse(record.code, lies, missing, &homeless, may_give_way, place);
    // With too few disks for all, some chunks are better than none.
    targets.extend(found.disks);
    if targets.is_empty() {
        return Err(StripeError::TooFewDisks { needed: homeless.len(), available: 0 });
    }
    let chunks = lost.iter().filter_map(|index| Some((chunk(*index), *targets.get(index)?))).collect();
    Ok(Targets { chunks, give_way: found.give_way })
}

/// Names and disks of the data chunks that are to leave a disk that has another of them: each goes to one that has none. `None`
/// if nothing is to leave, or there are too few disks for all of it.
fn targets_apart(stripes: &Stripes, record: &StripeRecord, chunk_bytes: u64) -> Option<Vec<Target>> {
    let data = record.code.shape().data;
    let mut with_data: BTreeSet<DiskId> = BTreeSet::new();
    let (mut taken, mut leave): (Vec<Placed>, Vec<ChunkIndex>) = (Vec::new(), Vec::new());
    for (index, place) in (0..).map(ChunkIndex).zip(&record.places) {
        let Some(place) = place else { continue };
        if index.0 < data && !with_data.insert(place.disk) {
            leave.push(index);
        } else if let Some(member) = stripes.stores.member(place.disk) {
            taken.push(Placed { chunk: index, disk: place.disk, node: member.record.node });
        }
    }
    let candidates = roomy(stripes, chunk_bytes);
    let disks = place_chunks(record.code, &candidates, &taken, &leave, |bound| stripes.env.random.below(bound));
    let apart = disks.into_iter().map(|disk| disk.filter(|disk| with_data.insert(*disk)));
    let disks: Vec<DiskId> = apart.collect::<Option<_>>()?;
    let targets = leave.into_iter().map(|index| new_name(stripes, record, index)).zip(disks).collect();
    Some(targets).filter(|targets: &Vec<_>| !targets.is_empty())
}

/// A name that no chunk of the stripe had. A chunk that nothing names any more may still lie on a disk under the next generation;
/// a random start keeps the new name apart from it.
pub(crate) fn new_name(stripes: &Stripes, record: &StripeRecord, index: ChunkIndex) -> ChunkId {
    // Of all places: one chunk may have the name that another had.
    let old = record.places.iter().flatten().map(|place| place.generation.0).max().unwrap_or(0);
    let generation = Generation(old.wrapping_add(1 + stripes.env.random.below(1 << 20) as u32));
    ChunkId { stripe: record.id, index, generation }
}

/// The stripe's rows in steps: full rows together up to the window's length, the tail by itself.
pub(crate) fn windows(stripes: &Stripes, layout: &Layout) -> Vec<Window> {
    let rows_per_step = (stripes.settings.window_bytes / layout.row_bytes()).max(1);
    let mut windows = Vec::new();
    let mut row = 0;
    while row < layout.rows() {
        let tiles = if row < layout.full_rows() { rows_per_step.min(layout.full_rows() - row) } else { 1 };
        let first = layout.row(row);
        let (sub_bytes, tile_bytes) = (first.sub_bytes, first.tile_bytes);
        windows.push(Window { offset: first.chunk_offset, sub_bytes, tile_bytes, tiles });
        row += tiles;
    }
    windows
}
