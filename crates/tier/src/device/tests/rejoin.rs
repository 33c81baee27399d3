//! Another solid-state drive for a pair.

use super::*;

#[test]
fn a_pair_gets_another_solid_state_drive_through_power_cuts_and_what_was_lost_stays_so() {
    // The power goes after so many operations of one side, while the old one is given up and the new one taken.
    let run = |seed: u64, side: Side, cut_after: u64| {
        let pair = Pair { copy_sectors_max: 20, ..Pair::new(seed, 2) };
        let device = pair.opened();
        for sector in 0..30 {
            write(&device, sector, sector);
        }
        device.sync().expect("sync");
        let lost = *pair.sectors_with(Side::Ssd, b"CLAYTREC").last().expect("a mark") - 1;
        drop(device);
        pair.crash();
        pair.ssd.flip_bit(Sector(lost), 9);
        let new = SimDevice::alone("new", HddModel { fails_fast: false, ..HddModel::new(LOG + 50) }, seed + 7);
        let found: Vec<_> = {
            let device = pair.opened();
            (0..30).map(|sector| content(&device, sector)).collect()
        };
        let other = if side == Side::Hdd { &pair.hdd } else { &new };
        other.cut_power_after(cut_after);
        let change = || -> Result<(), TierError> {
            pair.opened_or(|device| device.retire_ssd())?;
            TieredDevice::join_ssd(&*pair.hdd.attach(), &*new.attach(), Some(3))
        };
        let done = change();
        let was_cut = done.is_err();
        for device in [&pair.hdd, &pair.ssd, &new] {
            device.crash();
        }
        let case = format!("seed {seed}, {side:?} cut after {cut_after}: {done:?}");
        let open = |ssd: &SimDevice| TieredDevice::open(pair.hdd.attach(), Some(ssd.attach()), now(), tuning(2));
        let device = open(&new).or_else(|_| open(&pair.ssd)).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(was_cut || device.info().ssd_works, "{case}");
        for sector in 0..30 {
            assert_eq!(content(&device, sector), found[sector as usize], "{case}, sector {sector}");
        }
        for sector in 0..10 {
            write(&device, sector, 500 + sector);
        }
        device.sync().expect("sync");
        drop(device);
        for device in [&pair.hdd, &pair.ssd, &new] {
            device.crash();
        }
        let device = open(&new).or_else(|_| open(&pair.ssd)).unwrap_or_else(|error| panic!("{case}: {error}"));
        for sector in 0..30 {
            let expected =
                if sector < 10 { Some(sector_pattern(500 + sector, 1)) } else { found[sector as usize].clone() };
            assert_eq!(content(&device, sector), expected, "{case}, sector {sector}");
        }
        was_cut
    };
    for seed in 0..6 {
        for side in SIDES {
            for cut_after in 0.. {
                if !run(seed, side, cut_after) {
                    break;
                }
            }
        }
    }
}

#[test]
fn a_solid_state_drive_is_not_given_up_before_all_is_home_that_waits_behind_lost_sectors() {
    // More than two batches are lost: with a drive that died before, or they cannot be read from a worn one.
    const LOST: u64 = 64;
    let home = |sectors| HddModel { fails_fast: false, cache_sectors: 1 << 20, ..HddModel::new(sectors) };
    for is_worn in [false, true] {
        let hdd = SimDevice::alone("hdd", home(100 + LOG + 2), 1);
        let ssds = [2, 3].map(|seed| SimDevice::alone("ssd", home(LOG + 2), seed));
        formatted(&*hdd.attach(), &*ssds[0].attach());
        let open = |ssd: &SimDevice| {
            TieredDevice::open(hdd.attach(), Some(ssd.attach()), now(), tuning(1_000_000)).expect("open")
        };
        let mut device = open(&ssds[0]);
        let is_lost = |first: u64| sector_pattern(first, 8);
        for first in (0..LOST).step_by(8) {
            device.write(Sector(first), &is_lost(first)).expect("write");
        }
        device.sync().expect("sync");
        if is_worn {
            let written: Vec<Vec<u8>> = (0..LOST).step_by(8).map(is_lost).collect();
            let is_of_it =
                |content: &[u8]| written.iter().flat_map(|it| it.chunks(SECTOR_BYTES)).any(|it| it == content);
            for sector in 1..=LOG {
                if ssds[0].content(Sector(sector)).is_some_and(|content| is_of_it(&content)) {
                    ssds[0].make_lost(sector..sector + 1);
                }
            }
        } else {
            ssds[0].set_removed(true);
            assert_eq!(content(&device, 1), None);
            device.sync().expect("it goes on with the hard disk");
            drop(device);
            TieredDevice::join_ssd(&*hdd.attach(), &*ssds[1].attach(), None).expect("joined");
            device = open(&ssds[1]);
        }
        for sector in LOST..LOST + 20 {
            write(&device, sector, sector);
        }
        device.sync().expect("sync");
        device.retire_ssd().expect("given up");
        assert!(!device.info().ssd_works);
        drop(device);
        hdd.crash();
        let device = TieredDevice::open(hdd.attach(), None, now(), tuning(2)).expect("it goes on alone");
        assert_eq!(device.info().lost_sectors, LOST, "worn: {is_worn}");
        for sector in 0..LOST + 20 {
            let expected = (sector >= LOST).then(|| sector_pattern(sector, 1));
            assert_eq!(content(&device, sector), expected, "worn: {is_worn}, sector {sector}");
        }
    }
}

#[test]
fn a_hard_disk_whose_log_has_no_room_to_say_what_is_lost_gets_no_solid_state_drive() {
    let [hdd, ssd] = [LOG + HOME + 2, LOG + 2].map(|sectors| Arc::new(MemoryDevice::new(sectors)) as Arc<dyn Device>);
    formatted(&*hdd, &*ssd);
    let of_hdd = open::side_of(&*hdd, Side::Hdd).expect("a pair");
    let least = open::log_sectors_min(of_hdd.record_sectors_max, of_hdd.unmarked_sectors_max);
    for (sectors, will_do) in [(least + least.div_ceil(64), true), (least + least.div_ceil(64) - 1, false), (1, false)]
    {
        let [ssd_log, hdd_log] = of_hdd.logs;
        let logs = [ssd_log, SectorRange { sectors, ..hdd_log }];
        let alone = Superblock { ssd_lost: true, logs, generation: of_hdd.generation + 1, ..of_hdd.clone() };
        alone.store(&*hdd, Side::Hdd).expect("store");
        let joined = TieredDevice::join_ssd(&*hdd, &*ssd, None);
        match will_do {
            true => joined.expect("just enough"),
            false => assert!(matches!(joined, Err(TierError::TooSmall { sectors: found, .. }) if found == sectors)),
        }
    }
}

#[test]
fn it_is_told_before_anything_changes_whether_another_solid_state_drive_will_do() {
    let [hdd, ssd, new, small] =
        [LOG + HOME + 2, LOG + 2, LOG + 2, 100].map(|sectors| Arc::new(MemoryDevice::new(sectors)) as Arc<dyn Device>);
    formatted(&*hdd, &*ssd);
    let open = |ssd: &Arc<dyn Device>| TieredDevice::open(hdd.clone(), Some(ssd.clone()), now(), tuning(2));
    let check = |ssd: &Arc<dyn Device>| TieredDevice::check_ssd(&*hdd, &**ssd);
    drop(open(&ssd).expect("open"));
    assert!(matches!(check(&small), Err(TierError::TooSmall { sectors_min: 114, .. })));
    assert!(matches!(check(&ssd), Err(TierError::SsdSame { .. })));
    assert!(!check(&new).expect("it will do"));
    let device = open(&ssd).expect("open");
    write(&device, 3, 1);
    device.retire_ssd().expect("given up");
    drop(device);
    assert!(check(&ssd).expect("what it holds counts no more"));
    // The power goes when the new one has its superblock and the hard disk has not.
    let mut alone = vec![0; (LOG + HOME + 2) as usize * SECTOR_BYTES];
    assert_eq!(hdd.read(Sector(0), &mut alone, Effort::Retry).expect("read"), []);
    TieredDevice::join_ssd(&*hdd, &*new, None).expect("joined");
    assert!(matches!(check(&new), Err(TierError::SsdSame { .. })));
    assert!(!check(&ssd).expect("the one before will do, if it is given up"));
    assert!(!TieredDevice::disown_ssd(&*hdd, &*new).expect("it is the one"));
    assert!(matches!(check(&new), Err(TierError::SsdSame { .. })));
    hdd.write(Sector(0), &alone).expect("write");
    assert!(check(&new).expect("what it holds counts no more"));
    TieredDevice::join_ssd(&*hdd, &*new, None).expect("joined");
    assert!(TieredDevice::disown_ssd(&*hdd, &*ssd).expect("it was one"));
    assert!(matches!(open(&ssd), Err(TierError::NotATier { .. })));
    assert_eq!(content(&open(&new).expect("open"), 3), Some(sector_pattern(1, 1)));
}
