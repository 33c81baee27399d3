//! Buckets whose redundancy follows heat, over stores in memory, in simulated time.

mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use claystone_chunk::testing::Faults;
use claystone_chunk::{ByteRange, DiskId};
use claystone_code::ChunkIndex;
use claystone_keeper::{ConversionError, Overall, Settings, Space, Why};
use claystone_meta::{
    BucketRecords, Completed, DiskRecords, DiskState, HeatPolicy, HeatRecords, MetaError, NewContent, NewObject,
    NewPart, ObjectRecords, PRESETS, PartRecord, Precondition, StripeRecord, UploadId, UploadRecord, UploadRecords,
    VersionRef, Versioning,
};
use claystone_stripe::Stripes;
use support::adaptive::{
    BYTES, COPIES_RSM, SMALL_RSM, on_nodes, settings, stripe_settings, with_policy, with_settings,
};

#[test]
fn what_is_read_little_becomes_compact_and_what_is_read_much_fast_again() {
    with_policy(9, SMALL_RSM, |store| async move {
        for key in ["a", "b", "c", "d", "e", "f"] {
            store.put(key, BYTES).await;
        }
        assert_eq!(store.settle().await, 0);
        assert!(matches!(store.why("a").await, Why::Young { seconds_left: 540..=600 }));
        // Over the bound, of which nothing can be converted yet: that is said.
        let over = "bucket b takes 166.7 % of its data, more than its bound of 160 %";
        let status = store.keeper.status().await.expect("the database answers");
        let of = &status.policies[0];
        assert_eq!((of.young_bytes, of.waiting_bytes), (of.fast_bytes, 0));
        assert!(status.waiting.iter().any(|said| said.starts_with(over)), "{:?}", status.waiting);
        store.age().await;
        // Fast stripes take 167 %, compact ones 133 %.
        store.read("c").await;
        let status = store.keeper.status().await.expect("the database answers");
        assert_eq!((status.policies[0].percent.round(), status.policies[0].percent_max), (167.0, 160));
        assert!(matches!(store.why("a").await, Why::Cold { sources: 2, .. }));
        assert_eq!(store.settle().await, 2, "c is warm, and so one of the others has no partner");
        assert_eq!(store.overall_codes().await, [("rsm:3+2".to_owned(), 2), ("rsm:6+2".to_owned(), 2)]);
        assert_eq!(store.code("c").await, "rsm:3+2");
        assert!(matches!(store.why("c").await, Why::Warm { .. }));
        let status = store.keeper.status().await.expect("the database answers");
        let of = &status.policies[0];
        assert_eq!((of.percent.round(), of.conversions_left, of.other_bytes), (144.0, 0, 0));
        assert!(status.waiting.is_empty(), "{:?}", status.waiting);
        assert_eq!((of.fast_bytes, of.compact_bytes), ((2 * 5) << 16, (2 * 8) << 16));
        assert_eq!((status.conversions.merged, status.conversions.split), (2, 0));
        assert_eq!(status.conversions.saved_bytes, 4 << 16);
        assert_eq!(status.overall, Overall::Healthy);

        // A merged one is read much: both halves become fast, which takes 155 %.
        let hot = ["a", "b", "d", "e", "f"];
        let mut merged = Vec::new();
        for key in hot {
            if store.code(key).await == "rsm:6+2" {
                merged.push(key);
            }
        }
        store.age().await;
        assert!(matches!(store.why(merged[0]).await, Why::Cool { .. }));
        for _ in 0..4 {
            store.read(merged[0]).await;
        }
        assert!(matches!(store.why(merged[0]).await, Why::Hot { heat, .. } if heat > 1.9));
        assert_eq!(store.settle().await, 1);
        assert_eq!(store.code(merged[0]).await, "rsm:3+2");
        for key in ["a", "b", "c", "d", "e", "f"] {
            store.read(key).await;
        }
        // It all cools, and is made compact as far as there are partners.
        store.env.clock.sleep(Duration::from_secs(10 * 3600)).await;
        assert!(store.settle().await > 0);
        assert_eq!(store.overall_codes().await, [("rsm:6+2".to_owned(), 3)]);
        assert_eq!(store.meta.check().await.expect("readable"), Vec::<String>::new());
    });
}

#[test]
fn heat_is_kept_over_a_restart_and_what_was_not_written_is_lost() {
    with_policy(9, SMALL_RSM, |store| async move {
        store.put("a", BYTES).await;
        store.put("b", BYTES).await;
        for _ in 0..4 {
            store.read("a").await;
        }
        assert_eq!(store.keeper.write_heats().await.expect("room"), 1);
        assert_eq!(store.keeper.write_heats().await.expect("room"), 0, "nothing changed");
        store.read("b").await;
        store.env.clock.sleep(Duration::from_secs(3600)).await;

        let (stripes, reports) = Stripes::new(store.env.clone(), store.stripes.stores().clone(), stripe_settings());
        let keeper = support::keeper(&store.env, &store.meta, &stripes, reports, settings());
        keeper.load_heats().await.expect("readable");
        let now = store.env.clock.wall();
        let heat = |stripe| stripes.heats().of(stripe, now);
        let (a, b) = (store.span("a").await.stripe.id, store.span("b").await.stripe.id);
        assert!((heat(a) - 2.0).abs() < 0.01, "{}", heat(a));
        assert_eq!(heat(b), 0.0);

        // However much was counted, all of it is written.
        (0..40_000).for_each(|id| stripes.heats().read(claystone_chunk::StripeId(id), 1, 1, now));
        assert_eq!(keeper.write_heats().await.expect("room"), 40_000);

        // With the stripe its heat goes.
        store.delete("a").await;
        store.settle().await;
        assert_eq!(store.meta.heats(None, 9).await.expect("readable"), []);
        stripes.heats().read(a, 1, 1, now);
        keeper.write_heats().await.expect("room");
        assert_eq!((stripes.heats().of(a, now), store.meta.heats(None, 9).await.expect("readable")), (0.0, vec![]));
    });
}

/// A store that is restarted more often than stripes count as new converts all the same: what they were read is in the records.
#[test]
fn after_a_restart_what_is_old_waits_only_until_lost_reads_would_show() {
    with_policy(9, SMALL_RSM, |store| async move {
        store.put("a", BYTES).await;
        store.put("b", BYTES).await;
        store.age().await;
        store.put("c", BYTES).await;
        let restart = || {
            let (stripes, reports) = Stripes::new(store.env.clone(), store.stripes.stores().clone(), stripe_settings());
            support::keeper(&store.env, &store.meta, &stripes, reports, settings())
        };
        let why = async |keeper: &claystone_keeper::Keeper, key| {
            keeper.explain_policy("b", Some(key)).await.expect("it is there").stripes[0].why
        };
        let keeper = restart();
        assert!(matches!(why(&keeper, "a").await, Why::Young { seconds_left: 290..=300 }));
        store.env.clock.sleep(Duration::from_secs(301)).await;
        assert!(matches!(why(&keeper, "a").await, Why::Cold { sources: 2, .. }));
        assert!(matches!(why(&keeper, "c").await, Why::Young { .. }), "it is new");
        assert_eq!(keeper.convert_once().await.expect("the database answers").merged, 1);
    });
}

#[test]
fn a_conversion_inherits_heat() {
    with_policy(9, SMALL_RSM, |store| async move {
        store.put("a", BYTES).await;
        store.put("b", BYTES).await;
        for _ in 0..3 {
            store.read("a").await;
        }
        store.read("b").await;
        let sources = [store.span("a").await.stripe.id, store.span("b").await.stripe.id];
        let merged = store.keeper.convert(&sources, store.policy.compact).await.expect("disks enough");
        let now = store.env.clock.wall();
        let heat = |stripe| store.stripes.heats().of(stripe, now);
        assert!((heat(merged[0].id) - 2.0).abs() < 0.01);
        assert_eq!(sources.map(heat), [0.0, 0.0]);
        let halves = store.keeper.convert(&[merged[0].id], store.policy.fast).await.expect("disks enough");
        assert!(halves.iter().all(|half| (heat(half.id) - 2.0).abs() < 0.01));
    });
}

/// What a merge leaves where it is was read back before, and new parity is before it is named.
#[test]
fn what_is_made_of_verified_stripes_is_verified_and_not_read_again() {
    with_policy(9, SMALL_RSM, |store| async move {
        for key in ["a", "b"] {
            store.put(key, BYTES).await;
        }
        store.settle().await;
        let verified = [store.span("a").await.stripe.verified, store.span("b").await.stripe.verified];
        store.age().await;
        for key in ["c", "d"] {
            store.put(key, BYTES).await;
        }
        assert_eq!(store.keeper.convert_once().await.expect("the database answers").merged, 1);
        assert_eq!(store.span("a").await.stripe.verified, verified.into_iter().min().expect("two"));
        assert_eq!(store.keeper.scrub_once().await.expect("the database answers").verified, 2, "of c and d");
        let halves = store.keeper.convert(&[store.span("a").await.stripe.id], store.policy.fast).await;
        assert!(halves.expect("disks enough").iter().all(|half| half.verified == verified[0].min(verified[1])));
        // What nobody has read back is before it is merged.
        store.put("e", BYTES).await;
        let mixed = [store.span("d").await.stripe.id, store.span("e").await.stripe.id];
        let mixed = store.keeper.convert(&mixed, store.policy.compact).await.expect("disks enough");
        assert!(mixed[0].verified.is_some());
        assert_eq!(store.keeper.scrub_once().await.expect("the database answers").verified, 0);
        assert_eq!(store.overall().await, Overall::Healthy);
    });
}

/// Data that a merge leaves where it is was not read for it: a scrub that began before reads it all the same.
#[test]
fn a_scrub_goes_through_what_was_merged_since_it_began() {
    with_policy(9, SMALL_RSM, |store| async move {
        for key in ["a", "b"] {
            store.put(key, BYTES).await;
        }
        store.settle().await;
        store.age().await;
        store.keeper.start_scrub().await.expect("the database answers");
        store.env.clock.sleep(Duration::from_secs(1)).await;
        let stripe = store.span("a").await.stripe;
        let place = stripe.places[1].expect("it is whole");
        let chunk = stripe.chunk_id(ChunkIndex(1)).expect("it is whole");
        store.memory[place.disk.0 as usize - 1].lose_sector(chunk, 3);
        assert_eq!(store.keeper.convert_once().await.expect("the database answers").merged, 1);
        while store.keeper.scrub_report().is_some_and(|report| !report.finished) {
            store.keeper.scrub_once().await.expect("the database answers");
        }
        let report = store.keeper.scrub_report().expect("it was asked for");
        assert_eq!((report.stripes, report.chunks_damaged), (1, 1));
    });
}

#[test]
fn a_conversion_that_fails_is_left_alone_for_a_while() {
    with_policy(9, SMALL_RSM, |store| async move {
        store.put("a", BYTES).await;
        store.put("b", BYTES).await;
        store.age().await;
        let before = store.live().await;
        store
            .faulty
            .iter()
            .for_each(|disk| disk.set(Faults { writes_fail: Some("a test".to_owned()), ..Faults::default() }));
        let round = store.keeper.convert_once().await.expect("the database answers");
        assert_eq!((round.merged, round.failed), (0, 1));
        store.faulty.iter().for_each(|disk| disk.set(Faults::default()));
        let round = store.keeper.convert_once().await.expect("the database answers");
        assert_eq!((round.merged, round.failed, round.left), (0, 0, 0));
        assert_eq!(store.why("a").await, Why::Waits);
        assert_eq!(store.live().await, before);
        store.read("a").await;
        store.keeper.disks_changed();
        assert!(matches!(store.why("b").await, Why::OverBound { .. }), "a was read, but 167 % are too much");
        store.env.clock.sleep(Duration::from_secs(5 * 3600)).await;
        assert_eq!(store.settle().await, 1);
    });
}

#[test]
fn a_merged_stripe_of_which_half_is_deleted_is_split() {
    with_policy(9, SMALL_RSM, |store| async move {
        store.put("a", BYTES).await;
        store.put("b", BYTES).await;
        store.age().await;
        assert_eq!(store.settle().await, 1);
        store.delete("a").await;
        store.age().await;
        assert!(matches!(store.why("b").await, Why::BandsDead { dead: 1, bands: 2 }));
        assert_eq!(store.settle().await, 1);
        assert_eq!(store.overall_codes().await, [("rsm:3+2".to_owned(), 1)]);
        store.read("b").await;
        assert_eq!(store.memory.iter().map(|memory| memory.ids().len()).sum::<usize>(), 5, "the other half is gone");
    });
}

#[test]
fn mirrored_stripes_become_clay_and_mirrored_again_if_they_have_whole_rows() {
    let row = 6 << 16;
    with_policy(9, "mirror:6x3/clay:6+2:7<=400%,0.25..1.00", |store| async move {
        store.put("whole", 2 * row).await;
        store.put("short", row + 5000).await;
        store.age().await;
        assert_eq!(store.settle().await, 1);
        assert_eq!([store.code("whole").await, store.code("short").await], ["clay:6+2:7", "mirror:6x3"]);
        assert!(matches!(store.why("short").await, Why::ShortRow { .. }));
        store.age().await;
        for _ in 0..2 {
            store.read("whole").await;
        }
        assert_eq!(store.settle().await, 1);
        assert_eq!(store.code("whole").await, "mirror:6x3");
        store.read("whole").await;
        store.read("short").await;
        assert_eq!(store.overall().await, Overall::Healthy);
    });
}

/// On exactly so many disks a merge has no choice: lanes must have left it the right ones.
#[test]
fn every_preset_converts_there_and_back_on_as_few_disks_as_it_says() {
    for preset in PRESETS {
        let policy = HeatPolicy { percent_max: 400, ..HeatPolicy::named(preset.name).expect("a preset") };
        let row = usize::from(policy.fast.shape().data) << 16;
        with_policy(policy.disks_min().into(), &policy.to_string(), |store| async move {
            let keys: Vec<String> = (0..2 * policy.sources()).map(|key| key.to_string()).collect();
            for key in &keys {
                store.put(key, row).await;
            }
            store.age().await;
            assert_eq!(store.settle().await, 2, "{}", preset.name);
            assert_eq!(store.overall_codes().await, [(policy.compact.to_string(), 2)]);
            store.age().await;
            for _ in 0..2 * policy.sources() {
                store.read(&keys[0]).await;
            }
            assert_eq!(store.settle().await, 1, "{}", preset.name);
            assert_eq!(store.code(&keys[0]).await, policy.fast.to_string());
            for key in &keys {
                store.read(key).await;
            }
            assert_eq!(store.meta.check().await.expect("readable"), Vec::<String>::new());
        });
    }
}

/// Fast stripes survive any three nodes, and so do compact ones: no two chunks of one come together on a node.
#[test]
fn with_two_disks_a_node_what_is_merged_survives_as_many_nodes_as_before() {
    let policy = HeatPolicy::named("rsm-6+3").expect("a preset");
    on_nodes(30, 2, policy.preset().expect("a preset").text, settings(), |store| async move {
        let keys = ["0", "1", "2", "3", "4", "5", "6", "7"];
        for key in keys {
            store.put(key, 6 << 16).await;
        }
        store.age().await;
        assert_eq!(store.settle().await, 4);
        assert_eq!(store.overall_codes().await, [("rsm:12+3".to_owned(), 4)]);
        let node = |disk: DiskId| (disk.0 - 1) / 2;
        for stripe in store.live().await {
            let nodes: BTreeSet<u128> = stripe.places.iter().flatten().map(|place| node(place.disk)).collect();
            assert_eq!(nodes.len(), 15, "each chunk is on a node of its own");
        }
        for lost in [[0, 1, 2], [3, 8, 14], [5, 6, 13]] {
            let disks: Vec<DiskId> = (1..31).map(DiskId).filter(|disk| lost.contains(&node(*disk))).collect();
            store.set_away(&disks, true);
            for key in keys {
                store.read(key).await;
            }
            store.set_away(&disks, false);
        }
    });
}

/// A copy shares the content of what it was copied from. Two buckets with one policy each want what the other has done.
#[test]
fn stripes_that_two_buckets_hold_are_planned_for_in_one_of_them() {
    with_policy(9, SMALL_RSM, |store| async move {
        let other = store.meta.create_bucket("c", "me", None, store.env.clock.wall()).await.expect("a new name").id;
        store.meta.set_policy("c", Some(store.policy)).await.expect("it is there");
        store.put("o", BYTES).await;
        store.put("p", BYTES).await;
        let found = store.meta.object("b", "o", &VersionRef::Current).await.expect("it is there").object;
        let copy = NewObject {
            bucket: other,
            key: "o".to_owned(),
            versioning: Versioning::Off,
            precondition: Precondition::None,
            content: NewContent::Shared(found.and_then(|object| object.content).expect("it has bytes")),
            bytes: BYTES as u64,
            etag: "e".to_owned(),
            created: store.env.clock.wall(),
            attributes: Vec::new(),
        };
        store.meta.put_object(copy).await.expect("room");
        store.age().await;
        assert_eq!(store.settle().await, 1, "one merge");
        for _ in 0..3 {
            store.age().await;
            assert_eq!(store.settle().await, 0, "nobody undoes it");
        }
        assert_eq!(store.overall_codes().await, [("rsm:6+2".to_owned(), 1)]);
        let explained = store.keeper.explain_policy("c", Some("o")).await.expect("it is there");
        assert_eq!(explained.stripes[0].why, Why::Elsewhere);
        // Each counts the bands that its objects hold.
        let status = store.keeper.status().await.expect("the database answers");
        let percents = status.policies.iter().map(|policy| (policy.bucket.as_str(), policy.percent.round()));
        assert_eq!(percents.collect::<Vec<_>>(), [("b", 133.0), ("c", 133.0)]);
        // When one half is held by nobody, the other is split off, and nothing more happens.
        store.delete("p").await;
        store.age().await;
        assert_eq!(store.settle().await, 1);
        assert_eq!(store.overall_codes().await, [("rsm:3+2".to_owned(), 1)]);
        store.delete("o").await;
        store.age().await;
        assert_eq!(store.settle().await, 0);
        assert_eq!(store.meta.check().await.expect("readable"), Vec::<String>::new());
    });
}

/// What was merged of objects that are far from each other lies in several parts of a large bucket.
#[test]
fn stripes_that_lie_in_several_parts_of_a_large_bucket_are_converted() {
    let parts = Settings { look_stripes_max: 2, ..settings() };
    with_settings(9, "rsm:3+2/rsm:6+2<=400%,0.25..1.00", parts, |store| async move {
        for key in ["a", "b", "c", "d", "e"] {
            store.put(key, BYTES).await;
        }
        let (first, last) = (store.span("a").await.stripe.id, store.span("d").await.stripe.id);
        store.keeper.convert(&[first, last], store.policy.compact).await.expect("they lie in two lanes");
        // Another bucket with the same policy has a copy of one.
        let other = store.meta.create_bucket("c", "me", None, store.env.clock.wall()).await.expect("a new name").id;
        store.meta.set_policy("c", Some(store.policy)).await.expect("it is there");
        let found = store.meta.object("b", "a", &VersionRef::Current).await.expect("it is there").object;
        let copy = NewObject {
            bucket: other,
            key: "copy".to_owned(),
            versioning: Versioning::Off,
            precondition: Precondition::None,
            content: NewContent::Shared(found.and_then(|object| object.content).expect("it has bytes")),
            bytes: BYTES as u64,
            etag: "e".to_owned(),
            created: store.env.clock.wall(),
            attributes: Vec::new(),
        };
        store.meta.put_object(copy).await.expect("room");
        store.age().await;
        for key in ["a", "d", "a", "d", "a", "b", "c", "e"] {
            store.read(key).await;
        }
        // In how many of the looks at parts of the bucket something is done: b, c and e are warm.
        let looks = async || {
            let mut converted = Vec::new();
            for _ in 0..6 {
                let round = store.keeper.convert_once().await.expect("the database answers");
                assert_eq!(round.failed, 0);
                converted.push(round.converted());
            }
            converted
        };
        assert_eq!(looks().await, [1, 0, 0, 0, 0, 0], "the first part that has it splits it");
        assert_eq!([store.code("a").await, store.code("d").await], ["rsm:3+2", "rsm:3+2"]);
        let explained = store.keeper.explain_policy("c", Some("copy")).await.expect("it is there");
        assert_eq!(explained.stripes[0].why, Why::Elsewhere, "the first bucket decides");
        store.age().await;
        assert_eq!(looks().await, [0; 6], "nobody undoes it");
        for key in ["a", "b", "c", "d", "e"] {
            store.read(key).await;
        }
        assert_eq!(store.meta.check().await.expect("readable"), Vec::<String>::new());
    });
}

/// Of a bucket that is looked at in parts all are told of together, when all were looked at; an object is told of beside its own part.
#[test]
fn a_large_bucket_takes_what_its_parts_take_together() {
    let parts = Settings { look_stripes_max: 2, ..settings() };
    with_settings(9, SMALL_RSM, parts, |store| async move {
        // No two of one length: nothing can be merged, and the bucket stays over its bound.
        for (key, rows) in [("a", 1), ("b", 2), ("c", 4), ("d", 3), ("e", 5)] {
            store.put(key, rows * BYTES).await;
        }
        store.age().await;
        let look = async || {
            assert_eq!(store.keeper.convert_once().await.expect("the database answers").converted(), 0);
            let status = store.keeper.status().await.expect("the database answers");
            let of = &status.policies[0];
            assert_eq!(of.percent.round(), 167.0);
            let said = status.waiting.iter().filter(|said| said.starts_with("bucket b takes 166.7 %")).count();
            (of.data_bytes / BYTES as u64, of.whole, said)
        };
        let explained = async |key| {
            let explained = store.keeper.explain_policy("b", key).await.expect("it is there");
            let rows = |space: Space| space.data_bytes / BYTES as u64;
            (explained.space.map(rows), explained.part.map(rows), explained.stripes.len())
        };
        assert_eq!(explained(Some("e")).await, (None, Some(3), 1), "where its part begins is not known yet");
        // All are looked at before any is converted.
        for _ in 0..3 {
            assert_eq!(look().await, (15, true, 1));
        }
        assert_eq!(explained(Some("b")).await, (Some(15), Some(3), 1));
        assert_eq!(explained(Some("c")).await, (Some(15), Some(7), 1));
        assert_eq!(explained(Some("e")).await, (Some(15), Some(5), 1));
        assert_eq!(explained(None).await, (Some(15), Some(3), 2));
        // Under another policy it is looked at anew, from the first part on.
        store.keeper.convert_once().await.expect("the database answers");
        let other = "rsm:3+2/rsm:6+2<=170%,0.25..1.00".parse().expect("valid");
        store.meta.set_policy("b", Some(other)).await.expect("it is there");
        let (bucket, rooms) = (store.meta.bucket("b").await.expect("it is there").id, store.stripes.rooms());
        assert!(rooms.is_known(bucket, &store.policy) && !rooms.is_known(bucket, &other));
        store.keeper.find_rooms_once().await.expect("the database answers");
        assert!(rooms.is_known(bucket, &other));
    });
}

/// What is put before the end of a part moves it: until the bucket was gone through again, what is behind the new end is in no part.
#[test]
fn room_is_found_when_a_bucket_was_gone_through_and_not_before() {
    let parts = Settings { look_stripes_max: 2, ..settings() };
    with_settings(9, "rsm:3+2/rsm:6+2<=150%,0.25..1.00", parts, |store| async move {
        let gib: u64 = 1 << 30;
        for key in ["c", "d", "e", "f"] {
            let (stripe, _claim) = store.write(BYTES).await;
            let bytes = if key < "e" { gib / 8 } else { stripe.data_bytes };
            store.commit(key, &StripeRecord { data_bytes: bytes, ..stripe }).await;
        }
        store.keeper.find_rooms_once().await.expect("the database answers");
        // Writers have an eighth of a gibibyte, of which c and d take two thirds.
        let fits = |data_bytes: u64| {
            store.stripes.rooms().take(store.bucket, &store.policy, data_bytes, [data_bytes / 3 * 5]).is_some()
        };
        assert!(fits(gib / 9) && !fits(gib / 4));
        store.put("a", BYTES).await;
        store.put("b", BYTES).await;
        for part in 0..6 {
            store.keeper.convert_once().await.expect("the database answers");
            assert!(fits(gib / 9) && !fits(gib / 4), "after part {part}");
        }
    });
}

/// What is completed while a bucket is looked at is found among its uploads, among its objects, or twice.
#[test]
fn an_upload_that_is_completed_during_a_look_takes_room_whenever_that_is() {
    let gib: u64 = 1 << 30;
    let twice = |turns: u32| {
        with_policy(9, "rsm:3+2/rsm:6+2<=150%,0.25..1.00", |store| async move {
            let id = UploadId("u".to_owned());
            let (bucket, created, etag) = (store.bucket, store.env.clock.wall(), "e".to_owned());
            let (key, attributes) = ("k".to_owned(), Vec::new());
            let upload = UploadRecord { id: id.clone(), bucket, key: key.clone(), created, attributes };
            store.meta.create_upload(upload).await.expect("begun");
            let (stripe, _claim) = store.write(BYTES).await;
            let (attributes, bytes) = (Vec::new(), gib / 8);
            let part = PartRecord { number: 1, content: None, bytes, etag: etag.clone(), created, attributes };
            let long = StripeRecord { data_bytes: bytes, ..stripe };
            store.meta.put_part(&id, part, NewContent::Stripes(vec![long.into()])).await.expect("taken");
            let object = NewObject {
                bucket,
                key,
                versioning: Versioning::Off,
                precondition: Precondition::None,
                content: NewContent::Empty,
                bytes,
                etag: etag.clone(),
                created,
                attributes: Vec::new(),
            };
            let completed = Completed { object, upload: id, parts: vec![(1, etag)] };
            let complete = async {
                for _ in 0..turns {
                    yield_once().await;
                }
                store.meta.complete_upload(completed).await.expect("it is whole");
            };
            let (looked, ()) = futures::join!(store.keeper.find_rooms_once(), complete);
            looked.expect("the database answers");
            let fits = |data_bytes: u64| {
                store.stripes.rooms().take(bucket, &store.policy, data_bytes, [data_bytes / 3 * 5]).is_some()
            };
            // Writers have an eighth of a gibibyte, and it takes a third of that.
            assert!(!fits(gib / 3), "after {turns} turns");
            !fits(gib / 5)
        })
    };
    let found: Vec<bool> = (0..100).map(twice).collect();
    assert!(!found[0] && found.contains(&true) && !found[99], "before, in the middle, and after: {found:?}");
}

/// Lets others go on.
async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

/// What a look found, and what is taken after it, is all that a bucket may take: parts of uploads count, and splits take room as writers do.
#[test]
fn writers_and_splits_share_the_room_that_a_look_finds() {
    with_policy(9, "rsm:3+2/rsm:6+2<=150%,0.25..1.00", |store| async move {
        let bucket = store.meta.bucket("b").await.expect("it is there").id;
        let (rooms, policy) = (store.stripes.rooms(), store.policy);
        let gib = 1 << 30;
        // 16.7 % of a gibibyte, of which writers have three quarters.
        let fits = |data_bytes: u64| rooms.take(bucket, &policy, data_bytes, [data_bytes / 3 * 5]).is_some();
        assert!(!fits(1 << 20), "nobody has looked");
        store.keeper.find_rooms_once().await.expect("the database answers");
        assert!(fits(gib / 3) && !fits(gib / 2));
        // A part of an upload that is fast, as long as a third of that.
        let upload = UploadRecord {
            id: UploadId("u".to_owned()),
            bucket,
            key: "k".to_owned(),
            created: store.env.clock.wall(),
            attributes: Vec::new(),
        };
        store.meta.create_upload(upload.clone()).await.expect("begun");
        let (stripe, _claim) = store.write(BYTES).await;
        let long = StripeRecord { data_bytes: gib / 8, ..stripe };
        let part = PartRecord {
            number: 1,
            content: None,
            bytes: gib / 8,
            etag: "e".to_owned(),
            created: store.env.clock.wall(),
            attributes: Vec::new(),
        };
        store.meta.put_part(&upload.id, part, NewContent::Stripes(vec![long.into()])).await.expect("taken");
        store.age().await;
        store.keeper.convert_once().await.expect("the database answers");
        assert!(fits(gib / 5) && !fits(gib / 3), "it takes room");
        store.meta.abort_upload(bucket, "k", &upload.id).await.expect("it was begun");
        store.keeper.convert_once().await.expect("the database answers");
        assert!(fits(gib / 3), "and gives it back");
    });
    // A split finds none that is all taken.
    with_policy(9, "rsm:3+2/rsm:6+2<=400%,0.25..1.00", |store| async move {
        let bucket = store.meta.bucket("b").await.expect("it is there").id;
        for key in ["a", "b"] {
            store.put(key, BYTES).await;
        }
        let ids = [store.span("a").await.stripe.id, store.span("b").await.stripe.id];
        store.keeper.convert(&ids, store.policy.compact).await.expect("they lie in two lanes");
        store.age().await;
        store.keeper.convert_once().await.expect("the database answers");
        let mut all = Some(store.stripes.rooms().take_anyway(bucket, &store.policy, 0, 3 << 30));
        for (failed, split) in [(1, 0), (0, 1)] {
            for _ in 0..9 {
                store.read("a").await;
                store.read("b").await;
            }
            let round = store.keeper.convert_once().await.expect("the database answers");
            assert_eq!((round.failed, round.split), (failed, split));
            drop(all.take());
            store.age().await;
        }
    });
}

/// What buckets, or parts of one, are charged for a pack is together what it takes.
#[test]
fn a_pack_is_shared_by_bytes_between_buckets_and_between_parts_of_one() {
    for look_stripes_max in [1, 1000] {
        let looks = Settings { look_stripes_max, ..settings() };
        with_settings(9, SMALL_RSM, looks, |store| async move {
            let other = store.meta.create_bucket("c", "me", None, store.env.clock.wall()).await.expect("a new name").id;
            store.meta.set_policy("c", Some(store.policy)).await.expect("it is there");
            let (pack, _claim) = store.write(BYTES).await;
            let sixteenth = BYTES as u64 / 16;
            let part = |offset: u64, bytes: u64| {
                let part = ByteRange { offset: offset * sixteenth, bytes: bytes * sixteenth };
                NewContent::Part(NewPart { pack: pack.clone(), wanted: store.policy.fast, part })
            };
            for (bucket, offset, bytes) in [(store.bucket, 0, 1), (store.bucket, 1, 9), (store.bucket, 10, 2)] {
                store.commit_to(bucket, &offset.to_string(), bytes * sixteenth, part(offset, bytes)).await;
            }
            for offset in 12..16 {
                store.commit_to(other, &offset.to_string(), sixteenth, part(offset, 1)).await;
            }
            store.keeper.find_rooms_once().await.expect("the database answers");
            let status = store.keeper.status().await.expect("the database answers");
            let spaces = status.policies.iter().map(|of| (of.data_bytes, of.fast_bytes, of.whole));
            assert_eq!(spaces.collect::<Vec<_>>(), [(9 << 14, 15 << 14, true), (3 << 14, 5 << 14, true)]);
        });
    }
}

/// Of packs a merge is refused when all of it is read and written, if their contents are to have different codes: it is not begun.
#[test]
fn packs_for_different_codes_are_not_read_and_written_to_be_refused() {
    with_policy(9, SMALL_RSM, |store| async move {
        // The first and the second go to two lanes, and so do the third and the fourth.
        store.put_pack("a", BYTES, "rsm:3+2").await;
        store.put_pack("b", BYTES, "rs:3+2").await;
        store.age().await;
        let before = store.moved();
        let round = store.keeper.convert_once().await.expect("the database answers");
        assert_eq!((round.merged, round.failed, round.left), (0, 0, 0));
        assert_eq!(store.moved(), before);
        assert!(matches!(store.why("a").await, Why::NoPartner { needed: 1, alike: 0 }), "{}", store.why("a").await);
        // The transaction has the last word.
        let sources = [store.span("a").await.stripe.id, store.span("b").await.stripe.id];
        let refused = store.keeper.convert(&sources, store.policy.compact).await;
        assert!(matches!(refused, Err(ConversionError::Meta(MetaError::PacksDiffer { .. }))), "{refused:?}");
        for key in ["c", "d"] {
            store.put_pack(key, BYTES, "rs:3+2").await;
        }
        store.age().await;
        assert!(store.keeper.convert_once().await.expect("the database answers").merged > 0, "they have partners");
        assert_eq!(store.code("a").await, "rsm:3+2");
        assert_eq!(store.meta.check().await.expect("readable"), Vec::<String>::new());
    });
}

#[test]
fn buckets_without_a_policy_stay_as_they_are_and_their_stripes_are_told_of() {
    with_policy(9, SMALL_RSM, |store| async move {
        store.put("a", BYTES).await;
        store.put("b", BYTES).await;
        store.meta.set_policy("b", None).await.expect("it is there");
        store.age().await;
        assert_eq!(store.settle().await, 0);
        assert_eq!(store.keeper.explain_policy("b", None).await.expect("it is there").policy, None);
        assert!(store.keeper.explain_policy("c", None).await.is_err());
        assert!(store.keeper.explain_policy("b", Some("none")).await.is_err());
        assert!(store.keeper.status().await.expect("the database answers").policies.is_empty());
        // Under another policy they are neither fast nor compact.
        store.meta.set_policy("b", HeatPolicy::named("lrc").ok()).await.expect("it is there");
        assert!(matches!(store.why("a").await, Why::OtherCode { .. }));
    });
}

#[test]
fn what_is_rebuilt_or_moved_stays_where_stripes_can_be_merged() {
    for policy in [SMALL_RSM, COPIES_RSM] {
        with_policy(15, policy, |store| async move {
            const STRIPES: u32 = 30;
            for key in 0..STRIPES {
                store.put(&key.to_string(), BYTES).await;
            }
            // Disks of the data of every second stripe.
            let lanes = async || {
                let mut lanes = [BTreeSet::new(), BTreeSet::new()];
                for key in 0..STRIPES {
                    let places = store.span(&key.to_string()).await.stripe.places;
                    lanes[key as usize % 2].extend(places[..3].iter().map(|place| place.expect("whole").disk));
                }
                lanes
            };
            let before = lanes().await;
            assert!(before[0].is_disjoint(&before[1]));
            let first = |lane: usize| *before[lane].first().expect("there are some");
            for (disk, state) in [(first(0), DiskState::Lost), (first(1), DiskState::Draining)] {
                store.keeper.set_disk_state(disk, state).await.expect("a known disk");
                while store.meta.disk_tally(disk).await.expect("a known disk").chunks > 0 {
                    let repaired = store.keeper.repair_once().await.expect("the database answers").chunks;
                    let moved = store.keeper.drain_once().await.expect("the database answers").chunks;
                    assert!(repaired + moved > 0, "nothing waits");
                }
                let now = lanes().await;
                assert!((0..2).all(|lane| now[lane].is_subset(&before[lane])), "{policy}, {state:?}: {now:?}");
            }
            for key in 0..STRIPES {
                store.read(&key.to_string()).await;
            }
        });
    }
}
