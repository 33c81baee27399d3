//! A chunk file's bytes: header, checksum table, content.
//!
//! Invariants:
//! 1. The header lies in the file's first 512 bytes, so it is never torn.
//! 2. Every function here is pure; nothing here panics on bytes from a disk.

use claystone_chunk::{ByteRange, ChunkId, Generation, SECTOR_BYTES, StripeId};
use claystone_code::ChunkIndex;

use crate::fields::{array_at, crc32c_without, put, u16_at, u32_at, u64_at, u128_at};
use crate::identity::FORMAT_VERSION;

/// Bytes of the header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of the longest chunk; its table takes 16 MiB.
pub const CHUNK_BYTES_MAX: u64 = 1 << 34;
/// A sector as a length.
pub const SECTOR: u64 = SECTOR_BYTES as u64;

const MAGIC: [u8; 8] = *b"CLAYCHNK";
const CRC_AT: usize = 12;
const FLAGS_AT: usize = 56;
const HOLLOW: u64 = 1;
const ENTRY_BYTES: u64 = 4;

/// What a chunk file says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The chunk.
    pub id: ChunkId,
    /// Bytes of content.
    pub bytes: u64,
    /// All of the content is zeros, for which the file has a hole: no space is taken before it is filled.
    pub is_hollow: bool,
}

/// What the first bytes of a chunk file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Head {
    /// A committed chunk.
    Committed(Header),
    /// What an unfinished write left.
    Remnant,
    /// Not what was written; why.
    Damaged(&'static str),
}

impl Header {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, FORMAT_VERSION.to_le_bytes());
        put(&mut bytes, 10, self.id.index.0.to_le_bytes());
        put(&mut bytes, 16, self.id.stripe.0.to_le_bytes());
        put(&mut bytes, 32, self.id.generation.0.to_le_bytes());
        put(&mut bytes, 40, self.bytes.to_le_bytes());
        put(&mut bytes, FLAGS_AT, (if self.is_hollow { HOLLOW } else { 0 }).to_le_bytes());
        let crc = crc32c_without(&bytes, CRC_AT);
        put(&mut bytes, CRC_AT, crc.to_le_bytes());
        bytes
    }

    /// What the file of chunk `id` begins with; `bytes` are its first 64, or all it has.
    pub fn decode(id: ChunkId, bytes: &[u8]) -> Head {
        if bytes.iter().all(|byte| *byte == 0) {
            return Head::Remnant;
        }
        let Some(bytes) = bytes.get(..HEADER_BYTES) else {
            return Head::Damaged("the file ends within the header");
        };
        if u32_at(bytes, CRC_AT) != crc32c_without(bytes, CRC_AT) {
            return Head::Damaged("the header's checksum does not match");
        }
        if array_at(bytes, 0) != MAGIC {
            return Head::Damaged("it is not a chunk file");
        }
        match u16_at(bytes, 8) {
            FORMAT_VERSION => (),
            later if later > FORMAT_VERSION => return Head::Damaged("it needs a newer claystone"),
            _ => return Head::Damaged("its format version is unknown"),
        }
        let header = Header {
            id: ChunkId {
                stripe: StripeId(u128_at(bytes, 16)),
                index: ChunkIndex(u16_at(bytes, 10)),
                generation: Generation(u32_at(bytes, 32)),
            },
            bytes: u64_at(bytes, 40),
            is_hollow: u64_at(bytes, FLAGS_AT) & HOLLOW != 0,
        };
        if header.id != id {
            return Head::Damaged("it holds another chunk");
        }
        if header.bytes == 0 || header.bytes > CHUNK_BYTES_MAX {
            return Head::Damaged("its length is out of range");
        }
        Head::Committed(header)
    }

    /// Where the content begins.
    pub fn data_offset(&self) -> u64 {
        data_offset(self.bytes)
    }

    /// Number of sectors.
    pub fn sectors(&self) -> u64 {
        self.bytes.div_ceil(SECTOR)
    }

    /// The content bytes of sectors `first..end`.
    pub fn bytes_of(&self, first: u64, end: u64) -> ByteRange {
        let from = first * SECTOR;
        ByteRange { offset: from, bytes: (end * SECTOR).min(self.bytes).saturating_sub(from) }
    }
}

/// The part of the header and table that are read first: all of the file where the content is packed behind them.
pub const HEAD_BYTES: u64 = SECTOR;

/// Where the content of a chunk of `bytes` begins in its file.
pub fn data_offset(bytes: u64) -> u64 {
    let table_end = table_offset(bytes.div_ceil(SECTOR));
    if table_end + bytes <= SECTOR { table_end } else { table_end.next_multiple_of(SECTOR) }
}

/// Where the table entry of a sector is in the file.
pub fn table_offset(sector: u64) -> u64 {
    HEADER_BYTES as u64 + sector * ENTRY_BYTES
}

/// The whole file of a chunk of `bytes`.
pub fn file_bytes(bytes: u64) -> u64 {
    data_offset(bytes) + bytes
}

/// The sectors that a range touches, as `first..end`.
pub fn sectors_of(range: ByteRange) -> std::ops::Range<u64> {
    let first = range.offset / SECTOR;
    if range.bytes == 0 { first..first } else { first..range.end().div_ceil(SECTOR) }
}

/// Checksums of one chunk's sectors.
#[derive(Debug, Clone, Copy)]
pub struct SectorCrc {
    // CRC state after the chunk id.
    state: u64,
}

impl SectorCrc {
    /// For the sectors of chunk `id`.
    pub fn new(id: ChunkId) -> SectorCrc {
        let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
        digest.update(&id.stripe.0.to_le_bytes());
        digest.update(&id.index.0.to_le_bytes());
        digest.update(&id.generation.0.to_le_bytes());
        SectorCrc { state: digest.get_state() }
    }

    /// The checksum of sector number `sector` with `content` (at most 4096 bytes).
    pub fn of(&self, sector: u64, content: &[u8]) -> u32 {
        debug_assert!(content.len() as u64 <= SECTOR);
        let mut digest = crc_fast::Digest::new_with_init_state(crc_fast::CrcAlgorithm::Crc32Iscsi, self.state);
        digest.update(&sector.to_le_bytes());
        digest.update(content);
        digest.finalize() as u32
    }

    /// The table entries, as bytes, of `content` that begins with sector `first`.
    pub fn table(&self, first: u64, content: &[u8]) -> Vec<u8> {
        let sectors = (first..).zip(content.chunks(SECTOR as usize));
        sectors.flat_map(|(sector, content)| self.of(sector, content).to_le_bytes()).collect()
    }
}

/// The table of `bytes` zeros.
pub fn table_of_zeros(id: ChunkId, bytes: u64) -> Vec<u8> {
    let (crc, zeros) = (SectorCrc::new(id), [0; SECTOR_BYTES as usize]);
    let rest = |sector: u64| (bytes - sector * SECTOR).min(SECTOR) as usize;
    (0..bytes.div_ceil(SECTOR)).flat_map(|sector| crc.of(sector, &zeros[..rest(sector)]).to_le_bytes()).collect()
}

/// Header, table and the gap before the content.
pub fn head(header: &Header, table: &[u8]) -> Vec<u8> {
    assert!(table.len() as u64 == header.sectors() * ENTRY_BYTES, "one table entry for each sector");
    let mut bytes = Vec::with_capacity(header.data_offset() as usize);
    bytes.extend_from_slice(&header.encode());
    bytes.extend_from_slice(table);
    bytes.resize(header.data_offset() as usize, 0);
    bytes
}

#[cfg(test)]
mod tests;
