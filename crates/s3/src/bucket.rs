//! Buckets, and the documents that go with them.

use std::collections::BTreeMap;

use claystone_code::CodeSpec;
use claystone_meta::{BucketRecord, ListQuery, MetaError};
use claystone_object::ObjectError;
use http::{HeaderMap, HeaderName, HeaderValue};
use s3s::dto::{
    BucketLocationConstraint, BucketVersioningStatus, CreateBucketInput, CreateBucketOutput, DeleteBucketCorsInput,
    DeleteBucketCorsOutput, DeleteBucketInput, DeleteBucketOutput, DeleteBucketOwnershipControlsInput,
    DeleteBucketOwnershipControlsOutput, DeleteBucketPolicyInput, DeleteBucketPolicyOutput, DeleteBucketTaggingInput,
    DeleteBucketTaggingOutput, DeletePublicAccessBlockInput, DeletePublicAccessBlockOutput, GetBucketAclInput,
    GetBucketAclOutput, GetBucketCorsInput, GetBucketCorsOutput, GetBucketLocationInput, GetBucketLocationOutput,
    GetBucketOwnershipControlsInput, GetBucketOwnershipControlsOutput, GetBucketPolicyInput, GetBucketPolicyOutput,
    GetBucketPolicyStatusInput, GetBucketPolicyStatusOutput, GetBucketTaggingInput, GetBucketTaggingOutput,
    GetBucketVersioningInput, GetBucketVersioningOutput, GetPublicAccessBlockInput, GetPublicAccessBlockOutput,
    HeadBucketInput, HeadBucketOutput, MFADelete, ObjectLockConfiguration, ObjectLockEnabled, ObjectOwnership,
    OwnershipControls, OwnershipControlsRule, PolicyStatus, PutBucketAclInput, PutBucketAclOutput, PutBucketCorsInput,
    PutBucketCorsOutput, PutBucketOwnershipControlsInput, PutBucketOwnershipControlsOutput, PutBucketPolicyInput,
    PutBucketPolicyOutput, PutBucketTaggingInput, PutBucketTaggingOutput, PutBucketVersioningInput,
    PutBucketVersioningOutput, PutPublicAccessBlockInput, PutPublicAccessBlockOutput,
};
use s3s::{S3Request, S3Response, S3Result, s3_error};

use crate::acl::{self, Acl};
use crate::cors;
use crate::documents::{self, Ownership, Versions};
use crate::error::{from_object, other};
use crate::gateway::{self, Gateway, check_unlisted, denied};
use crate::lock;
use crate::policy::{self, Policy};
use crate::read::CODE_HEADER;
use crate::tags;

impl Gateway {
    pub(crate) async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        let (input, call) = self.open(request);
        let account = call.account()?.clone();
        let code =
            match call.headers.get(CODE_HEADER) {
                None => None,
                Some(text) => {
                    let code = text.to_str().unwrap_or_default().parse::<CodeSpec>();
                    Some(code.map_err(|error| {
                        s3_error!(InvalidArgument, "The header {CODE_HEADER} names no code: {error}")
                    })?)
                }
            };
        let asked = call.asked_acl();
        let mut documents: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let location = input.create_bucket_configuration.and_then(|config| config.location_constraint);
        if let Some(location) = &location {
            documents.insert(documents::LOCATION.to_owned(), location.as_str().as_bytes().to_vec());
        }
        let enforced = input.object_ownership.as_ref().map(ObjectOwnership::as_str)
            == Some(ObjectOwnership::BUCKET_OWNER_ENFORCED);
        if let Some(ownership) = input.object_ownership {
            documents.insert(documents::OWNERSHIP.to_owned(), ownership_document(ownership)?);
        }
        if enforced && check_unlisted(&asked).is_err() {
            return Err(s3_error!(
                InvalidBucketAclWithObjectOwnership,
                "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting"
            ));
        }
        let acl = asked.resolve(&account.id, &account.id, &*self.keys)?;
        if acl != Acl::private(&account.id) {
            documents.insert(acl::DOCUMENT.to_owned(), acl.to_json().into_bytes());
        }
        if input.object_lock_enabled_for_bucket == Some(true) {
            let config = ObjectLockConfiguration {
                object_lock_enabled: Some(ObjectLockEnabled::from_static(ObjectLockEnabled::ENABLED)),
                rule: None,
            };
            documents.insert(documents::LOCK.to_owned(), documents::to_xml(&config)?);
            documents.insert(documents::VERSIONING.to_owned(), b"Enabled".to_vec());
        }
        match self.objects.create_bucket_with(&input.bucket, &account.id, code, documents.clone()).await {
            Ok(_) => Ok(created(&input.bucket)),
            Err(ObjectError::Meta(MetaError::BucketExists { name, owner })) => {
                self.exists_already(&name, &owner, &account.id, code, &acl, &documents).await
            }
            Err(error) => Err(from_object(error)),
        }
    }

    /// Making one's own bucket again is no error, as long as it would be the same.
    async fn exists_already(
        &self,
        name: &str,
        owner: &str,
        account: &str,
        code: Option<CodeSpec>,
        acl: &Acl,
        documents: &BTreeMap<String, Vec<u8>>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        let taken = || s3_error!(BucketAlreadyExists, "The requested bucket name is not available");
        if owner != account {
            return Err(taken());
        }
        let bucket = self.objects.bucket(name).await.map_err(from_object)?;
        if *acl != Acl::of_bucket(&bucket) {
            return Err(taken());
        }
        let has_other_code = code.is_some() && bucket.code != code;
        if has_other_code || documents.iter().any(|(name, document)| bucket.documents.get(name) != Some(document)) {
            return Err(s3_error!(
                BucketAlreadyOwnedByYou,
                "You own a bucket of this name, with other settings than you ask for now"
            ));
        }
        Ok(created(name))
    }

    pub(crate) async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::LIST_BUCKET).await?;
        let mut headers = HeaderMap::new();
        if let Ok(code) = HeaderValue::try_from(self.objects.code_of(&bucket).to_string()) {
            headers.insert(HeaderName::from_static(CODE_HEADER), code);
        }
        let output = HeadBucketOutput { bucket_region: Some(self.region_of(&bucket)), ..HeadBucketOutput::default() };
        Ok(S3Response::with_headers(output, headers))
    }

    pub(crate) async fn delete_bucket(
        &self,
        request: S3Request<DeleteBucketInput>,
    ) -> S3Result<S3Response<DeleteBucketOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::DELETE_BUCKET).await?;
        // Uploads that were never completed do not keep a bucket alive, but objects do: look at those first.
        let any = ListQuery { limit: 1, versions: true, ..ListQuery::default() };
        let page = self.objects.list(bucket.id, &any).await.map_err(from_object)?;
        if page.entries.is_empty() {
            self.abort_uploads(&bucket).await?;
        }
        self.objects.delete_bucket(&bucket.name).await.map_err(from_object)?;
        Ok(S3Response::new(DeleteBucketOutput::default()))
    }

    async fn abort_uploads(&self, bucket: &BucketRecord) -> S3Result<()> {
        loop {
            let query = ListQuery { limit: 1000, ..ListQuery::default() };
            let page = self.objects.list_uploads(bucket.id, &query, None).await.map_err(from_object)?;
            for upload in &page.entries {
                match self.objects.abort_upload(&bucket.name, &upload.key, &upload.id).await {
                    Ok(()) | Err(ObjectError::Meta(MetaError::NoSuchUpload { .. })) => {}
                    Err(error) => return Err(from_object(error)),
                }
            }
            if !page.truncated {
                return Ok(());
            }
        }
    }

    pub(crate) async fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::GET_BUCKET_LOCATION).await?;
        let region = self.region_of(&bucket);
        // S3 has no text for its first region.
        let location_constraint = (region != "us-east-1").then(|| BucketLocationConstraint::from(region));
        Ok(S3Response::new(GetBucketLocationOutput { location_constraint }))
    }

    fn region_of(&self, bucket: &BucketRecord) -> String {
        let stored = bucket.documents.get(documents::LOCATION).and_then(|text| String::from_utf8(text.clone()).ok());
        stored.unwrap_or_else(|| self.settings.region.clone())
    }

    pub(crate) async fn get_bucket_versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<S3Response<GetBucketVersioningOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::GET_BUCKET_VERSIONING).await?;
        let status = documents::versioning(&bucket).map(|versions| match versions {
            Versions::Enabled => BucketVersioningStatus::from_static(BucketVersioningStatus::ENABLED),
            Versions::Suspended => BucketVersioningStatus::from_static(BucketVersioningStatus::SUSPENDED),
        });
        Ok(S3Response::new(GetBucketVersioningOutput { mfa_delete: None, status }))
    }

    pub(crate) async fn put_bucket_versioning(
        &self,
        request: S3Request<PutBucketVersioningInput>,
    ) -> S3Result<S3Response<PutBucketVersioningOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::PUT_BUCKET_VERSIONING).await?;
        if input.versioning_configuration.mfa_delete.as_ref().map(MFADelete::as_str) == Some(MFADelete::ENABLED) {
            return Err(s3_error!(NotImplemented, "MFA delete is not supported"));
        }
        let status = input.versioning_configuration.status;
        let status = match status.as_ref().map(BucketVersioningStatus::as_str) {
            Some(status @ (BucketVersioningStatus::ENABLED | BucketVersioningStatus::SUSPENDED)) => status,
            _ => {
                return Err(s3_error!(
                    IllegalVersioningConfigurationException,
                    "The versioning status is Enabled or Suspended"
                ));
            }
        };
        if status == BucketVersioningStatus::SUSPENDED && lock::is_enabled(&bucket) {
            return Err(s3_error!(
                InvalidBucketState,
                "An Object Lock configuration is present on this bucket, so the versioning state cannot be changed."
            ));
        }
        self.set_document(&bucket, documents::VERSIONING, Some(status.as_bytes().to_vec())).await?;
        Ok(S3Response::new(PutBucketVersioningOutput::default()))
    }

    pub(crate) async fn get_bucket_tagging(
        &self,
        request: S3Request<GetBucketTaggingInput>,
    ) -> S3Result<S3Response<GetBucketTaggingOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::GET_BUCKET_TAGGING).await?;
        let stored = bucket.documents.get(documents::TAGGING).and_then(|json| serde_json::from_slice(json).ok());
        let stored: BTreeMap<String, String> =
            stored.ok_or_else(|| s3_error!(NoSuchTagSet, "The TagSet does not exist"))?;
        Ok(S3Response::new(GetBucketTaggingOutput { tag_set: tags::to_set(&stored) }))
    }

    pub(crate) async fn put_bucket_tagging(
        &self,
        request: S3Request<PutBucketTaggingInput>,
    ) -> S3Result<S3Response<PutBucketTaggingOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::PUT_BUCKET_TAGGING).await?;
        let tags = tags::of_set(input.tagging.tag_set, tags::BUCKET_TAGS_MAX)?;
        let json = serde_json::to_vec(&tags).expect("texts always serialise");
        self.set_document(&bucket, documents::TAGGING, Some(json)).await?;
        Ok(S3Response::new(PutBucketTaggingOutput::default()))
    }

    pub(crate) async fn delete_bucket_tagging(
        &self,
        request: S3Request<DeleteBucketTaggingInput>,
    ) -> S3Result<S3Response<DeleteBucketTaggingOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::PUT_BUCKET_TAGGING).await?;
        self.set_document(&bucket, documents::TAGGING, None).await?;
        Ok(S3Response::new(DeleteBucketTaggingOutput::default()))
    }

    pub(crate) async fn get_bucket_cors(
        &self,
        request: S3Request<GetBucketCorsInput>,
    ) -> S3Result<S3Response<GetBucketCorsOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::GET_BUCKET_CORS).await?;
        let config: Option<s3s::dto::CORSConfiguration> = documents::read(&bucket, cors::DOCUMENT)?;
        let config =
            config.ok_or_else(|| s3_error!(NoSuchCORSConfiguration, "The CORS configuration does not exist"))?;
        Ok(S3Response::new(GetBucketCorsOutput { cors_rules: Some(config.cors_rules) }))
    }

    pub(crate) async fn put_bucket_cors(
        &self,
        request: S3Request<PutBucketCorsInput>,
    ) -> S3Result<S3Response<PutBucketCorsOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::PUT_BUCKET_CORS).await?;
        cors::check(&input.cors_configuration)?;
        self.set_document(&bucket, cors::DOCUMENT, Some(documents::to_xml(&input.cors_configuration)?)).await?;
        Ok(S3Response::new(PutBucketCorsOutput::default()))
    }

    pub(crate) async fn delete_bucket_cors(
        &self,
        request: S3Request<DeleteBucketCorsInput>,
    ) -> S3Result<S3Response<DeleteBucketCorsOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::PUT_BUCKET_CORS).await?;
        self.set_document(&bucket, cors::DOCUMENT, None).await?;
        Ok(S3Response::new(DeleteBucketCorsOutput::default()))
    }

    pub(crate) async fn get_bucket_policy(
        &self,
        request: S3Request<GetBucketPolicyInput>,
    ) -> S3Result<S3Response<GetBucketPolicyOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::GET_BUCKET_POLICY).await?;
        let text = bucket.documents.get(policy::DOCUMENT).and_then(|text| String::from_utf8(text.clone()).ok());
        let text = text.ok_or_else(|| s3_error!(NoSuchBucketPolicy, "The bucket policy does not exist"))?;
        Ok(S3Response::new(GetBucketPolicyOutput { policy: Some(text) }))
    }

    pub(crate) async fn put_bucket_policy(
        &self,
        request: S3Request<PutBucketPolicyInput>,
    ) -> S3Result<S3Response<PutBucketPolicyOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::PUT_BUCKET_POLICY).await?;
        let policy = Policy::parse(input.policy.as_bytes())?;
        if !policy.is_about(&bucket.name) {
            return Err(s3_error!(MalformedPolicy, "Policy has invalid resource: it must lie in this bucket"));
        }
        if policy.is_public() && documents::public_access(&bucket).block_public_policy {
            return Err(denied());
        }
        self.set_document(&bucket, policy::DOCUMENT, Some(input.policy.into_bytes())).await?;
        Ok(S3Response::with_status(PutBucketPolicyOutput::default(), http::StatusCode::NO_CONTENT))
    }

    pub(crate) async fn delete_bucket_policy(
        &self,
        request: S3Request<DeleteBucketPolicyInput>,
    ) -> S3Result<S3Response<DeleteBucketPolicyOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::DELETE_BUCKET_POLICY).await?;
        self.set_document(&bucket, policy::DOCUMENT, None).await?;
        Ok(S3Response::new(DeleteBucketPolicyOutput::default()))
    }

    pub(crate) async fn get_bucket_policy_status(
        &self,
        request: S3Request<GetBucketPolicyStatusInput>,
    ) -> S3Result<S3Response<GetBucketPolicyStatusOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::GET_BUCKET_POLICY_STATUS).await?;
        let by_policy = match bucket.documents.get(policy::DOCUMENT) {
            Some(text) => Policy::parse(text)?.is_public(),
            None => false,
        };
        let by_list = !documents::public_access(&bucket).ignore_public_acls && Acl::of_bucket(&bucket).is_public();
        let status = PolicyStatus { is_public: Some(by_policy || by_list) };
        Ok(S3Response::new(GetBucketPolicyStatusOutput { policy_status: Some(status) }))
    }

    pub(crate) async fn get_bucket_acl(
        &self,
        request: S3Request<GetBucketAclInput>,
    ) -> S3Result<S3Response<GetBucketAclOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::GET_BUCKET_ACL).await?;
        let acl = match documents::ownership(&bucket) {
            Ownership::BucketOwnerEnforced => Acl::private(&bucket.owner),
            _ => Acl::of_bucket(&bucket),
        };
        let (owner, grants) = acl.to_dto(&*self.keys);
        Ok(S3Response::new(GetBucketAclOutput { grants: Some(grants), owner: Some(owner) }))
    }

    pub(crate) async fn put_bucket_acl(
        &self,
        request: S3Request<PutBucketAclInput>,
    ) -> S3Result<S3Response<PutBucketAclOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::PUT_BUCKET_ACL).await?;
        let mut asked = call.asked_acl();
        asked.document = input.access_control_policy;
        if documents::ownership(&bucket) == Ownership::BucketOwnerEnforced {
            check_unlisted(&asked)?;
        }
        let acl = asked.resolve(&bucket.owner, &bucket.owner, &*self.keys)?;
        if acl.is_public() && documents::public_access(&bucket).block_public_acls {
            return Err(denied());
        }
        let document = (acl != Acl::private(&bucket.owner)).then(|| acl.to_json().into_bytes());
        self.set_document(&bucket, acl::DOCUMENT, document).await?;
        Ok(S3Response::new(PutBucketAclOutput::default()))
    }

    pub(crate) async fn get_bucket_ownership_controls(
        &self,
        request: S3Request<GetBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<GetBucketOwnershipControlsOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::GET_BUCKET_OWNERSHIP).await?;
        let controls: Option<OwnershipControls> = documents::read(&bucket, documents::OWNERSHIP)?;
        if controls.is_none() {
            return Err(s3_error!(OwnershipControlsNotFoundError, "The bucket ownership controls were not found"));
        }
        Ok(S3Response::new(GetBucketOwnershipControlsOutput { ownership_controls: controls }))
    }

    pub(crate) async fn put_bucket_ownership_controls(
        &self,
        request: S3Request<PutBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<PutBucketOwnershipControlsOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::PUT_BUCKET_OWNERSHIP).await?;
        let [rule] = input.ownership_controls.rules.as_slice() else {
            return Err(s3_error!(MalformedXML, "Ownership controls have exactly one rule"));
        };
        let enforces = rule.object_ownership.as_str() == ObjectOwnership::BUCKET_OWNER_ENFORCED;
        if enforces && Acl::of_bucket(&bucket) != Acl::private(&bucket.owner) {
            return Err(s3_error!(
                InvalidBucketAclWithObjectOwnership,
                "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting"
            ));
        }
        let document = ownership_document(rule.object_ownership.clone())?;
        self.set_document(&bucket, documents::OWNERSHIP, Some(document)).await?;
        Ok(S3Response::new(PutBucketOwnershipControlsOutput::default()))
    }

    pub(crate) async fn delete_bucket_ownership_controls(
        &self,
        request: S3Request<DeleteBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<DeleteBucketOwnershipControlsOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::PUT_BUCKET_OWNERSHIP).await?;
        self.set_document(&bucket, documents::OWNERSHIP, None).await?;
        Ok(S3Response::new(DeleteBucketOwnershipControlsOutput::default()))
    }

    pub(crate) async fn get_public_access_block(
        &self,
        request: S3Request<GetPublicAccessBlockInput>,
    ) -> S3Result<S3Response<GetPublicAccessBlockOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::GET_BUCKET_PUBLIC_ACCESS).await?;
        let config = documents::read(&bucket, documents::PUBLIC_ACCESS)?.ok_or_else(|| {
            other(
                "NoSuchPublicAccessBlockConfiguration",
                http::StatusCode::NOT_FOUND,
                "The public access block configuration was not found",
            )
        })?;
        Ok(S3Response::new(GetPublicAccessBlockOutput { public_access_block_configuration: Some(config) }))
    }

    pub(crate) async fn put_public_access_block(
        &self,
        request: S3Request<PutPublicAccessBlockInput>,
    ) -> S3Result<S3Response<PutPublicAccessBlockOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::PUT_BUCKET_PUBLIC_ACCESS).await?;
        let document = documents::to_xml(&input.public_access_block_configuration)?;
        self.set_document(&bucket, documents::PUBLIC_ACCESS, Some(document)).await?;
        Ok(S3Response::new(PutPublicAccessBlockOutput::default()))
    }

    pub(crate) async fn delete_public_access_block(
        &self,
        request: S3Request<DeletePublicAccessBlockInput>,
    ) -> S3Result<S3Response<DeletePublicAccessBlockOutput>> {
        let (input, call) = self.open(request);
        let bucket = self.bucket(&call, &input.bucket, gateway::PUT_BUCKET_PUBLIC_ACCESS).await?;
        self.set_document(&bucket, documents::PUBLIC_ACCESS, None).await?;
        Ok(S3Response::with_status(DeletePublicAccessBlockOutput::default(), http::StatusCode::NO_CONTENT))
    }

    /// Sets or removes a document of a bucket.
    pub(crate) async fn set_document(&self, bucket: &BucketRecord, name: &str, text: Option<Vec<u8>>) -> S3Result<()> {
        self.objects.set_document(&bucket.name, name, text).await.map_err(from_object)
    }
}

fn created(name: &str) -> S3Response<CreateBucketOutput> {
    S3Response::new(CreateBucketOutput { location: Some(format!("/{name}")) })
}

fn ownership_document(ownership: ObjectOwnership) -> S3Result<Vec<u8>> {
    let known = [
        ObjectOwnership::BUCKET_OWNER_ENFORCED,
        ObjectOwnership::BUCKET_OWNER_PREFERRED,
        ObjectOwnership::OBJECT_WRITER,
    ];
    if !known.contains(&ownership.as_str()) {
        return Err(s3_error!(MalformedXML, "ObjectOwnership is one of {}", known.join(", ")));
    }
    documents::to_xml(&OwnershipControls { rules: vec![OwnershipControlsRule { object_ownership: ownership }] })
}
