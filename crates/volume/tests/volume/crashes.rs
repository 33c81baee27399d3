//! Every step of a merge, and of an opening, is the last one of a process once, and what follows finds each page as it
//! was flushed: with all disks, and with any that the code tolerates to lose.

use std::cell::Cell;

use claystone_chunk::ByteRange;
use claystone_volume::{Blocks, Durable};
use futures::future::join;

use crate::world::{World, check, scribble, settings};

/// Disks that are lost after the crash, all sets that a code tolerates.
fn losses(disks: usize, tolerance: usize) -> Vec<Vec<usize>> {
    let mut sets = vec![vec![]];
    for first in 0..disks {
        sets.push(vec![first]);
        if tolerance > 1 {
            sets.extend((first + 1..disks).map(|second| vec![first, second]));
        }
    }
    sets
}

/// A volume with stripes, and flushed diffs on some of them, of which one is zeros, and on some that have no stripe yet.
async fn prepared(code: &str, disks: u128, seed: u64) -> (World, Vec<u8>) {
    let world = World::with(disks, settings(), seed).await;
    let volume = world.create("v", 512 << 10, code).await;
    let mut model = vec![0; 512 << 10];
    scribble(&volume, &mut model[..200 << 10], 1, 5).await;
    volume.merge_all().await.expect("merged");
    scribble(&volume, &mut model, 2, 5).await;
    // A page of a stripe becomes zeros.
    let page = (0..50).map(|page| (page + seed) % 50 * 4096).find(|at| model[*at as usize] != 0);
    let range = ByteRange { offset: page.expect("something was written"), bytes: 4096 };
    model[range.offset as usize..][..4096].fill(0);
    volume.discard(range, Durable::WithFlush).await.expect("discarded");
    volume.flush().await.expect("flushed");
    (world, model)
}

/// Merges until the cut; whether it came.
async fn merge_until_cut(world: &World) -> bool {
    let volume = world.volumes.open("v").await.expect("it is open");
    match world.until_cut(volume.merge_all()).await {
        None => true,
        Some(merged) => {
            merged.expect("merged");
            false
        }
    }
}

/// Cuts the opening of a volume off at every step, each time on what `crashed` gives for it, and then loses a disk: the next
/// opening finds everything.
pub async fn every_opening(crashed: impl AsyncFn(u64) -> (World, Vec<u8>), lost: impl Fn(u64) -> Option<usize>) {
    let mut steps = 0;
    for happens in [false, true] {
        for step in 0.. {
            let (world, model) = crashed(step).await;
            world.cut.set(step, happens);
            if world.until_cut(world.volumes.open("v")).await.is_some_and(|opened| opened.is_ok()) {
                break;
            }
            steps += 1;
            let world = world.crash().await;
            let lost = lost(step);
            lost.into_iter().for_each(|disk| world.lose(disk));
            let what = format!("step {step} of the opening, happens: {happens}, then {lost:?} lost");
            let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
            check(&volume, &model, &what).await;
        }
    }
    assert!(steps > 20, "only {steps} steps were cut");
}

async fn every_step(code: &str, disks: u128, tolerance: usize) {
    let mut steps = 0;
    for lost in losses(disks as usize, tolerance) {
        for happens in [false, true] {
            for step in 0.. {
                let (world, model) = prepared(code, disks, step).await;
                world.cut.set(world.cut.calls() + step, happens);
                if !merge_until_cut(&world).await {
                    break;
                }
                steps += 1;
                let world = world.crash().await;
                lost.iter().for_each(|disk| world.lose(*disk));
                let what = format!("{code}: step {step}, happens: {happens}, then {lost:?} lost");
                let volume = world.volumes.open("v").await.unwrap_or_else(|error| panic!("{what}: {error}"));
                check(&volume, &model, &what).await;
                volume.merge_all().await.unwrap_or_else(|error| panic!("{what}: {error}"));
                check(&volume, &model, &what).await;
            }
        }
    }
    assert!(steps > 40 * losses(disks as usize, tolerance).len(), "only {steps} steps were cut");
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_merge_ends_in_the_page_that_was_flushed_rs_2_1() {
    every_step("rs:2+1", 4, 1).await;
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_merge_ends_in_the_page_that_was_flushed_rs_4_2() {
    every_step("rs:4+2", 6, 2).await;
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_merge_ends_in_the_page_that_was_flushed_replica() {
    every_step("replica:2", 3, 1).await;
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_merge_ends_in_the_page_that_was_flushed_mirror() {
    every_step("mirror:3x3", 4, 2).await;
}

#[tokio::test]
async fn a_crash_at_any_step_of_a_merge_ends_in_the_page_that_was_flushed_hybrid() {
    every_step("hybrid:rsm:2+1x2", 5, 2).await;
}

/// A crash in a merge, then a crash at any step of the opening that mends it.
#[tokio::test]
async fn a_crash_at_any_step_of_an_opening_is_mended_by_the_next() {
    // Near the beginning of the merge, in its middle, and later.
    for cut in [5, 14, 23] {
        let half_merged = async |step| {
            let (world, model) = prepared("rs:2+1", 4, step).await;
            world.cut.set(world.cut.calls() + cut, true);
            assert!(merge_until_cut(&world).await, "the merge has more steps");
            (world.crash().await, model)
        };
        every_opening(half_merged, |step| (step % 5).checked_sub(1).map(|disk| disk as usize)).await;
    }
}

/// A disk dies at any step of a merge, and the process lives on; whoever reads meanwhile finds every page as it was flushed.
#[tokio::test]
async fn a_disk_that_dies_at_any_step_of_a_merge_takes_nothing_with_it() {
    let mut reads_beside = 0;
    for disk in 0..6 {
        for step in 0.. {
            let (world, mut model) = prepared("rs:4+2", 6, step).await;
            let volume = world.volumes.open("v").await.expect("it is open");
            let calls = world.cut.calls();
            world.cut.kill_reads_too(disk, calls + step);
            let what = format!("disk {disk} dies at step {step}");
            let is_merged = Cell::new(false);
            let merging = async {
                volume.merge_all().await.expect("merged");
                is_merged.set(true);
            };
            let reading = async {
                let mut times = 0;
                while !is_merged.get() {
                    let before = world.cut.calls();
                    check(&volume, &model, &format!("{what}, beside the merge")).await;
                    times += usize::from(world.cut.calls() > before && world.cut.calls() > calls + step);
                }
                times
            };
            reads_beside += join(merging, reading).await.1;
            check(&volume, &model, &what).await;
            if world.cut.calls() < calls + step {
                break;
            }
            scribble(&volume, &mut model, 3, 3).await;
            volume.flush().await.expect("flushed");
            check(&volume, &model, &what).await;
        }
    }
    assert!(reads_beside > 100, "only {reads_beside} times all was read over changes of a merge without a disk");
}
