//! Overwriting sectors of committed chunks in place.
//!
//! Invariants:
//! 1. A sector's content and its table entry are written under the chunk's lock, so no read sees one without the other.
//! 2. Nothing is written before all changes were found to fit and the lease to stand; the owner's gate is held shared until
//!    all is written.
//! 3. A chunk that is hollow takes its space, and that is synced, before anything is written into it.
//! 4. A crash may leave content without its entry, or the other way round: that sector then fails its check, and only
//!    that one. The bytes of other sectors and entries that are written again with it are the same bytes.

use std::io;
use std::sync::PoisonError;

use bytes::Bytes;
use claystone_chunk::{ChunkError, ChunkId, Lease, Overwrite};
use claystone_env::File;

use super::write::UNSYNCED_MAX;
use super::{Files, OpenFile, Room, Unsynced, lock};
use crate::error::Refused;
use crate::layout::{Header, SECTOR, SectorCrc, file_bytes, table_offset};
use crate::zeros::{ZEROS, is_zeros};

/// Changes that follow each other in the chunk, as they are written.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stretch {
    offset: u64,
    parts: Vec<Bytes>,
}

impl Files {
    /// See [`claystone_chunk::ChunkStore::overwrite`].
    pub fn overwrite(&self, id: ChunkId, lease: Lease, changes: &[Overwrite]) -> Result<(), ChunkError> {
        self.writable()?;
        let many = {
            let owner = self.owner(lease.owner);
            self.outrank(&owner, lease)?;
            let _stay = owner.stay();
            if let Some(fenced) = self.fenced_above(&owner, lease)? {
                return Err(ChunkError::Fenced { lease, fenced });
            }
            let _change = self.chunk_lock(id).write().unwrap_or_else(PoisonError::into_inner);
            let opened = self.open_to_write(id)?;
            for change in changes {
                change.check(id, opened.header.bytes)?;
            }
            if opened.header.is_hollow && changes.iter().all(|change| is_zeros(&change.bytes)) {
                // They are what it has.
                return Ok(());
            }
            let OpenFile { file, header } = self.with_space(opened, Room::All)?;
            for stretch in stretches(changes) {
                write(&*file, &header, &stretch).map_err(|error| self.write_torn("overwriting a chunk", &error))?;
            }
            // Under the lock, so that a chunk that takes this one's place has none of it. One that is new stays that.
            let mut unsynced = lock(&self.unsynced);
            unsynced.entry(id).or_insert(Unsynced { file, is_new: false });
            unsynced.len() > UNSYNCED_MAX
        };
        if many { self.sync() } else { Ok(()) }
    }

    /// See [`claystone_chunk::ChunkStore::take_space`].
    pub fn take_space(&self, id: ChunkId) -> Result<(), ChunkError> {
        self.writable()?;
        let _change = self.chunk_lock(id).write().unwrap_or_else(PoisonError::into_inner);
        let opened = self.open_to_write(id)?;
        Ok(self.with_space(opened, Room::AboveReserve).map(|_| ())?)
    }

    /// Takes the space for the content of a hollow chunk, whose lock the caller has, and syncs that: a chunk whose header says that it is
    /// hollow has nothing but zeros, whenever power goes, and no other one lacks space.
    fn with_space(&self, opened: OpenFile, room: Room) -> Result<OpenFile, Refused> {
        let OpenFile { file, header } = opened;
        if !header.is_hollow {
            return Ok(OpenFile { file, header });
        }
        let file_bytes = file_bytes(header.bytes);
        self.check_space(file_bytes, room)?;
        let failed = |error: io::Error| self.change_failed("taking a chunk's space", &error, file_bytes);
        file.reserve(file_bytes).map_err(failed)?;
        if self.directory.favours_overwriting() {
            // All of them now, instead of a note with each sector that is written later.
            let mut at = header.data_offset();
            while at < file_bytes {
                let zeros = &ZEROS.0[..(file_bytes - at).min(ZEROS.0.len() as u64) as usize];
                file.write_around(at, zeros).map_err(failed)?;
                at += zeros.len() as u64;
            }
        }
        let header = Header { is_hollow: false, ..header };
        file.write_at(0, &header.encode()).map_err(|error| self.write_torn("taking a chunk's space", &error))?;
        file.sync().map_err(|error| self.fail(format!("syncing a chunk: {error}")))?;
        let opened = OpenFile { file, header };
        lock(&self.opened).keep(header.id, opened.clone());
        Ok(opened)
    }

    /// The file of a committed chunk: an overwrite needs nothing of what its file holds but the header.
    fn open_to_write(&self, id: ChunkId) -> Result<OpenFile, ChunkError> {
        let opened = lock(&self.opened).find(&id);
        match opened {
            Some(opened) => Ok(opened),
            None => self.open(id).map(|chunk| OpenFile { file: chunk.file, header: chunk.header }),
        }
    }
}

/// Puts changes together that follow each other; the order stays.
fn stretches(changes: &[Overwrite]) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut end = None;
    for change in changes.iter().filter(|change| !change.bytes.is_empty()) {
        match stretches.last_mut() {
            Some(last) if end == Some(change.offset) => last.parts.push(change.bytes.clone()),
            _ => stretches.push(Stretch { offset: change.offset, parts: vec![change.bytes.clone()] }),
        }
        end = Some(change.range().end());
    }
    stretches
}

fn write(file: &dyn File, header: &Header, stretch: &Stretch) -> io::Result<()> {
    let joined;
    let content: &[u8] = match &stretch.parts[..] {
        [one] => one,
        several => {
            joined = several.concat();
            &joined
        }
    };
    let first = stretch.offset / SECTOR;
    let mut table = SectorCrc::new(header.id).table(first, content);
    let (entry_at, content_at) = (table_offset(first), header.data_offset() + stretch.offset);
    if entry_at + table.len() as u64 == content_at && content_at < SECTOR {
        table.extend_from_slice(content);
        return file.write_at(entry_at, &table);
    }
    file.write_at(content_at, content)?;
    file.write_at(entry_at, &table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_that_follow_each_other_are_written_as_one() {
        let change = |sector: u64, sectors: usize| {
            let bytes = vec![sector as u8; sectors * SECTOR as usize].into();
            Overwrite { offset: sector * SECTOR, bytes }
        };
        let shape = |changes: &[Overwrite]| -> Vec<(u64, usize)> {
            let stretches = stretches(changes);
            stretches.iter().map(|stretch| (stretch.offset / SECTOR, stretch.parts.len())).collect()
        };
        assert_eq!(shape(&[]), []);
        assert_eq!(shape(&[change(1, 1), change(2, 3), change(5, 1)]), [(1, 3)]);
        assert_eq!(shape(&[change(1, 1), change(3, 1), change(2, 1)]), [(1, 1), (3, 1), (2, 1)]);
        assert_eq!(shape(&[change(1, 1), change(7, 0), change(2, 1)]), [(1, 2)]);
        assert_eq!(shape(&[change(1, 1), change(1, 1)]), [(1, 1), (1, 1)]);
    }
}
