//! The disk against the contract of trees, closed and opened, and cut off at every operation of its device.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use claystone_env::testing::MemoryDevice;
use claystone_env::{Clock, Device, SECTOR_BYTES};
use claystone_host::HostRandom;
use claystone_sim::{DeviceFaults, HddModel, SimDevice, run};

use super::{Disk, Format, Tuning, guard, write_gate};
use crate::placing::Scope;
use crate::testing::{Comparison, SteppingClock, compare, new_node, tree_conformance};
use crate::{FileError, FileTree, Inode, Kind, NewAttributes, RenameMode, Seek};

mod crammed;
mod cuts;
mod emptied;
mod filled;
mod pieces;
mod promises;
mod synced;

fn format(parity: u16) -> Format {
    Format { data: 10, parity, copies: 2, soft_failures: 1e-3, loss_target: 1e-6, label: "test".into() }
}

/// Everything is small, so that every path is walked soon.
fn tuning() -> Tuning {
    Tuning {
        waiting_sectors_max: 200,
        bulk_sectors_max: 100,
        apply_sectors_max: 16,
        freed_windows_max: 8,
        ..Tuning::default()
    }
}

fn formatted(device: &Arc<dyn Device>, parity: u16) -> Disk {
    let (clock, random) = (Arc::new(SteppingClock::default()), HostRandom::from_system().expect("the system's"));
    Disk::format(device, &format(parity), &*clock, &random).expect("formatted");
    opened(device.clone(), clock)
}

fn opened(device: Arc<dyn Device>, clock: Arc<dyn Clock>) -> Disk {
    Disk::open(device, clock, tuning()).expect("opens")
}

fn memory(parity: u16) -> Disk {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 16));
    formatted(&device, parity)
}

fn assert_sound(disk: &Disk) {
    assert_eq!(disk.check().expect("the catalog reads").problems, []);
    let core = guard(&disk.core);
    for (inode, kept) in core.taken.all() {
        let windows = core.all_windows(inode, 0..u64::MAX, disk.shape.data).expect("they read");
        let taken: u64 = windows.iter().map(|window| window.taken(disk.shape)).sum();
        assert_eq!(kept, taken, "what {inode:?} takes");
    }
}

#[test]
fn a_disk_is_a_tree() {
    tree_conformance(|| Arc::new(memory(2)));
}

#[test]
fn what_a_file_takes_follows_what_becomes_of_its_sectors() {
    let disk = memory(2);
    let file = disk.make(Inode::ROOT, b"f", &new_node(Kind::File, 0o600)).expect("made").inode;
    let taken = |disk: &Disk| disk.attributes(file).expect("there").sectors;
    assert_eq!(taken(&disk), 0);
    for number in 0..300 {
        disk.write(file, number * 2 * SECTOR_BYTES as u64, &[1; SECTOR_BYTES]).expect("written");
    }
    disk.sync_all().expect("synced");
    disk.flush_all(&disk.lock_flusher()).expect("placed");
    assert!(taken(&disk) > 600, "groups with parity: {}", taken(&disk));
    assert_sound(&disk);
    disk.write(file, 0, &vec![2; 400 * SECTOR_BYTES]).expect("written");
    disk.flush_all(&disk.lock_flusher()).expect("placed");
    assert_sound(&disk);
    disk.allocate(file, 0, 2000 * SECTOR_BYTES as u64, false).expect("there is room");
    assert!(taken(&disk) >= 2000);
    assert_sound(&disk);
    disk.punch(file, 0, 1500 * SECTOR_BYTES as u64).expect("a hole");
    assert_sound(&disk);
    disk.unlink(Inode::ROOT, b"f").expect("deleted");
    assert_sound(&disk);
}

#[test]
fn a_disk_does_as_the_reference_tree() {
    for seed in 0..8 {
        let disk = memory(if seed % 2 == 0 { 2 } else { 0 });
        compare(&disk, seed, 2000);
        disk.sync_all().expect("synced");
        assert_sound(&disk);
    }
}

#[test]
fn a_disk_whose_sectors_fail_does_as_the_reference_tree() {
    for seed in 0..6 {
        let drive = SimDevice::alone("d", HddModel::new(1 << 16), seed);
        let disk = formatted(&drive.attach(), 6);
        drive.set_faults(DeviceFaults::soft(0.1));
        compare(&disk, 40 + seed, 1500);
        assert!(disk.groups.statistics().now().mended > 20, "{:?}", disk.groups.statistics().now());
        drive.set_faults(DeviceFaults::default());
        disk.sync_all().expect("synced");
        assert_sound(&disk);
    }
}

/// Streams over a file in bulk runs that is written again, cut, gets holes and moves on the device, while sectors fail: all in
/// whole sectors, so that what is kept of reads is used.
#[test]
fn streams_read_what_is_there_whatever_was_kept() {
    const SECTORS: usize = 240;
    for seed in 0..8 {
        let drive = SimDevice::alone("d", HddModel::new(1 << 13), seed);
        let disk = formatted(&drive.attach(), 6);
        drive.set_faults(DeviceFaults::soft(0.05));
        let inodes = [b"one", b"two"]
            .map(|name| disk.make(Inode::ROOT, name, &new_node(Kind::File, 0o600)).expect("made").inode);
        let mut contents = [vec![0u8; 0], vec![0u8; 0]];
        let mut state = seed;
        let mut below = |bound: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % bound
        };
        for step in 0..400usize {
            let which = below(2);
            let (inode, content) = (inodes[which], &mut contents[which]);
            let (first, count) = (below(SECTORS), 1 + below(if step % 9 == 0 { SECTORS } else { 12 }));
            let (from, to) = (first * SECTOR_BYTES, (first + count).min(SECTORS) * SECTOR_BYTES);
            match below(8) {
                0 => {
                    content.resize(from, 0);
                    let cut = NewAttributes { bytes: Some(from as u64), ..NewAttributes::default() };
                    disk.set_attributes(inode, &cut).expect("cut");
                }
                1 => {
                    disk.punch(inode, from as u64, (to - from) as u64).expect("punched");
                    let end = to.min(content.len());
                    content[from.min(end)..end].fill(0);
                }
                _ => {
                    let bytes = [step as u8, which as u8, seed as u8, 7].repeat((to - from) / 4);
                    disk.write(inode, from as u64, &bytes).expect("written");
                    content.resize(content.len().max(to), 0);
                    content[from..to].copy_from_slice(&bytes);
                }
            }
            if below(4) > 0 {
                disk.flush_all(&disk.lock_flusher()).expect("flushed");
            }
            if below(8) == 0 {
                disk.checkpoint(&disk.lock_flusher()).expect("a checkpoint");
            }
            // All, or one request, so that what a mending has kept for the next one is there while the file is changed.
            let (request, all, one) = ((3 + below(60)) * SECTOR_BYTES, below(3) == 0, below(20));
            for (inode, content) in inodes.into_iter().zip(&contents) {
                for (at, expected) in content.chunks(request).enumerate().filter(|(at, _)| all || *at == one) {
                    let read = disk.read_bytes(inode, (at * request) as u64, request).expect("read");
                    assert!(read == expected, "seed {seed} step {step}: request {at} of {request}");
                }
            }
        }
        assert!(disk.groups.statistics().now().mended > 300);
        drive.set_faults(DeviceFaults::default());
        assert_sound(&disk);
    }
}

#[test]
fn a_disk_is_the_same_when_it_was_closed() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 16));
    let mut disk = formatted(&device, 2);
    let mut comparison = Comparison::new(&disk, 11);
    for round in 0..12 {
        comparison.run(&disk, 300);
        // Closed, or left behind as by a kill after a sync.
        comparison.close(&disk);
        if round % 2 == 0 {
            disk.close().expect("closed");
        } else {
            disk.sync_all().expect("synced");
            drop(disk);
        }
        disk = opened(device.clone(), Arc::new(SteppingClock::default()));
        assert_sound(&disk);
        comparison.check(&disk);
    }
    let scrubbed = disk.scrub(&mut |_| true).expect("scrubbed");
    assert_eq!((scrubbed.mended, scrubbed.sums_mended, scrubbed.lost), (0, 0, vec![]));
    assert!(scrubbed.groups > 0 && scrubbed.groups == scrubbed.groups_total);
}

/// What a file may hold after a crash, sector by sector: what was synced last, or anything written since.
#[derive(Default)]
struct Promise {
    synced: BTreeMap<u64, u8>,
    written: BTreeMap<u64, Vec<u8>>,
}

/// A workload that is cut off anywhere: overwrites, appends, whole groups, cuts, and names.
fn work(disk: &Disk, files: &mut [(Inode, Promise)], steps: &mut u64) -> Result<(), FileError> {
    for (turn, number) in (0..36u64).zip((1u64..).step_by(1)) {
        let (inode, promise) = &mut files[(turn % 3) as usize];
        // Rows of one to 45 sectors at places that come again.
        let (first, len) = ((turn * 7) % 60, [1, 3, 45, 12, 2][(turn % 5) as usize]);
        let fill = number as u8;
        for sector in first..first + len {
            promise.written.entry(sector).or_default().push(fill);
        }
        disk.write(*inode, first * SECTOR_BYTES as u64, &vec![fill; len as usize * SECTOR_BYTES])?;
        *steps += 1;
        if turn % 3 != 1 {
            disk.sync(*inode)?;
            for (sector, fills) in std::mem::take(&mut promise.written) {
                promise.synced.insert(sector, *fills.last().expect("was written"));
            }
        }
        if turn % 11 == 10 {
            disk.flush_all(&disk.lock_flusher())?;
        }
        if turn % 7 == 3 {
            // Also while sectors that were synced are written again, and wait.
            disk.checkpoint(&disk.lock_flusher())?;
        }
        let name = format!("n{}", turn % 4).into_bytes();
        let _ = disk.make(Inode::ROOT, &name, &new_node(Kind::File, 0o600))?;
        disk.rename((Inode::ROOT, &name), (Inode::ROOT, b"moved"), RenameMode::Replace)?;
    }
    Ok(())
}

fn assert_kept(disk: &Disk, files: &[(Inode, Promise)]) {
    for (inode, promise) in files {
        for (sector, fill) in &promise.synced {
            let mut bytes = vec![0; SECTOR_BYTES];
            let read = disk.read(*inode, sector * SECTOR_BYTES as u64, &mut bytes).expect("reads");
            assert_eq!(read, SECTOR_BYTES, "file {inode} sector {sector}");
            let mut allowed = promise.written.get(sector).cloned().unwrap_or_default();
            allowed.push(*fill);
            assert!(allowed.contains(&bytes[0]), "file {inode} sector {sector}: {} of {allowed:?}", bytes[0]);
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "file {inode} sector {sector} is torn");
        }
        let attributes = disk.attributes(*inode).expect("it is there");
        for (sector, fills) in &promise.written {
            let mut bytes = vec![0; SECTOR_BYTES];
            let read = disk.read(*inode, sector * SECTOR_BYTES as u64, &mut bytes).expect("reads");
            let allowed = [0].into_iter().chain(promise.synced.get(sector).copied()).chain(fills.iter().copied());
            let allowed: Vec<u8> = allowed.collect();
            assert!(bytes[..read].iter().all(|byte| allowed.contains(byte)), "file {inode} sector {sector}");
            assert!(read == SECTOR_BYTES || sector * SECTOR_BYTES as u64 >= attributes.bytes);
        }
    }
}

/// Runs the workload on a device whose power goes after `operations`; returns whether it came to its end before.
fn cut_after(seed: u64, operations: u64, soft: f64) -> bool {
    run(seed, async |world| {
        let hand: SimDevice = world.device("d", HddModel::new(4096));
        let clock: Arc<dyn Clock> = Arc::new(SteppingClock::default());
        let device = hand.attach();
        Disk::format(&device, &format(2), &*clock, world.random()).expect("formatted");
        let disk = opened(device, clock.clone());
        let mut files: Vec<(Inode, Promise)> = (0..3)
            .map(|number| {
                let name = format!("f{number}").into_bytes();
                let made = disk.make(Inode::ROOT, &name, &new_node(Kind::File, 0o600)).expect("made");
                (made.inode, Promise::default())
            })
            .collect();
        disk.sync_all().expect("synced");
        hand.set_faults(DeviceFaults::soft(soft));
        hand.cut_power_after(operations);
        let mut steps = 0;
        let done = work(&disk, &mut files, &mut steps);
        drop(disk);
        hand.crash();
        let disk = opened(hand.attach(), clock.clone());
        assert_sound(&disk);
        assert_kept(&disk, &files);
        // And once more, after the replay was cut off too.
        drop(disk);
        hand.cut_power_after(operations % 7);
        let _ = Disk::open(hand.attach(), clock.clone(), tuning());
        hand.crash();
        let disk = opened(hand.attach(), clock);
        assert_sound(&disk);
        assert_kept(&disk, &files);
        let scrubbed = disk.scrub(&mut |_| true).expect("scrubbed");
        assert_eq!(scrubbed.lost, []);
        assert!(soft > 0.0 || scrubbed.mended == 0, "{} sectors did not fit their groups", scrubbed.mended);
        done.is_ok()
    })
}

#[test]
fn nothing_synced_is_lost_wherever_power_is_cut() {
    let mut operations = 0;
    while !cut_after(operations, operations, 0.0) {
        operations += if operations < 100 { 1 } else { 4 };
    }
    assert!(operations > 100, "{operations} operations");
}

/// What was brought to its place is in the journal no more once a cut took it, so that whoever replays the journal takes its group for
/// whole.
#[test]
fn a_cut_of_what_was_brought_to_its_place_leaves_a_whole_group_wherever_power_is_cut() {
    for seed in 0..200 {
        run(seed, async |world| {
            let hand: SimDevice = world.device("d", HddModel::new(4096));
            let clock: Arc<dyn Clock> = Arc::new(SteppingClock::default());
            let device = hand.attach();
            Disk::format(&device, &format(2), &*clock, world.random()).expect("formatted");
            let disk = opened(device, clock.clone());
            let file = disk.make(Inode::ROOT, b"f", &new_node(Kind::File, 0o600)).expect("made").inode;
            let bytes = SECTOR_BYTES as u64;
            disk.write(file, 0, &vec![1; 30 * SECTOR_BYTES]).expect("written");
            disk.sync_all().expect("synced");
            disk.checkpoint(&disk.lock_flusher()).expect("made");
            disk.write(file, 14 * bytes, &[2; SECTOR_BYTES]).expect("written");
            disk.sync(file).expect("synced");
            disk.flush_in(file, Scope::Journaled, &disk.lock_flusher()).expect("brought to its place");
            let cut = NewAttributes { bytes: Some(14 * bytes), ..NewAttributes::default() };
            disk.set_attributes(file, &cut).expect("cut");
            hand.cut_power_after(seed % 12);
            let _ = disk.sync(file);
            drop(disk);
            hand.crash();
            let disk = opened(hand.attach(), clock);
            let scrubbed = disk.scrub(&mut |_| true).expect("scrubbed");
            assert_eq!(
                (scrubbed.lost, scrubbed.mended),
                (Vec::new(), 0),
                "power was cut after {} operations",
                seed % 12
            );
        });
    }
}

#[test]
fn nothing_synced_is_lost_on_a_device_with_soft_failures() {
    for operations in (0..400).step_by(17) {
        cut_after(operations, operations, 0.02);
    }
}

#[test]
fn a_synced_sector_that_is_written_again_survives_a_checkpoint() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 16));
    let disk = formatted(&device, 2);
    let inode = disk.make(Inode::ROOT, b"f", &new_node(Kind::File, 0o644)).expect("made").inode;
    disk.write(inode, 0, &[1; 3 * SECTOR_BYTES]).expect("written");
    disk.sync(inode).expect("synced");
    disk.write(inode, 0, &[2; 3 * SECTOR_BYTES]).expect("written");
    disk.checkpoint(&disk.lock_flusher()).expect("a checkpoint");
    drop(disk);
    let disk = opened(device, Arc::new(SteppingClock::default()));
    let mut found = [0; 3 * SECTOR_BYTES];
    assert_eq!(disk.read(inode, 0, &mut found), Ok(found.len()));
    assert!(found.iter().all(|byte| [1, 2].contains(byte)));
}

#[test]
fn after_a_panic_under_a_lock_nothing_is_written_until_the_disk_is_opened_again() {
    let panics: [fn(&Disk); 5] = [
        |disk| {
            let _held = disk.lock_flusher();
            panic!("on purpose");
        },
        |disk| {
            let _held = guard(&disk.journal);
            panic!("on purpose");
        },
        |disk| {
            let _held = guard(&disk.core);
            panic!("on purpose");
        },
        |disk| {
            let _held = guard(&disk.space);
            panic!("on purpose");
        },
        |disk| {
            // As a change of windows does that gives sectors back, and does not name what it wrote.
            let _held = disk.lock_flusher();
            let (mut core, mut space) = (guard(&disk.core), guard(&disk.space));
            let first = core.catalog.range(crate::Table::Runs, &crate::keys::Span::all(), 1).expect("it reads");
            let (inode, sector) = crate::keys::decode_run(&first[0].0).expect("a run");
            core.replace(inode, sector..sector + 100, None, disk.shape, &mut space).expect("it reads");
            panic!("on purpose");
        },
    ];
    for panics in panics {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
        let disk = formatted(&device, 2);
        let file = disk.make(Inode::ROOT, b"f", &new_node(Kind::File, 0o600)).expect("made").inode;
        disk.write(file, 0, &vec![7; 25 * SECTOR_BYTES]).expect("written");
        disk.sync_all().expect("synced");
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| panics(&disk)));
        assert!(panicked.is_err());
        let refused =
            |done: Result<(), FileError>| assert!(matches!(done, Err(FileError::ReadOnly { .. })), "{done:?}");
        refused(disk.sync_all());
        refused(disk.checkpoint(&disk.lock_flusher()));
        refused(disk.write(file, 0, &[8; SECTOR_BYTES]).map(drop));
        refused(disk.make(Inode::ROOT, b"g", &new_node(Kind::File, 0o600)).map(drop));
        refused(disk.close());
        let disk = opened(device, Arc::new(SteppingClock::default()));
        assert_sound(&disk);
        assert_eq!(disk.read_bytes(file, 0, 25 * SECTOR_BYTES).expect("read"), vec![7; 25 * SECTOR_BYTES]);
        disk.write(file, 0, &[8; SECTOR_BYTES]).expect("written");
        disk.sync_all().expect("synced");
    }
}

#[test]
fn a_full_disk_says_so_keeps_what_it_has_and_can_be_emptied() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(4096));
    let disk = formatted(&device, 2);
    let piece = vec![7; 40 * SECTOR_BYTES];
    let mut made = Vec::new();
    let full = loop {
        let name = format!("f{}", made.len()).into_bytes();
        let file = match disk.make(Inode::ROOT, &name, &new_node(Kind::File, 0o600)) {
            Ok(file) => file,
            Err(error) => break error,
        };
        if let Err(error) = disk.write(file.inode, 0, &piece) {
            break error;
        }
        made.push((file.inode, name));
    };
    assert_eq!(full, FileError::NoSpace);
    assert!(made.len() > 40, "{} files: {:?}", made.len(), disk.info());
    disk.sync_all().expect("what was taken finds its place");
    let mut bytes = vec![0; piece.len()];
    for (inode, _) in &made {
        assert_eq!(disk.read(*inode, 0, &mut bytes), Ok(piece.len()));
        assert_eq!(bytes, piece);
    }
    for (_, name) in &made {
        disk.unlink(Inode::ROOT, name).expect("deleted");
    }
    disk.sync_all().expect("synced");
    let file = disk.make(Inode::ROOT, b"again", &new_node(Kind::File, 0o600)).expect("made");
    disk.write(file.inode, 0, &piece).expect("there is room again");
    disk.sync(file.inode).expect("synced");
    assert_sound(&disk);
}

#[test]
fn reads_set_when_a_file_was_read_unless_told_not_to() {
    for keeps_access_times in [true, false] {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
        let clock: Arc<SteppingClock> = Arc::default();
        let file = {
            let disk = formatted(&device, 2);
            let file = disk.make(Inode::ROOT, b"f", &new_node(Kind::File, 0o600)).expect("made").inode;
            disk.write(file, 0, &[7; 9000]).expect("written");
            disk.close().expect("closed");
            file
        };
        drop(clock.sleep(std::time::Duration::from_secs(3 * 86_400)));
        let disk = Disk::open(device, clock, Tuning { keeps_access_times, ..tuning() }).expect("opens");
        let accessed = || [Inode::ROOT, file].map(|inode| disk.attributes(inode).expect("there").accessed);
        let before = accessed();
        disk.read(file, 0, &mut [0; 100]).expect("read");
        disk.read_directory(Inode::ROOT, None, 10).expect("read");
        assert_eq!(before == accessed(), !keeps_access_times);
    }
}

#[test]
fn what_is_deleted_on_a_full_disk_can_be_written_again_at_once() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(8192));
    let disk = formatted(&device, 2);
    let large = vec![5; 8 << 20];
    for round in 0..6 {
        let name = format!("f{}", round % 2).into_bytes();
        if round > 1 {
            disk.unlink(Inode::ROOT, &name).expect("deleted");
        }
        let file = disk.make(Inode::ROOT, &name, &new_node(Kind::File, 0o600)).expect("made");
        disk.write(file.inode, 0, &large).expect("there is room");
        disk.sync(file.inode).expect("synced");
    }
    assert_sound(&disk);
}

#[test]
fn writers_of_whole_sectors_wait_for_nobody_who_writes_to_the_device() {
    let disk = memory(2);
    let file = disk.make(Inode::ROOT, b"file", &new_node(Kind::File, 0o600)).expect("made").inode;
    disk.write(file, 0, &[1; 3 * SECTOR_BYTES]).expect("written");
    let gate = disk.gate(file);
    let alone = write_gate(&gate);
    disk.write(file, SECTOR_BYTES as u64, &[2; SECTOR_BYTES]).expect("written while somebody holds the gate alone");
    drop(alone);
    let mut read = vec![0; 3 * SECTOR_BYTES];
    disk.read(file, 0, &mut read).expect("read");
    assert!(read == [[1; SECTOR_BYTES], [2; SECTOR_BYTES], [1; SECTOR_BYTES]].concat());
}

#[test]
#[expect(clippy::disallowed_methods, reason = "several threads at once are what is tested")]
fn a_cut_and_a_hole_leave_what_is_written_beside_them_at_the_same_time() {
    let disk = memory(2);
    let file = disk.make(Inode::ROOT, b"file", &new_node(Kind::File, 0o600)).expect("made").inode;
    let ended = AtomicBool::new(false);
    let old = std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut old = Vec::new();
            for number in 0..3000u32 {
                let content = [number.to_le_bytes(); SECTOR_BYTES / 4].concat();
                disk.write(file, 0, &content).expect("written");
                // What is left of it in any case.
                let mut read = [0; 1000];
                disk.read(file, 0, &mut read).expect("read");
                if read != content[..1000] {
                    old.push(number);
                }
            }
            ended.store(true, Ordering::Relaxed);
            old
        });
        while !ended.load(Ordering::Relaxed) {
            disk.set_attributes(file, &NewAttributes { bytes: Some(2000), ..NewAttributes::default() }).expect("cut");
            disk.punch(file, 1000, 500).expect("made a hole");
        }
        writing.join().expect("written")
    });
    assert!(old.is_empty(), "these were gone when they had been written: {old:?}");
    assert_sound(&disk);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "several threads at once are what is tested")]
fn a_cut_and_a_hole_at_the_end_take_nothing_of_a_file_that_grows_at_the_same_time() {
    let disk = memory(2);
    let file = disk.make(Inode::ROOT, b"file", &new_node(Kind::File, 0o600)).expect("made").inode;
    let size = |bytes| NewAttributes { bytes: Some(bytes), ..NewAttributes::default() };
    for cuts in [false, true] {
        let ended = AtomicBool::new(false);
        let wrong = std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let mut wrong = Vec::new();
                for number in 0..1500 {
                    disk.set_attributes(file, &size(if cuts { 0 } else { 5000 })).expect("cut");
                    let from = if cuts { 0 } else { SECTOR_BYTES };
                    disk.write(file, from as u64, &vec![7; 2 * SECTOR_BYTES - from]).expect("written");
                    disk.set_attributes(file, &size(2 * SECTOR_BYTES as u64)).expect("grown");
                    let mut read = vec![0; 2 * SECTOR_BYTES];
                    let len = disk.read(file, 0, &mut read).expect("read");
                    // A cut leaves 2000 bytes, and the hole goes to 5000: what is behind that is all of one kind.
                    let behind = &read[if cuts { 2000 } else { 5000 }..];
                    let kept = behind.iter().all(|byte| *byte == 7) || cuts && behind.iter().all(|byte| *byte == 0);
                    if len == read.len() && !kept {
                        wrong.push(number);
                    }
                }
                ended.store(true, Ordering::Relaxed);
                wrong
            });
            while !ended.load(Ordering::Relaxed) {
                match cuts {
                    true => drop(disk.set_attributes(file, &size(2000)).expect("cut")),
                    false => disk.punch(file, SECTOR_BYTES as u64, 904).expect("made a hole"),
                }
            }
            writing.join().expect("written")
        });
        assert!(wrong.is_empty(), "bytes of two times, cuts {cuts}: {wrong:?}");
    }
}

#[test]
fn scattered_overwrites_outgrow_no_journal() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(8192));
    let (clock, random) = (Arc::new(SteppingClock::default()), HostRandom::from_system().expect("the system's"));
    Disk::format(&device, &format(2), &*clock, &random).expect("formatted");
    let disk = Disk::open(device.clone(), clock.clone(), Tuning::default()).expect("opens");
    let file = disk.make(Inode::ROOT, b"f", &new_node(Kind::File, 0o600)).expect("made").inode;
    disk.write(file, 0, &vec![1; 2000 * SECTOR_BYTES]).expect("written");
    disk.sync(file).expect("synced");
    for round in 2..6u8 {
        for sector in (0..2000).step_by(2) {
            disk.write(file, sector * SECTOR_BYTES as u64, &[round; SECTOR_BYTES]).expect("written");
        }
        match round % 2 {
            0 => disk.sync(file).expect("synced"),
            _ => disk.sync_all().expect("synced"),
        }
    }
    drop(disk);
    let disk = Disk::open(device, clock, Tuning::default()).expect("opens");
    let mut bytes = [0; SECTOR_BYTES];
    for sector in 0..2000u64 {
        disk.read(file, sector * SECTOR_BYTES as u64, &mut bytes).expect("reads");
        assert_eq!(bytes, [if sector % 2 == 0 { 5 } else { 1 }; SECTOR_BYTES]);
    }
    assert_sound(&disk);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "several threads at once are what is tested")]
fn a_tiny_file_that_many_write_and_sync_loses_nothing() {
    let disk = memory(2);
    let file = disk.make(Inode::ROOT, b"f", &new_node(Kind::File, 0o600)).expect("made").inode;
    std::thread::scope(|scope| {
        for writer in 0..4u64 {
            let disk = &disk;
            scope.spawn(move || {
                for round in 0..50u64 {
                    disk.write(file, writer * 200 + round * 4, &[writer as u8 + 1; 4]).expect("written");
                    disk.sync(file).expect("synced");
                }
            });
        }
    });
    let mut bytes = [0; 800];
    assert_eq!(disk.read(file, 0, &mut bytes), Ok(800));
    for (at, byte) in bytes.iter().enumerate() {
        assert_eq!(usize::from(*byte), at / 200 + 1, "byte {at}");
    }
}

#[test]
fn a_device_that_grew_is_taken_up() {
    let (device, large) = (MemoryDevice::new(4096), MemoryDevice::new(8192));
    let device: Arc<dyn Device> = Arc::new(device);
    let disk = formatted(&device, 2);
    let file = disk.make(Inode::ROOT, b"f", &new_node(Kind::File, 0o600)).expect("made");
    disk.write(file.inode, 0, &[3; 100_000]).expect("written");
    disk.close().expect("closed");
    let mut image = vec![0; 4096 * SECTOR_BYTES];
    device.read(claystone_env::Sector(0), &mut image, claystone_env::Effort::Retry).expect("reads");
    large.write(claystone_env::Sector(0), &image).expect("written");
    let large: Arc<dyn Device> = Arc::new(large);
    let disk = opened(large.clone(), Arc::new(SteppingClock::default()));
    let before = disk.space().data_sectors;
    assert_eq!(disk.grow().expect("grows"), 4096);
    assert!(disk.space().data_sectors > before + 3000);
    assert_sound(&disk);
    disk.set_attributes(file.inode, &NewAttributes { bytes: Some(5 << 12), ..NewAttributes::default() }).expect("cut");
    disk.close().expect("closed");
    assert_sound(&opened(large, Arc::new(SteppingClock::default())));
}

/// Every other sector of a file that lies in bulk runs.
fn scatter(disk: &Disk, inode: Inode, sectors: std::ops::Range<u64>, fill: u8) {
    for sector in sectors.step_by(2) {
        disk.write(inode, sector * SECTOR_BYTES as u64, &[fill; SECTOR_BYTES]).expect("written");
    }
}

/// What was synced and waits keeps its entry in the journal, wherever the ring has got to meanwhile.
#[test]
fn updates_are_many_times_the_journal_while_old_entries_must_stay() {
    const FILE_SECTORS: u64 = 6000;
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 16));
    let clock = Arc::new(SteppingClock::default());
    drop(formatted(&device, 2));
    let tuning = Tuning { waiting_sectors_max: 8000, apply_sectors_max: 64, ..tuning() };
    let disk = Disk::open(device, clock, tuning).expect("opens");
    let files = [b"one", b"two"].map(|name| {
        let inode = disk.make(Inode::ROOT, name, &new_node(Kind::File, 0o600)).expect("made").inode;
        disk.write(inode, 0, &vec![1; FILE_SECTORS as usize * SECTOR_BYTES]).expect("written");
        inode
    });
    disk.sync_all().expect("synced");
    for round in 2..6 {
        // Synced, and at the far end of both: the last that is applied, and of a file that is not flushed.
        for inode in files {
            scatter(&disk, inode, FILE_SECTORS - 100..FILE_SECTORS, round);
            disk.sync(inode).expect("synced");
            scatter(&disk, inode, FILE_SECTORS - 60..FILE_SECTORS, round + 1);
        }
        let pinned = guard(&disk.core).nodes.oldest_journaled();
        assert!(pinned.is_some(), "something waits in the journal");
        scatter(&disk, files[0], 0..FILE_SECTORS - 100, round);
        disk.flush(files[0], &disk.lock_flusher()).expect("flushed");
        disk.sync(files[1]).expect("synced");
    }
    disk.sync_all().expect("synced");
    assert_sound(&disk);
    for inode in files {
        for (sector, fill) in
            [(0, if inode == files[0] { 5 } else { 1 }), (FILE_SECTORS - 100, 5), (FILE_SECTORS - 2, 6)]
        {
            let mut bytes = [0; SECTOR_BYTES];
            disk.read(inode, sector * SECTOR_BYTES as u64, &mut bytes).expect("read");
            assert_eq!(bytes, [fill; SECTOR_BYTES], "{inode} sector {sector}");
        }
    }
}

/// Each sector says which write of it it is, and never goes back; what was synced is there after a kill.
#[test]
fn writers_readers_and_the_flusher_at_once_lose_nothing() {
    // Over places that are there, and into holes.
    for case in 0..16 {
        write_read_and_flush_at_once(Arc::new(MemoryDevice::new(1 << 14)), case, case % 2 == 0);
    }
}

#[test]
fn streams_beside_writers_mend_from_each_other_and_lose_nothing() {
    for case in 16..22 {
        let drive = SimDevice::alone("d", HddModel::new(1 << 14), case);
        drive.set_faults(DeviceFaults::soft(0.02));
        write_read_and_flush_at_once(drive.attach(), case, case % 2 == 0);
        assert!(drive.stats().soft_failures > 0);
    }
}

#[expect(clippy::disallowed_methods, reason = "several threads at once are what is tested")]
fn write_read_and_flush_at_once(device: Arc<dyn Device>, seed: u64, placed: bool) {
    const SECTORS: u64 = 400;
    const ROUNDS: u32 = 150;
    drop(formatted(&device, 2));
    let small = Tuning { waiting_sectors_max: 120, ..tuning() };
    let disk = Disk::open(device.clone(), Arc::new(SteppingClock::default()), small).expect("opens");
    let file = disk.make(Inode::ROOT, b"f", &new_node(Kind::File, 0o600)).expect("made").inode;
    let begin = if placed { 0 } else { (SECTORS - 1) * SECTOR_BYTES as u64 };
    disk.write(file, begin, &vec![0; SECTORS as usize * SECTOR_BYTES - begin as usize]).expect("written");
    disk.sync_all().expect("synced");
    let stopped = AtomicBool::new(false);
    let number = |sector: u64| {
        let mut bytes = [0; SECTOR_BYTES];
        disk.read(file, sector * SECTOR_BYTES as u64, &mut bytes).expect("reads");
        let parts: Vec<u32> = bytes.chunks(4).map(|part| u32::from_le_bytes(part.try_into().expect("four"))).collect();
        assert!(parts.iter().all(|part| *part == parts[0]), "sector {sector} is torn: {parts:?}");
        parts[0]
    };
    // What each writer has synced: its sectors are those of its remainder.
    let synced = std::thread::scope(|scope| {
        let writers = [0u64, 1].map(|writer| {
            let disk = &disk;
            scope.spawn(move || {
                let (mut synced, mut written, mut halves) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
                let mut state = seed * 2 + writer;
                for round in 1..=ROUNDS {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let sector = (state >> 33) % (SECTORS / 2) * 2 + writer;
                    let bytes = round.to_le_bytes().repeat(SECTOR_BYTES / 4);
                    if round % 3 == 0 {
                        // In two parts, so that the other half is read.
                        disk.write(file, sector * SECTOR_BYTES as u64, &bytes[..2048]).expect("written");
                        disk.write(file, sector * SECTOR_BYTES as u64 + 2048, &bytes[2048..]).expect("written");
                    } else {
                        disk.write(file, sector * SECTOR_BYTES as u64, &bytes).expect("written");
                    }
                    written.insert(sector, round);
                    // A half each of sectors that both write.
                    let (shared, half) = (SECTORS + state % 20, writer * SECTOR_BYTES as u64 / 2);
                    disk.write(file, shared * SECTOR_BYTES as u64 + half, &bytes[..SECTOR_BYTES / 2]).expect("written");
                    halves.insert((shared, half), round);
                    if (state >> 20).is_multiple_of(11) {
                        disk.sync(file).expect("synced");
                        synced.append(&mut written);
                    }
                }
                (synced, halves)
            })
        });
        let (stopped, disk) = (&stopped, &disk);
        let flusher = scope.spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                disk.flush_every(Scope::Share, &disk.lock_flusher()).expect("flushed");
                disk.tend().expect("tended");
            }
        });
        let reader = scope.spawn(move || {
            let mut seen = vec![0; SECTORS as usize];
            while !stopped.load(Ordering::Acquire) {
                for sector in (0..SECTORS).step_by(7) {
                    let mut bytes = [0; 4];
                    disk.read(file, sector * SECTOR_BYTES as u64, &mut bytes).expect("reads");
                    let now = u32::from_le_bytes(bytes);
                    assert!(now >= seen[sector as usize], "sector {sector} went back to {now}");
                    seen[sector as usize] = now;
                }
            }
        });
        let streams = [7, 40].map(|request: u64| {
            scope.spawn(move || {
                let mut seen = vec![0; SECTORS as usize];
                while !stopped.load(Ordering::Acquire) {
                    for first in (0..SECTORS).step_by(request as usize) {
                        let count = request.min(SECTORS - first) as usize * SECTOR_BYTES;
                        let bytes = disk.read_bytes(file, first * SECTOR_BYTES as u64, count).expect("reads");
                        for (sector, bytes) in (first..).zip(bytes.chunks(SECTOR_BYTES)) {
                            let now = u32::from_le_bytes(bytes[..4].try_into().expect("four"));
                            assert!(now >= seen[sector as usize], "sector {sector} went back to {now}");
                            seen[sector as usize] = now;
                        }
                    }
                }
            })
        });
        let written = writers.map(|writer| writer.join());
        stopped.store(true, Ordering::Release);
        let synced = written.map(|synced| synced.expect("writes"));
        flusher.join().expect("flushes");
        reader.join().expect("reads");
        streams.into_iter().for_each(|stream| stream.join().expect("streams"));
        synced
    });
    let before: Vec<u32> = (0..SECTORS).map(number).collect();
    for ((sector, half), round) in synced.iter().flat_map(|(_, halves)| halves) {
        let mut bytes = [0; 4];
        disk.read(file, sector * SECTOR_BYTES as u64 + half, &mut bytes).expect("reads");
        assert_eq!(u32::from_le_bytes(bytes), *round, "sector {sector} from {half} on");
    }
    drop(disk);
    let disk = opened(device, Arc::new(SteppingClock::default()));
    let mut bytes = [0; 4];
    for (sector, round) in synced.into_iter().flat_map(|(synced, _)| synced) {
        disk.read(file, sector * SECTOR_BYTES as u64, &mut bytes).expect("reads");
        let now = u32::from_le_bytes(bytes);
        assert!(now >= round && now <= before[sector as usize], "sector {sector}: {now}, synced {round}");
    }
    assert_sound(&disk);
    let scrubbed = disk.scrub(&mut |_| true).expect("scrubbed");
    // A device that fails softly fails the scrub too.
    let exact = disk.groups.statistics().now().soft_failures == 0;
    assert!(scrubbed.lost.is_empty() && (!exact || (scrubbed.mended, scrubbed.sums_mended) == (0, 0)));
}

#[test]
fn the_first_bytes_of_a_file_stay_until_a_run_has_them() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
    let disk = formatted(&device, 2);
    let file = disk.make(Inode::ROOT, b"f", &new_node(Kind::File, 0o600)).expect("made").inode;
    disk.write(file, 0, &[5; 100]).expect("written");
    disk.sync(file).expect("synced");
    disk.write(file, 20 * SECTOR_BYTES as u64, &vec![6; 150 * SECTOR_BYTES]).expect("written");
    {
        let flushing = disk.lock_flusher();
        disk.flush_every(Scope::FullRuns, &flushing).expect("flushed");
        disk.commit_flushing(&flushing).expect("committed");
    }
    drop(disk);
    let disk = opened(device, Arc::new(SteppingClock::default()));
    let mut bytes = [0; 100];
    assert_eq!(disk.read(file, 0, &mut bytes), Ok(100));
    assert_eq!(bytes, [5; 100]);
    assert_sound(&disk);
}

#[test]
fn what_was_cut_off_is_zeros_after_a_crash_at_a_checkpoint() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
    let disk = formatted(&device, 2);
    let file = disk.make(Inode::ROOT, b"f", &new_node(Kind::File, 0o600)).expect("made").inode;
    disk.write(file, 0, &[7; 2 * SECTOR_BYTES]).expect("written");
    disk.sync_all().expect("synced");
    let size = |bytes| NewAttributes { bytes: Some(bytes), ..NewAttributes::default() };
    disk.set_attributes(file, &size(5000)).expect("cut");
    disk.checkpoint(&disk.lock_flusher()).expect("made");
    drop(disk);
    let disk = opened(device, Arc::new(SteppingClock::default()));
    disk.set_attributes(file, &size(2 * SECTOR_BYTES as u64)).expect("longer");
    let mut bytes = [1; 2 * SECTOR_BYTES];
    assert_eq!(disk.read(file, 0, &mut bytes), Ok(2 * SECTOR_BYTES));
    assert!(bytes[..5000].iter().all(|byte| *byte == 7) && bytes[5000..].iter().all(|byte| *byte == 0));
}

/// On a disk whose gaps are too small for a group with its neighbours, part of it stays where it was.
#[test]
fn what_is_synced_on_a_disk_in_pieces_is_there_or_refused() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(4096));
    let disk = formatted(&device, 2);
    let file = disk.make(Inode::ROOT, b"f", &new_node(Kind::File, 0o600)).expect("made").inode;
    disk.write(file, 0, &vec![1; 4 * SECTOR_BYTES]).expect("written");
    disk.sync_all().expect("synced");
    let mut small = 0;
    let name = |number: u32| format!("s{number}").into_bytes();
    while let Ok(made) = disk.make(Inode::ROOT, &name(small), &new_node(Kind::File, 0o600)) {
        let written = disk.write(made.inode, 0, &[2; SECTOR_BYTES]);
        small += 1;
        if written.and_then(|()| disk.flush(made.inode, &disk.lock_flusher())).is_err() {
            break;
        }
    }
    assert!(small > 300, "{small} files");
    // Gaps of nine sectors.
    for number in (0..small - 3).step_by(6) {
        (number..number + 3).for_each(|number| disk.unlink(Inode::ROOT, &name(number)).expect("deleted"));
    }
    disk.sync_all().expect("synced");
    disk.checkpoint(&disk.lock_flusher()).expect("made");
    // What was kept for the catalog lies in a row; somebody else has it.
    let kept = guard(&disk.space).largest();
    guard(&disk.space).reserve(kept, None).expect("it is free");
    let largest = guard(&disk.space).largest();
    assert!((8..12).contains(&largest), "{largest} in a row");
    disk.write(file, 0, &vec![3; 10 * SECTOR_BYTES]).expect("written");
    let synced = disk.flush(file, &disk.lock_flusher()).and_then(|()| disk.commit());
    drop(disk);
    let disk = opened(device, Arc::new(SteppingClock::default()));
    let mut bytes = vec![0; 10 * SECTOR_BYTES];
    disk.read(file, 0, &mut bytes).expect("reads");
    assert!(synced.is_err() || bytes.iter().all(|byte| *byte == 3), "{synced:?}");
    assert!(synced.is_ok() || synced == Err(FileError::NoSpace), "{synced:?}");
    assert_sound(&disk);
}

// Test of: [lec §3.2]
#[test]
fn who_appends_reads_no_parity() {
    let disk = memory(2);
    let made = disk.make(Inode::ROOT, b"log", &new_node(Kind::File, 0o600)).expect("made");
    let append = |sector: u64| {
        let before = disk.groups.statistics().now().sectors_read;
        disk.write(made.inode, sector * SECTOR_BYTES as u64, &[sector as u8; SECTOR_BYTES]).expect("written");
        disk.flush(made.inode, &disk.lock_flusher()).expect("flushed");
        disk.groups.statistics().now().sectors_read - before
    };
    // It is moved to where it has room for as many more, until that is a whole group: then what is there is read.
    let reads: Vec<u64> = (0..10).map(append).collect();
    assert_eq!(reads, [0, 1, 0, 0, 4, 0, 0, 0, 0, 0]);
    disk.commit().expect("durable");
    assert_sound(&disk);
    let mut bytes = vec![0; 10 * SECTOR_BYTES];
    disk.read(made.inode, 0, &mut bytes).expect("reads");
    assert!(bytes.chunks(SECTOR_BYTES).zip(0..).all(|(sector, fill)| sector.iter().all(|byte| *byte == fill)));
    let found = disk.scrub(&mut |_| true).expect("it reads");
    assert_eq!((found.mended, found.lost.len()), (0, 0), "{found:?}");
}

#[test]
fn what_nobody_syncs_is_durable_after_a_while_all_the_same() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 16));
    let clock = Arc::new(SteppingClock::default());
    drop(formatted(&device, 2));
    let disk = opened(device.clone(), clock.clone());
    let inode = disk.make(Inode::ROOT, b"f", &new_node(Kind::File, 0o644)).expect("made").inode;
    disk.write(inode, 0, &[7; 120 * SECTOR_BYTES]).expect("written");
    for _ in 0..2 {
        drop(clock.sleep(disk.tuning.flush_after));
        disk.tend().expect("tended");
    }
    // As if killed.
    drop(disk);
    let disk = opened(device, Arc::new(SteppingClock::default()));
    assert_eq!(disk.lookup(Inode::ROOT, b"f").expect("its name is there").inode, inode);
    let mut found = vec![0; 100 * SECTOR_BYTES];
    assert_eq!(disk.read(inode, 0, &mut found), Ok(found.len()));
    assert!(found.iter().all(|byte| *byte == 7), "so are its full runs");
    assert_sound(&disk);
}
