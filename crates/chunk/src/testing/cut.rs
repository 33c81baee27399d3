//! Stores that stop answering at a chosen change: a crash as the process sees it, at each step of what it does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use claystone_env::Space;

use super::traps::Trap;
use super::{MemoryStore, Traps};
use crate::{
    ByteRange, ChunkError, ChunkId, ChunkInfo, ChunkStore, ChunkWriter, DiskId, Durability, Lease, Load, Overwrite,
    OwnerId, SegmentError, SegmentId, SegmentInfo, SegmentStore, StoreState, Verdict,
};

/// When all stores of a process stop answering: a crash, seen from the process.
#[derive(Debug, Clone, Default)]
pub struct Cut(Arc<CutState>);

#[derive(Debug, Default)]
struct CutState {
    calls: AtomicU64,
    /// The number of the call that is cut, and whether it still happens.
    at: Mutex<Option<(u64, bool)>>,
    is_cut: AtomicBool,
    /// A disk that fails every change from this call on.
    killed: Mutex<Option<(DiskId, u64)>>,
    /// Whether it reads no chunk either.
    reads_nothing: AtomicBool,
    /// Bytes of segments that do not read, until they are written again.
    bad: Mutex<Vec<(DiskId, u64)>>,
    reached: tokio::sync::Notify,
    /// The change from which on all wait, and whether that one happens before it waits.
    stopped: Mutex<Option<(u64, bool)>>,
    goes_on: Trap,
    /// Reads of chunks wait for it.
    reads: Arc<tokio::sync::RwLock<()>>,
}

impl Cut {
    /// They stop now.
    pub fn now(&self) {
        self.0.is_cut.store(true, Ordering::Release);
    }

    /// Changes asked for so far.
    pub fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::Acquire)
    }

    /// The change of this number is the last: it happens or not, and nobody hears.
    pub fn set(&self, call: u64, happens: bool) {
        *self.0.at.lock().unwrap_or_else(PoisonError::into_inner) = Some((call, happens));
    }

    /// The process stands still at the change of this number, without knowing it: that one happens at once or, like all after
    /// it, when the process goes on.
    pub fn stop(&self, call: u64, happens: bool) {
        *self.0.stopped.lock().unwrap_or_else(PoisonError::into_inner) = Some((call, happens));
        self.0.goes_on.set();
    }

    /// Lets a process go on that stands still.
    pub fn go_on(&self) {
        *self.0.stopped.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.0.goes_on.open();
    }

    /// This disk fails every change from this call on.
    pub fn kill(&self, disk: usize, call: u64) {
        *self.0.killed.lock().unwrap_or_else(PoisonError::into_inner) = Some((DiskId(disk as u128), call));
    }

    /// The same, and from then on it reads no chunk either.
    pub fn kill_reads_too(&self, disk: usize, call: u64) {
        self.0.reads_nothing.store(true, Ordering::Release);
        self.kill(disk, call);
    }

    fn is_killed(&self, disk: DiskId, call: u64) -> bool {
        let killed = *self.0.killed.lock().unwrap_or_else(PoisonError::into_inner);
        killed.is_some_and(|(killed, from)| killed == disk && call >= from)
    }

    /// No disk fails any more.
    pub fn heal(&self) {
        self.0.reads_nothing.store(false, Ordering::Release);
        *self.0.killed.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// No chunk is read until this is dropped.
    pub async fn hold_reads(&self) -> tokio::sync::OwnedRwLockWriteGuard<()> {
        self.0.reads.clone().write_owned().await
    }

    /// This byte of a disk's segments does not read, until one is appended over it.
    pub fn spoil(&self, disk: usize, offset: u64) {
        self.0.bad.lock().unwrap_or_else(PoisonError::into_inner).push((DiskId(disk as u128), offset));
    }

    fn is_bad(&self, disk: DiskId, ranges: &[ByteRange]) -> bool {
        let bad = self.0.bad.lock().unwrap_or_else(PoisonError::into_inner);
        let hits = |at: u64| ranges.iter().any(|range| range.offset <= at && at < range.end());
        bad.iter().any(|(spoiled, at)| *spoiled == disk && hits(*at))
    }

    fn appended(&self, disk: DiskId, range: ByteRange) {
        let mut bad = self.0.bad.lock().unwrap_or_else(PoisonError::into_inner);
        bad.retain(|(spoiled, at)| *spoiled != disk || *at < range.offset || *at >= range.end());
    }

    /// Waits until the cut is there, or the process stands still.
    pub async fn reached(&self) {
        self.0.reached.notified().await;
    }

    async fn change<T>(
        &self,
        disk: DiskId,
        change: impl Future<Output = T>,
        dead: impl FnOnce(DiskId, String) -> T,
    ) -> T {
        if self.0.is_cut.load(Ordering::Acquire) {
            return std::future::pending().await;
        }
        let call = self.0.calls.fetch_add(1, Ordering::AcqRel);
        let cut = self.0.at.lock().unwrap_or_else(PoisonError::into_inner).filter(|(at, _)| *at == call);
        if let Some((_, happens)) = cut {
            self.now();
            if happens {
                change.await;
            }
            self.0.reached.notify_one();
            return std::future::pending().await;
        }
        if self.is_killed(disk, call) {
            return dead(disk, "killed by the test".to_owned());
        }
        let stopped = self.0.stopped.lock().unwrap_or_else(PoisonError::into_inner).filter(|(at, _)| call >= *at);
        let result = match stopped {
            None => change.await,
            Some((at, true)) if at == call => {
                let result = change.await;
                self.0.reached.notify_one();
                self.0.goes_on.pass().await;
                result
            }
            Some(_) => {
                self.0.reached.notify_one();
                self.0.goes_on.pass().await;
                change.await
            }
        };
        if self.0.is_cut.load(Ordering::Acquire) {
            return std::future::pending().await;
        }
        result
    }
}

/// A store in memory that stops answering at a cut.
#[derive(Debug, Clone)]
pub struct CutStore {
    inner: MemoryStore,
    cut: Cut,
    traps: Traps,
}

impl CutStore {
    /// `inner`, which stops answering at `cut`, and whose calls fall into `traps`.
    pub fn new(inner: MemoryStore, cut: Cut, traps: Traps) -> CutStore {
        CutStore { inner, cut, traps }
    }
}

struct CutWriter {
    disk: DiskId,
    inner: Box<dyn ChunkWriter>,
    cut: Cut,
}

#[async_trait]
impl ChunkWriter for CutWriter {
    async fn append(&mut self, bytes: Bytes) -> Result<(), ChunkError> {
        self.inner.append(bytes).await
    }

    async fn commit(self: Box<Self>, durability: Durability) -> Result<(), ChunkError> {
        self.cut.change(self.disk, self.inner.commit(durability), chunk_dead).await
    }
}

#[async_trait]
impl ChunkStore for CutStore {
    fn disk(&self) -> DiskId {
        self.inner.disk()
    }

    fn segments(&self) -> &dyn SegmentStore {
        self
    }

    async fn create(&self, id: ChunkId, bytes: u64) -> Result<Box<dyn ChunkWriter>, ChunkError> {
        let inner = self.inner.create(id, bytes).await?;
        Ok(Box::new(CutWriter { disk: self.disk(), inner, cut: self.cut.clone() }))
    }

    async fn read(&self, id: ChunkId, ranges: &[ByteRange]) -> Result<Vec<Bytes>, ChunkError> {
        drop(self.cut.0.reads.read().await);
        if self.cut.0.reads_nothing.load(Ordering::Acquire) && self.cut.is_killed(self.disk(), self.cut.calls()) {
            return chunk_dead(self.disk(), "killed by the test".to_owned());
        }
        self.inner.read(id, ranges).await
    }

    async fn overwrite(&self, id: ChunkId, lease: Lease, changes: &[Overwrite]) -> Result<(), ChunkError> {
        self.traps.pass_overwrite().await;
        self.cut.change(self.disk(), self.inner.overwrite(id, lease, changes), chunk_dead).await
    }

    async fn take_space(&self, id: ChunkId) -> Result<(), ChunkError> {
        if self.traps.has_no_space_for_zeros() {
            return Err(ChunkError::DiskFull { disk: self.disk(), needed_bytes: 1, free_bytes: 0 });
        }
        self.cut.change(self.disk(), self.inner.take_space(id), chunk_dead).await
    }

    async fn info(&self, id: ChunkId) -> Result<ChunkInfo, ChunkError> {
        self.inner.info(id).await
    }

    async fn verify(&self, id: ChunkId) -> Result<Verdict, ChunkError> {
        self.inner.verify(id).await
    }

    async fn delete(&self, id: ChunkId) -> Result<(), ChunkError> {
        self.cut.change(self.disk(), self.inner.delete(id), chunk_dead).await
    }

    async fn list(&self, after: Option<ChunkId>, limit: usize) -> Result<Vec<ChunkId>, ChunkError> {
        self.inner.list(after, limit).await
    }

    async fn sync(&self) -> Result<(), ChunkError> {
        self.cut.change(self.disk(), self.inner.sync(), chunk_dead).await
    }

    async fn space(&self) -> Result<Space, ChunkError> {
        self.inner.space().await
    }

    fn load(&self) -> Load {
        self.inner.load()
    }

    fn state(&self) -> StoreState {
        self.inner.state()
    }
}

#[async_trait]
impl SegmentStore for CutStore {
    async fn fence(&self, lease: Lease) -> Result<(), SegmentError> {
        self.cut.change(self.disk(), self.inner.segments().fence(lease), segment_dead).await
    }

    async fn create_segment(&self, number: u64, lease: Lease, bytes: u64) -> Result<(), SegmentError> {
        self.traps.creates().pass().await;
        self.cut.change(self.disk(), self.inner.segments().create_segment(number, lease, bytes), segment_dead).await
    }

    async fn create_segment_in_reserve(&self, number: u64, lease: Lease, bytes: u64) -> Result<(), SegmentError> {
        if self.traps.is_reserve_full() {
            return Err(SegmentError::DiskFull { disk: self.disk(), needed_bytes: bytes, free_bytes: 0 });
        }
        self.create_segment(number, lease, bytes).await
    }

    async fn reopen_segment(&self, number: u64, lease: Lease, end: u64) -> Result<(), SegmentError> {
        self.cut.change(self.disk(), self.inner.segments().reopen_segment(number, lease, end), segment_dead).await
    }

    async fn append(&self, number: u64, lease: Lease, offset: u64, content: Bytes) -> Result<(), SegmentError> {
        if !self.traps.pass_append(self.disk()).await {
            return segment_dead(self.disk(), "the test wants it".to_owned());
        }
        self.cut.appended(self.disk(), ByteRange { offset, bytes: content.len() as u64 });
        self.cut.change(self.disk(), self.inner.segments().append(number, lease, offset, content), segment_dead).await
    }

    async fn sync_segment(&self, number: u64, lease: Lease) -> Result<(), SegmentError> {
        self.traps.syncs().pass().await;
        let synced =
            self.cut.change(self.disk(), self.inner.segments().sync_segment(number, lease), segment_dead).await;
        self.traps.synced().pass().await;
        synced
    }

    async fn read_segment(&self, id: SegmentId, ranges: &[ByteRange]) -> Result<Vec<Bytes>, SegmentError> {
        if self.cut.is_bad(self.disk(), ranges) {
            return Err(SegmentError::Damaged { id, reason: "spoiled by the test".to_owned() });
        }
        self.traps.log_reads().pass().await;
        let read = self.inner.segments().read_segment(id, ranges).await?;
        Ok(read.into_iter().map(|read| self.traps.spoiled(self.disk(), read)).collect())
    }

    async fn delete_segment(&self, number: u64, lease: Lease) -> Result<(), SegmentError> {
        self.traps.deletes().pass().await;
        self.cut.change(self.disk(), self.inner.segments().delete_segment(number, lease), segment_dead).await
    }

    async fn segments(&self, owner: OwnerId) -> Result<Vec<SegmentInfo>, SegmentError> {
        self.inner.segments().segments(owner).await
    }

    async fn owners(&self) -> Result<Vec<OwnerId>, SegmentError> {
        self.inner.segments().owners().await
    }

    async fn forget_owner(&self, lease: Lease) -> Result<(), SegmentError> {
        self.traps.forgets().pass().await;
        self.cut.change(self.disk(), self.inner.segments().forget_owner(lease), segment_dead).await
    }
}

fn chunk_dead<T>(disk: DiskId, reason: String) -> Result<T, ChunkError> {
    Err(ChunkError::Unavailable { disk, reason })
}

fn segment_dead<T>(disk: DiskId, reason: String) -> Result<T, SegmentError> {
    Err(SegmentError::Unavailable { disk, reason })
}
