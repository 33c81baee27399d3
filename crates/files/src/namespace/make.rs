//! Making nodes, and giving them more names.

use super::{count_directory, directory, edit, named, refuse_name, refuse_removed, set_name, touch};
use crate::inode::{InodeRecord, NO_PARENT, TARGET_BYTES_MAX};
use crate::keys::NEXT_INODE;
use crate::name::NameRecord;
use crate::state::{decode_next_inode, encode_next_inode};
use crate::view::{View, senseless};
use crate::{FileError, Inode, Kind, NewNode, Table, Timestamp};

/// The most names of a node that is no directory.
pub(crate) const NAMES_MAX: u32 = 65_000;

/// Bit of the mode: what is made in the directory takes the directory's group.
const SET_GROUP: u16 = 0o2000;

/// Makes the root directory, in a catalog without any row.
pub(crate) fn make_root(view: &mut View<'_>, node: &NewNode, now: Timestamp) {
    assert_eq!(node.kind, Kind::Directory, "the root is a directory");
    view.set_inode(Inode::ROOT, &new_record(node, Inode::ROOT, now));
    view.set(Table::State, NEXT_INODE, encode_next_inode(Inode::ROOT.0 + 1));
}

/// Makes a node under a name that is free.
///
/// # Errors
/// [`FileError::Invalid`] for a link without a target or with one of more than [`TARGET_BYTES_MAX`] bytes.
pub(crate) fn make(
    view: &mut View<'_>,
    directory: Inode,
    name: &[u8],
    node: &NewNode,
    now: Timestamp,
) -> Result<(Inode, InodeRecord), FileError> {
    refuse_taken(view, directory, name)?;
    if node.kind == Kind::Link && !(1..=TARGET_BYTES_MAX).contains(&node.target.len()) {
        return Err(FileError::Invalid);
    }
    let mut record = new_record(node, directory, now);
    let parent = self::directory(view, directory)?;
    if parent.permissions & SET_GROUP != 0 {
        record.owner_group = parent.owner_group;
        if node.kind == Kind::Directory {
            record.permissions |= SET_GROUP;
        }
    }
    let inode = next_inode(view)?;
    if node.kind == Kind::Directory {
        count_directory(view, directory)?;
    }
    view.set_inode(inode, &record);
    set_name(view, (directory, name), NameRecord { inode, kind: node.kind });
    touch(view, directory, now)?;
    Ok((inode, record))
}

/// Gives a node that is no directory one more name.
pub(crate) fn link(
    view: &mut View<'_>,
    inode: Inode,
    directory: Inode,
    name: &[u8],
    now: Timestamp,
) -> Result<InodeRecord, FileError> {
    let record = view.inode(inode)?;
    if record.kind == Kind::Directory {
        return Err(FileError::IsDirectory);
    }
    refuse_taken(view, directory, name)?;
    match record.names {
        // The last name was taken away: what is gone does not come back.
        0 => return Err(FileError::NotFound),
        NAMES_MAX.. => return Err(FileError::TooManyNames { names: record.names }),
        _ => {}
    }
    edit(view, inode, |record| {
        record.names += 1;
        record.changed = now;
    })?;
    set_name(view, (directory, name), NameRecord { inode, kind: record.kind });
    touch(view, directory, now)?;
    view.inode(inode)
}

/// Refuses what is no directory, takes no names, or has this one.
fn refuse_taken(view: &View<'_>, directory: Inode, name: &[u8]) -> Result<(), FileError> {
    refuse_removed(view, directory)?;
    refuse_name(name)?;
    match named(view, directory, name)?.is_some() {
        true => Err(FileError::Exists),
        false => Ok(()),
    }
}

fn next_inode(view: &mut View<'_>) -> Result<Inode, FileError> {
    let value = view.get(Table::State, NEXT_INODE)?;
    let value = value.ok_or_else(|| FileError::Failed { why: "the catalog has no next inode".into() })?;
    let next = decode_next_inode(&value).map_err(|source| senseless(Table::State, NEXT_INODE, source))?;
    // At a million a second this takes 580,000 years.
    let behind = next.checked_add(1).ok_or(FileError::NoSpace)?;
    view.set(Table::State, NEXT_INODE, encode_next_inode(behind));
    Ok(Inode(next))
}

fn new_record(node: &NewNode, directory: Inode, now: Timestamp) -> InodeRecord {
    let (is_directory, is_link) = (node.kind == Kind::Directory, node.kind == Kind::Link);
    let is_device = matches!(node.kind, Kind::BlockDevice | Kind::CharacterDevice);
    let target = if is_link { &node.target[..] } else { &[] };
    InodeRecord {
        kind: node.kind,
        permissions: node.permissions & 0o7777,
        owner: node.owner,
        owner_group: node.owner_group,
        names: if is_directory { 2 } else { 1 },
        bytes: target.len() as u64,
        unused: 0,
        device: if is_device { node.device } else { 0 },
        accessed: now,
        modified: now,
        changed: now,
        made: now,
        parent: if is_directory { directory } else { NO_PARENT },
        tail: target.to_vec(),
    }
}
