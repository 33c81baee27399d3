//! A catalog that cannot grow, on a disk whose free sectors are too scattered for a slab.

use super::*;
use crate::commit::unless_full;

fn name(number: usize) -> Vec<u8> {
    format!("a file of some length, number {number}").into_bytes()
}

/// Makes the free sectors crumbs: somebody else has every other one.
fn crumble(disk: &Disk) {
    let mut space = guard(&disk.space);
    let mut taken = Vec::new();
    while let largest @ 2.. = space.largest() {
        taken.push(space.reserve(largest, None).expect("it is free"));
    }
    for range in taken {
        for sector in (range.first.0..range.end().0).step_by(2) {
            space.unreserve(claystone_env::SectorRange { first: claystone_env::Sector(sector), sectors: 1 });
        }
    }
}

fn assert_there(disk: &Disk, files: usize) {
    for number in 0..files {
        assert!(disk.lookup(Inode::ROOT, &name(number)).is_ok(), "file {number} of {files}");
    }
}

/// What was changed stays in memory and in the journal, and goes into the catalog when there is room again.
#[test]
fn a_catalog_without_room_stops_no_disk() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
    let disk = formatted(&device, 2);
    crumble(&disk);
    let make = |number: usize| disk.make(Inode::ROOT, &name(number), &new_node(Kind::File, 0o600));
    let mut made = 0;
    let refused = loop {
        match make(made) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
        if made % 50 == 0 && disk.checkpoint(&disk.lock_flusher()) == Err(FileError::NoSpace) {
            break make(made).map(drop).expect_err("the catalog is full");
        }
    };
    assert_eq!(refused, FileError::NoSpace);
    assert!(made > 500, "{made} files");
    let first = disk.lookup(Inode::ROOT, &name(0)).expect("it is there").inode;
    assert_eq!(disk.write(first, 0, &[1; SECTOR_BYTES]), Err(FileError::NoSpace));
    assert_eq!(disk.space().free_sectors, 0);
    for _ in 0..2 {
        unless_full(disk.checkpoint(&disk.lock_flusher())).expect("the disk does not stop");
        assert_there(&disk, made);
    }
    assert_eq!(disk.sync_all(), Ok(()), "the journal has it");
    drop(disk);
    // Who opens it finds the crumbs in a row.
    let disk = opened(device, Arc::new(SteppingClock::default()));
    assert_there(&disk, made);
    assert_sound(&disk);
    disk.write(first, 0, &[1; SECTOR_BYTES]).expect("there is room");
    disk.close().expect("closed");
}

/// No slab can be had, so all that deletions take are pages that the catalog has.
#[test]
fn a_catalog_without_room_takes_deletions() {
    for order in 0..3 {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
        let disk = formatted(&device, 2);
        crumble(&disk);
        let mut made = 0;
        while disk.make(Inode::ROOT, &name(made), &new_node(Kind::File, 0o600)).is_ok() {
            made += 1;
        }
        assert!(made > 500, "{made} files");
        for turn in 0..made {
            // Each tenth at first, from behind, or one after the other.
            let number = [turn * 7919 % made, made - 1 - turn, turn][order];
            if disk.unlink(Inode::ROOT, &name(number)) == Err(FileError::NotFound) {
                continue;
            }
            if turn % 20 == 0 {
                assert_eq!(disk.sync_all(), Ok(()), "after {turn}");
                assert_eq!(disk.checkpoint(&disk.lock_flusher()), Ok(()), "after {turn}");
            }
        }
        assert_eq!(disk.checkpoint(&disk.lock_flusher()), Ok(()));
        for number in 0..made / 2 {
            disk.make(Inode::ROOT, &name(number), &new_node(Kind::File, 0o600)).expect("there is room again");
        }
        drop(disk);
        assert_sound(&opened(device, Arc::new(SteppingClock::default())));
    }
}
