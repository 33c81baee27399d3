//! The face towards s3s: each operation is handed to the gateway, and what failed on our side is logged once.
//!
//! An operation that is not in the table answers 501 `NotImplemented`, which is what s3s does by default.

use std::sync::Arc;

use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::host::{S3Host, VirtualHost};
use s3s::{S3, S3Error, S3ErrorCode, S3Request, S3Response, S3Result, dto, s3_error};

use crate::body::chain;
use crate::gateway::{Gateway, trace};
use crate::keys::Keys;
use crate::observer::Trace;

/// The operations.
pub(crate) struct Operations(pub(crate) Arc<Gateway>);

macro_rules! operations {
    ($($name:ident($input:ident) -> $output:ident;)*) => {
        #[async_trait::async_trait]
        impl S3 for Operations {
            $(async fn $name(&self, request: S3Request<dto::$input>) -> S3Result<S3Response<dto::$output>> {
                let trace = trace(&request.extensions);
                self.0.$name(request).await.map_err(|error| seal(error, &trace))
            })*
        }
    };
}

operations! {
    abort_multipart_upload(AbortMultipartUploadInput) -> AbortMultipartUploadOutput;
    complete_multipart_upload(CompleteMultipartUploadInput) -> CompleteMultipartUploadOutput;
    copy_object(CopyObjectInput) -> CopyObjectOutput;
    create_bucket(CreateBucketInput) -> CreateBucketOutput;
    create_multipart_upload(CreateMultipartUploadInput) -> CreateMultipartUploadOutput;
    delete_bucket(DeleteBucketInput) -> DeleteBucketOutput;
    delete_bucket_cors(DeleteBucketCorsInput) -> DeleteBucketCorsOutput;
    delete_bucket_lifecycle(DeleteBucketLifecycleInput) -> DeleteBucketLifecycleOutput;
    delete_bucket_ownership_controls(DeleteBucketOwnershipControlsInput) -> DeleteBucketOwnershipControlsOutput;
    delete_bucket_policy(DeleteBucketPolicyInput) -> DeleteBucketPolicyOutput;
    delete_bucket_tagging(DeleteBucketTaggingInput) -> DeleteBucketTaggingOutput;
    delete_object(DeleteObjectInput) -> DeleteObjectOutput;
    delete_object_tagging(DeleteObjectTaggingInput) -> DeleteObjectTaggingOutput;
    delete_objects(DeleteObjectsInput) -> DeleteObjectsOutput;
    delete_public_access_block(DeletePublicAccessBlockInput) -> DeletePublicAccessBlockOutput;
    get_bucket_acl(GetBucketAclInput) -> GetBucketAclOutput;
    get_bucket_cors(GetBucketCorsInput) -> GetBucketCorsOutput;
    get_bucket_lifecycle_configuration(GetBucketLifecycleConfigurationInput) -> GetBucketLifecycleConfigurationOutput;
    get_bucket_location(GetBucketLocationInput) -> GetBucketLocationOutput;
    get_bucket_ownership_controls(GetBucketOwnershipControlsInput) -> GetBucketOwnershipControlsOutput;
    get_bucket_policy(GetBucketPolicyInput) -> GetBucketPolicyOutput;
    get_bucket_policy_status(GetBucketPolicyStatusInput) -> GetBucketPolicyStatusOutput;
    get_bucket_tagging(GetBucketTaggingInput) -> GetBucketTaggingOutput;
    get_bucket_versioning(GetBucketVersioningInput) -> GetBucketVersioningOutput;
    get_object(GetObjectInput) -> GetObjectOutput;
    get_object_acl(GetObjectAclInput) -> GetObjectAclOutput;
    get_object_attributes(GetObjectAttributesInput) -> GetObjectAttributesOutput;
    get_object_legal_hold(GetObjectLegalHoldInput) -> GetObjectLegalHoldOutput;
    get_object_lock_configuration(GetObjectLockConfigurationInput) -> GetObjectLockConfigurationOutput;
    get_object_retention(GetObjectRetentionInput) -> GetObjectRetentionOutput;
    get_object_tagging(GetObjectTaggingInput) -> GetObjectTaggingOutput;
    get_public_access_block(GetPublicAccessBlockInput) -> GetPublicAccessBlockOutput;
    head_bucket(HeadBucketInput) -> HeadBucketOutput;
    head_object(HeadObjectInput) -> HeadObjectOutput;
    list_buckets(ListBucketsInput) -> ListBucketsOutput;
    list_multipart_uploads(ListMultipartUploadsInput) -> ListMultipartUploadsOutput;
    list_object_versions(ListObjectVersionsInput) -> ListObjectVersionsOutput;
    list_objects(ListObjectsInput) -> ListObjectsOutput;
    list_objects_v2(ListObjectsV2Input) -> ListObjectsV2Output;
    list_parts(ListPartsInput) -> ListPartsOutput;
    post_object(PostObjectInput) -> PostObjectOutput;
    put_bucket_acl(PutBucketAclInput) -> PutBucketAclOutput;
    put_bucket_cors(PutBucketCorsInput) -> PutBucketCorsOutput;
    put_bucket_lifecycle_configuration(PutBucketLifecycleConfigurationInput) -> PutBucketLifecycleConfigurationOutput;
    put_bucket_ownership_controls(PutBucketOwnershipControlsInput) -> PutBucketOwnershipControlsOutput;
    put_bucket_policy(PutBucketPolicyInput) -> PutBucketPolicyOutput;
    put_bucket_tagging(PutBucketTaggingInput) -> PutBucketTaggingOutput;
    put_bucket_versioning(PutBucketVersioningInput) -> PutBucketVersioningOutput;
    put_object(PutObjectInput) -> PutObjectOutput;
    put_object_acl(PutObjectAclInput) -> PutObjectAclOutput;
    put_object_legal_hold(PutObjectLegalHoldInput) -> PutObjectLegalHoldOutput;
    put_object_lock_configuration(PutObjectLockConfigurationInput) -> PutObjectLockConfigurationOutput;
    put_object_retention(PutObjectRetentionInput) -> PutObjectRetentionOutput;
    put_object_tagging(PutObjectTaggingInput) -> PutObjectTaggingOutput;
    put_public_access_block(PutPublicAccessBlockInput) -> PutPublicAccessBlockOutput;
    upload_part(UploadPartInput) -> UploadPartOutput;
    upload_part_copy(UploadPartCopyInput) -> UploadPartCopyOutput;
}

/// Gives an error the request's id, and logs what is not the client's fault: this is where it is handled.
fn seal(mut error: S3Error, trace: &Trace) -> S3Error {
    if error.status_code().is_none_or(|status| status.is_server_error()) && *error.code() != S3ErrorCode::NotImplemented
    {
        let cause = error.source().map_or_else(String::new, |source| chain(source));
        tracing::error!(
            request = %trace.request_id,
            operation = trace.operation(),
            code = error.code().as_str(),
            message = error.message().unwrap_or_default(),
            cause,
            "a request failed"
        );
    }
    error.set_request_id(trace.request_id.clone());
    error
}

/// Lets everybody through to the operations, where [`Gateway::allow`] decides with bucket and object at hand, and
/// notes the operation's name.
pub(crate) struct Access;

#[async_trait::async_trait]
impl S3Access for Access {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let operation = context.s3_op().name().to_owned();
        trace(context.extensions_mut()).name(&operation);
        Ok(())
    }
}

/// Secrets for signatures.
pub(crate) struct Secrets(pub(crate) Arc<dyn Keys>);

#[async_trait::async_trait]
impl S3Auth for Secrets {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let secret = self.0.secret(access_key).map(|(secret, _)| SecretKey::from(secret));
        secret.ok_or_else(|| {
            s3_error!(InvalidAccessKeyId, "The AWS Access Key Id you provided does not exist in our records")
        })
    }
}

/// Buckets as names below a domain; every other host is addressed by paths.
pub(crate) struct Domain(pub(crate) String);

impl Domain {
    /// The bucket that a host names.
    pub(crate) fn bucket<'a>(&self, host: &'a str) -> Option<&'a str> {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let at = name.len().checked_sub(self.0.len())?;
        let (bucket, domain) = (name.get(..at)?, name.get(at..)?);
        let bucket = bucket.strip_suffix('.')?;
        (domain.eq_ignore_ascii_case(&self.0) && !bucket.is_empty()).then_some(bucket)
    }
}

impl S3Host for Domain {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let virtual_host = VirtualHost::new(self.0.as_str());
        Ok(match self.bucket(host) {
            Some(bucket) => virtual_host.with_bucket(bucket.to_ascii_lowercase()),
            None => virtual_host,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_names_below_the_domain() {
        let domain = Domain("s3.example.com".to_owned());
        assert_eq!(domain.bucket("b.s3.example.com"), Some("b"));
        assert_eq!(domain.bucket("b.c.S3.example.com:9000"), Some("b.c"));
        for host in ["s3.example.com", "xs3.example.com", "localhost:9000", ".s3.example.com", "ü.com", ""] {
            assert_eq!(domain.bucket(host), None, "{host}");
        }
    }
}
