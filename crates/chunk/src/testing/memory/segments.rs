//! Segments in memory.
//!
//! Invariants:
//! 1. The bytes reserved for all segments are counted in `used_bytes` of the store.
//! 2. What was deleted last is what the next segment holds before anything is appended to it, as where files are used again.
//! 3. The term that a segment is open under is the greatest that was fenced, or greater: a fence seals the others.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, MutexGuard};

use async_trait::async_trait;
use bytes::Bytes;
use claystone_env::Random;

use super::{Inner, Shared};
use crate::{ByteRange, Lease, OwnerId, SegmentError, SegmentId, SegmentInfo, SegmentStore, Taken, Term};

/// What the reference has of one owner.
#[derive(Default)]
pub(super) struct Owner {
    fenced: Option<Term>,
    segments: BTreeMap<u64, Segment>,
    // Since a name was last made durable: these may come back.
    deleted: BTreeMap<u64, Segment>,
}

struct Segment {
    /// Of the lease that made it.
    term: Term,
    /// Of the lease that it is open under.
    open_under: Option<Term>,
    bytes: u64,
    content: Vec<u8>,
    taken: Taken,
    /// Where something was appended since the last sync, and what was there before.
    unsynced: Vec<(Range<usize>, Vec<u8>)>,
}

impl Owner {
    /// The term that was fenced, if this lease's is less.
    pub(super) fn fenced_above(&self, lease: Lease) -> Option<Term> {
        self.fenced.filter(|fenced| lease.term < *fenced)
    }

    pub(super) fn refuse_below(&mut self, term: Term) {
        self.fenced = self.fenced.max(Some(term));
        for segment in self.segments.values_mut() {
            segment.open_under = segment.open_under.filter(|under| *under >= term);
        }
    }

    fn check(&self, lease: Lease) -> Result<(), SegmentError> {
        self.fenced_above(lease).map_or(Ok(()), |fenced| Err(SegmentError::Fenced { lease, fenced }))
    }

    fn open(&mut self, number: u64, lease: Lease) -> Result<&mut Segment, SegmentError> {
        self.check(lease)?;
        let id = SegmentId { owner: lease.owner, number };
        let segment = self.segments.get_mut(&number).ok_or(SegmentError::NotFound { id })?;
        if segment.open_under == Some(lease.term) { Ok(segment) } else { Err(SegmentError::Sealed { id }) }
    }

    /// Loses what was not synced, as chance has it; returns the bytes of segments that came back.
    pub(super) fn crash(&mut self, random: &dyn Random) -> u64 {
        let mut bytes_back = 0;
        for (number, segment) in std::mem::take(&mut self.deleted) {
            if random.below(2) == 0 && !self.segments.contains_key(&number) {
                bytes_back += segment.bytes;
                self.segments.insert(number, segment);
            }
        }
        for segment in self.segments.values_mut() {
            segment.crash(random);
        }
        bytes_back
    }
}

impl Segment {
    fn crash(&mut self, random: &dyn Random) {
        self.open_under = None;
        // Some crashes keep all or nothing; most mix.
        let mood = random.below(4);
        for (range, former) in &self.unsynced {
            let mut at = range.start;
            while at < range.end {
                let end = (at / PART_BYTES * PART_BYTES + PART_BYTES).min(range.end);
                match if mood < 3 { mood } else { random.below(4) } {
                    0 => self.content[at..end].fill(0),
                    1 => (),
                    2 => self.content[at..end].copy_from_slice(&former[at - range.start..end - range.start]),
                    // What lay on the medium before.
                    _ => random.fill(&mut self.content[at..end]),
                }
                at = end;
            }
        }
    }

    fn read(&self, range: ByteRange) -> Bytes {
        let (from, to) = (range.offset as usize, range.end() as usize);
        let have = self.content.len();
        let there = &self.content[from.min(have)..to.min(have)];
        // Zeros from the allocator: readers ask for MiB where little is, and in a debug build `resize` takes its time.
        let mut bytes = vec![0; to - from];
        bytes[..there.len()].copy_from_slice(there);
        bytes.into()
    }
}

/// The reference implementation of [`SegmentStore`].
#[derive(Clone)]
pub(super) struct MemorySegments(pub(super) Arc<Shared>);

impl MemorySegments {
    fn readable(&self) -> Result<MutexGuard<'_, Inner>, SegmentError> {
        self.0.readable().map_err(|reason| SegmentError::Unavailable { disk: self.0.disk, reason })
    }

    fn writable(&self) -> Result<MutexGuard<'_, Inner>, SegmentError> {
        self.0.writable().map_err(|reason| SegmentError::Unavailable { disk: self.0.disk, reason })
    }
}

impl std::fmt::Debug for MemorySegments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemorySegments({})", self.0.disk)
    }
}

#[async_trait]
impl SegmentStore for MemorySegments {
    async fn fence(&self, lease: Lease) -> Result<(), SegmentError> {
        let mut inner = self.writable()?;
        let owner = inner.owners.entry(lease.owner).or_default();
        owner.check(lease)?;
        owner.refuse_below(lease.term);
        owner.deleted.clear();
        Ok(())
    }

    async fn create_segment(&self, number: u64, lease: Lease, bytes: u64) -> Result<(), SegmentError> {
        assert!(bytes > 0, "a segment has room for a byte");
        let mut inner = self.writable()?;
        let inner = &mut *inner;
        let free_bytes = inner.capacity_bytes.saturating_sub(inner.used_bytes);
        let owner = inner.owners.entry(lease.owner).or_default();
        owner.check(lease)?;
        if owner.segments.contains_key(&number) {
            return Err(SegmentError::AlreadyExists { id: SegmentId { owner: lease.owner, number } });
        }
        if bytes > free_bytes {
            return Err(SegmentError::DiskFull { disk: self.0.disk, needed_bytes: bytes, free_bytes });
        }
        owner.deleted.clear();
        let open_under = Some(lease.term);
        // A crash leaves it where nothing was appended, and of what was not synced perhaps too.
        let mut content = std::mem::take(&mut inner.deleted_content);
        content.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
        let unsynced = Vec::new();
        let segment = Segment { term: lease.term, open_under, bytes, content, taken: Taken::default(), unsynced };
        owner.segments.insert(number, segment);
        inner.used_bytes += bytes;
        Ok(())
    }

    async fn reopen_segment(&self, number: u64, lease: Lease, end: u64) -> Result<(), SegmentError> {
        let mut inner = self.writable()?;
        let owner = inner.owners.entry(lease.owner).or_default();
        owner.check(lease)?;
        let id = SegmentId { owner: lease.owner, number };
        let segment = owner.segments.get_mut(&number).ok_or(SegmentError::NotFound { id })?;
        if end > segment.bytes {
            let range = ByteRange { offset: end, bytes: 0 };
            return Err(SegmentError::OutOfRange { id, range, end_bytes: segment.bytes });
        }
        segment.content.resize(segment.content.len().max(end as usize), 0);
        segment.taken = Taken::until(end);
        segment.open_under = Some(lease.term);
        Ok(())
    }

    async fn append(&self, number: u64, lease: Lease, offset: u64, content: Bytes) -> Result<(), SegmentError> {
        let mut inner = self.writable()?;
        let segment = inner.owners.entry(lease.owner).or_default().open(number, lease)?;
        let range = ByteRange { offset, bytes: content.len() as u64 };
        if !segment.taken.take(range, segment.bytes) {
            let end_bytes = segment.taken.end();
            return Err(SegmentError::OutOfRange { id: SegmentId { owner: lease.owner, number }, range, end_bytes });
        }
        let range = range.offset as usize..range.end() as usize;
        segment.content.resize(segment.content.len().max(range.end), 0);
        let former = segment.content[range.clone()].to_vec();
        segment.content[range.clone()].copy_from_slice(&content);
        segment.unsynced.push((range, former));
        Ok(())
    }

    async fn sync_segment(&self, number: u64, lease: Lease) -> Result<(), SegmentError> {
        let mut inner = self.writable()?;
        let owner = inner.owners.entry(lease.owner).or_default();
        owner.check(lease)?;
        let id = SegmentId { owner: lease.owner, number };
        let segment = owner.segments.get_mut(&number).ok_or(SegmentError::NotFound { id })?;
        segment.unsynced.clear();
        Ok(())
    }

    async fn read_segment(&self, id: SegmentId, ranges: &[ByteRange]) -> Result<Vec<Bytes>, SegmentError> {
        let inner = self.readable()?;
        let owner = inner.owners.get(&id.owner);
        let segment = owner.and_then(|owner| owner.segments.get(&id.number)).ok_or(SegmentError::NotFound { id })?;
        for &range in ranges {
            if range.offset.checked_add(range.bytes).is_none_or(|end| end > segment.bytes) {
                return Err(SegmentError::OutOfRange { id, range, end_bytes: segment.bytes });
            }
        }
        Ok(ranges.iter().map(|range| segment.read(*range)).collect())
    }

    async fn delete_segment(&self, number: u64, lease: Lease) -> Result<(), SegmentError> {
        let mut inner = self.writable()?;
        let inner = &mut *inner;
        let owner = inner.owners.entry(lease.owner).or_default();
        owner.check(lease)?;
        if let Some(segment) = owner.segments.remove(&number) {
            let (bytes, content) = (segment.bytes, segment.content.clone());
            owner.deleted.insert(number, segment);
            inner.used_bytes -= bytes;
            inner.deleted_content = content;
        }
        Ok(())
    }

    async fn segments(&self, owner: OwnerId) -> Result<Vec<SegmentInfo>, SegmentError> {
        let inner = self.readable()?;
        let segments = inner.owners.get(&owner).into_iter().flat_map(|owner| &owner.segments);
        let info = |(&number, segment): (&u64, &Segment)| SegmentInfo {
            id: SegmentId { owner, number },
            term: segment.term,
            bytes: segment.bytes,
        };
        Ok(segments.map(info).collect())
    }

    async fn owners(&self) -> Result<Vec<OwnerId>, SegmentError> {
        let inner = self.readable()?;
        let there = |owner: &Owner| owner.fenced.is_some() || !owner.segments.is_empty();
        Ok(inner.owners.iter().filter(|(_, owner)| there(owner)).map(|(id, _)| *id).collect())
    }

    async fn forget_owner(&self, lease: Lease) -> Result<(), SegmentError> {
        let mut inner = self.writable()?;
        let Some(owner) = inner.owners.get(&lease.owner) else { return Ok(()) };
        owner.check(lease)?;
        let bytes: u64 = owner.segments.values().map(|segment| segment.bytes).sum();
        inner.used_bytes -= bytes;
        inner.owners.remove(&lease.owner);
        Ok(())
    }
}

/// What a medium writes whole or not at all.
const PART_BYTES: usize = 512;
