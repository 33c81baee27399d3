//! What the system tells of the drive that a block device is, or is a part of.
//!
//! Invariants:
//! 1. All is read from sysfs, whose place is given, and the drive is not asked; nothing is changed but by [`TurnedOn`], which
//!    changes it back.
//! 2. What the system does not tell is `None`, never a guess.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A drive, as the system knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drive {
    /// The system's name of the whole drive, such as `sda`, also if the device is a partition of it.
    pub name: String,
    /// What the system reaches it by.
    pub attachment: Attachment,
    /// Whether it has turning disks.
    pub rotational: Option<bool>,
    /// Who made it. Of SATA drives the system says `ATA`.
    pub vendor: Option<String>,
    /// Which it is.
    pub model: Option<String>,
    /// After how many seconds without an answer the system resets the drive. Its error recovery should end before.
    pub timeout_s: Option<u32>,
    /// Whether single commands can be given less time.
    pub duration_limits: DurationLimits,
}

/// What the system reaches a drive by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment {
    /// The system's SCSI layer: SATA, SAS and most USB drives.
    Scsi,
    /// NVM Express.
    Nvme,
    /// Another way, such as a virtual machine's.
    Other,
    /// It is none: the system makes it of files or other devices, as loop devices, RAID and volumes.
    Made,
}

/// Command duration limits of a drive (Linux 6.5 and later): where they are on, a command whose I/O priority asks for it
/// is given up after a time that the drive holds in a list, which its administrator fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DurationLimits {
    /// The system does not know them, or says nothing of this drive.
    Unknown,
    /// The drive has none.
    Unsupported,
    /// The drive has them; the system does not use them.
    Off,
    /// The system uses them.
    On,
    /// The system uses them because it was told to here. Whether the drive's list holds a limit is not known.
    TurnedOn,
}

impl fmt::Display for DurationLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DurationLimits::Unknown => "not known",
            DurationLimits::Unsupported => "the drive has none",
            DurationLimits::Off => {
                "the drive has some; the system does not use them (`device/cdl_enable` in sysfs is 0)"
            }
            DurationLimits::On => "the first one of the drive's list ends reads that can be decoded instead",
            DurationLimits::TurnedOn => {
                "turned on; the first one of the drive's list, if it holds any, ends reads that can be decoded instead"
            }
        })
    }
}

impl Drive {
    /// The drive of the block device with this number, from the sysfs at `sysfs`.
    ///
    /// # Errors
    /// There is no such device, or no sysfs.
    pub fn of_device(sysfs: &Path, major: u32, minor: u32) -> io::Result<Drive> {
        let whole = whole(sysfs, major, minor)?;
        let name = whole.file_name().ok_or(io::ErrorKind::NotFound)?.to_string_lossy().into_owned();
        let text = |file: &str| {
            let text = fs::read_to_string(whole.join(file)).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        };
        let flag = |file| match text(file)?.as_str() {
            OFF => Some(false),
            ON => Some(true),
            _ => None,
        };
        let attachment = if !whole.join("device").exists() {
            Attachment::Made
        } else if whole.join("device/scsi_level").exists() {
            Attachment::Scsi
        } else if name.starts_with("nvme") {
            Attachment::Nvme
        } else {
            Attachment::Other
        };
        let duration_limits = match (flag("device/cdl_supported"), flag(CDL_ENABLE)) {
            (None, _) => DurationLimits::Unknown,
            (Some(false), _) => DurationLimits::Unsupported,
            (Some(true), Some(true)) => DurationLimits::On,
            (Some(true), _) => DurationLimits::Off,
        };
        Ok(Drive {
            attachment,
            rotational: flag("queue/rotational"),
            vendor: text("device/vendor"),
            model: text("device/model"),
            timeout_s: text("device/timeout").and_then(|text| text.parse().ok()),
            duration_limits,
            name,
        })
    }

    /// Where the whole drive is among the devices at `dev`. In names, sysfs writes `!` for `/`.
    pub fn path(&self, dev: &Path) -> PathBuf {
        dev.join(self.name.replace('!', "/"))
    }
}

/// Command duration limits of a drive that are on as long as this is there, and were off before. After a kill they stay on, which
/// changes nothing for programs that do not ask for one.
#[derive(Debug)]
pub struct TurnedOn {
    file: PathBuf,
}

impl TurnedOn {
    /// Turns them on where the drive has some and they are off, and notes that in `drive`, which is that of the device with
    /// this number. Where the system refuses, they stay off, and a warning says why.
    pub fn of(drive: &mut Drive, sysfs: &Path, major: u32, minor: u32) -> Option<TurnedOn> {
        if drive.duration_limits != DurationLimits::Off {
            return None;
        }
        match TurnedOn::turn_on(sysfs, major, minor) {
            Ok(turned) => {
                drive.duration_limits = DurationLimits::TurnedOn;
                Some(turned)
            }
            Err(error) => {
                let name = &drive.name;
                tracing::warn!(drive = name, %error, "the command duration limits of the drive cannot be turned on");
                None
            }
        }
    }

    fn turn_on(sysfs: &Path, major: u32, minor: u32) -> io::Result<TurnedOn> {
        let file = whole(sysfs, major, minor)?.join(CDL_ENABLE);
        fs::write(&file, ON)?;
        let turned = TurnedOn { file };
        match fs::read_to_string(&turned.file)?.trim() {
            ON => Ok(turned),
            _ => Err(io::Error::other("the system took it and did not do it")),
        }
    }
}

impl Drop for TurnedOn {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.file, OFF) {
            tracing::warn!(file = %self.file.display(), %error, "command duration limits stay on");
        }
    }
}

/// Where sysfs tells of the drive that the device with this number is or is a part of.
fn whole(sysfs: &Path, major: u32, minor: u32) -> io::Result<PathBuf> {
    let device = fs::canonicalize(sysfs.join(format!("dev/block/{major}:{minor}")))?;
    let whole = if device.join("partition").exists() { device.parent().map(Path::to_path_buf) } else { Some(device) };
    Ok(whole.ok_or(io::ErrorKind::NotFound)?)
}

const CDL_ENABLE: &str = "device/cdl_enable";
const OFF: &str = "0";
const ON: &str = "1";

impl fmt::Display for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match (self.attachment, self.rotational) {
            (Attachment::Made, _) => "made of files or other devices",
            (_, Some(true)) => "with turning disks",
            (_, Some(false)) => "without turning disks",
            (_, None) => "of unknown kind",
        };
        let model: Vec<&str> = [&self.vendor, &self.model].into_iter().flatten().map(String::as_str).collect();
        let model = if model.is_empty() { String::new() } else { format!(" ({})", model.join(" ")) };
        write!(f, "{}{model}, {kind}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A sysfs with the device `8:1`, which links to `devices/{device}`, and these files below `devices`.
    fn sysfs(device: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let sysfs = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir_all(sysfs.path().join("dev/block")).expect("a directory");
        fs::create_dir_all(sysfs.path().join("devices").join(device)).expect("a directory");
        for (file, text) in files {
            let path = sysfs.path().join("devices").join(file);
            fs::create_dir_all(path.parent().expect("in a directory")).expect("a directory");
            fs::write(path, format!("{text}\n")).expect("a file");
        }
        symlink(format!("../../devices/{device}"), sysfs.path().join("dev/block/8:1")).expect("a link");
        sysfs
    }

    fn drive(device: &str, files: &[(&str, &str)]) -> Drive {
        Drive::of_device(sysfs(device, files).path(), 8, 1).expect("a drive")
    }

    #[test]
    fn a_partition_tells_of_its_drive() {
        let files = [
            ("ata1/block/sda/sda1/partition", "1"),
            ("ata1/block/sda/queue/rotational", "1"),
            ("ata1/block/sda/device/vendor", "ATA     "),
            ("ata1/block/sda/device/model", "Some Drive 8TB  "),
            ("ata1/block/sda/device/scsi_level", "6"),
            ("ata1/block/sda/device/timeout", "30"),
            ("ata1/block/sda/device/cdl_supported", "1"),
            ("ata1/block/sda/device/cdl_enable", "0"),
        ];
        let found = drive("ata1/block/sda/sda1", &files);
        let expected = Drive {
            name: "sda".to_owned(),
            attachment: Attachment::Scsi,
            rotational: Some(true),
            vendor: Some("ATA".to_owned()),
            model: Some("Some Drive 8TB".to_owned()),
            timeout_s: Some(30),
            duration_limits: DurationLimits::Off,
        };
        assert_eq!(found, expected);
        assert_eq!(found.to_string(), "sda (ATA Some Drive 8TB), with turning disks");
        assert_eq!(found.path(Path::new("/dev")), Path::new("/dev/sda"));
    }

    #[test]
    fn limits_of_commands_are_told_as_the_system_tells_them() {
        for (supported, enabled, expected) in [
            (Some("0"), Some("0"), DurationLimits::Unsupported),
            (Some("1"), Some("1"), DurationLimits::On),
            (Some("1"), None, DurationLimits::Off),
            (Some("what"), Some("1"), DurationLimits::Unknown),
            (None, None, DurationLimits::Unknown),
        ] {
            let mut files = vec![("block/sdb/device/scsi_level", "7")];
            files.extend(supported.map(|text| ("block/sdb/device/cdl_supported", text)));
            files.extend(enabled.map(|text| ("block/sdb/device/cdl_enable", text)));
            assert_eq!(drive("block/sdb", &files).duration_limits, expected);
        }
    }

    #[test]
    fn limits_of_commands_are_turned_on_for_a_while_where_they_are_off() {
        let turned = |sysfs: &Path| {
            let mut drive = Drive::of_device(sysfs, 8, 1).expect("a drive");
            let turned = TurnedOn::of(&mut drive, sysfs, 8, 1);
            (turned, drive.duration_limits)
        };
        let with = |supported, enabled| {
            let files = [
                ("ata1/block/sda/sda1/partition", "1"),
                ("ata1/block/sda/device/cdl_supported", supported),
                ("ata1/block/sda/device/cdl_enable", enabled),
            ];
            sysfs("ata1/block/sda/sda1", &files)
        };
        let told = |sysfs: &Path| {
            let text = fs::read_to_string(sysfs.join("devices/ata1/block/sda/device/cdl_enable")).expect("a file");
            text.trim().to_owned()
        };
        let off = with("1", "0");
        let (held, limits) = turned(off.path());
        assert_eq!((limits, told(off.path()).as_str()), (DurationLimits::TurnedOn, "1"));
        assert!(turned(off.path()).0.is_none(), "another finds them on, and leaves them so");
        assert_eq!(told(off.path()), "1");
        drop(held);
        assert_eq!(told(off.path()), "0");
        for (supported, enabled, expected) in [("1", "1", DurationLimits::On), ("0", "0", DurationLimits::Unsupported)]
        {
            let sysfs = with(supported, enabled);
            let (held, limits) = turned(sysfs.path());
            assert!(held.is_none() && limits == expected, "{limits:?}");
            assert_eq!(told(sysfs.path()), enabled);
        }
        // The system refuses.
        let refusing = with("1", "0");
        let file = refusing.path().join("devices/ata1/block/sda/device/cdl_enable");
        fs::remove_file(&file).expect("removed");
        fs::create_dir(&file).expect("made");
        let (held, limits) = turned(refusing.path());
        assert!(held.is_none() && limits == DurationLimits::Off, "{limits:?}");
    }

    #[test]
    fn what_is_not_told_is_not_guessed() {
        let found = drive("virtual/block/loop0", &[("virtual/block/loop0/queue/rotational", "0")]);
        assert_eq!((found.attachment, found.rotational), (Attachment::Made, Some(false)));
        assert_eq!((&found.vendor, &found.model, found.timeout_s), (&None, &None, None));
        assert_eq!(found.to_string(), "loop0, made of files or other devices");
        let found = drive("nvme/nvme0n1", &[("nvme/nvme0n1/device/model", "Some Flash"), ("nvme/nvme0n1/size", "8")]);
        assert_eq!((found.attachment, found.rotational), (Attachment::Nvme, None));
        assert_eq!(found.to_string(), "nvme0n1 (Some Flash), of unknown kind");
        let odd = [
            ("block/a!b/device/vendor", "0x1af4"),
            ("block/a!b/device/timeout", "long"),
            ("block/a!b/queue/rotational", ""),
        ];
        let found = drive("block/a!b", &odd);
        assert_eq!((found.attachment, found.rotational, found.timeout_s), (Attachment::Other, None, None));
        assert_eq!(found.path(Path::new("/dev")), Path::new("/dev/a/b"));
        let empty = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(Drive::of_device(empty.path(), 8, 1).expect_err("none").kind(), io::ErrorKind::NotFound);
    }
}
