//! A solid-state drive in time alone: how long its requests take, whatever they read or write.
//!
//! Its flash is several units that work at once. A read waits for the unit where its bytes lie. A write goes into the
//! drive's memory, if there is room, and from there to whatever unit is free; now and then that unit then collects
//! garbage: it moves what is valid out of a block and erases it. Sectors that follow those of the write before leave nothing
//! valid behind when they are written again, and cost no collection.
//!
//! Invariants:
//! 1. A unit does one thing at a time and ends what it began: a read waits for the program or the collection that is under
//!    way, and for reads before it, but not for sectors that wait in the drive's memory.
//! 2. All chance comes from the drive's own stream of the world's seed, and every request goes into the trace.
//!
//! Left out: where on the flash a sector lies (a read finds its unit by chance), wear, and trimming.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use claystone_env::{Clock, Random, SECTOR_BYTES};

use crate::clock::SimClock;
use crate::trace::Trace;

/// What a drive is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SsdModel {
    /// Units of flash that work at once.
    pub units: usize,
    /// How long a unit takes to read up to 16 KiB.
    pub read: Duration,
    /// How long a write takes into the drive's memory, before its bytes.
    pub write: Duration,
    /// How long a flush takes, beside what it waits for.
    pub flush: Duration,
    /// Bytes moved between the drive and the system in a second.
    pub bytes_per_second: u64,
    /// Sectors of written data that the drive's memory holds.
    pub memory_sectors: usize,
    /// Whether that memory survives a power cut: a flush does not wait until it is empty.
    pub is_protected: bool,
    /// How long a unit takes to program a sector.
    pub program: Duration,
    /// One in so many programs of sectors in no order is followed by a collection.
    pub collect_every: u64,
    /// How long a collection takes.
    pub collect: Duration,
}

impl SsdModel {
    /// A SATA drive for servers that was written all over.
    ///
    /// By the specification of the Intel DC S3500 of 80 GB to 800 GB (2013): 4 KiB reads 67,000 a second at depth 32, so 8
    /// units of 120 us each; writes 65 us; sequential writes 320 MB/s, so 100 us a sector and unit; random writes 14,500 a
    /// second at most, so 550 us a sector and unit with collections; 99.9 % of writes within 5 ms, taken for the length of
    /// a collection: then every 11th program is followed by one. Its memory is protected by capacitors; how much of it
    /// holds data is not published.
    pub fn sata_server() -> SsdModel {
        SsdModel {
            units: 8,
            read: Duration::from_micros(110),
            write: Duration::from_micros(65),
            flush: Duration::from_micros(65),
            bytes_per_second: 470_000_000,
            memory_sectors: 256,
            is_protected: true,
            program: Duration::from_micros(100),
            collect_every: 11,
            collect: Duration::from_millis(5),
        }
    }

    /// A SATA drive for desktops that was written all over.
    ///
    /// By the specification and a review (anandtech.com, 2014) of the Samsung 840 EVO and 850 EVO: 4 KiB reads 10,000 a
    /// second at depth 1, 90,000 at depth 32; writes 40,000 a second at depth 1; random writes for half an hour 3,000 to
    /// 5,000 a second (840) and 5,000 to 8,000 (850): 5,000 taken, so 1.6 ms a sector and unit with collections. How long
    /// one of them takes is not published: 20 ms is between an erase (4 ms) and moving a block of 2 MiB (60 ms). Without
    /// capacitors.
    pub fn sata_desktop() -> SsdModel {
        SsdModel {
            units: 9,
            read: Duration::from_micros(92),
            write: Duration::from_micros(25),
            flush: Duration::from_micros(25),
            bytes_per_second: 520_000_000,
            memory_sectors: 256,
            is_protected: false,
            program: Duration::from_micros(120),
            collect_every: 12,
            collect: Duration::from_millis(20),
        }
    }
}

/// Where a write goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOrder {
    /// Anywhere.
    Random,
    /// Behind the one before it in the same file.
    Following,
}

/// What a drive did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SsdStats {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Sectors taken by writes.
    pub sectors_written: u64,
    /// Flushes.
    pub flushes: u64,
    /// Collections.
    pub collections: u64,
}

/// A drive. Clones are the same drive; requests may come from many tasks at once.
#[derive(Clone)]
pub struct SimSsd {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    model: SsdModel,
    clock: SimClock,
    random: Arc<dyn Random>,
    trace: Arc<Trace>,
    state: Mutex<State>,
    /// Held by the write that waits for room in the drive's memory: the others wait here in their order.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// When each unit has done what it was given.
    free_at: Vec<Duration>,
    /// Sectors in the drive's memory, by when they came, and where they go.
    waiting: VecDeque<(Duration, WriteOrder)>,
    stats: SsdStats,
}

impl SimSsd {
    /// # Panics
    /// If the drive has no unit, no memory, or always collects.
    pub(crate) fn new(
        name: &str,
        model: SsdModel,
        random: Arc<dyn Random>,
        clock: SimClock,
        trace: Arc<Trace>,
    ) -> SimSsd {
        assert!(model.units > 0, "a drive has flash");
        assert!(model.memory_sectors > 0, "a drive has memory");
        assert!(model.collect_every > 0, "one in 0 programs");
        let state = State { free_at: vec![Duration::ZERO; model.units], ..State::default() };
        let (name, state, turn) = (name.to_owned(), Mutex::new(state), tokio::sync::Mutex::default());
        SimSsd { shared: Arc::new(Shared { name, model, clock, random, trace, state, turn }) }
    }

    /// Reads so many bytes that follow each other.
    pub async fn read(&self, bytes: u64) {
        let shared = &*self.shared;
        let done = {
            let (now, mut state) = shared.now("ssd read", bytes);
            state.stats.reads += 1;
            let first = shared.random.below(shared.model.units as u64) as usize;
            let parts = bytes.div_ceil(PART_BYTES).max(1) as usize;
            let units = (first..first + parts).map(|unit| unit % shared.model.units);
            let ends = units.map(|unit| {
                let free_at = &mut state.free_at[unit];
                *free_at = now.max(*free_at) + shared.model.read;
                *free_at
            });
            ends.max().expect("at least one part") - now
        };
        shared.clock.sleep(done + shared.transfer(bytes)).await;
    }

    /// Writes so many bytes. It is done when the drive has them in its memory.
    pub async fn write(&self, bytes: u64, order: WriteOrder) {
        let shared = &*self.shared;
        let sectors = bytes.div_ceil(SECTOR_BYTES as u64) as usize;
        {
            let _turn = shared.turn.lock().await;
            loop {
                let wait = {
                    let (now, mut state) = shared.now("ssd write", bytes);
                    match state.room_in(sectors, shared.model.memory_sectors, now) {
                        Some(wait) => wait,
                        None => {
                            state.stats.writes += 1;
                            state.stats.sectors_written += sectors as u64;
                            state.waiting.extend(std::iter::repeat_n((now, order), sectors));
                            break;
                        }
                    }
                };
                shared.clock.sleep(wait).await;
            }
        }
        shared.clock.sleep(shared.model.write + shared.transfer(bytes)).await;
    }

    /// Makes durable what was written.
    pub async fn flush(&self) {
        let shared = &*self.shared;
        shared.now("ssd flush", 0).1.stats.flushes += 1;
        if !shared.model.is_protected {
            self.rest().await;
        }
        shared.clock.sleep(shared.model.flush).await;
    }

    /// Waits until what was written is in the flash, and no unit does anything any more.
    pub async fn rest(&self) {
        let shared = &*self.shared;
        loop {
            let (wait, is_last) = {
                let (now, state) = shared.now("ssd drain", 0);
                let busy_until = state.free_at.iter().copied().max().unwrap_or_default();
                match state.next_program() {
                    Some(next) => (next.saturating_sub(now) + TICK, false),
                    None => (busy_until.saturating_sub(now), true),
                }
            };
            shared.clock.sleep(wait).await;
            if is_last {
                return;
            }
        }
    }

    /// What it did so far.
    pub fn stats(&self) -> SsdStats {
        self.shared.state().stats
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time, and the drive as it is then, for a request.
    fn now(&self, what: &str, bytes: u64) -> (Duration, MutexGuard<'_, State>) {
        let now = self.clock.now().0;
        self.trace.note(what, &[now.as_micros() as u64, bytes], self.name.as_bytes());
        let mut state = self.state();
        state.program_until(now, &self.model, &*self.random);
        (now, state)
    }

    fn transfer(&self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / self.model.bytes_per_second)
    }
}

impl State {
    /// Gives sectors of the drive's memory to units that were free before `now`.
    fn program_until(&mut self, now: Duration, model: &SsdModel, random: &dyn Random) {
        while let Some(start) = self.next_program().filter(|start| *start < now) {
            let Some((_, order)) = self.waiting.pop_front() else { return };
            let mut took = model.program;
            if order == WriteOrder::Random && random.below(model.collect_every) == 0 {
                took += model.collect;
                self.stats.collections += 1;
            }
            *self.first_free() = start + took;
        }
    }

    /// When the next sector is programmed, unless a read comes before.
    fn next_program(&self) -> Option<Duration> {
        let free_at = self.free_at.iter().min()?;
        self.waiting.front().map(|(came, _)| *came.max(free_at))
    }

    fn first_free(&mut self) -> &mut Duration {
        self.free_at.iter_mut().min().expect("a drive has flash")
    }

    /// How long to wait before looking again for room in the drive's memory; `None`: there is room.
    fn room_in(&self, sectors: usize, sectors_max: usize, now: Duration) -> Option<Duration> {
        // What is longer than the memory goes through it when it is empty.
        if self.waiting.is_empty() || self.waiting.len() + sectors <= sectors_max {
            return None;
        }
        self.next_program().map(|next| next.saturating_sub(now) + TICK)
    }
}

/// Bytes that follow each other and lie on one unit.
const PART_BYTES: u64 = 16 << 10;
/// The least time that the clock knows.
const TICK: Duration = Duration::from_micros(1);
