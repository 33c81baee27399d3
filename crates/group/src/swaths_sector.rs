//! Sectors that hold the sums of swaths while a disk is closed, so that who opens it knows them at once: to read them from their sums
//! sectors takes a hard disk 6 ms for each 4 MiB of data. Where these sectors lie, and whether they still count, the caller knows.
//!
//! Invariants:
//! 1. The checksum of such a sector covers the disk, the place and the stamp, so one from elsewhere, or of another time, is not taken for one that
//!    belongs here.
//! 2. One that no retry reads, or that is wrong, is left out: sums that memory lacks are read with their data, as ever.

use claystone_env::{DeviceError, Effort, SECTOR_BYTES, Sector, SectorRange};

use crate::bulk::room;
use crate::groups::Failure;
use crate::sums::{CRC_AT, own_sum};
use crate::swath::{SWATHS, SwathSums};
use crate::{DiskId, Groups};

const MAGIC: [u8; 8] = *b"CLAYSWTH";
const COUNT_AT: usize = 12;
const STAMP_AT: usize = 16;
const ENTRIES_AT: usize = 24;
const ENTRY_BYTES: usize = 8 + 4 * SWATHS;
/// Sums sectors of which such a sector has the sums of the swaths.
const ENTRIES: usize = (SECTOR_BYTES - ENTRIES_AT) / ENTRY_BYTES;
/// Retries of few sectors at most.
const RETRIES_LEAST: u64 = 16;
/// Sectors that are read or written together: 1 MiB.
const AT_ONCE: u64 = 256;

/// What is in a sector: the sums of the swaths of at most [`ENTRIES`] sums sectors, by their places.
type Entries = [(Sector, SwathSums)];

/// The bytes of a sector at a place of a disk.
fn encode(entries: &Entries, disk: DiskId, place: Sector, stamp: u64, into: &mut [u8]) {
    into.fill(0);
    into[..MAGIC.len()].copy_from_slice(&MAGIC);
    into[COUNT_AT..STAMP_AT].copy_from_slice(&(entries.len() as u32).to_le_bytes());
    into[STAMP_AT..ENTRIES_AT].copy_from_slice(&stamp.to_le_bytes());
    for (bytes, (of, sums)) in into[ENTRIES_AT..].chunks_exact_mut(ENTRY_BYTES).zip(entries) {
        bytes[..8].copy_from_slice(&of.0.to_le_bytes());
        sums.encode(&mut bytes[8..]);
    }
    let sum = own_sum(into, disk, place);
    into[CRC_AT..COUNT_AT].copy_from_slice(&sum.to_le_bytes());
}

/// Undoes [`encode`]; `None` for what was not written there with this stamp.
fn parse(bytes: &[u8], disk: DiskId, place: Sector, stamp: u64) -> Option<Vec<(Sector, SwathSums)>> {
    let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let count = u32_at(COUNT_AT) as usize;
    let is_right = bytes[..MAGIC.len()] == MAGIC && u32_at(CRC_AT) == own_sum(bytes, disk, place);
    if !is_right || u64_at(STAMP_AT) != stamp || count > ENTRIES {
        return None;
    }
    let firsts = (0..count).map(|entry| ENTRIES_AT + entry * ENTRY_BYTES);
    Some(firsts.map(|at| (Sector(u64_at(at)), SwathSums::parse(&bytes[at + 8..at + ENTRY_BYTES]))).collect())
}

impl Groups {
    /// How many sectors the sums of all swaths take that memory knows.
    pub fn swaths_sectors(&self) -> u64 {
        self.sums_cache().swaths_known().div_ceil(ENTRIES) as u64
    }

    /// Writes the sums of all swaths that memory knows, as far as there is room: sectors that nobody uses. Returns those that it wrote, of which
    /// nothing counts before the caller has synced the device, and whether that is all.
    ///
    /// # Errors
    /// As [`Device::write`](claystone_env::Device::write): the room may then hold anything.
    pub fn write_swaths(&self, room: &[SectorRange], stamp: u64) -> Result<(Vec<SectorRange>, bool), DeviceError> {
        for range in room {
            self.forget(range.first.0..range.end().0);
        }
        let (mut next, mut all) = (Sector(0), Vec::new());
        for range in room {
            let mut written = SectorRange { first: range.first, sectors: 0 };
            while written.sectors < range.sectors {
                let sectors = AT_ONCE.min(range.sectors - written.sectors) as usize;
                let known = self.sums_cache().swaths_from(next, sectors * ENTRIES);
                let Some((last, _)) = known.last() else { break };
                next = Sector(last.0 + 1);
                let at = written.end();
                let mut bytes = self::room(known.len().div_ceil(ENTRIES));
                for ((place, into), entries) in
                    (at.0..).zip(bytes.chunks_exact_mut(SECTOR_BYTES)).zip(known.chunks(ENTRIES))
                {
                    encode(entries, self.disk(), Sector(place), stamp, into);
                }
                self.device().write(at, &bytes)?;
                written.sectors += (bytes.len() / SECTOR_BYTES) as u64;
            }
            all.extend((written.sectors > 0).then_some(written));
        }
        Ok((all, self.sums_cache().swaths_from(next, 1).is_empty()))
    }

    /// Takes into memory what [`Groups::write_swaths`] wrote with this stamp, as far as there is room. Nothing may have been changed of the
    /// disk since. Returns whether all of it is there now.
    ///
    /// # Errors
    /// As [`Device::read`](claystone_env::Device::read).
    pub fn read_swaths(&self, written: &[SectorRange], stamp: u64) -> Result<bool, DeviceError> {
        // Twice as many as fail softly at a chance for which most groups are made, 20 ms each.
        let sectors: u64 = written.iter().map(|range| range.sectors).sum();
        let (mut is_all, mut retries) = (true, RETRIES_LEAST + sectors / 500);
        for range in written {
            let mut first = range.first.0;
            while first < range.end().0 {
                if !self.has_room_for_swaths() {
                    return Ok(false);
                }
                let sectors = AT_ONCE.min(range.end().0 - first);
                is_all &= self.read_swaths_at(Sector(first), sectors as usize, stamp, &mut retries)?;
                first += sectors;
            }
        }
        Ok(is_all)
    }

    fn read_swaths_at(
        &self,
        first: Sector,
        sectors: usize,
        stamp: u64,
        retries: &mut u64,
    ) -> Result<bool, DeviceError> {
        let mut bytes = room(sectors);
        for (at, failure) in self.read_checked(first, &mut bytes, Effort::FailFast, |_| None)? {
            let sector = &mut bytes[at * SECTOR_BYTES..][..SECTOR_BYTES];
            if failure == Failure::Soft && *retries > 0 {
                // One that no retry reads takes seconds, and there are others.
                let is_read = self.read_retrying(Sector(first.0 + at as u64), sector)?;
                *retries = if is_read { *retries - 1 } else { 0 };
            }
        }
        // Nothing of a file is lost with them.
        self.lost().forget(first.0..first.0 + sectors as u64);
        let mut is_all = true;
        for (place, bytes) in (first.0..).zip(bytes.chunks_exact(SECTOR_BYTES)) {
            let entries = parse(bytes, self.disk(), Sector(place), stamp);
            is_all &= entries.is_some();
            for (of, sums) in entries.into_iter().flatten() {
                is_all &= self.sums_cache().load_swaths(of, sums);
            }
        }
        Ok(is_all)
    }
}

#[cfg(test)]
mod tests {
    use claystone_env::{SECTOR_BYTES, Sector};
    use proptest::prelude::*;

    use super::{CRC_AT, ENTRIES, encode, own_sum, parse};
    use crate::swath::{SWATHS, SwathSums};
    use crate::{DiskId, SUMS_PER_SECTOR, SumsSector};

    const DISK: DiskId = DiskId(*b"0123456789abcdef");

    fn entries() -> Vec<(Sector, SwathSums)> {
        let entry = |number: usize| {
            let mut sums = SumsSector::default();
            (0..SUMS_PER_SECTOR).for_each(|at| sums.set(at, 0x1000_0001u32.wrapping_mul((number + at) as u32)));
            (Sector(7 + 1021 * number as u64), SwathSums::of(&sums))
        };
        (0..ENTRIES).map(entry).collect()
    }

    fn sector() -> Vec<u8> {
        let mut bytes = vec![0xee; SECTOR_BYTES];
        encode(&entries(), DISK, Sector(77), 0x0102_0304, &mut bytes);
        bytes
    }

    #[test]
    fn the_bytes_are_pinned() {
        let bytes = sector();
        assert_eq!(&bytes[..8], b"CLAYSWTH");
        assert_eq!(bytes[12..24], [15, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0]);
        assert_eq!(bytes[24 + 264..24 + 272], (7 + 1021u64).to_le_bytes());
        assert_eq!(bytes[24 + 15 * 264..], [0; 112]);
        assert_eq!(
            blake3::hash(&bytes).to_hex().as_str(),
            "e7b1ca6b63db71ab605bdb57f2fe6e640e44304867b8d7c50a484f7ed58155b0"
        );
    }

    #[test]
    fn it_reads_as_written_there_and_then_only() {
        let bytes = sector();
        let copies = |read: Vec<(Sector, SwathSums)>| -> Vec<(Sector, Vec<u32>)> {
            read.into_iter().map(|(place, sums)| (place, sums.copy(0..SWATHS))).collect()
        };
        let read = parse(&bytes, DISK, Sector(77), 0x0102_0304).expect("as written");
        assert_eq!(copies(read), copies(entries()));
        assert!(parse(&bytes, DISK, Sector(78), 0x0102_0304).is_none(), "elsewhere");
        assert!(parse(&bytes, DISK, Sector(77), 0x0102_0305).is_none(), "another time");
        assert!(parse(&bytes, DiskId([0; 16]), Sector(77), 0x0102_0304).is_none(), "another disk");
        assert!(parse(&[0; SECTOR_BYTES], DISK, Sector(77), 0).is_none(), "nothing");
        for at in [3, 9, 13, 20, 30, 4095] {
            let mut bytes = sector();
            bytes[at] ^= 0x10;
            assert!(parse(&bytes, DISK, Sector(77), 0x0102_0304).is_none(), "byte {at}");
        }
    }

    proptest! {
        #[test]
        fn no_count_is_too_much(count: u32) {
            let mut bytes = sector();
            bytes[12..16].copy_from_slice(&count.to_le_bytes());
            let sum = own_sum(&bytes, DISK, Sector(77));
            bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&sum.to_le_bytes());
            let read = parse(&bytes, DISK, Sector(77), 0x0102_0304);
            prop_assert_eq!(read.map(|read| read.len()), (count as usize <= ENTRIES).then_some(count as usize));
        }
    }
}
