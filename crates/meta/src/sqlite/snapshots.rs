//! Snapshots of volumes in SQLite.
//!
//! Invariants:
//! 1. A snapshot's span holds one of its stripe's `refs`, as a volume's span does (module `volumes`). So a stripe that a
//!    volume shares with a snapshot or another volume has more than one.
//! 2. A stripe becomes shared only here, by a span copied from another.

use async_trait::async_trait;
use claystone_chunk::{Lease, OwnerId, StripeId};
use claystone_env::WallTime;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteMeta;
use super::fault::Fault;
use super::rows::{Int, redundancy, stripe_id, time, unsigned};
use super::stripes::{release_stripe, share_stripe};
use super::volumes::{check_new, insert_volume, leased, load_spans, page_of_spans, state};
use crate::{MetaError, SnapshotId, SnapshotRecord, SnapshotRecords, SnapshotTally, StripeRecord, VolumeRecord};

#[async_trait]
impl SnapshotRecords for SqliteMeta {
    async fn create_snapshot(&self, lease: Lease, name: &str, now: WallTime) -> Result<SnapshotRecord, MetaError> {
        let name = name.to_owned();
        self.write(move |connection| {
            let volume = leased(connection, lease)?;
            let taken: Option<String> = connection
                .prepare_cached(
                    "SELECT v.name FROM snapshots s JOIN volumes v ON v.num = s.volume WHERE s.volume = ?1 AND s.name = ?2",
                )?
                .query_row(params![volume, name], |row| row.get(0))
                .optional()?;
            if let Some(volume) = taken {
                return Err(MetaError::SnapshotExists { name: format!("{volume}@{name}") }.into());
            }
            connection
                .prepare_cached(
                    "INSERT INTO snapshots (volume, name, bytes, page_bytes, chunk_bytes, redundancy, created_ms) \
                     SELECT num, ?2, bytes, page_bytes, chunk_bytes, redundancy, ?3 FROM volumes WHERE num = ?1",
                )?
                .execute(params![volume, name, Int(now.unix_ms)])?;
            let num = connection.last_insert_rowid();
            let named = connection
                .prepare_cached(
                    "INSERT INTO snapshot_spans SELECT ?1, position, stripe FROM volume_spans WHERE volume = ?2",
                )?
                .execute(params![num, volume])?;
            let shared = connection
                .prepare_cached(
                    "UPDATE stripes SET refs = refs + 1 \
                     WHERE refs > 0 AND id IN (SELECT stripe FROM volume_spans WHERE volume = ?1)",
                )?
                .execute(params![volume])?;
            all_there(named, shared)?;
            existing(connection, SnapshotId(num))
        })
        .await
    }

    async fn snapshot(&self, volume: &str, name: &str) -> Result<SnapshotRecord, MetaError> {
        let (volume, name) = (volume.to_owned(), name.to_owned());
        self.read(move |connection| {
            let found =
                load(connection, &format!("{SELECT} WHERE v.name = ?1 AND s.name = ?2"), params![volume, name])?;
            let missing = || MetaError::NoSuchSnapshot { name: format!("{volume}@{name}") };
            found.into_iter().next().ok_or_else(|| missing().into())
        })
        .await
    }

    async fn snapshots(&self) -> Result<Vec<SnapshotRecord>, MetaError> {
        self.read(|connection| load(connection, &format!("{SELECT} ORDER BY v.name, s.num"), [])).await
    }

    async fn snapshot_stripes(
        &self,
        id: SnapshotId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<(u64, StripeRecord)>, MetaError> {
        self.read_steps(move |connection| {
            existing(connection, id)?;
            let sql =
                "SELECT position, stripe FROM snapshot_spans WHERE snapshot = ?1 AND position > ?2 ORDER BY position LIMIT ?3";
            load_spans(connection, page_of_spans(connection, sql, id.0, after, limit)?)
        })
        .await
    }

    async fn snapshot_tally(&self, id: SnapshotId) -> Result<SnapshotTally, MetaError> {
        self.read_steps(move |connection| {
            existing(connection, id)?;
            let mut statement = connection.prepare_cached(
                "SELECT count(*), count(*) FILTER (WHERE s.refs = 1) FROM snapshot_spans p \
                 CROSS JOIN stripes s ON s.id = p.stripe WHERE p.snapshot = ?1",
            )?;
            let mut rows = statement.query(params![id.0])?;
            let row = rows.next()?.ok_or_else(|| Fault::corrupt("no count"))?;
            Ok(SnapshotTally { stripes: unsigned(row, 0)?, alone: unsigned(row, 1)? })
        })
        .await
    }

    async fn delete_snapshot(&self, id: SnapshotId) -> Result<Vec<StripeRecord>, MetaError> {
        self.free(move |connection| {
            existing(connection, id)?;
            let held = stripes(connection, "SELECT stripe FROM snapshot_spans WHERE snapshot = ?1", params![id.0])?;
            // These rows go first: the index of dead stripes needs about as many pages as they free.
            for sql in ["DELETE FROM snapshot_spans WHERE snapshot = ?1", "DELETE FROM snapshots WHERE num = ?1"] {
                connection.prepare_cached(sql)?.execute(params![id.0])?;
            }
            release(connection, held)
        })
        .await
    }

    async fn clone_snapshot(&self, id: SnapshotId, volume: VolumeRecord) -> Result<(), MetaError> {
        check_new(&volume);
        self.write(move |connection| {
            existing(connection, id)?;
            let num = insert_volume(connection, &volume)?;
            let named = copy_spans(connection, id, num)?;
            let shared = connection
                .prepare_cached(
                    "UPDATE stripes SET refs = refs + 1 \
                     WHERE refs > 0 AND id IN (SELECT stripe FROM snapshot_spans WHERE snapshot = ?1)",
                )?
                .execute(params![id.0])?;
            all_there(named, shared)
        })
        .await
    }

    async fn revert_volume(&self, id: OwnerId, to: SnapshotId) -> Result<Vec<StripeRecord>, MetaError> {
        self.write(move |connection| {
            let num = state(connection, id)?.num;
            let snapshot = existing(connection, to)?;
            if snapshot.volume != id {
                return Err(missing(to));
            }
            // Only what differs: a volume is mostly what its snapshot is.
            let back = stripes(
                connection,
                "SELECT s.stripe FROM snapshot_spans s LEFT JOIN volume_spans v ON v.volume = ?1 \
                 AND v.position = s.position WHERE s.snapshot = ?2 AND v.stripe IS NOT s.stripe",
                params![num, to.0],
            )?;
            for stripe in back {
                share_stripe(connection, stripe)?;
            }
            let gone = stripes(
                connection,
                "SELECT v.stripe FROM volume_spans v LEFT JOIN snapshot_spans s ON s.snapshot = ?2 \
                 AND s.position = v.position WHERE v.volume = ?1 AND s.stripe IS NOT v.stripe",
                params![num, to.0],
            )?;
            for sql in [
                "DELETE FROM volume_spans WHERE volume = ?1",
                "DELETE FROM volume_logs WHERE volume = ?1",
                "UPDATE volumes SET term = term + 1, log_from = term + 1, log_copies = 0, log_nodes = 0 WHERE num = ?1",
            ] {
                connection.prepare_cached(sql)?.execute(params![num])?;
            }
            copy_spans(connection, to, num)?;
            release(connection, gone)
        })
        .await
    }
}

/// All that a snapshot's record needs.
const SELECT: &str = "SELECT s.num, v.id, v.name, s.name, s.bytes, s.page_bytes, s.chunk_bytes, s.redundancy, s.created_ms \
                      FROM snapshots s JOIN volumes v ON v.num = s.volume";

fn existing(connection: &Connection, id: SnapshotId) -> Result<SnapshotRecord, Fault> {
    let found = load(connection, &format!("{SELECT} WHERE s.num = ?1"), params![id.0])?;
    found.into_iter().next().ok_or_else(|| missing(id))
}

fn load(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<Vec<SnapshotRecord>, Fault> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params)?;
    let mut snapshots = Vec::new();
    while let Some(row) = found.next()? {
        snapshots.push(snapshot_from(row)?);
    }
    Ok(snapshots)
}

fn snapshot_from(row: &Row<'_>) -> Result<SnapshotRecord, Fault> {
    Ok(SnapshotRecord {
        id: SnapshotId(row.get(0)?),
        volume: OwnerId(u128::from_be_bytes(row.get(1)?)),
        volume_name: row.get(2)?,
        name: row.get(3)?,
        bytes: unsigned(row, 4)?,
        page_bytes: row.get(5)?,
        chunk_bytes: unsigned(row, 6)?,
        redundancy: redundancy(row, 7)?,
        created: time(row, 8)?,
    })
}

fn stripes(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<Vec<StripeId>, Fault> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params)?;
    let mut stripes = Vec::new();
    while let Some(row) = found.next()? {
        stripes.push(stripe_id(row, 0)?);
    }
    Ok(stripes)
}

/// Gives a volume, which has none, the spans of a snapshot; the caller counts them at their stripes.
fn copy_spans(connection: &Connection, from: SnapshotId, volume: i64) -> Result<usize, Fault> {
    let sql = "INSERT INTO volume_spans SELECT ?1, position, stripe FROM snapshot_spans WHERE snapshot = ?2";
    Ok(connection.prepare_cached(sql)?.execute(params![volume, from.0])?)
}

/// Every span that was copied names a live stripe of its own.
fn all_there(named: usize, shared: usize) -> Result<(), Fault> {
    if named == shared { Ok(()) } else { Err(Fault::corrupt(format!("{named} spans with {shared} live stripes"))) }
}

/// Lets go of stripes; returns those that died.
fn release(connection: &Connection, stripes: Vec<StripeId>) -> Result<Vec<StripeRecord>, Fault> {
    let mut dead = Vec::new();
    for stripe in stripes {
        dead.extend(release_stripe(connection, stripe, 1)?);
    }
    Ok(dead)
}

fn missing(id: SnapshotId) -> Fault {
    MetaError::NoSuchSnapshot { name: format!("#{}", id.0) }.into()
}
