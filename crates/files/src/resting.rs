//! What memory knows of swaths (crate `group`) outlasts a disk's closing: else who opens it would have to read every sums sector to know it again,
//! which takes a hard disk hours.
//!
//! ```text
//! in memory --rest: written to free sectors, synced, named by the catalog--> kept
//! kept --opening--> in memory
//! kept --checkpoint, entry of the journal--> free sectors
//! ```
//!
//! Invariants:
//! 1. They lie in free sectors, and these stay free: whoever takes them writes over what counts no more.
//! 2. They count only while nothing of the disk was changed, and of what changes sums, new runs need a checkpoint to count, which takes the row away; updates in
//!    place need an entry of the journal before them, which moves the sequence on. So no sum is taken up of what a sector held before: else a write that
//!    the drive lost would pass for done.
//! 3. The disk needs none of them, so nothing fails for their lack: what does not read is read from the sums sectors.

use std::sync::TryLockError;
use std::sync::atomic::Ordering;

use claystone_env::{DeviceError, Sector, SectorRange};

use crate::disk::{Disk, FlushLock, guard};
use crate::error::{DiskError, with_sources};
use crate::loading::Loading;
use crate::{FileError, Table, keys};

/// Value of `swaths`: where they lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SwathsKept {
    /// The sequence of the journal's next entry when they were kept.
    pub sequence: u64,
    /// What tells them from those of any other time.
    pub stamp: u64,
    /// Whether they are of all sums sectors.
    pub whole: bool,
    /// The sectors, at most [`RANGES_MAX`] ranges.
    pub sectors: Vec<SectorRange>,
}

impl SwathsKept {
    /// The stored bytes.
    pub fn encode(&self) -> Vec<u8> {
        let ranges = self.sectors.iter().flat_map(|range| [range.first.0, range.sectors]);
        let fields = [self.sequence, self.stamp, u64::from(self.whole)].into_iter().chain(ranges);
        fields.flat_map(u64::to_le_bytes).collect()
    }

    /// Undoes [`SwathsKept::encode`]; `None` for what is none of these, or lies outside of a device of so many sectors.
    pub fn decode(value: &[u8], sectors: u64) -> Option<SwathsKept> {
        let (fields, rest) = value.as_chunks::<8>();
        let fields: Vec<u64> = fields.iter().map(|field| u64::from_le_bytes(*field)).collect();
        let (&[sequence, stamp, whole @ (0 | 1)], ranges) = fields.split_first_chunk()? else { return None };
        let (ranges, odd) = ranges.as_chunks::<2>();
        let is_there = |&[first, len]: &[u64; 2]| len > 0 && first.checked_add(len).is_some_and(|end| end <= sectors);
        let is_right = rest.is_empty() && odd.is_empty() && ranges.len() <= RANGES_MAX && ranges.iter().all(is_there);
        let range = |&[first, sectors]: &[u64; 2]| SectorRange { first: Sector(first), sectors };
        let sectors = ranges.iter().map(range).collect();
        is_right.then_some(SwathsKept { sequence, stamp, whole: whole == 1, sectors })
    }
}

impl Disk {
    /// Takes up what was kept, as far as it counts: to be called before anything is replayed.
    ///
    /// # Errors
    /// [`DiskError::Catalog`].
    pub(crate) fn take_up_swaths(&self) -> Result<(), DiskError> {
        let Some(row) = guard(&self.core).catalog.get(Table::State, keys::SWATHS)? else { return Ok(()) };
        let kept = SwathsKept::decode(&row, self.device.geometry().sectors);
        let next = guard(&self.journal).next().sequence;
        let Some(kept) = kept.filter(|kept| kept.sequence == next) else { return Ok(()) };
        match self.groups.read_swaths(&kept.sectors, kept.stamp) {
            Ok(true) if kept.whole => *guard(&self.loading) = Loading::of_all(),
            Ok(_) => {}
            Err(error) => self.tell_lack(&error),
        }
        Ok(())
    }

    /// Keeps what memory knows, behind a checkpoint, as far as there is room for several times as much.
    ///
    /// # Errors
    /// [`FileError::ReadOnly`].
    pub(crate) fn keep_swaths(&self, _flushing: &FlushLock<'_>) -> Result<(), FileError> {
        // Those of runs that are gone.
        guard(&self.space).rows().for_each(|free| self.groups.forget_swaths(free));
        let room = self.reserve_for_swaths(self.groups.swaths_sectors());
        if room.is_empty() {
            return Ok(());
        }
        let kept = self.keep_swaths_in(&room);
        room.into_iter().for_each(|range| guard(&self.space).unreserve(range));
        kept
    }

    fn keep_swaths_in(&self, room: &[SectorRange]) -> Result<(), FileError> {
        // Asked before: who loads goes on meanwhile, and may end behind what is written then.
        let knows_all = self.knows_all_swaths();
        let sequence = guard(&self.journal).next().sequence;
        let stamp = self.clock.wall().unix_ms.rotate_left(20) ^ sequence;
        let (sectors, is_all) = match self.groups.write_swaths(room, stamp) {
            Ok(written) => written,
            Err(error) => {
                self.tell_lack(&error);
                return Ok(());
            }
        };
        // Not under the locks of the checkpoint, for it may be much.
        self.groups.sync().map_err(|error| guard(&self.core).fail(with_sources(&error)))?;
        let whole = is_all && knows_all;
        self.checkpoint_with(Some(&SwathsKept { sequence, stamp, whole, sectors })).map(drop)
    }

    /// Whether memory knows the sums of all swaths that there are.
    fn knows_all_swaths(&self) -> bool {
        let loads_all = match self.loading.try_lock() {
            Ok(loading) => loading.was_of_all(),
            // It is under way.
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => false,
        };
        loads_all && !self.groups.some_swaths_went()
    }

    /// Free sectors, in few ranges. None where that would take more than a share of what is free, or where the catalog lacks room: others may need
    /// it soon.
    pub(crate) fn reserve_for_swaths(&self, sectors: u64) -> Vec<SectorRange> {
        let mut space = guard(&self.space);
        let has_room = sectors <= space.open_sectors() / FREE_SHARE && !self.catalog_full.load(Ordering::Acquire);
        let (mut room, mut left) = (Vec::new(), if has_room { sectors } else { 0 });
        while left > 0 && room.len() < RANGES_MAX {
            let sectors = space.largest_beside_spare().min(left);
            let Some(range) = (sectors > 0).then(|| space.reserve_beside_spare(sectors)).flatten() else { break };
            left -= range.sectors;
            room.push(range);
        }
        room
    }

    fn tell_lack(&self, error: &DeviceError) {
        let disk = self.device.label();
        tracing::debug!(disk, error = with_sources(error), "checksums that memory knows do not outlast a closing");
    }
}

/// They take at most one part in so many of what is free.
const FREE_SHARE: u64 = 4;
/// Ranges that the row may name.
const RANGES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> SwathsKept {
        let sectors = [(0x0506, 0x07), (0x99, 1)].map(|(first, sectors)| SectorRange { first: Sector(first), sectors });
        SwathsKept { sequence: 0x0102, stamp: 0x0304, whole: true, sectors: sectors.to_vec() }
    }

    #[test]
    fn stored_bytes() {
        let bytes = kept().encode();
        let fields = [0x0102, 0x0304, 1, 0x0506, 7, 0x99, 1];
        assert_eq!(bytes, fields.map(u64::to_le_bytes).concat());
        assert_eq!(SwathsKept::decode(&bytes, 0x0506 + 7), Some(kept()));
        let empty = SwathsKept { sectors: Vec::new(), whole: false, ..kept() };
        assert_eq!(SwathsKept::decode(&empty.encode(), 0), Some(empty));
    }

    #[test]
    fn what_is_none_is_refused() {
        let bytes = kept().encode();
        assert_eq!(SwathsKept::decode(&bytes, 0x0506 + 6), None, "behind the device");
        for len in (0..bytes.len()).filter(|len| ![24, 40].contains(len)) {
            assert_eq!(SwathsKept::decode(&bytes[..len], u64::MAX), None, "{len} bytes");
        }
        let with = |at: usize, field: u64| [&bytes[..8 * at], &field.to_le_bytes(), &bytes[8 * at + 8..]].concat();
        assert_eq!(SwathsKept::decode(&with(2, 2), u64::MAX), None, "neither whole nor not");
        assert_eq!(SwathsKept::decode(&with(4, 0), u64::MAX), None, "no sector");
        assert_eq!(SwathsKept::decode(&with(4, u64::MAX), u64::MAX), None, "more than there can be");
        let many = |count: u64| {
            let sectors = (0..count).map(|first| SectorRange { first: Sector(2 * first), sectors: 1 }).collect();
            SwathsKept { sectors, ..kept() }
        };
        assert_eq!(SwathsKept::decode(&many(64).encode(), 1000), Some(many(64)));
        assert_eq!(SwathsKept::decode(&many(65).encode(), 1000), None);
    }
}
