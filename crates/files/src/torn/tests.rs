//! Holes and cuts where a crash may have torn the parity of a group.

use std::ops::Range;
use std::sync::Arc;

use claystone_env::{Device, Effort, SECTOR_BYTES, Sector};
use claystone_group::{GroupPlace, Member};
use claystone_host::HostRandom;
use claystone_sim::{HddModel, SimDevice};

use crate::disk::{guard, write_gate};
use crate::run::Run;
use crate::testing::{SteppingClock, new_node};
use crate::{Disk, FileTree, Format, Inode, Kind, NewAttributes, Tuning};

const BYTES: u64 = SECTOR_BYTES as u64;
const PARITY: u32 = 2;

/// A disk that was opened after a crash, and a file in groups of ten: what waits of its first group is in the journal, and did not find its
/// place yet; of the update that was cut off nothing but the parity was written.
struct Case {
    hand: SimDevice,
    disk: Disk,
    inode: Inode,
    group: GroupPlace,
}

impl Case {
    fn new(sectors: usize, waits: Range<u64>) -> Case {
        let hand = formatted();
        let disk = opened(&hand);
        let inode = made(&disk, sectors);
        let group = group_of(&disk, inode);
        for sector in waits {
            disk.write(inode, sector * BYTES, &[2; SECTOR_BYTES]).expect("written");
        }
        disk.sync(inode).expect("in the journal");
        assert!(guard(&disk.core).nodes.waiting > 0, "it waits there");
        let device: Arc<dyn Device> = hand.attach();
        for number in 0..PARITY {
            device.write(group.sector(Member::Parity(number)), &[7; SECTOR_BYTES]).expect("torn");
        }
        guard(&disk.core).nodes.node(inode).distrusts_parity = true;
        Case { hand, disk, inode, group }
    }

    fn crash(self) -> Case {
        let Case { hand, disk, inode, group } = self;
        hand.crash();
        drop(disk);
        let disk = opened(&hand);
        assert!(disk.check().expect("it reads").problems.is_empty());
        Case { hand, disk, inode, group }
    }

    /// A sector of the device.
    fn read(&self, sector: Sector) -> Vec<u8> {
        let mut bytes = vec![0; SECTOR_BYTES];
        let failed = self.hand.attach().read(sector, &mut bytes, Effort::Retry).expect("it answers");
        assert_eq!(failed, [], "it reads");
        bytes
    }

    /// Changes a sector of the group by itself, and loses another: it is decoded.
    fn assert_bears_a_loss(self) {
        let Case { hand, disk, inode, group } = self;
        assert_eq!(guard(&disk.core).nodes.waiting, 0);
        disk.write(inode, 3 * BYTES, &[4; SECTOR_BYTES]).expect("written");
        disk.sync(inode).expect("in the journal");
        disk.flush_all(&disk.lock_flusher()).expect("there is room");
        disk.checkpoint(&disk.lock_flusher()).expect("made");
        hand.make_lost(group.sector(Member::Data(5)).0..group.sector(Member::Data(5)).0 + 1);
        let mut bytes = [0; SECTOR_BYTES];
        assert_eq!(disk.read(inode, 5 * BYTES, &mut bytes), Ok(SECTOR_BYTES));
        assert!(bytes == [1; SECTOR_BYTES], "{}", bytes[0]);
    }
}

fn formatted() -> SimDevice {
    let hand = SimDevice::alone("d", HddModel::new(1 << 13), 1);
    let (clock, random) = (SteppingClock::default(), HostRandom::from_system().expect("the system's"));
    let (soft_failures, loss_target, label) = (1e-3, 1e-6, String::new());
    let format = Format { data: 10, parity: PARITY as u16, copies: 2, soft_failures, loss_target, label };
    Disk::format(&hand.attach(), &format, &clock, &random).expect("formatted");
    hand
}

/// A file of so many sectors, all in their places.
fn made(disk: &Disk, sectors: usize) -> Inode {
    let inode = disk.make(Inode::ROOT, b"file", &new_node(Kind::File, 0o600)).expect("made").inode;
    disk.write(inode, 0, &vec![1; sectors * SECTOR_BYTES]).expect("written");
    disk.sync_all().expect("synced");
    disk.flush_all(&disk.lock_flusher()).expect("there is room");
    inode
}

/// The first group of a file.
fn group_of(disk: &Disk, inode: Inode) -> GroupPlace {
    let windows = guard(&disk.core).windows(inode, 0..1, 10).expect("they read");
    match windows[0].run {
        Run::Single { place, .. } => place,
        Run::Bulk { run } => run.group(0, disk.shape),
        Run::Promised { .. } => panic!("{windows:?}"),
    }
}

fn opened(hand: &SimDevice) -> Disk {
    Disk::open(hand.attach(), Arc::new(SteppingClock::default()), Tuning::default()).expect("opens")
}

/// What is forgotten in each way, of a group at the front of a bulk run and of a single one, and whether the power is cut then.
fn in_each_way(forget: impl Fn(&Case)) {
    for (sectors, crashes) in [(100, false), (100, true), (10, false), (10, true)] {
        let case = Case::new(sectors, 8..10);
        forget(&case);
        case.disk.sync_all().expect("synced");
        if crashes { case.crash().assert_bears_a_loss() } else { case.assert_bears_a_loss() }
    }
}

#[test]
fn a_hole_where_a_crash_tore_parity_leaves_a_group_that_bears_losses() {
    in_each_way(|case| case.disk.punch(case.inode, 8 * BYTES, 2 * BYTES).expect("punched"));
}

#[test]
fn a_cut_where_a_crash_tore_parity_leaves_a_group_that_bears_losses() {
    in_each_way(|case| {
        let cut = NewAttributes { bytes: Some(8 * BYTES), ..NewAttributes::default() };
        case.disk.set_attributes(case.inode, &cut).expect("cut");
    });
}

/// Where nothing can be flushed the parity is void.
#[test]
fn parity_is_void_where_what_waits_is_forgotten() {
    in_each_way(|case| {
        let gate = case.disk.gate(case.inode);
        let _alone = write_gate(&gate);
        case.disk.void_torn(case.inode, &[8, 9]).expect("void");
        let mut core = guard(&case.disk.core);
        case.disk.drop_sectors(&mut core, case.inode, 8..10).expect("forgotten");
        core.nodes.node(case.inode).distrusts_parity = false;
    });
}

/// A hole in the middle of a group: two windows show it, and what waits of both was on its way when the power was cut. Parity and the front are
/// new, the rear is torn; and a sector does not read.
#[test]
fn what_waits_of_a_group_in_two_windows_goes_into_it_at_once() {
    let hand = formatted();
    let disk = opened(&hand);
    let inode = made(&disk, 100);
    disk.punch(inode, 4 * BYTES, BYTES).expect("punched");
    disk.checkpoint(&disk.lock_flusher()).expect("made");
    let group = group_of(&disk, inode);
    let write = |sector: u64| disk.write(inode, sector * BYTES, &[2; SECTOR_BYTES]).expect("written");
    let changed = [1, 2, 6, 7, 8, 9];
    changed.iter().for_each(|sector| write(*sector));
    disk.flush_all(&disk.lock_flusher()).expect("there is room");
    disk.checkpoint(&disk.lock_flusher()).expect("made");
    changed.iter().for_each(|sector| write(*sector));
    disk.sync(inode).expect("in the journal");
    assert_eq!(guard(&disk.core).nodes.waiting, changed.len() as u64);
    for torn in [6, 7, 8] {
        hand.attach().write(group.sector(Member::Data(torn)), &[7; SECTOR_BYTES]).expect("torn");
    }
    hand.make_lost(group.sector(Member::Data(3)).0..group.sector(Member::Data(3)).0 + 1);
    hand.crash();
    drop(disk);
    let disk = opened(&hand);
    assert_eq!(guard(&disk.core).nodes.waiting, 0, "all found its place");
    let found = disk.scrub(&mut |_| true).expect("scrubbed");
    assert_eq!((found.lost, found.groups_lost), (vec![], 0));
    for (sector, fill) in [(0, 1), (1, 2), (3, 1), (4, 0), (5, 1), (6, 2), (9, 2)] {
        let mut bytes = [0; SECTOR_BYTES];
        assert_eq!(disk.read(inode, sector * BYTES, &mut bytes), Ok(SECTOR_BYTES), "sector {sector}");
        assert!(bytes == [fill; SECTOR_BYTES], "sector {sector}: {}", bytes[0]);
    }
}

/// The sums sector of a group that a crash tore is lost as well, so that what waits moves; and then it reads again.
#[test]
fn parity_is_void_where_what_waits_leaves_a_group_of_which_nothing_is_known() {
    let case = Case::new(100, 8..10);
    let windows = guard(&case.disk.core).windows(case.inode, 0..1, 10).expect("they read");
    let Run::Bulk { run } = windows[0].run else { panic!("{windows:?}") };
    let (sums, parity) = (run.sums(0, case.disk.shape), case.group.sector(Member::Parity(0)));
    let before = case.read(sums);
    case.hand.attach().sync().expect("synced");
    case.hand.make_lost(sums.0..sums.0 + 1);
    let case = case.crash();
    let windows = guard(&case.disk.core).windows(case.inode, 0..10, 10).expect("they read");
    assert_eq!(windows.iter().map(|window| window.first).collect::<Vec<_>>(), [0, 8], "what waited moved");
    assert!(case.read(parity).starts_with(b"CLAYVOID"));
    let device = case.hand.attach();
    device.write(sums, &before).expect("it reads again");
    device.sync().expect("synced");
    case.crash().assert_bears_a_loss();
}
