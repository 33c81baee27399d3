//! A merge or a switch of a small volume with one fault, at one operation of one disk: run for every operation of every
//! disk, each step has its fault once.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use claystone_chunk::ByteRange;
use claystone_chunk::testing::pattern;
use claystone_keeper::Overall;
use claystone_sim::{SimDisk, World};
use claystone_volume::{Blocks, Durable, Form, NewVolume, Switch, Volume, joined};
use futures::future::{Either, select};

use super::PAGE_BYTES;
use crate::cluster::Cluster;

/// What is done to the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Its diffs are merged; its stripes are of this form.
    Merge(Form),
    /// Its stripes become this.
    Switch(Form),
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

/// Runs a step. False: the disk has fewer operations.
///
/// # Errors
/// What the store did wrong.
pub fn run_step(step: Step) -> Result<bool> {
    claystone_sim::run(1, |world| run(world, step)).with_context(|| format!("{step:?}"))
}

async fn run(world: World, step: Step) -> Result<bool> {
    let mut cluster = Cluster::new(world, DISKS).await?;
    let code = "replica:2/rs:2+1".parse().expect("a valid redundancy");
    let new = NewVolume { chunk_bytes: CHUNK_BYTES, ..NewVolume::new(NAME, BYTES, code) };
    cluster.running.volumes.create(new).await?;
    let mut volume = cluster.running.volumes.open(NAME).await?;
    let mut model = prepare(&volume, step.work).await?;

    let sim = cluster.slots[step.disk].sim.clone();
    sim.cut_power_after(step.operation);
    let worked = match step.fault {
        StepFault::Loss => Some(work(&volume, step.work).await),
        StepFault::Kill => {
            let dark = std::pin::pin!(dark(&cluster.world, &sim));
            match select(std::pin::pin!(work(&volume, step.work)), dark).await {
                Either::Left((worked, _)) => Some(worked),
                Either::Right(_) => None,
            }
        }
    };
    if sim.is_powered() {
        worked.context("nothing happened")?.context("without a fault")?;
        return Ok(false);
    }
    if step.fault == StepFault::Loss {
        // Whether it could go on without the disk or not, nothing is lost, and clients do.
        check(&volume, &model).await.context("without the disk")?;
        scribble(&volume, &mut model, 3).await.context("without the disk")?;
        volume.flush().await.context("without the disk")?;
        check(&volume, &model).await.context("without the disk")?;
    }
    drop(volume);
    cluster.crash().await?;
    volume = cluster.running.volumes.open(NAME).await.context("opening it again")?;
    check(&volume, &model).await.context("opened again")?;
    drop(volume);
    // What missed something is rebuilt; then another disk is away, each in its turn.
    heal(&cluster).await?;
    let away = (step.disk + step.operation as usize) % DISKS;
    cluster.slots[away].sim.set_removed(true);
    cluster.crash().await?;
    volume = cluster.running.volumes.open(NAME).await.context("opening it without a disk")?;
    check(&volume, &model).await.with_context(|| format!("without disk {away}"))?;
    work(&volume, step.work).await.context("once more")?;
    check(&volume, &model).await.context("in the end")?;
    Ok(true)
}

/// Stripes in all of the volume, of the form from which the work begins, and flushed diffs on some of them.
async fn prepare(volume: &Volume, work: Work) -> Result<Vec<u8>> {
    let mut model = pattern(1, BYTES as usize).to_vec();
    volume.write(0, model.clone().into(), Durable::WithFlush).await?;
    volume.merge_all().await?;
    let first = match work {
        Work::Merge(form) => form,
        Work::Switch(Form::Coded) => Form::Mirrored,
        Work::Switch(Form::Mirrored) => Form::Coded,
    };
    volume.switch(all(first)).await?;
    scribble(volume, &mut model, 1).await?;
    if let Work::Switch(_) = work {
        // That this merge is over is not durable yet.
        volume.merge_all().await?;
        scribble(volume, &mut model, 2).await?;
    }
    volume.flush().await?;
    Ok(model)
}

async fn work(volume: &Volume, work: Work) -> Result<()> {
    match work {
        Work::Merge(_) => drop(volume.merge_all().await?),
        Work::Switch(to) => drop(volume.switch(all(to)).await?),
    }
    Ok(())
}

fn all(to: Form) -> Vec<Switch> {
    (0..BYTES / (2 * CHUNK_BYTES)).map(|position| Switch { position, to }).collect()
}

/// A few pages of each stripe.
async fn scribble(volume: &Volume, model: &mut [u8], seed: u64) -> Result<()> {
    for number in 0..4 {
        let at = ((seed * 7 + number * 19) % (BYTES / PAGE_BYTES) * PAGE_BYTES) as usize;
        let content = pattern(seed * 100 + number, PAGE_BYTES as usize);
        model[at..at + content.len()].copy_from_slice(&content);
        volume.write(at as u64, content, Durable::WithFlush).await?;
    }
    Ok(())
}

async fn check(volume: &Volume, model: &[u8]) -> Result<()> {
    let found = joined(volume.read(ByteRange { offset: 0, bytes: BYTES }).await?);
    let pages = found.chunks(PAGE_BYTES as usize).zip(model.chunks(PAGE_BYTES as usize));
    let wrong: Vec<usize> = pages.enumerate().filter(|(_, (found, model))| found != model).map(|(at, _)| at).collect();
    ensure!(wrong.is_empty(), "the pages {wrong:?} hold something else");
    Ok(())
}

/// Returns when a disk has no power.
pub(crate) async fn dark(world: &World, disk: &SimDisk) {
    while disk.is_powered() {
        world.clock().sleep(Duration::from_micros(10)).await;
    }
}

/// Waits until upkeep has brought everything back.
async fn heal(cluster: &Cluster) -> Result<()> {
    cluster.running.keeper.start_scrub().await?;
    for _ in 0..HEAL_ROUNDS {
        cluster.world.clock().sleep(Duration::from_secs(120)).await;
        let status = cluster.running.keeper.status().await?;
        let scrubbed = status.scrub.as_ref().is_some_and(|scrub| scrub.finished);
        if scrubbed && status.overall == Overall::Healthy && status.stripes.dead == 0 {
            return Ok(());
        }
    }
    anyhow::bail!("upkeep does not settle: {:?}", cluster.running.keeper.status().await?)
}

const NAME: &str = "v";
const DISKS: usize = 4;
const CHUNK_BYTES: u64 = 64 << 10;
/// Two stripes.
const BYTES: u64 = 4 * CHUNK_BYTES;
const HEAL_ROUNDS: usize = 40;
