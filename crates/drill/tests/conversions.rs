//! Conversions of stripes, with a fault at every operation of every disk.
//!
//! Conversions between small codes, whose stores have few disks, meet both faults at every operation of every disk. Those of the codes of the
//! policies that ship have up to 91 disks: there a fault strikes the first and the last disk of each part. Disks of one [`DiskPart`]
//! have chunks that are kept, dropped or new alike and carry out as many operations, one of the same kind after the other; what differs
//! is which chunk of a stripe they have, and to the store, which asks all of them at once, chunks of a part differ in nothing but their
//! numbers.
//!
//! Before the fault all disks were listed once: the first listing takes some 250 operations of each disk that have to do with no
//! conversion. It is struck where nobody has read back what was written, at one operation in `stride`, others in each run:
//! `CLAYSTONE_DRILL_OFFSET=n` repeats one, and `CLAYSTONE_EXHAUSTIVE=1` strikes all operations.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use claystone_code::CodeSpec;
use claystone_drill::{
    ConversionCase, ConversionStep, DiskPart, GiveWayStep, LateLoss, SpreadStep, StepFault, run_conversion,
    run_give_way, run_late_loss, run_spread, survey_conversion,
};
use claystone_meta::HeatPolicy;

const FAULTS: [StepFault; 2] = [StepFault::Kill, StepFault::Loss];

fn case(fast: &str, compact: &str) -> ConversionCase {
    ConversionCase::new(fast.parse().expect("a code"), compact.parse().expect("a code"))
}

/// Both faults at one operation in `stride` of each of these disks, by turns of them from `offset` on; how many there are.
fn strike(case: ConversionCase, disks: &[usize], stride: u64, offset: u64) -> u64 {
    let mut steps = 0;
    for (turn, disk) in (offset..).zip(disks.iter().copied()) {
        for fault in FAULTS {
            let is_there = |operation: &u64| {
                let step = ConversionStep { case, fault, disk, operation: *operation };
                run_conversion(step).unwrap_or_else(|error| panic!("{error:?}"))
            };
            steps += (turn % stride..).step_by(stride as usize).take_while(is_there).count() as u64;
        }
    }
    println!("{steps} steps, one in {stride}, of {} disks: {case:?}", disks.len());
    steps
}

fn every_step(case: ConversionCase) {
    let all: Vec<usize> = (0..case.disks()).collect();
    let steps = strike(case, &all, 1, 0);
    assert!(steps > 60, "only {steps} steps: {case:?}");
}

fn both_ways(fast: &str, compact: &str) {
    for back in [false, true] {
        every_step(ConversionCase { back, ..case(fast, compact) });
    }
}

/// The faults at one operation in `stride` of the first and the last disk of each part.
fn some_steps(case: ConversionCase, stride: u64) {
    let parts = survey_conversion(case).unwrap_or_else(|error| panic!("{error:?}"));
    let mut ends: BTreeMap<DiskPart, [usize; 2]> = BTreeMap::new();
    for (disk, part) in parts.into_iter().enumerate() {
        ends.entry(part).or_insert([disk; 2])[1] = disk;
    }
    let mut disks: Vec<usize> = ends.values().flatten().copied().collect();
    disks.sort_unstable();
    disks.dedup();
    let operations: u64 =
        ends.iter().map(|(part, ends)| part.operations * if ends[0] == ends[1] { 1 } else { 2 }).sum();
    let (stride, offset) = if stride == 1 || is_exhaustive() { (1, 0) } else { (stride, offset()) };
    let steps = strike(case, &disks, stride, offset);
    // Each disk may have one more or less than its share, by where its turn begins.
    let (all, shares) = (FAULTS.len() as u64 * operations, FAULTS.len() as u64 * disks.len() as u64);
    let expected = (all / stride).saturating_sub(shares)..=all / stride + shares;
    assert!(expected.contains(&steps), "{steps} of {all} steps, one in {stride}: {case:?}");
}

fn is_exhaustive() -> bool {
    std::env::var_os("CLAYSTONE_EXHAUSTIVE").is_some()
}

/// At which operation strides begin: another in each run, so that in time all are struck.
fn offset() -> u64 {
    static OFFSET: OnceLock<u64> = OnceLock::new();
    let offset = *OFFSET.get_or_init(|| match std::env::var("CLAYSTONE_DRILL_OFFSET") {
        Ok(text) => text.parse().expect("CLAYSTONE_DRILL_OFFSET is a number"),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() % 1000,
    });
    println!("replay it: CLAYSTONE_DRILL_OFFSET={offset}");
    offset
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

/// Copies beside parity are only dropped, or the parities merged.
#[test]
fn every_step_of_dropping_copies_beside_parity_is_killed_and_loses_a_disk() {
    for (hybrid, code) in [
        ("hybrid:rsm:2+1x2", "rsm:2+1"),
        ("hybrid:rsm:2+1x2", "rsm:4+1"),
        ("hybrid:pc:1x2x2", "pc:1x2"),
        ("hybrid:pc:1x2x2", "pc:2x2"),
        ("hybrid:lrc:4+2+1x2", "lrc:4+2+1"),
        ("hybrid:lrc:4+2+1x2", "lrc:4+1+1"),
    ] {
        every_step(case(hybrid, code));
    }
}

#[test]
fn every_step_of_merging_copies_is_killed_and_loses_a_disk() {
    every_step(case("mirror:2x2", "rsm:4+1"));
}

/// To product and local codes, alone and merged at once.
#[test]
fn every_step_of_encoding_copies_otherwise_is_killed_and_loses_a_disk() {
    for (copies, code) in
        [("mirror:2x2", "pc:1x2"), ("mirror:2x2", "pc:2x2"), ("mirror:4x2", "lrc:4+2+1"), ("mirror:4x2", "lrc:4+1+1")]
    {
        every_step(case(copies, code));
    }
}

/// The conversion reads back what was just written, before it makes new parity of it.
#[test]
fn steps_of_merging_what_nobody_read_back_are_killed_and_lose_a_disk() {
    some_steps(ConversionCase { unread: true, ..case("rsm:2+1", "rsm:4+1") }, 8);
}

/// Packs are merged and split as whole stripes are, and what was deleted of them stays so.
#[test]
fn every_step_of_merging_and_splitting_packs_is_killed_and_loses_a_disk() {
    for back in [false, true] {
        every_step(ConversionCase { back, packed: true, ..case("rsm:2+1", "rsm:4+1") });
    }
}

#[test]
fn every_step_of_a_product_codes_conversion_of_packs_is_killed_and_loses_a_disk() {
    for back in [false, true] {
        every_step(ConversionCase { back, packed: true, ..case("pc:1x2", "pc:2x2") });
    }
}

/// Packs with half of their objects deleted become one pack while they are merged or split. One of both has what it works on
/// taken away by the other, and nothing is lost.
#[test]
fn every_step_of_writing_packs_anew_beside_a_conversion_is_killed_and_loses_a_disk() {
    for back in [false, true] {
        every_step(ConversionCase { back, packed: true, thin: true, ..case("rsm:2+1", "rsm:4+1") });
    }
}

/// All objects of the first or of the last pack were deleted.
#[test]
fn every_step_of_splitting_off_a_dead_pack_is_killed_and_loses_a_disk() {
    for dead in [0, 1] {
        every_step(ConversionCase { back: true, packed: true, dead: Some(dead), ..case("rsm:2+1", "rsm:4+1") });
    }
}

/// The band that nobody holds is the first, and then the last.
#[test]
fn every_step_of_splitting_off_a_dead_band_is_killed_and_loses_a_disk() {
    for dead in [0, 1] {
        every_step(ConversionCase { back: true, dead: Some(dead), ..case("rsm:2+1", "rsm:4+1") });
    }
}

/// With a damaged parity beside, a lost disk is a second loss.
#[test]
fn every_step_of_converting_before_a_repair_is_killed_and_loses_a_disk() {
    for back in [false, true] {
        every_step(ConversionCase { back, hurt: true, ..case("rsm:2+2", "rsm:4+2") });
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

#[test]
fn every_step_of_copies_giving_way_is_killed_and_loses_a_disk() {
    let mut steps = 0;
    for (lost, disk) in [0, 2].into_iter().flat_map(|lost| (0..GiveWayStep::DISKS).map(move |disk| (lost, disk))) {
        for fault in FAULTS {
            let is_there = |operation: &u64| {
                let step = GiveWayStep { lost, fault, disk, operation: *operation };
                run_give_way(step).unwrap_or_else(|error| panic!("{error:?}"))
            };
            steps += (0..).take_while(is_there).count();
        }
    }
    println!("{steps} steps of copies giving way");
    assert!(steps > 40, "only {steps} steps");
}

/// The codes of a policy that ships: copies become fast, these are merged and split again; and copies that nobody reads are merged at once.
fn steps_of_a_policy(name: &str) {
    let policy = HeatPolicy::named(name).expect("a preset");
    let HeatPolicy { fast, compact, .. } = policy;
    let copies = CodeSpec::Mirror { data: fast.shape().data as u8, copies: 3 };
    for back in [false, true] {
        some_steps(ConversionCase { back, ..ConversionCase::new(fast, compact) }, 1);
    }
    if fast != copies {
        some_steps(ConversionCase::new(copies, fast), 1);
        some_steps(ConversionCase::new(copies, compact), 1);
    }
}

/// What is new under the policies that a store takes by itself, dropped to fast and merged at once.
#[test]
fn every_step_of_the_first_step_of_shipped_policies_is_killed_and_loses_a_disk() {
    for preset in claystone_meta::PRESETS.iter().filter(|preset| preset.name.starts_with("hybrid")) {
        let policy = HeatPolicy::named(preset.name).expect("a preset");
        let fresh = policy.fresh_code().expect("it has copies");
        some_steps(ConversionCase::new(fresh, policy.fast), 1);
        some_steps(ConversionCase::new(fresh, policy.compact), 1);
    }
}

#[test]
fn every_step_of_the_policy_pc_is_killed_and_loses_a_disk() {
    steps_of_a_policy("pc");
}

#[test]
fn every_step_of_the_policy_rsm_10_4_is_killed_and_loses_a_disk() {
    steps_of_a_policy("rsm-10+4");
}

#[test]
fn every_step_of_the_policy_lrc_is_killed_and_loses_a_disk() {
    steps_of_a_policy("lrc");
}

#[test]
fn every_step_of_the_policy_rsm_6_3_is_killed_and_loses_a_disk() {
    steps_of_a_policy("rsm-6+3");
}

#[test]
fn every_step_of_the_policy_rsm_4_2_is_killed_and_loses_a_disk() {
    steps_of_a_policy("rsm-4+2");
}

#[test]
fn every_step_of_the_policy_clay_is_killed_and_loses_a_disk() {
    steps_of_a_policy("clay");
}

/// Packs of a policy that ships.
#[test]
fn every_step_of_merging_and_splitting_packs_of_a_shipped_policy_is_killed_and_loses_a_disk() {
    for back in [false, true] {
        some_steps(ConversionCase { back, packed: true, ..case("rsm:6+3", "rsm:12+3") }, 1);
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
            let case = ConversionCase { back, ..case(fast, compact) };
            for given_up in [false, true] {
                let run = |disk| run_late_loss(LateLoss { case, given_up, disk });
                let refused = (0..case.disks()).map(|disk| run(disk).unwrap_or_else(|error| panic!("{error:?}")));
                let refused = refused.filter(|refused| *refused).count();
                let all = case.disks();
                assert_eq!(refused > 0, given_up, "{fast} and {compact}, back: {back}: {refused} of {all}");
                assert!(refused < all, "{fast} and {compact}, back: {back}: not one has only what was there");
            }
        }
    }
}
