//! The papers' arithmetic. Of local erasure coding: how much parity a group of sectors needs, what a long read takes with and
//! without it, what it costs in space. Of delayed parity update: how often the writes of a trace make parity anew with a
//! reserve for diffs and without, what that keeps of metadata, what pays for the reserve.
//!
//! A sector's read fails *softly* with a small chance: the drive could retry it, which takes long, and mostly succeeds.
//! With local parity the failed sectors of a group are computed instead, as long as there are no more of them than
//! parity sectors.
//!
//! ```
//! use claystone_model::{GroupShape, ReadTimes, coded_read, parity_of_group, plain_read};
//!
//! // One read in a thousand fails softly; a group of 255 sectors may lose a sector for good once in a million groups.
//! let parity = parity_of_group(255, 1e-3, 1e-6).expect("255 sectors suffice");
//! assert_eq!(parity, 5);
//!
//! let group = GroupShape { data: 255 - parity, parity };
//! let times = ReadTimes { sector_s: 33e-6, retry_s: 20e-3, decode_bytes_per_s: 4e9 };
//! let (plain, coded) = (plain_read(10_000, 1e-3, times), coded_read(10_000, group, 1e-3, times));
//! assert!(coded.quantile(0.99) < 0.5 * plain.quantile(0.99));
//! ```
//!
//! Invariants:
//! 1. Pure functions of their arguments: no I/O, no clock, no state; randomness, and the text of a trace, are passed in.
//! 2. Times are in seconds, sizes in sectors of [`SECTOR_BYTES`] or in bytes, as the names say.
//! 3. A distribution's chances sum to 1 but for what it leaves out, less than 1e-12.
//!
//! Left out: measured times (the benches), and anything about a real disk (crate `disk`).

mod compact;
mod distribution;
mod estimate;
mod folding;
mod heat;
mod metadata;
mod overhead;
mod read_time;
mod reserve;
mod sizing;
pub mod trace;
mod trial;
mod updates;

pub use compact::side_by_side;
pub use distribution::Distribution;
pub use estimate::Estimate;
pub use folding::{Bound, Folded, KeptMetadata, PageCosts, StripeShape, folded_updates};
pub use heat::{chunk_writes, writes_within};
pub use metadata::{MetadataShare, StripeRecords};
pub use overhead::{SizeMix, SizeRange, file_sectors, mix_overhead, tiny_record_bytes, tree_overhead};
pub use read_time::{GroupShape, ReadTimes, coded_read, plain_read};
pub use reserve::{Space, coded_for_reserve, coldest_chunks};
pub use sizing::{copies, loss_chance, parity_of_data, parity_of_group};
pub use trial::{Trials, try_loss, try_mix, try_reads};
pub use updates::{PageUpdates, page_updates};

/// Bytes of a sector.
pub const SECTOR_BYTES: u32 = 4096;
