//! What a planner looks at: the disks and some stripes at one moment, as plain data.
//!
//! Invariants:
//! 1. Everything here is computed from the snapshot alone: the same snapshot gives the same answer.
//! 2. A chunk on a disk that has merely been silent for a while is unreachable, not lost; it becomes lost when its
//!    disk is given up, by a person or after `absent_after`. Of a hot stripe it is rebuilt at once, but counts as lost for
//!    nothing else: it is still there when the disk returns.

use std::collections::{BTreeMap, BTreeSet};

use claystone_chunk::{DiskId, StripeId};
use claystone_code::ChunkIndex;
use claystone_meta::{ChunkPlace, StripeRecord};
use claystone_stripe::{Rehousing, rehouse};

/// What can be done with a disk now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// It answers reads and takes new chunks.
    Writable,
    /// It answers reads: it is draining, or its medium refuses writes.
    Readable,
    /// It does not answer, and may come back.
    Absent,
    /// It is given up: lost, removed, unknown, or absent for longer than `absent_after`.
    Gone,
}

/// Disks and stripes at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Every known disk. A disk that is not here is gone.
    pub disks: BTreeMap<DiskId, Condition>,
    /// Stripes to look at, in any order; those in full health are passed over.
    pub stripes: Vec<StripeRecord>,
    /// Stripes to leave alone for now, because an attempt at them failed a short while ago.
    pub deferred: BTreeSet<StripeId>,
    /// Stripes that are read much though chunks of them do not answer: these are not waited for.
    pub hot: BTreeSet<StripeId>,
}

/// How near a stripe is to losing data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposure {
    /// Chunks without a place, damaged, or on disks that are gone, of a hot stripe on absent ones too. Ascending.
    pub lost: Vec<ChunkIndex>,
    /// Sound chunks on disks that do not answer now.
    pub unreachable: u16,
    /// Whether what is lost can be recovered.
    pub outlook: Outlook,
    /// How many more chunks may go before data is lost, the unreachable ones counted as gone. Negative: too many are.
    pub tolerance_left: i32,
}

/// Whether the lost chunks of a stripe can be recovered. Damaged chunks count as there: they may be partly readable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outlook {
    /// From the chunks that can be read now.
    Recoverable,
    /// If absent disks return.
    Waiting,
    /// Not at all.
    Lost,
}

impl Exposure {
    /// Every chunk is in place and answers.
    pub fn whole(&self) -> bool {
        self.lost.is_empty() && self.unreachable == 0
    }
}

impl Snapshot {
    /// The condition of a disk.
    pub fn condition(&self, disk: DiskId) -> Condition {
        self.disks.get(&disk).copied().unwrap_or(Condition::Gone)
    }

    /// How near a stripe is to losing data.
    pub fn exposure(&self, stripe: &StripeRecord) -> Exposure {
        let (mut lost, mut gone, mut unreadable, mut never) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (index, place) in (0..).map(ChunkIndex).zip(&stripe.places) {
            let condition = place.as_ref().map_or(Condition::Gone, |place| self.condition(place.disk));
            let damaged = place.as_ref().is_some_and(|place| place.damaged);
            let is_gone = damaged || condition == Condition::Gone;
            let is_lost = is_gone || self.is_awaited(stripe, index);
            let answers = place.as_ref().is_some_and(|place| self.answers(place.disk));
            for (set, belongs) in [
                (&mut lost, is_lost),
                (&mut gone, is_gone || condition == Condition::Absent),
                (&mut unreadable, !answers),
                (&mut never, !answers && is_gone),
            ] {
                if belongs {
                    set.push(index);
                }
            }
        }
        let is_enough_without = |chunks: &[ChunkIndex]| stripe.code.tolerance_left(chunks) >= 0;
        let outlook = match () {
            () if is_enough_without(&unreadable) => Outlook::Recoverable,
            () if is_enough_without(&never) => Outlook::Waiting,
            () => Outlook::Lost,
        };
        let unreachable = (gone.len() - lost.len()) as u16;
        Exposure { lost, unreachable, outlook, tolerance_left: stripe.code.tolerance_left(&gone) }
    }

    /// Whether a chunk is rebuilt though its disk may come back with it: it is of a hot stripe.
    pub(crate) fn is_awaited(&self, stripe: &StripeRecord, chunk: ChunkIndex) -> bool {
        let place = stripe.places[chunk.at()].as_ref().filter(|place| !place.damaged);
        self.hot.contains(&stripe.id) && place.is_some_and(|place| self.condition(place.disk) == Condition::Absent)
    }

    /// Whether a chunk may be rebuilt on the disk where it lies.
    pub(crate) fn stays(&self, place: Option<&ChunkPlace>) -> bool {
        place.is_some_and(|place| self.condition(place.disk) == Condition::Writable)
    }

    /// Those of `chunks`, which all leave their disks, for which there are disks: each is given one, in their order, that
    /// may have it beside what it has of the stripe and was given before.
    pub(crate) fn placeable(&self, stripe: &StripeRecord, chunks: &[ChunkIndex]) -> Vec<ChunkIndex> {
        let disks = self.disks_for(stripe, &lies(stripe, chunks), chunks);
        chunks.iter().zip(disks).filter_map(|(chunk, disk)| disk.map(|_| *chunk)).collect()
    }

    /// The same of lost chunks that leave their disks, beside those that stay on theirs: copies give way to them where there are no disks
    /// else ([`rehouse`]), but to none that may come back with its disk.
    pub(crate) fn placeable_lost(&self, stripe: &StripeRecord, stay: &[ChunkIndex], leave: &[ChunkIndex]) -> Rehousing {
        let missing = self.missing(stripe).into_iter().filter(|chunk| !stay.contains(chunk)).collect();
        let may_give_way = |chunk, disk| {
            let mut kept = stay.iter().filter_map(|chunk| stripe.places[chunk.at()].as_ref());
            self.condition(disk) == Condition::Writable
                && !kept.any(|place| place.disk == disk)
                && !self.is_awaited(stripe, chunk)
        };
        let place = |lies: &BTreeMap<ChunkIndex, DiskId>, chunks: &[ChunkIndex]| self.disks_for(stripe, lies, chunks);
        rehouse(stripe.code, lies(stripe, leave), missing, leave, may_give_way, place)
    }

    /// For each of these chunks a disk that may have it, where the others lie so.
    fn disks_for(
        &self,
        stripe: &StripeRecord,
        lies: &BTreeMap<ChunkIndex, DiskId>,
        chunks: &[ChunkIndex],
    ) -> Vec<Option<DiskId>> {
        let mut on: BTreeMap<DiskId, Vec<ChunkIndex>> = BTreeMap::new();
        lies.iter().for_each(|(chunk, disk)| on.entry(*disk).or_default().push(*chunk));
        let writable = || self.disks.iter().filter(|(_, condition)| **condition == Condition::Writable);
        let mut disk_for = |chunk: &ChunkIndex| {
            let leaves = stripe.places[chunk.at()].as_ref().map(|place| place.disk);
            let may_have = |disk: &&DiskId| {
                let mut others = on.get(disk).into_iter().flatten();
                Some(**disk) != leaves && others.all(|other| stripe.code.may_share_disk(*chunk, *other))
            };
            let disk = *writable().map(|(disk, _)| disk).find(may_have)?;
            on.entry(disk).or_default().push(*chunk);
            Some(disk)
        };
        chunks.iter().map(&mut disk_for).collect()
    }

    /// Chunks of a stripe that have no place, are damaged, or lie on disks that do not answer.
    pub(crate) fn missing(&self, stripe: &StripeRecord) -> Vec<ChunkIndex> {
        let is_missing =
            |place: Option<&ChunkPlace>| place.is_none_or(|place| place.damaged || !self.answers(place.disk));
        let places = (0..).map(ChunkIndex).zip(&stripe.places);
        places.filter(|(_, place)| is_missing(place.as_ref())).map(|(index, _)| index).collect()
    }

    /// Whether a stripe lacks chunks, which are all copies of data chunks beside these.
    pub(crate) fn lacks_copies_only(&self, stripe: &StripeRecord) -> bool {
        let missing = self.missing(stripe);
        !missing.is_empty() && missing.iter().all(|chunk| stripe.code.copied(*chunk).is_some())
    }

    fn answers(&self, disk: DiskId) -> bool {
        matches!(self.condition(disk), Condition::Writable | Condition::Readable)
    }
}

/// Where the chunks of a stripe lie but these.
fn lies(stripe: &StripeRecord, without: &[ChunkIndex]) -> BTreeMap<ChunkIndex, DiskId> {
    let places = (0..).map(ChunkIndex).zip(&stripe.places).filter(|(chunk, _)| !without.contains(chunk));
    places.filter_map(|(chunk, place)| Some((chunk, place.as_ref()?.disk))).collect()
}
