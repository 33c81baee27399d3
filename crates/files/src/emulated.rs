//! What the tests of this crate share: an emulated device with a superblock on it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use claystone_env::{
    Device, DeviceError, Effort, FailedSector, Geometry, PairHealth, SECTOR_BYTES, Sector, SectorFailure, SectorRange,
    WallTime,
};
use claystone_group::DiskId;
use claystone_sim::{HddModel, SimDevice, World};

use crate::copies::{Access, Copies};
use crate::pages::SlabSource;
use crate::slab::Slab;
use crate::superblock::Superblock;

/// Sectors of the emulated device.
pub const SECTORS: u64 = 40_000;
/// Sectors of the journal, each counted once.
pub const JOURNAL_SECTORS: u64 = 24;
/// Pages of the first slab: few, so that more are soon taken.
pub const PAGES: u64 = 40;

/// An empty device.
pub fn device(world: &World) -> SimDevice {
    world.device("d", HddModel::new(SECTORS))
}

/// What a disk on it is.
pub fn superblock(copies: u16) -> Superblock {
    let journal = SectorRange { first: Sector(3 * u64::from(copies)), sectors: JOURNAL_SECTORS };
    Superblock {
        copies,
        id: DiskId(*b"0123456789abcdef"),
        generation: 1,
        sectors: SECTORS,
        k: 250,
        m: 5,
        p_h: 1e-3,
        p_s: 1e-6,
        formatted: WallTime { unix_ms: 1_790_000_000_000 },
        journal,
        label: "attic".to_owned(),
        slabs: vec![Slab { first: Sector(500), pages: PAGES }],
    }
}

/// Its copies, on a device that was attached now.
pub fn copies(hand: &SimDevice, count: u16, access: Access) -> Arc<Copies> {
    Arc::new(Copies::new(hand.attach(), count, access))
}

/// A device that says that it is a pair of drives, and whether it has lost what does not read.
pub struct Paired(pub Arc<dyn Device>, pub bool);

impl Device for Paired {
    fn label(&self) -> String {
        self.0.label()
    }

    fn pair(&self) -> Option<PairHealth> {
        Some(PairHealth::default())
    }

    fn has_lost(&self, _range: SectorRange) -> bool {
        self.1
    }

    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        self.0.read(first, into, effort)
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        self.0.write(first, bytes)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.0.sync()
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.0.discard(range)
    }
}

/// A device of which these sectors read only if they are retried.
pub struct Softly(pub Arc<dyn Device>, pub Mutex<BTreeSet<u64>>);

impl Device for Softly {
    fn label(&self) -> String {
        self.0.label()
    }

    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        let mut failed = self.0.read(first, into, effort)?;
        if effort == Effort::FailFast {
            let softly = self.1.lock().expect("no panics");
            for &sector in softly.range(first.0..first.0 + (into.len() / SECTOR_BYTES) as u64) {
                into[(sector - first.0) as usize * SECTOR_BYTES..][..SECTOR_BYTES].fill(0);
                failed.push(FailedSector { sector: Sector(sector), failure: SectorFailure::Soft });
            }
        }
        Ok(failed)
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        self.0.write(first, bytes)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.0.sync()
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.0.discard(range)
    }
}

/// Takes slabs one behind the other, from behind all that the superblock names.
pub struct Bump(AtomicU64);

impl Bump {
    /// For a disk with this superblock.
    pub fn new(superblock: &Superblock) -> Arc<Bump> {
        let ends = superblock.slabs.iter().map(|slab| slab.first.0 + slab.sectors(superblock.copies.into()));
        Arc::new(Bump(AtomicU64::new(ends.max().unwrap_or(0))))
    }
}

impl SlabSource for Bump {
    fn take(&self, sectors: u64) -> Option<Sector> {
        let fits = |first: u64| (first + sectors < SECTORS - 8).then_some(first + sectors);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok().map(Sector)
    }
}
