//! `claystone bench adapt`.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use crate::bench::adapt::{self, InSimulation, OnThisMachine, Plan, Report};
use crate::chart::Picture;
use crate::output::{note, output};
use crate::rows::{self, Goals, Row};

#[derive(Debug, clap::Args)]
pub struct Adapt {
    /// Also replay samples of Facebook's jobs: a file of them (SWIM, FB-*_samples_*.tsv.gz), or a directory with some
    /// [default: what CLAYSTONE_FACEBOOK names]
    #[arg(long, value_name = "PATH")]
    facebook: Option<PathBuf>,
    /// Only this made workload: cc1, cc2, cc3, cc4, fb, or short, which is simulated only; may be given several times
    #[arg(long = "workload", value_name = "NAME")]
    workloads: Vec<String>,
    /// Only this way to keep data, such as "rs:10+4" or "hacfs-pc"; may be given several times
    #[arg(long = "system", value_name = "NAME")]
    systems: Vec<String>,
    /// On simulated drives, on this machine, or one after the other
    #[arg(long, value_enum, default_value_t = SetUp::Both)]
    set_up: SetUp,
    /// Simulated: how many drives, six on each server
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(600..=100_000))]
    disks: u32,
    /// Simulated: TiB of files
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=64))]
    tib: u64,
    /// Simulated: days of a made workload; files are written and settle in the first two
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(3..=100))]
    days: u32,
    /// The seed that decides all chance of the workloads, and of the simulation
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// On this machine: files of each workload, of 7.5 MiB on average
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(8..=1000))]
    files: u64,
    /// A look: few files, and goals are not judged
    #[arg(long)]
    quick: bool,
    /// Also write plots of what was simulated, as SVG and as PNG, into this directory
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
    Simulated,
    Both,
}

impl Adapt {
    pub async fn run(self) -> anyhow::Result<()> {
        let data_bytes = if self.quick { QUICK_BYTES } else { self.tib << 40 };
        let simulation = InSimulation {
            disks: self.disks as usize,
            data_bytes,
            files: (data_bytes / FILE_BYTES) as usize,
            days: if self.quick { QUICK_DAYS } else { self.days },
            seed: self.seed,
        };
        let machine = OnThisMachine {
            files: if self.quick { QUICK_FILES } else { self.files as usize },
            days: if self.quick { QUICK_DAYS } else { MACHINE_DAYS },
            seed: self.seed,
            directory: self.dir,
        };
        let facebook = self.facebook.or_else(|| std::env::var_os("CLAYSTONE_FACEBOOK").map(PathBuf::from));
        if facebook.is_none() {
            note(
                "the samples of Facebook's jobs are left out: --facebook or CLAYSTONE_FACEBOOK names a directory of them \
                 (docs/policies.md says where to get them)",
            );
        }
        let plan = Plan {
            workloads: self.workloads,
            systems: self.systems,
            facebook,
            simulation: Some(simulation).filter(|_| self.set_up != SetUp::Machine),
            machine: Some(machine).filter(|_| self.set_up != SetUp::Simulated),
        };
        let report = adapt::run(&plan).await?;
        if let Some(directory) = &self.plot {
            plot(directory, &report)?;
        }
        let goals = Goals::built_in();
        let row = |figure| if self.quick { goals.row_unjudged(figure) } else { goals.row(figure) };
        let rows: Vec<Row> = report.figures().into_iter().map(row).collect();
        if self.json {
            rows::print(&rows, true)?;
        } else {
            for (heading, table) in report.for_people() {
                writeln!(output(), "{heading}\n\n{table}")?;
            }
        }
        let missed: Vec<String> = rows.iter().filter(|row| row.is_missed()).map(Row::name).collect();
        ensure!(missed.is_empty(), "a goal was missed: {}", missed.join(", "));
        Ok(())
    }
}

fn plot(directory: &Path, report: &Report) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
    for (name, svg) in report.plots()? {
        for picture in Picture::ALL {
            let path = directory.join(format!("adapt-{name}.{}", picture.extension()));
            std::fs::write(&path, picture.encode(svg.clone())?).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// On average: two of the blocks of 3.75 GiB that lengths are multiples of.
const FILE_BYTES: u64 = 8 << 30;
const QUICK_BYTES: u64 = 1 << 40;
const QUICK_DAYS: u32 = 3;
const QUICK_FILES: usize = 8;
/// Three that count.
const MACHINE_DAYS: u32 = 5;
