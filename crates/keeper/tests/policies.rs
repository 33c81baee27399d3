//! Buckets whose redundancy follows heat, over stores in memory, in simulated time.

mod support;

use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use claystone_chunk::testing::{Faults, pattern};
use claystone_chunk::{ChunkStore, DiskId, Durability, StoreState};
use claystone_code::ChunkIndex;
use claystone_keeper::{ConversionError, Overall, Settings, Why};
use claystone_meta::{BucketRecords, DiskState, HeatPolicy, HeatRecords, PRESETS, StripeRecord, StripeRecords};
use claystone_stripe::{Absence, Family, Member, StripeError, Stripes};
use futures::future::join;

/// The store, and what its bucket wants.
struct Store {
    store: support::Store,
    policy: HeatPolicy,
}

impl Deref for Store {
    type Target = support::Store;

    fn deref(&self) -> &support::Store {
        &self.store
    }
}

/// Runs a scenario on a bucket `b` with this policy.
fn with_policy<T, F: Future<Output = T>>(disks: usize, policy: &str, scenario: impl FnOnce(Store) -> F) -> T {
    with_settings(disks, policy, settings(), scenario)
}

fn with_settings<T, F: Future<Output = T>>(
    disks: usize,
    policy: &str,
    settings: Settings,
    scenario: impl FnOnce(Store) -> F,
) -> T {
    let policy: HeatPolicy = policy.parse().expect("valid");
    claystone_sim::run(42, |world| async move {
        let env = world.process("node").env().clone();
        let store = support::Store::new(env, disks, settings, stripe_settings()).await;
        store.meta.set_policy("b", Some(policy)).await.expect("it is there");
        scenario(Store { store, policy }).await
    })
}

fn stripe_settings() -> claystone_stripe::Settings {
    claystone_stripe::Settings { heat_half_life: Duration::from_secs(3600), ..claystone_stripe::Settings::default() }
}

fn settings() -> Settings {
    Settings {
        verify_after: Duration::ZERO,
        reclaim_after: Duration::ZERO,
        convert_after: Duration::from_secs(600),
        ..Settings::default()
    }
}

impl Store {
    /// An object of one stripe, of copies if the policy has them, else fast.
    async fn put(&self, key: &str, bytes: usize) {
        let HeatPolicy { fast, compact, .. } = self.policy;
        let (code, family) = (self.policy.fresh().unwrap_or(fast), Family { fast, compact });
        let writer = self.stripes.writer_in_lane(code, family, bytes as u64, Durability::Synced).await;
        let mut writer = writer.expect("enough disks");
        writer.append(&pattern(bytes as u64, bytes)).await.expect("stores take it");
        let (stripe, _claim) = writer.finish().await.expect("stores commit");
        self.commit(key, &stripe).await;
    }

    async fn code(&self, key: &str) -> String {
        self.span(key).await.stripe.code.to_string()
    }

    /// Reads an object whole, as the crate `object` does.
    async fn read(&self, key: &str) {
        let span = self.span(key).await;
        let bytes = span.data_bytes();
        self.stripes.heats().read(span.stripe.id, bytes, span.stripe.data_bytes, self.env.clock.wall());
        self.assert_span_reads(&span).await;
    }

    /// Bytes that all disks have read and written.
    fn moved(&self) -> (u64, u64) {
        let counts = || self.faulty.iter().map(|store| store.counts());
        (counts().map(|counts| counts.bytes_read).sum(), counts().map(|counts| counts.bytes_written).sum())
    }

    /// Takes disks away, or brings them back.
    fn set_away(&self, disks: &[DiskId], away: bool) {
        let stores = self.stripes.stores();
        for disk in disks {
            let member = stores.member(*disk).expect("a disk of this store");
            let store: Arc<dyn ChunkStore> = self.faulty[disk.0 as usize - 1].clone();
            let absence = Absence { reason: "a test".to_owned() };
            stores.put(Member { store: if away { Err(absence) } else { Ok(store) }, ..member });
        }
    }

    async fn why(&self, key: &str) -> Why {
        self.keeper.explain_policy("b", Some(key)).await.expect("it is there").stripes[0].why
    }

    async fn age(&self) {
        self.env.clock.sleep(Duration::from_secs(601)).await;
    }

    async fn settle(&self) -> u64 {
        self.store.settle().await.converted
    }

    /// Chunks that a step of repair rebuilds.
    async fn repair(&self) -> u64 {
        self.keeper.repair_once().await.expect("the database answers").chunks
    }

    async fn live(&self) -> Vec<StripeRecord> {
        self.meta.stripes(None, 99).await.expect("the database answers")
    }
}

const COPIES_RSM: &str = "replica:3/rsm:3+2/rsm:6+2<=300%,0.25..1.00";
const SMALL_RSM: &str = "rsm:3+2/rsm:6+2<=160%,0.25..1.00";
/// The length of the objects: three chunks of 64 KiB.
const BYTES: usize = 3 << 16;

#[test]
fn what_is_read_little_becomes_compact_and_what_is_read_much_fast_again() {
    with_policy(9, SMALL_RSM, |store| async move {
        for key in ["a", "b", "c", "d", "e", "f"] {
            store.put(key, BYTES).await;
        }
        assert_eq!(store.settle().await, 0);
        assert!(matches!(store.why("a").await, Why::Young { seconds_left: 540..=600 }));
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

impl Store {
    /// Live stripes by code.
    async fn overall_codes(&self) -> Vec<(String, usize)> {
        let mut codes: Vec<String> = self.live().await.iter().map(|stripe| stripe.code.to_string()).collect();
        codes.sort();
        codes.dedup();
        let live = self.live().await;
        let count = |code: &String| live.iter().filter(|stripe| stripe.code.to_string() == *code).count();
        codes.iter().map(|code| (code.clone(), count(code))).collect()
    }
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

        // With the stripe its heat goes.
        store.delete("a").await;
        store.settle().await;
        assert_eq!(store.meta.heats(None, 9).await.expect("readable"), []);
        stripes.heats().read(a, 1, 1, now);
        keeper.write_heats().await.expect("room");
        assert_eq!((stripes.heats().of(a, now), store.meta.heats(None, 9).await.expect("readable")), (0.0, vec![]));
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
            let slow = || Faults { write_delay: Duration::from_secs(1), ..Faults::default() };
            store.faulty.iter().for_each(|disk| disk.set(slow()));
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
        let policy = HeatPolicy { fresh_copies: None, ..store.policy };
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
    with_policy(9, COPIES_RSM, |store| async move {
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
            let left = before.code.tolerance_left(&away(&before));
            match converted {
                Ok(fast) => {
                    let after = fast[0].code.tolerance_left(&away(&fast[0]));
                    assert!(after >= left, "{key}: {after} after {left}");
                }
                // Of a fast stripe without both it would be none.
                Err(ConversionError::Stripe(StripeError::Exposed { before: 1, after: 0, .. })) if lost == [0, 1] => {
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

/// Copies are written where few disks have room; codes want all chunks apart, and a conversion moves no data.
#[test]
fn copies_that_were_written_on_few_disks_are_spread_when_more_have_room_and_converted_then() {
    with_policy(15, "replica:3/rsm:6+3/rsm:12+3<=300%,0.25..1.00", |store| async move {
        let set_state = |disks: std::ops::Range<usize>, state: StoreState| {
            store.memory[disks].iter().for_each(|memory| memory.set_state(state.clone()));
        };
        set_state(3..15, StoreState::ReadOnly { reason: "a test".to_owned() });
        store.put("a", 2 * BYTES).await;
        let data = |stripe: &StripeRecord| {
            stripe.places[..6].iter().map(|place| place.expect("whole").disk).collect::<BTreeSet<_>>()
        };
        assert_eq!(data(&store.span("a").await.stripe).len(), 3);
        store.settle().await;
        store.age().await;
        store.read("a").await;
        assert_eq!(store.settle().await, 0);
        assert!(matches!(store.why("a").await, Why::TooFewDisks { needed: 9, available: 3, .. }));
        set_state(3..15, StoreState::Serving);
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

impl Store {
    /// Chunks of an object's stripe are found damaged.
    async fn damage(&self, key: &str, chunks: &[u16]) {
        let record = self.span(key).await.stripe;
        let ids: Vec<_> =
            chunks.iter().map(|chunk| record.chunk_id(ChunkIndex(*chunk)).expect("it has a name")).collect();
        self.meta.mark_damaged(&ids).await.expect("the database answers");
    }

    /// Stripes that a step of repair converts, and those that it rebuilds.
    async fn converted_and_repaired(&self) -> (u64, u64) {
        let round = self.keeper.repair_once().await.expect("the database answers");
        assert_eq!((round.failed, round.conflicts), (0, 0));
        (round.converted, round.stripes)
    }
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
        let slow = || Faults { write_delay: Duration::from_secs(1), ..Faults::default() };
        store.faulty.iter().for_each(|disk| disk.set(slow()));
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
