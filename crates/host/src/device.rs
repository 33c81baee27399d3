//! A block device or an image file, as numbered sectors.
//!
//! Invariants:
//! 1. A device is open once: [`HostDevice::open`] takes a lock that ends with the process, and of a block device the
//!    exclusive use that a mount would take.
//! 2. Reads and writes go around the page cache wherever the system allows it: what fails is a sector of the medium, not
//!    the page or the read-ahead around it, and what was read came from there.
//! 3. A request that fails is divided until it is known at which sectors; the others are read.
//! 4. Syncs run one at a time, because the system tells of a lost write once, to whoever syncs next.
//! 5. Where the system has io_uring, [`Device::read_each`] and [`Device::write_each`] hand in all their requests before
//!    they wait ([`engine`]). What a request then lacks, or where it failed, is left to the plain calls.
//! 6. A device fails fast ([`Geometry::fails_fast`]) only where the drive said that it ends reads after a time
//!    ([`recovery`]). A sector that it gave up on then is a soft failure; with [`Effort::Retry`] it is read again, up to
//!    [`RETRIES_MAX`] times, before it counts as lost.
//!
//! Single requests are plain calls, because a ring saves none of what one costs. On a virtual disk (ext4, around the page
//! cache, two processors with other work beside) the median of a random 4 KiB read was 42 to 73 us by a ring and 49 to
//! 59 us by a plain call; of a write 48 to 60 us and 44 to 58 us, but one in a hundred took up to 2.3 ms by a ring and
//! 0.2 ms by a plain call. 1 MiB at a time in sequence, a ring read 810 to 880 MiB/s and plain calls 900 to 950; it wrote
//! 1900 to 2060 and they 2660 to 2710. Of 64 requests of 4 KiB at random places a ring did all reads in 0.8 to 1.2 ms and
//! all writes in 0.9 to 1.5 ms, where plain calls took 3.0 to 4.6 and 2.8 to 7.0 ms.
//!
//! Where a drive's command duration limits are on (Linux 6.5, `cdl_enable` in sysfs), reads that shall fail fast go through a ring
//! even alone: only there a single request has an I/O priority of its own, which asks for a limit. Who opens a device with limits
//! has them turned on until it is closed. The limits are in a list that the drive keeps and that may be empty: so such a
//! device does not count as one that fails fast, as one does whose administrator turned them on, but what it gives up on is soft.

mod drive;
mod engine;
mod recovery;
#[cfg_attr(
    not(all(
        target_os = "linux",
        any(
            target_arch = "x86_64",
            target_arch = "aarch64",
            target_arch = "riscv64",
            target_arch = "loongarch64",
            target_arch = "powerpc64"
        )
    )),
    path = "device/no_ring.rs"
)]
mod ring;

use std::fs;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use claystone_env::{
    Device, DeviceError, Effort, FailedSector, Geometry, SECTOR_BYTES, Sector, SectorFailure, SectorRange,
    aligned_buffer,
};
use rustix::fs::{FallocateFlags, FlockOperation, OFlags, fallocate, flock, major, minor};
use rustix::io::Errno;

use self::drive::TurnedOn;
pub use self::drive::{Attachment, Drive, DurationLimits};
pub use self::engine::Engine;
use self::engine::{BETWEEN_BYTES, Rings};
use self::recovery::Smartctl;
pub use self::recovery::{ErrorRecovery, RecoveryLimits};
use crate::direct::{is_aligned, open_direct};
use crate::directory::{is_read_only, out_of_handles};

/// See the module.
#[derive(Debug)]
pub struct HostDevice {
    path: PathBuf,
    file: fs::File,
    /// The same around the page cache; `None` where the system refuses that.
    direct: Option<fs::File>,
    /// For requests to `direct`; or why there are none.
    rings: Result<Rings, &'static str>,
    writable: bool,
    sectors: u64,
    /// `None` for an image, and where the system tells nothing.
    drive: Option<Drive>,
    /// Whether the drive has turning disks, or that of the file system that an image lies on; not, where the system does not tell.
    rotational: bool,
    error_recovery: ErrorRecovery,
    /// Command duration limits that were turned on until this is closed.
    _turned_on: Option<TurnedOn>,
    syncs: Mutex<Syncs>,
    opened: Instant,
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
    /// it opens too, and writes fail. A drive is asked for its error recovery limits; they are left as they are.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] or [`io::ErrorKind::ResourceBusy`] if somebody has it open;
    /// [`io::ErrorKind::InvalidInput`] if it is no block device and no file, or shorter than a sector; the system's.
    pub fn open(path: impl Into<PathBuf>) -> io::Result<HostDevice> {
        HostDevice::open_and_tell(path.into(), None)
    }

    /// As [`HostDevice::open`], and tells a drive that has no limits for its error recovery these, and turns on its command
    /// duration limits until it is closed. Whether it took them is no error: [`HostDevice::error_recovery`] and
    /// [`HostDevice::drive`] tell which hold.
    ///
    /// # Errors
    /// As [`HostDevice::open`].
    pub fn open_with_limits(path: impl Into<PathBuf>, limits: RecoveryLimits) -> io::Result<HostDevice> {
        HostDevice::open_and_tell(path.into(), Some(limits))
    }

    fn open_and_tell(path: PathBuf, limits: Option<RecoveryLimits>) -> io::Result<HostDevice> {
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
        HostDevice::of(path, file, writable, limits)
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
        HostDevice::of(path, file, true, None)
    }

    fn of(path: PathBuf, mut file: fs::File, writable: bool, limits: Option<RecoveryLimits>) -> io::Result<HostDevice> {
        let direct = open_direct(&file, if writable { OFlags::RDWR } else { OFlags::RDONLY });
        // The requests of a ring keep it open: when the process dies it is held until they are done, so that nobody who comes next is written over.
        hold(direct.as_ref().unwrap_or(&file))?;
        // The length that metadata tells of a block device is 0.
        let bytes = file.seek(SeekFrom::End(0))?;
        let sectors = bytes / SECTOR_BYTES as u64;
        if sectors == 0 {
            return Err(invalid(format!("{} holds {bytes} bytes, less than a sector", path.display())));
        }
        let rings =
            if direct.is_some() { Rings::new() } else { Err("the system reads it through the page cache only") };
        let metadata = file.metadata()?;
        let mut turned_on = None;
        let (drive, error_recovery) = if metadata.file_type().is_block_device() {
            let number = metadata.rdev();
            match Drive::of_device(Path::new(SYSFS), major(number), minor(number)) {
                Ok(mut drive) => {
                    if limits.is_some() && rings.is_ok() {
                        turned_on = TurnedOn::of(&mut drive, Path::new(SYSFS), major(number), minor(number));
                    }
                    let recovery = Smartctl::default().recovery(&drive, limits);
                    (Some(drive), recovery)
                }
                Err(_) => (None, ErrorRecovery::Unknown { why: format!("the system tells nothing of it in {SYSFS}") }),
            }
        } else {
            (None, ErrorRecovery::Unsupported { why: "an image has no drive of its own" })
        };
        let rotational = match &drive {
            Some(drive) => drive.rotational,
            None => Drive::of_device(Path::new(SYSFS), major(metadata.dev()), minor(metadata.dev()))
                .ok()
                .and_then(|below| below.rotational),
        };
        let rotational = rotational == Some(true);
        let syncs = Mutex::new(Syncs::None);
        let _turned_on = turned_on;
        let opened = Instant::now();
        Ok(HostDevice {
            path,
            file,
            direct,
            rings,
            writable,
            sectors,
            drive,
            rotational,
            error_recovery,
            _turned_on,
            syncs,
            opened,
        })
    }

    /// Whether reads and writes go around the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// The drive that it is or lies on; `None` for an image, and where the system tells nothing.
    pub fn drive(&self) -> Option<&Drive> {
        self.drive.as_ref()
    }

    /// How long the drive tries before it reports a sector, when this was opened.
    pub fn error_recovery(&self) -> &ErrorRecovery {
        &self.error_recovery
    }

    /// How it does several requests at once.
    pub fn engine(&self) -> Engine {
        match &self.rings {
            Ok(_) => Engine::IoUring,
            Err(why) => Engine::Plain { why },
        }
    }

    /// The rings, if there are any, for several requests.
    fn rings(&self, requests: usize) -> Option<(&Rings, &fs::File)> {
        Some((self.rings.as_ref().ok().filter(|_| requests > 1)?, self.direct.as_ref()?))
    }

    /// The rings, if reads through them can be given less time than others.
    fn limited_rings(&self) -> Option<(&Rings, &fs::File)> {
        let limits = self.drive.as_ref().map(|drive| drive.duration_limits);
        let are_on = matches!(limits, Some(DurationLimits::On | DurationLimits::TurnedOn));
        are_on.then_some((self.rings.as_ref().ok()?, self.direct.as_ref()?))
    }

    /// The priority that a read asks with.
    fn priority(&self, effort: Effort) -> u16 {
        match self.limited_rings() {
            Some(_) if effort == Effort::FailFast => FIRST_DURATION_LIMIT,
            _ => 0,
        }
    }

    /// Reads at most `into`, from memory that a direct read can fill.
    fn read_some(&self, offset: u64, into: &mut [u8], effort: Effort) -> io::Result<usize> {
        if let Some((rings, direct)) = self.limited_rings().filter(|_| effort == Effort::FailFast) {
            let reads = &mut [(Sector(offset / SECTOR_BYTES as u64), &mut *into)];
            let read = rings.read(direct, reads, FIRST_DURATION_LIMIT).pop().expect("one answer for one read");
            if !read.as_ref().is_err_and(is_of_the_try) {
                return read;
            }
        }
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

    /// Reads what a first try has not read: it came to `begun`, and what it read is in `into`.
    fn finish_read(
        &self,
        range: SectorRange,
        into: &mut [u8],
        effort: Effort,
        begun: io::Result<usize>,
    ) -> Result<Vec<FailedSector>, DeviceError> {
        let (first, into, begun) = match begun {
            Ok(bytes) if bytes == into.len() => return Ok(Vec::new()),
            Ok(bytes) if bytes >= SECTOR_BYTES => {
                let sectors = bytes / SECTOR_BYTES;
                (Sector(range.first.0 + sectors as u64), &mut into[sectors * SECTOR_BYTES..], None)
            }
            Err(error) if is_of_the_try(&error) => (range.first, into, None),
            // The first to be read again are parts of it.
            begun => (range.first, into, Some(begun)),
        };
        let (mut failed, mut begun) = (Vec::new(), begun);
        let mut read = |first, into: &mut [u8]| {
            read_by_parts(first, into, &mut failed, &mut |first, into| match begun.take() {
                Some(begun) => begun,
                None => self.read_some(offset(first), into, effort),
            })
        };
        let done = if is_aligned(into) {
            read(first, into)
        } else {
            let mut between = aligned_buffer(into.len().min(BETWEEN_BYTES));
            let firsts = (first.0..).step_by(BETWEEN_BYTES / SECTOR_BYTES).map(Sector);
            firsts.zip(into.chunks_mut(BETWEEN_BYTES)).try_for_each(|(first, into)| {
                between.resize(into.len(), 0);
                read(first, &mut between)?;
                into.copy_from_slice(&between);
                Ok(())
            })
        };
        done.map_err(|source| DeviceError::Read { range, source })?;
        let limited = self.error_recovery.limits_reads();
        let mut found = Vec::with_capacity(failed.len());
        for sector in failed {
            let is_soft = effort == Effort::FailFast && self.may_give_up();
            let failure = if is_soft { SectorFailure::Soft } else { SectorFailure::Lost };
            let part = &mut into[(sector.0 - first.0) as usize * SECTOR_BYTES..][..SECTOR_BYTES];
            if !limited
                || effort == Effort::FailFast
                || !self.read_again(sector, part).map_err(|source| DeviceError::Read { range, source })?
            {
                found.push(FailedSector { sector, failure });
            }
        }
        Ok(found)
    }

    /// Reads a sector that a drive gave up on. Returns whether it was read; if not, `into` stays as it is.
    fn read_again(&self, sector: Sector, into: &mut [u8]) -> io::Result<bool> {
        let mut between = aligned_buffer(SECTOR_BYTES);
        between.resize(SECTOR_BYTES, 0);
        for _ in 0..RETRIES_MAX {
            match self.read_some(offset(sector), &mut between, Effort::Retry) {
                Ok(SECTOR_BYTES) => {
                    into.copy_from_slice(&between);
                    return Ok(true);
                }
                Err(error) if !is_of_medium(&error) && !is_of_the_try(&error) => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(false)
    }

    /// Writes what a first try has not written: it came to `begun`.
    fn finish_write(&self, range: SectorRange, bytes: &[u8], begun: io::Result<usize>) -> Result<(), DeviceError> {
        let written = match begun {
            Err(error) if is_of_the_try(&error) => Ok(0),
            // The rest of a sector that was written in part is not aligned.
            begun => begun.map(|bytes| bytes - bytes % SECTOR_BYTES),
        };
        let written = written.map_err(|source| write_error(range, source))?;
        let (offset, bytes) = (offset(range.first) + written as u64, &bytes[written..]);
        let done = if bytes.is_empty() {
            Ok(())
        } else if is_aligned(bytes) {
            self.write_some(offset, bytes)
        } else {
            let mut between = aligned_buffer(bytes.len().min(BETWEEN_BYTES));
            (offset..).step_by(BETWEEN_BYTES).zip(bytes.chunks(BETWEEN_BYTES)).try_for_each(|(offset, bytes)| {
                between.clear();
                between.extend_from_slice(bytes);
                self.write_some(offset, &between)
            })
        };
        done.map_err(|source| write_error(range, source))
    }

    /// Whether reads end before the drive has tried all it knows.
    fn fails_fast(&self) -> bool {
        let limits = self.drive.as_ref().map(|drive| drive.duration_limits);
        self.error_recovery.limits_reads() || (limits == Some(DurationLimits::On) && self.may_give_up())
    }

    /// Whether a read may have ended so.
    fn may_give_up(&self) -> bool {
        self.error_recovery.limits_reads() || self.limited_rings().is_some()
    }

    fn check_writable(&self, range: SectorRange) -> Result<(), DeviceError> {
        if self.writable { Ok(()) } else { Err(DeviceError::ReadOnly { range }) }
    }
}

impl Device for HostDevice {
    fn label(&self) -> String {
        self.path.display().to_string()
    }

    fn manner(&self) -> Vec<String> {
        let drive = self.drive.iter().map(|drive| format!("drive {drive}"));
        let recovery = format!("error recovery: {}", self.error_recovery);
        let limits = self.drive.iter().map(|drive| match drive.duration_limits {
            DurationLimits::On if self.limited_rings().is_none() => {
                "command duration limits: on, and not asked for: that takes io_uring and direct reads".to_owned()
            }
            limits => format!("command duration limits: {limits}"),
        });
        let engine = format!("several requests at once: {}", self.engine());
        drive.chain([recovery]).chain(limits).chain([engine]).collect()
    }

    fn geometry(&self) -> Geometry {
        Geometry { sectors: self.sectors, fails_fast: self.fails_fast(), rotational: self.rotational }
    }

    fn elapsed(&self) -> Option<Duration> {
        Some(self.opened.elapsed())
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        let range = self.geometry().range(first, into.len());
        self.finish_read(range, into, effort, not_begun())
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        let range = self.geometry().range(first, bytes.len());
        self.check_writable(range)?;
        self.finish_write(range, bytes, not_begun())
    }

    fn read_each(
        &self,
        reads: &mut [(Sector, &mut [u8])],
        effort: Effort,
    ) -> Vec<Result<Vec<FailedSector>, DeviceError>> {
        let ranges: Vec<_> = reads.iter().map(|(first, into)| self.geometry().range(*first, into.len())).collect();
        let begun = match self.rings(reads.len()) {
            Some((rings, direct)) => rings.read(direct, reads, self.priority(effort)),
            None => reads.iter().map(|_| not_begun()).collect(),
        };
        let begun = ranges.into_iter().zip(reads).zip(begun);
        begun.map(|((range, (_, into)), begun)| self.finish_read(range, into, effort, begun)).collect()
    }

    fn write_each(&self, writes: &[(Sector, &[u8])]) -> Result<(), DeviceError> {
        let ranges: Vec<_> = writes.iter().map(|(first, bytes)| self.geometry().range(*first, bytes.len())).collect();
        ranges.iter().try_for_each(|range| self.check_writable(*range))?;
        let begun = match self.rings(writes.len()) {
            Some((rings, direct)) => rings.write(direct, writes),
            None => writes.iter().map(|_| not_begun()).collect(),
        };
        let mut begun = ranges.into_iter().zip(writes).zip(begun);
        begun.try_for_each(|((range, (_, bytes)), begun)| self.finish_write(range, bytes, begun))
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let mut syncs = self.syncs.lock().unwrap_or_else(PoisonError::into_inner);
        let done = syncs.run(|whole| if whole { self.file.sync_all() } else { self.file.sync_data() });
        done.map_err(|source| DeviceError::Sync { source })
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.geometry().assert_holds(range);
        self.check_writable(range)?;
        let bytes = range.sectors * SECTOR_BYTES as u64;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, flags, offset(range.first), bytes) {
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
    failed: &mut Vec<Sector>,
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
                failed.push(at);
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

/// What a request that was not tried yet came to.
fn not_begun() -> io::Result<usize> {
    Err(io::ErrorKind::Interrupted.into())
}

/// Whether a request came to this error for how it was tried, and a plain call may do better: it was not tried at all, or
/// the file system wants another alignment (then [`HostDevice::read_some`] goes through the page cache).
fn is_of_the_try(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, InvalidInput, WouldBlock};
    matches!(error.kind(), Interrupted | InvalidInput | WouldBlock)
}

/// Locks an open file against all others who open it, with a moment for what a process that died has left under way.
fn hold(file: &fs::File) -> io::Result<()> {
    let began = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if began.elapsed() < LETTING_GO_MAX => std::thread::sleep(LETTING_GO_MAX / 50),
            held => return Ok(held?),
        }
    }
}

fn offset(first: Sector) -> u64 {
    first.0 * SECTOR_BYTES as u64
}

/// Whether an error of a read says that sectors of the medium do not read, and nothing else. A drive that was pulled out
/// may answer so too; then every sector is lost, which is true.
fn is_of_medium(error: &io::Error) -> bool {
    // What the block layer makes of: an I/O error, a medium error, a protection error, a time limit that ran out (which
    // nobody but the drive's owner has set), and a hardware error or a blank sector of a SCSI drive.
    let errors = [Errno::IO, Errno::NODATA, Errno::ILSEQ, Errno::TIME, Errno::REMOTEIO];
    let errors = errors.map(|errno| Some(errno.raw_os_error()));
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

/// How often a sector is read again that a drive gave up on at its limit. At the usual limit of 7 s that takes half a
/// minute, about what a drive without a limit takes.
const RETRIES_MAX: usize = 4;

/// The I/O priority that asks for the first limit of a drive's list: in bits 3 to 12 the hint 1; the class (from bit 13 on) and
/// the level that requests have anyway, because Linux takes a priority without a class, and its hint with it, for none.
const FIRST_DURATION_LIMIT: u16 = 2 << 13 | 1 << 3 | 4;

/// How long an opening waits for who lets go. Whoever asks what is in use waits as long.
const LETTING_GO_MAX: Duration = Duration::from_millis(500);

/// Where the system tells of its devices.
const SYSFS: &str = "/sys";

/// Into how many parts a read that failed is divided.
const PARTS: usize = 16;

#[cfg(test)]
mod tests;
