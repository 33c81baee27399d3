//! Objects over stores in memory and records in an in-memory database.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use claystone_chunk::testing::{Faults, FaultyStore, MemoryStore, pattern};
use claystone_chunk::{ByteRange, ChunkStore, DiskId, NodeId};
use claystone_code::{CodeSpec, ConversionGoal, plan_conversion};
use claystone_env::{Env, Space, WallTime};
use claystone_meta::{
    DeleteObject, DiskRecord, DiskRecords, DiskState, HeatPolicy, ListQuery, Meta, MetaError, Precondition, SqliteMeta,
    StripeRecord, StripeRecords, VersionName, VersionRef, Versioning,
};
use claystone_object::{
    Algorithm, Attributes, BodyError, CompletePart, Confirm, Confirmed, CopySource, Digests, NewUpload, Object,
    ObjectError, Objects, Part, Put, Settings, Written,
};
use claystone_stripe::{Member, Stores, Stripes, Unpaced};
use futures::stream::{self, StreamExt};

struct World {
    env: Env,
    objects: Objects,
    meta: Arc<SqliteMeta>,
    stripes: Stripes,
    memory: Vec<MemoryStore>,
    faulty: Vec<Arc<FaultyStore>>,
}

impl World {
    async fn new(disks: u128, code: &str) -> World {
        let env: Env = claystone_host::env().expect("an environment");
        let meta = Arc::new(SqliteMeta::in_memory(env.cpu.clone()).await.expect("an empty database"));
        let stores = Stores::default();
        let (mut memory, mut faulty) = (Vec::new(), Vec::new());
        for id in (1..=disks).map(DiskId) {
            let inner = MemoryStore::new(id);
            let store = Arc::new(FaultyStore::new(Arc::new(inner.clone()), env.clock.clone()));
            let record = DiskRecord {
                id,
                node: NodeId(id.to_string()),
                path: id.to_string(),
                state: DiskState::Active,
                added: WallTime::default(),
            };
            meta.put_disk(record.clone()).await.expect("a new disk");
            let space = Space { total_bytes: 1 << 40, free_bytes: 1 << 40 };
            let shared: Arc<dyn ChunkStore> = store.clone();
            stores.put(Member { record, store: Ok(shared), space });
            memory.push(inner);
            faulty.push(store);
        }
        let (stripes, _reports) = Stripes::new(env.clone(), stores, claystone_stripe::Settings::default());
        let settings = Settings { part_bytes_min: 1000, ..Settings::new(code.parse().expect("a valid code")) };
        let shared: Arc<dyn Meta> = meta.clone();
        let objects = Objects::new(env.clone(), shared, stripes.clone(), settings);
        objects.create_bucket("bucket", "me", None).await.expect("a new bucket");
        World { env, objects, meta, stripes, memory, faulty }
    }

    async fn put(&self, key: &str, data: &Bytes) -> Result<Written, ObjectError> {
        self.objects.put(put(key, data)).await
    }

    async fn object(&self, key: &str) -> Option<Object> {
        self.objects.find("bucket", key, &VersionRef::Current).await.expect("the bucket is there").object
    }

    async fn read(&self, object: &Object, range: Option<ByteRange>) -> Vec<u8> {
        let mut body = self.objects.read(object, range);
        let mut bytes = Vec::new();
        while let Some(piece) = body.next().await {
            bytes.extend_from_slice(&piece.expect("readable"));
        }
        bytes
    }

    async fn assert_holds(&self, key: &str, data: &[u8]) {
        let object = self.object(key).await.unwrap_or_else(|| panic!("{key} is there"));
        assert!(self.read(&object, None).await == data, "{key} holds other bytes");
    }

    /// Chunks on all disks, and those that records name.
    async fn chunks(&self) -> (usize, usize) {
        let stored = self.memory.iter().map(|store| store.ids().len()).sum();
        let live = self.meta.stripes(None, 10_000).await.expect("records");
        let dead = self.meta.dead_stripes(10_000).await.expect("records");
        (stored, live.iter().chain(&dead).map(|stripe| stripe.places.len()).sum())
    }
}

fn etag_of_md5() -> Confirm {
    Box::new(|digests: &Digests| {
        Ok(Confirmed { etag: hex::encode(&digests.values[&Algorithm::Md5]), checksums: BTreeMap::new() })
    })
}

fn put(key: &str, data: &Bytes) -> Put {
    let pieces: Vec<Bytes> =
        (0..data.len()).step_by(100_000).map(|at| data.slice(at..data.len().min(at + 100_000))).collect();
    Put {
        bucket: "bucket".to_owned(),
        key: key.to_owned(),
        versioning: Versioning::Off,
        precondition: Precondition::None,
        attributes: Attributes::default(),
        bytes: data.len() as u64,
        body: stream::iter(pieces.into_iter().map(Ok)).boxed(),
        digests: vec![Algorithm::Md5],
        confirm: etag_of_md5(),
    }
}

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
    // Eight rows of two tiles, and what is left of it.
    let (first, second) = (pattern(1, (1 << 20) + 20_000), pattern(2, (1 << 20) + 70_000));
    world.put("first", &first).await.expect("room");
    world.put("second", &second).await.expect("room");
    let stripes = |object: &Object| -> Vec<(String, u64)> {
        object.stripes().iter().map(|stripe| (stripe.code.to_string(), stripe.data_bytes)).collect()
    };
    let object = world.object("second").await.expect("there");
    assert_eq!(stripes(&object), [("rsm:2+1".to_owned(), 1 << 20), ("rsm:2+1".to_owned(), 70_000)]);
    let sources = [world.object("first").await.expect("there"), object].map(|object| object.stripes()[0].clone());
    let data = |stripe: &StripeRecord| stripe.places[..2].iter().map(|place| place.expect("whole").disk).collect();
    let disks: Vec<BTreeSet<DiskId>> = sources.iter().map(data).collect();
    assert!(disks[0].is_disjoint(&disks[1]), "{disks:?}");

    // A read of a half counts a half.
    let object = world.object("first").await.expect("there");
    world.read(&object, Some(ByteRange { offset: 0, bytes: 1 << 19 })).await;
    world.read(&object, None).await;
    let now = WallTime { unix_ms: 0 };
    assert_eq!(world.stripes.heats().of(sources[0].id, now), 1.5);
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

async fn put_all(world: &World, sizes: &[usize]) -> Vec<(String, Bytes)> {
    let bodies: Vec<(String, Bytes)> =
        sizes.iter().enumerate().map(|(at, &bytes)| (format!("small {at}"), pattern(at as u64, bytes))).collect();
    let puts = bodies.iter().map(|(key, data)| async { world.put(key, data).await.expect("room") });
    futures::future::join_all(puts).await;
    bodies
}

fn delete_of(object: &Object) -> DeleteObject {
    DeleteObject {
        bucket: object.record.bucket,
        key: object.record.key.clone(),
        version: VersionRef::Current,
        marker: None,
        precondition: Precondition::None,
        now: WallTime::default(),
    }
}

async fn stripes_of(world: &World) -> Vec<(String, u64)> {
    let stripes = world.meta.stripes(None, 10_000).await.expect("records");
    stripes.iter().map(|stripe| (stripe.code.to_string(), stripe.data_bytes)).collect()
}

#[tokio::test]
async fn small_objects_that_come_at_once_share_stripes() {
    let world = World::new(6, "rs:4+2").await;
    let sizes: Vec<usize> = (1..=100).map(|at| at * 160).collect();
    let bodies = put_all(&world, &sizes).await;
    let stripes = stripes_of(&world).await;
    assert!(stripes.len() <= 20, "a few together, how many is a matter of time: {stripes:?}");
    for (key, data) in &bodies {
        world.assert_holds(key, data).await;
        let object = world.object(key).await.expect("there");
        let range = ByteRange { offset: data.len() as u64 / 3, bytes: data.len() as u64 / 2 };
        let within = range.offset as usize..range.end() as usize;
        assert!(world.read(&object, Some(range)).await == data[within], "{key}");
    }
    // A disk is lost: parts are decoded as all else.
    world.faulty[2].set(Faults { reads_fail: Some("lost".to_owned()), ..Faults::default() });
    for (key, data) in &bodies {
        world.assert_holds(key, data).await;
    }
    assert_eq!(world.meta.check().await.expect("readable"), Vec::<String>::new());
}

#[tokio::test]
async fn a_pack_that_nobody_names_is_deleted() {
    let world = World::new(6, "rs:4+2").await;
    let mut refused = put("bad", &pattern(1, 5000));
    refused.confirm = Box::new(|_| Err(BodyError::WrongLength { declared: 1, got: 2 }));
    world.objects.put(refused).await.expect_err("refused");
    world.put("good", &pattern(3, 5000)).await.expect("room");
    let taken = Put { precondition: Precondition::Absent, ..put("good", &pattern(2, 5000)) };
    world.objects.put(taken).await.expect_err("it is there");
    // Deleted by a task of its own.
    for _ in 0..1000 {
        if world.chunks().await == (3, 3) {
            return;
        }
        tokio::task::yield_now().await;
        world.env.clock.sleep(Duration::from_millis(1)).await;
    }
    panic!("chunks stored and named: {:?}", world.chunks().await);
}

/// Bodies that came one by one are replicated; written anew together they are coded. What is deleted leaves no hole behind.
#[tokio::test]
async fn thin_packs_are_written_anew_together() {
    let world = World::new(6, "rs:4+2").await;
    let bodies: Vec<(String, Bytes)> = (0..40).map(|at| (format!("key {at}"), pattern(at, 3000))).collect();
    for (key, data) in &bodies {
        world.put(key, data).await.expect("room");
    }
    assert_eq!(stripes_of(&world).await, vec![("replica:3".to_owned(), 3000); 40]);
    let before = world.object("key 7").await.expect("there");
    let round = world.objects.repack_once().await.expect("all disks are there");
    assert_eq!((round.packs, round.parts, round.bytes_written), (40, 40, 120_000));
    assert_eq!(stripes_of(&world).await, [("rs:4+2".to_owned(), 120_000)]);
    assert!(world.read(&before, None).await == bodies[7].1, "found before, read after");
    assert_eq!(world.objects.repack_once().await.expect("readable").packs, 0, "once is enough");
    for (key, data) in &bodies {
        world.assert_holds(key, data).await;
    }
    // Half of it is worth writing the other half anew.
    for (key, _) in &bodies[..20] {
        let object = world.object(key).await.expect("there");
        world.objects.delete(delete_of(&object)).await.expect("there");
        let round = world.objects.repack_once().await.expect("readable");
        assert_eq!(round.packs, u64::from(key == "key 19"), "{key}");
    }
    assert_eq!(stripes_of(&world).await, [("rs:4+2".to_owned(), 60_000)]);
    for (key, data) in &bodies[20..] {
        world.assert_holds(key, data).await;
    }
    assert_eq!(world.meta.check().await.expect("readable"), Vec::<String>::new());
}

/// All that others have in a pack is deleted before the last body of it is named: that one is packed again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_body_whose_pack_died_is_packed_again() {
    let world = Arc::new(World::new(6, "rs:4+2").await);
    let slow = Faults { write_delay: Duration::from_millis(50), ..Faults::default() };
    world.faulty.iter().for_each(|store| store.set(slow.clone()));
    let spawn = |put: Put| {
        let objects = world.objects.clone();
        let task = async move {
            objects.put(put).await.expect("room");
        };
        world.env.tasks.spawn("put", Box::pin(task)).ended()
    };
    // While the first is written, the two behind it wait for the next pack.
    let first = spawn(put("first", &pattern(1, 4000)));
    world.env.clock.sleep(Duration::from_millis(20)).await;
    let (packed, is_packed) = std::sync::mpsc::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let confirm = etag_of_md5();
    let late = Put {
        confirm: Box::new(move |digests| {
            packed.send(()).expect("the test waits");
            may_go_on.recv().expect("the test says so");
            confirm(digests)
        }),
        ..put("late", &pattern(3, 6000))
    };
    let (late, early) = (spawn(late), spawn(put("early", &pattern(2, 5000))));
    first.await;
    early.await;
    is_packed.recv().expect("it gets there");
    let early = world.object("early").await.expect("there");
    let pack = early.stripes()[0].clone();
    assert_eq!(pack.data_bytes, 11_000, "both are in one pack");
    world.objects.delete(delete_of(&early)).await.expect("there");
    go_on.send(()).expect("it waits");
    late.await;
    world.assert_holds("late", &pattern(3, 6000)).await;
    assert_ne!(world.object("late").await.expect("there").stripes()[0].id, pack.id);
    assert_eq!(world.meta.check().await.expect("readable"), Vec::<String>::new());
}

/// A pack that cannot be read keeps no other from being written anew, and one that would lack a chunk is no gain.
#[tokio::test]
async fn packs_that_cannot_be_read_or_written_whole_are_left() {
    let world = World::new(9, "rs:4+2").await;
    let bodies: Vec<(String, Bytes)> = (0..40).map(|at| (format!("key {at}"), pattern(at, 3000))).collect();
    let room = |disks: std::ops::RangeInclusive<u128>, bytes| {
        disks.for_each(|disk| world.stripes.stores().update(DiskId(disk), |member| member.space.free_bytes = bytes));
    };
    // The first lies on three disks that are lost then.
    room(1..=6, 0);
    world.put("lost", &pattern(77, 3000)).await.expect("room");
    room(1..=6, 1 << 40);
    room(7..=9, 0);
    for (key, data) in &bodies {
        world.put(key, data).await.expect("room");
    }
    for store in &world.faulty[6..] {
        store.set(Faults { reads_fail: Some("lost".to_owned()), ..Faults::default() });
    }
    // A disk that takes no writes costs the new pack a chunk.
    world.faulty[2].set(Faults { writes_fail: Some("broken".to_owned()), ..Faults::default() });
    assert_eq!(world.objects.repack_once().await.expect("records").packs, 0);
    world.faulty[2].set(Faults::default());
    let round = world.objects.repack_once().await.expect("records");
    assert_eq!((round.packs, round.parts), (40, 40));
    for (key, data) in &bodies {
        world.assert_holds(key, data).await;
    }
    assert_eq!(stripes_of(&world).await.len(), 2, "the lost one, and one of all others");
}

/// A repack that is stopped anywhere, as the store is when it stops, leaves every body readable.
#[tokio::test]
async fn a_repack_that_is_cut_off_anywhere_loses_nothing() {
    let mut cut = 0;
    let whole = loop {
        let world = World::new(6, "rs:4+2").await;
        let bodies: Vec<(String, Bytes)> = (0..5).map(|at| (format!("key {at}"), pattern(at, 4000))).collect();
        for (key, data) in &bodies {
            world.put(key, data).await.expect("room");
        }
        let mut repack = Box::pin(world.objects.repack_once());
        let mut whole = false;
        for _ in 0..cut {
            whole = whole || futures::poll!(&mut repack).is_ready();
            if whole {
                break;
            }
            world.env.clock.sleep(Duration::from_micros(300)).await;
        }
        drop(repack);
        // Whatever was spawned or waits in the records' queue gets its time.
        world.env.clock.sleep(Duration::from_millis(10)).await;
        for (key, data) in &bodies {
            world.assert_holds(key, data).await;
        }
        assert_eq!(world.meta.check().await.expect("readable"), Vec::<String>::new());
        if whole {
            break cut;
        }
        cut += 1;
    };
    assert!(whole > 2, "cut at {whole} places");
}
