//! Volumes with homes: where their chunks lie, strands as devices, and how chunks that lie elsewhere come home.

use std::sync::Arc;
use std::time::Duration;

use claystone_chunk::testing::pattern;
use claystone_chunk::{ByteRange, DiskId, NodeId};
use claystone_code::ChunkIndex;
use claystone_meta::StripeRecord;
use claystone_stripe::Unpaced;
use claystone_volume::testing::blocks;
use claystone_volume::{
    Access, Blocks, BlocksError, Durable, NewVolume, Settings, SpanKind, Strand, Volume, VolumeError, Zeroing,
};

use crate::world::{World, check, scribble, settings};

const CHUNK: u64 = 64 << 10;
/// Four stripes of two data chunks.
const BYTES: u64 = 8 * CHUNK;
const NODES: [&str; 6] = ["a", "a", "b", "b", "c", "c"];

fn new(redundancy: &str, homes: &[&str]) -> NewVolume {
    let redundancy = redundancy.parse().expect("valid");
    let homes = homes.iter().map(|home| NodeId((*home).to_owned())).collect();
    NewVolume { chunk_bytes: CHUNK, homes, ..NewVolume::new("v", BYTES, redundancy) }
}

async fn world(seed: u64) -> World {
    let world = World::with(6, settings(), seed).await;
    world.label(NODES);
    world
}

async fn crashed(world: World) -> World {
    let world = world.crash().await;
    world.label(NODES);
    world
}

/// A volume `v` with stripes in all of it, merged.
async fn filled(world: &World, redundancy: &str, homes: &[&str]) -> (Volume, Vec<u8>) {
    world.volumes.create(new(redundancy, homes)).await.expect("a new volume");
    written(world).await
}

/// The same, written while these disks were away, which are there again.
async fn filled_without(world: &World, disks: &[usize], redundancy: &str, homes: &[&str]) -> (Volume, Vec<u8>) {
    world.volumes.create(new(redundancy, homes)).await.expect("a new volume");
    disks.iter().for_each(|disk| world.lose(*disk));
    let written = written(world).await;
    disks.iter().for_each(|disk| world.find(*disk));
    written
}

async fn written(world: &World) -> (Volume, Vec<u8>) {
    let volume = world.volumes.open("v").await.expect("it opens");
    let model = pattern(5, BYTES as usize).to_vec();
    volume.write(0, model.clone().into(), Durable::Now).await.expect("written");
    volume.merge_all().await.expect("merged");
    (volume, model)
}

async fn strand(world: &World, name: &str) -> Strand {
    world.volumes.open_strand(&name.parse().expect("a name")).await.expect("it is there")
}

/// The nodes of each stripe's chunks, one letter each.
async fn lies(world: &World) -> Vec<String> {
    let node = |disk: DiskId| NODES[disk.0 as usize];
    let of =
        |stripe: &StripeRecord| stripe.places.iter().map(|place| place.map_or("-", |place| node(place.disk))).collect();
    world.stripes_of_v().await.iter().map(of).collect()
}

/// All is read without any one node.
async fn each_node_may_be_lost(world: &World, blocks: &dyn Blocks, model: &[u8], what: &str) {
    for node in 0..3 {
        [2 * node, 2 * node + 1].into_iter().for_each(|disk| world.lose(disk));
        check(blocks, model, &format!("{what}, without node {node}")).await;
        [2 * node, 2 * node + 1].into_iter().for_each(|disk| world.find(disk));
    }
}

/// All looks at records that there are to be, twice.
async fn bring_home(volume: &Volume) {
    for _ in 0..4 {
        volume.bring_home_once().await.expect("it goes on");
    }
}

#[tokio::test]
async fn data_lies_at_home_and_parity_elsewhere() {
    for (redundancy, homes, expected) in [
        ("rs:2+1", &["b", "a"][..], "bac"),
        ("rs:2+1", &["c", "b"], "cba"),
        ("replica:2/rs:2+1", &["a", "b"], "ab"),
        ("mirror:2x2", &["a", "c"], "ac"),
        ("rs:4+2", &["a", "c"], "aaccbb"),
    ] {
        let world = world(1).await;
        let (volume, model) = filled(&world, redundancy, homes).await;
        check(&volume, &model, redundancy).await;
        let lies = lies(&world).await;
        assert!(lies.iter().all(|nodes| nodes.starts_with(expected)), "{redundancy}: {lies:?}");
        each_node_may_be_lost(&world, &volume, &model, redundancy).await;
    }
}

/// One home: each chunk has a copy there, and another elsewhere.
#[tokio::test]
async fn copies_of_a_volume_with_one_home_are_near_and_far() {
    let world = world(2).await;
    filled(&world, "replica:2", &["b"]).await;
    let lies = lies(&world).await;
    assert!(lies.iter().all(|nodes| nodes.starts_with('b') && !nodes.ends_with('b')), "{lies:?}");
}

#[tokio::test]
async fn a_strand_is_a_block_device() {
    for (redundancy, homes, name) in
        [("rs:2+1", &["a", "b"][..], "v:b"), ("rs:4+2", &["c", "a"], "v:c"), ("replica:2/rs:2+1", &["b", "c"], "v:b")]
    {
        blocks(|| async move {
            let world = world(3).await;
            let bytes = 4 * BYTES;
            world.volumes.create(NewVolume { bytes, ..new(redundancy, homes) }).await.expect("a new volume");
            Arc::new(strand(&world, name).await) as Arc<dyn Blocks>
        })
        .await;
    }
}

#[tokio::test]
async fn strands_are_parts_of_their_volume() {
    let world = world(4).await;
    let (volume, mut model) = filled(&world, "rs:2+1", &["a", "b"]).await;
    let (a, b) = (strand(&world, "v:a").await, strand(&world, "v:b").await);
    assert_eq!((a.bytes(), b.bytes()), (BYTES / 2, BYTES / 2));
    let taken = world.snapshot("v@before").await.expect("taken");
    assert_eq!(taken.bytes, BYTES);
    let halves = |model: &[u8]| -> [Vec<u8>; 2] {
        [0, 1].map(|half| model.chunks(CHUNK as usize).skip(half).step_by(2).flatten().copied().collect())
    };
    let before = halves(&model);
    let mut after = before.clone();
    scribble(&a, &mut after[0], 6, 30).await;
    scribble(&b, &mut after[1], 7, 30).await;
    for (strand, half) in [(&a, &after[0]), (&b, &after[1])] {
        check(strand, half, "a strand").await;
    }
    for (at, chunk) in model.chunks_mut(CHUNK as usize).enumerate() {
        let within = at / 2 * CHUNK as usize;
        chunk.copy_from_slice(&after[at % 2][within..within + CHUNK as usize]);
    }
    check(&volume, &model, "the volume").await;
    volume.merge_all().await.expect("merged");
    check(&b, &after[1], "merged").await;

    // What they had is in the snapshot, and in a clone of it, whose chunks come to lie at home too.
    let of_snapshot = strand(&world, "v:b@before").await;
    assert_eq!(of_snapshot.access(), Access::ReadOnly);
    check(&of_snapshot, &before[1], "a snapshot").await;
    assert_eq!(of_snapshot.write(0, vec![1].into(), Durable::Now).await, Err(BlocksError::ReadOnly));
    world.volumes.clone_snapshot(&"v@before".parse().expect("a name"), "w").await.expect("cloned");
    let clone = strand(&world, "w:a").await;
    check(&clone, &before[0], "a clone").await;
    clone.write(0, vec![9; 4096].into(), Durable::Now).await.expect("written");
    check(&a, &after[0], "beside a clone").await;

    // In use, neither is deleted.
    let snapshot = "v@before".parse().expect("a name");
    assert!(matches!(world.volumes.delete_snapshot(&snapshot).await, Err(VolumeError::SnapshotInUse { .. })));
    drop(of_snapshot);
    world.volumes.delete_snapshot(&snapshot).await.expect("nobody reads it");
    drop((volume, b));
    assert!(matches!(world.volumes.delete("v").await, Err(VolumeError::InUse { .. })));
    drop(a);
    world.volumes.delete("v").await.expect("nobody uses it");
}

#[tokio::test]
async fn an_error_of_a_strand_names_its_own_bytes() {
    let world = world(5).await;
    let (volume, _) = filled(&world, "rs:2+1", &["a", "b"]).await;
    let b = strand(&world, "v:b").await;
    let outside = ByteRange { offset: BYTES / 2 - 1, bytes: 2 };
    let refused = Err(BlocksError::OutOfRange { range: outside, blocks_bytes: BYTES / 2 });
    assert_eq!(b.read(outside).await.map(|_| ()), refused);
    // Nothing is zeroed where a part of it would be slow.
    let range = ByteRange { offset: 0, bytes: 2 * CHUNK + 1 };
    let fast = Zeroing { only_fast: true, ..Zeroing::default() };
    assert_eq!(b.write_zeroes(range, fast).await, Err(BlocksError::Slow { range }));
    let spans = b.spans(ByteRange { offset: 0, bytes: BYTES / 2 }, 9).await.expect("spans");
    assert_eq!(spans.iter().map(|span| (span.bytes, span.kind)).collect::<Vec<_>>(), [(BYTES / 2, SpanKind::Data)]);
    // The second stripe, without two of its chunks.
    let gone = world.stripes_of_v().await[1].clone();
    for chunk in [1, 2] {
        let disk = gone.places[chunk].expect("it has a place").disk;
        let id = gone.chunk_id(ChunkIndex(chunk as u16)).expect("it has a place");
        claystone_chunk::ChunkStore::delete(&world.disks[disk.0 as usize], id).await.expect("deleted");
    }
    let lost = ByteRange { offset: CHUNK, bytes: 4096 };
    let read = b.read(ByteRange { offset: CHUNK - 4096, bytes: 3 * 4096 }).await;
    assert_eq!(read.map(|_| ()), Err(BlocksError::Lost { range: lost }));
    drop(volume);
}

/// Written while a home is away, then found there again.
#[tokio::test]
async fn chunks_that_lie_elsewhere_are_brought_home() {
    let world = world(6).await;
    [0, 1].into_iter().for_each(|disk| world.lose(disk));
    world.volumes.create(new("rs:2+1", &["a", "b"])).await.expect_err("no disk at home");
    [0, 1].into_iter().for_each(|disk| world.find(disk));
    world.volumes.create(new("rs:2+1", &["a", "b"])).await.expect("a new volume");
    [0, 1].into_iter().for_each(|disk| world.lose(disk));
    let (volume, mut model) = written(&world).await;
    assert!(lies(&world).await.iter().all(|nodes| !nodes.contains('a')));
    bring_home(&volume).await;
    assert!(lies(&world).await.iter().all(|nodes| !nodes.contains('a')), "there is no disk");
    [0, 1].into_iter().for_each(|disk| world.find(disk));
    // What misses a chunk is repaired first.
    let before = world.stripes_of_v().await;
    let parity = before[0].places[2].expect("it has a place").disk;
    world.lose(parity.0 as usize);
    bring_home(&volume).await;
    for (before, after) in before.iter().zip(world.stripes_of_v().await) {
        let misses_one = before.places.iter().flatten().any(|place| place.disk == parity);
        assert_eq!(before.places == after.places, misses_one);
    }
    world.find(parity.0 as usize);
    bring_home(&volume).await;
    let lies = lies(&world).await;
    assert!(lies.iter().all(|nodes| nodes.starts_with("ab")), "{lies:?}");
    assert_eq!(world.garbage(&world.stripes_of_v().await), 0);
    check(&volume, &model, "at home").await;
    scribble(&volume, &mut model, 3, 20).await;
    volume.merge_all().await.expect("merged");
    each_node_may_be_lost(&world, &volume, &model, "merged at home").await;
    world.assert_sound().await;
}

/// A repair knows no homes, and the volume none of repairs.
#[tokio::test]
async fn what_a_repair_moved_is_brought_home() {
    let world = world(7).await;
    let (volume, model) = filled(&world, "rs:2+1", &["a", "b"]).await;
    [0, 1].into_iter().for_each(|disk| world.set_free_of(DiskId(disk), 0));
    for record in world.stripes_of_v().await {
        let rebuilt = world.stripes.rebuild(&record, &[ChunkIndex(0)], &Unpaced).await.expect("rebuilt");
        let after = world.meta.swap(rebuilt.swap.clone()).await.expect("named");
        drop(rebuilt);
        assert!(world.stripes.discard_superseded(&record, &after).await);
    }
    assert!(lies(&world).await.iter().all(|nodes| !nodes.starts_with('a')));
    [0, 1].into_iter().for_each(|disk| world.set_free_of(DiskId(disk), 1 << 40));
    bring_home(&volume).await;
    let lies = lies(&world).await;
    assert!(lies.iter().all(|nodes| nodes.starts_with("ab")), "{lies:?}");
    each_node_may_be_lost(&world, &volume, &model, "at home").await;
    assert_eq!(world.garbage(&world.stripes_of_v().await), 0);
}

/// Each of two forms, written while a home is away; and a clone that shares the stripes.
#[tokio::test]
async fn all_forms_come_home_and_survive_a_node() {
    for (seed, redundancy, homes, data) in [
        (10, "replica:2/rs:2+1", &["a", "b"][..], "ab"),
        (11, "mirror:2x2", &["a", "b"], "ab"),
        (12, "replica:2", &["a"], "a"),
        (13, "rs:4+2", &["a", "b"], "aabb"),
    ] {
        let world = world(seed).await;
        let (volume, model) = filled_without(&world, &[0, 1], redundancy, homes).await;
        world.snapshot("v@s").await.expect("taken");
        world.volumes.clone_snapshot(&"v@s".parse().expect("a name"), "w").await.expect("cloned");
        let clone = world.volumes.open("w").await.expect("it opens");
        check(&clone, &model, redundancy).await;
        for record in world.stripes_of_v().await {
            // What was left out is a repair's.
            let lost = (0..record.places.len()).filter(|at| record.places[*at].is_none());
            let lost: Vec<ChunkIndex> = lost.map(|at| ChunkIndex(at as u16)).collect();
            if !lost.is_empty() {
                let rebuilt = world.stripes.rebuild(&record, &lost, &Unpaced).await.expect("rebuilt");
                world.meta.swap(rebuilt.swap.clone()).await.expect("named");
            }
        }
        bring_home(&volume).await;
        let lies = lies(&world).await;
        assert!(lies.iter().all(|nodes| nodes.starts_with(data)), "{redundancy}: {lies:?}");
        each_node_may_be_lost(&world, &volume, &model, redundancy).await;
        each_node_may_be_lost(&world, &clone, &model, &format!("a clone of {redundancy}")).await;
        bring_home(&clone).await;
        each_node_may_be_lost(&world, &clone, &model, &format!("a clone of {redundancy}, at home")).await;
    }
}

/// Another process opens the volume: the former owner moves nothing any more, and says so.
#[tokio::test]
async fn a_chunk_that_comes_home_for_ever_is_given_up_when_the_log_is_full() {
    let small = Settings { reserve_bytes: 24 << 20, segment_bytes: 6 << 20, ..settings() };
    let world = World::with(6, small, 9).await.with_read_timeout(Duration::from_secs(3600));
    world.label(NODES);
    let (volume, _) = filled_without(&world, &[0, 1], "rs:2+1", &["a", "b"]).await;
    world.traps.log_reads().open();
    let reads = world.cut.hold_reads().await;
    let (mut model, before) = (Vec::new(), volume.status().merged.pages);
    let written = async {
        for round in 0..100 {
            model = pattern(100 + round, BYTES as usize).to_vec();
            volume.write(0, model.clone().into(), Durable::Now).await.expect("it can be merged");
        }
        // While the chunk is still read.
        assert!(volume.status().merged.pages > before, "merging goes on");
        drop(reads);
    };
    let (brought, ()) = futures::future::join(volume.bring_home_once(), written).await;
    brought.expect("it goes on");
    bring_home(&volume).await;
    each_node_may_be_lost(&world, &volume, &model, "given up").await;
}

#[tokio::test]
async fn a_former_owner_brings_nothing_home() {
    let world = world(9).await;
    let (volume, model) = filled_without(&world, &[0, 1], "rs:2+1", &["a", "b"]).await;
    volume.flush().await.expect("flushed");
    let second = world.another_process();
    second.label(NODES);
    let taken_over = second.volumes.open("v").await.expect("taken over");
    let before = world.stripes_of_v().await;
    assert!(matches!(volume.bring_home_once().await, Err(BlocksError::Failed { .. })));
    assert_eq!(world.stripes_of_v().await, before);
    bring_home(&taken_over).await;
    each_node_may_be_lost(&second, &taken_over, &model, "taken over").await;
}

/// The process ends at any change of a store while chunks are brought home, and a disk is lost then.
#[tokio::test]
async fn a_crash_at_any_step_of_bringing_home_loses_nothing() {
    let mut steps = 0;
    for happens in [false, true] {
        for step in 0.. {
            let world = world(step).await;
            let (volume, mut model) = filled_without(&world, &[0, 1], "rs:2+1", &["a", "b"]).await;
            // Stripes with diffs, and some that a snapshot has too.
            world.snapshot("v@s").await.expect("taken");
            let taken = model.clone();
            scribble(&volume, &mut model, 2, 4).await;
            volume.flush().await.expect("flushed");
            world.cut.set(world.cut.calls() + step, happens);
            let work = async {
                volume.merge_all().await.expect("merged");
                bring_home(&volume).await;
            };
            if world.until_cut(work).await.is_some() {
                break;
            }
            steps += 1;
            drop(volume);
            let world = crashed(world).await;
            let what = format!("step {step}, happens: {happens}");
            let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&volume, &model, &what).await;
            let disk = step as usize % 6;
            world.lose(disk);
            let what = format!("{what}, without disk {disk}");
            check(&volume, &model, &what).await;
            check(&world.open_snapshot("v@s").await, &taken, &what).await;
            world.find(disk);
            scribble(&volume, &mut model, 3, 4).await;
            volume.merge_all().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            bring_home(&volume).await;
            let lies = lies(&world).await;
            assert!(lies.iter().all(|nodes| nodes.starts_with("ab")), "{what}: {lies:?}");
            each_node_may_be_lost(&world, &volume, &model, &what).await;
            world.assert_sound().await;
        }
    }
    assert!(steps > 40, "only {steps} steps were cut");
}

/// Three disks, each on a node: data and parity change places. The process ends at any change of a store.
#[tokio::test]
async fn a_crash_at_any_step_of_an_exchange_loses_nothing() {
    const THREE: [&str; 3] = ["a", "b", "c"];
    let mut steps = 0;
    for happens in [false, true] {
        for step in 0.. {
            let world = World::with(3, settings(), step).await;
            world.label(THREE);
            let (volume, model) = filled_without(&world, &[0], "rs:2+1", &["a", "b"]).await;
            for record in world.stripes_of_v().await {
                let rebuilt = world.stripes.rebuild(&record, &[ChunkIndex(2)], &Unpaced).await.expect("rebuilt");
                world.meta.swap(rebuilt.swap.clone()).await.expect("named");
            }
            world.cut.set(world.cut.calls() + step, happens);
            if world.until_cut(bring_home(&volume)).await.is_some() {
                break;
            }
            steps += 1;
            drop(volume);
            let world = world.crash().await;
            world.label(THREE);
            let what = format!("step {step}, happens: {happens}");
            let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
            for disk in 0..3 {
                world.lose(disk);
                check(&volume, &model, &format!("{what}, without disk {disk}")).await;
                world.find(disk);
            }
            bring_home(&volume).await;
            for stripe in world.stripes_of_v().await {
                let disks: Vec<u128> = stripe.places.iter().flatten().map(|place| place.disk.0).collect();
                assert_eq!(disks, [0, 1, 2], "{what}");
            }
            check(&volume, &model, &what).await;
            world.assert_sound().await;
        }
    }
    assert!(steps > 20, "only {steps} steps were cut");
}

#[tokio::test]
async fn what_cannot_be_homes_is_refused() {
    let world = world(8).await;
    let refusal = async |redundancy: &str, homes: &[&str]| {
        world.volumes.create(new(redundancy, homes)).await.expect_err("refused").to_string()
    };
    for (redundancy, homes, word) in [
        ("rs:2+1", &["a", "a"][..], "is one twice"),
        ("rs:2+1", &["a b", "c"], "label"),
        ("rs:4+2", &["a", "b", "c"], "as many of its 4"),
        ("rs:2+1", &["a"], "at most the 1 that"),
        ("rs:2+1", &["a", "z"], "node z"),
    ] {
        let refused = refusal(redundancy, homes).await;
        assert!(refused.contains(word), "{redundancy} {homes:?}: {refused}");
    }
    world.set_free_of(DiskId(1), 0);
    let refused = refusal("mirror:4x3", &["a", "b"]).await;
    assert!(refused.contains("2 disks") && refused.contains("node a, there are 1"), "{refused}");
    world.set_free_of(DiskId(1), 1 << 40);
    // Two nodes: parity is beside data.
    world.label(["a", "a", "b", "b", "b", "b"]);
    for redundancy in ["rs:2+1", "replica:2/rs:2+1", "rs:4+2"] {
        let refused = refusal(redundancy, &["a", "b"]).await;
        assert!(refused.contains("needs more nodes"), "{refused}");
    }
    world.label(["a"; 6]);
    let refused = refusal("replica:2", &["a"]).await;
    assert!(refused.contains("needs more nodes"), "{refused}");
    world.label(NODES);
    let short = NewVolume { bytes: BYTES + 4096, ..new("rs:2+1", &["a", "b"]) };
    assert!(matches!(world.volumes.create(short).await, Err(VolumeError::NotWholeStripes { .. })));
    world.volumes.create(new("rs:2+2", &["a", "b"])).await.expect("made");
    assert!(matches!(world.volumes.grow("v", BYTES + 4096).await, Err(VolumeError::NotWholeStripes { .. })));
    world.volumes.grow("v", 2 * BYTES).await.expect("grown");
    assert_eq!(strand(&world, "v:a").await.bytes(), BYTES);
    for name in ["v:c", "w:a", "v:a@s"] {
        let name = name.parse().expect("a name");
        let refused = world.volumes.open_strand(&name).await.expect_err("there is none").to_string();
        assert!(name.to_string() != "v:c" || refused.contains("homes are a, b"), "{refused}");
    }
}
