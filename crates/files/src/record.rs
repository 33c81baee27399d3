//! The bytes of the records of a journal entry.
//!
//! Invariants:
//! 1. What was encoded parses to the same records; any other bytes parse or are refused with their place, never more.

use claystone_env::SECTOR_BYTES;

use crate::Inode;
use crate::change::{Change, Record, Table};
use crate::fields::{array_at, u16_at, u32_at, u64_at};

/// The most bytes of a key.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;
/// The most bytes of a value.
pub const VALUE_BYTES_MAX: usize = u32::MAX as usize - 1;

/// Bytes that a record takes.
pub fn record_bytes(record: &Record) -> usize {
    match record {
        Record::Change(change) => CHANGE_BYTES + change.key.len() + change.value.as_ref().map_or(0, Vec::len),
        Record::Written { .. } => WRITTEN_BYTES + SECTOR_BYTES,
        Record::Sums { .. } => SUMS_BYTES + SECTOR_BYTES,
        Record::Forget { .. } => FORGET_BYTES,
    }
}

/// Puts a record behind `bytes`.
///
/// # Panics
/// If a key or a value is too long, or what is a sector is not.
pub fn put_record(record: &Record, bytes: &mut Vec<u8>) {
    match record {
        Record::Change(change) => {
            assert!(change.key.len() <= KEY_BYTES_MAX, "a key of {} bytes", change.key.len());
            let value_bytes = match &change.value {
                Some(value) => {
                    assert!(value.len() <= VALUE_BYTES_MAX, "a value of {} bytes", value.len());
                    value.len() as u32
                }
                None => DELETE,
            };
            bytes.extend_from_slice(&[CHANGE, change.table as u8]);
            bytes.extend_from_slice(&(change.key.len() as u16).to_le_bytes());
            bytes.extend_from_slice(&value_bytes.to_le_bytes());
            bytes.extend_from_slice(&change.key);
            bytes.extend_from_slice(change.value.as_deref().unwrap_or_default());
        }
        Record::Written { inode, sector, bytes: content } => {
            assert_eq!(content.len(), SECTOR_BYTES, "a sector of a file");
            bytes.push(WRITTEN);
            bytes.extend_from_slice(&inode.0.to_le_bytes());
            bytes.extend_from_slice(&sector.to_le_bytes());
            bytes.extend_from_slice(content);
        }
        Record::Sums { place, bytes: content } => {
            assert_eq!(content.len(), SECTOR_BYTES, "a sums sector");
            bytes.push(SUMS);
            bytes.extend_from_slice(&place.to_le_bytes());
            bytes.extend_from_slice(content);
        }
        Record::Forget { inode, first, end } => {
            bytes.push(FORGET);
            bytes.extend_from_slice(&inode.0.to_le_bytes());
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&end.to_le_bytes());
        }
    }
}

/// The records that `bytes` are; `Err` is where they are none.
pub fn parse_records(bytes: &[u8]) -> Result<Vec<Record>, usize> {
    let mut records = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (record, taken) = parse_record(rest).ok_or(bytes.len() - rest.len())?;
        records.push(record);
        rest = &rest[taken..];
    }
    Ok(records)
}

/// The record that `bytes` begin with, and its length.
fn parse_record(bytes: &[u8]) -> Option<(Record, usize)> {
    match *bytes.first()? {
        CHANGE => {
            let head = bytes.get(..CHANGE_BYTES)?;
            let table = table_of(head[1])?;
            let (key_bytes, value_bytes) = (usize::from(u16_at(head, 2)), u32_at(head, 4));
            let (key, rest) = bytes[CHANGE_BYTES..].split_at_checked(key_bytes)?;
            let value = match value_bytes {
                DELETE => None,
                value_bytes => Some(rest.get(..value_bytes as usize)?.to_vec()),
            };
            let taken = CHANGE_BYTES + key_bytes + value.as_ref().map_or(0, Vec::len);
            Some((Record::Change(Change { table, key: key.to_vec(), value }), taken))
        }
        WRITTEN => {
            let all = bytes.get(..WRITTEN_BYTES + SECTOR_BYTES)?;
            let content = all[WRITTEN_BYTES..].to_vec();
            Some((Record::Written { inode: Inode(u64_at(all, 1)), sector: u64_at(all, 9), bytes: content }, all.len()))
        }
        SUMS => {
            let all = bytes.get(..SUMS_BYTES + SECTOR_BYTES)?;
            let place = u64::from_le_bytes(array_at(all, 1));
            Some((Record::Sums { place, bytes: all[SUMS_BYTES..].to_vec() }, all.len()))
        }
        FORGET => {
            let all = bytes.get(..FORGET_BYTES)?;
            let (inode, first, end) = (Inode(u64_at(all, 1)), u64_at(all, 9), u64_at(all, 17));
            Some((Record::Forget { inode, first, end }, FORGET_BYTES))
        }
        _ => None,
    }
}

fn table_of(number: u8) -> Option<Table> {
    let tables =
        [Table::State, Table::Inodes, Table::Names, Table::Attributes, Table::Runs, Table::Free, Table::Orphans];
    tables.into_iter().find(|table| *table as u8 == number)
}

const CHANGE: u8 = 1;
const WRITTEN: u8 = 2;
const SUMS: u8 = 3;
const FORGET: u8 = 4;
/// In place of a value's length: the row is deleted.
const DELETE: u32 = u32::MAX;
/// Bytes before a key, and before the sector that a record carries.
const CHANGE_BYTES: usize = 8;
const WRITTEN_BYTES: usize = 17;
const SUMS_BYTES: usize = 9;
const FORGET_BYTES: usize = 25;
