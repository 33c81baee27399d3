//! `claystone disk check`: whether the catalog of a disk is right.

use anyhow::bail;
use claystone_env::SECTOR_BYTES;
use serde::Serialize;

use super::device::{At, Recovery, close_disk, open_disk};
use crate::cli::print_json;
use crate::output::output;
use crate::table::{bytes, counted};

/// Check that names, files and free sectors of a disk agree. Reads its catalog only; `scrub` reads the files.
#[derive(Debug, clap::Args)]
pub struct Check {
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    recovery: Recovery,
}

#[derive(Debug, Serialize)]
struct Report {
    nodes: u64,
    windows: u64,
    file_bytes: u64,
    catalog_bytes: u64,
    free_bytes: u64,
    problems: Vec<String>,
}

impl Check {
    /// Checks it.
    ///
    /// # Errors
    /// Something is wrong; there is no disk on the device, or it is in use.
    pub fn run(self, json: bool) -> anyhow::Result<()> {
        let disk = open_disk(&self.at, self.recovery.limits())?;
        let found = disk.check()?;
        let closed = close_disk(disk);
        let sector_bytes = SECTOR_BYTES as u64;
        let report = Report {
            nodes: found.nodes,
            windows: found.windows,
            file_bytes: found.file_sectors * sector_bytes,
            catalog_bytes: found.catalog_sectors * sector_bytes,
            free_bytes: found.free_sectors * sector_bytes,
            problems: found.problems.iter().map(ToString::to_string).collect(),
        };
        if json {
            print_json(&report)?;
        } else {
            report.problems.iter().try_for_each(|problem| writeln!(output(), "{problem}"))?;
            writeln!(
                output(),
                "{}; files take {}, the catalog {}, {} are free",
                counted(report.nodes, "node", "nodes"),
                bytes(report.file_bytes),
                bytes(report.catalog_bytes),
                bytes(report.free_bytes)
            )?;
        }
        match report.problems.len() {
            0 => closed,
            problems => bail!(
                "{problems} problems: copy the files to another disk, and report this: only an error of the program \
                 makes such a disk"
            ),
        }
    }
}
