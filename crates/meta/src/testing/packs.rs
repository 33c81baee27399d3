//! Packs.

use claystone_chunk::{ByteRange, StripeId};
use claystone_code::{ChunkIndex, CodeSpec};

use super::uploads::{completed, part, upload};
use super::{add_disks, bucket, current, delete, empty_object, ids, new_object, place, refused, stripe};
use crate::{
    Band, BucketId, Conversion, Held, Meta, MetaError, NewContent, NewObject, NewPart, NewStripe, Origin, Pack,
    PackedPart, Repack, StripeNames, StripeRecord, UploadId,
};

fn range(offset: u64, bytes: u64) -> ByteRange {
    ByteRange { offset, bytes }
}

fn held(offset: u64, bytes: u64) -> Held {
    Held::Part(range(offset, bytes))
}

/// The code that all packs here are for.
fn wanted() -> CodeSpec {
    "rs:4+2".parse().expect("valid")
}

/// An object of a part of a pack.
fn packed(bucket: BucketId, key: &str, pack: &StripeRecord, part: ByteRange) -> NewObject {
    let content = NewContent::Part(NewPart { pack: pack.clone(), wanted: wanted(), part });
    NewObject { content, bytes: part.bytes, ..empty_object(bucket, key) }
}

async fn place_of(meta: &dyn Meta, key: &str) -> Result<(u128, u16, Held), MetaError> {
    let found = current(meta, key).await?;
    let span = &found.spans[0];
    Ok((span.stripe.id.0, span.band, span.held))
}

async fn live_bytes(meta: &dyn Meta) -> Result<Vec<(u128, u64)>, MetaError> {
    let packs = meta.thin_packs(u64::MAX >> 1, 99).await?;
    Ok(packs.iter().map(|pack| (pack.stripe.id.0, pack.live_bytes)).collect())
}

pub(super) async fn parts_share_a_stripe_until_the_last_is_gone(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    add_disks(meta, 3).await?;
    let pack = stripe(1, "replica:3", 100);
    meta.put_object(packed(id, "a", &pack, range(0, 30))).await?;
    meta.put_object(packed(id, "b", &pack, range(30, 50))).await?;
    assert_eq!(place_of(meta, "a").await?, (1, 0, held(0, 30)));
    assert_eq!(place_of(meta, "b").await?, (1, 0, held(30, 50)));
    assert_eq!(current(meta, "b").await?.spans[0].data_bytes(), 50);
    let found = meta.thin_packs(81, 9).await?;
    assert_eq!(found, [Pack { stripe: pack.clone(), band: 0, live_bytes: 80, parts: 2, wanted: wanted() }]);
    assert_eq!((meta.thin_packs(80, 9).await?, meta.tally().await?.stripes), (Vec::new(), 1));

    // An object of several such parts, of which one is shared with the object it was copied from.
    let content = current(meta, "a").await?.object.and_then(|object| object.content).expect("it has bytes");
    meta.create_upload(upload(id, "key", "u")).await?;
    let upload = UploadId("u".to_owned());
    meta.put_part(&upload, part(1, 30), NewContent::Shared(content)).await?;
    let own = NewPart { pack: pack.clone(), wanted: wanted(), part: range(80, 20) };
    meta.put_part(&upload, part(2, 20), NewContent::Part(own)).await?;
    meta.complete_upload(completed(id, "u", &[(1, 30), (2, 20)])).await?;
    let spans = current(meta, "key").await?.spans;
    assert_eq!(spans.iter().map(|span| span.held).collect::<Vec<_>>(), [held(0, 30), held(80, 20)]);
    assert_eq!(live_bytes(meta).await?, [(1, 130)], "bytes that two contents name count twice");
    let names = meta.names_of(&[StripeId(1)]).await?.remove(0);
    assert_eq!((names.bands, names.packed_bytes), ([(0, 4)].into(), [(0, 100)].into()), "and here once");

    assert_eq!(meta.delete_object(delete(id, "a")).await?.dead, []);
    assert_eq!(meta.delete_object(delete(id, "b")).await?.dead, []);
    assert_eq!(live_bytes(meta).await?, [(1, 50)]);
    assert_eq!(ids(&meta.delete_object(delete(id, "key")).await?.dead), [1]);
    assert_eq!((live_bytes(meta).await?, meta.tally().await?.stripes), (Vec::new(), 0));
    Ok(())
}

pub(super) async fn a_part_of_a_pack_that_came_and_went_is_refused(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    add_disks(meta, 3).await?;
    let pack = stripe(1, "replica:3", 100);
    meta.put_object(packed(id, "a", &pack, range(0, 30))).await?;
    meta.delete_object(delete(id, "a")).await?;
    refused!(meta.put_object(packed(id, "b", &pack, range(30, 50))).await, MetaError::StripeChanged { .. });
    assert_eq!((current(meta, "b").await?.object, ids(&meta.dead_stripes(9).await?)), (None, vec![1]));
    Ok(())
}

pub(super) async fn repacks_move_what_is_still_named(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    add_disks(meta, 6).await?;
    let packs = [stripe(1, "replica:3", 100), stripe(2, "replica:3", 100)];
    for (key, pack, part) in
        [("a", 0, range(0, 30)), ("b", 0, range(30, 70)), ("c", 1, range(0, 40)), ("d", 1, range(40, 60))]
    {
        meta.put_object(packed(id, key, &packs[pack], part)).await?;
    }
    let mut moves: Vec<(PackedPart, u64)> = Vec::new();
    let mut end = 0;
    for pack in [1, 2] {
        let parts = meta.packed_parts(StripeId(pack), 0).await?;
        assert_eq!(parts.iter().map(|part| part.stripe.0).collect::<Vec<_>>(), [pack, pack]);
        for part in parts {
            moves.push((part, end));
            end += part.part.bytes;
        }
    }
    let repack = Repack { pack: stripe(3, "rs:4+2", 200), wanted: wanted(), moves };
    // One goes, one is written anew, and one stays behind because it came later.
    meta.delete_object(delete(id, "a")).await?;
    meta.put_object(packed(id, "c", &stripe(4, "replica:3", 40), range(0, 40))).await?;
    let content = current(meta, "d").await?.object.and_then(|object| object.content).expect("it has bytes");
    let late = NewObject { content: NewContent::Shared(content), bytes: 60, ..empty_object(id, "e") };
    meta.put_object(late).await?;
    meta.put_object(packed(id, "f", &packs[0], range(0, 30))).await?;

    let (moved, dead) = meta.repack(repack.clone()).await?;
    assert_eq!((moved, ids(&dead)), (2, vec![2]));
    assert_eq!(place_of(meta, "b").await?, (3, 0, held(30, 70)));
    assert_eq!(place_of(meta, "c").await?, (4, 0, held(0, 40)));
    assert_eq!(place_of(meta, "d").await?, (3, 0, held(140, 60)));
    assert_eq!(place_of(meta, "e").await?, (3, 0, held(140, 60)));
    assert_eq!(place_of(meta, "f").await?, (1, 0, held(0, 30)));
    assert_eq!(live_bytes(meta).await?, [(1, 30), (4, 40), (3, 130)]);
    // Nothing of it is left to move.
    let again = Repack { pack: stripe(5, "rs:4+2", 200), ..repack };
    assert_eq!(meta.repack(again).await?, (0, Vec::new()));
    assert_eq!(meta.stripe(StripeId(5)).await?, None);
    for key in ["b", "c", "d", "e", "f"] {
        meta.delete_object(delete(id, key)).await?;
    }
    assert_eq!((meta.tally().await?.stripes, live_bytes(meta).await?), (0, Vec::new()));
    Ok(())
}

pub(super) async fn conversions_keep_parts(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    add_disks(meta, 9).await?;
    let on = |stripe: StripeRecord, first: u8| {
        let places = (0..3).map(|at| Some(place(first + at, 0))).collect();
        StripeRecord { places, ..stripe }
    };
    let sources = [on(stripe(1, "rs:2+1", 100), 0), on(stripe(2, "rs:2+1", 70), 3)];
    meta.put_object(packed(id, "a", &sources[0], range(0, 30))).await?;
    meta.put_object(packed(id, "b", &sources[0], range(30, 50))).await?;
    meta.put_object(new_object(id, "whole", vec![sources[1].clone()])).await?;
    let mut target = stripe(9, "rs:4+1", 170);
    target.bands = sources.iter().map(|source| Band { chunks: 2, data_bytes: source.data_bytes }).collect();
    for at in 0..4 {
        let (source, index) = (&sources[at / 2], ChunkIndex(at as u16 % 2));
        target.places[at] = source.places[index.at()];
        target.origins.insert(ChunkIndex(at as u16), Origin { stripe: source.id, index });
    }
    target.places[4] = Some(place(7, 0));
    let sources = vec![(StripeId(1), 0), (StripeId(2), 0)];
    meta.convert(Conversion { sources, targets: vec![target.clone()] }).await?;
    assert_eq!(place_of(meta, "b").await?, (9, 0, held(30, 50)));
    assert_eq!(place_of(meta, "whole").await?, (9, 1, Held::All));
    assert_eq!(live_bytes(meta).await?, [], "more than half of its band is named");

    // Split again, the half with the parts is a pack as before.
    let mut halves = [stripe(10, "rs:2+1", 100), stripe(11, "rs:2+1", 70)];
    for at in 0..4 {
        let (half, index) = (&mut halves[at / 2], ChunkIndex(at as u16 % 2));
        half.places[index.at()] = target.places[at];
        half.origins.insert(index, target.origins[&ChunkIndex(at as u16)]);
    }
    for half in &mut halves {
        half.places[2] = target.places[4];
    }
    meta.delete_object(delete(id, "a")).await?;
    assert_eq!(live_bytes(meta).await?, [(9, 50)], "whatever the other band holds");
    meta.convert(Conversion { sources: vec![(StripeId(9), 0)], targets: halves.to_vec() }).await?;
    assert_eq!(place_of(meta, "b").await?, (10, 0, held(30, 50)));
    assert_eq!(live_bytes(meta).await?, [(10, 50)]);
    meta.delete_object(delete(id, "b")).await?;
    meta.delete_object(delete(id, "whole")).await?;
    assert_eq!(live_bytes(meta).await?, []);
    Ok(())
}

/// A stripe that is longer than its object is no pack, whether it is merged, split, copied or joined.
pub(super) async fn zeros_behind_a_content_are_nobody_s(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    add_disks(meta, 9).await?;
    let on = |stripe: StripeRecord, first: u8| {
        let places = (0..3).map(|at| Some(place(first + at, 0))).collect();
        StripeRecord { places, ..stripe }
    };
    let sources = [on(stripe(1, "rs:2+1", 100), 0), on(stripe(2, "rs:2+1", 100), 3)];
    let padded = |stripe: &StripeRecord, bytes| NewContent::Stripes(vec![NewStripe { stripe: stripe.clone(), bytes }]);
    meta.put_object(NewObject { content: padded(&sources[0], 93), bytes: 93, ..empty_object(id, "a") }).await?;
    meta.put_object(packed(id, "b", &sources[1], range(30, 70))).await?;
    assert_eq!(place_of(meta, "a").await?, (1, 0, Held::First(93)));
    assert_eq!((current(meta, "a").await?.spans[0].data_bytes(), live_bytes(meta).await?), (93, vec![(2, 70)]));
    let (spans, _) = meta.bucket_spans(id, None, 9).await?;
    assert_eq!(spans.iter().map(|span| span.held).collect::<Vec<_>>(), [Held::First(93), held(30, 70)]);
    let names = meta.names_of(&[StripeId(1)]).await?.remove(0);
    assert_eq!((names.bands, names.packed_for), ([(0, 1)].into(), None));

    // A part of an upload that is copied from it, and one that is written so.
    let content = current(meta, "a").await?.object.and_then(|object| object.content).expect("it has bytes");
    meta.create_upload(upload(id, "key", "u")).await?;
    let to = UploadId("u".to_owned());
    meta.put_part(&to, part(1, 93), NewContent::Shared(content)).await?;
    meta.put_part(&to, part(2, 20), padded(&stripe(3, "replica:3", 21), 20)).await?;
    meta.complete_upload(completed(id, "u", &[(1, 93), (2, 20)])).await?;
    let spans = current(meta, "key").await?.spans;
    assert_eq!(spans.iter().map(|span| span.held).collect::<Vec<_>>(), [Held::First(93), Held::First(20)]);

    let mut target = stripe(9, "rs:4+1", 200);
    target.bands = vec![Band { chunks: 2, data_bytes: 100 }; 2];
    for at in 0..4 {
        let (source, index) = (&sources[at / 2], ChunkIndex(at as u16 % 2));
        target.places[at] = source.places[index.at()];
        target.origins.insert(ChunkIndex(at as u16), Origin { stripe: source.id, index });
    }
    target.places[4] = Some(place(7, 0));
    meta.convert(Conversion { sources: vec![(StripeId(1), 0), (StripeId(2), 0)], targets: vec![target.clone()] })
        .await?;
    assert_eq!(place_of(meta, "a").await?, (9, 0, Held::First(93)));
    assert_eq!(place_of(meta, "b").await?, (9, 1, held(30, 70)));
    let (bands, packed_bytes) = ([(0, 2), (1, 1)].into(), [(1, 70)].into());
    let names = StripeNames { bands, packed_bytes, packed_for: Some(wanted()), of_volume: false };
    assert_eq!(meta.names_of(&[StripeId(9)]).await?, [names]);
    assert_eq!(meta.packed_parts(StripeId(9), 0).await?, []);

    let mut halves = [stripe(10, "rs:2+1", 100), stripe(11, "rs:2+1", 100)];
    for at in 0..4 {
        let (half, index) = (&mut halves[at / 2], ChunkIndex(at as u16 % 2));
        half.places[index.at()] = target.places[at];
        half.origins.insert(index, target.origins[&ChunkIndex(at as u16)]);
    }
    for half in &mut halves {
        half.places[2] = target.places[4];
    }
    meta.convert(Conversion { sources: vec![(StripeId(9), 0)], targets: halves.to_vec() }).await?;
    assert_eq!(place_of(meta, "a").await?, (10, 0, Held::First(93)));
    assert_eq!(live_bytes(meta).await?, [(11, 70)]);
    for (key, dead) in [("b", vec![11]), ("a", vec![]), ("key", vec![3, 10])] {
        let mut found = ids(&meta.delete_object(delete(id, key)).await?.dead);
        found.sort_unstable();
        assert_eq!(found, dead, "{key}");
    }
    assert_eq!((meta.tally().await?.stripes, live_bytes(meta).await?), (0, Vec::new()));
    Ok(())
}

/// What is deleted of one of the packs in a stripe is given back, however much of the others is left.
pub(super) async fn packs_are_counted_by_band(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    add_disks(meta, 9).await?;
    let on = |stripe: StripeRecord, first: u8| {
        let places = (0..3).map(|at| Some(place(first + at, 0))).collect();
        StripeRecord { places, ..stripe }
    };
    let sources = [on(stripe(1, "rs:2+1", 100), 0), on(stripe(2, "rs:2+1", 100), 3)];
    for (key, source, part) in
        [("a", 0, range(0, 60)), ("b", 0, range(60, 40)), ("c", 1, range(0, 60)), ("d", 1, range(60, 40))]
    {
        meta.put_object(packed(id, key, &sources[source], part)).await?;
    }
    let mut target = stripe(9, "rs:4+1", 200);
    target.bands = vec![Band { chunks: 2, data_bytes: 100 }; 2];
    for at in 0..4 {
        let (source, index) = (&sources[at / 2], ChunkIndex(at as u16 % 2));
        target.places[at] = source.places[index.at()];
        target.origins.insert(ChunkIndex(at as u16), Origin { stripe: source.id, index });
    }
    target.places[4] = Some(place(7, 0));
    meta.convert(Conversion { sources: vec![(StripeId(1), 0), (StripeId(2), 0)], targets: vec![target.clone()] })
        .await?;
    assert_eq!(live_bytes(meta).await?, []);

    meta.delete_object(delete(id, "c")).await?;
    let thin = meta.thin_packs(u64::MAX >> 1, 9).await?;
    assert_eq!(thin, [Pack { stripe: target, band: 1, live_bytes: 40, parts: 1, wanted: wanted() }]);
    assert_eq!(thin[0].data_bytes(), 100);
    let parts = meta.packed_parts(StripeId(9), 1).await?;
    assert_eq!(parts.iter().map(|part| (part.band, part.part)).collect::<Vec<_>>(), [(1, range(60, 40))]);
    let repack = Repack { pack: stripe(10, "replica:3", 40), wanted: wanted(), moves: vec![(parts[0], 0)] };
    assert_eq!(meta.repack(repack).await?, (1, Vec::new()));
    assert_eq!(place_of(meta, "d").await?, (10, 0, held(0, 40)));
    assert_eq!(live_bytes(meta).await?, [(10, 40)], "of the merged one a band is left, and that is full");
    let (bands, packed_bytes) = ([(0, 2)].into(), [(0, 100)].into());
    let names = StripeNames { bands, packed_bytes, packed_for: Some(wanted()), of_volume: false };
    assert_eq!(meta.names_of(&[StripeId(9)]).await?, [names]);
    meta.delete_object(delete(id, "a")).await?;
    assert_eq!(ids(&meta.delete_object(delete(id, "b")).await?.dead), [9]);
    meta.delete_object(delete(id, "d")).await?;
    assert_eq!((live_bytes(meta).await?, meta.tally().await?.stripes), (Vec::new(), 0));
    Ok(())
}

pub(super) async fn packs_for_different_codes_are_not_merged(meta: &dyn Meta) -> Result<(), MetaError> {
    let id = bucket(meta).await?;
    add_disks(meta, 9).await?;
    let on = |stripe: StripeRecord, first: u8| {
        let places = (0..3).map(|at| Some(place(first + at, 0))).collect();
        StripeRecord { places, ..stripe }
    };
    let sources = [on(stripe(1, "rs:2+1", 100), 0), on(stripe(2, "rs:2+1", 100), 3)];
    meta.put_object(packed(id, "a", &sources[0], range(0, 30))).await?;
    let other: CodeSpec = "rs:8+1".parse().expect("valid");
    let content = NewContent::Part(NewPart { pack: sources[1].clone(), wanted: other, part: range(0, 40) });
    meta.put_object(NewObject { content, bytes: 40, ..empty_object(id, "b") }).await?;
    let mut target = stripe(9, "rs:4+1", 200);
    target.bands = vec![Band { chunks: 2, data_bytes: 100 }; 2];
    for at in 0..4 {
        let (source, index) = (&sources[at / 2], ChunkIndex(at as u16 % 2));
        target.places[at] = source.places[index.at()];
        target.origins.insert(ChunkIndex(at as u16), Origin { stripe: source.id, index });
    }
    target.places[4] = Some(place(7, 0));
    let merge = Conversion { sources: vec![(StripeId(1), 0), (StripeId(2), 0)], targets: vec![target] };
    refused!(meta.convert(merge).await, MetaError::PacksDiffer { .. });
    // Who asks before finds out without trying.
    let names = meta.names_of(&[StripeId(1), StripeId(2)]).await?;
    assert_eq!(names.iter().map(|names| names.packed_for).collect::<Vec<_>>(), [Some(wanted()), Some(other)]);
    // Both are what they were, each for its own code.
    assert_eq!((place_of(meta, "a").await?.0, place_of(meta, "b").await?.0), (1, 2));
    let packs = meta.thin_packs(100, 9).await?;
    let known: Vec<_> = packs.iter().map(|pack| (pack.stripe.id.0, pack.wanted)).collect();
    assert_eq!(known, [(1, wanted()), (2, other)]);
    Ok(())
}
