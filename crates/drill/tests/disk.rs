//! One disk by itself: a power cut and a failure at every operation of its device, random ones, and hurt sectors.

use claystone_drill::disk::{Case, DiskReport, Fault, SCENARIOS, Scenario, run_case};

/// Seeds of each scenario that run with random faults.
const SEEDS: u64 = 3;

fn run(case: Case) -> DiskReport {
    run_case(case).unwrap_or_else(|error| panic!("{error:?}"))
}

/// Runs a scenario once for each operation of the device, with that fault during it, and returns all faults.
fn at_every_operation(scenario: Scenario, fault: fn(u64) -> Fault) -> u64 {
    let mut faults = 0;
    for after in 0.. {
        let report = run(Case { scenario, seed: 1, fault: fault(after) });
        faults += report.faults();
        if !report.reached {
            break;
        }
    }
    faults
}

fn with_random_faults(fault: Fault, seeds: std::ops::Range<u64>) -> u64 {
    let cases = seeds.flat_map(|seed| SCENARIOS.map(|scenario| Case { scenario, seed, fault }));
    cases.map(|case| run(case).faults()).sum()
}

/// Faults of a test, of which there must be enough: all tests together inject about 100,000.
fn count(faults: u64, faults_min: u64) {
    println!("{faults} faults");
    assert!(faults >= faults_min, "{faults} faults");
}

#[test]
fn the_power_may_go_during_any_operation() {
    count(SCENARIOS.map(|scenario| at_every_operation(scenario, Fault::Cut)).iter().sum(), 20_000);
}

#[test]
fn any_operation_may_fail() {
    count(SCENARIOS.map(|scenario| at_every_operation(scenario, Fault::Fail)).iter().sum(), 20_000);
}

#[test]
fn disks_survive_crashes_at_random() {
    count(with_random_faults(Fault::Crashes, 1..1 + SEEDS), 3000);
}

#[test]
fn hurt_sectors_are_mended() {
    count(with_random_faults(Fault::Hurts, 1..1 + SEEDS), 3000);
}

/// Each of these showed a bug once.
#[test]
fn seeds_that_found_something_keep_running() {
    for case in [
        // An fsync's sector was written again, and a checkpoint freed its entry of the journal.
        "appends/15/crashes",
        "appends/65/crashes",
    ] {
        run(case.parse().expect("a case"));
    }
}

#[test]
fn a_case_replays_event_for_event_and_another_is_another_run() {
    let case = |seed| Case { scenario: Scenario::Mixed, seed, fault: Fault::Crashes };
    let first = run(case(7));
    assert_eq!(first, run(case(7)));
    assert_ne!(first.trace, run(case(8)).trace);
}

#[test]
fn cases_do_what_a_drill_is_for() {
    let reports = |fault| (1..8).zip(SCENARIOS).map(move |(seed, scenario)| run(Case { scenario, seed, fault }));
    let crashes: Vec<_> = reports(Fault::Crashes).collect();
    assert!(crashes.iter().map(|report| report.cuts).sum::<u64>() > 15, "power is cut");
    assert!(crashes.iter().map(|report| report.failed).sum::<u64>() > 5, "operations fail");
    assert!(reports(Fault::Hurts).map(|report| report.hurt).sum::<u64>() > 300, "sectors are hurt");
    let full = run(Case { scenario: Scenario::Full, seed: 5, fault: Fault::Crashes });
    assert!(full.refused > 0, "the disk is full");
}
