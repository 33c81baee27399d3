//! Local coding on an emulated hard disk: tails of long reads beside the exact model, what it costs workloads, and ways of
//! updating parity. All bytes, codes and checksums are real; the drive's time is simulated and exact, the program's own is
//! measured and added where nothing else would go on.
//!
//! Invariants:
//! 1. Drives are seeded, so their times are the same in every run; only the program's own time differs.
//! 2. What is read is compared with what was written; a wrong byte is a panic, not a figure.

mod drive;
mod file;
mod files;
mod isolated;
mod space;
mod tails;
mod updates;
mod workloads;

use std::collections::BTreeMap;

use anyhow::ensure;

use self::tails::{Case, Parts, Times};
use self::workloads::{WORKLOADS, Workload};
use super::jobs::on_all_processors;
use crate::progress::Progress;
use crate::rows::{Figure, Goals, Row};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Only what has this text in its name: "tails", "tails 1e-3 20ms", "workloads", "files scan", "updates 50".
    pub part: Option<String>,
    /// Fewer reads, and no verdicts.
    pub quick: bool,
}

/// A part of the work that stands alone: each has a drive of its own.
#[derive(Debug, Clone, Copy)]
enum Job {
    Without { case: usize },
    With { case: usize, length: u32 },
    Workload { workload: Workload, length: u32 },
    Files { workload: Workload, length: u32 },
    Updates { length: u32 },
    Space { file_gib: u64 },
    Isolated,
}

enum Done {
    Parts(Parts),
    Times(Times),
    Figures(Vec<Figure>),
    Workload(Vec<Figure>, f64),
    Files(Vec<Figure>, f64),
}

/// Measures.
///
/// # Errors
/// Nothing has the name, or an emulated drive failed, which none should.
///
/// # Panics
/// If a byte is wrong.
pub fn lec(choice: &Choice) -> anyhow::Result<Vec<Row>> {
    let cases = cases();
    let is_chosen = |part: &str| choice.part.as_ref().is_none_or(|chosen| part.contains(chosen.as_str()));
    let chosen = |case: &usize| is_chosen(&format!("tails {:e} {}ms", cases[*case].soft, cases[*case].retry_ms));
    let tails: Vec<usize> = (0..cases.len()).filter(chosen).collect();
    // The longest ones first.
    let mut jobs: Vec<Job> = tails.iter().map(|case| Job::Without { case: *case }).collect();
    jobs.extend(tails.into_iter().flat_map(|case| tails::LENGTHS.map(|length| Job::With { case, length })));
    let works = WORKLOADS.into_iter().filter(|workload| is_chosen(&format!("workloads {}", workload.name())));
    jobs.extend(works.flat_map(|workload| tails::LENGTHS.map(|length| Job::Workload { workload, length })));
    let works = WORKLOADS.into_iter().filter(|workload| is_chosen(&format!("files {}", workload.name())));
    jobs.extend(works.flat_map(|workload| tails::LENGTHS.map(|length| Job::Files { workload, length })));
    let lengths = updates::LENGTHS.into_iter().filter(|length| is_chosen(&format!("updates {length}")));
    jobs.extend(lengths.map(|length| Job::Updates { length }));
    let file_gib = if choice.quick { 1 } else { SPACE_GIB };
    jobs.extend(is_chosen("space").then_some(Job::Space { file_gib }));
    jobs.extend(is_chosen("isolated").then_some(Job::Isolated));
    ensure!(!jobs.is_empty(), "no part has this name: tails, workloads, files, updates, space, isolated");
    let progress = Progress::new("measuring", jobs.len() as u64);
    let done = on_all_processors(&jobs, &progress, |job| {
        let done = carry_out(*job, choice.quick);
        progress.step(1);
        done
    })?;
    let goals = Goals::built_in();
    let row = |figure| if choice.quick { goals.row_unjudged(figure) } else { goals.row(figure) };
    Ok(figures(&cases, &jobs, done).into_iter().map(row).collect())
}

fn cases() -> Vec<Case> {
    let both = |soft| tails::RETRIES_MS.map(|retry_ms| Case { soft, retry_ms });
    tails::SOFT.into_iter().flat_map(|(soft, _)| both(soft)).collect()
}

fn figures(cases: &[Case], jobs: &[Job], done: Vec<Done>) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut without: BTreeMap<usize, Parts> = BTreeMap::new();
    let mut slowdowns: BTreeMap<(&str, u32), Vec<f64>> = BTreeMap::new();
    for (job, done) in jobs.iter().zip(done) {
        match (*job, done) {
            (Job::Without { case }, Done::Parts(parts)) => drop(without.insert(case, parts)),
            (Job::With { case, length }, Done::Times(with)) => {
                let shape = tails::shape(length, cases[case].soft);
                figures.extend(tails::figures(cases[case], shape, &without[&case], &with));
            }
            (Job::Workload { length, .. }, Done::Workload(more, slowdown)) => {
                figures.extend(more);
                slowdowns.entry(("workloads", length)).or_default().push(slowdown);
            }
            (Job::Files { length, .. }, Done::Files(more, slowdown)) => {
                figures.extend(more);
                slowdowns.entry(("files", length)).or_default().push(slowdown);
            }
            (_, Done::Figures(more)) => figures.extend(more),
            _ => unreachable!("each job has its kind of result"),
        }
    }
    // The mean of all workloads, or none.
    slowdowns.retain(|_, slowdowns| slowdowns.len() == WORKLOADS.len());
    figures.extend(slowdowns.into_iter().map(|((what, length), slowdowns)| Figure {
        bench: "lec",
        case: format!("{what} of groups of {length}"),
        metric: "slowdown_percent".to_owned(),
        value: slowdowns.iter().sum::<f64>() / slowdowns.len() as f64,
        unit: "%",
        against: None,
    }));
    figures
}

fn carry_out(job: Job, quick: bool) -> anyhow::Result<Done> {
    let cases = cases();
    let few = |times: usize| if quick { times.div_ceil(20) } else { times };
    Ok(match job {
        Job::Without { case } => {
            let times = tails::SOFT[case / tails::RETRIES_MS.len()].1;
            Done::Parts(tails::without(cases[case], few(times))?)
        }
        Job::With { case, length } => {
            let shape = tails::shape(length, cases[case].soft);
            Done::Times(tails::with(cases[case], shape, few(SHORT_READS), few(LONG_READS))?)
        }
        Job::Workload { workload, length } => {
            let shape = tails::shape(length, WORKLOAD_SOFT);
            let costs = workloads::costs(workload, shape, WORKLOAD_SOFT)?;
            let (figures, slowdown) = workloads::figures(workload, shape, &costs);
            Done::Workload(figures, slowdown)
        }
        Job::Files { workload, length } => {
            let shape = tails::shape(length, WORKLOAD_SOFT);
            let (figures, slowdown) = files::figures(workload, shape, &files::costs(workload, shape, WORKLOAD_SOFT)?);
            Done::Files(figures, slowdown)
        }
        Job::Updates { length } => Done::Figures(updates::figures(length, &updates::costs(length)?)),
        Job::Isolated => Done::Figures(isolated::figures(few(ISOLATED_READS))?),
        Job::Space { file_gib } => Done::Figures(space::figures(&space::measure(file_gib << 18)?)),
    })
}

/// The chance of a soft failure under workloads.
const WORKLOAD_SOFT: f64 = 1e-3;
/// The file of which the space is measured.
const SPACE_GIB: u64 = 10;
/// Reads of one sector.
const ISOLATED_READS: usize = 4000;
/// Reads with coding: they hardly differ, because groups hardly ever lose more sectors than they have parity; those that wait for a sums
/// sector do, by a turn or two.
const SHORT_READS: usize = 400;
const LONG_READS: usize = 50;
