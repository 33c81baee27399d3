//! The heart of the translation: who calls, what the call needs, whether it may.
//!
//! Invariants:
//! 1. Every operation on a bucket or object passes [`Gateway::allow`] before it reads or changes anything of it; s3s
//!    lets anonymous callers through to here on purpose.
//! 2. A missing bucket is told before a missing right, a missing object only to those who may list the bucket.
//! 3. A denial of the bucket's policy wins; then what the policy allows; then the access control lists.

use std::sync::Arc;

use claystone_env::{Env, WallTime};
use claystone_meta::{BucketRecord, MetaError, Precondition, VersionName, VersionRef, Versioning};
use claystone_object::{Attributes, Object, ObjectError, Objects};
use http::HeaderMap;
use s3s::dto::Timestamp;
use s3s::{S3Error, S3Request, S3Result, TrailingHeaders, s3_error};

use crate::Settings;
use crate::acl::{Acl, Asked, Permission};
use crate::conditions;
use crate::documents::{self, Ownership};
use crate::error::from_object;
use crate::keys::{Account, Keys};
use crate::observer::Trace;
use crate::policy::{self, Asking, Decision, Policy};

/// Everything an operation works with.
pub(crate) struct Gateway {
    pub(crate) env: Env,
    pub(crate) objects: Objects,
    pub(crate) settings: Settings,
    pub(crate) keys: Arc<dyn Keys>,
}

/// A request without its input.
pub(crate) struct Call {
    pub(crate) who: Option<Account>,
    pub(crate) headers: HeaderMap,
    pub(crate) trailers: Option<TrailingHeaders>,
    pub(crate) trace: Arc<Trace>,
    /// Further condition keys for policies, in lower case.
    pub(crate) facts: Vec<(&'static str, String)>,
}

/// Something a caller may or may not do: its name in policies, and what gives the right without one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Action {
    pub(crate) name: &'static str,
    right: Right,
}

#[derive(Debug, Clone, Copy)]
enum Right {
    /// The bucket's list; its owner always may.
    Bucket(Permission),
    /// The object's list.
    Object(Permission),
    /// The bucket's owner.
    BucketOwner,
    /// The bucket's or the object's owner.
    AnyOwner,
}

macro_rules! actions {
    ($($constant:ident = $name:literal, $right:expr;)*) => {
        $(pub(crate) const $constant: Action = Action { name: $name, right: $right };)*
    };
}

actions! {
    ABORT_UPLOAD = "s3:AbortMultipartUpload", Right::Bucket(Permission::Write);
    BYPASS_GOVERNANCE = "s3:BypassGovernanceRetention", Right::BucketOwner;
    DELETE_BUCKET = "s3:DeleteBucket", Right::BucketOwner;
    DELETE_BUCKET_POLICY = "s3:DeleteBucketPolicy", Right::BucketOwner;
    DELETE_OBJECT = "s3:DeleteObject", Right::Bucket(Permission::Write);
    DELETE_OBJECT_TAGGING = "s3:DeleteObjectTagging", Right::AnyOwner;
    DELETE_OBJECT_VERSION = "s3:DeleteObjectVersion", Right::Bucket(Permission::Write);
    GET_BUCKET_ACL = "s3:GetBucketAcl", Right::Bucket(Permission::ReadAcp);
    GET_BUCKET_CORS = "s3:GetBucketCORS", Right::BucketOwner;
    GET_BUCKET_LIFECYCLE = "s3:GetLifecycleConfiguration", Right::BucketOwner;
    GET_BUCKET_LOCATION = "s3:GetBucketLocation", Right::BucketOwner;
    GET_BUCKET_LOCK = "s3:GetBucketObjectLockConfiguration", Right::BucketOwner;
    GET_BUCKET_OWNERSHIP = "s3:GetBucketOwnershipControls", Right::BucketOwner;
    GET_BUCKET_POLICY = "s3:GetBucketPolicy", Right::BucketOwner;
    GET_BUCKET_POLICY_STATUS = "s3:GetBucketPolicyStatus", Right::BucketOwner;
    GET_BUCKET_PUBLIC_ACCESS = "s3:GetBucketPublicAccessBlock", Right::BucketOwner;
    GET_BUCKET_TAGGING = "s3:GetBucketTagging", Right::BucketOwner;
    GET_BUCKET_VERSIONING = "s3:GetBucketVersioning", Right::BucketOwner;
    GET_OBJECT = "s3:GetObject", Right::Object(Permission::Read);
    GET_OBJECT_ACL = "s3:GetObjectAcl", Right::Object(Permission::ReadAcp);
    GET_OBJECT_LEGAL_HOLD = "s3:GetObjectLegalHold", Right::AnyOwner;
    GET_OBJECT_RETENTION = "s3:GetObjectRetention", Right::AnyOwner;
    GET_OBJECT_TAGGING = "s3:GetObjectTagging", Right::AnyOwner;
    GET_OBJECT_VERSION = "s3:GetObjectVersion", Right::Object(Permission::Read);
    LIST_BUCKET = "s3:ListBucket", Right::Bucket(Permission::Read);
    LIST_PARTS = "s3:ListMultipartUploadParts", Right::Bucket(Permission::Write);
    LIST_UPLOADS = "s3:ListBucketMultipartUploads", Right::Bucket(Permission::Read);
    LIST_VERSIONS = "s3:ListBucketVersions", Right::Bucket(Permission::Read);
    PUT_BUCKET_ACL = "s3:PutBucketAcl", Right::Bucket(Permission::WriteAcp);
    PUT_BUCKET_CORS = "s3:PutBucketCORS", Right::BucketOwner;
    PUT_BUCKET_LIFECYCLE = "s3:PutLifecycleConfiguration", Right::BucketOwner;
    PUT_BUCKET_LOCK = "s3:PutBucketObjectLockConfiguration", Right::BucketOwner;
    PUT_BUCKET_OWNERSHIP = "s3:PutBucketOwnershipControls", Right::BucketOwner;
    PUT_BUCKET_POLICY = "s3:PutBucketPolicy", Right::BucketOwner;
    PUT_BUCKET_PUBLIC_ACCESS = "s3:PutBucketPublicAccessBlock", Right::BucketOwner;
    PUT_BUCKET_TAGGING = "s3:PutBucketTagging", Right::BucketOwner;
    PUT_BUCKET_VERSIONING = "s3:PutBucketVersioning", Right::BucketOwner;
    PUT_OBJECT = "s3:PutObject", Right::Bucket(Permission::Write);
    PUT_OBJECT_ACL = "s3:PutObjectAcl", Right::Object(Permission::WriteAcp);
    PUT_OBJECT_LEGAL_HOLD = "s3:PutObjectLegalHold", Right::AnyOwner;
    PUT_OBJECT_RETENTION = "s3:PutObjectRetention", Right::AnyOwner;
    PUT_OBJECT_TAGGING = "s3:PutObjectTagging", Right::AnyOwner;
}

/// What an action is done to.
#[derive(Clone, Copy)]
pub(crate) enum Target<'a> {
    Bucket,
    /// A key, whatever is there.
    Key(&'a str),
    Object(&'a Object),
}

impl Call {
    /// A header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// # Errors
    /// `AccessDenied` for an anonymous caller.
    pub(crate) fn account(&self) -> S3Result<&Account> {
        self.who.as_ref().ok_or_else(denied)
    }

    /// What the headers say about an access control list.
    pub(crate) fn asked_acl(&self) -> Asked {
        let grants = [
            ("x-amz-grant-read", Permission::Read),
            ("x-amz-grant-write", Permission::Write),
            ("x-amz-grant-read-acp", Permission::ReadAcp),
            ("x-amz-grant-write-acp", Permission::WriteAcp),
            ("x-amz-grant-full-control", Permission::FullControl),
        ];
        let named = grants.into_iter().filter_map(|(name, right)| Some((right, self.header(name)?.to_owned())));
        Asked { canned: self.header("x-amz-acl").map(str::to_owned), grants: named.collect(), document: None }
    }
}

impl Gateway {
    /// Takes a request apart.
    pub(crate) fn open<T>(&self, request: S3Request<T>) -> (T, Call) {
        let account = |access_key: &str| self.keys.secret(access_key).map(|(_, account)| account);
        let call = Call {
            who: request.credentials.and_then(|credentials| account(&credentials.access_key)),
            headers: request.headers,
            trailers: request.trailing_headers,
            trace: trace(&request.extensions),
            facts: Vec::new(),
        };
        (request.input, call)
    }

    /// A bucket on which the caller may do something.
    pub(crate) async fn bucket(&self, call: &Call, name: &str, action: Action) -> S3Result<BucketRecord> {
        self.bucket_for(call, name, action, Target::Bucket).await
    }

    /// A bucket on whose key or object the caller may do something.
    pub(crate) async fn bucket_for(
        &self,
        call: &Call,
        name: &str,
        action: Action,
        target: Target<'_>,
    ) -> S3Result<BucketRecord> {
        let bucket = self.objects.bucket(name).await.map_err(from_object)?;
        self.allow(call, action, &bucket, target)?;
        Ok(bucket)
    }

    /// An object on which the caller may do something, and its bucket.
    pub(crate) async fn object(
        &self,
        call: &Call,
        bucket: &str,
        key: &str,
        version: &VersionRef,
        action: Action,
    ) -> S3Result<(BucketRecord, Object)> {
        let found = self.objects.find(bucket, key, version).await.map_err(from_object)?;
        match found.object {
            Some(object) if !object.record.delete_marker => {
                self.allow(call, action, &found.bucket, Target::Object(&object))?;
                Ok((found.bucket, object))
            }
            missing => {
                // Without the right to list this key, nobody learns that it is not there.
                let facts = vec![("s3:prefix", key.to_owned())];
                let lister = Call {
                    facts,
                    trailers: None,
                    trace: call.trace.clone(),
                    who: call.who.clone(),
                    headers: call.headers.clone(),
                };
                self.allow(&lister, LIST_BUCKET, &found.bucket, Target::Bucket)?;
                Err(absent(version, missing.as_ref(), &found.bucket))
            }
        }
    }

    /// Changes the attributes of an object on which the caller may do something. They are set on what was looked at: where
    /// somebody else was faster, all is done again with what is there then.
    pub(crate) async fn change(
        &self,
        call: &Call,
        (bucket, key): (&str, &str),
        version: Option<&str>,
        action: Action,
        change: impl Fn(&BucketRecord, &mut Attributes) -> S3Result<()>,
    ) -> S3Result<(BucketRecord, Object)> {
        let version = version_ref(version)?;
        let mut tries_left = CHANGE_TRIES_MAX;
        loop {
            let (bucket, object) = self.object(call, bucket, key, &version, action).await?;
            let mut attributes = object.attributes.clone();
            change(&bucket, &mut attributes)?;
            tries_left -= 1;
            match self.objects.set_attributes(&object.record, &attributes).await {
                Err(ObjectError::Meta(MetaError::ObjectChanged { .. })) if tries_left > 0 => {}
                result => return result.map(|()| (bucket, object)).map_err(from_object),
            }
        }
    }

    /// Whether the caller may do something.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub(crate) fn allow(&self, call: &Call, action: Action, bucket: &BucketRecord, target: Target<'_>) -> S3Result<()> {
        if call.header("x-amz-expected-bucket-owner").is_some_and(|expected| expected != bucket.owner) {
            return Err(denied());
        }
        let owns_bucket = call.who.as_ref().is_some_and(|account| account.id == bucket.owner);
        let public = documents::public_access(bucket);
        if let Some(policy) = bucket.documents.get(policy::DOCUMENT) {
            // A stored policy was understood when it was put. One that is not understood now allows nobody but the
            // owner, who can replace it.
            let policy = Policy::parse(policy);
            let decision = match &policy {
                Ok(policy) => self.decide(policy, call, action, bucket, target),
                Err(_) if owns_bucket => Decision::Silent,
                Err(_) => Decision::Deny,
            };
            let restricted =
                public.restrict_public_buckets && !owns_bucket && policy.is_ok_and(|policy| policy.is_public());
            match decision {
                // The owner can always mend a policy that locks everybody out.
                Decision::Deny if owns_bucket && action.name.ends_with("BucketPolicy") => return Ok(()),
                Decision::Deny => return Err(denied()),
                Decision::Allow if !restricted => return Ok(()),
                Decision::Allow | Decision::Silent => {}
            }
        }
        let lists = documents::ownership(bucket) != Ownership::BucketOwnerEnforced;
        let bucket_allows = |wanted| {
            owns_bucket
                || (lists && Acl::of_bucket(bucket).allows(call.who.as_ref(), wanted, !public.ignore_public_acls))
        };
        let object_acl = || match target {
            Target::Object(object) if lists => Acl::of_object(&object.attributes, bucket),
            _ => Acl::private(&bucket.owner),
        };
        let allowed = match action.right {
            Right::Bucket(wanted) => bucket_allows(wanted),
            Right::Object(wanted) => object_acl().allows(call.who.as_ref(), wanted, !public.ignore_public_acls),
            Right::BucketOwner => owns_bucket,
            Right::AnyOwner => owns_bucket || call.who.as_ref().is_some_and(|account| account.id == object_acl().owner),
        };
        if allowed { Ok(()) } else { Err(denied()) }
    }

    fn decide(
        &self,
        policy: &Policy,
        call: &Call,
        action: Action,
        bucket: &BucketRecord,
        target: Target<'_>,
    ) -> Decision {
        let resource = match target {
            Target::Bucket => format!("arn:aws:s3:::{}", bucket.name),
            Target::Key(key) => format!("arn:aws:s3:::{}/{key}", bucket.name),
            Target::Object(object) => format!("arn:aws:s3:::{}/{}", bucket.name, object.record.key),
        };
        let value = |key: &str| {
            if let Some((_, fact)) = call.facts.iter().find(|(name, _)| *name == key) {
                return Some(fact.clone());
            }
            let (kind, rest) = key.split_once('/').unwrap_or((key, ""));
            match kind {
                "aws:sourceip" => call.trace.peer.map(|peer| peer.to_string()),
                "aws:referer" => call.header("referer").map(str::to_owned),
                "aws:useragent" => call.header("user-agent").map(str::to_owned),
                "aws:securetransport" => Some("false".to_owned()),
                "aws:username" | "aws:userid" | "aws:principalaccount" => call.who.as_ref().map(|who| who.id.clone()),
                "s3:existingobjecttag" => match target {
                    Target::Object(object) => object.attributes.tags.get(rest).cloned(),
                    _ => None,
                },
                "s3:requestobjecttag" => {
                    let tags = crate::tags::of_header(call.header("x-amz-tagging")?).ok()?;
                    tags.get(rest).cloned()
                }
                kind => kind
                    .strip_prefix("s3:")
                    .filter(|name| name.starts_with("x-amz-"))
                    .and_then(|name| call.header(name).map(str::to_owned)),
            }
        };
        policy.decide(&Asking { who: call.who.as_ref(), action: action.name, resource: &resource, value: &value })
    }

    /// The list for a new object or an upload.
    ///
    /// # Errors
    /// `AccessControlListNotSupported` where lists are switched off, `AccessDenied` where public ones are, or what is
    /// wrong with the list asked for.
    pub(crate) fn new_acl(&self, call: &Call, bucket: &BucketRecord, asked: &Asked) -> S3Result<Acl> {
        let ownership = documents::ownership(bucket);
        let for_owner = asked.canned.as_deref() == Some("bucket-owner-full-control");
        if ownership == Ownership::BucketOwnerEnforced {
            check_unlisted(asked)?;
            return Ok(Acl::private(&bucket.owner));
        }
        let owner = match &call.who {
            Some(_) if ownership == Ownership::BucketOwnerPreferred && for_owner => &bucket.owner,
            Some(account) => &account.id,
            None => &bucket.owner,
        };
        let acl = asked.resolve(owner, &bucket.owner, &*self.keys)?;
        if acl.is_public() && documents::public_access(bucket).block_public_acls {
            return Err(denied());
        }
        Ok(acl)
    }

    /// How a write to this bucket names its version.
    pub(crate) fn versioning(&self, bucket: &BucketRecord) -> Versioning {
        match documents::versioning(bucket) {
            Some(documents::Versions::Enabled) => Versioning::On(self.new_version()),
            _ => Versioning::Off,
        }
    }

    /// A fresh version name.
    pub(crate) fn new_version(&self) -> VersionName {
        let mut name = [0; 16];
        self.env.random.fill(&mut name);
        VersionName(hex::encode(name))
    }

    /// Looks whether a conditional write can succeed before its body is taken.
    pub(crate) async fn foresee(&self, bucket: &str, key: &str, precondition: &Precondition) -> S3Result<()> {
        if *precondition == Precondition::None {
            return Ok(());
        }
        let found = self.objects.find(bucket, key, &VersionRef::Current).await.map_err(from_object)?;
        let current = found.object.filter(|object| !object.record.delete_marker);
        conditions::foresee(precondition, current.as_ref().map(|object| object.record.etag.as_str()))
    }
}

/// Where lists are switched off, only those that say nothing are taken.
///
/// # Errors
/// `AccessControlListNotSupported`.
pub(crate) fn check_unlisted(asked: &Asked) -> S3Result<()> {
    let harmless = asked.is_empty() || asked.canned.as_deref().is_some_and(|name| name == "bucket-owner-full-control");
    if harmless {
        return Ok(());
    }
    Err(s3_error!(AccessControlListNotSupported, "The bucket does not allow ACLs"))
}

/// The version a request means.
///
/// # Errors
/// `InvalidArgument` for a name that is empty: who meant a version must not get the current one.
pub(crate) fn version_ref(id: Option<&str>) -> S3Result<VersionRef> {
    match id {
        None => Ok(VersionRef::Current),
        Some("") => Err(s3_error!(InvalidArgument, "Version id cannot be the empty string")),
        Some(name) => Ok(VersionRef::Named(VersionName(name.to_owned()))),
    }
}

/// A time as S3 shows it: in whole seconds.
pub(crate) fn timestamp(time: WallTime) -> Timestamp {
    let seconds = i64::try_from(time.unix_ms / 1000).unwrap_or(i64::MAX);
    time::OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(time::OffsetDateTime::UNIX_EPOCH).into()
}

/// 403.
pub(crate) fn denied() -> S3Error {
    s3_error!(AccessDenied, "Access Denied")
}

/// What is said of an object that is not there.
fn absent(version: &VersionRef, marker: Option<&Object>, bucket: &BucketRecord) -> S3Error {
    let mut error = match (version, marker) {
        (VersionRef::Named(_), Some(_)) => {
            s3_error!(MethodNotAllowed, "The specified method is not allowed against a delete marker")
        }
        (VersionRef::Named(_), None) => s3_error!(NoSuchVersion, "The specified version does not exist"),
        (VersionRef::Current, _) => s3_error!(NoSuchKey, "The specified key does not exist"),
    };
    if let Some(marker) = marker {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-delete-marker", http::HeaderValue::from_static("true"));
        headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/xml"));
        if documents::versioning(bucket).is_some()
            && let Ok(version) = marker.record.version.0.parse()
        {
            headers.insert("x-amz-version-id", version);
        }
        error.set_headers(headers);
    }
    error
}

/// The trace of a request; requests that did not pass the service, as in tests, get an empty one.
pub(crate) fn trace(extensions: &http::Extensions) -> Arc<Trace> {
    let found = extensions.get::<Arc<Trace>>().cloned();
    found.unwrap_or_else(|| Arc::new(Trace::new(String::new(), None)))
}

/// How often attributes are set before others are found to be faster for good.
const CHANGE_TRIES_MAX: u32 = 16;
