//! Scrubbing whole and in passing, on emulated devices.

use std::sync::Arc;
use std::time::Duration;

use claystone_env::testing::MemoryDevice;
use claystone_env::{Clock, Device, ParityVerdict, SECTOR_BYTES, SectorHealth};
use claystone_host::HostRandom;
use claystone_sim::{DeviceFaults, DeviceStats, HddModel, SimDevice, run};

use super::{Pass, Place, Scrubbed};
use crate::disk::guard;
use crate::run::Run;
use crate::testing::{SteppingClock, new_node};
use crate::{Disk, FileTree, Format, Inode, Kind, Tuning};

fn format(data: u16, parity: u16) -> Format {
    Format { data, parity, copies: 2, soft_failures: 1e-3, loss_target: 1e-6, label: String::new() }
}

/// A disk with files of many groups, all at their places.
fn filled(device: &Arc<dyn Device>, format: &Format, clock: &Arc<SteppingClock>) -> Disk {
    let random = HostRandom::from_system().expect("the system's");
    Disk::format(device, format, &**clock, &random).expect("formatted");
    let disk = opened(device, clock);
    for (number, sectors) in [(0, 400), (1, 3), (2, 95)] {
        let name = format!("f{number}").into_bytes();
        let made = disk.make(Inode::ROOT, &name, &new_node(Kind::File, 0o600)).expect("made");
        disk.write(made.inode, 0, &vec![number + 1; sectors * SECTOR_BYTES]).expect("written");
    }
    disk.sync_all().expect("synced");
    disk
}

fn opened(device: &Arc<dyn Device>, clock: &Arc<SteppingClock>) -> Disk {
    let tuning = Tuning { bulk_sectors_max: 200, ..Tuning::default() };
    Disk::open(device.clone(), clock.clone(), tuning).expect("opens")
}

/// Calls every second until a pass has ended; returns what was found, and how many seconds it took.
fn pass(disk: &Disk, clock: &SteppingClock, cycle: Duration) -> (Scrubbed, u64) {
    let ended = disk.health().scrub.ended;
    let mut all = Scrubbed::default();
    for second in 0..100_000 {
        let found = disk.scrub_in_passing(cycle).expect("scrubbed");
        all.groups += found.groups;
        all.pages += found.pages;
        all.mended += found.mended;
        all.lost.extend(found.lost);
        if disk.health().scrub.ended != ended {
            return (all, second);
        }
        drop(clock.sleep(Duration::from_secs(1)));
    }
    panic!("it does not end: {:?}", disk.health().scrub);
}

#[test]
fn scrubbing_in_passing_reads_as_much_as_scrubbing_and_in_time() {
    let (device, clock): (Arc<dyn Device>, _) = (Arc::new(MemoryDevice::new(1 << 16)), Arc::default());
    let disk = filled(&device, &format(10, 2), &clock);
    let at_once = disk.scrub(&mut |_| true).expect("scrubbed");
    assert!(at_once.groups > 45 && at_once.groups == at_once.groups_total, "{at_once:?}");
    let (found, seconds) = pass(&disk, &clock, Duration::from_secs(1000));
    assert_eq!((found.groups, found.lost, found.mended), (at_once.groups, vec![], 0));
    assert!(found.pages > 0 && found.pages == at_once.pages);
    assert!((970..=1030).contains(&seconds), "{seconds} seconds");
}

#[test]
fn what_is_written_again_is_not_lost() {
    let (hand, clock) = (SimDevice::alone("d", HddModel::new(1 << 16), 1), Arc::default());
    let disk = filled(&hand.attach(), &format(10, 2), &clock);
    let file = disk.lookup(Inode::ROOT, b"f0").expect("it is there").inode;
    let windows = guard(&disk.core).windows(file, 0..1, 10).expect("it reads");
    let Run::Bulk { run } = windows[0].run else { panic!("a bulk run") };
    let group = run.group(0, disk.shape).first.0;
    hand.make_lost(group..group + 3);
    disk.write(file, SECTOR_BYTES as u64, &[9; SECTOR_BYTES]).expect("written");
    assert_eq!(disk.scrub(&mut |_| true).expect("scrubbed").lost, [(file, 0), (file, 2)]);
}

#[test]
fn a_pass_goes_on_where_it_was_when_the_disk_was_closed() {
    let (device, clock): (Arc<dyn Device>, _) = (Arc::new(MemoryDevice::new(1 << 16)), Arc::default());
    let mut disk = filled(&device, &format(10, 2), &clock);
    let groups = disk.scrub(&mut |_| true).expect("scrubbed").groups;
    let cycle = Duration::from_secs(1000);
    let mut read = 0;
    for _ in 0..12 {
        for _ in 0..12 {
            read += disk.scrub_in_passing(cycle).expect("scrubbed").groups;
            drop(clock.sleep(Duration::from_secs(1)));
        }
        assert_eq!(disk.health().scrub.groups, read);
        assert_eq!(disk.health().scrub.groups_total, groups);
        disk.close().expect("closed");
        disk = opened(&device, &clock);
    }
    assert!(read >= 12 && read < groups, "{read} of {groups}");
    let (rest, _) = pass(&disk, &clock, cycle);
    assert_eq!(read + rest.groups, groups);
}

#[test]
fn a_busy_time_is_not_made_up_for() {
    let (device, clock): (Arc<dyn Device>, _) = (Arc::new(MemoryDevice::new(1 << 16)), Arc::default());
    let disk = filled(&device, &format(1, 1), &clock);
    disk.scrub_in_passing(Duration::from_secs(10)).expect("scrubbed");
    // A day in which nobody came by.
    drop(clock.sleep(Duration::from_secs(86_400)));
    let found = disk.scrub_in_passing(Duration::from_secs(10)).expect("scrubbed");
    assert!((1..=64).contains(&found.groups), "{}", found.groups);
}

#[test]
fn what_is_seen_of_a_device_is_kept_and_judged() {
    run(5, async |world| {
        let clock: Arc<SteppingClock> = Arc::default();
        let hand: SimDevice = world.device("d", HddModel::new(20_000));
        let mut disk = filled(&hand.attach(), &format(50, 5), &clock);
        assert_eq!(disk.health().verdict, ParityVerdict::Open);
        // One of a hundred: five of 55 is enough for one in a thousand, and not for this.
        hand.set_faults(DeviceFaults::soft(0.02));
        for round in 1..=4 {
            let (before, drive_before) = (disk.health(), hand.stats());
            disk.scrub(&mut |_| true).expect("scrubbed");
            disk.scrub(&mut |_| true).expect("scrubbed");
            let health = disk.health();
            assert!(health.sectors_read > before.sectors_read + 1000, "round {round}: {health:?}");
            assert!(
                health.soft_failures > before.soft_failures && health.mended > before.mended,
                "{round}: {health:?}"
            );
            assert!(health.retries_avoided > before.retries_avoided, "{round}: {health:?}");
            // Of the catalog and the journal too. The drive counts a soft failure once more when it retries.
            let drive = hand.stats();
            let counted =
                |health: &SectorHealth| [health.sectors_read, health.soft_failures + health.retries, health.retries];
            let of_drive = |drive: &DeviceStats| [drive.sectors_read, drive.soft_failures, drive.retries];
            let [now, then] = [counted(&health), counted(&before)];
            let [drive, drive_then] = [of_drive(&drive), of_drive(&drive_before)];
            assert!((0..3).all(|at| now[at] - then[at] == drive[at] - drive_then[at]), "{round}: {health:?}");
            assert!(health.scrub.ended.is_some() && health.scrub.ended_lost == 0);
            disk.close().expect("closed");
            disk = opened(&hand.attach(), &clock);
            let reopened = disk.health();
            assert!(reopened.soft_failures >= health.soft_failures && reopened.scrub == health.scrub);
        }
        let health = disk.health();
        assert_eq!(health.verdict, ParityVerdict::TooLittle, "{health:?}");
        assert!(health.parity_wanted.is_some_and(|wanted| wanted > 5), "{health:?}");
        let seen = health.soft.seen.expect("it was read");
        assert!((0.01..0.04).contains(&seen) && health.soft.stated == 1e-3, "{seen}");
    });
}

#[test]
fn nothing_is_said_of_a_device_that_retries_by_itself() {
    run(6, async |world| {
        let clock: Arc<SteppingClock> = Arc::default();
        let hand: SimDevice = world.device("d", HddModel { fails_fast: false, ..HddModel::new(20_000) });
        let disk = filled(&hand.attach(), &format(50, 5), &clock);
        disk.scrub(&mut |_| true).expect("scrubbed");
        let health = disk.health();
        assert_eq!((health.verdict, health.parity_wanted), (ParityVerdict::Unseen, None));
        assert_eq!((health.soft.seen, health.soft.reads), (None, 0));
        assert!(health.sectors_read > 0);
    });
}

#[test]
fn a_damaged_catalog_is_told_and_a_torn_free_page_is_not() {
    let (device, clock): (Arc<dyn Device>, _) = (Arc::new(MemoryDevice::new(1 << 16)), Arc::default());
    let disk = filled(&device, &format(50, 5), &clock);
    let slab = disk.superblock.current().slabs[0];
    let pages = 1..disk.pages.capacity().min(slab.pages);
    let scrubbed = || disk.scrub(&mut |_| true).expect("scrubbed");
    let (mut in_use, mut free) = (0, 0);
    for page in pages.take(64) {
        let mut before = vec![0; 2 * SECTOR_BYTES];
        let place = slab.page_place(page, 2);
        device.read(place, &mut before, claystone_env::Effort::Retry).expect("read");
        device.write(place, &vec![0xa5; 2 * SECTOR_BYTES]).expect("written");
        let found = scrubbed();
        if !found.pages_lost.is_empty() {
            assert_eq!(found.pages_lost, [page]);
            let (damaged, ended) = (found.catalog_damaged, disk.health().scrub);
            assert_eq!(ended.ended_unread, u64::from(damaged), "page {page}");
            *if damaged { &mut in_use } else { &mut free } += 1;
        }
        device.write(place, &before).expect("written");
    }
    assert!(in_use > 0 && free > 0, "{in_use} pages in use, {free} free");
    assert_eq!((scrubbed().unread(), disk.health().scrub.ended_unread), (0, 0));
}

#[test]
fn the_catalog_is_read_from_the_device_while_checkpoints_go_on() {
    let (hand, clock) = (SimDevice::alone("d", HddModel::new(1 << 16), 1), Arc::default());
    let disk = filled(&hand.attach(), &format(50, 5), &clock);
    let file = disk.lookup(Inode::ROOT, b"f0").expect("it is there").inode;
    // More than is read in passing when the catalog is opened.
    let set = |round: u8| {
        for number in 0..60u8 {
            disk.set_attribute(file, &[b'a', number + 1], &[round; 40_000], None).expect("room");
        }
        // Nobody holds what this takes.
        disk.checkpoint(&disk.lock_flusher()).expect("made");
    };
    set(0);
    let looking = disk.look_at_catalog(&disk.lock_flusher()).expect("it opens");
    (1..6).for_each(set);
    let written = hand.stats().sectors_read;
    looking.read_all().expect("nothing of it was written over");
    let read = hand.stats().sectors_read - written;
    assert!(read > 600, "{read} sectors are not all rows");
}

#[test]
fn scrubbing_in_passing_tells_a_damaged_catalog_when_it_ends() {
    let (device, clock): (Arc<dyn Device>, _) = (Arc::new(MemoryDevice::new(1 << 16)), Arc::default());
    let disk = filled(&device, &format(50, 5), &clock);
    let slab = disk.superblock.current().slabs[0];
    assert!(slab.pages > super::PAGES_AT_ONCE, "its first page is not of the last step");
    let in_use = (1..64).find(|page| {
        let mut before = vec![0; 2 * SECTOR_BYTES];
        device.read(slab.page_place(*page, 2), &mut before, claystone_env::Effort::Retry).expect("read");
        device.write(slab.page_place(*page, 2), &vec![0xa5; 2 * SECTOR_BYTES]).expect("written");
        let damaged = disk.scrub(&mut |_| true).expect("scrubbed").catalog_damaged;
        if !damaged {
            device.write(slab.page_place(*page, 2), &before).expect("written");
        }
        damaged
    });
    let in_use = in_use.expect("a page that is in use");
    let ended = disk.health().scrub.ended;
    let mut told = Vec::new();
    while disk.health().scrub.ended == ended {
        let found = disk.scrub_in_passing(Duration::from_secs(100)).expect("scrubbed");
        if !found.pages_lost.is_empty() {
            told.push((found.pages_lost, found.catalog_damaged));
        }
        drop(clock.sleep(Duration::from_secs(1)));
    }
    assert_eq!(told.last(), Some(&(vec![in_use], true)), "{told:?}");
    assert_eq!(disk.health().scrub.ended_unread, 1);
}

#[test]
fn stored_pass() {
    let all = Pass {
        place: Place::Groups { inode: 7, first: 1000, read: 16 },
        groups: 4,
        groups_total: 5,
        lost: 6,
        ended: Some(claystone_env::WallTime { unix_ms: 0x0102 }),
        ended_lost: 8,
        unread: 9,
        ended_unread: 10,
    };
    let bytes = all.encode();
    let fields: [u64; 11] = [1, 7, 1000, 16, 4, 5, 6, 0x0102, 8, 9, 10];
    assert_eq!(bytes, fields.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
    assert_eq!(Pass::decode(&bytes), all);
    let pages = Pass { place: Place::Pages { page: 9 }, ended: None, ..all };
    assert_eq!(Pass::decode(&[pages.encode(), vec![1]].concat()), pages);
    assert_eq!(Pass::decode(&bytes[..72]), Pass { unread: 0, ended_unread: 0, ..all }, "as it was first");
    assert_eq!(Pass::decode(&bytes[..71]), Pass::default());
    assert_eq!(Pass::decode(&[0xff; 72]).place, Place::None);
}
