//! One disk by itself: a power cut and a failure at every operation of its device, random ones, hurt sectors, and more of
//! them than can be mended.
//!
//! Each test asserts how many faults it meets: hard ones, which are power cuts, failed operations and hurt sectors, more than
//! 100,000 in all tests; and with them those that are soft. `--nocapture` shows how many of each kind.

use std::ops::Range;

use claystone_drill::disk::{Case, DiskReport, Fault, FaultCounts, SCENARIOS, Scale, Scenario, Work, run_case};

/// Seeds of each scenario that run with random faults.
const SEEDS: u64 = 3;
/// The same, with a power cut in every operation.
const CUT_SEEDS: u64 = 1;
/// The same, with a failure of every operation of some steps.
const FAIL_SEEDS: u64 = 2;
/// The same, with a storm of them.
const STORM_SEEDS: u64 = 8;

fn run(case: Case) -> DiskReport {
    run_case(case).unwrap_or_else(|error| panic!("{error:?}"))
}

/// Runs a case with each fault in turn until one is not reached. Returns all faults, and how many errors named what was lost.
fn each(scenario: Scenario, seed: u64, fault: impl Fn(u64) -> Fault) -> (FaultCounts, u64) {
    let (mut faults, mut named) = (FaultCounts::default(), 0);
    for after in 0.. {
        let case = Case { scale: Scale::Small, scenario, seed, fault: fault(after) };
        let report = run(case);
        faults += report.faults;
        named += report.named;
        if !report.reached {
            println!("{case} was not reached; before it {faults}; {named} errors named what was lost");
            break;
        }
    }
    (faults, named)
}

/// Every operation of every scenario, each with a seed of its own, so that none begins as another does.
fn at_every_call(fault: fn(Work, u64) -> Fault) -> FaultCounts {
    (1..).zip(SCENARIOS).map(|(seed, scenario)| each(scenario, seed, |after| fault(Work::Calls, after)).0).sum()
}

fn with_random_faults(fault: Fault, seeds: Range<u64>) -> FaultCounts {
    let cases = seeds.flat_map(|seed| SCENARIOS.map(|scenario| Case { scale: Scale::Small, scenario, seed, fault }));
    cases.map(|case| run(case).faults).sum()
}

/// Faults of a test, of which there must be enough: so many in all, and so many that are not soft.
fn count(faults: FaultCounts, faults_min: u64, hard_min: u64) {
    println!("{faults}");
    assert!(faults.total() >= faults_min && faults.hard() >= hard_min, "{faults}");
}

/// Seed 1 of the mixed scenario found a sums sector that was written without CRCs of groups of which it was not durable yet that they
/// were freed.
#[test]
fn the_power_may_go_during_any_operation() {
    count(with_random_faults(Fault::Cuts, 1..1 + CUT_SEEDS), 700_000, 50_000);
}

#[test]
fn any_operation_may_fail() {
    count(at_every_call(Fault::Fail), 300_000, 5000);
}

/// Each operation of some steps behind a crash, in a branch: far more of them than runs from the begin could meet.
#[test]
fn any_operation_may_fail_in_a_branch() {
    count(with_random_faults(Fault::Fails, 1..1 + FAIL_SEEDS), 900_000, 38_000);
}

/// Formatting, opening after a crash, closing, growing, and scrubbing hurt sectors.
#[test]
fn the_power_may_go_during_any_work() {
    count(at_every_work(Fault::Cut), 60_000, 1400);
}

#[test]
fn any_work_may_fail() {
    count(at_every_work(Fault::Fail), 60_000, 1400);
}

fn at_every_work(fault: fn(Work, u64) -> Fault) -> FaultCounts {
    let works = [Work::Formatting, Work::Opening, Work::Closing, Work::Growing, Work::Scrubbing];
    let cases = [11, 12].into_iter().flat_map(|seed| works.map(|work| (seed, work)));
    cases.map(|(seed, work)| each(Scenario::Mixed, seed, |after| fault(work, after)).0).sum()
}

#[test]
fn what_is_lost_beyond_repair_is_named() {
    let scenarios = [Scenario::Mixed, Scenario::Writes, Scenario::Overwrites, Scenario::Names];
    let each = (3..).zip(scenarios).map(|(seed, scenario)| each(scenario, seed, Fault::Beyond));
    let (faults, named): (Vec<FaultCounts>, Vec<u64>) = each.unzip();
    assert!(named.iter().sum::<u64>() > 150, "{named:?}");
    count(faults.into_iter().sum(), 2000, 800);
}

#[test]
fn disks_survive_crashes_at_random() {
    count(with_random_faults(Fault::Crashes, 1..1 + SEEDS), 3000, 200);
}

/// Power cuts and failures so close together that what recovers from one meets the next.
#[test]
fn disks_survive_storms() {
    count(with_random_faults(Fault::Storm, 1..1 + STORM_SEEDS), 3000, 5000);
}

/// Runs of several sums sectors, of which parts are freed, groups of 255 and of 1023, and bursts.
#[test]
fn large_runs_and_groups_survive_crashes_and_are_mended() {
    let scenarios = [Scenario::Writes, Scenario::Overwrites, Scenario::Shapes, Scenario::Mixed];
    let mut faults = FaultCounts::default();
    for (scale, scenario) in [Scale::Summed, Scale::Usual].into_iter().flat_map(|scale| scenarios.map(|it| (scale, it)))
    {
        for (fault, seed) in [(Fault::Crashes, 21), (Fault::Hurts, 22), (Fault::Hurts, 23)] {
            faults += run(Case { scale, scenario, seed, fault }).faults;
        }
    }
    for (scenario, fault) in [(Scenario::Shapes, Fault::Hurts), (Scenario::Mixed, Fault::Crashes)] {
        faults += run(Case { scale: Scale::Long, scenario, seed: 24, fault }).faults;
    }
    count(faults, 20_000, 500);
}

#[test]
fn hurt_sectors_are_mended() {
    count(with_random_faults(Fault::Hurts, 1..1 + SEEDS), 3000, 2000);
}

/// Each of these showed a bug once, or shows one that no other case here does.
#[test]
fn seeds_that_found_something_keep_running() {
    for case in [
        // An fsync's sector was written again, and a checkpoint freed its entry of the journal.
        "appends/15/crashes",
        "appends/65/crashes",
        // Applying was cut short behind the first sectors of a group, and these were applied again before the others, which
        // the cut had torn, so that the group was encoded from them.
        "overwrites/3/cut:77",
        // Fails if the journal does not take the sums of an update.
        "overwrites/226/crashes",
        // Crashes while the journal was applied filled it, so that the disk did not open any more.
        "full/5/storm",
        // A group was mended and updated between two syncs, and both were torn.
        "writes/84/storm",
        "overwrites/197/crashes",
        // Parity whose writing was lost changed data back, where the sums sector failed softly.
        "summed:shapes/407/hurts",
        // What a power cut had torn while it was mended stayed torn when its group was encoded again.
        "appends/499/storm",
    ] {
        run(case.parse().expect("a case"));
    }
}

#[test]
fn a_case_replays_event_for_event_and_another_is_another_run() {
    let case = |seed| Case { scale: Scale::Small, scenario: Scenario::Mixed, seed, fault: Fault::Crashes };
    let first = run(case(7));
    assert_eq!(first, run(case(7)));
    assert_ne!(first.trace, run(case(8)).trace);
}

#[test]
fn cases_do_what_a_drill_is_for() {
    let reports = |fault| {
        (1..).zip(SCENARIOS).map(move |(seed, scenario)| run(Case { scale: Scale::Small, scenario, seed, fault }))
    };
    let crashes: Vec<_> = reports(Fault::Crashes).collect();
    assert!(crashes.iter().map(|report| report.faults.cuts).sum::<u64>() > 15, "power is cut");
    assert!(crashes.iter().map(|report| report.faults.failed).sum::<u64>() > 5, "operations fail");
    assert!(reports(Fault::Hurts).map(|report| report.faults.hurt).sum::<u64>() > 300, "sectors are hurt");
    let passed = reports(Fault::Hurts).map(|report| report.passed).sum::<u64>();
    assert!(passed > 100, "{passed} groups are scrubbed in passing");
    let full =
        [8, 21].map(|seed| run(Case { scale: Scale::Small, scenario: Scenario::Full, seed, fault: Fault::Crashes }));
    assert!(full.iter().all(|report| report.refused > 0), "the disk is full");
}
