//! Another solid-state drive for a pair: the old one is given up as if it were lost, but with nothing on it; then the hard disk, which
//! goes on alone, gets a new one.
//!
//! ```text
//! pair --retire_ssd--> hard disk alone --join_ssd--> pair, with an empty log on the new drive
//! ```
//!
//! Invariants:
//! 1. Between both, and in each power cut of both, the hard disk opens, alone or with one of the two, and has all.
//! 2. Whatever the new drive holds is no record of this pair that counts: all sequences there are below the floor.

use claystone_env::{Device, Sector, SectorRange};

use super::TieredDevice;
use super::open::{LOST_SHARE, log_sectors_min, side_of};
use super::state::SsdState;
use crate::error::TierError;
use crate::superblock::{Side, Superblock, erase, kept_label, newest};

impl TieredDevice {
    /// Brings all home, and goes on without the solid-state drive, for good. Nobody else writes meanwhile. What was lost before stays so.
    ///
    /// # Errors
    /// [`TierError::Device`]: a device failed, and the pair is as it was, or goes on with the hard disk; [`TierError::NotHome`]: the
    /// pair is as it was.
    pub fn retire_ssd(&self) -> Result<(), TierError> {
        self.sync_all()?;
        let end = self.state().next_seq;
        let mut last = None;
        loop {
            let mut state = self.state();
            let waiting = state.overlay.sectors() - state.overlay.lost();
            let floor = state.superblock.floor;
            if state.ssd != SsdState::Present {
                break;
            }
            if waiting == 0 {
                tracing::info!("the solid-state drive is given up: all that it had is brought home");
                state.ssd = SsdState::Failed;
                break;
            }
            // A batch may bring nothing home, where all of it is lost: what is behind it waits still.
            if floor >= end || last.is_some_and(|last| floor <= last) {
                return Err(TierError::NotHome { hdd: self.hdd.label(), sectors: waiting });
            }
            last = Some(floor);
            drop(state);
            self.drain()?;
        }
        self.sync_all()?;
        Ok(())
    }

    /// Whether a device may become the solid-state drive of a hard disk once that has none: it is large enough, and not the one that the
    /// hard disk has. Returns whether all that it holds is of this pair, and counts no more. Neither is open, and nothing is written.
    ///
    /// # Errors
    /// [`TierError::SsdSame`], [`TierError::TooSmall`], [`TierError::NotATier`], [`TierError::Device`].
    pub fn check_ssd(hdd: &dyn Device, ssd: &dyn Device) -> Result<bool, TierError> {
        let old = side_of(hdd, Side::Hdd)?;
        new_log(&old, hdd, ssd)?;
        let of_pair = newest(ssd)?.ok().filter(|(side, found)| *side == Side::Ssd && found.id == old.id);
        match of_pair {
            Some((_, found)) if !old.ssd_lost && found.generation >= old.generation => {
                Err(TierError::SsdSame { hdd: hdd.label(), ssd: ssd.label() })
            }
            found => Ok(old.ssd_lost && found.is_some()),
        }
    }

    /// Gives a hard disk that goes on alone a solid-state drive. **What that held is lost.** Neither is open; then they are opened as a pair.
    /// `queue_max`: as in [`TierFormat`](crate::TierFormat).
    ///
    /// # Errors
    /// [`TierError::SsdThere`]: the hard disk has one; [`TierError::TooSmall`], [`TierError::NotATier`], [`TierError::Device`].
    pub fn join_ssd(hdd: &dyn Device, ssd: &dyn Device, queue_max: Option<u16>) -> Result<(), TierError> {
        let old = side_of(hdd, Side::Hdd)?;
        if !old.ssd_lost {
            return Err(TierError::SsdThere { hdd: hdd.label() });
        }
        let log = new_log(&old, hdd, ssd)?;
        let [_, hdd_log] = old.logs;
        let superblock = Superblock {
            ssd_lost: false,
            generation: old.generation + 1,
            sectors: [ssd.geometry().sectors, old.sectors[Side::Hdd as usize]],
            logs: [log, hdd_log],
            tails: [0, old.tails[Side::Hdd as usize]],
            index: None,
            queue_max: queue_max.map(|queue| queue.min(u16::MAX - 1)),
            ssd_label: kept_label(ssd.label()),
            ..old
        };
        // The hard disk last: until then it goes on alone.
        superblock.store(ssd, Side::Ssd)?;
        superblock.store(hdd, Side::Hdd)?;
        Ok(())
    }

    /// Takes from a device that was the solid-state drive of a hard disk what says so, so that nobody takes it for the one that this has
    /// now. Returns whether it said so. Neither is open.
    ///
    /// # Errors
    /// [`TierError::NotATier`], [`TierError::Device`].
    pub fn disown_ssd(hdd: &dyn Device, ssd: &dyn Device) -> Result<bool, TierError> {
        let of_hdd = side_of(hdd, Side::Hdd)?;
        let is_former = match newest(ssd)? {
            Ok((side, found)) => {
                side == Side::Ssd && found.id == of_hdd.id && (of_hdd.ssd_lost || found.generation < of_hdd.generation)
            }
            Err(_) => false,
        };
        if is_former {
            erase(ssd)?;
        }
        Ok(is_former)
    }
}

/// The log of a pair on another solid-state drive.
fn new_log(old: &Superblock, hdd: &dyn Device, ssd: &dyn Device) -> Result<SectorRange, TierError> {
    let log_min = log_sectors_min(old.record_sectors_max, old.unmarked_sectors_max);
    let too_small = |label: String, sectors: u64, sectors_min: u64| TierError::TooSmall { label, sectors, sectors_min };
    let (sectors, sectors_min) = (ssd.geometry().sectors, log_min + 2);
    if sectors < sectors_min {
        return Err(too_small(ssd.label(), sectors, sectors_min));
    }
    // No more than the hard disk's log has room to say that it is lost.
    let hdd_log = old.logs[Side::Hdd as usize].sectors;
    let share = hdd_log.saturating_sub(log_min).saturating_mul(LOST_SHARE);
    if share < log_min {
        let label = format!("the log on {}", hdd.label());
        return Err(too_small(label, hdd_log, log_min + log_min.div_ceil(LOST_SHARE)));
    }
    Ok(SectorRange { first: Sector(1), sectors: (sectors - 2).min(share) })
}
