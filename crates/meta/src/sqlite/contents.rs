//! Contents: the stripes of objects and parts, and how many name them.
//!
//! Invariants:
//! 1. `contents.refs` is the number of objects and parts that name the content; it goes when that reaches 0.
//! 2. `stripes.refs` is the number of spans, of contents and volumes, that name the stripe; a stripe with 0 is dead and keeps its rows until
//!    its chunks are reclaimed.
//! 3. The positions of a content are 0, 1, 2, ...
//!
//! A part that was copied from an object shares its stripes with the object, so a completed upload needs stripes that
//! lie in two contents: that is why spans stand between contents and stripes.

use rusqlite::{Connection, OptionalExtension, params};

use super::fault::Fault;
use super::packs::{self, Names};
use super::rows::{Int, stripe_id};
use super::stripes::{insert_stripe, release_stripe, share_stripe};
use crate::{ContentId, MetaError, NewContent, StripeRecord};

/// Makes or shares what a new object or part of `key` holds.
pub(super) fn acquire(connection: &Connection, new: &NewContent, key: &str) -> Result<Option<ContentId>, Fault> {
    match new {
        NewContent::Empty => Ok(None),
        NewContent::Stripes(stripes) if stripes.is_empty() => Ok(None),
        NewContent::Stripes(stripes) => {
            let content = create(connection)?;
            let mut span = connection.prepare_cached(
                "INSERT INTO spans (content, position, stripe, band, bytes) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?;
            let mut position = 0i64;
            for new in stripes {
                let held: Vec<(u64, u64)> = new.held().collect();
                insert_stripe(connection, &new.stripe, held.len() as i64)?;
                for (band, (bytes, all)) in (0u16..).zip(held) {
                    let bytes = (bytes < all).then_some(Int(bytes));
                    span.execute(params![content.0, position, new.stripe.id.0.to_be_bytes(), band, bytes])?;
                    position += 1;
                }
            }
            Ok(Some(content))
        }
        NewContent::Part(new) => {
            packs::name(connection, new)?;
            let content = create(connection)?;
            connection
                .prepare_cached(
                    "INSERT INTO spans (content, position, stripe, first, bytes) VALUES (?1, 0, ?2, ?3, ?4)",
                )?
                .execute(params![content.0, new.pack.id.0.to_be_bytes(), Int(new.part.offset), Int(new.part.bytes)])?;
            Ok(Some(content))
        }
        NewContent::Shared(content) => {
            let shared = connection
                .prepare_cached("UPDATE contents SET refs = refs + 1 WHERE id = ?1")?
                .execute(params![content.0])?;
            if shared == 0 {
                return Err(MetaError::NoSuchObject { key: key.to_owned() }.into());
            }
            Ok(Some(*content))
        }
    }
}

/// One object or part less names `content`. Returns the stripes that died.
pub(super) fn release(connection: &Connection, content: Option<ContentId>) -> Result<Vec<StripeRecord>, Fault> {
    let Some(content) = content else { return Ok(Vec::new()) };
    if unname(connection, content)? > 0 {
        return Ok(Vec::new());
    }
    let mut dead = Vec::new();
    let mut spans = connection.prepare_cached(&format!(
        "SELECT stripe, band, {PART_BYTES} FROM spans WHERE content = ?1 ORDER BY position"
    ))?;
    let mut rows = spans.query(params![content.0])?;
    while let Some(row) = rows.next()? {
        let stripe = stripe_id(row, 0)?;
        if let Some(bytes) = row.get::<_, Option<i64>>(2)? {
            packs::count(connection, stripe, row.get(1)?, Names { parts: -1, bytes: -bytes })?;
        }
        dead.extend(release_stripe(connection, stripe, 1)?);
    }
    drop(rows);
    connection.prepare_cached("DELETE FROM spans WHERE content = ?1")?.execute(params![content.0])?;
    Ok(dead)
}

/// Makes one content of the contents of parts, in order, and takes the parts' shares in them.
pub(super) fn join(connection: &Connection, parts: &[ContentId]) -> Result<Option<ContentId>, Fault> {
    if parts.is_empty() {
        return Ok(None);
    }
    let joined = create(connection)?;
    let mut position: i64 = 0;
    for part in parts {
        let shared = unname(connection, *part)? > 0;
        if shared {
            // Its stripes now lie in one content more; a stripe may do so several times.
            let mut spans = connection
                .prepare_cached(&format!("SELECT stripe, band, {PART_BYTES} FROM spans WHERE content = ?1"))?;
            let mut rows = spans.query(params![part.0])?;
            while let Some(row) = rows.next()? {
                let stripe = stripe_id(row, 0)?;
                share_stripe(connection, stripe)?;
                if let Some(bytes) = row.get::<_, Option<i64>>(2)? {
                    packs::count(connection, stripe, row.get(1)?, Names { parts: 1, bytes })?;
                }
            }
        }
        let spans = connection
            .prepare_cached(
                "INSERT INTO spans (content, position, stripe, band, first, bytes) \
                 SELECT ?2, ?3 + position, stripe, band, first, bytes FROM spans WHERE content = ?1 ORDER BY position",
            )?
            .execute(params![part.0, joined.0, position])?;
        if !shared {
            connection.prepare_cached("DELETE FROM spans WHERE content = ?1")?.execute(params![part.0])?;
        }
        position += i64::try_from(spans).expect("spans that were just inserted fit their column");
    }
    Ok(Some(joined))
}

/// Bytes of a span that is a part of a pack; NULL for all others.
const PART_BYTES: &str = "iif(first IS NULL, NULL, bytes)";

fn create(connection: &Connection) -> Result<ContentId, Fault> {
    connection.prepare_cached("INSERT INTO contents (refs) VALUES (1)")?.execute([])?;
    Ok(ContentId(connection.last_insert_rowid()))
}

/// Counts one name less and returns how many are left; at none the content's own row goes.
fn unname(connection: &Connection, content: ContentId) -> Result<i64, Fault> {
    let refs: Option<i64> = connection
        .prepare_cached("UPDATE contents SET refs = refs - 1 WHERE id = ?1 RETURNING refs")?
        .query_row(params![content.0], |row| row.get(0))
        .optional()?;
    let refs = refs.ok_or_else(|| Fault::corrupt(format!("an object without its content {}", content.0)))?;
    if refs == 0 {
        connection.prepare_cached("DELETE FROM contents WHERE id = ?1")?.execute(params![content.0])?;
    }
    Ok(refs)
}
