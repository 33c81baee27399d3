//! A simulated disk: files in memory, with latency, faults and power cuts.
//!
//! ```text
//! powered --cut_power_after(n) and n operations--> off --crash--> powered, with what survived
//! powered --crash--> powered, with what survived
//! ```
//!
//! Invariants:
//! 1. A directory from [`SimDisk::attach`] works until the next crash; after it every call fails, so that nothing
//!    left over from a killed process changes the disk.
//! 2. An operation that a fault fails may still have happened, in part or whole, unless it is a sync or a read.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use claystone_env::{Clock, Directory, Random};

use crate::clock::SimClock;
use crate::directory::SimDirectory;
use crate::files::{FileSystem, SharedContent, locked};
use crate::trace::Trace;

/// How large and fast a disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskModel {
    /// Bytes for files.
    pub capacity_bytes: u64,
    /// Time of a read before its bytes.
    pub read: Duration,
    /// Time of a write before its bytes.
    pub write: Duration,
    /// Time of a sync.
    pub sync: Duration,
    /// Time of an operation on names.
    pub name: Duration,
    /// Bytes moved in a second.
    pub bytes_per_second: u64,
}

impl DiskModel {
    /// Roughly a SATA SSD.
    pub fn ssd(capacity_bytes: u64) -> DiskModel {
        DiskModel {
            capacity_bytes,
            read: Duration::from_micros(80),
            write: Duration::from_micros(20),
            sync: Duration::from_micros(300),
            name: Duration::from_micros(5),
            bytes_per_second: 500_000_000,
        }
    }

    /// Roughly a hard disk.
    pub fn hdd(capacity_bytes: u64) -> DiskModel {
        DiskModel {
            capacity_bytes,
            read: Duration::from_millis(8),
            write: Duration::from_micros(50),
            sync: Duration::from_millis(12),
            name: Duration::from_micros(50),
            bytes_per_second: 180_000_000,
        }
    }
}

/// What an operation does that is made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// An I/O error; a change may have happened in part.
    Medium,
    /// No space left; nothing happened.
    NoSpace,
}

/// What a disk did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// All operations, failed ones too.
    pub operations: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Syncs of files and directories.
    pub syncs: u64,
}

/// The hand on a disk: attaches it, damages it, crashes it. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<Shared>,
}

pub struct Shared {
    pub name: String,
    pub random: Arc<dyn Random>,
    pub trace: Arc<Trace>,
    model: DiskModel,
    clock: SimClock,
    state: Mutex<State>,
}

pub struct State {
    pub files: FileSystem,
    pub boot: u64,
    pub held: bool,
    pub powered: bool,
    pub stats: Stats,
    pub capacity_bytes: u64,
    cost: Duration,
    pub favours_overwriting: bool,
    read_only: bool,
    removed: bool,
    latency_factor: u32,
    stall: Duration,
    power_cut_after: Option<u64>,
    fail_after: Option<(u64, Fault)>,
    fail_every: Option<(u64, Fault)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Read,
    Write,
    Sync,
    Look,
    Name,
}

/// What becomes of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Done,
    // Happens in part, fails.
    Failed,
    // Does not happen.
    NoSpace,
}

impl SimDisk {
    pub(crate) fn new(
        name: &str,
        model: DiskModel,
        random: Arc<dyn Random>,
        clock: SimClock,
        trace: Arc<Trace>,
    ) -> SimDisk {
        let state = State {
            files: FileSystem::default(),
            boot: 0,
            held: false,
            powered: true,
            cost: Duration::ZERO,
            stats: Stats::default(),
            capacity_bytes: model.capacity_bytes,
            favours_overwriting: false,
            read_only: false,
            removed: false,
            latency_factor: 1,
            stall: Duration::ZERO,
            power_cut_after: None,
            fail_after: None,
            fail_every: None,
        };
        let name = name.to_owned();
        SimDisk { shared: Arc::new(Shared { name, model, clock, random, trace, state: Mutex::new(state) }) }
    }

    /// The disk's directory, until the next crash.
    pub fn attach(&self) -> Arc<dyn Directory> {
        let boot = self.state().boot;
        Arc::new(SimDirectory { shared: self.shared.clone(), boot })
    }

    /// Loses power and gets it back: what was not synced is kept, old or torn, and every attached directory is dead.
    pub fn crash(&self) {
        let mut state = self.state();
        state.files.crash(&*self.shared.random);
        state.boot += 1;
        state.held = false;
        state.powered = true;
        state.power_cut_after = None;
        state.cost = Duration::ZERO;
        self.shared.note("crash", &self.shared.name, &[state.boot], &[]);
    }

    /// Power goes during the operation after the next `operations`. Call [`SimDisk::crash`] then.
    pub fn cut_power_after(&self, operations: u64) {
        self.state().power_cut_after = Some(operations);
    }

    /// Whether power is there.
    pub fn is_powered(&self) -> bool {
        self.state().powered
    }

    /// The operation after the next `operations` fails, once.
    pub fn fail_after(&self, operations: u64, fault: Fault) {
        self.state().fail_after = Some((operations, fault));
    }

    /// Takes back what [`SimDisk::fail_after`] and [`SimDisk::cut_power_after`] announced; returns whether nothing was
    /// left to take back.
    pub fn spare_faults(&self) -> bool {
        let mut state = self.state();
        state.fail_after.take().is_none() & state.power_cut_after.take().is_none()
    }

    /// One in `operations` operations fails, until `None`.
    pub fn fail_every(&self, every: Option<(u64, Fault)>) {
        self.state().fail_every = every;
    }

    /// Sets what fits on the disk.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity_bytes = bytes;
    }

    /// What its directories say of overwriting (at first: no).
    pub fn set_favours_overwriting(&self, favours: bool) {
        self.state().favours_overwriting = favours;
    }

    /// Refuses changes, or takes them again.
    pub fn set_read_only(&self, read_only: bool) {
        self.state().read_only = read_only;
    }

    /// Takes the disk away (every operation fails), or puts it back.
    pub fn set_removed(&self, removed: bool) {
        self.state().removed = removed;
    }

    /// Every operation takes `factor` times as long.
    pub fn set_latency_factor(&self, factor: u32) {
        self.state().latency_factor = factor;
    }

    /// The next operation takes this much longer.
    pub fn stall(&self, delay: Duration) {
        self.state().stall += delay;
    }

    /// All files, sorted by path.
    pub fn files(&self) -> Vec<String> {
        self.state().files.files()
    }

    /// What a file holds, without an operation of the disk.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn content(&self, path: &str) -> Vec<u8> {
        locked(&self.file(path)).bytes.clone()
    }

    /// Replaces what a file holds at rest.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn set_content(&self, path: &str, bytes: Vec<u8>) {
        let content = self.file(path);
        let mut content = locked(&content);
        content.bytes = bytes;
        content.sync();
    }

    /// Makes a range of a file unreadable until it is written.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn make_unreadable(&self, path: &str, range: Range<u64>) {
        locked(&self.file(path)).make_bad(range.start, range.end);
    }

    /// Flips a bit of a file.
    ///
    /// # Panics
    /// If there is no such file, or it is shorter.
    pub fn flip_bit(&self, path: &str, bit: u64) {
        locked(&self.file(path)).bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }

    /// Cuts a file.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn truncate(&self, path: &str, bytes: u64) {
        locked(&self.file(path)).truncate(bytes);
    }

    /// Removes a file, for good.
    ///
    /// # Panics
    /// If there is no such file.
    pub fn lose_file(&self, path: &str) {
        let mut state = self.state();
        state.files.remove(path).expect("the file to lose exists");
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        state.files.sync_dir(parent).expect("the directory of a file exists");
    }

    /// Empties the disk, as if a new one were put in its place.
    pub fn wipe(&self) {
        self.state().files.wipe();
    }

    /// What it did so far.
    pub fn stats(&self) -> Stats {
        self.state().stats
    }

    /// The virtual time used since the last call.
    pub(crate) fn take_cost(&self) -> Duration {
        std::mem::take(&mut self.state().cost)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    fn file(&self, path: &str) -> SharedContent {
        self.state().files.open(path).expect("the file exists")
    }
}

impl Shared {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, what: &str, path: &str, numbers: &[u64], bytes: &[u8]) {
        self.trace.note(&self.name, &[self.clock.now().0.as_micros() as u64], path.as_bytes());
        self.trace.note(what, numbers, bytes);
    }

    /// Begins an operation: counts, traces and charges it, and decides its fate.
    pub fn begin(
        &self,
        boot: u64,
        kind: Kind,
        path: &str,
        offset: u64,
        bytes: u64,
    ) -> io::Result<(MutexGuard<'_, State>, Fate)> {
        let mut state = self.state();
        if boot != state.boot || !state.powered {
            return Err(io::Error::other("the machine of this process has lost power"));
        }
        state.stats.operations += 1;
        if kind == Kind::Sync {
            state.stats.syncs += 1;
        }
        let model = &self.model;
        let latency = match kind {
            Kind::Read => model.read,
            Kind::Write => model.write,
            Kind::Sync => model.sync,
            Kind::Look | Kind::Name => model.name,
        };
        let moved = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / model.bytes_per_second);
        let stall = std::mem::take(&mut state.stall);
        let cost = (latency + moved) * state.latency_factor + stall;
        state.cost += cost;
        let fate = self.fate(&mut state);
        self.note(&format!("{kind:?}"), path, &[offset, bytes, fate as u64], &[]);
        if state.removed {
            return Err(io::Error::other("injected: the disk is gone"));
        }
        let changes = matches!(kind, Kind::Write | Kind::Name);
        if changes && state.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        match fate {
            Fate::NoSpace if changes => Err(io::ErrorKind::StorageFull.into()),
            Fate::Failed | Fate::NoSpace if !changes => Err(failure()),
            fate => Ok((state, fate)),
        }
    }

    fn fate(&self, state: &mut State) -> Fate {
        if let Some(left) = &mut state.power_cut_after {
            if *left == 0 {
                state.powered = false;
                return Fate::Failed;
            }
            *left -= 1;
        }
        let once = match &mut state.fail_after {
            Some((0, fault)) => Some(*fault),
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        };
        if once.is_some() {
            state.fail_after = None;
        }
        let fault = once.or(match state.fail_every {
            Some((every, fault)) if self.random.below(every.max(1)) == 0 => Some(fault),
            _ => None,
        });
        match fault {
            None => Fate::Done,
            Some(Fault::Medium) => Fate::Failed,
            Some(Fault::NoSpace) => Fate::NoSpace,
        }
    }

    /// Ends an operation on names.
    pub fn named<T>(&self, fate: Fate, result: io::Result<T>) -> io::Result<T> {
        if fate == Fate::Done { result } else { Err(failure()) }
    }
}

pub fn failure() -> io::Error {
    io::Error::other("injected: I/O error")
}
