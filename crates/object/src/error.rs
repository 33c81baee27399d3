//! What can go wrong with an object.

use claystone_code::{CodeSpec, SpecError};
use claystone_meta::{MetaError, PolicyError};
use claystone_stripe::StripeError;

/// Why a body could not be taken whole.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It ended early or went on too long.
    #[error("the body has {got} bytes, {declared} were declared")]
    WrongLength {
        /// Declared.
        declared: u64,
        /// Received (at least, if it was too long).
        got: u64,
    },
    /// The protocol crate refused it (wrong checksum, broken transfer); it knows its own error again.
    #[error("the body was refused")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Why an operation on objects did not happen.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The records say no (no such bucket, precondition, ..), or could not be reached.
    #[error(transparent)]
    Meta(#[from] MetaError),
    /// The chunks could not be written or read.
    #[error(transparent)]
    Stripe(#[from] StripeError),
    /// The body could not be taken.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// A code does not fit this store.
    #[error("code {code} needs {needed} disks that take writes, there are {available}")]
    TooFewDisks {
        /// The code wanted.
        code: String,
        /// Disks it needs.
        needed: usize,
        /// Disks there are.
        available: usize,
    },
    /// Disks that are needed for a write are full.
    #[error("{full} disks are full, {available} have room, {needed} are needed: delete something or add a disk")]
    DisksFull {
        /// Disks that are full.
        full: usize,
        /// Disks that have room.
        available: usize,
        /// Disks that the narrowest code of the same safety needs.
        needed: usize,
    },
    /// A code's text is wrong.
    #[error(transparent)]
    Code(#[from] SpecError),
    /// A policy's numbers are wrong.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A policy's codes cut data into different tiles, so a stripe would have to be written anew.
    #[error("{fast} and {compact} have tiles of different lengths: data would lie otherwise")]
    OtherTiles {
        /// The fast code.
        fast: CodeSpec,
        /// The compact one.
        compact: CodeSpec,
    },
    /// The object is longer than the store takes.
    #[error("an object of {bytes} bytes is longer than the limit of {limit_bytes}")]
    TooLarge {
        /// Asked.
        bytes: u64,
        /// Limit.
        limit_bytes: u64,
    },
    /// A part other than the last is too short.
    #[error("part {number} has {bytes} bytes, all but the last need {minimum_bytes}")]
    PartTooSmall {
        /// The part.
        number: u32,
        /// Its length.
        bytes: u64,
        /// The least length.
        minimum_bytes: u64,
    },
    /// Parts are not in ascending order, or there are none.
    #[error("the parts of a completion must be named once each, in ascending order")]
    PartOrder,
    /// A range lies outside.
    #[error("bytes from {offset} on are not in an object of {object_bytes} bytes")]
    OutOfRange {
        /// Asked.
        offset: u64,
        /// Length.
        object_bytes: u64,
    },
    /// A record cannot be understood.
    #[error("{what} cannot be understood")]
    Corrupt {
        /// What it is.
        what: String,
    },
    /// What was written does not read back whole.
    #[error("stripe {stripe} was written and does not read back whole")]
    NotVerified {
        /// The stripe.
        stripe: String,
    },
    /// The program is stopping.
    #[error("the store is shutting down")]
    ShuttingDown,
}
