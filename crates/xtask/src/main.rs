//! The workspace's own chores: `cargo xtask tidy | cite | ci | bench | soak`.
//!
//! Invariants:
//! 1. Every check reads the tree only and names file, line and remedy of each finding.
//! 2. The exit code is 0 only if nothing was found.

mod bench;
mod ci;
mod cite;
mod drill;
mod source;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        Some("tidy") => report("tidy", &tidy::findings(&root())),
        Some("cite") => cite::run(&root()),
        Some("ci") => ci::run(&root()),
        Some("soak") => drill::soak(&root()),
        Some("bench") => bench::run(&root(), &arguments[1..]),
        _ => Err(anyhow::anyhow!("usage: cargo xtask tidy | cite | ci | bench [CASE...] | soak")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace: two levels above this crate.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace that this was built in")
}

/// Prints findings; any finding is a failure.
fn report(check: &str, findings: &[String]) -> anyhow::Result<()> {
    for finding in findings {
        eprintln!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{check}: {} finding(s)", findings.len());
    }
    println!("{check}: nothing to complain about");
    Ok(())
}
