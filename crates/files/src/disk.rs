//! One disk, open: its parts, its locks, formatting and opening.
//!
//! ```text
//! formatted --open: replay--> open --close: flush, checkpoint--> formatted
//!                              |
//!                              +--a write or sync of unknown result--> failed: reads only, until it is opened anew
//! ```
//!
//! Invariants:
//! 1. Locks are taken in this order: scrub in passing, flusher, loading, a node's gate, journal, core, then one of space map, counts
//!    and pass of the scrub. Whoever holds a later one never waits for an earlier one.
//!    A read that mends may wait for other reads, with a gate held: for their calls of the device, in which they wait for nobody.
//! 2. No call waits for the device while it holds the core's lock, but for reads of the catalog and checkpoints.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use claystone_env::{Clock, Device, Moment, Random, SECTOR_BYTES, Sector, SectorRange};
use claystone_group::{DiskId, GroupCode, GroupShape, Groups};

use crate::catalog::Catalog;
use crate::commit::{UNCOUNTED, unless_full};
use crate::copies::{Access, Copies};
use crate::core::Core;
use crate::error::{DiskError, with_sources};
use crate::grow::end_row;
use crate::journal::{Journal, JournalPosition};
use crate::loading::Loading;
use crate::loss::Loss;
use crate::pages::{InRegions, PageFile, SlabSource};
use crate::placing::Scope;
use crate::scrub::{Pass, Passing};
use crate::seen::Seen;
use crate::shrink::COMPACTED_UNASKED_PAGES_MAX;
use crate::slab::{SUMS, Slab};
use crate::space::SpaceMap;
use crate::superblock::{COPIES_MAX, SharedSuperblock, Superblock};
use crate::view::View;
use crate::{FileError, Inode, Kind, NewNode, Timestamp, namespace};

/// What a disk shall be.
#[derive(Debug, Clone, PartialEq)]
pub struct Format {
    /// Data sectors of a group, k.
    pub data: u16,
    /// Parity sectors of a group, m; 0 for none.
    pub parity: u16,
    /// Copies of what is not in groups, m'.
    pub copies: u16,
    /// The chance that a sector does not read at once, for which these were chosen.
    pub soft_failures: f64,
    /// The accepted chance of losing a group.
    pub loss_target: f64,
    /// What its owner calls it: at most 64 bytes of UTF-8.
    pub label: String,
}

/// What a disk may take of memory and of its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Sectors that may wait for a place.
    pub waiting_sectors_max: u64,
    /// The longest bulk run: whole sums sectors fill up best at 53 groups of 250.
    pub bulk_sectors_max: u64,
    /// An fsync puts up to so many sectors without a place into the journal; more go to groups at once.
    pub journal_sectors_max: u64,
    /// Sectors that are applied together.
    pub apply_sectors_max: usize,
    /// Windows of a file that one change frees: with what that makes of the rows of free sectors, 64 KiB of changes.
    pub freed_windows_max: usize,
    /// Memory for checksums, see [`Groups::new`].
    pub sums_bytes: usize,
    /// Bytes of the catalog in memory.
    pub catalog_cached: usize,
    /// Bytes of changes in memory that bring a checkpoint, where what is kept for the catalog does not sooner.
    pub changed_bytes_max: u64,
    /// How long something waits at most before it is flushed.
    pub flush_after: std::time::Duration,
    /// How long the journal grows at most before a checkpoint.
    pub checkpoint_after: std::time::Duration,
    /// Whether a read sets when a file was last read.
    pub keeps_access_times: bool,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            waiting_sectors_max: 32_768,
            bulk_sectors_max: 13_250,
            journal_sectors_max: 16,
            apply_sectors_max: 4096,
            freed_windows_max: 256,
            sums_bytes: 64 << 20,
            catalog_cached: 32 << 20,
            changed_bytes_max: 16 << 20,
            flush_after: std::time::Duration::from_secs(5),
            checkpoint_after: std::time::Duration::from_secs(30),
            keeps_access_times: true,
        }
    }
}

/// See the module. Calls block, and may come from several threads at once.
pub struct Disk {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) tuning: Tuning,
    pub(crate) shape: GroupShape,
    /// Sectors of files that one entry of the journal has at most, an eighth of it: several of them, and the sums that
    /// applying them takes, find room.
    pub(crate) journal_share: usize,
    pub(crate) groups: Groups,
    pub(crate) superblock: SharedSuperblock,
    pub(crate) copies: Arc<Copies>,
    pub(crate) pages: PageFile,
    pub(crate) flusher: Mutex<Tended>,
    pub(crate) journal: Mutex<Journal>,
    pub(crate) core: Mutex<Core>,
    /// Told when fewer sectors wait, or when nobody flushes any more.
    pub(crate) room: Condvar,
    pub(crate) space: Arc<Mutex<SpaceMap>>,
    pub(crate) seen: Mutex<Seen>,
    pub(crate) pass: Mutex<Pass>,
    pub(crate) passing: Mutex<Passing>,
    pub(crate) loading: Mutex<Loading>,
    /// Whether somebody holds the root directory for himself.
    pub(crate) locked: AtomicBool,
    /// Whether the last checkpoint found no room for the catalog beside what is spared for what frees space: until one does, nothing is
    /// taken that makes it larger.
    pub(crate) catalog_full: AtomicBool,
    /// Pages of its slabs that the catalog has free, or more; [`UNCOUNTED`].
    pub(crate) free_pages: AtomicU64,
    /// Bytes of changes that the last checkpoint found no room for.
    pub(crate) stuck_bytes: AtomicUsize,
}

/// When a disk is to be tended again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TendAgain {
    /// In a second or so.
    Later,
    /// In a fraction of a second: something waits, and more of it soon may.
    Soon,
    /// Now: much waits, and writers will soon find no room.
    Now,
}

/// When the disk was last tended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tended {
    flushed: Moment,
    checkpointed: Moment,
    /// What the device had lost when what memory has was last written again.
    pub(crate) loss: Loss,
}

/// Held by the one who brings sectors to their places, frees places, or makes a checkpoint.
pub(crate) struct FlushLock<'d> {
    disk: &'d Disk,
    tended: MutexGuard<'d, Tended>,
}

impl FlushLock<'_> {
    /// The next checkpoint is due as long after now as after any.
    pub(crate) fn checkpointed_now(&mut self) {
        self.tended.checkpointed = self.disk.clock.now();
    }
}

impl Drop for FlushLock<'_> {
    fn drop(&mut self) {
        guard(&self.disk.core).flushing = false;
        self.disk.room.notify_all();
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disk on {}", self.device.label())
    }
}

impl Disk {
    /// Makes a disk of a device: what is on it is lost.
    ///
    /// # Errors
    /// [`DiskError::TooSmall`], [`DiskError::Format`] for a code or a label that cannot be; [`DiskError::Device`].
    pub fn format(
        device: &Arc<dyn Device>,
        format: &Format,
        clock: &dyn Clock,
        random: &dyn Random,
    ) -> Result<(), DiskError> {
        let copies_each = u64::from(format.copies.clamp(1, COPIES_MAX));
        let positions = device.geometry().sectors / 64 / copies_each;
        let positions = positions.clamp(JOURNAL_SECTORS_MIN, JOURNAL_SECTORS_MAX);
        Disk::format_with_journal(device, format, positions, clock, random)
    }

    /// The same with a journal of so many positions.
    pub(crate) fn format_with_journal(
        device: &Arc<dyn Device>,
        format: &Format,
        positions: u64,
        clock: &dyn Clock,
        random: &dyn Random,
    ) -> Result<(), DiskError> {
        let sectors = device.geometry().sectors;
        if sectors < DISK_SECTORS_MIN {
            return Err(DiskError::TooSmall { sectors, sectors_min: DISK_SECTORS_MIN });
        }
        let shape = GroupShape { data: format.data.into(), parity: format.parity.into() };
        GroupCode::new(shape.data, shape.parity)?;
        let copies_each = u64::from(format.copies.clamp(1, COPIES_MAX));
        let journal = SectorRange { first: Sector(3 * copies_each), sectors: positions };
        let superblock = Superblock {
            copies: format.copies,
            id: DiskId::new(random),
            generation: 1,
            sectors,
            k: format.data,
            m: format.parity,
            p_h: format.soft_failures,
            p_s: format.loss_target,
            formatted: clock.wall(),
            journal,
            label: format.label.clone(),
            slabs: Vec::new(),
        };
        let start = journal.first.0 + journal.sectors * copies_each;
        let slab = Slab { first: Sector(start), pages: (sectors / 256).clamp(SLAB_PAGES_MIN, SLAB_PAGES_MAX) };
        let slab_end = start + slab.sectors(copies_each);
        let superblock = Superblock { slabs: vec![slab], ..superblock };
        superblock.check().map_err(DiskError::Format)?;
        let open = SectorRange { first: Sector(slab_end), sectors: superblock.back().first.0 - slab_end };
        // Without a superblock there is no disk, so a format that is cut short leaves none.
        Superblock::erase(&**device)?;
        let copies = Arc::new(Copies::new(device.clone(), format.copies, Access::Write));
        PageFile::create(&copies, &superblock)?;
        let space = Arc::new(Mutex::new(SpaceMap::new(shape, [])));
        let mut changes = Vec::new();
        guard(&space).make_free(open, &mut changes);
        changes.push(end_row(open.end()));
        let source = Arc::new(SpaceForSlabs(space));
        let superblock = SharedSuperblock::new(device.clone(), superblock);
        let pages = PageFile::open(copies, superblock.clone(), source)?;
        let mut catalog = Catalog::open(InRegions(pages), 4 << 20)?;
        catalog.apply(changes);
        let mut view = View::new(&catalog);
        let root = NewNode {
            kind: Kind::Directory,
            permissions: 0o755,
            owner: 0,
            owner_group: 0,
            device: 0,
            target: Vec::new(),
        };
        namespace::make_root(&mut view, &root, clock.wall().into());
        let changes = view.into_changes();
        catalog.apply(changes);
        // If this takes a slab, the superblock names it, and the next opening takes it off the free rows.
        Core::new(catalog, shape).checkpoint(JournalPosition::FIRST, JournalPosition::FIRST, Vec::new())?;
        device.sync()?;
        superblock.store(|_| ())
    }

    /// Opens a disk: replays its journal, applies what waited in it, and frees what nobody has open any more.
    ///
    /// # Errors
    /// As the variants of [`DiskError`] say.
    pub fn open(device: Arc<dyn Device>, clock: Arc<dyn Clock>, tuning: Tuning) -> Result<Disk, DiskError> {
        let loaded = Superblock::load(&*device)?;
        let shape = GroupShape { data: loaded.k.into(), parity: loaded.m.into() };
        let code = GroupCode::new(shape.data, shape.parity)?;
        let (id, area) = (loaded.id, loaded.journal);
        let copies = Arc::new(Copies::new(device.clone(), loaded.copies, Access::Write));
        let superblock = SharedSuperblock::new(device.clone(), loaded);
        superblock.settle(&copies)?;
        let space = Arc::new(Mutex::new(SpaceMap::new(shape, [])));
        let source = Arc::new(SpaceForSlabs(space.clone()));
        let pages = PageFile::open(copies.clone(), superblock.clone(), source)?;
        let catalog = Catalog::open(pages.clone(), tuning.catalog_cached)?;
        let start = Core::journal_start(&catalog)?;
        let (seen, pass) = (Seen::load(&catalog)?, Pass::load(&catalog)?);
        let from = JournalPosition { sequence: start.sequence, position: start.position };
        let (journal, entries) = Journal::open(copies.clone(), code.clone(), id, area, from)?;
        let journal_share = journal.shape().sectors_in((area.sectors / 8).max(1)) as usize;
        let now = clock.now();
        let disk = Disk {
            groups: Groups::new(device.clone(), code, id, tuning.sums_bytes),
            flusher: Mutex::new(Tended { flushed: now, checkpointed: now, loss: Loss::of(&*device) }),
            journal: Mutex::new(journal),
            core: Mutex::new(Core::new(catalog, shape)),
            room: Condvar::new(),
            device,
            clock,
            tuning,
            shape,
            journal_share,
            superblock,
            copies,
            pages,
            space,
            seen: Mutex::new(seen),
            pass: Mutex::new(pass),
            passing: Mutex::default(),
            loading: Mutex::default(),
            locked: AtomicBool::new(false),
            catalog_full: AtomicBool::new(false),
            free_pages: AtomicU64::new(UNCOUNTED),
            stuck_bytes: AtomicUsize::new(0),
        };
        disk.take_up_swaths()?;
        disk.replay(entries, start)?;
        Ok(disk)
    }

    /// Brings everything to its place and the catalog up to date. Without it the next opening replays the journal.
    ///
    /// # Errors
    /// As [`Disk::rest`].
    pub fn close(self) -> Result<(), FileError> {
        let rested = self.rest();
        let device = self.device.clone();
        // The catalog is written once more when it goes.
        drop(self);
        rested.and(device.rest().map_err(|error| FileError::ReadOnly { why: with_sources(&error) }))
    }

    /// Flushes what has waited long enough, and makes a checkpoint when one is due, behind which the catalog gives back what it needs no more;
    /// at once where the device has lost
    /// something: what memory has is written again then. To be called every second or so; a
    /// disk that is never tended loses no more in a crash than what was not synced, but more of that.
    ///
    /// # Errors
    /// As [`crate::FileTree::sync_all`].
    pub fn tend(&self) -> Result<TendAgain, FileError> {
        let mut flushing = self.lock_flusher();
        let mut flushed = Ok(());
        let now = self.clock.now();
        let loss = Loss::of(&*self.device);
        if loss.exceeds(flushing.tended.loss) {
            // Without room in the catalog it is tried again.
            let written = self.write_again(&flushing);
            unless_full(written.clone().map(drop))?;
            if let Ok(loss) = written {
                flushing.tended.loss = loss;
                flushing.tended.checkpointed = now;
            }
        } else {
            flushing.tended.loss = loss;
        }
        let is_crowded = || guard(&self.core).nodes.waiting > self.tuning.waiting_sectors_max / CROWDED_SHARE;
        if is_crowded() {
            // Long before writers find no room, and a share at a time, so that others get the lock.
            flushed = self.flush_every(Scope::Share, &flushing);
        }
        let journal_filled = {
            let journal = guard(&self.journal);
            journal.used() > journal.sectors() / 4
        };
        if journal_filled {
            // Before an fsync finds no room.
            flushed = flushed.and(self.flush_every(Scope::Journaled, &flushing));
        }
        if now.since(flushing.tended.flushed) >= self.tuning.flush_after {
            if !is_crowded() {
                flushed = flushed.and(self.flush_every(Scope::FullRuns, &flushing));
            }
            self.commit_flushing(&flushing)?;
            flushing.tended.flushed = now;
        }
        let (waits, changed, heavy) = {
            let core = guard(&self.core);
            (core.nodes.waiting > 0, core.catalog.overlay_bytes() > 0, self.is_heavy(&core))
        };
        let due = changed && now.since(flushing.tended.checkpointed) >= self.tuning.checkpoint_after;
        if due || heavy || journal_filled {
            unless_full(self.checkpoint(&flushing))?;
            flushing.tended.checkpointed = now;
            unless_full(self.shrink_if_loose(COMPACTED_UNASKED_PAGES_MAX, &flushing))?;
        }
        flushed?;
        Ok(match waits {
            _ if is_crowded() => TendAgain::Now,
            true => TendAgain::Soon,
            false => TendAgain::Later,
        })
    }

    /// Whether so many changes are in memory that bringing them into the catalog must not wait: what is kept for it on the
    /// device has to suffice.
    pub(crate) fn is_heavy(&self, core: &Core) -> bool {
        // Each changed row may take a page of its own path in the tree, but many lie side by side.
        let kept_bytes = self.kept() / (8 * self.copies.count()) * SECTOR_BYTES as u64;
        // What found no room is tried again when there is as much more.
        let stuck = self.stuck_bytes.load(Ordering::Acquire);
        core.catalog.overlay_bytes().saturating_sub(stuck) as u64 > kept_bytes.min(self.tuning.changed_bytes_max)
    }

    /// What a person would call it: the device's path.
    pub fn label(&self) -> String {
        self.device.label()
    }

    /// The disk's id, as sums sectors have it.
    pub(crate) fn disk_id(&self) -> DiskId {
        self.superblock.current().id
    }

    /// The time that files are stamped with.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.wall().into()
    }

    /// # Errors
    /// [`FileError::ReadOnly`] if the disk takes no writes; and from now on if somebody panicked who held a lock of its state: he may have
    /// changed a part of it, and entries of the journal must not tell of that.
    pub(crate) fn assert_writable(&self, core: &mut Core) -> Result<(), FileError> {
        let of_locks = [self.flusher.is_poisoned(), self.journal.is_poisoned(), self.core.is_poisoned()];
        match of_locks.contains(&true) || self.space.is_poisoned() {
            true => Err(core.fail("a thread panicked while it had a part of the disk's state".into())),
            false => core.assert_writable(),
        }
    }

    pub(crate) fn lock_flusher(&self) -> FlushLock<'_> {
        let tended = guard(&self.flusher);
        guard(&self.core).flushing = true;
        FlushLock { disk: self, tended }
    }

    /// The gate of a node.
    pub(crate) fn gate(&self, inode: Inode) -> Arc<RwLock<()>> {
        guard(&self.core).nodes.node(inode).gate.clone()
    }

    /// Sectors that files can be given: the rest is kept for the catalog, so that deleting works on a full disk.
    pub(crate) fn usable(&self, space: &SpaceMap) -> u64 {
        (space.open_sectors() + space.given_sectors()).saturating_sub(self.kept())
    }

    /// Data sectors that are sure to find places now, in whatever pieces the free sectors lie.
    pub(crate) fn room(&self, space: &SpaceMap) -> u64 {
        space.open_room().saturating_sub(self.kept())
    }

    /// Whether there is room for so many sectors beyond what waits.
    pub(crate) fn is_roomy(&self, sectors: u64) -> bool {
        let core = guard(&self.core);
        self.worst(core.nodes.waiting, core.nodes.clusters) + sectors <= self.room(&guard(&self.space))
    }

    /// Finds free sectors for a file; what is kept for the catalog stays free, but for as much as the catalog took of what they were promised.
    pub(crate) fn reserve(&self, sectors: u64) -> Option<SectorRange> {
        let mut space = guard(&self.space);
        match space.open_sectors() + space.files_have() >= sectors + self.kept() {
            true => space.reserve_beside_spare(sectors),
            false => None,
        }
    }

    pub(crate) fn kept(&self) -> u64 {
        let least = KEPT_SECTORS_MIN.max(self.spare_least());
        (self.device.geometry().sectors / KEPT_SHARE).clamp(least, KEPT_SECTORS_MAX)
    }

    /// Of these, those in one row that only what frees space may give the catalog.
    pub(crate) fn spare(&self) -> u64 {
        self.kept().min(SPARE_PAGES_MAX * self.copies.count() + self.sums_of_spare())
    }

    /// The least of them with which anything is taken that makes the catalog larger.
    pub(crate) fn spare_least(&self) -> u64 {
        SPARE_PAGES_MIN * self.copies.count() + self.sums_of_spare()
    }

    fn sums_of_spare(&self) -> u64 {
        2 * self.copies.count()
    }
}

/// Gives slabs to the page file.
struct SpaceForSlabs(Arc<Mutex<SpaceMap>>);

impl SlabSource for SpaceForSlabs {
    fn take(&self, sectors: u64) -> Option<Sector> {
        Some(guard(&self.0).take_slab(sectors)?.first)
    }
}

/// A lock whose holder panicked is taken all the same: what was synced is still read, and [`Disk::assert_writable`] lets nothing more be
/// written.
pub(crate) fn guard<T: ?Sized>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn read_gate(gate: &RwLock<()>) -> RwLockReadGuard<'_, ()> {
    gate.read().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn write_gate(gate: &RwLock<()>) -> RwLockWriteGuard<'_, ()> {
    gate.write().unwrap_or_else(PoisonError::into_inner)
}

/// 16 MiB: a journal, the catalog (its database takes 1 MiB, m' times, from the start), and room for files.
const DISK_SECTORS_MIN: u64 = 4096;
/// What part of all that may wait is brought to its place at once: the device has little else to do while memory takes
/// writes, and an fsync finds less to do. Random writes with an fsync at their end are 5 % faster than with half of it.
const CROWDED_SHARE: u64 = 8;
/// 64 positions: 256 KiB of mirrored entries.
const JOURNAL_SECTORS_MIN: u64 = 64;
/// 128 MiB of mirrored entries.
const JOURNAL_SECTORS_MAX: u64 = 32_768;
/// What the database takes at the start,
const SLAB_PAGES_MIN: u64 = 320;
/// and up to 4 MiB.
const SLAB_PAGES_MAX: u64 = 1024;
/// 1/128 of the device is kept for the catalog,
const KEPT_SHARE: u64 = 128;
/// but at least 512 KiB
const KEPT_SECTORS_MIN: u64 = 128;
/// and at most 1 GiB.
const KEPT_SECTORS_MAX: u64 = 262_144;

/// What is spared for what frees space: pages of one slab. Half of them for what was taken when the catalog found no room, which is an eighth of what
/// is kept, and as much again where its rows leave half of each page empty; the other half for transactions of one row, of which each
/// takes a page for the leaf that it changes and each branch above, and some ten for the database itself, until the next but one.
pub(crate) const SPARE_PAGES_MIN: u64 = 126;
/// With a device of 66 MiB for each copy and more.
const SPARE_PAGES_MAX: u64 = 256;
const _: () = assert!(SPARE_PAGES_MAX <= SUMS, "one sums sector has those of all spare pages");

#[cfg(test)]
mod tests;
