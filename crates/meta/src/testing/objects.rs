//! Objects and their versions.

use claystone_chunk::StripeId;

use super::{
    add_disks, at, bucket, current, delete, empty_object, ids, named, new_object, put_versioned, refused, stripe,
};
use crate::{
    Band, ContentId, DeleteObject, Held, Meta, MetaError, NewContent, NewObject, NewStripe, ObjectRecord, Precondition,
    StripeNames, StripeRecord, VersionName, VersionRef, Versioning,
};

pub(super) async fn puts_are_found_with_their_stripes_in_order(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    add_disks(meta, 6).await?;
    // Ids in falling order: the order is that of the put.
    let mut partial = stripe(8, "clay:4+2:5", 100);
    partial.places[5] = None;
    partial.places[1].as_mut().expect("every chunk has a place").damaged = true;
    partial.revision = 3;
    partial.verified = Some(at(77));
    let stripes = vec![stripe(9, "rs:4+2", 65_536), partial, stripe(7, "replica:3", 1)];
    let key = "a key/with ünïcode\u{1}";
    let outcome = meta.put_object(new_object(id, key, stripes.clone())).await?;
    assert_eq!(outcome.version, VersionName::null());
    assert_eq!(outcome.dead, []);

    let found = current(meta, key).await?;
    assert_eq!(found.bucket.id, id);
    assert_eq!(found.stripes(), stripes);
    let object = found.object.expect("just written");
    assert_eq!((object.bucket, object.key.as_str()), (id, key));
    assert_eq!((object.bytes, object.etag.as_str()), (65_637, "etag-65637"));
    assert_eq!((object.current, object.delete_marker), (true, false));
    assert_eq!((object.created, object.attributes.as_slice()), (at(1_000), &b"attributes"[..]));
    assert!(object.content.is_some());
    let by_name = meta.object("photos", key, &named("null")).await?;
    assert_eq!((by_name.stripes(), by_name.object), (stripes, Some(object)));

    meta.put_object(empty_object(id, "empty")).await?;
    let found = current(meta, "empty").await?;
    assert_eq!(found.object.expect("just written").content, None);
    assert_eq!(found.spans, []);
    assert_eq!(current(meta, "a key").await?.object, None);
    refused!(
        meta.object("other", key, &VersionRef::Current).await,
        MetaError::NoSuchBucket { name } if name == "other"
    );
    Ok(())
}

pub(super) async fn what_was_written_in_bands_is_held_band_by_band(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    add_disks(meta, 6).await?;
    let wide = StripeRecord { bands: vec![Band { chunks: 2, data_bytes: 100 }; 2], ..stripe(9, "rs:4+2", 200) };
    let tail = stripe(8, "rs:4+2", 50);
    let content = || NewContent::Stripes(vec![NewStripe { stripe: wide.clone(), bytes: 170 }, tail.clone().into()]);
    meta.put_object(NewObject { content: content(), bytes: 220, ..empty_object(id, "a") }).await?;
    let found = current(meta, "a").await?;
    let held: Vec<(u128, u16, Held)> =
        found.spans.iter().map(|span| (span.stripe.id.0, span.band, span.held)).collect();
    assert_eq!(held, [(9, 0, Held::All), (9, 1, Held::First(70)), (8, 0, Held::All)]);
    assert_eq!(found.spans[0].stripe, wide);
    let names = StripeNames { bands: [(0, 1), (1, 1)].into(), ..StripeNames::default() };
    assert_eq!(meta.names_of(&[StripeId(9)]).await?, [names]);

    // A copy of it, a part of an upload, and then neither.
    let shared = found.object.and_then(|object| object.content).expect("it has bytes");
    meta.put_object(NewObject { content: NewContent::Shared(shared), bytes: 220, ..empty_object(id, "b") }).await?;
    assert_eq!(ids(&meta.delete_object(delete(id, "a")).await?.dead), []);
    assert_eq!(current(meta, "b").await?.spans.len(), 3);
    let mut dead = ids(&meta.delete_object(delete(id, "b")).await?.dead);
    dead.sort_unstable();
    assert_eq!((dead, meta.tally().await?.stripes), (vec![8, 9], 0));
    Ok(())
}

pub(super) async fn an_overwrite_frees_the_old_stripes(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    add_disks(meta, 3).await?;
    let old = vec![stripe(1, "replica:3", 4), stripe(2, "replica:3", 5)];
    meta.put_object(new_object(id, "key", old.clone())).await?;
    let outcome = meta.put_object(new_object(id, "key", vec![stripe(3, "replica:3", 6)])).await?;
    assert_eq!(outcome.dead, old);
    assert_eq!(ids(&current(meta, "key").await?.stripes()), [3]);
    let outcome = meta.put_object(empty_object(id, "key")).await?;
    assert_eq!(ids(&outcome.dead), [3]);
    let gone = meta.delete_object(delete(id, "key")).await?;
    assert_eq!(gone.removed, Some((VersionName::null(), false)));
    assert_eq!((gone.marker, gone.dead), (None, Vec::new()));
    assert_eq!(current(meta, "key").await?.object, None);
    Ok(())
}

pub(super) async fn copies_share_stripes_until_the_last_is_gone(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    add_disks(meta, 3).await?;
    meta.put_object(new_object(id, "one", vec![stripe(1, "replica:3", 4)])).await?;
    let content = current(meta, "one").await?.object.and_then(|object| object.content);
    let content = content.expect("an object with bytes has content");
    let copy = |key: &str| NewObject { content: NewContent::Shared(content), bytes: 4, ..empty_object(id, key) };
    meta.put_object(copy("two")).await?;
    // A copy onto itself keeps the bytes.
    assert_eq!(meta.put_object(copy("one")).await?.dead, []);
    for key in ["one", "two"] {
        let found = current(meta, key).await?;
        assert_eq!(ids(&found.stripes()), [1]);
        assert_eq!(found.object.and_then(|object| object.content), Some(content));
    }
    assert_eq!(meta.tally().await?.data_bytes, 4);
    assert_eq!(meta.delete_object(delete(id, "one")).await?.dead, []);
    assert_eq!(ids(&current(meta, "two").await?.stripes()), [1]);
    assert_eq!(ids(&meta.delete_object(delete(id, "two")).await?.dead), [1]);
    assert_eq!(meta.tally().await?.stripes, 0);
    Ok(())
}

pub(super) async fn a_copy_of_what_went_away_is_refused(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    add_disks(meta, 3).await?;
    meta.put_object(new_object(id, "one", vec![stripe(1, "replica:3", 4)])).await?;
    let content = current(meta, "one").await?.object.and_then(|object| object.content);
    meta.delete_object(delete(id, "one")).await?;
    // The next content must not be taken for the old one.
    meta.put_object(new_object(id, "other", vec![stripe(2, "replica:3", 4)])).await?;
    for gone in [content.expect("an object with bytes has content"), ContentId(999)] {
        let copy = NewObject { content: NewContent::Shared(gone), bytes: 4, ..empty_object(id, "two") };
        refused!(meta.put_object(copy).await, MetaError::NoSuchObject { .. });
    }
    assert_eq!(current(meta, "two").await?.object, None);
    Ok(())
}

pub(super) async fn versions_pile_up_and_the_newest_is_current(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    // Names in no order: age decides.
    for version in ["m", "z", "a"] {
        let outcome = put_versioned(meta, id, "key", version).await?;
        assert_eq!(outcome.version, VersionName(version.to_owned()));
    }
    let object = current(meta, "key").await?.object.expect("three versions");
    assert_eq!((object.version.0.as_str(), object.current), ("a", true));
    let old = meta.object("photos", "key", &named("m")).await?.object.expect("still there");
    assert_eq!((old.etag.as_str(), old.current), ("etag of m", false));
    assert_eq!(meta.object("photos", "key", &named("x")).await?.object, None);
    assert_eq!(meta.object("photos", "key", &named("null")).await?.object, None);

    // The current version goes for good; the one before it is current again, and a new one is newer than both.
    let newest = DeleteObject { version: named("a"), ..delete(id, "key") };
    let deleted = meta.delete_object(newest).await?;
    assert_eq!(deleted.removed, Some((VersionName("a".to_owned()), false)));
    let object = current(meta, "key").await?.object.expect("two versions");
    assert_eq!((object.version.0.as_str(), object.current), ("z", true));
    put_versioned(meta, id, "key", "b").await?;
    let object = current(meta, "key").await?.object.expect("three versions");
    assert_eq!(object.version.0, "b");
    Ok(())
}

pub(super) async fn delete_markers_hide_and_can_be_removed(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    put_versioned(meta, id, "key", "v1").await?;
    let marker = VersionName("d1".to_owned());
    let hide = DeleteObject { marker: Some(marker.clone()), ..delete(id, "key") };
    let deleted = meta.delete_object(hide).await?;
    assert_eq!((deleted.removed, deleted.marker), (None, Some(marker.clone())));
    let hidden = current(meta, "key").await?.object.expect("the marker");
    assert_eq!((hidden.delete_marker, hidden.version.clone()), (true, marker.clone()));
    assert_eq!((hidden.created, hidden.bytes, hidden.content), (at(2_000), 0, None));
    refused!(meta.delete_bucket("photos").await, MetaError::BucketNotEmpty { .. });

    let reveal = DeleteObject { version: named("d1"), ..delete(id, "key") };
    assert_eq!(meta.delete_object(reveal).await?.removed, Some((marker.clone(), true)));
    let object = current(meta, "key").await?.object.expect("the version");
    assert_eq!((object.version.0.as_str(), object.delete_marker), ("v1", false));

    // A key that never was can be marked as deleted.
    let hide = DeleteObject { marker: Some(marker.clone()), ..delete(id, "never") };
    assert_eq!(meta.delete_object(hide).await?.marker, Some(marker));
    assert!(current(meta, "never").await?.object.is_some_and(|object| object.delete_marker));
    Ok(())
}

pub(super) async fn null_version_lives_beside_named_ones(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    add_disks(meta, 3).await?;
    meta.put_object(new_object(id, "key", vec![stripe(1, "replica:3", 4)])).await?;
    put_versioned(meta, id, "key", "v1").await?;
    let null = meta.object("photos", "key", &named("null")).await?;
    assert!(null.object.is_some_and(|object| !object.current));
    // Written anew without versioning, null is the newest; v1 stays.
    let outcome = meta.put_object(new_object(id, "key", vec![stripe(2, "replica:3", 4)])).await?;
    assert_eq!(ids(&outcome.dead), [1]);
    let found = current(meta, "key").await?;
    assert!(found.object.is_some_and(|object| object.version == VersionName::null()));
    assert!(meta.object("photos", "key", &named("v1")).await?.object.is_some());
    // A plain delete without versioning takes null, although another may be current.
    put_versioned(meta, id, "key", "v2").await?;
    let deleted = meta.delete_object(delete(id, "key")).await?;
    assert_eq!(deleted.removed, Some((VersionName::null(), false)));
    assert_eq!(ids(&deleted.dead), [2]);
    assert!(current(meta, "key").await?.object.is_some_and(|object| object.version.0 == "v2"));
    Ok(())
}

pub(super) async fn suspended_delete_leaves_a_null_marker(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    add_disks(meta, 3).await?;
    meta.put_object(new_object(id, "key", vec![stripe(1, "replica:3", 4)])).await?;
    put_versioned(meta, id, "key", "v1").await?;
    let suspended = || DeleteObject { marker: Some(VersionName::null()), ..delete(id, "key") };
    let deleted = meta.delete_object(suspended()).await?;
    assert_eq!(deleted.removed, Some((VersionName::null(), false)));
    assert_eq!((deleted.marker, ids(&deleted.dead)), (Some(VersionName::null()), vec![1]));
    assert!(current(meta, "key").await?.object.is_some_and(|object| object.delete_marker));
    assert!(meta.object("photos", "key", &named("v1")).await?.object.is_some());
    // Again: the marker replaces the marker.
    let deleted = meta.delete_object(suspended()).await?;
    assert_eq!(deleted.removed, Some((VersionName::null(), true)));
    // A write without versioning takes the marker's place.
    meta.put_object(empty_object(id, "key")).await?;
    assert!(current(meta, "key").await?.object.is_some_and(|object| !object.delete_marker));
    Ok(())
}

pub(super) async fn deleting_nothing_is_no_error(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    put_versioned(meta, id, "key", "v1").await?;
    for version in [VersionRef::Current, named("null"), named("v2")] {
        let deleted = meta.delete_object(DeleteObject { version, ..delete(id, "key") }).await?;
        assert_eq!(deleted, crate::Deleted::default());
    }
    assert_eq!(meta.delete_object(delete(id, "other")).await?, crate::Deleted::default());
    assert!(current(meta, "key").await?.object.is_some());
    Ok(())
}

pub(super) async fn preconditions_hold_or_nothing_happens(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    add_disks(meta, 3).await?;
    #[derive(Debug, PartialEq)]
    enum Answer {
        Done,
        Missing,
        Failed,
    }
    let answer = |result: Result<(), MetaError>| match result {
        Ok(()) => Ok(Answer::Done),
        Err(MetaError::NoSuchObject { key }) if key == "key" => Ok(Answer::Missing),
        Err(MetaError::PreconditionFailed { key }) if key == "key" => Ok(Answer::Failed),
        Err(other) => Err(other),
    };
    let etag = |text: &str| text.to_owned();
    // The condition; what a write answers where there is no object, and where there is one with the tag `etag-4`.
    let table = [
        (Precondition::None, Answer::Done, Answer::Done),
        (Precondition::Absent, Answer::Done, Answer::Failed),
        (Precondition::Exists, Answer::Missing, Answer::Done),
        (Precondition::Etag(etag("etag-4")), Answer::Missing, Answer::Done),
        (Precondition::Etag(etag("other")), Answer::Missing, Answer::Failed),
        (Precondition::NotEtag(etag("etag-4")), Answer::Done, Answer::Failed),
        (Precondition::NotEtag(etag("other")), Answer::Done, Answer::Done),
    ];
    let mut next = 0;
    for (precondition, absent, present) in table {
        for marked in [false, true] {
            for (there, expected) in [(false, &absent), (true, &present)] {
                // A delete marker counts as no object.
                meta.delete_object(DeleteObject { marker: marked.then(VersionName::null), ..delete(id, "key") })
                    .await?;
                next += 2;
                if there {
                    let object = new_object(id, "key", vec![stripe(next, "replica:3", 4)]);
                    meta.put_object(object).await?;
                }
                let put = NewObject {
                    precondition: precondition.clone(),
                    ..new_object(id, "key", vec![stripe(next + 1, "replica:3", 5)])
                };
                let got = answer(meta.put_object(put).await.map(|_| ()))?;
                assert_eq!(&got, expected, "put with {precondition:?}, there: {there}");
                let stripes = ids(&current(meta, "key").await?.stripes());
                match (got, there) {
                    (Answer::Done, _) => assert_eq!(stripes, [next + 1]),
                    (_, true) => assert_eq!(stripes, [next]),
                    (_, false) => assert_eq!(stripes, []),
                }

                meta.delete_object(delete(id, "key")).await?;
                if there {
                    next += 2;
                    let object = new_object(id, "key", vec![stripe(next, "replica:3", 4)]);
                    meta.put_object(object).await?;
                }
                for version in [VersionRef::Current, named("null")] {
                    let delete =
                        DeleteObject { precondition: precondition.clone(), version, marker: None, ..delete(id, "key") };
                    let got = answer(meta.delete_object(delete).await.map(|_| ()))?;
                    assert_eq!(&got, expected, "delete with {precondition:?}, there: {there}");
                    if there && got == Answer::Done {
                        next += 2;
                        let object = new_object(id, "key", vec![stripe(next, "replica:3", 4)]);
                        meta.put_object(object).await?;
                    }
                }
            }
        }
    }
    // Of the current version, whatever others there are.
    put_versioned(meta, id, "versions", "v1").await?;
    put_versioned(meta, id, "versions", "v2").await?;
    let put = |wanted: &str, version: &str| NewObject {
        versioning: Versioning::On(VersionName(version.to_owned())),
        precondition: Precondition::Etag(wanted.to_owned()),
        ..empty_object(id, "versions")
    };
    refused!(meta.put_object(put("etag of v1", "v3")).await, MetaError::PreconditionFailed { .. });
    meta.put_object(put("etag of v2", "v3")).await?;
    Ok(())
}

pub(super) async fn attributes_change_in_one_version_only(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    add_disks(meta, 3).await?;
    meta.put_object(empty_object(id, "key")).await?;
    put_versioned(meta, id, "key", "v1").await?;
    put_versioned(meta, id, "key", "v2").await?;
    let seen = async |version: &str| {
        let found = meta.object("photos", "key", &named(version)).await?;
        Ok::<_, MetaError>(found.object.expect("three versions"))
    };
    let (v1, null) = (seen("v1").await?, seen("null").await?);
    meta.set_attributes(&v1, b"new".to_vec()).await?;
    meta.set_attributes(&null, b"nil".to_vec()).await?;
    for (version, expected) in [("v1", &b"new"[..]), ("v2", b"attributes"), ("null", b"nil")] {
        assert_eq!(seen(version).await?.attributes, expected, "{version}");
    }
    // Somebody else was faster: with other attributes, with another object of the same name, with a delete.
    refused!(meta.set_attributes(&v1, Vec::new()).await, MetaError::ObjectChanged { key } if key == "key");
    let null = seen("null").await?;
    for content in [NewContent::Empty, NewContent::Stripes(vec![stripe(1, "replica:3", 4).into()])] {
        let bytes = if matches!(content, NewContent::Empty) { 0 } else { 4 };
        let object =
            NewObject { content, bytes, created: at(77), attributes: b"nil".to_vec(), ..empty_object(id, "key") };
        meta.put_object(object).await?;
        refused!(meta.set_attributes(&null, Vec::new()).await, MetaError::ObjectChanged { .. });
        assert_eq!(seen("null").await?.attributes, b"nil");
    }
    meta.delete_object(DeleteObject { version: named("v1"), ..delete(id, "key") }).await?;
    let other = ObjectRecord { key: "other".to_owned(), ..seen("v2").await? };
    for gone in [v1, other] {
        refused!(meta.set_attributes(&gone, Vec::new()).await, MetaError::NoSuchObject { .. });
    }
    Ok(())
}
