//! Clients of a volume: random requests, several under way on each connection, checked against the volume's model.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::model::{Model, Snapshot};
use crate::nbd::{Connection, Reply, Request};
use crate::running::store::Draw;

/// A volume and what it must hold.
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Pages of a stripe.
    pub stripe_pages: usize,
    /// Pages that it has at least: a resize was acknowledged.
    pub pages_min: AtomicUsize,
    /// Its snapshots, oldest first, and what they must hold.
    snapshots: Mutex<Vec<(String, Snapshot)>>,
    /// A snapshot that was being taken when the store was killed, and what it must hold if it is there.
    cut: Mutex<Option<Snapshot>>,
    model: Mutex<Model>,
}

/// What the main thread tells clients.
#[derive(Debug, Default)]
pub struct Signals {
    /// Take no new requests.
    pub stop: AtomicBool,
    /// From now on connections may break.
    pub dying: AtomicBool,
}

/// What clients did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    /// Writes, zeroes, trims.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Flushes, and writes that were to be durable at once.
    pub flushes: u64,
    /// Pages read while others wrote.
    pub pages_read: u64,
}

impl Tally {
    /// Adds another's counts.
    pub fn add(&mut self, other: Tally) {
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
        self.flushes += other.flushes;
        self.pages_read += other.pages_read;
    }
}

/// A request whose reply is awaited.
#[derive(Debug)]
enum Pending {
    Change { pages: Range<usize>, id: u64, now: bool, bytes: u64 },
    Flush { begun: u64 },
    Read { offset: u64, pages: Range<usize>, begun: u64 },
}

impl Volume {
    /// One that was just made.
    pub fn new(number: u64, name: &str, page_bytes: usize, pages: usize, stripe_pages: usize) -> Volume {
        let model = Mutex::new(Model::new(number, page_bytes, pages));
        Volume {
            name: name.to_owned(),
            stripe_pages,
            pages_min: AtomicUsize::new(pages),
            snapshots: Mutex::default(),
            cut: Mutex::default(),
            model,
        }
    }

    /// One that was just made of a snapshot.
    pub fn clone_of(snapshot: &Snapshot, number: u64, name: &str, stripe_pages: usize) -> Volume {
        let model = Model::clone_of(snapshot, number);
        let pages_min = AtomicUsize::new(model.len());
        Volume {
            name: name.to_owned(),
            stripe_pages,
            pages_min,
            snapshots: Mutex::default(),
            cut: Mutex::default(),
            model: Mutex::new(model),
        }
    }

    /// What it must hold.
    pub fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads every page after a crash, and flushes. Returns how many pages it read before the connection broke.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self, socket: &Path, signals: &Signals) -> Result<u64, String> {
        let mut pages = 0;
        match self.read_all(socket, &mut pages) {
            Ok(Ok(())) => Ok(pages),
            Ok(Err(wrong)) => Err(format!("{}: {wrong}", self.name)),
            Err(_) if signals.dying.load(Ordering::SeqCst) => Ok(pages),
            Err(error) => Err(format!("{} cannot be read after a start: {error}", self.name)),
        }
    }

    fn read_all(&self, socket: &Path, pages: &mut u64) -> io::Result<Result<(), String>> {
        let mut connection = Connection::open(socket, &self.name)?;
        let (page_bytes, bytes) = {
            let mut model = self.model();
            let page_bytes = model.page_bytes as u64;
            // A growth that was cut off has happened or not.
            let found = (connection.bytes / page_bytes) as usize;
            let least = self.pages_min.load(Ordering::SeqCst).max(model.len());
            if found < least {
                return Ok(Err(format!("it has {found} pages of {least}")));
            }
            model.grow(found);
            (page_bytes, connection.bytes)
        };
        let mut at = 0;
        let mut under_way = BTreeMap::new();
        while at < bytes || !under_way.is_empty() {
            if at < bytes && under_way.len() < CHECK_WINDOW {
                let length = CHECK_BYTES.min(bytes - at) as u32;
                under_way.insert(connection.send(&Request::Read { offset: at, bytes: length })?, at);
                at += u64::from(length);
                continue;
            }
            let reply = connection.receive()?;
            let offset = under_way.remove(&reply.cookie).expect("it was asked for");
            if reply.error != 0 {
                return Ok(Err(format!("the read at {offset} fails with {}", reply.error)));
            }
            if let Err(wrong) = self.model().observe(offset, &reply.content) {
                return Ok(Err(wrong.to_string()));
            }
            *pages += reply.content.len() as u64 / page_bytes;
        }
        connection.close();
        Ok(Ok(()))
    }

    /// Reads a snapshot. Returns how many pages it has.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_snapshot(socket: &Path, name: &str, snapshot: &mut Snapshot) -> Result<u64, String> {
        let read = |snapshot: &mut Snapshot| -> io::Result<Result<(), String>> {
            let mut connection = Connection::open(socket, name)?;
            if connection.bytes != snapshot.bytes() {
                return Ok(Err(format!("it has {} bytes of {}", connection.bytes, snapshot.bytes())));
            }
            let mut at = 0;
            while at < connection.bytes {
                let bytes = CHECK_BYTES.min(connection.bytes - at) as u32;
                connection.send(&Request::Read { offset: at, bytes })?;
                let reply = connection.receive()?;
                if reply.error != 0 {
                    return Ok(Err(format!("the read at {at} fails with {}", reply.error)));
                }
                if let Err(wrong) = snapshot.observe(at, &reply.content) {
                    return Ok(Err(wrong.to_string()));
                }
                at += u64::from(bytes);
            }
            connection.close();
            Ok(Ok(()))
        };
        match read(snapshot).map(|read| read.and_then(|()| snapshot.is_of_one_moment())) {
            Ok(Ok(())) => Ok(snapshot.pages()),
            Ok(Err(wrong)) => Err(format!("{name}: {wrong}")),
            Err(error) => Err(format!("{name} cannot be read: {error}")),
        }
    }

    /// Its snapshots.
    pub fn snapshots(&self) -> MutexGuard<'_, Vec<(String, Snapshot)>> {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The snapshot that began to be taken at `begun`.
    pub fn end_snapshot(&self, begun: u64) -> Snapshot {
        let mut snapshot = self.model().end_snapshot(begun);
        // Nobody has written yet what was made longer.
        snapshot.grow(self.pages_min.load(Ordering::SeqCst));
        snapshot
    }

    /// The snapshot whose taking was cut off last.
    pub fn cut(&self) -> MutexGuard<'_, Option<Snapshot>> {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for one thing after another until it is told to stop, or the store dies.
    ///
    /// # Errors
    /// What the store did wrong.
    pub fn use_it(&self, socket: &Path, seed: u64, signals: &Signals) -> Result<Tally, String> {
        let mut client = Client { volume: self, draw: Draw(seed), pending: BTreeMap::new(), tally: Tally::default() };
        match client.run(socket, signals) {
            Ok(Ok(())) => Ok(client.tally),
            Ok(Err(wrong)) => Err(format!("{}: {wrong}", self.name)),
            Err(_) if signals.dying.load(Ordering::SeqCst) => Ok(client.tally),
            Err(error) => Err(format!("{}: a connection broke: {error}", self.name)),
        }
    }
}

struct Client<'a> {
    volume: &'a Volume,
    draw: Draw,
    pending: BTreeMap<u64, Pending>,
    tally: Tally,
}

impl Client<'_> {
    fn run(&mut self, socket: &Path, signals: &Signals) -> io::Result<Result<(), String>> {
        let mut connection = Connection::open(socket, &self.volume.name)?;
        let window = 1 + self.draw.below(WINDOW_MAX) as usize;
        loop {
            let stops = signals.stop.load(Ordering::SeqCst);
            if stops && self.pending.is_empty() {
                connection.close();
                return Ok(Ok(()));
            }
            let more = self.pending.len() < window && (self.pending.is_empty() || self.draw.below(3) > 0);
            if !stops && more {
                if let Some((request, pending)) = self.choose() {
                    let cookie = connection.send(&request)?;
                    self.pending.insert(cookie, pending);
                }
                continue;
            }
            let reply = connection.receive()?;
            let pending = self.pending.remove(&reply.cookie).expect("it was asked for");
            if reply.error != 0 {
                if signals.dying.load(Ordering::SeqCst) {
                    // It is not known what became of it.
                    continue;
                }
                return Ok(Err(format!("{pending:?} fails with {}", reply.error)));
            }
            if let Err(wrong) = self.done(pending, &reply) {
                return Ok(Err(wrong));
            }
        }
    }

    /// The next request. `None`: it does not go now.
    fn choose(&mut self) -> Option<(Request, Pending)> {
        let mut model = self.volume.model();
        let page_bytes = model.page_bytes;
        let draw = &mut self.draw;
        let pages = |draw: &mut Draw, most: usize| {
            let length = 1 + draw.below(most.min(model.len()) as u64) as usize;
            // Most of what is written is written again soon.
            let hot = model.len().div_ceil(10).max(length);
            let end = if draw.below(10) < 6 { hot } else { model.len() };
            let first = draw.below((end - length + 1) as u64) as usize;
            first..first + length
        };
        let change = |pages: &Range<usize>, id: u64, now: bool, bytes: u64| Pending::Change {
            pages: pages.clone(),
            id,
            now,
            bytes,
        };
        let now = draw.below(16) == 0;
        Some(match draw.below(100) {
            0..42 => {
                let pages = pages(draw, 8);
                let (id, content) = model.begin(pages.clone(), false)?;
                let pending = change(&pages, id, now, content.len() as u64);
                (Request::Write { offset: (pages.start * page_bytes) as u64, content, now }, pending)
            }
            42..48 => {
                let pages = pages(draw, (512 << 10) / page_bytes);
                let (id, content) = model.begin(pages.clone(), false)?;
                let pending = change(&pages, id, now, content.len() as u64);
                (Request::Write { offset: (pages.start * page_bytes) as u64, content, now }, pending)
            }
            48..56 => {
                let page = pages(draw, 1).start;
                let start = draw.below(page_bytes as u64) as usize;
                let end = start + 1 + draw.below((page_bytes - start) as u64) as usize;
                let (id, content) = model.begin_part(page, start..end)?;
                let pending = change(&(page..page + 1), id, now, content.len() as u64);
                (Request::Write { offset: (page * page_bytes + start) as u64, content, now }, pending)
            }
            56..64 => {
                let mut pages = pages(draw, 32);
                if draw.below(4) == 0 {
                    // All of a stripe, which is given back.
                    let stripe = self.volume.stripe_pages;
                    let first = pages.start / stripe * stripe;
                    pages = first..(first + stripe).min(model.len());
                }
                let (id, _) = model.begin(pages.clone(), true)?;
                let (offset, bytes) = ((pages.start * page_bytes) as u64, (pages.len() * page_bytes) as u32);
                let request = match draw.below(3) {
                    0 => Request::Zero { offset, bytes, now, keep: draw.below(2) == 0 },
                    _ => Request::Trim { offset, bytes, now },
                };
                (request, change(&pages, id, now, 0))
            }
            64..72 => (Request::Flush, Pending::Flush { begun: model.tick() }),
            _ => {
                let pages = pages(draw, 32);
                let begun = model.begin_read(pages.clone());
                let start = pages.start * page_bytes + draw.below(3).saturating_sub(1) as usize * (page_bytes / 3);
                let bytes = (pages.end * page_bytes - start) as u32;
                let offset = start as u64;
                (Request::Read { offset, bytes }, Pending::Read { offset, pages, begun })
            }
        })
    }

    fn done(&mut self, pending: Pending, reply: &Reply) -> Result<(), String> {
        let mut model = self.volume.model();
        match pending {
            Pending::Change { pages, id, now, bytes } => {
                model.end(pages, id, now);
                self.tally.writes += 1;
                self.tally.written_bytes += bytes;
                self.tally.flushes += u64::from(now);
            }
            Pending::Flush { begun } => {
                model.flushed(begun);
                self.tally.flushes += 1;
            }
            Pending::Read { offset, pages, begun } => {
                self.tally.pages_read += pages.len() as u64;
                model.end_read(offset, &reply.content, begun).map_err(|wrong| wrong.to_string())?;
            }
        }
        Ok(())
    }
}

const CHECK_WINDOW: usize = 4;
const CHECK_BYTES: u64 = 256 << 10;
const WINDOW_MAX: u64 = 16;
