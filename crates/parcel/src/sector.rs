//! Checksums of a chunk's sectors.
//!
//! Invariants:
//! 1. A sector's checksum covers whose it is: parcel, chunk and number.

use crc_fast::{CrcAlgorithm, Digest};

use crate::manifest::ParcelId;

/// What is checksummed, lost and mended as one.
pub const SECTOR_BYTES: usize = 4096;
/// A table entry.
pub const ENTRY_BYTES: usize = 4;

/// CRC-32C of the parts, one after the other.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    digest.finalize() as u32
}

/// Checksums of one chunk's sectors.
#[derive(Clone, Copy, Debug)]
pub struct SectorSums {
    // CRC state after parcel id and index.
    state: u64,
}

impl SectorSums {
    /// For a chunk of a parcel.
    pub fn new(id: ParcelId, chunk: u16) -> SectorSums {
        let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
        digest.update(&id.0);
        digest.update(&chunk.to_le_bytes());
        SectorSums { state: digest.get_state() }
    }

    /// The checksum of one sector.
    pub fn of(&self, sector: u64, content: &[u8]) -> u32 {
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, self.state);
        digest.update(&sector.to_le_bytes());
        digest.update(content);
        digest.finalize() as u32
    }

    /// The table entries of `content`, which begins with sector `first`.
    pub fn table(&self, first: u64, content: &[u8]) -> Vec<u8> {
        let sectors = (first..).zip(content.chunks(SECTOR_BYTES));
        sectors.flat_map(|(sector, content)| self.of(sector, content).to_le_bytes()).collect()
    }

    /// The sectors, as offsets from `first`, whose checksum is not that of `table`.
    pub fn wrong<'a>(&'a self, first: u64, content: &'a [u8], table: &'a [u8]) -> impl Iterator<Item = u64> + 'a {
        let pairs = content.chunks(SECTOR_BYTES).zip(table.chunks(ENTRY_BYTES));
        (0..)
            .zip(pairs)
            .filter(move |(i, (content, entry))| self.of(first + i, content).to_le_bytes() != **entry)
            .map(|(i, _)| i)
    }
}
