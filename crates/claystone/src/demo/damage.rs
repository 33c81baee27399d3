//! How the demo breaks disks: in the file system, behind the store's back.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

/// Takes a disk's directory away, as if somebody pulled its cable. Returns where it went.
///
/// # Errors
/// It cannot be renamed.
pub fn pull(disk: &Path) -> anyhow::Result<PathBuf> {
    let name = disk.file_name().context("a disk has a name")?.to_string_lossy();
    let away = disk.with_file_name(format!("pulled-{name}"));
    fs::rename(disk, &away).with_context(|| format!("pulling {}", disk.display()))?;
    Ok(away)
}

/// Puts it back.
///
/// # Errors
/// It cannot be renamed.
pub fn plug(away: &Path, disk: &Path) -> anyhow::Result<()> {
    fs::rename(away, disk).with_context(|| format!("putting {} back", disk.display()))
}

/// Flips one bit in up to `count` chunks of a disk, evenly spread. Returns in how many.
///
/// # Errors
/// A file cannot be changed, or there is none.
pub fn flip_bits(disk: &Path, count: usize) -> anyhow::Result<usize> {
    each(disk, count, |path| {
        let mut bytes = fs::read(path)?;
        ensure!(!bytes.is_empty(), "an empty chunk file");
        let at = bytes.len() / 3;
        bytes[at] ^= 0x10;
        fs::write(path, bytes)?;
        Ok(())
    })
}

/// Cuts up to `count` chunks of a disk in half. Returns how many.
///
/// # Errors
/// A file cannot be changed, or there is none.
pub fn truncate(disk: &Path, count: usize) -> anyhow::Result<usize> {
    each(disk, count, |path| {
        let file = fs::OpenOptions::new().write(true).open(path)?;
        file.set_len(file.metadata()?.len() / 2)?;
        Ok(())
    })
}

fn each(disk: &Path, count: usize, change: impl Fn(&Path) -> anyhow::Result<()>) -> anyhow::Result<usize> {
    let files = chunk_files(disk)?;
    ensure!(!files.is_empty(), "{} holds no chunks", disk.display());
    let chosen: Vec<&PathBuf> = files.iter().step_by(files.len().div_ceil(count)).collect();
    for path in &chosen {
        change(path).with_context(|| format!("damaging {}", path.display()))?;
    }
    Ok(chosen.len())
}

/// The files of a disk's chunks, sorted.
fn chunk_files(disk: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for directory in fs::read_dir(disk.join("chunks"))? {
        for file in fs::read_dir(directory?.path())? {
            files.push(file?.path());
        }
    }
    files.sort();
    Ok(files)
}
