//! What is kept beside an object's bytes: its tags and its access control list.

use claystone_meta::BucketRecord;
use claystone_object::Attributes;
use s3s::dto::{
    DeleteObjectTaggingInput, DeleteObjectTaggingOutput, GetObjectAclInput, GetObjectAclOutput, GetObjectTaggingInput,
    GetObjectTaggingOutput, PutObjectAclInput, PutObjectAclOutput, PutObjectTaggingInput, PutObjectTaggingOutput,
};
use s3s::{S3Request, S3Response, S3Result};

use crate::acl::Acl;
use crate::documents::{self, Ownership};
use crate::gateway::{self, Gateway, check_unlisted, denied, version_ref};
use crate::tags;

impl Gateway {
    pub(crate) async fn get_object_tagging(
        &self,
        request: S3Request<GetObjectTaggingInput>,
    ) -> S3Result<S3Response<GetObjectTaggingOutput>> {
        let (input, call) = self.open(request);
        let version = version_ref(input.version_id.as_deref())?;
        let (bucket, object) =
            self.object(&call, &input.bucket, &input.key, &version, gateway::GET_OBJECT_TAGGING).await?;
        Ok(S3Response::new(GetObjectTaggingOutput {
            tag_set: tags::to_set(&object.attributes.tags),
            version_id: documents::versioning(&bucket).map(|_| object.record.version.0),
        }))
    }

    pub(crate) async fn put_object_tagging(
        &self,
        request: S3Request<PutObjectTaggingInput>,
    ) -> S3Result<S3Response<PutObjectTaggingOutput>> {
        let (input, call) = self.open(request);
        let (place, version) = ((&*input.bucket, &*input.key), input.version_id.as_deref());
        let set = |_: &BucketRecord, attributes: &mut Attributes| {
            attributes.tags = tags::of_set(input.tagging.tag_set.clone(), tags::OBJECT_TAGS_MAX)?;
            Ok(())
        };
        let (bucket, object) = self.change(&call, place, version, gateway::PUT_OBJECT_TAGGING, set).await?;
        let version_id = documents::versioning(&bucket).map(|_| object.record.version.0);
        Ok(S3Response::new(PutObjectTaggingOutput { version_id }))
    }

    pub(crate) async fn delete_object_tagging(
        &self,
        request: S3Request<DeleteObjectTaggingInput>,
    ) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
        let (input, call) = self.open(request);
        let (place, version) = ((&*input.bucket, &*input.key), input.version_id.as_deref());
        let clear = |_: &BucketRecord, attributes: &mut Attributes| {
            attributes.tags.clear();
            Ok(())
        };
        let (bucket, object) = self.change(&call, place, version, gateway::DELETE_OBJECT_TAGGING, clear).await?;
        let version_id = documents::versioning(&bucket).map(|_| object.record.version.0);
        Ok(S3Response::new(DeleteObjectTaggingOutput { version_id }))
    }

    pub(crate) async fn get_object_acl(
        &self,
        request: S3Request<GetObjectAclInput>,
    ) -> S3Result<S3Response<GetObjectAclOutput>> {
        let (input, call) = self.open(request);
        let version = version_ref(input.version_id.as_deref())?;
        let (bucket, object) = self.object(&call, &input.bucket, &input.key, &version, gateway::GET_OBJECT_ACL).await?;
        let acl = match documents::ownership(&bucket) {
            Ownership::BucketOwnerEnforced => Acl::private(&bucket.owner),
            _ => Acl::of_object(&object.attributes, &bucket),
        };
        let (owner, grants) = acl.to_dto(&*self.keys);
        Ok(S3Response::new(GetObjectAclOutput { grants: Some(grants), owner: Some(owner), request_charged: None }))
    }

    pub(crate) async fn put_object_acl(
        &self,
        request: S3Request<PutObjectAclInput>,
    ) -> S3Result<S3Response<PutObjectAclOutput>> {
        let (input, call) = self.open(request);
        let mut asked = call.asked_acl();
        asked.document = input.access_control_policy;
        let (place, version) = ((&*input.bucket, &*input.key), input.version_id.as_deref());
        let set = |bucket: &BucketRecord, attributes: &mut Attributes| {
            if documents::ownership(bucket) == Ownership::BucketOwnerEnforced {
                check_unlisted(&asked)?;
            }
            let owner = Acl::of_object(attributes, bucket).owner;
            let acl = asked.resolve(&owner, &bucket.owner, &*self.keys)?;
            if acl.is_public() && documents::public_access(bucket).block_public_acls {
                return Err(denied());
            }
            acl.keep(attributes, bucket);
            Ok(())
        };
        self.change(&call, place, version, gateway::PUT_OBJECT_ACL, set).await?;
        Ok(S3Response::new(PutObjectAclOutput::default()))
    }
}
