//! `claystone volume`: the block devices of a running store.

mod attach;
mod export;
mod import;
mod snapshot;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};
use claystone_console::api;
use claystone_meta::Redundancy;
use claystone_volume::comparators::UpdateMethod;
use claystone_volume::{FormSpace, SnapshotName};
use hyper::Method;
use serde_json::json;

use super::disk::Size;
use super::{At, print_json};
use crate::admin::AdminClient;
use crate::output::output;
use crate::progress::Progress;
use crate::table::{Table, bytes, counted};

/// Block devices of a running store, for every client of NBD
#[derive(Debug, clap::Args)]
pub struct Volume {
    #[command(flatten)]
    at: At,
    /// JSON instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// All volumes and their snapshots
    List,
    /// Make a volume, all of it zeros; it takes space as it is written
    Create {
        /// 1 to 128 letters, digits, `.`, `_` or `-`, a letter or digit first
        name: String,
        /// Its length, such as 100G
        #[arg(long, value_name = "SIZE")]
        size: Size,
        /// How it is kept: replica:N, mirror:KxN, rs:K+M, lrc:K+L+G or pc:RxC; or, while it is written much and while it is not, as
        /// replica:3/rs:4+2
        #[arg(long, value_name = "CODE")]
        redundancy: Redundancy,
        /// With two forms: bytes on disks for each byte of the volume, over all its stripes and its log, such as 2.0x
        #[arg(long, value_name = "RATIO")]
        space_at_most: Option<Ratio>,
        /// What is written and merged at once: 1k, 2k, 4k or 8k
        #[arg(long, value_name = "SIZE", default_value = "4k")]
        page: Size,
        /// How much of it in a row is on one disk: whole pages, and a multiple of 4k
        #[arg(long, value_name = "SIZE", default_value = "1M")]
        chunk: Size,
        /// Nodes where its data chunks lie, of each as many, such as `a,b` with rs:2+1: what lies on node a is NAME:a then, a device of its
        /// own
        #[arg(long, value_name = "NODES", value_delimiter = ',')]
        homes: Vec<String>,
        /// To compare with: a scratch volume, written in place by `naive`, `parity-log`, `speculative` or `replicas`, and gone
        /// when the store stops
        #[arg(long, value_name = "METHOD")]
        scratch: Option<UpdateMethod>,
    },
    /// How a volume is: its log, what waits to be merged, its clients; or what a snapshot holds
    Info {
        /// The volume, or VOLUME@SNAPSHOT
        name: String,
    },
    /// Change how a volume is kept; its stripes get it one by one, and their data stays where it is
    Set {
        /// The volume
        name: String,
        /// As for `create`, with as many data chunks
        #[arg(long, value_name = "CODE")]
        redundancy: Redundancy,
        /// As for `create`
        #[arg(long, value_name = "RATIO")]
        space_at_most: Option<Ratio>,
        /// Do not ask where fewer lost disks are survived then
        #[arg(long)]
        yes: bool,
    },
    /// Make a volume longer; clients see it when they attach anew
    Resize {
        /// The volume
        name: String,
        /// Its length to be: not less than it has
        size: Size,
    },
    /// Delete a volume and all that is in it, or a snapshot; clients must be detached
    Delete {
        /// The volume, which must have no snapshots, or VOLUME@SNAPSHOT
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Show how clients reach a volume, or read a snapshot: the kernel, libnbd, QEMU
    Attach {
        /// The volume, or VOLUME@SNAPSHOT, or a strand of one: VOLUME:HOME, VOLUME:HOME@SNAPSHOT
        name: String,
    },
    /// Copy a volume or a snapshot into a new file: raw, with holes where there is nothing
    Export {
        /// The volume, or VOLUME@SNAPSHOT
        name: String,
        /// A file that does not exist yet
        file: PathBuf,
    },
    /// Copy a raw file into a volume that is empty
    Import {
        /// The file
        file: PathBuf,
        /// The volume
        name: String,
        /// Make the volume, as long as the file, kept in this way
        #[arg(long, value_name = "CODE")]
        redundancy: Option<Redundancy>,
    },
    /// Keep a volume as it is now, under a name; clients go on
    Snapshot {
        /// The volume
        volume: String,
        /// The snapshot's name, such as monday: it is VOLUME@monday then
        name: String,
    },
    /// Make a volume that has what a snapshot has; it takes space as one of them is written
    Clone {
        /// VOLUME@SNAPSHOT
        from: SnapshotName,
        /// The new volume
        name: String,
    },
    /// Make a volume what its snapshot is: what was written since is gone; clients must be detached
    Revert {
        /// VOLUME@SNAPSHOT
        to: SnapshotName,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Bring all that waits in a volume's log into its stripes now
    Merge {
        /// The volume
        name: String,
    },
}

impl Volume {
    /// Acts.
    ///
    /// # Errors
    /// No store answers, or it says no.
    pub async fn run(self) -> anyhow::Result<()> {
        let client = AdminClient::of(&self.at.dir)?;
        let json = self.json;
        match self.action {
            Action::List => list(&client, json).await,
            Action::Create { name, size, redundancy, space_at_most, page, chunk, homes, scratch } => {
                let redundancy = bounded(redundancy, space_at_most)?;
                let Ok(page_bytes) = u32::try_from(page.0) else {
                    bail!("--page: pages are 1k, 2k, 4k or 8k long");
                };
                let add = api::AddVolume {
                    name,
                    bytes: size.0,
                    code: redundancy.to_string(),
                    page_bytes: Some(page_bytes),
                    chunk_bytes: Some(chunk.0),
                    homes,
                    scratch: scratch.map(|method| method.to_string()),
                };
                let made: api::Volume = client.send(Method::POST, "/volumes", &add).await?;
                let goes = if made.scratch.is_some() { ", gone when the store stops" } else { "" };
                let strand = made.homes.first().map_or_else(String::new, |home| format!(":{home}"));
                let text = format!(
                    "made {}: {}, {}{}{goes}; `claystone volume attach {}{strand}` shows how to use it",
                    made.name,
                    bytes(made.bytes),
                    made.code,
                    strands(&made),
                    made.name
                );
                say(json, &made, &text)?;
                Ok(())
            }
            Action::Info { name } if name.contains('@') => snapshot::info(&client, &name, json).await,
            Action::Info { name } => {
                let volume: api::Volume = client.get(&route(&name, "")?).await?;
                say(json, &volume, info(&volume).trim_end())?;
                Ok(())
            }
            Action::Set { name, redundancy, space_at_most, yes } => {
                let redundancy = bounded(redundancy, space_at_most)?;
                let (code, path) = (redundancy.to_string(), route(&name, "/redundancy")?);
                let before: api::Volume = client.get(&route(&name, "")?).await?;
                let fewer = survives_less(&before.code, &redundancy).map(|fewer| format!("{name} {fewer}"));
                // What asks nobody goes on as it did before there was a question.
                if let Some(fewer) = fewer.as_ref().filter(|_| !yes && io::stdin().is_terminal()) {
                    confirm(&name, fewer, "changed")?;
                }
                let volume: api::Volume = client.send(Method::PUT, &path, &api::SetRedundancy { code }).await?;
                say(json, &volume, &format!("{name} is kept as {}; its stripes become so one by one", volume.code))?;
                if let Some(fewer) = fewer {
                    writeln!(io::stderr(), "warning: {fewer}")?;
                }
                Ok(())
            }
            Action::Resize { name, size } => {
                let path = route(&name, "/size")?;
                let volume: api::Volume = client.send(Method::PUT, &path, &api::ResizeVolume { bytes: size.0 }).await?;
                say(
                    json,
                    &volume,
                    &format!("{name} is {} long; clients see it when they attach anew", bytes(volume.bytes)),
                )?;
                Ok(())
            }
            Action::Delete { name, yes } if name.contains('@') => snapshot::delete(&client, &name, yes, json).await,
            Action::Delete { name, yes } => {
                let path = route(&name, "")?;
                let volume: api::Volume = client.get(&path).await?;
                if !yes {
                    let what = format!("{name}, {}, will be gone with all that is in it", bytes(volume.bytes));
                    confirm(&name, &what, "deleted")?;
                }
                let done: api::Done = client.send(Method::DELETE, &path, &api::Done {}).await?;
                say(json, &done, &format!("deleted {name}"))?;
                Ok(())
            }
            Action::Attach { name } => attach::attach(&client, &name, json).await,
            Action::Export { name, file } => export::export(&client, &name, &file, json).await,
            Action::Import { file, name, redundancy } => import::import(&client, &file, &name, redundancy, json).await,
            Action::Snapshot { volume, name } => snapshot::take(&client, &volume, &name, json).await,
            Action::Clone { from, name } => snapshot::clone(&client, &from, name, json).await,
            Action::Revert { to, yes } => snapshot::revert(&client, &to, yes, json).await,
            Action::Merge { name } => merge(&client, &name, json).await,
        }
    }
}

/// Bytes on disks for each byte, in percent; written as 2.0x or 200%.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ratio(pub(super) u32);

impl std::str::FromStr for Ratio {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Ratio> {
        let (number, times) = match text.strip_suffix('%') {
            Some(percent) => (percent, 1.0),
            None => (text.strip_suffix('x').unwrap_or(text), 100.0),
        };
        match number.parse::<f64>().map(|number| number * times) {
            Ok(percent) if (100.0..=10_000.0).contains(&percent) => Ok(Ratio(percent.round() as u32)),
            _ => bail!("a ratio from 1.0x to 100x is needed, such as 2.2x or 220%"),
        }
    }
}

/// With the bound on space that was asked for.
fn bounded(mut redundancy: Redundancy, space_at_most: Option<Ratio>) -> anyhow::Result<Redundancy> {
    let Some(Ratio(percent)) = space_at_most else { return Ok(redundancy) };
    let Some(mirroring) = &mut redundancy.mirroring else {
        bail!("--space-at-most: {redundancy} is one form; name two, such as replica:3/rs:4+2");
    };
    mirroring.percent_max = Some(percent);
    redundancy.validate()?;
    Ok(redundancy)
}

/// Where fewer lost disks are survived than before: how many, in words.
fn survives_less(before: &str, after: &Redundancy) -> Option<String> {
    let before: Redundancy = before.parse().ok()?;
    let (had, has) = (before.tolerance_min(), after.tolerance_min());
    (has < had).then(|| {
        let disks = counted(had.into(), "lost disk", "lost disks");
        format!("survived {disks} as {before}; as {after} it survives {has}")
    })
}

/// The path of a volume in the admin API.
fn route(name: &str, rest: &str) -> anyhow::Result<String> {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    ensure!(
        name.starts_with(|letter: char| letter.is_ascii_alphanumeric()) && name.chars().all(plain),
        "{name:?} is no volume: names have letters, digits, '.', '_' and '-', a letter or digit first"
    );
    Ok(format!("/volumes/{name}{rest}"))
}

/// The path of a volume or a snapshot in the admin API.
fn route_of(name: &str, rest: &str) -> anyhow::Result<String> {
    if name.contains('@') { snapshot::route(&name.parse()?, rest) } else { route(name, rest) }
}

fn say(json: bool, document: &impl serde::Serialize, text: &str) -> io::Result<()> {
    if json { print_json(document) } else { writeln!(output(), "{text}") }
}

async fn list(client: &AdminClient, json: bool) -> anyhow::Result<()> {
    let volumes: api::Volumes = client.get("/volumes").await?;
    if json {
        print_json(&volumes)?;
        return Ok(());
    }
    let mut table = Table::new(&["volume", "length", "code", "state", "log", "waiting", "clients"]);
    for volume in &volumes.volumes {
        let of = |show: fn(&api::VolumeUse) -> String| volume.open.as_ref().map_or_else(|| "-".to_owned(), show);
        table.row([
            volume.name.clone(),
            bytes(volume.bytes),
            volume.code.clone(),
            volume.state.clone(),
            of(|open| format!("{} %", open.log_used_percent)),
            of(|open| counted(open.diff_pages, "page", "pages")),
            volume
                .scratch
                .as_ref()
                .map_or_else(|| of(|open| open.clients.to_string()), |scratch| scratch.clients.to_string()),
        ]);
        for snapshot in &volume.snapshots {
            let (name, code) = (snapshot.name.clone(), snapshot.code.clone());
            let none = || "-".to_owned();
            let clients = snapshot.clients.to_string();
            table.row([name, bytes(snapshot.bytes), code, "snapshot".to_owned(), none(), none(), clients]);
        }
    }
    write!(output(), "{table}")?;
    for volume in volumes.volumes {
        if let Some(reason) = volume.reason {
            writeln!(output(), "{}: {reason}", volume.name)?;
        }
    }
    Ok(())
}

fn info(volume: &api::Volume) -> String {
    let mut lines = vec![
        ("volume", volume.name.clone()),
        ("length", format!("{} ({} bytes)", bytes(volume.bytes), volume.bytes)),
        ("code", format!("{}, chunks of {}", volume.code, bytes(volume.chunk_bytes))),
        ("page", format!("{} bytes", volume.page_bytes)),
    ];
    let of_each = || bytes(strand_bytes(volume));
    lines.extend(volume.homes.iter().map(|home| ("strand", format!("{}:{home}, {}", volume.name, of_each()))));
    lines.push(("state", volume.state.clone()));
    lines.extend(volume.reason.iter().map(|reason| ("", reason.clone())));
    lines.extend(volume.stripes.map(|stripes| ("stripes", stripes.to_string())));
    if let Some(open) = &volume.open {
        let log = format!(
            "{}, {} % of the {} it may take on a disk",
            bytes(open.log_bytes),
            open.log_used_percent,
            bytes(open.reserve_bytes)
        );
        let merged = format!(
            "{} in {}, {} of parity made anew",
            counted(open.merged_pages, "page", "pages"),
            counted(open.merges, "round", "rounds"),
            counted(open.parity_updates, "row", "rows")
        );
        lines.extend(forms(volume, open));
        lines.extend(log_pays(volume, open).map(|pays| ("log pays", pays)));
        lines.push(("log", log));
        let fewer = if open.log_copies < open.log_copies_wanted { ": some segments miss copies" } else { "" };
        lines.push(("log copies", format!("{} of {}{fewer}", open.log_copies, open.log_copies_wanted)));
        let stripes = |count| counted(count, "stripe", "stripes");
        let waiting = format!("{}, in {}", counted(open.diff_pages, "page", "pages"), stripes(open.diff_stripes));
        lines.push(("waiting", waiting));
        lines.push(("merged", merged));
        if open.copied_stripes > 0 {
            let copied = format!("{}, because a snapshot or a clone has what was there", stripes(open.copied_stripes));
            lines.push(("copied", copied));
        }
        lines.push(("clients", open.clients.to_string()));
    }
    if let Some(scratch) = &volume.scratch {
        lines.push(("scratch", format!("written in place: {}; gone when the store stops", scratch.method)));
        lines.push(("replayed", counted(scratch.replays, "time", "times")));
        lines.push(("clients", scratch.clients.to_string()));
    }
    lines.extend(volume.log_disks.iter().map(|disk| ("log disk", disk.clone())));
    lines.extend(volume.snapshots.iter().map(|snapshot| ("snapshot", snapshot.name.clone())));
    lines.iter().map(|(name, value)| format!("{name:12}{value}\n")).collect()
}

/// The length of each strand of a volume with homes.
fn strand_bytes(volume: &api::Volume) -> u64 {
    volume.bytes / (volume.homes.len() as u64).max(1)
}

/// The homes of a volume.
fn homes(volume: &api::Volume) -> String {
    if volume.homes.is_empty() {
        "it has no homes".to_owned()
    } else {
        format!("its homes are {}", volume.homes.join(", "))
    }
}

/// The strands of a volume that has some.
fn strands(volume: &api::Volume) -> String {
    let names: Vec<String> = volume.homes.iter().map(|home| format!("{}:{home}", volume.name)).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(", as {} of {} each", names.join(" and "), bytes(strand_bytes(volume)))
    }
}

/// Where a volume has two forms, or stripes of a former code: how many data chunks and bytes are of each.
fn forms(volume: &api::Volume, open: &api::VolumeUse) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let of = |chunks: u64, on_disks: u64| {
        format!("{} of data, {} on disks", bytes(chunks * volume.chunk_bytes), bytes(on_disks))
    };
    let both = volume.code.parse::<Redundancy>().ok().filter(|redundancy| redundancy.mirroring.is_some());
    if both.is_some() || open.other_chunks > 0 {
        lines.extend(both.map(|_| ("mirrored", of(open.mirrored_chunks, open.mirrored_bytes))));
        lines.push(("coded", of(open.coded_chunks, open.coded_bytes)));
    }
    if open.other_chunks > 0 {
        lines.push(("former", format!("{}: they get another code", of(open.other_chunks, open.other_bytes))));
    }
    let data_bytes = (open.mirrored_chunks + open.coded_chunks + open.other_chunks) * volume.chunk_bytes;
    if let Some(both) = both.filter(|_| data_bytes > 0) {
        let on_disks = open.mirrored_bytes + open.coded_bytes + open.other_bytes;
        let bound = both.mirroring.and_then(|mirroring| mirroring.percent_max);
        let log_bytes = open.reserve_bytes * (u64::from(both.tolerance_max()) + 1);
        let percent = |on_disks: u64| on_disks * 100 / data_bytes;
        let bound = bound.map_or_else(String::new, |most| {
            format!("; with all that the log may take {} %, at most {most} %", percent(on_disks + log_bytes))
        });
        lines.push(("space", format!("{} % of {}{bound}", percent(on_disks), bytes(data_bytes))));
    }
    if open.coded_switches + open.mirrored_switches > 0 {
        let to_coded = counted(open.coded_switches, "data chunk", "data chunks");
        lines.push(("switched", format!("{to_coded} to coded, {} to mirrored", open.mirrored_switches)));
    }
    lines
}

/// How much has to be coded to make up for the log's space, with the numbers that it follows from. `None`: there is no data, or coding saves nothing.
fn log_pays(volume: &api::Volume, open: &api::VolumeUse) -> Option<String> {
    let (percent, redundancy) = (open.log_pays_percent?, volume.code.parse::<Redundancy>().ok()?);
    let data_bytes = (open.mirrored_chunks + open.coded_chunks + open.other_chunks) * volume.chunk_bytes;
    let FormSpace { mirrored, coded } = FormSpace::of(&redundancy);
    let (reserve, data) = (bytes(open.reserve_bytes), bytes(data_bytes));
    let formula = format!("{reserve} x {mirrored:.2} / ({data} x ({mirrored:.2} - {coded:.2}))");
    let by = match redundancy.mirroring {
        _ if percent > 100 => "not even with all coded".to_owned(),
        Some(_) => format!("with {percent} % more coded"),
        None => format!("with {percent} % coded and not mirrored"),
    };
    let end = if percent > 100 { format!(" = {percent} %") } else { String::new() };
    Some(format!("{by}: {formula}{end}"))
}

/// Asks for the name again.
fn confirm(name: &str, what: &str, done: &str) -> anyhow::Result<()> {
    ensure!(io::stdin().is_terminal(), "{name} is not {done}: nobody can be asked here, so say --yes");
    // Without an end of the line: the answer is typed behind it.
    write!(io::stderr(), "{what}. Its name again: ")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    ensure!(answer.trim() == name, "{name} is not {done}: that is another name");
    Ok(())
}

async fn merge(client: &AdminClient, name: &str, json: bool) -> anyhow::Result<()> {
    let path = route(name, "/merge")?;
    let mut pages = 0;
    let mut wanted = None;
    let mut idle = 0;
    let progress = Progress::new("merging pages", 0);
    let left = loop {
        let round: api::VolumeMerged = client.send(Method::POST, &path, &api::Done {}).await?;
        pages += round.pages;
        // What clients write meanwhile is not waited for.
        let wanted = *wanted.get_or_insert(pages + round.left);
        progress.of(pages.min(wanted), wanted);
        if round.left == 0 || pages >= wanted {
            break round.left;
        }
        idle = if round.pages == 0 { idle + 1 } else { 0 };
        if idle == IDLE_ROUNDS_MAX {
            progress.end();
            let why = if round.stripes_lost > 0 {
                let stripes = counted(round.stripes_lost, "stripe has", "stripes have");
                format!("{stripes} lost too much: see `claystone status`")
            } else {
                "their stripes are being repaired: try again later".to_owned()
            };
            let left = counted(round.left, "waits", "wait");
            bail!("{} merged, {left}: {why}", counted(pages, "page is", "pages are"));
        }
        if round.pages == 0 {
            tokio::time::sleep(IDLE_PAUSE).await;
        }
    };
    progress.end();
    let text = format!("merged {} of {name}, {}", counted(pages, "page", "pages"), counted(left, "waits", "wait"));
    say(json, &json!({ "pages": pages, "left": left }), &text)?;
    Ok(())
}

const IDLE_ROUNDS_MAX: u32 = 50;
const IDLE_PAUSE: Duration = Duration::from_millis(100);

/// Bytes of one request of a copy.
const PIECE_BYTES: u64 = 4 << 20;
/// Requests of a copy under way.
const PIECES_AT_ONCE: usize = 4;
