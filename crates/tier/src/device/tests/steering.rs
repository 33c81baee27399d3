//! Where writes go, and what that costs.

use super::*;

/// A hard disk whose write buffer takes 512 KiB after a sync and 256 KiB between slow writes; with a clock of its own.
struct Buffered {
    device: MemoryDevice,
    time: Arc<AtomicU64>,
    left: Mutex<u64>,
    /// It takes all at once, for now.
    quick: Arc<AtomicBool>,
    /// Records of data that met a full buffer.
    slow: Arc<AtomicU64>,
}

impl Device for Buffered {
    fn label(&self) -> String {
        "buffered".to_owned()
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        self.time.fetch_add(8000, Ordering::Relaxed);
        self.device.read(first, into, effort)
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        let mut left = self.left.lock().expect("one thread");
        let bytes_now = bytes.len() as u64;
        let takes = *left >= bytes_now || self.quick.load(Ordering::Relaxed);
        // The kind of a record.
        let is_data = bytes.starts_with(b"CLAYTREC") && bytes[12] == 1;
        self.slow.fetch_add(u64::from(!takes && is_data), Ordering::Relaxed);
        *left = if takes { left.saturating_sub(bytes_now) } else { 256 << 10 };
        self.time.fetch_add(if takes { 60 } else { 12_000 }, Ordering::Relaxed);
        self.device.write(first, bytes)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        *self.left.lock().expect("one thread") = 512 << 10;
        self.time.fetch_add(30_000, Ordering::Relaxed);
        Ok(())
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.device.discard(range)
    }
}

/// A pair of such a hard disk and a solid-state drive without a queue.
struct Drives {
    hdd: Arc<dyn Device>,
    ssd: Arc<dyn Device>,
    time: Arc<AtomicU64>,
    quick: Arc<AtomicBool>,
    slow: Arc<AtomicU64>,
}

impl Buffered {
    /// Formatted, with a log of so many sectors and a home of 300.
    fn pair(log: u64) -> Drives {
        let (time, quick, slow) =
            (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let device = MemoryDevice::new(log + 300 + 2);
        let (left, of) = (Mutex::new(0), (time.clone(), quick.clone(), slow.clone()));
        let hdd: Arc<dyn Device> = Arc::new(Buffered { device, time: of.0, left, quick: of.1, slow: of.2 });
        let ssd: Arc<dyn Device> = Arc::new(MemoryDevice::new(4000));
        let format = TierFormat {
            hdd_log_sectors: Some(log),
            record_sectors_max: 15,
            unmarked_sectors_max: Some(3000),
            profile: Some(small_profile()),
            queue_max: None,
        };
        TieredDevice::format(&*hdd, &*ssd, &format, &SimRandom::new(1)).expect("format");
        Drives { hdd, ssd, time, quick, slow }
    }
}

impl Drives {
    fn open(&self) -> TieredDevice {
        let rule = Rule { mode: Mode::Enabled, queue_max: 0, early: None, waiting_max: 1, longest: None };
        let padding = Padding { keeps_fast: true, ..Padding::default() };
        let steering = Steering::Predicted { rule, tuning: crate::Tuning { padding, ..crate::Tuning::default() } };
        let time = self.time.clone();
        let now: Now = Arc::new(move || Moment(Duration::from_micros(time.load(Ordering::Relaxed))));
        let tuning = TierTuning { steering, ..TierTuning::default() };
        TieredDevice::open(self.hdd.clone(), Some(self.ssd.clone()), now, tuning).expect("open")
    }
}

#[test]
fn writes_go_to_the_hard_disk_while_its_buffer_takes_them_and_no_user_meets_a_slow_one() {
    const LOG: u64 = 8000;
    let drives = Buffered::pair(LOG);
    let (time, slow) = (&drives.time, &drives.slow);
    let open = || drives.open();
    let device = open();
    let seen = |device: &TieredDevice| device.info().predicted.expect("its profile is known");
    // An opening ends with a sync.
    assert_eq!(seen(&device).0, Some(Stage::Fast));
    let mut rounds = 0;
    for seed in 0..600 {
        device.write(Sector(seed % 300), &sector_pattern(seed, 1)).expect("write");
        // Some come while it is slow, and go to the other log.
        while seed % 100 < 60 && !matches!(seen(&device).0, Some(Stage::Mid | Stage::Fast)) && rounds < 10_000 {
            device.tend().expect("tend");
            rounds += 1;
        }
    }
    let info = device.info();
    let (_, counts) = seen(&device);
    assert!(info.counts.redirected_writes > 300 && info.counts.padding_sectors > 0, "{info:?}");
    assert!(counts.slow_stages > 5 && counts.user_surprises == 0, "{counts:?}");
    assert_eq!(slow.load(Ordering::Relaxed), 0, "{counts:?}");
    // Padding alone goes round the log: nobody marks it, and it is freed.
    device.sync().expect("sync");
    for _ in 0..3 * LOG {
        time.fetch_add(1000, Ordering::Relaxed);
        device.tend().expect("tend");
    }
    let padded = device.info().counts.padding_sectors;
    assert!(padded > LOG, "{padded} sectors");
    // After a read nobody knows where it is.
    drop(device.read(Sector(299), &mut [0; SECTOR_BYTES], Effort::Retry));
    assert_eq!(seen(&device).0, Some(Stage::Lost));
    device.drain().expect("drain");
    let device = open();
    for sector in 0..300 {
        assert_eq!(content(&device, sector), Some(sector_pattern(300 + sector, 1)), "sector {sector}");
    }
    // Which the reads have taken from it.
    assert_eq!(seen(&device).0, Some(Stage::Lost));
}

#[test]
fn a_hard_disk_that_was_given_up_is_tried_again_ever_later_until_it_is_as_measured() {
    let drives = Buffered::pair(80_000);
    let device = drives.open();
    let is_predicted = || device.info().predicted.expect("its profile is known").0.is_some();
    let buffer = || device.pair().expect("it is a pair").buffer;
    assert_eq!(buffer(), BufferState::Fast);
    // Looks for so many seconds, and says how much was padded.
    let look = |seconds: u64| {
        let before = device.info().counts.padding_sectors;
        for _ in 0..seconds {
            drives.time.fetch_add(1_000_000, Ordering::Relaxed);
            while device.tend().expect("tend").more {}
        }
        device.info().counts.padding_sectors - before
    };
    drives.quick.store(true, Ordering::Relaxed);
    drop(device.read(Sector(9), &mut [0; SECTOR_BYTES], Effort::Retry));
    assert_eq!(buffer(), BufferState::Lost);
    assert!(look(1) > 0 && !is_predicted());
    assert_eq!(buffer(), BufferState::GivenUp);
    for wait in [60, 120, 240, 480] {
        assert_eq!(look(wait - 2), 0, "for {wait} s");
        let padded = (0..4).map(|_| look(1)).find(|padded| *padded > 0).expect("it was tried");
        assert!(padded < 1024 && !is_predicted(), "{padded} sectors after {wait} s");
    }
    drives.quick.store(false, Ordering::Relaxed);
    assert_eq!(look(950), 0);
    assert!(look(15) > 0 && is_predicted());
    assert_ne!(buffer(), BufferState::GivenUp);
    let (_, counts) = device.info().predicted.expect("its profile is known");
    assert_eq!((counts.recalibrations, counts.user_surprises), (1, 0));
}

/// What a pair of drives like real ones did in `seconds` of their time, while every `read_ms` somebody read where nothing waits in the logs, and
/// every `write_ms` somebody wrote.
fn under_a_load(mode: Mode, seconds: u64, read_ms: u64, write_ms: u64) -> TierInfo {
    const LOG: u64 = 40_000;
    const HOME: u64 = 20_000;
    let model = HddModel::buffered(LOG + HOME + 2, BufferModel::wd_10tb_like());
    let hdd = SimDevice::alone("hdd", model, 7);
    let ssd: Arc<dyn Device> = Arc::new(MemoryDevice::new(8000));
    let staircase = profile_device(&*hdd.attach(), &|| hdd.done_at(), &ProfilePlan::default(), &mut |_| {});
    let Finding::Buffered(profile) = staircase.expect("it works").finding() else { panic!("it has stages") };
    let format = TierFormat { hdd_log_sectors: Some(LOG), profile: Some(profile), ..TierFormat::default() };
    TieredDevice::format(&*hdd.attach(), &*ssd, &format, &SimRandom::new(1)).expect("format");
    let now: Now = Arc::new({
        let hdd = hdd.clone();
        move || hdd.done_at()
    });
    let device = TieredDevice::open(hdd.attach(), Some(ssd), now, TierTuning::steered(mode, 0)).expect("open");
    let begun = hdd.done_at();
    let ms = Duration::from_millis;
    let (mut reads, mut writes, mut tends) = (ms(0), ms(0), ms(0));
    while hdd.done_at().since(begun) < ms(1000 * seconds) {
        let passed = hdd.done_at().since(begun);
        if passed >= reads {
            reads = passed + ms(read_ms);
            let sector = (passed.as_nanos() as u64 / 1000) % (HOME / 2);
            drop(device.read(Sector(HOME / 2 + sector), &mut [0; SECTOR_BYTES], Effort::Retry).expect("read"));
        }
        if passed >= writes {
            writes = passed + ms(write_ms);
            device.write(Sector(writes.as_millis() as u64 % (HOME / 2 - 8)), &sector_pattern(1, 4)).expect("write");
            device.sync().expect("sync");
        }
        if passed >= tends {
            let tended = device.tend().expect("tend");
            tends = hdd.done_at().since(begun) + if tended.more { ms(0) } else { tended.after.unwrap_or(ms(50)) };
        }
        // Until the next of these.
        let next = reads.min(writes).min(tends).max(passed + Duration::from_micros(10));
        hdd.reach(begun.after(next));
    }
    device.info()
}

/// What a write and a sync take together, on drives like real ones, if every other write is redirected: the mean and the longest.
fn synced_writes(copy_sectors_max: u64, sectors: usize) -> (Duration, Duration) {
    const LOG: u64 = 40_000;
    let model = HddModel::buffered(LOG + 20_000 + 2, BufferModel::wd_10tb_like());
    let hdd = SimDevice::alone("hdd", model, 7);
    let model = SsdModel { stall_every_sectors: 0, ..SsdModel::nvme_desktop() };
    let ssd = SimDevice::alone("ssd", DriveModel::Ssd { sectors: 20_000, model }, 7);
    let format = TierFormat { hdd_log_sectors: Some(LOG), ..TierFormat::default() };
    TieredDevice::format(&*hdd.attach(), &*ssd.attach(), &format, &SimRandom::new(1)).expect("format");
    let tuning = TierTuning { copy_sectors_max, ..tuning(2) };
    let device = TieredDevice::open(hdd.attach(), Some(ssd.attach()), now(), tuning).expect("open");
    let mut took = Vec::new();
    for write in 0..200 {
        let begun = hdd.spent() + ssd.spent();
        device.write(Sector(write * 64), &sector_pattern(write, sectors)).expect("write");
        device.sync().expect("sync");
        if write % 2 == 1 {
            took.push(hdd.spent() + ssd.spent() - begun);
        }
    }
    (took.iter().sum::<Duration>() / took.len() as u32, took.into_iter().max().expect("some"))
}

#[test]
fn a_sync_that_copies_is_sooner_done_than_one_of_the_hard_disk() {
    let TierTuning { copy_sectors_max, .. } = TierTuning::steered(Mode::Disabled, 0);
    // The more there is, the less it gains; and it leaves the hard disk quick.
    for (sectors, times) in [(1, 3), (4, 3), (16, 3), (64, 3), (256, 1), (1024, 1)] {
        let (both, copied) = (synced_writes(0, sectors), synced_writes(copy_sectors_max, sectors));
        println!("{sectors} sectors: {both:?} with a sync of the hard disk, {copied:?} with a copy");
        assert!(copied.0 * times < both.0, "{sectors} sectors: {copied:?}, {both:?}");
    }
}

#[test]
fn a_busy_disk_is_padded_no_more_than_its_writers_have_earned() {
    for mode in [Mode::Disabled, Mode::Enabled] {
        for (read_ms, write_ms) in [(3, u64::MAX), (20, u64::MAX), (120, u64::MAX), (3, 10), (60, 10), (120, 40)] {
            let info = under_a_load(mode, 60, read_ms, write_ms);
            let counts = info.counts;
            let bytes = |sectors: u64| sectors * SECTOR_BYTES as u64;
            let (users, redirected) = (bytes(counts.write_sectors), bytes(counts.redirected_sectors));
            let upkeep = bytes(counts.padding_sectors) + (counts.upkeep_syncs << 20);
            let case = format!(
                "{mode:?}, read every {read_ms} ms, written every {write_ms} ms: {users} of users, {} redirected, {} of padding, {} syncs \
                 for it, {} of users, {:?}",
                counts.redirected_sectors * SECTOR_BYTES as u64,
                counts.padding_sectors * SECTOR_BYTES as u64,
                counts.upkeep_syncs,
                counts.hdd_syncs - counts.upkeep_syncs,
                info.predicted
            );
            println!("{case}");
            assert!(upkeep <= (32 << 20) + users / 20 + 3 * redirected, "{case}");
            if read_ms < 50 {
                assert_eq!((counts.padding_sectors, counts.upkeep_syncs), (0, 0), "{case}");
            }
            assert_eq!(info.predicted.map(|(_, counts)| counts.user_surprises), Some(0), "{case}");
        }
    }
}

#[test]
fn what_waits_for_long_comes_home_though_somebody_writes_all_the_time() {
    let time = Arc::new(AtomicU64::new(0));
    let now: Now = Arc::new({
        let time = time.clone();
        move || Moment(Duration::from_micros(time.load(Ordering::Relaxed)))
    });
    let hdd: Arc<dyn Device> = Arc::new(MemoryDevice::new(5000 + 2000 + 2));
    let ssd: Arc<dyn Device> = Arc::new(MemoryDevice::new(5000));
    let format = TierFormat { hdd_log_sectors: Some(5000), ..format() };
    TieredDevice::format(&*hdd, &*ssd, &format, &SimRandom::new(1)).expect("format");
    let age = Duration::from_secs(100);
    let tuning =
        TierTuning { drain_when_old: age, drain_old_sectors_max: 3, index_every_sectors: 1 << 40, ..tuning(u64::MAX) };
    let device = TieredDevice::open(hdd, Some(ssd), now, tuning).expect("open");
    for second in 0..1000 {
        time.store(second * 1_000_000, Ordering::Relaxed);
        write(&device, second, second);
        let before = device.info();
        while device.tend().expect("tend").more {}
        let info = device.info();
        // As many as came since, and little more; a batch at a time, since time stands meanwhile.
        let young = second.min(100);
        assert!((young..=young + 100 / 16 + 6).contains(&info.waiting_sectors), "{second}: {info:?}");
        assert!(info.waiting_sectors <= before.waiting_sectors);
    }
    for sector in 0..1000 {
        assert_eq!(content(&device, sector), Some(sector_pattern(sector, 1)), "sector {sector}");
    }
}

/// How much of the time the hard disk is busy with what is old, in percent, while somebody writes all the time.
fn busy_with_what_is_old(percent: u32, percent_unused: u32) -> f64 {
    const LOG: u64 = 40_000;
    let model = HddModel::buffered(LOG + 200_000 + 2, BufferModel::wd_10tb_like());
    let hdd = SimDevice::alone("hdd", model, 7);
    let ssd: Arc<dyn Device> = Arc::new(MemoryDevice::new(LOG));
    let format = TierFormat { hdd_log_sectors: Some(LOG), ..TierFormat::default() };
    TieredDevice::format(&*hdd.attach(), &*ssd, &format, &SimRandom::new(1)).expect("format");
    let now: Now = Arc::new({
        let hdd = hdd.clone();
        move || hdd.done_at()
    });
    let tuning = TierTuning {
        drain_when_old: Duration::from_secs(10),
        // Some batches in the time.
        drain_old_sectors_max: 32,
        drain_old_percent: percent,
        drain_old_percent_unused: percent_unused,
        ..TierTuning::default()
    };
    let device = TieredDevice::open(hdd.attach(), Some(ssd), now, tuning).expect("open");
    let (begun, spent) = (hdd.done_at(), hdd.spent());
    for step in 0..2000 {
        // More than a hard disk brings home in a quarter of its time.
        for write in 0..5 {
            device.write(Sector((step * 5 + write) * 7919 % 200_000), &sector_pattern(step, 1)).expect("write");
        }
        device.tend().expect("tend");
        hdd.reach(begun.after(Duration::from_millis(50 * step)));
    }
    let lasted = hdd.done_at().since(begun).as_secs_f64();
    assert!(lasted > 99.0, "{lasted} s");
    100.0 * (hdd.spent() - spent).as_secs_f64() / lasted
}

#[test]
fn what_is_old_takes_no_more_of_the_time_than_it_may() {
    // Nothing is redirected, so the second of them counts.
    for percent in [5, 25, 50] {
        let busy = busy_with_what_is_old(1, percent);
        println!("{busy:.1} % of {percent}");
        assert!((0.5..1.1).contains(&(busy / f64::from(percent))), "{busy} of {percent} %");
    }
}

#[test]
fn what_waits_comes_home_though_somebody_reads_all_the_time() {
    let pair = Pair::new(1, 2);
    let seconds = Arc::new(AtomicU64::new(0));
    let now: Now = Arc::new({
        let seconds = seconds.clone();
        move || Moment(Duration::from_secs(seconds.load(Ordering::Relaxed)))
    });
    let device = TieredDevice::open(pair.hdd.attach(), Some(pair.ssd.attach()), now, tuning(2)).expect("open");
    let mut home_at = Vec::new();
    for read_every in [1, u64::MAX] {
        (0..10).for_each(|sector| write(&device, sector, read_every ^ sector));
        let begun = seconds.load(Ordering::Relaxed);
        let passed = || seconds.load(Ordering::Relaxed) - begun;
        while device.info().waiting_sectors > 0 && passed() < 600 {
            seconds.fetch_add(1, Ordering::Relaxed);
            if passed().is_multiple_of(read_every) {
                assert_eq!(content(&device, 3), Some(sector_pattern(read_every ^ 3, 1)));
            }
            device.tend().expect("tend");
        }
        home_at.push(passed());
    }
    assert_eq!(home_at, [60, 5], "seconds after the last write");
}
