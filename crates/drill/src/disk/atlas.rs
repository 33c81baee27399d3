//! Which sectors of a disk may be hurt: faults laid out so that everything can be recovered.
//!
//! Invariants:
//! 1. Of any sectors that may be one group or copies of one thing, no more are hurt than it can lose: wherever groups lie,
//!    at most m of k + m sectors side by side are hurt, and where copies may be, at most m' - 1 of m'.
//! 2. A group whose sums sector is hurt is not hurt itself, and the other way round: with its checksums gone, the group's own
//!    parity has to vouch for it.

use std::collections::BTreeSet;
use std::ops::Range;

/// What a disk was formatted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// Data sectors of a group, k.
    pub data: u64,
    /// Parity sectors of a group, m.
    pub parity: u64,
    /// Copies of what is in no group, m'.
    pub copies: u64,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Atlas {
    code: Code,
    hurt: BTreeSet<u64>,
    sums: BTreeSet<u64>,
}

impl Atlas {
    /// Nothing is hurt.
    pub fn new(code: Code) -> Atlas {
        Atlas { code, hurt: BTreeSet::new(), sums: BTreeSet::new() }
    }

    /// Notes that a sector is about to be hurt, if it may be.
    /// `is_copy`: it is a copy of something that is in no group.
    pub fn hurts(&mut self, sector: u64, content: &[u8], is_copy: bool) -> bool {
        let Code { data, parity, copies } = self.code;
        let is_sums = content.starts_with(SUMS_MAGIC);
        // What was hurt as something else may be a sums sector by now.
        if self.hurt.contains(&sector) && (!is_sums || self.sums.contains(&sector)) {
            return true;
        }
        // With a sums sector between them.
        let group = data + parity + 1;
        let side_by_side = around(sector, group, group);
        let most = if is_copy { parity.min(copies - 1) } else { parity } as usize;
        let others = |range: Range<u64>| self.hurt.range(range).filter(|&&other| other != sector).count();
        let summed = SUMS_OF_A_SECTOR.div_ceil(data) * group;
        let vouches = match is_sums {
            true => others(around(sector, group, summed)) == 0,
            false => self.sums.range(around(sector, summed, group)).next().is_none(),
        };
        let fits = others(side_by_side) < most;
        if fits && vouches {
            self.hurt.insert(sector);
            if is_sums {
                self.sums.insert(sector);
            }
        }
        fits && vouches
    }

    /// Some sectors were read and mended.
    pub fn mended(&mut self, which: impl Fn(u64) -> bool) {
        self.hurt.retain(|&sector| !which(sector));
        self.sums.retain(|&sector| !which(sector));
    }

    /// How many sectors are hurt.
    pub fn count(&self) -> usize {
        self.hurt.len()
    }
}

/// First bytes of a sums sector.
const SUMS_MAGIC: &[u8] = b"CLAYSUMS";
/// Data sectors whose checksums one sums sector holds.
const SUMS_OF_A_SECTOR: u64 = 1020;

fn around(sector: u64, before: u64, behind: u64) -> Range<u64> {
    sector.saturating_sub(before)..sector + behind + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: Code = Code { data: 6, parity: 2, copies: 3 };

    #[test]
    fn no_group_and_no_copies_are_hurt_beyond_repair() {
        let mut atlas = Atlas::new(CODE);
        let hurt: Vec<u64> = (0..200).filter(|&sector| atlas.hurts(sector, &[], false)).collect();
        assert_eq!(hurt.len(), atlas.count());
        for first in 0..200 {
            let within = |sectors: u64| hurt.iter().filter(|hurt| (first..first + sectors).contains(hurt)).count();
            assert!(within(6 + 2) <= 2);
            assert!(within(3) <= 2);
        }
        assert!(hurt.len() > 30, "{hurt:?}");
        atlas.mended(|sector| sector < 100);
        assert!(atlas.hurts(2, &[], false) && atlas.hurts(2, &[], false) && atlas.count() > 10);
    }

    #[test]
    fn a_hurt_sums_sector_spares_its_groups() {
        let mut atlas = Atlas::new(CODE);
        assert!(atlas.hurts(100, SUMS_MAGIC, false));
        assert!(!atlas.hurts(105, &[], false) && !atlas.hurts(100 + 1020 / 6 * 9, &[], false));
        assert!(atlas.hurts(100 + 1020 / 6 * 9 + 100, &[], false));
        assert!(!atlas.hurts(1000, SUMS_MAGIC, false) && !atlas.hurts(101, SUMS_MAGIC, false));
        // A sector that was hurt before it became one.
        assert!(atlas.hurts(4000, &[], false) && atlas.hurts(4002, &[], false));
        assert!(!atlas.hurts(4000, SUMS_MAGIC, false) && atlas.hurts(4000, &[], false));
    }

    #[test]
    fn copies_are_spared_as_there_are_few_and_groups_as_they_have_parity() {
        let mut atlas = Atlas::new(Code { data: 250, parity: 5, copies: 2 });
        let hurt: Vec<u64> = (0..200).filter(|&sector| atlas.hurts(sector, &[], false)).collect();
        assert_eq!(hurt, [0, 1, 2, 3, 4]);
        let copies: Vec<u64> = (1000..1400).filter(|&sector| atlas.hurts(sector, &[], true)).collect();
        assert_eq!(copies, [1000, 1257]);
    }
}
