//! The blocking half of a directory store: every function here runs on the disk's worker.
//!
//! Invariants:
//! 1. `state` leaves `Serving` for `ReadOnly` or `Failed` and never comes back; opening anew makes a new `Files`.
//! 2. A chunk's file is changed only under its write lock, and read under its read lock, so a read sees one version.
//! 3. An id is in `writing` from `create` until its file is committed or gone. The value tells whether its writer has
//!    made the file: such a file is not found, not listed, and only its writer removes it. Before that, a file of
//!    this name is somebody else's committed chunk or a remnant, and the writer leaves it alone.
//! 4. After an error of a write or a sync whose effect is unknown the state is `Failed`.
//!
//! Locks are taken in the order journal, chunk, then one of the short ones (index, writing, buffered, state).

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use claystone_chunk::{
    ByteRange, ChunkError, ChunkId, ChunkInfo, Durability, Patch, PatchOp, StoreState, Verdict, Version,
};
use claystone_env::{Directory, DirectoryLock, File, Space};

use crate::identity::{IDENTITY_BYTES, IDENTITY_FILE, Identity};
use crate::index::{Index, dir_of, dir_path, file_path};
use crate::journal::{Journal, Record};
use crate::layout::{CHUNK_BYTES_MAX, Header, SECTOR, SectorCrc, file_bytes, head, sectors_of, table_offset};
use crate::reader::{OpenChunk, Opened};

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

/// Buffered chunks that wait for a sync; one more makes its commit sync them all.
const BUFFERED_MAX: usize = 128;
/// Locks that chunks share.
const CHUNK_LOCKS: usize = 64;
/// Bytes that verifying reads in one job.
const VERIFY_BYTES: u64 = 1 << 20;

/// See the module.
pub struct Files {
    directory: Arc<dyn Directory>,
    identity: Identity,
    options: Options,
    state: Mutex<StoreState>,
    journal: Mutex<Journal>,
    chunks: [RwLock<()>; CHUNK_LOCKS],
    index: Mutex<Index>,
    writing: Mutex<BTreeMap<ChunkId, bool>>,
    buffered: Mutex<BTreeMap<ChunkId, Arc<dyn File>>>,
    _lock: DirectoryLock,
}

/// Progress of verifying one chunk.
#[derive(Debug, Default)]
pub struct Verifying {
    next_sector: u64,
    bytes_read: u64,
    lost_sectors: Vec<u64>,
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
            journal: Mutex::new(Journal::default()),
            chunks: [const { RwLock::new(()) }; CHUNK_LOCKS],
            index: Mutex::new(Index::default()),
            writing: Mutex::new(BTreeMap::new()),
            buffered: Mutex::new(BTreeMap::new()),
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
    pub fn fail(&self, reason: String) -> ChunkError {
        let mut state = lock(&self.state);
        if !matches!(*state, StoreState::Failed { .. }) {
            tracing::error!(disk = %self.identity.disk, place = self.directory.label(), reason, "disk failed");
            *state = StoreState::Failed { reason: reason.clone() };
        }
        self.unavailable(reason)
    }

    /// `Serving` -> `ReadOnly`.
    fn refuse_writes(&self, reason: String) -> ChunkError {
        let mut state = lock(&self.state);
        if *state == StoreState::Serving {
            tracing::warn!(disk = %self.identity.disk, place = self.directory.label(), reason, "disk is read-only");
            *state = StoreState::ReadOnly { reason: reason.clone() };
        }
        self.unavailable(reason)
    }

    fn unavailable(&self, reason: String) -> ChunkError {
        ChunkError::Unavailable { disk: self.identity.disk, reason }
    }

    /// Refuses if the state allows no reads.
    pub fn readable(&self) -> Result<(), ChunkError> {
        match self.state() {
            StoreState::Failed { reason } => Err(self.unavailable(reason)),
            StoreState::Serving | StoreState::ReadOnly { .. } => Ok(()),
        }
    }

    /// Refuses if the state allows no writes.
    pub fn writable(&self) -> Result<(), ChunkError> {
        match self.state() {
            StoreState::Failed { reason } | StoreState::ReadOnly { reason } => Err(self.unavailable(reason)),
            StoreState::Serving => Ok(()),
        }
    }

    /// What a failed change of the disk means. `needed_bytes` is what it would have taken.
    fn change_failed(&self, what: &str, error: &io::Error, needed_bytes: u64) -> ChunkError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                let free_bytes = self.space_above_reserve().map_or(0, |space| space.free_bytes);
                ChunkError::DiskFull { disk: self.identity.disk, needed_bytes, free_bytes }
            }
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                self.refuse_writes(format!("{what}: {error}"))
            }
            kind if is_passing(kind) => self.unavailable(format!("{what}: {error}")),
            _ => self.fail(format!("{what}: {error}")),
        }
    }

    /// Whether the directory is still there and this disk; if not, the state is `Failed` afterwards. For use after an
    /// error that a missing disk would explain.
    fn check_alive(&self) -> Result<(), ChunkError> {
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

    // ---- Space ----

    fn space_above_reserve(&self) -> io::Result<Space> {
        let space = self.directory.space()?;
        let default = (space.total_bytes / 100).max(64 << 20).min(space.total_bytes / 10);
        let reserve = self.options.reserve_bytes.unwrap_or(default);
        Ok(Space { total_bytes: space.total_bytes, free_bytes: space.free_bytes.saturating_sub(reserve) })
    }

    /// Space above the reserve. Also notices a disk that is gone.
    pub fn space(&self) -> Result<Space, ChunkError> {
        self.readable()?;
        self.check_alive()?;
        self.space_above_reserve().map_err(|error| self.unavailable(format!("asking for its space: {error}")))
    }

    fn check_space(&self, chunk_bytes: u64) -> Result<(), ChunkError> {
        let needed_bytes = file_bytes(chunk_bytes).next_multiple_of(SECTOR);
        let space = self
            .space_above_reserve()
            .map_err(|error| self.change_failed("asking for its space", &error, needed_bytes))?;
        if needed_bytes > space.free_bytes {
            let (disk, free_bytes) = (self.identity.disk, space.free_bytes);
            return Err(ChunkError::DiskFull { disk, needed_bytes, free_bytes });
        }
        Ok(())
    }

    // ---- Writing ----

    /// (absent) -> writing: takes the id. Does not block.
    pub fn begin(&self, id: ChunkId, bytes: u64) -> Result<(), ChunkError> {
        self.writable()?;
        if bytes > CHUNK_BYTES_MAX {
            let range = ByteRange { offset: 0, bytes };
            return Err(ChunkError::OutOfRange { id, range, chunk_bytes: CHUNK_BYTES_MAX });
        }
        match lock(&self.writing).entry(id) {
            Entry::Occupied(_) => Err(ChunkError::AlreadyExists { id }),
            Entry::Vacant(free) => {
                free.insert(false);
                Ok(())
            }
        }
    }

    /// writing -> (absent or committed): gives the id free. Does not block.
    pub fn end(&self, id: ChunkId) {
        lock(&self.writing).remove(&id);
    }

    fn has_unfinished_file(&self, id: ChunkId) -> bool {
        lock(&self.writing).get(&id).copied().unwrap_or(false)
    }

    fn set_unfinished_file(&self, id: ChunkId, made: bool) {
        // The entry is missing if the writer was dropped while its job was queued; its file is then a remnant.
        if let Some(entry) = lock(&self.writing).get_mut(&id) {
            *entry = made;
        }
    }

    /// Makes the file of a chunk in `writing` that will have `bytes`.
    pub fn create_file(&self, id: ChunkId, bytes: u64) -> Result<Arc<dyn File>, ChunkError> {
        self.writable()?;
        self.check_space(bytes)?;
        let path = file_path(id);
        let mut result = self.directory.create(&path);
        match result.as_ref().err().map(io::Error::kind) {
            Some(io::ErrorKind::AlreadyExists) => {
                match self.open_any(id)? {
                    Some(Opened::Remnant) => self.remove_file(id)?,
                    Some(_) => return Err(ChunkError::AlreadyExists { id }),
                    None => (),
                }
                result = self.directory.create(&path);
            }
            Some(io::ErrorKind::NotFound) => {
                // Somebody removed the directory, or the whole disk.
                self.check_alive()?;
                let made = self.directory.make_dir("chunks");
                let made = made.and_then(|()| self.directory.make_dir(&dir_path(dir_of(id))));
                let made = made.and_then(|()| self.directory.sync_dir("chunks"));
                made.map_err(|error| self.change_failed("making a directory", &error, 0))?;
                result = self.directory.create(&path);
            }
            _ => (),
        }
        let file = result.map_err(|error| self.change_failed("making a chunk file", &error, file_bytes(bytes)))?;
        self.set_unfinished_file(id, true);
        Ok(file)
    }

    /// Writes content of a chunk in `writing` from `first_sector` on and returns its table entries. On an error the
    /// file is gone.
    pub fn write_content(
        &self,
        id: ChunkId,
        bytes: u64,
        file: &dyn File,
        first_sector: u64,
        content: &[u8],
    ) -> Result<Vec<u8>, ChunkError> {
        self.writable()?;
        let offset = crate::layout::data_offset(bytes) + first_sector * SECTOR;
        match file.write_at(offset, content) {
            Ok(()) => Ok(SectorCrc::new(id).table(first_sector, content)),
            Err(error) => Err(self.write_failed(id, &error, content.len() as u64)),
        }
    }

    /// writing -> committed: writes the head of a chunk whose content is written, and syncs.
    pub fn commit(
        &self,
        id: ChunkId,
        bytes: u64,
        file: &Arc<dyn File>,
        table: &[u8],
        durability: Durability,
    ) -> Result<(), ChunkError> {
        self.writable()?;
        let header = Header { id, bytes, version: Version(0) };
        let head = head(&header, table);
        if let Err(error) = file.write_at(0, &head) {
            return Err(self.write_failed(id, &error, head.len() as u64));
        }
        self.committed(id, file, durability)
    }

    /// (absent) -> committed in one go, for a chunk in `writing` whose whole content is at hand.
    pub fn write_whole(&self, id: ChunkId, content: &[Bytes], durability: Durability) -> Result<(), ChunkError> {
        let joined;
        let content: &[u8] = match content {
            [one] => one,
            several => {
                joined = several.concat();
                &joined
            }
        };
        let header = Header { id, bytes: content.len() as u64, version: Version(0) };
        let file = self.create_file(id, header.bytes)?;
        let mut head = head(&header, &SectorCrc::new(id).table(0, content));
        let written = if header.data_offset() < SECTOR {
            head.extend_from_slice(content);
            file.write_at(0, &head)
        } else {
            file.write_at(header.data_offset(), content).and_then(|()| file.write_at(0, &head))
        };
        if let Err(error) = written {
            return Err(self.write_failed(id, &error, file_bytes(header.bytes)));
        }
        self.committed(id, &file, durability)
    }

    fn committed(&self, id: ChunkId, file: &Arc<dyn File>, durability: Durability) -> Result<(), ChunkError> {
        match durability {
            Durability::Synced => {
                let synced = file.sync().and_then(|()| self.directory.sync_dir(&dir_path(dir_of(id))));
                synced.map_err(|error| self.fail(format!("syncing a chunk: {error}")))?;
            }
            Durability::Buffered => {
                let waiting = {
                    let mut buffered = lock(&self.buffered);
                    buffered.insert(id, file.clone());
                    buffered.len()
                };
                if waiting > BUFFERED_MAX {
                    self.sync_buffered()?;
                }
            }
        }
        lock(&self.index).added(id);
        self.end(id);
        Ok(())
    }

    /// Whether chunks wait for [`Files::sync_buffered`]. Does not block.
    pub fn has_buffered(&self) -> bool {
        !lock(&self.buffered).is_empty()
    }

    /// Syncs what was committed as buffered before this call.
    pub fn sync_buffered(&self) -> Result<(), ChunkError> {
        self.writable()?;
        let buffered = std::mem::take(&mut *lock(&self.buffered));
        let dirs: BTreeSet<u16> = buffered.keys().map(|id| dir_of(*id)).collect();
        for file in buffered.values() {
            file.sync().map_err(|error| self.fail(format!("syncing a chunk: {error}")))?;
        }
        for dir in dirs {
            let synced = self.directory.sync_dir(&dir_path(dir));
            synced.map_err(|error| self.fail(format!("syncing a directory: {error}")))?;
        }
        Ok(())
    }

    /// writing -> (absent): removes what a dropped writer wrote and gives the id free.
    pub fn abandon(&self, id: ChunkId) {
        if self.has_unfinished_file(id) && self.writable().is_ok() {
            // A failure shows in the state; the remnant is listed after the next opening.
            let _ = self.remove_unfinished(id);
        }
        self.end(id);
    }

    fn remove_unfinished(&self, id: ChunkId) -> Result<(), ChunkError> {
        self.remove_file(id)?;
        lock(&self.index).removed(id);
        self.set_unfinished_file(id, false);
        Ok(())
    }

    fn write_failed(&self, id: ChunkId, error: &io::Error, needed_bytes: u64) -> ChunkError {
        // The space comes back first, so that the error tells what is free without the file.
        let removed = self.remove_unfinished(id);
        let error = self.change_failed("writing a chunk", error, needed_bytes);
        removed.err().unwrap_or(error)
    }

    fn remove_file(&self, id: ChunkId) -> Result<(), ChunkError> {
        match self.directory.remove(&file_path(id)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.check_alive(),
            Err(error) => Err(self.change_failed("removing a chunk file", &error, 0)),
            Ok(()) => Ok(()),
        }
    }

    /// committed -> (absent).
    pub fn delete(&self, id: ChunkId) -> Result<(), ChunkError> {
        self.writable()?;
        if self.has_unfinished_file(id) {
            // Not committed, so absent as far as anybody can see.
            return Ok(());
        }
        let mut journal = lock(&self.journal);
        journal.forget(id).map_err(|error| self.fail(format!("clearing the patch journal: {error}")))?;
        let _change = self.chunk_lock(id).write().unwrap_or_else(PoisonError::into_inner);
        drop(journal);
        self.remove_file(id)?;
        lock(&self.buffered).remove(&id);
        lock(&self.index).removed(id);
        Ok(())
    }

    // ---- Reading ----

    fn chunk_lock(&self, id: ChunkId) -> &RwLock<()> {
        let mixed = id.stripe.0 ^ (u128::from(id.index.0) << 3);
        &self.chunks[(mixed % CHUNK_LOCKS as u128) as usize]
    }

    fn open_any(&self, id: ChunkId) -> Result<Option<Opened>, ChunkError> {
        let opened = self.directory.open(&file_path(id)).and_then(|file| OpenChunk::open(id, file));
        match opened {
            Ok(opened) => Ok(Some(opened)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.check_alive()?;
                Ok(None)
            }
            Err(error) if is_passing(error.kind()) => Err(self.unavailable(format!("opening a chunk: {error}"))),
            Err(error) => {
                self.check_alive()?;
                Err(ChunkError::ChunkLost { id, reason: error.to_string() })
            }
        }
    }

    fn open(&self, id: ChunkId) -> Result<OpenChunk, ChunkError> {
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
    pub fn read(&self, id: ChunkId, expected: Option<Version>, ranges: &[ByteRange]) -> Result<Vec<Bytes>, ChunkError> {
        self.readable()?;
        let _stay = self.chunk_lock(id).read().unwrap_or_else(PoisonError::into_inner);
        let mut chunk = self.open(id)?;
        for range in ranges {
            check(&chunk.header, expected, *range)?;
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

    /// Length and version.
    pub fn info(&self, id: ChunkId) -> Result<ChunkInfo, ChunkError> {
        self.readable()?;
        let _stay = self.chunk_lock(id).read().unwrap_or_else(PoisonError::into_inner);
        let header = self.open(id)?.header;
        Ok(ChunkInfo { bytes: header.bytes, version: header.version })
    }

    /// Reads the next sectors from the medium; returns the verdict after the last.
    pub fn verify_step(&self, id: ChunkId, progress: &mut Verifying) -> Result<Option<Verdict>, ChunkError> {
        self.readable()?;
        let _stay = self.chunk_lock(id).read().unwrap_or_else(PoisonError::into_inner);
        if let Ok(file) = self.directory.open(&file_path(id)) {
            file.forget_cache();
        }
        let mut chunk = self.open(id)?;
        let sectors = chunk.header.sectors();
        let end = (progress.next_sector + VERIFY_BYTES / SECTOR).min(sectors);
        chunk.sectors(progress.next_sector..end, &mut progress.lost_sectors);
        if chunk.medium_failed {
            self.check_alive()?;
        }
        progress.next_sector = end;
        progress.bytes_read += chunk.bytes_read;
        Ok((end == sectors).then(|| Verdict {
            info: ChunkInfo { bytes: chunk.header.bytes, version: chunk.header.version },
            bytes_read: progress.bytes_read,
            lost_sectors: std::mem::take(&mut progress.lost_sectors),
        }))
    }

    // ---- Patching ----

    /// See [`claystone_chunk::ChunkStore::patch`], and `journal` for the states.
    pub fn patch(&self, id: ChunkId, expected: Version, patch: &Patch) -> Result<Version, ChunkError> {
        self.writable()?;
        let mut journal = lock(&self.journal);
        let _change = self.chunk_lock(id).write().unwrap_or_else(PoisonError::into_inner);
        let mut chunk = self.open(id)?;
        let range = ByteRange { offset: patch.offset, bytes: patch.bytes.len() as u64 };
        check(&chunk.header, Some(expected), range)?;
        let record = Record {
            id,
            version: Version(expected.0 + 1),
            first_sector: sectors_of(range).start,
            content: self.patched(&mut chunk, range, patch)?,
        };
        let needed_bytes = record.content.len() as u64;
        match journal.write(&*self.directory, &record) {
            Ok(()) => (),
            // Only the journal may have changed, and no chunk needs what it held.
            Err(error) => return Err(self.change_failed("writing the patch journal", &error, needed_bytes)),
        }
        self.apply(&chunk, &record).map_err(|error| self.fail(format!("applying a patch: {error}")))?;
        Ok(record.version)
    }

    /// The new content of the sectors that the patch touches.
    fn patched(&self, chunk: &mut OpenChunk, range: ByteRange, patch: &Patch) -> Result<Vec<u8>, ChunkError> {
        let sectors = sectors_of(range);
        let whole = chunk.header.bytes_of(sectors.start, sectors.end);
        if range.bytes == 0 || (patch.op == PatchOp::Overwrite && whole == range) {
            return Ok(patch.bytes.to_vec());
        }
        let mut lost = Vec::new();
        let mut content = match patch.op {
            PatchOp::Xor => chunk.sectors(sectors.clone(), &mut lost),
            // Only the sectors at the ends can be changed in part, and need their old bytes.
            PatchOp::Overwrite => {
                let mut content = vec![0; whole.bytes as usize];
                for edge in [sectors.start, sectors.end.saturating_sub(1)] {
                    let bytes = chunk.header.bytes_of(edge, edge + 1);
                    let covered = range.offset <= bytes.offset && bytes.end() <= range.end();
                    if sectors.contains(&edge) && !covered {
                        let old = chunk.sectors(edge..edge + 1, &mut lost);
                        let at = (bytes.offset - whole.offset) as usize;
                        content[at..at + old.len()].copy_from_slice(&old);
                    }
                }
                content
            }
        };
        self.nothing_lost(chunk, lost)?;
        let from = (range.offset - whole.offset) as usize;
        let target = &mut content[from..from + patch.bytes.len()];
        match patch.op {
            PatchOp::Overwrite => target.copy_from_slice(&patch.bytes),
            PatchOp::Xor => target.iter_mut().zip(&patch.bytes).for_each(|(old, add)| *old ^= add),
        }
        Ok(content)
    }

    /// recorded -> applied. Doing it again changes nothing.
    fn apply(&self, chunk: &OpenChunk, record: &Record) -> io::Result<()> {
        let header = Header { version: record.version, ..chunk.header };
        let table = SectorCrc::new(record.id).table(record.first_sector, &record.content);
        chunk.file.write_at(header.data_offset() + record.first_sector * SECTOR, &record.content)?;
        chunk.file.write_at(table_offset(record.first_sector), &table)?;
        chunk.file.write_at(0, &header.encode())?;
        chunk.file.sync()
    }

    /// Finishes the patch that was under way when the disk was last used.
    pub fn replay(&self) -> Result<(), ChunkError> {
        let mut journal = lock(&self.journal);
        let record = match journal.load(&*self.directory) {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(()),
            Err(error) => return Err(self.fail(format!("reading the patch journal: {error}"))),
        };
        match self.open(record.id) {
            Ok(chunk) if record_fits(&chunk.header, &record) => {
                self.apply(&chunk, &record).map_err(|error| self.change_failed("finishing a patch", &error, 0))?;
            }
            // Deleted, damaged, or patched since.
            Ok(_) | Err(ChunkError::NotFound { .. } | ChunkError::ChunkLost { .. }) => (),
            Err(error) => return Err(error),
        }
        journal.forget(record.id).map_err(|error| self.change_failed("clearing the patch journal", &error, 0))
    }

    // ---- Listing ----

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
            Err(error) if is_passing(error.kind()) => return Err(self.unavailable(format!("listing: {error}"))),
            Err(error) => return Err(self.fail(format!("listing {}: {error}", dir_path(dir)))),
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

/// Whether a record of the journal belongs to the chunk as it is: its patch was begun and is perhaps not complete.
fn record_fits(header: &Header, record: &Record) -> bool {
    let sectors = sectors_of(ByteRange { offset: record.first_sector.saturating_mul(SECTOR), bytes: 1 });
    let bytes = record.content.len() as u64;
    let end = record.first_sector.saturating_add(bytes.div_ceil(SECTOR));
    let in_chunk = end <= header.sectors() && header.bytes_of(sectors.start, end).bytes == bytes;
    let one_step = header.version == record.version || header.version.0 + 1 == record.version.0;
    in_chunk && one_step
}

/// Checks what a caller expects against what is there.
fn check(header: &Header, expected: Option<Version>, range: ByteRange) -> Result<(), ChunkError> {
    let (id, found) = (header.id, header.version);
    if let Some(expected) = expected
        && expected != found
    {
        return Err(ChunkError::VersionMismatch { id, found, expected });
    }
    if range.offset.checked_add(range.bytes).is_none_or(|end| end > header.bytes) {
        return Err(ChunkError::OutOfRange { id, range, chunk_bytes: header.bytes });
    }
    Ok(())
}

/// Errors of the system's resources, which say nothing about the disk.
fn is_passing(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::ResourceBusy | io::ErrorKind::OutOfMemory | io::ErrorKind::Interrupted)
}
