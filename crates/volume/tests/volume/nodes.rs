//! A log over disks of which several share a node.

use std::collections::BTreeMap;

use claystone_chunk::ChunkStore;
use claystone_chunk::testing::pattern;
use claystone_volume::{Blocks, Durable, VolumeError};

use crate::world::{World, check, settings};

const PAGE: u64 = 4096;
const BYTES: u64 = 1 << 20;
const DISKS: usize = 6;

/// A process ends, and the next one knows these nodes.
async fn crashed(world: World, nodes: [&str; DISKS]) -> World {
    let world = world.crash().await;
    world.label(nodes);
    world
}

/// A volume `v` with two copies of each segment of its log, which is on all disks, and what was flushed. No process has it open.
async fn on_all_disks(seed: u64, nodes: [&str; DISKS]) -> (World, Vec<u8>) {
    let mut world = World::with(DISKS as u128, settings(), seed).await;
    world.label(nodes);
    let mut model = vec![0; BYTES as usize];
    let mut volume = world.create("v", BYTES, "replica:2").await;
    for page in 0.. {
        let content = pattern(page, PAGE as usize);
        let at = (page * PAGE) as usize;
        model[at..at + PAGE as usize].copy_from_slice(&content);
        volume.write(page * PAGE, content, Durable::Now).await.expect("written");
        drop(volume);
        world = crashed(world, nodes).await;
        if world.meta.volume("v").await.expect("its record").log.disks.len() == DISKS {
            break;
        }
        volume = world.volumes.open("v").await.expect("all disks are there");
    }
    (world, model)
}

/// The disks of each segment.
async fn segments(world: &World) -> BTreeMap<u64, Vec<usize>> {
    let id = world.meta.volume("v").await.expect("its record").id;
    let mut segments: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (disk, store) in world.disks.iter().enumerate() {
        for info in store.segments().segments(id).await.expect("listed") {
            segments.entry(info.id.number).or_default().push(disk);
        }
    }
    segments
}

const PAIRS: [&str; DISKS] = ["a", "a", "b", "b", "c", "c"];

#[tokio::test]
async fn a_lost_node_has_no_segment_alone() {
    for node in 0..3 {
        let (world, mut model) = on_all_disks(node as u64, PAIRS).await;
        let log = world.meta.volume("v").await.expect("its record").log;
        assert_eq!((log.copies, log.nodes), (2, 2));
        [2 * node, 2 * node + 1].into_iter().for_each(|disk| world.lose(disk));
        let volume = world.volumes.open("v").await.expect("each segment is on another node");
        check(&volume, &model, "without a node").await;
        model[..PAGE as usize].fill(7);
        volume.write(0, vec![7; PAGE as usize].into(), Durable::Now).await.expect("it goes on");
        drop(volume);
        let world = crashed(world, PAIRS).await;
        let volume = world.volumes.open("v").await.expect("it opens");
        check(&volume, &model, "with the node again").await;
        volume.merge_all().await.expect("merged");
        check(&volume, &model, "merged").await;
        world.assert_sound().await;
    }
}

/// Nor where the disks are on other nodes than when this was recorded: both copies on one, and on the only one that is away.
#[tokio::test]
async fn without_both_copies_of_a_segment_a_volume_does_not_open() {
    for seed in 0..4 {
        let (world, model) = on_all_disks(seed, PAIRS).await;
        let found = segments(&world).await;
        let copies = found.values().find(|disks| disks.len() == 2).expect("a segment with both of its copies");
        let mut moved = ["d"; DISKS];
        copies.iter().for_each(|disk| moved[*disk] = "e");
        for nodes in [PAIRS, moved] {
            copies.iter().for_each(|disk| world.lose(*disk));
            world.label(nodes);
            let refused = world.volumes.open("v").await.expect_err("what was flushed is on these disks");
            assert!(matches!(refused, VolumeError::LogAbsent { .. }), "{refused}");
        }
        copies.iter().for_each(|disk| world.find(*disk));
        let volume = world.volumes.open("v").await.expect("it opens");
        check(&volume, &model, "with all disks").await;
    }
}

/// Where only disks of one node took a segment, that node is all that it is on.
#[tokio::test]
async fn a_segment_on_one_node_is_missed_with_it() {
    let world = World::new(DISKS as u128).await;
    world.label(PAIRS);
    (2..DISKS).for_each(|disk| world.lose(disk));
    let volume = world.create("v", BYTES, "replica:2").await;
    let mut model = vec![0; BYTES as usize];
    model[..PAGE as usize].fill(7);
    volume.write(0, vec![7; PAGE as usize].into(), Durable::Now).await.expect("written");
    drop(volume);
    let world = crashed(world, PAIRS).await;
    let log = world.meta.volume("v").await.expect("its record").log;
    assert_eq!((log.copies, log.nodes, log.disks.len()), (2, 1, 2));
    (0..2).for_each(|disk| world.lose(disk));
    assert!(matches!(world.volumes.open("v").await, Err(VolumeError::LogAbsent { .. })));
    world.find(1);
    let volume = world.volumes.open("v").await.expect("a copy is there");
    check(&volume, &model, "with one copy").await;
}
