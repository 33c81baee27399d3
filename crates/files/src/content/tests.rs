//! Runs of which parts were freed, and are somebody else's by now; and files beside one of which groups are lost.

use std::sync::Arc;

use claystone_env::{SECTOR_BYTES, Sector};
use claystone_group::{BulkRun, GroupShape, SumsSector};
use claystone_host::HostRandom;
use claystone_sim::{HddModel, SimDevice};

use crate::disk::guard;
use crate::run::{Run, Window};
use crate::testing::{SteppingClock, new_node};
use crate::{Disk, FileError, FileTree, Format, Inode, Kind, NewAttributes, Tuning};

const SHAPE: GroupShape = GroupShape { data: 10, parity: 5 };
/// Of the first file: three sums sectors.
const SECTORS: u64 = 2050;
const BYTES: u64 = SECTOR_BYTES as u64;

struct Case {
    hand: SimDevice,
    disk: Disk,
    inode: Inode,
    run: BulkRun,
}

impl Case {
    /// A disk with a file in one bulk run.
    fn new() -> Case {
        let hand = formatted();
        let disk = opened(&hand);
        let inode = made(&disk, b"long", 0..SECTORS);
        let run = run_of(&disk, inode, 0);
        assert_eq!(run.sums_sectors(), 3, "{run:?}");
        Case { hand, disk, inode, run }
    }

    fn punch(&self, sectors: std::ops::Range<u64>) {
        self.disk.punch(self.inode, sectors.start * BYTES, (sectors.end - sectors.start) * BYTES).expect("punched");
        self.disk.checkpoint(&self.disk.lock_flusher()).expect("made");
    }

    fn reopen(self) -> Case {
        let Case { hand, disk, .. } = self;
        disk.close().expect("closed");
        Case { disk: opened(&hand), hand, ..self }
    }

    fn sums(&self, number: u32) -> Sector {
        self.run.sums(number, SHAPE)
    }

    fn lose_sums(&self, number: u32) {
        self.hand.make_lost(self.sums(number).0..self.sums(number).0 + 1);
    }

    fn sums_are_there(&self, number: u32) -> bool {
        let content = self.hand.content(self.sums(number));
        content.is_some_and(|bytes| SumsSector::parse(&bytes, self.disk.disk_id(), self.sums(number)).is_ok())
    }

    fn assert_sound(&self) {
        assert_eq!(self.disk.check().expect("it reads").problems, []);
        let found = self.disk.scrub(&mut |_| true).expect("scrubbed");
        assert_eq!((found.lost, found.mended, found.sums_mended), (vec![], 0, 0));
    }
}

fn formatted() -> SimDevice {
    let hand = SimDevice::alone("d", HddModel::new(1 << 14), 1);
    let (clock, random) = (SteppingClock::default(), HostRandom::from_system().expect("the system's"));
    let format =
        Format { data: 10, parity: 5, copies: 2, soft_failures: 1e-3, loss_target: 1e-6, label: String::new() };
    Disk::format(&hand.attach(), &format, &clock, &random).expect("formatted");
    hand
}

fn opened(hand: &SimDevice) -> Disk {
    let tuning = Tuning { waiting_sectors_max: 20_000, bulk_sectors_max: 2400, ..Tuning::default() };
    Disk::open(hand.attach(), Arc::new(SteppingClock::default()), tuning).expect("opens")
}

/// A file whose sectors each have the low byte of their number.
fn made(disk: &Disk, name: &[u8], sectors: std::ops::Range<u64>) -> Inode {
    let inode = disk.make(Inode::ROOT, name, &new_node(Kind::File, 0o600)).expect("made").inode;
    let bytes: Vec<u8> = sectors.clone().flat_map(|sector| vec![sector as u8; SECTOR_BYTES]).collect();
    disk.write(inode, sectors.start * BYTES, &bytes).expect("written");
    disk.sync_all().expect("synced");
    inode
}

fn run_of(disk: &Disk, inode: Inode, sector: u64) -> BulkRun {
    let windows = guard(&disk.core).windows(inode, sector..sector + 1, SHAPE.data).expect("they read");
    match windows[0].run {
        Run::Bulk { run } => run,
        Run::Single { .. } | Run::Promised { .. } => panic!("it lies in no bulk run"),
    }
}

fn assert_reads(disk: &Disk, inode: Inode, sectors: std::ops::Range<u64>) {
    for sector in sectors {
        let mut bytes = [0; SECTOR_BYTES];
        disk.read(inode, sector * BYTES, &mut bytes).expect("read");
        assert!(bytes == [sector as u8; SECTOR_BYTES], "sector {sector}");
    }
}

/// Two files, the second of which lies where a hole was made in the first, with nothing in memory and the sums sector over the
/// hole lost.
fn reused() -> (Case, Inode) {
    let case = Case::new();
    case.punch(100..200);
    let other = made(&case.disk, b"other", 0..90);
    let hole = case.run.group(10, SHAPE).first..case.run.group(20, SHAPE).first;
    assert!(hole.contains(&run_of(&case.disk, other, 0).first), "it lies in the hole");
    let case = case.reopen();
    case.lose_sums(0);
    (case, other)
}

#[test]
fn a_lost_sums_sector_over_groups_of_others_is_done_without_by_readers() {
    let (case, other) = reused();
    assert_reads(&case.disk, case.inode, 0..100);
    assert_reads(&case.disk, case.inode, 200..1020);
    // The sums of the hole are not known, and that it was made may not be durable.
    assert!(!case.sums_are_there(0));
    assert_reads(&case.disk, other, 0..90);
    case.assert_sound();
}

#[test]
fn a_lost_sums_sector_over_groups_of_others_is_done_without_by_a_scrub() {
    let (case, other) = reused();
    let found = case.disk.scrub(&mut |_| true).expect("scrubbed");
    assert_eq!((found.lost, found.mended, found.sums_mended), (vec![], 0, 0));
    assert!(!case.sums_are_there(0));
    assert_reads(&case.disk, other, 0..90);
    case.assert_sound();
}

#[test]
fn a_lost_sums_sector_is_done_without_when_what_was_not_learnt_of_it_is_freed() {
    let case = Case::new().reopen();
    case.lose_sums(0);
    assert_reads(&case.disk, case.inode, 0..500);
    case.punch(500..1020);
    assert!(!case.sums_are_there(0));
    let found = case.disk.scrub(&mut |_| true).expect("scrubbed");
    assert_eq!((found.lost, found.mended, found.sums_mended), (vec![], 0, 0));
    assert!(!case.sums_are_there(0));
    let case = case.reopen();
    assert_reads(&case.disk, case.inode, 0..500);
}

/// A sums sector lies before a group that was freed: those behind it are scrubbed with it.
#[test]
fn a_sums_sector_whose_first_group_is_free_is_scrubbed() {
    let case = Case::new();
    case.punch(1020..1030);
    assert_eq!(case.run.sums_before(102, SHAPE), Some(1));
    case.hand.flip_bit(case.sums(1), 77);
    assert!(!case.sums_are_there(1));
    let found = case.disk.scrub(&mut |_| true).expect("scrubbed");
    assert_eq!((found.lost, found.mended, found.sums_mended), (vec![], 0, 1));
    assert!(case.sums_are_there(1));
    case.assert_sound();
}

#[test]
fn updates_under_a_lost_sums_sector_over_groups_of_others_find_their_place() {
    let (case, other) = reused();
    // A little before the hole, and behind it; the whole sectors of the second file stay as they are.
    for sector in [5, 1000] {
        case.disk.write(case.inode, sector * BYTES, &[sector as u8; SECTOR_BYTES]).expect("written");
        case.disk.sync(case.inode).expect("synced");
    }
    case.disk.flush_all(&case.disk.lock_flusher()).expect("flushed");
    assert!(case.sums_are_there(0));
    let case = case.reopen();
    assert_reads(&case.disk, case.inode, 0..100);
    assert_reads(&case.disk, case.inode, 200..SECTORS);
    assert_reads(&case.disk, other, 0..90);
    case.assert_sound();
}

#[test]
fn sums_in_memory_are_not_written_over_what_came_in_their_place() {
    let case = Case::new();
    let place = case.sums(1);
    let cut = NewAttributes { bytes: Some(1020 * BYTES), ..NewAttributes::default() };
    case.disk.set_attributes(case.inode, &cut).expect("cut");
    case.disk.checkpoint(&case.disk.lock_flusher()).expect("made");
    // Small files all over the place that became free.
    let names: Vec<Vec<u8>> = (0..40).map(|number| format!("small {number}").into_bytes()).collect();
    let small: Vec<Inode> = names.iter().map(|name| made(&case.disk, name, 0..3)).collect();
    let before = case.hand.content(place).expect("it reads");
    assert!(before == [0; SECTOR_BYTES], "the first sector of a small file");
    case.hand.make_lost(place.0..place.0 + 1);
    // A stream that ends where the sums sector was, and a mending that reads on to there.
    let read = case.disk.read_bytes(case.inode, 1000 * BYTES, 20 * SECTOR_BYTES).expect("read");
    assert!(read.chunks(SECTOR_BYTES).zip(1000u64..).all(|(bytes, sector)| bytes == [sector as u8; SECTOR_BYTES]));
    assert!(case.hand.content(place).is_none(), "nobody wrote there");
    small.into_iter().for_each(|inode| assert_reads(&case.disk, inode, 0..3));
    assert_eq!(case.disk.groups.statistics().now().mismatches, 0);
}

/// Two files in long runs are written, cut and given holes; now and then nothing is in memory, and a sums sector is lost.
#[test]
fn whatever_is_freed_and_reused_a_lost_sums_sector_loses_nothing() {
    let (mut lost, mut learnt) = (0, 0);
    for seed in 0..5 {
        let mut case = Case::new();
        let other = case.disk.make(Inode::ROOT, b"other", &new_node(Kind::File, 0o600)).expect("made").inode;
        // What fills each sector.
        let mut files = [(case.inode, (0..SECTORS).map(|sector| sector as u8).collect()), (other, Vec::new())];
        let mut state: u64 = seed;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for step in 1..=60u8 {
            let (inode, fills): &mut (Inode, Vec<u8>) = &mut files[below(2) as usize];
            let count_max = [30, 300, SECTORS][below(3) as usize];
            let (first, count) = (below(SECTORS), 1 + below(count_max));
            let (from, to) = (first as usize, (first + count).min(SECTORS) as usize);
            match below(6) {
                0 => {
                    fills.resize(from, 0);
                    let cut = NewAttributes { bytes: Some(first * BYTES), ..NewAttributes::default() };
                    case.disk.set_attributes(*inode, &cut).expect("cut");
                }
                1 | 2 => {
                    case.disk.punch(*inode, first * BYTES, (to - from) as u64 * BYTES).expect("punched");
                    let end = to.min(fills.len());
                    fills[from.min(end)..end].fill(0);
                }
                _ => {
                    case.disk.write(*inode, first * BYTES, &vec![step; (to - from) * SECTOR_BYTES]).expect("written");
                    fills.resize(fills.len().max(to), 0);
                    fills[from..to].fill(step);
                }
            }
            match below(4) {
                0 => case.disk.sync(*inode).expect("synced"),
                1 => case.disk.flush_all(&case.disk.lock_flusher()).expect("flushed"),
                2 => {
                    learnt += case.disk.groups.statistics().now().sums_learnt;
                    case = case.reopen();
                    let sums: Vec<u64> = (0..1 << 14).filter(|sector| is_sums(&case.hand, *sector)).collect();
                    if let Some(&sector) = sums.get(below(sums.len().max(1) as u64) as usize) {
                        case.hand.make_lost(sector..sector + 1);
                        lost += 1;
                    }
                }
                _ => {}
            }
            let request = 1 + below(300) as usize;
            for (inode, fills) in &files {
                let sector = below(SECTORS) as usize;
                let expected = &fills[sector.min(fills.len())..(sector + request).min(fills.len())];
                let read = case.disk.read_bytes(*inode, sector as u64 * BYTES, request * SECTOR_BYTES).expect("read");
                assert_eq!(read.len(), expected.len() * SECTOR_BYTES, "seed {seed} step {step}");
                let is_right = |(bytes, fill): (&[u8], &u8)| bytes.iter().all(|byte| byte == fill);
                assert!(read.chunks(SECTOR_BYTES).zip(expected).all(is_right), "seed {seed} step {step}");
            }
        }
        let found = case.disk.scrub(&mut |_| true).expect("scrubbed");
        assert_eq!(found.lost, vec![]);
        learnt += case.disk.groups.statistics().now().sums_learnt;
        case.assert_sound();
    }
    assert!(lost > 30 && learnt > 10, "{lost} lost, {learnt} learnt");
}

#[test]
fn what_is_written_to_lost_groups_of_a_file_is_no_matter_of_others() {
    let case = Case::new();
    let other = made(&case.disk, b"other", 0..0);
    for group in 0..10 {
        let first = case.run.group(group, SHAPE).first.0;
        case.hand.make_lost(first..first + 8);
        case.disk.write(case.inode, u64::from(group) * 10 * BYTES, &[9; 2 * SECTOR_BYTES]).expect("written");
    }
    case.disk.flush_all(&case.disk.lock_flusher()).expect("elsewhere");
    case.disk.allocate(other, 0, 100 * BYTES, false).expect("allocated");
    case.disk.sync(case.inode).expect("the journal has it");
    drop(case.disk);
    // So little memory that all of it is needed for what waits.
    let tuning = Tuning { waiting_sectors_max: 24, ..Tuning::default() };
    let disk = Disk::open(case.hand.attach(), Arc::new(SteppingClock::default()), tuning).expect("opens");
    assert_eq!(guard(&disk.core).nodes.waiting, 0);
    for first in (0..100).step_by(10) {
        disk.write(other, first * BYTES, &vec![7; 10 * SECTOR_BYTES]).expect("written");
    }
    disk.sync(other).expect("synced");
    disk.write(case.inode, 1000 * BYTES, &[9; 30 * SECTOR_BYTES]).expect("nothing is in its way");
    assert_eq!(disk.read_bytes(other, 0, 100 * SECTOR_BYTES).expect("read"), vec![7; 100 * SECTOR_BYTES]);
    assert_eq!(disk.read_bytes(case.inode, 0, 2 * SECTOR_BYTES).expect("read"), vec![9; 2 * SECTOR_BYTES]);
}

#[test]
fn a_lost_group_keeps_none_beside_it_from_its_place() {
    let case = Case::new();
    let lost = case.run.group(3, SHAPE).first.0;
    case.hand.make_lost(lost..lost + 8);
    // All in one batch.
    for group in [2, 3, 5] {
        case.disk.write(case.inode, group * 10 * BYTES, &[9; 2 * SECTOR_BYTES]).expect("written");
    }
    case.disk.flush_all(&case.disk.lock_flusher()).expect("flushed");
    assert_eq!(guard(&case.disk.core).nodes.waiting, 0);
    assert_eq!([20, 50].map(|sector| run_of(&case.disk, case.inode, sector)), [case.run; 2]);
    let windows = guard(&case.disk.core).windows(case.inode, 30..32, SHAPE.data).expect("they read");
    assert!(
        matches!(windows[..], [Window { run: Run::Single { .. }, .. }]),
        "those of the lost one moved: {windows:?}"
    );
    let Case { hand, disk, inode, .. } = case;
    disk.close().expect("closed");
    let disk = opened(&hand);
    for sector in 32..40 {
        let read = disk.read_bytes(inode, sector * BYTES, SECTOR_BYTES);
        assert_eq!(read.is_ok(), sector >= 38, "sector {sector}: {read:?}");
    }
    for sector in [20, 30, 50] {
        assert_eq!(disk.read_bytes(inode, sector * BYTES, 2 * SECTOR_BYTES).expect("read"), vec![9; 2 * SECTOR_BYTES]);
    }
    assert_reads(&disk, inode, 22..30);
    assert_reads(&disk, inode, 52..60);
}

#[test]
fn what_is_appended_to_a_lost_group_finds_a_place_without_it() {
    let case = Case::new();
    let file = made(&case.disk, b"short", 0..3);
    let between = made(&case.disk, b"between", 0..2);
    case.disk.write(between, 4 * BYTES, &vec![9; 2 * SECTOR_BYTES]).expect("written");
    case.disk.sync_all().expect("synced");
    for inode in [file, between] {
        for window in guard(&case.disk.core).windows(inode, 0..u64::MAX, SHAPE.data).expect("they read") {
            let Run::Single { place, .. } = window.run else { panic!("a short file has small groups") };
            case.hand.make_lost(place.first.0..place.first.0 + u64::from(place.data + SHAPE.parity));
        }
    }
    case.disk.write(file, 3 * BYTES, &vec![9; 2 * SECTOR_BYTES]).expect("written");
    case.disk.write(file, 90 * BYTES, &vec![9; SECTOR_BYTES]).expect("written");
    case.disk.write(between, 2 * BYTES, &vec![9; 2 * SECTOR_BYTES]).expect("written");
    let case = case.reopen();
    let read = |inode, sector, sectors| case.disk.read_bytes(inode, sector * BYTES, sectors * SECTOR_BYTES);
    assert_eq!(read(file, 3, 2).expect("its own group"), vec![9; 2 * SECTOR_BYTES]);
    assert_eq!(read(file, 90, 2).expect("the last one"), vec![9; SECTOR_BYTES]);
    assert_eq!(read(between, 2, 2).expect("its own group"), vec![9; 2 * SECTOR_BYTES]);
    for (inode, sectors) in [(file, 0..3), (between, 0..2), (between, 4..6)] {
        for sector in sectors {
            assert!(matches!(read(inode, sector, 1), Err(FileError::Lost { .. })), "sector {sector} of {inode}");
        }
    }
}

#[test]
fn what_a_lost_group_is_to_grow_by_in_several_batches_finds_its_place() {
    for synced in [0, 1, 2] {
        let Case { hand, disk, .. } = Case::new();
        let file = made(&disk, b"short", 0..2);
        disk.write(file, 2 * BYTES, &vec![9; 2 * SECTOR_BYTES]).expect("written");
        disk.close().expect("closed");
        let two_by_two = Tuning { apply_sectors_max: 2, ..Tuning::default() };
        let open = || Disk::open(hand.attach(), Arc::new(SteppingClock::default()), two_by_two).expect("opens");
        let disk = open();
        let windows = guard(&disk.core).windows(file, 0..u64::MAX, SHAPE.data).expect("they read");
        let [window] = &windows[..] else { panic!("one group: {windows:?}") };
        let Run::Single { place, .. } = window.run else { panic!("a short file has small groups") };
        assert_eq!((place.data, place.capacity), (4, 8));
        if synced > 0 {
            disk.write(file, 4 * BYTES, &vec![9; synced * SECTOR_BYTES]).expect("written");
            disk.sync(file).expect("the journal has it");
        }
        drop(disk);
        hand.make_lost(place.first.0..place.first.0 + u64::from(place.capacity + SHAPE.parity));
        // Opened after a crash, its parity is not trusted.
        let disk = open();
        disk.write(file, 4 * BYTES, &vec![9; 4 * SECTOR_BYTES]).expect("written");
        disk.sync_all().expect("synced");
        assert_eq!(guard(&disk.core).nodes.waiting, 0);
        drop(disk);
        let disk = opened(&hand);
        assert_eq!(disk.attributes(file).expect("there").bytes, 8 * BYTES);
        assert_eq!(disk.read_bytes(file, 4 * BYTES, 4 * SECTOR_BYTES).expect("read"), vec![9; 4 * SECTOR_BYTES]);
        assert!(matches!(disk.read_bytes(file, 0, SECTOR_BYTES), Err(FileError::Lost { .. })));
        // What is lost is written again, and all finds its place.
        disk.write(file, 0, &vec![9; 4 * SECTOR_BYTES]).expect("written");
        disk.close().expect("closed");
        assert_eq!(opened(&hand).read_bytes(file, 0, 8 * SECTOR_BYTES).expect("read"), vec![9; 8 * SECTOR_BYTES]);
    }
}

fn is_sums(hand: &SimDevice, sector: u64) -> bool {
    hand.content(Sector(sector)).is_some_and(|bytes| bytes.starts_with(b"CLAYSUMS"))
}

/// Who looked for room before others took it writes nothing, and is told that there is none.
#[test]
fn the_last_room_is_taken_once() {
    let hand = formatted();
    let disk = opened(&hand);
    let [one, other] =
        [b"one", b"two"].map(|name| disk.make(Inode::ROOT, name, &new_node(Kind::File, 0o600)).expect("made").inode);
    let mut at = 0;
    while disk.is_sure_of(&guard(&disk.core), 9) {
        disk.write(one, at * BYTES, &[9; SECTOR_BYTES]).expect("there is room");
        at += 1;
    }
    disk.make_way(one, at..at + 8).expect("there is room");
    disk.make_way(other, 0..8).expect("there is room");
    let content = vec![8; 8 * SECTOR_BYTES];
    assert_eq!(disk.write_piece(one, at * BYTES, &content), Ok(true));
    assert_eq!(disk.write_piece(other, 0, &content), Ok(false));
    assert_eq!(disk.attributes(other).expect("there").bytes, 0);
}
