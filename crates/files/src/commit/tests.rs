//! What the journal promises while entries are on their way, sectors are written again, and groups are lost.

use std::pin::Pin;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use claystone_env::testing::MemoryDevice;
use claystone_env::{
    Clock, Device, DeviceError, Effort, FailedSector, Geometry, Moment, PairHealth, SECTOR_BYTES, Sector, SectorRange,
    WallTime,
};
use claystone_group::{BulkRun, UpdateChoice};
use claystone_host::HostRandom;
use claystone_sim::{HddModel, SimDevice};

use super::*;
use crate::loss::Loss;
use crate::run::Run;
use crate::testing::{SteppingClock, new_node};
use crate::{Change, FileTree, Format, Kind, NewAttributes, Record, Setting, Table, Timestamp, Tuning};

fn formatted(device: &Arc<dyn Device>) -> Disk {
    formatted_with(device, 10, 2)
}

fn formatted_with(device: &Arc<dyn Device>, data: u16, parity: u16) -> Disk {
    format(device, data, parity);
    opened(device.clone())
}

fn format(device: &Arc<dyn Device>, data: u16, parity: u16) {
    let format = Format { data, parity, copies: 2, soft_failures: 1e-3, loss_target: 1e-6, label: "test".into() };
    let random = HostRandom::from_system().expect("the system's");
    Disk::format(device, &format, &SteppingClock::default(), &random).expect("formatted");
}

fn opened(device: Arc<dyn Device>) -> Disk {
    Disk::open(device, Arc::new(SteppingClock::default()), Tuning::default()).expect("opens")
}

fn file(disk: &Disk, name: &[u8]) -> Inode {
    disk.make(Inode::ROOT, name, &new_node(Kind::File, 0o600)).expect("made").inode
}

fn write(disk: &Disk, inode: Inode, sector: u64, fill: u8) {
    disk.write(inode, sector * SECTOR_BYTES as u64, &[fill; SECTOR_BYTES]).expect("written");
}

fn fill(disk: &Disk, inode: Inode, sector: u64) -> u8 {
    let mut bytes = [0; SECTOR_BYTES];
    assert_eq!(disk.read(inode, sector * SECTOR_BYTES as u64, &mut bytes), Ok(SECTOR_BYTES));
    assert_eq!(bytes, [bytes[0]; SECTOR_BYTES]);
    bytes[0]
}

/// Memory in which a call stops.
struct Stopping {
    memory: MemoryDevice,
    stops: Mutex<Vec<Stop>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    WriteOfJournal,
    WriteBehindIt,
    Read,
}

/// The next call of a kind.
struct Stop {
    call: Call,
    reached: Sender<()>,
    /// A word or a time, whichever is first.
    goes_on: (Receiver<()>, Duration),
}

impl Stopping {
    fn at_next(&self, call: Call, at_most: Duration) -> (Receiver<()>, Sender<()>) {
        let ((reached, is_reached), (go_on, goes_on)) = (channel(), channel());
        self.stops.lock().expect("no panics").push(Stop { call, reached, goes_on: (goes_on, at_most) });
        (is_reached, go_on)
    }

    fn come_to(&self, call: Call) {
        let stop = {
            let mut stops = self.stops.lock().expect("no panics");
            let found = stops.iter().position(|stop| stop.call == call);
            found.map(|at| stops.remove(at))
        };
        if let Some(Stop { reached, goes_on: (goes_on, at_most), .. }) = stop {
            let _ = reached.send(());
            let _ = goes_on.recv_timeout(at_most);
        }
    }
}

impl Device for Stopping {
    fn label(&self) -> String {
        self.memory.label()
    }

    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        self.come_to(Call::Read);
        self.memory.read(first, into, effort)
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        self.come_to(if first.0 < JOURNAL_END { Call::WriteOfJournal } else { Call::WriteBehindIt });
        self.memory.write(first, bytes)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.memory.sync()
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.memory.discard(range)
    }
}

/// Of a device of 2^16 sectors with two copies: 6 sectors before the journal, 512 of it.
const JOURNAL_END: u64 = 6 + 2 * 512;
const LONG: Duration = Duration::from_secs(60);

/// A sector is written again and synced while its older bytes are on their way to a group. The entry that has the newer bytes
/// is being written when the group could be named: what that forgets must not be in an entry behind it.
#[test]
#[expect(clippy::disallowed_methods, reason = "several threads at once are what is tested")]
fn naming_a_group_forgets_nothing_of_an_entry_on_its_way() {
    let device = Arc::new(Stopping { memory: MemoryDevice::new(1 << 16), stops: Mutex::default() });
    let disk = formatted(&(device.clone() as Arc<dyn Device>));
    assert_eq!(guard(&disk.journal).sectors(), 512, "as JOURNAL_END says");
    let inode = file(&disk, b"f");
    disk.sync_all().expect("synced");
    (0..10).for_each(|sector| write(&disk, inode, sector, 1));
    let (group_is_written, write_group) = device.at_next(Call::WriteBehindIt, LONG);
    // The group must wait for this entry, which cannot be told from its being slow: after a while the entry goes on.
    let (entry_is_written, write_entry) = device.at_next(Call::WriteOfJournal, Duration::from_millis(100));
    std::thread::scope(|scope| {
        let disk = &disk;
        let syncing = scope.spawn(move || {
            group_is_written.recv_timeout(LONG).expect("the group is on its way");
            write(disk, inode, 3, 2);
            disk.sync(inode).expect("synced");
        });
        scope.spawn(move || {
            entry_is_written.recv_timeout(LONG).expect("the entry is on its way");
            write_group.send(()).expect("the group waits");
        });
        disk.flush(inode, &disk.lock_flusher()).expect("flushed");
        let _ = write_entry.send(());
        syncing.join().expect("synced");
    });
    disk.commit().expect("the group is named");
    drop(disk);
    assert_eq!(fill(&opened(device), inode, 3), 2, "what was synced last");
}

/// Sums sectors that are going to be written get into an entry of somebody else; then the journal is full, and a checkpoint comes before they are
/// written. Whoever opens the disk after a crash passes over what that entry has of them.
#[test]
#[expect(clippy::disallowed_methods, reason = "several threads at once are what is tested")]
fn an_entry_behind_the_last_checkpoint_has_the_sums_that_are_written() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 16));
    let disk = formatted(&device);
    let inode = file(&disk, b"f");
    disk.write(inode, 0, &[1; 100 * SECTOR_BYTES]).expect("written");
    disk.sync_all().expect("synced");
    disk.flush_all(&disk.lock_flusher()).expect("there is room");
    let Run::Bulk { run } = guard(&disk.core).windows(inode, 0..1, 10).expect("they read")[0].run else {
        panic!("long")
    };
    let sums = Record::Sums { place: run.sums(0, disk.shape).0, bytes: vec![0x5a; SECTOR_BYTES] };
    std::thread::scope(|scope| {
        let mut journal = guard(&disk.journal);
        let (disk, sums) = (&disk, &sums);
        let committing = scope.spawn(move || disk.commit_sums(std::slice::from_ref(sums), &disk.lock_flusher()));
        let mut enter = || {
            let entry = guard(&disk.core).take_news();
            let has_sums = entry.records.contains(sums);
            let written = disk.write_entry(&mut journal, &entry, false, Share::Applying);
            (has_sums, guard(&disk.core).entered(entry, written).expect("no write fails"))
        };
        while enter() != (true, true) {
            std::thread::yield_now();
        }
        // In a free sector.
        let other = Record::Sums { place: 60_000, bytes: vec![7; SECTOR_BYTES] };
        loop {
            (0..40).for_each(|_| guard(&disk.core).record(other.clone()));
            if !enter().1 {
                break;
            }
        }
        drop(journal);
        committing.join().expect("it ends").expect("it finds room");
    });
    let shape = disk.shape;
    drop(disk);
    opened(device.clone());
    let mut found = vec![0; SECTOR_BYTES];
    device.read(run.sums(0, shape), &mut found, Effort::Retry).expect("it reads");
    assert!(found == [0x5a; SECTOR_BYTES], "what a crash may have torn is written again");
}

/// A hole is made up to the end of a file, in a part of its only group; meanwhile somebody writes on behind that end, for which no gate is held.
#[test]
#[expect(clippy::disallowed_methods, reason = "several threads at once are what is tested")]
fn a_hole_up_to_the_end_leaves_what_was_written_behind_it() {
    let device = Arc::new(Stopping { memory: MemoryDevice::new(1 << 16), stops: Mutex::default() });
    let disk = formatted_with(&(device.clone() as Arc<dyn Device>), 20, 2);
    let inode = file(&disk, b"f");
    let end = 10 * SECTOR_BYTES + 2000;
    disk.write(inode, 0, &vec![1; end]).expect("written");
    disk.sync_all().expect("synced");
    let (border_is_read, go_on) = device.at_next(Call::Read, LONG);
    let offset = 5 * SECTOR_BYTES + 100;
    std::thread::scope(|scope| {
        let disk = &disk;
        scope.spawn(move || {
            border_is_read.recv_timeout(LONG).expect("the hole is being made");
            write(disk, inode, 10, 9);
            disk.sync(inode).expect("synced");
            go_on.send(()).expect("the hole waits");
        });
        disk.punch(inode, offset as u64, (end - offset) as u64).expect("punched");
    });
    let needs = guard(&disk.core).nodes.find_waiting(inode, 10).expect("it waits").needs();
    assert!(needs.is_some(), "the journal keeps what was synced");
    let mut expected = vec![0; 11 * SECTOR_BYTES];
    expected[..offset].fill(1);
    expected[end..].fill(9);
    let assert_reads = |disk: &Disk| {
        let mut content = vec![7; expected.len()];
        assert_eq!(disk.read(inode, 0, &mut content), Ok(expected.len()));
        assert!(content == expected);
    };
    assert_reads(&disk);
    disk.sync(inode).expect("synced");
    drop(disk);
    assert_reads(&opened(device));
}

/// What is changed of a file while its bytes wait: a crash leaves it as long as it has bytes.
#[test]
fn no_change_of_a_file_brings_its_size_before_its_bytes() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 16));
    let disk = formatted(&device);
    let inode = file(&disk, b"f");
    write(&disk, inode, 0, 1);
    disk.sync_all().expect("synced");
    write(&disk, inode, 1, 2);
    let mode = NewAttributes { permissions: Some(0o640), ..NewAttributes::default() };
    disk.set_attributes(inode, &mode).expect("changed");
    disk.punch(inode, 100, 100).expect("punched");
    let modified = Timestamp { seconds: 77, nanoseconds: 7 };
    let times = NewAttributes { modified: Some(Setting::At(modified)), ..NewAttributes::default() };
    disk.set_attributes(inode, &times).expect("set");
    let found = |disk: &Disk| {
        let found = disk.attributes(inode).expect("there");
        (found.bytes, found.permissions, found.modified)
    };
    let bytes = SECTOR_BYTES as u64;
    assert_eq!(found(&disk), (2 * bytes, 0o640, modified));
    disk.commit().expect("what is known is durable");
    assert_eq!(found(&opened(image(&device))), (bytes, 0o640, modified));
    disk.sync(inode).expect("synced");
    assert_eq!(found(&disk), (2 * bytes, 0o640, modified));
    assert_eq!(found(&opened(image(&device))), (2 * bytes, 0o640, modified));
}

/// Takes what is new as an entry, and lets `meanwhile` happen before it is in the journal.
fn enter(disk: &Disk, meanwhile: impl FnOnce()) {
    let entry = guard(&disk.core).take_news();
    meanwhile();
    let mut journal = guard(&disk.journal);
    let at = journal.next();
    journal.append(&entry.records).expect("there is room");
    guard(&disk.core).entered(entry, Ok(Some(at))).expect("it is durable");
}

fn oldest(disk: &Disk) -> Option<u64> {
    guard(&disk.core).nodes.oldest_journaled().map(|at| at.sequence)
}

/// What was synced stays in the journal until something newer is durable, however often it was written since, and wherever an
/// entry was then.
#[test]
fn older_bytes_stay_in_the_journal_until_newer_ones_are_durable() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 16));
    let disk = formatted(&device);
    let inode = file(&disk, b"f");
    let queue = || guard(&disk.core).journal_waiting(inode, [5]);
    write(&disk, inode, 5, 1);
    disk.sync(inode).expect("synced");
    let first = oldest(&disk).expect("it is in the journal");
    write(&disk, inode, 5, 2);
    write(&disk, inode, 5, 3);
    assert_eq!(oldest(&disk), Some(first), "the third hides two");
    queue();
    enter(&disk, || {
        assert_eq!(oldest(&disk), Some(first), "the third is on its way");
        write(&disk, inode, 5, 4);
        assert_eq!(oldest(&disk), Some(first), "and the fourth hides all");
    });
    let third = oldest(&disk).expect("the third is in the journal");
    assert!(third > first, "and suffices");
    // The ring is compacted: it is written again, and there is no room for that.
    assert!(guard(&disk.core).journal_again(u64::MAX, 10));
    assert_eq!(oldest(&disk), Some(third), "it is queued");
    let entry = guard(&disk.core).take_news();
    assert_eq!(guard(&disk.core).entered(entry, Ok(None)), Ok(false));
    assert_eq!(oldest(&disk), Some(third), "it found no room");
    write(&disk, inode, 5, 5);
    assert_eq!(oldest(&disk), Some(third), "and was written again");
    enter(&disk, || ());
    assert!(oldest(&disk) > Some(third), "the fifth is durable");
    write(&disk, inode, 5, 6);
    disk.checkpoint(&disk.lock_flusher()).expect("made");
    drop(disk);
    assert_eq!(fill(&opened(device), inode, 5), 5, "as if killed");
}

/// What is forgotten and what is written again are in one entry, in this order.
#[test]
fn what_was_cut_off_and_written_again_is_there_after_a_kill() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 16));
    let disk = formatted(&device);
    let inode = file(&disk, b"f");
    write(&disk, inode, 5, 1);
    disk.sync(inode).expect("synced");
    disk.set_attributes(inode, &NewAttributes { bytes: Some(0), ..NewAttributes::default() }).expect("cut");
    write(&disk, inode, 5, 2);
    disk.sync(inode).expect("synced");
    assert!(oldest(&disk).is_some(), "it is in the journal");
    drop(disk);
    assert_eq!(fill(&opened(device), inode, 5), 2);
}

/// Each leaves a sector with zeros behind the new end, to go along with the next entry.
#[test]
fn any_number_of_files_can_be_cut_before_an_entry_is_written() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
    let disk = formatted(&device);
    let files: Vec<Inode> = (0..200).map(|number| file(&disk, format!("f{number}").as_bytes())).collect();
    files.iter().for_each(|inode| (0..3).for_each(|sector| write(&disk, *inode, sector, 7)));
    disk.sync_all().expect("synced");
    let bytes = 3 * SECTOR_BYTES as u64 / 2;
    let cut = NewAttributes { bytes: Some(bytes), ..NewAttributes::default() };
    for &inode in &files {
        disk.set_attributes(inode, &cut).expect("cut");
    }
    disk.commit().expect("durable");
    drop(disk);
    let disk = opened(device);
    let whole = NewAttributes { bytes: Some(2 * bytes), ..NewAttributes::default() };
    let expected = [vec![7; bytes as usize], vec![0; bytes as usize]].concat();
    for inode in files {
        disk.set_attributes(inode, &whole).expect("grown");
        let mut content = vec![1; 2 * bytes as usize];
        assert_eq!(disk.read(inode, 0, &mut content), Ok(content.len()));
        assert!(content == expected);
    }
}

#[test]
fn a_hole_within_a_long_group_does_not_fill_the_journal() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
    let disk = formatted_with(&device, 250, 5);
    let inode = file(&disk, b"f");
    (0..240).for_each(|sector| write(&disk, inode, sector, 7));
    disk.sync_all().expect("synced");
    disk.punch(inode, 10 * SECTOR_BYTES as u64, 220 * SECTOR_BYTES as u64).expect("punched");
    assert!(guard(&disk.core).queued() <= disk.journal_share);
    disk.sync(inode).expect("synced");
    drop(disk);
    let disk = opened(device);
    let fills: Vec<u8> = (0..240).map(|sector| fill(&disk, inode, sector)).collect();
    assert_eq!(fills, [vec![7; 10], vec![0; 220], vec![7; 10]].concat());
}

const FILE_SECTORS: u64 = 3000;

/// A disk with two files in groups; of the first all is lost, with its sums sectors.
fn one_lost() -> (SimDevice, Disk, Inode, Inode) {
    let hand = SimDevice::alone("d", HddModel::new(1 << 14), 1);
    let disk = formatted(&hand.attach());
    let (lost, other) = (file(&disk, b"lost"), file(&disk, b"other"));
    for inode in [lost, other] {
        disk.write(inode, 0, &vec![1; FILE_SECTORS as usize * SECTOR_BYTES]).expect("written");
    }
    disk.sync_all().expect("synced");
    for window in guard(&disk.core).windows(lost, 0..FILE_SECTORS, 10).expect("it reads") {
        let Run::Bulk { run } = window.run else { continue };
        let sectors = BulkRun::sectors_total(run.groups(disk.shape), disk.shape);
        hand.make_lost(run.first.0..run.first.0 + sectors);
    }
    (hand, disk, lost, other)
}

/// The same without room elsewhere, nor sums in memory: what is written to the lost file cannot be applied, and stays in the journal.
fn half_lost() -> (SimDevice, Disk, Inode, Inode) {
    let (hand, disk, stuck, other) = one_lost();
    disk.close().expect("closed");
    let disk = opened(hand.attach());
    let filler = file(&disk, b"filler");
    for bytes in [1 << 24, 1 << 20, 1 << 16, SECTOR_BYTES as u64] {
        while disk.allocate(filler, disk.attributes(filler).expect("there").bytes, bytes, false).is_ok() {}
    }
    (hand, disk, stuck, other)
}

/// Writes and syncs a sector of each group until the journal takes no more; returns how many.
fn fill_journal(disk: &Disk, stuck: Inode) -> u64 {
    let mut groups = (0..FILE_SECTORS).step_by(10);
    groups
        .position(|sector| {
            write(disk, stuck, sector, 2);
            disk.sync(stuck).is_err()
        })
        .expect("the journal takes only so much") as u64
}

#[test]
fn what_waits_for_lost_groups_goes_around_the_journal_with_the_others() {
    let (hand, disk, stuck, other) = half_lost();
    let kept = fill_journal(&disk, stuck);
    assert!(guard(&disk.core).failed.is_none());
    for fill in 2..6 {
        // Several times the ring.
        (0..FILE_SECTORS).step_by(3).for_each(|sector| write(&disk, other, sector, fill));
        disk.flush(other, &disk.lock_flusher()).expect("flushed");
        disk.commit().expect("durable");
    }
    drop(disk);
    let disk = opened(hand.attach());
    (0..kept).for_each(|number| assert_eq!(fill(&disk, stuck, number * 10), 2, "group {number}"));
    (0..FILE_SECTORS).step_by(3).for_each(|sector| assert_eq!(fill(&disk, other, sector), 5));
}

#[test]
fn what_waits_keeps_at_most_half_of_the_journal_and_is_written_again_where_little_is_free() {
    let (_hand, disk, stuck, _) = half_lost();
    let kept = fill_journal(&disk, stuck);
    let flushing = disk.lock_flusher();
    disk.checkpoint(&flushing).expect("made");
    let ring = guard(&disk.journal).sectors();
    let used = guard(&disk.journal).used();
    assert!(kept > ring / 8 && used <= ring / 2, "{kept} sectors: {used} of {ring}");
    fill_to(&disk, ring - ring / 8);
    disk.make_room(&flushing).expect("made");
    let used = guard(&disk.journal).used();
    assert!(used <= ring / 2, "{used} of {ring}");
}

/// A sector that must stay stops nobody: it is carried along, and others' fsyncs go into the journal as before.
#[test]
fn an_fsync_goes_into_the_journal_while_a_sector_is_stuck_there() {
    let (_hand, disk, stuck, other) = half_lost();
    write(&disk, stuck, 0, 2);
    disk.sync(stuck).expect("synced");
    let ring = guard(&disk.journal).sectors();
    for number in 0..2 * ring {
        write(&disk, other, number * 10, 2);
        disk.sync(other).expect("synced");
        assert_eq!(disk.admit(), Ok(true), "after {number} of {ring}");
    }
}

#[test]
fn who_finds_no_room_in_half_of_the_journal_gets_of_the_other_half() {
    let (_hand, disk, stuck, other) = half_lost();
    let ring = guard(&disk.journal).sectors();
    let used = || guard(&disk.journal).used();
    let mut stays = (0..FILE_SECTORS).step_by(10).map(|sector| {
        write(&disk, stuck, sector, 2);
        guard(&disk.core).journal_waiting(stuck, [sector]);
        disk.try_commit(Share::Applying).expect("it does not fail")
    });
    // Written again side by side it takes less.
    while used() <= ring * 5 / 8 {
        while used() <= ring * 3 / 4 {
            assert_eq!(stays.next(), Some(true));
        }
        for _ in 0..3 {
            disk.relieve(&disk.lock_flusher()).expect("it stays");
        }
    }
    write(&disk, other, 0, 2);
    disk.set_attribute(other, b"n", &[7], None).expect("room");
    guard(&disk.core).journal_waiting(other, [0]);
    assert_eq!(disk.commit(), Ok(()));
    assert_eq!(guard(&disk.core).queued(), 0);
    assert!(used() > ring / 2 && guard(&disk.core).failed.is_none());
}

#[test]
fn more_than_the_journal_takes_at_once_goes_to_groups() {
    let (_hand, disk, _, other) = half_lost();
    let ring = guard(&disk.journal).sectors();
    for count in (1..2 * ring).step_by(5) {
        (0..count).for_each(|number| write(&disk, other, number * 10, 2));
        disk.sync(other).expect("synced");
    }
}

/// What finds neither a place nor room in the journal waits on, and its size with it: a crash leaves no zeros behind what was there.
#[test]
fn a_size_waits_with_the_sectors_that_it_counts() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 13));
    let disk = formatted(&device);
    let (placeless, other) = (file(&disk, b"placeless"), file(&disk, b"other"));
    // Where the journal takes sectors that wait, and what comes with them fills half of it.
    let (half, used) = (guard(&disk.journal).sectors() / 2, || guard(&disk.journal).used());
    while used() < half * 11 / 16 {
        disk.set_attribute(other, b"n", &[7], None).expect("room");
        disk.sync(other).expect("synced");
    }
    let long = vec![7; 60_000];
    disk.set_attribute(other, b"a", &long, None).expect("room");
    (0..2).for_each(|sector| write(&disk, placeless, sector, 1));
    {
        let mut space = guard(&disk.space);
        while let largest @ 1.. = space.largest() {
            space.reserve(largest, None).expect("it is free");
        }
    }
    assert_eq!(disk.sync_all(), Err(FileError::Placeless { sectors: 2 }));
    assert_eq!(disk.attributes(placeless).expect("it is there").bytes, 2 * SECTOR_BYTES as u64);
    drop(disk);
    let disk = opened(device);
    assert_eq!(disk.attributes(placeless).expect("it is there").bytes, 0);
    assert_eq!(disk.attribute(other, b"a"), Ok(long));
}

/// Fills so much of the journal with entries that say nothing.
fn fill_to(disk: &Disk, sectors: u64) {
    let mut journal = guard(&disk.journal);
    let nothing = [Record::Forget { inode: Inode(77), first: 0, end: 1 }];
    while journal.used() < sectors.min(journal.sectors()) {
        journal.append(&nothing).expect("there is room");
    }
}

/// What a kill would leave of a device.
fn image(device: &Arc<dyn Device>) -> Arc<dyn Device> {
    let sectors = device.geometry().sectors;
    let (mut all, image) = (vec![0; SECTOR_BYTES * sectors as usize], MemoryDevice::new(sectors));
    device.read(Sector(0), &mut all, Effort::Retry).expect("memory");
    image.write(Sector(0), &all).expect("memory");
    Arc::new(image)
}

/// Where the journal has no room for the zeros behind a new end, a checkpoint does not bring the end without them.
#[test]
fn a_file_that_was_cut_ends_where_its_zeros_are_durable() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
    let disk = formatted(&device);
    let (inode, end) = (file(&disk, b"f"), SECTOR_BYTES as u64 + 100);
    (0..4).for_each(|sector| write(&disk, inode, sector, 7));
    disk.sync_all().expect("synced");
    let flushing = disk.lock_flusher();
    disk.checkpoint(&flushing).expect("made");
    fill_to(&disk, u64::MAX);
    drop(flushing);
    let cut = |bytes| NewAttributes { bytes: Some(bytes), ..NewAttributes::default() };
    disk.set_attributes(inode, &cut(end)).expect("cut");
    // What else is changed brings it no sooner.
    disk.set_attributes(inode, &NewAttributes { permissions: Some(0o640), ..NewAttributes::default() })
        .expect("changed");
    assert_eq!(disk.attributes(inode).expect("it is there").bytes, end);
    disk.checkpoint(&disk.lock_flusher()).expect("made");
    assert_eq!(disk.attributes(inode).expect("it is there").bytes, end);
    let found = |disk: &Disk| {
        disk.set_attributes(inode, &cut(4 * SECTOR_BYTES as u64)).expect("grown");
        let mut content = vec![1; 4 * SECTOR_BYTES];
        assert_eq!(disk.read(inode, 0, &mut content), Ok(content.len()));
        content.iter().position(|byte| *byte == 0).map(|end| (end, content[end..].iter().all(|byte| *byte == 0)))
    };
    assert_eq!(guard(&disk.core).queued(), 1, "the zeros wait");
    let crashed = opened(image(&device));
    assert_eq!(crashed.attributes(inode).expect("it is there").bytes, 2 * SECTOR_BYTES as u64, "cut in part");
    assert_eq!(found(&crashed), Some((2 * SECTOR_BYTES, true)));
    disk.sync(inode).expect("synced");
    drop(disk);
    let disk = opened(device);
    assert_eq!(disk.attributes(inode).expect("it is there").bytes, end);
    assert_eq!(found(&disk), Some((end as usize, true)));
}

/// Fills the catalog until a checkpoint finds no room. What it returns makes rows of a file that are more, and an entry of them.
fn fill_catalog<'a>(
    disk: &'a Disk,
    inode: Inode,
    flushing: &'a FlushLock<'a>,
) -> impl FnMut() -> Result<(), FileError> + 'a {
    {
        let (mut changes, mut core) = (Vec::new(), guard(&disk.core));
        let mut space = guard(&disk.space);
        while let largest @ 1.. = space.largest() {
            let range = space.reserve(largest, None).expect("it is free");
            space.take(range, &mut changes);
        }
        core.apply(changes);
    }
    disk.checkpoint(flushing).expect("made");
    let row = move |number: u64| {
        let key = [&inode.0.to_be_bytes()[..], &number.to_be_bytes()].concat();
        Change { table: Table::Attributes, key, value: Some(vec![7; 60_000]) }
    };
    let mut numbers = 0..;
    let mut grow = move || {
        guard(&disk.core).apply(numbers.by_ref().take(1).map(row).collect());
        disk.commit_flushing(flushing)
    };
    while disk.checkpoint(flushing).is_ok() {
        grow().expect("durable");
    }
    grow
}

/// On a disk whose catalog cannot grow by a page, as where all free sectors lie in crumbs, nothing fails but what needs room, and what the journal
/// has of it is there however full that is.
#[test]
fn a_disk_whose_catalog_has_no_room_opens_and_is_read() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
    let disk = formatted(&device);
    let inode = file(&disk, b"f");
    (0..10).for_each(|sector| write(&disk, inode, sector, 1));
    disk.sync_all().expect("synced");
    let flushing = disk.lock_flusher();
    let mut grow = fill_catalog(&disk, inode, &flushing);
    write(&disk, inode, 3, 9);
    guard(&disk.core).journal_waiting(inode, [3]);
    let refused = (0..1000).find_map(|_| grow().err());
    assert_eq!(refused, Some(FileError::NoSpace));
    assert!(guard(&disk.core).failed.is_none());
    drop(grow);
    drop(flushing);
    assert_eq!(disk.flush(inode, &disk.lock_flusher()), Err(FileError::NoSpace));
    drop(disk);
    for _ in 0..2 {
        let disk = opened(device.clone());
        assert_eq!(disk.checkpoint(&disk.lock_flusher()), Err(FileError::NoSpace));
        for (sector, expected) in (0..).zip([1, 1, 1, 9, 1, 1, 1, 1, 1, 1]) {
            assert_eq!(fill(&disk, inode, sector), expected);
        }
    }
    // What deletes it finds room.
    let disk = opened(device.clone());
    disk.unlink(Inode::ROOT, b"f").expect("in memory");
    disk.sync_all().expect("durable");
    drop(disk);
    let disk = opened(device);
    assert_eq!(disk.lookup(Inode::ROOT, b"f").map(|found| found.inode), Err(FileError::NotFound));
    assert_eq!(disk.checkpoint(&disk.lock_flusher()), Ok(()));
}

/// What was prepared to be applied, and found no room in the journal, is as if it had not been: its sums go into no later entry, and its groups
/// are mended.
#[test]
fn an_update_without_room_in_the_journal_leaves_nothing() {
    for long in [true, false] {
        let (hand, disk, _, other) = one_lost();
        let short = file(&disk, b"short");
        for sectors in [0..2, 2..4] {
            sectors.for_each(|sector| write(&disk, short, sector, 1));
            disk.sync_all().expect("synced");
        }
        let (inode, sector) = if long { (other, 5) } else { (short, 4) };
        let flushing = disk.lock_flusher();
        let mut grow = fill_catalog(&disk, inode, &flushing);
        assert_eq!((0..1000).find_map(|_| grow().err()), Some(FileError::NoSpace));
        let (windows, content) = {
            let mut core = guard(&disk.core);
            core.nodes.put(inode, sector, vec![9; SECTOR_BYTES]);
            let node = core.nodes.find(inode).expect("it waits");
            let content: Vec<_> = node.waiting.iter().map(|(sector, waiting)| (*sector, waiting.clone())).collect();
            (core.windows(inode, 0..1, 10).expect("it reads"), content)
        };
        let applied = match long {
            true => disk.apply_bulk(inode, &windows[0], &content, UpdateChoice::Cheapest, &flushing),
            false => disk.apply_single(inode, windows[0].clone(), &content, UpdateChoice::Cheapest, &flushing),
        };
        assert_eq!(applied, Err(FileError::NoSpace));
        let mut core = guard(&disk.core);
        assert_eq!(core.windows(inode, 0..1, 10).expect("it reads"), windows);
        let entry = core.take_news();
        assert!(!entry.records.iter().any(|record| matches!(record, Record::Sums { .. })));
        assert_eq!(core.entered(entry, Ok(None)), Ok(false));
        drop((core, grow));
        drop(flushing);
        disk.groups.sync().expect("no fault is set");
        let first = match windows[0].run {
            Run::Bulk { run } => run.group(0, disk.shape).first,
            Run::Single { place, .. } => place.first,
            Run::Promised { .. } => panic!("it has data"),
        };
        hand.make_lost(first.0..first.0 + 1);
        let mended = || disk.groups.statistics().now().mended;
        let before = mended();
        assert_eq!(fill(&disk, inode, 0), 1);
        assert_eq!(mended() - before, 1, "long: {long}");
    }
}

/// What was to be applied and found no room in the journal goes along with no later entry, unless somebody was told that it does.
#[test]
fn an_entry_without_room_is_not_longer_the_next_time() {
    let (_hand, disk, _, inode) = one_lost();
    let flushing = disk.lock_flusher();
    let mut grow = fill_catalog(&disk, inode, &flushing);
    assert_eq!((0..1000).find_map(|_| grow().err()), Some(FileError::NoSpace));
    for (sector, promised) in [(5, false), (6, true)] {
        let window = {
            let mut core = guard(&disk.core);
            core.nodes.put(inode, sector, vec![9; SECTOR_BYTES]);
            if promised {
                core.nodes.promise(inode, &[sector]);
            }
            core.windows(inode, 0..1, 10).expect("it reads").swap_remove(0)
        };
        let applied = disk.apply(inode, &window, &[sector], UpdateChoice::Cheapest, &flushing);
        assert_eq!(applied, Err(FileError::NoSpace));
        assert_eq!(guard(&disk.core).queued(), usize::from(promised));
    }
}

/// Nothing of unknown result has happened.
#[test]
fn an_entry_that_the_journal_never_takes_fails_no_disk() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
    let disk = formatted(&device);
    let (inode, sectors) = (file(&disk, b"f"), 2 * guard(&disk.journal).sectors());
    (0..sectors).for_each(|sector| guard(&disk.core).nodes.put(inode, sector, vec![1; SECTOR_BYTES]));
    guard(&disk.core).journal_waiting(inode, 0..sectors);
    assert_eq!(disk.commit_flushing(&disk.lock_flusher()), Err(FileError::NoSpace));
    assert!(guard(&disk.core).failed.is_none());
}

/// A file of four sectors of sevens on a disk whose journal is full.
fn full_with_file(device: &Arc<dyn Device>) -> (Disk, Inode) {
    let disk = formatted(device);
    let inode = file(&disk, b"f");
    (0..4).for_each(|sector| write(&disk, inode, sector, 7));
    disk.sync_all().expect("synced");
    disk.checkpoint(&disk.lock_flusher()).expect("made");
    fill_to(&disk, u64::MAX);
    (disk, inode)
}

fn size(bytes: u64) -> NewAttributes {
    NewAttributes { bytes: Some(bytes), ..NewAttributes::default() }
}

const CUT: u64 = SECTOR_BYTES as u64 + 100;

/// Whatever brings a size to the catalog that counts the sector in which a file was cut: its zeros are there too.
#[test]
fn nothing_counts_the_sector_of_a_cut_before_its_zeros_are_durable() {
    let flush = |disk: &Disk, inode| disk.flush(inode, &disk.lock_flusher()).expect("flushed");
    let change = |disk: &Disk, inode| {
        let permissions = NewAttributes { permissions: Some(0o640), ..NewAttributes::default() };
        disk.set_attributes(inode, &permissions).map(drop).expect("changed");
    };
    let punch = |disk: &Disk, inode| disk.punch(inode, 6 * SECTOR_BYTES as u64, 100).expect("punched");
    let grow =
        |disk: &Disk, inode| disk.set_attributes(inode, &size(9 * SECTOR_BYTES as u64)).map(drop).expect("grown");
    let cut = |disk: &Disk, inode| {
        disk.set_attributes(inode, &size(5 * SECTOR_BYTES as u64 + 5)).map(drop).expect("cut again");
    };
    let acts: [fn(&Disk, Inode); 5] = [flush, change, punch, grow, cut];
    for (number, act) in acts.into_iter().enumerate() {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
        let (disk, inode) = full_with_file(&device);
        disk.set_attributes(inode, &size(CUT)).expect("cut");
        write(&disk, inode, 6, 9);
        act(&disk, inode);
        fill_to(&disk, u64::MAX);
        disk.checkpoint(&disk.lock_flusher()).expect("made");
        for at_once in [true, false] {
            if !at_once {
                disk.sync(inode).expect("synced");
            }
            let (here, crashed) = (disk.attributes(inode).expect("there").bytes, opened(image(&device)));
            let bytes = crashed.attributes(inode).expect("there").bytes;
            assert!(at_once || bytes == here, "act {number}: {bytes} of {here}");
            let mut content = vec![0; bytes as usize];
            assert_eq!(crashed.read(inode, 0, &mut content), Ok(bytes as usize));
            let sevens = content.iter().position(|byte| *byte != 7).unwrap_or(content.len()) as u64;
            let is_cut = sevens == CUT && content[sevens as usize..].iter().all(|byte| [0, 9].contains(byte));
            let is_cut_in_part = sevens == bytes && bytes == 2 * SECTOR_BYTES as u64;
            assert!(is_cut || at_once && is_cut_in_part, "act {number}: {sevens} of {bytes} bytes");
        }
    }
}

/// A size may be more than what waits makes: it is durable with the file all the same.
#[test]
fn a_size_that_waits_with_a_cut_is_durable_whole() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
    let (disk, inode) = full_with_file(&device);
    let bytes = 7 * SECTOR_BYTES as u64;
    disk.set_attributes(inode, &size(CUT)).expect("cut");
    write(&disk, inode, 6, 9);
    disk.punch(inode, 3 * SECTOR_BYTES as u64, bytes).expect("punched");
    disk.sync(inode).expect("synced");
    assert_eq!(opened(image(&device)).attributes(inode).expect("there").bytes, bytes);
    // Nor does a hole over the sector of the cut take it away.
    disk.set_attributes(inode, &size(CUT)).expect("cut");
    write(&disk, inode, 6, 9);
    disk.set_attributes(inode, &NewAttributes { owner: Some(7), ..NewAttributes::default() }).expect("changed");
    disk.punch(inode, 0, bytes - 1).expect("punched");
    assert_eq!(disk.attributes(inode).expect("there").bytes, bytes);
    disk.sync(inode).expect("synced");
    assert_eq!(opened(image(&device)).attributes(inode).expect("there").bytes, bytes);
}

#[test]
fn times_that_are_set_while_a_size_waits_stay() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
    let (disk, inode) = full_with_file(&device);
    disk.set_attributes(inode, &size(CUT)).expect("cut");
    let modified = Timestamp { seconds: 77, nanoseconds: 7 };
    let times = NewAttributes { modified: Some(Setting::At(modified)), ..NewAttributes::default() };
    disk.set_attributes(inode, &times).expect("set");
    assert_eq!(disk.attributes(inode).expect("there").modified, modified);
    disk.sync(inode).expect("synced");
    assert_eq!(disk.attributes(inode).expect("there").modified, modified);
    drop(disk);
    let found = opened(device).attributes(inode).expect("there");
    assert_eq!((found.modified, found.bytes), (modified, CUT));
}

/// A clock that stands still.
struct Still;

impl Clock for Still {
    fn now(&self) -> Moment {
        Moment(Duration::ZERO)
    }

    fn wall(&self) -> WallTime {
        WallTime { unix_ms: 1_000_000_000_000 }
    }

    fn sleep(&self, _delay: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::ready(()))
    }
}

/// A disk on which all happens in one moment, so that no time tells what was changed since.
fn still(device: &Arc<dyn Device>) -> Disk {
    format(device, 10, 2);
    Disk::open(device.clone(), Arc::new(Still), Tuning::default()).expect("opens")
}

#[test]
fn a_change_to_what_was_there_while_an_entry_is_on_its_way_takes_nothing_of_it() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
    let disk = still(&device);
    let inode = file(&disk, b"f");
    write(&disk, inode, 0, 7);
    disk.sync_all().expect("synced");
    write(&disk, inode, 1, 7);
    guard(&disk.core).journal_waiting(inode, [1]);
    // It has one name before and behind, and its times are those of this moment.
    enter(&disk, || {
        disk.link(inode, Inode::ROOT, b"g").expect("named");
        disk.unlink(Inode::ROOT, b"g").expect("one name is left");
    });
    disk.commit().expect("durable");
    let crashed = opened(image(&device));
    assert_eq!(crashed.attributes(inode).expect("there").bytes, 2 * SECTOR_BYTES as u64);
    assert_eq!(fill(&crashed, inode, 1), 7);
}

/// An entry has a sector, and the size by it, as they were before the file was cut there.
#[test]
fn a_cut_while_an_entry_is_on_its_way_waits_for_the_next() {
    let one = SECTOR_BYTES as u64;
    for (cut, synced) in [(CUT, false), (CUT, true), (one, false), (one, true)] {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
        let disk = still(&device);
        let inode = file(&disk, b"f");
        write(&disk, inode, 0, 7);
        disk.sync_all().expect("synced");
        disk.write(inode, one, &[7; 3000]).expect("written");
        guard(&disk.core).journal_waiting(inode, [1]);
        enter(&disk, || {
            disk.set_attributes(inode, &size(cut)).expect("cut");
        });
        assert_eq!(disk.attributes(inode).expect("there").bytes, cut);
        if synced {
            disk.sync(inode).expect("synced");
        } else {
            // A checkpoint for which no entry finds room.
            assert_eq!(disk.checkpoint_whole(), Ok(true));
        }
        let crashed = opened(image(&device));
        let bytes = crashed.attributes(inode).expect("there").bytes;
        assert!(bytes == cut || !synced && bytes == one + 3000, "{bytes} of {cut}");
        crashed.set_attributes(inode, &size(8000)).expect("grown");
        let mut content = vec![1; 8000];
        assert_eq!(crashed.read(inode, 0, &mut content), Ok(8000));
        let sevens = content.iter().position(|byte| *byte == 0).expect("zeros") as u64;
        assert!(sevens == bytes && content[bytes as usize..].iter().all(|byte| *byte == 0), "{sevens} of {bytes}");
    }
}

/// One of a pair of drives may lose sectors.
struct Losing {
    memory: MemoryDevice,
    lost: AtomicU64,
}

impl Device for Losing {
    fn label(&self) -> String {
        self.memory.label()
    }

    fn pair(&self) -> Option<PairHealth> {
        Some(PairHealth { lost_sectors: self.lost.load(Ordering::Relaxed), ..PairHealth::default() })
    }

    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        self.memory.read(first, into, effort)
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        self.memory.write(first, bytes)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.memory.sync()
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.memory.discard(range)
    }
}

/// What was lost is written again as soon as the catalog has room for what the journal had.
#[test]
fn what_finds_no_room_when_something_was_lost_is_written_again_later() {
    let device = Arc::new(Losing { memory: MemoryDevice::new(1 << 14), lost: AtomicU64::new(0) });
    let disk = formatted(&(device.clone() as Arc<dyn Device>));
    let inode = file(&disk, b"f");
    drop(fill_catalog(&disk, inode, &disk.lock_flusher()));
    device.lost.store(1, Ordering::Relaxed);
    let is_due = || Loss::of(&*device).exceeds(guard(&disk.flusher).loss);
    disk.tend().expect("the disk is as it was");
    assert!(is_due());
    disk.unlink(Inode::ROOT, b"f").expect("in memory");
    disk.sync_all().expect("durable");
    disk.tend().expect("tended");
    assert!(!is_due());
}

/// Between what an fsync sends along and its entry somebody makes a checkpoint: the catalog does not get the size before the journal has the bytes.
#[test]
fn a_checkpoint_beside_an_fsync_brings_no_size_without_its_bytes() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
    let disk = formatted(&device);
    let inode = file(&disk, b"f");
    write(&disk, inode, 0, 7);
    disk.sync_all().expect("synced");
    write(&disk, inode, 1, 7);
    let queued = disk.queue_for_sync(inode, true).expect("it takes writes").map(|sectors| sectors.len());
    assert_eq!(queued, Some(1));
    assert_eq!(disk.checkpoint_whole(), Ok(true));
    let crashed = opened(image(&device));
    assert_eq!(crashed.attributes(inode).expect("there").bytes, SECTOR_BYTES as u64);
    disk.commit().expect("durable");
    let crashed = opened(image(&device));
    assert_eq!(crashed.attributes(inode).expect("there").bytes, 2 * SECTOR_BYTES as u64);
    assert_eq!(fill(&crashed, inode, 1), 7);
}

/// A file ends behind the last sector that an fsync sends along, in a hole.
#[test]
fn an_fsync_brings_a_size_that_waits_with_no_sector() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
    let disk = formatted(&device);
    let (inode, other) = (file(&disk, b"f"), file(&disk, b"g"));
    for sector in [1, 9] {
        write(&disk, inode, sector, 7);
    }
    disk.punch(inode, 9 * SECTOR_BYTES as u64, SECTOR_BYTES as u64).expect("a hole");
    disk.sync(inode).expect("synced");
    // Of one that an entry has in part the size waits for the rest.
    for sector in [1, 9] {
        write(&disk, other, sector, 7);
    }
    guard(&disk.core).journal_waiting(other, [1]);
    disk.commit().expect("durable");
    let crashed = opened(image(&device));
    let bytes = |inode| crashed.attributes(inode).expect("there").bytes / SECTOR_BYTES as u64;
    assert_eq!((bytes(inode), bytes(other)), (10, 2));
    assert_eq!([0, 1, 9].map(|sector| fill(&crashed, inode, sector)), [0, 7, 0]);
}

/// Room is kept for a part of a file while somebody writes behind its end.
#[test]
fn room_that_is_kept_brings_no_size_of_what_waits() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 14));
    let disk = formatted(&device);
    let inode = file(&disk, b"f");
    write(&disk, inode, 0, 7);
    disk.sync_all().expect("synced");
    // What is behind it waits: whoever keeps room places what there was before.
    write(&disk, inode, 1, 7);
    disk.note_allocated(inode, Some(SECTOR_BYTES as u64)).expect("noted");
    disk.commit().expect("durable");
    let crashed = opened(image(&device));
    assert_eq!(crashed.attributes(inode).expect("there").bytes, SECTOR_BYTES as u64);
}
