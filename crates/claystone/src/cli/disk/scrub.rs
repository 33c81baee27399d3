//! `claystone disk scrub`: everything on a disk is read back, and mended.

use anyhow::ensure;
use serde::Serialize;

use super::device::{At, Recovery, close_disk, open_disk};
use crate::cli::print_json;
use crate::output::output;
use crate::progress::Progress;
use crate::table::counted;

/// Read every sector of a disk back, parity and copies too, and mend what is damaged.
#[derive(Debug, clap::Args)]
pub struct Scrub {
    #[command(flatten)]
    at: At,
    #[command(flatten)]
    recovery: Recovery,
}

#[derive(Debug, Serialize)]
struct Report {
    groups: u64,
    sectors_mended: u64,
    sums_mended: u64,
    pages: u64,
    copies_mended: u64,
    /// Groups of which more is lost than parity replaces,
    groups_lost: u64,
    /// and those of them with void parity.
    groups_void: u64,
    /// Inode and file sector.
    lost: Vec<(u64, u64)>,
    /// Pages of the catalog of which no copy is right,
    pages_lost: Vec<u64>,
    /// and whether some of them are in use.
    catalog_damaged: bool,
}

impl Scrub {
    /// Scrubs it.
    ///
    /// # Errors
    /// Something is lost; there is no disk on the device, or it is in use.
    pub fn run(self, json: bool) -> anyhow::Result<()> {
        let disk = open_disk(&self.at, self.recovery.limits())?;
        let progress = Progress::timed("scrubbing groups", 0);
        let found = disk.scrub(&mut |found| {
            progress.of(found.groups, found.groups_total);
            true
        })?;
        progress.end();
        let closed = close_disk(disk);
        let report = Report {
            groups: found.groups,
            sectors_mended: found.mended,
            sums_mended: found.sums_mended,
            pages: found.pages,
            copies_mended: found.copies_mended,
            groups_lost: found.groups_lost,
            groups_void: found.groups_void,
            lost: found.lost.iter().map(|(inode, sector)| (inode.0, *sector)).collect(),
            pages_lost: found.pages_lost,
            catalog_damaged: found.catalog_damaged,
        };
        if json {
            print_json(&report)?;
        } else {
            for (inode, sector) in report.lost.iter().take(LOST_SHOWN) {
                writeln!(output(), "inode {inode}: sector {sector} of the file is lost")?;
            }
            writeln!(
                output(),
                "read {} and {} of the catalog: {}, {} and {} mended, {} lost",
                counted(report.groups, "group", "groups"),
                counted(report.pages, "page", "pages"),
                counted(report.sectors_mended, "sector", "sectors"),
                counted(report.sums_mended, "checksum", "checksums"),
                counted(report.copies_mended, "copy", "copies"),
                counted(report.lost.len() as u64, "sector", "sectors")
            )?;
            if report.groups_lost > 0 {
                writeln!(
                    output(),
                    "{} lost more than parity replaces, {} of them with void parity: what else they hold bears no further loss",
                    counted(report.groups_lost, "group has", "groups have"),
                    report.groups_void
                )?;
            }
        }
        let mut says = Vec::new();
        if !report.lost.is_empty() {
            says.push(format!(
                "{} lost: replace these files (`find -inum INODE` on the mount finds them)",
                counted(report.lost.len() as u64, "sector of files is", "sectors of files are")
            ));
        }
        if report.catalog_damaged {
            says.push(format!(
                "the catalog is damaged: no copy of {} of its pages is right. Copy what can be read to another disk now",
                report.pages_lost.len()
            ));
        }
        ensure!(says.is_empty(), "{}", says.join("; "));
        closed
    }
}

/// The rest are in the JSON.
const LOST_SHOWN: usize = 20;
