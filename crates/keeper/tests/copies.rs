//! What is new in a bucket with a policy may be copies: how they are encoded, merged and spread.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use claystone_chunk::testing::{Faults, MemoryStore};
use claystone_chunk::{DiskId, StoreState};
use claystone_code::ChunkIndex;
use claystone_keeper::{ConversionError, Overall, Settings, Why};
use claystone_meta::{BucketRecords, ChunkPlace, DiskState, HeatPolicy, StripeRecord};
use claystone_stripe::{Member, StripeError};
use futures::future::join;
use support::adaptive::{BYTES, COPIES_RSM, HYBRID_RSM, SMALL_RSM, Store, settings, with_policy, with_settings};

/// From copies to fast to compact to fast, with bytes counted at the stores.
#[test]
fn copies_are_encoded_where_they_lie_when_they_are_no_longer_new() {
    with_policy(9, COPIES_RSM, |store| async move {
        store.put("a", BYTES).await;
        store.put("b", BYTES).await;
        assert_eq!(store.overall_codes().await, [("mirror:3x3".to_owned(), 2)]);
        assert_eq!(store.settle().await, 0);
        assert!(matches!(store.why("a").await, Why::Young { .. }));
        store.age().await;
        store.read("a").await;
        store.read("b").await;
        let status = store.keeper.status().await.expect("the database answers");
        assert_eq!((status.policies[0].fresh_bytes, status.policies[0].percent), ((2 * 9) << 16, 300.0));
        assert!(matches!(store.why("a").await, Why::Settled { .. }));
        let places = |stripe: &StripeRecord| stripe.places[..3].to_vec();
        let before = store.span("a").await.stripe;
        let (read, written) = store.moved();
        let round = store.keeper.convert_once().await.expect("the database answers");
        assert_eq!((round.encoded, round.merged, round.split), (2, 0, 0));
        let (read_after, written_after) = store.moved();
        // Three data chunks are read of each, and two parities written.
        assert_eq!((read_after - read, written_after - written), ((2 * 3) << 16, (2 * 2) << 16));
        let after = store.span("a").await.stripe;
        assert_eq!((after.code.to_string().as_str(), places(&after)), ("rsm:3+2", places(&before)));
        store.read("a").await;
        store.settle().await;
        assert_eq!(store.memory.iter().map(|memory| memory.ids().len()).sum::<usize>(), 10, "the copies are gone");
        let status = store.keeper.status().await.expect("the database answers");
        assert_eq!((status.conversions.encoded, status.conversions.saved_bytes), (2, (2 * (9 - 5)) << 16));
        assert_eq!(status.policies[0].fresh_bytes, 0);
        store.env.clock.sleep(Duration::from_secs(10 * 3600)).await;
        assert_eq!(store.settle().await, 1, "their data chunks lay in two lanes");
        assert_eq!(store.overall_codes().await, [("rsm:6+2".to_owned(), 1)]);
        store.age().await;
        for _ in 0..6 {
            store.read("b").await;
        }
        assert_eq!(store.settle().await, 1);
        assert_eq!(store.overall_codes().await, [("rsm:3+2".to_owned(), 2)]);
        assert_eq!(store.meta.check().await.expect("readable"), Vec::<String>::new());
    });
}

/// With the parity there from the first, no byte is moved when copies are dropped, and parity alone when stripes are merged.
#[test]
fn copies_beside_parity_are_dropped_when_they_are_no_longer_new() {
    for read_before in [true, false] {
        with_policy(9, HYBRID_RSM, |store| async move {
            store.put("a", BYTES).await;
            store.put("b", BYTES).await;
            assert_eq!(store.overall_codes().await, [("hybrid:rsm:3+2x2".to_owned(), 2)]);
            store.settle().await;
            store.age().await;
            if read_before {
                store.read("a").await;
                store.read("b").await;
            }
            let status = store.keeper.status().await.expect("the database answers");
            assert_eq!(status.policies[0].fresh_bytes, (2 * 8) << 16);
            let places = |stripe: &StripeRecord| stripe.places[..5].to_vec();
            let before = places(&store.span("a").await.stripe);
            let (read, written) = store.moved();
            let round = store.keeper.convert_once().await.expect("the database answers");
            let (read_after, written_after) = store.moved();
            let moved = (read_after - read, written_after - written);
            store.settle().await;
            let chunks = store.memory.iter().map(|memory| memory.ids().len()).sum::<usize>();
            if read_before {
                assert_eq!((round.encoded, round.merged), (2, 0));
                assert_eq!((moved, chunks), ((0, 0), 2 * 5));
                assert_eq!(places(&store.span("a").await.stripe), before, "parity stays too");
            } else {
                assert_eq!((round.encoded, round.merged), (0, 1), "their data chunks lie in two lanes");
                assert_eq!((moved, chunks), (((2 * 2) << 16, 2 << 16), 8));
            }
            store.read("a").await;
            store.read("b").await;
            assert_eq!(store.meta.check().await.expect("readable"), Vec::<String>::new());
        });
    }
}

/// Every change of a store takes a second, so conversions one after another take as many times as long as one.
#[test]
fn as_many_conversions_as_repairs_go_on_at_once_and_the_pace_stays() {
    const STRIPES: u64 = 12;
    let seconds = |repair_concurrency, bytes_per_second_max| {
        let settings = Settings { repair_concurrency, bytes_per_second_max, ..settings() };
        with_settings(9, COPIES_RSM, settings, |store| async move {
            for key in 0..STRIPES {
                store.put(&key.to_string(), BYTES).await;
            }
            store.age().await;
            for key in 0..STRIPES {
                store.read(&key.to_string()).await;
            }
            store.slow_down();
            let began = store.env.clock.now();
            let round = store.keeper.convert_once().await.expect("the database answers");
            let took = store.env.clock.now().since(began);
            store.faulty.iter().for_each(|disk| disk.set(Faults::default()));
            assert_eq!((round.encoded, round.failed, round.left), (STRIPES, 0, 0));
            assert_eq!(store.overall_codes().await, [("rsm:3+2".to_owned(), STRIPES as usize)]);
            for key in 0..STRIPES {
                store.read(&key.to_string()).await;
            }
            assert_eq!(store.meta.check().await.expect("readable"), Vec::<String>::new());
            took.as_secs_f64()
        })
    };
    let one = seconds(1, None);
    assert!(one >= STRIPES as f64, "{one}");
    let four = seconds(4, None);
    assert!((four / one - 0.25).abs() < 0.01, "{one} and {four}");
    // Each reads three chunks of 64 KiB, and writes two.
    let bytes = STRIPES * (3 + 2) * (64 << 10);
    let paced = seconds(4, Some(bytes / 600));
    assert!(paced > 540.0, "{paced}");
}

#[test]
fn copies_of_an_earlier_policy_are_merged_by_where_they_lie_and_encoded_where_they_end() {
    with_policy(9, COPIES_RSM, |store| async move {
        for key in ["a", "b", "c", "d"] {
            store.put(key, BYTES).await;
        }
        store.meta.set_policy("b", Some(SMALL_RSM.parse().expect("valid"))).await.expect("it is there");
        // The coldest but for one lies in the lane of the coldest.
        for key in ["c", "b", "b", "d", "d"] {
            store.read(key).await;
        }
        store.env.clock.sleep(Duration::from_secs(5 * 3600)).await;
        let round = store.keeper.convert_once().await.expect("the database answers");
        assert_eq!((round.merged, round.encoded, round.failed), (2, 0, 0));
        assert_eq!(store.overall_codes().await, [("rsm:6+2".to_owned(), 2)]);
    });
    // What ends within a row is not cut anew: its data chunks stay.
    with_policy(14, "replica:3/rs:6+2/clay:12+2:13<=300%,0.25..1.00", |store| async move {
        store.put("short", 5000).await;
        let policy = HeatPolicy { fresh: None, ..store.policy };
        store.meta.set_policy("b", Some(policy)).await.expect("it is there");
        store.age().await;
        assert!(matches!(store.why("short").await, Why::Settled { .. }), "{:?}", store.why("short").await);
        assert_eq!(store.settle().await, 1);
        assert_eq!(store.code("short").await, "rs:6+2");
        store.read("short").await;
    });
}

#[test]
fn a_look_leads_to_so_many_conversions_and_then_to_another() {
    with_policy(5, COPIES_RSM, |store| async move {
        for key in 0..70 {
            store.put(&key.to_string(), 3).await;
        }
        store.age().await;
        let round = store.keeper.convert_once().await.expect("the database answers");
        assert_eq!((round.encoded, round.left), (64, 6));
        let round = store.keeper.convert_once().await.expect("the database answers");
        assert_eq!((round.encoded, round.left), (6, 0));
    });
}

#[test]
fn copies_that_nobody_reads_become_compact_at_once() {
    with_policy(9, COPIES_RSM, |store| async move {
        store.put("a", BYTES).await;
        store.put("b", BYTES).await;
        store.age().await;
        let (read, written) = store.moved();
        assert!(matches!(store.why("a").await, Why::Cold { sources: 2, .. }));
        let round = store.keeper.convert_once().await.expect("the database answers");
        assert_eq!((round.encoded, round.merged), (0, 1));
        let (read_after, written_after) = store.moved();
        assert_eq!((read_after - read, written_after - written), (6 << 16, 2 << 16));
        store.read("a").await;
        store.read("b").await;
        store.settle().await;
        assert_eq!(store.memory.iter().map(|memory| memory.ids().len()).sum::<usize>(), 8);
    });
}

/// Whatever chunks are lost meanwhile, a stripe survives no fewer further losses after it was encoded than before.
#[test]
fn encoding_copies_lowers_no_tolerance() {
    for policy in [COPIES_RSM, HYBRID_RSM] {
        encode_without_chunks(policy);
    }
}

fn encode_without_chunks(policy: &str) {
    with_policy(9, policy, |store| async move {
        for lost in [vec![], vec![0], vec![3], vec![0, 4], vec![0, 3], vec![6, 7], vec![0, 1]] {
            let key = format!("{lost:?}");
            store.put(&key, BYTES).await;
            let before = store.span(&key).await.stripe;
            let disks: Vec<DiskId> = lost.iter().map(|at: &usize| before.places[*at].expect("whole").disk).collect();
            let away = |stripe: &StripeRecord| -> Vec<ChunkIndex> {
                let gone = |at: &u16| stripe.places[usize::from(*at)].is_none_or(|place| disks.contains(&place.disk));
                (0..stripe.places.len() as u16).filter(gone).map(ChunkIndex).collect()
            };
            store.set_away(&disks, true);
            let converted = store.keeper.convert(&[before.id], store.policy.fast).await;
            // Copies are dropped for what they survive beyond the code.
            let left = before.code.tolerance_left(&away(&before)).min(store.policy.fast.tolerance().into());
            match converted {
                Ok(fast) => {
                    let after = fast[0].code.tolerance_left(&away(&fast[0]));
                    assert!(after >= left, "{key}: {after} after {left}");
                }
                // Of a fast stripe without them it would be less.
                Err(ConversionError::Stripe(StripeError::Exposed { before: now, after, .. }))
                    if after < now && now == left =>
                {
                    assert_eq!(store.span(&key).await.stripe, before);
                }
                Err(error) => panic!("{key}: {error}"),
            }
            store.read(&key).await;
            store.set_away(&disks, false);
            store.read(&key).await;
        }
    });
}

const COPIES_WIDE: &str = "replica:3/rsm:6+3/rsm:12+3<=300%,0.25..1.00";

impl Store {
    /// Objects as copies on the first few disks, several data chunks on one.
    async fn put_crowded(&self, few: usize, keys: &[&str], bytes: usize) {
        let others = &self.memory[few..];
        others.iter().for_each(|memory| memory.set_state(StoreState::ReadOnly { reason: "a test".to_owned() }));
        for key in keys {
            self.put(key, bytes).await;
            // Stripes are looked at in the order in which they were written.
            self.env.clock.sleep(Duration::from_millis(1)).await;
        }
        others.iter().for_each(|memory| memory.set_state(StoreState::Serving));
    }
}

/// Copies are written where few disks have room; codes want all chunks apart, and a conversion moves no data.
#[test]
fn copies_that_were_written_on_few_disks_are_spread_when_more_have_room_and_converted_then() {
    with_policy(15, COPIES_WIDE, |store| async move {
        store.put_crowded(3, &["a"], 2 * BYTES).await;
        let refuse = || StoreState::ReadOnly { reason: "a test".to_owned() };
        store.memory[3..].iter().for_each(|memory| memory.set_state(refuse()));
        let data = |stripe: &StripeRecord| {
            stripe.places[..6].iter().map(|place| place.expect("whole").disk).collect::<BTreeSet<_>>()
        };
        assert_eq!(data(&store.span("a").await.stripe).len(), 3);
        store.settle().await;
        store.age().await;
        store.read("a").await;
        assert_eq!(store.settle().await, 0);
        assert!(matches!(store.why("a").await, Why::TooFewDisks { needed: 9, available: 3, .. }));
        store.memory[3..].iter().for_each(|memory| memory.set_state(StoreState::Serving));
        assert!(matches!(store.why("a").await, Why::Crowded { .. }));
        let (read, written) = store.moved();
        let round = store.keeper.convert_once().await.expect("the database answers");
        assert_eq!((round.spread, round.encoded, round.failed), (1, 0, 0));
        let (read_after, written_after) = store.moved();
        assert_eq!((read_after - read, written_after - written), (3 << 16, 3 << 16));
        assert_eq!(data(&store.span("a").await.stripe).len(), 6);
        store.read("a").await;
        assert_eq!(store.settle().await, 1);
        assert_eq!(store.code("a").await, "rsm:6+3");
        store.read("a").await;
        assert_eq!(store.memory.iter().map(|memory| memory.ids().len()).sum::<usize>(), 9);
        assert_eq!(store.overall().await, Overall::Healthy);
    });
}

#[test]
fn a_repair_waits_for_no_more_stripes_than_are_spread_at_once() {
    with_policy(15, COPIES_WIDE, |store| async move {
        let keys: Vec<String> = (0..20).map(|key| key.to_string()).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        store.put_crowded(3, &keys, 2 * BYTES).await;
        store.put("hurt", 2 * BYTES).await;
        store.age().await;
        store.slow_down();
        let begin = store.env.clock.now();
        let repair = async {
            store.env.clock.sleep(Duration::from_millis(1500)).await;
            store.damage("hurt", &[0]).await;
            assert_eq!(store.repair().await, 1);
            store.env.clock.now().since(begin)
        };
        let (round, repaired) = join(store.keeper.convert_once(), repair).await;
        let spread = store.env.clock.now().since(begin);
        assert!(4 * repaired < spread, "repaired after {repaired:?}, spread after {spread:?}");
        assert_eq!(round.expect("the database answers").spread, 20);
    });
}

#[test]
fn what_cannot_be_spread_lets_others_go_first() {
    with_policy(9, "replica:2/rsm:3+2/rsm:6+2<=300%,0.25..1.00", |store| async move {
        let keys: Vec<String> = (0..64).map(|key| key.to_string()).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        store.put_crowded(2, &keys, 10 * BYTES).await;
        store.put_crowded(2, &["short"], 600).await;
        store.age().await;
        // Disks that have none of them have too little room for the chunks of the long ones.
        for member in store.stripes.stores().members().into_iter().filter(|member| member.record.id.0 > 2) {
            let small = MemoryStore::with_capacity(member.record.id, (1 << 20) + (1 << 16));
            store.stripes.stores().put(Member { store: Ok(Arc::new(small)), ..member });
        }
        let mut spread = Vec::new();
        for _ in 0..2 {
            let round = store.keeper.convert_once().await.expect("the database answers");
            spread.push(round.spread);
        }
        assert_eq!(spread, [0, 1]);
        assert!(matches!(store.why("0").await, Why::Crowded { .. }), "it says what it waits for");
        assert_eq!(store.keeper.convert_once().await.expect("the database answers").encoded, 1);
        store.read("short").await;
    });
}

#[test]
fn a_plan_is_not_carried_out_for_longer_because_stripes_were_spread_before() {
    with_policy(15, COPIES_WIDE, |store| async move {
        let keys: Vec<String> = (0..80).map(|key| key.to_string()).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let (crowded, apart) = keys.split_at(10);
        store.put_crowded(3, crowded, 600).await;
        for key in apart {
            store.put(key, 600).await;
        }
        store.age().await;
        for key in apart {
            store.read(key).await;
        }
        store.slow_down();
        let round = store.keeper.convert_once().await.expect("the database answers");
        assert_eq!((round.spread, round.encoded, round.left), (10, 64, 6));
    });
}

/// Eight chunks on eight disks, and one or two of these are lost for good: no disk is free for what is lost. Copies give way to data and
/// parity; what waits then is copies alone, with which the stripe is done when it is no longer new.
#[test]
fn copies_give_way_when_no_disk_is_free_and_keep_nothing_from_being_converted() {
    let pairs = (0..8).flat_map(|one| (one..8).map(move |other| [one, other]));
    for lost in pairs {
        with_policy(8, HYBRID_RSM, |store| async move {
            store.put("a", BYTES).await;
            let before = store.span("a").await.stripe;
            let (code, fast) = (before.code, store.policy.fast);
            let disks: BTreeSet<DiskId> =
                lost.iter().map(|at: &usize| before.places[*at].expect("whole").disk).collect();
            let tolerance = code.tolerance_left(&disks_chunks(&before, &disks));
            for disk in &disks {
                store.keeper.set_disk_state(*disk, DiskState::Lost).await.expect("a known disk");
            }
            store.settle().await;
            store.read("a").await;
            let after = store.span("a").await.stripe;
            let lacks = disks_chunks(&after, &disks);
            assert!(lacks.iter().all(|chunk| code.copied(*chunk).is_some()), "{lost:?}: {lacks:?}");
            assert!(code.tolerance_left(&lacks) >= tolerance, "{lost:?}: {lacks:?}");
            for (one, place) in after.places.iter().enumerate() {
                for (other, beside) in after.places.iter().enumerate().skip(one + 1) {
                    let is_beside = place.zip(*beside).is_some_and(|(place, beside)| place.disk == beside.disk);
                    let pair = [one, other].map(|at| ChunkIndex(at as u16));
                    assert!(!is_beside || code.may_share_disk(pair[0], pair[1]), "{lost:?}: {after:?}");
                }
            }
            store.age().await;
            store.read("a").await;
            let round = store.keeper.convert_once().await.expect("the database answers");
            assert_eq!((round.encoded, round.failed), (1, 0), "{lost:?}");
            store.settle().await;
            let done = store.span("a").await.stripe;
            assert_eq!((done.code, disks_chunks(&done, &disks)), (fast, vec![]), "{lost:?}");
            assert_eq!(store.overall().await, Overall::Healthy, "{lost:?}");
            store.read("a").await;
            assert_eq!(
                store.memory.iter().map(|memory| memory.ids().len()).sum::<usize>() - left_on(&store, &disks),
                5
            );
            assert_eq!(store.meta.check().await.expect("readable"), Vec::<String>::new());
        });
    }
}

/// Chunks of a stripe without a place, or on one of these disks.
fn disks_chunks(stripe: &StripeRecord, disks: &BTreeSet<DiskId>) -> Vec<ChunkIndex> {
    let lacks = |place: &Option<ChunkPlace>| place.is_none_or(|place| place.damaged || disks.contains(&place.disk));
    (0..).map(ChunkIndex).zip(&stripe.places).filter(|(_, place)| lacks(place)).map(|(index, _)| index).collect()
}

/// Chunks on disks that are lost, which nobody can delete.
fn left_on(store: &Store, disks: &BTreeSet<DiskId>) -> usize {
    disks.iter().map(|disk| store.memory[disk.0 as usize - 1].ids().len()).sum()
}

/// A chunk on a disk that is silent for a while is rebuilt at once if it is read much, but takes no place of a copy for that: it may come back.
#[test]
fn copies_give_way_neither_to_what_may_come_back_nor_to_what_only_moves() {
    with_policy(8, HYBRID_RSM, |store| async move {
        store.put("a", BYTES).await;
        let before = store.span("a").await.stripe;
        let disk = before.places[0].expect("whole").disk;
        store.set_away(&[disk], true);
        for _ in 0..9 {
            store.read("a").await;
        }
        assert_eq!(store.repair().await, 0, "no disk is free");
        store.set_away(&[disk], false);
        store.settle().await;
        assert_eq!(store.span("a").await.stripe.places, before.places);
        store.keeper.set_disk_state(disk, DiskState::Draining).await.expect("a known disk");
        let round = store.keeper.drain_once().await.expect("the database answers");
        assert_eq!((round.chunks, round.waiting_chunks), (0, 1));
        assert_eq!(store.span("a").await.stripe.places, before.places);
    });
}

/// Copies that may lie beside any other data are not rewritten in each other's place.
#[test]
fn a_mirror_without_a_free_disk_waits() {
    with_policy(3, "replica:3/rsm:2+2/rsm:4+2<=300%,0.25..1.00", |store| async move {
        store.put("a", 2 << 16).await;
        let before = store.span("a").await.stripe;
        let disk = before.places[0].expect("whole").disk;
        store.keeper.set_disk_state(disk, DiskState::Lost).await.expect("a known disk");
        assert_eq!(store.repair().await, 0, "both others have all copies");
        assert_eq!(store.span("a").await.stripe.places, before.places);
        store.read("a").await;
    });
}
