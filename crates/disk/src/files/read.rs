//! Reading, verifying and listing.
//!
//! Invariants:
//! 1. A chunk is read under its lock, so no overwrite comes in between.
//! 2. Verifying holds at most [`VERIFY_BYTES`] of content, and gives other operations their turn in between.
//! 3. An error that a missing disk would explain is told only after the disk was found to be there.

use std::io;
use std::sync::{PoisonError, RwLock};

use bytes::Bytes;
use claystone_chunk::{ByteRange, ChunkError, ChunkId, ChunkInfo, Verdict};

use super::{CHUNK_LOCKS, Files, OpenFile, is_passing, lock};
use crate::index::{dir_path, file_path};
use crate::layout::{Header, SECTOR, sectors_of};
use crate::reader::{OpenChunk, Opened};

/// Bytes that verifying reads in one job.
const VERIFY_BYTES: u64 = 1 << 20;

/// Progress of verifying one chunk.
#[derive(Debug, Default)]
pub struct Verifying {
    next_sector: u64,
    bytes_read: u64,
    lost_sectors: Vec<u64>,
}

impl Files {
    pub(super) fn chunk_lock(&self, id: ChunkId) -> &RwLock<()> {
        let mixed = id.stripe.0 ^ (u128::from(id.index.0) << 3);
        &self.chunks[(mixed % CHUNK_LOCKS as u128) as usize]
    }

    pub(super) fn open_any(&self, id: ChunkId) -> Result<Option<Opened>, ChunkError> {
        let opened = self.directory.open(&file_path(id)).and_then(|file| OpenChunk::open(id, file));
        match opened {
            Ok(opened) => Ok(Some(opened)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.check_alive()?;
                Ok(None)
            }
            Err(error) if is_passing(error.kind()) => Err(self.unavailable(format!("opening a chunk: {error}")).into()),
            Err(error) => {
                self.check_alive()?;
                Err(ChunkError::ChunkLost { id, reason: error.to_string() })
            }
        }
    }

    /// Opens a committed chunk, or reads anew what its open file begins with. Who calls holds its lock.
    pub(super) fn open(&self, id: ChunkId) -> Result<OpenChunk, ChunkError> {
        let opened = lock(&self.opened).find(&id);
        if let Some(OpenFile { file, .. }) = opened {
            if let Ok(Opened::Chunk(chunk)) = OpenChunk::open(id, file) {
                return Ok(chunk);
            }
            lock(&self.opened).forget(&id);
        }
        let chunk = self.open_fresh(id)?;
        let file = OpenFile { file: chunk.file.clone(), header: chunk.header };
        lock(&self.opened).keep(id, file);
        Ok(chunk)
    }

    /// Opens a committed chunk by its name.
    fn open_fresh(&self, id: ChunkId) -> Result<OpenChunk, ChunkError> {
        if self.has_unfinished_file(id) {
            return Err(ChunkError::NotFound { id });
        }
        match self.open_any(id)? {
            Some(Opened::Chunk(chunk)) => Ok(chunk),
            Some(Opened::Damaged(reason)) => Err(ChunkError::ChunkLost { id, reason: reason.to_owned() }),
            Some(Opened::Remnant) | None => Err(ChunkError::NotFound { id }),
        }
    }

    /// See [`claystone_chunk::ChunkStore::read`].
    pub fn read(&self, id: ChunkId, ranges: &[ByteRange]) -> Result<Vec<Bytes>, ChunkError> {
        self.readable()?;
        let _stay = self.chunk_lock(id).read().unwrap_or_else(PoisonError::into_inner);
        let mut chunk = self.open(id)?;
        for range in ranges {
            check(&chunk.header, *range)?;
        }
        let mut lost = Vec::new();
        let mut buffers = Vec::with_capacity(ranges.len());
        for range in ranges {
            let sectors = sectors_of(*range);
            let from = (range.offset - sectors.start * SECTOR) as usize;
            let content = Bytes::from(chunk.sectors(sectors, &mut lost));
            buffers.push(if range.bytes == 0 {
                Bytes::new()
            } else {
                content.slice(from..from + range.bytes as usize)
            });
        }
        self.nothing_lost(&chunk, lost)?;
        Ok(buffers)
    }

    fn nothing_lost(&self, chunk: &OpenChunk, mut lost: Vec<u64>) -> Result<(), ChunkError> {
        if lost.is_empty() {
            return Ok(());
        }
        if chunk.medium_failed {
            self.check_alive()?;
        }
        lost.sort_unstable();
        lost.dedup();
        Err(ChunkError::SectorsLost { id: chunk.header.id, sectors: lost })
    }

    /// Its length.
    pub fn info(&self, id: ChunkId) -> Result<ChunkInfo, ChunkError> {
        self.readable()?;
        let _stay = self.chunk_lock(id).read().unwrap_or_else(PoisonError::into_inner);
        // By its name: whoever asks wants to know whether it is there.
        Ok(ChunkInfo { bytes: self.open_fresh(id)?.header.bytes })
    }

    /// Reads the next sectors from the medium; returns the verdict after the last.
    pub fn verify_step(&self, id: ChunkId, progress: &mut Verifying) -> Result<Option<Verdict>, ChunkError> {
        self.readable()?;
        let _stay = self.chunk_lock(id).read().unwrap_or_else(PoisonError::into_inner);
        if let Ok(file) = self.directory.open(&file_path(id)) {
            file.forget_cache();
        }
        let mut chunk = self.open_fresh(id)?;
        let sectors = chunk.header.sectors();
        let end = (progress.next_sector + VERIFY_BYTES / SECTOR).min(sectors);
        chunk.sectors(progress.next_sector..end, &mut progress.lost_sectors);
        if chunk.medium_failed {
            self.check_alive()?;
        }
        progress.next_sector = end;
        progress.bytes_read += chunk.bytes_read;
        Ok((end == sectors).then(|| Verdict {
            info: ChunkInfo { bytes: chunk.header.bytes },
            bytes_read: progress.bytes_read,
            lost_sectors: std::mem::take(&mut progress.lost_sectors),
        }))
    }

    /// Reads one more directory into the index, if it is not complete; returns whether it is now.
    pub fn index_step(&self) -> Result<bool, ChunkError> {
        self.readable()?;
        let mut index = lock(&self.index);
        let Some(dir) = index.next_dir() else { return Ok(true) };
        let names = match self.directory.list(&dir_path(dir)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.check_alive()?;
                Vec::new()
            }
            Err(error) if is_passing(error.kind()) => return Err(self.unavailable(format!("listing: {error}")).into()),
            Err(error) => return Err(self.fail(format!("listing {}: {error}", dir_path(dir))).into()),
            Ok(names) => names,
        };
        index.scanned(dir, &names, &lock(&self.writing));
        Ok(index.next_dir().is_none())
    }

    /// A page of the index; `None` while it is not complete.
    pub fn page(&self, after: Option<ChunkId>, limit: usize) -> Result<Option<Vec<ChunkId>>, ChunkError> {
        self.readable()?;
        Ok(lock(&self.index).page(after, limit))
    }
}

/// Refuses a range that is not in the chunk.
fn check(header: &Header, range: ByteRange) -> Result<(), ChunkError> {
    if range.offset.checked_add(range.bytes).is_none_or(|end| end > header.bytes) {
        return Err(ChunkError::OutOfRange { id: header.id, range, chunk_bytes: header.bytes });
    }
    Ok(())
}
