//! Checksums of what was there before an opening, on an emulated drive.

use std::sync::Arc;
use std::time::Duration;

use claystone_env::{Clock, Effort, SECTOR_BYTES, Sector};
use claystone_host::HostRandom;
use claystone_sim::{HddModel, SimDevice};

use crate::disk::guard;
use crate::resting::SwathsKept;
use crate::testing::{SteppingClock, new_node};
use crate::{Disk, FileTree, Format, Inode, Kind, Table, Tuning, keys};

const NAMES: [&[u8]; 2] = [b"a", b"b"];

/// A drive with two files of 3000 sectors, in runs of at most 1000.
fn filled(clock: &Arc<SteppingClock>) -> SimDevice {
    let hand = SimDevice::alone("d", HddModel::new(1 << 16), 1);
    let random = HostRandom::from_system().expect("the system's");
    let format =
        Format { data: 50, parity: 2, copies: 2, soft_failures: 1e-3, loss_target: 1e-6, label: String::new() };
    Disk::format(&hand.attach(), &format, &**clock, &random).expect("formatted");
    let disk = opened(&hand, clock);
    assert_eq!(load(&disk, clock), 1, "there is nothing yet");
    for name in NAMES {
        let file = disk.make(Inode::ROOT, name, &new_node(Kind::File, 0o600)).expect("made").inode;
        disk.write(file, 0, &content(name)).expect("written");
    }
    disk.sync_all().expect("synced");
    disk.close().expect("closed");
    hand
}

/// With memory for one sums sector.
fn opened(hand: &SimDevice, clock: &Arc<SteppingClock>) -> Disk {
    opened_with(16 << 10, hand, clock)
}

fn opened_with(sums_bytes: usize, hand: &SimDevice, clock: &Arc<SteppingClock>) -> Disk {
    let tuning = Tuning { bulk_sectors_max: 1000, sums_bytes, ..Tuning::default() };
    Disk::open(hand.attach(), clock.clone(), tuning).expect("opens")
}

/// As after a power cut: what memory knew is gone.
fn forget(hand: &SimDevice, clock: &Arc<SteppingClock>) {
    drop(opened(hand, clock));
}

fn content(name: &[u8]) -> Vec<u8> {
    (0..3000u32).flat_map(|sector| [name[0], sector as u8, (sector >> 8) as u8, 1].repeat(SECTOR_BYTES / 4)).collect()
}

/// Calls every second until there is no more; returns how often.
fn load(disk: &Disk, clock: &SteppingClock) -> usize {
    for calls in 1..10_000 {
        if !disk.load_swaths_in_passing().expect("loaded") {
            return calls;
        }
        drop(clock.sleep(Duration::from_secs(1)));
    }
    panic!("it does not end");
}

/// Reads some sectors of a file by themselves; returns how many the drive read for each.
fn read(disk: &Disk, hand: &SimDevice, name: &[u8]) -> f64 {
    let file = disk.lookup(Inode::ROOT, name).expect("it is there").inode;
    let (before, content) = (hand.stats(), content(name));
    let sectors = (25..3000).step_by(211);
    let count = sectors.len();
    for sector in sectors {
        let mut into = vec![0; SECTOR_BYTES];
        disk.read(file, (sector * SECTOR_BYTES) as u64, &mut into).expect("read");
        assert!(into == content[sector * SECTOR_BYTES..][..SECTOR_BYTES], "sector {sector}");
    }
    (hand.stats().sectors_read - before.sectors_read) as f64 / count as f64
}

#[test]
fn what_was_there_before_an_opening_is_read_by_swaths() {
    let clock: Arc<SteppingClock> = Arc::default();
    let hand = filled(&clock);
    forget(&hand, &clock);
    let each = read(&opened(&hand, &clock), &hand, b"a");
    assert!(each <= 2.0, "{each}: a sector, and mostly its sums sector");
    let disk = opened(&hand, &clock);
    assert!(load(&disk, &clock) > 1, "the first call does a run");
    let each = read(&disk, &hand, b"a");
    assert!((15.0..18.0).contains(&each), "{each}: a swath, some with parity");
    let read_again = hand.stats().sectors_read;
    assert_eq!(load(&disk, &clock), 1);
    assert_eq!(hand.stats().sectors_read, read_again, "nothing is read twice");
}

/// Where the drive has sums of swaths that were kept.
fn kept(hand: &SimDevice) -> Vec<u64> {
    let (device, mut bytes) = (hand.attach(), vec![0; 64 * SECTOR_BYTES]);
    let mut kept = Vec::new();
    for first in (0..1 << 16).step_by(64) {
        device.read(Sector(first), &mut bytes, Effort::Retry).expect("read");
        let sectors = (first..).zip(bytes.chunks_exact(SECTOR_BYTES));
        kept.extend(sectors.filter(|(_, bytes)| bytes.starts_with(b"CLAYSWTH")).map(|(sector, _)| sector));
    }
    kept
}

#[test]
fn what_memory_knew_at_a_closing_is_known_at_once() {
    let clock: Arc<SteppingClock> = Arc::default();
    let hand = filled(&clock);
    let disk = opened(&hand, &clock);
    assert_eq!(load(&disk, &clock), 1, "all of it");
    let each = read(&disk, &hand, b"a");
    assert!((15.0..18.0).contains(&each), "{each}: a swath, some with parity");
    assert!(disk.check().expect("checked").problems.is_empty(), "the sectors are free");
}

#[test]
fn whoever_takes_the_sectors_does_no_harm() {
    let clock: Arc<SteppingClock> = Arc::default();
    let hand = filled(&clock);
    assert_eq!(kept(&hand).len(), 1);
    let disk = opened_with(64 << 10, &hand, &clock);
    // Other bytes where the old ones were, and everywhere else.
    disk.unlink(Inode::ROOT, b"a").expect("removed");
    disk.sync_all().expect("synced");
    let mut files = Vec::new();
    while disk.tend().is_ok() && disk.space().free_sectors > 2000 {
        let name = format!("c{}", files.len());
        let file = disk.make(Inode::ROOT, name.as_bytes(), &new_node(Kind::File, 0o600)).expect("made").inode;
        disk.write(file, 0, &content(b"c")[..1000 * SECTOR_BYTES]).expect("written");
        disk.sync_all().expect("synced");
        files.push(file);
    }
    assert!(kept(&hand).is_empty(), "others have them");
    disk.close().expect("closed");
    let disk = opened_with(64 << 10, &hand, &clock);
    for file in files {
        let mut into = vec![0; 1000 * SECTOR_BYTES];
        disk.read(file, 0, &mut into).expect("read");
        assert!(into == content(b"c")[..into.len()]);
    }
    let each = read(&disk, &hand, b"b");
    assert!((15.0..18.0).contains(&each), "{each}");
}

#[test]
fn what_was_kept_counts_once() {
    let clock: Arc<SteppingClock> = Arc::default();
    let hand = filled(&clock);
    forget(&hand, &clock);
    let each = read(&opened(&hand, &clock), &hand, b"a");
    assert!(each <= 2.0, "{each}: whoever opened it may have changed all");
}

/// Changes a sector of `a` in place, so that the journal has it.
fn change(disk: &Disk) {
    let file = disk.lookup(Inode::ROOT, b"a").expect("it is there").inode;
    disk.write(file, 25 * SECTOR_BYTES as u64, &content(b"a")[25 * SECTOR_BYTES..][..SECTOR_BYTES]).expect("written");
    disk.sync(file).expect("synced");
}

#[test]
fn what_was_kept_of_a_disk_in_use_counts_until_it_is_changed() {
    let clock: Arc<SteppingClock> = Arc::default();
    let hand = filled(&clock);
    let rested = || {
        let disk = opened(&hand, &clock);
        load(&disk, &clock);
        disk.rest().expect("at rest");
        disk
    };
    drop(rested());
    let each = read(&opened(&hand, &clock), &hand, b"b");
    assert!((15.0..18.0).contains(&each), "{each}");
    let disk = rested();
    change(&disk);
    drop(disk);
    let each = read(&opened(&hand, &clock), &hand, b"b");
    assert!(each <= 2.0, "{each}");
}

#[test]
fn what_was_kept_before_an_entry_of_the_journal_does_not_count() {
    let clock: Arc<SteppingClock> = Arc::default();
    let hand = filled(&clock);
    for counts in [true, false] {
        let disk = opened(&hand, &clock);
        load(&disk, &clock);
        disk.rest().expect("at rest");
        let row = guard(&disk.core).catalog.get(Table::State, keys::SWATHS).expect("read").expect("kept");
        let kept = SwathsKept::decode(&row, 1 << 16).expect("as it was written");
        if !counts {
            change(&disk);
        }
        // As a checkpoint that left the row.
        assert!(disk.checkpoint_with(Some(&kept)).expect("made"));
        drop(disk);
        let each = read(&opened(&hand, &clock), &hand, b"b");
        assert_eq!(each > 2.0, counts, "{each}");
    }
}

#[test]
fn what_did_not_all_fit_is_not_all() {
    let clock: Arc<SteppingClock> = Arc::default();
    let hand = filled(&clock);
    // Memory for the sums of the swaths of two.
    let disk = opened_with(1000, &hand, &clock);
    load(&disk, &clock);
    disk.close().expect("closed");
    let disk = opened(&hand, &clock);
    assert!(load(&disk, &clock) > 1, "the rest of it is read");
    let each = read(&disk, &hand, b"b");
    assert!((15.0..18.0).contains(&each), "{each}");
}

#[test]
fn a_disk_with_little_room_keeps_nothing() {
    let clock: Arc<SteppingClock> = Arc::default();
    let disk = opened(&filled(&clock), &clock);
    let open = guard(&disk.space).open_sectors();
    assert!(disk.reserve_for_swaths(open / 4 + 1).is_empty());
    let room = disk.reserve_for_swaths(open / 4);
    assert_eq!(room.iter().map(|range| range.sectors).sum::<u64>(), open / 4);
    assert_eq!(guard(&disk.space).open_sectors(), open - open / 4, "others do not get it meanwhile");
}

#[test]
fn what_goes_meanwhile_is_passed_over() {
    let clock: Arc<SteppingClock> = Arc::default();
    let hand = filled(&clock);
    forget(&hand, &clock);
    let disk = opened(&hand, &clock);
    assert!(disk.load_swaths_in_passing().expect("loaded"));
    disk.unlink(Inode::ROOT, b"a").expect("removed");
    disk.sync_all().expect("synced");
    load(&disk, &clock);
    let each = read(&disk, &hand, b"b");
    assert!((15.0..18.0).contains(&each), "{each}");
}
