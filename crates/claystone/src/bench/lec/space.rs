//! What a large file takes on a disk: parity, checksums, and what the catalog grows by, counted on the disk itself.
//!
//! The file goes through all of the disk: memory, groups, journal and checkpoints. The device under it is in memory, and of a
//! sector that has the file's content it keeps only which one, so that 10 GiB take a few hundred MiB; everything is read back
//! as it was written.
//!
//! Invariants:
//! 1. What is counted is what the catalog's check finds: each sector of the device is in a group, in the catalog, or free.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::ensure;
use claystone_env::{Device, DeviceError, Effort, FailedSector, Geometry, SECTOR_BYTES, Sector, SectorRange};
use claystone_files::{Disk, FileTree, Format, Inode, Kind, NewNode, Tuning};
use claystone_host::{HostClock, HostRandom};

use super::updates::SHAPE;
use crate::rows::Figure;

/// Where the sectors of the device are.
#[derive(Debug, Clone, Copy)]
pub struct Space {
    file: u64,
    /// Taken by the file's groups: data, parity, checksums.
    groups: u64,
    /// That the catalog grew by.
    catalog: u64,
    /// Of the catalog before there was a file.
    empty_catalog: u64,
    /// Of the journal, the superblocks and the headers of the catalog.
    fixed: u64,
    device: u64,
}

/// Writes a file of so many sectors on an empty disk, and counts.
///
/// # Errors
/// The disk failed, or its catalog is wrong.
///
/// # Panics
/// If what is read back is not what was written.
pub fn measure(file_sectors: u64) -> anyhow::Result<Space> {
    let device = Arc::new(Recogniser::new(file_sectors + file_sectors / 4));
    let (clock, random) = (Arc::new(HostClock::start()), HostRandom::from_system()?);
    let format = Format {
        data: SHAPE.data as u16,
        parity: SHAPE.parity as u16,
        copies: 2,
        soft_failures: 1e-3,
        loss_target: 1e-6,
        label: String::new(),
    };
    let on: Arc<dyn Device> = device.clone();
    Disk::format(&on, &format, &*clock, &random)?;
    let disk = Disk::open(on, clock, Tuning::default())?;
    let empty = disk.check()?;
    let node =
        NewNode { kind: Kind::File, permissions: 0o644, owner: 0, owner_group: 0, device: 0, target: Vec::new() };
    let inode = disk.make(Inode::ROOT, b"file", &node)?.inode;
    let mut bytes = vec![0; AT_ONCE as usize * SECTOR_BYTES];
    for first in (0..file_sectors).step_by(AT_ONCE as usize) {
        fill(&mut bytes, first);
        disk.write(inode, first * SECTOR_BYTES as u64, &bytes)?;
    }
    disk.sync_all()?;
    let full = disk.check()?;
    ensure!(full.problems.is_empty(), "the catalog is wrong: {:?}", full.problems);
    // Some of it from each part of the file.
    let mut read = vec![0; AT_ONCE as usize * SECTOR_BYTES];
    for first in (0..file_sectors).step_by((file_sectors / READ_BACK) as usize) {
        let wanted = AT_ONCE.min(file_sectors - first) as usize * SECTOR_BYTES;
        disk.read(inode, first * SECTOR_BYTES as u64, &mut read[..wanted])?;
        fill(&mut bytes, first);
        assert!(read[..wanted] == bytes[..wanted], "sectors from {first} on are wrong");
    }
    let all = device.geometry().sectors;
    let taken = |found: &claystone_files::CheckReport| found.file_sectors + found.catalog_sectors + found.free_sectors;
    Ok(Space {
        file: file_sectors,
        groups: full.file_sectors - empty.file_sectors,
        catalog: full.catalog_sectors - empty.catalog_sectors,
        empty_catalog: empty.catalog_sectors,
        fixed: all - taken(&full),
        device: all,
    })
}

/// Its figures.
pub fn figures(space: &Space) -> Vec<Figure> {
    let figure = |metric: &str, value: f64| Figure {
        bench: "lec",
        case: format!("space of a {} GiB file", space.file >> 18),
        metric: metric.to_owned(),
        value,
        unit: "%",
        against: None,
    };
    let percent = |sectors: u64, of: f64| 100.0 * sectors as f64 / of;
    vec![
        figure("overhead_percent", percent(space.groups + space.catalog, space.file as f64) - 100.0),
        figure(
            "overhead_of_all_percent",
            percent(space.groups + space.catalog + space.empty_catalog + space.fixed, space.file as f64) - 100.0,
        ),
        // Whatever is stored: of the device, which is a quarter larger than the file.
        figure("journal_and_superblocks_percent", percent(space.fixed, space.device as f64)),
        figure("empty_catalog_percent", percent(space.empty_catalog, space.device as f64)),
        // A cost once, which does not grow with what is stored, nor with devices of more than 8 GiB.
        Figure {
            bench: "lec",
            case: format!("a disk of {:.1} GiB before anything is stored", space.device as f64 / f64::from(1 << 18)),
            metric: "fixed_mib".to_owned(),
            value: (space.fixed + space.empty_catalog) as f64 / 256.0,
            unit: "MiB",
            against: None,
        },
    ]
}

/// Content of file sectors from `first` on: each sector is known by any word of it.
fn fill(bytes: &mut [u8], first: u64) {
    for (sector, bytes) in (first..).zip(bytes.chunks_exact_mut(SECTOR_BYTES)) {
        for (at, word) in (0..).zip(bytes.chunks_exact_mut(8)) {
            word.copy_from_slice(&word_of(sector, at).to_le_bytes());
        }
    }
}

fn word_of(sector: u64, at: u64) -> u64 {
    (sector << 9 | at).wrapping_mul(ODD)
}

/// The file sector that has this content, if one has.
fn recognise(bytes: &[u8]) -> Option<u64> {
    let mut words = (0..).zip(bytes.chunks_exact(8));
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let first = word(&bytes[..8]).wrapping_mul(INVERSE);
    (first & 511 == 0 && words.all(|(at, bytes)| word(bytes) == word_of(first >> 9, at))).then_some(first >> 9)
}

/// A device in memory: see the module.
struct Recogniser {
    sectors: u64,
    kept: Mutex<Kept>,
}

/// What was written: sectors of the file by their number, others by their bytes.
#[derive(Default)]
struct Kept {
    of_file: Vec<u32>,
    others: BTreeMap<u64, Box<[u8]>>,
}

impl Recogniser {
    fn new(sectors: u64) -> Recogniser {
        let kept = Kept { of_file: vec![NOT_OF_FILE; sectors as usize], others: BTreeMap::new() };
        Recogniser { sectors, kept: Mutex::new(kept) }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for Recogniser {
    fn label(&self) -> String {
        "memory".to_owned()
    }

    fn geometry(&self) -> Geometry {
        Geometry { sectors: self.sectors, fails_fast: true, rotational: true }
    }

    fn read(&self, first: Sector, into: &mut [u8], _effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        self.geometry().range(first, into.len());
        let kept = self.kept();
        for (sector, into) in (first.0..).zip(into.chunks_exact_mut(SECTOR_BYTES)) {
            match (kept.of_file[sector as usize], kept.others.get(&sector)) {
                (NOT_OF_FILE, Some(bytes)) => into.copy_from_slice(bytes),
                (NOT_OF_FILE, None) => into.fill(0),
                (number, _) => fill(into, number.into()),
            }
        }
        Ok(Vec::new())
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        self.geometry().range(first, bytes.len());
        let mut kept = self.kept();
        for (sector, bytes) in (first.0..).zip(bytes.chunks_exact(SECTOR_BYTES)) {
            let number = recognise(bytes).and_then(|number| u32::try_from(number).ok()).unwrap_or(NOT_OF_FILE);
            kept.of_file[sector as usize] = number;
            if number == NOT_OF_FILE {
                kept.others.insert(sector, bytes.into());
            } else {
                kept.others.remove(&sector);
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.geometry().assert_holds(range);
        Ok(())
    }
}

/// Odd, so that multiplying by it can be undone; and the number that undoes it.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
const INVERSE: u64 = 0xf1de_83e1_9937_733d;
const _: () = assert!(ODD.wrapping_mul(INVERSE) == 1);
const NOT_OF_FILE: u32 = u32::MAX;
/// Sectors written and read at once: 1 MiB.
const AT_ONCE: u64 = 256;
/// Parts of the file that are read back.
const READ_BACK: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_reads_what_was_written() {
        let device = Recogniser::new(16);
        let mut bytes = vec![0; 4 * SECTOR_BYTES];
        fill(&mut bytes[..2 * SECTOR_BYTES], 77);
        bytes[2 * SECTOR_BYTES..].fill(9);
        fill(&mut bytes[3 * SECTOR_BYTES..], 5);
        bytes[4 * SECTOR_BYTES - 1] ^= 1;
        device.write(Sector(3), &bytes).expect("written");
        assert_eq!(device.kept().others.len(), 2, "a content that differs in a bit is none of the file's");
        let mut read = vec![1; 4 * SECTOR_BYTES];
        device.read(Sector(3), &mut read, Effort::FailFast).expect("read");
        assert!(read == bytes);
        device.write(Sector(3), &[8; SECTOR_BYTES]).expect("written");
        device.write(Sector(5), &bytes[..SECTOR_BYTES]).expect("written");
        device.read(Sector(3), &mut read, Effort::FailFast).expect("read");
        assert!(
            read[..SECTOR_BYTES] == [8; SECTOR_BYTES]
                && read[2 * SECTOR_BYTES..][..SECTOR_BYTES] == bytes[..SECTOR_BYTES]
        );
    }

    #[test]
    fn a_file_takes_what_its_groups_take() {
        let space = measure(1 << 14).expect("counted");
        let [overhead, all, fixed, empty, kept] = figures(&space).try_into().expect("five figures");
        // 5 of 250, and a checksum sector for each 1020.
        assert!((2.05..2.2).contains(&overhead.value), "{overhead:?}");
        let of_file = space.device as f64 / space.file as f64;
        assert!((all.value - overhead.value - (fixed.value + empty.value) * of_file).abs() < 1e-9, "{all:?}");
        assert!(fixed.value > 0.0 && empty.value > 0.0);
        let sectors = (fixed.value + empty.value) / 100.0 * space.device as f64;
        assert!((kept.value - sectors / 256.0).abs() < 1e-9, "{kept:?}");
    }
}
