//! Erasure codes as pure functions over bytes, and their I/O plans as data.
//!
//! A caller names a code by its [`CodeSpec`], builds it once and shares it. It asks `plan_read` what to read, reads
//! just that, and hands the bytes to `recover`:
//!
//! ```
//! use claystone_code::{ChunkIndex, CodeSpec, ReadCosts};
//!
//! let code = "clay:4+2:5".parse::<CodeSpec>().expect("a valid spec").build().expect("within the limits");
//! let (alpha, sub_bytes) = (code.shape().alpha, 64);
//! let tile = alpha as usize * sub_bytes as usize;
//! let mut chunks: Vec<Vec<u8>> = (0..6u8).map(|i| vec![i; tile]).collect();
//! let (data, parity) = chunks.split_at_mut(4);
//! let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
//! let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
//! code.encode(&data, &mut parity);
//!
//! // Chunk 2 is lost: five helpers send half of their sub-chunks each.
//! let costs = [Some(1), Some(1), None, Some(1), Some(1), Some(1)];
//! let plan = code.plan_read(&[ChunkIndex(2)], &ReadCosts { chunks: &costs, sub_bytes, granule: 64 }).expect("one loss");
//! assert_eq!(plan.sub_chunks_total(), 5 * 4);
//! let fetched: Vec<Vec<u8>> = plan.reads.iter().map(|read| read.cut(&chunks[read.chunk.0 as usize], sub_bytes)).collect();
//! let fetched: Vec<&[u8]> = fetched.iter().map(Vec::as_slice).collect();
//! let mut rebuilt = vec![0; tile];
//! code.recover(&plan, &fetched, &mut [&mut rebuilt]);
//! assert_eq!(rebuilt, chunks[2]);
//! ```
//!
//! Parity may grow while the data comes in, and chunks that are wrong though nobody said so are named:
//!
//! ```
//! use claystone_code::{ChunkIndex, CodeSpec};
//!
//! let code = "rs:4+2".parse::<CodeSpec>().expect("a valid spec").build().expect("within the limits");
//! let mut chunks: Vec<Vec<u8>> = (0..6u8).map(|i| if i < 4 { vec![i + 1; 512] } else { vec![0; 512] }).collect();
//! let (data, parity) = chunks.split_at_mut(4);
//! let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
//! for (first, chunk) in (0..).map(ChunkIndex).zip(data) {
//!     code.encode_add(first, &[chunk], &mut parity);
//! }
//!
//! chunks[3][100] ^= 0x40;
//! let read: Vec<Option<&[u8]>> = chunks.iter().map(|chunk| Some(chunk.as_slice())).collect();
//! assert_eq!(code.locate(&read), Ok(vec![ChunkIndex(3)]));
//! ```
//!
//! Invariants:
//! 1. No I/O, no clock, no task, no global state but the choice of instruction set and what the caches are, made once.
//! 2. A spec names its bytes for ever: every generator is pinned by golden hashes (`tests/golden.rs`; the tables of
//!    LRC in `lrc::tests`).
//! 3. All that can fail is in `validate`, `build` and `plan_*`; `encode` and `recover` only assert their arguments. Who passes on
//!    what others give calls `claystone_guard`, which says what is wrong and with which numbers.
//! 4. `unsafe` is in `kernel` only.
//!
//! Left out: checksums (the chunk layer has them).

mod cauchy;
mod clay;
mod code;
mod convert;
mod field;
mod grs;
mod hybrid;
mod kernel;
mod linear;
mod locate;
mod long;
mod lrc;
mod mergeable;
mod mirror;
mod mixed;
mod plan;
mod product;
mod recover;
mod recurrence;
mod reed_solomon;
mod replicated;
mod spec;

#[cfg(test)]
mod tests;

pub use code::ErasureCode;
pub use convert::{
    CONVERSION_DATA_MAX, ConversionGoal, ConversionPlan, Converter, Kept, Making, NoConversion, StripeChunk, Weakened,
    plan_conversion, plan_conversion_without,
};
pub use hybrid::Coded;
pub use kernel::{ForceError, Matrix, Tier, UnknownTier};
pub use locate::LocateError;
pub use mixed::ChunkSet;
pub use plan::{ChunkIndex, ChunkRead, Method, ReadCosts, ReadPlan, RepairStage, Unrecoverable, UpdatePlan};
pub use spec::{CodeSpec, Shape, SpecError};
