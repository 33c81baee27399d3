//! Pages of keys: seeking over what is folded instead of reading it.
//!
//! Invariants:
//! 1. Keys compare as bytes: they are stored as BLOBs, and SQLite compares those by `memcmp`.
//! 2. A folded prefix costs one seek and one row, however many keys it holds; a key costs at most
//!    [`OLD_VERSIONS_MAX`] rows of versions that are not listed.
//! 3. A page is truncated exactly when something that it could list follows.

use rusqlite::{Connection, Row, params};

use super::fault::Fault;
use super::objects::{OBJECT_COLUMNS, OBJECT_COLUMNS_COUNT, VersionRow, object_from};
use super::rows::{text, time};
use crate::{BucketId, ListPage, ListQuery, ObjectRecord, UploadId, UploadRecord};

/// Older versions of a key that are stepped over before seeking behind the key.
const OLD_VERSIONS_MAX: usize = 8;

/// Current objects, or all versions.
pub(super) fn objects(
    connection: &Connection,
    bucket: BucketId,
    query: &ListQuery,
) -> Result<ListPage<ObjectRecord>, Fault> {
    let mut pager = Pager::new(query);
    if query.limit == 0 {
        return Ok(pager.page);
    }
    let mut from = pager.start(query.after.as_deref());
    if let (true, Some(after), Some(version)) = (query.versions, &query.after, &query.after_version)
        && pager.lists_itself(after)
    {
        // If the version is gone, the key begins anew: whoever deletes what it lists must not miss what remains.
        let seq = VersionRow::named(connection, bucket, after, version)?.map_or(i64::MAX, |row| row.seq());
        let sql = format!(
            "SELECT {OBJECT_COLUMNS}, o.seq = (SELECT max(n.seq) FROM objects n WHERE n.bucket = ?1 AND n.key = ?2) \
             FROM objects o WHERE o.bucket = ?1 AND o.key = ?2 AND o.seq < ?3 ORDER BY o.seq DESC"
        );
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params![bucket.0, after.as_bytes(), seq])?;
        while let Some(row) = rows.next()? {
            let current = row.get(OBJECT_COLUMNS_COUNT)?;
            if pager.entry(|| object_from(row, 0, current))? == Next::Full {
                return Ok(pager.page);
            }
        }
    }

    let sql = format!(
        "SELECT {OBJECT_COLUMNS} FROM objects o WHERE o.bucket = ?1 AND o.key >= ?2 AND o.key < ?3 \
         ORDER BY o.key, o.seq DESC"
    );
    let mut last: Option<Vec<u8>> = None;
    let mut stepped = 0;
    scan(connection, &sql, bucket, &mut from, &pager.end(), |row| {
        let key = row.get_ref(1)?.as_blob().map_err(|_| Fault::corrupt("a key that is no BLOB"))?;
        let newest = last.as_deref() != Some(key);
        if newest {
            last = Some(key.to_vec());
            stepped = 0;
        }
        if query.versions {
            return pager.offer(key, || object_from(row, 0, newest));
        }
        if !newest {
            stepped += 1;
            return Ok(if stepped < OLD_VERSIONS_MAX { Next::Step } else { Next::Seek(behind_key(key)) });
        }
        if row.get(3)? {
            // A delete marker: the key is not there.
            return Ok(Next::Step);
        }
        pager.offer(key, || object_from(row, 0, true))
    })?;
    Ok(pager.page)
}

/// Uploads by key, then id.
pub(super) fn uploads(
    connection: &Connection,
    bucket: BucketId,
    query: &ListQuery,
    after_upload: Option<&UploadId>,
) -> Result<ListPage<UploadRecord>, Fault> {
    let mut pager = Pager::new(query);
    if query.limit == 0 {
        return Ok(pager.page);
    }
    let mut from = pager.start(query.after.as_deref());
    if let (Some(after), Some(upload)) = (&query.after, after_upload)
        && pager.lists_itself(after)
    {
        let sql =
            format!("SELECT {UPLOAD_COLUMNS} FROM uploads WHERE bucket = ?1 AND key = ?2 AND id > ?3 ORDER BY id");
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params![bucket.0, after.as_bytes(), upload.0])?;
        while let Some(row) = rows.next()? {
            if pager.entry(|| upload_from(row))? == Next::Full {
                return Ok(pager.page);
            }
        }
    }
    let sql =
        format!("SELECT {UPLOAD_COLUMNS} FROM uploads WHERE bucket = ?1 AND key >= ?2 AND key < ?3 ORDER BY key, id");
    scan(connection, &sql, bucket, &mut from, &pager.end(), |row| {
        let key = row.get_ref(2)?.as_blob().map_err(|_| Fault::corrupt("a key that is no BLOB"))?;
        pager.offer(key, || upload_from(row))
    })?;
    Ok(pager.page)
}

/// Columns of an upload.
pub(super) const UPLOAD_COLUMNS: &str = "id, bucket, key, created_ms, attributes";

pub(super) fn upload_from(row: &Row<'_>) -> Result<UploadRecord, Fault> {
    Ok(UploadRecord {
        id: UploadId(row.get(0)?),
        bucket: BucketId(row.get(1)?),
        key: text(row, 2)?,
        created: time(row, 3)?,
        attributes: row.get(4)?,
    })
}

/// How a scan goes on after a row.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Step,
    /// At the first key that is not less than this.
    Seek(Vec<u8>),
    Full,
}

/// Visits the rows of keys in `from..end` until the page is full.
fn scan(
    connection: &Connection,
    sql: &str,
    bucket: BucketId,
    from: &mut Vec<u8>,
    end: &[u8],
    mut visit: impl FnMut(&Row<'_>) -> Result<Next, Fault>,
) -> Result<(), Fault> {
    let mut statement = connection.prepare_cached(sql)?;
    'seek: loop {
        let mut rows = statement.query(params![bucket.0, &from[..], end])?;
        while let Some(row) = rows.next()? {
            match visit(row)? {
                Next::Step => {}
                Next::Seek(key) => {
                    *from = key;
                    continue 'seek;
                }
                Next::Full => return Ok(()),
            }
        }
        return Ok(());
    }
}

/// A page that is being filled.
struct Pager<'a, T> {
    query: &'a ListQuery,
    page: ListPage<T>,
}

impl<'a, T> Pager<'a, T> {
    fn new(query: &'a ListQuery) -> Pager<'a, T> {
        assert!(query.delimiter.as_deref() != Some(""), "no delimiter is None");
        Pager { query, page: ListPage { entries: Vec::new(), common_prefixes: Vec::new(), truncated: false } }
    }

    /// The first key that may be listed.
    fn start(&self, after: Option<&str>) -> Vec<u8> {
        let prefix = self.query.prefix.as_bytes();
        let Some(after) = after else { return prefix.to_vec() };
        // A common prefix that is not greater than `after` has been listed: go behind all its keys.
        let from = match self.fold(after.as_bytes()) {
            Some(folded) => behind_prefix(folded),
            None => behind_key(after.as_bytes()),
        };
        from.max(prefix.to_vec())
    }

    /// The first key that may not be listed any more.
    fn end(&self) -> Vec<u8> {
        // No UTF-8 text has a byte of 0xFF.
        if self.query.prefix.is_empty() { vec![0xFF] } else { behind_prefix(self.query.prefix.as_bytes()) }
    }

    /// Whether `key` is listed as itself, not folded and not outside the prefix.
    fn lists_itself(&self, key: &str) -> bool {
        key.starts_with(&self.query.prefix) && self.fold(key.as_bytes()).is_none()
    }

    /// The common prefix that `key` is folded into.
    fn fold<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let delimiter = self.query.delimiter.as_ref()?.as_bytes();
        let rest = key.strip_prefix(self.query.prefix.as_bytes())?;
        let at = rest.windows(delimiter.len()).position(|window| window == delimiter)?;
        Some(&key[..self.query.prefix.len() + at + delimiter.len()])
    }

    /// Lists a key, as itself or folded.
    fn offer(&mut self, key: &[u8], entry: impl FnOnce() -> Result<T, Fault>) -> Result<Next, Fault> {
        let Some(folded) = self.fold(key) else { return self.entry(entry) };
        if self.is_full() {
            return Ok(Next::Full);
        }
        let prefix = String::from_utf8(folded.to_vec()).map_err(|_| Fault::corrupt("a key that is not UTF-8"))?;
        self.page.common_prefixes.push(prefix);
        Ok(Next::Seek(behind_prefix(folded)))
    }

    fn entry(&mut self, entry: impl FnOnce() -> Result<T, Fault>) -> Result<Next, Fault> {
        if self.is_full() {
            return Ok(Next::Full);
        }
        self.page.entries.push(entry()?);
        Ok(Next::Step)
    }

    fn is_full(&mut self) -> bool {
        let listed = self.page.entries.len() + self.page.common_prefixes.len();
        self.page.truncated = listed >= self.query.limit;
        self.page.truncated
    }
}

/// The least key greater than `key`.
fn behind_key(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The least bytes greater than every key that begins with `prefix`, which is UTF-8 and not empty.
fn behind_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut behind = prefix.to_vec();
    let last = behind.last_mut().expect("a folded prefix ends with its delimiter");
    *last = last.checked_add(1).expect("UTF-8 has no byte of 0xFF");
    behind
}
