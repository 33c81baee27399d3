//! Stripes of buckets with policies that have lost chunks: what is repaired first, and what is converted first.

mod support;

use std::time::Duration;

use claystone_chunk::DiskId;
use claystone_code::ChunkIndex;
use claystone_keeper::{Overall, Settings, Why};
use claystone_meta::{BucketRecords, ChunkPlace, DiskState, HeatPolicy, StripeRecord, StripeRecords};
use claystone_stripe::Unpaced;
use futures::future::join;
use support::adaptive::{BYTES, COPIES_RSM, SMALL_RSM, settings, with_policy, with_settings};

#[test]
fn hurt_stripes_are_repaired_and_then_converted() {
    with_policy(10, SMALL_RSM, |store| async move {
        store.put("a", BYTES).await;
        store.put("b", BYTES).await;
        store.age().await;
        let disk = store.span("a").await.stripe.places[0].expect("whole").disk;
        store.keeper.set_disk_state(disk, DiskState::Lost).await.expect("a known disk");
        assert!(matches!(store.why("a").await, Why::Hurt { chunks: 1 }));
        let round = store.keeper.convert_once().await.expect("the database answers");
        assert_eq!((round.merged, round.failed, round.left), (0, 0, 0));
        assert_eq!(store.settle().await, 1);
        assert_eq!(store.overall_codes().await, [("rsm:6+2".to_owned(), 1)]);
        store.read("a").await;
        store.read("b").await;
    });
}

/// A disk is away for a minute: nothing is rebuilt before it counts as gone, but what is read.
#[test]
fn what_is_read_degraded_again_and_again_is_repaired_before_its_disk_is_given_up() {
    with_policy(10, SMALL_RSM, |store| async move {
        store.put("read", BYTES).await;
        store.put("idle", BYTES).await;
        store.settle().await;
        let first = |stripe: &StripeRecord| stripe.places[0].expect("whole").disk;
        let before = [store.span("read").await.stripe, store.span("idle").await.stripe];
        let disks: Vec<DiskId> = before.iter().map(first).collect();
        store.set_away(&disks, true);
        for _ in 0..2 {
            store.read("read").await;
        }
        assert_eq!(store.repair().await, 0, "twice is not often");
        let written = store.moved().1;
        store.read("read").await;
        assert_eq!(store.moved().1, written, "a reader writes nothing");
        store.settle().await;
        let (read, idle) = (store.span("read").await.stripe, store.span("idle").await.stripe);
        assert!(!disks.contains(&first(&read)), "its chunk is elsewhere now");
        assert_eq!(first(&idle), disks[1]);
        assert_eq!(read.places.iter().filter(|place| disks.contains(&place.expect("whole").disk)).count(), 0);
        let (before_read, _) = store.moved();
        store.read("read").await;
        assert_eq!(store.moved().0 - before_read, BYTES as u64, "as it lies");
        // The disk is back: what it has of the stripe is swept.
        store.set_away(&disks, false);
        store.keeper.disks_changed();
        store.settle().await;
        assert_eq!(store.memory.iter().map(|memory| memory.ids().len()).sum::<usize>(), 10);
        store.read("idle").await;
    });
}

#[test]
fn a_lost_copy_of_what_is_no_longer_new_is_not_repaired_but_dropped() {
    with_policy(10, COPIES_RSM, |store| async move {
        store.put("copy", BYTES).await;
        store.put("data", BYTES).await;
        store.settle().await;
        store.age().await;
        for key in ["copy", "data"] {
            store.read(key).await;
        }
        let lost = [("copy", ChunkIndex(4)), ("data", ChunkIndex(1))];
        for (key, chunk) in lost {
            let record = store.span(key).await.stripe;
            let id = record.chunk_id(chunk).expect("it has a name");
            store.meta.mark_damaged(&[id]).await.expect("the database answers");
        }
        let (read, written) = store.moved();
        let round = store.keeper.repair_once().await.expect("the database answers");
        assert_eq!((round.converted, round.stripes), (1, 1));
        assert_eq!([store.code("copy").await, store.code("data").await], ["rsm:3+2", "mirror:3x3"]);
        let (read_after, written_after) = store.moved();
        // The one reads its three data chunks and writes two parities, the other copies one chunk.
        assert_eq!((read_after - read, written_after - written), ((3 + 1) << 16, (2 + 1) << 16));
        assert_eq!(store.settle().await, 1);
        assert_eq!(store.overall_codes().await, [("rsm:3+2".to_owned(), 2)]);
        assert_eq!(store.overall().await, Overall::Healthy);
        for key in ["copy", "data"] {
            store.read(key).await;
        }
    });
}

#[test]
fn a_policy_that_cannot_be_read_holds_up_no_repair() {
    with_policy(9, COPIES_RSM, |store| async move {
        store.put("a", BYTES).await;
        store.age().await;
        store.damage("a", &[4]).await;
        let damaged = store.span("a").await.stripe;
        // Its bound is less than its codes take.
        let policy = HeatPolicy { percent_max: 101, ..store.policy };
        store.meta.set_policy("b", Some(policy)).await.expect("it is not looked at");
        assert!(store.meta.buckets().await.is_err());
        assert_eq!(store.converted_and_repaired().await, (0, 1));
        let repaired = store.meta.stripe(damaged.id).await.expect("readable").expect("it is there");
        assert!(repaired.places.iter().all(|place| place.is_some_and(|place| !place.damaged)));
    });
}

#[test]
fn a_policy_that_could_not_be_read_is_not_read_again_with_each_batch() {
    with_policy(9, COPIES_RSM, |store| async move {
        for key in ["a", "b", "c"] {
            store.put(key, BYTES).await;
        }
        store.age().await;
        store.damage("a", &[4]).await;
        let policy = HeatPolicy { percent_max: 101, ..store.policy };
        store.meta.set_policy("b", Some(policy)).await.expect("it is not looked at");
        assert_eq!(store.converted_and_repaired().await, (0, 1));
        store.meta.set_policy("b", Some(store.policy)).await.expect("what it was is not looked at");
        store.read("b").await;
        store.damage("b", &[4]).await;
        assert_eq!(store.converted_and_repaired().await, (0, 1));
        store.env.clock.sleep(Duration::from_secs(60)).await;
        store.read("c").await;
        store.damage("c", &[4]).await;
        assert_eq!(store.converted_and_repaired().await, (1, 0));
    });
}

/// Of stripes that are to be merged one gets another code meanwhile.
#[test]
fn a_conversion_that_stripes_have_outgrown_is_not_tried() {
    with_policy(10, COPIES_RSM, |store| async move {
        for key in ["a", "b", "c"] {
            store.put(key, BYTES).await;
        }
        store.age().await;
        store.read("c").await;
        let away = [store.span("a").await.stripe.places[7].expect("whole").disk];
        store.set_away(&away, true);
        // What is away is a copy of "a" and data of "b".
        assert!(matches!(store.why("a").await, Why::Settled { .. }));
        assert!(matches!(store.why("b").await, Why::Hurt { .. }));
        // Of other data than what of it is away, or it would survive no further loss.
        let places = store.span("c").await.stripe.places;
        let is_away = |place: &Option<ChunkPlace>| place.is_some_and(|place| away.contains(&place.disk));
        let gone = places.iter().position(is_away).unwrap_or(0) as u16;
        store.damage("c", &[(gone + 1) % 3]).await;
        assert_eq!(store.converted_and_repaired().await, (0, 1));
        store.set_away(&away, false);
        let recoded = store.stripes.recode(&store.span("b").await.stripe, store.policy.fast, &Unpaced).await;
        store.meta.recode(recoded.expect("disks enough").change).await.expect("nobody changed it");
        assert_eq!([store.code("a").await, store.code("b").await], ["mirror:3x3", "rsm:3+2"]);
        store.damage("a", &[7]).await;
        assert_eq!(store.converted_and_repaired().await, (0, 1));
        assert!(!matches!(store.why("b").await, Why::Waits), "nothing of it failed");
    });
}

/// Both would read less if they were converted first: copies are dropped then.
#[test]
fn what_survives_no_further_loss_waits_for_no_conversion() {
    with_policy(9, COPIES_RSM, |store| async move {
        for (key, copies, expected) in [("one", &[4][..], (1, 0)), ("both", &[4, 7], (0, 1))] {
            store.put(key, BYTES).await;
            store.age().await;
            store.read(key).await;
            store.damage(key, copies).await;
            assert_eq!(store.converted_and_repaired().await, expected, "{key}");
            store.read(key).await;
        }
    });
}

#[test]
fn a_policy_that_was_set_counts_for_the_next_repair() {
    with_policy(9, COPIES_RSM, |store| async move {
        store.put("before", BYTES).await;
        store.put("after", BYTES).await;
        store.meta.set_policy("b", None).await.expect("it is there");
        store.age().await;
        for key in ["before", "after"] {
            store.read(key).await;
        }
        store.damage("before", &[4]).await;
        assert_eq!(store.converted_and_repaired().await, (0, 1));
        store.meta.set_policy("b", Some(store.policy)).await.expect("it is there");
        store.keeper.policy_changed();
        store.damage("after", &[4]).await;
        assert_eq!(store.converted_and_repaired().await, (1, 0));
    });
}

#[test]
fn degraded_reads_are_forgotten_when_the_disk_is_back() {
    with_policy(10, SMALL_RSM, |store| async move {
        store.put("a", BYTES).await;
        store.settle().await;
        let disk = store.span("a").await.stripe.places[0].expect("whole").disk;
        store.set_away(&[disk], true);
        for _ in 0..4 {
            store.read("a").await;
        }
        store.set_away(&[disk], false);
        assert_eq!(store.repair().await, 0, "it is whole");
        store.set_away(&[disk], true);
        assert_eq!(store.repair().await, 0, "nobody reads it now");
        store.read("a").await;
        assert_eq!(store.repair().await, 0, "once is not often");
    });
}

/// Every change of a store takes a second: the repairs of all take minutes.
#[test]
fn what_turns_hot_while_others_are_repaired_is_next_after_half_a_minute() {
    with_policy(9, SMALL_RSM, |store| async move {
        const STRIPES: u64 = 80;
        for key in 0..STRIPES {
            store.put(&key.to_string(), BYTES).await;
        }
        for key in 0..STRIPES {
            store.damage(&key.to_string(), &[0]).await;
        }
        store.slow_down();
        let last = (STRIPES - 1).to_string();
        let read = async {
            store.env.clock.sleep(Duration::from_secs(1)).await;
            for _ in 0..3 {
                store.read(&last).await;
            }
        };
        let began = store.env.clock.now();
        let ((_, repaired), ()) = join(store.converted_and_repaired(), read).await;
        let took = store.env.clock.now().since(began);
        assert!((30..40).contains(&took.as_secs()), "{took:?}");
        assert!((10..STRIPES / 2).contains(&repaired), "{repaired}");
        let is_hurt = |stripe: &StripeRecord| stripe.places.iter().flatten().any(|place| place.damaged);
        assert!(is_hurt(&store.span(&last).await.stripe));
        let next = async {
            store.env.clock.sleep(Duration::from_secs(9)).await;
            assert!(!is_hurt(&store.span(&last).await.stripe), "it is the first of the next");
        };
        let ((_, left), ()) = join(store.converted_and_repaired(), next).await;
        assert_eq!(repaired + left, STRIPES);
    });
}

/// More than a batch each, of which parity of the oldest. Test of: [hacfs §4]
#[test]
fn data_is_repaired_before_parity_however_many_stripes_lack_parity() {
    with_policy(9, SMALL_RSM, |store| async move {
        for key in 0..300 {
            store.put(&key.to_string(), 3 << 12).await;
        }
        for key in 0..300 {
            store.damage(&key.to_string(), if key < 280 { &[3] } else { &[0] }).await;
        }
        let lacks_data = async || {
            let mut lack = 0;
            for key in 280..300 {
                lack +=
                    u32::from(store.span(&key.to_string()).await.stripe.places[0].is_none_or(|place| place.damaged));
            }
            lack
        };
        assert_eq!(lacks_data().await, 20);
        assert_eq!((store.repair().await, lacks_data().await), (256, 0));
        assert_eq!((store.repair().await, store.repair().await), (44, 0));
    });
}

/// The records know nothing of disks that are silent for too long; what has chunks on two of them is in danger.
#[test]
fn of_disks_that_are_given_up_the_most_endangered_stripes_are_repaired_first() {
    with_policy(9, SMALL_RSM, |store| async move {
        const STRIPES: usize = 600;
        for key in 0..STRIPES {
            store.put(&key.to_string(), 3 << 12).await;
        }
        let away = [DiskId(2), DiskId(5)];
        let on = async || {
            let mut on = [0; 3];
            for stripe in store.meta.stripes(None, STRIPES).await.expect("the database answers") {
                on[away
                    .iter()
                    .filter(|disk| stripe.places.iter().flatten().any(|place| place.disk == **disk))
                    .count()] += 1;
            }
            on
        };
        let [_, one, two] = on().await;
        // A batch by age is not all that lie on one of them, and one by danger is.
        assert!(two < 256 && two + one / 2 > 256, "{one} and {two}");
        store.set_away(&away, true);
        store.keeper.status().await.expect("the database answers");
        store.age().await;
        store.repair().await;
        assert_eq!(on().await[2], 0);
    });
}

/// A bucket that is looked at in parts: what is to be converted before it is repaired lies in the last of them.
#[test]
fn what_reads_less_is_found_in_every_part_of_a_bucket() {
    let parts = Settings { look_stripes_max: 2, ..settings() };
    with_settings(9, COPIES_RSM, parts, |store| async move {
        for key in 0..7 {
            store.put(&key.to_string(), BYTES).await;
        }
        store.age().await;
        store.read("6").await;
        store.damage("6", &[4]).await;
        assert_eq!(store.converted_and_repaired().await, (1, 0));
        assert_eq!(store.code("6").await, "rsm:3+2");
    });
}
