//! What goes wrong beside a merge, a read or an opening, in the order that hurts.

use std::time::Duration;

use bytes::Bytes;
use claystone_chunk::testing::pattern;
use claystone_chunk::{ByteRange, ChunkStore, DiskId};
use claystone_meta::DiskState;
use claystone_volume::{Blocks, BlocksError, Durable, Settings, Volume, joined};
use futures::FutureExt;

use crate::world::{World, settings};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
/// Bytes of a data chunk of the worlds' volumes.
const CHUNK: u64 = 64 << 10;

fn page(seed: u64) -> Bytes {
    pattern(seed, PAGE as usize)
}

async fn write(volume: &Volume, offset: u64, content: Bytes) {
    volume.write(offset, content, Durable::Now).await.expect("it takes writes");
}

async fn read(volume: &Volume, offset: u64, bytes: u64) -> Result<Bytes, BlocksError> {
    volume.read(ByteRange { offset, bytes }).await.map(joined)
}

/// Waits for what comes by itself.
async fn until(world: &World, what: &str, holds: impl Fn() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        world.env.clock.sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} does not come");
}

#[tokio::test]
async fn a_page_that_a_merge_writes_stays_in_the_log_though_it_is_written_again() {
    let settings = Settings { segment_bytes: 5 * MIB, ..settings() };
    let world = World::with(4, settings, 1).await;
    let volume = world.create("v", 2 * MIB, "rs:2+1").await;
    write(&volume, 0, page(1)).await;
    volume.merge_all().await.expect("merged");
    // The page is all that is needed of its segment.
    write(&volume, 0, page(2)).await;
    for seed in 1..6 {
        write(&volume, MIB, pattern(seed, MIB as usize)).await;
    }
    volume.discard(ByteRange { offset: MIB, bytes: MIB }, Durable::Now).await.expect("it takes discards");
    world.traps.overwrites().set();
    let merge = world.beside({
        let volume = volume.clone();
        async move { volume.merge_all().await }
    });
    world.traps.overwrites().caught().await;
    write(&volume, 0, page(3)).await;
    // While the merge writes, the log leaves a disk.
    let leaves = volume.status().log_disks[0];
    world.stores.update(leaves, |member| member.record.state = DiskState::Draining);
    until(&world, "the log without the disk", || !volume.status().log_disks.contains(&leaves)).await;
    world.cut.now();
    drop((merge, volume));
    let world = world.crash().await;
    let volume = world.volumes.open("v").await.expect("what the merge was writing is there");
    assert_eq!(read(&volume, 0, PAGE).await, Ok(page(3)));
}

#[tokio::test]
async fn what_missed_a_merge_keeps_its_place_while_too_much_else_is_absent() {
    let world = World::with(6, settings(), 2).await;
    let volume = world.create("v", 2 * CHUNK, "rs:2+1").await;
    write(&volume, 0, page(1)).await;
    write(&volume, CHUNK, page(2)).await;
    volume.merge_all().await.expect("merged");
    let stripes = world.meta.volume_stripes(volume.record().id, None, 9).await.expect("listed");
    let disk_of = |chunk: usize| stripes[0].1.places[chunk].expect("it has a place").disk.0 as usize;
    let (other, parity) = (disk_of(1), disk_of(2));
    write(&volume, 0, page(3)).await;
    world.lose(other);
    world.cut.kill(parity, 0);
    let refused = volume.merge_all().await.expect_err("the other page would be lost");
    assert!(matches!(refused, BlocksError::Failed { .. }), "{refused}");
    drop(volume);
    // The parity is back, the other chunk is not.
    world.cut.heal();
    let volume = world.volumes.open("v").await.expect("it opens again");
    assert_eq!(read(&volume, 0, PAGE).await, Ok(page(3)));
    assert_eq!(read(&volume, CHUNK, PAGE).await, Ok(page(2)));
}

#[tokio::test]
async fn what_was_given_up_is_not_waited_for() {
    let world = World::with(6, settings(), 3).await;
    let volume = world.create("v", 2 * CHUNK, "rs:2+1").await;
    write(&volume, 0, page(1)).await;
    write(&volume, CHUNK, page(2)).await;
    volume.merge_all().await.expect("merged");
    let stripes = world.meta.volume_stripes(volume.record().id, None, 9).await.expect("listed");
    let place_of = |chunk: usize| stripes[0].1.places[chunk].expect("it has a place").disk;
    write(&volume, 0, page(3)).await;
    world.traps.overwrites().set();
    let merge = world.beside({
        let volume = volume.clone();
        async move { volume.merge_all().await }
    });
    world.traps.overwrites().caught().await;
    // Both are gone while the merge writes, and nobody expects them back.
    world.cut.kill(place_of(2).0 as usize, 0);
    for disk in [place_of(1), place_of(2)] {
        world.stores.update(disk, |member| member.record.state = DiskState::Lost);
    }
    world.traps.overwrites().open();
    merge.await.expect("it ends").expect("merged");
    assert_eq!(read(&volume, 0, PAGE).await, Ok(page(3)));
    assert!(matches!(read(&volume, CHUNK, PAGE).await, Err(BlocksError::Lost { .. })));
}

#[tokio::test]
async fn a_merge_that_panics_leaves_its_stripes_in_nobodys_hands() {
    let world = World::new(4).await;
    let volume = world.create("v", 2 * CHUNK, "rs:2+1").await;
    write(&volume, 0, page(1)).await;
    volume.merge_all().await.expect("merged");
    let stripes = world.meta.volume_stripes(volume.record().id, None, 9).await.expect("listed");
    write(&volume, 0, page(2)).await;
    world.traps.panic_at_overwrites();
    volume.merge_all().await.expect_err("it panics");
    assert!(world.stripes.try_alone(stripes[0].1.id).is_none(), "nobody rebuilds it");
}

#[tokio::test]
async fn pages_that_follow_each_other_are_read_though_no_copy_of_the_log_has_all_of_them() {
    let world = World::new(4).await;
    let volume = world.create("v", MIB, "rs:2+1").await;
    let pages: Vec<Bytes> = (0..4).map(page).collect();
    write(&volume, 0, pages.concat().into()).await;
    let disks: Vec<DiskId> = volume.status().log_disks;
    assert_eq!(disks.len(), 2);
    world.traps.spoil(disks[0], &pages[1]);
    world.traps.spoil(disks[1], &pages[2]);
    assert_eq!(
        read(&volume, 100, 4 * PAGE - 200).await,
        Ok(Bytes::from(pages.concat()).slice(100..4 * PAGE as usize - 100))
    );
    // One that no copy has is lost, and no other.
    world.traps.spoil(disks[1], &pages[1]);
    let lost = ByteRange { offset: PAGE, bytes: PAGE };
    assert_eq!(read(&volume, 0, 4 * PAGE).await, Err(BlocksError::Lost { range: lost }));
    assert_eq!(read(&volume, 2 * PAGE, 2 * PAGE).await, Ok(pages[2..].concat().into()));
}

#[tokio::test]
async fn a_late_read_of_what_is_discarded_and_deleted_meanwhile_reads_zeros() {
    let world = World::new(4).await;
    let volume = world.create("v", 2 * CHUNK, "rs:2+1").await;
    write(&volume, 0, page(1)).await;
    volume.merge_all().await.expect("merged");
    let reads = world.cut.hold_reads().await;
    let mut late = Box::pin(read(&volume, 0, PAGE));
    assert!(late.as_mut().now_or_never().is_none());
    volume.discard(ByteRange { offset: 0, bytes: 2 * CHUNK }, Durable::Now).await.expect("it takes discards");
    assert_eq!(volume.merge_all().await.expect("merged").stripes_dropped, 1);
    for disk in &world.disks {
        for chunk in disk.ids() {
            disk.delete(chunk).await.expect("deleted");
        }
    }
    drop(reads);
    assert_eq!(late.await, Ok(vec![0; PAGE as usize].into()));
}
