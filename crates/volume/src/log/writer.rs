//! The task that appends to a log: which disks its segments are on, and what is done when one fails.

mod upkeep;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use claystone_chunk::{ChunkStore, DiskId, Lease, SegmentError, SegmentId};
use claystone_env::{Env, Moment};
use claystone_meta::Meta;
use claystone_stripe::{Candidate, Stores, place};
use futures::future::{BoxFuture, Either, FutureExt, join_all, select};
use tokio::sync::{mpsc, oneshot};

use super::record::{LogPlace, Record};
use super::view::{LogView, Segment, TimedStores};
use super::{LogFailure, LogSettings, LogStart, NUMBER_BITS};
use crate::diffs::Diffs;

/// What the task is asked for.
#[derive(Debug)]
pub(super) enum Request {
    /// A record; where there is no room for one that may wait, none is appended.
    Append(Record, Done<Option<LogPlace>>),
    Sync(Done<()>),
    Tend(Done<()>),
}

/// Where the answer goes.
pub(super) type Done<T> = oneshot::Sender<Result<T, LogFailure>>;

/// What appends.
pub(super) struct Writer {
    env: Env,
    meta: Arc<dyn Meta>,
    stores: TimedStores,
    lease: Lease,
    settings: LogSettings,
    view: LogView,
    /// The disks and the fewest copies, as the volume's record says.
    recorded: (BTreeSet<DiskId>, u16),
    /// Nothing is served yet, so what is recorded stays true of what was found.
    is_opening: bool,
    /// Disks that failed an append or a sync, or refused a segment, and when.
    failed: BTreeMap<DiskId, Moment>,
    /// The segment that is appended to, how long it may become, and where it ends.
    number: u64,
    room: u64,
    end: u64,
    /// Its disks, and the very stores that took what it has: one that was opened in a store's place since has lost what was
    /// not synced, and does not know it.
    homes: BTreeMap<DiskId, Arc<dyn ChunkStore>>,
    /// Whether it has records that no sync has covered.
    is_unsynced: bool,
    /// The segment before it, and where that ended.
    previous: Option<LogPlace>,
    diffs: Arc<Mutex<Diffs>>,
}

/// A sync under way: on which disks, and how it went.
type Syncing = BoxFuture<'static, Vec<(DiskId, Result<(), SegmentError>)>>;

/// Takes requests until nobody can make any.
pub(super) async fn run(mut writer: Writer, mut requests: mpsc::Receiver<Request>) {
    let mut failure: Option<LogFailure> = None;
    let mut syncing: Option<(Syncing, Vec<Done<()>>)> = None;
    let mut sync_wanted: Vec<Done<()>> = Vec::new();
    loop {
        if let Some(failure) = &failure {
            sync_wanted.drain(..).for_each(|done| answer(done, Err(failure.clone())));
        } else if syncing.is_none() && !sync_wanted.is_empty() {
            syncing = Some((writer.sync(), std::mem::take(&mut sync_wanted)));
        }
        let next = match &mut syncing {
            Some((sync, _)) => match select(sync, Box::pin(requests.recv())).await {
                Either::Left((outcome, _)) => Either::Left(outcome),
                Either::Right((request, _)) => Either::Right(request),
            },
            None => Either::Right(requests.recv().await),
        };
        let first = match next {
            Either::Left(outcome) => {
                let (_, waiting) = syncing.take().expect("it has just ended");
                let result = writer.synced(outcome).await;
                remember(&mut failure, &result);
                waiting.into_iter().for_each(|done| answer(done, result.clone()));
                continue;
            }
            Either::Right(None) => return,
            Either::Right(Some(first)) => first,
        };
        let mut appends = Vec::new();
        let mut tends = Vec::new();
        let mut batch_bytes = 0;
        let mut request = Some(first);
        while let Some(taken) = request.take() {
            match taken {
                Request::Append(record, done) => {
                    batch_bytes += record.bytes();
                    appends.push((record, done));
                }
                Request::Sync(done) => sync_wanted.push(done),
                Request::Tend(done) => tends.push(done),
            }
            if batch_bytes < BATCH_BYTES_MAX {
                request = requests.try_recv().ok();
            }
        }
        if let Some(failure) = &failure {
            appends.into_iter().for_each(|(_, done)| answer(done, Err(failure.clone())));
            tends.into_iter().for_each(|done| answer(done, Err(failure.clone())));
            continue;
        }
        let (records, waiting): (Vec<Record>, Vec<Done<Option<LogPlace>>>) = appends.into_iter().unzip();
        let appended = writer.append(&records).await;
        remember(&mut failure, &appended);
        match appended {
            Ok(places) => places.into_iter().zip(waiting).for_each(|(place, done)| answer(done, Ok(place))),
            Err(failure) => waiting.into_iter().for_each(|done| answer(done, Err(failure.clone()))),
        }
        for done in tends {
            let tended = writer.tend().await;
            remember(&mut failure, &tended);
            answer(done, tended);
        }
    }
}

fn answer<T>(done: Done<T>, result: Result<T, LogFailure>) {
    // Whoever asked may have gone away.
    let _ = done.send(result);
}

fn remember<T>(failure: &mut Option<LogFailure>, result: &Result<T, LogFailure>) {
    if let (None, Err(error)) = (&failure, result) {
        tracing::error!(%error, "a volume's log failed; the volume must be opened anew");
        *failure = Some(error.clone());
    }
}

impl Writer {
    /// The log as readers know it.
    pub(super) fn view(&self) -> &LogView {
        &self.view
    }

    /// Begins a segment on disks chosen now.
    pub(super) async fn start(
        env: &Env,
        meta: Arc<dyn Meta>,
        stores: Stores,
        lease: Lease,
        settings: LogSettings,
        start: LogStart,
        diffs: Arc<Mutex<Diffs>>,
    ) -> Result<Writer, LogFailure> {
        let stores = TimedStores { stores, clock: env.clock.clone(), limit: settings.timeout };
        let now = env.clock.now();
        let mut writer = Writer {
            env: env.clone(),
            meta,
            view: LogView::new(lease, stores.clone(), start.segments),
            stores,
            lease,
            settings,
            recorded: (start.recorded_disks, start.recorded_copies),
            is_opening: true,
            failed: start.failed.into_iter().map(|disk| (disk, now)).collect(),
            // Below every number of this lease, and above all of earlier ones.
            number: lease.term.0 << NUMBER_BITS,
            room: 0,
            end: 0,
            homes: BTreeMap::new(),
            is_unsynced: false,
            previous: start.last,
            diffs,
        };
        // What was found is on as many disks as it should be before it is closed, and served.
        writer.restore().await?;
        writer.is_opening = false;
        writer.record(&[]).await?;
        writer.begin_segment().await?;
        Ok(writer)
    }

    /// Appends records in order and lets the diffs know them. `None` in the place of a write for which there is no room.
    async fn append(&mut self, records: &[Record]) -> Result<Vec<Option<LogPlace>>, LogFailure> {
        let mut places = Vec::with_capacity(records.len());
        let mut known = 0;
        let mut batch = BytesMut::with_capacity(records.iter().map(Record::bytes).sum());
        let mut lost_a_disk = false;
        for record in records {
            let room = self.room - self.end - batch.len() as u64;
            if record.bytes() as u64 > room {
                // What merging needs to make room is left to it.
                if matches!(record, Record::Write { .. }) && !self.has_room_for_writes() {
                    places.push(None);
                    continue;
                }
                lost_a_disk |= self.write(batch.split().freeze()).await?;
                self.take(&records[known..places.len()], &places[known..]);
                known = places.len();
                lost_a_disk |= self.begin_segment().await?;
            }
            let offset = self.end + batch.len() as u64;
            assert!(offset + record.bytes() as u64 <= self.room, "a record fits a segment");
            places.push(Some(LogPlace { segment: self.number, offset }));
            record.encode(self.segment(), offset, &mut batch);
        }
        let lost_now = self.write(batch.freeze()).await?;
        self.take(&records[known..], &places[known..]);
        if lost_now {
            self.begin_segment().await?;
        }
        if lost_now || lost_a_disk {
            self.restore().await?;
        }
        Ok(places)
    }

    fn take(&self, records: &[Record], places: &[Option<LogPlace>]) {
        let mut diffs = self.diffs.lock().unwrap_or_else(PoisonError::into_inner);
        for (record, place) in records.iter().zip(places) {
            if let Some(place) = place {
                diffs.apply(record, *place);
            }
        }
    }

    fn segment(&self) -> SegmentId {
        SegmentId { owner: self.lease.owner, number: self.number }
    }

    /// The store that took the segment on a disk, if it is still the one that is there.
    fn home(&self, disk: DiskId) -> Result<Arc<dyn ChunkStore>, SegmentError> {
        let there = self.stores.stores.readable(disk);
        there
            .filter(|store| self.homes.get(&disk).is_some_and(|home| Arc::ptr_eq(home, store)))
            .ok_or_else(|| gone(disk))
    }

    /// Appends bytes on every disk of the segment. Whether a disk was lost in doing so.
    async fn write(&mut self, content: Bytes) -> Result<bool, LogFailure> {
        if content.is_empty() {
            return Ok(false);
        }
        let (number, lease, offset) = (self.number, self.lease, self.end);
        let stores = &self.stores;
        let appends = self.homes.keys().map(|&disk| {
            let (home, content) = (self.home(disk), content.clone());
            async move {
                let append = async { home?.segments().append(number, lease, offset, content).await };
                (disk, stores.in_time(disk, append).await)
            }
        });
        let outcomes = join_all(appends).await;
        let lost = self.lose(outcomes)?;
        if lost {
            // Before anybody is told that this is on more disks than it is.
            self.record(&[]).await?;
        }
        self.end += content.len() as u64;
        self.is_unsynced = true;
        if let Some(segment) = self.view.segments().get_mut(&number) {
            segment.end = self.end;
        }
        Ok(lost)
    }

    /// Takes the disks that failed out of every segment. Whether there were any.
    fn lose(&mut self, outcomes: Vec<(DiskId, Result<(), SegmentError>)>) -> Result<bool, LogFailure> {
        let mut lost = false;
        for (disk, outcome) in outcomes {
            match outcome {
                Ok(()) => {}
                Err(error @ SegmentError::Fenced { .. }) => return Err(LogFailure { reason: error.to_string() }),
                Err(error) => {
                    tracing::warn!(%disk, %error, "a volume's log goes on without a disk");
                    lost = true;
                    self.failed.insert(disk, self.env.clock.now());
                    self.homes.remove(&disk);
                    self.view.segments().values_mut().for_each(|segment| segment.disks.retain(|kept| *kept != disk));
                }
            }
        }
        let orphaned = self.view.segments().iter().find(|(_, segment)| segment.disks.is_empty()).map(|(at, _)| *at);
        match orphaned {
            Some(segment) => Err(LogFailure { reason: format!("no disk has segment {segment} of the log any more") }),
            None => Ok(lost),
        }
    }

    /// Disks that take a segment of so many bytes now and have as much again for `spare` more, in the order to try them.
    fn candidates(&self, bytes: u64, spare: u64) -> Vec<Candidate> {
        let mut candidates = self.stores.stores.candidates();
        candidates.retain(|candidate| !self.failed.contains_key(&candidate.disk));
        candidates.retain(|candidate| candidate.free_bytes > (1 + spare) * bytes);
        candidates
    }

    /// How long the next segment may become, and the disks for it: shorter where disks are nearly full, so that as many
    /// take it as there could be.
    fn next_segment(&self) -> (u64, Vec<Candidate>) {
        let halves = (0..HALVINGS_MAX).map(|halving| self.settings.segment_bytes >> halving);
        let sizes = halves.take_while(|bytes| *bytes >= self.settings.segment_bytes_min);
        let choices = sizes.map(|bytes| (bytes, self.candidates(bytes, 1)));
        let mut best = (self.settings.segment_bytes, Vec::new());
        for (bytes, candidates) in choices {
            if candidates.len().min(self.settings.copies) > best.1.len().min(self.settings.copies) {
                best = (bytes, candidates);
            }
        }
        best
    }

    /// Whether a write may begin a segment: as many disks as have this one have room for merges behind it, which are
    /// what makes room.
    fn has_room_for_writes(&self) -> bool {
        self.candidates(self.settings.segment_bytes, SPARE_SEGMENTS).len() >= self.homes.len().min(self.settings.copies)
    }

    /// Closes the segment and begins the next on disks chosen now: as many as the log wants, or as there are. Whether a
    /// disk was lost.
    async fn begin_segment(&mut self) -> Result<bool, LogFailure> {
        let mut lost = self.sync_all().await?;
        if !self.homes.is_empty() {
            self.previous = Some(LogPlace { segment: self.number, offset: self.end });
        }
        for _ in 0..BEGIN_TRIES {
            self.number += 1;
            self.end = 0;
            if !self.try_begin().await? {
                return Ok(lost);
            }
            lost = true;
            // A disk was lost with its first record: on with others, where there are some.
            if self.next_segment().1.len() <= self.homes.len() {
                return Ok(lost);
            }
            self.view.segments().remove(&self.number);
        }
        Err(LogFailure { reason: "disk after disk fails when it is to take a segment of the log".to_owned() })
    }

    /// Begins a segment. Whether a disk was lost in doing so.
    async fn try_begin(&mut self) -> Result<bool, LogFailure> {
        self.homes.clear();
        let (bytes, candidates) = self.next_segment();
        let order = place(&candidates, &[], candidates.len(), |bound| self.env.random.below(bound));
        self.record(&order[..order.len().min(self.settings.copies)]).await?;
        let mut refused = None;
        for disk in order {
            if self.homes.len() == self.settings.copies {
                break;
            }
            let Some(store) = self.stores.stores.readable(disk) else { continue };
            self.record(&[disk]).await?;
            let created = store.segments().create_segment(self.number, self.lease, bytes);
            match self.stores.in_time(disk, created).await {
                Ok(()) => drop(self.homes.insert(disk, store)),
                Err(error @ SegmentError::Fenced { .. }) => return Err(LogFailure { reason: error.to_string() }),
                Err(error) => {
                    tracing::warn!(%disk, %error, "a disk takes no segment of a volume's log");
                    self.failed.insert(disk, self.env.clock.now());
                    refused = Some(error);
                }
            }
        }
        if self.homes.is_empty() {
            let reason = refused.map_or("no disk takes writes and has room".to_owned(), |error| error.to_string());
            return Err(LogFailure { reason: format!("the log has no disk for a segment of {bytes} bytes: {reason}") });
        }
        if self.homes.len() < self.settings.copies {
            let (disks, copies) = (self.homes.len(), self.settings.copies);
            tracing::warn!(disks, copies, "a volume's log has fewer copies than its code tolerates losses");
        }
        self.room = bytes;
        let over_below = self.view.segments().keys().next().copied().unwrap_or(self.number);
        let disks = self.homes.keys().copied().collect();
        self.view.segments().insert(self.number, Segment { disks, end: 0 });
        self.record(&[]).await?;
        let begin = Record::Begin { over_below, previous: self.previous, page_bytes: self.settings.page_bytes };
        let mut content = BytesMut::new();
        begin.encode(self.segment(), 0, &mut content);
        let lost = self.write(content.freeze()).await?;
        Ok(self.sync_all().await? || lost)
    }

    /// Makes the volume's record say which disks may have a segment, `more` among them, and how many of them each has at
    /// least. At any time all that is acknowledged is on that many of these disks.
    async fn record(&mut self, more: &[DiskId]) -> Result<(), LogFailure> {
        let (mut disks, mut copies) = self.spread();
        if self.is_opening {
            disks.extend(self.recorded.0.iter().copied());
            copies = self.recorded.1;
        }
        disks.extend(more.iter().copied());
        if (&disks, copies) == (&self.recorded.0, self.recorded.1) {
            return Ok(());
        }
        let list: Vec<DiskId> = disks.iter().copied().collect();
        let recorded = self.meta.set_log(self.lease, &list, copies).await;
        recorded.map_err(|error| LogFailure { reason: format!("the log's disks cannot be recorded: {error}") })?;
        self.recorded = (disks, copies);
        Ok(())
    }

    /// The disks that the log is on, and on how many of them each segment is at least. Without disks that are not there, if
    /// the others have everything: a restart must not wait for them.
    fn spread(&self) -> (BTreeSet<DiskId>, u16) {
        let segments = self.view.segments();
        let there = |disk: &&DiskId| self.stores.stores.readable(**disk).is_some();
        let does_without = segments.values().all(|segment| segment.disks.iter().any(|disk| there(&disk)));
        let counted = |segment: &Segment| -> Vec<DiskId> {
            segment.disks.iter().filter(|disk| !does_without || there(disk)).copied().collect()
        };
        let counted: Vec<Vec<DiskId>> = segments.values().map(counted).collect();
        let copies = counted.iter().map(Vec::len).min().unwrap_or(0).min(self.settings.copies);
        (counted.into_iter().flatten().collect(), copies as u16)
    }

    /// A sync of all that is not synced.
    fn sync(&mut self) -> Syncing {
        if !std::mem::take(&mut self.is_unsynced) {
            return async { Vec::new() }.boxed();
        }
        let (number, lease) = (self.number, self.lease);
        let syncs: Vec<_> = self
            .homes
            .keys()
            .map(|&disk| {
                let (stores, home) = (self.stores.clone(), self.home(disk));
                async move {
                    (disk, stores.in_time(disk, async { home?.segments().sync_segment(number, lease).await }).await)
                }
            })
            .collect();
        join_all(syncs).boxed()
    }

    /// What a sync means for the log.
    async fn synced(&mut self, outcome: Vec<(DiskId, Result<(), SegmentError>)>) -> Result<(), LogFailure> {
        if self.lose(outcome)? {
            self.record(&[]).await?;
            self.begin_segment().await?;
            self.restore().await?;
        }
        Ok(())
    }

    /// Syncs the segment that is appended to, also what a sync under way may have taken on, and returns whether a disk was
    /// lost.
    async fn sync_all(&mut self) -> Result<bool, LogFailure> {
        self.is_unsynced = true;
        let outcome = self.sync().await;
        let lost = self.lose(outcome)?;
        if lost {
            self.record(&[]).await?;
        }
        Ok(lost)
    }
}

fn gone(disk: DiskId) -> SegmentError {
    SegmentError::Unavailable { disk, reason: "the disk went away".to_owned() }
}

const BEGIN_TRIES: usize = 4;
/// A disk that failed gets no segment for so long.
const FAILED_FOR: Duration = Duration::from_secs(30);
const BATCH_BYTES_MAX: usize = 1 << 20;
const HALVINGS_MAX: u32 = 6;
/// Segments that a write leaves room for: merging a full one takes about two.
const SPARE_SEGMENTS: u64 = 3;
