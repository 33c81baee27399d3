//! Snapshots: how one is taken, and how it is read.
//!
//! ```text
//!  writers        --- w1 --- w2 --- w3 ------------------------ w4 ------------------>     nobody waits
//!  diffs                  frozen here: w1, w2
//!  merges                            w1, w2 into stripes               w3, w4 ..
//!  records                                          the snapshot's spans
//! ```
//!
//! Invariants:
//! 1. A snapshot is the volume's pages as one place of the log left them: every write that was acknowledged before it began
//!    is in it, and none that was made after it returned.
//! 2. While one is taken, its diffs and no others are merged, and `merging` is held until its spans are recorded. So no
//!    stripe changes between its merge and the record; from the record on it is shared, and is not changed in place.
//! 3. A snapshot's stripes never change. Repair may move their chunks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use claystone_chunk::ByteRange;
use claystone_env::Clock;
use claystone_meta::{Meta, SnapshotRecord, StripeRecord};
use claystone_stripe::Stripes;
use futures::future::try_join_all;

use crate::base::Base;
use crate::blocks::Spans;
use crate::diffs::Diffs;
use crate::geometry::Geometry;
use crate::task::to_its_end;
use crate::volume::{Inner, Volume};
use crate::{Access, Blocks, BlocksError, Durable, Span, SpanKind, Stretch, VolumeError, Zeroing, within};

impl Volume {
    /// Takes a snapshot of what is in effect now. Writers go on meanwhile. In a task of its own: whoever waits for it may go
    /// away, and it is taken, or not.
    ///
    /// # Errors
    /// `Meta` (`SnapshotExists`, or the lease ended), `NotMerged`, `Blocks`.
    pub(crate) async fn snapshot(&self, name: &str) -> Result<SnapshotRecord, VolumeError> {
        // With the volume itself, so that nobody deletes it meanwhile.
        let (volume, name) = (self.clone(), name.to_owned());
        let taken =
            to_its_end(&self.inner.env, "snapshot", async move { volume.inner.take_snapshot(&name).await }).await;
        taken.unwrap_or_else(|| Err(BlocksError::Failed { reason: "the store is stopping".to_owned() }.into()))
    }
}

/// Merges take diffs of one moment only while this lives.
struct Frozen<'a>(&'a Mutex<Diffs>);

impl<'a> Frozen<'a> {
    fn new(diffs: &'a Mutex<Diffs>) -> Frozen<'a> {
        diffs.lock().unwrap_or_else(PoisonError::into_inner).freeze();
        Frozen(diffs)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).thaw();
    }
}

impl Inner {
    async fn take_snapshot(&self, name: &str) -> Result<SnapshotRecord, VolumeError> {
        let _merging = self.merging.lock().await;
        self.working()?;
        // The diffs take records in the order of the log and each of them whole: this is a place of the log.
        let _frozen = Frozen::new(&self.diffs);
        self.merge_frozen().await?;
        // That these merges are over is durable before others may own what they wrote: an opening writes nothing again.
        self.log.sync().await.map_err(|error| self.log_failed(error))?;
        let record = self.meta.create_snapshot(self.lease, name, self.env.clock.wall()).await?;
        // All stripes are shared now: what is written from here on is copied with them. Whose own one is again, once the snapshot is deleted, is
        // known when it is merged: no writer is held up by all of them at once.
        let positions: Vec<u64> = self.known.read().unwrap_or_else(PoisonError::into_inner).keys().copied().collect();
        let mut diffs = self.diffs();
        positions.into_iter().for_each(|position| diffs.set_begun(position, Some(0)));
        Ok(record)
    }

    /// Merges all diffs of the moment when they were frozen. The caller has `merging`.
    async fn merge_frozen(&self) -> Result<(), VolumeError> {
        let mut tries = 0;
        loop {
            let positions = self.diffs().frozen(ROUND_STRIPES);
            if positions.is_empty() {
                return Ok(());
            }
            let report = self.merge_stripes(&positions, u64::MAX).await?;
            if report.pages > 0 {
                tries = 0;
                continue;
            }
            // Who reads a stripe back or repairs it comes to an end; for disks, or what is lost, nobody waits.
            tries += 1;
            if tries == TRIES || report.stripes_held == 0 {
                let stripes = self.diffs().frozen(usize::MAX).len();
                return Err(VolumeError::NotMerged { name: self.record.name.clone(), stripes });
            }
            self.env.clock.sleep(PAUSE).await;
        }
    }
}

/// A snapshot to be read: a block device that takes no writes. Cheap to clone.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) inner: Arc<SnapshotInner>,
}

pub(crate) struct SnapshotInner {
    record: SnapshotRecord,
    base: Base,
    /// Stripes that were looked up, by window of [`WINDOW_STRIPES`] positions.
    windows: Mutex<BTreeMap<u64, Window>>,
}

/// The stripes of a few positions.
type Window = Arc<BTreeMap<u64, StripeRecord>>;

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({})", self.inner.record.full_name())
    }
}

impl Snapshot {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        meta: Arc<dyn Meta>,
        stripes: Stripes,
        record: SnapshotRecord,
    ) -> Snapshot {
        let geometry = Geometry {
            page_bytes: record.page_bytes,
            chunk_bytes: record.chunk_bytes,
            columns: record.redundancy.code.shape().data,
        };
        let base = Base { clock, meta, stripes, geometry };
        Snapshot { inner: Arc::new(SnapshotInner { record, base, windows: Mutex::default() }) }
    }

    /// Its record.
    pub fn record(&self) -> &SnapshotRecord {
        &self.inner.record
    }
}

impl SnapshotInner {
    async fn window(&self, number: u64) -> Result<Window, BlocksError> {
        if let Some(window) = self.windows.lock().unwrap_or_else(PoisonError::into_inner).get(&number) {
            return Ok(window.clone());
        }
        let positions = number * WINDOW_STRIPES..(number + 1) * WINDOW_STRIPES;
        let after = positions.start.checked_sub(1);
        let found = self.base.meta.snapshot_stripes(self.record.id, after, WINDOW_STRIPES as usize).await;
        let found = found.map_err(|error| self.unavailable(number, error.to_string()))?;
        let window: Window = Arc::new(found.into_iter().filter(|(position, _)| positions.contains(position)).collect());
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        if windows.len() >= WINDOWS_MAX {
            // Mostly it is read from its start to its end.
            windows.pop_first();
        }
        windows.insert(number, window.clone());
        Ok(window)
    }

    fn unavailable(&self, window: u64, reason: String) -> BlocksError {
        let bytes = WINDOW_STRIPES * self.base.geometry.stripe_bytes();
        BlocksError::Unavailable { range: ByteRange { offset: window * bytes, bytes }, reason }
    }

    /// Bytes of one chunk.
    async fn read_chunk(&self, range: ByteRange) -> Result<Stretch, BlocksError> {
        let position = self.base.geometry.spot(range.offset).position;
        let number = position / WINDOW_STRIPES;
        let window = self.window(number).await?;
        let Some(stripe) = window.get(&position) else { return Ok(Stretch::Hole(range.bytes)) };
        // Nobody changes a snapshot's stripes: one that is held was shared no more when this snapshot was deleted.
        let held = || BlocksError::Unavailable { range, reason: "somebody changes its stripe".to_owned() };
        let read = self.base.read(stripe, range, || Err(held())).await?;
        if read.current.is_some_and(|current| current.places != stripe.places) {
            // A repair moved its chunks: later reads find them.
            self.windows.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        }
        Ok(Stretch::Data(read.content))
    }
}

#[async_trait]
impl Blocks for Snapshot {
    fn bytes(&self) -> u64 {
        self.inner.record.bytes
    }

    fn page_bytes(&self) -> u32 {
        self.inner.record.page_bytes
    }

    fn access(&self) -> Access {
        Access::ReadOnly
    }

    async fn read(&self, range: ByteRange) -> Result<Vec<Stretch>, BlocksError> {
        within(range, self.bytes())?;
        let chunks = self.inner.base.geometry.chunks(range.offset..range.end());
        try_join_all(chunks.map(|chunk| self.inner.read_chunk(chunk))).await
    }

    async fn write(&self, _: u64, _: Bytes, _: Durable) -> Result<(), BlocksError> {
        Err(BlocksError::ReadOnly)
    }

    async fn write_zeroes(&self, _: ByteRange, _: Zeroing) -> Result<(), BlocksError> {
        Err(BlocksError::ReadOnly)
    }

    async fn flush(&self) -> Result<(), BlocksError> {
        Ok(())
    }

    async fn spans(&self, range: ByteRange, spans_max: usize) -> Result<Vec<Span>, BlocksError> {
        within(range, self.bytes())?;
        let geometry = &self.inner.base.geometry;
        let mut spans = Spans::new(spans_max);
        let mut at = range.offset;
        while at < range.end() {
            let position = geometry.spot(at).position;
            let end = ((position + 1) * geometry.stripe_bytes()).min(range.end());
            let window = self.inner.window(position / WINDOW_STRIPES).await?;
            let kind = if window.contains_key(&position) { SpanKind::Data } else { SpanKind::Hole };
            if !spans.push(end - at, kind) {
                break;
            }
            at = end;
        }
        Ok(spans.finish())
    }
}

/// Stripes merged in one round.
const ROUND_STRIPES: usize = 256;
/// Rounds that merge nothing before a snapshot is given up, and how long each waits.
const TRIES: usize = 100;
const PAUSE: Duration = Duration::from_millis(100);
/// Positions that are looked up at once.
const WINDOW_STRIPES: u64 = 64;
/// Windows that are remembered: records of 16,384 stripes.
const WINDOWS_MAX: usize = 256;
