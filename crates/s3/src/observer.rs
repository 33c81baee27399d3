//! What the outside learns about requests: counters and a line in the log.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use s3s::S3Error;

/// Told of each request once, when its response has been sent or given up.
pub trait Observer: Send + Sync + 'static {
    /// `operation` is S3's name for it, or `Preflight`, `Invalid`. `elapsed` runs to the last byte of the response.
    /// `bytes_in` is the declared length of the body, `bytes_out` the number of body bytes handed to the connection.
    fn request(&self, operation: &'static str, status: u16, elapsed: Duration, bytes_in: u64, bytes_out: u64);
}

/// Looks away.
#[derive(Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn request(&self, _: &'static str, _: u16, _: Duration, _: u64, _: u64) {}
}

/// What is known of a request while it is worked on; travels in its extensions.
#[derive(Debug)]
pub(crate) struct Trace {
    /// Sent to the client and written to the log with what went wrong.
    pub(crate) request_id: String,
    /// Set once the operation is known.
    operation: OnceLock<&'static str>,
    /// Who sent it.
    pub(crate) peer: Option<std::net::IpAddr>,
    /// What is to be answered whatever s3s makes of it: it hides why a body's stream ended.
    refusal: Mutex<Option<S3Error>>,
    /// Tags that a form brought in a field of its own.
    form_tags: Mutex<Option<BTreeMap<String, String>>>,
}

impl Trace {
    pub(crate) fn new(request_id: String, peer: Option<std::net::IpAddr>) -> Trace {
        Trace { request_id, operation: OnceLock::new(), peer, refusal: Mutex::new(None), form_tags: Mutex::new(None) }
    }

    pub(crate) fn name(&self, operation: &str) {
        // s3s lends the name only; metrics want one that lives on.
        let known = OPERATIONS.iter().find(|&&known| known == operation).copied().unwrap_or("Other");
        let _ = self.operation.set(known);
    }

    pub(crate) fn refuse(&self, error: S3Error) {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    }

    pub(crate) fn refusal(&self) -> Option<S3Error> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn set_form_tags(&self, tags: BTreeMap<String, String>) {
        *self.form_tags.lock().unwrap_or_else(PoisonError::into_inner) = Some(tags);
    }

    pub(crate) fn form_tags(&self) -> Option<BTreeMap<String, String>> {
        self.form_tags.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn operation(&self) -> &'static str {
        self.operation.get().copied().unwrap_or("Invalid")
    }
}

/// Every operation that is worth a counter of its own.
const OPERATIONS: &[&str] = &[
    "AbortMultipartUpload",
    "CompleteMultipartUpload",
    "CopyObject",
    "CreateBucket",
    "CreateMultipartUpload",
    "DeleteBucket",
    "DeleteBucketCors",
    "DeleteBucketLifecycle",
    "DeleteBucketOwnershipControls",
    "DeleteBucketPolicy",
    "DeleteBucketTagging",
    "DeleteObject",
    "DeleteObjectTagging",
    "DeleteObjects",
    "DeletePublicAccessBlock",
    "GetBucketAcl",
    "GetBucketCors",
    "GetBucketLifecycleConfiguration",
    "GetBucketLocation",
    "GetBucketOwnershipControls",
    "GetBucketPolicy",
    "GetBucketPolicyStatus",
    "GetBucketTagging",
    "GetBucketVersioning",
    "GetObject",
    "GetObjectAcl",
    "GetObjectAttributes",
    "GetObjectLegalHold",
    "GetObjectLockConfiguration",
    "GetObjectRetention",
    "GetObjectTagging",
    "GetPublicAccessBlock",
    "HeadBucket",
    "HeadObject",
    "ListBuckets",
    "ListMultipartUploads",
    "ListObjectVersions",
    "ListObjects",
    "ListObjectsV2",
    "ListParts",
    "PostObject",
    "Preflight",
    "PutBucketAcl",
    "PutBucketCors",
    "PutBucketLifecycleConfiguration",
    "PutBucketOwnershipControls",
    "PutBucketPolicy",
    "PutBucketTagging",
    "PutBucketVersioning",
    "PutObject",
    "PutObjectAcl",
    "PutObjectLegalHold",
    "PutObjectLockConfiguration",
    "PutObjectRetention",
    "PutObjectTagging",
    "PutPublicAccessBlock",
    "UploadPart",
    "UploadPartCopy",
];
