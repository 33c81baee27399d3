//! Stripes over stores in memory: every loss up to the tolerance, slow and failing stores, exact costs of repair.

use std::collections::BTreeSet;
use std::sync::Arc;

use claystone_chunk::testing::{Faults, FaultyStore, MemoryStore, pattern};
use claystone_chunk::{ByteRange, ChunkStore, DiskId, Durability, NodeId, StoreState};
use claystone_code::{ChunkIndex, CodeSpec};
use claystone_env::{Env, Space, WallTime};
use claystone_meta::{ChunkPlace, DiskRecord, DiskState, StripeRecord};
use claystone_stripe::{
    ChunkVerdict, Damage, DamageReports, Homes, Housing, Member, Settings, Stores, StripeError, Stripes, Unpaced,
};

struct World {
    stripes: Stripes,
    reports: DamageReports,
    memory: Vec<MemoryStore>,
    faulty: Vec<Arc<FaultyStore>>,
}

impl World {
    fn new(disks: u128) -> World {
        let env: Env = claystone_host::env().expect("an environment");
        let stores = Stores::default();
        let (mut memory, mut faulty) = (Vec::new(), Vec::new());
        for disk in (0..disks).map(DiskId) {
            let inner = MemoryStore::new(disk);
            let store = Arc::new(FaultyStore::new(Arc::new(inner.clone()), env.clock.clone()));
            stores.put(member(disk, DiskState::Active, Some(store.clone())));
            memory.push(inner);
            faulty.push(store);
        }
        let (stripes, reports) = Stripes::new(env, stores, Settings::default());
        World { stripes, reports, memory, faulty }
    }

    async fn write(&self, code: &str, data: &[u8]) -> StripeRecord {
        let code: CodeSpec = code.parse().expect("a valid code");
        let mut writer = self.stripes.writer(code, data.len() as u64, Durability::Synced).await.expect("enough disks");
        // In uneven pieces, so that borders of tiles fall inside.
        for piece in data.chunks(100_001) {
            writer.append(piece).await.expect("stores take it");
        }
        writer.finish().await.expect("all stores commit").0
    }

    async fn read(&self, record: &StripeRecord, range: ByteRange) -> Result<Vec<u8>, StripeError> {
        let mut reader = self.stripes.reader(record, range);
        let mut bytes = Vec::new();
        while let Some(piece) = reader.next().await? {
            assert!(!piece.is_empty());
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    async fn assert_reads(&self, record: &StripeRecord, data: &[u8]) {
        let all = ByteRange { offset: 0, bytes: data.len() as u64 };
        assert!(self.read(record, all).await.expect("recoverable") == data, "{} reads other bytes", record.code);
    }

    fn disk_of(&self, record: &StripeRecord, index: u16) -> usize {
        record.places[usize::from(index)].as_ref().expect("it has a place").disk.0 as usize
    }

    /// Makes a disk stop answering.
    fn lose(&self, disk: usize) {
        self.stripes.stores().put(member(DiskId(disk as u128), DiskState::Lost, None));
    }
}

fn member(id: DiskId, state: DiskState, store: Option<Arc<dyn ChunkStore>>) -> Member {
    let record =
        DiskRecord { id, node: NodeId(id.to_string()), path: id.to_string(), state, added: WallTime::default() };
    let store = store.ok_or_else(|| claystone_stripe::Absence { reason: "lost by the test".to_owned() });
    Member { record, store, space: Space { total_bytes: 1 << 40, free_bytes: 1 << 40 } }
}

fn apply(record: &StripeRecord, rebuilt: &claystone_stripe::Rebuilt) -> StripeRecord {
    let mut record = record.clone();
    for (index, place) in &rebuilt.swap.places {
        record.places[index.at()] = *place;
    }
    record.revision += 1;
    record
}

const CODES: [&str; 7] = ["replica:1", "replica:3", "rs:4+2", "rs:2+2", "clay:4+2:5", "clay:3+2:4", "mirror:4x3"];

#[tokio::test]
async fn what_was_written_is_read_whole_and_in_ranges() {
    let world = World::new(6);
    for code in CODES {
        for bytes in [1usize, 63, 4096, 70_000, 262_144, 262_145, 9_000_001] {
            let data = pattern(bytes as u64, bytes);
            let record = world.write(code, &data).await;
            world.assert_reads(&record, &data).await;
            for (offset, length) in [(0, 1), (bytes / 2, bytes / 3), (bytes - 1, 1), (bytes / 7, bytes - bytes / 7)] {
                let range = ByteRange { offset: offset as u64, bytes: length as u64 };
                let read = world.read(&record, range).await.expect("healthy");
                assert!(read == data[offset..offset + length], "{code}: {length} bytes at {offset} of {bytes}");
            }
        }
    }
}

#[tokio::test]
async fn every_loss_up_to_the_tolerance_is_read_through_and_repaired() {
    for code in ["replica:3", "rs:4+2", "clay:4+2:5"] {
        let spec: CodeSpec = code.parse().expect("valid");
        let chunks = spec.shape().chunks();
        for a in 0..chunks {
            for b in a..chunks {
                let world = World::new(8);
                let data = pattern(7, 700_000);
                let record = world.write(code, &data).await;
                let lost: BTreeSet<u16> = [a, b].into();
                lost.iter().for_each(|&index| world.lose(world.disk_of(&record, index)));
                world.assert_reads(&record, &data).await;
                let want: Vec<ChunkIndex> = lost.iter().map(|&index| ChunkIndex(index)).collect();
                let rebuilt = world.stripes.rebuild(&record, &want, &Unpaced).await.expect("recoverable");
                let record = apply(&record, &rebuilt);
                let disks: BTreeSet<DiskId> = record.places.iter().flatten().map(|place| place.disk).collect();
                assert_eq!(disks.len(), usize::from(chunks), "chunks lie on distinct disks");
                assert!(world.stripes.verify(&record, &Unpaced).await.healthy());
                world.assert_reads(&record, &data).await;
            }
        }
    }
}

/// A parity takes the disk of all copies, two of which are the last of their data before that is committed.
#[tokio::test]
async fn copies_that_became_the_last_of_their_data_give_way_to_nothing() {
    let world = World::new(6);
    let data = pattern(7, 300_000);
    let record = world.write("hybrid:rsm:3+2x2", &data).await;
    world.lose(world.disk_of(&record, 3));
    let displacing = [ChunkIndex(3)];
    let nothing = world.stripes.rebuild(&record, &displacing, &Unpaced).await.map(|_| ());
    assert!(
        matches!(nothing, Err(StripeError::TooFewDisks { .. })),
        "{nothing:?}: nobody said that copies may give way"
    );
    let housing = Housing { displacing: &displacing, ..Housing::default() };
    let rebuilt = world.stripes.rebuild_in(&record, &displacing, housing, &Unpaced).await.expect("copies give way");
    let gone: Vec<u16> =
        rebuilt.swap.places.iter().filter(|(_, place)| place.is_none()).map(|(chunk, _)| chunk.0).collect();
    assert_eq!((gone, rebuilt.swap.places.len()), (vec![5, 6, 7], 4));
    assert!(rebuilt.is_as_safe(&world.stripes, &record));
    // One of the data is as good as the parity, and two are more.
    world.lose(world.disk_of(&record, 0));
    assert!(rebuilt.is_as_safe(&world.stripes, &record));
    world.lose(world.disk_of(&record, 1));
    assert!(!rebuilt.is_as_safe(&world.stripes, &record));
    world.assert_reads(&record, &data).await;
    world.assert_reads(&apply(&record, &rebuilt), &data).await;
}

/// Twelve chunks on fewer disks: each loss takes several of them.
#[tokio::test]
async fn every_loss_of_disks_up_to_the_tolerance_is_read_through_and_repaired_in_a_mirror() {
    for disks in [3, 5, 6] {
        for (a, b) in (0..disks).flat_map(|a| (a..disks).map(move |b| (a, b))) {
            let world = World::new(disks);
            let data = pattern(7, 512 << 10);
            let record = world.write("mirror:4x3", &data).await;
            assert!(record.places.iter().all(Option::is_some));
            let lost_disks: BTreeSet<u128> = [a, b].into();
            lost_disks.iter().for_each(|disk| world.lose(*disk as usize));
            world.assert_reads(&record, &data).await;
            let is_lost = |place: &ChunkPlace| lost_disks.contains(&place.disk.0);
            let places = (0..).map(ChunkIndex).zip(record.places.iter().flatten());
            let lost: Vec<ChunkIndex> = places.filter(|(_, place)| is_lost(place)).map(|(index, _)| index).collect();
            if disks < 5 {
                let error = world.stripes.rebuild(&record, &lost, &Unpaced).await.expect_err("copies are all over");
                assert!(matches!(error, StripeError::TooFewDisks { .. }), "{error}");
                continue;
            }
            let rebuilt = world.stripes.rebuild(&record, &lost, &Unpaced).await.expect("recoverable");
            assert!(rebuilt.bytes_read <= rebuilt.bytes_rebuilt, "at most a copy is read for each");
            let record = apply(&record, &rebuilt);
            for data in 0..4 {
                let copies: BTreeSet<usize> = [0, 4, 8].map(|copy| world.disk_of(&record, data + copy)).into();
                assert_eq!(copies.len(), 3, "copies lie on distinct disks");
            }
            assert!(world.stripes.verify(&record, &Unpaced).await.healthy());
            world.assert_reads(&record, &data).await;
        }
    }
}

#[tokio::test]
async fn a_mirror_is_written_though_a_disk_fails_that_takes_many_of_its_chunks() {
    let world = World::new(4);
    world.faulty[3].set(Faults { writes_fail: Some("broken".to_owned()), ..Faults::default() });
    let data = pattern(9, 300_000);
    let record = world.write("mirror:4x3", &data).await;
    assert!(record.places.iter().filter(|place| place.is_none()).count() > 1);
    world.assert_reads(&record, &data).await;
    // On fewer disks than copies: each chunk as often as there are disks, if the caller lets that be.
    let world = World::new(2);
    let code: CodeSpec = "mirror:4x3".parse().expect("valid");
    let refused = world.stripes.writer(code, 3, Durability::Synced).await.map(|_| ());
    assert!(matches!(refused, Err(StripeError::TooFewDisks { needed: 3, available: 2 })), "{refused:?}");
    let mut writer =
        world.stripes.writer_on_fewer_disks(code, 3, &Homes::new(), Durability::Synced).await.expect("two disks");
    writer.append(b"abc").await.expect("taken");
    let (record, _) = writer.finish().await.expect("committed");
    assert_eq!(record.places.iter().flatten().count(), 8);
    world.assert_reads(&record, b"abc").await;
}

#[tokio::test]
async fn one_loss_too_many_is_an_error_and_no_bytes() {
    let world = World::new(6);
    let data = pattern(1, 400_000);
    let record = world.write("rs:4+2", &data).await;
    (0..3).for_each(|index| world.lose(world.disk_of(&record, index)));
    let error = world.read(&record, ByteRange { offset: 0, bytes: 400_000 }).await.expect_err("three of six are lost");
    assert!(matches!(error, StripeError::Unrecoverable { readable: 3, needed: 4, .. }), "{error}");
}

// Test of: [clay §2]
#[tokio::test]
async fn clay_repair_reads_five_eighths_of_what_rs_reads() {
    let data = pattern(2, 1 << 20);
    for (code, chunks_read_per_lost) in [("clay:4+2:5", 2.5), ("rs:4+2", 4.0)] {
        for index in 0..6 {
            let world = World::new(7);
            let record = world.write(code, &data).await;
            world.lose(world.disk_of(&record, index));
            let before: u64 = world.faulty.iter().map(|store| store.counts().bytes_read).sum();
            let rebuilt = world.stripes.rebuild(&record, &[ChunkIndex(index)], &Unpaced).await.expect("one loss");
            let read: u64 = world.faulty.iter().map(|store| store.counts().bytes_read).sum::<u64>() - before;
            assert_eq!(rebuilt.bytes_read, read, "the count is what stores returned");
            assert_eq!(read as f64 / rebuilt.bytes_rebuilt as f64, chunks_read_per_lost, "{code}, chunk {index}");
        }
    }
}

#[tokio::test]
async fn clay_of_a_small_stripe_reads_no_more_than_rs() {
    let world = World::new(7);
    let data = pattern(3, 20_000);
    let record = world.write("clay:4+2:5", &data).await;
    world.lose(world.disk_of(&record, 1));
    let rebuilt = world.stripes.rebuild(&record, &[ChunkIndex(1)], &Unpaced).await.expect("one loss");
    assert!(rebuilt.bytes_read <= 4 * rebuilt.bytes_rebuilt.next_multiple_of(4096), "{rebuilt:?}");
}

#[tokio::test]
async fn a_store_that_hangs_does_not_hold_up_a_read() {
    for code in ["replica:3", "rs:4+2", "clay:4+2:5"] {
        let world = World::new(6);
        let data = pattern(4, 5_000_000);
        let record = world.write(code, &data).await;
        world.faulty[world.disk_of(&record, 0)].set(Faults { hang: true, ..Faults::default() });
        world.assert_reads(&record, &data).await;
    }
}

#[tokio::test]
async fn a_store_that_fails_mid_read_is_read_around() {
    let world = World::new(6);
    let data = pattern(5, 9_000_000);
    let record = world.write("rs:4+2", &data).await;
    world.faulty[world.disk_of(&record, 2)].set(Faults { fail_after: Some(1), ..Faults::default() });
    world.assert_reads(&record, &data).await;
}

#[tokio::test]
async fn a_lost_sector_is_read_around_reported_and_mended_from_the_rest_of_its_chunk() {
    let mut world = World::new(6);
    let data = pattern(6, 16 << 20);
    let record = world.write("rs:4+2", &data).await;
    let chunk = record.chunk_id(ChunkIndex(1)).expect("placed");
    let disk = world.disk_of(&record, 1);
    world.memory[disk].lose_sector(chunk, 5);
    world.assert_reads(&record, &data).await;
    let Damage { chunk: reported, .. } = world.reports.try_recv().expect("the read reports it");
    assert_eq!(reported, chunk);
    let verification = world.stripes.verify(&record, &Unpaced).await;
    assert_eq!(verification.chunks[1], ChunkVerdict::SectorsLost(vec![5]));
    assert_eq!(verification.lost(), [ChunkIndex(1)]);

    let rebuilt = world.stripes.rebuild(&record, &[ChunkIndex(1)], &Unpaced).await.expect("one sector");
    let (_, place) = rebuilt.swap.places[0];
    let ChunkPlace { disk: target, generation, .. } = place.expect("it has a place");
    assert_eq!(target.0 as usize, disk, "a chunk goes back to its healthy disk");
    assert_ne!(generation, chunk.generation);
    // Three of four windows come from the chunk itself: 4 MiB chunk, one window of 1 MiB needs four others.
    assert!(rebuilt.bytes_read <= rebuilt.bytes_rebuilt * 2, "{rebuilt:?}");
    let record = apply(&record, &rebuilt);
    assert!(world.stripes.verify(&record, &Unpaced).await.healthy());
    world.assert_reads(&record, &data).await;
}

#[tokio::test]
async fn more_damaged_chunks_than_the_tolerance_are_read_if_no_window_lost_too_many() {
    let world = World::new(6);
    let data = pattern(8, 16 << 20);
    let record = world.write("rs:4+2", &data).await;
    for index in 0..4u16 {
        // One bad sector each, in four different windows of 256 sectors.
        let chunk = record.chunk_id(ChunkIndex(index)).expect("placed");
        world.memory[world.disk_of(&record, index)].lose_sector(chunk, u64::from(index) * 256);
    }
    world.assert_reads(&record, &data).await;
}

#[tokio::test]
async fn a_write_survives_one_failing_store_and_says_which_chunk_is_missing() {
    let world = World::new(6);
    let data = pattern(9, 300_000);
    world.faulty[3].set(Faults { writes_fail: Some("broken".to_owned()), ..Faults::default() });
    let record = world.write("rs:4+2", &data).await;
    assert_eq!(record.places.iter().filter(|place| place.is_none()).count(), 1);
    world.assert_reads(&record, &data).await;
    world.faulty[3].set(Faults::default());
    let lost = world.stripes.verify(&record, &Unpaced).await.lost();
    let rebuilt = world.stripes.rebuild(&record, &lost, &Unpaced).await.expect("one chunk is missing");
    let record = apply(&record, &rebuilt);
    assert!(world.stripes.verify(&record, &Unpaced).await.healthy());
}

#[tokio::test]
async fn a_full_disk_takes_no_more_chunks_until_it_has_room() {
    let world = World::new(7);
    let full = MemoryStore::with_capacity(DiskId(3), 1000);
    world.stripes.stores().put(member(DiskId(3), DiskState::Active, Some(Arc::new(full))));
    let on_full = |record: &StripeRecord| record.places.iter().flatten().any(|place| place.disk == DiskId(3));
    // Until a write has met it, the disk looks empty.
    let mut tries = 0;
    while world.stripes.stores().candidates().len() == 7 {
        assert!(!on_full(&world.write("rs:4+2", &pattern(1, 300_000)).await));
        tries += 1;
        assert!(tries < 200, "one in seven stripes leaves it out");
    }
    assert_eq!(world.stripes.stores().full(), 1);
    let record = world.write("rs:4+2", &pattern(2, 300_000)).await;
    assert!(record.places.iter().all(Option::is_some), "six others take it whole");
}

#[tokio::test]
async fn a_write_fails_when_too_many_stores_fail() {
    let world = World::new(6);
    for disk in [1, 4] {
        world.faulty[disk].set(Faults { writes_fail: Some("broken".to_owned()), ..Faults::default() });
    }
    let code: CodeSpec = "rs:4+2".parse().expect("valid");
    let mut writer = match world.stripes.writer(code, 10, Durability::Synced).await {
        Ok(writer) => writer,
        Err(error) => {
            assert!(matches!(error, StripeError::NotDurable { written: 4, needed: 5, .. }), "{error}");
            return;
        }
    };
    let appended = writer.append(&[1; 10]).await;
    let error = match appended {
        Ok(()) => writer.finish().await.map(|_| ()).expect_err("two stores failed"),
        Err(error) => error,
    };
    assert!(matches!(error, StripeError::NotDurable { written: 4, needed: 5, .. }), "{error}");
}

#[tokio::test]
async fn a_write_needs_as_many_disks_as_chunks() {
    let world = World::new(5);
    let code: CodeSpec = "rs:4+2".parse().expect("valid");
    let error = world.stripes.writer(code, 10, Durability::Synced).await.map(|_| ()).expect_err("five disks");
    assert!(matches!(error, StripeError::TooFewDisks { needed: 6, available: 5 }), "{error}");
}

#[tokio::test]
async fn a_writer_refuses_more_or_fewer_bytes_than_declared() {
    let world = World::new(6);
    let code: CodeSpec = "rs:4+2".parse().expect("valid");
    let mut writer = world.stripes.writer(code, 10, Durability::Synced).await.expect("six disks");
    assert!(matches!(writer.append(&[0; 11]).await, Err(StripeError::WrongLength { expected: 10, given: 11 })));
    let error = writer.finish().await.map(|_| ()).expect_err("nothing was taken");
    assert!(matches!(error, StripeError::WrongLength { expected: 10, given: 0 }));
}

#[tokio::test]
async fn a_draining_disk_gives_its_chunk_away_by_a_plain_copy() {
    let world = World::new(7);
    let data = pattern(10, 1 << 20);
    let record = world.write("rs:4+2", &data).await;
    let disk = world.disk_of(&record, 0);
    let store: Arc<dyn ChunkStore> = world.faulty[disk].clone();
    world.stripes.stores().put(member(DiskId(disk as u128), DiskState::Draining, Some(store)));
    let rebuilt = world.stripes.rebuild(&record, &[ChunkIndex(0)], &Unpaced).await.expect("readable");
    assert_eq!(rebuilt.bytes_read, rebuilt.bytes_rebuilt, "one chunk is read for one chunk");
    assert_ne!(rebuilt.swap.places[0].1.expect("placed").disk.0 as usize, disk);
}

#[tokio::test]
async fn discard_leaves_nothing_on_disks_that_answer() {
    let world = World::new(6);
    let record = world.write("rs:4+2", &pattern(11, 100_000)).await;
    let (gone, failing) = (world.disk_of(&record, 0), world.disk_of(&record, 1));
    world.memory[gone].set_state(StoreState::Failed { reason: "pulled".to_owned() });
    assert!(world.stripes.discard(&record).await, "an absent disk is swept when it is back");
    assert_eq!(world.memory.iter().map(|store| store.ids().len()).sum::<usize>(), 1);

    let record = world.write("rs:2+2", &pattern(12, 100_000)).await;
    let failing = if record.places.iter().flatten().any(|place| place.disk.0 as usize == failing) {
        failing
    } else {
        world.disk_of(&record, 0)
    };
    world.faulty[failing].set(Faults { writes_fail: Some("busy".to_owned()), ..Faults::default() });
    assert!(!world.stripes.discard(&record).await, "a disk that should delete did not");
}

#[tokio::test]
async fn claims_guard_a_stripe_until_they_are_dropped() {
    let world = World::new(6);
    let code: CodeSpec = "rs:4+2".parse().expect("valid");
    let mut writer = world.stripes.writer(code, 3, Durability::Synced).await.expect("six disks");
    writer.append(b"abc").await.expect("taken");
    let (record, claim) = writer.finish().await.expect("committed");
    assert!(world.stripes.is_claimed(record.id));
    let reading = world.stripes.claim(record.id);
    drop(claim);
    assert!(world.stripes.is_claimed(record.id));
    drop(reading);
    assert!(!world.stripes.is_claimed(record.id));
}

impl World {
    /// Disks are on so many nodes, one after another.
    fn on_nodes(disks: u128, nodes: u128) -> World {
        let world = World::new(disks);
        for disk in 0..disks {
            let node = NodeId((disk % nodes).to_string());
            world.stripes.stores().update(DiskId(disk), |member| member.record.node = node);
        }
        world
    }

    /// Writes a stripe that is acknowledged before all of it is synced; `before_end` happens before the chunks are ended.
    async fn write_buffered(&self, code: &str, data: &[u8], before_end: impl FnOnce(&World)) -> StripeRecord {
        let code: CodeSpec = code.parse().expect("a valid code");
        let mut writer =
            self.stripes.writer(code, data.len() as u64, Durability::Buffered).await.expect("enough disks");
        writer.append(data).await.expect("stores take it");
        before_end(self);
        writer.finish().await.expect("enough stores commit").0
    }

    fn cut_power_of_node(&self, node: u128, nodes: u128) {
        let on_node = self.memory.iter().enumerate().filter(|(disk, _)| *disk as u128 % nodes == node);
        on_node.for_each(|(_, store)| store.lose_unsynced());
    }
}

#[tokio::test]
async fn a_node_that_loses_power_takes_no_stripe_that_is_not_synced_whole() {
    let data = pattern(13, 300_000);
    for code in CODES {
        for nodes in 1..=6 {
            for node in 0..nodes {
                let world = World::on_nodes(6, nodes);
                let record = world.write_buffered(code, &data, |_| ()).await;
                world.cut_power_of_node(node, nodes);
                world.assert_reads(&record, &data).await;
            }
        }
    }
}

#[tokio::test]
async fn a_disk_that_fails_at_the_end_has_others_synced_in_its_place() {
    let data = pattern(14, 300_000);
    for (code, nodes) in [("rs:4+2", 3), ("clay:4+2:5", 3), ("rs:4+2", 2), ("rs:4+2", 1), ("mirror:4x3", 2)] {
        for (node, failing, appended) in
            (0..nodes).flat_map(|node| (0..6).flat_map(move |disk| [0, 1].map(|appended| (node, disk, appended))))
        {
            let world = World::on_nodes(6, nodes);
            let fails = Faults { fail_after: Some(appended), ..Faults::default() };
            let record = world.write_buffered(code, &data, |world| world.faulty[failing].set(fails)).await;
            world.cut_power_of_node(node, nodes);
            world.memory[failing].set_state(StoreState::Failed { reason: "broken".to_owned() });
            world.assert_reads(&record, &data).await;
        }
    }
}

#[tokio::test]
async fn where_each_node_has_as_few_chunks_as_the_code_tolerates_to_lose_none_is_synced() {
    let world = World::on_nodes(6, 3);
    let record = world.write_buffered("rs:4+2", &pattern(15, 300_000), |_| ()).await;
    world.memory.iter().for_each(MemoryStore::lose_unsynced);
    assert!(world.memory.iter().all(|store| store.ids().is_empty()), "of {record:?}");
}
