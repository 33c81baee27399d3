//! What keeps a log whole: copies where some are missing, disks left. Appends wait for it only where their disks change.

use std::sync::Arc;

use bytes::Bytes;
use claystone_chunk::{ChunkStore, DiskId, SegmentError, SegmentId};
use claystone_stripe::place;

use super::{FAILED_FOR, Writer, gone};
use crate::log::record::LogPlace;
use crate::log::view::Segment;
use crate::log::{LogFailure, records_end};

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
        self.restore().await?;
        // Disks that keep nothing of the log any more can be removed.
        self.record(&[]).await
    }

    /// Copies segments that miss copies to other disks.
    pub(super) async fn restore(&mut self) -> Result<(), LogFailure> {
        let wanting: Vec<(u64, Segment)> = {
            let segments = self.view.segments();
            let stays = |disk: &&DiskId| self.stores.stores.member(**disk).is_some_and(|member| member.writable());
            let wanting = |segment: &Segment| segment.disks.iter().filter(stays).count() < self.settings.copies;
            segments
                .iter()
                .filter(|(number, segment)| **number != self.number && wanting(segment))
                .map(|(number, segment)| (*number, segment.clone()))
                .collect()
        };
        for (number, segment) in wanting {
            let taken: Vec<_> = segment.disks.iter().filter_map(|disk| self.stores.stores.member(*disk)).collect();
            let taken: Vec<_> = taken.into_iter().map(|member| (member.record.id, member.record.node)).collect();
            let mut candidates = self.candidates(self.settings.segment_bytes, 1);
            candidates.retain(|candidate| !segment.disks.contains(&candidate.disk));
            let staying = segment
                .disks
                .iter()
                .filter(|disk| self.stores.stores.member(**disk).is_some_and(|member| member.writable()));
            let missing = self.settings.copies - staying.count();
            let disks = place(&candidates, &taken, missing, |bound| self.env.random.below(bound));
            if disks.is_empty() {
                continue;
            }
            let at = LogPlace { segment: number, offset: 0 };
            let id = SegmentId { owner: self.lease.owner, number };
            let page_bytes = self.settings.page_bytes;
            let whole = |content: &Bytes| records_end(id, content, page_bytes) == segment.end;
            let Some(content) = self.view.read(at, segment.end, whole).await else {
                if self.is_opening {
                    // A copy that was shorter, and could not be made whole, may have all that was flushed.
                    return Err(LogFailure { reason: format!("segment {number} of the log cannot be read any more") });
                }
                // Its pages may be well one by one: merging takes them where they are.
                tracing::warn!(number, "no copy of a segment is whole any more");
                continue;
            };
            for disk in disks {
                self.record(&[disk]).await?;
                match self.copy(number, disk, content.clone()).await {
                    Ok(()) => {
                        if let Some(segment) = self.view.segments().get_mut(&number) {
                            segment.disks.push(disk);
                            continue;
                        }
                        // It came to be over meanwhile.
                        self.view.delete(number, &[disk]).await;
                        break;
                    }
                    Err(error) => {
                        tracing::warn!(%disk, %error, "a segment of a volume's log was not copied");
                        self.failed.insert(disk, self.env.clock.now());
                    }
                }
            }
        }
        self.record(&[]).await
    }

    async fn copy(&mut self, number: u64, disk: DiskId, content: Bytes) -> Result<(), SegmentError> {
        let store: Arc<dyn ChunkStore> = self.stores.stores.readable(disk).ok_or_else(|| gone(disk))?;
        let segments = store.segments();
        // It gets no more.
        let (lease, bytes) = (self.lease, content.len() as u64);
        let copy = async {
            // A part of it may be there from before the disk failed.
            segments.delete_segment(number, lease).await?;
            segments.create_segment(number, lease, bytes).await?;
            segments.append(number, lease, 0, content).await?;
            segments.sync_segment(number, lease).await
        };
        self.stores.in_time(disk, copy).await
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
