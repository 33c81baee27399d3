//! The contract of everything that keeps chunks.
//!
//! A chunk's life:
//!
//! ```text
//! (absent) --create--> writing --commit--> committed(version 0) --patch--> committed(version n+1)
//!    ^                    |                     |
//!    |     dropped, crash |              delete |
//!    +--------------------+---------------------+
//! ```
//!
//! In `writing` no other call sees the chunk, and a crash leaves nothing that [`ChunkStore::list`] would call a
//! committed chunk. In `committed` every byte is readable at exactly one version.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use claystone_env::{SectorHealth, Space};

use crate::{ChunkId, DiskId, SegmentStore, Version};

/// Bytes of a sector: what is checksummed, lost and mended as one.
pub const SECTOR_BYTES: u32 = 4096;

/// A range of a chunk's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl ByteRange {
    /// The byte after the last.
    pub fn end(self) -> u64 {
        self.offset + self.bytes
    }
}

/// When a commit may be reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// After the chunk and its name are synced.
    #[default]
    Synced,
    /// At once; the store syncs within its stated interval.
    Buffered,
}

/// What a patch does with the bytes in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchOp {
    /// Replaces them.
    Overwrite,
    /// Adds to them in GF(2): new = old xor given.
    Xor,
}

/// A change of a committed chunk, within its length.
#[derive(Debug, Clone)]
pub struct Patch {
    /// What to do.
    pub op: PatchOp,
    /// Where it starts.
    pub offset: u64,
    /// The bytes to write or to add.
    pub bytes: Bytes,
}

/// A committed chunk as its store sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Length in bytes.
    pub bytes: u64,
    /// Current version.
    pub version: Version,
}

/// What reading every sector of a chunk found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Length and version.
    pub info: ChunkInfo,
    /// Bytes read to know it.
    pub bytes_read: u64,
    /// Sectors that are lost, by number from the chunk's start, ascending. Empty: the chunk is verified.
    pub lost_sectors: Vec<u64>,
}

/// How busy a store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Operations waiting or running.
    pub queued: usize,
    /// Recent time of a read, smoothed; zero until there was one.
    pub read_latency: Duration,
}

/// Whether a store may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreState {
    /// Reads and writes.
    Serving,
    /// Reads only: the medium refuses writes.
    ReadOnly {
        /// What was seen.
        reason: String,
    },
    /// An operation had an unknown result, or the disk is gone: nothing is trusted until it is opened anew.
    Failed {
        /// What was seen.
        reason: String,
    },
}

/// Why a chunk operation did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// There is no such committed chunk.
    #[error("chunk {id} is not on this disk")]
    NotFound {
        /// Which.
        id: ChunkId,
    },
    /// The id is taken.
    #[error("chunk {id} is already on this disk")]
    AlreadyExists {
        /// Which.
        id: ChunkId,
    },
    /// Sectors fail their checksum or cannot be read; the others can still be read by asking for them alone.
    #[error("chunk {id} has lost {} of the sectors asked for, the first is {:?}", .sectors.len(), .sectors.first())]
    SectorsLost {
        /// Which chunk.
        id: ChunkId,
        /// Which of its sectors, ascending.
        sectors: Vec<u64>,
    },
    /// The chunk's header is damaged: all of it is lost.
    #[error("chunk {id} is damaged as a whole: {reason}")]
    ChunkLost {
        /// Which.
        id: ChunkId,
        /// What is wrong with it.
        reason: String,
    },
    /// The chunk is at another version than the caller expects.
    #[error("chunk {id} is at version {}, expected {}", .found.0, .expected.0)]
    VersionMismatch {
        /// Which.
        id: ChunkId,
        /// The version it is at.
        found: Version,
        /// The version asked for.
        expected: Version,
    },
    /// A range or length does not fit the chunk.
    #[error("bytes {}..{} are outside chunk {id} of {chunk_bytes} bytes", .range.offset, .range.end())]
    OutOfRange {
        /// Which.
        id: ChunkId,
        /// What was asked.
        range: ByteRange,
        /// What there is.
        chunk_bytes: u64,
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

/// Something that keeps chunks. Calls may come from many tasks at once.
#[async_trait]
pub trait ChunkStore: Send + Sync + std::fmt::Debug {
    /// The disk this store is.
    fn disk(&self) -> DiskId;

    /// Begins a chunk of exactly `bytes` bytes (at least 1). Nothing is visible before [`ChunkWriter::commit`].
    ///
    /// # Errors
    /// `AlreadyExists`, `DiskFull`, `Unavailable`; each may also come from the writer instead.
    async fn create(&self, id: ChunkId, bytes: u64) -> Result<Box<dyn ChunkWriter>, ChunkError>;

    /// Reads ranges; the result has one buffer per range, in order.
    ///
    /// # Errors
    /// `NotFound`, `SectorsLost` (all lost sectors that the ranges touch), `ChunkLost`, `VersionMismatch` if
    /// `expected` is given and differs, `OutOfRange`, `Unavailable`.
    async fn read(
        &self,
        id: ChunkId,
        expected: Option<Version>,
        ranges: &[ByteRange],
    ) -> Result<Vec<Bytes>, ChunkError>;

    /// Changes bytes of a committed chunk and advances its version by one; durable when it returns. After a crash
    /// the patch is applied whole or not at all.
    ///
    /// # Errors
    /// As for `read`, and `DiskFull`. After `VersionMismatch` nothing was changed: a patch is applied at most once.
    async fn patch(&self, id: ChunkId, expected: Version, patch: Patch) -> Result<Version, ChunkError>;

    /// Length and version, without reading data.
    ///
    /// # Errors
    /// `NotFound`, `ChunkLost`, `Unavailable`.
    async fn info(&self, id: ChunkId) -> Result<ChunkInfo, ChunkError>;

    /// Reads every sector from the medium and says which are lost.
    ///
    /// # Errors
    /// `NotFound`, `ChunkLost`, `Unavailable`.
    async fn verify(&self, id: ChunkId) -> Result<Verdict, ChunkError>;

    /// Removes a chunk. It is no error if it is absent. Space comes back at once, the removal need not be durable.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn delete(&self, id: ChunkId) -> Result<(), ChunkError>;

    /// Up to `limit` ids greater than `after`, ascending: every committed chunk and every remnant of an unfinished
    /// write of an earlier run (so that reclaim can delete both), no chunk that is being written now.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn list(&self, after: Option<ChunkId>, limit: usize) -> Result<Vec<ChunkId>, ChunkError>;

    /// Makes durable what was committed as [`Durability::Buffered`].
    ///
    /// # Errors
    /// `Unavailable`; the store is then failed.
    async fn sync(&self) -> Result<(), ChunkError>;

    /// Space on the disk; free space excludes the reserve that keeps deletes and repairs possible.
    ///
    /// # Errors
    /// `Unavailable`.
    async fn space(&self) -> Result<Space, ChunkError>;

    /// The segments that it keeps beside chunks.
    fn segments(&self) -> &dyn SegmentStore;

    /// How busy it is.
    fn load(&self) -> Load;

    /// Whether it may be used.
    fn state(&self) -> StoreState;

    /// How its sectors are, where it lies on something that mends them.
    fn sectors(&self) -> Option<SectorHealth> {
        None
    }
}

/// A chunk being written. Dropping it leaves no chunk.
#[async_trait]
pub trait ChunkWriter: Send {
    /// Adds bytes at the end. May return before they reach the disk; an error then comes later.
    ///
    /// # Errors
    /// `DiskFull`, `OutOfRange` beyond the length given to `create`, `Unavailable`.
    async fn append(&mut self, bytes: Bytes) -> Result<(), ChunkError>;

    /// Ends the chunk, which must have all its bytes, and makes it visible; with [`Durability::Synced`] it is
    /// durable when this returns.
    ///
    /// # Errors
    /// As `append`; `OutOfRange` if bytes are missing. On any error there is no chunk.
    async fn commit(self: Box<Self>, durability: Durability) -> Result<(), ChunkError>;
}
