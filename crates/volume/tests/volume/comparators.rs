//! The other ways to update parity: what they write is what is read, also when disks are lost.

use std::sync::Arc;

use claystone_chunk::ByteRange;
use claystone_meta::MetaError;
use claystone_stripe::Stripes;
use claystone_volume::comparators::{InPlace, UpdateMethod};
use claystone_volume::{Blocks, BlocksError, Durable, Geometry, NewVolume, VolumeError, joined};

use crate::world::{World, check, scribble};

async fn device(world: &World, code: &str, method: UpdateMethod, log_bytes: u64) -> Arc<InPlace> {
    let code: claystone_code::CodeSpec = code.parse().expect("a valid code");
    let columns = if method == UpdateMethod::Replicas { 1 } else { code.shape().data };
    let geometry = Geometry { page_bytes: 4096, chunk_bytes: 64 << 10, columns };
    let (stripes, _) = Stripes::new(world.env.clone(), world.stores.clone(), claystone_stripe::Settings::default());
    Arc::new(
        InPlace::new(&world.env, stripes, code, method, geometry, 4 * geometry.stripe_bytes(), log_bytes)
            .await
            .expect("a device"),
    )
}

fn code_for(method: UpdateMethod, code: &'static str) -> &'static str {
    if method == UpdateMethod::Replicas { "replica:3" } else { code }
}

#[tokio::test]
async fn what_is_written_in_place_is_read_and_decoded_when_disks_are_lost() {
    for (_, method) in UpdateMethod::NAMED {
        // Logs that are never full, and some that are time and again.
        for log_bytes in [1 << 30, 64 << 10] {
            for code in ["rs:4+2", "lrc:4+2+1"] {
                let what = format!("{method}, {code}, logs of {log_bytes}");
                let world = World::new(7).await;
                let device = device(&world, code_for(method, code), method, log_bytes).await;
                let mut model = vec![0; device.bytes() as usize];
                for seed in 1..4 {
                    scribble(&*device, &mut model, seed, 60).await;
                    check(&*device, &model, &what).await;
                }
                device.flush().await.expect("flushed");
                let replays = device.replays();
                let has_logs = matches!(method, UpdateMethod::ParityLog | UpdateMethod::Speculative);
                assert_eq!(replays > 0, has_logs && log_bytes < 1 << 30, "{what}: {replays}");
                world.lose(1);
                world.lose(4);
                check(&*device, &model, &format!("{what}, two disks lost")).await;
            }
        }
    }
}

/// What is measured alone is read, but its logs are dropped.
#[tokio::test]
async fn what_is_written_by_a_half_of_speculation_is_read() {
    for method in [UpdateMethod::SpeculativeNext, UpdateMethod::SpeculativeFirst] {
        let world = World::new(6).await;
        let device = device(&world, "rs:4+2", method, 64 << 10).await;
        let mut model = vec![0; device.bytes() as usize];
        scribble(&*device, &mut model, 1, 60).await;
        device.flush().await.expect("flushed");
        check(&*device, &model, &method.to_string()).await;
    }
}

#[tokio::test]
async fn a_write_that_fails_in_the_middle_ends_the_device() {
    for (_, method) in UpdateMethod::NAMED {
        let world = World::new(6).await;
        let device = device(&world, code_for(method, "rs:4+2"), method, 1 << 30).await;
        let page = bytes::Bytes::from(vec![7; 4096]);
        device.write(0, page.clone(), Durable::Now).await.expect("written");
        // A disk of each of its chunks.
        for disk in 0..6 {
            world.lose(disk);
        }
        device.write(0, page.clone(), Durable::Now).await.expect_err("no disk takes it");
        assert!(device.failure().is_some(), "{method}");
        let refused = Blocks::read(&*device, ByteRange { offset: 0, bytes: 4096 }).await;
        assert!(matches!(refused, Err(BlocksError::Failed { .. })), "{method}: {refused:?}");
        assert!(device.write(1 << 16, page, Durable::WithFlush).await.is_err());
        assert!(device.flush().await.is_err());
    }
}

/// Parity of a disk that was away while logs were replayed is behind for good, though the disk comes back.
#[tokio::test]
async fn parity_that_missed_a_replay_counts_no_more() {
    for method in [UpdateMethod::ParityLog, UpdateMethod::Speculative] {
        let world = World::new(6).await;
        let device = device(&world, "rs:4+2", method, 1 << 30).await;
        let mut model = vec![0; device.bytes() as usize];
        scribble(&*device, &mut model, 1, 60).await;
        let places: Vec<u128> =
            device.records().next().expect("a stripe").places.iter().flatten().map(|place| place.disk.0).collect();
        let (data, parity, other) = (places[0] as usize, places[4] as usize, places[5] as usize);
        world.lose(data);
        world.lose(parity);
        check(&*device, &model, "with two disks lost").await;
        world.find(parity);
        check(&*device, &model, "with one of them back").await;
        world.lose(other);
        let chunk = ByteRange { offset: 0, bytes: 64 << 10 };
        let read = Blocks::read(&*device, chunk).await;
        assert!(matches!(read, Err(BlocksError::Lost { .. })), "{method}: its old parity would decode to {read:?}");
        world.find(other);
        world.find(data);
        check(&*device, &model, "with all back").await;
        let written = device.write(0, bytes::Bytes::from(vec![7; 4096]), Durable::WithFlush).await;
        assert!(matches!(written, Err(BlocksError::Failed { .. })), "{method}: {written:?}");
        check(&*device, &model, "and nothing written").await;
    }
}

/// Whoever asked goes away in the middle of a write.
#[tokio::test]
async fn a_write_that_is_cut_off_ends_the_device() {
    let world = World::new(6).await;
    let device = device(&world, "rs:4+2", UpdateMethod::Naive, 1 << 30).await;
    let page = bytes::Bytes::from(vec![7; 4096]);
    // At the second of three overwrites.
    world.cut.stop(world.cut.calls() + 2, false);
    {
        let mut write = std::pin::pin!(device.write(0, page.clone(), Durable::WithFlush));
        assert!(futures::poll!(&mut write).is_pending(), "a disk holds it");
    }
    world.cut.go_on();
    assert!(device.failure().is_some_and(|reason| reason.contains("cut off")), "{:?}", device.failure());
    assert!(device.write(0, page, Durable::WithFlush).await.is_err());
}

/// Neither pages nor stripes divide them, and zeros are written in pieces.
#[tokio::test]
async fn lengths_that_are_no_whole_stripes_are_kept() {
    let world = World::new(6).await;
    let code = "rs:4+2".parse().expect("a valid code");
    let geometry = Geometry { page_bytes: 1024, chunk_bytes: 64 << 10, columns: 4 };
    let bytes = 3 * geometry.stripe_bytes() - 63 * 1024;
    let method = UpdateMethod::ParityLog;
    let device = InPlace::new(&world.env, world.stripes.clone(), code, method, geometry, bytes, 1 << 30).await;
    let device = device.expect("a device");
    let mut model = vec![0; bytes as usize];
    assert_eq!(device.bytes(), bytes);
    scribble(&device, &mut model, 1, 60).await;
    device.write(bytes - 1024, bytes::Bytes::from(vec![9; 1024]), Durable::Now).await.expect("its last page");
    model[bytes as usize - 1024..].fill(9);
    check(&device, &model, "with its last page").await;
    let zeroed = ByteRange { offset: 100 * 1024, bytes: 300 * 1024 };
    device.discard(zeroed, Durable::WithFlush).await.expect("written");
    model[100 * 1024..400 * 1024].fill(0);
    check(&device, &model, "with zeros").await;
    assert!(device.write(bytes, bytes::Bytes::from(vec![9; 1024]), Durable::WithFlush).await.is_err());
}

const MIB: u64 = 1 << 20;

fn new(name: &str, code: &str) -> NewVolume {
    NewVolume { chunk_bytes: 64 << 10, ..NewVolume::new(name, MIB, code.parse().expect("a valid code")) }
}

#[tokio::test]
async fn a_scratch_volume_takes_a_name_and_is_gone_with_the_process() {
    let world = World::new(6).await;
    let volumes = &world.volumes;
    let scratch = volumes.create_scratch(new("s", "rs:4+2"), UpdateMethod::Naive).await.expect("made");
    scratch.device.write(4096, bytes::Bytes::from(vec![7; 4096]), Durable::Now).await.expect("written");
    assert_eq!(volumes.scratches().len(), 1);
    // One name is one thing.
    world.create("v", MIB, "rs:4+2").await;
    for taken in [
        volumes.create(new("s", "rs:4+2")).await.map(|_| ()),
        volumes.create_scratch(new("s", "rs:4+2"), UpdateMethod::Naive).await.map(|_| ()),
        volumes.create_scratch(new("v", "rs:4+2"), UpdateMethod::Naive).await.map(|_| ()),
    ] {
        assert!(matches!(taken, Err(VolumeError::Meta(MetaError::VolumeExists { .. }))), "{taken:?}");
    }
    let opened = volumes.open("s").await.map(|_| ());
    assert!(matches!(opened, Err(VolumeError::IsScratch { .. })), "{opened:?}");
    // Its user has it.
    assert!(matches!(volumes.delete_scratch("s").await, Err(VolumeError::InUse { .. })));
    drop(scratch);
    volumes.delete_scratch("s").await.expect("nobody uses it");
    assert!(volumes.scratch("s").is_none());
    let again = volumes.delete_scratch("s").await;
    assert!(matches!(again, Err(VolumeError::Meta(MetaError::NoSuchVolume { .. }))), "{again:?}");
    // A name that something went wrong with is free.
    let scratch = volumes.create_scratch(new("s", "rs:4+2"), UpdateMethod::ParityLog).await.expect("made");
    let first = joined(scratch.device.read(ByteRange { offset: 0, bytes: MIB }).await.expect("zeros"));
    assert!(first.iter().all(|byte| *byte == 0));
    drop(scratch);
    let world = world.kill();
    world.volumes.recover().await.expect("the records read");
    assert!(world.volumes.scratch("s").is_none());
    world.create("s", MIB, "rs:4+2").await;
}

#[tokio::test]
async fn a_scratch_volume_by_a_method_that_does_not_go_with_its_code_is_refused() {
    let world = World::new(6).await;
    for (code, method) in [
        ("replica:3", UpdateMethod::Naive),
        ("rs:4+2", UpdateMethod::Replicas),
        ("replica:3/rs:4+2", UpdateMethod::Naive),
        ("mirror:4x3", UpdateMethod::Replicas),
    ] {
        let refused = world.volumes.create_scratch(new("s", code), method).await.map(|_| ());
        assert!(matches!(refused, Err(VolumeError::BadScratch { .. })), "{code}, {method}: {refused:?}");
    }
    let long = NewVolume { bytes: 65 << 30, ..new("s", "rs:4+2") };
    let refused = world.volumes.create_scratch(long, UpdateMethod::Naive).await.map(|_| ());
    assert!(matches!(refused, Err(VolumeError::BadScratch { .. })), "{refused:?}");
    assert!(world.volumes.scratches().is_empty());
    world.create("s", MIB, "rs:4+2").await;
}
