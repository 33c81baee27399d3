//! The store under test: its process, its disks, and what is done to them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use claystone_code::CodeSpec;
use serde_json::Value;

use crate::plan::Deed;
use crate::running::store::{Tmpfs, pause, status, until};
use crate::running::{Scratch, Up};

/// A store and what was done to it.
pub struct Rig {
    // In the order in which they are given up.
    up: Option<Up>,
    small: Option<Tmpfs>,
    /// Where it lives.
    pub scratch: Scratch,
    /// What was done.
    pub counts: Counts,
    /// Where its disks are, or are expected.
    disks: Vec<String>,
    /// Directories taken as new disks so far.
    new: usize,
    /// All volumes, in the order of [`Deed::Merge`], [`Deed::Grow`] and [`Deed::Switch`].
    volumes: Vec<String>,
    merging: Vec<Child>,
    log_read: u64,
    /// Of the volumes when they were made, in the same order; clones are not among them.
    codes: Vec<CodeSpec>,
    /// Redundancies that they got since.
    switches: u64,
}

/// What was done to stores, and what they said of it.
#[derive(Debug, Default)]
pub struct Counts {
    /// Events by kind.
    pub events: BTreeMap<&'static str, u64>,
    /// Kills and losses of disks.
    pub hard: u64,
    /// Merges that were asked for and had not come to an end when the store was killed.
    pub merges_killed: u64,
    /// Openings of volumes.
    pub openings: u64,
    /// Those that found a merge to carry out again.
    pub redone: u64,
    /// Warnings and errors of the store, and how often each was said.
    pub said: BTreeMap<String, u64>,
}

impl Counts {
    /// Something was done; `is_hard`: a kill or a loss.
    pub fn event(&mut self, kind: &'static str, is_hard: bool) {
        *self.events.entry(kind).or_default() += 1;
        self.hard += u64::from(is_hard);
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: Counts) {
        for (kind, count) in other.events {
            *self.events.entry(kind).or_default() += count;
        }
        for (said, count) in other.said {
            *self.said.entry(said).or_default() += count;
        }
        self.hard += other.hard;
        self.merges_killed += other.merges_killed;
        self.openings += other.openings;
        self.redone += other.redone;
    }
}

impl Rig {
    /// A new store, running, its disks on [`NODES`]. One disk is small, where this user may mount file systems.
    pub fn new(disks: usize) -> Rig {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path("claystone-data")).expect("made");
        fs::write(scratch.path("claystone-data/claystone.toml"), SETTINGS).expect("written");
        fs::create_dir(scratch.path("disks")).expect("made");
        let small = Tmpfs::mount(&scratch.path("small"), SMALL_MIB);
        let place = |disk: usize| if disk + 1 == disks && small.is_some() { "small" } else { "disks" };
        let disks: Vec<String> = (0..disks).map(|disk| format!("{}/{disk}", place(disk))).collect();
        let (counts, volumes, merging) = (Counts::default(), Vec::new(), Vec::new());
        let mut rig = Rig {
            scratch,
            counts,
            up: None,
            disks,
            new: 0,
            small,
            volumes,
            merging,
            log_read: 0,
            codes: Vec::new(),
            switches: 0,
        };
        let mut arguments = vec!["--nbd-listen", "none", "--disks"];
        arguments.extend(rig.disks.iter().map(String::as_str));
        arguments.push("--nodes");
        arguments.extend((0..rig.disks.len()).map(|disk| NODES[disk * NODES.len() / rig.disks.len()]));
        rig.up = Some(Up::start(&rig.scratch, &arguments));
        rig
    }

    /// The disk that can be full.
    pub fn small(&self) -> Option<usize> {
        self.small.as_ref().map(|_| self.disks.len() - 1)
    }

    /// Where clients of block devices connect.
    pub fn socket(&self) -> PathBuf {
        self.scratch.path("claystone-data/nbd.sock")
    }

    /// What clients of other makers call a volume.
    pub fn uri(&self, volume: &str) -> String {
        format!("nbd+unix:///{volume}?socket={}", self.socket().display())
    }

    /// Makes a volume.
    pub fn make_volume(&mut self, name: &str, code: &str, bytes: u64, page_bytes: usize) {
        self.create(name, code, bytes, &["--page", &page_bytes.to_string()]);
    }

    /// Makes a volume with strands at these nodes.
    pub fn make_volume_with_homes(&mut self, name: &str, code: &str, bytes: u64, homes: &[&str]) {
        self.create(name, code, bytes, &["--homes", &homes.join(",")]);
    }

    fn create(&mut self, name: &str, code: &str, bytes: u64, more: &[&str]) {
        self.codes.push(code.parse().expect("a code"));
        let (size, chunk) = (bytes.to_string(), CHUNK_BYTES.to_string());
        let mut arguments = vec!["volume", "create", name, "--size", &size, "--redundancy", code, "--chunk", &chunk];
        arguments.extend(more);
        self.ask(&arguments).expect("made");
        self.volumes.push(name.to_owned());
    }

    /// Runs a command of the store.
    ///
    /// # Errors
    /// What it complains of.
    pub fn ask(&self, arguments: &[&str]) -> Result<String, String> {
        let run = self.scratch.run(arguments);
        if run.ok() { Ok(run.out) } else { Err(format!("claystone {}: {}", arguments.join(" "), run.err)) }
    }

    /// Runs a command for which a volume must have no client: that its last one is gone the store learns a moment later.
    ///
    /// # Errors
    /// What it complains of.
    pub fn ask_alone(&self, arguments: &[&str]) -> Result<String, String> {
        let mut done = Ok(String::new());
        until("the end of all clients", || match self.ask(arguments) {
            Err(refused) if refused.contains("in use") => Err(refused),
            ended => {
                done = ended;
                Ok(())
            }
        });
        done
    }

    /// Makes a volume of a snapshot.
    ///
    /// # Errors
    /// What the store complains of.
    pub fn clone_snapshot(&mut self, snapshot: &str, name: &str) -> Result<(), String> {
        self.counts.event("clone", false);
        self.ask(&["volume", "clone", snapshot, name])?;
        self.volumes.push(name.to_owned());
        Ok(())
    }

    /// Deletes a volume that has no client any more.
    ///
    /// # Errors
    /// What the store complains of.
    pub fn delete_volume(&mut self, name: &str) -> Result<(), String> {
        self.ask_alone(&["volume", "delete", name, "--yes"])?;
        self.volumes.retain(|volume| volume != name);
        Ok(())
    }

    /// Starts it, and waits until it serves.
    pub fn start(&mut self) {
        self.up = Some(Up::start(&self.scratch, &["--nbd-listen", "none"]));
    }

    /// Starts it, and kills it after so many milliseconds.
    pub fn start_and_kill(&mut self, after_ms: u64) {
        self.up = Some(Up::begin(&self.scratch, &["--nbd-listen", "none"]));
        pause(Duration::from_millis(after_ms));
        self.kill("kill while it starts");
    }

    /// Ends it without a warning.
    pub fn kill(&mut self, kind: &'static str) {
        self.counts.event(kind, true);
        for merging in &mut self.merging {
            let ended = merging.try_wait().expect("it is ours");
            self.counts.merges_killed += u64::from(ended.is_none());
        }
        self.up.take().expect("it runs").kill();
        self.after_end();
    }

    /// Asks it to end.
    ///
    /// # Errors
    /// It did not end well.
    pub fn stop(&mut self) -> Result<(), String> {
        self.counts.event("stop", false);
        let ended = self.up.take().expect("it runs").stop();
        self.after_end();
        if ended.success() { Ok(()) } else { Err(format!("it was asked to stop, and ended with {ended}")) }
    }

    fn after_end(&mut self) {
        for mut merging in self.merging.drain(..) {
            // Whoever asked is told that the store is gone.
            merging.wait().expect("it is ours");
        }
        self.read_log();
    }

    /// What it said since this was looked at last.
    fn read_log(&mut self) {
        let mut log = BufReader::new(fs::File::open(self.scratch.path("up.log")).expect("it logs"));
        log.seek(SeekFrom::Start(self.log_read)).expect("it was so long before");
        let mut line = String::new();
        while log.read_line(&mut line).expect("text") > 0 {
            self.log_read += line.len() as u64;
            let entry: Value = serde_json::from_str(&line).unwrap_or_default();
            let said = entry["message"].as_str().unwrap_or(line.trim());
            if said == OPENED {
                self.counts.openings += 1;
                self.counts.redone += u64::from(entry["merges"] != 0);
            } else if entry["level"] != "INFO" {
                let error = entry["error"].as_str().or(entry["reason"].as_str()).unwrap_or_default();
                let said = format!("{} {said}: {}", entry["level"].as_str().unwrap_or("?"), plain(error));
                *self.counts.said.entry(said).or_default() += 1;
            }
            line.clear();
        }
    }

    /// Does it; a volume that is to be longer gets `bytes`.
    ///
    /// # Errors
    /// The store does not take it.
    pub fn act(&mut self, deed: Deed, bytes: u64) -> Result<(), String> {
        match deed {
            Deed::Lose(disk) => {
                self.counts.event("disk lost", true);
                fs::rename(self.scratch.path(&self.disks[disk]), self.away(disk)).expect("moved");
            }
            Deed::Return(disk) => {
                self.counts.event("disk back", false);
                fs::rename(self.away(disk), self.scratch.path(&self.disks[disk])).expect("moved back");
            }
            Deed::Replace(disk) => {
                self.counts.event("disk replaced", true);
                self.new += 1;
                let place = self.disks[disk].split_once('/').expect("it is in a directory").0;
                let new = format!("{place}/new{}", self.new);
                let away = self.away(disk);
                self.ask(&["disk", "replace", &self.disks[disk], &new])?;
                let old = self.scratch.path(&std::mem::replace(&mut self.disks[disk], new));
                if away.exists() && self.new.is_multiple_of(2) {
                    // It comes back when nobody counts on it any more.
                    fs::rename(away, old).expect("moved back");
                } else if away.exists() {
                    fs::remove_dir_all(away).expect("removed");
                }
            }
            Deed::Fill => {
                self.counts.event("disk full", false);
                let mut file = fs::File::create(self.filler()).expect("made");
                while file.write_all(&[1; 64 << 10]).is_ok() {}
            }
            Deed::Free => {
                self.counts.event("disk has room again", false);
                fs::remove_file(self.filler()).expect("removed");
            }
            Deed::Merge(volume) => {
                self.counts.event("merge", false);
                let merging = self.scratch.begin(&["volume", "merge", &self.volumes[volume]]);
                self.merging.push(merging);
            }
            Deed::Switch(volume) => {
                self.switches += 1;
                let redundancy = redundancy(self.codes[volume], self.switches);
                match self.ask(&["volume", "set", &self.volumes[volume], "--redundancy", &redundancy]) {
                    Err(refused) if refused.contains("disks") => self.counts.event("no disks to switch", false),
                    set => {
                        set?;
                        self.counts.event("switch of redundancy", false);
                    }
                }
            }
            Deed::Snapshot(_) => unreachable!("its clients take part in it"),
            Deed::Grow(volume) => {
                self.counts.event("resize", false);
                self.ask(&["volume", "resize", &self.volumes[volume], &bytes.to_string()])?;
            }
        }
        Ok(())
    }

    fn away(&self, disk: usize) -> PathBuf {
        self.scratch.path(&self.disks[disk]).with_extension("away")
    }

    /// Whether the disk that can be full is.
    fn has_full_disk(&self) -> bool {
        self.filler().exists()
    }

    fn filler(&self) -> PathBuf {
        self.scratch.path("small/filler")
    }

    /// Takes a snapshot, and returns its name, without the volume's. `None`: there is no room for it while a disk is full, and it was not taken.
    ///
    /// # Errors
    /// What the store complains of.
    pub fn take_snapshot(&mut self, volume: &str) -> Result<Option<String>, String> {
        self.counts.event("snapshot", false);
        let name = format!("s{}", self.counts.events["snapshot"]);
        let Err(refused) = self.ask(&["volume", "snapshot", volume, &name]) else { return Ok(Some(name)) };
        // A stripe in a new place needs as many disks that take writes as it has chunks.
        let is_refused = refused.contains("there is no room") && !self.has_snapshot(&format!("{volume}@{name}"))?;
        if self.has_full_disk() && is_refused {
            self.counts.event("no room for a snapshot", false);
            return Ok(None);
        }
        Err(refused)
    }

    /// Begins to take a snapshot, [`CUT`].
    pub fn begin_snapshot(&mut self, volume: &str) {
        self.counts.event("snapshot cut off", false);
        self.merging.push(self.scratch.begin(&["volume", "snapshot", volume, CUT]));
    }

    /// Whether a snapshot was taken whose taking was cut off.
    ///
    /// # Errors
    /// What the store complains of.
    pub fn has_snapshot(&self, name: &str) -> Result<bool, String> {
        Ok(self.ask(&["volume", "list", "--json"])?.contains(&format!("\"{name}\"")))
    }

    /// Begins to merge all volumes.
    pub fn merge_all(&mut self) {
        for volume in &self.volumes {
            self.merging.push(self.scratch.begin(&["volume", "merge", volume]));
        }
    }

    /// Merges all volumes, and waits until no chunk is lost.
    ///
    /// # Errors
    /// A volume does not merge.
    pub fn heal(&mut self) -> Result<(), String> {
        self.counts.event("heal", false);
        until("the repair", || {
            let status = status(&self.scratch);
            let lost = status["stripes"]["chunks_lost"].as_u64().expect("a number");
            let silent = !status["stripes"]["unreachable"].is_null();
            let disks = status["disks"].as_array().expect("a list");
            let away = disks.iter().any(|disk| disk["state"] != "lost" && disk["present"] != true);
            // A merge also copies what the log misses on disks that were away.
            for volume in &self.volumes {
                self.ask(&["volume", "merge", volume])?;
            }
            if lost == 0 && !silent && !away { Ok(()) } else { Err(status["summary"].to_string()) }
        });
        Ok(())
    }

    /// How many volumes there are.
    pub fn volumes(&self) -> usize {
        self.volumes.len()
    }

    /// Segments of logs on all disks.
    pub fn segments(&self) -> usize {
        let count = |disk: &String| {
            let entries = fs::read_dir(self.scratch.path(disk).join("segments")).into_iter().flatten();
            let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text"));
            names.filter(|name| !name.contains("fence")).count()
        };
        self.disks.iter().map(count).sum()
    }

    /// Ends it and leaves all there is of it to be looked at.
    pub fn keep(mut self) -> PathBuf {
        self.up = None;
        for merging in &mut self.merging {
            let _ = merging.wait();
        }
        if let Some(small) = self.small.take() {
            std::mem::forget(small);
        }
        self.scratch.keep()
    }
}

/// One that survives as many lost disks as `code`: itself, copies, or, where it takes less than these, both.
fn redundancy(code: CodeSpec, number: u64) -> String {
    let (data, copies) = (code.shape().data, code.tolerance() + 1);
    let saves = code.shape().chunks() < data * copies;
    match number % 3 {
        0 => code.to_string(),
        1 => format!("mirror:{data}x{copies}"),
        _ if saves => format!("replica:{copies}/{code}"),
        _ => format!("rs:{data}+{}", copies - 1),
    }
}

/// A message without what differs from disk to disk.
fn plain(message: &str) -> String {
    let special = |word: &str| {
        word.contains("/.tmp") || word.len() >= 16 && word.chars().all(|letter| letter.is_ascii_hexdigit())
    };
    let words = message.split_whitespace().map(|word| if special(word) { ".." } else { word });
    words.collect::<Vec<&str>>().join(" ").chars().filter(|letter| !letter.is_ascii_digit()).take(120).collect()
}

/// Logs as small as they can be, so that they are full all the time; repair at once.
const SETTINGS: &str = "volume_log_mib = 16\nreclaim_seconds = 0\nrepair_share = 1.0\n";
/// The nodes of disks, as many in a row on each.
pub const NODES: [&str; 4] = ["a", "b", "c", "d"];
/// The name of snapshots whose taking is cut off.
pub const CUT: &str = "cut";
const SMALL_MIB: u64 = 192;
/// Of a stripe on each disk.
pub const CHUNK_BYTES: usize = 64 << 10;
/// What the store says when it opens a volume.
const OPENED: &str = "a volume's log was read again";
