//! Conversions of stripes, with a fault at every operation of every disk.

use claystone_code::CodeSpec;
use claystone_drill::{ConversionStep, LateLoss, SpreadStep, StepFault, run_conversion, run_late_loss, run_spread};

const FAULTS: [StepFault; 2] = [StepFault::Kill, StepFault::Loss];

fn step(fast: &str, compact: &str) -> ConversionStep {
    let (fast, compact): (CodeSpec, CodeSpec) = (fast.parse().expect("a code"), compact.parse().expect("a code"));
    let (fault, chunk) = (StepFault::Kill, None);
    ConversionStep { fast, compact, back: false, hurt: false, dead: None, fault, chunk, operation: 0 }
}

/// Both faults at every operation of the disks of the first stripe's first data chunk and of its first and last parity, and of
/// one that has none; how many there are. The other chunks, and the other stripes, are like these. Of long conversions, at one
/// operation in `stride`, by turns of the disks.
fn every_step(step: ConversionStep, stride: usize) -> u64 {
    let (data, chunks) = (step.fast.shape().data, step.fast.shape().chunks());
    let of_first = (0..chunks).filter(|chunk| [0, data, chunks - 1].contains(chunk));
    let mut steps = 0;
    for (turn, chunk) in of_first.map(Some).chain([None]).enumerate() {
        for fault in FAULTS {
            let is_there = |operation: &u64| {
                let step = ConversionStep { chunk, operation: *operation, fault, ..step };
                run_conversion(step).unwrap_or_else(|error| panic!("{error:?}"))
            };
            steps += ((turn % stride) as u64..).step_by(stride).take_while(is_there).count() as u64;
        }
    }
    println!("{} steps, one in {stride}: {step:?}", steps);
    steps
}

fn both_ways(fast: &str, compact: &str) {
    for back in [false, true] {
        let steps = every_step(ConversionStep { back, ..step(fast, compact) }, 1);
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
    let steps = every_step(step("mirror:2x2", "rsm:4+1"), 1);
    assert!(steps > 60, "only {steps} steps");
}

/// To product and local codes, alone and merged at once.
#[test]
fn steps_of_encoding_copies_otherwise_are_killed_and_lose_a_disk() {
    for (copies, code) in
        [("mirror:2x2", "pc:1x2"), ("mirror:2x2", "pc:2x2"), ("mirror:4x2", "lrc:4+2+1"), ("mirror:4x2", "lrc:4+1+1")]
    {
        let steps = every_step(step(copies, code), 8);
        assert!(steps > 60, "only {steps} steps");
    }
}

/// Between the last look at the new chunks and the transaction that names them. Given up by then, a disk with new chunks has the
/// transaction refused; one that only does not answer, or has none of them, leaves a chunk to rebuild at most.
#[test]
fn a_disk_that_is_lost_when_new_chunks_were_read_back_has_them_refused_or_rebuilt() {
    for (fast, compact) in [
        ("rsm:2+1", "rsm:4+1"),
        ("rsm:2+2", "rsm:4+2"),
        ("pc:1x2", "pc:2x2"),
        ("lrc:4+2+1", "lrc:4+1+1"),
        ("clay:6+2:7", "rs:6+2"),
        ("mirror:2x2", "rsm:2+1"),
    ] {
        for back in [false, true] {
            let step = ConversionStep { back, ..step(fast, compact) };
            for given_up in [false, true] {
                let run = |disk| run_late_loss(LateLoss { step, given_up, disk });
                let refused = (0..step.disks()).map(|disk| run(disk).unwrap_or_else(|error| panic!("{error:?}")));
                let refused = refused.filter(|refused| *refused).count();
                let all = step.disks();
                assert_eq!(refused > 0, given_up, "{fast} and {compact}, back: {back}: {refused} of {all}");
                assert!(refused < all, "{fast} and {compact}, back: {back}: not one has only what was there");
            }
        }
    }
}

/// The codes of the policy `clay`.
#[test]
fn steps_of_a_shipped_clay_policys_conversions_are_killed_and_lose_a_disk() {
    for back in [false, true] {
        let steps = every_step(ConversionStep { back, ..step("mirror:6x3", "clay:6+2:7") }, 16);
        assert!(steps > 60, "only {steps} steps, back: {back}");
    }
}

/// The band that nobody holds lies on the disks that are hit, and then beside them.
#[test]
fn steps_of_splitting_off_a_dead_band_are_killed_and_lose_a_disk() {
    for dead in [0, 1] {
        let step = ConversionStep { back: true, dead: Some(dead), ..step("rsm:2+1", "rsm:4+1") };
        let steps = every_step(step, 4);
        assert!(steps > 60, "only {steps} steps, dead: {dead}");
    }
}

#[test]
fn every_step_of_moving_data_chunks_apart_is_killed_and_loses_a_disk() {
    let mut steps = 0;
    for disk in 0..SpreadStep::DISKS {
        for fault in FAULTS {
            let is_there = |operation: &u64| {
                let step = SpreadStep { fault, disk, operation: *operation };
                run_spread(step).unwrap_or_else(|error| panic!("{error:?}"))
            };
            steps += (0..).take_while(is_there).count();
        }
    }
    println!("{steps} steps of moving data chunks apart");
    assert!(steps > 20, "only {steps} steps");
}

/// With a damaged parity beside, a lost disk is a second loss.
#[test]
fn every_step_of_converting_before_a_repair_is_killed_and_loses_a_disk() {
    for back in [false, true] {
        let steps = every_step(ConversionStep { back, hurt: true, ..step("rsm:2+2", "rsm:4+2") }, 1);
        assert!(steps > 60, "only {steps} steps, back: {back}");
    }
}
