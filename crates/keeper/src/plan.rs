//! Decides which stripes to rebuild and which chunks to move, and in what order: pure functions.
//!
//! Invariants:
//! 1. The most endangered stripe comes first: fewest further losses tolerated, then those that readers had to decode several
//!    times lately, then those that lack a data chunk
//!    (each read of them costs a recovery) before those that lack parity only, then those with more redundancy for their
//!    data (fast ones, which are read more and rebuilt from fewer chunks) before others, then the oldest.
//! 2. A task never asks for more new disks than there are: what has no place to go is counted as waiting, and nothing
//!    is moved for it.
//! 3. A stripe that cannot be recovered is reported, never made a task.
//!
//! Left out: where a chunk goes (crate `stripe` chooses when it writes).
//! Source: [hacfs §4], which repairs fast data, then compact data, then parity; here what is nearest to loss comes before all.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use claystone_chunk::{DiskId, StripeId};
use claystone_code::{ChunkIndex, CodeSpec};
use claystone_meta::{ChunkPlace, StripeRecord};

use crate::snapshot::{Condition, Exposure, Outlook, Snapshot};

/// Chunks of one stripe to rebuild.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The stripe as it was planned on.
    pub stripe: StripeRecord,
    /// Which chunks, ascending.
    pub chunks: Vec<ChunkIndex>,
    /// Of these, those to which copies give way, because no disk is free for them.
    pub displacing: Vec<ChunkIndex>,
    /// How many more losses it survives.
    pub tolerance_left: i32,
}

/// How urgent a repair is: the least comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Urgency {
    tolerance_left: i32,
    is_cool: bool,
    is_parity: bool,
    redundancy: Reverse<u32>,
    /// Whose it is.
    pub(crate) stripe: StripeId,
}

impl Task {
    /// How urgent it is, where these are hot.
    pub(crate) fn urgency(&self, hot: &BTreeSet<StripeId>) -> Urgency {
        let Task { stripe, chunks, tolerance_left, .. } = self;
        let data = stripe.code.shape().data;
        Urgency {
            tolerance_left: *tolerance_left,
            is_cool: !hot.contains(&stripe.id),
            is_parity: chunks.iter().all(|chunk| chunk.0 >= data),
            redundancy: Reverse(redundancy(stripe.code)),
            stripe: stripe.id,
        }
    }
}

/// What to do next, and what cannot be done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// In the order to carry out.
    pub tasks: Vec<Task>,
    /// Chunks for which there is no disk.
    pub waiting_chunks: u64,
    /// Stripes of which no chunk has a disk to go to.
    pub waiting: Vec<StripeId>,
    /// Stripes of which what is lost cannot be recovered, whatever disk returns.
    pub unrecoverable: Vec<StripeId>,
    /// Stripes that cannot be recovered until a disk that is absent answers again.
    pub unreachable: Vec<StripeId>,
    /// Stripes that could be rebuilt as far as the records know, but an attempt failed a short while ago.
    pub deferred: u64,
}

/// Plans at most `limit` repairs among the stripes of the snapshot.
pub fn plan_repairs(snapshot: &Snapshot, limit: usize) -> Plan {
    let mut plan = Plan::default();
    for stripe in &snapshot.stripes {
        let exposure = snapshot.exposure(stripe);
        if exposure.lost.is_empty() {
            continue;
        }
        match exposure.outlook {
            Outlook::Recoverable => {}
            Outlook::Waiting => {
                plan.unreachable.push(stripe.id);
                continue;
            }
            Outlook::Lost => {
                plan.unrecoverable.push(stripe.id);
                continue;
            }
        }
        let (chunks, displacing) = placeable(snapshot, stripe, &exposure);
        // What lies on a disk that may come back can wait for that.
        let waits = |chunk: &&ChunkIndex| !chunks.contains(chunk) && !snapshot.is_awaited(stripe, **chunk);
        let waiting = exposure.lost.iter().filter(waits).count() as u64;
        plan.waiting_chunks += waiting;
        if chunks.is_empty() {
            plan.waiting.extend((waiting > 0).then_some(stripe.id));
        } else if snapshot.deferred.contains(&stripe.id) {
            plan.deferred += 1;
        } else {
            let tolerance_left = exposure.tolerance_left;
            plan.tasks.push(Task { stripe: stripe.clone(), chunks, displacing, tolerance_left });
        }
    }
    plan.tasks.sort_by_key(|task| task.urgency(&snapshot.hot));
    plan.tasks.truncate(limit);
    plan
}

/// Chunks for a thousand data chunks.
fn redundancy(code: CodeSpec) -> u32 {
    let shape = code.shape();
    1000 * u32::from(shape.chunks()) / u32::from(shape.data)
}

/// The lost chunks that have a disk to go to: their own if it takes writes, else one that may have them. Where disks are
/// short, data chunks go first, and copies give way to data and parity: to the second ones.
fn placeable(snapshot: &Snapshot, stripe: &StripeRecord, exposure: &Exposure) -> (Vec<ChunkIndex>, Vec<ChunkIndex>) {
    let (mut chunks, leave): (Vec<ChunkIndex>, Vec<ChunkIndex>) =
        exposure.lost.iter().partition(|chunk| snapshot.stays(stripe.places[chunk.at()].as_ref()));
    let found = snapshot.placeable_lost(stripe, &chunks, &leave);
    chunks.extend(found.disks.into_keys());
    chunks.sort_unstable();
    (chunks, found.displacing)
}

/// Plans to move the chunks of these stripes off the disk `from`, at most `limit` of them, oldest stripes first.
///
/// A chunk that is marked as damaged is repair's, which takes it off the disk as well.
pub fn plan_drain(snapshot: &Snapshot, from: DiskId, limit: usize) -> Plan {
    let mut plan = Plan::default();
    for stripe in &snapshot.stripes {
        let exposure = snapshot.exposure(stripe);
        let lies_there = |(_, place): &(ChunkIndex, &Option<ChunkPlace>)| place.is_some_and(|place| place.disk == from);
        let there = (0..).map(ChunkIndex).zip(&stripe.places).filter(lies_there).map(|(chunk, _)| chunk);
        let there: Vec<ChunkIndex> = there.filter(|chunk| !exposure.lost.contains(chunk)).collect();
        if there.is_empty() {
            continue;
        }
        let chunks = snapshot.placeable(stripe, &there);
        plan.waiting_chunks += (there.len() - chunks.len()) as u64;
        if chunks.is_empty() {
            plan.waiting.push(stripe.id);
            continue;
        }
        let readable = matches!(snapshot.condition(from), Condition::Writable | Condition::Readable);
        if !readable && exposure.outlook != Outlook::Recoverable {
            plan.unreachable.push(stripe.id);
            continue;
        }
        if !snapshot.deferred.contains(&stripe.id) {
            let tolerance_left = exposure.tolerance_left;
            let displacing = Vec::new();
            plan.tasks.push(Task { stripe: stripe.clone(), chunks, displacing, tolerance_left });
        }
    }
    plan.tasks.sort_by_key(|task| task.stripe.id);
    plan.tasks.truncate(limit);
    plan
}

#[cfg(test)]
mod tests;
