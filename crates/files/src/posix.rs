//! The disk as a [`FileTree`]: each call takes the lock, plans over the catalog, and applies the plan.

use bytes::Bytes;

use crate::commit::unless_full;
use crate::content::Dropping;
use crate::core::Core;
use crate::disk::{Disk, guard, write_gate};
use crate::namespace::{self, Gone};
use crate::view::View;
use crate::{
    Attributes, DirectoryEntry, FileError, FileTree, Inode, Kind, NewAttributes, NewNode, Record, RenameMode, Seek,
    SpaceFigures, Table, Timestamp, keys,
};

impl Disk {
    /// Plans over the catalog as it is, and applies the plan.
    fn change<R>(&self, plan: impl FnOnce(&mut View<'_>, Timestamp) -> Result<R, FileError>) -> Result<R, FileError> {
        self.change_known(|core, now| {
            let mut view = View::new(&core.catalog);
            let result = plan(&mut view, now)?;
            let changes = view.into_changes();
            core.apply(changes);
            Ok(result)
        })
    }

    /// As [`Disk::change`], for what memory knows better than the catalog.
    fn change_known<R>(&self, work: impl FnOnce(&mut Core, Timestamp) -> Result<R, FileError>) -> Result<R, FileError> {
        let now = self.now();
        let mut core = guard(&self.core);
        self.assert_writable(&mut core)?;
        let result = work(&mut core, now)?;
        let heavy = self.is_heavy(&core);
        drop(core);
        if heavy {
            unless_full(self.checkpoint(&self.lock_flusher()))?;
        }
        Ok(result)
    }

    /// Frees a node that lost its last name, unless it is open.
    fn bury(&self, gone: Option<Gone>) -> Result<(), FileError> {
        match gone {
            Some(gone) => self.reap(gone.inode),
            None => Ok(()),
        }
    }

    /// Frees an orphan that nobody has open.
    pub(crate) fn reap(&self, inode: Inode) -> Result<(), FileError> {
        let is_open = |core: &Core| core.nodes.find(inode).is_some_and(|node| node.opens > 0);
        if is_open(&guard(&self.core)) {
            return Ok(());
        }
        let flushing = self.lock_flusher();
        let gate = self.gate(inode);
        let alone = write_gate(&gate);
        let (is_orphan, is_file) = {
            let core = guard(&self.core);
            let orphaned = core.catalog.get(Table::Orphans, &keys::inode(inode))?.is_some();
            let is_orphan = orphaned && !is_open(&core) && core.failed.is_none();
            (is_orphan, is_orphan && core.inode(inode)?.kind == Kind::File)
        };
        if is_file {
            self.drop_portions(inode, 0..u64::MAX, Dropping::Orphan, &flushing)?;
        }
        let mut core = guard(&self.core);
        // Without a name nobody opens it, and if somebody who knew its number did just now, it is gone.
        if is_orphan {
            if is_file {
                core.record(Record::Forget { inode, first: 0, end: u64::MAX });
                core.nodes.take_range(inode, 0, u64::MAX);
                core.release_size(inode);
                core.replace(inode, 0..u64::MAX, None, self.shape, &mut guard(&self.space))?;
            }
            core.nodes.node(inode).live = None;
            let mut view = View::new(&core.catalog);
            namespace::forget_orphan(&mut view, inode)?;
            let changes = view.into_changes();
            core.apply(changes);
            core.inodes -= 1;
        }
        drop((core, alone));
        drop(gate);
        guard(&self.core).nodes.sweep(inode);
        Ok(())
    }

    fn attributes_of(&self, core: &mut Core, inode: Inode) -> Result<Attributes, FileError> {
        let record = core.inode(inode)?;
        let sectors = match record.kind {
            Kind::File => self.sectors_of(core, inode)?,
            _ => 0,
        };
        Ok(record.attributes(inode, sectors))
    }

    /// Sectors of the device that a file takes, or will take.
    fn sectors_of(&self, core: &mut Core, inode: Inode) -> Result<u64, FileError> {
        let placed = match core.taken.of(inode) {
            Some(placed) => placed,
            None => {
                let windows = core.all_windows(inode, 0..u64::MAX, self.shape.data)?;
                core.taken.count(inode, &windows)
            }
        };
        Ok(placed + core.nodes.find(inode).map_or(0, |node| node.waiting.len() as u64))
    }
}

/// Nodes that lose their last name stay orphans until they are freed, with the lock that this takes.
fn keep(_: Inode) -> bool {
    true
}

impl FileTree for Disk {
    fn lookup(&self, directory: Inode, name: &[u8]) -> Result<Attributes, FileError> {
        let mut core = guard(&self.core);
        let (inode, _) = namespace::lookup(&View::new(&core.catalog), directory, name)?;
        self.attributes_of(&mut core, inode)
    }

    fn attributes(&self, inode: Inode) -> Result<Attributes, FileError> {
        self.attributes_of(&mut guard(&self.core), inode)
    }

    fn set_attributes(&self, inode: Inode, new: &NewAttributes) -> Result<Attributes, FileError> {
        guard(&self.core).inode(inode)?;
        if let Some(bytes) = new.bytes {
            self.resize(inode, bytes)?;
        }
        let rest = NewAttributes { bytes: None, ..new.clone() };
        if new.bytes.is_none() || rest != NewAttributes::default() {
            self.change_known(|core, now| {
                let known = core.inode(inode)?;
                let mut view = View::new(&core.catalog);
                view.set_inode(inode, &known);
                let record = namespace::set_attributes(&mut view, inode, &rest, now)?;
                core.set_but_size(inode, &record)
            })?;
        }
        self.attributes(inode)
    }

    fn make(&self, directory: Inode, name: &[u8], node: &NewNode) -> Result<Attributes, FileError> {
        self.assert_catalog_room()?;
        let (inode, record) = self.change_known(|core, now| {
            let mut view = View::new(&core.catalog);
            let made = namespace::make(&mut view, directory, name, node, now)?;
            let changes = view.into_changes();
            core.apply(changes);
            core.inodes += 1;
            Ok(made)
        })?;
        Ok(record.attributes(inode, 0))
    }

    fn link(&self, inode: Inode, directory: Inode, name: &[u8]) -> Result<Attributes, FileError> {
        self.assert_catalog_room()?;
        self.change(|view, now| namespace::link(view, inode, directory, name, now))?;
        self.attributes(inode)
    }

    fn unlink(&self, directory: Inode, name: &[u8]) -> Result<(), FileError> {
        let gone = self.change(|view, now| namespace::unlink(view, directory, name, keep, now))?;
        self.bury(gone)
    }

    fn remove_directory(&self, directory: Inode, name: &[u8]) -> Result<(), FileError> {
        let gone = self.change(|view, now| namespace::remove_directory(view, directory, name, keep, now))?;
        self.bury(gone)
    }

    fn rename(&self, from: (Inode, &[u8]), to: (Inode, &[u8]), mode: RenameMode) -> Result<(), FileError> {
        self.place_before_replacing(from, to, mode)?;
        let gone = self.change(|view, now| namespace::rename(view, from, to, mode, keep, now))?;
        self.bury(gone)
    }

    fn read_link(&self, inode: Inode) -> Result<Vec<u8>, FileError> {
        let mut core = guard(&self.core);
        let target = namespace::read_link(&View::new(&core.catalog), inode)?;
        let record = core.inode(inode)?;
        self.touch_accessed(&mut core, inode, &record);
        Ok(target)
    }

    fn read_directory(
        &self,
        directory: Inode,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<DirectoryEntry>, FileError> {
        let mut core = guard(&self.core);
        let rows = namespace::read_directory(&View::new(&core.catalog), directory, after, limit)?;
        let record = core.inode(directory)?;
        self.touch_accessed(&mut core, directory, &record);
        Ok(rows)
    }

    fn open(&self, inode: Inode) -> Result<(), FileError> {
        let mut core = guard(&self.core);
        core.inode(inode)?;
        core.nodes.node(inode).opens += 1;
        Ok(())
    }

    fn release(&self, inode: Inode) {
        {
            let mut core = guard(&self.core);
            let node = core.nodes.node(inode);
            node.opens = node.opens.saturating_sub(1);
            core.nodes.sweep(inode);
            if !matches!(core.catalog.get(Table::Orphans, &keys::inode(inode)), Ok(Some(_))) {
                return;
            }
        }
        if let Err(error) = self.reap(inode) {
            // It stays an orphan, and is freed when the disk is opened next.
            tracing::warn!(%inode, %error, "a file without a name could not be freed");
        }
    }

    fn read(&self, inode: Inode, offset: u64, into: &mut [u8]) -> Result<usize, FileError> {
        self.read_file(inode, offset, into)
    }

    fn read_bytes(&self, inode: Inode, offset: u64, count: usize) -> Result<Bytes, FileError> {
        self.read_file_bytes(inode, offset, count)
    }

    fn write(&self, inode: Inode, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.write_file(inode, offset, bytes)
    }

    fn allocate(&self, inode: Inode, offset: u64, bytes: u64, keep_size: bool) -> Result<(), FileError> {
        self.allocate_file(inode, offset, bytes, keep_size)
    }

    fn punch(&self, inode: Inode, offset: u64, bytes: u64) -> Result<(), FileError> {
        self.punch_file(inode, offset, bytes)
    }

    fn seek(&self, inode: Inode, offset: u64, what: Seek) -> Result<u64, FileError> {
        self.seek_file(inode, offset, what)
    }

    fn sync(&self, inode: Inode) -> Result<(), FileError> {
        self.sync_node(inode)
    }

    fn sync_all(&self) -> Result<(), FileError> {
        let flushing = self.lock_flusher();
        let flushed = self.flush_all(&flushing);
        let kept = self.keep_placeless(flushed, &flushing);
        self.commit_flushing(&flushing)?;
        kept
    }

    fn attribute(&self, inode: Inode, name: &[u8]) -> Result<Vec<u8>, FileError> {
        namespace::attribute(&View::new(&guard(&self.core).catalog), inode, name)
    }

    fn attribute_names(&self, inode: Inode) -> Result<Vec<Vec<u8>>, FileError> {
        namespace::attribute_names(&View::new(&guard(&self.core).catalog), inode)
    }

    fn set_attribute(&self, inode: Inode, name: &[u8], value: &[u8], there: Option<bool>) -> Result<(), FileError> {
        self.assert_catalog_room()?;
        self.change(|view, now| namespace::set_attribute(view, inode, name, value, there, now))
    }

    fn remove_attribute(&self, inode: Inode, name: &[u8]) -> Result<(), FileError> {
        self.change(|view, now| namespace::remove_attribute(view, inode, name, now))
    }

    fn space(&self) -> SpaceFigures {
        let core = guard(&self.core);
        let (usable, room) = {
            let space = guard(&self.space);
            (self.usable(&space), space.open_room() + space.given_sectors())
        };
        let usable = if self.may_have_catalog_room() { usable } else { 0 };
        let spoken_for = self.worst(core.nodes.waiting, core.nodes.clusters);
        let superblock = self.superblock.current();
        SpaceFigures {
            data_sectors: self.data_of(superblock.sectors),
            free_sectors: self
                .data_of(usable.saturating_sub(spoken_for))
                .min(room.saturating_sub(self.data_of(self.kept()) + spoken_for)),
            inodes: core.inodes,
        }
    }
}

impl Disk {
    /// How many sectors of data fit into so many of the device: parity and sums are taken off.
    fn data_of(&self, sectors: u64) -> u64 {
        let (k, m) = (u128::from(self.shape.data), u128::from(self.shape.parity));
        let sums = claystone_group::SUMS_PER_SECTOR as u128;
        (u128::from(sectors) * k * sums / ((k + m) * sums + k)) as u64
    }

    /// Programs replace a file by writing a new one and renaming it, and not all of them sync it: what was written is
    /// brought to its place first, so that a crash leaves the old content or the new one, and not an empty file.
    fn place_before_replacing(
        &self,
        from: (Inode, &[u8]),
        to: (Inode, &[u8]),
        mode: RenameMode,
    ) -> Result<(), FileError> {
        let source = {
            let core = guard(&self.core);
            let view = View::new(&core.catalog);
            if mode != RenameMode::Replace || namespace::lookup(&view, to.0, to.1).is_err() {
                return Ok(());
            }
            namespace::lookup(&view, from.0, from.1).map(|(inode, _)| inode)
        };
        match source {
            Ok(inode) => self.flush(inode, &self.lock_flusher()),
            Err(_) => Ok(()),
        }
    }

    /// See [`FileTree::sync`].
    pub(crate) fn sync_node(&self, inode: Inode) -> Result<(), FileError> {
        let admitted = self.admit()?;
        let journaling = self.queue_for_sync(inode, admitted)?;
        if journaling.is_none() {
            self.flush(inode, &self.lock_flusher())?;
        }
        self.commit()?;
        let left_out = |core: &Core, (sector, version): &(u64, u64)| {
            let waiting = core.nodes.find(inode).and_then(|node| node.waiting.get(sector));
            waiting.is_some_and(|waiting| waiting.older().is_none_or(|journaled| journaled.version < *version))
        };
        let refused = {
            let core = guard(&self.core);
            journaling.is_some_and(|journaling| journaling.iter().any(|one| left_out(&core, one)))
        };
        if refused {
            // The journal had no room for them even when it was emptied: they go to groups, or the error says why not.
            self.flush(inode, &self.lock_flusher())?;
            self.commit()?;
        }
        Ok(())
    }

    /// Sends what an fsync makes durable along with the next entry: the file's record, or sectors with the record that counts with them. Returns
    /// these sectors and their versions; `None` where they are to go to groups, as where they are not `admitted`.
    pub(crate) fn queue_for_sync(&self, inode: Inode, admitted: bool) -> Result<Option<Vec<(u64, u64)>>, FileError> {
        let mut core = guard(&self.core);
        self.assert_writable(&mut core)?;
        core.inode(inode)?;
        core.nodes.promise(inode, &[]);
        let waiting: Vec<(u64, u64)> = core.nodes.find(inode).map_or_else(Vec::new, |node| {
            let news = node.waiting.iter().filter(|(_, waiting)| waiting.journaled.is_none());
            news.map(|(&sector, waiting)| (sector, waiting.version)).collect()
        });
        let sectors: Vec<u64> = waiting.iter().map(|(sector, _)| *sector).collect();
        if waiting.is_empty() || self.place_tiny(&mut core, inode)? {
            core.settle(inode)?;
            return Ok(Some(Vec::new()));
        }
        if !admitted || !self.fits_the_journal(&core, inode, &sectors)? {
            return Ok(None);
        }
        core.nodes.promise(inode, &sectors);
        core.journal_waiting(inode, sectors);
        Ok(Some(waiting))
    }

    /// Whether an fsync puts these sectors into the journal: they are few, or most have a place where they would be written
    /// in place.
    fn fits_the_journal(&self, core: &Core, inode: Inode, waiting: &[u64]) -> Result<bool, FileError> {
        if waiting.len() + core.queued() > self.journal_share.min(self.tuning.apply_sectors_max) {
            return Ok(false);
        }
        if waiting.len() as u64 <= self.tuning.journal_sectors_max {
            return Ok(true);
        }

        let span = waiting[0]..waiting[waiting.len() - 1] + 1;
        let windows = core.windows(inode, span, self.shape.data)?;
        let placeless = waiting.iter().filter(|sector| {
            let behind = windows.partition_point(|window| window.first <= **sector);
            behind.checked_sub(1).is_none_or(|index| **sector >= windows[index].end())
        });
        let long = crate::placing::clusters(waiting).iter().any(|row| row.end - row.start >= self.shape.data.into());
        Ok(!long && placeless.count() as u64 <= self.tuning.journal_sectors_max)
    }
}
