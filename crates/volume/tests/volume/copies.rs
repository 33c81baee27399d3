//! On how many disks a change is when it is acknowledged, where disks are full, drained or fail.

use bytes::Bytes;
use claystone_chunk::testing::pattern;
use claystone_chunk::{ByteRange, ChunkStore, DiskId};
use claystone_meta::DiskState;
use claystone_volume::{Blocks, BlocksError, Durable, Settings, Volume, joined};

use crate::world::{World, check, settings};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;
const ROOM: u64 = 1 << 40;

fn page(seed: u64) -> Bytes {
    pattern(seed, PAGE as usize)
}

async fn write(volume: &Volume, at: u64, seed: u64) -> Result<(), BlocksError> {
    volume.write(at * PAGE, page(seed), Durable::Now).await
}

/// The fewest copies of a segment, as the volume's record says.
async fn copies(world: &World) -> u16 {
    world.meta.volume("v").await.expect("its record").log.copies
}

/// How many disks have each segment of the log.
async fn segments(world: &World, volume: &Volume) -> std::collections::BTreeMap<u64, Vec<DiskId>> {
    let mut segments = std::collections::BTreeMap::<u64, Vec<DiskId>>::new();
    for disk in &world.disks {
        for segment in disk.segments().segments(volume.record().id).await.expect("listed") {
            segments.entry(segment.id.number).or_default().push(disk.disk());
        }
    }
    segments
}

/// A stripe that full disks have no room for is not written on fewer: what was flushed is in the log as often as it should be, and stays there.
#[tokio::test]
async fn a_merge_waits_for_room_rather_than_for_a_loss() {
    for with_snapshot in [false, true] {
        let world = World::with(4, settings(), 77).await;
        let volume = world.create("v", MIB, "replica:3").await;
        let mut expected = page(1);
        volume.write(0, page(1), Durable::Now).await.expect("there is room");
        if with_snapshot {
            volume.merge_all().await.expect("merged");
            world.volumes.take_snapshot(&"v@s".parse().expect("a name")).await.expect("taken");
            volume.write(0, page(2), Durable::Now).await.expect("there is room");
            expected = page(2);
        }
        world.set_free(0);
        world.set_free_of(DiskId(0), ROOM);
        volume.merge_once(u64::MAX).await.expect("what finds no room is called off");
        world.lose(0);
        let read = volume.read(ByteRange { offset: 0, bytes: PAGE }).await.expect("others have it");
        assert_eq!(joined(read), expected, "snapshot: {with_snapshot}");
        world.set_free(ROOM);
        volume.merge_all().await.expect("there is room again");
        assert_eq!(volume.status().diff_pages, 0);
    }
}

/// A volume of which all is in stripes, on disks of which one has room. It took writes until they were refused; `model` is what it
/// has, and the number is how many.
async fn full_but_for_one_disk(seed: u64) -> (World, Volume, Vec<u8>, u64) {
    let world = World::with(4, Settings { reserve_bytes: 1 << 30, ..settings() }, seed).await;
    let volume = world.create("v", 4 * MIB, "rs:2+1").await;
    let mut model = vec![0; 4 << 20];
    // More than the first segment takes, which is short: the one after it is what gets full.
    for number in 0..5 {
        let (at, content) = (number % 4 * MIB, pattern(number, MIB as usize));
        model[at as usize..][..1 << 20].copy_from_slice(&content);
        volume.write(at, content, Durable::WithFlush).await.expect("there is room");
    }
    volume.merge_all().await.expect("merged");
    world.set_free(0);
    world.set_free_of(DiskId(0), ROOM);
    let mut seed = 0;
    while let Ok(()) = write(&volume, seed % 1024, seed).await {
        model[(seed % 1024 * PAGE) as usize..][..PAGE as usize].copy_from_slice(&page(seed));
        seed += 1;
    }
    assert_eq!(copies(&world).await, 2);
    (world, volume, model, seed)
}

/// Merges and discards as long as something of it goes on. At each step nothing is on fewer disks than it should be.
async fn merge_and_discard(world: &World, volume: &Volume, model: &mut [u8]) {
    for round in 0..10 {
        let merged = volume.merge_once(u64::MAX).await.expect("what finds no room is called off");
        assert_eq!(copies(world).await, 2, "round {round}");
        for at in (0..500).map(|number| (round * 500 + number) % 1024 * PAGE) {
            match volume.discard(ByteRange { offset: at, bytes: PAGE }, Durable::WithFlush).await {
                Ok(()) => model[at as usize..][..PAGE as usize].fill(0),
                Err(BlocksError::NoSpace { .. }) if merged.pages == 0 => return,
                Err(error) => assert!(matches!(error, BlocksError::NoSpace { .. }), "{error}"),
            }
        }
        volume.flush().await.expect("it has all it took");
        assert_eq!(copies(world).await, 2, "round {round}");
    }
}

/// Where one disk has room, merging takes the reserve of another one for its segments; writes do not go there.
#[tokio::test]
async fn what_makes_room_takes_the_reserve_on_full_disks_and_writes_do_not() {
    let (world, volume, mut model, seed) = full_but_for_one_disk(1).await;
    let before = segments(&world, &volume).await;
    while segments(&world, &volume).await.keys().all(|number| before.contains_key(number)) {
        let merged = volume.merge_once(u64::MAX).await.expect("it has room");
        assert!(
            merged.pages > 0 || segments(&world, &volume).await.len() > before.len(),
            "no merge needed another segment"
        );
        assert_eq!(copies(&world).await, 2);
    }
    let refused = write(&volume, 0, seed).await.expect_err("the reserve is not for writes");
    assert!(matches!(refused, BlocksError::NoSpace { .. }), "{refused}");
    merge_and_discard(&world, &volume, &mut model).await;
    check(&volume, &model, "full").await;

    world.set_free(ROOM);
    write(&volume, 0, seed).await.expect("there is room again");
    model[..PAGE as usize].copy_from_slice(&page(seed));
    let (_, disks) = segments(&world, &volume).await.pop_last().expect("a segment");
    assert_eq!(disks.len(), 2);
    check(&volume, &model, "with room").await;
}

/// Where the reserve is full too, merges are called off and discards are refused at last, rather than that they are on one disk:
/// whichever is lost then, the volume opens, and all is there. Discards of whole stripes go on, which give space back.
#[tokio::test]
async fn full_disks_take_nothing_that_would_be_on_fewer_of_them() {
    for lost in 0..4 {
        let (world, volume, mut model, _) = full_but_for_one_disk(8 + lost as u64).await;
        world.traps.fill_reserve(true);
        merge_and_discard(&world, &volume, &mut model).await;
        check(&volume, &model, "full").await;
        drop(volume);
        let world = world.crash().await;
        world.lose(lost);
        let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("without disk {lost}: {error}"));
        check(&volume, &model, "with a disk lost").await;
    }
    let (world, volume, _, _) = full_but_for_one_disk(7).await;
    world.traps.fill_reserve(true);
    while volume.merge_once(u64::MAX).await.expect("what finds no room is called off").pages > 0 {}
    volume.discard(ByteRange { offset: 0, bytes: 4 * MIB }, Durable::Now).await.expect("a discard makes room");
    volume.merge_all().await.expect("what is zeros needs little room");
    let status = volume.status();
    assert_eq!((status.stripes, status.diff_pages), (0, 0));
    assert_eq!(copies(&world).await, 2);
}

/// Too few disks have room for the segment of an opening: the others give of their reserve.
#[tokio::test]
async fn an_opening_where_one_disk_has_room_takes_all_copies() {
    let world = World::with(4, settings(), 2).await;
    let volume = world.create("v", MIB, "rs:2+1").await;
    write(&volume, 0, 1).await.expect("there is room");
    drop(volume);
    let world = world.crash().await;
    world.set_free(0);
    world.set_free_of(DiskId(0), ROOM);
    let volume = world.volumes.open("v").await.expect("it takes the reserve");
    write(&volume, 1, 2).await.expect("the reserve has room");
    assert_eq!(copies(&world).await, 2);
    drop(volume);
    let world = world.crash().await;
    world.lose(0);
    let volume = world.volumes.open("v").await.expect("another disk has it");
    let read = joined(volume.read(ByteRange { offset: 0, bytes: 2 * PAGE }).await.expect("readable"));
    assert!(read == [page(1), page(2)].concat());
}

/// A copy that is made for one that was lost is as long as what it copies.
#[tokio::test]
async fn a_copy_needs_no_more_room_than_it_takes() {
    let world = World::with(4, settings(), 3).await;
    let volume = world.create("v", MIB, "rs:2+1").await;
    write(&volume, 0, 1).await.expect("there is room");
    let lost = volume.status().log_disks[0];
    drop(volume);
    let world = world.crash().await;
    // No room for a segment and another one behind it.
    world.set_free(settings().segment_bytes + MIB);
    world.lose(lost.0 as usize);
    let volume = world.volumes.open("v").await.expect("another disk has it");
    assert_eq!(copies(&world).await, 2);
    assert_eq!(joined(volume.read(ByteRange { offset: 0, bytes: PAGE }).await.expect("readable")), page(1));
}

/// Where no other disk has room, a disk that is to be left keeps its copy of the segment that is appended to.
#[tokio::test]
async fn a_disk_is_left_when_the_log_has_all_copies_elsewhere() {
    for last in 0..3 {
        let world = World::with(4, settings(), 4).await;
        let volume = world.create("v", MIB, "replica:3").await;
        write(&volume, 0, 1).await.expect("there is room");
        world.set_free(0);
        volume.merge_once(0).await.expect("nothing is merged");
        let disks = volume.status().log_disks;
        world.stores.update(disks[0], |member| member.record.state = DiskState::Draining);
        volume.merge_once(0).await.expect("nothing is merged");
        write(&volume, 1, 2).await.expect("the segment has room");
        assert_eq!(copies(&world).await, 3);
        if last == 0 {
            world.set_free(ROOM);
            world.until("the log without the disk", async || !volume.status().log_disks.contains(&disks[0])).await;
            assert_eq!(copies(&world).await, 3);
        }
        drop(volume);
        let world = world.crash().await;
        // The drained disk, or one of the others.
        let gone = disks.iter().enumerate().filter(|(at, _)| *at != last).map(|(_, disk)| disk.0 as usize);
        let gone: Vec<usize> = gone.collect();
        gone.iter().for_each(|disk| world.lose(*disk));
        let volume = world.volumes.open("v").await.expect("one copy is left");
        let read = joined(volume.read(ByteRange { offset: 0, bytes: 2 * PAGE }).await.expect("readable"));
        assert!(read == [page(1), page(2)].concat(), "{last}");
    }
}

/// A disk fails a sync of a segment that ended and of the next one: another disk takes what comes then at once.
#[tokio::test]
async fn a_disk_lost_between_two_segments_is_made_up_for_at_once() {
    let world = World::with(3, Settings { segment_bytes: 5 * MIB, ..settings() }, 5).await;
    let volume = world.create("v", 8 * MIB, "replica:2").await;
    world.traps.syncs().set();
    let writing = volume.clone();
    let written = world.beside(async move {
        for at in 0..6 {
            writing.write(at * MIB, pattern(at, MIB as usize), Durable::WithFlush).await.expect("written");
        }
    });
    written.await.expect("nobody waits for a sync");
    let flushing = volume.clone();
    let flushed = world.beside(async move { flushing.flush().await });
    world.traps.syncs().caught().await;
    let before = segments(&world, &volume).await;
    assert_eq!(before.len(), 2, "the next one has begun");
    let on_both = |disk: &&DiskId| before.values().all(|disks| disks.contains(disk));
    let lost = *before.values().flatten().find(on_both).expect("two times two of three disks");
    world.cut.kill(lost.0 as usize, 0);
    world.traps.syncs().open();
    let has_copies = async || {
        let (number, disks) = segments(&world, &volume).await.pop_last().expect("a segment");
        !before.contains_key(&number) && disks.iter().filter(|disk| **disk != lost).count() == 2
    };
    world.until("a segment on the two others", has_copies).await;
    flushed.await.expect("it ends").expect("flushed");
}

/// Without the disks for it, writes go on with fewer copies, and the status says so.
#[tokio::test]
async fn the_status_tells_how_many_copies_the_log_has() {
    let world = World::with(3, settings(), 6).await;
    let volume = world.create("v", MIB, "replica:3").await;
    let shown = || (volume.status().log_copies, volume.status().log_copies_wanted);
    write(&volume, 0, 1).await.expect("written");
    assert_eq!(shown(), (3, 3));
    world.lose(2);
    write(&volume, 1, 2).await.expect("two disks are left");
    assert_eq!(shown(), (2, 3));
}

/// What was written longest ago has no space; what comes next is merged in the same round.
#[tokio::test]
async fn others_go_on_where_the_coldest_has_no_space() {
    let world = World::new(4).await;
    let volume = world.create("v", MIB, "rs:2+1").await;
    let (first, second) = (0, 2 * (64 << 10));
    for stripe in [first, second] {
        volume.write(stripe, pattern(stripe, 4096), Durable::Now).await.expect("written");
    }
    volume.merge_all().await.expect("merged");
    world.set_free(0);
    world.traps.set_no_space_for_zeros(true);
    volume.write(first + (64 << 10), pattern(1, 4096), Durable::Now).await.expect("the log takes it");
    volume.discard(ByteRange { offset: second, bytes: PAGE }, Durable::Now).await.expect("the log takes it");
    let merged = volume.merge_once(1).await.expect("it goes on");
    assert_eq!((merged.pages, merged.stripes_dropped, volume.status().diff_pages), (1, 1, 1));
}

/// Of equal data the first parity is zeros, and comes to be something else when some of that is discarded.
#[tokio::test]
async fn what_has_no_space_for_its_parity_waits_in_the_log() {
    let world = World::new(4).await;
    let volume = world.create("v", MIB, "rs:2+1").await;
    let chunk_bytes = 64 << 10;
    let content = pattern(1, 8192);
    for offset in [0, chunk_bytes] {
        volume.write(offset, content.clone(), Durable::Now).await.expect("written");
    }
    volume.merge_all().await.expect("merged");
    world.set_free(0);
    world.traps.set_no_space_for_zeros(true);
    volume.discard(ByteRange { offset: 0, bytes: PAGE }, Durable::Now).await.expect("the log takes it");
    for _ in 0..3 {
        assert_eq!(volume.merge_once(u64::MAX).await.expect("it goes on").pages, 0);
    }
    // With both gone all of it is zeros again.
    volume.discard(ByteRange { offset: chunk_bytes, bytes: PAGE }, Durable::Now).await.expect("the log takes it");
    volume.merge_all().await.expect("merged");
    assert_eq!(volume.status().diff_pages, 0);
    let mut model = vec![0; MIB as usize];
    for offset in [4096, chunk_bytes as usize + 4096] {
        model[offset..offset + 4096].copy_from_slice(&content[4096..]);
    }
    check(&volume, &model, "merged").await;
}

/// Chunks of zeros that took no space so far: on full disks the pages that would come there wait, and no chunk misses a merge.
#[tokio::test]
async fn what_has_no_space_for_its_zeros_waits_in_the_log() {
    let world = World::new(4).await;
    let volume = world.create("v", MIB, "rs:2+1").await;
    let mut model = vec![0; MIB as usize];
    let write = async |model: &mut Vec<u8>, seed: u64, offset: usize| {
        let content = pattern(seed, 4096);
        model[offset..offset + 4096].copy_from_slice(&content);
        volume.write(offset as u64, content, Durable::Now).await.expect("the log takes it");
    };
    write(&mut model, 1, 0).await;
    volume.merge_all().await.expect("merged");
    write(&mut model, 2, 64 << 10).await;
    world.set_free(0);
    world.traps.set_no_space_for_zeros(true);
    for _ in 0..3 {
        assert_eq!(volume.merge_once(u64::MAX).await.expect("it goes on").pages, 0);
    }
    let id = world.meta.volume("v").await.expect("it is there").id;
    let stripes = world.meta.volume_stripes(id, None, 9).await.expect("readable");
    assert!(stripes[0].1.places.iter().all(Option::is_some), "no chunk was given up");
    check(&volume, &model, "waiting").await;
    world.traps.set_no_space_for_zeros(false);
    volume.merge_all().await.expect("merged");
    assert_eq!(volume.status().diff_pages, 0);
    check(&volume, &model, "merged").await;
}
