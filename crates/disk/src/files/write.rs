//! From absent to committed, and back to absent.
//!
//! Invariants:
//! 1. The header is written after all content, and a commit is reported after both are synced and the name is.
//! 2. What fails before that takes its file away again; its space is free before the error is told.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use claystone_chunk::{ByteRange, ChunkError, ChunkId, Durability};
use claystone_env::File;

use super::{Files, Room, Unsynced, lock};
use crate::error::Refused;
use crate::index::{dir_of, dir_path, file_path};
use crate::layout::{CHUNK_BYTES_MAX, Header, SECTOR, SectorCrc, data_offset, file_bytes, head, table_of_zeros};
use crate::reader::Opened;

/// Chunk files that wait for a sync; one more makes whoever adds it sync them all.
pub(super) const UNSYNCED_MAX: usize = 128;

impl Files {
    /// (absent) -> writing: takes the id. Does not block.
    pub fn begin(&self, id: ChunkId, bytes: u64) -> Result<(), ChunkError> {
        self.writable()?;
        if bytes > CHUNK_BYTES_MAX {
            let range = ByteRange { offset: 0, bytes };
            return Err(ChunkError::OutOfRange { id, range, chunk_bytes: CHUNK_BYTES_MAX });
        }
        match lock(&self.writing).entry(id) {
            Entry::Occupied(_) => Err(ChunkError::AlreadyExists { id }),
            Entry::Vacant(free) => {
                free.insert(false);
                Ok(())
            }
        }
    }

    /// writing -> (absent or committed): gives the id free. Does not block.
    pub fn end(&self, id: ChunkId) {
        lock(&self.writing).remove(&id);
    }

    pub(super) fn has_unfinished_file(&self, id: ChunkId) -> bool {
        lock(&self.writing).get(&id).copied().unwrap_or(false)
    }

    fn set_unfinished_file(&self, id: ChunkId, made: bool) {
        // The entry is missing if the writer was dropped while its job was queued; its file is then a remnant.
        if let Some(entry) = lock(&self.writing).get_mut(&id) {
            *entry = made;
        }
    }

    /// Makes the file of a chunk in `writing` that will take so many bytes.
    pub fn create_file(&self, id: ChunkId, file_bytes: u64) -> Result<Arc<dyn File>, ChunkError> {
        self.writable()?;
        self.check_space(file_bytes, Room::AboveReserve)?;
        let path = file_path(id);
        let mut result = self.directory.create(&path);
        match result.as_ref().err().map(io::Error::kind) {
            Some(io::ErrorKind::AlreadyExists) => {
                match self.open_any(id)? {
                    Some(Opened::Remnant) => self.remove_file(id)?,
                    Some(_) => return Err(ChunkError::AlreadyExists { id }),
                    None => (),
                }
                result = self.directory.create(&path);
            }
            Some(io::ErrorKind::NotFound) => {
                // Somebody removed the directory, or the whole disk.
                self.check_alive()?;
                let made = self.directory.make_dir("chunks");
                let made = made.and_then(|()| self.directory.make_dir(&dir_path(dir_of(id))));
                let made = made.and_then(|()| self.directory.sync_dir("chunks"));
                made.map_err(|error| self.change_failed("making a directory", &error, 0))?;
                result = self.directory.create(&path);
            }
            _ => (),
        }
        let file = result.map_err(|error| self.change_failed("making a chunk file", &error, file_bytes))?;
        self.set_unfinished_file(id, true);
        Ok(file)
    }

    /// Writes content of a chunk in `writing` from `first_sector` on and returns its table entries. On an error the
    /// file is gone.
    pub fn write_content(
        &self,
        id: ChunkId,
        bytes: u64,
        file: &dyn File,
        first_sector: u64,
        content: &[u8],
    ) -> Result<Vec<u8>, ChunkError> {
        self.writable()?;
        let offset = data_offset(bytes) + first_sector * SECTOR;
        match file.write_around(offset, content) {
            Ok(()) => Ok(SectorCrc::new(id).table(first_sector, content)),
            Err(error) => Err(self.write_failed(id, &error, content.len() as u64).into()),
        }
    }

    /// writing -> committed: writes the head of a chunk whose content is written, and syncs.
    pub fn commit(
        &self,
        id: ChunkId,
        bytes: u64,
        file: &Arc<dyn File>,
        table: &[u8],
        durability: Durability,
    ) -> Result<(), ChunkError> {
        self.writable()?;
        let header = Header { id, bytes, is_hollow: false };
        let head = head(&header, table);
        if let Err(error) = file.write_at(0, &head) {
            return Err(self.write_failed(id, &error, head.len() as u64).into());
        }
        self.committed(id, file, durability)
    }

    /// (absent) -> committed in one go, for a chunk in `writing` whose whole content is at hand.
    pub fn write_whole(&self, id: ChunkId, content: &[Bytes], durability: Durability) -> Result<(), ChunkError> {
        let joined;
        let content: &[u8] = match content {
            [one] => one,
            several => {
                joined = several.concat();
                &joined
            }
        };
        let header = Header { id, bytes: content.len() as u64, is_hollow: false };
        let file = self.create_file(id, file_bytes(header.bytes))?;
        let mut head = head(&header, &SectorCrc::new(id).table(0, content));
        let written = if header.data_offset() < SECTOR {
            head.extend_from_slice(content);
            file.write_at(0, &head)
        } else {
            file.write_at(header.data_offset(), content).and_then(|()| file.write_at(0, &head))
        };
        if let Err(error) = written {
            return Err(self.write_failed(id, &error, file_bytes(header.bytes)).into());
        }
        self.committed(id, &file, durability)
    }

    /// (absent) -> committed, for a chunk in `writing` of so many zeros: they are a hole of the file.
    pub fn write_hollow(&self, id: ChunkId, bytes: u64, durability: Durability) -> Result<(), ChunkError> {
        let header = Header { id, bytes, is_hollow: true };
        let head = head(&header, &table_of_zeros(id, bytes));
        // The head, and what has the last byte.
        let taken_bytes = head.len() as u64 + SECTOR;
        let file = self.create_file(id, taken_bytes)?;
        let written = file.write_at(file_bytes(bytes) - 1, &[0]).and_then(|()| file.write_at(0, &head));
        if let Err(error) = written {
            return Err(self.write_failed(id, &error, taken_bytes).into());
        }
        self.committed(id, &file, durability)
    }

    fn committed(&self, id: ChunkId, file: &Arc<dyn File>, durability: Durability) -> Result<(), ChunkError> {
        match durability {
            Durability::Synced => {
                file.sync().map_err(|error| self.fail(format!("syncing a chunk: {error}")))?;
                match self.directory.sync_dir(&dir_path(dir_of(id))) {
                    // Out of file handles before anything was synced: the chunk is not committed, the disk is fine.
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        self.remove_unfinished(id)?;
                        return Err(self.unavailable(format!("syncing a chunk's name: {error}")).into());
                    }
                    Err(error) => return Err(self.fail(format!("syncing a chunk's name: {error}")).into()),
                    Ok(()) => (),
                }
            }
            Durability::Buffered => {
                let many = {
                    let mut unsynced = lock(&self.unsynced);
                    unsynced.insert(id, Unsynced { file: file.clone(), is_new: true });
                    unsynced.len() > UNSYNCED_MAX
                };
                if many {
                    self.sync()?;
                }
            }
        }
        self.end(id);
        lock(&self.index).added(id);
        Ok(())
    }

    /// Whether anything waits for [`Files::sync`]. Does not block.
    pub fn has_unsynced(&self) -> bool {
        self.is_left_unsynced.load(Ordering::Acquire) || !lock(&self.unsynced).is_empty()
    }

    /// Syncs what was committed as buffered or overwritten before this call, by this opening or one before it.
    pub fn sync(&self) -> Result<(), ChunkError> {
        // What another call has taken is durable when that ends; if it fails, it fails the store.
        let _alone = lock(&self.syncing);
        if !self.has_unsynced() {
            return Ok(self.readable()?);
        }
        if self.is_left_unsynced.load(Ordering::Acquire) {
            self.readable()?;
            match self.directory.sync_all() {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    return Err(self.unavailable(format!("syncing what was there: {error}")).into());
                }
                Err(error) => return Err(self.fail(format!("syncing what was there: {error}")).into()),
                Ok(()) => self.is_left_unsynced.store(false, Ordering::Release),
            }
            if lock(&self.unsynced).is_empty() {
                return Ok(());
            }
        }
        self.writable()?;
        let unsynced = std::mem::take(&mut *lock(&self.unsynced));
        // Several new files are one commit of the file system's journal. What is overwritten needs none: its bytes have their
        // place, and a commit for it would hold up whoever writes beside it.
        if unsynced.values().filter(|waiting| waiting.is_new).count() > 1 {
            self.directory.prepare_sync();
        }
        for waiting in unsynced.values() {
            waiting.file.sync().map_err(|error| self.fail(format!("syncing a chunk: {error}")))?;
        }
        let new = unsynced.iter().filter(|(_, waiting)| waiting.is_new);
        let dirs: BTreeSet<u16> = new.map(|(id, _)| dir_of(*id)).collect();
        for dir in dirs {
            let synced = self.directory.sync_dir(&dir_path(dir));
            synced.map_err(|error| self.fail(format!("syncing a directory: {error}")))?;
        }
        Ok(())
    }

    /// writing -> (absent): removes what a dropped writer wrote and gives the id free.
    pub fn abandon(&self, id: ChunkId) {
        if self.has_unfinished_file(id) && self.writable().is_ok() {
            // A failure shows in the state; the remnant is listed after the next opening.
            let _ = self.remove_unfinished(id);
        }
        self.end(id);
    }

    fn remove_unfinished(&self, id: ChunkId) -> Result<(), Refused> {
        self.remove_file(id)?;
        lock(&self.index).removed(id);
        self.set_unfinished_file(id, false);
        Ok(())
    }

    fn write_failed(&self, id: ChunkId, error: &io::Error, needed_bytes: u64) -> Refused {
        // The space comes back first, so that the error tells what is free without the file.
        let removed = self.remove_unfinished(id);
        let error = self.change_failed("writing a chunk", error, needed_bytes);
        removed.err().unwrap_or(error)
    }

    fn remove_file(&self, id: ChunkId) -> Result<(), Refused> {
        self.remove_path(&file_path(id))
    }

    /// Removes a file that may be gone already.
    pub(super) fn remove_path(&self, path: &str) -> Result<(), Refused> {
        match self.directory.remove(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.check_alive(),
            Err(error) => Err(self.change_failed(&format!("removing {path}"), &error, 0)),
            Ok(()) => Ok(()),
        }
    }

    /// committed -> (absent).
    pub fn delete(&self, id: ChunkId) -> Result<(), ChunkError> {
        self.writable()?;
        if self.has_unfinished_file(id) {
            // Not committed, so absent as far as anybody can see.
            return Ok(());
        }
        let _change = self.chunk_lock(id).write().unwrap_or_else(PoisonError::into_inner);
        lock(&self.opened).forget(&id);
        self.remove_file(id)?;
        lock(&self.unsynced).remove(&id);
        lock(&self.index).removed(id);
        Ok(())
    }
}
