//! `claystone disk format`: a device becomes a disk.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use claystone_env::{Device, SECTOR_BYTES};
use claystone_files::{Disk, FileTree, Inode, NewAttributes};
use claystone_host::{HostClock, HostDevice, HostRandom};
use claystone_model::{copies, parity_of_group};

use super::device::{close_disk, open_device, open_disk};
use super::info::Report;
use super::occupant::occupant;
use super::size::Size;
use crate::cli::print_json;

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
    /// The chance that a sector of this drive does not read at once
    #[arg(long, value_name = "P", default_value_t = 1e-3, value_parser = chance)]
    soft_failures: f64,
    /// The chance that you accept of more sectors of a group failing so than its parity mends
    #[arg(long, value_name = "P", default_value_t = 1e-6, value_parser = chance)]
    loss: f64,
    /// Sectors of a group, parity included: longer ones take less space for parity
    #[arg(long, value_name = "SECTORS", default_value_t = 255, value_parser = clap::value_parser!(u16).range(1..=1023))]
    group: u16,
    /// Parity sectors of a group, at most 64; 0 for none [default: the least for these chances]
    #[arg(long, value_name = "SECTORS", value_parser = clap::value_parser!(u16).range(0..=64))]
    parity: Option<u16>,
    /// Copies of what is not in groups [default: the least for these chances]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=8))]
    copies: Option<u16>,
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
        let format = self.format()?;
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
            print_json(&report);
        } else {
            print!("{report}");
            println!("it is a disk now: `claystone disk info {name}` shows how it is");
        }
        Ok(())
    }

    /// What the disk shall be.
    fn format(&self) -> anyhow::Result<claystone_files::Format> {
        let parity = match self.parity {
            Some(parity) => parity,
            None => self.least_parity()?,
        };
        ensure!(parity < self.group, "--group {} leaves no data sector beside {parity} parity sectors", self.group);
        let data = self.group - parity;
        ensure!(data <= DATA_MAX, "--group {} with --parity {parity}: at most {DATA_MAX} data sectors", self.group);
        let copies = match self.copies {
            Some(copies) => copies,
            None => u16::try_from(copies(self.soft_failures, self.loss))
                .ok()
                .filter(|copies| *copies <= COPIES_MAX)
                .with_context(|| {
                    format!(
                        "no {COPIES_MAX} copies reach --loss {} at --soft-failures {}",
                        self.loss, self.soft_failures
                    )
                })?,
        };
        ensure!(
            self.label.len() <= LABEL_BYTES_MAX,
            "--label takes {LABEL_BYTES_MAX} bytes, this has {}",
            self.label.len()
        );
        ensure!(!self.label.contains('\0'), "--label cannot have a zero byte");
        Ok(claystone_files::Format {
            data,
            parity,
            copies,
            soft_failures: self.soft_failures,
            loss_target: self.loss,
            label: self.label.clone(),
        })
    }

    fn least_parity(&self) -> anyhow::Result<u16> {
        let parity = parity_of_group(self.group.into(), self.soft_failures, self.loss);
        let parity = parity.and_then(|parity| u16::try_from(parity).ok()).filter(|parity| *parity <= PARITY_MAX);
        parity.with_context(|| {
            format!(
                "no {PARITY_MAX} parity sectors in a group of {} reach --loss {} at --soft-failures {}: choose a shorter \
                 --group or a higher --loss",
                self.group, self.loss, self.soft_failures
            )
        })
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

/// A chance for which parity can be found.
fn chance(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(chance) if (0.0..0.5).contains(&chance) => Ok(chance),
        _ => Err("a chance is a number from 0 to 0.5, such as 1e-3".to_owned()),
    }
}

const DATA_MAX: u16 = 1020;
const PARITY_MAX: u16 = 64;
const COPIES_MAX: u16 = 8;
const LABEL_BYTES_MAX: usize = 64;

/// The root directory is that of whoever formats, who could else write nothing to a disk of his own.
fn give_to_user(disk: &Disk) -> anyhow::Result<()> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    if user.is_root() {
        return Ok(());
    }
    let owner =
        NewAttributes { owner: Some(user.as_raw()), owner_group: Some(group.as_raw()), ..NewAttributes::default() };
    disk.set_attributes(Inode::ROOT, &owner).context("its root directory has no owner")?;
    Ok(())
}
