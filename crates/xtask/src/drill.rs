//! The drill from outside: a short one for the gate, a long one for the night.
//!
//! Invariants:
//! 1. Every seed that runs is printed before it runs, with the command that replays it if it fails.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};

/// The fixed seeds: the gate judges every change by the same runs.
pub fn smoke(root: &Path) -> anyhow::Result<()> {
    run(root, &[], 1, FIXED_SEEDS)
}

/// Fresh seeds until CLAYSTONE_DRILL_SECONDS (600) are over.
pub fn soak(root: &Path) -> anyhow::Result<()> {
    let seconds = match std::env::var("CLAYSTONE_DRILL_SECONDS") {
        Ok(text) => text.parse().with_context(|| format!("CLAYSTONE_DRILL_SECONDS={text} is no number"))?,
        Err(_) => SOAK_SECONDS,
    };
    let begin = Instant::now();
    let mut seeds = 0;
    while begin.elapsed() < Duration::from_secs(seconds) {
        run(root, &["--release"], fresh(), BATCH)?;
        seeds += BATCH;
    }
    println!("{seeds} seeds in {} s, none failed", begin.elapsed().as_secs());
    Ok(())
}

fn run(root: &Path, profile: &[&str], from: u64, seeds: u64) -> anyhow::Result<()> {
    println!("drill: seeds {from} to {}", from + seeds - 1);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["run", "--quiet", "--package", "claystone-drill"])
        .args(profile)
        .args(["--", "--from", &from.to_string(), "--seeds", &seeds.to_string()])
        .output()
        .context("starting the drill")?;
    if !output.status.success() {
        print!("{}", String::from_utf8_lossy(&output.stdout));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        // It prints a line for each seed that passed, and stops at the first that failed.
        let passed = output.stdout.iter().filter(|&&byte| byte == b'\n').count() as u64;
        bail!("replay it: cargo run --package claystone-drill -- --seed {}", from + passed.min(seeds - 1));
    }
    ensure!(!output.stdout.is_empty(), "the drill ran no seed");
    Ok(())
}

/// A seed that differs from run to run.
fn fresh() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Microseconds, so that batches of one soak do not overlap.
    since.as_micros() as u64
}

const FIXED_SEEDS: u64 = 20;
const BATCH: u64 = 100;
const SOAK_SECONDS: u64 = 600;
