//! `claystone disk info`: what a disk is, and how full.

use std::fmt;
use std::path::PathBuf;

use claystone_env::SECTOR_BYTES;
use claystone_files::Disk;
use claystone_model::loss_chance;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::device::{close_disk, open_disk};
use crate::cli::print_json;
use crate::table::bytes;

/// Show what a disk on a device is, and how full.
#[derive(Debug, clap::Args)]
pub struct Info {
    /// The drive, partition or image file
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
}

impl Info {
    /// Prints it.
    ///
    /// # Errors
    /// There is no disk on the device, or it is in use.
    pub fn run(self, json: bool) -> anyhow::Result<()> {
        let disk = open_disk(&self.device)?;
        let report = Report::of(&disk);
        close_disk(disk)?;
        if json {
            print_json(&report);
        } else {
            print!("{report}");
        }
        Ok(())
    }
}

/// What is told of a disk. Sizes are in bytes.
#[derive(Debug, Serialize)]
pub struct Report {
    device: String,
    id: String,
    label: String,
    formatted: String,
    bytes: u64,
    data_bytes: u64,
    free_bytes: u64,
    nodes: u64,
    group_data: u32,
    group_parity: u32,
    copies: u32,
    soft_failures: f64,
    loss_accepted: f64,
    /// The chance that more sectors of a group fail softly than its parity mends, as stated.
    loss: f64,
    /// Share of the device's bytes that parity and checksums take of those of the data.
    overhead: f64,
    fails_fast: bool,
    catalog_bytes: u64,
    journal_bytes: u64,
    journal_used_bytes: u64,
    sectors_mended: u64,
    copies_mended: u64,
    sectors_lost: u64,
    copies_lost: u64,
    soft_failures_measured: Option<f64>,
}

impl Report {
    /// Of an open disk.
    pub fn of(disk: &Disk) -> Report {
        let info = disk.info();
        let sector_bytes = SECTOR_BYTES as u64;
        let sums = SUMS_PER_SECTOR / f64::from(info.data);
        Report {
            device: info.device,
            id: info.id.to_string(),
            label: info.label,
            formatted: moment(info.formatted.unix_ms),
            bytes: info.sectors * sector_bytes,
            data_bytes: info.space.data_sectors * sector_bytes,
            free_bytes: info.space.free_sectors * sector_bytes,
            nodes: info.space.inodes,
            group_data: info.data,
            group_parity: info.parity,
            copies: info.copies,
            soft_failures: info.soft_failures,
            loss_accepted: info.loss_target,
            loss: loss_chance(info.data + info.parity, info.parity, info.soft_failures),
            overhead: (f64::from(info.parity) + 1.0 / sums) / f64::from(info.data),
            fails_fast: info.fails_fast,
            catalog_bytes: info.catalog_sectors * sector_bytes,
            journal_bytes: info.journal_sectors * u64::from(info.copies) * sector_bytes,
            journal_used_bytes: info.journal_used * u64::from(info.copies) * sector_bytes,
            sectors_mended: info.statistics.mended,
            copies_mended: info.copies_mended,
            sectors_lost: info.statistics.sectors_lost,
            copies_lost: info.copies_lost,
            soft_failures_measured: info.soft_measured,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = if self.label.is_empty() { String::new() } else { format!(" ({})", self.label) };
        writeln!(f, "disk           {}{label}", self.id)?;
        writeln!(f, "device         {}, {}", self.device, bytes(self.bytes))?;
        writeln!(f, "formatted      {}", self.formatted)?;
        writeln!(
            f,
            "for files      {}, {} free; {} nodes",
            bytes(self.data_bytes),
            bytes(self.free_bytes),
            self.nodes
        )?;
        writeln!(
            f,
            "groups         {} data and {} parity sectors: {:.2} % for parity and checksums",
            self.group_data,
            self.group_parity,
            self.overhead * 100.0
        )?;
        if self.loss > 0.0 {
            writeln!(
                f,
                "soft failures  {:e} of sectors: more than parity mends in one of {:.0} groups, accepted in one of {:.0}",
                self.soft_failures,
                1.0 / self.loss,
                1.0 / self.loss_accepted
            )?;
        }
        let journal = format!("journal {} ({} in use)", bytes(self.journal_bytes), bytes(self.journal_used_bytes));
        writeln!(f, "copies         {} of all else: catalog {}, {journal}", self.copies, bytes(self.catalog_bytes))?;
        if !self.fails_fast {
            writeln!(f, "drive          retries by itself: soft failures are slow, and are not seen here")?;
        }
        if self.sectors_mended + self.copies_mended > 0 {
            writeln!(
                f,
                "mended         {} sectors, {} copies since it was opened",
                self.sectors_mended, self.copies_mended
            )?;
        }
        if self.sectors_lost + self.copies_lost > 0 {
            writeln!(f, "lost           {} sectors since it was opened", self.sectors_lost + self.copies_lost)?;
        }
        Ok(())
    }
}

/// A moment for people and machines.
fn moment(unix_ms: u64) -> String {
    let moment = OffsetDateTime::from_unix_timestamp((unix_ms / 1000).min(i64::MAX as u64) as i64);
    moment.ok().and_then(|moment| moment.format(&Rfc3339).ok()).unwrap_or_else(|| format!("{unix_ms} ms"))
}

/// CRCs in a sums sector of a bulk run.
const SUMS_PER_SECTOR: f64 = 1020.0;
