//! Stripes of one code become stripes of another over the same data chunks: merged, split, or each by itself.
//!
//! ```text
//!            Stripes::convert             Meta::convert               reclaim
//!  as it was ----------------> converted -----------------> named ------------> done
//!      ^                           |
//!      +------ StripeChanged ------+  Stripes::discard_converted
//! ```
//!
//! | state | what holds | after a crash |
//! |---|---|---|
//! | as it was | each source is a codeword of the old code | the same |
//! | converted | all chunks are synced, also kept ones that were acknowledged before; the new ones were read back, nobody names them, a claim keeps reclaim away | as it was; the new chunks are garbage |
//! | named | one transaction named the targets; kept chunks are the same files on the same disks. The sources are dead stripes of nothing but the chunks that were dropped | the same |
//! | done | the dropped chunks are deleted and the sources forgotten, as those of every dead stripe, when nobody reads by their records | the same |
//!
//! A disk that is lost between the last look at the new chunks and the transaction:
//!
//! | it held | given up in the records by then | it only does not answer |
//! |---|---|---|
//! | new chunks | refused: as it was | named; the chunk is missing, and is rebuilt when its disk stays away |
//! | kept chunks | named; the target lacks the chunk that its source lacked | the same |
//! | dropped chunks | named, and nothing is lacking | the same |
//!
//! Tolerance: each source has all its parity until the transaction, each target from there on. Readers with a source's
//! record have claimed the names that it has, dropped and kept ones, so nothing that it names is deleted under them.
//!
//! Invariants:
//! 1. What is read of healthy stripes is what the plan says, and what is written is too, in whole chunks. Lost chunks that
//!    the plan reads are decoded, which reads more.
//! 2. New chunks have names that no chunk had before: those of the targets, which are new. Kept chunks keep theirs.
//! 3. A target survives, whatever is lost, as many further losses as the safest of its sources did, or as the new code as a whole. That is
//!    looked at when all of it is written and read back, and the transaction refuses new chunks on disks that are given up.
//! 4. A target survives as many losses of whole nodes as the safest of its sources did, or as the new code does when it is
//!    spread over the nodes there are.
//! 5. Sources that nobody has read back are synced and read back, before new parity is made of them; what is verified is synced. What power cuts took
//!    of each is no more than its code tolerates, and of all of them together it may be more than the new code does. So targets are
//!    verified as their sources are.
//! 6. Bytes stay in their bands: a target holds whole bands of the sources, in order.
//!
//! Left out: padding. Chunks are files of one length, so stripes whose chunks are shorter do not merge with longer ones: who
//! writes what is to be merged sees to it that few lengths are in use.
//! Source: [hacfs §3.3], [convertible §IV]

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use claystone_chunk::{ChunkId, Generation, StripeId};
use claystone_code::{ChunkIndex, ConversionPlan, Converter, StripeChunk, Weakened};
use claystone_env::{WallTime, aligned_buffer};
use claystone_meta::{Band, ChunkPlace, Conversion, Origin, StripeRecord};
use futures::future::try_join_all;

use crate::fresh::{Target, create, delete_all, kept_places, roomy, settle};
use crate::gather::{Sources, Window, gather};
use crate::lanes::Disks;
use crate::rebuild::windows;
use crate::verify::verify;
use crate::writer::in_time;
use crate::{ChunkVerdict, Claim, Family, Hold, Layout, Pace, StripeError, Stripes, place_chunks, sub_bytes_for};

/// New chunks of the targets on their disks, synced and read back, not yet named.
#[derive(Debug)]
pub struct Converted {
    /// The change of the records to commit.
    pub change: Conversion,
    /// Hold them until the change is committed.
    pub claims: Vec<Claim>,
    /// Nobody changes the data meanwhile; hold them until the change is committed.
    pub holds: Vec<Hold>,
    /// Bytes of the new chunks.
    pub bytes_written: u64,
    /// Bytes read of the sources, whole sectors.
    pub bytes_read: u64,
    /// Bytes read back to verify the new chunks, and sources that had to be.
    pub bytes_verified: u64,
}

pub(crate) async fn convert(
    stripes: &Stripes,
    sources: &[StripeRecord],
    plan: &ConversionPlan,
    family: Option<Family>,
    pace: &dyn Pace,
) -> Result<Converted, StripeError> {
    assert_eq!(sources.len(), usize::from(plan.sources), "as many stripes as the plan takes");
    assert!(sources.iter().all(|source| source.code == plan.from), "stripes of the plan's old code");
    let layout = common_layout(sources)?;
    let bands = target_bands(sources, plan)?;
    let mut claims: Vec<Claim> = sources.iter().map(|source| stripes.claim_record(source)).collect();
    let mut holds = Vec::with_capacity(sources.len());
    for source in sources {
        holds.push(stripes.share(source.id).await?);
    }
    let mut targets = keep(stripes, sources, plan, bands);
    check_layout(&targets, &layout, sources[0].id, plan)?;
    claims.extend(targets.iter().map(|target| stripes.claim(target.id)));
    let nobody_failed: Vec<Sources> =
        sources.iter().map(|source| Sources::new(stripes, source, stripes.settings.read_timeout)).collect();
    check_exposure(stripes, sources, plan, &nobody_failed)?;
    let family = family.filter(|family| family.fast == plan.to);
    let fresh = place_writes(stripes, &mut targets, plan, family, layout.chunk_bytes())?;
    check_nodes(stripes, sources, plan, &targets)?;
    let (verified, bytes_kept) = read_back(stripes, sources, pace).await?;
    // What is new is read back before it is named.
    targets.iter_mut().for_each(|target| target.verified = verified);
    match fill(stripes, sources, plan, &fresh, &layout, pace).await {
        Ok((bytes_read, bytes_fresh)) => {
            let bytes_verified = bytes_kept + bytes_fresh;
            let expected = sources.iter().map(|source| (source.id, source.revision));
            let change = Conversion { sources: expected.collect(), targets };
            let bytes_written = layout.chunk_bytes() * fresh.len() as u64;
            Ok(Converted { change, claims, holds, bytes_written, bytes_read, bytes_verified })
        }
        Err(error) => {
            // Some of the new chunks may be committed already, and nobody will ever name them.
            delete_all(stripes, &fresh).await;
            Err(error)
        }
    }
}

/// The chunks that a conversion has written: those with the names of its targets.
pub(crate) fn written(change: &Conversion) -> Vec<Target> {
    let of = |target: &StripeRecord| -> Vec<Target> {
        let indices = (0..target.places.len() as u16).map(ChunkIndex);
        let fresh = indices.filter(|index| !target.origins.contains_key(index));
        fresh.filter_map(|index| Some((target.chunk_id(index)?, target.places[index.at()]?.disk))).collect()
    };
    change.targets.iter().flat_map(of).collect()
}

/// The layout that all sources share.
fn common_layout(sources: &[StripeRecord]) -> Result<Layout, StripeError> {
    let layout = Layout::of(&sources[0])?;
    for source in sources {
        let chunk_bytes = Layout::of(source)?.chunk_bytes();
        if chunk_bytes != layout.chunk_bytes() {
            return Err(StripeError::UnequalChunks { stripe: source.id, chunk_bytes, expected: layout.chunk_bytes() });
        }
    }
    Ok(layout)
}

/// Whether the targets' tiles lie in the chunks as the sources' do now: a short last tile depends on the code's sub-chunks.
fn check_layout(
    targets: &[StripeRecord],
    layout: &Layout,
    stripe: StripeId,
    plan: &ConversionPlan,
) -> Result<(), StripeError> {
    let lengths = |layout: &Layout| (layout.tile_bytes(), layout.chunk_bytes());
    let is_same = |target: &StripeRecord| Layout::of(target).is_ok_and(|of| lengths(&of) == lengths(layout));
    if targets.iter().all(is_same) {
        return Ok(());
    }
    Err(StripeError::OtherLayout { stripe, from: plan.from, to: plan.to })
}

/// The bands of each target.
fn target_bands(sources: &[StripeRecord], plan: &ConversionPlan) -> Result<Vec<Vec<Band>>, StripeError> {
    let width = plan.to.shape().data;
    let mut targets: Vec<Vec<Band>> = vec![Vec::new()];
    let mut room = width;
    for source in sources {
        for band in source.bands() {
            if room == 0 {
                targets.push(Vec::new());
                room = width;
            }
            room = room.checked_sub(band.chunks).ok_or(StripeError::BandCut {
                stripe: source.id,
                chunks: band.chunks,
                to: plan.to,
            })?;
            targets.last_mut().expect("never without one").push(band);
        }
    }
    assert_eq!((targets.len(), room), (usize::from(plan.targets), 0), "sources and targets have the same data chunks");
    Ok(targets)
}

/// The targets with what is kept.
fn keep(
    stripes: &Stripes,
    sources: &[StripeRecord],
    plan: &ConversionPlan,
    bands: Vec<Vec<Band>>,
) -> Vec<StripeRecord> {
    let empty = |bands: Vec<Band>| StripeRecord {
        id: StripeId::new(stripes.env.clock.wall(), &*stripes.env.random),
        code: plan.to,
        data_bytes: bands.iter().map(|band| band.data_bytes).sum(),
        bands: if bands.len() > 1 { bands } else { Vec::new() },
        sub_bytes: sub_bytes_for(plan.to),
        places: vec![None; usize::from(plan.to.shape().chunks())],
        origins: BTreeMap::new(),
        revision: 0,
        verified: None,
    };
    let mut targets: Vec<StripeRecord> = bands.into_iter().map(empty).collect();
    for kept in &plan.kept {
        let source = &sources[usize::from(kept.from.stripe)];
        let target = &mut targets[usize::from(kept.to.stripe)];
        let Some(name) = source.chunk_id(kept.from.chunk) else { continue };
        target.places[kept.to.chunk.at()] = source.places[kept.from.chunk.at()];
        target.origins.insert(kept.to.chunk, Origin { stripe: name.stripe, index: name.index });
    }
    targets
}

/// Whether each target survives as much as every source of it does now, without the chunks that cannot be read whole.
fn check_exposure(
    stripes: &Stripes,
    sources: &[StripeRecord],
    plan: &ConversionPlan,
    states: &[Sources],
) -> Result<(), StripeError> {
    let is_lost = |chunk: &StripeChunk| {
        let place = sources[usize::from(chunk.stripe)].places[chunk.chunk.at()].as_ref();
        let is_there = place.is_some_and(|place| !place.damaged && stripes.stores.readable(place.disk).is_some());
        !is_there || states[usize::from(chunk.stripe)].has_failed(chunk.chunk)
    };
    let all = (0..plan.sources).flat_map(|stripe| (0..plan.from.shape().chunks()).map(move |chunk| (stripe, chunk)));
    let all = all.map(|(stripe, chunk)| StripeChunk { stripe, chunk: ChunkIndex(chunk) });
    let lost: Vec<StripeChunk> = all.filter(is_lost).collect();
    match plan.weakens(&lost) {
        None => Ok(()),
        Some(Weakened { before, after, .. }) => {
            Err(StripeError::Exposed { stripe: sources[0].id, to: plan.to, before, after })
        }
    }
}

/// Whether each target survives as many losses of nodes as every source of it does, where the new code can.
fn check_nodes(
    stripes: &Stripes,
    sources: &[StripeRecord],
    plan: &ConversionPlan,
    targets: &[StripeRecord],
) -> Result<(), StripeError> {
    let nodes = stripes.stores.nodes();
    let spread = nodes.losses_when_spread(plan.to);
    let of_sources: Vec<usize> = sources.iter().map(|source| nodes.losses_of(source)).collect();
    for (at, target) in (0..).zip(targets) {
        let kept = plan.kept.iter().filter(|kept| kept.to.stripe == at);
        let safest = kept.map(|kept| of_sources[usize::from(kept.from.stripe)]).max().unwrap_or(0);
        let (before, after) = (safest.min(spread), nodes.losses_of(target));
        if after < before {
            return Err(StripeError::OnFewNodes { stripe: sources[0].id, to: plan.to, before, after });
        }
    }
    Ok(())
}

/// Syncs and reads back the sources that nobody has since they were acknowledged, perhaps before all of them was synced. Returns since when all
/// sources are known to be whole, if they are, and bytes read.
///
/// # Errors
/// `NotVerified`: of one a chunk is lost that its record calls whole.
async fn read_back(
    stripes: &Stripes,
    sources: &[StripeRecord],
    pace: &dyn Pace,
) -> Result<(Option<WallTime>, u64), StripeError> {
    let (mut verified, mut bytes_read) = (Vec::with_capacity(sources.len()), 0);
    for source in sources {
        if source.verified.is_some() {
            verified.push(source.verified);
            continue;
        }
        let now = stripes.env.clock.wall();
        let found = verify(stripes, source, None, pace).await;
        bytes_read += found.bytes_read;
        let is_known = |place: &Option<ChunkPlace>| {
            place.is_none_or(|place| place.damaged || stripes.stores.readable(place.disk).is_none())
        };
        let mut chunks = source.places.iter().zip(&found.chunks);
        if !chunks.all(|(place, verdict)| *verdict == ChunkVerdict::Verified || is_known(place)) {
            return Err(StripeError::NotVerified { stripe: source.id });
        }
        verified.push(found.healthy().then_some(now));
    }
    Ok((verified.into_iter().min().flatten(), bytes_read))
}

/// Gives each written chunk a disk, in `targets` too, and returns them in the order of the plan.
fn place_writes(
    stripes: &Stripes,
    targets: &mut [StripeRecord],
    plan: &ConversionPlan,
    family: Option<Family>,
    chunk_bytes: u64,
) -> Result<Vec<Target>, StripeError> {
    let candidates = roomy(stripes, chunk_bytes);
    let mut fresh = Vec::with_capacity(plan.writes.len());
    for (at, target) in (0..).zip(targets) {
        let taken = kept_places(stripes, target.code, &target.places).map_err(|(chunk, disk)| {
            let stripe = target.origins.get(&chunk).map_or(target.id, |origin| origin.stripe);
            StripeError::Crowded { stripe, to: target.code, disk }
        })?;
        let writes: Vec<ChunkIndex> =
            plan.writes.iter().filter(|write| write.stripe == at).map(|write| write.chunk).collect();
        let draw = |bound| stripes.env.random.below(bound);
        let disks = match family {
            Some(family) => {
                let known: Vec<_> = stripes.stores.members().into_iter().map(|member| member.record).collect();
                let disks = Disks { candidates: &candidates, known: &known };
                stripes.lanes.place_beside(plan.to, family, disks, &taken, &writes, draw)
            }
            None => place_chunks(plan.to, &candidates, &taken, &writes, draw),
        };
        for (chunk, disk) in writes.into_iter().zip(disks) {
            let too_few =
                || StripeError::TooFewDisks { needed: plan.to.disks_min().into(), available: candidates.len() };
            let disk = disk.ok_or_else(too_few)?;
            target.places[chunk.at()] = Some(ChunkPlace { disk, generation: Generation(0), damaged: false });
            fresh.push((ChunkId { stripe: target.id, index: chunk, generation: Generation(0) }, disk));
        }
    }
    Ok(fresh)
}

/// Writes the new chunks and reads them back. Returns bytes read of the sources and bytes read back.
async fn fill(
    stripes: &Stripes,
    sources: &[StripeRecord],
    plan: &ConversionPlan,
    fresh: &[Target],
    layout: &Layout,
    pace: &dyn Pace,
) -> Result<(u64, u64), StripeError> {
    let (code, converter) = (plan.from.build()?, Converter::new(plan)?);
    let wanted = |stripe: usize| -> Vec<ChunkIndex> {
        plan.reads.iter().filter(|read| usize::from(read.stripe) == stripe).map(|read| read.chunk).collect()
    };
    // Nobody waits for this: hedging early would only read more than the plan.
    let hedge = stripes.settings.read_timeout / 10;
    let mut states: Vec<Sources> = sources.iter().map(|source| Sources::new(stripes, source, hedge)).collect();
    let mut writers = create(stripes, fresh, layout.chunk_bytes()).await?;
    let mut bytes_read = 0;
    if !fresh.is_empty() {
        for window in windows(stripes, layout) {
            let window_bytes = window.tiles * window.tile_bytes;
            pace.admit(window_bytes * (plan.reads.len() + plan.writes.len()) as u64).await;
            let gathers = sources.iter().zip(&mut states).enumerate().map(|(at, (source, state))| {
                let (want, code) = (wanted(at), &*code);
                async move {
                    if want.is_empty() {
                        return Ok((Vec::new(), 0));
                    }
                    let gathered = gather(stripes, source, code, window, &want, state).await?;
                    Ok::<_, StripeError>((gathered.chunks, gathered.bytes_read))
                }
            });
            // The plan's reads are in the order of their stripes.
            let mut fetched: Vec<Bytes> = Vec::with_capacity(plan.reads.len());
            for (chunks, bytes) in try_join_all(gathers).await? {
                fetched.extend(chunks);
                bytes_read += bytes;
            }
            let made = combine(&converter, window, &fetched, fresh.len());
            let appends = writers.iter_mut().zip(fresh).zip(made);
            try_join_all(appends.map(|((writer, (_, disk)), bytes)| in_time(stripes, *disk, writer.append(bytes))))
                .await?;
        }
    }
    check_exposure(stripes, sources, plan, &states)?;
    let bytes_verified = settle(stripes, sources[0].id, writers, fresh, layout.chunk_bytes(), pace).await?;
    // Syncing and reading back take a while: what was lost meanwhile, of sources or of what is new, is not lost by this.
    check_exposure(stripes, sources, plan, &states)?;
    check_fresh(stripes, sources[0].id, fresh)?;
    Ok((bytes_read, bytes_verified))
}

/// Whether the disks of new chunks still answer.
fn check_fresh(stripes: &Stripes, stripe: StripeId, fresh: &[Target]) -> Result<(), StripeError> {
    match fresh.iter().all(|(_, disk)| stripes.stores.readable(*disk).is_some()) {
        true => Ok(()),
        false => Err(StripeError::NotVerified { stripe }),
    }
}

/// The written chunks of a window, tile by tile.
pub(crate) fn combine(converter: &Converter, window: Window, fetched: &[Bytes], writes: usize) -> Vec<Bytes> {
    let tile_bytes = window.tile_bytes as usize;
    let bytes = tile_bytes * window.tiles as usize;
    let buffer = |_| {
        let mut buffer = aligned_buffer(bytes);
        buffer.resize(bytes, 0);
        buffer
    };
    let mut made: Vec<BytesMut> = (0..writes).map(buffer).collect();
    for start in (0..bytes).step_by(tile_bytes) {
        let tile = start..start + tile_bytes;
        let sources: Vec<&[u8]> = fetched.iter().map(|chunk| &chunk[tile.clone()]).collect();
        let mut targets: Vec<&mut [u8]> = made.iter_mut().map(|chunk| &mut chunk[tile.clone()]).collect();
        converter.apply(&sources, &mut targets);
    }
    made.into_iter().map(BytesMut::freeze).collect()
}
