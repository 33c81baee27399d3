//! What the reference tree keeps.
//!
//! Invariants:
//! 1. A node is there while it has a name or is open; the root always is.
//! 2. `names` of a directory is 2 and one for each directory in it; 0 once it is removed.
//! 3. `used` is the sum of all files' sectors, and never above `capacity`.

use std::collections::BTreeMap;

use claystone_env::SECTOR_BYTES;

use crate::{Attributes, FileError, Inode, Kind, NewNode, Timestamp};

pub(super) struct Nodes {
    pub(super) by_inode: BTreeMap<Inode, Node>,
    pub(super) next: u64,
    pub(super) capacity: u64,
    pub(super) used: u64,
}

pub(super) struct Node {
    pub(super) attributes: Attributes,
    pub(super) content: Content,
    pub(super) extended: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) opens: u64,
}

pub(super) enum Content {
    /// Sectors by number; what is missing is a hole.
    File(BTreeMap<u64, Box<[u8; SECTOR_BYTES]>>),
    Directory {
        rows: BTreeMap<Vec<u8>, Inode>,
        parent: Inode,
    },
    Link(Vec<u8>),
    Other,
}

impl Node {
    pub(super) fn new(inode: Inode, new: &NewNode, parent: Inode, now: Timestamp) -> Node {
        let content = match new.kind {
            Kind::File => Content::File(BTreeMap::new()),
            Kind::Directory => Content::Directory { rows: BTreeMap::new(), parent },
            Kind::Link => Content::Link(new.target.clone()),
            Kind::BlockDevice | Kind::CharacterDevice | Kind::Pipe | Kind::Socket => Content::Other,
        };
        let is_device = matches!(new.kind, Kind::BlockDevice | Kind::CharacterDevice);
        let attributes = Attributes {
            inode,
            kind: new.kind,
            permissions: new.permissions & PERMISSION_BITS,
            owner: new.owner,
            owner_group: new.owner_group,
            names: if new.kind == Kind::Directory { 2 } else { 1 },
            bytes: if new.kind == Kind::Link { new.target.len() as u64 } else { 0 },
            sectors: 0,
            device: if is_device { new.device } else { 0 },
            accessed: now,
            modified: now,
            changed: now,
            made: now,
        };
        Node { attributes, content, extended: BTreeMap::new(), opens: 0 }
    }

    pub(super) fn rows(&self) -> Result<&BTreeMap<Vec<u8>, Inode>, FileError> {
        match &self.content {
            Content::Directory { rows, .. } => Ok(rows),
            _ => Err(FileError::NotDirectory),
        }
    }

    pub(super) fn rows_mut(&mut self) -> Result<&mut BTreeMap<Vec<u8>, Inode>, FileError> {
        match &mut self.content {
            Content::Directory { rows, .. } => Ok(rows),
            _ => Err(FileError::NotDirectory),
        }
    }

    pub(super) fn sectors(&self) -> Result<&BTreeMap<u64, Box<[u8; SECTOR_BYTES]>>, FileError> {
        match &self.content {
            Content::File(sectors) => Ok(sectors),
            Content::Directory { .. } => Err(FileError::IsDirectory),
            _ => Err(FileError::Invalid),
        }
    }

    pub(super) fn sectors_mut(&mut self) -> Result<&mut BTreeMap<u64, Box<[u8; SECTOR_BYTES]>>, FileError> {
        match &mut self.content {
            Content::File(sectors) => Ok(sectors),
            Content::Directory { .. } => Err(FileError::IsDirectory),
            _ => Err(FileError::Invalid),
        }
    }

    pub(super) fn is_directory(&self) -> bool {
        self.attributes.kind == Kind::Directory
    }

    /// Its content was changed.
    pub(super) fn touch(&mut self, now: Timestamp) {
        self.attributes.modified = now;
        self.attributes.changed = now;
    }
}

impl Nodes {
    pub(super) fn node(&self, inode: Inode) -> Result<&Node, FileError> {
        self.by_inode.get(&inode).ok_or(FileError::NotFound)
    }

    pub(super) fn node_mut(&mut self, inode: Inode) -> Result<&mut Node, FileError> {
        self.by_inode.get_mut(&inode).ok_or(FileError::NotFound)
    }

    /// What a directory has under a name.
    pub(super) fn entry(&self, directory: Inode, name: &[u8]) -> Result<Inode, FileError> {
        let rows = self.node(directory)?.rows()?;
        check_name(name)?;
        rows.get(name).copied().ok_or(FileError::NotFound)
    }

    /// A directory that takes new rows.
    pub(super) fn living_directory(&self, directory: Inode) -> Result<&Node, FileError> {
        let node = self.node(directory)?;
        node.rows()?;
        if node.attributes.names == 0 { Err(FileError::NotFound) } else { Ok(node) }
    }

    /// Whether `below` is `above`, or in it at any depth.
    pub(super) fn is_within(&self, mut below: Inode, above: Inode) -> bool {
        loop {
            if below == above {
                return true;
            }
            match self.by_inode.get(&below).map(|node| &node.content) {
                Some(&Content::Directory { parent, .. }) if parent != below => below = parent,
                _ => return false,
            }
        }
    }

    /// Puts a row into a directory, for a node that may come from another.
    pub(super) fn attach(
        &mut self,
        directory: Inode,
        name: &[u8],
        inode: Inode,
        now: Timestamp,
    ) -> Result<(), FileError> {
        let node = self.node_mut(inode)?;
        node.attributes.changed = now;
        let is_directory = node.is_directory();
        if let Content::Directory { parent, .. } = &mut node.content {
            *parent = directory;
        }
        let target = self.node_mut(directory)?;
        target.rows_mut()?.insert(name.to_vec(), inode);
        target.attributes.names += u32::from(is_directory);
        target.touch(now);
        Ok(())
    }

    /// Takes a row out of a directory; the node's own count of names stays.
    pub(super) fn detach(&mut self, directory: Inode, name: &[u8], now: Timestamp) -> Result<Inode, FileError> {
        let inode = self.entry(directory, name)?;
        let is_directory = self.node(inode)?.is_directory();
        let source = self.node_mut(directory)?;
        source.rows_mut()?.remove(name);
        source.attributes.names -= u32::from(is_directory);
        source.touch(now);
        Ok(inode)
    }

    /// A name of a node is gone; a directory has only one.
    pub(super) fn lose_name(&mut self, inode: Inode, now: Timestamp) -> Result<(), FileError> {
        let node = self.node_mut(inode)?;
        node.attributes.names = if node.is_directory() { 0 } else { node.attributes.names - 1 };
        node.attributes.changed = now;
        self.collect(inode);
        Ok(())
    }

    /// Forgets a node that nothing holds.
    pub(super) fn collect(&mut self, inode: Inode) {
        if let Some(node) = self.by_inode.get(&inode)
            && node.attributes.names == 0
            && node.opens == 0
        {
            self.used -= node.attributes.sectors;
            self.by_inode.remove(&inode);
        }
    }

    /// Replaces a file's sectors from `change`, and keeps the figures.
    pub(super) fn change_sectors(
        &mut self,
        inode: Inode,
        more: u64,
        change: impl FnOnce(&mut BTreeMap<u64, Box<[u8; SECTOR_BYTES]>>),
    ) -> Result<&mut Attributes, FileError> {
        if self.used + more > self.capacity {
            return Err(FileError::NoSpace);
        }
        let node = self.by_inode.get_mut(&inode).ok_or(FileError::NotFound)?;
        let sectors = node.sectors_mut()?;
        change(sectors);
        let count = sectors.len() as u64;
        self.used = self.used + count - node.attributes.sectors;
        node.attributes.sectors = count;
        Ok(&mut node.attributes)
    }

    /// Makes a hole, and zeros where it does not reach sector borders.
    pub(super) fn clear(&mut self, inode: Inode, offset: u64, end: u64) -> Result<(), FileError> {
        let sector_bytes = SECTOR_BYTES as u64;
        self.change_sectors(inode, 0, |sectors| {
            let touched: Vec<u64> =
                sectors.range(offset / sector_bytes..end.div_ceil(sector_bytes)).map(|(&at, _)| at).collect();
            for at in touched {
                let first = at * sector_bytes;
                let (from, to) = (offset.max(first) - first, end.min(first + sector_bytes) - first);
                if to - from == sector_bytes {
                    sectors.remove(&at);
                } else if let Some(sector) = sectors.get_mut(&at) {
                    sector[from as usize..to as usize].fill(0);
                }
            }
        })?;
        Ok(())
    }
}

pub(super) fn check_name(name: &[u8]) -> Result<(), FileError> {
    match name {
        name if name.len() > NAME_BYTES_MAX => Err(FileError::NameTooLong { bytes: name.len() }),
        b"" | b"." | b".." => Err(FileError::Invalid),
        name if name.iter().any(|&byte| byte == b'/' || byte == 0) => Err(FileError::Invalid),
        _ => Ok(()),
    }
}

/// The end of a range, if a file can be that long.
pub(super) fn end_of(offset: u64, bytes: u64) -> Result<u64, FileError> {
    let end = offset.saturating_add(bytes);
    if end > BYTES_MAX { Err(FileError::TooLarge { bytes: end, bytes_max: BYTES_MAX }) } else { Ok(end) }
}

/// A range cut at sectors: which sector, where in it, and which part of the buffer.
pub(super) fn pieces(offset: u64, count: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % SECTOR_BYTES as u64) as usize;
        let bytes = (SECTOR_BYTES - within).min(count - done);
        let piece = (at / SECTOR_BYTES as u64, within, done..done + bytes);
        done += bytes;
        (bytes > 0).then_some(piece)
    })
}

pub(super) const PERMISSION_BITS: u16 = 0o7777;
const NAME_BYTES_MAX: usize = 255;
const BYTES_MAX: u64 = 1 << 62;
