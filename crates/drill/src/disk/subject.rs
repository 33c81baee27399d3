//! The disk under test, on an emulated device that loses power and hurts sectors.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use claystone_env::{Device, DeviceError, Effort, FailedSector, Geometry, Sector, SectorRange};
use claystone_files::testing::SteppingClock;
use claystone_files::{Disk, DiskError, Format, Tuning};
use claystone_sim::{DeviceFaults, HddModel, SimDevice, World};

use super::atlas::Code;

/// See the module.
pub struct Subject {
    /// The hardware.
    pub device: SimDevice,
    disk: Option<Disk>,
    clock: Arc<SteppingClock>,
    sectors: u64,
}

/// Small groups, so that a small device has many.
pub const CODE: Code = Code { data: 6, parity: 2, copies: 3 };
/// 16 MiB: a disk of which the journal and the page file are a part that shows.
pub const SECTORS: u64 = 4096;
/// What the device grows to at most.
pub const SECTORS_MAX: u64 = 2 * SECTORS;

impl Subject {
    /// A device without a disk, of [`SECTORS`] at first.
    pub fn new(world: &World) -> Subject {
        let device = world.device("device", HddModel { cache_sectors: 400, ..HddModel::new(SECTORS_MAX) });
        Subject { device, disk: None, clock: Arc::default(), sectors: SECTORS }
    }

    /// The device as a process sees it, until the next crash.
    pub fn attach(&self) -> Arc<dyn Device> {
        Arc::new(Shown { device: self.device.attach(), sectors: self.sectors })
    }

    /// How large the device is.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Makes the device larger, up to [`SECTORS_MAX`], for who attaches it from now on.
    pub fn enlarge(&mut self, sectors: u64) {
        self.sectors = (self.sectors + sectors).min(SECTORS_MAX);
    }

    /// Makes a disk of the device.
    ///
    /// # Errors
    /// What the disk says.
    pub fn format(&self, world: &World, label: &str) -> Result<(), DiskError> {
        let format = Format {
            data: CODE.data as u16,
            parity: CODE.parity as u16,
            copies: CODE.copies as u16,
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
        // Each call looks at the clock a few times, a millisecond each: flushes and checkpoints come every now and then.
        let tuning = Tuning {
            waiting_sectors_max: 200,
            bulk_sectors_max: 60,
            journal_sectors_max: 8,
            apply_sectors_max: 16,
            sums_cached: 8,
            flush_after: Duration::from_millis(20),
            checkpoint_after: Duration::from_millis(80),
            ..Tuning::default()
        };
        self.disk = Some(Disk::open(self.attach(), self.clock.clone(), tuning)?);
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

    /// How often sectors fail softly from now on.
    pub fn set_soft(&self, rate: f64) {
        self.device.set_faults(DeviceFaults::soft(rate));
    }

    /// Whether a sector is a copy of something that is in no group, as docs/formats/disk.md tells.
    pub fn is_copy(&self, sector: u64) -> bool {
        let Some(superblock) = self.superblock() else { return false };
        let slabs = usize::from(superblock[52]);
        let in_slab = |slab: usize| {
            let (first, pages) = (number(&superblock, 512 + 16 * slab), number(&superblock, 520 + 16 * slab));
            (first..first + (2 * pages.div_ceil(1018) + pages) * CODE.copies).contains(&sector)
        };
        !self.is_scrubbed(sector) || (0..slabs).any(in_slab)
    }

    /// Whether a scrub reads a sector: not those of the superblock, the page file's headers and the journal, which are
    /// read when the disk is opened.
    pub fn is_scrubbed(&self, sector: u64) -> bool {
        let Some(superblock) = self.superblock() else { return false };
        let journal_end = number(&superblock, 80) + number(&superblock, 88) * CODE.copies;
        (journal_end..number(&superblock, 40) - CODE.copies).contains(&sector)
    }

    /// The superblock's bytes, if one is in front.
    pub fn superblock(&self) -> Option<Vec<u8>> {
        let copies = (0..CODE.copies).filter_map(|at| self.device.content(Sector(at)));
        copies.into_iter().find(|copy| copy.starts_with(b"CLAYDISK"))
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

/// A device of which only the first sectors are there.
struct Shown {
    device: Arc<dyn Device>,
    sectors: u64,
}

impl Device for Shown {
    fn label(&self) -> String {
        self.device.label()
    }

    fn geometry(&self) -> Geometry {
        Geometry { sectors: self.sectors, ..self.device.geometry() }
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        self.geometry().range(first, into.len());
        self.device.read(first, into, effort)
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        self.geometry().range(first, bytes.len());
        self.device.write(first, bytes)
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
