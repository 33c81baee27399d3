//! Files on a tiered device: the power of both drives is cut in operations of a mixed load, in branches of one run, and what was synced
//! of each file is there.
//!
//! Invariants:
//! 1. Of a file that was synced and not written since, every byte is there. Of one that was written since, each byte is as it was synced, or as some
//!    write since then left it, and it is no longer and no shorter than it was since then.
//! 2. A seed replays a run exactly.
//!
//! Left out: names. All files are made and synced before the first cut.

use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claystone_env::{Clock, Device, Random};
use claystone_files::{Disk, FileTree, Format, Inode, Kind, NewAttributes, NewNode, Tuning};
use claystone_sim::SimRandom;

use super::pair::{Pair, PairMoment};

/// What a run met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FilesReport {
    /// Steps that were done.
    pub steps: u64,
    /// Power cuts.
    pub cuts: u64,
    /// Files that were compared after one.
    pub compared: u64,
    /// Sectors that were redirected to the hard disk's log.
    pub redirected: u64,
}

impl AddAssign for FilesReport {
    fn add_assign(&mut self, more: FilesReport) {
        self.steps += more.steps;
        self.cuts += more.cuts;
        self.compared += more.compared;
        self.redirected += more.redirected;
    }
}

impl fmt::Display for FilesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FilesReport { steps, cuts, compared, redirected } = self;
        write!(
            f,
            "{cuts} power cuts in {steps} steps of files, {compared} files compared, {redirected} sectors redirected"
        )
    }
}

/// Runs a seed.
///
/// # Errors
/// What was promised and is not there.
pub fn run_files(seed: u64) -> Result<FilesReport> {
    claystone_sim::run(seed, async |world| Run::new(seed, world.clock())?.run())
        .with_context(|| format!("replay it with: cargo run -p claystone-drill -- --tier --seed {seed}"))
}

/// A file as callers know it: as it was synced last, and as each write since then left it.
#[derive(Debug, Clone)]
struct File {
    inode: Inode,
    versions: Vec<Vec<u8>>,
}

impl File {
    fn newest(&self) -> &[u8] {
        self.versions.last().expect("there is one at least")
    }

    fn check(&self, found: &[u8]) -> Result<()> {
        // Parts of a write may be there.
        let bytes = || self.versions.iter().map(Vec::len);
        let (least, most) = (bytes().min().unwrap_or(0), bytes().max().unwrap_or(0));
        ensure!((least..=most).contains(&found.len()), "it has {} bytes, and had {least} to {most}", found.len());
        for (at, byte) in found.iter().enumerate() {
            // Where it was longer since then, what is behind the end of a version is zeros.
            let may_be = |version: &Vec<u8>| version.get(at).copied().unwrap_or(0) == *byte;
            ensure!(self.versions.iter().any(may_be), "byte {at} is {byte}, of {} versions", self.versions.len());
        }
        Ok(())
    }
}

enum Step {
    Write { file: usize, offset: usize, bytes: Vec<u8> },
    Cut { file: usize, bytes: usize },
    Sync { file: usize },
    SyncAll,
    Tend,
    Drain,
}

struct Run {
    pair: Pair,
    disk: Disk,
    clock: Arc<dyn Clock>,
    files: Vec<File>,
    random: SimRandom,
    report: FilesReport,
}

impl Run {
    fn new(seed: u64, clock: Arc<dyn Clock>) -> Result<Run> {
        let mut pair = Pair::of(seed, HOME, LOG)?;
        pair.open(true)?;
        let random = SimRandom::new(seed);
        let format =
            Format { data: 6, parity: 2, copies: 2, soft_failures: 1e-3, loss_target: 1e-3, label: String::new() };
        let device: Arc<dyn Device> = pair.tiered().clone();
        Disk::format(&device, &format, &*clock, &random).context("formatting")?;
        let disk = Disk::open(device, clock.clone(), Tuning::default()).context("opening what was formatted")?;
        let node =
            NewNode { kind: Kind::File, permissions: 0o600, owner: 0, owner_group: 0, device: 0, target: Vec::new() };
        let made = (0..FILES).map(|number| disk.make(Inode::ROOT, &[b'a' + number], &node));
        let files =
            made.map(|made| Ok(File { inode: made?.inode, versions: vec![Vec::new()] })).collect::<Result<_>>()?;
        disk.sync_all()?;
        Ok(Run { pair, disk, clock, files, random, report: FilesReport::default() })
    }

    fn run(mut self) -> Result<FilesReport> {
        self.pair.keep_moments(true);
        for number in 0..STEPS {
            let step = self.step();
            let mut during = self.files.clone();
            begin(&mut during, &step);
            self.act(&step).with_context(|| format!("step {number}"))?;
            self.report.steps += 1;
            for moment in self.pair.take_moments() {
                if self.random.below(CUT_ONE_OF) == 0 {
                    self.cut(&moment, &during).with_context(|| format!("a power cut in step {number}"))?;
                }
            }
            begin(&mut self.files, &step);
            end(&mut self.files, &step);
        }
        let redirected = self.pair.tiered().info().counts.redirected_sectors;
        Ok(FilesReport { redirected, ..self.report })
    }

    fn step(&self) -> Step {
        let file = self.random.below(FILES.into()) as usize;
        match self.random.below(12) {
            0..6 => {
                let newest = self.files[file].newest().len();
                let offset = self.random.below(newest as u64 + 1) as usize;
                let bytes = [1, 100, 4096, 20_000, 90_000][self.random.below(5) as usize];
                let bytes = bytes.min(FILE_BYTES_MAX - offset.min(FILE_BYTES_MAX - 1));
                let mut content = vec![0; bytes];
                self.random.fill(&mut content);
                Step::Write { file, offset: offset.min(FILE_BYTES_MAX - 1), bytes: content }
            }
            6 => Step::Cut { file, bytes: self.random.below(self.files[file].newest().len() as u64 + 1) as usize },
            7..10 => Step::Sync { file },
            10 => [Step::SyncAll, Step::Drain].into_iter().nth(self.random.below(2) as usize).expect("one of two"),
            _ => Step::Tend,
        }
    }

    fn act(&self, step: &Step) -> Result<()> {
        match step {
            Step::Write { file, offset, bytes } => self.disk.write(self.files[*file].inode, *offset as u64, bytes)?,
            Step::Cut { file, bytes } => {
                let shorter = NewAttributes { bytes: Some(*bytes as u64), ..NewAttributes::default() };
                self.disk.set_attributes(self.files[*file].inode, &shorter)?;
            }
            Step::Sync { file } => self.disk.sync(self.files[*file].inode)?,
            Step::SyncAll => self.disk.sync_all()?,
            Step::Tend => {
                self.disk.tend()?;
                self.pair.tiered().tend()?;
            }
            Step::Drain => drop(self.pair.tiered().drain()?),
        }
        Ok(())
    }

    /// The power goes at a moment, in a branch.
    fn cut(&mut self, moment: &PairMoment, files: &[File]) -> Result<()> {
        let random = SimRandom::new(self.random.next_u64());
        let mut pair = self.pair.branch(moment, &random);
        pair.open(true).context("opening the pair")?;
        let device: Arc<dyn Device> = pair.tiered().clone();
        let disk = Disk::open(device, self.clock.clone(), Tuning::default()).context("opening the disk")?;
        self.report.cuts += 1;
        let check = disk.check()?;
        ensure!(check.problems.is_empty(), "the disk finds {:?}", check.problems);
        for (name, file) in (b'a'..).zip(files) {
            let found = disk.lookup(Inode::ROOT, &[name]).with_context(|| format!("file {}", char::from(name)))?;
            let mut bytes = vec![0; found.bytes as usize];
            let read = disk.read(found.inode, 0, &mut bytes)?;
            ensure!(read == bytes.len(), "{read} of {} bytes", bytes.len());
            file.check(&bytes).with_context(|| format!("file {}", char::from(name)))?;
            self.report.compared += 1;
        }
        Ok(())
    }
}

/// A step has begun: what files may hold after a power cut.
fn begin(files: &mut [File], step: &Step) {
    match step {
        Step::Write { file, offset, bytes } => {
            let mut content = files[*file].newest().to_vec();
            content.resize(content.len().max(offset + bytes.len()), 0);
            content[*offset..offset + bytes.len()].copy_from_slice(bytes);
            files[*file].versions.push(content);
        }
        Step::Cut { file, bytes } => {
            let mut content = files[*file].newest().to_vec();
            content.truncate(*bytes);
            files[*file].versions.push(content);
        }
        Step::Sync { .. } | Step::SyncAll | Step::Tend | Step::Drain => {}
    }
}

/// A step has ended: what was synced is all that files may hold.
fn end(files: &mut [File], step: &Step) {
    let synced: &mut [File] = match step {
        Step::Sync { file } => &mut files[*file..=*file],
        Step::SyncAll => files,
        Step::Write { .. } | Step::Cut { .. } | Step::Tend | Step::Drain => &mut [],
    };
    for file in synced {
        file.versions.drain(..file.versions.len() - 1);
    }
}

const HOME: u64 = 4096;
/// As short as is little more than what stays free.
const LOG: u64 = 400;
const FILES: u8 = 5;
const FILE_BYTES_MAX: usize = 300_000;
const STEPS: u64 = 60;
/// Of the operations in which the power could go, it goes in one of so many.
const CUT_ONE_OF: u64 = 2;
