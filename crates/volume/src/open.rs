//! Opens a volume: takes its lease, reads its log again, finishes what was interrupted.
//!
//! ```text
//!  closed --take_lease, fence--> ours --read the log--> known --redo, log anew--> open
//! ```
//!
//! | step | what holds after it | after a crash in it |
//! |---|---|---|
//! | take_lease | no earlier owner changes the volume's records any more | the next opening takes a later lease |
//! | fence | no earlier owner changes a chunk or a segment on a disk that is present | the same |
//! | read the log | segments of before a revert are over; the diffs and the merges under way are as the last owner had made durable, or later | nothing was changed |
//! | sync what was read | no crash takes away what is served from it | done again |
//! | new segment | it names the one before and its end; appends are on as many disks as they should be | it is the last, or never was |
//! | redo | every stripe is a codeword: what an intent says is written and synced | written again |
//!
//! Invariants:
//! 1. Nothing is served before the last step.
//! 2. With as many log disks absent as a segment has copies at least, records may be missing: the volume does not open. A
//!    disk that cannot be asked is absent.
//! 3. A segment that a later one names must be whole, on one disk, up to where that one says it ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use claystone_chunk::{ByteRange, ChunkStore, DiskId, Lease, SegmentError, SegmentInfo, StripeId};
use claystone_env::Env;
use claystone_meta::{Meta, VolumeRecord};
use claystone_stripe::{Hold, Stripes};

use crate::VolumeError;
use crate::diffs::Diffs;
use crate::geometry::{Geometry, Page};
use crate::log::record::{HEAD_BYTES, Intent, LogPlace, Record};
use crate::log::{Log, LogSettings, LogStart, Segment, term_of};
use crate::settings::Settings;
use crate::volume::{Parts, Volume};
use crate::volumes::log_fits;

/// A log as it was found.
struct Found {
    segments: BTreeMap<u64, Segment>,
    /// Intents without the record that they were carried out.
    intents: BTreeMap<LogPlace, Intent>,
    /// The last segment, and where it ends.
    last: Option<LogPlace>,
}

/// A copy of a segment.
struct Copy {
    disk: DiskId,
    store: Arc<dyn ChunkStore>,
    info: SegmentInfo,
}

/// All copies of all segments that the disks have, by number.
type Copies = BTreeMap<u64, Vec<Copy>>;

pub(crate) async fn open(
    env: &Env,
    meta: Arc<dyn Meta>,
    stripes: Stripes,
    settings: Settings,
    record: &VolumeRecord,
    held: &mut BTreeMap<StripeId, Hold>,
) -> Result<Volume, VolumeError> {
    let code = record.code.build()?;
    let shape = code.shape();
    let geometry = Geometry { page_bytes: record.page_bytes, chunk_bytes: record.chunk_bytes, columns: shape.data };
    let chunks_bytes = u64::from(shape.chunks()) * geometry.chunk_bytes;
    if !geometry.is_sound() || shape.alpha != 1 || !log_fits(&settings, chunks_bytes) {
        return Err(VolumeError::Unusable { name: record.name.clone(), segment_bytes: settings.segment_bytes });
    }
    let record = meta.take_lease(record.id).await?;
    let lease = Lease { owner: record.id, term: record.term };
    let stores = stripes.stores().clone();
    let mut present: BTreeMap<DiskId, Arc<dyn ChunkStore>> = BTreeMap::new();
    for member in stores.members() {
        let Some(store) = stores.readable(member.record.id) else { continue };
        match store.segments().fence(lease).await {
            Ok(()) => {
                present.insert(member.record.id, store);
            }
            Err(SegmentError::Fenced { .. }) => return Err(VolumeError::LeaseEnded { name: record.name }),
            Err(error) => tracing::warn!(disk = %member.record.id, %error, "a disk takes no part in opening a volume"),
        }
    }
    let copies = list_copies(&record, &mut present).await;
    let absent: Vec<DiskId> = record.log_disks.iter().copied().filter(|disk| !present.contains_key(disk)).collect();
    if !absent.is_empty() && absent.len() >= usize::from(record.log_copies) {
        return Err(VolumeError::LogAbsent { name: record.name, absent });
    }
    let mut known = BTreeMap::new();
    let mut after = None;
    loop {
        let page = meta.volume_stripes(record.id, after, STRIPES_PAGE).await?;
        let Some((last, _)) = page.last() else { break };
        after = Some(*last);
        known.extend(page.into_iter().map(|(position, stripe)| (position, Arc::new(stripe))));
    }
    let mut diffs = Diffs::new(geometry);
    let found = read_log(&record, &copies, lease, &mut diffs).await?;
    tracing::info!(
        volume = record.name,
        segments = found.segments.len(),
        pages = diffs.pages(),
        merges = found.intents.len(),
        "a volume's log was read again"
    );
    let diffs = Arc::new(Mutex::new(diffs));
    let log_settings = LogSettings {
        segment_bytes: settings.segment_bytes,
        copies: usize::from(record.code.tolerance()) + 1,
        page_bytes: record.page_bytes,
        timeout: settings.timeout,
    };
    let start = LogStart {
        segments: found.segments,
        last: found.last,
        recorded_disks: record.log_disks.iter().copied().collect(),
        recorded_copies: record.log_copies,
    };
    let log = Log::start(env, meta.clone(), stores, lease, log_settings, start, diffs.clone()).await?;
    let env = env.clone();
    let volume = Volume::new(Parts { env, meta, stripes, record, geometry, code, settings, diffs, known, log });
    for (at, intent) in &found.intents {
        volume.inner.redo(*at, intent, held).await?;
    }
    held.clear();
    volume.inner.log.sync().await?;
    volume.inner.log.tend().await?;
    Ok(volume)
}

/// Asks every disk for its segments; one that does not say is not present.
async fn list_copies(record: &VolumeRecord, present: &mut BTreeMap<DiskId, Arc<dyn ChunkStore>>) -> Copies {
    let mut copies = Copies::new();
    let disks: Vec<(DiskId, Arc<dyn ChunkStore>)> =
        present.iter().map(|(disk, store)| (*disk, store.clone())).collect();
    for (disk, store) in disks {
        match store.segments().segments(record.id).await {
            Ok(infos) => {
                for info in infos {
                    if term_of(info.id.number) < record.log_from {
                        forget_reverted(&*store, info.id.number, record).await;
                        continue;
                    }
                    copies.entry(info.id.number).or_default().push(Copy { disk, store: store.clone(), info });
                }
            }
            Err(error) => {
                tracing::warn!(%disk, %error, "the segments of a volume cannot be listed here");
                present.remove(&disk);
            }
        }
    }
    copies
}

/// Deletes a segment of before the volume was reverted. One that stays is met by the next opening.
async fn forget_reverted(store: &dyn ChunkStore, number: u64, record: &VolumeRecord) {
    let lease = Lease { owner: record.id, term: record.term };
    if let Err(error) = store.segments().delete_segment(number, lease).await {
        tracing::debug!(number, disk = %store.disk(), %error, "a segment of before a revert was left");
    }
}

/// Reads all segments that are not over, oldest first, and applies their records. Then no crash takes away what was read.
async fn read_log(
    record: &VolumeRecord,
    copies: &Copies,
    lease: Lease,
    diffs: &mut Diffs,
) -> Result<Found, VolumeError> {
    let pages_end = Page(record.bytes.div_ceil(u64::from(record.page_bytes)));
    let mut found = Found { segments: BTreeMap::new(), intents: BTreeMap::new(), last: None };
    let (chain, mut over_below) = chain(record, copies).await?;
    // The last place where something is missing.
    let mut cut: Option<LogPlace> = None;
    for (number, closed) in chain.into_iter().rev() {
        let copies = copies.get(&number).map(Vec::as_slice).unwrap_or_default();
        let mut ends = Vec::new();
        for copy in copies {
            ends.push(SegmentReader::new(record, copy).end(closed).await?);
        }
        let end = closed.or(ends.iter().copied().max()).unwrap_or(0);
        let whole: Vec<&Copy> = copies.iter().zip(&ends).filter(|(_, at)| **at == end).map(|(copy, _)| copy).collect();
        let Some(first) = whole.first() else {
            cut = Some(LogPlace { segment: number, offset: ends.iter().copied().max().unwrap_or(0) });
            continue;
        };
        let mut reader = SegmentReader::new(record, first);
        let mut offset = 0;
        while offset < end {
            let place = LogPlace { segment: number, offset };
            let Some((taken, bytes)) = reader.record(offset).await? else {
                return Err(damaged(record.name.clone(), place));
            };
            if taken.pages().is_some_and(|pages| pages.end > pages_end) {
                return Err(damaged(record.name.clone(), place));
            }
            match &taken {
                Record::Intent(intent) => {
                    found.intents.insert(place, intent.clone());
                }
                Record::Merged { intent: Some(intent), .. } => {
                    found.intents.remove(intent);
                }
                Record::Over { below } => over_below = over_below.max(*below),
                _ => {}
            }
            diffs.apply(&taken, place);
            offset += bytes as u64;
        }
        let mut disks = Vec::new();
        for copy in whole {
            // Those that a later one closed were synced before it began.
            let synced = match closed {
                Some(_) => Ok(()),
                None => copy.store.segments().sync_segment(number, lease).await,
            };
            match synced {
                Ok(()) => disks.push(copy.disk),
                Err(error) => tracing::warn!(disk = %copy.disk, %error, "a copy of a segment cannot be synced"),
            }
        }
        if disks.is_empty() {
            return Err(damaged(record.name.clone(), LogPlace { segment: number, offset: end }));
        }
        found.last = Some(LogPlace { segment: number, offset: end });
        found.segments.insert(number, Segment { disks, end });
    }
    // What is over may be gone, in any part.
    if let Some(cut) = cut.filter(|cut| cut.segment >= over_below) {
        return Err(damaged(record.name.clone(), cut));
    }
    found.segments.retain(|number, _| *number >= over_below);
    found.intents.retain(|intent, _| intent.segment >= over_below);
    delete_others(copies, lease, &found).await;
    Ok(found)
}

/// The numbers of the segments that count, the last one first, each with its end where a later one says it, and the number
/// below which all are over as far as the last one knew when it began.
async fn chain(record: &VolumeRecord, copies: &Copies) -> Result<(Vec<(u64, Option<u64>)>, u64), VolumeError> {
    let mut chain = Vec::new();
    let mut over_below = 0;
    // One without a begin record was never used; the last that has one names those before it.
    let mut next: Option<(u64, Option<u64>)> = None;
    for (number, copies) in copies.iter().rev() {
        if begin_of(record, copies).await?.is_some() {
            next = Some((*number, None));
            break;
        }
    }
    while let Some((number, end)) = next.take() {
        if !chain.is_empty() && number < over_below {
            break;
        }
        chain.push((number, end));
        let Some(copies) = copies.get(&number) else { break };
        let Some((below, previous)) = begin_of(record, copies).await? else { break };
        over_below = over_below.max(below);
        // Numbers fall, so this ends.
        next = previous.filter(|end| end.segment < number).map(|end| (end.segment, Some(end.offset)));
    }
    Ok((chain, over_below))
}

/// What the first record of a segment says, from the first copy that has it.
async fn begin_of(record: &VolumeRecord, copies: &[Copy]) -> Result<Option<(u64, Option<LogPlace>)>, VolumeError> {
    for copy in copies {
        if let Some((Record::Begin { over_below, previous, .. }, _)) =
            SegmentReader::new(record, copy).record(0).await?
        {
            return Ok(Some((over_below, previous)));
        }
    }
    Ok(None)
}

/// Deletes what is over and what was never used. A copy that is not whole stays until others take its place: it may have all
/// that was flushed.
async fn delete_others(copies: &Copies, lease: Lease, found: &Found) {
    for (number, copies) in copies {
        for copy in copies {
            if found.segments.contains_key(number) {
                continue;
            }
            if let Err(error) = copy.store.segments().delete_segment(*number, lease).await {
                tracing::debug!(number, disk = %copy.disk, %error, "a segment that does not count was left");
            }
        }
    }
}

fn damaged(name: String, at: LogPlace) -> VolumeError {
    VolumeError::LogDamaged { name, segment: at.segment, offset: at.offset }
}

/// Reads the records of one copy of a segment.
struct SegmentReader<'a> {
    name: &'a str,
    copy: &'a Copy,
    page_bytes: u32,
    /// What was read last: from where, and the bytes.
    window: (u64, Bytes),
}

impl<'a> SegmentReader<'a> {
    fn new(record: &'a VolumeRecord, copy: &'a Copy) -> SegmentReader<'a> {
        SegmentReader { name: &record.name, copy, page_bytes: record.page_bytes, window: (0, Bytes::new()) }
    }

    /// Where its row of whole records ends, or where it is said to end if it comes so far.
    async fn end(&mut self, closed: Option<u64>) -> Result<u64, VolumeError> {
        let mut end = 0;
        while closed.is_none_or(|closed| end < closed) {
            let Some((_, bytes)) = self.record(end).await? else { break };
            end += bytes as u64;
        }
        Ok(end)
    }

    /// The record at an offset, if there is one.
    async fn record(&mut self, offset: u64) -> Result<Option<(Record, usize)>, VolumeError> {
        // How long a record is its head says: more is read where a window was too short.
        for bytes in [WINDOW_BYTES, u64::MAX] {
            let Some(window) = self.bytes_from(offset, bytes).await? else { return Ok(None) };
            if let Some(found) = Record::decode(self.copy.info.id, offset, &window, self.page_bytes) {
                return Ok(Some(found));
            }
            if !Record::may_be_longer(&window) {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// Bytes from an offset: what was read before, if that is enough for a record.
    async fn bytes_from(&mut self, offset: u64, bytes: u64) -> Result<Option<Bytes>, VolumeError> {
        let Some(left) = self.copy.info.bytes.checked_sub(offset) else { return Ok(None) };
        let (start, window) = &self.window;
        if let Some(skipped) = offset.checked_sub(*start)
            && bytes == WINDOW_BYTES
            && skipped + (HEAD_BYTES as u64) <= window.len() as u64
        {
            let rest = window.slice(skipped as usize..);
            if !Record::may_be_longer(&rest) {
                return Ok(Some(rest));
            }
        }
        let range = ByteRange { offset, bytes: bytes.min(left) };
        match self.copy.store.segments().read_segment(self.copy.info.id, &[range]).await {
            Ok(mut read) => {
                let Some(window) = read.pop() else { return Ok(None) };
                self.window = (offset, window.clone());
                Ok(Some(window))
            }
            // It is no copy, whatever the others are.
            Err(SegmentError::NotFound { .. } | SegmentError::Damaged { .. }) => Ok(None),
            // It may be one.
            Err(error) => Err(VolumeError::LogUnreadable { name: self.name.to_owned(), error }),
        }
    }
}

const WINDOW_BYTES: u64 = 4 << 20;
const STRIPES_PAGE: usize = 1000;
