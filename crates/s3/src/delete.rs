//! Deleting objects and versions.
//!
//! Invariants:
//! 1. Where a bucket keeps versions, a plain delete removes nothing for good: it adds a delete marker.
//! 2. A locked version is never removed; the check reads the version anew right before.

use claystone_meta::{BucketRecord, Deleted, Precondition, VersionName, VersionRef};
use claystone_object::DeleteObject;
use futures::StreamExt;
use s3s::dto::{
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, ETag, ETagCondition,
    Error, ObjectIdentifier, Timestamp,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::conditions;
use crate::documents::{self, Versions};
use crate::error::from_object;
use crate::gateway::{self, Call, Gateway, Target, denied, timestamp, version_ref};
use crate::lock;

/// One thing to delete.
struct Deletion {
    key: String,
    version: Option<String>,
    etag: Option<ETagCondition>,
    bytes: Option<i64>,
    modified: Option<Timestamp>,
    bypass: Option<bool>,
}

impl Gateway {
    pub(crate) async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.objects.bucket(&input.bucket).await.map_err(from_object)?;
        let deletion = Deletion {
            key: input.key,
            version: input.version_id,
            etag: input.if_match,
            bytes: input.if_match_size,
            modified: input.if_match_last_modified_time,
            bypass: input.bypass_governance_retention,
        };
        let version = deletion.version.clone();
        let deleted = self.delete(&call, &bucket, deletion).await?;
        let mut output = DeleteObjectOutput::default();
        if documents::versioning(&bucket).is_some() {
            let was_marker = deleted.removed.as_ref().is_some_and(|(_, marker)| *marker) && version.is_some();
            output.delete_marker = (deleted.marker.is_some() || was_marker).then_some(true);
            output.version_id = version.or(deleted.marker.map(|marker| marker.0));
        }
        Ok(S3Response::new(output))
    }

    pub(crate) async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.objects.bucket(&input.bucket).await.map_err(from_object)?;
        let identifiers = input.delete.objects;
        if identifiers.is_empty() || identifiers.len() > KEYS_MAX {
            return Err(s3_error!(
                MalformedXML,
                "A multi-object delete names 1 to {KEYS_MAX} keys, not {}",
                identifiers.len()
            ));
        }
        let bypass = input.bypass_governance_retention;
        let (call, bucket) = (&call, &bucket);
        let results: Vec<Result<DeletedObject, Error>> = futures::stream::iter(identifiers)
            .map(|identifier| self.delete_one(call, bucket, identifier, bypass))
            .buffered(DELETES_AT_ONCE)
            .collect()
            .await;
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for result in results {
            match result {
                Ok(one) => deleted.push(one),
                Err(error) => errors.push(error),
            }
        }
        if input.delete.quiet == Some(true) {
            deleted.clear();
        }
        Ok(S3Response::new(DeleteObjectsOutput { deleted: Some(deleted), errors: Some(errors), request_charged: None }))
    }

    async fn delete_one(
        &self,
        call: &Call,
        bucket: &BucketRecord,
        identifier: ObjectIdentifier,
        bypass: Option<bool>,
    ) -> Result<DeletedObject, Error> {
        let (key, version) = (identifier.key.clone(), identifier.version_id.clone());
        let deletion = Deletion {
            key: identifier.key,
            version: identifier.version_id,
            etag: identifier.e_tag.map(condition),
            bytes: identifier.size,
            modified: identifier.last_modified_time,
            bypass,
        };
        match self.delete(call, bucket, deletion).await {
            Ok(deleted) => {
                let keeps = documents::versioning(bucket).is_some();
                let was_marker = deleted.removed.as_ref().filter(|(_, marker)| *marker && version.is_some() && keeps);
                let marker = deleted.marker.clone().or(was_marker.map(|(name, _)| name.clone()));
                Ok(DeletedObject {
                    delete_marker: marker.is_some().then_some(true),
                    delete_marker_version_id: marker.map(|name| name.0),
                    key: Some(key),
                    version_id: version,
                })
            }
            Err(error) => Err(Error {
                code: Some(error.code().as_str().to_owned()),
                key: Some(key),
                message: error.message().map(str::to_owned),
                version_id: version,
            }),
        }
    }

    async fn delete(&self, call: &Call, bucket: &BucketRecord, deletion: Deletion) -> S3Result<Deleted> {
        let named = deletion.version.is_some();
        let action = if named { gateway::DELETE_OBJECT_VERSION } else { gateway::DELETE_OBJECT };
        self.allow(call, action, bucket, Target::Key(&deletion.key))?;
        if deletion.key.len() > KEY_BYTES_MAX {
            return Err(s3_error!(KeyTooLongError, "Your key is too long"));
        }
        let version = version_ref(deletion.version.as_deref())?;
        let locks = named && lock::is_enabled(bucket);
        if locks || deletion.bytes.is_some() || deletion.modified.is_some() {
            self.check_removal(call, bucket, &deletion, &version, locks).await?;
        }
        let marker = match documents::versioning(bucket) {
            _ if named => None,
            Some(Versions::Enabled) => Some(self.new_version()),
            Some(Versions::Suspended) => Some(VersionName::null()),
            None => None,
        };
        let precondition = match deletion.etag {
            None => Precondition::None,
            Some(etag) => conditions::precondition(Some(etag), None)?,
        };
        let delete = DeleteObject {
            bucket: bucket.id,
            key: deletion.key,
            version,
            marker,
            precondition,
            now: self.env.clock.wall(),
        };
        self.objects.delete(delete).await.map_err(from_object)
    }

    /// What must be known of the version itself before it goes.
    async fn check_removal(
        &self,
        call: &Call,
        bucket: &BucketRecord,
        deletion: &Deletion,
        version: &VersionRef,
        locks: bool,
    ) -> S3Result<()> {
        let found = self.objects.find(&bucket.name, &deletion.key, version).await.map_err(from_object)?;
        let Some(object) = found.object else { return Ok(()) };
        if locks {
            let bypass = self.bypasses(call, deletion.bypass, bucket, &deletion.key);
            lock::check_removal(&object.attributes, bypass, self.env.clock.wall()).map_err(|_| denied())?;
        }
        let bytes = i64::try_from(object.record.bytes).unwrap_or(i64::MAX);
        let modified = timestamp(object.record.created);
        let unlike = deletion.bytes.is_some_and(|wanted| wanted != bytes)
            || deletion.modified.as_ref().is_some_and(|wanted| *wanted != modified);
        if unlike { Err(conditions::failed()) } else { Ok(()) }
    }
}

/// An entity tag in a document; `*` is any.
fn condition(etag: ETag) -> ETagCondition {
    if etag.value() == "*" { ETagCondition::Any } else { ETagCondition::ETag(etag) }
}

const KEYS_MAX: usize = 1000;
const KEY_BYTES_MAX: usize = 1024;
const DELETES_AT_ONCE: usize = 16;
