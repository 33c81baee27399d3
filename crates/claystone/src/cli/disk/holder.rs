//! Who has a device open, and what it says of the disk on it.
//!
//! A store is asked through its admin API; a mount through an attribute of its root directory. Of anything else the number
//! and the command of the process are told, as far as the system tells them.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use claystone_console::api;
use claystone_fuse::DESCRIPTION_ATTRIBUTE;

use super::info::Report;
use crate::admin::AdminClient;

/// What the program says that has the device open.
pub enum Answer {
    /// A mount at this directory.
    Mount(PathBuf, Box<Report>),
    /// The store.
    Store(Box<api::DiskStatus>),
}

/// Asks the program that has a device open. `directory` is that of the store, if it is one.
///
/// # Errors
/// Nobody answers for it: says who holds it.
pub async fn ask(device: &Path, directory: &Path) -> anyhow::Result<Answer> {
    let path = fs::canonicalize(device)?;
    if let Some((directory, report)) = mounted(&path) {
        return Ok(Answer::Mount(directory, Box::new(report)));
    }
    if let Ok(client) = AdminClient::of(directory)
        && let Ok(api::Disks { disks }) = client.get("/disks").await
    {
        let is_it = |disk: &api::DiskStatus| fs::canonicalize(&disk.path).is_ok_and(|other| other == path);
        if let Some(disk) = disks.into_iter().find(|disk| disk.present && is_it(disk)) {
            return Ok(Answer::Store(Box::new(disk)));
        }
    }
    let name = device.display();
    let holder = holder(&path).map_or("another program".to_owned(), |(process, command)| match command {
        Some(command) => format!("process {process} (`{command}`)"),
        None => format!("process {process}"),
    });
    Err(anyhow!(
        "{name} is in use by {holder}. If that is a store, `claystone disk --dir DIR info {name}` with its directory asks it; \
         if it is another command, wait for it to end"
    ))
}

/// The mount of a device, and what it says.
fn mounted(device: &Path) -> Option<(PathBuf, Report)> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    for line in mounts.lines() {
        let mut fields = line.split(' ');
        let (source, directory, kind) = (fields.next()?, fields.next()?, fields.next()?);
        if kind != "fuse.claystone" || fs::canonicalize(unescaped(source)).ok().as_deref() != Some(device) {
            continue;
        }
        let directory = PathBuf::from(unescaped(directory));
        let mut bytes = vec![0; REPORT_BYTES_MAX];
        let told = rustix::fs::getxattr(&directory, DESCRIPTION_ATTRIBUTE, &mut bytes[..]).ok()?;
        return Some((directory, serde_json::from_slice(&bytes[..told]).ok()?));
    }
    None
}

/// Spaces, tabs, newlines and backslashes are octal numbers in the table of mounts.
fn unescaped(text: &str) -> String {
    let marks = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    marks.iter().fold(text.to_owned(), |text, (mark, letter)| text.replace(mark, letter))
}

/// The process that has the lock of a device or an image, and its command.
fn holder(path: &Path) -> Option<(u32, Option<String>)> {
    let inode = fs::metadata(path).ok()?.ino();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // "1: FLOCK  ADVISORY  WRITE 1234 fd:01:5678 0 EOF": the fifth is the process, the sixth ends with the inode.
    let process = locks.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let place = fields.get(5)?.rsplit_once(':')?.1;
        (fields.get(1) == Some(&"FLOCK") && place.parse() == Ok(inode)).then(|| fields.get(4)?.parse().ok()).flatten()
    })?;
    let command = fs::read(format!("/proc/{process}/cmdline")).ok().filter(|command| !command.is_empty());
    let words = |command: Vec<u8>| {
        let words: Vec<String> = command
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty())
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        let program = Path::new(words.first()?).file_name()?.as_bytes();
        Some([&[String::from_utf8_lossy(program).into_owned()], &words[1..]].concat().join(" "))
    };
    Some((process, command.and_then(words)))
}

const REPORT_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use claystone_host::HostDevice;

    use super::*;

    #[test]
    fn the_holder_of_an_image_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("image");
        assert_eq!(holder(&path), None);
        let _device = HostDevice::create(&path, 8).expect("made");
        // Some systems hide their locks.
        if let Some((process, command)) = holder(&path) {
            assert_eq!(process, std::process::id());
            assert!(command.is_some_and(|command| command.contains("claystone")));
        }
    }

    #[test]
    fn names_of_mounts_are_read_as_they_are() {
        assert_eq!(unescaped("/mnt/a\\040b\\134c"), "/mnt/a b\\c");
    }
}
