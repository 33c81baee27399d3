//! Merging and upkeep of the log beside writers.

use std::time::Duration;

use bytes::Bytes;
use claystone_chunk::testing::pattern;
use claystone_env::timeout;
use claystone_volume::{Blocks, Durable, Settings, Volume};

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
