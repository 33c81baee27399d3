//! The command line: one file for each command.

mod backup;
mod bench;
mod bucket;
mod code;
mod demo;
mod disk;
mod emulated;
mod key;
mod model;
mod mount;
mod policy;
mod scrub;
mod signals;
mod status;
mod up;
mod volume;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use clap::{Parser, Subcommand};
use claystone_code::Tier;
use serde::Serialize;

pub use self::code::Exit;
use crate::output::output;

/// Stores objects on your own disks: S3 in front, erasure codes behind, nothing lost when disks are.
#[derive(Debug, Parser)]
#[command(name = "claystone", version, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a store; make it if there is none
    Up(Box<up::Up>),
    /// Show how a running store is
    Status(status::Status),
    /// Disks of a running store, and disks on a device that mend their own sectors
    Disk(disk::Disk),
    /// Mount a disk with local coding: files for every program
    Mount(mount::Mount),
    /// Read everything back and check it
    Scrub(scrub::Scrub),
    /// List and make buckets, choose their codes
    Bucket(bucket::Bucket),
    /// How the redundancy of buckets follows what is read: list, show, set and explain policies
    Policy(policy::Policy),
    /// Block devices: list, make, attach, copy and merge volumes
    Volume(volume::Volume),
    /// List, make and delete access keys
    Key(key::Key),
    /// Copy the records of all objects into a file
    Backup(backup::Backup),
    /// Encode files into chunks, get them back, repair them; compare codes
    Code(code::Code),
    /// A tour: store files, break disks, read everything back, repair
    Demo(demo::Demo),
    /// The arithmetic behind local coding
    Model(model::Model),
    /// Measure this machine, beside other systems where they are installed
    Bench(bench::Bench),
}

/// The directory of a store, for commands that have other arguments too.
#[derive(Debug, clap::Args)]
struct At {
    /// The store's directory
    #[arg(long, value_name = "DIR", global = true, default_value = DEFAULT_DIRECTORY, env = "CLAYSTONE_DIR")]
    dir: PathBuf,
}

/// The directory of a store, for commands that have no other argument.
#[derive(Debug, clap::Args)]
struct Of {
    /// The store's directory, as with --dir
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    #[command(flatten)]
    at: At,
}

impl Of {
    /// The argument, else the option or what stands for it.
    fn dir(self) -> PathBuf {
        self.directory.unwrap_or(self.at.dir)
    }
}

/// What codes run with, for commands without a settings file.
#[derive(Debug, clap::Args)]
struct Kernels {
    /// Instruction set that codes run with: scalar, neon, avx2, avx2-gfni or avx512-gfni [default: the fastest there is]
    #[arg(long, value_name = "TIER", global = true, env = "CLAYSTONE_CODE_TIER")]
    code_tier: Option<Tier>,
}

impl Kernels {
    /// Makes it so.
    fn choose(&self) -> anyhow::Result<()> {
        self.code_tier.map_or(Ok(()), Tier::force).context("--code-tier, or CLAYSTONE_CODE_TIER")
    }
}

impl Cli {
    /// Runs the command. `start` is when the process began.
    ///
    /// # Errors
    /// As the command says.
    pub async fn run(self, start: Instant) -> anyhow::Result<()> {
        match self.command {
            Command::Up(up) => return up.run(start).await,
            Command::Mount(mount) => return mount.run(start).await,
            _ => crate::logs::for_commands(),
        }
        match self.command {
            Command::Up(_) | Command::Mount(_) => Ok(()),
            Command::Status(status) => status.run().await,
            Command::Disk(disk) => disk.run().await,
            Command::Scrub(scrub) => scrub.run().await,
            Command::Bucket(bucket) => bucket.run().await,
            Command::Policy(policy) => policy.run().await,
            Command::Volume(volume) => volume.run().await,
            Command::Key(key) => key.run().await,
            Command::Backup(backup) => backup.run().await,
            Command::Code(code) => code.run(),
            Command::Demo(demo) => demo.run().await,
            Command::Model(model) => model.run(),
            Command::Bench(bench) => bench.run().await,
        }
    }
}

/// One JSON document for machines.
fn print_json(value: &impl Serialize) -> io::Result<()> {
    writeln!(output(), "{}", serde_json::to_string(value).expect("plain fields always serialise"))
}

/// Asks the store which disk a person means by an id, the beginning of one, or a path.
fn find_disk<'a>(
    disks: &'a [claystone_console::api::DiskStatus],
    text: &str,
) -> anyhow::Result<&'a claystone_console::api::DiskStatus> {
    let path = std::path::absolute(text).unwrap_or_default();
    let matches =
        |disk: &&claystone_console::api::DiskStatus| disk.id.starts_with(text) || Path::new(&disk.path) == path;
    // A path may have been a lost disk's before: the one in use is meant.
    let (in_use, lost): (Vec<_>, Vec<_>) = disks.iter().filter(matches).partition(|disk| disk.state != "lost");
    match if in_use.is_empty() { lost } else { in_use }[..] {
        [disk] => Ok(disk),
        [] => anyhow::bail!("no disk is called {text:?}: `claystone disk list` shows ids and paths"),
        ref several => anyhow::bail!("{} disks begin with {text:?}: name more of the id", several.len()),
    }
}

const DEFAULT_DIRECTORY: &str = "./claystone-data";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
