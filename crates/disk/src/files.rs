//! The blocking half of a directory store: every function here runs on the disk's worker.
//!
//! Invariants:
//! 1. `state` leaves `Serving` for `ReadOnly` or `Failed` and never comes back; opening anew makes a new `Files`.
//! 2. A chunk's file is changed only under its write lock, and read under its read lock, so a read sees no half of a
//!    change.
//! 3. An id is in `writing` from `create` until its file is committed or gone. The value tells whether its writer has
//!    made the file: such a file is not found, not listed, and only its writer removes it. Before that, a file of
//!    this name is somebody else's committed chunk or a remnant, and the writer leaves it alone.
//! 4. After an error of a write or a sync whose effect is unknown the state is `Failed`.
//!
//! 5. A file in `opened` is that of a committed chunk: it is dropped under the write lock before the file goes.
//! 6. What is in `unsynced` goes from there only into a sync that whoever syncs next waits for. The first sync of an opening is of all that there
//!    is: a process that ended, or a store that failed, has left what it had committed as buffered in the system's memory.
//!
//! Locks are taken in the order gate of an owner, chunk, syncing, then one of the short ones (index, writing, unsynced,
//! opened, state). Those of `segments` are told there.

mod overwrite;
mod read;
mod segments;
mod spares;
mod write;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use claystone_chunk::{ChunkId, StoreState};
use claystone_env::{Directory, DirectoryLock, File, SectorHealth, Space};

use crate::error::Refused;
use crate::identity::{IDENTITY_BYTES, IDENTITY_FILE, Identity};
use crate::index::Index;
use crate::layout::{Header, SECTOR};
use crate::recent::Recent;

pub use read::Verifying;
use segments::Segments;

/// Settings of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Free space that writes of chunks leave alone; `None`: 1 % of the file system, at least 64 MiB, but no more
    /// than a tenth of it.
    pub reserve_bytes: Option<u64>,
    /// The longest time until a chunk committed as [`Durability::Buffered`] is synced.
    pub sync_interval: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options { reserve_bytes: None, sync_interval: Duration::from_secs(1) }
    }
}

/// Locks that chunks share.
const CHUNK_LOCKS: usize = 64;
/// Files of committed chunks that stay open.
const OPENED_MAX: usize = 64;

/// A chunk file that a sync waits for.
struct Unsynced {
    file: Arc<dyn File>,
    // Its name is not durable either.
    is_new: bool,
}

/// The file of a committed chunk, whose header was checked.
#[derive(Clone)]
struct OpenFile {
    file: Arc<dyn File>,
    header: Header,
}

/// See the module.
pub struct Files {
    directory: Arc<dyn Directory>,
    identity: Identity,
    options: Options,
    state: Mutex<StoreState>,
    chunks: [RwLock<()>; CHUNK_LOCKS],
    index: Mutex<Index>,
    writing: Mutex<BTreeMap<ChunkId, bool>>,
    unsynced: Mutex<BTreeMap<ChunkId, Unsynced>>,
    /// What an opening before this one left unsynced may not be durable.
    is_left_unsynced: AtomicBool,
    syncing: Mutex<()>,
    opened: Mutex<Recent<ChunkId, OpenFile>>,
    segments: Segments,
    _lock: DirectoryLock,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Files {
    /// The files of a directory that has been found to be this disk.
    pub fn new(directory: Arc<dyn Directory>, identity: Identity, options: Options, held: DirectoryLock) -> Files {
        Files {
            directory,
            identity,
            options,
            state: Mutex::new(StoreState::Serving),
            chunks: [const { RwLock::new(()) }; CHUNK_LOCKS],
            index: Mutex::new(Index::default()),
            writing: Mutex::new(BTreeMap::new()),
            unsynced: Mutex::new(BTreeMap::new()),
            is_left_unsynced: AtomicBool::new(true),
            syncing: Mutex::new(()),
            opened: Mutex::new(Recent::new(OPENED_MAX)),
            segments: Segments::default(),
            _lock: held,
        }
    }

    /// Who this disk is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The settings.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// What this place is called.
    pub fn label(&self) -> String {
        self.directory.label()
    }

    // ---- State ----

    /// The state. Does not block.
    pub fn state(&self) -> StoreState {
        lock(&self.state).clone()
    }

    /// Any state -> `Failed`.
    pub fn fail(&self, reason: String) -> Refused {
        let mut state = lock(&self.state);
        if !matches!(*state, StoreState::Failed { .. }) {
            tracing::error!(disk = %self.identity.disk, place = self.directory.label(), reason, "disk failed");
            *state = StoreState::Failed { reason: reason.clone() };
        }
        self.unavailable(reason)
    }

    /// `Serving` -> `ReadOnly`.
    fn refuse_writes(&self, reason: String) -> Refused {
        let mut state = lock(&self.state);
        if *state == StoreState::Serving {
            tracing::warn!(disk = %self.identity.disk, place = self.directory.label(), reason, "disk is read-only");
            *state = StoreState::ReadOnly { reason: reason.clone() };
        }
        self.unavailable(reason)
    }

    fn unavailable(&self, reason: String) -> Refused {
        Refused::Unavailable { disk: self.identity.disk, reason }
    }

    /// Refuses if the state allows no reads.
    pub fn readable(&self) -> Result<(), Refused> {
        match self.state() {
            StoreState::Failed { reason } => Err(self.unavailable(reason)),
            StoreState::Serving | StoreState::ReadOnly { .. } => Ok(()),
        }
    }

    /// Refuses if the state allows no writes.
    pub fn writable(&self) -> Result<(), Refused> {
        match self.state() {
            StoreState::Failed { reason } | StoreState::ReadOnly { reason } => Err(self.unavailable(reason)),
            StoreState::Serving => Ok(()),
        }
    }

    /// What a failed change of the disk means. `needed_bytes` is what it would have taken.
    fn change_failed(&self, what: &str, error: &io::Error, needed_bytes: u64) -> Refused {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                self.give_up_spares(u64::MAX);
                let free_bytes = self.space_above_reserve().map_or(0, |space| space.free_bytes);
                Refused::Full { disk: self.identity.disk, needed_bytes, free_bytes }
            }
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                self.refuse_writes(format!("{what}: {error}"))
            }
            kind if is_passing(kind) => self.unavailable(format!("{what}: {error}")),
            _ => self.fail(format!("{what}: {error}")),
        }
    }

    /// What it means that bytes in use were perhaps changed in part, or not synced.
    fn write_torn(&self, what: &str, error: &io::Error) -> Refused {
        let reason = format!("{what}: {error}");
        match error.kind() {
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => self.refuse_writes(reason),
            _ => self.fail(reason),
        }
    }

    /// Whether the directory is still there and this disk; if not, the state is `Failed` afterwards. For use after an
    /// error that a missing disk would explain.
    fn check_alive(&self) -> Result<(), Refused> {
        let found = self.directory.open(IDENTITY_FILE).and_then(|file| {
            file.forget_cache();
            let mut bytes = [0; IDENTITY_BYTES];
            file.read_at(0, &mut bytes)?;
            Ok(bytes)
        });
        match found {
            Ok(bytes) if bytes == self.identity.encode() => Ok(()),
            Ok(_) => Err(self.fail(format!("{IDENTITY_FILE} has changed: another disk was put here"))),
            Err(error) if is_passing(error.kind()) => Err(self.unavailable(format!("{IDENTITY_FILE}: {error}"))),
            Err(error) => Err(self.fail(format!("{IDENTITY_FILE} cannot be read, is the disk gone? {error}"))),
        }
    }

    /// Finds out whether the disk takes writes, and leaves `Serving` if not.
    pub fn probe_writes(&self) {
        const PROBE: &str = "claystone.probe";
        let probed = match self.directory.create(PROBE) {
            // Left by a crash in this function.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other.map(|_| ()),
        };
        if let Err(error) = probed.and_then(|()| self.directory.remove(PROBE)) {
            // A full disk shows with the first write, and by its own error.
            self.change_failed("trying to write", &error, 0);
        }
    }

    /// How the sectors under the files are, where something mends them.
    pub fn sectors(&self) -> Option<SectorHealth> {
        self.directory.sectors()
    }

    // ---- Space ----

    /// What writes leave alone of this file system.
    fn reserve_bytes(&self, space: Space) -> u64 {
        let default = (space.total_bytes / 100).max(64 << 20).min(space.total_bytes / 10);
        self.options.reserve_bytes.unwrap_or(default)
    }

    /// With what spare segments take: they go where space is short.
    fn space_above_reserve(&self) -> io::Result<Space> {
        let space = self.directory.space()?;
        let free_bytes = (space.free_bytes + self.spare_bytes()).min(space.total_bytes);
        Ok(Space { free_bytes: free_bytes.saturating_sub(self.reserve_bytes(space)), ..space })
    }

    /// Space above the reserve. Also notices a disk that is gone.
    pub fn space(&self) -> Result<Space, Refused> {
        self.readable()?;
        self.check_alive()?;
        self.space_above_reserve().map_err(|error| self.unavailable(format!("asking for its space: {error}")))
    }

    /// Gives up spare segments where what is needed has no room beside them.
    fn make_room(&self, needed_bytes: u64) -> io::Result<()> {
        let space = self.directory.space()?;
        let lacking = needed_bytes.saturating_add(self.reserve_bytes(space)).saturating_sub(space.free_bytes);
        if lacking > 0 {
            self.give_up_spares(lacking);
        }
        Ok(())
    }

    /// Refuses a file of so many bytes that would go into the reserve, unless it may.
    fn check_space(&self, file_bytes: u64, room: Room) -> Result<(), Refused> {
        let needed_bytes = file_bytes.checked_next_multiple_of(SECTOR).unwrap_or(u64::MAX);
        let space = self
            .space_above_reserve()
            .map_err(|error| self.change_failed("asking for its space", &error, needed_bytes))?;
        if room == Room::AboveReserve && needed_bytes > space.free_bytes {
            let (disk, free_bytes) = (self.identity.disk, space.free_bytes);
            return Err(Refused::Full { disk, needed_bytes, free_bytes });
        }
        if self.spare_bytes() > 0 {
            self.make_room(needed_bytes)
                .map_err(|error| self.change_failed("asking for its space", &error, needed_bytes))?;
        }
        Ok(())
    }
}

/// Which room of a file system a file may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// What is above the reserve.
    AboveReserve,
    /// The reserve too, as far as it goes.
    All,
}

/// Errors of the system's resources, which say nothing about the disk.
fn is_passing(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::ResourceBusy | io::ErrorKind::OutOfMemory | io::ErrorKind::Interrupted)
}
