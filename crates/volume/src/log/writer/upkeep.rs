//! What keeps a log whole and short: copies where some are missing, segments that are over deleted, disks left.

use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use claystone_chunk::{ChunkStore, DiskId, SegmentError, SegmentId};
use claystone_stripe::place;
use futures::future::join_all;

use super::{FAILED_FOR, Writer, gone};
use crate::log::record::{LogPlace, Record};
use crate::log::view::Segment;
use crate::log::{LogFailure, records_end};

impl Writer {
    /// See [`Log::tend`].
    pub(super) async fn tend(&mut self) -> Result<(), LogFailure> {
        let now = self.env.clock.now();
        self.failed.retain(|_, failed| now.since(*failed) < FAILED_FOR);
        self.fence_again().await?;
        let lost = self.settle().await?;
        self.leave_disks();
        if !self.is_next_good() {
            self.forget_next().await?;
        }
        self.record(&[]).await?;
        if lost || self.next_segment().1.len().min(self.settings.copies) > self.homes.len() {
            self.begin_segment().await?;
        }
        self.restore().await?;
        self.trim().await?;
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
                        }
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

    /// A fence that was damaged on its disk stops every change there until it is written again; one that is well stays.
    async fn fence_again(&mut self) -> Result<(), LogFailure> {
        let (stores, lease) = (&self.stores, self.lease);
        let fences = stores.stores.members().into_iter().filter_map(|member| {
            let disk = member.record.id;
            let store = stores.stores.readable(disk)?;
            Some(async move { (disk, stores.in_time(disk, store.segments().fence(lease)).await) })
        });
        for (disk, fenced) in join_all(fences).await {
            match fenced {
                Ok(()) => {}
                Err(error @ SegmentError::Fenced { .. }) => return Err(LogFailure { reason: error.to_string() }),
                Err(error) => tracing::debug!(%disk, %error, "a disk cannot be fenced"),
            }
        }
        Ok(())
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

    /// Ends and deletes the segments before the oldest one that is needed.
    async fn trim(&mut self) -> Result<(), LogFailure> {
        let oldest = self.diffs.lock().unwrap_or_else(PoisonError::into_inner).oldest_live();
        let below = oldest.unwrap_or(self.number).min(self.number);
        let over: Vec<(u64, Segment)> =
            self.view.segments().range(..below).map(|(number, segment)| (*number, segment.clone())).collect();
        if over.is_empty() {
            return Ok(());
        }
        // First it is durable that they are over: they may be back after a crash, and one without the others.
        self.append_now(Record::Over { below }).await?;
        self.sync_all().await?;
        for (number, segment) in over {
            self.view.segments().remove(&number);
            for disk in segment.disks {
                let Some(store) = self.stores.stores.readable(disk) else { continue };
                let deleted = store.segments().delete_segment(number, self.lease);
                if let Err(error) = self.stores.in_time(disk, deleted).await {
                    tracing::debug!(number, %disk, %error, "a segment that is over was left");
                }
            }
        }
        Ok(())
    }
}
