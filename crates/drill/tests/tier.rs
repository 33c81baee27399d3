//! Tiered devices: a power cut in every operation of both devices and of openings, hurt sectors of logs and superblocks, and a device that
//! fails or is gone from every operation on.
//!
//! More than 50,000 faults in all. `--nocapture` shows how many of each kind.

use std::ops::Range;

use claystone_drill::tier::{
    DeathReport, FilesReport, StoreReport, TierReport, run_deaths, run_files, run_seed, run_store,
};

/// So many faults are in each of the four parts.
const FAULTS_MIN: u64 = 12_500;

fn part(seeds: Range<u64>) {
    let mut all = TierReport::default();
    for seed in seeds {
        all += run_seed(seed).unwrap_or_else(|error| panic!("{error:#}"));
    }
    println!("{all}");
    assert!(all.faults() >= FAULTS_MIN, "{all}");
    assert!(all.redirected > 50, "{all}");
    assert!(all.alone > 60 && all.cuts_indexing > 100 && all.by_index > 500, "{all}");
    // A hurt sector may be one that nothing vouches for, but hardly ever.
    assert!(all.refused * 1000 <= all.hurt, "{all}");
}

#[test]
fn nothing_promised_is_lost_or_older_first_part() {
    part(1..7);
}

#[test]
fn nothing_promised_is_lost_or_older_second_part() {
    part(7..13);
}

#[test]
fn nothing_promised_is_lost_or_older_third_part() {
    part(13..19);
}

#[test]
fn nothing_promised_is_lost_or_older_fourth_part() {
    part(19..25);
}

#[test]
fn what_was_synced_of_files_on_a_pair_is_there() {
    let mut all = FilesReport::default();
    for seed in 1..16 {
        all += run_files(seed).unwrap_or_else(|error| panic!("{error:#}"));
    }
    println!("{all}");
    assert!(all.cuts > 1000 && all.compared == 5 * all.cuts && all.redirected > 1000, "{all}");
}

#[test]
fn what_was_synced_of_files_is_there_or_an_error_after_the_solid_state_drive_died() {
    let mut all = DeathReport::default();
    for seed in 1..11 {
        all += run_deaths(seed).unwrap_or_else(|error| panic!("{error:#}"));
    }
    println!("{all}");
    assert!(all.deaths == 200 && all.known > 150 && all.tended > 60 && all.stopped == 0, "{all}");
    // Those that refuse were not tended before the power went, or had lost pages that memory never had.
    assert!(all.refused > 20 && all.refused + all.tended < all.known, "{all}");
    assert!(all.compared > 5000 && all.lost > 500, "{all}");
}

#[test]
fn what_a_store_on_pairs_acknowledged_is_there_after_solid_state_drives_died() {
    let mut all = StoreReport::default();
    for seed in 1..21 {
        all += run_store(seed).unwrap_or_else(|error| panic!("{error:#}"));
    }
    println!("{all}");
    assert!(all.puts > 200 && all.deaths > 40 && all.crashes > 20 && all.volatile > 40, "{all}");
    assert!(all.alone > 10 && all.replaced > 5 && all.lost > 100 && all.repaired > 30, "{all}");
}
