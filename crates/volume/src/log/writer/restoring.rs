//! Segments that miss copies get them on other disks, one segment after another. Appends go on beside it.
//!
//! ```text
//!  misses copies --restore--> left --restore_next: disks chosen and recorded--> copied, synced --restored--> counts
//!                              ^                                                                   |
//!                              +------------------------- the next one ----------------------------+
//! ```
//!
//! Invariants:
//! 1. A copy counts when all of its segment is on its disk, synced, and the disk has not failed since the copy began.
//! 2. Its disk is among the recorded ones while it is made.
//! 3. Only what came before the segment that is appended to is copied: it is whole, and gets no more.
//! 4. Each segment is tried once for each call of `restore`. What cannot be copied stays as it is.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use claystone_chunk::{ChunkStore, DiskId, Lease, SegmentError, SegmentId};
use claystone_stripe::place;
use futures::future::{BoxFuture, FutureExt, join_all, pending};

use super::{Outcome, Writer};
use crate::log::record::LogPlace;
use crate::log::view::Segment;
use crate::log::{LogFailure, records_end};

/// What is being copied, and what comes then.
#[derive(Default)]
pub(super) struct Restoring {
    left: VecDeque<u64>,
    copying: Option<Copying>,
}

/// A segment that is being copied, and the stores that take it.
struct Copying {
    number: u64,
    bytes: u64,
    homes: BTreeMap<DiskId, Arc<dyn ChunkStore>>,
    copied: BoxFuture<'static, Copied>,
}

/// How the copies of a segment went. `None`: no disk has all of it.
type Copied = Option<Outcome>;

impl Restoring {
    /// Disks that are getting a copy.
    pub(super) fn disks(&self) -> impl Iterator<Item = DiskId> {
        self.copying.iter().flat_map(|copying| copying.homes.keys().copied())
    }

    /// Bytes that such a disk is asked to write and sync at once.
    pub(super) fn bytes(&self) -> u64 {
        self.copying.as_ref().map_or(0, |copying| copying.bytes)
    }

    /// The outcome of the copies under way.
    pub(super) async fn ended(&mut self) -> Copied {
        match &mut self.copying {
            Some(copying) => (&mut copying.copied).await,
            None => pending().await,
        }
    }
}

impl Writer {
    /// Begins to copy all segments that miss copies.
    pub(super) async fn restore(&mut self) -> Result<(), LogFailure> {
        let numbers: Vec<u64> = self.view.segments().range(..self.number).map(|(number, _)| *number).collect();
        self.restoring.left = numbers.into();
        if self.restoring.copying.is_none() { self.restore_next().await } else { Ok(()) }
    }

    /// Copies all segments that miss copies.
    pub(super) async fn restore_all(&mut self) -> Result<(), LogFailure> {
        self.restore().await?;
        while self.restoring.copying.is_some() {
            let copied = self.restoring.ended().await;
            self.restored(copied).await?;
        }
        Ok(())
    }

    /// Begins to copy the first segment of those left that misses copies and for which there are disks.
    async fn restore_next(&mut self) -> Result<(), LogFailure> {
        while let Some(number) = self.restoring.left.pop_front() {
            // It may be over.
            let Some(segment) = self.view.segments().get(&number).cloned() else { continue };
            let disks = self.disks_for_copies(&segment);
            let there = disks.into_iter().filter_map(|disk| Some((disk, self.stores.stores.readable(disk)?)));
            let homes: BTreeMap<DiskId, Arc<dyn ChunkStore>> = there.collect();
            if homes.is_empty() {
                continue;
            }
            let disks: Vec<DiskId> = homes.keys().copied().collect();
            self.record(&disks).await?;
            let copied = self.copy(number, segment.end, &homes);
            self.restoring.copying = Some(Copying { number, bytes: segment.end, homes, copied });
            return Ok(());
        }
        self.record(&[]).await
    }

    /// As many disks as a segment misses copies, or as take one.
    fn disks_for_copies(&self, segment: &Segment) -> Vec<DiskId> {
        let members: Vec<_> = segment.disks.iter().filter_map(|disk| self.stores.stores.member(*disk)).collect();
        let staying = members.iter().filter(|member| member.writable()).count();
        let missing = self.settings.copies.saturating_sub(staying);
        if missing == 0 {
            return Vec::new();
        }
        let taken: Vec<_> = members.into_iter().map(|member| (member.record.id, member.record.node)).collect();
        // It gets no more, so its copies are no longer than it is.
        let mut candidates = self.candidates(segment.end, 1);
        candidates.retain(|candidate| !segment.disks.contains(&candidate.disk));
        place(&candidates, &taken, missing, |bound| self.env.random.below(bound))
    }

    /// Reads all of a segment and writes it to these disks.
    fn copy(&self, number: u64, end: u64, homes: &BTreeMap<DiskId, Arc<dyn ChunkStore>>) -> BoxFuture<'static, Copied> {
        let (view, stores, lease, page_bytes) =
            (self.view.clone(), self.stores.clone(), self.lease, self.settings.page_bytes);
        let homes = homes.clone();
        let copied = async move {
            let id = SegmentId { owner: lease.owner, number };
            let is_whole = |content: &Bytes| records_end(id, content, page_bytes) == end;
            let content = view.read(LogPlace { segment: number, offset: 0 }, end, is_whole).await?;
            let copies = homes.into_iter().map(|(disk, store)| {
                let (stores, content) = (stores.clone(), content.clone());
                async move { (disk, stores.in_time(disk, write_copy(&*store, number, lease, content)).await) }
            });
            Some(join_all(copies).await)
        };
        copied.boxed()
    }

    /// The copies under way have ended: those that are whole count. On to the next segment.
    pub(super) async fn restored(&mut self, copied: Copied) -> Result<(), LogFailure> {
        let Some(Copying { number, homes, .. }) = self.restoring.copying.take() else { return Ok(()) };
        if copied.is_none() {
            if self.is_opening {
                // A copy that was shorter, and could not be made whole, may have all that was flushed.
                return Err(LogFailure { reason: format!("segment {number} of the log cannot be read any more") });
            }
            // Its pages may be well one by one: merging takes them where they are.
            tracing::warn!(number, "no copy of a segment is whole any more");
        }
        for (disk, outcome) in copied.into_iter().flatten() {
            match outcome {
                Ok(()) if self.is_good(disk, &homes[&disk]) => {
                    if let Some(segment) = self.view.segments().get_mut(&number) {
                        segment.disks.push(disk);
                        continue;
                    }
                    // It came to be over meanwhile.
                    self.view.delete(number, &[disk]).await;
                }
                Ok(()) => tracing::debug!(%disk, number, "a copy of a segment is on a disk that failed since"),
                Err(error) if !self.view.has(number) => {
                    tracing::debug!(%disk, %error, number, "a segment was over, and perhaps deleted, while it was copied");
                }
                Err(error) => {
                    tracing::warn!(%disk, %error, "a segment of a volume's log was not copied");
                    // A part of it may be there.
                    self.view.leave(disk, number);
                    self.fail(disk, &error);
                }
            }
        }
        self.restore_next().await
    }
}

/// Makes a disk's copy of a segment, which gets no more.
async fn write_copy(store: &dyn ChunkStore, number: u64, lease: Lease, content: Bytes) -> Result<(), SegmentError> {
    let segments = store.segments();
    let bytes = content.len() as u64;
    // A part of it may be there from before the disk failed.
    segments.delete_segment(number, lease).await?;
    segments.create_segment(number, lease, bytes).await?;
    segments.append(number, lease, 0, content).await?;
    segments.sync_segment(number, lease).await
}
