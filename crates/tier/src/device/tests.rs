//! The pair as a device: what every device does, what a model says, and what is there after it was opened again.

mod bare;
mod copies;
mod damage;
mod index;
mod loss;
mod model;
mod rejoin;
mod rest;
mod steering;
mod waiting;

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use claystone_env::testing::{MemoryDevice, device_conformance, sector_pattern};
use claystone_env::{BufferState, EmulatedTime, SECTOR_BYTES, SectorFailure};
use claystone_sim::{BufferModel, DriveModel, HddModel, SimDevice, SimRandom, SsdModel};
use proptest::prelude::*;

use super::guide::Guide;
use super::state::Held;
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
    TierFormat {
        hdd_log_sectors: Some(LOG),
        record_sectors_max: 8,
        unmarked_sectors_max: Some(40),
        ..TierFormat::default()
    }
}

fn tuning(nth: u64) -> TierTuning {
    let nth = NonZeroU64::new(nth).expect("not 0");
    let steering = Steering::EveryNth(nth);
    TierTuning { steering, drain_sectors_max: 30, index_every_sectors: 20, ..TierTuning::default() }
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
        TieredDevice::open(self.hdd.attach(), Some(self.ssd.attach()), now(), self.tuning())
    }

    fn tuning(&self) -> TierTuning {
        TierTuning { copy_sectors_max: self.copy_sectors_max, ..tuning(self.nth) }
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
fn memory_has_so_many_records_at_most() {
    const RECORDS: usize = 20;
    for nth in [1, 2, 1_000_000] {
        let pair = Pair::new(nth, nth);
        let tuning = TierTuning { records_max: RECORDS, drain_sectors_max: 5, ..pair.tuning() };
        let open = || TieredDevice::open(pair.hdd.attach(), Some(pair.ssd.attach()), now(), tuning).expect("open");
        let device = open();
        for seed in 0..200 {
            write(&device, seed % HOME, seed);
            if seed % 3 == 0 {
                device.sync().expect("sync");
            }
            // Those of syncs come besides: a mark, and what lists bare records.
            let records = device.state().records.len();
            assert!(records <= RECORDS + 4, "{records} records");
        }
        assert!(device.info().counts.waits > 5, "{:?}", device.info());
        device.sync().expect("sync");
        drop(device);
        pair.crash();
        // More than half of them wait: they are brought home before somebody waits for it.
        let device = open();
        while device.tend().expect("tend").more {}
        assert!(device.state().records.len() <= RECORDS / 2 + 5, "{:?}", device.state().records.len());
        for sector in 0..HOME {
            let newest = if sector < 20 { 180 + sector } else { 120 + sector };
            assert_eq!(content(&device, sector), Some(sector_pattern(newest, 1)), "sector {sector}");
        }
    }
}

#[test]
fn where_a_log_begins_is_known_however_many_records_of_the_other_are_between() {
    let pair = Pair::new(1, 3);
    let device = pair.opened();
    (0..20).for_each(|seed| write(&device, seed, seed));
    let mut state = device.state();
    for seq in state.records.keys().copied().chain([0, u64::MAX]) {
        for side in SIDES {
            let walked = state.records.range(seq..).find(|(_, held)| held.side == side);
            let position = walked.map_or(state.rings[side as usize].head(), |(_, held)| held.position);
            assert_eq!(state.first_position(side, seq), position);
        }
    }
    // To walk over these each time would take minutes.
    let held = state.records.values().find(|held| held.side == Side::Ssd).expect("it was written").clone();
    let (first, last) = (state.next_seq, state.next_seq + 200_000);
    (first..=last).for_each(|seq| state.hold(seq, Held { entries: Vec::new(), ..held.clone() }));
    let head = state.rings[Side::Hdd as usize].head();
    assert!((first..last).all(|seq| state.first_position(Side::Hdd, seq) == head));
    state.free_below(last);
    assert_eq!((state.records.len(), state.first_position(Side::Ssd, 0)), (1, held.position));
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
