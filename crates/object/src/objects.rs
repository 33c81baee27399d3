//! The face of this crate.

use bytes::Bytes;
use claystone_chunk::ByteRange;
use claystone_code::CodeSpec;
use claystone_env::{Env, WallTime};
use claystone_meta::{
    BucketId, BucketRecord, DeleteObject, Deleted, ListPage, ListQuery, Meta, ObjectRecord, PartRecord, Precondition,
    PutOutcome, StripeRecord, UploadId, UploadRecord, VersionName, VersionRef, Versioning,
};
use futures::stream::BoxStream;

use crate::{
    Algorithm, Attributes, BodyError, CompletePart, Digests, NewUpload, ObjectError, Part, Settings,
};

/// A stream of bytes, as it comes from or goes to a client.
pub type Body = BoxStream<'static, Result<Bytes, BodyError>>;

/// What a protocol crate says of a body it has seen whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confirmed {
    /// Entity tag without quotes.
    pub etag: String,
    /// Checksums to keep with the object, as in [`Attributes::checksums`].
    pub checksums: std::collections::BTreeMap<String, String>,
}

/// An object to write.
pub struct Put {
    /// Bucket.
    pub bucket: String,
    /// Key.
    pub key: String,
    /// How the bucket keeps versions.
    pub versioning: Versioning,
    /// What must hold of the current version.
    pub precondition: Precondition,
    /// Headers, tags and documents; checksums come from `confirm`.
    pub attributes: Attributes,
    /// Declared length; a body of another length is refused.
    pub bytes: u64,
    /// The bytes.
    pub body: Body,
    /// Checksums to compute.
    pub digests: Vec<Algorithm>,
    /// Looks at the checksums when the body is whole and before anything is committed.
    pub confirm: Box<dyn FnOnce(&Digests) -> Result<Confirmed, BodyError> + Send>,
}

/// An object that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Its version.
    pub version: VersionName,
    /// Its entity tag without quotes.
    pub etag: String,
    /// Its length.
    pub bytes: u64,
    /// When.
    pub created: WallTime,
    /// Its checksums, as in [`Attributes::checksums`].
    pub checksums: std::collections::BTreeMap<String, String>,
}

/// An object version with everything a reader needs.
#[derive(Debug, Clone)]
pub struct Object {
    /// Its record. `record.delete_marker` says that there is nothing to read.
    pub record: ObjectRecord,
    /// Its record's attributes, decoded.
    pub attributes: Attributes,
    pub(crate) stripes: Vec<StripeRecord>,
}

impl Object {
    /// The codes its stripes have, each once, in order of appearance: how it is protected right now.
    pub fn codes(&self) -> Vec<CodeSpec> {
        todo!()
    }
}

/// A look-up: one query.
#[derive(Debug, Clone)]
pub struct Content {
    /// The bucket.
    pub bucket: BucketRecord,
    /// The object version, which may be a delete marker; `None`: there is none.
    pub object: Option<Object>,
}

/// Where a copy goes.
#[derive(Debug, Clone)]
pub struct CopySource {
    /// The object to copy, as found.
    pub object: Object,
    /// The bytes of it to copy; `None`: all.
    pub range: Option<ByteRange>,
}

/// Buckets and objects. Cheap to clone; calls may come from many tasks.
#[derive(Clone)]
pub struct Objects {
    env: Env,
}

impl Objects {
    /// Makes a bucket. `code` `None`: the store's default.
    pub async fn create_bucket(&self, _name: &str, _owner: &str, _code: Option<CodeSpec>) -> Result<BucketRecord, ObjectError> {
        todo!()
    }
    /// One bucket.
    pub async fn bucket(&self, _name: &str) -> Result<BucketRecord, ObjectError> {
        todo!()
    }
    /// All buckets by name.
    pub async fn buckets(&self) -> Result<Vec<BucketRecord>, ObjectError> {
        todo!()
    }
    /// Removes an empty bucket.
    pub async fn delete_bucket(&self, _name: &str) -> Result<(), ObjectError> {
        todo!()
    }
    /// Sets or removes a document of a bucket.
    pub async fn set_document(&self, _bucket: &str, _document: &str, _content: Option<Vec<u8>>) -> Result<(), ObjectError> {
        todo!()
    }
    /// Sets the code for new objects of a bucket.
    pub async fn set_code(&self, _bucket: &str, _code: Option<CodeSpec>) -> Result<(), ObjectError> {
        todo!()
    }
    /// Finds bucket and object by one query. `NoSuchBucket` is an error, a missing object is not.
    pub async fn find(&self, _bucket: &str, _key: &str, _version: &VersionRef) -> Result<Content, ObjectError> {
        todo!()
    }
    /// The bytes of an object, or a range of them that must lie inside.
    pub fn read(&self, _object: &Object, _range: Option<ByteRange>) -> Body {
        todo!()
    }
    /// Writes an object.
    pub async fn put(&self, _put: Put) -> Result<Written, ObjectError> {
        todo!()
    }
    /// Copies an object: shares its bytes where the codes agree. `etag` `None` keeps the source's.
    pub async fn copy(
        &self,
        _source: &Object,
        _bucket: &str,
        _key: &str,
        _versioning: Versioning,
        _precondition: Precondition,
        _attributes: Attributes,
    ) -> Result<Written, ObjectError> {
        todo!()
    }
    /// Deletes. Deleting what is not there is no error.
    pub async fn delete(&self, _delete: DeleteObject) -> Result<Deleted, ObjectError> {
        todo!()
    }
    /// Replaces the attributes of one version.
    pub async fn set_attributes(&self, _record: &ObjectRecord, _attributes: &Attributes) -> Result<(), ObjectError> {
        todo!()
    }
    /// Lists objects or versions.
    pub async fn list(&self, _bucket: BucketId, _query: &ListQuery) -> Result<ListPage<ObjectRecord>, ObjectError> {
        todo!()
    }
    /// Begins a multipart upload.
    pub async fn create_upload(&self, _upload: NewUpload) -> Result<UploadRecord, ObjectError> {
        todo!()
    }
    /// One upload.
    pub async fn upload(&self, _bucket: &str, _key: &str, _id: &UploadId) -> Result<UploadRecord, ObjectError> {
        todo!()
    }
    /// Writes a part.
    pub async fn put_part(&self, _part: Part) -> Result<PartRecord, ObjectError> {
        todo!()
    }
    /// Writes a part from an existing object's bytes.
    pub async fn copy_part(&self, _bucket: &str, _key: &str, _upload: &UploadId, _number: u32, _source: CopySource) -> Result<PartRecord, ObjectError> {
        todo!()
    }
    /// Parts with numbers greater than `after`, and whether more follow.
    pub async fn parts(&self, _bucket: &str, _key: &str, _upload: &UploadId, _after: u32, _limit: usize) -> Result<(Vec<PartRecord>, bool), ObjectError> {
        todo!()
    }
    /// Turns parts into an object. `attributes` are the upload's with what completion adds (checksums, part list).
    #[allow(clippy::too_many_arguments)]
    pub async fn complete_upload(
        &self,
        _bucket: &str,
        _upload: &UploadRecord,
        _parts: &[CompletePart],
        _versioning: Versioning,
        _precondition: Precondition,
        _etag: String,
        _attributes: Attributes,
    ) -> Result<Written, ObjectError> {
        todo!()
    }
    /// Forgets an upload.
    pub async fn abort_upload(&self, _bucket: &str, _key: &str, _id: &UploadId) -> Result<(), ObjectError> {
        todo!()
    }
    /// Lists uploads by key, then id.
    pub async fn list_uploads(&self, _bucket: BucketId, _query: &ListQuery, _after: Option<&UploadId>) -> Result<ListPage<UploadRecord>, ObjectError> {
        todo!()
    }
}
