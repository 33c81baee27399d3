//! Test support: a reference store in memory, wrappers that inject faults and crashes, and the suites that every store passes.
//!
//! Invariants:
//! 1. [`MemoryStore`] is the contract of [`ChunkStore`](crate::ChunkStore) and of [`SegmentStore`](crate::SegmentStore) in
//!    its plainest form; where another store differs, one of the two is wrong.
//! 2. [`conformance`] uses the trait only, so it says nothing about restarts; each store tests those itself. [`segments`]
//!    opens stores anew, because being sealed is of the contract; power cuts at every point each store tests itself.

mod conformance;
mod cut;
mod faulty;
mod memory;
mod segments;
mod traps;

pub use conformance::{conformance, pattern, put};
pub use cut::{Cut, CutStore};
pub use faulty::{Counts, Faults, FaultyStore};
pub use memory::MemoryStore;
pub use segments::{Reopen, segments};
pub use traps::{Trap, Traps};
