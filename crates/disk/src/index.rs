//! The sorted ids of a disk's chunk files, in memory.
//!
//! ```text
//! Unbuilt --scan(0)--> Building --scan(255)--> Built
//! ```
//!
//! Invariants:
//! 1. In `Building(n)` the ids of directories below `n` are there; in `Built` all are.
//! 2. Every change of a name is told here after it was made, and a directory is read and taken in under the same
//!    lock, so no change is missed.
//! 3. In `Unbuilt` nothing is kept: a disk that nobody lists costs no memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use claystone_chunk::ChunkId;

/// Number of directories of chunk files.
pub const CHUNK_DIRS: u16 = 256;

/// The path of the directory that is number `dir`.
pub fn dir_path(dir: u16) -> String {
    format!("chunks/{dir:02x}")
}

/// The number of the directory of chunk `id`.
pub fn dir_of(id: ChunkId) -> u16 {
    (id.stripe.0 & 0xff) as u16
}

/// The path of a chunk's file.
pub fn file_path(id: ChunkId) -> String {
    format!("chunks/{:02x}/{id}", dir_of(id))
}

/// See the module.
#[derive(Debug, Default)]
pub struct Index {
    ids: BTreeSet<ChunkId>,
    dirs_read: u16,
}

impl Index {
    /// The directory that [`Index::scanned`] must be given next; `None` when built.
    pub fn next_dir(&self) -> Option<u16> {
        (self.dirs_read < CHUNK_DIRS).then_some(self.dirs_read)
    }

    /// Takes in the names of the next directory, without files that are being written (`true` in `writing`).
    pub fn scanned(&mut self, dir: u16, names: &[String], writing: &BTreeMap<ChunkId, bool>) {
        assert!(self.next_dir() == Some(dir), "directories are read in order");
        let ids = names.iter().filter_map(|name| name.parse::<ChunkId>().ok());
        self.ids.extend(ids.filter(|id| dir_of(*id) == dir && !writing.get(id).copied().unwrap_or(false)));
        self.dirs_read += 1;
    }

    /// A chunk was committed.
    pub fn added(&mut self, id: ChunkId) {
        if dir_of(id) < self.dirs_read {
            self.ids.insert(id);
        }
    }

    /// A chunk's file is gone.
    pub fn removed(&mut self, id: ChunkId) {
        self.ids.remove(&id);
    }

    /// Up to `limit` ids above `after`; `None` while not built.
    pub fn page(&self, after: Option<ChunkId>, limit: usize) -> Option<Vec<ChunkId>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.next_dir().is_none().then(|| self.ids.range((from, Bound::Unbounded)).take(limit).copied().collect())
    }
}
