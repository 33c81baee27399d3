//! An in-memory file system that forgets at a crash what was not synced.
//!
//! Invariants:
//! 1. `bytes` of a file is what a reader sees now; `history` holds, for each part written since the last sync, what
//!    the medium may hold instead, oldest (synced) first.
//! 2. `names` is what a reader sees now; `durable` differs from it only in names changed since the last sync of
//!    their directory.
//! 3. A crash chooses for each such part and each such name by itself, so it is at least as harsh as a real one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use claystone_env::Random;

/// Bytes that the medium writes whole or not at all.
pub const PART_BYTES: u64 = 512;
/// Bytes of space that a file takes at a time.
pub const ALLOCATION_BYTES: u64 = 4096;

/// Content of a file; shared by its names and its open handles.
#[derive(Default)]
pub struct Content {
    pub bytes: Vec<u8>,
    history: BTreeMap<u64, Vec<Vec<u8>>>,
    // Lengths since the last sync, the synced one first.
    lengths: Vec<u64>,
    // Ranges that cannot be read.
    bad: Vec<(u64, u64)>,
}

pub type SharedContent = Arc<Mutex<Content>>;

#[derive(Clone)]
pub enum Node {
    Dir,
    File(SharedContent),
}

#[derive(Default)]
pub struct FileSystem {
    names: BTreeMap<String, Node>,
    durable: BTreeMap<String, Node>,
}

pub fn locked(content: &SharedContent) -> MutexGuard<'_, Content> {
    content.lock().unwrap_or_else(PoisonError::into_inner)
}

fn error<T>(kind: io::ErrorKind) -> io::Result<T> {
    Err(kind.into())
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// What a directory holds itself, in order.
fn inside<'a>(names: &'a BTreeMap<String, Node>, dir: &'a str) -> impl Iterator<Item = (&'a String, &'a Node)> {
    let below = if dir.is_empty() { String::new() } else { format!("{dir}/") };
    let from = below.clone();
    names
        .range(from..)
        .take_while(move |(name, _)| name.starts_with(&below))
        .filter(move |(name, _)| parent(name) == dir)
}

impl Node {
    fn is(&self, other: Option<&Node>) -> bool {
        match (self, other) {
            (Node::Dir, Some(Node::Dir)) => true,
            (Node::File(one), Some(Node::File(two))) => Arc::ptr_eq(one, two),
            _ => false,
        }
    }
}

impl FileSystem {
    pub fn create(&mut self, path: &str) -> io::Result<SharedContent> {
        self.check_parent(path)?;
        if self.names.contains_key(path) {
            return error(io::ErrorKind::AlreadyExists);
        }
        let content = SharedContent::default();
        self.names.insert(path.to_owned(), Node::File(content.clone()));
        Ok(content)
    }

    pub fn open(&self, path: &str) -> io::Result<SharedContent> {
        match self.names.get(path) {
            Some(Node::File(content)) => Ok(content.clone()),
            Some(Node::Dir) => error(io::ErrorKind::IsADirectory),
            None => error(io::ErrorKind::NotFound),
        }
    }

    pub fn make_dir(&mut self, path: &str) -> io::Result<()> {
        self.check_parent(path)?;
        match self.names.get(path) {
            Some(Node::File(_)) => error(io::ErrorKind::AlreadyExists),
            Some(Node::Dir) => Ok(()),
            None => {
                self.names.insert(path.to_owned(), Node::Dir);
                Ok(())
            }
        }
    }

    pub fn list(&self, path: &str) -> io::Result<Vec<String>> {
        self.check_dir(path)?;
        // Sorted: they share all before their last name.
        Ok(inside(&self.names, path).map(|(name, _)| name.rsplit('/').next().unwrap_or_default().to_owned()).collect())
    }

    pub fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.check_parent(to)?;
        let content = self.open(from)?;
        if let Some(Node::Dir) = self.names.get(to) {
            return error(io::ErrorKind::IsADirectory);
        }
        self.names.remove(from);
        self.names.insert(to.to_owned(), Node::File(content));
        Ok(())
    }

    pub fn remove(&mut self, path: &str) -> io::Result<()> {
        self.open(path)?;
        self.names.remove(path);
        Ok(())
    }

    pub fn sync_dir(&mut self, path: &str) -> io::Result<()> {
        self.check_dir(path)?;
        let gone: Vec<String> = inside(&self.durable, path).map(|(name, _)| name.clone()).collect();
        for name in gone {
            self.durable.remove(&name);
        }
        self.durable.extend(inside(&self.names, path).map(|(name, node)| (name.clone(), node.clone())));
        Ok(())
    }

    pub fn sync_all(&mut self) {
        for node in self.names.values() {
            if let Node::File(content) = node {
                locked(content).sync();
            }
        }
        self.durable = self.names.clone();
    }

    /// All files, sorted by path.
    pub fn files(&self) -> Vec<String> {
        let files = self.names.iter().filter(|(_, node)| matches!(node, Node::File(_)));
        files.map(|(name, _)| name.clone()).collect()
    }

    /// Space taken by files.
    pub fn used_bytes(&self) -> u64 {
        let used = |node: &Node| match node {
            Node::Dir => 0,
            Node::File(content) => (locked(content).bytes.len() as u64).next_multiple_of(ALLOCATION_BYTES),
        };
        self.names.values().map(used).sum()
    }

    /// Removes everything.
    pub fn wipe(&mut self) {
        *self = FileSystem::default();
    }

    /// Loses what was not synced, as chance has it.
    pub fn crash(&mut self, random: &dyn Random) {
        let changed: BTreeSet<String> = self.names.keys().chain(self.durable.keys()).cloned().collect();
        let mut after: BTreeMap<String, Node> = BTreeMap::new();
        for name in changed {
            let (live, durable) = (self.names.get(&name), self.durable.get(&name));
            let same = live.is_some_and(|live| live.is(durable));
            let chosen = if same || random.below(2) == 0 { live } else { durable };
            // A parent sorts before what is in it.
            let held = parent(&name).is_empty() || matches!(after.get(parent(&name)), Some(Node::Dir));
            if let (Some(node), true) = (chosen, held) {
                after.insert(name, node.clone());
            }
        }
        for node in after.values() {
            if let Node::File(content) = node {
                locked(content).crash(random);
            }
        }
        self.durable = after.clone();
        self.names = after;
    }

    fn check_dir(&self, path: &str) -> io::Result<()> {
        match self.names.get(path) {
            Some(Node::Dir) => Ok(()),
            Some(Node::File(_)) => error(io::ErrorKind::NotADirectory),
            None if path.is_empty() => Ok(()),
            None => error(io::ErrorKind::NotFound),
        }
    }

    fn check_parent(&self, path: &str) -> io::Result<()> {
        let good = path.split('/').all(|name| !matches!(name, "" | "." | ".."));
        if good { self.check_dir(parent(path)) } else { error(io::ErrorKind::InvalidInput) }
    }
}

impl Content {
    pub fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let end = offset + into.len() as u64;
        let Some(bytes) = self.bytes.get(offset as usize..end as usize) else {
            return error(io::ErrorKind::UnexpectedEof);
        };
        if self.bad.iter().any(|(from, to)| offset < *to && *from < end) {
            return Err(io::Error::other("injected: unreadable sector"));
        }
        into.copy_from_slice(bytes);
        Ok(())
    }

    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len() as u64;
        let before = self.bytes.len() as u64;
        // A hole between the old end and the offset is written too: with zeros.
        for part in offset.min(before) / PART_BYTES..end.div_ceil(PART_BYTES) {
            let from = (part * PART_BYTES).min(before) as usize;
            let (start, to) = ((part * PART_BYTES).max(offset), ((part + 1) * PART_BYTES).min(end));
            // What stays the same is the same after a crash: zeros over zeros cost no memory.
            if start < to
                && to <= before
                && self.bytes[start as usize..to as usize] == bytes[(start - offset) as usize..(to - offset) as usize]
            {
                continue;
            }
            let old = self.bytes[from..((part + 1) * PART_BYTES).min(before) as usize].to_vec();
            self.history.entry(part).or_default().push(old);
        }
        if end > before {
            self.lengths.push(before);
            self.bytes.resize(end as usize, 0);
        }
        self.bytes[offset as usize..end as usize].copy_from_slice(bytes);
        // Writing over a bad place mends it, as drives do.
        let mut left = Vec::new();
        for (from, to) in self.bad.drain(..) {
            left.extend([(from, to.min(offset)), (from.max(end), to)].into_iter().filter(|(from, to)| from < to));
        }
        self.bad = left;
    }

    /// Makes the file at least this long, with zeros.
    pub fn lengthen(&mut self, bytes: u64) {
        let before = self.bytes.len() as u64;
        if bytes > before {
            self.lengths.push(before);
            // Zeros that take no memory until they are written: most of what is reserved never is.
            let mut longer = vec![0; bytes as usize];
            longer[..self.bytes.len()].copy_from_slice(&self.bytes);
            self.bytes = longer;
        }
    }

    pub fn sync(&mut self) {
        self.history.clear();
        self.lengths.clear();
    }

    pub fn make_bad(&mut self, from: u64, to: u64) {
        self.bad.push((from, to));
    }

    /// Cuts the file at rest.
    pub fn truncate(&mut self, bytes: u64) {
        self.bytes.truncate(bytes as usize);
        self.sync();
    }

    fn crash(&mut self, random: &dyn Random) {
        // Some crashes keep all or nothing of a file; most mix.
        let mood = random.below(4);
        for (part, versions) in std::mem::take(&mut self.history) {
            let chosen = match mood {
                0 => 0,
                1 => versions.len() as u64,
                _ => random.below(versions.len() as u64 + 1),
            };
            // One past the end is the content as it is.
            if let Some(old) = versions.get(chosen as usize) {
                let from = (part * PART_BYTES) as usize;
                let to = (from + PART_BYTES as usize).min(self.bytes.len());
                self.bytes[from..to].fill(0);
                self.bytes[from..from + old.len()].copy_from_slice(old);
            }
        }
        let lengths = std::mem::take(&mut self.lengths);
        let chosen = match mood {
            0 => 0,
            1 => lengths.len() as u64,
            _ => random.below(lengths.len() as u64 + 1),
        };
        if let Some(length) = lengths.get(chosen as usize) {
            self.bytes.truncate(*length as usize);
        }
    }
}
