//! A copy of the records for the day the directory is gone.
//!
//! Invariants:
//! 1. A file under the name asked for is whole, sound and durable: it is written and checked under another name first.
//! 2. Nobody but the owner can read it, at no time: it holds secret keys.
//!
//! Left out: the chunks. They are on the disks; the records name them.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use claystone_env::Worker;
use claystone_host::ThreadWorker;
use claystone_meta::{SqliteMeta, Workers};

use crate::table::counted;

/// Copies the database to `target`, which must not exist, and returns the copy's length in bytes.
///
/// # Errors
/// The copy could not be made, or has a contradiction in it; nothing is left at `target`.
pub async fn back_up(database: &SqliteMeta, target: &Path) -> anyhow::Result<u64> {
    let part = with_suffix(target, ".part");
    remove(&part)?;
    let copied = copy(database, &part, target).await;
    if copied.is_err() {
        // The first error is the one to tell.
        let _ = remove(&part);
    }
    copied
}

async fn copy(database: &SqliteMeta, part: &Path, target: &Path) -> anyhow::Result<u64> {
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(part);
    made.with_context(|| format!("{} cannot be made", part.display()))?;
    database.snapshot_to(part).await.with_context(|| format!("copying to {}", part.display()))?;
    let problems = check(part).await.context("reading the copy back")?;
    if let Some(first) = problems.first() {
        let ways = counted(problems.len() as u64, "way", "ways");
        bail!("the records contradict each other in {ways}, so no copy was kept; the first: {first}");
    }
    let file = File::open(part)?;
    file.sync_all()?;
    let bytes = file.metadata()?.len();
    // Unlike a rename, a link never replaces what has come there meanwhile.
    fs::hard_link(part, target).with_context(|| format!("naming the copy {}", target.display()))?;
    remove(part)?;
    let parent = target.parent().context("an absolute path of a file has a parent")?;
    File::open(parent)?.sync_all()?;
    Ok(bytes)
}

async fn check(file: &Path) -> anyhow::Result<Vec<String>> {
    let worker = |name: &str| -> anyhow::Result<Arc<dyn Worker>> { Ok(Arc::new(ThreadWorker::start(name, 1)?)) };
    let workers = Workers { writer: worker("copy-writer")?, readers: worker("copy-reader")? };
    Ok(SqliteMeta::open(file, workers).await?.check().await?)
}

/// Removes a file, and what SQLite keeps beside it while it is open.
fn remove(part: &Path) -> anyhow::Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        let path = with_suffix(part, suffix);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("{} cannot be removed", path.display()));
            }
            _ => (),
        }
    }
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}
