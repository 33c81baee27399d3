//! One run: steps, the fault of its case, and after each crash all that was promised.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use claystone_env::{Random, SECTOR_BYTES, Sector};
use claystone_files::{FileError, FileTree, NewAttributes, NewNode, RenameMode};
use claystone_sim::{TraceSum, World};

use super::atlas::Atlas;
use super::case::{Case, Fault};
use super::model::{Model, ShapeChange};
use super::scenario::Step;
use super::subject::{CODE, SECTORS, Subject};

/// What a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskReport {
    /// Everything that happened, as one number.
    pub trace: TraceSum,
    /// Steps that were done.
    pub steps: u64,
    /// Steps that found no space.
    pub refused: u64,
    /// Operations of the device.
    pub operations: u64,
    /// Power cuts.
    pub cuts: u64,
    /// Operations of the device that failed.
    pub failed: u64,
    /// Sectors that failed softly.
    pub soft: u64,
    /// Sectors that were lost, flipped, stale or overwritten.
    pub hurt: u64,
    /// Whether the fault of a case with one fault was reached.
    pub reached: bool,
}

impl DiskReport {
    /// All faults.
    pub fn faults(&self) -> u64 {
        self.cuts + self.failed + self.soft + self.hurt
    }
}

/// Runs one case.
///
/// # Errors
/// What the disk did wrong, with the command that shows it again.
pub fn run_case(case: Case) -> Result<DiskReport> {
    claystone_sim::run(case.seed, |world| async move { Run::new(world, case)?.run_told() })
        .with_context(|| format!("replay it with: cargo run -p claystone-drill -- --case {case}"))
}

struct Run {
    world: World,
    case: Case,
    subject: Subject,
    model: Model,
    random: Arc<dyn Random>,
    /// Its draws do not shift the steps.
    faults: Arc<dyn Random>,
    atlas: Atlas,
    /// A cut or a failure is announced, and had not happened when last looked.
    armed: bool,
    /// One has happened since the disk was last opened after a crash.
    hit: bool,
    /// What sectors held before, to bring it back.
    former: BTreeMap<u64, Vec<u8>>,
    /// For who looks for what went wrong.
    last_steps: VecDeque<String>,
    report: DiskReport,
}

/// What came of a step.
enum Outcome {
    Done,
    /// There is no space; nothing changed, but for sectors of a write.
    Refused,
    /// The disk failed: the step happened, or not.
    Down(FileError),
}

impl Run {
    fn new(world: World, case: Case) -> Result<Run> {
        let subject = Subject::new(&world);
        let (random, faults) = (world.random().fork("steps"), world.random().fork("faults"));
        subject.format(&world).context("formatting")?;
        let mut run = Run {
            world,
            case,
            subject,
            model: Model::new(),
            random,
            faults,
            atlas: Atlas::new(CODE),
            armed: false,
            hit: false,
            former: BTreeMap::new(),
            last_steps: VecDeque::new(),
            report: DiskReport::default(),
        };
        run.subject.set_soft(match case.fault {
            // The same for each operation, so that all of one run are met.
            Fault::Cut(_) | Fault::Fail(_) => SOFT_RATE_ONCE,
            Fault::Crashes | Fault::Hurts => SOFT_RATES[run.faults.below(SOFT_RATES.len() as u64) as usize],
        });
        run.subject.open().context("opening what was formatted")?;
        Ok(run)
    }

    fn run_told(mut self) -> Result<DiskReport> {
        let result = self.run();
        result.with_context(|| format!("the last steps were\n{}", Vec::from(self.last_steps).join("\n")))
    }

    fn run(&mut self) -> Result<DiskReport> {
        match self.case.fault {
            Fault::Cut(after) => self.run_once(|device| device.cut_power_after(after))?,
            Fault::Fail(after) => self.run_once(|device| device.fail_after(after))?,
            Fault::Crashes => self.run_crashes()?,
            Fault::Hurts => self.run_hurts()?,
        }
        self.finish()?;
        let stats = self.subject.device.stats();
        Ok(DiskReport {
            trace: self.world.trace(),
            operations: stats.operations,
            soft: stats.soft_failures,
            ..self.report
        })
    }

    /// Steps until the one fault was survived, and a few more.
    fn run_once(&mut self, announce: impl FnOnce(&claystone_sim::SimDevice)) -> Result<()> {
        announce(&self.subject.device);
        self.armed = true;
        let mut left = STEPS_ONCE;
        while left > 0 {
            let was_armed = self.armed;
            self.step()?;
            left -= 1;
            if was_armed && !self.armed {
                self.report.reached = true;
                left = left.min(STEPS_AFTER);
            }
        }
        self.spare();
        Ok(())
    }

    fn run_crashes(&mut self) -> Result<()> {
        for _ in 0..ROUNDS {
            self.spare();
            let after = self.faults.below(1 << (3 + self.faults.below(8)));
            match self.faults.below(3) {
                0 => self.subject.device.fail_after(after),
                _ => self.subject.device.cut_power_after(after),
            }
            self.armed = true;
            for _ in 0..self.faults.below(STEPS) {
                self.step()?;
                if self.faults.below(8) == 0 {
                    self.hurt(Where::Copies);
                }
            }
            if self.faults.below(2) == 0 {
                // Without a fault under way, everything is as it was told.
                self.spare();
                self.model.verify(self.subject.disk()).context("between crashes")?;
                if self.faults.below(2) == 0 {
                    self.crash_and_recover()?;
                }
            }
        }
        self.spare();
        Ok(())
    }

    fn run_hurts(&mut self) -> Result<()> {
        for _ in 0..ROUNDS {
            for _ in 0..self.faults.below(STEPS) {
                self.step()?;
                for _ in 0..self.faults.below(8) {
                    self.hurt(Where::Anywhere);
                }
            }
            self.model
                .verify(self.subject.disk())
                .with_context(|| format!("{} sectors are hurt", self.atlas.count()))?;
        }
        Ok(())
    }

    /// All is right at the end, also after closing and opening.
    fn finish(&mut self) -> Result<()> {
        self.model.verify(self.subject.disk()).context("at the end")?;
        self.must("scrubbing at the end", |run| run.take(&Step::Scrub))?;
        self.subject.check().context("at the end")?;
        self.must("closing at the end", |run| run.take(&Step::Reopen))?;
        self.model.verify(self.subject.disk()).context("after closing and opening")?;
        self.subject.check().context("after closing and opening")
    }

    fn must(&mut self, what: &str, act: impl FnOnce(&mut Run) -> Result<Outcome>) -> Result<()> {
        match act(self)? {
            Outcome::Down(error) => bail!("{what}: {error}"),
            Outcome::Done | Outcome::Refused => Ok(()),
        }
    }

    // ---- Steps ----

    fn step(&mut self) -> Result<()> {
        let step = self.case.scenario.step(&self.model, &*self.random);
        self.tell(shown(&step));
        let outcome = self.take(&step).with_context(|| shown(&step))?;
        self.report.steps += 1;
        let down = match outcome {
            Outcome::Done => None,
            Outcome::Refused => {
                self.report.refused += 1;
                None
            }
            Outcome::Down(error) => Some(error),
        };
        self.look();
        if down.is_none() && self.subject.device.is_powered() {
            return Ok(());
        }
        if let Some(error) = down {
            ensure!(self.hit, "{} failed without a fault: {error}", shown(&step));
        }
        self.crash_and_recover()
    }

    fn tell(&mut self, what: String) {
        if self.last_steps.len() == LAST_STEPS {
            self.last_steps.pop_front();
        }
        self.last_steps.push_back(format!("  {}: {what}", self.report.steps));
    }

    /// Takes a step on the disk and in the model.
    fn take(&mut self, step: &Step) -> Result<Outcome> {
        let disk = self.subject.disk();
        match step {
            Step::Change(change) => self.take_change(change),
            Step::Write { inode, offset, bytes, seed, sync } => {
                let bytes = content(*seed, *bytes);
                let outcome = outcome_of(disk.write(*inode, *offset, &bytes))?;
                let content = self.model.content_mut(*inode);
                match outcome {
                    Outcome::Refused => {
                        if let Err(error) = content.write_in_part(disk, *inode, *offset, &bytes) {
                            // The disk failed now: any of the sectors may be there.
                            content.write(*offset, &bytes);
                            return outcome_of(Err::<(), _>(error.downcast::<FileError>()?));
                        }
                    }
                    _ if bytes.is_empty() => {}
                    _ => content.write(*offset, &bytes),
                }
                match outcome {
                    Outcome::Done if *sync => self.take(&Step::Sync { inode: *inode }),
                    outcome => Ok(outcome),
                }
            }
            Step::Cut { inode, bytes } => {
                let new = NewAttributes { bytes: Some(*bytes), ..NewAttributes::default() };
                let outcome = outcome_of(disk.set_attributes(*inode, &new))?;
                if !matches!(outcome, Outcome::Refused) {
                    self.model.content_mut(*inode).cut(*bytes);
                }
                Ok(outcome)
            }
            Step::Punch { inode, offset, bytes } => {
                let outcome = outcome_of(disk.punch(*inode, *offset, *bytes))?;
                if !matches!(outcome, Outcome::Refused) {
                    self.model.content_mut(*inode).punch(*offset, *bytes);
                }
                Ok(outcome)
            }
            Step::Allocate { inode, offset, bytes, keep_size } => {
                let outcome = outcome_of(disk.allocate(*inode, *offset, *bytes, *keep_size))?;
                if !matches!(outcome, Outcome::Refused) && !keep_size {
                    self.model.content_mut(*inode).grow(offset + bytes);
                }
                Ok(outcome)
            }
            Step::Read { inode, offset, bytes } => {
                match self.model.content(*inode).verify_part(disk, *inode, *offset, *bytes) {
                    Err(error) => outcome_of(Err::<(), _>(error.downcast::<FileError>()?)),
                    Ok(()) => Ok(Outcome::Done),
                }
            }
            Step::Open { inode } => {
                let outcome = outcome_of(disk.open(*inode))?;
                self.model.opened(*inode);
                Ok(outcome)
            }
            Step::Release { inode } => {
                disk.release(*inode);
                self.model.released(*inode);
                Ok(Outcome::Done)
            }
            Step::Sync { inode } => {
                let outcome = outcome_of(disk.sync(*inode))?;
                if matches!(outcome, Outcome::Done) {
                    self.model.synced(*inode);
                }
                Ok(outcome)
            }
            Step::SyncAll => {
                let outcome = outcome_of(disk.sync_all())?;
                if matches!(outcome, Outcome::Done) {
                    self.model.synced_all();
                }
                Ok(outcome)
            }
            Step::Tend => outcome_of(disk.tend()),
            Step::Scrub => {
                let found = match disk.scrub(&mut |_| true) {
                    Ok(found) => found,
                    Err(error) => return Ok(Outcome::Down(FileError::Failed { why: format!("scrubbing: {error}") })),
                };
                ensure!(found.lost.is_empty(), "the scrub finds {:?} lost", found.lost);
                let subject = &self.subject;
                self.atlas.mended(|sector| subject.is_scrubbed(sector));
                Ok(Outcome::Done)
            }
            Step::Reopen => self.reopen(),
        }
    }

    fn take_change(&mut self, change: &ShapeChange) -> Result<Outcome> {
        let disk = self.subject.disk();
        let mut change = change.clone();
        let result = match &mut change {
            ShapeChange::Make { directory, name, inode, kind, permissions, target } => {
                let node = NewNode {
                    kind: *kind,
                    permissions: *permissions,
                    owner: 0,
                    owner_group: 0,
                    device: 0,
                    target: target.clone(),
                };
                disk.make(*directory, name, &node).map(|made| *inode = Some(made.inode))
            }
            ShapeChange::Link { inode, directory, name } => disk.link(*inode, *directory, name).map(drop),
            ShapeChange::Remove { directory, name } => {
                let inode = self.model.shape().nodes()[directory].rows[name];
                match self.model.shape().nodes()[&inode].kind {
                    claystone_files::Kind::Directory => disk.remove_directory(*directory, name),
                    _ => disk.unlink(*directory, name),
                }
            }
            ShapeChange::Rename { from, to } => disk.rename((from.0, &from.1), (to.0, &to.1), RenameMode::Replace),
            ShapeChange::Exchange { from, to } => disk.rename((from.0, &from.1), (to.0, &to.1), RenameMode::Exchange),
            ShapeChange::SetPermissions { inode, permissions } => {
                let new = NewAttributes { permissions: Some(*permissions), ..NewAttributes::default() };
                disk.set_attributes(*inode, &new).map(drop)
            }
            ShapeChange::SetAttribute { inode, name, value } => match value {
                Some(value) => disk.set_attribute(*inode, name, value, None),
                None => disk.remove_attribute(*inode, name),
            },
        };
        let outcome = outcome_of(result)?;
        if !matches!(outcome, Outcome::Refused) {
            self.model.change(change);
        }
        Ok(outcome)
    }

    fn reopen(&mut self) -> Result<Outcome> {
        // What is open would be lost.
        for inode in self.model.open().clone() {
            self.take(&Step::Release { inode })?;
        }
        let closed = outcome_of(self.subject.take().close())?;
        match closed {
            Outcome::Done => self.model.synced_all(),
            Outcome::Refused => {}
            Outcome::Down(_) => return Ok(closed),
        }
        if let Err(error) = self.subject.open() {
            return Ok(Outcome::Down(FileError::Failed { why: format!("opening: {error}") }));
        }
        if matches!(closed, Outcome::Refused) {
            // Without space to be closed in it was left behind, as by a kill.
            self.model.recover(self.subject.disk()).context("after a close without space")?;
        }
        Ok(closed)
    }

    // ---- Faults ----

    /// Looks whether what was announced has happened.
    fn look(&mut self) {
        if self.armed && !self.subject.device.faults_to_come() {
            self.armed = false;
            self.hit = true;
            self.report.failed += u64::from(self.subject.device.is_powered());
        }
    }

    /// Takes back what was announced.
    fn spare(&mut self) {
        self.look();
        self.subject.device.spare_faults();
        self.armed = false;
    }

    /// The power goes, and what is found then is held against the model.
    fn crash_and_recover(&mut self) -> Result<()> {
        let nested = !matches!(self.case.fault, Fault::Hurts);
        for _ in 0..RECOVERIES_MAX {
            self.report.cuts += 1;
            self.tell(format!("crash during operation {} of the device", self.subject.device.stats().operations));
            self.subject.crash();
            (self.armed, self.hit) = (false, false);
            if nested && self.faults.below(3) == 0 {
                self.subject.device.cut_power_after(self.faults.below(150));
                self.armed = true;
            }
            match self.subject.open() {
                Ok(()) if self.subject.device.is_powered() => {
                    self.spare();
                    self.hit = false;
                    self.model.recover(self.subject.disk()).context("after a crash")?;
                    return self.subject.check().context("after a crash");
                }
                Ok(()) => {}
                Err(error) => {
                    let cause = anyhow::Error::from(error);
                    ensure!(self.armed && !self.subject.device.is_powered(), "opening after a crash: {cause:#}");
                }
            }
        }
        bail!("{RECOVERIES_MAX} power cuts in a row")
    }

    /// Hurts a sector in one of four ways, if the atlas lets it.
    fn hurt(&mut self, place: Where) {
        let found = (0..HURT_TRIES).find_map(|_| {
            let sector = self.faults.below(SECTORS);
            let content = self.subject.device.content(Sector(sector))?;
            let empty = content.iter().all(|&byte| byte == 0);
            (!empty && (place == Where::Anywhere || self.subject.is_copy(sector))).then_some((sector, content))
        });
        let Some((sector, content)) = found else { return };
        let former = self.former.insert(sector, content.clone());
        if !self.atlas.hurts(sector, &content) {
            return;
        }
        let device = &self.subject.device;
        self.report.hurt += 1;
        let kind = self.faults.below(4);
        self.world.note("hurt", &[sector, kind]);
        match (kind, former) {
            (0, _) => device.flip_bit(Sector(sector), self.faults.below(SECTOR_BYTES as u64 * 8) as usize),
            // A write that went astray hit it: it holds another sector's bytes.
            (1, _) => {
                let other = self.former.keys().nth(self.faults.below(self.former.len() as u64) as usize);
                let bytes = other.map_or(content, |other| self.former[other].clone());
                // The device may have lost its power; then the write does nothing.
                let _ = device.attach().write(Sector(sector), &bytes);
            }
            // A write that went astray missed it: it holds what it held before. Copies cannot tell that.
            (2, Some(former)) if !self.subject.is_copy(sector) && !content.starts_with(b"CLAYSUMS") => {
                let _ = device.attach().write(Sector(sector), &former);
            }
            _ => device.make_lost(sector..sector + 1),
        }
    }
}

/// Where sectors may be hurt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    /// Where crashes spare them: copies are written in whole turns, so those of older things are never at risk at once.
    Copies,
    Anywhere,
}

/// Steps of a run with one fault, unless it comes earlier.
const STEPS_ONCE: u64 = 14;
/// Steps of a round at most.
const STEPS: u64 = 30;
/// Steps after the one fault.
const STEPS_AFTER: u64 = 6;
/// Shown of a run that failed.
const LAST_STEPS: usize = 20;
const ROUNDS: u64 = 8;
/// Most sectors of a device are empty.
const HURT_TRIES: u64 = 20;
const RECOVERIES_MAX: u64 = 40;
/// How often sectors fail softly; each run with random faults has one of them.
const SOFT_RATES: [f64; 5] = [0.0, 1e-3, 1e-2, 0.1, 0.3];
/// The same for runs with one fault.
const SOFT_RATE_ONCE: f64 = 0.1;

fn outcome_of<T>(result: Result<T, FileError>) -> Result<Outcome> {
    match result {
        Ok(_) => Ok(Outcome::Done),
        Err(FileError::NoSpace) => Ok(Outcome::Refused),
        Err(error @ (FileError::Failed { .. } | FileError::ReadOnly { .. })) => Ok(Outcome::Down(error)),
        Err(error) => Err(error.into()),
    }
}

/// Bytes that look like no others: each sector has the seed and its number.
fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let mut content = Vec::with_capacity(bytes + 8);
    while content.len() < bytes {
        // splitmix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        content.extend_from_slice(&(mixed ^ (mixed >> 27)).to_le_bytes());
    }
    content.truncate(bytes);
    content
}

fn shown(step: &Step) -> String {
    let mut shown = format!("{step:?}");
    shown.truncate(200);
    shown
}
