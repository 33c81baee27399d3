//! From cells to rows: ours against the best peer of the same rounds.
//!
//! Invariants:
//! 1. A comparison is settled only if both its figures are.
//! 2. A mean is settled only if each of its cells is.

use crate::cell::{CellError, Effort, Figure, Samples, Unit, measure};
use crate::cells::{cell, is_in_grid};
use crate::contender::Role;
use crate::gate::Gate;
use crate::peers::{ISAL, Peers};
use crate::plan::Plan;

/// A figure, and another one beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Code and size.
    pub case: String,
    /// What was measured.
    pub metric: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// Whose figure it is held against, and that figure.
    pub against: Option<(String, f64)>,
    /// Whether quiet samples are behind it, so that a goal may be judged.
    pub is_settled: bool,
    /// Without `against` there is nothing to hold a goal on.
    pub needs_against: bool,
    /// A peer's own figure.
    pub is_peer: bool,
}

/// Where a run is.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Steps done.
    pub done: usize,
    /// Steps of the run.
    pub total: usize,
    /// The cell that comes now.
    pub name: &'a str,
}

/// Measures all plans, pass by pass, and compares. `tell` hears of every cell before it is measured.
///
/// # Errors
/// A cell could not be measured.
pub fn compare(
    plans: &[Plan],
    peers: &Peers,
    effort: Effort,
    mut tell: impl FnMut(Step<'_>),
) -> Result<Vec<Comparison>, CellError> {
    let mut gate = Gate::warmed();
    let mut samples: Vec<(Unit, Samples)> = Vec::new();
    for pass in 0..effort.passes {
        for (i, plan) in plans.iter().enumerate() {
            tell(Step { done: pass * plans.len() + i, total: effort.passes * plans.len(), name: &plan.name() });
            let mut cell = cell(plan, peers);
            if pass == 0 {
                samples.push((cell.unit, Samples::default()));
            }
            measure(&mut gate, &mut cell, effort, &mut samples[i].1)?;
        }
    }
    let figures: Vec<Vec<Figure>> = samples.iter().map(|(unit, samples)| samples.figures(*unit, effort)).collect();
    let mut comparisons = Vec::new();
    for ((plan, (unit, _)), figures) in plans.iter().zip(&samples).zip(&figures) {
        comparisons.extend(of_cell(plan, *unit, figures));
    }
    comparisons.extend(beside_isal(plans, &figures));
    Ok(comparisons)
}

/// Ours beside the best peer, ours beside each reference, then every peer by itself.
fn of_cell(plan: &Plan, unit: Unit, figures: &[Figure]) -> Vec<Comparison> {
    let Some((ours, others)) = figures.split_first() else {
        return Vec::new();
    };
    let row = |metric: String, figure: &Figure, against: Option<&Figure>| Comparison {
        case: plan.case(),
        metric,
        value: figure.value,
        unit: unit.name(),
        against: against.map(|against| (against.name.clone(), against.value)),
        is_settled: figure.is_settled && against.is_none_or(|against| against.is_settled),
        needs_against: true,
        is_peer: false,
    };
    let peers = || others.iter().filter(|figure| figure.role == Role::Peer);
    let mut rows = Vec::new();
    match unit {
        Unit::GbPerS { .. } => {
            let best = peers().reduce(|a, b| if unit.is_better(b.value, a.value) { b } else { a });
            rows.push(row(plan.metric(), ours, best));
        }
        // Goals on times are on our own: no peer makes a difference to them.
        Unit::Us => rows.push(Comparison { needs_against: false, ..row(plan.metric(), ours, None) }),
    }
    for figure in others {
        if let Role::Reference(metric) = figure.role {
            rows.push(row(metric.to_owned(), ours, Some(figure)));
        }
    }
    let of_peer = |peer: &Figure| row(format!("{} {}", peer.name, plan.metric()), peer, None);
    rows.extend(peers().map(|peer| Comparison { is_peer: true, ..of_peer(peer) }));
    rows
}

/// The geometric mean of ours over ISA-L's, over the cells of the grid that were measured with it.
fn beside_isal(plans: &[Plan], figures: &[Vec<Figure>]) -> Option<Comparison> {
    let mut logs = Vec::new();
    let mut is_settled = true;
    for (_, figures) in plans.iter().zip(figures).filter(|(plan, _)| is_in_grid(plan)) {
        let isal = figures.iter().find(|figure| figure.role == Role::Peer && figure.name.starts_with(ISAL))?;
        logs.push((figures[0].value / isal.value).ln());
        is_settled &= figures[0].is_settled && isal.is_settled;
    }
    if logs.is_empty() {
        return None;
    }
    Some(Comparison {
        case: format!("rs {} cells", logs.len()),
        metric: "encode_over_isal_mean".to_owned(),
        value: (logs.iter().sum::<f64>() / logs.len() as f64).exp(),
        unit: "x",
        against: None,
        is_settled,
        needs_against: false,
        is_peer: false,
    })
}

#[cfg(test)]
mod tests {
    use super::{Comparison, beside_isal, of_cell};
    use crate::cell::{Figure, Unit};
    use crate::contender::Role;
    use crate::plan::Plan;

    fn figure(name: &str, role: Role, value: f64, is_settled: bool) -> Figure {
        Figure { name: name.to_owned(), role, value, quiet: 9, samples: 9, is_settled }
    }

    #[test]
    fn ours_is_held_against_the_best_peer_and_every_reference() {
        let plan = Plan::encode("rs:4+2", 8 << 10).expect("a code");
        let figures = [
            figure("rs:4+2", Role::Ours, 6.0, true),
            figure("slow", Role::Peer, 2.0, true),
            figure("fast", Role::Peer, 3.0, false),
            figure("other", Role::Reference("beside"), 12.0, true),
        ];
        let rows = of_cell(&plan, Unit::GbPerS { run_bytes: 1 }, &figures);
        let brief: Vec<(&str, f64, Option<&str>, bool)> = rows
            .iter()
            .map(|row| (&*row.metric, row.value, row.against.as_ref().map(|(name, _)| &**name), row.is_settled))
            .collect();
        assert_eq!(
            brief,
            [
                ("encode_gb_per_s", 6.0, Some("fast"), false),
                ("beside", 6.0, Some("other"), true),
                ("slow encode_gb_per_s", 2.0, None, true),
                ("fast encode_gb_per_s", 3.0, None, false),
            ]
        );
        let times = of_cell(&plan, Unit::Us, &figures);
        assert!(times[0].against.is_none() && !times[0].needs_against && times[0].is_settled);
    }

    #[test]
    fn the_mean_is_geometric_and_over_the_grid_only() {
        let plans = ["rs:4+2", "rs:6+3", "rs:5+2"].map(|code| Plan::encode(code, 8 << 10).expect("a code"));
        let figures = |ours| vec![figure("o", Role::Ours, ours, true), figure("isa-l 9", Role::Peer, 1.0, true)];
        let mean = beside_isal(&plans, &[figures(2.0), figures(8.0), figures(100.0)]).expect("ISA-L was there");
        assert!((mean.value - 4.0).abs() < 1e-9, "{mean:?}");
        let Comparison { case, is_settled, .. } = mean;
        assert_eq!((case.as_str(), is_settled), ("rs 2 cells", true));
        assert_eq!(beside_isal(&plans[..1], &[vec![figure("o", Role::Ours, 2.0, true)]]), None);
    }
}
