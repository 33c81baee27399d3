//! The pair under drill: two emulated devices, and what they hold at every moment at which the power could go.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use claystone_env::{
    Device, DeviceError, Effort, FailedSector, Geometry, Moment, Random, SECTOR_BYTES, Sector, SectorRange,
};
use claystone_sim::{DeviceMoment, HddModel, SimDevice, SimRandom};
use claystone_tier::{
    FORMAT_VERSION, Member, Mode, Profile, Rule, SizeLatency, StageBytes, Steering, TierError, TierFormat, TierTuning,
    TieredDevice, Tuning,
};

use super::model::{Found, HOME, Step};
use super::turns::Turns;

/// Sectors of each log.
pub const LOG: u64 = 140;

/// What both devices hold at one moment.
#[derive(Clone)]
pub struct PairMoment {
    hdd: DeviceMoment,
    ssd: DeviceMoment,
}

/// See the module.
pub struct Pair {
    pub hdd: SimDevice,
    pub ssd: SimDevice,
    steering: Steering,
    copy_sectors_max: u64,
    tiered: Option<Arc<TieredDevice>>,
    moments: Moments,
    time: Arc<AtomicU64>,
    /// Whose turn it is, if several call it at once.
    turns: Option<Arc<Turns>>,
}

/// Moments so far; `None`: they are not kept.
type Moments = Arc<Mutex<Option<Vec<PairMoment>>>>;

impl Pair {
    /// A new pair, formatted.
    pub fn new(seed: u64) -> Result<Pair> {
        Pair::of(seed, HOME, LOG)
    }

    /// The same with so many sectors of the home, and of each log.
    pub fn of(seed: u64, home: u64, log: u64) -> Result<Pair> {
        let model = |sectors| HddModel { fails_fast: false, cache_sectors: 1 << 20, ..HddModel::new(sectors) };
        let hdd = SimDevice::alone("hdd", model(home + log + 2), seed);
        let ssd = SimDevice::alone("ssd", model(log + 2), seed ^ 0x5555_5555);
        let format = TierFormat {
            hdd_log_sectors: Some(log),
            record_sectors_max: 8,
            unmarked_sectors_max: Some(24),
            profile: Some(profile()),
            queue_max: None,
        };
        TieredDevice::format(&*hdd.attach(), &*ssd.attach(), &format, &SimRandom::new(seed)).context("formatting")?;
        let steering = match seed % 5 {
            0 => predicted(),
            nth => Steering::EveryNth(NonZeroU64::new(nth).expect("it is 1 at least")),
        };
        // Of three seeds one syncs the hard disk, one copies little of what its buffer holds to the solid-state drive, one all.
        let copy_sectors_max = [0, 6, 1000][(seed % 3) as usize];
        let (moments, time) = (Moments::default(), Arc::default());
        Ok(Pair { hdd, ssd, steering, copy_sectors_max, tiered: None, moments, time, turns: None })
    }

    /// Both as they were at a moment, after a power cut then.
    pub fn branch(&self, moment: &PairMoment, random: &dyn Random) -> Pair {
        let hdd = self.hdd.branch(&moment.hdd, random.fork("hdd"));
        let ssd = self.ssd.branch(&moment.ssd, random.fork("ssd"));
        hdd.crash();
        ssd.crash();
        let Pair { steering, copy_sectors_max, .. } = *self;
        let (moments, time) = (Moments::default(), Arc::default());
        Pair { hdd, ssd, steering, copy_sectors_max, tiered: None, moments, time, turns: None }
    }

    /// Opens it, without the solid-state drive if it is gone.
    pub fn open(&mut self, with_ssd: bool) -> Result<(), TierError> {
        self.tiered = None;
        let time = self.time.clone();
        // A call takes 100 us, and some take as long as a slow write.
        let now = move || {
            let passed = time.load(Ordering::Relaxed);
            let step = if (passed / 100).is_multiple_of(7) { 5000 } else { 100 };
            Moment(Duration::from_micros(time.fetch_add(step, Ordering::Relaxed)))
        };
        let tuning = TierTuning {
            steering: self.steering,
            drain_sectors_max: 12,
            drain_when_idle: Duration::from_millis(4),
            drain_when_old: Duration::from_millis(6),
            drain_old_sectors_max: 5,
            drain_old_percent: 100,
            drain_old_percent_unused: 100,
            copy_sectors_max: self.copy_sectors_max,
            index_every_sectors: 6,
            ..TierTuning::default()
        };
        let (hdd, ssd) = (self.watched(&self.hdd), with_ssd.then(|| self.watched(&self.ssd)));
        let tiered = TieredDevice::open(hdd, ssd, Arc::new(now), tuning)?;
        self.tiered = Some(Arc::new(match &self.turns {
            Some(turns) => tiered.with_bell(turns.bell()),
            None => tiered,
        }));
        Ok(())
    }

    /// From the next opening on several call it at once, each in its turn.
    pub fn take_turns(&mut self, turns: Arc<Turns>) {
        self.turns = Some(turns);
    }

    /// From the next opening on writes are steered by the profile.
    pub fn steer_by_profile(&mut self) {
        self.steering = predicted();
    }

    /// Moments that were kept and not taken.
    pub fn kept_moments(&self) -> usize {
        self.moments().as_ref().map_or(0, Vec::len)
    }

    /// Whether the hard disk says that all is at home.
    pub fn is_at_rest(&self) -> Result<bool> {
        let member = Member::of(&*self.hdd.attach())?.context("the hard disk is of a pair")?;
        Ok(member.at_rest)
    }

    /// The power of both goes and comes back.
    pub fn crash(&mut self) {
        self.tiered = None;
        self.hdd.crash();
        self.ssd.crash();
    }

    /// The device.
    ///
    /// # Panics
    /// If it is not open.
    pub fn tiered(&self) -> &Arc<TieredDevice> {
        self.tiered.as_ref().expect("the pair is open")
    }

    /// Does a step.
    pub fn act(&mut self, step: &Step) -> Result<()> {
        if *step == Step::Reopen {
            self.open(true)?;
        }
        self.call(step)
    }

    /// Does one that is a call of the device; [`Step::Reopen`] is nothing.
    pub fn call(&self, step: &Step) -> Result<()> {
        match step {
            Step::Write(tags) => {
                let bytes: Vec<(u64, Vec<u8>)> = tags.iter().map(|(sector, tag)| (*sector, content(*tag))).collect();
                let mut joined: Vec<(Sector, Vec<u8>)> = Vec::new();
                for (sector, bytes) in bytes {
                    match joined.last_mut() {
                        Some((first, run)) if first.0 + (run.len() / SECTOR_BYTES) as u64 == sector => {
                            run.extend(bytes)
                        }
                        _ => joined.push((Sector(sector), bytes)),
                    }
                }
                let writes: Vec<(Sector, &[u8])> = joined.iter().map(|(first, run)| (*first, &run[..])).collect();
                self.tiered().write_each(&writes)?;
            }
            Step::Sync => self.tiered().sync()?,
            Step::Drain => drop(self.tiered().drain()?),
            Step::Tend => drop(self.tiered().tend()?),
            Step::Index => {
                self.tiered().index();
            }
            Step::Rest => self.tiered().rest()?,
            Step::Discard(sectors) => {
                let range = SectorRange { first: Sector(sectors.start), sectors: sectors.end - sectors.start };
                self.tiered().discard(range)?;
            }
            Step::Reopen => {}
        }
        Ok(())
    }

    /// What all sectors hold.
    pub fn contents(&self) -> Result<Vec<Found>> {
        let mut bytes = vec![0xa5; HOME as usize * SECTOR_BYTES];
        let failed = self.tiered().read(Sector(0), &mut bytes, Effort::Retry)?;
        let mut found: Vec<Found> = bytes.chunks_exact(SECTOR_BYTES).map(found_in).collect();
        for failed in failed {
            found[failed.sector.0 as usize] = Found::Lost;
        }
        Ok(found)
    }

    /// From now on, or not, moments are kept.
    pub fn keep_moments(&self, keep: bool) {
        *self.moments() = keep.then(Vec::new);
    }

    /// Those since they were last taken.
    pub fn take_moments(&self) -> Vec<PairMoment> {
        self.moments().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// What both hold now.
    pub fn moment(&self) -> PairMoment {
        PairMoment { hdd: self.hdd.moment(), ssd: self.ssd.moment() }
    }

    fn moments(&self) -> MutexGuard<'_, Option<Vec<PairMoment>>> {
        self.moments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watched(&self, device: &SimDevice) -> Arc<dyn Device> {
        let (hdd, ssd, moments) = (self.hdd.clone(), self.ssd.clone(), self.moments.clone());
        Arc::new(Watched { device: device.attach(), hdd, ssd, moments, turns: self.turns.clone() })
    }
}

/// A device of the pair, which keeps what both hold in each operation that changes something.
struct Watched {
    device: Arc<dyn Device>,
    hdd: SimDevice,
    ssd: SimDevice,
    moments: Moments,
    turns: Option<Arc<Turns>>,
}

impl Watched {
    /// Others may come before what follows: before an operation, and behind it.
    fn give_way(&self) {
        if let Some(turns) = &self.turns {
            turns.give_way();
        }
    }

    fn keep(&self) {
        if let Some(moments) = self.moments.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            moments.push(PairMoment { hdd: self.hdd.moment(), ssd: self.ssd.moment() });
        }
    }
}

impl Device for Watched {
    fn label(&self) -> String {
        self.device.label()
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        self.give_way();
        let read = self.device.read(first, into, effort);
        self.give_way();
        read
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        self.give_way();
        let written = self.device.write(first, bytes);
        // All of it is in the write cache: what of it survives is the power cut's choice.
        self.keep();
        self.give_way();
        written
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.give_way();
        self.keep();
        let synced = self.device.sync();
        self.give_way();
        synced
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.device.discard(range)
    }
}

fn predicted() -> Steering {
    let rule = Rule { mode: Mode::Enabled, queue_max: 0, early: None, waiting_max: 4, longest: None };
    Steering::Predicted { rule, tuning: Tuning::default() }
}

/// Of a drive with a small buffer.
fn profile() -> Profile {
    let stage = |mean: u64| StageBytes { mean, deviation: 1000, least: mean - 4096, seen: 20 };
    let size = |bytes: u64| SizeLatency {
        bytes,
        fast_ns: 100_000,
        mid_ns: 150_000,
        slow_ns: 5_000_000,
        slow_from_ns: 2_000_000,
    };
    Profile {
        version: FORMAT_VERSION,
        device: "drill".to_owned(),
        fast: stage(512 << 10),
        mid: stage(256 << 10),
        slow: stage(64 << 10),
        sizes: vec![size(4096), size(64 << 10)],
    }
}

/// What is written with a tag.
fn content(tag: u64) -> Vec<u8> {
    tag.to_le_bytes().repeat(SECTOR_BYTES / 8)
}

fn found_in(sector: &[u8]) -> Found {
    let tag = u64::from_le_bytes(sector[..8].try_into().expect("8 bytes"));
    let is_whole = sector.chunks_exact(8).all(|word| word == &sector[..8]);
    if is_whole { Found::Tag(tag) } else { Found::Torn }
}
