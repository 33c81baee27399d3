//! Reads everything on a disk back, to know that it is right, and mends what is not.
//!
//! ```text
//! none --begun--> groups, in the order of their files --> pages of the catalog --> none, ended
//!                   ^  |
//!                   '--'  a few at a time; closed and opened in between, it goes on where it was
//! ```
//!
//! Invariants:
//! 1. A group is scrubbed while nobody writes it: the gate of its file is held, for a few groups at a time.
//! 2. What is lost is reported and stops nothing; nor does a group whose row makes no sense: the next step goes on behind.
//! 3. Pages of which no copy is right may be free, and only reading all rows tells. That is done once, at the end of a pass, and
//!    nobody waits for it: rows are read as of one checkpoint, whose pages nobody writes over meanwhile.

use std::sync::Arc;
use std::time::Duration;

use claystone_env::{Moment, ScrubProgress, Sector, WallTime};
use claystone_group::{GroupError, ScrubReport, ShownRun};

use crate::catalog::Catalog;
use crate::copies::{Access, Copies};
use crate::disk::{Disk, FlushLock, guard, write_gate};
use crate::error::{DiskError, with_sources};
use crate::keys::{self, Span};
use crate::pages::{Looked, PageFile, SlabSource};
use crate::run::{Run, Window};
use crate::superblock::SharedSuperblock;
use crate::{FileError, Inode, Table};

/// What a scrub has found so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// Groups that were read whole.
    pub groups: u64,
    /// All groups that files had when the scrub began.
    pub groups_total: u64,
    /// Sectors of groups that were mended.
    pub mended: u64,
    /// Sums sectors that were mended.
    pub sums_mended: u64,
    /// Sectors that are lost, by file: file sectors.
    pub lost: Vec<(Inode, u64)>,
    /// Groups of which more is lost than parity replaces, be it of files or of what no file has any more: they bear no further loss.
    pub groups_lost: u64,
    /// Those of them with void parity.
    pub groups_void: u64,
    /// Pages of the catalog that were read, every copy.
    pub pages: u64,
    /// Copies of the catalog's sectors and the superblock that were written again.
    pub copies_mended: u64,
    /// Pages of the catalog of which no copy is right. They may be unused. At the end of a pass: all that it found.
    pub pages_lost: Vec<u64>,
    /// Whether some of these are in use: the catalog does not read whole from the device, whatever memory has of it. Told at the end of
    /// a pass.
    pub catalog_damaged: bool,
    /// Groups that could not be read, for another reason than lost sectors.
    pub groups_unread: u64,
}

impl Scrubbed {
    /// Groups, and pages of a damaged catalog, that could not be read back.
    pub fn unread(&self) -> u64 {
        self.groups_unread + if self.catalog_damaged { self.pages_lost.len() as u64 } else { 0 }
    }
}

/// Where a scrub goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    /// It is not under way.
    #[default]
    None,
    /// With the first window that is not before this, of which so many groups were read.
    Groups { inode: u64, first: u64, read: u64 },
    /// With this page of the catalog.
    Pages { page: u64 },
}

/// The pass under way that [`Disk::scrub_in_passing`] makes, and the last one that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Pass {
    place: Place,
    groups: u64,
    groups_total: u64,
    lost: u64,
    ended: Option<WallTime>,
    ended_lost: u64,
    unread: u64,
    ended_unread: u64,
}

/// How far scrubbing in passing has come of what is due.
#[derive(Debug, Clone, Default)]
pub(crate) struct Passing {
    looked: Option<Moment>,
    /// When the catalog was given how far the pass is.
    kept: Option<Moment>,
    steps_due: f64,
    /// Pages of which the pass under way found no right copy.
    pages_lost: Vec<u64>,
}

/// The catalog as the device has it, as of one checkpoint.
struct Looking {
    catalog: Catalog,
    /// While this is held, what the checkpoint reaches is not written over.
    _pinned: redb::ReadTransaction,
}

impl Looking {
    /// Reads all rows.
    fn read_all(&self) -> Result<(), DiskError> {
        Ok(self.catalog.read_all()?)
    }
}

impl Pass {
    /// As the catalog has it. Which pages were lost is in memory only, so one that came to the pages reads all of them again.
    ///
    /// # Errors
    /// The catalog does not read.
    pub fn load(catalog: &Catalog) -> Result<Pass, DiskError> {
        let pass = catalog.get(Table::State, keys::SCRUB)?.map(|value| Pass::decode(&value)).unwrap_or_default();
        Ok(match pass.place {
            Place::Pages { .. } => Pass { place: Place::Pages { page: 0 }, ..pass },
            Place::None | Place::Groups { .. } => pass,
        })
    }

    /// For those who ask.
    pub fn progress(&self) -> ScrubProgress {
        let total = if self.place == Place::None { 0 } else { self.groups_total.max(self.groups) };
        let Pass { groups, lost, ended, ended_lost, unread, ended_unread, .. } = *self;
        ScrubProgress { groups, groups_total: total, lost, unread, ended, ended_lost, ended_unread }
    }

    /// The stored bytes.
    pub fn encode(&self) -> Vec<u8> {
        let place = match self.place {
            Place::None => [0; 4],
            Place::Groups { inode, first, read } => [1, inode, first, read],
            Place::Pages { page } => [2, page, 0, 0],
        };
        let ended = self.ended.map_or(0, |ended| ended.unix_ms);
        let counts =
            [self.groups, self.groups_total, self.lost, ended, self.ended_lost, self.unread, self.ended_unread];
        place.into_iter().chain(counts).flat_map(u64::to_le_bytes).collect()
    }

    /// Undoes [`Pass::encode`]. What makes no sense is no pass: it begins anew. What is missing at the end was not counted.
    fn decode(value: &[u8]) -> Pass {
        if value.len() < PASS_BYTES_MIN {
            return Pass::default();
        }
        let field = |number: usize| {
            let bytes = value.get(8 * number..8 * number + 8);
            bytes.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
        };
        let place = match field(0) {
            1 => Place::Groups { inode: field(1), first: field(2), read: field(3) },
            2 => Place::Pages { page: field(1) },
            _ => Place::None,
        };
        let ended = Some(field(7)).filter(|ended| *ended > 0).map(|unix_ms| WallTime { unix_ms });
        let (groups, groups_total, lost, ended_lost) = (field(4), field(5), field(6), field(8));
        Pass { place, groups, groups_total, lost, ended, ended_lost, unread: field(9), ended_unread: field(10) }
    }

    /// It has come to its end, and found so much lost, and so much that it could not read.
    fn end(&mut self, lost: u64, unread: u64, now: WallTime) {
        *self = Pass { ended: Some(now), ended_lost: lost, ended_unread: unread, ..Pass::default() };
    }
}

impl Disk {
    /// Scrubs the whole disk. `pace` is told after every few groups how far it is, may wait, and returns whether to go on.
    ///
    /// # Errors
    /// [`DiskError::Device`], [`DiskError::File`] if the catalog does not read.
    pub fn scrub(&self, pace: &mut dyn FnMut(&Scrubbed) -> bool) -> Result<Scrubbed, DiskError> {
        let mut found = Scrubbed { groups_total: self.count_groups()?, ..Scrubbed::default() };
        let mut place = Place::Groups { inode: 0, first: 0, read: 0 };
        while place != Place::None {
            self.sync_updates()?;
            self.scrub_step(&mut place, GROUPS_AT_ONCE, &mut found)?;
            if place == Place::None {
                self.judge_pages(&mut found);
            }
            if !pace(&found) {
                return Ok(found);
            }
        }
        guard(&self.pass).end(found.lost.len() as u64, found.unread(), self.clock.wall());
        Ok(found)
    }

    /// Goes on with scrubbing, as far as is due for a pass in each `cycle`, in at most [`SHARE`] of the time since the last
    /// call; to be called every second or so, by one thread. Returns what this call found.
    ///
    /// # Errors
    /// As [`Disk::scrub`]; the next call goes on behind.
    pub fn scrub_in_passing(&self, cycle: Duration) -> Result<Scrubbed, DiskError> {
        let mut passing = guard(&self.passing);
        let now = self.clock.now();
        let before = passing.looked.replace(now);
        let elapsed = before.map_or(Duration::ZERO, |looked| now.since(looked));
        let mut pass = *guard(&self.pass);
        if pass.place == Place::None {
            pass.place = Place::Groups { inode: 0, first: 0, read: 0 };
            (pass.groups, pass.groups_total, pass.lost, pass.unread) = (0, self.count_groups()?, 0, 0);
            passing.pages_lost.clear();
        }
        let steps = pass.groups_total + self.pages.capacity() / PAGES_AT_ONCE + 1;
        let due = match before {
            Some(_) => steps as f64 * elapsed.as_secs_f64() / cycle.as_secs_f64(),
            // A disk that is never open for long comes on too.
            None => 1.0,
        };
        passing.steps_due = (passing.steps_due + due).min(STEPS_DUE_MAX);
        let mut found = Scrubbed::default();
        let mut done = if passing.steps_due >= 1.0 { self.sync_updates().map_err(DiskError::from) } else { Ok(()) };
        while passing.steps_due >= 1.0 && pass.place != Place::None && done.is_ok() {
            done = self.scrub_step(&mut pass.place, 1, &mut found);
            found.groups_unread += u64::from(done.is_err());
            passing.steps_due -= 1.0;
            if self.clock.now().since(now) >= elapsed.mul_f64(SHARE) {
                break;
            }
        }
        passing.pages_lost.extend(&found.pages_lost);
        if pass.place == Place::None && !passing.pages_lost.is_empty() {
            found.pages_lost = std::mem::take(&mut passing.pages_lost);
            self.judge_pages(&mut found);
        }
        pass.groups += found.groups;
        pass.lost += found.lost.len() as u64;
        pass.unread += found.unread();
        if pass.place == Place::None {
            pass.end(pass.lost, pass.unread, self.clock.wall());
        }
        *guard(&self.pass) = pass;
        // A disk that nobody writes makes no checkpoint, so it gets something to write now and then.
        if now.since(*passing.kept.get_or_insert(now)) >= KEEP_EVERY {
            passing.kept = Some(now);
            let rows = self.kept_rows();
            guard(&self.core).apply(rows);
        }
        done.map(|()| found)
    }

    /// Scrubs some groups of one window, or pages of the catalog, and sets `place` behind them, whatever comes out.
    fn scrub_step(&self, place: &mut Place, groups_max: u64, found: &mut Scrubbed) -> Result<(), DiskError> {
        match *place {
            Place::None => Ok(()),
            Place::Groups { inode, first, read } => match self.window_from(inode, first)? {
                None => {
                    *place = Place::Pages { page: 0 };
                    Ok(())
                }
                Some((next, start)) => {
                    let read = if (next.0, start) == (inode, first) { read } else { 0 };
                    self.scrub_window(next, start, read..read + groups_max, place, found)
                }
            },
            Place::Pages { page } => self.scrub_pages(page, place, found),
        }
    }

    /// Makes updates durable: what is wrong in their groups is not mended before.
    fn sync_updates(&self) -> Result<(), FileError> {
        if guard(&self.core).failed.is_some() {
            return Ok(());
        }
        self.groups.sync_updates().map_err(|error| guard(&self.core).fail(with_sources(&error)))
    }

    /// The first window that is not before this one.
    pub(crate) fn window_from(&self, inode: u64, first: u64) -> Result<Option<(Inode, u64)>, DiskError> {
        let mut span = Span::from(&keys::run(Inode(inode), first));
        loop {
            let rows = guard(&self.core).catalog.range(Table::Runs, &span, 1)?;
            let Some((key, _)) = rows.first() else { return Ok(None) };
            match keys::decode_run(key) {
                Ok(found) => return Ok(Some(found)),
                Err(_) => span = Span::after(key),
            }
        }
    }

    fn scrub_pages(&self, page: u64, place: &mut Place, found: &mut Scrubbed) -> Result<(), DiskError> {
        let _flushing = self.lock_flusher();
        let _core = guard(&self.core);
        let before = self.copies.mended();
        let end = page + PAGES_AT_ONCE;
        let is_last = end >= self.pages.capacity();
        *place = if is_last { Place::None } else { Place::Pages { page: end } };
        let pages = self.pages.scrub(page..end)?;
        if is_last {
            self.pages.scrub_sums()?;
            self.superblock.settle(&self.copies)?;
        }
        found.pages += pages.pages;
        found.pages_lost.extend(pages.unreadable);
        found.copies_mended += self.copies.mended() - before;
        Ok(())
    }

    /// Finds out whether a pass found pages lost that are in use: after a power cut a page that is free may be torn, and nobody misses
    /// that.
    fn judge_pages(&self, found: &mut Scrubbed) {
        if !found.pages_lost.is_empty() {
            let is_damaged =
                |looking: Result<Looking, DiskError>| looking.and_then(|looking| looking.read_all()).is_err();
            let seems_damaged = is_damaged(self.look_at_catalog(&self.lock_flusher()));
            // A checkpoint that finds no room opens the catalog anew, which forgets who looks: now nobody makes one.
            found.catalog_damaged = seems_damaged && {
                let no_checkpoint = self.lock_flusher();
                is_damaged(self.look_at_catalog(&no_checkpoint))
            };
        }
    }

    /// Opens the catalog anew from the device, as of the last checkpoint.
    fn look_at_catalog(&self, _no_checkpoint: &FlushLock<'_>) -> Result<Looking, DiskError> {
        let pinned = guard(&self.core).catalog.pin()?;
        let copies = Arc::new(Copies::new(self.device.clone(), self.copies.count() as u16, Access::Look));
        let superblock = SharedSuperblock::new(self.device.clone(), self.superblock.current());
        let pages = PageFile::open(copies, superblock, Arc::new(NoSlabs))?;
        Ok(Looking { catalog: Catalog::open(Looked(pages), CACHED_TO_LOOK)?, _pinned: pinned })
    }

    fn count_groups(&self) -> Result<u64, DiskError> {
        let mut groups = 0;
        let mut span = Span::all();
        loop {
            // Others want the catalog too.
            let rows = guard(&self.core).catalog.range(Table::Runs, &span, ROWS_AT_ONCE)?;
            let Some((last, _)) = rows.last() else { return Ok(groups) };
            span = Span::after(last);
            for (key, value) in rows {
                // A row that makes no sense is told when its turn comes.
                let Ok((inode, first)) = keys::decode_run(&key) else { continue };
                let Ok(window) = Window::decode(inode, first, &value, self.shape.data) else { continue };
                groups += self.groups_of(&window).len() as u64;
            }
        }
    }

    /// The groups that a window shows, by their number in the run.
    fn groups_of(&self, window: &Window) -> std::ops::Range<u32> {
        let shown = window.in_run();
        match window.run {
            Run::Single { .. } => 0..1,
            Run::Promised { .. } => 0..0,
            Run::Bulk { .. } => shown.start / self.shape.data..shown.end.div_ceil(self.shape.data),
        }
    }

    /// Scrubs groups of a window, if it is still there.
    fn scrub_window(
        &self,
        inode: Inode,
        first: u64,
        wanted: std::ops::Range<u64>,
        place: &mut Place,
        found: &mut Scrubbed,
    ) -> Result<(), DiskError> {
        *place = Place::Groups { inode: inode.0, first: first.saturating_add(1), read: 0 };
        {
            let gate = self.gate(inode);
            let _alone = write_gate(&gate);
            let windows = guard(&self.core).windows(inode, first..first + 1, self.shape.data)?;
            let Some(window) = windows.into_iter().find(|window| window.first == first) else { return Ok(()) };
            let groups = self.groups_of(&window);
            if wanted.end < groups.len() as u64 {
                *place = Place::Groups { inode: inode.0, first, read: wanted.end };
            }
            let some = (wanted.end - wanted.start) as usize;
            let shown = guard(&self.core).shown_of(inode, &window, &window.in_run(), self.shape)?;
            for group in groups.skip(wanted.start as usize).take(some) {
                let report = match &window.run {
                    Run::Single { place, sums, .. } => self.groups.scrub(*place, sums),
                    Run::Bulk { run } => self.groups.scrub_bulk(ShownRun::new(*run, &shown), group),
                    Run::Promised { .. } => continue,
                };
                // A group that several windows show is told once.
                let positions = group * self.shape.data..(group + 1) * self.shape.data;
                let shows = |part: &&std::ops::Range<u32>| part.start < positions.end && positions.start < part.end;
                let first = shown.iter().filter(shows).map(|part| part.start).min();
                let is_first = first.is_none_or(|first| first == window.in_run().start);
                self.count_scrub(inode, (&window, group, is_first), report, found)?;
            }
        }
        guard(&self.core).nodes.sweep(inode);
        Ok(())
    }

    fn count_scrub(
        &self,
        inode: Inode,
        (window, group, is_first): (&Window, u32, bool),
        report: Result<ScrubReport, GroupError>,
        found: &mut Scrubbed,
    ) -> Result<(), DiskError> {
        let report = match report {
            Ok(report) => report,
            Err(GroupError::Device(error)) => return Err(DiskError::Device(error)),
            Err(error) => return Err(FileError::Failed { why: with_sources(&error) }.into()),
        };
        found.groups += 1;
        found.mended += report.mended.len() as u64;
        found.sums_mended += u64::from(report.sums_mended);
        if is_first {
            found.groups_lost += u64::from(!report.lost.is_empty());
            found.groups_void += u64::from(!report.lost.is_empty() && report.parity_void > 0);
        }
        let first = match window.run {
            Run::Single { .. } | Run::Promised { .. } => 0,
            Run::Bulk { .. } => group * self.shape.data,
        };
        let shown = report.lost.iter().map(|position| first + position).filter(|at| window.in_run().contains(at));
        let sectors = shown.map(|position| window.first + u64::from(position - window.skipped));
        let core = guard(&self.core);
        let waits = |sector: &u64| core.nodes.find(inode).is_some_and(|node| node.waiting.contains_key(sector));
        // Memory has what is to be in their places, and the journal if it was synced.
        found.lost.extend(sectors.filter(|sector| !waits(sector)).map(|sector| (inode, sector)));
        Ok(())
    }
}

/// A catalog that is only looked at takes none.
struct NoSlabs;

impl SlabSource for NoSlabs {
    fn take(&self, _sectors: u64) -> Option<Sector> {
        None
    }
}

/// Of the time, for scrubbing in passing. A drive of 16 TB is read in two weeks in a tenth of it.
const SHARE: f64 = 0.2;
/// What could not be done in time is not all done later: after a busy hour comes no hour of scrubbing.
const STEPS_DUE_MAX: f64 = 64.0;
const KEEP_EVERY: Duration = Duration::from_secs(600);
const ROWS_AT_ONCE: usize = 256;
/// 16 MiB of a file wait at most while they are scrubbed.
const GROUPS_AT_ONCE: u64 = 16;
/// 1 MiB of the catalog, each page m' times.
const PAGES_AT_ONCE: u64 = 256;
const CACHED_TO_LOOK: usize = 1 << 20;
/// Without what was not counted once.
const PASS_BYTES_MIN: usize = 72;

#[cfg(test)]
mod tests;
