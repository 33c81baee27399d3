//! The store under test: simulated disks and records that outlive a process, and the process on them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use claystone_chunk::{ChunkStore, DiskId, Durability, NodeId};
use claystone_code::ChunkIndex;
use claystone_disk::{ClusterId, DirectoryStore, Expected, Identity, Options};
use claystone_env::{Directory, Env, Space, Worker};
use claystone_keeper::{Keeper, Overall};
use claystone_meta::{DiskRecord, DiskRecords, DiskState, Meta, SqliteMeta, StripeRecords};
use claystone_object::{Objects, Settings};
use claystone_sim::{DiskModel, Process, SimDisk, World};
use claystone_stripe::{Absence, Member, Stores, Stripes};
use claystone_volume::Volumes;

/// What a disk of the store is made of. It outlives processes.
pub trait Hardware: Sized {
    /// An empty one for this slot.
    ///
    /// # Errors
    /// It cannot be made.
    fn new(world: &World, name: &str, number: usize) -> Result<Self>;

    /// Loses power and gets it back.
    fn crash(&self);

    /// Its files, as a process sees them.
    ///
    /// # Errors
    /// They cannot be seen.
    fn directory(&self, process: &Process) -> Result<Arc<dyn Directory>>;

    /// What charges its time.
    fn worker(&self, process: &Process) -> Arc<dyn Worker>;
}

impl Hardware for SimDisk {
    /// On one of them files of segments are used again.
    fn new(world: &World, name: &str, number: usize) -> Result<SimDisk> {
        let disk = world.disk(name, DiskModel::ssd(DISK_BYTES));
        disk.set_favours_overwriting(number == 1);
        Ok(disk)
    }

    fn crash(&self) {
        self.crash();
    }

    fn directory(&self, _: &Process) -> Result<Arc<dyn Directory>> {
        Ok(self.attach())
    }

    fn worker(&self, process: &Process) -> Arc<dyn Worker> {
        process.worker(self)
    }
}

/// A place where a disk is plugged in.
pub struct Slot<H = SimDisk> {
    /// The hardware.
    pub sim: H,
    /// The disk formatted on it.
    pub disk: DiskId,
}

/// What lives and dies with the process.
pub struct Running {
    /// The process.
    pub process: Process,
    /// Its face.
    pub objects: Objects,
    /// Its stripes.
    pub stripes: Stripes,
    /// Its block volumes.
    pub volumes: Volumes,
    /// Its upkeep.
    pub keeper: Keeper,
}

/// An owner of volumes, in a process that has nothing else: the stores are in others.
pub struct Owner {
    /// The process.
    pub process: Process,
    /// What it opens.
    pub volumes: Volumes,
}

/// When the store acknowledges, and what loses power at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// What an acknowledged object is.
    pub durability: Durability,
    /// Nodes that the disks are dealt to, one after another.
    pub nodes: usize,
}

impl Promise {
    /// All that is acknowledged is synced, and each disk is a node.
    pub const SYNCED: Promise = Promise { durability: Durability::Synced, nodes: usize::MAX };

    /// Whether what was acknowledged may be volatile.
    pub fn is_replicated(self) -> bool {
        self.durability == Durability::Buffered
    }
}

/// A store on disks of some nodes.
pub struct Cluster<H = SimDisk> {
    /// Where it is.
    pub world: World,
    /// Its disks.
    pub slots: Vec<Slot<H>>,
    /// Its records, which outlive a process.
    pub meta: Arc<SqliteMeta>,
    /// The process.
    pub running: Running,
    cluster: ClusterId,
    upkeep: claystone_keeper::Settings,
    promise: Promise,
    boots: u64,
}

/// Capacity of a simulated disk.
pub const DISK_BYTES: u64 = 256 << 20;

impl Cluster {
    /// A new store on `disks` new disks.
    pub async fn new(world: World, disks: usize) -> Result<Cluster> {
        Cluster::promising(world, disks, Promise::SYNCED).await
    }

    /// The same, which promises this.
    pub async fn promising(world: World, disks: usize, promise: Promise) -> Result<Cluster> {
        Cluster::with_upkeep(world, disks, keeper_settings(), promise).await
    }

    /// The same, whose processes deal with what is dead as soon as they look.
    pub async fn reclaiming_at_once(world: World, disks: usize) -> Result<Cluster> {
        let upkeep = claystone_keeper::Settings { reclaim_after: Duration::ZERO, ..keeper_settings() };
        Cluster::with_upkeep(world, disks, upkeep, Promise::SYNCED).await
    }
}

impl<H: Hardware> Cluster<H> {
    /// A new store on `disks` new disks of this hardware, with this upkeep and promise.
    pub async fn with_upkeep(
        world: World,
        disks: usize,
        upkeep: claystone_keeper::Settings,
        promise: Promise,
    ) -> Result<Cluster<H>> {
        let process = world.process("boot 0");
        let env = process.env().clone();
        let meta = Arc::new(SqliteMeta::in_memory(env.cpu.clone()).await?);
        let cluster = ClusterId::new(&*env.random);
        let mut slots = Vec::new();
        for number in 0..disks {
            let sim = H::new(&world, &format!("disk {number}"), number)?;
            let disk = format_disk(&process, &sim, cluster, (number, promise), &meta).await?;
            slots.push(Slot { sim, disk });
        }
        let running = start(process, &slots, &meta, cluster, &upkeep, promise).await?;
        running.objects.create_bucket(BUCKET, "drill", None).await?;
        Ok(Cluster { world, slots, meta, running, cluster, upkeep, promise, boots: 0 })
    }

    /// Kills the process and the power of all disks, and starts anew on what is left.
    pub async fn crash(&mut self) -> Result<()> {
        self.running.process.kill();
        for slot in &self.slots {
            slot.sim.crash();
        }
        self.boots += 1;
        let process = self.world.process(&format!("boot {}", self.boots));
        self.running = start(process, &self.slots, &self.meta, self.cluster, &self.upkeep, self.promise).await?;
        Ok(())
    }

    /// A node loses power and gets it back, and its disks are opened again; the process, which is elsewhere, goes on.
    pub async fn cut_node(&self, node: usize) -> Result<()> {
        let on_node = |number: &usize| number % self.promise.nodes == node;
        for number in (0..self.slots.len()).filter(on_node) {
            self.slots[number].sim.crash();
        }
        for number in (0..self.slots.len()).filter(on_node) {
            self.reopen(number).await?;
        }
        Ok(())
    }

    /// A process beside the one that has the stores.
    pub fn owner(&self, name: &str) -> Owner {
        let process = self.world.process(name);
        let stores = Stores::default();
        self.running.stripes.stores().members().into_iter().for_each(|member| stores.put(member));
        let (stripes, _) = Stripes::new(process.env().clone(), stores, claystone_stripe::Settings::default());
        let volumes = Volumes::new(process.env().clone(), self.meta.clone(), stripes, volume_settings());
        Owner { process, volumes }
    }

    /// Opens the disk in a slot again, as an operator would after fixing a cable.
    pub async fn reopen(&self, slot: usize) -> Result<()> {
        let slot = &self.slots[slot];
        let records = self.meta.disks().await?;
        let record = records.into_iter().find(|record| record.id == slot.disk).context("the disk has a record")?;
        // The old store holds the disk's lock: let go of it first.
        self.running.stripes.stores().put(Member {
            record: record.clone(),
            store: Err(Absence { reason: "being opened".to_owned() }),
            space: Space::default(),
        });
        // A store is let go of when the jobs and tasks that use it end, and a slow disk takes its time.
        let mut member = open(&self.running.process, slot, record.clone(), self.cluster).await;
        for _ in 0..REOPEN_TRIES {
            if member.store.is_ok() {
                break;
            }
            self.world.clock().sleep(Duration::from_secs(10)).await;
            member = open(&self.running.process, slot, record.clone(), self.cluster).await;
        }
        self.running.stripes.stores().put(member);
        self.running.keeper.disks_changed();
        Ok(())
    }

    /// Gives up the disk in a slot and puts an empty one in its place.
    pub async fn replace(&mut self, number: usize) -> Result<()> {
        let old = self.slots[number].disk;
        self.running.keeper.set_disk_state(old, DiskState::Lost).await?;
        self.boots += 1;
        let sim = H::new(&self.world, &format!("disk {number} of {}", self.boots), number)?;
        let disk = format_disk(&self.running.process, &sim, self.cluster, (number, self.promise), &self.meta).await?;
        self.slots[number] = Slot { sim, disk };
        self.reopen(number).await
    }

    /// Waits until upkeep has brought everything back, and nothing is left that nobody names.
    ///
    /// # Errors
    /// It does not settle.
    pub async fn heal(&self) -> Result<()> {
        let keeper = &self.running.keeper;
        keeper.start_scrub().await?;
        let mut rest = Duration::from_millis(100);
        for _ in 0..HEAL_ROUNDS {
            self.world.clock().sleep(rest).await;
            // Most is done at once, and some of it when a pause or an absence is over.
            rest = (rest * 2).min(HEAL_REST_MAX);
            let status = keeper.status().await?;
            let scrubbed = status.scrub.as_ref().is_some_and(|scrub| scrub.finished);
            if scrubbed && status.overall == Overall::Healthy && status.stripes.dead == 0 {
                // What a repair left that was cut off is found by the next sweep, which need not wait for its hour.
                keeper.request_sweep();
                keeper.reclaim_once().await?;
                return Ok(());
            }
        }
        anyhow::bail!("upkeep does not settle: {:?}", keeper.status().await?)
    }

    /// Healthy is the truth: every chunk of every stripe reads back.
    ///
    /// # Errors
    /// It is not.
    pub async fn check_verified(&self) -> Result<()> {
        for stripe in self.meta.stripes(None, 100_000).await? {
            let verification = self.running.stripes.verify(&stripe, &claystone_stripe::Unpaced).await;
            ensure!(verification.healthy(), "called healthy: {stripe:?} is {verification:?}");
            let places = || (0..).map(ChunkIndex).zip(stripe.places.iter().flatten());
            let together = places().flat_map(|(one, place)| {
                places()
                    .filter(move |(other, beside)| *other > one && beside.disk == place.disk)
                    .map(move |it| (one, it.0))
            });
            for (one, other) in together {
                ensure!(stripe.code.may_share_disk(one, other), "{one} and {other} on one disk: {stripe:?}");
            }
        }
        Ok(())
    }

    /// After reclaim a disk holds the chunks that records name, and no others. Stripes that died since wait with theirs.
    ///
    /// # Errors
    /// Some do.
    pub async fn check_no_orphans(&self) -> Result<()> {
        let mut named = BTreeSet::new();
        let waiting = self.meta.dead_stripes(100_000).await?;
        for stripe in self.meta.stripes(None, 100_000).await?.into_iter().chain(waiting) {
            for (index, place) in stripe.places.iter().enumerate() {
                let id = stripe.chunk_id(ChunkIndex(index as u16));
                named.extend(place.zip(id).map(|(place, id)| (place.disk, id)));
            }
        }
        for record in self.meta.disks().await? {
            let Some(store) = self.running.stripes.stores().readable(record.id) else { continue };
            for id in store.list(None, 100_000).await? {
                ensure!(named.contains(&(record.id, id)), "chunk {id} on {} is named by nothing", record.id);
            }
        }
        Ok(())
    }
}

const REOPEN_TRIES: usize = 1000;
const HEAL_ROUNDS: usize = 60;
const HEAL_REST_MAX: Duration = Duration::from_secs(120);

/// The one bucket of a drill.
pub const BUCKET: &str = "drill";

async fn format_disk<H: Hardware>(
    process: &Process,
    sim: &H,
    cluster: ClusterId,
    (number, promise): (usize, Promise),
    meta: &SqliteMeta,
) -> Result<DiskId> {
    let env = process.env();
    let disk = DiskId::new(&*env.random);
    let node = NodeId(format!("node-{}", number % promise.nodes));
    let identity = Identity { disk, cluster, node: node.clone(), created: env.clock.wall() };
    claystone_disk::format(&*sim.worker(process), sim.directory(process)?, identity).await?;
    let record = DiskRecord {
        id: disk,
        node,
        path: format!("slot {number}"),
        state: DiskState::Active,
        added: env.clock.wall(),
    };
    meta.put_disk(record).await?;
    Ok(disk)
}

async fn open<H: Hardware>(process: &Process, slot: &Slot<H>, record: DiskRecord, cluster: ClusterId) -> Member {
    let env = process.env();
    let expected = Expected { cluster, disk: slot.disk };
    let options = Options { reserve_bytes: Some(1 << 20), ..Options::default() };
    let absent =
        |reason: String| Member { record: record.clone(), store: Err(Absence { reason }), space: Space::default() };
    let directory = match slot.sim.directory(process) {
        Ok(directory) => directory,
        Err(error) => return absent(format!("{error:#}")),
    };
    match DirectoryStore::open(env, directory, slot.sim.worker(process), expected, options).await {
        Ok(store) => {
            let space = store.space().await.unwrap_or_default();
            let store: Arc<dyn ChunkStore> = Arc::new(store);
            Member { record: record.clone(), store: Ok(store), space }
        }
        Err(error) => absent(error.to_string()),
    }
}

async fn start<H: Hardware>(
    process: Process,
    slots: &[Slot<H>],
    meta: &Arc<SqliteMeta>,
    cluster: ClusterId,
    upkeep: &claystone_keeper::Settings,
    promise: Promise,
) -> Result<Running> {
    let env: Env = process.env().clone();
    let stores = Stores::default();
    for record in meta.disks().await? {
        let member = match slots.iter().find(|slot| slot.disk == record.id) {
            Some(slot) => open(&process, slot, record, cluster).await,
            None => {
                let store = Err(Absence { reason: "in no slot".to_owned() });
                Member { record, store, space: Space::default() }
            }
        };
        stores.put(member);
    }
    // One process in two has room for what is new, and one keeps buckets to their bounds from the first byte on.
    let bound_from_bytes = process.env().random.fork("bound").below(2) << 30;
    let stripe_settings = claystone_stripe::Settings {
        heat_half_life: Duration::from_millis(500),
        bound_from_bytes,
        ..Default::default()
    };
    let (stripes, damage) = Stripes::new(env.clone(), stores, stripe_settings);
    let shared: Arc<dyn Meta> = meta.clone();
    let code = "rs:4+2".parse().expect("a valid code");
    let settings = Settings { durability: promise.durability, part_bytes_min: 1, ..Settings::new(code) };
    let objects = Objects::new(env.clone(), shared.clone(), stripes.clone(), settings);
    let volumes = Volumes::new(env.clone(), shared.clone(), stripes.clone(), volume_settings());
    // Merges that were interrupted are finished before anybody repairs their stripes.
    let recovered = volumes.recover().await?;
    ensure!(recovered.unprotected.is_empty(), "stripes of {:?} are not held", recovered.unprotected);
    for (volume, error) in recovered.refused {
        tracing::warn!(volume, %error, "a volume does not open");
    }
    let keeper = Keeper::new(env, shared, stripes.clone(), damage, upkeep.clone())?;
    keeper.start();
    process.env().tasks.spawn("repack", Box::pin(objects.clone().repack_loop()));
    Ok(Running { process, objects, stripes, volumes, keeper })
}

/// Rounds take a fraction of a second: what is written in one is no longer new in the next.
pub fn keeper_settings() -> claystone_keeper::Settings {
    claystone_keeper::Settings { convert_after: Duration::from_millis(20), ..Default::default() }
}

/// A small reserve, so that merging, waiting and going on in the next segment happen in short runs too.
fn volume_settings() -> claystone_volume::Settings {
    claystone_volume::Settings { reserve_bytes: 16 << 20, segment_bytes: 8 << 20, ..Default::default() }
}
