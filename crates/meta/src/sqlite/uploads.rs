//! Multipart uploads in SQLite.
//!
//! Invariants:
//! 1. Completing or aborting an upload takes its rows and the shares of its parts in their contents away in one
//!    transaction.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, params};

use super::SqliteMeta;
use super::buckets::require;
use super::contents::{acquire, join, release};
use super::fault::Fault;
use super::listing::{self, UPLOAD_COLUMNS, upload_from};
use super::objects::{Slot, assert_content};
use super::rows::{Int, rows, time, unsigned};
use crate::{
    BucketId, Completed, ContentId, ListPage, ListQuery, MetaError, NewContent, PartRecord, PutOutcome, StripeRecord,
    UploadId, UploadRecord, UploadRecords,
};

#[async_trait]
impl UploadRecords for SqliteMeta {
    async fn create_upload(&self, upload: UploadRecord) -> Result<(), MetaError> {
        self.write(move |connection| {
            require(connection, upload.bucket)?;
            connection
                .prepare_cached(
                    "INSERT INTO uploads (id, bucket, key, created_ms, attributes) VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute(params![
                    upload.id.0,
                    upload.bucket.0,
                    upload.key.as_bytes(),
                    Int(upload.created.unix_ms),
                    upload.attributes
                ])?;
            Ok(())
        })
        .await
    }

    async fn upload(&self, bucket: BucketId, key: &str, id: &UploadId) -> Result<UploadRecord, MetaError> {
        let (key, id) = (key.to_owned(), id.clone());
        self.read(move |connection| {
            let found = connection
                .prepare_cached(&format!(
                    "SELECT {UPLOAD_COLUMNS} FROM uploads WHERE id = ?1 AND bucket = ?2 AND key = ?3"
                ))?
                .query_row(params![id.0, bucket.0, key.as_bytes()], |row| Ok(upload_from(row)))
                .optional()?
                .transpose()?;
            found.ok_or_else(|| missing(&id))
        })
        .await
    }

    async fn put_part(
        &self,
        id: &UploadId,
        part: PartRecord,
        content: NewContent,
    ) -> Result<Vec<StripeRecord>, MetaError> {
        assert_content(&content, part.bytes);
        let id = id.clone();
        self.write(move |connection| {
            let upload = number(connection, &id)?;
            let new = acquire(connection, &content, &id.0)?;
            let replaced = connection
                .prepare_cached("SELECT content FROM parts WHERE upload = ?1 AND number = ?2")?
                .query_row(params![upload, part.number], |row| row.get::<_, Option<i64>>(0))
                .optional()?;
            connection
                .prepare_cached(
                    "INSERT OR REPLACE INTO parts (upload, number, content, bytes, etag, created_ms, attributes) \
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                )?
                .execute(params![
                    upload,
                    part.number,
                    new.map(|content| content.0),
                    Int(part.bytes),
                    part.etag,
                    Int(part.created.unix_ms),
                    part.attributes,
                ])?;
            release(connection, replaced.flatten().map(ContentId))
        })
        .await
    }

    async fn parts(&self, id: &UploadId, after: u32, limit: usize) -> Result<(Vec<PartRecord>, bool), MetaError> {
        let id = id.clone();
        self.read_steps(move |connection| {
            let upload = number(connection, &id)?;
            let mut parts = parts_of(connection, upload, after, limit.saturating_add(1))?;
            let more = limit > 0 && parts.len() > limit;
            parts.truncate(limit);
            Ok((parts, more))
        })
        .await
    }

    async fn complete_upload(&self, completed: Completed) -> Result<PutOutcome, MetaError> {
        self.write(move |connection| complete(connection, &completed)).await
    }

    async fn abort_upload(&self, bucket: BucketId, key: &str, id: &UploadId) -> Result<Vec<StripeRecord>, MetaError> {
        let (key, id) = (key.to_owned(), id.clone());
        self.free(move |connection| {
            let upload = number_of(connection, bucket, &key, &id)?;
            abort(connection, upload)
        })
        .await
    }

    async fn list_uploads(
        &self,
        bucket: BucketId,
        query: &ListQuery,
        after_upload: Option<&UploadId>,
    ) -> Result<ListPage<UploadRecord>, MetaError> {
        let (query, after_upload) = (query.clone(), after_upload.cloned());
        self.read_steps(move |connection| listing::uploads(connection, bucket, &query, after_upload.as_ref())).await
    }
}

/// Ends all uploads of a bucket; their stripes are found dead later.
pub(super) fn abort_all(connection: &Connection, bucket: BucketId) -> Result<(), Fault> {
    let mut uploads = connection.prepare_cached("SELECT num FROM uploads WHERE bucket = ?1")?;
    let uploads = uploads.query_map(params![bucket.0], |row| row.get(0))?.collect::<Result<Vec<i64>, _>>()?;
    for upload in uploads {
        abort(connection, upload)?;
    }
    Ok(())
}

fn abort(connection: &Connection, upload: i64) -> Result<Vec<StripeRecord>, Fault> {
    let mut dead = Vec::new();
    for part in parts_of(connection, upload, 0, usize::MAX)? {
        dead.extend(release(connection, part.content)?);
    }
    forget(connection, upload)?;
    Ok(dead)
}

fn complete(connection: &Connection, completed: &Completed) -> Result<PutOutcome, Fault> {
    let Completed { object, upload, parts: named } = completed;
    let upload = number_of(connection, object.bucket, &object.key, upload)?;
    let slot = Slot::find(connection, object)?;

    let (mut contents, mut unnamed, mut bytes) = (Vec::new(), Vec::new(), 0);
    let mut named = named.iter().peekable();
    for part in parts_of(connection, upload, 0, usize::MAX)? {
        match named.next_if(|(number, _)| *number <= part.number) {
            Some((number, etag)) if *number == part.number && *etag == part.etag => {
                bytes += part.bytes;
                contents.extend(part.content);
            }
            Some((number, _)) => return Err(MetaError::InvalidPart { number: *number }.into()),
            None => unnamed.push(part.content),
        }
    }
    if let Some((number, _)) = named.next() {
        return Err(MetaError::InvalidPart { number: *number }.into());
    }

    let content = join(connection, &contents)?;
    let mut outcome = slot.fill(connection, object, content, bytes)?;
    for content in unnamed {
        outcome.dead.extend(release(connection, content)?);
    }
    forget(connection, upload)?;
    Ok(outcome)
}

fn forget(connection: &Connection, upload: i64) -> Result<(), Fault> {
    connection.prepare_cached("DELETE FROM parts WHERE upload = ?1")?.execute(params![upload])?;
    connection.prepare_cached("DELETE FROM uploads WHERE num = ?1")?.execute(params![upload])?;
    Ok(())
}

fn parts_of(connection: &Connection, upload: i64, after: u32, limit: usize) -> Result<Vec<PartRecord>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT number, content, bytes, etag, created_ms, attributes FROM parts \
         WHERE upload = ?1 AND number > ?2 ORDER BY number LIMIT ?3",
    )?;
    let mut found = statement.query(params![upload, after, rows(limit)])?;
    let mut parts = Vec::new();
    while let Some(row) = found.next()? {
        parts.push(PartRecord {
            number: row.get(0)?,
            content: row.get::<_, Option<i64>>(1)?.map(ContentId),
            bytes: unsigned(row, 2)?,
            etag: row.get(3)?,
            created: time(row, 4)?,
            attributes: row.get(5)?,
        });
    }
    Ok(parts)
}

fn number(connection: &Connection, id: &UploadId) -> Result<i64, Fault> {
    connection
        .prepare_cached("SELECT num FROM uploads WHERE id = ?1")?
        .query_row(params![id.0], |row| row.get(0))
        .optional()?
        .ok_or_else(|| missing(id))
}

fn number_of(connection: &Connection, bucket: BucketId, key: &str, id: &UploadId) -> Result<i64, Fault> {
    connection
        .prepare_cached("SELECT num FROM uploads WHERE id = ?1 AND bucket = ?2 AND key = ?3")?
        .query_row(params![id.0, bucket.0, key.as_bytes()], |row| row.get(0))
        .optional()?
        .ok_or_else(|| missing(id))
}

fn missing(id: &UploadId) -> Fault {
    MetaError::NoSuchUpload { id: id.0.clone() }.into()
}
