//! `claystone disk format`: a device becomes a disk.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use claystone_env::{Device, SECTOR_BYTES};
use claystone_files::{Disk, FileTree, Inode, NewAttributes};
use claystone_host::{HostClock, HostDevice, HostRandom};

use super::coding::Coding;
use super::device::{close_disk, open_device, open_disk};
use super::info::Report;
use super::occupant::occupant;
use super::size::Size;
use crate::cli::print_json;
use crate::output::output;

/// Make a disk of a drive, a partition or an image file. What it held is lost, so a device that holds something known is
/// refused.
#[derive(Debug, clap::Args)]
pub struct Format {
    /// The drive, partition or image file
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
    /// Make an image file of this size: bytes, or with K, M, G or T
    #[arg(long)]
    size: Option<Size>,
    /// What you call it
    #[arg(long, default_value = "")]
    label: String,
    #[command(flatten)]
    coding: Coding,
    /// Also if the device holds a file system or a disk: it is lost
    #[arg(long)]
    force: bool,
}

impl Format {
    /// Formats it.
    ///
    /// # Errors
    /// The device is in use, holds something, or is too small; no such code.
    pub fn run(self, json: bool) -> anyhow::Result<()> {
        let format = self.coding.format(&self.label)?;
        let device = self.device()?;
        let name = self.device.display();
        if !self.force
            && let Some(occupant) = occupant(&*device).with_context(|| name.to_string())?
        {
            bail!("{name} holds {occupant}, which would be lost: name another device, or give it up with --force");
        }
        let random = HostRandom::from_system().context("the system gives no random numbers")?;
        Disk::format(&device, &format, &HostClock::start(), &random)
            .with_context(|| format!("{name} is not formatted"))?;
        drop(device);
        // Opened again, so what is told is what is there.
        let disk = open_disk(&self.device)?;
        give_to_user(&disk)?;
        let report = Report::of(&disk);
        close_disk(disk)?;
        if json {
            print_json(&report)?;
        } else {
            write!(output(), "{report}")?;
            writeln!(output(), "it is a disk now: `claystone disk info {name}` shows how it is")?;
        }
        Ok(())
    }

    /// The device, or a new image.
    fn device(&self) -> anyhow::Result<Arc<dyn Device>> {
        let Some(Size(bytes)) = self.size else { return open_device(&self.device) };
        let name = self.device.display();
        let sectors = bytes / SECTOR_BYTES as u64;
        ensure!(sectors > 0, "--size {bytes} is less than a sector");
        match HostDevice::create(&self.device, sectors) {
            Ok(device) => Ok(Arc::new(device)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                bail!("{name} is there already: --size makes a new image; without it, {name} itself is formatted")
            }
            Err(error) => Err(error).with_context(|| format!("the image {name} cannot be made")),
        }
    }
}

/// The root directory is that of whoever formats, who could else write nothing to a disk of his own.
///
/// # Errors
/// The disk does not take it.
pub fn give_to_user(disk: &Disk) -> anyhow::Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if user.is_root() {
        return Ok(());
    }
    let owner =
        NewAttributes { owner: Some(user.as_raw()), owner_group: Some(group.as_raw()), ..NewAttributes::default() };
    disk.set_attributes(Inode::ROOT, &owner).context("its root directory has no owner")?;
    Ok(())
}
