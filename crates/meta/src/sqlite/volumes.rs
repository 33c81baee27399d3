//! Block volumes in SQLite.
//!
//! Invariants:
//! 1. Whatever a lease is needed for compares its term with the volume's in the same transaction, before anything else.
//! 2. A volume's span holds one of its stripe's `refs`, as a content's span does (module `contents`).

use std::collections::BTreeMap;

use async_trait::async_trait;
use claystone_chunk::{DiskId, Lease, NodeId, OwnerId, StripeId, Term};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteMeta;
use super::disks::find;
use super::fault::Fault;
use super::rows::{Int, disk_id, redundancy, rows, stripe_id, time, unsigned};
use super::stripes::{insert_stripe, load_any, release_stripe};
use crate::{LogRecord, MetaError, Redundancy, StripeRecord, VolumeRecord, VolumeRecords};

#[async_trait]
impl VolumeRecords for SqliteMeta {
    async fn create_volume(&self, volume: VolumeRecord) -> Result<(), MetaError> {
        check_new(&volume);
        self.write(move |connection| insert_volume(connection, &volume).map(|_| ())).await
    }

    async fn volume(&self, name: &str) -> Result<VolumeRecord, MetaError> {
        let name = name.to_owned();
        self.read_steps(move |connection| {
            let sql = format!("SELECT {COLUMNS} FROM volumes WHERE name = ?1");
            let found = load(connection, &sql, params![name])?.pop();
            found.ok_or_else(|| MetaError::NoSuchVolume { name }.into())
        })
        .await
    }

    async fn volumes(&self) -> Result<Vec<VolumeRecord>, MetaError> {
        self.read_steps(|connection| {
            Ok(load_each(connection)?.into_iter().filter_map(|(_, found)| found.ok()).collect())
        })
        .await
    }

    async fn corrupt_volumes(&self) -> Result<Vec<(OwnerId, String)>, MetaError> {
        self.read_steps(|connection| {
            Ok(load_each(connection)?.into_iter().filter_map(|(id, found)| Some((id, found.err()?))).collect())
        })
        .await
    }

    async fn grow_volume(&self, id: OwnerId, bytes: u64) -> Result<VolumeRecord, MetaError> {
        self.write(move |connection| {
            let volume = existing(connection, id)?;
            if bytes < volume.bytes {
                let VolumeRecord { name, bytes: has, .. } = volume;
                return Err(MetaError::VolumeShrinks { name, bytes: has, wanted: bytes }.into());
            }
            connection
                .prepare_cached("UPDATE volumes SET bytes = ?2 WHERE id = ?1")?
                .execute(params![id.0.to_be_bytes(), Int(bytes)])?;
            Ok(VolumeRecord { bytes, ..volume })
        })
        .await
    }

    async fn set_redundancy(&self, id: OwnerId, redundancy: Redundancy) -> Result<VolumeRecord, MetaError> {
        self.free(move |connection| {
            let volume = existing(connection, id)?;
            let data = |redundancy: Redundancy| redundancy.code.shape().data;
            assert_eq!(data(volume.redundancy), data(redundancy), "data stays where it is");
            connection
                .prepare_cached("UPDATE volumes SET redundancy = ?2 WHERE id = ?1")?
                .execute(params![id.0.to_be_bytes(), redundancy.to_string()])?;
            Ok(VolumeRecord { redundancy, ..volume })
        })
        .await
    }

    async fn delete_volume(&self, id: OwnerId) -> Result<Vec<StripeRecord>, MetaError> {
        self.free(move |connection| {
            let num = state(connection, id)?.num;
            let count: i64 = connection
                .prepare_cached("SELECT count(*) FROM snapshots WHERE volume = ?1")?
                .query_row(params![num], |row| row.get(0))?;
            if count > 0 {
                let VolumeRecord { name, .. } = existing(connection, id)?;
                return Err(MetaError::HasSnapshots { name, count: count.unsigned_abs() }.into());
            }
            let spans = spans(connection, num, None, usize::MAX)?;
            // These rows go first: the index of dead stripes needs about as many pages as they free.
            for sql in [
                "DELETE FROM volume_spans WHERE volume = ?1",
                "DELETE FROM volume_logs WHERE volume = ?1",
                "DELETE FROM volumes WHERE num = ?1",
            ] {
                connection.prepare_cached(sql)?.execute(params![num])?;
            }
            let mut dead = Vec::new();
            for (_, stripe) in spans {
                dead.extend(release_stripe(connection, stripe, 1)?);
            }
            Ok(dead)
        })
        .await
    }

    async fn take_lease(&self, id: OwnerId) -> Result<VolumeRecord, MetaError> {
        self.free(move |connection| {
            connection
                .prepare_cached("UPDATE volumes SET term = term + 1 WHERE id = ?1")?
                .execute(params![id.0.to_be_bytes()])?;
            existing(connection, id)
        })
        .await
    }

    async fn set_log(&self, lease: Lease, log: LogRecord) -> Result<(), MetaError> {
        assert!(usize::from(log.nodes) <= log.known_nodes(), "a segment on more nodes than its disks are");
        // A volume that lacks room for its log takes other disks to get rid of it: a few rows, from the reserve.
        self.free(move |connection| {
            let num = leased(connection, lease)?;
            let mut rows = Vec::new();
            for (disk, node) in &log.disks {
                rows.push((find(connection, *disk)?.ok_or(MetaError::NoSuchDisk { disk: *disk })?.num, node));
            }
            connection.prepare_cached("DELETE FROM volume_logs WHERE volume = ?1")?.execute(params![num])?;
            let mut insert =
                connection.prepare_cached("INSERT INTO volume_logs (volume, disk, node) VALUES (?1, ?2, ?3)")?;
            for (disk, node) in rows {
                insert.execute(params![num, disk, node.as_ref().map(|node| &node.0)])?;
            }
            connection
                .prepare_cached("UPDATE volumes SET log_copies = ?2, log_nodes = ?3 WHERE num = ?1")?
                .execute(params![num, log.copies, log.nodes])?;
            Ok(())
        })
        .await
    }

    async fn volume_stripes(
        &self,
        id: OwnerId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Vec<(u64, StripeRecord)>, MetaError> {
        self.read_steps(move |connection| {
            // Not its term: a record that cannot be read keeps nobody from its stripes.
            let num = connection
                .prepare_cached("SELECT num FROM volumes WHERE id = ?1")?
                .query_row(params![id.0.to_be_bytes()], |row| row.get(0))
                .optional()?
                .ok_or_else(|| missing(id))?;
            load_spans(connection, spans(connection, num, after, limit)?)
        })
        .await
    }

    async fn put_volume_stripes(
        &self,
        lease: Lease,
        stripes: Vec<(u64, Option<StripeRecord>)>,
    ) -> Result<Vec<StripeRecord>, MetaError> {
        let frees = stripes.iter().all(|(_, stripe)| stripe.is_none());
        let put = move |connection: &Connection| {
            let num = leased(connection, lease)?;
            let mut dead = Vec::new();
            for (position, stripe) in &stripes {
                let before = connection
                    .prepare_cached("DELETE FROM volume_spans WHERE volume = ?1 AND position = ?2 RETURNING stripe")?
                    .query_row(params![num, Int(*position)], |row| Ok(stripe_id(row, 0)))
                    .optional()?
                    .transpose()?;
                if let Some(stripe) = stripe {
                    insert_stripe(connection, stripe, 1)?;
                    connection
                        .prepare_cached("INSERT INTO volume_spans (volume, position, stripe) VALUES (?1, ?2, ?3)")?
                        .execute(params![num, Int(*position), stripe.id.0.to_be_bytes()])?;
                }
                if let Some(before) = before {
                    dead.extend(release_stripe(connection, before, 1)?);
                }
            }
            Ok(dead)
        };
        if frees { self.free(put).await } else { self.write(put).await }
    }
}

/// Columns of a volume's own row.
const COLUMNS: &str = "id, name, bytes, page_bytes, chunk_bytes, redundancy, home, term, created_ms, num, log_copies, log_from, \
     log_nodes";

/// What nobody has opened cannot have.
pub(super) fn check_new(volume: &VolumeRecord) {
    assert!(volume.term == Term::default(), "nobody has opened a new volume");
    assert!(volume.log_from == Term::default(), "nobody has reverted a new volume");
    assert!(volume.log == LogRecord::default(), "nobody has written to a new volume");
    assert!(volume.page_bytes > 0 && volume.chunk_bytes > 0, "a page or a chunk of no bytes");
    assert!(volume.homes.iter().all(is_home), "a home of no name, or with a comma");
}

/// Adds a volume's own row; returns its number.
pub(super) fn insert_volume(connection: &Connection, volume: &VolumeRecord) -> Result<i64, Fault> {
    let taken: bool = connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM volumes WHERE name = ?1)")?
        .query_row(params![volume.name], |row| row.get(0))?;
    if taken {
        return Err(MetaError::VolumeExists { name: volume.name.clone() }.into());
    }
    connection
        .prepare_cached(
            "INSERT INTO volumes \
             (id, name, bytes, page_bytes, chunk_bytes, redundancy, home, term, created_ms, log_copies) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, 0)",
        )?
        .execute(params![
            volume.id.0.to_be_bytes(),
            volume.name,
            Int(volume.bytes),
            volume.page_bytes,
            Int(volume.chunk_bytes),
            volume.redundancy.to_string(),
            homes_column(&volume.homes),
            Int(volume.created.unix_ms),
        ])?;
    Ok(connection.last_insert_rowid())
}

/// What a transaction needs to know of a volume before it begins.
pub(super) struct State {
    pub(super) num: i64,
    term: Term,
}

pub(super) fn state(connection: &Connection, id: OwnerId) -> Result<State, Fault> {
    let mut statement = connection.prepare_cached("SELECT num, term FROM volumes WHERE id = ?1")?;
    let mut found = statement.query(params![id.0.to_be_bytes()])?;
    let row = found.next()?.ok_or_else(|| missing(id))?;
    Ok(State { num: row.get(0)?, term: Term(unsigned(row, 1)?) })
}

/// The volume's number, if the lease is its last.
pub(super) fn leased(connection: &Connection, lease: Lease) -> Result<i64, Fault> {
    let State { num, term: last } = state(connection, lease.owner)?;
    // Term 0 is that of a volume without any lease.
    if lease.term == last && last > Term::default() {
        Ok(num)
    } else {
        Err(MetaError::LeaseEnded { lease, last }.into())
    }
}

fn existing(connection: &Connection, id: OwnerId) -> Result<VolumeRecord, Fault> {
    let sql = format!("SELECT {COLUMNS} FROM volumes WHERE id = ?1");
    load(connection, &sql, params![id.0.to_be_bytes()])?.pop().ok_or_else(|| missing(id))
}

fn load(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<Vec<VolumeRecord>, Fault> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(params)?;
    let mut volumes = Vec::new();
    while let Some(row) = found.next()? {
        volumes.push(volume_with_log(connection, row)?);
    }
    Ok(volumes)
}

/// A volume, or what of it cannot be read.
type Found = (OwnerId, Result<VolumeRecord, String>);

/// Every volume in the order of their names.
fn load_each(connection: &Connection) -> Result<Vec<Found>, Fault> {
    let mut statement = connection.prepare_cached(&format!("SELECT {COLUMNS} FROM volumes ORDER BY name"))?;
    let mut found = statement.query([])?;
    let mut volumes = Vec::new();
    while let Some(row) = found.next()? {
        let id = OwnerId(u128::from_be_bytes(row.get(0)?));
        let found = match volume_with_log(connection, row) {
            Ok(volume) => Ok(volume),
            Err(fault) if fault.ends_batch() => return Err(fault),
            Err(fault) => match fault.into_meta() {
                MetaError::Corrupt { what } => Err(what),
                error => return Err(error.into()),
            },
        };
        volumes.push((id, found));
    }
    Ok(volumes)
}

fn volume_with_log(connection: &Connection, row: &Row<'_>) -> Result<VolumeRecord, Fault> {
    let disks = log_disks(connection, row.get(9)?)?;
    let volume = volume_from(row)?;
    let log = LogRecord { disks, ..volume.log };
    if usize::from(log.nodes) > log.known_nodes() {
        return Err(Fault::corrupt(format!(
            "a log on {} nodes, though its disks are on {}",
            log.nodes,
            log.known_nodes()
        )));
    }
    Ok(VolumeRecord { log, ..volume })
}

/// Whether a node can be named as a home.
fn is_home(node: &NodeId) -> bool {
    !node.0.is_empty() && !node.0.contains(',')
}

fn homes_column(homes: &[NodeId]) -> Option<String> {
    let names: Vec<&str> = homes.iter().map(|node| node.0.as_str()).collect();
    (!names.is_empty()).then(|| names.join(","))
}

fn homes(column: Option<String>) -> Result<Vec<NodeId>, Fault> {
    let Some(column) = column else { return Ok(Vec::new()) };
    let homes: Vec<NodeId> = column.split(',').map(|node| NodeId(node.to_owned())).collect();
    if homes.iter().all(is_home) { Ok(homes) } else { Err(Fault::corrupt(format!("homes {column:?}"))) }
}

/// A volume without the disks of its log.
fn volume_from(row: &Row<'_>) -> Result<VolumeRecord, Fault> {
    Ok(VolumeRecord {
        id: OwnerId(u128::from_be_bytes(row.get(0)?)),
        name: row.get(1)?,
        bytes: unsigned(row, 2)?,
        page_bytes: row.get(3)?,
        chunk_bytes: unsigned(row, 4)?,
        redundancy: redundancy(row, 5)?,
        homes: homes(row.get(6)?)?,
        term: Term(unsigned(row, 7)?),
        log: LogRecord { disks: BTreeMap::new(), copies: row.get(10)?, nodes: row.get(12)? },
        log_from: Term(unsigned(row, 11)?),
        created: time(row, 8)?,
    })
}

fn log_disks(connection: &Connection, num: i64) -> Result<BTreeMap<DiskId, Option<NodeId>>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT d.id, l.node FROM volume_logs l LEFT JOIN disks d ON d.num = l.disk WHERE l.volume = ?1",
    )?;
    let mut rows = statement.query(params![num])?;
    let mut disks = BTreeMap::new();
    while let Some(row) = rows.next()? {
        // A number without its disk reads as NULL here, which is an error.
        disks.insert(disk_id(row, 0)?, row.get::<_, Option<String>>(1)?.map(NodeId));
    }
    Ok(disks)
}

fn spans(connection: &Connection, num: i64, after: Option<u64>, limit: usize) -> Result<Vec<(u64, StripeId)>, Fault> {
    let sql =
        "SELECT position, stripe FROM volume_spans WHERE volume = ?1 AND position > ?2 ORDER BY position LIMIT ?3";
    page_of_spans(connection, sql, num, after, limit)
}

/// The spans that a statement finds by whose they are, a position that they come after, and how many at most.
pub(super) fn page_of_spans(
    connection: &Connection,
    sql: &str,
    num: i64,
    after: Option<u64>,
    limit: usize,
) -> Result<Vec<(u64, StripeId)>, Fault> {
    let mut statement = connection.prepare_cached(sql)?;
    // No position is beyond the integers of SQLite, but who asks may be.
    let after = after.map_or(-1, |after| i64::try_from(after).unwrap_or(i64::MAX));
    let mut found = statement.query(params![num, after, rows(limit)])?;
    let mut spans = Vec::new();
    while let Some(row) = found.next()? {
        spans.push((unsigned(row, 0)?, stripe_id(row, 1)?));
    }
    Ok(spans)
}

/// The stripes of spans, all of them: a position that is left out would read as zeros.
pub(super) fn load_spans(
    connection: &Connection,
    spans: Vec<(u64, StripeId)>,
) -> Result<Vec<(u64, StripeRecord)>, Fault> {
    let load = |(position, stripe)| {
        let found = load_any(connection, stripe)?;
        let (record, _) = found.ok_or_else(|| Fault::corrupt(format!("a volume without its stripe {stripe}")))?;
        Ok((position, record))
    };
    spans.into_iter().map(load).collect()
}

fn missing(id: OwnerId) -> Fault {
    MetaError::NoSuchVolume { name: format!("#{id}") }.into()
}
