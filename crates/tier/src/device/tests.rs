//! The pair as a device: what every device does, what a model says, and what is there after it was opened again.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use claystone_env::testing::{MemoryDevice, device_conformance, sector_pattern};
use claystone_env::{EmulatedTime, SECTOR_BYTES, SectorFailure};
use claystone_sim::{BufferModel, DriveModel, HddModel, SimDevice, SimRandom, SsdModel};
use proptest::prelude::*;

use super::guide::Guide;
use super::*;
use crate::error::{Damage, TierError};
use crate::overlay::Place;
use crate::record::{Header, Kind};
use crate::superblock::{SIDES, Superblock};
use crate::{Finding, Mode, Padding, Profile, ProfilePlan, Rule, SizeLatency, Stage, StageBytes, profile_device};

/// Sectors of each log: few, so that it goes round and is brought home.
const LOG: u64 = 200;
const HOME: u64 = 60;

fn format() -> TierFormat {
    TierFormat { hdd_log_sectors: Some(LOG), record_sectors_max: 8, unmarked_sectors_max: 40, ..TierFormat::default() }
}

fn tuning(nth: u64) -> TierTuning {
    let nth = NonZeroU64::new(nth).expect("not 0");
    TierTuning { steering: Steering::EveryNth(nth), drain_sectors_max: 30, ..TierTuning::default() }
}

fn now() -> Now {
    Arc::new(Moment::default)
}

fn formatted(hdd: &dyn Device, ssd: &dyn Device) {
    TieredDevice::format(hdd, ssd, &format(), &SimRandom::new(1)).expect("format");
}

/// A pair of emulated devices that can fail.
struct Pair {
    hdd: SimDevice,
    ssd: SimDevice,
    nth: u64,
    copy_sectors_max: u64,
}

impl Pair {
    fn new(seed: u64, nth: u64) -> Pair {
        let model = |sectors| HddModel { fails_fast: false, cache_sectors: 1 << 20, ..HddModel::new(sectors) };
        let hdd = SimDevice::alone("hdd", model(HOME + LOG + 2), seed);
        let ssd = SimDevice::alone("ssd", model(LOG + 2), seed + 1000);
        formatted(&*hdd.attach(), &*ssd.attach());
        Pair { hdd, ssd, nth, copy_sectors_max: 0 }
    }

    fn open(&self) -> Result<TieredDevice, TierError> {
        let tuning = TierTuning { copy_sectors_max: self.copy_sectors_max, ..tuning(self.nth) };
        TieredDevice::open(self.hdd.attach(), Some(self.ssd.attach()), now(), tuning)
    }

    fn opened(&self) -> TieredDevice {
        self.open().expect("open")
    }

    /// Does something to it, if it opens.
    fn opened_or(&self, act: impl FnOnce(&TieredDevice) -> Result<(), TierError>) -> Result<(), TierError> {
        act(&self.open()?)
    }

    /// The power goes.
    fn crash(&self) {
        self.hdd.crash();
        self.ssd.crash();
    }

    /// The sectors of a log that begin with these bytes.
    fn sectors_with(&self, side: Side, magic: &[u8]) -> Vec<u64> {
        let device = if side == Side::Ssd { &self.ssd } else { &self.hdd };
        let holds = |sector: &u64| device.content(Sector(*sector)).is_some_and(|content| content.starts_with(magic));
        (1..=LOG).filter(holds).collect()
    }
}

/// What a sector holds; `None`: it is lost.
fn content(device: &dyn Device, sector: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0xa5; SECTOR_BYTES];
    let failed = device.read(Sector(sector), &mut bytes, Effort::Retry).expect("the device answers");
    match failed[..] {
        [] => Some(bytes),
        [failed] => {
            assert_eq!((failed.sector, failed.failure), (Sector(sector), SectorFailure::Lost));
            None
        }
        _ => panic!("one sector, {failed:?}"),
    }
}

fn write(device: &dyn Device, sector: u64, seed: u64) {
    device.write(Sector(sector), &sector_pattern(seed, 1)).expect("write");
}

#[test]
fn a_pair_is_a_device() {
    for nth in [1, 2, 3, 1_000_000] {
        device_conformance(|sectors| {
            let hdd: Arc<dyn Device> = Arc::new(MemoryDevice::new(sectors + LOG + 2));
            let ssd: Arc<dyn Device> = Arc::new(MemoryDevice::new(LOG + 2));
            formatted(&*hdd, &*ssd);
            Arc::new(TieredDevice::open(hdd, Some(ssd), now(), tuning(nth)).expect("open"))
        });
    }
}

#[test]
fn it_is_told_what_is_no_pair() {
    let devices = || [LOG + HOME + 2, LOG + 2].map(|sectors| Arc::new(MemoryDevice::new(sectors)) as Arc<dyn Device>);
    let open = |hdd: &Arc<dyn Device>, ssd: Option<&Arc<dyn Device>>| {
        TieredDevice::open(hdd.clone(), ssd.cloned(), now(), tuning(2)).map(|_| ()).expect_err("no pair")
    };
    let ([hdd, ssd], [other_hdd, other_ssd]) = (devices(), devices());
    assert!(matches!(open(&hdd, Some(&ssd)), TierError::NotATier { .. }));
    formatted(&*hdd, &*ssd);
    TieredDevice::format(&*other_hdd, &*other_ssd, &format(), &SimRandom::new(2)).expect("format");
    assert!(matches!(open(&hdd, Some(&other_ssd)), TierError::OtherPair { .. }));
    assert!(matches!(open(&ssd, Some(&hdd)), TierError::OtherSide { .. }));
    let missing = open(&hdd, None);
    assert!(
        matches!(missing, TierError::SsdMissing { .. }) && missing.to_string().contains("give it with"),
        "{missing}"
    );
    let small = MemoryDevice::new(100);
    let formatted = TieredDevice::format(&*hdd, &small, &format(), &SimRandom::new(1));
    assert!(matches!(formatted, Err(TierError::TooSmall { sectors_min: 114, .. })), "{formatted:?}");
    let odd = TierFormat { record_sectors_max: 7, ..format() };
    assert!(TieredDevice::format(&*hdd, &*ssd, &odd, &SimRandom::new(1)).is_err());
}

#[test]
fn what_was_synced_is_there_after_a_power_cut_and_nothing_is_older() {
    for seed in 0..40 {
        let pair = Pair::new(seed, 2);
        let device = pair.opened();
        for sector in 0..12 {
            write(&device, sector, sector);
        }
        device.sync().expect("sync");
        for sector in 0..6 {
            write(&device, sector, 100 + sector);
        }
        pair.crash();
        let device = pair.opened();
        let old = |sector: u64| Some(sector_pattern(sector, 1));
        for sector in 0..12 {
            let found = content(&device, sector);
            let is_new = sector < 6 && found == Some(sector_pattern(100 + sector, 1));
            assert!(found == old(sector) || is_new, "seed {seed}, sector {sector}");
        }
        // What was found stays so.
        let found: Vec<_> = (0..6).map(|sector| content(&device, sector)).collect();
        for _ in 0..3 {
            pair.crash();
            let device = pair.opened();
            assert!((0..6).all(|sector| content(&device, sector) == found[sector as usize]), "seed {seed}");
        }
    }
}

#[test]
fn a_sync_copies_little_of_the_hard_disk_s_buffer_and_what_was_written_later_stays_the_newest() {
    for seed in 0..40 {
        let pair = Pair { copy_sectors_max: 20, ..Pair::new(seed, 2) };
        let device = pair.opened();
        let before = device.info().counts.hdd_syncs;
        for sector in 0..8 {
            device.write(Sector(sector), &sector_pattern(sector, 3)).expect("write");
        }
        device.sync().expect("sync");
        let counts = device.info().counts;
        // Of four records of three sectors each the next ones left one.
        assert_eq!((counts.copied_sectors, counts.hdd_syncs - before), (6, 0), "seed {seed}");
        write(&device, 0, 100);
        // A hard disk that is not synced has nothing of it.
        pair.crash();
        let device = pair.opened();
        for sector in 1..8 {
            assert_eq!(content(&device, sector), Some(sector_pattern(sector, 1)), "seed {seed}, sector {sector}");
        }
        let last = sector_pattern(7, 3);
        assert_eq!(content(&device, 9).as_deref(), Some(&last[2 * SECTOR_BYTES..]));
        // More than that is synced where it is.
        let before = device.info().counts.hdd_syncs;
        for sector in 0..20 {
            write(&device, sector, 200 + sector);
            write(&device, sector, 300 + sector);
        }
        device.sync().expect("sync");
        assert_eq!(device.info().counts.hdd_syncs - before, 1);
        pair.crash();
        let device = pair.opened();
        assert!((0..20).all(|sector| content(&device, sector) == Some(sector_pattern(300 + sector, 1))));
    }
}

#[test]
fn what_was_copied_is_found_in_the_hard_disk_s_log_when_the_solid_state_drive_fails() {
    for settled in [false, true] {
        // All go to the hard disk's log, and are copied.
        let pair = Pair { copy_sectors_max: 20, ..Pair::new(1, 1) };
        let device = pair.opened();
        let hdd_syncs = device.info().counts.hdd_syncs;
        // Of the first record the second leaves both ends.
        device.write(Sector(0), &sector_pattern(1, 5)).expect("write");
        write(&device, 2, 2);
        device.sync().expect("sync");
        let counts = device.info().counts;
        assert_eq!((counts.copied_sectors, counts.hdd_syncs - hdd_syncs), (5, 0));
        pair.ssd.set_removed(true);
        if settled {
            write(&device, 9, 9);
            device.sync().expect("it goes on with the hard disk");
            assert_eq!(device.info().lost_sectors, 0);
        }
        let first = sector_pattern(1, 5);
        for sector in 0..5 {
            let expected = if sector == 2 {
                sector_pattern(2, 1)
            } else {
                first[sector as usize * SECTOR_BYTES..][..SECTOR_BYTES].to_vec()
            };
            assert_eq!(content(&device, sector), Some(expected), "{sector}, settled: {settled}");
        }
    }
}

#[test]
fn a_copy_s_original_that_is_hurt_is_lost_with_the_solid_state_drive() {
    let pair = Pair { copy_sectors_max: 20, ..Pair::new(1, 1) };
    let device = pair.opened();
    write(&device, 3, 1);
    write(&device, 4, 2);
    device.sync().expect("sync");
    let of_3 = sector_pattern(1, 1);
    let place = (1..=LOG).find(|sector| pair.hdd.content(Sector(*sector)).is_some_and(|content| content == of_3[..]));
    let place = place.expect("the hard disk's log has it");
    pair.hdd.attach().write(Sector(place), &[1; SECTOR_BYTES]).expect("write");
    pair.ssd.set_removed(true);
    assert_eq!((content(&device, 3), content(&device, 4)), (None, Some(sector_pattern(2, 1))));
    device.sync().expect("it goes on with the hard disk");
    write(&device, 9, 9);
    device.sync().expect("sync");
    assert_eq!((content(&device, 3), content(&device, 4)), (None, Some(sector_pattern(2, 1))));
    assert_eq!(device.info().lost_sectors, 1);
}

#[test]
fn a_mark_that_is_hurt_misses_no_record_that_was_copied() {
    for seed in 0..40 {
        let pair = Pair { copy_sectors_max: 20, ..Pair::new(seed, 2) };
        let device = pair.opened();
        let before = pair.sectors_with(Side::Ssd, b"CLAYTREC");
        for sector in 0..4 {
            write(&device, sector, sector);
        }
        // All that the hard disk has of this one is older.
        write(&device, 3, 33);
        device.sync().expect("sync");
        // The second of them goes to the solid-state drive, and knows of the mark.
        write(&device, 9, 9);
        write(&device, 10, 10);
        let after = pair.sectors_with(Side::Ssd, b"CLAYTREC");
        let [.., mark, _] = after.iter().copied().filter(|sector| !before.contains(sector)).collect::<Vec<_>>()[..]
        else {
            panic!("records and a mark were written")
        };
        device.ssd.as_ref().expect("it is there").sync().expect("sync");
        pair.crash();
        pair.ssd.make_lost(mark..mark + 1);
        let device = pair.open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let found: Vec<_> = (0..4).map(|sector| content(&device, sector)).collect();
        let expected = [0, 1, 2, 33].map(|seed| Some(sector_pattern(seed, 1)));
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[test]
fn a_mark_that_is_hurt_misses_no_padding() {
    for seed in 0..20 {
        let pair = Pair::new(seed, 1_000_000);
        let mut device = pair.opened();
        let rule = Rule { mode: Mode::Disabled, queue_max: 6, early: None, waiting_max: 1, longest: None };
        device.state().guide = Some(Guide::new(small_profile(), rule, crate::Tuning::default()));
        device.tuning.steering = Steering::Predicted { rule, tuning: crate::Tuning::default() };
        let before = pair.sectors_with(Side::Ssd, b"CLAYTREC");
        write(&device, 1, 1);
        // Nobody knows where the disk is.
        device.tend().expect("tend");
        write(&device, 2, 2);
        device.tend().expect("tend");
        assert!(device.info().counts.padding_sectors > 1);
        device.sync().expect("sync");
        write(&device, 3, 3);
        let after = pair.sectors_with(Side::Ssd, b"CLAYTREC");
        let [.., mark, _] = after.iter().copied().filter(|sector| !before.contains(sector)).collect::<Vec<_>>()[..]
        else {
            panic!("records and a mark were written")
        };
        device.ssd.as_ref().expect("it is there").sync().expect("sync");
        pair.crash();
        pair.ssd.make_lost(mark..mark + 1);
        let device = pair.open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for sector in 1..4 {
            assert_eq!(content(&device, sector), Some(sector_pattern(sector, 1)), "seed {seed}");
        }
    }
}

#[test]
fn padding_that_no_sync_had_room_to_tell_of_is_told_of_by_the_next() {
    let device = Pair::new(1, 1_000_000).opened();
    let padded: Vec<SectorRange> =
        (0..700).map(|at| SectorRange { first: Sector(1000 + 2 * at), sectors: 1 }).collect();
    let mut state = device.state();
    let unmarked_max = u64::from(state.superblock.unmarked_sectors_max);
    state.unmarked[Side::Ssd as usize] += unmarked_max - 1;
    assert_eq!(device.stage_void(&mut state, &padded).len(), 1);
    assert!(state.padded == padded[300..]);
}

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
        hurt.flip_bit(Sector(header + 1), 77);
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

/// A device that waits in a write, and fails it.
struct Gated {
    device: Arc<dyn Device>,
    /// Writes before that one.
    left: AtomicI64,
    /// It is there.
    at_gate: Mutex<Sender<()>>,
    opened: Mutex<Receiver<()>>,
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
    let ((at_gate, reached), (open_gate, opened)) = (channel(), channel());
    let gated = Arc::new(Gated {
        device: ssd,
        left: AtomicI64::new(i64::MAX),
        at_gate: Mutex::new(at_gate),
        opened: Mutex::new(opened),
    });
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
#[expect(clippy::disallowed_methods, reason = "a write that waits for room, and a sync that fails")]
fn who_waits_for_room_is_told_when_the_hard_disk_fails() {
    let pair = Pair::new(1, 1_000_000);
    let device = pair.opened();
    // A read is under way all the time, and what it may read is not freed.
    {
        let mut state = device.state();
        let reader = state.next_reader;
        state.next_reader += 1;
        state.readers.insert(reader);
    }
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let fills = |number: u64| device.write(Sector(number % HOME), &sector_pattern(number, 1));
            (0..10 * LOG).find_map(|number| fills(number).err())
        });
        // It waits for the read to end.
        while device.state().freed.is_empty() || device.state().counts.waits == 0 {
            std::thread::yield_now();
        }
        (0..1000).for_each(|_| std::thread::yield_now());
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

/// Fails the solid-state drive of a pair that has a record of data, as if that had so many sectors, each apart from the others.
fn lose(device: &TieredDevice, sectors: u64) {
    let mut state = device.state();
    let (seq, _) = state.records.iter().find(|(_, held)| held.kind == Kind::Data).expect("it was written");
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
        let ssd: Arc<dyn Device> = Arc::new(MemoryDevice::new(4000));
        let format = TierFormat {
            hdd_log_sectors: Some(LOG),
            record_sectors_max,
            unmarked_sectors_max: 600,
            ..TierFormat::default()
        };
        TieredDevice::format(&*hdd.attach(), &*ssd, &format, &SimRandom::new(1)).expect("format");
        let device = TieredDevice::open(hdd.attach(), Some(ssd), now(), tuning(1_000_000)).expect("open");
        write(&device, 0, 1);
        device.sync().expect("sync");
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

/// A hard disk whose write buffer takes 512 KiB after a sync and 256 KiB between slow writes; with a clock of its own.
struct Buffered {
    device: MemoryDevice,
    time: Arc<AtomicU64>,
    left: Mutex<u64>,
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
        let takes = *left >= bytes_now;
        // The kind of a record.
        self.slow.fetch_add(u64::from(!takes && bytes[12] == 1), Ordering::Relaxed);
        *left = if takes { *left - bytes_now } else { 256 << 10 };
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

fn small_profile() -> Profile {
    let stage = |mean: u64| StageBytes { mean, deviation: 1000, least: mean - 4096, seen: 20 };
    let size = |bytes: u64| SizeLatency {
        bytes,
        fast_ns: 60_000,
        mid_ns: 60_000,
        slow_ns: 12_000_000,
        slow_from_ns: 2_000_000,
    };
    Profile {
        version: crate::FORMAT_VERSION,
        device: "buffered".to_owned(),
        fast: stage(512 << 10),
        mid: stage(256 << 10),
        slow: stage(64 << 10),
        sizes: vec![size(4096), size(64 << 10)],
    }
}

#[test]
fn writes_go_to_the_hard_disk_while_its_buffer_takes_them_and_no_user_meets_a_slow_one() {
    const LOG: u64 = 8000;
    let (time, slow) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let device = MemoryDevice::new(LOG + 300 + 2);
    let hdd: Arc<dyn Device> =
        Arc::new(Buffered { device, time: time.clone(), left: Mutex::new(0), slow: slow.clone() });
    let ssd: Arc<dyn Device> = Arc::new(MemoryDevice::new(4000));
    let format = TierFormat {
        hdd_log_sectors: Some(LOG),
        record_sectors_max: 15,
        unmarked_sectors_max: 3000,
        profile: Some(small_profile()),
        queue_max: None,
    };
    TieredDevice::format(&*hdd, &*ssd, &format, &SimRandom::new(1)).expect("format");
    let rule = Rule { mode: Mode::Enabled, queue_max: 0, early: None, waiting_max: 1, longest: None };
    let padding = Padding { keeps_fast: true, ..Padding::default() };
    let steering = Steering::Predicted { rule, tuning: crate::Tuning { padding, ..crate::Tuning::default() } };
    let open = || {
        let time = time.clone();
        let now: Now = Arc::new(move || Moment(Duration::from_micros(time.load(Ordering::Relaxed))));
        TieredDevice::open(hdd.clone(), Some(ssd.clone()), now, TierTuning { steering, ..TierTuning::default() })
            .expect("open")
    };
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
    for sectors in [1, 4, 16, 64] {
        let (both, copied) = (synced_writes(0, sectors), synced_writes(copy_sectors_max, sectors));
        println!("{sectors} sectors: {both:?} with a sync of the hard disk, {copied:?} with a copy");
        assert!(copied.0 * 3 < both.0, "{sectors} sectors: {copied:?}, {both:?}");
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

/// What happens to a pair in a run.
#[derive(Debug, Clone)]
enum Act {
    Write { first: u64, sectors: usize, seed: u64 },
    WriteEach { firsts: Vec<u64>, seed: u64 },
    Discard { first: u64, sectors: u64 },
    Sync,
    Drain,
    Tend,
    Reopen,
    Crash,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0..HOME, 1..20usize, any::<u64>()).prop_map(|(first, sectors, seed)| {
            Act::Write { first, sectors: sectors.min((HOME - first) as usize), seed }
        }),
        3 => (proptest::collection::vec(0..HOME, 1..12), any::<u64>())
            .prop_map(|(firsts, seed)| Act::WriteEach { firsts, seed }),
        1 => (0..HOME, 1..9u64).prop_map(|(first, sectors)| {
            Act::Discard { first, sectors: sectors.min(HOME - first) }
        }),
        3 => Just(Act::Sync),
        2 => Just(Act::Drain),
        1 => Just(Act::Tend),
        1 => Just(Act::Reopen),
        2 => Just(Act::Crash),
    ]
}

/// What a sector may hold: anything, or one of these, the last of which it holds while nothing fails.
#[derive(Debug, Clone)]
struct Cell {
    any: bool,
    may: Vec<Vec<u8>>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn a_pair_is_as_a_model_says_through_power_cuts(
        acts in proptest::collection::vec(act(), 1..80),
        nth in 1u64..5,
        copy_sectors_max in prop::sample::select(vec![0, 6, 1000]),
        seed in any::<u16>(),
    ) {
        let pair = Pair { copy_sectors_max, ..Pair::new(seed.into(), nth) };
        let mut device = pair.opened();
        let mut model = vec![Cell { any: false, may: vec![vec![0; SECTOR_BYTES]] }; HOME as usize];
        for act in acts {
            match &act {
                Act::Write { first, sectors, seed } => {
                    let bytes = sector_pattern(*seed, *sectors);
                    device.write(Sector(*first), &bytes).expect("write");
                    for (cell, bytes) in model[*first as usize..].iter_mut().zip(bytes.chunks_exact(SECTOR_BYTES)) {
                        cell.may.push(bytes.to_vec());
                    }
                }
                Act::WriteEach { firsts, seed } => {
                    let mut firsts = firsts.clone();
                    firsts.sort_unstable();
                    firsts.dedup();
                    let bytes = sector_pattern(*seed, firsts.len());
                    let parts = firsts.iter().copied().map(Sector).zip(bytes.chunks_exact(SECTOR_BYTES));
                    let writes: Vec<(Sector, &[u8])> = parts.collect();
                    device.write_each(&writes).expect("write");
                    for (first, bytes) in writes {
                        model[first.0 as usize].may.push(bytes.to_vec());
                    }
                }
                Act::Discard { first, sectors } => {
                    let range = SectorRange { first: Sector(*first), sectors: *sectors };
                    device.discard(range).expect("discard");
                    for cell in &mut model[*first as usize..(first + sectors) as usize] {
                        *cell = Cell { any: true, may: Vec::new() };
                    }
                }
                Act::Sync | Act::Drain => {
                    if matches!(act, Act::Drain) {
                        device.drain().expect("drain");
                    }
                    device.sync().expect("sync");
                    for cell in &mut model {
                        let from = cell.may.len().saturating_sub(1);
                        cell.any &= cell.may.is_empty();
                        cell.may.drain(..from);
                    }
                }
                Act::Tend => drop(device.tend().expect("tend")),
                Act::Reopen => {
                    device = pair.opened();
                    // An opening makes durable what it finds.
                    for cell in &mut model {
                        let from = cell.may.len().saturating_sub(1);
                        cell.any &= cell.may.is_empty();
                        cell.may.drain(..from);
                    }
                }
                Act::Crash => {
                    pair.crash();
                    device = pair.opened();
                    for (sector, cell) in (0..).zip(&mut model) {
                        match content(&device, sector) {
                            _ if cell.any => cell.may.clear(),
                            Some(found) if cell.may.contains(&found) => cell.may = vec![found],
                            // Torn, or unreadable until it is written: nothing was promised.
                            _ if cell.may.len() > 1 => *cell = Cell { any: true, may: Vec::new() },
                            found => prop_assert!(false, "sector {} is {}", sector, found.map_or("lost", |_| "stale")),
                        }
                    }
                }
            }
            for (sector, cell) in (0..).zip(&model) {
                if let Some(newest) = cell.may.last() {
                    let found = content(&device, sector);
                    prop_assert!(found.as_ref() == Some(newest), "sector {} after {:?}", sector, act);
                }
            }
        }
    }
}
