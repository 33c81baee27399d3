//! Making durable: a mark of all records that are in none; and what follows when the solid-state drive fails.

use std::io;
use std::sync::MutexGuard;

use claystone_env::{DeviceError, SECTOR_BYTES, SectorRange, aligned_buffer};

use super::TieredDevice;
use super::append::Staged;
use super::state::{Group, SsdState, State};
use crate::record::Kind;
use crate::superblock::{Side, Superblock};

/// What came of a sync.
pub enum Synced {
    Done,
    /// The solid-state drive failed: nothing was promised.
    SsdFailed,
}

impl TieredDevice {
    /// Makes all durable that was written before.
    pub(super) fn sync_all(&self) -> Result<(), DeviceError> {
        let syncing = self.syncing.take(&*self.bell);
        // Whoever syncs next must find it failed.
        let synced = self.sync_held().map_err(|error| self.sync_failed(error));
        drop(syncing);
        match synced? {
            Synced::Done => Ok(()),
            Synced::SsdFailed => {
                let _draining = self.draining.take(&*self.bell);
                self.sync_draining()
            }
        }
    }

    /// Syncs if so much is in no mark that who writes would soon have to wait for one, or the next sync for the hard disk. For who may wait in their place: not for who calls
    /// [`TieredDevice::tend`], since that keeps the hard disk quick while the solid-state drive stalls, and a sync waits for it.
    ///
    /// # Errors
    /// As [`Device::sync`](claystone_env::Device::sync).
    pub fn sync_early(&self) -> Result<(), DeviceError> {
        let waits_long = self.state().waits_long_for_a_mark(self.tuning.copy_sectors_max);
        if waits_long { self.sync_all() } else { Ok(()) }
    }

    /// The same for who holds `draining`.
    pub(super) fn sync_draining(&self) -> Result<(), DeviceError> {
        let _syncing = self.syncing.take(&*self.bell);
        let synced = match self.sync_held() {
            Ok(Synced::Done) => Ok(()),
            Ok(Synced::SsdFailed) => self.settle_loss(),
            Err(error) => Err(error),
        };
        synced.map_err(|error| self.sync_failed(error))
    }

    /// After a sync that failed nothing is promised any more.
    fn sync_failed(&self, error: DeviceError) -> DeviceError {
        self.failed();
        match error {
            DeviceError::Sync { .. } => error,
            error => DeviceError::Sync { source: io::Error::other(error) },
        }
    }

    /// The same for who holds `syncing`.
    fn sync_held(&self) -> Result<Synced, DeviceError> {
        let mut state = self.state();
        state.check(|source| DeviceError::Sync { source })?;
        // Where a sync before did not come to its end.
        state.unmark();
        match state.ssd {
            SsdState::Failed => Ok(Synced::SsdFailed),
            SsdState::Present | SsdState::Lost => self.mark_pending(state),
        }
    }

    /// Writes a mark of all that is in none, and makes it durable. The caller holds `syncing`.
    fn mark_pending(&self, mut state: MutexGuard<'_, State>) -> Result<Synced, DeviceError> {
        if state.pending.is_empty() {
            return Ok(Synced::Done);
        }
        state.marking = std::mem::take(&mut state.pending);
        let side = state.mark_side();
        let mut copies = match side {
            Side::Ssd => self.replace_volatile(&mut state),
            Side::Hdd => Vec::new(),
        };
        let hdd_has_some = state.marking.iter().any(|seq| state.records[seq].side == Side::Hdd);
        let padded = std::mem::take(&mut state.padded);
        if side == Side::Ssd && !hdd_has_some {
            copies.extend(self.stage_void(&mut state, &padded));
        }
        let group_end = match side {
            Side::Ssd => self.stage_group_end(&mut state)?,
            Side::Hdd => {
                // Those of a solid-state drive that is lost.
                state.group = Group::default();
                None
            }
        };
        let mark = self.stage_mark(&mut state, side)?;
        drop(state);
        self.write_copies(copies);
        let mut state = self.state();
        // Where the hard disk is not synced, padding and what was copied may be on its way still.
        let waits = |state: &State| {
            let mut before = state.in_flight.range(..mark.seq);
            if hdd_has_some { before.next().is_some() } else { before.any(|seq| state.marking.contains(seq)) }
        };
        while waits(&state) {
            state = self.wait(state);
        }
        if state.has_lost(side) {
            // One of those writes failed: memory alone has it.
            state.unmark();
            return Ok(Synced::SsdFailed);
        }
        state.counts.syncs += 1;
        drop(state);
        if side == Side::Ssd && hdd_has_some {
            self.sync_hdd()?;
        }
        let written = self.write_behind(group_end, &mark).and_then(|()| self.sync_side(side));
        if let Err(error) = written {
            if side == Side::Hdd {
                self.failed();
                return Err(error);
            }
            self.ssd_failed(&error);
        }
        let mut state = self.state();
        if state.has_lost(side) {
            state.unmark();
            return Ok(Synced::SsdFailed);
        }
        let marked = std::mem::take(&mut state.marking);
        state.marked(&marked);
        state.durable_mark = mark.seq;
        state.mark_from = mark.seq + 1;
        Ok(Synced::Done)
    }

    /// Takes sequence and place for a mark of `marking`.
    pub(super) fn stage_mark(&self, state: &mut State, side: Side) -> Result<Staged, DeviceError> {
        let mut list = Vec::with_capacity(state.list_bytes);
        for seq in &state.marking {
            state.records[seq].entries.iter().for_each(|entry| entry.encode(&mut list));
        }
        assert!(list.len() <= state.list_bytes_max(), "who stages a record looks whether a mark has room for it");
        let from = state.mark_from;
        self.stage_list(state, (side, Kind::Mark), from, list, 0).ok_or_else(no_room)
    }

    /// Writes a mark and makes its log durable.
    pub(super) fn write_mark(&self, mark: &Staged) -> Result<(), DeviceError> {
        self.write_for_sync(mark)?;
        self.sync_side(mark.side)
    }

    /// Writes a mark, and what is before it, in one request if they follow each other.
    fn write_behind(&self, before: Option<Staged>, mark: &Staged) -> Result<(), DeviceError> {
        let Some(before) = before else { return self.write_for_sync(mark) };
        let sectors = (before.bytes.len() / SECTOR_BYTES) as u64;
        if before.first.0 + sectors != mark.first.0 {
            // The ring's end is between them.
            self.write_for_sync(&before)?;
            return self.write_for_sync(mark);
        }
        let mut bytes = aligned_buffer(before.bytes.len() + mark.bytes.len());
        bytes.extend_from_slice(&before.bytes);
        bytes.extend_from_slice(&mark.bytes);
        self.write_for_sync(&Staged { bytes: bytes.freeze(), ..before })
    }

    fn sync_side(&self, side: Side) -> Result<(), DeviceError> {
        match side {
            Side::Hdd => self.sync_hdd(),
            Side::Ssd => self.device(Side::Ssd).map_err(|source| DeviceError::Sync { source })?.sync(),
        }
    }

    pub(super) fn sync_hdd(&self) -> Result<(), DeviceError> {
        let synced = self.disturb(true, || self.hdd.sync());
        match &synced {
            Ok(()) => self.state().counts.hdd_syncs += 1,
            Err(_) => self.failed(),
        }
        synced
    }

    /// The solid-state drive has failed: all that can be is brought home, and of the rest the hard disk says that it is lost. The caller holds
    /// `draining` and `syncing`.
    fn settle_loss(&self) -> Result<(), DeviceError> {
        let (floor, lost) = self.rescue()?;
        self.give_up_ssd(floor, &lost)
    }

    /// Brings all home that memory has, or the logs; that of the solid-state drive too, while it is read: it has failed. Returns the sequence up
    /// to which it did, and what is lost. The caller holds `draining` and `syncing`.
    pub(super) fn rescue(&self) -> Result<(u64, Vec<SectorRange>), DeviceError> {
        let mut state = self.state();
        let floor = state.next_seq;
        // One that did not answer a moment ago may do so again.
        state.ssd_reads_failed = 0;
        // Those that are given out from now on go to the hard disk.
        while state.in_flight.first().is_some_and(|seq| *seq < floor) {
            state = self.wait(state);
        }
        drop(state);
        Ok((floor, self.bring_home(floor)?))
    }

    /// Says on the hard disk that the solid-state drive is lost, and what with it, when all that could be is home up to a sequence. The caller
    /// holds `draining` and `syncing`.
    pub(super) fn give_up_ssd(&self, floor: u64, lost: &[SectorRange]) -> Result<(), DeviceError> {
        let mut state = self.state();
        // The next mark covers them and lists them not: the home has them.
        let (below, above) =
            std::mem::take(&mut state.pending).into_iter().partition::<Vec<u64>, _>(|seq| *seq < floor);
        state.marked(&below);
        state.pending = above;
        drop(state);
        // The hard disk's log keeps the room for it until all is said.
        let sync = || self.mark_pending(self.state()).map(|_| ());
        self.say_lost(lost, floor, &sync)?;
        sync()?;
        self.state().ssd = SsdState::Lost;
        self.move_floor(floor)
    }

    /// Stores a superblock with a higher floor, and frees what is below.
    pub(super) fn move_floor(&self, floor: u64) -> Result<(), DeviceError> {
        let state = self.state();
        let ssd_lost = state.ssd == SsdState::Lost;
        let above = state.superblock_above(floor);
        let superblock = Superblock { ssd_lost, index: above.index.filter(|_| !ssd_lost), ..above };
        let side = if ssd_lost { Side::Hdd } else { Side::Ssd };
        drop(state);
        let device = self.device(side).map_err(|source| DeviceError::Sync { source })?;
        if let Err(error) = superblock.store(device, side) {
            match side {
                Side::Hdd => self.failed(),
                Side::Ssd => self.ssd_failed(&error),
            }
            return Err(error);
        }
        let mut state = self.state();
        if side == Side::Ssd {
            state.counts.ssd_sectors += 2;
        }
        state.superblock = superblock;
        state.free_below(floor);
        drop(state);
        self.bell.ring();
        Ok(())
    }
}

pub fn no_room() -> DeviceError {
    DeviceError::Sync { source: io::Error::other("a log has no room for a mark") }
}
