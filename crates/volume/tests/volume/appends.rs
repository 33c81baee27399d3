//! Appends to the log, several at once: what a copy without one of them means, when the process ends, a disk fails, the
//! volume gets another owner, or a segment is full.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use claystone_chunk::{ByteRange, ChunkStore, DiskId};
use claystone_env::timeout;
use claystone_meta::DiskState;
use claystone_volume::{Blocks, BlocksError, Durable, Settings, Volume, VolumeError, joined};

use crate::world::{World, moment, settings};

/// A write of so much is an append of its own.
const WRITE: u64 = 32 << 10;
const WRITES: u64 = 5;
/// Each write goes to a slot of its own and fills it with a version.
async fn write(volume: &Volume, slot: u64, version: u8) -> Result<(), BlocksError> {
    volume.write(slot * WRITE, Bytes::from(vec![version; WRITE as usize]), Durable::WithFlush).await
}

/// The version that a slot has, all of it.
async fn version(volume: &Volume, slot: u64, what: &str) -> u8 {
    let range = ByteRange { offset: slot * WRITE, bytes: WRITE };
    let read = joined(volume.read(range).await.unwrap_or_else(|error| panic!("{what}: slot {slot}: {error}")));
    assert!(read.iter().all(|byte| *byte == read[0]), "{what}: slot {slot} has parts of versions");
    read[0]
}

async fn versions(volume: &Volume, what: &str) -> Vec<u8> {
    let mut all = Vec::new();
    for slot in 0..WRITES {
        all.push(version(volume, slot, what).await);
    }
    all
}

/// A volume on three disks, all of which keep its log, with version 1 in every slot, flushed.
async fn prepared(seed: u64) -> (World, Volume) {
    let world = World::with(3, settings(), seed).await;
    let volume = world.create("v", WRITES * WRITE, "replica:3").await;
    for slot in 0..WRITES {
        write(&volume, slot, 1).await.expect("written");
    }
    volume.flush().await.expect("flushed");
    (world, volume)
}

/// Writes version 2 to every slot at once, in order. Returns those that have returned after a moment, and what becomes of
/// the others when it is polled on.
async fn write_all(world: &World, volume: &Volume) -> Arc<Mutex<BTreeSet<u64>>> {
    let returned = Arc::new(Mutex::new(BTreeSet::new()));
    for slot in 0..WRITES {
        let (volume, returned) = (volume.clone(), returned.clone());
        let written = async move {
            if write(&volume, slot, 2).await.is_ok() {
                returned.lock().unwrap_or_else(PoisonError::into_inner).insert(slot);
            }
        };
        drop(world.beside(written));
    }
    moment().await;
    returned
}

fn slots(returned: &Mutex<BTreeSet<u64>>) -> Vec<u64> {
    returned.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
}

/// An append is late on some disks, those behind it are there: nothing behind it is acknowledged, and after the end of the
/// process what is there is what came before the first append that no disk has.
#[tokio::test]
async fn behind_an_append_that_no_disk_has_nothing_counts() {
    for late in 0..WRITES {
        for disks in [1u64 << (late % 3), 7 & !(1 << (late % 3)), 7] {
            for power_cut in [false, true] {
                let (world, volume) = prepared(late * 16 + disks).await;
                let on = |disk: &u64| disks & 1 << disk != 0;
                (0..3).filter(on).for_each(|disk| world.traps.hold_append(disk as usize, late));
                let returned = write_all(&world, &volume).await;
                let what = format!("append {late} late on {disks:03b}, power cut: {power_cut}");
                assert_eq!(slots(&returned), Vec::from_iter(0..late), "{what}");
                let mut world = if power_cut { world.crash().await } else { world.kill() };
                let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
                let found = versions(&volume, &what).await;
                let there = found.iter().take_while(|version| **version == 2).count() as u64;
                assert!(found[there as usize..].iter().all(|version| *version == 1), "{what}: {found:?}");
                if !power_cut {
                    assert_eq!(there, if disks == 7 { late } else { WRITES }, "{what}: {found:?}");
                }
                // What was left behind the gap never comes back, whoever is lost.
                for life in 0..3 {
                    let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
                    write(&volume, life, 3).await.expect("written");
                    volume.flush().await.expect("flushed");
                    drop(volume);
                    world = world.crash().await;
                    world.lose(((late + life) % 3) as usize);
                    let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
                    let mut expected = found.clone();
                    expected[..=life as usize].fill(3);
                    assert_eq!(versions(&volume, &what).await, expected, "{what}: life {life}");
                    drop(volume);
                    world.find(((late + life) % 3) as usize);
                }
            }
        }
    }
}

/// A flush is for what returned before it: it does not wait for appends under way, and they do not pass for durable.
#[tokio::test]
async fn a_flush_waits_for_no_append_that_is_under_way() {
    for late in 1..WRITES {
        let (world, volume) = prepared(late).await;
        world.traps.hold_append((late % 3) as usize, late);
        let returned = write_all(&world, &volume).await;
        let what = format!("append {late} late");
        assert_eq!(slots(&returned), Vec::from_iter(0..late), "{what}");
        let flushed = timeout(&*world.env.clock, Duration::from_secs(20), volume.flush()).await;
        flushed.expect("it does not wait").expect("flushed");
        // The rest comes, and the next flush takes it along.
        if late % 2 == 0 {
            world.traps.appends().open();
            moment().await;
            assert_eq!(slots(&returned), Vec::from_iter(0..WRITES), "{what}");
            volume.flush().await.expect("flushed");
        }
        drop(volume);
        let flushed = slots(&returned).len();
        let world = world.crash().await;
        // What is left is the disk that was late.
        world.lose((late as usize + 1) % 3);
        world.lose((late as usize + 2) % 3);
        let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = versions(&volume, &what).await;
        assert!(found[..flushed].iter().all(|version| *version == 2), "{what}: {found:?}");
    }
}

/// What its caller has left may be written until a flush returns, and not later.
#[tokio::test]
async fn a_flush_waits_for_an_append_whose_caller_is_gone() {
    let (world, volume) = prepared(7).await;
    world.traps.hold_append(1, 0);
    let left = {
        let write = std::pin::pin!(write(&volume, 0, 2));
        timeout(&*world.env.clock, Duration::from_millis(50), write).await
    };
    assert!(left.is_none(), "it is under way");
    let flushing = volume.clone();
    let mut flushed = world.beside(async move { flushing.flush().await });
    moment().await;
    assert!(flushed.try_recv().is_err(), "a disk has not answered yet");
    assert_eq!(versions(&volume, "under way").await[0], 1);
    world.traps.appends().open();
    flushed.await.expect("it ends").expect("flushed");
    assert_eq!(versions(&volume, "flushed").await[0], 2);
}

/// What is discarded where nothing is yet comes behind the write of who has gone away.
#[tokio::test]
async fn a_discard_of_a_hole_comes_behind_an_append_whose_caller_is_gone() {
    let world = World::with(3, settings(), 9).await;
    let volume = world.create("v", WRITES * WRITE, "replica:3").await;
    let hole = ByteRange { offset: 64 << 10, bytes: 4096 };
    world.traps.hold_append(1, 0);
    let written = volume.write(hole.offset, Bytes::from(vec![2; 4096]), Durable::WithFlush);
    assert!(timeout(&*world.env.clock, Duration::from_millis(50), written).await.is_none(), "it is under way");
    let discarding = volume.clone();
    let mut discarded = world.beside(async move { discarding.discard(hole, Durable::WithFlush).await });
    moment().await;
    assert!(discarded.try_recv().is_err(), "it is behind what a disk has not answered yet");
    world.traps.appends().open();
    discarded.await.expect("it ends").expect("discarded");
    volume.flush().await.expect("flushed");
    assert!(joined(volume.read(hole).await.expect("read"))[..] == [0; 4096]);
}

/// Who writes a part of a page reads the rest: of one whose writer has gone away he waits for what that one wrote.
#[tokio::test]
async fn a_part_of_a_page_waits_for_an_append_whose_caller_is_gone() {
    let (world, volume) = prepared(8).await;
    world.traps.hold_append(1, 0);
    let left = timeout(&*world.env.clock, Duration::from_millis(50), write(&volume, 0, 2)).await;
    assert!(left.is_none(), "it is under way");
    let writing = volume.clone();
    let part = async move { writing.write(0, Bytes::from(vec![3; 512]), Durable::Now).await };
    let mut written = world.beside(part);
    moment().await;
    assert!(written.try_recv().is_err(), "it is not known yet what the page is");
    world.traps.appends().open();
    written.await.expect("it ends").expect("written");
    let page = joined(volume.read(ByteRange { offset: 0, bytes: 4096 }).await.expect("read"));
    assert!(page[..512] == [3; 512] && page[512..] == [2; 3584]);
}

/// A flush beside a sync that is under way ends with it where that covers all that was written, and else with the next one.
#[tokio::test]
async fn a_flush_beside_a_sync_is_for_what_was_written_since_too() {
    for writes_between in [false, true] {
        for power_cut in [false, true] {
            let (world, volume) = prepared(u64::from(writes_between)).await;
            let what = format!("written between: {writes_between}, power cut: {power_cut}");
            write(&volume, 0, 2).await.expect("written");
            world.traps.synced().set();
            let flush = || {
                let volume = volume.clone();
                world.beside(async move { volume.flush().await })
            };
            let mut first = flush();
            world.traps.synced().caught().await;
            if writes_between {
                write(&volume, 1, 2).await.expect("written");
            }
            let mut second = flush();
            moment().await;
            assert!(first.try_recv().is_err() && second.try_recv().is_err(), "{what}: no disk has said that it synced");
            world.traps.synced().open();
            first.await.expect("it ends").unwrap_or_else(|error| panic!("{what}: {error}"));
            second.await.expect("it ends").unwrap_or_else(|error| panic!("{what}: {error}"));
            drop(volume);
            let world = if power_cut { world.crash().await } else { world.kill() };
            let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let mut expected = [1; WRITES as usize];
            expected[..=usize::from(writes_between)].fill(2);
            assert_eq!(versions(&volume, &what).await, expected, "{what}");
        }
    }
}

/// Behind each write of who always flushes the sync begins by itself.
#[tokio::test]
async fn who_flushes_each_write_finds_the_sync_under_way() {
    let (world, volume) = prepared(1).await;
    for version in 2..6 {
        write(&volume, 0, version).await.expect("written");
        volume.flush().await.expect("flushed");
    }
    world.traps.syncs().set();
    write(&volume, 0, 6).await.expect("it waits for no sync");
    let caught = timeout(&*world.env.clock, Duration::from_secs(20), world.traps.syncs().caught()).await;
    caught.expect("nobody asked for it");
    world.traps.syncs().open();
    volume.flush().await.expect("flushed");
    drop(volume);
    let world = world.crash().await;
    let volume = world.volumes.open("v").await.expect("opened");
    assert_eq!(version(&volume, 0, "after a power cut").await, 6);
}

/// A disk fails one of several appends: nobody is told of any of them before the records know that the disk has not all.
#[tokio::test]
async fn what_a_failed_disk_missed_is_recorded_before_it_is_told() {
    for failed in 0..WRITES {
        for late in 0..WRITES {
            let (world, volume) = prepared(failed * 8 + late).await;
            // It fails late, and another disk is late, so that several are under way then.
            world.traps.hold_append(1, late);
            world.traps.hold_append(0, failed);
            world.traps.fail_append(0, failed);
            let returned = write_all(&world, &volume).await;
            let what = format!("append {failed} failed, {late} late");
            assert_eq!(slots(&returned), Vec::from_iter(0..late.min(failed)), "{what}");
            world.database.refuse(0, u64::MAX);
            world.traps.appends().open();
            moment().await;
            volume.flush().await.expect_err("the log has failed");
            assert_eq!(slots(&returned), Vec::from_iter(0..failed), "{what}: it cannot be recorded");
            drop(volume);
            world.database.refuse(0, 0);
            let world = world.crash().await;
            let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let found = versions(&volume, &what).await;
            assert!(found.is_sorted_by(|before, after| before >= after), "{what}: {found:?}");
        }
    }
}

/// Once it is recorded they are told, and what is told is on the other disks.
#[tokio::test]
async fn a_disk_that_fails_with_appends_under_way_takes_none_of_them_with_it() {
    for failed in 0..WRITES {
        for late in 0..WRITES {
            let (world, volume) = prepared(failed * 8 + late).await;
            world.traps.hold_append(1, late);
            world.traps.hold_append(0, failed);
            world.traps.fail_append(0, failed);
            let returned = write_all(&world, &volume).await;
            world.traps.appends().open();
            let what = format!("append {failed} failed, {late} late");
            let flushed = async {
                while slots(&returned).len() < WRITES as usize {
                    world.env.clock.sleep(Duration::from_millis(1)).await;
                }
                volume.flush().await
            };
            let flushed = timeout(&*world.env.clock, Duration::from_secs(20), flushed).await;
            flushed.unwrap_or_else(|| panic!("{what}: not all return")).expect("flushed");
            drop(volume);
            let world = world.crash().await;
            world.lose(1 + (late % 2) as usize);
            let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(versions(&volume, &what).await, [2; WRITES as usize], "{what}");
        }
    }
}

/// Appends of a former owner that are late come to nothing, and do not mix with what the next one reads and writes.
#[tokio::test]
async fn appends_that_a_fence_overtakes_come_to_nothing() {
    for late in 0..WRITES {
        for disks in [1u64 << (late % 3), 7 & !(1 << (late % 3)), 7] {
            let (world, old) = prepared(late * 16 + disks).await;
            let on = |disk: &u64| disks & 1 << disk != 0;
            (0..3).filter(on).for_each(|disk| world.traps.hold_append(disk as usize, late));
            let returned = write_all(&world, &old).await;
            let what = format!("append {late} late on {disks:03b}");
            let second = world.another_process();
            let new = second.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let found = versions(&new, &what).await;
            let there = if disks == 7 { late } else { WRITES } as usize;
            let expected: Vec<u8> = (0..WRITES as usize).map(|slot| if slot < there { 2 } else { 1 }).collect();
            assert_eq!(found, expected, "{what}");
            write(&new, 1, 3).await.expect("written");
            world.traps.appends().open();
            moment().await;
            assert_eq!(slots(&returned), Vec::from_iter(0..late), "{what}: the former owner is told of nothing");
            old.flush().await.expect_err("it is the owner no more");
            new.flush().await.expect("flushed");
            drop((old, new));
            let third = second.crash().await;
            third.lose((late % 3) as usize);
            let volume = third.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let mut expected = found;
            expected[1] = 3;
            assert_eq!(versions(&volume, &what).await, expected, "{what}");
        }
    }
}

/// Writers at once, over the end of a segment, the next one of which is made ahead; flushes now and then.
/// Returns of each slot the version that was flushed last, and the last one that was begun.
async fn write_on(world: &World, volume: &Volume) -> Vec<(u8, u8)> {
    let slots = Arc::new(Mutex::new(vec![(1u8, 1u8); WRITES as usize]));
    let writers: Vec<_> = (0..WRITES)
        .map(|slot| {
            let (volume, slots) = (volume.clone(), slots.clone());
            world.beside(async move {
                let change = |change: &dyn Fn(&mut (u8, u8))| {
                    change(&mut slots.lock().unwrap_or_else(PoisonError::into_inner)[slot as usize]);
                };
                for version in 2..12 {
                    change(&|(_, begun)| *begun = version);
                    if write(&volume, slot, version).await.is_err() {
                        // Cut off.
                        return;
                    }
                    if version % WRITES as u8 == slot as u8 {
                        if volume.flush().await.is_err() {
                            return;
                        }
                        change(&|(flushed, _)| *flushed = version);
                    }
                }
            })
        })
        .collect();
    let all = async {
        for writer in writers {
            // One that is cut off never ends.
            let _ = writer.await;
        }
    };
    tokio::select! {
        biased;
        () = world.cut.reached() => {}
        () = all => {}
    }
    slots.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

#[tokio::test]
async fn a_crash_at_any_change_about_the_end_of_a_segment_keeps_what_was_flushed() {
    let mut steps = 0;
    for happens in [false, true] {
        // Each change is the last one once, and happens or not.
        for step in (u64::from(happens)..).step_by(2) {
            let world = World::with(4, Settings { segment_bytes: SEGMENT, ..settings() }, step).await;
            let volume = world.create("v", WRITES * WRITE, "rs:2+1").await;
            // Until shortly before the next segment is made.
            while volume.status().log_bytes < SEGMENT * 3 / 4 - WRITES * WRITE {
                let all = Bytes::from(vec![1; (WRITES * WRITE) as usize]);
                volume.write(0, all, Durable::WithFlush).await.expect("written");
            }
            volume.flush().await.expect("flushed");
            let from = world.cut.calls();
            world.cut.set(from + step, happens);
            let slots = write_on(&world, &volume).await;
            let is_over = world.cut.calls() < from + step;
            assert!(!is_over || volume.status().log_bytes > SEGMENT, "another segment has begun");
            drop(volume);
            let world = world.crash().await;
            world.lose(step as usize % 4);
            let what = format!("change {step}, happens: {happens}");
            let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
            for (slot, (flushed, begun)) in (0..).zip(slots) {
                let found = version(&volume, slot, &what).await;
                assert!((flushed..=begun).contains(&found), "{what}: slot {slot} has {found} of {flushed}..={begun}");
            }
            if is_over {
                break;
            }
            steps += 1;
        }
    }
    assert!(steps > 100, "only {steps} changes were cut");
}

/// How many segments of the log the disks have.
async fn segments(world: &World) -> usize {
    let owner = world.meta.volume("v").await.expect("its record").id;
    let mut numbers = BTreeSet::new();
    for disk in &world.disks {
        numbers.extend(disk.segments().segments(owner).await.expect("listed").iter().map(|info| info.id.number));
    }
    numbers.len()
}

/// A segment that was made ahead and is not used leaves a disk that is to be left, and nothing of it stays behind.
#[tokio::test]
async fn a_segment_made_ahead_is_left_too() {
    let world = World::with(3, Settings { segment_bytes: SEGMENT, ..settings() }, 1).await;
    let volume = world.create("v", WRITES * WRITE, "replica:2").await;
    while volume.status().log_bytes < SEGMENT * 3 / 4 + WRITE {
        write(&volume, 0, 1).await.expect("written");
        moment().await;
    }
    assert_eq!(segments(&world).await, 2, "the next one is made");
    let disks = world.meta.volume("v").await.expect("its record").log.disks;
    assert_eq!(
        BTreeSet::from_iter(disks.into_keys()),
        BTreeSet::from_iter(volume.status().log_disks),
        "they are recorded"
    );
    // Whichever disk goes, what is made ahead is not on it any more.
    for disk in 0..3 {
        world.lose(disk);
        // First others get what was on it.
        let leaves = async || {
            volume.merge_once(0).await.expect("nothing is merged");
            !volume.status().log_disks.contains(&DiskId(disk as u128))
        };
        world.until("a log that keeps nothing on a lost disk", leaves).await;
        world.find(disk);
    }
    write(&volume, 1, 2).await.expect("written");
    volume.flush().await.expect("flushed");
    drop(volume);
    let world = world.crash().await;
    let volume = world.volumes.open("v").await.expect("it opens");
    assert_eq!((version(&volume, 0, "then").await, version(&volume, 1, "then").await), (1, 2));
}

/// About the least that there may be.
const SEGMENT: u64 = 5 << 20;

/// More waits than may be under way, and upkeep of the log among it, which waits until nothing is where a disk is to be
/// left: then the rest goes on.
#[tokio::test]
async fn upkeep_among_many_appends_leaves_none_behind() {
    const MANY: u64 = 20;
    for is_to_be_left in [false, true] {
        let world = World::with(3, settings(), 1).await;
        let volume = world.create("v", MANY * WRITE, "replica:3").await;
        (0..3).for_each(|disk| world.traps.hold_append(disk, 0));
        let returned = Arc::new(Mutex::new(BTreeSet::new()));
        for slot in 0..MANY {
            let (volume, returned) = (volume.clone(), returned.clone());
            drop(world.beside(async move {
                write(&volume, slot, 2).await.expect("written");
                returned.lock().unwrap_or_else(PoisonError::into_inner).insert(slot);
            }));
            // As many as may be under way; the others come after.
            if slot == 7 {
                moment().await;
            }
        }
        moment().await;
        if is_to_be_left {
            world.stores.update(DiskId(2), |member| member.record.state = DiskState::Draining);
        }
        let tending = volume.clone();
        drop(world.beside(async move {
            tending.merge_once(0).await.expect("nothing is to be merged");
        }));
        moment().await;
        world.traps.appends().open();
        world.until("the rest", async || slots(&returned) == Vec::from_iter(0..MANY)).await;
    }
}

/// The log has failed while another segment was made, and making it fails too: it is not recorded that there are no copies to
/// miss, or the next opening would do without them.
#[tokio::test]
async fn a_log_that_failed_does_not_record_that_no_copy_is_missed() {
    let world = World::with(2, Settings { segment_bytes: SEGMENT, ..settings() }, 1).await;
    let volume = world.create("v", WRITES * WRITE, "replica:2").await;
    write(&volume, 0, 1).await.expect("written");
    volume.flush().await.expect("flushed");
    world.traps.creates().set();
    while volume.status().log_bytes < SEGMENT * 3 / 4 + WRITE {
        write(&volume, 1, 1).await.expect("written");
    }
    world.traps.creates().caught().await;
    let before = world.meta.volume("v").await.expect("its record");
    (0..2).for_each(|disk| world.traps.fail_append(disk, 0));
    write(&volume, 0, 2).await.expect_err("no disk takes it");
    world.cut.kill(0, 0);
    world.traps.creates().open();
    moment().await;
    volume.flush().await.expect_err("the log has failed");
    let after = world.meta.volume("v").await.expect("its record");
    assert_eq!((after.log.copies, after.log.disks), (2, before.log.disks));
    drop(volume);
    let world = world.crash().await;
    (0..2).for_each(|disk| world.lose(disk));
    let refused = world.volumes.open("v").await.expect_err("all that was flushed is on these disks");
    assert!(matches!(refused, VolumeError::LogAbsent { .. }), "{refused}");
    (0..2).for_each(|disk| world.find(disk));
    let volume = world.volumes.open("v").await.expect("they are back");
    assert_eq!(version(&volume, 0, "then").await, 1);
}

/// A sync was under way when the log failed, and a disk fails it: the log does not go on in another segment.
#[tokio::test]
async fn a_log_that_failed_begins_no_segment() {
    let (world, volume) = prepared(1).await;
    write(&volume, 0, 2).await.expect("written");
    world.traps.syncs().set();
    let flushing = volume.clone();
    let flushed = world.beside(async move { flushing.flush().await });
    world.traps.syncs().caught().await;
    // A disk fails, and that cannot be recorded.
    world.database.refuse(0, u64::MAX);
    world.traps.fail_append(0, 0);
    write(&volume, 1, 2).await.expect_err("the log has failed");
    world.database.refuse(0, 0);
    world.cut.kill(1, 0);
    world.traps.syncs().open();
    let flushed = flushed.await.expect("it ends");
    moment().await;
    assert_eq!(segments(&world).await, 1, "that of the opening");
    flushed.expect_err("the log has failed");
}

/// Segments end while no disk syncs: writes go on in the next ones, and no flush ends. After a power cut there is what came
/// before some write, and all that was flushed; also where disks kept a later segment and not an earlier one.
#[tokio::test]
async fn writers_do_not_wait_for_the_segment_that_ended_to_be_synced() {
    let mut without_the_next = 0;
    for seed in 0..48 {
        let what = format!("seed {seed}");
        let world = World::with(3, Settings { segment_bytes: SEGMENT, ..settings() }, seed).await;
        let volume = world.create("v", WRITES * WRITE, "replica:2").await;
        // What is written in the end, by its order.
        let mut written = 0;
        let next = async |written: &mut u64| {
            *written += 1;
            write(&volume, *written % WRITES, *written as u8).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        };
        // Writes leave room for other records.
        let end = SEGMENT - (192 << 10);
        while volume.status().log_bytes < end - 4 * WRITE {
            next(&mut written).await;
        }
        volume.flush().await.expect("flushed");
        let flushed = written;
        world.traps.syncs().set();
        let mut first_in_next = None;
        for _ in 0..if seed % 3 == 0 { 400 } else { 8 } {
            let written_now = timeout(&*world.env.clock, Duration::from_secs(20), next(&mut written)).await;
            written_now.unwrap_or_else(|| panic!("{what}: it waits for a sync"));
            if volume.status().log_bytes > end {
                first_in_next.get_or_insert(written);
            }
        }
        let first_in_next = first_in_next.expect("the next segment has begun");
        let flushing = volume.clone();
        let mut flush = world.beside(async move { flushing.flush().await });
        moment().await;
        assert!(flush.try_recv().is_err(), "{what}: nothing is synced");
        let mut durable = flushed;
        if seed % 4 == 0 {
            world.traps.syncs().open();
            flush.await.expect("it ends").unwrap_or_else(|error| panic!("{what}: {error}"));
            durable = written;
        }
        drop(volume);
        let world = world.crash().await;
        let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = versions(&volume, &what).await;
        let after =
            |last: u64| -> Vec<u8> { (0..WRITES).map(|slot| (last - (last + WRITES - slot) % WRITES) as u8).collect() };
        let last = (durable..=written).find(|last| after(*last) == found);
        let last = last.unwrap_or_else(|| panic!("{what}: {found:?} after {durable}..={written}"));
        without_the_next += u32::from(last + 1 < first_in_next);
        // It stays so, whoever is lost.
        drop(volume);
        let world = world.crash().await;
        world.lose((seed % 3) as usize);
        let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(versions(&volume, &what).await, found, "{what}");
    }
    assert!(without_the_next > 5, "only {without_the_next} crashes left a part of the segment that ended");
}

/// What was flushed in a segment is not left out because one before it is damaged: that is told.
#[tokio::test]
async fn a_damaged_segment_before_one_that_was_flushed_is_told() {
    for seed in 0..3 {
        let world = World::with(2, Settings { segment_bytes: SEGMENT, ..settings() }, seed).await;
        let volume = world.create("v", WRITES * WRITE, "replica:2").await;
        let (mut last, mut in_next) = (0, false);
        world.traps.syncs().set();
        while !in_next {
            last += 1;
            let before = volume.status().log_bytes;
            write(&volume, last % WRITES, last as u8).await.expect("written");
            // The first record of a segment comes before it.
            in_next = last > 1 && volume.status().log_bytes - before > WRITE + 64;
        }
        let flushing = volume.clone();
        let mut flushed = world.beside(async move { flushing.flush().await });
        moment().await;
        // The record that the segment before is synced.
        world.traps.hold_append(0, 0);
        world.traps.syncs().open();
        world.traps.appends().caught().await;
        moment().await;
        assert!(flushed.try_recv().is_err(), "seed {seed}: it is not there yet");
        world.traps.appends().open();
        flushed.await.expect("it ends").expect("flushed");
        drop(volume);
        let world = world.crash().await;
        (0..2).for_each(|disk| world.traps.spoil(DiskId(disk), &Bytes::from(vec![last as u8 - 1; WRITE as usize])));
        let error = world.volumes.open("v").await.expect_err("a part of it is on no disk");
        assert!(matches!(error, VolumeError::LogDamaged { .. }), "seed {seed}: {error}");
    }
}
