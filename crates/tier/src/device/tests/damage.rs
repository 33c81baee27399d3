//! Logs that are hurt, processes that are killed, and drives that are older than they were.

use super::*;

#[test]
fn a_hurt_header_takes_nothing_and_a_hurt_payload_is_lost_for_good() {
    for side in SIDES {
        let pair = Pair::new(3, if side == Side::Hdd { 1 } else { 100 });
        let device = pair.opened();
        write(&device, 5, 1);
        device.sync().expect("sync");
        let before = pair.sectors_with(side, b"CLAYTREC");
        write(&device, 5, 2);
        device.sync().expect("sync");
        let after = pair.sectors_with(side, b"CLAYTREC");
        let header = *after.iter().find(|sector| !before.contains(sector)).expect("a header was written");
        pair.crash();
        let hurt = if side == Side::Ssd { &pair.ssd } else { &pair.hdd };
        hurt.make_lost(header..header + 1);
        let device = pair.opened();
        assert_eq!(content(&device, 5), Some(sector_pattern(2, 1)), "{side:?}");
        pair.crash();
        // In the solid-state drive's log the header that lists it is behind it.
        let payload = if side == Side::Ssd { header - 1 } else { header + 1 };
        hurt.flip_bit(Sector(payload), 77);
        for round in 0..3 {
            let device = pair.opened();
            assert_eq!(content(&device, 5), None, "{side:?}, {round}");
            // It stays lost when it is brought home, and until it is written.
            device.drain().expect("drain");
            assert_eq!(content(&device, 5), None, "{side:?}, {round}");
            pair.crash();
        }
        let device = pair.opened();
        write(&device, 5, 3);
        device.sync().expect("sync");
        device.drain().expect("drain");
        pair.crash();
        assert_eq!(content(&pair.opened(), 5), Some(sector_pattern(3, 1)), "{side:?}");
    }
}

#[test]
fn a_mark_that_is_hurt_with_a_header_is_damage_that_is_told() {
    let pair = Pair::new(4, 100);
    let device = pair.opened();
    let before = pair.sectors_with(Side::Ssd, b"CLAYTREC");
    for seed in 0..3 {
        write(&device, 7, seed);
        device.sync().expect("sync");
    }
    let after = pair.sectors_with(Side::Ssd, b"CLAYTREC");
    let [header, mark, ..] = after.iter().copied().filter(|sector| !before.contains(sector)).collect::<Vec<_>>()[..]
    else {
        panic!("records and marks were written")
    };
    pair.crash();
    pair.ssd.make_lost(mark..mark + 1);
    assert_eq!(content(&pair.opened(), 7), Some(sector_pattern(2, 1)));
    pair.crash();
    pair.ssd.make_lost(header..header + 1);
    let error = pair.open().map(|_| ()).expect_err("damaged");
    // Its opening has covered all since then, so what is missing is told by the mark before it only.
    assert!(matches!(error, TierError::Damaged { damage: Damage::Missing { .. }, .. }), "{error:?}");
}

/// A device of a process that is killed after so many writes and syncs of both.
struct Mortal {
    device: Arc<dyn Device>,
    left: Arc<AtomicI64>,
}

impl Mortal {
    fn live(&self, takes: i64) -> io::Result<()> {
        match self.left.fetch_sub(takes, Ordering::Relaxed) {
            ..=0 => Err(io::Error::other("the process is dead")),
            _ => Ok(()),
        }
    }
}

impl Device for Mortal {
    fn label(&self) -> String {
        self.device.label()
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        let range = SectorRange { first, sectors: (into.len() / SECTOR_BYTES) as u64 };
        self.live(0).map_err(|source| DeviceError::Read { range, source })?;
        self.device.read(first, into, effort)
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        let range = SectorRange { first, sectors: (bytes.len() / SECTOR_BYTES) as u64 };
        self.live(1).map_err(|source| DeviceError::Write { range, source })?;
        self.device.write(first, bytes)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.live(1).map_err(|source| DeviceError::Sync { source })?;
        self.device.sync()
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.device.discard(range)
    }
}

#[test]
fn a_killed_process_and_then_a_power_cut_while_opening_damage_nothing() {
    // Killed after so many writes and syncs, and the power goes after so many operations of the solid-state drive.
    let run = |seed: u64, killed_after: i64, cut_after: u64| {
        let pair = Pair::new(seed, 1_000_000);
        let device = pair.opened();
        write(&device, 5, 1);
        device.sync().expect("sync");
        drop(device);
        let left = Arc::new(AtomicI64::new(killed_after));
        let mortal = |device| Arc::new(Mortal { device, left: left.clone() }) as Arc<dyn Device>;
        let (hdd, ssd) = (mortal(pair.hdd.attach()), mortal(pair.ssd.attach()));
        let synced = TieredDevice::open(hdd, Some(ssd), now(), tuning(1_000_000)).is_ok_and(|device| {
            let written = device.write(Sector(5), &sector_pattern(2, 1));
            written.is_ok() && device.sync().is_ok()
        });
        pair.ssd.cut_power_after(cut_after);
        let was_cut = pair.open().is_err();
        pair.crash();
        let case = format!("seed {seed}, killed after {killed_after}, cut after {cut_after}");
        let device = pair.open().unwrap_or_else(|error| panic!("{case}: {error}"));
        let found = content(&device, 5);
        // A torn write may be in a mark that nobody waited for: then it is lost. What a sync promised is there.
        let is_right = match found {
            Some(bytes) => bytes == sector_pattern(2, 1) || (!synced && bytes == sector_pattern(1, 1)),
            None => !synced,
        };
        assert!(is_right, "{case}");
        (synced, was_cut)
    };
    // Whether the sync was done, with a cut in each operation of the opening after it.
    let all_cuts = |seed: u64, killed_after: i64| {
        let runs = (0..).map(|cut_after| run(seed, killed_after, cut_after));
        let (synced, _) = runs.into_iter().find(|(_, was_cut)| !was_cut).expect("an opening ends");
        synced
    };
    let whole = (0..).find(|killed_after| all_cuts(0, *killed_after)).expect("a process ends");
    assert!(whole > 12, "an opening and a sync");
    // Between the write and the end of its sync.
    for seed in 1..200 {
        (whole - 2..whole).for_each(|killed_after| assert!(!all_cuts(seed, killed_after)));
    }
}

#[test]
fn an_older_copy_of_the_solid_state_drive_is_refused() {
    let hdd: Arc<dyn Device> = Arc::new(MemoryDevice::new(HOME + LOG + 2));
    let ssd: Arc<dyn Device> = Arc::new(MemoryDevice::new(LOG + 2));
    formatted(&*hdd, &*ssd);
    let open = |ssd: &Arc<dyn Device>| TieredDevice::open(hdd.clone(), Some(ssd.clone()), now(), tuning(1_000_000));
    let device = open(&ssd).expect("open");
    write(&device, 3, 1);
    device.sync().expect("sync");
    drop(device);
    let mut bytes = vec![0; (LOG as usize + 2) * SECTOR_BYTES];
    assert_eq!(ssd.read(Sector(0), &mut bytes, Effort::Retry).expect("read"), []);
    let copy: Arc<dyn Device> = Arc::new(MemoryDevice::new(LOG + 2));
    copy.write(Sector(0), &bytes).expect("write");
    let device = open(&ssd).expect("open");
    write(&device, 3, 2);
    device.sync().expect("sync");
    drop(device);
    let refused = open(&copy).map(|device| content(&device, 3));
    assert!(matches!(refused, Err(TierError::OlderCopy { found: 2, known: 3, .. })), "{refused:?}");
    assert_eq!(content(&open(&ssd).expect("open"), 3), Some(sector_pattern(2, 1)));
}
