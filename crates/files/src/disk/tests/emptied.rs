//! Deleting and cutting what lies in many pieces: in portions, so that it works on a full disk and no power cut shows half of it.

use super::*;

fn at(sector: u64) -> u64 {
    sector * SECTOR_BYTES as u64
}

/// A file of which every other sector lies in a group of its own.
fn fragmented(disk: &Disk, name: &[u8], windows: u64) -> Inode {
    let file = disk.make(Inode::ROOT, name, &new_node(Kind::File, 0o600)).expect("made").inode;
    for number in 0..windows {
        disk.write(file, at(2 * number), &[1 + number as u8 % 200; SECTOR_BYTES]).expect("written");
    }
    disk.sync_all().expect("synced");
    file
}

fn size(sectors: u64) -> NewAttributes {
    NewAttributes { bytes: Some(at(sectors)), ..NewAttributes::default() }
}

#[test]
fn what_lies_in_many_pieces_is_freed_in_several_transactions() {
    for way in 0..3 {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
        let disk = formatted(&device, 2);
        let before = disk.space().free_sectors;
        let file = fragmented(&disk, b"f", 3000);
        disk.checkpoint(&disk.lock_flusher()).expect("made");
        match way {
            0 => disk.unlink(Inode::ROOT, b"f").expect("deleted"),
            1 => drop(disk.set_attributes(file, &size(0)).expect("cut")),
            _ => disk.punch(file, 0, at(6000)).expect("a hole"),
        }
        // 3000 rows of runs alone are more than twice that.
        let changed = guard(&disk.core).catalog.overlay_bytes();
        assert!(changed < 100 << 10, "{changed} bytes of changes in memory");
        disk.checkpoint(&disk.lock_flusher()).expect("made");
        assert_eq!(disk.space().free_sectors, before);
        assert_sound(&disk);
    }
}

#[test]
fn placing_much_makes_checkpoints_on_the_way() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
    drop(formatted(&device, 2));
    let tuning = Tuning { waiting_sectors_max: 8000, ..tuning() };
    let disk = Disk::open(device, Arc::new(SteppingClock::default()), tuning).expect("opens");
    let file = disk.make(Inode::ROOT, b"f", &new_node(Kind::File, 0o600)).expect("made").inode;
    for number in 0..3000 {
        disk.write(file, at(2 * number), &[1; SECTOR_BYTES]).expect("written");
    }
    disk.flush_all(&disk.lock_flusher()).expect("placed");
    let changed = guard(&disk.core).catalog.overlay_bytes();
    assert!(changed < 100 << 10, "{changed} bytes of changes in memory");
    disk.sync_all().expect("synced");
    assert_sound(&disk);
}

/// Cuts power in a deletion, a cut and a hole after so many operations; returns whether it was done before.
fn cut_off(way: u64, operations: u64) -> bool {
    const WINDOWS: u64 = 60;
    run(operations, async |world| {
        let hand: SimDevice = world.device("d", HddModel::new(4096));
        let clock: Arc<dyn Clock> = Arc::new(SteppingClock::default());
        Disk::format(&hand.attach(), &format(2), &*clock, world.random()).expect("formatted");
        // A checkpoint after each portion, as if each were much.
        let tuning = Tuning { changed_bytes_max: 0, ..tuning() };
        let disk = Disk::open(hand.attach(), clock.clone(), tuning).expect("opens");
        let before = disk.space().free_sectors;
        let file = fragmented(&disk, b"f", WINDOWS);
        hand.cut_power_after(operations);
        let freed = |disk: &Disk| match way {
            0 => disk.unlink(Inode::ROOT, b"f"),
            1 => disk.set_attributes(file, &size(7)).map(drop),
            _ => disk.punch(file, at(7), at(2 * WINDOWS)),
        };
        let done = freed(&disk).and_then(|()| disk.sync_all());
        drop(disk);
        hand.crash();
        let disk = opened(hand.attach(), clock);
        assert_sound(&disk);
        match disk.attributes(file) {
            Err(error) => assert_eq!((error, way), (FileError::NotFound, 0)),
            Ok(attributes) => {
                let mut bytes = vec![0; SECTOR_BYTES];
                for sector in 0..attributes.bytes.div_ceil(at(1)) {
                    disk.read(file, at(sector), &mut bytes).expect("reads");
                    let fill = if sector % 2 == 0 { 1 + (sector / 2) as u8 } else { 0 };
                    let is_hole = way == 2 && sector >= 7 && bytes[0] == 0;
                    assert!(is_hole || bytes[0] == fill, "sector {sector}: {} and not {fill}", bytes[0]);
                    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "sector {sector} is torn");
                }
                assert!(way != 0 || attributes.bytes == at(2 * WINDOWS - 1), "a deletion cuts nothing that has a name");
            }
        }
        // And what was done is done, or can be done.
        if done.is_err() && disk.attributes(file).is_ok() {
            freed(&disk).expect("freed");
        }
        if way > 0 {
            assert!(disk.attributes(file).is_ok_and(|attributes| way != 1 || attributes.bytes == at(7)));
            disk.unlink(Inode::ROOT, b"f").expect("deleted");
        }
        disk.checkpoint(&disk.lock_flusher()).expect("made");
        assert_eq!(disk.space().free_sectors, before);
        assert_sound(&disk);
        done.is_ok()
    })
}

#[test]
fn power_cut_within_a_deletion_a_cut_or_a_hole_leaves_no_wrong_byte() {
    for way in 0..3 {
        let mut operations = 0;
        while !cut_off(way, operations) {
            operations += 1;
        }
        assert!(operations > 40, "{operations} operations");
    }
}

/// A disk that small files and one in many pieces fill, so that nothing is left; and how many small ones there are.
fn filled(device: &Arc<dyn Device>, bytes: usize) -> (Disk, usize) {
    let disk = formatted(device, 2);
    fragmented(&disk, b"pieces", 150);
    let mut files = 0;
    let refused = loop {
        let written = disk
            .make(Inode::ROOT, &small(files), &new_node(Kind::File, 0o600))
            .and_then(|made| disk.write(made.inode, 0, &vec![content(files); bytes]));
        if let Err(error) = written {
            break error;
        }
        files += 1;
        if files.is_multiple_of(16) {
            disk.sync_all().expect("synced");
        }
    };
    assert_eq!(refused, FileError::NoSpace);
    let synced = disk.sync_all();
    assert!(synced.is_ok() || synced == Err(FileError::NoSpace), "{synced:?}");
    (disk, files)
}

fn small(number: usize) -> Vec<u8> {
    format!("a small file, number {number}").into_bytes()
}

fn content(number: usize) -> u8 {
    1 + (number % 251) as u8
}

/// What is free, and what the catalog has: a slab is never given back.
fn free_and_slabs(disk: &Disk) -> u64 {
    let space = guard(&disk.space);
    let slabs = disk.superblock.current().slabs;
    space.open_sectors() + space.given_sectors() + slabs.iter().map(|slab| slab.sectors(2)).sum::<u64>()
}

/// Every other file first: what becomes free lies in as many gaps as there can be.
fn order(files: usize) -> impl Iterator<Item = usize> {
    (0..files).step_by(2).chain((1..files).step_by(2))
}

#[test]
fn a_full_disk_takes_deletions_and_is_empty_after_them() {
    for (sectors, bytes) in [(4096, 100), (4096, 2000), (4096, 5000), (1 << 14, 9000)] {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(sectors));
        let empty = free_and_slabs(&formatted(&device, 2));
        let (disk, files) = filled(&device, bytes);
        assert!(files > 100, "{files} files of {bytes} bytes");
        let piece = disk.lookup(Inode::ROOT, b"pieces").expect("there").inode;
        disk.set_attributes(piece, &size(3)).expect("cut");
        for (turn, number) in order(files).enumerate() {
            assert_eq!(disk.unlink(Inode::ROOT, &small(number)), Ok(()), "{turn} of {files} files of {bytes} bytes");
            if turn.is_multiple_of(8) {
                assert_eq!(disk.sync_all(), Ok(()), "{turn} of {files} files of {bytes} bytes");
                assert_eq!(disk.checkpoint(&disk.lock_flusher()), Ok(()), "{turn} of {files} files of {bytes} bytes");
            }
        }
        let _ = disk.unlink(Inode::ROOT, &small(files));
        disk.unlink(Inode::ROOT, b"pieces").expect("deleted");
        disk.checkpoint(&disk.lock_flusher()).expect("made");
        assert_eq!(free_and_slabs(&disk), empty);
        assert_sound(&disk);
        drop(disk);
        let disk = opened(device, Arc::new(SteppingClock::default()));
        assert_eq!(free_and_slabs(&disk), empty);
        let again = disk.make(Inode::ROOT, b"again", &new_node(Kind::File, 0o600)).expect("there is room").inode;
        disk.write(again, 0, &[7; 100]).expect("there is room");
        disk.sync_all().expect("synced");
    }
}

#[test]
fn power_cut_while_a_full_disk_is_emptied_loses_nothing_and_frees_all() {
    const SECTORS: u64 = 4096;
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(SECTORS));
    let empty = free_and_slabs(&formatted(&memory, 2));
    let (disk, files) = filled(&memory, 5000);
    drop(disk);
    let mut image = vec![0; SECTORS as usize * SECTOR_BYTES];
    memory.read(claystone_env::Sector(0), &mut image, claystone_env::Effort::Retry).expect("reads");
    let delete = |disk: &Disk, gone: &mut BTreeSet<usize>| -> Result<(), FileError> {
        for number in order(files).step_by(3) {
            match disk.unlink(Inode::ROOT, &small(number)) {
                Err(FileError::NotFound) => {}
                deleted => deleted?,
            }
            gone.insert(number);
            if gone.len().is_multiple_of(8) {
                disk.sync_all()?;
                disk.checkpoint(&disk.lock_flusher())?;
            }
        }
        match disk.unlink(Inode::ROOT, b"pieces") {
            Ok(()) | Err(FileError::NotFound) => disk.sync_all(),
            error => error,
        }
    };
    let cut = |operations: u64| {
        run(operations, async |world| {
            let hand: SimDevice = world.device("d", HddModel::new(SECTORS));
            hand.attach().write(claystone_env::Sector(0), &image).and_then(|()| hand.attach().sync()).expect("written");
            let clock: Arc<dyn Clock> = Arc::new(SteppingClock::default());
            let disk = opened(hand.attach(), clock.clone());
            let mut gone = BTreeSet::new();
            hand.cut_power_after(operations);
            let done = delete(&disk, &mut gone);
            drop(disk);
            hand.crash();
            let disk = opened(hand.attach(), clock);
            assert_sound(&disk);
            for number in 0..files {
                let Ok(file) = disk.lookup(Inode::ROOT, &small(number)) else {
                    assert!(gone.contains(&number) || done.is_err(), "file {number} was not deleted");
                    continue;
                };
                let mut bytes = vec![0; 5000];
                assert_eq!(disk.read(file.inode, 0, &mut bytes), Ok(5000), "file {number}");
                assert!(bytes.iter().all(|byte| *byte == content(number)), "file {number}");
            }
            assert_eq!(delete(&disk, &mut gone), Ok(()));
            for number in 0..=files {
                let _ = disk.unlink(Inode::ROOT, &small(number));
            }
            disk.checkpoint(&disk.lock_flusher()).expect("made");
            assert_eq!(free_and_slabs(&disk), empty);
            assert_sound(&disk);
            done.is_ok()
        })
    };
    let mut operations = 0;
    while !cut(operations) {
        operations += if operations < 30 { 3 } else { 61 };
    }
    assert!(operations > 300, "{operations} operations");
}
