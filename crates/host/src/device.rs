//! A block device or an image file, as numbered sectors.
//!
//! Invariants:
//! 1. A device is open once: [`HostDevice::open`] takes a lock that ends with the process, and of a block device the
//!    exclusive use that a mount would take.
//! 2. Reads and writes go around the page cache wherever the system allows it: what fails is a sector of the medium, not
//!    the page or the read-ahead around it, and what was read came from there.
//! 3. A request that fails is divided until it is known at which sectors; the others are read.
//! 4. Syncs run one at a time, because the system tells of a lost write once, to whoever syncs next.
//!
//! Left out: io_uring, and failing fast. [`Geometry::fails_fast`] is always false: a drive retries for seconds before it
//! reports a sector, unless it is told not to. SATA and SAS drives for arrays can be: their error recovery control
//! (`smartctl -l scterc`) holds for all commands and goes down to 100 ms; a command duration limit (Linux 6.5,
//! `cdl_enable` in sysfs, chosen by an I/O priority hint) holds for one. Setting the first from here takes SG_IO, which
//! is unsafe code, and the second a drive that has it.

use std::fs;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use claystone_env::{
    Device, DeviceError, Effort, FailedSector, Geometry, SECTOR_BYTES, Sector, SectorFailure, SectorRange,
    aligned_buffer,
};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock};
use rustix::io::Errno;

use crate::direct::{is_aligned, open_direct};
use crate::directory::{is_read_only, out_of_handles};

/// See the module.
#[derive(Debug)]
pub struct HostDevice {
    path: PathBuf,
    file: fs::File,
    /// The same around the page cache; `None` where the system refuses that.
    direct: Option<fs::File>,
    writable: bool,
    sectors: u64,
    syncs: Mutex<Syncs>,
}

/// What syncs came to so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Syncs {
    /// None yet: the next one writes back all that belongs to the file, its length too.
    None,
    /// They worked; what was written since is left to do.
    Worked,
    /// One failed, and no later one is believed.
    Failed,
}

impl HostDevice {
    /// Opens a block device or an image. What it holds beyond whole sectors is left alone. Where only reading is allowed
    /// it opens too, and writes fail.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] or [`io::ErrorKind::ResourceBusy`] if somebody has it open;
    /// [`io::ErrorKind::InvalidInput`] if it is no block device and no file, or shorter than a sector; the system's.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<HostDevice> {
        let path = path.into();
        let kind = fs::metadata(&path)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(invalid(format!("{} is neither a block device nor a file", path.display())));
        }
        // Of a block device this refuses what is mounted, or part of another device.
        let flags = if kind.is_block_device() { OFlags::EXCL } else { OFlags::empty() };
        let open = |writable| {
            let mut options = fs::OpenOptions::new();
            options.read(true).write(writable).custom_flags(flags.bits() as i32).open(&path).map_err(out_of_handles)
        };
        let (file, writable) = match open(true) {
            Err(error) if is_read_only(&error) => (open(false)?, false),
            file => (file?, true),
        };
        HostDevice::of(path, file, writable)
    }

    /// Makes an image of `sectors` sectors, which take space as they are written, and opens it.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if the name is taken; the system's.
    pub fn create(path: impl Into<PathBuf>, sectors: u64) -> io::Result<HostDevice> {
        let path = path.into();
        let file = fs::OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(out_of_handles)?;
        file.set_len(sectors.saturating_mul(SECTOR_BYTES as u64))?;
        file.sync_all()?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::File::open(parent).map_err(out_of_handles)?.sync_all()?;
        HostDevice::of(path, file, true)
    }

    fn of(path: PathBuf, mut file: fs::File, writable: bool) -> io::Result<HostDevice> {
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // The length that metadata tells of a block device is 0.
        let bytes = file.seek(SeekFrom::End(0))?;
        let sectors = bytes / SECTOR_BYTES as u64;
        if sectors == 0 {
            return Err(invalid(format!("{} holds {bytes} bytes, less than a sector", path.display())));
        }
        let direct = open_direct(&file, if writable { OFlags::RDWR } else { OFlags::RDONLY });
        Ok(HostDevice { path, file, direct, writable, sectors, syncs: Mutex::new(Syncs::None) })
    }

    /// Whether reads and writes go around the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Reads at most `into`, from memory that a direct read can fill.
    fn read_some(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        match self.direct.as_ref().map(|direct| direct.read_at(into, offset)) {
            // As in `write_some`.
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => self.file.read_at(into, offset),
            Some(read) => read,
            None => self.file.read_at(into, offset),
        }
    }

    fn write_some(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self.direct.as_ref().map(|direct| direct.write_all_at(bytes, offset)) {
            // A file system that opens a file so, but wants another alignment.
            Some(Err(error)) if error.kind() == io::ErrorKind::InvalidInput => self.file.write_all_at(bytes, offset),
            Some(written) => written,
            None => self.file.write_all_at(bytes, offset),
        }
    }

    fn check_writable(&self, range: SectorRange) -> Result<(), DeviceError> {
        if self.writable { Ok(()) } else { Err(DeviceError::ReadOnly { range }) }
    }
}

impl Device for HostDevice {
    fn label(&self) -> String {
        self.path.display().to_string()
    }

    fn geometry(&self) -> Geometry {
        Geometry { sectors: self.sectors, fails_fast: false }
    }

    fn read(&self, first: Sector, into: &mut [u8], _effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        let range = self.geometry().range(first, into.len());
        let mut failed = Vec::new();
        let mut read = |first, into: &mut [u8]| {
            read_by_parts(first, into, &mut failed, &mut |first, into| {
                self.read_some(first.0 * SECTOR_BYTES as u64, into)
            })
        };
        let done = if is_aligned(into) {
            read(first, into)
        } else {
            let mut between = aligned_buffer(BETWEEN_BYTES);
            (first.0..).step_by(BETWEEN_BYTES / SECTOR_BYTES).zip(into.chunks_mut(BETWEEN_BYTES)).try_for_each(
                |(first, into)| {
                    between.resize(into.len(), 0);
                    read(Sector(first), &mut between)?;
                    into.copy_from_slice(&between);
                    Ok(())
                },
            )
        };
        done.map_err(|source| DeviceError::Read { range, source })?;
        Ok(failed)
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        let range = self.geometry().range(first, bytes.len());
        self.check_writable(range)?;
        let offset = first.0 * SECTOR_BYTES as u64;
        let done = if is_aligned(bytes) {
            self.write_some(offset, bytes)
        } else {
            let mut between = aligned_buffer(BETWEEN_BYTES);
            (offset..).step_by(BETWEEN_BYTES).zip(bytes.chunks(BETWEEN_BYTES)).try_for_each(|(offset, bytes)| {
                between.clear();
                between.extend_from_slice(bytes);
                self.write_some(offset, &between)
            })
        };
        done.map_err(|source| write_error(range, source))
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let mut syncs = self.syncs.lock().unwrap_or_else(PoisonError::into_inner);
        let done = syncs.run(|whole| if whole { self.file.sync_all() } else { self.file.sync_data() });
        done.map_err(|source| DeviceError::Sync { source })
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.geometry().assert_holds(range);
        self.check_writable(range)?;
        let (offset, bytes) = (range.first.0 * SECTOR_BYTES as u64, range.sectors * SECTOR_BYTES as u64);
        match fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            done => done.map_err(|errno| write_error(range, errno.into())),
        }
    }
}

impl Syncs {
    /// Runs a sync, told whether it shall be of the whole file.
    fn run(&mut self, sync: impl FnOnce(bool) -> io::Result<()>) -> io::Result<()> {
        if *self == Syncs::Failed {
            return Err(io::Error::other("an earlier sync failed"));
        }
        let done = sync(*self == Syncs::None);
        *self = if done.is_ok() { Syncs::Worked } else { Syncs::Failed };
        done
    }
}

/// Fills `into` by `read`, which may do less than it is asked for, and finds the sectors that it cannot.
///
/// What fails is divided by [`PARTS`]. A drive takes seconds to fail at a sector and microseconds to read one beside it:
/// to find a lost sector among 256, halving would fail at it nine times, this three times, with 32 short reads.
fn read_by_parts(
    first: Sector,
    into: &mut [u8],
    failed: &mut Vec<FailedSector>,
    read: &mut dyn FnMut(Sector, &mut [u8]) -> io::Result<usize>,
) -> io::Result<()> {
    let (mut at, mut rest) = (first, into);
    while !rest.is_empty() {
        match read(at, rest) {
            // The device or image ends before.
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) if bytes >= SECTOR_BYTES => {
                let sectors = bytes / SECTOR_BYTES;
                at.0 += sectors as u64;
                rest = &mut rest[sectors * SECTOR_BYTES..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if !is_of_medium(&error) => return Err(error),
            // Also a part of a sector: it ends where reading failed.
            Ok(_) | Err(_) if rest.len() == SECTOR_BYTES => {
                rest.fill(0);
                failed.push(FailedSector { sector: at, failure: SectorFailure::Lost });
                return Ok(());
            }
            Ok(_) | Err(_) => {
                let sectors = (rest.len() / SECTOR_BYTES).div_ceil(PARTS);
                for (first, part) in (at.0..).step_by(sectors).zip(rest.chunks_mut(sectors * SECTOR_BYTES)) {
                    read_by_parts(Sector(first), part, failed, read)?;
                }
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Whether an error of a read says that sectors of the medium do not read, and nothing else. A drive that was pulled out
/// may answer so too; then every sector is lost, which is true.
fn is_of_medium(error: &io::Error) -> bool {
    // What the block layer makes of: an I/O error, a medium error, a protection error, a time limit that ran out (which
    // nobody but the drive's owner has set).
    let errors = [Errno::IO, Errno::NODATA, Errno::ILSEQ, Errno::TIME].map(|errno| Some(errno.raw_os_error()));
    errors.contains(&error.raw_os_error())
}

fn write_error(range: SectorRange, source: io::Error) -> DeviceError {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DeviceError::NoSpace { range },
        _ if is_read_only(&source) => DeviceError::ReadOnly { range },
        _ => DeviceError::Write { range, source },
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Into how many parts a read that failed is divided.
const PARTS: usize = 16;

/// What is moved at a time through a buffer of our own, where the caller's is not aligned.
const BETWEEN_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests;
