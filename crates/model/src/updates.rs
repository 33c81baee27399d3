//! How often parity is made anew for a trace's writes: page by page, with and without a reserve for diffs.
//!
//! Without one each page that a write touches is an update (*naive*). With one a page waits in the reserve, ordered by when
//! it was last written, and is one update when it leaves it; at the end of the trace all leave. Written again while it waits,
//! it costs nothing more.
//!
//! ```text
//!  a page's place in that order   0 .. 63 | 64 .. 255 | 256 .. 1023 | left
//!  zone                              0    |     1     |      2      |      a write of a page from zone z, or from nowhere,
//!                                                                          is an update for every reserve up to zone z - 1
//! ```
//!
//! Invariants:
//! 1. One pass counts for all reserves: a reserve of more pages has whatever one of fewer pages has.
//! 2. A step takes time that grows with the number of reserves, not with their pages.
//!
//! Left out: pages of a stripe that are merged together, which is how volumes do it (`folding`).

use crate::compact::{Compact, units};
use crate::trace::Request;

/// What the writes of a trace cost at one length of page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageUpdates {
    /// Requests that write.
    pub writes: u64,
    /// Those of them that write a page in part, and must read the rest of it first.
    pub partial_writes: u64,
    /// Pages that are written in part: each is a read-modify-write.
    pub partial_pages: u64,
    /// Pages written, each as often as it is: updates of parity without a reserve.
    pub page_writes: u64,
    /// Different pages written.
    pub pages: u64,
    /// Updates with each reserve that was asked for.
    pub updates: Vec<u64>,
}

/// Counts what the writes among `requests`, all of one volume, cost with pages of `page_bytes` and reserves of so many
/// pages, ascending.
///
/// # Panics
/// If a reserve is 0 or they do not ascend, or there are more than 64, or 2^32 - 1 pages are written or more.
// Source: [drc-dpu §differential data merge]
pub fn page_updates(requests: &[Request], page_bytes: u32, reserves: &[u64]) -> PageUpdates {
    let page_bytes = u64::from(page_bytes);
    let writes = || requests.iter().filter(|request| request.is_write && request.bytes > 0);
    let pages = Compact::of(writes().map(|request| (0, units(request, page_bytes))));
    let mut counts = PageUpdates {
        writes: 0,
        partial_writes: 0,
        partial_pages: 0,
        page_writes: 0,
        pages: pages.units(),
        updates: vec![0; reserves.len()],
    };
    let mut reserve = Reserve::new(pages.units(), reserves);
    for request in writes() {
        let touched = units(request, page_bytes);
        let partial = partial_pages(request, page_bytes);
        counts.writes += 1;
        counts.partial_writes += u64::from(partial > 0);
        counts.partial_pages += partial;
        counts.page_writes += touched.end - touched.start;
        let first = pages.number(0, touched.start);
        for page in first..first + (touched.end - touched.start) {
            let zone = reserve.write(page as u32);
            counts.updates[..zone].iter_mut().for_each(|updates| *updates += 1);
        }
    }
    counts
}

/// Pages that a request covers in part.
fn partial_pages(request: &Request, page_bytes: u64) -> u64 {
    let pages = units(request, page_bytes);
    let begins_within = !request.offset.is_multiple_of(page_bytes);
    let ends_within = !request.end().is_multiple_of(page_bytes);
    if pages.end - pages.start == 1 {
        u64::from(begins_within || ends_within)
    } else {
        u64::from(begins_within) + u64::from(ends_within)
    }
}

/// The pages of the largest reserve, those written last first, with the ends of the smaller ones marked.
struct Reserve {
    /// Of each page the one written before and after it.
    links: Vec<Links>,
    zone: Vec<u8>,
    zones: Vec<Zone>,
    head: u32,
}

#[derive(Debug, Clone, Copy)]
struct Links {
    newer: u32,
    older: u32,
}

/// Places of the order that one reserve has and the next smaller one has not.
#[derive(Debug, Clone, Copy)]
struct Zone {
    room: u64,
    pages: u64,
    /// The page in its last place; anything while it has no pages.
    last: u32,
}

impl Reserve {
    fn new(pages: u64, reserves: &[u64]) -> Reserve {
        assert!(pages < u64::from(NONE), "{pages} pages are too many");
        assert!(reserves.len() <= RESERVES_MAX, "{} reserves are too many", reserves.len());
        let mut before = 0;
        let zones = reserves.iter().map(|reserve| {
            assert!(*reserve > before, "reserves ascend");
            let room = reserve - before;
            before = *reserve;
            Zone { room, pages: 0, last: NONE }
        });
        let zones: Vec<Zone> = zones.collect();
        let links = vec![Links { newer: NONE, older: NONE }; pages as usize];
        Reserve { links, zone: vec![zones.len() as u8; pages as usize], zones, head: NONE }
    }

    /// A page is written. Returns the zone that it was in; the number of zones: in none.
    fn write(&mut self, page: u32) -> usize {
        let zone = usize::from(self.zone[page as usize]);
        if self.head == page {
            return zone;
        }
        if zone < self.zones.len() {
            if self.zones[zone].last == page {
                self.zones[zone].last = self.links[page as usize].newer;
            }
            self.zones[zone].pages -= 1;
            self.unlink(page);
        }
        self.links[page as usize] = Links { newer: NONE, older: self.head };
        if self.head != NONE {
            self.links[self.head as usize].newer = page;
        }
        self.head = page;
        self.enter(page, 0);
        zone
    }

    /// Puts a page into the first place of a zone, and what has no room there any more into the next, and so on.
    fn enter(&mut self, page: u32, zone: usize) {
        let mut moved = page;
        for number in zone..self.zones.len() {
            let zone = &mut self.zones[number];
            self.zone[moved as usize] = number as u8;
            if zone.pages == 0 {
                zone.last = moved;
            }
            zone.pages += 1;
            if zone.pages <= zone.room {
                return;
            }
            zone.pages -= 1;
            moved = zone.last;
            zone.last = self.links[moved as usize].newer;
        }
        self.zone[moved as usize] = self.zones.len() as u8;
        self.unlink(moved);
    }

    fn unlink(&mut self, page: u32) {
        let Links { newer, older } = self.links[page as usize];
        match newer {
            NONE => self.head = older,
            newer => self.links[newer as usize].older = older,
        }
        if older != NONE {
            self.links[older as usize].newer = newer;
        }
    }
}

const NONE: u32 = u32::MAX;
const RESERVES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write(offset: u64, bytes: u32) -> Request {
        Request { at_us: 0, volume: 0, offset, bytes, is_write: true }
    }

    /// The definition: a list of pages, the coldest of which leaves when there is no room.
    fn naive(pages: &[u64], room: usize) -> u64 {
        let mut reserve: Vec<u64> = Vec::new();
        let mut updates = 0;
        for page in pages {
            match reserve.iter().position(|waiting| waiting == page) {
                Some(at) => drop(reserve.remove(at)),
                None if reserve.len() == room => {
                    reserve.remove(0);
                    updates += 1;
                }
                None => {}
            }
            reserve.push(*page);
        }
        updates + reserve.len() as u64
    }

    // Test of: [drc-dpu §differential data merge]
    #[test]
    fn a_page_that_waits_is_written_again_for_nothing() {
        let requests = [write(0, 4096), write(4096, 8192), write(0, 4096), write(0, 4096)];
        let counts = page_updates(&requests, 4096, &[1, 2, 3]);
        assert_eq!((counts.writes, counts.page_writes, counts.pages), (4, 5, 3));
        assert_eq!(counts.updates, [4, 4, 3]);
        let read = Request { is_write: false, ..write(0, 4096) };
        assert_eq!(page_updates(&[read, write(7, 0)], 4096, &[1]).page_writes, 0);
    }

    // Test of: [drc-dpu §redirect on write]
    #[test]
    fn what_is_written_in_part_is_read_first() {
        let partial = |offset, bytes| page_updates(&[write(offset, bytes)], 4096, &[1]).partial_pages;
        assert_eq!([partial(0, 4096), partial(4096, 8192), partial(0, 512), partial(512, 4096)], [0, 0, 1, 2]);
        assert_eq!([partial(512, 3584), partial(512, 7680), partial(0, 4097), partial(1, 4094)], [1, 1, 1, 1]);
        let counts = page_updates(&[write(0, 2048), write(2048, 4096), write(8192, 8192)], 2048, &[1]);
        assert_eq!((counts.partial_writes, counts.partial_pages), (0, 0));
        let counts = page_updates(&[write(0, 2048), write(2048, 4096), write(8192, 8192)], 8192, &[1]);
        assert_eq!((counts.partial_writes, counts.partial_pages), (2, 2));
    }

    proptest! {
        #[test]
        fn all_reserves_at_once_count_as_each_alone(
            writes in prop::collection::vec((0u64..40, 1u64..4), 0..200),
            rooms in prop::collection::btree_set(1u64..30, 1..6),
        ) {
            let requests: Vec<Request> = writes.iter().map(|(page, pages)| write(page * 512, *pages as u32 * 512)).collect();
            let pages: Vec<u64> = writes.iter().flat_map(|(page, pages)| *page..page + pages).collect();
            let rooms: Vec<u64> = rooms.into_iter().collect();
            let counts = page_updates(&requests, 512, &rooms);
            let expected: Vec<u64> = rooms.iter().map(|room| naive(&pages, *room as usize)).collect();
            prop_assert_eq!(counts.updates, expected);
            prop_assert_eq!(counts.page_writes, pages.len() as u64);
        }
    }
}
