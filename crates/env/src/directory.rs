//! Files under one root, as blocking calls for a disk's [`Worker`](crate::Worker).
//!
//! Paths are relative to the root, with `/` between names, without `.` and `..`.
//!
//! What a caller may count on after a crash, in every implementation:
//! 1. Bytes written before a returned [`File::sync`] are there.
//! 2. Bytes written and not synced are each there, old, or torn: any 512-byte part may be new or old.
//! 3. A name made, renamed or removed before a returned [`Directory::sync_dir`] of its directory is so.
//!    A name changed and not synced is in either state. A file whose name was never synced may be gone,
//!    synced bytes included.
//! 4. Renaming over a name is atomic: the name shows the old or the new file.

use std::any::Any;
use std::io;
use std::sync::Arc;

use bytes::{Buf, BytesMut};

use crate::SectorHealth;

/// Bytes of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Space {
    /// All bytes.
    pub total_bytes: u64,
    /// Bytes that can still be written.
    pub free_bytes: u64,
}

/// Exclusive use of a root, until it is dropped or the process ends.
pub type DirectoryLock = Box<dyn Any + Send + Sync>;

/// An open file. Calls may come from several threads at once.
pub trait File: Send + Sync {
    /// Fills `into` from `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the file ends before.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`, growing the file if needed.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// As [`File::write_at`], around the system's cache where that can be: for much content that nobody reads soon. It
    /// can be where `offset`, the length and the address of `bytes` are multiples of [`ALIGNED_BYTES`].
    fn write_around(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_at(offset, bytes)
    }
    /// Takes the space for the first `bytes` bytes of a file, at least 1, and makes it that long if it is shorter: what was not written reads
    /// as zeros, and writes within it neither fail for lack of space nor change the length, which is durable with [`File::sync`].
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`] if there is less space; the file may then be longer than it was.
    fn reserve(&self, bytes: u64) -> io::Result<()>;
    /// Makes what was written durable. After an error the file's content is unknown: do not retry.
    fn sync(&self) -> io::Result<()>;
    /// The file's length in bytes.
    fn bytes(&self) -> io::Result<u64>;
    /// Tells the system that cached content need not be kept, so that the next read reaches the medium.
    fn forget_cache(&self) {}
    /// Tells the system that these bytes will be written over in small steps that are no whole pages: what it must read for
    /// that, it reads better now. Does not wait for it.
    fn expect_overwriting(&self, _offset: u64, _bytes: u64) {}
}

/// One root with files below it. An error of kind [`io::ErrorKind::ResourceBusy`], [`io::ErrorKind::OutOfMemory`] or
/// [`io::ErrorKind::Interrupted`] is the process's, and says nothing about the files.
pub trait Directory: Send + Sync + 'static {
    /// What a person would call this place: its path.
    fn label(&self) -> String;
    /// Makes a new file and opens it for reading and writing.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if the name is taken.
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>>;
    /// Opens an existing file for reading and writing. Where only reading is allowed it opens too, and writes fail.
    fn open(&self, path: &str) -> io::Result<Arc<dyn File>>;
    /// Makes a directory; it is no error if it exists.
    fn make_dir(&self, path: &str) -> io::Result<()>;
    /// The names in a directory, sorted.
    fn list(&self, path: &str) -> io::Result<Vec<String>>;
    /// Renames a file, replacing what has the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Makes the names in a directory durable. `""` is the root.
    fn sync_dir(&self, path: &str) -> io::Result<()>;
    /// Makes all that was written below the root durable, files and names, whoever wrote it: a process before this one too. After an error
    /// nobody knows what of it is.
    fn sync_all(&self) -> io::Result<()>;
    /// A hint that many files will be synced now, which an implementation may write back together. Promises nothing:
    /// each file and directory still needs its own sync.
    fn prepare_sync(&self) {}
    /// Space of the file system below the root.
    fn space(&self) -> io::Result<Space>;
    /// Whether a sync of what was written over bytes that a file had before is sooner done than one of bytes that were only
    /// reserved: so where the file system notes with the first write of each byte that it counts.
    fn favours_overwriting(&self) -> bool {
        false
    }
    /// How the sectors below are, where whoever keeps the files mends them.
    fn sectors(&self) -> Option<SectorHealth> {
        None
    }
    /// Takes the root for this holder alone; every other call works without it.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if somebody else, in this process or another, holds it.
    fn lock(&self) -> io::Result<DirectoryLock>;
}

/// An empty buffer for `capacity` bytes, whose bytes [`File::write_around`] can take as they are.
pub fn aligned_buffer(capacity: usize) -> BytesMut {
    let mut buffer = BytesMut::with_capacity(capacity + ALIGNED_BYTES - 1);
    let skipped = buffer.as_ptr().align_offset(ALIGNED_BYTES);
    buffer.resize(skipped, 0);
    buffer.advance(skipped);
    buffer
}

/// What media and the system's direct paths to them want addresses, offsets and lengths to be multiples of.
pub const ALIGNED_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::{ALIGNED_BYTES, aligned_buffer};

    #[test]
    fn an_aligned_buffer_stays_aligned_when_it_is_filled_and_used_again() {
        for capacity in [1, 4096, 5000, 1 << 20] {
            let mut buffer = aligned_buffer(capacity);
            for _ in 0..3 {
                assert_eq!(buffer.as_ptr().align_offset(ALIGNED_BYTES), 0);
                assert!(buffer.is_empty() && buffer.capacity() >= capacity);
                buffer.resize(capacity, 7);
                let frozen = buffer.freeze();
                assert_eq!(frozen.as_ptr().align_offset(ALIGNED_BYTES), 0);
                buffer = frozen.try_into_mut().expect("no other handle");
                buffer.clear();
            }
        }
    }
}
