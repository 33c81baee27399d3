//! The gate: everything that must pass before a commit.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};

use crate::{cite, drill, report, tidy};

/// Runs all steps, cheapest first, and stops at the first that fails.
pub fn run(root: &Path) -> anyhow::Result<()> {
    step("tidy", || report("tidy", &tidy::findings(root)))?;
    step("cite", || cite::run(root))?;
    // Workspaces of their own that are built much later: what a crate newly needs is missed here, not there.
    for other in ["fuzz/Cargo.toml", "python/Cargo.toml"] {
        step(&format!("the lock beside {other}"), || {
            cargo(root, &["fetch", "--locked", "--quiet", "--manifest-path", other])
        })?;
    }
    step("format", || cargo(root, &["fmt", "--all", "--check"]))?;
    step("clippy", || cargo(root, &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))?;
    let peers = ["clippy", "--package", "claystone-bench", "--features", "peers", "--all-targets", "--quiet"];
    step("peers", || cargo(root, &[&peers[..], &["--", "-D", "warnings"]].concat()))?;
    step("tests", || cargo(root, &["test", "--workspace", "--quiet"]))?;
    step("drill smoke", || drill::smoke(root))
}

fn step(name: &str, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    println!("== {name}");
    let start = Instant::now();
    work().with_context(|| format!("the step `{name}` failed"))?;
    println!("== {name}: passed in {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn cargo(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).current_dir(root).args(arguments).status().context("starting cargo")?;
    if !status.success() {
        bail!("cargo {} says no", arguments.join(" "));
    }
    Ok(())
}
