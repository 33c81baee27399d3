//! Measured comparisons of codes: the noise gate, the contenders, the cells.
//!
//! To see a few cells while tuning a kernel, without building the whole program:
//!
//! ```text
//! cargo run --release -p claystone-bench --example codes -- --case rs
//! cargo run --release -p claystone-bench --features peers --example codes -- --case "rs:10+4 128KiB"
//! ```
//!
//! `--case` keeps the cells whose name (`rs:10+4 128KiB encode`) contains the text, `--quick` takes fewer samples. With the
//! feature `peers` other libraries run in the same rounds; see [`peers`] for what each of them needs. The program has the
//! same cells with goals: `claystone bench codes --peers`.
//!
//! Invariants:
//! 1. Time is the thread's processor time, and a sample counts only if the machine was quiet around it ([`gate`]).
//! 2. All contenders of a cell run round robin in one run on the same bytes, so drift hits all of them.
//! 3. A figure from too few quiet samples says so ([`Comparison::is_settled`]), and nobody may judge by it.
//! 4. What a contender leaves in its targets is looked at: one that does nothing is an error, not a fast one.
//!
//! Left out: goals and rows (the program has them), and whether the codes are right (the tests of `code`).

pub mod arena;
pub mod cell;
pub mod cells;
pub mod comparison;
pub mod contender;
pub mod gate;
mod ours;
pub mod peers;
pub mod plan;
pub mod reads;

pub use cell::{CellError, Effort};
pub use comparison::{Comparison, Step, compare};
pub use peers::{Peers, PeersError};
pub use plan::{Operation, Plan};
