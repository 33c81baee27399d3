//! Volumes: seeds that run on each change, and that a seed replays its run.

use std::time::Duration;

use bytes::Bytes;
use claystone_code::{ChunkIndex, ChunkSet};
use claystone_drill::{Cluster, Step, StepFault, Takeover, Work, run_step, run_takeover, run_volume_seed};
use claystone_volume::{Blocks, Durable, Form, NewVolume};

#[test]
fn volumes_keep_what_was_flushed_under_faults_and_crashes() {
    let mut events = 0;
    for seed in 1..=40 {
        let report = run_volume_seed(seed).unwrap_or_else(|error| panic!("{error:?}"));
        events += report.faults + report.crashes;
    }
    // Losses, damage and kills.
    assert!(events >= 150, "only {events} faults and crashes");
}

/// A fence that was damaged on one disk was not written again, so that its chunks missed every merge after.
#[test]
fn a_damaged_fence_is_written_again() {
    run_volume_seed(9122).unwrap_or_else(|error| panic!("{error:?}"));
}

/// Each opening begins a segment, and what is in the log was not enough to be merged before the next kill.
#[test]
fn a_store_that_keeps_dying_does_not_fill_its_disks_with_logs() {
    let run = claystone_sim::run(1, |world| async move {
        let mut cluster = Cluster::new(world.clone(), 4).await?;
        let code = "rs:2+1".parse().expect("a valid code");
        let new = NewVolume { chunk_bytes: 64 << 10, ..NewVolume::new("v", 1 << 20, code) };
        cluster.running.volumes.create(new).await?;
        let (mut most, mut most_spares, mut last_spare) = (0, 0, 0);
        for page in 0..30 {
            let volume = cluster.running.volumes.open("v").await?;
            volume.write(page * 4096, Bytes::from(vec![1; 4096]), Durable::Now).await?;
            world.clock().sleep(Duration::from_secs(3)).await;
            drop(volume);
            cluster.crash().await?;
            let files = cluster.slots.iter().flat_map(|slot| slot.sim.files());
            let files: Vec<String> = files.filter(|path| path.starts_with("segments/")).collect();
            let spares: Vec<_> = files.iter().filter_map(|path| path.strip_prefix("segments/spare.")).collect();
            let numbers = spares.iter().map(|rest| rest.trim_end_matches(".new").parse().expect("a number"));
            last_spare = numbers.fold(last_spare, u64::max);
            most_spares = most_spares.max(spares.len());
            most = most.max(files.iter().filter(|path| !path.contains("fence")).count() - spares.len());
        }
        anyhow::Ok((most, most_spares, last_spare))
    });
    let (most, most_spares, last_spare) = run.expect("it runs");
    // One disk makes them, two ahead, and more than it has: the others have become segments.
    assert!((2..=4).contains(&most_spares), "{most_spares} spares");
    assert!((5..=60).contains(&last_spare), "spare {last_spare}");
    // The reserve is two segments, each on two disks; one more begins the merge, and the next opening begins another.
    assert!(most <= 8, "{most} segments");
}

#[test]
fn a_seed_replays_its_run() {
    let [first, second] = [7, 7].map(|seed| run_volume_seed(seed).unwrap_or_else(|error| panic!("{error:?}")));
    assert_eq!(first, second);
}

/// A fault at every operation of every disk, one after another; how many there are.
fn every_step(work: Work) -> u64 {
    let mut steps = 0;
    for fault in [StepFault::Kill, StepFault::Loss] {
        for disk in 0..4 {
            let is_there = |operation: &u64| {
                let step = Step { work, fault, disk, operation: *operation };
                run_step(step).unwrap_or_else(|error| panic!("{error:?}"))
            };
            steps += (0..).take_while(is_there).count() as u64;
        }
    }
    steps
}

/// Of the three data chunks this one mirrored, and the others coded.
fn mixed(chunk: u16) -> Form {
    Form::Mixed(ChunkSet::default().with(ChunkIndex(chunk)))
}

#[test]
fn every_step_of_coding_is_killed_and_loses_a_disk() {
    for from in [Form::Mirrored, mixed(0)] {
        let steps = every_step(Work::Switch(from, Form::Coded));
        assert!(steps > 60, "only {steps} steps from {from:?}");
    }
}

#[test]
fn every_step_of_mirroring_is_killed_and_loses_a_disk() {
    for from in [Form::Coded, mixed(1)] {
        let steps = every_step(Work::Switch(from, Form::Mirrored));
        assert!(steps > 100, "only {steps} steps from {from:?}");
    }
}

#[test]
fn every_step_of_mirroring_one_chunk_is_killed_and_loses_a_disk() {
    for from in [Form::Coded, Form::Mirrored, mixed(1)] {
        let steps = every_step(Work::Switch(from, mixed(0)));
        assert!(steps > 100, "only {steps} steps from {from:?}");
    }
}

#[test]
fn every_step_of_a_merge_is_killed_and_loses_a_disk() {
    for form in [Form::Coded, Form::Mirrored, mixed(1)] {
        let steps = every_step(Work::Merge(form));
        assert!(steps > 80, "only {steps} steps of {form:?}");
    }
}

#[test]
fn every_step_of_first_stripes_is_killed_and_loses_a_disk() {
    let steps = every_step(Work::Begin);
    assert!(steps > 60, "only {steps} steps");
}

#[test]
fn every_step_of_copying_what_a_snapshot_has_too_is_killed_and_loses_a_disk() {
    let steps = every_step(Work::Copy);
    assert!(steps > 60, "only {steps} steps");
}

#[test]
fn every_step_of_giving_back_a_discarded_stripe_is_killed_and_loses_a_disk() {
    let steps = every_step(Work::Drop);
    assert!(steps > 40, "only {steps} steps");
}

fn takeover(after: u64, fault: Option<(StepFault, usize, u64)>) -> bool {
    run_takeover(Takeover { after, fault }).unwrap_or_else(|error| panic!("{error:?}"))
}

#[test]
fn a_volume_is_taken_over_at_every_step_of_its_owner() {
    let steps = (0..).take_while(|after| takeover(*after, None)).count();
    assert!(steps > 100, "only {steps} steps");
}

#[test]
fn every_step_of_taking_over_is_killed_and_loses_a_disk() {
    let mut steps = 0;
    for (fault, disk) in
        [StepFault::Kill, StepFault::Loss].into_iter().flat_map(|fault| (0..4).map(move |disk| (fault, disk)))
    {
        // The former owner is writing, flushing, merging or switching then.
        let after = |operation: u64| 1 + (operation * 17 + disk as u64 * 5) % 100;
        let is_there = |operation: &u64| takeover(after(*operation), Some((fault, disk, *operation)));
        steps += (0..).take_while(is_there).count();
    }
    println!("{steps} steps");
    assert!(steps > 100, "only {steps} steps");
}
