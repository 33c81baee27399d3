//! Where devices of a bench live: disks of several nodes, on this machine or emulated, and the devices made on them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use claystone_chunk::{ChunkStore, DiskId, NodeId};
use claystone_code::CodeSpec;
use claystone_disk::{ClusterId, DirectoryStore, Expected, Identity, Options, format};
use claystone_env::{Directory, Env, Worker};
use claystone_host::{HostDirectory, ThreadWorker};
use claystone_meta::{DiskRecord, DiskRecords, DiskState, SqliteMeta, Workers};
use claystone_sim::{DiskModel, Process};
use claystone_stripe::{Member, Stores, Stripes};
use claystone_volume::comparators::{InPlace, UpdateMethod};
use claystone_volume::{Blocks, Durable, Geometry, NewVolume, Settings, State, Volume, Volumes};
use futures::future::join_all;

use super::emulated::{Bed, Wire};
use crate::components::volume_settings;

/// The disks, and what lies on them.
pub struct World {
    /// What everything lives in.
    pub env: Env,
    /// How coded pages are kept.
    pub code: CodeSpec,
    /// How replicated pages are kept.
    pub replicas: CodeSpec,
    stripes: Stripes,
    /// Volumes that are merged by who asks for it only.
    volumes: Volumes,
    /// Volumes that are merged as a store merges them.
    shipped: Volumes,
    /// Devices that are written in place.
    in_place: Mutex<Vec<Arc<InPlace>>>,
    /// The disks of this machine.
    directories: Vec<Arc<DirectoryStore>>,
    /// Of an emulated one: what its stores are behind, and the process that uses them.
    emulation: Option<(Wire, Process)>,
}

impl World {
    /// Directories of one place on this machine, each a disk of a node of its own.
    ///
    /// # Errors
    /// A disk cannot be made there.
    pub async fn machine(place: &Path) -> anyhow::Result<World> {
        let Machine { env, meta, members, directories } = Machine::new(place, DISKS).await?;
        let world = World::over(env, meta, members, MACHINE_CODES).await?;
        Ok(World { directories, ..world })
    }

    /// Servers with two emulated drives each, in a simulated world. `device_bytes`: what devices will have.
    ///
    /// # Errors
    /// Never, in a simulated world without faults.
    pub async fn emulated(world: &claystone_sim::World, bed: &Bed, device_bytes: u64) -> anyhow::Result<World> {
        let process = world.process("node");
        let env = process.env().clone();
        let meta = Arc::new(SqliteMeta::in_memory(env.cpu.clone()).await?);
        let wire = Wire::new(world);
        let mut members = Vec::new();
        for number in 0..DISKS {
            let disk = world.disk(&format!("disk-{number}"), TIMELESS);
            let node = NodeId(format!("node-{}", number % BED_SERVERS));
            let worker = process.worker(&disk);
            let (mut member, _) = member(&env, DiskId(number), node, disk.attach(), worker).await?;
            // Of two copies, or of three chunks where two hold the data.
            let share_bytes = device_bytes * 2 / DISKS as u64;
            member.store = member
                .store
                .map(|store| -> Arc<dyn ChunkStore> { Arc::new(wire.store(world, &env, bed, store, share_bytes)) });
            members.push(member);
        }
        let world = World::over(env, meta, members, BED_CODES).await?;
        Ok(World { emulation: Some((wire, process)), ..world })
    }

    /// Volumes and stripes on these disks.
    async fn over(
        env: Env,
        meta: Arc<SqliteMeta>,
        members: Vec<Member>,
        [code, replicas]: [&str; 2],
    ) -> anyhow::Result<World> {
        let settings = Settings { reserve_bytes: RESERVE_BYTES, merge_when_idle: YEAR, ..Settings::default() };
        let stripes = stripes_on(&env, &meta, members).await?;
        let volumes = Volumes::new(env.clone(), meta.clone(), stripes.clone(), settings);
        let shipped = Volumes::new(env.clone(), meta, stripes.clone(), volume_settings(None));
        let (code, replicas) = (code.parse()?, replicas.parse()?);
        let (in_place, directories) = (Mutex::default(), Vec::new());
        Ok(World { env, code, replicas, stripes, volumes, shipped, in_place, directories, emulation: None })
    }

    /// A device that is written in place by one method: whole stripes of zeros, at least `bytes` bytes.
    ///
    /// # Errors
    /// The stripes cannot be written.
    pub async fn in_place(&self, method: UpdateMethod, bytes: u64, code: CodeSpec) -> anyhow::Result<Arc<dyn Blocks>> {
        let columns = if method == UpdateMethod::Replicas { 1 } else { code.shape().data };
        let geometry = Geometry { page_bytes: 4096, chunk_bytes: 1 << 20, columns };
        let stripes = self.stripes.clone();
        let device = InPlace::new(&self.env, stripes, code, method, geometry, bytes, PARITY_LOG_BYTES).await?;
        let device = Arc::new(device);
        self.in_place.lock().unwrap_or_else(PoisonError::into_inner).push(device.clone());
        Ok(device)
    }

    /// A volume that is written all over and merged. Nothing more of it is merged but by who asks for it.
    ///
    /// # Errors
    /// It cannot be made or written.
    pub async fn volume(&self, name: &str, bytes: u64, code: CodeSpec) -> anyhow::Result<Volume> {
        written(&self.volumes, NewVolume::new(name, bytes, code.into())).await
    }

    /// The same, merged from then on as a store merges it.
    ///
    /// # Errors
    /// It cannot be made or written.
    pub async fn shipped_volume(&self, name: &str, bytes: u64, code: CodeSpec) -> anyhow::Result<Volume> {
        written(&self.shipped, NewVolume::new(name, bytes, code.into())).await
    }

    /// Merges what volumes have that nobody else merges, replays logs of parity, and syncs all: what was written until now disturbs nothing that
    /// is written from now on. Logs of both kinds are short then, and the next segments of each find files to write over, as in a store that
    /// is written for long.
    ///
    /// # Errors
    /// A disk fails.
    pub async fn settle(&self) -> anyhow::Result<()> {
        for found in self.volumes.look().await? {
            let State::Open(_) = found.state else { continue };
            let volume = self.volumes.open(&found.record.name).await?;
            if volume.status().log_bytes > LOG_BYTES_MAX {
                volume.merge_all().await?;
            }
            volume.flush().await?;
        }
        let in_place = self.in_place.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for device in in_place.iter().filter(|device| device.log_bytes() > LOG_BYTES_MAX) {
            device.replay().await?;
        }
        for member in self.stripes.stores().members() {
            let Ok(store) = member.store else { continue };
            store.sync().await?;
        }
        join_all(self.directories.iter().map(|store| store.make_spares())).await;
        Ok(())
    }

    /// What tells the time of an emulated world's stores.
    pub fn wire(&self) -> Option<&Wire> {
        self.emulation.as_ref().map(|(wire, _)| wire)
    }

    /// Ends what volumes do in the background.
    pub async fn stop(&self) {
        self.volumes.stop().await;
        self.shipped.stop().await;
    }
}

/// Directories of one place on this machine, each a disk of a node of its own, and a database there.
pub struct Machine {
    /// The real one.
    pub env: Env,
    /// The records, which do not know the disks yet.
    pub meta: Arc<SqliteMeta>,
    /// The disks.
    pub members: Vec<Member>,
    /// Their stores.
    pub directories: Vec<Arc<DirectoryStore>>,
}

impl Machine {
    /// So many disks.
    ///
    /// # Errors
    /// One cannot be made there.
    pub async fn new(place: &Path, disks: u128) -> anyhow::Result<Machine> {
        let env = claystone_host::env().context("the system gives no threads or random bytes")?;
        let worker = |name: &str, threads| -> anyhow::Result<Arc<dyn Worker>> {
            Ok(Arc::new(ThreadWorker::start(name, threads).context("starting threads")?))
        };
        let workers = Workers { writer: worker("meta-writer", 1)?, readers: worker("meta-reader", 1)? };
        let meta = Arc::new(SqliteMeta::open(&place.join("meta.db"), workers).await?);
        let (mut members, mut directories) = (Vec::new(), Vec::new());
        for number in 0..disks {
            let path = place.join(format!("disk-{number}"));
            std::fs::create_dir(&path).with_context(|| format!("{} cannot be made", path.display()))?;
            let directory: Arc<dyn Directory> = Arc::new(HostDirectory::new(&path));
            let node = NodeId(format!("node-{number}"));
            let (member, store) = member(&env, DiskId(number), node, directory, worker("disk", DISK_THREADS)?).await?;
            members.push(member);
            directories.push(store);
        }
        Ok(Machine { env, meta, members, directories })
    }
}

/// Stripes on these disks, which the records know from then on.
///
/// # Errors
/// They cannot be recorded.
pub async fn stripes_on(env: &Env, meta: &Arc<SqliteMeta>, members: Vec<Member>) -> anyhow::Result<Stripes> {
    let stores = Stores::default();
    for member in members {
        meta.put_disk(member.record.clone()).await?;
        stores.put(member);
    }
    Ok(Stripes::new(env.clone(), stores, claystone_stripe::Settings::default()).0)
}

/// A new volume that is written all over and merged.
///
/// # Errors
/// It cannot be made or written.
pub async fn written(volumes: &Volumes, new: NewVolume) -> anyhow::Result<Volume> {
    let (name, bytes) = (new.name.clone(), new.bytes);
    volumes.create(new).await?;
    let volume = volumes.open(&name).await?;
    for at in (0..bytes).step_by(FILL_BYTES as usize) {
        let content = vec![1; FILL_BYTES.min(bytes - at) as usize];
        volume.write(at, Bytes::from(content), Durable::WithFlush).await?;
    }
    volume.merge_all().await?;
    Ok(volume)
}

/// A new disk in a directory.
async fn member(
    env: &Env,
    disk: DiskId,
    node: NodeId,
    directory: Arc<dyn Directory>,
    worker: Arc<dyn Worker>,
) -> anyhow::Result<(Member, Arc<DirectoryStore>)> {
    let (cluster, created, path) = (ClusterId(1), env.clock.wall(), directory.label());
    let identity = Identity { disk, cluster, node: node.clone(), created };
    format(&*worker, directory.clone(), identity).await?;
    let store = DirectoryStore::open(env, directory, worker, Expected { disk, cluster }, Options::default()).await?;
    let space = store.space().await?;
    let record = DiskRecord { id: disk, node, path, state: DiskState::Active, added: created };
    let store = Arc::new(store);
    Ok((Member { record, store: Ok(store.clone()), space }, store))
}

/// How many disks there are where nothing wants more.
pub const DISKS: u128 = 6;
const DISK_THREADS: usize = 4;
const FILL_BYTES: u64 = 1 << 20;
/// Coded and replicated pages on as many nodes as there are disks.
const MACHINE_CODES: [&str; 2] = ["rs:4+2", "replica:3"];
/// And on the servers of the paper: "2D1P", and as many copies as survive as much.
const BED_CODES: [&str; 2] = ["rs:2+1", "replica:2"];
const BED_SERVERS: u128 = 3;
/// What is written between two looks at the logs has room in it beside what they keep.
const RESERVE_BYTES: u64 = 16 << 30;
/// More than a run appends beside parity: no replay is measured.
const PARITY_LOG_BYTES: u64 = 1 << 30;
const LOG_BYTES_MAX: u64 = 128 << 20;
const YEAR: Duration = Duration::from_secs(365 * 86400);
/// A simulated disk keeps what is written; its time is told by others.
const TIMELESS: DiskModel = DiskModel {
    capacity_bytes: 64 << 30,
    read: Duration::ZERO,
    write: Duration::ZERO,
    sync: Duration::ZERO,
    name: Duration::ZERO,
    bytes_per_second: u64::MAX,
};
