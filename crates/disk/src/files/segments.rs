//! Segments and fences: the files of `segments`.
//!
//! A number of an owner, in memory and on the disk:
//!
//! ```text
//! (absent) --create_segment--> claimed --> open --fence of a greater term, or a new run--> sealed
//!                                            ^                                               |
//!                                            +--------------- reopen_segment ----------------+
//!                                            |                                               |
//!                     (absent) <-- claimed <-+--------------- delete_segment ----------------+
//! ```
//!
//! Invariants:
//! 1. A change under a lease holds its owner's gate shared from the check of the lease to its end, and a fence holds it
//!    alone: when a fence returns, nothing of a lesser term is under way.
//! 2. While a number is claimed, one call makes or removes its file; for the others there is no such segment.
//! 3. Open is only what this run made or opened again, under the lease that appends: its end is known without reading.
//! 4. A fence is in effect here before it is durable, and acknowledged after; in effect even where it cannot be written.
//! 5. Appends to a segment may run at once; each takes its bytes first, and no byte is taken twice.
//! 6. After an append or a sync that failed the state is `Failed`, or `ReadOnly` where the disk refused it.
//!
//! Locks are taken in the order gate, syncing, then one of the short ones (state, taken, made, sealed).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use claystone_chunk::{ByteRange, Lease, OwnerId, SegmentError, SegmentId, SegmentInfo, Taken, Term};
use claystone_env::File;

use super::spares::{Spare, Spares};
use super::{Files, Room, is_passing, lock};
use crate::error::Refused;
use crate::recent::Recent;
use crate::segment::{
    CONTENT_OFFSET, HEADER_BYTES, Head, Name, SEGMENT_DIR, decode_fence, decode_header, encode_fence, encode_header,
    fence_path, new_fence_path, segment_path,
};

/// Open files of sealed segments.
const SEALED_MAX: usize = 64;
/// Of so many parts of a spare one may never have been written: a log ends a segment where its next record has no room.
const UNWRITTEN_PARTS: u64 = 16;
/// So far behind its appends the system is told what of a spare is written over.
const AHEAD_BYTES: u64 = 1 << 20;

/// What is known of segments.
#[derive(Default)]
pub struct Segments {
    owners: Mutex<BTreeMap<OwnerId, Arc<Owner>>>,
    // Whether this run has made sure that the directory is there, durably.
    made: Mutex<bool>,
    sealed: Mutex<Sealed>,
    pub(super) spares: Mutex<Spares>,
    /// Held by the one who writes a spare.
    pub(super) making: Mutex<()>,
}

/// Sealed segments that were read last.
struct Sealed {
    files: Recent<SegmentId, (SegmentInfo, Arc<dyn File>)>,
    // One more with each removal of a segment: who opened a file before that does not keep it.
    removals: u64,
}

impl Default for Sealed {
    fn default() -> Sealed {
        Sealed { files: Recent::new(SEALED_MAX), removals: 0 }
    }
}

#[derive(Default)]
pub(super) struct Owner {
    gate: RwLock<()>,
    state: Mutex<OwnerState>,
}

#[derive(Default)]
struct OwnerState {
    fence: Fence,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Default, Clone)]
enum Fence {
    #[default]
    Unread,
    /// 0: none.
    Known {
        term: Term,
        kept: Kept,
    },
    Damaged(String),
}

/// What a crash leaves of a fence.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// Nothing: there was no room for it, or nobody asked for more.
    Not,
    /// It is in its file, and perhaps the file is gone.
    Written,
    Durable,
}

enum Entry {
    Claimed,
    Open(Arc<OpenSegment>),
}

struct OpenSegment {
    info: SegmentInfo,
    /// Of the lease that appends.
    term: Term,
    file: Arc<dyn File>,
    taken: Mutex<Taken>,
    syncing: Mutex<()>,
    how: How,
}

/// How a segment came to be open.
enum How {
    Created,
    /// Created of a spare, and up to here of its content the system was told that it will be written over.
    CreatedOfSpare(AtomicU64),
    Reopened,
}

impl OpenSegment {
    fn new(info: SegmentInfo, term: Term, file: Arc<dyn File>, end: u64, how: How) -> Arc<OpenSegment> {
        let taken = Mutex::new(Taken::until(end));
        Arc::new(OpenSegment { info, term, file, taken, syncing: Mutex::new(()), how })
    }

    /// Tells the system what of a spare is written over next, now that appends are at `offset`.
    fn expect_overwriting(&self, offset: u64) {
        let How::CreatedOfSpare(told) = &self.how else { return };
        let from = told.load(Ordering::Relaxed);
        let is_told = from >= self.info.bytes || from >= offset.saturating_add(AHEAD_BYTES);
        let to = from + 2 * AHEAD_BYTES;
        if !is_told && told.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.file.expect_overwriting(CONTENT_OFFSET + from, 2 * AHEAD_BYTES);
        }
    }

    /// Whether its file can be a spare: nobody else uses it, and it was written once.
    fn can_be_spare(self: &mut Arc<Self>) -> bool {
        let Some(segment) = Arc::get_mut(self) else { return false };
        let is_written = match segment.how {
            // One that is closed early would be a spare whose syncs take as long as those of a new file.
            How::Created => lock(&segment.taken).end() >= segment.info.bytes - segment.info.bytes / UNWRITTEN_PARTS,
            How::CreatedOfSpare(_) => true,
            // A file that was opened by its name has others who opened it so.
            How::Reopened => false,
        };
        is_written && Arc::get_mut(&mut segment.file).is_some()
    }
}

/// What is under a segment's name.
enum Found {
    Segment(SegmentInfo, Arc<dyn File>),
    Remnant,
    Damaged(String),
    Absent,
}

impl OwnerState {
    /// Refuses lesser terms in memory, and seals what was open under them.
    fn refuse_below(&mut self, term: Term) {
        self.fence = Fence::Known { term, kept: Kept::Not };
        self.entries.retain(|_, entry| match entry {
            Entry::Claimed => true,
            Entry::Open(segment) => segment.term >= term,
        });
    }
}

impl Owner {
    /// Keeps fences out while the lease is checked and the change is made.
    pub(super) fn stay(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a number that is neither claimed nor open.
    fn claim(&self, number: u64) -> bool {
        let mut state = lock(&self.state);
        let free = !state.entries.contains_key(&number);
        if free {
            state.entries.insert(number, Entry::Claimed);
        }
        free
    }

    /// Ends a claim.
    fn settle(&self, number: u64, entry: Option<Entry>) {
        let mut state = lock(&self.state);
        match entry {
            Some(entry) => state.entries.insert(number, entry),
            None => state.entries.remove(&number),
        };
    }
}

impl Files {
    pub(super) fn owner(&self, id: OwnerId) -> Arc<Owner> {
        lock(&self.segments.owners).entry(id).or_default().clone()
    }

    // ---- Fences ----

    /// The term that was fenced, if this lease's is less. Who calls holds the gate.
    pub(super) fn fenced_above(&self, owner: &Owner, lease: Lease) -> Result<Option<Term>, Refused> {
        match self.fence_of(owner, lease.owner)? {
            Fence::Known { term, .. } => Ok(Some(term).filter(|fenced| lease.term < *fenced)),
            Fence::Damaged(reason) => {
                Err(self.unavailable(format!("the fence of {} is damaged: {reason}", lease.owner)))
            }
            Fence::Unread => unreachable!("it was read"),
        }
    }

    fn check_lease(&self, owner: &Owner, lease: Lease) -> Result<(), SegmentError> {
        self.fenced_above(owner, lease)?.map_or(Ok(()), |fenced| Err(SegmentError::Fenced { lease, fenced }))
    }

    /// The fence, which is read once.
    fn fence_of(&self, owner: &Owner, id: OwnerId) -> Result<Fence, Refused> {
        let mut state = lock(&owner.state);
        if let Fence::Unread = state.fence {
            state.fence = self.read_fence(id)?;
        }
        Ok(state.fence.clone())
    }

    fn read_fence(&self, owner: OwnerId) -> Result<Fence, Refused> {
        let bytes = self.directory.open(&fence_path(owner)).and_then(|file| {
            let mut bytes = vec![0; file.bytes()?.min(HEADER_BYTES as u64 + 1) as usize];
            file.read_at(0, &mut bytes)?;
            Ok(bytes)
        });
        Ok(match bytes {
            Ok(bytes) => match decode_fence(owner, &bytes) {
                // Its file may be the one of a fence that was never acknowledged.
                Ok(term) => Fence::Known { term, kept: Kept::Written },
                Err(reason) => Fence::Damaged(reason.to_owned()),
            },
            Err(error) if is_passing(error.kind()) => {
                return Err(self.unavailable(format!("opening a fence: {error}")));
            }
            Err(error) => {
                self.check_alive()?;
                match error.kind() {
                    io::ErrorKind::NotFound => Fence::Known { term: Term(0), kept: Kept::Durable },
                    _ => Fence::Damaged(error.to_string()),
                }
            }
        })
    }

    /// See [`claystone_chunk::SegmentStore::fence`].
    pub fn fence(&self, lease: Lease) -> Result<(), SegmentError> {
        self.writable()?;
        let owner = self.owner(lease.owner);
        // Whoever fenced this term waited for what was under way then. Nothing is held up to say so again.
        if matches!(lock(&owner.state).fence, Fence::Known { term, kept: Kept::Durable } if term == lease.term) {
            return Ok(());
        }
        let _alone = owner.gate.write().unwrap_or_else(PoisonError::into_inner);
        match self.fence_of(&owner, lease.owner)? {
            Fence::Known { term: fenced, .. } if lease.term < fenced => {
                return Err(SegmentError::Fenced { lease, fenced });
            }
            Fence::Known { term, kept: Kept::Durable } if lease.term == term => return Ok(()),
            // An earlier process may have ended before it synced the name.
            Fence::Known { term, kept: Kept::Written } if lease.term == term => {}
            // A damaged one is replaced: who fences now was given a greater term than all before.
            _ => {
                lock(&owner.state).refuse_below(lease.term);
                self.write_fence(lease)?;
                lock(&owner.state).fence = Fence::Known { term: lease.term, kept: Kept::Written };
            }
        }
        // With it the names of segments, which an earlier process made and perhaps did not live to sync: who fences now will
        // count on what it finds.
        self.sync_segment_names("syncing a fence's name")?;
        self.forget_cached(&owner, lease.owner)?;
        lock(&owner.state).fence = Fence::Known { term: lease.term, kept: Kept::Durable };
        Ok(())
    }

    /// Where a sync failed, perhaps of an earlier run, the system may keep what it could not write as if the medium had it, and a later
    /// sync of that succeeds. So what whoever fenced now reads of segments that were there before comes from the medium, or waits to be
    /// written, and then a sync tells how that went.
    fn forget_cached(&self, owner: &Owner, id: OwnerId) -> Result<(), Refused> {
        for name in self.segment_names()? {
            let Name::Segment(segment) = name else { continue };
            if segment.owner != id || lock(&owner.state).entries.contains_key(&segment.number) {
                continue;
            }
            match self.directory.open(&segment_path(segment)) {
                Ok(file) => file.forget_cache(),
                Err(error) if is_passing(error.kind()) => {
                    return Err(self.unavailable(format!("opening a segment: {error}")));
                }
                // Who reads it finds out.
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Fences as long as this process lives, before the first change under a term: where the disk did not answer while it was to be
    /// fenced, what a former owner is about to change must not come over that.
    pub(super) fn outrank(&self, owner: &Owner, lease: Lease) -> Result<(), Refused> {
        let is_lesser = |fence: &Fence| matches!(fence, Fence::Known { term, .. } if *term < lease.term);
        if is_lesser(&self.fence_of(owner, lease.owner)?) {
            let _alone = owner.gate.write().unwrap_or_else(PoisonError::into_inner);
            let mut state = lock(&owner.state);
            if is_lesser(&state.fence) {
                state.refuse_below(lease.term);
            }
        }
        Ok(())
    }

    /// Everything of a fence but that its name is durable.
    fn write_fence(&self, lease: Lease) -> Result<(), Refused> {
        let had_spares = self.spare_bytes() > 0;
        match self.write_new_fence(lease) {
            // They were given up for it.
            Err(Refused::Full { .. }) if had_spares => self.write_fence(lease),
            Err(full @ Refused::Full { .. }) => self.write_over_fence(lease, full),
            written => written,
        }
    }

    fn write_new_fence(&self, lease: Lease) -> Result<(), Refused> {
        let path = new_fence_path(lease.owner);
        let failed = |error: &io::Error| self.change_failed("writing a fence", error, HEADER_BYTES as u64);
        let mut made = self.make_in_segments(&path)?;
        if made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
            // Left by a crash, or a failure, in this function.
            self.directory.remove(&path).map_err(|error| failed(&error))?;
            made = self.make_in_segments(&path)?;
        }
        let file = made.map_err(|error| failed(&error))?;
        file.write_at(0, &encode_fence(lease)).map_err(|error| failed(&error))?;
        file.sync().map_err(|error| self.fail(format!("syncing a fence: {error}")))?;
        self.directory.rename(&path, &fence_path(lease.owner)).map_err(|error| failed(&error))
    }

    /// On a disk that has no room for a file more, a former fence gives its place. Torn, it lets nobody in.
    fn write_over_fence(&self, lease: Lease, full: Refused) -> Result<(), Refused> {
        let file = match self.directory.open(&fence_path(lease.owner)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(full),
            Err(error) => return Err(self.change_failed("opening a fence", &error, HEADER_BYTES as u64)),
        };
        match file.write_at(0, &encode_fence(lease)) {
            Ok(()) => file.sync().map_err(|error| self.fail(format!("syncing a fence: {error}"))),
            Err(error) if error.kind() == io::ErrorKind::StorageFull => Err(full),
            Err(error) => Err(self.write_torn("writing over a fence", &error)),
        }
    }

    // ---- The directory ----

    /// Makes a file in the directory of segments, and the directory where it is missing.
    fn make_in_segments(&self, path: &str) -> Result<io::Result<Arc<dyn File>>, Refused> {
        {
            let mut made = lock(&self.segments.made);
            if !*made {
                self.make_segment_dir()?;
                *made = true;
            }
        }
        match self.directory.create(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Somebody removed the directory, or the whole disk.
                self.check_alive()?;
                self.make_segment_dir()?;
                Ok(self.directory.create(path))
            }
            other => Ok(other),
        }
    }

    fn make_segment_dir(&self) -> Result<(), Refused> {
        let made = self.directory.make_dir(SEGMENT_DIR).and_then(|()| self.directory.sync_dir(""));
        made.map_err(|error| self.change_failed("making a directory", &error, 0))
    }

    fn sync_segment_names(&self, what: &str) -> Result<(), Refused> {
        let named = self.spares_named();
        self.directory.sync_dir(SEGMENT_DIR).map_err(|error| match error.kind() {
            // Out of file handles before anything was synced: the disk is fine.
            io::ErrorKind::ResourceBusy => self.unavailable(format!("{what}: {error}")),
            _ => self.fail(format!("{what}: {error}")),
        })?;
        self.settle_spares(named);
        Ok(())
    }

    /// What there is in the directory of segments.
    fn segment_names(&self) -> Result<Vec<Name>, Refused> {
        match self.directory.list(SEGMENT_DIR) {
            Ok(names) => Ok(names.iter().filter_map(|name| Name::parse(name)).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.check_alive()?;
                Ok(Vec::new())
            }
            Err(error) if is_passing(error.kind()) => Err(self.unavailable(format!("listing: {error}"))),
            Err(error) => Err(self.fail(format!("listing {SEGMENT_DIR}: {error}"))),
        }
    }

    // ---- Segments ----

    /// See [`claystone_chunk::SegmentStore::create_segment`].
    pub fn create_segment(&self, number: u64, lease: Lease, bytes: u64, room: Room) -> Result<(), SegmentError> {
        self.writable()?;
        let owner = self.owner(lease.owner);
        let _stay = owner.stay();
        self.check_lease(&owner, lease)?;
        let id = SegmentId { owner: lease.owner, number };
        if !owner.claim(number) {
            return Err(SegmentError::AlreadyExists { id });
        }
        let info = SegmentInfo { id, term: lease.term, bytes };
        let (entry, result) = match self.make_segment(&info, room) {
            Ok((file, how)) => {
                let segment = OpenSegment::new(info, lease.term, file, 0, how);
                segment.expect_overwriting(0);
                (Some(Entry::Open(segment)), Ok(()))
            }
            Err(error) => (None, Err(error)),
        };
        owner.settle(number, entry);
        result
    }

    /// Makes the file of a segment whose number is claimed; on an error there is none, or a remnant.
    fn make_segment(&self, info: &SegmentInfo, room: Room) -> Result<(Arc<dyn File>, How), SegmentError> {
        let before = self.spare_bytes();
        match self.make_segment_once(info, room) {
            // Some were given up for it.
            Err(SegmentError::DiskFull { .. }) if self.spare_bytes() < before => self.make_segment_once(info, room),
            made => made,
        }
    }

    fn make_segment_once(&self, info: &SegmentInfo, room: Room) -> Result<(Arc<dyn File>, How), SegmentError> {
        let file_bytes = info.bytes.saturating_add(CONTENT_OFFSET);
        let spare = self.take_spare(file_bytes);
        let room = if spare.is_some() { Ok(()) } else { self.check_space(file_bytes, room) };
        let named = match room.map_err(SegmentError::from).and_then(|()| self.make_name(info.id, file_bytes)) {
            Ok(named) => named,
            Err(error) => {
                spare.into_iter().for_each(|(spare, _)| self.put_back(spare));
                return Err(error);
            }
        };
        let made = match spare {
            Some((spare, file)) => {
                self.replace_by_spare(info, spare, &*file)?;
                (file, How::CreatedOfSpare(AtomicU64::new(0)))
            }
            None => {
                self.fill(info, &*named, file_bytes)?;
                (named, How::Created)
            }
        };
        if let Err(error) = self.sync_segment_names("syncing a segment's name") {
            self.remove_path(&segment_path(info.id))?;
            return Err(error.into());
        }
        Ok(made)
    }

    /// Makes a file without content under a segment's name, if the name is free.
    fn make_name(&self, id: SegmentId, file_bytes: u64) -> Result<Arc<dyn File>, SegmentError> {
        let path = segment_path(id);
        let mut made = self.make_in_segments(&path)?;
        if made.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists) {
            match self.look(id)? {
                Found::Remnant => self.remove_path(&path)?,
                Found::Absent => (),
                Found::Segment(..) | Found::Damaged(_) => return Err(SegmentError::AlreadyExists { id }),
            }
            made = self.make_in_segments(&path)?;
        }
        made.map_err(|error| self.change_failed("making a segment", &error, file_bytes).into())
    }

    /// Makes a segment of a file without content.
    fn fill(&self, info: &SegmentInfo, file: &dyn File, file_bytes: u64) -> Result<(), Refused> {
        let undone = |error: &io::Error| self.not_made(&[segment_path(info.id)], error, file_bytes);
        let failed = |error: io::Error| self.fail(format!("syncing a segment: {error}"));
        file.reserve(file_bytes).map_err(|error| undone(&error))?;
        // The header comes after the length, so that a file with a header is as long as that says.
        file.sync().map_err(failed)?;
        file.write_at(0, &encode_header(info)).map_err(|error| undone(&error))?;
        file.sync().map_err(failed)
    }

    /// Puts a spare in the place of a file without content: with its header first, so that under the name of a segment
    /// there is never the header of another one.
    fn replace_by_spare(&self, info: &SegmentInfo, spare: Spare, file: &dyn File) -> Result<(), Refused> {
        let (path, from) = (segment_path(info.id), spare.path());
        if !spare.is_settled
            && let Err(error) = self.sync_segment_names("syncing a spare segment's name")
        {
            self.put_back(spare);
            self.remove_path(&path)?;
            return Err(error);
        }
        let undone = |error: &io::Error| self.not_made(&[path.clone(), from.clone()], error, info.bytes);
        file.write_at(0, &encode_header(info)).map_err(|error| undone(&error))?;
        file.sync().map_err(|error| self.fail(format!("syncing a segment: {error}")))?;
        self.directory.rename(&from, &path).map_err(|error| undone(&error))
    }

    /// A segment could not be made: its files go.
    fn not_made(&self, paths: &[String], error: &io::Error, file_bytes: u64) -> Refused {
        // The space comes back first, so that the error tells what is free without the file.
        let removed = paths.iter().try_for_each(|path| self.remove_path(path));
        let error = self.change_failed("making a segment", error, file_bytes);
        removed.err().unwrap_or(error)
    }

    /// What is under a segment's name.
    fn look(&self, id: SegmentId) -> Result<Found, Refused> {
        let read = self.directory.open(&segment_path(id)).and_then(|file| {
            let file_bytes = file.bytes()?;
            let mut bytes = vec![0; file_bytes.min(HEADER_BYTES as u64) as usize];
            file.read_at(0, &mut bytes)?;
            Ok((decode_header(id, &bytes, file_bytes), file))
        });
        Ok(match read {
            Ok((Head::Segment(info), file)) => Found::Segment(info, file),
            Ok((Head::Remnant, _)) => Found::Remnant,
            Ok((Head::Damaged(reason), _)) => Found::Damaged(reason.to_owned()),
            Err(error) if is_passing(error.kind()) => {
                return Err(self.unavailable(format!("opening a segment: {error}")));
            }
            Err(error) => {
                self.check_alive()?;
                match error.kind() {
                    io::ErrorKind::NotFound => Found::Absent,
                    _ => Found::Damaged(error.to_string()),
                }
            }
        })
    }

    /// A segment that is not open, and its file.
    fn sealed(&self, id: SegmentId) -> Result<(SegmentInfo, Arc<dyn File>), SegmentError> {
        let removals = {
            let mut sealed = lock(&self.segments.sealed);
            if let Some(found) = sealed.files.find(&id) {
                return Ok(found);
            }
            sealed.removals
        };
        match self.look(id)? {
            Found::Segment(info, file) => {
                let mut sealed = lock(&self.segments.sealed);
                if sealed.removals == removals {
                    sealed.files.keep(id, (info, file.clone()));
                }
                Ok((info, file))
            }
            Found::Remnant | Found::Absent => Err(SegmentError::NotFound { id }),
            Found::Damaged(reason) => Err(SegmentError::Damaged { id, reason }),
        }
    }

    /// The open segment that a lease may append to. Who calls holds the gate.
    fn opened(&self, owner: &Owner, number: u64, lease: Lease) -> Result<Arc<OpenSegment>, SegmentError> {
        self.check_lease(owner, lease)?;
        let id = SegmentId { owner: lease.owner, number };
        match lock(&owner.state).entries.get(&number) {
            Some(Entry::Open(segment)) if segment.term == lease.term => return Ok(segment.clone()),
            Some(Entry::Open(_)) => return Err(SegmentError::Sealed { id }),
            Some(Entry::Claimed) => return Err(SegmentError::NotFound { id }),
            None => (),
        }
        match self.sealed(id) {
            Ok(_) | Err(SegmentError::Damaged { .. }) => Err(SegmentError::Sealed { id }),
            Err(error) => Err(error),
        }
    }

    /// See [`claystone_chunk::SegmentStore::reopen_segment`].
    pub fn reopen_segment(&self, number: u64, lease: Lease, end: u64) -> Result<(), SegmentError> {
        self.writable()?;
        let owner = self.owner(lease.owner);
        let _stay = owner.stay();
        self.check_lease(&owner, lease)?;
        let id = SegmentId { owner: lease.owner, number };
        let range = ByteRange { offset: end, bytes: 0 };
        let open = match lock(&owner.state).entries.get(&number) {
            Some(Entry::Open(segment)) => Some(segment.clone()),
            Some(Entry::Claimed) => return Err(SegmentError::NotFound { id }),
            None => None,
        };
        let (info, file) = match open {
            Some(open) => (open.info, open.file.clone()),
            None => self.sealed(id)?,
        };
        if end > info.bytes {
            return Err(SegmentError::OutOfRange { id, range, end_bytes: info.bytes });
        }
        // Its name is durable: this run made it, or synced it with the fence of the lease, which comes first where a log is opened.
        owner.settle(number, Some(Entry::Open(OpenSegment::new(info, lease.term, file, end, How::Reopened))));
        Ok(())
    }

    /// See [`claystone_chunk::SegmentStore::append`].
    pub fn append(&self, number: u64, lease: Lease, offset: u64, content: &Bytes) -> Result<(), SegmentError> {
        self.writable()?;
        let owner = self.owner(lease.owner);
        let _stay = owner.stay();
        let segment = self.opened(&owner, number, lease)?;
        let range = ByteRange { offset, bytes: content.len() as u64 };
        {
            let mut taken = lock(&segment.taken);
            if !taken.take(range, segment.info.bytes) {
                return Err(SegmentError::OutOfRange { id: segment.info.id, range, end_bytes: taken.end() });
            }
        }
        // Others are written meanwhile, before this one and behind it.
        let written = segment.file.write_at(CONTENT_OFFSET + offset, content);
        segment.expect_overwriting(range.end());
        written.map_err(|error| self.write_torn("appending to a segment", &error).into())
    }

    /// See [`claystone_chunk::SegmentStore::sync_segment`].
    pub fn sync_segment(&self, number: u64, lease: Lease) -> Result<(), SegmentError> {
        self.writable()?;
        let owner = self.owner(lease.owner);
        let _stay = owner.stay();
        let failed = |error: io::Error| self.write_torn("syncing a segment", &error).into();
        let is_open = lock(&owner.state).entries.get(&number).and_then(|entry| match entry {
            Entry::Open(segment) => Some(segment.clone()),
            Entry::Claimed => None,
        });
        if let Some(segment) = is_open {
            self.check_lease(&owner, lease)?;
            let _alone = lock(&segment.syncing);
            // One that failed meanwhile took the error with it: the next would succeed.
            self.writable()?;
            return segment.file.sync().map_err(failed);
        }
        match self.opened(&owner, number, lease) {
            // What an earlier run appended and did not sync is in the system's memory still, unless the power failed.
            Err(SegmentError::Sealed { id }) => self.sealed(id)?.1.sync().map_err(failed),
            Err(error) => Err(error),
            Ok(_) => unreachable!("it is not open, and only its creation opens it"),
        }
    }

    /// See [`claystone_chunk::SegmentStore::read_segment`].
    pub fn read_segment(&self, id: SegmentId, ranges: &[ByteRange]) -> Result<Vec<Bytes>, SegmentError> {
        self.readable()?;
        let owner = self.owner(id.owner);
        let open = match lock(&owner.state).entries.get(&id.number) {
            Some(Entry::Open(segment)) => Some((segment.info, segment.file.clone())),
            Some(Entry::Claimed) => return Err(SegmentError::NotFound { id }),
            None => None,
        };
        let (info, file) = match open {
            Some(open) => open,
            None => self.sealed(id)?,
        };
        for &range in ranges {
            if range.offset.checked_add(range.bytes).is_none_or(|end| end > info.bytes) {
                return Err(SegmentError::OutOfRange { id, range, end_bytes: info.bytes });
            }
        }
        let mut buffers = Vec::with_capacity(ranges.len());
        for range in ranges {
            let mut buffer = vec![0; range.bytes as usize];
            match file.read_at(CONTENT_OFFSET + range.offset, &mut buffer) {
                Ok(()) => buffers.push(buffer.into()),
                Err(error) if is_passing(error.kind()) => {
                    return Err(self.unavailable(format!("reading a segment: {error}")).into());
                }
                Err(error) => {
                    self.check_alive()?;
                    return Err(SegmentError::Damaged { id, reason: error.to_string() });
                }
            }
        }
        Ok(buffers)
    }

    /// See [`claystone_chunk::SegmentStore::delete_segment`].
    pub fn delete_segment(&self, number: u64, lease: Lease) -> Result<(), SegmentError> {
        self.writable()?;
        let owner = self.owner(lease.owner);
        let _stay = owner.stay();
        self.check_lease(&owner, lease)?;
        let id = SegmentId { owner: lease.owner, number };
        let mut before = {
            let mut state = lock(&owner.state);
            match state.entries.insert(number, Entry::Claimed) {
                // Another call makes or removes it.
                Some(Entry::Claimed) => return Ok(()),
                before => before,
            }
        };
        // Its number is claimed: who does not use it by now will not.
        let spare = match &mut before {
            Some(Entry::Open(segment)) => segment.can_be_spare().then_some(segment.info.bytes),
            _ => None,
        };
        let path = segment_path(id);
        let retired = spare.map_or(Ok(false), |bytes| self.retire(&path, bytes.saturating_add(CONTENT_OFFSET)));
        let removed = retired.and_then(|retired| if retired { Ok(()) } else { self.remove_path(&path) });
        let mut sealed = lock(&self.segments.sealed);
        sealed.removals += 1;
        sealed.files.forget(&id);
        drop(sealed);
        owner.settle(number, before.filter(|_| removed.is_err()));
        Ok(removed?)
    }

    /// See [`claystone_chunk::SegmentStore::segments`].
    pub fn segments(&self, id: OwnerId) -> Result<Vec<SegmentInfo>, SegmentError> {
        self.readable()?;
        let owner = self.owner(id);
        let _stay = owner.stay();
        let mut found = Vec::new();
        for name in self.segment_names()? {
            let Name::Segment(segment) = name else { continue };
            if segment.owner != id {
                continue;
            }
            match lock(&owner.state).entries.get(&segment.number) {
                Some(Entry::Open(open)) => {
                    found.push(open.info);
                    continue;
                }
                Some(Entry::Claimed) => continue,
                None => (),
            }
            match self.look(segment)? {
                Found::Segment(info, _) => found.push(info),
                Found::Damaged(_) => found.push(SegmentInfo { id: segment, term: Term(0), bytes: 0 }),
                Found::Remnant => self.remove_remnant(&owner, segment)?,
                Found::Absent => (),
            }
        }
        found.sort_unstable_by_key(|info| info.id);
        Ok(found)
    }

    /// Removes what an interrupted creation left, if it is still that.
    fn remove_remnant(&self, owner: &Owner, id: SegmentId) -> Result<(), Refused> {
        // A disk that takes no writes keeps it.
        if self.writable().is_err() || !owner.claim(id.number) {
            return Ok(());
        }
        let removed = match self.look(id) {
            Ok(Found::Remnant) => self.remove_path(&segment_path(id)),
            other => other.map(|_| ()),
        };
        owner.settle(id.number, None);
        removed
    }

    /// See [`claystone_chunk::SegmentStore::owners`].
    pub fn segment_owners(&self) -> Result<Vec<OwnerId>, SegmentError> {
        self.readable()?;
        let owners: BTreeSet<OwnerId> = self.segment_names()?.into_iter().map(Name::owner).collect();
        Ok(owners.into_iter().collect())
    }

    /// See [`claystone_chunk::SegmentStore::forget_owner`].
    pub fn forget_owner(&self, lease: Lease) -> Result<(), SegmentError> {
        self.writable()?;
        let owner = self.owner(lease.owner);
        let _alone = owner.gate.write().unwrap_or_else(PoisonError::into_inner);
        if let Fence::Known { term: fenced, .. } = self.fence_of(&owner, lease.owner)?
            && lease.term < fenced
        {
            return Err(SegmentError::Fenced { lease, fenced });
        }
        let names = self.segment_names()?;
        for name in names.iter().filter(|name| name.owner() == lease.owner) {
            match name {
                Name::Segment(id) => self.remove_path(&segment_path(*id))?,
                Name::NewFence(owner) => self.remove_path(&new_fence_path(*owner))?,
                // The last: until then nobody of a lesser term comes in.
                Name::Fence(_) => (),
            }
        }
        if names.contains(&Name::Fence(lease.owner)) {
            self.remove_path(&fence_path(lease.owner))?;
        }
        let mut sealed = lock(&self.segments.sealed);
        sealed.removals += 1;
        sealed.files.forget_all(|id| id.owner == lease.owner);
        drop(sealed);
        *lock(&owner.state) = OwnerState { fence: Fence::Unread, entries: BTreeMap::new() };
        Ok(())
    }
}
