//! Moving names: what POSIX says of `rename`, and the two modes that Linux has beside it.
//!
//! | what has the new name | `Replace` | `Keep` | `Exchange` |
//! |---|---|---|---|
//! | nothing | moves | moves | `NotFound` |
//! | the same node | nothing happens | `Exists` | nothing happens |
//! | a file, a directory moves | `NotDirectory` | `Exists` | they change places |
//! | a directory, a file moves | `IsDirectory` | `Exists` | they change places |
//! | a directory with rows | `NotEmpty` | `Exists` | they change places |
//! | another of the same sort | is replaced | `Exists` | they change places |
//!
//! A directory that would come to lie in itself is refused with `Invalid` in every mode.

use std::collections::BTreeSet;

use super::remove::{Gone, drop_name};
use super::{
    count_directory, directory, discount_directory, edit, is_empty, named, refuse_name, refuse_removed, set_name, touch,
};
use crate::name::NameRecord;
use crate::view::View;
use crate::{FileError, Inode, Kind, RenameMode, Table, Timestamp, keys};

/// A directory and a name in it.
type Place<'n> = (Inode, &'n [u8]);

/// Moves a name.
pub(crate) fn rename(
    view: &mut View<'_>,
    from: Place<'_>,
    to: Place<'_>,
    mode: RenameMode,
    is_open: impl Fn(Inode) -> bool,
    now: Timestamp,
) -> Result<Option<Gone>, FileError> {
    directory(view, from.0)?;
    refuse_name(from.1)?;
    refuse_name(to.1)?;
    let moved = named(view, from.0, from.1)?.ok_or(FileError::NotFound)?;
    refuse_removed(view, to.0)?;
    refuse_within(view, to.0, moved)?;
    match (mode, named(view, to.0, to.1)?) {
        (RenameMode::Keep, Some(_)) => Err(FileError::Exists),
        (RenameMode::Exchange, None) => Err(FileError::NotFound),
        (_, Some(there)) if there.inode == moved.inode => Ok(None),
        (RenameMode::Exchange, Some(there)) => exchange(view, (from, moved), (to, there), now).map(|()| None),
        (_, there) => replace(view, (from, moved), (to, there), is_open, now),
    }
}

fn replace(
    view: &mut View<'_>,
    (from, moved): (Place<'_>, NameRecord),
    (to, there): (Place<'_>, Option<NameRecord>),
    is_open: impl Fn(Inode) -> bool,
    now: Timestamp,
) -> Result<Option<Gone>, FileError> {
    let is_directory = moved.kind == Kind::Directory;
    match there {
        Some(there) if there.kind != Kind::Directory && is_directory => return Err(FileError::NotDirectory),
        Some(there) if there.kind == Kind::Directory && !is_directory => return Err(FileError::IsDirectory),
        Some(there) if is_directory && !is_empty(view, there.inode)? => return Err(FileError::NotEmpty),
        _ => {}
    }
    view.delete(Table::Names, &keys::name(from.0, from.1));
    set_name(view, to, moved);
    if is_directory {
        discount_directory(view, from.0)?;
        if there.is_none() {
            count_directory(view, to.0)?;
        }
    }
    arrive(view, moved, to.0, now)?;
    touch(view, from.0, now)?;
    touch(view, to.0, now)?;
    match there {
        Some(there) => drop_name(view, there.inode, is_open, now),
        None => Ok(None),
    }
}

fn exchange(
    view: &mut View<'_>,
    (from, moved): (Place<'_>, NameRecord),
    (to, there): (Place<'_>, NameRecord),
    now: Timestamp,
) -> Result<(), FileError> {
    refuse_within(view, from.0, there)?;
    set_name(view, to, moved);
    set_name(view, from, there);
    match (moved.kind == Kind::Directory, there.kind == Kind::Directory) {
        (true, false) => move_count(view, from.0, to.0)?,
        (false, true) => move_count(view, to.0, from.0)?,
        _ => {}
    }
    arrive(view, moved, to.0, now)?;
    arrive(view, there, from.0, now)?;
    touch(view, from.0, now)?;
    touch(view, to.0, now)
}

fn move_count(view: &mut View<'_>, from: Inode, to: Inode) -> Result<(), FileError> {
    discount_directory(view, from)?;
    count_directory(view, to)
}

/// Notes in a node that its name moved.
fn arrive(view: &mut View<'_>, record: NameRecord, directory: Inode, now: Timestamp) -> Result<(), FileError> {
    edit(view, record.inode, |node| {
        node.changed = now;
        if record.kind == Kind::Directory {
            node.parent = directory;
        }
    })
}

/// Refuses to move a directory into itself or what lies in it.
fn refuse_within(view: &View<'_>, into: Inode, moved: NameRecord) -> Result<(), FileError> {
    if moved.kind != Kind::Directory {
        return Ok(());
    }
    let mut passed = BTreeSet::new();
    let mut at = into;
    while at != Inode::ROOT {
        if at == moved.inode {
            return Err(FileError::Invalid);
        }
        if !passed.insert(at) {
            return Err(FileError::Failed { why: format!("directory {at} lies in itself") });
        }
        at = directory(view, at)?.parent;
    }
    Ok(())
}
