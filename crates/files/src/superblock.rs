//! The superblock: what a disk is, in copies at both ends of the device.
//!
//! Invariants:
//! 1. A superblock that was parsed describes a disk that fits on `sectors` sectors, and parses to the same bytes again.
//! 2. Storing writes the copies at the end, syncs, writes those in front, syncs: at any moment one end is whole. Each copy is a
//!    write of its own, so that one that goes astray takes no two copies of anything.
//! 3. Of the valid copies the highest generation counts, and opening a disk to write it makes all others the same.
//!
//! Left out: what lies where between its ends, beyond the journal and the slabs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use claystone_env::{Device, DeviceError, Effort, SECTOR_BYTES, Sector, SectorRange, WallTime};
use claystone_group::DiskId;

use crate::copies::{Copies, Scope};
use crate::error::{Damage, DiskError};
use crate::fields::{array_at, crc32c_without, put, u16_at, u32_at, u64_at};
use crate::slab::Slab;

/// The version of the format that this program writes and reads. Before 2, all entries of the journal were mirrored.
pub const VERSION: u16 = 2;
/// The most copies of what is not in groups.
pub const COPIES_MAX: u16 = 8;
/// The most slabs of the page file.
pub const SLABS_MAX: usize = 200;
/// Bytes of a label.
pub const LABEL_BYTES: usize = 64;
/// The least sectors of a journal, each counted once: an entry of a page of records and its successor.
pub const JOURNAL_SECTORS_MIN: u64 = 8;

/// What a disk is.
#[derive(Debug, Clone, PartialEq)]
pub struct Superblock {
    /// How often a sector is kept that is not in a group: m'.
    pub copies: u16,
    /// Which disk.
    pub id: DiskId,
    /// How often it was stored.
    pub generation: u64,
    /// Sectors of the device.
    pub sectors: u64,
    /// Data sectors of a group.
    pub k: u16,
    /// Parity sectors of a group.
    pub m: u16,
    /// The chance that a sector does not read at once.
    pub p_h: f64,
    /// The accepted chance of losing a group.
    pub p_s: f64,
    /// When it was formatted.
    pub formatted: WallTime,
    /// The journal: where it begins, and its sectors, each counted once.
    pub journal: SectorRange,
    /// What its owner calls it, at most 64 bytes without a 0.
    pub label: String,
    /// The slabs of the page file.
    pub slabs: Vec<Slab>,
}

/// Why a sector is no superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SuperblockFault {
    /// It does not begin as one.
    Foreign,
    /// It is of a version that is not known here.
    Other(u16),
    /// It is one, and wrong.
    Damaged(Damage),
}

impl Superblock {
    /// Where header slot A or B (0 or 1) of the page file lies.
    pub fn header_slot(&self, slot: u64) -> Sector {
        Sector(u64::from(self.copies) * (1 + slot))
    }

    /// Its copies in front.
    pub fn front(&self) -> SectorRange {
        SectorRange { first: Sector(0), sectors: self.copies.into() }
    }

    /// Its copies at the end.
    pub fn back(&self) -> SectorRange {
        SectorRange { first: Sector(self.sectors - u64::from(self.copies)), sectors: self.copies.into() }
    }

    /// Its bytes, a sector.
    ///
    /// # Panics
    /// If it does not parse again: a field is out of its bounds.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; SECTOR_BYTES];
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, VERSION.to_le_bytes());
        put(&mut bytes, 10, self.copies.to_le_bytes());
        put(&mut bytes, 16, self.id.0);
        put(&mut bytes, 32, self.generation.to_le_bytes());
        put(&mut bytes, 40, self.sectors.to_le_bytes());
        put(&mut bytes, 48, self.k.to_le_bytes());
        put(&mut bytes, 50, self.m.to_le_bytes());
        put(&mut bytes, 52, (self.slabs.len() as u16).to_le_bytes());
        put(&mut bytes, 56, self.p_h.to_le_bytes());
        put(&mut bytes, 64, self.p_s.to_le_bytes());
        put(&mut bytes, 72, self.formatted.unix_ms.to_le_bytes());
        put(&mut bytes, 80, self.journal.first.0.to_le_bytes());
        put(&mut bytes, 88, self.journal.sectors.to_le_bytes());
        assert_eq!(self.check(), Ok(()), "what is stored can be");
        bytes[LABEL_AT..][..self.label.len()].copy_from_slice(self.label.as_bytes());
        for (number, slab) in self.slabs.iter().enumerate() {
            put(&mut bytes, SLABS_AT + 16 * number, slab.first.0.to_le_bytes());
            put(&mut bytes, SLABS_AT + 16 * number + 8, slab.pages.to_le_bytes());
        }
        let crc = crc32c_without(&bytes, CRC_AT, &[]);
        put(&mut bytes, CRC_AT, crc.to_le_bytes());
        assert_eq!(Superblock::parse(&bytes).as_ref(), Ok(self), "what is stored can be read");
        bytes
    }

    /// The superblock that a sector holds.
    ///
    /// # Errors
    /// See [`SuperblockFault`].
    ///
    /// # Panics
    /// If `bytes` is not a sector.
    pub fn parse(bytes: &[u8]) -> Result<Superblock, SuperblockFault> {
        assert_eq!(bytes.len(), SECTOR_BYTES, "a superblock takes a sector");
        if array_at(bytes, 0) != MAGIC {
            return Err(SuperblockFault::Foreign);
        }
        // Magic, version and checksum stay where they are in every version.
        let (found, expected) = (u32_at(bytes, CRC_AT), crc32c_without(bytes, CRC_AT, &[]));
        if found != expected {
            return Err(SuperblockFault::Damaged(Damage::SuperblockChecksum { found, expected }));
        }
        match u16_at(bytes, 8) {
            VERSION => {}
            0 => return Err(wrong("version", 0)),
            other => return Err(SuperblockFault::Other(other)),
        }
        let superblock = Superblock {
            copies: u16_at(bytes, 10),
            id: DiskId(array_at(bytes, 16)),
            generation: u64_at(bytes, 32),
            sectors: u64_at(bytes, 40),
            k: u16_at(bytes, 48),
            m: u16_at(bytes, 50),
            p_h: f64::from_le_bytes(array_at(bytes, 56)),
            p_s: f64::from_le_bytes(array_at(bytes, 64)),
            formatted: WallTime { unix_ms: u64_at(bytes, 72) },
            journal: SectorRange { first: Sector(u64_at(bytes, 80)), sectors: u64_at(bytes, 88) },
            label: parse_label(&bytes[LABEL_AT..][..LABEL_BYTES])?,
            slabs: parse_slabs(bytes)?,
        };
        superblock.check().map_err(SuperblockFault::Damaged)?;
        Ok(superblock)
    }

    /// Checks that all fields are within their bounds, and nothing lies on anything else.
    ///
    /// # Errors
    /// [`Damage::SuperblockField`], [`Damage::Slab`].
    pub fn check(&self) -> Result<(), Damage> {
        let bounds = [
            ("m'", u64::from(self.copies), 1, u64::from(COPIES_MAX)),
            ("the generation", self.generation, 1, u64::MAX),
            ("k", u64::from(self.k), 1, 1020),
            ("m", u64::from(self.m), 0, 64),
            ("k + m", u64::from(self.k) + u64::from(self.m), 1, 1023),
            ("the number of sectors", self.sectors, u64::from(COPIES_MAX) * 8, SECTORS_MAX),
            ("the journal's length", self.journal.sectors, JOURNAL_SECTORS_MIN, self.sectors),
            ("the label's length", self.label.len() as u64, 0, LABEL_BYTES as u64),
            ("the number of slabs", self.slabs.len() as u64, 1, SLABS_MAX as u64),
        ];
        for (field, value, min, max) in bounds {
            if !(min..=max).contains(&value) {
                return Err(Damage::SuperblockField { field, value });
            }
        }
        if self.label.contains('\0') {
            return Err(Damage::SuperblockField { field: "a byte of the label", value: 0 });
        }
        for (field, value) in [("p_h", self.p_h), ("p_s", self.p_s)] {
            if !(0.0..1.0).contains(&value) {
                return Err(Damage::SuperblockField { field, value: value.to_bits() });
            }
        }
        let copies = u64::from(self.copies);
        let first = self.journal.first.0;
        // No product overflows: no number is above 2^51, and copies are at most 8.
        if first != 3 * copies {
            return Err(Damage::SuperblockField { field: "the journal's first sector", value: first });
        }
        let end = self.back().first.0;
        if first + self.journal.sectors * copies > end {
            return Err(Damage::SuperblockField { field: "the journal's length", value: self.journal.sectors });
        }
        let mut taken = vec![(0, first + self.journal.sectors * copies)];
        for (number, slab) in self.slabs.iter().enumerate() {
            let misplaced = Damage::Slab { number, first: slab.first, pages: slab.pages };
            if slab.pages == 0 || slab.pages > end || slab.first.0 > end {
                return Err(misplaced);
            }
            let (from, to) = (slab.first.0, slab.first.0 + slab.sectors(copies));
            if to > end || taken.iter().any(|(begin, end)| from < *end && *begin < to) {
                return Err(misplaced);
            }
            taken.push((from, to));
        }
        Ok(())
    }

    /// The newest superblock on a device.
    ///
    /// # Errors
    /// [`DiskError::NotADisk`], [`DiskError::OtherVersion`], [`DiskError::DeviceShrunk`], [`DiskError::Damaged`],
    /// [`DiskError::Device`].
    pub fn load(device: &dyn Device) -> Result<Superblock, DiskError> {
        let label = || device.label();
        let found = device.geometry().sectors;
        let near = u64::from(COPIES_MAX).min(found);
        let mut search = Search::default();
        search.look(device, SectorRange { first: Sector(0), sectors: near }, &|sector, superblock| {
            sector.0 < u64::from(superblock.copies)
        })?;
        // A device may have grown, then the other copies are where its end was.
        let end = search.best.as_ref().map_or(found, |superblock| superblock.sectors);
        if end > found {
            return Err(DiskError::DeviceShrunk { label: label(), found, expected: end });
        }
        let first = Sector(end - near.min(end));
        let id = search.best.as_ref().map(|superblock| superblock.id);
        search.look(device, SectorRange { first, sectors: end - first.0 }, &|sector, superblock| {
            // Files lie right before the last copies, and one may be the image of a disk.
            superblock.sectors == end && sector >= superblock.back().first && id.is_none_or(|id| id == superblock.id)
        })?;
        match (search.best, search.worst) {
            (Some(superblock), _) => Ok(superblock),
            (None, Some(SuperblockFault::Other(found))) => {
                Err(DiskError::OtherVersion { label: label(), found, supported: VERSION })
            }
            (None, Some(SuperblockFault::Damaged(damage))) => Err(damage.into()),
            (None, _) if search.unread => Err(Damage::SuperblockLost.into()),
            (None, _) => Err(DiskError::NotADisk { label: label() }),
        }
    }

    /// Writes it to both ends, at the end first: where the device has grown, the copies in front name an end that has some.
    ///
    /// # Errors
    /// [`DiskError::Device`]: the newest superblock may be the old one or this one.
    pub fn store(&self, device: &dyn Device) -> Result<(), DiskError> {
        let bytes = self.encode();
        for copies in [self.back(), self.front()] {
            (copies.first.0..copies.end().0).try_for_each(|copy| device.write(Sector(copy), &bytes))?;
            device.sync()?;
        }
        Ok(())
    }

    /// Takes from a device what would be found as a superblock, before it is formatted.
    ///
    /// # Errors
    /// As [`Device::write`] and [`Device::sync`].
    pub fn erase(device: &dyn Device) -> Result<(), DeviceError> {
        let sectors = device.geometry().sectors;
        let near = u64::from(COPIES_MAX).min(sectors);
        let zeros = vec![0; near as usize * SECTOR_BYTES];
        device.write(Sector(0), &zeros)?;
        device.write(Sector(sectors - near), &zeros)?;
        device.sync()
    }
}

/// The search for the newest valid copy.
#[derive(Default)]
struct Search {
    best: Option<Superblock>,
    worst: Option<SuperblockFault>,
    unread: bool,
}

impl Search {
    /// Looks at sectors where copies may be; `belongs` tells whether this superblock can be meant in this sector.
    fn look(
        &mut self,
        device: &dyn Device,
        range: SectorRange,
        belongs: &dyn Fn(Sector, &Superblock) -> bool,
    ) -> Result<(), DiskError> {
        if range.sectors == 0 {
            return Ok(());
        }
        let mut bytes = vec![0; range.sectors as usize * SECTOR_BYTES];
        let failed = device.read(range.first, &mut bytes, Effort::FailFast)?;
        let failed: Vec<Sector> = failed.iter().map(|failed| failed.sector).collect();
        for (sector, bytes) in (range.first.0..).map(Sector).zip(bytes.chunks_exact(SECTOR_BYTES)) {
            if !failed.contains(&sector) {
                self.offer(sector, bytes, belongs);
            }
        }
        for sector in failed {
            // A copy may be the only one of its generation. What lies beside the copies is not worth the time.
            if self.best.as_ref().is_none_or(|best| belongs(sector, best)) {
                let mut bytes = [0; SECTOR_BYTES];
                match device.read(sector, &mut bytes, Effort::Retry)?.is_empty() {
                    true => self.offer(sector, &bytes, belongs),
                    false => self.unread = true,
                }
            }
        }
        Ok(())
    }

    fn offer(&mut self, sector: Sector, bytes: &[u8], belongs: &dyn Fn(Sector, &Superblock) -> bool) {
        match Superblock::parse(bytes) {
            Ok(superblock) if belongs(sector, &superblock) => {
                if self.best.as_ref().is_none_or(|best| superblock.generation > best.generation) {
                    self.best = Some(superblock);
                }
            }
            Ok(_) | Err(SuperblockFault::Foreign) => {}
            Err(fault) => self.worst = Some(fault),
        }
    }
}

/// The superblock of an open disk. Clones share it.
#[derive(Clone)]
pub struct SharedSuperblock {
    device: Arc<dyn Device>,
    current: Arc<Mutex<Superblock>>,
}

impl SharedSuperblock {
    /// Shares the superblock that was loaded from `device`.
    pub fn new(device: Arc<dyn Device>, superblock: Superblock) -> SharedSuperblock {
        SharedSuperblock { device, current: Arc::new(Mutex::new(superblock)) }
    }

    /// A copy of it as it is now.
    pub fn current(&self) -> Superblock {
        self.lock().clone()
    }

    /// Changes it and stores it, one generation on.
    ///
    /// # Errors
    /// As [`Superblock::store`]; then it is unchanged here, and unknown on the device.
    ///
    /// # Panics
    /// As [`Superblock::encode`].
    pub fn store(&self, change: impl FnOnce(&mut Superblock)) -> Result<(), DiskError> {
        let mut current = self.lock();
        let mut next = current.clone();
        change(&mut next);
        next.generation += 1;
        next.store(&*self.device)?;
        *current = next;
        Ok(())
    }

    /// Writes the copies again that are not as they should be: lost, or left behind by a power cut.
    ///
    /// # Errors
    /// [`DiskError::Device`].
    ///
    /// # Panics
    /// If the disk is only looked at.
    pub fn settle(&self, copies: &Copies) -> Result<(), DiskError> {
        let current = self.lock();
        let bytes = current.encode();
        for range in [current.front(), current.back()] {
            let mended = copies.mended();
            let valid = |_, found: &[u8]| found == bytes;
            let lost = copies.read(range.first, &mut [0; SECTOR_BYTES], Scope::Every, &valid)?;
            if !lost.is_empty() {
                copies.write(range.first, &bytes)?;
            }
            if !lost.is_empty() || copies.mended() > mended {
                copies.device().sync()?;
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Superblock> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wrong(field: &'static str, value: u64) -> SuperblockFault {
    SuperblockFault::Damaged(Damage::SuperblockField { field, value })
}

fn parse_label(bytes: &[u8]) -> Result<String, SuperblockFault> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let (label, padding) = bytes.split_at(end);
    match str::from_utf8(label) {
        Ok(label) if padding.iter().all(|byte| *byte == 0) => Ok(label.to_owned()),
        _ => Err(wrong("a byte of the label", bytes.get(end).map_or(0, |byte| (*byte).into()))),
    }
}

fn parse_slabs(bytes: &[u8]) -> Result<Vec<Slab>, SuperblockFault> {
    let count: usize = u16_at(bytes, 52).into();
    if !(1..=SLABS_MAX).contains(&count) {
        return Err(wrong("the number of slabs", count as u64));
    }
    let at = |number: usize| SLABS_AT + 16 * number;
    let slab = |number| Slab { first: Sector(u64_at(bytes, at(number))), pages: u64_at(bytes, at(number) + 8) };
    Ok((0..count).map(slab).collect())
}

const MAGIC: [u8; 8] = *b"CLAYDISK";
const CRC_AT: usize = 12;
const LABEL_AT: usize = 96;
const SLABS_AT: usize = 512;
/// 8 EiB of sectors: no place in bytes overflows.
const SECTORS_MAX: u64 = 1 << 51;

const _: () = assert!(SLABS_AT + 16 * SLABS_MAX <= SECTOR_BYTES, "all slabs fit into the sector");

#[cfg(test)]
mod tests;
