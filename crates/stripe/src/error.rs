//! What can go wrong with a stripe.

use claystone_chunk::{ChunkError, DiskId, StripeId};
use claystone_code::{CodeSpec, SpecError};

/// Why a stripe could not be written, read or rebuilt.
#[derive(Debug, thiserror::Error)]
pub enum StripeError {
    /// Not enough disks that take writes.
    #[error("{needed} disks that take writes are needed, there are {available}")]
    TooFewDisks {
        /// Chunks to place.
        needed: usize,
        /// Disks for them.
        available: usize,
    },
    /// Too many chunks could not be written for the stripe to be safe.
    #[error("only {written} of {chunks} chunks could be written, {needed} are needed; the last error was: {last}")]
    NotDurable {
        /// Chunks written.
        written: usize,
        /// Chunks of the stripe.
        chunks: usize,
        /// Least number for an acknowledgement.
        needed: usize,
        /// The last error.
        last: ChunkError,
    },
    /// More chunks are lost than the code tolerates.
    #[error("stripe {stripe} cannot be recovered now: {readable} of its chunks are readable, {needed} are needed")]
    Unrecoverable {
        /// The stripe.
        stripe: StripeId,
        /// Chunks that can be read.
        readable: usize,
        /// Chunks needed.
        needed: usize,
    },
    /// Somebody changes its chunks, or has left them changed in part, for longer than one waits.
    #[error("stripe {stripe} is being patched: its volume must be opened, or its merge come to an end")]
    Held {
        /// The stripe.
        stripe: StripeId,
    },
    /// The stripe's record is damaged.
    #[error(
        "the record of stripe {stripe} is damaged: {data_bytes} bytes in sub-chunks of {sub_bytes} on {places} places"
    )]
    Malformed {
        /// The stripe.
        stripe: StripeId,
        /// What it says of its length.
        data_bytes: u64,
        /// What it says of its sub-chunks.
        sub_bytes: u32,
        /// Chunks it has.
        places: usize,
    },
    /// The record's code is not one this program knows how to use.
    #[error(transparent)]
    Code(#[from] SpecError),
    /// The writer was given more or fewer bytes than it was opened for.
    #[error("a stripe of {expected} bytes was given {given}")]
    WrongLength {
        /// Opened for.
        expected: u64,
        /// Given.
        given: u64,
    },
    /// Under another code the stripe's data chunks would hold other bytes.
    #[error("stripe {stripe} of {from} cannot keep its data chunks under {to}: data lies otherwise there")]
    OtherLayout {
        /// The stripe.
        stripe: StripeId,
        /// Its code.
        from: CodeSpec,
        /// The code asked for.
        to: CodeSpec,
    },
    /// Stripes with longer and shorter chunks do not merge.
    #[error("chunks of stripe {stripe} have {chunk_bytes} bytes, those that it would be merged with {expected}")]
    UnequalChunks {
        /// The stripe.
        stripe: StripeId,
        /// Bytes of its chunks.
        chunk_bytes: u64,
        /// Bytes of the others'.
        expected: u64,
    },
    /// The bytes of a band lie row by row over all its chunks, and would be in two stripes.
    #[error("stripe {stripe} has a band of {chunks} chunks that would be cut under {to}")]
    BandCut {
        /// The stripe.
        stripe: StripeId,
        /// Data chunks of the band.
        chunks: u16,
        /// The code asked for.
        to: CodeSpec,
    },
    /// Data chunks lie on one disk that another code wants on several.
    #[error("stripe {stripe} has several data chunks on disk {disk}, which {to} does not allow")]
    Crowded {
        /// The stripe.
        stripe: StripeId,
        /// The code asked for.
        to: CodeSpec,
        /// The disk.
        disk: DiskId,
    },
    /// With what is lost now, the stripe, or one that it was to be merged with, would survive less under another code.
    #[error("stripe {stripe} survives {before} more losses as it is, and {after} under {to}: repair comes first")]
    Exposed {
        /// The stripe.
        stripe: StripeId,
        /// The code asked for.
        to: CodeSpec,
        /// Further losses it survives now.
        before: i32,
        /// Further losses it would survive.
        after: i32,
    },
    /// Under another code, the stripe, or one that it was to be merged with, would have so many chunks on some nodes that it
    /// survived fewer losses of nodes.
    #[error(
        "stripe {stripe} survives the loss of {before} nodes, and of {after} under {to}: too many chunks would share nodes"
    )]
    OnFewNodes {
        /// The stripe.
        stripe: StripeId,
        /// The code asked for.
        to: CodeSpec,
        /// Losses of nodes that it survives now, and could under the other code.
        before: usize,
        /// Those that it would.
        after: usize,
    },
    /// A new chunk did not read back right.
    #[error("a new chunk of stripe {stripe} does not read back right")]
    NotVerified {
        /// The stripe.
        stripe: StripeId,
    },
    /// A chunk operation failed where there was no other way.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
}
