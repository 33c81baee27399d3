//! An emulated drive: sectors in memory, behind a volatile write cache and its faults; and before them a head and a spindle, a hard
//! disk's write buffer, or flash, which take time.
//!
//! ```text
//! powered --cut_power_after(n) and n operations--> off --crash--> powered, with what survived
//! powered --crash--> powered, with what survived
//! ```
//!
//! Invariants:
//! 1. A device from [`SimDevice::attach`] works until the next crash; after it every call fails, so that nothing left
//!    over from a killed process changes the medium.
//! 2. Every operation takes the time that [`HddModel`] gives it, to the nanosecond, and no call waits for it: a worker
//!    of [`Process::device_worker`](crate::Process::device_worker) charges it to the world's clock, and
//!    [`SimDevice::spent`] counts it, so the difference around a call is what that call took. Whoever calls a device
//!    outside of worlds ([`SimDevice::alone`]) moves its clock by [`EmulatedTime`], in simulated time or in real time.
//! 3. All chance comes from the device's own stream of the world's seed, and every operation goes into the trace.
//! 4. A crash keeps no more than the contract of [`Device`] promises, and no less.
//!
//! Left out: caches for reading, but for one thing: a read that goes on where the last one ended finds its sectors
//! read ahead, and neither seeks nor waits for the spindle.

mod buffer;
mod faults;
mod medium;
mod model;

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use claystone_env::{
    Clock, Device, DeviceError, Effort, EmulatedTime, FailedSector, Geometry, Moment, Random, SECTOR_BYTES, Sector,
    SectorFailure, SectorRange,
};

use self::buffer::{Begin, Buffer};
use self::faults::{FaultState, Found};
use self::medium::Medium;
use self::model::Head;
use crate::clock::SimClock;
use crate::random::SimRandom;
use crate::ssd::{Flash, SsdModel, WriteOrder};
use crate::trace::Trace;

pub use self::buffer::{BufferModel, BufferedWrite};
pub use self::faults::DeviceFaults;
pub use self::model::HddModel;

/// What an emulated device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveModel {
    /// A hard disk.
    Hdd(HddModel),
    /// A solid-state drive that does one request after another.
    Ssd {
        /// Its sectors.
        sectors: u64,
        /// How fast it is.
        model: SsdModel,
    },
}

impl From<HddModel> for DriveModel {
    fn from(model: HddModel) -> DriveModel {
        DriveModel::Hdd(model)
    }
}

/// What an emulated device did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceStats {
    /// All operations, failed ones too.
    pub operations: u64,
    /// Sectors that a read was asked for.
    pub sectors_read: u64,
    /// Sectors that a write was given.
    pub sectors_written: u64,
    /// Sectors that did not read at once, whether they were retried or not.
    pub soft_failures: u64,
    /// Sectors read by retrying.
    pub retries: u64,
    /// Sectors found lost after all retries.
    pub found_lost: u64,
    /// Syncs.
    pub syncs: u64,
}

/// What a device holds at one moment: see [`SimDevice::keep_moments`]. Sectors that others hold too take no memory.
#[derive(Clone)]
pub struct DeviceMoment {
    operation: u64,
    medium: Medium,
}

impl DeviceMoment {
    /// Operations of the device before it.
    pub fn operation(&self) -> u64 {
        self.operation
    }
}

/// The hand on an emulated device: attaches it, damages it, crashes it. Clones are the same device.
#[derive(Clone)]
pub struct SimDevice {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    model: HddModel,
    random: Arc<dyn Random>,
    /// The world's; `None` outside of worlds.
    clock: Option<SimClock>,
    trace: Arc<Trace>,
    state: Mutex<State>,
}

struct State {
    medium: Medium,
    faults: FaultState,
    head: Head,
    /// In place of plain [`HddModel`] times.
    buffer: Option<Buffer>,
    flash: Option<(SsdModel, Flash)>,
    /// When the last operation ended.
    idle_since: Duration,
    boot: u64,
    powered: bool,
    removed: bool,
    sync_failed: bool,
    stats: DeviceStats,
    // Where moments are kept: those so far.
    moments: Option<Vec<DeviceMoment>>,
    // All time taken, and what of it no worker has charged yet.
    spent: Duration,
    uncharged: Duration,
}

#[derive(Debug, Clone, Copy)]
enum Operation {
    Read(SectorRange),
    Write(SectorRange),
    Sync,
    Discard(SectorRange),
}

impl Operation {
    fn range(self) -> SectorRange {
        match self {
            Operation::Read(range) | Operation::Write(range) | Operation::Discard(range) => range,
            Operation::Sync => SectorRange::default(),
        }
    }

    fn error(self, why: &str) -> DeviceError {
        let source = io::Error::other(why.to_owned());
        match self {
            Operation::Read(range) => DeviceError::Read { range, source },
            Operation::Write(range) | Operation::Discard(range) => DeviceError::Write { range, source },
            Operation::Sync => DeviceError::Sync { source },
        }
    }
}

impl SimDevice {
    /// A device outside of worlds, whose sectors hold zeros. Its time is zero, and goes on as [`EmulatedTime`] says.
    ///
    /// # Panics
    /// If the model's numbers make no drive.
    pub fn alone(name: &str, model: impl Into<DriveModel>, seed: u64) -> SimDevice {
        SimDevice::new(name, model.into(), Arc::new(SimRandom::new(seed)), None, Arc::default())
    }

    /// # Panics
    /// If the model's numbers make no drive.
    pub(crate) fn new(
        name: &str,
        model: DriveModel,
        random: Arc<dyn Random>,
        clock: Option<SimClock>,
        trace: Arc<Trace>,
    ) -> SimDevice {
        let (model, flash) = match model {
            DriveModel::Hdd(model) => (model, None),
            DriveModel::Ssd { sectors, model } => (behind_flash(sectors, &model), Some((model, Flash::new(&model)))),
        };
        model.check();
        let state = State {
            medium: Medium::default(),
            faults: FaultState::default(),
            head: Head::default(),
            buffer: model.buffer.map(|buffer| Buffer::new(buffer, &*random)),
            flash,
            idle_since: Duration::ZERO,
            boot: 0,
            powered: true,
            removed: false,
            sync_failed: false,
            stats: DeviceStats::default(),
            moments: None,
            spent: Duration::ZERO,
            uncharged: Duration::ZERO,
        };
        let name = name.to_owned();
        SimDevice { shared: Arc::new(Shared { name, model, random, clock, trace, state: Mutex::new(state) }) }
    }

    /// The device as a process sees it, until the next crash.
    pub fn attach(&self) -> Arc<dyn Device> {
        Arc::new(Attached { shared: self.shared.clone(), boot: self.state().boot })
    }

    /// Loses power and gets it back: what was not synced is kept, old or torn, and what was attached is dead.
    pub fn crash(&self) {
        let mut state = self.state();
        state.medium.crash(&*self.shared.random);
        state.faults.cut_after = None;
        state.boot += 1;
        state.powered = true;
        state.sync_failed = false;
        state.uncharged = Duration::ZERO;
        let boot = state.boot;
        self.shared.trace.note("device crash", &[boot], self.shared.name.as_bytes());
    }

    /// Sets how often what goes wrong, from now on.
    ///
    /// # Panics
    /// If a rate is not in `0..=1`, or bursts are impossible at the rate of soft failures.
    pub fn set_faults(&self, faults: DeviceFaults) {
        faults.check();
        self.state().faults.rates = faults;
    }

    /// Power goes during the operation after the next `operations`. Call [`SimDevice::crash`] then.
    pub fn cut_power_after(&self, operations: u64) {
        self.state().faults.cut_after = Some(operations);
    }

    /// From now on each operation that changes something leaves behind what a power cut during it would find.
    pub fn keep_moments(&self) {
        self.state().moments.get_or_insert_default();
    }

    /// What it holds now, and would hold if the process at it were killed.
    pub fn moment(&self) -> DeviceMoment {
        let state = self.state();
        DeviceMoment { operation: state.stats.operations, medium: state.medium.clone() }
    }

    /// The moments since they were last taken, in their order.
    pub fn take_moments(&self) -> Vec<DeviceMoment> {
        self.state().moments.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Another device, which is at a moment of this one: as fast, with the same faults, and chance of its own. Both go on by
    /// themselves. One with flash behind it becomes one without.
    pub fn branch(&self, moment: &DeviceMoment, random: Arc<dyn Random>) -> SimDevice {
        let Shared { name, model, clock, trace, .. } = &*self.shared;
        let branch = SimDevice::new(name, DriveModel::Hdd(*model), random, clock.clone(), trace.clone());
        let mut state = branch.state();
        state.medium = moment.medium.clone();
        state.faults.rates = self.state().faults.rates;
        drop(state);
        branch
    }

    /// Whether power is there.
    pub fn is_powered(&self) -> bool {
        self.state().powered
    }

    /// The operation after the next `operations` fails, once: a read as a whole; a write after each of its sectors was
    /// written, or torn, or not; a sync after each sector of the write cache was written or forgotten.
    pub fn fail_after(&self, operations: u64) {
        self.state().faults.fail_after = Some(operations);
    }

    /// The device dies in the operation after the next `operations`: that one fails as [`SimDevice::fail_after`] says, and so does
    /// every one after it, also when the power was cut and is back, until [`SimDevice::set_removed`] puts it back.
    pub fn remove_after(&self, operations: u64) {
        self.state().faults.remove_after = Some(operations);
    }

    /// Takes back what [`SimDevice::fail_after`], [`SimDevice::remove_after`] and [`SimDevice::cut_power_after`] announced; returns
    /// whether nothing was left to take back.
    pub fn spare_faults(&self) -> bool {
        let faults = &mut self.state().faults;
        [&mut faults.fail_after, &mut faults.remove_after, &mut faults.cut_after].map(Option::take) == [None; 3]
    }

    /// Whether a fault that one of those announced is still to come.
    pub fn faults_to_come(&self) -> bool {
        let faults = &self.state().faults;
        [faults.fail_after, faults.remove_after, faults.cut_after] != [None; 3]
    }

    /// Takes the device away (every operation fails), or puts it back.
    pub fn set_removed(&self, removed: bool) {
        self.state().removed = removed;
    }

    /// Makes sectors of the medium unreadable until they are written: latent errors.
    pub fn make_lost(&self, sectors: Range<u64>) {
        self.state().medium.make_lost(sectors);
    }

    /// Flips a bit of a sector, unnoticed. `bit` counts from the sector's first byte.
    ///
    /// # Panics
    /// If a sector has no such bit.
    pub fn flip_bit(&self, sector: Sector, bit: usize) {
        self.state().medium.flip_bit(sector.0, bit);
    }

    /// The next write goes to the sectors from `first` instead of its own, unnoticed.
    pub fn misdirect_next_write(&self, first: Sector) {
        self.state().faults.misdirect_to = Some(first);
    }

    /// What a sector holds, without an operation; `None` if it is lost.
    pub fn content(&self, sector: Sector) -> Option<Vec<u8>> {
        let state = self.state();
        let mut bytes = vec![0; SECTOR_BYTES];
        (!state.medium.is_lost(sector.0)).then(|| {
            state.medium.read(sector.0, &mut bytes);
            bytes
        })
    }

    /// Sectors in the write cache, which a power cut may take.
    pub fn unsynced_sectors(&self) -> u64 {
        self.state().medium.cached()
    }

    /// What it did so far.
    pub fn stats(&self) -> DeviceStats {
        self.state().stats
    }

    /// The simulated time that all operations so far took, one after the other.
    pub fn spent(&self) -> Duration {
        self.state().spent
    }

    /// The simulated time used since the last call.
    pub(crate) fn take_cost(&self) -> Duration {
        std::mem::take(&mut self.state().uncharged)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }
}

impl EmulatedTime for SimDevice {
    fn reach(&self, now: Moment) {
        let mut state = self.state();
        let free_at = state.head.free_at().max(now.0);
        state.head.set_free_at(free_at);
    }

    fn done_at(&self) -> Moment {
        Moment(self.state().head.free_at())
    }
}

impl State {
    /// Keeps this moment, in the operation that was begun last, if it is to be kept.
    fn keep_moment(&mut self) {
        if let Some(moments) = &mut self.moments {
            moments.push(DeviceMoment { operation: self.stats.operations - 1, medium: self.medium.clone() });
        }
    }

    /// Takes the time of bringing the head to `first` and moving `sectors` sectors past it.
    fn move_head(&mut self, model: &HddModel, begun: Duration, first: u64, sectors: u64) -> Duration {
        let cost = self.head.position(model, begun, first) + model.transfer * sectors as u32;
        self.head.leave_at(first + sectors);
        cost
    }

    /// Time of reading from the medium, and where that leaves the drive.
    fn pass_read(&mut self, model: &HddModel, begun: Duration, range: SectorRange, random: &dyn Random) -> Duration {
        if let Some((ssd, flash)) = &mut self.flash {
            flash.program_until(begun, ssd, random);
            let bytes = range.sectors * SECTOR_BYTES as u64;
            return flash.read(bytes, begun, ssd, random) - begun + ssd.transfer(bytes);
        }
        if let Some(buffer) = &mut self.buffer {
            buffer.was_read(random);
        }
        self.move_head(model, begun, range.first.0, range.sectors)
    }

    /// Time of taking a write into the cache, and of writing that out where it is full.
    fn pass_write(&mut self, model: &HddModel, begin: Begin, range: SectorRange, random: &dyn Random) -> Duration {
        let (took, writes_out) = match (&mut self.flash, &mut self.buffer) {
            (Some((ssd, flash)), _) => (taken_by(flash, ssd, range, begin.at, random), false),
            (None, Some(buffer)) => buffer.write(model, &mut self.head, range, begin, random),
            (None, None) => (model.cache_transfer * range.sectors as u32, false),
        };
        if writes_out && self.powered {
            self.medium.write_back();
        }
        took + self.make_room(model, begin.at + took)
    }

    /// Writes the cache to the medium where it is full.
    fn make_room(&mut self, model: &HddModel, begun: Duration) -> Duration {
        if !self.powered || self.medium.cached() <= model.cache_sectors {
            return Duration::ZERO;
        }
        if self.flash.is_none() && self.buffer.is_none() {
            return self.write_back(model, begun);
        }
        self.medium.write_back();
        Duration::ZERO
    }

    /// Time until all is on the medium.
    fn pass_sync(&mut self, model: &HddModel, begin: Begin, random: &dyn Random) -> Duration {
        let took = match (&mut self.flash, &mut self.buffer) {
            (Some((ssd, flash)), _) => flushed_by(flash, ssd, begin.at, random),
            (None, Some(buffer)) => buffer.sync(model, begin, random),
            (None, None) => return self.write_back(model, begin.at),
        };
        self.medium.write_back();
        took
    }

    /// Writes the cache to the medium, in one sweep. The drive writes while it takes in, so what was already charged for
    /// the way into the cache is not charged again.
    fn write_back(&mut self, model: &HddModel, begun: Duration) -> Duration {
        let mut cost = Duration::ZERO;
        for run in self.medium.write_back() {
            let sectors = run.end - run.start;
            let moved = self.move_head(model, begun + cost, run.start, sectors);
            cost += moved.saturating_sub(model.cache_transfer * sectors as u32);
        }
        cost
    }
}

/// How long until a solid-state drive has taken a write.
fn taken_by(flash: &mut Flash, ssd: &SsdModel, range: SectorRange, begun: Duration, random: &dyn Random) -> Duration {
    let mut now = begun;
    loop {
        flash.program_until(now, ssd, random);
        match flash.take(range.sectors as usize, WriteOrder::Random, now, ssd, random) {
            Ok(()) => break,
            Err(wait) => now += wait,
        }
    }
    now - begun + ssd.write + ssd.serial.unwrap_or_default() + ssd.transfer(range.sectors * SECTOR_BYTES as u64)
}

/// How long until a solid-state drive has flushed.
fn flushed_by(flash: &mut Flash, ssd: &SsdModel, begun: Duration, random: &dyn Random) -> Duration {
    flash.count_flush();
    let mut now = begun;
    flash.program_until(now, ssd, random);
    while let Some(next) = flash.next_program().filter(|_| !ssd.is_protected) {
        now = now.max(next) + TICK;
        flash.program_until(now, ssd, random);
    }
    let ends = if ssd.is_protected { now } else { now.max(flash.busy_until()) };
    ends - begun + ssd.flush
}

/// What lies behind flash that takes time: sectors in a cache that takes none.
fn behind_flash(sectors: u64, ssd: &SsdModel) -> HddModel {
    HddModel {
        fails_fast: false,
        transfer: Duration::ZERO,
        cache_transfer: Duration::ZERO,
        seek_min: Duration::ZERO,
        seek_max: Duration::ZERO,
        cache_sectors: ssd.memory_sectors as u64,
        ..HddModel::new(sectors)
    }
}

/// The least time that an emulated drive knows.
const TICK: Duration = Duration::from_micros(1);

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends an operation that took `cost`.
    fn charge(&self, state: &mut State, begun: Duration, cost: Duration) {
        state.head.set_free_at(begun + cost);
        state.idle_since = begun + cost;
        state.spent += cost;
        state.uncharged += cost;
        self.trace.note("took", &[cost.as_nanos() as u64], &[]);
    }
}

struct Attached {
    shared: Arc<Shared>,
    boot: u64,
}

/// An operation under way: the state, when it began, and whether a fault shall fail it.
struct Begun<'a> {
    state: MutexGuard<'a, State>,
    at: Duration,
    idle_since: Duration,
    fails: bool,
}

impl Attached {
    fn begin(&self, operation: Operation) -> Result<Begun<'_>, DeviceError> {
        let mut state = self.shared.state();
        if self.boot != state.boot || !state.powered {
            return Err(operation.error("the machine of this process has lost power"));
        }
        state.stats.operations += 1;
        let free_at = state.head.free_at();
        let at = self.shared.clock.as_ref().map_or(free_at, |clock| clock.now().0.max(free_at));
        let cut = state.faults.cuts();
        let dies = state.faults.is_last();
        let fails = state.faults.fails(&*self.shared.random) || cut || dies;
        state.powered = !cut;
        let range = operation.range();
        let kind = match operation {
            Operation::Read(_) => "device read",
            Operation::Write(_) => "device write",
            Operation::Sync => "device sync",
            Operation::Discard(_) => "device discard",
        };
        let numbers = [at.as_nanos() as u64, range.first.0, range.sectors, u64::from(fails)];
        self.shared.trace.note(kind, &numbers, self.shared.name.as_bytes());
        if state.removed {
            return Err(operation.error("injected: the device is gone"));
        }
        state.removed = dies;
        let idle_since = state.idle_since;
        Ok(Begun { state, at, idle_since, fails })
    }

    /// Puts sectors into the cache, zeros without `bytes`, and all of the cache on the medium where it is full.
    fn put(&self, begun: &mut Begun<'_>, operation: Operation, bytes: Option<&[u8]>) -> Result<(), DeviceError> {
        let (model, random) = (&self.shared.model, &*self.shared.random);
        let (state, range) = (&mut *begun.state, operation.range());
        let first = if bytes.is_some() { state.faults.aim(range, model.sectors, random) } else { range.first }.0;
        for at in 0..range.sectors {
            let content = bytes.map(|bytes| &bytes[at as usize * SECTOR_BYTES..][..SECTOR_BYTES]);
            // Where power is cut, all is in the cache and the crash tears it.
            if begun.fails && state.powered {
                state.medium.write_in_part(first + at, content, random);
            } else {
                state.medium.write(first + at, content);
            }
        }
        if !begun.fails {
            state.keep_moment();
        }
        let cost = if bytes.is_some() {
            state.stats.sectors_written += range.sectors;
            let begin = Begin { at: begun.at, idle_since: begun.idle_since };
            state.pass_write(model, begin, SectorRange { first: Sector(first), ..range }, random)
        } else {
            state.make_room(model, begun.at)
        };
        self.shared.charge(state, begun.at, cost);
        if begun.fails { Err(operation.error("injected: I/O error")) } else { Ok(()) }
    }
}

impl Device for Attached {
    fn label(&self) -> String {
        format!("sim:{}", self.shared.name)
    }

    fn manner(&self) -> Vec<String> {
        let HddModel { transfer, seek_min, seek_max, retry, .. } = self.shared.model;
        let turn = self.shared.model.turn();
        if self.shared.state().flash.is_some() {
            return vec!["emulated: flash".to_owned()];
        }
        let buffer = self.shared.model.buffer.map(|BufferModel { fast_bytes, mid_bytes, slow, .. }| {
            let [fast, mid] = [fast_bytes, mid_bytes].map(|bytes| bytes >> 10);
            format!("emulated: takes {fast} KiB after a sync and {mid} KiB between slow writes of {slow:?}")
        });
        let mut manner = vec![format!(
            "emulated: {transfer:?} a sector, {turn:?} a turn, {seek_min:?} to {seek_max:?} a seek, {retry:?} to retry a sector"
        )];
        manner.extend(buffer);
        manner
    }

    fn geometry(&self) -> Geometry {
        let HddModel { sectors, fails_fast, seek_max, .. } = self.shared.model;
        Geometry { sectors, fails_fast, rotational: seek_max > Duration::ZERO }
    }

    fn elapsed(&self) -> Option<Duration> {
        Some(self.shared.state().spent)
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        let range = self.geometry().range(first, into.len());
        let operation = Operation::Read(range);
        let Begun { mut state, at, fails, .. } = self.begin(operation)?;
        let (model, random) = (&self.shared.model, &*self.shared.random);
        let effort = if model.fails_fast { effort } else { Effort::Retry };
        let state = &mut *state;
        state.stats.sectors_read += range.sectors;
        let from_cache = (first.0..range.end().0).all(|sector| state.medium.is_cached(sector));
        let mut cost = if from_cache {
            model.cache_transfer * range.sectors as u32
        } else {
            state.pass_read(model, at, range, random)
        };
        let mut failed = Vec::new();
        if !fails {
            state.faults.begin_read(random);
            for (sector, part) in (first.0..).zip(into.chunks_exact_mut(SECTOR_BYTES)) {
                let found = state.faults.read(sector, effort, &mut state.medium, random);
                match found {
                    Found::Read => {}
                    Found::Retried => {
                        cost += model.retry;
                        state.stats.retries += 1;
                    }
                    Found::Failed(failure) => {
                        if failure == SectorFailure::Lost {
                            cost += model.give_up;
                            state.stats.found_lost += 1;
                        }
                        failed.push(FailedSector { sector: Sector(sector), failure });
                    }
                }
                state.stats.soft_failures += u64::from(found != Found::Read);
                match found {
                    Found::Failed(_) => part.fill(0),
                    Found::Read | Found::Retried => state.medium.read(sector, part),
                }
            }
        }
        self.shared.charge(state, at, cost);
        for failure in &failed {
            self.shared.trace.note("failed", &[failure.sector.0, failure.failure as u64], &[]);
        }
        if fails { Err(operation.error("injected: I/O error")) } else { Ok(failed) }
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        let operation = Operation::Write(self.geometry().range(first, bytes.len()));
        let mut begun = self.begin(operation)?;
        self.shared.trace.note("bytes", &[], bytes);
        self.put(&mut begun, operation, Some(bytes))
    }

    fn sync(&self) -> Result<(), DeviceError> {
        let Begun { mut state, at, idle_since, fails } = self.begin(Operation::Sync)?;
        state.stats.syncs += 1;
        if state.sync_failed {
            return Err(Operation::Sync.error("an earlier sync failed"));
        }
        if fails {
            state.sync_failed = true;
            if state.powered {
                state.medium.forget_some(&*self.shared.random);
            }
            return Err(Operation::Sync.error("injected: I/O error"));
        }
        state.keep_moment();
        let cost = state.pass_sync(&self.shared.model, Begin { at, idle_since }, &*self.shared.random);
        self.shared.charge(&mut state, at, cost);
        Ok(())
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.geometry().assert_holds(range);
        let operation = Operation::Discard(range);
        let mut begun = self.begin(operation)?;
        self.put(&mut begun, operation, None)
    }
}
