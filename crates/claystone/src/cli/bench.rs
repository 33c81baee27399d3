//! `claystone bench`: measures.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};

use crate::bench::s3::{Plan, run};
use crate::rows;

/// Measure this machine, beside other systems where they are installed.
#[derive(Debug, clap::Args)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// PUT and GET over S3 by object size, beside MinIO if its program is on PATH
    S3(S3),
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

impl Bench {
    /// Measures.
    ///
    /// # Errors
    /// It cannot be done, or a goal was missed.
    pub async fn run(self) -> anyhow::Result<()> {
        let What::S3(s3) = self.what;
        ensure!((0.1..=600.0).contains(&s3.seconds), "--seconds {}: 0.1 to 600", s3.seconds);
        ensure!((1..=100).contains(&s3.rounds), "--rounds {}: 1 to 100", s3.rounds);
        if cfg!(debug_assertions) {
            eprintln!("warning: this is a debug build; its figures say nothing (build with --release)");
        }
        let minio = s3.minio.or_else(|| on_path("minio"));
        if minio.is_none() {
            eprintln!("no `minio` on PATH: measuring this program alone");
        }
        let plan = Plan {
            minio,
            cases: s3.cases,
            round: Duration::from_secs_f64(s3.seconds),
            rounds: s3.rounds,
            directory: s3.dir,
        };
        let rows = run(&plan).await?;
        rows::print(&rows, s3.json);
        if rows.iter().any(rows::Row::is_missed) {
            bail!("a goal was missed");
        }
        Ok(())
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|place| place.join(program)).find(|file| file.is_file())
}
