//! Two callers of one pair at once: each takes steps and reads, and before and behind each operation of a device the other one may come first. Then the power
//! is cut in every operation.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use claystone_env::Random;
use claystone_sim::SimRandom;

use super::model::{Found, Model, Step};
use super::run::Run;
use super::turns::Turns;

/// What a caller did, and how many moments had been kept before.
struct Event {
    moments: usize,
    caller: usize,
    what: What,
}

enum What {
    Begins(Step),
    Ends,
    BeginsToRead,
    HasRead(Vec<Found>),
}

/// What a caller is at, and since which event; or what it may read.
#[derive(Clone)]
enum At {
    Nothing,
    Step(Step, u64),
    Read(Vec<BTreeSet<u64>>),
}

impl Run {
    /// Two callers, and power cuts. `by_profile`: writes are steered by the profile, so that they stand in line.
    pub(super) fn callers(&mut self, seed: u64, by_profile: bool) -> Result<bool> {
        let turns = Turns::new(seed, CALLERS);
        self.pair.take_turns(turns.clone());
        if by_profile {
            self.pair.steer_by_profile();
        }
        self.pair.open(true)?;
        self.pair.keep_moments(true);
        let (events, steps) = (Mutex::new(Vec::new()), Mutex::new(Model::default()));
        let pair = &self.pair;
        let tell = |caller: usize, what: What| {
            let moments = pair.kept_moments();
            events.lock().unwrap_or_else(PoisonError::into_inner).push(Event { moments, caller, what });
        };
        let call = |caller: usize| -> Result<()> {
            let random = SimRandom::new(seed).fork(&format!("caller {caller}"));
            for _ in 0..STEPS_OF_A_CALLER {
                let step = steps.lock().unwrap_or_else(PoisonError::into_inner).step(&*random);
                if matches!(step, Step::Discard(_) | Step::Reopen) {
                    tell(caller, What::BeginsToRead);
                    tell(caller, What::HasRead(pair.contents()?));
                    continue;
                }
                tell(caller, What::Begins(step.clone()));
                pair.call(&step).with_context(|| format!("{step:?}"))?;
                tell(caller, What::Ends);
            }
            Ok(())
        };
        let called = std::thread::scope(|scope| {
            let start = |caller: usize| {
                let (turns, call) = (&turns, &call);
                scope.spawn(move || turns.call(caller, || call(caller)))
            };
            let threads: Vec<_> = (0..CALLERS).map(start).collect();
            let end = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| match thread.join() {
                Ok(called) => called,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            threads.into_iter().map(end).collect::<Result<Vec<()>>>()
        });
        called.context("a caller, without a fault")?;
        ensure!(turns.passed() > 0, "they did not come between each other");
        let events = events.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.report.steps += events.len() as u64 / 2;
        self.pair
            .tiered()
            .info()
            .predicted
            .into_iter()
            .for_each(|(_, counts)| self.report.redirected += counts.user_writes);
        let found = self.pair.contents()?;
        self.cut_between(events)?;
        self.model.check(&found, |_| false).context("behind both callers")?;
        Ok(true)
    }

    /// Follows what the callers did in the model, and cuts the power at each moment.
    fn cut_between(&mut self, events: Vec<Event>) -> Result<()> {
        let mut at = vec![At::Nothing; CALLERS];
        let mut events = events.into_iter().peekable();
        let moments = self.pair.take_moments();
        let count = moments.len();
        for (number, moment) in moments.into_iter().map(Some).chain([None]).enumerate() {
            while let Some(event) = events.next_if(|event| event.moments <= number) {
                self.follow(event, &mut at)?;
            }
            let Some(moment) = moment else { break };
            for cut in 0..CUTS {
                let model = self.model.clone();
                self.branch(&moment, &model, cut == CUTS - 1)
                    .with_context(|| format!("cut {cut} of operation {number} of {count}"))?;
            }
        }
        Ok(())
    }

    fn follow(&mut self, event: Event, at: &mut [At]) -> Result<()> {
        let Event { caller, what, .. } = event;
        match what {
            What::Begins(step) => {
                self.tell(format!("{caller}: {step:?}"));
                if let Step::Write(tags) = &step {
                    let reads = at.iter_mut().filter_map(|at| if let At::Read(may) = at { Some(may) } else { None });
                    for may in reads {
                        tags.iter().for_each(|(sector, tag)| may[*sector as usize].extend([*tag]));
                    }
                }
                let begun = self.model.begin(&step);
                at[caller] = At::Step(step, begun);
            }
            What::Ends => {
                if let At::Step(step, begun) = std::mem::replace(&mut at[caller], At::Nothing) {
                    self.tell(format!("{caller}: has ended {step:?}"));
                    self.model.end_of(&step, begun);
                }
            }
            What::BeginsToRead => {
                let under_way = self.model.readable();
                at[caller] = At::Read(under_way);
            }
            What::HasRead(found) => {
                if let At::Read(may) = std::mem::replace(&mut at[caller], At::Nothing) {
                    for (sector, (found, may)) in found.iter().zip(&may).enumerate() {
                        let is_right = may.iter().any(|tag| *found == Found::Tag(*tag));
                        ensure!(is_right, "{caller} has read {found:?} in sector {sector}, and not one of {may:?}");
                    }
                }
            }
        }
        Ok(())
    }
}

const CALLERS: usize = 2;
const STEPS_OF_A_CALLER: u64 = 24;
/// In each operation; in the last of them a sector of a log is hurt too.
const CUTS: u64 = 2;
