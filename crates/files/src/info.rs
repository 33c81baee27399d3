//! What a disk is, and how it is.

use claystone_env::{SectorHealth, WallTime};

use crate::disk::{Disk, guard};
use crate::{DiskId, FileTree, SpaceFigures};

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskInfo {
    /// Which disk.
    pub id: DiskId,
    /// What its owner calls it.
    pub label: String,
    /// The device.
    pub device: String,
    /// How it does requests and gives up on sectors: a sentence each.
    pub manner: Vec<String>,
    /// Whether the device can be told to report a sector that does not read at once.
    pub fails_fast: bool,
    /// When it was formatted.
    pub formatted: WallTime,
    /// Sectors of the device.
    pub sectors: u64,
    /// Data sectors of a group, k.
    pub data: u32,
    /// Parity sectors of a group, m.
    pub parity: u32,
    /// Copies of what is not in groups, m'.
    pub copies: u32,
    /// The chance of a soft failure that these were chosen for, p_h.
    pub soft_failures: f64,
    /// The accepted chance of losing a group, p_s.
    pub loss_target: f64,
    /// How full it is.
    pub space: SpaceFigures,
    /// Sectors of the device in slabs of the catalog.
    pub catalog_sectors: u64,
    /// Sectors of the journal, each counted once.
    pub journal_sectors: u64,
    /// Of these, in use.
    pub journal_used: u64,
    /// Sectors written and not yet in groups.
    pub waiting_sectors: u64,
    /// Sectors that no retry read since the disk was opened, and that were not written since: no flush asks for them again.
    pub known_lost: u64,
    /// What was seen of its sectors, and what follows for its parity.
    pub health: SectorHealth,
    /// Why it takes no writes.
    pub failed: Option<String>,
}

impl Disk {
    /// How the disk is now.
    pub fn info(&self) -> DiskInfo {
        let (superblock, health) = (self.superblock.current(), self.health());
        let copies = self.copies.count();
        let space = self.space();
        let (journal_sectors, journal_used) = {
            let journal = guard(&self.journal);
            (journal.sectors(), journal.used())
        };
        let core = guard(&self.core);
        DiskInfo {
            id: superblock.id,
            label: superblock.label,
            device: self.device.label(),
            manner: self.device.manner(),
            fails_fast: self.device.geometry().fails_fast,
            formatted: superblock.formatted,
            sectors: superblock.sectors,
            data: self.shape.data,
            parity: self.shape.parity,
            copies: superblock.copies.into(),
            soft_failures: superblock.p_h,
            loss_target: superblock.p_s,
            space,
            catalog_sectors: superblock.slabs.iter().map(|slab| slab.sectors(copies)).sum(),
            journal_sectors,
            journal_used,
            waiting_sectors: core.nodes.waiting,
            known_lost: self.groups.known_lost(),
            health,
            failed: core.failed.clone(),
        }
    }
}
