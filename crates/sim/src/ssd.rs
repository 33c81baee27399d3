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
//! 2. During a stall it takes no write into its memory; those that come meanwhile go in afterwards, in their order.
//! 3. All chance comes from the drive's own stream of the world's seed, and every request goes into the trace.
//!
//! Left out: where on the flash a sector lies (a read finds its unit by chance), wear, and trimming.

mod flash;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use claystone_env::{Clock, Random};

pub use self::flash::Flash;
use self::flash::{TICK, sectors_of};
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
    /// How long each write, beside its bytes, keeps the drive from taking the next one; `None`: it takes any number at once.
    pub serial: Option<Duration>,
    /// After so many written sectors on the average, the whole drive stalls; 0: it never does.
    pub stall_every_sectors: u64,
    /// How long it stalls.
    pub stall: Duration,
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
            serial: None,
            stall_every_sectors: 0,
            stall: Duration::ZERO,
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
            serial: None,
            stall_every_sectors: 0,
            stall: Duration::ZERO,
        }
    }

    /// An NVMe drive for desktops under writes without end, as the one of the paper.
    ///
    /// By the specification of the Samsung 960 EVO of 250 GB (2016): 2,000 MB/s as the paper has it; one 4 KiB write at a time
    /// 50,000 a second, so 20 us, and 300,000 at depth 32, so 3.3 us each; one read at a time 14,000 a second; 300 MB/s once
    /// its cache of written data is full, so 109 us a sector with 8 units. Its memory holds 1 MiB: not published.
    ///
    /// Stalls are fitted to two figures, and to nothing else: of writes to this drive alone under workload B (as the bench makes it)
    /// the slowest one in a hundred takes 10 ms, and the slowest one in a thousand 50 ms. If all waiting came from stalls of one
    /// length, the two would give it: whoever comes during a stall of s waits for more than t with (s - t) / s, so
    /// (s - 10) / (s - 50) = 10, and s is 54 ms, for 1.2 % of all writes. With what piles up behind a stall and bursts, 56 ms once in
    /// 88,000 sectors come near to both.
    // Source: [bcw §Write-intensive Workload]
    pub fn nvme_desktop() -> SsdModel {
        SsdModel {
            units: 8,
            read: Duration::from_micros(70),
            write: Duration::from_micros(17),
            flush: Duration::from_micros(17),
            bytes_per_second: 2_000_000_000,
            memory_sectors: 256,
            is_protected: false,
            program: Duration::from_micros(109),
            collect_every: u64::MAX,
            collect: Duration::ZERO,
            serial: Some(Duration::from_nanos(3300)),
            stall_every_sectors: 88_000,
            stall: Duration::from_millis(56),
        }
    }

    /// How long so many bytes are on their way.
    pub(crate) fn transfer(&self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / self.bytes_per_second)
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
    /// Stalls of the whole drive.
    pub stalls: u64,
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
    state: Mutex<Flash>,
    /// Held by the write that waits for room in the drive's memory: the others wait here in their order.
    turn: tokio::sync::Mutex<()>,
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
        let (name, state, turn) = (name.to_owned(), Mutex::new(Flash::new(&model)), tokio::sync::Mutex::default());
        SimSsd { shared: Arc::new(Shared { name, model, clock, random, trace, state, turn }) }
    }

    /// Reads so many bytes that follow each other.
    pub async fn read(&self, bytes: u64) {
        let shared = &*self.shared;
        let done = {
            let (now, mut state) = shared.now("ssd read", bytes);
            state.read(bytes, now, &shared.model, &*shared.random) - now
        };
        shared.clock.sleep(done + shared.model.transfer(bytes)).await;
    }

    /// Writes so many bytes. It is done when the drive has them in its memory.
    pub async fn write(&self, bytes: u64, order: WriteOrder) {
        let shared = &*self.shared;
        let transfer = shared.model.transfer(bytes);
        {
            let _turn = shared.turn.lock().await;
            loop {
                let wait = {
                    let (now, mut state) = shared.now("ssd write", bytes);
                    match state.take(sectors_of(bytes), order, now, &shared.model, &*shared.random) {
                        Ok(()) => break,
                        Err(wait) => wait,
                    }
                };
                shared.clock.sleep(wait).await;
            }
            if let Some(serial) = shared.model.serial {
                shared.clock.sleep(serial + transfer).await;
            }
        }
        let transfer = if shared.model.serial.is_some() { Duration::ZERO } else { transfer };
        shared.clock.sleep(shared.model.write + transfer).await;
    }

    /// Makes durable what was written.
    pub async fn flush(&self) {
        let shared = &*self.shared;
        shared.now("ssd flush", 0).1.count_flush();
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
                match state.next_program() {
                    Some(next) => (next.saturating_sub(now) + TICK, false),
                    None => (state.busy_until().saturating_sub(now), true),
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
        self.shared.state().stats()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, Flash> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time, and the drive as it is then, for a request.
    fn now(&self, what: &str, bytes: u64) -> (Duration, MutexGuard<'_, Flash>) {
        let now = self.clock.now().0;
        self.trace.note(what, &[now.as_micros() as u64, bytes], self.name.as_bytes());
        let mut state = self.state();
        state.program_until(now, &self.model, &*self.random);
        (now, state)
    }
}
