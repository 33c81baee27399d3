//! A device that takes a millisecond for each call, on a clock that moves while somebody waits for it.

use std::sync::Mutex;

use claystone_env::SECTOR_BYTES;
use claystone_env::testing::{MemoryDevice, device_conformance};

use super::*;

/// Memory that counts a time for each call.
struct Slow {
    memory: MemoryDevice,
    each: Duration,
    done_at: Mutex<Duration>,
}

impl Slow {
    fn new(sectors: u64, each: Duration) -> Arc<Slow> {
        Arc::new(Slow { memory: MemoryDevice::new(sectors), each, done_at: Mutex::default() })
    }

    fn done_at(&self) -> std::sync::MutexGuard<'_, Duration> {
        self.done_at.lock().expect("no test panics here")
    }

    fn memory(&self) -> &MemoryDevice {
        *self.done_at() += self.each;
        &self.memory
    }
}

impl EmulatedTime for Slow {
    fn reach(&self, now: Moment) {
        let mut done_at = self.done_at();
        *done_at = now.0.max(*done_at);
    }

    fn done_at(&self) -> Moment {
        Moment(*self.done_at())
    }
}

impl Device for Slow {
    fn label(&self) -> String {
        self.memory.label()
    }

    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        self.memory().read(first, into, effort)
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        self.memory().write(first, bytes)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.memory().sync()
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.memory().discard(range)
    }
}

/// Passes while somebody waits, and wakes him late.
#[derive(Clone, Default)]
struct TestClock(Arc<Mutex<TestTime>>);

#[derive(Default)]
struct TestTime {
    now: Duration,
    late: Duration,
    /// Whether it stands still: waiting returns at once.
    stands: bool,
    waited_for: Vec<Duration>,
}

impl TestClock {
    fn time(&self) -> std::sync::MutexGuard<'_, TestTime> {
        self.0.lock().expect("no test panics here")
    }
}

impl WaitingClock for TestClock {
    fn now(&self) -> Moment {
        Moment(self.time().now)
    }

    fn wait_until(&self, moment: Moment) {
        let mut time = self.time();
        time.waited_for.push(moment.0);
        if !time.stands && moment.0 > time.now {
            time.now = moment.0 + time.late;
        }
    }
}

fn slow_device(clock: &TestClock) -> RealTimeDevice<TestClock> {
    let slow = Slow::new(64, MS);
    RealTimeDevice::with_clock(slow.clone(), slow, clock.clone())
}

fn read(device: &dyn Device) {
    let mut into = vec![0; SECTOR_BYTES];
    assert_eq!(device.read(Sector(3), &mut into, Effort::FailFast).expect("memory reads"), []);
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_slow_device_is_a_device() {
    device_conformance(|sectors| {
        let slow = Slow::new(sectors, Duration::from_micros(1));
        Arc::new(RealTimeDevice::new(slow.clone(), slow))
    });
}

#[test]
fn every_call_takes_its_time() {
    let clock = TestClock::default();
    let device = slow_device(&clock);
    let sector = vec![0; SECTOR_BYTES];
    read(&device);
    assert_eq!(clock.time().now, MS);
    device.write(Sector(1), &sector).expect("written");
    assert_eq!(clock.time().now, 2 * MS);
    device.sync().expect("synced");
    assert_eq!(clock.time().now, 3 * MS);
    device.discard(SectorRange { first: Sector(1), sectors: 2 }).expect("discarded");
    assert_eq!(clock.time().now, 4 * MS);
    device.write_each(&[(Sector(1), &sector), (Sector(7), &sector)]).expect("written");
    assert_eq!(clock.time().now, 6 * MS, "one after the other");
    let mut into = [sector.clone(), sector.clone(), sector];
    let mut reads: Vec<(Sector, &mut [u8])> =
        into.iter_mut().zip(1..).map(|(into, first)| (Sector(first), &mut into[..])).collect();
    assert_eq!(device.read_each(&mut reads, Effort::Retry).len(), 3);
    assert_eq!(clock.time().now, 9 * MS);
    assert_eq!(clock.time().waited_for.len(), 6, "once for each call");
}

#[test]
fn a_device_is_idle_while_nobody_calls() {
    let clock = TestClock::default();
    let device = slow_device(&clock);
    read(&device);
    clock.time().now += 100 * MS;
    read(&device);
    assert_eq!(clock.time().now, 102 * MS);
}

#[test]
fn late_wakings_do_not_add_up() {
    let clock = TestClock::default();
    clock.time().late = MS / 10;
    let device = slow_device(&clock);
    for calls in 1..=100 {
        read(&device);
        assert_eq!(clock.time().now, calls * MS + MS / 10);
    }
    // Later than the next call takes: that one does not wait, and begins no sooner than it may.
    clock.time().late = 5 * MS;
    read(&device);
    assert_eq!(clock.time().now, 106 * MS);
    clock.time().late = Duration::ZERO;
    let waited_for: Vec<Duration> = (0..6)
        .map(|_| {
            read(&device);
            *clock.time().waited_for.last().expect("it waited")
        })
        .collect();
    assert_eq!(waited_for, [102, 103, 104, 105, 106, 107].map(|ms| ms * MS));
    assert_eq!(clock.time().now, 107 * MS);
}

#[test]
fn who_comes_while_the_device_is_busy_waits_for_the_others_too() {
    let clock = TestClock::default();
    clock.time().stands = true;
    let device = slow_device(&clock);
    for _ in 0..3 {
        read(&device);
    }
    assert_eq!(clock.time().waited_for, [MS, 2 * MS, 3 * MS]);
}

#[test]
fn of_those_who_wait_the_nearest_ahead_is_next() {
    /// Notes where it reads, and lets the first read go on when it is told.
    struct Noting {
        slow: Arc<Slow>,
        read: Mutex<Vec<u64>>,
        go_on: std::sync::Barrier,
    }

    impl Device for Noting {
        fn label(&self) -> String {
            self.slow.label()
        }

        fn geometry(&self) -> Geometry {
            self.slow.geometry()
        }

        fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
            let is_first = {
                let mut read = self.read.lock().expect("no test panics here");
                read.push(first.0);
                read.len() == 1
            };
            if is_first {
                self.go_on.wait();
            }
            self.slow.read(first, into, effort)
        }

        fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
            self.slow.write(first, bytes)
        }

        fn sync(&self) -> Result<(), DeviceError> {
            self.slow.sync()
        }

        fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
            self.slow.discard(range)
        }
    }

    let slow = Slow::new(64, MS);
    let noting = Arc::new(Noting { slow: slow.clone(), read: Mutex::default(), go_on: std::sync::Barrier::new(2) });
    let clock = TestClock::default();
    let device = Arc::new(RealTimeDevice::with_clock(noting.clone(), slow, clock.clone()));
    let mut threads = Vec::new();
    for (came, first) in [10, 40, 5, 12].into_iter().enumerate() {
        let reader = device.clone();
        threads.push(std::thread::spawn(move || {
            reader.read(Sector(first), &mut vec![0; SECTOR_BYTES], Effort::FailFast).expect("memory reads");
        }));
        // The first has the device, the others wait.
        while device.turns().has.is_none() || device.turns().queue.len() != came {
            std::thread::yield_now();
        }
    }
    noting.go_on.wait();
    for thread in threads {
        thread.join().expect("no reader panics");
    }
    assert_eq!(*noting.read.lock().expect("no test panics here"), [10, 12, 40, 5]);
    assert_eq!(clock.time().now, 4 * MS, "one after the other");
}
