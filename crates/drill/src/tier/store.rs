//! A store whose disks are pairs: solid-state drives die while it runs, processes are killed with the power of all drives, and what was
//! acknowledged is there. What only a solid-state drive had is repaired from the other disks.
//!
//! Of two stores one acknowledges before all is synced (`durability = "replicated"`), on one node: its power is cut at any instant until the
//! next full repair, or solid-state drives die and it is not cut before all is synced.
//!
//! Invariants:
//! 1. A seed replays a run exactly.
//! 2. No more solid-state drives die between two full repairs than the code of the bucket loses disks.
//! 3. A disk whose solid-state drive died goes on with its hard disk, or it does not open after the power went, and is replaced. In the end
//!    every stripe is verified.
//!
//! Left out: faults of files, which `run_seed` of the whole store has, and of single operations of a pair, which the drills beside have.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::num::NonZeroU64;
use std::ops::AddAssign;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use claystone_chunk::{DiskId, Durability};
use claystone_env::{Clock, Device, Directory, Random, Worker};
use claystone_files::{Disk, DiskDirectory, Format, Tuning};
use claystone_keeper::Overall;
use claystone_sim::{HddModel, Process, SimDevice, World};
use claystone_tier::{Steering, TierFormat, TierTuning, TieredDevice};

use crate::cluster::{BUCKET, Cluster, Hardware, keeper_settings};
use crate::run::{put, read};
use crate::{Model, Promise, Stored};

/// What runs did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreReport {
    /// Objects that were put.
    pub puts: u64,
    /// Puts that were refused.
    pub refused: u64,
    /// Solid-state drives that died.
    pub deaths: u64,
    /// Of their disks, those that went on with the hard disk,
    pub alone: u64,
    /// and those that were replaced.
    pub replaced: u64,
    /// Processes that were killed,
    pub crashes: u64,
    /// and of these, with chunks that were acknowledged and not synced.
    pub volatile: u64,
    /// Sectors that only solid-state drives had which died.
    pub lost: u64,
    /// Chunks that were repaired.
    pub repaired: u64,
}

impl AddAssign for StoreReport {
    fn add_assign(&mut self, more: StoreReport) {
        self.puts += more.puts;
        self.refused += more.refused;
        self.deaths += more.deaths;
        self.alone += more.alone;
        self.replaced += more.replaced;
        self.crashes += more.crashes;
        self.volatile += more.volatile;
        self.lost += more.lost;
        self.repaired += more.repaired;
    }
}

impl fmt::Display for StoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StoreReport { puts, refused, deaths, alone, replaced, crashes, volatile, lost, repaired } = self;
        write!(
            f,
            "{puts} objects put, {refused} refused; {deaths} solid-state drives died with {lost} sectors that only they had: {alone} disks \
             went on alone, {replaced} were replaced; {crashes} crashes, {volatile} of them before all was synced, {repaired} chunks repaired"
        )
    }
}

/// Runs a seed.
///
/// # Errors
/// What the store did wrong.
pub fn run_store(seed: u64) -> Result<StoreReport> {
    claystone_sim::run(seed, async |world| Run::new(world).await?.run().await)
        .with_context(|| format!("replay it with: cargo run -p claystone-drill -- --tier --seed {seed}"))
}

/// A disk of two drives.
struct PairDisk {
    hdd: SimDevice,
    ssd: SimDevice,
    tuning: TierTuning,
    is_ssd_dead: Cell<bool>,
    /// As it is open.
    open: RefCell<Weak<TieredDevice>>,
}

impl PairDisk {
    /// Its solid-state drive fails, for good.
    fn lose_ssd(&self) {
        self.ssd.set_removed(true);
        self.is_ssd_dead.set(true);
    }

    /// Sectors that it says are lost; `None`: it is not open.
    fn lost_sectors(&self) -> Option<u64> {
        self.open.borrow().upgrade().map(|pair| pair.info().lost_sectors)
    }

    fn pair(&self, clock: Arc<dyn Clock>) -> Result<Arc<TieredDevice>> {
        let ssd = (!self.is_ssd_dead.get()).then(|| self.ssd.attach());
        let pair = TieredDevice::open(self.hdd.attach(), ssd, Arc::new(move || clock.now()), self.tuning)?;
        Ok(Arc::new(pair))
    }
}

impl Hardware for PairDisk {
    fn new(world: &World, name: &str, number: usize) -> Result<PairDisk> {
        let model = |sectors| HddModel { fails_fast: false, cache_sectors: 1 << 20, ..HddModel::new(sectors) };
        let hdd = world.device(&format!("{name}, hdd"), model(HOME + LOG + 2));
        let ssd = world.device(&format!("{name}, ssd"), model(LOG + 2));
        let format = TierFormat {
            hdd_log_sectors: Some(LOG),
            record_sectors_max: 64,
            unmarked_sectors_max: Some(512),
            ..TierFormat::default()
        };
        TieredDevice::format(&*hdd.attach(), &*ssd.attach(), &format, world.random()).context("formatting the pair")?;
        // Of each three disks one redirects nothing, one syncs the hard disk, and one copies what its buffer has.
        let (nth, copy_sectors_max) = [(u64::MAX, 0), (2, 0), (2, 256)][number % 3];
        let steering = Steering::EveryNth(NonZeroU64::new(nth).context("it is not 0")?);
        let tuning = TierTuning {
            steering,
            copy_sectors_max,
            drain_sectors_max: 512,
            index_every_sectors: 64,
            ..TierTuning::default()
        };
        let disk = PairDisk { hdd, ssd, tuning, is_ssd_dead: Cell::default(), open: RefCell::default() };
        let shape =
            Format { data: 6, parity: 2, copies: 2, soft_failures: 1e-3, loss_target: 1e-3, label: String::new() };
        let device: Arc<dyn Device> = disk.pair(world.clock())?;
        Disk::format(&device, &shape, &*world.clock(), world.random()).context("formatting the disk")?;
        device.sync()?;
        Ok(disk)
    }

    fn crash(&self) {
        self.hdd.crash();
        self.ssd.crash();
    }

    fn directory(&self, process: &Process) -> Result<Arc<dyn Directory>> {
        let (clock, tasks) = (process.env().clock.clone(), process.env().tasks.clone());
        let pair = self.pair(clock.clone())?;
        *self.open.borrow_mut() = Arc::downgrade(&pair);
        let device: Arc<dyn Device> = pair.clone();
        let disk = Arc::new(Disk::open(device, clock.clone(), Tuning::default())?);
        // As the program has them tended. What they say of a drive that died is for the log of a real one.
        let (weak, every) = (Arc::downgrade(&pair), clock.clone());
        let tend_pair = async move {
            while let Some(pair) = weak.upgrade() {
                let _ = pair.tend();
                let _ = pair.sync_early();
                pair.index();
                drop(pair);
                every.sleep(TEND_PAIR_EVERY).await;
            }
        };
        let weak = Arc::downgrade(&disk);
        let tend_disk = async move {
            while let Some(disk) = weak.upgrade() {
                let _ = disk.tend();
                drop(disk);
                clock.sleep(TEND_DISK_EVERY).await;
            }
        };
        tasks.spawn("tier", Box::pin(tend_pair));
        tasks.spawn("tend", Box::pin(tend_disk));
        Ok(Arc::new(DiskDirectory::new(disk)))
    }

    fn worker(&self, process: &Process) -> Arc<dyn Worker> {
        process.device_worker(&self.hdd)
    }
}

struct Run {
    cluster: Cluster<PairDisk>,
    random: Arc<dyn Random>,
    model: Model,
    contents: u64,
    /// Disks whose solid-state drives died since the last full repair,
    hurt: BTreeSet<usize>,
    /// and those that had none before.
    alone: BTreeSet<usize>,
    promise: Promise,
    /// The power may be cut though not all is synced, and no solid-state drive dies.
    cuts: bool,
    report: StoreReport,
}

impl Run {
    async fn new(world: World) -> Result<Run> {
        let random = world.random().fork("drill");
        let promise = match world.random().fork("promise").below(2) {
            0 => Promise { durability: Durability::Buffered, nodes: 1 },
            _ => Promise::SYNCED,
        };
        let cluster = Cluster::with_upkeep(world, DISKS, keeper_settings(), promise).await?;
        cluster.running.objects.set_code(BUCKET, Some(CODE.parse().context("a valid code")?)).await?;
        let (hurt, alone, report) = (BTreeSet::new(), BTreeSet::new(), StoreReport::default());
        let (model, contents, cuts) = (Model::default(), 0, false);
        Ok(Run { cluster, random, model, contents, hurt, alone, promise, cuts, report })
    }

    async fn run(mut self) -> Result<StoreReport> {
        for _ in 0..2 {
            self.cuts = self.promise.is_replicated() && self.random.below(3) > 0;
            for round in 0..2 + self.random.below(3) {
                self.round().await.with_context(|| format!("round {round}"))?;
            }
            self.repair_all().await.context("repairing")?;
        }
        Ok(self.report)
    }

    async fn round(&mut self) -> Result<()> {
        for _ in 0..1 + self.random.below(4) {
            self.put().await;
        }
        match self.cuts {
            true => {
                self.crash().await?;
                self.check().await?;
            }
            false if self.random.below(3) > 0 => self.let_one_die(),
            false => {}
        }
        for _ in 0..self.random.below(4) {
            self.put().await;
        }
        if self.cuts && self.random.below(2) == 0 {
            return self.check().await;
        }
        self.pause(3000).await;
        if self.random.below(3) == 0 {
            self.crash().await?;
        }
        self.check().await
    }

    async fn pause(&self, ms_max: u64) {
        self.cluster.world.clock().sleep(Duration::from_millis(self.random.below(ms_max))).await;
    }

    fn next(&mut self) -> (String, Stored) {
        self.contents += 1;
        let most = [100, 20_000, 300_000, 900_000][self.random.below(4) as usize];
        let stored = Stored { seed: self.contents, bytes: self.random.below(most + 1) as usize };
        (format!("key {}", self.random.below(8)), stored)
    }

    async fn put(&mut self) {
        let (key, stored) = self.next();
        self.model.begin(&key, Some(stored));
        let happened = put(&self.cluster.running.objects, &key, stored).await.is_ok();
        self.model.end(&key, happened);
        self.report.puts += u64::from(happened);
        self.report.refused += u64::from(!happened);
    }

    fn let_one_die(&mut self) {
        let able: Vec<usize> =
            (0..DISKS).filter(|number| !self.hurt.contains(number) && !self.alone.contains(number)).collect();
        if self.hurt.len() == LOSSES_MAX || able.is_empty() {
            return;
        }
        let number = able[self.random.below(able.len() as u64) as usize];
        self.cluster.world.note("the solid-state drive dies", &[number as u64]);
        self.cluster.slots[number].sim.lose_ssd();
        self.hurt.insert(number);
        self.report.deaths += 1;
    }

    /// While something is put, which is there or not afterwards; or when all is synced, where a solid-state drive may have died.
    async fn crash(&mut self) -> Result<()> {
        if self.promise.is_replicated() && !self.cuts {
            self.cluster.world.clock().sleep(SYNCED_AFTER).await;
            self.report.crashes += 1;
            return self.cluster.crash().await;
        }
        self.report.volatile += u64::from(self.cuts);
        let (key, stored) = self.next();
        self.model.begin(&key, Some(stored));
        let objects = self.cluster.running.objects.clone();
        let put = {
            let key = key.clone();
            async move { drop(put(&objects, &key, stored).await) }
        };
        self.cluster.running.process.env().tasks.spawn("client", Box::pin(put));
        self.pause(60).await;
        self.report.crashes += 1;
        self.cluster.crash().await
    }

    /// Every key holds what clients were told.
    async fn check(&mut self) -> Result<()> {
        for key in self.model.keys() {
            let found =
                read(&self.cluster.running.objects, &key, None).await.with_context(|| format!("reading {key}"))?;
            self.model.observe(&key, found.as_deref()).map_err(|wrong| anyhow!("{wrong}"))?;
        }
        Ok(())
    }

    /// Disks that do not open without their solid-state drives are replaced; then upkeep brings everything back, verified.
    async fn repair_all(&mut self) -> Result<()> {
        let clock = self.cluster.world.clock();
        clock.sleep(Duration::from_secs(10)).await;
        let of_hurt = self.hurt.iter().filter_map(|number| self.cluster.slots[*number].sim.lost_sectors());
        self.report.lost += of_hurt.sum::<u64>();
        if self.random.below(2) == 0 {
            self.crash().await?;
        }
        for number in std::mem::take(&mut self.hurt) {
            let disk: DiskId = self.cluster.slots[number].disk;
            if self.cluster.running.stripes.stores().readable(disk).is_some() {
                self.alone.insert(number);
                self.report.alone += 1;
            } else {
                self.cluster.replace(number).await?;
                self.report.replaced += 1;
            }
        }
        let keeper = self.cluster.running.keeper.clone();
        keeper.start_scrub().await?;
        let mut settled = false;
        for _ in 0..SETTLE_ROUNDS {
            clock.sleep(Duration::from_secs(120)).await;
            let status = keeper.status().await?;
            let scrubbed = status.scrub.as_ref().is_some_and(|scrub| scrub.finished);
            settled = scrubbed && status.overall == Overall::Healthy && status.stripes.dead == 0;
            if settled {
                break;
            }
        }
        let status = keeper.status().await?;
        ensure!(settled, "upkeep does not settle: {status:?}");
        self.report.repaired += status.repair.iter().map(|repairs| repairs.chunks).sum::<u64>();
        self.cluster.check_verified().await?;
        self.check().await
    }
}

const HOME: u64 = 12_000;
/// Twice what it must have.
const LOG: u64 = 2_000;
const DISKS: usize = 7;
const CODE: &str = "rs:3+2";
/// As many as the code loses.
const LOSSES_MAX: usize = 2;
const SETTLE_ROUNDS: usize = 40;
/// Disks sync what was acknowledged within a second, and take some for it.
const SYNCED_AFTER: Duration = Duration::from_secs(10);
/// As the program does.
const TEND_PAIR_EVERY: Duration = Duration::from_millis(50);
const TEND_DISK_EVERY: Duration = Duration::from_secs(1);
