//! Multipart uploads.

use super::{
    add_disks, at, bucket, current, delete, empty_object, ids, named, new_object, put_versioned, refused, stripe,
};
use crate::{
    BucketId, Completed, ListQuery, Meta, MetaError, NewContent, NewObject, NewStripe, PartRecord, Precondition,
    StripeRecord, UploadId, UploadRecord, VersionName, Versioning,
};

fn id(name: &str) -> UploadId {
    UploadId(name.to_owned())
}

pub(super) fn upload(bucket: BucketId, key: &str, name: &str) -> UploadRecord {
    UploadRecord { id: id(name), bucket, key: key.to_owned(), created: at(50), attributes: b"headers".to_vec() }
}

pub(super) fn part(number: u32, bytes: u64) -> PartRecord {
    PartRecord {
        number,
        content: None,
        bytes,
        etag: format!("part-{number}-{bytes}"),
        created: at(60),
        attributes: b"sums".to_vec(),
    }
}

async fn put(
    meta: &dyn Meta,
    name: &str,
    number: u32,
    stripes: Vec<StripeRecord>,
) -> Result<Vec<StripeRecord>, MetaError> {
    let bytes = stripes.iter().map(|stripe| stripe.data_bytes).sum();
    meta.put_part(
        &id(name),
        part(number, bytes),
        NewContent::Stripes(stripes.into_iter().map(NewStripe::from).collect()),
    )
    .await
}

pub(super) fn completed(bucket: BucketId, name: &str, parts: &[(u32, u64)]) -> Completed {
    let parts = parts.iter().map(|(number, bytes)| (*number, part(*number, *bytes).etag));
    Completed {
        object: NewObject { etag: "whole-3".to_owned(), ..empty_object(bucket, "key") },
        upload: id(name),
        parts: parts.collect(),
    }
}

pub(super) async fn parts_become_one_object_in_order(meta: &dyn Meta) -> Result<(), MetaError> {
    let bucket = bucket(meta).await?;
    add_disks(meta, 3).await?;
    meta.create_upload(upload(bucket, "key", "u")).await?;
    assert_eq!(meta.upload(bucket, "key", &id("u")).await?, upload(bucket, "key", "u"));
    // Uploaded in another order than that of the numbers.
    put(meta, "u", 9, vec![stripe(1, "replica:3", 3)]).await?;
    put(meta, "u", 2, vec![stripe(5, "replica:3", 9), stripe(4, "replica:3", 1)]).await?;
    put(meta, "u", 4, Vec::new()).await?;
    put(meta, "u", 10_000, vec![stripe(7, "replica:3", 2)]).await?;

    let (parts, more) = meta.parts(&id("u"), 0, 2).await?;
    assert_eq!(parts.iter().map(|part| part.number).collect::<Vec<_>>(), [2, 4]);
    assert!(more && parts[0].content.is_some() && parts[1].content.is_none());
    assert_eq!(PartRecord { content: None, ..parts[0].clone() }, part(2, 10));
    let (parts, more) = meta.parts(&id("u"), 4, 2).await?;
    assert_eq!(parts.iter().map(|part| part.number).collect::<Vec<_>>(), [9, 10_000]);
    assert!(!more);
    // Not yet an object, but live.
    assert_eq!(current(meta, "key").await?.object, None);
    assert_eq!(meta.tally().await?.stripes, 4);

    // Part 10,000 is not named and dies.
    let outcome = meta.complete_upload(completed(bucket, "u", &[(2, 10), (4, 0), (9, 3)])).await?;
    assert_eq!((outcome.version, ids(&outcome.dead)), (VersionName::null(), vec![7]));
    let found = current(meta, "key").await?;
    assert_eq!(ids(&found.stripes()), [5, 4, 1]);
    let object = found.object.expect("just completed");
    assert_eq!((object.bytes, object.etag.as_str()), (13, "whole-3"));
    refused!(meta.upload(bucket, "key", &id("u")).await, MetaError::NoSuchUpload { .. });
    refused!(meta.complete_upload(completed(bucket, "u", &[(2, 10)])).await, MetaError::NoSuchUpload { .. });
    assert_eq!(ids(&meta.delete_object(delete(bucket, "key")).await?.dead), [5, 4, 1]);
    Ok(())
}

pub(super) async fn wrong_parts_are_refused_and_nothing_changes(meta: &dyn Meta) -> Result<(), MetaError> {
    let bucket = bucket(meta).await?;
    add_disks(meta, 3).await?;
    meta.create_upload(upload(bucket, "key", "u")).await?;
    put(meta, "u", 1, vec![stripe(1, "replica:3", 5)]).await?;
    put(meta, "u", 3, vec![stripe(3, "replica:3", 6)]).await?;
    for (parts, wrong) in [
        (&[(1, 6)][..], 1),
        (&[(1, 5), (2, 5)], 2),
        (&[(2, 5), (3, 6)], 2),
        (&[(1, 5), (3, 6), (4, 1)], 4),
        (&[(3, 6), (1, 5)], 1),
        (&[(1, 5), (1, 5)], 1),
    ] {
        refused!(
            meta.complete_upload(completed(bucket, "u", parts)).await,
            MetaError::InvalidPart { number } if number == wrong
        );
    }
    let other_key = Completed { object: empty_object(bucket, "other"), ..completed(bucket, "u", &[(1, 5)]) };
    refused!(meta.complete_upload(other_key).await, MetaError::NoSuchUpload { .. });
    assert_eq!(meta.parts(&id("u"), 0, 9).await?.0.len(), 2);
    assert_eq!(meta.tally().await?.stripes, 2);

    let no_upload = meta.put_part(&id("x"), part(1, 0), NewContent::Empty).await;
    refused!(no_upload, MetaError::NoSuchUpload { .. });
    refused!(meta.parts(&id("x"), 0, 1).await, MetaError::NoSuchUpload { .. });
    for (key, name) in [("key", "x"), ("other", "u")] {
        refused!(meta.upload(bucket, key, &id(name)).await, MetaError::NoSuchUpload { .. });
        refused!(meta.abort_upload(bucket, key, &id(name)).await, MetaError::NoSuchUpload { .. });
    }
    let nowhere = upload(BucketId(99), "key", "v");
    refused!(meta.create_upload(nowhere).await, MetaError::NoSuchBucket { .. });
    Ok(())
}

pub(super) async fn a_replaced_part_and_an_aborted_upload_die(meta: &dyn Meta) -> Result<(), MetaError> {
    let bucket = bucket(meta).await?;
    add_disks(meta, 3).await?;
    meta.create_upload(upload(bucket, "key", "u")).await?;
    assert_eq!(put(meta, "u", 1, vec![stripe(1, "replica:3", 5)]).await?, []);
    let dead = put(meta, "u", 1, vec![stripe(2, "replica:3", 6)]).await?;
    assert_eq!(dead, [stripe(1, "replica:3", 5)]);
    put(meta, "u", 2, vec![stripe(3, "replica:3", 7)]).await?;
    assert_eq!(meta.parts(&id("u"), 0, 9).await?.0[0].etag, "part-1-6");
    assert_eq!(ids(&meta.abort_upload(bucket, "key", &id("u")).await?), [2, 3]);
    refused!(meta.abort_upload(bucket, "key", &id("u")).await, MetaError::NoSuchUpload { .. });
    assert_eq!(ids(&meta.dead_stripes(9).await?), [1, 2, 3]);
    Ok(())
}

pub(super) async fn parts_copied_from_objects_share_stripes(meta: &dyn Meta) -> Result<(), MetaError> {
    let bucket = bucket(meta).await?;
    add_disks(meta, 3).await?;
    let source = vec![stripe(1, "replica:3", 3), stripe(2, "replica:3", 4)];
    meta.put_object(new_object(bucket, "source", source)).await?;
    let content = current(meta, "source").await?.object.and_then(|object| object.content);
    let content = content.expect("an object with bytes has content");
    meta.create_upload(upload(bucket, "key", "u")).await?;
    // The same bytes twice, and bytes of the upload's own between them.
    for number in [1, 3] {
        meta.put_part(&id("u"), part(number, 7), NewContent::Shared(content)).await?;
    }
    put(meta, "u", 2, vec![stripe(9, "replica:3", 1)]).await?;
    let parts = [(1, 7), (2, 1), (3, 7)];
    meta.complete_upload(completed(bucket, "u", &parts)).await?;
    let found = current(meta, "key").await?;
    assert_eq!(ids(&found.stripes()), [1, 2, 9, 1, 2]);
    assert_eq!(meta.tally().await?.stripes, 3);

    // That object is copied in turn into a second upload.
    let content = found.object.and_then(|object| object.content);
    let content = content.expect("an object with bytes has content");
    meta.create_upload(upload(bucket, "key", "v")).await?;
    meta.put_part(&id("v"), part(1, 15), NewContent::Shared(content)).await?;
    put(meta, "v", 2, vec![stripe(8, "replica:3", 1)]).await?;
    let outcome = meta.complete_upload(completed(bucket, "v", &[(1, 15), (2, 1)])).await?;
    assert_eq!(outcome.dead, [], "the replaced object's stripes live on in the new one");
    assert_eq!(ids(&current(meta, "key").await?.stripes()), [1, 2, 9, 1, 2, 8]);

    assert_eq!(meta.delete_object(delete(bucket, "source")).await?.dead, []);
    let mut dead = ids(&meta.delete_object(delete(bucket, "key")).await?.dead);
    dead.sort();
    assert_eq!(dead, [1, 2, 8, 9], "each stripe dies once");
    let gone = NewContent::Shared(content);
    meta.create_upload(upload(bucket, "key", "w")).await?;
    refused!(meta.put_part(&id("w"), part(1, 15), gone).await, MetaError::NoSuchObject { .. });
    Ok(())
}

pub(super) async fn completion_replaces_checks_and_versions(meta: &dyn Meta) -> Result<(), MetaError> {
    let bucket = bucket(meta).await?;
    add_disks(meta, 3).await?;
    meta.put_object(new_object(bucket, "key", vec![stripe(1, "replica:3", 5)])).await?;
    meta.create_upload(upload(bucket, "key", "u")).await?;
    put(meta, "u", 1, vec![stripe(2, "replica:3", 6)]).await?;
    let with = |precondition: Precondition| {
        let mut completed = completed(bucket, "u", &[(1, 6)]);
        completed.object.precondition = precondition;
        completed
    };
    refused!(meta.complete_upload(with(Precondition::Absent)).await, MetaError::PreconditionFailed { .. });
    assert_eq!(meta.parts(&id("u"), 0, 9).await?.0.len(), 1);
    let outcome = meta.complete_upload(with(Precondition::Etag("etag-5".to_owned()))).await?;
    assert_eq!(ids(&outcome.dead), [1]);

    put_versioned(meta, bucket, "key", "v1").await?;
    meta.create_upload(upload(bucket, "key", "u")).await?;
    put(meta, "u", 1, vec![stripe(3, "replica:3", 6)]).await?;
    let mut versioned = with(Precondition::None);
    versioned.object.versioning = Versioning::On(VersionName("v2".to_owned()));
    assert_eq!(meta.complete_upload(versioned).await?.dead, []);
    assert_eq!(ids(&current(meta, "key").await?.stripes()), [3]);
    assert_eq!(ids(&meta.object("photos", "key", &named("null")).await?.stripes()), [2]);
    Ok(())
}

pub(super) async fn uploads_are_listed_by_key_then_id(meta: &dyn Meta) -> Result<(), MetaError> {
    let bucket = bucket(meta).await?;
    let all = [("a", "3"), ("b", "1"), ("b", "2"), ("b/x", "5"), ("b/y", "4"), ("c", "0")];
    for (key, name) in all.iter().rev() {
        meta.create_upload(upload(bucket, key, name)).await?;
    }
    let query = |delimiter: Option<&str>, limit| ListQuery {
        delimiter: delimiter.map(str::to_owned),
        limit,
        ..ListQuery::default()
    };
    for limit in 1..=7 {
        let mut query = query(None, limit);
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = meta.list_uploads(bucket, &query, after.as_ref()).await?;
            assert!(page.entries.len() <= limit);
            listed.extend(page.entries.clone());
            let Some(last) = page.entries.last().filter(|_| page.truncated) else { break };
            (query.after, after) = (Some(last.key.clone()), Some(last.id.clone()));
        }
        let expected = all.map(|(key, name)| upload(bucket, key, name));
        assert_eq!(listed, expected, "pages of {limit}");
    }
    let page = meta.list_uploads(bucket, &query(Some("/"), 9), None).await?;
    assert_eq!((page.entries.len(), page.common_prefixes), (4, vec!["b/".to_owned()]));
    let behind = ListQuery { after: Some("b".to_owned()), ..query(None, 9) };
    assert_eq!(meta.list_uploads(bucket, &behind, None).await?.entries.len(), 3);
    let prefix = ListQuery { prefix: "b/".to_owned(), ..query(None, 1) };
    let page = meta.list_uploads(bucket, &prefix, None).await?;
    assert_eq!((page.entries[0].key.as_str(), page.truncated), ("b/x", true));
    Ok(())
}
