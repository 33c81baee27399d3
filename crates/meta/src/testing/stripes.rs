//! Stripes: walks, damage, repair and counts.

use std::collections::BTreeMap;

use claystone_chunk::{ChunkId, Generation, StripeId};
use claystone_code::ChunkIndex;

use super::{add_disks, at, bucket, current, delete, disk, ids, new_object, place, refused, stripe};
use crate::{
    Band, BucketId, ChunkPlace, Conversion, DiskState, DiskTally, Meta, MetaError, Origin, Recode, StripeRecord,
    StripeTally, Swap,
};

fn swap(id: u128, expected_revision: u64, places: &[(u16, Option<ChunkPlace>)]) -> Swap {
    let places = places.iter().map(|(index, place)| (ChunkIndex(*index), *place));
    Swap { stripe: StripeId(id), expected_revision, places: places.collect(), lease: None }
}

fn chunk(stripe: u128, index: u16, generation: u32) -> ChunkId {
    ChunkId { stripe: StripeId(stripe), index: ChunkIndex(index), generation: Generation(generation) }
}

/// Objects `1`, `2`, ... of one stripe `rs:4+2` each, on the disks 0 to 5 of 8.
async fn filled(meta: &dyn Meta, count: u128) -> Result<BucketId, MetaError> {
    let bucket = bucket(meta).await?;
    add_disks(meta, 8).await?;
    for id in 1..=count {
        let object = new_object(bucket, &id.to_string(), vec![stripe(id, "rs:4+2", 100)]);
        meta.put_object(object).await?;
    }
    Ok(bucket)
}

async fn live(meta: &dyn Meta, id: u128) -> Result<StripeRecord, MetaError> {
    Ok(meta.stripe(StripeId(id)).await?.expect("the stripe is live"))
}

pub(super) async fn walks_meet_live_stripes_in_order(meta: &dyn Meta) -> Result<(), MetaError> {
    let bucket = filled(meta, 5).await?;
    let mut doubled = stripe(6, "replica:3", 1);
    doubled.places = vec![Some(place(6, 0)), Some(place(6, 0)), Some(place(0, 0))];
    meta.put_object(new_object(bucket, "6", vec![doubled])).await?;
    meta.delete_object(delete(bucket, "2")).await?;
    assert_eq!(ids(&meta.stripes(None, 9).await?), [1, 3, 4, 5, 6]);
    assert_eq!(ids(&meta.stripes(Some(StripeId(1)), 2).await?), [3, 4]);
    assert_eq!(ids(&meta.stripes(Some(StripeId(6)), 2).await?), [0; 0]);
    assert_eq!(ids(&meta.stripes_on(disk(0), None, 9).await?), [1, 3, 4, 5, 6]);
    assert_eq!(ids(&meta.stripes_on(disk(5), Some(StripeId(3)), 1).await?), [4]);
    assert_eq!(ids(&meta.stripes_on(disk(6), None, 9).await?), [6], "once, though two chunks lie there");
    assert_eq!(ids(&meta.stripes_on(disk(7), None, 9).await?), [0; 0]);
    assert_eq!(meta.stripe(StripeId(2)).await?, None);
    assert_eq!(meta.stripe(StripeId(4)).await?, Some(stripe(4, "rs:4+2", 100)));
    // A dead stripe's chunks are named still.
    let asked = [StripeId(5), StripeId(99), StripeId(2)];
    let mut named = ids(&meta.named(&asked).await?);
    named.sort();
    assert_eq!(named, [2, 5]);
    Ok(())
}

pub(super) async fn swaps_need_the_planned_revision(meta: &dyn Meta) -> Result<(), MetaError> {
    let bucket = filled(meta, 2).await?;
    meta.mark_verified(StripeId(1), 0, at(9)).await?;
    assert_eq!(live(meta, 1).await?.verified, Some(at(9)));
    let moved = meta.swap(swap(1, 0, &[(0, Some(place(6, 1))), (5, None)])).await?;
    let mut expected = stripe(1, "rs:4+2", 100);
    expected.places[0] = Some(place(6, 1));
    expected.places[5] = None;
    expected.revision = 1;
    assert_eq!(moved, expected);
    assert_eq!(current(meta, "1").await?.stripes(), [expected]);
    assert_eq!(live(meta, 2).await?, stripe(2, "rs:4+2", 100), "its neighbour stays");

    refused!(meta.swap(swap(1, 0, &[(1, None)])).await, MetaError::StripeChanged { expected: 0, .. });
    refused!(meta.swap(swap(9, 0, &[])).await, MetaError::StripeChanged { .. });
    meta.swap(swap(1, 1, &[(5, Some(place(5, 2)))])).await?;
    assert_eq!(live(meta, 1).await?.revision, 2);
    // Verified at an old revision says nothing.
    meta.mark_verified(StripeId(1), 1, at(9)).await?;
    assert_eq!(live(meta, 1).await?.verified, None);

    meta.delete_object(delete(bucket, "2")).await?;
    refused!(meta.swap(swap(2, 0, &[(0, None)])).await, MetaError::StripeChanged { .. });
    Ok(())
}

fn recode(id: u128, expected_revision: u64, code: &str, parity: Vec<ChunkPlace>) -> Recode {
    let code = code.parse().expect("a valid code");
    let parity = parity.into_iter().map(Some).collect();
    let origins = BTreeMap::new();
    Recode { stripe: StripeId(id), expected_revision, code, sub_bytes: 65_536, parity, origins, lease: None }
}

pub(super) async fn recodes_keep_the_data_chunks(meta: &dyn Meta) -> Result<(), MetaError> {
    let bucket = filled(meta, 2).await?;
    meta.mark_verified(StripeId(1), 0, at(9)).await?;
    meta.mark_damaged(&[chunk(1, 2, 0), chunk(1, 5, 0)]).await?;
    let before = live(meta, 1).await?;
    // Eight copies, two on each of four disks.
    let copies: Vec<ChunkPlace> = (0..8).map(|at| place(4 + at % 4, 7)).collect();
    let mirrored = meta.recode(recode(1, before.revision, "mirror:4x3", copies.clone())).await?;
    assert_eq!(mirrored.places[..4], before.places[..4], "damage and all");
    assert_eq!(mirrored.places[4..], copies.into_iter().map(Some).collect::<Vec<_>>());
    assert_eq!((mirrored.code.to_string(), mirrored.sub_bytes), ("mirror:4x3".to_owned(), 65_536));
    assert!(mirrored.revision > before.revision && mirrored.verified.is_none());
    assert_eq!(current(meta, "1").await?.stripes(), std::slice::from_ref(&mirrored));
    assert_eq!(live(meta, 2).await?, stripe(2, "rs:4+2", 100), "its neighbour stays");
    // One of three copies is damaged: one more may be lost.
    let tally = meta.tally().await?;
    assert_eq!((tally.chunks_lost, tally.degraded_by_tolerance_left, tally.stripes), (1, vec![0, 1], 2));
    assert_eq!(meta.disk_tally(disk(6)).await?, DiskTally { chunks: 2, damaged: 0, logs: 0 });
    assert_eq!(ids(&meta.stripes_on(disk(7), None, 9).await?), [1]);

    // Planned on what was, on other data, or on nothing: nothing changes.
    let parity = || vec![place(4, 9), place(5, 9)];
    refused!(meta.recode(recode(1, before.revision, "rs:4+2", parity())).await, MetaError::StripeChanged { .. });
    refused!(meta.recode(recode(1, mirrored.revision, "rs:3+2", parity())).await, MetaError::StripeChanged { .. });
    refused!(meta.recode(recode(9, 0, "rs:4+2", parity())).await, MetaError::StripeChanged { .. });
    refused!(
        meta.recode(recode(1, mirrored.revision, "rs:4+2", vec![place(4, 9), place(99, 9)])).await,
        MetaError::NoSuchDisk { .. }
    );
    assert_eq!(live(meta, 1).await?, mirrored);

    let back = meta.recode(recode(1, mirrored.revision, "rs:4+2", parity())).await?;
    assert_eq!(back.places[..4], before.places[..4]);
    assert_eq!(back.places[4..], [Some(place(4, 9)), Some(place(5, 9))]);
    assert_eq!(meta.disk_tally(disk(6)).await?, DiskTally::default());

    // What both codes have stays under the name that it has, at another index, and one that is lost is lost there too.
    let copies = vec![place(6, 11), place(7, 11)];
    let two = meta.recode(recode(1, back.revision, "mixed:4+2x3:1", [parity(), copies.clone()].concat())).await?;
    meta.mark_damaged(&[chunk(1, 7, 11)]).await?;
    let damaged = ChunkPlace { damaged: true, ..copies[1] };
    let kept = [(ChunkIndex(7), 6), (ChunkIndex(9), 7)];
    let origin = |(to, of): (ChunkIndex, u16)| (to, Origin { stripe: StripeId(1), index: ChunkIndex(of) });
    let change = Recode {
        parity: [place(4, 12), place(5, 12), place(6, 12), copies[0], place(7, 12), damaged].map(Some).into(),
        origins: kept.map(origin).into(),
        ..recode(1, two.revision + 1, "mixed:4+2x3:0+1", Vec::new())
    };
    let four = meta.recode(change.clone()).await?;
    assert_eq!((&four.places[4..], &four.origins), (&change.parity[..], &change.origins));
    let names = [4, 6, 7, 9].map(|index| four.chunk_id(ChunkIndex(index)));
    assert_eq!(names, [chunk(1, 4, 12), chunk(1, 6, 12), chunk(1, 6, 11), chunk(1, 7, 11)].map(Some));
    let lost = Recode { parity: vec![None; 2], ..recode(1, four.revision, "rs:4+2", Vec::new()) };
    assert_eq!(meta.recode(lost).await?.places[4..], [None, None]);
    meta.delete_object(delete(bucket, "2")).await?;
    refused!(meta.recode(recode(2, 0, "rs:4+2", parity())).await, MetaError::StripeChanged { .. });
    Ok(())
}

/// A stripe `rs:2+1` of `bytes`, of chunks on the disks from `first`.
fn small(id: u128, bytes: u64, first: u8) -> StripeRecord {
    let places = (0..3).map(|at| Some(place(first + at, 0))).collect();
    StripeRecord { places, ..stripe(id, "rs:2+1", bytes) }
}

/// `rs:4+1` of the data of two such stripes, its parity new.
fn merged(id: u128, sources: &[StripeRecord; 2]) -> StripeRecord {
    let mut target = stripe(id, "rs:4+1", sources.iter().map(|source| source.data_bytes).sum());
    target.bands = sources.iter().map(|source| Band { chunks: 2, data_bytes: source.data_bytes }).collect();
    for at in 0..4 {
        let (source, index) = (&sources[at / 2], ChunkIndex(at as u16 % 2));
        let name = source.chunk_id(index).expect("whole");
        target.places[at] = source.places[index.at()];
        target.origins.insert(ChunkIndex(at as u16), Origin { stripe: name.stripe, index: name.index });
    }
    target.places[4] = Some(place(7, 0));
    target
}

pub(super) async fn conversions_replace_stripes_and_keep_names(meta: &dyn Meta) -> Result<(), MetaError> {
    let bucket = bucket(meta).await?;
    add_disks(meta, 9).await?;
    let sources = [small(1, 900, 0), small(2, 700, 3)];
    meta.put_object(new_object(bucket, "a", vec![sources[0].clone(), small(3, 50, 0)])).await?;
    meta.put_object(new_object(bucket, "b", vec![sources[1].clone()])).await?;
    let target = merged(9, &sources);
    let conversion = |revision| Conversion {
        sources: vec![(StripeId(1), revision), (StripeId(2), 0)],
        targets: vec![target.clone()],
    };
    refused!(meta.convert(conversion(1)).await, MetaError::StripeChanged { expected: 1, .. });
    // What is new lies on a disk that was given up meanwhile: the sources have more than the target would.
    meta.set_disk_state(disk(7), DiskState::Lost).await?;
    refused!(meta.convert(conversion(0)).await, MetaError::StripeChanged { expected: 0, .. });
    meta.set_disk_state(disk(7), DiskState::Active).await?;
    // A kept chunk does: what is lost of the source is lost of the target.
    assert_eq!(live(meta, 1).await?, sources[0]);
    assert_eq!(meta.convert(conversion(0)).await?, std::slice::from_ref(&target));
    assert_eq!(live(meta, 9).await?, target);
    let spans = async |key| -> Result<Vec<(u128, u16, u64)>, MetaError> {
        let found = current(meta, key).await?;
        Ok(found.spans.iter().map(|span| (span.stripe.id.0, span.band, span.data_bytes())).collect())
    };
    assert_eq!(spans("a").await?, [(9, 0, 900), (3, 0, 50)]);
    assert_eq!(spans("b").await?, [(9, 1, 700)]);
    // The sources are dead stripes of what was dropped; whoever asks by their names is told of the target too.
    let dead = meta.dead_stripes(9).await?;
    assert_eq!(ids(&dead), [1, 2]);
    let left = |stripe: &StripeRecord| stripe.places.iter().map(Option::is_some).collect::<Vec<_>>();
    assert!(dead.iter().all(|stripe| left(stripe) == [false, false, true]));
    assert_eq!(ids(&meta.named(&[StripeId(1)]).await?), [1, 9]);
    assert_eq!(ids(&meta.stripes_on(disk(0), None, 9).await?), [3, 9]);
    assert_eq!((meta.tally().await?.data_bytes, meta.tally().await?.chunks_lost), (1650, 0));
    refused!(meta.convert(conversion(0)).await, MetaError::StripeChanged { .. });

    // Damage is told by the name that the chunk has, and repair gives it the stripe's own.
    meta.mark_damaged(&[chunk(9, 1, 0), chunk(1, 1, 1)]).await?;
    assert_eq!(live(meta, 9).await?, target, "no chunk has these names");
    meta.mark_damaged(&[chunk(1, 1, 0)]).await?;
    let damaged = live(meta, 9).await?;
    assert_eq!((damaged.places[1].is_some_and(|place| place.damaged), damaged.revision), (true, 1));
    let repaired = meta.swap(swap(9, 1, &[(1, Some(place(8, 4)))])).await?;
    assert_eq!(repaired.chunk_id(ChunkIndex(1)), Some(chunk(9, 1, 4)));
    assert_eq!(repaired.chunk_id(ChunkIndex(0)), Some(chunk(1, 0, 0)));

    // Back again: what is there is kept under whatever name it has.
    let mut halves = [stripe(10, "rs:2+1", 900), stripe(11, "rs:2+1", 700)];
    for at in 0..4 {
        let (half, index) = (&mut halves[at / 2], ChunkIndex(at as u16 % 2));
        let name = repaired.chunk_id(ChunkIndex(at as u16)).expect("whole");
        half.places[index.at()] = repaired.places[at];
        half.origins.insert(index, Origin { stripe: name.stripe, index: name.index });
    }
    halves[0].places[2] = Some(place(7, 0));
    halves[1].places[2] = Some(place(7, 0));
    // Nobody holds the second half any more: it is dead as soon as it is there.
    meta.delete_object(delete(bucket, "b")).await?;
    assert_eq!(ids(&meta.dead_stripes(9).await?), [1, 2], "a band that lives keeps the stripe");
    let split = Conversion { sources: vec![(StripeId(9), repaired.revision)], targets: halves.to_vec() };
    assert_eq!(meta.convert(split).await?, halves);
    assert_eq!(spans("a").await?, [(10, 0, 900), (3, 0, 50)]);
    assert_eq!(ids(&meta.dead_stripes(9).await?), [1, 2, 9, 11]);
    meta.forget(&[StripeId(1), StripeId(2), StripeId(9), StripeId(11)]).await?;
    assert_eq!(ids(&meta.named(&[StripeId(1), StripeId(2)]).await?), [10]);
    meta.delete_object(delete(bucket, "a")).await?;
    assert_eq!(meta.tally().await?.data_bytes, 0);
    Ok(())
}

pub(super) async fn a_touched_stripe_is_verified_no_more(meta: &dyn Meta) -> Result<(), MetaError> {
    let bucket = filled(meta, 3).await?;
    meta.mark_verified(StripeId(1), 0, at(9)).await?;
    meta.delete_object(delete(bucket, "2")).await?;
    let touched = meta.touch(&[StripeId(3), StripeId(2), StripeId(99), StripeId(1)]).await?;
    assert_eq!(ids(&touched), [3, 1], "those that live, in the order asked for");
    assert!(touched.iter().all(|stripe| stripe.revision == 1 && stripe.verified.is_none()));
    assert_eq!(live(meta, 1).await?, touched[1]);
    // What was read before says nothing of what is there now.
    meta.mark_verified(StripeId(1), 0, at(9)).await?;
    assert_eq!(live(meta, 1).await?.verified, None);
    refused!(meta.swap(swap(1, 0, &[(0, None)])).await, MetaError::StripeChanged { expected: 0, .. });
    Ok(())
}

pub(super) async fn damage_marks_one_generation(meta: &dyn Meta) -> Result<(), MetaError> {
    let bucket = filled(meta, 2).await?;
    meta.mark_verified(StripeId(1), 0, at(9)).await?;
    // Neither the wrong generation nor what is not there.
    let unknown = [chunk(1, 0, 1), chunk(1, 6, 0), chunk(9, 0, 0)];
    meta.mark_damaged(&unknown).await?;
    assert_eq!(live(meta, 1).await?.revision, 0);
    meta.mark_damaged(&[chunk(1, 0, 0), chunk(1, 3, 0), chunk(2, 1, 0)]).await?;
    let damaged = live(meta, 1).await?;
    assert!(damaged.revision > 0 && damaged.verified.is_none());
    let marks = damaged.places.iter().map(|place| place.is_some_and(|place| place.damaged));
    assert_eq!(marks.collect::<Vec<_>>(), [true, false, false, true, false, false]);
    // Told twice, changed once.
    meta.mark_damaged(&[chunk(1, 0, 0)]).await?;
    assert_eq!(live(meta, 1).await?.revision, damaged.revision);
    assert_eq!(meta.disk_tally(disk(0)).await?, DiskTally { chunks: 2, damaged: 1, logs: 0 });
    assert_eq!(meta.tally().await?.chunks_lost, 3);

    // Repaired in a new generation; the old mark's news come late and mean nothing.
    let repaired = swap(1, damaged.revision, &[(0, Some(place(0, 1))), (3, Some(place(3, 1)))]);
    meta.swap(repaired).await?;
    meta.mark_damaged(&[chunk(1, 0, 0)]).await?;
    assert_eq!(ids(&meta.degraded(9).await?), [2]);
    meta.delete_object(delete(bucket, "2")).await?;
    meta.mark_damaged(&[chunk(2, 0, 0)]).await?;
    assert_eq!(meta.degraded(9).await?, []);
    assert_eq!(meta.disk_tally(disk(1)).await?, DiskTally { chunks: 1, damaged: 0, logs: 0 });
    Ok(())
}

pub(super) async fn dead_stripes_wait_until_forgotten(meta: &dyn Meta) -> Result<(), MetaError> {
    let bucket = filled(meta, 4).await?;
    for key in ["3", "1", "2"] {
        meta.delete_object(delete(bucket, key)).await?;
    }
    assert_eq!(ids(&meta.dead_stripes(2).await?), [1, 2]);
    assert_eq!(meta.dead_stripes(9).await?[2], stripe(3, "rs:4+2", 100), "with its places");
    assert_eq!(meta.tally().await?.dead, 3);
    // A live stripe is not forgotten, nor is it an error to ask.
    meta.forget(&[StripeId(1), StripeId(4), StripeId(99), StripeId(2)]).await?;
    assert_eq!(ids(&meta.dead_stripes(9).await?), [3]);
    assert_eq!(ids(&meta.stripes(None, 9).await?), [4]);
    assert_eq!(meta.named(&[StripeId(1)]).await?, []);
    Ok(())
}

pub(super) async fn degraded_come_by_risk_with_hopeless_last(meta: &dyn Meta) -> Result<(), MetaError> {
    let bucket = filled(meta, 5).await?;
    // Losses: one 3 (hopeless), two 1, three 2, four 0, five 1.
    meta.mark_damaged(&[chunk(1, 0, 0), chunk(1, 1, 0), chunk(1, 2, 0)]).await?;
    meta.swap(swap(2, 0, &[(4, None)])).await?;
    meta.swap(swap(3, 0, &[(0, None), (5, None)])).await?;
    meta.mark_damaged(&[chunk(5, 5, 0)]).await?;
    assert_eq!(ids(&meta.degraded(9).await?), [3, 2, 5, 1]);
    assert_eq!(ids(&meta.degraded(2).await?), [3, 2]);
    assert_eq!(ids(&meta.degraded(0).await?), [0; 0]);

    // Under a local code it matters which chunks are lost, not how many: six can be recovered, seven cannot.
    for (key, id) in [("6", 6), ("7", 7)] {
        meta.put_object(new_object(bucket, key, vec![stripe(id, "lrc:4+2+2", 100)])).await?;
    }
    meta.mark_damaged(&[0, 2, 6, 7].map(|index| chunk(6, index, 0))).await?;
    meta.mark_damaged(&[0, 1, 4, 6].map(|index| chunk(7, index, 0))).await?;
    assert_eq!(ids(&meta.degraded(9).await?), [3, 6, 2, 5, 1, 7]);
    assert_eq!(meta.degraded_ids(9).await?, [3, 6, 2, 5, 1, 7].map(StripeId));
    assert_eq!(meta.degraded_ids(5).await?, [3, 6, 2, 5, 1].map(StripeId));
    let tally = meta.tally().await?;
    assert_eq!((tally.degraded_by_tolerance_left, tally.unrecoverable), (vec![2, 2], 2));
    Ok(())
}

pub(super) async fn tally_counts_what_is_known(meta: &dyn Meta) -> Result<(), MetaError> {
    assert_eq!(meta.tally().await?, StripeTally::default());
    let bucket = filled(meta, 6).await?;
    for id in 1..=5 {
        meta.mark_verified(StripeId(id), 0, at(9)).await?;
    }
    meta.mark_damaged(&[chunk(1, 0, 0)]).await?;
    meta.swap(swap(2, 0, &[(0, None), (1, None)])).await?;
    let hopeless = [chunk(3, 0, 0), chunk(3, 1, 0), chunk(3, 2, 0), chunk(3, 3, 0)];
    meta.mark_damaged(&hopeless).await?;
    meta.delete_object(delete(bucket, "4")).await?;
    let expected = StripeTally {
        stripes: 5,
        data_bytes: 500,
        verified: 1,
        degraded_by_tolerance_left: vec![1, 1],
        unrecoverable: 1,
        chunks_lost: 7,
        dead: 1,
    };
    assert_eq!(meta.tally().await?, expected);
    Ok(())
}

pub(super) async fn disk_states_change_what_counts_as_lost(meta: &dyn Meta) -> Result<(), MetaError> {
    let bucket = filled(meta, 3).await?;
    for id in 1..=3 {
        meta.mark_verified(StripeId(id), 0, at(9)).await?;
    }
    meta.mark_damaged(&[chunk(1, 0, 0)]).await?;
    meta.delete_object(delete(bucket, "3")).await?;
    meta.set_disk_state(disk(0), DiskState::Draining).await?;
    assert_eq!(meta.tally().await?.chunks_lost, 1, "a draining disk holds its chunks");

    meta.set_disk_state(disk(0), DiskState::Lost).await?;
    let tally = meta.tally().await?;
    assert_eq!((tally.chunks_lost, tally.verified), (2, 0), "damaged and lost is lost once");
    assert_eq!(tally.degraded_by_tolerance_left, [0, 2]);
    meta.set_disk_state(disk(0), DiskState::Removed).await?;
    meta.set_disk_state(disk(1), DiskState::Lost).await?;
    let tally = meta.tally().await?;
    assert_eq!((tally.chunks_lost, tally.degraded_by_tolerance_left), (4, vec![2]));
    assert_eq!(ids(&meta.degraded(9).await?), [1, 2]);
    assert_eq!(meta.disk_tally(disk(0)).await?, DiskTally { chunks: 2, damaged: 1, logs: 0 });

    // A write that raced with the loss is degraded from its beginning.
    meta.put_object(new_object(bucket, "4", vec![stripe(4, "rs:4+2", 100)])).await?;
    assert_eq!(meta.tally().await?.degraded_by_tolerance_left, [3]);
    // Repaired away from both disks.
    meta.swap(swap(4, 0, &[(0, Some(place(6, 1))), (1, Some(place(7, 1)))])).await?;
    assert_eq!(ids(&meta.degraded(9).await?), [1, 2]);

    // Lost disks that turn up again bring their chunks back.
    meta.set_disk_state(disk(1), DiskState::Active).await?;
    meta.put_disk(super::disk_record(0)).await?;
    let tally = meta.tally().await?;
    assert_eq!((tally.chunks_lost, tally.verified), (1, 1));
    assert_eq!(ids(&meta.degraded(9).await?), [1]);
    Ok(())
}

pub(super) async fn unknown_disks_are_refused(meta: &dyn Meta) -> Result<(), MetaError> {
    let bucket = filled(meta, 1).await?;
    let mut foreign = stripe(2, "rs:4+2", 100);
    foreign.places[5] = Some(place(99, 0));
    refused!(
        meta.put_object(new_object(bucket, "2", vec![foreign])).await,
        MetaError::NoSuchDisk { disk: unknown } if unknown == disk(99)
    );
    assert_eq!(current(meta, "2").await?.object, None);
    refused!(meta.swap(swap(1, 0, &[(0, None), (1, Some(place(99, 0)))])).await, MetaError::NoSuchDisk { .. });
    assert_eq!(live(meta, 1).await?, stripe(1, "rs:4+2", 100), "nothing was swapped");
    refused!(meta.stripes_on(disk(99), None, 9).await, MetaError::NoSuchDisk { .. });
    Ok(())
}
