//! Who takes part in a cell: a name and something that does the cell's work on a stripe.

use std::fmt;

use crate::arena::{Stripe, Stripes};
use crate::gate::{Gate, SAMPLE_NS, Sample};

/// Why a contender stands in a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The code under measurement; exactly one in a cell.
    Ours,
    /// Another library doing the same; the best of them is compared with.
    Peer,
    /// Another code worth a ratio of its own, in a row with this metric.
    Reference(&'static str),
}

/// A contender of one cell.
pub struct Contender<'a> {
    /// Library and version.
    pub name: String,
    /// Why it is here.
    pub role: Role,
    pub(crate) work: Box<dyn Work + 'a>,
}

/// Does a cell's work, one sample at a time.
pub trait Work {
    /// Does the work once on one stripe; `false` if it has targets of its own.
    ///
    /// # Errors
    /// What the contender says is wrong.
    fn once(&mut self, stripe: &mut Stripe<'_>) -> Result<bool, String>;

    /// One sample on the stripes whose turn it is, after some runs that do not count: what the contender before left in
    /// the caches and at the clock must not be this one's gain or loss.
    ///
    /// # Errors
    /// What the contender says is wrong.
    fn sample(&mut self, gate: &mut Gate, stripes: &mut Stripes<'_>) -> Result<Sample, String>;

    /// Whether a sample was quiet. Contenders on another thread have a gate of their own.
    fn is_quiet(&self, gate: &Gate, sample: &Sample) -> bool {
        gate.is_quiet(sample)
    }
}

impl<'a> Contender<'a> {
    /// A contender that runs on this thread: `run` does the work on one stripe.
    pub fn local(name: impl Into<String>, role: Role, run: impl FnMut(&mut Stripe<'_>) + 'a) -> Self {
        Self::new(name, role, Local { run, runs: 0 })
    }

    /// A contender with its own way of sampling.
    pub fn new(name: impl Into<String>, role: Role, work: impl Work + 'a) -> Self {
        Self { name: name.into(), role, work: Box::new(work) }
    }
}

impl fmt::Debug for Contender<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contender").field("name", &self.name).field("role", &self.role).finish_non_exhaustive()
    }
}

/// Work on this thread.
struct Local<F> {
    run: F,
    /// Runs of a sample, 0 until they are known.
    runs: u32,
}

impl<F: FnMut(&mut Stripe<'_>)> Work for Local<F> {
    fn once(&mut self, stripe: &mut Stripe<'_>) -> Result<bool, String> {
        (self.run)(stripe);
        Ok(true)
    }

    fn sample(&mut self, gate: &mut Gate, stripes: &mut Stripes<'_>) -> Result<Sample, String> {
        let Self { run, runs } = self;
        let mut next = || run(stripes.next_stripe());
        if *runs == 0 {
            *runs = enough_runs(gate, &mut next);
        }
        for _ in 0..runs.div_ceil(WARM_SHARE).max(WARM_LEAST) {
            next();
        }
        Ok(gate.sample(*runs, next))
    }
}

/// How many runs fill a sample: doubles until some take long enough to estimate by.
fn enough_runs(gate: &mut Gate, mut next: impl FnMut()) -> u32 {
    let mut runs = 1;
    loop {
        let run_ns = gate.sample(runs, &mut next).run_ns;
        if run_ns * f64::from(runs) > SAMPLE_NS / 8.0 || runs >= RUNS_MAX {
            return ((SAMPLE_NS / run_ns) as u32).clamp(1, RUNS_MAX);
        }
        runs *= 2;
    }
}

const RUNS_MAX: u32 = 1 << 20;

/// One run in so many is done before a sample and not counted.
const WARM_SHARE: u32 = 4;

/// And so many at least: the contender before may have been of another process and have filled a shared third cache.
const WARM_LEAST: u32 = 3;
