//! Whether the names of a catalog are right.
//!
//! 1. The root is a directory and its own parent.
//! 2. Every name is in a directory that was not removed, and stands for a node of the kind that it tells.
//! 3. A node counts its names: a directory 2 and one for each directory in it, or 0 and no rows when it was removed.
//! 4. A directory has one name, its parent is where that name is, and going up from it leads to the root.
//! 5. A node without a name is an orphan, and only such a node.
//! 6. Every attribute is of a node, and no node's number was given twice.
//!
//! It holds a few words of memory for each node. Left out: runs and free sectors.

use std::collections::{BTreeMap, BTreeSet};

use crate::inode::{InodeRecord, NO_PARENT};
use crate::keys::{self, NEXT_INODE, Span};
use crate::malformed::Malformed;
use crate::name::NameRecord;
use crate::state::decode_next_inode;
use crate::view::View;
use crate::{FileError, Inode, Kind, Table};

/// Something that is not as it has to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameProblem {
    /// A row makes no sense.
    #[error("row {key:02x?} of table {table:?} makes no sense: {source}")]
    Malformed {
        /// The table.
        table: Table,
        /// The row's key.
        key: Vec<u8>,
        /// Why.
        source: Malformed,
    },
    /// There is no root directory.
    #[error("there is no root directory")]
    NoRoot,
    /// The number of the next inode is missing, or taken.
    #[error("the next inode would be {next:?}, and there is inode {last}")]
    NextInode {
        /// What the catalog says.
        next: Option<u64>,
        /// The greatest number there is.
        last: Inode,
    },
    /// A name lies in what is no directory, or a removed one.
    #[error("name {name:02x?} is in inode {directory}, which takes no names")]
    NameNowhere {
        /// Where it lies.
        directory: Inode,
        /// The name.
        name: Vec<u8>,
    },
    /// A name stands for a node that is not there.
    #[error("name {name:02x?} in directory {directory} stands for inode {inode}, which is not there")]
    NameOfNothing {
        /// Where it lies.
        directory: Inode,
        /// The name.
        name: Vec<u8>,
        /// What it stands for.
        inode: Inode,
    },
    /// A name tells another kind than the node has.
    #[error("name {name:02x?} in directory {directory} tells {told:?} of inode {inode}, which is {kind:?}")]
    KindDiffers {
        /// Where it lies.
        directory: Inode,
        /// The name.
        name: Vec<u8>,
        /// What it stands for.
        inode: Inode,
        /// What the name tells.
        told: Kind,
        /// What the node is.
        kind: Kind,
    },
    /// A node counts its names wrong.
    #[error("inode {inode} counts {stored} names and has {found}")]
    NamesDiffer {
        /// Whose.
        inode: Inode,
        /// What its record says.
        stored: u32,
        /// What there is.
        found: u64,
    },
    /// A directory is not where its record says, or has several names.
    #[error("directory {inode} tells that it is in {stored}, and has names in {found:?}")]
    ParentDiffers {
        /// Which.
        inode: Inode,
        /// What its record says.
        stored: Inode,
        /// The directories that have a name of it.
        found: Vec<Inode>,
    },
    /// Going up from a directory never leads to the root.
    #[error("directory {inode} cannot be reached from the root")]
    Unreachable {
        /// Which.
        inode: Inode,
    },
    /// A node has no name and is no orphan.
    #[error("inode {inode} has no name and is no orphan")]
    NoOrphan {
        /// Which.
        inode: Inode,
    },
    /// An orphan has a name, or is not there.
    #[error("inode {inode} is an orphan, and has a name or is not there")]
    WrongOrphan {
        /// Which.
        inode: Inode,
    },
    /// An attribute is of a node that is not there.
    #[error("attribute {name:02x?} is of inode {inode}, which is not there")]
    AttributeOfNothing {
        /// Of which node.
        inode: Inode,
        /// The attribute's name.
        name: Vec<u8>,
    },
}

/// What is wrong with the names, the orphans and the attributes of a catalog.
///
/// # Errors
/// [`FileError::Failed`] where rows do not read. Rows that make no sense are problems.
pub(crate) fn check_names(view: &View<'_>) -> Result<Vec<NameProblem>, FileError> {
    let mut check = Check::default();
    check.read_nodes(view)?;
    check.read_names(view)?;
    check.judge_nodes();
    check.judge_orphans(view)?;
    check.judge_attributes(view)?;
    check.judge_next_inode(view)?;
    Ok(check.problems)
}

#[derive(Default)]
struct Check {
    nodes: BTreeMap<Inode, Node>,
    problems: Vec<NameProblem>,
}

/// What a node's record says, and what the names say.
struct Node {
    kind: Kind,
    names: u32,
    parent: Inode,
    names_found: u64,
    directories_found: u64,
    /// Directories with a name of it, if it is one itself.
    parents_found: Vec<Inode>,
}

impl Check {
    fn read_nodes(&mut self, view: &View<'_>) -> Result<(), FileError> {
        for row in view.rows(Table::Inodes, &Span::all())? {
            let (key, value) = row?;
            let decoded = keys::decode_inode(&key).and_then(|inode| Ok((inode, InodeRecord::decode(&value)?)));
            let Some((inode, InodeRecord { kind, names, parent, .. })) = self.sense(Table::Inodes, &key, decoded)
            else {
                continue;
            };
            let node = Node { kind, names, parent, names_found: 0, directories_found: 0, parents_found: Vec::new() };
            self.nodes.insert(inode, node);
        }
        match self.nodes.get_mut(&Inode::ROOT) {
            // The root has no name; it is where a name of it would be.
            Some(root) if root.kind == Kind::Directory => {
                root.names_found = 1;
                root.parents_found.push(Inode::ROOT);
            }
            _ => self.problems.push(NameProblem::NoRoot),
        }
        Ok(())
    }

    fn read_names(&mut self, view: &View<'_>) -> Result<(), FileError> {
        for row in view.rows(Table::Names, &Span::all())? {
            let (key, value) = row?;
            let decoded = keys::decode_name(&key).and_then(|name| Ok((name, NameRecord::decode(&value)?)));
            if let Some(((directory, name), record)) = self.sense(Table::Names, &key, decoded) {
                self.take_name(directory, name, record);
            }
        }
        Ok(())
    }

    fn take_name(&mut self, directory: Inode, name: &[u8], NameRecord { inode, kind: told }: NameRecord) {
        let name = || name.to_vec();
        match self.nodes.get_mut(&directory) {
            Some(node) if node.kind == Kind::Directory && node.names > 0 => {
                node.directories_found += u64::from(told == Kind::Directory);
            }
            _ => self.problems.push(NameProblem::NameNowhere { directory, name: name() }),
        }
        let Some(node) = self.nodes.get_mut(&inode) else {
            return self.problems.push(NameProblem::NameOfNothing { directory, name: name(), inode });
        };
        if node.kind != told {
            self.problems.push(NameProblem::KindDiffers { directory, name: name(), inode, told, kind: node.kind });
        }
        node.names_found += 1;
        if node.kind == Kind::Directory {
            node.parents_found.push(directory);
        }
    }

    fn judge_nodes(&mut self) {
        let mut reached = BTreeSet::from([Inode::ROOT]);
        for (&inode, node) in &self.nodes {
            let is_directory = node.kind == Kind::Directory;
            let found = match (is_directory, node.names_found) {
                (true, 1..) => 2 + node.directories_found,
                (_, names) => names,
            };
            if u64::from(node.names) != found {
                self.problems.push(NameProblem::NamesDiffer { inode, stored: node.names, found });
            }
            let parents_right = match (is_directory && node.names_found > 0, &node.parents_found[..]) {
                (true, [parent]) => node.parent == *parent,
                (true, _) => false,
                (false, _) => node.parent == NO_PARENT,
            };
            if !parents_right {
                let found = node.parents_found.clone();
                self.problems.push(NameProblem::ParentDiffers { inode, stored: node.parent, found });
            }
            if is_directory && node.names_found > 0 && !self.reaches_root(inode, &mut reached) {
                self.problems.push(NameProblem::Unreachable { inode });
            }
        }
    }

    /// Goes up by names to what is known to be reached, and then knows the same of all that it passed.
    fn reaches_root(&self, directory: Inode, reached: &mut BTreeSet<Inode>) -> bool {
        let mut passed = BTreeSet::new();
        let mut at = directory;
        while !reached.contains(&at) {
            let above = self.nodes.get(&at).and_then(|node| node.parents_found.first());
            match above {
                Some(&above) if passed.insert(at) => at = above,
                _ => return false,
            }
        }
        reached.append(&mut passed);
        true
    }

    fn judge_orphans(&mut self, view: &View<'_>) -> Result<(), FileError> {
        let mut orphans = BTreeSet::new();
        for row in view.rows(Table::Orphans, &Span::all())? {
            let (key, value) = row?;
            let decoded = match value.len() {
                0 => keys::decode_inode(&key),
                bytes => Err(Malformed::TooLong { bytes, bytes_max: 0 }),
            };
            let Some(inode) = self.sense(Table::Orphans, &key, decoded) else { continue };
            orphans.insert(inode);
            if self.nodes.get(&inode).is_none_or(|node| node.names_found > 0) {
                self.problems.push(NameProblem::WrongOrphan { inode });
            }
        }
        for (&inode, node) in &self.nodes {
            if node.names_found == 0 && !orphans.contains(&inode) {
                self.problems.push(NameProblem::NoOrphan { inode });
            }
        }
        Ok(())
    }

    fn judge_attributes(&mut self, view: &View<'_>) -> Result<(), FileError> {
        for row in view.rows(Table::Attributes, &Span::all())? {
            let (key, _) = row?;
            let decoded = keys::decode_name(&key);
            if let Some((inode, name)) = self.sense(Table::Attributes, &key, decoded)
                && !self.nodes.contains_key(&inode)
            {
                self.problems.push(NameProblem::AttributeOfNothing { inode, name: name.to_vec() });
            }
        }
        Ok(())
    }

    fn judge_next_inode(&mut self, view: &View<'_>) -> Result<(), FileError> {
        let next = match view.get(Table::State, NEXT_INODE)? {
            Some(value) => self.sense(Table::State, NEXT_INODE, decode_next_inode(&value)),
            None => None,
        };
        if let Some((&last, _)) = self.nodes.last_key_value()
            && next.is_none_or(|next| next <= last.0)
        {
            self.problems.push(NameProblem::NextInode { next, last });
        }
        Ok(())
    }

    /// Keeps what a decoder refuses as a problem.
    fn sense<T>(&mut self, table: Table, key: &[u8], decoded: Result<T, Malformed>) -> Option<T> {
        match decoded {
            Ok(decoded) => Some(decoded),
            Err(source) => {
                self.problems.push(NameProblem::Malformed { table, key: key.to_vec(), source });
                None
            }
        }
    }
}
