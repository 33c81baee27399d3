//! Disks in SQLite.
//!
//! Invariants:
//! 1. A disk's number names it for ever: rows are never deleted, and chunks and logs refer to disks by number.
//! 2. Whenever a disk becomes lost or stops being so, the loss counts of the stripes on it follow in the same
//!    transaction. That is the one slow transaction here: about 5 us for each stripe on the disk.

use async_trait::async_trait;
use claystone_chunk::{DiskId, NodeId};
use rusqlite::{Connection, OptionalExtension, params};

use super::SqliteMeta;
use super::fault::Fault;
use super::rows::{Int, disk_id, time, unsigned};
use super::stripes::recount_disk;
use crate::{DiskRecord, DiskRecords, DiskState, DiskTally, MetaError};

#[async_trait]
impl DiskRecords for SqliteMeta {
    async fn disks(&self) -> Result<Vec<DiskRecord>, MetaError> {
        self.read(|connection| {
            let mut statement = connection
                .prepare_cached("SELECT id, node, path, state, added_ms FROM disks WHERE state <> 3 ORDER BY num")?;
            let mut rows = statement.query([])?;
            let mut disks = Vec::new();
            while let Some(row) = rows.next()? {
                disks.push(DiskRecord {
                    id: disk_id(row, 0)?,
                    node: NodeId(row.get(1)?),
                    path: row.get(2)?,
                    state: state_of(row.get(3)?)?,
                    added: time(row, 4)?,
                });
            }
            Ok(disks)
        })
        .await
    }

    async fn put_disk(&self, disk: DiskRecord) -> Result<(), MetaError> {
        self.write(move |connection| {
            let Some(known) = find(connection, disk.id)? else {
                connection
                    .prepare_cached("INSERT INTO disks (id, node, path, state, added_ms) VALUES (?1, ?2, ?3, ?4, ?5)")?
                    .execute(params![
                        disk.id.0.to_be_bytes(),
                        disk.node.0,
                        disk.path,
                        state_column(disk.state),
                        Int(disk.added.unix_ms)
                    ])?;
                return Ok(());
            };
            connection.prepare_cached("UPDATE disks SET node = ?2, path = ?3 WHERE num = ?1")?.execute(params![
                known.num,
                disk.node.0,
                disk.path
            ])?;
            if known.state == DiskState::Removed {
                change_state(connection, known, disk.state)?;
                connection
                    .prepare_cached("UPDATE disks SET added_ms = ?2 WHERE num = ?1")?
                    .execute(params![known.num, Int(disk.added.unix_ms)])?;
            }
            Ok(())
        })
        .await
    }

    async fn set_disk_state(&self, disk: DiskId, state: DiskState) -> Result<(), MetaError> {
        self.free(move |connection| {
            let known = find(connection, disk)?.ok_or(MetaError::NoSuchDisk { disk })?;
            change_state(connection, known, state)
        })
        .await
    }

    async fn disk_tally(&self, disk: DiskId) -> Result<DiskTally, MetaError> {
        self.read(move |connection| {
            // Counted in the index; the few dead ones are taken off.
            let mut statement = connection.prepare_cached(
                "SELECT \
                 (SELECT count(*) FROM chunks WHERE disk = d.num) \
                 - (SELECT count(*) FROM stripes s CROSS JOIN chunks c ON c.stripe = s.id WHERE s.refs = 0 AND c.disk = d.num), \
                 (SELECT count(*) FROM chunks c CROSS JOIN stripes s ON s.id = c.stripe \
                   WHERE c.disk = d.num AND c.damaged = 1 AND s.refs > 0), \
                 (SELECT count(*) FROM volume_logs WHERE disk = d.num) \
                 FROM disks d WHERE d.id = ?1",
            )?;
            let mut rows = statement.query(params![disk.0.to_be_bytes()])?;
            let row = rows.next()?.ok_or(MetaError::NoSuchDisk { disk })?;
            Ok(DiskTally { chunks: unsigned(row, 0)?, damaged: unsigned(row, 1)?, logs: unsigned(row, 2)? })
        })
        .await
    }
}

/// A disk as chunk rows know it.
#[derive(Debug, Clone, Copy)]
pub(super) struct KnownDisk {
    pub(super) num: i64,
    pub(super) state: DiskState,
}

pub(super) fn find(connection: &Connection, disk: DiskId) -> Result<Option<KnownDisk>, Fault> {
    let found = connection
        .prepare_cached("SELECT num, state FROM disks WHERE id = ?1")?
        .query_row(params![disk.0.to_be_bytes()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    match found {
        Some((num, state)) => Ok(Some(KnownDisk { num, state: state_of(state)? })),
        None => Ok(None),
    }
}

/// Whether chunks on a disk in this state count as lost.
pub(super) fn loses_chunks(state: DiskState) -> bool {
    state_column(state) >= state_column(DiskState::Lost)
}

fn change_state(connection: &Connection, known: KnownDisk, state: DiskState) -> Result<(), Fault> {
    connection
        .prepare_cached("UPDATE disks SET state = ?2 WHERE num = ?1")?
        .execute(params![known.num, state_column(state)])?;
    if loses_chunks(known.state) != loses_chunks(state) {
        recount_disk(connection, known.num)?;
    }
    Ok(())
}

fn state_column(state: DiskState) -> i64 {
    match state {
        DiskState::Active => 0,
        DiskState::Draining => 1,
        DiskState::Lost => 2,
        DiskState::Removed => 3,
    }
}

fn state_of(column: i64) -> Result<DiskState, Fault> {
    match column {
        0 => Ok(DiskState::Active),
        1 => Ok(DiskState::Draining),
        2 => Ok(DiskState::Lost),
        3 => Ok(DiskState::Removed),
        other => Err(Fault::corrupt(format!("the disk state {other}"))),
    }
}
