//! Writes that know the drive, beside the same devices without: a solid-state drive alone, and as a cache that writes back. All in
//! simulated time, with devices that are measured first, as one would any others.
//!
//! Source: [bcw §Write Performance], [bcw §Queue Length Elimination], [bcw §SSD Written Data Reduction], [bcw §HDD Utilization].
//!
//! Invariants:
//! 1. Every way gets the same requests at the same times; a seed repeats all figures.
//! 2. A goal is judged by the median of several seeds.

mod bed;
mod blocking;
mod cache;
mod devices;
mod product;
mod tally;
mod workload;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use claystone_sim::{BufferModel, SimRandom, SsdModel};
use claystone_tier::Mode;

use self::bed::{Reach, Way};
use self::devices::{Devices, How, Known};
use self::tally::{Advance, Outcome};
use self::workload::{Request, WORKLOADS, Workload, evenly};
use super::jobs::on_all_processors;
use crate::chart::Lines;
use crate::emulation::hard_disks;
use crate::progress::Progress;
use crate::rows::{Against, Figure, Goals, Row};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Choice {
    /// Only cases with this text in their names.
    pub case: Option<String>,
    /// Of the time of each workload, this part; `None`: what each says itself.
    pub part: Option<f64>,
    /// What decides all chance: this seed,
    pub seed: u64,
    /// and those that follow it, so many in all; `None`: as many as each workload says. A figure is the median of theirs.
    pub seeds: Option<u64>,
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
    how: How,
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

impl Choice {
    fn part_of(&self, workload: &Workload) -> f64 {
        self.part.unwrap_or(workload.part)
    }

    fn swept_writes(&self) -> u64 {
        if self.judged { SWEPT_WRITES } else { SWEPT_WRITES / 10 }
    }

    fn seeds_of(&self, load: &Load) -> usize {
        let usual = match load {
            Load::Workload(workload) => workload.seeds,
            Load::Even(_) => SWEPT_SEEDS,
        };
        self.seeds.unwrap_or(usual) as usize
    }
}

impl Load {
    fn name(&self) -> String {
        match self {
            Load::Workload(workload) => workload.name.to_owned(),
            Load::Even(apart) => format!("every {}us", apart.as_micros()),
        }
    }

    fn requests(&self, choice: &Choice, seed: u64) -> Vec<Request> {
        match self {
            Load::Workload(workload) => {
                let random = claystone_env::Random::fork(&SimRandom::new(seed), workload.name);
                workload.requests(choice.part_of(workload), &*random)
            }
            Load::Even(apart) => evenly(choice.swept_writes(), SWEPT_BYTES, *apart),
        }
    }

    /// About how many writes, and in how many seconds.
    fn extent(&self, choice: &Choice) -> (f64, f64) {
        match self {
            Load::Workload(workload) => {
                let part = choice.part_of(workload);
                (workload.writes * part, workload.seconds * part)
            }
            Load::Even(apart) => {
                let writes = choice.swept_writes() as f64;
                (writes, writes * apart.as_secs_f64())
            }
        }
    }
}

impl Job {
    fn name(&self) -> String {
        format!("{} {}", self.load.name(), self.named.name)
    }

    /// What a run takes of a processor, so that it can be told how much is left: nanoseconds of one machine.
    fn effort(&self, choice: &Choice) -> u64 {
        let (writes, seconds) = self.load.extent(choice);
        // For each write; and for each second, in which a hard disk that takes all it can is padded a thousand times.
        let (of_write, of_second) = match self.named.how {
            How::Model(Way::SsdOnly) => (2.3e3, 0.0),
            How::Model(Way::Cached { .. }) => (5e3, 0.0),
            How::Model(Way::Steered { mode: Mode::Disabled, .. }) => (2.5e3, 0.0),
            How::Model(Way::Steered { mode: Mode::Enabled | Mode::EnabledFast, .. }) => (2.5e3, 3.4e6),
            How::Product(Mode::Disabled) => (20e3, 1.6e6),
            How::Product(Mode::Enabled | Mode::EnabledFast) => (20e3, 4e6),
        };
        (writes * of_write + seconds * of_second) as u64
    }
}

/// Measures.
///
/// # Errors
/// No case has the name, or an emulated drive failed, which none should.
pub fn tier(choice: &Choice) -> anyhow::Result<Measured> {
    let is_chosen = |job: &Job| choice.case.as_ref().is_none_or(|chosen| job.name().contains(chosen.as_str()));
    let jobs = jobs(choice);
    // Everything is held against the solid-state drive alone.
    let is_wanted = |job: &&Job| {
        let of_same = |other: &Job| other.load.name() == job.load.name();
        is_chosen(job) || (job.named.name == SSD_ONLY && jobs.iter().any(|other| of_same(other) && is_chosen(other)))
    };
    let jobs: Vec<Job> = jobs.iter().filter(is_wanted).copied().collect();
    ensure!(jobs.iter().any(is_chosen), "no case has this name: they are as \"B mios_d\", \"every 20us ssd only\"");
    let seeds_most = jobs.iter().map(|job| choice.seeds_of(&job.load)).max().expect("there is one");
    let seeds: Vec<u64> = (choice.seed..).take(seeds_most).collect();
    let mut buffers: Vec<BufferModel> = Vec::new();
    for job in &jobs {
        if !buffers.contains(&job.named.buffer) {
            buffers.push(job.named.buffer);
        }
    }
    let drives: Vec<(BufferModel, u64)> =
        buffers.iter().flat_map(|buffer| seeds.iter().map(move |seed| (*buffer, *seed))).collect();
    let progress = Progress::new("measuring the drives", drives.len() as u64);
    let measures = on_all_processors(&drives, &progress, |(buffer, seed)| {
        let known = devices(*buffer).measure(*seed);
        progress.step(1);
        known
    })?;
    let known: Vec<(BufferModel, &[Known])> = buffers.into_iter().zip(measures.chunks(seeds.len())).collect();
    let runs: Vec<(&Job, usize)> =
        jobs.iter().flat_map(|job| (0..choice.seeds_of(&job.load)).map(move |at| (job, at))).collect();
    let progress = Progress::share("simulating", runs.iter().map(|(job, _)| job.effort(choice)).sum());
    // What is kept of a run is little: all runs together have hundreds of millions of writes.
    let taken = on_all_processors(&runs, &progress, |(job, at)| {
        let Named { how, buffer, .. } = job.named;
        let (_, known) = known.iter().find(|(of, _)| *of == buffer).expect("all were measured");
        let requests = job.load.requests(choice, seeds[*at]);
        let advance = Advance::new(&progress, job.effort(choice), requests.len());
        let outcome = devices(buffer).run(how, &known[*at], &requests, seeds[*at], advance)?;
        Ok(Taken::of(job, &outcome))
    })?;
    let mut rest = &taken[..];
    let mut by_job: Vec<(&Job, &[Taken])> = Vec::new();
    for job in &jobs {
        let (of_job, behind) = rest.split_at(choice.seeds_of(&job.load));
        by_job.push((job, of_job));
        rest = behind;
    }
    let goals = Goals::built_in();
    let mut figures: Vec<Figure> =
        known.iter().flat_map(|(buffer, known)| measured(preset(buffer), &known[0])).collect();
    for (job, taken) in &by_job {
        let is_alone = |other: &Job| other.named.name == SSD_ONLY && other.load.name() == job.load.name();
        let alone = by_job.iter().find(|(other, _)| is_alone(other)).map(|(_, taken)| *taken);
        figures.extend(self::figures(job, taken, alone.filter(|_| job.named.name != SSD_ONLY)));
    }
    let row = |figure| if choice.judged { goals.row(figure) } else { goals.row_unjudged(figure) };
    let plots = plots(&by_job)?;
    Ok(Measured { rows: figures.into_iter().map(row).collect(), plots })
}

fn devices(buffer: BufferModel) -> Devices {
    Devices { ssd: SsdModel::nvme_desktop(), buffer }
}

fn preset(buffer: &BufferModel) -> &'static str {
    let name = |(name, of): &(&'static str, BufferModel)| (of == buffer).then_some(*name);
    hard_disks().iter().find_map(name).unwrap_or("other")
}

fn jobs(choice: &Choice) -> Vec<Job> {
    let first = BufferModel::wd_10tb_like();
    let reaching =
        |name, mode, disks, reach| Named { name, how: How::Model(Way::Steered { mode, disks, reach }), buffer: first };
    let steered = |name, mode, disks| reaching(name, mode, disks, Reach::All);
    let pairs = |name, mode, disks, knows_all| reaching(name, mode, disks, Reach::Own { knows_all });
    let ways = |cache_bytes: u64| {
        vec![
            Named { name: SSD_ONLY, how: How::Model(Way::SsdOnly), buffer: first },
            Named { name: "lru cache", how: How::Model(Way::Cached { bytes: cache_bytes }), buffer: first },
            steered("mios_d", Mode::Disabled, 1),
            steered("mios_e", Mode::Enabled, 1),
            steered("mios_e fast only", Mode::EnabledFast, 1),
        ]
    };
    let mut jobs = Vec::new();
    for workload in WORKLOADS {
        let cache_bytes = (workload.bytes * choice.part_of(&workload) * CACHE_SHARE) as u64;
        let mut ways = ways(cache_bytes);
        if ["A", "B"].contains(&workload.name) {
            for (name, mode) in [("mios_d, product", Mode::Disabled), ("mios_e, product", Mode::Enabled)] {
                ways.push(Named { name, how: How::Product(mode), buffer: first });
            }
        }
        if workload.name == "B" {
            ways.push(steered("mios_d 2 disks", Mode::Disabled, 2));
            ways.push(steered("mios_e 2 disks", Mode::Enabled, 2));
            ways.push(steered("mios_d 4 disks", Mode::Disabled, 4));
            for (name, mode, disks, knows_all) in [
                ("mios_d 2 pairs", Mode::Disabled, 2, true),
                ("mios_d 2 pairs apart", Mode::Disabled, 2, false),
                ("mios_d 4 pairs", Mode::Disabled, 4, true),
                ("mios_d 4 pairs apart", Mode::Disabled, 4, false),
                ("mios_e 2 pairs", Mode::Enabled, 2, true),
                ("mios_e 4 pairs", Mode::Enabled, 4, true),
            ] {
                ways.push(pairs(name, mode, disks, knows_all));
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

/// What is kept of a run.
struct Taken {
    measures: Vec<Measure>,
    /// How many percent of the writes took at most how many milliseconds.
    shares: Vec<(f64, f64)>,
}

/// A metric, its unit, and how much.
type Measure = (&'static str, &'static str, f64);

impl Taken {
    fn of(job: &Job, outcome: &Outcome) -> Taken {
        let of = Sorted::of(outcome);
        let shares = (1..100).map(f64::from).chain([99.5, 99.9, 99.95, 99.99]);
        let shares = shares.map(|percent| (of.latency(percent / 100.0) / 1000.0, percent)).collect();
        let mut measures: Vec<Measure> =
            Sorted::METRICS.iter().map(|(metric, unit, value)| (*metric, *unit, value(&of))).collect();
        if let Load::Workload(_) = job.load {
            measures.push(("ssd_written_gb", "GB", outcome.ssd_bytes as f64 / 1e9));
            measures.push(("ssd_stalls", "stalls", outcome.stalls as f64));
            match job.named.how {
                How::Model(Way::SsdOnly) => {}
                How::Model(Way::Cached { .. }) => measures.extend(of_cache(outcome)),
                How::Model(Way::Steered { disks, .. }) => measures.extend(of_disks(outcome, disks)),
                How::Product(_) => measures.extend(of_disks(outcome, 1)),
            }
        }
        Taken { measures, shares }
    }
}

fn of_cache(outcome: &Outcome) -> Vec<Measure> {
    let of = outcome.cache;
    let share = |part: u64| 100.0 * part as f64 / of.sectors.max(1) as f64;
    vec![
        ("cache_hit_percent", "%", share(of.hits)),
        ("cache_folded_percent", "%", share(of.folded)),
        ("cache_written_back_percent", "%", share(of.written_back)),
        ("hdd_gross_percent", "%", 100.0 * outcome.hdd_other.as_secs_f64() / outcome.lasted.as_secs_f64()),
    ]
}

fn of_disks(outcome: &Outcome, disks: usize) -> Vec<Measure> {
    let percent = |time: Duration| 100.0 * time.as_secs_f64() / outcome.lasted.as_secs_f64() / disks as f64;
    let counts = outcome.counts;
    let share = |part: u64, all: u64| if all == 0 { 0.0 } else { 100.0 * part as f64 / all as f64 };
    let all = outcome.latencies.len() as u64;
    vec![
        ("hdd_net_percent", "%", percent(outcome.hdd_user)),
        ("hdd_gross_percent", "%", percent(outcome.hdd_user + outcome.hdd_other)),
        ("redirected_percent", "%", share(counts.user_writes, all)),
        ("surprised_percent", "%", share(counts.user_surprises, counts.user_writes)),
        ("bounced_percent", "%", share(outcome.bounced, all)),
        ("padding_percent", "%", share(counts.padding_bytes, counts.padding_bytes + counts.user_bytes)),
        ("slow_stages", "stages", counts.slow_stages as f64),
        ("recalibrations", "times", counts.recalibrations as f64),
    ]
}

/// The figures of a job: of the seeds, the one in the middle. By what it is beside the solid-state drive alone with the same seed, so that a
/// goal does not hang on one seed's luck.
fn figures(job: &Job, of_seeds: &[Taken], alone: Option<&[Taken]>) -> Vec<Figure> {
    let case = job.name();
    let names = of_seeds[0].measures.iter();
    let figure = |(at, (metric, unit, _)): (usize, &Measure)| {
        let alone_of = |seed: usize| {
            let of_alone = alone?[seed].measures.iter().find(|(of, ..)| of == metric)?;
            Some(of_alone.2).filter(|_| COMPARED.contains(metric))
        };
        let pairs = (0..of_seeds.len()).map(|seed| (of_seeds[seed].measures[at].2, alone_of(seed))).collect();
        let (value, of_alone) = middle(pairs);
        let against = match of_alone {
            Some(value) if of_seeds.len() > 1 => {
                Some(Against { name: format!("{SSD_ONLY}, median of {} seeds", of_seeds.len()), value })
            }
            Some(value) => Some(Against { name: SSD_ONLY.to_owned(), value }),
            None => paper(job, metric),
        };
        self::figure(&case, metric, unit, value, against)
    };
    names.enumerate().map(figure).collect()
}

/// Of values and what each is held against the one in the middle, by their ratio where there is one.
fn middle(mut pairs: Vec<(f64, Option<f64>)>) -> (f64, Option<f64>) {
    let has_ratios = pairs.iter().all(|(_, against)| against.is_some_and(|against| against != 0.0));
    let order =
        |(value, against): &(f64, Option<f64>)| if has_ratios { value / against.unwrap_or(1.0) } else { *value };
    pairs.sort_by(|one, other| order(one).total_cmp(&order(other)));
    pairs[(pairs.len() - 1) / 2]
}

fn paper(job: &Job, metric: &str) -> Option<Against> {
    let above = |value: Option<f64>| value.map(|value| Against { name: "paper, above its baseline".to_owned(), value });
    let (net, gross) = paper_utilisation(job);
    match metric {
        "hdd_net_percent" => above(net),
        "hdd_gross_percent" => above(gross),
        _ => paper_alone(job, metric),
    }
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

/// Of each workload, how long writes took; and the sweep. Of the first seed.
fn plots(by_job: &[(&Job, &[Taken])]) -> anyhow::Result<Vec<(String, String)>> {
    let mut by_load: BTreeMap<String, Vec<Line>> = BTreeMap::new();
    let mut swept: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for (job, taken) in by_job {
        let Taken { measures, shares } = &taken[0];
        match job.load {
            Load::Workload(workload) => {
                let lines = by_load.entry(format!("workload {}", workload.name)).or_default();
                lines.push((job.named.name.to_owned(), shares.clone()));
            }
            Load::Even(apart) => {
                let mean = measures[0].2 / 1000.0;
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
/// What is held against the solid-state drive alone.
const COMPARED: [&str; 8] = [
    "latency_mean_us",
    "latency_p99_us",
    "latency_p999_us",
    "ssd_queue_mean",
    "ssd_queue_p99",
    "ssd_queue_most",
    "ssd_written_gb",
    "ssd_stalls",
];
/// What a cache holds of all that is written: some GiB in a full run, as a pair's log on a partition of the solid-state drive.
const CACHE_SHARE: f64 = 0.1;
const SWEPT_BYTES: u64 = 16 << 10;
const SWEPT_WRITES: u64 = 100_000;
const SWEPT_SEEDS: u64 = 7;
const SWEPT_US: [u64; 8] = [20, 30, 40, 60, 80, 100, 200, 400];

#[cfg(test)]
mod tests {
    use super::*;

    /// Every figure by its case and metric, of so much of the time.
    fn small(case: &str, part: f64, seed: u64) -> BTreeMap<(String, String), f64> {
        let choice = Choice { case: Some(case.to_owned()), part: Some(part), seed, seeds: Some(1), judged: false };
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
    fn a_figure_is_the_middle_of_its_seeds_by_its_ratio() {
        let pairs =
            vec![(2.0, Some(31.0)), (2.0, Some(121.0)), (3.0, Some(64.0)), (9.0, Some(900.0)), (3.0, Some(43.0))];
        assert_eq!(middle(pairs), (3.0, Some(64.0)));
        assert_eq!(middle(vec![(7.0, None), (1.0, None), (3.0, None)]), (3.0, None));
        assert_eq!(middle(vec![(7.0, Some(0.0)), (1.0, Some(2.0)), (3.0, Some(1.0))]), (3.0, Some(1.0)));
    }

    #[test]
    fn a_seed_repeats_all_figures() {
        let (one, again, other) =
            (small("A mios_e", 0.002, 1), small("A mios_e", 0.002, 1), small("A mios_e", 0.002, 2));
        assert_eq!(one, again);
        assert_ne!(one, other);
        for case in ["B mios_d, product", "B lru cache"] {
            let [one, again, other] = [1, 1, 2].map(|seed| small(case, 0.002, seed));
            assert_eq!(one, again, "{case}");
            assert_ne!(one, other, "{case}");
        }
    }
}
