//! A disk takes up a device that has become larger.
//!
//! The superblock names the new end first. The row `end` of the table `state` says up to where the catalog knows sectors, so
//! what lies between the two becomes free then, or when the disk is opened next.

use claystone_env::{Sector, SectorRange};

use crate::core::Core;
use crate::disk::{Disk, guard};
use crate::error::{Damage, DiskError};
use crate::{Change, Table, keys};

impl Disk {
    /// Takes up all sectors that the device has by now. Returns how many are new.
    ///
    /// # Errors
    /// [`DiskError::Device`], [`DiskError::File`].
    pub fn grow(&self) -> Result<u64, DiskError> {
        let flushing = self.lock_flusher();
        let old = self.superblock.current();
        let sectors = self.device.geometry().sectors;
        if sectors <= old.sectors {
            return Ok(0);
        }
        self.superblock.store(|superblock| superblock.sectors = sectors)?;
        self.take_up_end(&mut guard(&self.core))?;
        self.checkpoint(&flushing)?;
        Ok(sectors - old.sectors)
    }

    /// Makes the sectors free that the superblock has and the catalog does not know.
    pub(crate) fn take_up_end(&self, core: &mut Core) -> Result<(), DiskError> {
        let end = self.superblock.current().back().first;
        let damaged = || Damage::Row { table: Table::State, key: keys::END.to_vec() };
        let known = core.catalog.get(Table::State, keys::END)?.and_then(|value| value.try_into().ok());
        let known = Sector(known.map(u64::from_le_bytes).ok_or_else(damaged)?);
        if known > end {
            return Err(damaged().into());
        }
        if known < end {
            let mut changes = vec![end_row(end)];
            let free = SectorRange { first: known, sectors: end.0 - known.0 };
            guard(&self.space).make_free(free, &mut changes);
            core.apply(changes);
        }
        Ok(())
    }
}

/// The row that says up to where the catalog knows sectors.
pub(crate) fn end_row(end: Sector) -> Change {
    Change { table: Table::State, key: keys::END.to_vec(), value: Some(end.0.to_le_bytes().to_vec()) }
}
