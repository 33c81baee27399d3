//! The record that makes a patch happen whole or not at all: the file `patch.journal`.
//!
//! ```text
//! idle --write--> recording --sync journal--> recorded --apply--> applying --sync chunk--> applied = idle
//! ```
//!
//! Invariants:
//! 1. The file holds at most one record, and its patch is the last one that was begun on this disk.
//! 2. A new record is written only when the patch of the one before is applied and synced.
//! 3. Applying a record again gives the same bytes.
//!
//! Left out: applying; `files` does that, from here in a running store and in `Files::replay` when it is opened.

use std::io;
use std::sync::Arc;

use claystone_chunk::{ChunkId, Generation, StripeId, Version};
use claystone_code::ChunkIndex;
use claystone_env::{Directory, File};

use crate::fields::{array_at, crc32c, crc32c_without, put, u16_at, u32_at, u64_at, u128_at};
use crate::identity::FORMAT_VERSION;

/// Name of the journal file.
pub const JOURNAL_FILE: &str = "patch.journal";
/// Bytes before the content.
pub const RECORD_HEADER_BYTES: usize = 64;

const MAGIC: [u8; 8] = *b"CLAYREDO";
const CRC_AT: usize = 12;

/// New content of some sectors of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The chunk.
    pub id: ChunkId,
    /// Its version after the patch.
    pub version: Version,
    /// The first sector that changes.
    pub first_sector: u64,
    /// The whole content of the sectors from there on.
    pub content: Vec<u8>,
}

impl Record {
    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; RECORD_HEADER_BYTES];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, FORMAT_VERSION.to_le_bytes());
        put(&mut bytes, 10, self.id.index.0.to_le_bytes());
        put(&mut bytes, 16, self.id.stripe.0.to_le_bytes());
        put(&mut bytes, 32, self.id.generation.0.to_le_bytes());
        put(&mut bytes, 36, crc32c(&[&self.content]).to_le_bytes());
        put(&mut bytes, 40, self.first_sector.to_le_bytes());
        put(&mut bytes, 48, self.version.0.to_le_bytes());
        put(&mut bytes, 56, (self.content.len() as u64).to_le_bytes());
        let crc = crc32c_without(&bytes, CRC_AT);
        put(&mut bytes, CRC_AT, crc.to_le_bytes());
        bytes.extend_from_slice(&self.content);
        bytes
    }

    /// Bytes of the record with this header, if it is one.
    fn bytes(header: &[u8]) -> Option<u64> {
        let header = header.get(..RECORD_HEADER_BYTES)?;
        let good = array_at(header, 0) == MAGIC
            && u32_at(header, CRC_AT) == crc32c_without(header, CRC_AT)
            && u16_at(header, 8) == FORMAT_VERSION;
        good.then(|| u64_at(header, 56).saturating_add(RECORD_HEADER_BYTES as u64))
    }

    /// The record that `bytes` begin with; `None` if there is none that was written completely.
    pub fn decode(bytes: &[u8]) -> Option<Record> {
        Record::bytes(bytes)?;
        let (header, rest) = bytes.split_at_checked(RECORD_HEADER_BYTES)?;
        let content = rest.get(..usize::try_from(u64_at(header, 56)).ok()?)?;
        if u32_at(header, 36) != crc32c(&[content]) {
            return None;
        }
        Some(Record {
            id: ChunkId {
                stripe: StripeId(u128_at(header, 16)),
                index: ChunkIndex(u16_at(header, 10)),
                generation: Generation(u32_at(header, 32)),
            },
            version: Version(u64_at(header, 48)),
            first_sector: u64_at(header, 40),
            content: content.to_vec(),
        })
    }
}

/// The journal of an open disk. Its owner holds it for the whole of a patch.
#[derive(Default)]
pub struct Journal {
    file: Option<Arc<dyn File>>,
    last: Option<ChunkId>,
}

impl Journal {
    /// The record on the disk, if one was written completely.
    pub fn load(&mut self, directory: &dyn Directory) -> io::Result<Option<Record>> {
        let file = match directory.open(JOURNAL_FILE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        // The file is as long as the longest record ever; only what this one needs is read.
        let file_bytes = file.bytes()?;
        let mut header = vec![0; file_bytes.min(RECORD_HEADER_BYTES as u64) as usize];
        file.read_at(0, &mut header)?;
        let mut bytes = vec![0; Record::bytes(&header).unwrap_or(0).min(file_bytes) as usize];
        file.read_at(0, &mut bytes)?;
        self.file = Some(file);
        let record = Record::decode(&bytes);
        self.last = record.as_ref().map(|record| record.id);
        Ok(record)
    }

    /// recording -> recorded: makes `record` durable.
    pub fn write(&mut self, directory: &dyn Directory, record: &Record) -> io::Result<()> {
        let file = match &self.file {
            Some(file) => file.clone(),
            None => {
                let file = directory.create(JOURNAL_FILE)?;
                directory.sync_dir("")?;
                self.file = Some(file.clone());
                file
            }
        };
        self.last = Some(record.id);
        file.write_at(0, &record.encode())?;
        file.sync()
    }

    /// Makes sure that no record of chunk `id` is on the disk: its file is about to go, and its id may come back.
    pub fn forget(&mut self, id: ChunkId) -> io::Result<()> {
        if self.last != Some(id) {
            return Ok(());
        }
        let file = self.file.as_ref().expect("a record was read from or written to the file");
        file.write_at(0, &[0; RECORD_HEADER_BYTES])?;
        file.sync()?;
        self.last = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
