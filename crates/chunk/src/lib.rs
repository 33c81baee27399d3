//! What chunks and segments are, and what something that keeps them promises.
//!
//! Invariants:
//! 1. A chunk is either committed and complete, or it does not exist.
//! 2. A read returns what was written, or an error; a sector whose checksum does not match is reported as lost, never
//!    returned.
//! 3. A [`ChunkId`] is used for one content only: whoever rebuilds a chunk gives it a new generation. Who owns a chunk may
//!    overwrite its sectors.
//!
//! Left out: which chunks belong together (crate `stripe`), and who names them (crate `meta`).

mod id;
mod lease;
mod segment;
mod store;
mod taken;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use id::{ChunkId, DiskId, Generation, IdError, NodeId, StripeId};
pub use lease::{Lease, OwnerId, Term};
pub use segment::{SegmentError, SegmentId, SegmentInfo, SegmentStore};
pub use store::{
    ByteRange, ChunkError, ChunkInfo, ChunkStore, ChunkWriter, Durability, Load, Overwrite, SECTOR_BYTES, StoreState,
    Verdict,
};
pub use taken::Taken;
