//! Objects over stores in memory and records in an in-memory database.

mod world;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use claystone_chunk::testing::{Faults, pattern};
use claystone_chunk::{ByteRange, DiskId, StripeId};
use claystone_code::{CodeSpec, ConversionGoal, plan_conversion};
use claystone_env::{Space, WallTime};
use claystone_meta::{
    DeleteObject, DiskState, HeatPolicy, ListQuery, MetaError, Precondition, StripeRecord, StripeRecords, VersionName,
    VersionRef, Versioning,
};
use claystone_object::{
    Algorithm, Attributes, BodyError, CompletePart, Confirm, Confirmed, CopySource, FirstPolicy, NewUpload, Object,
    ObjectError, Objects, Part, Put, Settings,
};
use claystone_stripe::{Member, Unpaced};
use futures::stream::{self, StreamExt};
use world::{World, delete_of, etag_of_md5, put};

#[tokio::test]
async fn objects_of_all_lengths_come_back() {
    for code in ["rs:4+2", "clay:4+2:5", "replica:3"] {
        let world = World::new(6, code).await;
        for bytes in [0usize, 1, 1000, 16 << 10, (16 << 10) + 1, 300_000, 5_000_000] {
            let data = pattern(bytes as u64, bytes);
            let key = format!("object of {bytes}");
            let written = world.put(&key, &data).await.expect("room");
            assert_eq!((written.bytes, written.etag.len()), (bytes as u64, 32));
            world.assert_holds(&key, &data).await;
            if bytes > 10 {
                let object = world.object(&key).await.expect("there");
                let range = ByteRange { offset: bytes as u64 / 3, bytes: bytes as u64 / 2 };
                assert!(world.read(&object, Some(range)).await == data[bytes / 3..bytes / 3 + bytes / 2]);
            }
        }
    }
}

/// Two objects whose stripes are merged while they are read.
#[tokio::test]
async fn objects_of_one_merged_stripe_are_read_copied_and_deleted_apart() {
    let world = World::new(18, "rsm:6+3").await;
    let stores = world.stripes.stores();
    let room = |disks: std::ops::RangeInclusive<u128>, bytes| {
        disks.for_each(|disk| stores.update(DiskId(disk), |member| member.space.free_bytes = bytes));
    };
    let data = [pattern(1, 6 << 16), pattern(2, (6 << 16) - 100)];
    room(10..=18, 0);
    world.put("a", &data[0]).await.expect("room");
    room(10..=18, 1 << 40);
    room(1..=9, 0);
    world.put("b", &data[1]).await.expect("room");
    room(1..=9, 1 << 40);
    let before = world.object("a").await.expect("there");

    let sources = world.meta.stripes(None, 9).await.expect("records");
    let (from, to) = (sources[0].code, "rsm:12+3".parse().expect("valid"));
    let plan = plan_conversion(from, to, ConversionGoal::FewestReads).expect("they merge");
    let converted = world.stripes.convert(&sources, &plan, &Unpaced).await.expect("all disks are there");
    world.meta.convert(converted.change.clone()).await.expect("nothing changed");
    drop(converted);
    assert!(world.read(&before, None).await == data[0], "found before, read after");
    let ranges = [(0, 1), (65_530, 100), (200_000, 193_116 - 100)];
    for (key, data) in [("a", &data[0]), ("b", &data[1])] {
        world.assert_holds(key, data).await;
        let object = world.object(key).await.expect("there");
        assert_eq!(object.codes(), [to]);
        for (offset, bytes) in ranges {
            let read = world.read(&object, Some(ByteRange { offset, bytes })).await;
            assert!(read == data[offset as usize..(offset + bytes) as usize], "{key} {offset} {bytes}");
        }
        // A disk of each band is gone.
        let lost = object.stripes()[0].places[if key == "a" { 2 } else { 8 }].expect("whole").disk;
        let faults = Faults { reads_fail: Some("lost".to_owned()), ..Faults::default() };
        world.faulty[lost.0 as usize - 1].set(faults);
        world.assert_holds(key, data).await;
        world.faulty[lost.0 as usize - 1].set(Faults::default());
    }
    let found = async |key: &str| world.object(key).await.expect("there");
    assert_eq!(
        world.objects.delete(delete_of(&found("a").await)).await.expect("there").dead,
        [],
        "b lives in the same stripe"
    );
    world.assert_holds("b", &data[1]).await;
    assert_eq!(world.objects.delete(delete_of(&found("b").await)).await.expect("there").dead.len(), 1);
    assert_eq!(world.meta.check().await.expect("readable"), Vec::<String>::new());
}

#[tokio::test]
async fn an_object_longer_than_a_stripe_is_cut_and_read_across_the_border() {
    let world = World::new(6, "rs:4+2").await;
    let bytes = (64 << 20) + 12_345;
    let data = pattern(1, bytes);
    world.put("long", &data).await.expect("room");
    let object = world.object("long").await.expect("there");
    let codes: Vec<String> = object.stripes().iter().map(|stripe| stripe.code.to_string()).collect();
    assert_eq!(codes, ["rs:4+2", "replica:3"], "the short rest is replicated");
    let range = ByteRange { offset: (64 << 20) - 5, bytes: 10 };
    assert!(world.read(&object, Some(range)).await == data[(64 << 20) - 5..(64 << 20) + 5]);
    world.assert_holds("long", &data).await;
}

#[tokio::test]
async fn a_body_of_the_wrong_length_commits_nothing_and_leaves_nothing() {
    let world = World::new(6, "rs:4+2").await;
    let data = pattern(1, 200_000);
    for declared in [199_999, 200_001] {
        let error = world.objects.put(Put { bytes: declared, ..put("key", &data) }).await.expect_err("wrong length");
        assert!(matches!(error, ObjectError::Body(BodyError::WrongLength { .. })), "{error}");
        assert!(world.object("key").await.is_none());
    }
    tokio::task::yield_now().await;
}

#[tokio::test]
async fn a_refused_body_leaves_the_old_object_and_no_chunks() {
    let world = World::new(6, "rs:4+2").await;
    let (old, new) = (pattern(1, 100_000), pattern(2, 100_000));
    world.put("key", &old).await.expect("room");
    let refuse: Confirm = Box::new(|_| Err(BodyError::Refused("a wrong checksum".into())));
    let error = world.objects.put(Put { confirm: refuse, ..put("key", &new) }).await.expect_err("refused");
    assert!(matches!(error, ObjectError::Body(BodyError::Refused(_))));
    world.assert_holds("key", &old).await;
    // The discard runs as a task of its own.
    while world.chunks().await.0 > 6 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn digests_are_those_of_the_body() {
    let world = World::new(6, "rs:4+2").await;
    let data = pattern(3, 3_000_000);
    let (sender, receiver) = std::sync::mpsc::channel();
    let confirm: Confirm = Box::new(move |digests| {
        sender.send(digests.clone()).expect("the test listens");
        Ok(Confirmed { etag: "e".to_owned(), checksums: BTreeMap::from([("crc32c".to_owned(), "x".to_owned())]) })
    });
    let all = vec![
        Algorithm::Md5,
        Algorithm::Crc32,
        Algorithm::Crc32c,
        Algorithm::Crc64Nvme,
        Algorithm::Sha1,
        Algorithm::Sha256,
    ];
    world.objects.put(Put { digests: all, confirm, ..put("key", &data) }).await.expect("room");
    let digests = receiver.recv().expect("confirm ran");
    use sha2::Digest as _;
    assert_eq!(digests.bytes, 3_000_000);
    assert_eq!(digests.values[&Algorithm::Sha256], sha2::Sha256::digest(&data).to_vec());
    assert_eq!(digests.values[&Algorithm::Md5], md5::Md5::digest(&data).to_vec());
    let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &data) as u32;
    assert_eq!(digests.values[&Algorithm::Crc32c], crc.to_be_bytes());
    assert_eq!(digests.values.len(), 6);
    assert_eq!(world.object("key").await.expect("there").attributes.checksums["crc32c"], "x");
}

#[tokio::test]
async fn overwrite_and_delete_free_the_old_stripes_for_reclaim() {
    let world = World::new(6, "rs:4+2").await;
    world.put("key", &pattern(1, 100_000)).await.expect("room");
    world.put("key", &pattern(2, 100_000)).await.expect("room");
    assert_eq!(world.meta.dead_stripes(10).await.expect("records").len(), 1);
    let bucket = world.objects.bucket("bucket").await.expect("there");
    let delete = DeleteObject {
        bucket: bucket.id,
        key: "key".to_owned(),
        version: VersionRef::Current,
        marker: None,
        precondition: Precondition::None,
        now: WallTime::default(),
    };
    let deleted = world.objects.delete(delete.clone()).await.expect("deleted");
    assert_eq!(deleted.removed, Some((VersionName::null(), false)));
    assert!(world.object("key").await.is_none());
    assert_eq!(world.meta.dead_stripes(10).await.expect("records").len(), 2);
    assert_eq!(world.objects.delete(delete).await.expect("again").removed, None);
}

#[tokio::test]
async fn a_reader_claims_the_stripes_it_reads() {
    let world = World::new(6, "rs:4+2").await;
    let data = pattern(1, 3_000_000);
    world.put("key", &data).await.expect("room");
    let object = world.object("key").await.expect("there");
    let stripe = object.stripes()[0].id;
    let mut body = world.objects.read(&object, None);
    drop(object);
    assert!(world.stripes.is_claimed(stripe), "the body reads it");
    while body.next().await.is_some() {}
    drop(body);
    while world.stripes.is_claimed(stripe) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_precondition_that_fails_changes_nothing() {
    let world = World::new(6, "rs:4+2").await;
    let data = pattern(1, 50_000);
    let absent = || Put { precondition: Precondition::Absent, ..put("key", &data) };
    world.objects.put(absent()).await.expect("absent");
    let error = world.objects.put(absent()).await.expect_err("present");
    assert!(matches!(error, ObjectError::Meta(MetaError::PreconditionFailed { .. })), "{error}");
    world.assert_holds("key", &data).await;
}

#[tokio::test]
async fn a_copy_shares_bytes_and_outlives_its_source() {
    let world = World::new(6, "rs:4+2").await;
    let data = pattern(1, 500_000);
    let written = world.put("source", &data).await.expect("room");
    let source = world.object("source").await.expect("there");
    let before = world.chunks().await.0;
    let attributes = Attributes { user: BTreeMap::from([("a".to_owned(), "b".to_owned())]), ..Attributes::default() };
    let copied = world
        .objects
        .copy(&source, "bucket", "copy", Versioning::Off, Precondition::None, attributes)
        .await
        .expect("copied");
    assert_eq!((copied.etag, copied.bytes), (written.etag, 500_000));
    assert_eq!(world.chunks().await.0, before, "no chunk was written");
    world.put("source", &pattern(2, 10)).await.expect("room");
    world.assert_holds("copy", &data).await;
    assert_eq!(world.meta.dead_stripes(10).await.expect("records").len(), 0, "the copy still holds them");
    assert_eq!(world.object("copy").await.expect("there").attributes.user["a"], "b");
}

#[tokio::test]
async fn a_copy_to_a_bucket_of_another_code_writes_that_code() {
    let world = World::new(6, "rs:4+2").await;
    let clay: CodeSpec = "clay:4+2:5".parse().expect("valid");
    world.objects.create_bucket("cold", "me", Some(clay)).await.expect("new");
    let data = pattern(1, 512 << 10);
    world.put("key", &data).await.expect("room");
    let source = world.object("key").await.expect("there");
    world
        .objects
        .copy(&source, "cold", "key", Versioning::Off, Precondition::None, Attributes::default())
        .await
        .expect("copied");
    let copy = world.objects.find("cold", "key", &VersionRef::Current).await.expect("there").object.expect("there");
    assert_eq!(copy.codes(), [clay]);
    assert!(world.read(&copy, None).await == data);
}

#[tokio::test]
async fn objects_of_a_bucket_with_a_policy_can_be_merged_and_their_reads_count() {
    let world = World::new(5, "rs:2+1").await;
    let policy: HeatPolicy = "rsm:2+1/rsm:4+1<=150%,0.25..1.00".parse().expect("valid");
    world.objects.set_policy("bucket", Some(policy)).await.expect("disks enough");
    // Eight rows of two tiles, and what is left of it: that ends with zeros, so that others are as long.
    let (first, second) = (pattern(1, (1 << 20) + 20_000), pattern(2, (1 << 20) + 70_000));
    world.put("first", &first).await.expect("room");
    world.put("second", &second).await.expect("room");
    let stripes = |object: &Object| -> Vec<(String, u64)> {
        object.stripes().iter().map(|stripe| (stripe.code.to_string(), stripe.data_bytes)).collect()
    };
    let object = world.object("second").await.expect("there");
    assert_eq!(stripes(&object), [("rsm:2+1".to_owned(), 1 << 20), ("rsm:2+1".to_owned(), 2 * (36 << 10))]);
    let sources = [world.object("first").await.expect("there"), object].map(|object| object.stripes()[0].clone());
    let data = |stripe: &StripeRecord| stripe.places[..2].iter().map(|place| place.expect("whole").disk).collect();
    let disks: Vec<BTreeSet<DiskId>> = sources.iter().map(data).collect();
    assert!(disks[0].is_disjoint(&disks[1]), "{disks:?}");

    // A read of a half counts a half.
    let object = world.object("first").await.expect("there");
    world.read(&object, Some(ByteRange { offset: 0, bytes: 1 << 19 })).await;
    world.read(&object, None).await;
    let now = WallTime { unix_ms: 0 };
    // The first may have cooled for a moment when the second came.
    assert!((world.stripes.heats().of(sources[0].id, now) - 1.5).abs() < 1e-3);
    assert_eq!(world.stripes.heats().of(sources[1].id, now), 0.0);

    let plan = plan_conversion(policy.fast, policy.compact, ConversionGoal::FewestReads).expect("they merge");
    let converted = world.stripes.convert(&sources, &plan, &Unpaced).await.expect("disks enough");
    world.meta.convert(converted.change.clone()).await.expect("nothing changed meanwhile");
    drop(converted);
    world.assert_holds("first", &first).await;
    world.assert_holds("second", &second).await;
    // A copy within the bucket shares the merged stripe.
    let before = world.chunks().await.0;
    let source = world.object("second").await.expect("there");
    let copied =
        world.objects.copy(&source, "bucket", "copy", Versioning::Off, Precondition::None, Attributes::default());
    copied.await.expect("shared");
    assert_eq!(world.chunks().await.0, before, "no chunk was written");
    world.assert_holds("copy", &second).await;
}

#[tokio::test]
async fn what_is_new_is_copies_of_the_data_chunks_unless_it_is_long_or_a_part() {
    let world = World::new(6, "rs:2+1").await;
    let policy: HeatPolicy = "replica:3/rsm:2+2/rsm:4+2<=300%,0.25..1.00".parse().expect("valid");
    world.objects.set_policy("bucket", Some(policy)).await.expect("disks enough");
    let codes = async |key: &str| -> Vec<String> {
        world.object(key).await.expect("there").codes().iter().map(ToString::to_string).collect()
    };
    // Eight rows of two tiles, and what is left of it.
    let data = pattern(1, (1 << 20) + 70_000);
    world.put("short", &data).await.expect("room");
    assert_eq!(codes("short").await, ["mirror:2x3"]);
    let object = world.object("short").await.expect("there");
    assert_eq!(object.stripes().iter().map(|stripe| stripe.data_bytes).collect::<Vec<_>>(), [1 << 20, 2 * (36 << 10)]);
    for stripe in object.stripes() {
        let disks: BTreeSet<DiskId> = stripe.places[..2].iter().map(|place| place.expect("whole").disk).collect();
        assert_eq!(disks.len(), 2, "data chunks lie apart");
    }
    world.put("edge", &pattern(2, 16 << 20)).await.expect("room");
    world.put("long", &pattern(3, (16 << 20) + (1 << 17))).await.expect("room");
    assert_eq!([codes("edge").await, codes("long").await], [["mirror:2x3"], ["rsm:2+2"]]);
    // A copy within the bucket shares them; what is small shares packs as without copies.
    let before = world.chunks().await.0;
    let none = || Attributes::default();
    let copied = world.objects.copy(&object, "bucket", "copy", Versioning::Off, Precondition::None, none()).await;
    copied.expect("shared");
    // And so it does when the bucket makes no copies of what is new any more.
    let without = HeatPolicy { fresh: None, ..policy };
    world.objects.set_policy("bucket", Some(without)).await.expect("disks enough");
    let again = world.objects.copy(&object, "bucket", "again", Versioning::Off, Precondition::None, none()).await;
    again.expect("shared");
    assert_eq!(codes("again").await, ["mirror:2x3"]);
    world.objects.set_policy("bucket", Some(policy)).await.expect("disks enough");
    assert_eq!(world.chunks().await.0, before, "no chunk was written");
    world.put("small", &pattern(4, 100)).await.expect("room");
    assert_eq!(codes("small").await, ["replica:3"]);

    let new = NewUpload { bucket: "bucket".into(), key: "parts".into(), attributes: none() };
    let upload = world.objects.create_upload(new).await.expect("begun");
    let part = Part {
        bucket: "bucket".into(),
        key: "parts".into(),
        upload: upload.id.clone(),
        number: 1,
        bytes: data.len() as u64,
        body: stream::iter([Ok(data.clone())]).boxed(),
        digests: vec![Algorithm::Md5],
        confirm: etag_of_md5(),
    };
    let parts = [CompletePart { number: 1, etag: world.objects.put_part(part).await.expect("taken").etag }];
    let (etag, off) = ("etag-1".to_owned(), Versioning::Off);
    let complete =
        world.objects.complete_upload("bucket", &upload, &parts, off, Precondition::None, etag, none()).await;
    complete.expect("completed");
    assert_eq!(codes("parts").await, ["rsm:2+2"]);
    world.assert_holds("parts", &data).await;
    world.assert_holds("short", &data).await;
}

/// A bucket that is at its bound, or of which it is not known, gets compact stripes at once; none of them brings it above.
#[tokio::test]
async fn what_is_new_is_compact_at_once_where_the_bound_leaves_no_room() {
    for (policy, disks) in [
        ("replica:3/rsm:2+2/rsm:4+2<=160%,0.25..1.00", 7),
        ("hybrid:2/rsm:2+1/rsm:6+1<=125%,0.25..1.00", 8),
        ("lrc:4+2+1/lrc:4+1+1<=155%,0.25..1.00", 8),
        ("mirror:6x3/clay:6+2:7<=160%,0.25..1.00", 8),
    ] {
        let settings = claystone_stripe::Settings { bound_from_bytes: 0, ..claystone_stripe::Settings::default() };
        let world = World::on(disks, Settings::new("rs:2+1".parse().expect("valid")), settings).await;
        let policy: HeatPolicy = policy.parse().expect("valid");
        world.objects.set_policy("bucket", Some(policy)).await.expect("disks enough");
        let (mut data_bytes, mut codes) = (0, Vec::new());
        for (at, bytes) in
            [1 << 20, 5 << 20, 70_000, 3 << 19, 17 << 20, 1 << 18, 1 << 16, 1 << 20].into_iter().enumerate()
        {
            let (key, data) = (at.to_string(), pattern(at as u64, bytes));
            world.put(&key, &data).await.expect("room");
            data_bytes += bytes as u64;
            world.assert_holds(&key, &data).await;
            let object = world.object(&key).await.expect("there");
            let range = ByteRange { offset: bytes as u64 / 3, bytes: bytes as u64 / 2 };
            assert!(
                world.read(&object, Some(range)).await == data[bytes / 3..bytes / 3 + bytes / 2],
                "{policy}: {key}"
            );
            codes.extend(object.codes());
            let chunks = world.chunks_bytes().await;
            // The shortest object is in a pack.
            let most = data_bytes * u64::from(policy.percent_max) / 100 + (1 << 16);
            assert!(chunks <= most, "{policy}: {chunks} bytes of {data_bytes} after {key}, not {most}");
        }
        assert!(codes.contains(&policy.compact), "{policy}: {codes:?}");
        assert!(codes.contains(&policy.fast), "{policy}: {codes:?}");
        let before = world.chunks().await;
        assert_eq!(before.0, before.1, "nothing is there that nobody names");
        // Compact stripes go the other way as merged ones do.
        for (key, bytes) in [(1, 5 << 20), (4, 17 << 20)] {
            let object = world.object(&key.to_string()).await.expect("there");
            let compact = object.stripes().into_iter().filter(|stripe| stripe.code == policy.compact);
            let compact: BTreeMap<StripeId, StripeRecord> = compact.map(|stripe| (stripe.id, stripe.clone())).collect();
            assert!(!compact.is_empty(), "{policy}: {key}");
            for stripe in compact.into_values() {
                assert_eq!(stripe.bands().len(), usize::from(policy.sources()), "{policy}");
                let plan =
                    plan_conversion(policy.compact, policy.fast, ConversionGoal::FewestReads).expect("it is split");
                let converted = world.stripes.convert(&[stripe], &plan, &Unpaced).await.expect("disks enough");
                world.meta.convert(converted.change.clone()).await.expect("nothing changed meanwhile");
            }
            world.assert_holds(&key.to_string(), &pattern(key, bytes)).await;
        }
        // What is refused takes no room.
        let bucket = world.objects.bucket("bucket").await.expect("there").id;
        let before = world.stripes.rooms().begin_look(bucket);
        let data = pattern(7, 1 << 20);
        let refused = Put { precondition: Precondition::Absent, ..put("1", &data) };
        world.objects.put(refused).await.expect_err("there is one");
        assert_eq!(world.stripes.rooms().begin_look(bucket), before);
        // As nobody knows what is there.
        let bucket = world.objects.bucket("bucket").await.expect("there").id;
        world.stripes.rooms().forget(bucket);
        world.put("unknown", &pattern(9, 1 << 20)).await.expect("room");
        assert!(!world.object("unknown").await.expect("there").codes().contains(&policy.fast));
        // On too few disks for the compact code what is new is fast, whatever it takes.
        if policy.fast.disks_min() < policy.compact.disks_min() {
            world.stripes.stores().update(DiskId(1), |member| member.record.state = DiskState::Draining);
            world.stripes.stores().update(DiskId(2), |member| member.record.state = DiskState::Draining);
            world.put("anyway", &pattern(10, 1 << 20)).await.expect("room");
            let codes = world.object("anyway").await.expect("there").codes();
            assert!(codes.contains(&policy.fast) && !codes.contains(&policy.compact), "{codes:?}");
        }
    }
}

/// Ends of objects, what has a narrower code, and parts of packs have no choice, and count.
#[tokio::test]
async fn what_cannot_be_converted_takes_room_too() {
    let world = World::new(7, "rs:2+1").await;
    let policy: HeatPolicy = "rsm:2+2/rsm:4+2<=160%,0.25..1.00".parse().expect("valid");
    world.objects.set_policy("bucket", Some(policy)).await.expect("disks enough");
    (1..=4).map(DiskId).for_each(|disk| {
        world.stripes.stores().update(disk, |member| member.record.state = DiskState::Draining);
    });
    let bucket = world.objects.bucket("bucket").await.expect("there").id;
    for (key, bytes) in [("narrow", 1 << 20), ("packed", 1000), ("packed", 2000)] {
        let before = world.stripes.rooms().begin_look(bucket);
        world.put(key, &pattern(1, bytes)).await.expect("room");
        let codes = world.object(key).await.expect("there").codes();
        assert!(!codes.contains(&policy.fast) && !codes.contains(&policy.compact), "{codes:?}");
        assert!(world.stripes.rooms().begin_look(bucket) > before, "{key} of {bytes} bytes");
        // What is refused does not.
        let before = world.stripes.rooms().begin_look(bucket);
        let data = pattern(2, bytes);
        let refused = Put { precondition: Precondition::Absent, ..put(key, &data) };
        world.objects.put(refused).await.expect_err("there is one");
        assert_eq!(world.stripes.rooms().begin_look(bucket), before);
    }
}

/// A copy may share stripes that another bucket wrote fast: they count in its own from then on, not only when that is looked at.
#[tokio::test]
async fn what_is_shared_with_another_bucket_takes_room_in_it() {
    let settings = claystone_stripe::Settings { bound_from_bytes: 0, ..claystone_stripe::Settings::default() };
    let world = World::on(7, Settings::new("rs:2+1".parse().expect("valid")), settings).await;
    let roomy: HeatPolicy = "rsm:2+2/rsm:4+2<=250%,0.25..1.00".parse().expect("valid");
    world.objects.set_policy("bucket", Some(roomy)).await.expect("disks enough");
    world.put("fast", &pattern(1, 4 << 20)).await.expect("room");
    let source = world.object("fast").await.expect("there");
    assert_eq!(source.codes(), [roomy.fast]);
    let policy = HeatPolicy { percent_max: 160, ..roomy };
    world.objects.create_bucket("other", "me", None).await.expect("made");
    world.objects.set_policy("other", Some(policy)).await.expect("disks enough");
    let other = world.objects.bucket("other").await.expect("there").id;
    let rooms = world.stripes.rooms();
    let copy = |bucket: &'static str, key: &'static str, precondition| {
        let (objects, source) = (world.objects.clone(), source.clone());
        async move { objects.copy(&source, bucket, key, Versioning::Off, precondition, Attributes::default()).await }
    };
    let before = rooms.begin_look(other);
    copy("other", "copy", Precondition::None).await.expect("copied");
    let taken = rooms.begin_look(other);
    assert!(taken > before);
    copy("other", "copy", Precondition::Absent).await.expect_err("there is one");
    assert_eq!(rooms.begin_look(other), taken, "nothing came of it");
    // What its own bucket holds already takes nothing more.
    let own = world.objects.bucket("bucket").await.expect("there").id;
    let before = rooms.begin_look(own);
    copy("bucket", "again", Precondition::None).await.expect("copied");
    assert_eq!(rooms.begin_look(own), before);
}

#[tokio::test]
async fn what_is_new_is_no_longer_copies_where_disks_fill_up() {
    let world = World::new(6, "rs:4+2").await;
    let policy: HeatPolicy = "replica:3/rsm:2+2/rsm:4+2<=300%,0.25..1.00".parse().expect("valid");
    world.objects.set_policy("bucket", Some(policy)).await.expect("disks enough");
    let data = pattern(1, 1 << 20);
    let copies = policy.fresh_code().expect("copies");
    // Three disks without room leave too few to encode on, and one disk more leaves enough. Room is a tenth of the disk, and for 64
    // chunks, each of 512 KiB here.
    for (total_bytes, spare, full, code) in [
        (1 << 30, 1 << 26, 0, copies),
        (1 << 30, 1 << 26, 2, copies),
        (1 << 30, 1 << 26, 3, policy.fast),
        (100 << 20, 32 << 20, 3, policy.fast),
        (100 << 20, (32 << 20) + 1, 3, copies),
    ] {
        for (at, member) in world.stripes.stores().members().into_iter().enumerate() {
            let space = Space { total_bytes, free_bytes: if at < full { spare } else { total_bytes / 2 } };
            world.stripes.stores().put(Member { space, ..member });
        }
        let key = format!("with {full} of {total_bytes} full at {spare}");
        world.put(&key, &data).await.expect("room");
        let object = world.object(&key).await.expect("there");
        assert!(object.codes().contains(&code), "{key}: {:?}", object.codes());
        world.assert_holds(&key, &data).await;
    }
}

#[tokio::test]
async fn a_policy_that_does_not_fit_is_refused() {
    let world = World::new(5, "rs:2+1").await;
    let set = async |text: &str| {
        let policy = HeatPolicy::named(text).expect("a policy");
        world.objects.set_policy("bucket", Some(policy)).await
    };
    assert!(matches!(set("rsm-6+3").await, Err(ObjectError::TooFewDisks { needed: 15, available: 5, .. })));
    let clay = set("mirror:3x3/clay:3+2:4<=200%,0.25..1.00").await;
    assert!(matches!(clay, Err(ObjectError::OtherTiles { .. })), "{clay:?}");
    let unknown = world.objects.set_policy("nowhere", None).await;
    assert!(matches!(unknown, Err(ObjectError::Meta(MetaError::NoSuchBucket { .. }))));
    set("rsm:2+1/rsm:4+1<=150%,0.25..1.00").await.expect("it fits");
    world.objects.set_policy("bucket", None).await.expect("it is there");
    assert_eq!(world.objects.bucket("bucket").await.expect("there").policy, None);
}

#[tokio::test]
async fn an_upload_becomes_one_object_in_the_order_of_its_parts() {
    let world = World::new(6, "rs:4+2").await;
    let new = NewUpload { bucket: "bucket".into(), key: "key".into(), attributes: Attributes::default() };
    let upload = world.objects.create_upload(new).await.expect("begun");
    let parts: Vec<Bytes> = (0..3).map(|part| pattern(part, 70_000 + part as usize)).collect();
    let mut named = Vec::new();
    for number in [3u32, 1, 2] {
        let data = parts[number as usize - 1].clone();
        let part = Part {
            bucket: "bucket".into(),
            key: "key".into(),
            upload: upload.id.clone(),
            number,
            bytes: data.len() as u64,
            body: stream::iter([Ok(data)]).boxed(),
            digests: vec![Algorithm::Md5],
            confirm: etag_of_md5(),
        };
        named.push(CompletePart { number, etag: world.objects.put_part(part).await.expect("taken").etag });
    }
    let source = {
        world.put("source", &pattern(9, 5_000)).await.expect("room");
        let object = world.object("source").await.expect("there");
        CopySource { object, range: Some(ByteRange { offset: 1_000, bytes: 10 }) }
    };
    let copied = world.objects.copy_part("bucket", "key", &upload.id, 4, source).await.expect("copied");
    named.push(CompletePart { number: 4, etag: copied.etag });
    let complete = |parts: Vec<CompletePart>| {
        let (objects, upload) = (world.objects.clone(), upload.clone());
        async move {
            let (attributes, etag) = (Attributes::default(), "etag-4".to_owned());
            objects
                .complete_upload("bucket", &upload, &parts, Versioning::Off, Precondition::None, etag, attributes)
                .await
        }
    };
    let error = complete(named.clone()).await.expect_err("3 comes before 1");
    assert!(matches!(error, ObjectError::PartOrder), "{error}");
    named.sort_by_key(|part| part.number);
    let mut wrong = named.clone();
    wrong[1].etag = "0".repeat(32);
    let error = complete(wrong).await.expect_err("a wrong tag");
    assert!(matches!(error, ObjectError::Meta(MetaError::InvalidPart { number: 2 })), "{error}");
    complete(named).await.expect("completed");
    let expected = [&parts[0][..], &parts[1], &parts[2], &pattern(9, 5_000)[1_000..1_010]].concat();
    world.assert_holds("key", &expected).await;
    assert!(matches!(
        world.objects.upload("bucket", "key", &upload.id).await,
        Err(ObjectError::Meta(MetaError::NoSuchUpload { .. }))
    ));
}

#[tokio::test]
async fn parts_but_the_last_have_a_least_length() {
    let world = World::new(6, "rs:4+2").await;
    let new = NewUpload { bucket: "bucket".into(), key: "key".into(), attributes: Attributes::default() };
    let upload = world.objects.create_upload(new).await.expect("begun");
    let mut named = Vec::new();
    for number in [1, 2] {
        let part = Part {
            bucket: "bucket".into(),
            key: "key".into(),
            upload: upload.id.clone(),
            number,
            bytes: 999,
            body: stream::iter([Ok(pattern(1, 999))]).boxed(),
            digests: vec![Algorithm::Md5],
            confirm: etag_of_md5(),
        };
        named.push(CompletePart { number, etag: world.objects.put_part(part).await.expect("taken").etag });
    }
    let error = world
        .objects
        .complete_upload(
            "bucket",
            &upload,
            &named,
            Versioning::Off,
            Precondition::None,
            "e".into(),
            Attributes::default(),
        )
        .await
        .expect_err("too small");
    assert!(matches!(error, ObjectError::PartTooSmall { number: 1, bytes: 999, minimum_bytes: 1000 }), "{error}");
    world.objects.abort_upload("bucket", "key", &upload.id).await.expect("aborted");
    assert_eq!(world.meta.dead_stripes(10).await.expect("records").len(), 2);
}

#[tokio::test]
async fn versions_are_kept_apart() {
    let world = World::new(6, "rs:4+2").await;
    let datas: Vec<Bytes> = (0..3).map(|seed| pattern(seed, 30_000)).collect();
    for (number, data) in datas.iter().enumerate() {
        let versioning = Versioning::On(VersionName(format!("v{number}")));
        world.objects.put(Put { versioning, ..put("key", data) }).await.expect("room");
    }
    for (number, data) in datas.iter().enumerate() {
        let version = VersionRef::Named(VersionName(format!("v{number}")));
        let object = world.objects.find("bucket", "key", &version).await.expect("there").object.expect("there");
        assert!(world.read(&object, None).await == *data);
    }
    let bucket = world.objects.bucket("bucket").await.expect("there").id;
    let query = ListQuery { limit: 10, versions: true, ..ListQuery::default() };
    let page = world.objects.list(bucket, &query).await.expect("listed");
    let names: Vec<&str> = page.entries.iter().map(|entry| entry.version.0.as_str()).collect();
    assert_eq!(names, ["v2", "v1", "v0"]);
}

#[tokio::test]
async fn with_fewer_disks_objects_get_a_narrower_code_of_the_same_tolerance() {
    let world = World::new(6, "rs:4+2").await;
    for disk in [0, 1] {
        world.faulty[disk].set(Faults::default());
        let mut member = world.stripes.stores().members()[disk].clone();
        member.record.state = DiskState::Draining;
        world.stripes.stores().put(member);
    }
    let data = pattern(1, 1_000_000);
    world.put("key", &data).await.expect("four disks are left");
    let object = world.object("key").await.expect("there");
    assert_eq!(object.codes()[0].to_string(), "rs:2+2");
    let disks: BTreeSet<DiskId> = object.stripes()[0].places.iter().flatten().map(|place| place.disk).collect();
    assert!(disks.iter().all(|disk| disk.0 > 2), "{disks:?}");
}

#[tokio::test]
async fn a_bucket_with_a_code_too_wide_for_the_disks_is_refused() {
    let world = World::new(6, "rs:4+2").await;
    let wide: CodeSpec = "rs:10+4".parse().expect("valid");
    let error = world.objects.create_bucket("wide", "me", Some(wide)).await.expect_err("14 chunks, 6 disks");
    assert!(matches!(error, ObjectError::TooFewDisks { needed: 14, available: 6, .. }), "{error}");
}

#[tokio::test]
async fn a_new_bucket_gets_the_policy_of_the_store_unless_it_names_a_code() {
    let code: CodeSpec = "rs:4+2".parse().expect("valid");
    let wide = HeatPolicy::named("rsm-6+3").expect("a preset");
    let named: HeatPolicy = "rsm:2+1/rsm:4+1<=150%,0.25..1.00".parse().expect("valid");
    for (disks, policy, expected) in [
        (6, FirstPolicy::None, None),
        (6, FirstPolicy::This(named), Some(named)),
        (15, FirstPolicy::ForDisks, Some(HeatPolicy::named("hybrid-rsm-4+2").expect("a preset"))),
        (16, FirstPolicy::ForDisks, Some(HeatPolicy::named("hybrid-rsm-6+3").expect("a preset"))),
        // None to spare.
        (10, FirstPolicy::ForDisks, None),
    ] {
        let world = World::with(disks, Settings { policy, ..Settings::new(code) }).await;
        for (name, code, expected) in [("plain", None, expected), ("coded", Some(code), None)] {
            let made = world.objects.create_bucket(name, "me", code).await.expect("a new bucket");
            assert_eq!((made.policy, made.code), (expected, code), "{name}, {disks} disks, {policy:?}");
            assert_eq!(world.objects.bucket(name).await.expect("it is there").policy, expected);
        }
    }
    // With disks enough for neither of its codes no bucket is made.
    let settings = Settings { policy: FirstPolicy::This(wide), ..Settings::new(code) };
    let world = World::with(6, Settings { policy: FirstPolicy::None, ..settings.clone() }).await;
    let objects = Objects::new(world.env.clone(), world.meta.clone(), world.stripes.clone(), settings);
    let error = objects.create_bucket("plain", "me", None).await.expect_err("15 chunks, 6 disks");
    assert!(matches!(error, ObjectError::TooFewDisks { needed: 15, available: 6, .. }), "{error}");
    assert!(objects.bucket("plain").await.is_err());
}

// Test of: [clay §2]
#[tokio::test]
async fn clay_objects_of_any_length_from_256_kib_on_repair_for_2_58_bytes_a_lost_byte() {
    let world = World::new(6, "clay:4+2:5").await;
    for bytes in [256 << 10, 263_000, 300_000, 400_000, 700_000, 1_000_000, 2_400_000, 5_000_000] {
        world.put("key", &pattern(bytes as u64, bytes)).await.expect("room");
        let object = world.object("key").await.expect("there");
        let (mut read, mut rebuilt) = (0, 0);
        for stripe in object.stripes() {
            for index in 0..stripe.places.len() as u16 {
                let mut lost = stripe.clone();
                lost.places[usize::from(index)] = None;
                let index = claystone_code::ChunkIndex(index);
                let unpaced = claystone_stripe::Unpaced;
                let spare = world.stripes.rebuild(&lost, &[index], &unpaced).await.expect("one loss");
                read += spare.bytes_read;
                rebuilt += spare.bytes_rebuilt;
            }
        }
        assert!(read as f64 / rebuilt as f64 <= 2.58, "{bytes} bytes: {read} read for {rebuilt} lost");
    }
}
