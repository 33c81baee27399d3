//! Random writes to block volumes: delayed parity update beside what others do, on six disks in directories of one place.
//!
//! All devices live in this process over the same disks, and take turns in short rounds; of the quiet rounds the median
//! counts. A write is acknowledged as each way acknowledges it: in the memory of the system under as many disks as it
//! wants, without a sync. Protocols are left out.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use bytes::Bytes;
use claystone_bench::gate::median;
use claystone_chunk::{ChunkStore, DiskId, NodeId};
use claystone_disk::{ClusterId, DirectoryStore, Expected, Identity, Options, format};
use claystone_env::{Directory, Env, Worker};
use claystone_host::{HostDirectory, ThreadWorker};
use claystone_meta::{DiskRecord, DiskRecords, DiskState, Meta, SqliteMeta, Workers};
use claystone_stripe::{Member, Stores, Stripes};
use claystone_volume::comparators::{InPlace, UpdateMethod};
use claystone_volume::{Blocks, Durable, Geometry, NewVolume, Settings, Volume, Volumes};

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
    let world = World::new(place.path()).await?;
    let modes = world.modes(plan.device_bytes).await?;
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
    world.volumes.stop().await;
    Ok(rows)
}

/// The disks, and what lies on them.
struct World {
    env: Env,
    stripes: Stripes,
    volumes: Volumes,
}

impl World {
    async fn new(place: &Path) -> anyhow::Result<World> {
        let env = claystone_host::env().context("the system gives no threads or random bytes")?;
        let worker = |name: &str, threads| -> anyhow::Result<Arc<dyn Worker>> {
            Ok(Arc::new(ThreadWorker::start(name, threads).context("starting threads")?))
        };
        let workers = Workers { writer: worker("meta-writer", 1)?, readers: worker("meta-reader", 1)? };
        let meta = Arc::new(SqliteMeta::open(&place.join("meta.db"), workers).await?);
        let stores = Stores::default();
        for number in 0..DISKS {
            let (disk, cluster) = (DiskId(number), ClusterId(1));
            let node = NodeId(format!("node-{number}"));
            let path = place.join(format!("disk-{number}"));
            std::fs::create_dir(&path).with_context(|| format!("{} cannot be made", path.display()))?;
            let directory: Arc<dyn Directory> = Arc::new(HostDirectory::new(&path));
            let worker = worker("disk", DISK_THREADS)?;
            let identity = Identity { disk, cluster, node: node.clone(), created: env.clock.wall() };
            format(&*worker, directory.clone(), identity).await?;
            let expected = Expected { disk, cluster };
            let store = DirectoryStore::open(&env, directory, worker, expected, Options::default()).await?;
            let path = path.display().to_string();
            let record = DiskRecord { id: disk, node, path, state: DiskState::Active, added: env.clock.wall() };
            meta.put_disk(record.clone()).await?;
            let space = store.space().await?;
            let store: Arc<dyn ChunkStore> = Arc::new(store);
            stores.put(Member { record, store: Ok(store), space });
        }
        let meta: Arc<dyn Meta> = meta;
        let (stripes, _) = Stripes::new(env.clone(), stores, claystone_stripe::Settings::default());
        let volumes = Volumes::new(env.clone(), meta, stripes.clone(), Settings::default());
        Ok(World { env, stripes, volumes })
    }

    /// Every mode, on devices that are written all over.
    async fn modes(&self, bytes: u64) -> anyhow::Result<Vec<Mode>> {
        let in_place = async |method: UpdateMethod, code: &str| -> anyhow::Result<Arc<dyn Blocks>> {
            let code: claystone_code::CodeSpec = code.parse()?;
            let columns = if method == UpdateMethod::Replicas { 1 } else { code.shape().data };
            let geometry = Geometry { page_bytes: 4096, chunk_bytes: 1 << 20, columns };
            let stripes_count = bytes.div_ceil(geometry.stripe_bytes());
            let (env, stripes) = (&self.env, self.stripes.clone());
            let device = InPlace::new(env, stripes, code, method, geometry, stripes_count).await?;
            Ok(Arc::new(device) as Arc<dyn Blocks>)
        };
        let replica = in_place(UpdateMethod::Replicas, REPLICAS).await?;
        let naive = in_place(UpdateMethod::Naive, CODE).await?;
        let alone = |name, coded| Mode { name, coded, replicated: None };
        let coded: Arc<dyn Blocks> = Arc::new(self.volume("coded", bytes, CODE).await?);
        let replicated: Arc<dyn Blocks> = Arc::new(self.volume("replicated", bytes, REPLICAS).await?);
        Ok(vec![
            alone("replica", replica.clone()),
            alone("naive", naive.clone()),
            alone("parity log", in_place(UpdateMethod::ParityLog, CODE).await?),
            alone("spw success", in_place(UpdateMethod::SpeculativeNext, CODE).await?),
            alone("spw failure", in_place(UpdateMethod::SpeculativeFirst, CODE).await?),
            Mode { name: "drc 20", coded: naive, replicated: Some((replica, 20)) },
            Mode { name: "dpu 20", coded: coded.clone(), replicated: Some((replicated, 20)) },
            alone("dpu 100", coded),
        ])
    }

    async fn volume(&self, name: &str, bytes: u64, code: &str) -> anyhow::Result<Volume> {
        self.volumes.create(NewVolume::new(name, bytes, code.parse()?)).await?;
        let volume = self.volumes.open(name).await?;
        for at in (0..bytes).step_by(1 << 20) {
            volume.write(at, Bytes::from(vec![1; 1 << 20]), Durable::WithFlush).await?;
        }
        volume.merge_all().await?;
        Ok(volume)
    }
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

const DISKS: u128 = 6;
const DISK_THREADS: usize = 4;
const CODE: &str = "rs:4+2";
const REPLICAS: &str = "replica:3";
const TRIES_MAX: usize = 3;
const QUIET_WINDOW: Duration = Duration::from_millis(200);
