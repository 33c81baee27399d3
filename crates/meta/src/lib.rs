//! Records of buckets, objects, volumes, stripes, their heat, and disks.
//!
//! Invariants:
//! 1. A method of the traits here is one transaction: it happened whole, durably, or not at all.
//! 2. A chunk that no stripe record names is garbage; a stripe that no content, volume or snapshot holds is dead.
//!    Both are safe to delete once no write is under way that could name them.
//! 3. The stripes of a content lie one behind the other without gaps, in the order of their position.
//! 4. What S3 or another protocol wants to keep travels as opaque documents and attributes; nothing here reads them.
//!
//! Left out: chunk bytes (crate `chunk`), what to do with damage (crate `keeper`).

mod policy;
mod record;
mod redundancy;
mod sqlite;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use policy::{Fresh, HeatPolicy, PRESETS, PolicyError, Preset, Reads};
pub use record::{
    AccessKey, Band, BucketId, BucketRecord, ChunkPlace, ContentId, DiskRecord, DiskState, HeatRecord, Held, LogRecord,
    ObjectRecord, Origin, PartRecord, SnapshotId, SnapshotRecord, SnapshotTally, Span, StripeNames, StripeRecord,
    UploadId, UploadRecord, VersionName, VolumeRecord,
};
pub use redundancy::{Mirroring, Redundancy, RedundancyError};
pub use sqlite::{SqliteMeta, Workers};
pub use store::{
    BucketRecords, Completed, Conversion, DeleteObject, Deleted, DiskRecords, DiskTally, Found, HeatRecords,
    KeyRecords, ListPage, ListQuery, Meta, MetaError, NewBucket, NewContent, NewObject, NewPart, NewStripe,
    ObjectRecords, Pack, PackRecords, PackedPart, Precondition, PutOutcome, Recode, Repack, SnapshotRecords, SpanPlace,
    StripeRecords, StripeTally, Swap, UploadRecords, VersionRef, Versioning, VolumeRecords,
};
