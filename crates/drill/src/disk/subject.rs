//! The disk under test, on an emulated device that loses power and hurts sectors.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use claystone_env::{Device, DeviceError, Effort, FailedSector, Geometry, Random, SECTOR_BYTES, Sector, SectorRange};
use claystone_files::testing::SteppingClock;
use claystone_files::{Disk, DiskError, Format};
use claystone_sim::{DeviceFaults, DeviceMoment, HddModel, SimDevice, World};

use super::atlas::{Atlas, Code};
use super::scale::Scale;

/// See the module.
pub struct Subject {
    /// The hardware.
    pub device: SimDevice,
    disk: Option<Disk>,
    clock: Arc<SteppingClock>,
    scale: Scale,
    sectors: u64,
    /// Of its sectors, which may be hurt.
    atlas: Arc<Mutex<Atlas>>,
    /// What goes wrong in writes, unnoticed.
    mischief: Option<Arc<Mischief>>,
}

impl Subject {
    /// A device without a disk, of as many sectors as its scale has at first.
    pub fn new(world: &World, scale: Scale) -> Subject {
        let device = world.device("device", HddModel { cache_sectors: 400, ..HddModel::new(2 * scale.sectors()) });
        let atlas = Arc::new(Mutex::new(Atlas::new(scale.code())));
        let sectors = scale.sectors();
        Subject { device, disk: None, clock: Arc::default(), scale, sectors, atlas, mischief: None }
    }

    /// Another device, which is at a moment of this one, on which no disk is open.
    pub fn branch(&self, moment: &DeviceMoment, random: Arc<dyn Random>) -> Subject {
        let atlas = Arc::new(Mutex::new(Atlas::new(self.scale.code())));
        let device = self.device.branch(moment, random);
        Subject { device, disk: None, clock: Arc::default(), atlas, mischief: None, ..*self }
    }

    /// The device as a process sees it, until the next crash.
    pub fn attach(&self) -> Arc<dyn Device> {
        let mischief = self.mischief.clone();
        Arc::new(Shown { device: self.device.attach(), sectors: self.sectors, mischief })
    }

    /// How large the device is.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Which sectors may be hurt.
    pub fn atlas(&self) -> MutexGuard<'_, Atlas> {
        self.atlas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From the next opening on some writes are torn, misdirected or change a bit, unnoticed, where that can be mended.
    pub fn do_mischief(&mut self, random: Arc<dyn Random>) {
        let (device, atlas, scale) = (self.device.clone(), self.atlas.clone(), self.scale);
        self.mischief = Some(Arc::new(Mischief {
            device,
            atlas,
            scale,
            random,
            paused: AtomicBool::new(false),
            done: Mutex::new(0),
        }));
    }

    /// While the disk mends everything, so that what it has mended is right.
    pub fn pause_mischief(&self, paused: bool) {
        if let Some(mischief) = &self.mischief {
            mischief.paused.store(paused, Ordering::Relaxed);
        }
    }

    /// Sectors that mischief has hurt.
    pub fn mischief_done(&self) -> u64 {
        self.mischief.as_ref().map_or(0, |mischief| *mischief.done())
    }

    /// Makes the device larger, up to twice what it was at first, for who attaches it from now on.
    pub fn enlarge(&mut self, sectors: u64) {
        self.sectors = (self.sectors + sectors).min(2 * self.scale.sectors());
    }

    /// Makes a disk of the device.
    ///
    /// # Errors
    /// What the disk says.
    pub fn format(&self, world: &World, label: &str) -> Result<(), DiskError> {
        let format = Format {
            data: self.scale.code().data as u16,
            parity: self.scale.code().parity as u16,
            copies: self.scale.code().copies as u16,
            soft_failures: 1e-3,
            loss_target: 1e-6,
            label: label.to_owned(),
        };
        Disk::format(&self.attach(), &format, &*self.clock, &*world.random().fork(label))
    }

    /// Opens the disk.
    ///
    /// # Errors
    /// What the disk says.
    pub fn open(&mut self) -> Result<(), DiskError> {
        self.disk = Some(Disk::open(self.attach(), self.clock.clone(), self.scale.tuning())?);
        Ok(())
    }

    /// The open disk.
    ///
    /// # Panics
    /// If none is.
    pub fn disk(&self) -> &Disk {
        self.disk.as_ref().expect("it is open")
    }

    /// Takes the open disk, to close it.
    ///
    /// # Panics
    /// If none is.
    pub fn take(&mut self) -> Disk {
        self.disk.take().expect("it is open")
    }

    /// Kills the process and the power.
    pub fn crash(&mut self) {
        self.device.crash();
        // Its device is dead, so this changes nothing.
        self.disk = None;
    }

    /// How often sectors fail softly from now on, so many side by side on average, or 0 for each by itself.
    pub fn set_soft(&self, rate: f64, burst_sectors: f64) {
        self.device.set_faults(DeviceFaults { burst_sectors, ..DeviceFaults::soft(rate) });
    }

    /// See [`is_copy`].
    pub fn is_copy(&self, sector: u64) -> bool {
        is_copy(&self.device, self.scale.code(), sector)
    }

    /// See [`is_scrubbed`].
    pub fn is_scrubbed(&self, sector: u64) -> bool {
        is_scrubbed(&self.device, self.scale.code(), sector)
    }

    /// The superblock's bytes, if one is in front.
    pub fn superblock(&self) -> Option<Vec<u8>> {
        superblock(&self.device, self.scale.code())
    }

    /// Where sums sectors lie or lay.
    pub fn sums(&self) -> Vec<u64> {
        let is_sums = |sector: &u64| self.device.content(Sector(*sector)).is_some_and(|it| it.starts_with(b"CLAYSUMS"));
        (0..self.sectors).filter(is_sums).collect()
    }

    /// Whether the disk itself finds everything right.
    ///
    /// # Errors
    /// What it finds wrong.
    pub fn check(&self) -> Result<()> {
        let report = self.disk().check().context("the check cannot be made")?;
        ensure!(report.problems.is_empty(), "the check finds {:?}", report.problems);
        Ok(())
    }
}

/// Whether a sector is a copy of something that is in no group, as docs/formats/disk.md tells.
fn is_copy(device: &SimDevice, code: Code, sector: u64) -> bool {
    let Some(superblock) = superblock(device, code) else { return false };
    let slabs = usize::from(superblock[52]);
    let in_slab = |slab: usize| {
        let (first, pages) = (number(&superblock, 512 + 16 * slab), number(&superblock, 520 + 16 * slab));
        (first..first + (2 * pages.div_ceil(1018) + pages) * code.copies).contains(&sector)
    };
    !is_scrubbed(device, code, sector) || (0..slabs).any(in_slab)
}

/// Whether a scrub reads a sector: not those of the superblock, the page file's headers and the journal, which are read when the
/// disk is opened.
fn is_scrubbed(device: &SimDevice, code: Code, sector: u64) -> bool {
    let Some(superblock) = superblock(device, code) else { return false };
    let journal_end = number(&superblock, 80) + number(&superblock, 88) * code.copies;
    (journal_end..number(&superblock, 40) - code.copies).contains(&sector)
}

fn superblock(device: &SimDevice, code: Code) -> Option<Vec<u8>> {
    let copies = (0..code.copies).filter_map(|at| device.content(Sector(at)));
    copies.into_iter().find(|copy| copy.starts_with(b"CLAYDISK"))
}

/// What a drive does wrong in writes and does not tell: of one write in eight some sectors are not written, or go elsewhere, or
/// have a bit changed, as many as can be mended. Copies are spared, for nobody can tell an old one from a new one.
struct Mischief {
    device: SimDevice,
    atlas: Arc<Mutex<Atlas>>,
    scale: Scale,
    random: Arc<dyn Random>,
    paused: AtomicBool,
    done: Mutex<u64>,
}

impl Mischief {
    fn done(&self) -> MutexGuard<'_, u64> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a sector may be hurt that is to hold these bytes; then it counts as hurt.
    fn hurts(&self, sector: u64, bytes: &[u8]) -> bool {
        let mut atlas = self.atlas.lock().unwrap_or_else(PoisonError::into_inner);
        !is_copy(&self.device, self.scale.code(), sector) && atlas.hurts(sector, bytes, false)
    }

    /// Writes so.
    fn write(&self, device: &dyn Device, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        let sectors = (bytes.len() / SECTOR_BYTES) as u64;
        if self.paused.load(Ordering::Relaxed) || self.random.below(8) > 0 {
            return device.write(first, bytes);
        }
        let (kind, wanted) = (self.random.below(3), 1 + self.random.below(self.scale.code().parity));
        let mut hurt = Vec::new();
        // Side by side, as what a drive loses of a write is.
        let from = self.random.below(sectors);
        for at in from..sectors.min(from + wanted) {
            let content = &bytes[at as usize * SECTOR_BYTES..][..SECTOR_BYTES];
            // An old sums sector looks right, and no parity tells that it is not the last one.
            if content.starts_with(b"CLAYSUMS") && kind != 0 {
                break;
            }
            if !self.hurts(first.0 + at, content) {
                break;
            }
            hurt.push((at, content));
        }
        *self.done() += hurt.len() as u64;
        if kind == 0 {
            device.write(first, bytes)?;
            for (at, _) in hurt {
                let bit = self.random.below(SECTOR_BYTES as u64 * 8) as usize;
                self.device.flip_bit(Sector(first.0 + at), bit);
            }
            return Ok(());
        }
        let Some((lost_from, _)) = hurt.first().copied() else { return device.write(first, bytes) };
        let lost_end = lost_from + hurt.len() as u64;
        let part =
            |part: std::ops::Range<u64>| &bytes[part.start as usize * SECTOR_BYTES..part.end as usize * SECTOR_BYTES];
        if lost_from > 0 {
            device.write(first, part(0..lost_from))?;
        }
        if lost_end < sectors {
            device.write(Sector(first.0 + lost_end), part(lost_end..sectors))?;
        }
        if kind == 2 {
            // They go elsewhere, over what is there.
            let to = self.random.below(self.scale.sectors());
            let there = self.device.content(Sector(to)).unwrap_or_default();
            if !(first.0..first.0 + sectors).contains(&to) && self.hurts(to, &there) {
                *self.done() += 1;
                device.write(Sector(to), hurt[0].1)?;
            }
        }
        Ok(())
    }
}

/// A device of which only the first sectors are there, and that may do mischief.
struct Shown {
    device: Arc<dyn Device>,
    sectors: u64,
    mischief: Option<Arc<Mischief>>,
}

impl Device for Shown {
    fn label(&self) -> String {
        self.device.label()
    }

    fn geometry(&self) -> Geometry {
        Geometry { sectors: self.sectors, ..self.device.geometry() }
    }

    fn elapsed(&self) -> Option<Duration> {
        self.device.elapsed()
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        self.geometry().range(first, into.len());
        self.device.read(first, into, effort)
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        self.geometry().range(first, bytes.len());
        match &self.mischief {
            Some(mischief) => mischief.write(&*self.device, first, bytes),
            None => self.device.write(first, bytes),
        }
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.device.sync()
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.geometry().assert_holds(range);
        self.device.discard(range)
    }
}

/// A number of the superblock, or of anything on a disk.
pub fn number(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("8 bytes"))
}
