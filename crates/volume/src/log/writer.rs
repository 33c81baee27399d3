//! The task that appends to a log: which disks its segments are on, and what is done when one fails.

mod appends;
mod ended;
mod habit;
mod late;
mod restoring;
mod segments;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use claystone_chunk::{ChunkStore, DiskId, Lease, NodeId, SegmentError, SegmentId};
use claystone_env::{Env, Moment};
use claystone_meta::{LogRecord, Meta};
use claystone_stripe::Stores;
use futures::future::{FutureExt, join_all, pending};
use futures::stream::{FuturesOrdered, StreamExt};
use tokio::sync::{mpsc, oneshot};

pub(super) use self::appends::Waiting;
use self::appends::{Append, Batch, Outcome};
use self::ended::Ended;
use self::habit::Habit;
use self::late::{Asked, Late, Patience, all_but_late};
use self::restoring::Restoring;
use self::segments::Next;
use super::record::{LogPlace, Record};
use super::view::{LogView, Segment, TimedStores};
use super::{LogFailure, LogSettings, LogStart, NUMBER_BITS};
use crate::diffs::Diffs;

/// What the task is asked for.
#[derive(Debug)]
pub(super) enum Request {
    /// A record; where the disks have no room for it, none is appended.
    Append(Record, Waiting),
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
    /// Where the log is, as the volume's record says.
    recorded: LogRecord,
    /// Nothing is served yet, so what is recorded stays true of what was found.
    is_opening: bool,
    /// Disks that failed an append or a sync, or refused a segment.
    failed: BTreeMap<DiskId, Failed>,
    late: Late,
    /// The greatest number that a segment was given.
    numbers: u64,
    /// The segment that is appended to, how long it may become, where the next append goes, and up to where all is in effect.
    number: u64,
    room: u64,
    next: u64,
    end: u64,
    /// Its disks, and the very stores that took what it has: one that was opened in a store's place since has lost what was
    /// not synced, and does not know it.
    homes: BTreeMap<DiskId, Arc<dyn ChunkStore>>,
    /// It is in the reserve of disks, for what makes room: it takes no writes.
    is_for_room: bool,
    /// Segments of this opening that are in the reserve, and when there was no room for one last.
    in_reserve: BTreeSet<u64>,
    reserve_refused: Option<Moment>,
    /// Segments before it that are not known to be synced.
    ended: Ended,
    /// Intents that have no end yet: each finds room for it.
    intents: u64,
    /// Bytes in effect that no sync has covered, in about. 0: what is in effect is covered by syncs that ended, or by that
    /// under way.
    unsynced_bytes: u64,
    /// Bytes that the sync under way covers.
    syncing_bytes: u64,
    habit: Habit,
    /// What waits to be appended, in order.
    queue: VecDeque<(Record, Waiting)>,
    /// What is under way, the oldest first.
    batches: VecDeque<Batch>,
    under_way: FuturesOrdered<Append>,
    /// The segment after this one, once it is made or being made, and the last segment in which that was begun.
    next_made: Next,
    made_ahead_in: u64,
    /// Copies that are being made of segments that miss some.
    restoring: Restoring,
    /// Whether this opening has begun a segment.
    has_begun: bool,
    /// The segment before it, and where that ended.
    previous: Option<LogPlace>,
    diffs: Arc<Mutex<Diffs>>,
}

/// A sync under way.
struct Syncing {
    outcome: Append,
    /// The last of the segments that ended before it.
    ended: Option<u64>,
    waiting: Waiters,
}

/// Who waits for a sync.
#[derive(Default)]
struct Waiters {
    /// Whoever asked.
    asked: Vec<Done<()>>,
    /// Those whose records are synced, and not yet the record that says so of segments that ended.
    untold: Vec<Done<()>>,
}

/// A disk that gets no segment for a while.
struct Failed {
    since: Moment,
    /// It works, and has no room.
    is_full: bool,
}

/// Takes requests until nobody can make any.
pub(super) async fn run(mut writer: Writer, mut requests: mpsc::Receiver<Request>) {
    let mut failure: Option<LogFailure> = None;
    let mut syncing: Option<Syncing> = None;
    let mut wanted = Waiters::default();
    let mut tends: Vec<Done<()>> = Vec::new();
    loop {
        if failure.is_none() {
            remember(&mut failure, &writer.go_on(&mut tends).await);
        }
        if let Some(failure) = &failure {
            writer.refuse(failure);
            let waiting = std::mem::take(&mut wanted).into_iter().chain(tends.drain(..));
            waiting.for_each(|done| answer(done, Err(failure.clone())));
        } else if syncing.is_none() {
            syncing = writer.next_sync(&mut wanted);
        }
        let takes_more = writer.takes_more();
        tokio::select! {
            biased;
            Some(outcome) = writer.under_way.next() => remember(&mut failure, &writer.appended(outcome).await),
            (outcome, ended, mut waiting) = outcome_of(&mut syncing) => {
                // After a failure nothing is begun, recorded or counted any more.
                let result = match &failure {
                    Some(failure) => Err(failure.clone()),
                    None => writer.synced(outcome, ended).await,
                };
                remember(&mut failure, &result);
                if ended.is_some() && result.is_ok() {
                    wanted.untold.append(&mut waiting.asked);
                }
                waiting.into_iter().for_each(|done| answer(done, result.clone()));
            }
            outcome = made(&mut writer.next_made.making) => remember(&mut failure, &writer.made(outcome).await),
            copied = writer.restoring.ended() => remember(&mut failure, &writer.restored(copied).await),
            first = requests.recv(), if takes_more => {
                let Some(first) = first else { return };
                let mut batch_bytes = 0;
                let mut request = Some(first);
                while let Some(taken) = request.take() {
                    match taken {
                        Request::Append(record, waiting) => {
                            batch_bytes += record.bytes();
                            writer.queue.push_back((record, waiting));
                        }
                        Request::Sync(done) => {
                            writer.habit.flushed();
                            match &mut syncing {
                                Some(syncing) if writer.unsynced_bytes == 0 && !writer.has_left() => {
                                    syncing.waiting.asked.push(done);
                                }
                                _ => wanted.asked.push(done),
                            }
                        }
                        Request::Tend(done) => tends.push(done),
                    }
                    if batch_bytes < QUEUED_BYTES_MAX {
                        request = requests.try_recv().ok();
                    }
                }
            }
        }
    }
}

/// The outcome of the sync under way, the last of the segments that had ended, and who waits for it.
async fn outcome_of(syncing: &mut Option<Syncing>) -> (Outcome, Option<u64>, Waiters) {
    let Some(sync) = syncing else { return pending().await };
    let outcome = (&mut sync.outcome).await;
    let (ended, waiting) = syncing.take().map_or_else(Default::default, |sync| (sync.ended, sync.waiting));
    (outcome, ended, waiting)
}

/// The outcome of making the next segment.
async fn made(making: &mut Option<Append>) -> Outcome {
    match making {
        Some(making) => making.await,
        None => pending().await,
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
            recorded: start.recorded,
            is_opening: true,
            failed: start.failed.into_iter().map(|disk| (disk, Failed { since: now, is_full: false })).collect(),
            late: Late::default(),
            // Below every number of this lease, and above all of earlier ones.
            numbers: lease.term.0 << NUMBER_BITS,
            number: lease.term.0 << NUMBER_BITS,
            room: 0,
            next: 0,
            end: 0,
            is_for_room: false,
            in_reserve: BTreeSet::new(),
            reserve_refused: None,
            homes: BTreeMap::new(),
            ended: Ended::default(),
            intents: start.intents,
            unsynced_bytes: 0,
            syncing_bytes: 0,
            habit: Habit::default(),
            queue: VecDeque::new(),
            batches: VecDeque::new(),
            under_way: FuturesOrdered::new(),
            next_made: Next::default(),
            made_ahead_in: lease.term.0 << NUMBER_BITS,
            restoring: Restoring::default(),
            has_begun: false,
            previous: start.last,
            diffs,
        };
        // What was found is on as many disks as it should be before it is closed, and served.
        writer.restore_all().await?;
        writer.is_opening = false;
        writer.record(&[]).await?;
        if !writer.begin_segment().await?.is_new {
            return Err(LogFailure { reason: "no disk takes writes and has room for a segment of the log".to_owned() });
        }
        Ok(writer)
    }

    /// Does what waits. Upkeep first: it may leave nothing under way, and nothing would come to an end that lets the rest go on.
    async fn go_on(&mut self, tends: &mut Vec<Done<()>>) -> Result<(), LogFailure> {
        while let Some(done) = tends.pop() {
            let tended = self.tend().await;
            answer(done, tended.clone());
            tended?;
        }
        self.append_queued().await?;
        self.make_ahead().await
    }

    fn segment(&self) -> SegmentId {
        SegmentId { owner: self.lease.owner, number: self.number }
    }

    /// This disk gets no segment for a while.
    fn fail(&mut self, disk: DiskId, error: &SegmentError) {
        let is_full = matches!(error, SegmentError::DiskFull { .. });
        self.failed.insert(disk, Failed { since: self.env.clock.now(), is_full });
    }

    /// Takes the disks that failed out of every segment. Whether there were any.
    fn lose(&mut self, outcomes: Outcome) -> Result<bool, LogFailure> {
        let mut lost = false;
        for (disk, outcome) in outcomes {
            match outcome {
                Ok(()) => {}
                Err(error @ SegmentError::Fenced { .. }) => return Err(LogFailure { reason: error.to_string() }),
                Err(error) => {
                    tracing::warn!(%disk, %error, "a volume's log goes on without a disk");
                    lost = true;
                    self.fail(disk, &error);
                    self.homes.remove(&disk);
                    self.ended.lose(disk);
                    self.view.leave(disk, self.numbers);
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

    /// Makes the volume's record say which disks may have a segment, `more` among them, and on how many of them, and of their nodes,
    /// each is at least. At any time all that is acknowledged is on that many of these disks and nodes.
    async fn record(&mut self, more: &[DiskId]) -> Result<(), LogFailure> {
        if let Some((segment, _)) = self.view.segments().iter().find(|(_, segment)| segment.disks.is_empty()) {
            // With no copies to miss, an opening would do without it.
            return Err(LogFailure { reason: format!("no disk has segment {segment} of the log any more") });
        }
        let mut log = self.spread();
        if self.is_opening {
            // With the nodes that were counted.
            log.disks.extend(self.recorded.disks.clone());
            (log.copies, log.nodes) = (self.recorded.copies, self.recorded.nodes);
        }
        for disk in self.view.ahead().into_iter().chain(self.restoring.disks()).chain(more.iter().copied()) {
            log.disks.entry(disk).or_insert_with(|| self.node_of(disk));
        }
        if log == self.recorded {
            return Ok(());
        }
        let recorded = self.meta.set_log(self.lease, log.clone()).await;
        recorded.map_err(|error| LogFailure { reason: format!("the log's disks cannot be recorded: {error}") })?;
        self.recorded = log;
        Ok(())
    }

    /// The disks that the log is on, and on how many of them and of their nodes each segment is at least. Without disks that
    /// are not there, if the others have everything: a restart must not wait for them.
    fn spread(&self) -> LogRecord {
        let segments = self.view.segments();
        let there = |disk: &&DiskId| self.stores.stores.readable(**disk).is_some();
        let does_without = segments.values().all(|segment| segment.disks.iter().any(|disk| there(&disk)));
        let counted = |segment: &Segment| -> Vec<DiskId> {
            segment.disks.iter().filter(|disk| !does_without || there(disk)).copied().collect()
        };
        let counted: Vec<Vec<DiskId>> = segments.values().map(counted).collect();
        let copies = counted.iter().map(Vec::len).min().unwrap_or(0).min(self.settings.copies);
        let disks: BTreeMap<DiskId, Option<NodeId>> =
            counted.iter().flatten().map(|disk| (*disk, self.node_of(*disk))).collect();
        let nodes =
            |kept: &Vec<DiskId>| kept.iter().filter_map(|disk| disks[disk].as_ref()).collect::<BTreeSet<_>>().len();
        let nodes = counted.iter().map(nodes).min().unwrap_or(0);
        LogRecord { disks, copies: copies as u16, nodes: nodes as u16 }
    }

    /// The label of a disk's node now.
    fn node_of(&self, disk: DiskId) -> Option<NodeId> {
        Some(self.stores.stores.member(disk)?.record.node)
    }

    /// The sync that is due, if somebody wants one or will want it, or much is not synced. First the log says what is.
    fn next_sync(&mut self, wanted: &mut Waiters) -> Option<Syncing> {
        let is_expected = self.unsynced_bytes > 0 && self.habit.expects_flush();
        let is_due = !wanted.is_empty() || is_expected || self.unsynced_bytes >= UNSYNCED_BYTES_MAX;
        if self.ended.is_untold() || !is_due || self.has_left() {
            return None;
        }
        Some(Syncing { ended: self.ended.last(), outcome: self.sync(), waiting: std::mem::take(wanted) })
    }

    /// A sync of all that is not synced.
    fn sync(&mut self) -> Append {
        let unsynced_bytes = std::mem::take(&mut self.unsynced_bytes);
        if unsynced_bytes == 0 && self.ended.last().is_none() {
            return async { Vec::new() }.boxed();
        }
        self.syncing_bytes += unsynced_bytes;
        let ended = self.ended.segments().map(|(number, homes)| {
            let disks = self.view.segments().get(&number).map(|segment| segment.disks.clone()).unwrap_or_default();
            let homes = homes.iter().filter(|(disk, _)| disks.contains(disk)).map(|(disk, home)| (*disk, home.clone()));
            (number, homes.collect())
        });
        let segments: Vec<_> = ended.chain([(self.number, self.homes.clone())]).collect();
        let syncs: Vec<_> = segments.into_iter().map(|(number, homes)| self.sync_segment(number, &homes)).collect();
        async { join_all(syncs).await.into_iter().flatten().collect() }.boxed()
    }

    /// A sync of a segment on these disks.
    fn sync_segment(&self, number: u64, homes: &BTreeMap<DiskId, Arc<dyn ChunkStore>>) -> Append {
        let lease = self.lease;
        let asked = homes.iter().map(|(&disk, home)| {
            let (stores, home) = (self.stores.clone(), self.still_there(disk, home));
            let sync =
                async move { stores.in_time(disk, async { home?.segments().sync_segment(number, lease).await }).await };
            (disk, sync.boxed())
        });
        self.all_but_late(asked.collect())
    }

    /// The outcome of what these disks were asked, without waiting for those that are late.
    fn all_but_late(&self, asked: Vec<Asked>) -> Append {
        all_but_late(self.env.clone(), self.late.clone(), self.patience(), asked).boxed()
    }

    /// How long disks are waited for. Where much is not synced, or is being copied, a slow one may have that to do first. Where copies
    /// are missing all are waited for.
    fn patience(&self) -> Patience {
        let limit = self.settings.timeout;
        let fewest = self.settings.copies.saturating_sub(1).max(COPIES_LEFT_MIN);
        if self.view.segments().values().any(|segment| segment.disks.len() < fewest) {
            return Patience { for_others: limit, fewest, limit };
        }
        let bytes = self.unsynced_bytes + self.syncing_bytes + self.restoring.bytes();
        let for_others = self.settings.late_after + Duration::from_secs_f64(bytes as f64 / SYNCED_PER_SECOND);
        Patience { for_others: for_others.min(limit), fewest, limit }
    }

    /// The store that took a segment on a disk, if it is still the one that is there.
    fn still_there(&self, disk: DiskId, home: &Arc<dyn ChunkStore>) -> Result<Arc<dyn ChunkStore>, SegmentError> {
        let there = self.stores.stores.readable(disk);
        there.filter(|store| Arc::ptr_eq(home, store)).ok_or_else(|| gone(disk))
    }

    /// What a sync means for the log: the segments up to `ended` are synced too.
    async fn synced(&mut self, outcome: Outcome, ended: Option<u64>) -> Result<(), LogFailure> {
        self.syncing_bytes = 0;
        let lost = self.lose(outcome)?;
        self.ended.synced(ended);
        if lost {
            self.record(&[]).await?;
            self.begin_segment().await?;
            self.restore().await?;
        }
        Ok(())
    }

    /// Syncs all that is in effect, also what a sync under way may have taken on, and returns whether a disk was lost.
    async fn sync_all(&mut self) -> Result<bool, LogFailure> {
        self.unsynced_bytes += 1;
        let ended = self.ended.last();
        let outcome = self.sync().await;
        self.syncing_bytes = 0;
        let lost = self.lose(outcome)?;
        self.ended.synced(ended);
        if lost {
            self.record(&[]).await?;
        }
        Ok(lost)
    }
}

impl Waiters {
    fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.untold.is_empty()
    }

    fn into_iter(self) -> impl Iterator<Item = Done<()>> {
        self.untold.into_iter().chain(self.asked)
    }
}

fn gone(disk: DiskId) -> SegmentError {
    SegmentError::Unavailable { disk, reason: "the disk went away".to_owned() }
}

/// A disk that failed gets no segment for so long.
const FAILED_FOR: Duration = Duration::from_secs(30);
const QUEUED_BYTES_MAX: usize = 1 << 20;
/// No disk is late where fewer copies would be left.
const COPIES_LEFT_MIN: usize = 2;
/// Bytes that a slow disk syncs in a second.
const SYNCED_PER_SECOND: f64 = (64 << 20) as f64;
/// A sync begins by itself, so that a flush has no more to wait for. Each holds up the writes that meet it; a file system writes back by itself
/// meanwhile, and holds up nobody.
const UNSYNCED_BYTES_MAX: u64 = 512 << 20;
