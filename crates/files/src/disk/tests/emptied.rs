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
