//! Updates of groups: what to read for new parity, and what to write.
//!
//! There are two ways to new parity: to encode again, which takes all data that does not change, or to add the change,
//! which takes the old data of what changes and the old parity. What memory has of either need not be read: the caller's
//! cache, long reads a moment ago, and updates of the group before this one. The way that then reads fewer sectors wins; data that is new
//! was zeros, so appending takes the parity only, and nothing where that was kept.
//!
//! Where more of a group is lost than parity replaces, the one way may still do: what is lost is not among what changes, and the change is added; or
//! all that is lost is written anew, and the group is encoded again. Where neither does, an update can be told to make the parity *void*.
//!
//! ```text
//! clean --Reencode, Delta--> clean        void --Reencode, or a scrub that has all data--> clean
//! clean, void --Void--> void              its data has its CRCs, and nothing else to be mended from
//! ```
//!
//! Invariants:
//! 1. [`plan_update`] decides; whoever carries the plan out makes no choice, but to encode again where the old parity or
//!    old data does not read, and no retry is cheaper, and to add the change where other data turns out to be lost.
//! 2. Preparing writes nothing but mended sectors; the caller writes when its journal has what it needs.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use claystone_env::{DeviceError, SECTOR_BYTES, Sector, aligned_buffer};

use crate::gathering::Gathering;
use crate::void::void_parity;
use crate::{Cached, GroupCode, GroupError, GroupPlace, Groups, Member, sector_sum};

/// A data sector as it shall be.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// Which.
    pub position: u32,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// How new parity is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateWay {
    /// From all data.
    Reencode,
    /// From the old parity and what changes.
    Delta,
    /// Not at all: the group is to have void parity. For data that no other way can be brought into a group; of what is lost of the
    /// group nothing can be decoded any more, should some of it read again.
    Void,
}

/// Who says how new parity is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateChoice {
    /// The way that reads less; if both read the same, the one that takes fewer sectors, and to encode again if that is the same too.
    Cheapest,
    /// This way. After a crash the parity may not fit the data: then it must be [`UpdateWay::Reencode`].
    Only(UpdateWay),
}

impl UpdateChoice {
    /// Whether the parity may not fit the data.
    pub(crate) fn distrusts_parity(self) -> bool {
        matches!(self, UpdateChoice::Only(UpdateWay::Reencode | UpdateWay::Void))
    }
}

/// What to read for an update, and how to use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdatePlan {
    /// How new parity is made.
    pub way: UpdateWay,
    /// Members to read, ascending.
    pub reads: Vec<Member>,
}

/// Consecutive sectors to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectorWrite {
    /// The first one.
    pub first: Sector,
    /// Their bytes.
    pub bytes: Bytes,
}

/// Writes that update a group.
#[derive(Debug)]
pub struct Update {
    /// The group as it will be: with more data in use if positions were new.
    pub place: GroupPlace,
    /// How its parity was made.
    pub way: UpdateWay,
    /// Data and parity, ascending; none touches another.
    pub writes: Vec<SectorWrite>,
    /// The CRCs of what changes, by position.
    pub sums: Vec<(u32, u32)>,
    /// The new parity, m sectors: who keeps it can append without a read. Or void.
    pub parity: Bytes,
    /// Something of the group was mended, and is not synced: to be synced before anything that comes with the update, such as its CRCs.
    /// What was torn of it by a power cut could not be decoded under them.
    pub mended: bool,
}

impl Update {
    /// What to write, as a device takes it.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (Sector, &[u8])> {
        self.writes.iter().map(|write| (write.first, &write.bytes[..]))
    }

    /// The same as it is kept: runs of data, and all parity by itself, which every update writes. Nothing where there is no parity to make.
    pub(crate) fn written(&self) -> impl Iterator<Item = (Sector, Bytes)> {
        let parity = self.place.sector(Member::Parity(0));
        let data = self.writes.iter().map(move |SectorWrite { first, bytes }| {
            let sectors = parity.0.saturating_sub(first.0) as usize;
            (*first, bytes.slice(..bytes.len().min(sectors * SECTOR_BYTES)))
        });
        data.chain([(parity, self.parity.clone())]).filter(|_| !self.parity.is_empty())
    }
}

/// Plans an update of `changed` positions, ascending, in a group with `in_use` data sectors and `parity` parity sectors;
/// positions from `in_use` on are new. A way for which nothing is to be read that `is_lost` is taken before one for which something is.
// Source: [lec §4.3]
pub fn plan_update(
    changed: &[u32],
    in_use: u32,
    parity: u32,
    is_cached: impl Fn(Member) -> bool,
    is_lost: impl Fn(Member) -> bool,
    choice: UpdateChoice,
) -> UpdatePlan {
    let to_read = |members: &[Member]| -> Vec<Member> {
        members.iter().copied().filter(|member| parity > 0 && !is_cached(*member)).collect()
    };
    let unchanged = (0..in_use).filter(|position| changed.binary_search(position).is_err());
    let unchanged: Vec<Member> = unchanged.map(Member::Data).collect();
    let old = changed.iter().copied().filter(|position| *position < in_use).map(Member::Data);
    let old: Vec<Member> = old.chain((0..parity).map(Member::Parity)).collect();
    let reencode = UpdatePlan { way: UpdateWay::Reencode, reads: to_read(&unchanged) };
    let delta = UpdatePlan { way: UpdateWay::Delta, reads: to_read(&old) };
    let is_barred = |plan: &UpdatePlan| plan.reads.iter().any(|member| is_lost(*member));
    match choice {
        UpdateChoice::Only(UpdateWay::Reencode) => reencode,
        UpdateChoice::Only(UpdateWay::Delta) => delta,
        UpdateChoice::Only(UpdateWay::Void) => UpdatePlan { way: UpdateWay::Void, reads: Vec::new() },
        UpdateChoice::Cheapest if is_barred(&reencode) != is_barred(&delta) => {
            if is_barred(&reencode) {
                delta
            } else {
                reencode
            }
        }
        UpdateChoice::Cheapest if (delta.reads.len(), old.len()) < (reencode.reads.len(), unchanged.len()) => delta,
        UpdateChoice::Cheapest => reencode,
    }
}

impl Groups {
    /// Prepares the writes that bring `changes`, in ascending order, into a group. Positions from the data in use on are
    /// new, up to the capacity. `sums` are the CRCs of the data in use, as before. Reads what the new parity takes, with
    /// mending, except what is cached or was read or written a moment ago.
    ///
    /// # Errors
    /// [`GroupError::Lost`] if data that the parity needs is lost. [`GroupError::Device`].
    ///
    /// # Panics
    /// If nothing changes, changes are not in ascending order or whole sectors, there is no room, or positions between
    /// old and new ones are left out.
    pub fn prepare_update(
        &self,
        place: GroupPlace,
        changes: &[Change<'_>],
        sums: &[u32],
        cached: Cached<'_>,
        choice: UpdateChoice,
    ) -> Result<Update, GroupError> {
        let mut preparation = Preparation::new(self, place, changes, sums, cached, choice);
        Preparation::fetch_each(self, std::iter::once(&mut preparation))?;
        let update = preparation.finish()?;
        Ok(Update { mended: self.begin_update(place), ..update })
    }

    /// Makes the parity of a group void, whatever it is, and changes nothing else. Nobody reads, updates or mends it meanwhile.
    ///
    /// # Errors
    /// As [`Groups::write_update`].
    pub fn void(&self, place: GroupPlace) -> Result<(), DeviceError> {
        self.assert_place(place);
        let mut parity = BytesMut::zeroed(self.shape().parity as usize * SECTOR_BYTES);
        self.put_void(place, &mut parity);
        let parity = parity.freeze();
        let writes = writes(place, &[], &parity);
        self.write_update(&Update { place, way: UpdateWay::Void, writes, sums: Vec::new(), parity, mended: false })
    }

    fn put_void(&self, place: GroupPlace, parity: &mut [u8]) {
        for (number, bytes) in (0..).zip(parity.chunks_exact_mut(SECTOR_BYTES)) {
            bytes.copy_from_slice(&void_parity(self.disk(), place.sector(Member::Parity(number))));
        }
    }
}

/// An update whose reads are planned, so that those of several groups are made together.
pub(crate) struct Preparation<'a> {
    groups: &'a Groups,
    place: GroupPlace,
    changes: &'a [Change<'a>],
    changed: Vec<u32>,
    grown: u32,
    way: UpdateWay,
    reads: Vec<usize>,
    trusts_parity: bool,
    gathering: Gathering<'a>,
}

impl<'a> Preparation<'a> {
    /// Plans the update; see [`Groups::prepare_update`].
    pub fn new(
        groups: &'a Groups,
        place: GroupPlace,
        changes: &'a [Change<'a>],
        sums: &[u32],
        cached: Cached<'_>,
        choice: UpdateChoice,
    ) -> Preparation<'a> {
        groups.assert_place(place);
        let changed: Vec<u32> = changes.iter().map(|change| change.position).collect();
        let grown = assert_changes(place, &changed);
        assert!(changes.iter().all(|change| change.bytes.len() == SECTOR_BYTES), "changes are sectors");
        let mut gathering = Gathering::new(groups, place, sums.iter().copied().map(Some).collect());
        if choice.distrusts_parity() {
            gathering.retry_soft();
        }
        gathering.take_cached(cached);
        gathering.take_kept();
        gathering.pass_over_lost();
        let in_use = changes.iter().take_while(|change| change.position < place.data);
        gathering.offer(in_use.map(|change| (change.position as usize, change.bytes)));
        let is_cached = |member| gathering.holds(gathering.at(member));
        let is_lost = |member| gathering.is_lost(gathering.at(member));
        let parity = groups.shape().parity;
        let UpdatePlan { way, reads } = plan_update(&changed, place.data, parity, is_cached, is_lost, choice);
        let reads: Vec<usize> = reads.iter().map(|member| gathering.at(*member)).collect();
        let trusts_parity = !choice.distrusts_parity();
        Preparation { groups, place, changes, changed, grown, way, reads, trusts_parity, gathering }
    }

    /// Reads what the plans of all take, in one call of the device.
    pub fn fetch_each<'p>(
        groups: &Groups,
        preparations: impl Iterator<Item = &'p mut Preparation<'a>>,
    ) -> Result<(), DeviceError>
    where
        'a: 'p,
    {
        let preparations: Vec<&mut Preparation<'a>> = preparations.collect();
        // What fails of one of them is decoded from the rest of its group.
        let most = preparations.iter().map(|one| one.reads.len()).max().unwrap_or(0);
        let rest = |one: &&mut Preparation<'_>| one.gathering.unknown().saturating_sub(one.reads.len());
        let effort = groups.plan_effort(most, preparations.iter().map(rest).min().unwrap_or(0));
        let asked = preparations.into_iter().map(|one| (&mut one.gathering, &one.reads[..]));
        Gathering::fetch_each(groups, effort, &mut asked.collect::<Vec<_>>())
    }

    /// Makes new parity of what was read, or if some of that failed of what is read now.
    pub fn finish(self) -> Result<Update, GroupError> {
        let Preparation { groups, place, changes, changed, grown, mut way, reads, trusts_parity, mut gathering } = self;
        if way == UpdateWay::Delta && !gathering.retry_if_cheaper(&reads)? {
            way = UpdateWay::Reencode;
        }
        let parity_count = groups.shape().parity;
        let mut parity = BytesMut::zeroed(parity_count as usize * SECTOR_BYTES);
        if way == UpdateWay::Reencode && parity_count > 0 {
            let unchanged: Vec<usize> =
                (0..place.data).filter(|at| changed.binary_search(at).is_err()).map(|at| at as usize).collect();
            gathering.fetch(|at| unchanged.binary_search(&at).is_ok())?;
            let restored = gathering.restore(&unchanged);
            gathering.settle(false);
            match restored {
                Err(GroupError::Lost { .. }) if trusts_parity && holds_old(&gathering, place, &changed) => {
                    way = UpdateWay::Delta;
                }
                restored => restored?,
            }
        }
        match way {
            _ if parity_count == 0 => {}
            UpdateWay::Delta => add_changes(groups.code(), place, changes, &gathering, &mut parity),
            UpdateWay::Void => groups.put_void(place, &mut parity),
            UpdateWay::Reencode => {
                let mut data: Vec<&[u8]> = (0..grown as usize).map(|at| held_or_new(&gathering, place, at)).collect();
                for change in changes {
                    data[change.position as usize] = change.bytes;
                }
                groups.code().encode(&data, &mut parity);
            }
        }
        let parity = parity.freeze();
        let place = GroupPlace { data: grown, ..place };
        Ok(Update {
            place,
            way,
            writes: writes(place, changes, &parity),
            sums: changes.iter().map(|change| (change.position, sector_sum(change.bytes))).collect(),
            parity,
            mended: false,
        })
    }
}

/// Whether all is had that the change is added to: the old data of what changes, and all parity.
fn holds_old(gathering: &Gathering<'_>, place: GroupPlace, changed: &[u32]) -> bool {
    let old = changed.iter().filter(|position| **position < place.data).map(|position| *position as usize);
    old.chain(gathering.parity()).all(|at| gathering.holds(at))
}

/// The data in use after a change of these positions.
fn assert_changes(place: GroupPlace, changed: &[u32]) -> u32 {
    let last = *changed.last().expect("something changes");
    assert!(changed.windows(2).all(|pair| pair[0] < pair[1]), "changes are in ascending order");
    assert!(last < place.capacity, "position {last} in room for {}", place.capacity);
    let grown = place.data.max(last + 1);
    let new = changed.iter().filter(|position| **position >= place.data).count();
    assert_eq!(new, (grown - place.data) as usize, "no position is left out");
    grown
}

/// An unchanged sector; what changes or is new is put there later.
fn held_or_new<'a>(gathering: &'a Gathering<'_>, place: GroupPlace, at: usize) -> &'a [u8] {
    if at < place.data as usize { gathering.bytes(at).unwrap_or(&[]) } else { &[] }
}

/// Makes new parity of the old one and of what changes.
// Source: [lec §4.3]
fn add_changes(
    code: &GroupCode,
    place: GroupPlace,
    changes: &[Change<'_>],
    gathering: &Gathering<'_>,
    parity: &mut [u8],
) {
    for (number, sector) in (0..).zip(parity.chunks_exact_mut(SECTOR_BYTES)) {
        sector.copy_from_slice(gathering.bytes(gathering.at(Member::Parity(number))).expect("old parity was read"));
    }
    for run in consecutive(changes) {
        let run = &changes[run];
        let mut deltas = vec![0; run.len() * SECTOR_BYTES];
        for (delta, change) in deltas.chunks_exact_mut(SECTOR_BYTES).zip(run) {
            delta.copy_from_slice(change.bytes);
            if change.position < place.data {
                let old = gathering.bytes(change.position as usize).expect("old data was read");
                for (byte, old) in delta.iter_mut().zip(old) {
                    *byte ^= old;
                }
            }
        }
        let deltas: Vec<&[u8]> = deltas.chunks_exact(SECTOR_BYTES).collect();
        code.encode_add(run[0].position, &deltas, parity);
    }
}

/// What to write: changes that lie one behind the other together, with the parity where it lies behind them.
fn writes(place: GroupPlace, changes: &[Change<'_>], parity: &Bytes) -> Vec<SectorWrite> {
    let mut writes = Vec::new();
    let mut parity = (!parity.is_empty()).then_some(parity);
    for run in consecutive(changes) {
        let run = &changes[run];
        let end = run[0].position + run.len() as u32;
        let behind = parity.take_if(|_| end == place.capacity);
        let mut bytes = aligned_buffer(run.len() * SECTOR_BYTES + behind.map_or(0, |parity| parity.len()));
        run.iter().for_each(|change| bytes.extend_from_slice(change.bytes));
        bytes.extend_from_slice(behind.map_or(&[], |parity| parity));
        writes.push(SectorWrite { first: place.sector(Member::Data(run[0].position)), bytes: bytes.freeze() });
    }
    writes.extend(parity.map(|parity| SectorWrite { first: place.sector(Member::Parity(0)), bytes: parity.clone() }));
    writes
}

/// Ranges of changes whose positions follow each other.
fn consecutive(changes: &[Change<'_>]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for at in 0..changes.len() {
        match runs.last_mut() {
            Some(run) if changes[at - 1].position + 1 == changes[at].position => run.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::{Member, UpdateChoice, UpdatePlan, UpdateWay, plan_update};

    fn plan(changed: &[u32], cached: &[Member]) -> UpdatePlan {
        plan_update(changed, 250, 5, |member| cached.contains(&member), |_| false, UpdateChoice::Cheapest)
    }

    // Test of: [lec §4.3]
    #[test]
    fn the_change_is_added_while_fewer_than_half_change() {
        for changes in 1..=250 {
            let changed: Vec<u32> = (0..changes).collect();
            let plan = plan(&changed, &[]);
            // Encoding again reads k - c, adding c + m; at 122 of 250 adding still reads one less.
            let (way, reads) =
                if changes <= 122 { (UpdateWay::Delta, changes + 5) } else { (UpdateWay::Reencode, 250 - changes) };
            assert_eq!((plan.way, plan.reads.len() as u32), (way, reads), "{changes} changes");
        }
    }

    #[test]
    fn what_is_cached_counts_for_nothing() {
        let rest: Vec<Member> = (10..250).map(Member::Data).collect();
        let changed: Vec<u32> = (0..10).collect();
        assert_eq!(plan(&changed, &rest), UpdatePlan { way: UpdateWay::Reencode, reads: vec![] });
        assert_eq!(plan(&changed, &rest[1..]), UpdatePlan { way: UpdateWay::Reencode, reads: vec![Member::Data(10)] });
        let all: Vec<Member> = (0..250).map(Member::Data).chain((0..5).map(Member::Parity)).collect();
        assert_eq!(
            plan(&changed, &all),
            UpdatePlan { way: UpdateWay::Delta, reads: vec![] },
            "15 sectors to work with"
        );
        let changed: Vec<u32> = (0..130).collect();
        let old: Vec<Member> = (0..20).map(Member::Data).collect();
        assert_eq!(plan(&changed, &old).way, UpdateWay::Delta);
    }

    #[test]
    fn appending_reads_the_parity_only() {
        let parity: Vec<Member> = (0..5).map(Member::Parity).collect();
        let append = |cached: &[Member]| {
            plan_update(&[100, 101], 100, 5, |member| cached.contains(&member), |_| false, UpdateChoice::Cheapest)
        };
        assert_eq!(append(&[]), UpdatePlan { way: UpdateWay::Delta, reads: parity.clone() });
        assert_eq!(append(&parity), UpdatePlan { way: UpdateWay::Delta, reads: vec![] });
        // Three sectors in front cost less than five of parity.
        assert_eq!(plan_update(&[3], 3, 5, |_| false, |_| false, UpdateChoice::Cheapest).way, UpdateWay::Reencode);
    }

    #[test]
    fn a_way_may_be_told_and_without_parity_nothing_is_read() {
        let only = |way| plan_update(&[1, 2], 250, 5, |_| false, |_| false, UpdateChoice::Only(way)).reads.len();
        assert_eq!((only(UpdateWay::Reencode), only(UpdateWay::Delta)), (248, 7));
        assert_eq!(plan_update(&[1], 250, 0, |_| false, |_| false, UpdateChoice::Cheapest).reads, vec![]);
    }
    #[test]
    fn a_way_that_needs_what_is_lost_is_not_taken_where_the_other_does_without() {
        let plan = |changed: &[u32], lost: &[Member]| {
            let is_lost = |member| lost.contains(&member);
            plan_update(changed, 250, 5, |_| false, is_lost, UpdateChoice::Cheapest).way
        };
        let most: Vec<u32> = (0..200).collect();
        assert_eq!(plan(&most, &[]), UpdateWay::Reencode);
        assert_eq!(plan(&most, &[Member::Data(220)]), UpdateWay::Delta);
        assert_eq!(plan(&[7], &[Member::Data(220)]), UpdateWay::Delta);
        assert_eq!(plan(&[7], &[Member::Data(7)]), UpdateWay::Reencode);
        assert_eq!(plan(&[7], &[Member::Parity(3)]), UpdateWay::Reencode);
        // Neither does: as if nothing were lost.
        assert_eq!(plan(&most, &[Member::Data(7), Member::Data(220)]), UpdateWay::Reencode);
        let void = UpdateChoice::Only(UpdateWay::Void);
        assert_eq!(plan_update(&most, 250, 5, |_| false, |_| true, void).reads, vec![]);
    }
}
