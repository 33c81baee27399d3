//! Opens a volume: takes its lease, reads its log again, finishes what was interrupted.
//!
//! ```text
//!  closed --take_lease, fence--> ours --read the log--> known --redo, log anew--> open
//! ```
//!
//! | step | what holds after it | after a crash in it |
//! |---|---|---|
//! | take_lease | no earlier owner changes a record any more | the next opening takes a later lease |
//! | fence | no earlier owner changes a chunk or a segment on a disk that is present | the same |
//! | read the log | the diffs and the merges under way are as the last owner had made durable, or later | nothing was changed |
//! | new segment | what is appended from now on is on as many disks as it should be | a segment more |
//! | redo | every stripe is a codeword: what an intent says is written and synced | written again |
//! | log anew | no diff is in the last segment of before, whose copies may differ | done again |
//!
//! Invariants:
//! 1. Nothing is served before the last step.
//! 2. With more log disks absent than the code tolerates losses, records may be missing: the volume does not open.
//! 3. A record is taken from whichever disk has it whole. A segment that a later one follows must be whole up to where
//!    that one says it ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use claystone_chunk::{ByteRange, ChunkStore, DiskId, Lease, SegmentError, SegmentId, SegmentInfo};
use claystone_env::Env;
use claystone_meta::{Meta, VolumeRecord};
use claystone_stripe::Stripes;

use crate::VolumeError;
use crate::diffs::{Diff, DiffKind, Diffs};
use crate::geometry::{Geometry, Page};
use crate::log::record::{HEAD_BYTES, Intent, LogPlace, Record};
use crate::log::{Log, LogSettings, LogStart, Segment};
use crate::settings::Settings;
use crate::volume::{Parts, Volume};
use crate::volumes::log_fits;

/// A log as it was found.
struct Found {
    segments: BTreeMap<u64, Segment>,
    /// Intents without the record that they were carried out.
    intents: BTreeMap<LogPlace, Intent>,
    /// The greatest number that any segment has.
    last: u64,
}

/// A copy of a segment.
struct Copy {
    disk: DiskId,
    store: Arc<dyn ChunkStore>,
    info: SegmentInfo,
}

pub(crate) async fn open(
    env: &Env,
    meta: Arc<dyn Meta>,
    stripes: Stripes,
    settings: Settings,
    record: &VolumeRecord,
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
    let absent: Vec<DiskId> = record.log_disks.iter().copied().filter(|disk| !present.contains_key(disk)).collect();
    if absent.len() > usize::from(record.code.tolerance()) {
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
    let found = read_log(&record, &present, &mut diffs).await?;
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
    };
    let last = found.segments.keys().next_back().copied();
    let start = LogStart {
        segments: found.segments,
        next: found.last + 1,
        recorded: record.log_disks.iter().copied().collect(),
    };
    let log = Log::start(env, meta.clone(), stores, lease, log_settings, start, diffs.clone()).await?;
    let env = env.clone();
    let volume = Volume::new(Parts { env, meta, stripes, record, geometry, code, settings, diffs, known, log });
    for (at, intent) in &found.intents {
        volume.inner.redo(*at, intent).await?;
    }
    if let Some(last) = last {
        log_anew(&volume, last).await?;
    }
    volume.inner.log.sync().await?;
    volume.inner.log.tend().await?;
    Ok(volume)
}

/// Appends every diff of a segment once more.
async fn log_anew(volume: &Volume, segment: u64) -> Result<(), VolumeError> {
    let inner = &volume.inner;
    let everything = Page(0)..Page(u64::MAX / u64::from(inner.geometry.page_bytes));
    let old: Vec<(Page, Diff)> =
        inner.diffs().range(everything).filter(|(_, diff)| diff.at.segment == segment).collect();
    for (page, diff) in old {
        let record = match diff.kind {
            DiffKind::Zeros => Record::Zero { first: page, pages: 1 },
            DiffKind::Content { crc } => {
                let content = inner.read_log(&[(page, diff)]).await;
                let content = content.map_err(|_| damaged(inner.record.name.clone(), diff.at))?;
                Record::Write { first: page, crcs: vec![crc], content }
            }
        };
        inner.log.append(record).await?;
    }
    Ok(())
}

/// Reads all segments that are not over, oldest first, and applies their records.
async fn read_log(
    record: &VolumeRecord,
    present: &BTreeMap<DiskId, Arc<dyn ChunkStore>>,
    diffs: &mut Diffs,
) -> Result<Found, VolumeError> {
    let mut copies: BTreeMap<u64, Vec<Copy>> = BTreeMap::new();
    for (disk, store) in present {
        match store.segments().segments(record.id).await {
            Ok(infos) => {
                for info in infos {
                    let copy = Copy { disk: *disk, store: store.clone(), info };
                    copies.entry(info.id.number).or_default().push(copy);
                }
            }
            Err(error) => tracing::warn!(%disk, %error, "the segments of a volume cannot be listed here"),
        }
    }
    let last = copies.keys().next_back().copied().unwrap_or(0);
    let mut found = Found { segments: BTreeMap::new(), intents: BTreeMap::new(), last };
    // The last segment whose first record is whole says which are over; one behind it was never used.
    let mut newest = None;
    for (number, copies) in copies.iter().rev() {
        let mut reader = SegmentReader::new(record, *number, copies);
        if let Some((Record::Begin { over_below, previous_end, .. }, _)) = reader.next(0).await {
            newest = Some((*number, over_below, previous_end));
            break;
        }
    }
    let Some((newest, first, _)) = newest else { return Ok(found) };
    let mut over_below = first;
    // The last place where something is missing.
    let mut cut: Option<LogPlace> = None;
    let pages_end = Page(record.bytes.div_ceil(u64::from(record.page_bytes)));
    for number in first..=newest {
        let Some(copies) = copies.get(&number) else {
            cut = Some(LogPlace { segment: number, offset: 0 });
            continue;
        };
        let mut reader = SegmentReader::new(record, number, copies);
        let mut offset = 0;
        let mut last_record = 0;
        while let Some((taken, bytes)) = reader.next(offset).await {
            let place = LogPlace { segment: number, offset };
            match &taken {
                Record::Begin { previous_end, .. } if offset == 0 => {
                    if let Some(before) = found.segments.get(&(number - 1))
                        && before.end < *previous_end
                    {
                        cut = Some(LogPlace { segment: number - 1, offset: before.end });
                    }
                }
                Record::Intent(intent) => {
                    found.intents.insert(place, intent.clone());
                }
                Record::Merged { intent: Some(intent), .. } => {
                    found.intents.remove(intent);
                }
                Record::Over { below } => over_below = over_below.max(*below),
                _ => {}
            }
            if taken.pages().is_some_and(|pages| pages.end > pages_end) {
                return Err(damaged(record.name.clone(), place));
            }
            diffs.apply(&taken, place);
            last_record = offset;
            offset += bytes as u64;
        }
        let disks = reader.whole(last_record).await;
        found.segments.insert(number, Segment { disks, end: offset });
    }
    // What is over may be gone, in any part.
    if let Some(cut) = cut.filter(|cut| cut.segment >= over_below) {
        return Err(damaged(record.name.clone(), cut));
    }
    found.segments.retain(|number, _| *number >= over_below);
    found.intents.retain(|intent, _| intent.segment >= over_below);
    Ok(found)
}

fn damaged(name: String, at: LogPlace) -> VolumeError {
    VolumeError::LogDamaged { name, segment: at.segment, offset: at.offset }
}

/// Reads the records of one segment from its copies.
struct SegmentReader<'a> {
    id: SegmentId,
    page_bytes: u32,
    copies: &'a [Copy],
    /// Of each copy what was read last: from where, and the bytes.
    windows: Vec<(u64, Bytes)>,
}

impl<'a> SegmentReader<'a> {
    fn new(record: &VolumeRecord, number: u64, copies: &'a [Copy]) -> SegmentReader<'a> {
        let id = SegmentId { owner: record.id, number };
        SegmentReader { id, page_bytes: record.page_bytes, copies, windows: vec![(0, Bytes::new()); copies.len()] }
    }

    /// The record at an offset, from the first copy that has it whole.
    async fn next(&mut self, offset: u64) -> Option<(Record, usize)> {
        for copy in 0..self.copies.len() {
            if let Some(found) = self.record(copy, offset).await {
                return Some(found);
            }
        }
        None
    }

    /// The disks whose copy has this record, and so all before it: appends come in order.
    async fn whole(&mut self, last: u64) -> Vec<DiskId> {
        let mut disks = Vec::new();
        for copy in 0..self.copies.len() {
            if self.record(copy, last).await.is_some() {
                disks.push(self.copies[copy].disk);
            }
        }
        disks
    }

    async fn record(&mut self, copy: usize, offset: u64) -> Option<(Record, usize)> {
        // The longest record is known only from its head: read more where a window was too short.
        for bytes in [WINDOW_BYTES, u64::MAX] {
            let window = self.window(copy, offset, bytes).await?;
            if let Some(found) = Record::decode(self.id, offset, &window, self.page_bytes) {
                return Some(found);
            }
            if !Record::may_be_longer(&window) {
                return None;
            }
        }
        None
    }

    /// Bytes of a copy from an offset: what was read before if that is enough for a head.
    async fn window(&mut self, copy: usize, offset: u64, bytes: u64) -> Option<Bytes> {
        let end = self.copies[copy].info.bytes;
        let left = end.checked_sub(offset)?;
        let (start, window) = &self.windows[copy];
        if let Some(skipped) = offset.checked_sub(*start)
            && bytes == WINDOW_BYTES
            && skipped + (HEAD_BYTES as u64) <= window.len() as u64
        {
            let rest = window.slice(skipped as usize..);
            // Enough for the record, or it is no record.
            if !Record::may_be_longer(&rest) {
                return Some(rest);
            }
        }
        let range = ByteRange { offset, bytes: bytes.min(left) };
        match self.copies[copy].store.segments().read_segment(self.id, &[range]).await {
            Ok(mut read) => {
                let window = read.pop()?;
                self.windows[copy] = (offset, window.clone());
                Some(window)
            }
            Err(error) => {
                tracing::warn!(segment = %self.id, disk = %self.copies[copy].disk, %error, "a segment cannot be read");
                None
            }
        }
    }
}

const WINDOW_BYTES: u64 = 4 << 20;
const STRIPES_PAGE: usize = 1000;
