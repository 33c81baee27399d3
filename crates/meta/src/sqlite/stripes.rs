//! Stripes and their chunks' places in SQLite.
//!
//! Invariants:
//! 1. A stripe has one chunk row for each chunk of its code, from 0.
//! 2. `stripes.lost` is the number of its chunks that are lost: without place, damaged, or on a lost or removed disk.
//!    `stripes.spare` follows from it and is set for live stripes with losses only, so that its index holds just those.
//! 3. A change of a chunk row advances the stripe's revision and clears `verified`.
//! 4. A chunk's name is in one row only.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use claystone_chunk::{ChunkId, DiskId, Generation, StripeId};
use claystone_code::ChunkIndex;
use claystone_env::WallTime;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteMeta;
use super::bands;
use super::disks::{find, loses_chunks};
use super::fault::Fault;
use super::packs;
use super::rows::{Int, code, disk_id, rows, stripe_id, unsigned};
use super::volumes::leased;
use crate::{Band, ChunkPlace, Conversion, MetaError, Origin, Recode, StripeRecord, StripeRecords, StripeTally, Swap};

#[async_trait]
impl StripeRecords for SqliteMeta {
    async fn stripe(&self, id: StripeId) -> Result<Option<StripeRecord>, MetaError> {
        self.read(move |connection| load_live(connection, id)).await
    }

    async fn stripes(&self, after: Option<StripeId>, limit: usize) -> Result<Vec<StripeRecord>, MetaError> {
        self.read_steps(move |connection| {
            let sql = "SELECT id FROM stripes WHERE id > ?1 AND refs > 0 ORDER BY id LIMIT ?2";
            load_page(connection, after, limit, |after, limit| {
                ids(connection, sql, params![after_column(after), rows(limit)])
            })
        })
        .await
    }

    async fn stripes_on(
        &self,
        disk: DiskId,
        after: Option<StripeId>,
        limit: usize,
    ) -> Result<Vec<StripeRecord>, MetaError> {
        self.read_steps(move |connection| {
            let disk = find(connection, disk)?.ok_or(MetaError::NoSuchDisk { disk })?;
            // Two chunks of one stripe may lie on one disk, hence DISTINCT; the index has them side by side.
            let sql = "SELECT DISTINCT c.stripe FROM chunks c CROSS JOIN stripes s ON s.id = c.stripe \
                       WHERE c.disk = ?1 AND c.stripe > ?2 AND s.refs > 0 ORDER BY c.stripe LIMIT ?3";
            load_page(connection, after, limit, |after, limit| {
                ids(connection, sql, params![disk.num, after_column(after), rows(limit)])
            })
        })
        .await
    }

    async fn degraded(&self, limit: usize) -> Result<Vec<StripeRecord>, MetaError> {
        self.read_steps(move |connection| load_all(connection, &degraded(connection, limit)?)).await
    }

    async fn degraded_ids(&self, limit: usize) -> Result<Vec<StripeId>, MetaError> {
        self.read_steps(move |connection| degraded(connection, limit)).await
    }

    async fn named(&self, ids: &[StripeId]) -> Result<Vec<StripeRecord>, MetaError> {
        let ids = ids.to_vec();
        self.read_steps(move |connection| {
            // Strict: reclaim deletes the chunks of whatever is not in the answer.
            let mut holders: BTreeSet<StripeId> = ids.iter().copied().collect();
            for id in &ids {
                let sql = "SELECT DISTINCT stripe FROM chunks WHERE origin = ?1";
                holders.extend(self::ids(connection, sql, params![id.0.to_be_bytes()])?);
            }
            let found = holders.iter().map(|id| load_any(connection, *id));
            let found = found.collect::<Result<Vec<_>, _>>()?;
            Ok(found.into_iter().flatten().map(|(stripe, _)| stripe).collect())
        })
        .await
    }

    async fn swap(&self, swap: Swap) -> Result<StripeRecord, MetaError> {
        self.free(move |connection| {
            let Swap { stripe, expected_revision: expected, ref places, lease } = swap;
            lease.map_or(Ok(()), |lease| leased(connection, lease).map(|_| ()))?;
            let current = load_live(connection, stripe)?;
            if current.is_none_or(|current| current.revision != expected) {
                return Err(MetaError::StripeChanged { stripe, expected }.into());
            }
            let mut update = connection.prepare_cached(
                "UPDATE chunks SET disk = ?3, generation = ?4, damaged = ?5, origin = NULL, origin_idx = NULL \
                 WHERE stripe = ?1 AND idx = ?2",
            )?;
            for (index, place) in places {
                let column = PlaceColumns::of(connection, *place)?;
                let changed = update.execute(params![
                    stripe.0.to_be_bytes(),
                    index.0,
                    column.disk,
                    column.generation,
                    column.damaged
                ])?;
                if changed == 0 {
                    return Err(Fault::corrupt(format!("no chunk {} in stripe {stripe}", index.0)));
                }
            }
            changed(connection, stripe)?;
            load_live(connection, stripe)?.ok_or_else(|| Fault::corrupt(format!("a stripe {stripe} that went away")))
        })
        .await
    }

    async fn recode(&self, recode: Recode) -> Result<StripeRecord, MetaError> {
        let data = recode.code.shape().data;
        assert_eq!(recode.parity.len(), usize::from(recode.code.shape().parity), "one place for each parity chunk");
        let before = self.stripe(recode.stripe).await?;
        let frees = before.is_some_and(|before| before.code.shape().chunks() >= recode.code.shape().chunks());
        let replace = move |connection: &Connection| {
            let Recode { stripe, expected_revision: expected, code, sub_bytes, ref parity, ref origins, lease } =
                recode;
            lease.map_or(Ok(()), |lease| leased(connection, lease).map(|_| ()))?;
            let current = load_live(connection, stripe)?;
            let fits = |current: StripeRecord| current.revision == expected && current.code.shape().data == data;
            if !current.is_some_and(fits) {
                return Err(MetaError::StripeChanged { stripe, expected }.into());
            }
            let id = stripe.0.to_be_bytes();
            connection
                .prepare_cached("DELETE FROM chunks WHERE stripe = ?1 AND idx >= ?2")?
                .execute(params![id, data])?;
            for (index, place) in (data..).zip(parity) {
                let origin = origins.get(&ChunkIndex(index));
                insert_chunk(connection, stripe, index, &PlaceColumns::of(connection, *place)?, origin)?;
            }
            connection
                .prepare_cached("UPDATE stripes SET code = ?2, sub_bytes = ?3, tolerance = ?4 WHERE id = ?1")?
                .execute(params![id, code.to_string(), sub_bytes, code.tolerance()])?;
            changed(connection, stripe)?;
            load_live(connection, stripe)?.ok_or_else(|| Fault::corrupt(format!("a stripe {stripe} that went away")))
        };
        if frees { self.free(replace).await } else { self.write(replace).await }
    }

    async fn convert(&self, conversion: Conversion) -> Result<Vec<StripeRecord>, MetaError> {
        for target in &conversion.targets {
            assert_eq!(target.places.len(), usize::from(target.code.shape().chunks()), "one place for each chunk");
        }
        self.write(move |connection| convert(connection, &conversion)).await
    }

    async fn mark_damaged(&self, chunks: &[ChunkId]) -> Result<(), MetaError> {
        let chunks = chunks.to_vec();
        self.free(move |connection| {
            let mark = |named: &str| {
                connection.prepare_cached(&format!(
                    "UPDATE chunks SET damaged = 1 WHERE {named} AND generation = ?3 AND damaged = 0 \
                     AND disk IS NOT NULL AND EXISTS (SELECT 1 FROM stripes s WHERE s.id = stripe AND s.refs > 0) \
                     RETURNING stripe"
                ))
            };
            let mut own = mark("stripe = ?1 AND idx = ?2 AND origin IS NULL")?;
            let mut kept = mark("origin = ?1 AND origin_idx = ?2")?;
            for chunk in &chunks {
                for statement in [&mut own, &mut kept] {
                    let name = params![chunk.stripe.0.to_be_bytes(), chunk.index.0, chunk.generation.0];
                    let mut rows = statement.query(name)?;
                    let marked = rows.next()?.map(|row| stripe_id(row, 0)).transpose()?;
                    // To its end: only then the change is made.
                    while rows.next()?.is_some() {}
                    drop(rows);
                    if let Some(stripe) = marked {
                        changed(connection, stripe)?;
                    }
                }
            }
            Ok(())
        })
        .await
    }

    async fn shared(&self, ids: &[StripeId]) -> Result<Vec<StripeId>, MetaError> {
        let mut ids = ids.to_vec();
        ids.sort_unstable();
        self.read_steps(move |connection| {
            let mut shared = Vec::new();
            for id in ids {
                if refs(connection, id)? > 1 {
                    shared.push(id);
                }
            }
            Ok(shared)
        })
        .await
    }

    async fn touch(&self, ids: &[StripeId]) -> Result<Vec<StripeRecord>, MetaError> {
        let ids = ids.to_vec();
        self.free(move |connection| {
            let mut touched = Vec::with_capacity(ids.len());
            for id in &ids {
                if refs(connection, *id)? == 1 {
                    changed(connection, *id)?;
                    touched.extend(load_live(connection, *id)?);
                }
            }
            Ok(touched)
        })
        .await
    }

    async fn mark_verified(&self, id: StripeId, revision: u64, now: WallTime) -> Result<(), MetaError> {
        self.free(move |connection| {
            connection
                .prepare_cached("UPDATE stripes SET verified_ms = ?3 WHERE id = ?1 AND revision = ?2 AND refs > 0")?
                .execute(params![id.0.to_be_bytes(), Int(revision), Int(now.unix_ms)])?;
            Ok(())
        })
        .await
    }

    async fn dead_stripes(&self, limit: usize) -> Result<Vec<StripeRecord>, MetaError> {
        self.read_steps(move |connection| {
            let sql = "SELECT id FROM stripes WHERE refs = 0 ORDER BY id LIMIT ?1";
            let ids = ids(connection, sql, params![rows(limit)])?;
            load_all(connection, &ids)
        })
        .await
    }

    async fn forget(&self, ids: &[StripeId]) -> Result<(), MetaError> {
        let ids = ids.to_vec();
        self.free(move |connection| {
            let mut stripe = connection.prepare_cached("DELETE FROM stripes WHERE id = ?1 AND refs = 0")?;
            let mut chunks = connection.prepare_cached("DELETE FROM chunks WHERE stripe = ?1")?;
            let mut heat = connection.prepare_cached("DELETE FROM heat WHERE stripe = ?1")?;
            for id in &ids {
                let id = id.0.to_be_bytes();
                if stripe.execute(params![id])? > 0 {
                    chunks.execute(params![id])?;
                    heat.execute(params![id])?;
                }
            }
            Ok(())
        })
        .await
    }

    async fn tally(&self) -> Result<StripeTally, MetaError> {
        self.read_steps(|connection| {
            let mut tally = StripeTally::default();
            let mut totals = connection.prepare_cached(
                "SELECT stripes, data_bytes, verified, (SELECT count(*) FROM stripes WHERE refs = 0) FROM totals",
            )?;
            let mut row = totals.query([])?;
            let row = row.next()?.ok_or_else(|| Fault::corrupt("no totals"))?;
            tally.stripes = unsigned(row, 0)?;
            tally.data_bytes = unsigned(row, 1)?;
            tally.verified = unsigned(row, 2)?;
            tally.dead = unsigned(row, 3)?;
            // Read from the index of degraded stripes alone.
            let mut degraded = connection.prepare_cached(
                "SELECT spare, lost, count(*) FROM stripes WHERE spare IS NOT NULL GROUP BY spare, lost",
            )?;
            let mut groups = degraded.query([])?;
            while let Some(row) = groups.next()? {
                let spare: i64 = row.get(0)?;
                let (lost, stripes) = (unsigned(row, 1)?, unsigned(row, 2)?);
                tally.chunks_lost += lost * stripes;
                match u16::try_from(spare) {
                    Ok(spare) => {
                        let left = &mut tally.degraded_by_tolerance_left;
                        let at = usize::from(spare);
                        if left.len() <= at {
                            left.resize(at + 1, 0);
                        }
                        left[at] += stripes;
                    }
                    Err(_) => tally.unrecoverable += stripes,
                }
            }
            Ok(tally)
        })
        .await
    }
}

/// Columns of a stripe, to be followed by [`PLACE_COLUMNS`], for the tables `stripes s`, `chunks c` and `disks d`.
pub(super) const STRIPE_COLUMNS: &str =
    "s.id, s.code, s.data_bytes, s.sub_bytes, s.revision, s.verified_ms, s.refs, s.bands";
/// Columns of a chunk's place.
pub(super) const PLACE_COLUMNS: &str = "c.idx, c.generation, c.damaged, c.disk, d.id, c.origin, c.origin_idx";
/// How many columns stand before the first of the place.
const STRIPE_COLUMNS_COUNT: usize = 8;
/// Which of them tells how many spans name it.
const REFS_COLUMN: usize = 6;

/// Puts rows of stripes joined with their chunks together again.
#[derive(Default)]
pub(super) struct Gather {
    stripes: Vec<StripeRecord>,
    /// Chunk rows met of the last stripe.
    chunks: usize,
}

impl Gather {
    /// Takes a row whose stripe columns begin at `at`; rows of one stripe come one after the other. A row without
    /// stripe is passed over. Returns whether a stripe begins with it.
    pub(super) fn take(&mut self, row: &Row<'_>, at: usize) -> Result<bool, Fault> {
        let Some(id) = row.get::<_, Option<[u8; 16]>>(at)? else { return Ok(false) };
        let id = StripeId(u128::from_be_bytes(id));
        // The same stripe may come twice in a content, so chunk 0 begins a stripe, not a change of id.
        let index: u16 = row.get(at + STRIPE_COLUMNS_COUNT)?;
        if index == 0 {
            self.close()?;
            self.stripes.push(stripe_from(row, at, id)?);
        }
        let stripe = self.stripes.last_mut().ok_or_else(|| Fault::corrupt(format!("a stripe {id} without chunk 0")))?;
        if stripe.id != id || usize::from(index) != self.chunks || self.chunks >= stripe.places.len() {
            return Err(Fault::corrupt(format!("the chunks of stripe {id}")));
        }
        stripe.places[self.chunks] = place_from(row, at + STRIPE_COLUMNS_COUNT)?;
        if let Some(origin) = origin_from(row, at + STRIPE_COLUMNS_COUNT + 5)? {
            stripe.origins.insert(ChunkIndex(index), origin);
        }
        self.chunks += 1;
        Ok(index == 0)
    }

    /// All stripes.
    pub(super) fn finish(mut self) -> Result<Vec<StripeRecord>, Fault> {
        self.close()?;
        Ok(self.stripes)
    }

    fn close(&mut self) -> Result<(), Fault> {
        if let Some(stripe) = self.stripes.last()
            && stripe.places.len() != self.chunks
        {
            return Err(Fault::corrupt(format!("the chunks of stripe {}", stripe.id)));
        }
        self.chunks = 0;
        Ok(())
    }
}

fn stripe_from(row: &Row<'_>, at: usize, id: StripeId) -> Result<StripeRecord, Fault> {
    let code = code(row, at + 1)?;
    let verified: Option<i64> = row.get(at + 5)?;
    let verified = match verified {
        Some(ms) => Some(WallTime { unix_ms: u64::try_from(ms).map_err(|_| Fault::corrupt("a negative time"))? }),
        None => None,
    };
    let data_bytes = unsigned(row, at + 2)?;
    let bands = row.get_ref(at + 7)?.as_str_or_null().map_err(|_| Fault::corrupt("bands that are no text"))?;
    Ok(StripeRecord {
        id,
        code,
        data_bytes,
        bands: bands::from_column(bands, code.shape(), data_bytes)?,
        sub_bytes: row.get(at + 3)?,
        places: vec![None; usize::from(code.shape().chunks())],
        origins: BTreeMap::new(),
        revision: unsigned(row, at + 4)?,
        verified,
    })
}

fn place_from(row: &Row<'_>, at: usize) -> Result<Option<ChunkPlace>, Fault> {
    if row.get_ref(at + 3)? == rusqlite::types::ValueRef::Null {
        return Ok(None);
    }
    // A number without its disk reads as NULL here, which is an error.
    Ok(Some(ChunkPlace {
        generation: Generation(row.get(at + 1)?),
        damaged: row.get(at + 2)?,
        disk: disk_id(row, at + 4)?,
    }))
}

fn origin_from(row: &Row<'_>, at: usize) -> Result<Option<Origin>, Fault> {
    let (stripe, index): (Option<[u8; 16]>, Option<u16>) = (row.get(at)?, row.get(at + 1)?);
    match (stripe, index) {
        (None, None) => Ok(None),
        (Some(stripe), Some(index)) => {
            Ok(Some(Origin { stripe: StripeId(u128::from_be_bytes(stripe)), index: ChunkIndex(index) }))
        }
        _ => Err(Fault::corrupt("half an origin of a chunk")),
    }
}

/// How many spans name a stripe; none name one that is not known.
pub(super) fn refs(connection: &Connection, id: StripeId) -> Result<i64, Fault> {
    let mut statement = connection.prepare_cached("SELECT refs FROM stripes WHERE id = ?1")?;
    let refs = statement.query_row(params![id.0.to_be_bytes()], |row| row.get(0)).optional()?;
    Ok(refs.unwrap_or(0))
}

/// One span more names a live stripe; the caller writes it.
pub(super) fn share_stripe(connection: &Connection, id: StripeId) -> Result<(), Fault> {
    let changed = connection
        .prepare_cached("UPDATE stripes SET refs = refs + 1 WHERE id = ?1 AND refs > 0")?
        .execute(params![id.0.to_be_bytes()])?;
    if changed == 1 { Ok(()) } else { Err(Fault::corrupt(format!("a span without its stripe {id}"))) }
}

/// Writes the rows of a new stripe, held by as many spans, which the caller writes. One that cannot be read any more is refused, before anybody is told
/// that it is there: `StripeLost`.
pub(super) fn insert_stripe(connection: &Connection, stripe: &StripeRecord, refs: i64) -> Result<(), Fault> {
    let id = stripe.id.0.to_be_bytes();
    let tolerance = i64::from(stripe.code.tolerance());
    let mut lost: Vec<ChunkIndex> = Vec::new();
    for (index, place) in (0u16..).zip(&stripe.places) {
        let column = PlaceColumns::of(connection, *place)?;
        lost.extend(column.lost.then_some(ChunkIndex(index)));
        insert_chunk(connection, stripe.id, index, &column, stripe.origins.get(&ChunkIndex(index)))?;
    }
    let spare = (!lost.is_empty() && refs > 0).then(|| stripe.code.tolerance_left(&lost));
    if spare.is_some_and(|spare| spare < 0) {
        return Err(MetaError::StripeLost { stripe: stripe.id }.into());
    }
    connection
        .prepare_cached(
            "INSERT INTO stripes \
             (id, refs, code, data_bytes, sub_bytes, revision, verified_ms, tolerance, lost, spare, bands) \
             VALUES (?1, ?10, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?11)",
        )?
        .execute(params![
            id,
            stripe.code.to_string(),
            Int(stripe.data_bytes),
            stripe.sub_bytes,
            Int(stripe.revision),
            stripe.verified.map(|at| Int(at.unix_ms)),
            tolerance,
            lost.len() as i64,
            spare,
            refs,
            bands::column(&stripe.bands),
        ])?;
    Ok(())
}

fn insert_chunk(
    connection: &Connection,
    stripe: StripeId,
    index: u16,
    place: &PlaceColumns,
    origin: Option<&Origin>,
) -> Result<(), Fault> {
    connection
        .prepare_cached(
            "INSERT INTO chunks (stripe, idx, disk, generation, damaged, origin, origin_idx) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            stripe.0.to_be_bytes(),
            index,
            place.disk,
            place.generation,
            place.damaged,
            origin.map(|origin| origin.stripe.0.to_be_bytes()),
            origin.map(|origin| origin.index.0),
        ])?;
    Ok(())
}

/// Replaces stripes by others over the same data chunks.
fn convert(connection: &Connection, conversion: &Conversion) -> Result<Vec<StripeRecord>, Fault> {
    let mut sources: Vec<StripeRecord> = Vec::new();
    for &(stripe, expected) in &conversion.sources {
        // One that comes twice is not the same any more the second time.
        let is_first = sources.iter().all(|source| source.id != stripe);
        let current = load_live(connection, stripe)?.filter(|current| is_first && current.revision == expected);
        sources.push(current.ok_or(MetaError::StripeChanged { stripe, expected })?);
        let held = connection
            .prepare_cached("SELECT count(*) FROM spans WHERE stripe = ?1")?
            .query_row(params![stripe.0.to_be_bytes()], |row| row.get::<_, i64>(0))?;
        if held != refs(connection, stripe)? {
            return Err(MetaError::HeldByVolume { stripe }.into());
        }
    }
    let bands = |stripes: &[StripeRecord]| -> Vec<(StripeId, u16, Band)> {
        let of = |stripe: &StripeRecord| (0..).zip(stripe.bands()).map(|(at, band)| (stripe.id, at, band)).collect();
        stripes.iter().flat_map(|stripe| -> Vec<_> { of(stripe) }).collect()
    };
    let (old, new) = (bands(&sources), bands(&conversion.targets));
    assert!(old.iter().map(|(_, _, band)| band).eq(new.iter().map(|(_, _, band)| band)), "data stays in its bands");
    let mut wanted: BTreeMap<StripeId, Option<String>> = BTreeMap::new();
    for ((source, ..), (target, ..)) in old.iter().zip(&new) {
        let known = wanted.entry(*target).or_default();
        match (packs::wanted(connection, *source)?, &known) {
            (Some(one), Some(other)) if one != *other => {
                return Err(MetaError::PacksDiffer { one, other: other.clone() }.into());
            }
            (Some(of_source), _) => *known = Some(of_source),
            (None, _) => {}
        }
    }
    let mut refs: BTreeMap<StripeId, i64> = BTreeMap::new();
    for ((source, from, _), (target, to, _)) in old.iter().zip(&new) {
        let moved = connection
            .prepare_cached("UPDATE spans SET stripe = ?3, band = ?4 WHERE stripe = ?1 AND band = ?2")?
            .execute(params![source.0.to_be_bytes(), from, target.0.to_be_bytes(), to])?;
        *refs.entry(*target).or_default() += moved as i64;
    }
    let mut kept: BTreeSet<ChunkId> = BTreeSet::new();
    for target in &conversion.targets {
        let chunks = || (0..target.places.len() as u16).map(ChunkIndex);
        for index in chunks().filter(|index| !target.origins.contains_key(index)) {
            if PlaceColumns::of(connection, target.places[index.at()])?.lost {
                let (stripe, expected) = conversion.sources[0];
                return Err(MetaError::StripeChanged { stripe, expected }.into());
            }
        }
        kept.extend(chunks().filter_map(|index| target.chunk_id(index)));
        insert_stripe(connection, target, refs[&target.id])?;
    }
    for source in &sources {
        let id = source.id.0.to_be_bytes();
        connection.prepare_cached("UPDATE stripes SET refs = 0 WHERE id = ?1")?.execute(params![id])?;
        let mut give = connection.prepare_cached(
            "UPDATE chunks SET disk = NULL, generation = 0, damaged = 0, origin = NULL, origin_idx = NULL \
             WHERE stripe = ?1 AND idx = ?2",
        )?;
        for index in (0..source.places.len() as u16).map(ChunkIndex) {
            if source.chunk_id(index).is_some_and(|id| kept.contains(&id)) {
                give.execute(params![id, index.0])?;
            }
        }
        changed(connection, source.id)?;
    }
    let ids = |stripes: &[StripeRecord]| stripes.iter().map(|stripe| stripe.id).collect::<Vec<_>>();
    packs::converted(connection, &ids(&sources), &wanted)?;
    let found = conversion.targets.iter().map(|target| load_any(connection, target.id));
    let found = found.collect::<Result<Vec<_>, _>>()?;
    Ok(found.into_iter().flatten().map(|(stripe, _)| stripe).collect())
}

/// So many spans less name a stripe; the caller deletes or changes them. Returns the stripe if it died.
pub(super) fn release_stripe(connection: &Connection, id: StripeId, spans: i64) -> Result<Option<StripeRecord>, Fault> {
    let refs: Option<i64> = connection
        .prepare_cached(
            "UPDATE stripes SET refs = refs - ?2, spare = CASE WHEN refs > ?2 THEN spare END WHERE id = ?1 RETURNING refs",
        )?
        .query_row(params![id.0.to_be_bytes(), spans], |row| row.get(0))
        .optional()?;
    if refs.ok_or_else(|| Fault::corrupt(format!("a span without its stripe {id}")))? > 0 {
        return Ok(None);
    }
    let dead = load_any(connection, id)?.ok_or_else(|| Fault::corrupt(format!("the chunks of stripe {id}")))?.0;
    Ok(Some(dead))
}

/// A place as its columns have it.
struct PlaceColumns {
    disk: Option<i64>,
    generation: u32,
    damaged: bool,
    lost: bool,
}

impl PlaceColumns {
    fn of(connection: &Connection, place: Option<ChunkPlace>) -> Result<PlaceColumns, Fault> {
        let Some(place) = place else {
            return Ok(PlaceColumns { disk: None, generation: 0, damaged: false, lost: true });
        };
        let disk = find(connection, place.disk)?.ok_or(MetaError::NoSuchDisk { disk: place.disk })?;
        Ok(PlaceColumns {
            disk: Some(disk.num),
            generation: place.generation.0,
            damaged: place.damaged,
            lost: place.damaged || loses_chunks(disk.state),
        })
    }
}

/// A stripe, live or dead, and whether it is live.
pub(super) fn load_any(connection: &Connection, id: StripeId) -> Result<Option<(StripeRecord, bool)>, Fault> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {STRIPE_COLUMNS}, {PLACE_COLUMNS} FROM stripes s CROSS JOIN chunks c ON c.stripe = s.id \
         LEFT JOIN disks d ON d.num = c.disk WHERE s.id = ?1 ORDER BY c.idx"
    ))?;
    let mut rows = statement.query(params![id.0.to_be_bytes()])?;
    let (mut gather, mut live) = (Gather::default(), false);
    while let Some(row) = rows.next()? {
        live = row.get::<_, i64>(REFS_COLUMN)? > 0;
        gather.take(row, 0)?;
    }
    Ok(gather.finish()?.pop().map(|stripe| (stripe, live)))
}

pub(super) fn load_live(connection: &Connection, id: StripeId) -> Result<Option<StripeRecord>, Fault> {
    Ok(load_any(connection, id)?.and_then(|(stripe, live)| live.then_some(stripe)))
}

/// The next `limit` stripes; fewer only where `ids_after` has no more. Records that cannot be read are left out, so a
/// page may take several rounds.
fn load_page(
    connection: &Connection,
    mut after: Option<StripeId>,
    limit: usize,
    ids_after: impl Fn(Option<StripeId>, usize) -> Result<Vec<StripeId>, Fault>,
) -> Result<Vec<StripeRecord>, Fault> {
    let mut stripes = Vec::new();
    loop {
        let missing = limit - stripes.len();
        let ids = ids_after(after, missing)?;
        stripes.extend(load_all(connection, &ids)?);
        if ids.len() < missing || stripes.len() == limit {
            return Ok(stripes);
        }
        after = ids.last().copied();
    }
}

pub(super) fn load_all(connection: &Connection, ids: &[StripeId]) -> Result<Vec<StripeRecord>, Fault> {
    let mut stripes = Vec::new();
    for id in ids {
        match load_any(connection, *id) {
            Ok(found) => stripes.extend(found.map(|(stripe, _)| stripe)),
            // One damaged record must not keep upkeep from all others. It is never verified, so never called healthy.
            Err(Fault::Meta(error @ MetaError::Corrupt { .. })) => {
                tracing::error!(stripe = %id, %error, "a stripe's record cannot be read");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(stripes)
}

/// Stripes with lost chunks, by how many more they survive to lose; those that have lost too many last.
fn degraded(connection: &Connection, limit: usize) -> Result<Vec<StripeId>, Fault> {
    let sql = "SELECT id FROM stripes WHERE spare >= 0 ORDER BY spare, lost, id LIMIT ?1";
    let mut found = ids(connection, sql, params![rows(limit)])?;
    let sql = "SELECT id FROM stripes WHERE spare < 0 ORDER BY spare, lost, id LIMIT ?1";
    found.extend(ids(connection, sql, params![rows(limit - found.len())])?);
    Ok(found)
}

fn ids(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> Result<Vec<StripeId>, Fault> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut ids = Vec::new();
    while let Some(row) = rows.next()? {
        ids.push(stripe_id(row, 0)?);
    }
    Ok(ids)
}

/// The bytes that ids must be greater than; no bytes are less than any id.
pub(super) fn after_column(after: Option<StripeId>) -> Vec<u8> {
    after.map_or_else(Vec::new, |id| id.0.to_be_bytes().to_vec())
}

/// Follows a change of a stripe's chunk rows.
fn changed(connection: &Connection, id: StripeId) -> Result<(), Fault> {
    connection
        .prepare_cached(&format!(
            "UPDATE stripes SET revision = revision + 1, verified_ms = NULL, (lost, spare) = {LOSSES} WHERE id = ?1"
        ))?
        .execute(params![id.0.to_be_bytes()])?;
    Ok(())
}

/// Counts the losses of all stripes on a disk anew, after its state changed.
pub(super) fn recount_disk(connection: &Connection, num: i64) -> Result<(), Fault> {
    connection
        .prepare_cached(&format!(
            "UPDATE stripes SET (lost, spare) = {LOSSES} WHERE id IN (SELECT stripe FROM chunks WHERE disk = ?1)"
        ))?
        .execute(params![num])?;
    Ok(())
}

/// `lost` and `spare` of a row of `stripes`, counted.
pub(super) const LOSSES: &str = "(SELECT count(*), \
     CASE WHEN count(*) > 0 AND stripes.refs > 0 THEN \
     coalesce(tolerance_left(stripes.code, group_concat(c.idx)), stripes.tolerance - count(*)) END \
     FROM chunks c LEFT JOIN disks d ON d.num = c.disk \
     WHERE c.stripe = stripes.id AND (c.disk IS NULL OR c.damaged = 1 OR d.state >= 2))";
