//! Appends under way: what waits is appended in short batches, several at once, and takes effect in order.
//!
//! ```text
//!  queue --append_queued--> under way, on every disk of the segment --appended, settle--> in effect, told
//! ```
//!
//! Invariants:
//! 1. A byte of a segment is appended once, the same on every disk: a copy may miss what lies between two records, and
//!    never has another one there.
//! 2. An append takes effect, and is told, when it and all before it have ended on every disk that has not failed, nor is late.
//! 3. When a disk failed, what is under way comes to its end first, and the others are recorded before it is told.
//! 4. No more than [`APPENDS_MAX`] are under way, all to one segment.
//! 5. On full disks what needs more room is refused before what makes room: each kind of record leaves others their part of a
//!    segment, and the end of an intent always finds room.
//! 6. What is acknowledged (writes, zeros) and what a merge is about to write (intents) goes into no segment that has fewer copies
//!    because disks are full. What ends something is no worse there than nowhere.

use bytes::{Bytes, BytesMut};
use claystone_chunk::{DiskId, SegmentError};
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesOrdered, StreamExt};

use super::restoring::Restoring;
use super::segments::Next;
use super::{Done, Writer, answer};
use crate::gate::Pass;
use crate::log::LogFailure;
use crate::log::record::{LogPlace, Record};

/// Who waits for a record to be in effect.
#[derive(Debug)]
pub(in crate::log) struct Waiting {
    pub(in crate::log) done: Done<Option<LogPlace>>,
    /// Until it is, nobody reads its pages to write a part of them, also when its caller is gone.
    pub(in crate::log) _pass: Option<Pass>,
}

impl Waiting {
    fn answer(self, result: Result<Option<LogPlace>, LogFailure>) {
        answer(self.done, result);
    }
}

/// How an append went, by disk.
pub(super) type Outcome = Vec<(DiskId, Result<(), SegmentError>)>;

/// An append under way.
pub(super) type Append = BoxFuture<'static, Outcome>;

/// Records that are appended as one.
#[derive(Default)]
pub(super) struct Batch {
    records: Vec<(Record, LogPlace, Waiting)>,
    /// Where it ends in its segment.
    end: u64,
}

impl Writer {
    /// Whether more can be under way.
    pub(super) fn takes_more(&self) -> bool {
        self.queue.is_empty() && self.under_way.len() < APPENDS_MAX
    }

    /// Whether there are records to come into effect yet that nobody waits for any more. A flush does: what its caller has left may
    /// come until a flush returns, and not later.
    pub(super) fn has_left(&self) -> bool {
        let launched = self.batches.iter().flat_map(|batch| &batch.records).map(|(_, _, waiting)| waiting);
        launched.chain(self.queue.iter().map(|(_, waiting)| waiting)).any(|waiting| waiting.done.is_closed())
    }

    /// Appends what waits, as much as may be under way.
    pub(super) async fn append_queued(&mut self) -> Result<(), LogFailure> {
        self.tell_synced();
        while self.under_way.len() < APPENDS_MAX && !self.queue.is_empty() {
            self.append_some().await?;
        }
        Ok(())
    }

    /// Appends the first of what waits, in a new segment if this one is not for it. Where too few disks have room for one it is refused.
    async fn append_some(&mut self) -> Result<(), LogFailure> {
        let mut batch = Batch::default();
        let mut content = BytesMut::new();
        while let Some((record, _)) = self.queue.front() {
            let end = content.len() as u64 + record.bytes() as u64;
            if !batch.records.is_empty() && end > APPEND_BYTES {
                break;
            }
            let needed = end + self.left_by(record);
            let is_write = matches!(record, Record::Write { .. });
            let is_counted_on = is_write || matches!(record, Record::Zero { .. } | Record::Intent(_));
            let is_short = is_counted_on && self.misses_copies_for_room();
            if needed > self.room - self.next || is_short || (is_write && self.is_for_room) {
                if !batch.records.is_empty() {
                    break;
                }
                // Who is refused, and goes on trying, may be all there is that would find room.
                self.forget_failures();
                // What merging needs to make room is left to it.
                let has_room = !is_write || self.has_room_for_writes();
                let is_in_another = has_room && self.go_on_in_another(needed).await?;
                if is_in_another && !(is_counted_on && self.misses_copies_for_room()) {
                    continue;
                }
                if let Some((_, waiting)) = self.queue.pop_front() {
                    waiting.answer(Ok(None));
                }
                continue;
            }
            let Some((record, waiting)) = self.queue.pop_front() else { break };
            match record {
                Record::Intent(_) => self.intents += 1,
                Record::Merged { intent: Some(_), .. } => self.intents = self.intents.saturating_sub(1),
                _ => {}
            }
            let offset = self.next + content.len() as u64;
            record.encode(self.segment(), offset, &mut content);
            batch.records.push((record, LogPlace { segment: self.number, offset }, waiting));
        }
        if !batch.records.is_empty() {
            self.launch(batch, content.freeze());
        }
        Ok(())
    }

    /// Bytes of the segment that a record leaves to others, so that they find room where disks are full: discards, then what
    /// releases diffs, then what ends segments, and always the ends of intents and the records that segments before are synced.
    fn left_by(&self, record: &Record) -> u64 {
        let (others, ends) = match record {
            Record::Write { .. } => (3, self.intents),
            Record::Intent(_) => (3, self.intents + 1),
            Record::Zero { .. } => (2, self.intents),
            Record::Merged { intent: Some(_), diffs } if diffs.is_empty() => return 0,
            Record::Merged { .. } | Record::Over { below: 0 } => (1, self.intents),
            Record::Begin { .. } | Record::Over { .. } | Record::Synced { .. } => (0, self.intents),
        };
        others * LEFT_BYTES + ends * INTENT_END_BYTES + SYNCED_BYTES
    }

    /// Begins a segment for a record, and to copy those that miss copies if a disk was lost. False: too few disks have room for one.
    async fn go_on_in_another(&mut self, needed_bytes: u64) -> Result<bool, LogFailure> {
        let begun = self.begin_segment().await?;
        if begun.lost {
            self.restore().await?;
        }
        assert!(!begun.is_new || needed_bytes <= self.room - self.next, "a record fits a segment");
        Ok(begun.is_new)
    }

    /// Appends bytes on every disk of the segment.
    pub(super) fn launch(&mut self, batch: Batch, content: Bytes) {
        let (number, lease, offset) = (self.number, self.lease, self.next);
        self.next += content.len() as u64;
        let asked = self.homes.iter().map(|(&disk, home)| {
            let (stores, home, content) = (self.stores.clone(), self.still_there(disk, home), content.clone());
            let append = async move {
                let append = async { home?.segments().append(number, lease, offset, content).await };
                stores.in_time(disk, append).await
            };
            (disk, append.boxed())
        });
        let append = self.all_but_late(asked.collect());
        self.under_way.push_back(append);
        self.batches.push_back(Batch { end: self.next, ..batch });
    }

    /// The oldest append under way has ended.
    pub(super) async fn appended(&mut self, outcome: Outcome) -> Result<(), LogFailure> {
        if !self.lose(outcome)? {
            self.take_effect(1);
            return Ok(());
        }
        self.settle_after(1, true).await?;
        self.begin_segment().await?;
        self.restore().await
    }

    /// Waits until nothing is under way. Whether a disk was lost.
    pub(super) async fn settle(&mut self) -> Result<bool, LogFailure> {
        self.settle_after(0, false).await
    }

    async fn settle_after(&mut self, ended: usize, lost: bool) -> Result<bool, LogFailure> {
        let (mut ended, mut lost) = (ended, lost);
        while let Some(outcome) = self.under_way.next().await {
            lost |= self.lose(outcome)?;
            ended += 1;
        }
        if lost {
            // Before anybody is told that this is on more disks than it is.
            self.record(&[]).await?;
        }
        self.take_effect(ended);
        Ok(lost)
    }

    /// The oldest batches are on every disk of the segment: the diffs know them from now on.
    fn take_effect(&mut self, batches: usize) {
        for batch in self.batches.drain(..batches) {
            self.habit.in_effect();
            self.unsynced_bytes += batch.end - self.end;
            self.end = batch.end;
            if let Some(segment) = self.view.segments().get_mut(&self.number) {
                segment.end = self.end;
            }
            {
                let mut diffs = self.diffs.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                batch.records.iter().for_each(|(record, place, _)| diffs.apply(record, *place));
            }
            for (_, place, waiting) in batch.records {
                waiting.answer(Ok(Some(place)));
            }
        }
        self.ended.in_effect(self.end);
    }

    /// Tells everybody who waits that the log takes nothing more. Whether what was under way is there is unknown.
    pub(super) fn refuse(&mut self, failure: &LogFailure) {
        self.under_way = FuturesOrdered::new();
        self.next_made = Next::default();
        self.restoring = Restoring::default();
        let launched = self.batches.drain(..).flat_map(|batch| batch.records).map(|(_, _, waiting)| waiting);
        let queued = self.queue.drain(..).map(|(_, waiting)| waiting);
        launched.chain(queued).for_each(|waiting| waiting.answer(Err(failure.clone())));
    }
}

/// Appends under way at once.
pub(super) const APPENDS_MAX: usize = 8;
/// Records are put together up to here: a network carries an append while disks take those before it.
const APPEND_BYTES: u64 = 32 << 10;
/// What a kind of record leaves to the next one.
const LEFT_BYTES: u64 = 64 << 10;
/// A record that ends an intent and releases nothing is no longer.
const INTENT_END_BYTES: u64 = 64;
/// Segments before this one are synced by two syncs: that under way when it begins, and the next. Each has a record, no longer than half of this.
const SYNCED_BYTES: u64 = 64;
