//! `claystone bench`: measures this program, beside others where they are at hand.

pub mod adapt;
pub mod codes;
pub mod jobs;
pub mod lec;
pub mod load;
pub mod mount;
pub mod nbd;
pub mod noise;
pub mod s3;
pub mod server;
pub mod small;
pub mod tier;
pub mod trace;
pub mod volume;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The cases that have one of `names`; all, if there is no name.
///
/// # Errors
/// A name is that of none.
fn chosen<C: Clone>(cases: &[C], name: impl Fn(&C) -> String, names: &[String]) -> anyhow::Result<Vec<C>> {
    let all: Vec<String> = cases.iter().map(&name).collect();
    if let Some(unknown) = names.iter().find(|name| !all.contains(name)) {
        bail!("there is no {unknown:?}: there are {}", all.join(", "));
    }
    Ok(cases.iter().filter(|case| names.is_empty() || names.contains(&name(case))).cloned().collect())
}

/// A directory that is gone when this is dropped, in `directory` or the system's place for temporary files.
///
/// # Errors
/// It cannot be made there.
fn scratch(directory: Option<&Path>) -> anyhow::Result<tempfile::TempDir> {
    let place = directory.map_or_else(std::env::temp_dir, PathBuf::from);
    tempfile::Builder::new()
        .prefix("claystone-bench-")
        .tempdir_in(&place)
        .with_context(|| format!("no directory can be made in {}: name another one with --dir", place.display()))
}
