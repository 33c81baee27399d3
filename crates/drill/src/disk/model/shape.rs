//! Names and attributes of a tree at one moment.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use claystone_files::{FileTree, Inode, Kind};

/// A node that has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// The low 12 bits of its mode.
    pub permissions: u16,
    /// Its names; a directory's as POSIX counts them.
    pub names: u32,
    /// The target of a link.
    pub target: Vec<u8>,
    /// Extended attributes.
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The rows of a directory.
    pub rows: BTreeMap<Vec<u8>, Inode>,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    nodes: BTreeMap<Inode, Node>,
}

/// A change of names or attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ShapeChange {
    /// A node is made; `inode` is `None` where the call did not tell.
    Make {
        /// In which directory.
        directory: Inode,
        /// Under which name.
        name: Vec<u8>,
        /// Its number.
        inode: Option<Inode>,
        /// What it is.
        kind: Kind,
        /// The low 12 bits of its mode.
        permissions: u16,
        /// The target of a link.
        target: Vec<u8>,
    },
    /// A node gets one more name.
    Link {
        /// Which node.
        inode: Inode,
        /// Where.
        directory: Inode,
        /// The name.
        name: Vec<u8>,
    },
    /// A name goes, of an empty directory or any other node.
    Remove {
        /// Where.
        directory: Inode,
        /// The name.
        name: Vec<u8>,
    },
    /// A name moves, replacing what has the new one.
    Rename {
        /// From where.
        from: (Inode, Vec<u8>),
        /// To where.
        to: (Inode, Vec<u8>),
    },
    /// Two names change places.
    Exchange {
        /// One.
        from: (Inode, Vec<u8>),
        /// The other.
        to: (Inode, Vec<u8>),
    },
    /// The mode is set.
    SetPermissions {
        /// Of which node.
        inode: Inode,
        /// The low 12 bits.
        permissions: u16,
    },
    /// An extended attribute is set, or removed.
    SetAttribute {
        /// Of which node.
        inode: Inode,
        /// Its name.
        name: Vec<u8>,
        /// Its value.
        value: Option<Vec<u8>>,
    },
}

/// Stands for a node that was made by a call that did not tell its inode.
const UNTOLD: Inode = Inode(u64::MAX);

impl Shape {
    /// Only the root.
    pub fn new() -> Shape {
        Shape { nodes: BTreeMap::from([(Inode::ROOT, new_node(Kind::Directory, 0o755, Vec::new()))]) }
    }

    /// All nodes.
    pub fn nodes(&self) -> &BTreeMap<Inode, Node> {
        &self.nodes
    }

    /// Whether a node has a name.
    pub fn has(&self, inode: Inode) -> bool {
        self.nodes.contains_key(&inode)
    }

    /// All files.
    pub fn files(&self) -> impl Iterator<Item = Inode> + '_ {
        self.nodes.iter().filter(|(_, node)| node.kind == Kind::File).map(|(&inode, _)| inode)
    }

    /// All directories.
    pub fn directories(&self) -> impl Iterator<Item = Inode> + '_ {
        self.nodes.iter().filter(|(_, node)| node.kind == Kind::Directory).map(|(&inode, _)| inode)
    }

    /// All names: directory, name and whose it is.
    pub fn rows(&self) -> impl Iterator<Item = (Inode, &[u8], Inode)> + '_ {
        self.nodes
            .iter()
            .flat_map(|(&directory, node)| node.rows.iter().map(move |(name, &inode)| (directory, &name[..], inode)))
    }

    /// Whether `below` is `above` or in it at any depth.
    pub fn is_within(&self, below: Inode, above: Inode) -> bool {
        below == above
            || self.nodes.get(&above).is_some_and(|node| node.rows.values().any(|&row| self.is_within(below, row)))
    }

    /// Changes it as a call does that makes sense, and returns the nodes that it was about.
    pub fn change(&mut self, change: &ShapeChange) -> Vec<Inode> {
        match change {
            ShapeChange::Make { directory, name, inode, kind, permissions, target } => {
                let inode = inode.unwrap_or(UNTOLD);
                self.nodes.insert(inode, new_node(*kind, *permissions, target.clone()));
                self.attach(*directory, name, inode);
                vec![inode, *directory]
            }
            ShapeChange::Link { inode, directory, name } => {
                self.node(*inode).names += 1;
                self.attach(*directory, name, *inode);
                vec![*inode, *directory]
            }
            ShapeChange::Remove { directory, name } => {
                let inode = self.detach(*directory, name);
                self.lose_name(inode);
                vec![inode, *directory]
            }
            ShapeChange::Rename { from, to } => {
                let moved = self.detach(from.0, &from.1);
                let mut about = vec![moved, from.0, to.0];
                if self.node(to.0).rows.contains_key(&to.1) {
                    let replaced = self.detach(to.0, &to.1);
                    self.lose_name(replaced);
                    about.push(replaced);
                }
                self.attach(to.0, &to.1, moved);
                about
            }
            ShapeChange::Exchange { from, to } => {
                let (one, two) = (self.detach(from.0, &from.1), self.detach(to.0, &to.1));
                self.attach(from.0, &from.1, two);
                self.attach(to.0, &to.1, one);
                vec![one, two, from.0, to.0]
            }
            ShapeChange::SetPermissions { inode, permissions } => {
                self.node(*inode).permissions = *permissions;
                vec![*inode]
            }
            ShapeChange::SetAttribute { inode, name, value } => {
                let attributes = &mut self.node(*inode).attributes;
                match value {
                    Some(value) => _ = attributes.insert(name.clone(), value.clone()),
                    None => _ = attributes.remove(name),
                }
                vec![*inode]
            }
        }
    }

    /// Reads the names and attributes of a tree from its root on.
    ///
    /// # Errors
    /// What does not read, or contradicts itself.
    pub fn read(tree: &dyn FileTree) -> Result<Shape> {
        let mut nodes = BTreeMap::new();
        let mut unread = vec![Inode::ROOT];
        while let Some(inode) = unread.pop() {
            if nodes.contains_key(&inode) {
                continue;
            }
            let node = read_node(tree, inode).with_context(|| format!("reading inode {inode}"))?;
            unread.extend(node.rows.values());
            nodes.insert(inode, node);
        }
        Ok(Shape { nodes })
    }

    /// Where a call did not tell the inode of what it made, takes it from what was found.
    pub fn learn_inode(&mut self, found: &Shape) {
        let untold = self.rows().find(|row| row.2 == UNTOLD).map(|(directory, name, _)| (directory, name.to_vec()));
        let Some((directory, name)) = untold else { return };
        let Some(&inode) = found.nodes.get(&directory).and_then(|node| node.rows.get(&name)) else { return };
        if !self.has(inode) {
            let node = self.nodes.remove(&UNTOLD).expect("it has a name");
            self.nodes.insert(inode, node);
            self.node(directory).rows.insert(name, inode);
        }
    }

    /// The first nodes that differ, for a person.
    pub fn difference(&self, expected: &Shape) -> String {
        let all: std::collections::BTreeSet<_> = self.nodes.keys().chain(expected.nodes.keys()).collect();
        let differs = |inode: &&Inode| self.nodes.get(inode) != expected.nodes.get(inode);
        let shown = all.into_iter().filter(differs).take(3);
        let lines: Vec<String> = shown
            .map(|inode| {
                format!("inode {inode} is {:?}, expected {:?}", self.nodes.get(inode), expected.nodes.get(inode))
            })
            .collect();
        lines.join("; ")
    }

    fn node(&mut self, inode: Inode) -> &mut Node {
        self.nodes.get_mut(&inode).expect("calls are made on nodes that are there")
    }

    fn attach(&mut self, directory: Inode, name: &[u8], inode: Inode) {
        let is_directory = self.node(inode).kind == Kind::Directory;
        let into = self.node(directory);
        into.names += u32::from(is_directory);
        into.rows.insert(name.to_vec(), inode);
    }

    fn detach(&mut self, directory: Inode, name: &[u8]) -> Inode {
        let inode = self.node(directory).rows.remove(name).expect("the name is there");
        let is_directory = self.node(inode).kind == Kind::Directory;
        self.node(directory).names -= u32::from(is_directory);
        inode
    }

    fn lose_name(&mut self, inode: Inode) {
        let node = self.node(inode);
        node.names = if node.kind == Kind::Directory { 0 } else { node.names - 1 };
        if node.names == 0 {
            self.nodes.remove(&inode);
        }
    }
}

impl Default for Shape {
    fn default() -> Shape {
        Shape::new()
    }
}

fn new_node(kind: Kind, permissions: u16, target: Vec<u8>) -> Node {
    let names = if kind == Kind::Directory { 2 } else { 1 };
    Node { kind, permissions, names, target, attributes: BTreeMap::new(), rows: BTreeMap::new() }
}

fn read_node(tree: &dyn FileTree, inode: Inode) -> Result<Node> {
    let attributes = tree.attributes(inode)?;
    ensure!(attributes.inode == inode, "it calls itself {}", attributes.inode);
    let kind = attributes.kind;
    let mut node = new_node(kind, attributes.permissions, Vec::new());
    node.names = attributes.names;
    if kind == Kind::Link {
        node.target = tree.read_link(inode)?;
    }
    for name in tree.attribute_names(inode)? {
        let value = tree.attribute(inode, &name)?;
        node.attributes.insert(name, value);
    }
    if kind == Kind::Directory {
        for row in tree.read_directory(inode, None, usize::MAX)? {
            let found = tree.lookup(inode, &row.name)?;
            ensure!(found.inode == row.inode && found.kind == row.kind, "{row:?} is looked up as {found:?}");
            node.rows.insert(row.name, row.inode);
        }
    }
    Ok(node)
}
