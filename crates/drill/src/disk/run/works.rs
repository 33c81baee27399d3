//! One fault, during one work of the disk.

use anyhow::{Context, Result, bail, ensure};
use claystone_files::{Damage, DiskError};
use claystone_sim::SimDevice;

use super::{LABEL, Outcome, Run, Where};
use crate::disk::case::{Fault, Work};
use crate::disk::model::Model;
use crate::disk::scenario::Step;

/// Tells the device of the fault.
type Announce<'a> = &'a dyn Fn(&SimDevice);

impl Run {
    /// Steps and the work, until the one fault was survived, and a few steps more.
    pub(super) fn run_once(&mut self, work: Work, announce: Announce<'_>) -> Result<()> {
        if work != Work::Calls {
            for _ in 0..STEPS_BEFORE {
                self.step()?;
            }
        }
        match work {
            Work::Calls => return self.run_calls(announce),
            Work::Formatting => self.format_again(announce)?,
            Work::Opening => self.open_again(announce)?,
            Work::Closing => {
                self.announce(announce);
                self.act(&Step::Reopen)?;
            }
            Work::Growing => {
                self.subject.enlarge(GROWN_BY);
                self.act(&Step::Reopen)?;
                self.announce(announce);
                self.attempt("growing".to_owned(), Run::grow)?;
            }
            Work::Scrubbing => {
                // With everything in its place, no group that is hurt is written, but by the scrub.
                self.act(&Step::Reopen)?;
                for _ in 0..HURTS {
                    self.hurt(Where::Anywhere);
                }
                self.announce(announce);
                self.act(&Step::Scrub)?;
            }
        }
        // Formatting and opening have looked themselves, before they read what there is.
        self.report.reached |= !matches!(work, Work::Formatting | Work::Opening) && !self.armed;
        self.spare();
        if work == Work::Growing {
            // Again, for it may have been cut short.
            self.must("growing", Run::grow)?;
        }
        for _ in 0..STEPS_AFTER {
            self.step()?;
        }
        Ok(())
    }

    fn run_calls(&mut self, announce: Announce<'_>) -> Result<()> {
        self.announce(announce);
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

    pub(super) fn announce(&mut self, announce: Announce<'_>) {
        announce(&self.subject.device);
        self.armed = true;
    }

    /// Loses its power, and meets the fault while it is opened.
    fn open_again(&mut self, announce: Announce<'_>) -> Result<()> {
        self.report.faults.cuts += 1;
        self.subject.crash();
        self.hit = false;
        self.announce(announce);
        let mut opened = self.subject.open();
        self.look();
        if let Err(error) = &opened {
            ensure!(self.hit, "opening failed without a fault: {error}");
            self.tell(format!("opening: {error}"));
            // What failed once may go now; not after a failed sync, of which the device knows.
            opened = self.subject.open();
        }
        self.report.reached = self.hit;
        self.spare();
        if opened.is_err() || !self.subject.device.is_powered() {
            return self.crash_and_recover();
        }
        // What it could not mend it opens without.
        self.model.recover(self.subject.disk()).context("after a crash and a fault while it was opened")?;
        self.subject.check().context("after a crash and a fault while it was opened")
    }

    /// The device becomes another disk. If that is cut short, there is the old one, or none, or the new one.
    fn format_again(&mut self, announce: Announce<'_>) -> Result<()> {
        self.must("closing before it is formatted", |run| run.take(&Step::Reopen))?;
        self.must("closing before it is formatted", |run| {
            run.model.synced_all();
            run.subject.take().close().map(|()| Outcome::Done).or_else(|error| bail!("{error}"))
        })?;
        self.hit = false;
        self.announce(announce);
        let formatted = self.subject.format(&self.world, NEW_LABEL);
        self.look();
        self.report.reached = self.hit;
        self.spare();
        if let Err(error) = &formatted {
            ensure!(self.hit, "formatting failed without a fault: {error}");
        }
        if self.hit {
            // A failure too: the medium has what it has.
            self.report.faults.cuts += 1;
            self.subject.crash();
        }
        match self.subject.open() {
            Ok(()) if self.subject.disk().info().label == LABEL => {
                let erasing = matches!(self.case.fault, Fault::Cut(_, 0..ERASING) | Fault::Fail(_, 0..ERASING));
                ensure!(erasing && formatted.is_err(), "the old disk is there though it was erased");
                self.model.verify(self.subject.disk()).context("of the old disk")?;
            }
            Ok(()) => {
                self.model = Model::new();
                self.model.verify(self.subject.disk()).context("of the new disk")?;
                return self.subject.check().context("of the new disk");
            }
            // The last means: all copies that were written are torn.
            Err(
                DiskError::NotADisk { .. }
                | DiskError::Damaged(Damage::SuperblockChecksum { .. } | Damage::SuperblockLost),
            ) if formatted.is_err() => {}
            Err(error) => return Err(error).context("what a cut format left"),
        }
        self.model = Model::new();
        self.subject.format(&self.world, NEW_LABEL).context("formatting after a fault")?;
        self.subject.open().context("opening what was formatted after a fault")
    }
}

/// Steps of a run with one fault during calls, unless it comes earlier.
const STEPS_ONCE: u64 = 60;
/// Steps before any other work that meets a fault.
const STEPS_BEFORE: u64 = 20;
/// Steps after the one fault.
const STEPS_AFTER: u64 = 6;
const NEW_LABEL: &str = "drill again";
/// Operations of the device until no old superblock is left: two writes and a sync.
const ERASING: u64 = 3;
const GROWN_BY: u64 = 900;
/// Sectors that are hurt before a scrub that meets a fault.
const HURTS: usize = 40;
