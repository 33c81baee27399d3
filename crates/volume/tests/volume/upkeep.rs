//! Merging and upkeep of the log beside writers.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use claystone_chunk::testing::pattern;
use claystone_chunk::{ByteRange, ChunkStore, DiskId, NodeId};
use claystone_env::timeout;
use claystone_meta::DiskState;
use claystone_volume::{Blocks, Durable, Settings, Volume, joined};

use crate::world::{World, check, settings};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
/// Far more than anything takes that does not wait for what a test holds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Fills a volume with what it has not had, as the model says.
async fn fill(volume: &Volume, model: &mut [u8], seed: u64) {
    for (number, part) in (seed * 1000..).zip(model.chunks_mut(MIB as usize)) {
        part.copy_from_slice(&pattern(number, part.len()));
    }
    for (number, part) in (0..).zip(model.chunks(MIB as usize)) {
        volume.write(number * MIB, Bytes::copy_from_slice(part), Durable::WithFlush).await.expect("there is room");
    }
}

#[tokio::test]
async fn writers_do_not_wait_while_segments_are_deleted() {
    let world = World::with(3, Settings { segment_bytes: 5 * MIB, ..settings() }, 1).await;
    let volume = world.create("v", 12 * MIB, "replica:3").await;
    let mut model = vec![0; 12 << 20];
    fill(&volume, &mut model, 1).await;
    let full_bytes = volume.status().log_bytes;
    world.traps.deletes().set();
    let merging = volume.clone();
    let merged = world.beside(async move { merging.merge_all().await });
    world.traps.deletes().caught().await;
    // More than a segment, so that the next ones begin too.
    let written = timeout(&*world.env.clock, PATIENCE, async {
        fill(&volume, &mut model, 2).await;
        volume.flush().await.expect("flushed");
    });
    written.await.expect("nobody waits for a segment that is over");
    check(&volume, &model, "while segments are deleted").await;
    world.traps.deletes().open();
    merged.await.expect("it ends").expect("merged");
    volume.merge_all().await.expect("merged");
    assert!(volume.status().log_bytes < full_bytes / 2, "{:?}", volume.status());
    drop(volume);
    let world = world.crash().await;
    let volume = world.volumes.open("v").await.expect("it opens");
    check(&volume, &model, "after a crash").await;
}

#[tokio::test]
async fn a_crash_while_segments_are_deleted_loses_nothing() {
    for power_cut in [false, true] {
        let world = World::with(3, Settings { segment_bytes: 5 * MIB, ..settings() }, 2).await;
        let volume = world.create("v", 12 * MIB, "replica:3").await;
        let mut model = vec![0; 12 << 20];
        fill(&volume, &mut model, 1).await;
        world.traps.deletes().set();
        let merging = volume.clone();
        drop(world.beside(async move { merging.merge_all().await }));
        world.traps.deletes().caught().await;
        fill(&volume, &mut model, 2).await;
        volume.flush().await.expect("flushed");
        drop(volume);
        let world = if power_cut { world.crash().await } else { world.kill() };
        let volume = world.volumes.open("v").await.expect("it opens");
        check(&volume, &model, "after a crash").await;
        volume.merge_all().await.expect("merged");
        check(&volume, &model, "in the stripes").await;
    }
}

#[tokio::test]
async fn a_merge_beside_writers_ends_when_it_has_merged_what_was_asked_for() {
    let world = World::new(4).await;
    let volume = world.create("v", 8 * MIB, "rs:2+1").await;
    let mut model = vec![0; 8 << 20];
    fill(&volume, &mut model, 1).await;
    let all = 8 * MIB / PAGE;
    let some = volume.merge_beside_writers(all / 4 + 1).await.expect("merged");
    assert!((all / 4 + 1..all).contains(&some.pages), "{some:?}");
    assert!(volume.status().merges > 1, "in rounds");
    let rest = volume.merge_beside_writers(u64::MAX).await.expect("merged");
    assert_eq!((some.pages + rest.pages, volume.status().diff_pages), (all, 0));
    check(&volume, &model, "merged").await;
}

/// Pages are read from one copy of the log, many by a call; a page that it has not right comes from another copy.
#[tokio::test]
async fn a_merge_reads_what_one_copy_of_the_log_lacks_from_another() {
    let world = World::with(4, settings(), 3).await;
    let volume = world.create("v", 2 * MIB, "rs:2+1").await;
    let mut model = vec![0; 2 << 20];
    for (number, page) in (0..).zip(model.chunks_mut(PAGE as usize)) {
        page.copy_from_slice(&pattern(number, page.len()));
        let content = Bytes::copy_from_slice(page);
        volume.write(number * PAGE, content.clone(), Durable::WithFlush).await.expect("written");
        let disks = volume.status().log_disks;
        if number % 10 < 2 {
            world.traps.spoil(disks[number as usize % 10], &content);
        }
    }
    let merged = volume.merge_all().await.expect("merged");
    assert_eq!((merged.pages, merged.stripes_lost), (2 * MIB / PAGE, 0));
    check(&volume, &model, "merged").await;
}

/// A volume on four disks whose log has three copies of several segments; then the first of the disks is lost.
async fn with_a_lost_disk(mib: u64, seed: u64) -> (World, Volume, Vec<u8>) {
    let world = World::with(4, Settings { segment_bytes: 5 * MIB, ..settings() }, seed).await;
    let volume = world.create("v", mib * MIB, "replica:3").await;
    let mut model = vec![0; (mib * MIB) as usize];
    fill(&volume, &mut model, 1).await;
    volume.flush().await.expect("flushed");
    world.lose(0);
    (world, volume, model)
}

/// Every segment has its copies, without the lost disk.
async fn is_restored(world: &World) -> bool {
    let record = world.meta.volume("v").await.expect("its record");
    record.log.copies == 3 && !record.log.disks.contains_key(&DiskId(0))
}

/// A disk that is to take no more is left by the log once others have it: what it has of it goes with the rest.
#[tokio::test]
async fn what_a_disk_has_of_a_log_that_left_it_is_deleted() {
    let world = World::with(4, Settings { segment_bytes: 5 * MIB, ..settings() }, 4).await;
    let volume = world.create("v", 12 * MIB, "replica:3").await;
    let mut model = vec![0; 12 << 20];
    fill(&volume, &mut model, 1).await;
    volume.flush().await.expect("flushed");
    let left = volume.status().log_disks[0];
    world.stores.update(left, |member| member.record.state = DiskState::Draining);
    let is_left = async || {
        volume.merge_once(0).await.expect("nothing is merged");
        let log = world.meta.volume("v").await.expect("its record").log;
        log.copies == 3 && !log.disks.contains_key(&left)
    };
    world.until("a copy of every segment elsewhere", is_left).await;
    fill(&volume, &mut model, 2).await;
    volume.merge_all().await.expect("merged");
    let owner = volume.record().id;
    let is_empty = async || {
        volume.merge_once(0).await.expect("nothing is merged");
        world.disks[left.0 as usize].segments().segments(owner).await.expect("listed").is_empty()
    };
    world.until("the end of what is over", is_empty).await;
    check(&volume, &model, "merged").await;
}

#[tokio::test]
async fn writers_do_not_wait_while_segments_are_copied() {
    for left in 1..4 {
        let (world, volume, mut model) = with_a_lost_disk(12, 1).await;
        world.traps.log_reads().set();
        let tending = volume.clone();
        drop(world.beside(async move { tending.merge_once(0).await }));
        world.traps.log_reads().caught().await;
        // More than a segment, so that the next ones begin too. The copies are needed for the rest.
        let written = timeout(&*world.env.clock, PATIENCE, async {
            fill(&volume, &mut model[..6 << 20], 2).await;
            volume.flush().await.expect("flushed");
        });
        written.await.expect("nobody waits for a segment that is copied");
        assert!(!is_restored(&world).await);
        world.traps.log_reads().open();
        volume.merge_once(0).await.expect("nothing is merged");
        world.until("a copy of every segment", async || is_restored(&world).await).await;
        check(&volume, &model, "restored").await;
        drop(volume);
        let world = world.crash().await;
        (0..4).filter(|disk| *disk != left).for_each(|disk| world.lose(disk));
        let what = format!("disk {left} is left");
        let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
        check(&volume, &model, &what).await;
    }
}

#[tokio::test]
async fn a_segment_that_comes_to_be_over_while_it_is_copied_leaves_no_copy() {
    let (world, volume, model) = with_a_lost_disk(12, 2).await;
    // The segment that was made ahead is deleted while there is no room for copies.
    world.set_free(0);
    volume.merge_once(0).await.expect("nothing is merged");
    world.set_free(1 << 40);
    // What may be of a segment on the disk that is to get a copy is deleted first.
    world.traps.deletes().set();
    let tending = volume.clone();
    drop(world.beside(async move { tending.merge_once(0).await }));
    world.traps.deletes().caught().await;
    let merging = volume.clone();
    let merged = world.beside(async move { merging.merge_all().await });
    world.until("the end of all diffs", async || volume.status().diff_pages == 0).await;
    world.traps.deletes().open();
    merged.await.expect("it ends").expect("merged");
    let owner = volume.record().id;
    let leaves_none = async || {
        let mut numbers = Vec::new();
        for disk in &world.disks[1..] {
            let segments = disk.segments().segments(owner).await.expect("listed");
            numbers.push(segments.iter().map(|segment| segment.id.number).collect::<Vec<_>>());
        }
        // What there is has three copies.
        numbers.windows(2).all(|disks| disks[0] == disks[1]) && is_restored(&world).await
    };
    world.until("the end of what is over", leaves_none).await;
    check(&volume, &model, "merged").await;
}

#[tokio::test]
async fn a_crash_at_any_change_while_segments_are_copied_loses_nothing() {
    let mut steps = 0;
    for happens in [false, true] {
        // Each change is the last one once, and happens or not.
        for step in (u64::from(happens)..).step_by(2) {
            let (world, volume, mut model) = with_a_lost_disk(8, step).await;
            world.cut.set(world.cut.calls() + step, happens);
            let restored = async {
                volume.merge_once(0).await.expect("nothing is merged");
                let page = pattern(step, PAGE as usize);
                volume.write(0, page, Durable::Now).await.expect("written");
                world.until("a copy of every segment", async || is_restored(&world).await).await;
            };
            let is_over = world.until_cut(restored).await.is_some();
            drop(volume);
            let what = format!("change {step}, happens: {happens}");
            let world = world.crash().await;
            // As many as there are copies less one, and the first.
            let others = if is_restored(&world).await { 2 } else { 1 };
            (0..others).for_each(|other| world.lose(1 + (step as usize + other) % 3));
            world.lose(0);
            let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
            // The page may be there or not, where it was cut off.
            let found = joined(volume.read(ByteRange { offset: 0, bytes: PAGE }).await.expect("readable"));
            let page = pattern(step, PAGE as usize);
            assert!(found == page || (!is_over && found[..] == model[..PAGE as usize]), "{what}");
            model[..PAGE as usize].copy_from_slice(&found);
            check(&volume, &model, &what).await;
            if is_over {
                break;
            }
            steps += 1;
        }
    }
    assert!(steps > 10, "only {steps} changes were cut");
}

/// A client writes all the time, little, so that nothing is merged.
#[tokio::test]
async fn a_log_that_misses_copies_gets_them_when_a_disk_is_back_though_nothing_is_merged() {
    let settings = Settings { merge_when_idle: Duration::from_secs(3600), ..settings() };
    let world = World::with(2, settings, 1).await;
    let volume = world.create("v", MIB, "replica:2").await;
    let page = |seed| pattern(seed, PAGE as usize);
    volume.write(0, page(1), Durable::WithFlush).await.expect("written");
    world.lose(0);
    volume.write(PAGE, page(2), Durable::Now).await.expect("one disk is left");
    world.find(0);
    // A disk that failed is not asked for half a minute.
    world.env.clock.sleep(Duration::from_secs(25)).await;
    let copies = async || world.meta.volume("v").await.expect("its record").log.copies;
    assert_eq!(copies().await, 1);
    world.until("two copies of each segment", async || copies().await == 2).await;
    volume.write(2 * PAGE, page(3), Durable::Now).await.expect("written");
    drop(volume);
    let world = world.crash().await;
    world.lose(1);
    let volume = world.volumes.open("v").await.expect("the disk that was back has everything");
    for (at, seed) in [(0, 1), (1, 2), (2, 3)] {
        let read = volume.read(ByteRange { offset: at * PAGE, bytes: PAGE }).await.expect("readable");
        assert!(joined(read) == page(seed), "page {at}");
    }
}

/// Two of three disks share a node, and the third was away when the segment was begun.
#[tokio::test]
async fn a_segment_on_one_node_is_followed_by_one_on_two() {
    let world = World::new(3).await;
    for disk in [0, 1] {
        let mut member = world.stores.member(DiskId(disk)).expect("a disk of this store");
        member.record.node = NodeId("both".to_owned());
        world.stores.put(member);
    }
    world.lose(2);
    let volume = world.create("v", MIB, "replica:2").await;
    let nodes = async || {
        let disks = world.meta.volume("v").await.expect("its record").log.disks;
        let members = disks.into_keys().filter_map(|disk| world.stores.member(disk));
        members.map(|member| member.record.node).collect::<BTreeSet<NodeId>>().len()
    };
    volume.write(0, pattern(1, PAGE as usize), Durable::Now).await.expect("written");
    assert_eq!(nodes().await, 1);
    world.find(2);
    volume.merge_all().await.expect("merged");
    volume.write(0, pattern(2, PAGE as usize), Durable::Now).await.expect("written");
    assert_eq!(nodes().await, 2);
    let page = volume.read(ByteRange { offset: 0, bytes: PAGE }).await.expect("readable");
    assert!(joined(page) == pattern(2, PAGE as usize));
}
