//! The same reserve as volumes keep it: what leaves it is all diffs of the stripe that was written longest ago, and a row of
//! the stripe, one sector of each chunk, is one update of parity however many of its pages have diffs. And what is kept in
//! the log and in memory to know which pages wait.
//!
//! Invariants:
//! 1. At the end of the trace all diffs are merged, so every page written is in at least one update.
//! 2. Metadata are all bytes of the log that are neither pages nor sectors of stripes, and the map of diffs in memory.
//! 3. Every stripe is there from the start, as where a trace is replayed: each merge makes its parity anew and writes it into
//!    the log, and so every page that waits takes room for that.
//!
//! A reserve is so many pages ([`Bound::Pages`]), or a log of so many bytes ([`Bound::Log`]): then what was written again, and
//! what merges write, takes room in it until its segment has no diff any more.
//!
//! Left out: that volumes merge while writes go on; here a merge takes no time.

use std::collections::{BTreeSet, VecDeque};

use crate::SECTOR_BYTES;
use crate::compact::units;
use crate::trace::Request;

/// Stripes of a volume, and its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StripeShape {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of a chunk: whole pages and whole sectors.
    pub chunk_bytes: u64,
    /// Data chunks.
    pub data: u32,
    /// Parity chunks.
    pub parity: u32,
}

impl StripeShape {
    /// Bytes of data in a stripe.
    pub fn stripe_bytes(&self) -> u64 {
        self.chunk_bytes * u64::from(self.data)
    }

    /// Bytes that the merge of one page, alone in its rows, writes into the log again: sectors of which the log has not all.
    fn logged_bytes(&self) -> u64 {
        let (page, sector, parity) = (u64::from(self.page_bytes), u64::from(SECTOR_BYTES), u64::from(self.parity));
        if page < sector { (parity + 1) * sector } else { parity * page }
    }
}

/// Bytes that the log and the map of diffs take for what they keep, contents apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageCosts {
    /// A record of a write.
    pub write: u64,
    /// Each page that it has.
    pub written_page: u64,
    /// What a segment begins with.
    pub begin: u64,
    /// An intent and the record that it was carried out.
    pub merge: u64,
    /// Each stripe that an intent has.
    pub intent_stripe: u64,
    /// Each sector of data that an intent has.
    pub intent_data: u64,
    /// Each sector of parity that an intent has.
    pub intent_parity: u64,
    /// Each page that a record of merged pages has.
    pub merged_page: u64,
    /// Sectors of an intent, after which the next one begins, with its stripe once more.
    pub intent_sectors: u64,
    /// A stripe with diffs, in memory.
    pub map_stripe: u64,
    /// A node of a stripe's tree of diffs, in memory.
    pub map_node: u64,
    /// Diffs in such a node, at least, as the trees are filled by ascending pages.
    pub map_node_pages: u64,
}

/// How much may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// So many pages.
    Pages(u64),
    /// A log.
    Log {
        /// Bytes of it at most.
        bytes: u64,
        /// The share of them from which stripes are merged, in percent.
        merge_from_percent: u64,
        /// Bytes of a segment.
        segment_bytes: u64,
        /// Disks that keep it.
        copies: u64,
    },
}

/// What the writes of a trace cost with one reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Folded {
    /// Rows that writes touched, each as often as it was: updates of parity without a reserve.
    pub row_writes: u64,
    /// Updates with it.
    pub row_updates: u64,
    /// Stripes merged, each as often as it was.
    pub stripe_merges: u64,
    /// Pages merged.
    pub merged_pages: u64,
    /// Bytes of pages and sectors that were appended to one copy of the log.
    pub log_content_bytes: u64,
    /// All other bytes appended to it.
    pub log_metadata_bytes: u64,
    /// The most pages that waited.
    pub pages_most: u64,
    /// The most metadata at one time.
    pub kept_most: KeptMetadata,
}

/// Bytes of metadata at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeptMetadata {
    /// In all copies of the log: what names pages that were written. Only counted where the bound is a log.
    pub log_writes: u64,
    /// The same, what merges have written.
    pub log_merges: u64,
    /// In memory: the map of diffs.
    pub map: u64,
}

impl KeptMetadata {
    /// All of it.
    pub fn all(&self) -> u64 {
        self.log_writes + self.log_merges + self.map
    }
}

/// Merges the writes among `requests`, all within `device_bytes` of one volume, through a reserve.
///
/// # Panics
/// If chunks are not whole pages and sectors, or a request is beyond the device, or it has 2^32 - 1 pages or stripes or more.
// Source: [drc-dpu §differential data merge]
pub fn folded_updates(
    requests: &[Request],
    device_bytes: u64,
    shape: StripeShape,
    bound: Bound,
    costs: &PageCosts,
) -> Folded {
    let mut reserve = Reserve::new(device_bytes, shape, bound, costs);
    for request in requests.iter().filter(|request| request.is_write && request.bytes > 0) {
        reserve.write(request);
        reserve.note();
        reserve.make_room();
        reserve.note();
    }
    while reserve.pages > 0 {
        reserve.merge(reserve.oldest);
    }
    reserve.folded
}

/// Diffs that wait, by stripe.
struct Reserve<'a> {
    shape: StripeShape,
    costs: &'a PageCosts,
    bound: Bound,
    log: Log,
    stripes: Vec<Stripe>,
    /// The stripes with diffs that were written last and longest ago.
    newest: u32,
    oldest: u32,
    /// Of each page of the device, whether it waits.
    waits: Bits,
    pages: u64,
    stripes_waiting: u64,
    nodes: u64,
    /// Rows, and sectors of all data chunks, of a stripe that is merged.
    rows: Bits,
    sectors: Bits,
    /// Of the intent that is open.
    intent_sectors: u64,
    folded: Folded,
}

#[derive(Debug, Clone)]
struct Stripe {
    newer: u32,
    older: u32,
    /// The pages that wait, by their number in the stripe.
    pages: Vec<u32>,
}

impl<'a> Reserve<'a> {
    fn new(device_bytes: u64, shape: StripeShape, bound: Bound, costs: &'a PageCosts) -> Reserve<'a> {
        let (page, sector) = (u64::from(shape.page_bytes), u64::from(SECTOR_BYTES));
        assert!(page > 0 && shape.chunk_bytes.is_multiple_of(page), "chunks are whole pages");
        assert!(shape.chunk_bytes > 0 && shape.chunk_bytes.is_multiple_of(sector), "chunks are whole sectors");
        let stripes = device_bytes.div_ceil(shape.stripe_bytes());
        assert!(stripes < u64::from(NONE), "{stripes} stripes are too many");
        let none = Stripe { newer: NONE, older: NONE, pages: Vec::new() };
        Reserve {
            shape,
            costs,
            bound,
            log: Log::new(bound, device_bytes.div_ceil(page), costs.begin),
            stripes: vec![none; stripes as usize],
            newest: NONE,
            oldest: NONE,
            waits: Bits::new(device_bytes.div_ceil(page)),
            pages: 0,
            stripes_waiting: 0,
            nodes: 0,
            rows: Bits::new(shape.chunk_bytes / sector),
            sectors: Bits::new(shape.stripe_bytes() / sector),
            intent_sectors: 0,
            folded: Folded::default(),
        }
    }

    fn write(&mut self, request: &Request) {
        let (page_bytes, stripe_bytes) = (u64::from(self.shape.page_bytes), self.shape.stripe_bytes());
        let pages = units(request, page_bytes);
        let written = pages.end - pages.start;
        let (metadata, content) = (self.costs.write + written * self.costs.written_page, written * page_bytes);
        self.folded.log_metadata_bytes += metadata;
        self.folded.log_content_bytes += content;
        self.log.append(Appended { writes: metadata, merges: 0, content });
        self.folded.row_writes += self.rows_of(request);
        let pages_of_stripe = stripe_bytes / page_bytes;
        let mut page = pages.start;
        while page < pages.end {
            let stripe = page / pages_of_stripe;
            let end = pages.end.min((stripe + 1) * pages_of_stripe);
            self.touch(stripe as u32);
            for page in page..end {
                if self.waits.set(page) {
                    self.log.release(page);
                } else {
                    let waiting = &mut self.stripes[stripe as usize].pages;
                    self.nodes += u64::from((waiting.len() as u64).is_multiple_of(self.costs.map_node_pages));
                    waiting.push((page - stripe * pages_of_stripe) as u32);
                    self.pages += 1;
                }
                self.log.hold(page);
            }
            page = end;
        }
    }

    /// Remembers what is kept, if it is more than ever.
    fn note(&mut self) {
        let copies = match self.bound {
            Bound::Pages(_) => 0,
            Bound::Log { copies, .. } => copies,
        };
        let kept = KeptMetadata {
            log_writes: copies * self.log.all.writes,
            log_merges: copies * self.log.all.merges,
            map: self.stripes_waiting * self.costs.map_stripe + self.nodes * self.costs.map_node,
        };
        // What is beyond the bound waits for its merge.
        if !self.is_over() && kept.all() > self.folded.kept_most.all() {
            self.folded.kept_most = kept;
        }
        if !self.is_over() {
            self.folded.pages_most = self.folded.pages_most.max(self.pages);
        }
    }

    fn is_over(&self) -> bool {
        match self.bound {
            Bound::Pages(pages) => self.pages > pages,
            Bound::Log { bytes, merge_from_percent, .. } => {
                let to_come = self.pages * self.shape.logged_bytes();
                (self.log.all.bytes() + to_come) * 100 > bytes * merge_from_percent
            }
        }
    }

    /// Merges until no more waits than may.
    fn make_room(&mut self) {
        while self.is_over() && self.pages > 0 {
            match self.bound {
                Bound::Pages(_) => {
                    self.merge(self.oldest);
                }
                Bound::Log { bytes, segment_bytes, .. } => {
                    // As volumes do: what keeps the oldest segment goes first where there are many of them.
                    let is_long = self.log.segments.len() as u64 * segment_bytes * 4 > bytes * 3;
                    let first = if is_long { self.pinning() } else { BTreeSet::new() };
                    let mut left = ROUND_PAGES;
                    for stripe in first {
                        left = left.saturating_sub(self.merge(stripe));
                        if left == 0 {
                            break;
                        }
                    }
                    while left > 0 && self.pages > 0 {
                        left = left.saturating_sub(self.merge(self.oldest));
                    }
                }
            }
        }
    }

    /// The stripes with diffs in the oldest segment.
    fn pinning(&self) -> BTreeSet<u32> {
        let pages_of_stripe = self.shape.stripe_bytes() / u64::from(self.shape.page_bytes);
        let mut pinning = BTreeSet::new();
        let mut at = self.oldest;
        while at != NONE {
            let stripe = &self.stripes[at as usize];
            let start = u64::from(at) * pages_of_stripe;
            if stripe.pages.iter().any(|page| self.log.is_oldest(start + u64::from(*page))) {
                pinning.insert(at);
            }
            at = stripe.newer;
        }
        pinning
    }

    /// Rows that a write touches: sectors of a stripe at the same place of different chunks are in one.
    fn rows_of(&self, request: &Request) -> u64 {
        // Whole sectors, and whole pages.
        let sector = u64::from(SECTOR_BYTES);
        let unit = sector.max(self.shape.page_bytes.into());
        let (stripe_units, chunk_units) = (self.shape.stripe_bytes() / unit, self.shape.chunk_bytes / unit);
        let touched = units(request, unit);
        let (mut at, mut rows) = (touched.start, 0);
        while at < touched.end {
            let end = touched.end.min((at / stripe_units + 1) * stripe_units);
            rows += (end - at).min(chunk_units) * (unit / sector);
            at = end;
        }
        rows
    }

    /// A stripe is the one written last.
    fn touch(&mut self, stripe: u32) {
        if self.newest == stripe {
            return;
        }
        if self.stripes[stripe as usize].pages.is_empty() {
            self.stripes_waiting += 1;
        } else {
            self.unlink(stripe);
        }
        let newest = std::mem::replace(&mut self.newest, stripe);
        let at = &mut self.stripes[stripe as usize];
        (at.newer, at.older) = (NONE, newest);
        match newest {
            NONE => self.oldest = stripe,
            newest => self.stripes[newest as usize].newer = stripe,
        }
    }

    fn unlink(&mut self, stripe: u32) {
        let Stripe { newer, older, .. } = self.stripes[stripe as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.stripes[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.stripes[older as usize].newer = newer,
        }
    }

    /// Merges all diffs of a stripe that has some. Returns how many.
    fn merge(&mut self, stripe: u32) -> u64 {
        assert!(stripe != NONE, "a page that waits is in a stripe");
        self.unlink(stripe);
        let pages = std::mem::take(&mut self.stripes[stripe as usize].pages);
        let (page_bytes, sector) = (u64::from(self.shape.page_bytes), u64::from(SECTOR_BYTES));
        let pages_of_stripe = self.shape.stripe_bytes() / page_bytes;
        let chunk_rows = self.shape.chunk_bytes / sector;
        let (mut rows, mut sectors) = (0, 0);
        for page in &pages {
            let number = u64::from(stripe) * pages_of_stripe + u64::from(*page);
            self.waits.clear(number);
            self.log.release(number);
            let start = u64::from(*page) * page_bytes;
            for at in start / sector..(start + page_bytes).div_ceil(sector) {
                sectors += u64::from(!self.sectors.set(at));
                rows += u64::from(!self.rows.set(at % chunk_rows));
            }
        }
        self.sectors.clear_all();
        self.rows.clear_all();
        let count = pages.len() as u64;
        let parity_sectors = rows * u64::from(self.shape.parity);
        // A page that is no whole sector is in the log again, with the rest of its sector.
        let inline = parity_sectors + if page_bytes < sector { sectors } else { 0 };
        self.intent_sectors += sectors + parity_sectors;
        let intents = self.intent_sectors / self.costs.intent_sectors;
        self.intent_sectors %= self.costs.intent_sectors;
        let costs = self.costs;
        let metadata = costs.intent_stripe
            + sectors * costs.intent_data
            + parity_sectors * costs.intent_parity
            + count * costs.merged_page
            + intents * (costs.merge + costs.intent_stripe);
        self.folded.log_content_bytes += inline * sector;
        self.folded.log_metadata_bytes += metadata;
        self.log.append(Appended { writes: 0, merges: metadata, content: inline * sector });
        self.log.trim();
        self.folded.row_updates += rows;
        self.folded.stripe_merges += 1;
        self.folded.merged_pages += count;
        self.pages -= count;
        self.stripes_waiting -= 1;
        self.nodes -= count.div_ceil(costs.map_node_pages);
        count
    }
}

/// One copy of a log: segments, and which of them each page that waits is in. Empty where the bound is no log.
struct Log {
    segment_bytes: u64,
    /// What a segment begins with.
    begin_bytes: u64,
    segments: VecDeque<Segment>,
    /// The number of the first of them.
    first: u32,
    /// Of each page of the device.
    segment_of: Vec<u32>,
    all: Appended,
}

/// Bytes in a log.
#[derive(Debug, Clone, Copy, Default)]
struct Appended {
    /// Metadata of pages written.
    writes: u64,
    /// Metadata of merges.
    merges: u64,
    content: u64,
}

#[derive(Debug, Default)]
struct Segment {
    appended: Appended,
    /// Diffs in it that wait.
    live: u64,
}

impl Appended {
    fn bytes(&self) -> u64 {
        self.writes + self.merges + self.content
    }

    fn add(&mut self, other: Appended) {
        self.writes += other.writes;
        self.merges += other.merges;
        self.content += other.content;
    }

    fn take(&mut self, other: Appended) {
        self.writes -= other.writes;
        self.merges -= other.merges;
        self.content -= other.content;
    }
}

impl Log {
    fn new(bound: Bound, pages: u64, begin_bytes: u64) -> Log {
        let (segment_bytes, pages) = match bound {
            Bound::Pages(_) => (0, 0),
            Bound::Log { segment_bytes, .. } => (segment_bytes.max(1), pages),
        };
        let segment_of = vec![0; pages as usize];
        Log { segment_bytes, begin_bytes, segments: VecDeque::new(), first: 0, segment_of, all: Appended::default() }
    }

    fn append(&mut self, appended: Appended) {
        if self.segment_bytes == 0 {
            return;
        }
        let fits = |last: &Segment| last.appended.bytes() + appended.bytes() <= self.segment_bytes;
        if !self.segments.back().is_some_and(fits) {
            let begin = Appended { merges: self.begin_bytes, ..Appended::default() };
            self.segments.push_back(Segment { appended: begin, live: 0 });
            self.all.add(begin);
        }
        self.segments.back_mut().expect("there is one").appended.add(appended);
        self.all.add(appended);
    }

    /// A page waits in the last segment.
    fn hold(&mut self, page: u64) {
        let number = self.first + self.segments.len() as u32;
        if let Some(last) = self.segments.back_mut() {
            last.live += 1;
            self.segment_of[page as usize] = number - 1;
        }
    }

    /// A page does not wait in its segment any more.
    fn release(&mut self, page: u64) {
        if self.segment_bytes > 0 {
            let at = self.segment_of[page as usize] - self.first;
            self.segments[at as usize].live -= 1;
        }
    }

    fn is_oldest(&self, page: u64) -> bool {
        self.segment_of[page as usize] == self.first
    }

    /// Deletes segments in front that no page waits in.
    fn trim(&mut self) {
        while self.segments.len() > 1 && self.segments[0].live == 0 {
            let over = self.segments.pop_front().expect("there are two");
            self.all.take(over.appended);
            self.first += 1;
        }
    }
}

/// Numbers below a bound that are in a set.
struct Bits(Vec<u64>);

impl Bits {
    fn new(bound: u64) -> Bits {
        Bits(vec![0; bound.div_ceil(64) as usize])
    }

    /// Puts a number in. Returns whether it was.
    fn set(&mut self, number: u64) -> bool {
        let (word, bit) = (&mut self.0[(number / 64) as usize], 1 << (number % 64));
        let was = *word & bit != 0;
        *word |= bit;
        was
    }

    fn clear(&mut self, number: u64) {
        self.0[(number / 64) as usize] &= !(1 << (number % 64));
    }

    fn clear_all(&mut self) {
        self.0.fill(0);
    }
}

const NONE: u32 = u32::MAX;
/// Pages that a volume merges at once.
const ROUND_PAGES: u64 = 512;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COSTS: PageCosts = PageCosts {
        write: 40,
        written_page: 4,
        begin: 52,
        merge: 80,
        intent_stripe: 24,
        intent_data: 32,
        intent_parity: 30,
        merged_page: 24,
        intent_sectors: 1024,
        map_stripe: 120,
        map_node: 384,
        map_node_pages: 6,
    };
    const SHAPE: StripeShape = StripeShape { page_bytes: 4096, chunk_bytes: 16384, data: 2, parity: 1 };

    fn write(offset: u64, bytes: u32) -> Request {
        Request { at_us: 0, volume: 0, offset, bytes, is_write: true }
    }

    fn pages(shape: StripeShape, pages: &[u64], reserve: u64) -> Folded {
        let requests: Vec<Request> =
            pages.iter().map(|page| write(page * u64::from(shape.page_bytes), shape.page_bytes)).collect();
        folded_updates(&requests, 1 << 20, shape, Bound::Pages(reserve), &COSTS)
    }

    // Test of: [drc-dpu §differential data merge]
    #[test]
    fn pages_of_a_row_are_one_update() {
        // Pages 0 to 3 are in the first chunk of the first stripe, 4 to 7 in the second.
        assert_eq!(pages(SHAPE, &[0, 4, 1, 5, 1], 8).row_updates, 2);
        assert_eq!(pages(SHAPE, &[0, 5, 2, 7], 8).row_updates, 4);
        let folded = pages(SHAPE, &[0, 4, 0, 4], 1);
        // There is room for one: with the second page the stripe is merged.
        assert_eq!((folded.row_writes, folded.row_updates, folded.stripe_merges), (4, 2, 2));
    }

    #[test]
    fn the_stripe_written_longest_ago_leaves() {
        // Stripes 0, 1, 0, 2: with room for three pages stripe 1 leaves, and comes again for another update.
        let folded = pages(SHAPE, &[0, 8, 1, 16, 8], 3);
        assert_eq!((folded.merged_pages, folded.stripe_merges, folded.row_updates), (5, 4, 5));
        let folded = pages(SHAPE, &[0, 8, 1, 16, 0], 3);
        assert_eq!((folded.merged_pages, folded.stripe_merges, folded.row_updates), (4, 3, 4));
    }

    #[test]
    fn pages_of_other_lengths_are_in_rows_of_sectors() {
        let short = StripeShape { page_bytes: 1024, ..SHAPE };
        assert_eq!(pages(short, &[0, 1, 2, 3, 16], 99).row_updates, 1);
        let long = StripeShape { page_bytes: 8192, ..SHAPE };
        let folded = pages(long, &[0], 99);
        assert_eq!((folded.row_writes, folded.row_updates), (2, 2));
        // A write over both chunks of a stripe has each row once.
        assert_eq!(folded_updates(&[write(0, 32768)], 1 << 20, SHAPE, Bound::Pages(99), &COSTS).row_writes, 4);
    }

    #[test]
    fn what_is_kept_of_a_page_is_counted() {
        let folded = pages(SHAPE, &[0], 9);
        // A record with a page; an intent with a stripe, a data sector and a parity sector; the merged page.
        assert_eq!(folded.log_metadata_bytes, 44 + 24 + 32 + 30 + 24);
        assert_eq!(folded.log_content_bytes, 4096 + 4096);
        assert_eq!((folded.kept_most.map, folded.pages_most), (120 + 384, 1));
        assert_eq!(pages(SHAPE, &[0, 1, 2, 3, 4, 5, 6, 0], 9).kept_most.map, 120 + 2 * 384);
        // The sector of a page that is shorter is in the intent as a whole.
        let folded = pages(StripeShape { page_bytes: 1024, ..SHAPE }, &[0, 1], 9);
        assert_eq!(folded.log_content_bytes, 2 * 1024 + 2 * 4096);
    }

    #[test]
    fn a_log_is_bounded_by_its_bytes() {
        let log = |bytes| Bound::Log { bytes, merge_from_percent: 100, segment_bytes: bytes / 4, copies: 3 };
        // One page again and again: what it was takes room until the segment with it has no diff.
        let same: Vec<Request> = (0..100).map(|_| write(0, 4096)).collect();
        let folded = folded_updates(&same, 1 << 20, SHAPE, log(160 << 10), &COSTS);
        assert_eq!((folded.row_writes, folded.pages_most), (100, 1));
        // 38 to 39 records fit.
        assert!((2..=4).contains(&folded.row_updates), "{folded:?}");
        let KeptMetadata { log_writes, log_merges, map } = folded.kept_most;
        assert!((3 * 44 * 30..=3 * 44 * 40).contains(&log_writes) && log_merges >= 3 * 52, "{folded:?}");
        assert_eq!(map, 120 + 384);
        let roomy = folded_updates(&same, 1 << 20, SHAPE, log(1 << 30), &COSTS);
        assert_eq!((roomy.row_updates, roomy.kept_most.log_writes), (1, 3 * 44 * 100));
    }

    proptest! {
        #[test]
        fn a_log_loses_no_page(
            written in prop::collection::vec((0u64..200, 1u64..6), 0..300), room in 8u64..60, parts in 1u64..9,
        ) {
            let requests: Vec<Request> =
                written.iter().map(|(page, pages)| write(page * 4096, (pages * 4096) as u32)).collect();
            let bytes = room * 4096;
            let bound = Bound::Log { bytes, merge_from_percent: 100, segment_bytes: bytes / parts, copies: 3 };
            let folded = folded_updates(&requests, 1 << 20, SHAPE, bound, &COSTS);
            let pages: BTreeSet<u64> = written.iter().flat_map(|(page, pages)| *page..page + pages).collect();
            let writes: u64 = written.iter().map(|(_, pages)| pages).sum();
            prop_assert!((pages.len() as u64..=writes).contains(&folded.merged_pages));
            prop_assert!(folded.pages_most <= room);
            prop_assert!(folded.row_updates <= folded.row_writes);
        }

        #[test]
        fn counts_are_those_of_lists(
            written in prop::collection::vec((0u64..60, 1u64..6), 0..120), reserve in 1u64..40, short: bool,
        ) {
            let shape = StripeShape { page_bytes: if short { 2048 } else { 4096 }, ..SHAPE };
            let page_bytes = u64::from(shape.page_bytes);
            let stripe_pages = shape.stripe_bytes() / page_bytes;
            let requests: Vec<Request> =
                written.iter().map(|(page, pages)| write(page * page_bytes, (pages * page_bytes) as u32)).collect();
            let folded = folded_updates(&requests, 1 << 20, shape, Bound::Pages(reserve), &COSTS);
            let mut waiting: Vec<(u64, BTreeSet<u64>)> = Vec::new();
            let (mut updates, mut merged) = (0, 0);
            let mut merge = |stripe: (u64, BTreeSet<u64>)| {
                let row = |page: &u64| page * page_bytes % shape.chunk_bytes / 4096;
                updates += stripe.1.iter().map(row).collect::<BTreeSet<_>>().len() as u64;
                merged += stripe.1.len() as u64;
            };
            for (page, pages) in written {
                for page in page..page + pages {
                    let found = waiting.iter().position(|(stripe, _)| *stripe == page / stripe_pages);
                    let mut stripe = match found {
                        Some(at) => waiting.remove(at),
                        None => (page / stripe_pages, BTreeSet::new()),
                    };
                    stripe.1.insert(page);
                    waiting.push(stripe);
                }
                while waiting.iter().map(|(_, pages)| pages.len() as u64).sum::<u64>() > reserve {
                    merge(waiting.remove(0));
                }
            }
            waiting.into_iter().for_each(&mut merge);
            prop_assert_eq!((folded.row_updates, folded.merged_pages), (updates, merged));
            prop_assert!(folded.pages_most <= reserve);
        }
    }
}
