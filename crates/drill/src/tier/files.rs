//! Files on a tiered device: the power of both drives is cut in operations of a mixed load, in branches of one run, and what was synced
//! of each file is there. Or the solid-state drive dies under a mixed load, and later the power goes, in a run for each death.
//!
//! Invariants:
//! 1. Of a file that was synced and not written since, every byte is there. Of one that was written since, each byte is as it was synced, or as some
//!    write since then left it, and it is no longer and no shorter than it was since then.
//! 2. Where the solid-state drive died, the same is true of every sector that reads; one that it alone had is an error, and the disk may
//!    refuse to open. Not if it was tended before the power went, and took writes still: then it opens, unless the drive had pages of the
//!    catalog that memory has not, and each sector that read before and was synced reads.
//! 3. A seed replays a run exactly.
//!
//! Left out: names. All files are made and synced before the first cut.

use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use claystone_env::{Clock, Device, Random, SECTOR_BYTES};
use claystone_files::{Disk, FileError, FileTree, Format, Inode, Kind, NewAttributes, NewNode, Tuning};
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

/// What runs met in which the solid-state drive died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeathReport {
    /// Runs, with one death each.
    pub deaths: u64,
    /// Of them, those of which the disk knew before the power went.
    pub known: u64,
    /// Of these, those after which it was tended and took writes still,
    pub tended: u64,
    /// and after which it took none: parts of its catalog were lost.
    pub stopped: u64,
    /// Disks that refused to open.
    pub refused: u64,
    /// Sectors of files that were compared after the power cut,
    pub compared: u64,
    /// and those that were an error.
    pub lost: u64,
}

impl AddAssign for DeathReport {
    fn add_assign(&mut self, more: DeathReport) {
        self.deaths += more.deaths;
        self.known += more.known;
        self.tended += more.tended;
        self.stopped += more.stopped;
        self.refused += more.refused;
        self.compared += more.compared;
        self.lost += more.lost;
    }
}

impl fmt::Display for DeathReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeathReport { deaths, known, tended, stopped, refused, compared, lost } = self;
        write!(
            f,
            "{deaths} deaths of the solid-state drive, {known} of them known: {tended} disks tended, {stopped} stopped, {refused} refused, \
             {compared} sectors compared, {lost} lost"
        )
    }
}

/// Runs a seed: some deaths.
///
/// # Errors
/// What was promised and is not there, nor said to be lost.
pub fn run_deaths(seed: u64) -> Result<DeathReport> {
    claystone_sim::run(seed, async |world| {
        let mut all = DeathReport::default();
        for number in 0..DEATHS {
            let run = Run::new(seed * DEATHS + number, world.clock())?;
            all += run.dies().with_context(|| format!("death {number}"))?;
        }
        Ok::<_, anyhow::Error>(all)
    })
    .with_context(|| format!("replay it with: cargo run -p claystone-drill -- --tier --seed {seed}"))
}

/// A file as callers know it: as it was synced last, and as each write since then left it.
#[derive(Debug, Clone)]
struct File {
    inode: Inode,
    versions: Vec<Vec<u8>>,
    /// A write to it failed: it may be there or not, and nothing is written on top of it.
    unsure: bool,
}

impl File {
    fn newest(&self) -> &[u8] {
        self.versions.last().expect("there is one at least")
    }

    fn check(&self, found: &[u8]) -> Result<()> {
        self.check_length(found.len())?;
        self.check_part(0, found)
    }

    fn check_length(&self, found: usize) -> Result<()> {
        let bytes = || self.versions.iter().map(Vec::len);
        let (least, most) = (bytes().min().unwrap_or(0), bytes().max().unwrap_or(0));
        ensure!((least..=most).contains(&found), "it has {found} bytes, and had {least} to {most}");
        Ok(())
    }

    fn check_part(&self, first: usize, found: &[u8]) -> Result<()> {
        for (at, byte) in (first..).zip(found) {
            // Parts of a write may be there. Where it was longer since then, what is behind the end of a version is zeros.
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
        let files = made
            .map(|made| Ok(File { inode: made?.inode, versions: vec![Vec::new()], unsure: false }))
            .collect::<Result<_>>()?;
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
                self.pair.tiered().index();
            }
            Step::Drain => drop(self.pair.tiered().drain()?),
        }
        Ok(())
    }

    // ---- The solid-state drive dies ----

    fn dies(mut self) -> Result<DeathReport> {
        let mut report = DeathReport { deaths: 1, ..DeathReport::default() };
        // Else pages of the catalog may be lost that memory never had, or that only its database has.
        let is_home_first = self.random.below(4) > 0;
        while is_home_first && self.pair.tiered().drain()?.more {}
        for number in 0..self.random.below(STEPS) {
            self.take(number, false)?;
        }
        match self.random.below(3) {
            0 => {}
            1 => drop(self.pair.tiered().drain()?),
            _ => while self.pair.tiered().drain()?.more {},
        }
        for number in 0..self.random.below(STEPS_BESIDE) {
            self.take(number, false)?;
        }
        self.pair.ssd.set_removed(true);
        for number in 0..self.random.below(STEPS_BESIDE) {
            self.take(number, true)?;
        }
        while self.pair.tiered().drain()?.more {}
        let is_known = !self.pair.tiered().info().ssd_works;
        report.known = is_known.into();
        let mut readable = Vec::new();
        if is_known && self.random.below(2) == 0 {
            // What it says is for the log of a real one.
            let tended = self.disk.tend();
            if tended.is_ok() && self.disk.info().failed.is_none() {
                report.tended = 1;
                for number in 0..self.random.below(STEPS_BESIDE) {
                    self.take(number, true)?;
                }
            }
        }
        let works = self.disk.info().failed.is_none();
        report.stopped = (is_known && !works).into();
        let compared = compare(&self.disk, &self.files).context("while it is open")?;
        if report.tended > 0 && works {
            readable = compared;
        }
        self.pair.crash();
        if !is_known {
            // It died before anybody used it again, and is back.
            self.pair.ssd.set_removed(false);
        }
        self.pair.open(!is_known).context("opening the pair")?;
        let lost_sectors = self.pair.tiered().info().lost_sectors;
        let device: Arc<dyn Device> = self.pair.tiered().clone();
        let disk = match Disk::open(device, self.clock.clone(), Tuning::default()) {
            Ok(disk) => disk,
            Err(error) => {
                let may_refuse = lost_sectors > 0 && (report.tended == 0 || !works || !is_home_first);
                ensure!(may_refuse, "it does not open: {:#}", anyhow::Error::from(error));
                report.refused = 1;
                return Ok(report);
            }
        };
        let found = compare(&disk, &self.files)?;
        report.compared = found.iter().map(|of_file| of_file.len() as u64).sum();
        report.lost = found.iter().flatten().flatten().count() as u64;
        ensure!(report.lost == 0 || lost_sectors > 0, "{} sectors are lost, and none is said to be", report.lost);
        for ((name, file), (before, after)) in
            (b'a'..).map(char::from).zip(&self.files).zip(readable.iter().zip(&found))
        {
            // Of one that was written since, memory had what is gone with it.
            if file.versions.len() > 1 {
                continue;
            }
            for (sector, (before, after)) in before.iter().zip(after).enumerate() {
                let is_gone = before.is_none() && after.is_some();
                ensure!(!is_gone, "sector {sector} of file {name} could be read before, and cannot now: {after:?}");
            }
        }
        Ok(report)
    }

    /// A step without a power cut; it may fail.
    fn take(&mut self, number: u64, may_fail: bool) -> Result<()> {
        let step = self.step();
        let written = match &step {
            Step::Write { file, .. } | Step::Cut { file, .. } => Some(*file),
            Step::Sync { .. } | Step::SyncAll | Step::Tend | Step::Drain => None,
        };
        if written.is_some_and(|file| self.files[file].unsure) {
            return Ok(());
        }
        begin(&mut self.files, &step);
        match (self.act(&step), written) {
            (Ok(()), _) => end(&mut self.files, &step),
            (Err(error), _) if !may_fail => return Err(error.context(format!("step {number}"))),
            (Err(_), Some(file)) => self.files[file].unsure = true,
            (Err(_), None) => {}
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

/// Compares what of each file reads, sector by sector. Returns of each why it did not.
fn compare(disk: &Disk, files: &[File]) -> Result<Vec<Vec<Option<FileError>>>> {
    let mut all = Vec::new();
    for (name, file) in (b'a'..).zip(files) {
        let context = || format!("file {}", char::from(name));
        let found = match disk.lookup(Inode::ROOT, &[name]) {
            Ok(found) => found,
            Err(error @ (FileError::Failed { .. } | FileError::Lost { .. })) => {
                all.push(vec![Some(error); file.newest().len().div_ceil(SECTOR_BYTES)]);
                continue;
            }
            Err(error) => return Err(error).with_context(context),
        };
        let bytes = found.bytes as usize;
        file.check_length(bytes).with_context(context)?;
        let mut of_file = Vec::new();
        for first in (0..bytes).step_by(SECTOR_BYTES) {
            let mut part = vec![0; SECTOR_BYTES.min(bytes - first)];
            match disk.read(found.inode, first as u64, &mut part) {
                Ok(read) => {
                    ensure!(read == part.len(), "{read} of {} bytes", part.len());
                    file.check_part(first, &part).with_context(context)?;
                    of_file.push(None);
                }
                Err(error @ (FileError::Failed { .. } | FileError::Lost { .. })) => of_file.push(Some(error)),
                Err(error) => return Err(error).with_context(context),
            }
        }
        all.push(of_file);
    }
    Ok(all)
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
    for file in synced.iter_mut().filter(|file| !file.unsure) {
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
/// Deaths of the solid-state drive of one seed,
const DEATHS: u64 = 20;
/// and fewer steps than these right before one, as many behind it, and as many behind its being known.
const STEPS_BESIDE: u64 = 8;
