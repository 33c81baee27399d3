//! Sectors that wait from before a crash, in groups whose parity it may have torn, and that are to wait no more: for a hole or a cut.
//!
//! The journal tells which groups those are as long as it has the sectors, so they are not forgotten before the parity of what is left fits it, or
//! is void:
//!
//! ```text
//! from before a crash --flush: the group is encoded again--> clean
//!   --it cannot be, for want of room--> void --the entry that forgets the sectors--> forgotten
//! ```
//!
//! Invariants:
//! 1. Void parity is durable before the journal forgets why it was needed.

use std::collections::BTreeMap;
use std::ops::Range;

use claystone_env::Sector;
use claystone_group::GroupPlace;

use crate::core::Core;
use crate::disk::{Disk, FlushLock, guard};
use crate::error::with_sources;
use crate::run::Run;
use crate::{FileError, Inode};

impl Disk {
    /// Brings what waits of a file from before a crash into its groups, as far as it can be, if some of `sectors` is to be forgotten. Returns
    /// those of them that wait on, ascending.
    ///
    /// # Errors
    /// [`FileError::ReadOnly`].
    pub(crate) fn flush_torn(
        &self,
        inode: Inode,
        sectors: Range<u64>,
        flushing: &FlushLock<'_>,
    ) -> Result<Vec<u64>, FileError> {
        let before = torn(&guard(&self.core), inode, sectors.clone());
        if before.is_empty() {
            return Ok(before);
        }
        if let Err(error @ FileError::ReadOnly { .. }) = self.flush(inode, flushing) {
            return Err(error);
        }
        let mut left = torn(&guard(&self.core), inode, sectors);
        left.retain(|sector| before.binary_search(sector).is_ok());
        Ok(left)
    }

    /// Makes the parity void of all groups that `sectors`, ascending, lie in, which [`Disk::flush_torn`] has left. Who calls has held the flusher's
    /// lock since, and holds the gate alone.
    ///
    /// # Errors
    /// As [`Core::windows`]; [`FileError::ReadOnly`].
    pub(crate) fn void_torn(&self, inode: Inode, sectors: &[u64]) -> Result<(), FileError> {
        let places = self.groups_with(&guard(&self.core), inode, sectors)?;
        if places.is_empty() {
            return Ok(());
        }
        for place in places {
            if let Err(error) = self.groups.void(place) {
                return Err(self.write_failed(&with_sources(&error)));
            }
        }
        let mut core = guard(&self.core);
        core.growing.forget(inode);
        core.unsynced = true;
        Ok(())
    }

    /// The groups that `sectors`, ascending, lie in.
    fn groups_with(&self, core: &Core, inode: Inode, sectors: &[u64]) -> Result<Vec<GroupPlace>, FileError> {
        let (Some(first), Some(last)) = (sectors.first(), sectors.last()) else { return Ok(Vec::new()) };
        let k = self.shape.data;
        let mut places: BTreeMap<Sector, GroupPlace> = BTreeMap::new();
        for window in core.windows(inode, *first..last + 1, k)? {
            let own = sectors.partition_point(|sector| *sector < window.first)
                ..sectors.partition_point(|sector| *sector < window.end());
            for sector in &sectors[own] {
                let place = match window.run {
                    Run::Single { place, .. } => place,
                    Run::Bulk { run } => run.group(window.position(*sector) / k, self.shape),
                    Run::Promised { .. } => continue,
                };
                places.insert(place.first, place);
            }
        }
        Ok(places.into_values().collect())
    }
}

/// Those of `sectors` that wait from before a crash, or that an fsync has found since: which, is not told apart.
fn torn(core: &Core, inode: Inode, sectors: Range<u64>) -> Vec<u64> {
    let node = core.nodes.find(inode).filter(|node| node.distrusts_parity && !sectors.is_empty());
    let waiting = node.into_iter().flat_map(|node| node.waiting.range(sectors.clone()));
    waiting.filter(|(_, waiting)| waiting.needs().is_some()).map(|(sector, _)| *sector).collect()
}

#[cfg(test)]
mod tests;
