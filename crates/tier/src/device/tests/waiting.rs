//! Who waits for whom.

use std::ops::Range;
use std::thread::{Scope, ScopedJoinHandle};

use super::bell::ThreadBell;
use super::*;

/// A device that waits in a write or a read, and may fail that write.
struct Gated {
    device: Arc<dyn Device>,
    /// Writes before that one,
    left: AtomicI64,
    /// and reads.
    reads_left: AtomicI64,
    /// It is there.
    at_gate: Mutex<Sender<()>>,
    opened: Mutex<Receiver<()>>,
    /// What is left at the write that fails.
    fails_at: AtomicI64,
}

impl Gated {
    /// The device, what tells that the write is there, and what lets it go on.
    fn new(device: Arc<dyn Device>, fails: bool) -> (Arc<Gated>, Receiver<()>, Sender<()>) {
        let ((at_gate, reached), (open_gate, opened)) = (channel(), channel());
        let (left, reads_left) = (AtomicI64::new(i64::MAX), AtomicI64::new(i64::MAX));
        let (at_gate, opened) = (Mutex::new(at_gate), Mutex::new(opened));
        let fails_at = AtomicI64::new(if fails { 0 } else { i64::MIN });
        (Arc::new(Gated { device, left, reads_left, at_gate, opened, fails_at }), reached, open_gate)
    }

    /// Waits until the test opens the gate.
    fn wait_at_gate(&self) {
        held_by_test(&self.at_gate).send(()).expect("the test waits");
        held_by_test(&self.opened).recv().expect("the test opens it");
    }

    /// The write that comes so many after the gate fails.
    fn fail_behind_gate(&self, writes: i64) {
        self.fails_at.store(-writes, Ordering::SeqCst);
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
        if self.reads_left.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.wait_at_gate();
        }
        self.device.read(first, into, effort)
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        if left == 0 {
            self.wait_at_gate();
        }
        if left == self.fails_at.load(Ordering::SeqCst) {
            let range = SectorRange { first, sectors: (bytes.len() / SECTOR_BYTES) as u64 };
            return Err(DeviceError::Write { range, source: io::Error::other("it was not taken") });
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
#[expect(clippy::disallowed_methods, reason = "a read, and a write that waits for room")]
fn who_waits_for_room_goes_on_when_the_read_that_kept_it_has_ended() {
    let hdd: Arc<dyn Device> = Arc::new(MemoryDevice::new(HOME + LOG + 2));
    let ssd: Arc<dyn Device> = Arc::new(MemoryDevice::new(LOG + 2));
    formatted(&*hdd, &*ssd);
    let (gated, reached, open_gate) = Gated::new(hdd, false);
    let device = TieredDevice::open(gated.clone(), Some(ssd), now(), tuning(1_000_000)).expect("open");
    gated.reads_left.store(0, Ordering::SeqCst);
    std::thread::scope(|scope| {
        // It is at home, where nobody wrote.
        let reader = scope.spawn(|| content(&device, HOME - 1));
        reached.recv().expect("the read came");
        let writer = scope.spawn(|| (0..LOG).for_each(|number| write(&device, number % (HOME - 1), number)));
        until_room_waits_for_reads(&device);
        open_gate.send(()).expect("the read waits");
        assert_eq!(reader.join().expect("no panic"), Some(vec![0; SECTOR_BYTES]));
        writer.join().expect("there is room");
    });
    assert_eq!(content(&device, (LOG - 1) % (HOME - 1)), Some(sector_pattern(LOG - 1, 1)));
}

/// A bell of threads that counts.
#[derive(Clone)]
struct Counting {
    bell: Arc<dyn Bell>,
    /// How often it was rung, and others that were made of it.
    rung: Arc<AtomicU64>,
    /// How often who waited there was woken.
    woken: Arc<AtomicU64>,
}

impl Counting {
    fn new() -> Counting {
        Counting { bell: Arc::<ThreadBell>::default(), rung: Arc::default(), woken: Arc::default() }
    }
}

impl Bell for Counting {
    fn another(&self) -> Arc<dyn Bell> {
        Arc::new(Counting { bell: self.bell.another(), ..self.clone() })
    }

    fn rings(&self) -> u64 {
        self.bell.rings()
    }

    fn wait(&self, rings: u64) {
        self.bell.wait(rings);
        self.woken.fetch_add(1, Ordering::SeqCst);
    }

    fn ring(&self) {
        self.rung.fetch_add(1, Ordering::SeqCst);
        self.bell.ring();
    }
}

#[test]
fn a_read_for_which_nobody_can_wait_rings_no_bell() {
    let bell = Counting::new();
    let device = Pair::new(1, 2).opened().with_bell(Arc::new(bell.clone()));
    (0..4).for_each(|sector| write(&device, sector, sector));
    let before = bell.rung.load(Ordering::SeqCst);
    (0..4).for_each(|sector| assert_eq!(content(&device, sector), Some(sector_pattern(sector, 1))));
    assert_eq!(content(&device, HOME - 1), Some(vec![0; SECTOR_BYTES]));
    assert_eq!(bell.rung.load(Ordering::SeqCst), before);
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

/// A pair whose writes all go to the hard disk, which is known to be fast, and waits in the first one.
struct AtGate {
    device: TieredDevice,
    gated: Arc<Gated>,
    reached: Receiver<()>,
    open_gate: Sender<()>,
    ssd: Arc<dyn Device>,
}

fn steered_to_a_gate(fails: bool, now: Now) -> AtGate {
    let hdd: Arc<dyn Device> = Arc::new(MemoryDevice::new(HOME + 4 * LOG + 2));
    let ssd: Arc<dyn Device> = Arc::new(MemoryDevice::new(LOG + 2));
    let profile = Some(small_profile());
    let format = TierFormat { hdd_log_sectors: Some(4 * LOG), unmarked_sectors_max: Some(100), profile, ..format() };
    TieredDevice::format(&*hdd, &*ssd, &format, &SimRandom::new(1)).expect("format");
    let (gated, reached, open_gate) = Gated::new(hdd, fails);
    let rule = Rule { longest: None, ..Rule::of(Mode::Enabled, 0) };
    let steering = Steering::Predicted { rule, tuning: crate::Tuning::default() };
    let tuning = TierTuning { steering, ..TierTuning::default() };
    let device = TieredDevice::open(gated.clone(), Some(ssd.clone()), now, tuning).expect("open");
    gated.left.store(0, Ordering::SeqCst);
    AtGate { device, gated, reached, open_gate, ssd }
}

/// Waits until so many stand in line.
fn until_waiting(device: &TieredDevice, many: usize) {
    while device.state().line.waiting.len() < many {
        std::thread::yield_now();
    }
}

/// Lets each of these sectors be written by a thread of its own, one behind the other in line.
fn in_line<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    device: &'env TieredDevice,
    sectors: Range<u64>,
) -> Vec<ScopedJoinHandle<'scope, Result<(), DeviceError>>> {
    let stand = |(many, sector): (usize, u64)| {
        let writer = scope.spawn(move || device.write(Sector(sector), &sector_pattern(sector, 1)));
        until_waiting(device, many);
        writer
    };
    (1..).zip(sectors).map(stand).collect()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "writes at once")]
fn writes_that_wait_for_one_on_its_way_go_together() {
    let AtGate { device, gated, reached, open_gate, ssd } = steered_to_a_gate(false, now());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| write(&device, 1, 1));
        reached.recv().expect("the write came");
        let writers = in_line(scope, &device, 2..6);
        // What overlaps one of them is a record of its own.
        let last = scope.spawn(|| write(&device, 5, 50));
        until_waiting(&device, 5);
        // Nothing of those that wait is there to be read.
        assert_eq!(device.state().overlay.sectors(), 1);
        open_gate.send(()).expect("the write waits");
        first.join().expect("no panic");
        writers.into_iter().for_each(|writer| writer.join().expect("no panic").expect("it is written"));
        last.join().expect("no panic");
    });
    let counts = device.info().counts;
    assert_eq!((counts.writes, counts.redirected_writes, counts.redirected_sectors), (6, 6, 6));
    assert_eq!(gated.left.load(Ordering::SeqCst), -3, "three records");
    let is_right = |device: &TieredDevice| {
        (1..5).for_each(|sector| assert_eq!(content(device, sector), Some(sector_pattern(sector, 1)), "{sector}"));
        assert_eq!(content(device, 5), Some(sector_pattern(50, 1)));
    };
    is_right(&device);
    device.sync().expect("sync");
    is_right(&device);
    drop(device);
    let device = TieredDevice::open(gated.device.clone(), Some(ssd), now(), tuning(1_000_000)).expect("open");
    is_right(&device);
    while device.drain().expect("drain").more {}
    is_right(&device);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "writes at once")]
fn who_stands_in_line_is_woken_once() {
    let AtGate { device, reached, open_gate, .. } = steered_to_a_gate(false, now());
    let bell = Counting::new();
    let device = device.with_bell(Arc::new(bell.clone()));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| write(&device, 1, 1));
        reached.recv().expect("the write came");
        let writers = in_line(scope, &device, 2..6);
        // Something else has changed.
        for _ in 0..10 {
            device.bell.ring();
            (0..1000).for_each(|_| std::thread::yield_now());
        }
        open_gate.send(()).expect("the write waits");
        first.join().expect("no panic");
        writers.into_iter().for_each(|writer| writer.join().expect("no panic").expect("it is written"));
    });
    // The first of them for its turn, the others when it had written theirs.
    assert_eq!(bell.woken.load(Ordering::SeqCst), 4);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "writes at once")]
fn who_waits_for_one_that_fails_goes_to_the_solid_state_drive() {
    let AtGate { device, reached, open_gate, .. } = steered_to_a_gate(true, now());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| device.write(Sector(1), &sector_pattern(1, 1)));
        reached.recv().expect("the write came");
        let writers = in_line(scope, &device, 2..5);
        open_gate.send(()).expect("the write waits");
        assert!(first.join().expect("no panic").is_err(), "it is told");
        writers.into_iter().for_each(|writer| writer.join().expect("no panic").expect("it is written"));
    });
    // Where the drive is nobody knows any more.
    assert_eq!(device.info().counts.redirected_writes, 1);
    (2..5).for_each(|sector| assert_eq!(content(&device, sector), Some(sector_pattern(sector, 1)), "{sector}"));
}

#[test]
#[expect(clippy::disallowed_methods, reason = "writes at once")]
fn all_are_told_that_went_together_and_failed() {
    let AtGate { device, gated, reached, open_gate, .. } = steered_to_a_gate(false, now());
    std::thread::scope(|scope| {
        let first = scope.spawn(|| device.write(Sector(1), &sector_pattern(1, 1)));
        reached.recv().expect("the write came");
        let writers = in_line(scope, &device, 2..5);
        gated.fail_behind_gate(1);
        open_gate.send(()).expect("the write waits");
        first.join().expect("no panic").expect("it is written");
        assert!(writers.into_iter().all(|writer| writer.join().expect("no panic").is_err()), "they are told");
    });
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a write and a sync at once")]
fn who_writes_sees_what_a_sync_writes_to_the_solid_state_drive() {
    for (write_of_sync, what) in [(0, "a copy"), (1, "a mark")] {
        let hdd: Arc<dyn Device> = Arc::new(MemoryDevice::new(HOME + 4 * LOG + 2));
        let ssd: Arc<dyn Device> = Arc::new(MemoryDevice::new(LOG + 2));
        let profile = Some(small_profile());
        let format = TierFormat { hdd_log_sectors: Some(4 * LOG), profile, ..format() };
        TieredDevice::format(&*hdd, &*ssd, &format, &SimRandom::new(1)).expect("format");
        let (gated, reached, open_gate) = Gated::new(ssd, false);
        // Whatever waits in the solid-state drive is a long queue.
        let rule = Rule { mode: Mode::Disabled, queue_max: 0, early: None, waiting_max: 1, longest: None };
        let steering = Steering::Predicted { rule, tuning: crate::Tuning::default() };
        let tuning = TierTuning { steering, copy_sectors_max: 20, ..TierTuning::default() };
        let device = TieredDevice::open(hdd, Some(gated.clone()), now(), tuning).expect("open");
        let redirected = || device.info().counts.redirected_writes;
        std::thread::scope(|scope| {
            gated.left.store(0, Ordering::SeqCst);
            let first = scope.spawn(|| write(&device, 1, 1));
            reached.recv().expect("the write came");
            write(&device, 2, 2);
            open_gate.send(()).expect("the write waits");
            first.join().expect("no panic");
            assert_eq!(redirected(), 1);
            gated.left.store(write_of_sync, Ordering::SeqCst);
            let syncer = scope.spawn(|| device.sync());
            reached.recv().expect("the sync writes");
            write(&device, 3, 3);
            let meanwhile = redirected();
            open_gate.send(()).expect("the sync waits");
            syncer.join().expect("no panic").expect("sync");
            assert_eq!(meanwhile, 2, "{what}");
            write(&device, 4, 4);
            assert_eq!(redirected(), 2, "nothing waits any more");
        });
        assert_eq!(device.info().counts.copied_sectors, 1);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a write that is on its way")]
fn the_hard_disk_is_looked_after_again_soon_while_users_write_to_it() {
    let ms = Arc::new(AtomicU64::new(1000));
    let now: Now = Arc::new({
        let ms = ms.clone();
        move || Moment(Duration::from_millis(ms.load(Ordering::Relaxed)))
    });
    let AtGate { device, reached, open_gate, .. } = steered_to_a_gate(false, now);
    let after = || device.tend().expect("tend").after;
    // It is fast, and needs nothing.
    assert_eq!(after(), None);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&device, 1, 1));
        reached.recv().expect("the write came");
        let meanwhile = after();
        open_gate.send(()).expect("the write waits");
        writer.join().expect("no panic");
        assert_eq!(meanwhile, Some(Duration::from_millis(1)), "it may become slow by this one");
    });
    assert_eq!(after(), Some(Duration::from_millis(1)), "there may be more");
    ms.fetch_add(60, Ordering::Relaxed);
    assert_eq!(after(), None);
}

#[test]
fn an_early_sync_comes_before_who_writes_would_have_to() {
    let pair = Pair::new(1, 1_000_000);
    let device = pair.opened();
    // Of 40 sectors that may wait for a mark each write takes one, and every sixth, with a header, two.
    let mut syncs = Vec::new();
    for number in 0..40 {
        write(&device, number, number);
        device.sync_early().expect("sync");
        syncs.push(device.info().counts.syncs);
    }
    assert_eq!((syncs[16], syncs[17], syncs[34], syncs[35]), (0, 1, 1, 2));
}

#[test]
fn an_early_sync_comes_while_all_can_be_copied() {
    for (copy_sectors_max, expected) in [(20, (5, 30, 0)), (0, (3, 0, 3)), (1000, (3, 33, 0))] {
        // All go to the hard disk's log, where each takes two sectors; of 40 that may wait for a mark.
        let device = Pair { copy_sectors_max, ..Pair::new(1, 1) }.opened();
        let before = device.info().counts;
        for number in 0..33 {
            write(&device, number, number);
            device.sync_early().expect("sync");
        }
        let counts = device.info().counts;
        let found = (counts.syncs - before.syncs, counts.copied_sectors, counts.hdd_syncs - before.hdd_syncs);
        assert_eq!(found, expected, "{copy_sectors_max} may be copied");
    }
}
