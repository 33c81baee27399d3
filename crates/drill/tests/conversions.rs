//! Conversions of stripes, with a fault at every operation of every disk.

use claystone_code::CodeSpec;
use claystone_drill::{ConversionStep, StepFault, run_conversion};

/// Both faults at every operation of the disks of the first stripe's first data chunk and of its first and last parity, and of
/// one that has none, and one of them on the way back; how many there are. The other chunks, and the other stripes, are like these.
fn every_step(fast: &str, compact: &str, back: bool, hurt: bool) -> u64 {
    let (fast, compact): (CodeSpec, CodeSpec) = (fast.parse().expect("a code"), compact.parse().expect("a code"));
    let step = ConversionStep { fast, compact, back, hurt, fault: StepFault::Kill, chunk: None, operation: 0 };
    let (data, chunks) = (fast.shape().data, fast.shape().chunks());
    let of_first = (0..chunks).filter(|chunk| [0, data, chunks - 1].contains(chunk));
    let faults: &[fn(u64) -> StepFault] = if back {
        &[|operation| if operation.is_multiple_of(2) { StepFault::Kill } else { StepFault::Loss }]
    } else {
        &[|_| StepFault::Kill, |_| StepFault::Loss]
    };
    let mut steps = 0;
    for chunk in of_first.map(Some).chain([None]) {
        for fault in faults {
            let is_there = |operation: &u64| {
                let step = ConversionStep { chunk, operation: *operation, fault: fault(*operation), ..step };
                run_conversion(step).unwrap_or_else(|error| panic!("{error:?}"))
            };
            steps += (0..).take_while(is_there).count() as u64;
        }
    }
    println!("{fast} and {compact}, back: {back}, hurt: {hurt}: {steps} steps");
    steps
}

fn both_ways(fast: &str, compact: &str) {
    for back in [false, true] {
        let steps = every_step(fast, compact, back, false);
        assert!(steps > 60, "only {steps} steps, back: {back}");
    }
}

#[test]
fn every_step_of_merging_by_parities_and_of_splitting_is_killed_and_loses_a_disk() {
    both_ways("rsm:2+1", "rsm:4+1");
}

#[test]
fn every_step_of_a_product_codes_conversion_is_killed_and_loses_a_disk() {
    both_ways("pc:1x2", "pc:2x2");
}

#[test]
fn every_step_of_a_local_codes_conversion_is_killed_and_loses_a_disk() {
    both_ways("lrc:4+2+1", "lrc:4+1+1");
}

#[test]
fn every_step_of_a_clay_codes_conversion_is_killed_and_loses_a_disk() {
    both_ways("clay:6+2:7", "rs:6+2");
}

/// The first step of what is new: parity is made of the data, and copies are dropped after.
#[test]
fn every_step_of_encoding_copies_is_killed_and_loses_a_disk() {
    both_ways("mirror:2x2", "rsm:2+1");
}

#[test]
fn every_step_of_merging_copies_is_killed_and_loses_a_disk() {
    let steps = every_step("mirror:2x2", "rsm:4+1", false, false);
    assert!(steps > 60, "only {steps} steps");
}

/// With a damaged parity beside, a lost disk is a second loss.
#[test]
fn every_step_of_converting_before_a_repair_is_killed_and_loses_a_disk() {
    for back in [false, true] {
        let steps = every_step("rsm:2+2", "rsm:4+2", back, true);
        assert!(steps > 60, "only {steps} steps, back: {back}");
    }
}
