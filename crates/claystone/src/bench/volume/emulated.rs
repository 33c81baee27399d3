//! Stores whose time is emulated: each a solid-state drive behind a system's cache, on a server at the end of a network.
//!
//! What is kept is real: stores in simulated directories, which take no time. Around each lies what takes time: a call goes
//! out over the node's network card, asks the cache of the store's system for the sectors that it reads or writes, and comes
//! back. Headers and checksums of chunks are in memory.
//!
//! Left out: the time of programs, on either side, and of making and deleting chunks.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use claystone_chunk::{
    ByteRange, ChunkError, ChunkId, ChunkInfo, ChunkStore, ChunkWriter, DiskId, Lease, Load, Overwrite, OwnerId,
    SegmentError, SegmentId, SegmentInfo, SegmentStore, StoreState, Verdict,
};
use claystone_env::{Clock, Env, Space};
use claystone_sim::{CacheModel, CachedFile, LinkModel, SimCache, SimLink, SimSsd, SsdModel, World};
use futures::future::join_all;

use crate::bench::load::Sample;

/// A test bed: what stores are made of. Three servers with two drives each, as in the paper.
#[derive(Debug, Clone, Copy)]
pub struct Bed {
    name: &'static str,
    ssd: SsdModel,
    writes_through: bool,
    /// Whether all data is in memory; else a sixteenth of a device's is.
    holds_all: bool,
}

impl Bed {
    /// The ones that are measured. The paper does not tell what its drives are, how much of its data is in memory, and what
    /// a write waits for; these are different answers.
    ///
    /// | bed | a write is acknowledged | drives | in memory |
    /// |---|---|---|---|
    /// | | in the memory of its servers, which write to their drives later | for servers | a sixteenth |
    /// | through | by the drives of its servers | for servers | a sixteenth |
    /// | desktop | in memory | for desktops | a sixteenth |
    /// | memory | in memory | for servers | all |
    pub fn all() -> [Bed; 4] {
        let first = Bed { name: "", ssd: SsdModel::sata_server(), writes_through: false, holds_all: false };
        [
            first,
            Bed { name: "through", writes_through: true, ..first },
            Bed { name: "desktop", ssd: SsdModel::sata_desktop(), ..first },
            Bed { name: "memory", holds_all: true, ..first },
        ]
    }

    /// As rows name it.
    pub fn set_up(&self) -> String {
        format!("emulated {}", self.name).trim_end().to_owned()
    }

    /// A store's cache. Writing back is always under way: Linux begins at a tenth of memory, which a long run reaches. What
    /// is dirty beyond that has the room that Linux gives it, another tenth: 600 MB, of half the 12 GB of a server in the
    /// paper.
    fn cache(&self, share_bytes: u64) -> CacheModel {
        let sectors = (share_bytes / 4096 / 16) as usize;
        let dirty_from = sectors / 10;
        CacheModel {
            sectors: if self.holds_all { usize::MAX } else { sectors },
            dirty_from,
            dirty_max: dirty_from + (600 << 20) / 4096,
            // The depth of a SATA drive's queue.
            at_once: 32,
            call: Duration::from_micros(10),
            writes_through: self.writes_through,
        }
    }
}

/// What stores did, all together.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// Calls over the network.
    pub calls: u64,
    /// Requests of drives to read.
    pub drive_reads: u64,
    /// Sectors written by calls, in memory or not.
    pub sectors_written: u64,
    /// How long calls took that read.
    pub reads: Vec<Duration>,
    /// How long calls took that wrote or appended.
    pub writes: Vec<Duration>,
}

impl Done {
    /// A write's part of it, and the times of calls: name, unit, value.
    pub fn figures(&self, writes: u64) -> [(&'static str, &'static str, f64); 7] {
        let each = |count: u64| count as f64 / writes as f64;
        let time = |latencies: &[Duration], share| {
            Sample { latencies: latencies.to_vec(), ..Sample::default() }.percentile_ms(share)
        };
        [
            ("store_calls_each", "calls", each(self.calls)),
            ("drive_reads_each", "reads", each(self.drive_reads)),
            ("sectors_written_each", "sectors", each(self.sectors_written)),
            ("store_read_p50_ms", "ms", time(&self.reads, 0.5)),
            ("store_read_p99_ms", "ms", time(&self.reads, 0.99)),
            ("store_write_p50_ms", "ms", time(&self.writes, 0.5)),
            ("store_write_p99_ms", "ms", time(&self.writes, 0.99)),
        ]
    }
}

/// The network card of the node where devices are used, the stores behind it, and what its calls took.
#[derive(Clone)]
pub struct Wire {
    clock: Arc<dyn Clock>,
    out: SimLink,
    back: SimLink,
    caches: Arc<Mutex<Vec<(SimCache, SimSsd)>>>,
    done: Arc<Mutex<Done>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Other,
}

impl Wire {
    /// A card without stores.
    pub fn new(world: &World) -> Wire {
        let link = |name| world.link(name, LinkModel::ethernet_10g());
        Wire {
            clock: world.clock(),
            out: link("out"),
            back: link("back"),
            caches: Arc::default(),
            done: Arc::default(),
        }
    }

    /// Puts a store behind it. `share_bytes`: what a device has on a disk.
    pub fn store(
        &self,
        world: &World,
        env: &Env,
        bed: &Bed,
        inner: Arc<dyn ChunkStore>,
        share_bytes: u64,
    ) -> EmulatedStore {
        let ssd = world.ssd(&inner.disk().to_string(), bed.ssd);
        let cache = SimCache::new(env, ssd.clone(), bed.cache(share_bytes));
        locked(&self.caches).push((cache.clone(), ssd));
        EmulatedStore { inner, cache, wire: self.clone() }
    }

    /// Waits until every cache has written what is dirty, and every drive has done what that asks of it: who writes next does
    /// not wait for collections that others left.
    pub async fn settle(&self) {
        let caches = locked(&self.caches).clone();
        join_all(caches.iter().map(|(cache, drive)| async {
            cache.sync().await;
            drive.rest().await;
        }))
        .await;
    }

    /// What was done since the last call.
    pub fn take_done(&self) -> Done {
        let (mut drive_reads, mut sectors_written) = (0, 0);
        for (cache, ssd) in &*locked(&self.caches) {
            drive_reads += ssd.stats().reads;
            sectors_written += cache.stats().sectors_written;
        }
        let mut done = locked(&self.done);
        let now = Done { drive_reads, sectors_written, ..Done::default() };
        let then = std::mem::replace(&mut *done, now);
        let (drive_reads, sectors_written) = (drive_reads - then.drive_reads, sectors_written - then.sectors_written);
        Done { drive_reads, sectors_written, ..then }
    }

    async fn call<T, E>(
        &self,
        kind: Kind,
        sent_bytes: u64,
        work: impl Future<Output = Result<T, E>>,
        answer_bytes: impl FnOnce(&T) -> u64,
    ) -> Result<T, E> {
        let begun = self.clock.now();
        self.out.carry(sent_bytes + MESSAGE_BYTES).await;
        let result = work.await;
        let bytes = result.as_ref().map_or(0, answer_bytes);
        self.back.carry(bytes + MESSAGE_BYTES).await;
        let took = self.clock.now().since(begun);
        let mut done = locked(&self.done);
        done.calls += 1;
        match kind {
            Kind::Read => done.reads.push(took),
            Kind::Write => done.writes.push(took),
            Kind::Other => {}
        }
        result
    }
}

/// See the module.
pub struct EmulatedStore {
    inner: Arc<dyn ChunkStore>,
    cache: SimCache,
    wire: Wire,
}

impl std::fmt::Debug for EmulatedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EmulatedStore({:?})", self.inner)
    }
}

impl EmulatedStore {
    /// A change that is durable when it returns, of hardly any bytes.
    async fn change<T, E>(&self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let work = async {
            let result = work.await;
            self.cache.sync().await;
            result
        };
        self.wire.call(Kind::Other, 0, work, |_| 0).await
    }

    /// A question that needs nothing of the drive.
    async fn ask<T, E>(&self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.wire.call(Kind::Other, 0, work, |_| 0).await
    }

    async fn read_file(&self, file: CachedFile, ranges: &[ByteRange]) {
        for range in ranges {
            self.cache.read(file, range.offset..range.end()).await;
        }
    }
}

#[async_trait]
impl ChunkStore for EmulatedStore {
    fn disk(&self) -> DiskId {
        self.inner.disk()
    }

    async fn create(&self, id: ChunkId, bytes: u64) -> Result<Box<dyn ChunkWriter>, ChunkError> {
        // Whoever has written a chunk has it in memory, if there is room.
        self.cache.hold(chunk_file(id), 0..bytes);
        self.inner.create(id, bytes).await
    }

    async fn read(&self, id: ChunkId, ranges: &[ByteRange]) -> Result<Vec<Bytes>, ChunkError> {
        let work = async {
            self.read_file(chunk_file(id), ranges).await;
            self.inner.read(id, ranges).await
        };
        self.wire.call(Kind::Read, 0, work, |buffers| lengths(buffers)).await
    }

    async fn overwrite(&self, id: ChunkId, lease: Lease, changes: &[Overwrite]) -> Result<(), ChunkError> {
        let work = async {
            for change in changes {
                self.cache.write(chunk_file(id), change.offset..change.range().end()).await;
            }
            self.inner.overwrite(id, lease, changes).await
        };
        let bytes = changes.iter().map(|change| change.bytes.len() as u64).sum();
        self.wire.call(Kind::Write, bytes, work, |()| 0).await
    }

    async fn take_space(&self, id: ChunkId) -> Result<(), ChunkError> {
        self.ask(self.inner.take_space(id)).await
    }

    async fn info(&self, id: ChunkId) -> Result<ChunkInfo, ChunkError> {
        self.ask(self.inner.info(id)).await
    }

    async fn verify(&self, id: ChunkId) -> Result<Verdict, ChunkError> {
        self.ask(self.inner.verify(id)).await
    }

    async fn delete(&self, id: ChunkId) -> Result<(), ChunkError> {
        self.inner.delete(id).await
    }

    async fn list(&self, after: Option<ChunkId>, limit: usize) -> Result<Vec<ChunkId>, ChunkError> {
        self.ask(self.inner.list(after, limit)).await
    }

    async fn sync(&self) -> Result<(), ChunkError> {
        self.change(self.inner.sync()).await
    }

    async fn space(&self) -> Result<Space, ChunkError> {
        self.ask(self.inner.space()).await
    }

    fn segments(&self) -> &dyn SegmentStore {
        self
    }

    fn load(&self) -> Load {
        self.inner.load()
    }

    fn state(&self) -> StoreState {
        self.inner.state()
    }
}

#[async_trait]
impl SegmentStore for EmulatedStore {
    async fn fence(&self, lease: Lease) -> Result<(), SegmentError> {
        self.change(self.inner.segments().fence(lease)).await
    }

    async fn create_segment(&self, number: u64, lease: Lease, bytes: u64) -> Result<(), SegmentError> {
        self.change(self.inner.segments().create_segment(number, lease, bytes)).await
    }

    async fn reopen_segment(&self, number: u64, lease: Lease, end: u64) -> Result<(), SegmentError> {
        self.change(self.inner.segments().reopen_segment(number, lease, end)).await
    }

    async fn append(&self, number: u64, lease: Lease, offset: u64, content: Bytes) -> Result<(), SegmentError> {
        let bytes = content.len() as u64;
        let work = async {
            let file = CachedFile { owner: lease.owner.0, number };
            self.cache.write(file, offset..offset + bytes).await;
            self.inner.segments().append(number, lease, offset, content).await
        };
        self.wire.call(Kind::Write, bytes, work, |()| 0).await
    }

    async fn sync_segment(&self, number: u64, lease: Lease) -> Result<(), SegmentError> {
        self.change(self.inner.segments().sync_segment(number, lease)).await
    }

    async fn read_segment(&self, id: SegmentId, ranges: &[ByteRange]) -> Result<Vec<Bytes>, SegmentError> {
        let work = async {
            self.read_file(CachedFile { owner: id.owner.0, number: id.number }, ranges).await;
            self.inner.segments().read_segment(id, ranges).await
        };
        self.wire.call(Kind::Read, 0, work, |buffers| lengths(buffers)).await
    }

    async fn delete_segment(&self, number: u64, lease: Lease) -> Result<(), SegmentError> {
        self.ask(self.inner.segments().delete_segment(number, lease)).await
    }

    async fn segments(&self, owner: OwnerId) -> Result<Vec<SegmentInfo>, SegmentError> {
        self.ask(self.inner.segments().segments(owner)).await
    }

    async fn owners(&self) -> Result<Vec<OwnerId>, SegmentError> {
        self.ask(self.inner.segments().owners()).await
    }

    async fn forget_owner(&self, lease: Lease) -> Result<(), SegmentError> {
        self.ask(self.inner.segments().forget_owner(lease)).await
    }
}

fn chunk_file(id: ChunkId) -> CachedFile {
    CachedFile { owner: id.stripe.0, number: u64::from(id.index.0) << 32 | u64::from(id.generation.0) }
}

fn lengths(buffers: &[Bytes]) -> u64 {
    buffers.iter().map(|buffer| buffer.len() as u64).sum()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a message has beside content.
const MESSAGE_BYTES: u64 = 200;
