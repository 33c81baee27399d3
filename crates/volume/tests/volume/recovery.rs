//! A log that is read again from disks that have not all of it, cannot be read in places, are full, or are not there.

use claystone_chunk::testing::pattern;
use claystone_chunk::{ByteRange, ChunkStore, Lease, OwnerId, Term};
use claystone_code::CodeSpec;
use claystone_meta::{LogRecord, VolumeRecord};
use claystone_volume::{Blocks, BlocksError, Durable, Settings, Volume, VolumeError};

use crate::crashes::every_opening;
use crate::world::{World, check, scribble, settings};

const BYTES: u64 = 512 << 10;
/// More pages than a segment has room for.
const FILLS: u64 = 10_000;

/// A volume on so many disks with what is flushed, and the same written again without a flush: whichever copies have how
/// much of that after a crash, it reads the same.
async fn prepared(code: &str, disks: u128, settings: Settings, seed: u64) -> (World, Vec<u8>) {
    let world = World::with(disks, settings, seed).await;
    let volume = world.create("v", BYTES, code).await;
    let mut model = vec![0; BYTES as usize];
    scribble(&volume, &mut model, seed, 12).await;
    volume.flush().await.expect("flushed");
    write_again(&volume, &model).await;
    (world, model)
}

async fn write_again(volume: &Volume, model: &[u8]) {
    for (number, part) in model.chunks(32 << 10).enumerate() {
        let offset = number as u64 * (32 << 10);
        volume.write(offset, part.to_vec().into(), Durable::WithFlush).await.expect("written");
    }
}

/// The copies of the last segment end at different places; the process dies at any change that the opening makes, and then
/// a disk is lost.
#[tokio::test]
async fn an_opening_gives_up_no_copy_before_it_has_another() {
    let crashed = async |step| {
        let (world, model) = prepared("rs:2+1", 3, settings(), step).await;
        (world.crash().await, model)
    };
    every_opening(crashed, |step| Some(step as usize % 3)).await;
}

#[tokio::test]
async fn what_one_disk_cannot_read_of_the_log_another_says() {
    for seed in 0..8 {
        let (world, model) = prepared("rs:2+1", 3, settings(), seed).await;
        world.volumes.open("v").await.expect("it is open").flush().await.expect("flushed");
        let world = world.crash().await;
        // In different records, but one may be that which begins a segment.
        for (disk, offset) in [(0, 30_000), (1, 200_000), (2, if seed % 2 == 0 { 7 } else { 90_000 })] {
            world.cut.spoil(disk, offset);
        }
        let what = format!("seed {seed}");
        let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
        check(&volume, &model, &what).await;
        // And every copy is whole again.
        let world = world.crash().await;
        world.lose(seed as usize % 3);
        let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}, again: {error}"));
        check(&volume, &model, &what).await;
    }
}

/// Behind the end of a log is what the files had before: records of other segments, whose heads say how long they are.
#[tokio::test]
async fn what_cannot_be_read_counts_where_it_is_of_the_log_and_not_behind_its_end() {
    // From the start of a record with a long content: where it cannot be read, on any disk.
    for (is_old, unreadable, opens) in [
        (true, 30_000, true),
        (true, 1000, true),
        (false, 30_000, false),
        (false, 1000, false),
        // Then nobody can say which one it is.
        (true, 0, false),
        (false, 0, false),
    ] {
        let world = World::with(3, settings(), 1).await;
        let volume = world.create("v", BYTES, "rs:2+1").await;
        let mut model = vec![0; BYTES as usize];
        scribble(&volume, &mut model, 1, 12).await;
        let before = volume.status().log_bytes;
        volume.write(0, vec![7; 32 << 10].into(), Durable::WithFlush).await.expect("written");
        model[..32 << 10].fill(7);
        volume.flush().await.expect("flushed");
        let end = volume.status().log_bytes;
        let owner = volume.record().id;
        drop(volume);
        let world = world.crash().await;
        let lease = Lease { owner, term: world.meta.volume("v").await.expect("its record").term };
        for (number, disk) in world.disks.iter().enumerate() {
            let segments = disk.segments();
            if let Some(last) = segments.segments(owner).await.expect("listed").last() {
                // The same record at another place is none.
                let range = ByteRange { offset: before, bytes: end - before };
                let record = segments.read_segment(last.id, &[range]).await.expect("readable").remove(0);
                segments.reopen_segment(last.id.number, lease, end).await.expect("it is there");
                segments.append(last.id.number, lease, end, record).await.expect("appended");
            }
            world.cut.spoil(number, unreadable + if is_old { end } else { before });
        }
        let what = format!("{unreadable} bytes into a record, of another segment: {is_old}");
        match world.volumes.open("v").await {
            Ok(volume) => {
                assert!(opens, "{what}: what was flushed is missing");
                check(&volume, &model, &what).await;
            }
            Err(error) => assert!(!opens && matches!(error, VolumeError::LogAbsent { .. }), "{what}: {error}"),
        }
    }
}

/// A store that was opened anew between the append and the sync has lost what it had not synced, and its sync says nothing
/// of that.
#[tokio::test]
async fn a_flush_does_not_count_a_store_that_was_opened_anew() {
    for seed in 0..12 {
        let (world, mut model) = prepared("rs:2+1", 3, settings(), seed).await;
        let volume = world.volumes.open("v").await.expect("it is open");
        scribble(&volume, &mut model, 100 + seed, 4).await;
        let reopened = seed as usize % 3;
        world.reopen(reopened);
        volume.flush().await.expect("there are other disks");
        drop(volume);
        let world = world.crash().await;
        let lost = (reopened + 1 + seed as usize / 3 % 2) % 3;
        world.lose(lost);
        let what = format!("disk {reopened} opened anew, then {lost} lost");
        let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
        check(&volume, &model, &what).await;
    }
}

/// What is recorded of a log never asks for a disk that it does without.
#[tokio::test]
async fn a_log_whose_other_disk_has_everything_opens() {
    let settings = Settings { segment_bytes: 5 << 20, ..settings() };
    let (world, model) = prepared("replica:2", 2, settings, 1).await;
    let volume = world.volumes.open("v").await.expect("it is open");
    // What is written once pins the first segment, what is written again and again begins the second.
    for _ in 0..200 {
        let page = model[..32 << 10].to_vec();
        volume.write(0, page.into(), Durable::WithFlush).await.expect("written");
    }
    volume.flush().await.expect("flushed");
    world.lose(0);
    // Nobody writes: the log only notices.
    volume.merge_once(0).await.expect("nothing is merged");
    drop(volume);
    let world = world.crash().await;
    world.lose(0);
    let volume = world.volumes.open("v").await.expect("the other disk has everything");
    check(&volume, &model, "with one disk").await;
}

/// A segment that has nothing but its begin record still names those before it for those after it.
#[tokio::test]
async fn a_segment_that_nobody_wrote_to_is_kept_between_others() {
    let world = World::with(3, settings(), 1).await;
    world.lose(2);
    let volume = world.create("v", BYTES, "replica:2").await;
    let mut model = vec![0; BYTES as usize];
    scribble(&volume, &mut model, 1, 4).await;
    world.lose(1);
    scribble(&volume, &mut model, 2, 1).await;
    // The log goes on alone, and before anybody writes there is another disk for it.
    world.find(2);
    volume.merge_once(0).await.expect("nothing is merged");
    scribble(&volume, &mut model, 3, 4).await;
    volume.flush().await.expect("flushed");
    drop(volume);
    let mut world = world;
    for opening in 0..3 {
        world = world.crash().await;
        let what = format!("opening {opening}");
        let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
        check(&volume, &model, &what).await;
    }
}

#[tokio::test]
async fn openings_that_fail_leave_no_segments_behind() {
    let (mut world, model) = prepared("rs:2+1", 4, settings(), 3).await;
    for attempt in 0..12 {
        world = world.crash().await;
        world.cut.kill(attempt % 4, 6 + attempt as u64);
        world.lose((attempt + 1) % 4);
        drop(world.volumes.open("v").await);
    }
    let world = world.crash().await;
    let volume = world.volumes.open("v").await.expect("all disks are back");
    check(&volume, &model, "after openings that failed").await;
    let owner = world.meta.volume("v").await.expect("its record").id;
    for disk in &world.disks {
        let segments = disk.segments().segments(owner).await.expect("its segments");
        assert!(segments.len() < 6, "{} segments on {disk:?}", segments.len());
    }
}

#[tokio::test]
async fn full_disks_refuse_writes_and_nothing_else() {
    let settings = Settings { reserve_bytes: 1 << 30, segment_bytes: 16 << 20, ..settings() };
    let (world, model) = prepared("rs:2+1", 3, settings.clone(), 5).await;
    let volume = world.volumes.open("v").await.expect("it is open");
    world.set_free(3 * settings.segment_bytes);
    let page = vec![1; 64 << 10];
    let refused = loop {
        match volume.write(0, page.clone().into(), Durable::WithFlush).await {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, BlocksError::NoSpace { .. }), "{refused}");
    // What makes room goes on.
    volume.merge_all().await.expect("there is room for merging");
    let mut model = model;
    model[..page.len()].copy_from_slice(&page);
    check(&volume, &model, "full").await;
    world.set_free(1 << 40);
    volume.write(0, page.into(), Durable::Now).await.expect("there is room again");
    drop(volume);
    // Segments are shorter where there is little room.
    let world = world.crash().await;
    world.set_free(20 << 20);
    let volume = world.volumes.open("v").await.expect("a shorter segment fits");
    check(&volume, &model, "opened with full disks").await;
}

/// Writes pages until there is no room for one, or so many; how many it took.
async fn fill(volume: &Volume, model: &mut [u8], most: u64) -> u64 {
    for number in 0..most {
        let offset = number * 7 % (model.len() as u64 / 4096) * 4096;
        let page = pattern(number, 4096);
        match volume.write(offset, page.clone(), Durable::WithFlush).await {
            Ok(()) => model[offset as usize..][..4096].copy_from_slice(&page),
            Err(BlocksError::NoSpace { .. }) => return number,
            Err(error) => panic!("expected NoSpace, got {error}"),
        }
    }
    most
}

/// A volume whose stripes are there, with diffs for all of them, on disks where nothing else has room.
async fn full(most: u64) -> (World, Vec<u8>, u64) {
    let settings = Settings { reserve_bytes: 1 << 30, segment_bytes: 8 << 20, ..settings() };
    let (world, mut model) = prepared("rs:2+1", 4, settings, 6).await;
    let volume = world.volumes.open("v").await.expect("it is open");
    volume.merge_all().await.expect("there is room");
    write_again(&volume, &model).await;
    world.set_free(0);
    let taken = fill(&volume, &mut model, most).await;
    (world, model, taken)
}

/// Nothing has room: no write, then no discard, and no merge. All that was taken is there, and all goes on when there is room.
#[tokio::test]
async fn a_volume_goes_on_where_no_disk_has_room_for_another_segment() {
    let (world, mut model, _) = full(FILLS).await;
    world.traps.fill_reserve(true);
    let volume = world.volumes.open("v").await.expect("it is open");
    let first = ByteRange { offset: 0, bytes: 4096 };
    model[..4096].fill(0);
    let mut discards = 0;
    while volume.discard(first, Durable::WithFlush).await.is_ok() {
        discards += 1;
        assert!(discards < 100_000, "there is always room");
    }
    assert!(discards > 100, "discards have room that writes leave them, not only for {discards}");
    for round in 0..3000 {
        let merged = volume.merge_once(u64::MAX).await.expect("what finds no room waits");
        assert!(merged.pages == 0 || round < 100, "nothing goes round for ever: {merged:?}");
    }
    volume.flush().await.expect("it has all it took");
    check(&volume, &model, "full").await;

    // With a disk less the log goes on where it is.
    world.lose(1);
    volume.flush().await.expect("other disks have it");
    volume.merge_once(u64::MAX).await.expect("what finds no room waits");
    check(&volume, &model, "full, and a disk is lost").await;
    world.find(1);

    world.set_free(1 << 40);
    volume.write(0, vec![9; 4096].into(), Durable::Now).await.expect("there is room again");
    model[..4096].fill(9);
    for _ in 0..40 {
        volume.merge_once(u64::MAX).await.expect("there is room again");
    }
    check(&volume, &model, "with room").await;
    assert_eq!(volume.status().diff_pages, 0, "all was merged at last");
    drop(volume);
    let world = world.crash().await;
    let volume = world.volumes.open("v").await.expect("it opens");
    check(&volume, &model, "opened again").await;
}

/// No disk has room for a segment: an opening takes the reserve, and finds everything; also one after an opening that ended at
/// any of its changes.
#[tokio::test]
async fn a_volume_opens_where_no_disk_has_room() {
    let mut steps = 0;
    for happens in [false, true] {
        for step in 0.. {
            let (world, model, _) = full(50).await;
            world.volumes.open("v").await.expect("it is open").flush().await.expect("flushed");
            let world = world.crash().await;
            world.set_free(0);
            world.cut.set(step, happens);
            if world.until_cut(world.volumes.open("v")).await.is_some_and(|opened| opened.is_ok()) {
                break;
            }
            steps += 1;
            let world = world.crash().await;
            world.set_free(0);
            world.lose(step as usize % 4);
            let what = format!("step {step}, happens: {happens}");
            let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&volume, &model, &what).await;
        }
    }
    assert!(steps > 20, "only {steps} steps were cut");

    // One opening after another takes no more room, and a discard needs none.
    let (mut world, mut model, _) = full(50).await;
    world.volumes.open("v").await.expect("it is open").flush().await.expect("flushed");
    for opening in 0..10 {
        world = world.crash().await;
        world.set_free(0);
        let volume = world.volumes.open("v").await.expect("it takes the reserve");
        if opening == 0 {
            volume.discard(ByteRange { offset: 0, bytes: 4096 }, Durable::Now).await.expect("a discard needs no room");
            model[..4096].fill(0);
        }
        check(&volume, &model, "opened on full disks").await;
        for disk in &world.disks {
            let segments = disk.segments().segments(volume.record().id).await.expect("listed");
            assert!(segments.len() <= 4, "opening {opening}: {segments:?}");
        }
    }
}

/// The log has room for some of a merge's intents, and they are called off: killed at any change, what was flushed is there.
#[tokio::test]
async fn a_merge_that_finds_no_room_is_called_off_at_every_step() {
    let (_, _, fills) = full(FILLS).await;
    let prepared = async || {
        let (world, model, _) = full(fills - 24).await;
        world.traps.fill_reserve(true);
        let volume = world.volumes.open("v").await.expect("it is open");
        volume.flush().await.expect("flushed");
        (world, model, volume)
    };
    let mut steps = 0;
    for happens in [false, true] {
        for step in 0.. {
            let (world, model, volume) = prepared().await;
            world.cut.set(world.cut.calls() + step, happens);
            let merged = world.until_cut(volume.merge_once(u64::MAX)).await;
            if let Some(merged) = merged {
                let merged = merged.expect("it waits");
                assert_eq!((merged.pages, merged.stripes), (0, 0), "all of it found room, so this shows nothing");
                break;
            }
            steps += 1;
            drop(volume);
            let world = world.crash().await;
            let what = format!("step {step}, happens: {happens}");
            let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&volume, &model, &what).await;
            volume.merge_all().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&volume, &model, &what).await;
        }
    }
    assert!(steps > 20, "only {steps} steps");
}

/// Of a volume whose record cannot be read the stripes are held, and its log is kept; all others are opened.
#[tokio::test]
async fn a_record_that_cannot_be_read_holds_up_no_other_volume() {
    let (world, model) = prepared("rs:2+1", 3, settings(), 1).await;
    let first = world.create("first", BYTES, "rs:2+1").await;
    first.write(0, vec![1; 64 << 10].into(), Durable::Now).await.expect("written");
    let snapshot = world.snapshot("first@s").await.expect("taken");
    let unreadable = VolumeRecord {
        id: OwnerId(7),
        name: "other".to_owned(),
        redundancy: CodeSpec::ReedSolomon { data: 0, parity: 1 }.into(),
        term: Term(0),
        log: LogRecord::default(),
        ..first.record().clone()
    };
    world.meta.clone_snapshot(snapshot.id, unreadable).await.expect("made");
    drop(first);
    world.volumes.delete_snapshot(&"first@s".parse().expect("a name")).await.expect("deleted");
    world.volumes.delete("first").await.expect("deleted");
    let lease = Lease { owner: OwnerId(7), term: Term(1) };
    world.disks[0].segments().create_segment(1, lease, 1 << 20).await.expect("made");

    let world = world.crash().await;
    let recovered = world.volumes.recover().await.expect("the others are known");
    assert_eq!(recovered.unprotected, Vec::<String>::new());
    let refused: Vec<&String> = recovered.refused.iter().map(|(name, _)| name).collect();
    assert_eq!(refused, [&OwnerId(7).to_string()]);
    let stripes = world.meta.volume_stripes(OwnerId(7), None, 100).await.expect("listed");
    assert!(!stripes.is_empty());
    for (_, stripe) in stripes {
        assert!(world.stripes.try_alone(stripe.id).is_none(), "nobody repairs it");
    }
    assert_eq!(world.disks[0].segments().segments(OwnerId(7)).await.expect("listed").len(), 1);
    let volume = world.volumes.open("v").await.expect("it is open");
    check(&volume, &model, "the other volume").await;
}
