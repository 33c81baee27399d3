//! What the fuzz targets feed with bytes: the parsers of all that is not in groups.
//!
//! Invariants:
//! 1. Nothing here panics but for an error of the parsers.
//! 2. What a parser takes, it gives out again as the same bytes, so a wrong field cannot hide.
//!
//! Checksums are made right first where `seal` says so: else no bytes would get past them.

use std::sync::Arc;

use claystone_env::testing::MemoryDevice;
use claystone_env::{Device, SECTOR_BYTES, Sector, SectorRange};
use claystone_group::GroupCode;

use crate::DiskId;
use crate::copies::{Access, Copies};
use crate::fields::{crc32c, crc32c_without, put, u32_at, u64_at};
use crate::journal::{Journal, JournalPosition, RingShape};
use crate::pages::header::Header;
use crate::pages::sums::{encode_sums, parse_sums, sums_in};
use crate::resting::SwathsKept;
use crate::superblock::Superblock;

/// A sector that begins with `bytes`; what is beyond one is left away.
fn sector(bytes: &[u8]) -> Vec<u8> {
    let mut sector = bytes[..bytes.len().min(SECTOR_BYTES)].to_vec();
    sector.resize(SECTOR_BYTES, 0);
    sector
}

/// A superblock, alone and at the begin of a device.
///
/// # Panics
/// If a parser is wrong.
pub fn superblock(bytes: &[u8], seal: bool) {
    let mut bytes = sector(bytes);
    if seal {
        put(&mut bytes, 0, *b"CLAYDISK");
        let crc = crc32c_without(&bytes, 12, &[]);
        put(&mut bytes, 12, crc.to_le_bytes());
    }
    if let Ok(superblock) = Superblock::parse(&bytes) {
        let again = superblock.encode();
        assert_eq!(Superblock::parse(&again).as_ref(), Ok(&superblock), "it comes out again");
    }
    let device = MemoryDevice::new(64);
    device.write(Sector(0), &bytes).expect("memory takes writes");
    if let Ok(superblock) = Superblock::load(&device) {
        assert!(superblock.sectors <= 64, "a disk fits on its device");
    }
}

/// A sums sector and a header slot of the page file.
///
/// # Panics
/// If a parser is wrong.
pub fn pages(bytes: &[u8], seal: bool) {
    let (id, place) = (DiskId([7; 16]), Sector(99));
    let mut bytes = sector(bytes);
    for (magic, more) in [(*b"CLAYPSUM", &[&id.0[..], &place.0.to_le_bytes()].concat()[..]), (*b"CLAYHEAD", &id.0)] {
        if seal {
            put(&mut bytes, 0, magic);
            put(&mut bytes, 20, [0; 4]);
            let crc = crc32c_without(&bytes, 16, more);
            put(&mut bytes, 16, crc.to_le_bytes());
        }
        if let Some(sequence) = parse_sums(id, place, &bytes) {
            let sums: Vec<u32> = sums_in(&bytes).collect();
            assert!(!seal || encode_sums(id, place, sequence, &sums) == bytes, "it comes out again");
        }
        if let Some(header) = Header::parse(id, &bytes) {
            assert!(!seal || header.encode(id) == bytes, "it comes out again");
        }
    }
}

/// A row that says where sums of swaths are kept.
///
/// # Panics
/// If its decoder is wrong.
pub fn swaths(bytes: &[u8]) {
    if let Some(kept) = SwathsKept::decode(bytes, 1 << 40) {
        assert!(kept.sectors.iter().all(|range| range.end().0 <= 1 << 40), "they are on the device");
        assert!(kept.encode() == bytes, "it comes out again");
    }
}

/// A ring of sectors: what is replayed is replayed again, and nothing else.
///
/// # Panics
/// If the journal is wrong.
pub fn journal(bytes: &[u8], seal: bool) {
    const POSITIONS: u64 = 8;
    let code = GroupCode::new(4, 1).expect("a code");
    let shape = RingShape { positions: POSITIONS, copies: 2, code: code.clone(), id: DiskId([7; 16]) };
    let mut ring = bytes[..bytes.len().min(shape.cells() as usize * SECTOR_BYTES)].to_vec();
    ring.resize(shape.cells() as usize * SECTOR_BYTES, 0);
    if seal {
        // Short inputs reach all cells: the first bytes of each are those of an entry, its sequence and length small.
        for (cell, sector) in (0u64..).zip(ring.chunks_exact_mut(SECTOR_BYTES)) {
            let (sequence, sectors) = (u64_at(sector, 4072) % 16, u32_at(sector, 4084) % 10);
            put(sector, 4072, sequence.to_le_bytes());
            put(sector, 4084, sectors.to_le_bytes());
            let bytes = (u64_at(sector, 0) as usize).min(4056);
            let crc = crc32c(&[&sector[16..16 + bytes]]);
            put(sector, 8, crc.to_le_bytes());
            shape.seal(cell, sector);
        }
    }
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(shape.cells()));
    device.write(Sector(0), &ring).expect("memory takes writes");
    let area = SectorRange { first: Sector(0), sectors: POSITIONS };
    let from = JournalPosition { sequence: 1, position: bytes.len() as u64 % POSITIONS };
    let open =
        |access| Journal::open(Arc::new(Copies::new(device.clone(), 2, access)), code.clone(), shape.id, area, from);
    if let Ok((_, entries)) = open(Access::Look) {
        let (mut journal, again) = open(Access::Write).expect("it opened before");
        assert!(again == entries, "it is replayed again");
        if let Some(entry) = entries.first().filter(|entry| !entry.is_empty())
            && journal.append(entry).is_ok()
        {
            let (_, more) = open(Access::Look).expect("it was appended to");
            assert!(more.len() == entries.len() + 1 && more.last() == Some(entry), "and goes on");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_are_too_much(bytes in prop::collection::vec(any::<u8>(), 0..9000), seal: bool) {
            super::superblock(&bytes, seal);
            super::pages(&bytes, seal);
            super::journal(&bytes, seal);
            super::swaths(&bytes);
        }

        #[test]
        fn entries_that_look_right_are_not_too_much(
            kinds in prop::collection::vec((0u8..6, 0u8..9, 0u8..4), 0..60),
            length in 0u64..400,
            position in 0usize..8,
        ) {
            let mut bytes = length.to_le_bytes().to_vec();
            bytes.resize(16, 0);
            bytes.extend(kinds.iter().flat_map(|(kind, table, more)| [*kind, *table, *more, 0]));
            bytes.resize(4072, 0);
            bytes.extend(1u64.to_le_bytes());
            bytes.extend(0u32.to_le_bytes());
            bytes.extend(1u32.to_le_bytes());
            bytes.resize(4096 + position, 0);
            super::journal(&bytes, true);
        }
    }
}
