//! One cell of the comparison: some work, who does it, and what came out.
//!
//! Invariants:
//! 1. Contenders take turns, one sample each, another one first in each round, until all have enough quiet samples or the
//!    rounds are used up. Each round has its buffers at another place.
//! 2. A figure is the median of all quiet samples of all passes; with too few of them it is not settled.

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

    /// Whether `a` is the better figure.
    pub fn is_better(self, a: f64, b: f64) -> bool {
        match self {
            Self::GbPerS { .. } => a > b,
            Self::Us => a < b,
        }
    }

    fn of(self, run_ns: f64) -> f64 {
        match self {
            Self::GbPerS { run_bytes } => run_bytes as f64 / run_ns,
            Self::Us => run_ns / 1e3,
        }
    }
}

/// One cell, ready to be measured.
#[derive(Debug)]
pub struct Cell<'a> {
    /// Code and size, such as `rs:10+4 128KiB`.
    pub case: String,
    /// What is measured, such as `encode_gb_per_s`.
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
    /// How often the whole list of cells is gone through.
    pub passes: usize,
    /// Quiet samples wanted of each contender in a pass.
    pub wanted: usize,
    /// Rounds of a pass at most.
    pub rounds_max: usize,
    /// The least quiet samples of a settled figure, over all passes.
    pub least: usize,
}

impl Effort {
    /// For figures that are kept.
    pub const FULL: Self = Self { passes: 3, wanted: 15, rounds_max: 120, least: 9 };
    /// For a look.
    pub const QUICK: Self = Self { passes: 1, wanted: 5, rounds_max: 25, least: 5 };
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

/// The samples of a cell's contenders, over all passes.
#[derive(Debug, Default)]
pub struct Samples(Vec<Series>);

#[derive(Debug)]
struct Series {
    name: String,
    role: Role,
    quiet_ns: Vec<f64>,
    all_ns: Vec<f64>,
}

impl Samples {
    /// The figure of each contender, in their order.
    pub fn figures(&self, unit: Unit, effort: Effort) -> Vec<Figure> {
        let figure = |series: &Series| {
            let Series { name, role, quiet_ns, all_ns } = series;
            // Without a quiet sample there is still a figure to show, if not to judge by.
            let run_ns = median(quiet_ns.clone()).or_else(|| median(all_ns.clone()));
            Figure {
                name: name.clone(),
                role: role.clone(),
                value: unit.of(run_ns.expect("a pass takes at least one sample")),
                quiet: quiet_ns.len(),
                samples: all_ns.len(),
                is_settled: quiet_ns.len() >= effort.least,
            }
        };
        self.0.iter().map(figure).collect()
    }
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

/// One pass over a cell; its samples are added to `samples`, which an earlier pass over the same cell may have filled.
///
/// # Errors
/// [`CellError`].
pub fn measure(gate: &mut Gate, cell: &mut Cell<'_>, effort: Effort, samples: &mut Samples) -> Result<(), CellError> {
    let Cell { case, layout, contenders, .. } = cell;
    let mut arena = Arena::new(layout).map_err(|source| CellError::Memory { case: case.clone(), source })?;
    for contender in &mut *contenders {
        try_once(case, contender, arena.stripes(layout, 0).next_stripe())?;
    }
    let mut at = 0;
    let mut taken: Vec<Vec<Sample>> = vec![Vec::new(); contenders.len()];
    for round in 0..effort.rounds_max {
        let mut all_done = true;
        let mut stripes = arena.stripes(layout, round).from(at);
        for turn in 0..contenders.len() {
            // There and back, so that nobody always follows the same one.
            let turn = if round % 2 == 0 { turn } else { contenders.len() - 1 - turn };
            let turn = (round / 2 + turn) % contenders.len();
            let (contender, taken) = (&mut contenders[turn], &mut taken[turn]);
            let quiet = taken.iter().filter(|sample| contender.work.is_quiet(gate, sample)).count();
            all_done &= quiet >= effort.wanted;
            // Those that have enough go on a little beside the others, then rest.
            if quiet < 2 * effort.wanted {
                let sample = contender.work.sample(gate, &mut stripes);
                let name = || contender.name.clone();
                taken.push(sample.map_err(|reason| CellError::Refused {
                    case: case.clone(),
                    contender: name(),
                    reason,
                })?);
            }
        }
        at = stripes.at();
        if all_done {
            break;
        }
    }
    for (i, (contender, taken)) in contenders.iter().zip(&taken).enumerate() {
        if samples.0.len() == i {
            let (name, role) = (contender.name.clone(), contender.role.clone());
            samples.0.push(Series { name, role, quiet_ns: Vec::new(), all_ns: Vec::new() });
        }
        let is_quiet = |sample: &&Sample| contender.work.is_quiet(gate, sample);
        samples.0[i].quiet_ns.extend(taken.iter().filter(is_quiet).map(|sample| sample.run_ns));
        samples.0[i].all_ns.extend(taken.iter().map(|sample| sample.run_ns));
    }
    Ok(())
}

/// Runs a contender once and looks at what it left.
fn try_once(case: &str, contender: &mut Contender<'_>, stripe: &mut Stripe<'_>) -> Result<(), CellError> {
    for target in &mut stripe.targets {
        target.fill(MARK);
    }
    let (case, name) = (|| case.to_owned(), || contender.name.clone());
    let wrote = contender.work.once(stripe);
    let wrote_here = wrote.map_err(|reason| CellError::Refused { case: case(), contender: name(), reason })?;
    let is_marked = |target: &&mut [u8]| target.iter().all(|byte| *byte == MARK);
    if wrote_here && stripe.targets.iter().any(is_marked) {
        return Err(CellError::WroteNothing { case: case(), contender: name() });
    }
    Ok(())
}

/// What no code makes of noise throughout.
const MARK: u8 = 0xa5;

#[cfg(test)]
mod tests {
    use super::{Cell, CellError, Effort, Samples, Unit, measure};
    use crate::arena::Layout;
    use crate::contender::{Contender, Role};
    use crate::gate::Gate;

    const EFFORT: Effort = Effort { passes: 2, wanted: 1, rounds_max: 3, least: 1 };

    fn cell(contenders: Vec<Contender<'_>>) -> Cell<'_> {
        let unit = Unit::GbPerS { run_bytes: 128 };
        Cell { case: "c".to_owned(), metric: "m".to_owned(), unit, layout: Layout::even(2, 1, 64), contenders }
    }

    #[test]
    fn a_contender_that_does_nothing_is_found_out() {
        let lazy = Contender::local("lazy", Role::Ours, |_| {});
        let error = measure(&mut Gate::warmed(), &mut cell(vec![lazy]), EFFORT, &mut Samples::default());
        assert!(matches!(error, Err(CellError::WroteNothing { .. })), "{error:?}");
    }

    #[test]
    fn twice_the_work_is_half_as_fast_and_passes_add_up() {
        let work = |rounds: u32| {
            move |stripe: &mut crate::arena::Stripe<'_>| {
                for _ in 0..rounds * 2000 {
                    std::hint::black_box(&mut stripe.targets[0]).fill(1);
                }
            }
        };
        let mut samples = Samples::default();
        let mut gate = Gate::warmed();
        for _ in 0..EFFORT.passes {
            let contenders =
                vec![Contender::local("a", Role::Ours, work(1)), Contender::local("b", Role::Peer, work(4))];
            measure(&mut gate, &mut cell(contenders), EFFORT, &mut samples).expect("both write");
        }
        let figures = samples.figures(Unit::Us, EFFORT);
        assert_eq!(figures.len(), 2);
        assert!(figures.iter().all(|figure| figure.samples >= 2));
        assert!(figures[0].value * 2.0 < figures[1].value, "{figures:?}");
    }

    #[test]
    fn too_few_quiet_samples_settle_nothing() {
        let mut samples = Samples::default();
        let busy = Contender::local("a", Role::Ours, |stripe| stripe.targets[0].fill(1));
        measure(&mut Gate::warmed(), &mut cell(vec![busy]), EFFORT, &mut samples).expect("it writes");
        let strict = Effort { least: 100, ..EFFORT };
        assert!(!samples.figures(Unit::Us, strict)[0].is_settled);
    }
}
