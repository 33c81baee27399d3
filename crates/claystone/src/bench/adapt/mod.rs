//! Redundancy that follows heat beside codes that stay: six made workloads and recorded jobs of Facebook's clusters, on a
//! thousand simulated drives (`simulate`), and small against the real store on directories of this machine (`replay`), where
//! codes and conversions are also counted one by one (`machine`).
//!
//! Invariants:
//! 1. What is converted, rebuilt and read is decided by the store's own planners and codes in both.
//! 2. What is said to be the paper's is printed beside what was counted, not mixed with it.
//!
//! Source: [hacfs §5]

mod cluster;
mod costs;
mod counted;
mod machine;
mod replay;
mod report;
mod simulate;
mod workload;

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, anyhow, ensure};
use claystone_meta::HeatPolicy;

pub use self::report::Report;
use self::report::{Codes, OnMachine, Simulated};
use self::simulate::{Keeping, Outcome, simulate};
use self::workload::{MADE, Made, Scale, UNIT_BYTES, Workload, facebook};
use crate::progress::Progress;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Made workloads, by name; empty: all.
    pub workloads: Vec<String>,
    /// Ways to keep data, by name; empty: all.
    pub systems: Vec<String>,
    /// Samples of Facebook's jobs: a file or a directory.
    pub facebook: Option<PathBuf>,
    /// In simulated time, if at all.
    pub simulation: Option<InSimulation>,
    /// On this machine, if at all.
    pub machine: Option<OnThisMachine>,
}

/// How to simulate.
#[derive(Debug, Clone)]
pub struct InSimulation {
    /// Drives.
    pub disks: usize,
    /// Bytes of all files of a workload.
    pub data_bytes: u64,
    /// Files of a made workload.
    pub files: usize,
    /// Days of a made workload, the first two included, which do not count.
    pub days: u32,
    /// What decides all chance.
    pub seed: u64,
}

/// How to measure on this machine.
#[derive(Debug, Clone)]
pub struct OnThisMachine {
    /// Files of each workload.
    pub files: usize,
    /// Days of a made workload, the first two included, which do not count.
    pub days: u32,
    /// What decides all chance of the workloads.
    pub seed: u64,
    /// Where the disks are made; `None`: the system's place for temporary files.
    pub directory: Option<PathBuf>,
}

/// A way to keep data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct System {
    /// What it is called.
    pub name: &'static str,
    /// A code, or a policy's name.
    kept: Kept,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Code(&'static str),
    Policy(&'static str),
}

/// All ways: three codes that stay, as the paper compares with, and four policies.
pub const SYSTEMS: [System; 7] = [
    System { name: "rs:6+3", kept: Kept::Code("rs:6+3") },
    System { name: "rs:10+4", kept: Kept::Code("rs:10+4") },
    System { name: "lrc:12+2+2", kept: Kept::Code("lrc:12+2+2") },
    System { name: "hacfs-pc", kept: Kept::Policy("pc") },
    System { name: "hacfs-lrc", kept: Kept::Policy("lrc") },
    System { name: "rs-merge", kept: Kept::Policy("rsm-6+3") },
    System { name: "clay-cold", kept: Kept::Policy("clay") },
];

impl System {
    fn keeping(&self) -> Keeping {
        match self.kept {
            Kept::Code(code) => Keeping::Code(code.parse().expect("the codes of this table are valid")),
            Kept::Policy(name) => Keeping::Policy(policy(name)),
        }
    }
}

fn policy(name: &str) -> HeatPolicy {
    HeatPolicy::named(name).expect("the policies of this table have these names")
}

/// Runs all.
///
/// # Errors
/// A name is that of none, a sample cannot be read, or the store refuses something.
pub async fn run(plan: &Plan) -> anyhow::Result<Report> {
    let systems = super::chosen(&SYSTEMS, |system| system.name.to_owned(), &plan.systems)?;
    let made = super::chosen(&MADE, |made| made.name.to_owned(), &plan.workloads)?;
    let mut report = Report::default();
    let recorded = match &plan.facebook {
        Some(path) => {
            facebook(path, plan.simulation.as_ref().map_or(RECORDED_BYTES, |simulation| simulation.data_bytes))?
        }
        None => Vec::new(),
    };
    if let Some(simulation) = &plan.simulation {
        let InSimulation { data_bytes, files, days, seed, .. } = *simulation;
        ensure!(days > 2, "--days: the first two do not count");
        let scale = Scale { data_bytes, files, days, unit_bytes: UNIT_BYTES };
        let mut workloads: Vec<Workload> = made.iter().map(|made| made.make(scale, seed)).collect();
        workloads.extend(recorded.iter().cloned());
        let (simulation, systems) = (simulation.clone(), systems.clone());
        report.simulated = tokio::task::spawn_blocking(move || all(&workloads, &systems, &simulation)).await??;
    }
    if let Some(machine) = &plan.machine {
        report.codes = codes(machine).await?;
        report.on_machine = on_machine(machine, &made, &recorded, &systems).await?;
    }
    Ok(report)
}

/// Every workload against every way to keep it, and those that meet their bound also without one; several at a time.
fn all(workloads: &[Workload], systems: &[System], simulation: &InSimulation) -> anyhow::Result<Vec<Simulated>> {
    let mut jobs: Vec<(&Workload, System, bool)> = Vec::new();
    for workload in workloads {
        for system in systems {
            jobs.push((workload, *system, true));
            let is_papers = matches!(system.kept, Kept::Policy("pc" | "lrc"));
            if is_papers && ["cc3", "cc4"].contains(&workload.name.as_str()) {
                jobs.push((workload, *system, false));
            }
        }
    }
    let progress = Progress::new("simulating", jobs.len() as u64);
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<anyhow::Result<Outcome>>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < jobs.len()) {
                    let (workload, system, bounded) = jobs[at];
                    let keeping = match system.keeping() {
                        Keeping::Policy(policy) if !bounded => {
                            Keeping::Policy(HeatPolicy { percent_max: UNBOUNDED_PERCENT, ..policy })
                        }
                        keeping => keeping,
                    };
                    let outcome = simulate(workload, keeping, simulation.disks, simulation.seed);
                    *done[at].lock().expect("nobody panics here") = Some(outcome);
                    progress.step(1);
                }
            });
        }
    });
    progress.end();
    let outcomes = jobs.into_iter().zip(done).map(|((workload, system, bounded), done)| {
        let outcome = done.into_inner().ok().flatten().ok_or_else(|| anyhow!("a simulation panicked"))?;
        let name = format!("{} {}", workload.name, system.name);
        let outcome = outcome.with_context(|| name)?;
        Ok(Simulated { workload: workload.name.clone(), system, bounded, outcome })
    });
    outcomes.collect()
}

async fn codes(machine: &OnThisMachine) -> anyhow::Result<Codes> {
    let place = super::scratch(machine.directory.as_deref())?;
    let policies = ["pc", "lrc", "rsm-6+3", "rsm-10+4", "clay"].map(policy);
    let singles = ["rs:6+3", "rs:10+4"].map(|code| code.parse().expect("valid"));
    let (per_chunk, conversions) = machine::codes(place.path(), &policies, &singles).await?;
    Ok(Codes { per_chunk, conversions })
}

/// Every workload, small, against every way to keep it, one after the other.
async fn on_machine(
    machine: &OnThisMachine,
    made: &[Made],
    recorded: &[Workload],
    systems: &[System],
) -> anyhow::Result<Vec<OnMachine>> {
    let OnThisMachine { files, days, seed, .. } = *machine;
    let (unit_bytes, data_bytes) = (replay::UNIT_BYTES, files as u64 * FILE_UNITS * replay::UNIT_BYTES);
    let scale = Scale { data_bytes, files, days, unit_bytes };
    // A few short files find nothing to be merged with.
    let of_blocks = made.iter().filter(|made| made.is_of_blocks());
    let mut workloads: Vec<Workload> = of_blocks.map(|made| made.make(scale, seed)).collect();
    workloads.extend(recorded.iter().map(|workload| workload.sampled(files, data_bytes, unit_bytes)));
    let progress = Progress::new("measuring", (workloads.len() * systems.len()) as u64);
    let mut measured = Vec::new();
    for workload in &workloads {
        for system in systems {
            let name = format!("{} {}", workload.name, system.name);
            progress.say(&name);
            let place = super::scratch(machine.directory.as_deref())?;
            let replayed = replay::replay(place.path(), workload, system.keeping(), seed).await.context(name)?;
            measured.push(OnMachine { workload: workload.name.clone(), system: *system, replayed });
            progress.step(1);
        }
    }
    progress.end();
    Ok(measured)
}

const THREADS_MAX: usize = 8;
/// Files of a thousandth of a simulated one's length, about: blocks of 60 chunks in each on average.
const FILE_UNITS: u64 = 2;
/// What recorded files are scaled to at most where nothing is simulated: what is shorter than a row then is left out.
const RECORDED_BYTES: u64 = 16 << 40;
/// More than any code here takes.
const UNBOUNDED_PERCENT: u32 = 400;
