//! What callers were told of a tree of files, and what a crash may make of it.
//!
//! Invariants:
//! 1. Names and attributes are, after a crash, as they were after some call: none earlier than what was promised last.
//! 2. Each sector of a file is, after a crash, as some call left it: none earlier than what was promised last for the file.
//!    So is the file's size, but that of a write some sectors may be there and others not.
//! 3. What was found after a crash is what is there: it may not change by another crash.
//!
//! Left out: times, and errors of calls that make no sense; trees are compared with a reference for those.

mod content;
mod shape;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use anyhow::{Context, Result, bail, ensure};
use claystone_files::{FileError, FileTree, Inode, Kind};

pub use self::content::Content;
pub use self::shape::{Node, Shape, ShapeChange};

/// See the module.
#[derive(Debug, Clone)]
pub struct Model {
    /// Names as they may be after a crash, oldest first, each with the number of the call that made it; the last is how
    /// they are.
    shapes: VecDeque<(u64, Shape)>,
    /// Files that are there, or may be after a crash.
    files: BTreeMap<Inode, Content>,
    /// The last call that changed a node's names or attributes.
    touched: BTreeMap<Inode, u64>,
    open: BTreeSet<Inode>,
    calls: u64,
    /// Whether files are compared as who reads streams reads them: into buffers that the disk keeps.
    pub streams: bool,
}

impl Model {
    /// Of a tree that holds only the root.
    pub fn new() -> Model {
        Model {
            shapes: VecDeque::from([(0, Shape::new())]),
            files: BTreeMap::new(),
            touched: BTreeMap::new(),
            open: BTreeSet::new(),
            calls: 0,
            streams: false,
        }
    }

    /// Names as they are.
    pub fn shape(&self) -> &Shape {
        &self.shapes.back().expect("there is always one").1
    }

    /// Nodes that were opened and not released.
    pub fn open(&self) -> &BTreeSet<Inode> {
        &self.open
    }

    /// Content of a file that has a name or is open.
    ///
    /// # Panics
    /// If it is no such file.
    pub fn content(&self, inode: Inode) -> &Content {
        &self.files[&inode]
    }

    /// The content, to be changed by a call that happened, or may have.
    ///
    /// # Panics
    /// If it is no file.
    pub fn content_mut(&mut self, inode: Inode) -> &mut Content {
        self.calls += 1;
        self.files.get_mut(&inode).expect("calls are made on files that are there")
    }

    /// Names and attributes were changed by a call that happened; or may have, and then a crash follows.
    pub fn change(&mut self, change: ShapeChange) {
        self.calls += 1;
        let mut shape = self.shape().clone();
        for inode in shape.change(&change) {
            self.touched.insert(inode, self.calls);
        }
        if let ShapeChange::Make { inode: Some(inode), kind: Kind::File, .. } = change {
            self.files.insert(inode, Content::default());
        }
        self.shapes.push_back((self.calls, shape));
        self.sweep();
    }

    /// A node was opened.
    pub fn opened(&mut self, inode: Inode) {
        self.open.insert(inode);
    }

    /// A node was released.
    pub fn released(&mut self, inode: Inode) {
        self.open.remove(&inode);
        self.sweep();
    }

    /// A node was synced: what it holds, and that it is there.
    pub fn synced(&mut self, inode: Inode) {
        if let Some(content) = self.files.get_mut(&inode) {
            content.promise();
        }
        let since = self.touched.get(&inode).copied().unwrap_or(0);
        while self.shapes.len() > 1 && self.shapes[1].0 <= since {
            self.shapes.pop_front();
        }
        self.sweep();
    }

    /// All was synced.
    pub fn synced_all(&mut self) {
        self.shapes.drain(..self.shapes.len() - 1);
        self.files.values_mut().for_each(Content::promise);
        self.sweep();
    }

    /// How many states of the names a crash may leave.
    pub fn states(&self) -> usize {
        self.shapes.len()
    }

    /// Forgets files that no crash brings back.
    fn sweep(&mut self) {
        let (shapes, open) = (&self.shapes, &self.open);
        self.files.retain(|inode, _| open.contains(inode) || shapes.iter().any(|(_, shape)| shape.has(*inode)));
    }

    /// Compares all of a tree with what it has to be now.
    ///
    /// # Errors
    /// What differs, or does not read.
    pub fn verify(&self, tree: &dyn FileTree) -> Result<()> {
        let found = Shape::read(tree)?;
        ensure!(found == *self.shape(), "names differ: {}", found.difference(self.shape()));
        let named = self.shape().files();
        for inode in named.chain(self.open.iter().copied().filter(|inode| !self.shape().has(*inode))) {
            if let Some(content) = self.files.get(&inode) {
                content.verify(tree, inode, self.streams).with_context(|| format!("inode {inode}"))?;
            }
        }
        Ok(())
    }

    /// Compares all of a tree in which something is lost with what it has to be now: each read gives that, or an error for
    /// which `names` says that it names what is lost.
    ///
    /// # Errors
    /// What differs, or an error that names nothing.
    pub fn judge(&self, tree: &dyn FileTree, names: &mut dyn FnMut(&FileError) -> bool) -> Result<()> {
        match Shape::read(tree) {
            Ok(found) => ensure!(found == *self.shape(), "names differ: {}", found.difference(self.shape())),
            Err(error) => ensure!(error.downcast_ref().is_some_and(&mut *names), "names do not read: {error:#}"),
        }
        for inode in self.shape().files() {
            self.files[&inode].judge(tree, inode, names).with_context(|| format!("inode {inode}"))?;
        }
        Ok(())
    }

    /// Takes what a tree holds after a crash, if the model allows it.
    ///
    /// # Errors
    /// What was promised and is not there, or is there and never was.
    pub fn recover(&mut self, tree: &dyn FileTree) -> Result<()> {
        let found = Shape::read(tree)?;
        self.open.clear();
        let mut candidates = self.shapes.iter_mut();
        let Some(at) = candidates.position(|(_, shape)| {
            shape.learn_inode(&found);
            *shape == found
        }) else {
            let (first, last) = (&self.shapes[0].1, self.shape());
            bail!(
                "names are as after none of {} calls: against the first {}; against the last {}",
                self.shapes.len(),
                found.difference(first),
                found.difference(last)
            );
        };
        self.shapes = VecDeque::from([(self.calls, self.shapes[at].1.clone())]);
        for inode in found.files() {
            let content = self.files.entry(inode).or_default();
            content.recover(tree, inode).with_context(|| format!("inode {inode}"))?;
        }
        self.sweep();
        Ok(())
    }
}

impl Default for Model {
    fn default() -> Model {
        Model::new()
    }
}

#[cfg(test)]
mod tests;
