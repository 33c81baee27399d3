//! Space that was allocated is there when it is needed, whatever others did with the rest; and what has a place needs no other.

use super::*;
use crate::run::Window;

/// A disk with an allocated file, and nothing left for others.
struct Full {
    device: Arc<dyn Device>,
    disk: Disk,
    file: Inode,
}

/// In sectors.
#[derive(Debug, Clone, Copy)]
struct Allocated {
    from: u64,
    sectors: u64,
}

fn made(disk: &Disk, name: &str) -> Inode {
    disk.make(Inode::ROOT, name.as_bytes(), &new_node(Kind::File, 0o600)).expect("made").inode
}

fn at(sector: u64) -> u64 {
    sector * SECTOR_BYTES as u64
}

fn whole(fill: u8) -> Vec<u8> {
    vec![fill; SECTOR_BYTES]
}

fn opened_again(full: Full) -> Full {
    let Full { device, disk, file } = full;
    drop(disk);
    let disk = opened(device.clone(), Arc::new(SteppingClock::default()));
    Full { device, disk, file }
}

/// Writes until there is no room, and brings it to its place.
fn fill(disk: &Disk, file: Inode, from: u64) {
    let refused = (from..1 << 20).find_map(|sector| disk.write(file, at(sector), &whole(9)).err());
    assert_eq!(refused, Some(FileError::NoSpace));
    let synced = disk.sync_all();
    assert!(synced.is_ok() || synced == Err(FileError::NoSpace), "{synced:?}");
}

/// Small files until there is no room, each in a group of its own.
fn fill_with_small_files(disk: &Disk) {
    for number in 0.. {
        let Ok(small) = disk.make(Inode::ROOT, format!("s{number}").as_bytes(), &new_node(Kind::File, 0o600)) else {
            return;
        };
        let written = disk.write(small.inode, 0, &whole(9));
        if written.and_then(|()| disk.sync_all()).is_err() {
            return;
        }
    }
}

fn full(data: u16, parity: u16, allocated: Allocated, fill: impl FnOnce(&Disk, Inode)) -> Full {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 13));
    let (clock, random) = (Arc::new(SteppingClock::default()), HostRandom::from_system().expect("the system's"));
    Disk::format(&device, &Format { data, ..format(parity) }, &*clock, &random).expect("formatted");
    let disk = opened(device.clone(), clock);
    let file = made(&disk, "allocated");
    disk.allocate(file, at(allocated.from), at(allocated.sectors), false).expect("there is space");
    fill(&disk, file);
    Full { device, disk, file }
}

/// Writes every sector of what was allocated, in an order that jumps to and fro, with an fsync now and then; opened anew in the
/// middle of it.
fn assert_kept(mut full: Full, allocated: Allocated, step: u64) {
    let Allocated { from, sectors } = allocated;
    assert_sound(&full.disk);
    let order = (0..sectors).map(|number| from + number * step % sectors);
    assert_eq!(order.clone().collect::<BTreeSet<u64>>().len() as u64, sectors, "each one once");
    for (number, sector) in order.enumerate() {
        let written = full.disk.write(full.file, at(sector), &whole(sector as u8));
        assert_eq!(written, Ok(()), "sector {sector} after {number}");
        if number % 7 == 0 {
            assert_eq!(full.disk.sync(full.file), Ok(()), "sector {sector} after {number}");
        }
        if number as u64 == sectors / 2 {
            assert_eq!(full.disk.sync(full.file), Ok(()));
            full = opened_again(full);
        }
    }
    full.disk.flush(full.file, &full.disk.lock_flusher()).expect("all have room");
    full.disk.sync(full.file).expect("synced");
    let full = opened_again(full);
    let mut bytes = vec![0; SECTOR_BYTES];
    for sector in from..from + sectors {
        full.disk.read(full.file, at(sector), &mut bytes).expect("reads");
        assert!(bytes.iter().all(|byte| *byte == sector as u8), "sector {sector}");
    }
    assert_sound(&full.disk);
    let found = full.disk.scrub(&mut |_| true).expect("it reads");
    assert_eq!((found.mended, found.sums_mended, found.lost.len()), (0, 0, 0), "{found:?}");
}

const SOME: Allocated = Allocated { from: 3, sectors: 613 };

#[test]
fn every_write_into_allocated_space_succeeds_when_others_have_filled_the_disk() {
    for (data, parity, step) in [(10, 2, 1), (10, 0, 101), (250, 5, 101), (250, 5, 612)] {
        let others = |disk: &Disk, _| fill(disk, made(disk, "others"), 0);
        assert_kept(full(data, parity, SOME, others), SOME, step);
    }
}

#[test]
fn so_it_does_beside_small_files_and_in_the_gaps_between_them() {
    assert_kept(full(250, 5, SOME, |disk, _| fill_with_small_files(disk)), SOME, 101);
    // What is free lies in gaps of eight sectors.
    let gaps = |disk: &Disk, file: Inode| {
        disk.set_attributes(file, &NewAttributes { bytes: Some(0), ..NewAttributes::default() }).expect("cut");
        fill_with_small_files(disk);
        for number in (0..600).step_by(3) {
            disk.unlink(Inode::ROOT, format!("s{number}").as_bytes()).expect("deleted");
        }
        disk.sync_all().expect("synced");
        disk.checkpoint(&disk.lock_flusher()).expect("made");
        disk.allocate(file, at(SOME.from), at(200), false).expect("there is space");
        fill_with_small_files(disk);
    };
    let some = Allocated { sectors: 200, ..SOME };
    assert_kept(full(250, 5, SOME, |disk, file| gaps(disk, file)), some, 77);
}

#[test]
fn writes_elsewhere_in_the_file_do_not_use_it_up() {
    assert_kept(full(10, 2, SOME, |disk, file| fill(disk, file, 1000)), SOME, 101);
    assert_kept(full(250, 5, SOME, |disk, file| fill(disk, file, 1000)), SOME, 1);
}

#[test]
fn nor_do_large_writes_over_a_part_of_it() {
    for step in [1, 101] {
        let others = |disk: &Disk, file| {
            // It begins to be used while there is room elsewhere: in bulk runs, over group borders and over groups begun.
            for sector in [300, 101, 345] {
                disk.write(file, at(sector), &whole(1)).expect("written");
                disk.sync_all().expect("synced");
                disk.flush(file, &disk.lock_flusher()).expect("flushed");
            }
            disk.write(file, at(57), &vec![2; 110 * SECTOR_BYTES]).expect("written");
            disk.sync_all().expect("synced");
            disk.write(file, at(299), &vec![2; 45 * SECTOR_BYTES]).expect("written");
            disk.sync_all().expect("synced");
            disk.punch(file, at(70), at(21)).expect("punched");
            disk.allocate(file, at(SOME.from), at(SOME.sectors), false).expect("there is space");
            fill(disk, made(disk, "others"), 0);
        };
        assert_kept(full(10, 2, SOME, others), SOME, step);
    }
}

#[test]
fn what_has_a_place_is_written_over_on_a_full_disk() {
    let some = Allocated { from: 0, sectors: 613 };
    for step in [1, 101] {
        let written = |disk: &Disk, file| {
            disk.write(file, 0, &vec![1; 613 * SECTOR_BYTES]).expect("written");
            disk.sync_all().expect("synced");
            fill(disk, made(disk, "others"), 0);
        };
        assert_kept(full(10, 2, Allocated { from: 0, sectors: 1 }, written), some, step);
    }
}

#[test]
fn allocated_space_is_a_hole_and_is_given_back_with_the_file() {
    let disk = memory(2);
    let (file, before) = (made(&disk, "f"), disk.space());
    disk.allocate(file, 0, at(1000), true).expect("there is space");
    let attributes = disk.attributes(file).expect("there");
    assert_eq!((attributes.bytes, attributes.sectors), (0, 1000 + 100 * 2));
    assert!(disk.space().free_sectors < before.free_sectors - 990);
    disk.allocate(file, 0, at(1000), false).expect("it is there");
    assert_eq!(disk.attributes(file).expect("there").sectors, 1200, "nothing is promised twice");
    disk.write(file, at(905), &whole(1)).expect("written");
    disk.sync_all().expect("synced");
    let seek = |from, what| disk.seek(file, at(from), what);
    assert_eq!((seek(0, Seek::Data), seek(0, Seek::Hole)), (Ok(at(900)), Ok(0)));
    assert_eq!((seek(900, Seek::Hole), seek(906, Seek::Data)), (Ok(at(906)), Err(FileError::NothingThere)));
    disk.punch(file, at(15), at(20)).expect("punched");
    assert_eq!(disk.attributes(file).expect("there").sectors, 1200 - 10 - 2 - 5 - 5, "one group and parts of two");
    let cut = NewAttributes { bytes: Some(at(905)), ..NewAttributes::default() };
    disk.set_attributes(file, &cut).expect("cut");
    disk.set_attributes(file, &NewAttributes { bytes: Some(0), ..cut }).expect("cut");
    assert_eq!(disk.attributes(file).expect("there").sectors, 0);
    disk.sync_all().expect("synced");
    assert_eq!(disk.space().free_sectors, before.free_sectors);
    assert_sound(&disk);
}

/// What is left of a group's room has its parity's sectors, and the group is named until the journal says otherwise.
#[test]
fn a_group_whose_room_is_written_again_is_whole_until_it_is_named_nowhere() {
    let mut written_again = 0;
    for seed in 0..12 {
        let drive = SimDevice::alone("d", HddModel::new(1 << 13), seed);
        let disk = formatted(&drive.attach(), 2);
        let file = made(&disk, "f");
        disk.allocate(file, 0, at(60), false).expect("there is space");
        disk.write(file, at(40), &whole(40)).expect("written");
        disk.flush(file, &disk.lock_flusher()).expect("flushed");
        disk.checkpoint(&disk.lock_flusher()).expect("made");
        // Over the group's data and a part of its room, and then into the rest of it.
        disk.write(file, at(5), &vec![1; 40 * SECTOR_BYTES]).expect("written");
        disk.flush(file, &disk.lock_flusher()).expect("flushed");
        let before = guard(&disk.core).all_windows(file, 40..50, 10).expect("it reads");
        assert!(before.iter().any(Window::is_promised), "{before:?}");
        disk.write(file, at(47), &whole(47)).expect("written");
        disk.flush(file, &disk.lock_flusher()).expect("flushed");
        drive.crash();
        drop(disk);
        let disk = opened(drive.attach(), Arc::new(SteppingClock::default()));
        let mut bytes = whole(0);
        disk.read(file, at(40), &mut bytes).expect("reads");
        written_again += u32::from(bytes == whole(1));
        assert!(bytes == whole(40) || bytes == whole(1), "seed {seed}");
        let found = disk.scrub(&mut |_| true).expect("it reads");
        assert_eq!((found.mended, found.sums_mended, found.lost.len()), (0, 0, 0), "seed {seed}: {found:?}");
        assert_sound(&disk);
    }
    assert!(written_again > 0);
}
