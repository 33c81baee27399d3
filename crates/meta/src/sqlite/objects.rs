//! Objects in SQLite.
//!
//! Invariants:
//! 1. The current version of a key is its row with the greatest `seq`; a new row gets one more than that.
//! 2. At most one row of a key has a given version name, `null` included.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteMeta;
use super::buckets::{bucket_from, require};
use super::contents::{acquire, release};
use super::fault::Fault;
use super::listing;
use super::packs;
use super::rows::{Int, text, time, unsigned, version_column, version_name};
use super::stripes::{Gather, PLACE_COLUMNS, STRIPE_COLUMNS};
use crate::{
    BucketId, ContentId, DeleteObject, Deleted, Found, ListPage, ListQuery, MetaError, NewContent, NewObject,
    NewStripe, ObjectRecord, ObjectRecords, Precondition, PutOutcome, Span, StripeRecord, VersionName, VersionRef,
    Versioning,
};

#[async_trait]
impl ObjectRecords for SqliteMeta {
    async fn object(&self, bucket: &str, key: &str, version: &VersionRef) -> Result<Found, MetaError> {
        let (bucket, key, version) = (bucket.to_owned(), key.to_owned(), version.clone());
        self.read(move |connection| look_up(connection, &bucket, &key, &version)).await
    }

    async fn put_object(&self, object: NewObject) -> Result<PutOutcome, MetaError> {
        assert_content(&object.content, object.bytes);
        self.write(move |connection| {
            let slot = Slot::find(connection, &object)?;
            let content = acquire(connection, &object.content, &object.key)?;
            slot.fill(connection, &object, content, object.bytes)
        })
        .await
    }

    async fn delete_object(&self, delete: DeleteObject) -> Result<Deleted, MetaError> {
        self.free(move |connection| remove(connection, &delete)).await
    }

    async fn set_attributes(&self, seen: &ObjectRecord, attributes: Vec<u8>) -> Result<(), MetaError> {
        let seen = seen.clone();
        self.write(move |connection| {
            let Some(row) = VersionRow::named(connection, seen.bucket, &seen.key, &seen.version)? else {
                return Err(MetaError::NoSuchObject { key: seen.key.clone() }.into());
            };
            let set = connection
                .prepare_cached(
                    "UPDATE objects SET attributes = ?4 WHERE bucket = ?1 AND key = ?2 AND seq = ?3 \
                     AND content IS ?5 AND created_ms = ?6 AND attributes = ?7",
                )?
                .execute(params![
                    seen.bucket.0,
                    seen.key.as_bytes(),
                    row.seq,
                    attributes,
                    seen.content.map(|content| content.0),
                    Int(seen.created.unix_ms),
                    seen.attributes,
                ])?;
            if set == 0 { Err(MetaError::ObjectChanged { key: seen.key.clone() }.into()) } else { Ok(()) }
        })
        .await
    }

    async fn list_objects(&self, bucket: BucketId, query: &ListQuery) -> Result<ListPage<ObjectRecord>, MetaError> {
        let query = query.clone();
        self.read_steps(move |connection| listing::objects(connection, bucket, &query)).await
    }
}

/// Columns of an object version `o`.
pub(super) const OBJECT_COLUMNS: &str =
    "o.bucket, o.key, o.version, o.delete_marker, o.content, o.bytes, o.etag, o.created_ms, o.attributes";
/// How many they are.
pub(super) const OBJECT_COLUMNS_COUNT: usize = 9;

/// An object version whose columns begin at `at`.
pub(super) fn object_from(row: &Row<'_>, at: usize, current: bool) -> Result<ObjectRecord, Fault> {
    Ok(ObjectRecord {
        bucket: BucketId(row.get(at)?),
        key: text(row, at + 1)?,
        version: version_name(row.get(at + 2)?),
        current,
        delete_marker: row.get(at + 3)?,
        content: row.get::<_, Option<i64>>(at + 4)?.map(ContentId),
        bytes: unsigned(row, at + 5)?,
        etag: row.get(at + 6)?,
        created: time(row, at + 7)?,
        attributes: row.get(at + 8)?,
    })
}

/// Checks what the writer says of itself.
///
/// # Panics
/// If lengths, chunk counts or places do not belong together: ranges of such an object could not be read.
pub(super) fn assert_content(content: &NewContent, bytes: u64) {
    match content {
        NewContent::Empty => assert_eq!(bytes, 0, "an empty content has no bytes"),
        NewContent::Stripes(stripes) => {
            assert_eq!(bytes, stripes.iter().map(|new| new.bytes).sum::<u64>(), "stripes hold all bytes");
            for new @ NewStripe { stripe, bytes } in stripes {
                let holds = *bytes <= stripe.data_bytes && new.held().all(|(held, _)| held > 0);
                assert!(holds, "each band of a stripe holds some of its bytes: {bytes}");
                assert_new(stripe);
            }
        }
        NewContent::Part(new) => {
            assert_eq!(bytes, new.part.bytes, "the part holds all bytes");
            assert!(bytes > 0 && new.part.end() <= new.pack.data_bytes, "a part lies in its pack");
            assert!(new.pack.bands.is_empty(), "a new pack is one band");
            assert_new(&new.pack);
        }
        NewContent::Shared(_) => {}
    }
}

/// Checks what the writer says of a stripe that no row names yet.
///
/// # Panics
/// If lengths, chunk counts or places do not belong together.
fn assert_new(stripe: &StripeRecord) {
    assert!(stripe.data_bytes > 0, "a stripe holds at least one byte");
    assert!(stripe.origins.is_empty(), "a new stripe has its own name");
    assert_eq!(stripe.places.len(), usize::from(stripe.code.shape().chunks()), "one place for each chunk");
}

/// One statement, seeking from the bucket's name down to the chunks.
pub(super) fn look_up_sql(version: &VersionRef) -> String {
    // Every step is at most one row until the spans, so the rows come in order without sorting.
    let newest = "(SELECT n.seq FROM objects n WHERE n.bucket = b.id AND n.key = ?2 ORDER BY n.seq DESC LIMIT 1)";
    let which = match version {
        VersionRef::Current => format!("o.seq = {newest}"),
        VersionRef::Named(name) if version_column(name).is_some() => "o.version = ?3".to_owned(),
        VersionRef::Named(_) => "o.version IS NULL".to_owned(),
    };
    format!(
        "SELECT b.id, b.name, b.owner, b.created_ms, b.code, b.documents, b.policy, o.seq = {newest}, {OBJECT_COLUMNS}, \
         p.band, p.first, p.bytes, {STRIPE_COLUMNS}, {PLACE_COLUMNS} \
         FROM buckets b \
         LEFT JOIN objects o ON o.bucket = b.id AND o.key = ?2 AND {which} \
         LEFT JOIN spans p ON p.content = o.content \
         LEFT JOIN stripes s ON s.id = p.stripe \
         LEFT JOIN chunks c ON c.stripe = s.id \
         LEFT JOIN disks d ON d.num = c.disk \
         WHERE b.name = ?1 ORDER BY p.position, c.idx"
    )
}

fn look_up(connection: &Connection, bucket: &str, key: &str, version: &VersionRef) -> Result<Found, Fault> {
    let name = match version {
        VersionRef::Current => None,
        VersionRef::Named(name) => version_column(name),
    };
    let mut statement = connection.prepare_cached(&look_up_sql(version))?;
    let mut rows = match name {
        Some(name) => statement.query(params![bucket, key.as_bytes(), name])?,
        None => statement.query(params![bucket, key.as_bytes()])?,
    };
    let mut found = None;
    let (mut stripes, mut places) = (Gather::default(), Vec::new());
    while let Some(row) = rows.next()? {
        if found.is_none() {
            let current: Option<bool> = row.get(7)?;
            let object = current.map(|current| object_from(row, 8, current)).transpose()?;
            found = Some((bucket_from(row)?, object));
        }
        // A span of no stripe reads as none, and its bytes are missing below.
        let band: Option<u16> = row.get(8 + OBJECT_COLUMNS_COUNT)?;
        if stripes.take(row, 11 + OBJECT_COLUMNS_COUNT)? {
            let band = band.ok_or_else(|| Fault::corrupt(format!("the spans of object {key:?}")))?;
            places.push((band, packs::held(row, 9 + OBJECT_COLUMNS_COUNT)?));
        }
    }
    let (bucket, object) = found.ok_or_else(|| MetaError::NoSuchBucket { name: bucket.to_owned() })?;
    let spans = stripes.finish()?.into_iter().zip(places).map(|(stripe, (band, held))| Span { stripe, band, held });
    let spans: Vec<Span> = spans.collect();
    if spans.iter().any(|span| span.range().end() > span.band_bytes()) {
        return Err(Fault::corrupt(format!("the parts of object {key:?}")));
    }
    let bytes: u64 = spans.iter().map(Span::data_bytes).sum();
    if object.as_ref().map_or(0, |object| object.bytes) != bytes {
        return Err(Fault::corrupt(format!("the stripes of object {key:?}")));
    }
    Ok(Found { bucket, object, spans })
}

/// What writes need to know of a version.
pub(super) struct VersionRow {
    seq: i64,
    version: VersionName,
    delete_marker: bool,
    content: Option<ContentId>,
    etag: String,
}

impl VersionRow {
    fn newest(connection: &Connection, bucket: BucketId, key: &str) -> Result<Option<VersionRow>, Fault> {
        let found = connection
            .prepare_cached(
                "SELECT seq, version, delete_marker, content, etag FROM objects WHERE bucket = ?1 AND key = ?2 \
                 ORDER BY seq DESC LIMIT 1",
            )?
            .query_row(params![bucket.0, key.as_bytes()], VersionRow::from_row)
            .optional()?;
        Ok(found)
    }

    pub(super) fn named(
        connection: &Connection,
        bucket: BucketId,
        key: &str,
        version: &VersionName,
    ) -> Result<Option<VersionRow>, Fault> {
        let found = match version_column(version) {
            Some(name) => connection
                .prepare_cached(
                    "SELECT seq, version, delete_marker, content, etag FROM objects \
                     WHERE bucket = ?1 AND key = ?2 AND version = ?3",
                )?
                .query_row(params![bucket.0, key.as_bytes(), name], VersionRow::from_row)
                .optional()?,
            None => connection
                .prepare_cached(
                    "SELECT seq, version, delete_marker, content, etag FROM objects \
                     WHERE bucket = ?1 AND key = ?2 AND version IS NULL",
                )?
                .query_row(params![bucket.0, key.as_bytes()], VersionRow::from_row)
                .optional()?,
        };
        Ok(found)
    }

    fn from_row(row: &Row<'_>) -> rusqlite::Result<VersionRow> {
        Ok(VersionRow {
            seq: row.get(0)?,
            version: version_name(row.get(1)?),
            delete_marker: row.get(2)?,
            content: row.get::<_, Option<i64>>(3)?.map(ContentId),
            etag: row.get(4)?,
        })
    }

    pub(super) fn seq(&self) -> i64 {
        self.seq
    }
}

/// Whether `row`, if it is an object, is as the condition wants it.
fn check(precondition: &Precondition, row: Option<&VersionRow>, key: &str) -> Result<(), MetaError> {
    let etag = row.filter(|row| !row.delete_marker).map(|row| row.etag.as_str());
    let missing = || MetaError::NoSuchObject { key: key.to_owned() };
    let holds = match precondition {
        Precondition::None => true,
        Precondition::Absent => etag.is_none(),
        Precondition::Exists => etag.map(|_| true).ok_or_else(missing)?,
        Precondition::Etag(wanted) => etag.map(|etag| etag == wanted).ok_or_else(missing)?,
        Precondition::NotEtag(unwanted) => etag != Some(unwanted),
    };
    if holds { Ok(()) } else { Err(MetaError::PreconditionFailed { key: key.to_owned() }) }
}

/// Where a new version goes: found first, because finding checks the precondition.
pub(super) struct Slot {
    seq: i64,
    version: VersionName,
    replaced: Option<VersionRow>,
}

impl Slot {
    pub(super) fn find(connection: &Connection, object: &NewObject) -> Result<Slot, Fault> {
        require(connection, object.bucket)?;
        let newest = VersionRow::newest(connection, object.bucket, &object.key)?;
        check(&object.precondition, newest.as_ref(), &object.key)?;
        let version = match &object.versioning {
            Versioning::Off => VersionName::null(),
            Versioning::On(name) => name.clone(),
        };
        Slot::of(connection, object.bucket, &object.key, version, newest)
    }

    fn of(
        connection: &Connection,
        bucket: BucketId,
        key: &str,
        version: VersionName,
        newest: Option<VersionRow>,
    ) -> Result<Slot, Fault> {
        let seq = newest.as_ref().map_or(1, |row| row.seq + 1);
        let replaced = match newest {
            None => None,
            Some(row) if row.version == version => Some(row),
            Some(_) => VersionRow::named(connection, bucket, key, &version)?,
        };
        Ok(Slot { seq, version, replaced })
    }

    /// Writes the version; what it replaces dies after the new content has its share in it.
    pub(super) fn fill(
        self,
        connection: &Connection,
        object: &NewObject,
        content: Option<ContentId>,
        bytes: u64,
    ) -> Result<PutOutcome, Fault> {
        let dead = match &self.replaced {
            Some(row) => drop_version(connection, object.bucket, &object.key, row)?,
            None => Vec::new(),
        };
        connection
            .prepare_cached(
                "INSERT INTO objects (bucket, key, seq, version, delete_marker, content, bytes, etag, created_ms, attributes) \
                 VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                object.bucket.0,
                object.key.as_bytes(),
                self.seq,
                version_column(&self.version),
                content.map(|content| content.0),
                Int(bytes),
                object.etag,
                Int(object.created.unix_ms),
                object.attributes,
            ])?;
        Ok(PutOutcome { version: self.version, dead })
    }
}

fn remove(connection: &Connection, delete: &DeleteObject) -> Result<Deleted, Fault> {
    let DeleteObject { bucket, key, version, marker, precondition, now } = delete;
    require(connection, *bucket)?;
    let (target, newest) = match version {
        VersionRef::Named(name) => {
            let row = VersionRow::named(connection, *bucket, key, name)?;
            check(precondition, row.as_ref(), key)?;
            (row, None)
        }
        VersionRef::Current => {
            let newest = VersionRow::newest(connection, *bucket, key)?;
            check(precondition, newest.as_ref(), key)?;
            let gone = marker.clone().unwrap_or_else(VersionName::null);
            let seq = newest.as_ref().map_or(1, |row| row.seq + 1);
            let slot = Slot::of(connection, *bucket, key, gone, newest)?;
            (slot.replaced, marker.as_ref().map(|marker| (marker, seq)))
        }
    };
    let mut deleted = Deleted::default();
    if let Some(row) = target {
        deleted.dead = drop_version(connection, *bucket, key, &row)?;
        deleted.removed = Some((row.version, row.delete_marker));
    }
    if let Some((marker, seq)) = newest {
        connection
            .prepare_cached(
                "INSERT INTO objects (bucket, key, seq, version, delete_marker, content, bytes, etag, created_ms, attributes) \
                 VALUES (?1, ?2, ?3, ?4, 1, NULL, 0, '', ?5, x'')",
            )?
            .execute(params![bucket.0, key.as_bytes(), seq, version_column(marker), Int(now.unix_ms)])?;
        deleted.marker = Some(marker.clone());
    }
    Ok(deleted)
}

fn drop_version(
    connection: &Connection,
    bucket: BucketId,
    key: &str,
    row: &VersionRow,
) -> Result<Vec<StripeRecord>, Fault> {
    connection.prepare_cached("DELETE FROM objects WHERE bucket = ?1 AND key = ?2 AND seq = ?3")?.execute(params![
        bucket.0,
        key.as_bytes(),
        row.seq
    ])?;
    release(connection, row.content)
}
