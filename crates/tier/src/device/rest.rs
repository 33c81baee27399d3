//! Rest: all is home, and the hard disk says so. So a solid-state drive that is gone when the pair is opened next takes nothing with it.
//!
//! ```text
//! awake --rest--> at rest --the next write (rouse), or the next opening--> awake
//! ```
//!
//! Invariants:
//! 1. While the hard disk's superblock says that the pair is at rest, no record that was promised lies in either log: what was is at home. It is
//!    taken back, on both devices, before anything is written to a log.
//! 2. So whoever opens a pair at rest passes over both logs, and begins them anew with an epoch of its own.

use std::time::Duration;

use claystone_env::DeviceError;

use super::TieredDevice;
use super::state::SsdState;
use crate::superblock::{Side, Superblock};

impl TieredDevice {
    /// Brings all home, for half a minute at most, and says on both devices that it is. The next write takes that back.
    pub(super) fn rest_all(&self) -> Result<(), DeviceError> {
        let begun = (self.now)();
        while self.drain()?.more && (self.now)().since(begun) < REST_MAX {}
        let _draining = self.draining.take(&*self.bell);
        let _syncing = self.syncing.take(&*self.bell);
        let mut state = self.state();
        // Padding is in no mark, and may be on its way.
        while !state.in_flight.is_empty() {
            state = self.wait(state);
        }
        let has_nothing = state.overlay.sectors() == 0 && state.pending.is_empty() && state.marking.is_empty();
        let works = state.ssd == SsdState::Present && !state.failed;
        if !has_nothing || !works || state.superblock.at_rest {
            return Ok(());
        }
        let floor = state.next_seq;
        let superblock = Superblock { at_rest: true, ..state.superblock_above(floor) };
        // Who writes from here on waits for `draining`, and takes it back.
        state.superblock.at_rest = true;
        drop(state);
        let stored = self.store_both(&superblock);
        let mut state = self.state();
        match stored {
            Ok(true) => {
                state.superblock = superblock;
                state.free_below(floor);
            }
            Ok(false) | Err(_) => state.superblock.at_rest = false,
        }
        drop(state);
        self.bell.ring();
        stored.map(|_| ())
    }

    /// Takes it back that the pair is at rest, before something is written.
    pub(super) fn rouse(&self) -> Result<(), DeviceError> {
        let _draining = self.draining.take(&*self.bell);
        let state = self.state();
        if !state.superblock.at_rest {
            return Ok(());
        }
        let superblock =
            Superblock { at_rest: false, generation: state.superblock.generation + 1, ..state.superblock.clone() };
        drop(state);
        let stored = self.store_both(&superblock);
        let mut state = self.state();
        match stored {
            Ok(true) => state.superblock = superblock,
            // Nothing comes to lie on the solid-state drive any more: the hard disk is right still.
            Ok(false) | Err(_) => state.superblock.at_rest = false,
        }
        drop(state);
        stored.map(|_| ())
    }

    /// Stores a superblock on both devices, the hard disk last. Returns whether the solid-state drive took it; if not, the hard disk has
    /// the former one. The caller holds `draining`.
    fn store_both(&self, superblock: &Superblock) -> Result<bool, DeviceError> {
        let ssd = self.device(Side::Ssd).map_err(|source| DeviceError::Sync { source })?;
        if let Err(error) = superblock.store(ssd, Side::Ssd) {
            self.ssd_failed(&error);
            return Ok(false);
        }
        self.state().counts.ssd_sectors += 2;
        let stored = self.disturb(true, || superblock.store(&*self.hdd, Side::Hdd));
        if stored.is_err() {
            self.failed();
        }
        stored.map(|()| true)
    }
}

/// Whoever stops a program waits for it.
const REST_MAX: Duration = Duration::from_secs(30);
