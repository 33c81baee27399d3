//! Stripes of objects that are merged, split or given another code where they lie, with one fault at one operation of one
//! disk, until what was dropped is deleted too: run for every operation of every disk and both faults, each step meets each once.
//! Stripes may be hurt before, and are converted before they are repaired; or an object of a merged one is deleted before it is split;
//! or they are packs of small objects, half of which were deleted, that are written anew beside it.
//! So it is with copies of which data chunks that share a disk are moved apart, and with copies that give way to what was lost beside them. The step between the last look at the new chunks and
//! the transaction has no operation of a disk: there each disk is lost by itself.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use claystone_chunk::{ChunkId, DiskId};
use claystone_code::{ChunkIndex, CodeSpec, ConversionGoal, plan_conversion};
use claystone_keeper::ConversionError;
use claystone_meta::{ChunkPlace, DiskState, HeatPolicy, MetaError, StripeRecord, StripeRecords};
use claystone_sim::World;
use claystone_stripe::Unpaced;
use futures::future::{join, try_join_all};

use crate::Stored;
use crate::cluster::{BUCKET, Cluster};
use crate::run::{delete, put, read};
use crate::volume::StepFault;

/// A conversion of stripes of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConversionCase {
    /// The code that objects are written under.
    pub fast: CodeSpec,
    /// The one that their stripes are converted to.
    pub compact: CodeSpec,
    /// They were converted to it before, and are converted back.
    pub back: bool,
    /// The store has just begun: nobody has read back what was written, so the conversion does, and disks are listed beside it.
    pub unread: bool,
    /// A parity chunk of the first stripe is damaged, and its repair has not come yet.
    pub hurt: bool,
    /// Each stripe is a pack of small objects, with zeros behind them, and one object of each was deleted before.
    pub packed: bool,
    /// Half of the objects of each pack were, and what is left is written anew beside the conversion: one of both has what it works on
    /// taken away by the other.
    pub thin: bool,
    /// What the stripe of this number has is deleted before, on the way back: a band of the merged stripe that nobody holds.
    pub dead: Option<usize>,
}

impl ConversionCase {
    /// Whole stripes of an object each, of one code and on the way to the other.
    pub fn new(fast: CodeSpec, compact: CodeSpec) -> ConversionCase {
        ConversionCase {
            fast,
            compact,
            back: false,
            unread: false,
            hurt: false,
            packed: false,
            thin: false,
            dead: None,
        }
    }

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

    /// From which code, and to which.
    fn codes(&self) -> (CodeSpec, CodeSpec) {
        if self.back { (self.compact, self.fast) } else { (self.fast, self.compact) }
    }

    /// The objects of a stripe. Its chunks are as long as those of others; what they hold is not.
    fn objects(&self, stripe: usize) -> Vec<(String, Stored)> {
        let bytes = usize::from(self.fast.shape().data) * CHUNK_BYTES - 7 * stripe;
        if !self.packed {
            return vec![(format!("object {stripe}"), Stored { seed: 1 + stripe as u64, bytes })];
        }
        let count = bytes.div_ceil(CHUNK_BYTES / 2);
        let small = |at| Stored { seed: 1 + (stripe * count + at) as u64, bytes: bytes / count - 300 };
        (0..count).map(|at| (format!("object {stripe}.{at}"), small(at))).collect()
    }

    /// Whether it is deleted before the conversion.
    fn is_deleted(&self, stripe: usize, object: usize) -> bool {
        self.dead == Some(stripe) || (self.packed && object == 1) || (self.thin && object % 2 == 1)
    }
}

/// A conversion, and a fault in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConversionStep {
    /// The conversion.
    pub case: ConversionCase,
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
pub fn run_conversion(step: ConversionStep) -> Result<bool> {
    claystone_sim::run(1, |world| run(world, step)).with_context(|| format!("{step:?}"))
}

/// What a disk has to do with a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskPart {
    /// It has a chunk that is kept.
    pub keeps: bool,
    /// It has one that is dropped.
    pub drops: bool,
    /// It gets a new one.
    pub gets: bool,
    /// Its operations, until what is dropped is deleted.
    pub operations: u64,
}

/// What each disk of the store has to do with a conversion in which nothing happens.
///
/// # Errors
/// What the store did wrong.
pub fn survey_conversion(case: ConversionCase) -> Result<Vec<DiskPart>> {
    claystone_sim::run(1, |world| survey(world, case)).with_context(|| format!("{case:?}"))
}

/// A conversion of which a disk is lost when its new chunks were read back and no transaction has named them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LateLoss {
    /// The conversion.
    pub case: ConversionCase,
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

/// A chunk is lost of a stripe with copies beside its parity that lies on all disks there are: a copy gives way, and a fault in that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GiveWayStep {
    /// The chunk: data or parity of `rsm:2+1`.
    pub lost: u16,
    /// What happens.
    pub fault: StepFault,
    /// The disk at whose operation it happens, counted without the one that is lost.
    pub disk: usize,
    /// How many operations of that disk are carried out before.
    pub operation: u64,
}

impl GiveWayStep {
    /// Disks of the store but for the lost one.
    pub const DISKS: usize = 4;
}

/// Runs a step. False: the disk has fewer operations.
///
/// # Errors
/// What the store did wrong.
pub fn run_give_way(step: GiveWayStep) -> Result<bool> {
    claystone_sim::run(1, |world| give_way(world, step)).with_context(|| format!("{step:?}"))
}

async fn give_way(world: World, step: GiveWayStep) -> Result<bool> {
    let mut cluster = Cluster::reclaiming_at_once(world, GiveWayStep::DISKS + 1).await?;
    let code: CodeSpec = "hybrid:rsm:2+1x2".parse().expect("a code");
    cluster.running.objects.set_code(BUCKET, Some(code)).await?;
    let object = Stored { seed: 1, bytes: 2 * CHUNK_BYTES };
    put(&cluster.running.objects, "object", object).await?;
    let holds = async |cluster: &Cluster| -> Result<()> {
        let found = read(&cluster.running.objects, "object", None).await?;
        ensure!(found.as_deref() == Some(&object.content()[..]), "the object holds other bytes");
        Ok(())
    };
    let stripe = live(&cluster).await?.swap_remove(0);
    let gone = stripe.places[usize::from(step.lost)].context("it has a place")?.disk;
    let disks: BTreeSet<DiskId> = stripe.places.iter().flatten().map(|place| place.disk).collect();
    ensure!(disks.len() == cluster.slots.len(), "a disk has none of it: {stripe:?}");
    cluster.running.keeper.set_disk_state(gone, DiskState::Lost).await?;
    let left: Vec<usize> = (0..cluster.slots.len()).filter(|slot| cluster.slots[*slot].disk != gone).collect();

    let sim = cluster.slots[left[step.disk]].sim.clone();
    sim.cut_power_after(step.operation);
    let repaired = step.fault.until(&cluster.world, &sim, cluster.running.keeper.repair_once()).await;
    if sim.is_powered() {
        let repaired = repaired.context("nothing happened")?.context("without a fault")?;
        ensure!((repaired.stripes, repaired.chunks) == (1, 1), "nothing gave way: {repaired:?}");
        return Ok(false);
    }
    if step.fault == StepFault::Loss {
        holds(&cluster).await.context("without the disk")?;
    }
    cluster.crash().await?;
    holds(&cluster).await.context("opened again")?;
    cluster.heal().await?;
    cluster.check_verified().await?;
    cluster.check_no_orphans().await?;
    let stripes = live(&cluster).await?;
    ensure!(stripes.len() == 1 && stripes[0].code == code, "it is {stripes:?}");
    let away = left[(step.disk + step.operation as usize) % left.len()];
    cluster.slots[away].sim.set_removed(true);
    holds(&cluster).await.with_context(|| format!("without disk {away}"))?;
    Ok(true)
}

async fn spread(world: World, step: SpreadStep) -> Result<bool> {
    let mut cluster = Cluster::reclaiming_at_once(world, SpreadStep::DISKS).await?;
    let policy: HeatPolicy = "replica:2/rsm:3+1/rsm:6+1<=400%,0.25..1.00".parse().expect("a policy");
    cluster.running.objects.set_code(BUCKET, policy.fresh_code()).await?;
    let object = Stored { seed: 1, bytes: 3 * CHUNK_BYTES };
    put_on(&cluster, 0..2, &[("object".to_owned(), object)]).await?;
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
    let looked = step.fault.until(&cluster.world, &sim, cluster.running.keeper.convert_once()).await;
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
    // In that time upkeep moves them and encodes them.
    cluster.world.clock().sleep(SPREAD_REST).await;
    cluster.heal().await?;
    cluster.check_verified().await?;
    cluster.check_no_orphans().await?;
    let codes: Vec<CodeSpec> = live(&cluster).await?.iter().map(|stripe| stripe.code).collect();
    ensure!(codes == [policy.fast], "they are {codes:?}");
    let away = (step.disk + step.operation as usize) % cluster.slots.len();
    cluster.slots[away].sim.set_removed(true);
    holds(&cluster).await.with_context(|| format!("without disk {away}"))?;
    Ok(true)
}

async fn survey(world: World, case: ConversionCase) -> Result<Vec<DiskPart>> {
    let cluster = prepare(world, case).await?;
    let operations = || -> Vec<u64> { cluster.slots.iter().map(|slot| slot.sim.stats().operations).collect() };
    let began = operations();
    let before = chunks(&cluster).await?;
    convert_and_reclaim(&cluster, case).await?;
    let ended = operations();
    let after = chunks(&cluster).await?;
    let part = |number: usize| {
        let mine = |chunks: &BTreeSet<(DiskId, ChunkId)>| -> BTreeSet<ChunkId> {
            chunks.iter().filter(|(disk, _)| *disk == cluster.slots[number].disk).map(|(_, chunk)| *chunk).collect()
        };
        let (before, after) = (mine(&before), mine(&after));
        DiskPart {
            keeps: !before.is_disjoint(&after),
            drops: !before.is_subset(&after),
            gets: !after.is_subset(&before),
            operations: ended[number] - began[number],
        }
    };
    Ok((0..cluster.slots.len()).map(part).collect())
}

/// A store in which the conversion is what comes next.
async fn prepare(world: World, case: ConversionCase) -> Result<Cluster> {
    let cluster = Cluster::reclaiming_at_once(world, case.disks()).await?;
    cluster.running.objects.set_code(BUCKET, Some(case.fast)).await?;
    write(&cluster, case).await?;
    if !case.unread {
        // Lists all disks, which takes hundreds of operations of each that have to do with no conversion.
        cluster.running.keeper.reclaim_once().await?;
        for stripe in live(&cluster).await? {
            cluster.meta.mark_verified(stripe.id, stripe.revision, stripe.id.created()).await?;
        }
    }
    if case.back {
        convert(&cluster, case.compact).await?;
    }
    for stripe in 0..case.sources() {
        for (_, (key, _)) in case.objects(stripe).iter().enumerate().filter(|(at, _)| case.is_deleted(stripe, *at)) {
            delete(&cluster.running.objects, key).await?;
        }
    }
    if case.hurt {
        let stripe = live(&cluster).await?.swap_remove(0);
        let parity = stripe.chunk_id(ChunkIndex(stripe.code.shape().chunks() - 1)).context("it has its parity")?;
        cluster.meta.mark_damaged(&[parity]).await?;
    }
    Ok(cluster)
}

async fn run(world: World, step: ConversionStep) -> Result<bool> {
    let ConversionStep { case, disk, .. } = step;
    let mut cluster = prepare(world, case).await?;
    let (from, to) = case.codes();
    let sim = cluster.slots[disk].sim.clone();
    sim.cut_power_after(step.operation);
    let converted = step.fault.until(&cluster.world, &sim, convert_and_reclaim(&cluster, case)).await;
    if sim.is_powered() {
        converted.context("nothing happened")?.context("without a fault")?;
        return Ok(false);
    }
    if step.fault == StepFault::Loss {
        check(&cluster, case).await.context("without the disk")?;
    }
    cluster.crash().await?;
    check(&cluster, case).await.context("opened again")?;
    cluster.heal().await?;
    cluster.check_verified().await?;
    cluster.check_no_orphans().await?;
    let codes: Vec<CodeSpec> = live(&cluster).await?.iter().map(|stripe| stripe.code).collect();
    if case.thin {
        // Whichever came first, what is left of the packs is one pack by now.
        ensure!(codes == [case.fast], "the packs are {codes:?}");
    } else {
        // All of it happened, or nothing.
        ensure!(codes.iter().all(|code| *code == from) || codes.iter().all(|code| *code == to), "some are {codes:?}");
        if codes[0] == from {
            convert(&cluster, to).await.context("once more")?;
        }
    }
    // Another disk is away, each in its turn.
    let away = (disk + step.operation as usize) % cluster.slots.len();
    cluster.slots[away].sim.set_removed(true);
    check(&cluster, case).await.with_context(|| format!("without disk {away}"))?;
    Ok(true)
}

async fn lose_late(world: World, LateLoss { case, given_up, disk }: LateLoss) -> Result<bool> {
    let cluster = prepare(world, case).await?;
    let (from, to) = case.codes();
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
    check(&cluster, case).await.context("without the disk")?;
    cluster.heal().await?;
    cluster.check_verified().await?;
    cluster.check_no_orphans().await?;
    let away = (disk + 1) % cluster.slots.len();
    cluster.slots[away].sim.set_removed(true);
    check(&cluster, case).await.with_context(|| format!("without disk {away}"))?;
    Ok(refused)
}

/// The objects of each stripe that is merged, on disks of their own.
async fn write(cluster: &Cluster, case: ConversionCase) -> Result<()> {
    let chunks = usize::from(case.fast.shape().chunks());
    if case.packed {
        // Packs get zeros behind them, and come to lie in lanes, only in buckets that merge them.
        let policy: HeatPolicy = format!("{}/{}<=400%,0.25..1.00", case.fast, case.compact).parse()?;
        cluster.running.objects.set_policy(BUCKET, Some(policy)).await?;
    }
    for stripe in 0..case.sources() {
        put_on(cluster, stripe * chunks..(stripe + 1) * chunks, &case.objects(stripe)).await?;
    }
    if case.packed {
        cluster.running.objects.set_policy(BUCKET, None).await?;
    }
    let codes: Vec<CodeSpec> = live(cluster).await?.iter().map(|stripe| stripe.code).collect();
    ensure!(codes == vec![case.fast; case.sources()], "they are {codes:?}");
    Ok(())
}

/// Writes objects at once while only these disks have room.
async fn put_on(cluster: &Cluster, mine: Range<usize>, objects: &[(String, Stored)]) -> Result<()> {
    let all: Vec<DiskId> = cluster.slots.iter().map(|slot| slot.disk).collect();
    let stores = cluster.running.stripes.stores();
    let spaces: Vec<_> = all.iter().filter_map(|disk| Some((*disk, stores.member(*disk)?.space))).collect();
    for (disk, _) in spaces.iter().enumerate().filter(|(number, _)| !mine.contains(number)).map(|(_, disk)| disk) {
        stores.update(*disk, |member| member.space.free_bytes = 0);
    }
    try_join_all(objects.iter().map(|(key, stored)| put(&cluster.running.objects, key, *stored))).await?;
    for (disk, space) in spaces {
        stores.update(disk, |member| member.space = space);
    }
    Ok(())
}

/// All chunks that stripes name, where they lie.
async fn chunks(cluster: &Cluster) -> Result<BTreeSet<(DiskId, ChunkId)>> {
    let of = |stripe: StripeRecord| -> Vec<(DiskId, ChunkId)> {
        let places = (0..).map(ChunkIndex).zip(&stripe.places);
        places.filter_map(|(index, place)| Some((place.as_ref()?.disk, stripe.chunk_id(index)?))).collect()
    };
    Ok(live(cluster).await?.into_iter().flat_map(of).collect())
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

/// The conversion of a case, with what goes on beside it, and then upkeep deletes what was dropped.
async fn convert_and_reclaim(cluster: &Cluster, case: ConversionCase) -> Result<()> {
    let to = case.codes().1;
    if case.thin {
        let (converted, repacked) = join(convert(cluster, to), cluster.running.objects.repack_once()).await;
        let is_refused = converted.as_ref().is_err_and(is_outdated);
        ensure!(is_refused || converted.is_ok(), "{converted:?}");
        ensure!(is_refused == (repacked?.parts > 0), "either has what both work on");
    } else {
        convert(cluster, to).await?;
    }
    for _ in 0..RECLAIM_ROUNDS {
        cluster.running.keeper.reclaim_once().await?;
        if cluster.meta.dead_stripes(1).await?.is_empty() {
            return Ok(());
        }
    }
    anyhow::bail!("what was dropped is not deleted")
}

/// Whether others changed or deleted the stripes before a conversion could.
fn is_outdated(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref::<ConversionError>(),
        Some(ConversionError::Meta(MetaError::StripeChanged { .. }) | ConversionError::Gone { .. })
    )
}

/// Every object holds what was written, and those that were deleted are not there.
async fn check(cluster: &Cluster, case: ConversionCase) -> Result<()> {
    for stripe in 0..case.sources() {
        for (at, (key, stored)) in case.objects(stripe).iter().enumerate() {
            let found = read(&cluster.running.objects, key, None).await?;
            let expected = (!case.is_deleted(stripe, at)).then(|| stored.content());
            ensure!(found.as_deref() == expected.as_deref(), "{key} holds other bytes");
        }
    }
    Ok(())
}

/// One tile.
const CHUNK_BYTES: usize = 64 << 10;
const RECLAIM_ROUNDS: usize = 10;
const SPREAD_REST: Duration = Duration::from_secs(240);
