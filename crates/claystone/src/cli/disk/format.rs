//! `claystone disk format`: a device becomes a disk.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use claystone_env::{Clock, Device, SECTOR_BYTES};
use claystone_files::{Disk, FileTree, Inode, NewAttributes};
use claystone_host::{HostClock, HostDevice, HostRandom};
use claystone_tier::{
    Finding, Profile, ProfilePlan, TierFormat, TierTuning, TieredDevice, WriteState, queue_threshold,
};

use super::coding::Coding;
use super::device::{At, close_disk, open_device, open_disk};
use super::info::Report;
use super::occupant::refuse_occupied;
use super::profile::{measure, profile_of, read_profile};
use super::queue::queued_writes;
use super::size::Size;
use crate::cli::print_json;
use crate::disk_path;
use crate::emulation::{SOLID_STATE, forget, keep, model, slowed};
use crate::output::{note, output};

/// Make a disk of a drive, a partition or an image file. What it held is lost, so a device that holds something known is
/// refused, and a file that holds anything near its ends.
#[derive(Debug, clap::Args)]
pub struct Format {
    /// The drive, partition or image file
    #[arg(value_name = "DEVICE", value_parser = disk_path::of_drive)]
    device: PathBuf,
    /// Make an image file of this size: bytes, or with K, M, G or T
    #[arg(long)]
    size: Option<Size>,
    /// What you call it
    #[arg(long, default_value = "")]
    label: String,
    #[command(flatten)]
    coding: Coding,
    /// A solid-state drive, partition or image that takes writes for it: both become one disk, which needs both
    #[arg(long, value_name = "DEVICE")]
    ssd: Option<PathBuf>,
    /// Make an image file of this size for --ssd
    #[arg(long, value_name = "SIZE", requires = "ssd")]
    ssd_size: Option<Size>,
    /// How the hard disk's write buffer takes writes, as `claystone disk profile --keep` wrote it; `none`: nothing is sent there
    /// [default: it is measured now]
    #[arg(long, value_name = "FILE", requires = "ssd")]
    profile: Option<PathBuf>,
    /// Make images that are as slow as drives, to try them: this hard disk ("wd-10tb-like", "synthetic-small", "synthetic-large"), and
    /// with --ssd-size an NVMe drive. From then on every command takes as long as on those
    #[arg(long, value_name = "DRIVE", requires = "size")]
    emulate: Option<String>,
    /// Also if the device holds a file system or a disk, or the file anything: it is lost
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
        let mut device = self.free(&self.device, self.size, self.emulate.as_deref())?;
        let name = self.device.display();
        let random = HostRandom::from_system().context("the system gives no random numbers")?;
        if let Some(path) = &self.ssd {
            // As it is written on the hard disk: it shall be found from everywhere.
            let path = std::path::absolute(path)?;
            let emulate = self.emulate.as_ref().filter(|_| self.ssd_size.is_some()).map(|_| SOLID_STATE);
            device = self.pair(device, self.free(&path, self.ssd_size, emulate)?, &random)?;
        }
        Disk::format(&device, &format, &HostClock::start(), &random)
            .with_context(|| format!("{name} is not formatted"))?;
        drop(device);
        // Opened again, so what is told is what is there.
        let disk = open_disk(&At { device: self.device.clone(), ssd: self.ssd.clone() }, None)?;
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

    /// A device that holds nothing which would be lost, or a new image.
    fn free(&self, path: &Path, size: Option<Size>, emulate: Option<&str>) -> anyhow::Result<Arc<dyn Device>> {
        let device = match (size, emulate) {
            (Some(Size(bytes)), None) => {
                let device = create(path, bytes)?;
                forget(path)?;
                device
            }
            (Some(Size(bytes)), Some(drive)) => {
                model(drive, 1)?;
                let device = create(path, bytes)?;
                keep(path, drive)?;
                slowed(path, device)?
            }
            (None, _) => open_device(path)?,
        };
        if !self.force {
            refuse_occupied(path, &*device)?;
        }
        Ok(device)
    }

    /// Makes one device of two.
    fn pair(&self, hdd: Arc<dyn Device>, ssd: Arc<dyn Device>, random: &HostRandom) -> anyhow::Result<Arc<dyn Device>> {
        let profile = match &self.profile {
            Some(path) if path.as_os_str() == "none" => None,
            Some(path) => Some(read_profile(path)?),
            None => match &self.emulate {
                Some(drive) => Some(profile_of(drive)?),
                None => measured(&*hdd)?,
            },
        };
        let queue_max = match &profile {
            Some(profile) => Some(queue_of(&ssd, profile)?),
            None => None,
        };
        let format = TierFormat { profile, queue_max, ..TierFormat::default() };
        let name = self.device.display();
        TieredDevice::format(&*hdd, &*ssd, &format, random).with_context(|| format!("{name} is not formatted"))?;
        let clock = HostClock::start();
        let pair = TieredDevice::open(hdd, Some(ssd), Arc::new(move || clock.now()), TierTuning::default())?;
        Ok(Arc::new(pair))
    }
}

/// How a hard disk's write buffer takes writes; `None`, and said, if that cannot be told in advance.
fn measured(hdd: &dyn Device) -> anyhow::Result<Option<Profile>> {
    let clock = HostClock::start();
    let mut plan = ProfilePlan { rounds: 1, ..ProfilePlan::default() };
    plan.run_bytes = plan.run_bytes.min(hdd.geometry().sectors * SECTOR_BYTES as u64);
    match measure(hdd, &|| clock.now(), &plan)?.finding() {
        Finding::Buffered(profile) => Ok(Some(profile)),
        Finding::Unpredictable(why) => {
            note(format_args!("all writes go to the solid-state drive first: of {}, {why}", hdd.label()));
            Ok(None)
        }
    }
}

/// The queue of a solid-state drive at which it is not slower yet than the hard disk's buffer. What it held is lost.
///
/// # Errors
/// It is too small, or fails.
pub fn queue_of(ssd: &Arc<dyn Device>, profile: &Profile) -> anyhow::Result<u16> {
    let by_queue = queued_writes(ssd, PROBE_BYTES)?;
    let queue = queue_threshold(&by_queue, profile.latency(WriteState::Mid, PROBE_BYTES as u64));
    Ok(u16::try_from(queue).expect("no more are measured"))
}

fn create(path: &Path, bytes: u64) -> anyhow::Result<Arc<dyn Device>> {
    let name = path.display();
    let sectors = bytes / SECTOR_BYTES as u64;
    ensure!(sectors > 0, "a size of {bytes} is less than a sector");
    match HostDevice::create(path, sectors) {
        Ok(device) => Ok(Arc::new(device)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            bail!("{name} is there already: a size makes a new image; without it, {name} itself is formatted")
        }
        Err(error) => Err(error).with_context(|| format!("the image {name} cannot be made")),
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

/// A length of many writes.
const PROBE_BYTES: usize = 16 << 10;
