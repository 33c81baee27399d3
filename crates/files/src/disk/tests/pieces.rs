//! A disk whose free sectors lie in pieces, each too small for a whole group.

use super::*;

const SECTOR: u64 = SECTOR_BYTES as u64;

/// A disk of which the free sectors lie in gaps of what a file of `sectors` takes, but for those that `reserved` says: every other of many small
/// files was deleted. Returns it with its device.
fn in_pieces(sectors: usize) -> (Arc<dyn Device>, Disk) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(8192));
    let disk = formatted(&device, 2);
    let name = |number: usize| format!("s{number}").into_bytes();
    let mut made = 0;
    while let Ok(file) = disk.make(Inode::ROOT, &name(made), &new_node(Kind::File, 0o600)) {
        made += 1;
        let written = disk.write(file.inode, 0, &vec![2; sectors * SECTOR_BYTES]);
        if written.and_then(|()| disk.flush(file.inode, &disk.lock_flusher())).is_err() {
            break;
        }
    }
    (0..made).step_by(2).for_each(|number| disk.unlink(Inode::ROOT, &name(number)).expect("deleted"));
    disk.checkpoint(&disk.lock_flusher()).expect("made");
    // What was kept for the catalog lies in a row; somebody else has it.
    take_above(&disk, sectors as u64 + 2);
    (device, disk)
}

/// Reserves all gaps of more sectors.
fn take_above(disk: &Disk, sectors: u64) {
    let mut space = guard(&disk.space);
    while space.largest() > sectors {
        let largest = space.largest();
        space.reserve(largest, None).expect("it is free");
    }
}

/// A sector of a file.
fn fill(disk: &Disk, inode: Inode, sector: u64) -> u8 {
    let mut bytes = [0; SECTOR_BYTES];
    assert_eq!(disk.read(inode, sector * SECTOR, &mut bytes), Ok(SECTOR_BYTES), "sector {sector}");
    assert_eq!(bytes, [bytes[0]; SECTOR_BYTES], "sector {sector}");
    bytes[0]
}

fn make(disk: &Disk) -> Inode {
    disk.make(Inode::ROOT, b"long", &new_node(Kind::File, 0o600)).expect("made").inode
}

/// Fills of the first sectors of a file, all different from their neighbours.
fn bytes_of(sectors: u64) -> Vec<u8> {
    (0..sectors).flat_map(|sector| [sector as u8; SECTOR_BYTES]).collect()
}

/// Rows as long as bulk runs are, and longer than any gap.
#[test]
fn what_is_written_to_a_disk_in_pieces_finds_places() {
    let (device, disk) = in_pieces(4);
    let (free, waiting) = (guard(&disk.space).open_sectors(), 300);
    assert!(free > 4 * waiting && disk.space().free_sectors > waiting, "{free} are free: {:?}", disk.space());
    let file = make(&disk);
    disk.write(file, 0, &bytes_of(waiting)).expect("there is room");
    disk.flush(file, &disk.lock_flusher()).expect("they find places");
    assert_eq!(guard(&disk.core).nodes.waiting, 0);
    // And over what has a place, with more behind it.
    disk.write(file, 50 * SECTOR, &bytes_of(waiting)).expect("there is room");
    disk.close().expect("closed");
    let disk = opened(device, Arc::new(SteppingClock::default()));
    (0..50 + waiting).for_each(|sector| {
        let written = if sector < 50 { sector } else { sector - 50 };
        assert_eq!(fill(&disk, file, sector), written as u8, "sector {sector}");
    });
    assert_sound(&disk);
}

/// A gap of three sectors takes one of data, and one of two takes none.
#[test]
fn what_finds_no_place_in_pieces_is_refused_before_it_is_taken() {
    let (device, disk) = in_pieces(1);
    let sectors = guard(&disk.space).open_sectors();
    let room = disk.space().free_sectors;
    assert!(sectors > 2 * room && room > 100, "{sectors} are free, with room for {room}");
    let file = make(&disk);
    assert_eq!(disk.write(file, 0, &bytes_of(sectors)), Err(FileError::NoSpace));
    let mut taken = 0;
    while disk.write(file, taken * SECTOR, &bytes_of(taken + 8)[taken as usize * SECTOR_BYTES..]).is_ok() {
        taken += 8;
    }
    assert!(taken > room / 4, "{taken} of {room} sectors were taken, out of {sectors}");
    disk.sync(file).expect("what was taken finds a place");
    disk.close().expect("closed");
    let disk = opened(device, Arc::new(SteppingClock::default()));
    (0..taken).for_each(|sector| assert_eq!(fill(&disk, file, sector), sector as u8));
    assert_sound(&disk);
}

/// A file that waits, and a disk of which all that is free was taken meanwhile.
fn placeless(device: &Arc<dyn Device>, sectors: u64) -> (Disk, Inode) {
    let disk = formatted(device, 2);
    let file = make(&disk);
    disk.write(file, 0, &bytes_of(sectors)).expect("written");
    take_above(&disk, 0);
    (disk, file)
}

#[test]
fn what_finds_no_place_waits_in_the_journal_when_the_disk_is_closed() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(8192));
    let (disk, file) = placeless(&device, 30);
    disk.close().expect("it is in the journal");
    let disk = opened(device, Arc::new(SteppingClock::default()));
    (0..30).for_each(|sector| assert_eq!(fill(&disk, file, sector), sector as u8));
    assert_sound(&disk);
}

#[test]
fn what_finds_no_place_and_no_room_in_the_journal_is_counted() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(8192));
    let (disk, file) = placeless(&device, 180);
    let Err(FileError::Placeless { sectors }) = disk.sync_all() else { panic!("the journal has no room for all") };
    let Err(FileError::Placeless { sectors: again }) = disk.close() else { panic!("nor when it is closed") };
    assert_eq!(again, sectors);
    let disk = opened(device, Arc::new(SteppingClock::default()));
    let kept = 180 - sectors;
    assert!(kept > 30, "{kept} sectors are kept");
    (0..kept).for_each(|sector| assert_eq!(fill(&disk, file, sector), sector as u8));
    assert_eq!(disk.attributes(file).expect("it is there").bytes, kept * SECTOR);
}
