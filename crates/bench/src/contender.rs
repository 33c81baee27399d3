//! Who takes part in a cell: a name and something that does the cell's work on a stripe.

use std::fmt;

use crate::arena::Stripe;
use crate::gate::{Gate, SAMPLE_NS, Sample};

/// Why a contender stands in a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The code under measurement; exactly one in a cell.
    Ours,
    /// Another library doing the same; the best of them is compared with.
    Peer,
    /// Something else worth a ratio of its own, under this metric.
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

/// Does the cell's work, one sample at a time.
pub trait Work {
    /// One sample on the stripes, the `first`th of them first.
    ///
    /// # Errors
    /// What the contender says is wrong.
    fn sample(&mut self, gate: &mut Gate, stripes: &mut [Stripe<'_>], first: usize) -> Result<Sample, String>;

    /// Does the work once on one stripe; `false` if its targets are elsewhere.
    ///
    /// # Errors
    /// What the contender says is wrong.
    fn once(&mut self, stripe: &mut Stripe<'_>) -> Result<bool, String>;

    /// Whether a sample was quiet, if another gate than this thread's judges it.
    fn is_quiet(&self, gate: &Gate, sample: &Sample) -> bool {
        gate.is_quiet(sample)
    }

    /// Runs of one sample, chosen so far.
    fn runs(&self) -> u32;
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

    /// The same contender in another role.
    pub fn as_role(self, role: Role) -> Self {
        Self { role, ..self }
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
    fn sample(&mut self, gate: &mut Gate, stripes: &mut [Stripe<'_>], first: usize) -> Result<Sample, String> {
        let mut at = first;
        let mut next = || {
            let stripe = &mut stripes[at];
            (self.run)(stripe);
            at = if at + 1 == stripes.len() { 0 } else { at + 1 };
        };
        if self.runs == 0 {
            // Doubles until a sample is long enough to estimate by, then takes what fills one.
            let mut runs = 1;
            loop {
                let spent = gate.sample(runs, &mut next).run_ns * f64::from(runs);
                if spent > SAMPLE_NS / 8.0 || runs >= RUNS_MAX {
                    self.runs = ((SAMPLE_NS / spent * f64::from(runs)) as u32).clamp(1, RUNS_MAX);
                    break;
                }
                runs *= 2;
            }
        }
        Ok(gate.sample(self.runs, next))
    }

    fn once(&mut self, stripe: &mut Stripe<'_>) -> Result<bool, String> {
        (self.run)(stripe);
        Ok(true)
    }

    fn runs(&self) -> u32 {
        self.runs
    }
}

const RUNS_MAX: u32 = 1 << 20;
