//! A bulk run: whole groups in a row, with their sums sectors between them.
//!
//! ```text
//! [sums 0][k data][m parity] ... [sums j][k data][m parity] ...      sums j: right before the group of data sector 1020 j
//! ```
//!
//! Invariants:
//! 1. Pure functions of the run and the shape of its groups.
//! 2. Sums sectors, data and parity of a run follow each other without a gap and do not overlap.
//! 3. A group has at most one sums sector before it, because k is at most 1020.
//! 4. A group of which no window shows a sector is free, and may be somebody else's by now: [`ShownRun`] tells.

use std::ops::Range;

use claystone_env::Sector;

use crate::{GroupPlace, Member, SUMS_PER_SECTOR};

/// Data and parity sectors of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupShape {
    /// Data sectors, k.
    pub data: u32,
    /// Parity sectors, m.
    pub parity: u32,
}

/// Whole groups in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BulkRun {
    /// Its first sector on the device: the first sums sector.
    pub first: Sector,
    /// Its data sectors: a multiple of k, not 0.
    pub data: u32,
}

/// A bulk run, and what of it windows show. A group of which they show nothing is not read, vouches for nothing, and is not
/// written; nor is a sums sector of which all groups are such.
#[derive(Debug, Clone, Copy)]
pub struct ShownRun<'a> {
    /// The run.
    pub run: BulkRun,
    /// `None` for all of it.
    shown: Option<&'a [Range<u32>]>,
}

impl<'a> ShownRun<'a> {
    /// A run of which windows show the data sectors `shown`: at least those in the groups that are asked for, in the ones
    /// right behind them, and in all that have CRCs in the same sums sectors.
    pub fn new(run: BulkRun, shown: &'a [Range<u32>]) -> ShownRun<'a> {
        ShownRun { run, shown: Some(shown) }
    }

    /// Whether a window shows a sector of a group.
    pub fn shows(&self, group: u32, shape: GroupShape) -> bool {
        let data = group * shape.data..(group + 1) * shape.data;
        self.shown.is_none_or(|shown| shown.iter().any(|shown| shown.start < data.end && data.start < shown.end))
    }
}

impl From<BulkRun> for ShownRun<'_> {
    /// A run of which all is shown.
    fn from(run: BulkRun) -> Self {
        ShownRun { run, shown: None }
    }
}

impl BulkRun {
    /// Sectors on the device of a run of so many groups, sums sectors included.
    pub fn sectors_total(groups: u32, shape: GroupShape) -> u64 {
        u64::from(groups) * u64::from(shape.data + shape.parity) + sums_count(u64::from(groups) * u64::from(shape.data))
    }

    /// Groups of the run.
    ///
    /// # Panics
    /// If its data sectors are not whole groups, at least one.
    pub fn groups(&self, shape: GroupShape) -> u32 {
        assert!(
            self.data > 0 && self.data.is_multiple_of(shape.data),
            "{} sectors in groups of {}",
            self.data,
            shape.data
        );
        self.data / shape.data
    }

    /// Sums sectors of the run.
    pub fn sums_sectors(&self) -> u32 {
        sums_count(self.data.into()) as u32
    }

    /// Where a group lies.
    ///
    /// # Panics
    /// If there is no such group.
    pub fn group(&self, group: u32, shape: GroupShape) -> GroupPlace {
        assert!(group < self.groups(shape), "group {group} of {}", self.groups(shape));
        let (group, k, m) = (u64::from(group), u64::from(shape.data), u64::from(shape.parity));
        let first = self.first.0 + group * (k + m) + sums_count((group + 1) * k);
        GroupPlace { first: Sector(first), data: shape.data, capacity: shape.data }
    }

    /// Where a data sector lies.
    ///
    /// # Panics
    /// If there is no such sector.
    pub fn place_of(&self, sector: u64, shape: GroupShape) -> Sector {
        let k = u64::from(shape.data);
        self.group((sector / k) as u32, shape).sector(Member::Data((sector % k) as u32))
    }

    /// Where a sums sector lies.
    ///
    /// # Panics
    /// If there is no such sums sector.
    pub fn sums(&self, number: u32, shape: GroupShape) -> Sector {
        assert!(number < self.sums_sectors(), "sums sector {number} of {}", self.sums_sectors());
        let group = u64::from(number) * SUMS_PER_SECTOR as u64 / u64::from(shape.data);
        Sector(self.group(group as u32, shape).first.0 - 1)
    }

    /// The sums sector right before a group, if there is one.
    pub fn sums_before(&self, group: u32, shape: GroupShape) -> Option<u32> {
        let first = u64::from(group) * u64::from(shape.data);
        let number = first.div_ceil(SUMS_PER_SECTOR as u64);
        (number * (SUMS_PER_SECTOR as u64) < first + u64::from(shape.data)).then_some(number as u32)
    }

    /// The sums sector of a data sector, and its place there.
    pub fn sums_of(sector: u64) -> (u32, usize) {
        ((sector / SUMS_PER_SECTOR as u64) as u32, (sector % SUMS_PER_SECTOR as u64) as usize)
    }

    /// The data sectors whose CRCs are in a sums sector.
    pub fn summed(&self, number: u32) -> Range<u64> {
        let first = u64::from(number) * SUMS_PER_SECTOR as u64;
        first..u64::from(self.data).min(first + SUMS_PER_SECTOR as u64)
    }

    /// The groups that have data sectors whose CRCs are in a sums sector.
    pub fn summed_groups(&self, number: u32, shape: GroupShape) -> Range<u32> {
        let Range { start, end } = self.summed(number);
        (start / u64::from(shape.data)) as u32..end.div_ceil(shape.data.into()) as u32
    }
}

/// Sums sectors for so many data sectors.
fn sums_count(data: u64) -> u64 {
    data.div_ceil(SUMS_PER_SECTOR as u64)
}

#[cfg(test)]
mod tests {
    use claystone_env::Sector;
    use proptest::prelude::*;

    use super::{BulkRun, GroupShape};
    use crate::{Member, SUMS_PER_SECTOR};

    #[test]
    fn overhead_is_as_documented() {
        let shape = GroupShape { data: 250, parity: 5 };
        // 51 groups are 12.5 sums sectors; take enough that rounding does not show.
        let groups = 1020 * 40;
        let total = BulkRun::sectors_total(groups, shape) as f64;
        let data = f64::from(groups) * 250.0;
        assert!(((total / data - 1.0) * 100.0 - 2.098).abs() < 5e-4);
    }

    proptest! {
        #[test]
        fn sectors_follow_each_other_without_gap_or_overlap(k in 1u32..=1020, m in 0u32..=64, groups in 1u32..40, first in 0u64..1000) {
            let m = m.min(1023 - k);
            let shape = GroupShape { data: k, parity: m };
            let run = BulkRun { first: Sector(first), data: groups * k };
            let mut next = first;
            let mut sums = 0;
            for group in 0..run.groups(shape) {
                if let Some(number) = run.sums_before(group, shape) {
                    prop_assert_eq!(number, sums);
                    prop_assert_eq!(run.sums(number, shape), Sector(next));
                    let begins = u64::from(number) * SUMS_PER_SECTOR as u64;
                    prop_assert_eq!(begins / u64::from(k), u64::from(group), "it lies before the group of its first sector");
                    next += 1;
                    sums += 1;
                }
                let place = run.group(group, shape);
                // The formula of docs/formats/disk.md.
                let g = u64::from(group);
                let formula = first + g * u64::from(k + m) + ((g + 1) * u64::from(k) - 1) / 1020 + 1;
                prop_assert_eq!(place.first, Sector(formula));
                prop_assert_eq!(place.first, Sector(next));
                prop_assert_eq!(place.sector(Member::Data(k - 1)), Sector(next + u64::from(k) - 1));
                prop_assert_eq!(place.sector(Member::Parity(0)), Sector(next + u64::from(k)));
                next += u64::from(k + m);
            }
            prop_assert_eq!(sums, run.sums_sectors());
            prop_assert_eq!(next - first, BulkRun::sectors_total(groups, shape));
        }

        #[test]
        fn every_data_sector_has_one_sum(k in 1u32..=1020, groups in 1u32..20) {
            let shape = GroupShape { data: k, parity: 0 };
            let run = BulkRun { first: Sector(0), data: groups * k };
            for sector in 0..u64::from(run.data) {
                let (number, at) = BulkRun::sums_of(sector);
                prop_assert!(number < run.sums_sectors());
                let summed = run.summed(number);
                prop_assert!(summed.contains(&sector) && summed.start + at as u64 == sector);
                prop_assert!(run.summed_groups(number, shape).contains(&((sector / u64::from(k)) as u32)));
            }
        }
    }
}
