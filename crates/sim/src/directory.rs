//! A simulated disk as the process that it is attached to sees it.
//!
//! Invariants:
//! 1. Each call is one operation of the disk: counted, traced, charged, and subject to its faults.

use std::io;
use std::sync::{Arc, MutexGuard};

use claystone_env::{Directory, DirectoryLock, File, Space};

use crate::disk::{Fate, Kind, Shared, State, failure};
use crate::files::{ALLOCATION_BYTES, PART_BYTES, SharedContent, locked};

/// See the module.
pub struct SimDirectory {
    pub shared: Arc<Shared>,
    pub boot: u64,
}

impl SimDirectory {
    fn begin(&self, kind: Kind, path: &str) -> io::Result<(MutexGuard<'_, State>, Fate)> {
        self.shared.begin(self.boot, kind, path, 0, 0)
    }

    fn file(&self, path: &str, content: SharedContent) -> Arc<dyn File> {
        Arc::new(SimFile { shared: self.shared.clone(), boot: self.boot, path: path.to_owned(), content })
    }
}

impl Directory for SimDirectory {
    fn label(&self) -> String {
        format!("sim:{}", self.shared.name)
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let (mut state, fate) = self.begin(Kind::Name, path)?;
        let content = state.files.create(path);
        self.shared.named(fate, content).map(|content| self.file(path, content))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let (state, _) = self.begin(Kind::Look, path)?;
        state.files.open(path).map(|content| self.file(path, content))
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        let (mut state, fate) = self.begin(Kind::Name, path)?;
        let result = state.files.make_dir(path);
        self.shared.named(fate, result)
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let (state, _) = self.begin(Kind::Look, path)?;
        state.files.list(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (mut state, fate) = self.begin(Kind::Name, from)?;
        let result = state.files.rename(from, to);
        self.shared.named(fate, result)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let (mut state, fate) = self.begin(Kind::Name, path)?;
        let result = state.files.remove(path);
        self.shared.named(fate, result)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let (mut state, _) = self.begin(Kind::Sync, path)?;
        state.files.sync_dir(path)
    }

    fn sync_all(&self) -> io::Result<()> {
        let (mut state, _) = self.begin(Kind::Sync, "")?;
        state.files.sync_all();
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        let (state, _) = self.begin(Kind::Look, "")?;
        let total_bytes = state.capacity_bytes;
        Ok(Space { total_bytes, free_bytes: total_bytes.saturating_sub(state.files.used_bytes()) })
    }

    fn favours_overwriting(&self) -> bool {
        self.shared.state().favours_overwriting
    }

    fn lock(&self) -> io::Result<DirectoryLock> {
        let (mut state, _) = self.begin(Kind::Look, "")?;
        if state.held {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        state.held = true;
        Ok(Box::new(Held { shared: self.shared.clone(), boot: self.boot }))
    }
}

struct Held {
    shared: Arc<Shared>,
    boot: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if state.boot == self.boot {
            state.held = false;
        }
    }
}

struct SimFile {
    shared: Arc<Shared>,
    boot: u64,
    path: String,
    content: SharedContent,
}

impl SimFile {
    fn begin(&self, kind: Kind, offset: u64, bytes: u64) -> io::Result<(MutexGuard<'_, State>, Fate)> {
        self.shared.begin(self.boot, kind, &self.path, offset, bytes)
    }
}

impl File for SimFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let (mut state, _) = self.begin(Kind::Read, offset, into.len() as u64)?;
        state.stats.bytes_read += into.len() as u64;
        locked(&self.content).read(offset, into)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut state, fate) = self.begin(Kind::Write, offset, bytes.len() as u64)?;
        self.shared.trace.note("bytes", &[], bytes);
        let (used, have) = (state.files.used_bytes(), locked(&self.content).bytes.len() as u64);
        // As much as fits is written.
        let held = have.next_multiple_of(ALLOCATION_BYTES);
        let end_max = held + state.capacity_bytes.saturating_sub(used) / ALLOCATION_BYTES * ALLOCATION_BYTES;
        if offset + bytes.len() as u64 > end_max {
            locked(&self.content).write(offset, &bytes[..end_max.saturating_sub(offset) as usize]);
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.stats.bytes_written += bytes.len() as u64;
        if fate == Fate::Done {
            locked(&self.content).write(offset, bytes);
            return Ok(());
        }
        let done = self.shared.random.below(bytes.len() as u64 + 1) / PART_BYTES * PART_BYTES;
        // The power cut comes after the write reached the cache, for the crash to tear it.
        let done = if state.powered { done } else { bytes.len() as u64 };
        locked(&self.content).write(offset, &bytes[..done as usize]);
        Err(failure())
    }

    fn reserve(&self, bytes: u64) -> io::Result<()> {
        let (state, fate) = self.begin(Kind::Write, 0, 0)?;
        let free_bytes = state.capacity_bytes.saturating_sub(state.files.used_bytes());
        let mut content = locked(&self.content);
        let held_bytes = (content.bytes.len() as u64).next_multiple_of(ALLOCATION_BYTES);
        if bytes > held_bytes + free_bytes / ALLOCATION_BYTES * ALLOCATION_BYTES {
            return Err(io::ErrorKind::StorageFull.into());
        }
        // What fails may have happened; a power cut comes after it, for the crash to choose.
        if fate == Fate::Done || !state.powered || self.shared.random.below(2) == 0 {
            content.lengthen(bytes);
        }
        if fate == Fate::Done { Ok(()) } else { Err(failure()) }
    }

    fn sync(&self) -> io::Result<()> {
        let (_state, _) = self.begin(Kind::Sync, 0, 0)?;
        locked(&self.content).sync();
        Ok(())
    }

    fn bytes(&self) -> io::Result<u64> {
        let (_state, _) = self.begin(Kind::Look, 0, 0)?;
        Ok(locked(&self.content).bytes.len() as u64)
    }
}
