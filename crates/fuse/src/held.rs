//! Which nodes the kernel knows, and how often it was told of each.
//!
//! Invariants:
//! 1. A node with a count here is open in the tree exactly once.
//! 2. The root is always known and never counted.
//!
//! Why: the kernel may ask for a node that it knows at any time, also when its last name is gone, because a program has it
//! open or stands in it. The kernel counts each answer that names a node, and gives counts back when it forgets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use claystone_files::{FileError, FileTree, Inode};

/// See the module. Any thread may call.
pub struct HeldNodes {
    tree: Arc<dyn FileTree>,
    counts: Mutex<BTreeMap<Inode, u64>>,
}

impl HeldNodes {
    /// None is held yet.
    pub fn new(tree: Arc<dyn FileTree>) -> HeldNodes {
        HeldNodes { tree, counts: Mutex::default() }
    }

    /// The kernel is about to be told of a node.
    ///
    /// # Errors
    /// Those of [`FileTree::open`]: it may be gone by now.
    pub fn hold(&self, inode: Inode) -> Result<(), FileError> {
        if inode == Inode::ROOT {
            return Ok(());
        }
        // Under the lock, so that nobody counts on a node that is not open yet.
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&inode) {
            *count += 1;
            return Ok(());
        }
        self.tree.open(inode)?;
        counts.insert(inode, 1);
        Ok(())
    }

    /// The kernel forgets what it was told `count` times.
    pub fn forget(&self, inode: Inode, count: u64) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(held) = counts.get_mut(&inode) else { return };
        *held = held.saturating_sub(count);
        if *held == 0 {
            counts.remove(&inode);
            drop(counts);
            self.tree.release(inode);
        }
    }

    /// The kernel is gone.
    pub fn forget_all(&self) {
        let counts = std::mem::take(&mut *self.counts.lock().unwrap_or_else(PoisonError::into_inner));
        counts.into_keys().for_each(|inode| self.tree.release(inode));
    }
}

#[cfg(test)]
mod tests {
    use claystone_files::Kind;
    use claystone_files::testing::{MemoryTree, SteppingClock, new_node};

    use super::*;

    #[test]
    fn a_node_is_held_until_the_last_count_is_back() {
        let tree: Arc<dyn FileTree> = Arc::new(MemoryTree::new(Arc::new(SteppingClock::default()), 100));
        let held = HeldNodes::new(tree.clone());
        let [one, two] = [b"1", b"2"].map(|name| {
            let inode = tree.make(Inode::ROOT, name, &new_node(Kind::File, 0o644)).expect("made").inode;
            held.hold(inode).expect("it is there");
            held.hold(inode).expect("it is there");
            tree.unlink(Inode::ROOT, name).expect("it has the name");
            inode
        });
        held.forget(one, 1);
        assert!(tree.attributes(one).is_ok());
        held.forget(one, 1);
        assert_eq!(tree.attributes(one), Err(FileError::NotFound));
        assert_eq!(held.hold(one), Err(FileError::NotFound));
        held.forget(one, 1);
        held.forget_all();
        assert_eq!(tree.attributes(two), Err(FileError::NotFound));
        // The root is nobody's to release.
        held.hold(Inode::ROOT).expect("the root is there");
        held.forget(Inode::ROOT, 7);
    }
}
