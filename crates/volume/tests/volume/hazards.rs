//! What goes wrong beside a merge, a read or an opening, in the order that hurts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use claystone_chunk::testing::pattern;
use claystone_chunk::{ByteRange, ChunkStore, DiskId};
use claystone_code::ChunkIndex;
use claystone_meta::{DiskState, StripeRecord};
use claystone_stripe::Hold;
use claystone_volume::{Blocks, BlocksError, Durable, MergeReport, Settings, Volume, joined};
use futures::FutureExt;
use futures::future::join_all;
use tokio::sync::oneshot::Receiver;

use crate::world::{World, check, moment, settings};

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

/// The first stripe of a volume, as it is recorded.
async fn first_stripe(world: &World, volume: &Volume) -> StripeRecord {
    world.meta.volume_stripes(volume.record().id, None, 1).await.expect("listed").remove(0).1
}

fn disk_of(stripe: &StripeRecord, chunk: usize) -> usize {
    stripe.places[chunk].expect("it has a place").disk.0 as usize
}

/// The disk of a chunk cannot read a sector any more.
fn lose_sector(world: &World, stripe: &StripeRecord, chunk: u16, sector: u64) {
    let id = stripe.chunk_id(ChunkIndex(chunk)).expect("it has a place");
    world.disks[disk_of(stripe, chunk.into())].lose_sector(id, sector);
}

/// A volume of one stripe with so many data chunks, all of it written, and what is in it.
async fn full_stripe(world: &World, code: &str, columns: u64) -> (Volume, Vec<u8>) {
    let volume = world.create("v", columns * CHUNK, code).await;
    let content = pattern(1, (columns * CHUNK) as usize);
    write(&volume, 0, content.clone()).await;
    volume.merge_all().await.expect("merged");
    (volume, content.to_vec())
}

/// Writes a page, and knows what is there then.
async fn write_page(volume: &Volume, model: &mut [u8], offset: u64, seed: u64) {
    write(volume, offset, page(seed)).await;
    model[offset as usize..(offset + PAGE) as usize].copy_from_slice(&page(seed));
}

/// A volume that has these pages, by where they are and their seeds, in its stripes.
async fn merged(world: &World, bytes: u64, pages: &[(u64, u64)]) -> Volume {
    let volume = world.create("v", bytes, "rs:2+1").await;
    for (offset, seed) in pages {
        write(&volume, *offset, page(*seed)).await;
    }
    volume.merge_all().await.expect("merged");
    volume
}

/// A merge that is about to write chunks: it waits until `traps.overwrites()` is opened.
async fn caught_merge(world: &World, volume: &Volume) -> Receiver<Result<MergeReport, BlocksError>> {
    world.traps.overwrites().set();
    let volume = volume.clone();
    let merge = world.beside(async move { volume.merge_all().await });
    world.traps.overwrites().caught().await;
    merge
}

/// Holds all stripes of a volume, so many.
async fn hold_all(world: &World, volume: &Volume, stripes: usize) -> Vec<Hold> {
    let found = world.meta.volume_stripes(volume.record().id, None, 1000).await.expect("listed");
    let holds: Vec<Hold> = found.iter().filter_map(|(_, stripe)| world.stripes.try_alone(stripe.id)).collect();
    assert_eq!(holds.len(), stripes);
    holds
}

/// Of both data chunks of a stripe the same sector is lost.
fn lose_row(world: &World, stripe: &StripeRecord, row: u64) {
    [0, 1].into_iter().for_each(|chunk| lose_sector(world, stripe, chunk, row));
}

#[tokio::test]
async fn a_page_that_a_merge_writes_stays_in_the_log_though_it_is_written_again() {
    let settings = Settings { segment_bytes: 5 * MIB, ..settings() };
    let world = World::with(4, settings, 1).await;
    let volume = merged(&world, 2 * MIB, &[(0, 1)]).await;
    // The page is all that is needed of its segment.
    write(&volume, 0, page(2)).await;
    for seed in 1..6 {
        write(&volume, MIB, pattern(seed, MIB as usize)).await;
    }
    volume.discard(ByteRange { offset: MIB, bytes: MIB }, Durable::Now).await.expect("it takes discards");
    let merge = caught_merge(&world, &volume).await;
    write(&volume, 0, page(3)).await;
    // While the merge writes, the log leaves a disk.
    let leaves = volume.status().log_disks[0];
    world.stores.update(leaves, |member| member.record.state = DiskState::Draining);
    world.until("the log without the disk", async || !volume.status().log_disks.contains(&leaves)).await;
    world.cut.now();
    drop((merge, volume));
    let world = world.crash().await;
    let volume = world.volumes.open("v").await.expect("what the merge was writing is there");
    assert_eq!(read(&volume, 0, PAGE).await, Ok(page(3)));
}

/// Before a merge has said what it is about to write, nothing but the diffs that it read keeps their segments, and those may
/// be written again: upkeep of the log waits for it.
#[tokio::test]
async fn a_log_that_leaves_a_disk_deletes_nothing_that_a_merge_has_read() {
    let settings = Settings { segment_bytes: 5 * MIB, ..settings() };
    let world = World::with(4, settings, 1).await;
    let volume = merged(&world, 2 * MIB, &[(0, 1)]).await;
    // The page is all that is needed of its segment.
    write(&volume, 0, page(2)).await;
    for seed in 1..6 {
        write(&volume, MIB, pattern(seed, MIB as usize)).await;
    }
    volume.discard(ByteRange { offset: MIB, bytes: MIB }, Durable::Now).await.expect("it takes discards");
    // It has read the page in the log, and not yet what the page was before.
    let reads = world.cut.hold_reads().await;
    world.traps.log_reads().set();
    world.traps.overwrites().set();
    let merging = volume.clone();
    let merge = world.beside(async move { merging.merge_all().await });
    world.traps.log_reads().caught().await;
    world.traps.log_reads().open();
    moment().await;
    write(&volume, 0, page(3)).await;
    let leaves = volume.status().log_disks[0];
    world.stores.update(leaves, |member| member.record.state = DiskState::Draining);
    // Whoever tends the log looks every second.
    world.env.clock.sleep(Duration::from_millis(1500)).await;
    drop(reads);
    world.traps.overwrites().caught().await;
    world.cut.now();
    drop((merge, volume));
    let world = world.crash().await;
    let volume = world.volumes.open("v").await.expect("what the merge was writing is there");
    assert_eq!(read(&volume, 0, PAGE).await, Ok(page(3)));
}

#[tokio::test]
async fn what_missed_a_merge_keeps_its_place_while_too_much_else_is_absent() {
    let world = World::with(6, settings(), 2).await;
    let volume = merged(&world, 2 * CHUNK, &[(0, 1), (CHUNK, 2)]).await;
    let stripe = first_stripe(&world, &volume).await;
    let (other, parity) = (disk_of(&stripe, 1), disk_of(&stripe, 2));
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
    let volume = merged(&world, 2 * CHUNK, &[(0, 1), (CHUNK, 2)]).await;
    let stripe = first_stripe(&world, &volume).await;
    let (other, parity) = (disk_of(&stripe, 1), disk_of(&stripe, 2));
    write(&volume, 0, page(3)).await;
    let merge = caught_merge(&world, &volume).await;
    // Both are gone while the merge writes, and nobody expects them back.
    world.cut.kill(parity, 0);
    for disk in [other, parity] {
        world.stores.update(DiskId(disk as u128), |member| member.record.state = DiskState::Lost);
    }
    world.traps.overwrites().open();
    merge.await.expect("it ends").expect("merged");
    assert_eq!(read(&volume, 0, PAGE).await, Ok(page(3)));
    assert!(matches!(read(&volume, CHUNK, PAGE).await, Err(BlocksError::Lost { .. })));
}

#[tokio::test]
async fn a_merge_that_panics_leaves_its_stripes_in_nobodys_hands() {
    let world = World::new(4).await;
    let volume = merged(&world, 2 * CHUNK, &[(0, 1)]).await;
    let stripe = first_stripe(&world, &volume).await;
    write(&volume, 0, page(2)).await;
    world.traps.panic_at_overwrites();
    volume.merge_all().await.expect_err("it panics");
    assert!(world.stripes.try_alone(stripe.id).is_none(), "nobody rebuilds it");
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
    let volume = merged(&world, 2 * CHUNK, &[(0, 1)]).await;
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

#[tokio::test]
async fn a_lost_sector_is_not_read_to_be_written_whole() {
    let world = World::new(7).await;
    let (volume, mut model) = full_stripe(&world, "rs:4+2", 4).await;
    let stripe = first_stripe(&world, &volume).await;
    // A page alone is mostly merged by way of its parity.
    [4, 5].into_iter().for_each(|parity| world.lose(disk_of(&stripe, parity)));
    lose_sector(&world, &stripe, 0, 3);
    write_page(&volume, &mut model, 3 * PAGE, 2).await;
    let report = volume.merge_all().await.expect("merged");
    assert_eq!((report.pages, report.stripes_lost), (1, 0));
    check(&volume, &model, "without parity").await;
}

#[tokio::test]
async fn rows_of_one_run_are_merged_one_by_one_where_each_has_lost_another_sector() {
    let world = World::new(4).await;
    let (volume, mut model) = full_stripe(&world, "rs:2+1", 2).await;
    let stripe = first_stripe(&world, &volume).await;
    lose_sector(&world, &stripe, 0, 3);
    lose_sector(&world, &stripe, 1, 4);
    for row in [3, 4] {
        write_page(&volume, &mut model, row * PAGE, 2 + row).await;
    }
    let report = volume.merge_all().await.expect("merged");
    assert_eq!((report.pages, report.stripes_lost), (2, 0));
    check(&volume, &model, "with what was lost decoded").await;
}

#[tokio::test]
async fn a_row_with_too_much_lost_holds_up_no_other_and_writes_over_whole_pages_bring_it_back() {
    let world = World::new(4).await;
    let (volume, mut model) = full_stripe(&world, "rs:2+1", 2).await;
    let stripe = first_stripe(&world, &volume).await;
    lose_row(&world, &stripe, 3);
    for row in [2, 3, 4] {
        write_page(&volume, &mut model, row * PAGE, 2 + row).await;
    }
    let report = volume.merge_once(u64::MAX).await.expect("merged");
    assert_eq!((report.pages, report.stripes_lost, volume.status().diff_pages), (2, 1, 1));
    assert_eq!(read(&volume, 0, CHUNK).await, Ok(Bytes::copy_from_slice(&model[..CHUNK as usize])));
    let lost = ByteRange { offset: CHUNK + 3 * PAGE, bytes: PAGE };
    assert_eq!(read(&volume, CHUNK, CHUNK).await, Err(BlocksError::Lost { range: lost }));
    write_page(&volume, &mut model, lost.offset, 9).await;
    volume.merge_all().await.expect("merged");
    assert_eq!(volume.status().diff_pages, 0);
    world.lose(disk_of(&stripe, 0));
    check(&volume, &model, "from the stripe, with a disk lost").await;
}

/// A reserve of four short segments.
fn tight() -> Settings {
    Settings { segment_bytes: 5 * MIB, reserve_bytes: 20 * MIB, timeout: Duration::from_secs(2), ..settings() }
}

/// Writes three times the reserve to all but the first stripe, and knows what is there then.
async fn write_much(volume: &Volume, model: &mut [u8]) {
    for number in 0..60 {
        let offset = MIB + number % 7 * MIB;
        let content = pattern(number, MIB as usize);
        volume.write(offset, content.clone(), Durable::WithFlush).await.expect("there is room");
        model[offset as usize..(offset + MIB) as usize].copy_from_slice(&content);
    }
}

#[tokio::test]
async fn a_page_that_cannot_be_merged_keeps_no_segment_of_the_log() {
    let world = World::with(4, tight(), 1).await;
    let volume = merged(&world, 8 * MIB, &[(0, 1)]).await;
    let mut model = vec![0; 8 << 20];
    lose_row(&world, &first_stripe(&world, &volume).await, 0);
    write_page(&volume, &mut model, 0, 2).await;
    // Zeros move on too.
    volume.discard(ByteRange { offset: 0, bytes: PAGE }, Durable::Now).await.expect("it takes discards");
    write_page(&volume, &mut model, 0, 3).await;
    write_much(&volume, &mut model).await;
    volume.merge_all().await.expect("merged");
    let status = volume.status();
    assert!(status.merged.pages_carried > 0 && status.log_bytes < 20 << 20, "{status:?}");
    volume.flush().await.expect("flushed");
    drop(volume);
    let world = world.crash().await;
    let volume = world.volumes.open("v").await.expect("it opens again");
    assert_eq!(read(&volume, 0, PAGE).await, Ok(page(3)));
    // What is lost is written.
    write_page(&volume, &mut model, CHUNK, 4).await;
    volume.merge_all().await.expect("merged");
    assert_eq!(volume.status().diff_pages, 0);
    check(&volume, &model, "in the stripes").await;
}

/// Where room is wanted only the older half of the log is merged; somebody has all the stripes with diffs there.
#[tokio::test]
async fn a_merge_that_finds_the_older_half_held_merges_the_newer_one() {
    // Nothing is merged by itself.
    let world = World::with(4, Settings { merge_from_percent: 100, reserve_bytes: 25 * MIB, ..tight() }, 2).await;
    let volume = world.create("v", MIB, "rs:2+1").await;
    write(&volume, 0, pattern(1, MIB as usize)).await;
    volume.merge_all().await.expect("merged");
    let stripe = first_stripe(&world, &volume).await;
    let hold = world.stripes.try_alone(stripe.id).expect("nobody has it");
    write(&volume, 0, page(2)).await;
    while volume.status().log_bytes < 18 * MIB {
        write(&volume, MIB / 2, pattern(5, MIB as usize / 2)).await;
    }
    let report = volume.merge_once(u64::MAX).await.expect("merged");
    assert_eq!((report.stripes_held, report.pages, volume.status().diff_pages), (1, MIB / 2 / PAGE, 1));
    drop(hold);
    assert_eq!(volume.merge_all().await.expect("merged").pages, 1);
}

#[tokio::test]
async fn openings_that_leave_a_page_each_do_not_leave_a_segment_each() {
    let mut world = World::with(4, tight(), 5).await;
    let (volume, mut model) = full_stripe(&world, "rs:2+1", 2).await;
    let stripe = first_stripe(&world, &volume).await;
    drop(volume);
    for row in 0..10 {
        lose_row(&world, &stripe, row);
        let volume = world.volumes.open("v").await.expect("it opens");
        write_page(&volume, &mut model, row * PAGE, 50 + row).await;
        drop(volume);
        world = world.crash().await;
    }
    let volume = world.volumes.open("v").await.expect("it opens");
    for _ in 0..20 {
        volume.merge_once(u64::MAX).await.expect("nothing fails");
    }
    for disk in &world.disks {
        let segments = disk.segments().segments(volume.record().id).await.expect("listed");
        assert!(segments.len() <= 4, "{segments:?}");
    }
    assert_eq!(volume.status().diff_pages, 10);
    assert_eq!(read(&volume, 0, CHUNK).await, Ok(Bytes::copy_from_slice(&model[..CHUNK as usize])));
}

#[tokio::test]
async fn what_is_carried_over_undoes_no_write() {
    let world = World::with(4, tight(), 2).await;
    let volume = world.create("v", MIB, "rs:2+1").await;
    let mut model = pattern(1, MIB as usize).to_vec();
    write(&volume, 0, model.clone().into()).await;
    volume.merge_all().await.expect("merged");
    let holds = hold_all(&world, &volume, 8).await;
    for (offset, seed) in [(0, 2), (PAGE, 3), (3 * PAGE, 4)] {
        write_page(&volume, &mut model, offset, seed).await;
    }
    volume.discard(ByteRange { offset: 2 * PAGE, bytes: PAGE }, Durable::Now).await.expect("it takes discards");
    model[2 * PAGE as usize..3 * PAGE as usize].fill(0);
    // Nothing is merged, so the log is read only to carry its oldest pages over.
    world.traps.log_reads().set();
    let traps = world.traps.clone();
    let mut caught = Box::pin(traps.log_reads().caught());
    let half = MIB / 2;
    for seed in 5.. {
        let content = pattern(seed, half as usize);
        write(&volume, half, content.clone()).await;
        model[half as usize..].copy_from_slice(&content);
        if caught.as_mut().now_or_never().is_some() {
            break;
        }
    }
    let writes = [0, 2 * PAGE].map(|offset| {
        let volume = volume.clone();
        world.beside(async move { write(&volume, offset, page(offset + 100)).await })
    });
    // Time enough to overtake what is read.
    world.env.clock.sleep(Duration::from_millis(100)).await;
    world.traps.log_reads().open();
    for (offset, written) in [0, 2 * PAGE].into_iter().zip(writes) {
        written.await.expect("it ends");
        model[offset as usize..(offset + PAGE) as usize].copy_from_slice(&page(offset + 100));
    }
    world.until("a page that was carried over", async || volume.status().merged.pages_carried > 0).await;
    check(&volume, &model, "after it").await;
    volume.flush().await.expect("flushed");
    drop((volume, holds));
    let world = world.crash().await;
    let volume = world.volumes.open("v").await.expect("it opens again");
    check(&volume, &model, "after a crash").await;
    volume.merge_all().await.expect("merged");
    check(&volume, &model, "in the stripes").await;
}

/// A writer goes away while his record waits behind upkeep of the log: the page is his until it is in effect, and what is carried over then
/// does not undo it.
#[tokio::test]
async fn what_is_carried_over_undoes_no_write_of_who_went_away() {
    // Nothing is merged by itself.
    let world = World::with(4, Settings { merge_from_percent: 100, reserve_bytes: 25 * MIB, ..tight() }, 2).await;
    let volume = world.create("v", MIB, "rs:2+1").await;
    write(&volume, 0, pattern(1, MIB as usize)).await;
    volume.merge_all().await.expect("merged");
    let holds = hold_all(&world, &volume, 8).await;
    let fill = async |log_bytes| {
        while volume.status().log_bytes < log_bytes {
            write(&volume, MIB / 2, pattern(5, MIB as usize / 2)).await;
        }
    };
    // The first segment is over then, the second is needed for two pages, and the fifth has just begun.
    fill(6 * MIB).await;
    write(&volume, 0, page(2)).await;
    write(&volume, PAGE, page(3)).await;
    fill(18 * MIB + MIB / 4).await;
    assert!(volume.status().used_percent < 80, "writers hardly wait");

    world.traps.syncs().set();
    let merging = volume.clone();
    let merge = world.beside(async move { merging.merge_once(u64::MAX).await });
    world.traps.syncs().caught().await;
    (0..4).for_each(|disk| world.traps.hold_append(disk, 0));
    let mut written = volume.write(0, page(4), Durable::WithFlush);
    assert!(written.as_mut().now_or_never().is_none(), "its record is handed over");
    drop(written);
    world.traps.syncs().open();
    world.traps.appends().caught().await;
    moment().await;
    world.traps.appends().open();
    let report = merge.await.expect("it ends").expect("in vain");
    assert_eq!(report.pages_carried, 0, "the two go together, and one was somebody's");
    let report = volume.merge_once(u64::MAX).await.expect("carried over");
    assert_eq!(report.pages_carried, 1, "the other page");
    assert_eq!(read(&volume, 0, 2 * PAGE).await, Ok([page(4), page(3)].concat().into()));
    drop(holds);
}

#[tokio::test]
async fn a_full_log_takes_what_may_bring_help() {
    let world = World::with(3, tight(), 3).await;
    let volume = world.create("v", 64 * MIB, "rs:2+1").await;
    [0, 1].into_iter().for_each(|disk| world.lose(disk));
    let content = pattern(7, MIB as usize);
    let mut written = 0;
    while volume.write(written, content.clone(), Durable::WithFlush).await.is_ok() {
        written += MIB;
    }
    let refused = volume.write(written, content.clone(), Durable::WithFlush).await;
    assert!(matches!(refused, Err(BlocksError::NoSpace { .. })), "{refused:?}");
    // Pages that have diffs, and zeros, as far as the log goes; what was written over may be left out of it meanwhile.
    let other = pattern(8, MIB as usize);
    write(&volume, 0, other.clone()).await;
    volume.discard(ByteRange { offset: MIB, bytes: MIB }, Durable::Now).await.expect("it takes discards");
    let mut taken = 0;
    while taken < 30 && volume.write(2 * MIB, other.clone(), Durable::WithFlush).await.is_ok() {
        taken += 1;
        let log_bytes = volume.status().log_bytes;
        assert!(log_bytes <= 26 * MIB, "{log_bytes} bytes after {taken} writes");
    }
    assert!(taken > 0);
    assert_eq!(read(&volume, 0, MIB).await, Ok(other));
    assert_eq!(read(&volume, MIB, MIB).await, Ok(vec![0; 1 << 20].into()));
    [0, 1].into_iter().for_each(|disk| world.find(disk));
    volume.merge_all().await.expect("merged");
    write(&volume, written, content).await;
}

#[tokio::test]
async fn writers_do_not_wait_for_ever_for_stripes_that_somebody_holds() {
    let world = World::with(4, tight(), 4).await;
    let volume = world.create("v", 32 * MIB, "rs:2+1").await;
    let content = pattern(1, MIB as usize);
    for at in 0..32 {
        volume.write(at * MIB, content.clone(), Durable::WithFlush).await.expect("there is room");
    }
    volume.merge_all().await.expect("merged");
    let holds = hold_all(&world, &volume, 256).await;
    let mut at = 0;
    let refused = loop {
        match volume.write(at * MIB, content.clone(), Durable::WithFlush).await {
            Ok(()) => at += 1,
            Err(error) => break error,
        }
        assert!(at < 32, "it is more than the reserve");
    };
    assert!(matches!(refused, BlocksError::NoSpace { .. }), "{refused}");
    drop(holds);
    volume.merge_all().await.expect("merged");
    write(&volume, 0, content).await;
}

/// Merging in the background had its turn when somebody else had merged all there was: that is no reason to refuse writers.
#[tokio::test]
async fn writers_wait_for_a_snapshot_though_the_last_round_found_nothing_to_merge() {
    let world = World::with(4, tight(), 5).await;
    let volume = world.create("v", 32 * MIB, "rs:2+1").await;
    let fill = async |volume: Volume| {
        for at in 0..32 {
            volume.write(at * MIB, pattern(at, MIB as usize), Durable::WithFlush).await?;
        }
        Ok::<(), BlocksError>(())
    };
    fill(volume.clone()).await.expect("there is room");
    // With so much in use the background does not rest: its next round is behind this one.
    for at in (0..32).cycle() {
        if volume.status().used_percent > 80 {
            break;
        }
        volume.write(at * MIB, pattern(at, MIB as usize), Durable::WithFlush).await.expect("there is room");
    }
    volume.merge_all().await.expect("merged");
    write(&volume, 0, page(1)).await;
    world.traps.overwrites().set();
    let volumes = world.volumes.clone();
    let taken = world.beside(async move { volumes.take_snapshot(&"v@s".parse().expect("a name")).await });
    world.traps.overwrites().caught().await;
    let written = world.beside(fill(volume.clone()));
    world.until("a full log", async || volume.status().used_percent >= 100).await;
    world.env.clock.sleep(Duration::from_secs(1)).await;
    world.traps.overwrites().open();
    taken.await.expect("it ends").expect("taken");
    written.await.expect("it ends").expect("it waits for room");
}

/// On several threads: what takes effect in a segment that has just ended, while the log is trimmed, is needed.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn what_is_written_while_the_log_is_trimmed_stays() {
    let settings = Settings { segment_bytes: 5 << 20, ..settings() };
    let world = World::with(4, settings, 7).await;
    let volume = world.create("v", MIB, "rs:2+1").await;
    let (is_over, merged) = (Arc::new(AtomicBool::new(false)), volume.clone());
    let merging = world.beside({
        let is_over = is_over.clone();
        async move {
            while !is_over.load(Ordering::SeqCst) {
                merged.merge_once(u64::MAX).await.expect("merged");
            }
        }
    });
    for round in 0..400 {
        // All is merged by now, mostly; then several records come at once, of which one begins another segment.
        world.env.clock.sleep(Duration::from_millis(1)).await;
        let content = |part: u64| pattern(4 * round + part, (MIB / 4) as usize);
        join_all((0..4).map(|part| write(&volume, part * (MIB / 4), content(part)))).await;
        for part in 0..4 {
            let found = read(&volume, part * (MIB / 4), MIB / 4).await.expect("read");
            assert!(found == content(part), "round {round}, part {part}");
        }
    }
    is_over.store(true, Ordering::SeqCst);
    merging.await.expect("it ends");
}
