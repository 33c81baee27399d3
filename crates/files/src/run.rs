//! Runs: whole groups side by side on the device, and the windows on them that a file is made of.
//!
//! A [`Window`] is a row of the table `runs`: data sectors that follow each other in the file and in their run, or sectors of the
//! file that have no data yet and room for a group that is kept for them.
//!
//! Invariants:
//! 1. Windows of a file do not overlap, and no two windows of any files have a sector of the device in common.
//! 2. A single run has one window, since its sums are in it. A bulk run may have several, all of one file, and all with
//!    the same distance between file sectors and sectors of the run.
//! 3. Room that is promised is that of one group, and its window is as long as the data that it takes.

use std::collections::BTreeSet;
use std::ops::Range;

use claystone_env::{Sector, SectorRange};
use claystone_group::{BulkRun, GroupPlace, GroupShape, SUMS_PER_SECTOR};

use crate::{FileError, Inode};

/// Where the data of a window lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Run {
    /// One group.
    Single {
        /// The group; `data` sectors of it are in use.
        place: GroupPlace,
        /// The CRC of each data sector in use.
        sums: Vec<u32>,
        /// Whether the file's sectors behind it are promised the room that the group still has: nothing else lies there.
        promised: bool,
    },
    /// Whole groups, with sums sectors among them.
    Bulk {
        /// The run.
        run: BulkRun,
    },
    /// Nothing yet: the file's sectors are a hole, and room for a group of them, whose capacity is the window's length, is kept.
    Promised {
        /// The first sector of the room.
        first: Sector,
    },
}

/// A row of the table `runs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Window {
    /// Its first sector in the file.
    pub first: u64,
    /// How many sectors.
    pub sectors: u32,
    /// Data sectors of the run before the window.
    pub skipped: u32,
    /// What it shows.
    pub run: Run,
}

impl Window {
    /// The sector of the file behind the window.
    pub fn end(&self) -> u64 {
        self.first + u64::from(self.sectors)
    }

    /// Whether it is one group at this place.
    pub fn is_at(&self, first: Sector) -> bool {
        matches!(&self.run, Run::Single { place, .. } if place.first == first)
    }

    /// Whether it has no data yet, but room that is kept for it.
    pub fn is_promised(&self) -> bool {
        matches!(self.run, Run::Promised { .. })
    }

    /// How many sectors of the device it takes, parity and checksums included: of a group all that is kept for it.
    pub fn taken(&self, shape: GroupShape) -> u64 {
        let (k, m) = (u64::from(shape.data), u64::from(shape.parity));
        match &self.run {
            Run::Single { place, .. } => u64::from(place.capacity) + m,
            Run::Promised { .. } => u64::from(self.sectors) + m,
            Run::Bulk { .. } => {
                let data = u64::from(self.sectors);
                data + data.div_ceil(k) * m + data.div_ceil(SUMS_PER_SECTOR as u64)
            }
        }
    }

    /// How many sectors can be added behind the window without moving it.
    pub fn room(&self) -> u64 {
        match &self.run {
            Run::Single { place, .. } if place.data == self.in_run().end => u64::from(place.capacity - place.data),
            _ => 0,
        }
    }

    /// How many sectors behind the window are promised the room that its group still has.
    pub fn promised_room(&self) -> u64 {
        match &self.run {
            Run::Single { promised: true, .. } => self.room(),
            _ => 0,
        }
    }

    /// Which data sectors of the run lie in the window.
    pub fn in_run(&self) -> Range<u32> {
        self.skipped..self.skipped + self.sectors
    }

    /// The number in the run of a sector of the file in the window.
    pub fn position(&self, sector: u64) -> u32 {
        debug_assert!((self.first..self.end()).contains(&sector));
        self.in_run().start + (sector - self.first) as u32
    }

    /// The same of a sector that another window on the run may show: all of them keep their distance to it.
    pub fn position_beside(&self, sector: u64) -> u32 {
        (u64::from(self.skipped) + sector - self.first) as u32
    }

    /// The part of the window within these sectors of the file, which must not be empty.
    pub fn cut(&self, part: Range<u64>) -> Window {
        assert!(self.first <= part.start && part.start < part.end && part.end <= self.end(), "{part:?} of {self:?}");
        Window {
            first: part.start,
            sectors: (part.end - part.start) as u32,
            skipped: self.position(part.start),
            run: self.run.clone(),
        }
    }

    /// The value of the row.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, first, data, capacity, sums): ([u8; 2], _, _, _, &[u32]) = match &self.run {
            Run::Single { place, sums, promised } => {
                ([1, u8::from(*promised)], place.first, place.data, place.capacity, sums)
            }
            Run::Bulk { run } => ([2, 0], run.first, run.data, 0, &[]),
            Run::Promised { first } => ([3, 0], *first, 0, self.sectors, &[]),
        };
        let mut bytes = vec![kind[0], kind[1], 0, 0];
        bytes.extend(self.sectors.to_le_bytes());
        bytes.extend(first.0.to_le_bytes());
        for number in [self.skipped, data, capacity] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(sums.iter().flat_map(|sum| sum.to_le_bytes()));
        bytes
    }

    /// Parses a row; `data` is k of the disk.
    ///
    /// # Errors
    /// [`FileError::Failed`] if it cannot be.
    pub fn decode(inode: Inode, first: u64, bytes: &[u8], data_max: u32) -> Result<Window, FileError> {
        let wrong =
            || FileError::Failed { why: format!("the run of inode {inode} at file sector {first} makes no sense") };
        let word = |at: usize| -> Result<u32, FileError> {
            let bytes = bytes.get(at..at + 4).ok_or_else(wrong)?;
            Ok(u32::from_le_bytes(bytes.try_into().expect("four bytes")))
        };
        let (sectors, skipped, data, capacity) = (word(4)?, word(16)?, word(20)?, word(24)?);
        let place = Sector(u64::from(word(8)?) | u64::from(word(12)?) << 32);
        let fits = sectors > 0 && skipped.checked_add(sectors).is_some_and(|end| end <= data);
        let run = match bytes[0] {
            1 if fits && data <= capacity && capacity <= data_max && bytes[1] <= 1 => {
                let sums: Vec<u32> = (0..data as usize).map(|sum| word(28 + 4 * sum)).collect::<Result<_, _>>()?;
                Run::Single { place: GroupPlace { first: place, data, capacity }, sums, promised: bytes[1] == 1 }
            }
            2 if fits && data.is_multiple_of(data_max) => Run::Bulk { run: BulkRun { first: place, data } },
            3 if (1..=data_max).contains(&sectors) && (skipped, data, capacity) == (0, 0, sectors) => {
                Run::Promised { first: place }
            }
            _ => return Err(wrong()),
        };
        if first.checked_add(u64::from(sectors)).is_none() {
            return Err(wrong());
        }
        Ok(Window { first, sectors, skipped, run })
    }
}

/// What is left of promised room, and what of it becomes free, when the sectors `gone` of the file need it no more: what is left at
/// an end of it stays, with room for a group of its own; what would be left at both ends stays whole.
pub(crate) fn cut_promise(
    window: &Window,
    first: Sector,
    gone: &Range<u64>,
    parity: u32,
) -> (Option<Window>, SectorRange) {
    let room = |sectors: u64| sectors + u64::from(parity);
    let all = window.end() - window.first;
    let (before, behind) =
        (gone.start.saturating_sub(window.first).min(all), window.end().saturating_sub(gone.end).min(all));
    let left = |at: u64, sectors: u64, first: Sector| Window {
        first: at,
        sectors: sectors as u32,
        skipped: 0,
        run: Run::Promised { first },
    };
    match (before, behind) {
        (0, 0) => (None, SectorRange { first, sectors: room(all) }),
        (before, 0) => {
            let free = SectorRange { first: Sector(first.0 + room(before)), sectors: all - before };
            (Some(left(window.first, before, first)), free)
        }
        (0, behind) => {
            let gone = all - behind;
            (Some(left(window.first + gone, behind, Sector(first.0 + gone))), SectorRange { first, sectors: gone })
        }
        _ => (Some(window.clone()), SectorRange { first, sectors: 0 }),
    }
}

/// The sectors of the device that become free when `gone` data sectors of a bulk run are in no window any more, and `kept`
/// are those near them that are in other windows: groups that no window shows, and sums sectors of which all groups are
/// such.
pub(crate) fn freed_of_bulk(
    run: BulkRun,
    gone: &[Range<u32>],
    kept: &[Range<u32>],
    shape: GroupShape,
) -> Vec<SectorRange> {
    let k = shape.data;
    let in_use = |group: &u32| kept.iter().any(|kept| kept.start < (group + 1) * k && group * k < kept.end);
    let touched: BTreeSet<u32> = gone.iter().flat_map(|gone| gone.start / k..gone.end.div_ceil(k)).collect();
    let (mut freed, mut sums) = (Vec::new(), BTreeSet::new());
    for group in touched.into_iter().filter(|group| !in_use(group)) {
        let first = run.group(group, shape).first;
        freed.push(SectorRange { first, sectors: u64::from(k + shape.parity) });
        sums.insert(BulkRun::sums_of(u64::from(group * k)).0);
        sums.insert(BulkRun::sums_of(u64::from((group + 1) * k - 1)).0);
    }
    for number in sums {
        if !run.summed_groups(number, shape).any(|group| in_use(&group)) {
            freed.push(SectorRange { first: run.sums(number, shape), sectors: 1 });
        }
    }
    freed.sort_unstable();
    let mut merged: Vec<SectorRange> = Vec::new();
    for range in freed {
        match merged.last_mut() {
            Some(last) if last.end() == range.first => last.sectors += range.sectors,
            _ => merged.push(range),
        }
    }
    merged
}

/// How far from a part of a bulk run windows can lie on the same groups, on those right behind, or on groups of the same sums
/// sectors.
pub(crate) fn reach(shape: GroupShape) -> u64 {
    SUMS_PER_SECTOR as u64 + 2 * u64::from(shape.data)
}

#[cfg(test)]
mod tests {
    use claystone_env::{Sector, SectorRange};
    use claystone_group::{BulkRun, GroupPlace, GroupShape};

    use super::{Run, Window, cut_promise, freed_of_bulk};
    use crate::Inode;

    const SHAPE: GroupShape = GroupShape { data: 250, parity: 5 };

    #[test]
    fn rows_are_read_as_they_were_written() {
        let place = GroupPlace { first: Sector(7 << 33), data: 3, capacity: 9 };
        let single = Run::Single { place, sums: vec![1, 2, 3], promised: false };
        let roomy = Run::Single { place, sums: vec![1, 2, 3], promised: true };
        let bulk = Run::Bulk { run: BulkRun { first: Sector(9), data: 500 } };
        for run in [single, roomy, bulk] {
            let window = Window { first: 77, sectors: 2, skipped: 1, run };
            let bytes = window.encode();
            assert_eq!(Window::decode(Inode(3), 77, &bytes, 250).ok(), Some(window));
            for len in 0..bytes.len() {
                assert!(Window::decode(Inode(3), 77, &bytes[..len], 250).is_err(), "{len} bytes");
            }
        }
    }

    #[test]
    fn promised_room_is_read_as_it_was_written() {
        let window =
            Window { first: 77, sectors: 250, skipped: 0, run: Run::Promised { first: Sector(0x0102_0304_0506) } };
        let bytes = window.encode();
        assert_eq!(bytes, [3, 0, 0, 0, 250, 0, 0, 0, 6, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 250, 0, 0, 0],);
        assert_eq!(Window::decode(Inode(3), 77, &bytes, 250).ok(), Some(window));
        assert!(Window::decode(Inode(3), 77, &bytes, 249).is_err(), "longer than a group");
        for wrong in [4, 16, 20, 24] {
            let mut bytes = bytes.clone();
            bytes[wrong] ^= 1;
            assert!(Window::decode(Inode(3), 77, &bytes, 250).is_err(), "byte {wrong}");
        }
    }

    #[test]
    fn promised_room_is_freed_from_its_ends() {
        let promised =
            |first, sectors, place| Window { first, sectors, skipped: 0, run: Run::Promised { first: Sector(place) } };
        let window = promised(1000, 250, 5000);
        let cut = |gone| cut_promise(&window, Sector(5000), &gone, 5);
        let free = |first, sectors| SectorRange { first: Sector(first), sectors };
        assert_eq!(cut(900..1250), (None, free(5000, 255)));
        assert_eq!(cut(1010..u64::MAX), (Some(promised(1000, 10, 5000)), free(5015, 240)));
        assert_eq!(cut(0..1010), (Some(promised(1010, 240, 5010)), free(5000, 10)));
        assert_eq!(
            cut(1010..1240),
            (Some(window.clone()), free(5000, 0)),
            "what is cut out in the middle stays promised"
        );
    }

    #[test]
    fn a_run_is_free_when_its_last_window_goes_and_no_sector_twice() {
        let run = BulkRun { first: Sector(100), data: 9 * 250 };
        let all = BulkRun::sectors_total(9, SHAPE);
        let parts = [0..300, 300..1100, 1100..1500, 1500..2250];
        for order in [[0, 1, 2, 3], [3, 1, 0, 2], [1, 3, 2, 0], [2, 0, 3, 1]] {
            let mut kept = parts.to_vec();
            let mut freed: Vec<SectorRange> = Vec::new();
            for part in order.map(|part| parts[part].clone()) {
                kept.retain(|window| *window != part);
                freed.extend(freed_of_bulk(run, &[part], &kept, SHAPE));
            }
            freed.sort_unstable();
            assert_eq!(freed.iter().map(|range| range.sectors).sum::<u64>(), all);
            assert!(freed.windows(2).all(|two| two[0].end() <= two[1].first), "{freed:?}");
            assert_eq!((freed[0].first, freed.last().map(SectorRange::end)), (Sector(100), Some(Sector(100 + all))));
        }
    }
}
