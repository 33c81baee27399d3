//! A device that fails: what is lost with it, and what goes on.

use super::*;

#[test]
fn a_solid_state_drive_that_fails_takes_only_what_it_alone_had() {
    for seed in 0..20 {
        let pair = Pair::new(seed, 2);
        let device = pair.opened();
        for sector in 0..20 {
            write(&device, sector, sector);
        }
        device.sync().expect("sync");
        for sector in 0..4 {
            write(&device, sector, 50 + sector);
        }
        pair.ssd.set_removed(true);
        for sector in 30..40 {
            write(&device, sector, sector);
        }
        let lost: Vec<u64> = (0..40).filter(|sector| content(&device, *sector).is_none()).collect();
        // Half of what was synced; what was not is in memory.
        assert_eq!(lost, [4, 6, 8, 10, 12, 14, 16, 18], "seed {seed}");
        device.sync().expect("it goes on with the hard disk");
        write(&device, 6, 66);
        device.sync().expect("sync");
        pair.hdd.crash();
        let check = |device: &TieredDevice| {
            assert!(!device.info().ssd_works);
            for sector in 0..40 {
                let expected = match sector {
                    0..4 => Some(50 + sector),
                    6 => Some(66),
                    4..20 if sector % 2 == 0 => None,
                    20..30 => {
                        assert_eq!(content(device, sector), Some(vec![0; SECTOR_BYTES]));
                        continue;
                    }
                    _ => Some(sector),
                };
                assert_eq!(content(device, sector), expected.map(|seed| sector_pattern(seed, 1)), "sector {sector}");
            }
        };
        let open = || TieredDevice::open(pair.hdd.attach(), None, now(), tuning(2)).expect("the loss is known");
        check(&open());
        let device = open();
        device.drain().expect("drain");
        check(&device);
        drop(device);
        pair.hdd.crash();
        check(&open());
    }
}

#[test]
fn a_solid_state_drive_that_refuses_a_write_takes_nothing_with_it() {
    for seed in 0..20 {
        let pair = Pair::new(seed, 2);
        let device = pair.opened();
        for sector in 0..20 {
            write(&device, sector, sector);
        }
        device.sync().expect("sync");
        pair.ssd.fail_after(0);
        for sector in 30..40 {
            write(&device, sector, sector);
        }
        assert!(!device.info().ssd_works);
        let check = |device: &TieredDevice| {
            for sector in (0..20).chain(30..40) {
                assert_eq!(content(device, sector), Some(sector_pattern(sector, 1)), "seed {seed}, sector {sector}");
            }
            assert!(!device.has_lost(SectorRange { first: Sector(0), sectors: HOME }));
        };
        check(&device);
        device.sync().expect("it goes on with the hard disk");
        check(&device);
        drop(device);
        pair.crash();
        check(&TieredDevice::open(pair.hdd.attach(), None, now(), tuning(2)).expect("its loss is known"));
    }
}

/// A drive that is read and takes nothing, as one that is worn out.
struct ReadOnly(Arc<dyn Device>);

impl Device for ReadOnly {
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
        let range = self.geometry().range(first, bytes.len());
        Err(DeviceError::Write { range, source: io::Error::from(io::ErrorKind::ReadOnlyFilesystem) })
    }

    fn sync(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, _range: SectorRange) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[test]
fn a_solid_state_drive_that_is_only_read_is_given_up_by_an_opening_and_takes_nothing_with_it() {
    for (seed, rests) in (0..20).flat_map(|seed| [(seed, false), (seed, true)]) {
        let pair = Pair::new(seed, 2);
        let device = pair.opened();
        for sector in 0..20 {
            write(&device, sector, sector);
        }
        device.sync().expect("sync");
        if rests {
            device.rest().expect("rest");
        }
        drop(device);
        pair.crash();
        let check = |device: &TieredDevice| {
            assert!(!device.info().ssd_works);
            for sector in 0..20 {
                assert_eq!(content(device, sector), Some(sector_pattern(sector, 1)), "seed {seed}, sector {sector}");
            }
        };
        let ssd: Arc<dyn Device> = Arc::new(ReadOnly(pair.ssd.attach()));
        let device = TieredDevice::open(pair.hdd.attach(), Some(ssd), now(), pair.tuning()).expect("it is read");
        check(&device);
        drop(device);
        pair.hdd.crash();
        check(&TieredDevice::open(pair.hdd.attach(), None, now(), tuning(2)).expect("its loss is known"));
    }
}

#[test]
fn a_solid_state_drive_that_goes_while_it_is_opened_may_come_back() {
    for (seed, after) in (0..4).flat_map(|seed| (0..40).map(move |after| (seed, after))) {
        let pair = Pair::new(seed, 2);
        let device = pair.opened();
        for sector in 0..20 {
            write(&device, sector, sector);
        }
        device.sync().expect("sync");
        drop(device);
        pair.ssd.remove_after(after);
        let opened = pair.open();
        let is_gone = !pair.ssd.faults_to_come();
        drop(opened);
        pair.crash();
        pair.ssd.spare_faults();
        pair.ssd.set_removed(false);
        let device = pair.opened();
        for sector in 0..20 {
            assert_eq!(content(&device, sector), Some(sector_pattern(sector, 1)), "seed {seed}, {after} operations");
        }
        if !is_gone {
            break;
        }
    }
}

/// A drive that reads nothing after so many reads, sector by sector, as one that was pulled out may say it.
struct Silent {
    device: Arc<dyn Device>,
    reads_left: AtomicI64,
}

impl Silent {
    fn is_gone(&self) -> bool {
        self.reads_left.load(Ordering::Relaxed) <= 0
    }
}

impl Device for Silent {
    fn label(&self) -> String {
        self.device.label()
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        if self.reads_left.fetch_sub(1, Ordering::Relaxed) > 0 {
            return self.device.read(first, into, effort);
        }
        into.fill(0);
        let sectors = (first.0..).take(into.len() / SECTOR_BYTES);
        Ok(sectors.map(|sector| FailedSector { sector: Sector(sector), failure: SectorFailure::Lost }).collect())
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        let range = self.geometry().range(first, bytes.len());
        match self.is_gone() {
            true => Err(DeviceError::Write { range, source: io::Error::from(io::ErrorKind::NotFound) }),
            false => self.device.write(first, bytes),
        }
    }

    fn sync(&self) -> Result<(), DeviceError> {
        match self.is_gone() {
            true => Err(DeviceError::Sync { source: io::Error::from(io::ErrorKind::NotFound) }),
            false => self.device.sync(),
        }
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.device.discard(range)
    }
}

#[test]
fn a_solid_state_drive_that_reads_nothing_any_more_while_it_is_opened_voids_nothing() {
    // Whether it went before the opening ended.
    let run = |by_index: bool, after: i64| {
        let pair = Pair::new(after as u64, 3);
        let device = pair.opened();
        for sector in 0..40 {
            write(&device, sector % 20, sector);
            if sector % 7 == 0 {
                device.sync().expect("sync");
            }
        }
        device.sync().expect("sync");
        assert!(!by_index || device.index());
        drop(device);
        pair.crash();
        let ssd = Arc::new(Silent { device: pair.ssd.attach(), reads_left: AtomicI64::new(after) });
        let opened = TieredDevice::open(pair.hdd.attach(), Some(ssd.clone()), now(), pair.tuning());
        let is_gone = ssd.is_gone();
        assert!(is_gone || opened.is_ok(), "{after} reads");
        drop(opened);
        pair.crash();
        let device = pair.opened();
        for sector in 0..20 {
            let expected = Some(sector_pattern(20 + sector, 1));
            assert_eq!(content(&device, sector), expected, "sector {sector}, {after} reads, by an index: {by_index}");
        }
        is_gone
    };
    for by_index in [false, true] {
        let whole = (0..).find(|after| !run(by_index, *after)).expect("an opening ends");
        assert!(whole > 10, "{whole} reads");
    }
}

#[test]
fn a_solid_state_drive_whose_log_reads_nothing_is_told_from_one_that_has_nothing() {
    let pair = Pair::new(7, 1_000_000);
    let device = pair.opened();
    write(&device, 3, 1);
    device.sync().expect("sync");
    drop(device);
    pair.crash();
    pair.ssd.make_lost(1..LOG + 1);
    let error = pair.open().map(|_| ()).expect_err("what was synced is nowhere");
    assert!(matches!(error, TierError::Damaged { damage: Damage::Unread { .. }, .. }), "{error:?}");
}

#[test]
fn a_failed_sync_of_the_hard_disk_is_for_good() {
    let pair = Pair::new(5, 1);
    let device = pair.opened();
    write(&device, 1, 1);
    pair.hdd.fail_after(0);
    assert!(matches!(device.sync(), Err(DeviceError::Sync { .. })));
    assert!(matches!(device.sync(), Err(DeviceError::Sync { .. })));
    assert!(matches!(device.write(Sector(1), &[0; SECTOR_BYTES]), Err(DeviceError::Write { .. })));
}

#[test]
fn a_batch_of_lost_sectors_says_that_more_waits_behind_it() {
    let home = |sectors| HddModel { fails_fast: false, cache_sectors: 1 << 20, ..HddModel::new(sectors) };
    let (hdd, ssd) = (SimDevice::alone("hdd", home(100 + LOG + 2), 1), SimDevice::alone("ssd", home(LOG + 2), 2));
    for by_tending in [false, true] {
        formatted(&*hdd.attach(), &*ssd.attach());
        let tuning = TierTuning { drain_when_idle: Duration::ZERO, ..tuning(1_000_000) };
        let device = TieredDevice::open(hdd.attach(), Some(ssd.attach()), now(), tuning).expect("open");
        for first in (0..64).step_by(8) {
            device.write(Sector(first), &sector_pattern(first, 8)).expect("write");
        }
        device.sync().expect("sync");
        let patterns: Vec<Vec<u8>> = (0..64).step_by(8).map(|first| sector_pattern(first, 8)).collect();
        let is_of_it =
            |content: &[u8]| patterns.iter().flat_map(|all| all.chunks(SECTOR_BYTES)).any(|one| one == content);
        for sector in 1..=LOG {
            if ssd.content(Sector(sector)).is_some_and(|content| is_of_it(&content)) {
                ssd.make_lost(sector..sector + 1);
            }
        }
        for sector in 64..84 {
            write(&device, sector, sector);
        }
        let (mut calls, mut brought) = (0, 0);
        loop {
            let (sectors, more) = if by_tending {
                let tended = device.tend().expect("tend");
                (tended.drained_sectors, tended.more)
            } else {
                let drained = device.drain().expect("drain");
                (drained.sectors, drained.more)
            };
            calls += 1;
            brought += sectors;
            if !more {
                break;
            }
            assert!(calls < 20, "it comes to an end");
        }
        let info = device.info();
        assert_eq!((brought, info.waiting_sectors, info.lost_sectors), (20, 64, 64), "{calls} calls");
        assert!(calls > 2, "two batches have nothing to bring home");
        drop(device);
        for sector in 0..LOG + 2 {
            ssd.attach().write(Sector(sector), &[0; SECTOR_BYTES]).expect("write");
        }
    }
}

/// Fails the solid-state drive of a pair that has a record of data, as if that had so many sectors, each apart from the others.
fn lose(device: &TieredDevice, sectors: u64) {
    let mut state = device.state();
    let (seq, _) = state.records.iter().find(|(_, held)| held.kind.has_content()).expect("it was written");
    let (seq, place) = (*seq, Place { seq: *seq, at: 0, lost: false });
    for sector in 0..sectors {
        let range = SectorRange { first: Sector(2 * sector), sectors: 1 };
        state.overlay.insert(range, place);
        let held = state.records.get_mut(&seq).expect("it was just found");
        held.entries[0].extents.push(range);
    }
    state.ssd = SsdState::Failed;
}

#[test]
fn a_solid_state_drive_that_had_very_much_is_said_to_be_lost_in_parts() {
    const LOST: u64 = 90_000;
    const LOG: u64 = 3000;
    for record_sectors_max in [8, 256] {
        let model = |sectors| HddModel { fails_fast: false, cache_sectors: 1 << 20, ..HddModel::new(sectors) };
        let hdd = SimDevice::alone("hdd", model(2 * LOST + LOG + 3), 1);
        let ssd = SimDevice::alone("ssd", model(4000), 2);
        let format = TierFormat {
            hdd_log_sectors: Some(LOG),
            record_sectors_max,
            unmarked_sectors_max: Some(600),
            ..TierFormat::default()
        };
        TieredDevice::format(&*hdd.attach(), &*ssd.attach(), &format, &SimRandom::new(1)).expect("format");
        let device = TieredDevice::open(hdd.attach(), Some(ssd.attach()), now(), tuning(1_000_000)).expect("open");
        write(&device, 0, 1);
        device.sync().expect("sync");
        ssd.set_removed(true);
        lose(&device, LOST);
        let id = device.info().id;
        device.sync().expect("it goes on with the hard disk");
        drop(device);
        hdd.crash();
        let mut marks = 0;
        for sector in 1..=LOG {
            let bytes = hdd.content(Sector(sector)).expect("nothing is hurt");
            if bytes.starts_with(b"CLAYTREC") {
                let header = Header::parse(&bytes, id, Side::Hdd, sector - 1);
                marks += u64::from(header.expect("all can be read").kind == Kind::Mark);
            }
        }
        assert!(marks > 2, "{marks} marks of {record_sectors_max} sectors");
        let device = TieredDevice::open(hdd.attach(), None, now(), tuning(2)).expect("the loss is known");
        assert_eq!(device.info().lost_sectors, LOST);
        for sector in (0..2 * LOST).step_by(2) {
            assert_eq!(content(&device, sector), None, "sector {sector}");
        }
        assert_eq!(content(&device, 1), Some(vec![0; SECTOR_BYTES]));
    }
}

#[test]
fn a_record_of_what_is_lost_that_cannot_be_written_leaves_nothing_in_flight() {
    let model = |sectors| HddModel { fails_fast: false, ..HddModel::new(sectors) };
    let hdd = SimDevice::alone("hdd", model(2000 + LOG + 2), 1);
    let ssd: Arc<dyn Device> = Arc::new(MemoryDevice::new(LOG + 2));
    formatted(&*hdd.attach(), &*ssd);
    let device = TieredDevice::open(hdd.attach(), Some(ssd), now(), tuning(1_000_000)).expect("open");
    write(&device, 0, 1);
    device.sync().expect("sync");
    // Three records of it.
    lose(&device, 700);
    hdd.fail_after(0);
    assert!(matches!(device.sync(), Err(DeviceError::Sync { .. })));
    assert_eq!(device.state().in_flight.len(), 0);
}

#[test]
fn marks_of_what_the_hard_disk_alone_takes_do_not_fill_the_other_log() {
    let hdd: Arc<dyn Device> = Arc::new(MemoryDevice::new(HOME + 2002));
    let ssd: Arc<dyn Device> = Arc::new(MemoryDevice::new(LOG + 2));
    let format = TierFormat { hdd_log_sectors: Some(2000), ..format() };
    TieredDevice::format(&*hdd, &*ssd, &format, &SimRandom::new(1)).expect("format");
    let device = TieredDevice::open(hdd, Some(ssd), now(), tuning(1)).expect("open");
    for seed in 0..600 {
        write(&device, seed % HOME, seed);
        device.sync().expect("sync");
    }
    assert!(device.info().counts.redirected_writes > 500, "{:?}", device.info());
}

#[test]
fn what_a_sync_promised_is_not_freed_while_what_took_its_place_is_not_durable() {
    for seed in 0..20 {
        // The second write goes to the hard disk's log.
        let pair = Pair::new(seed, 2);
        let device = pair.opened();
        write(&device, 3, 1);
        device.sync().expect("sync");
        write(&device, 3, 2);
        // As who waits for room does.
        device.drain_batch(device.any_batch()).expect("drain");
        pair.crash();
        let found = content(&pair.opened(), 3);
        assert!([1, 2].into_iter().any(|tag| found == Some(sector_pattern(tag, 1))), "seed {seed}");
    }
}
