//! Taking names away, and what follows for the node.

use super::{directory, discount_directory, is_empty, named, node, refuse_name, touch};
use crate::inode::NO_PARENT;
use crate::keys::{self, Span};
use crate::view::{View, senseless};
use crate::{FileError, Inode, Kind, Table, Timestamp};

/// A node that lost its last name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone {
    /// Which.
    pub inode: Inode,
    /// It is open, and so an orphan until [`forget_orphan`]; else its rows are deleted, and its runs are to be freed.
    pub kept: bool,
}

/// Takes a name from a node that is no directory.
pub(crate) fn unlink(
    view: &mut View<'_>,
    directory: Inode,
    name: &[u8],
    is_open: impl Fn(Inode) -> bool,
    now: Timestamp,
) -> Result<Option<Gone>, FileError> {
    self::directory(view, directory)?;
    refuse_name(name)?;
    let record = named(view, directory, name)?.ok_or(FileError::NotFound)?;
    if record.kind == Kind::Directory {
        return Err(FileError::IsDirectory);
    }
    view.delete(Table::Names, &keys::name(directory, name));
    touch(view, directory, now)?;
    drop_name(view, record.inode, is_open, now)
}

/// Removes an empty directory.
pub(crate) fn remove_directory(
    view: &mut View<'_>,
    directory: Inode,
    name: &[u8],
    is_open: impl Fn(Inode) -> bool,
    now: Timestamp,
) -> Result<Option<Gone>, FileError> {
    self::directory(view, directory)?;
    refuse_name(name)?;
    let record = named(view, directory, name)?.ok_or(FileError::NotFound)?;
    if record.kind != Kind::Directory {
        return Err(FileError::NotDirectory);
    }
    if !is_empty(view, record.inode)? {
        return Err(FileError::NotEmpty);
    }
    view.delete(Table::Names, &keys::name(directory, name));
    discount_directory(view, directory)?;
    touch(view, directory, now)?;
    drop_name(view, record.inode, is_open, now)
}

/// Deletes the rows of a node without a name that nobody has open any more; its runs are to be freed.
///
/// # Errors
/// [`FileError::NotFound`] where no such orphan is.
pub(crate) fn forget_orphan(view: &mut View<'_>, inode: Inode) -> Result<(), FileError> {
    let key = keys::inode(inode);
    view.get(Table::Orphans, &key)?.ok_or(FileError::NotFound)?;
    view.delete(Table::Orphans, &key);
    forget(view, inode)
}

/// Up to `limit` orphans: after a crash nobody has them open.
pub(crate) fn orphans(view: &View<'_>, limit: usize) -> Result<Vec<Inode>, FileError> {
    let rows = view.range(Table::Orphans, &Span::all(), limit)?;
    rows.iter()
        .map(|(key, _)| keys::decode_inode(key).map_err(|source| senseless(Table::Orphans, key, source)))
        .collect()
}

/// One name less for a node, of which the row is deleted already; a directory has only the one.
pub(super) fn drop_name(
    view: &mut View<'_>,
    inode: Inode,
    is_open: impl Fn(Inode) -> bool,
    now: Timestamp,
) -> Result<Option<Gone>, FileError> {
    let mut record = node(view, inode)?;
    record.names = match record.kind {
        Kind::Directory => 0,
        _ => record
            .names
            .checked_sub(1)
            .ok_or_else(|| FileError::Failed { why: format!("inode {inode} counts no names and has one") })?,
    };
    if record.names == 0 && !is_open(inode) {
        forget(view, inode)?;
        return Ok(Some(Gone { inode, kept: false }));
    }
    record.changed = now;
    record.parent = NO_PARENT;
    view.set_inode(inode, &record);
    if record.names > 0 {
        return Ok(None);
    }
    view.set(Table::Orphans, &keys::inode(inode), Vec::new());
    Ok(Some(Gone { inode, kept: true }))
}

/// Deletes a node's record and attributes.
fn forget(view: &mut View<'_>, inode: Inode) -> Result<(), FileError> {
    let attributes: Vec<Vec<u8>> =
        view.rows(Table::Attributes, &Span::of(inode))?.map(|row| row.map(|(key, _)| key)).collect::<Result<_, _>>()?;
    for key in attributes {
        view.delete(Table::Attributes, &key);
    }
    view.delete(Table::Inodes, &keys::inode(inode));
    Ok(())
}
