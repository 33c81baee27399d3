//! `claystone disk info`: what a disk is, how full, and how its sectors are.

use std::fmt;
use std::io;
use std::path::Path;

use claystone_console::api::{PairStatus, SectorStatus};
use claystone_env::SECTOR_BYTES;
use claystone_files::Disk;
use claystone_model::loss_chance;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::device::{At, is_in_use, look_at_disk};
use super::holder::{Answer, ask};
use crate::cli::print_json;
use crate::output::output;
use crate::table::{bytes, counted};

/// Show what a disk on a device is, how full, and how its sectors are. Nothing is written. Of a device that is in use, the
/// mount or the store that has it open is asked.
#[derive(Debug, clap::Args)]
pub struct Info {
    #[command(flatten)]
    at: At,
}

impl Info {
    /// Prints it. `directory` is that of the store which may have it open.
    ///
    /// # Errors
    /// There is no disk on the device, or it is in use by something else.
    pub async fn run(self, directory: &Path, json: bool) -> anyhow::Result<()> {
        match look_at_disk(&self.at) {
            Ok(disk) => tell(&Report::of(&disk), json)?,
            Err(error) if is_in_use(&error) => match ask(&self.at.device, directory).await? {
                Answer::Mount(at, report) => {
                    tell(&report, json)?;
                    if !json {
                        writeln!(output(), "mounted        at {}", at.display())?;
                    }
                }
                Answer::Store(disk) if json => print_json(&disk)?,
                Answer::Store(disk) => {
                    writeln!(output(), "used by        the store in {}, as disk {}", directory.display(), disk.id)?;
                    writeln!(
                        output(),
                        "space          {} free of {}",
                        bytes(disk.free_bytes),
                        bytes(disk.total_bytes)
                    )?;
                    if let Some(sectors) = &disk.sectors {
                        write!(output(), "{}", Sectors(sectors))?;
                    }
                }
            },
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn tell(report: &Report, json: bool) -> io::Result<()> {
    if json { print_json(report) } else { write!(output(), "{report}") }
}

/// What is told of a disk. Sizes are in bytes.
#[derive(Debug, Serialize, Deserialize)]
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
    /// How the device does requests and gives up on sectors.
    manner: Vec<String>,
    catalog_bytes: u64,
    journal_bytes: u64,
    journal_used_bytes: u64,
    /// Sectors that no retry read since the disk was opened.
    known_lost: u64,
    /// Counts since it was formatted, and what follows from them.
    sectors: SectorStatus,
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
            manner: info.manner,
            catalog_bytes: info.catalog_sectors * sector_bytes,
            journal_bytes: info.journal_sectors * u64::from(info.copies) * sector_bytes,
            journal_used_bytes: info.journal_used * u64::from(info.copies) * sector_bytes,
            known_lost: info.known_lost,
            sectors: info.health.into(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = if self.label.is_empty() { String::new() } else { format!(" ({})", self.label) };
        writeln!(f, "disk           {}{label}", self.id)?;
        writeln!(f, "device         {}, {}", self.device, bytes(self.bytes))?;
        for sentence in &self.manner {
            writeln!(f, "               {sentence}")?;
        }
        writeln!(f, "formatted      {}", self.formatted)?;
        writeln!(
            f,
            "for files      {}, {} free; {}",
            bytes(self.data_bytes),
            bytes(self.free_bytes),
            counted(self.nodes, "node", "nodes")
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
        if self.known_lost > 0 {
            let sectors = counted(self.known_lost, "sector", "sectors");
            writeln!(f, "known lost     {sectors} that no retry read since it was opened")?;
        }
        write!(f, "{}", Sectors(&self.sectors))
    }
}

/// For people: how the sectors of a disk are.
struct Sectors<'a>(&'a SectorStatus);

impl fmt::Display for Sectors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.0;
        let measured = match (of.soft_measured, of.soft_at_least, of.soft_at_most) {
            (Some(seen), Some(least), Some(most)) => {
                format!("{seen:.1e} of {} reads, so from {least:.1e} to {most:.1e}", of.soft_reads)
            }
            _ => "nothing".to_owned(),
        };
        let verdict = match (&*of.parity_verdict, of.parity_wanted) {
            ("unseen", _) => "not seen here: the drive retries by itself".to_owned(),
            ("enough", Some(wanted)) => format!("{measured}: {wanted} parity sectors suffice, there are {}", of.parity),
            ("too_little", Some(wanted)) => {
                format!("{measured}: TOO FEW parity sectors, {wanted} are wanted and {} there", of.parity)
            }
            ("too_little", None) => format!("{measured}: TOO FEW parity sectors, and no number suffices"),
            _ if of.soft_reads == 0 => "nothing was read yet".to_owned(),
            _ => format!("{measured}: too few reads to say whether parity suffices"),
        };
        writeln!(f, "measured       {verdict}")?;
        writeln!(
            f,
            "so far         {} read, {}, {} avoided, {}",
            counted(of.read, "sector", "sectors"),
            counted(of.soft_failures, "soft failure", "soft failures"),
            counted(of.retries_avoided, "retry", "retries"),
            counted(of.retries, "retry", "retries")
        )?;
        if of.mended + of.copies_mended > 0 {
            let (mended, copies) =
                (counted(of.mended, "sector", "sectors"), counted(of.copies_mended, "copy", "copies"));
            writeln!(f, "mended         {mended}, {} of them had read wrong; {copies}", of.mismatches_mended)?;
        }
        if of.lost > 0 {
            let times = counted(of.lost, "time", "times");
            writeln!(f, "lost           sectors that were wanted could not be had {times}")?;
        }
        let now = match of.scrub_groups_total {
            0 => String::new(),
            all => format!("; now at {} of {}", of.scrub_groups, counted(all, "group", "groups")),
        };
        match of.scrub_ended_unix_ms {
            Some(ended) => writeln!(f, "read back      whole on {}{now}", moment(ended))?,
            None => writeln!(f, "read back      never whole so far{now}")?,
        }
        if of.scrub_lost + of.scrub_unread > 0 {
            let lost = counted(of.scrub_lost, "SECTOR", "SECTORS");
            let unread = counted(of.scrub_unread, "group or page", "groups and pages");
            writeln!(f, "               {lost} LOST, {unread} of the catalog NOT READ")?;
        }
        of.pair.as_ref().map_or(Ok(()), |pair| write!(f, "{}", Pair(pair)))
    }
}

/// For people: how a hard disk and its solid-state drive are.
struct Pair<'a>(&'a PairStatus);

impl fmt::Display for Pair<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = self.0;
        match &*of.ssd {
            "present" => {}
            "failed" => {
                writeln!(f, "solid-state    FAILED: what only it had cannot be read until it is written again")?
            }
            _ => writeln!(f, "solid-state    LOST: the hard disk goes on alone")?,
        }
        if of.lost_sectors > 0 {
            writeln!(
                f,
                "LOST           {} written again: a solid-state drive alone had what was there",
                counted(of.lost_sectors, "sector cannot be read until it is", "sectors cannot be read until they are")
            )?;
        }
        let log = |used, all| format!("{} of {}", bytes(used), bytes(all));
        writeln!(
            f,
            "logs           {} in use on the solid-state drive, {} on the hard disk",
            log(of.ssd_log_used_bytes, of.ssd_log_bytes),
            log(of.hdd_log_used_bytes, of.hdd_log_bytes)
        )?;
        writeln!(
            f,
            "               {} of that would be read after a crash, beside an index",
            bytes(of.unindexed_bytes)
        )?;
        writeln!(
            f,
            "writes         {} since it was opened: {} to the solid-state drive, {} in {} to the hard disk",
            bytes(of.written_bytes),
            bytes(of.ssd_bytes),
            bytes(of.redirected_bytes),
            counted(of.redirected_writes, "write", "writes")
        )?;
        if of.redirected_writes > 0 {
            writeln!(
                f,
                "               {} spared the solid-state drive, {} copied there by syncs; {} wrong",
                bytes(of.spared_bytes),
                bytes(of.copied_bytes),
                counted(of.surprises, "prediction was", "predictions were")
            )?;
        }
        let moved = format!("{} brought to their place", bytes(of.drained_bytes));
        if of.buffer == "unknown" {
            return writeln!(f, "write buffer   not predicted: writes go to the solid-state drive; {moved}");
        }
        writeln!(
            f,
            "write buffer   {}, {} so far; {} of padding, {} for it; {moved}",
            buffer_now(&of.buffer),
            counted(of.slow_stages, "slow stage", "slow stages"),
            bytes(of.padding_bytes),
            counted(of.upkeep_syncs, "sync", "syncs")
        )
    }
}

/// What a write buffer does now, by the word for it.
fn buffer_now(state: &str) -> &str {
    match state {
        "fast" => "fast now",
        "middle" => "in its middle stage now",
        "due" => "slow soon",
        "slow" => "slow now",
        "lost" => "not known since the disk was last read",
        "suspended" => "not known while the disk is read or synced",
        "given up" => "not predicted, since it is not as it was measured, until it is tried again",
        "on trial" => "not predicted, since it is not as it was measured, and tried again now",
        other => other,
    }
}

/// A moment for people and machines.
fn moment(unix_ms: u64) -> String {
    let moment = OffsetDateTime::from_unix_timestamp((unix_ms / 1000).min(i64::MAX as u64) as i64);
    moment.ok().and_then(|moment| moment.format(&Rfc3339).ok()).unwrap_or_else(|| format!("{unix_ms} ms"))
}

/// CRCs in a sums sector of a bulk run.
const SUMS_PER_SECTOR: f64 = 1020.0;

#[cfg(test)]
mod tests {
    use claystone_env::BufferState::{Due, Fast, GivenUp, Lost, Mid, OnTrial, Slow, Suspended};

    use super::*;

    #[test]
    fn only_a_buffer_that_is_predicted_is_said_to_be_slow() {
        let said = [Fast, Mid, Due, Slow, Lost, Suspended, GivenUp, OnTrial].map(|state| buffer_now(state.word()));
        assert!(said[..4].iter().all(|said| !said.contains("not")), "{said:?}");
        assert!(said[4..].iter().all(|said| said.starts_with("not ") && !said.contains("slow")), "{said:?}");
        assert_eq!(said[3], "slow now");
    }
}
