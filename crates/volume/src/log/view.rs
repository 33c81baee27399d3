//! The log as its readers know it: which segments are not over, and on which disks they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use std::time::Duration;

use bytes::Bytes;
use claystone_chunk::{ByteRange, DiskId, Lease, SegmentError, SegmentId};
use claystone_env::{Clock, timeout};
use claystone_stripe::Stores;
use futures::future::join_all;

use super::LogFailure;
use super::record::LogPlace;

/// The disks that logs are on, and how long one may take to answer.
#[derive(Clone)]
pub struct TimedStores {
    /// All of them.
    pub stores: Stores,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// One that takes longer has failed.
    pub limit: Duration,
}

impl TimedStores {
    /// Waits for a disk, but not for ever: one that takes too long is silent until it answers.
    pub async fn in_time<T>(
        &self,
        disk: DiskId,
        operation: impl Future<Output = Result<T, SegmentError>>,
    ) -> Result<T, SegmentError> {
        match timeout(&*self.clock, self.limit, operation).await {
            Some(result) => result,
            None => {
                self.stores.silence(disk);
                Err(SegmentError::Unavailable { disk, reason: format!("no answer within {:?}", self.limit) })
            }
        }
    }
}

/// A segment that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The disks that have all of it.
    pub disks: Vec<DiskId>,
    /// Where its records end.
    pub end: u64,
}

/// The log as readers know it. Cheap to clone.
#[derive(Clone)]
pub struct LogView {
    lease: Lease,
    stores: TimedStores,
    segments: Arc<Mutex<BTreeMap<u64, Segment>>>,
    /// Disks that have the segment after the last, which is made and not begun, or are to make it.
    ahead: Arc<Mutex<BTreeSet<DiskId>>>,
    /// Disks that were left and not told what is over, and the greatest number of a segment that each may have.
    left: Arc<Mutex<BTreeMap<DiskId, u64>>>,
}

impl LogView {
    /// The log of this lease's owner, of which `segments` are not over.
    pub fn new(lease: Lease, stores: TimedStores, segments: BTreeMap<u64, Segment>) -> LogView {
        LogView { lease, stores, segments: Arc::new(Mutex::new(segments)), ahead: Arc::default(), left: Arc::default() }
    }

    /// Bytes of the log from `at`, as one of its disks has them, `accept`ed. `None`: the segment is over, or no disk has
    /// acceptable bytes.
    pub async fn read(&self, at: LogPlace, bytes: u64, accept: impl Fn(&Bytes) -> bool) -> Option<Bytes> {
        let mut disks = self.segments().get(&at.segment)?.disks.clone();
        let id = SegmentId { owner: self.lease.owner, number: at.segment };
        let range = ByteRange { offset: at.offset, bytes };
        // Another disk is asked before one that is slow is waited for.
        for patience in [Some(PATIENCE), None] {
            let mut slow = Vec::new();
            for disk in disks {
                let Some(store) = self.stores.stores.readable(disk) else { continue };
                let ranges = [range];
                let read = store.segments().read_segment(id, &ranges);
                let read = match patience {
                    Some(patience) => timeout(&*self.stores.clock, patience.min(self.stores.limit), read).await,
                    None => Some(self.stores.in_time(disk, read).await),
                };
                match read {
                    Some(Ok(mut read)) if read.len() == 1 && accept(&read[0]) => return read.pop(),
                    Some(Ok(_)) => {
                        tracing::warn!(segment = %id, offset = at.offset, %disk, "a page of a log is damaged")
                    }
                    Some(Err(error)) => tracing::debug!(segment = %id, %disk, %error, "a log cannot be read here"),
                    None => slow.push(disk),
                }
            }
            disks = slow;
        }
        None
    }

    /// Bytes of a segment in several places, by one call to one of its disks; nothing of them is checked. `None`: that disk
    /// does not have them soon, if the segment is not over. Then [`LogView::read`] asks the others too, place by place.
    pub async fn read_together(&self, segment: u64, ranges: &[ByteRange]) -> Option<Vec<Bytes>> {
        let disks = self.segments().get(&segment)?.disks.clone();
        let store = disks.into_iter().find_map(|disk| self.stores.stores.readable(disk))?;
        let id = SegmentId { owner: self.lease.owner, number: segment };
        let read = store.segments().read_segment(id, ranges);
        timeout(&*self.stores.clock, PATIENCE.min(self.stores.limit), read).await?.ok()
    }

    /// Writes the fence of this lease again where it was damaged, which stops every change there; one that is well stays.
    pub(super) async fn fence_again(&self) -> Result<(), LogFailure> {
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

    /// Deletes a segment that is over. A disk that does not do it keeps it until the volume is opened again.
    pub(super) async fn delete(&self, number: u64, disks: &[DiskId]) {
        for &disk in disks {
            let Some(store) = self.stores.stores.readable(disk) else { continue };
            let deleted = store.segments().delete_segment(number, self.lease);
            if let Err(error) = self.stores.in_time(disk, deleted).await {
                tracing::debug!(number, %disk, %error, "a segment that is over was left");
            }
        }
    }

    /// A disk does not count any more, and may have segments up to this one.
    pub(super) fn leave(&self, disk: DiskId, number: u64) {
        let mut left = self.left();
        let last = left.entry(disk).or_default();
        *last = number.max(*last);
    }

    /// Deletes what disks have that were left, if they answer again, once all of it is over. What is not, a copy that is made anew may be.
    pub(super) async fn delete_left(&self) {
        let Some(oldest) = self.segments().keys().next().copied() else { return };
        let due: Vec<(DiskId, u64)> =
            self.left().iter().map(|(disk, last)| (*disk, *last)).filter(|(_, last)| *last < oldest).collect();
        for (disk, last) in due {
            let Some(store) = self.stores.stores.readable(disk) else { continue };
            let deleted = async {
                for info in store.segments().segments(self.lease.owner).await? {
                    if info.id.number < oldest {
                        store.segments().delete_segment(info.id.number, self.lease).await?;
                    }
                }
                Ok(())
            };
            match self.stores.in_time(disk, deleted).await {
                Ok(()) => {
                    let mut left = self.left();
                    if left.get(&disk) == Some(&last) {
                        left.remove(&disk);
                    }
                }
                Err(error) => tracing::debug!(%disk, %error, "segments that are over were left"),
            }
        }
    }

    fn left(&self) -> MutexGuard<'_, BTreeMap<DiskId, u64>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The segment with the greatest number: the one that is appended to. What is in those before it is in effect.
    pub fn last(&self) -> Option<u64> {
        self.segments().keys().next_back().copied()
    }

    /// Segments that are not over with lesser numbers than this.
    pub(super) fn numbers_below(&self, below: u64) -> Vec<u64> {
        self.segments().range(..below).map(|(number, _)| *number).collect()
    }

    /// Segments that are not over, the oldest first, and their bytes: from this one on.
    pub fn lengths_from(&self, oldest: u64) -> Vec<(u64, u64)> {
        self.segments().range(oldest..).map(|(number, segment)| (*number, segment.end)).collect()
    }

    /// On how many disks that take writes each segment is, at least.
    pub fn fewest_copies(&self) -> usize {
        let takes_writes = |disk: &&DiskId| self.stores.stores.is_writable(**disk);
        let segments = self.segments();
        segments.values().map(|segment| segment.disks.iter().filter(takes_writes).count()).min().unwrap_or(usize::MAX)
    }

    /// Segments that are on disks which take no writes, or on fewer others than these, and their disks; also one that is made ahead.
    pub(super) fn unwell(&self, copies: usize) -> Vec<(u64, Vec<DiskId>)> {
        let takes_writes = |disk: &&DiskId| self.stores.stores.is_writable(**disk);
        let is_unwell = |disks: &[DiskId], least: usize| {
            let good = disks.iter().filter(takes_writes).count();
            good < disks.len() || good < least
        };
        let ahead: Vec<DiskId> = self.ahead().into_iter().collect();
        let begun: Vec<(u64, Vec<DiskId>)> =
            self.segments().iter().map(|(number, segment)| (*number, segment.disks.clone())).collect();
        let begun = begun.into_iter().filter(|(_, disks)| is_unwell(disks, copies));
        let ahead = is_unwell(&ahead, 0).then_some((u64::MAX, ahead));
        begun.chain(ahead).collect()
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
        let begun: BTreeSet<DiskId> =
            self.segments().values().flat_map(|segment| segment.disks.iter().copied()).collect();
        begun.into_iter().chain(self.ahead()).collect()
    }

    /// Of these, those that have the one after the last.
    pub(super) fn ahead(&self) -> BTreeSet<DiskId> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_ahead(&self, disks: BTreeSet<DiskId>) {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = disks;
    }

    pub(super) fn segments(&self) -> MutexGuard<'_, BTreeMap<u64, Segment>> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for LogView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogView({}, {:?})", self.lease.owner, self.segments())
    }
}

/// How long a disk is waited for while another one has the same.
const PATIENCE: Duration = Duration::from_millis(500);
