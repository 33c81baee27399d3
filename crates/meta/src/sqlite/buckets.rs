//! Buckets in SQLite.

use std::collections::BTreeMap;

use async_trait::async_trait;
use claystone_code::CodeSpec;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteMeta;
use super::fault::Fault;
use super::rows::{Int, parse_code, parse_policy, time};
use super::uploads::abort_all;
use crate::{BucketId, BucketRecord, BucketRecords, HeatPolicy, MetaError, NewBucket};

#[async_trait]
impl BucketRecords for SqliteMeta {
    async fn create_bucket_with(&self, bucket: NewBucket) -> Result<BucketRecord, MetaError> {
        self.write(move |connection| create(connection, &bucket)).await
    }

    async fn bucket(&self, name: &str) -> Result<BucketRecord, MetaError> {
        let name = name.to_owned();
        self.read(move |connection| existing(connection, &name)).await
    }

    async fn buckets(&self) -> Result<Vec<BucketRecord>, MetaError> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT id, name, owner, created_ms, code, documents, policy FROM buckets ORDER BY name",
            )?;
            let mut rows = statement.query([])?;
            let mut buckets = Vec::new();
            while let Some(row) = rows.next()? {
                buckets.push(bucket_from(row)?);
            }
            Ok(buckets)
        })
        .await
    }

    async fn delete_bucket(&self, name: &str) -> Result<(), MetaError> {
        let name = name.to_owned();
        self.free(move |connection| {
            let bucket = existing(connection, &name)?;
            let used = connection
                .prepare_cached("SELECT EXISTS (SELECT 1 FROM objects WHERE bucket = ?1)")?
                .query_row(params![bucket.id.0], |row| row.get(0))?;
            if used {
                return Err(MetaError::BucketNotEmpty { name: name.clone() }.into());
            }
            abort_all(connection, bucket.id)?;
            connection.prepare_cached("DELETE FROM buckets WHERE id = ?1")?.execute(params![bucket.id.0])?;
            Ok(())
        })
        .await
    }

    async fn set_document(&self, name: &str, document: &str, content: Option<Vec<u8>>) -> Result<(), MetaError> {
        let (name, document) = (name.to_owned(), document.to_owned());
        self.write(move |connection| {
            let mut bucket = existing(connection, &name)?;
            match &content {
                Some(content) => bucket.documents.insert(document.clone(), content.clone()),
                None => bucket.documents.remove(&document),
            };
            connection
                .prepare_cached("UPDATE buckets SET documents = ?2 WHERE id = ?1")?
                .execute(params![bucket.id.0, pack(&bucket.documents)])?;
            Ok(())
        })
        .await
    }

    async fn set_code(&self, name: &str, code: Option<CodeSpec>) -> Result<(), MetaError> {
        let name = name.to_owned();
        self.write(move |connection| {
            let bucket = existing(connection, &name)?;
            connection
                .prepare_cached("UPDATE buckets SET code = ?2, policy = iif(?2 IS NULL, policy, NULL) WHERE id = ?1")?
                .execute(params![bucket.id.0, code.map(|code| code.to_string())])?;
            Ok(())
        })
        .await
    }

    async fn set_policy(&self, name: &str, policy: Option<HeatPolicy>) -> Result<(), MetaError> {
        let name = name.to_owned();
        self.write(move |connection| {
            // What it was is not read: it may be what cannot be.
            let changed = connection
                .prepare_cached("UPDATE buckets SET policy = ?2 WHERE name = ?1")?
                .execute(params![name, policy.map(|policy| policy.to_string())])?;
            if changed == 0 { Err(MetaError::NoSuchBucket { name: name.clone() }.into()) } else { Ok(()) }
        })
        .await
    }
}

fn create(connection: &Connection, bucket: &NewBucket) -> Result<BucketRecord, Fault> {
    let NewBucket { name, owner, code, policy, documents, created } = bucket.clone();
    if let Some(bucket) = find(connection, &name)? {
        return Err(MetaError::BucketExists { name, owner: bucket.owner }.into());
    }
    let texts = (code.map(|code| code.to_string()), policy.map(|policy| policy.to_string()));
    connection
        .prepare_cached(
            "INSERT INTO buckets (name, owner, created_ms, code, policy, documents) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![name, owner, Int(created.unix_ms), texts.0, texts.1, pack(&documents)])?;
    Ok(BucketRecord { id: BucketId(connection.last_insert_rowid()), name, owner, created, code, policy, documents })
}

/// A bucket from the columns `id, name, owner, created_ms, code, documents, policy`, which come first in the row.
pub(super) fn bucket_from(row: &Row<'_>) -> Result<BucketRecord, Fault> {
    let (code, policy): (Option<String>, Option<String>) = (row.get(4)?, row.get(6)?);
    let documents = row.get_ref(5)?.as_blob().map_err(|_| Fault::corrupt("bucket documents"))?;
    Ok(BucketRecord {
        id: BucketId(row.get(0)?),
        name: row.get(1)?,
        owner: row.get(2)?,
        created: time(row, 3)?,
        code: code.as_deref().map(parse_code).transpose()?,
        policy: policy.as_deref().map(parse_policy).transpose()?,
        documents: unpack(documents).ok_or_else(|| Fault::corrupt("bucket documents"))?,
    })
}

/// Fails with `NoSuchBucket` if the bucket went away.
pub(super) fn require(connection: &Connection, bucket: BucketId) -> Result<(), Fault> {
    let there: bool = connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM buckets WHERE id = ?1)")?
        .query_row(params![bucket.0], |row| row.get(0))?;
    // The caller knows the name; here is only the row.
    if there { Ok(()) } else { Err(MetaError::NoSuchBucket { name: format!("#{}", bucket.0) }.into()) }
}

fn existing(connection: &Connection, name: &str) -> Result<BucketRecord, Fault> {
    find(connection, name)?.ok_or_else(|| MetaError::NoSuchBucket { name: name.to_owned() }.into())
}

fn find(connection: &Connection, name: &str) -> Result<Option<BucketRecord>, Fault> {
    connection
        .prepare_cached("SELECT id, name, owner, created_ms, code, documents, policy FROM buckets WHERE name = ?1")?
        .query_row(params![name], |row| Ok(bucket_from(row)))
        .optional()?
        .transpose()
}

/// Documents as one column: for each, in the order of the names, length and bytes of its name and of its content;
/// lengths are 4 bytes, little-endian.
fn pack(documents: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let mut packed = Vec::new();
    for (name, content) in documents {
        for bytes in [name.as_bytes(), content] {
            let length = u32::try_from(bytes.len()).expect("a document came in one request of less than 4 GiB");
            packed.extend_from_slice(&length.to_le_bytes());
            packed.extend_from_slice(bytes);
        }
    }
    packed
}

fn unpack(mut packed: &[u8]) -> Option<BTreeMap<String, Vec<u8>>> {
    let mut next = || -> Option<Option<&[u8]>> {
        if packed.is_empty() {
            return Some(None);
        }
        let (length, rest) = packed.split_first_chunk::<4>()?;
        let (bytes, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        packed = rest;
        Some(Some(bytes))
    };
    let mut documents = BTreeMap::new();
    while let Some(name) = next()? {
        let content = next()??;
        documents.insert(String::from_utf8(name.to_vec()).ok()?, content.to_vec());
    }
    Some(documents)
}

#[cfg(test)]
mod tests {
    use super::{pack, unpack};

    #[test]
    fn documents_survive_packing_and_cuts_are_noticed() {
        let documents = [("cors".to_owned(), b"<x/>".to_vec()), ("tagging".to_owned(), Vec::new())].into();
        let packed = pack(&documents);
        let golden = b"\x04\0\0\0cors\x04\0\0\0<x/>\x07\0\0\0tagging\0\0\0\0";
        assert_eq!(packed, golden);
        assert_eq!(unpack(&packed), Some(documents));
        // Behind the first document the text is whole again.
        let whole = [0, 16, packed.len()];
        for length in 0..=packed.len() {
            assert_eq!(unpack(&packed[..length]).is_some(), whole.contains(&length), "cut to {length} bytes");
        }
        assert_eq!(unpack(b"\x01\0\0\0\xff\0\0\0\0"), None, "a name that is not UTF-8");
    }
}
