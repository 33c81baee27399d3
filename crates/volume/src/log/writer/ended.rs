//! Segments that ended and are not known to be synced, while the one after them takes appends.
//!
//! ```text
//!  appended to --the next one begins--> ended --a sync of all there are--> synced --record appended to the segment of then--> told
//! ```
//!
//! Invariants:
//! 1. All that a segment holds is in effect before the next one begins. That says where it ended, and from which on they may
//!    not be synced.
//! 2. A sync is of all that is in effect: of what ended, and of the segment that is appended to. A flush during which some had
//!    ended ends when the record that says so of them is durable too, with the next sync.
//! 3. So where an opening misses a record and nothing says that its segment was synced, nothing behind it was flushed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::BytesMut;
use claystone_chunk::{ChunkStore, DiskId};

use super::Writer;
use super::appends::{APPENDS_MAX, Batch};
use crate::log::record::Record;

/// A segment's disks, and the stores that took it.
type Homes = BTreeMap<DiskId, Arc<dyn ChunkStore>>;

/// The segments before the one that is appended to that may not be synced.
#[derive(Default)]
pub(super) struct Ended {
    /// The oldest first.
    segments: VecDeque<(u64, Homes)>,
    /// Below this all are synced, which no record says yet.
    untold: Option<u64>,
    /// Where the record that says so ends in the segment that is appended to, while it is not in effect.
    telling: Option<u64>,
}

impl Ended {
    /// A segment ended, and the next one says so.
    pub(super) fn push(&mut self, number: u64, homes: Homes) {
        self.segments.push_back((number, homes));
    }

    pub(super) fn segments(&self) -> impl Iterator<Item = (u64, &Homes)> {
        self.segments.iter().map(|(number, homes)| (*number, homes))
    }

    /// The number of the last one.
    pub(super) fn last(&self) -> Option<u64> {
        self.segments.back().map(|(number, _)| *number)
    }

    /// The number of the first one, for the next segment to say: then that is told.
    pub(super) fn tell_first(&mut self) -> Option<u64> {
        self.untold = None;
        self.segments.front().map(|(number, _)| *number)
    }

    /// This disk has failed.
    pub(super) fn lose(&mut self, disk: DiskId) {
        self.segments.iter_mut().for_each(|(_, homes)| drop(homes.remove(&disk)));
    }

    /// Those up to `last` are synced.
    pub(super) fn synced(&mut self, last: Option<u64>) {
        let Some(last) = last else { return };
        while self.segments.pop_front_if(|(number, _)| *number <= last).is_some() {
            self.untold = Some(last + 1);
        }
    }

    /// Whether a record that says what is synced is to come into effect yet.
    pub(super) fn is_untold(&self) -> bool {
        self.untold.is_some() || self.telling.is_some()
    }

    /// Up to here all of the segment that is appended to is in effect.
    pub(super) fn in_effect(&mut self, end: u64) {
        self.telling = self.telling.filter(|telling| *telling > end);
    }
}

impl Writer {
    /// Appends the record that says what is synced, once there is something to say and an append can be under way.
    pub(super) fn tell_synced(&mut self) {
        if self.under_way.len() == APPENDS_MAX || self.ended.telling.is_some() {
            return;
        }
        let Some(below) = self.ended.untold.take() else { return };
        let mut content = BytesMut::new();
        Record::Synced { below }.encode(self.segment(), self.next, &mut content);
        self.ended.telling = Some(self.next + content.len() as u64);
        self.launch(Batch::default(), content.freeze());
    }
}
