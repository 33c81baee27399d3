//! `claystone disk grow`: a disk takes up a device that became larger.

use claystone_env::SECTOR_BYTES;
use serde::Serialize;

use super::device::{At, close_disk, open_disk};
use crate::cli::print_json;
use crate::output::output;
use crate::table::bytes;

/// Take up the space of a device that became larger: a partition, a logical volume, an image (`truncate --size`).
#[derive(Debug, clap::Args)]
pub struct Grow {
    #[command(flatten)]
    at: At,
}

#[derive(Debug, Serialize)]
struct Report {
    more_bytes: u64,
    bytes: u64,
}

impl Grow {
    /// Grows it.
    ///
    /// # Errors
    /// There is no disk on the device, or it is in use.
    pub fn run(self, json: bool) -> anyhow::Result<()> {
        let disk = open_disk(&self.at, None)?;
        let sector_bytes = SECTOR_BYTES as u64;
        let more_bytes = disk.grow()? * sector_bytes;
        let report = Report { more_bytes, bytes: disk.info().sectors * sector_bytes };
        close_disk(disk)?;
        if json {
            print_json(&report)?;
        } else if more_bytes == 0 {
            writeln!(output(), "the disk has all {} of the device already", bytes(report.bytes))?;
        } else {
            writeln!(output(), "{} more: the disk has {} now", bytes(more_bytes), bytes(report.bytes))?;
        }
        Ok(())
    }
}
