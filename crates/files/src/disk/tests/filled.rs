//! Filling a disk, emptying it and filling it again: files that lie in the catalog alone, and others. What the catalog took for the first becomes
//! free sectors again, so that both find as much room each time; and deleting works on a disk that is full, and is there after closing it.

use std::time::Duration;

use claystone_env::{Effort, Sector};

use super::*;
use crate::commit::{PAGES_APART, UNCOUNTED};
use crate::shrink::COMPACTED_PAGES_MAX;

const TINY: &[usize] = &[2000];
const MIXED: &[usize] = &[100, 2000, 9000, 1000, 70_000, 300, 2048, 2049, 400_000];

fn name(number: usize) -> Vec<u8> {
    format!("file {number}").into_bytes()
}

fn bytes_of(number: usize, sizes: &[usize]) -> Vec<u8> {
    vec![1 + (number % 251) as u8; sizes[number % sizes.len()]]
}

/// Opens a disk with what usual ones have.
fn opened_usual(device: &Arc<dyn Device>, clock: &Arc<SteppingClock>) -> Disk {
    Disk::open(device.clone(), clock.clone(), Tuning::default()).expect("opens")
}

fn formatted_usual(device: &Arc<dyn Device>, clock: &Arc<SteppingClock>) -> Disk {
    let random = HostRandom::from_system().expect("the system's");
    let format = Format { data: 250, ..format(5) };
    Disk::format(device, &format, &**clock, &random).expect("formatted");
    opened_usual(device, clock)
}

/// Makes files until there is no room, and returns how many. The last one, which did not find any, is gone.
fn fill(disk: &Disk, sizes: &[usize]) -> usize {
    for number in 0.. {
        let made = disk.make(Inode::ROOT, &name(number), &new_node(Kind::File, 0o600));
        if let Err(error) = made.and_then(|made| disk.write(made.inode, 0, &bytes_of(number, sizes))) {
            assert_eq!(error, FileError::NoSpace);
            let gone = disk.unlink(Inode::ROOT, &name(number));
            assert!(gone == Ok(()) || gone == Err(FileError::NotFound), "{gone:?}");
            return number;
        }
        if number % 500 == 499 {
            disk.tend().expect("tended");
        }
    }
    unreachable!("no disk takes so many files")
}

fn assert_all_there(disk: &Disk, files: usize, sizes: &[usize]) {
    for number in 0..files {
        let expected = bytes_of(number, sizes);
        let file = disk.lookup(Inode::ROOT, &name(number)).expect("it is there");
        let mut found = vec![0; expected.len() + 1];
        assert_eq!(disk.read(file.inode, 0, &mut found), Ok(expected.len()), "file {number}");
        assert!(found[..expected.len()] == expected, "file {number}");
    }
}

fn delete(disk: &Disk, numbers: impl Iterator<Item = usize>) {
    for number in numbers {
        assert_eq!(disk.unlink(Inode::ROOT, &name(number)), Ok(()), "file {number}");
    }
}

/// Time passes, so that a disk that is tended does all that it has to.
fn tend_later(disk: &Disk, clock: &SteppingClock) {
    drop(clock.sleep(Duration::from_secs(60)));
    disk.tend().expect("tended");
}

#[test]
fn a_disk_that_was_emptied_takes_as_many_files_as_before() {
    for (sizes, closes) in [(TINY, false), (TINY, true), (MIXED, false), (MIXED, true)] {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
        let clock = Arc::new(SteppingClock::default());
        let mut disk = formatted_usual(&device, &clock);
        let mut took = Vec::new();
        for round in 0..3 {
            let files = fill(&disk, sizes);
            assert_eq!(disk.sync_all(), Ok(()), "what was taken has room");
            if round == 0 {
                // After a crash.
                drop(disk);
                disk = opened_usual(&device, &clock);
                assert_all_there(&disk, files, sizes);
                assert_sound(&disk);
            }
            // What becomes free lies in as many gaps as there can be.
            delete(&disk, (0..files).rev().filter(|number| number % 2 == 0));
            delete(&disk, (0..files).filter(|number| number % 2 == 1));
            match closes {
                true => {
                    assert_eq!(disk.close(), Ok(()));
                    disk = opened_usual(&device, &clock);
                }
                false => tend_later(&disk, &clock),
            }
            assert_sound(&disk);
            assert_eq!(disk.space().inodes, 1);
            // The one that it began with, and what is not worth the while.
            let slabs = disk.superblock.current().slabs;
            assert!(slabs.len() <= 2 && slabs.len() <= sizes.len(), "{slabs:?}");
            took.push(files);
        }
        let (least, most) = (took.iter().min().expect("three"), took.iter().max().expect("three"));
        assert!(least * 10 >= most * 9, "{took:?} files of {sizes:?} bytes");
    }
}

#[test]
fn what_is_deleted_on_a_full_disk_is_gone_once_it_is_closed() {
    for sizes in [TINY, MIXED, &[0]] {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 13));
        let clock = Arc::new(SteppingClock::default());
        let mut disk = formatted_usual(&device, &clock);
        let files = fill(&disk, sizes);
        let mut there: Vec<usize> = (0..files).collect();
        // Each time some that lie apart, and then others are made in their place, so that the catalog is as full and as scattered as can be.
        for turn in 0..6 {
            let (gone, left): (Vec<usize>, Vec<usize>) = there.into_iter().partition(|number| number % 7 == turn);
            delete(&disk, gone.iter().copied());
            assert_eq!(disk.close(), Ok(()), "turn {turn} of {sizes:?} bytes");
            disk = opened_usual(&device, &clock);
            assert_eq!(disk.space().inodes, left.len() as u64 + 1, "turn {turn} of {sizes:?} bytes");
            assert!(gone.iter().all(|number| disk.lookup(Inode::ROOT, &name(*number)).is_err()));
            assert_sound(&disk);
            there = left;
            for number in gone.into_iter().filter(|number| number % 14 == turn) {
                let made = disk.make(Inode::ROOT, &name(number), &new_node(Kind::File, 0o600));
                if made.and_then(|made| disk.write(made.inode, 0, &bytes_of(number, sizes))).is_err() {
                    let _ = disk.unlink(Inode::ROOT, &name(number));
                    break;
                }
                there.push(number);
            }
        }
        delete(&disk, there.into_iter());
        assert_eq!(disk.close(), Ok(()));
        let disk = opened_usual(&device, &clock);
        assert_eq!(disk.space().inodes, 1);
        assert_sound(&disk);
    }
}

/// The database writes its header with each commit, from what it read of the first one.
#[test]
fn the_database_goes_by_the_length_of_its_regions() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
    let clock = Arc::new(SteppingClock::default());
    let disk = formatted_usual(&device, &clock);
    for number in 0..3000 {
        let made = disk.make(Inode::ROOT, &name(number), &new_node(Kind::File, 0o600)).expect("there is room");
        disk.write(made.inode, 0, &[1; 1000]).expect("there is room");
    }
    assert_eq!(disk.close(), Ok(()));
    let disk = opened_usual(&device, &clock);
    let used = guard(&disk.core).catalog.allocated_pages().expect("reads");
    assert!(used > 600, "{used} pages are in one region");
    let mut pages = [0; 4];
    redb::StorageBackend::read(&disk.pages, 20, &mut pages).expect("reads");
    assert_eq!(u32::from_le_bytes(pages), 512);
}

/// A disk of which files have all the space, but what is kept.
fn without_room_for_data(device: &Arc<dyn Device>) -> Disk {
    let disk = formatted(device, 2);
    let large = disk.make(Inode::ROOT, b"large", &new_node(Kind::File, 0o600)).expect("made").inode;
    let mut at = 0;
    for sectors in [40, 1] {
        while disk.write(large, at, &vec![9; sectors * SECTOR_BYTES]).is_ok() {
            at += (sectors * SECTOR_BYTES) as u64;
        }
    }
    disk.sync_all().expect("synced");
    disk
}

#[test]
fn names_and_tiny_files_need_no_room_for_data() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(4096));
    let disk = without_room_for_data(&device);
    let mut tiny = Vec::new();
    for number in 0..20 {
        let file = disk.make(Inode::ROOT, &name(number), &new_node(Kind::File, 0o600)).expect("made").inode;
        disk.write(file, 0, &bytes_of(number, &[1000])).expect("it is tiny");
        disk.write(file, 1000, &[7; 1048]).expect("it stays tiny");
        tiny.push(file);
    }
    disk.set_attribute(tiny[0], b"user.a", b"value", None).expect("set");
    disk.link(tiny[0], Inode::ROOT, b"link").expect("linked");
    let content = |number: usize| [bytes_of(number, &[1000]), vec![7; 1048]].concat();
    let assert_there = |disk: &Disk| {
        for (number, file) in tiny.iter().enumerate() {
            let mut found = vec![0; 2048];
            assert_eq!(disk.read(*file, 0, &mut found), Ok(2048));
            assert!(found == content(number), "file {number}");
        }
    };
    // What makes one larger needs room, wherever it is written, and is refused before anything changes.
    assert_eq!(disk.write(tiny[0], 2048, &[8; 1]), Err(FileError::NoSpace));
    assert_eq!(disk.write(tiny[1], 0, &[8; 4096]), Err(FileError::NoSpace));
    assert_eq!(disk.write(tiny[2], 1 << 20, &[8; 1]), Err(FileError::NoSpace));
    assert_there(&disk);
    // A hole behind it does not.
    let grown = NewAttributes { bytes: Some(1 << 20), ..NewAttributes::default() };
    assert_eq!(disk.set_attributes(tiny[3], &grown).map(|attributes| attributes.bytes), Ok(1 << 20));
    assert_eq!(disk.write(tiny[3], 0, &[8; 1]), Err(FileError::NoSpace));
    disk.sync_all().expect("synced");
    drop(disk);
    let disk = opened(device, Arc::new(SteppingClock::default()));
    assert_there(&disk);
    assert_sound(&disk);
    disk.unlink(Inode::ROOT, b"large").expect("deleted");
    disk.write(tiny[3], 1, &[8; 1]).expect("there is room");
    disk.sync_all().expect("synced");
    let mut found = vec![0; 3];
    assert_eq!(disk.read(tiny[3], 0, &mut found), Ok(3));
    assert_eq!(found, [4, 8, 4]);
}

/// Gives the slabs of an emptied catalog back, with the power cut after so many operations; returns whether it was done before.
fn shrink_cut_off(image: &[u8], operations: u64) -> bool {
    let sectors = (image.len() / SECTOR_BYTES) as u64;
    run(operations, async |world| {
        let hand: SimDevice = world.device("d", HddModel::new(sectors));
        hand.attach().write(Sector(0), image).and_then(|()| hand.attach().sync()).expect("written");
        let clock: Arc<dyn Clock> = Arc::new(SteppingClock::default());
        let disk = opened(hand.attach(), clock.clone());
        let slabs = |disk: &Disk| disk.superblock.current().slabs.len();
        let before = slabs(&disk);
        assert!(before > 1, "{before} slabs");
        hand.cut_power_after(operations);
        let done = disk.shrink_catalog(COMPACTED_PAGES_MAX, &disk.lock_flusher());
        assert!(done.is_err() || slabs(&disk) == 1, "{} slabs of {before}", slabs(&disk));
        // What became free is written at once, while a power cut may still come.
        let write = |disk: &Disk, name: &[u8]| -> Result<(), FileError> {
            let file = disk.make(Inode::ROOT, name, &new_node(Kind::File, 0o600))?.inode;
            disk.write(file, 0, &vec![5; 600 * SECTOR_BYTES])?;
            disk.sync(file)
        };
        let written = done.clone().and_then(|_| write(&disk, b"new"));
        drop(disk);
        hand.crash();
        let disk = opened(hand.attach(), clock.clone());
        assert_sound(&disk);
        assert_kept_files(&disk);
        if written.is_ok() {
            let file = disk.lookup(Inode::ROOT, b"new").expect("synced").inode;
            let mut found = vec![0; 600 * SECTOR_BYTES];
            assert_eq!(disk.read(file, 0, &mut found), Ok(found.len()));
            assert!(found.iter().all(|byte| *byte == 5));
        }
        let _ = disk.unlink(Inode::ROOT, b"new");
        disk.shrink_catalog(COMPACTED_PAGES_MAX, &disk.lock_flusher()).expect("the power is on");
        assert_eq!(slabs(&disk), 1);
        write(&disk, b"newer").expect("there is room");
        assert_sound(&disk);
        assert_kept_files(&disk);
        drop(disk);
        let disk = opened(hand.attach(), clock);
        assert_sound(&disk);
        assert_kept_files(&disk);
        written.is_ok()
    })
}

const KEPT: usize = 40;

fn assert_kept_files(disk: &Disk) {
    assert_all_there(disk, KEPT, &[1500]);
}

#[test]
fn a_power_cut_while_slabs_are_given_back_loses_no_sector_and_no_row() {
    const SECTORS: u64 = 4096;
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(SECTORS));
    let disk = formatted(&memory, 2);
    for number in 0..750 {
        let file = disk.make(Inode::ROOT, &name(number), &new_node(Kind::File, 0o600)).expect("made").inode;
        disk.write(file, 0, &bytes_of(number, &[1500])).expect("there is room");
    }
    delete(&disk, KEPT..750);
    disk.checkpoint(&disk.lock_flusher()).expect("made");
    drop(disk);
    let mut image = vec![0; SECTORS as usize * SECTOR_BYTES];
    memory.read(Sector(0), &mut image, Effort::Retry).expect("reads");
    let mut operations = 0;
    while !shrink_cut_off(&image, operations) {
        operations += 1;
    }
    assert!(operations > 30, "{operations} operations");
}

// Test of the figures of `claystone_model::tiny_record_bytes`.
#[test]
fn a_tiny_file_takes_of_the_catalog_what_the_model_says() {
    const FILES: u64 = 2000;
    let clock = Arc::new(SteppingClock::default());
    let pages_of = |bytes: usize| {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 15));
        let disk = formatted_usual(&device, &clock);
        let pages = || guard(&disk.core).catalog.allocated_pages().expect("reads");
        let before = pages();
        for number in 0..FILES as usize {
            let made = disk.make(Inode::ROOT, &name(number), &new_node(Kind::File, 0o600)).expect("made");
            disk.write(made.inode, 0, &vec![1; bytes]).expect("written");
        }
        disk.checkpoint(&disk.lock_flusher()).expect("made");
        (pages() - before) as f64
    };
    // Names, attributes, and what the database keeps for itself.
    let empty = pages_of(0);
    for bytes in [100, 600, 1500, 1900, 2048] {
        let model = claystone_model::tiny_record_bytes(bytes) - claystone_model::tiny_record_bytes(0);
        let expected = model * FILES as f64 / SECTOR_BYTES as f64;
        let found = pages_of(bytes as usize) - empty;
        assert!((0.95..1.1).contains(&(found / expected)), "{bytes} bytes: {found} pages, {expected} expected");
    }
}

#[test]
fn what_would_take_long_is_left_to_who_lacks_room() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 13));
    let disk = formatted_usual(&device, &Arc::new(SteppingClock::default()));
    let files = fill(&disk, TINY);
    // Every other one stays, so that there is much to move.
    delete(&disk, (0..files).filter(|number| number % 2 == 1));
    let flushing = disk.lock_flusher();
    disk.checkpoint(&flushing).expect("made");
    let slabs = || disk.superblock.current().slabs.len();
    let before = slabs();
    // Counted the first time, and known then.
    for _ in 0..2 {
        disk.shrink_if_loose(files as u64 / 2, &flushing).expect("left");
        assert_eq!(slabs(), before);
    }
    disk.shrink_for_room(&flushing).expect("moved");
    assert!(slabs() < before, "{} slabs of {before}", slabs());
    drop(flushing);
    for number in (0..files).step_by(2) {
        let file = disk.lookup(Inode::ROOT, &name(number)).expect("it is there");
        let mut found = vec![0; 2001];
        assert_eq!(disk.read(file.inode, 0, &mut found), Ok(2000));
        assert!(found[..2000] == bytes_of(number, TINY));
    }
    assert_sound(&disk);
}

#[test]
fn pages_that_were_counted_as_free_go_with_slabs() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 13));
    let clock = Arc::new(SteppingClock::default());
    let disk = formatted_usual(&device, &clock);
    let files = fill(&disk, TINY);
    delete(&disk, 0..files);
    let flushing = disk.lock_flusher();
    disk.checkpoint(&flushing).expect("made");
    // The database cuts its file, and the journal has no room for the slabs, or the like: they are idle.
    {
        let mut core = guard(&disk.core);
        assert!(core.catalog.compact().expect("compacted"));
    }
    let idle = disk.idle_slabs();
    let allocated = guard(&disk.core).catalog.allocated_pages().expect("reads");
    let free = disk.pages.capacity() - allocated - PAGES_APART;
    disk.free_pages.store(free, Ordering::Release);
    assert!(idle > 0);
    disk.shrink_if_loose(2048, &flushing).expect("given back");
    let left = disk.pages.capacity() - guard(&disk.core).catalog.allocated_pages().expect("reads");
    let known = disk.free_pages.load(Ordering::Acquire);
    assert!(known == UNCOUNTED || known <= left);
}

/// Files wait for all the room that there is, and then names and tiny files take the catalog's.
fn fill_to_the_brim(sectors: u64, sizes: &[usize], checkpoints: bool) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(sectors));
    let clock = Arc::new(SteppingClock::default());
    let disk = formatted_usual(&device, &clock);
    let large = disk.make(Inode::ROOT, b"large", &new_node(Kind::File, 0o600)).expect("made").inode;
    let mut at = 0;
    while disk.is_sure_of(&guard(&disk.core), 1) {
        disk.write(large, at, &[9; SECTOR_BYTES]).expect("there is room");
        at += SECTOR_BYTES as u64;
    }
    let mut files = 0;
    loop {
        let made = disk.make(Inode::ROOT, &name(files), &new_node(Kind::File, 0o600));
        let size = sizes[files % sizes.len()];
        let made = made.and_then(|made| match size {
            0 => Ok(()),
            _ => disk.write(made.inode, 0, &vec![1; size]),
        });
        if made.is_err() {
            let gone = disk.unlink(Inode::ROOT, &name(files));
            assert!(gone == Ok(()) || gone == Err(FileError::NotFound), "{gone:?}");
            break;
        }
        files += 1;
        if checkpoints && files % 50 == 0 {
            let _ = disk.checkpoint(&disk.lock_flusher());
        }
        if files > 20_000 {
            break;
        }
    }
    assert_eq!(disk.sync_all(), Ok(()), "what was taken has room: {sectors} sectors, files of {sizes:?} bytes");
    assert_eq!(guard(&disk.core).nodes.waiting, 0);
    assert_sound(&disk);
    // What is kept suffices for deleting all the same.
    delete(&disk, (0..files).filter(|number| number % 3 > 0));
    assert_eq!(disk.close(), Ok(()));
    let disk = opened_usual(&device, &clock);
    assert_eq!(disk.space().inodes as usize, 2 + files.div_ceil(3));
    assert_sound(&disk);
    let mut found = vec![0; at as usize];
    assert_eq!(disk.read(large, 0, &mut found), Ok(found.len()));
    assert!(found.iter().all(|byte| *byte == 9));
    delete(&disk, (0..files).filter(|number| number % 3 == 0));
    disk.unlink(Inode::ROOT, b"large").expect("deleted");
    tend_later(&disk, &clock);
    assert!(fill(&disk, &[9000]) > 0);
    assert_sound(&disk);
}

#[test]
fn the_catalog_takes_no_room_that_waiting_files_were_promised() {
    fill_to_the_brim(1 << 14, TINY, true);
    fill_to_the_brim(1 << 13, &[0], true);
    for checkpoints in [false, true] {
        [TINY, &[0], &[4096, 100]].into_iter().for_each(|sizes| fill_to_the_brim(1 << 12, sizes, checkpoints));
    }
}
