//! The task that appends to a log: which disks its segments are on, and what is done when one fails.

mod upkeep;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use claystone_chunk::{DiskId, Lease, SegmentError, SegmentId};
use claystone_env::{Clock, Env, Moment, timeout};
use claystone_meta::Meta;
use claystone_stripe::{Candidate, Stores, place};
use futures::future::{BoxFuture, Either, FutureExt, join_all, select};
use tokio::sync::{mpsc, oneshot};

use super::record::{LogPlace, Record};
use super::view::{LogView, Segment};
use super::{LogFailure, LogSettings, LogStart, NUMBER_BITS};
use crate::diffs::Diffs;

/// What the task is asked for.
#[derive(Debug)]
pub(super) enum Request {
    Append(Record, Done<LogPlace>),
    Sync(Done<()>),
    Tend(Done<()>),
}

/// Where the answer goes.
pub(super) type Done<T> = oneshot::Sender<Result<T, LogFailure>>;

/// What appends.
pub(super) struct Writer {
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
        let view = LogView::new(lease, stores.clone(), start.segments);
        let mut writer = Writer {
            env: env.clone(),
            meta,
            stores,
            lease,
            settings,
            view,
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
        Ok(writer)
    }

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

const BEGIN_TRIES: usize = 4;
/// A disk that failed gets no segment for so long.
const FAILED_FOR: Duration = Duration::from_secs(30);
const BATCH_BYTES_MAX: usize = 1 << 20;
