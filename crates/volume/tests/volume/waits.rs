//! Reads that must decode wait for who changes their stripe, and for the records: nothing is called lost that is not.

use std::time::Duration;

use bytes::Bytes;
use claystone_chunk::ByteRange;
use claystone_chunk::testing::pattern;
use claystone_code::ChunkIndex;
use claystone_meta::StripeRecord;
use claystone_volume::{Blocks, BlocksError, Durable, Volume, joined};
use tokio::sync::oneshot::Receiver;

use crate::world::World;

const PAGE: u64 = 4096;
/// Bytes of a data chunk of the worlds' volumes.
const CHUNK: u64 = 64 << 10;
/// How long a read takes at most, but for the merges that it waits for.
const READ_TIMEOUT: Duration = Duration::from_millis(100);

fn page(seed: u64) -> Bytes {
    pattern(seed, PAGE as usize)
}

async fn read(volume: &Volume) -> Result<Bytes, BlocksError> {
    volume.read(ByteRange { offset: 0, bytes: PAGE }).await.map(joined)
}

/// A world in which reads are not waited for long.
async fn hurried() -> World {
    World::new(4).await.with_read_timeout(READ_TIMEOUT)
}

/// A volume of one stripe whose first page must be decoded.
async fn with_a_lost_sector(world: &World) -> Volume {
    let volume = world.create("v", 2 * CHUNK, "rs:2+1").await;
    for (offset, seed) in [(0, 1), (CHUNK, 2)] {
        volume.write(offset, page(seed), Durable::Now).await.expect("it takes writes");
    }
    volume.merge_all().await.expect("merged");
    let stripe: StripeRecord =
        world.meta.volume_stripes(volume.record().id, None, 1).await.expect("listed").remove(0).1;
    let disk = stripe.places[0].expect("it has a place").disk;
    world.disks[disk.0 as usize].lose_sector(stripe.chunk_id(ChunkIndex(0)).expect("it has a place"), 0);
    volume
}

/// A merge of this volume that has the stripe and writes no chunk before `traps.overwrites()` is opened, and a read that
/// waits for it for longer than a read may take.
async fn read_beside_a_merge(world: &World, volume: &Volume) -> Receiver<Result<Bytes, BlocksError>> {
    volume.write(CHUNK, page(3), Durable::Now).await.expect("it takes writes");
    world.traps.overwrites().set();
    let merging = volume.clone();
    drop(world.beside(async move { merging.merge_all().await }));
    world.traps.overwrites().caught().await;
    let reading = volume.clone();
    let mut read = world.beside(async move { read(&reading).await });
    world.env.clock.sleep(4 * READ_TIMEOUT).await;
    assert!(read.try_recv().is_err(), "it has nothing to tell yet");
    read
}

#[tokio::test]
async fn a_read_that_decodes_waits_for_a_merge_however_long_that_takes() {
    let world = hurried().await;
    let volume = with_a_lost_sector(&world).await;
    let read = read_beside_a_merge(&world, &volume).await;
    world.traps.overwrites().open();
    assert_eq!(read.await.expect("it ends"), Ok(page(1)));
}

#[tokio::test]
async fn a_read_waits_no_longer_when_the_merge_has_failed() {
    let world = hurried().await;
    let volume = with_a_lost_sector(&world).await;
    let read = read_beside_a_merge(&world, &volume).await;
    // Another process has the volume now, so the merge is refused and leaves its stripe in nobody's hands.
    let other = world.another_process();
    let _owner = other.volumes.open("v").await.expect("it opens");
    world.traps.overwrites().open();
    let told = read.await.expect("it ends");
    assert!(matches!(told, Err(BlocksError::Failed { .. })), "{told:?}");
}

#[tokio::test]
async fn records_that_do_not_answer_are_asked_again_and_lose_no_bytes() {
    let world = World::new(4).await;
    let volume = with_a_lost_sector(&world).await;
    world.database.refuse(0, 3);
    assert_eq!(read(&volume).await, Ok(page(1)));
    world.database.refuse(0, u64::MAX);
    let told = read(&volume).await;
    assert!(matches!(told, Err(BlocksError::Unavailable { .. })), "{told:?}");
    world.database.refuse(0, 0);
    assert_eq!(read(&volume).await, Ok(page(1)));
}
