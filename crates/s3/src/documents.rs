//! The documents that a bucket keeps: what each is called, how it is stored, what it says when it is not there.
//!
//! Invariants:
//! 1. Documents that clients send as XML are stored as that XML, serialised anew; policies as the very text.
//! 2. A document is checked before it is stored, so that reading it back fails on damage only.

use claystone_meta::BucketRecord;
use s3s::dto::{ObjectOwnership, OwnershipControls, PublicAccessBlockConfiguration};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error, xml};

/// Names of documents.
pub(crate) const LIFECYCLE: &str = "lifecycle";
pub(crate) const LOCK: &str = "object-lock";
pub(crate) const LOCATION: &str = "location";
pub(crate) const OWNERSHIP: &str = "ownership";
pub(crate) const PUBLIC_ACCESS: &str = "public-access";
pub(crate) const TAGGING: &str = "tagging";
pub(crate) const VERSIONING: &str = "versioning";

/// Whether a bucket keeps versions. Without a document it never did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Versions {
    Enabled,
    Suspended,
}

pub(crate) fn versioning(bucket: &BucketRecord) -> Option<Versions> {
    match bucket.documents.get(VERSIONING)?.as_slice() {
        b"Enabled" => Some(Versions::Enabled),
        _ => Some(Versions::Suspended),
    }
}

/// Who owns what others write into a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The writer. The default, as access control lists need it.
    ObjectWriter,
    /// The bucket's owner if the writer says `bucket-owner-full-control`.
    BucketOwnerPreferred,
    /// The bucket's owner; access control lists do not count.
    BucketOwnerEnforced,
}

pub(crate) fn ownership(bucket: &BucketRecord) -> Ownership {
    let controls: Option<OwnershipControls> = read(bucket, OWNERSHIP).ok().flatten();
    match controls.as_ref().and_then(|controls| controls.rules.first()).map(|rule| rule.object_ownership.as_str()) {
        Some(ObjectOwnership::BUCKET_OWNER_ENFORCED) => Ownership::BucketOwnerEnforced,
        Some(ObjectOwnership::BUCKET_OWNER_PREFERRED) => Ownership::BucketOwnerPreferred,
        _ => Ownership::ObjectWriter,
    }
}

/// What of public access is switched off.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PublicAccess {
    pub(crate) block_public_acls: bool,
    pub(crate) block_public_policy: bool,
    pub(crate) ignore_public_acls: bool,
    pub(crate) restrict_public_buckets: bool,
}

pub(crate) fn public_access(bucket: &BucketRecord) -> PublicAccess {
    let config: Option<PublicAccessBlockConfiguration> = read(bucket, PUBLIC_ACCESS).ok().flatten();
    config.map_or_else(PublicAccess::default, |config| PublicAccess {
        block_public_acls: config.block_public_acls.unwrap_or(false),
        block_public_policy: config.block_public_policy.unwrap_or(false),
        ignore_public_acls: config.ignore_public_acls.unwrap_or(false),
        restrict_public_buckets: config.restrict_public_buckets.unwrap_or(false),
    })
}

/// A stored document.
///
/// # Errors
/// `InternalError` if it is damaged.
pub(crate) fn read<T: for<'xml> xml::Deserialize<'xml>>(bucket: &BucketRecord, name: &str) -> S3Result<Option<T>> {
    bucket.documents.get(name).map(|text| from_xml(text)).transpose()
}

/// A document from its stored text.
pub(crate) fn from_xml<T: for<'xml> xml::Deserialize<'xml>>(text: &[u8]) -> S3Result<T> {
    let damaged = |error| S3Error::with_source(S3ErrorCode::InternalError, Box::new(error));
    let mut reader = xml::Deserializer::new(text);
    T::deserialize(&mut reader).map_err(damaged)
}

/// A document's text to store.
pub(crate) fn to_xml(document: &impl xml::Serialize) -> S3Result<Vec<u8>> {
    let mut text = Vec::new();
    let written = document.serialize(&mut xml::Serializer::new(&mut text));
    written.map_err(|_| s3_error!(MalformedXML, "The document cannot be written as XML"))?;
    Ok(text)
}
