//! Streams in requests that end anywhere in groups: what fails is mended from what other reads brought, and nothing is read
//! twice; nor for an update what a read or another update had a moment ago.

mod support;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Barrier, Mutex};

use claystone_env::testing::sector_pattern;
use claystone_env::{Device, DeviceError, Effort, FailedSector, Geometry, Sector, SectorRange};
use claystone_group::{
    BulkRun, Change, GroupChanges, GroupCode, GroupError, GroupShape, Groups, Member, UpdateChoice, UpdateWay,
};
use proptest::prelude::*;
use support::{DISK, FaultyDevice, groups, sectors};

const FIRST: u64 = 2;

struct Case {
    device: Arc<FaultyDevice>,
    groups: Groups,
    shape: GroupShape,
    run: BulkRun,
    data: Vec<u8>,
}

fn case(k: u32, m: u32, count: u32) -> Case {
    let shape = GroupShape { data: k, parity: m };
    let run = BulkRun { first: Sector(FIRST), data: count * k };
    let device = FaultyDevice::new(FIRST + BulkRun::sectors_total(count, shape) + 1);
    let data = sector_pattern(7, run.data as usize);
    groups(&device, k, m).write_bulk(run, &sectors(&data)).expect("written");
    device.quiet();
    let groups = groups(&device, k, m);
    Case { device, groups, shape, run, data }
}

impl Case {
    /// Reads as a stream does, and checks.
    fn stream(&self, request: u64) {
        let end = u64::from(self.run.data);
        for first in (0..end).step_by(request as usize) {
            self.read(first..end.min(first + request));
        }
    }

    fn read(&self, wanted: Range<u64>) {
        let read = self.groups.read_bulk_kept(self.run, wanted.clone()).expect("read");
        assert!(read == self.expected(wanted.clone()), "sectors {wanted:?}");
    }

    fn expected(&self, wanted: Range<u64>) -> &[u8] {
        &self.data[wanted.start as usize * 4096..wanted.end as usize * 4096]
    }

    /// Changes these positions of a group; returns how many sectors were read for that, and how its new parity was made.
    fn update(&mut self, group: u32, positions: impl IntoIterator<Item = u32>, seed: u64) -> (u64, UpdateWay) {
        self.device.sectors_read();
        let positions: Vec<u32> = positions.into_iter().collect();
        let fresh = sector_pattern(seed, positions.len());
        let changes =
            positions.iter().zip(sectors(&fresh)).map(|(position, bytes)| Change { position: *position, bytes });
        let changes = [GroupChanges { group, changes: changes.collect() }];
        let update = self.groups.prepare_bulk_update(self.run, &changes, UpdateChoice::Cheapest).expect("prepared");
        self.groups.write_bulk_update(&update).expect("written");
        for (position, bytes) in positions.iter().zip(sectors(&fresh)) {
            self.data[(group * self.shape.data + position) as usize * 4096..][..4096].copy_from_slice(bytes);
        }
        (self.device.sectors_read(), update.updates[0].way)
    }

    /// Whether data, parity and sums on the device are those of the data, with nothing in memory.
    fn is_as_it_should_be(&self) -> bool {
        let fresh = groups(&self.device, self.shape.data, self.shape.parity);
        let mut all = vec![0; self.data.len()];
        fresh.read_bulk(self.run, 0..self.run.data.into(), &|_| None, &mut all).expect("read");
        let is_clean = |group| fresh.scrub_bulk(self.run, group).expect("scrubbed").is_clean();
        all == self.data && (0..self.run.groups(self.shape)).all(is_clean)
    }

    fn fail(&self, group: u32, member: Member) {
        self.device.state().soft.insert(self.place(group, member));
    }

    fn place(&self, group: u32, member: Member) -> u64 {
        self.run.group(group, self.shape).sector(member).0
    }

    /// Asserts that no sector was read twice, nor retried; returns how many were read.
    fn assert_read_once(&self) -> u64 {
        let reads = std::mem::take(&mut self.device.state().reads);
        let mut seen = BTreeSet::new();
        for (first, sectors, effort) in &reads {
            assert_eq!(*effort, Effort::FailFast);
            assert!(
                (*first..first + sectors).all(|sector| seen.insert(sector)),
                "twice of {first}+{sectors}: {reads:?}"
            );
        }
        seen.len() as u64
    }
}

// Test of: [lec §3.2]
#[test]
fn a_stream_in_requests_is_one_stride_whatever_fails() {
    let groups = 60;
    // Longer than a group, as long, shorter.
    for request in [64, 50, 70, 32, 20] {
        let case = case(50, 5, groups);
        // Sums are in memory the second time; what was kept the first time is not kept any more.
        for pass in 0..2 {
            case.device.quiet();
            for group in (pass..groups).step_by(2) {
                // Before and behind the ends of requests, and two in one group.
                case.fail(group, Member::Data(group / 2));
                case.fail(group, Member::Data(49 - group / 4));
            }
            case.stream(request);
            let reads = case.device.state().reads.clone();
            assert!(reads.windows(2).all(|pair| pair[0].0 + pair[0].1 == pair[1].0), "{request}: {reads:?}");
            let read = case.assert_read_once();
            let total = BulkRun::sectors_total(groups, case.shape);
            // Without the last parity, and with the first sums only once.
            assert!((total - 6..=total).contains(&read), "{request}: {read} of {total}");
            let counts = case.groups.statistics().now();
            assert_eq!((counts.mended, counts.retries), (u64::from(pass + 1) * 60, 0));
        }
    }
}

#[test]
fn what_was_written_since_mends_nothing() {
    let mut case = case(250, 5, 4);
    // With the parity of group 1.
    case.read(0..256);
    case.read(256..600);
    let (fresh, changed) = (sector_pattern(99, 2), [3u32, 20]);
    let changes = changed.iter().zip(sectors(&fresh)).map(|(position, bytes)| Change { position: *position, bytes });
    let changes = [GroupChanges { group: 1, changes: changes.collect() }];
    let update = case.groups.prepare_bulk_update(case.run, &changes, UpdateChoice::Cheapest).expect("prepared");
    case.groups.write_bulk_update(&update).expect("written");
    for (position, bytes) in changed.iter().zip(sectors(&fresh)) {
        case.data[(250 + *position as usize) * 4096..][..4096].copy_from_slice(bytes);
    }
    case.device.quiet();
    case.fail(1, Member::Data(230));
    case.read(470..490);
    let counts = case.groups.statistics().now();
    assert_eq!((counts.retries, counts.mismatches, counts.mended), (0, 0, 1), "nothing old was taken for new");
    // And a run that takes its place.
    case.data = sector_pattern(5, 1000);
    case.groups.write_bulk(case.run, &sectors(&case.data)).expect("written");
    case.fail(1, Member::Data(100));
    case.read(340..360);
    let counts = case.groups.statistics().now();
    assert_eq!((counts.retries, counts.mismatches, counts.mended), (0, 0, 2));
}

#[test]
fn what_is_read_ahead_and_then_written_is_read_again() {
    let mut case = case(250, 5, 4);
    case.fail(0, Member::Data(10));
    case.read(0..20);
    assert_eq!(case.assert_read_once(), 1 + 255, "the sums, and the group for its one sector");
    let fresh = sector_pattern(99, 1);
    let changes = vec![Change { position: 30, bytes: &fresh }];
    let changes = [GroupChanges { group: 0, changes }];
    let update = case.groups.prepare_bulk_update(case.run, &changes, UpdateChoice::Cheapest).expect("prepared");
    case.groups.write_bulk_update(&update).expect("written");
    case.data[30 * 4096..31 * 4096].copy_from_slice(&fresh);
    case.read(20..256);
    assert_eq!(case.groups.statistics().now().mismatches, 0);
}

// Test of: [lec §4.3]
#[test]
fn an_update_reads_what_no_read_or_update_had_a_moment_ago() {
    let mut case = case(250, 5, 4);
    case.groups.sums_sector(case.run, 0).expect("read");
    assert_eq!(case.update(0, 100..150, 1), (55, UpdateWay::Delta), "old data, and parity");
    assert_eq!(case.update(0, 100..150, 2), (0, UpdateWay::Delta), "all of it was written");
    assert_eq!(case.update(0, [7], 3), (1, UpdateWay::Delta), "the parity was");
    assert_eq!(case.update(0, 10..210, 4), (49, UpdateWay::Reencode), "less than the old data");
    // The whole group, with its parity.
    case.read(250..512);
    assert_eq!(case.update(1, [3, 200], 5), (0, UpdateWay::Delta));
    assert_eq!(case.update(1, 0..250, 6), (0, UpdateWay::Reencode));
    // All but its last part.
    case.read(500..700);
    assert_eq!(case.update(2, 0..100, 7), (5, UpdateWay::Delta), "the parity");
    assert_eq!(
        case.update(2, 0..210, 8),
        (10, UpdateWay::Delta),
        "which was written since, as was some of what changes"
    );
    assert!(case.is_as_it_should_be());
}

/// The device may have lost what it took, as a drive that dies takes it from a pair: what a mending found with it would be gone with the memory.
#[test]
fn what_fails_is_not_decoded_from_what_an_update_wrote() {
    let mut case = case(10, 3, 4);
    case.update(1, [4], 1);
    let lost = [Member::Data(4), Member::Parity(0), Member::Parity(1), Member::Parity(2)];
    case.device.state().lost.extend(lost.map(|member| case.place(1, member)));
    let mut into = vec![0; 4096];
    let read = case.groups.read_bulk(case.run, 14..15, &|_| None, &mut into);
    assert!(matches!(read, Err(GroupError::Lost { .. })), "{read:?}");
}

#[test]
fn parity_that_was_mended_since_it_was_read_is_read_again() {
    let mut case = case(10, 3, 4);
    let parity = case.place(1, Member::Parity(1));
    case.device.flip(parity, 7);
    // With its parity, which has no checksum.
    case.read(10..25);
    assert!(!case.groups.scrub_bulk(case.run, 1).expect("scrubbed").is_clean());
    case.groups.sync().expect("synced");
    case.update(1, [4], 1);
    assert!(case.is_as_it_should_be());
}

/// A device in which two reads meet once.
struct Meeting {
    device: Arc<FaultyDevice>,
    at: Mutex<BTreeSet<u64>>,
    barrier: Barrier,
}

impl Meeting {
    /// Lets `case` read requests of these data sectors at once.
    #[expect(clippy::disallowed_methods, reason = "two reads at once")]
    fn hold(case: &mut Case, requests: [Range<u64>; 2]) {
        let k = u64::from(case.shape.data);
        let place = |sector: u64| case.place((sector / k) as u32, Member::Data((sector % k) as u32));
        let at = requests.iter().map(|request| place(request.start)).collect();
        let meeting = Meeting { device: case.device.clone(), at: Mutex::new(at), barrier: Barrier::new(2) };
        let code = GroupCode::new(case.shape.data, case.shape.parity).expect("a code");
        case.groups = Groups::new(Arc::new(meeting), code, DISK, 16 << 12);
        // The sums, so that nobody reads them first.
        case.groups.sums_sector(case.run, 0).expect("read");
        std::thread::scope(|scope| {
            for request in requests {
                scope.spawn(|| case.read(request));
            }
        });
    }
}

impl Device for Meeting {
    fn label(&self) -> String {
        self.device.label()
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        let meets = self.at.lock().expect("nobody panics here").remove(&first.0);
        if meets {
            self.barrier.wait();
        }
        self.device.read(first, into, effort)
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        self.device.write(first, bytes)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.device.sync()
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.device.discard(range)
    }
}

#[test]
fn two_reads_at_once_mend_from_each_other() {
    for _ in 0..20 {
        let mut case = case(250, 5, 4);
        // Group 1 begins in the first request and ends in the second.
        for (group, position) in [(0, 40), (1, 3), (1, 200), (1, 201)] {
            case.fail(group, Member::Data(position));
        }
        Meeting::hold(&mut case, [0..406, 406..812]);
        let counts = case.groups.statistics().now();
        assert_eq!((counts.mended, counts.retries), (4, 0));
        case.assert_read_once();
    }
}

#[test]
fn what_failed_for_another_read_is_tried_again_where_parity_does_not_suffice() {
    let mut case = case(10, 2, 4);
    // Two are lost for the first read; it needs the one that failed softly for the second.
    case.device.state().lost.extend([1, 2].map(|position| case.place(1, Member::Data(position))));
    case.fail(1, Member::Data(8));
    Meeting::hold(&mut case, [0..15, 15..30]);
    assert_eq!(case.groups.statistics().now().sectors_lost, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn each_sector_of_a_stream_is_read_once(
        request in 1u64..60,
        failing in proptest::collection::vec((0u32..12, 0u32..10), 0..20),
        parity in proptest::collection::vec((0u32..12, 0u32..3), 0..6),
    ) {
        let case = case(10, 3, 12);
        let mut gone = [0; 12];
        let data = failing.into_iter().map(|(group, position)| (group, Member::Data(position)));
        let parity = parity.into_iter().map(|(group, number)| (group, Member::Parity(number)));
        for (group, member) in data.chain(parity).collect::<BTreeSet<_>>() {
            if gone[group as usize] < 3 {
                gone[group as usize] += 1;
                case.fail(group, member);
            }
        }
        case.stream(request);
        case.assert_read_once();
    }

    /// Nothing stale is ever used: whatever was read, written, mended or replaced before an update, all fits behind it. And it reads no more
    /// than with nothing in memory.
    #[test]
    fn an_update_takes_nothing_stale_from_memory(
        steps in proptest::collection::vec(
            (0u32..8, 0u32..6, proptest::collection::btree_set(0u32..10, 1..10), 0u32..13, 0u64..60, 1u64..40), 1..40,
        ),
    ) {
        let mut case = case(10, 3, 6);
        case.groups = groups(&case.device, 10, 3).with_bridge(0);
        for (seed, (what, group, positions, member, first, count)) in (100..).zip(steps) {
            let member = if member < 10 { Member::Data(member) } else { Member::Parity(member - 10) };
            let wanted = first..60.min(first + count);
            match what {
                0..=2 => {
                    let changed = positions.len() as u64;
                    case.groups.sums_sector(case.run, 0).expect("read");
                    let (read, _) = case.update(group, positions, seed);
                    prop_assert!(read <= (10 - changed).min(changed + 3), "{read} for {changed}");
                }
                3..=4 => case.read(wanted),
                5 => {
                    // Soft, so that something is mended, and written again the second time.
                    case.fail(group, member);
                    case.read(wanted.clone());
                    case.read(wanted);
                    case.device.state().soft.clear();
                }
                6 => {
                    // Wrong, read with its group and then mended; or wrong since memory has it.
                    case.groups.sync().expect("synced");
                    if first.is_multiple_of(2) {
                        case.read(wanted.clone());
                    }
                    case.device.flip(case.place(group, member), seed as usize);
                    case.read(wanted);
                    case.groups.scrub_bulk(case.run, group).expect("scrubbed");
                    case.groups.sync().expect("synced");
                }
                _ => {
                    case.data = sector_pattern(seed, 60);
                    case.groups.write_bulk(case.run, &sectors(&case.data)).expect("written");
                }
            }
            prop_assert!(case.is_as_it_should_be(), "after {what}");
        }
    }

    #[test]
    fn requests_anywhere_read_what_was_written(
        requests in proptest::collection::vec((0u64..120, 1u64..40, 0u32..12, 0u32..13), 1..40),
    ) {
        let case = case(10, 3, 12);
        for (first, count, group, member) in requests {
            // Three at most, and now and then others: what fails twice is written again.
            let mut soft = case.device.state().soft.len();
            if soft > 3 {
                case.device.state().soft.clear();
                soft = 0;
            }
            let member = if member < 10 { Member::Data(member) } else { Member::Parity(member - 10) };
            if soft < 3 {
                case.fail(group, member);
            }
            case.read(first..120.min(first + count));
        }
    }
}
