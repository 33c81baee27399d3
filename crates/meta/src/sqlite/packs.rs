//! Packs in SQLite: bands of stripes that hold parts of several contents.
//!
//! Invariants:
//! 1. `packs` has a row for each band of a live stripe with a span that is a part of it, and for no other.
//! 2. `packs.live_bytes` are the bytes of all spans that are parts of the band, `packs.parts` how many these are. A content that
//!    lies in two spans counts twice.
//! 3. All parts of a pack are of contents that are to have `packs.wanted`.
//! 4. The bytes of a pack never change: a part that moves is named at another place, and stays where it was for those who
//!    read by the old record.

use std::collections::BTreeMap;

use async_trait::async_trait;
use claystone_chunk::{ByteRange, StripeId};
use claystone_code::CodeSpec;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteMeta;
use super::fault::Fault;
use super::rows::{Int, parse_code, rows, stripe_id, unsigned};
use super::stripes::{insert_stripe, load_live, release_stripe, share_stripe};
use crate::{ContentId, Held, MetaError, NewPart, Pack, PackRecords, PackedPart, Repack, StripeRecord};

#[async_trait]
impl PackRecords for SqliteMeta {
    async fn thin_packs(&self, live_below: u64, limit: usize) -> Result<Vec<Pack>, MetaError> {
        self.read_steps(move |connection| {
            // Code by code: among all of them the index finds none by its bytes.
            let mut codes =
                connection.prepare_cached("SELECT wanted FROM packs WHERE wanted > ?1 ORDER BY wanted LIMIT 1")?;
            let (mut packs, mut last) = (Vec::new(), String::new());
            while let Some(wanted) = codes.query_row(params![last], |row| row.get::<_, String>(0)).optional()? {
                match parse_code(&wanted) {
                    Ok(code) => packs.extend(thin(connection, &wanted, code, live_below, limit)?),
                    Err(_) => tracing::error!(code = wanted, "packs are to have a code that cannot be read"),
                }
                last = wanted;
            }
            Ok(packs)
        })
        .await
    }

    async fn packed_parts(&self, pack: StripeId, band: u16) -> Result<Vec<PackedPart>, MetaError> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT content, position, first, bytes FROM spans WHERE stripe = ?1 AND band = ?2 AND first IS NOT NULL \
                 ORDER BY first, content, position",
            )?;
            let mut found = statement.query(params![pack.0.to_be_bytes(), band])?;
            let mut parts = Vec::new();
            while let Some(row) = found.next()? {
                let Held::Part(part) = held(row, 2)? else {
                    return Err(Fault::corrupt(format!("a part of stripe {pack}")));
                };
                let content = ContentId(row.get(0)?);
                parts.push(PackedPart { content, position: unsigned(row, 1)?, stripe: pack, band, part });
            }
            Ok(parts)
        })
        .await
    }

    async fn repack(&self, repack: Repack) -> Result<(u64, Vec<StripeRecord>), MetaError> {
        for (part, to) in &repack.moves {
            let end = to + part.part.bytes;
            assert!(end <= repack.pack.data_bytes, "bytes up to {end} of {}", repack.pack.data_bytes);
        }
        self.write(move |connection| move_parts(connection, &repack)).await
    }
}

/// The thin packs of one code.
fn thin(
    connection: &Connection,
    wanted: &str,
    code: CodeSpec,
    live_below: u64,
    limit: usize,
) -> Result<Vec<Pack>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT p.stripe, p.band, p.live_bytes, p.parts FROM packs p JOIN stripes s ON s.id = p.stripe \
         WHERE p.wanted = ?1 AND p.live_bytes < ?2 \
         AND (s.bands IS NULL OR 2 * p.live_bytes <= band_bytes(s.bands, s.data_bytes, p.band)) \
         ORDER BY p.live_bytes LIMIT ?3",
    )?;
    let mut found = statement.query(params![wanted, Int(live_below), rows(limit)])?;
    let mut packs = Vec::new();
    while let Some(row) = found.next()? {
        let (id, band, live_bytes, parts) = (stripe_id(row, 0)?, row.get(1)?, unsigned(row, 2)?, unsigned(row, 3)?);
        match load_live(connection, id) {
            Ok(stripe) => packs.extend(stripe.map(|stripe| Pack { stripe, band, live_bytes, parts, wanted: code })),
            Err(Fault::Meta(error @ MetaError::Corrupt { .. })) => {
                tracing::error!(stripe = %id, %error, "a pack's record cannot be read");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(packs)
}

/// Counts one name more for a pack that was just written, of one band, and makes its rows if this is the first. A pack that came
/// and went meanwhile is not what it was: `StripeChanged`.
pub(super) fn name(connection: &Connection, new: &NewPart) -> Result<(), Fault> {
    let NewPart { pack, wanted, part } = new;
    let refs: Option<i64> = connection
        .prepare_cached("SELECT refs FROM stripes WHERE id = ?1")?
        .query_row(params![pack.id.0.to_be_bytes()], |row| row.get(0))
        .optional()?;
    match refs {
        None => {
            insert_stripe(connection, pack, 1)?;
            insert(connection, pack.id, &wanted.to_string(), Names { parts: 1, bytes: part.bytes as i64 })
        }
        Some(0) => Err(MetaError::StripeChanged { stripe: pack.id, expected: pack.revision }.into()),
        Some(_) => {
            share_stripe(connection, pack.id)?;
            count(connection, pack.id, 0, Names { parts: 1, bytes: part.bytes as i64 })
        }
    }
}

/// Names of parts of a band, and the bytes that they are; below 0: names that were given up.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Names {
    pub(super) parts: i64,
    pub(super) bytes: i64,
}

/// Follows parts of a band that are named once more, or once less.
pub(super) fn count(connection: &Connection, pack: StripeId, band: u16, more: Names) -> Result<(), Fault> {
    let id = pack.0.to_be_bytes();
    let parts: Option<i64> = connection
        .prepare_cached(
            "UPDATE packs SET parts = parts + ?3, live_bytes = live_bytes + ?4 WHERE stripe = ?1 AND band = ?2 \
             RETURNING parts",
        )?
        .query_row(params![id, band, more.parts, more.bytes], |row| row.get(0))
        .optional()?;
    match parts {
        None => return Err(Fault::corrupt(format!("a part of band {band} of stripe {pack}, which is no pack"))),
        Some(0) => {
            connection
                .prepare_cached("DELETE FROM packs WHERE stripe = ?1 AND band = ?2")?
                .execute(params![id, band])?;
        }
        Some(_) => {}
    }
    Ok(())
}

/// The code that the contents of the packs in a stripe are to have, as text; `None`: it has none.
pub(super) fn wanted(connection: &Connection, stripe: StripeId) -> Result<Option<String>, Fault> {
    let mut statement = connection.prepare_cached("SELECT wanted FROM packs WHERE stripe = ?1 LIMIT 1")?;
    Ok(statement.query_row(params![stripe.0.to_be_bytes()], |row| row.get(0)).optional()?)
}

/// Follows stripes that a conversion put in the place of others. Of each target, what the contents of the packs that it was made of
/// are to have; `None`: of no packs.
pub(super) fn converted(
    connection: &Connection,
    sources: &[StripeId],
    targets: &BTreeMap<StripeId, Option<String>>,
) -> Result<(), Fault> {
    let mut delete = connection.prepare_cached("DELETE FROM packs WHERE stripe = ?1")?;
    for source in sources {
        delete.execute(params![source.0.to_be_bytes()])?;
    }
    let mut insert = connection.prepare_cached(
        "INSERT INTO packs (stripe, band, wanted, live_bytes, parts) \
         SELECT ?1, band, ?2, sum(bytes), count(*) FROM spans WHERE stripe = ?1 AND first IS NOT NULL GROUP BY band",
    )?;
    for (target, wanted) in targets.iter().filter_map(|(target, wanted)| Some((target, wanted.as_ref()?))) {
        insert.execute(params![target.0.to_be_bytes(), wanted])?;
    }
    Ok(())
}

/// Which bytes of a band a span has, from its columns `first` and `bytes`.
pub(super) fn held(row: &Row<'_>, at: usize) -> Result<Held, Fault> {
    let (first, bytes): (Option<i64>, Option<i64>) = (row.get(at)?, row.get(at + 1)?);
    match (first, bytes) {
        (None, None) => Ok(Held::All),
        (None, Some(_)) => Ok(Held::First(unsigned(row, at + 1)?)),
        (Some(_), Some(_)) => Ok(Held::Part(ByteRange { offset: unsigned(row, at)?, bytes: unsigned(row, at + 1)? })),
        (Some(_), None) => Err(Fault::corrupt("half a part of a stripe")),
    }
}

fn insert(connection: &Connection, pack: StripeId, wanted: &str, names: Names) -> Result<(), Fault> {
    connection
        .prepare_cached("INSERT INTO packs (stripe, band, wanted, live_bytes, parts) VALUES (?1, 0, ?2, ?3, ?4)")?
        .execute(params![pack.0.to_be_bytes(), wanted, names.bytes, names.parts])?;
    Ok(())
}

fn move_parts(connection: &Connection, repack: &Repack) -> Result<(u64, Vec<StripeRecord>), Fault> {
    let mut left: BTreeMap<(StripeId, u16), Names> = BTreeMap::new();
    let mut update = connection.prepare_cached(
        "UPDATE spans SET stripe = ?1, band = 0, first = ?2 \
         WHERE content = ?3 AND position = ?4 AND stripe = ?5 AND band = ?6 AND first = ?7 AND bytes = ?8",
    )?;
    for (from, to) in &repack.moves {
        let moved = update.execute(params![
            repack.pack.id.0.to_be_bytes(),
            Int(*to),
            from.content.0,
            Int(from.position),
            from.stripe.0.to_be_bytes(),
            from.band,
            Int(from.part.offset),
            Int(from.part.bytes),
        ])?;
        if moved > 0 {
            let names = left.entry((from.stripe, from.band)).or_default();
            names.parts += 1;
            names.bytes += from.part.bytes as i64;
        }
    }
    let add = |sum: Names, names: &Names| Names { parts: sum.parts + names.parts, bytes: sum.bytes + names.bytes };
    let moved = left.values().fold(Names::default(), add);
    if moved.parts == 0 {
        return Ok((0, Vec::new()));
    }
    insert_stripe(connection, &repack.pack, moved.parts)?;
    insert(connection, repack.pack.id, &repack.wanted.to_string(), moved)?;
    let mut dead = Vec::new();
    for ((source, band), Names { parts, bytes }) in left {
        count(connection, source, band, Names { parts: -parts, bytes: -bytes })?;
        dead.extend(release_stripe(connection, source, parts)?);
    }
    Ok((moved.parts as u64, dead))
}
