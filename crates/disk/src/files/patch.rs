//! Patches; the states are those of `journal`.
//!
//! Invariants:
//! 1. A chunk is changed only when the record of its new sectors is synced, under the journal's lock.
//! 2. The version is checked and advanced under that lock, so a patch is applied at most once.

use std::io;
use std::sync::PoisonError;

use claystone_chunk::{ByteRange, ChunkError, ChunkId, Patch, PatchOp, Version};

use super::read::check;
use super::{Files, lock};
use crate::journal::Record;
use crate::layout::{Header, SECTOR, SectorCrc, sectors_of, table_offset};
use crate::reader::OpenChunk;

impl Files {
    /// See [`claystone_chunk::ChunkStore::patch`], and `journal` for the states.
    pub fn patch(&self, id: ChunkId, expected: Version, patch: &Patch) -> Result<Version, ChunkError> {
        self.writable()?;
        let mut journal = lock(&self.journal);
        let _change = self.chunk_lock(id).write().unwrap_or_else(PoisonError::into_inner);
        let mut chunk = self.open(id)?;
        let range = ByteRange { offset: patch.offset, bytes: patch.bytes.len() as u64 };
        check(&chunk.header, Some(expected), range)?;
        let record = Record {
            id,
            version: Version(expected.0 + 1),
            first_sector: sectors_of(range).start,
            content: self.patched(&mut chunk, range, patch)?,
        };
        let needed_bytes = record.content.len() as u64;
        match journal.write(&*self.directory, &record) {
            Ok(()) => (),
            // Only the journal may have changed, and no chunk needs what it held.
            Err(error) => return Err(self.change_failed("writing the patch journal", &error, needed_bytes).into()),
        }
        self.apply(&chunk, &record).map_err(|error| self.fail(format!("applying a patch: {error}")))?;
        Ok(record.version)
    }

    /// The new content of the sectors that the patch touches.
    fn patched(&self, chunk: &mut OpenChunk, range: ByteRange, patch: &Patch) -> Result<Vec<u8>, ChunkError> {
        let sectors = sectors_of(range);
        let whole = chunk.header.bytes_of(sectors.start, sectors.end);
        if range.bytes == 0 || (patch.op == PatchOp::Overwrite && whole == range) {
            return Ok(patch.bytes.to_vec());
        }
        let mut lost = Vec::new();
        let mut content = match patch.op {
            PatchOp::Xor => chunk.sectors(sectors.clone(), &mut lost),
            // Only the sectors at the ends can be changed in part, and need their old bytes.
            PatchOp::Overwrite => {
                let mut content = vec![0; whole.bytes as usize];
                for edge in [sectors.start, sectors.end.saturating_sub(1)] {
                    let bytes = chunk.header.bytes_of(edge, edge + 1);
                    let covered = range.offset <= bytes.offset && bytes.end() <= range.end();
                    if sectors.contains(&edge) && !covered {
                        let old = chunk.sectors(edge..edge + 1, &mut lost);
                        let at = (bytes.offset - whole.offset) as usize;
                        content[at..at + old.len()].copy_from_slice(&old);
                    }
                }
                content
            }
        };
        self.nothing_lost(chunk, lost)?;
        let from = (range.offset - whole.offset) as usize;
        let target = &mut content[from..from + patch.bytes.len()];
        match patch.op {
            PatchOp::Overwrite => target.copy_from_slice(&patch.bytes),
            PatchOp::Xor => target.iter_mut().zip(&patch.bytes).for_each(|(old, add)| *old ^= add),
        }
        Ok(content)
    }

    /// recorded -> applied. Doing it again changes nothing.
    fn apply(&self, chunk: &OpenChunk, record: &Record) -> io::Result<()> {
        let header = Header { version: record.version, ..chunk.header };
        let table = SectorCrc::new(record.id).table(record.first_sector, &record.content);
        chunk.file.write_at(header.data_offset() + record.first_sector * SECTOR, &record.content)?;
        chunk.file.write_at(table_offset(record.first_sector), &table)?;
        chunk.file.write_at(0, &header.encode())?;
        chunk.file.sync()
    }

    /// Finishes the patch that was under way when the disk was last used.
    pub fn replay(&self) -> Result<(), ChunkError> {
        let mut journal = lock(&self.journal);
        let record = match journal.load(&*self.directory) {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(()),
            Err(error) => return Err(self.fail(format!("reading the patch journal: {error}")).into()),
        };
        match self.open(record.id) {
            Ok(chunk) if record_fits(&chunk.header, &record) => {
                self.apply(&chunk, &record).map_err(|error| self.change_failed("finishing a patch", &error, 0))?;
            }
            // Deleted, damaged, or patched since.
            Ok(_) | Err(ChunkError::NotFound { .. } | ChunkError::ChunkLost { .. }) => (),
            Err(error) => return Err(error),
        }
        journal.forget(record.id).map_err(|error| self.change_failed("clearing the patch journal", &error, 0))?;
        Ok(())
    }
}

/// Whether a record of the journal belongs to the chunk as it is: its patch was begun and is perhaps not complete.
fn record_fits(header: &Header, record: &Record) -> bool {
    let bytes = record.content.len() as u64;
    let end = record.first_sector.saturating_add(bytes.div_ceil(SECTOR));
    let in_chunk = end <= header.sectors() && header.bytes_of(record.first_sector, end).bytes == bytes;
    let one_step = header.version == record.version || header.version.0 + 1 == record.version.0;
    in_chunk && one_step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_fits_one_step_of_its_chunk_only() {
        let id: ChunkId = "0000018f3c5e7a00b1c2d3e4f506172a.4.1".parse().expect("an id");
        let header = |version| Header { id, bytes: 9000, version: Version(version) };
        let record = |version, first_sector, bytes| Record {
            id,
            version: Version(version),
            first_sector,
            content: vec![0; bytes],
        };
        assert!(record_fits(&header(4), &record(5, 1, 4096)), "begun");
        assert!(record_fits(&header(5), &record(5, 1, 4096)), "begun or done");
        assert!(record_fits(&header(5), &record(5, 2, 808)), "the last sector is shorter");
        assert!(record_fits(&header(5), &record(5, 3, 0)), "nothing but a version");
        for (version, first_sector, bytes) in [
            (6, 1, 4096),
            (3, 1, 4096),
            (5, 2, 4096),
            (5, 1, 100),
            (5, 3, 1),
            (5, u64::MAX, 1),
            (5, u64::MAX / 4096, 0),
        ] {
            assert!(!record_fits(&header(if version == 6 { 7 } else { 4 }), &record(version, first_sector, bytes)));
        }
    }
}
