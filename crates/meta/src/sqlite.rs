//! The records in SQLite: the metadata of one machine.
//!
//! docs/formats/metadata.md has the schema. The modules below hold one trait each.
//!
//! Invariants:
//! 1. What a method returned is durable (crate docs, 1); see `link` for how transactions share one sync.
//! 2. All blocking work runs on the workers that the caller gave.
//! 3. A row that cannot be read is an error, [`MetaError::Corrupt`], never a guess.

mod bands;
mod buckets;
mod check;
mod contents;
mod disks;
mod fault;
mod heat;
mod keys;
mod link;
mod listing;
mod objects;
mod packs;
mod rows;
mod schema;
mod snapshots;
mod stripes;
#[cfg(test)]
mod tests;
mod uploads;
mod volumes;

use std::path::Path;
use std::sync::Arc;

use claystone_env::{Directory, Worker, call};
use rusqlite::{Connection, params};

use self::fault::Fault;
use self::link::Link;
use crate::MetaError;

/// Where the database's blocking work runs.
#[derive(Clone)]
pub struct Workers {
    /// Runs transactions that write, one batch at a time: one thread is enough, and it should be no other's.
    pub writer: Arc<dyn Worker>,
    /// Runs look-ups and lists; as many at once as it has threads.
    pub readers: Arc<dyn Worker>,
}

/// Metadata in a SQLite database. Cheap to clone; any number of tasks may call it at once.
#[derive(Clone)]
pub struct SqliteMeta {
    link: Arc<Link>,
    workers: Workers,
}

impl std::fmt::Debug for SqliteMeta {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SqliteMeta")
    }
}

impl SqliteMeta {
    /// Opens the database file at `path`, makes it if there is none, and brings it to this program's schema. Its
    /// directory must exist, and ought to be readable by its owner only: the file holds secret keys in plain.
    ///
    /// # Errors
    /// `NewerSchema` (the file is left as it is), `Corrupt`, `Full`, `Unavailable`.
    pub async fn open(path: &Path, workers: Workers) -> Result<SqliteMeta, MetaError> {
        let file = path.to_owned();
        let opened = call(&*workers.writer, move || {
            let writer = schema::open_writer(&file)?;
            Ok(Link::with_readers(writer, file))
        });
        let link = Arc::new(opened.await.map_err(stopped)??);
        Ok(SqliteMeta { link, workers })
    }

    /// A database in memory, for simulations: one connection, used by one job at a time. It lives as long as a clone
    /// of it, so a simulated crash keeps one and throws the rest of the process away.
    ///
    /// # Errors
    /// As [`SqliteMeta::open`].
    pub async fn in_memory(worker: Arc<dyn Worker>) -> Result<SqliteMeta, MetaError> {
        let connection = call(&*worker, schema::open_memory).await.map_err(stopped)??;
        let workers = Workers { writer: worker.clone(), readers: worker };
        Ok(SqliteMeta { link: Arc::new(Link::alone(connection)), workers })
    }

    /// Tells the database which file system it lies on. From now on it grows, in steps of 4 MiB, only while there is
    /// room to spare; otherwise transactions that need more fail with `Full`, and those that free something work even
    /// when others have filled the file system to the last byte. Call it once, right after opening a file.
    pub fn watch_space(&self, directory: Arc<dyn Directory>) {
        self.link.watch_space(directory);
    }

    /// Writes a copy of the whole database, as it is at this moment, to a new file at `path`; synced. Writers are not
    /// held up. Copy to a temporary name and rename: a copy that was cut short is not a database.
    ///
    /// # Errors
    /// `Full`, or `Unavailable` with the reason, for example that the file exists.
    pub async fn snapshot_to(&self, path: &Path) -> Result<(), MetaError> {
        let Some(path) = path.to_str().map(str::to_owned) else {
            return Err(MetaError::Unavailable { reason: format!("{} is not UTF-8", path.display()) });
        };
        self.read(move |connection| {
            connection.prepare_cached("VACUUM INTO ?1")?.execute(params![path])?;
            Ok(())
        })
        .await
    }

    /// Reads the whole database and names everything in it that contradicts something else; an empty list means that
    /// it is sound. Takes time in proportion to its size.
    ///
    /// # Errors
    /// `Corrupt`, `Unavailable`.
    pub async fn check(&self) -> Result<Vec<String>, MetaError> {
        self.link.read_steps(&*self.workers.readers, check::check).await
    }

    async fn write<R: Send + 'static>(
        &self,
        op: impl Fn(&Connection) -> Result<R, Fault> + Send + 'static,
    ) -> Result<R, MetaError> {
        self.link.write(&*self.workers.writer, false, op).await
    }

    /// For what must work while the file system is full.
    async fn free<R: Send + 'static>(
        &self,
        op: impl Fn(&Connection) -> Result<R, Fault> + Send + 'static,
    ) -> Result<R, MetaError> {
        self.link.write(&*self.workers.writer, true, op).await
    }

    /// For one statement.
    async fn read<R: Send + 'static>(
        &self,
        op: impl FnOnce(&Connection) -> Result<R, Fault> + Send + 'static,
    ) -> Result<R, MetaError> {
        self.link.read(&*self.workers.readers, op).await
    }

    /// For several statements that must see one state.
    async fn read_steps<R: Send + 'static>(
        &self,
        op: impl FnOnce(&Connection) -> Result<R, Fault> + Send + 'static,
    ) -> Result<R, MetaError> {
        self.link.read_steps(&*self.workers.readers, op).await
    }
}

fn stopped(stopped: claystone_env::WorkerStopped) -> MetaError {
    MetaError::Unavailable { reason: stopped.to_string() }
}
