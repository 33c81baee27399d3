//! The catalog gives slabs back that it does not need any more.
//!
//! ```text
//! in use --the database moves its pages to the front, and cuts its file--> idle
//! idle --both header slots are synced--> idle for whichever header is found
//!   --an entry of the journal has its sectors in the table `free`--> listed --the superblock names it no more--> free sectors
//! ```
//!
//! | a power cut leaves it | is found as |
//! |---|---|
//! | in use, or idle | a slab; an idle one is given back some other time |
//! | listed | a slab: who opens the disk takes off `free` what the superblock names |
//! | behind the superblock | free sectors |
//!
//! Invariants:
//! 1. The flusher's lock is held from the first step to the last: nobody makes a checkpoint meanwhile, so no page of an idle slab is written.
//! 2. No file gets a sector of a slab before no superblock names it, and none is lost to both.
//! 3. The database is compacted only where that gives back a slab, and where it uses at most [`COMPACTED_PAGES_MAX`] pages, or
//!    [`COMPACTED_UNASKED_PAGES_MAX`] where nobody lacks room: meanwhile the disk waits.
//! 4. What is left has room for [`spare_of`] pages more, so that deleting needs no new slab, nor the next checkpoint one that was just given back.
//!
//! Left out: free pages of a catalog that uses more. They stay the catalog's, for names and small files.

use std::sync::atomic::Ordering;

use claystone_env::SectorRange;

use crate::commit::{PAGES_APART, Share, UNCOUNTED};
use crate::core::Core;
use crate::disk::{Disk, FlushLock, SPARE_PAGES_MIN, guard};
use crate::error::with_sources;
use crate::{DiskError, FileError};

impl Disk {
    /// Gives slabs back if much of the catalog became free since that was tried last, and moves at most so many pages for it.
    ///
    /// # Errors
    /// As [`Disk::shrink_catalog`].
    pub(crate) fn shrink_if_loose(&self, pages_max: u64, flushing: &FlushLock<'_>) -> Result<(), FileError> {
        let is_loose = {
            let core = guard(&self.core);
            let freed = core.catalog.slack().pages();
            let is_loose = freed >= self.pages.capacity() / LOOSE_SHARE && self.pages.slabs_behind(1) > 0;
            is_loose && self.is_soon_counted(&core, pages_max)?
        };
        // Where a checkpoint found no room, they are of its last try, and the next one's too.
        let is_idle = self.idle_slabs() > 0 && !self.catalog_full.load(Ordering::Acquire);
        match is_loose || is_idle {
            true => self.shrink_catalog(pages_max, flushing).map(drop),
            false => Ok(()),
        }
    }

    /// The same for who else finds no room: if anything became free, or if nobody looked since the disk was opened.
    ///
    /// # Errors
    /// As [`Disk::shrink_catalog`].
    pub(crate) fn shrink_for_room(&self, flushing: &FlushLock<'_>) -> Result<(), FileError> {
        let is_worth = {
            let core = guard(&self.core);
            let slack = core.catalog.slack();
            let is_worth = slack.counted.is_none() || slack.pages() >= SPARE_PAGES_MIN;
            is_worth && self.is_soon_counted(&core, COMPACTED_PAGES_MAX)?
        };
        match is_worth || self.idle_slabs() > 0 {
            true => self.shrink_catalog(COMPACTED_PAGES_MAX, flushing).map(drop),
            false => Ok(()),
        }
    }

    /// Gives slabs back that the catalog does not need, the last ones first, where it uses at most so many pages. Returns whether there were
    /// any.
    ///
    /// # Errors
    /// As [`Disk::checkpoint`].
    pub(crate) fn shrink_catalog(&self, pages_max: u64, flushing: &FlushLock<'_>) -> Result<bool, FileError> {
        // What was deleted lies in the database until then.
        self.checkpoint(flushing)?;
        self.compact_catalog(pages_max)?;
        match self.idle_slabs() {
            0 => Ok(false),
            count => self.give_back_slabs(count),
        }
    }

    /// Whether the catalog uses so few pages that they are soon counted, and may be moved where at most so many are.
    fn is_soon_counted(&self, core: &Core, pages_max: u64) -> Result<bool, FileError> {
        let slack = core.catalog.slack();
        Ok(match slack.counted {
            Some(counted) => counted.saturating_sub(slack.pages()) <= pages_max,
            None => {
                let rows = core.catalog.rows()?;
                self.pages.capacity().saturating_sub(slack.pages()).min(rows) <= COUNTED_PAGES_SHARE * pages_max
            }
        })
    }

    pub(crate) fn idle_slabs(&self) -> usize {
        self.pages.idle_slabs()
    }

    /// Moves the catalog to the front of its file, where that makes a slab idle.
    fn compact_catalog(&self, pages_max: u64) -> Result<(), FileError> {
        let mut core = guard(&self.core);
        self.assert_writable(&mut core)?;
        if !self.is_soon_counted(&core, pages_max)? {
            return Ok(());
        }
        let used = match core.catalog.allocated_pages() {
            Ok(allocated) => allocated + PAGES_APART,
            Err(error) => return Err(core.fail(with_sources(&error))),
        };
        if self.pages.slabs_behind(used + spare_of(used)) <= self.idle_slabs() {
            core.catalog.forget_slack(used);
            return Ok(());
        }
        if used > pages_max {
            core.catalog.keep_slack(used);
            return Ok(());
        }
        // It may take a slab on the way.
        self.keep_promises(&core)?;
        match core.catalog.compact() {
            Ok(true) => core.catalog.forget_slack(used),
            // A scrub reads it: another time.
            Ok(false) => return Ok(()),
            Err(error) => {
                self.after_no_room(&mut core, &error)?;
                core.catalog.forget_slack(used);
            }
        }
        self.uncount_pages();
        self.apply_slabs(&mut core);
        Ok(())
    }

    /// Free pages that somebody counted may be gone with the file's end.
    fn uncount_pages(&self) {
        self.pages.take_written();
        self.free_pages.store(UNCOUNTED, Ordering::Release);
    }

    /// Gives the last slabs back, of which no page is written. Returns whether the journal had room for that.
    fn give_back_slabs(&self, count: usize) -> Result<bool, FileError> {
        let failed = |error: DiskError| guard(&self.core).fail(with_sources(&error));
        self.pages.sync_both().map_err(failed)?;
        let copies = self.copies.count();
        let range = |slab: crate::slab::Slab| SectorRange { first: slab.first, sectors: slab.sectors(copies) };
        let ranges: Vec<SectorRange> = self.pages.last_slabs(count).into_iter().map(range).collect();
        {
            let mut core = guard(&self.core);
            self.assert_writable(&mut core)?;
            let mut changes = Vec::new();
            {
                let mut space = guard(&self.space);
                ranges.iter().for_each(|range| space.list_slab(*range, &mut changes));
            }
            core.apply(changes);
        }
        if !self.try_commit(Share::Applying)? {
            let mut core = guard(&self.core);
            let mut changes = Vec::new();
            {
                let mut space = guard(&self.space);
                ranges.iter().for_each(|range| space.withhold(*range, &mut changes));
            }
            core.apply(changes);
            return Ok(false);
        }
        self.pages.give_back(count).map_err(failed)?;
        self.uncount_pages();
        let mut space = guard(&self.space);
        ranges.iter().for_each(|range| space.open_slab(*range));
        tracing::debug!(disk = %self.device.label(), slabs = count, "the catalog gave slabs back");
        Ok(true)
    }
}

/// Pages for which there is room behind the last of so many pages of the catalog when slabs are given back: what deleting takes, and an
/// eighth.
pub(crate) fn spare_of(pages: u64) -> u64 {
    (SPARE_PAGES_MIN + 32).max(pages / 8)
}

/// 64 MiB, m' times. Where every page has to be read and moved, and none is in memory, a hard disk takes two minutes for it, and mostly seconds.
pub(crate) const COMPACTED_PAGES_MAX: u64 = 16_384;
/// What is moved while others work and nobody lacks room: a quarter of a minute at most.
pub(crate) const COMPACTED_UNASKED_PAGES_MAX: u64 = 2048;
/// The pages of a catalog of which nobody knows how many it uses are counted where it has at most so many times as many rows, or pages, as may be
/// moved: who counts them walks it.
const COUNTED_PAGES_SHARE: u64 = 4;
/// The part of a catalog's pages that has to become free before it is compacted unasked: so each page that is moved was paid for by deleting.
const LOOSE_SHARE: u64 = 4;
