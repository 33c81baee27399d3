//! The connections: one that writes transactions in batches, and a few that read.
//!
//! ```text
//! waiting --run_batch--> running --COMMIT--> answered
//!    |                      |
//!    +-- caller went away   +-- own error before it changed a row: the others go on
//!                           +-- own error later: the batch is undone and runs again, each in a savepoint of its own
//!                           +-- SQLite's error: the batch is undone, and all are answered with that error
//! ```
//!
//! Invariants:
//! 1. A caller is answered after the COMMIT of its batch, which syncs the log: what was answered is durable.
//! 2. A transaction of a batch that fails leaves nothing behind, and the others do not notice it.
//! 3. After a COMMIT of unknown result, or an undo that did not work, every call fails until the database is opened anew.
//! 4. A transaction whose caller went away before it began does not happen.
//! 5. A transaction that finds no free page is undone; the database grows by a step of its own, and it runs again. If
//!    the file system has no room for that, transactions that free something use the reserve; others fail.
//! 6. At most [`WAITING_MAX`] transactions wait; who comes later waits for room.
//!
//! Left out: what the transactions do (the modules of the traits).

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use claystone_env::{Directory, Worker, call};
use rusqlite::{Connection, ErrorCode};
use tokio::sync::{Semaphore, oneshot};

use super::fault::{Fault, sql_error};
use super::schema::{COPY_LOG, GROWTH_PAGES, RESERVE_BYTES, empty_reserve, fill_reserve, grow, open_reader};
use crate::MetaError;

/// Transactions that wait for their batch.
const WAITING_MAX: usize = 1024;
/// Transactions in one batch: at about 50 us each a batch stays below 10 ms.
const BATCH_MAX: usize = 128;
/// What the file system keeps free when the database grows: others write to it meanwhile.
const SPARE_BYTES: u64 = 8 << 20;
/// After as many batches one drain has met everything that waited when it began.
const BATCHES_PER_DRAIN: usize = WAITING_MAX / BATCH_MAX;
const _: () = assert!(WAITING_MAX.is_multiple_of(BATCH_MAX), "a drain must reach the end of the queue");

/// All connections to one database.
pub(super) struct Link {
    writer: Mutex<Connection>,
    waiting: Mutex<VecDeque<Box<dyn Waiting>>>,
    room: Semaphore,
    readers: Readers,
    /// Why nothing can be trusted any more.
    failed: OnceLock<String>,
    /// The reserve may be in use.
    reserve_open: AtomicBool,
    /// Tells how much room the file system has.
    space: OnceLock<Arc<dyn Directory>>,
}

/// Who reads.
enum Readers {
    /// Connections of their own to this file; one is opened when none is idle.
    Pool { path: PathBuf, idle: Mutex<Vec<Connection>> },
    /// The writer's connection: in memory there is only this one.
    Writer,
}

/// A transaction in the queue.
trait Waiting: Send {
    /// Whether it frees room or at least takes none to speak of.
    fn frees(&self) -> bool;
    /// Nobody waits for it any more.
    fn abandoned(&self) -> bool;
    /// Runs it and keeps its result. Returns whether it is to be kept; an error is one that ends the batch.
    fn run(&mut self, connection: &Connection) -> Result<bool, rusqlite::Error>;
    /// Hands its result over, or the batch's failure.
    fn answer(self: Box<Self>, batch: &Result<(), BatchFault>);
}

/// Why a whole batch did not happen, or may not have.
enum BatchFault {
    Full,
    Corrupt(String),
    Unavailable(String),
}

impl Link {
    /// A link that reads from the file at `path`.
    pub(super) fn with_readers(writer: Connection, path: PathBuf) -> Link {
        Link::new(writer, Readers::Pool { path, idle: Mutex::new(Vec::new()) })
    }

    /// A link that reads by its only connection.
    pub(super) fn alone(connection: Connection) -> Link {
        Link::new(connection, Readers::Writer)
    }

    fn new(writer: Connection, readers: Readers) -> Link {
        Link {
            writer: Mutex::new(writer),
            waiting: Mutex::new(VecDeque::new()),
            room: Semaphore::new(WAITING_MAX),
            readers,
            failed: OnceLock::new(),
            reserve_open: AtomicBool::new(true),
            space: OnceLock::new(),
        }
    }

    /// From now on, the database grows only while the file system of `directory` has room to spare.
    pub(super) fn watch_space(&self, directory: Arc<dyn Directory>) {
        // Told twice, the first stays: it is the same file system.
        let _ = self.space.set(directory);
    }

    /// Runs `op` in a transaction of its own and returns when it is durable. `op` may run several times, but for the
    /// last time for nothing.
    ///
    /// With `frees` the transaction may use the reserve: it is one that frees room, or is needed on the way there.
    pub(super) async fn write<R: Send + 'static>(
        self: &Arc<Link>,
        worker: &dyn Worker,
        frees: bool,
        op: impl Fn(&Connection) -> Result<R, Fault> + Send + 'static,
    ) -> Result<R, MetaError> {
        let _room = self.room.acquire().await.expect("this semaphore is never closed");
        let (reply, mut answer) = oneshot::channel();
        match self.waiting.lock() {
            Ok(mut waiting) => waiting.push_back(Box::new(Write { frees, op, result: None, reply })),
            Err(_) => return Err(panicked()),
        }
        let link = self.clone();
        // Another caller's drain may take this transaction along; then this one finds nothing to do.
        let mut drained = worker.run(Box::new(move || link.drain()));
        let answered = tokio::select! {
            biased;
            answered = &mut answer => answered,
            ran = &mut drained => match ran {
                Ok(()) => answer.await,
                Err(stopped) => match answer.try_recv() {
                    Ok(answered) => Ok(answered),
                    Err(_) => return Err(MetaError::Unavailable { reason: stopped.to_string() }),
                },
            },
        };
        // Nobody answers only when the drain panicked.
        answered.unwrap_or_else(|_| Err(panicked()))
    }

    /// Runs `op` on a connection that reads. A single statement sees one state of the database; for more than one
    /// statement use [`Link::read_steps`].
    pub(super) async fn read<R: Send + 'static>(
        self: &Arc<Link>,
        worker: &dyn Worker,
        op: impl FnOnce(&Connection) -> Result<R, Fault> + Send + 'static,
    ) -> Result<R, MetaError> {
        let link = self.clone();
        match call(worker, move || link.read_now(op)).await {
            Ok(result) => result,
            Err(stopped) => Err(MetaError::Unavailable { reason: stopped.to_string() }),
        }
    }

    /// As [`Link::read`], with all statements of `op` seeing the same state.
    pub(super) async fn read_steps<R: Send + 'static>(
        self: &Arc<Link>,
        worker: &dyn Worker,
        op: impl FnOnce(&Connection) -> Result<R, Fault> + Send + 'static,
    ) -> Result<R, MetaError> {
        self.read(worker, move |connection| {
            let snapshot = connection.unchecked_transaction()?;
            let result = op(&snapshot);
            // Nothing was written: how it ends does not matter.
            let _ = snapshot.rollback();
            result
        })
        .await
    }

    fn read_now<R>(&self, op: impl FnOnce(&Connection) -> Result<R, Fault>) -> Result<R, MetaError> {
        if let Some(reason) = self.failed.get() {
            return Err(MetaError::Unavailable { reason: reason.clone() });
        }
        match &self.readers {
            Readers::Writer => match self.writer.lock() {
                Ok(connection) => op(&connection).map_err(Fault::into_meta),
                Err(_) => Err(panicked()),
            },
            Readers::Pool { path, idle } => {
                let kept = idle.lock().map_err(|_| panicked())?.pop();
                let connection = match kept {
                    Some(connection) => connection,
                    None => open_reader(path)?,
                };
                let result = op(&connection).map_err(Fault::into_meta);
                idle.lock().map_err(|_| panicked())?.push(connection);
                result
            }
        }
    }

    /// Commits what waits, batch by batch.
    fn drain(&self) {
        // A poisoned lock: a transaction panicked half-way. Its connection may be inside a transaction, so stop.
        let Ok(connection) = self.writer.lock() else {
            let _ = self.failed.set("a transaction panicked".to_owned());
            for write in self.take(usize::MAX) {
                write.answer(&Err(BatchFault::Unavailable("a transaction panicked".to_owned())));
            }
            return;
        };
        for _ in 0..BATCHES_PER_DRAIN {
            let batch = self.take(BATCH_MAX);
            if batch.is_empty() {
                return;
            }
            self.commit_batch(&connection, batch);
        }
    }

    fn take(&self, limit: usize) -> Vec<Box<dyn Waiting>> {
        let Ok(mut waiting) = self.waiting.lock() else { return Vec::new() };
        let mut batch = Vec::new();
        while batch.len() < limit {
            let Some(write) = waiting.pop_front() else { break };
            if !write.abandoned() {
                batch.push(write);
            }
        }
        batch
    }

    fn commit_batch(&self, connection: &Connection, mut batch: Vec<Box<dyn Waiting>>) {
        let mut outcome = self.run_batch(connection, &mut batch);
        if matches!(outcome, Err(BatchFault::Full)) && self.is_file() {
            // What frees room goes on without the others.
            let (frees, adds) = batch.into_iter().partition(|write| write.frees());
            answer(adds, &outcome);
            batch = frees;
            if !batch.is_empty() && empty_reserve(connection).is_ok() {
                self.reserve_open.store(true, Ordering::Relaxed);
                outcome = self.attempt(connection, &mut batch);
            }
        }
        answer(batch, &outcome);
    }

    fn run_batch(&self, connection: &Connection, batch: &mut [Box<dyn Waiting>]) -> Result<(), BatchFault> {
        if !self.is_file() {
            return self.attempt(connection, batch);
        }
        if !batch.iter().all(|write| write.frees()) && !self.close_reserve(connection) {
            return Err(BatchFault::Full);
        }
        let mut outcome = self.attempt(connection, batch);
        // The log may have reached the end of its room just before it would have been begun anew.
        if matches!(outcome, Err(BatchFault::Full)) && connection.execute_batch(COPY_LOG).is_ok() {
            outcome = self.attempt(connection, batch);
        }
        // One transaction may need more than the usual step; the last is 256 MiB.
        for pages in [1, 4, 16, 64].map(|steps| GROWTH_PAGES * steps) {
            if !matches!(outcome, Err(BatchFault::Full)) || !self.make_room(connection, pages) {
                break;
            }
            outcome = self.attempt(connection, batch);
        }
        outcome
    }

    /// Fills the reserve again after it was used, growing if needed. False if there is no room for it.
    fn close_reserve(&self, connection: &Connection) -> bool {
        if !self.reserve_open.load(Ordering::Relaxed) {
            return true;
        }
        if fill_reserve(connection, RESERVE_BYTES).is_err() {
            return self.make_room(connection, GROWTH_PAGES);
        }
        self.reserve_open.store(false, Ordering::Relaxed);
        true
    }

    fn is_file(&self) -> bool {
        matches!(self.readers, Readers::Pool { .. })
    }

    /// Lets the database grow. False if the file system has not got twice that and [`SPARE_BYTES`].
    fn make_room(&self, connection: &Connection, pages: u32) -> bool {
        if let Some(directory) = self.space.get() {
            let wanted = 2 * u64::from(pages) * 4096 + SPARE_BYTES;
            match directory.space() {
                Ok(space) if space.free_bytes >= wanted => {}
                Ok(_) => return false,
                Err(error) => {
                    tracing::warn!(%error, "the room under the metadata is unknown");
                    return false;
                }
            }
        }
        match grow(connection, pages) {
            Ok(()) => {
                self.reserve_open.store(false, Ordering::Relaxed);
                true
            }
            Err(error) => {
                tracing::warn!(%error, pages, "the metadata could not grow");
                false
            }
        }
    }

    fn attempt(&self, connection: &Connection, batch: &mut [Box<dyn Waiting>]) -> Result<(), BatchFault> {
        if let Some(reason) = self.failed.get() {
            return Err(BatchFault::Unavailable(reason.clone()));
        }
        // Nothing has begun: a failure here leaves all as it was.
        execute(connection, "BEGIN IMMEDIATE").map_err(|error| batch_fault(&error))?;
        let ran = match run_plain(connection, batch) {
            Ok(true) => Ok(()),
            Ok(false) => run_again(connection, batch),
            Err(error) => Err(error),
        };
        if let Err(error) = ran {
            return Err(self.undo(connection, &error));
        }
        if let Err(error) = execute(connection, "COMMIT") {
            // Without room nothing of the batch reached the log whole. Any other failure leaves its fate unknown.
            if error.sqlite_error_code() != Some(ErrorCode::DiskFull) {
                let _ = self.failed.set(format!("a commit failed: {error}"));
            }
            return Err(self.undo(connection, &error));
        }
        Ok(())
    }

    /// Rolls the batch back, unless SQLite has done so itself.
    fn undo(&self, connection: &Connection, error: &rusqlite::Error) -> BatchFault {
        if !connection.is_autocommit() {
            let _ = execute(connection, "ROLLBACK");
        }
        if !connection.is_autocommit() {
            let _ = self.failed.set(format!("a transaction could not be undone after: {error}"));
        }
        match self.failed.get() {
            Some(reason) => BatchFault::Unavailable(reason.clone()),
            None => batch_fault(error),
        }
    }
}

fn answer(batch: Vec<Box<dyn Waiting>>, outcome: &Result<(), BatchFault>) {
    for write in batch {
        write.answer(outcome);
    }
}

/// Runs the transactions one after the other. Returns false if one failed after it had changed rows, which cannot be
/// undone alone. Savepoints would allow that, but cost each transaction a tenth of its time.
fn run_plain(connection: &Connection, batch: &mut [Box<dyn Waiting>]) -> Result<bool, rusqlite::Error> {
    for write in batch {
        let before = connection.total_changes();
        if !write.run(connection)? && connection.total_changes() != before {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Undoes what ran and runs each transaction in a savepoint of its own, so that one that fails undoes itself only.
fn run_again(connection: &Connection, batch: &mut [Box<dyn Waiting>]) -> Result<(), rusqlite::Error> {
    execute(connection, "ROLLBACK")?;
    execute(connection, "BEGIN IMMEDIATE")?;
    for write in batch {
        execute(connection, "SAVEPOINT one")?;
        if !write.run(connection)? {
            execute(connection, "ROLLBACK TO one")?;
        }
        execute(connection, "RELEASE one")?;
    }
    Ok(())
}

fn execute(connection: &Connection, sql: &str) -> Result<(), rusqlite::Error> {
    connection.prepare_cached(sql)?.execute([]).map(|_| ())
}

fn batch_fault(error: &rusqlite::Error) -> BatchFault {
    match sql_error(error) {
        MetaError::Full => BatchFault::Full,
        MetaError::Corrupt { what } => BatchFault::Corrupt(what),
        other => BatchFault::Unavailable(other.to_string()),
    }
}

fn panicked() -> MetaError {
    MetaError::Unavailable { reason: "a transaction panicked".to_owned() }
}

/// The transaction `op` of one caller.
struct Write<R, F> {
    frees: bool,
    op: F,
    result: Option<Result<R, MetaError>>,
    reply: oneshot::Sender<Result<R, MetaError>>,
}

impl<R: Send, F: Fn(&Connection) -> Result<R, Fault> + Send> Waiting for Write<R, F> {
    fn frees(&self) -> bool {
        self.frees
    }

    fn abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn run(&mut self, connection: &Connection) -> Result<bool, rusqlite::Error> {
        match (self.op)(connection) {
            Ok(value) => {
                self.result = Some(Ok(value));
                Ok(true)
            }
            Err(fault) => {
                if fault.ends_batch()
                    && let Fault::Sql(error) = fault
                {
                    return Err(error);
                }
                self.result = Some(Err(fault.into_meta()));
                Ok(false)
            }
        }
    }

    fn answer(self: Box<Self>, batch: &Result<(), BatchFault>) {
        let result = match batch {
            Ok(()) => self.result.expect("a batch that committed ran all its transactions"),
            Err(BatchFault::Full) => Err(MetaError::Full),
            Err(BatchFault::Corrupt(what)) => Err(MetaError::Corrupt { what: what.clone() }),
            Err(BatchFault::Unavailable(reason)) => Err(MetaError::Unavailable { reason: reason.clone() }),
        };
        // A caller that went away does not need the result.
        let _ = self.reply.send(result);
    }
}

#[cfg(test)]
mod tests;
