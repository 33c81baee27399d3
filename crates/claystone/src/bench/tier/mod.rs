//! Writes that know the drive, beside the same devices without: a solid-state drive alone, and as a cache that writes back. All in
//! simulated time, with devices that are measured first, as one would any others.
//!
//! Source: [bcw §Write Performance], [bcw §Queue Length Elimination], [bcw §SSD Written Data Reduction], [bcw §HDD Utilization].
//!
//! Invariants:
//! 1. Every way gets the same requests at the same times; a seed repeats all figures.

mod bed;
mod workload;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use claystone_sim::{BufferModel, SimRandom, SsdModel};
use claystone_tier::Mode;

use self::bed::{Devices, Known, Outcome, Reach, Way};
use self::workload::{Request, WORKLOADS, Workload, evenly};
use super::jobs::on_all_processors;
use crate::chart::Lines;
use crate::emulation::hard_disks;
use crate::rows::{Against, Figure, Goals, Row};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Only cases with this text in their names.
    pub case: Option<String>,
    /// Of the time of each workload, this part.
    pub part: f64,
    /// What decides all chance.
    pub seed: u64,
    /// Whether goals are judged.
    pub judged: bool,
}

/// What was measured.
#[derive(Debug)]
pub struct Measured {
    /// Figures.
    pub rows: Vec<Row>,
    /// Plots as SVG, each with its name.
    pub plots: Vec<(String, String)>,
}

/// A way by its name.
#[derive(Debug, Clone, Copy)]
struct Named {
    name: &'static str,
    way: Way,
    buffer: BufferModel,
}

/// One run.
#[derive(Debug, Clone, Copy)]
struct Job {
    load: Load,
    named: Named,
}

/// What is asked of the devices.
#[derive(Debug, Clone, Copy)]
enum Load {
    Workload(Workload),
    /// Writes of [`SWEPT_BYTES`], so far apart.
    Even(Duration),
}

impl Load {
    fn name(&self) -> String {
        match self {
            Load::Workload(workload) => workload.name.to_owned(),
            Load::Even(apart) => format!("every {}us", apart.as_micros()),
        }
    }

    fn requests(&self, choice: &Choice) -> Vec<Request> {
        match self {
            Load::Workload(workload) => {
                let random = claystone_env::Random::fork(&SimRandom::new(choice.seed), workload.name);
                workload.requests(choice.part, &*random)
            }
            Load::Even(apart) => {
                let count = if choice.judged { SWEPT_WRITES } else { SWEPT_WRITES / 10 };
                evenly(count, SWEPT_BYTES, *apart)
            }
        }
    }
}

impl Job {
    fn name(&self) -> String {
        format!("{} {}", self.load.name(), self.named.name)
    }
}

/// Measures.
///
/// # Errors
/// No case has the name, or an emulated drive failed, which none should.
pub fn tier(choice: &Choice) -> anyhow::Result<Measured> {
    let is_chosen = |job: &Job| choice.case.as_ref().is_none_or(|chosen| job.name().contains(chosen.as_str()));
    let jobs = jobs(choice.part);
    // Everything is held against the solid-state drive alone.
    let is_wanted = |job: &&Job| {
        let of_same = |other: &Job| other.load.name() == job.load.name();
        is_chosen(job) || (job.named.name == SSD_ONLY && jobs.iter().any(|other| of_same(other) && is_chosen(other)))
    };
    let jobs: Vec<Job> = jobs.iter().filter(is_wanted).copied().collect();
    ensure!(jobs.iter().any(is_chosen), "no case has this name: they are as \"B mios_d\", \"every 20us ssd only\"");
    let mut known: Vec<(BufferModel, Known)> = Vec::new();
    for job in &jobs {
        if !known.iter().any(|(buffer, _)| *buffer == job.named.buffer) {
            known.push((job.named.buffer, devices(job.named.buffer).measure(choice.seed)?));
        }
    }
    let outcomes = on_all_processors(&jobs, |job| {
        let Named { way, buffer, .. } = job.named;
        let (_, known) = known.iter().find(|(of, _)| *of == buffer).expect("all were measured");
        devices(buffer).run(way, known, &job.load.requests(choice), choice.seed)
    })?;
    let goals = Goals::built_in();
    let mut figures: Vec<Figure> = known.iter().flat_map(|(buffer, known)| measured(preset(buffer), known)).collect();
    for (job, outcome) in jobs.iter().zip(&outcomes) {
        let same = jobs
            .iter()
            .zip(&outcomes)
            .find(|(other, _)| other.named.name == SSD_ONLY && other.load.name() == job.load.name());
        let alone = same.map(|(_, outcome)| outcome).filter(|_| job.named.name != SSD_ONLY);
        figures.extend(self::figures(job, outcome, alone));
    }
    let row = |figure| if choice.judged { goals.row(figure) } else { goals.row_unjudged(figure) };
    let plots = plots(&jobs, &outcomes)?;
    Ok(Measured { rows: figures.into_iter().map(row).collect(), plots })
}

fn devices(buffer: BufferModel) -> Devices {
    Devices { ssd: SsdModel::nvme_desktop(), buffer }
}

fn preset(buffer: &BufferModel) -> &'static str {
    let name = |(name, of): &(&'static str, BufferModel)| (of == buffer).then_some(*name);
    hard_disks().iter().find_map(name).unwrap_or("other")
}

fn jobs(part: f64) -> Vec<Job> {
    let first = BufferModel::wd_10tb_like();
    let reaching = |name, mode, disks, reach| Named { name, way: Way::Steered { mode, disks, reach }, buffer: first };
    let steered = |name, mode, disks| reaching(name, mode, disks, Reach::All);
    let pairs = |name, disks, knows_all| reaching(name, Mode::Disabled, disks, Reach::Own { knows_all });
    let ways = |cache_bytes: u64| {
        vec![
            Named { name: SSD_ONLY, way: Way::SsdOnly, buffer: first },
            Named { name: "write-back cache", way: Way::WriteBack { cache_bytes }, buffer: first },
            steered("mios_d", Mode::Disabled, 1),
            steered("mios_e", Mode::Enabled, 1),
            steered("mios_e fast only", Mode::EnabledFast, 1),
        ]
    };
    let mut jobs = Vec::new();
    for workload in WORKLOADS {
        let cache_bytes = (workload.bytes * part * CACHE_SHARE) as u64;
        let mut ways = ways(cache_bytes);
        if workload.name == "B" {
            ways.push(steered("mios_d 2 disks", Mode::Disabled, 2));
            ways.push(steered("mios_e 2 disks", Mode::Enabled, 2));
            ways.push(steered("mios_d 4 disks", Mode::Disabled, 4));
            for (name, disks, knows_all) in [
                ("mios_d 2 pairs", 2, true),
                ("mios_d 2 pairs apart", 2, false),
                ("mios_d 4 pairs", 4, true),
                ("mios_d 4 pairs apart", 4, false),
            ] {
                ways.push(pairs(name, disks, knows_all));
            }
            for (name, buffer) in [
                ("mios_d synthetic-small", BufferModel::synthetic_small()),
                ("mios_d synthetic-large", BufferModel::synthetic_large()),
            ] {
                ways.push(Named { name, buffer, ..steered("", Mode::Disabled, 1) });
            }
        }
        jobs.extend(ways.into_iter().map(|named| Job { load: Load::Workload(workload), named }));
    }
    for us in SWEPT_US {
        let load = Load::Even(Duration::from_micros(us));
        let of = |named: &Named| [SSD_ONLY, "mios_d", "mios_e"].contains(&named.name);
        jobs.extend(ways(0).into_iter().filter(of).map(|named| Job { load, named }));
    }
    jobs
}

/// What was found out about the devices before anything was asked of them.
fn measured(preset: &str, known: &Known) -> Vec<Figure> {
    let Known { profile, queue_max } = known;
    let case = format!("profile {preset}");
    let kib = |bytes: u64| bytes as f64 / 1024.0;
    [
        ("fast_kib", "KiB", kib(profile.fast.mean)),
        ("fast_deviation_kib", "KiB", kib(profile.fast.deviation)),
        ("mid_kib", "KiB", kib(profile.mid.mean)),
        ("mid_deviation_kib", "KiB", kib(profile.mid.deviation)),
        ("mid_limit_kib", "KiB", kib(profile.mid.limit())),
        ("slow_kib", "KiB", kib(profile.slow.mean)),
        ("queue_max", "requests", *queue_max as f64),
    ]
    .map(|(metric, unit, value)| figure(&case, metric, unit, value, None))
    .into()
}

fn figures(job: &Job, outcome: &Outcome, alone: Option<&Outcome>) -> Vec<Figure> {
    let case = job.name();
    let of_alone = |value: f64| Some(Against { name: SSD_ONLY.to_owned(), value });
    let mut figures = Vec::new();
    let mut add = |metric: &str, unit, value: f64, against| figures.push(figure(&case, metric, unit, value, against));
    let of = Sorted::of(outcome);
    let sorted_alone = alone.map(Sorted::of);
    for (metric, unit, value) in Sorted::METRICS {
        let against = match &sorted_alone {
            Some(alone) => of_alone(value(alone)),
            None => paper_alone(job, metric),
        };
        add(metric, unit, value(&of), against);
    }
    if let Load::Even(_) = job.load {
        return figures;
    }
    let gb = |bytes: u64| bytes as f64 / 1e9;
    add("ssd_written_gb", "GB", gb(outcome.ssd_bytes), alone.and_then(|alone| of_alone(gb(alone.ssd_bytes))));
    add("ssd_stalls", "stalls", outcome.stalls as f64, alone.and_then(|alone| of_alone(alone.stalls as f64)));
    let Way::Steered { disks, .. } = job.named.way else { return figures };
    let percent = |time: Duration| 100.0 * time.as_secs_f64() / outcome.lasted.as_secs_f64() / disks as f64;
    let paper = |value: Option<f64>| value.map(|value| Against { name: "paper, above its baseline".to_owned(), value });
    let (net, gross) = paper_utilisation(job);
    add("hdd_net_percent", "%", percent(outcome.hdd_user), paper(net));
    add("hdd_gross_percent", "%", percent(outcome.hdd_user + outcome.hdd_other), paper(gross));
    let counts = outcome.counts;
    let share = |part: u64, all: u64| if all == 0 { 0.0 } else { 100.0 * part as f64 / all as f64 };
    let all = outcome.latencies.len() as u64;
    add("redirected_percent", "%", share(counts.user_writes, all), None);
    add("surprised_percent", "%", share(counts.user_surprises, counts.user_writes), None);
    add("bounced_percent", "%", share(outcome.bounced, all), None);
    add("padding_percent", "%", share(counts.padding_bytes, counts.padding_bytes + counts.user_bytes), None);
    add("slow_stages", "stages", counts.slow_stages as f64, None);
    add("recalibrations", "times", counts.recalibrations as f64, None);
    figures
}

/// What the paper says of its solid-state drives alone. It says so of its traces in general; here it is held against the heaviest.
fn paper_alone(job: &Job, metric: &str) -> Option<Against> {
    let value = match (&job.load, metric) {
        (Load::Workload(workload), "latency_p99_us") if workload.name == "B" => 10_000.0,
        (Load::Workload(workload), "latency_p999_us") if workload.name == "B" => 50_000.0,
        _ => return None,
    };
    (job.named.name == SSD_ONLY).then(|| Against { name: "paper".to_owned(), value })
}

/// By how many points the paper's hard disks are busier, for users' writes and for all: less its baseline, which moves data there
/// that is not moved here.
// Source: [bcw §HDD Utilization]
fn paper_utilisation(job: &Job) -> (Option<f64>, Option<f64>) {
    let Load::Workload(workload) = job.load else { return (None, None) };
    let (base, disabled, enabled, gross) = match workload.name {
        "A" => (7.6, 7.9, 11.9, 27.9),
        "B" => (9.8, 18.2, 26.8, 56.9),
        "C" => (4.1, 10.7, 16.2, 35.8),
        _ => (4.8, 12.3, 17.3, 39.5),
    };
    match job.named.name {
        "mios_d" => (Some(disabled - base), None),
        "mios_e" => (Some(enabled - base), Some(gross - base)),
        _ => (None, None),
    }
}

/// Times and queues of a run, ascending.
struct Sorted {
    latencies: Vec<Duration>,
    queues: Vec<u32>,
}

type Metric = (&'static str, &'static str, fn(&Sorted) -> f64);

impl Sorted {
    const METRICS: [Metric; 6] = [
        ("latency_mean_us", "us", |of| {
            of.latencies.iter().sum::<Duration>().as_secs_f64() * 1e6 / of.latencies.len() as f64
        }),
        ("latency_p99_us", "us", |of| of.latency(0.99)),
        ("latency_p999_us", "us", |of| of.latency(0.999)),
        ("ssd_queue_mean", "requests", |of| {
            of.queues.iter().map(|queue| f64::from(*queue)).sum::<f64>() / of.queues.len() as f64
        }),
        ("ssd_queue_p99", "requests", |of| of.queue(0.99)),
        ("ssd_queue_most", "requests", |of| of.queue(1.0)),
    ];

    fn of(outcome: &Outcome) -> Sorted {
        let (mut latencies, mut queues) = (outcome.latencies.clone(), outcome.queues.clone());
        latencies.sort_unstable();
        queues.sort_unstable();
        Sorted { latencies, queues }
    }

    fn latency(&self, share: f64) -> f64 {
        at(&self.latencies, share).as_secs_f64() * 1e6
    }

    fn queue(&self, share: f64) -> f64 {
        f64::from(at(&self.queues, share))
    }
}

/// What this share of them is at most.
fn at<T: Copy>(sorted: &[T], share: f64) -> T {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// A line of a plot: what it is called, and its points.
type Line = (String, Vec<(f64, f64)>);

/// Of each workload, how long writes took; and the sweep.
fn plots(jobs: &[Job], outcomes: &[Outcome]) -> anyhow::Result<Vec<(String, String)>> {
    let mut by_load: BTreeMap<String, Vec<Line>> = BTreeMap::new();
    let mut swept: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for (job, outcome) in jobs.iter().zip(outcomes) {
        let of = Sorted::of(outcome);
        match job.load {
            Load::Workload(workload) => {
                let shares = (1..100).map(f64::from).chain([99.5, 99.9, 99.95, 99.99]);
                let points = shares.map(|percent| (of.latency(percent / 100.0) / 1000.0, percent)).collect();
                by_load
                    .entry(format!("workload {}", workload.name))
                    .or_default()
                    .push((job.named.name.to_owned(), points));
            }
            Load::Even(apart) => {
                let mean = (Sorted::METRICS[0].2)(&of) / 1000.0;
                swept.entry(job.named.name).or_default().push((apart.as_micros() as f64, mean));
            }
        }
    }
    let mut plots = Vec::new();
    for (name, lines) in by_load {
        let title = format!("Writes, {name} (synthetic)");
        let lines = lines.into_iter().take(crate::chart::COLORS.len()).collect();
        let plot = Lines { title: &title, x: "response in milliseconds", y: "percent of writes", lines };
        plots.push((format!("tier {name}"), plot.draw()?));
    }
    let lines: Vec<_> = swept.into_iter().map(|(name, points)| (name.to_owned(), points)).collect();
    if lines.iter().any(|(_, points)| points.len() > 1) {
        let title = "Writes of 16 KiB, one after another";
        let plot = Lines { title, x: "microseconds between two", y: "mean response in milliseconds", lines };
        plots.push(("tier sweep".to_owned(), plot.draw()?));
    }
    Ok(plots)
}

fn figure(case: &str, metric: &str, unit: &'static str, value: f64, against: Option<Against>) -> Figure {
    Figure { bench: "tier", case: case.to_owned(), metric: metric.to_owned(), value, unit, against }
}

const SSD_ONLY: &str = "ssd only";
/// What a cache that writes back holds of all that is written.
const CACHE_SHARE: f64 = 0.1;
const SWEPT_BYTES: u64 = 16 << 10;
const SWEPT_WRITES: u64 = 100_000;
const SWEPT_US: [u64; 8] = [20, 30, 40, 60, 80, 100, 200, 400];

#[cfg(test)]
mod tests {
    use super::*;

    /// Every figure by its case and metric, of so much of the time.
    fn small(case: &str, part: f64, seed: u64) -> BTreeMap<(String, String), f64> {
        let choice = Choice { case: Some(case.to_owned()), part, seed, judged: false };
        let rows = tier(&choice).expect("measured").rows;
        let rows = rows.iter().map(|row| serde_json::to_value(row).expect("json"));
        let text = |value: &serde_json::Value| value.as_str().expect("text").to_owned();
        rows.map(|row| ((text(&row["case"]), text(&row["metric"])), row["value"].as_f64().expect("a number"))).collect()
    }

    // Test of: [bcw §Write Performance], [bcw §SSD Written Data Reduction]
    #[test]
    fn steered_writes_are_quicker_and_spare_the_solid_state_drive() {
        let found = small("B mios", 0.02, 1);
        let of = |case: &str, metric: &str| found[&(case.to_owned(), metric.to_owned())];
        assert!(of("B ssd only", "ssd_stalls") > 0.0, "{found:?}");
        for metric in ["latency_mean_us", "latency_p999_us", "ssd_queue_most"] {
            assert!(of("B mios_d", metric) < 0.5 * of("B ssd only", metric), "{metric}: {found:?}");
        }
        // A stall is seen by how long one write waits: the queue does not become long first.
        assert!(of("B mios_d", "ssd_queue_p99") <= 3.0, "{found:?}");
        assert!(of("B mios_e", "ssd_written_gb") < 0.3 * of("B ssd only", "ssd_written_gb"), "{found:?}");
        assert!(of("B mios_d", "ssd_written_gb") > 0.5 * of("B ssd only", "ssd_written_gb"), "{found:?}");
        for case in ["B mios_d", "B mios_e", "B mios_e 2 disks", "B mios_d synthetic-small"] {
            assert!(of(case, "surprised_percent") < 0.5, "{case}: {found:?}");
            assert!(of(case, "redirected_percent") > 0.05, "{case}: {found:?}");
        }
    }

    #[test]
    fn a_seed_repeats_all_figures() {
        let (one, again, other) =
            (small("A mios_e", 0.002, 1), small("A mios_e", 0.002, 1), small("A mios_e", 0.002, 2));
        assert_eq!(one, again);
        assert_ne!(one, other);
    }
}
