//! Opening a database: settings of a connection, and migrations.
//!
//! Invariants:
//! 1. A database with a schema newer than this program's is left untouched.
//! 2. A commit is synced before it returns (`synchronous = FULL` on a write-ahead log).
//! 3. The file grows by [`grow`] only, never by a transaction.
//! 4. A migration and its row of the history are there together or not at all: none runs twice.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use claystone_code::{ChunkIndex, CodeSpec};
use rusqlite::backup::Backup;
use rusqlite::config::DbConfig;
use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, OpenFlags};

use super::bands;
use super::fault::sql_error;
use crate::MetaError;

/// Statements kept prepared per connection; the modules together have fewer.
const STATEMENTS_MAX: usize = 128;
/// Pages of the log after which it is copied into the database: 4 MiB.
const LOG_PAGES: u32 = 1_000;
/// Bytes of the reserve: 64 pages, a few for each b-tree that a delete may have to rebalance.
pub(super) const RESERVE_BYTES: u64 = 64 * 4096;
/// A step of a copy that goes to its end.
const ALL_PAGES: i32 = -1;
/// Copies the log into the database as far as its readers allow, without waiting for them; if that is all of it, the next
/// transaction begins the log anew.
pub(super) const COPY_LOG: &str = "PRAGMA wal_checkpoint(PASSIVE)";
/// Pages by which the database grows at a time: as many as the log has, so that all its pages could be new ones.
pub(super) const GROWTH_PAGES: u32 = LOG_PAGES;

/// Opens the file for writing, makes it if there is none, and brings it to this program's schema.
pub(super) fn open_writer(path: &Path) -> Result<Connection, MetaError> {
    let open = || {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        // Checked before anything is written, so that a newer program's file stays as it is.
        let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
        Ok((connection, mode))
    };
    let (mut connection, mode) = open().map_err(|error| at(path, &error))?;
    refuse_newer(&connection)?;
    if mode != "wal" {
        let mode: String = connection
            .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))
            .map_err(|error| at(path, &error))?;
        if mode != "wal" {
            return Err(MetaError::Unavailable {
                reason: format!("{}: the file system cannot hold a write-ahead log", path.display()),
            });
        }
    }
    let settings =
        format!("PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = {LOG_PAGES}; PRAGMA cache_size = -16384;");
    connection.execute_batch(&settings).map_err(|error| at(path, &error))?;
    let fresh = schema_of(&connection)? == 0;
    settle(&mut connection)?;
    // A growth that was cut short leaves its zeros behind.
    let trimmed = connection.execute_batch(&format!(
        "DELETE FROM reserve WHERE length(bytes) > {RESERVE_BYTES}; PRAGMA max_page_count = 1;"
    ));
    trimmed.map_err(|error| at(path, &error))?;
    // Later it grows when it must, which it could not do now if the file system is full.
    if fresh {
        grow(&connection, GROWTH_PAGES).map_err(|error| at(path, &error))?;
    }
    Ok(connection)
}

/// Sees to it that the database has `pages` free pages inside its file, the reserve included, and forbids it to grow any
/// further.
///
/// All of the file's room is then taken from the file system at this one moment: transactions use free pages, and the
/// log never holds a page that the file has no room for. So the log can always be copied back and begun anew, and deletes
/// work while the file system is full. The log too becomes at least as long as `pages`, so that commits overwrite bytes
/// that are there, which makes their sync cheaper.
pub(super) fn grow(connection: &Connection, pages: u32) -> Result<(), rusqlite::Error> {
    let filled = connection
        .execute_batch("PRAGMA max_page_count = 4294967294")
        .and_then(|()| fill_reserve(connection, u64::from(pages) * 4096))
        .and_then(|()| fill_reserve(connection, RESERVE_BYTES))
        .and_then(|()| connection.execute_batch(COPY_LOG));
    // A limit below the present size becomes the present size.
    connection.execute_batch("PRAGMA max_page_count = 1")?;
    filled
}

/// Fills the reserve with `bytes` zeros, unless it has so many.
pub(super) fn fill_reserve(connection: &Connection, bytes: u64) -> Result<(), rusqlite::Error> {
    let filled = connection.execute_batch(&format!(
        "BEGIN IMMEDIATE; DELETE FROM reserve WHERE length(bytes) <> {bytes}; \
         INSERT INTO reserve SELECT zeroblob({bytes}) WHERE NOT EXISTS (SELECT 1 FROM reserve); COMMIT;"
    ));
    if filled.is_err() && !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    filled
}

/// Gives the pages of the reserve to who needs them.
pub(super) fn empty_reserve(connection: &Connection) -> Result<(), rusqlite::Error> {
    connection.execute_batch("DELETE FROM reserve")
}

/// Opens the file for reading only.
pub(super) fn open_reader(path: &Path) -> Result<Connection, MetaError> {
    // Readers of a write-ahead log write to its shared index, so the file itself is opened for writing.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.execute_batch("PRAGMA cache_size = -4096;")?;
        common(&connection)?;
        Ok(connection)
    };
    open().map_err(|error| at(path, &error))
}

/// A database in memory: a copy of an empty one, which is brought to this program's schema once. A drill opens thousands.
pub(super) fn open_memory() -> Result<Connection, MetaError> {
    static EMPTY: Mutex<Option<Connection>> = Mutex::new(None);
    let mut empty = EMPTY.lock().unwrap_or_else(PoisonError::into_inner);
    if empty.is_none() {
        let mut connection = Connection::open_in_memory().map_err(|error| sql_error(&error))?;
        settle(&mut connection)?;
        *empty = Some(connection);
    }
    let copied = || {
        let mut connection = Connection::open_in_memory()?;
        Backup::new(empty.as_ref().expect("made above"), &mut connection)?.step(ALL_PAGES)?;
        common(&connection)?;
        Ok(connection)
    };
    copied().map_err(|error| sql_error(&error))
}

fn settle(connection: &mut Connection) -> Result<(), MetaError> {
    common(connection).map_err(|error| sql_error(&error))?;
    refuse_newer(connection)?;
    // Grouped: all of them and the history of them are one transaction, so a crash leaves what was there.
    migrations::migrations::runner()
        .set_grouped(true)
        .run(connection)
        .map(|_| ())
        .map_err(|error| MetaError::Unavailable { reason: format!("a migration failed: {error}") })
}

fn common(connection: &Connection) -> Result<(), rusqlite::Error> {
    // The log stays when the last connection closes: on a full file system there is no room for another.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    offer_tolerance_left(connection)?;
    offer_band_bytes(connection)?;
    connection.execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY;")
}

/// Makes `tolerance_left(code, '0,3')` known to SQL: [`CodeSpec::tolerance_left`] of a stripe without the chunks 0 and 3;
/// NULL if there is no such code or chunk, because one damaged record must not keep a disk's state from changing.
fn offer_tolerance_left(connection: &Connection) -> Result<(), rusqlite::Error> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("tolerance_left", 2, flags, |arguments| {
        let text = |at: usize| arguments.get_raw(at).as_str().ok();
        Ok(text(0).zip(text(1)).and_then(|(code, lost)| tolerance_left(code, lost)))
    })
}

/// Makes `band_bytes(bands, data_bytes, band)` known to SQL: the bytes of one band of a stripe; NULL if it has none of
/// this number.
fn offer_band_bytes(connection: &Connection) -> Result<(), rusqlite::Error> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("band_bytes", 3, flags, |arguments| {
        let bands = arguments.get_raw(0).as_str_or_null().ok();
        let number = |at: usize| arguments.get_raw(at).as_i64().ok();
        let given = bands.zip(number(1).zip(number(2)));
        Ok(given.and_then(|(bands, (bytes, band))| bands::data_bytes(bands, bytes, band)))
    })
}

fn tolerance_left(code: &str, lost: &str) -> Option<i32> {
    let code: CodeSpec = code.parse().ok()?;
    let lost: BTreeSet<ChunkIndex> =
        lost.split(',').map(|index| index.parse().ok().map(ChunkIndex)).collect::<Option<_>>()?;
    let is_chunk = |index: &ChunkIndex| index.0 < code.shape().chunks();
    lost.iter().all(is_chunk).then(|| code.tolerance_left(&Vec::from_iter(lost)))
}

fn refuse_newer(connection: &Connection) -> Result<(), MetaError> {
    let (found, known) = (schema_of(connection)?, newest());
    if found > known { Err(MetaError::NewerSchema { found, known }) } else { Ok(()) }
}

/// The schema of the database, 0 if it has none. Reads the migration history, which `refinery` keeps, with more care
/// than it does itself.
fn schema_of(connection: &Connection) -> Result<u32, MetaError> {
    let read = || {
        let named = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'refinery_schema_history'";
        if connection.query_row(named, [], |row| row.get::<_, i64>(0))? == 0 {
            return Ok((0, 0));
        }
        // refinery panics on a checksum or a time that it cannot parse.
        let history = "SELECT coalesce(max(version), 0), count(*) FILTER (WHERE checksum GLOB '*[^0-9]*' \
             OR checksum = '' OR length(checksum) > 20 \
             OR applied_on NOT GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]T*') FROM refinery_schema_history";
        connection.query_row(history, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
    };
    let (found, broken) = read().map_err(|error| sql_error(&error))?;
    match u32::try_from(found) {
        Ok(found) if broken == 0 => Ok(found),
        _ => Err(MetaError::Corrupt { what: "a migration history".to_owned() }),
    }
}

/// The newest schema this program knows.
pub(super) fn newest() -> u32 {
    let versions = migrations::migrations::runner();
    let newest = versions.get_migrations().iter().map(refinery::Migration::version).max();
    newest.and_then(|version| u32::try_from(version).ok()).expect("the first migration is compiled in")
}

/// Checksums of all migrations in order.
#[cfg(test)]
pub(super) fn checksums() -> Vec<u64> {
    let runner = migrations::migrations::runner();
    let mut migrations: Vec<_> = runner.get_migrations().iter().collect();
    // They are in the order of their names, of which V10 comes before V2.
    migrations.sort_by_key(|migration| migration.version());
    migrations.into_iter().map(refinery::Migration::checksum).collect()
}

fn at(path: &Path, error: &rusqlite::Error) -> MetaError {
    match sql_error(error) {
        MetaError::Unavailable { reason } => MetaError::Unavailable { reason: format!("{}: {reason}", path.display()) },
        MetaError::Corrupt { what } => MetaError::Corrupt { what: format!("{} ({what})", path.display()) },
        other => other,
    }
}

mod migrations {
    refinery::embed_migrations!("migrations/sqlite");
}
