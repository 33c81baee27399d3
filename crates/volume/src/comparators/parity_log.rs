//! Logs of changes that parity has not got yet: one on each disk with parity, in segments, bounded.
//!
//! ```text
//!   append: new, old or old ^ new of whole units --> a segment on the parity's disk, where it is remembered by unit
//!   replay: for each unit of each parity chunk   --> what it is to change by is read and put together, and the parity patched once
//! ```
//!
//! Invariants:
//! 1. Of a unit that was changed several times parity is patched once: by the sum of its changes, or by its first content and its last.
//! 2. Nothing is appended while logs are replayed: whoever owns them sees to it.
//!
//! Left out: finding what was logged after a crash. What these logs are for is gone then (`volumes::scratch`).
//!
//! Source: [drc-dpu §2.3]: parity logging, and speculative partial writes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use bytes::{Bytes, BytesMut};
use claystone_chunk::{ByteRange, DiskId, Lease, Overwrite, SegmentId};
use claystone_code::{ChunkIndex, ErasureCode};
use claystone_env::Clock;
use claystone_meta::StripeRecord;
use claystone_stripe::Stripes;
use tokio::sync::Mutex;

use super::{chunk_at, failed, in_time, read_chunk};
use crate::BlocksError;

/// What is appended of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Logged {
    /// Old data and new (XOR).
    Delta,
    /// New data.
    New,
    /// Data as it was when parity was right.
    Old,
}

/// Where a change is, and whose parity it is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target<'a> {
    /// The stripe's position in the device.
    pub(super) position: u64,
    pub(super) stripe: &'a StripeRecord,
    pub(super) parity: ChunkIndex,
    pub(super) column: ChunkIndex,
    /// In the chunk; whole units.
    pub(super) offset: u64,
}

/// The logs of a device.
pub(super) struct ParityLogs {
    stripes: Stripes,
    clock: Arc<dyn Clock>,
    lease: Lease,
    /// Bytes that are logged one by one, and together.
    unit_bytes: u64,
    /// Bytes that a log is to have at most.
    log_bytes: u64,
    disks: std::sync::Mutex<BTreeMap<DiskId, Arc<Mutex<DiskLog>>>>,
    numbers: AtomicU64,
    /// Bytes of the longest.
    longest: AtomicU64,
}

/// The log on one disk.
#[derive(Debug, Default)]
struct DiskLog {
    /// The last one is appended to.
    segments: Vec<u64>,
    /// Bytes in the last one.
    end: u64,
    bytes: u64,
    changes: BTreeMap<Unit, Changes>,
}

/// A piece of a data chunk, of which a parity chunk is to get a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Unit {
    position: u64,
    parity: ChunkIndex,
    offset: u64,
    column: ChunkIndex,
}

/// Where in the log its changes are.
#[derive(Debug, Default)]
struct Changes {
    deltas: Vec<Spot>,
    old: Option<Spot>,
    new: Option<Spot>,
}

impl Changes {
    /// Of which the sum is the whole change: the others, or the first content and the last.
    fn spots(&self) -> impl Iterator<Item = &Spot> {
        self.deltas.iter().chain(&self.old).chain(&self.new)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Spot {
    segment: u64,
    offset: u64,
}

impl ParityLogs {
    pub(super) fn new(
        stripes: Stripes,
        clock: Arc<dyn Clock>,
        lease: Lease,
        unit_bytes: u64,
        log_bytes: u64,
    ) -> ParityLogs {
        ParityLogs {
            stripes,
            clock,
            lease,
            unit_bytes,
            log_bytes,
            disks: std::sync::Mutex::default(),
            numbers: AtomicU64::new(1),
            longest: AtomicU64::new(0),
        }
    }

    /// Whether they are to be replayed before more is appended.
    pub(super) fn are_full(&self) -> bool {
        self.longest() >= self.log_bytes
    }

    /// Bytes of the longest.
    pub(super) fn longest(&self) -> u64 {
        self.longest.load(Ordering::Relaxed)
    }

    /// Appends to the log beside a parity chunk.
    pub(super) async fn append(&self, target: Target<'_>, kind: Logged, content: Bytes) -> Result<(), BlocksError> {
        let disk = place_of(target.stripe, target.parity)?;
        let store = self.stripes.stores().readable(disk).ok_or_else(|| failed(&"a disk is absent"))?;
        let log = {
            let mut disks = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
            disks.entry(disk).or_default().clone()
        };
        // One append of a segment after another.
        let mut log = log.lock().await;
        let bytes = content.len() as u64;
        if log.segments.is_empty() || log.end + bytes > SEGMENT_BYTES {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            let made = store.segments().create_segment(number, self.lease, SEGMENT_BYTES.max(bytes));
            in_time(&*self.clock, made).await?;
            log.segments.push(number);
            log.end = 0;
        }
        let (segment, start) = (*log.segments.last().expect("there is one"), log.end);
        log.end += bytes;
        log.bytes += bytes;
        self.longest.fetch_max(log.bytes, Ordering::Relaxed);
        for at in (0..bytes).step_by(self.unit_bytes as usize) {
            let Target { position, parity, column, offset, .. } = target;
            let unit = Unit { position, parity, offset: offset + at, column };
            let spot = Spot { segment, offset: start + at };
            let changes = log.changes.entry(unit).or_default();
            match kind {
                Logged::Delta => changes.deltas.push(spot),
                Logged::New => changes.new = Some(spot),
                Logged::Old => changes.old = changes.old.or(Some(spot)),
            }
        }
        in_time(&*self.clock, store.segments().append(segment, self.lease, start, content)).await
    }

    /// Makes what was appended durable.
    pub(super) async fn sync(&self) -> Result<(), BlocksError> {
        for (disk, log) in self.all() {
            let log = log.lock().await;
            if log.segments.is_empty() {
                continue;
            }
            // What a disk that is away has is lost with its parity.
            let Some(store) = self.stripes.stores().readable(disk) else { continue };
            for segment in &log.segments {
                in_time(&*self.clock, store.segments().sync_segment(*segment, self.lease)).await?;
            }
        }
        Ok(())
    }

    /// Patches all parity that lacks something, and begins the logs anew. Nobody appends meanwhile. Returns the disks that are away, of
    /// which the parity stays behind for good: what was logged for it is forgotten.
    pub(super) async fn replay(
        &self,
        stripes: &[StripeRecord],
        code: &dyn ErasureCode,
    ) -> Result<Vec<DiskId>, BlocksError> {
        let mut away = Vec::new();
        for (disk, log) in self.all() {
            let mut log = log.lock().await;
            let log = std::mem::take(&mut *log);
            let Some(store) = self.stripes.stores().readable(disk) else {
                if !log.segments.is_empty() {
                    away.push(disk);
                }
                continue;
            };
            let mut changes = log.changes.into_iter().peekable();
            while let Some((first, _)) = changes.peek() {
                let (position, parity) = (first.position, first.parity);
                let mut of_chunk: Vec<(Unit, Changes)> = Vec::new();
                while let Some(change) = changes.next_if(|(unit, _)| (unit.position, unit.parity) == (position, parity))
                {
                    of_chunk.push(change);
                }
                self.patch(disk, &stripes[position as usize], parity, &of_chunk, code).await?;
            }
            for segment in log.segments {
                in_time(&*self.clock, store.segments().delete_segment(segment, self.lease)).await?;
            }
        }
        self.longest.store(0, Ordering::Relaxed);
        Ok(away)
    }

    /// Patches one parity chunk: these are its units, by their offsets.
    async fn patch(
        &self,
        disk: DiskId,
        stripe: &StripeRecord,
        parity: ChunkIndex,
        changes: &[(Unit, Changes)],
        code: &dyn ErasureCode,
    ) -> Result<(), BlocksError> {
        // What a first content is missing of was never to be replayed.
        let changes: Vec<&(Unit, Changes)> =
            changes.iter().filter(|(_, changes)| changes.old.is_some() || changes.new.is_none()).collect();
        let (Some((first, _)), Some((last, _))) = (changes.first(), changes.last()) else { return Ok(()) };
        let range = ByteRange { offset: first.offset, bytes: last.offset + self.unit_bytes - first.offset };
        let old = read_chunk(&self.stripes, &*self.clock, stripe, parity, range).await?;
        let (data, unit_bytes) = (code.shape().data, self.unit_bytes as usize);
        let mut sums: Vec<Vec<u8>> = vec![vec![0; unit_bytes]; changes.len()];
        // Some at a time: of a page that is written again and again there may be a whole log.
        let spots: Vec<(usize, Spot)> = changes
            .iter()
            .enumerate()
            .flat_map(|(at, (_, changes))| changes.spots().map(move |spot| (at, *spot)))
            .collect();
        for some in spots.chunks(SPOTS_AT_ONCE) {
            let contents = self.contents(disk, some.iter().map(|(_, spot)| *spot)).await?;
            some.iter().for_each(|(at, spot)| add(&mut sums[*at], &contents[spot]));
        }
        let at = usize::from(parity.0 - data);
        let mut patched: BTreeMap<u64, BytesMut> = BTreeMap::new();
        for ((unit, _), change) in changes.iter().zip(&sums) {
            let mut shares = vec![vec![0; unit_bytes]; code.shape().parity.into()];
            let mut targets: Vec<&mut [u8]> = shares.iter_mut().map(|share| &mut share[..]).collect();
            code.encode_add(unit.column, &[change], &mut targets);
            let from = (unit.offset - range.offset) as usize;
            let sum = patched.entry(unit.offset).or_insert_with(|| BytesMut::from(&old[from..from + unit_bytes]));
            add(sum, &shares[at]);
        }
        let (id, store) = chunk_at(&self.stripes, stripe, parity)?;
        let writes: Vec<Overwrite> =
            patched.into_iter().map(|(offset, bytes)| Overwrite { offset, bytes: bytes.freeze() }).collect();
        in_time(&*self.clock, store.overwrite(id, self.lease, &writes)).await
    }

    /// What was logged there.
    async fn contents(
        &self,
        disk: DiskId,
        spots: impl Iterator<Item = Spot>,
    ) -> Result<BTreeMap<Spot, Bytes>, BlocksError> {
        let store = self.stripes.stores().readable(disk).ok_or_else(|| failed(&"a disk is absent"))?;
        let mut by_segment: BTreeMap<u64, Vec<Spot>> = BTreeMap::new();
        spots.for_each(|spot| by_segment.entry(spot.segment).or_default().push(spot));
        let mut contents = BTreeMap::new();
        for (number, mut spots) in by_segment {
            spots.sort_unstable();
            let range = |spot: &Spot| ByteRange { offset: spot.offset, bytes: self.unit_bytes };
            let ranges: Vec<ByteRange> = spots.iter().map(range).collect();
            let id = SegmentId { owner: self.lease.owner, number };
            let read = in_time(&*self.clock, store.segments().read_segment(id, &ranges)).await?;
            contents.extend(spots.into_iter().zip(read));
        }
        Ok(contents)
    }

    fn all(&self) -> Vec<(DiskId, Arc<Mutex<DiskLog>>)> {
        let disks = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
        disks.iter().map(|(disk, log)| (*disk, log.clone())).collect()
    }
}

fn place_of(stripe: &StripeRecord, chunk: ChunkIndex) -> Result<DiskId, BlocksError> {
    stripe.places[chunk.at()].map(|place| place.disk).ok_or_else(|| failed(&"a chunk has no place"))
}

fn add(sum: &mut [u8], other: &[u8]) {
    sum.iter_mut().zip(other).for_each(|(sum, other)| *sum ^= other);
}

const SEGMENT_BYTES: u64 = 64 << 20;
const SPOTS_AT_ONCE: usize = 1024;
