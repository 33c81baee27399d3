//! A system's cache of sectors before a drive, in time alone.
//!
//! ```text
//!  read  --> held? --no--> drive
//!  write --> dirty --more than `dirty_from` of them--> drive --> held        (or at once, if writes go through)
//! ```
//!
//! Invariants:
//! 1. At most `sectors` are held; the one that was not used for longest goes first.
//! 2. At most `dirty_max` sectors are dirty or on their way to the drive, beside one write that is longer: who writes waits,
//!    in order.
//! 3. What is dirty goes to the drive in the order in which it became so, at most `at_once` requests at a time; a sector that
//!    is written again while it is dirty goes there once.
//!
//! Left out: writes of parts of sectors (a caller who needs the rest reads it), and writing back by age.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use claystone_env::{Env, SECTOR_BYTES};
use futures::FutureExt;
use futures::future::{join_all, select};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Notify;

use crate::ssd::{SimSsd, WriteOrder};

/// How large a cache is, and when it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheModel {
    /// Sectors that are held.
    pub sectors: usize,
    /// So many sectors may be dirty before they are written to the drive.
    pub dirty_from: usize,
    /// So many may be dirty before whoever writes waits.
    pub dirty_max: usize,
    /// Requests of dirty sectors that the drive has at a time.
    pub at_once: usize,
    /// Time of a call that needs nothing of the drive: of the system, and for copying.
    pub call: Duration,
    /// Whether a write is done only when the drive has it.
    pub writes_through: bool,
}

/// A file, for those who tell sectors apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CachedFile {
    /// Whose it is.
    pub owner: u128,
    /// Which of the owner's.
    pub number: u64,
}

/// What a cache did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Sectors asked for.
    pub sectors_read: u64,
    /// Of them, those that were held.
    pub sectors_held: u64,
    /// Sectors given.
    pub sectors_written: u64,
}

/// A cache. Clones are the same.
#[derive(Clone)]
pub struct SimCache {
    shared: Arc<Shared>,
}

type Place = (CachedFile, u64);

struct Shared {
    env: Env,
    ssd: SimSsd,
    model: CacheModel,
    state: Mutex<State>,
    /// There may be something to write to the drive.
    dirtied: Notify,
    /// Something was written to it.
    cleaned: Notify,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// When each was used, and the other way round.
    held: BTreeMap<Place, u64>,
    used: BTreeMap<u64, Place>,
    uses: u64,
    /// Where the last write of each file to the drive ended.
    ends: BTreeMap<CachedFile, u64>,
    /// Dirty sectors that are not on their way.
    dirty: BTreeSet<Place>,
    waiting: VecDeque<Stretch>,
    /// Sectors on their way.
    leaving: usize,
    /// Numbers of stretches that wait or are on their way.
    unclean: BTreeSet<u64>,
    stretches: u64,
    /// Syncs and writes that wait until less is dirty.
    waiters: usize,
    stats: CacheStats,
}

/// Dirty sectors that follow each other in a file.
#[derive(Debug, Clone)]
struct Stretch {
    number: u64,
    file: CachedFile,
    sectors: Range<u64>,
}

impl SimCache {
    /// An empty cache before a drive.
    pub fn new(env: &Env, ssd: SimSsd, model: CacheModel) -> SimCache {
        let shared = Arc::new(Shared {
            env: env.clone(),
            ssd,
            model,
            state: Mutex::default(),
            dirtied: Notify::new(),
            cleaned: Notify::new(),
            turn: tokio::sync::Mutex::default(),
        });
        let cleaning = shared.clone();
        env.tasks.spawn("cache", async move { cleaning.clean().await }.boxed());
        SimCache { shared }
    }

    /// Reads bytes of a file.
    pub async fn read(&self, file: CachedFile, bytes: Range<u64>) {
        let shared = &*self.shared;
        shared.env.clock.sleep(shared.model.call).await;
        let sectors = sectors(&bytes);
        let missing = shared.state().missing(file, sectors.clone());
        join_all(missing.into_iter().map(|run| shared.ssd.read((run.end - run.start) * SECTOR_BYTES as u64))).await;
        shared.state().hold(file, sectors, shared.model.sectors);
    }

    /// Holds bytes of a file as if they had just been read.
    pub fn hold(&self, file: CachedFile, bytes: Range<u64>) {
        self.shared.state().hold(file, sectors(&bytes), self.shared.model.sectors);
    }

    /// Writes bytes of a file.
    pub async fn write(&self, file: CachedFile, bytes: Range<u64>) {
        let shared = &*self.shared;
        shared.env.clock.sleep(shared.model.call).await;
        let sectors = sectors(&bytes);
        let count = (sectors.end - sectors.start) as usize;
        shared.state().stats.sectors_written += count as u64;
        if shared.model.writes_through {
            let order = shared.state().order(file, &sectors);
            shared.ssd.write((count * SECTOR_BYTES) as u64, order).await;
            shared.state().hold(file, sectors, shared.model.sectors);
            return;
        }
        let _turn = shared.turn.lock().await;
        let has_room = |state: &State| {
            let dirty = state.dirty.len() + state.leaving;
            dirty == 0 || dirty + count <= shared.model.dirty_max
        };
        shared.until(has_room).await;
        {
            let mut state = shared.state();
            state.hold(file, sectors.clone(), shared.model.sectors);
            state.make_dirty(file, sectors);
        }
        shared.dirtied.notify_one();
    }

    /// Makes durable what was written.
    pub async fn sync(&self) {
        let shared = &*self.shared;
        let last = shared.state().stretches;
        shared.until(|state| state.unclean.first().is_none_or(|number| *number > last)).await;
        shared.ssd.flush().await;
    }

    /// What it did so far.
    pub fn stats(&self) -> CacheStats {
        self.shared.state().stats
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the drive has as much of what is dirty as `is_enough` wants.
    async fn until(&self, is_enough: impl Fn(&State) -> bool) {
        if is_enough(&self.state()) {
            return;
        }
        self.state().waiters += 1;
        self.dirtied.notify_one();
        loop {
            let mut cleaned = std::pin::pin!(self.cleaned.notified());
            // Whoever cleans after the look below wakes this.
            cleaned.as_mut().enable();
            if is_enough(&self.state()) {
                break;
            }
            cleaned.await;
        }
        self.state().waiters -= 1;
    }

    /// Writes dirty sectors to the drive, for ever.
    async fn clean(&self) {
        let mut under_way = FuturesUnordered::new();
        loop {
            while under_way.len() < self.model.at_once
                && let Some((stretch, order)) = self.state().take_dirty(self.model.dirty_from)
            {
                under_way.push(async move {
                    let sectors = stretch.sectors.end - stretch.sectors.start;
                    self.ssd.write(sectors * SECTOR_BYTES as u64, order).await;
                    let mut state = self.state();
                    state.leaving -= sectors as usize;
                    state.unclean.remove(&stretch.number);
                });
            }
            let dirtied = self.dirtied.notified();
            if under_way.is_empty() {
                dirtied.await;
            } else {
                select(std::pin::pin!(dirtied), under_way.next()).await;
                self.cleaned.notify_waiters();
            }
        }
    }
}

impl State {
    /// The sectors of these that are neither held nor dirty, in runs.
    fn missing(&mut self, file: CachedFile, sectors: Range<u64>) -> Vec<Range<u64>> {
        self.stats.sectors_read += sectors.end - sectors.start;
        let mut runs: Vec<Range<u64>> = Vec::new();
        for sector in sectors {
            if self.held.contains_key(&(file, sector)) || self.dirty.contains(&(file, sector)) {
                self.stats.sectors_held += 1;
                continue;
            }
            match runs.last_mut() {
                Some(run) if run.end == sector => run.end += 1,
                _ => runs.push(sector..sector + 1),
            }
        }
        runs
    }

    /// They were used now.
    fn hold(&mut self, file: CachedFile, sectors: Range<u64>, sectors_max: usize) {
        for place in sectors.map(|sector| (file, sector)) {
            self.uses += 1;
            self.used.insert(self.uses, place);
            if let Some(before) = self.held.insert(place, self.uses) {
                self.used.remove(&before);
            }
        }
        while self.held.len() > sectors_max
            && let Some((_, place)) = self.used.pop_first()
        {
            self.held.remove(&place);
        }
    }

    fn make_dirty(&mut self, file: CachedFile, sectors: Range<u64>) {
        for sector in sectors {
            if !self.dirty.insert((file, sector)) {
                continue;
            }
            match self.waiting.back_mut() {
                Some(last) if last.file == file && last.sectors.end == sector && last.is_short() => {
                    last.sectors.end += 1;
                }
                _ => {
                    self.stretches += 1;
                    self.unclean.insert(self.stretches);
                    let number = self.stretches;
                    self.waiting.push_back(Stretch { number, file, sectors: sector..sector + 1 });
                }
            }
        }
    }

    /// What is to go to the drive now.
    fn take_dirty(&mut self, dirty_from: usize) -> Option<(Stretch, WriteOrder)> {
        if self.waiters == 0 && self.dirty.len() <= dirty_from {
            return None;
        }
        let stretch = self.waiting.pop_front()?;
        for sector in stretch.sectors.clone() {
            self.dirty.remove(&(stretch.file, sector));
        }
        self.leaving += (stretch.sectors.end - stretch.sectors.start) as usize;
        let order = self.order(stretch.file, &stretch.sectors);
        Some((stretch, order))
    }

    /// How a write to the drive continues the one before it of its file, whose last sector it may write again.
    fn order(&mut self, file: CachedFile, sectors: &Range<u64>) -> WriteOrder {
        match self.ends.insert(file, sectors.end) {
            Some(end) if sectors.start == end || sectors.start + 1 == end => WriteOrder::Following,
            _ => WriteOrder::Random,
        }
    }
}

impl Stretch {
    fn is_short(&self) -> bool {
        self.sectors.end - self.sectors.start < REQUEST_SECTORS_MAX
    }
}

fn sectors(bytes: &Range<u64>) -> Range<u64> {
    let sector = SECTOR_BYTES as u64;
    bytes.start / sector..bytes.end.div_ceil(sector).max(bytes.start / sector + 1)
}

/// A request of the system to a drive.
const REQUEST_SECTORS_MAX: u64 = 128;
