//! Names: planners that find, make, move and remove nodes over a [`View`], without I/O of their own.
//!
//! 1. Every plan keeps the names right (`check` says what that means): rows, counts and parents change together.
//! 2. A planner checks all that it can before its first change; the view of a plan that failed is dropped (`view`, 2).
//! 3. Permissions were checked before: no planner looks at who calls.
//!
//! Left out: the content of files. A node that is [`Gone`] and not kept has lost its rows here, but its runs and what is
//! written of it and not yet placed are freed by the caller, in the same transaction.

mod attributes;
mod check;
mod lookup;
mod make;
mod remove;
mod rename;

#[cfg(test)]
mod tests;

pub(crate) use attributes::{attribute, attribute_names, remove_attribute, set_attribute, set_attributes};
pub use check::NameProblem;
pub(crate) use check::check_names;
pub(crate) use lookup::{lookup, read_directory, read_link};
pub(crate) use make::{link, make, make_root};
pub(crate) use remove::{Gone, forget_orphan, orphans, remove_directory, unlink};
pub(crate) use rename::rename;

use crate::inode::InodeRecord;
use crate::keys::{self, NAME_BYTES_MAX, Span};
use crate::name::NameRecord;
use crate::view::{View, senseless};
use crate::{FileError, Inode, Kind, Table, Timestamp};

/// The record of a directory, removed or not.
fn directory(view: &View<'_>, inode: Inode) -> Result<InodeRecord, FileError> {
    let record = view.inode(inode)?;
    match record.kind {
        Kind::Directory => Ok(record),
        _ => Err(FileError::NotDirectory),
    }
}

/// Refuses a directory that takes no names: one that was removed and is still open.
fn refuse_removed(view: &View<'_>, inode: Inode) -> Result<(), FileError> {
    match directory(view, inode)?.names {
        0 => Err(FileError::NotFound),
        _ => Ok(()),
    }
}

/// Refuses what no row may be named; `.` and `..` are in every directory without a row.
fn refuse_name(name: &[u8]) -> Result<(), FileError> {
    if name.len() > NAME_BYTES_MAX {
        return Err(FileError::NameTooLong { bytes: name.len() });
    }
    match name {
        b"" | b"." | b".." => Err(FileError::Invalid),
        _ if name.contains(&b'/') || name.contains(&0) => Err(FileError::Invalid),
        _ => Ok(()),
    }
}

/// What stands under a name.
fn named(view: &View<'_>, directory: Inode, name: &[u8]) -> Result<Option<NameRecord>, FileError> {
    let key = keys::name(directory, name);
    let Some(value) = view.get(Table::Names, &key)? else { return Ok(None) };
    NameRecord::decode(&value).map(Some).map_err(|source| senseless(Table::Names, &key, source))
}

fn set_name(view: &mut View<'_>, (directory, name): (Inode, &[u8]), record: NameRecord) {
    view.set(Table::Names, &keys::name(directory, name), record.encode());
}

/// The record of a node that a row names: it is there.
fn node(view: &View<'_>, inode: Inode) -> Result<InodeRecord, FileError> {
    view.inode(inode).map_err(|error| match error {
        FileError::NotFound => FileError::Failed { why: format!("inode {inode} has a name and is not there") },
        error => error,
    })
}

fn is_empty(view: &View<'_>, directory: Inode) -> Result<bool, FileError> {
    Ok(view.range(Table::Names, &Span::of(directory), 1)?.is_empty())
}

/// Changes the record of a node.
fn edit(view: &mut View<'_>, inode: Inode, change: impl FnOnce(&mut InodeRecord)) -> Result<(), FileError> {
    let mut record = node(view, inode)?;
    change(&mut record);
    view.set_inode(inode, &record);
    Ok(())
}

/// Notes in a directory that its rows changed.
fn touch(view: &mut View<'_>, directory: Inode, now: Timestamp) -> Result<(), FileError> {
    edit(view, directory, |record| {
        record.modified = now;
        record.changed = now;
    })
}

/// One directory more in a directory.
fn count_directory(view: &mut View<'_>, parent: Inode) -> Result<(), FileError> {
    let mut record = node(view, parent)?;
    record.names = record.names.checked_add(1).ok_or(FileError::TooManyNames { names: record.names })?;
    view.set_inode(parent, &record);
    Ok(())
}

/// One directory less in a directory.
fn discount_directory(view: &mut View<'_>, parent: Inode) -> Result<(), FileError> {
    let mut record = node(view, parent)?;
    if record.names < 3 {
        let why = format!("directory {parent} counts {} names and has a directory in it", record.names);
        return Err(FileError::Failed { why });
    }
    record.names -= 1;
    view.set_inode(parent, &record);
    Ok(())
}
