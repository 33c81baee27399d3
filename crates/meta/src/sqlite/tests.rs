//! Tests of the SQLite implementation: conformance, corruption, crashes, a full disk.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use claystone_chunk::{ByteRange, Lease, NodeId, OwnerId, StripeId, Term};
use claystone_env::{Directory, DirectoryLock, File, Space};
use claystone_host::ThreadWorker;
use futures::future::join_all;
use rusqlite::Connection;

use super::objects::look_up_sql;
use super::{SqliteMeta, Workers, schema};
use crate::testing::{AtOnce, add_disks, at, conformance, delete, disk, empty_object, log, new_object, stripe, volume};
use crate::{
    BucketId, BucketRecords, ChunkPlace, Conversion, DiskRecords, DiskState, HeatPolicy, HeatRecord, HeatRecords, Held,
    KeyRecords, ListQuery, LogRecord, Meta, MetaError, NewContent, NewObject, NewPart, NewStripe, ObjectRecords,
    PackRecords, Precondition, Redundancy, SnapshotRecords, StripeRecords, UploadRecords, VersionRef, VolumeRecord,
    VolumeRecords,
};

mod model;
mod volumes;

#[tokio::test]
async fn a_file_conforms() {
    let directory = tempfile::tempdir().expect("a directory");
    let made = RefCell::new(Vec::new());
    conformance(async || {
        let path = directory.path().join(format!("{}.db", made.borrow().len()));
        let meta = open(&path).await;
        made.borrow_mut().push(meta.clone());
        Arc::new(meta) as Arc<dyn Meta>
    })
    .await;
    for meta in made.into_inner() {
        assert_sound(&meta).await;
    }
}

#[tokio::test]
async fn memory_conforms() {
    let made = RefCell::new(Vec::new());
    conformance(async || {
        let meta = memory().await;
        made.borrow_mut().push(meta.clone());
        Arc::new(meta) as Arc<dyn Meta>
    })
    .await;
    for meta in made.into_inner() {
        assert_sound(&meta).await;
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("meta.db");
    drop(open(&path).await);
    edit(&path, "INSERT INTO refinery_schema_history VALUES (99, 'later', '2030-01-01T00:00:00Z', '1')");
    let refused = SqliteMeta::open(&path, workers()).await;
    let known = schema::newest();
    assert!(matches!(refused, Err(MetaError::NewerSchema { found: 99, known: k }) if k == known), "{refused:?}");
    edit(&path, "DELETE FROM refinery_schema_history WHERE version = 99");
    assert_sound(&open(&path).await).await;
}

/// What schema 1 had is found unchanged, and has room for what schema 2 adds.
#[tokio::test]
async fn a_database_of_schema_1_is_brought_forward() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("meta.db");
    edit(&path, include_str!("tests/v1.sql"));
    // The second opening finds it done.
    for _ in 0..2 {
        let meta = open(&path).await;
        assert_sound(&meta).await;
        let bucket = meta.bucket("photos").await.expect("kept");
        assert_eq!((bucket.code, bucket.documents.len()), ("clay:4+2:5".parse().ok(), 1));
        let kept = [("a", 109, vec![1, 2]), ("b", 100, vec![3]), ("copy of b", 0, vec![3])];
        let kept = kept.map(|(key, tag, stripes)| (key.to_owned(), format!("etag-{tag}"), stripes));
        assert_eq!(everything(&meta, bucket.id).await, kept);
        let upload = crate::UploadId("upload".to_owned());
        assert_eq!(meta.parts(&upload, 0, 9).await.expect("kept").0.len(), 1);
        assert_eq!(meta.keys().await.expect("kept").len(), 1);
        let ids = |stripes: Vec<crate::StripeRecord>| stripes.iter().map(|stripe| stripe.id.0).collect::<Vec<_>>();
        assert_eq!(ids(meta.dead_stripes(9).await.expect("kept")), [4]);
        assert_eq!(ids(meta.degraded(9).await.expect("kept")), [1, 2]);
        let stripe = meta.stripe(claystone_chunk::StripeId(1)).await.expect("kept").expect("live");
        assert_eq!(stripe.verified, Some(at(7)));
        assert_eq!(meta.disk_tally(disk(0)).await.expect("kept").logs, 0);
        assert_eq!(meta.volumes().await.expect("a new table"), []);
    }
    let meta = open(&path).await;
    meta.create_volume(volume(1, "one", 1 << 20)).await.expect("room");
    let term = meta.take_lease(OwnerId(1)).await.expect("room").term;
    let lease = Lease { owner: OwnerId(1), term };
    let stripes = vec![(0, Some(stripe(6, "rs:4+2", 256 << 10)))];
    meta.put_volume_stripes(lease, stripes).await.expect("room");
    assert_eq!(meta.tally().await.expect("readable").stripes, 5);
    assert_sound(&meta).await;
    // Ids go on where they were.
    let made = meta.create_bucket("later", "ann", None, at(9)).await.expect("room");
    assert_eq!(made.id, BucketId(4));
}

/// What schema 2 had of volumes is found unchanged, and they can have snapshots.
#[tokio::test]
async fn a_database_of_schema_2_is_brought_forward() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("meta.db");
    edit(&path, include_str!("tests/v2.sql"));
    let one = VolumeRecord { term: Term(3), log: log(&[disk(0), disk(1)], 2), ..volume(1, "one", 1 << 20) };
    // The second opening finds it done.
    for _ in 0..2 {
        let meta = open(&path).await;
        assert_sound(&meta).await;
        assert_eq!(meta.volume("one").await.expect("kept"), one);
        let unused = meta.volume("unused").await.expect("kept");
        assert_eq!((unused.page_bytes, unused.bytes, unused.created), (1024, 4096, at(3001)));
        let stripes = meta.volume_stripes(one.id, None, 9).await.expect("kept");
        let stripes: Vec<_> = stripes.iter().map(|(position, stripe)| (*position, stripe.id.0)).collect();
        assert_eq!(stripes, [(0, 6), (3, 7)]);
        assert_eq!(meta.snapshots().await.expect("a new table"), []);
        assert_eq!(meta.disk_tally(disk(0)).await.expect("kept").logs, 1);
    }
    let meta = open(&path).await;
    let term = meta.take_lease(one.id).await.expect("room").term;
    let lease = Lease { owner: one.id, term };
    let snapshot = meta.create_snapshot(lease, "s", at(9)).await.expect("room");
    meta.clone_snapshot(snapshot.id, volume(3, "three", 1 << 20)).await.expect("room");
    meta.revert_volume(one.id, snapshot.id).await.expect("room");
    assert_eq!(meta.shared(&[6, 7].map(StripeId)).await.expect("readable"), [6, 7].map(StripeId));
    assert_sound(&meta).await;
}

/// What schema 3 had is found unchanged, and its stripes can be merged unless a volume has them.
#[tokio::test]
async fn a_database_of_schema_3_is_brought_forward() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("meta.db");
    edit(&path, include_str!("tests/v3.sql"));
    // The second opening finds it done.
    for _ in 0..2 {
        let meta = open(&path).await;
        assert_sound(&meta).await;
        let found = meta.object("photos", "a", &VersionRef::Current).await.expect("kept");
        let spans: Vec<_> = found.spans.iter().map(|span| (span.stripe.id.0, span.band, span.data_bytes())).collect();
        assert_eq!(spans, [(1, 0, 100), (2, 0, 9)]);
        let snapshot = meta.snapshot("one", "s").await.expect("kept");
        assert_eq!(meta.snapshot_stripes(snapshot.id, None, 9).await.expect("kept").len(), 1);
        assert_eq!(meta.shared(&[StripeId(6)]).await.expect("kept"), [StripeId(6)]);
    }
    let meta = open(&path).await;
    let names = meta.names_of(&[StripeId(5), StripeId(7)]).await.expect("kept");
    assert_eq!(names.iter().map(|names| names.of_volume).collect::<Vec<_>>(), [false, true]);
    let targets = vec![crate::StripeRecord { data_bytes: 256 << 10, ..stripe(70, "rs:4+2", 256 << 10) }];
    let of_volume = Conversion { sources: vec![(StripeId(7), 0)], targets };
    let refused = meta.convert(of_volume).await;
    assert!(matches!(refused, Err(MetaError::HeldByVolume { .. })), "{refused:?}");
    let targets = vec![stripe(80, "replica:2", 5)];
    meta.convert(Conversion { sources: vec![(StripeId(5), 0)], targets }).await.expect("room");
    assert_sound(&meta).await;
}

/// What schema 4 had of volumes and snapshots is found unchanged, and they can have two forms.
#[tokio::test]
async fn a_database_of_schema_4_is_brought_forward() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("meta.db");
    edit(&path, include_str!("tests/v4.sql"));
    let both: Redundancy = "replica:3/rs:4+2<=200%".parse().expect("valid");
    // The second opening finds it done.
    for _ in 0..2 {
        let meta = open(&path).await;
        assert_sound(&meta).await;
        let volumes = meta.volumes().await.expect("kept").into_iter();
        let volumes: Vec<_> = volumes.map(|volume| (volume.name, volume.redundancy.to_string())).collect();
        let expected = [("one", "rs:4+2"), ("unused", "replica:2")];
        assert_eq!(volumes, expected.map(|(name, code)| (name.to_owned(), code.to_owned())));
        let snapshot = meta.snapshot("one", "s").await.expect("kept");
        assert_eq!((snapshot.redundancy.to_string(), snapshot.bytes), ("rs:4+2".to_owned(), 1 << 20));
        assert_eq!(meta.shared(&[6, 7].map(StripeId)).await.expect("readable"), [StripeId(6)]);
    }
    let meta = open(&path).await;
    meta.set_redundancy(OwnerId(1), both).await.expect("room");
    let term = meta.take_lease(OwnerId(1)).await.expect("room").term;
    let later = meta.create_snapshot(Lease { owner: OwnerId(1), term }, "later", at(9)).await.expect("room");
    assert_eq!((meta.volume("one").await.expect("kept").redundancy, later.redundancy), (both, both));
    assert_sound(&meta).await;
}

/// What schema 5 had is found unchanged, and its stripes can be shared by parts.
#[tokio::test]
async fn a_database_of_schema_5_is_brought_forward() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("meta.db");
    edit(&path, include_str!("tests/v5.sql"));
    // The second opening finds it done.
    for _ in 0..2 {
        let meta = open(&path).await;
        assert_sound(&meta).await;
        let buckets = meta.buckets().await.expect("kept").into_iter();
        let buckets: Vec<_> = buckets.map(|bucket| (bucket.name, bucket.code.is_some())).collect();
        assert_eq!(buckets, [("empty".to_owned(), false), ("photos".to_owned(), true)]);
        let unused = meta.volume("unused").await.expect("kept").redundancy;
        assert_eq!(unused.to_string(), "replica:3/rs:4+2<=200%");
        assert_eq!(meta.thin_packs(u64::MAX >> 1, 9).await.expect("a new table"), []);
    }
    let meta = open(&path).await;
    let bucket = meta.bucket("photos").await.expect("kept").id;
    let disks = meta.disks().await.expect("kept");
    let mut pack = stripe(77, "replica:3", 9);
    for (place, disk) in pack.places.iter_mut().zip(&disks) {
        *place = place.map(|place| ChunkPlace { disk: disk.id, ..place });
    }
    let part = NewPart { pack, wanted: "rs:4+2".parse().expect("valid"), part: ByteRange { offset: 4, bytes: 5 } };
    let object = NewObject { content: NewContent::Part(part), bytes: 5, ..empty_object(bucket, "small") };
    meta.put_object(object).await.expect("room");
    assert_sound(&meta).await;
}

/// What schema 6 had is found unchanged, and it can be remembered how much its stripes are read.
#[tokio::test]
async fn a_database_of_schema_6_is_brought_forward() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("meta.db");
    edit(&path, include_str!("tests/v6.sql"));
    // The second opening finds it done.
    for _ in 0..2 {
        let meta = open(&path).await;
        assert_sound(&meta).await;
        let buckets = meta.buckets().await.expect("kept").into_iter();
        let buckets: Vec<_> = buckets.map(|bucket| (bucket.name, bucket.code.is_some(), bucket.policy)).collect();
        assert_eq!(buckets, [("empty".to_owned(), false, None), ("photos".to_owned(), true, None)]);
        let small = meta.object("photos", "small", &VersionRef::Current).await.expect("kept");
        assert_eq!(small.spans[0].held, Held::Part(ByteRange { offset: 4, bytes: 5 }));
        assert_eq!(meta.thin_packs(9, 9).await.expect("kept").len(), 1);
        assert_eq!(meta.heats(None, 9).await.expect("a new table"), []);
    }
    let meta = open(&path).await;
    let policy = HeatPolicy::named("rsm-6+3").expect("a preset");
    meta.set_policy("photos", Some(policy)).await.expect("room");
    let heat = HeatRecord { stripe: StripeId(1), count: 0.5, as_of: at(9) };
    meta.put_heats(vec![heat]).await.expect("room");
    assert_eq!(meta.bucket("photos").await.expect("kept").policy, Some(policy));
    assert_eq!(meta.heats(None, 9).await.expect("kept"), [heat]);
    assert_sound(&meta).await;
}

/// What schema 7 had is found unchanged, and what is named of its packs is counted by band.
#[tokio::test]
async fn a_database_of_schema_7_is_brought_forward() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("meta.db");
    edit(&path, include_str!("tests/v7.sql"));
    // The second opening finds it done.
    for _ in 0..2 {
        let meta = open(&path).await;
        assert_sound(&meta).await;
        let policy = meta.bucket("photos").await.expect("kept").policy.expect("kept");
        assert_eq!(policy.to_string(), "rsm:2+1/rsm:4+1<=150%,0.25..1.00");
        assert_eq!(meta.heats(None, 9).await.expect("kept").len(), 1);
        let packs = meta.thin_packs(99, 9).await.expect("kept");
        let packs: Vec<_> =
            packs.iter().map(|pack| (pack.stripe.id.0, pack.band, pack.live_bytes, pack.parts)).collect();
        assert_eq!(packs, [(77, 0, 5, 1), (90, 0, 30, 1)], "most of band 1 is named");
    }
    let meta = open(&path).await;
    let bucket = meta.bucket("photos").await.expect("kept").id;
    for key in ["merged two", "merged three"] {
        meta.delete_object(delete(bucket, key)).await.expect("room");
        assert_sound(&meta).await;
    }
    assert_eq!(meta.thin_packs(99, 9).await.expect("kept").len(), 2);
}

/// What schema 8 had is found unchanged, and a content may be shorter than its stripe.
#[tokio::test]
async fn a_database_of_schema_8_is_brought_forward() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("meta.db");
    edit(&path, include_str!("tests/v8.sql"));
    // The second opening finds it done.
    for _ in 0..2 {
        let meta = open(&path).await;
        assert_sound(&meta).await;
        let packs = meta.thin_packs(99, 9).await.expect("kept");
        let packs: Vec<_> =
            packs.iter().map(|pack| (pack.stripe.id.0, pack.band, pack.live_bytes, pack.parts)).collect();
        assert_eq!(packs, [(77, 0, 5, 1), (90, 0, 30, 1)]);
        let small = meta.object("photos", "small", &VersionRef::Current).await.expect("kept");
        assert_eq!(small.spans[0].held, Held::Part(ByteRange { offset: 4, bytes: 5 }));
    }
    let meta = open(&path).await;
    let bucket = meta.bucket("photos").await.expect("kept").id;
    let disks = meta.disks().await.expect("kept");
    let mut padded = stripe(78, "replica:3", 9);
    for (place, disk) in padded.places.iter_mut().zip(&disks) {
        *place = place.map(|place| ChunkPlace { disk: disk.id, ..place });
    }
    let content = NewContent::Stripes(vec![NewStripe { stripe: padded, bytes: 8 }]);
    meta.put_object(NewObject { content, bytes: 8, ..empty_object(bucket, "padded") }).await.expect("room");
    assert_sound(&meta).await;
    assert_eq!(
        meta.object("photos", "padded", &VersionRef::Current).await.expect("kept").spans[0].held,
        Held::First(8)
    );
}

/// What schema 9 had of logs is found unchanged, on nodes that nobody knows, and it can be said on which they are.
#[tokio::test]
async fn a_database_of_schema_9_is_brought_forward() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("meta.db");
    edit(&path, include_str!("tests/v9.sql"));
    // The second opening finds it done.
    for _ in 0..2 {
        let meta = open(&path).await;
        assert_sound(&meta).await;
        let padded = meta.object("photos", "padded", &VersionRef::Current).await.expect("kept");
        assert_eq!((padded.spans[0].stripe.id, padded.spans[0].held), (StripeId(78), Held::First(8)));
        let found = meta.volume("one").await.expect("kept").log;
        assert_eq!(found, log(&[disk(0), disk(1)], 2));
        assert!(found.may_be_all_on(&[disk(0), disk(1)].into()), "as it was");
    }
    let meta = open(&path).await;
    let term = meta.take_lease(OwnerId(1)).await.expect("room").term;
    let disks = [0, 1].map(|number| (disk(number), Some(NodeId(format!("node-{number}"))))).into();
    let on_two = LogRecord { disks, copies: 2, nodes: 2 };
    meta.set_log(Lease { owner: OwnerId(1), term }, on_two.clone()).await.expect("room");
    assert_eq!(meta.volume("one").await.expect("kept").log, on_two);
    assert_sound(&meta).await;
}

/// Each part of each pack passes through it, and temporary tables are in memory.
#[test]
fn counting_packs_by_band_sorts_nothing() {
    let connection = Connection::open_in_memory().expect("memory");
    connection.execute_batch(include_str!("tests/v7.sql")).expect("valid SQL");
    // Of enough parts, in several bands, that the sums say something.
    let parts = "WITH RECURSIVE numbers (number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number < 99) \
         INSERT INTO spans (content, position, stripe, band, first, bytes) \
         SELECT 1000 + number, 0, (SELECT stripe FROM packs), number % 3, number, 1 + number % 7 FROM numbers";
    connection.execute_batch(parts).expect("valid SQL");
    let counted = |sql: &str| {
        let mut statement = connection.prepare(sql).expect("valid SQL");
        let rows = statement.query_map([], |row| row.get::<_, String>(0)).expect("readable");
        rows.collect::<Result<Vec<_>, _>>().expect("readable")
    };
    let expected = counted(
        "SELECT printf('%s %d: %d in %d', hex(stripe), band, sum(bytes), count(*)) FROM spans \
         WHERE bytes IS NOT NULL AND stripe IN (SELECT stripe FROM packs) GROUP BY stripe, band ORDER BY 1",
    );
    let migration = include_str!("../../migrations/sqlite/V8__packs_by_band.sql");
    let mut plans = Vec::new();
    for sql in migration.split_inclusive(';') {
        if sql.contains("SELECT") {
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("valid SQL");
            let rows = statement.query_map([], |row| row.get::<_, String>(3)).expect("readable");
            plans.extend(rows.map(|row| row.expect("readable")));
        }
        connection.execute_batch(sql).expect("valid SQL");
    }
    assert!(plans.iter().all(|step| !step.contains("TEMP B-TREE")), "{plans:?}");
    assert!(plans.iter().any(|step| step.contains("INDEX spans_stripe (stripe=?)")), "{plans:?}");
    let found = counted("SELECT printf('%s %d: %d in %d', hex(stripe), band, live_bytes, parts) FROM packs ORDER BY 1");
    assert_eq!(found, expected);
    assert!(found.len() > 3, "{found:?}");
}

/// Cut short between a migration and its row of the history, a database is what it was, and the next opening brings it forward.
#[tokio::test]
async fn a_migration_that_was_cut_short_leaves_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    // Version 4 adds columns, which cannot be done twice; version 8 counts, which must not.
    for (name, from, cut) in [("3", include_str!("tests/v3.sql"), 4), ("7", include_str!("tests/v7.sql"), 8)] {
        let path = directory.path().join(format!("{name}.db"));
        edit(&path, from);
        let before = schema_and_history(&path);
        let trigger = "CREATE TRIGGER cut BEFORE INSERT ON refinery_schema_history WHEN NEW.version";
        edit(&path, &format!("{trigger} = {cut} BEGIN SELECT RAISE(ABORT, 'cut'); END"));
        let refused = SqliteMeta::open(&path, workers()).await;
        assert!(matches!(&refused, Err(MetaError::Unavailable { reason }) if reason.contains("cut")), "{refused:?}");
        edit(&path, "DROP TRIGGER cut");
        assert_eq!(schema_and_history(&path), before, "from {name}");

        let meta = open(&path).await;
        assert_sound(&meta).await;
        let packs = meta.thin_packs(99, 9).await.expect("readable");
        let parts: Vec<_> = packs.iter().map(|pack| (pack.stripe.id.0, pack.parts)).collect();
        let expected: &[_] = if name == "7" { &[(77, 1), (90, 1)] } else { &[] };
        assert_eq!(parts, expected);
    }
}

/// All that is declared, and which migrations were made.
fn schema_and_history(path: &Path) -> Vec<String> {
    let connection = Connection::open(path).expect("a database");
    let sql = "SELECT coalesce(sql, name) FROM sqlite_schema UNION ALL SELECT version || name FROM refinery_schema_history ORDER BY 1";
    let mut statement = connection.prepare(sql).expect("valid SQL");
    let rows = statement.query_map([], |row| row.get(0)).expect("readable");
    rows.collect::<Result<_, _>>().expect("readable")
}

#[tokio::test]
async fn what_is_no_database_of_ours_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("meta.db");
    for broken in ["checksum = 'x'", "checksum = ''", "applied_on = 'yesterday'"] {
        drop(open(&path).await);
        edit(&path, &format!("UPDATE refinery_schema_history SET {broken}"));
        let refused = SqliteMeta::open(&path, workers()).await;
        assert!(matches!(refused, Err(MetaError::Corrupt { .. })), "{broken}: {refused:?}");
        let right = "checksum = '1', applied_on = '2030-01-01T00:00:00Z'";
        edit(&path, &format!("UPDATE refinery_schema_history SET {right}"));
        // A migration that is not the one this program knows.
        let refused = SqliteMeta::open(&path, workers()).await;
        assert!(matches!(refused, Err(MetaError::Unavailable { .. })), "{refused:?}");
        remove_all(directory.path());
    }
    write_file(&path, &[b'x'; 8192]);
    let refused = SqliteMeta::open(&path, workers()).await;
    assert!(matches!(&refused, Err(MetaError::Corrupt { what }) if what.contains("meta.db")), "{refused:?}");
    let nowhere = directory.path().join("missing").join("meta.db");
    let refused = SqliteMeta::open(&nowhere, workers()).await;
    assert!(matches!(&refused, Err(MetaError::Unavailable { reason }) if reason.contains("missing")), "{refused:?}");
}

/// A row that cannot be read is an error of whoever meets it, and `check` finds what contradicts something else.
#[tokio::test]
async fn corrupt_rows_are_errors() {
    for (sql, seen_by_check) in [
        ("UPDATE stripes SET code = 'rs:x'", true),
        ("UPDATE stripes SET code = 'replica:2'", true),
        ("UPDATE stripes SET data_bytes = -1", true),
        ("UPDATE stripes SET data_bytes = 7", true),
        ("UPDATE stripes SET revision = -1", false),
        ("UPDATE stripes SET id = x'00'", true),
        ("DELETE FROM stripes", true),
        ("DELETE FROM chunks WHERE idx = 0", true),
        ("DELETE FROM chunks WHERE idx = 1", true),
        ("DELETE FROM chunks WHERE idx = 2", true),
        ("DELETE FROM chunks", true),
        ("UPDATE chunks SET generation = -1 WHERE idx = 1", false),
        ("DELETE FROM disks WHERE num = 2", true),
        ("UPDATE disks SET id = x'1234' WHERE num = 2", false),
        ("UPDATE objects SET bytes = -1", true),
        ("UPDATE objects SET content = NULL", true),
        ("UPDATE spans SET stripe = x'1234'", true),
        ("UPDATE spans SET band = 1", true),
        ("UPDATE stripes SET bands = '1:4,1:5'", true),
        ("UPDATE chunks SET origin = x'00000000000000000000000000000001' WHERE idx = 1", true),
        ("UPDATE buckets SET documents = x'ffffffff'", false),
        ("UPDATE buckets SET code = 'rs'", false),
    ] {
        let meta = memory().await;
        add_disks(&meta, 3).await.expect("room");
        let bucket = meta.create_bucket("photos", "ann", None, at(1)).await.expect("room");
        let object = new_object(bucket.id, "key", vec![stripe(1, "replica:3", 9)]);
        meta.put_object(object).await.expect("room");
        meta.write(move |connection| Ok(connection.execute_batch(sql)?)).await.expect(sql);
        let found = meta.object("photos", "key", &VersionRef::Current).await;
        assert!(matches!(found, Err(MetaError::Corrupt { .. })), "{sql}: {found:?}");
        let problems = meta.check().await;
        let sound = problems.as_ref().is_ok_and(Vec::is_empty);
        assert_eq!(!sound, seen_by_check, "{sql}: {problems:?}");
    }
    let meta = memory().await;
    add_disks(&meta, 1).await.expect("room");
    let sql = "UPDATE disks SET state = 4; INSERT INTO objects VALUES (1, x'61ff', 1, 'v', 0, NULL, 0, '', 0, x'')";
    meta.write(move |connection| Ok(connection.execute_batch(sql)?)).await.expect(sql);
    assert!(matches!(meta.disks().await, Err(MetaError::Corrupt { .. })));
    let all = ListQuery { limit: 9, ..ListQuery::default() };
    let listed = meta.list_objects(BucketId(1), &all).await;
    assert!(matches!(listed, Err(MetaError::Corrupt { .. })), "{listed:?}");
}

/// Reclaim deletes the chunks of stripes that `named` leaves out, so it must not leave out what it cannot read.
#[tokio::test]
async fn a_stripe_that_cannot_be_read_is_not_called_unnamed() {
    for sql in ["UPDATE stripes SET code = 'rs:x'", "UPDATE disks SET id = x'1234' WHERE num = 2"] {
        let meta = memory().await;
        add_disks(&meta, 3).await.expect("room");
        let bucket = meta.create_bucket("photos", "ann", None, at(1)).await.expect("room");
        let object = new_object(bucket.id, "key", vec![stripe(1, "replica:3", 9)]);
        meta.put_object(object).await.expect("room");
        meta.write(move |connection| Ok(connection.execute_batch(sql)?)).await.expect(sql);
        let named = meta.named(&[claystone_chunk::StripeId(1)]).await;
        assert!(matches!(named, Err(MetaError::Corrupt { .. })), "{sql}: {named:?}");
    }
}

/// Walks end at a page that is not full: a record that cannot be read must not make one.
#[tokio::test]
async fn stripes_that_cannot_be_read_leave_no_gap_in_a_page() {
    let meta = memory().await;
    add_disks(&meta, 3).await.expect("room");
    let bucket = meta.create_bucket("photos", "ann", None, at(1)).await.expect("room");
    for id in 1..=6 {
        let object = new_object(bucket.id, &format!("key {id}"), vec![stripe(id, "replica:3", 9)]);
        meta.put_object(object).await.expect("room");
    }
    let sql = "UPDATE stripes SET code = 'rs:x' WHERE id IN (SELECT id FROM stripes ORDER BY id LIMIT 2 OFFSET 1)";
    meta.write(move |connection| Ok(connection.execute_batch(sql)?)).await.expect(sql);
    let page = async |after: Option<u128>| -> (Vec<u128>, Vec<u128>) {
        let after = after.map(claystone_chunk::StripeId);
        let all = meta.stripes(after, 2).await.expect("readable");
        let disk = all[0].places[0].expect("placed").disk;
        let on_disk = meta.stripes_on(disk, after, 2).await.expect("readable");
        (all.iter().map(|stripe| stripe.id.0).collect(), on_disk.iter().map(|stripe| stripe.id.0).collect())
    };
    assert_eq!(page(None).await, (vec![1, 4], vec![1, 4]));
    assert_eq!(page(Some(4)).await, (vec![5, 6], vec![5, 6]));
    assert_eq!(page(Some(5)).await, (vec![6], vec![6]));
}

#[tokio::test]
async fn a_look_up_is_seeks_only() {
    let meta = memory().await;
    for version in [VersionRef::Current, named("v"), named("null")] {
        let sql = format!("EXPLAIN QUERY PLAN {}", look_up_sql(&version));
        let plan = meta.read(move |connection| plan_of(connection, &sql)).await.expect("valid SQL");
        assert!(plan.iter().all(|step| !step.starts_with("SCAN")), "{plan:?}");
        // The null version is not unique to the planner, so it sorts; the others must not.
        let sorts = plan.iter().any(|step| step.contains("TEMP B-TREE"));
        assert_eq!(sorts, version == named("null"), "{plan:?}");
    }
}

fn plan_of(connection: &Connection, sql: &str) -> Result<Vec<String>, super::Fault> {
    let mut statement = connection.prepare(sql)?;
    let nothing = rusqlite::params_from_iter(vec![rusqlite::types::Null; statement.parameter_count()]);
    let steps = statement.query_map(nothing, |row| row.get(3))?.collect::<Result<_, _>>()?;
    Ok(steps)
}

/// What a machine finds after a crash: the file and its log as they are on the disk between two transactions.
#[tokio::test]
async fn copies_taken_between_transactions_hold_all_that_was_answered() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("meta.db");
    let meta = open(&path).await;
    add_disks(&meta, 3).await.expect("room");
    let bucket = meta.create_bucket("photos", "ann", None, at(1)).await.expect("room").id;
    for step in 1..=20u128 {
        let key = format!("key {}", step % 7);
        if step % 5 == 0 {
            meta.delete_object(delete(bucket, &key)).await.expect("room");
        } else {
            let object = new_object(bucket, &key, vec![stripe(step, "replica:3", 5)]);
            meta.put_object(object).await.expect("room");
        }
        let copy = directory.path().join("copy.db");
        for suffix in ["", "-wal"] {
            copy_file(&with_suffix(&path, suffix), &with_suffix(&copy, suffix));
        }
        let copied = open(&copy).await;
        assert_sound(&copied).await;
        assert_eq!(everything(&copied, bucket).await, everything(&meta, bucket).await, "step {step}");
        drop(copied);
        remove_copies(directory.path());
    }
}

/// A crash while the log is written: its end is cut anywhere, and what remains is some earlier state, whole.
#[tokio::test]
async fn a_torn_log_falls_back_to_an_earlier_transaction() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("meta.db");
    let meta = open(&path).await;
    add_disks(&meta, 3).await.expect("room");
    let bucket = meta.create_bucket("photos", "ann", None, at(1)).await.expect("room").id;
    let mut states = vec![everything(&meta, bucket).await];
    for step in 1..=6u128 {
        let object = new_object(bucket, &step.to_string(), vec![stripe(step, "replica:3", 5)]);
        meta.put_object(object).await.expect("room");
        states.push(everything(&meta, bucket).await);
    }
    let log = read_file(&with_suffix(&path, "-wal"));
    let copy = directory.path().join("copy.db");
    let mut last = 0;
    // The log was begun anew at opening, so all of this is at its start. A stride that is no divisor of the frames'
    // 4,120 bytes meets headers, middles and ends of frames.
    for cut in (0..600_000).step_by(13_711) {
        copy_file(&path, &copy);
        write_file(&with_suffix(&copy, "-wal"), &log[..cut]);
        let torn = open(&copy).await;
        assert_sound(&torn).await;
        let state = everything(&torn, bucket).await;
        let found = states.iter().position(|known| *known == state);
        let found = found.unwrap_or_else(|| panic!("cut at {cut}: a state that never was: {state:?}"));
        assert!(found >= last, "cut at {cut}: less than a shorter log had");
        last = found;
        drop(torn);
        remove_copies(directory.path());
    }
    assert_eq!(last, states.len() - 1);
}

#[tokio::test]
async fn a_full_disk_changes_nothing_and_deletes_make_room() {
    let directory = tempfile::tempdir().expect("a directory");
    let meta = open(&directory.path().join("meta.db")).await;
    let free = Arc::new(Free::default());
    meta.watch_space(free.clone());
    add_disks(&meta, 6).await.expect("room");
    let bucket = meta.create_bucket("photos", "ann", None, at(1)).await.expect("room").id;
    // Small ones, then large ones: deleting the small ones rebalances b-trees and frees no whole page.
    let put = |number: u128| {
        let stripes = vec![stripe(number << 90, "rs:4+2", 5)];
        let object = new_object(bucket, &number.to_string(), stripes);
        let attributes = vec![7; if number < 500 { 10 } else { 3_000 }];
        meta.put_object(NewObject { attributes, ..object })
    };
    let mut there = Vec::new();
    // A batch without room fails whole: end with single ones, until the last page is taken.
    for size in [20, 1] {
        fill(&mut there, size, &put).await;
    }
    assert!(there.len() > 500, "the free pages were not used");
    assert_sound(&meta).await;
    assert_eq!(meta.tally().await.expect("reads work").stripes, there.len() as u64);
    for wave in there.chunks(20) {
        let deletes = wave.iter().map(|number| meta.delete_object(delete(bucket, &number.to_string())));
        assert!(join_all(deletes).await.iter().all(Result::is_ok), "deletes work");
    }
    let dead = meta.dead_stripes(10_000).await.expect("reads work");
    let dead: Vec<_> = dead.iter().map(|stripe| stripe.id).collect();
    assert_eq!(dead.len(), there.len());
    meta.forget(&dead).await.expect("reclaim works");

    put(20_000).await.expect("there is room again");
    free.0.store(1 << 40, Ordering::Relaxed);
    let twice = 30_000..30_000 + 2 * there.len() as u128;
    assert!(join_all(twice.map(put)).await.iter().all(Result::is_ok), "the file system has room again");
    assert_sound(&meta).await;
}

/// Puts objects in waves of `size` until one is refused for want of room.
async fn fill<F: Future<Output = Result<crate::PutOutcome, MetaError>>>(
    there: &mut Vec<u128>,
    size: u128,
    put: &impl Fn(u128) -> F,
) {
    let mut refused = false;
    while !refused {
        let wave = there.len() as u128..there.len() as u128 + size;
        for (number, result) in wave.clone().zip(join_all(wave.map(put)).await) {
            match result {
                Ok(_) => there.push(number),
                Err(MetaError::Full) => refused = true,
                Err(other) => panic!("expected Full, got {other:?}"),
            }
        }
        assert!(there.len() < 10_000, "the database grows without room");
    }
}

/// A transaction that needs more than one step of growth.
#[tokio::test]
async fn a_huge_transaction_finds_its_room() {
    let directory = tempfile::tempdir().expect("a directory");
    let meta = open(&directory.path().join("meta.db")).await;
    let bucket = meta.create_bucket("photos", "ann", None, at(1)).await.expect("room").id;
    let attributes = vec![7; 9 << 20];
    let object = NewObject { attributes: attributes.clone(), ..empty_object(bucket, "key") };
    meta.put_object(object).await.expect("room");
    let found = meta.object("photos", "key", &VersionRef::Current).await.expect("readable");
    assert_eq!(found.object.expect("just written").attributes, attributes);
    assert_sound(&meta).await;
}

/// A file system of which only the room is known.
#[derive(Default)]
struct Free(AtomicU64);

impl Directory for Free {
    fn label(&self) -> String {
        "free".to_owned()
    }
    fn create(&self, _: &str) -> io::Result<Arc<dyn File>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn open(&self, _: &str) -> io::Result<Arc<dyn File>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn make_dir(&self, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn list(&self, _: &str) -> io::Result<Vec<String>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn remove(&self, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn sync_dir(&self, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn sync_all(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn lock(&self) -> io::Result<DirectoryLock> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn space(&self) -> io::Result<Space> {
        Ok(Space { total_bytes: 1 << 40, free_bytes: self.0.load(Ordering::Relaxed) })
    }
}

#[tokio::test]
async fn room_for_deletes_is_taken_at_the_beginning_and_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("meta.db");
    for _ in 0..2 {
        let meta = open(&path).await;
        let free = meta.read(|connection| {
            let pages: u32 = connection.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
            Ok(pages)
        });
        let free = free.await.expect("readable");
        assert!((900..1_000).contains(&free), "{free} free pages");
        drop(meta);
        assert!(file_bytes(&with_suffix(&path, "-wal")) >= 4_096_000, "the log stays after a clean end");
    }
}

#[tokio::test]
async fn a_released_migration_stays_as_it_is() {
    let checksums = schema::checksums();
    assert_eq!(
        checksums,
        [
            200_889_557_653_799_058,
            7_881_312_822_103_663_045,
            9_937_519_419_812_333_580,
            637_406_902_911_531_143,
            12_456_603_188_253_690_301,
            4_713_118_909_432_552_011,
            7_565_034_958_947_740_910,
            16_510_345_812_332_137_002,
            11_458_439_174_604_692_456,
            2_769_219_937_553_255_669,
        ]
    );
}

#[tokio::test]
async fn snapshots_are_whole_databases() {
    let directory = tempfile::tempdir().expect("a directory");
    let copy = directory.path().join("copy.db");
    for meta in [memory().await, open(&directory.path().join("meta.db")).await] {
        add_disks(&meta, 3).await.expect("room");
        let bucket = meta.create_bucket("photos", "ann", None, at(1)).await.expect("room").id;
        let object = new_object(bucket, "key", vec![stripe(1, "replica:3", 9)]);
        meta.put_object(object).await.expect("room");
        meta.snapshot_to(&copy).await.expect("room");
        let exists = meta.snapshot_to(&copy).await;
        assert!(matches!(exists, Err(MetaError::Unavailable { .. })), "{exists:?}");
        meta.put_object(empty_object(bucket, "later")).await.expect("the store goes on");

        let snapshot = open(&copy).await;
        assert_sound(&snapshot).await;
        assert_eq!(everything(&snapshot, bucket).await.len(), 1);
        // Ids go on where they were, so that nothing given out is used again.
        assert!(snapshot.delete_bucket("photos").await.is_err());
        drop(snapshot);
        remove_copies(directory.path());
    }
}

#[tokio::test]
async fn of_many_writers_at_once_one_wins_and_all_are_heard() {
    let directory = tempfile::tempdir().expect("a directory");
    let meta = open(&directory.path().join("meta.db")).await;
    add_disks(&meta, 3).await.expect("room");
    let bucket = meta.create_bucket("photos", "ann", None, at(1)).await.expect("room").id;
    let writes = (0..300u128).map(|caller| {
        let stripes = vec![stripe(caller, "replica:3", 5)];
        let object = new_object(bucket, &format!("{}", caller % 100), stripes);
        meta.put_object(NewObject { precondition: Precondition::Absent, ..object })
    });
    let results = join_all(writes).await;
    let won = results.iter().filter(|result| result.is_ok()).count();
    let lost = |result: &Result<_, _>| matches!(result, Err(MetaError::PreconditionFailed { .. }));
    assert_eq!((won, results.iter().filter(|result| lost(result)).count()), (100, 200));
    assert_eq!(meta.tally().await.expect("readable").stripes, 100);
    assert_sound(&meta).await;
}

#[tokio::test]
async fn a_stopped_worker_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let writer = Arc::new(ThreadWorker::start("writer", 1).expect("a thread"));
    let readers = Arc::new(ThreadWorker::start("reader", 1).expect("a thread"));
    let workers = Workers { writer: writer.clone(), readers: readers.clone() };
    let path = directory.path().join("meta.db");
    let meta = SqliteMeta::open(&path, workers).await.expect("a new file");
    writer.stop();
    readers.stop();
    let written = meta.create_bucket("photos", "ann", None, at(1)).await;
    assert!(matches!(written, Err(MetaError::Unavailable { .. })), "{written:?}");
    let read = meta.buckets().await;
    assert!(matches!(read, Err(MetaError::Unavailable { .. })), "{read:?}");
}

#[tokio::test]
async fn a_code_that_cannot_be_read_keeps_no_disk_from_changing_its_state() {
    for sql in
        ["UPDATE stripes SET code = 'rs:x'", "UPDATE stripes SET code = 'replica:2'", "UPDATE stripes SET code = 7"]
    {
        let meta = memory().await;
        add_disks(&meta, 3).await.expect("room");
        let bucket = meta.create_bucket("photos", "ann", None, at(1)).await.expect("room");
        meta.put_object(new_object(bucket.id, "key", vec![stripe(1, "replica:3", 9)])).await.expect("room");
        meta.write(move |connection| Ok(connection.execute_batch(sql)?)).await.expect(sql);
        meta.set_disk_state(disk(2), DiskState::Lost).await.expect(sql);
        let tally = meta.tally().await.expect(sql);
        assert_eq!((tally.chunks_lost, tally.degraded_by_tolerance_left), (1, vec![0, 1]), "{sql}");
    }
}

async fn memory() -> SqliteMeta {
    SqliteMeta::in_memory(Arc::new(AtOnce)).await.expect("memory")
}

async fn open(path: &Path) -> SqliteMeta {
    SqliteMeta::open(path, workers()).await.expect("a database")
}

fn workers() -> Workers {
    let start = |name: &str, threads| ThreadWorker::start(name, threads).expect("threads");
    Workers { writer: Arc::new(start("writer", 1)), readers: Arc::new(start("reader", 2)) }
}

fn named(version: &str) -> VersionRef {
    VersionRef::Named(crate::VersionName(version.to_owned()))
}

async fn assert_sound(meta: &SqliteMeta) {
    let problems = meta.check().await.expect("readable");
    assert!(problems.is_empty(), "{problems:?}");
}

/// Keys, tags and stripes of all objects.
async fn everything(meta: &SqliteMeta, bucket: BucketId) -> Vec<(String, String, Vec<u128>)> {
    let all = ListQuery { limit: 1_000, versions: true, ..ListQuery::default() };
    let mut found = Vec::new();
    for object in meta.list_objects(bucket, &all).await.expect("readable").entries {
        let one = meta.object("photos", &object.key, &VersionRef::Named(object.version)).await;
        let stripes = one.expect("readable").stripes();
        let stripes = stripes.iter().map(|stripe| stripe.id.0).collect();
        found.push((object.key, object.etag, stripes));
    }
    found
}

fn edit(path: &Path, sql: &str) {
    let connection = Connection::open(path).expect("a database");
    connection.execute_batch(sql).expect("valid SQL");
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

#[expect(clippy::disallowed_methods, reason = "a crash is made from outside")]
fn copy_file(from: &Path, to: &Path) {
    std::fs::copy(from, to).expect("both are in the test's directory");
}

#[expect(clippy::disallowed_methods, reason = "a crash is made from outside")]
fn read_file(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("it is in the test's directory")
}

fn file_bytes(path: &Path) -> usize {
    read_file(path).len()
}

#[expect(clippy::disallowed_methods, reason = "a crash is made from outside")]
fn write_file(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("it is in the test's directory");
}

fn remove_copies(directory: &Path) {
    remove(directory, "copy.db");
}

fn remove_all(directory: &Path) {
    remove(directory, "");
}

#[expect(clippy::disallowed_methods, reason = "a crash is made from outside")]
fn remove(directory: &Path, prefix: &str) {
    for entry in std::fs::read_dir(directory).expect("the test's directory") {
        let entry = entry.expect("the test's directory");
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            std::fs::remove_file(entry.path()).expect("the test's file");
        }
    }
}
