//! Spare files for segments: bytes that were written once, so that appends write over them and a sync of those changes
//! nothing that the file system keeps a journal of.
//!
//! ```text
//!                  +--- find_spares: of an earlier run, and the name of nothing else ---+
//!                  |                                                                    v
//! (absent) --make_spare--> being made --written whole, synced--> kept --take_spare--> in use as a segment's file
//!    ^                          |                                 |  ^                  |
//!    +---------- give_up_spares, or not wanted any more ----------+  +----- retire -----+
//! ```
//!
//! Invariants:
//! 1. A kept spare is the only name of its file, as far as this run knows, and nobody else has that file open. So who
//!    takes one writes into nothing that somebody reads or appends to.
//! 2. A header for a new segment is written only when it is durable that its former name is gone (`is_settled`): after a
//!    crash a segment that was deleted is not back with what another one wrote since.
//! 3. No more than [`KEPT_MAX`] are kept, of one length: that of the segments that are made now. All volumes of a process have
//!    the same, so that none loses those of another; a log is shorter where a disk has no room for spares anyway.
//! 4. They count as free space: who needs it gets it.
//! 5. What has the name of a spare was written whole: until then it has another one, and goes with the process.
//!
//! Left out: zeros. What a spare holds of its former lives stays there, and whoever reads a log tells it from records by
//! what frames those.

use std::io;
use std::sync::{Arc, MutexGuard};

use claystone_env::{ALIGNED_BYTES, File, aligned_buffer};

use super::{Files, is_passing, lock};
use crate::error::Refused;
use crate::segment::{
    Former, HEADER_BYTES, SEGMENT_DIR, decode_former, new_spare_path, parse_spare, segment_path, spare_path,
};

/// Spares that are kept at most.
const KEPT_MAX: usize = 8;
/// Spares that are made from nothing: those of deleted segments come by themselves once logs are merged.
const MADE_MAX: usize = 2;
/// Spares are made and kept only where so many more would have room.
const ROOM_SPARES: u64 = 16;
/// Zeros written at once.
const STEP_BYTES: u64 = 1 << 20;

/// What is known of spares.
#[derive(Default)]
pub struct Spares {
    /// Whether the disk gains by them.
    favours: bool,
    kept: Vec<Spare>,
    making: Option<Making>,
    /// The length of files that segments are made with now.
    wanted_bytes: Option<u64>,
    /// Above the numbers of all spares.
    next: u64,
}

/// A file that a segment may take.
pub(super) struct Spare {
    number: u64,
    file_bytes: u64,
    /// No former name of the file comes back.
    pub(super) is_settled: bool,
}

impl Spare {
    /// Its file.
    pub(super) fn path(&self) -> String {
        spare_path(self.number)
    }
}

/// A file that is being written.
#[derive(Clone)]
struct Making {
    number: u64,
    file: Arc<dyn File>,
    file_bytes: u64,
    written_bytes: u64,
}

impl Making {
    fn path(&self) -> String {
        new_spare_path(self.number)
    }
}

impl Spares {
    fn bytes(&self) -> u64 {
        let making = self.making.as_ref().map_or(0, |making| making.file_bytes);
        self.kept.iter().map(|spare| spare.file_bytes).sum::<u64>() + making
    }

    /// `None`: somebody has used them up.
    fn take_number(&mut self) -> Option<u64> {
        let number = self.next;
        self.next = number.checked_add(1)?;
        Some(number)
    }
}

impl Files {
    fn spares(&self) -> MutexGuard<'_, Spares> {
        lock(&self.segments.spares)
    }

    /// Keeps what an earlier run left, and removes what cannot be used. Before anything else.
    pub fn find_spares(&self) {
        // A disk that takes no writes takes no segments.
        if self.writable().is_err() {
            return;
        }
        let names = match self.directory.list(SEGMENT_DIR) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            // Then it is not known which names are free. What the error means for the disk, others find out.
            Err(error) => {
                tracing::warn!(disk = %self.identity.disk, %error, "{SEGMENT_DIR} cannot be listed: no file of it is used again");
                return;
            }
        };
        let mut spares = self.spares();
        spares.favours = self.directory.favours_overwriting();
        for (number, is_new) in names.iter().filter_map(|name| parse_spare(name)) {
            spares.next = spares.next.max(number.saturating_add(1));
            if is_new {
                // Its bytes are not all written: it would be no gain.
                self.remove_spare(&new_spare_path(number));
                continue;
            }
            let path = spare_path(number);
            match self.usable_bytes(&path) {
                Some(file_bytes) if spares.favours && spares.kept.len() < KEPT_MAX => {
                    // Perhaps it got this name a moment ago.
                    spares.kept.push(Spare { number, file_bytes, is_settled: false });
                }
                _ => self.remove_spare(&path),
            }
        }
    }

    /// The length of a spare's file, if it has no other name. A crash may leave it under two: its header says which the
    /// other one would be.
    fn usable_bytes(&self, path: &str) -> Option<u64> {
        let file = self.directory.open(path).ok()?;
        let file_bytes = file.bytes().ok()?;
        let mut header = [0; HEADER_BYTES];
        file.read_at(0, &mut header).ok()?;
        match decode_former(&header) {
            Former::None => Some(file_bytes),
            Former::Segment(id) => {
                let other = self.directory.open(&segment_path(id));
                other.is_err_and(|error| error.kind() == io::ErrorKind::NotFound).then_some(file_bytes)
            }
            Former::Unknown => None,
        }
    }

    /// A number whose name nobody has; `None`: not this time, for what has it was not made here.
    fn free_number(&self, spares: &mut Spares) -> Option<u64> {
        let number = spares.take_number()?;
        let found = self.directory.open(&spare_path(number));
        found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound).then_some(number)
    }

    /// Removes a spare's name. That never harms a segment that has the file under another one.
    fn remove_spare(&self, path: &str) {
        match self.directory.remove(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound || is_passing(error.kind()) => (),
            // Nobody here made it so.
            Err(error) if matches!(error.kind(), io::ErrorKind::IsADirectory | io::ErrorKind::PermissionDenied) => {
                tracing::warn!(disk = %self.identity.disk, path, %error, "what has the name of a spare segment is left alone");
            }
            Err(error) => drop(self.write_torn(&format!("removing {path}"), &error)),
            Ok(()) => (),
        }
    }

    /// Bytes that spares take.
    pub(super) fn spare_bytes(&self) -> u64 {
        self.spares().bytes()
    }

    /// Removes spares until they took so many bytes less, or there are none. Returns whether there was any. Whoever finds none
    /// has waited here until those before it are gone, and their space is free.
    pub(super) fn give_up_spares(&self, bytes: u64) -> bool {
        let mut spares = self.spares();
        let mut given_up = 0;
        while given_up < bytes {
            let making = spares.making.take().map(|making| (making.path(), making.file_bytes));
            let Some((path, file_bytes)) =
                making.or_else(|| spares.kept.pop().map(|spare| (spare.path(), spare.file_bytes)))
            else {
                break;
            };
            self.remove_spare(&path);
            given_up += file_bytes;
        }
        given_up > 0
    }

    /// A spare of this length, and its file; segments are made with this length now.
    pub(super) fn take_spare(&self, file_bytes: u64) -> Option<(Spare, Arc<dyn File>)> {
        // Lengths that are no whole pages are those of copies, of which each has its own.
        if !file_bytes.is_multiple_of(ALIGNED_BYTES as u64) {
            return None;
        }
        let mut spares = self.spares();
        if !spares.favours {
            return None;
        }
        if spares.wanted_bytes != Some(file_bytes) {
            spares.wanted_bytes = Some(file_bytes);
            let others = spares.kept.extract_if(.., |spare| spare.file_bytes != file_bytes);
            others.for_each(|spare| self.remove_spare(&spare.path()));
            if let Some(making) = spares.making.take_if(|making| making.file_bytes != file_bytes) {
                self.remove_spare(&making.path());
            }
        }
        while !spares.kept.is_empty() {
            let at = spares.kept.iter().position(|spare| spare.is_settled).unwrap_or(0);
            let spare = spares.kept.remove(at);
            match self.directory.open(&spare.path()) {
                Ok(file) if file.bytes().is_ok_and(|bytes| bytes == file_bytes) => return Some((spare, file)),
                // Somebody was at it.
                _ => self.remove_spare(&spare.path()),
            }
        }
        None
    }

    /// in use -> kept: a spare that was taken for nothing, and was not changed.
    pub(super) fn put_back(&self, spare: Spare) {
        let mut spares = self.spares();
        if spares.kept.len() < KEPT_MAX { spares.kept.push(spare) } else { self.remove_spare(&spare.path()) }
    }

    /// in use -> kept: what was a segment's file, if one of its length is wanted; then its name is gone. Who calls knows that
    /// nobody has it open, and that nobody makes a segment of this name.
    pub(super) fn retire(&self, path: &str, file_bytes: u64) -> Result<bool, Refused> {
        let mut spares = self.spares();
        let is_wanted = spares.wanted_bytes == Some(file_bytes) && spares.kept.len() < KEPT_MAX;
        if !is_wanted || !self.has_room_for_spares(file_bytes) {
            return Ok(false);
        }
        let Some(number) = self.free_number(&mut spares) else { return Ok(false) };
        match self.directory.rename(path, &spare_path(number)) {
            Ok(()) => {
                spares.kept.push(Spare { number, file_bytes, is_settled: false });
                Ok(true)
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::StorageFull) => Ok(false),
            Err(error) => {
                drop(spares);
                Err(self.change_failed("keeping a segment's file", &error, 0))
            }
        }
    }

    /// The number below which all spares have the names that they will have after a sync of the directory that begins now.
    pub(super) fn spares_named(&self) -> u64 {
        self.spares().next
    }

    /// The directory was synced since [`Files::spares_named`] said this.
    pub(super) fn settle_spares(&self, below: u64) {
        let mut spares = self.spares();
        spares.kept.iter_mut().filter(|spare| spare.number < below).for_each(|spare| spare.is_settled = true);
    }

    fn has_room_for_spares(&self, file_bytes: u64) -> bool {
        let Ok(space) = self.directory.space() else { return false };
        let free_bytes = space.free_bytes.saturating_sub(self.reserve_bytes(space));
        free_bytes >= file_bytes.saturating_mul(ROOM_SPARES)
    }

    /// Writes some more of a spare that is wanted, unless another thread does. Returns whether there is more to do for this one.
    ///
    /// # Errors
    /// The disk takes no writes, or failed.
    pub fn make_spare(&self) -> Result<bool, Refused> {
        self.writable()?;
        // Of two at once the slower one would write zeros into a file that has become a segment's meanwhile.
        let Ok(_alone) = self.segments.making.try_lock() else { return Ok(false) };
        let Some(making) = self.making_now()? else { return Ok(false) };
        let left = making.file_bytes - making.written_bytes;
        let mut zeros = aligned_buffer(left.min(STEP_BYTES) as usize);
        zeros.resize(left.min(STEP_BYTES) as usize, 0);
        // Around the cache: nothing of it piles up there, to be written when somebody syncs.
        let mut written = making.file.write_around(making.written_bytes, &zeros);
        let is_whole = left <= STEP_BYTES;
        if is_whole && written.is_ok() {
            written = making.file.sync();
        }
        let mut spares = self.spares();
        // Given up meanwhile.
        let Some(current) = spares.making.as_mut().filter(|current| current.number == making.number) else {
            return Ok(true);
        };
        current.written_bytes += zeros.len() as u64;
        if is_whole || written.is_err() {
            spares.making = None;
        }
        let spare = Spare { number: making.number, file_bytes: making.file_bytes, is_settled: true };
        let is_kept = is_whole && spares.kept.len() < KEPT_MAX;
        if is_kept && written.is_ok() {
            written = self.directory.rename(&making.path(), &spare.path());
        }
        match written {
            Ok(()) if is_kept => spares.kept.push(spare),
            Ok(()) if is_whole => self.remove_spare(&making.path()),
            Ok(()) => (),
            Err(error) => {
                self.remove_spare(&making.path());
                drop(spares);
                return match self.change_failed("writing a spare segment", &error, 0) {
                    Refused::Full { .. } => Ok(false),
                    refused => Err(refused),
                };
            }
        }
        Ok(true)
    }

    /// The spare that is being made, begun now if there is none and one is wanted.
    fn making_now(&self) -> Result<Option<Making>, Refused> {
        let mut spares = self.spares();
        if let Some(making) = &spares.making {
            return Ok(Some(making.clone()));
        }
        let Some(file_bytes) = spares.wanted_bytes.filter(|_| spares.kept.len() < MADE_MAX) else { return Ok(None) };
        if !self.has_room_for_spares(file_bytes) {
            return Ok(None);
        }
        let Some(number) = self.free_number(&mut spares) else { return Ok(None) };
        // The directory is there: segments of this length are made.
        let made = match self.directory.create(&new_spare_path(number)) {
            // Somebody else's, since this run has begun.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(None),
            made => made,
        };
        let reserved = made.and_then(|file| file.reserve(file_bytes).map(|()| file));
        match reserved {
            Ok(file) => {
                let making = Making { number, file, file_bytes, written_bytes: 0 };
                spares.making = Some(making.clone());
                Ok(Some(making))
            }
            Err(error) => {
                self.remove_spare(&new_spare_path(number));
                drop(spares);
                match self.change_failed("making a spare segment", &error, 0) {
                    Refused::Full { .. } => Ok(None),
                    refused => Err(refused),
                }
            }
        }
    }
}
