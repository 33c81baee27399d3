//! Copies of objects and of ranges into parts.
//!
//! Invariants:
//! 1. The source must be readable by the caller and the target writable; both are checked before a byte moves.
//! 2. A copy keeps its source's entity tag and checksums, so bytes can be shared; another checksum that the caller
//!    asks for is computed by reading.

use claystone_meta::{BucketRecord, Precondition, VersionRef};
use claystone_object::{Attributes, Object, Put, Written};
use s3s::dto::{
    CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopyPartResult, CopySource, ETag, MetadataDirective,
    TaggingDirective, UploadPartCopyInput, UploadPartCopyOutput,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::checksum::{Declared, Kind, with_checksums};
use crate::conditions::{self, Outcome, ReadConditions};
use crate::describe::describe;
use crate::documents;
use crate::error::from_object;
use crate::gateway::{self, Call, Gateway, Target, timestamp, version_ref};
use crate::lock::{self, Locks};
use crate::range::of_copy_source;
use crate::read::to_checksum;
use crate::write::shown_version;

/// An object to copy from.
pub(crate) struct Source {
    pub(crate) bucket: BucketRecord,
    pub(crate) object: Object,
    named: bool,
}

macro_rules! source_conditions {
    ($input:expr) => {
        ReadConditions {
            if_match: $input.copy_source_if_match.take(),
            if_none_match: $input.copy_source_if_none_match.take(),
            if_modified_since: $input.copy_source_if_modified_since.take(),
            if_unmodified_since: $input.copy_source_if_unmodified_since.take(),
        }
    };
}

impl Gateway {
    pub(crate) async fn copy_object(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        let (mut input, mut call) = self.open(request);
        if let CopySource::Bucket { bucket, key, .. } = &input.copy_source {
            call.facts.push(("s3:x-amz-copy-source", format!("{bucket}/{key}")));
        }
        let bucket = self.bucket_for(&call, &input.bucket, gateway::PUT_OBJECT, Target::Key(&input.key)).await?;
        let source = self.source(&call, &input.copy_source, source_conditions!(input)).await?;
        let replaces = directive(input.metadata_directive.as_ref().map(MetadataDirective::as_str))?;
        let retags = directive(input.tagging_directive.as_ref().map(TaggingDirective::as_str))?;
        let itself = source.bucket.id == bucket.id && source.object.record.key == input.key;
        let relocates = input.website_redirect_location.is_some() || input.checksum_algorithm.is_some();
        if itself && !source.named && !replaces && !relocates {
            return Err(s3_error!(
                InvalidRequest,
                "This copy request is illegal because it is trying to copy an object to itself without changing the \
                 object's metadata, storage class, website redirect location or encryption attributes."
            ));
        }
        let acl = self.new_acl(&call, &bucket, &call.asked_acl())?;
        let described = describe!(input).into_attributes()?;
        let old = &source.object.attributes;
        let mut attributes = Attributes {
            headers: if replaces { described.headers } else { old.headers.clone() },
            user: if replaces { described.user } else { old.user.clone() },
            tags: if retags { described.tags } else { old.tags.clone() },
            checksum_type: old.checksum_type.clone(),
            parts: old.parts.clone(),
            ..Attributes::default()
        };
        acl.keep(&mut attributes, &bucket);
        let locks = Locks {
            mode: input.object_lock_mode.map(|mode| mode.as_str().to_owned()),
            until: input.object_lock_retain_until_date,
            hold: input.object_lock_legal_hold_status.map(|status| status.as_str().to_owned()),
        };
        lock::keep(locks, &mut attributes, &bucket, self.env.clock.wall())?;
        let wanted = input.checksum_algorithm.as_ref().map(|algorithm| algorithm.as_str());
        let written = match wanted.and_then(Kind::named).filter(|kind| !old.checksums.contains_key(kind.name())) {
            Some(kind) => self.copy_computing(&source.object, &bucket, &input.key, attributes, kind).await?,
            None => {
                let versioning = self.versioning(&bucket);
                let copied = self.objects.copy(
                    &source.object,
                    &bucket.name,
                    &input.key,
                    versioning,
                    Precondition::None,
                    attributes,
                );
                copied.await.map_err(from_object)?
            }
        };
        let checksum = to_checksum(&written.checksums, old.checksum_type.as_deref());
        let result = CopyObjectResult {
            checksum_type: checksum.checksum_type,
            e_tag: Some(ETag::Strong(written.etag.clone())),
            last_modified: Some(timestamp(written.created)),
            ..with_checksums!(CopyObjectResult, checksum)
        };
        Ok(S3Response::new(CopyObjectOutput {
            copy_object_result: Some(result),
            copy_source_version_id: source.version(),
            version_id: shown_version(&bucket, &written),
            ..CopyObjectOutput::default()
        }))
    }

    /// Copies by reading, to compute a checksum that the source does not have. The copy is one part.
    async fn copy_computing(
        &self,
        source: &Object,
        bucket: &BucketRecord,
        key: &str,
        attributes: Attributes,
        kind: Kind,
    ) -> S3Result<Written> {
        let mut declared = Declared::default();
        declared.want(kind.name())?;
        let put = Put {
            bucket: bucket.name.clone(),
            key: key.to_owned(),
            versioning: self.versioning(bucket),
            precondition: Precondition::None,
            attributes: Attributes { checksum_type: None, parts: Vec::new(), ..attributes },
            bytes: source.record.bytes,
            body: self.objects.read(source, None),
            digests: declared.algorithms(),
            confirm: Box::new(move |digests| declared.confirm(digests, None)),
        };
        self.objects.put(put).await.map_err(from_object)
    }

    pub(crate) async fn upload_part_copy(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        let (mut input, call) = self.open(request);
        let bucket = self.bucket_for(&call, &input.bucket, gateway::PUT_OBJECT, Target::Key(&input.key)).await?;
        let source = self.source(&call, &input.copy_source, source_conditions!(input)).await?;
        let object_bytes = source.object.record.bytes;
        let range = input.copy_source_range.as_deref().map(|text| of_copy_source(text, object_bytes)).transpose()?;
        let part =
            self.copy_part(&bucket, &input.key, &input.upload_id, input.part_number, &source.object, range).await?;
        let attributes = claystone_object::PartAttributes::decode(&part.attributes).map_err(from_object)?;
        let checksum = to_checksum(&attributes.checksums, None);
        let result = CopyPartResult {
            e_tag: Some(ETag::Strong(part.etag)),
            last_modified: Some(timestamp(part.created)),
            ..with_checksums!(CopyPartResult, checksum)
        };
        Ok(S3Response::new(UploadPartCopyOutput {
            copy_part_result: Some(result),
            copy_source_version_id: source.version(),
            ..UploadPartCopyOutput::default()
        }))
    }

    async fn source(&self, call: &Call, source: &CopySource, conditions: ReadConditions) -> S3Result<Source> {
        let CopySource::Bucket { bucket, key, version_id } = source else {
            return Err(s3_error!(NotImplemented, "Copying from access points is not supported"));
        };
        let version = version_ref(version_id.as_deref())?;
        let action = match version {
            VersionRef::Current => gateway::GET_OBJECT,
            VersionRef::Named(_) => gateway::GET_OBJECT_VERSION,
        };
        // The expected owner in x-amz-expected-bucket-owner is that of the target.
        let reader = Call {
            who: call.who.clone(),
            headers: call.headers.clone(),
            trailers: None,
            trace: call.trace.clone(),
            facts: Vec::new(),
        };
        let reader = reader.expecting(call.header("x-amz-source-expected-bucket-owner"));
        let (bucket, object) = self.object(&reader, bucket, key, &version, action).await?;
        match conditions.check(&object.record.etag, object.record.created) {
            Outcome::Proceed => Ok(Source { bucket, object, named: version != VersionRef::Current }),
            Outcome::NotModified | Outcome::Failed => Err(conditions::failed()),
        }
    }
}

impl Source {
    fn version(&self) -> Option<String> {
        documents::versioning(&self.bucket).map(|_| self.object.record.version.0.clone())
    }
}

impl Call {
    /// The same call for a bucket of another expected owner.
    fn expecting(mut self, owner: Option<&str>) -> Call {
        self.headers.remove("x-amz-expected-bucket-owner");
        if let Some(owner) = owner.and_then(|owner| owner.parse().ok()) {
            self.headers.insert("x-amz-expected-bucket-owner", owner);
        }
        self
    }
}

/// Whether a directive says REPLACE.
fn directive(text: Option<&str>) -> S3Result<bool> {
    match text {
        None | Some("COPY") => Ok(false),
        Some("REPLACE") => Ok(true),
        Some(other) => Err(s3_error!(InvalidArgument, "Unknown directive {other:?}: it is COPY or REPLACE")),
    }
}
