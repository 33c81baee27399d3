//! Snapshots and clones: what they hold while writers go on, what is shared and for how long, what is refused, and what a
//! crash at any step of taking one, copying a stripe or going back leaves.

use std::time::Duration;

use bytes::Bytes;
use claystone_chunk::testing::pattern;
use claystone_chunk::{ByteRange, DiskId};
use claystone_meta::{MetaError, SnapshotTally};
use claystone_volume::{
    Access, Blocks, BlocksError, Durable, Settings, SnapshotName, SpanKind, Volume, VolumeError, joined,
};

use crate::world::{World, check, scribble, settings};

const BYTES: usize = 512 << 10;
const MIB: u64 = 1 << 20;
/// Of `rs:2+1` with the chunks of these tests.
const STRIPE_BYTES: u64 = 128 << 10;

fn name(text: &str) -> SnapshotName {
    text.parse().expect("a valid name")
}

/// A volume with stripes, and diffs on some of them.
async fn prepared(world: &World, code: &str) -> Vec<u8> {
    let volume = world.create("v", BYTES as u64, code).await;
    let mut model = vec![0; BYTES];
    scribble(&volume, &mut model[..300 << 10], 1, 8).await;
    volume.merge_all().await.expect("merged");
    scribble(&volume, &mut model, 2, 6).await;
    model
}

#[tokio::test]
async fn a_snapshot_stays_what_the_volume_was() {
    for code in ["rs:2+1", "rs:4+2", "replica:2"] {
        let world = World::new(6).await;
        let old = prepared(&world, code).await;
        let record = world.snapshot("v@monday").await.expect("taken");
        assert_eq!((record.bytes, record.full_name()), (BYTES as u64, "v@monday".to_owned()));
        let snapshot = world.open_snapshot("v@monday").await;
        check(&snapshot, &old, code).await;

        let volume = world.volumes.open("v").await.expect("it is open");
        check(&volume, &old, code).await;
        let mut new = old.clone();
        for round in 3..7 {
            scribble(&volume, &mut new, round, 10).await;
            check(&volume, &new, code).await;
            volume.merge_all().await.expect("merged");
            check(&volume, &new, code).await;
            check(&snapshot, &old, code).await;
        }
        volume.discard(ByteRange { offset: 0, bytes: BYTES as u64 }, Durable::WithFlush).await.expect("discarded");
        let report = volume.merge_all().await.expect("merged");
        assert!(report.stripes_dropped > 0, "{report:?}");
        assert_eq!(volume.status().stripes, 0);
        check(&snapshot, &old, code).await;
        world.assert_sound().await;
        // As another process finds it, without as many disks as the code tolerates.
        let world = world.crash().await;
        (0..usize::from(record.redundancy.code.tolerance())).for_each(|disk| world.lose(2 * disk + 1));
        check(&world.open_snapshot("v@monday").await, &old, code).await;
    }
}

#[tokio::test]
async fn clones_are_written_apart_and_share_what_nobody_wrote() {
    let world = World::new(4).await;
    let old = prepared(&world, "rs:2+1").await;
    world.snapshot("v@s").await.expect("taken");
    let clone = world.volumes.clone_snapshot(&name("v@s"), "w").await.expect("made");
    assert_eq!((clone.bytes, clone.page_bytes, clone.chunk_bytes), (BYTES as u64, 4096, 64 << 10));
    let (one, two) =
        (world.volumes.open("v").await.expect("it is open"), world.volumes.open("w").await.expect("it opens"));
    let snapshot = world.open_snapshot("v@s").await;
    let (mut of_one, mut of_two) = (old.clone(), old.clone());
    for round in 0..6 {
        scribble(&one, &mut of_one[..200 << 10], 20 + round, 4).await;
        scribble(&two, &mut of_two[..200 << 10], 40 + round, 4).await;
        one.merge_all().await.expect("merged");
        check(&two, &of_two, "before its merge").await;
        two.merge_all().await.expect("merged");
        for (blocks, model) in [(&one as &dyn Blocks, &of_one), (&two, &of_two), (&snapshot, &old)] {
            check(blocks, model, &format!("round {round}")).await;
        }
    }
    // The first stripe has three contents, the last is there once.
    let tally = world.volumes.snapshot_tally(snapshot.record().id).await.expect("counted");
    assert_eq!(tally, SnapshotTally { stripes: 4, alone: 2 });
    let stripes = world.meta.stripes(None, 99).await.expect("readable");
    assert_eq!(stripes.len(), 4 + 2 * 2);
    drop((one, two, snapshot));
    // The clone stays when its origin and the snapshot go.
    assert_eq!(world.volumes.delete_snapshot(&name("v@s")).await.expect("nobody reads it").len(), 2);
    world.volumes.delete("v").await.expect("nobody has it");
    let two = world.volumes.open("w").await.expect("it is open");
    check(&two, &of_two, "alone").await;
    world.assert_sound().await;
    // What is alone again is patched in place.
    scribble(&two, &mut of_two, 99, 5).await;
    let report = two.merge_all().await.expect("merged");
    assert_eq!(report.stripes_copied, 0);
    assert!(report.stripes > 0, "{report:?}");
    check(&two, &of_two, "alone").await;
}

#[tokio::test]
async fn a_shared_stripe_is_copied_once() {
    let world = World::new(4).await;
    let volume = world.create("v", BYTES as u64, "rs:2+1").await;
    let mut model = vec![1; BYTES];
    volume.write(0, Bytes::from(model.clone()), Durable::WithFlush).await.expect("written");
    world.snapshot("v@s").await.expect("taken");
    for (round, copied) in [(0u8, 1), (1, 0), (2, 0)] {
        model[8192..12288].fill(round);
        volume.write(8192, Bytes::from(vec![round; 4096]), Durable::WithFlush).await.expect("written");
        let report = volume.merge_all().await.expect("merged");
        assert_eq!((report.stripes_copied, report.stripes, report.pages), (copied, 1 - copied, 1), "{report:?}");
    }
    // A stripe that is written anew as a whole is not read for it: it can be lost, as here.
    let lost = STRIPE_BYTES as usize..2 * STRIPE_BYTES as usize;
    model[lost.clone()].fill(7);
    volume.write(STRIPE_BYTES, Bytes::from(vec![7; lost.len()]), Durable::WithFlush).await.expect("written");
    assert_eq!(volume.merge_all().await.expect("merged").stripes_copied, 1);
    check(&volume, &model, "in the end").await;
}

#[tokio::test]
async fn a_snapshot_is_one_place_of_the_log_while_writers_and_merges_go_on() {
    // More stripes than are merged at once.
    const PAGES: u64 = 40 * STRIPE_BYTES / 4096;
    let world = World::new(4).await;
    let volume = world.create("v", PAGES * 4096, "rs:2+1").await;
    let acknowledged = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (counter, writing) = (acknowledged.clone(), volume.clone());
    // Write number n goes to this page; one after another.
    let page_of = |number: u64| number * 33 % PAGES;
    let writer = world.env.tasks.spawn(
        "writer",
        Box::pin(async move {
            for number in 1.. {
                let content: Vec<u8> = u64::to_le_bytes(number).repeat(512);
                let written = writing.write(page_of(number) * 4096, content.into(), Durable::WithFlush).await;
                if written.is_err() {
                    return;
                }
                counter.store(number, std::sync::atomic::Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        }),
    );
    let now = || acknowledged.load(std::sync::atomic::Ordering::SeqCst);
    for number in 0..8 {
        while now() < PAGES + 100 * number {
            tokio::task::yield_now().await;
        }
        let before = now();
        let merging = volume.clone();
        let merge = world.beside(async move { merging.merge_once(u64::MAX).await });
        let full = format!("v@s{number}");
        world.snapshot(&full).await.expect("taken");
        let after = now();
        merge.await.expect("not cancelled").expect("merged");
        let snapshot = world.open_snapshot(&full).await;
        let content = joined(snapshot.read(ByteRange { offset: 0, bytes: PAGES * 4096 }).await.expect("readable"));
        let pages: Vec<u64> = content
            .chunks_exact(4096)
            .map(|page| {
                assert!(page.chunks_exact(8).all(|word| word == &page[..8]), "a torn page");
                u64::from_le_bytes(page[..8].try_into().expect("eight bytes"))
            })
            .collect();
        let last = *pages.iter().max().expect("there are pages");
        let mut expected = vec![0; PAGES as usize];
        (last - PAGES + 1..=last).for_each(|number| expected[page_of(number) as usize] = number);
        assert_eq!(pages, expected, "every write up to one, and none behind it");
        assert!((before..=after + 1).contains(&last), "{before}..={after}: {last}");
    }
    assert!(volume.status().merged.stripes_copied > 0);
    writer.cancel();
}

/// A read that is on its way to a stripe while the volume lets go of it, and the clone, alone with it then, patches it.
async fn let_go(content: u8) {
    let world = World::new(4).await;
    let volume = world.create("v", STRIPE_BYTES, "rs:2+1").await;
    let whole = |content: u8| Bytes::from(vec![content; STRIPE_BYTES as usize]);
    volume.write(0, whole(1), Durable::WithFlush).await.expect("written");
    world.snapshot("v@s").await.expect("taken");
    world.volumes.clone_snapshot(&name("v@s"), "w").await.expect("made");
    let clone = world.volumes.open("w").await.expect("it opens");

    let held = world.cut.hold_reads().await;
    let reading = volume.clone();
    let read = world.beside(async move { reading.read(ByteRange { offset: 0, bytes: 4096 }).await });
    tokio::task::yield_now().await;
    // All of the stripe, so that no merge reads it.
    if content == 0 {
        let all = ByteRange { offset: 0, bytes: STRIPE_BYTES };
        volume.discard(all, Durable::WithFlush).await.expect("it takes discards");
    } else {
        volume.write(0, whole(content), Durable::WithFlush).await.expect("written");
    }
    clone.write(0, whole(3), Durable::WithFlush).await.expect("written");
    let merging = volume.clone();
    let merge = world.beside(async move { merging.merge_all().await });
    world.env.clock.sleep(std::time::Duration::from_millis(100)).await;
    world.volumes.delete_snapshot(&name("v@s")).await.expect("nobody reads it");
    clone.merge_all().await.expect("merged");
    drop(held);
    let found = joined(read.await.expect("not cancelled").expect("readable"));
    assert!(found.iter().all(|byte| *byte == 1), "the volume's, and not {}, which is the clone's", found[0]);
    merge.await.expect("not cancelled").expect("merged");
    check(&volume, &whole(content), "the volume").await;
    check(&clone, &whole(3), "the clone").await;
    world.assert_sound().await;
}

#[tokio::test]
async fn a_stripe_is_let_go_when_no_read_is_on_its_way_to_it() {
    let_go(2).await;
}

#[tokio::test]
async fn a_stripe_that_becomes_zeros_is_let_go_when_no_read_is_on_its_way_to_it() {
    let_go(0).await;
}

#[tokio::test]
async fn a_reverted_volume_is_what_its_snapshot_is() {
    for code in ["rs:2+1", "replica:2"] {
        let world = World::new(4).await;
        let old = prepared(&world, code).await;
        world.snapshot("v@s").await.expect("taken");
        let volume = world.volumes.open("v").await.expect("it is open");
        let mut model = old.clone();
        // Merged, and waiting in the log.
        scribble(&volume, &mut model, 5, 20).await;
        volume.merge_all().await.expect("merged");
        scribble(&volume, &mut model, 6, 20).await;
        volume.flush().await.expect("flushed");
        world.snapshot("v@later").await.expect("taken");
        scribble(&volume, &mut model.clone(), 7, 5).await;
        world.volumes.grow("v", 2 * BYTES as u64).await.expect("longer");
        volume.write(BYTES as u64, Bytes::from(vec![9; 8192]), Durable::WithFlush).await.expect("written");
        let refused = world.volumes.revert(&name("v@s")).await.expect_err("a client has it");
        assert!(matches!(refused, VolumeError::InUse { .. }), "{refused}");
        drop(volume);
        for (to, content) in [("v@s", &old), ("v@later", &model), ("v@s", &old)] {
            world.volumes.revert(&name(to)).await.expect("nobody has it");
            let longer = [&content[..], &vec![0; BYTES]].concat();
            let volume = world.volumes.open("v").await.expect("it is open");
            check(&volume, &longer, to).await;
            assert_eq!(volume.status().diff_pages, 0);
            // It goes on as any other.
            scribble(&volume, &mut longer.clone(), 8, 10).await;
            volume.merge_once(5).await.expect("merged");
            drop(volume);
            check(&world.open_snapshot("v@s").await, &old, to).await;
            check(&world.open_snapshot("v@later").await, &model, to).await;
        }
        world.assert_sound().await;
    }
}

/// A disk that was absent while the volume was reverted comes back with its log of before.
#[tokio::test]
async fn a_log_of_before_a_revert_does_not_come_back() {
    let world = World::new(4).await;
    let old = prepared(&world, "rs:2+1").await;
    world.snapshot("v@s").await.expect("taken");
    let volume = world.volumes.open("v").await.expect("it is open");
    scribble(&volume, &mut old.clone(), 5, 20).await;
    volume.flush().await.expect("flushed");
    drop(volume);
    let logs = world.meta.volume("v").await.expect("there").log.disks;
    let world = world.crash().await;
    logs.keys().for_each(|disk| world.lose(disk.0 as usize));
    // With its log gone it does not open; going back needs none.
    assert!(matches!(world.volumes.open("v").await, Err(VolumeError::LogAbsent { .. })));
    world.volumes.revert(&name("v@s")).await.expect("reverted");
    let world = world.crash().await;
    let volume = world.volumes.open("v").await.expect("it opens");
    check(&volume, &old, "with all disks").await;
    for disk in &world.disks {
        let segments = claystone_chunk::ChunkStore::segments(disk).segments(volume.record().id).await.expect("listed");
        let first = volume.record().log_from.0 << 24;
        assert!(segments.iter().all(|segment| segment.id.number >= first), "{segments:?}");
    }
}

#[tokio::test]
async fn snapshots_take_no_writes_and_show_their_holes() {
    let world = World::new(4).await;
    let volume = world.create("v", BYTES as u64, "rs:2+1").await;
    volume.write(STRIPE_BYTES, Bytes::from(vec![3; 4096]), Durable::WithFlush).await.expect("written");
    world.snapshot("v@s").await.expect("taken");
    let snapshot = world.open_snapshot("v@s").await;
    assert_eq!((snapshot.access(), snapshot.bytes(), snapshot.page_bytes()), (Access::ReadOnly, BYTES as u64, 4096));
    let range = ByteRange { offset: 0, bytes: 4096 };
    for refused in [
        snapshot.write(0, Bytes::from_static(b"x"), Durable::WithFlush).await,
        snapshot.discard(range, Durable::Now).await,
    ] {
        assert_eq!(refused, Err(BlocksError::ReadOnly));
    }
    snapshot.flush().await.expect("nothing to do");
    let all = ByteRange { offset: 0, bytes: BYTES as u64 };
    let spans: Vec<_> =
        snapshot.spans(all, 9).await.expect("listed").iter().map(|span| (span.bytes, span.kind)).collect();
    let rest = BYTES as u64 - 2 * STRIPE_BYTES;
    assert_eq!(spans, [(STRIPE_BYTES, SpanKind::Hole), (STRIPE_BYTES, SpanKind::Data), (rest, SpanKind::Hole)]);
    assert_eq!(snapshot.spans(all, 1).await.expect("listed").len(), 1);
    let beyond = ByteRange { offset: BYTES as u64, bytes: 1 };
    assert!(matches!(snapshot.read(beyond).await, Err(BlocksError::OutOfRange { .. })));
    assert!(snapshot.read(ByteRange { offset: 5, bytes: 0 }).await.expect("readable").is_empty());
    let across = ByteRange { offset: STRIPE_BYTES - 7, bytes: 20 };
    let read = joined(snapshot.read(across).await.expect("readable"));
    assert_eq!(read[..], [[0; 7].as_slice(), &[3; 13]].concat()[..]);
}

#[tokio::test]
async fn what_would_lose_or_confuse_is_refused() {
    let world = World::new(4).await;
    let volume = world.create("v", BYTES as u64, "rs:2+1").await;
    volume.write(0, Bytes::from(vec![1; 8192]), Durable::Now).await.expect("written");
    world.snapshot("v@s").await.expect("taken");
    let refused = world.snapshot("v@s").await.expect_err("the name is taken");
    assert!(matches!(&refused, VolumeError::Meta(MetaError::SnapshotExists { name }) if name == "v@s"), "{refused}");
    assert!(matches!(world.snapshot("none@s").await, Err(VolumeError::Meta(MetaError::NoSuchVolume { .. }))));
    for wrong in ["v", "v@", "@s", "v@a@b", "v@-", "v@a b", ""] {
        assert!(wrong.parse::<SnapshotName>().is_err(), "{wrong:?}");
    }
    drop(volume);
    let refused = world.volumes.delete("v").await.expect_err("it has a snapshot");
    assert_eq!(refused.to_string(), "volume \"v\" has snapshots, which need its stripes: delete v@s first");
    let taken = world.volumes.clone_snapshot(&name("v@s"), "v").await;
    assert!(matches!(taken, Err(VolumeError::Meta(MetaError::VolumeExists { .. }))));
    let bad = world.volumes.clone_snapshot(&name("v@s"), "a@b").await;
    assert!(matches!(bad, Err(VolumeError::BadName { .. })));
    let missing = world.volumes.revert(&name("v@none")).await;
    assert!(matches!(missing, Err(VolumeError::Meta(MetaError::NoSuchSnapshot { .. }))));

    let snapshot = world.open_snapshot("v@s").await;
    let again = world.open_snapshot("v@s").await;
    assert_eq!(world.volumes.snapshots().await.expect("listed")[0].users, 2);
    drop(again);
    let refused = world.volumes.delete_snapshot(&name("v@s")).await.expect_err("somebody reads it");
    assert!(matches!(refused, VolumeError::SnapshotInUse { .. }), "{refused}");
    drop(snapshot);
    world.volumes.delete_snapshot(&name("v@s")).await.expect("nobody reads it");
    assert!(matches!(
        world.volumes.open_snapshot(&name("v@s")).await,
        Err(VolumeError::Meta(MetaError::NoSuchSnapshot { .. }))
    ));
    world.volumes.delete("v").await.expect("it has none");
}

/// What cannot be merged is no part of a snapshot, so there is none; the volume goes on, and its merges with it.
#[tokio::test]
async fn without_room_for_stripes_no_snapshot_is_taken_and_the_volume_goes_on() {
    let world = World::new(3).await;
    let volume = world.create("v", BYTES as u64, "rs:2+1").await;
    let mut model = vec![0; BYTES];
    // Two disks keep the log; with one of three nothing can be coded.
    volume.write(0, Bytes::from(vec![5; 8192]), Durable::WithFlush).await.expect("written");
    model[..8192].fill(5);
    world.lose(0);
    world.lose(1);
    let refused = world.snapshot("v@s").await.expect_err("nothing can be merged");
    assert!(matches!(refused, VolumeError::NotMerged { stripes: 1, .. }), "{refused}");
    assert!(world.volumes.snapshots().await.expect("listed").is_empty());
    volume.write(4096, Bytes::from(vec![6; 8192]), Durable::WithFlush).await.expect("written");
    model[4096..12288].fill(6);
    check(&volume, &model, "without a snapshot").await;
    for disk in [0, 1] {
        world.find(disk);
    }
    world.snapshot("v@s").await.expect("taken");
    check(&world.open_snapshot("v@s").await, &model, "with all disks").await;
    volume.merge_all().await.expect("merged");
    assert_eq!(volume.status().diff_pages, 0);
}

/// A reserve of four short segments.
fn tight() -> Settings {
    Settings { segment_bytes: 5 * MIB, reserve_bytes: 20 * MIB, ..settings() }
}

/// While a disk is full a volume cannot have stripes of its own, and all of its pages wait: in a log that has room for them, and nothing else is
/// counted.
#[tokio::test]
async fn writers_go_on_while_shared_stripes_cannot_be_copied() {
    for is_clone in [false, true] {
        let world = World::with(6, tight(), 1).await;
        let mut volume = world.create("v", 8 * MIB, "rs:4+2").await;
        let mut model = vec![1; 8 << 20];
        volume.write(0, Bytes::from(model.clone()), Durable::WithFlush).await.expect("written");
        world.snapshot("v@s").await.expect("taken");
        if is_clone {
            world.volumes.clone_snapshot(&name("v@s"), "c").await.expect("cloned");
            volume = world.volumes.open("c").await.expect("it opens");
        }
        world.set_free_of(DiskId(5), 0);
        for number in 0..120 {
            let (offset, bytes) = (number * 37 % 32 * (MIB / 4), MIB / 4 - number % 5 * 1000);
            let content = pattern(number, bytes as usize);
            volume.write(offset, content.clone(), Durable::WithFlush).await.expect("there is room");
            model[offset as usize..(offset + bytes) as usize].copy_from_slice(&content);
        }
        check(&volume, &model, "in the log").await;
        let status = volume.status();
        assert!(status.diff_pages > 2000 && status.log_bytes <= 20 * MIB, "{status:?}");
        if is_clone {
            world.set_free_of(DiskId(5), 1 << 40);
        } else {
            // It has its stripes alone.
            world.volumes.delete_snapshot(&name("v@s")).await.expect("nobody reads it");
        }
        volume.merge_all().await.expect("merged");
        assert_eq!(volume.status().diff_pages, 0);
        check(&volume, &model, "in stripes").await;
    }
}

/// A volume of shared stripes with diffs in all of them, on disks of which one is full, and what it holds.
async fn waiting_for_a_disk(settings: Settings, writes: u64) -> (World, Volume, Vec<u8>) {
    let world = World::with(6, settings, 1).await;
    let volume = world.create("v", 32 * MIB, "rs:4+2").await;
    let mut model = vec![1; 32 << 20];
    for start in (0..32).map(|number| number * MIB) {
        let content = Bytes::from(vec![1; MIB as usize]);
        volume.write(start, content, Durable::WithFlush).await.expect("written");
    }
    world.snapshot("v@s").await.expect("taken");
    world.set_free_of(DiskId(5), 0);
    for number in 0..writes {
        let offset = number * 2741 % 8192 * 4096;
        let content = pattern(number, 4096);
        model[offset as usize..offset as usize + 4096].copy_from_slice(&content);
        volume.write(offset, content, Durable::Now).await.expect("there is room");
    }
    (world, volume, model)
}

/// What cannot be merged is carried over though one round tries few of many stripes.
#[tokio::test]
async fn what_waits_is_carried_over_however_many_rounds_it_takes_to_try_all_of_it() {
    let settings = Settings { merge_from_percent: 1000, merge_when_idle: Duration::MAX, ..tight() };
    let (world, volume, mut model) = waiting_for_a_disk(settings, 2000).await;
    for number in 0..2400 {
        let content = pattern(number, 4096);
        let offset = number % 8 * 4096;
        model[offset as usize..offset as usize + 4096].copy_from_slice(&content);
        volume.write(offset, content, Durable::Now).await.expect("there is room");
    }
    let status = volume.status();
    let mut carried = 0;
    for _ in 0..200 {
        let report = volume.merge_once(1).await.expect("it works");
        assert_eq!(report.pages, 0, "{report:?}");
        carried += report.pages_carried;
    }
    assert!(carried > 0 && volume.status().log_bytes < status.log_bytes, "{status:?}, {:?}", volume.status());
    check(&volume, &model, "carried over").await;
    world.set_free_of(DiskId(5), 1 << 40);
    volume.merge_all().await.expect("merged");
    assert_eq!(volume.status().diff_pages, 0);
    check(&volume, &model, "in stripes").await;
}

/// An opening knows which stripes are shared, of which merges log nothing.
#[tokio::test]
async fn who_opens_a_volume_goes_on_where_shared_stripes_cannot_be_copied() {
    let (world, volume, mut model) = waiting_for_a_disk(tight(), 4000).await;
    volume.flush().await.expect("flushed");
    let before = volume.status().used_percent;
    assert!((75..100).contains(&before), "{before} %");
    drop(volume);
    let world = world.crash().await;
    world.set_free_of(DiskId(5), 0);
    let volume = world.volumes.open("v").await.expect("it opens");
    let after = volume.status().used_percent;
    assert!(after <= before + 5, "{before} % before, {after} % after");
    let content = pattern(7, 4096);
    volume.write(0, content.clone(), Durable::WithFlush).await.expect("there is room");
    model[..4096].copy_from_slice(&content);
    check(&volume, &model, "opened").await;
}

// ---- Crashes ----

/// A volume with stripes and flushed diffs; what it holds.
async fn flushed(code: &str, disks: u128, seed: u64) -> (World, Vec<u8>) {
    let world = World::with(disks, settings(), seed).await;
    let model = prepared(&world, code).await;
    let volume = world.volumes.open("v").await.expect("it is open");
    volume.flush().await.expect("flushed");
    (world, model)
}

/// Disks to lose at a step, so that all have their turn.
fn lose_some(world: &World, code: &str, disks: u64, step: u64) -> Vec<u64> {
    let tolerance = u64::from(code.parse::<claystone_code::CodeSpec>().expect("a code").tolerance());
    let lost: Vec<u64> = (0..(step % (tolerance + 1))).map(|number| (step + 3 * number) % disks).collect();
    lost.iter().for_each(|disk| world.lose(*disk as usize));
    lost
}

async fn taking_every_step(code: &str, disks: u128) {
    let (mut steps, mut taken) = (0, 0);
    for happens in [false, true] {
        for step in 0.. {
            let (world, model) = flushed(code, disks, step).await;
            world.cut.set(world.cut.calls() + step, happens);
            if let Some(result) = world.until_cut(world.snapshot("v@s")).await {
                result.expect("taken");
                break;
            }
            steps += 1;
            let world = world.crash().await;
            let lost = lose_some(&world, code, disks as u64, step);
            let what = format!("{code}: step {step}, happens: {happens}, then {lost:?} lost");
            let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&volume, &model, &what).await;
            if !world.volumes.snapshots().await.expect("listed").is_empty() {
                taken += 1;
                check(&world.open_snapshot("v@s").await, &model, &what).await;
            } else {
                world.snapshot("v@s").await.unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            let mut new = model.clone();
            scribble(&volume, &mut new, 9, 5).await;
            volume.merge_all().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&volume, &new, &what).await;
            check(&world.open_snapshot("v@s").await, &model, &what).await;
            world.assert_sound().await;
        }
    }
    assert!(steps > 40, "{code}: only {steps} steps were cut");
    assert_eq!(taken, 0, "its record is the last that is done, and no step of a store");
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_snapshot_leaves_it_whole_or_none() {
    taking_every_step("rs:2+1", 4).await;
    taking_every_step("replica:2", 3).await;
}

/// A volume, its snapshot and a clone of it, all with the same stripes, and flushed diffs on some.
async fn shared(code: &str, disks: u128, seed: u64) -> (World, Vec<u8>, Vec<u8>) {
    let (world, old) = flushed(code, disks, seed).await;
    world.snapshot("v@s").await.expect("taken");
    world.volumes.clone_snapshot(&name("v@s"), "w").await.expect("made");
    let volume = world.volumes.open("v").await.expect("it is open");
    let mut new = old.clone();
    scribble(&volume, &mut new, 7, 6).await;
    volume.discard(ByteRange { offset: 0, bytes: STRIPE_BYTES }, Durable::WithFlush).await.expect("discarded");
    new[..STRIPE_BYTES as usize].fill(0);
    volume.flush().await.expect("flushed");
    (world, old, new)
}

async fn copying_every_step(code: &str, disks: u128) {
    let mut steps = 0;
    for happens in [false, true] {
        for step in 0.. {
            let (world, old, new) = shared(code, disks, step).await;
            world.cut.set(world.cut.calls() + step, happens);
            let volume = world.volumes.open("v").await.expect("it is open");
            if let Some(merged) = world.until_cut(volume.merge_all()).await {
                assert!(merged.expect("merged").stripes_copied > 0);
                break;
            }
            drop(volume);
            steps += 1;
            let world = world.crash().await;
            let lost = lose_some(&world, code, disks as u64, step);
            let what = format!("{code}: step {step}, happens: {happens}, then {lost:?} lost");
            // Twice, with a merge of what is left between.
            for _ in 0..2 {
                let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
                check(&volume, &new, &what).await;
                check(&world.open_snapshot("v@s").await, &old, &what).await;
                let clone = world.volumes.open("w").await.unwrap_or_else(|error| panic!("{what}: {error}"));
                check(&clone, &old, &what).await;
                volume.merge_all().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            world.assert_sound().await;
        }
    }
    assert!(steps > 20, "{code}: only {steps} steps were cut");
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_copy_leaves_every_holder_its_own() {
    copying_every_step("rs:2+1", 4).await;
    copying_every_step("rs:4+2", 6).await;
    copying_every_step("replica:2", 3).await;
}

#[tokio::test]
async fn a_disk_that_dies_at_any_step_of_a_copy_takes_nothing_with_it() {
    for disk in 0..4 {
        for step in 0.. {
            let (world, old, new) = shared("rs:2+1", 4, step).await;
            let volume = world.volumes.open("v").await.expect("it is open");
            let calls = world.cut.calls();
            world.cut.kill(disk, calls + step);
            volume.merge_all().await.expect("merged");
            let what = format!("disk {disk} dies at step {step}");
            check(&volume, &new, &what).await;
            check(&world.open_snapshot("v@s").await, &old, &what).await;
            check(&world.volumes.open("w").await.expect("it opens"), &old, &what).await;
            if world.cut.calls() < calls + step {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_revert_is_before_or_after_it() {
    let mut steps = 0;
    for happens in [false, true] {
        for step in 0.. {
            let (world, old, new) = shared("rs:2+1", 4, step).await;
            world.cut.set(world.cut.calls() + step, happens);
            if let Some(reverted) = world.until_cut(world.volumes.revert(&name("v@s"))).await {
                reverted.expect("nobody has it");
                break;
            }
            steps += 1;
            let world = world.crash().await;
            let lost = lose_some(&world, "rs:2+1", 4, step);
            let what = format!("step {step}, happens: {happens}, then {lost:?} lost");
            let reverted = world.meta.volume("v").await.expect("there").log_from.0 > 0;
            let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&volume, if reverted { &old } else { &new }, &what).await;
            check(&world.open_snapshot("v@s").await, &old, &what).await;
            world.assert_sound().await;
        }
    }
    assert!(steps > 10, "only {steps} steps were cut");
}
