//! The header of the page file: its length, and its first page, where the database has its own header.

use claystone_env::SECTOR_BYTES;
use claystone_group::DiskId;

use crate::fields::{array_at, crc32c_without, put, u32_at, u64_at};

/// Bytes of the first page that are kept. The rest is zeros; redb uses 320.
pub const FIRST_PAGE_BYTES: usize = 4064;
/// The longest page file: no place in it overflows.
pub const FILE_BYTES_MAX: u64 = 1 << 60;

/// What a header slot holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The sync that wrote it.
    pub sequence: u64,
    /// Bytes of the page file.
    pub bytes: u64,
    /// The begin of the first page.
    pub first_page: Vec<u8>,
}

impl Header {
    /// Its bytes, a sector.
    ///
    /// # Panics
    /// If the first page is not of [`FIRST_PAGE_BYTES`].
    pub fn encode(&self, id: DiskId) -> Vec<u8> {
        assert_eq!(self.first_page.len(), FIRST_PAGE_BYTES, "the first page is kept whole");
        let mut bytes = vec![0; SECTOR_BYTES];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, self.sequence.to_le_bytes());
        put(&mut bytes, 24, self.bytes.to_le_bytes());
        bytes[FIRST_PAGE_AT..].copy_from_slice(&self.first_page);
        let crc = crc32c_without(&bytes, CRC_AT, &id.0);
        put(&mut bytes, CRC_AT, crc.to_le_bytes());
        bytes
    }

    /// The header that a sector holds, if it is one of this disk.
    pub fn parse(id: DiskId, bytes: &[u8]) -> Option<Header> {
        let good = bytes.len() == SECTOR_BYTES
            && array_at(bytes, 0) == MAGIC
            && u32_at(bytes, CRC_AT) == crc32c_without(bytes, CRC_AT, &id.0)
            && u64_at(bytes, 24) <= FILE_BYTES_MAX;
        good.then(|| Header {
            sequence: u64_at(bytes, 8),
            bytes: u64_at(bytes, 24),
            first_page: bytes[FIRST_PAGE_AT..].to_vec(),
        })
    }
}

const MAGIC: [u8; 8] = *b"CLAYHEAD";
const CRC_AT: usize = 16;
const FIRST_PAGE_AT: usize = SECTOR_BYTES - FIRST_PAGE_BYTES;
