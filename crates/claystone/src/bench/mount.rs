//! A file through the mount with coding on and with coding off, side by side.
//!
//! Each of the two disks is an image in one directory, formatted and mounted by this program as a user does it. A round does
//! every case to both disks, and then again after each was formatted as the other: places of a virtual disk differ by more
//! than what is compared here, so each image is in turn the one with coding. Of the quiet rounds the median counts, and that of their ratios. Reads
//! begin without pages in the kernel's memory, writes end with an fsync, so what is measured went through the device. What is
//! read was written side by side: a virtual disk read what was written last up to twice as fast as what came just before.

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
    let goals = Goals::built_in();
    let progress = Progress::new("measuring", (cases.len() * plan.rounds * SIDES.len() * IMAGES.len()) as u64);
    let mut rounds: Vec<Vec<Round>> = cases.iter().map(|_| Vec::new()).collect();
    for number in 0..plan.rounds * TRIES_MAX {
        if rounds.iter().all(|rounds| rounds.iter().filter(|round| round.noise.is_quiet()).count() >= plan.rounds) {
            break;
        }
        let first = measure(place.path(), IMAGES, &cases, plan, 2 * number, &progress).await?;
        let [one, other] = IMAGES;
        let second = measure(place.path(), [other, one], &cases, plan, 2 * number + 1, &progress).await?;
        for (rounds, (first, second)) in rounds.iter_mut().zip(first.into_iter().zip(second)) {
            rounds.push(first.and(second));
        }
    }
    progress.end();
    let rows = cases.iter().zip(&rounds).flat_map(|(case, rounds)| case_rows(&goals, plan, *case, rounds));
    Ok(rows.collect())
}

/// What is compared, with what `disk format` is told for it.
const SIDES: [(&str, &[&str]); 2] = [("coding-on", &[]), ("coding-off", &["--parity", "0", "--copies", "1"])];
const IMAGES: [&str; 2] = ["one.img", "other.img"];

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

/// Reads come first: what the measured writes leave was written one side behind the other.
const CASES: [Case; 5] =
    [Case::SequentialRead, Case::RandomRead, Case::SequentialWrite, Case::RandomWrite, Case::SyncedWrite];

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

    fn is_read(self) -> bool {
        matches!(self, Case::SequentialRead | Case::RandomRead)
    }

    /// How often a sequential case goes through the file.
    fn passes(self) -> u64 {
        if self == Case::SequentialRead { 2 } else { 1 }
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
    fn start(place: &Path, image: &str, name: &'static str, format: &[&str], bytes: u64) -> anyhow::Result<Served> {
        let program = std::env::current_exe().context("finding this program's own file")?;
        let (image, at) = (place.join(image), place.join(name));
        fs::create_dir_all(&at)?;
        let mut made = Command::new(&program);
        made.args(["disk", "format", "--force"]).arg(&image);
        if !image.exists() {
            made.args(["--size", &bytes.to_string()]);
        }
        let made = made.args(format).output()?;
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

/// What each side did in a round.
struct Round {
    samples: Vec<Sample>,
    noise: Noise,
}

impl Round {
    /// The same with what was done after the images were changed.
    fn and(mut self, other: Round) -> Round {
        for (sample, other) in self.samples.iter_mut().zip(other.samples) {
            sample.operations += other.operations;
            sample.seconds += other.seconds;
            sample.latencies.extend(other.latencies);
        }
        self.noise.pressure = self.noise.pressure.max(other.noise.pressure);
        self.noise.foreign = self.noise.foreign.max(other.noise.foreign);
        self
    }
}

/// Does each case once to each side, on fresh disks.
async fn measure(
    place: &Path,
    images: [&str; 2],
    cases: &[Case],
    plan: &Plan,
    number: usize,
    progress: &Progress,
) -> anyhow::Result<Vec<Round>> {
    let bytes = 3 * plan.file_bytes + SPARE_BYTES;
    let mut served = Vec::new();
    for ((name, format), image) in SIDES.into_iter().zip(images) {
        served.push(Served::start(place, image, name, format, bytes)?);
    }
    // What the cases need, and what it warms; not kept.
    block_in_place(|| side_by_side(&served, Case::SequentialWrite, plan, number))?;
    let mut rounds = Vec::new();
    for &case in cases {
        progress.say(case.name());
        let pressure = noise::pressure(QUIET_WINDOW).await;
        let processes: Vec<u32> = served.iter().map(|served| served.child.id()).collect();
        let before = Counters::now(&processes);
        let samples = block_in_place(|| round(&served, case, plan, number)).with_context(|| case.name());
        let samples = samples.with_context(|| served.iter().map(Served::said).collect::<String>())?;
        let foreign = Counters::now(&processes).foreign_since(before);
        rounds.push(Round { samples, noise: Noise { pressure, foreign } });
        progress.step(served.len() as u64);
    }
    Ok(rounds)
}

/// Both disks in turn. Writes go on in the background, so each disk does all of them in one.
fn round(served: &[Served], case: Case, plan: &Plan, number: usize) -> anyhow::Result<Vec<Sample>> {
    if case.is_read() {
        return side_by_side(served, case, plan, number);
    }
    let mut samples: Vec<Option<Sample>> = served.iter().map(|_| None).collect();
    for at in turn(served, number) {
        samples[at] = Some(Work::start(case, &served[at].file, plan, number)?.end()?);
    }
    Ok(samples.into_iter().flatten().collect())
}

/// Both disks in short parts that alternate: a virtual disk is fast for some seconds and slow for others, and each disk is to
/// have the same share of both.
fn side_by_side(served: &[Served], case: Case, plan: &Plan, number: usize) -> anyhow::Result<Vec<Sample>> {
    let work: anyhow::Result<Vec<Work>> =
        served.iter().map(|served| Work::start(case, &served.file, plan, number)).collect();
    let mut work = work?;
    for part in 1..=PARTS {
        for at in turn(served, number + part) {
            work[at].go_to(f64::from(part as u32) / f64::from(PARTS as u32))?;
        }
    }
    work.into_iter().map(Work::end).collect()
}

/// The disks in an order that changes from one number to the next: neither is always the first one.
fn turn(served: &[Served], number: usize) -> impl Iterator<Item = usize> {
    let disks = served.len();
    (0..disks).map(move |at| (at + number) % disks)
}

/// A case being done to a file.
struct Work<'a> {
    case: Case,
    plan: &'a Plan,
    file: fs::File,
    bytes: Vec<u8>,
    random: ChaCha8Rng,
    sample: Sample,
}

impl Work<'_> {
    fn start<'a>(case: Case, path: &Path, plan: &'a Plan, seed: usize) -> anyhow::Result<Work<'a>> {
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
        Ok(Work { case, plan, file, bytes, random, sample: Sample::default() })
    }

    /// Goes on until `share` of it is done.
    fn go_to(&mut self, share: f64) -> anyhow::Result<()> {
        let pieces = self.plan.file_bytes / self.bytes.len() as u64;
        let (seconds, begin) = (self.sample.seconds, Instant::now());
        loop {
            let done = self.sample.operations;
            self.sample.seconds = seconds + begin.elapsed().as_secs_f64();
            let is_done = match self.case.is_sequential() {
                true => done as f64 >= share * (pieces * self.case.passes()) as f64,
                false => self.sample.seconds >= share * self.plan.round.as_secs_f64(),
            };
            if is_done {
                return Ok(());
            }
            let piece = if self.case.is_sequential() { done % pieces } else { self.random.random_range(0..pieces) };
            if piece == 0 && self.case == Case::SequentialRead {
                fadvise(&self.file, 0, None, Advice::DontNeed)?;
            }
            let at = piece * self.bytes.len() as u64;
            let one = Instant::now();
            match self.case {
                Case::SequentialRead | Case::RandomRead => self.file.read_exact_at(&mut self.bytes, at)?,
                Case::SequentialWrite | Case::RandomWrite => self.file.write_all_at(&self.bytes, at)?,
                Case::SyncedWrite => {
                    self.file.write_all_at(&self.bytes, at)?;
                    self.file.sync_data()?;
                }
            }
            self.sample.latencies.push(one.elapsed());
            self.sample.operations += 1;
        }
    }

    /// Does the rest; what was written is then durable.
    fn end(mut self) -> anyhow::Result<Sample> {
        self.go_to(1.0)?;
        if matches!(self.case, Case::SequentialWrite | Case::RandomWrite) {
            let begin = Instant::now();
            self.file.sync_all()?;
            self.sample.seconds += begin.elapsed().as_secs_f64();
        }
        Ok(self.sample)
    }
}

fn case_rows(goals: &Goals, plan: &Plan, case: Case, rounds: &[Round]) -> Vec<Row> {
    let figure = |metric: &'static str, unit: &'static str, of: &dyn Fn(&Sample) -> f64| {
        let sides = || quiet(rounds).into_iter().map(|round| [0, 1].map(|at| of(&round.samples[at])));
        let value = median(sides().map(|[on, _]| on).collect()).unwrap_or(0.0);
        // Both were done side by side in each round, and rounds differ by more than what is compared.
        let ratio = median(sides().filter(|[_, off]| *off > 0.0).map(|[on, off]| on / off).collect());
        let off = ratio.map_or(0.0, |ratio| value / ratio);
        let against = Some(Against { name: SIDES[1].0.replace('-', " "), value: off });
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
fn quiet(rounds: &[Round]) -> Vec<&Round> {
    let quiet: Vec<&Round> = rounds.iter().filter(|round| round.noise.is_quiet()).collect();
    if quiet.is_empty() { rounds.iter().collect() } else { quiet }
}

const SEQUENTIAL_BYTES: usize = 1 << 20;
const RANDOM_BYTES: usize = 4096;
/// Of what is done side by side.
const PARTS: usize = 32;
/// Of an image, beyond the file and what is written of it anew: journal, catalog, and what is kept free.
const SPARE_BYTES: u64 = 1 << 30;
const TRIES_MAX: usize = 3;
const QUIET_WINDOW: Duration = Duration::from_millis(200);
