//! Conversions of stripes, with a fault at every operation of every disk.

use claystone_code::CodeSpec;
use claystone_drill::{ConversionStep, StepFault, run_conversion};

/// A fault at every operation of every disk of the first stripe, and of one that has none; how many there are. The other stripes
/// are like the first.
fn every_step(fast: &str, compact: &str, back: bool) -> u64 {
    let (fast, compact): (CodeSpec, CodeSpec) = (fast.parse().expect("a code"), compact.parse().expect("a code"));
    let step = ConversionStep { fast, compact, back, fault: StepFault::Kill, disk: 0, operation: 0 };
    let of_first = 0..usize::from(fast.shape().chunks());
    let mut steps = 0;
    for disk in of_first.chain([step.disks() - 1]) {
        // The one after the other: all of them meet both.
        let fault = |operation: u64| {
            if (disk as u64 + operation).is_multiple_of(2) { StepFault::Kill } else { StepFault::Loss }
        };
        let is_there = |operation: &u64| {
            let step = ConversionStep { disk, operation: *operation, fault: fault(*operation), ..step };
            run_conversion(step).unwrap_or_else(|error| panic!("{error:?}"))
        };
        steps += (0..).take_while(is_there).count() as u64;
    }
    println!("{fast} and {compact}, back: {back}: {steps} steps");
    steps
}

fn both_ways(fast: &str, compact: &str) {
    for back in [false, true] {
        let steps = every_step(fast, compact, back);
        assert!(steps > 30, "only {steps} steps, back: {back}");
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
    let steps = every_step("mirror:2x2", "rsm:4+1", false);
    // One parity is written in all.
    assert!(steps > 15, "only {steps} steps");
}
