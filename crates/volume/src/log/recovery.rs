//! A log read again after its owner ended, and made whole.
//!
//! ```text
//!  every disk fenced and listed --walk from the last segment back--> chain --read, oldest first--> records in effect
//!      --copies that end early are continued from the others, all synced--> every copy that counts is whole and durable
//! ```
//!
//! Invariants:
//! 1. A record counts if any copy has it: what one disk cannot read, or never got, another one says.
//! 2. No byte that a record was read from is given up before [`Recovery::delete_over`], when a new segment has closed the
//!    log: until then the next recovery finds what this one found, or more.
//! 3. Nothing is where the log ends only if a copy says so that could be read there, and the log's disks that were not heard
//!    are fewer than a segment has copies, or on fewer nodes than a segment is.
//! 4. Every wait for a disk ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use claystone_chunk::{ByteRange, ChunkStore, DiskId, Lease, SegmentError, SegmentId, SegmentInfo};
use claystone_meta::VolumeRecord;
use futures::future::join_all;

use super::record::{HEAD_BYTES_MAX, Intent, LogPlace, Record};
use super::term_of;
use super::view::{Segment, TimedStores};
use crate::VolumeError;
use crate::diffs::Diffs;
use crate::geometry::Page;

/// A log whose disks were fenced, and what they have of it.
pub struct Recovery<'a> {
    record: &'a VolumeRecord,
    lease: Lease,
    stores: TimedStores,
    copies: BTreeMap<u64, Vec<Copy>>,
    /// Copies of segments of before the volume was reverted.
    reverted: Vec<Copy>,
    /// Disks of the log that are not there, or do not say what they have.
    absent: BTreeSet<DiskId>,
}

/// A log as it was found.
pub struct Recovered {
    /// Segments that are not over, and the disks that have all of each, synced.
    pub segments: BTreeMap<u64, Segment>,
    /// Intents without the record that they were carried out.
    pub intents: BTreeMap<LogPlace, Intent>,
    /// The last segment, and where it ends.
    pub last: Option<LogPlace>,
    /// Disks that did not take what their copies lack.
    pub failed: BTreeSet<DiskId>,
}

/// A copy of a segment.
struct Copy {
    disk: DiskId,
    store: Arc<dyn ChunkStore>,
    info: SegmentInfo,
}

/// What the first record of a segment says.
struct Begin {
    over_below: u64,
    previous: Option<LogPlace>,
    unsynced_from: Option<u64>,
}

/// A segment that was read.
struct Walked {
    /// Where its records end.
    end: u64,
    /// Up to where each copy has them by itself; `None`: it did not answer.
    ends: Vec<Option<u64>>,
    records: usize,
    /// Disks that could not be read at the end.
    unheard: Vec<DiskId>,
}

impl<'a> Recovery<'a> {
    /// Fences the lease on every disk and asks each for its segments.
    ///
    /// # Errors
    /// The lease is over; too many disks with the log are absent.
    pub async fn begin(
        record: &'a VolumeRecord,
        lease: Lease,
        stores: TimedStores,
    ) -> Result<Recovery<'a>, VolumeError> {
        let asked = stores.stores.members().into_iter().filter_map(|member| {
            let disk = member.record.id;
            let store = stores.stores.readable(disk)?;
            let stores = &stores;
            Some(async move {
                let listed = async {
                    store.segments().fence(lease).await?;
                    store.segments().segments(record.id).await
                };
                let listed = stores.in_time(disk, listed).await;
                (disk, store, listed)
            })
        });
        let mut copies: BTreeMap<u64, Vec<Copy>> = BTreeMap::new();
        let mut reverted = Vec::new();
        let mut absent: BTreeSet<DiskId> = record.log.disks.keys().copied().collect();
        for (disk, store, listed) in join_all(asked).await {
            match listed {
                Ok(infos) => {
                    absent.remove(&disk);
                    for info in infos {
                        let number = info.id.number;
                        let counts = term_of(number) >= record.log_from;
                        let group = if counts { copies.entry(number).or_default() } else { &mut reverted };
                        group.push(Copy { disk, store: store.clone(), info });
                    }
                }
                Err(SegmentError::Fenced { .. }) => {
                    return Err(VolumeError::LeaseEnded { name: record.name.clone() });
                }
                Err(error) => tracing::warn!(%disk, %error, "a disk takes no part in opening a volume"),
            }
        }
        let recovery = Recovery { record, lease, stores, copies, reverted, absent };
        recovery.heard_but(&[])?;
        Ok(recovery)
    }

    /// Whether enough disks were heard, if these were not either.
    fn heard_but(&self, unheard: &[DiskId]) -> Result<(), VolumeError> {
        let log = &self.record.log;
        let unheard = unheard.iter().filter(|disk| log.disks.contains_key(disk));
        let absent: BTreeSet<DiskId> = self.absent.iter().chain(unheard).copied().collect();
        if !log.may_be_all_on(&absent) {
            return Ok(());
        }
        Err(VolumeError::LogAbsent { name: self.record.name.clone(), absent: absent.into_iter().collect() })
    }

    /// Reads all segments that are not over, oldest first, gives their records to `diffs`, and makes their copies whole.
    ///
    /// # Errors
    /// Something is missing, damaged on every disk, or on disks that cannot be heard.
    pub async fn read(&self, diffs: &mut Diffs) -> Result<Recovered, VolumeError> {
        let pages_end = Page(self.record.bytes.div_ceil(u64::from(self.record.page_bytes)));
        let (chain, mut over_below) = self.chain().await?;
        let mut found =
            Recovered { segments: BTreeMap::new(), intents: BTreeMap::new(), last: None, failed: BTreeSet::new() };
        let mut walks: BTreeMap<u64, Walked> = BTreeMap::new();
        // The last place where something is missing.
        let mut cut: Option<LogPlace> = None;
        for (number, closed) in chain.into_iter().rev() {
            let mut beyond = None;
            let take = |record: Record, place: LogPlace, bytes: usize| {
                if record.pages().is_some_and(|pages| pages.end > pages_end) {
                    beyond.get_or_insert(place);
                    return;
                }
                match &record {
                    Record::Intent(intent) => drop(found.intents.insert(place, intent.clone())),
                    Record::Merged { intent: Some(intent), .. } => drop(found.intents.remove(intent)),
                    Record::Over { below } => over_below = over_below.max(*below),
                    _ => {}
                }
                diffs.apply_read(&record, place, bytes);
            };
            let walked = self.walk(number, closed, take).await;
            if let Some(place) = beyond {
                return Err(self.damaged(place));
            }
            let end = LogPlace { segment: number, offset: walked.end };
            match closed {
                Some(closed) if walked.end != closed => cut = Some(end),
                Some(_) => {}
                None => self.heard_but(&walked.unheard)?,
            }
            // A last one with nothing but its first record is as good as none: what comes after it names the one before it.
            if cut != Some(end) && (closed.is_some() || walked.records > 1) {
                found.last = Some(end);
                walks.insert(number, walked);
            }
        }
        // What is over may be gone, in any part.
        if let Some(cut) = cut.filter(|cut| cut.segment >= over_below) {
            return Err(self.damaged(cut));
        }
        found.intents.retain(|intent, _| intent.segment >= over_below);
        for (number, walked) in walks.into_iter().filter(|(number, _)| *number >= over_below) {
            let disks = self.make_whole(number, &walked, &mut found.failed).await;
            if disks.is_empty() {
                return Err(self.damaged(LogPlace { segment: number, offset: walked.end }));
            }
            found.segments.insert(number, Segment { disks, end: walked.end });
        }
        Ok(found)
    }

    /// Deletes what is over and what was never used; for when another segment has closed the log.
    pub async fn delete_over(&self, kept: &BTreeMap<u64, Segment>) {
        let over = self.copies.iter().filter(|(number, _)| !kept.contains_key(number));
        for copy in over.flat_map(|(_, copies)| copies).chain(&self.reverted) {
            let deleted = copy.store.segments().delete_segment(copy.info.id.number, self.lease);
            if let Err(error) = self.stores.in_time(copy.disk, deleted).await {
                tracing::debug!(segment = %copy.info.id, disk = %copy.disk, %error, "a segment that does not count was left");
            }
        }
    }

    fn damaged(&self, at: LogPlace) -> VolumeError {
        VolumeError::LogDamaged { name: self.record.name.clone(), segment: at.segment, offset: at.offset }
    }

    fn copies(&self, number: u64) -> &[Copy] {
        self.copies.get(&number).map(Vec::as_slice).unwrap_or_default()
    }

    /// The numbers of the segments that count, the last one first, each with its end where a later one says it, and the
    /// number below which all are over as far as the last one knew when it began.
    async fn chain(&self) -> Result<(Vec<(u64, Option<u64>)>, u64), VolumeError> {
        let mut chain = Vec::new();
        let mut over_below = 0;
        // One without a begin record was never used; the last that has one names those before it.
        let mut next: Option<(u64, Option<u64>)> = None;
        let mut synced_below = 0;
        for number in self.copies.keys().rev() {
            let Some(begin) = self.begin_of(*number).await? else { continue };
            synced_below = synced_below.max(self.says_synced_below(*number, &begin).await?);
            if self.has_all_before(&begin, synced_below).await? {
                next = Some((*number, None));
                break;
            }
        }
        while let Some((number, end)) = next.take() {
            if !chain.is_empty() && number < over_below {
                break;
            }
            chain.push((number, end));
            let Some(begin) = self.begin_of(number).await? else { break };
            over_below = over_below.max(begin.over_below);
            // Numbers fall, so this ends.
            next = begin.previous.filter(|end| end.segment < number).map(|end| (end.segment, Some(end.offset)));
        }
        Ok((chain, over_below))
    }

    /// The number below which segments are synced, as a segment says.
    async fn says_synced_below(&self, number: u64, begin: &Begin) -> Result<u64, VolumeError> {
        let Some(mut synced_below) = begin.unsynced_from else { return Ok(number) };
        let take = |record: Record, _, _| {
            if let Record::Synced { below } = record {
                synced_below = synced_below.max(below);
            }
        };
        let walked = self.walk(number, None, take).await;
        self.heard_but(&walked.unheard)?;
        Ok(synced_below)
    }

    /// Whether the segments before one are whole, of those that are not known to be synced: if not, nothing behind what is
    /// missing was flushed, and the one is as if it had never been.
    async fn has_all_before(&self, begin: &Begin, synced_below: u64) -> Result<bool, VolumeError> {
        let mut previous = begin.previous;
        while let Some(end) = previous.filter(|end| end.segment >= synced_below.max(begin.over_below)) {
            if self.walk(end.segment, Some(end.offset), |_, _, _| {}).await.end != end.offset {
                return Ok(false);
            }
            let before = self.begin_of(end.segment).await?.and_then(|begin| begin.previous);
            previous = before.filter(|before| before.segment < end.segment);
        }
        Ok(true)
    }

    /// What the first record of a segment says, from the first copy that has it.
    async fn begin_of(&self, number: u64) -> Result<Option<Begin>, VolumeError> {
        let mut unheard = Vec::new();
        let mut is_heard = self.copies(number).is_empty();
        for copy in self.copies(number) {
            match CopyReader::new(self, copy).look(0).await {
                Look::Record(Record::Begin { over_below, previous, unsynced_from, .. }, _) => {
                    return Ok(Some(Begin { over_below, previous, unsynced_from }));
                }
                Look::Record(..) | Look::Nothing => is_heard = true,
                Look::Unread => unheard.push(copy.disk),
            }
        }
        if !is_heard {
            return Err(self.damaged(LogPlace { segment: number, offset: 0 }));
        }
        self.heard_but(&unheard)?;
        Ok(None)
    }

    /// Reads the records of a segment up to where it is said to end, or where no copy has one.
    async fn walk(&self, number: u64, closed: Option<u64>, mut take: impl FnMut(Record, LogPlace, usize)) -> Walked {
        let mut readers: Vec<_> = self.copies(number).iter().map(|copy| CopyReader::new(self, copy)).collect();
        let (mut end, mut records, mut unheard) = (0, 0, Vec::new());
        while closed.is_none_or(|closed| end < closed) {
            let mut found = None;
            unheard.clear();
            for reader in &mut readers {
                match reader.look(end).await {
                    Look::Record(record, bytes) => {
                        if reader.end == end {
                            reader.end += bytes.len() as u64;
                        }
                        found.get_or_insert((record, bytes.len()));
                    }
                    Look::Nothing => {}
                    Look::Unread => unheard.push(reader.copy.disk),
                }
            }
            let Some((record, bytes)) = found else { break };
            take(record, LogPlace { segment: number, offset: end }, bytes);
            end += bytes as u64;
            records += 1;
        }
        let ends = readers.iter().map(|reader| (!reader.is_gone).then_some(reader.end)).collect();
        Walked { end, ends, records, unheard }
    }

    /// Continues the copies that end early, and syncs all. Returns the disks that have the whole segment then.
    async fn make_whole(&self, number: u64, walked: &Walked, failed: &mut BTreeSet<DiskId>) -> Vec<DiskId> {
        let heard = self.copies(number).iter().zip(&walked.ends).filter_map(|(copy, end)| Some((copy, (*end)?)));
        let made = join_all(heard.map(|(copy, end)| async move {
            let made = if end < walked.end {
                self.continue_copy(number, copy, end, walked.end).await
            } else {
                let synced = copy.store.segments().sync_segment(number, self.lease);
                self.stores.in_time(copy.disk, synced).await
            };
            (copy.disk, made)
        }));
        let mut disks = Vec::new();
        for (disk, made) in made.await {
            match made {
                Ok(()) => disks.push(disk),
                Err(error) => {
                    tracing::warn!(%disk, number, %error, "a copy of a segment cannot be made whole");
                    failed.insert(disk);
                }
            }
        }
        disks
    }

    /// Writes behind a copy's end what the others have, syncs it and reads it back.
    async fn continue_copy(&self, number: u64, copy: &Copy, from: u64, end: u64) -> Result<(), SegmentError> {
        let id = copy.info.id;
        let lacks = |reason: &str| SegmentError::Damaged { id, reason: reason.to_owned() };
        let segments = copy.store.segments();
        self.stores.in_time(copy.disk, segments.reopen_segment(number, self.lease, from)).await?;
        let mut readers: Vec<_> = self.copies(number).iter().map(|copy| CopyReader::new(self, copy)).collect();
        let (mut at, mut batch) = (from, BytesMut::new());
        while at < end {
            let offset = at + batch.len() as u64;
            if offset < end {
                let mut found = None;
                for reader in &mut readers {
                    if let Look::Record(_, bytes) = reader.look(offset).await {
                        found = Some(bytes);
                        break;
                    }
                }
                // As it is there: written anew it could be another version's, and longer or shorter.
                let found = found.ok_or_else(|| lacks("a record that was read before cannot be read"))?;
                batch.extend_from_slice(&found);
            }
            if batch.len() >= CONTINUED_BYTES || at + batch.len() as u64 >= end {
                let bytes = batch.len() as u64;
                let appended = segments.append(number, self.lease, at, batch.split().freeze());
                self.stores.in_time(copy.disk, appended).await?;
                at += bytes;
            }
        }
        self.stores.in_time(copy.disk, segments.sync_segment(number, self.lease)).await?;
        let mut reader = CopyReader::new(self, copy);
        while reader.end < end {
            let Look::Record(_, bytes) = reader.look(reader.end).await else {
                return Err(lacks("what was written to it does not come back"));
            };
            reader.end += bytes.len() as u64;
        }
        Ok(())
    }
}

/// What a copy has at an offset.
enum Look {
    /// A record, and its bytes.
    Record(Record, Bytes),
    /// It was read, and there is none.
    Nothing,
    /// It cannot be read there.
    Unread,
}

/// Reads the records of one copy of a segment.
struct CopyReader<'a> {
    recovery: &'a Recovery<'a>,
    copy: &'a Copy,
    /// Up to here it has all records: for who walks it.
    end: u64,
    /// What was read last: from where, and the bytes.
    window: (u64, Bytes),
    /// It did not answer: it is not asked again.
    is_gone: bool,
}

impl<'a> CopyReader<'a> {
    fn new(recovery: &'a Recovery<'a>, copy: &'a Copy) -> CopyReader<'a> {
        CopyReader { recovery, copy, end: 0, window: (0, Bytes::new()), is_gone: false }
    }

    async fn look(&mut self, offset: u64) -> Look {
        if let Some(skipped) = offset.checked_sub(self.window.0)
            && skipped + HEAD_BYTES_MAX as u64 <= self.window.1.len() as u64
        {
            let rest = self.window.1.slice(skipped as usize..);
            if Record::lengths_of(&rest).is_none_or(|(_, bytes)| bytes <= rest.len() as u64) {
                return self.decode(offset, &rest);
            }
        }
        let Some(left) = self.copy.info.bytes.checked_sub(offset) else { return Look::Nothing };
        // Less is read at once where a sector that cannot be read is near.
        for bytes in WINDOWS {
            let window = match self.read(offset, bytes.min(left)).await {
                Ok(window) => window,
                Err(Unread::Damaged) => continue,
                Err(Unread::Gone) => return Look::Unread,
                Err(Unread::Absent) => return Look::Nothing,
            };
            self.window = (offset, window.clone());
            return self.complete(offset, window, left).await;
        }
        Look::Unread
    }

    /// What there is at `offset`, where `left` bytes are left, `begun` of which were read. What a head says of a record's length
    /// counts only where its checksum holds: behind the end is what the file had before, and whether that can be read does
    /// not matter.
    async fn complete(&mut self, offset: u64, begun: Bytes, left: u64) -> Look {
        let (checked_bytes, bytes) = match Record::lengths_of(&begun) {
            Some((checked_bytes, bytes)) if bytes > begun.len() as u64 && bytes <= left => (checked_bytes, bytes),
            _ => return self.decode(offset, &begun),
        };
        let mut found = begun;
        for bytes in [checked_bytes, bytes] {
            if bytes > found.len() as u64 {
                found = match self.read(offset, bytes).await {
                    Ok(found) => found,
                    Err(Unread::Absent) => return Look::Nothing,
                    Err(Unread::Damaged | Unread::Gone) => return Look::Unread,
                };
            }
            if !Record::has_head(self.copy.info.id, offset, &found) {
                return Look::Nothing;
            }
        }
        self.decode(offset, &found)
    }

    fn decode(&self, offset: u64, bytes: &Bytes) -> Look {
        let id: SegmentId = self.copy.info.id;
        match Record::decode(id, offset, bytes, self.recovery.record.page_bytes) {
            Some((record, length)) => Look::Record(record, bytes.slice(..length)),
            None => Look::Nothing,
        }
    }

    async fn read(&mut self, offset: u64, bytes: u64) -> Result<Bytes, Unread> {
        if self.is_gone {
            return Err(Unread::Gone);
        }
        let ranges = [ByteRange { offset, bytes }];
        let read = self.copy.store.segments().read_segment(self.copy.info.id, &ranges);
        match self.recovery.stores.in_time(self.copy.disk, read).await {
            Ok(mut read) => read.pop().ok_or(Unread::Damaged),
            Err(SegmentError::Damaged { .. }) => Err(Unread::Damaged),
            Err(SegmentError::NotFound { .. } | SegmentError::OutOfRange { .. }) => Err(Unread::Absent),
            Err(error) => {
                tracing::warn!(disk = %self.copy.disk, %error, "a copy of a log cannot be read now");
                self.is_gone = true;
                Err(Unread::Gone)
            }
        }
    }
}

/// Why a copy gives no bytes.
enum Unread {
    Damaged,
    Absent,
    Gone,
}

const WINDOWS: [u64; 4] = [4 << 20, 64 << 10, 4096, HEAD_BYTES_MAX as u64];
const CONTINUED_BYTES: usize = 1 << 20;
