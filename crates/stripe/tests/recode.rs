//! Stripes that get another code: cut at every change of a store, with every loss that is tolerated, under readers.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use claystone_chunk::testing::{Cut, CutStore, MemoryStore, Traps, pattern};
use claystone_chunk::{ByteRange, ChunkId, ChunkStore, DiskId, Durability, NodeId};
use claystone_code::{ChunkIndex, CodeSpec, ConversionGoal, plan_conversion};
use claystone_env::{Env, Space, WallTime};
use claystone_meta::{DiskRecord, DiskState, Recode, StripeRecord};
use claystone_stripe::{Absence, Member, Settings, Stores, StripeError, Stripes, Unpaced};

struct World {
    env: Env,
    stripes: Stripes,
    disks: Vec<MemoryStore>,
    cut: Cut,
}

impl World {
    fn new(disks: u128) -> World {
        let env = claystone_host::env().expect("an environment");
        World::over(env, (0..disks).map(|disk| MemoryStore::new(DiskId(disk))).collect())
    }

    fn over(env: Env, disks: Vec<MemoryStore>) -> World {
        let (stores, cut) = (Stores::default(), Cut::default());
        let (stripes, _) = Stripes::new(env.clone(), stores, Settings::default());
        let world = World { env, stripes, disks, cut };
        (0..world.disks.len()).for_each(|disk| world.find(disk));
        world
    }

    /// The process ends, the disks lose what was not synced, and a new one begins.
    fn crash(self) -> World {
        self.cut.now();
        self.disks.iter().for_each(|disk| disk.crash(&*self.env.random));
        World::over(self.env, self.disks)
    }

    fn lose(&self, disk: usize) {
        let store = Err(Absence { reason: "lost by the test".to_owned() });
        self.stripes.stores().put(Member { record: disk_record(disk), store, space: Space::default() });
    }

    fn find(&self, disk: usize) {
        let store: Arc<dyn ChunkStore> =
            Arc::new(CutStore::new(self.disks[disk].clone(), self.cut.clone(), Traps::default()));
        let space = Space { total_bytes: 1 << 40, free_bytes: 1 << 40 };
        self.stripes.stores().put(Member { record: disk_record(disk), store: Ok(store), space });
    }

    async fn write(&self, code: &str, data: &[u8]) -> StripeRecord {
        self.write_as(code, data, Durability::Synced).await
    }

    async fn write_as(&self, code: &str, data: &[u8], durability: Durability) -> StripeRecord {
        let mut writer = self.stripes.writer(spec(code), data.len() as u64, durability).await.expect("enough disks");
        writer.append(data).await.expect("stores take it");
        writer.finish().await.expect("all stores commit").0
    }

    async fn assert_reads(&self, record: &StripeRecord, data: &[u8], what: &str) {
        let mut reader = self.stripes.reader(record, ByteRange { offset: 0, bytes: data.len() as u64 });
        let mut bytes = Vec::new();
        while let Some(piece) = reader.next().await.unwrap_or_else(|error| panic!("{what}: {error}")) {
            bytes.extend_from_slice(&piece);
        }
        assert!(bytes == data, "{what}: {} reads other bytes", record.code);
    }

    /// With each set of disks lost that the code tolerates.
    async fn assert_survives(&self, record: &StripeRecord, data: &[u8], what: &str) {
        for lost in losses(self.disks.len(), record.code.tolerance().into()) {
            lost.iter().for_each(|disk| self.lose(*disk));
            self.assert_reads(record, data, &format!("{what}, {lost:?} lost")).await;
            lost.iter().for_each(|disk| self.find(*disk));
        }
    }

    /// Recodes and commits, as whoever has the records does. `committed` is the record then.
    async fn switch(&self, record: &StripeRecord, code: &str, committed: &Mutex<Option<StripeRecord>>) -> StripeRecord {
        let recoded = self.stripes.recode(record, spec(code), &Unpaced).await.expect("recoded");
        let after = apply(record, &recoded.change);
        *committed.lock().expect("nobody panics") = Some(after.clone());
        drop(recoded);
        self.stripes.discard_superseded(record, &after).await;
        after
    }

    /// Chunks that a record does not name.
    fn garbage(&self, record: &StripeRecord) -> usize {
        let named: BTreeSet<ChunkId> = names(record).into_iter().collect();
        self.disks.iter().flat_map(MemoryStore::ids).filter(|id| !named.contains(id)).count()
    }
}

fn spec(code: &str) -> CodeSpec {
    code.parse().expect("a valid code")
}

fn disk_record(disk: usize) -> DiskRecord {
    let id = DiskId(disk as u128);
    let (node, path) = (NodeId(id.to_string()), id.to_string());
    DiskRecord { id, node, path, state: DiskState::Active, added: WallTime::default() }
}

fn names(record: &StripeRecord) -> Vec<ChunkId> {
    (0..record.places.len() as u16).filter_map(|index| record.chunk_id(ChunkIndex(index))).collect()
}

fn apply(record: &StripeRecord, change: &Recode) -> StripeRecord {
    assert_eq!((change.stripe, change.expected_revision), (record.id, record.revision));
    let mut after = record.clone();
    after.places.truncate(record.code.shape().data.into());
    after.places.extend(change.parity.iter().copied());
    after.origins.retain(|index, _| index.0 < record.code.shape().data);
    after.origins.extend(&change.origins);
    StripeRecord { code: change.code, sub_bytes: change.sub_bytes, revision: record.revision + 1, ..after }
}

/// All sets of disks that a code tolerates to lose, of two at most.
fn losses(disks: usize, tolerance: usize) -> Vec<Vec<usize>> {
    let ones = (0..disks).map(|one| vec![one]);
    let twos = (0..disks).flat_map(|one| (one + 1..disks).map(move |other| vec![one, other]));
    std::iter::once(vec![]).chain(ones).chain(twos).filter(|set| set.len() <= tolerance).collect()
}

const WAYS: [(&str, &str); 10] = [
    ("mirror:4x3", "rs:4+2"),
    ("rs:4+2", "mirror:4x3"),
    // One data chunk, or two, by themselves.
    ("rs:4+2", "mixed:4+2x3:1"),
    ("mixed:4+2x3:1", "mixed:4+2x3:0+1"),
    ("mixed:4+2x3:0+1", "mixed:4+2x3:1+3"),
    ("mixed:4+2x3:1+3", "mirror:4x3"),
    ("mirror:4x3", "mixed:4+2x3:1+2"),
    ("replica:3", "replica:2"),
    // Fast and compact, and where tiles are as long, from there to fewer reads in a repair.
    ("lrc:4+2+2", "lrc:4+1+2"),
    ("rs:6+2", "clay:6+2:7"),
];

#[tokio::test]
async fn data_chunks_stay_and_only_parity_is_written() {
    for (from, to) in WAYS {
        let world = World::new(8);
        let data = pattern(1, 3 << 20);
        let before = world.write(from, &data).await;
        let recoded = world.stripes.recode(&before, spec(to), &Unpaced).await.expect("recoded");
        let plan = plan_conversion(spec(from), spec(to), ConversionGoal::DataOnly).expect("a plan");
        let chunk_bytes = (data.len() as u64).div_ceil(spec(to).shape().data.into());
        let moved = (recoded.bytes_read, recoded.bytes_written);
        assert_eq!(moved, (plan.bytes_read(chunk_bytes), plan.bytes_written(chunk_bytes)), "{from} -> {to}");
        assert!(world.stripes.is_claimed(before.id));
        let after = apply(&before, &recoded.change);
        drop(recoded);
        for kept in &plan.kept {
            let (old, new) = (kept.from.chunk, kept.to.chunk);
            assert_eq!(after.places[new.at()], before.places[old.at()]);
            assert_eq!(after.chunk_id(new), before.chunk_id(old));
        }
        let fresh: Vec<_> = names(&after).into_iter().filter(|name| !names(&before).contains(name)).collect();
        assert_eq!(fresh.len(), plan.writes.len(), "{from} -> {to}");
        world.assert_survives(&before, &data, "not yet named").await;
        assert!(world.stripes.discard_superseded(&before, &after).await);
        assert_eq!(world.garbage(&after), 0);
        assert!(world.stripes.verify(&after, &Unpaced).await.healthy(), "{from} -> {to}");
        world.assert_survives(&after, &data, "named").await;
    }
}

#[tokio::test]
async fn no_name_is_used_twice_however_often_the_code_changes() {
    let world = World::new(7);
    let data = pattern(2, 100_000);
    let mut record = world.write("mirror:4x3", &data).await;
    let mut seen: BTreeSet<ChunkId> = names(&record).into_iter().collect();
    for round in 0..12 {
        let code = ["rs:4+2", "mixed:4+2x3:1", "mixed:4+2x3:1+3", "mirror:4x3"][round % 4];
        let before = names(&record);
        record = world.switch(&record, code, &Mutex::default()).await;
        let mut new = names(&record).into_iter().filter(|name| !before.contains(name));
        assert!(new.all(|name| seen.insert(name)), "round {round}");
        world.assert_reads(&record, &data, code).await;
    }
}

/// The process ends at each change of a store once, before it and after it without the answer.
#[tokio::test]
async fn a_crash_at_any_step_leaves_a_stripe_that_survives_what_its_code_says() {
    for (from, to) in &WAYS[..8] {
        let (mut steps, mut after_commit) = (0, 0);
        for happens in [false, true] {
            for step in 0.. {
                let world = World::new(7);
                let data = pattern(3, 150_000);
                let before = world.write(from, &data).await;
                let committed = Mutex::default();
                world.cut.set(world.cut.calls() + step, happens);
                let is_cut = tokio::select! {
                    biased;
                    () = world.cut.reached() => true,
                    _ = world.switch(&before, to, &committed) => false,
                };
                if !is_cut {
                    break;
                }
                steps += 1;
                let world = world.crash();
                let what = format!("{from} -> {to}, step {step}, happens: {happens}");
                let committed = committed.into_inner().expect("nobody panics");
                after_commit += u64::from(committed.is_some());
                let record = committed.unwrap_or(before);
                world.assert_survives(&record, &data, &what).await;
                // It can be tried again, and ends as if nothing had been.
                if record.code != spec(to) {
                    let after = world.switch(&record, to, &Mutex::default()).await;
                    world.assert_survives(&after, &data, &what).await;
                }
            }
        }
        let plan = plan_conversion(spec(from), spec(to), ConversionGoal::DataOnly).expect("a plan");
        assert!(
            steps >= 2 * plan.writes.len() && after_commit >= 2,
            "{from} -> {to}: {steps} steps, {after_commit} after"
        );
    }
}

/// A disk refuses every change from any step on: all of the new parity is there, or none is named.
#[tokio::test]
async fn a_disk_that_fails_at_any_step_costs_nothing() {
    for (from, to) in &WAYS[..7] {
        for disk in 0..7 {
            for step in 0.. {
                let world = World::new(7);
                let data = pattern(4, 150_000);
                let before = world.write(from, &data).await;
                let calls = world.cut.calls();
                world.cut.kill(disk, calls + step);
                match world.stripes.recode(&before, spec(to), &Unpaced).await {
                    Ok(recoded) => {
                        let after = apply(&before, &recoded.change);
                        world.assert_survives(&after, &data, "recoded").await;
                        if world.cut.calls() < calls + step {
                            break;
                        }
                    }
                    Err(error) => assert!(matches!(error, StripeError::Chunk(_)), "{error}"),
                }
                world.assert_survives(&before, &data, "as it was").await;
            }
        }
    }
}

#[tokio::test]
async fn lost_data_is_decoded_and_a_stripe_never_comes_to_survive_less() {
    let data = pattern(5, 1 << 20);
    // Each chunk on a disk of its own.
    let world = World::new(12);
    let record = world.write("mirror:4x3", &data).await;
    let disk_of = |index: usize| record.places[index].expect("placed").disk.0 as usize;
    // One data chunk gone: as it was one more loss is survived, and so it is under the new code.
    world.lose(disk_of(2));
    let recoded = world.stripes.recode(&record, spec("rs:4+2"), &Unpaced).await.expect("one loss");
    let after = apply(&record, &recoded.change);
    drop(recoded);
    world.assert_reads(&after, &data, "the parity of what is lost").await;
    let verification = world.stripes.verify(&after, &Unpaced).await;
    assert_eq!(
        verification.chunks.iter().filter(|verdict| **verdict != claystone_stripe::ChunkVerdict::Verified).count(),
        1
    );
    // Two: of different data, so one more is survived; under the new code none would be.
    world.lose(disk_of(3));
    let refused = world.stripes.recode(&record, spec("rs:4+2"), &Unpaced).await.map(|_| ());
    assert!(matches!(refused, Err(StripeError::Exposed { before: 1, after: 0, .. })), "{refused:?}");

    // A sector that is found lost while it is read counts as well.
    let world = World::new(8);
    let record = world.write("mirror:4x3", &data).await;
    for index in [1u16, 2] {
        let place = record.places[usize::from(index)].expect("placed");
        world.disks[place.disk.0 as usize].lose_sector(record.chunk_id(ChunkIndex(index)).expect("placed"), 3);
    }
    let refused = world.stripes.recode(&record, spec("rs:4+2"), &Unpaced).await.map(|_| ());
    assert!(matches!(refused, Err(StripeError::Exposed { before: 1, after: 0, .. })), "{refused:?}");
    assert_eq!(world.garbage(&record), 0, "what was written is deleted");
}

/// What both codes have stays where it is whole; where it is lost another that is equal does, or it is made anew.
#[tokio::test]
async fn what_is_lost_is_not_kept() {
    let data = pattern(8, 300_000);
    for (from, to, lost, fresh) in [
        ("replica:3", "replica:2", 1, 0),
        ("mirror:4x3", "mirror:4x2", 6, 0),
        ("rs:4+2", "rs:4+1", 4, 1),
        ("mixed:4+2x3:1", "mixed:4+2x3:1+2", 6, 5),
    ] {
        let world = World::new(12);
        let before = world.write(from, &data).await;
        let (disk, name) = (before.places[lost].expect("placed").disk, names(&before)[lost]);
        world.lose(disk.0 as usize);
        let recoded = world.stripes.recode(&before, spec(to), &Unpaced).await.expect("one loss");
        assert_eq!(recoded.fresh.len(), fresh, "{from} -> {to}");
        let after = apply(&before, &recoded.change);
        drop(recoded);
        assert!(!names(&after).contains(&name), "{from} -> {to}");
        let on_lost = after.places.iter().flatten().filter(|place| place.disk == disk).count();
        assert_eq!(
            on_lost,
            usize::from(from == "mirror:4x3" && before.places[..4].iter().flatten().any(|place| place.disk == disk))
        );
        world.find(disk.0 as usize);
        world.assert_survives(&after, &data, &format!("{from} -> {to}")).await;
    }
}

/// A chunk that is rebuilt gets no name that another of the stripe has from an index which was its own.
#[tokio::test]
async fn a_rebuilt_chunk_gets_a_name_beyond_all_of_the_stripe() {
    let world = World::new(12);
    let data = pattern(9, 100_000);
    let one = world.write("mixed:4+2x3:1", &data).await;
    let two = world.switch(&one, "mixed:4+2x3:0+1", &Mutex::default()).await;
    let mut record = two.clone();
    // Chunk 7 is the copy that had the index 6.
    assert_eq!(two.chunk_id(ChunkIndex(7)).map(|name| name.index), Some(ChunkIndex(6)));
    let last = two.places.iter().flatten().map(|place| place.generation).max().expect("placed");
    record.places[6] = None;
    let rebuilt = world.stripes.rebuild(&record, &[ChunkIndex(6)], &Unpaced).await.expect("rebuilt");
    let (_, place) = rebuilt.swap.places.iter().find(|(index, _)| *index == ChunkIndex(6)).expect("it was lost");
    assert!(place.expect("placed").generation > last);
}

#[tokio::test]
async fn what_cannot_be_recoded_is_refused_with_the_reason() {
    let world = World::new(8);
    let record = world.write("rs:4+2", &pattern(6, 300_000)).await;
    for to in ["rs:5+2", "clay:4+2:5", "replica:3"] {
        let refused = world.stripes.recode(&record, spec(to), &Unpaced).await.map(|_| ());
        assert!(matches!(refused, Err(StripeError::OtherLayout { .. })), "{to}: {refused:?}");
    }
    let world = World::new(5);
    let record = world.write("mirror:4x3", &pattern(6, 300_000)).await;
    let refused = world.stripes.recode(&record, spec("rs:4+2"), &Unpaced).await.map(|_| ());
    assert!(matches!(refused, Err(StripeError::TooFewDisks { needed: 6, available: 5 })), "{refused:?}");
    let world = World::new(3);
    let record = world.write("mirror:4x3", &pattern(6, 300_000)).await;
    let refused = world.stripes.recode(&record, spec("rs:4+2"), &Unpaced).await.map(|_| ());
    assert!(matches!(refused, Err(StripeError::Crowded { .. })), "{refused:?}");
}

/// Readers with one disk gone, who decode, while the code goes back and forth: each reads by the record as it was when it
/// began, and finds all of it.
#[tokio::test]
async fn readers_notice_nothing() {
    let world = World::new(8);
    let data = pattern(7, 600_000);
    let record = world.write("mirror:4x3", &data).await;
    let lost = record.places[1].expect("placed").disk;
    let current = Mutex::new(record);
    world.lose(lost.0 as usize);
    let switching = async {
        for round in 0..20 {
            let before = current.lock().expect("nobody panics").clone();
            let to = ["rs:4+2", "mixed:4+2x3:1", "mirror:4x3", "mixed:4+2x3:0+3"][round % 4];
            let recoded = world.stripes.recode(&before, spec(to), &Unpaced).await.expect("one loss");
            let after = apply(&before, &recoded.change);
            *current.lock().expect("nobody panics") = after.clone();
            drop(recoded);
            world.stripes.discard_superseded(&before, &after).await;
            tokio::task::yield_now().await;
        }
    };
    let reading = |reader: u64| {
        let (world, current, data) = (&world, &current, &data);
        async move {
            for round in 0..30 {
                // The claim first, then the record: what it names stays.
                let id = current.lock().expect("nobody panics").id;
                let _claim = world.stripes.claim(id);
                let record = current.lock().expect("nobody panics").clone();
                tokio::task::yield_now().await;
                world.assert_reads(&record, data, &format!("reader {reader}, round {round}")).await;
            }
        }
    };
    tokio::join!(switching, reading(0), reading(1), reading(2));
}

/// Of a stripe that was acknowledged before it was synced, with a disk on each node, no chunk is synced.
#[tokio::test]
async fn data_is_synced_before_it_has_other_parity() {
    let world = World::new(9);
    let data = pattern(1, 100_000);
    let before = world.write_as("rs:4+3", &data, Durability::Buffered).await;
    let after = world.switch(&before, "rs:4+2", &Mutex::default()).await;
    world.disks.iter().for_each(MemoryStore::lose_unsynced);
    world.assert_survives(&after, &data, "after a power cut of all").await;
}
