//! What a sync does about records in the hard disk's buffer: it syncs the hard disk, or writes them once more, to the solid-state drive.
//!
//! Invariants:
//! 1. A copy has what of its record is the newest, under a later sequence, and is staged in one step with the mark that covers both: that
//!    lists the copy and not the record. So nothing older supersedes anything newer.
//! 2. What a copy is of is in memory once: it has its record's bytes by reference, and is put together where it is written, while others
//!    stage their writes.
//! 3. Nothing of a record that was copied counts any more, and no index says that it does.
//! 4. A copy says which record it stands for, and a void record which padding was not synced, so that nobody misses those if the mark is
//!    lost.

use bytes::Bytes;
use claystone_env::{DeviceError, SECTOR_BYTES, SectorRange, aligned_buffer};

use super::TieredDevice;
use super::append::{Staged, hold_placed, hold_unlisted, take_place};
use super::state::{LOST_OF_A_RECORD, State};
use super::sync::no_room;
use crate::record::{Header, Kind, entry_bytes, fits_header, looks_like_headers};
use crate::superblock::{PairId, Side};

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPlan {
    /// Nothing is in the hard disk's buffer that no mark has.
    SsdAlone,
    /// Write it to the solid-state drive too.
    Copy,
    /// Sync the hard disk.
    SyncBoth,
}

/// What of the records that a mark shall list is in the hard disk's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Volatile {
    /// How many.
    pub records: u64,
    /// Sectors that copies of them would take, if each had a header.
    pub sectors: u64,
    /// Whether all of them can be copied: memory has them, and there is room for their copies.
    pub can_be_copied: bool,
}

/// Decides what a sync does.
pub fn plan_sync(volatile: &Volatile, copy_sectors_max: u64) -> SyncPlan {
    match volatile.records {
        0 => SyncPlan::SsdAlone,
        _ if volatile.can_be_copied && volatile.sectors <= copy_sectors_max => SyncPlan::Copy,
        _ => SyncPlan::SyncBoth,
    }
}

/// What of a record is the newest.
struct Rest {
    seq: u64,
    extents: Vec<SectorRange>,
    /// Where each is in the payload.
    at: Vec<u32>,
    sectors: u64,
}

/// A copy or a void record that has its place, and is to be put together and written there.
pub struct StagedCopy {
    header: Header,
    /// Its payload.
    parts: Vec<Bytes>,
}

impl StagedCopy {
    /// All that is written.
    fn bytes(&self, id: PairId) -> Bytes {
        let mut bytes = aligned_buffer(self.header.sectors() as usize * SECTOR_BYTES);
        if self.header.kind != Kind::Bare {
            bytes.extend_from_slice(&self.header.encode(id));
        }
        self.parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.freeze()
    }
}

impl TieredDevice {
    /// If that is cheaper than a sync of the hard disk: stages copies of what it has of `marking`, which then names those instead.
    pub(super) fn replace_volatile(&self, state: &mut State) -> Vec<StagedCopy> {
        let volatile: Vec<u64> =
            state.marking.iter().copied().filter(|seq| state.records[seq].side == Side::Hdd).collect();
        let rests: Vec<Rest> = match self.tuning.copy_sectors_max {
            0 => Vec::new(),
            _ => volatile.iter().map(|seq| rest(state, *seq)).collect(),
        };
        let found = Volatile {
            records: volatile.len() as u64,
            sectors: rests.iter().map(|rest| 1 + rest.sectors).sum(),
            can_be_copied: rests.len() == volatile.len() && can_be_copied(state, &volatile, &rests),
        };
        match plan_sync(&found, self.tuning.copy_sectors_max) {
            SyncPlan::SsdAlone | SyncPlan::SyncBoth => return Vec::new(),
            SyncPlan::Copy => {}
        }
        assert!(state.pending.is_empty(), "all of it is being marked");
        let mut copies = Vec::with_capacity(rests.len());
        for rest in rests {
            let held = &state.records[&rest.seq];
            // Its checksums are those of when it was written: made anew they would take long, and vouch for what memory became.
            let (mut parts, mut crcs) = (Vec::with_capacity(rest.at.len()), Vec::with_capacity(rest.sectors as usize));
            for (extent, at) in rest.extents.iter().zip(&rest.at) {
                parts.push(held.content(*at, extent.sectors).expect("memory has it"));
                crcs.extend_from_slice(held.crcs(*at, extent.sectors));
            }
            let kind = match crcs.is_empty() {
                true => Kind::Void,
                false if parts.iter().any(|part| looks_like_headers(part)) => Kind::Data,
                false => Kind::Bare,
            };
            state.counts.copied_sectors += rest.sectors;
            let (header, position) = take_place(state, Side::Ssd, kind, rest.extents, crcs, rest.seq);
            hold_placed(state, &header, position, parts.clone());
            copies.push(StagedCopy { header, parts });
        }
        state.marked(&volatile);
        for seq in &volatile {
            if let Some(held) = state.records.get_mut(seq) {
                held.entries.clear();
            }
        }
        state.marking.retain(|seq| volatile.binary_search(seq).is_err());
        let staged = std::mem::take(&mut state.pending);
        state.marking.extend(staged);
        copies
    }

    /// Stages what says that padding need not be there: the hard disk is not synced, and whoever misses a mark would miss it too.
    pub(super) fn stage_void(&self, state: &mut State, padded: &[SectorRange]) -> Vec<StagedCopy> {
        let mut staged = Vec::new();
        let mut rest = padded;
        while !rest.is_empty() {
            let (ranges, behind) = rest.split_at(rest.len().min(LOST_OF_A_RECORD as usize));
            let has_room = state.rings[Side::Ssd as usize].has_room(1, state.reserve(Side::Ssd));
            if !has_room || !state.may_await(Side::Ssd, 1, entry_bytes(ranges.len(), 0)) {
                break;
            }
            let (header, position) = take_place(state, Side::Ssd, Kind::Void, ranges.to_vec(), Vec::new(), 0);
            hold_placed(state, &header, position, Vec::new());
            staged.push(StagedCopy { header, parts: Vec::new() });
            rest = behind;
        }
        // What there is no room for is for the next sync.
        state.padded.splice(..0, rest.iter().copied());
        let of_them = std::mem::take(&mut state.pending);
        state.marking.extend(of_them);
        staged
    }

    /// Stages what lists the bare records that no header lists. It is nothing itself, so no mark lists it; and as a mark it is not in flight: it
    /// is written with that.
    ///
    /// # Errors
    /// The log has no room.
    pub(super) fn stage_group_end(&self, state: &mut State) -> Result<Option<Staged>, DeviceError> {
        if state.group.is_empty() {
            return Ok(None);
        }
        let side = Side::Ssd;
        if !state.rings[side as usize].has_room(1, 0) {
            return Err(no_room());
        }
        let (header, position) = take_place(state, side, Kind::Void, Vec::new(), Vec::new(), 0);
        hold_unlisted(state, &header, position);
        let mut bytes = aligned_buffer(SECTOR_BYTES);
        bytes.extend_from_slice(&header.encode(state.superblock.id));
        Ok(Some(self.staged(&header, bytes.freeze())))
    }

    /// Writes copies that were staged. What the solid-state drive does not take, memory has still.
    pub(super) fn write_copies(&self, copies: Vec<StagedCopy>) {
        let id = self.state().superblock.id;
        for copy in copies {
            if let Err(error) = self.write_for_sync(&self.staged(&copy.header, copy.bytes(id))) {
                self.ssd_failed(&error);
            }
            self.state().in_flight.remove(&copy.header.seq);
        }
        self.bell.ring();
    }
}

fn rest(state: &State, seq: u64) -> Rest {
    let newest = state.newest_of(seq);
    Rest {
        seq,
        sectors: newest.iter().map(|(range, _)| range.sectors).sum(),
        at: newest.iter().map(|(_, place)| place.at).collect(),
        extents: newest.into_iter().map(|(range, _)| range).collect(),
    }
}

/// Whether memory has all of them, and the solid-state drive's log and the mark have room.
fn can_be_copied(state: &State, volatile: &[u64], rests: &[Rest]) -> bool {
    let is_whole = |seq: &u64| {
        let held = &state.records[seq];
        held.kind == Kind::Data && held.memory.is_some()
    };
    let (side, mut ring) = (Side::Ssd, state.rings[Side::Ssd as usize]);
    let fits = |rest: &Rest| fits_header(rest.extents.len(), rest.sectors as usize);
    let has_room = rests.iter().all(|rest| fits(rest) && ring.take(1 + rest.sectors, state.reserve(side)).is_some());
    let bytes_of = |seq: &u64| state.records[seq].entries.iter().map(crate::record::Entry::bytes).sum::<usize>();
    let of_records: usize = volatile.iter().map(bytes_of).sum();
    let of_copies: usize = rests.iter().map(|rest| entry_bytes(rest.extents.len(), rest.sectors as usize)).sum();
    let sectors: u64 = rests.iter().map(|rest| 1 + rest.sectors).sum();
    volatile.iter().all(is_whole)
        && has_room
        && state.list_bytes - of_records + of_copies <= state.list_bytes_max()
        && state.unmarked[side as usize] + sectors <= u64::from(state.superblock.unmarked_sectors_max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_that_can_be_copied_is_copied() {
        let volatile = Volatile { records: 2, sectors: 10, can_be_copied: true };
        assert_eq!(plan_sync(&volatile, 10), SyncPlan::Copy);
        assert_eq!(plan_sync(&volatile, 9), SyncPlan::SyncBoth);
        assert_eq!(plan_sync(&volatile, 0), SyncPlan::SyncBoth);
        assert_eq!(plan_sync(&Volatile { can_be_copied: false, ..volatile }, 10), SyncPlan::SyncBoth);
        assert_eq!(plan_sync(&Volatile::default(), 10), SyncPlan::SsdAlone);
    }
}
