//! A pair of drives under the disk loses its solid-state drive, or some of what that held: what memory has is written again at once, to
//! the hard disk, before a crash takes memory too.
//!
//! Invariants:
//! 1. Behind [`Disk::write_again`] nothing in the journal that counts is from before the loss, but what found no room, and
//!    nowhere behind its end is anything that does not read. So an opening that finds something there that does not read
//!    refuses rightly, or a crash came before.
//!
//! Left out: sectors of files that are at their places. Memory does not have them; they are decoded from their groups, or lost.

use claystone_env::{Device, SsdState};

use crate::FileError;
use crate::disk::{Disk, FlushLock, guard};
use crate::error::{DiskError, with_sources};

/// What a device has lost, as far as it tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Loss {
    ssd: SsdState,
    sectors: u64,
}

impl Loss {
    /// Nothing of a device that is no pair.
    pub fn of(device: &dyn Device) -> Loss {
        device.pair().map_or_else(Loss::default, |pair| Loss { ssd: pair.ssd, sectors: pair.lost_sectors })
    }

    /// Whether more is lost than was before.
    pub fn exceeds(self, before: Loss) -> bool {
        self.sectors > before.sectors || (self.ssd != SsdState::Present && before.ssd == SsdState::Present)
    }
}

impl Disk {
    /// Writes again what memory has of what the device has lost: the superblock, pages of the catalog with their sums, all that
    /// waits in the journal, behind a checkpoint, and sums of groups. Returns what is lost.
    ///
    /// # Errors
    /// [`FileError::ReadOnly`]: something is lost that it cannot do without, or the device failed.
    pub(crate) fn write_again(&self, flushing: &FlushLock<'_>) -> Result<Loss, FileError> {
        let fail = |error: &dyn std::error::Error| guard(&self.core).fail(with_sources(error));
        // Until a sync the device does not know all that it has lost.
        self.groups.sync().map_err(|error| fail(&error))?;
        let loss = Loss::of(&*self.device);
        let kept = || -> Result<u64, DiskError> {
            self.superblock.settle(&self.copies)?;
            self.pages.keep_lost()
        };
        let kept = kept().map_err(|error| fail(&error))?;
        self.checkpoint(flushing)?;
        self.compact(flushing, || false)?;
        // Behind the catalog, which may have taken the place of some.
        let kept = kept + self.groups.write_sums_again().map_err(|error| fail(&error))?;
        guard(&self.journal).clear_lost().map_err(|error| fail(&error))?;
        tracing::warn!(
            disk = %self.device.label(),
            lost = loss.sectors,
            kept,
            "sectors are lost with the solid-state drive; what memory has of the disk is written again"
        );
        Ok(loss)
    }
}
