//! Attributes of nodes: those that every node has, and extended ones.

use crate::inode::InodeRecord;
use crate::keys::{self, NAME_BYTES_MAX, Span};
use crate::view::{View, senseless};
use crate::{FileError, Inode, Kind, NewAttributes, Setting, Table, Timestamp};

/// The longest value of an extended attribute.
pub(crate) const VALUE_BYTES_MAX: usize = 65_536;

/// Sets attributes and returns the record. Of a file's `bytes` it sets the number: cutting its tail and its runs, and the
/// limit of what a file holds, are the caller's.
pub(crate) fn set_attributes(
    view: &mut View<'_>,
    inode: Inode,
    new: &NewAttributes,
    now: Timestamp,
) -> Result<InodeRecord, FileError> {
    let mut record = view.inode(inode)?;
    if let Some(bytes) = new.bytes {
        match record.kind {
            Kind::File => record.bytes = bytes,
            Kind::Directory => return Err(FileError::IsDirectory),
            _ => return Err(FileError::Invalid),
        }
        record.modified = now;
    }
    let time = |setting: Setting| match setting {
        Setting::Now => now,
        Setting::At(time) => time,
    };
    record.permissions = new.permissions.map_or(record.permissions, |permissions| permissions & 0o7777);
    record.owner = new.owner.unwrap_or(record.owner);
    record.owner_group = new.owner_group.unwrap_or(record.owner_group);
    record.accessed = new.accessed.map_or(record.accessed, time);
    record.modified = new.modified.map_or(record.modified, time);
    record.changed = new.changed.unwrap_or(now);
    record.made = new.made.unwrap_or(record.made);
    view.set_inode(inode, &record);
    Ok(record)
}

/// The value of an extended attribute.
pub(crate) fn attribute(view: &View<'_>, inode: Inode, name: &[u8]) -> Result<Vec<u8>, FileError> {
    view.inode(inode)?;
    refuse_name(name)?;
    view.get(Table::Attributes, &keys::attribute(inode, name))?.ok_or(FileError::NoAttribute)
}

/// The names of all extended attributes, sorted.
pub(crate) fn attribute_names(view: &View<'_>, inode: Inode) -> Result<Vec<Vec<u8>>, FileError> {
    view.inode(inode)?;
    let names = view.rows(Table::Attributes, &Span::of(inode))?.map(|row| {
        let (key, _) = row?;
        let (_, name) = keys::decode_name(&key).map_err(|source| senseless(Table::Attributes, &key, source))?;
        Ok(name.to_vec())
    });
    names.collect()
}

/// Sets an extended attribute: `Some(true)` only where it is there already, `Some(false)` only where it is not.
pub(crate) fn set_attribute(
    view: &mut View<'_>,
    inode: Inode,
    name: &[u8],
    value: &[u8],
    there: Option<bool>,
    now: Timestamp,
) -> Result<(), FileError> {
    refuse_name(name)?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(FileError::AttributeTooLong { bytes: value.len() });
    }
    let key = keys::attribute(inode, name);
    let mut record = view.inode(inode)?;
    match (there, view.get(Table::Attributes, &key)?) {
        (Some(true), None) => return Err(FileError::NoAttribute),
        (Some(false), Some(_)) => return Err(FileError::Exists),
        _ => {}
    }
    record.changed = now;
    view.set_inode(inode, &record);
    view.set(Table::Attributes, &key, value.to_vec());
    Ok(())
}

/// Removes an extended attribute.
pub(crate) fn remove_attribute(
    view: &mut View<'_>,
    inode: Inode,
    name: &[u8],
    now: Timestamp,
) -> Result<(), FileError> {
    attribute(view, inode, name)?;
    let mut record = view.inode(inode)?;
    record.changed = now;
    view.set_inode(inode, &record);
    view.delete(Table::Attributes, &keys::attribute(inode, name));
    Ok(())
}

/// Refuses what no attribute may be named: names of attributes may have slashes.
fn refuse_name(name: &[u8]) -> Result<(), FileError> {
    match name.len() {
        0 => Err(FileError::Invalid),
        1..=NAME_BYTES_MAX if name.contains(&0) => Err(FileError::Invalid),
        1..=NAME_BYTES_MAX => Ok(()),
        bytes => Err(FileError::NameTooLong { bytes }),
    }
}
