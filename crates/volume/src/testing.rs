//! Test support: a reference device in memory, and the suite that every block device passes.
//!
//! Invariants:
//! 1. [`MemoryBlocks`] is the contract of [`Blocks`](crate::Blocks) in its plainest form; where another device differs, one
//!    of the two is wrong.
//! 2. [`blocks`] uses the trait only, so it says nothing about crashes, lack of space and lost pages; each device tests
//!    those itself.

mod blocks;
mod memory_blocks;

pub use blocks::blocks;
pub use memory_blocks::MemoryBlocks;
