//! A power cut during every operation of the device, each on a branch of one run: what a process has in memory is gone then, so
//! the device as it was in that operation is all that there is to go on from, and nothing before it is done again.

use anyhow::{Context, Result};
use claystone_sim::DeviceMoment;

use super::Run;
use super::steps::begin;
use crate::disk::model::Model;
use crate::disk::report::DiskReport;
use crate::disk::scenario::Step;

impl Run {
    /// Steps, and after each of them what a power cut in each of its operations would have left.
    pub(super) fn run_cuts(&mut self) -> Result<()> {
        self.subject.device.keep_moments();
        for _ in 0..STEPS {
            let before = self.model.clone();
            let step = self.case.scenario.step(self.case.scale, &self.model, &*self.random);
            self.act(&step)?;
            self.branches(&step, &before)?;
        }
        Ok(())
    }

    fn branches(&mut self, step: &Step, before: &Model) -> Result<()> {
        let mut model = before.clone();
        begin(&mut model, step);
        for moment in self.subject.device.take_moments() {
            for cut in 0..CUTS {
                let name = format!("cut {cut} of operation {}", moment.operation());
                self.branch(&moment, &model, (&name, &name), Run::go_on)?;
            }
        }
        Ok(())
    }

    /// Does something in a run by itself, which begins with what the device held at a moment, and with no disk open. All its
    /// chance comes from `chance`; its faults are counted here.
    pub(super) fn branch<T>(
        &mut self,
        moment: &DeviceMoment,
        model: &Model,
        (name, chance): (&str, &str),
        act: impl FnOnce(&mut Run) -> Result<T>,
    ) -> Result<T> {
        let random = self.world.random().fork(chance);
        let mut branch = Run {
            world: self.world.clone(),
            case: self.case,
            subject: self.subject.branch(moment, random.fork("device")),
            model: model.clone(),
            random: random.fork("steps"),
            faults: random.fork("faults"),
            armed: false,
            hit: false,
            sums: Vec::new(),
            former: Default::default(),
            last_steps: Default::default(),
            report: DiskReport::default(),
        };
        let done = act(&mut branch);
        let mut faults = branch.report.faults;
        faults.soft += branch.subject.device.stats().soft_failures;
        self.report.faults += faults;
        self.report.reached = true;
        done.with_context(|| format!("{name}, then\n{}", Vec::from(branch.last_steps).join("\n")))
    }

    fn go_on(&mut self) -> Result<()> {
        self.crash_and_recover()?;
        if self.faults.below(FINISHED_SHARE) == 0 {
            for _ in 0..STEPS_AFTER {
                self.step()?;
            }
            self.finish()?;
        }
        Ok(())
    }
}

/// Steps of a run.
const STEPS: u64 = 60;
/// Power cuts during each operation: what was not synced is torn otherwise in each.
const CUTS: u64 = 2;
/// One branch in so many goes on with some steps, and is looked at as a run is at its end.
const FINISHED_SHARE: u64 = 8;
const STEPS_AFTER: u64 = 6;
