//! The reference tree: everything in memory, one lock around it.

mod nodes;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use claystone_env::{Clock, SECTOR_BYTES};

use self::nodes::{Content, Node, Nodes, PERMISSION_BITS, check_name, end_of, pieces};
use crate::{
    Attributes, DirectoryEntry, FileError, FileTree, Inode, Kind, NewAttributes, NewNode, RenameMode, Seek, Setting,
    SpaceFigures, Timestamp,
};

/// See the module.
pub struct MemoryTree {
    clock: Arc<dyn Clock>,
    nodes: RwLock<Nodes>,
}

impl MemoryTree {
    /// An empty tree that holds up to `capacity` sectors of data.
    pub fn new(clock: Arc<dyn Clock>, capacity: u64) -> MemoryTree {
        let now = clock.wall().into();
        let node = NewNode {
            kind: Kind::Directory,
            permissions: 0o755,
            owner: 0,
            owner_group: 0,
            device: 0,
            target: Vec::new(),
        };
        let root = Node::new(Inode::ROOT, &node, Inode::ROOT, now);
        let by_inode = BTreeMap::from([(Inode::ROOT, root)]);
        MemoryTree { clock, nodes: RwLock::new(Nodes { by_inode, next: 2, capacity, used: 0 }) }
    }

    fn now(&self) -> Timestamp {
        self.clock.wall().into()
    }

    // A call that panicked was refused before it changed anything, or the test has failed already.
    fn shared(&self) -> RwLockReadGuard<'_, Nodes> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn alone(&self) -> RwLockWriteGuard<'_, Nodes> {
        self.nodes.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a read where it is due.
    fn accessed(&self, inode: Inode, attributes: &Attributes) {
        let now = self.now();
        if access_is_due(attributes, now)
            && let Ok(node) = self.alone().node_mut(inode)
        {
            node.attributes.accessed = now;
        }
    }
}

impl FileTree for MemoryTree {
    fn lookup(&self, directory: Inode, name: &[u8]) -> Result<Attributes, FileError> {
        let nodes = self.shared();
        let inode = match (name, &nodes.node(directory)?.content) {
            (b".", Content::Directory { .. }) => directory,
            (b"..", &Content::Directory { parent, .. }) => parent,
            _ => nodes.entry(directory, name)?,
        };
        Ok(nodes.node(inode)?.attributes.clone())
    }

    fn attributes(&self, inode: Inode) -> Result<Attributes, FileError> {
        Ok(self.shared().node(inode)?.attributes.clone())
    }

    fn set_attributes(&self, inode: Inode, new: &NewAttributes) -> Result<Attributes, FileError> {
        let mut nodes = self.alone();
        let now = self.now();
        let old_bytes = nodes.node(inode)?.attributes.bytes;
        if let Some(bytes) = new.bytes {
            nodes.node(inode)?.sectors()?;
            end_of(bytes, 0)?;
            if bytes < old_bytes {
                // All of the last sector, so that what lies behind the end stays zero.
                nodes.clear(inode, bytes, old_bytes.next_multiple_of(SECTOR_BYTES as u64))?;
            }
        }
        let attributes = &mut nodes.node_mut(inode)?.attributes;
        if let Some(bytes) = new.bytes {
            attributes.bytes = bytes;
            attributes.modified = now;
        }
        if let Some(permissions) = new.permissions {
            attributes.permissions = permissions & PERMISSION_BITS;
        }
        let time = |setting| match setting {
            Setting::Now => now,
            Setting::At(time) => time,
        };
        attributes.owner = new.owner.unwrap_or(attributes.owner);
        attributes.owner_group = new.owner_group.unwrap_or(attributes.owner_group);
        attributes.accessed = new.accessed.map_or(attributes.accessed, time);
        attributes.modified = new.modified.map_or(attributes.modified, time);
        attributes.changed = new.changed.unwrap_or(now);
        attributes.made = new.made.unwrap_or(attributes.made);
        Ok(attributes.clone())
    }

    fn make(&self, directory: Inode, name: &[u8], node: &NewNode) -> Result<Attributes, FileError> {
        let mut nodes = self.alone();
        let now = self.now();
        check_name(name)?;
        let parent = nodes.living_directory(directory)?;
        if parent.rows()?.contains_key(name) {
            return Err(FileError::Exists);
        }
        let mut node = node.clone();
        if parent.attributes.permissions & SET_GROUP != 0 {
            node.owner_group = parent.attributes.owner_group;
            if node.kind == Kind::Directory {
                node.permissions |= SET_GROUP;
            }
        }
        let inode = Inode(nodes.next);
        nodes.next += 1;
        nodes.by_inode.insert(inode, Node::new(inode, &node, directory, now));
        nodes.attach(directory, name, inode, now)?;
        Ok(nodes.node(inode)?.attributes.clone())
    }

    fn link(&self, inode: Inode, directory: Inode, name: &[u8]) -> Result<Attributes, FileError> {
        let mut nodes = self.alone();
        let now = self.now();
        check_name(name)?;
        let node = nodes.node(inode)?;
        let names = node.attributes.names;
        if node.is_directory() {
            return Err(FileError::IsDirectory);
        }
        if nodes.living_directory(directory)?.rows()?.contains_key(name) {
            return Err(FileError::Exists);
        }
        match names {
            0 => return Err(FileError::NotFound),
            u32::MAX => return Err(FileError::TooManyNames { names }),
            _ => nodes.node_mut(inode)?.attributes.names += 1,
        }
        nodes.attach(directory, name, inode, now)?;
        Ok(nodes.node(inode)?.attributes.clone())
    }

    fn unlink(&self, directory: Inode, name: &[u8]) -> Result<(), FileError> {
        let mut nodes = self.alone();
        let now = self.now();
        let inode = nodes.entry(directory, name)?;
        if nodes.node(inode)?.is_directory() {
            return Err(FileError::IsDirectory);
        }
        nodes.detach(directory, name, now)?;
        nodes.lose_name(inode, now)
    }

    fn remove_directory(&self, directory: Inode, name: &[u8]) -> Result<(), FileError> {
        let mut nodes = self.alone();
        let now = self.now();
        let inode = nodes.entry(directory, name)?;
        if !nodes.node(inode)?.rows()?.is_empty() {
            return Err(FileError::NotEmpty);
        }
        nodes.detach(directory, name, now)?;
        nodes.lose_name(inode, now)
    }

    fn rename(&self, from: (Inode, &[u8]), to: (Inode, &[u8]), mode: RenameMode) -> Result<(), FileError> {
        let mut nodes = self.alone();
        let now = self.now();
        check_name(to.1)?;
        let moved = nodes.entry(from.0, from.1)?;
        let replaced = nodes.living_directory(to.0)?.rows()?.get(to.1).copied();
        if nodes.is_within(to.0, moved) {
            return Err(FileError::Invalid);
        }
        match (replaced, mode) {
            (Some(_), RenameMode::Keep) => return Err(FileError::Exists),
            (None, RenameMode::Exchange) => return Err(FileError::NotFound),
            (Some(other), RenameMode::Exchange) => {
                if nodes.is_within(from.0, other) {
                    return Err(FileError::Invalid);
                }
                nodes.detach(from.0, from.1, now)?;
                // Both names may be one.
                if from != to {
                    nodes.detach(to.0, to.1, now)?;
                    nodes.attach(from.0, from.1, other, now)?;
                }
                return nodes.attach(to.0, to.1, moved, now);
            }
            (Some(same), RenameMode::Replace) if same == moved => return Ok(()),
            (Some(old), RenameMode::Replace) => {
                let moves_directory = nodes.node(moved)?.is_directory();
                match nodes.node(old)?.rows() {
                    Err(_) if moves_directory => return Err(FileError::NotDirectory),
                    Ok(_) if !moves_directory => return Err(FileError::IsDirectory),
                    Ok(rows) if !rows.is_empty() => return Err(FileError::NotEmpty),
                    _ => {}
                }
                nodes.detach(to.0, to.1, now)?;
                nodes.lose_name(old, now)?;
            }
            (None, RenameMode::Replace | RenameMode::Keep) => {}
        }
        nodes.detach(from.0, from.1, now)?;
        nodes.attach(to.0, to.1, moved, now)
    }

    fn read_link(&self, inode: Inode) -> Result<Vec<u8>, FileError> {
        let nodes = self.shared();
        let node = nodes.node(inode)?;
        let Content::Link(target) = &node.content else { return Err(FileError::Invalid) };
        let (target, attributes) = (target.clone(), node.attributes.clone());
        drop(nodes);
        self.accessed(inode, &attributes);
        Ok(target)
    }

    fn read_directory(
        &self,
        directory: Inode,
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<DirectoryEntry>, FileError> {
        let nodes = self.shared();
        let node = nodes.node(directory)?;
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = node.rows()?.range::<[u8], _>((begin, Bound::Unbounded)).take(limit);
        let entry = |(name, &inode): (&Vec<u8>, &Inode)| {
            Ok(DirectoryEntry { name: name.clone(), inode, kind: nodes.node(inode)?.attributes.kind })
        };
        let entries = rows.map(entry).collect::<Result<_, FileError>>()?;
        let attributes = node.attributes.clone();
        drop(nodes);
        self.accessed(directory, &attributes);
        Ok(entries)
    }

    fn open(&self, inode: Inode) -> Result<(), FileError> {
        self.alone().node_mut(inode)?.opens += 1;
        Ok(())
    }

    fn release(&self, inode: Inode) {
        let mut nodes = self.alone();
        let Ok(node) = nodes.node_mut(inode) else { return };
        node.opens = node.opens.checked_sub(1).expect("each release undoes an open");
        nodes.collect(inode);
    }

    fn read(&self, inode: Inode, offset: u64, into: &mut [u8]) -> Result<usize, FileError> {
        let nodes = self.shared();
        let node = nodes.node(inode)?;
        let sectors = node.sectors()?;
        let count = node.attributes.bytes.saturating_sub(offset).min(into.len() as u64) as usize;
        let into = &mut into[..count];
        for (sector, within, range) in pieces(offset, count) {
            match sectors.get(&sector) {
                Some(bytes) => into[range.clone()].copy_from_slice(&bytes[within..within + range.len()]),
                None => into[range].fill(0),
            }
        }
        let attributes = node.attributes.clone();
        drop(nodes);
        self.accessed(inode, &attributes);
        Ok(count)
    }

    fn write(&self, inode: Inode, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let mut nodes = self.alone();
        let now = self.now();
        let present = nodes.node(inode)?.sectors()?;
        let end = end_of(offset, bytes.len() as u64)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let more = pieces(offset, bytes.len()).filter(|(sector, ..)| !present.contains_key(sector)).count() as u64;
        let attributes = nodes.change_sectors(inode, more, |sectors| {
            for (sector, within, range) in pieces(offset, bytes.len()) {
                let sector = sectors.entry(sector).or_insert_with(|| Box::new([0; SECTOR_BYTES]));
                sector[within..within + range.len()].copy_from_slice(&bytes[range]);
            }
        })?;
        attributes.bytes = attributes.bytes.max(end);
        nodes.node_mut(inode)?.touch(now);
        Ok(())
    }

    fn allocate(&self, inode: Inode, offset: u64, bytes: u64, keep_size: bool) -> Result<(), FileError> {
        let mut nodes = self.alone();
        let now = self.now();
        let present = nodes.node(inode)?.sectors()?;
        let end = end_of(offset, bytes)?;
        let range = offset / SECTOR_BYTES as u64..end.div_ceil(SECTOR_BYTES as u64);
        let more = (range.end - range.start) - present.range(range.clone()).count() as u64;
        let attributes = nodes.change_sectors(inode, more, |sectors| {
            for sector in range {
                sectors.entry(sector).or_insert_with(|| Box::new([0; SECTOR_BYTES]));
            }
        })?;
        if !keep_size {
            attributes.bytes = attributes.bytes.max(end);
        }
        nodes.node_mut(inode)?.touch(now);
        Ok(())
    }

    fn punch(&self, inode: Inode, offset: u64, bytes: u64) -> Result<(), FileError> {
        let mut nodes = self.alone();
        let now = self.now();
        let file_bytes = nodes.node(inode)?.attributes.bytes;
        let end = end_of(offset, bytes)?;
        nodes.node(inode)?.sectors()?;
        // Behind the end of the file nothing is to be kept of the last sector.
        let end = if end >= file_bytes { file_bytes.next_multiple_of(SECTOR_BYTES as u64) } else { end };
        if offset < end {
            nodes.clear(inode, offset, end)?;
        }
        nodes.node_mut(inode)?.touch(now);
        Ok(())
    }

    fn seek(&self, inode: Inode, offset: u64, what: Seek) -> Result<u64, FileError> {
        let nodes = self.shared();
        let node = nodes.node(inode)?;
        let sectors = node.sectors()?;
        let bytes = node.attributes.bytes;
        if offset >= bytes {
            return Err(FileError::NothingThere);
        }
        let begin = offset / SECTOR_BYTES as u64;
        let sector = match what {
            Seek::Data => sectors.range(begin..).next().map(|(&sector, _)| sector).ok_or(FileError::NothingThere)?,
            // The first that is missing: data goes on while sectors follow each other.
            Seek::Hole => {
                let run = sectors.range(begin..).zip(begin..).take_while(|((sector, _), at)| *sector == at);
                begin + run.count() as u64
            }
        };
        match (sector * SECTOR_BYTES as u64).max(offset) {
            // Sectors may be kept behind the end.
            found if found >= bytes && what == Seek::Data => Err(FileError::NothingThere),
            found => Ok(found.min(bytes)),
        }
    }

    fn sync(&self, inode: Inode) -> Result<(), FileError> {
        self.shared().node(inode).map(|_| ())
    }

    fn sync_all(&self) -> Result<(), FileError> {
        Ok(())
    }

    fn attribute(&self, inode: Inode, name: &[u8]) -> Result<Vec<u8>, FileError> {
        self.shared().node(inode)?.extended.get(name).cloned().ok_or(FileError::NoAttribute)
    }

    fn attribute_names(&self, inode: Inode) -> Result<Vec<Vec<u8>>, FileError> {
        Ok(self.shared().node(inode)?.extended.keys().cloned().collect())
    }

    fn set_attribute(&self, inode: Inode, name: &[u8], value: &[u8], there: Option<bool>) -> Result<(), FileError> {
        let mut nodes = self.alone();
        let now = self.now();
        let node = nodes.node_mut(inode)?;
        check_name(name)?;
        if value.len() > ATTRIBUTE_BYTES_MAX {
            return Err(FileError::AttributeTooLong { bytes: value.len() });
        }
        match (node.extended.contains_key(name), there) {
            (true, Some(false)) => return Err(FileError::Exists),
            (false, Some(true)) => return Err(FileError::NoAttribute),
            _ => {}
        }
        node.extended.insert(name.to_vec(), value.to_vec());
        node.attributes.changed = now;
        Ok(())
    }

    fn remove_attribute(&self, inode: Inode, name: &[u8]) -> Result<(), FileError> {
        let mut nodes = self.alone();
        let now = self.now();
        let node = nodes.node_mut(inode)?;
        node.extended.remove(name).ok_or(FileError::NoAttribute)?;
        node.attributes.changed = now;
        Ok(())
    }

    fn space(&self) -> SpaceFigures {
        let nodes = self.shared();
        SpaceFigures {
            data_sectors: nodes.capacity,
            free_sectors: nodes.capacity - nodes.used,
            inodes: nodes.by_inode.len() as u64,
        }
    }
}

fn access_is_due(attributes: &Attributes, now: Timestamp) -> bool {
    let accessed = attributes.accessed;
    accessed <= attributes.modified || accessed <= attributes.changed || now.seconds - accessed.seconds >= DAY_SECONDS
}

const SET_GROUP: u16 = 0o2000;
const ATTRIBUTE_BYTES_MAX: usize = 65_536;
const DAY_SECONDS: i64 = 86_400;
