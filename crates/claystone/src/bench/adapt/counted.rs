//! A store that counts what is read from it and written to it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use claystone_chunk::{
    ByteRange, ChunkError, ChunkId, ChunkInfo, ChunkStore, ChunkWriter, DiskId, Durability, Lease, Load, Overwrite,
    SegmentStore, StoreState, Verdict,
};
use claystone_env::Space;

/// What stores did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes read of each chunk, as they were asked for.
    pub read: BTreeMap<(DiskId, ChunkId), u64>,
    /// Bytes written of each chunk.
    pub written: BTreeMap<(DiskId, ChunkId), u64>,
    /// Bytes read back to see that they are there.
    pub verified_bytes: u64,
}

impl Counts {
    /// Bytes read of all chunks.
    pub fn read_bytes(&self) -> u64 {
        self.read.values().sum()
    }

    /// Bytes written of all chunks.
    pub fn written_bytes(&self) -> u64 {
        self.written.values().sum()
    }
}

/// Counts of several stores together. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<Mutex<Counts>>);

impl Tally {
    /// A store that counts here.
    pub fn around(&self, inner: Arc<dyn ChunkStore>) -> Arc<dyn ChunkStore> {
        Arc::new(Counted { inner, tally: self.clone() })
    }

    /// What was done since the last call.
    pub fn take(&self) -> Counts {
        std::mem::take(&mut *self.counts())
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Counted {
    inner: Arc<dyn ChunkStore>,
    tally: Tally,
}

struct CountedWriter {
    inner: Box<dyn ChunkWriter>,
    chunk: (DiskId, ChunkId),
    tally: Tally,
}

#[async_trait]
impl ChunkWriter for CountedWriter {
    async fn append(&mut self, bytes: Bytes) -> Result<(), ChunkError> {
        *self.tally.counts().written.entry(self.chunk).or_default() += bytes.len() as u64;
        self.inner.append(bytes).await
    }

    async fn commit(self: Box<Self>, durability: Durability) -> Result<(), ChunkError> {
        self.inner.commit(durability).await
    }
}

#[async_trait]
impl ChunkStore for Counted {
    fn disk(&self) -> DiskId {
        self.inner.disk()
    }

    async fn create(&self, id: ChunkId, bytes: u64) -> Result<Box<dyn ChunkWriter>, ChunkError> {
        let inner = self.inner.create(id, bytes).await?;
        Ok(Box::new(CountedWriter { inner, chunk: (self.disk(), id), tally: self.tally.clone() }))
    }

    async fn read(&self, id: ChunkId, ranges: &[ByteRange]) -> Result<Vec<Bytes>, ChunkError> {
        let buffers = self.inner.read(id, ranges).await?;
        let bytes: u64 = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        *self.tally.counts().read.entry((self.disk(), id)).or_default() += bytes;
        Ok(buffers)
    }

    async fn overwrite(&self, id: ChunkId, lease: Lease, changes: &[Overwrite]) -> Result<(), ChunkError> {
        let bytes: u64 = changes.iter().map(|change| change.bytes.len() as u64).sum();
        *self.tally.counts().written.entry((self.disk(), id)).or_default() += bytes;
        self.inner.overwrite(id, lease, changes).await
    }

    async fn take_space(&self, id: ChunkId) -> Result<(), ChunkError> {
        self.inner.take_space(id).await
    }

    async fn info(&self, id: ChunkId) -> Result<ChunkInfo, ChunkError> {
        self.inner.info(id).await
    }

    async fn verify(&self, id: ChunkId) -> Result<Verdict, ChunkError> {
        let verdict = self.inner.verify(id).await?;
        self.tally.counts().verified_bytes += verdict.bytes_read;
        Ok(verdict)
    }

    async fn delete(&self, id: ChunkId) -> Result<(), ChunkError> {
        self.inner.delete(id).await
    }

    async fn list(&self, after: Option<ChunkId>, limit: usize) -> Result<Vec<ChunkId>, ChunkError> {
        self.inner.list(after, limit).await
    }

    async fn sync(&self) -> Result<(), ChunkError> {
        self.inner.sync().await
    }

    async fn space(&self) -> Result<Space, ChunkError> {
        self.inner.space().await
    }

    fn segments(&self) -> &dyn SegmentStore {
        self.inner.segments()
    }

    fn load(&self) -> Load {
        self.inner.load()
    }

    fn state(&self) -> StoreState {
        self.inner.state()
    }
}
