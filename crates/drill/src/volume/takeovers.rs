//! An owner takes a volume over while the former one is at work, each in a process of its own over the same stores, with one
//! fault on the way: run for every moment of the former one's work, and for every operation of every disk.
//!
//! Invariants:
//! 1. Whatever either owner was told is flushed is found by the next, with a disk away.
//! 2. The former owner is told of nothing that the next has not found, and changes nothing from then on.
//!
//! Left out: upkeep beside the two. Who holds a stripe is known within one process.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use claystone_chunk::ByteRange;
use claystone_chunk::testing::pattern;
use claystone_sim::World;
use claystone_volume::{Blocks, BlocksError, Durable, Form, NewVolume, Switch, Volume, VolumeError, joined};
use futures::future::{Either, select};

use super::steps::StepFault;
use super::{PAGE_BYTES, lock};
use crate::cluster::{Cluster, Owner};

/// When the next owner comes, and what happens then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Takeover {
    /// Operations of all disks that the former owner's work takes before.
    pub after: u64,
    /// What happens, at the operation of a disk that comes after so many of it since.
    pub fault: Option<(StepFault, usize, u64)>,
}

/// Runs one. False: the former owner's work has fewer operations, or the disk has.
///
/// # Errors
/// What the store did wrong.
pub fn run_takeover(takeover: Takeover) -> Result<bool> {
    claystone_sim::run(1, |world| run(world, takeover)).with_context(|| format!("{takeover:?}"))
}

/// A version that was written to every slot: flushed, and begun.
type Known = Arc<Mutex<(u8, u8)>>;

async fn run(world: World, takeover: Takeover) -> Result<bool> {
    let mut cluster = Cluster::new(world, DISKS).await?;
    let code = "replica:2/rs:2+1".parse().expect("a valid redundancy");
    let new = NewVolume { chunk_bytes: CHUNK_BYTES, ..NewVolume::new(NAME, BYTES, code) };
    cluster.running.volumes.create(new).await?;
    let first = cluster.owner("first");
    let old = first.volumes.open(NAME).await?;
    let known = Known::default();
    prepare(&old, &known).await?;

    let before = operations(&cluster);
    let work = first.process.env().tasks.spawn("work", Box::pin(work(old.clone(), known.clone())));
    let mut worked = Box::pin(work.ended());
    while operations(&cluster) < before + takeover.after {
        let tick = cluster.world.clock().sleep(TICK);
        if let Either::Left(_) = select(worked.as_mut(), tick).await {
            return Ok(false);
        }
    }
    let second = cluster.owner("second");
    let taken = Known::default();
    let mut is_there = true;
    match takeover.fault {
        None => take_over(&cluster, &second, &old, &known, &taken).await?,
        Some((fault, disk, operation)) => {
            let sim = cluster.slots[disk].sim.clone();
            sim.cut_power_after(operation);
            let taking = take_over(&cluster, &second, &old, &known, &taken);
            match fault.until(&cluster.world, &sim, taking).await {
                // It may be the one that it cannot do without just then: nothing is lost.
                Some(Err(error)) if fault == StepFault::Loss && is_of_store(&error) => {}
                taken => taken.unwrap_or(Ok(()))?,
            }
            is_there = !sim.is_powered();
        }
    }
    drop(worked);
    drop(old);
    for owner in [first, second] {
        owner.process.kill();
    }
    // What a disk missed may have been given up, also by who had a moment before all power went; so it is the one that is away.
    let away = takeover.fault.map_or(takeover.after as usize % DISKS, |(_, disk, _)| disk);
    cluster.slots[away].sim.set_removed(true);
    cluster.crash().await?;
    let volume = cluster.running.volumes.open(NAME).await.with_context(|| format!("without disk {away}"))?;
    check(&volume, &known, &taken).await.with_context(|| format!("without disk {away}"))?;
    volume.merge_all().await?;
    check(&volume, &known, &taken).await.context("merged")?;
    Ok(is_there)
}

/// Opens the volume, and finds what was flushed; then the former owner is refused, and this one goes on.
async fn take_over(cluster: &Cluster, second: &Owner, old: &Volume, known: &Known, taken: &Known) -> Result<()> {
    let new = second.volumes.open(NAME).await.context("taking over")?;
    let found = versions(&new).await?;
    let possible = *lock(known);
    ensure!(found.iter().all(|version| is_possible(*version, possible)), "found {found:?} of {possible:?}");
    // It may take a while until a former owner's call comes back.
    let clock = cluster.world.clock();
    ensure!(write(old, 0, 99, Durable::Now).await.is_err(), "the former owner writes");
    ensure!(old.flush().await.is_err(), "the former owner flushes");
    ensure!(old.merge_all().await.is_err(), "the former owner merges");
    clock.sleep(Duration::from_secs(1)).await;
    let now = *lock(known);
    ensure!(found.iter().all(|version| now.0 <= *version), "the former owner was told of {now:?}, found {found:?}");
    ensure!(versions(&new).await? == found, "the former owner has changed something");
    write_all(&new, 50, taken).await.context("the next owner")?;
    ensure!(versions(&new).await? == [50; SLOTS], "the former owner has changed something");
    Ok(())
}

/// Whether it is the store that refused something, and not what this found wrong.
fn is_of_store(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.is::<VolumeError>() || cause.is::<BlocksError>())
}

fn operations(cluster: &Cluster) -> u64 {
    cluster.slots.iter().map(|slot| slot.sim.stats().operations).sum()
}

fn place(slot: usize) -> usize {
    slot * 13 * PAGE_BYTES as usize
}

async fn write(volume: &Volume, slot: usize, version: u8, durable: Durable) -> Result<(), BlocksError> {
    volume.write(place(slot) as u64, Bytes::from(vec![version; PAGE_BYTES as usize]), durable).await
}

/// Writes a version to every slot and flushes.
async fn write_all(volume: &Volume, version: u8, known: &Known) -> Result<(), BlocksError> {
    lock(known).1 = version;
    for slot in 0..SLOTS {
        write(volume, slot, version, Durable::WithFlush).await?;
    }
    volume.flush().await?;
    lock(known).0 = version;
    Ok(())
}

/// Stripes in all of the volume, and flushed diffs.
async fn prepare(volume: &Volume, known: &Known) -> Result<()> {
    volume.write(0, pattern(1, BYTES as usize), Durable::WithFlush).await?;
    write_all(volume, 1, known).await?;
    volume.merge_all().await?;
    Ok(write_all(volume, 2, known).await?)
}

/// All that an owner does.
async fn work(volume: Volume, known: Known) {
    let all = async {
        write_all(&volume, 3, &known).await?;
        volume.merge_all().await?;
        let switches = (0..2).map(|position| Switch { position, to: Form::Coded }).collect();
        volume.switch(switches).await?;
        write_all(&volume, 4, &known).await
    };
    // When another one has the volume it is refused.
    drop(all.await);
}

/// The versions that the volume has, and nothing else.
async fn versions(volume: &Volume) -> Result<Vec<u8>> {
    let found = joined(volume.read(ByteRange { offset: 0, bytes: BYTES }).await?);
    let mut model = pattern(1, BYTES as usize).to_vec();
    let versions: Vec<u8> = (0..SLOTS).map(|slot| found[place(slot)]).collect();
    for (slot, version) in versions.iter().enumerate() {
        model[place(slot)..place(slot) + PAGE_BYTES as usize].fill(*version);
    }
    let pages = found.chunks(PAGE_BYTES as usize).zip(model.chunks(PAGE_BYTES as usize));
    let wrong: Vec<usize> = pages.enumerate().filter(|(_, (found, model))| found != model).map(|(at, _)| at).collect();
    ensure!(wrong.is_empty(), "the pages {wrong:?} hold something else");
    Ok(versions)
}

fn is_possible(version: u8, (flushed, begun): (u8, u8)) -> bool {
    (flushed..=begun).contains(&version)
}

/// Every slot has what one of the two owners has flushed, or begun after that.
async fn check(volume: &Volume, known: &Known, taken: &Known) -> Result<()> {
    let (known, taken) = (*lock(known), *lock(taken));
    let found = versions(volume).await?;
    let is_right = |version: u8| {
        let of_taken = taken.1 > 0 && is_possible(version, taken);
        of_taken || (taken.0 == 0 && is_possible(version, known))
    };
    ensure!(found.iter().all(|version| is_right(*version)), "found {found:?} of {known:?} and {taken:?}");
    Ok(())
}

const NAME: &str = "v";
const DISKS: usize = 4;
const CHUNK_BYTES: u64 = 64 << 10;
/// Two stripes.
const BYTES: u64 = 4 * CHUNK_BYTES;
/// Pages that are written, each filled with the number of a version.
const SLOTS: usize = 5;
/// Shorter than an operation of a disk.
const TICK: Duration = Duration::from_micros(10);
