//! Who waits for whom.

use super::*;

/// A device that waits in a write, and may fail it.
struct Gated {
    device: Arc<dyn Device>,
    /// Writes before that one.
    left: AtomicI64,
    /// It is there.
    at_gate: Mutex<Sender<()>>,
    opened: Mutex<Receiver<()>>,
    fails: bool,
}

impl Gated {
    /// The device, what tells that the write is there, and what lets it go on.
    fn new(device: Arc<dyn Device>, fails: bool) -> (Arc<Gated>, Receiver<()>, Sender<()>) {
        let ((at_gate, reached), (open_gate, opened)) = (channel(), channel());
        let left = AtomicI64::new(i64::MAX);
        let (at_gate, opened) = (Mutex::new(at_gate), Mutex::new(opened));
        (Arc::new(Gated { device, left, at_gate, opened, fails }), reached, open_gate)
    }
}

impl Device for Gated {
    fn label(&self) -> String {
        self.device.label()
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        self.device.read(first, into, effort)
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 0 {
            held_by_test(&self.at_gate).send(()).expect("the test waits");
            held_by_test(&self.opened).recv().expect("the test opens it");
            let range = SectorRange { first, sectors: (bytes.len() / SECTOR_BYTES) as u64 };
            if self.fails {
                return Err(DeviceError::Write { range, source: io::Error::other("it was not taken") });
            }
        }
        self.device.write(first, bytes)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.device.sync()
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.device.discard(range)
    }
}

fn held_by_test<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().expect("nobody panicked")
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a write and a sync at once")]
fn a_write_that_fails_while_a_sync_waits_for_it_is_not_lost() {
    let hdd: Arc<dyn Device> = Arc::new(MemoryDevice::new(HOME + LOG + 2));
    let ssd: Arc<dyn Device> = Arc::new(MemoryDevice::new(LOG + 2));
    formatted(&*hdd, &*ssd);
    let (gated, reached, open_gate) = Gated::new(ssd, true);
    let device = TieredDevice::open(hdd.clone(), Some(gated.clone()), now(), tuning(1_000_000)).expect("open");
    gated.left.store(0, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&device, 7, 1));
        reached.recv().expect("the write came");
        let syncer = scope.spawn(|| device.sync());
        // It has taken the record, and waits for it.
        while device.state().marking.is_empty() {
            std::thread::yield_now();
        }
        open_gate.send(()).expect("the write waits");
        writer.join().expect("memory has it");
        syncer.join().expect("no panic").expect("it goes on with the hard disk");
    });
    assert_eq!(content(&device, 7), Some(sector_pattern(1, 1)));
    device.sync().expect("sync");
    assert_eq!(content(&device, 7), Some(sector_pattern(1, 1)));
    drop(device);
    let device = TieredDevice::open(hdd, None, now(), tuning(2)).expect("the loss is known");
    assert_eq!(content(&device, 7), Some(sector_pattern(1, 1)));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a write and a read at once")]
fn what_was_copied_is_read_when_it_has_come_to_the_hard_disk() {
    let hdd: Arc<dyn Device> = Arc::new(MemoryDevice::new(HOME + LOG + 2));
    let ssd = SimDevice::alone("ssd", HddModel { fails_fast: false, ..HddModel::new(LOG + 2) }, 1);
    formatted(&*hdd, &*ssd.attach());
    let (gated, reached, open_gate) = Gated::new(hdd, false);
    let tuning = TierTuning { copy_sectors_max: 20, ..tuning(1) };
    let device = TieredDevice::open(gated.clone(), Some(ssd.attach()), now(), tuning).expect("open");
    gated.left.store(0, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&device, 7, 1));
        reached.recv().expect("the write came");
        device.sync().expect("the solid-state drive has a copy");
        ssd.set_removed(true);
        let reader = scope.spawn(|| content(&device, 7));
        while device.state().ssd == SsdState::Present {
            std::thread::yield_now();
        }
        (0..1000).for_each(|_| std::thread::yield_now());
        open_gate.send(()).expect("the write waits");
        writer.join().expect("it is written");
        assert_eq!(reader.join().expect("no panic"), Some(sector_pattern(1, 1)));
    });
}

/// A read is under way from now on, and what it may read is not freed.
fn read_for_ever(device: &TieredDevice) {
    let mut state = device.state();
    let reader = state.next_reader;
    state.next_reader += 1;
    state.readers.insert(reader);
}

/// Waits until somebody waits for reads to end.
fn until_room_waits_for_reads(device: &TieredDevice) {
    while device.state().freed.is_empty() || device.state().counts.waits == 0 {
        std::thread::yield_now();
    }
    (0..1000).for_each(|_| std::thread::yield_now());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a write that waits for room, and a drive that fails")]
fn who_waits_for_room_goes_on_when_the_solid_state_drive_fails() {
    let pair = Pair::new(1, 1_000_000);
    let device = pair.opened();
    read_for_ever(&device);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0.. {
                write(&device, number % HOME, number);
                if device.state().ssd != SsdState::Present {
                    return number;
                }
            }
            unreachable!("it fails")
        });
        until_room_waits_for_reads(&device);
        pair.ssd.set_removed(true);
        device.ssd_failed(&io::Error::other("it is gone"));
        let last = writer.join().expect("no panic");
        assert_eq!(content(&device, last % HOME), Some(sector_pattern(last, 1)));
    });
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a write that waits for room, and a sync that fails")]
fn who_waits_for_room_is_told_when_the_hard_disk_fails() {
    let pair = Pair::new(1, 1_000_000);
    let device = pair.opened();
    read_for_ever(&device);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let fills = |number: u64| device.write(Sector(number % HOME), &sector_pattern(number, 1));
            (0..10 * LOG).find_map(|number| fills(number).err())
        });
        until_room_waits_for_reads(&device);
        device.failed();
        assert!(writer.join().expect("no panic").is_some(), "it is told");
    });
}

#[test]
fn what_a_sync_that_did_not_end_had_taken_is_of_the_next_one() {
    for seed in 0..20 {
        let pair = Pair::new(seed, 1_000_000);
        let device = pair.opened();
        write(&device, 9, 1);
        let mut state = device.state();
        state.marking = std::mem::take(&mut state.pending);
        drop(state);
        device.sync().expect("sync");
        pair.crash();
        assert_eq!(content(&pair.opened(), 9), Some(sector_pattern(1, 1)), "seed {seed}");
    }
}
