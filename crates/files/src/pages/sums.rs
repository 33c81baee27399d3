//! A sums sector of the page file: the CRCs of its pages.

use claystone_env::{SECTOR_BYTES, Sector};
use claystone_group::DiskId;

use crate::fields::{array_at, crc32c, crc32c_without, put, u32_at, u64_at};
use crate::slab::SUMS;

/// Of a page that was never written.
pub const UNWRITTEN: u32 = 0;

/// The sum of a page that was written. A CRC of 0 gives 1, which costs nothing: one error in 2^32 is missed anyway.
pub fn page_sum(page: &[u8]) -> u32 {
    crc32c(&[page]).max(1)
}

/// The sector whose slot begins at `place`, written by the sync of this sequence.
///
/// # Panics
/// If there are more than [`SUMS`].
pub fn encode_sums(id: DiskId, place: Sector, sequence: u64, sums: &[u32]) -> Vec<u8> {
    assert!(sums.len() as u64 <= SUMS, "{} sums", sums.len());
    let mut bytes = vec![0; SECTOR_BYTES];
    put(&mut bytes, 0, MAGIC);
    put(&mut bytes, 8, sequence.to_le_bytes());
    for (number, sum) in sums.iter().enumerate() {
        put(&mut bytes, SUMS_AT + 4 * number, sum.to_le_bytes());
    }
    let crc = crc(id, place, &bytes);
    put(&mut bytes, CRC_AT, crc.to_le_bytes());
    bytes
}

/// The sequence of a sums sector, if it is one of this disk and place.
pub fn parse_sums(id: DiskId, place: Sector, bytes: &[u8]) -> Option<u64> {
    let good =
        bytes.len() == SECTOR_BYTES && array_at(bytes, 0) == MAGIC && u32_at(bytes, CRC_AT) == crc(id, place, bytes);
    good.then(|| u64_at(bytes, 8))
}

/// The sums in a sums sector.
pub fn sums_in(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes[SUMS_AT..].chunks_exact(4).map(|sum| u32_at(sum, 0))
}

fn crc(id: DiskId, place: Sector, bytes: &[u8]) -> u32 {
    let mut more = [0; 24];
    put(&mut more, 0, id.0);
    put(&mut more, 16, place.0.to_le_bytes());
    crc32c_without(bytes, CRC_AT, &more)
}

const MAGIC: [u8; 8] = *b"CLAYPSUM";
const CRC_AT: usize = 16;
const SUMS_AT: usize = 24;
