//! Volumes as block devices: the contract, with merges and openings between its calls, and losses of disks.

use std::sync::Arc;

use crate::world::{World, check, scribble, settings};
use async_trait::async_trait;
use bytes::Bytes;
use claystone_chunk::ByteRange;
use claystone_chunk::testing::pattern;
use claystone_code::ChunkIndex;
use claystone_volume::testing::blocks;
use claystone_volume::{
    Access, Blocks, BlocksError, Durable, MergeReport, NewVolume, RESERVE_BYTES_MAX, Settings, Space, Span, SpanKind,
    Stretch, Volume, Zeroing,
};

const MIB: u64 = 1 << 20;

#[tokio::test]
async fn a_volume_is_a_block_device() {
    for code in ["replica:2", "rs:2+1", "rs:4+2"] {
        blocks(|| async move {
            let world = World::new(6).await;
            Arc::new(world.create("v", MIB, code).await) as Arc<dyn Blocks>
        })
        .await;
    }
}

/// A volume that merges all it has after every change.
#[derive(Debug)]
struct Merging(Volume);

impl Merging {
    async fn merged<T>(&self, result: Result<T, BlocksError>) -> Result<T, BlocksError> {
        self.0.merge_all().await.expect("nothing is lost");
        result
    }
}

#[async_trait]
impl Blocks for Merging {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn page_bytes(&self) -> u32 {
        self.0.page_bytes()
    }

    fn access(&self) -> Access {
        self.0.access()
    }

    async fn read(&self, range: ByteRange) -> Result<Vec<Stretch>, BlocksError> {
        self.0.read(range).await
    }

    async fn write(&self, offset: u64, content: Bytes, durable: Durable) -> Result<(), BlocksError> {
        self.merged(self.0.write(offset, content, durable).await).await
    }

    async fn write_zeroes(&self, range: ByteRange, how: Zeroing) -> Result<(), BlocksError> {
        self.0.write_zeroes(range, how).await
    }

    async fn flush(&self) -> Result<(), BlocksError> {
        self.merged(self.0.flush().await).await
    }

    async fn spans(&self, range: ByteRange, spans_max: usize) -> Result<Vec<Span>, BlocksError> {
        self.0.spans(range, spans_max).await
    }
}

#[tokio::test]
async fn merges_between_the_calls_change_nothing() {
    for (code, page_bytes) in [("rs:4+2", 4096), ("rs:2+1", 1024), ("replica:2", 8192), ("rs:3+2", 2048)] {
        blocks(|| async move {
            let world = World::new(6).await;
            let code = code.parse().expect("a valid code");
            let new = NewVolume { chunk_bytes: 64 << 10, page_bytes, ..NewVolume::new("v", MIB, code) };
            world.volumes.create(new).await.expect("a new volume");
            Arc::new(Merging(world.volumes.open("v").await.expect("it opens"))) as Arc<dyn Blocks>
        })
        .await;
    }
}

#[tokio::test]
async fn zeros_that_keep_their_space_are_in_stripes() {
    let world = World::new(4).await;
    let volume = world.create("v", MIB, "rs:2+1").await;
    let all = ByteRange { offset: 0, bytes: MIB };
    let kept = Zeroing { space: Space::Keep, ..Zeroing::default() };
    let data = Ok(vec![Span { bytes: MIB, kind: SpanKind::Data }]);
    volume.write_zeroes(all, kept).await.expect("it takes zeros");
    assert_eq!(volume.merge_all().await.expect("merged").stripes_begun, 8);
    assert_eq!((volume.spans(all, 10).await, volume.status().stripes), (data.clone(), 8));
    // Over what is in stripes too: none of them is given back.
    volume.write(0, pattern(1, 1 << 20), Durable::WithFlush).await.expect("written");
    volume.merge_all().await.expect("merged");
    volume.write_zeroes(all, kept).await.expect("it takes zeros");
    assert_eq!(volume.merge_all().await.expect("merged").stripes_dropped, 0);
    assert_eq!((volume.spans(all, 10).await, volume.status().stripes), (data, 8));
    check(&volume, &vec![0; 1 << 20], "zeros").await;
    volume.write_zeroes(all, Zeroing::default()).await.expect("it takes zeros");
    assert_eq!(volume.merge_all().await.expect("merged").stripes_dropped, 8);
}

#[tokio::test]
async fn zeros_are_fast_where_they_are_whole_pages_and_leave_holes() {
    let world = World::new(4).await;
    let volume = world.create("v", MIB, "rs:2+1").await;
    let model = pattern(1, 1 << 20);
    volume.write(0, model.clone(), Durable::WithFlush).await.expect("written");
    let before = volume.status();
    let fast = Zeroing { only_fast: true, ..Zeroing::default() };
    for (offset, bytes, space) in [
        (0, 4096, Space::Keep),
        (4096, 4095, Space::Return),
        (1, MIB - 1, Space::Return),
        (4000, 200, Space::Return),
        (100, 100, Space::Return),
    ] {
        let range = ByteRange { offset, bytes };
        let refused = volume.write_zeroes(range, Zeroing { space, ..fast }).await;
        assert_eq!(refused, Err(BlocksError::Slow { range }));
    }
    assert_eq!(volume.status(), before, "nothing was changed");
    check(&volume, &model, "refused").await;
    volume.write_zeroes(ByteRange { offset: 0, bytes: MIB }, fast).await.expect("it is fast");
    assert!(volume.status().log_bytes - before.log_bytes < 4096, "no zero was written");
    check(&volume, &vec![0; 1 << 20], "zeros").await;
}

#[tokio::test]
async fn every_loss_that_the_code_tolerates_is_survived_with_and_without_diffs() {
    for (code, lost) in [("rs:4+2", vec![0, 3]), ("rs:4+2", vec![1, 5]), ("rs:2+1", vec![2]), ("replica:3", vec![4, 0])]
    {
        let world = World::new(6).await;
        let volume = world.create("v", 2 * MIB, code).await;
        let mut model = vec![0; 2 << 20];
        scribble(&volume, &mut model, 1, 60).await;
        volume.merge_all().await.expect("merged");
        scribble(&volume, &mut model, 2, 30).await;
        check(&volume, &model, code).await;
        for disk in &lost {
            world.lose(*disk);
        }
        check(&volume, &model, code).await;
        // Writes and merges go on with fewer disks.
        scribble(&volume, &mut model, 3, 60).await;
        check(&volume, &model, code).await;
        volume.merge_all().await.expect("merged");
        check(&volume, &model, code).await;
        let left = volume.merge_all().await.expect("merged");
        assert_eq!(left, MergeReport::default(), "{code}: nothing waits for the disks that are lost");
    }
}

/// What was never written, discarded before, or copied for a snapshot counts as well.
#[tokio::test]
async fn a_stripe_that_is_discarded_bit_by_bit_is_given_back() {
    let world = World::new(6).await;
    let volume = world.create("v", MIB, "rs:2+1").await;
    let stripes = |volume: &Volume| (volume.status().stripes, volume.status().merged.stripes_dropped);
    let discard = async |volume: &Volume, pages: std::ops::Range<u64>| {
        let range = ByteRange { offset: pages.start * 4096, bytes: (pages.end - pages.start) * 4096 };
        volume.discard(range, Durable::WithFlush).await.expect("discarded");
        volume.merge_all().await.expect("merged");
    };
    let pages = volume.status().stripe_bytes / 4096;
    volume.write(4096, pattern(1, 5 * 4096), Durable::WithFlush).await.expect("written");
    volume.merge_all().await.expect("merged");
    discard(&volume, 0..3).await;
    volume.write(2 * 4096, pattern(2, 4096), Durable::WithFlush).await.expect("written");
    volume.merge_all().await.expect("merged");
    discard(&volume, 3..6).await;
    assert_eq!(stripes(&volume), (1, 0), "one page has content");
    let model = [vec![0; 2 * 4096], pattern(2, 4096).to_vec(), vec![0; MIB as usize - 3 * 4096]].concat();
    check(&volume, &model, "of one page").await;
    discard(&volume, 2..3).await;
    assert_eq!(stripes(&volume), (0, 1));
    check(&volume, &vec![0; MIB as usize], "given back").await;

    // Its copy, when a snapshot has it.
    let content = pattern(3, pages as usize * 4096);
    volume.write(0, content.clone(), Durable::WithFlush).await.expect("written");
    world.snapshot("v@s").await.expect("taken");
    discard(&volume, 0..pages / 2).await;
    assert_eq!(volume.status().merged.stripes_copied, 1);
    discard(&volume, pages / 2..pages).await;
    assert_eq!(stripes(&volume), (0, 2));
    let mut model = content.to_vec();
    model.resize(MIB as usize, 0);
    check(&world.open_snapshot("v@s").await, &model, "the snapshot").await;
    check(&volume, &vec![0; MIB as usize], "given back again").await;
}

/// What was discarded before a restart is found by reading it, once half of the stripe goes.
#[tokio::test]
async fn a_stripe_that_is_discarded_over_a_restart_is_given_back() {
    // All of it, or all but a page that is found when it is read.
    for stays in [false, true] {
        let world = World::new(6).await;
        let volume = world.create("v", MIB, "rs:2+1").await;
        let pages = volume.status().stripe_bytes / 4096;
        let discard = async |volume: &Volume, pages: std::ops::Range<u64>| {
            let range = ByteRange { offset: pages.start * 4096, bytes: (pages.end - pages.start) * 4096 };
            volume.discard(range, Durable::WithFlush).await.expect("discarded");
            volume.merge_all().await.expect("merged")
        };
        let content = pattern(1, pages as usize * 4096);
        volume.write(0, content.clone(), Durable::WithFlush).await.expect("written");
        volume.merge_all().await.expect("merged");
        let half = pages / 2;
        discard(&volume, u64::from(stays)..half).await;
        volume.flush().await.expect("flushed");
        drop(volume);
        let world = world.crash().await;
        let volume = world.volumes.open("v").await.expect("it opens");
        let merged = discard(&volume, half..pages).await;
        assert_eq!((merged.stripes_dropped, volume.status().stripes), (u64::from(!stays), u64::from(stays)));
        let mut model = vec![0; MIB as usize];
        if stays {
            model[..4096].copy_from_slice(&content[..4096]);
        }
        check(&volume, &model, "discarded").await;
        // It is known now: the rest is enough.
        if stays {
            assert_eq!(discard(&volume, 0..1).await.stripes_dropped, 1);
            check(&volume, &vec![0; MIB as usize], "given back").await;
        }
        world.assert_sound().await;
    }
}

#[tokio::test]
async fn a_read_that_waits_while_its_stripe_is_given_back_finds_zeros() {
    for is_forgotten in [false, true] {
        let world = World::new(6).await;
        let volume = world.create("v", MIB, "rs:2+1").await;
        volume.write(0, pattern(1, 4096), Durable::WithFlush).await.expect("written");
        volume.merge_all().await.expect("merged");
        let held = world.cut.hold_reads().await;
        let mut read = volume.read(ByteRange { offset: 0, bytes: 4096 });
        assert!(futures::poll!(&mut read).is_pending());
        volume.discard(ByteRange { offset: 0, bytes: MIB }, Durable::WithFlush).await.expect("discarded");
        assert_eq!(volume.merge_all().await.expect("merged").stripes_dropped, 1);
        for dead in world.meta.dead_stripes(10).await.expect("records") {
            for (index, place) in (0..).map(ChunkIndex).zip(&dead.places) {
                let disk = place.expect("it was written").disk;
                let chunk = dead.chunk_id(index).expect("it was written");
                world.stores.readable(disk).expect("present").delete(chunk).await.expect("deleted");
            }
            if is_forgotten {
                world.meta.forget(&[dead.id]).await.expect("forgotten");
            }
        }
        drop(held);
        let found = claystone_volume::joined(read.await.expect("nothing is lost"));
        assert!(found[..] == [0; 4096]);
    }
}

#[tokio::test]
async fn a_volume_is_after_a_crash_what_was_flushed() {
    let mut world = World::new(6).await;
    let mut model = vec![0; 2 << 20];
    let mut volume = world.create("v", 2 * MIB, "rs:4+2").await;
    for round in 0..8 {
        scribble(&volume, &mut model, 10 + round, 20).await;
        if round % 3 == 1 {
            volume.merge_once(40).await.expect("merged");
        }
        volume.flush().await.expect("flushed");
        world = world.crash().await;
        volume = world.volumes.open("v").await.expect("it opens again");
        check(&volume, &model, "after a crash").await;
    }
    volume.merge_all().await.expect("merged");
    check(&volume, &model, "after a crash").await;
}

#[tokio::test]
async fn a_volume_without_room_to_merge_says_so_and_loses_nothing() {
    let settings = Settings { reserve_bytes: 16 << 20, segment_bytes: 8 << 20, ..Settings::default() };
    let world = World::with(3, settings, 1).await;
    let volume = world.create("v", 64 * MIB, "rs:2+1").await;
    // With one disk of three nothing can be coded.
    world.lose(0);
    world.lose(1);
    let content = pattern(7, MIB as usize);
    let mut written = 0;
    let refused = loop {
        match volume.write(written, content.clone(), Durable::WithFlush).await {
            Ok(()) => written += MIB,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, BlocksError::NoSpace { .. }), "{refused}");
    assert!(written >= 8 * MIB, "only {written} bytes fitted");
    for at in (0..written).step_by(MIB as usize) {
        let read = volume.read(ByteRange { offset: at, bytes: MIB }).await.expect("readable");
        assert!(claystone_volume::joined(read)[..] == content[..]);
    }
}

/// Four percent coded instead of mirrored make up for two percent of log.
#[tokio::test]
async fn a_long_volume_has_as_long_a_log_as_coding_makes_up_for() {
    const GIB: u64 = 1 << 30;
    let settings = Settings { reserve_percent: 4, is_reserve_capped: true, ..Settings::default() };
    let world = World::with(6, settings, 1).await;
    for (name, bytes, redundancy, wanted) in [
        // Two segments, and no more of them than it is long.
        ("shortest", 64 * MIB, "rs:4+2", 128 * MIB),
        ("shorter", 300 * MIB, "rs:4+2", 256 * MIB),
        ("of_two", 300 * MIB, "replica:3/rs:4+2", 256 * MIB),
        ("short", 10 * GIB, "replica:3/rs:4+2", GIB),
        ("long", 100 * GIB, "replica:3/rs:4+2", 2 * GIB),
        ("longest", 1 << 40, "replica:3/rs:4+2", RESERVE_BYTES_MAX),
        ("coded", 100 * GIB, "rs:4+2", 2 * GIB),
        ("copies", 100 * GIB, "replica:3", GIB),
    ] {
        let volume = world.create(name, bytes, redundancy).await;
        assert_eq!(volume.status().reserve_bytes, wanted, "{name}");
    }
    // The bound is of the log as it is: three copies of 2 GiB.
    for (space, is_kept) in [("<=155%", false), ("<=156%", true)] {
        let redundancy = format!("replica:3/rs:4+2{space}").parse().expect("a redundancy");
        let made = world.volumes.create(NewVolume::new(&format!("bound{is_kept}"), 100 * GIB, redundancy)).await;
        assert_eq!(made.is_ok(), is_kept, "{space}: {made:?}");
    }
}

#[tokio::test]
async fn of_two_who_open_a_volume_the_first_is_refused_from_then_on() {
    let world = World::new(4).await;
    let first = world.create("v", MIB, "rs:2+1").await;
    let (before, after) = (pattern(1, 4096), pattern(2, 4096));
    first.write(0, before.clone(), Durable::Now).await.expect("written");
    let second = world.another_process();
    let volume = second.volumes.open("v").await.expect("it opens");
    for call in ["write", "flush", "again"] {
        let refused = match call {
            "write" => first.write(0, after.clone(), Durable::Now).await,
            _ => first.flush().await,
        };
        assert!(matches!(refused, Err(BlocksError::Failed { .. })), "{call}: {refused:?}");
    }
    assert!(first.merge_all().await.is_err());
    // It does not call a hole what the other writes either.
    volume.write(MIB / 2, after.clone(), Durable::Now).await.expect("written");
    let rest = ByteRange { offset: MIB / 2, bytes: 4096 };
    let spans = first.spans(rest, 1).await;
    assert!(matches!(spans, Err(BlocksError::Failed { .. })), "{spans:?}");
    let discarded = first.discard(rest, Durable::Now).await;
    assert!(matches!(discarded, Err(BlocksError::Failed { .. })), "{discarded:?}");
    volume.write(4096, after.clone(), Durable::Now).await.expect("written");
    let read = volume.read(ByteRange { offset: 0, bytes: 8192 }).await.expect("readable");
    assert!(claystone_volume::joined(read)[..] == [before, after].concat()[..]);
}

/// Parity that a merge will write into the log takes room of the reserve, where there is a stripe to be patched.
#[tokio::test]
async fn pages_whose_stripe_is_not_there_yet_take_their_own_room_only() {
    // Nothing is merged by itself.
    let settings =
        Settings { reserve_bytes: 100 * MIB, segment_bytes: 25 * MIB, merge_from_percent: 100, ..settings() };
    let world = World::with(6, settings, 1).await;
    let volume = world.create("v", 10 * MIB, "rs:4+2").await;
    let fill = async |volume: &Volume, seed: u64| {
        let before = volume.status().log_bytes;
        for at in 0..10 {
            volume.write(at * MIB, pattern(seed + at, MIB as usize), Durable::WithFlush).await.expect("there is room");
        }
        // In MiB, of which a percent is one.
        let status = volume.status();
        ((status.used_percent as f64 - before as f64 / MIB as f64).round() as u64, status.stripes)
    };
    assert_eq!(fill(&volume, 10).await, (10, 0));
    volume.merge_all().await.expect("merged");
    assert_eq!(fill(&volume, 20).await, (30, 40), "two parities");
    // It is known to who opens it again too.
    volume.flush().await.expect("flushed");
    drop(volume);
    let world = world.crash().await;
    let volume = world.volumes.open("v").await.expect("it opens again");
    let status = volume.status();
    assert_eq!(status.used_percent, status.log_bytes / MIB + 20, "{status:?}");
    // A copy takes the place of a stripe that a snapshot has too, and no parity of it is logged.
    world.snapshot("v@s").await.expect("taken");
    assert_eq!(fill(&volume, 30).await, (10, 40));
    assert_eq!(volume.merge_all().await.expect("merged").stripes_copied, 40);
    assert_eq!(fill(&volume, 40).await, (30, 40));
    volume.discard(ByteRange { offset: 0, bytes: 10 * MIB }, Durable::Now).await.expect("discarded");
    assert_eq!(volume.merge_all().await.expect("merged").stripes_dropped, 40);
    assert_eq!(fill(&volume, 50).await, (10, 0));
}
