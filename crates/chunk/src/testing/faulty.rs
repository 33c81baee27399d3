//! A store around a store: slow, failing or hanging on demand, and counting.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use claystone_env::{Clock, SectorHealth, Space};

use crate::{
    ByteRange, ChunkError, ChunkId, ChunkInfo, ChunkStore, ChunkWriter, DiskId, Durability, Lease, Load, Overwrite,
    OwnerId, SegmentError, SegmentId, SegmentInfo, SegmentStore, StoreState, Verdict,
};

/// What goes wrong. The default is nothing.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Each read, info, verify and list, of chunks and of segments, takes this much longer.
    pub read_delay: Duration,
    /// Each change and each sync, of chunks and of segments, takes this much longer.
    pub write_delay: Duration,
    /// What [`Faults::read_delay`] delays fails with this reason.
    pub reads_fail: Option<String>,
    /// What [`Faults::write_delay`] delays fails with this reason.
    pub writes_fail: Option<String>,
    /// This many more calls succeed, then every call fails, until this is set anew.
    pub fail_after: Option<u64>,
    /// Calls never end.
    pub hang: bool,
}

/// What was asked of a store and answered with success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Calls of `read` and of `read_segment`.
    pub reads: u64,
    /// Bytes that reads returned.
    pub bytes_read: u64,
    /// Chunks committed.
    pub commits: u64,
    /// Bytes appended, to chunks and to segments, and overwritten.
    pub bytes_written: u64,
}

/// A [`ChunkStore`] with [`Faults`] in front of another one.
pub struct FaultyStore {
    inner: Arc<dyn ChunkStore>,
    segments: FaultySegments,
    shared: Arc<Shared>,
}

struct FaultySegments {
    inner: Arc<dyn ChunkStore>,
    shared: Arc<Shared>,
}

struct Shared {
    disk: DiskId,
    clock: Arc<dyn Clock>,
    faults: Mutex<Faults>,
    reads: AtomicU64,
    bytes_read: AtomicU64,
    commits: AtomicU64,
    bytes_written: AtomicU64,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Read,
    Write,
}

impl FaultyStore {
    /// `inner`, without faults yet; delays pass on `clock`.
    pub fn new(inner: Arc<dyn ChunkStore>, clock: Arc<dyn Clock>) -> FaultyStore {
        let shared = Shared {
            disk: inner.disk(),
            clock,
            faults: Mutex::new(Faults::default()),
            reads: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            commits: AtomicU64::new(0),
            bytes_written: AtomicU64::new(0),
        };
        let shared = Arc::new(shared);
        let segments = FaultySegments { inner: inner.clone(), shared: shared.clone() };
        FaultyStore { inner, segments, shared }
    }

    /// Sets what goes wrong from now on.
    pub fn set(&self, faults: Faults) {
        *self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }

    /// What was done so far.
    pub fn counts(&self) -> Counts {
        Counts {
            reads: self.shared.reads.load(Ordering::Relaxed),
            bytes_read: self.shared.bytes_read.load(Ordering::Relaxed),
            commits: self.shared.commits.load(Ordering::Relaxed),
            bytes_written: self.shared.bytes_written.load(Ordering::Relaxed),
        }
    }
}

impl std::fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FaultyStore({:?})", self.inner)
    }
}

impl Shared {
    async fn pass(&self, kind: Kind) -> Result<(), ChunkError> {
        let disk = self.disk;
        self.meet(kind).await.map_err(|reason| ChunkError::Unavailable { disk, reason })
    }

    /// Meets what goes wrong; the error is the reason.
    async fn meet(&self, kind: Kind) -> Result<(), String> {
        let (faults, exhausted) = {
            let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
            let exhausted = faults.fail_after == Some(0);
            faults.fail_after = faults.fail_after.map(|left| left.saturating_sub(1));
            (faults.clone(), exhausted)
        };
        if faults.hang {
            std::future::pending::<()>().await;
        }
        let (delay, reason) = match kind {
            Kind::Read => (faults.read_delay, faults.reads_fail),
            Kind::Write => (faults.write_delay, faults.writes_fail),
        };
        if delay > Duration::ZERO {
            self.clock.sleep(delay).await;
        }
        let reason = reason.or_else(|| exhausted.then(|| "the test said so".to_owned()));
        reason.map_or(Ok(()), Err)
    }
}

#[async_trait]
impl ChunkStore for FaultyStore {
    fn disk(&self) -> DiskId {
        self.shared.disk
    }

    async fn create(&self, id: ChunkId, bytes: u64) -> Result<Box<dyn ChunkWriter>, ChunkError> {
        self.shared.pass(Kind::Write).await?;
        let inner = self.inner.create(id, bytes).await?;
        Ok(Box::new(FaultyWriter { inner, shared: self.shared.clone() }))
    }

    async fn read(&self, id: ChunkId, ranges: &[ByteRange]) -> Result<Vec<Bytes>, ChunkError> {
        self.shared.pass(Kind::Read).await?;
        let buffers = self.inner.read(id, ranges).await?;
        self.shared.reads.fetch_add(1, Ordering::Relaxed);
        let bytes: usize = buffers.iter().map(Bytes::len).sum();
        self.shared.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(buffers)
    }

    async fn overwrite(&self, id: ChunkId, lease: Lease, changes: &[Overwrite]) -> Result<(), ChunkError> {
        self.shared.pass(Kind::Write).await?;
        self.inner.overwrite(id, lease, changes).await?;
        let bytes: usize = changes.iter().map(|change| change.bytes.len()).sum();
        self.shared.bytes_written.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(())
    }

    async fn take_space(&self, id: ChunkId) -> Result<(), ChunkError> {
        self.shared.pass(Kind::Write).await?;
        self.inner.take_space(id).await
    }

    async fn info(&self, id: ChunkId) -> Result<ChunkInfo, ChunkError> {
        self.shared.pass(Kind::Read).await?;
        self.inner.info(id).await
    }

    async fn verify(&self, id: ChunkId) -> Result<Verdict, ChunkError> {
        self.shared.pass(Kind::Read).await?;
        self.inner.verify(id).await
    }

    async fn delete(&self, id: ChunkId) -> Result<(), ChunkError> {
        self.shared.pass(Kind::Write).await?;
        self.inner.delete(id).await
    }

    async fn list(&self, after: Option<ChunkId>, limit: usize) -> Result<Vec<ChunkId>, ChunkError> {
        self.shared.pass(Kind::Read).await?;
        self.inner.list(after, limit).await
    }

    async fn sync(&self) -> Result<(), ChunkError> {
        self.shared.pass(Kind::Write).await?;
        self.inner.sync().await
    }

    async fn space(&self) -> Result<Space, ChunkError> {
        self.inner.space().await
    }

    fn segments(&self) -> &dyn SegmentStore {
        &self.segments
    }

    fn load(&self) -> Load {
        self.inner.load()
    }

    fn state(&self) -> StoreState {
        self.inner.state()
    }

    fn sectors(&self) -> Option<SectorHealth> {
        self.inner.sectors()
    }
}

impl FaultySegments {
    async fn pass(&self, kind: Kind) -> Result<&dyn SegmentStore, SegmentError> {
        let disk = self.shared.disk;
        let met = self.shared.meet(kind).await;
        met.map(|()| self.inner.segments()).map_err(|reason| SegmentError::Unavailable { disk, reason })
    }
}

impl std::fmt::Debug for FaultySegments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FaultySegments({:?})", self.inner)
    }
}

#[async_trait]
impl SegmentStore for FaultySegments {
    async fn fence(&self, lease: Lease) -> Result<(), SegmentError> {
        self.pass(Kind::Write).await?.fence(lease).await
    }

    async fn create_segment(&self, number: u64, lease: Lease, bytes: u64) -> Result<(), SegmentError> {
        self.pass(Kind::Write).await?.create_segment(number, lease, bytes).await
    }

    async fn reopen_segment(&self, number: u64, lease: Lease, end: u64) -> Result<(), SegmentError> {
        self.pass(Kind::Write).await?.reopen_segment(number, lease, end).await
    }

    async fn append(&self, number: u64, lease: Lease, offset: u64, content: Bytes) -> Result<(), SegmentError> {
        let count = content.len() as u64;
        self.pass(Kind::Write).await?.append(number, lease, offset, content).await?;
        self.shared.bytes_written.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    async fn sync_segment(&self, number: u64, lease: Lease) -> Result<(), SegmentError> {
        self.pass(Kind::Write).await?.sync_segment(number, lease).await
    }

    async fn read_segment(&self, id: SegmentId, ranges: &[ByteRange]) -> Result<Vec<Bytes>, SegmentError> {
        let buffers = self.pass(Kind::Read).await?.read_segment(id, ranges).await?;
        self.shared.reads.fetch_add(1, Ordering::Relaxed);
        let bytes: usize = buffers.iter().map(Bytes::len).sum();
        self.shared.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
        Ok(buffers)
    }

    async fn delete_segment(&self, number: u64, lease: Lease) -> Result<(), SegmentError> {
        self.pass(Kind::Write).await?.delete_segment(number, lease).await
    }

    async fn segments(&self, owner: OwnerId) -> Result<Vec<SegmentInfo>, SegmentError> {
        self.pass(Kind::Read).await?.segments(owner).await
    }

    async fn owners(&self) -> Result<Vec<OwnerId>, SegmentError> {
        self.pass(Kind::Read).await?.owners().await
    }

    async fn forget_owner(&self, lease: Lease) -> Result<(), SegmentError> {
        self.pass(Kind::Write).await?.forget_owner(lease).await
    }
}

struct FaultyWriter {
    inner: Box<dyn ChunkWriter>,
    shared: Arc<Shared>,
}

#[async_trait]
impl ChunkWriter for FaultyWriter {
    async fn append(&mut self, bytes: Bytes) -> Result<(), ChunkError> {
        self.shared.pass(Kind::Write).await?;
        let count = bytes.len() as u64;
        self.inner.append(bytes).await?;
        self.shared.bytes_written.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    async fn commit(self: Box<Self>, durability: Durability) -> Result<(), ChunkError> {
        self.shared.pass(Kind::Write).await?;
        self.inner.commit(durability).await?;
        self.shared.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}
