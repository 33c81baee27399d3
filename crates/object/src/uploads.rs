//! Multipart uploads: parts are contents of their own until the upload is completed.

use std::collections::BTreeMap;

use claystone_meta::{PartRecord, UploadId};

use crate::{Algorithm, Attributes, Body, Confirmed, Digests, BodyError, ObjectError, PartAttributes};

/// An upload to begin.
#[derive(Debug, Clone)]
pub struct NewUpload {
    /// Bucket.
    pub bucket: String,
    /// Key.
    pub key: String,
    /// Of the object to come.
    pub attributes: Attributes,
}

/// A part to write.
pub struct Part {
    /// Bucket of the upload.
    pub bucket: String,
    /// Key of the upload.
    pub key: String,
    /// The upload.
    pub upload: UploadId,
    /// Number, 1 to 10,000.
    pub number: u32,
    /// Declared length.
    pub bytes: u64,
    /// The bytes.
    pub body: Body,
    /// Checksums to compute.
    pub digests: Vec<Algorithm>,
    /// Looks at the checksums before the part is committed; returns entity tag and checksums to keep.
    pub confirm: Box<dyn FnOnce(&Digests) -> Result<Confirmed, BodyError> + Send>,
}

/// A part as a completion names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletePart {
    /// Number.
    pub number: u32,
    /// Entity tag without quotes.
    pub etag: String,
}
