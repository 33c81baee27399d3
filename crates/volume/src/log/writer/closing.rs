//! The segment before the one that is appended to, which is synced while this one takes appends.
//!
//! ```text
//!  appended to --the next one begins--> unsynced --synced on its disks--> synced --record appended to this one--> told --in effect--> closed
//! ```
//!
//! Invariants:
//! 1. All that it holds is in effect before the one after it begins, and that says where it ended.
//! 2. It is synced before a record of this segment says so, and that record is in effect before a sync of this segment begins. So
//!    what was flushed in this one has all before it; and where nothing says so, nothing in this one was flushed.
//! 3. There is one at a time: it is closed before the next segment begins.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::BytesMut;
use claystone_chunk::{ChunkStore, DiskId};
use futures::future::FutureExt;

use super::Writer;
use super::appends::{APPENDS_MAX, Append, Batch};
use crate::log::LogFailure;
use crate::log::record::Record;

/// A segment that takes no appends any more.
pub(super) struct Closing {
    number: u64,
    /// Its disks, and the stores that took it.
    pub(super) homes: BTreeMap<DiskId, Arc<dyn ChunkStore>>,
    is_synced: bool,
    /// Where the record that says so ends, in the segment after it.
    told_at: Option<u64>,
}

impl Closing {
    pub(super) fn new(number: u64, homes: BTreeMap<DiskId, Arc<dyn ChunkStore>>) -> Closing {
        Closing { number, homes, is_synced: false, told_at: None }
    }

    /// Its number, while it is not synced.
    pub(super) fn unsynced(&self) -> Option<u64> {
        (!self.is_synced).then_some(self.number)
    }
}

impl Writer {
    /// A sync of the segment before this one, on the disks that it is to be on.
    pub(super) fn sync_closing(&self) -> Append {
        let Some(closing) = &self.closing else { return async { Vec::new() }.boxed() };
        let disks = self.view.segments().get(&closing.number).map(|segment| segment.disks.clone()).unwrap_or_default();
        let mut homes = closing.homes.clone();
        homes.retain(|disk, _| disks.contains(disk));
        self.sync_segment(closing.number, &homes)
    }

    /// It is synced.
    pub(super) fn closing_synced(&mut self, number: u64) {
        if let Some(closing) = self.closing.as_mut().filter(|closing| closing.number == number) {
            closing.is_synced = true;
        }
    }

    /// Appends the record that says so, once it is true and an append can be under way.
    pub(super) fn tell_synced(&mut self) {
        let (segment, offset) = (self.segment(), self.next);
        let is_due = |closing: &&mut Closing| closing.is_synced && closing.told_at.is_none();
        let Some(closing) = self.closing.as_mut().filter(is_due) else { return };
        if self.under_way.len() == APPENDS_MAX {
            return;
        }
        let mut content = BytesMut::new();
        Record::PreviousSynced.encode(segment, offset, &mut content);
        closing.told_at = Some(offset + content.len() as u64);
        self.launch(Batch::default(), content.freeze());
    }

    /// Up to here all of this segment is in effect.
    pub(super) fn told_up_to(&mut self, end: u64) {
        if self.closing.as_ref().and_then(|closing| closing.told_at).is_some_and(|told_at| told_at <= end) {
            self.closing = None;
        }
    }

    /// Waits until the segment before this one is closed. Whether a disk was lost.
    pub(super) async fn close_previous(&mut self) -> Result<bool, LogFailure> {
        let mut lost = false;
        if let Some(number) = self.closing.as_ref().and_then(Closing::unsynced) {
            // Also where a sync of it is under way: nothing is known of that one here.
            let outcome = self.sync_closing().await;
            lost = self.lose(outcome)?;
            self.closing_synced(number);
            if lost {
                self.record(&[]).await?;
            }
        }
        // Nothing is under way, so there is place for it.
        self.tell_synced();
        Ok(self.settle().await? || lost)
    }
}
