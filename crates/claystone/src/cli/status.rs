//! `claystone status`: how a running store is.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::Duration;

use claystone_console::api;
use serde::Serialize;

use super::{Of, print_json};
use crate::admin::AdminClient;
use crate::output::output;
use crate::table::{Table, bytes, counted, seconds};

/// Show how a running store is.
#[derive(Debug, clap::Args)]
pub struct Status {
    #[command(flatten)]
    of: Of,
    /// Show it anew every second, until interrupted
    #[arg(long)]
    watch: bool,
    /// One JSON object (a line each second with --watch)
    #[arg(long)]
    json: bool,
}

impl Status {
    /// Shows it.
    ///
    /// # Errors
    /// No store answers.
    pub async fn run(self) -> anyhow::Result<()> {
        let dir = self.of.dir();
        loop {
            let client = AdminClient::of(&dir)?;
            let status: api::Status = client.get("/status").await?;
            let volumes: api::Volumes = client.get("/volumes").await?;
            if self.json {
                print_json(&Both { status: &status, volumes: &volumes.volumes })?;
            } else {
                if self.watch && std::io::stdout().is_terminal() {
                    // Clears the screen and goes to its corner.
                    write!(output(), "\x1b[2J\x1b[H")?;
                }
                write!(output(), "{}", for_people(&status))?;
                if volumes.volumes.iter().any(|volume| volume.open.is_some()) {
                    write!(output(), "\n{}", volume_table(&volumes.volumes))?;
                }
                for volume in volumes.volumes {
                    if let Some(reason) = volume.reason {
                        writeln!(output(), "volume {} is {}: {reason}", volume.name, volume.state)?;
                    }
                }
            }
            if !self.watch {
                return Ok(());
            }
            tokio::time::sleep(WATCH_EVERY).await;
        }
    }
}

/// What the store says of itself, and of its volumes.
#[derive(Serialize)]
struct Both<'a> {
    #[serde(flatten)]
    status: &'a api::Status,
    volumes: &'a [api::Volume],
}

fn for_people(status: &api::Status) -> String {
    let mut text = String::new();
    let counts = &status.stripes;
    let _ = writeln!(text, "{}", status.summary);
    let _ = writeln!(
        text,
        "{} in {}, {} of them verified; {} lost",
        bytes(counts.data_bytes),
        counted(counts.stripes, "stripe", "stripes"),
        counts.verified,
        counted(counts.chunks_lost, "chunk", "chunks")
    );
    text.push('\n');
    let _ = write!(text, "{}", disk_table(&status.disks));
    if status.disks.iter().any(|disk| disk.sectors.is_some()) {
        let _ = write!(text, "\n{}", sector_table(&status.disks));
    }
    if !status.at_risk.is_empty() {
        let mut table = Table::new(&["endangered stripe", "code", "survives", "chunks lost", "unreachable"]);
        for stripe in &status.at_risk {
            table.row([
                stripe.stripe.clone(),
                stripe.code.clone(),
                format!("{} more", stripe.tolerance_left),
                format!("{:?}", stripe.chunks_lost),
                stripe.chunks_unreachable.to_string(),
            ]);
        }
        let _ = write!(text, "\n{table}");
    }
    if !status.jobs.is_empty() {
        let _ = write!(text, "\n{}", job_table(&status.jobs));
    }
    if !status.policies.is_empty() {
        let _ = write!(text, "\n{}", policy_table(&status.policies));
        let api::ConversionTotals { encoded, merged, split, saved_bytes, moved_bytes, .. } = status.conversions;
        let saved =
            if saved_bytes < 0 { format!("-{}", bytes(saved_bytes.unsigned_abs())) } else { bytes(saved_bytes as u64) };
        let _ = writeln!(
            text,
            "converted since the start: {merged} made compact, {split} made fast, {encoded} encoded of replicas; {saved} given \
             back, {} moved",
            bytes(moved_bytes)
        );
    }
    for waiting in &status.waiting {
        let _ = writeln!(text, "waiting: {waiting}");
    }
    for repair in &status.repair {
        if let Some(per_byte) = repair.read_per_lost_byte() {
            let small = if repair.large { "" } else { " (stripes below 256 KiB)" };
            let _ = writeln!(
                text,
                "rebuilt since the start: {}{small}: {}, {}, {per_byte:.2} bytes read for each",
                repair.code,
                counted(repair.chunks, "chunk", "chunks"),
                bytes(repair.bytes_rebuilt)
            );
        }
    }
    text
}

/// Disks, for people.
pub fn disk_table(disks: &[api::DiskStatus]) -> Table {
    let mut table = Table::new(&["disk", "node", "state", "free", "of", "chunks", "damaged", "path"]);
    for disk in disks {
        let state = match (&*disk.state, disk.present, disk.writable) {
            ("active", true, true) => "active".to_owned(),
            ("active", true, false) => "read-only".to_owned(),
            ("active", false, _) => match disk.rebuild_in_seconds {
                Some(left) => format!("absent, rebuilt in {}", seconds(left)),
                None => "absent".to_owned(),
            },
            (state, ..) => state.to_owned(),
        };
        table.row([
            disk.id[..disk.id.len().min(8)].to_owned(),
            disk.node.clone(),
            state,
            bytes(disk.free_bytes),
            bytes(disk.total_bytes),
            disk.chunks.to_string(),
            disk.damaged.to_string(),
            disk.path.clone(),
        ]);
    }
    table
}

/// Disks that mend their own sectors, for people.
fn sector_table(disks: &[api::DiskStatus]) -> Table {
    let heading =
        ["disk", "soft failures", "mended", "retries avoided", "lost", "measured", "stated", "parity", "scrub"];
    let mut table = Table::new(&heading);
    for (disk, of) in disks.iter().filter_map(|disk| Some((disk, disk.sectors.as_ref()?))) {
        let parity = match (&*of.parity_verdict, of.parity_wanted) {
            ("enough", _) => format!("{}, enough", of.parity),
            ("too_little", Some(wanted)) => format!("{}, TOO FEW: {wanted} are wanted", of.parity),
            ("too_little", None) => format!("{}, TOO FEW", of.parity),
            _ => of.parity.to_string(),
        };
        let scrub = match (of.scrub_groups_total, of.scrub_ended_unix_ms) {
            (0, None) => "never".to_owned(),
            (0, Some(_)) => "done".to_owned(),
            (all, _) => format!("{} of {}", of.scrub_groups, counted(all, "group", "groups")),
        };
        table.row([
            disk.id[..disk.id.len().min(8)].to_owned(),
            of.soft_failures.to_string(),
            of.mended.to_string(),
            of.retries_avoided.to_string(),
            of.lost.to_string(),
            of.soft_measured.map_or("-".to_owned(), |seen| format!("{seen:.1e}")),
            format!("{:.1e}", of.soft_stated),
            parity,
            scrub,
        ]);
    }
    table
}

fn policy_table(policies: &[api::PolicyStatus]) -> Table {
    let mut table =
        Table::new(&["bucket", "policy", "objects", "fresh", "fast", "compact", "other", "takes", "bound", "left"]);
    for of in policies {
        let takes = if of.whole { format!("{:.1} %", of.percent) } else { format!("{:.1} % so far", of.percent) };
        table.row([
            of.bucket.clone(),
            of.preset.clone().unwrap_or_else(|| of.policy.clone()),
            bytes(of.data_bytes),
            bytes(of.fresh_bytes),
            bytes(of.fast_bytes),
            bytes(of.compact_bytes),
            bytes(of.other_bytes),
            takes,
            format!("{} %", of.percent_max),
            of.conversions_left.to_string(),
        ]);
    }
    table
}

/// Open volumes: what waits in the log of each, in which all that is written goes before it is merged, and how long that may become.
fn volume_table(volumes: &[api::Volume]) -> Table {
    let mut table = Table::new(&["volume", "length", "code", "log", "reserve", "used", "to be merged", "clients"]);
    for (volume, open) in volumes.iter().filter_map(|volume| Some((volume, volume.open.as_ref()?))) {
        table.row([
            volume.name.clone(),
            bytes(volume.bytes),
            volume.code.clone(),
            bytes(open.log_bytes),
            bytes(open.reserve_bytes),
            format!("{} %", open.log_used_percent),
            counted(open.diff_pages, "page", "pages"),
            open.clients.to_string(),
        ]);
    }
    table
}

fn job_table(jobs: &[api::JobReport]) -> Table {
    let mut table = Table::new(&["job", "done", "left", "rate", "finished in"]);
    for job in jobs {
        let eta = match (&job.waiting, job.eta_seconds) {
            (Some(waiting), _) => waiting.clone(),
            (None, Some(left)) => seconds(left),
            (None, None) => "not known yet".to_owned(),
        };
        table.row([
            job.kind.name().to_owned(),
            format!("{} {}", job.done, job.unit),
            job.left.to_string(),
            format!("{}/s", bytes(job.bytes_per_second as u64)),
            eta,
        ]);
    }
    table
}

const WATCH_EVERY: Duration = Duration::from_secs(1);
