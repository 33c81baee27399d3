//! An emulated hard disk under groups, and the time that work on it takes: the drive's, exact and simulated, and the
//! program's own, measured.
//!
//! Invariants:
//! 1. The program's time is processor time of this thread outside of calls of the device: checksums, coding, copying.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use claystone_env::{Device, DeviceError, Effort, FailedSector, Geometry, SECTOR_BYTES, Sector, SectorRange};
use claystone_group::{DiskId, GroupCode, GroupShape, Groups};
use claystone_sim::{DeviceFaults, HddModel, SimDevice, World};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::time::{ClockId, clock_gettime};

/// Sectors of the drive: 500 GB.
const DRIVE_SECTORS: u64 = 122_070_312;

/// See the module.
pub struct Drive {
    device: SimDevice,
    metered: Arc<Metered>,
    code: GroupCode,
}

/// What work took.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Took {
    /// The drive's time.
    pub drive: Duration,
    /// The program's own time.
    pub software: Duration,
    /// What of it came after the last read: what no reading goes on beside.
    pub software_at_end: Duration,
}

impl Drive {
    /// An empty drive that retries for `retry`, and groups of this shape.
    ///
    /// # Panics
    /// If no code has this shape.
    pub fn new(world: &World, retry: Duration, shape: GroupShape) -> Drive {
        let device = world.device("drive", HddModel { retry, ..HddModel::new(DRIVE_SECTORS) });
        let metered = Arc::new(Metered {
            device: device.attach(),
            inside: Count::default(),
            last_read: Count::default(),
            failed: Mutex::default(),
        });
        let code = GroupCode::new(shape.data, shape.parity).expect("a shape of the model");
        Drive { device, metered, code }
    }

    /// Its groups, with nothing in memory.
    pub fn groups(&self) -> Groups {
        self.groups_with(16 << 20)
    }

    /// The same, with so many bytes of memory for checksums.
    pub fn groups_with(&self, sums_bytes: usize) -> Groups {
        Groups::new(self.metered.clone(), self.code.clone(), DiskId(*b"claystone bench!"), sums_bytes)
    }

    /// From now on reads of a sector fail softly with this chance.
    pub fn fail_softly(&self, chance: f64) {
        self.device.set_faults(DeviceFaults::soft(chance));
    }

    /// Brings the head to a sector, with all writes on the medium.
    ///
    /// # Errors
    /// Never, on an emulated drive without such faults.
    pub fn move_head(&self, to: Sector) -> Result<(), DeviceError> {
        self.metered.sync()?;
        let mut sector = vec![0; SECTOR_BYTES];
        let before = Sector(to.0.checked_sub(1).expect("a file does not begin with the drive"));
        self.metered.read(before, &mut sector, Effort::Retry).map(drop)
    }

    /// Does some work, and tells what it took.
    ///
    /// # Errors
    /// Those of the work.
    pub fn time<E>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<Took, E> {
        let (drive, inside, begun) = (self.device.spent(), self.metered.inside.load(), thread_time());
        self.metered.last_read.store(begun);
        work()?;
        let (inside, ended) = (self.metered.inside.load() - inside, thread_time());
        Ok(Took {
            drive: self.device.spent() - drive,
            software: (ended - begun).saturating_sub(inside),
            software_at_end: ended - self.metered.last_read.load(),
        })
    }

    /// The sectors that failed to read at once since this was asked for.
    pub fn take_failed(&self) -> BTreeSet<Sector> {
        std::mem::take(&mut self.metered.failed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The device, for a disk.
    pub fn shared(&self) -> Arc<dyn Device> {
        self.metered.clone()
    }

    /// The device, for writes of updates.
    pub fn device(&self) -> &dyn Device {
        &*self.metered
    }
}

impl std::ops::AddAssign for Took {
    fn add_assign(&mut self, other: Took) {
        self.drive += other.drive;
        self.software += other.software;
        self.software_at_end = other.software_at_end;
    }
}

/// The content of sector `number` of every file: each differs from its neighbours.
pub fn content(number: u64) -> &'static [u8] {
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut bytes = vec![0; WINDOW + SECTOR_BYTES];
        ChaCha8Rng::seed_from_u64(17).fill_bytes(&mut bytes);
        bytes
    });
    const WINDOW: usize = 1 << 20;
    &BYTES[(number as usize * 72) % WINDOW..][..SECTOR_BYTES]
}

/// The content of consecutive sectors of a file.
pub fn contents(first: u64, sectors: u64) -> Vec<&'static [u8]> {
    (first..first + sectors).map(content).collect()
}

/// Checks what was read.
///
/// # Panics
/// If it is not what was written.
pub fn check(first: u64, found: &[u8]) {
    for (number, found) in (first..).zip(found.chunks_exact(SECTOR_BYTES)) {
        assert!(found == content(number), "sector {number} is wrong");
    }
}

/// A device that counts the processor time spent in it.
struct Metered {
    device: Arc<dyn Device>,
    inside: Count,
    last_read: Count,
    failed: Mutex<BTreeSet<Sector>>,
}

impl Metered {
    fn meter<T>(&self, call: impl FnOnce() -> T) -> (T, Duration) {
        let begun = thread_time();
        let result = call();
        let ended = thread_time();
        self.inside.store(self.inside.load() + (ended - begun));
        (result, ended)
    }
}

impl Device for Metered {
    fn label(&self) -> String {
        self.device.label()
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn elapsed(&self) -> Option<Duration> {
        self.device.elapsed()
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        let (result, ended) = self.meter(|| self.device.read(first, into, effort));
        self.last_read.store(ended);
        let unread = result.iter().flatten().map(|failed| failed.sector);
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).extend(unread);
        result
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        self.meter(|| self.device.write(first, bytes)).0
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.meter(|| self.device.sync()).0
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.meter(|| self.device.discard(range)).0
    }
}

/// A time in nanoseconds; one thread changes it.
#[derive(Default)]
struct Count(AtomicU64);

impl Count {
    fn load(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    fn store(&self, time: Duration) {
        self.0.store(time.as_nanos() as u64, Ordering::Relaxed);
    }
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use claystone_env::Sector;
    use claystone_sim::run;

    use super::super::file::File;
    use super::{Drive, Duration, GroupShape, content};

    #[test]
    fn sectors_differ_from_their_neighbours() {
        assert!((0..20_000).all(|number| content(number) != content(number + 1)));
    }

    /// Sums, data and parity pass under the head once, but for the parity of each run's last group.
    #[test]
    fn a_stream_that_never_fails_takes_its_transfers_to_the_nanosecond() {
        let shape = GroupShape { data: 250, parity: 5 };
        run(1, |world| async move {
            let drive = Drive::new(&world, Duration::from_millis(20), shape);
            let file = File::write(&drive.groups(), Sector(1), 1250).expect("written");
            drive.move_head(file.first).expect("moved");
            let mut buffer = vec![0; 1250 * 4096];
            let mut took = Duration::ZERO;
            let timed = file.stream(&drive.groups(), &mut buffer, |read| {
                took += drive.time(read)?.drive;
                Ok(())
            });
            timed.expect("read");
            assert_eq!(took, Duration::from_micros(33) * (5 * 255 - 5 + 2));
        });
    }

    #[test]
    fn what_is_not_coded_is_retried_and_coded_is_not() {
        for (parity, retries) in [(0, true), (5, false)] {
            run(2, |world| async move {
                let drive = Drive::new(&world, Duration::from_millis(20), GroupShape { data: 250, parity });
                let file = File::write(&drive.groups(), Sector(1), 1500).expect("written");
                drive.move_head(file.first).expect("moved");
                drive.fail_softly(4e-3);
                let mut buffer = vec![0; 1500 * 4096];
                let mut took = Duration::ZERO;
                let timed = file.stream(&drive.groups(), &mut buffer, |read| {
                    took += drive.time(read)?.drive;
                    Ok(())
                });
                timed.expect("read");
                let transfers = Duration::from_micros(33) * (1500 + 6 * parity + 2);
                assert_eq!(took > transfers, retries, "{took:?}");
                assert_eq!(drive.device.stats().retries > 0, retries);
            });
        }
    }
}
