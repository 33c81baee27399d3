//! Gives a stripe another code over the same data chunks: they stay where they are, and so does parity that both codes have; only what is new is
//! written.
//!
//! ```text
//!            Stripes::recode             Meta::recode             Stripes::discard_superseded
//!  as it was ---------------> recoded ------------------> named ------------------------------> done
//!      ^                         |                          |
//!      +---- StripeChanged ------+                          +--> claimed: the sweep deletes the old parity later
//!            (new parity deleted)
//! ```
//!
//! | state | what holds | after a crash |
//! |---|---|---|
//! | as it was | the data and the old parity are a codeword of the old code | the same |
//! | recoded | all chunks are synced, also what was acknowledged before; the new parity was read back, nobody names it, a claim keeps reclaim away | as it was; the new parity is garbage |
//! | named | one transaction named the new code with its parity; what is kept is the same, by name and disk | the rest of the old parity is garbage |
//! | done | nothing of the old parity is left on disks that answer | the same |
//!
//! The tolerance of the old code holds until the transaction, that of the new one from there on. Readers with the old record
//! hold a claim, so that the chunks which it names stay until they are done.
//!
//! Invariants:
//! 1. New parity has names that no chunk of the stripe had before: a generation beyond all of its record. What is kept keeps its name.
//! 2. A stripe never comes to survive fewer further losses than it did, unless the new code as a whole does.
//! 3. Who merges has the stripe alone, and this shares it: what was read is what is there when the caller commits, unless
//!    the record changed, which the transaction sees.

use std::collections::BTreeMap;

use claystone_chunk::{ChunkId, DiskId, Generation};
use claystone_code::{
    ChunkIndex, CodeSpec, ConversionGoal, ConversionPlan, Converter, StripeChunk, Weakened, plan_conversion_without,
};
use claystone_meta::{ChunkPlace, Origin, Recode, StripeRecord};
use futures::future::try_join_all;

use crate::convert::combine;
use crate::fresh::{Target, create, delete_all, kept_places, roomy, settle, settle_kept};
use crate::gather::{Sources, gather};
use crate::rebuild::windows;
use crate::writer::in_time;
use crate::{Claim, Hold, Layout, Pace, StripeError, Stripes, place_chunks, sub_bytes_for};

/// New parity on its disks, synced and read back, not yet named.
#[derive(Debug)]
pub struct Recoded {
    /// The change of the record to commit.
    pub change: Recode,
    /// The new chunks.
    pub fresh: Vec<Target>,
    /// Hold it until the change is committed.
    pub claim: Claim,
    /// Nobody changed the data meanwhile; hold it until the change is committed.
    pub hold: Hold,
    /// Bytes of the new chunks.
    pub bytes_written: u64,
    /// Bytes read of the data, whole sectors.
    pub bytes_read: u64,
    /// Bytes read back to verify the new chunks.
    pub bytes_verified: u64,
}

pub(crate) async fn recode(
    stripes: &Stripes,
    record: &StripeRecord,
    code: CodeSpec,
    pace: &dyn Pace,
) -> Result<Recoded, StripeError> {
    assert_ne!(code, record.code, "the stripe has this code");
    let layout = same_layout(record, code)?;
    let claim = stripes.claim_record(record);
    let hold = stripes.share(record.id).await?;
    let sources = Sources::new(stripes, record, stripes.settings.read_timeout);
    // Of data alone: all that comes to share parity is read, so that what is lost without anybody's knowledge is found before what it needs is given up.
    let lost = lost(stripes, record, &sources);
    let plan = plan_conversion_without(record.code, code, ConversionGoal::DataOnly, &lost)
        .expect("two codes with the data chunks of a stripe");
    check_exposure(stripes, record, &plan, &sources)?;
    settle_kept(stripes, record).await?;
    let mut change = keep(record, &plan);
    let fresh = place_writes(stripes, record, &mut change, &plan, layout.chunk_bytes())?;
    match fill(stripes, record, &plan, &fresh, &layout, pace).await {
        Ok((bytes_read, bytes_verified)) => {
            let bytes_written = layout.chunk_bytes() * fresh.len() as u64;
            Ok(Recoded { change, fresh, claim, hold, bytes_written, bytes_read, bytes_verified })
        }
        Err(error) => {
            // Some of the new chunks may be committed already, and nobody will ever name them.
            delete_all(stripes, &fresh).await;
            Err(error)
        }
    }
}

/// The layout of the stripe, if its data lies under the new code as it does now.
fn same_layout(record: &StripeRecord, code: CodeSpec) -> Result<Layout, StripeError> {
    let old = Layout::of(record)?;
    code.validate()?;
    let lengths = |layout: &Layout| (layout.shape().data, layout.tile_bytes(), layout.chunk_bytes());
    let recoded = StripeRecord { code, sub_bytes: sub_bytes_for(code), ..record.clone() };
    let new = Layout::of_data(&recoded)?;
    if lengths(&old) != lengths(&new) {
        return Err(StripeError::OtherLayout { stripe: record.id, from: record.code, to: code });
    }
    Ok(new)
}

/// Whether the stripe under the new code survives as much as now, without the chunks that cannot be read whole.
fn check_exposure(
    stripes: &Stripes,
    record: &StripeRecord,
    plan: &ConversionPlan,
    sources: &Sources,
) -> Result<(), StripeError> {
    match plan.weakens(&lost(stripes, record, sources)) {
        None => Ok(()),
        Some(Weakened { before, after, .. }) => {
            Err(StripeError::Exposed { stripe: record.id, to: plan.to, before, after })
        }
    }
}

/// The chunks that cannot be read whole, as far as that is known.
fn lost(stripes: &Stripes, record: &StripeRecord, sources: &Sources) -> Vec<StripeChunk> {
    let is_whole = |index: &ChunkIndex| {
        let place = record.places[index.at()].as_ref();
        place.is_some_and(|place| !place.damaged && stripes.stores.readable(place.disk).is_some())
            && !sources.has_failed(*index)
    };
    let lost = (0..record.code.shape().chunks()).map(ChunkIndex).filter(|index| !is_whole(index));
    lost.map(|chunk| StripeChunk { stripe: 0, chunk }).collect()
}

/// The change of the record, with the parity that stays.
fn keep(record: &StripeRecord, plan: &ConversionPlan) -> Recode {
    let shape = plan.to.shape();
    let mut change = Recode {
        stripe: record.id,
        expected_revision: record.revision,
        code: plan.to,
        sub_bytes: sub_bytes_for(plan.to),
        parity: vec![None; shape.parity.into()],
        origins: BTreeMap::new(),
        lease: None,
    };
    for kept in plan.kept.iter().filter(|kept| kept.to.chunk.0 >= shape.data) {
        let (from, to) = (kept.from.chunk, kept.to.chunk);
        let Some(name) = record.chunk_id(from) else { continue };
        change.parity[usize::from(to.0 - shape.data)] = record.places[from.at()];
        if (name.stripe, name.index) != (record.id, to) {
            change.origins.insert(to, Origin { stripe: name.stripe, index: name.index });
        }
    }
    change
}

/// Gives each written chunk a name and a disk, in `change` too, and returns them in the order of the plan.
fn place_writes(
    stripes: &Stripes,
    record: &StripeRecord,
    change: &mut Recode,
    plan: &ConversionPlan,
    chunk_bytes: u64,
) -> Result<Vec<Target>, StripeError> {
    let (code, data) = (plan.to, plan.to.shape().data);
    let places = record.places[..data.into()].iter().chain(&change.parity);
    let taken = kept_places(stripes, code, places);
    let taken = taken.map_err(|(_, disk)| StripeError::Crowded { stripe: record.id, to: code, disk })?;
    let candidates = roomy(stripes, chunk_bytes);
    let writes: Vec<ChunkIndex> = plan.writes.iter().map(|write| write.chunk).collect();
    let disks = place_chunks(code, &candidates, &taken, &writes, |bound| stripes.env.random.below(bound));
    let Some(disks) = disks.into_iter().collect::<Option<Vec<DiskId>>>() else {
        return Err(StripeError::TooFewDisks { needed: code.disks_min().into(), available: candidates.len() });
    };
    // Beyond what the record names; and a random step, as in a rebuild, beyond what it does not name any more.
    let last = record.places.iter().flatten().map(|place| place.generation.0).max().unwrap_or(0);
    let generation = Generation(last.wrapping_add(1 + stripes.env.random.below(1 << 20) as u32));
    for (chunk, disk) in writes.iter().zip(&disks) {
        let place = ChunkPlace { disk: *disk, generation, damaged: false };
        change.parity[usize::from(chunk.0 - data)] = Some(place);
    }
    let name = |index| ChunkId { stripe: record.id, index, generation };
    Ok(writes.into_iter().map(name).zip(disks).collect())
}

/// Writes the new parity and reads it back. Returns bytes read of the stripe and bytes read back.
async fn fill(
    stripes: &Stripes,
    record: &StripeRecord,
    plan: &ConversionPlan,
    fresh: &[Target],
    layout: &Layout,
    pace: &dyn Pace,
) -> Result<(u64, u64), StripeError> {
    let (old, converter) = (plan.from.build()?, Converter::new(plan)?);
    let wanted: Vec<ChunkIndex> = plan.reads.iter().map(|read| read.chunk).collect();
    // Nobody waits for this: hedging early would only read more than the plan.
    let mut sources = Sources::new(stripes, record, stripes.settings.read_timeout / 10);
    let mut writers = create(stripes, fresh, layout.chunk_bytes()).await?;
    let mut bytes_read = 0;
    if !fresh.is_empty() {
        // In windows of the old code's sub-chunks, as they are decoded if data is lost; their tiles are the new code's.
        for window in windows(stripes, &Layout::of(record)?) {
            let window_bytes = window.tiles * window.tile_bytes;
            pace.admit(window_bytes * (wanted.len() + fresh.len()) as u64).await;
            let gathered = gather(stripes, record, &*old, window, &wanted, &mut sources).await?;
            bytes_read += gathered.bytes_read;
            let parity = combine(&converter, window, &gathered.chunks, fresh.len());
            let appends = writers.iter_mut().zip(fresh).zip(parity);
            try_join_all(appends.map(|((writer, (_, disk)), bytes)| in_time(stripes, *disk, writer.append(bytes))))
                .await?;
        }
    }
    check_exposure(stripes, record, plan, &sources)?;
    let bytes_verified = settle(stripes, record.id, writers, fresh, layout.chunk_bytes(), pace).await?;
    Ok((bytes_read, bytes_verified))
}

/// The chunks that `before` names and `after` does not, and their disks.
fn superseded(before: &StripeRecord, after: &StripeRecord) -> Vec<Target> {
    let named = |record: &StripeRecord| -> Vec<Target> {
        let indices = (0..record.places.len() as u16).map(ChunkIndex);
        indices.filter_map(|index| Some((record.chunk_id(index)?, record.places[index.at()]?.disk))).collect()
    };
    let kept = named(after);
    named(before).into_iter().filter(|chunk| !kept.contains(chunk)).collect()
}

pub(crate) async fn discard_superseded(stripes: &Stripes, before: &StripeRecord, after: &StripeRecord) -> bool {
    assert_eq!(before.id, after.id, "records of one stripe");
    // Asked once the new record is committed: who claims the stripe from now on reads by that.
    !stripes.is_record_claimed(before) && delete_all(stripes, &superseded(before, after)).await
}
