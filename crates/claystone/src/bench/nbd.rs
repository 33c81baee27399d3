//! fio on a volume over NBD, as a database or a virtual machine writes to it: on six disks, while the log is merged, while a disk
//! dies, and with one disk gone.
//!
//! ```text
//! quiet         nothing else goes on
//! after a burst as quiet, but a round of 16 writes at a time has just filled the log's reserve, so that writers pay for room
//! merging       `volume merge` again and again
//! disk dies     a disk that keeps the log is moved away a second after measuring began, and back when the round is over
//! disk lost     the store was stopped, and started without one of its disks
//! ```
//!
//! Quiet rounds and rounds that merge take turns; rounds in which a disk dies, and then those with a lost one, come after them
//! and are held against the quiet ones. What is compared is the median of rounds. "one file" is the same load on one file of the same file system, without
//! any store: what the machine itself can do.
//!
//! Invariants:
//! 1. All rounds but those after a burst begin with a merged log: what the round before left there would be measured with it.
//! 2. A merging round in which nothing was merged ends the benchmark: its figure would say nothing.
//! 3. A round in which a disk dies, and the store does not notice it while fio writes, ends it too. It is as long as noticing may take:
//!    what is open of a directory that was moved away goes on, until something there is looked up by its name. The next round begins
//!    when the disk is back, and nothing is missing.
//! 4. fio ends without an error, or the benchmark ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use claystone_bench::gate::median;
use serde_json::Value;
use tokio::process::Command;

use super::noise;
use super::server::Server;
use crate::progress::Progress;
use crate::rows::{Against, Figure, Goals, Row};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Length of the volume.
    pub volume_bytes: u64,
    /// Length of a round.
    pub round: Duration,
    /// Rounds of each case.
    pub rounds: usize,
    /// Whether goals are judged.
    pub judged: bool,
    /// Where the server's directory is made; `None`: the system's place for temporary files.
    pub directory: Option<PathBuf>,
}

/// Random writes of one kind.
#[derive(Debug, Clone, Copy)]
struct Load {
    name: &'static str,
    block: &'static str,
    depth: &'static str,
    /// After each write.
    flushed: bool,
}

const LOADS: [Load; 2] = [
    Load { name: "8KiB QD1 flushed", block: "8k", depth: "1", flushed: true },
    Load { name: "4KiB QD16", block: "4k", depth: "16", flushed: false },
];

/// What goes on beside the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    OneFile,
    Quiet,
    AfterBurst,
    Merging,
    DiskDies,
    DiskLost,
}

impl State {
    /// Which loads are measured so.
    fn loads(self) -> std::ops::Range<usize> {
        if self == State::AfterBurst { 0..1 } else { 0..LOADS.len() }
    }

    fn of(self, load: Load) -> String {
        match self {
            State::OneFile => format!("{} one file", load.name),
            State::Quiet => load.name.to_owned(),
            State::AfterBurst => format!("{} after a burst", load.name),
            State::Merging => format!("{} merging", load.name),
            State::DiskDies => format!("{} disk dies", load.name),
            State::DiskLost => format!("{} disk lost", load.name),
        }
    }

    /// Whether the quiet rounds are what it is held against.
    fn is_beside_quiet(self) -> bool {
        !matches!(self, State::OneFile | State::Quiet)
    }
}

/// Runs all cases.
///
/// # Errors
/// fio is not there or cannot do NBD, the server does not start, or a write fails.
pub async fn run(plan: &Plan) -> anyhow::Result<Vec<Row>> {
    let engines = Command::new("fio").arg("--enghelp").output().await;
    let engines = engines.context("fio cannot be started: install it (on Debian: apt-get install fio)")?;
    ensure!(String::from_utf8_lossy(&engines.stdout).contains("nbd"), "this fio has no engine `nbd`");
    let place = super::scratch(plan.directory.as_deref())?;
    let directory = place.path().join("store");
    let server = Server::claystone(&directory).await?;
    volume(&directory, &["create", VOLUME, "--size", &plan.volume_bytes.to_string(), "--redundancy", "rs:4+2"]).await?;
    let nbd = format!("nbd+unix:///{VOLUME}?socket={}", directory.join("nbd.sock").display());
    let store = Place { engine: ["--ioengine=nbd".to_owned(), format!("--uri={nbd}")], bytes: plan.volume_bytes };
    // Stripes under the code everywhere, as of a volume in use.
    fio(&store, &["--rw=write", "--bs=1m", "--iodepth=4", "--end_fsync=1"]).await?;
    volume(&directory, &["merge", VOLUME]).await?;
    let file = place.path().join("file");
    let one_file = Place {
        engine: ["--ioengine=libaio".to_owned(), format!("--filename={}", file.display())],
        bytes: plan.volume_bytes,
    };
    fio(&one_file, &["--rw=write", "--bs=1m", "--end_fsync=1"]).await?;

    let mut results: Vec<(State, usize, Vec<Measured>)> = Vec::new();
    for state in [State::OneFile, State::Quiet, State::AfterBurst, State::Merging, State::DiskDies, State::DiskLost] {
        results.extend(state.loads().map(|load| (state, load, Vec::new())));
    }
    let progress = Progress::new("measuring", (results.len() * plan.rounds) as u64);
    let mut measure = async |number: usize, state: State| -> anyhow::Result<()> {
        for of in state.loads() {
            let load = LOADS[of];
            progress.say(&state.of(load));
            if !matches!(state, State::OneFile | State::AfterBurst) {
                volume(&directory, &["merge", VOLUME]).await?;
            }
            noise::pressure(QUIET_WINDOW).await;
            let at = if state == State::OneFile { &one_file } else { &store };
            let measured = match state {
                State::Merging => merging(&directory, round(at, load, plan.round, number)).await?,
                State::DiskDies => {
                    let length = plan.round.max(DIES_AFTER + NOTICED_WITHIN);
                    disk_dies(&directory, place.path(), round(at, load, length, number)).await?
                }
                _ => round(at, load, plan.round, number).await?,
            };
            let kept = results.iter_mut().find(|(of_state, of_load, _)| *of_state == state && *of_load == of);
            kept.expect("all were made above").2.push(measured);
            progress.step(1);
        }
        Ok(())
    };
    for number in 0..plan.rounds {
        // The last load of the quiet ones is the burst.
        for state in [State::OneFile, State::Quiet, State::AfterBurst, State::Merging] {
            measure(number, state).await?;
        }
    }
    for number in 0..plan.rounds {
        measure(number, State::DiskDies).await?;
    }
    drop(server);
    fs::rename(directory.join("disk2"), place.path().join("lost"))?;
    let server = Server::claystone(&directory).await?;
    for number in 0..plan.rounds {
        measure(number, State::DiskLost).await?;
    }
    progress.end();
    drop(server);
    Ok(rows(plan, &results))
}

/// Where fio writes.
struct Place {
    engine: [String; 2],
    bytes: u64,
}

/// A round's figures.
#[derive(Debug, Clone, Copy)]
struct Measured {
    writes_per_s: f64,
    /// 50th, 99th and 99.9th percentile of writes, and the longest one.
    write_ms: [f64; 4],
    /// Of flushes, if there were any.
    flush_ms: Option<[f64; 4]>,
}

async fn round(place: &Place, load: Load, length: Duration, number: usize) -> anyhow::Result<Measured> {
    let runtime = format!("--runtime={:.1}", length.as_secs_f64());
    let ramp = format!("--ramp_time={}", RAMP.as_secs());
    let (block, depth) = (format!("--bs={}", load.block), format!("--iodepth={}", load.depth));
    let seed = format!("--randseed={}", number + 1);
    let flush = if load.flushed { "--fsync=1" } else { "--fsync=0" };
    let how = ["--rw=randwrite", "--norandommap", "--time_based", &ramp, &runtime, &block, &depth, &seed, flush];
    let said = fio(place, &how).await?;
    let job = &said["jobs"][0];
    let number = |value: &Value| value.as_f64().context("fio left out a figure");
    let percentiles = |of: &Value| -> anyhow::Result<[f64; 4]> {
        let at = |key: &str| number(&of["percentile"][key]).map(|ns| ns / 1e6);
        Ok([at("50.000000")?, at("99.000000")?, at("99.900000")?, number(&of["max"])? / 1e6])
    };
    Ok(Measured {
        writes_per_s: number(&job["write"]["iops"])?,
        write_ms: percentiles(&job["write"]["clat_ns"])?,
        flush_ms: if load.flushed { Some(percentiles(&job["sync"]["lat_ns"])?) } else { None },
    })
}

async fn fio(place: &Place, how: &[&str]) -> anyhow::Result<Value> {
    let output = Command::new("fio")
        .args(["--name=bench", "--output-format=json", "--direct=1", "--thread", "--group_reporting"])
        .args(&place.engine)
        .arg(format!("--size={}", place.bytes))
        .args(how)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("fio failed ({}): {said}{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    // It may say something before the object.
    let begin = said.find('{').context("fio printed no figures")?;
    serde_json::from_str(&said[begin..]).context("what fio printed")
}

/// The round, while the volume is merged again and again.
async fn merging(directory: &Path, round: impl Future<Output = anyhow::Result<Measured>>) -> anyhow::Result<Measured> {
    let before = merged_pages(directory).await?;
    let merge = async {
        loop {
            if let Err(error) = volume(directory, &["merge", VOLUME]).await {
                return error;
            }
        }
    };
    let measured = tokio::select! {
        measured = round => measured?,
        error = merge => return Err(error),
    };
    ensure!(merged_pages(directory).await? > before, "nothing was merged while fio wrote");
    Ok(measured)
}

async fn merged_pages(directory: &Path) -> anyhow::Result<u64> {
    info(directory).await?["open"]["merged_pages"].as_u64().context("`volume info` says nothing of merged pages")
}

/// The round, in which a disk that keeps the log is moved away. It is back, and nothing is missing, when this returns.
async fn disk_dies(
    directory: &Path,
    place: &Path,
    round: impl Future<Output = anyhow::Result<Measured>>,
) -> anyhow::Result<Measured> {
    let keeper = info(directory).await?["log_disks"][0].as_str().context("no disk keeps the log")?.to_owned();
    let path = PathBuf::from(disk(directory, &keeper).await?["path"].as_str().context("a disk without a path")?);
    let away = place.join("away");
    let is_noticed = AtomicBool::new(false);
    let death = async {
        tokio::time::sleep(RAMP + DIES_AFTER).await;
        fs::rename(&path, &away).context("moving a disk away")?;
        while disk(directory, &keeper).await?["present"] == true {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        is_noticed.store(true, Ordering::Relaxed);
        anyhow::Ok(())
    };
    let dead = async {
        match death.await {
            Ok(()) => std::future::pending().await,
            Err(error) => error,
        }
    };
    let measured = tokio::select! {
        measured = round => measured?,
        error = dead => return Err(error),
    };
    ensure!(is_noticed.into_inner(), "the store did not notice that a disk was gone while fio wrote");
    fs::rename(&away, &path).context("moving a disk back")?;
    let began = Instant::now();
    while !is_whole(directory).await? {
        ensure!(
            began.elapsed() < WHOLE_WITHIN,
            "a disk came back, and after {WHOLE_WITHIN:?} something is missing yet"
        );
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(measured)
}

/// Whether every disk is there, every chunk in its place, and the log on as many disks as it is to be.
async fn is_whole(directory: &Path) -> anyhow::Result<bool> {
    // What the log misses on a disk that was away is copied by a merge.
    volume(directory, &["merge", VOLUME]).await?;
    let (status, info) = (status(directory).await?, info(directory).await?);
    let disks = status["disks"].as_array().context("`status` names no disks")?;
    let is_there = disks.iter().all(|disk| disk["present"] == true);
    let is_healed = status["stripes"]["chunks_lost"] == 0 && status["stripes"]["unreachable"].is_null();
    Ok(is_there && is_healed && info["open"]["log_copies"] == info["open"]["log_copies_wanted"])
}

/// A disk, as `status` has it.
async fn disk(directory: &Path, id: &str) -> anyhow::Result<Value> {
    let status = status(directory).await?;
    let found = status["disks"].as_array().and_then(|disks| disks.iter().find(|disk| disk["id"] == id));
    found.cloned().with_context(|| format!("`status` has no disk {id}"))
}

async fn status(directory: &Path) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&claystone(directory, &["status"], &["--json"]).await?)?)
}

async fn info(directory: &Path) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&volume(directory, &["info", VOLUME, "--json"]).await?)?)
}

/// `claystone volume`.
async fn volume(directory: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    claystone(directory, &["volume"], arguments).await
}

/// A command of this program on the store.
async fn claystone(directory: &Path, command: &[&str], arguments: &[&str]) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("finding this program's own file")?;
    let mut run = Command::new(program);
    run.args(command).arg("--dir").arg(directory).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output = run.output().await?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} {}: {said}", command.join(" "), arguments.join(" "));
    }
    Ok(String::from_utf8(output.stdout)?)
}

fn rows(plan: &Plan, results: &[(State, usize, Vec<Measured>)]) -> Vec<Row> {
    let goals = Goals::built_in();
    let mut rows = Vec::new();
    for &(state, load, ref measured) in results {
        let quiet = results.iter().find(|(other, of, _)| *other == State::Quiet && *of == load).map(|found| &found.2);
        let quiet = quiet.expect("quiet rounds are always made");
        let mut row = |metric: &str, unit, is_beside_quiet: bool, value: &dyn Fn(&Measured) -> f64| {
            let of = |measured: &[Measured]| median(measured.iter().map(value).collect()).unwrap_or(f64::NAN);
            let against = is_beside_quiet.then(|| Against { name: "quiet".to_owned(), value: of(quiet) });
            let (case, metric) = (state.of(LOADS[load]), metric.to_owned());
            let figure = Figure { bench: "nbd", case, metric, value: of(measured), unit, against };
            rows.push(if plan.judged { goals.row(figure) } else { goals.row_unjudged(figure) });
        };
        let beside = state.is_beside_quiet();
        row("writes_per_s", "/s", beside, &|measured| measured.writes_per_s);
        for (at, share) in SHARES.into_iter().enumerate() {
            row(&format!("latency_{share}_ms"), "ms", beside, &|measured| measured.write_ms[at]);
        }
        // What is held against the quiet rounds is to be short by itself as well.
        if beside {
            row("latency_p99_itself_ms", "ms", false, &|measured| measured.write_ms[1]);
        }
        if LOADS[load].flushed {
            for (at, share) in SHARES.into_iter().enumerate() {
                let value = |measured: &Measured| measured.flush_ms.map_or(f64::NAN, |ms| ms[at]);
                row(&format!("flush_{share}_ms"), "ms", beside, &value);
            }
        }
    }
    rows
}

const VOLUME: &str = "bench";
const QUIET_WINDOW: Duration = Duration::from_millis(300);
/// What the figures of a latency are called.
const SHARES: [&str; 4] = ["p50", "p99", "p999", "max"];
/// fio writes so long before it measures.
const RAMP: Duration = Duration::from_secs(1);
/// A disk is moved away so long after measuring began.
const DIES_AFTER: Duration = Duration::from_secs(1);
/// A store looks at each disk every ten seconds, whatever it does there.
const NOTICED_WITHIN: Duration = Duration::from_secs(14);
/// The store tries a disk that failed again after 5 s, after 10 s more, and so on.
const WHOLE_WITHIN: Duration = Duration::from_secs(180);
const LOOK_EVERY: Duration = Duration::from_millis(500);
