//! One disk: a store of chunks and segments over the files of one directory.
//!
//! Invariants:
//! 1. The formats are docs/formats/chunk-directory.md and docs/formats/segments.md; `layout`, `identity` and `segment`
//!    are their only readers and writers, and pure.
//! 2. A sector is returned only after its checksum, which covers its place, was checked.
//! 3. After a sync that failed or a write of unknown result the store is failed and refuses everything.
//! 4. All blocking calls run on the disk's worker.
//!
//! Left out: local erasure coding within the disk, raw devices, and caching: the system's page cache serves.

mod error;
mod fields;
mod files;
mod identity;
mod index;
mod layout;
mod open;
mod reader;
mod recent;
mod segment;
mod segments;
mod store;
mod writer;
mod zeros;

pub use error::OpenError;
pub use files::Options;
pub use identity::{ClusterId, Identity};
pub use open::{Expected, format, read_identity};
pub use store::DirectoryStore;
