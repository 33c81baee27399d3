//! `claystone model`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;

use crate::model::lec::{Figures, Tree};
use crate::output::output;

/// The arithmetic behind local coding
#[derive(Debug, clap::Args)]
pub struct Model {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Local erasure coding inside a disk: parity by length, tails of long reads, overhead by files
    Lec(Lec),
}

/// Arguments of `claystone model lec`.
#[derive(Debug, clap::Args)]
struct Lec {
    /// Also the overhead of the files in this directory: parity, checksums, and copies of small files, as a disk keeps them
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Trials by chance beside each formula; 0 for none
    #[arg(long, value_name = "N", default_value_t = 2000)]
    trials: usize,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// Also write the plots lec-overhead, lec-gains, lec-tails-P for each chance P, and lec-files, as SVG and as PNG, into this directory
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

impl Model {
    /// Prints the tables.
    ///
    /// # Errors
    /// A directory cannot be read, or a plot cannot be written.
    pub fn run(self) -> anyhow::Result<()> {
        let Part::Lec(Lec { tree, trials, json, plot }) = self.part;
        let tree = tree.map(|path| walk(&path)).transpose()?;
        let figures = Figures::of(trials, tree.as_ref());
        if let Some(directory) = plot {
            fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
            for (name, bytes) in figures.plots()? {
                let path = directory.join(name);
                fs::write(&path, bytes).with_context(|| path.display().to_string())?;
            }
        }
        if json {
            figures.groups.iter().try_for_each(super::print_json)?;
            figures.lengths.iter().try_for_each(super::print_json)?;
            figures.tails.iter().try_for_each(super::print_json)?;
            figures.files.iter().try_for_each(super::print_json)?;
        } else {
            for (heading, table) in figures.for_people() {
                writeln!(output(), "{heading}\n\n{table}")?;
            }
        }
        Ok(())
    }
}

/// The files under a directory: symbolic links are not followed, and a file with several names counts once.
fn walk(root: &Path) -> anyhow::Result<Tree> {
    let (mut left, mut file_bytes, mut seen) = (vec![root.to_path_buf()], Vec::new(), BTreeSet::new());
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).with_context(|| directory.display().to_string())? {
            let path = entry.with_context(|| directory.display().to_string())?.path();
            let metadata = fs::symlink_metadata(&path).with_context(|| path.display().to_string())?;
            if metadata.is_dir() {
                left.push(path);
            } else if metadata.is_file() && (metadata.nlink() == 1 || seen.insert((metadata.dev(), metadata.ino()))) {
                file_bytes.push(metadata.len());
            }
        }
    }
    Ok(Tree { name: root.display().to_string(), file_bytes })
}
