//! What soft failures cost the same four workloads through files: by the calls and the request sizes of a mount, down to an
//! emulated drive.
//!
//! The ideal is the same disk on a drive none of whose reads ever fails. The program's time is added to the drive's on both
//! sides, as if the drive stood still meanwhile. Requests come one after the other, so that a run is the same each time; through
//! a mount several are under way, and what one mending waits for, others bring.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use claystone_env::{Clock, Random, SECTOR_BYTES};
use claystone_files::{Disk, FileTree, Format, Inode, Kind, NewNode, Tuning};
use claystone_group::GroupShape;
use claystone_sim::{World, run};

use super::drive::{Drive, Took, check, content};
use super::workloads::{RETRY_MS, Workload};
use crate::rows::{Against, Figure};

/// What a workload took.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    failing: Took,
    ideal: Took,
}

/// Runs a workload with failures and without.
///
/// # Errors
/// The disk or its drive failed.
pub fn costs(workload: Workload, shape: GroupShape, soft: f64) -> anyhow::Result<Costs> {
    Ok(Costs { failing: took(workload, shape, soft)?, ideal: took(workload, shape, 0.0)? })
}

/// The figures of a workload, and how much slower than the ideal it is, in per cent.
pub fn figures(workload: Workload, shape: GroupShape, costs: &Costs) -> (Vec<Figure>, f64) {
    let seconds = |took: Took| (took.drive + took.software).as_secs_f64();
    let percent = |of: f64, than: f64| 100.0 * (of / than - 1.0);
    let figure = |metric: &str, value, unit, against: Option<(&str, f64)>| Figure {
        bench: "lec",
        case: format!("{} of files rs:{}+{}", workload.name(), shape.data, shape.parity),
        metric: metric.to_owned(),
        value,
        unit,
        against: against.map(|(name, value)| Against { name: name.to_owned(), value }),
    };
    let (failing, ideal) = (seconds(costs.failing), seconds(costs.ideal));
    let slowdown = percent(failing, ideal);
    let drives = percent(costs.failing.drive.as_secs_f64(), costs.ideal.drive.as_secs_f64());
    let figures = vec![
        figure("coded_s", failing, "s", Some(("never fails", ideal))),
        figure("slowdown_percent", slowdown, "%", None),
        figure("slowdown_of_drive_percent", drives, "%", None),
    ];
    (figures, slowdown)
}

/// Runs a workload on a new disk.
fn took(workload: Workload, shape: GroupShape, soft: f64) -> anyhow::Result<Took> {
    run(70 + workload as u64, |world| async move {
        let drive = Drive::new(&world, Duration::from_millis(RETRY_MS), shape);
        let (disk, inode) = disk_with_file(&world, &drive, shape)?;
        drive.fail_softly(soft);
        let random = world.random().fork("places");
        let mut work = Work { drive: &drive, disk: &disk, inode, all: Took::default() };
        match workload {
            Workload::Scan => work.scan()?,
            Workload::RandomReads => work.random_reads(&*random)?,
            Workload::Sort => work.sort(shape)?,
            Workload::Updates => work.updates(&*random, soft)?,
        }
        Ok(work.all)
    })
}

/// A disk with a file, opened anew, so that no checksums are in memory.
fn disk_with_file(world: &World, drive: &Drive, shape: GroupShape) -> anyhow::Result<(Disk, Inode)> {
    let format = Format {
        data: shape.data as u16,
        parity: shape.parity as u16,
        copies: 2,
        soft_failures: 1e-3,
        loss_target: 1e-6,
        label: String::new(),
    };
    let clock: Arc<dyn Clock> = world.clock();
    let device = drive.shared();
    Disk::format(&device, &format, &*clock, world.random())?;
    let disk = Disk::open(device.clone(), clock.clone(), Tuning::default())?;
    let inode = make(&disk, b"file")?;
    for first in (0..FILE_SECTORS).step_by(REQUEST as usize) {
        disk.write(inode, first * BYTES, &joined(first, REQUEST.min(FILE_SECTORS - first)))?;
    }
    disk.close()?;
    Ok((Disk::open(device, clock, Tuning::default())?, inode))
}

fn make(disk: &Disk, name: &[u8]) -> anyhow::Result<Inode> {
    let node =
        NewNode { kind: Kind::File, permissions: 0o644, owner: 0, owner_group: 0, device: 0, target: Vec::new() };
    Ok(disk.make(Inode::ROOT, name, &node)?.inode)
}

fn joined(first: u64, sectors: u64) -> Vec<u8> {
    (first..first + sectors).flat_map(|number| content(number).iter().copied()).collect()
}

struct Work<'a> {
    drive: &'a Drive,
    disk: &'a Disk,
    inode: Inode,
    all: Took,
}

impl Work<'_> {
    fn scan(&mut self) -> anyhow::Result<()> {
        for _ in 0..SCANS {
            self.read(self.inode, 0..FILE_SECTORS, 0)?;
        }
        Ok(())
    }

    fn random_reads(&mut self, random: &dyn Random) -> anyhow::Result<()> {
        for number in 0..RANDOM_READS {
            let sectors = 1 << (number % 5);
            let first = random.below(FILE_SECTORS - sectors + 1);
            self.read(self.inode, first..first + sectors, first)?;
        }
        Ok(())
    }

    /// As the sort of groups: pieces are read and written as runs, and the runs are read in turns and written as one.
    fn sort(&mut self, shape: GroupShape) -> anyhow::Result<()> {
        let run_sectors = u64::from(shape.data) * if shape.data > 512 { 4 } else { 16 };
        let runs = FILE_SECTORS / run_sectors;
        let (sorted, merged) = (make(self.disk, b"runs")?, make(self.disk, b"merged")?);
        for number in 0..runs {
            let first = number * run_sectors;
            self.read(self.inode, first..first + run_sectors, first)?;
            self.write(sorted, first, run_sectors)?;
        }
        self.sync(sorted)?;
        let quarter = run_sectors / 4;
        for number in 0..runs {
            for part in 0..4 {
                let source = number / 4 * 4 + part;
                if source < runs {
                    let first = source * run_sectors + number % 4 * quarter;
                    self.read(sorted, first..first + quarter, first)?;
                }
            }
            self.write(merged, number * run_sectors, run_sectors)?;
        }
        self.sync(merged)
    }

    fn updates(&mut self, random: &dyn Random, soft: f64) -> anyhow::Result<()> {
        for number in 1..=UPDATES {
            let first = random.below(FILE_SECTORS - UPDATED + 1);
            self.write(self.inode, first, UPDATED)?;
            if number.is_multiple_of(50) {
                self.sync(self.inode)?;
                // Not part of the work: it is read back.
                self.drive.fail_softly(0.0);
                let read = self.disk.read_bytes(self.inode, first * BYTES, (UPDATED * BYTES) as usize)?;
                check(first, &read);
                self.drive.fail_softly(soft);
            }
        }
        // The journal may have taken all of them so far.
        self.all += self.drive.time(|| self.disk.sync_all())?;
        Ok(())
    }

    /// Reads sectors as a mount does, and checks them; `number` is that of the first one's content.
    fn read(&mut self, inode: Inode, sectors: std::ops::Range<u64>, number: u64) -> anyhow::Result<()> {
        let mut short = vec![0; (OWN_SECTORS_MIN * BYTES) as usize];
        for first in sectors.clone().step_by(REQUEST as usize) {
            let count = REQUEST.min(sectors.end - first);
            let bytes = (count * BYTES) as usize;
            let number = number + (first - sectors.start);
            if count < OWN_SECTORS_MIN {
                self.all += self.drive.time(|| self.disk.read(inode, first * BYTES, &mut short[..bytes]).map(drop))?;
                check(number, &short[..bytes]);
            } else {
                let mut read = None;
                self.all += self.drive.time(|| {
                    read = Some(self.disk.read_bytes(inode, first * BYTES, bytes)?);
                    Ok::<_, anyhow::Error>(())
                })?;
                let read = read.unwrap_or_default();
                ensure!(read.len() == bytes, "{} of {bytes} bytes", read.len());
                check(number, &read);
            }
        }
        Ok(())
    }

    fn write(&mut self, inode: Inode, first: u64, sectors: u64) -> anyhow::Result<()> {
        for first in
            (first..first + sectors).step_by(REQUEST as usize).map(|at| at..(at + REQUEST).min(first + sectors))
        {
            let bytes = joined(first.start, first.end - first.start);
            self.all += self.drive.time(|| self.disk.write(inode, first.start * BYTES, &bytes))?;
        }
        Ok(())
    }

    fn sync(&mut self, inode: Inode) -> anyhow::Result<()> {
        self.all += self.drive.time(|| self.disk.sync(inode))?;
        Ok(())
    }
}

const BYTES: u64 = SECTOR_BYTES as u64;
/// What the kernel asks a mount for at once,
const REQUEST: u64 = 256;
/// and from where on the mount takes the disk's own buffers.
const OWN_SECTORS_MIN: u64 = 16;
const FILE_SECTORS: u64 = 40_000;
const SCANS: usize = 3;
const RANDOM_READS: u32 = 3000;
const UPDATES: u32 = 400;
const UPDATED: u64 = 50;
