//! The device of a disk, opened, or why it cannot be and what to do.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use claystone_env::Device;
use claystone_files::{Disk, DiskError, Tuning};
use claystone_host::{HostClock, HostDevice};

use super::look::Looked;

/// Opens a device.
///
/// # Errors
/// It is not there, in use, or no device.
pub fn open_device(path: &Path) -> anyhow::Result<Arc<dyn Device>> {
    let name = path.display();
    let device = HostDevice::open(path).map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::NotFound => {
                format!("there is no {name}: `claystone disk format {name} --size 10G` makes an image of that name")
            }
            io::ErrorKind::PermissionDenied => format!("{name} may not be opened: try as root, or as its owner"),
            io::ErrorKind::WouldBlock => {
                format!("{name} is in use by another claystone: unmount it, or wait for the command to end")
            }
            io::ErrorKind::ResourceBusy => format!("{name} is in use by the system: is it mounted, or part of a RAID?"),
            _ => format!("{name} cannot be opened"),
        };
        anyhow::Error::from(error).context(advice)
    })?;
    Ok(Arc::new(device))
}

/// Opens the disk on a device.
///
/// # Errors
/// As [`open_device`], and where there is no disk on it, or it cannot be opened.
pub fn open_disk(path: &Path) -> anyhow::Result<Disk> {
    disk_on(path, open_device(path)?)
}

/// Opens the disk on a device that is only looked at: nothing is written, so a read-only one will do.
///
/// # Errors
/// As [`open_disk`].
pub fn look_at_disk(path: &Path) -> anyhow::Result<Disk> {
    disk_on(path, Arc::new(Looked::at(open_device(path)?)))
}

/// Whether [`open_device`] failed because another program has the device open.
pub fn is_in_use(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

fn disk_on(path: &Path, device: Arc<dyn Device>) -> anyhow::Result<Disk> {
    let name = path.display();
    Disk::open(device, Arc::new(HostClock::start()), Tuning::default()).map_err(|error| match &error {
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
    disk.close().context("not everything was brought to its place; the next opening does that from the journal")
}
