//! Reads the checksums of what was written before the disk was opened, so that who reads some sectors by themselves finds them in memory: one
//! for each swath of 64 KiB of bulk runs (crate `group`). What is written later is in memory as it is written, and what was kept when the disk was
//! closed is there from the beginning (`resting`).
//!
//! ```text
//! begun --> runs, in the order of their files, a few at a time --> ended, until the disk is opened again
//!   \--all was kept--------------------------------------------------^
//! ```
//!
//! Invariants:
//! 1. Sums are read while nobody writes the file: its gate is shared, for one run at a time.
//! 2. It takes a share of the time, whatever else is to be done.
//! 3. What does not read is left out: who needs it, or the scrub, tells.

use std::time::Duration;

use claystone_env::Moment;
use claystone_group::{GroupError, ShownRun};

use crate::disk::{Disk, guard, read_gate};
use crate::error::{DiskError, with_sources};
use crate::run::Run;
use crate::{FileError, Inode};

/// How far it has come.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loading {
    /// With the first window that is not before this one it goes on.
    next: (u64, u64),
    has_ended: bool,
    /// Whether something was left out.
    lacks_some: bool,
    looked: Option<Moment>,
}

impl Loading {
    /// All was there from the beginning.
    pub fn of_all() -> Loading {
        Loading { has_ended: true, ..Loading::default() }
    }

    /// Whether all that was there before the opening is in memory, or was.
    pub fn was_of_all(&self) -> bool {
        self.has_ended && !self.lacks_some
    }
}

impl Disk {
    /// Goes on with reading checksums into memory, in at most [`SHARE`] of the time since the last call; to be called every second or so, by one
    /// thread. Returns whether there is more.
    ///
    /// # Errors
    /// [`DiskError::Device`], behind which the next call goes on; [`DiskError::File`] if the catalog does not read, which ends it.
    pub fn load_swaths_in_passing(&self) -> Result<bool, DiskError> {
        let mut loading = guard(&self.loading);
        let now = self.clock.now();
        let before = loading.looked.replace(now);
        let most = before.map_or(Duration::ZERO, |looked| now.since(looked)).min(SINCE_MAX).mul_f64(SHARE);
        while !loading.has_ended {
            self.load_run(&mut loading)?;
            if self.clock.now().since(now) >= most {
                break;
            }
        }
        Ok(!loading.has_ended)
    }

    /// Loads what is of the run of one window, and goes on behind it, whatever comes out.
    fn load_run(&self, loading: &mut Loading) -> Result<(), DiskError> {
        loading.has_ended = true;
        let next = self.window_from(loading.next.0, loading.next.1);
        loading.lacks_some |= next.is_err();
        let Some((inode, first)) = next? else { return Ok(()) };
        let has_room = self.groups.has_room_for_swaths();
        loading.has_ended = !has_room;
        loading.next = (inode.0, first.saturating_add(1));
        let loaded = self.load_window(inode, first);
        guard(&self.core).nodes.sweep(inode);
        loading.lacks_some |= !has_room || !matches!(loaded, Ok(true));
        loaded.map(drop)
    }

    /// Loads what is of the run of a window, if it is still there. Returns whether memory knows it now.
    fn load_window(&self, inode: Inode, first: u64) -> Result<bool, DiskError> {
        let gate = self.gate(inode);
        let _shared = read_gate(&gate);
        let windows = guard(&self.core).windows(inode, first..first + 1, self.shape.data)?;
        let Some(window) = windows.into_iter().find(|window| window.first == first) else { return Ok(true) };
        let Run::Bulk { run } = window.run else { return Ok(true) };
        let shown = guard(&self.core).shown_of(inode, &window, &(0..run.data), self.shape)?;
        match self.groups.load_swaths(ShownRun::new(run, &shown)) {
            Err(GroupError::Device(error)) => Err(error.into()),
            Err(error) => Err(FileError::Failed { why: with_sources(&error) }.into()),
            Ok(unknown) => Ok(unknown == 0),
        }
    }
}

/// The most of a disk's time that it takes.
const SHARE: f64 = 0.2;
/// The longest time that counts as that since the last call.
const SINCE_MAX: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
