//! Groups of which more is lost than parity replaces, a journal that holds few sectors, and programs that write and sync on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use claystone_env::{Device, DeviceError, Effort, FailedSector, Geometry, SECTOR_BYTES, Sector, SectorRange};
use claystone_group::BulkRun;
use claystone_host::HostRandom;
use claystone_sim::{HddModel, SimDevice};

use crate::disk::guard;
use crate::run::Run;
use crate::testing::{SteppingClock, new_node};
use crate::{Disk, FileError, FileTree, Format, Inode, Kind, Tuning};

const BYTES: u64 = SECTOR_BYTES as u64;
const DATA: u64 = 10;
const PARITY: u64 = 2;

/// Counts sectors that are read by retrying.
struct Counting {
    device: Arc<dyn Device>,
    retried: AtomicU64,
}

impl Device for Counting {
    fn label(&self) -> String {
        self.device.label()
    }

    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        if effort == Effort::Retry {
            self.retried.fetch_add((into.len() / SECTOR_BYTES) as u64, Ordering::Relaxed);
        }
        self.device.read(first, into, effort)
    }

    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        self.device.write(first, bytes)
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.device.sync()
    }

    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.device.discard(range)
    }
}

/// A disk, and what its files are to hold: sectors that are lost hold nothing.
struct Case {
    hand: SimDevice,
    device: Arc<Counting>,
    disk: Disk,
    files: BTreeMap<Inode, Vec<Option<u8>>>,
    random: u64,
}

impl Case {
    /// Files of so many sectors each, on a device of so many.
    fn new(sectors: u64, lengths: &[u64], seed: u64) -> Case {
        let hand = SimDevice::alone("d", HddModel::new(sectors), seed);
        let (clock, random) = (SteppingClock::default(), HostRandom::from_system().expect("the system's"));
        let (soft_failures, loss_target, label) = (1e-3, 1e-6, String::new());
        let format = Format { data: DATA as u16, parity: PARITY as u16, copies: 2, soft_failures, loss_target, label };
        Disk::format_with_journal(&hand.attach(), &format, 64, &clock, &random).expect("formatted");
        let (device, disk) = opened(&hand);
        let mut case = Case { hand, device, disk, files: BTreeMap::new(), random: seed };
        for (number, length) in lengths.iter().enumerate() {
            let name = number.to_string();
            let made = case.disk.make(Inode::ROOT, name.as_bytes(), &new_node(Kind::File, 0o600));
            let inode = made.expect("made").inode;
            case.files.insert(inode, vec![Some(1); *length as usize]);
            case.disk.write(inode, 0, &vec![1; *length as usize * SECTOR_BYTES]).expect("written");
        }
        case.disk.sync_all().expect("synced");
        case
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    /// The groups of a file: where each lies, how many data sectors it has, and which sector of the file is its first.
    fn groups(&self, inode: Inode) -> Vec<(u64, u64, u64)> {
        let windows = guard(&self.disk.core).windows(inode, 0..u64::MAX, DATA as u32).expect("they read");
        let groups = windows.into_iter().flat_map(|window| match window.run {
            Run::Single { place, .. } => vec![(place.first.0, u64::from(place.data), window.first)],
            Run::Bulk { run } => {
                let first = window.first - u64::from(window.skipped);
                let groups = 0..run.groups(self.disk.shape);
                let at = |group| (run.group(group, self.disk.shape).first.0, DATA, first + u64::from(group) * DATA);
                groups.map(at).collect()
            }
            Run::Promised { .. } => vec![],
        });
        groups.collect()
    }

    /// Loses these positions of every group of all files, as far as they are in use.
    fn lose(&mut self, positions: &[u64]) {
        for inode in self.files.keys().copied().collect::<Vec<_>>() {
            for (place, data, first) in self.groups(inode) {
                for position in positions.iter().copied().filter(|position| *position < data) {
                    self.lose_one(inode, place + position, first + position);
                }
            }
        }
    }

    fn lose_one(&mut self, inode: Inode, place: u64, sector: u64) {
        self.hand.make_lost(place..place + 1);
        self.files.get_mut(&inode).expect("it is there")[sector as usize] = None;
    }

    /// Writes a sector; what is to be of it now.
    fn write(&mut self, inode: Inode, sector: u64, fill: u8) {
        self.disk.write(inode, sector * BYTES, &[fill; SECTOR_BYTES]).expect("written");
        let content = self.files.get_mut(&inode).expect("it is there");
        content.resize(content.len().max(sector as usize + 1), Some(0));
        content[sector as usize] = Some(fill);
    }

    /// How many sectors of files are lost.
    fn lost(&self) -> u64 {
        self.files.values().flatten().filter(|fill| fill.is_none()).count() as u64
    }

    /// Lets files have all room that there is.
    fn fill_up(&self) {
        let filler = self.disk.make(Inode::ROOT, b"filler", &new_node(Kind::File, 0o600)).expect("made").inode;
        for bytes in [1 << 24, 1 << 20, 1 << 16, BYTES] {
            while self.disk.allocate(filler, self.disk.attributes(filler).expect("there").bytes, bytes, false).is_ok() {
            }
        }
    }

    /// Loses more of each group than it bears, now and then of its parity too; every third group loses nothing.
    fn lose_at_random(&mut self) {
        for inode in self.files.keys().copied().collect::<Vec<_>>() {
            for (place, data, first) in self.groups(inode) {
                let parity = self.below(PARITY + 1);
                let lost = PARITY - parity + 1 + self.below(3);
                if lost > data || self.below(3) == 0 {
                    continue;
                }
                let capacity = self.capacity(inode, first);
                self.hand.make_lost(place + capacity..place + capacity + parity);
                let mut left = lost;
                while left > 0 {
                    let position = self.below(data);
                    if self.files[&inode][(first + position) as usize].is_some() {
                        self.lose_one(inode, place + position, first + position);
                        left -= 1;
                    }
                }
            }
        }
    }

    /// The data sectors that the group of a sector has room for.
    fn capacity(&self, inode: Inode, sector: u64) -> u64 {
        let windows = guard(&self.disk.core).windows(inode, sector..sector + 1, DATA as u32).expect("they read");
        match windows[0].run {
            Run::Single { place, .. } => place.capacity.into(),
            Run::Bulk { .. } | Run::Promised { .. } => DATA,
        }
    }

    fn retried(&self) -> u64 {
        self.device.retried.load(Ordering::Relaxed)
    }

    /// Every byte that is not lost is right, and what is lost is an error.
    fn assert_reads(&self, when: &str) {
        for (inode, content) in &self.files {
            for (sector, fill) in (0..).zip(content) {
                let mut bytes = [0; SECTOR_BYTES];
                let read = self.disk.read(*inode, sector * BYTES, &mut bytes);
                match fill {
                    Some(fill) => {
                        assert_eq!(read, Ok(SECTOR_BYTES), "{when}: sector {sector} of {inode}");
                        assert!(bytes == [*fill; SECTOR_BYTES], "{when}: sector {sector} of {inode}: {}", bytes[0]);
                    }
                    None => {
                        assert_eq!(read, Err(FileError::Lost { inode: *inode, sectors: 1 }), "{when}: sector {sector}");
                    }
                }
            }
        }
        assert_eq!(self.disk.check().expect("the catalog reads").problems, [], "{when}");
    }

    /// The power is cut, and the disk opened again.
    fn crash(self) -> Case {
        self.hand.crash();
        self.opened_again()
    }

    fn close(self) -> Case {
        let Case { hand, device, disk, files, random } = self;
        disk.close().expect("closed");
        let (retried, (counting, disk)) = (device.retried.load(Ordering::Relaxed), opened(&hand));
        counting.retried.fetch_add(retried, Ordering::Relaxed);
        Case { hand, device: counting, disk, files, random }
    }

    fn opened_again(self) -> Case {
        let Case { hand, device, disk, files, random } = self;
        drop(disk);
        let (retried, (counting, disk)) = (device.retried.load(Ordering::Relaxed), opened(&hand));
        counting.retried.fetch_add(retried, Ordering::Relaxed);
        Case { hand, device: counting, disk, files, random }
    }
}

fn opened(hand: &SimDevice) -> (Arc<Counting>, Disk) {
    let device = Arc::new(Counting { device: hand.attach(), retried: AtomicU64::new(0) });
    let tuning = Tuning { apply_sectors_max: 16, bulk_sectors_max: 100, ..Tuning::default() };
    let disk = Disk::open(device.clone(), Arc::new(SteppingClock::default()), tuning).expect("opens");
    (device, disk)
}

/// 80 groups of a long file and 20 files of one group, each with three sectors lost, which is more than it can bear: half of what is
/// written then is lost.
#[test]
fn every_fsync_succeeds_beside_groups_that_are_lost() {
    let lengths: Vec<u64> = [800].into_iter().chain([8; 20]).collect();
    let mut case = Case::new(1 << 14, &lengths, 1);
    case.lose(&[1, 4, 6]);
    let before = case.retried();
    let (mut synced, mut failed) = (0, Vec::new());
    for round in 0..2 {
        for inode in case.files.keys().copied().collect::<Vec<_>>() {
            for first in (0..case.files[&inode].len() as u64).step_by(DATA as usize) {
                case.write(inode, first + 3 + round, 2 + round as u8);
                synced += 1;
                failed.extend(case.disk.sync(inode).err());
            }
        }
    }
    let (retried, lost) = (case.retried() - before, 3 * 100);
    assert_eq!((failed, synced), (vec![], 200));
    assert!((1..=lost).contains(&retried), "{retried} retries of {lost} lost sectors");
    case.assert_reads("written");
    case.disk.flush_all(&case.disk.lock_flusher()).expect("nothing is in its way");
    assert_eq!(guard(&case.disk.core).nodes.waiting, 0);
    let found = case.disk.scrub(&mut |_| true).expect("scrubbed");
    assert_eq!(found.lost.len(), case.lost() as usize);
    assert_eq!((found.groups_lost, found.groups_void), (100, 20), "what lies between lost ones cannot move");
    let case = case.crash();
    case.assert_reads("after a crash");
    case.close().assert_reads("closed and opened");
}

/// Writes here and there, with and without an fsync, and power that goes while what was synced is on its way to its place: on disks with room
/// and without.
#[test]
fn whatever_is_lost_what_is_synced_is_there() {
    let (mut void, mut moved) = (0, 0);
    for seed in 0..24 {
        let is_full = seed % 3 == 0;
        let mut case = Case::new(1 << 13, &[150, 8, 7, 3, 10, 9], seed);
        if is_full {
            case.fill_up();
        }
        case.lose_at_random();
        let lost = case.lost();
        case.assert_reads(&format!("seed {seed}"));
        let mut case = case.opened_again();
        for step in 0..60 {
            let when = format!("seed {seed} step {step}");
            let before = case.retried();
            let known = case.disk.groups.known_lost();
            let inodes: Vec<Inode> = case.files.keys().copied().collect();
            for _ in 0..=case.below(4) {
                let inode = inodes[case.below(inodes.len() as u64) as usize];
                let length = case.files[&inode].len() as u64;
                let (grows, row) = (!is_full && length < 20 && case.below(6) == 0, 1 + case.below(3));
                let first = if grows { length } else { case.below(length) };
                let end = if grows { first + row } else { length.min(first + row) };
                (first..end).for_each(|sector| case.write(inode, sector, 3 + step));
                if case.below(2) == 0 {
                    assert_eq!(case.disk.sync(inode), Ok(()), "{when}");
                }
            }
            match case.below(5) {
                0 => assert_eq!(case.disk.flush_all(&case.disk.lock_flusher()), Ok(()), "{when}"),
                1 => assert_eq!(case.disk.sync_all(), Ok(()), "{when}"),
                _ => {}
            }
            let retried = case.retried() - before;
            // What moves with a row may be read too, and then be lost.
            assert!(retried <= 2 * (case.disk.groups.known_lost().saturating_sub(known) + lost), "{when}: {retried}");
            if case.below(6) == 0 {
                inodes.iter().for_each(|inode| assert_eq!(case.disk.sync(*inode), Ok(()), "{when}"));
                let operations = case.below(12);
                case.hand.cut_power_after(operations);
                let _ = case.disk.flush_all(&case.disk.lock_flusher());
                let _ = case.disk.checkpoint(&case.disk.lock_flusher());
                case = case.crash();
                case.assert_reads(&when);
            }
        }
        case.assert_reads(&format!("seed {seed}"));
        let found = case.disk.scrub(&mut |_| true).expect("scrubbed");
        assert_eq!(found.lost.len() as u64, case.lost(), "seed {seed}");
        void += found.groups_void;
        moved += u64::from(found.groups_lost > found.groups_void);
        // All is written anew, and no group is lost any more.
        let mut case = case.close();
        for (inode, length) in
            case.files.iter().map(|(inode, content)| (*inode, content.len() as u64)).collect::<Vec<_>>()
        {
            (0..length).for_each(|sector| case.write(inode, sector, 99));
        }
        let case = case.close();
        case.assert_reads(&format!("seed {seed}"));
        let found = case.disk.scrub(&mut |_| true).expect("scrubbed");
        assert_eq!(found.lost, [], "seed {seed}");
        // Without room elsewhere, what no file has any more stays lost.
        assert!(is_full || (found.groups_lost, found.groups_void) == (0, 0), "seed {seed}: {found:?}");
    }
    assert!(void > 20 && moved > 10, "{void} void, {moved} moved");
}

/// Where sums sectors are lost as well and the disk is full, what is written to lost groups has no place but the journal. It takes only so
/// much of the smallest one, says so, and others go on.
#[test]
fn what_has_no_place_but_the_journal_leaves_some_of_it_to_others() {
    let case = Case::new(1 << 13, &[500, 30], 5);
    let inodes: Vec<Inode> = case.files.keys().copied().collect();
    for window in guard(&case.disk.core).windows(inodes[0], 0..500, DATA as u32).expect("they read") {
        let Run::Bulk { run } = window.run else { continue };
        case.hand
            .make_lost(run.first.0..run.first.0 + BulkRun::sectors_total(run.groups(case.disk.shape), case.disk.shape));
    }
    let mut case = case.close();
    case.fill_up();
    let (mut kept, mut refused) = (Vec::new(), 0);
    for sector in (0..500).step_by(3) {
        case.write(inodes[0], sector, 2);
        match case.disk.sync(inodes[0]) {
            Ok(()) => kept.push(sector),
            Err(error) => {
                assert!(matches!(error, FileError::Lost { .. } | FileError::NoSpace), "{error}");
                refused += 1;
            }
        }
        case.write(inodes[1], sector % 30, 2 + (sector % 100) as u8);
        assert_eq!(case.disk.sync(inodes[1]), Ok(()), "sector {sector}");
    }
    assert!(kept.len() > 2 && refused > 0, "{} kept, {refused} refused", kept.len());
    let case = case.crash();
    let read = |inode, sector: u64| {
        let mut bytes = [0; SECTOR_BYTES];
        case.disk.read(inode, sector * BYTES, &mut bytes).map(|_| bytes[0])
    };
    kept.iter().for_each(|sector| assert_eq!(read(inodes[0], *sector), Ok(2), "sector {sector}"));
    (0..30).for_each(|sector| assert_eq!(read(inodes[1], sector).ok(), case.files[&inodes[1]][sector as usize]));
}

/// An fsync comes when the sector is in the journal because a flush is at it; that then finds the group lost, and no place.
#[test]
fn what_an_fsync_finds_in_the_journal_stays_there() {
    for synced in [false, true] {
        let case = Case::new(1 << 13, &[100], 5);
        let inode = *case.files.keys().next().expect("there is one");
        let windows = guard(&case.disk.core).windows(inode, 0..100, DATA as u32).expect("they read");
        let Run::Bulk { run } = windows[0].run else { panic!("one bulk run: {windows:?}") };
        case.hand
            .make_lost(run.first.0..run.first.0 + BulkRun::sectors_total(run.groups(case.disk.shape), case.disk.shape));
        let mut case = case.close();
        case.fill_up();
        case.write(inode, 7, 9);
        let version = guard(&case.disk.core).nodes.find_waiting(inode, 7).expect("it waits").version;
        guard(&case.disk.core).journal_waiting(inode, [7]);
        case.disk.commit().expect("as a flush does");
        if synced {
            case.disk.sync(inode).expect("it is in the journal");
        }
        guard(&case.disk.core).nodes.need_no_entry(inode, 7, version);
        let flushed = case.disk.flush_all(&case.disk.lock_flusher());
        assert!(matches!(flushed, Err(FileError::Lost { .. })), "{flushed:?}");
        case.disk.checkpoint(&case.disk.lock_flusher()).expect("made");
        let case = case.crash();
        let mut bytes = [0; SECTOR_BYTES];
        let read = case.disk.read(inode, 7 * BYTES, &mut bytes).map(|_| bytes[0]);
        assert_eq!(read, if synced { Ok(9) } else { Err(FileError::Lost { inode, sectors: 1 }) });
    }
}

type Hook = Box<dyn FnOnce() + Send>;

/// Calls a hook before the first write whose first sector is all `fill`.
struct Hooked {
    device: Arc<dyn Device>,
    hook: Mutex<Option<(u8, Hook)>>,
}

impl Device for Hooked {
    fn label(&self) -> String {
        self.device.label()
    }
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }
    fn read(&self, first: Sector, into: &mut [u8], effort: Effort) -> Result<Vec<FailedSector>, DeviceError> {
        self.device.read(first, into, effort)
    }
    fn write(&self, first: Sector, bytes: &[u8]) -> Result<(), DeviceError> {
        let hook = {
            let mut hook = self.hook.lock().expect("whole");
            let is_it = hook.as_ref().is_some_and(|(fill, _)| bytes[..SECTOR_BYTES].iter().all(|byte| byte == fill));
            if is_it { hook.take() } else { None }
        };
        if let Some((_, hook)) = hook {
            hook();
        }
        self.device.write(first, bytes)
    }
    fn sync(&self) -> Result<(), DeviceError> {
        self.device.sync()
    }
    fn discard(&self, range: SectorRange) -> Result<(), DeviceError> {
        self.device.discard(range)
    }
}

/// While one sector of a flush moves, another one is written again: its older bytes are promised with it.
fn rewritten_while_others_move(by_fsync: bool) {
    let mut case = Case::new(1 << 14, &[300], 1);
    let inode = *case.files.keys().next().expect("one");
    case.lose(&[1, 4, 6]);
    let Case { hand, device, disk, .. } = case;
    drop((disk, device));
    let device = Arc::new(Hooked { device: hand.attach(), hook: Mutex::new(None) });
    let tuning = Tuning { apply_sectors_max: 16, bulk_sectors_max: 100, ..Tuning::default() };
    let disk = Disk::open(device.clone(), Arc::new(SteppingClock::default()), tuning).expect("opens");
    let disk = Arc::new(disk);
    for group in 0..20 {
        disk.write(inode, (10 * group + 4) * BYTES, &[0x51 + group as u8; SECTOR_BYTES]).expect("written");
    }
    let other = disk.clone();
    let hook: Hook = Box::new(move || {
        other.write(inode, 14 * BYTES, &[0xaa; SECTOR_BYTES]).expect("written");
    });
    *device.hook.lock().expect("whole") = Some((0x51, hook));
    let synced = if by_fsync { disk.sync(inode) } else { disk.sync_all() };
    assert_eq!(synced, Ok(()));
    assert!(device.hook.lock().expect("whole").is_none(), "the hook was called");
    disk.checkpoint(&disk.lock_flusher()).expect("made");
    hand.crash();
    drop(disk);
    drop(device);
    let (_, disk) = opened(&hand);
    let mut bytes = [0; SECTOR_BYTES];
    let read = disk.read(inode, 14 * BYTES, &mut bytes).map(|_| bytes[0]);
    assert!(matches!(read, Ok(0x52 | 0xaa)), "fsync {by_fsync}: {read:?}");
}

#[test]
fn what_was_synced_stays_though_it_is_written_while_others_move() {
    rewritten_while_others_move(true);
    rewritten_while_others_move(false);
}

#[test]
fn a_promise_holds_for_what_is_written_before_the_entry_is_made() {
    let case = Case::new(1 << 13, &[100], 5);
    let inode = *case.files.keys().next().expect("there is one");
    let windows = guard(&case.disk.core).windows(inode, 0..100, DATA as u32).expect("they read");
    let Run::Bulk { run } = windows[0].run else { panic!("one bulk run: {windows:?}") };
    case.hand
        .make_lost(run.first.0..run.first.0 + BulkRun::sectors_total(run.groups(case.disk.shape), case.disk.shape));
    let mut case = case.close();
    case.fill_up();
    case.write(inode, 7, 8);
    // fsync, under the core's lock.
    {
        let mut core = guard(&case.disk.core);
        core.nodes.promise(inode, &[]);
        core.nodes.promise(inode, &[7]);
        core.journal_waiting(inode, [7]);
    }
    // Another writer, before the entry is made.
    case.write(inode, 7, 9);
    // A flush: `apply`, under the core's lock.
    let version = guard(&case.disk.core).nodes.find_waiting(inode, 7).expect("it waits").version;
    assert!(guard(&case.disk.core).nodes.find_waiting(inode, 7).expect("it waits").needs().is_none());
    // fsync: the entry. It tells success.
    case.disk.commit().expect("as fsync does");
    // The flush found the group lost.
    guard(&case.disk.core).nodes.need_no_entry(inode, 7, version);
    let flushed = case.disk.flush_all(&case.disk.lock_flusher());
    assert!(matches!(flushed, Err(FileError::Lost { .. })), "{flushed:?}");
    case.disk.checkpoint(&case.disk.lock_flusher()).expect("made");
    let case = case.crash();
    let mut bytes = [0; SECTOR_BYTES];
    let read = case.disk.read(inode, 7 * BYTES, &mut bytes).map(|_| bytes[0]);
    assert!(matches!(read, Ok(8 | 9)), "{read:?}");
}

/// What is moved takes others along, which were not counted as needing room.
fn full_of_what_waits(loses: bool) {
    let hand = SimDevice::alone("d", HddModel::new(1 << 13), 3);
    let (clock, random) = (SteppingClock::default(), HostRandom::from_system().expect("the system's"));
    let (soft_failures, loss_target, label) = (1e-3, 1e-6, String::new());
    let format = Format { data: 200, parity: 2, copies: 2, soft_failures, loss_target, label };
    Disk::format_with_journal(&hand.attach(), &format, 64, &clock, &random).expect("formatted");
    let open = || Disk::open(hand.attach(), Arc::new(SteppingClock::default()), Tuning::default()).expect("opens");
    let disk = open();
    let a = disk.make(Inode::ROOT, b"a", &new_node(Kind::File, 0o600)).expect("made").inode;
    let b = disk.make(Inode::ROOT, b"b", &new_node(Kind::File, 0o600)).expect("made").inode;
    disk.write(a, 0, &vec![1; 200 * SECTOR_BYTES]).expect("written");
    disk.sync_all().expect("synced");
    let windows = guard(&disk.core).windows(a, 0..u64::MAX, 200).expect("they read");
    let Run::Single { place, .. } = windows[0].run else { panic!("{windows:?}") };
    if loses {
        hand.make_lost(place.first.0 + 197..place.first.0 + 200);
    }
    disk.close().expect("closed");
    let disk = open();
    if loses {
        let mut bytes = [0; SECTOR_BYTES];
        disk.read(a, 198 * BYTES, &mut bytes).expect_err("lost");
    }
    // What is at home, and cannot be given parity: it is itself lost, beside another.
    disk.write(a, 190 * BYTES, &[2; SECTOR_BYTES]).expect("written");
    if loses {
        hand.make_lost(place.first.0 + 190..place.first.0 + 191);
    }
    let mut at = 0;
    while disk.is_sure_of(&guard(&disk.core), 1) {
        disk.write(b, at * BYTES, &[3; SECTOR_BYTES]).expect("there is room");
        at += 1;
    }
    assert!(guard(&disk.core).nodes.waiting > at);
    let synced = disk.sync_all();
    assert_eq!(synced, Ok(()), "what was taken has room");
}

#[test]
fn what_moves_takes_no_room_that_others_were_promised() {
    full_of_what_waits(false);
    full_of_what_waits(true);
}
