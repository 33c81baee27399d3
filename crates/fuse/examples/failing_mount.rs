//! Mounts a disk on an image whose sectors fail softly: `cargo run --example failing_mount -- IMAGE DIR P`. Each sector that is
//! read without retrying fails with chance P, as in the paper's own experiments. Standard output says `ready`; when
//! standard input ends, it unmounts and says how many sectors failed, and what became of them.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use claystone_env::{
    Device, DeviceError, Effort, FailedSector, Geometry, Random, SECTOR_BYTES, Sector, SectorFailure, SectorRange,
};
use claystone_files::{Disk, FileTree, Tuning};
use claystone_fuse::{Mount, MountOptions};
use claystone_host::{HostClock, HostDevice, HostRandom};

struct Failing {
    device: HostDevice,
    random: HostRandom,
    chance: f64,
}

impl Device for Failing {
    fn label(&self) -> String {
        self.device.label()
    }

    fn geometry(&self) -> Geometry {
        Geometry { fails_fast: true, ..self.device.geometry() }
    }

    // Test of: [lec §4.1]
    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        let mut failed = self.device.read(first, into, effort)?;
        if effort == Effort::FailFast {
            for (number, bytes) in (first.0..).zip(into.chunks_exact_mut(SECTOR_BYTES)) {
                let fails = (self.random.next_u64() as f64) < self.chance * u64::MAX as f64;
                if fails && failed.iter().all(|failed| failed.sector.0 != number) {
                    bytes.fill(0);
                    failed.push(FailedSector { sector: Sector(number), failure: SectorFailure::Soft });
                }
            }
            failed.sort_unstable();
        }
        Ok(failed)
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        self.device.write(first, bytes)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.device.sync()
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.device.discard(range)
    }
}

/// Everything is read back beside the work on it.
const SCRUB_CYCLE: Duration = Duration::from_secs(60);

#[expect(clippy::disallowed_methods, reason = "a program of its own, with a thread that tends the disk")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "usage: failing_mount IMAGE DIR P";
    let mut arguments = std::env::args_os().skip(1);
    let image = PathBuf::from(arguments.next().ok_or(usage)?);
    let directory = PathBuf::from(arguments.next().ok_or(usage)?);
    let chance: f64 = arguments.next().ok_or(usage)?.to_string_lossy().parse()?;
    let device = Failing { device: HostDevice::open(&image)?, random: HostRandom::from_system()?, chance };
    let disk = Arc::new(Disk::open(Arc::new(device), Arc::new(HostClock::start()), Tuning::default())?);
    let options = MountOptions { source: image.display().to_string(), ..MountOptions::default() };
    let mut mount = Mount::start(disk.clone(), &directory, &options)?;
    let stopped = Arc::new(AtomicBool::new(false));
    let tending = {
        let (disk, stopped) = (disk.clone(), stopped.clone());
        std::thread::spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                if let Err(error) = disk.tend() {
                    eprintln!("{error}");
                }
                if let Err(error) = disk.scrub_in_passing(SCRUB_CYCLE) {
                    eprintln!("{error}");
                }
                std::thread::sleep(Duration::from_millis(500));
            }
        })
    };
    println!("ready");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    mount.unmount()?;
    stopped.store(true, Ordering::Release);
    tending.join().map_err(|_| "the thread that tends the disk panicked")?;
    println!("{:?}", disk.health());
    println!("{:?}", disk.check()?);
    disk.sync_all()?;
    Ok(())
}
