//! PUT of an object, and its upload from an HTML form.

use claystone_meta::{BucketRecord, Precondition};
use claystone_object::{Attributes, Put, Written};
use http::HeaderName;
use s3s::dto::{ChecksumType, ETag, PostObjectInput, PostObjectOutput, PutObjectInput, PutObjectOutput, StreamingBlob};
use s3s::stream::ByteStream;
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::body::incoming;
use crate::checksum::{Declared, checksums_of, with_checksums};
use crate::conditions::precondition;
use crate::describe::describe;
use crate::documents::{self, Versions};
use crate::error::from_object;
use crate::gateway::{self, Call, Gateway, Target};
use crate::lock::{self, Locks};
use crate::read::to_checksum;

/// An object about to be written.
struct Writing {
    bucket: BucketRecord,
    key: String,
    precondition: Precondition,
    attributes: Attributes,
    body: Option<StreamingBlob>,
    bytes: u64,
    declared: Declared,
}

impl Gateway {
    pub(crate) async fn put_object(&self, request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let (mut input, call) = self.open(request);
        if input.write_offset_bytes.is_some() {
            return Err(s3_error!(NotImplemented, "Appending to objects is not supported"));
        }
        let bucket = self.bucket_for(&call, &input.bucket, gateway::PUT_OBJECT, Target::Key(&input.key)).await?;
        let acl = self.new_acl(&call, &bucket, &call.asked_acl())?;
        let mut attributes = describe!(input).into_attributes()?;
        acl.keep(&mut attributes, &bucket);
        let locks = Locks {
            mode: input.object_lock_mode.map(|mode| mode.as_str().to_owned()),
            until: input.object_lock_retain_until_date,
            hold: input.object_lock_legal_hold_status.map(|status| status.as_str().to_owned()),
        };
        lock::keep(locks, &mut attributes, &bucket, self.env.clock.wall())?;
        let precondition = precondition(input.if_match, input.if_none_match)?;
        self.foresee(&bucket.name, &input.key, &precondition).await?;
        let bytes = body_bytes(&call, input.content_length, input.body.as_ref())?;
        let declared = Declared::from_headers(&call.headers)?;
        let writing = Writing { bucket, key: input.key, precondition, attributes, body: input.body, bytes, declared };
        let (written, version) = self.write(&call, writing).await?;
        let checksum = to_checksum(&written.checksums, None);
        Ok(S3Response::new(PutObjectOutput {
            checksum_type: checksum.checksum_type,
            e_tag: Some(ETag::Strong(written.etag)),
            version_id: version,
            ..with_checksums!(PutObjectOutput, checksum)
        }))
    }

    pub(crate) async fn post_object(
        &self,
        request: S3Request<PostObjectInput>,
    ) -> S3Result<S3Response<PostObjectOutput>> {
        let (mut input, mut call) = self.open(request);
        if input.server_side_encryption.is_some()
            || input.sse_customer_algorithm.is_some()
            || input.ssekms_key_id.is_some()
        {
            return Err(s3_error!(NotImplemented, "Server-side encryption is not supported"));
        }
        // What a form says in its fields another request says in its headers, which nobody signed here.
        let of_others = |name: &&HeaderName| name.as_str().starts_with("x-amz-") || **name == "content-md5";
        for name in call.headers.keys().filter(of_others).cloned().collect::<Vec<_>>() {
            call.headers.remove(name);
        }
        let bucket = self.bucket_for(&call, &input.bucket, gateway::PUT_OBJECT, Target::Key(&input.key)).await?;
        let mut asked = call.asked_acl();
        asked.canned = input.acl.take().map(|acl| acl.as_str().to_owned());
        let acl = self.new_acl(&call, &bucket, &asked)?;
        let mut attributes = describe!(input).into_attributes()?;
        if let Some(tags) = call.trace.form_tags() {
            attributes.tags = tags;
        }
        acl.keep(&mut attributes, &bucket);
        lock::keep(Locks::default(), &mut attributes, &bucket, self.env.clock.wall())?;
        let precondition = precondition(input.if_match, input.if_none_match)?;
        self.foresee(&bucket.name, &input.key, &precondition).await?;
        let mut declared = Declared::default();
        if let Some(md5) = &input.content_md5 {
            declared.set_md5(md5)?;
        }
        for (kind, value) in checksums_of!(input) {
            declared.set_value(kind, value.clone());
        }
        // s3s has taken the file already, so its stream knows its length.
        let bytes = input.body.as_ref().and_then(|body| body.remaining_length().exact()).unwrap_or(0) as u64;
        let writing = Writing { bucket, key: input.key, precondition, attributes, body: input.body, bytes, declared };
        let (written, version) = self.write(&call, writing).await?;
        let checksum = to_checksum(&written.checksums, None);
        Ok(S3Response::new(PostObjectOutput {
            checksum_type: checksum.checksum_type,
            e_tag: Some(ETag::Strong(written.etag)),
            version_id: version,
            ..with_checksums!(PostObjectOutput, checksum)
        }))
    }

    async fn write(&self, call: &Call, writing: Writing) -> S3Result<(Written, Option<String>)> {
        let mut attributes = writing.attributes;
        attributes.checksum_type = Some(ChecksumType::FULL_OBJECT.to_owned());
        let digests = writing.declared.algorithms();
        let (declared, trailers) = (writing.declared, call.trailers.clone());
        let put = Put {
            versioning: self.versioning(&writing.bucket),
            key: writing.key,
            precondition: writing.precondition,
            attributes,
            bytes: writing.bytes,
            body: incoming(writing.body, writing.bytes),
            digests,
            confirm: Box::new(move |digests| declared.confirm(digests, trailers.as_ref())),
            bucket: writing.bucket.name.clone(),
        };
        let written = self.objects.put(put).await.map_err(from_object)?;
        let version = shown_version(&writing.bucket, &written);
        Ok((written, version))
    }
}

/// The version to tell of a write: buckets without versions have none to tell.
pub(crate) fn shown_version(bucket: &BucketRecord, written: &Written) -> Option<String> {
    let enabled = documents::versioning(bucket) == Some(Versions::Enabled);
    enabled.then(|| written.version.0.clone())
}

/// The length of a body: of its content where it travels in chunks.
///
/// # Errors
/// `MissingContentLength` (411) if nothing tells it.
pub(crate) fn body_bytes(call: &Call, content_length: Option<i64>, body: Option<&StreamingBlob>) -> S3Result<u64> {
    if let Some(text) = call.header("x-amz-decoded-content-length") {
        return text
            .parse()
            .map_err(|_| s3_error!(InvalidArgument, "x-amz-decoded-content-length is not a number: {text:?}"));
    }
    if let Some(bytes) = content_length {
        return u64::try_from(bytes).map_err(|_| s3_error!(InvalidArgument, "Content-Length is negative"));
    }
    // The file of a form has no header of its own. Anything else without one would be taken for an empty body.
    let form = call.header("content-type").is_some_and(|kind| kind.starts_with("multipart/form-data"));
    let known = body.filter(|_| form).and_then(|body| body.remaining_length().exact());
    known
        .map(|bytes| bytes as u64)
        .ok_or_else(|| s3_error!(MissingContentLength, "You must provide the Content-Length HTTP header"))
}
