//! What fails of little that is wanted of a long group is retried, where that was seen to take less time than decoding it.

mod support;

use std::sync::Arc;
use std::time::Duration;

use claystone_env::testing::sector_pattern;
use claystone_env::{Effort, Sector};
use claystone_group::{BulkRun, Change, GroupChanges, GroupShape, Groups, UpdateChoice, UpdateWay};
use support::{FaultyDevice, groups, sectors};

/// A device that tells its time, with a run of some groups.
struct Timed {
    device: Arc<FaultyDevice>,
    groups: Groups,
    run: BulkRun,
    data: Vec<u8>,
}

const LONG: GroupShape = GroupShape { data: 1014, parity: 9 };
const USUAL: GroupShape = GroupShape { data: 250, parity: 5 };

impl Timed {
    fn new(shape: GroupShape, measures: bool) -> Timed {
        let run = BulkRun { first: Sector(2), data: 4 * shape.data };
        let device = FaultyDevice::new(2 + BulkRun::sectors_total(4, shape));
        let data = sector_pattern(7, run.data as usize);
        groups(&device, shape.data, shape.parity).write_bulk(run, &sectors(&data)).expect("written");
        device.quiet();
        device.state().elapsed = measures.then_some(Duration::ZERO);
        Timed { groups: groups(&device, shape.data, shape.parity), device, run, data }
    }

    fn place(&self, sector: u64) -> u64 {
        self.run.place_of(sector, self.groups.code().shape()).0
    }

    /// Reads a few sectors, of which one fails. Returns what was read for that, and whether something was retried after it failed.
    fn read_failing(&self, failing: u64) -> (u64, bool) {
        self.device.state().soft.insert(self.place(failing));
        self.device.sectors_read();
        let before = self.groups.statistics().now().retries;
        let mut into = vec![0; 4 * 4096];
        self.groups.read_bulk(self.run, failing - 1..failing + 3, &|_| None, &mut into).expect("it is mended");
        assert!(into == self.data[(failing as usize - 1) * 4096..][..4 * 4096]);
        self.device.state().soft.clear();
        (self.device.sectors_read(), self.groups.statistics().now().retries > before)
    }
}

#[test]
fn a_sector_of_a_long_group_is_decoded_and_the_next_retried_and_then_at_once() {
    let timed = Timed::new(LONG, true);
    // With its sums sector.
    assert_eq!(timed.read_failing(100), (1 + 1023, false), "nothing was timed yet");
    assert_eq!(timed.read_failing(300), (4 + 1, true), "it is tried");
    let pace = timed.groups.pace();
    assert_eq!(pace.retry, Some(Duration::from_micros(25_033)));
    assert!(pace.sector.is_some_and(|sector| sector > Duration::from_micros(33)), "{pace:?}");
    let of_each: Vec<(u64, bool)> = (0..32).map(|number| timed.read_failing(500 + 4 * number)).collect();
    // Two of them are looked at, and retried then.
    assert_eq!(of_each.iter().filter(|(read, _)| *read == 4).count(), 30, "{of_each:?}");
    assert_eq!(of_each.iter().filter(|of| **of == (5, true)).count(), 2, "{of_each:?}");
    assert_eq!(timed.groups.statistics().now().soft_failures, 4);
}

#[test]
fn groups_of_255_and_devices_without_time_are_decoded() {
    let usual = Timed::new(USUAL, true);
    let mut into = vec![0; 250 * 4096];
    usual.groups.read_bulk(usual.run, 0..250, &|_| None, &mut into).expect("read");
    assert!(usual.groups.pace().sector.is_some());
    let untimed = Timed::new(LONG, false);
    for timed in [usual, untimed] {
        for failing in [20, 400, 600, 700] {
            assert!(!timed.read_failing(failing).1, "{failing}");
        }
        assert_eq!(timed.groups.pace().retry, None);
    }
}

#[test]
fn a_sector_that_no_retry_reads_is_decoded_after_all() {
    let timed = Timed::new(LONG, true);
    timed.read_failing(100);
    for sector in [300, 500, 900] {
        timed.device.state().lost.insert(timed.place(sector));
        let mut into = vec![0; 2 * 4096];
        timed.groups.read_bulk(timed.run, sector..sector + 2, &|_| None, &mut into).expect("it is mended");
        assert!(into == timed.data[sector as usize * 4096..][..2 * 4096]);
        // Written again, and so there.
        assert!(!timed.device.state().lost.contains(&timed.place(sector)), "{sector}");
    }
}

#[test]
fn who_reads_whole_groups_or_a_stream_retries_nothing() {
    let timed = Timed::new(LONG, true);
    timed.read_failing(100);
    timed.read_failing(300);
    timed.device.quiet();
    timed.device.state().elapsed = Some(Duration::ZERO);
    timed.device.state().soft.extend([700, 1500, 1600].map(|sector| timed.place(sector)));
    let mut into = vec![0; 2028 * 4096];
    timed.groups.read_bulk(timed.run, 0..2028, &|_| None, &mut into).expect("mended");
    assert!(into == timed.data[..2028 * 4096]);
    assert_eq!(timed.device.retries(), 0);
    for first in (0..2028).step_by(256) {
        let wanted = first..(first + 256).min(2028);
        let read = timed.groups.read_bulk_kept(timed.run, wanted.clone()).expect("mended");
        assert!(read[..] == timed.data[wanted.start as usize * 4096..wanted.end as usize * 4096]);
    }
    let retried: Vec<(u64, u64, Effort)> =
        timed.device.state().reads.iter().copied().filter(|(.., effort)| *effort == Effort::Retry).collect();
    assert_eq!(retried, [], "the rest of the group is read anyway");
}

#[test]
fn an_update_retries_what_fails_of_it() {
    let timed = Timed::new(LONG, true);
    timed.read_failing(100);
    timed.read_failing(300);
    for number in 0..3u64 {
        let positions = 400..440;
        let parity = timed.place(1013) + 3;
        timed.device.state().soft.extend([timed.place(410), parity]);
        let new = sector_pattern(20 + number, positions.len());
        let changes = positions.clone().zip(sectors(&new)).map(|(position, bytes)| Change { position, bytes });
        let changes = [GroupChanges { group: 0, changes: changes.collect() }];
        timed.device.sectors_read();
        let update = timed.groups.prepare_bulk_update(timed.run, &changes, UpdateChoice::Cheapest).expect("prepared");
        assert_eq!(update.updates[0].way, UpdateWay::Delta);
        assert!(timed.device.sectors_read() <= 49 + 2, "what changes, and parity");
        timed.groups.write_bulk_update(&update).expect("written");
        timed.device.state().soft.clear();
        let mut into = vec![0; positions.len() * 4096];
        timed.groups.read_bulk(timed.run, 400..440, &|_| None, &mut into).expect("read");
        assert!(into == new);
    }
    assert!(timed.groups.scrub_bulk(timed.run, 0).expect("scrubbed").is_clean());
}
