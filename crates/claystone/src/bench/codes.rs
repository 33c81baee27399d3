//! The erasure codes, beside other libraries and beside theory.
//!
//! Invariants:
//! 1. A figure from too few quiet samples is not judged: its row has a goal and no verdict, and a line says so.
//! 2. A goal on a ratio is dropped where there is nobody to be compared with, and those of Reed-Solomon, and of Clay beside ISA-L, are
//!    not judged where ISA-L 2.32 or later with GFNI or klauspost is absent: to be ahead of the others would say nothing.

use anyhow::ensure;
use claystone_bench::{Comparison, Effort, Peers, Plan, Step, cells, compare, reads};
use claystone_code::Tier;

use crate::output::note;
use crate::progress::Progress;
use crate::rows::{Against, Figure, Goals, Row};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Only what has this text in its name.
    pub case: Option<String>,
    /// Fewer samples, and no verdicts.
    pub quick: bool,
    /// Other libraries too.
    pub peers: bool,
}

/// The rows of a bench, and the other libraries' own figures.
#[derive(Debug)]
pub struct Measured {
    /// Ours.
    pub rows: Vec<Row>,
    /// The peers'.
    pub peer_rows: Vec<Row>,
}

/// All codes, by speed.
///
/// # Errors
/// Nothing has the name, this build has no peers, or a cell cannot be measured.
pub fn codes(choice: &Choice) -> anyhow::Result<Measured> {
    let peers = if choice.peers { Peers::find()? } else { Peers::none() };
    for absent in peers.absent() {
        note(format_args!("not measured: {absent}"));
    }
    match peers.names()[..] {
        [] => {
            note(format_args!("no other library is measured: rows that are compared with one have no goal (--peers)"))
        }
        ref names => note(format_args!("beside {}", names.join(", "))),
    }
    let is_complete = !choice.peers || peers.is_complete();
    if !is_complete {
        note(format_args!(
            "without ISA-L 2.32 or later with GFNI, or without klauspost: goals of Reed-Solomon, and beside ISA-L, are not judged"
        ));
    }
    rows("codes", measured(cells::codes(), &peers, choice)?, choice, is_complete)
}

/// Clay codes: what repairs read beside theory, and encoding beside our own Reed-Solomon.
///
/// # Errors
/// Nothing has the name, or a cell cannot be measured.
pub fn clay(choice: &Choice) -> anyhow::Result<Measured> {
    let is_chosen = |row: &Comparison| is_in(&format!("{} {}", row.case, row.metric), choice);
    let mut all: Vec<Comparison> = reads::repairs().into_iter().filter(is_chosen).collect();
    all.extend(measured(cells::clay(), &Peers::none(), choice)?);
    rows("clay", all, choice, true)
}

fn measured(plans: Vec<Plan>, peers: &Peers, choice: &Choice) -> anyhow::Result<Vec<Comparison>> {
    let plans: Vec<Plan> = plans.into_iter().filter(|plan| is_in(&plan.name(), choice)).collect();
    let effort = if choice.quick { Effort::QUICK } else { Effort::FULL };
    let progress = Progress::new("measuring", (plans.len() * effort.passes) as u64);
    let compared = compare(&plans, peers, effort, |Step { done, total, name }| {
        progress.of(done as u64, total as u64);
        progress.say(name);
    });
    progress.end();
    Ok(compared?)
}

fn is_in(name: &str, choice: &Choice) -> bool {
    choice.case.as_ref().is_none_or(|case| name.contains(case))
}

/// Whether a goal on this is on a place among all peers that know Reed-Solomon codes, or beside ISA-L alone, as Clay has one too.
fn is_among_peers(comparison: &Comparison) -> bool {
    let Comparison { case, metric, needs_against, .. } = comparison;
    case.starts_with("rs:") && *needs_against || metric.contains("_isal_")
}

/// `is_complete`: whether the peers that goals are set against were measured.
fn rows(bench: &'static str, all: Vec<Comparison>, choice: &Choice, is_complete: bool) -> anyhow::Result<Measured> {
    let case = choice.case.as_deref().unwrap_or_default();
    ensure!(!all.is_empty(), "no name contains {case:?}: `--case rs` shows some");
    let goals = Goals::built_in();
    // Goals are set for the fastest there is.
    let is_slower = Tier::chosen() != Tier::best();
    let mut measured = Measured { rows: Vec::new(), peer_rows: Vec::new() };
    for comparison in all {
        let is_beside_all = is_complete || !is_among_peers(&comparison);
        let Comparison { case, metric, value, unit, against, is_settled, needs_against, is_peer } = comparison;
        let against = against.map(|(name, value)| Against { name, value });
        let is_alone = needs_against && against.is_none();
        let figure = Figure { bench, case, metric, value, unit, against };
        let row = match () {
            () if is_alone => goals.row_without_goal(figure),
            () if is_settled && !choice.quick && !is_slower && is_beside_all => goals.row(figure),
            () => goals.row_unjudged(figure),
        };
        if !is_settled {
            note(format_args!("not settled, too few quiet samples: {}", row.name()));
        }
        if is_peer { measured.peer_rows.push(row) } else { measured.rows.push(row) }
    }
    if is_slower {
        note(format_args!("codes run with {}, and goals are for {}: not judged", Tier::chosen(), Tier::best()));
    }
    if choice.quick && measured.rows.iter().any(Row::is_unjudged) {
        note(format_args!("--quick takes too few samples to judge goals by"));
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_of_reed_solomon_and_beside_isal_wait_for_all_peers() {
        let row = |case: &str, metric: &str, against: Option<f64>| Comparison {
            case: case.to_owned(),
            metric: metric.to_owned(),
            value: 9.0,
            unit: "GB/s",
            against: against.map(|value| ("other".to_owned(), value)),
            is_settled: true,
            needs_against: against.is_some(),
            is_peer: false,
        };
        let all = vec![
            row("rs:4+2 8KiB", "encode_gb_per_s", Some(3.0)),
            row("rs 21 cells", "encode_over_isal_mean", None),
            row("clay:16+4:19 64KiB", "encode_beside_isal_rs_gb_per_s", Some(9.0)),
            row("clay:16+4:19 64KiB", "encode_beside_rs_gb_per_s", Some(9.0)),
            row("rsm:12+3 8KiB", "encode_beside_rs_gb_per_s", Some(9.0)),
        ];
        let told = |quick, is_complete| {
            let choice = Choice { case: None, quick, peers: true };
            let measured = rows("codes", all.clone(), &choice, is_complete).expect("some");
            measured.rows.iter().map(Row::is_unjudged).collect::<Vec<_>>()
        };
        assert_eq!(told(true, true), [true; 5], "each of them has a goal");
        assert_eq!(told(false, true), [false; 5]);
        // To what is beside our own no peer makes a difference.
        assert_eq!(told(false, false), [true, true, true, false, false]);
    }
}
