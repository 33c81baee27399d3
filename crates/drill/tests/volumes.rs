//! Volumes: seeds that run on each change, and that a seed replays its run.

use claystone_drill::run_volume_seed;

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

#[test]
fn a_seed_replays_its_run() {
    let [first, second] = [7, 7].map(|seed| run_volume_seed(seed).unwrap_or_else(|error| panic!("{error:?}")));
    assert_eq!(first, second);
}
