//! The contract of everything that keeps chunks.
//!
//! A chunk's life:
//!
//! ```text
//! (absent) --create--> writing --commit--> committed --overwrite--> committed
//!    ^                    |                    |
//!    |     dropped, crash |             delete |
//!    +--------------------+--------------------+
//! ```
//!
//! In `writing` no other call sees the chunk, and a crash leaves nothing that [`ChunkStore::list`] would call a
//! committed chunk. In `committed` its length stays, and its sectors are replaced by overwrites alone: whoever overwrites
//! does it again after a crash, from a log that it keeps until [`ChunkStore::sync`] has returned.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use claystone_env::{SectorHealth, Space};

use crate::{ChunkId, DiskId, Lease, SegmentStore, Term};

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

/// Bytes of a committed chunk that shall change: whole sectors, the chunk's last one may be shorter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overwrite {
    /// Where they begin: a multiple of [`SECTOR_BYTES`].
    pub offset: u64,
    /// What shall be there.
    pub bytes: Bytes,
}

impl Overwrite {
    /// What it replaces.
    pub fn range(&self) -> ByteRange {
        ByteRange { offset: self.offset, bytes: self.bytes.len() as u64 }
    }

    /// Whether it fits a chunk of `chunk_bytes`.
    ///
    /// # Errors
    /// `OutOfRange`, `NotSectors`.
    pub fn check(&self, id: ChunkId, chunk_bytes: u64) -> Result<(), ChunkError> {
        let range = self.range();
        let Some(end) = range.offset.checked_add(range.bytes).filter(|end| *end <= chunk_bytes) else {
            return Err(ChunkError::OutOfRange { id, range, chunk_bytes });
        };
        let sector = u64::from(SECTOR_BYTES);
        let whole = range.offset.is_multiple_of(sector) && (end.is_multiple_of(sector) || end == chunk_bytes);
        if whole { Ok(()) } else { Err(ChunkError::NotSectors { id, range }) }
    }
}

/// A committed chunk as its store sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Length in bytes.
    pub bytes: u64,
}

/// What reading every sector of a chunk found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Length.
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
    /// An overwrite that is not of whole sectors. Nothing was changed.
    #[error("bytes {}..{} of chunk {id} are not whole sectors", .range.offset, .range.end())]
    NotSectors {
        /// Which.
        id: ChunkId,
        /// What was asked.
        range: ByteRange,
    },
    /// A later lease was fenced: whoever asks owns this no more. Nothing was changed.
    #[error("{} has a new owner: its lease has term {}, this one {}", .lease.owner, .fenced.0, .lease.term.0)]
    Fenced {
        /// What the caller holds.
        lease: Lease,
        /// The term that was fenced.
        fenced: Term,
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
    /// `NotFound`, `SectorsLost` (all lost sectors that the ranges touch), `ChunkLost`, `OutOfRange`, `Unavailable`.
    async fn read(&self, id: ChunkId, ranges: &[ByteRange]) -> Result<Vec<Bytes>, ChunkError>;

    /// Replaces sectors of a committed chunk, in the order given. In effect for every read that begins after it returns;
    /// durable with [`ChunkStore::sync`]. After a crash before that, each sector it touched is as it was at some time
    /// since the last sync, as it should be, or lost, and no other sector is changed; a lost sector that is overwritten
    /// is well again. No read sees a part of it. A chunk that took no space takes it now, of what is kept free too.
    /// Lesser terms of the owner are refused from then on, as long as this process lives.
    ///
    /// # Errors
    /// `NotFound`, `ChunkLost`, `OutOfRange`, `NotSectors`, `Fenced`, `DiskFull`: nothing was changed. `Unavailable`: if it had begun,
    /// the store is failed, or takes no more writes.
    async fn overwrite(&self, id: ChunkId, lease: Lease, changes: &[Overwrite]) -> Result<(), ChunkError>;

    /// Takes the space that overwrites of a committed chunk need, where it has none yet: a chunk of zeros may take none until it is
    /// overwritten, and on a full disk that would be too late.
    ///
    /// # Errors
    /// `NotFound`, `ChunkLost`, `DiskFull`, `Unavailable`: nothing was changed.
    async fn take_space(&self, id: ChunkId) -> Result<(), ChunkError> {
        let _ = id;
        Ok(())
    }

    /// Its length, without reading data.
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

    /// Makes durable what was committed as [`Durability::Buffered`] or overwritten before this was called.
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
