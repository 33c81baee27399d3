//! Which sectors of the home have newer content in a log: memory's picture of what the logs say.
//!
//! Invariants:
//! 1. No two pieces overlap; what was inserted last counts.
//! 2. Whoever inserts or removes is told how many sectors lost their place.

use std::collections::BTreeMap;

use claystone_env::{Sector, SectorRange};

/// Where content of a sector is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// In which record.
    pub seq: u64,
    /// Which sector of its payload.
    pub at: u32,
    /// Nowhere any more: it is lost.
    pub lost: bool,
}

impl Place {
    fn behind(self, sectors: u64) -> Place {
        Place { at: self.at + sectors as u32, ..self }
    }
}

/// Sectors of the home that follow each other, and so do their places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Which.
    pub range: SectorRange,
    /// Of the first one; `None`: at home.
    pub place: Option<Place>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Overlay {
    pieces: BTreeMap<u64, (u64, Place)>,
    sectors: u64,
    lost: u64,
}

impl Overlay {
    /// Sectors that are not at home, lost ones too.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Sectors that are lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// These sectors are at these places now.
    pub fn insert(&mut self, range: SectorRange, place: Place) -> u64 {
        let removed = self.remove(range);
        self.put(range.first.0, range.sectors, place);
        removed
    }

    /// These sectors are at home now.
    pub fn remove(&mut self, range: SectorRange) -> u64 {
        self.remove_where(range, |_| true)
    }

    /// Those of these sectors are at home now whose places are such.
    pub fn remove_where(&mut self, range: SectorRange, is_such: impl Fn(Place) -> bool) -> u64 {
        let mut removed = 0;
        let (first, end) = (range.first.0, range.end().0);
        for (start, sectors, place) in self.touching(first, end) {
            if !is_such(place) {
                continue;
            }
            self.take(start);
            let (cut_first, cut_end) = (start.max(first), (start + sectors).min(end));
            removed += cut_end - cut_first;
            if start < cut_first {
                self.put(start, cut_first - start, place);
            }
            if cut_end < start + sectors {
                self.put(cut_end, start + sectors - cut_end, place.behind(cut_end - start));
            }
        }
        removed
    }

    /// These sectors, in their order, each piece in one place.
    pub fn over(&self, range: SectorRange) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let (mut at, end) = (range.first.0, range.end().0);
        let mut push = |first: u64, end: u64, place: Option<Place>| {
            pieces.push(Piece { range: SectorRange { first: Sector(first), sectors: end - first }, place });
        };
        for (start, sectors, place) in self.touching(at, end) {
            let (first, piece_end) = (start.max(at), (start + sectors).min(end));
            if at < first {
                push(at, first, None);
            }
            push(first, piece_end, Some(place.behind(first - start)));
            at = piece_end;
        }
        if at < end {
            push(at, end, None);
        }
        pieces
    }

    fn touching(&self, first: u64, end: u64) -> Vec<(u64, u64, Place)> {
        let before = self.pieces.range(..first).next_back();
        let before = before.filter(|(start, (sectors, _))| *start + sectors > first);
        let within = self.pieces.range(first..end);
        before.into_iter().chain(within).map(|(start, (sectors, place))| (*start, *sectors, *place)).collect()
    }

    fn put(&mut self, first: u64, sectors: u64, place: Place) {
        self.sectors += sectors;
        self.lost += if place.lost { sectors } else { 0 };
        self.pieces.insert(first, (sectors, place));
    }

    fn take(&mut self, first: u64) {
        let (sectors, place) = self.pieces.remove(&first).expect("the piece was just found");
        self.sectors -= sectors;
        self.lost -= if place.lost { sectors } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(first: u64, sectors: u64) -> SectorRange {
        SectorRange { first: Sector(first), sectors }
    }

    fn place(seq: u64) -> Place {
        Place { seq, at: 0, lost: false }
    }

    #[test]
    fn a_newer_piece_splits_an_older_one() {
        let mut overlay = Overlay::default();
        assert_eq!(overlay.insert(range(10, 10), place(1)), 0);
        assert_eq!(overlay.insert(range(13, 2), place(2)), 2);
        let found: Vec<_> = overlay.over(range(8, 14)).iter().map(|piece| (piece.range.first.0, piece.place)).collect();
        let at = |seq, at| Some(Place { at, ..place(seq) });
        assert_eq!(found, [(8, None), (10, at(1, 0)), (13, at(2, 0)), (15, at(1, 5)), (20, None)]);
        assert_eq!(overlay.over(range(16, 1)), [Piece { range: range(16, 1), place: at(1, 6) }]);
    }

    proptest! {
        #[test]
        fn it_says_of_each_sector_what_was_said_last(
            steps in proptest::collection::vec((0u64..60, 1u64..20, 0u8..4, any::<bool>()), 1..60),
        ) {
            let mut overlay = Overlay::default();
            let mut model: Vec<Option<Place>> = vec![None; 100];
            for (seq, (first, sectors, act, lost)) in (1u64..).zip(steps) {
                let of = |model: &[Option<Place>], first: u64, sectors: u64| -> u64 {
                    model[first as usize..(first + sectors) as usize].iter().flatten().count() as u64
                };
                let before = of(&model, first, sectors);
                let removed = match act {
                    0 => {
                        model[first as usize..(first + sectors) as usize].fill(None);
                        overlay.remove(range(first, sectors))
                    }
                    1 => {
                        let odd = |place: Place| place.seq % 2 == 1;
                        for sector in &mut model[first as usize..(first + sectors) as usize] {
                            *sector = sector.filter(|place| !odd(*place));
                        }
                        overlay.remove_where(range(first, sectors), odd)
                    }
                    _ => {
                        for (at, sector) in (first..first + sectors).enumerate() {
                            model[sector as usize] = Some(Place { seq, at: at as u32, lost });
                        }
                        overlay.insert(range(first, sectors), Place { seq, at: 0, lost })
                    }
                };
                let after = if act > 1 { 0 } else { of(&model, first, sectors) };
                prop_assert_eq!(removed, before - after);
                prop_assert_eq!(overlay.sectors(), model.iter().flatten().count() as u64);
                prop_assert_eq!(overlay.lost(), model.iter().flatten().filter(|place| place.lost).count() as u64);
                for (sector, expected) in (0..).zip(&model) {
                    let found = overlay.over(range(sector, 1));
                    prop_assert_eq!(&found, &[Piece { range: range(sector, 1), place: *expected }]);
                }
                let all: u64 = overlay.over(range(0, 100)).iter().map(|piece| piece.range.sectors).sum();
                prop_assert_eq!(all, 100);
            }
        }
    }
}
