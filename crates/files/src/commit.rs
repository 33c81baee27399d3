//! How changes become durable: journal entries, and checkpoints that free the journal.
//!
//! Locks are taken in this order: flusher, a node's gate, journal, core, space map. Whoever holds a later one never waits for an
//! earlier one.

use std::sync::atomic::Ordering;

use crate::core::{Core, Entry};
use crate::disk::{Disk, FlushLock, guard};
use crate::error::with_sources;
use crate::journal::{Journal, JournalPosition};
use crate::placing::Scope;
use crate::{DiskError, FileError, Inode};

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
    /// [`FileError::ReadOnly`] if the disk failed, or fails now.
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
        Err(guard(&self.core).fail("the journal has no room after it was emptied".into()))
    }

    /// The same for who holds the flusher's lock.
    ///
    /// # Errors
    /// As [`Disk::commit`].
    pub(crate) fn commit_flushing(&self, flushing: &FlushLock<'_>) -> Result<(), FileError> {
        if self.try_commit(Share::Applying)? {
            return Ok(());
        }
        let checkpointed = self.checkpoint(flushing);
        unless_full(checkpointed)?;
        match self.try_commit(Share::Applying)? {
            true => Ok(()),
            false => Err(guard(&self.core).fail("the journal has no room after a checkpoint".into())),
        }
    }

    /// Writes an entry of all that the journal does not hold, or says that there is no room. Calls go on meanwhile.
    fn try_commit(&self, share: Share) -> Result<bool, FileError> {
        let mut journal = guard(&self.journal);
        let (entry, unsynced) = {
            let mut core = guard(&self.core);
            core.assert_writable()?;
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
    /// ([`Disk::admit`]). What is applied at once takes a quarter and a little, for sectors and as much for sums, and writing again
    /// what must stay an eighth and a little, for whoever opens the disk after a crash.
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
    /// # Errors
    /// As [`Disk::commit`]; [`FileError::NoSpace`] if the catalog has no room: then all is as it was before.
    pub(crate) fn checkpoint(&self, _flushing: &FlushLock<'_>) -> Result<(), FileError> {
        if guard(&self.core).queued() > 0 {
            // Some go with changes that the catalog is to get: a file's end with its last sector.
            self.try_commit(Share::Applying)?;
        }
        let mut journal = guard(&self.journal);
        let mut core = guard(&self.core);
        core.assert_writable()?;
        if let Err(error) = self.groups.sync() {
            return Err(core.fail(with_sources(&error)));
        }
        core.unsynced = false;
        let oldest = core.nodes.oldest_journaled();
        let position = oldest.unwrap_or_else(|| journal.next());
        if let Err(error) = core.checkpoint(position, journal.next(), self.kept_rows()) {
            if !self.pages.is_full() {
                return Err(core.fail(with_sources(&error)));
            }
            self.catalog_full.store(true, Ordering::Release);
            self.open_catalog_anew(&mut core)?;
            return Err(FileError::NoSpace);
        }
        self.catalog_full.store(false, Ordering::Release);
        journal.trim(position);
        guard(&self.space).reopen();
        self.apply_slabs(&mut core);
        Ok(())
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

    /// After a checkpoint for which the catalog had no room: it is as of the last one, and memory and the journal have what came since.
    fn open_catalog_anew(&self, core: &mut Core) -> Result<(), FileError> {
        let opened = self.pages.recover().and_then(|()| {
            core.catalog.reopen(self.pages.clone(), self.tuning.catalog_cached)?;
            Ok(())
        });
        if let Err(error) = opened {
            return Err(core.fail(with_sources(&error)));
        }
        // They are in the superblock all the same.
        self.apply_slabs(core);
        tracing::warn!(disk = %self.device.label(), "the catalog has no room for what was changed, which stays in the journal");
        Ok(())
    }

    /// Brings into the catalog what slabs have taken.
    fn apply_slabs(&self, core: &mut Core) {
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

/// A checkpoint that found no room is made later: the journal has what it was to have.
pub(crate) fn unless_full(checkpointed: Result<(), FileError>) -> Result<(), FileError> {
    match checkpointed {
        Err(FileError::NoSpace) => Ok(()),
        other => other,
    }
}

/// What may wait in the journal is in fewer entries, each of an eighth of it.
const KEPT_ENTRIES_MAX: usize = 8;
/// An entry that found no room finds some after the journal was emptied, unless others fill it first.
const COMMIT_TRIES: usize = 16;

#[cfg(test)]
mod tests;
