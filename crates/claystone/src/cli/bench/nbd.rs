//! `claystone bench nbd`.

use std::path::PathBuf;
use std::time::Duration;

use crate::bench::nbd;

#[derive(Debug, clap::Args)]
pub struct Nbd {
    /// Length of the volume in MiB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(64..=1 << 20))]
    mib: u64,
    /// Length of a round
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Rounds of each case
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// A look: a small volume, one short round, and goals are not judged
    #[arg(long)]
    quick: bool,
    /// Where to make the server's directory [default: the system's place for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

impl Nbd {
    /// Measures.
    ///
    /// # Errors
    /// It cannot be done, or a goal was missed.
    pub async fn run(self) -> anyhow::Result<()> {
        let round = super::round(self.seconds, self.rounds)?;
        let plan = nbd::Plan {
            volume_bytes: if self.quick { QUICK_BYTES } else { self.mib << 20 },
            round: if self.quick { QUICK_ROUND } else { round },
            rounds: if self.quick { 1 } else { self.rounds },
            judged: !self.quick,
            directory: self.dir,
        };
        super::print(&nbd::run(&plan).await?, self.json)
    }
}

const QUICK_BYTES: u64 = 64 << 20;
const QUICK_ROUND: Duration = Duration::from_secs(1);
