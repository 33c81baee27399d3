//! Buckets.

use super::{at, bucket, current, delete, empty_object, ids, new_object, refused, stripe};
use crate::{HeatPolicy, Meta, MetaError, NewBucket, NewContent, PartRecord, UploadId, UploadRecord};

pub(super) async fn names_are_unique_and_ids_are_not_used_again(meta: &dyn Meta) -> Result<(), MetaError> {
    let zoo = meta.create_bucket("zoo", "ann", None, at(7)).await?;
    let art = meta.create_bucket("art", "bob", None, at(8)).await?;
    assert_eq!((zoo.name.as_str(), zoo.owner.as_str()), ("zoo", "ann"));
    assert_eq!(zoo.created, at(7));
    refused!(
        meta.create_bucket("zoo", "bob", None, at(9)).await,
        MetaError::BucketExists { owner, .. } if owner == "ann"
    );
    assert_eq!(meta.buckets().await?, [art.clone(), zoo.clone()]);
    assert_eq!(meta.bucket("zoo").await?, zoo);

    meta.delete_bucket("art").await?;
    refused!(meta.bucket("art").await, MetaError::NoSuchBucket { name } if name == "art");
    refused!(meta.delete_bucket("art").await, MetaError::NoSuchBucket { .. });
    let again = meta.create_bucket("art", "bob", None, at(8)).await?;
    assert!(again.id != art.id, "the id of a deleted bucket came back");
    // A writer that still holds the old id must not reach the new bucket.
    refused!(meta.put_object(empty_object(art.id, "key")).await, MetaError::NoSuchBucket { .. });
    refused!(meta.delete_object(delete(art.id, "key")).await, MetaError::NoSuchBucket { .. });
    Ok(())
}

pub(super) async fn documents_and_code_are_kept(meta: &dyn Meta) -> Result<(), MetaError> {
    let code = "clay:4+2:5".parse().ok();
    let made = meta.create_bucket("photos", "ann", code, at(1)).await?;
    assert_eq!((made.code, made.documents.len()), (code, 0));
    meta.set_document("photos", "cors", Some(b"\xff\0".to_vec())).await?;
    meta.set_document("photos", "tagging", Some(Vec::new())).await?;
    meta.set_document("photos", "policy", Some(b"{}".to_vec())).await?;
    meta.set_document("photos", "policy", None).await?;
    meta.set_document("photos", "never set", None).await?;
    meta.set_code("photos", None).await?;
    let policy = HeatPolicy::named("lrc").ok();
    meta.set_policy("photos", policy).await?;

    let bucket = meta.bucket("photos").await?;
    let documents = [("cors".to_owned(), b"\xff\0".to_vec()), ("tagging".to_owned(), Vec::new())];
    assert_eq!(bucket.documents, documents.into());
    assert_eq!((bucket.code, bucket.policy), (None, policy));
    assert_eq!(current(meta, "key").await?.bucket, bucket);
    assert_eq!(meta.buckets().await?, [bucket]);
    meta.set_policy("photos", None).await?;
    assert_eq!(meta.bucket("photos").await?.policy, None);
    // A code stays beside a policy, and ends one when it is named; taken back it does not.
    for (code, left) in [(None, policy), (code, None)] {
        meta.set_policy("photos", policy).await?;
        meta.set_code("photos", code).await?;
        let bucket = meta.bucket("photos").await?;
        assert_eq!((bucket.code, bucket.policy), (code, left));
    }
    let policy = HeatPolicy::named("lrc").expect("a preset");
    let new = |name: &str| NewBucket {
        name: name.to_owned(),
        owner: "bob".to_owned(),
        code: None,
        policy: Some(policy),
        documents: [("cors".to_owned(), b"\xff\0".to_vec()), ("tagging".to_owned(), Vec::new())].into(),
        created: at(3),
    };
    let made = meta.create_bucket_with(new("zoo")).await?;
    assert_eq!((made.code, made.policy, made.created), (None, Some(policy), at(3)));
    assert_eq!(made.documents, new("zoo").documents);
    assert_eq!(meta.bucket("zoo").await?, made);
    let before = meta.bucket("photos").await?;
    refused!(
        meta.create_bucket_with(new("photos")).await,
        MetaError::BucketExists { owner, .. } if owner == "ann"
    );
    assert_eq!(meta.bucket("photos").await?, before);
    refused!(meta.set_policy("nowhere", None).await, MetaError::NoSuchBucket { .. });
    refused!(meta.set_document("nowhere", "cors", None).await, MetaError::NoSuchBucket { .. });
    refused!(meta.set_code("nowhere", None).await, MetaError::NoSuchBucket { .. });
    Ok(())
}

pub(super) async fn only_empty_buckets_can_be_deleted(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    super::add_disks(meta, 3).await?;
    meta.put_object(new_object(id, "key", vec![stripe(1, "replica:3", 9)])).await?;
    refused!(meta.delete_bucket("photos").await, MetaError::BucketNotEmpty { .. });
    assert!(current(meta, "key").await?.object.is_some());
    meta.delete_object(delete(id, "key")).await?;

    // Uploads do not keep a bucket: they end with it.
    let upload = UploadId("upload".to_owned());
    meta.create_upload(UploadRecord {
        id: upload.clone(),
        bucket: id,
        key: "key".to_owned(),
        created: at(1),
        attributes: Vec::new(),
    })
    .await?;
    let part = PartRecord {
        number: 1,
        content: None,
        bytes: 5,
        etag: "part".to_owned(),
        created: at(2),
        attributes: Vec::new(),
    };
    meta.put_part(&upload, part, NewContent::Stripes(vec![stripe(2, "replica:3", 5).into()])).await?;
    meta.delete_bucket("photos").await?;
    assert_eq!(ids(&meta.dead_stripes(10).await?), [1, 2]);
    refused!(meta.parts(&upload, 0, 1).await, MetaError::NoSuchUpload { .. });
    refused!(current(meta, "key").await, MetaError::NoSuchBucket { .. });
    Ok(())
}
