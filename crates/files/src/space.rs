//! The space map: which sectors of the device are free.
//!
//! A free sector is in one of three states:
//!
//! ```text
//! free --reserve--> reserved --take--> in use --give--> given back --reopen--> free
//!                   reserved --unreserve--> free
//! free --take_slab--> a slab --list_slab--> a slab, and in the table --open_slab--> free
//!                             a slab, and in the table --withhold--> a slab
//! ```
//!
//! Invariants:
//! 1. The rows of the table `free` are all sectors that are free, reserved or given back: until a run is named in the
//!    catalog, its sectors are nobody's, so a crash loses no space.
//! 2. Sectors given back are not reserved before [`SpaceMap::reopen`], which a checkpoint calls: no journal entry that
//!    could be replayed names them.
//! 3. No two rows touch or overlap.
//! 4. Sectors of a slab that is given back are in the table first, and reserved only when no superblock names them
//!    any more: whoever opens the disk takes off the table what the superblock names, so a power cut in between loses none.
//!
//! *Spare.* A gap of a stated length stays in one piece, or where there is none, the largest: for slabs of the catalog that what frees space
//! needs. Files, and slabs for anything else, get what leaves such a gap ([`SpaceMap::reserve_beside_spare`]).
//!
//! *Room.* Free sectors are not room for as many of a file: each group takes parity, and lies in one gap. What is left of a gap behind whole
//! groups of k + m sectors takes a shorter group, and none where it is m sectors or less. So a gap of g sectors has room for
//! `g / (k + m) k + max(0, g % (k + m) - m)` of data. Sectors taken out of a gap take no more of its room than they are many.

use std::collections::{BTreeMap, BTreeSet};

use claystone_env::{Sector, SectorRange};
use claystone_group::GroupShape;

use crate::{Change, Table};

/// See the module.
#[derive(Debug)]
pub(crate) struct SpaceMap {
    shape: GroupShape,
    // The rows of the table: first -> sectors.
    rows: BTreeMap<u64, u64>,
    // What can be reserved, by place and by size.
    open: BTreeMap<u64, u64>,
    sizes: BTreeSet<(u64, u64)>,
    given: Vec<SectorRange>,
    // Changes of the table that nobody applied yet: slabs are taken in the middle of a checkpoint.
    recorded: Vec<Change>,
    open_sectors: u64,
    open_room: u64,
    given_sectors: u64,
    spare: u64,
    files_leave: u64,
    files_have: u64,
    slabs_leave: u64,
    slabs_leave_room: u64,
}

impl SpaceMap {
    /// The map that the rows of the table `free` say, for groups of a shape.
    pub fn new(shape: GroupShape, rows: impl IntoIterator<Item = SectorRange>) -> SpaceMap {
        let mut map = SpaceMap {
            shape,
            rows: BTreeMap::new(),
            open: BTreeMap::new(),
            sizes: BTreeSet::new(),
            given: Vec::new(),
            recorded: Vec::new(),
            open_sectors: 0,
            open_room: 0,
            given_sectors: 0,
            spare: 0,
            files_leave: 0,
            files_have: 0,
            slabs_leave: 0,
            slabs_leave_room: 0,
        };
        for row in rows {
            map.rows.insert(row.first.0, row.sectors);
            map.open_insert(row);
        }
        map
    }

    /// Sectors that can be reserved now.
    pub fn open_sectors(&self) -> u64 {
        self.open_sectors
    }

    /// Data sectors that groups in the gaps have room for, whatever their number.
    pub fn open_room(&self) -> u64 {
        self.open_room
    }

    /// Sectors that a checkpoint will make free.
    pub fn given_sectors(&self) -> u64 {
        self.given_sectors
    }

    /// Finds `sectors` consecutive free ones: right at `near` if they are free there, else in the smallest
    /// gap that holds them.
    pub fn reserve(&mut self, sectors: u64, near: Option<Sector>) -> Option<SectorRange> {
        assert!(sectors > 0, "a reservation of no sector");
        let there = near.and_then(|near| {
            let (&first, &len) = self.open.range(..=near.0).next_back()?;
            (near.0 + sectors <= first + len).then_some((first, near.0))
        });
        let (gap, first) = match there {
            Some(found) => found,
            None => {
                let &(_, first) = self.sizes.range((sectors, 0)..).next()?;
                (first, first)
            }
        };
        let len = self.open_remove(gap);
        if first > gap {
            self.open_insert(SectorRange { first: Sector(gap), sectors: first - gap });
        }
        if gap + len > first + sectors {
            self.open_insert(SectorRange { first: Sector(first + sectors), sectors: gap + len - first - sectors });
        }
        Some(SectorRange { first: Sector(first), sectors })
    }

    /// The largest number of sectors that one reservation could get now.
    pub fn largest(&self) -> u64 {
        self.sizes.last().map_or(0, |&(sectors, _)| sectors)
    }

    /// Keeps a gap of so many sectors, or the largest if none is as long, for what frees space.
    pub fn keep_spare(&mut self, sectors: u64) {
        (self.spare, self.files_leave, self.slabs_leave) = (sectors, sectors, sectors);
    }

    /// From now on files have so much of what is kept for the catalog, for the catalog has what they were promised, and leave so much of the gap.
    pub fn let_files_have(&mut self, sectors: u64, leaving: u64) {
        (self.files_have, self.files_leave) = (sectors, leaving.min(self.spare));
    }

    /// Sectors of what is kept for the catalog that files have.
    pub fn files_have(&self) -> u64 {
        self.files_have
    }

    /// From now on slabs leave so much of the gap that is kept for what frees space; `None`: all of it, as files do.
    pub fn let_slabs_leave(&mut self, sectors: Option<u64>) {
        self.slabs_leave = sectors.unwrap_or(self.spare);
    }

    /// As [`SpaceMap::reserve`] anywhere, but what files leave of the gap that is kept for what frees space stays.
    pub fn reserve_beside_spare(&mut self, sectors: u64) -> Option<SectorRange> {
        self.reserve_leaving(self.files_leave, sectors)
    }

    /// The largest number of sectors that [`SpaceMap::reserve_beside_spare`] could find now.
    pub fn largest_beside_spare(&self) -> u64 {
        let mut sizes = self.sizes.iter().rev().map(|&(sectors, _)| sectors);
        let (largest, second) = (sizes.next().unwrap_or(0), sizes.next().unwrap_or(0));
        let left = self.files_leave.min(largest);
        if second >= left { largest } else { second.max(largest - left) }
    }

    fn reserve_leaving(&mut self, left: u64, sectors: u64) -> Option<SectorRange> {
        let left = left.min(self.largest());
        let range = self.reserve(sectors, None)?;
        if self.largest() < left {
            self.unreserve(range);
            return None;
        }
        Some(range)
    }

    /// Gives up a reservation that was not taken.
    pub fn unreserve(&mut self, range: SectorRange) {
        self.open_merge(range);
    }

    /// Marks reserved sectors as in use and adds what that changes in the table.
    ///
    /// # Panics
    /// If one is not in a row of the table.
    pub fn take(&mut self, range: SectorRange, changes: &mut Vec<Change>) {
        let (&first, &len) = self.rows.range(..=range.first.0).next_back().expect("what is taken was free");
        assert!(range.end().0 <= first + len, "{range} are taken and not free");
        self.rows.remove(&first);
        if first < range.first.0 {
            self.put_row(first, range.first.0 - first, changes);
        } else {
            changes.push(row(first, None));
        }
        if first + len > range.end().0 {
            self.put_row(range.end().0, first + len - range.end().0, changes);
        }
    }

    /// Marks sectors in use as given back and adds what that changes in the table.
    ///
    /// # Panics
    /// If one is free already.
    pub fn give(&mut self, range: SectorRange, changes: &mut Vec<Change>) {
        if range.sectors == 0 {
            return;
        }
        self.given.push(range);
        self.given_sectors += range.sectors;
        let (mut first, mut sectors) = (range.first.0, range.sectors);
        if let Some((&before, &len)) = self.rows.range(..first).next_back() {
            assert!(before + len <= first, "{range} are given back and free from {before}");
            if before + len == first {
                self.rows.remove(&before);
                (first, sectors) = (before, sectors + len);
            }
        }
        if let Some((&after, &len)) = self.rows.range(range.first.0..).next() {
            assert!(after >= range.end().0, "{range} are given back and free from {after}");
            if after == range.end().0 {
                self.rows.remove(&after);
                changes.push(row(after, None));
                sectors += len;
            }
        }
        self.put_row(first, sectors, changes);
    }

    /// A checkpoint is durable: what was given back before it can be reserved.
    pub fn reopen(&mut self) {
        for range in std::mem::take(&mut self.given) {
            self.open_merge(range);
        }
        self.given_sectors = 0;
    }

    /// Adds sectors that are free from the start: of a new disk, or behind the old end of one that grew.
    pub fn make_free(&mut self, range: SectorRange, changes: &mut Vec<Change>) {
        self.give(range, changes);
        self.given.pop();
        self.given_sectors -= range.sectors;
        self.open_merge(range);
    }

    /// Takes sectors for a slab of the page file, which the superblock names at once; what changes in the table is kept for
    /// [`SpaceMap::take_recorded`], and until that is applied, [`SpaceMap::withhold`] makes up for it.
    pub fn take_slab(&mut self, sectors: u64) -> Option<SectorRange> {
        let range = self.reserve_leaving(self.slabs_leave, sectors)?;
        if self.open_room < self.slabs_leave_room {
            self.unreserve(range);
            return None;
        }
        let mut changes = std::mem::take(&mut self.recorded);
        self.take(range, &mut changes);
        self.recorded = changes;
        Some(range)
    }

    /// Puts the sectors of a slab that is to be given back into the table, and adds what that changes there. Nobody gets them before
    /// [`SpaceMap::open_slab`]; [`SpaceMap::withhold`] takes them out again.
    ///
    /// # Panics
    /// If one is free already.
    pub fn list_slab(&mut self, range: SectorRange, changes: &mut Vec<Change>) {
        self.give(range, changes);
        // No entry of the journal names them: they were free when they became the slab's.
        self.given.pop();
        self.given_sectors -= range.sectors;
    }

    /// The superblock names a slab no more: its sectors can be reserved.
    pub fn open_slab(&mut self, range: SectorRange) {
        self.open_merge(range);
    }

    /// From now on slabs leave room for so many data sectors, in whatever pieces: those that wait and were promised it.
    pub fn let_slabs_leave_room(&mut self, sectors: u64) {
        self.slabs_leave_room = sectors;
    }

    /// The changes of the table that slabs made.
    pub fn take_recorded(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.recorded)
    }

    /// Takes away sectors that are in use though the table may say otherwise: slabs of the page file, which the superblock
    /// names first.
    pub fn withhold(&mut self, range: SectorRange, changes: &mut Vec<Change>) {
        let (from, end) = (range.first.0, range.end().0);
        let touching = |rows: &BTreeMap<u64, u64>| -> Vec<(u64, u64)> {
            let start = rows.range(..=from).next_back().map_or(from, |(&first, _)| first);
            rows.range(start..end)
                .map(|(&first, &len)| (first, len))
                .filter(|(first, len)| first + len > from)
                .collect()
        };
        for (first, len) in touching(&self.rows) {
            let cut = SectorRange { first: Sector(first.max(from)), sectors: (first + len).min(end) - first.max(from) };
            self.take(cut, changes);
        }
        for (first, len) in touching(&self.open) {
            self.open_remove(first);
            if first < from {
                self.open_insert(SectorRange { first: Sector(first), sectors: from - first });
            }
            if first + len > end {
                self.open_insert(SectorRange { first: Sector(end), sectors: first + len - end });
            }
        }
    }

    /// All rows of the table, ascending.
    pub fn rows(&self) -> impl Iterator<Item = SectorRange> + '_ {
        self.rows.iter().map(|(&first, &sectors)| SectorRange { first: Sector(first), sectors })
    }

    fn put_row(&mut self, first: u64, sectors: u64, changes: &mut Vec<Change>) {
        self.rows.insert(first, sectors);
        changes.push(row(first, Some(sectors)));
    }

    fn open_merge(&mut self, range: SectorRange) {
        let mut whole = range;
        if let Some((&before, &len)) = self.open.range(..range.first.0).next_back()
            && before + len == range.first.0
        {
            self.open_remove(before);
            whole = SectorRange { first: Sector(before), sectors: len + whole.sectors };
        }
        if let Some(&len) = self.open.get(&range.end().0) {
            self.open_remove(range.end().0);
            whole.sectors += len;
        }
        self.open_insert(whole);
    }

    fn open_insert(&mut self, range: SectorRange) {
        let before = self.open.insert(range.first.0, range.sectors);
        assert!(before.is_none(), "{range} are free twice");
        self.sizes.insert((range.sectors, range.first.0));
        self.open_sectors += range.sectors;
        self.open_room += room_in(range.sectors, self.shape);
    }

    fn open_remove(&mut self, first: u64) -> u64 {
        let len = self.open.remove(&first).expect("a gap of the map");
        self.sizes.remove(&(len, first));
        self.open_sectors -= len;
        self.open_room -= room_in(len, self.shape);
        len
    }
}

/// Data sectors that groups in a gap have room for.
fn room_in(gap: u64, shape: GroupShape) -> u64 {
    let (data, parity) = (u64::from(shape.data), u64::from(shape.parity));
    let rest = gap % (data + parity);
    gap / (data + parity) * data + rest.saturating_sub(parity)
}

fn row(first: u64, sectors: Option<u64>) -> Change {
    Change {
        table: Table::Free,
        key: first.to_be_bytes().to_vec(),
        value: sectors.map(|sectors| sectors.to_le_bytes().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use claystone_env::{Sector, SectorRange};
    use claystone_group::GroupShape;
    use proptest::prelude::*;

    use super::{SpaceMap, room_in};
    use crate::Change;

    const SHAPE: GroupShape = GroupShape { data: 10, parity: 2 };

    fn range(first: u64, sectors: u64) -> SectorRange {
        SectorRange { first: Sector(first), sectors }
    }

    fn apply(table: &mut BTreeMap<Vec<u8>, Vec<u8>>, changes: Vec<Change>) {
        for change in changes {
            match change.value {
                Some(value) => table.insert(change.key, value),
                None => table.remove(&change.key),
            };
        }
    }

    #[test]
    fn the_smallest_gap_that_is_large_enough_is_taken_and_the_near_one_before() {
        let mut map = SpaceMap::new(SHAPE, [range(0, 10), range(20, 4), range(30, 100)]);
        assert_eq!(map.reserve(4, None), Some(range(20, 4)));
        assert_eq!(map.reserve(4, Some(Sector(50))), Some(range(50, 4)));
        assert_eq!(map.reserve(200, None), None);
        assert_eq!(map.largest(), 76);
    }

    #[test]
    fn sectors_given_back_wait_for_a_checkpoint() {
        let mut map = SpaceMap::new(SHAPE, [range(0, 8)]);
        let all = map.reserve(8, None).expect("free");
        let mut changes = Vec::new();
        map.take(all, &mut changes);
        map.give(range(2, 3), &mut changes);
        assert_eq!((map.reserve(1, None), map.given_sectors()), (None, 3));
        map.reopen();
        assert_eq!(map.reserve(3, None), Some(range(2, 3)));
    }

    #[test]
    fn a_gap_stays_whole_for_what_frees_space() {
        let mut map = SpaceMap::new(SHAPE, [range(0, 10), range(20, 4), range(30, 100)]);
        map.keep_spare(64);
        assert_eq!(map.largest_beside_spare(), 36);
        assert_eq!((map.reserve_beside_spare(37), map.take_slab(37)), (None, None));
        assert_eq!(map.reserve_beside_spare(36), Some(range(30, 36)));
        assert_eq!(map.largest_beside_spare(), 10);
        assert_eq!((map.reserve_beside_spare(11), map.reserve_beside_spare(10)), (None, Some(range(0, 10))));
        map.let_slabs_leave(Some(40));
        assert_eq!((map.take_slab(25), map.take_slab(24)), (None, Some(range(66, 24))));
        // Of what is left nobody else gets anything.
        map.let_slabs_leave(None);
        assert_eq!((map.largest(), map.largest_beside_spare()), (40, 4));
        assert_eq!((map.take_slab(5), map.reserve_beside_spare(5)), (None, None));
        map.let_files_have(30, 34);
        assert_eq!((map.largest_beside_spare(), map.files_have()), (6, 30));
        assert_eq!((map.reserve_beside_spare(7), map.reserve_beside_spare(6)), (None, Some(range(90, 6))));
        map.let_slabs_leave(Some(0));
        assert_eq!(map.take_slab(34), Some(range(96, 34)));
    }

    #[test]
    fn a_slab_that_is_given_back_is_in_the_table_first_and_free_later() {
        let mut map = SpaceMap::new(SHAPE, [range(0, 100)]);
        let slab = map.take_slab(40).expect("free");
        let mut changes = map.take_recorded();
        map.list_slab(slab, &mut changes);
        assert_eq!(map.rows().collect::<Vec<_>>(), [range(0, 100)]);
        map.reopen();
        assert_eq!((map.open_sectors(), map.given_sectors(), map.largest()), (60, 0, 60), "no checkpoint gives it out");
        map.withhold(slab, &mut changes);
        assert_eq!(map.rows().collect::<Vec<_>>(), [range(40, 60)]);
        assert_eq!(map.open_sectors(), 60);
        map.list_slab(slab, &mut changes);
        map.open_slab(slab);
        assert_eq!((map.open_sectors(), map.largest(), map.open_room()), (100, 100, 82));
        let mut table = BTreeMap::from([(0u64.to_be_bytes().to_vec(), 100u64.to_le_bytes().to_vec())]);
        apply(&mut table, changes);
        assert_eq!(table, BTreeMap::from([(0u64.to_be_bytes().to_vec(), 100u64.to_le_bytes().to_vec())]));
    }

    #[test]
    fn a_slab_leaves_room_for_what_waits() {
        let mut map = SpaceMap::new(SHAPE, [range(0, 120)]);
        map.let_slabs_leave_room(60);
        assert_eq!((map.take_slab(49), map.open_sectors()), (None, 120));
        assert_eq!(map.take_slab(48), Some(range(0, 48)));
        map.let_slabs_leave_room(0);
        assert_eq!(map.take_slab(49), Some(range(48, 49)));
    }

    #[test]
    fn a_gap_has_room_for_whole_groups_and_a_shorter_one_behind_them() {
        let rooms = [0, 2, 3, 11, 12, 14, 15, 24].map(|gap| room_in(gap, SHAPE));
        assert_eq!(rooms, [0, 0, 1, 9, 10, 10, 11, 20]);
        let mut map = SpaceMap::new(SHAPE, [range(0, 24), range(30, 2), range(40, 3)]);
        assert_eq!((map.open_sectors(), map.open_room()), (29, 21));
        map.reserve(5, Some(Sector(0))).expect("it is free");
        assert_eq!(map.open_room(), 16, "five of the room went with five sectors");
    }

    proptest! {
        #[test]
        fn the_table_is_what_is_not_in_use(steps in proptest::collection::vec((0..5u8, 1..20u64), 1..200)) {
            let mut map = SpaceMap::new(SHAPE, [range(0, 500)]);
            let mut table = BTreeMap::from([(0u64.to_be_bytes().to_vec(), 500u64.to_le_bytes().to_vec())]);
            let mut used: Vec<SectorRange> = Vec::new();
            for (step, number) in steps {
                let mut changes = Vec::new();
                match step {
                    0..=1 => if let Some(found) = map.reserve(number, Some(Sector(number * 7))) {
                        map.take(found, &mut changes);
                        used.push(found);
                    },
                    2 => if let Some(found) = map.reserve(number, None) { map.unreserve(found); },
                    3 => if !used.is_empty() {
                        let gone = used.swap_remove(number as usize % used.len());
                        map.give(gone, &mut changes);
                    },
                    _ => map.reopen(),
                }
                apply(&mut table, changes);
                let rows: BTreeMap<Vec<u8>, Vec<u8>> =
                    map.rows().map(|row| (row.first.0.to_be_bytes().to_vec(), row.sectors.to_le_bytes().to_vec())).collect();
                prop_assert_eq!(&rows, &table);
                let mut owner = vec![0; 500];
                for range in map.rows().chain(used.iter().copied()) {
                    for sector in range.first.0..range.end().0 { owner[sector as usize] += 1; }
                }
                prop_assert!(owner.iter().all(|&owners| owners == 1));
                let in_use: u64 = used.iter().map(|range| range.sectors).sum();
                prop_assert_eq!(map.open_sectors() + map.given_sectors() + in_use, 500);
                let room: u64 = map.open.values().map(|gap| room_in(*gap, SHAPE)).sum();
                prop_assert_eq!(map.open_room(), room);
            }
        }
    }
}
