//! A solid-state drive and hard disks in simulated time, and ways to write to them.
//!
//! ```text
//! requests at their time --steer--> SSD ----------------------------------------------> done
//!                              '--> a hard disk's queue --may begin? yes--> its buffer --> done
//!                                          ^                  '--no--> SSD --> done
//!                                          '-- padding, when nothing is in it
//! ```
//!
//! Invariants:
//! 1. A seed repeats a run. The time of programs is not in it.
//! 2. A hard disk does one write at a time, and knows nothing of predictions: what it takes is as its emulator says.
//!
//! Left out: headers of records, the index, and moving what was written to its last place.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use claystone_env::{Clock, Device, Moment, SECTOR_BYTES, Sector, SectorRange, Worker, call};
use claystone_sim::{HddModel, Process, SimSsd, World, WriteOrder};
use claystone_tier::{
    DiskView, Mode, Padding, Predictor, Profile, Rule, Sender, SsdQueue, SsdTicket, Target, Tuning, Upkeep, steer,
};
use futures::future::select;
use tokio::sync::Notify;

use super::cache::LruCache;
use super::devices::{Devices, Known};
use super::tally::{Advance, Outcome, Tally};
use super::workload::Request;

/// How writes go to the devices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Way {
    /// To the solid-state drive, which is all there is.
    SsdOnly,
    /// To the solid-state drive, which is a cache of so many bytes before a hard disk: see [`LruCache`].
    Cached {
        /// Its room.
        bytes: u64,
    },
    /// Where they complete sooner.
    Steered {
        /// When.
        mode: Mode,
        /// How many hard disks there are.
        disks: usize,
        /// Which of them a write may go to.
        reach: Reach,
    },
}

/// Which hard disks may take a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Any: they are one store.
    All,
    /// The one that it belongs to, as each is a disk with a part of the solid-state drive. Of what waits there
    Own {
        /// each knows all, or what it wrote itself.
        knows_all: bool,
    },
}

/// Everything of one run. On one thread, so that nothing is locked.
pub struct Bed {
    clock: Arc<dyn Clock>,
    ssd: SimSsd,
    disks: Vec<Disk>,
    way: Way,
    rule: Rule,
    /// Requests in the solid-state drive,
    in_ssd: RefCell<SsdQueue>,
    /// of these those of each hard disk's writes,
    of_disks: Vec<RefCell<SsdQueue>>,
    /// and what it is held against.
    profile: Profile,
    tally: Tally,
    cache: RefCell<LruCache>,
    /// Held by the write that waits for room in the cache: the others wait here in their order.
    turn: tokio::sync::Mutex<()>,
    dirtied: Notify,
    cleaned: Notify,
}

/// A hard disk with a log at the place where it was left.
struct Disk {
    // It lives as long as its disk is written to.
    _process: Process,
    worker: Arc<dyn Worker>,
    device: Arc<dyn Device>,
    predictor: RefCell<Predictor>,
    queue: RefCell<VecDeque<Request>>,
    came: Notify,
    next: Cell<u64>,
    idle_since: Cell<Moment>,
    unused_since: Cell<Moment>,
}

impl Bed {
    /// With nothing asked of it yet.
    pub fn new(world: &World, devices: &Devices, way: Way, known: &Known, advance: Advance) -> Rc<Bed> {
        let (count, mode) = match way {
            Way::SsdOnly => (0, Mode::Disabled),
            Way::Cached { .. } => (1, Mode::Disabled),
            Way::Steered { disks, mode, .. } => (disks, mode),
        };
        let cache_sectors = match way {
            Way::Cached { bytes } => bytes as usize / SECTOR_BYTES,
            Way::SsdOnly | Way::Steered { .. } => 0,
        };
        let disk = |number: usize| {
            let hand = world.device(&format!("hdd {number}"), HddModel::buffered(LOG_SECTORS, devices.buffer));
            let process = world.process(&format!("hdd {number}"));
            let padding = match mode {
                Mode::Disabled => Padding::for_latency(),
                Mode::EnabledFast | Mode::Enabled => Padding::for_wear(),
            };
            let mut predictor = Predictor::new(known.profile.clone(), Tuning { padding, ..Tuning::default() });
            predictor.synced();
            Disk {
                worker: process.device_worker(&hand),
                _process: process,
                device: hand.attach(),
                predictor: RefCell::new(predictor),
                queue: RefCell::default(),
                came: Notify::new(),
                next: Cell::new(0),
                idle_since: Cell::default(),
                unused_since: Cell::default(),
            }
        };
        Rc::new(Bed {
            clock: world.clock(),
            ssd: world.ssd("ssd", devices.ssd),
            disks: (0..count).map(disk).collect(),
            way,
            rule: Rule::of(mode, known.queue_max).for_drive(&known.profile),
            in_ssd: RefCell::default(),
            of_disks: (0..count).map(|_| RefCell::default()).collect(),
            profile: known.profile.clone(),
            tally: Tally::new(world.clock(), advance),
            cache: RefCell::new(LruCache::new(cache_sectors, cache_sectors * DIRTY_FROM_PERCENT / 100)),
            turn: tokio::sync::Mutex::default(),
            dirtied: Notify::new(),
            cleaned: Notify::new(),
        })
    }

    /// Carries out all requests.
    ///
    /// # Errors
    /// A device failed, which none should.
    pub async fn carry_out(self: Rc<Self>, requests: &[Request]) -> anyhow::Result<Outcome> {
        let background: Vec<_> = match self.way {
            Way::SsdOnly => Vec::new(),
            Way::Cached { .. } => {
                let bed = self.clone();
                vec![tokio::task::spawn_local(async move { bed.write_back().await })]
            }
            Way::Steered { .. } => (0..self.disks.len())
                .map(|number| {
                    let bed = self.clone();
                    tokio::task::spawn_local(async move { bed.serve(number).await })
                })
                .collect(),
        };
        let mut outcome =
            self.tally.carry_out(requests, background, |request, number| self.clone().begin(request, number)).await?;
        outcome.stalls = self.ssd.stats().stalls;
        outcome.cache = self.cache.borrow().counts();
        for disk in &self.disks {
            outcome.add(disk.predictor.borrow().counts());
        }
        Ok(outcome)
    }

    /// Sends a request where it goes.
    fn begin(self: Rc<Self>, request: Request, number: usize) {
        let now = self.clock.now();
        let ssd = self.in_ssd.borrow().view(now);
        let owner = owner(number, self.disks.len());
        self.tally.outcome().queues.push(ssd.queue as u32);
        let target = match self.way {
            Way::SsdOnly => Target::Ssd,
            Way::Cached { .. } => return self.write_to_cache(request),
            Way::Steered { reach, .. } => {
                let bytes = request.padded();
                let views: Vec<DiskView> = self.disks.iter().map(|disk| disk.view(bytes)).collect();
                match reach {
                    Reach::All => steer(&self.rule, &ssd, bytes, &views),
                    Reach::Own { knows_all } => {
                        let seen = if knows_all { ssd } else { self.of_disks[owner].borrow().view(now) };
                        match steer(&self.rule, &seen, bytes, &views[owner..=owner]) {
                            Target::Ssd => Target::Ssd,
                            Target::Hdd(_) => Target::Hdd(owner),
                        }
                    }
                }
            }
        };
        match target {
            Target::Ssd => self.write_to_ssd(request, owner),
            Target::Hdd(number) => {
                let disk = &self.disks[number];
                disk.predictor.borrow_mut().queue(request.padded());
                disk.queue.borrow_mut().push_back(request);
                disk.came.notify_one();
            }
        }
    }

    fn to_ssd(&self, bytes: u64) -> SsdTicket {
        self.in_ssd.borrow_mut().begin(self.clock.now(), bytes, &self.profile)
    }

    fn write_to_ssd(self: Rc<Self>, request: Request, owner: usize) {
        let ticket = self.to_ssd(request.padded());
        let of_disk = self
            .of_disks
            .get(owner)
            .map(|queue| queue.borrow_mut().begin(self.clock.now(), request.padded(), &self.profile));
        self.tally.outcome().ssd_bytes += request.bytes;
        tokio::task::spawn_local(async move {
            self.ssd.write(request.bytes, WriteOrder::Following).await;
            self.in_ssd.borrow_mut().end(ticket);
            if let Some(ticket) = of_disk {
                self.of_disks[owner].borrow_mut().end(ticket);
            }
            self.tally.end(request);
        });
    }

    fn write_to_cache(self: Rc<Self>, request: Request) {
        let range = SectorRange { first: request.first, sectors: request.padded() / SECTOR_BYTES as u64 };
        tokio::task::spawn_local(async move {
            {
                let _turn = self.turn.lock().await;
                while !self.cache.borrow().has_room(range) {
                    self.cleaned.notified().await;
                }
                self.cache.borrow_mut().write(range);
            }
            self.dirtied.notify_one();
            self.write_to_ssd(request, 0);
        });
    }

    /// The task of a hard disk that is steered to.
    async fn serve(self: Rc<Self>, number: usize) -> anyhow::Result<()> {
        let disk = &self.disks[number];
        loop {
            let waiting = disk.queue.borrow_mut().pop_front();
            if let Some(request) = waiting {
                if !disk.predictor.borrow().may_begin() {
                    disk.predictor.borrow_mut().unqueue();
                    self.tally.outcome().bounced += 1;
                    self.clone().write_to_ssd(request, number);
                    continue;
                }
                let took = self.write_to(disk, request.padded()).await?;
                disk.predictor.borrow_mut().wrote(Sender::User, request.padded(), took);
                disk.unused_since.set(self.clock.now());
                self.tally.outcome().hdd_user += took;
                self.tally.end(request);
                continue;
            }
            let reach = match self.way {
                Way::Steered { reach, .. } => reach,
                Way::SsdOnly | Way::Cached { .. } => Reach::All,
            };
            let now = self.clock.now();
            let (idle, unused) = (now.since(disk.idle_since.get()), now.since(disk.unused_since.get()));
            let queue = match reach {
                Reach::Own { knows_all: false } => &self.of_disks[number],
                Reach::All | Reach::Own { knows_all: true } => &self.in_ssd,
            };
            let is_calm = self.rule.is_calm(&queue.borrow().view(now));
            let upkeep = disk.predictor.borrow().upkeep(idle, unused, is_calm);
            match upkeep {
                Upkeep::Nothing => disk.came.notified().await,
                Upkeep::After(wait) => {
                    drop(select(std::pin::pin!(disk.came.notified()), self.clock.sleep(wait)).await);
                }
                Upkeep::Pad(bytes) => {
                    let took = self.write_to(disk, bytes).await?;
                    disk.predictor.borrow_mut().wrote(Sender::Padding, bytes, took);
                    self.tally.outcome().hdd_other += took;
                }
                Upkeep::Sync => {
                    disk.predictor.borrow_mut().suspend();
                    let begun = self.clock.now();
                    let device = disk.device.clone();
                    call(&*disk.worker, move || device.sync()).await??;
                    self.tally.outcome().hdd_other += self.clock.now().since(begun);
                    disk.predictor.borrow_mut().resume_synced();
                    disk.idle_since.set(self.clock.now());
                }
            }
        }
    }

    /// Appends to a hard disk; returns what that took.
    async fn write_to(&self, disk: &Disk, bytes: u64) -> anyhow::Result<Duration> {
        let range = SectorRange { first: Sector(disk.next.get()), sectors: bytes / SECTOR_BYTES as u64 };
        disk.next.set(range.end().0);
        self.write_at(disk, range).await
    }

    async fn write_at(&self, disk: &Disk, range: SectorRange) -> anyhow::Result<Duration> {
        let begun = self.clock.now();
        let (device, bytes) = (disk.device.clone(), range.sectors as usize * SECTOR_BYTES);
        let write = move || device.write(range.first, &ZEROS[..bytes]);
        call(&*disk.worker, write).await?.context("an emulated hard disk failed")?;
        disk.idle_since.set(self.clock.now());
        Ok(self.clock.now().since(begun))
    }

    /// The task of a cache that writes back: a batch after the other, each in the order of the hard disk.
    async fn write_back(self: Rc<Self>) -> anyhow::Result<()> {
        let disk = &self.disks[0];
        loop {
            let batch = self.cache.borrow().to_write_back(WRITE_BACK_SECTORS);
            let Some(batch) = batch else {
                self.dirtied.notified().await;
                continue;
            };
            let begun = self.clock.now();
            for range in &batch.ranges {
                let bytes = range.sectors * SECTOR_BYTES as u64;
                let ticket = self.to_ssd(bytes);
                self.ssd.read(bytes).await;
                self.in_ssd.borrow_mut().end(ticket);
                self.write_at(disk, *range).await?;
            }
            let device = disk.device.clone();
            call(&*disk.worker, move || device.sync()).await??;
            self.tally.outcome().hdd_other += self.clock.now().since(begun);
            self.cache.borrow_mut().wrote_back(&batch);
            self.cleaned.notify_waiters();
        }
    }
}

impl Disk {
    fn view(&self, bytes: u64) -> DiskView {
        let predictor = self.predictor.borrow();
        DiskView {
            predicted: predictor.predict(bytes),
            left_bytes: predictor.left_bytes(),
            waiting: predictor.queued(),
        }
    }
}

/// Which of so many hard disks a write belongs to: as a store spreads its chunks.
fn owner(number: usize, disks: usize) -> usize {
    let spread = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    if disks == 0 { 0 } else { spread as usize % disks }
}

/// As long as any write to a hard disk: 1 MiB, and the header of a record.
pub static ZEROS: [u8; (1 << 20) + SECTOR_BYTES] = [0; (1 << 20) + SECTOR_BYTES];
/// 16 TiB: the log of no run comes to its end.
const LOG_SECTORS: u64 = 1 << 32;
/// Of a cache's room, what may be dirty before it writes back: as a pair brings home what is in its logs.
const DIRTY_FROM_PERCENT: usize = 50;
/// 4 MiB.
const WRITE_BACK_SECTORS: usize = 1024;
