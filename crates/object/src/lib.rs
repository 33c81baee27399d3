//! Buckets and objects over stripes: puts, ranged gets, multipart uploads, copies and listings.
//!
//! Invariants:
//! 1. An object becomes visible in one metadata transaction, after all its chunks are as durable as the setting
//!    says. Before that nobody sees it; a failure leaves chunks that nobody names, for reclaim.
//! 2. Memory for a body is bounded whatever its length: at most a few rows of tiles are held at once.
//! 3. A reader gets exactly the bytes that were written, or an error before the last byte.
//! 4. Protocol words (headers, documents) pass through unread; what they mean is the protocol crate's business.
//!
//! Left out: damage and upkeep (crate `keeper`), authentication and permissions (protocol crates).

mod attributes;
mod digest;
mod error;
mod objects;
mod packs;
mod policy;
mod repack;
mod transfer;
mod uploads;

pub use attributes::{Attributes, PartAttributes};
pub use digest::{Algorithm, Digests};
pub use error::{BodyError, ObjectError};
pub use objects::{Body, Confirm, Confirmed, Content, CopySource, Object, Objects, Put, Written};
pub use packs::PACKED_BYTES_MAX;
pub use policy::{
    Cut, CutInBands, FirstPolicy, SMALL_BYTES, Settings, cut_in_bands, cut_to_merge, fit_code, next_stripe,
};
pub use repack::RepackRound;
pub use uploads::{CompletePart, NewUpload, Part};

pub use claystone_chunk::{ByteRange, Durability};
pub use claystone_meta::{
    BucketId, BucketRecord, DeleteObject, Deleted, ListPage, ListQuery, MetaError, ObjectRecord, PartRecord,
    Precondition, UploadId, UploadRecord, VersionName, VersionRef, Versioning,
};
pub use claystone_stripe::StripeError;
