//! What a test asks of a running store beyond S3, and the bytes that it stores there.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Scratch;

/// Random numbers from a seed.
#[derive(Debug)]
pub struct Draw(pub u64);

impl Draw {
    /// A seed from the environment, or one that is new every time.
    pub fn seed(variable: &str) -> u64 {
        let now = || time::OffsetDateTime::now_utc().unix_timestamp_nanos() as u64;
        std::env::var(variable).ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(now)
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Bytes that belong to a seed.
pub fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut draw = Draw(seed);
    let mut content = Vec::with_capacity(bytes + 8);
    while content.len() < bytes {
        content.extend_from_slice(&draw.next().to_le_bytes());
    }
    content.truncate(bytes);
    content
}

/// Waits for so long. For tests whose subject is the instant at which something happens.
pub fn pause(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(left);
    }
}

/// Waits until `done` says `Ok`; fails with its last word when that takes absurdly long.
pub fn until(what: &str, mut done: impl FnMut() -> Result<(), String>) {
    let limit = Instant::now() + Duration::from_secs(60);
    while let Err(state) = done() {
        assert!(Instant::now() < limit, "{what} does not happen: {state}");
        pause(Duration::from_millis(100));
    }
}

/// `claystone status --json`.
pub fn status(scratch: &Scratch) -> Value {
    let run = scratch.run(&["status", "--json"]);
    assert!(run.ok(), "{}", run.err);
    serde_json::from_str(&run.out).expect("json")
}

/// The disk at a path below the scratch directory, as `status` shows it.
pub fn disk(scratch: &Scratch, path: &str) -> Value {
    let path = scratch.path(path).display().to_string();
    let status = status(scratch);
    let disks = status["disks"].as_array().expect("a list");
    disks.iter().find(|disk| disk["path"] == path && disk["state"] != "lost").expect("a known disk").clone()
}

/// Waits until every chunk of every stripe is in place.
pub fn healed(scratch: &Scratch) {
    until("the repair", || {
        let status = status(scratch);
        let lost = status["stripes"]["chunks_lost"].as_u64().expect("a number");
        let silent = !status["stripes"]["unreachable"].is_null();
        if lost == 0 && !silent { Ok(()) } else { Err(status.to_string()) }
    });
}

/// Waits until the chunk files on the disks are those that the records name, disk by disk.
///
/// Numbers are compared; that the named ones are there is what a scrub finds out.
pub fn nothing_is_orphaned(scratch: &Scratch) {
    until("the reclaim", || {
        let status = status(scratch);
        let dead = status["stripes"]["dead"].as_u64().expect("a number");
        let disks = status["disks"].as_array().expect("a list").iter().filter(|disk| disk["present"] == true);
        let numbers: BTreeMap<&str, (u64, u64)> = disks
            .map(|disk| {
                let path = disk["path"].as_str().expect("a text");
                (path, (disk["chunks"].as_u64().expect("a number"), files(Path::new(path))))
            })
            .collect();
        let equal = numbers.values().all(|(named, files)| named == files);
        if dead == 0 && equal { Ok(()) } else { Err(format!("{dead} dead stripes; (named, files) {numbers:?}")) }
    });
}

/// Chunk files on a disk.
pub fn files(disk: &Path) -> u64 {
    let list = |path: &Path| fs::read_dir(path).expect("listed").map(|entry| entry.expect("an entry").path());
    list(&disk.join("chunks")).map(|sub| list(&sub).count() as u64).sum()
}

/// A mounted file system in memory of its own; unmounted at the end.
pub struct Tmpfs(std::path::PathBuf);

impl Tmpfs {
    /// Mounts one of so many MiB; `None`, with a word on the terminal, where this user may not.
    pub fn mount(path: &Path, mib: u64) -> Option<Tmpfs> {
        fs::create_dir_all(path).expect("made");
        let options = format!("size={mib}m,mode=755");
        if !system("mount", &["-t", "tmpfs", "-o", &options, "claystone-test", &path.display().to_string()]) {
            println!("skipped: it needs the right to mount file systems (run it as root)");
            return None;
        }
        Some(Tmpfs(path.to_owned()))
    }

    /// Mounts it anew with these options.
    pub fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        assert!(system("mount", &["-o", &options, &self.0.display().to_string()]), "{options}");
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: a store that a failed test leaves may hold it.
        system("umount", &["-l", &self.0.display().to_string()]);
    }
}

/// Runs a command of the system.
pub fn system(command: &str, arguments: &[&str]) -> bool {
    Command::new(command).args(arguments).output().is_ok_and(|output| output.status.success())
}
