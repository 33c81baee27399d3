//! Checksums of sectors, and the sectors that hold them.
//!
//! Invariants:
//! 1. The checksum of a sums sector covers the disk and the place, so one from elsewhere, or from an earlier life of the
//!    device, is not taken for one that belongs here.

use std::fmt;

use claystone_env::{Random, SECTOR_BYTES, Sector};
use crc_fast::{CrcAlgorithm, Digest};
use thiserror::Error;

/// CRCs in a sums sector.
pub const SUMS_PER_SECTOR: usize = 1020;

const MAGIC: [u8; 8] = *b"CLAYSUMS";
pub(crate) const CRC_AT: usize = 8;
const SUMS_AT: usize = 16;
const _: () = assert!(SUMS_AT + 4 * SUMS_PER_SECTOR == SECTOR_BYTES);

/// The identity written on a disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskId(pub [u8; 16]);

impl DiskId {
    /// An id for a disk that is formatted now.
    pub fn new(random: &dyn Random) -> DiskId {
        let mut bytes = [0; 16];
        random.fill(&mut bytes);
        DiskId(bytes)
    }
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// CRC-32C of a sector.
pub fn sector_sum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Why bytes are not the sums sector that should be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SumsDamage {
    /// It does not begin as one.
    #[error("no sums sector")]
    Magic,
    /// Bytes changed, or it belongs elsewhere.
    #[error("the checksum of the sums sector is {found:08x}, it should be {expected:08x}")]
    Checksum {
        /// In the sector.
        found: u32,
        /// Of the sector.
        expected: u32,
    },
}

/// The CRCs of up to 1020 data sectors of a bulk run.
#[derive(Clone, PartialEq, Eq)]
pub struct SumsSector(Box<[u32; SUMS_PER_SECTOR]>);

impl Default for SumsSector {
    /// All 0, as beyond the end of a run.
    fn default() -> SumsSector {
        SumsSector(Box::new([0; SUMS_PER_SECTOR]))
    }
}

impl fmt::Debug for SumsSector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SumsSector({:08x}, ...)", self.0[0])
    }
}

impl SumsSector {
    /// The CRCs of these sectors; 0 for the rest.
    ///
    /// # Panics
    /// If they are more than [`SUMS_PER_SECTOR`].
    pub fn of(sectors: &[&[u8]]) -> SumsSector {
        assert!(sectors.len() <= SUMS_PER_SECTOR, "{} sectors", sectors.len());
        let mut sums = SumsSector::default();
        for (sum, sector) in sums.0.iter_mut().zip(sectors) {
            *sum = sector_sum(sector);
        }
        sums
    }

    /// The CRC at a place below [`SUMS_PER_SECTOR`].
    pub fn at(&self, place: usize) -> u32 {
        self.0[place]
    }

    /// Changes the CRC at a place below [`SUMS_PER_SECTOR`].
    pub fn set(&mut self, place: usize, sum: u32) {
        self.0[place] = sum;
    }

    /// Its bytes at a place of a disk.
    pub fn encode(&self, disk: DiskId, place: Sector) -> Vec<u8> {
        let mut bytes = vec![0; SECTOR_BYTES];
        bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
        for (field, sum) in bytes[SUMS_AT..].chunks_exact_mut(4).zip(self.0.iter()) {
            field.copy_from_slice(&sum.to_le_bytes());
        }
        let sum = own_sum(&bytes, disk, place);
        bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads the bytes found at a place of a disk.
    ///
    /// # Errors
    /// [`SumsDamage`] if they are not a sums sector written there.
    ///
    /// # Panics
    /// If they are not a sector.
    pub fn parse(bytes: &[u8], disk: DiskId, place: Sector) -> Result<SumsSector, SumsDamage> {
        assert_eq!(bytes.len(), SECTOR_BYTES, "a sector");
        if bytes[..MAGIC.len()] != MAGIC {
            return Err(SumsDamage::Magic);
        }
        let (found, expected) = (u32_at(bytes, CRC_AT), own_sum(bytes, disk, place));
        if found != expected {
            return Err(SumsDamage::Checksum { found, expected });
        }
        let mut sums = SumsSector::default();
        for (sum, field) in sums.0.iter_mut().zip(bytes[SUMS_AT..].chunks_exact(4)) {
            *sum = u32_at(field, 0);
        }
        Ok(sums)
    }
}

/// The CRC in a sector of one kind or the other, as docs/formats/disk.md says.
pub(crate) fn own_sum(bytes: &[u8], disk: DiskId, place: Sector) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in [&bytes[..CRC_AT], &[0; 4], &bytes[CRC_AT + 4..], &disk.0, &place.0.to_le_bytes()] {
        digest.update(part);
    }
    digest.finalize() as u32
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use claystone_env::Sector;
    use claystone_env::testing::sector_pattern;

    use super::{DiskId, SUMS_PER_SECTOR, SumsDamage, SumsSector, sector_sum};

    const DISK: DiskId = DiskId(*b"0123456789abcdef");

    fn sums() -> SumsSector {
        let mut sums = SumsSector::default();
        for place in 0..1000 {
            sums.set(place, 0x1000_0001u32.wrapping_mul(place as u32));
        }
        sums
    }

    #[test]
    fn checksums_are_castagnoli() {
        assert_eq!(sector_sum(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn the_bytes_are_pinned() {
        let bytes = sums().encode(DISK, Sector(77));
        assert_eq!(&bytes[..8], b"CLAYSUMS");
        assert_eq!(bytes[12..16], [0; 4]);
        assert_eq!(bytes[20..24], 0x1000_0001u32.to_le_bytes());
        assert_eq!(bytes[4092..], [0; 4]);
        assert_eq!(
            blake3::hash(&bytes).to_hex().as_str(),
            "c4e1e5409fd815d730de808a1c61b578de35fd369ae89c36c312f3fe9f3b0cc0"
        );
    }

    #[test]
    fn it_reads_as_written_at_its_place_only() {
        let bytes = sums().encode(DISK, Sector(77));
        assert_eq!(SumsSector::parse(&bytes, DISK, Sector(77)), Ok(sums()));
        assert_eq!(SumsSector::parse(&[0; 4096], DISK, Sector(77)), Err(SumsDamage::Magic));
        let elsewhere = SumsSector::parse(&bytes, DISK, Sector(78));
        assert!(matches!(elsewhere, Err(SumsDamage::Checksum { .. })));
        let other = SumsSector::parse(&bytes, DiskId([0; 16]), Sector(77));
        assert!(matches!(other, Err(SumsDamage::Checksum { .. })));
    }

    #[test]
    fn any_flip_is_seen() {
        let bytes = sums().encode(DISK, Sector(77));
        for at in (0..24).chain((24..4096).step_by(97)) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            assert!(SumsSector::parse(&flipped, DISK, Sector(77)).is_err(), "byte {at}");
        }
    }

    #[test]
    fn it_holds_the_sums_of_its_sectors() {
        let bytes = sector_pattern(1, 3);
        let sectors: Vec<&[u8]> = bytes.chunks_exact(4096).collect();
        let sums = SumsSector::of(&sectors);
        assert!((0..3).all(|at| sums.at(at) == sector_sum(sectors[at])));
        assert!((3..SUMS_PER_SECTOR).all(|at| sums.at(at) == 0));
    }
}
