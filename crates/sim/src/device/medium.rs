//! What an emulated device holds: the medium, and the volatile write cache before it.
//!
//! Invariants:
//! 1. A read sees the newest content in the cache, else the medium's.
//! 2. The cache holds for each of its sectors what it was given since it was last on the medium, oldest first, at most
//!    [`VERSIONS_MAX`]: what a power cut may leave.
//! 3. A sector stays lost until a write of it reaches the medium; while one is in the cache, it reads.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use claystone_env::{Random, SECTOR_BYTES};

/// Bytes that the medium writes whole or not at all.
const PART_BYTES: usize = 512;
const ZEROS: [u8; SECTOR_BYTES] = [0; SECTOR_BYTES];
/// Contents that the cache remembers of a sector.
const VERSIONS_MAX: usize = 8;

/// Content of a sector; `None` is zeros, which most sectors of a large device hold.
type Content = Option<Arc<[u8]>>;

/// See the module. A clone shares what sectors hold.
#[derive(Clone, Default)]
pub struct Medium {
    // Without those that hold zeros.
    sectors: BTreeMap<u64, Arc<[u8]>>,
    cache: BTreeMap<u64, Vec<Content>>,
    lost: BTreeSet<u64>,
}

impl Medium {
    /// What a read sees; of a lost sector, what it held before.
    pub fn read(&self, sector: u64, into: &mut [u8]) {
        let newest = self.cache.get(&sector).and_then(|versions| versions.last());
        match newest.map_or(self.sectors.get(&sector), Option::as_ref) {
            Some(content) => into.copy_from_slice(content),
            None => into.fill(0),
        }
    }

    pub fn is_cached(&self, sector: u64) -> bool {
        self.cache.contains_key(&sector)
    }

    /// Sectors in the cache.
    pub fn cached(&self) -> u64 {
        self.cache.len() as u64
    }

    pub fn is_lost(&self, sector: u64) -> bool {
        !self.is_cached(sector) && self.lost.contains(&sector)
    }

    pub fn make_lost(&mut self, sectors: Range<u64>) {
        self.lost.extend(sectors);
    }

    /// Flips a bit where a read sees it.
    pub fn flip_bit(&mut self, sector: u64, bit: usize) {
        assert!(bit < SECTOR_BYTES * 8, "a sector has no bit {bit}");
        let mut content = vec![0; SECTOR_BYTES];
        self.read(sector, &mut content);
        content[bit / 8] ^= 1 << (bit % 8);
        match self.cache.get_mut(&sector).and_then(|versions| versions.last_mut()) {
            Some(newest) => *newest = Some(content.into()),
            None => drop(self.sectors.insert(sector, content.into())),
        }
    }

    /// Puts a sector into the cache; `None` is zeros.
    pub fn write(&mut self, sector: u64, bytes: Option<&[u8]>) {
        let content = bytes.filter(|bytes| **bytes != ZEROS);
        let versions = self.cache.entry(sector).or_default();
        if versions.len() == VERSIONS_MAX {
            versions.remove(0);
        }
        versions.push(content.map(Arc::from));
    }

    /// As [`Medium::write`], but only perhaps, and perhaps torn.
    pub fn write_in_part(&mut self, sector: u64, bytes: Option<&[u8]>, random: &dyn Random) {
        match random.below(3) {
            0 => {}
            1 => self.write(sector, bytes),
            _ => {
                let mut torn = vec![0; SECTOR_BYTES];
                self.read(sector, &mut torn);
                for at in (0..SECTOR_BYTES).step_by(PART_BYTES) {
                    if random.below(2) == 0 {
                        let new = bytes.map_or(&[0; PART_BYTES][..], |bytes| &bytes[at..at + PART_BYTES]);
                        torn[at..at + PART_BYTES].copy_from_slice(new);
                    }
                }
                self.write(sector, Some(&torn));
            }
        }
    }

    /// Empties the cache onto the medium. Returns what was written, in ascending order.
    pub fn write_back(&mut self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (sector, mut versions) in std::mem::take(&mut self.cache) {
            self.settle(sector, versions.pop().flatten());
            match runs.last_mut() {
                Some(run) if run.end == sector => run.end += 1,
                _ => runs.push(sector..sector + 1),
            }
        }
        runs
    }

    /// Of each sector in the cache, writes it to the medium or forgets it.
    pub fn forget_some(&mut self, random: &dyn Random) {
        for (sector, mut versions) in std::mem::take(&mut self.cache) {
            if random.below(2) == 0 {
                self.settle(sector, versions.pop().flatten());
            }
        }
    }

    /// Loses the cache. Some cuts keep all or nothing of it; most mix, and one in four of them catches the head at work:
    /// the sector under it is unreadable.
    pub fn crash(&mut self, random: &dyn Random) {
        let cache = std::mem::take(&mut self.cache);
        let mood = random.below(4);
        let under_head = match mood {
            2 | 3 if !cache.is_empty() && random.below(4) == 0 => Some(random.below(cache.len() as u64)),
            _ => None,
        };
        for (at, (sector, mut versions)) in (0..).zip(cache) {
            match mood {
                0 => {}
                1 => self.settle(sector, versions.pop().flatten()),
                _ => self.settle_by_chance(sector, &versions, random),
            }
            if under_head == Some(at) {
                self.lost.insert(sector);
            }
        }
    }

    fn settle_by_chance(&mut self, sector: u64, versions: &[Content], random: &dyn Random) {
        // 0 is what the medium holds.
        let choose = || random.below(versions.len() as u64 + 1) as usize;
        let (one, two) = (choose(), choose());
        // One sector in four is torn between two contents.
        if one != two && random.below(4) == 0 {
            let bytes = |version: usize| match version {
                0 => self.sectors.get(&sector),
                _ => versions[version - 1].as_ref(),
            };
            let (one, two) = (bytes(one), bytes(two));
            let mut torn = vec![0; SECTOR_BYTES];
            for at in (0..SECTOR_BYTES).step_by(PART_BYTES) {
                if let Some(bytes) = if random.below(2) == 0 { one } else { two } {
                    torn[at..at + PART_BYTES].copy_from_slice(&bytes[at..at + PART_BYTES]);
                }
            }
            self.settle(sector, Some(torn.into()));
        } else if one > 0 {
            self.settle(sector, versions[one - 1].clone());
        }
    }

    fn settle(&mut self, sector: u64, content: Content) {
        self.lost.remove(&sector);
        match content {
            Some(bytes) => drop(self.sectors.insert(sector, bytes)),
            None => drop(self.sectors.remove(&sector)),
        }
    }
}
