//! PUT and GET over S3 by object size, beside MinIO.
//!
//! Both servers run during the whole benchmark on directories of one file system. Rounds alternate between them, so that
//! drift of the machine hits both; of the quiet rounds the median counts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use claystone_bench::gate::median;

use super::load::{self, Case, Operation, Sample};
use super::noise::{self, Counters, Noise};
use super::server::Server;
use crate::progress::Progress;
use crate::rows::{Against, Figure, Goals, Row};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// MinIO's program; `None`: measure this program alone.
    pub minio: Option<PathBuf>,
    /// The cases, by name; empty: all.
    pub cases: Vec<String>,
    /// Length of a round.
    pub round: Duration,
    /// Rounds of each case that are to be kept.
    pub rounds: usize,
    /// Where the servers' directories are made; `None`: the system's place for temporary files.
    pub directory: Option<PathBuf>,
}

/// Runs all cases.
///
/// # Errors
/// A server does not start, or answers wrong.
pub async fn run(plan: &Plan) -> anyhow::Result<Vec<Row>> {
    let cases = super::chosen(&CASES, Case::name, &plan.cases)?;
    let place = super::scratch(plan.directory.as_deref())?;
    let mut servers = vec![Server::claystone(&place.path().join("claystone")).await?];
    if let Some(minio) = &plan.minio {
        servers.push(Server::minio(minio, &place.path().join("minio")).await?);
    }
    let goals = Goals::built_in();
    let mut rows = start_rows(&goals, &servers).await?;
    let progress = Progress::new("measuring", (cases.len() * plan.rounds * servers.len()) as u64);
    for case in cases {
        progress.say(&case.name());
        let rounds = measure(&servers, case, plan, &progress).await.with_context(|| case.name())?;
        rows.extend(case_rows(&goals, &servers, case, &rounds));
    }
    progress.end();
    Ok(rows)
}

/// One kept round.
struct Round {
    sample: Sample,
    noise: Noise,
}

/// Alternating rounds; server by server in the order of `servers`.
async fn measure(servers: &[Server], case: Case, plan: &Plan, progress: &Progress) -> anyhow::Result<Vec<Vec<Round>>> {
    for server in servers {
        if case.operation == Operation::Get {
            load::prepare(&server.target, case).await?;
        }
        // Warms connections, caches and allocators of either; not kept.
        load::round(&server.target, case, usize::MAX, plan.round / 4).await?;
    }
    let mut rounds: Vec<Vec<Round>> = servers.iter().map(|_| Vec::new()).collect();
    for number in 0..plan.rounds * TRIES_MAX {
        if rounds.iter().all(|rounds| rounds.iter().filter(|round| round.noise.is_quiet()).count() >= plan.rounds) {
            break;
        }
        for (server, rounds) in servers.iter().zip(&mut rounds) {
            let pressure = noise::pressure(QUIET_WINDOW).await;
            let processes: Vec<u32> = servers.iter().map(Server::process).collect();
            let before = Counters::now(&processes);
            let sample = load::round(&server.target, case, number, plan.round).await?;
            let foreign = Counters::now(&processes).foreign_since(before);
            rounds.push(Round { sample, noise: Noise { pressure, foreign } });
            progress.step(1);
        }
    }
    Ok(rounds)
}

/// The quiet rounds; all, if none was.
fn kept<'a>(rounds: &'a [Round], name: &str, case: Case) -> Vec<&'a Sample> {
    let quiet: Vec<&Sample> = rounds.iter().filter(|round| round.noise.is_quiet()).map(|round| &round.sample).collect();
    let worst = |figure: fn(&Noise) -> f64| rounds.iter().map(|round| figure(&round.noise)).fold(0.0, f64::max);
    tracing::info!(
        server = name,
        case = case.name(),
        rounds = rounds.len(),
        quiet = quiet.len(),
        pressure_max = worst(|noise| noise.pressure),
        foreign_max = worst(|noise| noise.foreign),
        "measured"
    );
    if quiet.is_empty() {
        tracing::warn!(
            server = name,
            case = case.name(),
            "no round was quiet: other work on this machine is in the figures"
        );
        return rounds.iter().map(|round| &round.sample).collect();
    }
    quiet
}

fn case_rows(goals: &Goals, servers: &[Server], case: Case, rounds: &[Vec<Round>]) -> Vec<Row> {
    let figures: Vec<BTreeMap<&str, f64>> = servers
        .iter()
        .zip(rounds)
        .map(|(server, rounds)| {
            let samples = kept(rounds, server.name, case);
            let middle = |figure: &dyn Fn(&Sample) -> f64| {
                median(samples.iter().map(|sample| figure(sample)).collect()).unwrap_or(0.0)
            };
            BTreeMap::from([
                ("objects_per_s", middle(&Sample::rate)),
                ("mib_per_s", middle(&|sample| sample.rate() * case.object_bytes as f64 / f64::from(1 << 20))),
                ("latency_p50_ms", middle(&|sample| sample.percentile_ms(0.5))),
                ("latency_p99_ms", middle(&|sample| sample.percentile_ms(0.99))),
                ("latency_p999_ms", middle(&|sample| sample.percentile_ms(0.999))),
            ])
        })
        .collect();
    let units = [
        ("objects_per_s", "objects/s"),
        ("mib_per_s", "MiB/s"),
        ("latency_p50_ms", "ms"),
        ("latency_p99_ms", "ms"),
        ("latency_p999_ms", "ms"),
    ];
    units
        .into_iter()
        .map(|(metric, unit)| {
            let against = figures.get(1).map(|figures| figures[metric]);
            beside(goals, "s3", &case.name(), metric, (figures[0][metric], unit), servers.get(1), against)
        })
        .collect()
}

async fn start_rows(goals: &Goals, servers: &[Server]) -> anyhow::Result<Vec<Row>> {
    tokio::time::sleep(SETTLE).await;
    let memory: Vec<f64> = servers
        .iter()
        .map(|server| Ok(server.memory_bytes()? as f64 / f64::from(1 << 20)))
        .collect::<anyhow::Result<_>>()?;
    let first: Vec<f64> = servers.iter().map(|server| server.first_put.as_secs_f64() * 1e3).collect();
    // These goals are on our own figures: a peer's make no difference to them.
    let row = |metric: &str, value: f64, unit| {
        let case = "empty-store".to_owned();
        goals.row(Figure { bench: "start", case, metric: metric.to_owned(), value, unit, against: None })
    };
    let mut rows = vec![row("first_put_ms", first[0], "ms"), row("idle_memory_mib", memory[0], "MiB")];
    if let Some(peer) = servers.get(1) {
        rows.push(row(&format!("{}_first_put_ms", peer.name), first[1], "ms"));
        rows.push(row(&format!("{}_idle_memory_mib", peer.name), memory[1], "MiB"));
    }
    Ok(rows)
}

fn beside(
    goals: &Goals,
    bench: &'static str,
    case: &str,
    metric: &str,
    (value, unit): (f64, &'static str),
    peer: Option<&Server>,
    peer_value: Option<f64>,
) -> Row {
    let against = peer.zip(peer_value).map(|(peer, value)| Against { name: peer.name.to_owned(), value });
    let alone = against.is_none();
    let figure = Figure { bench, case: case.to_owned(), metric: metric.to_owned(), value, unit, against };
    // Goals here are on the ratio: without a peer there is none.
    if alone { goals.row_without_goal(figure) } else { goals.row(figure) }
}

const fn case(operation: Operation, size: &'static str, object_bytes: usize, workers: usize, objects: usize) -> Case {
    Case { operation, object_bytes, size, workers, objects }
}

/// Fewer connections for larger objects: a few large transfers fill two processors, many small requests are what waits.
const CASES: [Case; 6] = [
    case(Operation::Put, "4KiB", 4 << 10, 16, 0),
    case(Operation::Get, "4KiB", 4 << 10, 16, 512),
    case(Operation::Put, "1MiB", 1 << 20, 8, 0),
    case(Operation::Get, "1MiB", 1 << 20, 8, 64),
    case(Operation::Put, "64MiB", 64 << 20, 2, 0),
    case(Operation::Get, "64MiB", 64 << 20, 2, 4),
];

const TRIES_MAX: usize = 3;
const QUIET_WINDOW: Duration = Duration::from_millis(200);
const SETTLE: Duration = Duration::from_secs(2);
