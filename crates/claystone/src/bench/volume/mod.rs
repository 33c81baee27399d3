//! Random writes to block volumes: delayed parity update beside what others do, on six disks in directories of one place.
//!
//! All devices live in this process over the same disks, and take turns in short rounds; of the quiet rounds the median
//! counts. A write is acknowledged as each way acknowledges it: in the memory of the system under as many disks as it
//! wants, without a sync. Protocols are left out.

pub mod world;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use bytes::Bytes;
use claystone_bench::gate::median;
use claystone_code::CodeSpec;
use claystone_env::Env;
use claystone_volume::comparators::UpdateMethod;
use claystone_volume::{Blocks, Durable};

use self::world::World;
use super::load::Sample;
use super::noise::{self, Counters, Noise};
use crate::progress::Progress;
use crate::rows::{Against, Figure, Goals, Row};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The cases, by name; empty: all.
    pub cases: Vec<String>,
    /// Length of each device; rounded to whole stripes.
    pub device_bytes: u64,
    /// How long each device is written to in a round.
    pub round: Duration,
    /// Rounds of each case that are to be kept.
    pub rounds: usize,
    /// Whether goals are judged.
    pub judged: bool,
    /// Where the disks are made; `None`: the system's place for temporary files.
    pub directory: Option<PathBuf>,
}

/// Writes of one length, so many at once.
#[derive(Debug, Clone, Copy)]
struct Case {
    name: &'static str,
    bytes: u64,
    depth: usize,
}

const CASES: [Case; 4] = [
    Case { name: "8KiB QD1", bytes: 8192, depth: 1 },
    Case { name: "8KiB QD16", bytes: 8192, depth: 16 },
    Case { name: "2KiB QD1", bytes: 2048, depth: 1 },
    Case { name: "2KiB QD16", bytes: 2048, depth: 16 },
];

/// A way to write, and the devices it writes to.
struct Mode {
    name: &'static str,
    /// Coded pages.
    coded: Arc<dyn Blocks>,
    /// Replicated pages, and the share of writes in percent that goes to coded ones.
    replicated: Option<(Arc<dyn Blocks>, u64)>,
}

/// Runs all cases.
///
/// # Errors
/// A disk or a device cannot be made; a write fails.
pub async fn run(plan: &Plan) -> anyhow::Result<Vec<Row>> {
    let cases = super::chosen(&CASES, |case| case.name.to_owned(), &plan.cases)?;
    let place = super::scratch(plan.directory.as_deref())?;
    let world = World::machine(place.path()).await?;
    let modes = modes(&world, plan.device_bytes).await?;
    let goals = Goals::built_in();
    let progress = Progress::new("measuring", (cases.len() * plan.rounds * modes.len()) as u64);
    let mut rows = Vec::new();
    for case in cases {
        progress.say(case.name);
        let mut rounds: Vec<(Vec<Sample>, Noise)> = Vec::new();
        for number in 0..plan.rounds * TRIES_MAX {
            if rounds.iter().filter(|(_, noise)| noise.is_quiet()).count() >= plan.rounds {
                break;
            }
            let pressure = noise::pressure(QUIET_WINDOW).await;
            let before = Counters::now(&[]);
            let mut samples: Vec<Sample> = modes.iter().map(|_| Sample::default()).collect();
            for turn in 0..modes.len() {
                let at = (turn + number) % modes.len();
                samples[at] = write_for(&world.env, &modes[at], case, plan.round).await?;
                progress.step(1);
            }
            let foreign = Counters::now(&[]).foreign_since(before);
            rounds.push((samples, Noise { pressure, foreign }));
        }
        rows.extend(case_rows(&goals, plan, case, &modes, &rounds));
    }
    progress.end();
    world.stop().await;
    Ok(rows)
}

/// Every mode, on devices that are written all over.
async fn modes(world: &World, bytes: u64) -> anyhow::Result<Vec<Mode>> {
    let (code, replicas): (CodeSpec, CodeSpec) = (CODE.parse()?, REPLICAS.parse()?);
    let replica = world.in_place(UpdateMethod::Replicas, bytes, replicas).await?;
    let naive = world.in_place(UpdateMethod::Naive, bytes, code).await?;
    let alone = |name, coded| Mode { name, coded, replicated: None };
    let coded: Arc<dyn Blocks> = Arc::new(world.volume("coded", bytes, code).await?);
    let replicated: Arc<dyn Blocks> = Arc::new(world.volume("replicated", bytes, replicas).await?);
    Ok(vec![
        alone("replica", replica.clone()),
        alone("naive", naive.clone()),
        alone("parity log", world.in_place(UpdateMethod::ParityLog, bytes, code).await?),
        alone("spw success", world.in_place(UpdateMethod::SpeculativeNext, bytes, code).await?),
        alone("spw failure", world.in_place(UpdateMethod::SpeculativeFirst, bytes, code).await?),
        Mode { name: "drc 20", coded: naive, replicated: Some((replica, 20)) },
        Mode { name: "dpu 20", coded: coded.clone(), replicated: Some((replicated, 20)) },
        alone("dpu 100", coded),
    ])
}

/// Writes to random places for a while.
async fn write_for(env: &Env, mode: &Mode, case: Case, round: Duration) -> anyhow::Result<Sample> {
    let begin = Instant::now();
    let writers: Vec<_> = (0..case.depth)
        .map(|_| {
            let random = env.random.clone();
            let (coded, replicated) = (mode.coded.clone(), mode.replicated.clone());
            tokio::spawn(async move {
                let content = Bytes::from(vec![random.next_u64() as u8; case.bytes as usize]);
                let mut latencies = Vec::new();
                while begin.elapsed() < round {
                    let blocks = match &replicated {
                        Some((replicated, percent)) if random.below(100) >= *percent => replicated,
                        _ => &coded,
                    };
                    let at = random.below(blocks.bytes() / case.bytes) * case.bytes;
                    let one = Instant::now();
                    blocks.write(at, content.clone(), Durable::WithFlush).await?;
                    latencies.push(one.elapsed());
                }
                anyhow::Ok(latencies)
            })
        })
        .collect();
    let mut sample = Sample::default();
    for writer in writers {
        let latencies = writer.await.map_err(|_| anyhow!("a writer panicked"))??;
        sample.operations += latencies.len() as u64;
        sample.latencies.extend(latencies);
    }
    sample.seconds = begin.elapsed().as_secs_f64();
    Ok(sample)
}

/// A figure's name and unit, and how it is got.
type Metric<'a> = (&'static str, &'static str, &'a dyn Fn(&Sample) -> f64);

fn case_rows(goals: &Goals, plan: &Plan, case: Case, modes: &[Mode], rounds: &[(Vec<Sample>, Noise)]) -> Vec<Row> {
    let quiet: Vec<_> = rounds.iter().filter(|(_, noise)| noise.is_quiet()).collect();
    let kept: Vec<_> = if quiet.is_empty() { rounds.iter().collect() } else { quiet };
    let of = |at: usize, figure: &dyn Fn(&Sample) -> f64| {
        median(kept.iter().map(|(samples, _)| figure(&samples[at])).collect()).unwrap_or(0.0)
    };
    let metrics: [Metric; 4] = [
        ("operations_per_s", "/s", &Sample::rate),
        ("latency_p50_ms", "ms", &|sample| sample.percentile_ms(0.5)),
        ("latency_p99_ms", "ms", &|sample| sample.percentile_ms(0.99)),
        ("latency_p999_ms", "ms", &|sample| sample.percentile_ms(0.999)),
    ];
    let mut rows = Vec::new();
    for (at, mode) in modes.iter().enumerate() {
        for (metric, unit, figure) in metrics {
            let against = (at > 0).then(|| Against { name: modes[0].name.to_owned(), value: of(0, figure) });
            let (case, value) = (format!("{} {}", mode.name, case.name), of(at, figure));
            let figure = Figure { bench: "volume", case, metric: metric.to_owned(), value, unit, against };
            rows.push(if plan.judged { goals.row(figure) } else { goals.row_unjudged(figure) });
        }
    }
    rows
}

const CODE: &str = "rs:4+2";
const REPLICAS: &str = "replica:3";
const TRIES_MAX: usize = 3;
const QUIET_WINDOW: Duration = Duration::from_millis(200);
