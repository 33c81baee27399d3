//! A failure of every operation of the device, each on a branch of one run: the disk is opened on what the device holds, takes
//! some steps, and one operation more fails each time. So no run is done again from its begin for each failure.

use anyhow::{Context, Result};
use claystone_sim::DeviceMoment;

use super::Run;

impl Run {
    /// Steps, and now and then a crash, behind which each operation of the next steps fails in a branch.
    pub(super) fn run_fails(&mut self) -> Result<()> {
        for round in 0..ROUNDS {
            for _ in 0..STEPS_BETWEEN {
                self.step()?;
            }
            // After it everything is durable that is there, and so it is in all branches.
            self.crash_and_recover()?;
            let moment = self.subject.device.moment();
            for after in 0..FAILURES_MAX {
                if !self.fail_in_branch(&moment, round, after)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Takes steps in a branch, in which the operation after so many fails; returns whether it was reached.
    fn fail_in_branch(&mut self, moment: &DeviceMoment, round: u64, after: u64) -> Result<bool> {
        let model = self.model.clone();
        let chance = format!("steps of round {round}");
        let name = format!("in round {round} the operation after {after} fails");
        self.branch(moment, &model, (&name, &chance), |branch| {
            branch.subject.open().context("opening a branch")?;
            branch.announce(&|device| device.fail_after(after));
            for _ in 0..STEPS_IN_BRANCH {
                if !branch.armed {
                    break;
                }
                branch.step()?;
            }
            let reached = !branch.armed;
            branch.spare();
            if reached && branch.report.faults.cuts == 0 {
                // It did without what failed: all is as it was told.
                branch.model.verify(branch.subject.disk()).context("after a failure that nobody was told of")?;
                branch.crash_and_recover()?;
            }
            Ok(reached)
        })
    }
}

/// Crashes of a run.
const ROUNDS: u64 = 8;
/// Steps between two.
const STEPS_BETWEEN: u64 = 8;
/// Steps of a branch, unless the failure comes earlier.
const STEPS_IN_BRANCH: u64 = 5;
/// Branches of a round at most.
const FAILURES_MAX: u64 = 400;
