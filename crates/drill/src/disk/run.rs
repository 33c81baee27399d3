//! One run: steps, the fault of its case, and after each crash all that was promised.

mod beyond;
mod cuts;
mod fails;
mod steps;
mod works;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use claystone_env::{Random, SECTOR_BYTES, Sector};
use claystone_files::FileError;
use claystone_sim::World;

use super::case::{Case, Fault};
use super::model::Model;
use super::report::{DiskReport, FaultCounts};
use super::scale::Scale;
use super::scenario::Step;
use super::subject::Subject;

/// Runs one case.
///
/// # Errors
/// What the disk did wrong, with the command that shows it again.
pub fn run_case(case: Case) -> Result<DiskReport> {
    claystone_sim::run(case.seed, |world| async move { Run::new(world, case).run_told() })
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
    /// A cut or a failure is announced, and had not happened when last looked.
    armed: bool,
    /// One has happened since the disk was last opened after a crash.
    hit: bool,
    /// Sums sectors, as last looked for.
    sums: Vec<u64>,
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
    fn new(world: World, case: Case) -> Run {
        let subject = Subject::new(&world, case.scale);
        let (random, faults) = (world.random().fork("steps"), world.random().fork("faults"));
        Run {
            world,
            case,
            subject,
            model: Model::new(),
            random,
            faults,
            sums: Vec::new(),
            armed: false,
            hit: false,
            former: BTreeMap::new(),
            last_steps: VecDeque::new(),
            report: DiskReport::default(),
        }
    }

    /// Makes the disk, and opens it.
    fn start(&mut self) -> Result<()> {
        self.subject.format(&self.world, LABEL).context("formatting")?;
        let rate = match self.case.fault {
            // The same for each operation, so that all of one run are met.
            Fault::Cut(..) | Fault::Fail(..) | Fault::Cuts | Fault::Fails | Fault::Storm => SOFT_RATE_ONCE,
            Fault::Beyond(_) => 0.0,
            Fault::Crashes | Fault::Hurts => SOFT_RATES[self.faults.below(SOFT_RATES.len() as u64) as usize],
        };
        // Runs of the small scale are as they were when they found something.
        let burst_sectors = match self.case.scale {
            Scale::Small => 0.0,
            _ => BURST_SECTORS[self.faults.below(BURST_SECTORS.len() as u64) as usize],
        };
        self.subject.set_soft(rate, burst_sectors);
        self.model.streams = self.case.scale != Scale::Small || self.case.fault == Fault::Hurts;
        if self.case.fault == Fault::Hurts {
            self.subject.do_mischief(self.world.random().fork("mischief"));
        }
        self.subject.open().context("opening what was formatted")
    }

    fn run_told(mut self) -> Result<DiskReport> {
        let result = self.run();
        result.with_context(|| format!("the last steps were\n{}", Vec::from(self.last_steps).join("\n")))
    }

    fn run(&mut self) -> Result<DiskReport> {
        self.start()?;
        match self.case.fault {
            Fault::Cut(work, after) => self.run_once(work, &|device| device.cut_power_after(after))?,
            Fault::Fail(work, after) => self.run_once(work, &|device| device.fail_after(after))?,
            Fault::Cuts => self.run_cuts()?,
            Fault::Fails => self.run_fails()?,
            Fault::Crashes => self.run_crashes()?,
            Fault::Storm => self.run_storm()?,
            Fault::Hurts => self.run_hurts()?,
            Fault::Beyond(after) => self.run_beyond(after)?,
        }
        // What is lost stays lost.
        if !matches!(self.case.fault, Fault::Beyond(_)) {
            self.finish()?;
        }
        let stats = self.subject.device.stats();
        let (soft, hurt) = (stats.soft_failures, self.subject.mischief_done());
        let mut faults = FaultCounts { soft, hurt, ..FaultCounts::default() };
        faults += self.report.faults;
        Ok(DiskReport { trace: self.world.trace(), operations: stats.operations, faults, ..self.report })
    }

    fn run_crashes(&mut self) -> Result<()> {
        for _ in 0..self.case.scale.rounds() {
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
                self.spare_and_recover()?;
                self.model.verify(self.subject.disk()).context("between crashes")?;
                if self.faults.below(2) == 0 {
                    self.crash_and_recover()?;
                }
            }
        }
        self.spare_and_recover()
    }

    /// A cut or a failure every few operations: what recovers from one meets the next.
    fn run_storm(&mut self) -> Result<()> {
        for _ in 0..STORM_FAULTS {
            let after = self.faults.below(STORM_OPERATIONS);
            match self.faults.below(2) {
                0 => self.subject.device.fail_after(after),
                _ => self.subject.device.cut_power_after(after),
            }
            self.armed = true;
            for _ in 0..STEPS {
                if !self.armed {
                    break;
                }
                self.step()?;
            }
            self.spare();
        }
        Ok(())
    }

    fn run_hurts(&mut self) -> Result<()> {
        for _ in 0..self.case.scale.rounds() {
            self.sums = self.subject.sums();
            for _ in 0..self.faults.below(STEPS) {
                self.step()?;
                for _ in 0..self.faults.below(8) {
                    self.hurt(Where::Anywhere);
                }
            }
            self.model
                .verify(self.subject.disk())
                .with_context(|| format!("{} sectors are hurt", self.subject.atlas().count()))?;
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
        let step = self.case.scenario.step(self.case.scale, &self.model, &*self.random);
        self.act(&step)
    }

    fn act(&mut self, step: &Step) -> Result<()> {
        self.attempt(shown(step), |run| run.take(step))
    }

    /// Does something; if the disk fails at it or loses its power, it is opened again.
    fn attempt(&mut self, what: String, act: impl FnOnce(&mut Run) -> Result<Outcome>) -> Result<()> {
        self.tell(what.clone());
        let outcome = act(self).with_context(|| what.clone())?;
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
            ensure!(self.hit, "{} failed without a fault: {error}", what);
        }
        self.crash_and_recover()
    }

    fn tell(&mut self, what: String) {
        if self.last_steps.len() == LAST_STEPS {
            self.last_steps.pop_front();
        }
        self.last_steps.push_back(format!("  {}: {what}", self.report.steps));
    }

    // ---- Faults ----

    /// Looks whether what was announced has happened.
    fn look(&mut self) {
        if self.armed && !self.subject.device.faults_to_come() {
            self.armed = false;
            self.hit = true;
            self.report.faults.failed += u64::from(self.subject.device.is_powered());
        }
    }

    /// Takes back what was announced.
    fn spare(&mut self) {
        self.look();
        self.subject.device.spare_faults();
        self.armed = false;
    }

    /// As [`Run::spare`]; and opens the disk again where the write that was to hurt a sector has met a power cut, which no step saw.
    fn spare_and_recover(&mut self) -> Result<()> {
        self.spare();
        if self.subject.device.is_powered() { Ok(()) } else { self.crash_and_recover() }
    }

    /// The power goes, and what is found then is held against the model.
    fn crash_and_recover(&mut self) -> Result<()> {
        for number in 0..RECOVERIES_MAX {
            self.report.faults.cuts += 1;
            self.tell(format!("crash during operation {} of the device", self.subject.device.stats().operations));
            self.subject.crash();
            (self.armed, self.hit) = (false, false);
            self.arm_opening(number);
            let opened = self.subject.open();
            self.look();
            match opened {
                Ok(()) if !self.hit => {
                    self.spare();
                    self.model.recover(self.subject.disk()).context("after a crash")?;
                    return self.subject.check().context("after a crash");
                }
                // What failed once it may have done without; then it loses its power all the same.
                Ok(()) => {}
                Err(error) => {
                    let cause = anyhow::Error::from(error);
                    ensure!(self.hit, "opening after a crash: {cause:#}");
                }
            }
        }
        bail!("{RECOVERIES_MAX} power cuts in a row")
    }

    /// Announces a fault for the opening after a crash, which `number` openings came before; or none. Branches meet one after the
    /// other, for an opening costs less than looking at everything that is there.
    fn arm_opening(&mut self, number: u64) {
        let device = &self.subject.device;
        match self.case.fault {
            Fault::Hurts => return,
            Fault::Cuts | Fault::Fails if number < CHAIN && self.faults.below(8) > 0 => {
                let after = self.faults.below(CHAIN_OPERATIONS);
                match self.faults.below(2) {
                    0 => device.fail_after(after),
                    _ => device.cut_power_after(after),
                }
            }
            Fault::Cuts | Fault::Fails => return,
            _ if self.faults.below(3) == 0 => device.cut_power_after(self.faults.below(150)),
            _ => return,
        }
        self.armed = true;
    }

    /// Hurts a sector in one of four ways, if the atlas lets it.
    fn hurt(&mut self, place: Where) {
        // There are few sums sectors, and much depends on them.
        let sums =
            (place == Where::Anywhere && !self.sums.is_empty() && self.faults.below(4) == 0).then_some(&self.sums);
        let found = (0..HURT_TRIES).find_map(|_| {
            let sector = match sums {
                Some(sums) => sums[self.faults.below(sums.len() as u64) as usize],
                None => self.faults.below(self.subject.sectors()),
            };
            let content = self.subject.device.content(Sector(sector))?;
            let empty = content == [0; SECTOR_BYTES];
            (!empty && (place == Where::Anywhere || self.subject.is_copy(sector))).then_some((sector, content))
        });
        let Some((sector, content)) = found else { return };
        let former = self.former.insert(sector, content.clone());
        let is_copy = self.subject.is_copy(sector);
        if !self.subject.atlas().hurts(sector, &content, is_copy) {
            return;
        }
        self.report.faults.hurt += 1;
        let kind = self.faults.below(4);
        let device = &self.subject.device;
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

const LABEL: &str = "drill";
/// Steps of a round at most.
const STEPS: u64 = 30;
/// Shown of a run that failed.
const LAST_STEPS: usize = 20;
/// Faults of a storm,
const STORM_FAULTS: u64 = 60;
/// and operations of the device between them at most.
const STORM_OPERATIONS: u64 = 60;
/// Most sectors of a device are empty.
const HURT_TRIES: u64 = 20;
const RECOVERIES_MAX: u64 = 40;
/// Openings in a row that meet a fault in a branch, at most,
const CHAIN: u64 = 16;
/// and operations of the device until they do.
const CHAIN_OPERATIONS: u64 = 40;
/// How often sectors fail softly; each run with random faults has one of them.
const SOFT_RATES: [f64; 5] = [0.0, 1e-3, 1e-2, 0.1, 0.3];
/// How many sectors fail softly side by side; 0 for each by itself.
const BURST_SECTORS: [f64; 4] = [0.0, 0.0, 3.0, 10.0];
/// The same for runs with one fault.
const SOFT_RATE_ONCE: f64 = 0.1;

fn shown(step: &Step) -> String {
    let mut shown = format!("{step:?}");
    shown.truncate(200);
    shown
}
