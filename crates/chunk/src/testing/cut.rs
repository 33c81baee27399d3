//! Stores that stop answering at a chosen change of a chunk: a crash as the process sees it, at each step of what it does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use claystone_env::Space;

use super::MemoryStore;
use crate::{
    ByteRange, ChunkError, ChunkId, ChunkInfo, ChunkStore, ChunkWriter, DiskId, Durability, Lease, Load, Overwrite,
    SegmentStore, StoreState, Verdict,
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
    reached: tokio::sync::Notify,
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

    /// This disk fails every change from this call on.
    pub fn kill(&self, disk: usize, call: u64) {
        *self.0.killed.lock().unwrap_or_else(PoisonError::into_inner) = Some((DiskId(disk as u128), call));
    }

    /// Waits until the cut is there.
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
        let killed = *self.0.killed.lock().unwrap_or_else(PoisonError::into_inner);
        if killed.is_some_and(|(killed, from)| killed == disk && call >= from) {
            return dead(disk, "killed by the test".to_owned());
        }
        let result = change.await;
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
}

impl CutStore {
    /// `inner`, which stops answering at `cut`.
    pub fn new(inner: MemoryStore, cut: Cut) -> CutStore {
        CutStore { inner, cut }
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
        self.inner.segments()
    }

    async fn create(&self, id: ChunkId, bytes: u64) -> Result<Box<dyn ChunkWriter>, ChunkError> {
        let inner = self.inner.create(id, bytes).await?;
        Ok(Box::new(CutWriter { disk: self.disk(), inner, cut: self.cut.clone() }))
    }

    async fn read(&self, id: ChunkId, ranges: &[ByteRange]) -> Result<Vec<Bytes>, ChunkError> {
        self.inner.read(id, ranges).await
    }

    async fn overwrite(&self, id: ChunkId, lease: Lease, changes: &[Overwrite]) -> Result<(), ChunkError> {
        self.cut.change(self.disk(), self.inner.overwrite(id, lease, changes), chunk_dead).await
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

fn chunk_dead<T>(disk: DiskId, reason: String) -> Result<T, ChunkError> {
    Err(ChunkError::Unavailable { disk, reason })
}
