//! What a person writes for a disk: a path, or `hdd:` and the path of a drive, a partition or an image, where no directory is meant.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

/// A disk's path, and whether it is said to be no directory.
pub fn parse(text: &str) -> (&str, bool) {
    match text.strip_prefix(DRIVE) {
        Some(path) => (path, true),
        None => (text, false),
    }
}

/// The path of a drive, for commands that take nothing else.
///
/// # Errors
/// None.
pub fn of_drive(text: &str) -> Result<PathBuf, Infallible> {
    Ok(PathBuf::from(parse(text).0))
}

/// The whole path of a new disk.
///
/// # Errors
/// It is no path, or said to be a drive and is none.
pub fn of_new(text: &str) -> anyhow::Result<PathBuf> {
    let (path, is_drive) = parse(text);
    let path = std::path::absolute(path).with_context(|| format!("{text:?} is no path"))?;
    if is_drive {
        check_drive(&path)?;
    }
    Ok(path)
}

/// A misspelt drive must not become a directory on another one.
///
/// # Errors
/// There is nothing, or a directory.
pub fn check_drive(path: &Path) -> anyhow::Result<()> {
    let found = std::fs::metadata(path).with_context(|| {
        format!("there is no drive {}: `claystone disk format` makes a disk of one", path.display())
    })?;
    ensure!(!found.is_dir(), "{} is a directory: name it without {DRIVE}", path.display());
    Ok(())
}

const DRIVE: &str = "hdd:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_that_is_not_there_is_no_new_directory() {
        let scratch = tempfile::tempdir().expect("a directory");
        let path = |name: &str| scratch.path().join(name).display().to_string();
        std::fs::write(path("image"), b"").expect("written");
        assert_eq!(of_new(&path("image")).expect("a path"), Path::new(&path("image")));
        assert_eq!(of_new(&format!("hdd:{}", path("image"))).expect("it is there"), Path::new(&path("image")));
        assert_eq!(of_new(&path("new")).expect("one is made"), Path::new(&path("new")));
        for (name, says) in [("none", "there is no drive"), (".", "is a directory")] {
            let error = of_new(&format!("hdd:{}", path(name))).expect_err("no drive");
            assert!(error.to_string().contains(says), "{error}");
        }
        let Ok(drive) = of_drive("hdd:/dev/sdb");
        assert_eq!(drive, Path::new("/dev/sdb"));
    }
}
