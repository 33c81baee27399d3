//! Upkeep of whole stripes over stores in memory, in simulated time: what is lost comes back, and nothing is called
//! healthy before it was read back.

mod support;

use std::time::Duration;

use claystone_chunk::testing::{Faults, pattern};
use claystone_chunk::{DiskId, Durability, Lease, OwnerId, StoreState, StripeId, Term};
use claystone_code::{ChunkIndex, CodeSpec};
use claystone_env::{PairHealth, SectorHealth, SsdState, WallTime};
use claystone_keeper::{ConversionError, JobKind, Overall, Settings};
use claystone_meta::{
    DiskRecords, DiskState, LogRecord, MetaError, ObjectRecords, SnapshotRecords, Span, StripeRecord, StripeRecords,
    UploadId, UploadRecord, UploadRecords, VersionRef, VolumeRecord, VolumeRecords,
};
use claystone_stripe::{Claim, Damage};
use support::Store;

/// Runs a scenario on a store with this many disks.
fn with_store<F: Future<Output = ()>>(disks: usize, settings: Settings, scenario: impl FnOnce(Store) -> F) {
    claystone_sim::run(42, |world| async move {
        let process = world.process("node");
        let stripe_settings = claystone_stripe::Settings::default();
        scenario(Store::new(process.env().clone(), disks, settings, stripe_settings).await).await;
    });
}

/// Nothing has to wait for its age.
fn at_once() -> Settings {
    Settings { verify_after: Duration::ZERO, reclaim_after: Duration::ZERO, ..Settings::default() }
}

impl Store {
    async fn put(&self, key: &str, code: &str, bytes: usize) -> StripeRecord {
        let (stripe, claim) = self.write(code, bytes).await;
        self.commit(key, &stripe).await;
        drop(claim);
        stripe
    }

    /// As `put`, on these disks only.
    async fn put_on(&self, disks: std::ops::RangeInclusive<u128>, key: &str, code: &str, bytes: usize) -> StripeRecord {
        let others = || (1..=self.memory.len() as u128).filter(|disk| !disks.contains(disk)).map(DiskId);
        let room =
            |bytes| others().for_each(|disk| self.stripes.stores().update(disk, |it| it.space.free_bytes = bytes));
        room(0);
        let stripe = self.put(key, code, bytes).await;
        room(1 << 40);
        stripe
    }

    async fn write(&self, code: &str, bytes: usize) -> (StripeRecord, Claim) {
        let code: CodeSpec = code.parse().expect("a valid code");
        let mut writer = self.stripes.writer(code, bytes as u64, Durability::Synced).await.expect("enough disks");
        writer.append(&pattern(bytes as u64, bytes)).await.expect("stores take it");
        writer.finish().await.expect("stores commit")
    }

    /// A volume `v`, and its first lease.
    async fn open_volume(&self) -> Lease {
        let volume = VolumeRecord {
            id: OwnerId(1),
            name: "v".to_owned(),
            bytes: 1 << 30,
            page_bytes: 4096,
            chunk_bytes: 64 << 10,
            redundancy: "rs:4+2".parse().expect("a valid code"),
            homes: Vec::new(),
            term: Term(0),
            log: LogRecord::default(),
            log_from: Term(0),
            created: self.env.clock.wall(),
        };
        self.meta.create_volume(volume).await.expect("a new name");
        let VolumeRecord { id: owner, term, .. } = self.meta.take_lease(OwnerId(1)).await.expect("it is there");
        Lease { owner, term }
    }

    async fn assert_reads(&self, key: &str) {
        self.assert_span_reads(&self.span(key).await).await;
    }

    async fn assert_stripe_reads(&self, stripe: &StripeRecord) {
        self.assert_span_reads(&Span::whole(stripe.clone())).await;
    }

    async fn stripe(&self, id: StripeId) -> StripeRecord {
        self.meta.stripe(id).await.expect("the database answers").expect("a live stripe")
    }

    async fn lose(&self, disk: usize) {
        self.keeper.set_disk_state(DiskId(disk as u128), DiskState::Lost).await.expect("a known disk");
    }

    fn set_state(&self, disk: usize, state: StoreState) {
        self.memory[disk - 1].set_state(state);
    }

    fn failed() -> StoreState {
        StoreState::Failed { reason: "pulled out by the test".to_owned() }
    }

    /// Every chunk on every disk is one that a live stripe names there.
    async fn assert_no_garbage(&self) {
        let mut named = 0;
        for stripe in self.meta.stripes(None, 1000).await.expect("the database answers") {
            for (index, place) in (0..).map(ChunkIndex).zip(&stripe.places) {
                let disk = place.as_ref().expect("it is whole").disk;
                let ids = self.memory[disk.0 as usize - 1].ids();
                assert!(ids.contains(&stripe.chunk_id(index).expect("it is whole")), "{} {index}", stripe.id);
                named += 1;
            }
        }
        assert_eq!(self.memory.iter().map(|memory| memory.ids().len()).sum::<usize>(), named);
    }
}

#[test]
fn a_lost_disk_is_rebuilt_and_healthy_is_said_only_after_everything_was_read_back() {
    with_store(7, at_once(), |store| async move {
        for nth in 0..20 {
            store.put(&format!("rs{nth}"), "rs:4+2", 1 << 20).await;
            store.put(&format!("clay{nth}"), "clay:4+2:5", 1 << 20).await;
        }
        assert_eq!(store.overall().await, Overall::Unverified { stripes: 40 });
        store.settle().await;
        assert_eq!(store.overall().await, Overall::Healthy);

        store.lose(1).await;
        let status = store.keeper.status().await.expect("the database answers");
        let lost = status.stripes.chunks_lost;
        assert!(lost > 0);
        assert_eq!(status.overall, Overall::Degraded { stripes: lost });
        assert_eq!(status.at_risk[0].tolerance_left, 1);
        let round = store.keeper.repair_once().await.expect("the database answers");
        assert_eq!((round.chunks, round.failed, round.waiting_chunks), (lost, 0, 0));
        // Rebuilt is not yet healthy: each of these stripes changed.
        assert_eq!(store.overall().await, Overall::Unverified { stripes: lost });
        store.settle().await;
        assert_eq!(store.overall().await, Overall::Healthy);

        let status = store.keeper.status().await.expect("the database answers");
        assert_eq!(status.disks.len(), 6, "nothing names the lost disk any more");
        let cost = |code: &str| {
            let totals = status.repair.iter().find(|totals| totals.code == code).expect("some were rebuilt");
            assert!(totals.large);
            totals.read_per_lost_byte().expect("some were rebuilt")
        };
        assert!((cost("rs:4+2") - 4.0).abs() < 0.001, "{}", cost("rs:4+2"));
        assert!((cost("clay:4+2:5") - 2.5).abs() < 0.001, "{}", cost("clay:4+2:5"));
        let done = status.finished.iter().find(|job| job.kind == JobKind::Repair).expect("a repair has ended");
        assert_eq!((done.done, done.left, done.finished), (lost, 0, true));
        for nth in 0..20 {
            store.assert_reads(&format!("rs{nth}")).await;
            store.assert_reads(&format!("clay{nth}")).await;
        }
    });
}

/// Merged stripes are read by old records, scrubbed, swept around, repaired and reclaimed as all others.
#[test]
fn upkeep_of_merged_stripes_is_that_of_all() {
    with_store(13, at_once(), |store| async move {
        let (fast, compact): (CodeSpec, CodeSpec) =
            ("rsm:3+2".parse().expect("valid"), "rsm:6+2".parse().expect("valid"));
        let a = store.put_on(1..=5, "a", "rsm:3+2", 3 << 16).await;
        let b = store.put_on(6..=10, "b", "rsm:3+2", (3 << 16) - 5).await;
        store.settle().await;
        let refused = store.keeper.convert(&[a.id], compact).await.map(|_| ());
        assert!(matches!(refused, Err(ConversionError::OtherCount { expected: 2, given: 1, .. })), "{refused:?}");
        let refused = store.keeper.convert(&[a.id, a.id], compact).await.map(|_| ());
        assert!(matches!(refused, Err(ConversionError::Repeated { stripe }) if stripe == a.id), "{refused:?}");

        let claim = store.stripes.claim_record(&a);
        let merged = store.keeper.convert(&[a.id, b.id], compact).await.expect("disks enough").remove(0);
        assert_eq!(store.overall().await, Overall::Healthy, "what is kept was read back, and so was what is new");
        let round = store.keeper.reclaim_once().await.expect("the database answers");
        assert_eq!((round.forgotten, round.waiting, round.orphans), (1, 1, 0), "somebody reads by the record of a");
        store.assert_stripe_reads(&a).await;
        drop(claim);
        store.keeper.request_sweep();
        let idle = store.settle().await;
        assert_eq!((idle.forgotten, idle.orphans), (1, 0));
        assert_eq!(store.overall().await, Overall::Healthy);
        store.assert_no_garbage().await;

        // A read tells of damage by the name that the chunk has.
        let (index, place) = (ChunkIndex(4), merged.places[4].expect("whole"));
        let chunk = merged.chunk_id(index).expect("whole");
        assert_eq!((chunk.stripe, chunk.index), (b.id, ChunkIndex(1)));
        store.memory[place.disk.0 as usize - 1].lose_sector(chunk, 3);
        let error = claystone_chunk::ChunkError::ChunkLost { id: chunk, reason: "a test".to_owned() };
        store.damage.send(Damage { chunk, disk: place.disk, error }).await.expect("upkeep listens");
        assert_eq!(store.keeper.damage_once().await.expect("the database answers").damaged, 1);
        assert_eq!(store.settle().await.repaired, 1);
        assert_eq!(store.stripe(merged.id).await.chunk_id(index).expect("whole").stripe, merged.id);
        // And a disk goes.
        store.lose(1 + (place.disk.0 as usize) % 13).await;
        store.settle().await;
        store.keeper.request_sweep();
        store.settle().await;
        assert_eq!(store.overall().await, Overall::Healthy);
        store.assert_reads("a").await;
        store.assert_reads("b").await;

        // One object is deleted: the other keeps the stripe. Split, each half has its own life.
        store.delete("a").await;
        store.settle().await;
        store.assert_reads("b").await;
        let halves = store.keeper.convert(&[merged.id], fast).await.expect("disks enough");
        assert_eq!(halves.len(), 2);
        store.keeper.request_sweep();
        assert_eq!(store.settle().await.orphans, 0);
        let left: Vec<_> = store.meta.stripes(None, 9).await.expect("the database answers");
        assert_eq!(left.iter().map(|stripe| stripe.id).collect::<Vec<_>>(), [halves[1].id]);
        store.assert_reads("b").await;
        assert_eq!(store.meta.check().await.expect("readable"), Vec::<String>::new());
        store.delete("b").await;
        store.settle().await;
        // What lay on the disk that was given up stays there.
        let lost = (place.disk.0 as usize) % 13;
        let chunks =
            store.memory.iter().enumerate().filter(|(at, _)| *at != lost).map(|(_, memory)| memory.ids().len());
        assert_eq!(chunks.sum::<usize>(), 0);
    });
}

#[test]
fn without_another_disk_repair_waits_and_says_so_and_goes_on_when_one_is_added() {
    with_store(6, at_once(), |mut store| async move {
        let stripe = store.put("o", "rs:4+2", 100_000).await;
        store.settle().await;
        store.lose(3).await;
        let round = store.keeper.repair_once().await.expect("the database answers");
        assert_eq!((round.chunks, round.failed, round.waiting_chunks), (0, 0, 1));
        assert_eq!(store.stripe(stripe.id).await.places, stripe.places, "nothing moves without a disk to go to");
        let status = store.keeper.status().await.expect("the database answers");
        assert!(status.waiting[0].starts_with("waiting for a disk: 1 chunk has"), "{:?}", status.waiting);
        assert_eq!(status.jobs[0].eta_seconds, None);
        store.add_disk().await;
        assert_eq!(store.settle().await.repaired, 1);
        assert_eq!(store.overall().await, Overall::Healthy);
        assert!(store.keeper.status().await.expect("the database answers").waiting.is_empty());
        store.keeper.wait_for(Some("a volume is not open".to_owned()));
        let waiting = store.keeper.status().await.expect("the database answers").waiting;
        assert_eq!(waiting, ["upkeep waits: a volume is not open"]);
        store.keeper.wait_for(None);
        assert!(store.keeper.status().await.expect("the database answers").waiting.is_empty());
    });
}

#[test]
fn an_absent_disk_is_waited_for_then_rebuilt_and_swept_when_it_returns() {
    with_store(8, at_once(), |store| async move {
        for nth in 0..10 {
            store.put(&format!("o{nth}"), "rs:4+2", 50_000).await;
        }
        store.settle().await;
        store.set_state(2, Store::failed());
        assert_eq!(store.settle().await.repaired, 0, "it may come back");
        let status = store.keeper.status().await.expect("the database answers");
        let unreachable = status.stripes.unreachable.expect("a disk does not answer");
        assert_eq!(status.overall, Overall::Degraded { stripes: unreachable.stripes });
        assert!(unreachable.stripes > 0 && unreachable.at_risk == 0);
        assert!(status.disks[1].rebuild_in_seconds.is_some_and(|left| left <= 600));
        assert!(status.disks[1].reason.as_deref().is_some_and(|reason| reason.contains("pulled out")));

        store.env.clock.sleep(Duration::from_secs(601)).await;
        assert_eq!(store.settle().await.repaired, unreachable.stripes);
        assert_eq!(store.overall().await, Overall::Healthy, "nothing is left on the absent disk");
        assert!(!store.memory[1].ids().is_empty());

        // It returns with chunks that nobody names any more.
        store.set_state(2, StoreState::Serving);
        assert_eq!(store.settle().await.orphans, unreachable.stripes);
        store.assert_no_garbage().await;
        assert_eq!(store.overall().await, Overall::Healthy);
    });
}

#[test]
fn a_disk_that_returns_in_time_costs_nothing() {
    with_store(7, at_once(), |store| async move {
        store.put("o", "rs:4+2", 50_000).await;
        store.settle().await;
        store.set_state(1, Store::failed());
        store.settle().await;
        store.env.clock.sleep(Duration::from_secs(500)).await;
        store.set_state(1, StoreState::Serving);
        store.settle().await;
        store.set_state(1, Store::failed());
        store.env.clock.sleep(Duration::from_secs(500)).await;
        // Two absences of 500 s are not one of 1,000 s.
        let idle = store.settle().await;
        assert_eq!((idle.repaired, idle.orphans), (0, 0));
    });
}

#[test]
fn rot_is_found_by_scrub_and_mended_where_it_lies() {
    with_store(6, at_once(), |store| async move {
        let stripe = store.put("o", "rs:4+2", 900_000).await;
        store.settle().await;
        let place = stripe.places[1].expect("it is whole");
        store.memory[place.disk.0 as usize - 1].lose_sector(stripe.chunk_id(ChunkIndex(1)).expect("whole"), 3);
        // Verified a moment ago: the walk has no reason to read it again.
        assert_eq!(store.settle().await.damaged, 0);
        let started = store.keeper.start_scrub().await.expect("the database answers");
        assert_eq!((started.stripes_total, started.finished), (1, false));
        let round = store.keeper.scrub_once().await.expect("the database answers");
        assert_eq!((round.looked, round.damaged, round.verified), (1, 1, 0));
        let report = store.keeper.scrub_report().expect("it was asked for");
        assert_eq!((report.finished, report.chunks_damaged, report.stripes), (true, 1, 1));
        assert_eq!(store.overall().await, Overall::Degraded { stripes: 1 });
        assert_eq!(store.settle().await.repaired, 1);
        let mended = store.stripe(stripe.id).await.places[1].expect("it is whole");
        assert_eq!((mended.disk, mended.damaged), (place.disk, false));
        assert_ne!(mended.generation, place.generation);
        assert_eq!(store.overall().await, Overall::Healthy);
        store.assert_no_garbage().await;
        store.assert_reads("o").await;
    });
}

#[test]
fn the_background_walk_reads_everything_again_within_its_cycle() {
    with_store(6, at_once(), |store| async move {
        for nth in 0..10 {
            store.put(&format!("o{nth}"), "rs:4+2", 1000).await;
        }
        assert_eq!(store.settle().await.verified, 10);
        store.env.clock.sleep(Duration::from_secs(6 * 86_400)).await;
        assert_eq!(store.settle().await.verified, 0);
        store.env.clock.sleep(Duration::from_secs(8 * 86_400)).await;
        assert_eq!(store.settle().await.verified, 10);
    });
}

#[test]
fn a_report_condemns_a_chunk_only_if_a_second_look_confirms_it() {
    with_store(7, at_once(), |store| async move {
        let stripe = store.put("o", "rs:4+2", 100_000).await;
        store.settle().await;
        let chunk = stripe.chunk_id(ChunkIndex(0)).expect("it is whole");
        let disk = stripe.places[0].expect("it is whole").disk;
        let report = |disk| Damage { chunk, disk, error: claystone_chunk::ChunkError::NotFound { id: chunk } };

        store.damage.try_send(report(disk)).expect("there is room");
        // About a disk that it is not on: stale.
        store.damage.try_send(report(DiskId(99))).expect("there is room");
        let round = store.keeper.damage_once().await.expect("the database answers");
        assert_eq!((round.damaged, round.soft, round.stale), (0, 1, 1));
        let status = store.keeper.status().await.expect("the database answers");
        assert_eq!(status.disks[disk.0 as usize - 1].soft_errors, 1);
        assert_eq!(status.overall, Overall::Healthy);

        // A disk that answers nothing proves nothing.
        let faulty = &store.faulty[disk.0 as usize - 1];
        faulty.set(Faults { reads_fail: Some("a cable".to_owned()), ..Faults::default() });
        store.damage.try_send(report(disk)).expect("there is room");
        assert_eq!(store.keeper.damage_once().await.expect("the database answers").damaged, 0);
        faulty.set(Faults::default());

        store.memory[disk.0 as usize - 1].wipe();
        store.damage.try_send(report(disk)).expect("there is room");
        assert_eq!(store.keeper.damage_once().await.expect("the database answers").damaged, 1);
        assert_eq!(store.settle().await.repaired, 1);
        assert_eq!(store.overall().await, Overall::Healthy);
    });
}

#[test]
fn a_drained_disk_is_emptied_removed_and_every_object_still_reads() {
    with_store(7, at_once(), |store| async move {
        for nth in 0..10 {
            store.put(&format!("o{nth}"), "rs:4+2", 70_000).await;
        }
        store.settle().await;
        let chunks = store.memory[0].ids().len() as u64;
        assert!(chunks > 0);
        store.keeper.set_disk_state(DiskId(1), DiskState::Draining).await.expect("a known disk");
        let round = store.keeper.drain_once().await.expect("the database answers");
        assert_eq!((round.chunks, round.removed, round.waiting_chunks), (chunks, 1, 0));
        assert!(store.memory[0].ids().is_empty());
        store.settle().await;
        assert_eq!(store.overall().await, Overall::Healthy);
        let status = store.keeper.status().await.expect("the database answers");
        assert_eq!(status.disks.len(), 6);
        assert!(status.repair.is_empty(), "a move is no repair");
        store.assert_no_garbage().await;
        for nth in 0..10 {
            store.assert_reads(&format!("o{nth}")).await;
        }
    });
}

#[test]
fn a_drain_without_another_disk_waits() {
    with_store(6, at_once(), |store| async move {
        store.put("o", "rs:4+2", 70_000).await;
        store.keeper.set_disk_state(DiskId(1), DiskState::Draining).await.expect("a known disk");
        let round = store.keeper.drain_once().await.expect("the database answers");
        assert_eq!((round.chunks, round.removed, round.waiting_chunks), (0, 0, 1));
        let status = store.keeper.status().await.expect("the database answers");
        assert!(status.waiting[0].starts_with("waiting for a disk"), "{:?}", status.waiting);
    });
}

#[test]
fn dead_stripes_give_their_space_back_after_their_grace() {
    let settings = Settings { reclaim_after: Duration::from_secs(60), ..at_once() };
    with_store(6, settings, |store| async move {
        store.put("keep", "rs:4+2", 70_000).await;
        store.put("drop", "rs:4+2", 70_000).await;
        store.delete("drop").await;
        let round = store.keeper.reclaim_once().await.expect("the database answers");
        assert_eq!((round.forgotten, round.waiting), (0, 1), "a read may be under way");
        store.env.clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(store.keeper.reclaim_once().await.expect("the database answers").forgotten, 1);
        store.assert_no_garbage().await;
        assert_eq!(store.meta.tally().await.expect("the database answers").dead, 0);
    });
}

#[test]
fn without_a_grace_reads_that_have_begun_are_waited_for() {
    with_store(6, at_once(), |store| async move {
        store.put("drop", "rs:4+2", 70_000).await;
        // Somebody finds the object, and is slow to claim what it names.
        let looking = store.stripes.look_up();
        let span = store.span("drop").await;
        store.delete("drop").await;
        for _ in 0..3 {
            let round = store.keeper.reclaim_once().await.expect("the database answers");
            assert_eq!((round.forgotten, round.waiting), (0, 1));
        }
        let claim = store.stripes.claim_record(&span.stripe);
        drop(looking);
        let later = store.stripes.look_up();
        let round = store.keeper.reclaim_once().await.expect("the database answers");
        assert_eq!((round.forgotten, round.waiting), (0, 1), "it is read");
        store.assert_span_reads(&span).await;
        drop(claim);
        assert_eq!(store.keeper.reclaim_once().await.expect("the database answers").forgotten, 1);
        drop(later);
        store.assert_no_garbage().await;
    });
}

#[test]
fn a_dead_stripe_is_forgotten_and_its_chunk_on_an_absent_disk_swept_on_return() {
    with_store(6, at_once(), |store| async move {
        store.put("drop", "rs:4+2", 70_000).await;
        store.delete("drop").await;
        store.set_state(4, Store::failed());
        assert_eq!(store.settle().await.forgotten, 1);
        assert_eq!(store.memory.iter().map(|memory| memory.ids().len()).sum::<usize>(), 1);
        store.set_state(4, StoreState::Serving);
        assert_eq!(store.settle().await.orphans, 1);
        assert!(store.memory.iter().all(|memory| memory.ids().is_empty()));
    });
}

#[test]
fn the_sweep_spares_chunks_whose_record_is_about_to_be_committed() {
    with_store(6, at_once(), |store| async move {
        let code: CodeSpec = "rs:4+2".parse().expect("a valid code");
        let write = || async {
            let mut writer = store.stripes.writer(code, 5000, Durability::Synced).await.expect("enough disks");
            writer.append(&pattern(5000, 5000)).await.expect("stores take it");
            writer.finish().await.expect("stores commit")
        };
        let (kept, claim) = write().await;
        let (given_up, other_claim) = write().await;
        let sweep = || async {
            store.keeper.request_sweep();
            store.keeper.reclaim_once().await.expect("the database answers").orphans
        };
        assert_eq!(sweep().await, 0, "both are claimed");
        store.commit("o", &kept).await;
        drop(claim);
        drop(other_claim);
        assert_eq!(sweep().await, 6, "{} is named by nobody", given_up.id);
        store.assert_no_garbage().await;
        store.assert_reads("o").await;
    });
}

#[test]
fn an_object_deleted_during_its_repair_leaves_nothing_behind() {
    with_store(7, at_once(), |store| async move {
        store.put("o", "rs:4+2", 70_000).await;
        store.settle().await;
        store.lose(1).await;
        store.lose(2).await;
        for faulty in &store.faulty {
            faulty.set(Faults { write_delay: Duration::from_secs(1), ..Faults::default() });
        }
        let meddle = async {
            store.env.clock.sleep(Duration::from_millis(500)).await;
            store.delete("o").await;
        };
        let (round, ()) = futures::join!(store.keeper.repair_once(), meddle);
        let round = round.expect("the database answers");
        assert_eq!((round.chunks, round.conflicts), (0, 1));
        store.settle().await;
        for memory in &store.memory[2..] {
            assert!(memory.ids().is_empty(), "{memory:?}");
        }
    });
}

#[test]
fn what_cannot_be_recovered_is_said_and_not_tried_in_a_hot_loop() {
    with_store(9, at_once(), |store| async move {
        let doomed = store.put("doomed", "rs:4+2", 70_000).await;
        store.settle().await;
        let disks: Vec<DiskId> = doomed.places.iter().flatten().map(|place| place.disk).collect();
        for disk in &disks[..3] {
            store.memory[disk.0 as usize - 1].wipe();
        }
        store.keeper.start_scrub().await.expect("the database answers");
        store.keeper.scrub_once().await.expect("the database answers");
        // Damaged beyond what the code tolerates, but nobody has tried yet.
        assert_eq!(store.overall().await, Overall::AtRisk { stripes: 1 });
        let round = store.keeper.repair_once().await.expect("the database answers");
        assert_eq!((round.failed, round.chunks), (1, 0));
        assert_eq!(store.overall().await, Overall::DataLost { stripes: 1 });
        let reads = || store.faulty.iter().map(|faulty| faulty.counts().reads).sum::<u64>();
        let before = reads();
        for _ in 0..5 {
            assert_eq!(store.keeper.repair_once().await.expect("the database answers").failed, 0);
        }
        assert_eq!(reads(), before, "it is left alone");
        store.env.clock.sleep(Duration::from_secs(31)).await;
        assert_eq!(store.keeper.repair_once().await.expect("the database answers").failed, 1, "and tried again later");
        store.delete("doomed").await;
        store.settle().await;
        assert_eq!(store.overall().await, Overall::Healthy);
    });
}

#[test]
fn what_cannot_be_rebuilt_keeps_nothing_else_from_upkeep() {
    with_store(9, at_once(), |store| async move {
        let doomed = store.put("doomed", "rs:4+2", 70_000).await;
        store.settle().await;
        for disk in doomed.places.iter().flatten().take(3).map(|place| place.disk) {
            store.memory[disk.0 as usize - 1].wipe();
        }
        store.keeper.start_scrub().await.expect("the database answers");
        store.keeper.scrub_once().await.expect("the database answers");
        let tasks = store.keeper.start();
        store.env.clock.sleep(Duration::from_secs(20)).await;
        let status = store.keeper.status().await.expect("the database answers");
        let repair = status.jobs.iter().find(|job| job.kind == JobKind::Repair).expect("some is left");
        let says = repair.waiting.as_deref().expect("it stands still");
        assert!(says.contains("1 stripe could not be rebuilt and is tried again later"), "{says}");
        let new = store.put("new", "rs:4+2", 70_000).await;
        store.env.clock.sleep(Duration::from_secs(120)).await;
        assert!(store.stripe(new.id).await.verified.is_some(), "it is read back all the same");
        assert_eq!(store.overall().await, Overall::DataLost { stripes: 1 });
        tasks.iter().for_each(|task| task.cancel());
    });
}

#[test]
fn stripes_that_need_absent_disks_are_at_risk_and_not_lost() {
    with_store(6, at_once(), |store| async move {
        store.put("o", "rs:4+2", 70_000).await;
        store.settle().await;
        for disk in [1, 2, 3] {
            store.set_state(disk, Store::failed());
        }
        store.settle().await;
        let status = store.keeper.status().await.expect("the database answers");
        assert_eq!(status.overall, Overall::AtRisk { stripes: 1 });
        assert_eq!(status.stripes.unreachable.map(|unreachable| unreachable.unreadable), Some(1));
        assert_eq!(status.at_risk[0].chunks_unreachable, 3);
        for disk in [1, 2, 3] {
            store.set_state(disk, StoreState::Serving);
        }
        store.settle().await;
        assert_eq!(store.overall().await, Overall::Healthy);
    });
}

#[test]
fn old_uploads_are_aborted_only_if_told_to() {
    let old = Duration::from_secs(7 * 86_400);
    for (setting, left) in [(None, 1), (Some(old), 0)] {
        with_store(1, Settings { upload_age_max: setting, ..at_once() }, |store| async move {
            let upload = UploadRecord {
                id: UploadId("u".to_owned()),
                bucket: store.bucket,
                key: "k".to_owned(),
                created: store.env.clock.wall(),
                attributes: Vec::new(),
            };
            store.meta.create_upload(upload).await.expect("a new upload");
            store.settle().await;
            let id = UploadId("u".to_owned());
            let found = || store.meta.upload(store.bucket, "k", &id);
            assert!(found().await.is_ok());
            store.env.clock.sleep(old).await;
            store.settle().await;
            assert_eq!(i32::from(!matches!(found().await, Err(MetaError::NoSuchUpload { .. }))), left);
        });
    }
}

#[test]
fn the_loops_mend_verify_and_reclaim_by_themselves() {
    with_store(7, Settings::default(), |store| async move {
        for nth in 0..10 {
            store.put(&format!("o{nth}"), "clay:4+2:5", 70_000).await;
        }
        let tasks = store.keeper.start();
        store.env.clock.sleep(Duration::from_secs(180)).await;
        assert_eq!(store.overall().await, Overall::Healthy);
        store.lose(1).await;
        store.delete("o0").await;
        store.memory[1].wipe();
        let ids: Vec<_> = store.meta.stripes(None, 100).await.expect("the database answers");
        for stripe in &ids {
            for (index, place) in (0..).map(ChunkIndex).zip(&stripe.places) {
                let place = place.expect("it is whole");
                if place.disk == DiskId(2) {
                    let chunk = stripe.chunk_id(index).expect("it is whole");
                    let error = claystone_chunk::ChunkError::NotFound { id: chunk };
                    // What a read would report.
                    store.damage.send(Damage { chunk, disk: place.disk, error }).await.expect("the keeper listens");
                }
            }
        }
        store.env.clock.sleep(Duration::from_secs(300)).await;
        assert_eq!(store.overall().await, Overall::Healthy);
        let lost = store.memory[0].ids().len();
        assert!(lost > 0, "nobody writes to a lost disk");
        for nth in 1..10 {
            store.assert_reads(&format!("o{nth}")).await;
        }
        assert_eq!(store.meta.tally().await.expect("the database answers").dead, 0);
        for task in &tasks {
            task.cancel();
        }
    });
}

#[test]
fn upkeep_slows_down_while_clients_are_busy() {
    let elapsed = |busy: bool| {
        let (sender, receiver) = std::sync::mpsc::channel();
        with_store(7, at_once(), |store| async move {
            store.put("o", "rs:4+2", 40_000_000).await;
            for faulty in &store.faulty {
                faulty.set(Faults { read_delay: Duration::from_millis(100), ..Faults::default() });
            }
            store.lose(1).await;
            let guard = busy.then(|| store.keeper.activity().begin());
            let began = store.env.clock.now();
            while store.keeper.status().await.expect("the database answers").stripes.chunks_lost > 0 {
                store.keeper.repair_once().await.expect("the database answers");
            }
            drop(guard);
            sender.send(store.env.clock.now().since(began)).expect("the test waits");
        });
        receiver.recv().expect("the scenario has ended")
    };
    let (idle, busy) = (elapsed(false), elapsed(true));
    assert!(busy > idle * 2, "idle {idle:?}, busy {busy:?}");
}

#[test]
fn a_disk_that_hangs_holds_up_its_own_tasks_only_and_for_a_while_only() {
    with_store(7, at_once(), |store| async move {
        let stripe = store.put("o", "rs:4+2", 70_000).await;
        store.settle().await;
        let lost = stripe.places[0].expect("it is whole").disk;
        let named: Vec<DiskId> = stripe.places.iter().flatten().map(|place| place.disk).collect();
        let spare = (1..=7).map(DiskId).find(|disk| !named.contains(disk)).expect("seven disks, six chunks");
        store.faulty[spare.0 as usize - 1].set(Faults { hang: true, ..Faults::default() });
        store.lose(lost.0 as usize).await;
        let round = store.keeper.repair_once().await.expect("the database answers");
        assert_eq!((round.chunks, round.failed), (0, 1));
        assert_eq!(store.overall().await, Overall::Degraded { stripes: 1 });
        store.keeper.request_sweep();
        assert_eq!(store.keeper.reclaim_once().await.expect("the database answers").orphans, 0);
        store.faulty[spare.0 as usize - 1].set(Faults::default());
        store.keeper.disks_changed();
        assert_eq!(store.settle().await.repaired, 1);
        store.assert_reads("o").await;
    });
}

#[test]
fn a_draining_disk_is_kept_while_a_write_may_still_name_it() {
    let settings = Settings { reclaim_after: Duration::from_secs(60), ..at_once() };
    with_store(7, settings, |store| async move {
        let code: CodeSpec = "rs:4+2".parse().expect("a valid code");
        let mut writer = store.stripes.writer(code, 5000, Durability::Synced).await.expect("enough disks");
        writer.append(&pattern(5000, 5000)).await.expect("stores take it");
        let (stripe, claim) = writer.finish().await.expect("stores commit");
        let disk = stripe.places[0].expect("it is whole").disk;
        store.keeper.set_disk_state(disk, DiskState::Draining).await.expect("a known disk");
        assert_eq!(store.keeper.drain_once().await.expect("the database answers").removed, 0);
        store.commit("o", &stripe).await;
        drop(claim);
        store.env.clock.sleep(Duration::from_secs(61)).await;
        let round = store.keeper.drain_once().await.expect("the database answers");
        assert_eq!((round.chunks, round.removed), (1, 0));
        store.env.clock.sleep(Duration::from_secs(61)).await;
        assert_eq!(store.keeper.drain_once().await.expect("the database answers").removed, 1);
        store.settle().await;
        assert_eq!(store.overall().await, Overall::Healthy);
    });
}

/// What is acknowledged can be read: a write that comes when its only disk has left is refused.
#[test]
fn a_write_whose_disks_have_left_is_refused() {
    let settings = Settings { reclaim_after: Duration::from_secs(60), ..at_once() };
    with_store(2, settings, |store| async move {
        let code: CodeSpec = "replica:1".parse().expect("a valid code");
        let mut writer = store.stripes.writer(code, 5000, Durability::Synced).await.expect("enough disks");
        writer.append(&pattern(5000, 5000)).await.expect("stores take it");
        let (stripe, _claim) = writer.finish().await.expect("stores commit");
        let disk = stripe.places[0].expect("it is whole").disk;
        store.keeper.set_disk_state(disk, DiskState::Draining).await.expect("a known disk");
        assert_eq!(store.keeper.drain_once().await.expect("the database answers").removed, 0);
        store.env.clock.sleep(Duration::from_secs(61)).await;
        assert_eq!(store.keeper.drain_once().await.expect("the database answers").removed, 1);
        let refused = store.try_commit("o", &stripe).await;
        assert!(matches!(refused, Err(MetaError::StripeLost { .. })), "{refused:?}");
        let found = store.meta.object("b", "o", &VersionRef::Current).await.expect("the bucket is there");
        assert_eq!(found.object, None);
    });
}

/// A move that failed waits, whatever repair does meanwhile.
#[test]
fn a_move_that_failed_waits() {
    with_store(7, at_once(), |store| async move {
        let stripe = store.put("o", "rs:4+2", 70_000).await;
        store.settle().await;
        let named: Vec<DiskId> = stripe.places.iter().flatten().map(|place| place.disk).collect();
        let spare = (1..=7).map(DiskId).find(|disk| !named.contains(disk)).expect("seven disks, six chunks");
        let writes_fail = |reason: Option<&str>| {
            let writes_fail = reason.map(str::to_owned);
            store.faulty[spare.0 as usize - 1].set(Faults { writes_fail, ..Faults::default() });
        };
        writes_fail(Some("it takes nothing"));
        store.keeper.set_disk_state(named[0], DiskState::Draining).await.expect("a known disk");
        assert_eq!(store.keeper.drain_once().await.expect("the database answers").failed, 1);
        for _ in 0..3 {
            store.keeper.repair_once().await.expect("the database answers");
            assert_eq!(store.keeper.drain_once().await.expect("the database answers").failed, 0, "it is left alone");
        }
        writes_fail(None);
        store.env.clock.sleep(Duration::from_secs(31)).await;
        assert_eq!(store.keeper.drain_once().await.expect("the database answers").chunks, 1);
    });
}

/// A disk whose writes hang is not drawn again by each rebuild.
#[test]
fn rebuilds_leave_a_disk_that_hangs() {
    with_store(7, at_once(), |store| async move {
        let mut stripe = store.put("o0", "rs:4+2", 70_000).await;
        for nth in 1..8 {
            stripe = store.put(&format!("o{nth}"), "rs:4+2", 70_000).await;
        }
        store.settle().await;
        let lost = stripe.places[0].expect("it is whole").disk;
        let hangs: Vec<DiskId> = (1..=7).map(DiskId).filter(|disk| *disk != lost).collect();
        store.lose(lost.0 as usize).await;
        for disk in &hangs {
            store.faulty[disk.0 as usize - 1]
                .set(Faults { write_delay: Duration::from_secs(3600), ..Faults::default() });
        }
        let began = store.env.clock.now();
        let round = store.keeper.repair_once().await.expect("the database answers");
        assert_eq!(round.chunks, 0);
        let took = store.env.clock.now().since(began);
        assert!(took < Duration::from_secs(240), "{took:?}");
    });
}

/// Stripes of volumes are kept as those of objects are.
#[test]
fn stripes_of_volumes_are_repaired_moved_verified_and_reclaimed() {
    with_store(8, at_once(), |store| async move {
        let lease = store.open_volume().await;
        let mut stripes = Vec::new();
        for position in 0..4 {
            let (stripe, claim) = store.write("rs:4+2", 70_000).await;
            store.meta.put_volume_stripes(lease, vec![(position, Some(stripe.clone()))]).await.expect("the last lease");
            drop(claim);
            stripes.push(stripe);
        }
        store.settle().await;
        assert_eq!(store.overall().await, Overall::Healthy, "verified");

        let lost = DiskId(1);
        store.keeper.set_disk_state(lost, DiskState::Lost).await.expect("a known disk");
        store.keeper.set_disk_state(DiskId(2), DiskState::Draining).await.expect("a known disk");
        store.settle().await;
        assert_eq!(store.overall().await, Overall::Healthy);
        assert_eq!(store.meta.disks().await.expect("the database answers").len(), 6);
        let kept = store.meta.volume_stripes(lease.owner, None, 9).await.expect("readable");
        assert_eq!(kept.iter().map(|(position, stripe)| (*position, stripe.id)).collect::<Vec<_>>(), {
            (0..4).zip(stripes.iter().map(|stripe| stripe.id)).collect::<Vec<_>>()
        });
        for (_, stripe) in &kept {
            store.assert_stripe_reads(stripe).await;
        }

        let dead = store.meta.put_volume_stripes(lease, vec![(1, None)]).await.expect("the last lease");
        assert_eq!(dead.len(), 1);
        assert_eq!(store.settle().await.forgotten, 1);
        store.meta.delete_volume(lease.owner).await.expect("a volume");
        assert_eq!(store.settle().await.forgotten, 3);
        assert!(store.memory.iter().skip(2).all(|memory| memory.ids().is_empty()));
    });
}

/// A stripe that only a snapshot has is counted, repaired, verified and kept, until the snapshot goes.
#[test]
fn stripes_of_snapshots_are_kept_as_those_of_volumes() {
    with_store(8, at_once(), |store| async move {
        let lease = store.open_volume().await;
        let (stripe, claim) = store.write("rs:4+2", 70_000).await;
        store.meta.put_volume_stripes(lease, vec![(0, Some(stripe.clone()))]).await.expect("the last lease");
        drop(claim);
        let now = store.env.clock.wall();
        let snapshot = store.meta.create_snapshot(lease, "s", now).await.expect("the last lease");
        assert_eq!(store.meta.put_volume_stripes(lease, vec![(0, None)]).await.expect("the last lease"), []);
        assert_eq!(store.settle().await.forgotten, 0);
        let status = store.keeper.status().await.expect("the database answers");
        assert_eq!((status.stripes.stripes, status.stripes.verified, status.overall), (1, 1, Overall::Healthy));
        store.keeper.set_disk_state(DiskId(1), DiskState::Lost).await.expect("a known disk");
        store.settle().await;
        assert_eq!(store.overall().await, Overall::Healthy);
        let kept = store.meta.snapshot_stripes(snapshot.id, None, 9).await.expect("readable");
        assert_eq!(kept.len(), 1);
        store.assert_stripe_reads(&kept[0].1).await;
        store.meta.delete_snapshot(snapshot.id).await.expect("a snapshot");
        assert_eq!(store.settle().await.forgotten, 1);
        assert!(store.memory.iter().skip(1).all(|memory| memory.ids().is_empty()));
    });
}

/// A log on these disks.
fn log_on(disks: [u128; 2]) -> LogRecord {
    LogRecord { disks: disks.map(|disk| (DiskId(disk), None)).into(), ..LogRecord::default() }
}

#[test]
fn a_disk_is_kept_until_the_logs_of_volumes_have_left_it() {
    for state in [DiskState::Draining, DiskState::Lost] {
        with_store(4, at_once(), |store| async move {
            let lease = store.open_volume().await;
            store.meta.set_log(lease, log_on([1, 2])).await.expect("the last lease");
            store.keeper.set_disk_state(DiskId(2), state).await.expect("a known disk");
            for _ in 0..2 {
                let round = store.keeper.drain_once().await.expect("the database answers");
                assert_eq!((round.removed, round.waiting_logs), (0, 1));
            }
            let status = store.keeper.status().await.expect("the database answers");
            assert_eq!(status.disks.iter().map(|disk| disk.logs).collect::<Vec<_>>(), [1, 1, 0, 0]);
            assert!(status.waiting[0].ends_with("until the logs of 1 volume have left it"), "{:?}", status.waiting);
            assert_eq!(status.waiting.len(), 1, "{:?}", status.waiting);

            store.meta.set_log(lease, log_on([1, 3])).await.expect("the last lease");
            let round = store.keeper.drain_once().await.expect("the database answers");
            assert_eq!((round.removed, round.waiting_logs), (1, 0));
        });
    }
}

#[test]
fn wall_time_has_no_part_in_decisions_about_data() {
    claystone_sim::run(7, |world| async move {
        let process = world.process("node");
        let store = Store::new(process.env().clone(), 6, at_once(), claystone_stripe::Settings::default()).await;
        store.put("o", "rs:4+2", 10_000).await;
        process.clock().set_wall_error_ms(-400_000_000_000);
        store.settle().await;
        process.clock().set_wall_error_ms(400_000_000_000);
        store.settle().await;
        assert_eq!(store.overall().await, Overall::Healthy);
        store.assert_no_garbage().await;
        assert!(WallTime::default() < store.env.clock.wall());
    });
}

#[test]
fn a_disk_that_says_that_it_lost_sectors_is_read_back_at_once() {
    with_store(7, Settings::default(), |store| async move {
        let stripe = store.put("k", "rs:4+2", 300_000).await;
        let place = stripe.places[1].expect("it has a place");
        let memory = &store.memory[place.disk.0 as usize - 1];
        let tell = |lost_sectors| {
            let pair = PairHealth { ssd: SsdState::Lost, lost_sectors, ..PairHealth::default() };
            memory.set_sectors(SectorHealth { pair: Some(pair), ..SectorHealth::default() });
        };
        tell(0);
        memory.lose_sector(stripe.chunk_id(ChunkIndex(1)).expect("it has a place"), 0);
        assert_eq!(store.settle().await.repaired, 0, "nobody has read it, and it is not its turn");
        tell(3);
        let idle = store.settle().await;
        assert_eq!((idle.damaged, idle.repaired), (1, 1));
        store.assert_reads("k").await;
        // What it lost before, it does not say again.
        assert_eq!(store.keeper.losses_once().await.expect("the database answers").stripes, 0);
    });
}
