//! The contract of everything that keeps segments: append-only files that hold a log, of one owner each.
//!
//! A segment's life:
//!
//! ```text
//!                               +---------------------- reopen_segment ---------------------+
//!                               v                                                           |
//! (absent) --create_segment--> open --append, sync_segment--> open --store opened anew--> sealed
//!                               |                                                           |
//!                               +-------------------- delete_segment -----------------------+--> (absent)
//! ```
//!
//! *Open*: appended to, by who created it and under the same lease. *Sealed*: only read, synced and deleted; whoever takes over
//! after a crash begins a segment of its own, and opens a sealed one again only to bring it to what another copy of it has.
//!
//! Several appends to a segment may be under way at once, each where no other one goes, and may come in any order: where a
//! gap is left is its owner's business.
//!
//! What is in a segment after a crash: all bytes of every append that had returned when a [`SegmentStore::sync_segment`] was
//! called that returned; of other appends any part or none, torn, or zeros, or what lay on the medium before, in each of
//! them: a later one may be there without an earlier one.
//! A segment's bytes have no checksum here: who appends them frames them, and finds the end by what it framed. A segment
//! that was deleted may be back after a crash, whole or in part: who reads a log knows from it which segments are over.

use async_trait::async_trait;
use bytes::Bytes;

use crate::{ByteRange, DiskId, Lease, OwnerId, Term};

/// A segment of an owner's log. An id is used once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId {
    /// Whose log it belongs to.
    pub owner: OwnerId,
    /// Its number in the log.
    pub number: u64,
}

impl std::fmt::Display for SegmentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.owner, self.number)
    }
}

/// A segment as its store sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Which.
    pub id: SegmentId,
    /// The term it was created under; 0 if its header is damaged.
    pub term: Term,
    /// The bytes reserved for it: it can be read up to here. 0 if its header is damaged: it can only be deleted.
    pub bytes: u64,
}

/// Why an operation on a segment did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// There is no such segment.
    #[error("segment {id} is not on this disk")]
    NotFound {
        /// Which.
        id: SegmentId,
    },
    /// The id is taken.
    #[error("segment {id} is already on this disk")]
    AlreadyExists {
        /// Which.
        id: SegmentId,
    },
    /// A later lease was fenced: whoever asks owns this no more. Nothing was changed.
    #[error("{} has a new owner: its lease has term {}, this one {}", .lease.owner, .fenced.0, .lease.term.0)]
    Fenced {
        /// What the caller holds.
        lease: Lease,
        /// The term that was fenced.
        fenced: Term,
    },
    /// An append to where one was before, or with too many gaps before it; or a range beyond what is reserved.
    #[error("bytes {}..{} do not fit segment {id}: its end is {end_bytes}", .range.offset, .range.offset.saturating_add(.range.bytes))]
    OutOfRange {
        /// Which.
        id: SegmentId,
        /// What was asked.
        range: ByteRange,
        /// Of an append: up to where appends have taken everything. Of a read: where the reserved bytes end.
        end_bytes: u64,
    },
    /// No append to a segment that an earlier run of the store, or an earlier lease, began.
    #[error("segment {id} is sealed")]
    Sealed {
        /// Which.
        id: SegmentId,
    },
    /// The segment's bytes cannot be read, or its header is damaged.
    #[error("segment {id} is damaged: {reason}")]
    Damaged {
        /// Which.
        id: SegmentId,
        /// What was seen.
        reason: String,
    },
    /// No room; nothing was changed.
    #[error("disk {disk} is full: {needed_bytes} bytes needed, {free_bytes} free above the reserve")]
    DiskFull {
        /// Which disk.
        disk: DiskId,
        /// What the operation needs.
        needed_bytes: u64,
        /// What there is.
        free_bytes: u64,
    },
    /// The store does not take this operation now.
    #[error("disk {disk} is not available: {reason}")]
    Unavailable {
        /// Which disk.
        disk: DiskId,
        /// Why.
        reason: String,
    },
}

/// Something that keeps segments. Calls may come from many tasks at once.
#[async_trait]
pub trait SegmentStore: Send + Sync + std::fmt::Debug {
    /// Refuses from now on every change of this owner's segments and chunks under a lesser term than `lease`'s; durable
    /// when it returns. No error if it is fenced at this term already.
    ///
    /// # Errors
    /// `Fenced` if a greater term was fenced; `DiskFull`, in spite of the reserve: lesser terms are refused all the same, as long
    /// as this process lives; `Unavailable`.
    async fn fence(&self, lease: Lease) -> Result<(), SegmentError>;

    /// Makes an open segment with room for `bytes` (at least 1) bytes: appends within them do not fail for lack of space.
    /// Its name is durable when it returns.
    ///
    /// # Errors
    /// `AlreadyExists`, `Fenced`, `DiskFull`, `Unavailable`.
    async fn create_segment(&self, number: u64, lease: Lease, bytes: u64) -> Result<(), SegmentError>;

    /// The same, in the reserve that others leave where there is one: for a segment without which an owner has no log.
    ///
    /// # Errors
    /// As [`SegmentStore::create_segment`].
    async fn create_segment_in_reserve(&self, number: u64, lease: Lease, bytes: u64) -> Result<(), SegmentError> {
        self.create_segment(number, lease, bytes).await
    }

    /// Opens a sealed segment again, for appends under `lease` from `end` on: what it has before stays as it is, what it
    /// has from there on is whatever it was until it is appended anew. So a copy that ends early is brought to what
    /// another copy has, without giving up what it has. One that is open under this lease is appended to from `end` on, too.
    ///
    /// # Errors
    /// `NotFound`, `Damaged`, `Fenced`, `OutOfRange`, `Unavailable`.
    async fn reopen_segment(&self, number: u64, lease: Lease, end: u64) -> Result<(), SegmentError>;

    /// Adds `content` at `offset`, where no append was or is under way since the segment was opened; at or behind its end
    /// therefore. Other appends may be under way, and those before it may come after it. It can be read when this returns,
    /// and is durable with [`SegmentStore::sync_segment`].
    ///
    /// # Errors
    /// `NotFound`, `Sealed`, `Fenced`, `OutOfRange`, `Unavailable`: the store is then failed.
    async fn append(&self, number: u64, lease: Lease, offset: u64, content: Bytes) -> Result<(), SegmentError>;

    /// Makes durable every append to a segment that had returned when this was called; of a sealed one, all that can be
    /// read of it. May run beside appends.
    ///
    /// # Errors
    /// `NotFound`, `Damaged`, `Fenced`, `Unavailable`: the store is then failed.
    async fn sync_segment(&self, number: u64, lease: Lease) -> Result<(), SegmentError>;

    /// Reads ranges within the bytes reserved, one buffer for each, in order. What was never appended reads as zeros or
    /// as anything.
    ///
    /// # Errors
    /// `NotFound`, `OutOfRange`, `Damaged`, `Unavailable`.
    async fn read_segment(&self, id: SegmentId, ranges: &[ByteRange]) -> Result<Vec<Bytes>, SegmentError>;

    /// Removes a segment, open or sealed. It is no error if it is absent. Space comes back at once, the removal need not
    /// be durable.
    ///
    /// # Errors
    /// `Fenced`, `Unavailable`.
    async fn delete_segment(&self, number: u64, lease: Lease) -> Result<(), SegmentError>;

    /// All segments of an owner, ascending by number; remnants whose creation was interrupted are not among them, and
    /// are removed.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn segments(&self, owner: OwnerId) -> Result<Vec<SegmentInfo>, SegmentError>;

    /// All owners that were ever fenced here or have a segment, ascending: for reclaim.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn owners(&self) -> Result<Vec<OwnerId>, SegmentError>;

    /// Forgets an owner that is no more: its segments and its fence.
    ///
    /// # Errors
    /// `Fenced`, `Unavailable`.
    async fn forget_owner(&self, lease: Lease) -> Result<(), SegmentError>;
}
