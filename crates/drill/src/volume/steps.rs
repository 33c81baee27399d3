//! A merge or a switch of a small volume with one fault, at one operation of one disk: run for every operation of every
//! disk, each step has its fault once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use claystone_chunk::ByteRange;
use claystone_chunk::testing::pattern;
use claystone_sim::{SimDisk, World};
use claystone_volume::{
    Blocks, Durable, Form, MergeReport, NewVolume, SnapshotName, Switch, SwitchReport, Volume, joined,
};
use futures::future::{Either, select};

use super::PAGE_BYTES;
use crate::cluster::Cluster;

/// What is done to the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Its diffs are merged; its stripes are of this form.
    Merge(Form),
    /// Its diffs become its first stripes.
    Begin,
    /// Diffs are merged into stripes that a snapshot has too: they are copied.
    Copy,
    /// A stripe is discarded as a whole, and given back when that is merged; the other has a diff.
    Drop,
    /// Its stripes, which are the first, become the second.
    Switch(Form, Form),
}

/// What happens on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepFault {
    /// The process and the power of all disks end.
    Kill,
    /// One disk answers no more, and the process goes on.
    Loss,
}

/// A work, and a fault in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub work: Work,
    /// What happens.
    pub fault: StepFault,
    /// The disk at whose operation it happens.
    pub disk: usize,
    /// How many operations of that disk are carried out before.
    pub operation: u64,
}

/// What was written, and what a snapshot of it holds.
struct Truth {
    volume: Vec<u8>,
    snapshot: Option<Vec<u8>>,
}

/// Runs a step. False: the disk has fewer operations.
///
/// # Errors
/// What the store did wrong.
pub fn run_step(step: Step) -> Result<bool> {
    claystone_sim::run(1, |world| run(world, step)).with_context(|| format!("{step:?}"))
}

async fn run(world: World, step: Step) -> Result<bool> {
    let mut cluster = Cluster::new(world, DISKS).await?;
    let code = "replica:2/rs:3+1".parse().expect("a valid redundancy");
    let new = NewVolume { chunk_bytes: CHUNK_BYTES, ..NewVolume::new(NAME, BYTES, code) };
    cluster.running.volumes.create(new).await?;
    let mut volume = cluster.running.volumes.open(NAME).await?;
    let mut truth = prepare(&cluster, &volume, step.work).await?;

    let sim = cluster.slots[step.disk].sim.clone();
    sim.cut_power_after(step.operation);
    let worked = step.fault.until(&cluster.world, &sim, work(&volume, step.work)).await;
    if sim.is_powered() {
        worked.context("nothing happened")?.context("without a fault")?.ensure_all_of(step.work)?;
        return Ok(false);
    }
    if step.fault == StepFault::Loss {
        // Whether it could go on without the disk or not, nothing is lost, and clients do.
        check(&cluster, &volume, &truth).await.context("without the disk")?;
        scribble(&volume, &mut truth.volume, 3).await.context("without the disk")?;
        volume.flush().await.context("without the disk")?;
        check(&cluster, &volume, &truth).await.context("without the disk")?;
    }
    drop(volume);
    cluster.crash().await?;
    volume = cluster.running.volumes.open(NAME).await.context("opening it again")?;
    check(&cluster, &volume, &truth).await.context("opened again")?;
    drop(volume);
    // What missed something is rebuilt; then another disk is away, each in its turn.
    cluster.heal().await?;
    let away = (step.disk + step.operation as usize) % DISKS;
    cluster.slots[away].sim.set_removed(true);
    cluster.crash().await?;
    volume = cluster.running.volumes.open(NAME).await.context("opening it without a disk")?;
    check(&cluster, &volume, &truth).await.with_context(|| format!("without disk {away}"))?;
    work(&volume, step.work).await.context("once more")?;
    check(&cluster, &volume, &truth).await.context("in the end")?;
    Ok(true)
}

/// What the work begins from, flushed: for most of them stripes in all of the volume, and diffs on some of them.
async fn prepare(cluster: &Cluster, volume: &Volume, work: Work) -> Result<Truth> {
    let mut truth = Truth { volume: pattern(1, BYTES as usize).to_vec(), snapshot: None };
    volume.write(0, truth.volume.clone().into(), Durable::WithFlush).await?;
    if work == Work::Begin {
        volume.flush().await?;
        return Ok(truth);
    }
    volume.merge_all().await?;
    let first = match work {
        Work::Merge(form) => form,
        Work::Switch(from, _) => from,
        Work::Begin | Work::Copy | Work::Drop => Form::Coded,
    };
    volume.switch(all(first)).await?;
    match work {
        Work::Drop => {
            scribble(volume, &mut truth.volume, 1).await?;
            let range = ByteRange { offset: 0, bytes: STRIPE_BYTES };
            truth.volume[..STRIPE_BYTES as usize].fill(0);
            volume.discard(range, Durable::WithFlush).await?;
        }
        Work::Copy => {
            cluster.running.volumes.take_snapshot(&snapshot()).await?;
            truth.snapshot = Some(truth.volume.clone());
            scribble(volume, &mut truth.volume, 1).await?;
        }
        _ => scribble(volume, &mut truth.volume, 1).await?,
    }
    if let Work::Switch(..) = work {
        // That this merge is over is not durable yet.
        volume.merge_all().await?;
        scribble(volume, &mut truth.volume, 2).await?;
    }
    volume.flush().await?;
    Ok(truth)
}

/// What a work has done.
enum Worked {
    Merged(MergeReport),
    Switched(SwitchReport),
}

impl Worked {
    /// Nothing that belongs to the work is left out: it was not one of another kind.
    fn ensure_all_of(&self, work: Work) -> Result<()> {
        let (done, all) = match (self, work) {
            (Worked::Merged(report), Work::Begin) => (report.stripes_begun, STRIPES),
            (Worked::Merged(report), Work::Copy) => (report.stripes_copied, STRIPES),
            (Worked::Merged(report), Work::Drop) => (report.stripes_dropped, 1),
            (Worked::Merged(report), _) => (report.stripes, STRIPES),
            (Worked::Switched(report), Work::Switch(from, to)) => {
                let (mirrored, coded) = to.turned(Some(from), COLUMNS);
                (report.coded + report.mirrored, STRIPES * (mirrored + coded))
            }
            (Worked::Switched(_), _) => unreachable!("only what is to be switched is"),
        };
        ensure!(done == all, "{done} stripes or chunks of {all}");
        Ok(())
    }
}

async fn work(volume: &Volume, work: Work) -> Result<Worked> {
    Ok(match work {
        Work::Merge(_) | Work::Begin | Work::Copy | Work::Drop => Worked::Merged(volume.merge_all().await?),
        Work::Switch(_, to) => Worked::Switched(volume.switch(all(to)).await?),
    })
}

fn all(to: Form) -> Vec<Switch> {
    (0..STRIPES).map(|position| Switch { position, to }).collect()
}

/// A few pages of each stripe, one of which is discarded.
async fn scribble(volume: &Volume, model: &mut [u8], seed: u64) -> Result<()> {
    for number in 0..5 {
        let at = (seed * 7 + number * 19) % (BYTES / PAGE_BYTES) * PAGE_BYTES;
        let page = &mut model[at as usize..(at + PAGE_BYTES) as usize];
        if number == 4 {
            page.fill(0);
            volume.discard(ByteRange { offset: at, bytes: PAGE_BYTES }, Durable::WithFlush).await?;
            continue;
        }
        let content = pattern(seed * 100 + number, PAGE_BYTES as usize);
        page.copy_from_slice(&content);
        volume.write(at, content, Durable::WithFlush).await?;
    }
    Ok(())
}

fn snapshot() -> SnapshotName {
    SnapshotName { volume: NAME.to_owned(), snapshot: "s".to_owned() }
}

async fn check(cluster: &Cluster, volume: &Volume, truth: &Truth) -> Result<()> {
    let all = ByteRange { offset: 0, bytes: BYTES };
    ensure_holds(&joined(volume.read(all).await?), &truth.volume)?;
    if let Some(expected) = &truth.snapshot {
        let kept = cluster.running.volumes.open_snapshot(&snapshot()).await?;
        ensure_holds(&joined(kept.read(all).await?), expected).context("the snapshot")?;
    }
    Ok(())
}

fn ensure_holds(found: &[u8], expected: &[u8]) -> Result<()> {
    let pages = found.chunks(PAGE_BYTES as usize).zip(expected.chunks(PAGE_BYTES as usize));
    let wrong: Vec<usize> =
        pages.enumerate().filter(|(_, (found, expected))| found != expected).map(|(at, _)| at).collect();
    ensure!(wrong.is_empty(), "the pages {wrong:?} hold something else");
    Ok(())
}

impl StepFault {
    /// Works until that is over or, if the process is killed with the disk, the disk has no power: then it is cut off, and there is no result.
    pub(crate) async fn until<T>(self, world: &World, disk: &SimDisk, work: impl Future<Output = T>) -> Option<T> {
        match self {
            StepFault::Loss => Some(work.await),
            StepFault::Kill => match select(std::pin::pin!(work), std::pin::pin!(dark(world, disk))).await {
                Either::Left((worked, _)) => Some(worked),
                Either::Right(_) => None,
            },
        }
    }
}

/// Returns when a disk has no power.
async fn dark(world: &World, disk: &SimDisk) {
    while disk.is_powered() {
        world.clock().sleep(Duration::from_micros(10)).await;
    }
}

const NAME: &str = "v";
const DISKS: usize = 4;
const CHUNK_BYTES: u64 = 64 << 10;
const COLUMNS: u16 = 3;
const STRIPE_BYTES: u64 = COLUMNS as u64 * CHUNK_BYTES;
const STRIPES: u64 = 2;
const BYTES: u64 = STRIPES * STRIPE_BYTES;
