//! The page file under redb: power cuts at every operation, bad copies, lost pages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use claystone_env::{Device, DeviceError, Effort, FailedSector, Geometry, SectorRange};
use claystone_sim::{DeviceFaults, HddModel, SimDevice, run};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::header::Header;
use super::sums::encode_sums;
use super::*;
use crate::emulated::{Bump, PAGES, Paired, SECTORS, Softly, copies, device, superblock};
use crate::error::Whole;
use crate::fields::crc32c;

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("t");

type Rows = BTreeMap<u64, Vec<u8>>;

fn format(hand: &SimDevice, count: u16) {
    let superblock = superblock(count);
    let copies = copies(hand, count, Access::Write);
    PageFile::create(&copies, &superblock).expect("no fault is set");
    let shared = SharedSuperblock::new(hand.attach(), superblock.clone());
    let file = PageFile::open(copies, shared.clone(), Bump::new(&superblock)).expect("no fault is set");
    Database::builder().create_with_backend(file).expect("no fault is set");
    // Last: what has a superblock is a disk.
    shared.store(|_| ()).expect("no fault is set");
}

fn open_file(device: Arc<dyn Device>, access: Access) -> Result<(PageFile, Arc<Copies>), DiskError> {
    let superblock = Superblock::load(&*device)?;
    let copies = Arc::new(Copies::new(device.clone(), superblock.copies, access));
    let source = Bump::new(&superblock);
    let file = PageFile::open(copies.clone(), SharedSuperblock::new(device, superblock), source)?;
    Ok((file, copies))
}

fn open_device(device: Arc<dyn Device>, access: Access) -> Result<Database, redb::Error> {
    let (file, _) = open_file(device, access).map_err(|error| redb::Error::Io(error.into_io()))?;
    Ok(Database::builder().set_cache_size(256 * 1024).create_with_backend(file)?)
}

fn open(hand: &SimDevice) -> Result<Database, redb::Error> {
    open_device(hand.attach(), Access::Write)
}

/// The rows after each of the workload's commits: growing, with values of up to four pages, and deletions.
fn history(commits: u64) -> Vec<Rows> {
    let mut history = vec![Rows::new()];
    for commit in 0..commits {
        let mut rows = history[commit as usize].clone();
        for row in 0..8 {
            let key = (commit * 37 + row * 11) % 64;
            match (commit + row) % 5 {
                0 => drop(rows.remove(&key)),
                part => drop(rows.insert(key, vec![(commit + row) as u8; (part * part * 900) as usize])),
            }
        }
        history.push(rows);
    }
    history
}

fn commit(database: &Database, from: &Rows, to: &Rows) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_quick_repair(true);
    {
        let mut table = transaction.open_table(TABLE)?;
        for key in from.keys().filter(|key| !to.contains_key(key)) {
            table.remove(key)?;
        }
        for (key, value) in to.iter().filter(|(key, value)| from.get(key) != Some(value)) {
            table.insert(key, value.as_slice())?;
        }
    }
    Ok(transaction.commit()?)
}

fn rows(database: &Database) -> Result<Rows, redb::Error> {
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(TABLE) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Rows::new()),
        table => table?,
    };
    let mut rows = Rows::new();
    for row in table.iter()? {
        let (key, value) = row?;
        rows.insert(key.value(), value.value().to_vec());
    }
    Ok(rows)
}

/// Commits until an error; returns how many commits returned.
fn work(hand: &SimDevice, history: &[Rows]) -> (usize, Result<(), redb::Error>) {
    let database = match open(hand) {
        Ok(database) => database,
        Err(error) => return (0, Err(error)),
    };
    for (number, pair) in history.windows(2).enumerate() {
        if let Err(error) = commit(&database, &pair[0], &pair[1]) {
            return (number, Err(error));
        }
    }
    (history.len() - 1, Ok(()))
}

#[test]
fn commits_are_found_again() {
    run(1, |world| async move {
        for count in [1, 2, 3] {
            let hand = world.device(&format!("d{count}"), HddModel::new(SECTORS));
            format(&hand, count);
            let history = history(20);
            work(&hand, &history).1.expect("no fault is set");
            let database = open(&hand).expect("the disk is whole");
            assert_eq!(rows(&database).expect("the disk is whole"), history[20]);
            drop(database);
            let (file, copies) = open_file(hand.attach(), Access::Look).expect("the disk is whole");
            assert!(file.capacity() > PAGES, "the workload took another slab");
            assert_eq!((copies.mended(), copies.lost()), (0, 0));
        }
    });
}

#[test]
fn a_power_cut_at_any_operation_leaves_the_last_commit_or_the_next() {
    let history = history(6);
    let mut operations = 0;
    let mut torn = 0;
    for cut in 0.. {
        let done = run(100 + cut, |world| {
            let history = history.clone();
            async move {
                let hand = device(&world);
                format(&hand, 2);
                hand.cut_power_after(cut);
                let (done, result) = work(&hand, &history);
                let finished = hand.is_powered();
                assert!(result.is_err() || done == history.len() - 1, "{done} commits");
                hand.spare_faults();
                hand.crash();
                let database = open(&hand).expect("a power cut leaves a disk that opens");
                let found = rows(&database).expect("a power cut leaves a whole disk");
                let next = history.get(done + 1).unwrap_or(&history[done]);
                assert!(found == history[done] || found == *next, "cut {cut}: neither commit {done} nor the next");
                // And it goes on from there.
                commit(&database, &found, &history[6]).expect("the disk works");
                drop(database);
                hand.crash();
                let database = open(&hand).expect("the disk opens");
                assert_eq!(rows(&database).expect("the disk is whole"), history[6], "cut {cut}");
                (finished, found == history[done])
            }
        });
        operations = cut;
        torn += u64::from(done.1);
        if done.0 {
            break;
        }
    }
    assert!(operations > 60, "only {operations} operations");
    assert!(torn > 10, "only {torn} cuts undid a commit");
}

#[test]
fn a_failing_operation_stops_the_page_file_and_loses_nothing() {
    let history = history(4);
    for failing in 0.. {
        let finished = run(5000 + failing, |world| {
            let history = history.clone();
            async move {
                let hand = device(&world);
                format(&hand, 2);
                hand.fail_after(failing);
                let (done, _) = work(&hand, &history);
                let finished = !hand.spare_faults();
                hand.crash();
                let database = open(&hand).expect("a failed operation leaves a disk that opens");
                let found = rows(&database).expect("a failed operation leaves a whole disk");
                let next = history.get(done + 1).unwrap_or(&history[done]);
                assert!(
                    found == history[done] || found == *next,
                    "failing {failing}: neither commit {done} nor the next"
                );
                finished
            }
        });
        if finished {
            assert!(failing > 40, "only {failing} operations");
            break;
        }
    }
}

#[test]
fn stored_bytes() {
    let id = superblock(2).id;
    let sums = encode_sums(id, Sector(508), 9, &[1, 2, 0x0403_0201]);
    assert_eq!(&sums[..16], b"CLAYPSUM\x09\0\0\0\0\0\0\0");
    assert_eq!(&sums[24..36], [1, 0, 0, 0, 2, 0, 0, 0, 1, 2, 3, 4]);
    assert_eq!(crc32c(&[&sums]), 1_447_966_963);
    let first_page = (0..FIRST_PAGE_BYTES).map(|at| at as u8).collect();
    let header = Header { sequence: 9, bytes: 4096 * 77, first_page };
    let bytes = header.encode(id);
    assert_eq!(&bytes[..16], b"CLAYHEAD\x09\0\0\0\0\0\0\0");
    assert_eq!(&bytes[32..36], [0, 1, 2, 3]);
    assert_eq!(crc32c(&[&bytes]), 933_664_752);
    for at in 0..SECTOR_BYTES {
        let flipped = |bytes: &[u8]| {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 0x10;
            flipped
        };
        assert_eq!(Header::parse(id, &flipped(&bytes)), None, "byte {at}");
        assert_eq!(parse_sums(id, Sector(508), &flipped(&sums)), None, "byte {at}");
    }
    assert_eq!(Header::parse(id, &bytes), Some(header));
    assert_eq!(parse_sums(id, Sector(508), &sums), Some(9));
    assert_eq!(parse_sums(id, Sector(510), &sums), None, "its place counts");
    assert_eq!(page_sum(&[]), 1, "the CRC is 0");
}

/// A device with the workload's history on it, and the sectors that are not zeros.
fn filled(hand: &SimDevice, count: u16, history: &[Rows]) -> Vec<u64> {
    format(hand, count);
    work(hand, history).1.expect("no fault is set");
    let held = |sector: &u64| hand.content(Sector(*sector)).is_some_and(|bytes| bytes.iter().any(|byte| *byte != 0));
    (0..SECTORS).filter(held).collect()
}

/// The commit whose rows are found by looking, or that there was an error; wrong rows fail.
fn found(hand: &SimDevice, history: &[Rows]) -> Option<usize> {
    let database = open_device(hand.attach(), Access::Look).ok()?;
    let rows = rows(&database).ok()?;
    Some(history.iter().position(|expected| *expected == rows).expect("rows of some commit, or an error"))
}

#[test]
fn soft_failures_cost_no_commit() {
    run(1, |world| async move {
        let hand = device(&world);
        format(&hand, 2);
        hand.set_faults(DeviceFaults::soft(0.02));
        let history = history(12);
        work(&hand, &history).1.expect("soft failures are no errors");
        assert_eq!(found(&hand, &history), Some(12));
        assert!(hand.stats().soft_failures > 3);
    });
}

#[test]
fn any_sector_may_lose_all_copies_but_one() {
    run(1, |world| async move {
        let history = history(5);
        for flip in [false, true] {
            let hand = world.device(&format!("d{flip}"), HddModel::new(SECTORS));
            let held = filled(&hand, 3, &history);
            // The superblock at the end has tests of its own.
            for sector in held.into_iter().filter(|sector| *sector < SECTORS - 8) {
                // Neighbours are copies of it, but at the edges of what is kept thrice.
                let copies = match sector {
                    0..SLAB => sector / 3 * 3,
                    SLAB.. => (sector - SLAB) / 3 * 3 + SLAB,
                };
                let others = (copies..copies + 3).filter(|copy| *copy != sector);
                let kept: Vec<_> = others.map(|copy| (copy, hand.content(Sector(copy)))).collect();
                for (copy, _) in &kept {
                    if flip { hand.flip_bit(Sector(*copy), 77) } else { hand.make_lost(*copy..copy + 1) }
                }
                assert_eq!(found(&hand, &history), Some(5), "only sector {sector} of its copies");
                for (copy, kept) in kept {
                    overwrite(&hand, copy, &kept.expect("it was there"));
                }
            }
        }
    });
}

/// Writes sectors, unseen and for good.
fn overwrite(hand: &SimDevice, sector: u64, bytes: &[u8]) {
    let device = hand.attach();
    device.write(Sector(sector), bytes).and_then(|()| device.sync()).expect("no fault is set");
}

/// The error that the page file gave to the database.
fn ours(error: &io::Error) -> Option<&DiskError> {
    error.get_ref()?.downcast_ref().map(|Whole(error)| error)
}

/// Where the first slab begins.
const SLAB: u64 = 500;

#[test]
fn what_is_lost_is_an_error_and_never_wrong_rows() {
    run(1, |world| async move {
        let history = history(5);
        let hand = device(&world);
        let held = filled(&hand, 2, &history);
        let (mut errors, mut older) = (0, 0);
        for sector in held.into_iter().filter(|sector| sector % 2 == 0) {
            let kept = [sector, sector + 1].map(|sector| hand.content(Sector(sector)).expect("nothing is lost yet"));
            hand.make_lost(sector..sector + 2);
            match found(&hand, &history) {
                // A header lost, or sums of which the older version does as well, or what nothing reaches.
                Some(commit) => older += u64::from(commit < 5),
                None => errors += 1,
            }
            hand.crash();
            overwrite(&hand, sector, &kept.concat());
        }
        assert!(errors > 5, "{errors} errors");
        assert!(older <= 1, "{older} times an older commit was taken for the last");
    });
}

/// A device of which one write goes elsewhere.
struct Astray {
    hand: SimDevice,
    device: Arc<dyn Device>,
    writes: AtomicU64,
    /// The number of that write.
    at: u64,
    to: Sector,
}

impl Device for Astray {
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
        if self.writes.fetch_add(1, Ordering::Relaxed) == self.at {
            self.hand.misdirect_next_write(self.to);
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

/// Commits on a device of which write `at` goes to a random sector of those in use. Returns how many writes there were.
fn commit_astray(seed: u64, at: u64) -> u64 {
    run(seed, |world| async move {
        let history = history(5);
        let hand = device(&world);
        format(&hand, 2);
        let to = Sector(world.random().below(760));
        let astray = Arc::new(Astray { hand: hand.clone(), device: hand.attach(), writes: AtomicU64::new(0), at, to });
        let database = open_device(astray.clone(), Access::Write).expect("the disk is whole");
        history.windows(2).try_for_each(|pair| commit(&database, &pair[0], &pair[1])).expect("nothing is seen of it");
        drop(database);
        // What is found is mended, and as good.
        for _ in 0..2 {
            assert_eq!(found(&hand, &history), Some(5), "seed {seed}: write {at} went to sector {}", to.0);
        }
        astray.writes.load(Ordering::Relaxed)
    })
}

#[test]
fn a_misdirected_write_loses_nothing() {
    let writes = commit_astray(0, u64::MAX);
    for seed in 0..400 {
        commit_astray(seed, seed * writes / 400);
    }
}

#[test]
fn a_lost_header_is_noticed_when_its_pages_may_be_written_over() {
    run(1, |world| async move {
        let hand = device(&world);
        format(&hand, 2);
        let (file, _) = open_file(hand.attach(), Access::Write).expect("the disk is whole");
        let headers = superblock(2).header_slot(0).0;
        let (sequence, slot) = {
            let state = file.state();
            (state.header.sequence, state.slot as u64)
        };
        file.put(8192, &[1; SECTOR_BYTES]).and_then(|()| file.sync()).expect("no fault is set");
        let older = headers + 2 * slot;
        let kept = hand.content(Sector(older)).expect("nothing is lost");
        file.put(8192, &[2; SECTOR_BYTES]).expect("no fault is set");
        // Power goes in the next sync when pages and sums are there.
        hand.cut_power_after(3);
        file.sync().expect_err("power is cut");
        hand.crash();
        overwrite(&hand, older, &kept.repeat(2));
        // And of the older header that is left, it is not known whether its pages are.
        let newest = headers + 2 * (1 - slot);
        assert!((newest..newest + 2).all(|sector| hand.content(Sector(sector)).is_some()));
        hand.make_lost(newest..newest + 2);
        let error = open_file(hand.attach(), Access::Write).map(|_| ()).expect_err("the newest header is lost");
        let DiskError::Damaged(damage) = error else { panic!("{error:?}") };
        assert_eq!(damage, Damage::HeaderStale { header: sequence, sums: sequence + 2 });
    });
}

#[test]
fn reading_what_was_never_written_is_an_error() {
    run(1, |world| async move {
        let hand = device(&world);
        format(&hand, 2);
        let file = open_file(hand.attach(), Access::Write).expect("the disk is whole").0;
        let bytes = file.len().expect("no fault is set");
        file.set_len(bytes + 5 * 4096).expect("no fault is set");
        let error = file.read(bytes, &mut [0; SECTOR_BYTES]).expect_err("there is nothing");
        let error = ours(&error).expect("it is ours");
        assert!(matches!(error, DiskError::Damaged(Damage::PageUnwritten { page }) if *page == bytes / 4096));
        let error = file.sync_data().expect_err("it stopped");
        assert!(matches!(ours(&error), Some(DiskError::Stopped)));
    });
}

#[test]
fn unaligned_writes_are_read_again() {
    run(1, |world| async move {
        let hand = device(&world);
        format(&hand, 2);
        let mut model = vec![0; 60 * SECTOR_BYTES];
        let writes = [(5000, 3), (4096, 4096), (9000, 20_000), (100_000, 9), (8191, 2), (200_000, 40_000), (12_288, 1)];
        for round in 0..3 {
            let file = open_file(hand.attach(), Access::Write).expect("the disk is whole").0;
            file.set_len(60 * 4096).expect("no fault is set");
            for (number, (offset, bytes)) in writes.into_iter().enumerate() {
                let data = vec![(round * 10 + number + 1) as u8; bytes];
                file.write(offset as u64, &data).expect("no fault is set");
                model[offset..offset + bytes].copy_from_slice(&data);
                let mut found = vec![0; bytes];
                file.read(offset as u64, &mut found).expect("it was written");
                assert_eq!(found, data);
            }
            file.sync_data().expect("no fault is set");
            for (offset, bytes) in writes {
                let mut found = vec![0; bytes];
                file.read(offset as u64, &mut found).expect("it was written");
                assert!(found == model[offset..offset + bytes]);
            }
        }
    });
}

#[test]
fn looking_writes_nothing() {
    run(1, |world| async move {
        let hand = device(&world);
        let history = history(4);
        format(&hand, 2);
        // Not closed: redb repairs when it opens.
        let database = open(&hand).expect("the disk is whole");
        commit(&database, &history[0], &history[1]).expect("no fault is set");
        std::mem::forget(database);
        hand.crash();
        let before = hand.stats();
        let (file, _) = open_file(hand.attach(), Access::Look).expect("the disk is whole");
        let database = Database::builder().create_with_backend(file).expect("the disk is whole");
        assert_eq!(rows(&database).expect("the disk is whole"), history[1]);
        commit(&database, &history[1], &history[4]).expect("in memory");
        assert_eq!(rows(&database).expect("in memory"), history[4]);
        drop(database);
        let after = hand.stats();
        assert_eq!((after.sectors_written, after.syncs), (before.sectors_written, before.syncs));
        assert_eq!(found(&hand, &history), Some(1));
    });
}

#[test]
fn a_scrub_mends_before_anything_is_read() {
    run(1, |world| async move {
        let history = history(5);
        let hand = device(&world);
        let held = filled(&hand, 2, &history);
        let mut bad = 0;
        for sector in held.into_iter().filter(|sector| *sector >= SLAB && sector % 4 == 1) {
            hand.flip_bit(Sector(sector), 5);
            bad += 1;
        }
        let (file, copies) = open_file(hand.attach(), Access::Write).expect("the disk is whole");
        let scrub = file.scrub(0..file.capacity()).expect("the device answers");
        assert!(scrub.unreadable.is_empty());
        assert_eq!(file.scrub_sums().expect("the device answers"), 0);
        assert!(copies.mended() > 10 && copies.mended() <= bad, "{} of {bad}", copies.mended());
        let mended = copies.mended();
        file.scrub(0..file.capacity()).expect("the device answers");
        assert_eq!(copies.mended(), mended, "nothing is left to mend");
        // Sums and header that are lost on the device are in memory.
        let sums = file.state().slabs[0].slab.sums_place(0, file.state().slabs[0].sectors[0].slot, 2).0;
        hand.make_lost(sums..sums + 2);
        let header = superblock(2).header_slot(file.state().slot as u64).0;
        hand.make_lost(header..header + 2);
        assert_eq!(file.scrub_sums().expect("the device answers"), 2);
        file.sync_data().expect("no fault is set");
        drop(file);
        assert_eq!(found(&hand, &history), Some(5));
    });
}

#[test]
fn a_device_without_room_stops_the_catalog_with_an_error() {
    run(1, |world| async move {
        struct Nothing;
        impl SlabSource for Nothing {
            fn take(&self, _: u64) -> Option<Sector> {
                None
            }
        }
        let hand = device(&world);
        format(&hand, 2);
        let shared = SharedSuperblock::new(hand.attach(), Superblock::load(&*hand.attach()).expect("it is there"));
        let file = PageFile::open(copies(&hand, 2, Access::Write), shared, Arc::new(Nothing)).expect("it is whole");
        let error = file.write(PAGES * 4096, &[1; 8192]).expect_err("there is no room");
        assert!(matches!(ours(&error), Some(DiskError::CatalogFull { pages: 1 })));
        // What is on the device is as it was.
        assert_eq!(found(&hand, &history(1)), Some(0));
        let mut first = [0; SECTOR_BYTES];
        assert!(hand.attach().read(Sector(0), &mut first, Effort::Retry).is_ok_and(|failed| failed.is_empty()));
    });
}

#[test]
fn pages_written_lately_that_a_pair_loses_are_read_and_written_again() {
    run(1, |world| async move {
        let hand = device(&world);
        format(&hand, 2);
        let pair: Arc<dyn Device> = Arc::new(Paired(hand.attach(), true));
        let (file, _) = open_file(pair, Access::Write).expect("no fault is set");
        for page in 1..5 {
            file.put(page * 4096, &[page as u8; SECTOR_BYTES]).expect("no fault is set");
        }
        file.sync().expect("no fault is set");
        let place = file.state().place(3, 2).0;
        let mut bytes = [0; SECTOR_BYTES];
        hand.make_lost(place..place + 2);
        file.fill(3 * 4096, &mut bytes).expect("memory has it");
        assert_eq!(bytes, [3; SECTOR_BYTES]);
        assert_eq!(file.keep_lost().expect("no fault is set"), 1);
        file.sync().expect("no fault is set");
        drop(file);
        let (file, _) = open_file(hand.attach(), Access::Write).expect("no fault is set");
        file.fill(3 * 4096, &mut bytes).expect("it was written again");
        assert_eq!(bytes, [3; SECTOR_BYTES]);
        // On another device nothing is kept in memory.
        hand.make_lost(place..place + 2);
        file.fill(3 * 4096, &mut bytes).expect_err("both copies are lost");
    });
}

/// A write of a copy of sums went astray, and the other copy does not read at once: the older one is not written over it.
#[test]
fn older_sums_do_not_take_the_place_of_newer_ones_that_fail_softly() {
    run(1, |world| async move {
        let hand = device(&world);
        format(&hand, 2);
        let history = history(6);
        work(&hand, &history).1.expect("no fault is set");
        let (file, _) = open_file(hand.attach(), Access::Write).expect("it opens");
        let (slab, slot) = {
            let state = file.state();
            (state.slabs[0].slab, state.slabs[0].sectors[0].slot)
        };
        drop(file);
        let place = slab.sums_place(0, slot, 2);
        let newest = hand.content(place).expect("there");
        let sequence = parse_sums(superblock(2).id, place, &newest).expect("they are sums");
        let sums: Vec<u32> = sums_in(&newest).take(10).collect();
        let older = encode_sums(superblock(2).id, place, sequence - 2, &sums);
        for copy in 0..2 {
            let put_older = || hand.attach().write(Sector(place.0 + copy), &older).expect("no fault is set");
            let assert_newest = || {
                for copy in 0..2 {
                    assert!(hand.content(Sector(place.0 + copy)).as_ref() == Some(&newest), "copy {copy}");
                }
            };
            let softly: Arc<dyn Device> = Arc::new(Softly(hand.attach(), Mutex::new([place.0 + 1 - copy].into())));
            put_older();
            let (file, _) = open_file(softly, Access::Write).expect("it opens");
            assert_newest();
            put_older();
            assert_eq!(file.scrub_sums().expect("the device answers"), 0);
            assert_newest();
            // Both are older: memory has the newest.
            hand.attach().write(Sector(place.0 + 1 - copy), &older).expect("no fault is set");
            put_older();
            assert_eq!(file.scrub_sums().expect("the device answers"), 1);
            hand.attach().write(Sector(place.0), &newest).expect("no fault is set");
            hand.attach().write(Sector(place.0 + 1), &newest).expect("no fault is set");
        }
        assert_eq!(rows(&open(&hand).expect("it opens")).expect("they read"), history[6]);
    });
}

fn page(number: u64, turn: u8) -> Vec<u8> {
    vec![1 + (number % 200) as u8 + turn; SECTOR_BYTES]
}

fn at(page: u64) -> u64 {
    page * SECTOR_BYTES as u64
}

/// A file of so many pages, synced, and then cut to 20 of them.
fn cut(device: Arc<dyn Device>, pages: u64) -> PageFile {
    let (file, _) = open_file(device, Access::Write).expect("the disk is whole");
    file.set_len(at(pages)).expect("no fault is set");
    for number in 1..pages {
        file.write(at(number), &page(number, 0)).expect("no fault is set");
    }
    file.sync_data().expect("no fault is set");
    file.sync_data().expect("no fault is set");
    // As the database does it, behind the last sync.
    file.set_len(at(20)).expect("no fault is set");
    file
}

fn assert_first_pages(file: &PageFile) {
    for number in 1..20 {
        let mut bytes = vec![0; SECTOR_BYTES];
        file.read(at(number), &mut bytes).expect("it is there");
        assert_eq!(bytes, page(number, 0), "page {number}");
    }
}

#[test]
fn slabs_behind_the_end_of_the_file_are_given_back_and_no_header_reaches_them() {
    for is_pair in [false, true] {
        run(1, |world| async move {
            let hand = device(&world);
            format(&hand, 2);
            let drive: Arc<dyn Device> = if is_pair { Arc::new(Paired(hand.attach(), false)) } else { hand.attach() };
            let file = cut(drive.clone(), 2500);
            let slabs = || Superblock::load(&*hand.attach()).expect("the disk is whole").slabs;
            let before = slabs();
            // The second begins at page 40: what is written next has room in it.
            let idle = file.idle_slabs();
            assert_eq!((idle, idle), (before.len() - 2, file.slabs_behind(178)));
            assert_eq!(file.last_slabs(idle), before[2..]);
            let headers = || {
                let places = [0, 1].map(|slot| Superblock::load(&*hand.attach()).expect("whole").header_slot(slot));
                places.map(|place| {
                    let mut bytes = vec![0; SECTOR_BYTES];
                    hand.attach().read(place, &mut bytes, Effort::Retry).expect("the drive is there");
                    Header::parse(file.shared.id, &bytes).expect("a header").bytes
                })
            };
            assert!(headers().contains(&at(2500)), "the newest is of the longer file: {:?}", headers());
            file.sync_both().expect("no fault is set");
            assert_eq!(headers(), [at(20); 2]);
            file.give_back(idle).expect("no fault is set");
            assert_eq!(slabs(), before[..2]);
            // Whoever has those sectors now.
            for slab in &before[2..] {
                hand.attach().write(slab.first, &vec![0xee; slab.sectors(2) as usize * SECTOR_BYTES]).expect("written");
            }
            assert_first_pages(&file);
            file.keep_lost().expect("no fault is set");
            let newest = file.shared.header_slots[file.state().slot];
            drop(file);
            // Also by the older header.
            for copy in [0, 1] {
                overwrite(&hand, newest.0 + copy, &[0; SECTOR_BYTES]);
            }
            let (file, _) = open_file(drive, Access::Write).expect("the other header is whole");
            assert_first_pages(&file);
            // And there may be others again.
            file.set_len(at(3000)).expect("no fault is set");
            file.write(at(2999), &page(2999, 1)).expect("there is room");
            file.sync_data().expect("no fault is set");
            assert!(slabs().len() > 2);
            assert_first_pages(&file);
        });
    }
}

#[test]
#[should_panic(expected = "a page of a slab that is given back is written")]
fn a_slab_with_a_page_is_not_given_back() {
    run(1, |world| async move {
        let hand = device(&world);
        format(&hand, 2);
        let file = cut(hand.attach(), 2500);
        file.set_len(at(2500)).expect("no fault is set");
        file.write(at(2499), &page(2499, 1)).expect("there is room");
        assert_eq!(file.idle_slabs(), 0);
        let _ = file.give_back(1);
    });
}
