//! What buckets hold, and how much it is read.

use std::collections::BTreeMap;

use claystone_chunk::StripeId;

use super::uploads::{completed, part, upload};
use super::{add_disks, at, bucket, delete, new_object, put_versioned, stripe};
use crate::{
    Band, Conversion, HeatRecord, Meta, MetaError, NewContent, NewObject, StripeNames, StripeRecord, UploadId,
    VersionName, VersionRef, Versioning,
};

fn heat(stripe: u128, count: f64, ms: u64) -> HeatRecord {
    HeatRecord { stripe: StripeId(stripe), count, as_of: at(ms) }
}

pub(super) async fn heat_is_kept_of_live_stripes(meta: &dyn Meta) -> Result<(), MetaError> {
    let bucket = bucket(meta).await?;
    add_disks(meta, 6).await?;
    for id in 1..=4 {
        meta.put_object(new_object(bucket, &id.to_string(), vec![stripe(id, "rs:4+2", 100)])).await?;
    }
    meta.delete_object(delete(bucket, "4")).await?;
    assert_eq!(meta.heats(None, 9).await?, []);
    let dead = meta.put_heats(vec![heat(3, 2.5, 7), heat(1, 0.125, 8), heat(4, 1.0, 8), heat(99, 1.0, 8)]).await?;
    assert_eq!(dead, [4, 99].map(StripeId), "dead, and unknown");
    assert_eq!(meta.heats(None, 9).await?, [heat(1, 0.125, 8), heat(3, 2.5, 7)]);
    assert_eq!(meta.heats(Some(StripeId(1)), 1).await?, [heat(3, 2.5, 7)]);
    assert_eq!(meta.heats(None, 1).await?, [heat(1, 0.125, 8)]);
    // The last word counts; none is forgotten.
    assert_eq!(meta.put_heats(vec![heat(3, 3.0, 9), heat(1, 0.0, 9), heat(2, 0.0, 9)]).await?, []);
    assert_eq!(meta.heats(None, 9).await?, [heat(3, 3.0, 9)]);
    // With a stripe goes its heat.
    meta.delete_object(delete(bucket, "3")).await?;
    meta.forget(&[StripeId(3)]).await?;
    assert_eq!(meta.heats(None, 9).await?, []);
    Ok(())
}

pub(super) async fn what_a_bucket_holds_comes_in_order_and_pages_add_up(meta: &dyn Meta) -> Result<(), MetaError> {
    let first = bucket(meta).await?;
    let second = meta.create_bucket("second", "ann", None, at(1)).await?.id;
    add_disks(meta, 8).await?;
    meta.put_object(new_object(first, "b", vec![stripe(5, "rs:2+1", 100), stripe(4, "rs:2+1", 9)])).await?;
    // Two versions of `a`, the newer one first, and a third without bytes before both.
    for (version, id) in [("v1", 1), ("v2", 2)] {
        let versioning = Versioning::On(VersionName(version.to_owned()));
        let object = NewObject { versioning, ..new_object(first, "a", vec![stripe(id, "rs:2+1", 100)]) };
        meta.put_object(object).await?;
    }
    put_versioned(meta, first, "a", "v3").await?;
    // A copy holds what the other does, and another bucket is another.
    let content = meta.object("photos", "b", &VersionRef::Current).await?.object.and_then(|it| it.content);
    let shared = NewContent::Shared(content.expect("bytes"));
    meta.put_object(NewObject { content: shared, bytes: 109, ..new_object(first, "copy", Vec::new()) }).await?;
    meta.put_object(new_object(second, "a", vec![stripe(7, "rs:2+1", 9)])).await?;

    let expected = [2, 1, 5, 4, 5, 4];
    for limit in 1..=7 {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let (page, end) = meta.bucket_spans(first, after.as_ref(), limit).await?;
            assert!(page.len() <= limit);
            found.extend(page.iter().map(|span| (span.stripe.id.0, span.band)));
            after = end;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, expected.map(|id| (id, 0)), "pages of {limit}");
    }
    // Parts of uploads that are not complete are apart.
    let spans_of_parts = async |limit| -> Result<Vec<u128>, MetaError> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let (page, end) = meta.uploaded_spans(first, after.as_ref(), limit).await?;
            assert!(page.len() <= limit);
            found.extend(page.iter().map(|span| span.stripe.id.0));
            after = end;
            if after.is_none() {
                return Ok(found);
            }
        }
    };
    for (name, of) in [("u2", first), ("u1", first), ("u3", second)] {
        meta.create_upload(upload(of, "key", name)).await?;
    }
    for (name, number, id) in [("u2", 1, 11), ("u1", 10, 12), ("u1", 9, 13), ("u3", 1, 14)] {
        let content = NewContent::Stripes(vec![stripe(id, "rs:2+1", 60).into(), stripe(id + 20, "rs:2+1", 40).into()]);
        meta.put_part(&UploadId(name.to_owned()), part(number, 100), content).await?;
    }
    for limit in 1..=7 {
        assert_eq!(spans_of_parts(limit).await?, [13, 33, 12, 32, 11, 31], "pages of {limit}");
    }
    meta.complete_upload(completed(first, "u2", &[(1, 100)])).await?;
    meta.abort_upload(first, "key", &UploadId("u1".to_owned())).await?;
    assert_eq!(spans_of_parts(9).await?, []);
    meta.delete_object(delete(first, "key")).await?;
    // A merged stripe comes once for each of its bands that is held.
    let band = |data_bytes| Band { chunks: 2, data_bytes };
    let merged = StripeRecord { bands: vec![band(100), band(100)], ..stripe(20, "rs:4+2", 200) };
    let sources = vec![(StripeId(1), 0), (StripeId(2), 0)];
    meta.convert(Conversion { sources, targets: vec![merged] }).await?;
    let (page, end) = meta.bucket_spans(first, None, 9).await?;
    let found: Vec<_> = page.iter().map(|span| (span.stripe.id.0, span.band)).collect();
    assert_eq!((&found[..3], end), (&[(20, 1), (20, 0), (5, 0)][..], None));
    // Names are counted in all buckets: 5 is held by an object and its copy.
    let ids = [20, 5, 7, 99].map(StripeId);
    let names = |of: &[(u16, u64)]| of.iter().copied().collect::<BTreeMap<u16, u64>>();
    let expected = [names(&[(0, 1), (1, 1)]), names(&[(0, 2)]), names(&[(0, 1)]), names(&[])];
    let expected = expected.map(|bands| StripeNames { bands, ..StripeNames::default() });
    assert_eq!(meta.names_of(&ids).await?, expected);
    Ok(())
}
