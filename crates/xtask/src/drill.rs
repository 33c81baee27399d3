//! The drill from outside: a short one for the gate, a long one for the night.
//!
//! Invariants:
//! 1. Every seed that runs is printed before it runs, with the command that replays it if it fails.
//! 2. Property tests of a long drill draw fresh cases: `.cargo/config.toml` gives a seed only where none is set.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};

/// What a drill is of.
#[derive(Debug, Clone, Copy)]
enum Subject {
    Stores,
    Disks,
    Volumes,
}

/// The fixed seeds: the gate judges every change by the same runs.
pub fn smoke(root: &Path) -> anyhow::Result<()> {
    run(root, &[], Subject::Stores, 1, FIXED_SEEDS)
}

/// Fresh seeds until CLAYSTONE_DRILL_SECONDS (600) are over: of stores, of disks, of volumes, and of property tests, in turns.
pub fn soak(root: &Path) -> anyhow::Result<()> {
    let seconds = match std::env::var("CLAYSTONE_DRILL_SECONDS") {
        Ok(text) => text.parse().with_context(|| format!("CLAYSTONE_DRILL_SECONDS={text} is no number"))?,
        Err(_) => SOAK_SECONDS,
    };
    let begin = Instant::now();
    let (mut stores, mut disks, mut volumes, mut properties) = (0, 0, 0, 0);
    for turn in 0.. {
        if begin.elapsed() >= Duration::from_secs(seconds) {
            break;
        }
        match turn % 4 {
            0 => {
                run(root, &["--release"], Subject::Stores, fresh(), STORE_BATCH)?;
                stores += STORE_BATCH;
            }
            1 => {
                run(root, &["--release"], Subject::Disks, fresh(), DISK_BATCH)?;
                disks += DISK_BATCH;
            }
            2 => {
                run(root, &["--release"], Subject::Volumes, fresh(), VOLUME_BATCH)?;
                volumes += VOLUME_BATCH;
            }
            _ => {
                test_properties(root, fresh())?;
                properties += 1;
            }
        }
    }
    let took = begin.elapsed().as_secs();
    println!(
        "{stores} seeds of stores, {disks} of disks, {volumes} of volumes, {properties} of property tests in {took} s, none failed"
    );
    Ok(())
}

fn run(root: &Path, profile: &[&str], subject: Subject, from: u64, seeds: u64) -> anyhow::Result<()> {
    let (what, flag) = match subject {
        Subject::Stores => ("drill", ""),
        Subject::Disks => ("drill of disks", " --disk"),
        Subject::Volumes => ("drill of volumes", " --volume"),
    };
    println!("{what}: seeds {from} to {}", from + seeds - 1);
    let output = cargo(root)
        .args(["run", "--quiet", "--package", "claystone-drill"])
        .args(profile)
        .arg("--")
        .args(flag.split_whitespace())
        .args(["--from", &from.to_string(), "--seeds", &seeds.to_string()])
        .output()
        .context("starting the drill")?;
    if !output.status.success() {
        print!("{}", String::from_utf8_lossy(&output.stdout));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        // It prints a line for each seed that passed, and stops at the first that failed.
        let passed = output.stdout.iter().filter(|&&byte| byte == b'\n').count() as u64;
        bail!("replay it: cargo run --package claystone-drill --{flag} --seed {}", from + passed.min(seeds - 1));
    }
    ensure!(!output.stdout.is_empty(), "the drill ran no seed");
    Ok(())
}

/// Runs the tests of all crates that have property tests, which draw their cases from `seed`, not from the gate's.
fn test_properties(root: &Path, seed: u64) -> anyhow::Result<()> {
    let crates = crates_with_properties(root)?;
    println!("property tests: PROPTEST_RNG_SEED={seed} cargo test{crates}");
    let output = cargo(root)
        .args(["test", "--quiet"])
        .args(crates.split_whitespace())
        .env("PROPTEST_RNG_SEED", seed.to_string())
        .output()
        .context("starting the property tests")?;
    if !output.status.success() {
        print!("{}", String::from_utf8_lossy(&output.stdout));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        bail!("replay it: PROPTEST_RNG_SEED={seed} cargo test{crates}");
    }
    Ok(())
}

/// As cargo's arguments, each behind a space.
fn crates_with_properties(root: &Path) -> anyhow::Result<String> {
    let mut manifests = Vec::new();
    for entry in std::fs::read_dir(root.join("crates"))? {
        manifests.push(entry?.path().join("Cargo.toml"));
    }
    manifests.sort_unstable();
    let mut crates = String::new();
    for manifest in manifests {
        let text = std::fs::read_to_string(&manifest).with_context(|| manifest.display().to_string())?;
        let name = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        if let Some(name) = name.filter(|_| text.lines().any(|line| line.starts_with("proptest"))) {
            crates += &format!(" --package {name}");
        }
    }
    ensure!(!crates.is_empty(), "no crate has property tests");
    Ok(crates)
}

fn cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root);
    cargo
}

/// A seed that differs from run to run.
fn fresh() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Microseconds, so that batches of one soak do not overlap.
    since.as_micros() as u64
}

const FIXED_SEEDS: u64 = 20;
const STORE_BATCH: u64 = 100;
/// Each is 14 runs of a disk.
const DISK_BATCH: u64 = 20;
const VOLUME_BATCH: u64 = 100;
const SOAK_SECONDS: u64 = 600;
