//! What keeps a log whole: segments on enough disks, disks left. Appends wait for it only where their disks change.

use std::collections::BTreeSet;

use claystone_chunk::{DiskId, StoreState};

use super::{FAILED_FOR, Writer};
use crate::log::LogFailure;

impl Writer {
    /// See [`Log::tend`](crate::log::Log::tend).
    pub(super) async fn tend(&mut self) -> Result<(), LogFailure> {
        self.forget_failures();
        let lost = self.is_to_leave_disks() && self.settle().await?;
        self.leave_absent_disks();
        if !self.is_next_good() {
            self.forget_next().await?;
        }
        self.record(&[]).await?;
        // Before disks are left, so that no write is on fewer.
        if lost || self.is_better_in_another() {
            self.begin_segment().await?;
        }
        self.leave_disks();
        // Disks that keep nothing of the log any more can be removed.
        self.record(&[]).await?;
        self.restore().await
    }

    /// Asks disks again that failed a while ago.
    pub(super) fn forget_failures(&mut self) {
        let now = self.env.clock.now();
        self.failed.retain(|_, failed| now.since(failed.since) < FAILED_FOR);
    }

    /// Whether a segment is on a disk that takes no writes any more.
    fn is_to_leave_disks(&self) -> bool {
        let stays = |disk: &DiskId| self.stores.stores.is_writable(*disk);
        !self.view.segments().values().flat_map(|segment| &segment.disks).all(stays)
    }

    /// Counts on disks that are to be left no more, where enough others have the same.
    fn leave_disks(&mut self) {
        let stays = |disk: &DiskId| self.stores.stores.is_writable(*disk);
        let mut left = BTreeSet::new();
        for segment in self.view.segments().values_mut() {
            if segment.disks.iter().filter(|disk| stays(disk)).count() >= self.settings.copies {
                left.extend(segment.disks.extract_if(.., |disk| !stays(disk)));
            }
        }
        left.into_iter().for_each(|disk| self.view.leave(disk, self.numbers));
    }

    /// Appends no more to disks that take nothing, where another one does. They did not fail: what they have they keep.
    fn leave_absent_disks(&mut self) {
        let store = |disk: &DiskId| self.stores.stores.readable(*disk);
        let takes = |disk: &DiskId| store(disk).is_some_and(|store| store.state() == StoreState::Serving);
        if !self.homes.keys().any(takes) {
            return;
        }
        self.homes.retain(|disk, _| takes(disk));
        // Those before are not synced there, and cannot be.
        let ended = self.ended.segments().map(|(number, _)| number);
        let mut left = BTreeSet::new();
        for number in ended.chain([self.number]) {
            if let Some(segment) = self.view.segments().get_mut(&number)
                && segment.disks.iter().any(takes)
            {
                left.extend(segment.disks.extract_if(.., |disk| !takes(disk)));
            }
        }
        left.into_iter().for_each(|disk| self.view.leave(disk, self.numbers));
    }
}
