//! A solid-state drive as a cache that writes back: which sectors it holds, which of them the hard disk has not, and which go first.
//!
//! ```text
//! write --> dirty --more than `dirty_from`, the least recently used first--> on the hard disk too: clean --no room--> gone
//!             '-- written again: used just now, and written back once
//! ```
//!
//! Invariants:
//! 1. At most `sectors_max` are held, and none that is dirty is given up: who writes waits until it may ([`LruCache::has_room`]).
//! 2. What is written again while it is on its way to the hard disk is dirty still when that is over.
//!
//! Left out: reads, and the sectors of which only a part is written: such a cache would read the rest from the hard disk.

use std::collections::BTreeMap;

use claystone_env::{Sector, SectorRange};

/// See the module.
#[derive(Debug)]
pub struct LruCache {
    sectors_max: usize,
    dirty_from: usize,
    held: BTreeMap<Sector, Held>,
    /// By when they were used last.
    clean: BTreeMap<u64, Sector>,
    dirty: BTreeMap<u64, Sector>,
    uses: u64,
    counts: CacheCounts,
}

#[derive(Debug, Clone, Copy)]
struct Held {
    used: u64,
    is_dirty: bool,
}

/// Sectors on their way to the hard disk.
#[derive(Debug, PartialEq, Eq)]
pub struct WriteBack {
    /// In the order of the hard disk, neighbours together.
    pub ranges: Vec<SectorRange>,
    /// When each was used last.
    used: Vec<(Sector, u64)>,
}

/// What a cache did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheCounts {
    /// Sectors written to it.
    pub sectors: u64,
    /// Of them, those that it held,
    pub hits: u64,
    /// and of these those that were dirty.
    pub folded: u64,
    /// Sectors that were written back.
    pub written_back: u64,
}

impl LruCache {
    /// An empty one of so many sectors, which writes back when more than `dirty_from` are dirty.
    pub fn new(sectors_max: usize, dirty_from: usize) -> LruCache {
        let (held, clean, dirty) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        LruCache { sectors_max, dirty_from, held, clean, dirty, uses: 0, counts: CacheCounts::default() }
    }

    /// What it did.
    pub fn counts(&self) -> CacheCounts {
        self.counts
    }

    /// Whether these may be written: nothing dirty must go for them. More than there is room for in all may when nothing is dirty.
    pub fn has_room(&self, range: SectorRange) -> bool {
        let dirty = self.of(range).filter(|held| held.is_dirty).count();
        self.dirty.is_empty() || self.dirty.len() - dirty + range.sectors as usize <= self.sectors_max
    }

    fn of(&self, range: SectorRange) -> impl Iterator<Item = &Held> {
        self.held.range(range.first..range.end()).map(|(_, held)| held)
    }

    /// They are written; what was not used for longest is given up for them.
    pub fn write(&mut self, range: SectorRange) {
        self.counts.sectors += range.sectors;
        for sector in (range.first.0..range.end().0).map(Sector) {
            self.uses += 1;
            let before = self.held.insert(sector, Held { used: self.uses, is_dirty: true });
            self.dirty.insert(self.uses, sector);
            if let Some(Held { used, is_dirty }) = before {
                self.counts.hits += 1;
                self.counts.folded += u64::from(is_dirty);
                let of_these = if is_dirty { &mut self.dirty } else { &mut self.clean };
                of_these.remove(&used);
            }
        }
        while self.held.len() > self.sectors_max
            && let Some((_, sector)) = self.clean.pop_first()
        {
            self.held.remove(&sector);
        }
    }

    /// What is to be written back now: so many sectors at most. One batch at a time.
    pub fn to_write_back(&self, sectors: usize) -> Option<WriteBack> {
        if self.dirty.len() <= self.dirty_from {
            return None;
        }
        let mut used: Vec<(Sector, u64)> =
            self.dirty.iter().take(sectors).map(|(used, sector)| (*sector, *used)).collect();
        used.sort_unstable();
        let mut ranges: Vec<SectorRange> = Vec::new();
        for (sector, _) in &used {
            match ranges.last_mut() {
                Some(range) if range.end() == *sector && range.sectors < RANGE_SECTORS_MAX => range.sectors += 1,
                _ => ranges.push(SectorRange { first: *sector, sectors: 1 }),
            }
        }
        Some(WriteBack { ranges, used })
    }

    /// The hard disk has them.
    pub fn wrote_back(&mut self, batch: &WriteBack) {
        self.counts.written_back += batch.used.len() as u64;
        for (sector, used) in &batch.used {
            // Unless it was written again meanwhile.
            if self.dirty.remove(used).is_some() {
                self.clean.insert(*used, *sector);
                self.held.insert(*sector, Held { used: *used, is_dirty: false });
            }
        }
    }
}

/// 1 MiB.
const RANGE_SECTORS_MAX: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, sectors: u64) -> SectorRange {
        SectorRange { first: Sector(first), sectors }
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first_and_what_is_dirty_never() {
        let mut cache = LruCache::new(4, 2);
        cache.write(range(10, 1));
        cache.write(range(30, 2));
        assert_eq!(cache.to_write_back(1).expect("three are dirty").ranges, [range(10, 1)]);
        // It is used now: the next one is the oldest.
        cache.write(range(10, 1));
        let batch = cache.to_write_back(2).expect("three are dirty");
        assert_eq!(batch.ranges, [range(30, 2)]);
        assert!(cache.has_room(range(50, 1)) && !cache.has_room(range(50, 2)), "three of four are dirty");
        assert!(cache.has_room(range(30, 3)), "two of these are among them");
        cache.wrote_back(&batch);
        assert_eq!(cache.to_write_back(9), None);
        assert!(cache.has_room(range(50, 3)) && !cache.has_room(range(50, 4)));
        cache.write(range(50, 2));
        // One of the clean ones had to go: that which was written first.
        assert_eq!(cache.held.keys().map(|sector| sector.0).collect::<Vec<_>>(), [10, 31, 50, 51]);
        cache.write(range(31, 1));
        let counts = CacheCounts { sectors: 7, hits: 2, folded: 1, written_back: 2 };
        assert_eq!(cache.counts(), counts);
    }

    #[test]
    fn what_is_written_again_on_its_way_stays_dirty() {
        let mut cache = LruCache::new(4, 1);
        cache.write(range(7, 1));
        cache.write(range(3, 1));
        let batch = cache.to_write_back(9).expect("two are dirty");
        assert_eq!(batch.ranges, [range(3, 1), range(7, 1)], "in the order of the hard disk");
        cache.write(range(7, 1));
        cache.wrote_back(&batch);
        assert!(cache.held[&Sector(7)].is_dirty && cache.clean.len() == 1);
        cache.write(range(20, 1));
        assert_eq!(cache.to_write_back(9).expect("two are dirty").ranges, [range(7, 1), range(20, 1)]);
    }

    #[test]
    fn a_write_longer_than_the_cache_passes_when_nothing_is_dirty() {
        let mut cache = LruCache::new(2, 0);
        assert!(cache.has_room(range(0, 5)));
        cache.write(range(0, 5));
        assert!(!cache.has_room(range(9, 1)));
        let batch = cache.to_write_back(9).expect("all are dirty");
        assert_eq!(batch.ranges, [range(0, 5)]);
        cache.wrote_back(&batch);
        cache.write(range(9, 1));
        assert_eq!(cache.to_write_back(9).expect("one is dirty").ranges, [range(9, 1)]);
        assert_eq!(cache.held.len(), 2);
    }
}
