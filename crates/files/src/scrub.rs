//! Reads everything on a disk back, to know that it is right, and mends what is not.
//!
//! Invariants:
//! 1. A group is scrubbed while nobody writes it: the gate of its file is held, for a few groups at a time.
//! 2. What is lost is reported and stops nothing.

use claystone_group::{GroupError, ScrubReport};

use crate::disk::{Disk, guard, write_gate};
use crate::error::{DiskError, with_sources};
use crate::keys::{self, Span};
use crate::run::{Run, Window};
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
    /// Pages of the catalog that were read, every copy.
    pub pages: u64,
    /// Copies of the catalog's sectors, of the journal and the superblock that were written again.
    pub copies_mended: u64,
    /// Pages of the catalog of which no copy is right. They may be unused.
    pub pages_lost: Vec<u64>,
}

impl Disk {
    /// Scrubs the whole disk. `pace` is told after every few groups how far it is, may wait, and returns whether to go on.
    ///
    /// # Errors
    /// [`DiskError::Device`], [`DiskError::File`] if the catalog does not read.
    pub fn scrub(&self, pace: &mut dyn FnMut(&Scrubbed) -> bool) -> Result<Scrubbed, DiskError> {
        let mut found = Scrubbed { groups_total: self.count_groups()?, ..Scrubbed::default() };
        let mut span = Span::all();
        loop {
            let rows = guard(&self.core).catalog.range(Table::Runs, &span, WINDOWS_AT_ONCE)?;
            let Some((last, _)) = rows.last() else { break };
            span = Span::after(last);
            for (key, _) in rows {
                let Ok((inode, first)) = keys::decode_run(&key) else { continue };
                if !self.scrub_window(inode, first, &mut found, pace)? {
                    return Ok(found);
                }
            }
        }
        self.scrub_catalog(&mut found)?;
        pace(&found);
        Ok(found)
    }

    fn scrub_catalog(&self, found: &mut Scrubbed) -> Result<(), DiskError> {
        let _flushing = self.lock_flusher();
        let _core = guard(&self.core);
        let before = self.copies.mended();
        let pages = self.pages.scrub(0..self.pages.capacity())?;
        self.pages.scrub_sums()?;
        found.pages = pages.pages;
        found.pages_lost = pages.unreadable;
        found.copies_mended = self.copies.mended() - before;
        Ok(())
    }

    fn count_groups(&self) -> Result<u64, DiskError> {
        let core = guard(&self.core);
        let mut groups = 0;
        for row in core.catalog.ascending(Table::Runs, &Span::all())? {
            let (key, value) = row?;
            let Ok((inode, first)) = keys::decode_run(&key) else { continue };
            groups += self.groups_of(&Window::decode(inode, first, &value, self.shape.data)?).len() as u64;
        }
        Ok(groups)
    }

    /// The groups that a window shows, by their number in the run.
    fn groups_of(&self, window: &Window) -> std::ops::Range<u32> {
        let shown = window.in_run();
        match window.run {
            Run::Single { .. } => 0..1,
            Run::Bulk { .. } => shown.start / self.shape.data..shown.end.div_ceil(self.shape.data),
        }
    }

    /// Scrubs the groups of a window, if it is still there.
    fn scrub_window(
        &self,
        inode: Inode,
        first: u64,
        found: &mut Scrubbed,
        pace: &mut dyn FnMut(&Scrubbed) -> bool,
    ) -> Result<bool, DiskError> {
        let mut next = 0;
        loop {
            {
                let gate = self.gate(inode);
                let _alone = write_gate(&gate);
                let windows = guard(&self.core).windows(inode, first..first + 1, self.shape.data)?;
                let Some(window) = windows.into_iter().find(|window| window.first == first) else { break };
                let groups = self.groups_of(&window);
                for group in groups.clone().skip(next).take(GROUPS_AT_ONCE) {
                    let report = match &window.run {
                        Run::Single { place, sums } => self.groups.scrub(*place, sums),
                        Run::Bulk { run } => self.groups.scrub_bulk(*run, group),
                    };
                    self.count_scrub(inode, &window, group, report, found)?;
                }
                next += GROUPS_AT_ONCE;
                if next >= groups.len() {
                    break;
                }
            }
            if !pace(found) {
                return Ok(false);
            }
        }
        guard(&self.core).nodes.sweep(inode);
        Ok(pace(found))
    }

    fn count_scrub(
        &self,
        inode: Inode,
        window: &Window,
        group: u32,
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
        let first = match window.run {
            Run::Single { .. } => 0,
            Run::Bulk { .. } => group * self.shape.data,
        };
        for position in report.lost.iter().map(|position| first + position) {
            if window.in_run().contains(&position) {
                found.lost.push((inode, window.first + u64::from(position - window.skipped)));
            }
        }
        Ok(())
    }
}

const WINDOWS_AT_ONCE: usize = 256;
/// 16 MiB of a file wait at most while they are scrubbed.
const GROUPS_AT_ONCE: usize = 16;
