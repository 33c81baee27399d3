//! Groups of single runs: what is read is right or an error, and what is mended costs no more than it must.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use claystone_env::testing::sector_pattern;
use claystone_env::{Effort, Sector};
use claystone_group::{
    Change, GroupError, GroupPlace, Groups, Member, NOTHING_CACHED, ScrubReport, UpdateChoice, UpdateWay, sector_sum,
};
use proptest::prelude::*;
use support::{FaultyDevice, groups, sectors};

const PLACE: GroupPlace = GroupPlace { first: Sector(3), data: 8, capacity: 10 };

struct Case {
    device: Arc<FaultyDevice>,
    groups: Groups,
    place: GroupPlace,
    data: Vec<u8>,
    sums: Vec<u32>,
}

/// A group of random data, written.
fn case(place: GroupPlace, k: u32, m: u32) -> Case {
    let device = FaultyDevice::new(64.max(u64::from(k + m) + 8));
    let groups = groups(&device, k, m);
    let data = sector_pattern(1, place.data as usize);
    let sums = groups.write_new(place, &sectors(&data)).expect("written").sums;
    device.quiet();
    Case { device, groups, place, data, sums }
}

impl Case {
    fn read(&self, wanted: std::ops::Range<u32>) -> Result<Vec<u8>, GroupError> {
        let mut into = vec![0xee; wanted.len() * 4096];
        self.groups.read(self.place, wanted, &self.sums, NOTHING_CACHED, &mut into).map(|()| into)
    }

    fn expected(&self, wanted: std::ops::Range<u32>) -> &[u8] {
        &self.data[wanted.start as usize * 4096..wanted.end as usize * 4096]
    }
}

#[test]
fn the_bytes_of_a_group_are_pinned() {
    let case = case(PLACE, 10, 3);
    assert_eq!(case.device.content(3..11), case.data);
    assert_eq!(case.device.content(11..13), vec![0; 8192], "room for more is not touched");
    let image = blake3::hash(&case.device.content(0..16)).to_hex();
    assert_eq!(image.as_str(), "ccd02a408b65d13b0997af2b8b4eed6891197735c1c67d53eb81ab020bb945a1");
    assert!(case.sums.iter().zip(sectors(&case.data)).all(|(sum, sector)| *sum == sector_sum(sector)));
}

#[test]
fn a_whole_group_is_written_in_one_call() {
    let device = FaultyDevice::new(64);
    let groups = groups(&device, 10, 3);
    let data = sector_pattern(1, 8);
    groups.write_new(GroupPlace { capacity: 8, ..PLACE }, &sectors(&data)).expect("written");
    assert_eq!(device.state().writes, [(3, 11)]);
}

#[test]
fn without_failures_just_what_is_wanted_is_read() {
    let case = case(PLACE, 10, 3);
    assert_eq!(case.read(2..5).expect("read"), case.expected(2..5));
    assert_eq!(case.device.state().reads, [(5, 3, Effort::FailFast)]);
    let counts = case.groups.statistics().now();
    assert_eq!((counts.sectors_read, counts.soft_failures, counts.soft_rate()), (3, 0, Some(0.0)));
}

// Test of: [lec §3.1]
#[test]
fn failures_up_to_m_are_decoded_without_a_retry() {
    let case = case(PLACE, 10, 3);
    case.device.state().soft.extend([4, 6, 13]);
    assert_eq!(case.read(2..5).expect("read"), case.expected(2..5));
    let expected =
        [(5, 3, Effort::FailFast), (8, 3, Effort::FailFast), (13, 3, Effort::FailFast), (3, 2, Effort::FailFast)];
    assert_eq!(case.device.state().reads, expected, "what lies behind is read first");
    let counts = case.groups.statistics().now();
    assert_eq!((counts.mended, counts.retries, counts.retries_avoided, counts.soft_failures), (2, 0, 2, 3));
}

#[test]
fn what_failed_softly_before_or_is_wrong_is_written_again() {
    let case = case(PLACE, 10, 3);
    case.device.state().soft.extend([4, 6]);
    case.device.flip(9, 5);
    assert_eq!(case.read(2..8).expect("read"), case.expected(2..8));
    assert_eq!(case.device.state().writes, [(9, 1)]);
    assert_eq!(case.read(2..4).expect("read"), case.expected(2..4));
    assert_eq!(case.device.state().writes, [(9, 1), (4, 1), (6, 1)]);
    assert!(case.device.content(3..11) == case.data);
    // A scrub writes at once what failed.
    case.device.state().soft.extend([10, 14]);
    case.groups.scrub(PLACE, &case.sums).expect("scrubbed");
    assert_eq!(case.device.state().writes[3..], [(10, 1), (14, 1)]);
}

#[test]
fn what_was_read_by_retrying_is_written_again_when_it_comes_back() {
    let case = case(PLACE, 10, 3);
    case.device.state().soft.extend(3..7);
    assert_eq!(case.read(0..4).expect("read"), case.expected(0..4));
    let retried = case.device.state().reads.iter().find(|read| read.2 == Effort::Retry).expect("four of three").0;
    case.device.state().soft = BTreeSet::from([retried]);
    assert_eq!(case.read(0..4).expect("read"), case.expected(0..4));
    assert_eq!(case.device.state().writes, [(retried, 1)]);
    // It may be retried the second time too.
    let case = self::case(PLACE, 10, 3);
    (13..16).for_each(|sector| case.device.overwrite(sector, &sector_pattern(sector, 1)));
    case.device.state().soft.insert(4);
    for writes in [vec![], vec![(4, 1)]] {
        assert_eq!(case.read(1..2).expect("read"), case.expected(1..2));
        assert_eq!(case.device.state().writes, writes);
    }
    assert_eq!(case.device.retries(), 2);
    // A power cut may tear no more than parity makes good.
    let case = self::case(PLACE, 10, 3);
    case.device.state().soft.extend(3..8);
    for left in [2, 0] {
        case.groups.scrub(PLACE, &case.sums).expect("scrubbed");
        assert_eq!(case.device.state().soft.len(), left);
    }
}

// Test of: [lec §3.1]
#[test]
fn beyond_m_only_the_excess_is_retried() {
    let case = case(PLACE, 10, 3);
    case.device.state().soft.extend(3..8);
    assert_eq!(case.read(0..8).expect("read"), case.data);
    assert_eq!(case.device.retries(), 2);
    let counts = case.groups.statistics().now();
    assert_eq!((counts.mended, counts.retries, counts.retries_avoided), (3, 2, 3));
}

#[test]
fn a_sector_wanted_alone_is_retried_alone_where_others_are_in_the_way() {
    let case = case(PLACE, 10, 3);
    case.device.state().soft.extend(3..9);
    assert_eq!(case.read(1..2).expect("read"), case.expected(1..2));
    assert_eq!(case.device.retries(), 1);
}

#[test]
fn cached_sectors_are_not_read() {
    let case = case(PLACE, 10, 3);
    case.device.state().lost.insert(5);
    let cached = |member| match member {
        Member::Data(at) if at != 2 => Some(Bytes::copy_from_slice(case.expected(at..at + 1))),
        _ => None,
    };
    let mut into = vec![0; 4096];
    case.groups.read(PLACE, 2..3, &case.sums, &cached, &mut into).expect("read");
    assert_eq!(into, case.expected(2..3));
    assert_eq!(case.device.sectors_read(), 1 + 3, "the sector itself, and parity");
    // A cache that has something newer is of no use, and does no harm.
    case.device.state().lost.insert(5);
    let newer = |_| Some(Bytes::from(vec![9; 4096]));
    case.groups
        .read(
            PLACE,
            2..3,
            &case.sums,
            &|member| match member {
                Member::Data(_) => newer(member),
                Member::Parity(_) => None,
            },
            &mut into,
        )
        .expect("read");
    assert_eq!(into, case.expected(2..3));
    assert_eq!(case.device.sectors_read(), 1 + 7 + 3);
}

#[test]
fn flipped_bits_are_mended() {
    let case = case(PLACE, 10, 3);
    case.device.flip(5, 77);
    case.device.flip(9, 7000);
    assert_eq!(case.read(0..8).expect("read"), case.data);
    assert!(case.device.content(3..11) == case.data);
    let counts = case.groups.statistics().now();
    assert_eq!((counts.mismatches, counts.mismatches_mended, counts.retries), (2, 2, 0));
}

#[test]
fn one_rotten_parity_sector_does_no_harm() {
    for rotten in 13..16 {
        let case = case(PLACE, 10, 3);
        case.device.flip(rotten, 0);
        case.device.state().lost.extend([3, 10]);
        assert_eq!(case.read(0..8).expect("read"), case.data, "{rotten}");
    }
}

#[test]
fn under_stale_parity_what_is_wanted_is_retried() {
    let case = case(PLACE, 10, 3);
    for sector in 13..16 {
        case.device.overwrite(sector, &sector_pattern(sector, 1));
    }
    case.device.state().soft.extend([4, 6]);
    assert_eq!(case.read(3..4).expect("read"), case.expected(3..4));
    assert_eq!(case.device.retries(), 1);
    // A lost sector stays lost.
    case.device.state().lost.extend([4, 6]);
    match case.read(0..4) {
        Err(GroupError::Lost { positions, .. }) => assert_eq!(positions, [1, 3]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_lost_is_named_and_the_rest_is_right() {
    let case = case(PLACE, 10, 3);
    case.device.state().lost.extend([3, 4, 5, 6]);
    let mut into = vec![0xee; 8 * 4096];
    let error = case.groups.read(PLACE, 0..8, &case.sums, NOTHING_CACHED, &mut into).expect_err("four of three");
    assert!(matches!(error, GroupError::Lost { ref positions, .. } if *positions == [0, 1, 2, 3]), "{error:?}");
    assert_eq!(into[..4 * 4096], vec![0; 4 * 4096]);
    assert_eq!(into[4 * 4096..], case.data[4 * 4096..]);
    assert_eq!(case.groups.statistics().now().sectors_lost, 4);
    assert_eq!(
        error.to_string(),
        "4 of the data sectors wanted of the group of 8 data sectors at 3 are lost, the first at position 0"
    );
}

#[test]
fn a_device_that_takes_no_writes_is_read_with_mending() {
    let case = case(PLACE, 10, 3);
    case.device.flip(5, 0);
    case.device.state().read_only = true;
    assert_eq!(case.read(0..8).expect("read"), case.data);
    assert_eq!(case.groups.statistics().now().mends_not_written, 1);
}

#[test]
fn without_parity_the_device_retries_at_once() {
    let case = case(PLACE, 10, 0);
    case.device.state().soft.extend([4, 5]);
    assert_eq!(case.read(0..8).expect("read"), case.data);
    assert_eq!(case.device.state().reads, [(3, 8, Effort::Retry)]);
    case.device.state().lost.insert(5);
    assert!(matches!(case.read(0..8), Err(GroupError::Lost { positions, .. }) if positions == [2]));
    case.device.flip(6, 9);
    assert!(matches!(case.read(0..8), Err(GroupError::Lost { positions, .. }) if positions == [2, 3]));
    assert_eq!(case.read(4..8).expect("read"), case.expected(4..8));
}

#[test]
fn a_scrub_mends_data_and_parity() {
    let case = case(PLACE, 10, 3);
    assert!(case.groups.scrub(PLACE, &case.sums).expect("scrubbed").is_clean());
    assert!(case.device.state().writes.is_empty());
    let image = case.device.content(0..64);
    case.device.flip(7, 0);
    case.device.flip(14, 9);
    case.device.state().lost.insert(13);
    let report = case.groups.scrub(PLACE, &case.sums).expect("scrubbed");
    let mended = vec![Member::Data(4), Member::Parity(0), Member::Parity(1)];
    assert_eq!(report, ScrubReport { mended, ..ScrubReport::default() });
    assert!(case.device.content(0..64) == image && case.device.state().lost.is_empty());
    case.device.state().lost.extend([3, 4, 5, 6]);
    assert_eq!(case.groups.scrub(PLACE, &case.sums).expect("scrubbed").lost, [0, 1, 2, 3]);
}

/// A power cut may tear all that is not synced: what is mended comes from parity, and what is updated leaves none.
#[test]
fn a_group_is_not_mended_and_updated_without_a_sync_in_between() {
    let mut case = case(PLACE, 10, 3);
    let read = |case: &Case| {
        assert_eq!(case.read(0..2).expect("read"), case.expected(0..2));
        std::mem::take(&mut case.device.state().writes)
    };
    let flip = |case: &Case| case.device.flip(4, 0);
    // What was written to prepare it, and how many syncs it took to write it.
    let update = |case: &Case, way| {
        let same = [Change { position: 5, bytes: case.expected(5..6) }];
        let choice = UpdateChoice::Only(way);
        let prepared = case.groups.prepare_update(PLACE, &same, &case.sums, NOTHING_CACHED, choice).expect("read");
        let mended = std::mem::take(&mut case.device.state().writes);
        assert_eq!(prepared.mended, case.device.state().syncs == 0 && way == UpdateWay::Delta || !mended.is_empty());
        case.groups.write_update(&prepared).expect("written");
        case.device.state().writes.clear();
        (mended, std::mem::take(&mut case.device.state().syncs))
    };
    flip(&case);
    assert_eq!((read(&case), case.device.state().syncs), (vec![(4, 1)], 0));
    assert_eq!(update(&case, UpdateWay::Delta), (vec![], 1));
    flip(&case);
    assert_eq!(read(&case), [], "it would be torn with the parity that mends it");
    case.groups.sync().expect("synced");
    assert_eq!(read(&case), [(4, 1)]);
    // After a crash nobody knows what was updated. What is wrong is mended first, for the new parity does not have what it was.
    case.groups = groups(&case.device, 10, 3);
    flip(&case);
    case.device.state().soft.extend([3, 6]);
    assert_eq!((read(&case), case.device.state().syncs), (vec![(4, 1)], 1), "it fails softly for the first time");
    case.groups.sync().expect("synced");
    case.device.state().syncs = 0;
    flip(&case);
    assert_eq!(update(&case, UpdateWay::Reencode), (vec![(4, 1)], 1), "and what reads by a retry is left");
}

/// Carries an update out and checks that the group is as if newly written; returns the sectors read for it.
fn update(case: &mut Case, changed: &[u32], choice: UpdateChoice, cached: claystone_group::Cached<'_>) -> u64 {
    case.device.sectors_read();
    let new: Vec<Vec<u8>> = changed.iter().map(|at| sector_pattern(1000 + u64::from(*at), 1)).collect();
    let changes: Vec<Change<'_>> =
        changed.iter().zip(&new).map(|(position, bytes)| Change { position: *position, bytes }).collect();
    let update = case.groups.prepare_update(case.place, &changes, &case.sums, cached, choice).expect("prepared");
    let read = case.device.sectors_read();
    assert!(case.device.state().writes.is_empty(), "nothing is written before it is time");
    case.groups.write_update(&update).expect("written");
    for change in &changes {
        let at = change.position as usize;
        case.data.resize(case.data.len().max((at + 1) * 4096), 0);
        case.data[at * 4096..][..4096].copy_from_slice(change.bytes);
    }
    case.sums.resize(update.place.data as usize, 0);
    for (position, sum) in &update.sums {
        case.sums[*position as usize] = *sum;
    }
    case.place = update.place;
    assert!(
        update.writes.windows(2).all(|pair| pair[0].first.0 + (pair[0].bytes.len() as u64) / 4096 < pair[1].first.0)
    );
    let shape = case.groups.code().shape();
    let mut parity = vec![0; shape.parity as usize * 4096];
    case.groups.code().encode(&sectors(&case.data), &mut parity);
    assert!(update.parity == parity);
    let parity_at = case.place.sector(Member::Parity(0)).0;
    assert!(case.device.content(parity_at..parity_at + u64::from(shape.parity)) == parity, "parity on the device");
    let data_at = case.place.first.0;
    assert!(case.device.content(data_at..data_at + u64::from(case.place.data)) == case.data, "data on the device");
    case.device.quiet();
    read
}

// Test of: [lec §4.3]
#[test]
fn an_append_reads_the_parity_only_and_nothing_if_it_was_kept() {
    let place = GroupPlace { first: Sector(2), data: 100, capacity: 250 };
    let mut case = case(place, 250, 5);
    assert_eq!(update(&mut case, &[100, 101, 102], UpdateChoice::Cheapest, NOTHING_CACHED), 5);
    let parity = case.device.content(252..257);
    let kept = |member| match member {
        Member::Parity(at) => Some(Bytes::copy_from_slice(&parity[at as usize * 4096..][..4096])),
        Member::Data(_) => None,
    };
    // With nothing of its own in memory.
    case.groups = groups(&case.device, 250, 5);
    assert_eq!(update(&mut case, &[103], UpdateChoice::Cheapest, &kept), 0);
    let rest: Vec<u32> = (104..250).collect();
    assert_eq!(update(&mut case, &rest, UpdateChoice::Cheapest, NOTHING_CACHED), 0, "it was written a moment ago");
    assert_eq!(case.read(0..250).expect("read"), case.data);
}

// Test of: [lec §4.3]
#[test]
fn the_cheaper_way_is_taken_and_both_give_the_same() {
    for (changes, cheapest) in [(50u32, 55), (200, 50)] {
        let changed: Vec<u32> = (30..30 + changes).collect();
        let place = GroupPlace { first: Sector(0), data: 250, capacity: 250 };
        let reencode = UpdateChoice::Only(UpdateWay::Reencode);
        let delta = UpdateChoice::Only(UpdateWay::Delta);
        let mut all = [reencode, delta, UpdateChoice::Cheapest].map(|choice| {
            let mut case = case(place, 250, 5);
            u64::from(changes) + update(&mut case, &changed, choice, NOTHING_CACHED)
        });
        all.iter_mut().for_each(|read| *read -= u64::from(changes));
        assert_eq!(all, [u64::from(250 - changes), u64::from(changes + 5), cheapest]);
    }
}

#[test]
fn old_sectors_that_fail_do_not_stop_an_update() {
    for failing in [vec![5], vec![13], vec![3, 4, 15], vec![7, 8, 9, 10]] {
        for choice in
            [UpdateChoice::Cheapest, UpdateChoice::Only(UpdateWay::Reencode), UpdateChoice::Only(UpdateWay::Delta)]
        {
            let mut case = case(PLACE, 10, 3);
            case.device.state().soft.extend(&failing);
            let changes = [Change { position: 2, bytes: &[7; 4096] }, Change { position: 8, bytes: &[8; 4096] }];
            let update =
                case.groups.prepare_update(PLACE, &changes, &case.sums, NOTHING_CACHED, choice).expect("prepared");
            case.groups.write_update(&update).expect("written");
            case.data[2 * 4096..3 * 4096].fill(7);
            case.data.extend([8; 4096]);
            case.sums = sectors(&case.data).into_iter().map(sector_sum).collect();
            let place = GroupPlace { data: 9, ..PLACE };
            assert!(
                case.groups
                    .scrub(place, &case.sums)
                    .expect("scrubbed")
                    .mended
                    .iter()
                    .all(|member| { failing.contains(&place.sector(*member).0) })
            );
            assert!(case.device.content(3..12) == case.data, "{failing:?} {choice:?}");
        }
    }
}

#[test]
fn after_a_crash_groups_are_encoded_again_from_their_data() {
    let mut case = case(PLACE, 10, 3);
    // Parity is torn, and so is the sector that the journal has.
    case.device.flip(13, 0);
    case.device.flip(14, 5);
    case.device.flip(15, 99);
    case.device.overwrite(5, &[3; 4096]);
    // The seven others, and the torn one, which lies between them.
    assert_eq!(update(&mut case, &[2], UpdateChoice::Only(UpdateWay::Reencode), NOTHING_CACHED), 8);
    assert!(case.groups.scrub(PLACE, &case.sums).expect("scrubbed").is_clean());
}

/// A mended sector that a power cut has torn fails softly at first, as any other.
#[test]
fn after_a_crash_what_is_torn_is_mended_before_its_group_is_encoded_again() {
    let case = case(PLACE, 10, 3);
    case.device.state().soft.insert(4);
    case.device.state().lost.insert(7);
    let same = [Change { position: 5, bytes: case.expected(5..6) }];
    let again = UpdateChoice::Only(UpdateWay::Reencode);
    let update = case.groups.prepare_update(PLACE, &same, &case.sums, NOTHING_CACHED, again).expect("read");
    assert_eq!(case.device.state().writes, [(7, 1)], "the other one reads, and is left");
    assert!(update.mended && case.device.state().lost.is_empty());
}

/// Power has gone while an update was written that had not read position 1, which no retry reads.
#[test]
fn after_a_crash_what_does_not_read_is_decoded_from_any_parity_sector_that_is_new_or_from_the_old_ones() {
    for new_parity in [Some(0), Some(1), Some(2), None] {
        let case = case(PLACE, 10, 3);
        let (new, old_parity) = (sector_pattern(9, 1), case.device.content(13..16));
        let changes = [Change { position: 5, bytes: &new }];
        let update = case.groups.prepare_update(PLACE, &changes, &case.sums, NOTHING_CACHED, UpdateChoice::Cheapest);
        case.groups.write_update(&update.expect("read")).expect("written");
        let mut sums = case.sums.clone();
        sums[5] = sector_sum(&new);
        case.device.state().writes.clear();
        case.device.state().lost.insert(4);
        case.device.overwrite(8, &[3; 4096]);
        for (number, old) in (0..).zip(sectors(&old_parity)) {
            match new_parity {
                Some(new) if new == number => {}
                Some(_) => case.device.overwrite(13 + number, &[number as u8; 4096]),
                None => case.device.overwrite(13 + number, old),
            }
        }
        let groups = groups(&case.device, 10, 3);
        let again = UpdateChoice::Only(UpdateWay::Reencode);
        let update = groups.prepare_update(PLACE, &changes, &sums, NOTHING_CACHED, again).expect("decoded");
        let mended = std::mem::take(&mut case.device.state().writes);
        assert!(mended.contains(&(4, 1)) && !mended.contains(&(8, 1)), "what is written anyway is not: {mended:?}");
        groups.write_update(&update).expect("written");
        groups.sync().expect("synced");
        assert!(groups.scrub(PLACE, &sums).expect("scrubbed").is_clean());
        assert!(case.device.content(4..5) == case.expected(1..2));
    }
}

/// More is lost of each group here than its three parity sectors replace.
fn beyond() -> Case {
    let case = case(PLACE, 10, 3);
    case.device.state().lost.extend([4, 5, 8, 10]);
    case
}

/// Prepares an update and writes it.
fn bring(case: &mut Case, changed: &[u32], choice: UpdateChoice) -> Result<UpdateWay, GroupError> {
    let new = sector_pattern(u64::from(changed[0]) + 77, changed.len());
    let changes: Vec<Change<'_>> =
        changed.iter().zip(sectors(&new)).map(|(position, bytes)| Change { position: *position, bytes }).collect();
    let update = case.groups.prepare_update(case.place, &changes, &case.sums, NOTHING_CACHED, choice)?;
    case.groups.write_update(&update).expect("written");
    case.groups.sync().expect("synced");
    for (position, bytes) in changed.iter().zip(sectors(&new)) {
        case.data[*position as usize * 4096..][..4096].copy_from_slice(bytes);
        case.sums[*position as usize] = sector_sum(bytes);
    }
    Ok(update.way)
}

/// Of eight data sectors 1, 2, 5 and 7 are lost: what else changes is added to the parity, be it so many that encoding again would be
/// cheaper, and whether or not it was known before what is lost. When what is lost reads again, the parity fits.
// Test of: [lec §4.3]
#[test]
fn beside_what_is_lost_the_change_is_added() {
    for (changed, known) in [(vec![0], false), (vec![0, 3, 4, 6], false), (vec![0, 3, 4, 6], true)] {
        let mut case = beyond();
        assert!(!known || case.read(0..8).is_err());
        assert_eq!(bring(&mut case, &changed, UpdateChoice::Cheapest).expect("the change is added"), UpdateWay::Delta);
        assert!(case.read(0..1).expect("read") == case.expected(0..1) && case.read(1..2).is_err());
        case.device.state().lost.clear();
        assert!(case.groups.scrub(PLACE, &case.sums).expect("scrubbed").is_clean(), "{changed:?}");
    }
}

/// After a crash the parity may be torn, and nothing is added to it.
#[test]
fn nothing_is_added_to_parity_that_is_not_trusted() {
    let mut case = beyond();
    let error = bring(&mut case, &[0], UpdateChoice::Only(UpdateWay::Reencode)).expect_err("it cannot be encoded");
    assert!(matches!(error, GroupError::Lost { positions, .. } if positions == [1, 2, 5, 7]));
}

#[test]
fn what_no_retry_read_is_not_retried_for_another_update() {
    let mut case = beyond();
    assert!(bring(&mut case, &[1], UpdateChoice::Cheapest).is_err());
    assert_eq!(case.device.retries(), 4, "each of those that are lost, once");
    case.device.state().reads.clear();
    for changed in [1, 2, 5, 7] {
        assert!(bring(&mut case, &[changed], UpdateChoice::Cheapest).is_err());
    }
    assert_eq!((case.device.retries(), case.groups.known_lost()), (0, 4));
    let lost = |read: &(u64, u64, Effort)| [4, 5, 8, 10].iter().any(|at| (read.0..read.0 + read.1).contains(at));
    assert!(!case.device.state().reads.iter().any(lost), "nobody asks the device for them");
    // A reader does, and finds that one reads.
    case.device.state().lost.remove(&5);
    assert!(case.groups.is_known_lost(Sector(5)));
    assert!(case.read(2..3).expect("it reads again") == case.expected(2..3));
    assert_eq!(case.groups.known_lost(), 3);
    assert!(case.read(0..8).expect("with it the others are decoded") == case.data);
    assert!(case.read(0..8).expect("and written when they fail again") == case.data);
    assert_eq!(case.groups.known_lost(), 0);
    assert!(case.groups.scrub(PLACE, &case.sums).expect("scrubbed").is_clean());
}

#[test]
fn what_is_lost_is_known_until_it_is_written() {
    let mut case = beyond();
    assert!(case.read(0..8).is_err());
    assert_eq!(case.groups.known_lost(), 4);
    let way = bring(&mut case, &[1, 2, 5, 7], UpdateChoice::Cheapest).expect("all that is lost is written anew");
    assert_eq!((way, case.groups.known_lost()), (UpdateWay::Reencode, 0));
    assert!(case.groups.scrub(PLACE, &case.sums).expect("scrubbed").is_clean());
    assert!(case.read(0..8).expect("read") == case.data);
}

/// Parity that cannot be made is void: it is no parity for whoever reads, decodes, or adds to it, in memory or on the device, until the group is
/// encoded again.
#[test]
fn void_parity_is_none() {
    let mut case = beyond();
    assert_eq!(bring(&mut case, &[1], UpdateChoice::Only(UpdateWay::Void)).expect("nothing is read"), UpdateWay::Void);
    assert_eq!(case.device.sectors_read(), 0);
    assert!(case.read(0..2).expect("read") == case.expected(0..2));
    let report = case.groups.scrub(PLACE, &case.sums).expect("scrubbed");
    assert_eq!((report.lost, report.parity_void), (vec![2, 5, 7], 3));
    for fresh in [false, true] {
        if fresh {
            case.groups = groups(&case.device, 10, 3);
        }
        assert!(bring(&mut case, &[0], UpdateChoice::Cheapest).is_err(), "nothing to add to");
    }
    // One is lost more, and is not decoded from it.
    case.device.state().lost.clear();
    case.device.state().lost.insert(4);
    let lost = case.read(0..8).expect_err("it was the only one of its bytes");
    assert!(matches!(lost, GroupError::Lost { positions, .. } if positions == [1]));
    assert_eq!(bring(&mut case, &[1], UpdateChoice::Cheapest).expect("encoded"), UpdateWay::Reencode);
    assert!(case.groups.scrub(PLACE, &case.sums).expect("scrubbed").is_clean());
    case.device.state().lost.extend([4, 5, 6]);
    assert!(case.read(0..8).expect("decoded") == case.data);
}

/// When all data reads again, a scrub makes parity of it.
#[test]
fn a_scrub_makes_parity_where_it_is_void() {
    let mut case = beyond();
    bring(&mut case, &[1], UpdateChoice::Only(UpdateWay::Void)).expect("nothing is read");
    case.device.state().lost.clear();
    let mended = case.groups.scrub(PLACE, &case.sums).expect("scrubbed").mended;
    assert_eq!(mended, [Member::Parity(0), Member::Parity(1), Member::Parity(2)]);
    assert!(case.groups.scrub(PLACE, &case.sums).expect("scrubbed").is_clean());
}

#[test]
fn groups_without_parity_are_updated_without_a_read() {
    let mut case = case(PLACE, 10, 0);
    assert_eq!(update(&mut case, &[1, 2, 5, 8], UpdateChoice::Cheapest, NOTHING_CACHED), 0);
}

#[test]
fn two_rotten_parity_sectors_are_found_by_the_others() {
    let case = case(GroupPlace { first: Sector(1), data: 7, capacity: 7 }, 7, 5);
    case.device.state().soft.insert(1);
    case.device.flip(8, 8);
    case.device.flip(9, 9);
    assert_eq!(case.read(0..1).expect("decoded"), case.expected(0..1));
    assert_eq!(case.device.retries(), 0);
    // What was wrong is written again by a scrub, if not before.
    assert!(case.groups.scrub(case.place, &case.sums).expect("scrubbed").lost.is_empty());
    assert!(case.groups.scrub(case.place, &case.sums).expect("scrubbed").is_clean());
}

#[test]
fn as_many_rotten_parity_sectors_as_can_be_spared_are_left_out() {
    // Of five parity sectors some are wrong, whichever, and so much data is lost that the others just suffice.
    for wrong in 0u64..1 << 5 {
        let case = case(GroupPlace { first: Sector(1), data: 7, capacity: 7 }, 7, 5);
        (0..5).filter(|at| wrong >> at & 1 == 1).for_each(|at| case.device.flip(8 + at, 70 + 800 * at as usize));
        let lost = u64::from(5 - wrong.count_ones());
        case.device.state().lost.extend(2..2 + lost);
        assert_eq!(case.read(0..7).expect("decoded"), case.data, "{wrong:05b}");
        // What nobody looked at is found by a scrub.
        assert!(case.groups.scrub(case.place, &case.sums).expect("scrubbed").lost.is_empty());
        assert!(case.groups.scrub(case.place, &case.sums).expect("scrubbed").is_clean(), "{wrong:05b}");
        // One more is too many.
        (0..5).filter(|at| wrong >> at & 1 == 1).for_each(|at| case.device.flip(8 + at, 90 + 800 * at as usize));
        case.device.state().lost.extend(1..2 + lost);
        assert!(case.read(0..7).is_err(), "{wrong:05b}");
    }
}

#[test]
fn wrong_parity_for_which_the_code_names_others_is_tried_a_bounded_time() {
    // Two wrong bits in one byte of two sectors look like one wrong byte of a third.
    let case = case(GroupPlace { first: Sector(1), data: 7, capacity: 7 }, 7, 5);
    for (one, other) in (0..5).flat_map(|one| (0..one).map(move |other| (one, other))) {
        for bit in 0..8 {
            case.device.flip(8 + one, bit);
            case.device.flip(8 + other, 7 - bit);
            case.device.state().lost.extend(2..5);
            assert_eq!(case.read(0..7).expect("decoded"), case.data, "{one} and {other}, bit {bit}");
            case.groups.scrub(case.place, &case.sums).expect("scrubbed");
        }
    }
}

#[test]
fn what_a_retry_does_not_read_is_written_again_at_once() {
    let case = case(PLACE, 10, 3);
    case.device.state().lost.extend([3, 4]);
    case.device.state().soft.extend([5, 6]);
    assert_eq!(case.read(0..8).expect("read"), case.data);
    let retried: BTreeSet<u64> =
        case.device.state().reads.iter().filter(|read| read.2 == Effort::Retry).map(|read| read.0).collect();
    let state = case.device.state();
    assert!(retried.contains(&3), "{retried:?}");
    assert!(retried.iter().all(|sector| !state.lost.contains(sector)), "{retried:?}, lost {:?}", state.lost);
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    Soft,
    Lost,
    Flip,
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![12 => Just(Fault::None), 2 => Just(Fault::Soft), 1 => Just(Fault::Lost), 1 => Just(Fault::Flip)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever fails: what is returned is right; up to m failures nothing is lost; what is not retriable and beyond is.
    #[test]
    fn a_read_is_right_or_names_what_is_lost(
        k in 1u32..24, m in 0u32..6, data in 1u32..24, room in 0u32..4, first in 0u32..24, count in 1u32..24,
        faults in prop::collection::vec(fault(), 32), long in prop::bool::weighted(0.1),
    ) {
        // Now and then a code over the larger field.
        let (k, m) = if long { (260 + k, m) } else { (k, m) };
        let data = data.min(k);
        let capacity = (data + room).min(k);
        let place = GroupPlace { first: Sector(1), data, capacity };
        let case = case(place, k, m);
        let members = (0..data).map(Member::Data).chain((0..m).map(Member::Parity));
        let (mut bad, mut retried) = (0, 0);
        for (member, fault) in members.zip(faults) {
            let sector = place.sector(member).0;
            match fault {
                Fault::None => continue,
                Fault::Soft => drop(case.device.state().soft.insert(sector)),
                Fault::Lost => drop(case.device.state().lost.insert(sector)),
                Fault::Flip => case.device.flip(sector, sector as usize),
            }
            bad += 1;
            // What is read by retrying is read so again, while more than one parity sector is rotten.
            retried += if fault == Fault::Flip && matches!(member, Member::Parity(_)) { 2 } else { 1 };
        }
        let first = first % data;
        let wanted = first..data.min(first + count);
        let mut into = vec![0xee; wanted.len() * 4096];
        let result = case.groups.read(place, wanted.clone(), &case.sums, NOTHING_CACHED, &mut into);
        let lost = match result {
            Ok(()) => vec![],
            Err(GroupError::Lost { positions, .. }) => positions,
            Err(other) => panic!("{other}"),
        };
        prop_assert!(bad > m || lost.is_empty(), "{} bad of {}, lost {:?}", bad, m, lost);
        for (at, found) in wanted.zip(sectors(&into)) {
            let expected = if lost.contains(&at) { &[0; 4096] } else { case.expected(at..at + 1) };
            prop_assert!(found == expected, "position {}", at);
        }
        // A second read finds what the first one mended.
        if retried <= m && m > 0 {
            case.device.state().reads.clear();
            let all: Vec<u8> = case.read(0..data).expect("mended");
            prop_assert!(all == case.data);
            prop_assert_eq!(case.device.retries(), 0);
        }
    }

    /// Whatever is lost, whatever is updated and how: what reads has the bytes that were brought there last, and what was lost is named.
    #[test]
    fn updates_beside_what_is_lost_leave_right_bytes_or_name_what_is_lost(
        k in 2u32..12, m in 1u32..4, lost in prop::collection::btree_set(0u32..16, 0..8),
        steps in prop::collection::vec((prop::collection::btree_set(0u32..12, 1..5), 0usize..5), 1..6),
    ) {
        let mut case = case(GroupPlace { first: Sector(4), data: k, capacity: k }, k, m);
        let lost: Vec<u32> = lost.into_iter().filter(|at| *at < k + m).collect();
        case.device.state().lost.extend(lost.iter().map(|at| 4 + u64::from(*at)));
        // Only what was lost at first, was not written since, and had no parity to be made good from may be gone.
        let mut gone: BTreeSet<u32> = lost.iter().copied().filter(|at| *at < k && lost.len() > m as usize).collect();
        let (mut is_void, hopeless) = (false, lost.len() > m as usize);
        for (changed, way) in steps {
            let changed: Vec<u32> = changed.into_iter().filter(|at| *at < k).collect();
            if changed.is_empty() {
                continue;
            }
            let choice = match way {
                0 => UpdateChoice::Only(UpdateWay::Reencode),
                1 if hopeless => UpdateChoice::Only(UpdateWay::Void),
                _ => UpdateChoice::Cheapest,
            };
            match bring(&mut case, &changed, choice) {
                Ok(way) => {
                    prop_assert!(way != UpdateWay::Delta || !is_void);
                    is_void = way == UpdateWay::Void;
                    gone.retain(|at| !changed.contains(at));
                }
                Err(GroupError::Lost { .. }) => prop_assert!(hopeless),
                Err(other) => panic!("{other}"),
            }
            for at in 0..k {
                match case.read(at..at + 1) {
                    Ok(bytes) => prop_assert!(bytes == case.expected(at..at + 1), "position {}", at),
                    Err(_) => prop_assert!(gone.contains(&at), "position {}", at),
                }
            }
        }
        // What was lost reads again: nothing is wrong, nor is parity that a scrub leaves.
        case.device.state().lost.clear();
        case.groups.scrub(case.place, &case.sums).expect("scrubbed");
        prop_assert!(case.groups.scrub(case.place, &case.sums).expect("scrubbed").is_clean());
        prop_assert!(case.read(0..k).expect("read") == case.data);
    }

    /// Updates in any order, by any way, with faults that mending bears: data and parity are as if newly written.
    #[test]
    fn updates_leave_a_group_as_if_newly_written(
        k in 2u32..20, m in 0u32..5, data in 1u32..20,
        steps in prop::collection::vec((prop::collection::btree_set(0u32..20, 1..6), 0usize..3, 0u32..30), 1..5),
    ) {
        let data = data.min(k);
        let mut case = case(GroupPlace { first: Sector(4), data, capacity: k }, k, m);
        for (changed, way, failing) in steps {
            // New positions follow the old ones without a gap.
            let old: Vec<u32> = changed.iter().copied().filter(|at| *at < case.place.data).collect();
            let new = (case.place.data..k).take(changed.len() - old.len());
            let changed: Vec<u32> = old.into_iter().chain(new).collect();
            if changed.is_empty() {
                continue;
            }
            if m > 0 && failing < case.place.data {
                case.device.state().soft.insert(4 + u64::from(failing));
            }
            let choice = [UpdateChoice::Cheapest, UpdateChoice::Only(UpdateWay::Reencode), UpdateChoice::Only(UpdateWay::Delta)][way];
            let new: Vec<u8> = sector_pattern(u64::from(failing) + 50, changed.len());
            let changes: Vec<Change<'_>> =
                changed.iter().zip(sectors(&new)).map(|(position, bytes)| Change { position: *position, bytes }).collect();
            let update = case.groups.prepare_update(case.place, &changes, &case.sums, NOTHING_CACHED, choice).expect("prepared");
            case.groups.write_update(&update).expect("written");
            case.device.quiet();
            case.place = update.place;
            case.data.resize(case.place.data as usize * 4096, 0);
            for change in &changes {
                case.data[change.position as usize * 4096..][..4096].copy_from_slice(change.bytes);
            }
            case.sums = sectors(&case.data).into_iter().map(sector_sum).collect();
            let fits = |(change, (at, sum)): (&Change<'_>, &(u32, u32))| {
                change.position == *at && case.sums[*at as usize] == *sum
            };
            prop_assert!(changes.iter().zip(&update.sums).all(fits));
            prop_assert!(case.groups.scrub(case.place, &case.sums).expect("scrubbed").is_clean());
            prop_assert!(case.read(0..case.place.data).expect("read") == case.data);
        }
    }
}
