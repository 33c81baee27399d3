//! Bulk runs: streams are read in one stride, sums sectors mend themselves from their groups.

mod support;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use claystone_env::testing::sector_pattern;
use claystone_env::{Effort, Sector};
use claystone_group::{
    BulkRun, Change, GroupChanges, GroupError, GroupPlace, GroupShape, Groups, Known, Member, ShownRun, SumsSector,
    UpdateChoice, UpdateWay, sector_sum,
};
use proptest::prelude::*;
use support::{DISK, FaultyDevice, groups, sectors};

const SHAPE: GroupShape = GroupShape { data: 250, parity: 5 };

struct Case {
    device: Arc<FaultyDevice>,
    groups: Groups,
    shape: GroupShape,
    run: BulkRun,
    data: Vec<u8>,
}

fn case(k: u32, m: u32, count: u32) -> Case {
    let shape = GroupShape { data: k, parity: m };
    let run = BulkRun { first: Sector(2), data: count * k };
    let device = FaultyDevice::new(2 + BulkRun::sectors_total(count, shape) + 1);
    let data = sector_pattern(7, run.data as usize);
    groups(&device, k, m).write_bulk(run, &sectors(&data)).expect("written");
    device.quiet();
    // Nothing is in memory.
    let groups = groups(&device, k, m);
    Case { device, groups, shape, run, data }
}

impl Case {
    fn read(&self, wanted: Range<u64>) -> Result<Vec<u8>, GroupError> {
        let mut into = vec![0xee; (wanted.end - wanted.start) as usize * 4096];
        self.groups.read_bulk(self.run, wanted, &|_| None, &mut into).map(|()| into)
    }

    fn expected(&self, wanted: Range<u64>) -> &[u8] {
        &self.data[wanted.start as usize * 4096..wanted.end as usize * 4096]
    }

    fn sector(&self, group: u32, member: Member) -> u64 {
        self.run.group(group, self.shape).sector(member).0
    }

    fn sums(&self, number: u32) -> u64 {
        self.run.sums(number, self.shape).0
    }

    fn assert_as_written(&self) {
        let fresh = case(self.shape.data, self.shape.parity, self.run.groups(self.shape));
        let all = 0..2 + BulkRun::sectors_total(self.run.groups(self.shape), self.shape) + 1;
        assert!(self.device.content(all.clone()) == fresh.device.content(all));
    }
}

#[test]
fn the_bytes_of_a_run_are_pinned() {
    let case = case(250, 5, 5);
    assert_eq!(BulkRun::sectors_total(5, case.shape), 5 * 255 + 2);
    let image = blake3::hash(&case.device.content(0..1280)).to_hex();
    assert_eq!(image.as_str(), "21d8c00a9a60c42197fdb6f2e8ddf8b19fb229fe0aa604ec8780052e29612d16");
    assert_eq!(case.device.content(0..2), vec![0; 8192]);
    assert_eq!(case.device.content(1279..1280), vec![0; 4096]);
    let sums = case.device.content(2..3);
    let parsed = SumsSector::parse(&sums, DISK, Sector(2)).expect("a sums sector");
    assert_eq!(parsed, SumsSector::of(&sectors(&case.data)[..1020]));
}

#[test]
fn a_run_is_written_in_long_strides() {
    let device = FaultyDevice::new(6000);
    let groups = groups(&device, 250, 5);
    let data = sector_pattern(1, 20 * 250);
    let run = BulkRun { first: Sector(0), data: 5000 };
    groups.write_bulk(run, &sectors(&data)).expect("written");
    let mut writes = device.state().writes.clone();
    let sums = writes.split_off(writes.len() - 5);
    assert!(sums.iter().zip(0..).all(|(sums, number)| *sums == (run.sums(number, SHAPE).0, 1)), "{sums:?}");
    // What is between them.
    assert!(writes.len() <= 5 && writes.windows(2).all(|pair| pair[0].0 + pair[0].1 + 1 == pair[1].0), "{writes:?}");
    // Sums are in memory now.
    device.quiet();
    let mut into = vec![0; 4096];
    groups.read_bulk(run, 4000..4001, &|_| None, &mut into).expect("read");
    assert_eq!((into, device.sectors_read()), (data[4000 * 4096..4001 * 4096].to_vec(), 1));
    let fresh = support::groups(&device, 250, 5);
    fresh.read_bulk(run, 4000..4001, &|_| None, &mut [0; 4096]).expect("read");
    assert_eq!(device.sectors_read(), 2);
}

#[test]
fn what_a_lost_write_leaves_of_an_earlier_run_is_not_read() {
    let mut lost = 0;
    // Data in two writes, data, and two sums sectors.
    for write in 0..5 {
        let case = case(10, 2, 150);
        let new = sector_pattern(8, case.data.len() / 4096);
        case.device.state().loses_write = Some(write);
        groups(&case.device, 10, 2).write_bulk(case.run, &sectors(&new)).expect("nothing is seen of it");
        assert_eq!(case.device.state().writes.len(), 5);
        for (first, expected) in (0..).step_by(10).zip(new.chunks(10 * 4096)) {
            match case.read(first..first + 10) {
                Ok(found) => assert!(found == expected, "write {write}, from {first} on"),
                Err(error) => {
                    assert!(matches!(error, GroupError::Lost { .. }), "{error}");
                    lost += 1;
                }
            }
        }
    }
    // Each group once with its data, and once with its sums.
    assert_eq!(lost, 2 * 150);
}

// Test of: [lec §3.2]
#[test]
fn a_stream_is_one_stride_over_data_parity_and_sums() {
    let case = case(250, 5, 10);
    assert_eq!(case.read(0..2500).expect("read"), case.data);
    let reads = case.device.state().reads.clone();
    assert_eq!(reads.len(), 1 + 10 + 9, "sums, then data and what is between it");
    assert!(reads.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0), "{reads:?}");
    let total = BulkRun::sectors_total(10, case.shape);
    assert_eq!(case.device.sectors_read(), total - 5, "but the last parity");
}

// Test of: [lec §3.1]
#[test]
fn a_stream_mends_without_a_further_read() {
    let case = case(250, 5, 10);
    for group in 0..9 {
        let failing = (0..5).map(|at| case.sector(group, Member::Data(at * 50 + group)));
        case.device.state().soft.extend(failing);
    }
    assert_eq!(case.read(0..2500).expect("read"), case.data);
    let total = BulkRun::sectors_total(10, case.shape);
    assert_eq!(case.device.sectors_read(), total - 5);
    let counts = case.groups.statistics().now();
    assert_eq!((counts.mended, counts.retries, counts.soft_failures), (45, 0, 45));
    assert_eq!(case.read(0..2500).expect("read"), case.data);
    assert!(case.device.state().soft.is_empty(), "what fails twice is written again");
    case.assert_as_written();
}

#[test]
fn one_sector_takes_its_sums_and_a_failure_its_group() {
    let case = case(250, 5, 10);
    assert_eq!(case.read(1300..1301).expect("read"), case.expected(1300..1301));
    let sums = (case.sums(1), 1, Effort::FailFast);
    let sector = (case.sector(5, Member::Data(50)), 1, Effort::FailFast);
    assert_eq!(case.device.state().reads, [sums, sector]);
    assert_eq!(case.device.state().calls, 1);
    case.device.quiet();
    case.device.state().soft.insert(sector.0);
    assert_eq!(case.read(1300..1301).expect("read"), case.expected(1300..1301));
    assert_eq!(case.device.sectors_read(), 1 + 254);
    case.device.state().soft.insert(sector.0);
    let all = |at: u64| Some(Bytes::copy_from_slice(case.expected(at..at + 1))).filter(|_| at != 1300);
    let mut into = vec![0; 4096];
    case.groups.read_bulk(case.run, 1300..1301, &all, &mut into).expect("read");
    assert_eq!((&into[..], case.device.sectors_read()), (case.expected(1300..1301), 1 + 5));
}

#[test]
fn a_lost_sums_sector_is_learnt_by_streaming_past() {
    for damage in 0..2 {
        let case = case(250, 5, 10);
        match damage {
            0 => case.device.state().lost.extend([case.sums(0), case.sums(1)]),
            _ => case.device.flip(case.sums(1), 20_000),
        }
        // With failures beside it.
        case.device.state().soft.extend([case.sector(4, Member::Data(9)), case.sector(4, Member::Data(30))]);
        case.device.flip(case.sector(6, Member::Data(7)), 30_000);
        assert_eq!(case.read(0..2500).expect("read"), case.data);
        let counts = case.groups.statistics().now();
        // Before it is decoded, each sums sector is retried once, and what failed softly.
        assert_eq!((counts.sums_learnt, counts.retries), (2 - damage, 4 - damage));
        let total = BulkRun::sectors_total(10, case.shape);
        // The last group's parity is only read where it is needed, and each sums sector twice more.
        assert!(case.device.sectors_read() <= total + 1);
        assert!(case.device.state().lost.is_empty());
        case.assert_as_written();
    }
}

#[test]
fn under_a_lost_sums_sector_a_group_vouches_for_a_sector() {
    let case = case(250, 5, 10);
    case.device.state().lost.insert(case.sums(1));
    case.device.flip(case.sector(6, Member::Data(17)), 5);
    assert_eq!(case.read(1517..1518).expect("read"), case.expected(1517..1518));
    // Nothing else says which sector is wrong, so the sums sector is read again, and retried.
    assert_eq!(case.device.retries(), 1);
    assert_eq!(case.device.sectors_read(), 1 + 255 + 2);
    // Its sums are known now.
    assert_eq!(case.read(1600..1601).expect("read"), case.expected(1600..1601));
    assert_eq!(case.device.sectors_read(), 1);
}

#[test]
fn where_a_group_cannot_vouch_the_sums_sector_is_retried() {
    let case = case(250, 5, 10);
    case.device.state().soft.insert(case.sums(1));
    let failing: Vec<u64> = (0..5).map(|at| case.sector(6, Member::Data(at))).collect();
    case.device.state().soft.extend(&failing);
    assert_eq!(case.read(1500..1510).expect("read"), case.expected(1500..1510));
    assert_eq!(case.device.retries(), 1);
    // Where that fails too, the group is retried until it can.
    let case = self::case(250, 5, 10);
    case.device.state().lost.insert(case.sums(1));
    case.device.state().soft.extend(&failing);
    assert_eq!(case.read(1500..1510).expect("read"), case.expected(1500..1510));
    assert_eq!(case.device.retries(), 1 + 5);
    // Stale parity vouches for nothing.
    let case = self::case(250, 5, 10);
    case.device.state().lost.insert(case.sums(1));
    (0..5).for_each(|at| case.device.flip(case.sector(6, Member::Parity(at)), 3 + 9 * at as usize));
    let mut into = vec![0xee; 40960];
    let error = case.groups.read_bulk(case.run, 1500..1510, &|_| None, &mut into).expect_err("nobody vouches");
    assert!(matches!(error, GroupError::Lost { positions, .. } if positions == Vec::from_iter(0..10)));
    assert_eq!(into, vec![0; 40960]);
}

#[test]
fn what_is_not_lost_is_there_where_sums_are_known_by_a_retry() {
    let case = case(250, 5, 10);
    case.device.state().soft.insert(case.sums(1));
    case.device.state().lost.extend((0..5).map(|at| case.sector(6, Member::Data(at))));
    // Read, but not as its sum wants it.
    case.device.flip(case.sector(6, Member::Data(7)), 3);
    let mut into = vec![0xee; 40960];
    let error = case.groups.read_bulk(case.run, 1500..1510, &|_| None, &mut into).expect_err("six of 255");
    assert!(matches!(error, GroupError::Lost { positions, .. } if positions == [0, 1, 2, 3, 4, 7]));
    let mut expected = case.expected(1500..1510).to_vec();
    [0, 1, 2, 3, 4, 7].into_iter().for_each(|at: usize| expected[at * 4096..][..4096].fill(0));
    assert!(into == expected);
}

/// One write that a drive loses is all parity of an update.
#[test]
fn under_parity_whose_writing_was_lost_a_sums_sector_is_retried() {
    for changed_fails in [false, true] {
        let case = case(250, 5, 10);
        let parity = case.sector(6, Member::Parity(0));
        let before = case.device.content(parity..parity + 5);
        let new = sector_pattern(9, 1);
        let update = case.groups.prepare_bulk_update(case.run, &[changes_at(6, 17, &new)], UpdateChoice::Cheapest);
        case.groups.write_bulk_update(&update.expect("read")).expect("written");
        case.groups.sync().expect("synced");
        (parity..).zip(before.chunks(4096)).for_each(|(at, bytes)| case.device.overwrite(at, bytes));
        // With nothing in memory.
        let groups = groups(&case.device, 250, 5);
        case.device.state().soft.insert(case.sums(1));
        if changed_fails {
            case.device.state().soft.insert(case.sector(6, Member::Data(17)));
        }
        let mut into = vec![0xee; 4096];
        groups.read_bulk(case.run, 1517..1518, &|_| None, &mut into).expect("read");
        assert!(into == new, "the parity decodes what was there before");
        groups.scrub_bulk(case.run, 6).expect("scrubbed");
        assert!(groups.scrub_bulk(case.run, 6).expect("scrubbed").is_clean());
        let place = case.sector(6, Member::Data(17));
        assert!(case.device.content(place..place + 1) == new);
    }
}

#[test]
fn a_sums_sector_that_fails_once_is_read_again_and_not_retried() {
    let case = case(250, 5, 10);
    case.device.state().soft_once.insert(case.sums(1));
    assert_eq!(case.read(0..2500).expect("read"), case.data);
    let sums = case.sums(1);
    let reads: Vec<_> = case.device.state().reads.iter().copied().filter(|read| read.0 == sums).collect();
    assert_eq!(
        (case.device.retries(), reads),
        (0, vec![(sums, 1, Effort::FailFast)]),
        "the first time it was on the way"
    );
    // Who cannot be told not to retry has done so.
    let case = self::case(250, 5, 10);
    case.device.state().retries_itself = true;
    case.device.state().lost.insert(case.sums(1));
    assert_eq!(case.read(1500..1510).expect("read"), case.expected(1500..1510));
    let efforts: Vec<Effort> =
        case.device.state().reads.iter().filter(|read| read.0 == case.sums(1)).map(|read| read.2).collect();
    assert_eq!(efforts, [Effort::FailFast, Effort::Retry]);
}

/// Data that ends a group and its parity are one write. What is left of it is a codeword.
#[test]
fn a_group_whose_writing_was_lost_does_not_vouch_for_itself_before_its_sums_are_retried() {
    let case = case(250, 5, 10);
    let last = case.sector(6, Member::Data(249));
    let before = case.device.content(last..last + 6);
    let new = sector_pattern(9, 1);
    let update = case.groups.prepare_bulk_update(case.run, &[changes_at(6, 249, &new)], UpdateChoice::Cheapest);
    case.groups.write_bulk_update(&update.expect("read")).expect("written");
    (last..).zip(before.chunks(4096)).for_each(|(at, bytes)| case.device.overwrite(at, bytes));
    let groups = groups(&case.device, 250, 5);
    case.device.state().soft.insert(case.sums(1));
    let mut into = vec![0xee; 4096];
    let read = groups.read_bulk(case.run, 1749..1750, &|_| None, &mut into);
    assert!(read.is_err() && into == [0; 4096], "what was there before is not what was written");
}

/// A device that was discarded reads as zeros, which are a codeword: what was there is lost, and not zeros.
#[test]
fn groups_of_zeros_do_not_vouch_under_a_sums_sector_of_zeros() {
    let zeros = vec![0; 4096];
    let case = case(250, 5, 10);
    let (first, end) = (case.sums(1), case.sector(8, Member::Data(0)) - 1);
    (first..end).for_each(|at| case.device.overwrite(at, &zeros));
    let mut into = vec![0xee; 4 * 4096];
    for _ in 0..2 {
        let error = case.groups.read_bulk(case.run, 1500..1504, &|_| None, &mut into).expect_err("it is lost");
        assert!(matches!(error, GroupError::Lost { positions, .. } if positions == [0, 1, 2, 3]));
    }
    for group in 4..8 {
        let report = case.groups.scrub_bulk(case.run, group).expect("scrubbed");
        assert_eq!(report.lost, Vec::from_iter(0..250), "group {group}");
    }
    assert_eq!(case.device.content(case.sums(1)..case.sums(1) + 1), zeros, "the evidence stays");
    assert_eq!(case.read(0..1000).expect("others are there"), case.expected(0..1000));

    // Zeros that were written are right, and known again where their sums sector does not read.
    let shape = GroupShape { data: 250, parity: 5 };
    let run = BulkRun { first: Sector(2), data: 1000 };
    let device = FaultyDevice::new(2 + BulkRun::sectors_total(4, shape) + 1);
    groups(&device, 250, 5).write_bulk(run, &sectors(&vec![0; 1000 * 4096])).expect("written");
    device.state().lost.insert(run.sums(0, shape).0);
    groups(&device, 250, 5).read_bulk(run, 0..4, &|_| None, &mut into).expect("they vouch");
    assert!(into == [0; 4 * 4096]);
}

#[test]
fn without_parity_a_lost_sums_sector_loses_its_data() {
    let case = case(250, 0, 5);
    case.device.state().soft.insert(case.sums(0));
    assert_eq!(case.read(0..1250).expect("read"), case.data);
    let case = self::case(250, 0, 5);
    case.device.state().lost.insert(case.sums(1));
    assert_eq!(case.read(0..1000).expect("read"), case.expected(0..1000));
    assert!(matches!(case.read(1000..1250), Err(GroupError::Lost { .. })));
}

#[test]
fn a_scrub_of_all_groups_mends_everything() {
    let case = case(250, 5, 10);
    for group in 0..10 {
        assert!(case.groups.scrub_bulk(case.run, group).expect("scrubbed").is_clean());
    }
    assert!(case.device.state().writes.is_empty());
    let damage = |case: &Case| {
        case.device.state().lost.extend([
            case.sums(2),
            case.sector(3, Member::Parity(4)),
            case.sector(9, Member::Data(0)),
        ]);
        case.device.flip(case.sums(0), 11);
        case.device.flip(case.sector(0, Member::Parity(1)), 11);
        case.device.flip(case.sector(5, Member::Data(249)), 11);
    };
    damage(&case);
    let reports: Vec<_> = (0..10).map(|group| case.groups.scrub_bulk(case.run, group).expect("scrubbed")).collect();
    assert_eq!(reports[9].mended, [Member::Data(0)]);
    assert_eq!((&reports[3].mended[..], &reports[0].mended[..]), (&[Member::Parity(4)][..], &[Member::Parity(1)][..]));
    assert!(
        reports[0].sums_mended
            && reports[8].sums_mended
            && reports.iter().filter(|report| report.sums_mended).count() == 2
    );
    case.assert_as_written();
    // The same with nothing in memory.
    let case = self::case(250, 5, 10);
    damage(&case);
    (0..10).for_each(|group| drop(case.groups.scrub_bulk(case.run, group).expect("scrubbed")));
    assert_eq!(case.groups.statistics().now().sums_learnt, 2);
    case.assert_as_written();
}

// Test of: [lec §4.3]
#[test]
fn without_a_bridge_an_update_reads_what_it_needs_and_no_more() {
    for (bridge, bridged) in [(0, 0), (7, 0), (8, 8), (16, 8)] {
        let case = case(250, 5, 10);
        let groups = groups(&case.device, 250, 5).with_bridge(bridge);
        let new = sector_pattern(99, 3);
        // 8 sectors lie between data 10 and 19, and 229 between data 20 and the parity.
        let changes: Vec<Change<'_>> =
            [10, 19, 20].into_iter().zip(sectors(&new)).map(|(position, bytes)| Change { position, bytes }).collect();
        let changes = [GroupChanges { group: 2, changes }];
        groups.prepare_bulk_update(case.run, &changes, UpdateChoice::Cheapest).expect("prepared");
        assert_eq!(case.device.sectors_read(), 1 + 3 + 5 + bridged, "sums, old data, parity, and what is bridged");
        assert_eq!(groups.statistics().sectors_bridged(), bridged);
    }
}

#[test]
fn an_update_changes_groups_and_sums_together() {
    let mut case = case(250, 5, 10);
    // Group 4 has data sectors 1000..1250, under sums sectors 0 and 1; group 6 has 1500..1750, under 1.
    let new = sector_pattern(99, 4);
    let change = |(position, bytes)| Change { position, bytes };
    let mut bytes = sectors(&new).into_iter();
    let changes = [(4, vec![16, 19, 20]), (6, vec![7])].map(|(group, positions)| GroupChanges {
        group,
        changes: positions.into_iter().zip(&mut bytes).map(change).collect(),
    });
    let update = case.groups.prepare_bulk_update(case.run, &changes, UpdateChoice::Cheapest).expect("prepared");
    let sums: Vec<_> = update.sums.iter().map(|sums| (sums.place.0, sums.differs)).collect();
    assert_eq!(sums, [(case.sums(0), true), (case.sums(1), true)]);
    assert_eq!(case.device.state().calls, 2, "both sums sectors, and then what is needed");
    let read = case.device.sectors_read();
    assert_eq!(read, 2 + 3 + 5 + 2 + 1 + 5, "sums, old data, parity, and what lies between the data");
    case.groups.write_bulk_update(&update).expect("written");
    for GroupChanges { group, changes } in &changes {
        for change in changes {
            case.data[(group * 250 + change.position) as usize * 4096..][..4096].copy_from_slice(change.bytes);
        }
    }
    assert!(case.read(0..2500).expect("read") == case.data);
    let fresh = groups(&case.device, 250, 5);
    for group in 0..10 {
        assert!(fresh.scrub_bulk(case.run, group).expect("scrubbed").is_clean(), "group {group}");
    }
    // The same again changes no sums.
    let update = case.groups.prepare_bulk_update(case.run, &changes, UpdateChoice::Cheapest).expect("prepared");
    assert!(update.sums.iter().all(|sums| !sums.differs));
}

#[test]
fn an_update_of_many_groups_decodes_what_fails_in_one() {
    let mut case = case(250, 5, 10);
    let new = sector_pattern(98, 3);
    let changes: Vec<GroupChanges<'_>> = [1, 2, 7]
        .into_iter()
        .zip(sectors(&new))
        .map(|(group, bytes)| GroupChanges { group, changes: vec![Change { position: 40, bytes }] })
        .collect();
    // The old data that the second takes, and a parity sector of the third.
    let place = |group, member| case.run.group(group, case.groups.code().shape()).sector(member).0;
    let (old, parity) = (place(2, Member::Data(40)), place(7, Member::Parity(3)));
    case.device.state().soft.extend([old, parity]);
    let update = case.groups.prepare_bulk_update(case.run, &changes, UpdateChoice::Cheapest).expect("prepared");
    let ways: Vec<UpdateWay> = update.updates.iter().map(|update| update.way).collect();
    assert_eq!(ways, [UpdateWay::Delta, UpdateWay::Reencode, UpdateWay::Reencode]);
    case.groups.write_bulk_update(&update).expect("written");
    case.device.state().soft.clear();
    for GroupChanges { group, changes } in &changes {
        case.data[(group * 250 + 40) as usize * 4096..][..4096].copy_from_slice(changes[0].bytes);
    }
    assert!(case.read(0..2500).expect("read") == case.data);
    let fresh = groups(&case.device, 250, 5);
    assert!((0..10).all(|group| fresh.scrub_bulk(case.run, group).expect("scrubbed").is_clean()));
}

#[test]
fn sums_for_an_update_come_from_the_groups_if_they_must() {
    let case = case(250, 5, 10);
    case.device.state().lost.insert(case.sums(1));
    let expected = SumsSector::of(&sectors(&case.data)[1020..2040]);
    assert_eq!(case.groups.sums_sector(case.run, 1).expect("learnt"), expected);
    assert_eq!(case.device.retries(), 1, "of the sums sector");
    case.assert_as_written();
}

/// As after a crash in the middle of an update, whose sums were written first.
#[test]
fn what_changes_need_not_be_read_where_its_sums_are() {
    let case = case(250, 5, 10);
    let new = sector_pattern(9, 5);
    let changes: Vec<Change<'_>> =
        (0..).zip(new.chunks(4096)).map(|(at, bytes)| Change { position: 40 + at, bytes }).collect();
    let mut sums = SumsSector::of(&sectors(&case.data)[1020..2040]);
    for Change { position, bytes } in &changes {
        sums.set((6 * 250 + position - 1020) as usize, sector_sum(bytes));
    }
    case.device.overwrite(case.sums(1), &sums.encode(DISK, Sector(case.sums(1))));
    (0..5).for_each(|at| case.device.flip(case.sector(6, Member::Parity(at)), 3 + 9 * at as usize));
    // They do not read at once.
    case.device.state().soft.insert(case.sums(1));
    let update = [GroupChanges { group: 6, changes }];
    let only = UpdateChoice::Only(UpdateWay::Reencode);
    let update = case.groups.prepare_bulk_update(case.run, &update, only).expect("nothing is lost");
    case.groups.write_bulk_update(&update).expect("written");
    for group in 0..10 {
        let report = case.groups.scrub_bulk(case.run, group).expect("scrubbed");
        assert!(report.is_clean(), "group {group}: {report:?}");
    }
    assert_eq!(case.read(1540..1545).expect("read"), new);
}

/// Power has gone while an update was written, and a sector that it had not read no retry reads.
#[test]
fn after_a_crash_one_new_parity_sector_makes_good_what_an_update_did_not_read() {
    let case = case(250, 5, 10);
    let new = sector_pattern(9, 1);
    let changes = [changes_at(6, 17, &new)];
    let update = case.groups.prepare_bulk_update(case.run, &changes, UpdateChoice::Cheapest).expect("read");
    case.groups.write_bulk_update(&update).expect("written");
    case.device.state().lost.insert(case.sector(6, Member::Data(200)));
    case.device.overwrite(case.sector(6, Member::Data(17)), &[3; 4096]);
    (0..4).for_each(|number| case.device.flip(case.sector(6, Member::Parity(number)), 3 + 9 * number as usize));
    let groups = groups(&case.device, 250, 5);
    let again = UpdateChoice::Only(UpdateWay::Reencode);
    let update = groups.prepare_bulk_update(case.run, &changes, again).expect("the device works");
    assert!(update.lost.is_empty(), "{:?}", update.lost);
    groups.write_bulk_update(&update).expect("written");
    groups.sync().expect("synced");
    assert!((0..10).all(|group| groups.scrub_bulk(case.run, group).expect("scrubbed").is_clean()));
    let mut into = vec![0; 4096];
    groups.read_bulk(case.run, 1700..1701, &|_| None, &mut into).expect("read");
    assert!(into == case.expected(1700..1701));
}

fn changes_at<'a>(group: u32, position: u32, bytes: &'a [u8]) -> GroupChanges<'a> {
    GroupChanges { group, changes: vec![Change { position, bytes }] }
}

#[test]
fn a_lost_group_keeps_no_other_from_its_update() {
    for choice in [UpdateChoice::Cheapest, UpdateChoice::Only(UpdateWay::Reencode)] {
        let case = case(250, 5, 10);
        let new = sector_pattern(9, 3);
        let changed: Vec<&[u8]> = sectors(&new);
        case.device.state().lost.extend((0..6).map(|at| case.sector(3, Member::Data(at))));
        let update = [changes_at(2, 7, changed[0]), changes_at(3, 0, changed[1]), changes_at(4, 100, changed[2])];
        let update = case.groups.prepare_bulk_update(case.run, &update, choice).expect("the device works");
        assert_eq!(update.lost.iter().map(|lost| lost.group).collect::<Vec<u32>>(), [3]);
        case.groups.write_bulk_update(&update).expect("written");
        assert_eq!(case.read(507..508).expect("read"), changed[0]);
        assert_eq!(case.read(1100..1101).expect("read"), changed[2]);
        assert!(case.read(750..751).is_err());
        // No update of the lost one is under way.
        case.device.state().lost.clear();
        case.device.state().writes.clear();
        case.device.flip(case.sector(3, Member::Data(9)), 5);
        assert_eq!(case.read(750..760).expect("read"), case.expected(750..760));
        assert_eq!(case.device.state().writes, [(case.sector(3, Member::Data(9)), 1)]);
        let fresh = groups(&case.device, 250, 5);
        assert!((0..10).all(|group| fresh.scrub_bulk(case.run, group).expect("scrubbed").is_clean()));
    }
}

/// The sums sector over a group with void parity is lost: the group does not vouch for itself, whatever else of it reads.
#[test]
fn a_group_with_void_parity_vouches_for_nothing() {
    let case = case(250, 5, 10);
    let new = sector_pattern(9, 1);
    case.device.state().lost.extend((0..6).map(|at| case.sector(3, Member::Data(at))));
    let void = UpdateChoice::Only(UpdateWay::Void);
    let update = case.groups.prepare_bulk_update(case.run, &[changes_at(3, 0, &new)], void).expect("not lost");
    assert!(update.lost.is_empty());
    case.groups.write_bulk_update(&update).expect("written");
    assert!(case.read(750..751).expect("read") == new);
    let fresh = groups(&case.device, 250, 5);
    let mut into = vec![0; 4096];
    fresh.read_bulk(case.run, 750..751, &|_| None, &mut into).expect("its sums sector has its CRC");
    assert!(into == new);
    // All reads again, and the drive has lost the write of that sector.
    case.device.state().lost.clear();
    case.device.overwrite(case.sector(3, Member::Data(0)), case.expected(750..751));
    case.device.state().lost.insert(case.sums(0));
    let fresh = groups(&case.device, 250, 5);
    let error = fresh.read_bulk(case.run, 750..751, &|_| None, &mut into).expect_err("nothing tells what it should be");
    assert!(matches!(error, GroupError::Lost { .. }));
}

/// No retry reads a sums sector. Of its groups one is torn, and of one too much is lost; others vouch for themselves.
#[test]
fn a_group_that_is_torn_or_lost_does_not_vouch_for_itself() {
    let case = case(250, 5, 10);
    case.device.state().lost.insert(case.sums(0));
    case.device.overwrite(case.sector(1, Member::Parity(0)), &sector_pattern(9, 5));
    case.device.state().lost.extend((0..6).map(|at| case.sector(2, Member::Data(at))));
    let known = |groups: &Groups| [0, 1, 2, 3].map(|group| groups.known_by(case.run, group).expect("it works"));
    let expected = [Known::Data, Known::Nothing, Known::Nothing, Known::Data];
    assert_eq!(known(&case.groups), expected);
    assert_eq!(known(&case.groups), expected, "what was learnt of them is no sums sector");
    case.device.state().lost.clear();
    assert_eq!(known(&groups(&case.device, 250, 5)), [Known::Sums; 4], "it reads again");
}

/// Group 4 begins under one sums sector and ends under another, which no retry reads, nor a group under it, group 6.
#[test]
fn a_group_without_one_of_its_sums_sectors_changes_the_other_in_nothing() {
    let case = case(250, 5, 10);
    let new = sector_pattern(9, 2);
    let changed: Vec<&[u8]> = sectors(&new);
    case.device.state().lost.insert(case.sums(1));
    case.device.state().lost.extend((0..6).map(|at| case.sector(6, Member::Data(at))));
    let both = [changed[0], changed[1]].into_iter().zip([3, 200]).map(|(bytes, position)| Change { position, bytes });
    let update = [changes_at(2, 7, changed[0]), GroupChanges { group: 4, changes: both.collect() }];
    let update = case.groups.prepare_bulk_update(case.run, &update, UpdateChoice::Cheapest).expect("the device works");
    assert_eq!(update.lost.iter().map(|lost| lost.group).collect::<Vec<u32>>(), [4]);
    case.groups.write_bulk_update(&update).expect("written");
    let fresh = groups(&case.device, 250, 5);
    let mut into = vec![0; 4096];
    fresh.read_bulk(case.run, 507..508, &|_| None, &mut into).expect("read");
    assert!(into == changed[0]);
    fresh.read_bulk(case.run, 1003..1004, &|_| None, &mut into).expect("read");
    assert!(into == case.expected(1003..1004), "it is as it was");
}

/// Group 4 has CRCs in two sums sectors, of which an update changes one.
#[test]
fn a_sums_sector_is_not_mended_beside_an_update_of_its_groups() {
    let case = case(250, 5, 10);
    let new = sector_pattern(9, 1);
    let update = case.groups.prepare_bulk_update(case.run, &[changes_at(4, 5, &new)], UpdateChoice::Cheapest);
    case.groups.write_bulk_update(&update.expect("read")).expect("written");
    case.device.state().soft.insert(case.sums(1));
    case.device.state().writes.clear();
    case.read(900..1400).expect("read");
    assert_eq!(case.device.state().writes, [], "it would be torn with the group that it can be learnt from");
    case.groups.sync().expect("synced");
    case.read(900..1400).expect("read");
    assert_eq!(case.device.state().writes, [(case.sums(1), 1)]);
}

#[test]
fn sums_that_an_update_does_not_change_are_not_written() {
    let case = case(250, 5, 10);
    let update = [changes_at(2, 7, case.expected(507..508))];
    let update = case.groups.prepare_bulk_update(case.run, &update, UpdateChoice::Cheapest).expect("read");
    assert!(!update.sums[0].differs);
    case.groups.write_bulk_update(&update).expect("written");
    assert!(
        !case.device.state().writes.iter().any(|(first, sectors)| (*first..first + sectors).contains(&case.sums(0)))
    );
}

/// What windows show of a run of 204 groups of 10 under two sums sectors: not the groups 30 to 49.
const SHOWN: [Range<u32>; 2] = [0..300, 500..2040];

/// Such a run whose first sums sector is lost; others have the places of the groups that are not shown. One of these differs
/// from what it was by so little that it would be mended.
fn partly_freed() -> Case {
    let case = case(10, 5, 204);
    for group in 30..50 {
        for at in 0..if group == 30 { 2 } else { 10 } {
            case.device.overwrite(case.sector(group, Member::Data(at)), &[group as u8; 4096]);
        }
    }
    case.device.state().lost.insert(case.sums(0));
    case
}

impl Case {
    fn shown(&self) -> ShownRun<'static> {
        ShownRun::new(self.run, &SHOWN)
    }

    /// What lies where the groups were that are not shown.
    fn others(&self) -> Vec<u8> {
        self.device.content(self.sector(30, Member::Data(0))..self.sector(50, Member::Data(0)))
    }

    fn assert_sums_are_right(&self) {
        let place = self.run.sums(0, self.shape);
        let content = self.device.content(place.0..place.0 + 1);
        let (found, expected) =
            (SumsSector::parse(&content, DISK, place).expect("written"), SumsSector::of(&sectors(&self.data)[..1020]));
        assert!((0..300).chain(500..1020).all(|at| found.at(at) == expected.at(at)));
    }
}

#[test]
fn groups_of_others_vouch_for_nothing_and_are_left_alone() {
    // Read, scrubbed, asked for, updated.
    for how in 0..4 {
        let mut case = partly_freed();
        let others = case.others();
        match how {
            0 => SHOWN.into_iter().for_each(|shown| {
                let wanted = u64::from(shown.start)..shown.end.into();
                let mut into = vec![0; (wanted.end - wanted.start) as usize * 4096];
                case.groups.read_bulk(case.shown(), wanted.clone(), &|_| None, &mut into).expect("read");
                assert!(into == case.expected(wanted));
            }),
            1 => {
                let scrub = |group| case.groups.scrub_bulk(case.shown(), group).expect("scrubbed");
                assert!((0..30).chain(50..204).all(|group| scrub(group).is_clean()));
            }
            2 => drop(case.groups.sums_sector(case.shown(), 0).expect("learnt")),
            _ => {
                let bytes = sector_pattern(99, 1);
                let changes = [GroupChanges { group: 60, changes: vec![Change { position: 3, bytes: &bytes }] }];
                let choice = UpdateChoice::Cheapest;
                let update = case.groups.prepare_bulk_update(case.shown(), &changes, choice).expect("prepared");
                case.groups.write_bulk_update(&update).expect("written");
                case.data[603 * 4096..604 * 4096].copy_from_slice(&bytes);
            }
        }
        assert!(case.others() == others, "{how}");
        // What is written for an update is in the journal, with the windows as they are.
        match how {
            3 => case.assert_sums_are_right(),
            _ => assert!(case.device.state().writes.is_empty(), "{how}"),
        }
        assert_eq!(case.device.retries(), 1);
    }
}

/// Until it is durable that groups were freed, a power cut brings their windows back.
#[test]
fn sums_of_groups_that_were_freed_a_moment_ago_stay_on_the_device() {
    for fails_once in [true, false] {
        let case = case(10, 5, 204);
        match fails_once {
            true => drop(case.device.state().soft.insert(case.sums(0))),
            false => drop(case.device.state().lost.insert(case.sums(0))),
        }
        for shown in SHOWN {
            let mut into = vec![0; shown.len() * 4096];
            case.groups
                .read_bulk(case.shown(), shown.start.into()..shown.end.into(), &|_| None, &mut into)
                .expect("read");
        }
        (0..30).chain(50..204).for_each(|group| drop(case.groups.scrub_bulk(case.shown(), group).expect("scrubbed")));
        case.groups.sums_sector(case.shown(), 0).expect("learnt");
        // As after a power cut, with nothing in memory.
        let opened = groups(&case.device, 10, 5);
        let mut into = vec![0; case.data.len()];
        opened.read_bulk(case.run, 0..case.run.data.into(), &|_| None, &mut into).expect("all is there");
        assert!(into == case.data);
    }
}

#[test]
fn what_lies_behind_the_last_group_shown_is_neither_read_nor_written() {
    let case = case(10, 5, 204);
    let place = case.sums(1);
    // Its sums are in memory.
    case.groups.sums_sector(case.run, 1).expect("read");
    case.device.overwrite(place, &[9; 4096]);
    case.device.quiet();
    case.device.state().soft.extend([place, case.sector(101, Member::Data(3))]);
    let shown = ShownRun::new(case.run, std::slice::from_ref(&(0..1020)));
    for wanted in [1000..1020, 1010..1015, 1015..1020] {
        assert!(case.groups.read_bulk_kept(shown, wanted.clone()).expect("read") == case.expected(wanted));
    }
    assert!(case.device.content(place..place + 1) == [9; 4096]);
    assert_eq!(case.groups.statistics().now().mismatches, 0);
    let reads = case.device.state().reads.clone();
    assert!(reads.iter().all(|(first, sectors, _)| first + sectors <= place), "{reads:?}");
}

#[test]
fn sums_are_forgotten_where_something_new_is_written() {
    let case = case(10, 5, 204);
    let place = case.sums(1);
    case.groups.sums_sector(case.run, 1).expect("read");
    let group = GroupPlace { first: Sector(place - 1), data: 3, capacity: 3 };
    let data = sector_pattern(3, 3);
    case.groups.write_new(group, &sectors(&data)).expect("written");
    case.device.state().soft.insert(place);
    // Whoever says that all is still shown.
    case.groups.read_bulk_kept(case.run, 1000..1020).expect("read");
    assert!(case.device.content(place..place + 1) == data[4096..2 * 4096]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Whatever fails, what is returned is right; up to m - 1 failures a group, with any sums sector lost, all is.
    #[test]
    fn a_stream_is_right_or_an_error(
        k in 1u32..40, m in 0u32..5, count in 1u32..60, from in 0u64..2000, length in 1u64..2000,
        faults in prop::collection::vec((0u64..2000, 0u32..3), 0..12),
    ) {
        let case = case(k, m, count);
        let all = BulkRun::sectors_total(count, case.shape);
        let mut bad = vec![0; count as usize];
        for (sector, fault) in faults {
            let sector = 2 + sector % all;
            match fault {
                0 => drop(case.device.state().soft.insert(sector)),
                1 => drop(case.device.state().lost.insert(sector)),
                _ => case.device.flip(sector, sector as usize),
            }
            for group in 0..count {
                let first = case.sector(group, Member::Data(0));
                if (first..first + u64::from(k + m)).contains(&sector) {
                    // Something wrong that nobody names costs two to find out.
                    bad[group as usize] += if fault == 2 { 2 } else { 1 };
                }
            }
        }
        let from = from % u64::from(case.run.data);
        let wanted = from..u64::from(case.run.data).min(from + length);
        let groups = (wanted.start / u64::from(k)) as usize..wanted.end.div_ceil(u64::from(k)) as usize;
        let bears = bad[groups].iter().all(|bad| *bad < m);
        match case.read(wanted.clone()) {
            Ok(found) => prop_assert!(found == case.expected(wanted)),
            Err(GroupError::Lost { .. }) => prop_assert!(!bears, "bad {:?} of {}", bad, m),
            Err(other) => panic!("{other}"),
        }
        // Nothing was made worse: with the faults gone, all reads as written.
        case.device.state().lost.clear();
        if bad.iter().all(|bad| *bad < m) {
            for group in 0..count {
                case.groups.scrub_bulk(case.run, group).expect("scrubbed");
            }
            prop_assert!(case.read(0..case.run.data.into()).expect("read") == case.data);
            case.assert_as_written();
        }
    }
}
