//! Test support: the reference tree in memory, the suite that every tree passes, and a comparison by random calls.
//!
//! Invariants:
//! 1. [`MemoryTree`] is the contract of [`FileTree`](crate::FileTree) in its plainest form; where another tree differs, one
//!    of the two is wrong.
//! 2. [`tree_conformance`] and [`compare`] use the trait only, so they say nothing about crashes; each tree tests those
//!    itself.

mod comparison;
mod memory_tree;
mod stepping_clock;
mod tree_conformance;

pub use comparison::{Comparison, compare};
pub use memory_tree::MemoryTree;
pub use stepping_clock::SteppingClock;
pub use tree_conformance::{new_node, tree_conformance};

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{FileTree, Inode, Kind};

    fn memory_tree() -> MemoryTree {
        MemoryTree::new(Arc::new(SteppingClock::default()), 1 << 15)
    }

    #[test]
    fn the_reference_conforms() {
        tree_conformance(|| Arc::new(memory_tree()));
    }

    #[test]
    fn the_reference_is_like_itself() {
        for seed in 0..10 {
            compare(&memory_tree(), seed, 2000);
        }
    }

    #[test]
    #[should_panic(expected = "seed 5 step 500: rows")]
    fn a_difference_is_found() {
        let tree = memory_tree();
        let mut comparison = Comparison::new(&tree, 5);
        comparison.run(&tree, 500);
        let made = tree.make(Inode::ROOT, b"not in the reference", &new_node(Kind::File, 0o644));
        made.expect("the name is free");
        comparison.check(&tree);
    }
}
