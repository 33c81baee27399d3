//! What keeps a log whole: segments on enough disks, disks left. Appends wait for it only where their disks change.

use claystone_chunk::DiskId;

use super::{FAILED_FOR, Writer};
use crate::log::LogFailure;

impl Writer {
    /// See [`Log::tend`](crate::log::Log::tend).
    pub(super) async fn tend(&mut self) -> Result<(), LogFailure> {
        let now = self.env.clock.now();
        self.failed.retain(|_, failed| now.since(*failed) < FAILED_FOR);
        let lost = self.is_to_leave_disks() && self.settle().await?;
        self.leave_disks();
        if !self.is_next_good() {
            self.forget_next().await?;
        }
        self.record(&[]).await?;
        if lost || self.next_segment().1.len().min(self.settings.copies) > self.homes.len() {
            self.begin_segment().await?;
        }
        // Disks that keep nothing of the log any more can be removed.
        self.record(&[]).await?;
        self.restore().await
    }

    /// Whether a segment is on a disk that takes no writes any more.
    fn is_to_leave_disks(&self) -> bool {
        let stays = |disk: &DiskId| self.stores.stores.member(*disk).is_some_and(|member| member.writable());
        !self.view.segments().values().flat_map(|segment| &segment.disks).all(stays)
    }

    /// Counts on disks that are to be left no more, where enough others have the same.
    fn leave_disks(&mut self) {
        let stays = |disk: &DiskId| self.stores.stores.member(*disk).is_some_and(|member| member.writable());
        let current = self.number;
        for (number, segment) in &mut *self.view.segments() {
            let staying = segment.disks.iter().filter(|disk| stays(disk)).count();
            if staying == self.settings.copies || (*number == current && staying > 0) {
                segment.disks.retain(stays);
            }
        }
        if self.homes.keys().any(stays) {
            self.homes.retain(|disk, _| stays(disk));
        }
    }
}
