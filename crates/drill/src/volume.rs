//! One volume of a simulated store, its snapshots and clones: writers at once, faults of disks, crashes, repairs, and a model
//! of every page.
//!
//! What a page may hold: what was there at the last flush that returned, or any write since; after a read, what was read,
//! until the next write or crash.

mod snapshots;
mod steps;
mod takeovers;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use claystone_chunk::ByteRange;
use claystone_chunk::testing::pattern;
use claystone_code::{ChunkIndex, ChunkSet};
use claystone_env::{Random, Task};
use claystone_keeper::Overall;
use claystone_meta::Redundancy;
use claystone_sim::{Fault, TraceSum, World};
use claystone_volume::{Blocks, Durable, Form, NewVolume, Switch, Volume, joined};

use self::snapshots::Kept;
pub use self::steps::{Step, StepFault, Work, run_step};
pub use self::takeovers::{Takeover, run_takeover};
use crate::Atlas;
use crate::cluster::{Cluster, DISK_BYTES};

/// What a run did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeReport {
    /// Everything that happened, as one number.
    pub trace: TraceSum,
    /// Writes and flushes that succeeded.
    pub operations: u64,
    /// Those that returned an error.
    pub refused: u64,
    /// Faults that were injected.
    pub faults: u64,
    /// Crashes.
    pub crashes: u64,
    /// Snapshots that were taken.
    pub snapshots: u64,
    /// Volumes that were made of them.
    pub clones: u64,
}

/// Runs one seed.
///
/// # Errors
/// What the store did wrong. Run the seed again to see it again.
pub fn run_volume_seed(seed: u64) -> Result<VolumeReport> {
    claystone_sim::run(seed, |world| async move { Drill::new(world).await?.run().await })
        .with_context(|| format!("replay it with: cargo run -p claystone-drill -- --volume --seed {seed}"))
}

/// Contents of a page by seed; 0 is zeros.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PageTruth {
    /// What it may hold now.
    now: BTreeSet<u64>,
    /// What it may hold after a crash.
    after_crash: BTreeSet<u64>,
    /// Writes by when they began.
    begun: Vec<(u64, u64)>,
}

/// What every page may hold.
#[derive(Debug, Clone)]
struct PageModel {
    pages: Vec<PageTruth>,
    /// Writes that have begun.
    count: u64,
}

/// What pages held when a flush was asked for, and how many writes had begun.
type Flushing = (Vec<BTreeSet<u64>>, u64);

impl PageModel {
    fn new(pages: usize) -> PageModel {
        let zeros = BTreeSet::from([0]);
        let page = PageTruth { now: zeros.clone(), after_crash: zeros, begun: Vec::new() };
        PageModel { pages: vec![page; pages], count: 0 }
    }

    /// As one that holds just this.
    fn holding(seeds: impl Iterator<Item = u64>) -> PageModel {
        let page = |seed| PageTruth { now: [seed].into(), after_crash: [seed].into(), begun: Vec::new() };
        PageModel { pages: seeds.map(page).collect(), count: 0 }
    }

    /// What pages may have held at some time since this was asked for.
    fn since(&self, (then, count): Flushing) -> Vec<BTreeSet<u64>> {
        let begun = |page: &PageTruth| {
            let since = page.begun.iter().filter(|(at, _)| *at >= count);
            since.map(|(_, seed)| *seed).collect::<Vec<u64>>()
        };
        then.into_iter().zip(&self.pages).map(|(then, page)| then.into_iter().chain(begun(page)).collect()).collect()
    }

    /// A write of this content begins.
    fn begin(&mut self, page: usize, seed: u64) {
        let truth = &mut self.pages[page];
        truth.now.insert(seed);
        truth.after_crash.insert(seed);
        truth.begun.push((self.count, seed));
        self.count += 1;
    }

    /// It returned.
    fn end(&mut self, page: usize, seed: u64) {
        self.pages[page].now = BTreeSet::from([seed]);
    }

    /// What pages held when a flush was asked for.
    fn flushing(&self) -> Flushing {
        (self.pages.iter().map(|page| page.now.clone()).collect(), self.count)
    }

    /// The flush returned: of what was there when it was asked for, older contents are no more; what came since may be.
    fn flushed(&mut self, (then, count): Flushing) {
        for (page, then) in self.pages.iter_mut().zip(then) {
            let since = page.begun.iter().filter(|(at, _)| *at >= count).map(|(_, seed)| *seed);
            // A flush that was asked for earlier and returns later says less than what is known.
            let possible: BTreeSet<u64> = then.into_iter().chain(since).collect();
            page.after_crash.retain(|seed| possible.contains(seed));
        }
    }

    /// The process died.
    fn crashed(&mut self) {
        for page in &mut self.pages {
            page.now = page.after_crash.clone();
        }
    }

    /// A page was read, and nobody writes it.
    fn observe(&mut self, page: usize, found: &[u8]) -> Result<()> {
        let truth = &mut self.pages[page];
        let held = held(&truth.now, found).with_context(|| format!("page {page}"))?;
        truth.now = BTreeSet::from([held]);
        Ok(())
    }
}

/// Which of these contents it is.
fn held(possible: &BTreeSet<u64>, found: &[u8]) -> Result<u64> {
    let held = possible.iter().copied().find(|seed| content(*seed)[..] == *found);
    held.with_context(|| {
        // Mostly it is an older write, or one of another page.
        let other = (0..CONTENTS_SEARCHED).find(|seed| content(*seed)[..] == *found);
        format!("it holds {other:?}, which is none of {possible:?}")
    })
}

fn content(seed: u64) -> bytes::Bytes {
    if seed == 0 { vec![0; PAGE_BYTES as usize].into() } else { pattern(seed, PAGE_BYTES as usize) }
}

const PAGE_BYTES: u64 = 4096;
const PAGES: u64 = 512;
const NAME: &str = "v";
/// The bound of the last one: 180 % for stripes, and 1,600 % for two copies of a log of 16 MiB beside 2 MiB.
const CODES: [&str; 7] =
    ["rs:4+2", "rs:2+1", "replica:3", "lrc:4+2+2", "mirror:3x3", "replica:3/rs:4+2", "replica:2/rs:2+1<=1780%"];

struct Drill {
    cluster: Cluster,
    random: Arc<dyn Random>,
    atlas: Atlas,
    model: Arc<Mutex<PageModel>>,
    tally: Arc<Mutex<(u64, u64)>>,
    faults: u64,
    crashes: u64,
    next_content: u64,
    kept: Kept,
}

/// Of every third volume whose stripes survive the loss of a disk and are its whole length, each data chunk has a home.
fn with_homes(new: NewVolume, random: &dyn Random, cluster: &Cluster) -> NewVolume {
    let data = u64::from(new.redundancy.code.shape().data);
    if random.below(3) > 0 || !new.bytes.is_multiple_of(data * new.chunk_bytes) {
        return new;
    }
    let members = cluster.running.stripes.stores().members().into_iter();
    NewVolume { homes: members.map(|member| member.record.node).take(data as usize).collect(), ..new }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drill {
    async fn new(world: World) -> Result<Drill> {
        let random = world.random().fork("volume drill");
        let redundancy: Redundancy =
            CODES[random.below(CODES.len() as u64) as usize].parse().expect("a valid redundancy");
        let disks = usize::from(redundancy.disks_min().max(4)) + random.below(3) as usize;
        let cluster = Cluster::new(world, disks).await?;
        let new = NewVolume { chunk_bytes: 64 << 10, ..NewVolume::new(NAME, PAGES * PAGE_BYTES, redundancy) };
        let new = with_homes(new, &*random.fork("homes"), &cluster);
        cluster.running.volumes.create(new).await?;
        Ok(Drill {
            cluster,
            random,
            atlas: Atlas::new(redundancy.codes().map(|code| code.tolerance()).min().expect("there is one")),
            model: Arc::new(Mutex::new(PageModel::new(PAGES as usize))),
            tally: Arc::default(),
            faults: 0,
            crashes: 0,
            next_content: 0,
            kept: Kept::default(),
        })
    }

    async fn run(mut self) -> Result<VolumeReport> {
        for _ in 0..1 + self.random.below(2) {
            for _ in 0..2 + self.random.below(4) {
                self.round().await?;
            }
            self.repair_all().await?;
        }
        let (operations, refused) = *lock(&self.tally);
        let trace = self.cluster.world.trace();
        let Kept { taken: snapshots, cloned: clones, .. } = self.kept;
        Ok(VolumeReport { trace, operations, refused, faults: self.faults, crashes: self.crashes, snapshots, clones })
    }

    async fn volume(&self) -> Result<Volume> {
        self.cluster.running.volumes.open(NAME).await.context("opening the volume")
    }

    /// Writers at work, faults between their steps, perhaps a crash; then every page is read.
    async fn round(&mut self) -> Result<()> {
        let volume = self.volume().await?;
        let writers = 1 + self.random.below(4);
        let tasks: Vec<Task> = (0..writers).map(|writer| self.start_writer(&volume, writer, writers)).collect();
        for _ in 0..self.random.below(4) {
            self.pause().await;
            match self.random.below(6) {
                // What it cannot merge now stays where it is.
                0 | 1 => drop(volume.merge_once(1 + self.random.below(200)).await),
                2 => self.take_snapshot().await,
                // Nor does what cannot be switched or brought home change.
                3 => {
                    drop(volume.switch(self.switches()).await);
                    drop(volume.bring_home_once().await);
                }
                _ => self.fault().await?,
            }
        }
        if self.random.below(2) == 0 {
            self.pause().await;
            self.crashes += 1;
            drop(volume);
            self.cluster.crash().await?;
            lock(&self.model).crashed();
            self.kept.crashed();
        } else {
            drop(volume);
            for task in tasks {
                task.ended().await;
            }
        }
        self.check().await?;
        self.use_snapshots().await
    }

    /// Any forms for any stripes.
    fn switches(&self) -> Vec<Switch> {
        let form = || match self.random.below(3) {
            0 => Form::Coded,
            1 => Form::Mirrored,
            // Where the volume has such a form; else nothing changes.
            _ => Form::Mixed(ChunkSet::default().with(ChunkIndex(self.random.below(4) as u16))),
        };
        (0..1 + self.random.below(8)).map(|_| Switch { position: self.random.below(8), to: form() }).collect()
    }

    async fn pause(&self) {
        let microseconds = self.random.below(1 << (self.random.below(16) + 1));
        self.cluster.world.clock().sleep(Duration::from_micros(microseconds)).await;
    }

    /// Writes, discards and flushes by one writer, on pages of its own.
    fn start_writer(&mut self, volume: &Volume, writer: u64, writers: u64) -> Task {
        let random = self.random.fork(&format!("writer {writer} of {}", self.next_content));
        let (volume, model, tally) = (volume.clone(), self.model.clone(), self.tally.clone());
        let first_content = self.next_content + 1;
        self.next_content += STEPS * RUN_PAGES_MAX;
        let work = async move {
            let mut next_content = first_content;
            for _ in 0..STEPS {
                let result = match random.below(8) {
                    0 => {
                        let then = lock(&model).flushing();
                        let flushed = volume.flush().await;
                        if flushed.is_ok() {
                            lock(&model).flushed(then);
                        }
                        flushed
                    }
                    kind => {
                        // A run of pages within this writer's part of the volume.
                        let part = PAGES / writers;
                        let pages = 1 + random.below(RUN_PAGES_MAX.min(part));
                        let first = writer * part + random.below(part - pages + 1);
                        let seeds: Vec<u64> =
                            (0..pages).map(|page| if kind == 1 { 0 } else { next_content + page }).collect();
                        next_content += pages;
                        let places = || (first as usize..).zip(seeds.iter().copied());
                        places().for_each(|(page, seed)| lock(&model).begin(page, seed));
                        let range = ByteRange { offset: first * PAGE_BYTES, bytes: pages * PAGE_BYTES };
                        let written = if kind == 1 {
                            volume.discard(range, Durable::WithFlush).await
                        } else {
                            let all: Vec<u8> = seeds.iter().flat_map(|seed| content(*seed)).collect();
                            volume.write(range.offset, all.into(), Durable::WithFlush).await
                        };
                        if written.is_ok() {
                            places().for_each(|(page, seed)| lock(&model).end(page, seed));
                        }
                        written
                    }
                };
                let mut tally = lock(&tally);
                if result.is_ok() { tally.0 += 1 } else { tally.1 += 1 }
            }
        };
        self.cluster.running.process.env().tasks.spawn("writer", Box::pin(work))
    }

    async fn fault(&mut self) -> Result<()> {
        self.faults += 1;
        let number = self.atlas.choose(&*self.random, self.cluster.slots.len());
        let kind = self.random.below(11);
        self.cluster.world.note("fault", &[number as u64, kind]);
        let sim = self.cluster.slots[number].sim.clone();
        let hurtable = |path: &String| path.starts_with("chunks/") || path.starts_with("segments/");
        let files: Vec<String> = sim.files().into_iter().filter(hurtable).collect();
        let random = &*self.random;
        let some = || files.get(random.below(files.len().max(1) as u64) as usize);
        match kind {
            0..=2 => {
                for _ in 0..1 + random.below(5) {
                    if let Some(path) = some() {
                        let bits = sim.content(path).len() as u64 * 8;
                        if bits > 0 {
                            sim.flip_bit(path, random.below(bits));
                        }
                    }
                }
            }
            3 => {
                if let Some(path) = some() {
                    sim.lose_file(path);
                }
            }
            4 => {
                if let Some(path) = some() {
                    let start = random.below(sim.content(path).len() as u64 + 1);
                    sim.make_unreadable(path, start..start + 1 + random.below(20_000));
                }
            }
            5 => sim.set_removed(true),
            6 => sim.fail_every(Some((2 + random.below(30), Fault::Medium))),
            7 => sim.set_capacity(random.below(2_000_000)),
            8 => sim.set_read_only(true),
            9 => sim.set_latency_factor(1 + random.below(1000) as u32),
            _ => self.cluster.replace(number).await?,
        }
        Ok(())
    }

    /// Every page holds what it may. Nobody writes meanwhile.
    async fn check(&mut self) -> Result<()> {
        self.check_snapshots().await?;
        let clones: Vec<String> = self.kept.clones.keys().cloned().collect();
        for name in clones {
            let model = self.kept.clones.get_mut(&name).expect("it was just listed");
            check_volume(&self.cluster, &name, model).await.with_context(|| format!("the clone {name}"))?;
        }
        let mut model = lock(&self.model).clone();
        check_volume(&self.cluster, NAME, &mut model).await?;
        *lock(&self.model) = model;
        Ok(())
    }

    /// The operator fixes or replaces what was hurt; then upkeep must bring everything back, verified.
    async fn repair_all(&mut self) -> Result<()> {
        for number in self.atlas.hurt().clone() {
            let sim = &self.cluster.slots[number].sim;
            sim.set_removed(false);
            sim.set_read_only(false);
            sim.set_capacity(DISK_BYTES);
            sim.set_latency_factor(1);
            sim.fail_every(None);
            sim.spare_faults();
            if self.random.below(3) == 0 {
                self.cluster.replace(number).await?;
            } else {
                self.cluster.reopen(number).await?;
            }
        }
        let clock = self.cluster.world.clock();
        let keeper = &self.cluster.running.keeper;
        keeper.start_scrub().await?;
        let mut settled = false;
        for _ in 0..SETTLE_ROUNDS {
            // Longer than a volume waits before it merges what is left.
            clock.sleep(Duration::from_secs(120)).await;
            let mut left = self.volume().await?.merge_all().await.context("merging after the repair")?;
            for name in self.kept.clones.keys() {
                let clone = self.cluster.running.volumes.open(name).await.context("opening a clone")?;
                left.add(&clone.merge_all().await.context("merging a clone after the repair")?);
            }
            let status = keeper.status().await?;
            let scrubbed = status.scrub.as_ref().is_some_and(|scrub| scrub.finished);
            if left == Default::default() && scrubbed && status.overall == Overall::Healthy && status.stripes.dead == 0
            {
                settled = true;
                break;
            }
        }
        ensure!(settled, "upkeep does not settle: {:?}", keeper.status().await?);
        self.atlas.repaired();
        self.check().await
    }
}

/// Every page of a volume holds what it may. Nobody writes meanwhile.
async fn check_volume(cluster: &Cluster, name: &str, model: &mut PageModel) -> Result<()> {
    let volume = cluster.running.volumes.open(name).await.context("opening a volume to read it")?;
    // What was not certain is, once this returns; a volume that failed says so, and is opened anew.
    let volume = match volume.flush().await {
        Ok(()) => volume,
        Err(_) => {
            drop(volume);
            let volume = cluster.running.volumes.open(name).await.context("opening a volume that failed")?;
            volume.flush().await.context("flushing a volume that was just opened")?;
            volume
        }
    };
    let all = ByteRange { offset: 0, bytes: PAGES * PAGE_BYTES };
    let found = joined(volume.read(all).await.context("reading the whole volume")?);
    for (page, found) in found.chunks_exact(PAGE_BYTES as usize).enumerate() {
        model.observe(page, found)?;
    }
    let then = model.flushing();
    model.flushed(then);
    Ok(())
}

const STEPS: u64 = 30;
const CONTENTS_SEARCHED: u64 = 20_000;
const RUN_PAGES_MAX: u64 = 24;
const SETTLE_ROUNDS: usize = 40;
