//! `claystone bench`: measures.

mod adapt;
mod nbd;
mod trace;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::Kernels;
use crate::bench::codes::{self, Choice, Measured};
use crate::bench::volume::Curves;
use crate::bench::{lec, mount, s3, small, tier, volume};
use crate::chart::Picture;
use crate::output::note;
use crate::rows::{self, Row};

/// Measure this machine, beside other systems where they are installed.
#[derive(Debug, clap::Args)]
pub struct Bench {
    #[command(flatten)]
    kernels: Kernels,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Redundancy that follows heat beside codes that stay: made workloads and Facebook's jobs on a thousand simulated drives,
    /// and objects on this machine
    Adapt(adapt::Adapt),
    /// Encoding, repair and planning of every code, beside other libraries with --peers
    Codes(Codes),
    /// Clay codes: what repairs read beside theory, and encoding beside our own Reed-Solomon
    Clay(Cells),
    /// Local parity inside one disk, on an emulated hard disk: tails of reads beside theory, workloads, updates, space, isolated reads
    Lec(Lec),
    /// A file through the mount with coding on and off, in one run; takes root and /dev/fuse
    Mount(Mount),
    /// fio on a volume over NBD: alone, while the log is merged, while a disk dies, with one gone; takes fio
    Nbd(nbd::Nbd),
    /// PUT and GET over S3 by object size, beside MinIO if its program is on PATH
    S3(S3),
    /// Small objects over S3: space, files, and how fast they are put, read and listed
    Small(Small),
    /// Writes that know the drive, over an emulated solid-state drive and hard disks in simulated time, beside that drive alone and as a
    /// cache that writes back
    Tier(Tier),
    /// Recorded requests of block devices: updates of parity counted, or replayed on a volume on six disks
    Trace(trace::Trace),
    /// Random writes to volumes beside replicas and other ways to keep parity, on six disks in one directory, and emulated on
    /// three servers with solid-state drives
    Volume(Volume),
}

#[derive(Debug, clap::Args)]
struct Codes {
    /// Other libraries in the same rounds; needs a build with `--features peers`
    #[arg(long)]
    peers: bool,
    #[command(flatten)]
    cells: Cells,
}

#[derive(Debug, clap::Args)]
struct Cells {
    /// Only what has this text in its name, such as "rs:10+4 128KiB" or "repair"
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// A look: fewer samples, and goals are not judged
    #[arg(long)]
    quick: bool,
    /// One JSON object a line, peers' own figures too
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Lec {
    /// Only what has this text in its name: "tails", "tails 1e-3 20ms", "workloads", "files scan", "updates 50", "space"
    #[arg(long, value_name = "PART")]
    part: Option<String>,
    /// A look: fewer reads, and goals are not judged
    #[arg(long)]
    quick: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Mount {
    /// Only this case, such as "random write 4KiB"; may be given several times
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
    /// Length of the file in MiB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(16..=1 << 20))]
    mib: u64,
    /// How long random reads and writes go on in a round
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Rounds that are kept of each case
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// A look: a small file, one short round, and goals are not judged
    #[arg(long)]
    quick: bool,
    /// Where to make the two images [default: the system's place for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct S3 {
    /// MinIO's program [default: `minio` on PATH, if there is one]
    #[arg(long, value_name = "PATH")]
    minio: Option<PathBuf>,
    /// Only this case, such as "put 64MiB"; may be given several times
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
    /// Length of a round
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Rounds that are kept of each case
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Where to make the servers' directories [default: the system's place for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Small {
    /// Objects of 1 to 16 KiB that many clients put at once
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u64).range(100..=1 << 30))]
    objects: u64,
    /// How many clients
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=1024))]
    clients: u64,
    /// A look: few objects, and goals are not judged
    #[arg(long)]
    quick: bool,
    /// Where to make the server's directories [default: the system's place for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Tier {
    /// Only cases with this text in their names: a workload (A to D), "every 20us", a way ("ssd only", "lru cache", "mios_d", "mios_e",
    /// "mios_d, product")
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
    /// Of the time of each workload (26 to 45 minutes), this part [default: all of A, which has few writes, and a tenth of the others]
    #[arg(long)]
    part: Option<f64>,
    /// The first seed that decides all chance
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds: each figure is the median of theirs [default: three of A, seven of the others]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=99))]
    seeds: Option<u64>,
    /// A look: little time, and goals are not judged
    #[arg(long)]
    quick: bool,
    /// Also write plots of how long writes took, as SVG and as PNG, into this directory
    #[arg(long, value_name = "DIRECTORY")]
    plot: Option<PathBuf>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Volume {
    /// Only this case, such as "8KiB QD1"; may be given several times
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
    /// Only this mode, such as "dpu 100", beside replicas; may be given several times
    #[arg(long = "mode", value_name = "NAME")]
    modes: Vec<String>,
    /// Where devices are: on this machine, on emulated servers in simulated time, or one after the other
    #[arg(long, value_enum, default_value_t = SetUp::Both)]
    set_up: SetUp,
    /// Length of each device in MiB
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(8..=1 << 20))]
    mib: u64,
    /// On this machine: how long each device is written to in a round
    #[arg(long, default_value_t = 0.4)]
    seconds: f64,
    /// On this machine: rounds that are kept of each case
    #[arg(long, default_value_t = 31)]
    rounds: usize,
    /// Emulated: writes to each device
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(100..=1 << 30))]
    writes: u64,
    /// Emulated: the seed that decides all chance
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A look: short rounds and few writes, and goals are not judged
    #[arg(long)]
    quick: bool,
    /// Also write plots of how long writes took, one for each case, as SVG and as PNG, into this directory
    #[arg(long, value_name = "DIRECTORY")]
    plot: Option<PathBuf>,
    /// On this machine: where to make the disks [default: the system's place for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum SetUp {
    Machine,
    Emulated,
    Both,
}

impl Bench {
    /// Measures.
    ///
    /// # Errors
    /// It cannot be done, or a goal was missed.
    pub async fn run(self) -> anyhow::Result<()> {
        self.kernels.choose()?;
        if cfg!(debug_assertions) {
            note(format_args!("warning: this is a debug build; its figures say nothing (build with --release)"));
        }
        match self.what {
            What::Adapt(adapt) => adapt.run().await,
            What::Codes(Codes { peers, cells }) => cells.run(peers, codes::codes),
            What::Clay(cells) => cells.run(false, codes::clay),
            What::Lec(Lec { part, quick, json }) => {
                // A simulated world has a runtime of its own, which must not run inside of this one.
                let rows = tokio::task::spawn_blocking(move || lec::lec(&lec::Choice { part, quick })).await??;
                print(&rows, json)
            }
            What::Mount(mount) => mount.run().await,
            What::Nbd(nbd) => nbd.run().await,
            What::S3(s3) => s3.run().await,
            What::Small(small) => small.run().await,
            What::Tier(tier) => tier.run().await,
            What::Trace(trace) => trace.run().await,
            What::Volume(volume) => volume.run().await,
        }
    }
}

impl Cells {
    /// Measures on this thread: nothing else runs meanwhile.
    fn run(self, peers: bool, bench: impl Fn(&Choice) -> anyhow::Result<Measured>) -> anyhow::Result<()> {
        let Measured { mut rows, peer_rows } = bench(&Choice { case: self.case, quick: self.quick, peers })?;
        if self.json {
            rows.extend(peer_rows);
        }
        print(&rows, self.json)
    }
}

impl Mount {
    async fn run(self) -> anyhow::Result<()> {
        let round = round(self.seconds, self.rounds)?;
        let plan = mount::Plan {
            cases: self.cases,
            file_bytes: if self.quick { QUICK_FILE_BYTES } else { self.mib << 20 },
            round: if self.quick { QUICK_ROUND } else { round },
            rounds: if self.quick { 1 } else { self.rounds },
            judged: !self.quick,
            directory: self.dir,
        };
        print(&mount::run(&plan).await?, self.json)
    }
}

impl Volume {
    async fn run(self) -> anyhow::Result<()> {
        let round = round(self.seconds, self.rounds)?;
        let machine = volume::OnMachine {
            round: if self.quick { QUICK_ROUND } else { round },
            rounds: if self.quick { 1 } else { self.rounds },
            directory: self.dir,
        };
        let writes = if self.quick { QUICK_WRITES } else { self.writes };
        let emulated = volume::InSimulation { writes, seed: self.seed };
        let plan = volume::Plan {
            cases: self.cases,
            modes: self.modes,
            device_bytes: if self.quick { QUICK_DEVICE_BYTES } else { self.mib << 20 },
            judged: !self.quick,
            machine: Some(machine).filter(|_| self.set_up != SetUp::Emulated),
            emulated: Some(emulated).filter(|_| self.set_up != SetUp::Machine),
        };
        let measured = volume::run(&plan).await?;
        if let Some(directory) = &self.plot {
            let drawn = |curves: &Curves| Ok((format!("volume {}", curves.name), curves.draw()?));
            plot(directory, &measured.curves.iter().map(drawn).collect::<anyhow::Result<Vec<_>>>()?)?;
        }
        print(&measured.rows, self.json)
    }
}

impl Tier {
    async fn run(self) -> anyhow::Result<()> {
        if let Some(part) = self.part {
            ensure!(part > 0.0 && part <= 1.0, "--part {part}: above 0, at most 1");
        }
        let part = if self.quick { Some(QUICK_PART.min(self.part.unwrap_or(1.0))) } else { self.part };
        let seeds = if self.quick { Some(1) } else { self.seeds };
        let choice = tier::Choice { case: self.case, part, seed: self.seed, seeds, judged: !self.quick };
        // A simulated world has a runtime of its own, which must not run inside of this one.
        let measured = tokio::task::spawn_blocking(move || tier::tier(&choice)).await??;
        if let Some(directory) = &self.plot {
            plot(directory, &measured.plots)?;
        }
        print(&measured.rows, self.json)
    }
}

/// Writes plots, given by name as SVG.
fn plot(directory: &Path, plots: &[(String, String)]) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    for (name, svg) in plots {
        for picture in Picture::ALL {
            let name = format!("{name}.{}", picture.extension()).replace(' ', "-");
            let path = directory.join(name);
            std::fs::write(&path, picture.encode(svg.clone())?).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// The length of a round, if it and the number of rounds make sense.
fn round(seconds: f64, rounds: usize) -> anyhow::Result<Duration> {
    ensure!((0.1..=600.0).contains(&seconds), "--seconds {seconds}: 0.1 to 600");
    ensure!((1..=100).contains(&rounds), "--rounds {rounds}: 1 to 100");
    Ok(Duration::from_secs_f64(seconds))
}

const QUICK_FILE_BYTES: u64 = 64 << 20;
const QUICK_DEVICE_BYTES: u64 = 16 << 20;
const QUICK_WRITES: u64 = 1000;
const QUICK_PART: f64 = 0.005;
const QUICK_OBJECTS: usize = 2000;
/// Chunks that nobody reads are kept for a minute.
const SETTLED_AFTER: Duration = Duration::from_secs(90);
/// A round of packing each half minute.
const QUICK_SETTLED_AFTER: Duration = Duration::from_secs(33);
const QUICK_ROUND: Duration = Duration::from_millis(300);

impl S3 {
    async fn run(self) -> anyhow::Result<()> {
        let round = round(self.seconds, self.rounds)?;
        let minio = self.minio.or_else(|| on_path("minio"));
        if minio.is_none() {
            note(format_args!("no `minio` on PATH: measuring this program alone"));
        }
        let plan = s3::Plan { minio, cases: self.cases, round, rounds: self.rounds, directory: self.dir };
        print(&s3::run(&plan).await?, self.json)
    }
}

impl Small {
    async fn run(self) -> anyhow::Result<()> {
        let many = if self.quick { QUICK_OBJECTS } else { self.objects as usize };
        let plan = small::Plan {
            many,
            alone: many.div_ceil(50),
            clients: self.clients as usize,
            settled_after: if self.quick { QUICK_SETTLED_AFTER } else { SETTLED_AFTER },
            judged: !self.quick,
            directory: self.dir,
        };
        print(&small::run(&plan).await?, self.json)
    }
}

/// Prints the rows, and fails if a goal was missed.
fn print(rows: &[Row], json: bool) -> anyhow::Result<()> {
    rows::print(rows, json)?;
    if rows.iter().any(Row::is_missed) {
        bail!("a goal was missed");
    }
    Ok(())
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|place| place.join(program)).find(|file| file.is_file())
}
