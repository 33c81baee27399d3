//! An emulated hard disk in memory, as slow as a real one, with a new disk on it.

use std::fmt;
use std::sync::Arc;

use anyhow::{Context, ensure};
use claystone_env::{Device, Random, SECTOR_BYTES};
use claystone_files::{Disk, Tuning};
use claystone_host::{HostClock, HostRandom, RealTimeDevice};
use claystone_sim::{DeviceFaults, DeviceStats, HddModel, SimDevice};
use serde::Serialize;

use super::disk::{Coding, Size, give_to_user};

/// Makes the drive, whose sectors fail softly as often as `coding` expects, and the disk.
///
/// # Errors
/// It is too small for a disk; no such code; the system gives no random numbers.
pub fn emulate(Size(bytes): Size, coding: &Coding) -> anyhow::Result<(Disk, SimDevice)> {
    let sectors = bytes / SECTOR_BYTES as u64;
    ensure!(sectors > 0, "--emulate {bytes} is less than a sector");
    let random = HostRandom::from_system().context("the system gives no random numbers")?;
    let drive = SimDevice::alone("hdd", HddModel::new(sectors), random.next_u64());
    let device: Arc<dyn Device> = Arc::new(RealTimeDevice::new(drive.attach(), Arc::new(drive.clone())));
    let clock = Arc::new(HostClock::start());
    Disk::format(&device, &coding.format("")?, &*clock, &random).context("the emulated hard disk is not formatted")?;
    drive.set_faults(DeviceFaults::soft(coding.soft_failures));
    let disk = Disk::open(device, clock, Tuning::default()).context("the disk on it cannot be opened")?;
    give_to_user(&disk)?;
    Ok((disk, drive))
}

/// What a drive did, for people and programs.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct DriveReport {
    sectors_read: u64,
    sectors_written: u64,
    soft_failures: u64,
    retries: u64,
    busy_seconds: f64,
}

impl DriveReport {
    /// Of an emulated drive, so far.
    pub fn of(drive: &SimDevice) -> DriveReport {
        let DeviceStats { sectors_read, sectors_written, soft_failures, retries, .. } = drive.stats();
        let busy_seconds = drive.spent().as_secs_f64();
        DriveReport { sectors_read, sectors_written, soft_failures, retries, busy_seconds }
    }
}

impl fmt::Display for DriveReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DriveReport { sectors_read, sectors_written, soft_failures, retries, busy_seconds } = self;
        write!(
            f,
            "busy for {busy_seconds:.1} s: {sectors_read} sectors read, {sectors_written} written; {soft_failures} did not \
             read at once, {retries} were retried"
        )
    }
}
