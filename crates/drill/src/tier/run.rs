//! One run: steps on a pair, a fault, and after it all that was promised.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::AddAssign;

use anyhow::{Context, Result, bail, ensure};
use claystone_env::{Random, SECTOR_BYTES, Sector};
use claystone_sim::{SimDevice, SimRandom};
use claystone_tier::TierError;

use super::model::{Found, HOME, Model, Step};
use super::pair::{LOG, Pair, PairMoment};

/// What goes wrong in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Power cuts during every operation, and sectors that are hurt.
    Cuts,
    /// The same while two callers are at it; writes are steered by the profile, or as the seed says.
    CutsOfTwo {
        /// By the profile.
        by_profile: bool,
    },
    /// In the operation after so many, of a drain, a checkpoint or whatever it is, the solid-state drive dies.
    SsdGone(u64),
    /// The same, of the hard disk.
    HddGone(u64),
    /// The operation after so many of the solid-state drive fails.
    SsdFails(u64),
    /// The same, of the hard disk.
    HddFails(u64),
}

/// What runs met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TierReport {
    /// Steps that were done.
    pub steps: u64,
    /// Power cuts of the pair.
    pub cuts: u64,
    /// Of them, during an opening.
    pub cuts_opening: u64,
    /// Of them, while an index was written and named.
    pub cuts_indexing: u64,
    /// Openings after a power cut that went by an index.
    pub by_index: u64,
    /// Pairs at rest that were opened without their solid-state drive.
    pub alone: u64,
    /// Sectors that were hurt.
    pub hurt: u64,
    /// Operations that failed, or from which on a device was gone.
    pub failed: u64,
    /// Sectors that were said to be lost.
    pub lost: u64,
    /// Writes of two callers that were redirected.
    pub redirected: u64,
    /// Pairs that did not open, because nothing tells what a hurt sector was.
    pub refused: u64,
}

impl TierReport {
    /// All faults.
    pub fn faults(&self) -> u64 {
        self.cuts + self.hurt + self.failed
    }
}

impl AddAssign for TierReport {
    fn add_assign(&mut self, more: TierReport) {
        self.steps += more.steps;
        self.cuts += more.cuts;
        self.cuts_opening += more.cuts_opening;
        self.cuts_indexing += more.cuts_indexing;
        self.by_index += more.by_index;
        self.alone += more.alone;
        self.hurt += more.hurt;
        self.failed += more.failed;
        self.lost += more.lost;
        self.redirected += more.redirected;
        self.refused += more.refused;
    }
}

impl fmt::Display for TierReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TierReport {
            steps,
            cuts,
            cuts_opening,
            cuts_indexing,
            by_index,
            alone,
            hurt,
            failed,
            lost,
            redirected,
            refused,
        } = self;
        write!(
            f,
            "{} faults in {steps} steps: {cuts} power cuts, {cuts_opening} of them during openings and {cuts_indexing} of an index, {by_index} opened by one, {alone} without the solid-state drive at rest, {redirected} writes of two callers redirected, {hurt} hurt sectors, {failed} failures; {lost} sectors lost and said to be, {refused} pairs refused",
            self.faults()
        )
    }
}

/// Runs all faults of a seed.
///
/// # Errors
/// What the device did wrong.
pub fn run_seed(seed: u64) -> Result<TierReport> {
    let mut report = run_fault(seed, Fault::Cuts)?.0;
    for by_profile in [false, true] {
        report += run_fault(seed, Fault::CutsOfTwo { by_profile })?.0;
    }
    for fault in [Fault::SsdGone, Fault::HddGone, Fault::SsdFails, Fault::HddFails] {
        for after in 0.. {
            let (more, reached) = run_fault(seed, fault(after))?;
            report += more;
            if !reached {
                break;
            }
        }
    }
    Ok(report)
}

/// Runs one. Also returns whether its fault was reached.
///
/// # Errors
/// As [`run_seed`].
pub fn run_fault(seed: u64, fault: Fault) -> Result<(TierReport, bool)> {
    let mut run = Run::new(seed).context("making a pair")?;
    let reached = match fault {
        Fault::Cuts => run.cuts(),
        Fault::CutsOfTwo { by_profile } => run.callers(seed, by_profile),
        Fault::SsdGone(after) | Fault::HddGone(after) => run.fails(fault, after, true),
        Fault::SsdFails(after) | Fault::HddFails(after) => run.fails(fault, after, false),
    };
    let reached = reached.with_context(|| {
        format!(
            "{fault:?}; replay it with: cargo run -p claystone-drill -- --tier --seed {seed}\n{}",
            run.told.join("\n")
        )
    })?;
    Ok((run.report, reached))
}

pub struct Run {
    pub(super) pair: Pair,
    pub(super) model: Model,
    random: SimRandom,
    pub(super) report: TierReport,
    told: Vec<String>,
}

impl Run {
    fn new(seed: u64) -> Result<Run> {
        let mut pair = Pair::new(seed)?;
        pair.open(true)?;
        let random = SimRandom::new(seed);
        Ok(Run { pair, model: Model::default(), random, report: TierReport::default(), told: Vec::new() })
    }

    pub(super) fn tell(&mut self, what: String) {
        if self.told.len() == TOLD {
            self.told.remove(0);
        }
        self.told.push(format!("  {what}"));
    }

    /// Takes a step, in the model too.
    fn step(&mut self) -> Result<Step> {
        let step = self.model.step(&self.random);
        self.tell(format!("{step:?}"));
        self.model.begin(&step);
        self.pair.act(&step).with_context(|| format!("{step:?}"))?;
        self.ended(&step)?;
        self.report.steps += 1;
        Ok(step)
    }

    /// A step has ended well.
    fn ended(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Reopen => self.model.reopened(&self.pair.contents()?).context("after another opening"),
            _ => {
                self.model.end(step);
                Ok(())
            }
        }
    }

    // ---- Power cuts ----

    fn cuts(&mut self) -> Result<bool> {
        self.pair.keep_moments(true);
        for _ in 0..STEPS {
            let before = self.model.clone();
            let step = self.step()?;
            self.model.check(&self.pair.contents()?, |_| false).context("without a fault")?;
            let mut during = before;
            during.begin(&step);
            for (number, moment) in self.pair.take_moments().into_iter().enumerate() {
                self.report.cuts_indexing += if step == Step::Index { CUTS } else { 0 };
                for cut in 0..CUTS {
                    let hurts = cut == CUTS - 1;
                    self.branch(&moment, &during, hurts).with_context(|| format!("cut {cut} of operation {number}"))?;
                }
            }
            // Between calls all but superblocks under way may be hurt.
            let moment = self.pair.moment();
            for number in 0..HURTS {
                self.hurt_between(&moment).with_context(|| format!("hurt {number} behind the step"))?;
            }
        }
        Ok(true)
    }

    fn branched(&self, moment: &PairMoment, model: &Model) -> Run {
        let random = SimRandom::new(self.random.next_u64());
        let pair = self.pair.branch(moment, &random);
        Run { pair, model: model.clone(), random, report: TierReport::default(), told: Vec::new() }
    }

    pub(super) fn branch(&mut self, moment: &PairMoment, model: &Model, hurts: bool) -> Result<()> {
        let mut branch = self.branched(moment, model);
        branch.report.cuts += 1;
        let done = branch.after_a_cut(hurts);
        self.report += branch.report;
        done.with_context(|| branch.told.join("\n"))
    }

    fn after_a_cut(&mut self, hurts: bool) -> Result<()> {
        let hurt = u64::from(hurts && self.hurt_log().is_some());
        let in_opening = !hurts && self.random.below(OPENINGS_CUT) == 0;
        self.pair.keep_moments(in_opening);
        let before = self.model.clone();
        if !self.recover(hurt)? {
            return Ok(());
        }
        for moment in self.pair.take_moments() {
            let mut branch = self.branched(&moment, &before);
            branch.report.cuts += 1;
            branch.report.cuts_opening += 1;
            let done = branch.recover(0).and_then(|_| branch.settled());
            self.report += branch.report;
            done.context("after a second cut, while it opened")?;
        }
        self.pair.keep_moments(false);
        self.settled()
    }

    /// What was found stays so: through another power cut, and sometimes through more steps and all that is brought home.
    fn settled(&mut self) -> Result<()> {
        // A sector that is lost, and discarded, may be lost again: nobody promised what it holds.
        let mut discarded = BTreeSet::new();
        if self.random.below(GO_ON) == 0 {
            for _ in 0..STEPS_AFTER {
                if let Step::Discard(sectors) = self.step().context("after a cut")? {
                    discarded.extend(sectors);
                }
            }
            self.pair.act(&Step::Sync)?;
            self.model.end(&Step::Sync);
            while self.pair.tiered().drain()?.more {}
            let info = self.pair.tiered().info();
            ensure!(info.waiting_sectors == info.lost_sectors, "not all was brought home");
        }
        let found = self.pair.contents()?;
        self.model.check(&found, |_| false).context("after a cut")?;
        if self.random.below(2) == 0 {
            // What no sync promised since was promised by the opening.
            self.pair.act(&Step::Sync)?;
            self.report.cuts += 1;
            self.pair.crash();
            self.pair.open(true).context("opening it again")?;
            let again = self.pair.contents()?;
            for ((sector, was), is) in (0..).zip(&found).zip(&again) {
                ensure!(
                    was == is || discarded.contains(&sector),
                    "sector {sector} was found to be {was:?} and is {is:?}"
                );
            }
        }
        Ok(())
    }

    /// Opens the pair after a power cut and compares. Returns whether it opened.
    fn recover(&mut self, hurt: u64) -> Result<bool> {
        // One of two that say that all is at home goes on without its solid-state drive.
        let alone = self.pair.is_at_rest()? && self.random.below(2) == 0;
        self.report.alone += u64::from(alone);
        match self.pair.open(!alone) {
            Ok(()) => {}
            Err(TierError::Damaged { .. }) if hurt > 0 => {
                self.report.refused += 1;
                return Ok(false);
            }
            Err(error) => bail!("opening after a cut: {:#}", anyhow::Error::from(error)),
        }
        self.report.by_index += u64::from(self.pair.tiered().info().opening.index_sectors > 0);
        let found = self.pair.contents()?;
        self.report.lost += found.iter().filter(|found| **found == Found::Lost).count() as u64;
        self.model.recover(&found, hurt).context("after a cut")?;
        Ok(true)
    }

    // ---- Hurt sectors ----

    /// Hurts a sector of a log that holds something.
    fn hurt_log(&mut self) -> Option<()> {
        let device = if self.random.below(2) == 0 { &self.pair.hdd } else { &self.pair.ssd };
        let sector = (0..TRIES).find_map(|_| {
            let sector = 1 + self.random.below(LOG);
            device.content(Sector(sector)).filter(|content| content.iter().any(|byte| *byte != 0)).map(|_| sector)
        })?;
        hurt(device, sector, &self.random);
        self.report.hurt += 1;
        self.tell(format!("hurt sector {sector} of the {}", device.attach().label()));
        Some(())
    }

    fn hurt_between(&mut self, moment: &PairMoment) -> Result<()> {
        let model = self.model.clone();
        let mut branch = self.branched(moment, &model);
        branch.report.cuts += 1;
        let hurt = if branch.random.below(4) == 0 {
            let device = if branch.random.below(2) == 0 { &branch.pair.hdd } else { &branch.pair.ssd };
            let slots = [0, device.attach().geometry().sectors - 1];
            hurt(device, slots[branch.random.below(2) as usize], &branch.random);
            branch.report.hurt += 1;
            0
        } else {
            u64::from(branch.hurt_log().is_some())
        };
        let done = branch.recover(hurt).and_then(|opened| if opened { branch.settled() } else { Ok(()) });
        self.report += branch.report;
        done.with_context(|| branch.told.join("\n"))
    }

    // ---- Devices that fail ----

    fn fails(&mut self, fault: Fault, after: u64, gone: bool) -> Result<bool> {
        let is_ssd = matches!(fault, Fault::SsdGone(_) | Fault::SsdFails(_));
        let device = if is_ssd { self.pair.ssd.clone() } else { self.pair.hdd.clone() };
        // A drive that fails once is read again, and takes nothing with it.
        let may_lose = is_ssd && gone;
        // Each operation is the first to fail in a run of its own: those of drains, checkpoints and reads too.
        match gone {
            true => device.remove_after(after),
            false => device.fail_after(after),
        }
        let mut down = false;
        let mut told_of = false;
        for _ in 0..STEPS_FAILING {
            let step = self.model.step(&self.random);
            let opens = step == Step::Reopen;
            if opens && down {
                continue;
            }
            self.tell(format!("{step:?}"));
            self.model.begin(&step);
            let worked = self.pair.tiered().info().ssd_works;
            let done = self.pair.act(&step);
            self.report.steps += 1;
            down |= !device.faults_to_come();
            match done {
                // An opening in which a drive died, or a read behind it, is no other one's to judge.
                Ok(()) if opens => {
                    let found = self.pair.contents();
                    down |= !device.faults_to_come();
                    if down {
                        return self.after_a_failure(&device, may_lose, false).map(|()| true);
                    }
                    self.model.reopened(&found?).context("after another opening")?;
                }
                Ok(()) => self.model.end(&step),
                Err(error) => {
                    ensure!(down, "{step:?} failed without a fault: {error:#}");
                    ensure!(!is_ssd || opens, "{step:?} failed, though only the solid-state drive did: {error:#}");
                    return self.after_a_failure(&device, may_lose, false).map(|()| true);
                }
            }
            // The first sync that knows of it says so on the hard disk.
            told_of |= !worked && step == Step::Sync;
            if gone && down && !is_ssd {
                continue;
            }
            let found = self.pair.contents();
            down |= !device.faults_to_come();
            match found {
                Ok(found) => {
                    self.model.check(&found, |_| down && may_lose).context("while it runs")?;
                    self.report.lost += found.iter().filter(|found| **found == Found::Lost).count() as u64;
                }
                Err(error) => ensure!(down && !is_ssd, "reading failed without a fault: {error:#}"),
            }
        }
        if !down {
            device.spare_faults();
            return Ok(false);
        }
        self.after_a_failure(&device, may_lose, told_of)?;
        Ok(true)
    }

    /// The power goes after a device failed; it is back, or its loss is known and it is not. `may_lose`: it was gone and took something with it.
    fn after_a_failure(&mut self, device: &SimDevice, may_lose: bool, is_known: bool) -> Result<()> {
        self.report.failed += 1;
        self.report.cuts += 1;
        let before = if is_known { Some(self.pair.contents()?) } else { None };
        self.pair.crash();
        device.spare_faults();
        if let Some(before) = before {
            self.pair.open(false).context("its loss is known")?;
            let found = self.pair.contents()?;
            let lost = (0..HOME).filter(|sector| before[*sector as usize] == Found::Lost).count() as u64;
            self.model.recover(&found, lost).context("without the solid-state drive")?;
            for (sector, (before, found)) in before.iter().zip(&found).enumerate() {
                let is_right = *before != Found::Lost || *found == Found::Lost;
                ensure!(is_right, "sector {sector} was lost and is {found:?}");
            }
            for _ in 0..STEPS_AFTER {
                let step = self.model.step(&self.random);
                if step != Step::Reopen {
                    self.model.begin(&step);
                    self.pair.act(&step).with_context(|| format!("{step:?} without the solid-state drive"))?;
                    self.model.end(&step);
                }
            }
            return self.model.check(&self.pair.contents()?, |_| false).context("without the solid-state drive");
        }
        device.set_removed(false);
        // A sync that a write needed may have noted its loss.
        if self.pair.open(false).is_err() {
            self.pair.open(true).context("both are back")?;
        }
        let found = self.pair.contents()?;
        let lost = found.iter().filter(|found| **found == Found::Lost).count() as u64;
        self.report.lost += lost;
        // A sync that was cut off may have noted the loss of a solid-state drive that is back.
        self.model.recover(&found, if may_lose { lost } else { 0 }).context("both are back")?;
        if self.pair.tiered().info().ssd_works { self.settled() } else { Ok(()) }
    }
}

fn hurt(device: &SimDevice, sector: u64, random: &dyn Random) {
    match random.below(2) {
        0 => device.make_lost(sector..sector + 1),
        _ => device.flip_bit(Sector(sector), random.below(SECTOR_BYTES as u64 * 8) as usize),
    }
}

/// Steps of a run with power cuts,
const STEPS: u64 = 40;
/// and of one in which a device fails.
const STEPS_FAILING: u64 = 16;
/// Power cuts during each operation: what was not synced is torn otherwise in each. In the last of them a sector of a log is hurt too.
const CUTS: u64 = 4;
/// Sectors hurt behind each step, one at a time.
const HURTS: u64 = 4;
/// In one branch of so many the power is cut in all operations of the opening.
const OPENINGS_CUT: u64 = 10;
/// One branch of so many goes on with some steps.
const GO_ON: u64 = 8;
const STEPS_AFTER: u64 = 8;
/// Most sectors of a log hold something.
const TRIES: u64 = 20;
/// Shown of a run that failed.
const TOLD: usize = 20;
