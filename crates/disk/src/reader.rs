//! Reading an open chunk file, sector by sector where needed.
//!
//! Invariants:
//! 1. Bytes leave here only after their sector's checksum matched.
//! 2. An unreadable place loses the sectors that need it and no others.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use claystone_chunk::ChunkId;
use claystone_env::File;

use crate::fields::u32_at;
use crate::layout::{HEAD_BYTES, HEADER_BYTES, Head, Header, SECTOR, SectorCrc, table_offset};

/// An open, committed chunk.
pub struct OpenChunk {
    /// Its file.
    pub file: Arc<dyn File>,
    /// Its header, checked.
    pub header: Header,
    /// Bytes read from the file so far.
    pub bytes_read: u64,
    /// Whether the medium failed to give bytes that should be there.
    pub medium_failed: bool,
    // The first 4096 bytes of the file, or all.
    head: Vec<u8>,
    crc: SectorCrc,
}

/// What opening a chunk file found.
pub enum Opened {
    /// A committed chunk.
    Chunk(OpenChunk),
    /// What an unfinished write left.
    Remnant,
    /// Not what was written; why.
    Damaged(&'static str),
}

impl OpenChunk {
    /// Reads and checks the header of chunk `id` in `file`.
    pub fn open(id: ChunkId, file: Arc<dyn File>) -> io::Result<Opened> {
        let mut head = vec![0; file.bytes()?.min(HEAD_BYTES) as usize];
        let mut medium_failed = false;
        let mut bytes_read = head.len() as u64;
        if let Err(error) = file.read_at(0, &mut head) {
            // The header alone may still be readable, where the rest of the first sector is not.
            medium_failed = true;
            head.truncate(HEADER_BYTES);
            bytes_read = head.len() as u64;
            file.read_at(0, &mut head).map_err(|_| error)?;
        }
        Ok(match Header::decode(id, &head[..head.len().min(HEADER_BYTES)]) {
            Head::Committed(header) => {
                let crc = SectorCrc::new(id);
                Opened::Chunk(OpenChunk { file, header, bytes_read, medium_failed, head, crc })
            }
            Head::Remnant => Opened::Remnant,
            Head::Damaged(reason) => Opened::Damaged(reason),
        })
    }

    /// The content of `sectors`, which are within the chunk. Lost ones are appended to `lost` and their bytes are
    /// unspecified.
    pub fn sectors(&mut self, sectors: Range<u64>, lost: &mut Vec<u64>) -> Vec<u8> {
        assert!(sectors.end <= self.header.sectors(), "the sectors are in the chunk");
        let range = self.header.bytes_of(sectors.start, sectors.end);
        let mut content = vec![0; range.bytes as usize];
        if sectors.is_empty() {
            return content;
        }
        let mut lost_here = Vec::new();
        let Some(table) = self.bytes(table_offset(sectors.start), table_offset(sectors.end)) else {
            lost.extend(sectors);
            return content;
        };
        let offset = self.header.data_offset() + range.offset;
        let end = offset as usize + content.len();
        if end <= self.head.len() {
            content.copy_from_slice(&self.head[offset as usize..end]);
        } else if self.read(offset, &mut content).is_err() {
            // One bad sector fails the whole read; find out which.
            for (number, part) in sectors.clone().zip(content.chunks_mut(SECTOR as usize)) {
                let offset = self.header.data_offset() + number * SECTOR;
                if self.read(offset, part).is_err() {
                    lost_here.push(number);
                }
            }
        }
        for (at, (number, part)) in sectors.zip(content.chunks(SECTOR as usize)).enumerate() {
            let read = lost_here.binary_search(&number).is_ok();
            if read || self.crc.of(number, part) != u32_at(&table, at * 4) {
                lost.push(number);
            }
        }
        content
    }

    /// The file's bytes `from..to`, from the head if they are there.
    fn bytes(&mut self, from: u64, to: u64) -> Option<Vec<u8>> {
        if let Some(bytes) = self.head.get(from as usize..to as usize) {
            return Some(bytes.to_vec());
        }
        let mut bytes = vec![0; (to - from) as usize];
        self.read(from, &mut bytes).ok()?;
        Some(bytes)
    }

    fn read(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.bytes_read += into.len() as u64;
        let result = self.file.read_at(offset, into);
        if let Err(error) = &result {
            self.medium_failed |= error.kind() != io::ErrorKind::UnexpectedEof;
        }
        result
    }
}
