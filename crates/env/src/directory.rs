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
    /// Makes what was written durable. After an error the file's content is unknown: do not retry.
    fn sync(&self) -> io::Result<()>;
    /// The file's length in bytes.
    fn bytes(&self) -> io::Result<u64>;
    /// Tells the system that cached content need not be kept, so that the next read reaches the medium.
    fn forget_cache(&self) {}
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
    /// A hint that many files will be synced now, which an implementation may write back together. Promises nothing:
    /// each file and directory still needs its own sync.
    fn prepare_sync(&self) {}
    /// Space of the file system below the root.
    fn space(&self) -> io::Result<Space>;
    /// Takes the root for this holder alone; every other call works without it.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if somebody else, in this process or another, holds it.
    fn lock(&self) -> io::Result<DirectoryLock>;
}
