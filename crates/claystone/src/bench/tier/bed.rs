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

use anyhow::{Context, bail};
use claystone_env::{Clock, Device, EmulatedTime, Moment, SECTOR_BYTES, Sector, Worker, call};
use claystone_sim::{BufferModel, HddModel, Process, SimDevice, SimSsd, SsdModel, World, WriteOrder};
use claystone_tier::{
    Counts, DiskView, Finding, Mode, Padding, Predictor, Profile, ProfilePlan, Rule, Sender, SsdQueue, SsdTicket,
    Target, Tuning, Upkeep, WriteState, disk_to_advance, profile_device, queue_threshold, steer,
};
use futures::future::select;
use tokio::sync::Notify;

use super::workload::Request;

/// How writes go to the devices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Way {
    /// To the solid-state drive, which is all there is.
    SsdOnly,
    /// To the solid-state drive; when more than so many bytes were written there and not to the hard disk, the oldest go there.
    WriteBack {
        /// Bytes that may wait.
        cache_bytes: u64,
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

/// What devices are made of.
#[derive(Debug, Clone, Copy)]
pub struct Devices {
    /// The solid-state drive.
    pub ssd: SsdModel,
    /// Each hard disk.
    pub buffer: BufferModel,
}

/// What is known of the devices before a run, because it was measured.
#[derive(Debug, Clone)]
pub struct Known {
    /// Of the hard disks.
    pub profile: Profile,
    /// The queue of the solid-state drive that is not long yet.
    pub queue_max: usize,
}

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// How long each write took, in the order of their ends.
    pub latencies: Vec<Duration>,
    /// Requests in the solid-state drive that each write found there.
    pub queues: Vec<u32>,
    /// Bytes that went to the solid-state drive.
    pub ssd_bytes: u64,
    /// Writes that were sent to a hard disk, and went to the solid-state drive because it became slow.
    pub bounced: u64,
    /// From the first write until all are done.
    pub lasted: Duration,
    /// Time that hard disks took for users' writes,
    pub hdd_user: Duration,
    /// and for all else.
    pub hdd_other: Duration,
    /// What the predictors saw, all together.
    pub counts: Counts,
    /// Stalls of the solid-state drive.
    pub stalls: u64,
}

impl Devices {
    /// Measures the devices as one would any others.
    ///
    /// # Errors
    /// The hard disk shows no stages.
    pub fn measure(&self, seed: u64) -> anyhow::Result<Known> {
        let profile = self.profile(seed)?;
        let by_queue = claystone_sim::run(seed, async |world| ssd_by_queue(&world, self.ssd).await);
        let queue_max = queue_threshold(&by_queue, profile.latency(WriteState::Mid, PROBE_BYTES));
        Ok(Known { profile, queue_max })
    }

    fn profile(&self, seed: u64) -> anyhow::Result<Profile> {
        let drive = SimDevice::alone("hdd", HddModel::buffered(PROFILED_SECTORS, self.buffer), seed);
        let plan = ProfilePlan::default();
        let staircase = profile_device(&*drive.attach(), &|| drive.done_at(), &plan, &mut |_| {})?;
        match staircase.finding() {
            Finding::Buffered(profile) => Ok(profile),
            Finding::Unpredictable(why) => bail!("an emulated hard disk cannot be told in advance: {why}"),
        }
    }

    /// Carries out all requests.
    ///
    /// # Errors
    /// An emulated drive failed, which none should.
    pub fn run(&self, way: Way, known: &Known, requests: &[Request], seed: u64) -> anyhow::Result<Outcome> {
        claystone_sim::run(seed, async |world| {
            let local = tokio::task::LocalSet::new();
            local.run_until(Bed::new(&world, self, way, known).carry_out(requests)).await
        })
    }
}

/// How long a write of the solid-state drive takes that comes with 0, 1, 2 ... others before it: medians.
async fn ssd_by_queue(world: &World, model: SsdModel) -> Vec<Duration> {
    let (ssd, clock) = (world.ssd("ssd", model), world.clock());
    let mut took = vec![Vec::new(); QUEUE_MEASURED];
    for _ in 0..QUEUE_ROUNDS {
        let begun = clock.now();
        let writes = (0..QUEUE_MEASURED).map(|_| async {
            ssd.write(PROBE_BYTES, WriteOrder::Following).await;
            clock.now().since(begun)
        });
        let ends = futures::future::join_all(writes).await;
        took.iter_mut().zip(ends).for_each(|(took, end)| took.push(end));
        ssd.rest().await;
    }
    took.iter_mut().for_each(|took| took.sort_unstable());
    took.into_iter().map(|took| took[QUEUE_ROUNDS / 2]).collect()
}

/// Everything of one run. On one thread, so that nothing is locked.
struct Bed {
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
    left: Cell<usize>,
    all_done: Notify,
    outcome: RefCell<Outcome>,
    /// Bytes that only the cache has.
    dirty: Cell<u64>,
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
    fn new(world: &World, devices: &Devices, way: Way, known: &Known) -> Rc<Bed> {
        let (count, mode) = match way {
            Way::SsdOnly => (0, Mode::Disabled),
            Way::WriteBack { .. } => (1, Mode::Disabled),
            Way::Steered { disks, mode, .. } => (disks, mode),
        };
        let disk = |number: usize| {
            let hand = world.device(&format!("hdd {number}"), HddModel::buffered(LOG_SECTORS, devices.buffer));
            let process = world.process(&format!("hdd {number}"));
            // Disabled, a disk is synced and left alone, so that it is fast when it is needed, and never about to be slow.
            let padding = match mode {
                Mode::Disabled => {
                    Padding { sync_after: Some(SYNC_AFTER), reserve_bytes: RESERVE_BYTES, ..Padding::default() }
                }
                Mode::EnabledFast | Mode::Enabled => Padding::default(),
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
            rule: Rule { waiting_max: WAITING_MAX, ..Rule::of(mode, known.queue_max).for_drive(&known.profile) },
            in_ssd: RefCell::default(),
            of_disks: (0..count).map(|_| RefCell::default()).collect(),
            profile: known.profile.clone(),
            left: Cell::new(0),
            all_done: Notify::new(),
            outcome: RefCell::default(),
            dirty: Cell::new(0),
            dirtied: Notify::new(),
            cleaned: Notify::new(),
        })
    }

    async fn carry_out(self: Rc<Self>, requests: &[Request]) -> anyhow::Result<Outcome> {
        self.left.set(requests.len());
        let background: Vec<_> = match self.way {
            Way::SsdOnly => Vec::new(),
            Way::WriteBack { cache_bytes } => {
                let bed = self.clone();
                vec![tokio::task::spawn_local(async move { bed.write_back(cache_bytes).await })]
            }
            Way::Steered { .. } => (0..self.disks.len())
                .map(|number| {
                    let bed = self.clone();
                    tokio::task::spawn_local(async move { bed.serve(number).await })
                })
                .collect(),
        };
        let begun = self.clock.now();
        for (number, request) in requests.iter().enumerate() {
            let at = begun.after(request.at);
            let wait = at.since(self.clock.now());
            if !wait.is_zero() {
                self.clock.sleep(wait).await;
            }
            self.clone().begin(Request { at: at.0, ..*request }, number);
        }
        while self.left.get() > 0 {
            if background.iter().any(tokio::task::JoinHandle::is_finished) {
                break;
            }
            select(std::pin::pin!(self.all_done.notified()), self.clock.sleep(Duration::from_secs(1))).await;
        }
        let lasted = self.clock.now().since(begun);
        for task in background {
            if task.is_finished() {
                task.await??;
                bail!("a task of the bench ended early");
            }
            task.abort();
        }
        let mut outcome = self.outcome.take();
        outcome.lasted = lasted;
        outcome.stalls = self.ssd.stats().stalls;
        for disk in &self.disks {
            let of = disk.predictor.borrow().counts();
            let all = &mut outcome.counts;
            for (sum, more) in [
                (&mut all.user_writes, of.user_writes),
                (&mut all.user_bytes, of.user_bytes),
                (&mut all.user_surprises, of.user_surprises),
                (&mut all.paddings, of.paddings),
                (&mut all.padding_bytes, of.padding_bytes),
                (&mut all.padding_surprises, of.padding_surprises),
                (&mut all.slow_stages, of.slow_stages),
                (&mut all.losses, of.losses),
                (&mut all.recalibrations, of.recalibrations),
            ] {
                *sum += more;
            }
        }
        Ok(outcome)
    }

    /// Sends a request where it goes.
    fn begin(self: Rc<Self>, request: Request, number: usize) {
        let now = self.clock.now();
        let ssd = self.in_ssd.borrow().view(now);
        let owner = owner(number, self.disks.len());
        self.outcome.borrow_mut().queues.push(ssd.queue as u32);
        let target = match self.way {
            Way::SsdOnly | Way::WriteBack { .. } => Target::Ssd,
            Way::Steered { reach, .. } => {
                let bytes = padded(request.bytes);
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
                disk.predictor.borrow_mut().queue(padded(request.bytes));
                disk.queue.borrow_mut().push_back(request);
                disk.came.notify_one();
            }
        }
    }

    fn to_ssd(&self, bytes: u64) -> SsdTicket {
        self.in_ssd.borrow_mut().begin(self.clock.now(), bytes, &self.profile)
    }

    fn write_to_ssd(self: Rc<Self>, request: Request, owner: usize) {
        let ticket = self.to_ssd(padded(request.bytes));
        let of_disk = self
            .of_disks
            .get(owner)
            .map(|queue| queue.borrow_mut().begin(self.clock.now(), padded(request.bytes), &self.profile));
        self.outcome.borrow_mut().ssd_bytes += request.bytes;
        tokio::task::spawn_local(async move {
            if let Way::WriteBack { cache_bytes } = self.way {
                while self.dirty.get() > cache_bytes + CACHE_SLACK {
                    self.cleaned.notified().await;
                }
                self.dirty.set(self.dirty.get() + request.bytes);
                self.dirtied.notify_one();
            }
            self.ssd.write(request.bytes, WriteOrder::Following).await;
            self.in_ssd.borrow_mut().end(ticket);
            if let Some(ticket) = of_disk {
                self.of_disks[owner].borrow_mut().end(ticket);
            }
            self.end(request);
        });
    }

    fn end(&self, request: Request) {
        self.outcome.borrow_mut().latencies.push(self.clock.now().since(Moment(request.at)));
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0 {
            self.all_done.notify_one();
        }
    }

    /// The task of a hard disk that is steered to.
    async fn serve(self: Rc<Self>, number: usize) -> anyhow::Result<()> {
        let disk = &self.disks[number];
        loop {
            let waiting = disk.queue.borrow_mut().pop_front();
            if let Some(request) = waiting {
                if !disk.predictor.borrow().may_begin() {
                    disk.predictor.borrow_mut().unqueue();
                    self.outcome.borrow_mut().bounced += 1;
                    self.clone().write_to_ssd(request, number);
                    continue;
                }
                let took = self.write_to(disk, padded(request.bytes)).await?;
                disk.predictor.borrow_mut().wrote(Sender::User, padded(request.bytes), took);
                disk.unused_since.set(self.clock.now());
                self.outcome.borrow_mut().hdd_user += took;
                self.end(request);
                continue;
            }
            let reach = match self.way {
                Way::Steered { reach, .. } => reach,
                Way::SsdOnly | Way::WriteBack { .. } => Reach::All,
            };
            let views: Vec<DiskView> = self.disks.iter().map(|disk| disk.view(0)).collect();
            if reach == Reach::All && disk_to_advance(&views, APART_BYTES) == Some(number) {
                disk.predictor.borrow_mut().advance();
            }
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
                    self.outcome.borrow_mut().hdd_other += took;
                }
                Upkeep::Sync => {
                    disk.predictor.borrow_mut().suspend();
                    let begun = self.clock.now();
                    let device = disk.device.clone();
                    call(&*disk.worker, move || device.sync()).await??;
                    self.outcome.borrow_mut().hdd_other += self.clock.now().since(begun);
                    disk.predictor.borrow_mut().resume_synced();
                    disk.idle_since.set(self.clock.now());
                }
            }
        }
    }

    /// Appends to a hard disk; returns what that took.
    async fn write_to(&self, disk: &Disk, bytes: u64) -> anyhow::Result<Duration> {
        let begun = self.clock.now();
        let (device, first) = (disk.device.clone(), disk.next.get());
        disk.next.set(first + bytes / SECTOR_BYTES as u64);
        let write = move || device.write(Sector(first), &ZEROS[..bytes as usize]);
        call(&*disk.worker, write).await?.context("an emulated hard disk failed")?;
        disk.idle_since.set(self.clock.now());
        Ok(self.clock.now().since(begun))
    }

    /// The task of a cache that writes back: what was written longest ago, in long pieces, one after another.
    async fn write_back(self: Rc<Self>, cache_bytes: u64) -> anyhow::Result<()> {
        let disk = &self.disks[0];
        loop {
            if self.dirty.get() < cache_bytes + WRITE_BACK_BYTES {
                self.dirtied.notified().await;
                continue;
            }
            let ticket = self.to_ssd(WRITE_BACK_BYTES);
            self.ssd.read(WRITE_BACK_BYTES).await;
            self.in_ssd.borrow_mut().end(ticket);
            let took = self.write_to(disk, WRITE_BACK_BYTES).await?;
            self.outcome.borrow_mut().hdd_other += took;
            self.dirty.set(self.dirty.get() - WRITE_BACK_BYTES);
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

/// Whole sectors, as a log has them.
fn padded(bytes: u64) -> u64 {
    bytes.next_multiple_of(SECTOR_BYTES as u64)
}

static ZEROS: [u8; 1 << 20] = [0; 1 << 20];
/// What a hard disk and a solid-state drive are compared by.
const PROBE_BYTES: u64 = 16 << 10;
const QUEUE_MEASURED: usize = 48;
const QUEUE_ROUNDS: usize = 41;
/// Longer than a run of the profiler.
const PROFILED_SECTORS: u64 = 1 << 15;
/// 16 TiB: the log of no run comes to its end.
const LOG_SECTORS: u64 = 1 << 32;
/// As many as a drive's queue has places for.
const WAITING_MAX: usize = 32;
/// A tenth of the middle stage of the drive of the paper.
const APART_BYTES: u64 = 1 << 20;
/// What the heaviest workload brings within a stall of the solid-state drive at its peak.
const RESERVE_BYTES: u64 = 6 << 20;
/// Without a user's write, before a disk that is not enabled is synced.
const SYNC_AFTER: Duration = Duration::from_millis(20);
const WRITE_BACK_BYTES: u64 = 1 << 20;
/// How much a cache may be over its bound before writes wait.
const CACHE_SLACK: u64 = 64 << 20;
