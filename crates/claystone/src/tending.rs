//! What an open disk on a device needs every second: what waits is flushed, a little is scrubbed, and what a person should
//! know is said.
//!
//! Invariants:
//! 1. What stays wrong is said once, and again only after it was right in between.
//! 2. No turn is the last: after a panic the next one begins anew. A disk that was being changed then takes no writes any more, and says so.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use claystone_env::ParityVerdict;
use claystone_files::{Disk, TendAgain};
use claystone_host::RecoveryLimits;

use crate::drives::Opening;
use crate::sums_memory::SumsMemory;

/// How disks on devices are cared for while they are open. By default they are left as they are.
#[derive(Debug, Clone, Default)]
pub struct Care {
    /// Everything is read once in so long; `None`: nothing is scrubbed.
    pub scrub_cycle: Option<Duration>,
    /// How their devices are opened.
    pub opening: Opening,
    /// Memory for checksums of each.
    pub sums_memory: SumsMemory,
    /// How many disks are to be open.
    pub disks: usize,
}

impl Care {
    /// Limits of so many seconds; none for 0.
    pub fn limits_of(seconds: u16) -> Option<RecoveryLimits> {
        let ms = 1000 * u32::from(seconds);
        RecoveryLimits::new(Some(ms), Some(ms))
    }
}

/// See the module. One for each open disk.
#[derive(Debug)]
pub struct Tending {
    /// Whether nothing may be written: then it is only looked at.
    only_looks: bool,
    /// Everything is read once in so long; `None`: nothing is scrubbed.
    scrub_cycle: Option<Duration>,
    /// Until the next turn.
    pause: Duration,
    /// When the disk was last looked at.
    looked: Instant,
    looks: u64,
    not_flushed: bool,
    not_scrubbed: bool,
    too_little_parity: bool,
}

impl Tending {
    /// Of a disk that was opened now.
    pub fn new(scrub_cycle: Option<Duration>) -> Tending {
        let (pause, looked) = (LOOK_EVERY, Instant::now());
        Tending {
            only_looks: false,
            scrub_cycle,
            pause,
            looked,
            looks: 0,
            not_flushed: false,
            not_scrubbed: false,
            too_little_parity: false,
        }
    }

    /// Of a disk that was opened now and that nothing is written to.
    pub fn looking() -> Tending {
        Tending { only_looks: true, ..Tending::new(None) }
    }

    /// When the next turn is due: sooner while much is written.
    pub fn pause(&self) -> Duration {
        self.pause
    }

    /// To be called after each [`Tending::pause`]. Blocks.
    pub fn turn(&mut self, disk: &Disk) {
        let label = disk.label();
        if catch_unwind(AssertUnwindSafe(|| self.tend(disk, &label))).is_err() {
            // The panic itself is told where it is raised.
            tracing::error!(disk = label, "tending the disk panicked: it is tried again");
            *self = Tending { pause: AGAIN_AFTER, only_looks: self.only_looks, ..Tending::new(self.scrub_cycle) };
        }
    }

    fn tend(&mut self, disk: &Disk, label: &str) {
        self.pause = if self.only_looks { LOOK_EVERY } else { self.flush(disk, label) };
        if self.looked.elapsed() < LOOK_EVERY && self.looks > 0 {
            return;
        }
        self.looked = Instant::now();
        if let Err(error) = disk.load_swaths_in_passing() {
            tracing::debug!(disk = label, %error, "checksums that do not read are not in memory");
        }
        if let Some(cycle) = self.scrub_cycle {
            self.scrub(disk, label, cycle);
        }
        if self.looks.is_multiple_of(JUDGED_EVERY) {
            self.judge(disk, label);
        }
        self.looks += 1;
    }

    /// Returns when that is due again.
    fn flush(&mut self, disk: &Disk, label: &str) -> Duration {
        let tended = disk.tend();
        match &tended {
            Err(error) if first(&mut self.not_flushed) => {
                tracing::error!(disk = label, %error, "what was written lately is not at its place");
            }
            Err(_) => {}
            Ok(_) => self.not_flushed = false,
        }
        match tended {
            Ok(TendAgain::Now) => Duration::ZERO,
            Ok(TendAgain::Soon) => TEND_EVERY,
            Ok(TendAgain::Later) | Err(_) => LOOK_EVERY,
        }
    }

    fn scrub(&mut self, disk: &Disk, label: &str, cycle: Duration) {
        match disk.scrub_in_passing(cycle) {
            Ok(found) => {
                self.not_scrubbed = false;
                for (inode, sector) in found.lost.iter().take(LOST_SHOWN) {
                    tracing::warn!(disk = label, inode = inode.0, sector, "the scrub found a sector of a file lost");
                }
                if found.lost.len() > LOST_SHOWN {
                    tracing::warn!(disk = label, sectors = found.lost.len(), "the scrub found so many lost at once");
                }
                if found.catalog_damaged {
                    let pages = found.pages_lost.len();
                    tracing::error!(
                        disk = label,
                        pages,
                        "the catalog is damaged: no copy of so many pages is right; copy the files to another disk now"
                    );
                }
            }
            Err(error) if first(&mut self.not_scrubbed) => {
                tracing::error!(
                    disk = label,
                    error = format!("{:#}", anyhow::Error::from(error)),
                    "the scrub goes on behind what it cannot read"
                );
            }
            Err(_) => {}
        }
    }

    /// Says that parity is too little. Returns whether it said so now.
    fn judge(&mut self, disk: &Disk, label: &str) -> bool {
        let health = disk.health();
        if health.verdict != ParityVerdict::TooLittle {
            // What is open between both is no reason to say it again.
            self.too_little_parity &= health.verdict != ParityVerdict::Enough;
            return false;
        }
        let says = first(&mut self.too_little_parity);
        if says {
            tracing::warn!(
                disk = label,
                soft_failures = health.soft.seen,
                stated = health.soft.stated,
                parity = health.parity,
                wanted = health.parity_wanted,
                "more sectors fail softly than parity was chosen for: losses are likelier than was accepted"
            );
        }
        says
    }
}

/// Sets a flag; returns whether it was not set before.
fn first(flag: &mut bool) -> bool {
    !std::mem::replace(flag, true)
}

/// How often a disk is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// When it is tried again to tend it.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
/// How often it is tended while something waits.
const TEND_EVERY: Duration = Duration::from_millis(50);
/// Looks between two at the statistics.
const JUDGED_EVERY: u64 = 60;
const LOST_SHOWN: usize = 5;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use claystone_env::testing::MemoryDevice;
    use claystone_env::{Device, DeviceError, Effort, FailedSector, Geometry, Sector, SectorRange};
    use claystone_files::{FileTree, Format, Inode, Kind, NewAttributes, NewNode, Tuning};
    use claystone_host::{HostClock, HostRandom};
    use claystone_sim::{DeviceFaults, HddModel, SimDevice, run};

    use super::*;

    /// A device whose next write panics, if that was asked for.
    struct Panicking(MemoryDevice, AtomicBool);

    impl Device for Panicking {
        fn label(&self) -> String {
            self.0.label()
        }

        fn geometry(&self) -> Geometry {
            self.0.geometry()
        }

        fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
            self.0.read(first, into, effort)
        }

        fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
            assert!(!self.1.swap(false, Ordering::Relaxed), "on purpose");
            self.0.write(first, bytes)
        }

        fn sync(&self) -> Result<(), DeviceError> {
            self.0.sync()
        }

        fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
            self.0.discard(range)
        }
    }

    #[test]
    fn a_panic_ends_one_turn() {
        let device = Arc::new(Panicking(MemoryDevice::new(1 << 14), AtomicBool::new(false)));
        let clock = Arc::new(HostClock::start());
        let format =
            Format { data: 50, parity: 2, copies: 2, soft_failures: 1e-4, loss_target: 1e-6, label: String::new() };
        let random = HostRandom::from_system().expect("the system's");
        let as_device: Arc<dyn Device> = device.clone();
        Disk::format(&as_device, &format, &*clock, &random).expect("formatted");
        let tuning = Tuning { flush_after: Duration::ZERO, ..Tuning::default() };
        let disk = Disk::open(as_device, clock, tuning).expect("opens");
        let mut tending = Tending::new(None);
        tending.turn(&disk);
        assert!(tending.pause() <= LOOK_EVERY && !tending.not_flushed);
        let attributes = NewAttributes { permissions: Some(0o700), ..NewAttributes::default() };
        disk.set_attributes(Inode::ROOT, &attributes).expect("set");
        device.1.store(true, Ordering::Relaxed);
        tending.turn(&disk);
        assert_eq!((tending.pause(), tending.not_flushed), (AGAIN_AFTER, false));
        tending.turn(&disk);
        assert_eq!((tending.pause(), tending.not_flushed), (LOOK_EVERY, true), "it takes no writes any more");
    }

    #[test]
    fn too_little_parity_is_said_once() {
        run(3, async |world| {
            let hand: SimDevice = world.device("d", HddModel::new(20_000));
            let device: Arc<dyn Device> = hand.attach();
            let clock = Arc::new(HostClock::start());
            let format =
                Format { data: 50, parity: 2, copies: 2, soft_failures: 1e-4, loss_target: 1e-6, label: String::new() };
            let random = HostRandom::from_system().expect("the system's");
            Disk::format(&device, &format, &*clock, &random).expect("formatted");
            let disk = Disk::open(device, clock, Tuning::default()).expect("opens");
            let node = NewNode {
                kind: Kind::File,
                permissions: 0o600,
                owner: 0,
                owner_group: 0,
                device: 0,
                target: Vec::new(),
            };
            let file = disk.make(Inode::ROOT, b"f", &node).expect("made").inode;
            disk.write(file, 0, &vec![7; 2000 * 4096]).expect("written");
            disk.sync(file).expect("synced");
            let mut tending = Tending::new(Some(Duration::from_secs(86_400)));
            assert!(!tending.judge(&disk, "d"), "nothing was read");
            hand.set_faults(DeviceFaults::soft(0.01));
            for _ in 0..4 {
                disk.scrub(&mut |_| true).expect("scrubbed");
            }
            assert!(tending.judge(&disk, "d"));
            assert!(!tending.judge(&disk, "d"), "once");
            tending.turn(&disk);
            assert!(tending.too_little_parity && !tending.not_flushed && !tending.not_scrubbed);
        });
    }
}
