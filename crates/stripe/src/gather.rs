//! Carries out read plans: asks the stores, and asks other stores when some fail or are slow.
//!
//! ```text
//!              all reads of a plan are here
//!   waiting ------------------------------------> recovered
//!    |  ^ ^
//!    |  | +-- a read failed: plan again without that chunk, for this window (for good if the chunk is gone)
//!    |  +---- the hedge delay passed: plan again without the chunks that are late; the late reads stay welcome
//!    +------> no plan is left: unrecoverable
//! ```
//!
//! Invariants:
//! 1. What is read is what some plan names, and nothing twice.
//! 2. A plan is used only if every one of its reads arrived and was verified by its store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use claystone_chunk::{ByteRange, ChunkError, ChunkId, ChunkStore, DiskId, SECTOR_BYTES, StoreState};
use claystone_code::{ChunkIndex, ChunkRead, ErasureCode, Method, ReadCosts, ReadPlan};
use claystone_meta::StripeRecord;
use futures::future::{BoxFuture, Either, select};
use futures::stream::{FuturesUnordered, StreamExt};

use crate::{Damage, StripeError, Stripes};

/// Some tiles, at the same place in every chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    /// Where they begin in the chunk.
    pub(crate) offset: u64,
    /// Sub-chunk bytes of each tile.
    pub(crate) sub_bytes: u32,
    /// Bytes of each tile: alpha sub-chunks.
    pub(crate) tile_bytes: u64,
    /// How many.
    pub(crate) tiles: u64,
}

/// A chunk as a source of one read or rebuild.
#[derive(Debug)]
struct Source {
    id: ChunkId,
    disk: DiskId,
    store: Arc<dyn ChunkStore>,
    damaged: bool,
}

/// The chunks of a stripe while it is being read.
#[derive(Debug)]
pub(crate) struct Sources {
    /// By index; `None`: no place, or its disk does not answer.
    chunks: Vec<Option<Source>>,
    /// Turned out to be gone.
    gone: BTreeSet<ChunkIndex>,
    /// Turned out to be slow.
    slow: BTreeSet<ChunkIndex>,
    /// Did not give what was asked of them, once at least.
    failed: BTreeSet<ChunkIndex>,
    /// Reads are not hedged before this.
    hedge_delay_min: Duration,
}

/// What was asked of one chunk: the ranges, in order.
type Asked = (ChunkIndex, Vec<ByteRange>);

/// The outcome of one read.
type Answer = (Asked, Result<Bytes, ChunkError>);

/// What a gather brought.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// The wanted chunks' bytes in the window, in the order they were wanted.
    pub(crate) chunks: Vec<Bytes>,
    /// Bytes read for it, whole sectors.
    pub(crate) bytes_read: u64,
}

impl Sources {
    /// The chunks of `record`, with reads hedged after `hedge_delay_min` at the earliest.
    pub(crate) fn new(stripes: &Stripes, record: &StripeRecord, hedge_delay_min: Duration) -> Sources {
        let source = |index: usize| {
            let place = record.places[index].as_ref()?;
            let id = record.chunk_id(ChunkIndex(index as u16))?;
            let store = stripes.stores.readable(place.disk)?;
            Some(Source { id, disk: place.disk, store, damaged: place.damaged })
        };
        let chunks = (0..record.places.len()).map(source).collect();
        let (gone, slow, failed) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Sources { chunks, gone, slow, failed, hedge_delay_min }
    }

    /// Whether a plain read of this chunk is worth trying first.
    pub(crate) fn promising(&self, index: ChunkIndex) -> bool {
        self.usable(index).is_some_and(|source| !source.damaged) && !self.slow.contains(&index)
    }

    /// Whether this chunk cannot be read as it lies, now or ever; one that is merely late can.
    pub(crate) fn is_lost(&self, index: ChunkIndex) -> bool {
        self.failed.contains(&index) || self.usable(index).is_none_or(|source| source.damaged)
    }

    /// Whether a read of this chunk has failed.
    pub(crate) fn has_failed(&self, index: ChunkIndex) -> bool {
        self.failed.contains(&index)
    }

    fn usable(&self, index: ChunkIndex) -> Option<&Source> {
        if self.gone.contains(&index) { None } else { self.chunks.get(index.at())?.as_ref() }
    }

    fn costs(&self, failed: &BTreeSet<ChunkIndex>, with_slow: bool) -> Vec<Option<u32>> {
        let cost = |at: usize| {
            let index = ChunkIndex(at as u16);
            let source = self.usable(index)?;
            let slow = self.slow.contains(&index);
            if failed.contains(&index) || (slow && !with_slow) {
                return None;
            }
            let waiting = source.store.load().queued.min(QUEUED_MAX) as u32;
            Some(1 + waiting + u32::from(source.damaged) * COST_DAMAGED + u32::from(slow) * COST_SLOW)
        };
        (0..self.chunks.len()).map(cost).collect()
    }

    /// Starts a read. The ranges are adjacent-free and ascending.
    fn read(&self, asked: Asked) -> BoxFuture<'static, Answer> {
        let source = self.usable(asked.0).expect("a plan names only chunks that have a cost");
        let (store, id) = (source.store.clone(), source.id);
        Box::pin(async move {
            let answer = store.read(id, &asked.1).await.map(join);
            (asked, answer)
        })
    }

    /// Remembers a failed read and reports damage that repair should know.
    fn learn(&mut self, stripes: &Stripes, index: ChunkIndex, error: ChunkError) {
        self.failed.insert(index);
        let Some(source) = self.usable(index) else { return };
        let damage = matches!(
            error,
            ChunkError::SectorsLost { .. } | ChunkError::ChunkLost { .. } | ChunkError::NotFound { .. }
        );
        if damage && !source.damaged && source.store.state() == StoreState::Serving {
            stripes.report(Damage { chunk: source.id, disk: source.disk, error: error.clone() });
        }
        // Lost sectors say nothing about the rest of the chunk; everything else does.
        if !matches!(error, ChunkError::SectorsLost { .. }) {
            self.gone.insert(index);
        }
    }

    /// How long to wait for these chunks before hedging.
    fn hedge_delay<'a>(&self, chunks: impl Iterator<Item = &'a ChunkIndex>) -> Duration {
        let latency = |index: &ChunkIndex| self.usable(*index).map(|source| source.store.load().read_latency);
        let slowest = chunks.filter_map(latency).max().unwrap_or_default();
        (slowest * HEDGE_LATENCIES).max(self.hedge_delay_min)
    }
}

/// Reads ranges of wanted chunks as they are, without any code. `None` if one of them fails or is late; what was
/// learned about it is kept in `sources`.
pub(crate) async fn read_plain(
    stripes: &Stripes,
    sources: &mut Sources,
    ranges: &BTreeMap<ChunkIndex, ByteRange>,
) -> Option<BTreeMap<ChunkIndex, Bytes>> {
    if !ranges.keys().all(|index| sources.promising(*index)) {
        return None;
    }
    let delay = sources.hedge_delay(ranges.keys());
    let mut late = stripes.env.clock.sleep(delay);
    let mut reads: FuturesUnordered<_> =
        ranges.iter().map(|(index, range)| sources.read((*index, vec![*range]))).collect();
    let mut chunks = BTreeMap::new();
    loop {
        match select(reads.next(), late).await {
            Either::Left((None, _)) => return Some(chunks),
            Either::Left((Some(((index, _), Ok(bytes))), rest)) => {
                chunks.insert(index, bytes);
                late = rest;
            }
            Either::Left((Some(((index, _), Err(error))), _)) => {
                sources.learn(stripes, index, error);
                return None;
            }
            Either::Right(((), _)) => {
                let missing = ranges.keys().filter(|index| !chunks.contains_key(index)).copied();
                sources.slow.extend(missing);
                return None;
            }
        }
    }
}

/// Gets the wanted chunks' bytes in a window, by whatever plan gets there first.
///
/// # Errors
/// `Unrecoverable`.
pub(crate) async fn gather(
    stripes: &Stripes,
    record: &StripeRecord,
    code: &dyn ErasureCode,
    window: Window,
    want: &[ChunkIndex],
    sources: &mut Sources,
) -> Result<Gathered, StripeError> {
    let clock = &*stripes.env.clock;
    let mut reads = FuturesUnordered::new();
    let mut asked: BTreeSet<Asked> = BTreeSet::new();
    let mut arrived: BTreeMap<Asked, Bytes> = BTreeMap::new();
    let mut failed: BTreeSet<ChunkIndex> = BTreeSet::new();
    let mut plans: Vec<ReadPlan> = Vec::new();
    let give_up = clock.now().after(stripes.settings.read_timeout);
    let mut hedge = None;
    let mut replan = true;
    loop {
        if replan {
            replan = false;
            plans.retain(|plan| plan.reads.iter().all(|read| !failed.contains(&read.chunk)));
            match plan_without(code, window, want, sources, &failed) {
                Ok(plan) if !plans.contains(&plan) => {
                    let wanted = plan.reads.iter().map(|read| (read.chunk, window.ranges(read)));
                    for read in wanted.filter(|read| asked.insert(read.clone())).collect::<Vec<_>>() {
                        reads.push(sources.read(read));
                    }
                    let chunks = plan.reads.iter().map(|read| &read.chunk);
                    hedge = Some(clock.now().after(sources.hedge_delay(chunks)));
                    plans.push(plan);
                }
                // The same plan again: nothing else can be done about late chunks but wait.
                Ok(_) => hedge = None,
                Err(_) if !plans.is_empty() => hedge = None,
                Err(unrecoverable) => {
                    return Err(StripeError::Unrecoverable {
                        stripe: record.id,
                        readable: usize::from(unrecoverable.available),
                        needed: usize::from(unrecoverable.needed),
                    });
                }
            }
        }
        let complete =
            |plan: &&ReadPlan| plan.reads.iter().all(|read| arrived.contains_key(&(read.chunk, window.ranges(read))));
        if let Some(plan) = plans.iter().find(complete) {
            let fetched = plan.reads.iter().map(|read| arrived[&(read.chunk, window.ranges(read))].clone());
            let chunks = recover(code, plan, window, &fetched.collect::<Vec<_>>());
            let ranges = arrived.keys().flat_map(|(_, ranges)| ranges);
            return Ok(Gathered { chunks, bytes_read: ranges.map(|range| sector_bytes(*range)).sum() });
        }
        let until = hedge.unwrap_or(give_up).min(give_up);
        match select(reads.next(), clock.sleep(until.since(clock.now()))).await {
            Either::Left((Some((read, Ok(bytes))), _)) => {
                arrived.insert(read, bytes);
            }
            Either::Left((Some(((index, _), Err(error))), _)) => {
                tracing::debug!(stripe = %record.id, chunk = index.0, %error, "a read failed, planning without it");
                failed.insert(index);
                sources.learn(stripes, index, error);
                replan = true;
            }
            Either::Left((None, _)) => unreachable!("a plan with all reads arrived is complete"),
            Either::Right(((), _)) => {
                let late = asked.iter().filter(|read| !arrived.contains_key(*read)).map(|(index, _)| *index);
                let late: Vec<ChunkIndex> = late.filter(|index| !failed.contains(index)).collect();
                if clock.now() >= give_up {
                    failed.extend(late);
                } else {
                    sources.slow.extend(late);
                }
                replan = true;
            }
        }
    }
}

/// The cheapest plan that does without slow chunks, or else one that waits for them.
fn plan_without(
    code: &dyn ErasureCode,
    window: Window,
    want: &[ChunkIndex],
    sources: &Sources,
    failed: &BTreeSet<ChunkIndex>,
) -> Result<ReadPlan, claystone_code::Unrecoverable> {
    let plan = |with_slow: bool| {
        let chunks = sources.costs(failed, with_slow);
        let costs = ReadCosts { chunks: &chunks, sub_bytes: window.sub_bytes, granule: SECTOR_BYTES };
        code.plan_read(want, &costs)
    };
    plan(false).or_else(|_| plan(true))
}

/// Turns what was read into the wanted chunks, tile by tile.
fn recover(code: &dyn ErasureCode, plan: &ReadPlan, window: Window, fetched: &[Bytes]) -> Vec<Bytes> {
    if let Method::Copy { from } = &plan.method {
        return from.iter().map(|&read| fetched[usize::from(read)].clone()).collect();
    }
    let tile_bytes = window.tile_bytes as usize;
    let mut chunks = vec![vec![0u8; tile_bytes * window.tiles as usize]; plan.want.len()];
    for tile in 0..window.tiles as usize {
        let cut = |(read, bytes): (&ChunkRead, &Bytes)| {
            let part = read.sub_chunks_total() as usize * window.sub_bytes as usize;
            bytes.slice(tile * part..(tile + 1) * part)
        };
        let fetched: Vec<Bytes> = plan.reads.iter().zip(fetched).map(cut).collect();
        let fetched: Vec<&[u8]> = fetched.iter().map(Bytes::as_ref).collect();
        let place = tile * tile_bytes..(tile + 1) * tile_bytes;
        let mut out: Vec<&mut [u8]> = chunks.iter_mut().map(|chunk| &mut chunk[place.clone()]).collect();
        code.recover(plan, &fetched, &mut out);
    }
    chunks.into_iter().map(Bytes::from).collect()
}

impl Window {
    /// The byte ranges of a planned read over all tiles, ascending, adjacent ones joined.
    fn ranges(self, read: &ChunkRead) -> Vec<ByteRange> {
        let sub_bytes = u64::from(self.sub_bytes);
        let mut ranges: Vec<ByteRange> = Vec::new();
        for tile in 0..self.tiles {
            for sub_chunks in &read.sub_chunks {
                let offset = self.offset + tile * self.tile_bytes + u64::from(sub_chunks.start) * sub_bytes;
                let bytes = u64::from(sub_chunks.end - sub_chunks.start) * sub_bytes;
                match ranges.last_mut() {
                    Some(last) if last.end() == offset => last.bytes += bytes,
                    _ => ranges.push(ByteRange { offset, bytes }),
                }
            }
        }
        ranges
    }
}

/// Bytes a store reads for a range: whole sectors.
fn sector_bytes(range: ByteRange) -> u64 {
    let sector = u64::from(SECTOR_BYTES);
    range.end().next_multiple_of(sector) - range.offset / sector * sector
}

fn join(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let mut joined = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    parts.iter().for_each(|part| joined.extend_from_slice(part));
    joined.freeze()
}

const COST_DAMAGED: u32 = 100;
const COST_SLOW: u32 = 1000;
const QUEUED_MAX: usize = 8;
const HEDGE_LATENCIES: u32 = 4;
