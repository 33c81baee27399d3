//! A hard disk and a solid-state drive as one device: writes go to a log on one of them, reads overlay the logs on the hard disk's
//! home, and what was written is brought home later, in the order of the home.
//!
//! ```text
//! write_each -> append -> a log, and the overlay          read_each -> memory, a log, or home
//! sync -> a mark of all records in none, in the solid-state drive's log
//! drain (tend, or who writes while a log is full) -> home, synced -> superblock: the log is free up to there
//! index -> what both logs hold, in the solid-state drive's log -> superblock: an opening need not read it there
//! rest -> all is home, and the hard disk says so
//! open -> indexes, scan of what is behind them, recover -> the same overlay, and a mark of what it holds; of a pair at rest nothing
//! ```
//!
//! The format, its states and what holds in each: docs/formats/tiered-device.md.
//!
//! Invariants:
//! 1. The overlay changes when a sequence is given out, in one step with it: so memory, and whoever reads the logs after a power cut,
//!    agree on which of two writes is the later one.
//! 2. A record's content is in memory until a mark that lists it is durable. So a solid-state drive that fails takes nothing
//!    with it that no sync promised; and if it still reads, nothing at all.
//! 3. No place of a log is written while it is above the floor of the superblock on the devices, or while somebody reads there.
//! 4. What is read from a log has the checksum that its record says, or it is a failed sector. Content that is older than what was
//!    promised is never read.
//! 5. After a sync of the hard disk failed, nothing is written any more.
//!
//! Locks, in this order: `draining`, `syncing`, `state`. No call of a device is under `state`.

mod append;
mod bell;
mod copy;
mod drain;
mod guide;
mod index;
mod info;
mod line;
mod open;
mod original;
mod read;
mod rejoin;
mod rest;
mod state;
mod sync;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use claystone_env::{Device, DeviceError, Effort, FailedSector, Geometry, Moment, PairHealth, Sector, SectorRange};

use self::bell::Turn;
use self::state::{SsdState, State};
use crate::superblock::Side;

pub use self::bell::Bell;
pub use self::drain::{Drained, Tended};
pub use self::info::{Opening, TierCounts, TierInfo};
pub use self::open::{Steering, TierFormat, TierTuning};

/// What time it is: of the machine, of a simulated world, or of an emulated device.
pub type Now = Arc<dyn Fn() -> Moment + Send + Sync>;

/// See the module.
pub struct TieredDevice {
    hdd: Arc<dyn Device>,
    /// `None`: it is lost, and the superblock says so.
    ssd: Option<Arc<dyn Device>>,
    now: Now,
    tuning: TierTuning,
    /// Where the home begins on the hard disk.
    home: SectorRange,
    logs: [SectorRange; 2],
    draining: Turn,
    syncing: Turn,
    state: Mutex<State>,
    /// Rung when a record has landed, or a log has room, or somebody's turn has ended.
    bell: Arc<dyn Bell>,
}

impl TieredDevice {
    /// The same, whose calls wait for each other at this bell.
    pub fn with_bell(self, bell: Arc<dyn Bell>) -> TieredDevice {
        TieredDevice { bell, ..self }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something has changed.
    fn wait<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.wait_at(&*self.bell, state)
    }

    /// Waits until this bell is rung.
    fn wait_at<'a>(&'a self, bell: &dyn Bell, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let rings = bell.rings();
        drop(state);
        bell.wait(rings);
        self.state()
    }

    /// A side's device.
    fn device(&self, side: Side) -> Result<&dyn Device, io::Error> {
        match side {
            Side::Hdd => Ok(&*self.hdd),
            Side::Ssd => self.ssd.as_deref().ok_or_else(|| io::Error::other("the solid-state drive is lost")),
        }
    }

    /// The solid-state drive did not answer a read at all.
    fn ssd_read_failed(&self, source: &dyn std::error::Error) {
        self.ssd_failed(source);
        self.state().ssd_reads_failed += 1;
    }

    /// The solid-state drive did not do what it was asked: nothing more is written to it, and what it has is brought home with the next sync.
    fn ssd_failed(&self, source: &dyn std::error::Error) {
        let mut state = self.state();
        if state.ssd == SsdState::Present {
            tracing::warn!(error = %source, "the solid-state drive failed; writes go to the hard disk alone");
            state.ssd = SsdState::Failed;
            drop(state);
            // Who waits for room in its log writes to the other one.
            self.bell.ring();
        }
    }

    /// The hard disk cannot be trusted any more.
    fn failed(&self) {
        self.state().failed = true;
        // Who waits for room waits in vain.
        self.bell.ring();
    }
}

impl Device for TieredDevice {
    fn label(&self) -> String {
        self.hdd.label()
    }

    fn manner(&self) -> Vec<String> {
        let mut manner = self.hdd.manner();
        manner.push(match &self.ssd {
            Some(ssd) => format!("writes wait in logs on {} and on the disk itself", ssd.label()),
            None => "its solid-state drive is lost: writes wait in a log on the disk itself".to_owned(),
        });
        manner
    }

    fn pair(&self) -> Option<PairHealth> {
        Some(self.health())
    }

    fn has_lost(&self, range: SectorRange) -> bool {
        self.state().knows_lost(range)
    }

    fn geometry(&self) -> Geometry {
        Geometry { sectors: self.home.sectors, ..self.hdd.geometry() }
    }

    /// The hard disk's: what the solid-state drive takes is little beside it.
    fn elapsed(&self) -> Option<Duration> {
        self.hdd.elapsed()
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        self.read_each(&mut [(first, into)], effort).pop().expect("one result for each")
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        self.write_each(&[(first, bytes)])
    }

    fn read_each(
        &self,
        reads: &mut [(Sector, &mut [u8])],
        effort: Effort,
    ) -> Vec<Result<Vec<FailedSector>, DeviceError>> {
        for (first, into) in reads.iter() {
            self.geometry().range(*first, into.len());
        }
        self.state().read_at = (self.now)();
        self.read_all(reads, effort)
    }

    fn write_each(&self, writes: &[(Sector, &[u8])]) -> Result<(), DeviceError> {
        for (first, bytes) in writes {
            self.geometry().range(*first, bytes.len());
        }
        self.state().written_at = (self.now)();
        self.write_all(writes)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.sync_all()
    }

    fn rest(&self) -> Result<(), DeviceError> {
        self.rest_all()
    }

    /// Drops what waits of these sectors in the logs. The hard disk is not told: it may be bringing them home.
    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.geometry().assert_holds(range);
        let mut state = self.state();
        state.check(|source| DeviceError::Write { range, source })?;
        state.overlay.remove(range);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
