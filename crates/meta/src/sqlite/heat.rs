//! What buckets hold and how much it is read, in SQLite.
//!
//! Invariants:
//! 1. A row is of a stripe that has one in `stripes`, live or dead.

use std::collections::BTreeMap;

use async_trait::async_trait;
use claystone_chunk::StripeId;
use rusqlite::{Connection, Row, params};

use super::SqliteMeta;
use super::fault::Fault;
use super::packs;
use super::rows::{Int, parse_code, rows, stripe_id, text, time, unsigned};
use super::stripes::{after_column, load_all, refs};
use crate::{BucketId, HeatRecord, HeatRecords, Held, MetaError, Span, SpanPlace, StripeNames};

#[async_trait]
impl HeatRecords for SqliteMeta {
    async fn bucket_spans(
        &self,
        bucket: BucketId,
        after: Option<&SpanPlace>,
        limit: usize,
    ) -> Result<(Vec<Span>, Option<SpanPlace>), MetaError> {
        let after = after.cloned();
        self.read_steps(move |connection| {
            let named = named_by(connection, bucket, after.as_ref(), limit)?;
            spans_of(connection, named, limit)
        })
        .await
    }

    async fn uploaded_spans(
        &self,
        bucket: BucketId,
        after: Option<&SpanPlace>,
        limit: usize,
    ) -> Result<(Vec<Span>, Option<SpanPlace>), MetaError> {
        let after = after.cloned().unwrap_or(SpanPlace { key: String::new(), sequence: 0, position: 0 });
        self.read_steps(move |connection| {
            let named = uploaded_by(connection, bucket, &after, limit)?;
            spans_of(connection, named, limit)
        })
        .await
    }

    async fn names_of(&self, ids: &[StripeId]) -> Result<Vec<StripeNames>, MetaError> {
        let ids = ids.to_vec();
        self.read_steps(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT p.band, sum(c.refs), count(*), p.first, max(p.bytes) FROM spans p \
                 CROSS JOIN contents c ON c.id = p.content WHERE p.stripe = ?1 GROUP BY p.band, p.first",
            )?;
            let mut names = Vec::with_capacity(ids.len());
            for id in &ids {
                let (mut bands, mut packed_bytes, mut spans) = (BTreeMap::new(), BTreeMap::new(), 0);
                let mut found = statement.query(params![id.0.to_be_bytes()])?;
                while let Some(row) = found.next()? {
                    let band: u16 = row.get(0)?;
                    *bands.entry(band).or_insert(0) += unsigned(row, 1)?;
                    spans += row.get::<_, i64>(2)?;
                    if let Held::Part(part) = packs::held(row, 3)? {
                        *packed_bytes.entry(band).or_insert(0) += part.bytes;
                    }
                }
                // One that cannot be read is found when a conversion of it is committed.
                let packed_for = packs::wanted(connection, *id)?.and_then(|wanted| parse_code(&wanted).ok());
                let of_volume = refs(connection, *id)? != spans;
                names.push(StripeNames { bands, packed_bytes, packed_for, of_volume });
            }
            Ok(names)
        })
        .await
    }

    async fn heats(&self, after: Option<StripeId>, limit: usize) -> Result<Vec<HeatRecord>, MetaError> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT stripe, count, as_of_ms FROM heat WHERE stripe > ?1 ORDER BY stripe LIMIT ?2",
            )?;
            let mut found = statement.query(params![after_column(after), rows(limit)])?;
            let mut heats = Vec::new();
            while let Some(row) = found.next()? {
                let count: f64 = row.get(1)?;
                if !count.is_finite() || count < 0.0 {
                    return Err(Fault::corrupt("a heat that is no count"));
                }
                heats.push(HeatRecord { stripe: stripe_id(row, 0)?, count, as_of: time(row, 2)? });
            }
            Ok(heats)
        })
        .await
    }

    async fn put_heats(&self, heats: Vec<HeatRecord>) -> Result<Vec<StripeId>, MetaError> {
        for heat in &heats {
            assert!(heat.count.is_finite() && heat.count >= 0.0, "a count: {heat:?}");
        }
        self.write(move |connection| {
            let mut put = connection
                .prepare_cached("INSERT OR REPLACE INTO heat (stripe, count, as_of_ms) VALUES (?1, ?2, ?3)")?;
            let mut take = connection.prepare_cached("DELETE FROM heat WHERE stripe = ?1")?;
            let mut dead = Vec::new();
            for HeatRecord { stripe, count, as_of } in &heats {
                let id = stripe.0.to_be_bytes();
                let is_live = refs(connection, *stripe)? > 0;
                if is_live && *count > 0.0 {
                    put.execute(params![id, count, Int(as_of.unix_ms)])?;
                } else {
                    take.execute(params![id])?;
                }
                dead.extend((!is_live).then_some(*stripe));
            }
            Ok(dead)
        })
        .await
    }
}

/// A row of `spans` and the object that it belongs to.
struct Named {
    place: SpanPlace,
    stripe: StripeId,
    band: u16,
    held: Held,
}

/// A page of them, with the stripes' records, and where it ends.
fn spans_of(connection: &Connection, named: Vec<Named>, limit: usize) -> Result<(Vec<Span>, Option<SpanPlace>), Fault> {
    let end = named.last().filter(|_| named.len() == limit).map(|named| named.place.clone());
    let mut ids: Vec<StripeId> = named.iter().map(|named| named.stripe).collect();
    ids.sort_unstable();
    ids.dedup();
    let stripes: BTreeMap<StripeId, _> =
        load_all(connection, &ids)?.into_iter().map(|stripe| (stripe.id, stripe)).collect();
    let span = |named: Named| {
        let Named { stripe, band, held, .. } = named;
        Some(Span { stripe: stripes.get(&stripe)?.clone(), band, held })
    };
    Ok((named.into_iter().filter_map(span).collect(), end))
}

impl Named {
    fn of(row: &Row<'_>) -> Result<Named, Fault> {
        let place = SpanPlace { key: text(row, 0)?, sequence: row.get(1)?, position: unsigned(row, 2)? };
        Ok(Named { place, stripe: stripe_id(row, 3)?, band: row.get(4)?, held: packs::held(row, 5)? })
    }
}

/// The next spans of parts of uploads into a bucket.
fn uploaded_by(
    connection: &Connection,
    bucket: BucketId,
    after: &SpanPlace,
    limit: usize,
) -> Result<Vec<Named>, Fault> {
    // By the index of uploads' names, so nothing is sorted.
    let mut statement = connection.prepare_cached(
        "SELECT CAST(u.id AS BLOB), t.number, p.position, p.stripe, p.band, p.first, p.bytes \
         FROM uploads u CROSS JOIN parts t ON t.upload = u.num CROSS JOIN spans p ON p.content = t.content \
         WHERE u.id >= ?2 AND u.bucket = ?1 AND (u.id, t.number, p.position) > (?2, ?3, ?4) \
         ORDER BY u.id, t.number, p.position LIMIT ?5",
    )?;
    let place = params![bucket.0, after.key, after.sequence, Int(after.position), rows(limit)];
    let mut found_rows = statement.query(place)?;
    let mut found = Vec::new();
    while let Some(row) = found_rows.next()? {
        found.push(Named::of(row)?);
    }
    Ok(found)
}

/// The next spans of a bucket: those left of the object version where the last page ended, its older versions, later keys.
fn named_by(
    connection: &Connection,
    bucket: BucketId,
    after: Option<&SpanPlace>,
    limit: usize,
) -> Result<Vec<Named>, Fault> {
    let mut found: Vec<Named> = Vec::new();
    let mut take = |which: &str, after: &SpanPlace| -> Result<(), Fault> {
        let mut statement = connection.prepare_cached(&format!(
            "SELECT o.key, o.seq, p.position, p.stripe, p.band, p.first, p.bytes FROM objects o CROSS JOIN spans p ON p.content = o.content \
             WHERE o.bucket = ?1 AND {which} AND ?3 = ?3 AND ?4 = ?4 ORDER BY o.key, o.seq DESC, p.position LIMIT ?5"
        ))?;
        let left = rows(limit - found.len());
        let place = params![bucket.0, after.key.as_bytes(), after.sequence, Int(after.position), left];
        let mut found_rows = statement.query(place)?;
        while let Some(row) = found_rows.next()? {
            found.push(Named::of(row)?);
        }
        Ok(())
    };
    // No key is empty.
    let begin = SpanPlace { key: String::new(), sequence: 0, position: 0 };
    if let Some(after) = after {
        take("o.key = ?2 AND o.seq = ?3 AND p.position > ?4", after)?;
        take("o.key = ?2 AND o.seq < ?3", after)?;
    }
    take("o.key > ?2", after.unwrap_or(&begin))?;
    Ok(found)
}
