//! An emulated hard disk in memory, as slow as a real one, with a new disk on it.

use std::fmt;
use std::sync::Arc;

use anyhow::{Context, ensure};
use claystone_env::{Device, Geometry, Random, SECTOR_BYTES};
use claystone_files::{Disk, Tuning};
use claystone_host::{HostClock, HostRandom, RealTimeDevice};
use claystone_sim::{DeviceFaults, DeviceStats, HddModel, SimDevice};
use serde::Serialize;

use super::disk::{Coding, Size, give_to_user};

/// Makes the drive, whose sectors fail softly as often as `coding` expects, and the disk.
///
/// # Errors
/// It is too small for a disk; no such code; the system gives no random numbers.
pub fn emulate(
    Size(bytes): Size,
    coding: &Coding,
    tuning: impl FnOnce(Geometry) -> Tuning,
) -> anyhow::Result<(Disk, SimDevice)> {
    let sectors = bytes / SECTOR_BYTES as u64;
    ensure!(sectors > 0, "--emulate {bytes} is less than a sector");
    let random = HostRandom::from_system().context("the system gives no random numbers")?;
    let drive = SimDevice::alone("hdd", HddModel::new(sectors), random.next_u64());
    let device: Arc<dyn Device> = Arc::new(RealTimeDevice::new(drive.attach(), Arc::new(drive.clone())));
    let clock = Arc::new(HostClock::start());
    Disk::format(&device, &coding.format("")?, &*clock, &random).context("the emulated hard disk is not formatted")?;
    drive.set_faults(DeviceFaults::soft(coding.soft_failures));
    let tuning = tuning(device.geometry());
    let disk = Disk::open(device, clock, tuning).context("the disk on it cannot be opened")?;
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

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;

    use claystone_env::{Effort, Moment, Sector};
    use claystone_host::WaitingClock;
    use claystone_sim::{BufferModel, DriveModel, SsdModel};

    use super::*;

    /// Moves when somebody waits for it.
    #[derive(Clone, Default)]
    struct TestClock(Arc<Mutex<Duration>>);

    impl WaitingClock for TestClock {
        fn now(&self) -> Moment {
            Moment(*self.0.lock().unwrap_or_else(PoisonError::into_inner))
        }

        fn wait_until(&self, moment: Moment) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = moment.0;
        }
    }

    #[test]
    fn programs_wait_for_an_emulated_drive_to_the_nanosecond() {
        let drive = SimDevice::alone("hdd", HddModel::new(20_000), 5);
        let clock = TestClock::default();
        let device = RealTimeDevice::with_clock(drive.attach(), Arc::new(drive.clone()), clock.clone());
        drive.set_faults(DeviceFaults::soft(0.01));
        let mut sectors = vec![3; 300 * SECTOR_BYTES];
        for first in [0, 300, 12_000, 7, 19_700] {
            device.write(Sector(first), &sectors).expect("written");
            assert_eq!(clock.now().0, drive.spent());
            device.sync().expect("synced");
            assert_eq!(clock.now().0, drive.spent());
            device.read(Sector(first), &mut sectors, Effort::Retry).expect("read");
            assert_eq!(clock.now().0, drive.spent());
        }
        assert!(drive.stats().retries > 0);
    }

    #[test]
    fn a_write_buffer_and_flash_take_their_time_in_real_time_too_and_idleness_counts() {
        let hdd = HddModel::buffered(20_000, BufferModel { noise_percent: 0, ..BufferModel::wd_10tb_like() });
        let ssd = DriveModel::Ssd { sectors: 20_000, model: SsdModel::nvme_desktop() };
        for (model, quick) in [(DriveModel::Hdd(hdd), 66.0), (ssd, 28.5)] {
            let drive = SimDevice::alone("drive", model, 5);
            let clock = TestClock::default();
            let device = RealTimeDevice::with_clock(drive.attach(), Arc::new(drive.clone()), clock.clone());
            let mut next = 0;
            let mut write = || {
                let begun = clock.now();
                device.write(Sector(next), &[3; 4 * SECTOR_BYTES]).expect("written");
                next += 4;
                clock.now().since(begun)
            };
            let took = write().as_secs_f64() * 1e6;
            assert!((took - quick).abs() < 0.1, "{took} us");
            if model == ssd {
                continue;
            }
            while write() < Duration::from_millis(1) {}
            while write() < Duration::from_millis(1) {}
            for _ in 0..100 {
                write();
            }
            // Long enough for the drive to begin writing its buffer out by itself, not long enough to end it.
            clock.wait_until(clock.now().after(Duration::from_millis(11)));
            assert!(write() > Duration::from_millis(5), "who comes meanwhile waits");
        }
    }
}
