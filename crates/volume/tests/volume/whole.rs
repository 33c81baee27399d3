//! Volumes as a whole: opened after a crash, looked at, deleted.

use crate::world::World;
use bytes::Bytes;
use claystone_chunk::ChunkStore;
use claystone_volume::{Blocks, Durable, NewVolume, Recovered, State, VolumeError};

#[tokio::test]
async fn volumes_with_a_log_are_opened_and_those_that_do_not_open_are_named() {
    let world = World::new(4).await;
    for name in ["a", "b"] {
        let volume = world.create(name, 1 << 20, "rs:2+1").await;
        volume.write(0, Bytes::from(vec![7; 8192]), Durable::Now).await.expect("written");
    }
    let unused = NewVolume::new("unused", 1 << 20, "rs:2+1".parse().expect("a code"));
    world.volumes.create(NewVolume { chunk_bytes: 64 << 10, ..unused }).await.expect("made");
    let world = world.crash().await;
    let found = world.volumes.look().await.expect("listed");
    assert!(found.iter().all(|found| found.state == State::Closed), "{found:?}");
    assert!(world.volumes.recover().await.expect("listed").refused.is_empty());
    let states: Vec<bool> = look(&world).await.iter().map(|state| matches!(state, State::Open(_))).collect();
    assert_eq!(states, [true, true, false], "nobody has used the third one");
    let State::Open(status) = &look(&world).await[0] else { panic!("it is open") };
    assert_eq!((status.diff_pages, status.users), (2, 0));
    // Two that have what is not merged, and two that take what comes, which may be the same.
    assert!((2..=4).contains(&status.log_disks.len()), "{:?}", status.log_disks);
    // Both disks of a log are gone: one more than the code tolerates.
    let logs = world.meta.volume("a").await.expect("there").log.disks;
    let world = world.crash().await;
    logs.keys().for_each(|disk| world.lose(disk.0 as usize));
    let Recovered { refused: failed, unprotected } = world.volumes.recover().await.expect("listed");
    assert!(unprotected.is_empty(), "what it may have left in part is held");
    assert!(failed.iter().any(|(name, error)| name == "a" && matches!(error, VolumeError::LogAbsent { .. })));
    assert!(matches!(&look(&world).await[0], State::Refused { reason } if reason.contains("absent")));
}

async fn look(world: &World) -> Vec<State> {
    world.volumes.look().await.expect("listed").into_iter().map(|found| found.state).collect()
}

/// Bytes of each segment of the volume `v`, on all disks.
async fn segment_bytes(world: &World) -> Vec<u64> {
    let id = world.meta.volume("v").await.expect("there").id;
    let mut bytes = Vec::new();
    for disk in &world.disks {
        bytes.extend(disk.segments().segments(id).await.expect("listed").iter().map(|segment| segment.bytes));
    }
    bytes
}

/// `nbdinfo --list` opens all volumes there are.
#[tokio::test]
async fn an_empty_volume_that_is_asked_for_takes_little() {
    // The shortest segments for three chunks of 64 KiB.
    const SHORT: u64 = (4 << 20) + 6 * (64 << 10);
    let mut world = World::new(4).await;
    let mut volume = world.create("v", 1 << 20, "rs:2+1").await;
    for _ in 0..2 {
        assert_eq!(segment_bytes(&world).await, [SHORT; 2]);
        drop(volume);
        world = world.crash().await;
        volume = world.volumes.open("v").await.expect("it opens");
    }
    volume.write(0, Bytes::from(vec![7; 8192]), Durable::Now).await.expect("written");
    assert_eq!(segment_bytes(&world).await, [SHORT; 2]);
    drop(volume);
    // Who has written goes on.
    let world = world.crash().await;
    let volume = world.volumes.open("v").await.expect("it opens");
    let mut found = segment_bytes(&world).await;
    found.sort();
    assert_eq!(found, [SHORT, SHORT, 8 << 20, 8 << 20]);
    drop(volume);
}

#[tokio::test]
async fn a_volume_is_deleted_when_nobody_has_it() {
    let world = World::new(4).await;
    let volume = world.create("v", 1 << 20, "rs:2+1").await;
    volume.write(0, Bytes::from(vec![7; 8192]), Durable::Now).await.expect("written");
    assert_eq!(volume.merge_all().await.expect("merged").pages, 2);
    let status = volume.status();
    assert_eq!((status.stripes, status.diff_pages, status.users, status.merged.pages), (1, 0, 1, 2));
    assert_eq!(world.volumes.stripes(volume.record().id).await.expect("counted"), 1);
    let refused = world.volumes.delete("v").await.expect_err("a client has it");
    assert!(matches!(refused, VolumeError::InUse { .. }), "{refused}");
    drop(volume);
    assert_eq!(world.volumes.delete("v").await.expect("nobody has it").len(), 1);
    assert!(world.volumes.open("v").await.is_err());
}

#[tokio::test]
async fn a_code_whose_stripes_do_not_fit_the_log_is_refused_at_once() {
    let world = World::new(4).await;
    // Two stripes of 3 MiB, and room for what describes them, are more than the tests' segments of 8 MiB.
    let new = NewVolume::new("v", 1 << 20, "rs:2+1".parse().expect("a code"));
    let refused = world.volumes.create(new).await.expect_err("it would never open");
    assert!(matches!(refused, VolumeError::TooWide { .. }), "{refused}");
    assert!(world.volumes.list().await.expect("listed").is_empty());
}
