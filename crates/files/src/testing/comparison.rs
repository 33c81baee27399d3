//! The same random calls on a tree and on the reference: every answer and the whole trees must be alike.
//!
//! Invariants:
//! 1. A seed decides every call.
//! 2. Inode numbers, times and sectors may differ between the two trees, nothing else.
//! 3. At most [`NODES_MAX`] nodes of at most [`FILE_BYTES_MAX`] bytes, but for holes, are kept: 64 MiB are enough.
//!
//! Left out: calls that fail because the disk is full, which happens at different fills.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{MemoryTree, SteppingClock};
use crate::{Attributes, FileTree, Inode, Kind, NewAttributes, NewNode, RenameMode, Seek};

/// Runs `steps` calls on `tree`, which must be empty and hold at least 64 MiB.
///
/// # Panics
/// If the trees differ, with the seed and the step.
pub fn compare(tree: &dyn FileTree, seed: u64, steps: usize) {
    let mut comparison = Comparison::new(tree, seed);
    comparison.run(tree, steps);
    comparison.close(tree);
}

/// A comparison that can be interrupted, to open a disk anew in between.
pub struct Comparison {
    reference: MemoryTree,
    seed: u64,
    state: u64,
    step: usize,
    /// Every node that was made, also after it is gone.
    nodes: Vec<Pair>,
    /// What is open and how often, by the reference's inode.
    opens: BTreeMap<Inode, (Pair, u32)>,
}

#[derive(Debug, Clone, Copy)]
struct Pair {
    tree: Inode,
    reference: Inode,
    kind: Kind,
}

impl Comparison {
    /// Begins with an empty tree.
    pub fn new(tree: &dyn FileTree, seed: u64) -> Comparison {
        let reference = MemoryTree::new(Arc::new(SteppingClock::default()), 1 << 24);
        let root = Pair { tree: Inode::ROOT, reference: Inode::ROOT, kind: Kind::Directory };
        let plain = NewAttributes {
            permissions: Some(0o755),
            owner: Some(0),
            owner_group: Some(0),
            ..NewAttributes::default()
        };
        tree.set_attributes(Inode::ROOT, &plain).expect("the root is there");
        Comparison { reference, seed, state: seed, step: 0, nodes: vec![root], opens: BTreeMap::new() }
    }

    /// Goes on with `steps` calls.
    ///
    /// # Panics
    /// If the trees differ.
    pub fn run(&mut self, tree: &dyn FileTree, steps: usize) {
        for _ in 0..steps {
            self.step += 1;
            self.call(tree);
            if self.step.is_multiple_of(STEPS_BETWEEN_CHECKS) {
                self.check(tree);
            }
        }
    }

    /// Releases what is open, and compares all that is left.
    ///
    /// # Panics
    /// If the trees differ.
    pub fn close(&mut self, tree: &dyn FileTree) {
        for (pair, opens) in std::mem::take(&mut self.opens).into_values() {
            for _ in 0..opens {
                tree.release(pair.tree);
                self.reference.release(pair.reference);
            }
        }
        self.check(tree);
    }

    /// Compares all nodes, named and open.
    ///
    /// # Panics
    /// If they differ.
    pub fn check(&mut self, tree: &dyn FileTree) {
        for index in 0..self.nodes.len() {
            self.check_node(tree, self.nodes[index]);
        }
        // Few of those that are gone stay, to ask for them again.
        let gone = |pair: &&Pair| self.reference.attributes(pair.reference).is_err();
        let mut drop = self.nodes.iter().filter(gone).count().saturating_sub(GONE_MAX);
        let reference = &self.reference;
        self.nodes.retain(|pair| {
            let stays = drop == 0 || reference.attributes(pair.reference).is_ok();
            drop -= usize::from(!stays);
            stays
        });
        self.same("space", tree.space().inodes, self.reference.space().inodes);
    }

    fn check_node(&self, tree: &dyn FileTree, pair: Pair) {
        let attributes = tree.attributes(pair.tree).map(|found| plain(&found));
        let expected = self.reference.attributes(pair.reference).map(|found| plain(&found));
        self.same("attributes", &attributes, &expected);
        let Ok((_, _, _, _, _, bytes, _)) = expected else { return };
        self.same("attribute names", tree.attribute_names(pair.tree), self.reference.attribute_names(pair.reference));
        match pair.kind {
            Kind::Directory => {
                let rows = |tree: &dyn FileTree, inode| {
                    let rows = tree.read_directory(inode, None, usize::MAX).expect("it is a directory");
                    rows.into_iter().map(|row| (row.name, row.kind, row.inode)).collect::<Vec<_>>()
                };
                let found = rows(tree, pair.tree);
                let expected = rows(&self.reference, pair.reference);
                // Inodes by what they are in the reference.
                let found: Vec<_> =
                    found.into_iter().map(|(name, kind, inode)| (name, kind, self.twin(inode))).collect();
                self.same("rows", found, expected);
            }
            Kind::Link => {
                self.same("target", tree.read_link(pair.tree), self.reference.read_link(pair.reference));
            }
            Kind::File => {
                let mut offset = 0;
                while offset < bytes {
                    let data = self.reference.seek(pair.reference, offset, Seek::Data).unwrap_or(bytes);
                    // A little of each hole, and all that is data.
                    self.check_bytes(tree, pair, offset, (data - offset).min(20_000) as usize);
                    let hole = self.reference.seek(pair.reference, data, Seek::Hole).unwrap_or(bytes);
                    self.check_bytes(tree, pair, data, (hole - data) as usize);
                    offset = hole;
                }
            }
            Kind::BlockDevice | Kind::CharacterDevice | Kind::Pipe | Kind::Socket => {}
        }
    }

    /// The reference's inode of a node of the tree.
    fn twin(&self, inode: Inode) -> Inode {
        let alive = |pair: &&Pair| pair.tree == inode && self.reference.attributes(pair.reference).is_ok();
        self.nodes.iter().find(alive).map_or(Inode(0), |pair| pair.reference)
    }

    fn check_bytes(&self, tree: &dyn FileTree, pair: Pair, offset: u64, count: usize) {
        let (mut found, mut expected) = (vec![0xa5; count], vec![0x5a; count]);
        let read = tree.read(pair.tree, offset, &mut found);
        let read_expected = self.reference.read(pair.reference, offset, &mut expected);
        self.same("bytes read", &read, &read_expected);
        let count = read_expected.unwrap_or(0);
        if let Some(at) = (0..count).find(|&at| found[at] != expected[at]) {
            let byte = (found[at], expected[at]);
            panic!("seed {} step {}: byte {} of {pair:?} is {byte:?}", self.seed, self.step, offset + at as u64);
        }
        let own = tree.read_bytes(pair.tree, offset, found.len());
        let same = own.as_ref().map_or_else(|_| read.is_err(), |own| **own == expected[..count]);
        self.same("what is read into the tree's own buffer as expected", same, true);
    }

    fn same<T: PartialEq + std::fmt::Debug>(&self, what: &str, found: T, expected: T) {
        assert!(
            found == expected,
            "seed {} step {}: {what} is {found:?}, the reference has {expected:?}",
            self.seed,
            self.step
        );
    }

    /// One random call on both.
    fn call(&mut self, tree: &dyn FileTree) {
        let living = self.reference.space().inodes as usize;
        // A full house only loses.
        let choice = if living > NODES_MAX { 40 + self.below(16) } else { self.below(100) };
        match choice {
            0..20 => self.make(tree),
            20..24 => self.link(tree),
            24..40 => self.rename(tree),
            40..52 => self.remove(tree),
            52..56 => self.open_or_release(tree),
            56..60 => self.set_attributes(tree),
            60..66 => self.extended(tree),
            66..84 => self.write(tree),
            84..92 => self.shape(tree),
            92..97 => self.read(tree),
            _ => self.sync(tree),
        }
    }

    fn make(&mut self, tree: &dyn FileTree) {
        let (directory, name) = (self.directory(), self.name());
        let kind = match self.below(20) {
            0..11 => Kind::File,
            11..16 => Kind::Directory,
            16 | 17 => Kind::Link,
            18 => Kind::Pipe,
            _ => Kind::CharacterDevice,
        };
        let node = NewNode {
            kind,
            permissions: self.below(0o10000) as u16,
            owner: self.below(3) as u32,
            owner_group: self.below(3) as u32,
            device: self.below(1 << 20),
            target: name.clone(),
        };
        let made = tree.make(directory.tree, &name, &node);
        let expected = self.reference.make(directory.reference, &name, &node);
        if let (Ok(made), Ok(expected)) = (&made, &expected) {
            self.nodes.push(Pair { tree: made.inode, reference: expected.inode, kind });
        }
        self.same("make", made.map(|made| plain(&made)), expected.map(|expected| plain(&expected)));
    }

    fn link(&mut self, tree: &dyn FileTree) {
        let (pair, directory, name) = (self.any(), self.directory(), self.name());
        let linked = tree.link(pair.tree, directory.tree, &name).map(|linked| plain(&linked));
        let expected = self.reference.link(pair.reference, directory.reference, &name);
        self.same("link", linked, expected.map(|expected| plain(&expected)));
    }

    fn rename(&mut self, tree: &dyn FileTree) {
        let (from, from_name, to, to_name) = (self.directory(), self.name(), self.directory(), self.name());
        let mode = match self.below(10) {
            0..6 => RenameMode::Replace,
            6..8 => RenameMode::Keep,
            _ => RenameMode::Exchange,
        };
        let moved = tree.rename((from.tree, &from_name), (to.tree, &to_name), mode);
        let expected = self.reference.rename((from.reference, &from_name), (to.reference, &to_name), mode);
        self.same("rename", moved, expected);
    }

    fn remove(&mut self, tree: &dyn FileTree) {
        let (directory, name) = (self.directory(), self.name());
        if self.below(3) == 0 {
            let removed = tree.remove_directory(directory.tree, &name);
            self.same("remove_directory", removed, self.reference.remove_directory(directory.reference, &name));
        } else {
            self.same("unlink", tree.unlink(directory.tree, &name), self.reference.unlink(directory.reference, &name));
        }
    }

    fn open_or_release(&mut self, tree: &dyn FileTree) {
        if let Some((&key, &(pair, opens))) = self.opens.iter().next()
            && (self.opens.len() > OPENS_MAX || self.below(2) == 0)
        {
            tree.release(pair.tree);
            self.reference.release(pair.reference);
            match opens {
                1 => _ = self.opens.remove(&key),
                _ => _ = self.opens.insert(key, (pair, opens - 1)),
            }
            return;
        }
        let pair = self.any();
        let expected = self.reference.open(pair.reference);
        self.same("open", tree.open(pair.tree), expected.clone());
        if expected.is_ok() {
            self.opens.entry(pair.reference).or_insert((pair, 0)).1 += 1;
        }
    }

    fn set_attributes(&mut self, tree: &dyn FileTree) {
        let pair = self.any();
        let new = NewAttributes {
            permissions: (self.below(2) == 0).then(|| self.below(0o10000) as u16),
            owner: (self.below(2) == 0).then(|| self.below(1000) as u32),
            owner_group: (self.below(2) == 0).then(|| self.below(1000) as u32),
            ..NewAttributes::default()
        };
        let set = tree.set_attributes(pair.tree, &new).map(|set| plain(&set));
        let expected = self.reference.set_attributes(pair.reference, &new).map(|set| plain(&set));
        self.same("set_attributes", set, expected);
    }

    fn extended(&mut self, tree: &dyn FileTree) {
        let (pair, name) = (self.any(), self.name());
        match self.below(4) {
            0 => {
                let removed = tree.remove_attribute(pair.tree, &name);
                self.same("remove_attribute", removed, self.reference.remove_attribute(pair.reference, &name));
            }
            1 => {
                let value = tree.attribute(pair.tree, &name);
                self.same("attribute", value, self.reference.attribute(pair.reference, &name));
            }
            _ => {
                let count = self.below(2000) as usize;
                let value = self.bytes(count);
                let there = [None, Some(true), Some(false)][self.below(3) as usize];
                let set = tree.set_attribute(pair.tree, &name, &value, there);
                self.same("set_attribute", set, self.reference.set_attribute(pair.reference, &name, &value, there));
            }
        }
    }

    fn write(&mut self, tree: &dyn FileTree) {
        let pair = self.file();
        let (offset, count) = self.range();
        let bytes = self.bytes(count);
        let written = tree.write(pair.tree, offset, &bytes);
        self.same("write", written, self.reference.write(pair.reference, offset, &bytes));
    }

    /// Cuts, punches, allocates.
    fn shape(&mut self, tree: &dyn FileTree) {
        let pair = self.file();
        let (offset, count) = self.range();
        match self.below(4) {
            0 => {
                let keep = self.below(2) == 0;
                let allocated = tree.allocate(pair.tree, offset, count as u64, keep);
                self.same("allocate", allocated, self.reference.allocate(pair.reference, offset, count as u64, keep));
            }
            1 => {
                let punched = tree.punch(pair.tree, offset, count as u64);
                self.same("punch", punched, self.reference.punch(pair.reference, offset, count as u64));
            }
            _ => {
                let new = NewAttributes { bytes: Some(offset), ..NewAttributes::default() };
                let cut = tree.set_attributes(pair.tree, &new).map(|set| plain(&set));
                let expected = self.reference.set_attributes(pair.reference, &new).map(|set| plain(&set));
                self.same("cut", cut, expected);
            }
        }
    }

    fn read(&mut self, tree: &dyn FileTree) {
        let pair = self.file();
        let (offset, count) = self.range();
        self.check_bytes(tree, pair, offset, count);
    }

    fn sync(&mut self, tree: &dyn FileTree) {
        if self.below(4) == 0 {
            self.same("sync_all", tree.sync_all(), Ok(()));
        } else {
            let pair = self.any();
            self.same("sync", tree.sync(pair.tree), self.reference.sync(pair.reference));
        }
    }

    /// A range of a file: mostly small and near its beginning, a few far behind.
    fn range(&mut self) -> (u64, usize) {
        let offset = match self.below(10) {
            0 => 0,
            1..4 => self.below(FILE_BYTES_MAX / 4096) * 4096,
            4 => (1 << 32) + self.below(10_000),
            _ => self.below(FILE_BYTES_MAX),
        };
        let count = match self.below(10) {
            0 => self.below(FILE_BYTES_MAX / 2),
            1..4 => 4096 * (1 + self.below(8)),
            _ => 1 + self.below(6000),
        };
        (offset, count as usize)
    }

    fn any(&mut self) -> Pair {
        let index = self.below(self.nodes.len() as u64) as usize;
        self.nodes[index]
    }

    /// Mostly a directory that is there.
    fn directory(&mut self) -> Pair {
        self.mostly(Kind::Directory)
    }

    /// Mostly a file that is there.
    fn file(&mut self) -> Pair {
        self.mostly(Kind::File)
    }

    fn mostly(&mut self, kind: Kind) -> Pair {
        for _ in 0..60 {
            let pair = self.any();
            if pair.kind == kind && self.reference.attributes(pair.reference).is_ok() {
                return pair;
            }
        }
        self.any()
    }

    fn name(&mut self) -> Vec<u8> {
        match self.below(NAMES + 1) {
            NAMES => vec![b'l'; 255],
            number => format!("name-{number}").into_bytes(),
        }
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// splitmix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// What must be alike.
fn plain(attributes: &Attributes) -> (Kind, u16, u32, u32, u32, u64, u64) {
    let Attributes { kind, permissions, owner, owner_group, names, bytes, device, .. } = *attributes;
    (kind, permissions, owner, owner_group, names, bytes, device)
}

const NAMES: u64 = 10;
const NODES_MAX: usize = 60;
const FILE_BYTES_MAX: u64 = 400_000;
const OPENS_MAX: usize = 6;
const GONE_MAX: usize = 60;
const STEPS_BETWEEN_CHECKS: usize = 250;
