//! The log of an open volume: records appended to segments on several disks at once.
//!
//! One task appends; whoever has a record hands it over and waits. What waits together is appended together, in short
//! batches, several of which are under way at once. Syncs run beside appends, one after another: whoever asks during one
//! waits for it if nothing came into effect since it began, and else for the next. Behind the writes of who flushes each of
//! them it begins by itself.
//!
//! ```text
//!  append --> waiting --task: encoded, appended on every disk--> there --all before it too--> in effect (diffs know it)
//!                                                                                        --sync--> durable
//! ```
//!
//! Invariants:
//! 1. A record is in effect only when every disk of its segment that has not failed has it, and all records before it.
//! 2. The diffs take records in the order of the log.
//! 3. A segment is whole on every disk that keeps it before the next one begins, and a sync is of all segments that are not synced. So
//!    after a crash those can miss records that no record says are synced: copies may have a gap, and what lies behind the
//!    first record that no copy has, in this segment and in later ones, was never flushed.
//! 4. After [`LogFailure`] nothing more is appended: the volume is opened anew.
//! 5. A disk is among the volume's recorded log disks before it gets a segment, and a segment has no fewer copies, and is on no
//!    fewer nodes, than recorded when what it holds is acknowledged.
//! 6. A disk that does not answer in time has failed; one that is late while others have answered is left as if it had.
//! 7. Where too few disks have room for the next segment, records are refused and the log goes on as it is. No change is acknowledged
//!    and nothing is merged in place on fewer copies because disks are full; where they are absent or failed it is. What makes
//!    room may take the reserve of disks for a while.
//!
//! A disk that fails leaves its segments with fewer copies. The log goes on in a new segment on disks that work, and beside
//! that what misses copies is copied. The next segment is made before this one is full, and this one is synced when somebody
//! flushes, or much is not synced: else the end of a segment would hold up writers for as long as that takes.

pub mod record;
mod recovery;
mod view;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use claystone_chunk::{DiskId, Lease, SegmentId, Term};
use claystone_env::Env;
use claystone_meta::{LogRecord, Meta};
use claystone_stripe::Stores;
use futures::FutureExt;
use tokio::sync::{mpsc, oneshot};

use self::record::{LogPlace, Record};
pub use self::recovery::Recovery;
pub use self::view::{LogView, Segment, TimedStores};
use self::writer::{Done, Request, Waiting, Writer, run};
use crate::diffs::Diffs;
use crate::gate::Pass;

/// What a log needs to know.
#[derive(Debug, Clone)]
pub struct LogSettings {
    /// Bytes of each segment.
    pub segment_bytes: u64,
    /// The least, where disks are nearly full.
    pub segment_bytes_min: u64,
    /// On how many disks each is, where there are so many.
    pub copies: usize,
    /// Bytes of the volume's pages.
    pub page_bytes: u32,
    /// How long a disk may take to answer.
    pub timeout: Duration,
    /// And how much longer than others.
    pub late_after: Duration,
}

/// The log takes nothing more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct LogFailure {
    /// What was seen.
    pub reason: String,
}

/// The log. Calls may come from many tasks. The task that appends ends when this is dropped.
#[derive(Debug)]
pub struct Log {
    view: LogView,
    diffs: Arc<Mutex<Diffs>>,
    requests: mpsc::Sender<Request>,
    /// On how many disks each segment is to be.
    copies: usize,
}

/// Where a log goes on: after what was found of it.
#[derive(Debug, Clone)]
pub struct LogStart {
    /// Segments that are not over.
    pub segments: BTreeMap<u64, Segment>,
    /// The last of them, and where it ends.
    pub last: Option<LogPlace>,
    /// Where the log is, as the volume's record says.
    pub recorded: LogRecord,
    /// Disks that failed just now.
    pub failed: BTreeSet<DiskId>,
    /// Intents that have no end yet.
    pub intents: u64,
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
        let copies = settings.copies;
        let writer = Writer::start(env, meta, stores, lease, settings, start, diffs.clone()).await?;
        let view = writer.view().clone();
        let (requests, receiver) = mpsc::channel(REQUESTS_MAX);
        env.tasks.spawn("volume log", run(writer, receiver).boxed());
        Ok(Log { view, diffs, requests, copies })
    }

    /// Segments that are on disks which take no writes, or on fewer others than they are to be, and their disks: [`Log::tend`] gives
    /// them others, if there are some.
    pub fn unwell(&self) -> Vec<(u64, Vec<DiskId>)> {
        self.view.unwell(self.copies)
    }

    /// On how many disks each segment is to be.
    pub fn copies(&self) -> usize {
        self.copies
    }

    /// The log as readers know it.
    pub fn view(&self) -> &LogView {
        &self.view
    }

    /// Adds a record: when this returns it is in effect. If it is dropped before, the record may be added yet. `None`: the
    /// disks are too full for it, and nothing was added.
    ///
    /// # Errors
    /// Whether the record was added is unknown.
    pub async fn append(&self, record: Record) -> Result<Option<LogPlace>, LogFailure> {
        self.ask(|done| Request::Append(record, Waiting { done, _pass: None })).await
    }

    /// The same of who has a pass for the record's pages: it is given back when the record is in effect, or will not be.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub(crate) async fn append_with(&self, record: Record, pass: Pass) -> Result<Option<LogPlace>, LogFailure> {
        self.ask(|done| Request::Append(record, Waiting { done, _pass: Some(pass) })).await
    }

    /// Adds that an intent is carried out, or will not be: for that there is room always.
    ///
    /// # Errors
    /// As [`Log::append`].
    pub async fn end(&self, intent: LogPlace) -> Result<(), LogFailure> {
        let ended = self.append(Record::Merged { intent: Some(intent), diffs: Vec::new() }).await?;
        ended.map(|_| ()).ok_or_else(|| LogFailure { reason: "an intent's end found no room".to_owned() })
    }

    /// Makes durable every record whose `append` returned before this was called, or was dropped.
    ///
    /// # Errors
    /// It is not certain that they are.
    pub async fn sync(&self) -> Result<(), LogFailure> {
        self.ask(Request::Sync).await
    }

    /// Deletes the segments that nothing needs, and begins to copy those that miss copies. Appends go on beside it. One caller
    /// at a time.
    ///
    /// # Errors
    /// The log failed.
    pub async fn tend(&self) -> Result<(), LogFailure> {
        self.view.fence_again().await?;
        self.trim().await?;
        self.view.delete_left().await;
        self.ask(Request::Tend).await
    }

    /// Ends and deletes the segments before the oldest one that is needed.
    async fn trim(&self) -> Result<(), LogFailure> {
        // The last one first: all that takes effect from then on is in it or in a later one, and those before it are as the diffs say.
        let Some(last) = self.view.last() else { return Ok(()) };
        let oldest = self.diffs.lock().unwrap_or_else(PoisonError::into_inner).oldest_live();
        let below = oldest.unwrap_or(last).min(last);
        let over = self.view.numbers_below(below);
        if over.is_empty() {
            return Ok(());
        }
        // First it is durable that they are over: they may be back after a crash, and one without the others.
        if self.append(Record::Over { below }).await?.is_none() {
            return Ok(());
        }
        self.sync().await?;
        for number in over {
            // It may have got another copy meanwhile.
            let segment = self.view.segments().remove(&number);
            let disks = segment.map(|segment| segment.disks).unwrap_or_default();
            self.view.delete(number, &disks).await;
        }
        Ok(())
    }

    async fn ask<T>(&self, request: impl FnOnce(Done<T>) -> Request) -> Result<T, LogFailure> {
        let (done, answer) = oneshot::channel();
        let stopped = || LogFailure { reason: "the volume is closed".to_owned() };
        self.requests.send(request(done)).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
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

/// The term of the lease that a segment was made under.
pub(crate) fn term_of(number: u64) -> Term {
    Term(number >> NUMBER_BITS)
}

/// Numbers of a lease's segments: its term, then so many bits that count.
const NUMBER_BITS: u32 = 24;
const REQUESTS_MAX: usize = 1024;
