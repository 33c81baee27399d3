//! What the hard disk's log has still of what a sync copied from there to the solid-state drive: where the copy cannot be read, it is
//! sought there.
//!
//! Invariants:
//! 1. An original is what its copy is, and nothing older: it is in the record that was copied, whose place is not free, where that record has
//!    the sector last; and who reads it holds it to the copy's checksums.
//! 2. What can be read stays so: a record that was copied is not freed before its copy.

use claystone_env::{Sector, SectorRange};

use super::state::{Held, State};
use crate::overlay::Place;
use crate::record::Kind;
use crate::superblock::Side;

/// Sectors of a copy that follow each other in the record that was copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Original {
    /// Of the home.
    pub range: SectorRange,
    /// Where they are in the hard disk's log.
    pub in_log: u64,
}

impl State {
    /// The originals of sectors that are at a place and those behind it: none if they are no copy, or if what was copied did not keep its
    /// place.
    pub fn originals(&self, range: SectorRange, place: Place) -> Vec<Original> {
        let copied = self.records[&place.seq].replaces;
        let from = self.records.get(&copied).filter(|held| copied != 0 && held.side == Side::Hdd);
        let Some(from) = from else { return Vec::new() };
        let payload = self.rings[Side::Hdd as usize].place(from.payload());
        let found = |sector| Some((sector, payload + at_of(from, sector)?));
        joined((range.first.0..range.end().0).filter_map(found))
    }

    /// Copies from a sequence on, of records before it: the last copy, and the first of those records. All are of one sync, so there is none
    /// behind its mark.
    pub fn parted_at(&self, seq: u64) -> Option<Parted> {
        let of_sync = self.records.range(seq..).take_while(|(_, held)| held.kind != Kind::Mark);
        let copies = of_sync.filter(|(_, held)| (1..seq).contains(&held.replaces));
        let one = copies.map(|(copy, held)| Parted { last_copy: *copy, first_original: held.replaces });
        one.reduce(|all, one| Parted {
            last_copy: one.last_copy,
            first_original: all.first_original.min(one.first_original),
        })
    }
}

/// Records that were copied, and their copies, on two sides of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parted {
    /// The last copy.
    pub last_copy: u64,
    /// The first record of which one of them is a copy.
    pub first_original: u64,
}

/// Those sectors of originals that are asked for.
pub fn asked_for(originals: &[Original], is_it: impl Fn(u64) -> bool) -> Vec<Original> {
    let sectors =
        originals.iter().flat_map(|original| (original.range.first.0..original.range.end().0).zip(original.in_log..));
    joined(sectors.filter(|(sector, _)| is_it(*sector)))
}

/// Sectors and where they are, those that follow each other in both together.
fn joined(sectors: impl Iterator<Item = (u64, u64)>) -> Vec<Original> {
    let mut originals: Vec<Original> = Vec::new();
    for (sector, in_log) in sectors {
        match originals.last_mut() {
            Some(Original { range, in_log: first }) if range.end().0 == sector && *first + range.sectors == in_log => {
                range.sectors += 1;
            }
            _ => originals.push(Original { range: SectorRange { first: Sector(sector), sectors: 1 }, in_log }),
        }
    }
    originals
}

/// Where a sector of the home is in a record's payload: of extents that overlap, in the last.
fn at_of(held: &Held, sector: u64) -> Option<u64> {
    let (mut found, mut at) = (None, 0);
    for extent in &held.told {
        if (extent.first.0..extent.end().0).contains(&sector) {
            found = Some(at + sector - extent.first.0);
        }
        at += extent.sectors;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_that_follow_each_other_in_both_are_one() {
        let original =
            |first, sectors, in_log| Original { range: SectorRange { first: Sector(first), sectors }, in_log };
        let originals = joined([(3, 10), (4, 11), (5, 20), (7, 21)].into_iter());
        assert_eq!(originals, [original(3, 2, 10), original(5, 1, 20), original(7, 1, 21)]);
        assert_eq!(
            asked_for(&originals, |sector| sector != 3),
            [original(4, 1, 11), original(5, 1, 20), original(7, 1, 21)]
        );
    }
}
