//! Finding nodes: by name, by directory, and where links lead.

use super::{directory, named, node, refuse_name};
use crate::inode::{InodeRecord, NO_PARENT};
use crate::keys::{self, Span};
use crate::name::NameRecord;
use crate::view::{View, senseless};
use crate::{DirectoryEntry, FileError, Inode, Kind, Table};

/// The node that a directory has under a name; `.` and `..` are known too.
pub(crate) fn lookup(view: &View<'_>, directory: Inode, name: &[u8]) -> Result<(Inode, InodeRecord), FileError> {
    let record = self::directory(view, directory)?;
    let inode = match name {
        b"." => directory,
        b".." if record.parent == NO_PARENT => return Err(FileError::NotFound),
        b".." => record.parent,
        _ => {
            refuse_name(name)?;
            named(view, directory, name)?.ok_or(FileError::NotFound)?.inode
        }
    };
    Ok((inode, node(view, inode)?))
}

/// The target of a link.
pub(crate) fn read_link(view: &View<'_>, inode: Inode) -> Result<Vec<u8>, FileError> {
    let record = view.inode(inode)?;
    match record.kind {
        Kind::Link => Ok(record.tail),
        _ => Err(FileError::Invalid),
    }
}

/// Up to `limit` rows of a directory in the order of names, behind the name `after`.
pub(crate) fn read_directory(
    view: &View<'_>,
    directory: Inode,
    after: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<DirectoryEntry>, FileError> {
    self::directory(view, directory)?;
    let span = match after {
        Some(name) => Span::of_behind(directory, name),
        None => Span::of(directory),
    };
    let rows = view.range(Table::Names, &span, limit)?;
    rows.into_iter().map(|(key, value)| entry(&key, &value)).collect()
}

fn entry(key: &[u8], value: &[u8]) -> Result<DirectoryEntry, FileError> {
    let (_, name) = keys::decode_name(key).map_err(|source| senseless(Table::Names, key, source))?;
    let NameRecord { inode, kind } =
        NameRecord::decode(value).map_err(|source| senseless(Table::Names, key, source))?;
    Ok(DirectoryEntry { name: name.to_vec(), inode, kind })
}
