//! One cell of the comparison: some work, who does it, and what came out.
//!
//! Invariants:
//! 1. Contenders take turns, one sample each, until all have enough quiet samples or the tries are used up.
//! 2. A figure is the median of its quiet samples; with too few of them it is not settled.

use thiserror::Error;

use crate::arena::{Arena, Layout, Stripe};
use crate::contender::{Contender, Role};
use crate::gate::{Gate, Sample, median};

/// What a cell's figure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// GB/s (1e9), more is better.
    GbPerS {
        /// Bytes that one run counts.
        run_bytes: u64,
    },
    /// Microseconds a run, less is better.
    Us,
}

impl Unit {
    /// As rows write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::GbPerS { .. } => "GB/s",
            Self::Us => "us",
        }
    }

    fn of(self, run_ns: f64) -> f64 {
        match self {
            Self::GbPerS { run_bytes } => run_bytes as f64 / run_ns,
            Self::Us => run_ns / 1e3,
        }
    }

    /// Whether `a` is the better figure.
    pub fn is_better(self, a: f64, b: f64) -> bool {
        match self {
            Self::GbPerS { .. } => a > b,
            Self::Us => a < b,
        }
    }
}

/// One cell, ready to be measured.
#[derive(Debug)]
pub struct Cell<'a> {
    /// Code and size, such as `rs:10+4 128KiB`.
    pub case: String,
    /// What is done, such as `encode`.
    pub metric: String,
    /// What the figures are.
    pub unit: Unit,
    /// The buffers.
    pub layout: Layout,
    /// Who takes part, ours first.
    pub contenders: Vec<Contender<'a>>,
}

/// How long to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Quiet samples wanted of each contender.
    pub wanted: usize,
    /// The least quiet samples of a settled figure.
    pub least: usize,
    /// Rounds at most.
    pub rounds_max: usize,
}

impl Effort {
    /// For figures that are kept.
    pub const FULL: Self = Self { wanted: 15, least: 9, rounds_max: 120 };
    /// For a look.
    pub const QUICK: Self = Self { wanted: 5, least: 5, rounds_max: 25 };
}

/// What was measured of one contender.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Library and version.
    pub name: String,
    /// Why it took part.
    pub role: Role,
    /// In the cell's unit.
    pub value: f64,
    /// Quiet samples behind it.
    pub quiet: usize,
    /// All samples taken.
    pub samples: usize,
    /// Whether the quiet samples are enough to judge by.
    pub is_settled: bool,
}

/// Why a cell could not be measured.
#[derive(Debug, Error)]
pub enum CellError {
    /// No buffers.
    #[error("{case}: no memory for its buffers")]
    Memory {
        /// The cell.
        case: String,
        /// Why.
        source: std::io::Error,
    },
    /// A contender refused.
    #[error("{case}: {contender}: {reason}")]
    Refused {
        /// The cell.
        case: String,
        /// Who.
        contender: String,
        /// What it said.
        reason: String,
    },
    /// A contender returned and its targets hold what they held before.
    #[error("{case}: {contender} wrote nothing")]
    WroteNothing {
        /// The cell.
        case: String,
        /// Who.
        contender: String,
    },
}

/// Measures a cell: the figure of each contender, in their order.
///
/// # Errors
/// [`CellError`].
pub fn measure(gate: &mut Gate, cell: &mut Cell<'_>, effort: Effort) -> Result<Vec<Figure>, CellError> {
    let memory = |source| CellError::Memory { case: cell.case.clone(), source };
    let mut arena = Arena::new(&cell.layout).map_err(memory)?;
    let mut stripes = arena.stripes(&cell.layout);
    let case = &cell.case;
    for contender in &mut cell.contenders {
        try_once(case, contender, &mut stripes[0])?;
    }
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); cell.contenders.len()];
    let mut first = 0;
    for _ in 0..effort.rounds_max {
        let mut all_done = true;
        for (contender, samples) in cell.contenders.iter_mut().zip(&mut samples) {
            let quiet = samples.iter().filter(|sample| contender.work.is_quiet(gate, sample)).count();
            all_done &= quiet >= effort.wanted;
            // Those that have enough go on a little beside the others, then rest.
            if quiet >= 2 * effort.wanted {
                continue;
            }
            let refused = |reason| CellError::Refused { case: case.clone(), contender: contender.name.clone(), reason };
            let sample = contender.work.sample(gate, &mut stripes, first).map_err(refused)?;
            samples.push(sample);
            first = (first + contender.work.runs() as usize) % stripes.len();
        }
        if all_done {
            break;
        }
    }
    let figures = cell.contenders.iter_mut().zip(samples).map(|(contender, samples)| {
        let is_quiet = |sample: &&Sample| contender.work.is_quiet(gate, sample);
        let quiet: Vec<f64> = samples.iter().filter(is_quiet).map(|sample| sample.run_ns).collect();
        let count = quiet.len();
        let all = || median(samples.iter().map(|sample| sample.run_ns).collect());
        Figure {
            name: contender.name.clone(),
            role: contender.role.clone(),
            value: cell.unit.of(median(quiet).or_else(all).expect("at least one sample was taken")),
            quiet: count,
            samples: samples.len(),
            is_settled: count >= effort.least,
        }
    });
    Ok(figures.collect())
}

/// Runs a contender once and looks at what it left.
fn try_once(case: &str, contender: &mut Contender<'_>, stripe: &mut Stripe<'_>) -> Result<(), CellError> {
    for (i, target) in stripe.targets.iter_mut().enumerate() {
        target.fill(i as u8 ^ MARK);
    }
    let name = contender.name.clone();
    let wrote = contender.work.once(stripe);
    let wrote_here =
        wrote.map_err(|reason| CellError::Refused { case: case.to_owned(), contender: name.clone(), reason })?;
    let is_marked = |(i, target): (usize, &&mut [u8])| target.iter().all(|byte| *byte == i as u8 ^ MARK);
    if wrote_here && stripe.targets.iter().enumerate().any(is_marked) {
        return Err(CellError::WroteNothing { case: case.to_owned(), contender: name });
    }
    Ok(())
}

const MARK: u8 = 0xa5;
