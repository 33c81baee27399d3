//! The log of an open volume: records appended to segments on several disks at once.
//!
//! One task appends; whoever has a record hands it over and waits. What waits together is appended together. Syncs run
//! beside appends, one after another: whoever asks during one waits for the next, which begins after his appends.
//!
//! ```text
//!  append --> waiting --task: encoded, appended on every disk--> in effect (diffs know it) --sync--> durable
//! ```
//!
//! Invariants:
//! 1. A record is in effect only when every disk of its segment that has not failed has it.
//! 2. The diffs take records in the order of the log.
//! 3. A segment is synced on every disk that keeps it before the next one begins, so only the last can miss records after a
//!    crash.
//! 4. After [`LogFailure`] nothing more is appended: the volume is opened anew.
//! 5. A disk is among the volume's recorded log disks before it gets a segment, and a segment has no fewer copies than
//!    recorded when what it holds is acknowledged.
//! 6. A disk that does not answer in time has failed.
//!
//! A disk that fails leaves its segments with fewer copies. The log goes on in a new segment on disks that work, and what
//! misses copies is copied ([`Writer::restore`]).

pub mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use claystone_chunk::{ByteRange, ChunkStore, DiskId, Lease, SegmentError, SegmentId};
use claystone_env::{Clock, Env, Moment, timeout};
use claystone_meta::Meta;
use claystone_stripe::{Candidate, Stores, place};
use futures::future::{BoxFuture, Either, FutureExt, join_all, select};
use tokio::sync::{mpsc, oneshot};

use self::record::{LogPlace, Record};
use crate::diffs::Diffs;

/// What a log needs to know.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// Bytes of each segment.
    pub segment_bytes: u64,
    /// On how many disks each is, where there are so many.
    pub copies: usize,
    /// Bytes of the volume's pages.
    pub page_bytes: u32,
    /// How long a disk may take to answer.
    pub timeout: Duration,
}

/// The log takes nothing more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct LogFailure {
    /// What was seen.
    pub reason: String,
}

/// A segment that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The disks that have all of it.
    pub disks: Vec<DiskId>,
    /// Where its records end.
    pub end: u64,
}

/// The log as readers know it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LogView {
    lease: Lease,
    stores: Stores,
    segments: Arc<Mutex<BTreeMap<u64, Segment>>>,
}

/// The log. Calls may come from many tasks. The task that appends ends when this is dropped.
#[derive(Debug)]
pub struct Log {
    view: LogView,
    requests: mpsc::Sender<Request>,
}

#[derive(Debug)]
enum Request {
    Append(Record, Done<LogPlace>),
    Sync(Done<()>),
    Tend(Done<()>),
}

type Done<T> = oneshot::Sender<Result<T, LogFailure>>;

/// Where a log goes on: after what was found of it.
#[derive(Debug, Clone)]
pub struct LogStart {
    /// Segments that are not over.
    pub segments: BTreeMap<u64, Segment>,
    /// The last of them, and where it ends.
    pub last: Option<LogPlace>,
    /// Disks that are recorded as the log's.
    pub recorded_disks: BTreeSet<DiskId>,
    /// The fewest copies of a segment, as recorded.
    pub recorded_copies: u16,
}

impl LogView {
    /// The log of this lease's owner, of which `segments` are not over.
    pub fn new(lease: Lease, stores: Stores, segments: BTreeMap<u64, Segment>) -> LogView {
        LogView { lease, stores, segments: Arc::new(Mutex::new(segments)) }
    }

    /// Bytes of the log from `at`, as one of its disks has them, `accept`ed. `None`: the segment is over, or no disk has
    /// acceptable bytes.
    pub async fn read(&self, at: LogPlace, bytes: u64, accept: impl Fn(&Bytes) -> bool) -> Option<Bytes> {
        let disks = self.segments().get(&at.segment)?.disks.clone();
        let id = SegmentId { owner: self.lease.owner, number: at.segment };
        let range = ByteRange { offset: at.offset, bytes };
        for disk in disks {
            let Some(store) = self.stores.readable(disk) else { continue };
            match store.segments().read_segment(id, &[range]).await {
                Ok(mut read) if read.len() == 1 && accept(&read[0]) => return read.pop(),
                Ok(_) => tracing::warn!(segment = %id, offset = at.offset, %disk, "a page of a log is damaged"),
                Err(error) => tracing::debug!(segment = %id, %disk, %error, "a log cannot be read here"),
            }
        }
        None
    }

    /// Whether the segment is not over.
    pub fn has(&self, segment: u64) -> bool {
        self.segments().contains_key(&segment)
    }

    /// How many segments are not over.
    pub fn segment_count(&self) -> u64 {
        self.segments().len() as u64
    }

    /// Bytes of all segments that are not over, on each disk that keeps all of them.
    pub fn bytes(&self) -> u64 {
        self.segments().values().map(|segment| segment.end).sum()
    }

    /// Disks that have a segment.
    pub fn disks(&self) -> BTreeSet<DiskId> {
        self.segments().values().flat_map(|segment| segment.disks.iter().copied()).collect()
    }

    /// The fewest copies that a segment has.
    fn copies(&self) -> Option<usize> {
        self.segments().values().map(|segment| segment.disks.len()).min()
    }

    fn segments(&self) -> MutexGuard<'_, BTreeMap<u64, Segment>> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    /// Begins a segment on disks chosen now, and the task that appends. `diffs` takes every record.
    ///
    /// # Errors
    /// No disk takes a segment, or the lease is over.
    pub async fn start(
        env: &Env,
        meta: Arc<dyn Meta>,
        stores: Stores,
        lease: Lease,
        settings: LogSettings,
        start: LogStart,
        diffs: Arc<Mutex<Diffs>>,
    ) -> Result<Log, LogFailure> {
        let view = LogView::new(lease, stores.clone(), start.segments);
        let mut writer = Writer {
            env: env.clone(),
            meta,
            stores,
            lease,
            settings,
            view: view.clone(),
            recorded_disks: start.recorded_disks,
            recorded_copies: start.recorded_copies,
            is_opening: true,
            failed: BTreeMap::new(),
            // Below every number of this lease, and above all of earlier ones.
            number: lease.term.0 << NUMBER_BITS,
            end: 0,
            previous: start.last,
            disks: Vec::new(),
            unsynced: BTreeSet::new(),
            diffs,
        };
        // What was found is on as many disks as it should be before it is closed, and served: until then a copy that is
        // shorter, by what nobody flushed, is as good as another.
        writer.restore().await?;
        writer.is_opening = false;
        writer.record(&[]).await?;
        writer.begin_segment().await?;
        let (requests, receiver) = mpsc::channel(REQUESTS_MAX);
        env.tasks.spawn("volume log", run(writer, receiver).boxed());
        Ok(Log { view, requests })
    }

    /// The log as readers know it.
    pub fn view(&self) -> &LogView {
        &self.view
    }

    /// Adds a record: when this returns it is in effect. If it is dropped before, the record may be added yet.
    ///
    /// # Errors
    /// Whether the record was added is unknown.
    pub async fn append(&self, record: Record) -> Result<LogPlace, LogFailure> {
        self.ask(|done| Request::Append(record, done)).await
    }

    /// Makes durable every record whose `append` returned before this was called.
    ///
    /// # Errors
    /// It is not certain that they are.
    pub async fn sync(&self) -> Result<(), LogFailure> {
        self.ask(Request::Sync).await
    }

    /// Deletes the segments that nothing needs, and copies those that miss copies.
    ///
    /// # Errors
    /// The log failed.
    pub async fn tend(&self) -> Result<(), LogFailure> {
        self.ask(Request::Tend).await
    }

    async fn ask<T>(&self, request: impl FnOnce(Done<T>) -> Request) -> Result<T, LogFailure> {
        let (done, answer) = oneshot::channel();
        let stopped = || LogFailure { reason: "the volume is closed".to_owned() };
        self.requests.send(request(done)).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }
}

/// What appends.
struct Writer {
    env: Env,
    meta: Arc<dyn Meta>,
    stores: Stores,
    lease: Lease,
    settings: LogSettings,
    view: LogView,
    recorded_disks: BTreeSet<DiskId>,
    recorded_copies: u16,
    /// Nothing is served yet, so the fewest copies stay as they are recorded.
    is_opening: bool,
    /// Disks that failed an append or a sync, or refused a segment, and when.
    failed: BTreeMap<DiskId, Moment>,
    /// The segment that is appended to.
    number: u64,
    end: u64,
    /// The segment before it, and where that ended.
    previous: Option<LogPlace>,
    disks: Vec<DiskId>,
    /// Segments with records that no sync has covered.
    unsynced: BTreeSet<u64>,
    diffs: Arc<Mutex<Diffs>>,
}

/// A sync under way: of which segments, on which disks, how it went.
type Syncing = BoxFuture<'static, Vec<(DiskId, Result<(), SegmentError>)>>;

/// Takes requests until nobody can make any.
async fn run(mut writer: Writer, mut requests: mpsc::Receiver<Request>) {
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
        let (records, waiting): (Vec<Record>, Vec<Done<LogPlace>>) = appends.into_iter().unzip();
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
    /// Appends records in order and lets the diffs know them.
    async fn append(&mut self, records: &[Record]) -> Result<Vec<LogPlace>, LogFailure> {
        let mut places = Vec::with_capacity(records.len());
        let mut known = 0;
        let mut batch = BytesMut::with_capacity(records.iter().map(Record::bytes).sum());
        for record in records {
            let room = self.settings.segment_bytes - self.end - batch.len() as u64;
            if record.bytes() as u64 > room {
                self.write(batch.split().freeze()).await?;
                self.take(&records[known..places.len()], &places[known..]);
                known = places.len();
                self.begin_segment().await?;
            }
            let offset = self.end + batch.len() as u64;
            assert!(offset + record.bytes() as u64 <= self.settings.segment_bytes, "a record fits a segment");
            places.push(LogPlace { segment: self.number, offset });
            record.encode(self.segment(), offset, &mut batch);
        }
        let lost_a_disk = self.write(batch.freeze()).await?;
        self.take(&records[known..], &places[known..]);
        if lost_a_disk {
            self.begin_segment().await?;
            self.restore().await?;
        }
        Ok(places)
    }

    fn take(&self, records: &[Record], places: &[LogPlace]) {
        let mut diffs = self.diffs.lock().unwrap_or_else(PoisonError::into_inner);
        records.iter().zip(places).for_each(|(record, place)| diffs.apply(record, *place));
    }

    fn segment(&self) -> SegmentId {
        SegmentId { owner: self.lease.owner, number: self.number }
    }

    /// Appends bytes on every disk of the segment. Whether a disk was lost in doing so.
    async fn write(&mut self, content: Bytes) -> Result<bool, LogFailure> {
        if content.is_empty() {
            return Ok(false);
        }
        let (number, lease, offset) = (self.number, self.lease, self.end);
        let appends = self.disks.iter().map(|&disk| {
            let (store, content) = (self.stores.readable(disk), content.clone());
            self.in_time(disk, async move {
                let store = store.ok_or_else(|| gone(disk))?;
                store.segments().append(number, lease, offset, content).await
            })
        });
        let outcomes = join_all(appends).await;
        let lost = self.lose(self.disks.clone().into_iter().zip(outcomes))?;
        if lost {
            // Before anybody is told that this is on more disks than it is.
            self.record(&[]).await?;
        }
        self.end += content.len() as u64;
        self.unsynced.insert(number);
        if let Some(segment) = self.view.segments().get_mut(&number) {
            segment.end = self.end;
        }
        Ok(lost)
    }

    /// Takes the disks that failed out of every segment. Whether there were any.
    fn lose(&mut self, outcomes: impl Iterator<Item = (DiskId, Result<(), SegmentError>)>) -> Result<bool, LogFailure> {
        let mut lost = false;
        for (disk, outcome) in outcomes {
            match outcome {
                Ok(()) => {}
                Err(error @ SegmentError::Fenced { .. }) => return Err(LogFailure { reason: error.to_string() }),
                Err(error) => {
                    tracing::warn!(%disk, %error, "a volume's log goes on without a disk");
                    lost = true;
                    self.failed.insert(disk, self.env.clock.now());
                    self.disks.retain(|kept| *kept != disk);
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

    /// Disks that take a segment now, in the order to try them.
    fn candidates(&self) -> Vec<Candidate> {
        let mut candidates = self.stores.candidates();
        candidates.retain(|candidate| !self.failed.contains_key(&candidate.disk));
        candidates.retain(|candidate| candidate.free_bytes > 2 * self.settings.segment_bytes);
        candidates
    }

    /// Closes the segment and begins the next on disks chosen now: as many as the log wants, or as there are.
    async fn begin_segment(&mut self) -> Result<(), LogFailure> {
        self.sync_all().await?;
        if !self.disks.is_empty() {
            self.previous = Some(LogPlace { segment: self.number, offset: self.end });
        }
        for _ in 0..BEGIN_TRIES {
            self.number += 1;
            self.end = 0;
            if !self.try_begin().await? {
                return Ok(());
            }
            // A disk was lost with its first record: on with others, where there are some.
            if self.candidates().len() <= self.disks.len() {
                return Ok(());
            }
            self.view.segments().remove(&self.number);
        }
        Err(LogFailure { reason: "disk after disk fails when it is to take a segment of the log".to_owned() })
    }

    /// Begins a segment. Whether a disk was lost in doing so.
    async fn try_begin(&mut self) -> Result<bool, LogFailure> {
        self.disks = Vec::new();
        let candidates = self.candidates();
        let order = place(&candidates, &[], candidates.len(), |bound| self.env.random.below(bound));
        self.record(&order[..order.len().min(self.settings.copies)]).await?;
        let mut refused = None;
        for disk in order {
            if self.disks.len() == self.settings.copies {
                break;
            }
            let Some(store) = self.stores.readable(disk) else { continue };
            self.record(&[disk]).await?;
            let (number, lease, bytes) = (self.number, self.lease, self.settings.segment_bytes);
            match self.in_time(disk, store.segments().create_segment(number, lease, bytes)).await {
                Ok(()) => self.disks.push(disk),
                Err(error @ SegmentError::Fenced { .. }) => return Err(LogFailure { reason: error.to_string() }),
                Err(error) => {
                    tracing::warn!(%disk, %error, "a disk takes no segment of a volume's log");
                    self.failed.insert(disk, self.env.clock.now());
                    refused = Some(error);
                }
            }
        }
        if self.disks.is_empty() {
            let reason = refused.map_or("no disk takes writes and has room".to_owned(), |error| error.to_string());
            return Err(LogFailure { reason: format!("the log has no disk for a segment: {reason}") });
        }
        if self.disks.len() < self.settings.copies {
            let (disks, copies) = (self.disks.len(), self.settings.copies);
            tracing::warn!(disks, copies, "a volume's log has fewer copies than its code tolerates losses");
        }
        let over_below = self.view.segments().keys().next().copied().unwrap_or(self.number);
        self.view.segments().insert(self.number, Segment { disks: self.disks.clone(), end: 0 });
        self.record(&[]).await?;
        let begin = Record::Begin { over_below, previous: self.previous, page_bytes: self.settings.page_bytes };
        let mut content = BytesMut::new();
        begin.encode(self.segment(), 0, &mut content);
        let lost = self.write(content.freeze()).await?;
        Ok(self.sync_all().await? || lost)
    }

    /// Makes the records say which disks may have a segment, `more` among them, and how many copies each has at least. At
    /// any time all that is acknowledged is on that many of these disks.
    async fn record(&mut self, more: &[DiskId]) -> Result<(), LogFailure> {
        let mut disks = self.view.disks();
        disks.extend(more.iter().copied());
        if self.is_opening {
            disks.extend(self.recorded_disks.iter().copied());
            return self.set_disks(disks).await;
        }
        let copies = self.view.copies().unwrap_or(0).min(self.settings.copies) as u16;
        if copies < self.recorded_copies {
            self.set_copies(copies).await?;
        }
        self.set_disks(disks).await?;
        if copies > self.recorded_copies {
            self.set_copies(copies).await?;
        }
        Ok(())
    }

    async fn set_copies(&mut self, copies: u16) -> Result<(), LogFailure> {
        let recorded = self.meta.set_log_copies(self.lease, copies).await;
        recorded.map_err(|error| LogFailure { reason: format!("the log's copies cannot be recorded: {error}") })?;
        self.recorded_copies = copies;
        Ok(())
    }

    async fn set_disks(&mut self, disks: BTreeSet<DiskId>) -> Result<(), LogFailure> {
        if disks == self.recorded_disks {
            return Ok(());
        }
        let list: Vec<DiskId> = disks.iter().copied().collect();
        let recorded = self.meta.set_log_disks(self.lease, &list).await;
        recorded.map_err(|error| LogFailure { reason: format!("the log's disks cannot be recorded: {error}") })?;
        self.recorded_disks = disks;
        Ok(())
    }

    /// One that does not answer in time is silent: nobody waits for it again before it does.
    async fn in_time<T>(
        &self,
        disk: DiskId,
        operation: impl Future<Output = Result<T, SegmentError>>,
    ) -> Result<T, SegmentError> {
        in_time(&*self.env.clock, &self.stores, self.settings.timeout, disk, operation).await
    }

    /// A sync of all that is not synced.
    fn sync(&mut self) -> Syncing {
        let (lease, limit) = (self.lease, self.settings.timeout);
        let mut syncs = Vec::new();
        for number in std::mem::take(&mut self.unsynced) {
            let disks = self.view.segments().get(&number).map(|segment| segment.disks.clone()).unwrap_or_default();
            for disk in disks {
                let (stores, clock) = (self.stores.clone(), self.env.clock.clone());
                syncs.push(async move {
                    let Some(store) = stores.readable(disk) else { return (disk, Err(gone(disk))) };
                    let sync = store.segments().sync_segment(number, lease);
                    (disk, in_time(&*clock, &stores, limit, disk, sync).await)
                });
            }
        }
        join_all(syncs).boxed()
    }

    /// What a sync means for the log.
    async fn synced(&mut self, outcome: Vec<(DiskId, Result<(), SegmentError>)>) -> Result<(), LogFailure> {
        if self.lose(outcome.into_iter())? {
            self.record(&[]).await?;
            self.begin_segment().await?;
            self.restore().await?;
        }
        Ok(())
    }

    /// Syncs the segment that is appended to, also what a sync under way may have taken on, and returns whether a disk was
    /// lost.
    async fn sync_all(&mut self) -> Result<bool, LogFailure> {
        if !self.disks.is_empty() {
            self.unsynced.insert(self.number);
        }
        let outcome = self.sync().await;
        let lost = self.lose(outcome.into_iter())?;
        if lost {
            self.record(&[]).await?;
        }
        Ok(lost)
    }

    /// Copies segments that miss copies to other disks.
    async fn restore(&mut self) -> Result<(), LogFailure> {
        let wanting: Vec<(u64, Segment)> = {
            let segments = self.view.segments();
            let stays = |disk: &&DiskId| self.stores.member(**disk).is_some_and(|member| member.writable());
            let wanting = |segment: &Segment| segment.disks.iter().filter(stays).count() < self.settings.copies;
            segments
                .iter()
                .filter(|(number, segment)| **number != self.number && wanting(segment))
                .map(|(number, segment)| (*number, segment.clone()))
                .collect()
        };
        for (number, segment) in wanting {
            let taken: Vec<_> = segment.disks.iter().filter_map(|disk| self.stores.member(*disk)).collect();
            let taken: Vec<_> = taken.into_iter().map(|member| (member.record.id, member.record.node)).collect();
            let mut candidates = self.candidates();
            candidates.retain(|candidate| !segment.disks.contains(&candidate.disk));
            let staying =
                segment.disks.iter().filter(|disk| self.stores.member(**disk).is_some_and(|member| member.writable()));
            let missing = self.settings.copies - staying.count();
            let disks = place(&candidates, &taken, missing, |bound| self.env.random.below(bound));
            if disks.is_empty() {
                continue;
            }
            let at = LogPlace { segment: number, offset: 0 };
            let id = SegmentId { owner: self.lease.owner, number };
            let page_bytes = self.settings.page_bytes;
            let whole = |content: &Bytes| records_end(id, content, page_bytes) == segment.end;
            let Some(content) = self.view.read(at, segment.end, whole).await else {
                // Its pages may be well one by one: merging takes them where they are.
                tracing::warn!(number, "no copy of a segment is whole any more");
                continue;
            };
            for disk in disks {
                self.record(&[disk]).await?;
                match self.copy(number, disk, content.clone()).await {
                    Ok(()) => {
                        if let Some(segment) = self.view.segments().get_mut(&number) {
                            segment.disks.push(disk);
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%disk, %error, "a segment of a volume's log was not copied");
                        self.failed.insert(disk, self.env.clock.now());
                    }
                }
            }
        }
        self.record(&[]).await
    }

    async fn copy(&self, number: u64, disk: DiskId, content: Bytes) -> Result<(), SegmentError> {
        let store: Arc<dyn ChunkStore> = self.stores.readable(disk).ok_or_else(|| gone(disk))?;
        let segments = store.segments();
        let (lease, bytes) = (self.lease, self.settings.segment_bytes);
        let copy = async {
            // A part of it may be there from before the disk failed.
            segments.delete_segment(number, lease).await?;
            segments.create_segment(number, lease, bytes).await?;
            segments.append(number, lease, 0, content).await?;
            segments.sync_segment(number, lease).await
        };
        self.in_time(disk, copy).await
    }

    /// See [`Log::tend`].
    async fn tend(&mut self) -> Result<(), LogFailure> {
        let now = self.env.clock.now();
        self.failed.retain(|_, failed| now.since(*failed) < FAILED_FOR);
        self.fence_again().await?;
        self.leave_disks();
        self.record(&[]).await?;
        let others = self.candidates().iter().any(|candidate| !self.disks.contains(&candidate.disk));
        if self.disks.len() < self.settings.copies && others {
            self.begin_segment().await?;
        }
        self.restore().await?;
        self.trim().await?;
        // Disks that keep nothing of the log any more can be removed.
        self.record(&[]).await
    }

    /// A fence that was damaged on its disk stops every change there until it is written again; one that is well stays.
    async fn fence_again(&self) -> Result<(), LogFailure> {
        let fences = self.stores.members().into_iter().filter_map(|member| {
            let disk = member.record.id;
            let store = self.stores.readable(disk)?;
            Some(async move { (disk, self.in_time(disk, store.segments().fence(self.lease)).await) })
        });
        for (disk, fenced) in join_all(fences).await {
            match fenced {
                Ok(()) => {}
                Err(error @ SegmentError::Fenced { .. }) => return Err(LogFailure { reason: error.to_string() }),
                Err(error) => tracing::debug!(%disk, %error, "a disk cannot be fenced"),
            }
        }
        Ok(())
    }

    /// Counts on disks that are to be left no more, where enough others have the same.
    fn leave_disks(&mut self) {
        let stays = |disk: &DiskId| self.stores.member(*disk).is_some_and(|member| member.writable());
        let current = self.number;
        for (number, segment) in &mut *self.view.segments() {
            let staying = segment.disks.iter().filter(|disk| stays(disk)).count();
            if staying == self.settings.copies || (*number == current && staying > 0) {
                segment.disks.retain(stays);
            }
        }
        if self.disks.iter().any(stays) {
            self.disks.retain(stays);
        }
    }

    /// Ends and deletes the segments before the oldest one that is needed.
    async fn trim(&mut self) -> Result<(), LogFailure> {
        let oldest = self.diffs.lock().unwrap_or_else(PoisonError::into_inner).oldest_live();
        let below = oldest.unwrap_or(self.number).min(self.number);
        let over: Vec<(u64, Segment)> =
            self.view.segments().range(..below).map(|(number, segment)| (*number, segment.clone())).collect();
        if over.is_empty() {
            return Ok(());
        }
        // First it is durable that they are over: they may be back after a crash, and one without the others.
        self.append(&[Record::Over { below }]).await?;
        self.sync_all().await?;
        for (number, segment) in over {
            self.view.segments().remove(&number);
            for disk in segment.disks {
                let Some(store) = self.stores.readable(disk) else { continue };
                if let Err(error) = store.segments().delete_segment(number, self.lease).await {
                    tracing::debug!(number, %disk, %error, "a segment that is over was left");
                }
            }
        }
        Ok(())
    }
}

/// Where the records of a segment end, from its start.
pub(crate) fn records_end(id: SegmentId, content: &Bytes, page_bytes: u32) -> u64 {
    let mut end = 0;
    while let Some((_, bytes)) = Record::decode(id, end as u64, &content.slice(end..), page_bytes) {
        end += bytes;
    }
    end as u64
}

/// Waits for a disk, but not for ever: one that takes too long is silent until it answers.
async fn in_time<T>(
    clock: &dyn Clock,
    stores: &Stores,
    limit: Duration,
    disk: DiskId,
    operation: impl Future<Output = Result<T, SegmentError>>,
) -> Result<T, SegmentError> {
    match timeout(clock, limit, operation).await {
        Some(result) => result,
        None => {
            stores.silence(disk);
            Err(SegmentError::Unavailable { disk, reason: format!("no answer within {limit:?}") })
        }
    }
}

fn gone(disk: DiskId) -> SegmentError {
    SegmentError::Unavailable { disk, reason: "the disk went away".to_owned() }
}

/// Numbers of a lease's segments: its term, then so many bits that count.
const NUMBER_BITS: u32 = 24;
const BEGIN_TRIES: usize = 4;
/// A disk that failed gets no segment for so long.
const FAILED_FOR: Duration = Duration::from_secs(30);
const REQUESTS_MAX: usize = 1024;
const BATCH_BYTES_MAX: usize = 1 << 20;
