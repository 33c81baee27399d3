//! The pages that were written since their stripes were coded, and where in the log they are.
//!
//! Invariants:
//! 1. Of each page the latest record counts, whatever order records are put in.
//! 2. `segments` holds a segment once for each diff in it, and for each intent that is not carried out and is in it or refers
//!    to it, whatever becomes of the diffs that it refers to; a segment that is not in it is needed by none.
//! 3. A stripe is in `stripes`, and in `by_age`, while it has a diff.
//! 4. While they are frozen, a merge finds the pages as they were then: a diff of then that a later one takes the place of
//!    is kept beside it.
//! 5. `to_come` counts the pages at positions that have a stripe, whichever came first, each with the bytes that the merge of a
//!    page writes into the log there: nothing where the stripe is known to be shared; none of a stripe all of whose pages are zeros,
//!    which is given back as a whole.
//!
//! Left out: contents. They are in the log.

mod live_segments;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use self::live_segments::LiveSegments;
use crate::geometry::{Geometry, Page};
use crate::log::record::{LogPlace, Record};

/// A page that differs from its stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Diff {
    /// Where it is in the log: its content, or for zeros their record.
    pub at: LogPlace,
    /// What it is.
    pub kind: DiffKind,
}

impl Diff {
    fn has_content(&self) -> bool {
        self.kind != DiffKind::Zeros
    }
}

/// What a page became.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffKind {
    /// Bytes with this CRC-32C.
    Content {
        /// Of the whole page.
        crc: u32,
    },
    /// Zeros.
    Zeros,
}

/// All diffs of a volume.
#[derive(Debug)]
pub struct Diffs {
    geometry: Geometry,
    stripes: BTreeMap<u64, StripeDiffs>,
    /// Stripes by when a page of them was last written.
    by_age: BTreeMap<u64, u64>,
    /// Intents that are not carried out, and the segments that each needs to be written again.
    intents: BTreeMap<LogPlace, BTreeSet<u64>>,
    segments: LiveSegments,
    pages: u64,
    /// Of these, those that are not zeros.
    content_pages: u64,
    /// Positions that have a stripe, with diffs or not, and the bytes that the merge of one page writes into the log there.
    begun: BTreeMap<u64, u64>,
    /// These bytes, of all pages that are merged one by one.
    to_come: u64,
    /// Diffs that were released since these are kept.
    released: u64,
    ticks: u64,
    /// The last place that a diff was put at.
    last: LogPlace,
    frozen: Option<Frozen>,
}

/// The diffs of a moment.
#[derive(Debug)]
struct Frozen {
    /// They are those up to here.
    last: LogPlace,
    /// Of these, those of pages that were written since, by stripe.
    older: BTreeMap<u64, BTreeMap<Page, Diff>>,
}

#[derive(Debug, Default)]
struct StripeDiffs {
    /// By their number in the stripe.
    pages: BTreeMap<u32, Packed>,
    /// How many of them are zeros.
    zeros: u64,
    touched: u64,
}

/// A diff in half the bytes: most of what a volume keeps in memory are these.
#[derive(Debug, Clone, Copy)]
struct Packed {
    /// Its segment's place in the table of those that are live; the highest bit is set if it is zeros.
    segment: u32,
    offset: u32,
    /// 0 if it is zeros.
    crc: u32,
}

impl Packed {
    /// # Panics
    /// If it is so far into a segment as none is long.
    fn new(diff: Diff, segment: u32) -> Packed {
        let offset = u32::try_from(diff.at.offset).expect("a segment has less than 4 GiB");
        assert!(segment < ZEROS, "there are fewer segments");
        match diff.kind {
            DiffKind::Content { crc } => Packed { segment, offset, crc },
            DiffKind::Zeros => Packed { segment: segment | ZEROS, offset, crc: 0 },
        }
    }

    fn unpack(self, segments: &LiveSegments) -> Diff {
        let at = LogPlace { segment: segments.number(self.segment & !ZEROS), offset: self.offset.into() };
        let is_zeros = self.segment & ZEROS != 0;
        Diff { at, kind: if is_zeros { DiffKind::Zeros } else { DiffKind::Content { crc: self.crc } } }
    }
}

impl StripeDiffs {
    /// All of them, ascending. `first`: the first page of the stripe.
    fn diffs(&self, first: Page, segments: &LiveSegments) -> impl Iterator<Item = (Page, Diff)> {
        let all = self.pages.iter();
        all.map(move |(number, packed)| (Page(first.0 + u64::from(*number)), packed.unpack(segments)))
    }

    fn count(&mut self, diff: Diff) {
        self.zeros += u64::from(!diff.has_content());
    }

    fn discount(&mut self, diff: Diff) {
        self.zeros -= u64::from(!diff.has_content());
    }
}

impl Diffs {
    /// None.
    pub fn new(geometry: Geometry) -> Diffs {
        Diffs {
            geometry,
            stripes: BTreeMap::new(),
            by_age: BTreeMap::new(),
            intents: BTreeMap::new(),
            segments: LiveSegments::default(),
            pages: 0,
            content_pages: 0,
            begun: BTreeMap::new(),
            to_come: 0,
            released: 0,
            ticks: 0,
            last: LogPlace { segment: 0, offset: 0 },
            frozen: None,
        }
    }

    /// From now on merges take the diffs that are there now, and nothing that is written later, until [`Diffs::thaw`].
    ///
    /// # Panics
    /// If they are frozen.
    pub fn freeze(&mut self) {
        assert!(self.frozen.is_none(), "one snapshot is taken at a time");
        self.frozen = Some(Frozen { last: self.last, older: BTreeMap::new() });
    }

    /// Merges take everything again.
    pub fn thaw(&mut self) {
        let frozen = self.frozen.take();
        let older = frozen.into_iter().flat_map(|frozen| frozen.older.into_values()).flat_map(BTreeMap::into_values);
        older.for_each(|diff| self.segments.release(diff.at.segment));
    }

    /// Stripes with diffs of the moment when they were frozen, ascending, and no more than `stripes_max`.
    pub fn frozen(&self, stripes_max: usize) -> Vec<u64> {
        let Some(frozen) = &self.frozen else { return Vec::new() };
        let is_frozen = |position: &u64, stripe: &StripeDiffs| {
            let is_of_then = |packed: &Packed| packed.unpack(&self.segments).at <= frozen.last;
            frozen.older.contains_key(position) || stripe.pages.values().any(is_of_then)
        };
        let stripes = self.stripes.iter().filter(|(position, stripe)| is_frozen(position, stripe));
        stripes.map(|(position, _)| *position).take(stripes_max).collect()
    }

    /// A page was written. Nothing changes if a later record of it is known.
    pub fn put(&mut self, page: Page, diff: Diff) {
        let position = self.geometry.position(page);
        let number = self.number_of(page);
        let old = self.stripes.get(&position).and_then(|stripe| stripe.pages.get(&number));
        let old = old.map(|packed| packed.unpack(&self.segments));
        if old.is_some_and(|old| old.at >= diff.at) {
            return;
        }
        let came_before = self.to_come_of(position);
        let segment = self.segments.hold(diff.at.segment);
        let stripe = self.stripes.entry(position).or_default();
        stripe.pages.insert(number, Packed::new(diff, segment));
        stripe.count(diff);
        old.into_iter().for_each(|old| stripe.discount(old));
        self.by_age.remove(&stripe.touched);
        self.ticks += 1;
        stripe.touched = self.ticks;
        self.by_age.insert(self.ticks, position);
        self.last = self.last.max(diff.at);
        self.content_pages += u64::from(diff.has_content());
        self.content_pages -= u64::from(old.is_some_and(|old| old.has_content()));
        self.to_come = self.to_come - came_before + self.to_come_of(position);
        match (old, &mut self.frozen) {
            (Some(old), Some(frozen)) if old.at <= frozen.last => {
                frozen.older.entry(position).or_default().insert(page, old);
            }
            (Some(old), _) => self.segments.release(old.at.segment),
            (None, _) => self.pages += 1,
        }
    }

    /// Takes a record that was written into the log at `place`.
    pub fn apply(&mut self, record: &Record, place: LogPlace) {
        self.apply_read(record, place, record.bytes());
    }

    /// Takes a record that was read in the log at `place` and has so many bytes there: versions differ.
    pub fn apply_read(&mut self, record: &Record, place: LogPlace, bytes: usize) {
        match record {
            Record::Begin { over_below: below, .. } | Record::Over { below } => self.end_below(*below),
            Record::Write { first, crcs, content } => {
                // It ends with its contents.
                let content = place.offset + (bytes - content.len()) as u64;
                for (index, crc) in (0..).zip(crcs) {
                    let offset = content + index * u64::from(self.geometry.page_bytes);
                    let at = LogPlace { segment: place.segment, offset };
                    self.put(Page(first.0 + index), Diff { at, kind: DiffKind::Content { crc: *crc } });
                }
            }
            Record::Zero { first, pages } => {
                for page in first.0..first.0 + pages {
                    self.put(Page(page), Diff { at: place, kind: DiffKind::Zeros });
                }
            }
            Record::Intent(intent) => {
                let segments = BTreeSet::from_iter(intent.segments().chain([place.segment]));
                if !self.intents.contains_key(&place) {
                    for segment in &segments {
                        self.segments.hold(*segment);
                    }
                    self.intents.insert(place, segments);
                }
            }
            Record::Merged { intent, diffs } => {
                let segments = intent.and_then(|intent| self.intents.remove(&intent));
                segments.into_iter().flatten().for_each(|segment| self.segments.release(segment));
                self.release(diffs);
            }
            Record::Synced { .. } => {}
        }
    }

    /// Segments below this are over. Only one that came back after it was deleted has anything here: what made that void
    /// may not have come back with it.
    fn end_below(&mut self, below: u64) {
        if self.oldest_live().is_none_or(|oldest| oldest >= below) {
            return;
        }
        let all =
            self.stripes.iter().flat_map(|(position, stripe)| stripe.diffs(self.first(*position), &self.segments));
        let over: Vec<_> =
            all.filter(|(_, diff)| diff.at.segment < below).map(|(page, diff)| (page, diff.at)).collect();
        self.release(&over);
        self.intents.retain(|intent, segments| {
            let (over, needed) = segments.iter().partition(|segment| **segment < below || intent.segment < below);
            *segments = needed;
            BTreeSet::into_iter(over).for_each(|segment| self.segments.release(segment));
            intent.segment >= below
        });
    }

    /// The diff of a page.
    #[cfg(test)]
    pub fn of(&self, page: Page) -> Option<Diff> {
        let packed = self.stripes.get(&self.geometry.position(page))?.pages.get(&self.number_of(page))?;
        Some(packed.unpack(&self.segments))
    }

    /// The diffs of pages, ascending.
    pub fn range(&self, pages: Range<Page>) -> impl Iterator<Item = (Page, Diff)> {
        let positions = self.geometry.position(pages.start)..=self.geometry.position(Page(pages.end.0.max(1) - 1));
        let stripes = (pages.start < pages.end).then(|| self.stripes.range(positions)).into_iter().flatten();
        stripes.flat_map(move |(position, stripe)| {
            let (first, number) = (self.first(*position), |page: Page| page.0.saturating_sub(self.first(*position).0));
            let numbers = number(pages.start) as u32..=u32::try_from(number(pages.end) - 1).unwrap_or(u32::MAX);
            let some = stripe.pages.range(numbers);
            some.map(move |(number, packed)| (Page(first.0 + u64::from(*number)), packed.unpack(&self.segments)))
        })
    }

    /// The first page of a stripe.
    fn first(&self, position: u64) -> Page {
        Page(position * self.geometry.stripe_pages())
    }

    /// The number of a page in its stripe.
    fn number_of(&self, page: Page) -> u32 {
        u32::try_from(page.0 % self.geometry.stripe_pages()).expect("a stripe has fewer pages")
    }

    /// The diffs of a stripe that a merge takes, ascending: all, or where they are frozen those of then.
    pub fn stripe(&self, position: u64) -> Vec<(Page, Diff)> {
        let stripe = self.stripes.get(&position).into_iter();
        let pages = stripe.flat_map(|stripe| stripe.diffs(self.first(position), &self.segments));
        let Some(frozen) = &self.frozen else { return pages.collect() };
        let mut of_then: BTreeMap<Page, Diff> = pages.filter(|(_, diff)| diff.at <= frozen.last).collect();
        of_then.extend(frozen.older.get(&position).into_iter().flatten().map(|(page, diff)| (*page, *diff)));
        of_then.into_iter().collect()
    }

    /// Of the same, those in segments up to this one.
    pub fn stripe_up_to(&self, position: u64, segment: u64) -> Vec<(Page, Diff)> {
        let mut diffs = self.stripe(position);
        diffs.retain(|(_, diff)| diff.at.segment <= segment);
        diffs
    }

    /// Forgets diffs that are merged, where no later one took their place.
    pub fn release(&mut self, merged: &[(Page, LogPlace)]) {
        for (page, at) in merged {
            let position = self.geometry.position(*page);
            if self.release_older(position, *page, *at) {
                continue;
            }
            let (came_before, number) = (self.to_come_of(position), self.number_of(*page));
            let Some(stripe) = self.stripes.get_mut(&position) else { continue };
            let diff = stripe.pages.get(&number).map(|packed| packed.unpack(&self.segments));
            if let Some(diff) = diff.filter(|diff| diff.at == *at) {
                stripe.pages.remove(&number);
                stripe.discount(diff);
                self.pages -= 1;
                self.released += 1;
                if stripe.pages.is_empty() {
                    self.by_age.remove(&stripe.touched);
                    self.stripes.remove(&position);
                }
                self.content_pages -= u64::from(diff.has_content());
                self.to_come = self.to_come - came_before + self.to_come_of(position);
                self.segments.release(at.segment);
            }
        }
    }

    /// Forgets a diff of a page that was written since they were frozen, if it is this one.
    fn release_older(&mut self, position: u64, page: Page, at: LogPlace) -> bool {
        let Some(frozen) = &mut self.frozen else { return false };
        let Some(older) = frozen.older.get_mut(&position) else { return false };
        if older.get(&page).is_none_or(|diff| diff.at != at) {
            return false;
        }
        older.remove(&page);
        if older.is_empty() {
            frozen.older.remove(&position);
        }
        self.released += 1;
        self.segments.release(at.segment);
        true
    }

    /// From now on this position has a stripe where the merge of a page writes so many bytes into the log, or none.
    pub fn set_begun(&mut self, position: u64, logged_bytes: Option<u64>) {
        let came_before = self.to_come_of(position);
        match logged_bytes {
            Some(bytes) => self.begun.insert(position, bytes),
            None => self.begun.remove(&position),
        };
        self.to_come = self.to_come - came_before + self.to_come_of(position);
    }

    /// Bytes that merging the pages of a stripe one by one writes into the log.
    fn to_come_of(&self, position: u64) -> u64 {
        let (Some(stripe), Some(logged_bytes)) = (self.stripes.get(&position), self.begun.get(&position)) else {
            return 0;
        };
        let is_given_back = stripe.zeros == self.geometry.stripe_pages();
        if is_given_back { 0 } else { stripe.pages.len() as u64 * logged_bytes }
    }

    /// The oldest segment that is needed.
    pub fn oldest_live(&self) -> Option<u64> {
        self.segments.oldest()
    }

    /// What is needed in a segment: diffs, and intents.
    pub fn live_in(&self, segment: u64) -> u64 {
        self.segments.held(segment)
    }

    /// Stripes with diffs, those that were written longest ago first.
    pub fn coldest(&self) -> impl Iterator<Item = u64> {
        self.by_age.values().copied()
    }

    /// Stripes with diffs in segments up to this one, ascending.
    pub fn pinning(&self, segment: u64) -> Vec<u64> {
        let is_in_them = |packed: &Packed| packed.unpack(&self.segments).at.segment <= segment;
        let pins = |stripe: &StripeDiffs| stripe.pages.values().any(is_in_them);
        self.stripes.iter().filter(|(_, stripe)| pins(stripe)).map(|(position, _)| *position).collect()
    }

    /// How many.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// How many were released since the volume was opened: how far merging has come.
    pub fn released(&self) -> u64 {
        self.released
    }

    /// How many have content in the log.
    pub fn content_pages(&self) -> u64 {
        self.content_pages
    }

    /// Bytes that merging all of them one by one writes into the log: parity, where they have a stripe to come into. What has none
    /// yet gets whole new chunks, and what becomes zeros as a whole has none any more.
    pub fn to_come(&self) -> u64 {
        self.to_come
    }

    /// Whether a stripe has diffs.
    pub fn has(&self, position: u64) -> bool {
        self.stripes.contains_key(&position)
    }

    /// How many stripes have diffs.
    pub fn stripe_count(&self) -> u64 {
        self.stripes.len() as u64
    }
}

/// Of the segment of a [`Packed`] diff: it is zeros.
const ZEROS: u32 = 1 << 31;
/// Bytes of a page and its diff, as a tree has them.
pub(crate) const TREE_ENTRY_BYTES: u64 = (size_of::<u32>() + size_of::<Packed>()) as u64;
/// Bytes of a stripe in `stripes` and `by_age`.
pub(crate) const STRIPE_BYTES: u64 = (size_of::<(u64, StripeDiffs)>() + size_of::<(u64, u64)>()) as u64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::log::record::{Intent, Source};

    fn diffs() -> Diffs {
        Diffs::new(Geometry { page_bytes: 4096, chunk_bytes: 8192, columns: 2 })
    }

    fn diff(segment: u64, offset: u64) -> Diff {
        Diff { at: LogPlace { segment, offset }, kind: DiffKind::Zeros }
    }

    fn content(segment: u64, offset: u64) -> Diff {
        Diff { kind: DiffKind::Content { crc: 0 }, ..diff(segment, offset) }
    }

    #[test]
    fn pages_with_content_are_counted_and_taken_by_their_segments() {
        let mut diffs = diffs();
        diffs.put(Page(0), content(1, 0));
        diffs.put(Page(1), content(2, 0));
        diffs.put(Page(2), diff(2, 64));
        assert_eq!((diffs.pages(), diffs.content_pages()), (3, 2));
        let pages =
            |diffs: &Diffs, up_to| diffs.stripe_up_to(0, up_to).iter().map(|(page, _)| page.0).collect::<Vec<_>>();
        assert_eq!([0, 1, 2].map(|up_to| pages(&diffs, up_to)), [vec![], vec![0], vec![0, 1, 2]]);
        // Zeros over content, content over zeros, and what is merged.
        diffs.put(Page(0), diff(3, 0));
        diffs.put(Page(2), content(3, 64));
        assert_eq!(diffs.content_pages(), 2);
        diffs.release(&[(Page(1), content(2, 0).at), (Page(0), diff(3, 0).at), (Page(2), diff(2, 64).at)]);
        assert_eq!((diffs.pages(), diffs.content_pages()), (1, 1));
    }

    #[test]
    fn pages_are_to_be_patched_where_there_is_a_stripe() {
        let mut diffs = diffs();
        diffs.set_begun(1, Some(10));
        // A stripe has four pages.
        (0..8).for_each(|page| diffs.put(Page(page), content(1, page)));
        assert_eq!((diffs.content_pages(), diffs.to_come()), (8, 40));
        // A stripe begins, also when that is said again; it gets another code; another is dropped.
        [0, 0].into_iter().for_each(|position| diffs.set_begun(position, Some(7)));
        assert_eq!(diffs.to_come(), 40 + 28);
        diffs.set_begun(0, Some(0));
        assert_eq!(diffs.to_come(), 40);
        diffs.set_begun(0, Some(2));
        diffs.put(Page(7), diff(2, 0));
        [1, 1].into_iter().for_each(|position| diffs.set_begun(position, None));
        assert_eq!((diffs.content_pages(), diffs.to_come()), (7, 8));
        diffs.release(&[(Page(0), content(1, 0).at), (Page(4), content(1, 4).at)]);
        assert_eq!((diffs.content_pages(), diffs.to_come()), (5, 6));
        // Zeros are patched as contents are, but for a stripe of nothing else.
        diffs.set_begun(2, Some(5));
        let counted = |diffs: &Diffs| (diffs.content_pages(), diffs.to_come());
        for (page, to_come) in [(8, 5), (9, 10), (10, 15), (11, 0)] {
            diffs.put(Page(page), diff(3, page));
            assert_eq!(counted(&diffs), (5, 6 + to_come));
        }
        diffs.put(Page(9), content(3, 20));
        assert_eq!(counted(&diffs), (6, 6 + 20));
        diffs.put(Page(9), diff(3, 21));
        diffs.release(&[(Page(9), diff(3, 21).at)]);
        assert_eq!(counted(&diffs), (5, 6 + 15));
    }

    #[test]
    fn the_latest_record_of_a_page_counts() {
        let mut diffs = diffs();
        diffs.put(Page(3), diff(1, 100));
        diffs.put(Page(3), diff(1, 50));
        assert_eq!(diffs.of(Page(3)), Some(diff(1, 100)));
        diffs.put(Page(3), diff(2, 0));
        assert_eq!((diffs.of(Page(3)), diffs.oldest_live(), diffs.pages()), (Some(diff(2, 0)), Some(2), 1));
        diffs.release(&[(Page(3), LogPlace { segment: 1, offset: 100 })]);
        assert_eq!(diffs.pages(), 1);
        diffs.release(&[(Page(3), LogPlace { segment: 2, offset: 0 })]);
        assert_eq!((diffs.of(Page(3)), diffs.oldest_live(), diffs.pages()), (None, None, 0));
    }

    #[test]
    fn a_segment_that_is_over_has_no_diffs() {
        let mut diffs = diffs();
        diffs.put(Page(1), diff(1, 0));
        diffs.put(Page(2), diff(2, 0));
        diffs.apply(&Record::Intent(Default::default()), LogPlace { segment: 1, offset: 9 });
        diffs.apply(&Record::Over { below: 2 }, LogPlace { segment: 3, offset: 0 });
        assert_eq!((diffs.of(Page(1)), diffs.oldest_live(), diffs.pages()), (None, Some(2), 1));
        // What comes late for it changes nothing.
        let intent = Some(LogPlace { segment: 1, offset: 9 });
        let late = Record::Merged { intent, diffs: vec![(Page(1), LogPlace { segment: 1, offset: 0 })] };
        diffs.apply(&late, LogPlace { segment: 3, offset: 50 });
        assert_eq!(diffs.pages(), 1);
        // Nor does a page that no volume has.
        let beyond = Record::Merged { intent: None, diffs: vec![(Page(u64::MAX), LogPlace { segment: 2, offset: 0 })] };
        diffs.apply(&beyond, LogPlace { segment: 3, offset: 60 });
        assert_eq!(diffs.pages(), 1);
    }

    #[test]
    fn what_an_intent_refers_to_is_needed_until_it_is_merged() {
        let mut diffs = diffs();
        for (page, segment) in [(1, 1), (2, 2), (3, 2)] {
            diffs.put(Page(page), diff(segment, page));
        }
        let write = |segment, offset| crate::log::record::SectorWrite {
            stripe: 0,
            chunk: claystone_code::ChunkIndex(0),
            sector: 0,
            crc: 0,
            source: Source::Log(LogPlace { segment, offset }),
        };
        let sectors = vec![write(1, 1), write(2, 2), write(2, 3)];
        let (intent, at) = (Intent { sectors, ..Intent::default() }, LogPlace { segment: 3, offset: 0 });
        diffs.apply(&Record::Intent(intent), at);
        // Each page is written once more while the merge is under way.
        (1..=3).for_each(|page| diffs.put(Page(page), diff(4, page)));
        assert_eq!(diffs.oldest_live(), Some(1));
        diffs.apply(&Record::Merged { intent: Some(at), diffs: Vec::new() }, LogPlace { segment: 4, offset: 9 });
        assert_eq!((diffs.oldest_live(), diffs.pages()), (Some(4), 3));
    }

    #[test]
    fn the_coldest_stripe_was_written_longest_ago() {
        let mut diffs = diffs();
        for (offset, page) in [0, 4, 8, 1].into_iter().enumerate() {
            diffs.put(Page(page), diff(1, offset as u64));
        }
        assert_eq!(diffs.coldest().collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(diffs.range(Page(1)..Page(8)).map(|(page, _)| page.0).collect::<Vec<_>>(), [1, 4]);
    }

    #[test]
    fn while_they_are_frozen_a_merge_finds_them_as_they_were() {
        let mut diffs = diffs();
        for (page, at) in [(0, 0), (1, 1), (5, 2)] {
            diffs.put(Page(page), diff(1, at));
        }
        diffs.freeze();
        // One page is written twice, one for the first time, in a stripe of its own too.
        for (page, at) in [(1, 0), (1, 1), (2, 2), (9, 3)] {
            diffs.put(Page(page), diff(2, at));
        }
        assert_eq!((diffs.frozen(9), diffs.frozen(1)), (vec![0, 1], vec![0]));
        assert_eq!(diffs.stripe(0), [(Page(0), diff(1, 0)), (Page(1), diff(1, 1))]);
        assert_eq!(diffs.stripe(2), []);
        assert_eq!((diffs.of(Page(1)), diffs.pages()), (Some(diff(2, 1)), 5), "who reads sees the last");
        let places: Vec<_> = diffs.stripe(0).iter().map(|(page, diff)| (*page, diff.at)).collect();
        diffs.release(&places);
        assert_eq!((diffs.frozen(9), diffs.oldest_live()), (vec![1], Some(1)));
        assert_eq!((diffs.of(Page(1)), diffs.pages()), (Some(diff(2, 1)), 4));
        diffs.release(&[(Page(5), diff(1, 2).at)]);
        assert_eq!((diffs.frozen(9), diffs.oldest_live()), (vec![], Some(2)));
        diffs.thaw();
        assert_eq!(diffs.stripe(0), [(Page(1), diff(2, 1)), (Page(2), diff(2, 2))]);
        assert_eq!(diffs.pages(), 3);

        // What is given up half-way leaves nothing behind.
        diffs.freeze();
        diffs.put(Page(1), diff(3, 0));
        assert_eq!(diffs.stripe(0), [(Page(1), diff(2, 1)), (Page(2), diff(2, 2))]);
        diffs.thaw();
        diffs.release(&[(Page(2), diff(2, 2).at), (Page(9), diff(2, 3).at)]);
        assert_eq!((diffs.oldest_live(), diffs.pages()), (Some(3), 1));
    }

    proptest! {
        #[test]
        fn counts_are_what_counting_gives(
            steps in prop::collection::vec((0u64..20, 0u64..4, any::<bool>(), 0u8..10), 1..100),
            begun in prop::collection::vec((0u64..5, prop::option::of(0u64..3)), 100),
        ) {
            let mut diffs = diffs();
            // Where they are frozen: as they were, without those that are merged.
            let mut frozen: Option<BTreeMap<Page, Diff>> = None;
            let mut there = BTreeMap::new();
            for (offset, (page, segment, release, turn)) in steps.into_iter().enumerate() {
                let (position, logged_bytes) = begun[offset];
                diffs.set_begun(position, logged_bytes);
                match logged_bytes {
                    Some(bytes) => there.insert(position, bytes),
                    None => there.remove(&position),
                };
                let (page, offset) = (Page(page), offset as u64);
                let some = if page.0 % 3 == 0 || (page.0 < 8 && turn != 9) { diff } else { content };
                match (turn, &mut frozen) {
                    (0, None) => {
                        diffs.freeze();
                        frozen = Some(diffs.range(Page(0)..Page(20)).collect());
                    }
                    (0, Some(_)) => {
                        diffs.thaw();
                        frozen = None;
                    }
                    // A merge takes diffs of then only.
                    (_, Some(then)) if release => {
                        let merged = then.remove(&page).map(|diff| (page, diff.at));
                        diffs.release(merged.as_slice());
                    }
                    // Places grow while they are frozen, as they do in a log.
                    (_, Some(_)) => diffs.put(page, some(4, offset)),
                    _ => match diffs.of(page) {
                        Some(old) if release => diffs.release(&[(page, old.at)]),
                        _ => diffs.put(page, some(segment, offset)),
                    },
                }
                if let Some(then) = &frozen {
                    let found: BTreeMap<_, _> = (0..5).flat_map(|position| diffs.stripe(position)).collect();
                    prop_assert_eq!(&found, then);
                    let stripes: BTreeSet<u64> = then.keys().map(|page| page.0 / 4).collect();
                    prop_assert_eq!(diffs.frozen(9), Vec::from_iter(stripes));
                }
                let all: Vec<_> = diffs.range(Page(0)..Page(20)).collect();
                prop_assert_eq!(diffs.pages(), all.len() as u64);
                let content_pages = all.iter().filter(|(_, diff)| diff.has_content()).count() as u64;
                let to_come = there.iter().map(|(position, bytes)| {
                    let pages = all.iter().filter(|(page, _)| page.0 / 4 == *position);
                    let zeros = pages.clone().filter(|(_, diff)| !diff.has_content()).count();
                    if zeros == 4 { 0 } else { pages.count() as u64 * bytes }
                });
                prop_assert_eq!((diffs.content_pages(), diffs.to_come()), (content_pages, to_come.sum()));
                let then = frozen.iter().flatten().map(|(page, diff)| (*page, *diff));
                let oldest = all.iter().copied().chain(then).map(|(_, diff)| diff.at.segment).min();
                prop_assert_eq!(diffs.oldest_live(), oldest);
                let mut stripes: Vec<u64> = diffs.coldest().collect();
                stripes.sort_unstable();
                let mut counted: Vec<u64> = all.iter().map(|(page, _)| page.0 / 4).collect();
                counted.dedup();
                prop_assert_eq!(stripes, counted);
            }
        }
    }
}
