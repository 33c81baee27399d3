//! The device of a disk, opened, or why it cannot be and what to do.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use claystone_env::{Clock, Device};
use claystone_files::{Disk, DiskError, FileError, Tuning};
use claystone_host::{HostClock, HostDevice, RecoveryLimits, memory_bytes};

use super::look::Looked;
use crate::disk_path;
use crate::drives::{Drive, Opening};
use crate::emulation::slowed;
use crate::sums_memory::{MemoryLeft, SumsMemory};
use crate::tending::Care;

/// Where a disk is.
#[derive(Debug, clap::Args)]
pub struct At {
    /// The drive, partition or image file; of two, the hard disk
    #[arg(value_name = "DEVICE", value_parser = disk_path::of_drive)]
    pub device: PathBuf,
    /// Its solid-state drive, if that is no longer where it was
    #[arg(long, value_name = "DEVICE")]
    pub ssd: Option<PathBuf>,
}

/// How long a drive may try to read a bad sector.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct Recovery {
    /// Tell a drive that tries to read a bad sector without a limit to give up after so long (SCT ERC); 0: leave it as it is
    #[arg(long, value_name = "SECONDS", default_value_t = 7, value_parser = clap::value_parser!(u16).range(0..=99))]
    error_recovery_seconds: u16,
}

impl Recovery {
    /// What drives are told; `None`: nothing.
    pub fn limits(self) -> Option<RecoveryLimits> {
        Care::limits_of(self.error_recovery_seconds)
    }
}

impl At {
    /// Opens the drive, or both, for whoever gives it another solid-state drive: that it has may be gone, where it had nothing.
    ///
    /// # Errors
    /// As [`open_device`], and where the solid-state drive is not found.
    pub fn open_alone_if_at_rest(&self) -> anyhow::Result<Drive> {
        self.drive(|device| device, Opening { alone_if_at_rest: true, ..Opening::default() })
    }

    fn drive(&self, seen: fn(Arc<dyn Device>) -> Arc<dyn Device>, opening: Opening) -> anyhow::Result<Drive> {
        let ssds = self.ssd.iter().map(std::path::absolute).collect::<io::Result<_>>()?;
        open_drive(&self.device, &Opening { ssds, ..opening }, Arc::new(HostClock::start()), seen)
    }
}

/// Opens the drive, or both, whose devices are seen through `seen`.
///
/// # Errors
/// As [`open_device`], and where the solid-state drive is not found.
pub fn open_drive(
    path: &Path,
    opening: &Opening,
    clock: Arc<dyn Clock>,
    seen: fn(Arc<dyn Device>) -> Arc<dyn Device>,
) -> anyhow::Result<Drive> {
    Drive::open(path, opening, clock, seen).map_err(|error| advised(path, error))
}

/// A device to which nothing is written: a read-only one will do.
pub fn looked_at(device: Arc<dyn Device>) -> Arc<dyn Device> {
    Arc::new(Looked::at(device))
}

/// Opens a device as it is.
///
/// # Errors
/// It is not there, in use, or no device.
pub fn open_device(path: &Path) -> anyhow::Result<Arc<dyn Device>> {
    let device = HostDevice::open(path).map_err(|error| advised(path, error.into()))?;
    slowed(path, Arc::new(device))
}

/// What to do where a device cannot be opened.
fn advised(path: &Path, error: anyhow::Error) -> anyhow::Error {
    let name = path.display();
    // Only what the device itself says is about this path; other errors say what they are about.
    match error.downcast_ref::<io::Error>().map(io::Error::kind) {
        None => error,
        Some(kind) => error.context(match kind {
            io::ErrorKind::NotFound => {
                format!("there is no {name}: `claystone disk format {name} --size 10G` makes an image of that name")
            }
            io::ErrorKind::PermissionDenied => format!("{name} may not be opened: try as root, or as its owner"),
            io::ErrorKind::WouldBlock => {
                format!("{name} is in use by another claystone: unmount it, or wait for the command to end")
            }
            io::ErrorKind::ResourceBusy => format!("{name} is in use by the system: is it mounted, or part of a RAID?"),
            _ => format!("{name} cannot be opened"),
        }),
    }
}

/// Opens the disk on a device whose drives are told these limits.
///
/// # Errors
/// As [`open_device`], and where there is no disk on it, its solid-state drive is not found, or it cannot be opened.
pub fn open_disk(at: &At, limits: Option<RecoveryLimits>) -> anyhow::Result<Disk> {
    let device = at.drive(|device| device, Opening { limits, ..Opening::default() })?.device;
    // As much as whoever mounts it has: what memory knows is kept for him again when the disk is closed.
    let sums_bytes = SumsMemory::Auto.bytes(device.geometry(), MemoryLeft::of_one(memory_bytes()));
    disk_alone(&at.device, device, sums_bytes)
}

/// Opens the disk on a device that is only looked at: nothing is written, so a read-only one will do.
///
/// # Errors
/// As [`open_disk`].
pub fn look_at_disk(at: &At) -> anyhow::Result<Disk> {
    disk_alone(&at.device, at.drive(looked_at, Opening::default())?.device, LOOKED_SUMS_BYTES)
}

/// Whether [`open_device`] failed because another program has the device open.
pub fn is_in_use(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

fn disk_alone(path: &Path, device: Arc<dyn Device>, sums_bytes: usize) -> anyhow::Result<Disk> {
    disk_on(path, device, Arc::new(HostClock::start()), Tuning { sums_bytes, ..Tuning::default() })
}

/// Memory for checksums of a disk that is looked at: little of its data is read, and what was kept for others needs not be taken up.
const LOOKED_SUMS_BYTES: usize = 1 << 20;

/// Opens the disk on a device that was opened at a path.
///
/// # Errors
/// There is none, or it cannot be opened.
pub fn disk_on(path: &Path, device: Arc<dyn Device>, clock: Arc<dyn Clock>, tuning: Tuning) -> anyhow::Result<Disk> {
    let name = path.display();
    Disk::open(device, clock, tuning).map_err(|error| match &error {
        DiskError::NotADisk { .. } => {
            anyhow!("{name} is not a Claystone disk: `claystone disk format {name}` makes one of it")
        }
        DiskError::Damaged(_) => anyhow::Error::from(error).context(format!(
            "{name} cannot be opened. Copy it to another device (ddrescue) before anything else is tried"
        )),
        _ => anyhow::Error::from(error).context(format!("{name} cannot be opened")),
    })
}

/// Brings everything on a disk to its place.
///
/// # Errors
/// The device does not do it.
pub fn close_disk(disk: Disk) -> anyhow::Result<()> {
    disk.close().map_err(not_at_rest)
}

/// What becomes of what a disk could not bring to its place.
pub fn not_at_rest(error: FileError) -> anyhow::Error {
    let context = match error {
        FileError::Placeless { .. } => "not everything that was written is kept",
        FileError::Lost { .. } => {
            "what was written beside lost sectors stays in the journal, until these are written again or their file is \
             deleted (`claystone disk scrub` names it)"
        }
        FileError::NoSpace => {
            "what was not synced may be gone, deletions too; delete files, or give the disk more room (`claystone disk grow`)"
        }
        _ => "not everything was brought to its place; the next opening does that from the journal",
    };
    anyhow::Error::from(error).context(context)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Care, Recovery};

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        recovery: Recovery,
    }

    #[test]
    fn drives_are_told_seven_seconds_unless_somebody_says_otherwise() {
        for (arguments, seconds) in [(&["c"][..], 7), (&["c", "--error-recovery-seconds", "12"], 12)] {
            let limits = Command::parse_from(arguments).recovery.limits();
            assert!(limits.is_some() && limits == Care::limits_of(seconds));
        }
        assert_eq!(Command::parse_from(["c", "--error-recovery-seconds", "0"]).recovery.limits(), None);
    }
}
