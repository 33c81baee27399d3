//! `claystone demo`: the tour of module [`demo`](crate::demo).

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};

use super::Kernels;
use crate::demo::{Size, adaptive, run};
use crate::output::{note, output};
use crate::rows;

/// A tour on your own machine: store files, break disks, read everything back, repair.
#[derive(Debug, clap::Args)]
pub struct Demo {
    /// Where to do it; must be empty or absent [default: a directory for temporary files]
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How much to store
    #[arg(long, value_enum, default_value_t = Size::Small)]
    size: Size,
    /// Instead of that tour: follow a bucket whose redundancy follows what is read, over two kills and a lost disk
    #[arg(long)]
    adaptive: bool,
    #[command(flatten)]
    kernels: Kernels,
    /// Leave the store there afterwards
    #[arg(long)]
    keep: bool,
    /// Figures only, one JSON object a line
    #[arg(long)]
    json: bool,
}

impl Demo {
    /// Takes the tour.
    ///
    /// # Errors
    /// It cannot be done, or a goal was missed.
    pub async fn run(self) -> anyhow::Result<()> {
        self.kernels.choose()?;
        let scratch = match &self.dir {
            Some(dir) => {
                let used = dir.read_dir().is_ok_and(|mut entries| entries.next().is_some());
                ensure!(!used, "{} is not empty: name a directory that the demo may break", dir.display());
                std::fs::create_dir_all(dir).with_context(|| format!("{} cannot be made", dir.display()))?;
                None
            }
            None => Some(tempfile::Builder::new().prefix("claystone-demo-").tempdir()?),
        };
        let directory =
            scratch.as_ref().map_or_else(|| self.dir.clone().unwrap_or_default(), |dir| dir.path().to_owned());
        let tell = |line: &str| if self.json { Ok(()) } else { writeln!(output(), "{line}") };
        let rows = if self.adaptive {
            tell(&format!("a store with twenty-two disks in {}", directory.display()))?;
            adaptive::run(&directory, self.size, tell).await
        } else {
            tell(&format!("a store with six disks in {}", directory.display()))?;
            run(&directory, self.size, tell).await
        };
        if self.keep {
            if let Some(scratch) = scratch {
                let _ = scratch.keep();
            }
            note(format_args!("the store is left in {}", directory.display()));
        } else if self.dir.is_some() {
            std::fs::remove_dir_all(&directory).with_context(|| format!("removing {}", directory.display()))?;
        }
        let rows = rows?;
        if !self.json {
            writeln!(output())?;
        }
        rows::print(&rows, self.json)?;
        if rows.iter().any(rows::Row::is_missed) {
            bail!("a goal was missed");
        }
        Ok(())
    }
}
