//! The log as its readers know it: which segments are not over, and on which disks they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use claystone_chunk::{ByteRange, DiskId, Lease, SegmentId};
use claystone_stripe::Stores;

use super::record::LogPlace;

/// A segment that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The disks that have all of it.
    pub disks: Vec<DiskId>,
    /// Where its records end.
    pub end: u64,
}

/// The log as readers know it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct LogView {
    lease: Lease,
    stores: Stores,
    segments: Arc<Mutex<BTreeMap<u64, Segment>>>,
}

impl LogView {
    /// The log of this lease's owner, of which `segments` are not over.
    pub fn new(lease: Lease, stores: Stores, segments: BTreeMap<u64, Segment>) -> LogView {
        LogView { lease, stores, segments: Arc::new(Mutex::new(segments)) }
    }

    /// Bytes of the log from `at`, as one of its disks has them, `accept`ed. `None`: the segment is over, or no disk has
    /// acceptable bytes.
    pub async fn read(&self, at: LogPlace, bytes: u64, accept: impl Fn(&Bytes) -> bool) -> Option<Bytes> {
        let disks = self.segments().get(&at.segment)?.disks.clone();
        let id = SegmentId { owner: self.lease.owner, number: at.segment };
        let range = ByteRange { offset: at.offset, bytes };
        for disk in disks {
            let Some(store) = self.stores.readable(disk) else { continue };
            match store.segments().read_segment(id, &[range]).await {
                Ok(mut read) if read.len() == 1 && accept(&read[0]) => return read.pop(),
                Ok(_) => tracing::warn!(segment = %id, offset = at.offset, %disk, "a page of a log is damaged"),
                Err(error) => tracing::debug!(segment = %id, %disk, %error, "a log cannot be read here"),
            }
        }
        None
    }

    /// Whether the segment is not over.
    pub fn has(&self, segment: u64) -> bool {
        self.segments().contains_key(&segment)
    }

    /// How many segments are not over.
    pub fn segment_count(&self) -> u64 {
        self.segments().len() as u64
    }

    /// Bytes of all segments that are not over, on each disk that keeps all of them.
    pub fn bytes(&self) -> u64 {
        self.segments().values().map(|segment| segment.end).sum()
    }

    /// Disks that have a segment.
    pub fn disks(&self) -> BTreeSet<DiskId> {
        self.segments().values().flat_map(|segment| segment.disks.iter().copied()).collect()
    }

    /// The fewest copies that a segment has.
    pub(super) fn copies(&self) -> Option<usize> {
        self.segments().values().map(|segment| segment.disks.len()).min()
    }

    pub(super) fn segments(&self) -> MutexGuard<'_, BTreeMap<u64, Segment>> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
