//! Volumes over stores in memory that can be cut off at any call.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use claystone_chunk::testing::{Cut, CutStore, MemoryStore, Traps, pattern};
use claystone_chunk::{ByteRange, ChunkId, ChunkStore, DiskId, NodeId};
use claystone_code::ChunkIndex;
use claystone_env::{Env, Job, Random, Space, WallTime, Worker, WorkerStopped};
use claystone_meta::{DiskRecord, DiskRecords, DiskState, Meta, SnapshotRecord, SqliteMeta, StripeRecord};
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

/// Small, so that tests reach every border. No disk is late that a test holds.
pub fn settings() -> Settings {
    let late_after = Duration::from_secs(30);
    Settings { reserve_bytes: 64 << 20, segment_bytes: 8 << 20, late_after, ..Settings::default() }
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

    /// The same, where reads of chunks are given up after so long.
    pub fn with_read_timeout(mut self, read_timeout: Duration) -> World {
        let hedge_delay_min = Duration::from_secs(60);
        let settings = claystone_stripe::Settings { hedge_delay_min, read_timeout, ..Default::default() };
        (self.stripes, _) = Stripes::new(self.env.clone(), self.stores.clone(), settings);
        self.volumes = Volumes::new(self.env.clone(), self.meta.clone(), self.stripes.clone(), self.settings.clone());
        self
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

    /// The process ends now, and a new one begins; what it handed to the disks is there, synced or not.
    pub fn kill(self) -> World {
        self.cut.now();
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

    /// The stripes of the volume `v`.
    pub async fn stripes_of_v(&self) -> Vec<StripeRecord> {
        let volume = self.meta.volume("v").await.expect("it is there");
        let stripes = self.meta.volume_stripes(volume.id, None, 99).await.expect("readable");
        stripes.into_iter().map(|(_, stripe)| stripe).collect()
    }

    /// Chunks on all disks that none of these stripes names.
    pub fn garbage(&self, stripes: &[StripeRecord]) -> usize {
        let chunks = |stripe: &StripeRecord| {
            (0..stripe.places.len() as u16).filter_map(|at| stripe.chunk_id(ChunkIndex(at))).collect::<Vec<_>>()
        };
        let named: BTreeSet<ChunkId> = stripes.iter().flat_map(chunks).collect();
        self.disks.iter().flat_map(|disk| disk.ids()).filter(|id| !named.contains(id)).count()
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

    /// This one does.
    pub fn set_free_of(&self, disk: DiskId, free_bytes: u64) {
        self.stores.update(disk, |member| member.space.free_bytes = free_bytes);
    }

    /// A disk does not answer any more.
    pub fn lose(&self, disk: usize) {
        let absence = Absence { reason: "lost by the test".to_owned() };
        self.stores.update(DiskId(disk as u128), |member| member.store = Err(absence));
    }

    /// It answers again.
    pub fn find(&self, disk: usize) {
        let store = cut_store(&self.disks[disk], &self.cut, &self.traps);
        self.stores.update(DiskId(disk as u128), |member| member.store = Ok(store));
    }

    /// The nodes of the disks are these from now on.
    pub fn label<const DISKS: usize>(&self, nodes: [&str; DISKS]) {
        for (disk, node) in nodes.into_iter().enumerate() {
            self.stores.update(DiskId(disk as u128), |member| member.record.node = NodeId(node.to_owned()));
        }
    }
}

fn cut_store(disk: &MemoryStore, cut: &Cut, traps: &Traps) -> Arc<dyn ChunkStore> {
    Arc::new(CutStore::new(disk.clone(), cut.clone(), traps.clone()))
}

fn record(disk: usize) -> DiskRecord {
    let id = DiskId(disk as u128);
    let (node, path) = (NodeId(id.to_string()), id.to_string());
    DiskRecord { id, node, path, state: DiskState::Active, added: WallTime::default() }
}

fn present(disk: usize, store: Arc<dyn ChunkStore>) -> Member {
    Member { record: record(disk), store: Ok(store), space: Space { total_bytes: 1 << 40, free_bytes: 1 << 40 } }
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

/// Waits for all that can go on: disks in memory wait for nobody.
pub async fn moment() {
    // More turns than that takes.
    for _ in 0..300 {
        tokio::task::yield_now().await;
    }
}
