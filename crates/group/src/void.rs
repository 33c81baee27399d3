//! Void parity: what lies in the place of parity that cannot be made, as docs/formats/disk.md says.
//!
//! Invariants:
//! 1. It is never taken for parity: nothing is decoded from it, no change is added to it, and no group vouches for itself with it.

use claystone_env::{SECTOR_BYTES, Sector};

use crate::DiskId;
use crate::sums::{CRC_AT, own_sum};

const MAGIC: [u8; 8] = *b"CLAYVOID";

/// Its bytes at a place of a disk.
pub(crate) fn void_parity(disk: DiskId, place: Sector) -> Vec<u8> {
    let mut bytes = vec![0; SECTOR_BYTES];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    let sum = own_sum(&bytes, disk, place);
    bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Whether a sector that was read at a place of a disk is void.
pub(crate) fn is_void(bytes: &[u8], disk: DiskId, place: Sector) -> bool {
    bytes.starts_with(&MAGIC) && bytes == void_parity(disk, place)
}

#[cfg(test)]
mod tests {
    use claystone_env::Sector;

    use super::{is_void, void_parity};
    use crate::DiskId;

    const DISK: DiskId = DiskId(*b"0123456789abcdef");

    #[test]
    fn the_bytes_of_void_parity_are_pinned() {
        let bytes = void_parity(DISK, Sector(77));
        let found = (&bytes[..8], u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes")));
        assert_eq!(found, (&b"CLAYVOID"[..], 1_327_412_480));
        assert!(bytes[12..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn void_parity_is_that_of_its_place_and_no_byte_else() {
        let bytes = void_parity(DISK, Sector(77));
        assert!(is_void(&bytes, DISK, Sector(77)));
        assert!(!is_void(&bytes, DISK, Sector(78)) && !is_void(&bytes, DiskId([0; 16]), Sector(77)));
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert!(!is_void(&bytes, DISK, Sector(77)), "byte {at}");
        }
    }
}
