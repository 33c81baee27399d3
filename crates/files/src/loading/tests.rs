//! Checksums of what was there before an opening, on an emulated drive.

use std::sync::Arc;
use std::time::Duration;

use claystone_env::{Clock, SECTOR_BYTES};
use claystone_host::HostRandom;
use claystone_sim::{HddModel, SimDevice};

use crate::testing::{SteppingClock, new_node};
use crate::{Disk, FileTree, Format, Inode, Kind, Tuning};

const NAMES: [&[u8]; 2] = [b"a", b"b"];

/// A drive with two files of 3000 sectors, in runs of at most 1000.
fn filled(clock: &Arc<SteppingClock>) -> SimDevice {
    let hand = SimDevice::alone("d", HddModel::new(1 << 16), 1);
    let random = HostRandom::from_system().expect("the system's");
    let format =
        Format { data: 50, parity: 2, copies: 2, soft_failures: 1e-3, loss_target: 1e-6, label: String::new() };
    Disk::format(&hand.attach(), &format, &**clock, &random).expect("formatted");
    let disk = opened(&hand, clock);
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
    let tuning = Tuning { bulk_sectors_max: 1000, sums_bytes: 16 << 10, ..Tuning::default() };
    Disk::open(hand.attach(), clock.clone(), tuning).expect("opens")
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

#[test]
fn what_goes_meanwhile_is_passed_over() {
    let clock: Arc<SteppingClock> = Arc::default();
    let hand = filled(&clock);
    let disk = opened(&hand, &clock);
    assert!(disk.load_swaths_in_passing().expect("loaded"));
    disk.unlink(Inode::ROOT, b"a").expect("removed");
    disk.sync_all().expect("synced");
    load(&disk, &clock);
    let each = read(&disk, &hand, b"b");
    assert!((15.0..18.0).contains(&each), "{each}");
}
