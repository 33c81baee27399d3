//! What updates wrote last: the old data and the old parity of the next update of the same group.
//!
//! Invariants:
//! 1. What is kept is what the device should hold: it comes in when it was written, and whoever writes there forgets it first.
//!    No two entries overlap.
//! 2. At most [`BYTES_MAX`] are kept; what was written longest ago goes first. An entry is forgotten whole, so that no handle keeps
//!    more in memory than is counted.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use claystone_env::{SECTOR_BYTES, Sector};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Written {
    entries: BTreeMap<u64, Entry>,
    // First sectors by when they were written.
    order: BTreeMap<u64, u64>,
    writes: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    written: u64,
    bytes: Bytes,
}

impl Entry {
    fn end(&self, first: u64) -> u64 {
        first + (self.bytes.len() / SECTOR_BYTES) as u64
    }
}

impl Written {
    /// Keeps sectors from `first` on, at least one, in place of what was kept of them.
    pub fn keep(&mut self, first: Sector, bytes: Bytes) {
        self.forget(first.0..first.0 + (bytes.len() / SECTOR_BYTES) as u64);
        if bytes.len() > BYTES_MAX {
            return;
        }
        self.writes += 1;
        self.bytes += bytes.len();
        self.order.insert(self.writes, first.0);
        self.entries.insert(first.0, Entry { written: self.writes, bytes });
        while self.bytes > BYTES_MAX
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.remove(oldest);
        }
    }

    /// Forgets all entries with one of these sectors.
    pub fn forget(&mut self, sectors: Range<u64>) {
        let gone: Vec<u64> = self.overlapping(sectors).map(|(first, _)| first).collect();
        gone.into_iter().for_each(|first| self.remove(first));
    }

    /// The entries with one of these sectors, by the first one of each; the last entry comes first.
    pub fn overlapping(&self, sectors: Range<u64>) -> impl Iterator<Item = (u64, &Bytes)> {
        let before = self.entries.range(..sectors.end).rev().map(|(first, entry)| (*first, entry));
        before
            .take_while(move |(first, entry)| entry.end(*first) > sectors.start)
            .map(|(first, entry)| (first, &entry.bytes))
    }

    fn remove(&mut self, first: u64) {
        if let Some(entry) = self.entries.remove(&first) {
            self.order.remove(&entry.written);
            self.bytes -= entry.bytes.len();
        }
    }
}

/// 8 MiB: of 340 groups with m = 5 in each of which one sector changed.
const BYTES_MAX: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use claystone_env::{SECTOR_BYTES, Sector};
    use proptest::prelude::*;

    use super::{BYTES_MAX, Written};

    impl Written {
        /// A sector, if it is kept.
        fn find(&self, sector: Sector) -> Option<Bytes> {
            self.overlapping(sector.0..sector.0 + 1).next().map(|(first, bytes)| {
                let at = (sector.0 - first) as usize * SECTOR_BYTES;
                bytes.slice(at..at + SECTOR_BYTES)
            })
        }
    }

    fn sectors(count: usize, content: u8) -> Bytes {
        Bytes::from(vec![content; count * SECTOR_BYTES])
    }

    #[test]
    fn what_was_written_longest_ago_goes_first() {
        let mut written = Written::default();
        let count = BYTES_MAX / SECTOR_BYTES / 4;
        (0..4).for_each(|number| written.keep(Sector(10_000 * number), sectors(count, number as u8)));
        written.keep(Sector(0), sectors(count, 9));
        written.keep(Sector(70_000), sectors(1, 7));
        assert_eq!(written.find(Sector(10_000)), None);
        assert_eq!(written.find(Sector(1)).map(|bytes| bytes[0]), Some(9));
        assert_eq!(written.find(Sector(70_000)).map(|bytes| bytes[0]), Some(7));
        written.keep(Sector(70_000), sectors(BYTES_MAX / SECTOR_BYTES + 1, 8));
        assert_eq!(
            (written.find(Sector(70_000)), written.bytes),
            (None, 3 * count * SECTOR_BYTES),
            "too long, and newer"
        );
    }

    proptest! {
        #[test]
        fn it_has_what_was_written_last_or_nothing(
            steps in proptest::collection::vec((0u64..60, 1usize..20, any::<bool>()), 1..60),
        ) {
            let mut written = Written::default();
            let mut model = [None; 80];
            for (number, (first, count, keeps)) in (0..).zip(steps) {
                let range = first as usize..first as usize + count;
                model[range.clone()].fill(keeps.then_some(number));
                match keeps {
                    true => written.keep(Sector(first), sectors(count, number)),
                    false => written.forget(range.start as u64..range.end as u64),
                }
                prop_assert_eq!(written.order.len(), written.entries.len());
                prop_assert_eq!(written.bytes, written.entries.values().map(|entry| entry.bytes.len()).sum::<usize>());
                for (sector, expected) in (0..).zip(model) {
                    if let Some(found) = written.find(Sector(sector)) {
                        prop_assert_eq!(Some(found[0]), expected);
                    }
                }
                // What was written last is there.
                prop_assert!(!keeps || range.clone().all(|sector| written.find(Sector(sector as u64)).is_some()));
            }
        }
    }
}
