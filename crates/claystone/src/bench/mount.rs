//! A file through the mount with coding on and with coding off, side by side.
//!
//! Each of the two disks is an image in one directory, formatted and mounted by this program as a user does it. Rounds
//! alternate between them, so that drift of the machine hits both; of the quiet rounds the median counts. Reads begin
//! without pages in the kernel's memory, writes end with an fsync, so what is measured went through the device.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use claystone_bench::gate::median;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::fs::{Advice, fadvise};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::block_in_place;

use super::load::Sample;
use super::noise::{self, Counters, Noise};
use crate::progress::Progress;
use crate::rows::{Against, Figure, Goals, Row};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The cases, by name; empty: all.
    pub cases: Vec<String>,
    /// Length of the file.
    pub file_bytes: u64,
    /// How long random reads and writes go on in a round.
    pub round: Duration,
    /// Rounds of each case that are to be kept.
    pub rounds: usize,
    /// Whether goals are judged.
    pub judged: bool,
    /// Where the images are made; `None`: the system's place for temporary files.
    pub directory: Option<PathBuf>,
}

/// Runs all cases.
///
/// # Errors
/// A disk cannot be made or mounted, which takes root and /dev/fuse; a call on the file fails.
pub async fn run(plan: &Plan) -> anyhow::Result<Vec<Row>> {
    let cases = super::chosen(&CASES, |case| case.name().to_owned(), &plan.cases)?;
    let place = super::scratch(plan.directory.as_deref())?;
    let served = [
        Served::start(place.path(), "coding-on", plan.file_bytes, &[])?,
        Served::start(place.path(), "coding-off", plan.file_bytes, &["--parity", "0", "--copies", "1"])?,
    ];
    let goals = Goals::built_in();
    let progress = Progress::new("measuring", (cases.len() * plan.rounds * served.len()) as u64);
    let mut rows = Vec::new();
    for case in cases {
        progress.say(case.name());
        let rounds = measure(&served, case, plan, &progress).await.with_context(|| case.name());
        let rounds = rounds.with_context(|| served.each_ref().map(Served::said).concat())?;
        rows.extend(case_rows(&goals, plan, &served, case, &rounds));
    }
    progress.end();
    Ok(rows)
}

/// What is done to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    /// It is made anew, in pieces of a mebibyte.
    SequentialWrite,
    /// It is read in pieces of a mebibyte.
    SequentialRead,
    /// Pages anywhere in it are read, one after the other.
    RandomRead,
    /// Pages anywhere in it are written, and made durable at the end.
    RandomWrite,
    /// Pages anywhere in it are written, and each is made durable.
    SyncedWrite,
}

const CASES: [Case; 5] =
    [Case::SequentialWrite, Case::SequentialRead, Case::RandomRead, Case::RandomWrite, Case::SyncedWrite];

impl Case {
    fn name(self) -> &'static str {
        match self {
            Case::SequentialWrite => "sequential write",
            Case::SequentialRead => "sequential read",
            Case::RandomRead => "random read 4KiB",
            Case::RandomWrite => "random write 4KiB",
            Case::SyncedWrite => "synced write 4KiB",
        }
    }

    fn is_sequential(self) -> bool {
        matches!(self, Case::SequentialWrite | Case::SequentialRead)
    }
}

/// A disk that is mounted until this is dropped.
struct Served {
    name: &'static str,
    child: Child,
    file: PathBuf,
    log: PathBuf,
}

impl Served {
    fn start(place: &Path, name: &'static str, file_bytes: u64, format: &[&str]) -> anyhow::Result<Served> {
        let program = std::env::current_exe().context("finding this program's own file")?;
        let (image, at) = (place.join(name).with_extension("img"), place.join(name));
        fs::create_dir(&at)?;
        let size = (3 * file_bytes + SPARE_BYTES).to_string();
        let made = Command::new(&program)
            .args(["disk", "format"])
            .arg(&image)
            .args(["--size", &size])
            .args(format)
            .output()?;
        ensure!(made.status.success(), "no disk is made: {}", String::from_utf8_lossy(&made.stderr));
        let log = image.with_extension("log");
        let mount = Command::new(&program)
            .arg("mount")
            .args([&image, &at])
            .arg("--json")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log)?)
            .spawn();
        let mut served = Served { name, child: mount?, file: at.join("file"), log };
        let mut ready = String::new();
        BufReader::new(served.child.stdout.take().context("a pipe was asked for")?).read_line(&mut ready)?;
        if ready.is_empty() {
            bail!("nothing is mounted, which takes root and /dev/fuse; {}", served.said());
        }
        Ok(served)
    }

    /// What its process had to tell.
    fn said(&self) -> String {
        format!("{}: {}\n", self.name, fs::read_to_string(&self.log).unwrap_or_default())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// One kept round.
struct Round {
    sample: Sample,
    noise: Noise,
}

/// Alternating rounds; disk by disk in the order of `served`.
async fn measure(served: &[Served], case: Case, plan: &Plan, progress: &Progress) -> anyhow::Result<Vec<Vec<Round>>> {
    for served in served {
        // What the case needs, and what it warms; not kept.
        if !served.file.exists() {
            work(Case::SequentialWrite, &served.file, plan, usize::MAX)?;
        }
        work(case, &served.file, plan, usize::MAX)?;
    }
    let mut rounds: Vec<Vec<Round>> = served.iter().map(|_| Vec::new()).collect();
    for number in 0..plan.rounds * TRIES_MAX {
        if rounds.iter().all(|rounds| rounds.iter().filter(|round| round.noise.is_quiet()).count() >= plan.rounds) {
            break;
        }
        // Neither is always the first one.
        let mut turn: Vec<usize> = (0..served.len()).collect();
        turn.rotate_left(number % served.len());
        for at in turn {
            let pressure = noise::pressure(QUIET_WINDOW).await;
            let processes: Vec<u32> = served.iter().map(|served| served.child.id()).collect();
            let before = Counters::now(&processes);
            let sample = block_in_place(|| work(case, &served[at].file, plan, number))?;
            let foreign = Counters::now(&processes).foreign_since(before);
            rounds[at].push(Round { sample, noise: Noise { pressure, foreign } });
            progress.step(1);
        }
    }
    Ok(rounds)
}

/// Does once what is measured.
fn work(case: Case, path: &Path, plan: &Plan, seed: usize) -> anyhow::Result<Sample> {
    let mut random = ChaCha8Rng::seed_from_u64(seed as u64);
    if case == Case::SequentialWrite && path.exists() {
        fs::remove_file(path)?;
    }
    let make = case == Case::SequentialWrite;
    let file = fs::OpenOptions::new().read(true).write(true).create(make).truncate(false).open(path)?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    if case == Case::RandomRead {
        fadvise(&file, 0, None, Advice::Random)?;
    }
    let mut bytes = vec![0; if case.is_sequential() { SEQUENTIAL_BYTES } else { RANDOM_BYTES }];
    random.fill(&mut bytes[..]);
    let pieces = plan.file_bytes / bytes.len() as u64;
    let mut sample = Sample::default();
    let begin = Instant::now();
    while if case.is_sequential() { sample.operations < pieces } else { begin.elapsed() < plan.round } {
        let piece = if case.is_sequential() { sample.operations } else { random.random_range(0..pieces) };
        let at = piece * bytes.len() as u64;
        let one = Instant::now();
        match case {
            Case::SequentialRead | Case::RandomRead => file.read_exact_at(&mut bytes, at)?,
            Case::SequentialWrite | Case::RandomWrite => file.write_all_at(&bytes, at)?,
            Case::SyncedWrite => {
                file.write_all_at(&bytes, at)?;
                file.sync_data()?;
            }
        }
        sample.latencies.push(one.elapsed());
        sample.operations += 1;
    }
    if matches!(case, Case::SequentialWrite | Case::RandomWrite) {
        file.sync_all()?;
    }
    sample.seconds = begin.elapsed().as_secs_f64();
    Ok(sample)
}

fn case_rows(goals: &Goals, plan: &Plan, served: &[Served], case: Case, rounds: &[Vec<Round>]) -> Vec<Row> {
    let figure = |metric: &'static str, unit: &'static str, of: &dyn Fn(&Sample) -> f64| {
        let [value, off] = [0, 1].map(|at| median(quiet(&rounds[at]).into_iter().map(of).collect()).unwrap_or(0.0));
        let against = Some(Against { name: served[1].name.replace('-', " "), value: off });
        let case = case.name().to_owned();
        let figure = Figure { bench: "mount", case, metric: metric.to_owned(), value, unit, against };
        if plan.judged { goals.row(figure) } else { goals.row_unjudged(figure) }
    };
    if case.is_sequential() {
        let mib = SEQUENTIAL_BYTES as f64 / f64::from(1 << 20);
        return vec![figure("mib_per_s", "MiB/s", &|sample| sample.rate() * mib)];
    }
    vec![
        figure("operations_per_s", "/s", &Sample::rate),
        figure("latency_p50_ms", "ms", &|sample| sample.percentile_ms(0.5)),
        figure("latency_p99_ms", "ms", &|sample| sample.percentile_ms(0.99)),
        figure("latency_p999_ms", "ms", &|sample| sample.percentile_ms(0.999)),
    ]
}

/// The quiet rounds; all, if none was.
fn quiet(rounds: &[Round]) -> Vec<&Sample> {
    let quiet: Vec<&Sample> = rounds.iter().filter(|round| round.noise.is_quiet()).map(|round| &round.sample).collect();
    if quiet.is_empty() { rounds.iter().map(|round| &round.sample).collect() } else { quiet }
}

const SEQUENTIAL_BYTES: usize = 1 << 20;
const RANDOM_BYTES: usize = 4096;
/// Of an image, beyond the file and what is written of it anew: journal, catalog, and what is kept free.
const SPARE_BYTES: u64 = 1 << 30;
const TRIES_MAX: usize = 3;
const QUIET_WINDOW: Duration = Duration::from_millis(200);
