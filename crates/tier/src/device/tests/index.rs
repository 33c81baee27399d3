//! Openings by an index: what they read, and that they find what a reading of both logs finds.

use super::*;
use crate::device::open::Reading;
use crate::record::Entry;
use crate::superblock::newest;

/// What an opening finds.
#[derive(Debug, PartialEq)]
struct Picture {
    /// What counts of each record, its position, its sectors, and of which it is a copy.
    counting: Vec<(u64, u64, u64, u64, Vec<Entry>)>,
    overlay: Vec<crate::overlay::Piece>,
    pending: Vec<u64>,
    mark_from: u64,
}

fn picture(pair: &Pair, reading: Reading) -> (Picture, [u64; 2]) {
    let (hdd, ssd) = (pair.hdd.attach(), Some(pair.ssd.attach()));
    let (device, _) = TieredDevice::read(hdd, ssd, now(), pair.tuning(), reading).expect("the logs can be read");
    let state = device.state();
    let counting = state.records.iter().filter(|(_, held)| !held.entries.is_empty());
    let counting = counting.map(|(seq, held)| (*seq, held.position, held.sectors, held.replaces, held.entries.clone()));
    let all = SectorRange { first: Sector(0), sectors: HOME };
    let picture = Picture {
        counting: counting.collect(),
        overlay: state.overlay.over(all),
        pending: state.pending.clone(),
        mark_from: state.mark_from,
    };
    (picture, state.rings.map(|ring| ring.head()))
}

/// Compares what an opening by the index would find with what all of both logs say.
pub fn assert_as_whole(pair: &Pair) {
    let ((by_index, heads), (whole, heads_whole)) = (picture(pair, Reading::ByIndex), picture(pair, Reading::Whole));
    assert_eq!(by_index, whole);
    // Padding, and what was copied, may be nowhere after a power cut: an index has their places still.
    assert!(heads.iter().zip(heads_whole).all(|(head, whole)| *head >= whole), "{heads:?}, {heads_whole:?}");
}

/// The index that a superblock names.
fn named(pair: &Pair) -> Option<crate::index::IndexAt> {
    let (_, superblock) = newest(&*pair.ssd.attach()).expect("read").expect("it has one");
    superblock.index
}

/// Writes sectors one at a time, the first with this seed, and syncs.
fn write_synced(device: &TieredDevice, sectors: std::ops::Range<u64>, seed: u64) {
    for (sector, seed) in sectors.zip(seed..) {
        write(device, sector, seed);
    }
    device.sync().expect("sync");
}

#[test]
fn an_opening_reads_the_index_and_what_is_behind_it() {
    for nth in [1_000_000, 2, 1] {
        let pair = Pair::new(3, nth);
        let device = pair.opened();
        for round in 0..3 {
            write_synced(&device, 0..12, 100 * round);
            device.index();
        }
        write_synced(&device, 12..24, 400);
        assert!(device.index() || device.info().unindexed_sectors < 20);
        let unindexed = device.info().unindexed_sectors;
        write_synced(&device, 30..33, 500);
        pair.crash();
        assert_as_whole(&pair);
        let device = pair.opened();
        let info = device.info();
        assert!(info.opening.index_sectors > 0, "{info:?}");
        // Behind what is in no index a log is read as far as one may go on without a header.
        let gaps = 2 * (40 + 2 * 9 + 1);
        let behind = unindexed + 3 * 2 + 4;
        assert!(info.opening.log_sectors <= behind + gaps, "{info:?}, {behind}");
        for sector in 0..12 {
            assert_eq!(content(&device, sector), Some(sector_pattern(200 + sector, 1)), "of every {nth}th, {sector}");
            assert_eq!(content(&device, 12 + sector), Some(sector_pattern(400 + sector, 1)));
        }
        assert_eq!(content(&device, 32), Some(sector_pattern(502, 1)));
    }
}

#[test]
fn the_power_goes_in_every_step_of_an_index_and_the_opening_finds_the_same() {
    for seed in 0..12 {
        let mut by_index = Vec::new();
        for after in 0.. {
            let pair = Pair { copy_sectors_max: [0, 1000][(seed % 2) as usize], ..Pair::new(seed, 2 + seed % 3) };
            let device = pair.opened();
            write_synced(&device, 0..25, 0);
            assert!(device.index());
            let first = named(&pair);
            write_synced(&device, 5..30, 100);
            pair.ssd.cut_power_after(after);
            // It fails in the one or the other step; nobody is told, but that the drive does not work.
            let done = device.index();
            if done {
                assert!(device.info().ssd_works && after > 5, "{after}");
                assert!(by_index.contains(&first) && by_index.last() != Some(&first));
                break;
            }
            drop(device);
            pair.crash();
            assert_as_whole(&pair);
            by_index.push(named(&pair));
            assert!(named(&pair).is_some());
            let device = pair.opened();
            assert!(device.info().opening.index_sectors > 0, "one of the two is whole");
            for sector in 0..30 {
                let newest = if sector < 5 { sector } else { 95 + sector };
                assert_eq!(content(&device, sector), Some(sector_pattern(newest, 1)), "cut {after}, sector {sector}");
            }
        }
    }
}

#[test]
fn an_index_that_does_not_read_is_passed_over_and_never_gone_by_again() {
    for hurt in [0, 1] {
        let pair = Pair::new(7, 2);
        let device = pair.opened();
        write_synced(&device, 0..25, 0);
        assert!(device.index());
        write_synced(&device, 5..8, 100);
        let at = named(&pair).expect("it was written");
        let sector = Sector(1 + at.place + hurt);
        let whole = pair.ssd.content(sector).expect("it was written");
        pair.crash();
        pair.ssd.make_lost(sector.0..sector.0 + 1);
        let device = pair.opened();
        assert_eq!((device.info().opening.index_sectors, named(&pair)), (0, None));
        drop(device);
        // What did not read does again: what the opening decided counts, whatever an index says.
        pair.ssd.attach().write(sector, &whole).expect("write");
        pair.ssd.attach().sync().expect("sync");
        pair.crash();
        let device = pair.opened();
        assert_eq!(device.info().opening.index_sectors, 0);
        for sector in 0..25 {
            let newest = if (5..8).contains(&sector) { 95 + sector } else { sector };
            assert_eq!(content(&device, sector), Some(sector_pattern(newest, 1)));
        }
    }
}

#[test]
fn an_index_that_does_not_read_is_named_no_more_before_the_opening_decides_anything() {
    for after in 0.. {
        let pair = Pair::new(7, 2);
        let device = pair.opened();
        write_synced(&device, 0..25, 0);
        assert!(device.index());
        drop(device);
        let at = named(&pair).expect("it was written");
        pair.crash();
        pair.ssd.make_lost(1 + at.place..2 + at.place);
        let before = pair.sectors_with(Side::Ssd, b"CLAYTREC").len();
        pair.ssd.cut_power_after(after);
        if pair.open().is_ok() {
            assert!(after > 10, "{after}");
            break;
        }
        pair.crash();
        let has_decided = pair.sectors_with(Side::Ssd, b"CLAYTREC").len() > before;
        assert!(!has_decided || named(&pair).is_none(), "cut {after}");
    }
}

#[test]
fn an_index_of_what_is_at_home_is_named_no_more() {
    let pair = Pair::new(1, 2);
    let device = pair.opened();
    write_synced(&device, 0..25, 0);
    assert!(device.index() && named(&pair).is_some());
    while device.drain().expect("drain").more {}
    assert_eq!(named(&pair), None);
    // The same where the solid-state drive is given up, and another one comes.
    write_synced(&device, 0..25, 100);
    assert!(device.index() && named(&pair).is_some());
    device.retire_ssd().expect("retired");
    drop(device);
    let new = SimDevice::alone("new", HddModel::new(LOG + 2), 5);
    TieredDevice::join_ssd(&*pair.hdd.attach(), &*new.attach(), None).expect("joined");
    let device = TieredDevice::open(pair.hdd.attach(), Some(new.attach()), now(), pair.tuning()).expect("open");
    assert_eq!(content(&device, 3), Some(sector_pattern(103, 1)));
}

#[test]
fn an_index_of_version_3_is_passed_over() {
    let pair = Pair::new(1, 2);
    let device = pair.opened();
    write_synced(&device, 0..25, 0);
    assert!(device.index() && named(&pair).is_some());
    drop(device);
    for device in [pair.ssd.attach(), pair.hdd.attach()] {
        super::bare::set_version(&device, 3);
    }
    let device = pair.opened();
    assert_eq!((device.info().opening.index_sectors, named(&pair)), (0, None));
    assert!((0..25).all(|sector| content(&device, sector) == Some(sector_pattern(sector, 1))));
    assert!(device.index());
    drop(device);
    assert!(pair.opened().info().opening.index_sectors > 0);
}

#[test]
fn what_one_index_has_no_room_for_the_next_one_has() {
    const LONG: u64 = 9000;
    let hdd: Arc<dyn Device> = Arc::new(MemoryDevice::new(LONG + LONG + 2));
    let ssd: Arc<dyn Device> = Arc::new(MemoryDevice::new(LONG + 2));
    let long = TierFormat { hdd_log_sectors: Some(LONG), ..format() };
    TieredDevice::format(&*hdd, &*ssd, &long, &SimRandom::new(1)).expect("format");
    let open = || TieredDevice::open(hdd.clone(), Some(ssd.clone()), now(), tuning(3)).expect("open");
    let device = open();
    for round in 0..420 {
        write_synced(&device, 10 * round..10 * round + 10, 10 * round);
    }
    let indexes = std::iter::repeat_with(|| device.index()).take_while(|more| *more).count();
    assert!(indexes > 1, "32 KiB are too few for one: each takes 8 bytes, and each sync 12");
    let unindexed = device.info().unindexed_sectors;
    // Some of what the first one has comes home: what is below the floor counts no more, and the rest does.
    device.drain().expect("drain");
    assert!(device.info().counts.drained_sectors > 20);
    drop(device);
    let device = open();
    let info = device.info();
    assert!(info.opening.index_sectors > 9 && unindexed < 20, "{info:?}");
    assert!((0..4200).all(|sector| content(&device, sector) == Some(sector_pattern(sector, 1))));
}
