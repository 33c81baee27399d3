//! Values between rows and records.

use claystone_chunk::{DiskId, StripeId};
use claystone_code::CodeSpec;
use claystone_env::WallTime;
use rusqlite::Row;
use rusqlite::types::{ToSql, ToSqlOutput};

use super::fault::Fault;
use crate::{HeatPolicy, Redundancy, VersionName};

/// A count, size or time in a column; SQLite's integers end at 2^63.
pub(super) struct Int(pub(super) u64);

impl ToSql for Int {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match i64::try_from(self.0) {
            Ok(value) => Ok(ToSqlOutput::from(value)),
            Err(error) => Err(rusqlite::Error::ToSqlConversionFailure(Box::new(error))),
        }
    }
}

/// The row limit of a query for `limit` results.
pub(super) fn rows(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(row: &Row<'_>, column: usize) -> Result<u64, Fault> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| Fault::corrupt("a negative count"))
}

pub(super) fn time(row: &Row<'_>, column: usize) -> Result<WallTime, Fault> {
    Ok(WallTime { unix_ms: unsigned(row, column)? })
}

/// A column with UTF-8 text that is stored as bytes, so that it compares as bytes.
pub(super) fn text(row: &Row<'_>, column: usize) -> Result<String, Fault> {
    String::from_utf8(row.get(column)?).map_err(|_| Fault::corrupt("a key that is not UTF-8"))
}

pub(super) fn code(row: &Row<'_>, column: usize) -> Result<CodeSpec, Fault> {
    parse_code(row.get_ref(column)?.as_str().map_err(|_| Fault::corrupt("a code that is no text"))?)
}

pub(super) fn parse_code(text: &str) -> Result<CodeSpec, Fault> {
    text.parse().map_err(|_| Fault::corrupt(format!("the code {text:?}")))
}

pub(super) fn redundancy(row: &Row<'_>, column: usize) -> Result<Redundancy, Fault> {
    parse_redundancy(row.get_ref(column)?.as_str().map_err(|_| Fault::corrupt("a redundancy that is no text"))?)
}

pub(super) fn parse_redundancy(text: &str) -> Result<Redundancy, Fault> {
    text.parse().map_err(|_| Fault::corrupt(format!("the redundancy {text:?}")))
}

pub(super) fn parse_policy(text: &str) -> Result<HeatPolicy, Fault> {
    text.parse().map_err(|_| Fault::corrupt(format!("the policy {text:?}")))
}

pub(super) fn stripe_id(row: &Row<'_>, column: usize) -> Result<StripeId, Fault> {
    Ok(StripeId(u128::from_be_bytes(row.get(column)?)))
}

pub(super) fn disk_id(row: &Row<'_>, column: usize) -> Result<DiskId, Fault> {
    Ok(DiskId(u128::from_be_bytes(row.get(column)?)))
}

/// A version's name as its column has it: NULL for `null`.
pub(super) fn version_column(version: &VersionName) -> Option<&str> {
    if *version == VersionName::null() { None } else { Some(&version.0) }
}

pub(super) fn version_name(column: Option<String>) -> VersionName {
    column.map_or_else(VersionName::null, VersionName)
}
