//! Streams in requests that end anywhere in groups: what fails is mended from what other reads brought, and nothing is read
//! twice.

mod support;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Barrier, Mutex};

use claystone_env::testing::sector_pattern;
use claystone_env::{Device, DeviceError, Effort, FailedSector, Geometry, Sector, SectorRange};
use claystone_group::{BulkRun, Change, GroupChanges, GroupCode, GroupShape, Groups, Member, UpdateChoice};
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
        case.groups = Groups::new(Arc::new(meeting), code, DISK, 16);
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
