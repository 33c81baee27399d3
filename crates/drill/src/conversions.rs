//! Stripes of objects that are merged, split or given another code where they lie, with one fault at one operation of one
//! disk, until what was dropped is deleted too: run for every operation of every disk and both faults, each step meets each once.
//! Stripes may be hurt before, and are converted before they are repaired; or an object of a merged one is deleted before it is split.
//! So it is with copies of which data chunks that share a disk are moved apart. The step between the last look at the new chunks and
//! the transaction has no operation of a disk: there each disk is lost by itself.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use claystone_chunk::DiskId;
use claystone_code::{ChunkIndex, CodeSpec, ConversionGoal, plan_conversion};
use claystone_keeper::Overall;
use claystone_meta::{ChunkPlace, DiskState, HeatPolicy, MetaError, StripeRecord, StripeRecords};
use claystone_sim::World;
use claystone_stripe::Unpaced;
use futures::future::{Either, select};

use crate::Stored;
use crate::cluster::{BUCKET, Cluster};
use crate::run::{delete, put, read};
use crate::volume::{StepFault, dark};

/// A conversion, and a fault in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConversionStep {
    /// The code that objects are written under.
    pub fast: CodeSpec,
    /// The one that their stripes are converted to.
    pub compact: CodeSpec,
    /// They were converted to it before, and are converted back.
    pub back: bool,
    /// A parity chunk of the first stripe is damaged, and its repair has not come yet.
    pub hurt: bool,
    /// The object of this number is deleted before, on the way back: a band of the merged stripe that nobody holds.
    pub dead: Option<usize>,
    /// What happens.
    pub fault: StepFault,
    /// The disk at whose operation it happens: that of this chunk of the first stripe as it was written; none: one that has no
    /// chunk.
    pub chunk: Option<u16>,
    /// How many operations of that disk are carried out before.
    pub operation: u64,
}

impl ConversionStep {
    /// How many stripes one conversion merges.
    pub fn sources(&self) -> usize {
        let plan =
            plan_conversion(self.fast, self.compact, ConversionGoal::FewestReads).expect("they have a conversion");
        plan.sources.into()
    }

    /// Disks of the store: all chunks of all stripes lie apart, and lost ones find another place.
    pub fn disks(&self) -> usize {
        let chunks = self.sources() * usize::from(self.fast.shape().chunks());
        chunks.max(self.compact.shape().chunks().into()) + 1
    }
}

/// Runs a step. False: the disk has fewer operations.
///
/// # Errors
/// What the store did wrong.
pub fn run_conversion(step: ConversionStep) -> Result<bool> {
    claystone_sim::run(1, |world| run(world, step)).with_context(|| format!("{step:?}"))
}

/// A conversion of which a disk is lost when its new chunks were read back and no transaction has named them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LateLoss {
    /// The conversion; its fault does not happen.
    pub step: ConversionStep,
    /// The records give the disk up too. Otherwise it only does not answer any more.
    pub given_up: bool,
    /// Which disk.
    pub disk: usize,
}

/// Runs a late loss. Returns whether the transaction was refused.
///
/// # Errors
/// What the store did wrong.
pub fn run_late_loss(loss: LateLoss) -> Result<bool> {
    claystone_sim::run(1, |world| lose_late(world, loss)).with_context(|| format!("{loss:?}"))
}

/// Copies of which data chunks share a disk are moved apart, and a fault in that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpreadStep {
    /// What happens.
    pub fault: StepFault,
    /// The disk at whose operation it happens: the data chunks lie on 0 and 1.
    pub disk: usize,
    /// How many operations of that disk are carried out before.
    pub operation: u64,
}

impl SpreadStep {
    /// Disks of the store.
    pub const DISKS: usize = 8;
}

/// Runs a step. False: the disk has fewer operations.
///
/// # Errors
/// What the store did wrong.
pub fn run_spread(step: SpreadStep) -> Result<bool> {
    claystone_sim::run(1, |world| spread(world, step)).with_context(|| format!("{step:?}"))
}

async fn spread(world: World, step: SpreadStep) -> Result<bool> {
    let mut cluster = Cluster::reclaiming_at_once(world, SpreadStep::DISKS).await?;
    let policy: HeatPolicy = "replica:2/rsm:3+1/rsm:6+1<=400%,0.25..1.00".parse().expect("a policy");
    cluster.running.objects.set_code(BUCKET, policy.fresh()).await?;
    let object = Stored { seed: 1, bytes: 3 * CHUNK_BYTES };
    put_on(&cluster, 0..2, "object", object).await?;
    cluster.running.objects.set_policy(BUCKET, Some(policy)).await?;
    // So long is it new.
    cluster.world.clock().sleep(Duration::from_millis(50)).await;
    let holds = async |cluster: &Cluster| -> Result<()> {
        let found = read(&cluster.running.objects, "object", None).await?;
        ensure!(found.as_deref() == Some(&object.content()[..]), "the object holds other bytes");
        Ok(())
    };

    let sim = cluster.slots[step.disk].sim.clone();
    sim.cut_power_after(step.operation);
    let looked = match step.fault {
        StepFault::Loss => Some(cluster.running.keeper.convert_once().await),
        StepFault::Kill => {
            let dark = std::pin::pin!(dark(&cluster.world, &sim));
            match select(std::pin::pin!(cluster.running.keeper.convert_once()), dark).await {
                Either::Left((looked, _)) => Some(looked),
                Either::Right(_) => None,
            }
        }
    };
    if sim.is_powered() {
        let looked = looked.context("nothing happened")?.context("without a fault")?;
        ensure!(looked.spread == 1, "nothing was moved: {looked:?}");
        return Ok(false);
    }
    if step.fault == StepFault::Loss {
        holds(&cluster).await.context("without the disk")?;
    }
    cluster.crash().await?;
    holds(&cluster).await.context("opened again")?;
    heal(&cluster).await?;
    cluster.check_verified().await?;
    cluster.check_no_orphans().await?;
    // Upkeep has moved them and encoded them by then.
    let codes: Vec<CodeSpec> = live(&cluster).await?.iter().map(|stripe| stripe.code).collect();
    ensure!(codes == [policy.fast], "they are {codes:?}");
    let away = (step.disk + step.operation as usize) % cluster.slots.len();
    cluster.slots[away].sim.set_removed(true);
    holds(&cluster).await.with_context(|| format!("without disk {away}"))?;
    Ok(true)
}

async fn run(world: World, step: ConversionStep) -> Result<bool> {
    let mut cluster = Cluster::reclaiming_at_once(world, step.disks()).await?;
    cluster.running.objects.set_code(BUCKET, Some(step.fast)).await?;
    write(&cluster, step).await?;
    let first = live(&cluster).await?.swap_remove(0);
    let disk = match step.chunk {
        Some(chunk) => {
            let place = first.places[usize::from(chunk)].context("it is whole")?;
            cluster.slots.iter().position(|slot| slot.disk == place.disk).context("a disk of the store")?
        }
        None => cluster.slots.len() - 1,
    };
    let (from, to) = if step.back { (step.compact, step.fast) } else { (step.fast, step.compact) };
    if step.back {
        convert(&cluster, step.compact).await?;
    }

    if let Some(dead) = step.dead {
        delete(&cluster.running.objects, &key(dead)).await?;
    }
    if step.hurt {
        let stripe = live(&cluster).await?.swap_remove(0);
        let parity = stripe.chunk_id(ChunkIndex(stripe.code.shape().chunks() - 1)).context("it has its parity")?;
        cluster.meta.mark_damaged(&[parity]).await?;
    }

    let sim = cluster.slots[disk].sim.clone();
    sim.cut_power_after(step.operation);
    let converted = match step.fault {
        StepFault::Loss => Some(convert_and_reclaim(&cluster, to).await),
        StepFault::Kill => {
            let dark = std::pin::pin!(dark(&cluster.world, &sim));
            match select(std::pin::pin!(convert_and_reclaim(&cluster, to)), dark).await {
                Either::Left((converted, _)) => Some(converted),
                Either::Right(_) => None,
            }
        }
    };
    if sim.is_powered() {
        converted.context("nothing happened")?.context("without a fault")?;
        return Ok(false);
    }
    if step.fault == StepFault::Loss {
        check(&cluster, step).await.context("without the disk")?;
    }
    cluster.crash().await?;
    check(&cluster, step).await.context("opened again")?;
    heal(&cluster).await?;
    cluster.check_verified().await?;
    cluster.check_no_orphans().await?;
    // All of it happened, or nothing.
    let codes: Vec<CodeSpec> = live(&cluster).await?.iter().map(|stripe| stripe.code).collect();
    ensure!(codes.iter().all(|code| *code == from) || codes.iter().all(|code| *code == to), "some are {codes:?}");
    if codes[0] == from {
        convert(&cluster, to).await.context("once more")?;
    }
    // Another disk is away, each in its turn.
    let away = (disk + step.operation as usize) % cluster.slots.len();
    cluster.slots[away].sim.set_removed(true);
    check(&cluster, step).await.with_context(|| format!("without disk {away}"))?;
    Ok(true)
}

async fn lose_late(world: World, LateLoss { step, given_up, disk }: LateLoss) -> Result<bool> {
    let cluster = Cluster::reclaiming_at_once(world, step.disks()).await?;
    cluster.running.objects.set_code(BUCKET, Some(step.fast)).await?;
    write(&cluster, step).await?;
    let (from, to) = if step.back { (step.compact, step.fast) } else { (step.fast, step.compact) };
    if step.back {
        convert(&cluster, step.compact).await?;
    }
    let plan = plan_conversion(from, to, ConversionGoal::FewestReads)?;
    let converted = cluster.running.stripes.convert(&live(&cluster).await?, &plan, &Unpaced).await?;
    let lost = cluster.slots[disk].disk;
    let is_new = |target: &StripeRecord| {
        let places = (0..).map(ChunkIndex).zip(&target.places);
        let mut here = places.filter(|(_, place)| place.is_some_and(|place| place.disk == lost));
        here.any(|(index, _)| !target.origins.contains_key(&index))
    };
    let has_new = converted.change.targets.iter().any(is_new);

    cluster.slots[disk].sim.set_removed(true);
    if given_up {
        cluster.running.keeper.set_disk_state(lost, DiskState::Lost).await?;
    }
    let refused = match cluster.meta.convert(converted.change.clone()).await {
        Ok(_) => false,
        Err(MetaError::StripeChanged { .. }) => true,
        Err(error) => return Err(error.into()),
    };
    ensure!(refused == (given_up && has_new), "refused: {refused}, though it has new chunks: {has_new}");
    if refused {
        cluster.running.stripes.discard_converted(converted).await;
    } else {
        drop(converted);
    }
    // Nothing survives less than it did with this disk gone.
    let stripes = live(&cluster).await?;
    let expected = if refused { from } else { to };
    ensure!(stripes.iter().all(|stripe| stripe.code == expected), "they are not all {expected}");
    for stripe in &stripes {
        let places = (0..).map(ChunkIndex).zip(&stripe.places);
        let is_gone = |place: &Option<ChunkPlace>| place.is_none_or(|place| place.disk == lost);
        let gone: Vec<ChunkIndex> = places.filter(|(_, place)| is_gone(place)).map(|(index, _)| index).collect();
        let (left, least) = (i64::from(stripe.code.tolerance_left(&gone)), i64::from(from.tolerance()) - 1);
        ensure!(left >= least, "{} survives {left} losses more without {gone:?}, and {least} before", stripe.code);
    }
    check(&cluster, step).await.context("without the disk")?;
    heal(&cluster).await?;
    cluster.check_verified().await?;
    cluster.check_no_orphans().await?;
    let away = (disk + 1) % cluster.slots.len();
    cluster.slots[away].sim.set_removed(true);
    check(&cluster, step).await.with_context(|| format!("without disk {away}"))?;
    Ok(refused)
}

/// An object of one stripe for each that is merged, on disks of their own.
async fn write(cluster: &Cluster, step: ConversionStep) -> Result<()> {
    let chunks = usize::from(step.fast.shape().chunks());
    for at in 0..step.sources() {
        put_on(cluster, at * chunks..(at + 1) * chunks, &key(at), stored(step, at)).await?;
    }
    Ok(())
}

/// Writes an object while only these disks have room.
async fn put_on(cluster: &Cluster, mine: Range<usize>, key: &str, stored: Stored) -> Result<()> {
    let all: Vec<DiskId> = cluster.slots.iter().map(|slot| slot.disk).collect();
    let stores = cluster.running.stripes.stores();
    let spaces: Vec<_> = all.iter().filter_map(|disk| Some((*disk, stores.member(*disk)?.space))).collect();
    for (disk, _) in spaces.iter().enumerate().filter(|(number, _)| !mine.contains(number)).map(|(_, disk)| disk) {
        stores.update(*disk, |member| member.space.free_bytes = 0);
    }
    put(&cluster.running.objects, key, stored).await?;
    for (disk, space) in spaces {
        stores.update(disk, |member| member.space = space);
    }
    Ok(())
}

fn key(object: usize) -> String {
    format!("object {object}")
}

fn stored(step: ConversionStep, object: usize) -> Stored {
    // Their chunks have one length; what they hold has not.
    Stored { seed: 1 + object as u64, bytes: usize::from(step.fast.shape().data) * CHUNK_BYTES - 7 * object }
}

async fn live(cluster: &Cluster) -> Result<Vec<StripeRecord>> {
    Ok(cluster.meta.stripes(None, 1000).await?)
}

/// All stripes at once, in the order in which they were made.
async fn convert(cluster: &Cluster, to: CodeSpec) -> Result<()> {
    let sources: Vec<_> = live(cluster).await?.iter().map(|stripe| stripe.id).collect();
    cluster.running.keeper.convert(&sources, to).await?;
    Ok(())
}

/// The same, and then upkeep deletes what was dropped.
async fn convert_and_reclaim(cluster: &Cluster, to: CodeSpec) -> Result<()> {
    convert(cluster, to).await?;
    for _ in 0..RECLAIM_ROUNDS {
        cluster.running.keeper.reclaim_once().await?;
        if cluster.meta.dead_stripes(1).await?.is_empty() {
            return Ok(());
        }
    }
    anyhow::bail!("what was dropped is not deleted")
}

/// Every object holds what was written.
async fn check(cluster: &Cluster, step: ConversionStep) -> Result<()> {
    for object in (0..step.sources()).filter(|object| step.dead != Some(*object)) {
        let found = read(&cluster.running.objects, &key(object), None).await?;
        ensure!(found.as_deref() == Some(&stored(step, object).content()[..]), "object {object} holds other bytes");
    }
    Ok(())
}

/// Waits until upkeep has brought everything back, and nothing is left that nobody names.
async fn heal(cluster: &Cluster) -> Result<()> {
    let keeper = &cluster.running.keeper;
    keeper.start_scrub().await?;
    for _ in 0..HEAL_ROUNDS {
        cluster.world.clock().sleep(Duration::from_secs(120)).await;
        let status = keeper.status().await?;
        let scrubbed = status.scrub.as_ref().is_some_and(|scrub| scrub.finished);
        if scrubbed && status.overall == Overall::Healthy && status.stripes.dead == 0 {
            keeper.request_sweep();
            cluster.world.clock().sleep(Duration::from_secs(120)).await;
            return Ok(());
        }
    }
    anyhow::bail!("upkeep does not settle: {:?}", keeper.status().await?)
}

/// One tile.
const CHUNK_BYTES: usize = 64 << 10;
const HEAL_ROUNDS: usize = 40;
const RECLAIM_ROUNDS: usize = 10;
