//! Openings and deletes that are waited for by nobody, or by many, or that fail: what may be half merged stays held.

use std::time::Duration;

use bytes::Bytes;
use claystone_chunk::testing::pattern;
use claystone_chunk::{ByteRange, ChunkStore, DiskId, OwnerId, StripeId};
use claystone_env::timeout;
use claystone_volume::{Blocks, Durable, Recovered, State, Volume, VolumeError, joined};
use futures::FutureExt;

use crate::world::{World, settings};

const CHUNK: u64 = 64 << 10;

async fn write(volume: &Volume, seed: u64) {
    volume.write(0, pattern(seed, 4096), Durable::Now).await.expect("it takes writes");
}

async fn read(volume: &Volume) -> Bytes {
    joined(volume.read(ByteRange { offset: 0, bytes: 4096 }).await.expect("readable"))
}

async fn stripe_of(world: &World, name: &str) -> (StripeId, Vec<usize>) {
    let id = world.meta.volume(name).await.expect("there").id;
    let stripe = world.meta.volume_stripes(id, None, 1).await.expect("listed").remove(0).1;
    (stripe.id, stripe.places.iter().map(|place| place.expect("placed").disk.0 as usize).collect())
}

/// A volume of one stripe that was merged once and has a page in its log.
async fn volume(world: &World, name: &str) -> Volume {
    let volume = world.create(name, 2 * CHUNK, "rs:2+1").await;
    write(&volume, 1).await;
    volume.merge_all().await.expect("merged");
    write(&volume, 2).await;
    volume
}

/// One whose merge has failed half-way, and its stripe.
async fn half_merged(world: &World) -> StripeId {
    let volume = volume(world, "v").await;
    let (stripe, disks) = stripe_of(world, "v").await;
    world.lose(disks[1]);
    world.cut.kill(disks[2], 0);
    volume.merge_all().await.expect_err("the other chunk would be lost");
    world.cut.heal();
    world.find(disks[1]);
    stripe
}

/// Nobody else has it.
fn is_held(world: &World, stripe: StripeId) -> bool {
    world.stripes.try_alone(stripe).is_none()
}

#[tokio::test]
async fn a_volume_that_grows_while_it_is_opened_is_as_long() {
    let world = World::new(6).await;
    volume(&world, "v").await.flush().await.expect("flushed");
    let world = world.crash().await;
    world.traps.log_reads().set();
    let volumes = world.volumes.clone();
    let opening = world.beside(async move { volumes.open("v").await });
    world.traps.log_reads().caught().await;
    let volumes = world.volumes.clone();
    let growing = world.beside(async move { volumes.grow("v", 4 * CHUNK).await });
    world.env.clock.sleep(Duration::from_millis(50)).await;
    world.traps.log_reads().open();
    let volume = opening.await.expect("it ends").expect("it opens");
    growing.await.expect("it ends").expect("longer");
    assert_eq!(volume.bytes(), 4 * CHUNK);
}

#[tokio::test]
async fn an_opening_that_nobody_waits_for_goes_on_with_what_it_holds() {
    let world = World::new(6).await;
    let stripe = half_merged(&world).await;
    assert!(is_held(&world, stripe));
    world.traps.log_reads().set();
    let opening = {
        let volumes = world.volumes.clone();
        async move { volumes.open("v").await.is_ok() }
    };
    let opening = Box::pin(timeout(&*world.env.clock, Duration::from_millis(300), opening));
    assert_eq!(opening.await, None, "the client has no patience");
    world.traps.log_reads().caught().await;
    assert!(is_held(&world, stripe));
    // Who comes now gets what the first one began.
    let second = world.beside({
        let volumes = world.volumes.clone();
        async move { volumes.open("v").await }
    });
    world.traps.log_reads().open();
    let second = second.await.expect("it ends").expect("it opens");
    assert!(!is_held(&world, stripe));
    assert_eq!(second.record().term.0, 2, "it was opened once since it failed");
    assert_eq!(read(&second).await, pattern(2, 4096));
}

#[tokio::test]
async fn an_opening_holds_up_no_other_volume_and_its_end_is_for_all_who_wait() {
    let world = World::new(6).await;
    let other = volume(&world, "other").await;
    half_merged(&world).await;
    world.traps.log_reads().set();
    let open = || {
        let volumes = world.volumes.clone();
        world.beside(async move { volumes.open("v").await })
    };
    let first = open();
    world.traps.log_reads().caught().await;
    let second = open();
    let limit = Duration::from_secs(20);
    let found = timeout(&*world.env.clock, limit, world.volumes.look()).await.expect("at once").expect("listed");
    assert!(matches!(found[0].state, State::Open(_)), "{found:?}");
    let grown = timeout(&*world.env.clock, limit, world.volumes.grow("other", 4 * CHUNK)).await;
    assert_eq!(grown.expect("at once").expect("grown").bytes, other.bytes());
    let opened = timeout(&*world.env.clock, limit, world.volumes.open("other")).await;
    assert!(opened.expect("at once").is_ok());
    // No disk has a log any more.
    world.env.clock.sleep(Duration::from_millis(50)).await;
    (0..6).for_each(|disk| world.lose(disk));
    world.traps.log_reads().open();
    let first = first.await.expect("it ends").expect_err("its log is gone");
    let second = second.await.expect("it ends").expect_err("its log is gone");
    assert!(!matches!(first, VolumeError::Refused { .. }), "{first}");
    assert!(matches!(&second, VolumeError::Refused { reason, .. } if *reason == first.to_string()), "{second}");
}

/// A process that begins, with a volume that was half merged when the last one died and does not open.
async fn begun() -> (World, StripeId) {
    let world = World::with(6, settings(), 3).await;
    let opened = volume(&world, "v").await;
    let (stripe, _) = stripe_of(&world, "v").await;
    world.traps.overwrites().set();
    let merge = world.beside(async move { opened.merge_all().await });
    world.traps.overwrites().caught().await;
    drop(merge);
    let logs = world.meta.volume("v").await.expect("there").log.disks;
    let world = world.crash().await;
    logs.keys().for_each(|disk| world.lose(disk.0 as usize));
    (world, stripe)
}

#[tokio::test]
async fn of_a_volume_that_does_not_open_every_stripe_is_held_before_anybody_repairs() {
    let (world, stripe) = begun().await;
    // A scrub reads it, and the records cannot be read for a moment.
    let shared = world.stripes.share(stripe).await.expect("nobody has it");
    world.database.refuse(3, 3);
    let recovery = world.beside({
        let volumes = world.volumes.clone();
        async move { volumes.recover().await }
    });
    world.env.clock.sleep(Duration::from_millis(300)).await;
    drop(shared);
    let Recovered { refused, unprotected } = recovery.await.expect("it ends").expect("listed");
    assert!(matches!(&refused[..], [(_, VolumeError::LogAbsent { .. })]), "{refused:?}");
    assert!(unprotected.is_empty());
    assert!(is_held(&world, stripe));
}

#[tokio::test]
async fn what_is_not_protected_is_said_and_tried_again() {
    let (world, stripe) = begun().await;
    world.database.refuse(0, 1);
    world.volumes.recover().await.expect_err("it is not known which volumes there are");
    world.database.refuse(3, 1_000_000);
    let recovered = world.volumes.recover().await.expect("listed");
    assert_eq!(recovered.unprotected, ["v"]);
    assert!(!is_held(&world, stripe));
    world.database.refuse(0, 0);
    assert!(world.volumes.recover().await.expect("listed").unprotected.is_empty());
    assert!(is_held(&world, stripe));
    // The disks are back.
    (0..6).for_each(|disk| world.find(disk));
    assert!(world.volumes.recover().await.expect("listed").refused.is_empty());
    assert!(!is_held(&world, stripe));
    assert_eq!(read(&world.volumes.open("v").await.expect("it is open")).await, pattern(2, 4096));
}

/// The disks that have something of a log.
async fn logs_of(world: &World, owner: OwnerId) -> Vec<DiskId> {
    let mut found = Vec::new();
    for disk in &world.disks {
        if disk.segments().owners().await.expect("listed").contains(&owner) {
            found.push(disk.disk());
        }
    }
    found
}

#[tokio::test]
async fn a_delete_that_nobody_waits_for_leaves_no_log() {
    let world = World::new(4).await;
    let owner = volume(&world, "v").await.record().id;
    world.traps.forgets().set();
    let mut delete = Box::pin(world.volumes.delete("v"));
    let caught = world.traps.forgets().caught();
    futures::future::select(&mut delete, Box::pin(caught)).await;
    assert!(delete.as_mut().now_or_never().is_none());
    drop(delete);
    world.traps.forgets().open();
    world.until("the end of the log", async || logs_of(&world, owner).await.is_empty()).await;
    assert!(world.volumes.open("v").await.is_err());
}

#[tokio::test]
async fn a_disk_that_comes_back_keeps_no_log_of_a_volume_that_was_deleted_meanwhile() {
    let world = World::new(4).await;
    let owner = volume(&world, "v").await.record().id;
    let stays = volume(&world, "other").await.record().id;
    let had = logs_of(&world, owner).await;
    let logs = logs_of(&world, stays).await;
    world.lose(had[0].0 as usize);
    world.volumes.delete("v").await.expect("nobody has it");
    assert_eq!(logs_of(&world, owner).await, had[..1]);
    world.find(had[0].0 as usize);
    assert!(world.volumes.recover().await.expect("listed").refused.is_empty());
    assert!(logs_of(&world, owner).await.is_empty());
    assert_eq!(logs_of(&world, stays).await, logs);
}
