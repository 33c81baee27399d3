//! Sectors that are read by themselves: with the rest of their swath, where memory has its sum, and without their sums sector.

mod support;

use std::ops::Range;
use std::sync::Arc;

use claystone_env::testing::sector_pattern;
use claystone_env::{Effort, Sector, SectorRange};
use claystone_group::{BulkRun, Change, GroupChanges, GroupCode, GroupShape, Groups, Member, ShownRun, UpdateChoice};
use support::{DISK, FaultyDevice, groups, sectors};

const SHAPE: GroupShape = GroupShape { data: 250, parity: 5 };
const GROUPS: u32 = 9;
/// Memory for one sums sector, and for the sums of swaths of 38.
const SMALL: usize = 16 << 10;

struct Case {
    device: Arc<FaultyDevice>,
    groups: Groups,
    run: BulkRun,
    data: Vec<u8>,
}

/// A run of three sums sectors, which are not in memory.
fn unloaded(sums_bytes: usize) -> Case {
    let run = BulkRun { first: Sector(2), data: GROUPS * SHAPE.data };
    // With some behind it.
    let device = FaultyDevice::new(2 + BulkRun::sectors_total(GROUPS, SHAPE) + 4);
    let data = sector_pattern(7, run.data as usize);
    groups(&device, SHAPE.data, SHAPE.parity).write_bulk(run, &sectors(&data)).expect("written");
    device.state().turns = true;
    let code = GroupCode::new(SHAPE.data, SHAPE.parity).expect("a code");
    let groups = Groups::new(device.clone(), code, DISK, sums_bytes);
    device.state().reads.clear();
    Case { device, groups, run, data }
}

/// The same, with the sums of its swaths in memory.
fn case() -> Case {
    let case = unloaded(SMALL);
    assert_eq!(case.groups.load_swaths(case.run).expect("read"), 0, "all are known");
    assert_eq!(case.take_reads().len(), 3);
    assert_eq!(case.groups.load_swaths(case.run).expect("nothing to read"), 0);
    assert_eq!(case.take_reads(), []);
    case.device.state().reads.clear();
    case
}

impl Case {
    fn expected(&self, wanted: Range<u64>) -> &[u8] {
        &self.data[wanted.start as usize * 4096..wanted.end as usize * 4096]
    }

    /// Reads sectors, checks them, and returns what was read of the device: first sectors, and how many.
    fn reads(&self, wanted: Range<u64>) -> Vec<(u64, u64)> {
        let mut into = vec![0xee; (wanted.end - wanted.start) as usize * 4096];
        self.groups.read_bulk(self.run, wanted.clone(), &|_| None, &mut into).expect("read");
        assert!(into == self.expected(wanted.clone()), "{wanted:?}");
        self.take_reads()
    }

    fn take_reads(&self) -> Vec<(u64, u64)> {
        let reads = std::mem::take(&mut self.device.state().reads);
        reads.into_iter().map(|(first, sectors, _)| (first, sectors)).collect()
    }

    fn place(&self, sector: u64) -> u64 {
        self.run.place_of(sector, SHAPE).0
    }
}

#[test]
fn a_sector_by_itself_is_read_with_its_swath_and_nothing_else() {
    // The last swath of a sums sector has 12 sectors, that of the run 2.
    let swaths = [
        (100..101, 96..112),
        (318..321, 304..336),
        (1019..1020, 1008..1020),
        (1020..1021, 1020..1036),
        (2249..2250, 2248..2250),
    ];
    let case = case();
    for (wanted, swath) in swaths {
        let sectors = swath.end - swath.start;
        let case = self::case();
        assert_eq!(case.reads(wanted.clone()), [(case.place(swath.start), sectors)], "{wanted:?}");
    }
    // With the parity that lies in it, and a sums sector.
    assert_eq!(self::case().reads(249..250), [(case.place(240), 16 + 5)]);
    assert_eq!(self::case().reads(250..251), [(case.place(240), 16 + 5)]);
    assert_eq!(self::case().reads(993..994), [(case.place(992), 16 + 5 + 1)]);
    // None right behind one that was read.
    for sector in (41..2250).step_by(41) {
        assert_eq!(case.reads(sector..sector + 1).len(), 1, "{sector}");
    }
}

#[test]
fn who_reads_on_takes_the_sums() {
    let case = case();
    assert_eq!(case.reads(600..601).len(), 1, "by itself");
    let sums = case.run.sums(0, SHAPE).0;
    assert_eq!(case.reads(601..602), [(sums, 1), (case.place(601), 1)]);
    assert_eq!(case.reads(602..603), [(case.place(602), 1)]);
    let case = self::case();
    let read = |wanted: Range<u64>| {
        let bytes = case.groups.read_bulk_kept(case.run, wanted.clone()).expect("read");
        assert!(bytes == case.expected(wanted));
        case.take_reads()
    };
    assert_eq!(read(100..132), [(case.place(96), 48)], "by itself");
    assert_eq!(read(132..164), [(sums, 1), (case.place(132), 32)]);
    assert_eq!(read(164..196), [(case.place(164), 32)]);
    assert_eq!(self::case().reads(0..1), [(sums, 1), (case.place(0), 1)], "they lie side by side");
}

#[test]
fn who_reads_across_groups_or_sums_sectors_takes_the_sums() {
    let case = case();
    let sums = case.run.sums(0, SHAPE).0;
    assert_eq!(case.reads(245..255)[0], (sums, 1));
    let case = self::case();
    assert_eq!(case.reads(1000..1100)[..2], [(sums, 1), (case.run.sums(1, SHAPE).0, 1)]);
    assert_eq!(case.reads(1000..1100)[0], (sums, 1), "memory has room for one of them");
}

#[test]
fn what_is_not_right_at_once_is_read_by_its_sums() {
    for (hurt, mismatches) in [(100, 1), (107, 0)] {
        let case = case();
        case.device.flip(case.place(hurt), 77);
        let reads = case.reads(100..101);
        assert_eq!(reads[..3], [(case.place(96), 16), (case.run.sums(0, SHAPE).0, 1), (case.place(100), 1)]);
        assert_eq!(case.groups.statistics().now().mismatches, mismatches, "a neighbour is the scrub's");
    }
    let case = case();
    case.device.state().soft_once.insert(case.place(101));
    assert_eq!(case.reads(100..101).len(), 3);
    assert_eq!(case.groups.statistics().now().soft_failures, 1);
    let case = self::case();
    case.device.state().lost.insert(case.place(100));
    assert!(case.reads(100..101).len() > 3, "it is decoded");
    assert_eq!(case.groups.statistics().now().mended, 1);
}

#[test]
fn what_was_written_last_is_known() {
    let mut case = case();
    let new = sector_pattern(9, 1);
    let changes = [GroupChanges { group: 2, changes: vec![Change { position: 30, bytes: &new }] }];
    let update = case.groups.prepare_bulk_update(case.run, &changes, UpdateChoice::Cheapest).expect("prepared");
    case.groups.write_bulk_update(&update).expect("written");
    case.data[530 * 4096..531 * 4096].copy_from_slice(&new);
    // Memory has room for one.
    case.groups.sums_sector(case.run, 2).expect("read");
    case.take_reads();
    assert_eq!(case.reads(530..531), [(case.place(528), 16)]);
    let again = sector_pattern(11, case.run.data as usize);
    case.groups.write_bulk(case.run, &sectors(&again)).expect("written");
    case.data = again;
    assert_eq!(case.reads(100..101), [(case.place(96), 16)]);
}

#[test]
fn what_no_window_shows_is_not_read() {
    let case = case();
    let shown = [0..250, 500..2250];
    let shown = ShownRun::new(case.run, &shown);
    let hidden = case.place(250)..case.run.group(1, SHAPE).sector(Member::Parity(4)).0 + 1;
    // It is somebody else's by now.
    for sector in hidden.clone() {
        case.device.overwrite(sector, &[0xab; 4096]);
    }
    for sector in [249, 500] {
        let mut into = [0; 4096];
        case.groups.read_bulk(shown, sector..sector + 1, &|_| None, &mut into).expect("read");
        assert!(into[..] == *case.expected(sector..sector + 1));
        case.groups.sums_sector(case.run, 2).expect("read");
    }
    let reads = std::mem::take(&mut case.device.state().reads);
    let touches = |(first, sectors, _): &(u64, u64, Effort)| *first < hidden.end && hidden.start < first + sectors;
    assert!(!reads.iter().any(touches), "{reads:?}");
}

#[test]
fn memory_keeps_as_many_as_it_may() {
    // A quarter is less than a sums sector, and the rest for the swaths of two.
    let case = unloaded(1000);
    assert_eq!(case.groups.load_swaths(case.run).expect("read"), 1, "is not known");
    assert!(!case.groups.has_room_for_swaths());
    case.take_reads();
    assert_eq!(case.reads(100..101).len(), 1);
    assert_eq!(case.reads(2100..2101).len(), 2, "of the third sums sector");
    assert_eq!(case.reads(2200..2201).len(), 1, "which is in memory now");
}

#[test]
fn where_nothing_seeks_memory_keeps_sums_sectors_only() {
    let case = unloaded(SMALL);
    case.device.state().turns = false;
    let code = GroupCode::new(SHAPE.data, SHAPE.parity).expect("a code");
    let groups = Groups::new(case.device.clone(), code, DISK, SMALL);
    assert!(!groups.has_room_for_swaths());
    case.take_reads();
    assert_eq!(groups.load_swaths(case.run).expect("nothing to read"), 3, "are not known");
    assert_eq!(case.take_reads(), []);
}

/// Where the sums of a case's swaths are written, behind its run.
fn room() -> [SectorRange; 2] {
    let first = 2 + BulkRun::sectors_total(GROUPS, SHAPE);
    [SectorRange { first: Sector(first), sectors: 1 }, SectorRange { first: Sector(first + 2), sectors: 2 }]
}

/// Other groups on its device, of which memory knows nothing.
fn reopened(case: Case) -> Case {
    let code = GroupCode::new(SHAPE.data, SHAPE.parity).expect("a code");
    let groups = Groups::new(case.device.clone(), code, DISK, SMALL);
    Case { groups, ..case }
}

#[test]
fn what_memory_knows_outlasts_it() {
    let case = case();
    assert_eq!(case.groups.swaths_sectors(), 1);
    assert_eq!(
        case.groups.write_swaths(&room(), 7).expect("written"),
        (room()[..1].to_vec(), true),
        "three fit into one"
    );
    let case = reopened(case);
    case.device.state().soft.insert(room()[0].first.0);
    assert!(case.groups.read_swaths(&room()[..1], 7).expect("read"), "a retry reads it");
    case.take_reads();
    for sector in [100, 1100, 2100] {
        assert_eq!(case.reads(sector..sector + 1).len(), 1, "{sector}");
    }
}

#[test]
fn many_take_as_many_sectors_as_there_is_room_for() {
    let sectors_each = BulkRun::sectors_total(GROUPS, SHAPE);
    let runs =
        [0, 1, 2, 3, 4, 5].map(|run| BulkRun { first: Sector(2 + run * sectors_each), data: GROUPS * SHAPE.data });
    let room = [2, 4].map(|behind| SectorRange { first: Sector(6 * sectors_each + behind), sectors: 1 });
    let device = FaultyDevice::new(6 * sectors_each + 6);
    device.state().turns = true;
    let code = GroupCode::new(SHAPE.data, SHAPE.parity).expect("a code");
    let groups = || Groups::new(device.clone(), code.clone(), DISK, SMALL);
    let first = groups();
    let data = sector_pattern(7, runs[0].data as usize);
    for run in runs {
        first.write_bulk(run, &sectors(&data)).expect("written");
    }
    assert_eq!(first.swaths_sectors(), 2, "18 are more than 15");
    assert_eq!(first.write_swaths(&room[..1], 7).expect("written"), (room[..1].to_vec(), false));
    assert_eq!(first.write_swaths(&room, 8).expect("written"), (room.to_vec(), true));
    let second = groups();
    assert!(!second.read_swaths(&room, 7).expect("read"), "they were written over");
    assert!(second.read_swaths(&room, 8).expect("read"));
    device.state().reads.clear();
    for run in runs {
        let mut into = vec![0; 4096];
        second.read_bulk(run, 100..101, &|_| None, &mut into).expect("read");
        assert!(into[..] == data[100 * 4096..101 * 4096]);
    }
    assert_eq!(device.state().reads.len(), 6, "one each");
    let gone = SectorRange { first: runs[1].first, sectors: 4 * sectors_each };
    second.forget_swaths(gone);
    assert_eq!(second.swaths_sectors(), 1, "six are left");
    let third = Groups::new(device.clone(), code.clone(), DISK, 3500);
    assert!(!third.read_swaths(&room, 8).expect("read"), "there is room for eight");
    assert!(!third.has_room_for_swaths());
}

#[test]
fn what_was_kept_and_is_not_right_is_left_out() {
    let written = || {
        let case = case();
        case.groups.write_swaths(&room(), 7).expect("written");
        reopened(case)
    };
    let place = room()[0].first.0;
    let case = written();
    assert!(!case.groups.read_swaths(&room()[..1], 8).expect("read"), "of another time");
    case.device.flip(place, 1234);
    assert!(!case.groups.read_swaths(&room()[..1], 7).expect("read"), "damaged");
    case.device.state().lost.insert(place);
    assert!(!case.groups.read_swaths(&room()[..1], 7).expect("read"), "lost");
    assert_eq!(case.groups.known_lost(), 0, "nothing of a file is");
    assert!(!case.groups.read_swaths(&room(), 7).expect("read"), "nothing was written there");
    case.take_reads();
    assert_eq!(case.reads(100..101).len(), 2, "with its sums sector");
    let case = written();
    assert!(!case.groups.read_swaths(&room(), 7).expect("read"), "the second was never written");
    case.take_reads();
    assert_eq!(case.reads(100..101).len(), 1, "the first was");
}
