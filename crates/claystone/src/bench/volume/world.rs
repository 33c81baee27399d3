//! Where devices of a bench live: a node with disks of others, and the devices made on them.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use claystone_chunk::{ChunkStore, DiskId, NodeId};
use claystone_code::CodeSpec;
use claystone_disk::{ClusterId, DirectoryStore, Expected, Identity, Options, format};
use claystone_env::{Directory, Env, Worker};
use claystone_host::{HostDirectory, ThreadWorker};
use claystone_meta::{DiskRecord, DiskRecords, DiskState, SqliteMeta, Workers};
use claystone_stripe::{Member, Stores, Stripes};
use claystone_volume::comparators::{InPlace, UpdateMethod};
use claystone_volume::{Blocks, Durable, Geometry, NewVolume, Settings, Volume, Volumes};

/// The disks, and what lies on them.
pub struct World {
    /// What everything lives in.
    pub env: Env,
    stripes: Stripes,
    volumes: Volumes,
}

impl World {
    /// Directories of one place on this machine, each a disk of a node of its own.
    ///
    /// # Errors
    /// A disk cannot be made there.
    pub async fn machine(place: &Path) -> anyhow::Result<World> {
        let Machine { env, meta, members } = Machine::new(place, DISKS).await?;
        World::over(env, meta, members).await
    }

    /// Volumes and stripes on these disks.
    async fn over(env: Env, meta: Arc<SqliteMeta>, members: Vec<Member>) -> anyhow::Result<World> {
        let stripes = stripes_on(&env, &meta, members).await?;
        let volumes = Volumes::new(env.clone(), meta, stripes.clone(), Settings::default());
        Ok(World { env, stripes, volumes })
    }

    /// A device that is written in place by one method: whole stripes of zeros, at least `bytes` bytes.
    ///
    /// # Errors
    /// The stripes cannot be written.
    pub async fn in_place(&self, method: UpdateMethod, bytes: u64, code: CodeSpec) -> anyhow::Result<Arc<dyn Blocks>> {
        let columns = if method == UpdateMethod::Replicas { 1 } else { code.shape().data };
        let geometry = Geometry { page_bytes: 4096, chunk_bytes: 1 << 20, columns };
        let stripes_count = bytes.div_ceil(geometry.stripe_bytes());
        let device = InPlace::new(&self.env, self.stripes.clone(), code, method, geometry, stripes_count).await?;
        Ok(Arc::new(device))
    }

    /// A volume that is written all over and merged.
    ///
    /// # Errors
    /// It cannot be made or written.
    pub async fn volume(&self, name: &str, bytes: u64, code: CodeSpec) -> anyhow::Result<Volume> {
        written(&self.volumes, NewVolume::new(name, bytes, code)).await
    }

    /// Ends what volumes do in the background.
    pub async fn stop(&self) {
        self.volumes.stop().await;
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
        let mut members = Vec::new();
        for number in 0..disks {
            let path = place.join(format!("disk-{number}"));
            std::fs::create_dir(&path).with_context(|| format!("{} cannot be made", path.display()))?;
            let directory: Arc<dyn Directory> = Arc::new(HostDirectory::new(&path));
            let node = NodeId(format!("node-{number}"));
            members.push(member(&env, DiskId(number), node, directory, worker("disk", DISK_THREADS)?).await?);
        }
        Ok(Machine { env, meta, members })
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
) -> anyhow::Result<Member> {
    let (cluster, created, path) = (ClusterId(1), env.clock.wall(), directory.label());
    let identity = Identity { disk, cluster, node: node.clone(), created };
    format(&*worker, directory.clone(), identity).await?;
    let store = DirectoryStore::open(env, directory, worker, Expected { disk, cluster }, Options::default()).await?;
    let space = store.space().await?;
    let record = DiskRecord { id: disk, node, path, state: DiskState::Active, added: created };
    let store: Arc<dyn ChunkStore> = Arc::new(store);
    Ok(Member { record, store: Ok(store), space })
}

/// How many disks there are where nothing wants more.
pub const DISKS: u128 = 6;
const DISK_THREADS: usize = 4;
const FILL_BYTES: u64 = 1 << 20;
