//! What each page of a volume may hold, while writes, flushes and crashes happen.
//!
//! Each write has the ticks of when it began and when it was acknowledged. Of two writes of a page the later one counts if it
//! began after the other was acknowledged; otherwise either may.
//!
//! ```text
//!  a read that began at t        any write but those that a later one, acknowledged before t, took the place of
//!  a flush that began at t       writes acknowledged before t are durable
//!  a crash                       any write but those that a later, durable one took the place of
//!  read after a crash            that and nothing else; it is durable
//!  a snapshot that began at t    what a read that began at t would have found; and all of it is of one moment
//! ```
//!
//! Invariants:
//! 1. A page is changed as one: what is read of it is of one write.
//! 2. A write that was not acknowledged may count until the page is read after a crash.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use crate::running::store::Draw;

/// What a page holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    /// The seed of all its bytes; 0: zeros.
    base: u64,
    /// Bytes written over them.
    patches: Vec<(Range<usize>, u64)>,
}

/// A write of a page.
#[derive(Debug, Clone)]
struct PageWrite {
    id: u64,
    content: Content,
    /// It takes the place of what was acknowledged before.
    begun: u64,
    acknowledged: Option<u64>,
    is_durable: bool,
}

#[derive(Debug, Clone)]
struct Page {
    writes: Vec<PageWrite>,
    /// Reads under way: they may find what is over by the time they end.
    readers: u32,
    /// What is being written depends on what is there.
    is_alone: bool,
}

/// What all pages of a volume may hold.
#[derive(Debug)]
pub struct Model {
    volume: u64,
    /// Bytes of a page.
    pub page_bytes: usize,
    pages: Vec<Page>,
    /// Pages with writes that are not durable.
    dirty: BTreeSet<usize>,
    tick: u64,
    versions: u64,
}

/// What the pages of a snapshot may hold: once they were read, one content each.
#[derive(Debug, Clone)]
pub struct Snapshot {
    page_bytes: usize,
    pages: Vec<Kept>,
}

/// A page of a snapshot.
#[derive(Debug, Clone)]
struct Kept {
    /// What it was when the snapshot was taken.
    page: Page,
    /// Those of its writes that the snapshot may hold.
    held: BTreeSet<u64>,
}

/// A page that holds what it must not.
#[derive(Debug)]
pub struct Wrong {
    page: usize,
    found: String,
    allowed: Vec<String>,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {} holds {}, which is none of: {}", self.page, self.found, self.allowed.join("; "))
    }
}

impl Content {
    /// Its bytes.
    pub fn bytes(&self, page_bytes: usize) -> Vec<u8> {
        let mut bytes = pattern(self.base, page_bytes);
        for (range, seed) in &self.patches {
            bytes[range.clone()].copy_from_slice(&pattern(*seed, range.len()));
        }
        bytes
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&named(self.base))?;
        for (range, seed) in &self.patches {
            write!(f, " with {} in bytes {}..{}", named(*seed), range.start, range.end)?;
        }
        Ok(())
    }
}

impl Model {
    /// All zeros. `volume` is part of every content.
    pub fn new(volume: u64, page_bytes: usize, pages: usize) -> Model {
        let mut model = Model { volume, page_bytes, pages: Vec::new(), dirty: BTreeSet::new(), tick: 1, versions: 0 };
        model.grow(pages);
        model
    }

    /// What a snapshot is. `volume` is part of every content that is written from now on.
    pub fn clone_of(snapshot: &Snapshot, volume: u64) -> Model {
        let mut model = Model::new(volume, snapshot.page_bytes, snapshot.pages.len());
        model.reverted(snapshot);
        model
    }

    /// Pages.
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Zeros at the end, up to so many pages.
    pub fn grow(&mut self, pages: usize) {
        while self.pages.len() < pages {
            let zeros = Content { base: 0, patches: Vec::new() };
            self.pages.push(Page { writes: vec![settled(zeros, 0)], readers: 0, is_alone: false });
        }
    }

    /// Now.
    pub fn tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    /// A write of whole pages begins. `None`: one of them is written in part at the moment.
    pub fn begin(&mut self, pages: Range<usize>, zeros: bool) -> Option<(u64, Vec<u8>)> {
        if self.pages[pages.clone()].iter().any(|page| page.is_alone) {
            return None;
        }
        let id = self.tick();
        let mut bytes = Vec::new();
        for page in pages {
            let base = if zeros { 0 } else { self.seed(page) };
            let content = Content { base, patches: Vec::new() };
            if !zeros {
                bytes.extend(content.bytes(self.page_bytes));
            }
            self.push(page, id, content);
        }
        Some((id, bytes))
    }

    /// A write of a part of a page begins. `None`: it is not certain what is there.
    pub fn begin_part(&mut self, page: usize, part: Range<usize>) -> Option<(u64, Vec<u8>)> {
        let now = self.tick();
        let known = &self.pages[page];
        let certain = known.writes.iter().all(|write| write.acknowledged.is_some()) && !known.is_alone;
        let mut may: Vec<&PageWrite> = known.writes.iter().filter(|write| !known.is_over(write, now)).collect();
        if !certain || may.len() != 1 || may[0].content.patches.len() == PATCHES_MAX {
            return None;
        }
        let mut content = may.pop().expect("there is one").content.clone();
        let seed = self.seed(page);
        let bytes = pattern(seed, part.len());
        content.patches.push((part, seed));
        self.pages[page].is_alone = true;
        self.push(page, now, content);
        Some((now, bytes))
    }

    fn seed(&mut self, page: usize) -> u64 {
        self.versions += 1;
        (self.volume + 1) << 56 | (page as u64) << 32 | self.versions
    }

    fn push(&mut self, page: usize, id: u64, content: Content) {
        let write = PageWrite { id, content, begun: id, acknowledged: None, is_durable: false };
        self.pages[page].writes.push(write);
        self.dirty.insert(page);
    }

    /// A write was acknowledged; `now`: and is durable.
    pub fn end(&mut self, pages: Range<usize>, id: u64, now: bool) {
        let tick = self.tick();
        for page in &mut self.pages[pages] {
            page.is_alone = false;
            for write in page.writes.iter_mut().filter(|write| write.id == id) {
                write.acknowledged = Some(tick);
                write.is_durable = now;
            }
            page.forget();
        }
    }

    /// A flush that began at this tick was acknowledged.
    pub fn flushed(&mut self, begun: u64) {
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.retain(|&page| {
            let page = &mut self.pages[page];
            for write in &mut page.writes {
                write.is_durable |= write.acknowledged.is_some_and(|at| at < begun);
            }
            page.forget();
            page.writes.iter().any(|write| !write.is_durable)
        });
        self.dirty = dirty;
    }

    /// A read begins.
    pub fn begin_read(&mut self, pages: Range<usize>) -> u64 {
        self.pages[pages].iter_mut().for_each(|page| page.readers += 1);
        self.tick()
    }

    /// The read that began at `begun` found these bytes from `offset` on.
    ///
    /// # Errors
    /// The first page that holds what it must not.
    pub fn end_read(&mut self, offset: u64, found: &[u8], begun: u64) -> Result<(), Wrong> {
        let now = self.tick();
        for (number, within, found) in cut(self.page_bytes, offset, found) {
            let page = &mut self.pages[number];
            let may = |write: &&PageWrite| !page.is_over(write, begun);
            let same = |write: &&PageWrite| write.content.bytes(self.page_bytes)[within.clone()] == *found;
            let held: Vec<u64> = page.writes.iter().filter(may).filter(same).map(|write| write.id).collect();
            if held.is_empty() {
                let allowed = page.writes.iter().filter(may).map(ToString::to_string).collect();
                return Err(Wrong { page: number, found: recognised(found), allowed });
            }
            let quiet = page.writes.iter().all(|write| write.acknowledged.is_some_and(|at| at < begun));
            if quiet && held.len() == 1 {
                // Nobody wrote meanwhile: of writes at once this was the last.
                page.writes.iter_mut().filter(|write| write.id == held[0]).for_each(|write| write.begun = now);
            }
            page.readers -= 1;
            page.forget();
        }
        Ok(())
    }

    /// A snapshot begins to be taken.
    pub fn begin_snapshot(&mut self) -> u64 {
        self.begin_read(0..self.pages.len())
    }

    /// The snapshot that began at `begun` was taken: each page is in it as a read would have found it meanwhile.
    pub fn end_snapshot(&mut self, begun: u64) -> Snapshot {
        let mut pages = Vec::new();
        for page in &mut self.pages {
            let may: Vec<PageWrite> = page.writes.iter().filter(|write| !page.is_over(write, begun)).cloned().collect();
            let held = may.iter().map(|write| write.id).collect();
            pages.push(Kept { page: Page { writes: may, readers: 0, is_alone: false }, held });
            page.readers -= 1;
            page.forget();
        }
        Snapshot { page_bytes: self.page_bytes, pages }
    }

    /// The volume was made what a snapshot is, and nobody uses it.
    pub fn reverted(&mut self, to: &Snapshot) {
        let now = self.tick();
        for (number, page) in self.pages.iter_mut().enumerate() {
            let zeros = || vec![Content { base: 0, patches: Vec::new() }];
            let may = to.pages.get(number).map_or_else(zeros, |kept| kept.contents().cloned().collect());
            page.writes = may.into_iter().map(|content| settled(content, now)).collect();
        }
        self.dirty.clear();
    }

    /// The process died: whoever read or wrote is gone.
    pub fn crashed(&mut self) {
        for page in &mut self.pages {
            (page.readers, page.is_alone) = (0, false);
            page.forget();
        }
    }

    /// Whole pages were read after a crash, and nobody writes.
    ///
    /// # Errors
    /// The first page that holds what it must not.
    pub fn observe(&mut self, offset: u64, found: &[u8]) -> Result<(), Wrong> {
        let now = self.tick();
        for (number, _, found) in cut(self.page_bytes, offset, found) {
            let page = &mut self.pages[number];
            let held = page.writes.iter().find(|write| write.content.bytes(self.page_bytes) == *found);
            let Some(held) = held else {
                let allowed = page.writes.iter().map(ToString::to_string).collect();
                return Err(Wrong { page: number, found: recognised(found), allowed });
            };
            page.writes = vec![settled(held.content.clone(), now)];
            self.dirty.remove(&number);
        }
        Ok(())
    }
}

impl Snapshot {
    /// Whole pages were read.
    ///
    /// # Errors
    /// The first page that holds what it must not.
    pub fn observe(&mut self, offset: u64, found: &[u8]) -> Result<(), Wrong> {
        for (number, _, found) in cut(self.page_bytes, offset, found) {
            let kept = &mut self.pages[number];
            let same = kept.writes().filter(|write| write.content.bytes(self.page_bytes) == *found);
            let same: BTreeSet<u64> = same.map(|write| write.id).collect();
            if same.is_empty() {
                let allowed = kept.contents().map(ToString::to_string).collect();
                return Err(Wrong { page: number, found: recognised(found), allowed });
            }
            kept.held = same;
        }
        Ok(())
    }

    /// All of it was read: there is a moment of which it is.
    ///
    /// # Errors
    /// A write is in it, and one of another page that was acknowledged before that began is not.
    pub fn is_of_one_moment(&self) -> Result<(), String> {
        let oldest = |kept: &Kept| *kept.held.first().expect("it holds something");
        let Some((last, begun)) = self.pages.iter().map(oldest).enumerate().max_by_key(|(_, begun)| *begun) else {
            return Ok(());
        };
        for (number, kept) in self.pages.iter().enumerate() {
            if kept.writes().all(|write| kept.page.is_over(write, begun)) {
                let holds: Vec<String> = kept.contents().map(ToString::to_string).collect();
                let (holds, later) =
                    (holds.join("; "), self.pages[last].contents().next().expect("it holds something"));
                return Err(format!("page {number} holds {holds}, but page {last} holds {later}, which is later"));
            }
        }
        Ok(())
    }

    /// Zeros at the end, up to so many pages.
    pub fn grow(&mut self, pages: usize) {
        while self.pages.len() < pages {
            let zeros = settled(Content { base: 0, patches: Vec::new() }, 0);
            let page = Page { writes: vec![zeros], readers: 0, is_alone: false };
            self.pages.push(Kept { page, held: BTreeSet::from([0]) });
        }
    }

    /// Pages of it.
    pub fn pages(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Bytes of it.
    pub fn bytes(&self) -> u64 {
        (self.pages.len() * self.page_bytes) as u64
    }
}

impl Kept {
    /// The writes that it may hold.
    fn writes(&self) -> impl Iterator<Item = &PageWrite> {
        self.page.writes.iter().filter(|write| self.held.contains(&write.id))
    }

    fn contents(&self) -> impl Iterator<Item = &Content> {
        self.writes().map(|write| &write.content)
    }
}

impl Page {
    /// Whether a later write took the place of this one before `at`.
    fn is_over(&self, write: &PageWrite, at: u64) -> bool {
        let Some(acknowledged) = write.acknowledged else { return false };
        self.writes.iter().any(|later| {
            later.id != write.id && later.begun > acknowledged && later.acknowledged.is_some_and(|ended| ended < at)
        })
    }

    /// Leaves out what can never be read again.
    fn forget(&mut self) {
        if self.readers > 0 {
            return;
        }
        let durable: Vec<(u64, u64)> =
            self.writes.iter().filter(|write| write.is_durable).map(|write| (write.id, write.begun)).collect();
        self.writes.retain(|write| {
            let over = |(id, begun): &(u64, u64)| *id != write.id && write.acknowledged.is_some_and(|at| *begun > at);
            !durable.iter().any(over)
        });
    }
}

impl fmt::Display for PageWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match (self.acknowledged, self.is_durable) {
            (None, _) => "under way",
            (Some(_), false) => "acknowledged",
            (Some(_), true) => "durable",
        };
        write!(f, "{} ({how})", self.content)
    }
}

fn settled(content: Content, tick: u64) -> PageWrite {
    PageWrite { id: tick, content, begun: tick, acknowledged: Some(tick), is_durable: true }
}

/// Bytes from an offset, page by page: the page, the part of it, the bytes.
fn cut(page_bytes: usize, offset: u64, bytes: &[u8]) -> impl Iterator<Item = (usize, Range<usize>, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let byte = offset as usize + at;
        let (page, start) = (byte / page_bytes, byte % page_bytes);
        let taken = (page_bytes - start).min(bytes.len() - at);
        let part = (taken > 0).then(|| (page, start..start + taken, &bytes[at..at + taken]));
        at += taken;
        part
    })
}

/// Bytes that belong to a seed and begin with it; 0: zeros.
fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut pattern = vec![0; bytes];
    if seed != 0 {
        let mut draw = Draw(seed);
        let mut word = seed;
        for eight in pattern.chunks_mut(8) {
            eight.copy_from_slice(&word.to_le_bytes()[..eight.len()]);
            word = draw.next();
        }
    }
    pattern
}

fn named(seed: u64) -> String {
    if seed == 0 {
        return "zeros".to_owned();
    }
    format!("volume {} page {} version {}", (seed >> 56) as i64 - 1, seed >> 32 & 0xff_ffff, seed & 0xffff_ffff)
}

/// What bytes are, as far as they tell.
fn recognised(found: &[u8]) -> String {
    if found.iter().all(|byte| *byte == 0) {
        return named(0);
    }
    let Some(seed) = found.first_chunk().map(|eight| u64::from_le_bytes(*eight)) else {
        return format!("{found:?}");
    };
    let same = pattern(seed, found.len()).iter().zip(found).take_while(|(one, other)| one == other).count();
    if same < 16 {
        return format!("bytes that begin with {:02x?}", &found[..found.len().min(16)]);
    }
    let how = if same == found.len() { String::new() } else { format!(" up to byte {same}, then something else") };
    named(seed) + &how
}

/// Parts of a page that are written one over the other.
const PATCHES_MAX: usize = 4;

#[test]
fn after_a_crash_a_page_is_what_was_flushed_or_written_since() {
    let mut model = Model::new(0, 512, 2);
    let write = |model: &mut Model| {
        let (id, bytes) = model.begin(0..1, false).expect("nobody writes a part");
        model.end(0..1, id, false);
        bytes
    };
    let first = write(&mut model);
    let begun = model.tick();
    let second = write(&mut model);
    model.flushed(begun);
    let (_, third) = model.begin(0..1, false).expect("nobody writes a part");
    for lost in [vec![0; 512], pattern(7, 512)] {
        model.crashed();
        assert!(model.observe(0, &lost).is_err());
    }
    let mut torn = second.clone();
    torn[256..].copy_from_slice(&third[256..]);
    assert!(model.observe(0, &torn).expect_err("torn").to_string().contains("up to byte 256"));
    model.observe(0, &first).expect("it was flushed");
    assert!(model.observe(0, &second).is_err(), "it was read as older");
}

#[test]
fn a_snapshot_is_what_a_read_would_have_found() {
    let mut model = Model::new(0, 512, 1);
    let (first, first_bytes) = model.begin(0..1, false).expect("free");
    model.end(0..1, first, true);
    let begun = model.begin_snapshot();
    let (second, second_bytes) = model.begin(0..1, false).expect("free");
    model.end(0..1, second, true);
    let mut snapshot = model.end_snapshot(begun);
    let (_, third_bytes) = model.begin(0..1, false).expect("free");
    for wrong in [vec![0; 512], third_bytes] {
        assert!(snapshot.observe(0, &wrong).is_err());
    }
    snapshot.observe(0, &first_bytes).expect("it was there");
    assert!(snapshot.observe(0, &second_bytes).is_err(), "a snapshot does not change");
    model.crashed();
    model.reverted(&snapshot);
    model.observe(0, &first_bytes).expect("what the snapshot is");
    assert!(Model::clone_of(&snapshot, 1).observe(0, &second_bytes).is_err(), "a clone is what the snapshot is");
    Model::clone_of(&snapshot, 1).observe(0, &first_bytes).expect("what the snapshot is");
}

#[test]
fn a_snapshot_with_a_write_has_those_acknowledged_before_it() {
    let mut model = Model::new(0, 512, 2);
    let begun = model.begin_snapshot();
    let (first, first_bytes) = model.begin(0..1, false).expect("free");
    model.end(0..1, first, true);
    let (second, second_bytes) = model.begin(1..2, false).expect("free");
    model.end(1..2, second, true);
    let snapshot = model.end_snapshot(begun);
    let zeros = vec![0; 512];
    for (pages, is_one) in [
        ([&zeros, &zeros], true),
        ([&first_bytes, &zeros], true),
        ([&first_bytes, &second_bytes], true),
        ([&zeros, &second_bytes], false),
    ] {
        let mut snapshot = snapshot.clone();
        snapshot.observe(0, &pages.map(|page| page.as_slice()).concat()).expect("each of them may be there");
        assert_eq!(snapshot.is_of_one_moment().is_ok(), is_one);
    }
}

#[test]
fn a_read_finds_what_was_acknowledged_before_it_or_written_meanwhile() {
    let mut model = Model::new(0, 512, 1);
    let (first, first_bytes) = model.begin(0..1, false).expect("free");
    let (second, second_bytes) = model.begin(0..1, false).expect("free");
    model.end(0..1, first, false);
    model.end(0..1, second, false);
    let begun = model.begin_read(0..1);
    assert!(model.end_read(0, &vec![0; 512], begun).is_err());
    model.end_read(0, &second_bytes, begun).expect("either may count");
    let begun = model.begin_read(0..1);
    assert!(model.end_read(0, &first_bytes, begun).is_err(), "the other one counts");
    model.end_read(0, &second_bytes, begun).expect("it does");
    let (part, bytes) = model.begin_part(0, 100..200).expect("it is certain");
    assert!(model.begin(0..1, true).is_none());
    let begun = model.begin_read(0..1);
    model.end(0..1, part, true);
    model.end_read(50, &second_bytes[50..100], begun).expect("it did not change");
    let begun = model.begin_read(0..1);
    model.end_read(100, &bytes, begun).expect("it was acknowledged");
    model.crashed();
    assert!(model.observe(0, &second_bytes).is_err(), "the part is durable");
}
