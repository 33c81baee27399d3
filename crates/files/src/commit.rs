//! How changes become durable: journal entries, and checkpoints that free the journal.
//!
//! Locks are taken in this order: flusher, a node's gate, journal, core, space map. Whoever holds a later one never waits for an
//! earlier one.

use std::sync::atomic::Ordering;

use crate::catalog::{Catalog, CatalogError};
use crate::core::{Core, Entry};
use crate::disk::{Disk, FlushLock, SPARE_PAGES_MIN, guard};
use crate::error::with_sources;
use crate::journal::{Journal, JournalPosition};
use crate::placing::{Scope, clusters as clusters_of};
use crate::resting::SwathsKept;
use crate::{Change, DiskError, FileError, Inode, Record, Table, keys};

/// How much of the journal an entry may fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Share {
    /// Half: what waits in the journal needs room to be applied.
    Waiting,
    /// All: applying makes room.
    Applying,
}

impl Disk {
    /// Makes durable all that calls have changed, and the sectors that were sent along.
    ///
    /// # Errors
    /// [`FileError::ReadOnly`] if the disk failed, or fails now; [`FileError::NoSpace`] if the journal has no room, because the catalog has none,
    /// or others fill it: then what was changed is in memory as before.
    pub(crate) fn commit(&self) -> Result<(), FileError> {
        for _ in 0..COMMIT_TRIES {
            if self.try_commit(Share::Waiting)? {
                return Ok(());
            }
            let flushing = self.lock_flusher();
            // Most of it may be entries whose sectors are in their places by now.
            self.checkpoint(&flushing)?;
            if self.try_commit(Share::Waiting)? {
                return Ok(());
            }
            self.relieve(&flushing)?;
        }
        // Others were faster each time, or what must stay fills half of it: a last entry may take what applying needs, and makes do without
        // where that is little.
        let flushing = self.lock_flusher();
        self.checkpoint(&flushing)?;
        if self.try_commit(Share::Applying)? { Ok(()) } else { Err(FileError::NoSpace) }
    }

    /// The same for who holds the flusher's lock.
    ///
    /// # Errors
    /// As [`Disk::commit`].
    pub(crate) fn commit_flushing(&self, flushing: &FlushLock<'_>) -> Result<(), FileError> {
        self.commit_with_room(flushing).map(drop)
    }

    /// The same with sums sectors that are going to be written: replay passes over those from before a checkpoint, so an entry has them that is
    /// behind the last one.
    ///
    /// # Errors
    /// As [`Disk::commit`]; then they may go along with the next entry yet.
    pub(crate) fn commit_sums(&self, sums: &[Record], flushing: &FlushLock<'_>) -> Result<(), FileError> {
        for _ in 0..COMMIT_TRIES {
            {
                let mut core = guard(&self.core);
                sums.iter().for_each(|sums| core.record(sums.clone()));
            }
            let checkpointed = self.commit_with_room(flushing)?;
            if sums.is_empty() || !checkpointed {
                return Ok(());
            }
        }
        Err(FileError::NoSpace)
    }

    /// As [`Disk::commit_flushing`]. Returns whether it took a checkpoint: an entry of others may have had what was to go along before that.
    fn commit_with_room(&self, flushing: &FlushLock<'_>) -> Result<bool, FileError> {
        if self.try_commit(Share::Applying)? {
            return Ok(false);
        }
        let checkpointed = self.checkpoint(flushing);
        unless_full(checkpointed.clone())?;
        match (self.try_commit(Share::Applying)?, checkpointed) {
            (true, _) => Ok(true),
            // What deletes files may make some.
            (false, Err(full)) => Err(full),
            // What waits in it from before a crash may fill it, until other files make room or find more of it elsewhere.
            (false, Ok(())) => {
                tracing::warn!(disk = %self.device.label(), "the journal has no room after a checkpoint");
                Err(FileError::NoSpace)
            }
        }
    }

    /// Writes an entry of all that the journal does not hold, or says that there is no room. Calls go on meanwhile.
    pub(crate) fn try_commit(&self, share: Share) -> Result<bool, FileError> {
        let mut journal = guard(&self.journal);
        let (entry, unsynced) = {
            let mut core = guard(&self.core);
            self.assert_writable(&mut core)?;
            (core.take_news(), std::mem::take(&mut core.unsynced))
        };
        let written = self.write_entry(&mut journal, &entry, unsynced, share);
        let mut core = guard(&self.core);
        core.entered(entry, written)
    }

    /// Syncs the device if groups were written, and appends the entry. Returns where it begins, `None` if there is no room.
    fn write_entry(
        &self,
        journal: &mut Journal,
        entry: &Entry,
        unsynced: bool,
        share: Share,
    ) -> Result<Option<JournalPosition>, String> {
        if unsynced {
            self.groups.sync().map_err(|error| with_sources(&error))?;
        }
        if entry.records.is_empty() {
            return Ok(Some(journal.next()));
        }
        let needed = journal.positions_of(&entry.records);
        let used = journal.used();
        let allowed = match share {
            Share::Waiting => journal.sectors() / 2,
            Share::Applying => journal.sectors(),
        };
        if used + needed > allowed {
            return Ok(None);
        }
        let at = journal.next();
        match journal.append(&entry.records) {
            Ok(_) => Ok(Some(at)),
            Err(DiskError::JournalFull { .. } | DiskError::EntryTooLarge { .. }) => Ok(None),
            Err(error) => Err(with_sources(&error)),
        }
    }

    /// Applies what waits in the journal, oldest first, until a checkpoint leaves it almost empty. Files that cannot be
    /// flushed now stay in the journal, at its head.
    ///
    /// # Errors
    /// [`FileError::ReadOnly`].
    pub(crate) fn relieve(&self, flushing: &FlushLock<'_>) -> Result<(), FileError> {
        let mut is_stuck = false;
        // Others may journal more meanwhile: that is not waited for.
        let inodes = guard(&self.core).nodes.journaled_by_age();
        for inode in inodes {
            match self.flush_in(inode, Scope::Journaled, flushing) {
                Ok(()) => {}
                Err(error @ FileError::ReadOnly { .. }) => return Err(error),
                Err(error) => {
                    tracing::warn!(%inode, %error, "sectors in the journal do not find their place");
                    is_stuck = true;
                }
            }
            self.make_room(flushing)?;
        }
        self.checkpoint(flushing)?;
        if is_stuck { self.compact(flushing, || false) } else { Ok(()) }
    }

    /// Writes again, at the journal's head, what older entries have that must stay, and so frees the ring up to there, or until
    /// that is enough: in portions that find room, oldest first.
    pub(crate) fn compact(&self, flushing: &FlushLock<'_>, is_enough: impl Fn() -> bool) -> Result<(), FileError> {
        let (before, portion) = {
            let journal = guard(&self.journal);
            (journal.next().sequence, journal.shape().sectors_in((journal.sectors() / 16).max(1)) as usize)
        };
        while !is_enough() && guard(&self.core).journal_again(before, portion) {
            if !self.try_commit(Share::Applying)? {
                // They are still where they were.
                return Ok(());
            }
            self.checkpoint(flushing)?;
        }
        Ok(())
    }

    /// Behind a flush of all: what found no place goes into the journal as far as it may wait there, and the next flush tries again, that
    /// of the next opening too.
    ///
    /// # Errors
    /// [`FileError::ReadOnly`]; [`FileError::Placeless`] of what is in memory only; else as the flush, but for [`FileError::NoSpace`].
    pub(crate) fn keep_placeless(
        &self,
        flushed: Result<(), FileError>,
        flushing: &FlushLock<'_>,
    ) -> Result<(), FileError> {
        match flushed {
            Ok(()) | Err(FileError::ReadOnly { .. }) => return flushed,
            Err(_) => {}
        }
        for _ in 0..KEPT_ENTRIES_MAX {
            if !self.is_open() {
                self.checkpoint(flushing)?;
            }
            if !self.is_open() {
                break;
            }
            let portion = guard(&self.core).journal_placeless(self.journal_share);
            if portion.is_empty() || !self.try_commit(Share::Waiting)? {
                guard(&self.core).unqueue(&portion);
                break;
            }
        }
        match (guard(&self.core).nodes.unjournaled().len() as u64, flushed) {
            (0, Err(FileError::NoSpace)) => Ok(()),
            (0, flushed) => flushed,
            (sectors, _) => Err(FileError::Placeless { sectors }),
        }
    }

    /// Sees to it that sectors may go into the journal to wait there: at most eleven thirty-seconds of it are taken. What is queued
    /// at once is an eighth ([`Disk`]'s `journal_share`) and what comes with it, so what waits keeps half at most. Returns whether they may.
    ///
    /// The more waits, the more changes of a group are applied together, and the fewer sectors of parity are read and written
    /// for each.
    ///
    /// # Errors
    /// As [`Disk::commit`].
    pub(crate) fn admit(&self) -> Result<bool, FileError> {
        if self.is_open() {
            return Ok(true);
        }
        self.open_journal(&self.lock_flusher())
    }

    fn is_open(&self) -> bool {
        let journal = guard(&self.journal);
        journal.used() <= journal.sectors() * 11 / 32
    }

    fn open_journal(&self, flushing: &FlushLock<'_>) -> Result<bool, FileError> {
        if !self.is_open() {
            // Most of it may be entries whose sectors are in their places by now.
            self.checkpoint(flushing)?;
        }
        if !self.is_open() {
            self.relieve(flushing)?;
        }
        Ok(self.is_open())
    }

    /// Sees to it that so many more sectors of a file may be queued for the next entry, which otherwise would have no end: by writing it
    /// now.
    ///
    /// # Errors
    /// As [`Disk::commit`]; as [`Disk::flush`] where sectors that do not find their places fill the journal.
    pub(crate) fn admit_queued(&self, inode: Inode, sectors: usize, flushing: &FlushLock<'_>) -> Result<(), FileError> {
        if guard(&self.core).queued() + sectors <= self.journal_share {
            return Ok(());
        }
        if !self.open_journal(flushing)? {
            self.flush(inode, flushing)?;
        }
        self.commit_flushing(flushing)
    }

    /// Sees to it that half of the journal is free, so that more can be applied: by a checkpoint, and if old entries
    /// must stay for what waits elsewhere, by writing that again behind all others. It is less than half
    /// ([`Disk::admit`]). What is applied at once takes a quarter and a little, for sectors and as much for sums (after a crash as
    /// much as a group has, in portions), and writing again what must stay an eighth and a little, for whoever opens the disk after a crash.
    ///
    /// # Errors
    /// As [`Disk::commit`].
    pub(crate) fn make_room(&self, flushing: &FlushLock<'_>) -> Result<(), FileError> {
        let is_filled = || {
            let journal = guard(&self.journal);
            journal.used() > journal.sectors() / 2
        };
        if !is_filled() {
            return Ok(());
        }
        self.checkpoint(flushing)?;
        self.compact(flushing, || !is_filled())
    }

    /// Brings the catalog into the page file, and frees the journal up to what still waits in it.
    ///
    /// Where that finds no room, it is tried again with a file that ends behind the last page in use. If there is none then, it may use half of the sectors that are spared for what frees space, and from then on nothing is taken that
    /// makes the catalog larger ([`Disk::assert_catalog_room`]). And where they do not suffice, rows that the journal has go ahead of the
    /// others, deletions first, in transactions that are as small as need be; those of one row may use all that is spared. Each takes few
    /// pages, and those that the one before last gave up are free: two small ones make all free that a large one gave up.
    ///
    /// # Errors
    /// As [`Disk::commit`]; [`FileError::NoSpace`] if the catalog has no room: then what did not find any is in the journal as before.
    pub(crate) fn checkpoint(&self, _flushing: &FlushLock<'_>) -> Result<(), FileError> {
        let brought = self.bring_changes();
        self.settle_kept()?;
        brought
    }

    fn bring_changes(&self) -> Result<(), FileError> {
        if guard(&self.core).queued() > 0 {
            // Some go with changes that the catalog is to get: the borders of a hole. Without room for them it gets the hole, as a hole that nobody
            // synced may be there in part; the size of a file that was cut waits with its last sector.
            self.try_commit(Share::Applying)?;
        }
        for _ in 0..WHOLE_TRIES {
            if self.checkpoint_whole()? {
                self.catalog_full.store(false, Ordering::Release);
                return Ok(());
            }
        }
        self.catalog_full.store(true, Ordering::Release);
        let relieving = Relieving::begin(self);
        if self.checkpoint_whole()? {
            return Ok(());
        }
        // What finds no room there is left to the whole.
        self.try_commit(Share::Applying)?;
        self.bring_portions(&relieving)?;
        if self.checkpoint_whole()? {
            return Ok(());
        }
        self.stuck_bytes.store(guard(&self.core).catalog.overlay_bytes(), Ordering::Release);
        tracing::warn!(disk = %self.device.label(), "the catalog has no room for what was changed, which stays in the journal");
        Err(FileError::NoSpace)
    }

    /// Brings all that was changed into the page file in one transaction; `false` if it has no room: then all is as it was before.
    fn checkpoint_whole(&self) -> Result<bool, FileError> {
        self.checkpoint_with(None)
    }

    /// The same, with where sums of swaths are kept; any other checkpoint forgets that.
    pub(crate) fn checkpoint_with(&self, swaths: Option<&SwathsKept>) -> Result<bool, FileError> {
        let mut journal = guard(&self.journal);
        let mut core = guard(&self.core);
        self.assert_writable(&mut core)?;
        if let Err(error) = self.groups.sync() {
            return Err(core.fail(with_sources(&error)));
        }
        self.keep_promises(&core)?;
        core.unsynced = false;
        let oldest = core.nodes.oldest_journaled();
        let position = oldest.unwrap_or_else(|| journal.next());
        let mut kept = self.kept_rows();
        kept.push(Change { table: Table::State, key: keys::SWATHS.to_vec(), value: swaths.map(SwathsKept::encode) });
        if let Err(error) = core.checkpoint(position, journal.next(), kept) {
            self.after_no_room(&mut core, &error)?;
            return Ok(false);
        }
        self.count_written();
        self.stuck_bytes.store(0, Ordering::Release);
        journal.trim(position);
        guard(&self.space).reopen();
        self.apply_slabs(&mut core);
        Ok(true)
    }

    /// Sees to it that slabs leave room for what waits, which was promised that, beside what is kept for the catalog: files cannot have that. Where
    /// the catalog finds no room otherwise, slabs may use what is kept.
    pub(crate) fn keep_promises(&self, core: &Core) -> Result<(), FileError> {
        let promised = self.promised(core)?;
        let mut space = guard(&self.space);
        let left = match promised {
            0 => 0,
            _ if !self.catalog_full.load(Ordering::Acquire) => promised + self.kept(),
            _ if promised <= space.open_room() => promised,
            // What was promised more than there is cannot be placed: then the catalog goes first.
            _ => self.room(&space),
        };
        space.let_slabs_leave_room(left);
        Ok(())
    }

    /// The room that what waits was promised, or more where there is enough.
    fn promised(&self, core: &Core) -> Result<u64, FileError> {
        let (waiting, clusters) = (core.nodes.waiting, core.nodes.clusters);
        let promised = self.worst(waiting, clusters);
        if promised <= self.room(&guard(&self.space)) {
            return Ok(promised);
        }
        // What has a place, or room that is kept for it, needs no other; there is time to look, for so much does not wait often.
        let mut homeless = 0;
        for (inode, node) in core.nodes.iter() {
            let sectors: Vec<u64> = node.waiting.keys().copied().collect();
            for row in clusters_of(&sectors) {
                homeless += core.homeless(inode, row, self.shape.data)?;
            }
        }
        Ok(self.worst(homeless, clusters.min(homeless)))
    }

    /// What waits was promised room beside what is kept for the catalog: where the catalog takes a part of that, files have as much of the rest.
    fn settle_kept(&self) -> Result<(), FileError> {
        let core = guard(&self.core);
        if !self.catalog_full.load(Ordering::Acquire) && guard(&self.space).files_have() == 0 {
            return Ok(());
        }
        let promised = self.promised(&core)?;
        let mut space = guard(&self.space);
        let kept = space.open_room().saturating_sub(promised).min(self.kept());
        space.let_files_have(self.kept() - kept, kept);
        Ok(())
    }

    /// Brings rows that the journal has into the page file, as far as there is room: fewer at once whenever there is none.
    fn bring_portions(&self, relieving: &Relieving<'_>) -> Result<(), FileError> {
        // No entry is on its way into it.
        let _journal = guard(&self.journal);
        let mut core = guard(&self.core);
        self.assert_writable(&mut core)?;
        let mut rows = core.journaled_rows();
        let mut portion = rows.len().div_ceil(2);
        while !rows.is_empty() {
            portion = portion.min(rows.len());
            relieving.may_use_all(portion == 1);
            match core.catalog.bring(&rows[..portion]) {
                Ok(()) => {
                    self.count_written();
                    rows.drain(..portion);
                    portion *= 2;
                }
                Err(error) => {
                    self.after_no_room(&mut core, &error)?;
                    if portion == 1 {
                        break;
                    }
                    portion = (portion / 4).max(1);
                }
            }
        }
        relieving.may_use_all(false);
        Ok(())
    }

    /// After a transaction for which the catalog had no room: it is as of the last one, and memory and the journal have what came since.
    ///
    /// # Errors
    /// [`FileError::ReadOnly`] if that was for any other reason.
    pub(crate) fn after_no_room(&self, core: &mut Core, error: &CatalogError) -> Result<(), FileError> {
        if !self.pages.is_full() {
            return Err(core.fail(with_sources(error)));
        }
        let opened = self.pages.recover().and_then(|()| {
            core.taken.forget();
            // Its file may be longer than the slabs, and it takes pages there while others are free. Closing it cuts the file behind the last page in
            // use, with pages that are free and as low as can be; if there are none for that, it is as before.
            drop(Catalog::open(self.pages.clone(), self.tuning.catalog_cached)?);
            if self.pages.is_full() {
                self.pages.recover()?;
            }
            core.catalog.reopen(self.pages.clone(), self.tuning.catalog_cached)?;
            Ok(())
        });
        if let Err(error) = opened {
            return Err(core.fail(with_sources(&error)));
        }
        // They are in the superblock all the same.
        self.apply_slabs(core);
        Ok(())
    }

    /// Refuses what makes the catalog larger where it has no room for that beyond what is spared for what frees space. What was deleted
    /// since may have made some.
    pub(crate) fn assert_catalog_room(&self) -> Result<(), FileError> {
        if self.has_catalog_room() {
            return Ok(());
        }
        let flushing = self.lock_flusher();
        let changed = guard(&self.core).catalog.overlay_bytes() > 0 || guard(&self.space).given_sectors() > 0;
        if changed {
            unless_full(self.checkpoint(&flushing))?;
        }
        if !self.has_spare_gap() && self.free_pages.load(Ordering::Acquire) == UNCOUNTED {
            self.count_free_pages()?;
        }
        if self.has_catalog_room() { Ok(()) } else { Err(FileError::NoSpace) }
    }

    /// Whether there is room for a larger catalog beyond what is spared for what frees space: that is a gap of free sectors, or where there is
    /// none, as many pages of slabs that are known to be free.
    pub(crate) fn has_catalog_room(&self) -> bool {
        let counted = self.free_pages.load(Ordering::Acquire) != UNCOUNTED;
        self.may_have_catalog_room() && (counted || self.has_spare_gap())
    }

    /// The same, where also what nobody has counted may be room.
    pub(crate) fn may_have_catalog_room(&self) -> bool {
        let free = self.free_pages.load(Ordering::Acquire);
        !self.catalog_full.load(Ordering::Acquire) && (free >= SPARE_PAGES_MIN || self.has_spare_gap())
    }

    fn has_spare_gap(&self) -> bool {
        guard(&self.space).largest() >= self.spare_least()
    }

    /// Counts the free pages of slabs, by walking the catalog.
    fn count_free_pages(&self) -> Result<(), FileError> {
        let mut core = guard(&self.core);
        self.assert_writable(&mut core)?;
        let allocated = match core.catalog.allocated_pages() {
            Ok(allocated) => allocated,
            Err(error) => return Err(core.fail(with_sources(&error))),
        };
        let free = self.pages.capacity().saturating_sub(allocated + PAGES_APART);
        // Of a large catalog a part of it, so that it is not walked often.
        let enough = free >= (SPARE_PAGES_MIN + 32).max(allocated / 64);
        self.free_pages.store(if enough { free } else { 0 }, Ordering::Release);
        Ok(())
    }

    /// Takes pages that were written off those that are known to be free: the database may have taken as many. Where that leaves too
    /// few they are counted again.
    fn count_written(&self) {
        let written = self.pages.take_written();
        let left = |free| match free {
            UNCOUNTED => None,
            free => Some(u64::checked_sub(free, written).filter(|free| *free >= SPARE_PAGES_MIN).unwrap_or(UNCOUNTED)),
        };
        // Nobody has counted them, and that stays so.
        let _ = self.free_pages.fetch_update(Ordering::AcqRel, Ordering::Acquire, left);
    }

    /// A checkpoint, if so much was changed that it must not wait: within whatever changes much, so that no transaction is without
    /// bound. Without room for it, it is made later.
    ///
    /// # Errors
    /// As [`Disk::commit`].
    pub(crate) fn checkpoint_if_heavy(&self, flushing: &FlushLock<'_>) -> Result<(), FileError> {
        let heavy = self.is_heavy(&guard(&self.core));
        if heavy { unless_full(self.checkpoint(flushing)) } else { Ok(()) }
    }

    /// Brings into the catalog what slabs have taken.
    pub(crate) fn apply_slabs(&self, core: &mut Core) {
        let taken = guard(&self.space).take_recorded();
        core.apply(taken);
    }

    /// All inodes with sectors that wait or sizes that the catalog does not know.
    pub(crate) fn restless(&self) -> Vec<Inode> {
        let core = guard(&self.core);
        let restless = core.nodes.iter().filter(|(_, node)| node.live.is_some() || !node.waiting.is_empty());
        restless.map(|(inode, _)| inode).collect()
    }
}

/// While it is there, slabs may be taken of the sectors that are spared for what frees space: half of them.
struct Relieving<'d>(&'d Disk);

impl<'d> Relieving<'d> {
    fn begin(disk: &'d Disk) -> Relieving<'d> {
        let relieving = Relieving(disk);
        relieving.may_use_all(false);
        relieving
    }

    /// Whether the other half may be taken too.
    fn may_use_all(&self, all: bool) {
        let left = if all { 0 } else { self.0.spare() / 2 };
        guard(&self.0.space).let_slabs_leave(Some(left));
    }
}

impl Drop for Relieving<'_> {
    fn drop(&mut self) {
        guard(&self.0.space).let_slabs_leave(None);
    }
}

/// A checkpoint that found no room is made later: the journal has what it was to have.
pub(crate) fn unless_full(checkpointed: Result<(), FileError>) -> Result<(), FileError> {
    match checkpointed {
        Err(FileError::NoSpace) => Ok(()),
        other => other,
    }
}

/// The first may have found no room only because the database took pages behind the slabs while others were free.
const WHOLE_TRIES: usize = 2;
/// Nobody has counted the free pages of the catalog yet.
pub(crate) const UNCOUNTED: u64 = u64::MAX;
/// Pages of the catalog's file that are none of its tables: the database's header, and its regions', of 4 GiB each.
pub(crate) const PAGES_APART: u64 = 16;
/// What may wait in the journal is in fewer entries, each of an eighth of it.
const KEPT_ENTRIES_MAX: usize = 8;
/// An entry that found no room finds some after the journal was emptied, unless others fill it first.
const COMMIT_TRIES: usize = 16;

#[cfg(test)]
mod tests;
