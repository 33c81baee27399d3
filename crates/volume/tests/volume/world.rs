//! Volumes over stores in memory that can be cut off at any call.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use claystone_chunk::testing::{MemoryStore, pattern};
use claystone_chunk::{
    ByteRange, ChunkError, ChunkId, ChunkInfo, ChunkStore, ChunkWriter, DiskId, Durability, Lease, Load, NodeId,
    Overwrite, OwnerId, SegmentError, SegmentId, SegmentInfo, SegmentStore, StoreState, Verdict,
};
use claystone_env::{Env, Job, Random, Space, WallTime, Worker, WorkerStopped};
use claystone_meta::{DiskRecord, DiskRecords, DiskState, Meta, SnapshotRecord, SqliteMeta};
use claystone_sim::SimRandom;
use claystone_stripe::{Absence, Member, Stores, Stripes};
use claystone_volume::{Blocks, Durable, NewVolume, Settings, Snapshot, Volume, VolumeError, Volumes, joined};
use futures::future::BoxFuture;
use tokio::sync::oneshot;

/// A store of volumes on disks in memory.
pub struct World {
    pub env: Env,
    pub meta: Arc<dyn Meta>,
    pub records: SqliteMeta,
    pub database: Database,
    pub disks: Vec<MemoryStore>,
    pub cut: Cut,
    pub traps: Traps,
    pub stores: Stores,
    pub stripes: Stripes,
    pub volumes: Volumes,
    pub settings: Settings,
}

/// Small, so that tests reach every border.
pub fn settings() -> Settings {
    Settings { reserve_bytes: 64 << 20, segment_bytes: 8 << 20, ..Settings::default() }
}

impl World {
    pub async fn new(disks: u128) -> World {
        World::with(disks, settings(), 0).await
    }

    /// What chance decides follows from `seed`.
    pub async fn with(disks: u128, settings: Settings, seed: u64) -> World {
        let env = Env { random: Arc::new(SimRandom::new(seed)), ..claystone_host::env().expect("an environment") };
        let database = Database::over(env.cpu.clone());
        let meta = SqliteMeta::in_memory(Arc::new(database.clone())).await.expect("an empty database");
        let disks: Vec<MemoryStore> = (0..disks).map(|disk| MemoryStore::new(DiskId(disk))).collect();
        for (number, _) in disks.iter().enumerate() {
            meta.put_disk(record(number)).await.expect("a new disk");
        }
        World::over(env, meta, database, disks, settings)
    }

    fn over(env: Env, records: SqliteMeta, database: Database, disks: Vec<MemoryStore>, settings: Settings) -> World {
        let meta: Arc<dyn Meta> = Arc::new(records.clone());
        let cut = Cut::default();
        let traps = Traps::default();
        let stores = Stores::default();
        for (number, disk) in disks.iter().enumerate() {
            stores.put(present(number, cut_store(disk, &cut, &traps)));
        }
        // No read is late: one that a test holds stays where it is.
        let hedge_delay_min = Duration::from_secs(60);
        let stripe_settings = claystone_stripe::Settings { hedge_delay_min, ..claystone_stripe::Settings::default() };
        let (stripes, _) = Stripes::new(env.clone(), stores.clone(), stripe_settings);
        let volumes = Volumes::new(env.clone(), meta.clone(), stripes.clone(), settings.clone());
        World { env, meta, records, database, disks, cut, traps, stores, stripes, volumes, settings }
    }

    /// The process ends now, the disks lose what was not synced, and a new process begins.
    pub async fn crash(self) -> World {
        self.cut.now();
        // The old process' tasks hang at their next call, for ever.
        for disk in &self.disks {
            disk.crash(&*self.env.random);
        }
        World::over(self.env, self.records, self.database, self.disks, self.settings)
    }

    /// A second process over the same disks and records, while the first lives.
    pub fn another_process(&self) -> World {
        World::over(
            self.env.clone(),
            self.records.clone(),
            self.database.clone(),
            self.disks.clone(),
            self.settings.clone(),
        )
    }

    pub async fn create(&self, name: &str, bytes: u64, code: &str) -> Volume {
        let code = code.parse().expect("a valid code");
        let new = NewVolume { chunk_bytes: 64 << 10, ..NewVolume::new(name, bytes, code) };
        self.volumes.create(new).await.expect("a new volume");
        self.volumes.open(name).await.expect("it opens")
    }

    /// Takes the snapshot `VOLUME@SNAPSHOT`.
    pub async fn snapshot(&self, name: &str) -> Result<SnapshotRecord, VolumeError> {
        self.volumes.take_snapshot(&name.parse().expect("a valid name")).await
    }

    /// The snapshot `VOLUME@SNAPSHOT`, to be read.
    pub async fn open_snapshot(&self, name: &str) -> Snapshot {
        self.volumes.open_snapshot(&name.parse().expect("a valid name")).await.expect("it is there")
    }

    /// Works on something beside the test; what is returned answers when it is done.
    pub fn beside<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        let task = async move {
            // A test that has ended does not need it.
            let _ = sender.send(work.await);
        };
        self.env.tasks.spawn("beside", Box::pin(task));
        receiver
    }

    /// Works until the cut is there. `None`: it came.
    pub async fn until_cut<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.cut.reached() => None,
            done = work => Some(done),
        }
    }

    /// Waits for what comes by itself.
    pub async fn until(&self, what: &str, holds: impl AsyncFn() -> bool) {
        for _ in 0..3000 {
            if holds().await {
                return;
            }
            self.env.clock.sleep(Duration::from_millis(10)).await;
        }
        panic!("{what} does not come");
    }

    /// The records agree with each other.
    pub async fn assert_sound(&self) {
        assert_eq!(self.records.check().await.expect("readable"), Vec::<String>::new());
    }

    /// A disk's store is opened anew in this process: what it had not synced is gone.
    pub fn reopen(&self, disk: usize) {
        self.disks[disk].crash(&*self.env.random);
        let store = cut_store(&self.disks[disk], &self.cut, &self.traps);
        self.stores.put(present(disk, store));
    }

    /// Every disk says that it has so much free space.
    pub fn set_free(&self, free_bytes: u64) {
        for member in self.stores.members() {
            self.stores.put(Member { space: Space { free_bytes, ..member.space }, ..member });
        }
    }

    /// A disk does not answer any more.
    pub fn lose(&self, disk: usize) {
        let store = Err(Absence { reason: "lost by the test".to_owned() });
        self.stores.put(Member { record: record(disk), store, space: Space::default() });
    }

    /// It answers again.
    pub fn find(&self, disk: usize) {
        self.stores.put(present(disk, cut_store(&self.disks[disk], &self.cut, &self.traps)));
    }
}

fn cut_store(disk: &MemoryStore, cut: &Cut, traps: &Traps) -> Arc<dyn ChunkStore> {
    Arc::new(CutStore { inner: disk.clone(), cut: cut.clone(), traps: traps.clone() })
}

fn record(disk: usize) -> DiskRecord {
    let id = DiskId(disk as u128);
    let (node, path) = (NodeId(id.to_string()), id.to_string());
    DiskRecord { id, node, path, state: DiskState::Active, added: WallTime::default() }
}

fn present(disk: usize, store: Arc<dyn ChunkStore>) -> Member {
    Member { record: record(disk), store: Ok(store), space: Space { total_bytes: 1 << 40, free_bytes: 1 << 40 } }
}

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
    /// Bytes of segments that do not read, until they are written again.
    bad: Mutex<Vec<(DiskId, u64)>>,
    reached: tokio::sync::Notify,
    /// Reads of chunks wait for it.
    reads: Arc<tokio::sync::RwLock<()>>,
}

impl Cut {
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

    /// No disk fails any more.
    pub fn heal(&self) {
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

/// Where the records' work is done, and may be refused.
#[derive(Clone)]
pub struct Database {
    inner: Arc<dyn Worker>,
    /// How many calls are let through, and how many are refused then.
    refused: Arc<Mutex<(u64, u64)>>,
}

impl Database {
    fn over(inner: Arc<dyn Worker>) -> Database {
        Database { inner, refused: Arc::default() }
    }

    /// After so many calls more, so many are refused.
    pub fn refuse(&self, after: u64, calls: u64) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = (after, calls);
    }
}

impl Worker for Database {
    fn run(&self, job: Job) -> BoxFuture<'static, Result<(), WorkerStopped>> {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *refused {
            (0, 0) => {}
            (0, calls) => {
                *calls -= 1;
                return Box::pin(std::future::ready(Err(WorkerStopped)));
            }
            (after, _) => *after -= 1,
        }
        self.inner.run(job)
    }

    fn queued(&self) -> usize {
        self.inner.queued()
    }
}

/// What happens at single calls of all stores of a process.
#[derive(Debug, Clone, Default)]
pub struct Traps(Arc<TrapState>);

#[derive(Debug, Default)]
struct TrapState {
    overwrites: Trap,
    log_reads: Trap,
    forgets: Trap,
    panics: AtomicBool,
    spoiled: Mutex<Vec<(DiskId, Bytes)>>,
}

impl Traps {
    /// Overwrites of chunks wait here.
    pub fn overwrites(&self) -> &Trap {
        &self.0.overwrites
    }

    /// Reads of segments wait here.
    pub fn log_reads(&self) -> &Trap {
        &self.0.log_reads
    }

    /// Who forgets the log of an owner waits here.
    pub fn forgets(&self) -> &Trap {
        &self.0.forgets
    }

    /// Whoever overwrites a chunk panics.
    pub fn panic_at_overwrites(&self) {
        self.0.panics.store(true, Ordering::Release);
    }

    /// A disk has a wrong bit in what of its segments begins like this.
    pub fn spoil(&self, disk: DiskId, content: &Bytes) {
        self.0.spoiled.lock().unwrap_or_else(PoisonError::into_inner).push((disk, content.slice(..64)));
    }

    fn spoiled(&self, disk: DiskId, read: Bytes) -> Bytes {
        let mut read = read.to_vec();
        for (spoiled, content) in &*self.0.spoiled.lock().unwrap_or_else(PoisonError::into_inner) {
            if *spoiled == disk
                && let Some(at) = read.windows(content.len()).position(|window| window == content)
            {
                read[at] ^= 1;
            }
        }
        read.into()
    }
}

/// Where calls wait while it is set.
#[derive(Debug)]
pub struct Trap {
    is_set: tokio::sync::watch::Sender<bool>,
    caught: tokio::sync::Notify,
}

impl Default for Trap {
    fn default() -> Trap {
        Trap { is_set: tokio::sync::watch::Sender::new(false), caught: tokio::sync::Notify::new() }
    }
}

impl Trap {
    pub fn set(&self) {
        self.is_set.send_replace(true);
    }

    /// Waits until a call waits here.
    pub async fn caught(&self) {
        self.caught.notified().await;
    }

    /// Lets all go on.
    pub fn open(&self) {
        self.is_set.send_replace(false);
    }

    async fn pass(&self) {
        let mut is_set = self.is_set.subscribe();
        if *is_set.borrow() {
            self.caught.notify_one();
        }
        is_set.wait_for(|is_set| !is_set).await.expect("the trap is there");
    }
}

/// A store that stops answering at a cut.
#[derive(Debug, Clone)]
struct CutStore {
    inner: MemoryStore,
    cut: Cut,
    traps: Traps,
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
        self.inner.read(id, ranges).await
    }

    async fn overwrite(&self, id: ChunkId, lease: Lease, changes: &[Overwrite]) -> Result<(), ChunkError> {
        assert!(!self.traps.0.panics.load(Ordering::Acquire), "the test wants it");
        self.traps.overwrites().pass().await;
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

#[async_trait]
impl SegmentStore for CutStore {
    async fn fence(&self, lease: Lease) -> Result<(), SegmentError> {
        self.cut.change(self.disk(), self.inner.segments().fence(lease), segment_dead).await
    }

    async fn create_segment(&self, number: u64, lease: Lease, bytes: u64) -> Result<(), SegmentError> {
        self.cut.change(self.disk(), self.inner.segments().create_segment(number, lease, bytes), segment_dead).await
    }

    async fn reopen_segment(&self, number: u64, lease: Lease, end: u64) -> Result<(), SegmentError> {
        self.cut.change(self.disk(), self.inner.segments().reopen_segment(number, lease, end), segment_dead).await
    }

    async fn append(&self, number: u64, lease: Lease, offset: u64, content: Bytes) -> Result<(), SegmentError> {
        self.cut.appended(self.disk(), ByteRange { offset, bytes: content.len() as u64 });
        self.cut.change(self.disk(), self.inner.segments().append(number, lease, offset, content), segment_dead).await
    }

    async fn sync_segment(&self, number: u64, lease: Lease) -> Result<(), SegmentError> {
        self.cut.change(self.disk(), self.inner.segments().sync_segment(number, lease), segment_dead).await
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

/// Reads a whole volume and compares it with what it should be.
pub async fn check(volume: &dyn Blocks, model: &[u8], what: &str) {
    let all = ByteRange { offset: 0, bytes: model.len() as u64 };
    let read = joined(volume.read(all).await.unwrap_or_else(|error| panic!("{what}: {error}")));
    let wrong = read.chunks(4096).zip(model.chunks(4096)).position(|(read, model)| read != model);
    assert_eq!(wrong, None, "{what}: a page of {volume:?} reads other bytes");
}

/// Writes at random places, the same in the model.
pub async fn scribble(volume: &dyn Blocks, model: &mut [u8], seed: u64, writes: u64) {
    let random = SimRandom::new(seed);
    for number in 0..writes {
        let bytes = [1, 100, 4096, 4096, 8192, 20_000, 70_000][random.below(7) as usize].min(model.len() as u64);
        let mut offset = random.below(model.len() as u64 - bytes + 1);
        if random.below(2) == 0 {
            offset = offset / 4096 * 4096;
        }
        let range = offset as usize..(offset + bytes) as usize;
        if random.below(8) == 0 {
            volume.discard(ByteRange { offset, bytes }, Durable::WithFlush).await.expect("it takes discards");
            model[range].fill(0);
        } else {
            let content = pattern(seed * 1000 + number, bytes as usize);
            model[range].copy_from_slice(&content);
            volume.write(offset, content, Durable::WithFlush).await.expect("it takes writes");
        }
    }
}
