//! The journal: its bytes, power cuts at every operation, flips of every byte, lost copies.

use claystone_sim::{HddModel, SimDevice, run};
use proptest::prelude::*;

use super::*;
use crate::Inode;
use crate::change::{Change, Table};
use crate::emulated::{self, JOURNAL_SECTORS, Paired, superblock};

fn area(count: u16) -> SectorRange {
    superblock(count).journal
}

fn id() -> DiskId {
    superblock(1).id
}

fn create(hand: &SimDevice, count: u16) -> Journal {
    open(hand, count, JournalPosition::FIRST).expect("an empty device is an empty journal").0
}

fn open(hand: &SimDevice, count: u16, from: JournalPosition) -> Result<(Journal, Vec<Vec<Record>>), DiskError> {
    Journal::open(emulated::copies(hand, count, Access::Write), code(), id(), area(count), from)
}

/// Small codewords, so that an entry has several.
fn code() -> GroupCode {
    GroupCode::new(6, 2).expect("a code")
}

fn shape(copies: u64) -> RingShape {
    RingShape { positions: JOURNAL_SECTORS, copies, code: code(), id: id() }
}

fn positions(copies: u64, records: &[Record]) -> u64 {
    shape(copies).layout((payload_of(records).len() / PAYLOAD_BYTES) as u64).positions
}

fn encoded(copies: u64, at: JournalPosition, attempt: u32, records: &[Record]) -> Vec<u8> {
    shape(copies).encode(Place { at, attempt }, &payload_of(records)).to_vec()
}

fn change(number: u64, value_bytes: usize) -> Record {
    let value = (value_bytes > 0).then(|| vec![number as u8; value_bytes]);
    Record::Change(Change { table: Table::Runs, key: number.to_be_bytes().to_vec(), value })
}

/// One of each kind.
fn each_kind() -> Vec<Record> {
    vec![
        change(1, 100),
        change(2, 0),
        Record::Written { inode: Inode(3), sector: 4, bytes: vec![5; SECTOR_BYTES] },
        Record::Sums { place: 6, bytes: vec![7; SECTOR_BYTES] },
        Record::Forget { inode: Inode(8), first: 9, end: 10 },
    ]
}

/// Entries of one to four sectors, and of nine.
fn entry(number: u64) -> Vec<Record> {
    let records = if number % 5 == 4 { 12 } else { number % 5 + 1 };
    (0..records).map(|record| change(number * 100 + record, 3000)).collect()
}

#[test]
fn stored_bytes() {
    let at = JournalPosition { sequence: 7, position: 23 };
    let bytes = encoded(1, at, 5, &each_kind());
    assert_eq!(bytes.len(), 3 * SECTOR_BYTES);
    assert_eq!(&bytes[4072..4092], [7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0]);
    assert_eq!(crc32c(&[&bytes]), 1_423_468_831);
    // The second and third sector are at the ring's begin.
    let second = &bytes[SECTOR_BYTES..2 * SECTOR_BYTES];
    assert!(shape(1).parse(23, &bytes[..SECTOR_BYTES]).is_some());
    let head = Head { sequence: 7, number: 1, sectors: 3, attempt: 5 };
    assert_eq!((shape(1).parse(0, second), shape(1).begin(0, head)), (Some(head), Some(23)));
    assert!(shape(1).parse(24, second).is_none(), "its place counts");
    let other = RingShape { id: DiskId([0; 16]), ..shape(1) };
    assert!(other.parse(23, &bytes[..SECTOR_BYTES]).is_none(), "its disk counts");
    // Twice, as long as parity takes no less.
    let mirrored = encoded(2, at, 5, &each_kind());
    assert!(mirrored.len() == 6 * SECTOR_BYTES && mirrored[..SECTOR_BYTES] == mirrored[SECTOR_BYTES..2 * SECTOR_BYTES]);
    let coded = encoded(2, at, 5, &entry(4));
    assert_eq!((coded.len(), crc32c(&[&coded])), (14 * SECTOR_BYTES, 4_267_855_513));
}

#[test]
fn an_entry_lies_in_fewer_positions() {
    for copies in 1..=4 {
        let ring = RingShape { positions: 4096, ..shape(copies) };
        for sectors in 1..200u64 {
            let layout = ring.layout(sectors);
            let coded = (sectors + 2 * sectors.div_ceil(6)).div_ceil(copies);
            let least = if sectors > 2 { sectors.min(coded) } else { sectors };
            assert_eq!((layout.sectors, layout.positions), (sectors, least));
            let most = ring.sectors_in(sectors);
            assert!(ring.layout(most).positions <= sectors, "{most} sectors in {sectors} positions");
            assert!(ring.layout(most + 8).positions > sectors, "{most} sectors are far from the most");
            let last = Head { sequence: 1, number: sectors as u32 - 1, sectors: sectors as u32, attempt: 0 };
            let behind = if layout.positions < sectors { sectors - 1 } else { (sectors - 1) * copies };
            assert_eq!(ring.begin((7 * copies + behind) % ring.cells(), last), Some(7 * copies));
            assert_eq!(ring.begin(0, Head { number: sectors as u32, ..last }), None);
        }
    }
}

#[test]
fn entries_come_back_around_the_ring() {
    run(1, |world| async move {
        for count in [1, 2, 3] {
            let hand = world.device(&format!("d{count}"), claystone_sim::HddModel::new(2000));
            let mut journal = create(&hand, count);
            let mut from = JournalPosition::FIRST;
            let mut kept: Vec<Vec<Record>> = Vec::new();
            for number in 0..60 {
                let entry = if number % 7 == 0 { each_kind() } else { entry(number) };
                let needed = journal.positions_of(&entry);
                while journal.room() < needed {
                    let before = journal.room();
                    assert!(matches!(journal.append(&entry), Err(DiskError::JournalFull { .. })));
                    let gone = positions(count.into(), &kept.remove(0));
                    from = JournalPosition {
                        sequence: from.sequence + 1,
                        position: (from.position + gone) % JOURNAL_SECTORS,
                    };
                    journal.trim(from);
                    assert_eq!(journal.room(), before + gone);
                }
                let syncs = hand.stats().syncs;
                let next = journal.append(&entry).expect("there is room");
                assert_eq!(hand.stats().syncs, syncs + 1);
                kept.push(entry);
                let (opened, found) = open(&hand, count, from).expect("it is whole");
                assert!(found == kept, "after entry {number}");
                assert_eq!((opened.next(), opened.room()), (next, journal.room()));
            }
            // Trimmed to the end, it is empty, and so it is found.
            journal.trim(journal.next());
            assert_eq!(journal.room(), JOURNAL_SECTORS);
            let (_, found) = open(&hand, count, journal.next()).expect("it is whole");
            assert!(found.is_empty());
        }
    });
}

#[test]
fn a_full_ring_is_full_and_comes_back() {
    run(1, |world| async move {
        let hand = emulated::device(&world);
        let mut journal = create(&hand, 2);
        for number in 0..JOURNAL_SECTORS {
            journal.append(&[change(number, 10)]).expect("there is room");
        }
        assert_eq!(journal.room(), 0);
        let (mut opened, found) = open(&hand, 2, JournalPosition::FIRST).expect("it is whole");
        assert_eq!((found.len() as u64, opened.room()), (JOURNAL_SECTORS, 0));
        opened.trim(JournalPosition::FIRST);
        assert_eq!(opened.room(), 0, "nothing was given up");
        let large = vec![change(1, 4000); 2 * JOURNAL_SECTORS as usize];
        assert!(matches!(opened.append(&large), Err(DiskError::EntryTooLarge { .. })));
    });
}

#[test]
fn a_power_cut_at_any_operation_leaves_what_was_promised() {
    let mut kept_more = 0;
    for seed in 0..400 {
        kept_more += run(seed, |world| async move {
            let hand = emulated::device(&world);
            let mut journal = create(&hand, 2);
            let mut from = JournalPosition::FIRST;
            let mut promised: Vec<Vec<Record>> = Vec::new();
            let mut more = 0;
            // Power goes again and again, so that remains of torn entries lie about, of the same sequences.
            for round in 0..4 {
                hand.cut_power_after((seed + round) % 13);
                let last = loop {
                    let entry = entry(seed + round + promised.len() as u64);
                    while journal.room() < journal.positions_of(&entry) {
                        let gone = journal.positions_of(&promised.remove(0));
                        from.position = (from.position + gone) % JOURNAL_SECTORS;
                        from.sequence += 1;
                        journal.trim(from);
                    }
                    match journal.append(&entry) {
                        Ok(_) => promised.push(entry),
                        Err(_) => break entry,
                    }
                };
                assert!(matches!(journal.append(&last), Err(DiskError::Stopped)));
                hand.crash();
                let (opened, found) = open(&hand, 2, from).expect("a power cut leaves a journal that opens");
                let torn = promised.len();
                assert!(found[..torn] == promised[..], "seed {seed}, round {round}");
                assert!(found.len() <= torn + 1 && found.get(torn).is_none_or(|entry| *entry == last));
                more += found.len() - torn;
                (journal, promised) = (opened, found);
            }
            more
        });
    }
    assert!(kept_more > 100, "{kept_more} entries in flight survived");
}

#[test]
fn remains_of_a_torn_entry_join_no_other_of_its_sequence() {
    run(1, |world| async move {
        let hand = emulated::device(&world);
        let device = hand.attach();
        let at = JournalPosition::FIRST;
        let place = |sector: u64| Sector(area(1).first.0 + sector);
        let [old, new, next] =
            [(13, 0), (18, 0), (18, 1)].map(|(number, attempt)| encoded(1, at, attempt, &entry(number)));
        assert!(old.len() == new.len() && old.len() > 2 * SECTOR_BYTES);
        device.write(place(0), &old).and_then(|()| device.sync()).expect("no fault is set");
        assert_eq!(open(&hand, 1, at).expect("it is whole").1, [entry(13)]);
        for torn in [&new, &next] {
            device.write(place(0), &old).expect("no fault is set");
            device.write(place(0), &torn[..SECTOR_BYTES]).expect("no fault is set");
            let (journal, found) = open(&hand, 1, at).expect("a torn end is an end");
            assert_eq!((found.len(), journal.next()), (0, at));
        }
        // The whole of the later attempt counts, and remains of the earlier do not.
        device.write(place(0), &old).expect("no fault is set");
        device.write(place(0), &next).expect("no fault is set");
        assert_eq!(open(&hand, 1, at).expect("it is whole").1, [entry(18)]);
    });
}

#[test]
fn every_opening_is_another_attempt() {
    run(1, |world| async move {
        let hand = emulated::device(&world);
        let attempt = |attempt, sectors: usize| {
            let bytes = encoded(2, JournalPosition::FIRST, attempt, &entry(14));
            // Its first position is zeros when it was opened, and something of the rest is left.
            hand.attach().write(Sector(area(2).first.0 + 5), &bytes[5 * SECTOR_BYTES..][..sectors * SECTOR_BYTES])
        };
        for number in 0..3 {
            attempt(number, 1).expect("no fault is set");
            let (journal, found) = open(&hand, 2, JournalPosition::FIRST).expect("a torn end is an end");
            assert_eq!((journal.attempt, found.len()), (number + 1, 0));
        }
        let mut journal = create(&hand, 2);
        journal.append(&entry(14)).expect("there is room");
        let (opened, found) = open(&hand, 2, JournalPosition::FIRST).expect("it is whole");
        assert_eq!((opened.attempt, found), (0, vec![entry(14)]));
    });
}

#[test]
fn a_coded_entry_comes_back_without_any_two_of_its_codeword() {
    run(1, |world| async move {
        let hand = emulated::device(&world);
        let mut journal = create(&hand, 2);
        // Around the end of the ring: 6 + 2 and 3 + 2 cells, and one is not used.
        for number in 0..JOURNAL_SECTORS - 3 {
            journal.append(&[change(number, 10)]).expect("there is room");
        }
        let from = journal.next();
        journal.trim(from);
        journal.append(&entry(4)).expect("there is room");
        let cell = |behind: u64| area(2).first.0 + (from.position * 2 + behind) % (2 * JOURNAL_SECTORS);
        let entry_of = |behind: u64| if behind < 9 { u64::from(behind >= 6) } else { u64::from(behind >= 11) };
        for (one, other) in (0..13).flat_map(|one| (one + 1..13).map(move |other| (one, other))) {
            for gone in [one, other] {
                match (one + other) % 3 {
                    0 => hand.make_lost(cell(gone)..cell(gone) + 1),
                    1 => hand.flip_bit(Sector(cell(gone)), 700),
                    _ => hand.attach().write(Sector(cell(gone)), &[1; SECTOR_BYTES]).expect("no fault is set"),
                }
            }
            let mended = open(&hand, 2, from).expect("it is made good");
            assert!(mended.1 == [entry(4)], "without {one} and {other}");
            assert_eq!(mended.0.ring.copies.mended(), 2, "{one} and {other}");
        }
        // Three of one codeword are too many; one without a successor is the end.
        let three = (0..13).filter(|behind| entry_of(*behind) == 0).take(3);
        three.for_each(|behind| hand.make_lost(cell(behind)..cell(behind) + 1));
        assert!(open(&hand, 2, from).expect("a torn end is an end").1.is_empty());
    });
}

/// Parity of another entry is a sum of sectors too: what it decodes to must not pass for a sector.
#[test]
fn what_a_power_cut_leaves_of_a_coded_entry_is_all_of_it_or_nothing_for_ever() {
    run(1, |world| async move {
        let records = |seed: u64| (0..10).map(|record| change(seed + record, 3000)).collect::<Vec<_>>();
        let (whole, other) = (records(1), records(50));
        let at = JournalPosition { sequence: 9, position: 0 };
        let (bytes, cells) = (encoded(2, at, 1, &whole), 12);
        assert_eq!((bytes.len(), positions(2, &whole)), (cells * SECTOR_BYTES, 6));
        let earlier = JournalPosition { sequence: 3, ..at };
        let before = [vec![0; bytes.len()], encoded(2, earlier, 0, &other), encoded(2, at, 0, &other)];
        let (mut there, mut torn) = (0, 0);
        // Behind 8 sectors: two parity cells of the first six, and two of the others.
        for (number, missing, stale) in
            (0..3).flat_map(|number| (0..8).flat_map(move |missing| (0..16).map(move |stale| (number, missing, stale))))
        {
            let hand = world.device(&format!("{number}/{missing}/{stale}"), claystone_sim::HddModel::new(2000));
            let mut left = bytes.clone();
            for cell in (0..cells).filter(|cell| *cell == missing || *cell >= 8 && stale >> (cell - 8) & 1 == 1) {
                let cell = cell * SECTOR_BYTES..(cell + 1) * SECTOR_BYTES;
                left[cell.clone()].copy_from_slice(&before[number][cell]);
            }
            hand.attach().write(area(2).first, &left).expect("no fault is set");
            let expected_there = if missing < 6 { stale & 3 < 3 } else { stale >> 2 < 3 };
            let found = open(&hand, 2, at).expect("a torn end is an end").1;
            assert!(found.is_empty() || found == [whole.clone()], "{number}, {missing} and {stale:b}");
            assert_eq!(found.is_empty(), !expected_there, "{number}, {missing} and {stale:b}");
            (there, torn) = (there + found.len(), torn + usize::from(found.is_empty()));
            for lost in 8..12 {
                hand.make_lost(area(2).first.0 + lost..area(2).first.0 + lost + 1);
                let again = open(&hand, 2, at).expect("it opened before").1;
                assert_eq!(again, found, "{number}, {missing} and {stale:b}, and then without {lost}");
            }
        }
        assert!(there > 200 && torn > 50, "{there} there and {torn} torn");
    });
}

#[test]
fn soft_failures_hide_nothing() {
    run(1, |world| async move {
        let hand = emulated::device(&world);
        let mut journal = create(&hand, 2);
        journal.append(&entry(4)).and_then(|_| journal.append(&entry(0))).expect("there is room");
        hand.set_faults(claystone_sim::DeviceFaults::soft(0.2));
        for _ in 0..50 {
            assert_eq!(open(&hand, 2, JournalPosition::FIRST).expect("all of it can be read").1, [entry(4), entry(0)]);
        }
    });
}

#[test]
fn choices_are_all_there_are() {
    assert_eq!(entry::choices(4, 2).collect::<Vec<_>>(), [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
    assert_eq!(
        (entry::choices(2, 3).count(), entry::choices(10, 5).count(), entry::choices(3, 3).count()),
        (0, 252, 1)
    );
}

#[test]
fn flips_are_noticed_mended_or_end_it() {
    run(1, |world| async move {
        for count in [1, 2] {
            let hand = world.device(&format!("d{count}"), claystone_sim::HddModel::new(2000));
            let mut journal = create(&hand, count);
            let entries: Vec<Vec<Record>> = vec![entry(0), entry(1), entry(2), entry(0)];
            for entry in &entries {
                journal.append(entry).expect("there is room");
            }
            let used = JOURNAL_SECTORS - journal.room();
            // Every byte where it matters, and some of the payload.
            let bytes = (0..24).chain((24..4080).step_by(397)).chain(4080..SECTOR_BYTES);
            for (sector, at) in (0..used).flat_map(|sector| bytes.clone().map(move |at| (sector, at))) {
                let lead = Sector(area(count).first.0 + sector * u64::from(count));
                hand.flip_bit(lead, at * 8 + 3);
                match (count, open(&hand, count, JournalPosition::FIRST)) {
                    (1, Err(DiskError::Damaged(Damage::JournalEntry { later: 4, .. }))) => assert!(sector < used - 1),
                    (1, Ok((_, found))) => {
                        assert_eq!(sector, used - 1, "byte {at}");
                        assert!(found == entries[..3], "without a successor it is the end");
                    }
                    (2, Ok((journal, found))) => {
                        assert!(found == entries, "sector {sector}, byte {at}");
                        assert_eq!(journal.ring.copies.mended(), 1);
                    }
                    (_, result) => panic!("sector {sector}, byte {at}: {:?}", result.map(|found| found.1.len())),
                }
                if count == 1 {
                    hand.flip_bit(lead, at * 8 + 3);
                }
            }
        }
    });
}

#[test]
fn lost_copies_are_mended_and_lost_entries_reported() {
    run(1, |world| async move {
        let hand = emulated::device(&world);
        let mut journal = create(&hand, 3);
        let entries: Vec<Vec<Record>> = (0..8).map(entry).collect();
        for entry in &entries {
            journal.append(entry).expect("there is room");
        }
        let first = area(3).first.0;
        for sector in 0..JOURNAL_SECTORS - journal.room() {
            let copies = first + 3 * sector;
            hand.make_lost(copies..copies + 2);
            let (_, found) = open(&hand, 3, JournalPosition::FIRST).expect("a shadow is left");
            assert!(found == entries, "sector {sector}");
            hand.make_lost(copies + 2..copies + 3);
            let (_, found) = open(&hand, 3, JournalPosition::FIRST).expect("the others were mended");
            assert!(found == entries, "sector {sector}");
        }
        let look = emulated::copies(&hand, 3, Access::Look);
        hand.make_lost(first + 3..first + 6);
        let result = Journal::open(look, code(), id(), area(3), JournalPosition::FIRST);
        let Err(DiskError::Damaged(damage)) = result else { panic!("entry 2 is lost") };
        assert_eq!(damage, Damage::JournalEntry { sequence: 2, position: 1, later: 8 });
    });
}

/// Opens it on a device that knows, or not, that it has lost what does not read.
fn open_pair(hand: &SimDevice, knows: bool) -> Result<(Journal, Vec<Vec<Record>>), DiskError> {
    let copies = Copies::new(Arc::new(Paired(hand.attach(), knows)), 2, Access::Write);
    Journal::open(Arc::new(copies), code(), id(), area(2), JournalPosition::FIRST)
}

#[test]
fn an_entry_that_a_pair_has_lost_is_not_taken_for_the_end() {
    run(1, |world| async move {
        let first = area(2).first.0;
        // Entries of two sectors, kept twice each, and of nine, with parity.
        let mirrored = entry(1);
        let of_two: [&[u64]; 3] = [&[0, 1, 2, 3], &[0, 1], &[2, 3]];
        let of_nine: [&[u64]; 3] = [&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], &[0, 1, 2], &[3, 4, 5]];
        for (last, kinds) in [(mirrored, of_two), (entry(4), of_nine)] {
            for (number, lost) in kinds.into_iter().enumerate() {
                for knows in [true, false] {
                    let hand = world.device(&format!("{}/{number}/{knows}", last.len()), HddModel::new(2000));
                    let mut journal = create(&hand, 2);
                    journal.append(&entry(0)).expect("there is room");
                    let begin = first + 2 * journal.next().position;
                    journal.append(&last).expect("there is room");
                    for cell in lost {
                        hand.make_lost(begin + cell..begin + cell + 1);
                    }
                    if knows {
                        let Err(DiskError::Damaged(damage)) = open_pair(&hand, true) else { panic!("cells {lost:?}") };
                        assert_eq!(damage, Damage::JournalLost { sequence: 2, position: 1 });
                    } else {
                        let found = open_pair(&hand, false).expect("a torn end is an end").1;
                        assert!(found == [entry(0)], "cells {lost:?}");
                    }
                }
            }
        }
    });
}

#[test]
fn remains_that_a_pair_has_lost_are_no_entry() {
    run(1, |world| async move {
        let hand = world.device("d", HddModel::new(2000));
        let mut journal = create(&hand, 2);
        journal.append(&entry(0)).expect("there is room");
        let (first, cells) = (area(2).first.0, 2 * JOURNAL_SECTORS);
        let next = first + 2 * journal.next().position;
        // Of what was where the next one begins one copy is left, and it is none.
        hand.make_lost(next..next + 1);
        hand.make_lost(next + 2..first + cells);
        for number in 0..4 {
            let (mut journal, found) = open_pair(&hand, true).expect("all that was promised is there");
            assert_eq!(found.len(), 1 + number);
            journal.append(&entry(1)).expect("there is room");
        }
        // While the journal is open everything free is lost.
        let (mut journal, _) = open_pair(&hand, true).expect("all that was promised is there");
        hand.make_lost(first + 2 * journal.next().position..first + cells);
        journal.clear_lost().expect("the device takes writes");
        journal.append(&entry(1)).expect("there is room");
        drop(journal);
        assert_eq!(open_pair(&hand, true).expect("all that was promised is there").1.len(), 6);
    });
}

#[test]
fn looking_writes_nothing() {
    run(1, |world| async move {
        let hand = emulated::device(&world);
        create(&hand, 2).append(&entry(3)).expect("there is room");
        hand.make_lost(area(2).first.0..area(2).first.0 + 1);
        let before = hand.stats();
        let look = emulated::copies(&hand, 2, Access::Look);
        let (_, found) =
            Journal::open(look, code(), id(), area(2), JournalPosition::FIRST).expect("the shadow is there");
        assert_eq!(found, [entry(3)]);
        assert_eq!((hand.stats().sectors_written, hand.stats().syncs), (before.sectors_written, before.syncs));
    });
}

#[test]
fn a_failing_device_stops_the_journal() {
    for (seed, failing) in (0..20).flat_map(|seed| [(seed, 0), (seed, 1)]) {
        run(seed, |world| async move {
            let hand = emulated::device(&world);
            let mut journal = create(&hand, 2);
            journal.append(&entry(1)).expect("there is room");
            hand.fail_after(failing);
            assert!(matches!(journal.append(&entry(2)), Err(DiskError::Device(_))));
            assert!(matches!(journal.append(&entry(3)), Err(DiskError::Stopped)));
            hand.crash();
            let (_, found) = open(&hand, 2, JournalPosition::FIRST).expect("it is whole");
            assert!(found == [entry(1)] || found == [entry(1), entry(2)]);
        });
    }
}

#[test]
fn a_position_that_is_none_is_refused() {
    run(1, |world| async move {
        let hand = emulated::device(&world);
        let from = JournalPosition { sequence: 1, position: JOURNAL_SECTORS };
        let Err(DiskError::Damaged(damage)) = open(&hand, 2, from) else { panic!("there is no such sector") };
        assert_eq!(damage, Damage::JournalPosition { position: JOURNAL_SECTORS, sectors: JOURNAL_SECTORS });
    });
}

#[test]
fn an_entry_with_a_right_checksum_that_makes_no_sense_is_damage() {
    run(1, |world| async move {
        let hand = emulated::device(&world);
        let device = hand.attach();
        let mut bytes = encoded(1, JournalPosition::FIRST, 0, &[change(1, 10)]);
        put(&mut bytes, 0, u64::MAX.to_le_bytes());
        shape(1).seal(0, &mut bytes);
        device.write(area(1).first, &bytes).expect("no fault is set");
        let Err(DiskError::Damaged(damage)) = open(&hand, 1, JournalPosition::FIRST) else { panic!("it is too long") };
        assert_eq!(damage, Damage::JournalRecord { sequence: 1, position: 0, at: 0 });
        // A second record of no kind.
        put(&mut bytes, 0, 27u64.to_le_bytes());
        let crc = crc32c(&[&bytes[16..43]]);
        put(&mut bytes, 8, crc.to_le_bytes());
        shape(1).seal(0, &mut bytes);
        device.write(area(1).first, &bytes).expect("no fault is set");
        let Err(DiskError::Damaged(damage)) = open(&hand, 1, JournalPosition::FIRST) else { panic!("kind 0 is none") };
        assert_eq!(damage, Damage::JournalRecord { sequence: 1, position: 0, at: 26 });
    });
}

proptest! {
    #[test]
    fn records_come_out_again_and_their_begins_are_refused(
        numbers in prop::collection::vec((0u64..5, any::<u64>(), 0usize..300), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let records: Vec<Record> = numbers
            .iter()
            .map(|(kind, number, bytes)| match kind {
                0 => Record::Forget { inode: Inode(*number), first: *number, end: *bytes as u64 },
                1 => Record::Sums { place: *number, bytes: vec![*number as u8; SECTOR_BYTES] },
                2 => Record::Written { inode: Inode(*number), sector: 1, bytes: vec![3; SECTOR_BYTES] },
                _ => change(*number, *bytes),
            })
            .collect();
        let mut bytes = Vec::new();
        for record in &records {
            let before = bytes.len();
            put_record(record, &mut bytes);
            prop_assert_eq!(bytes.len() - before, record_bytes(record));
        }
        prop_assert_eq!(parse_records(&bytes), Ok(records.clone()));
        let cut = cut.index(bytes.len());
        if let Ok(fewer) = parse_records(&bytes[..cut]) {
            prop_assert!(records.starts_with(&fewer) && fewer.len() < records.len());
        }
    }

    #[test]
    fn any_bytes_are_records_or_refused(bytes in prop::collection::vec(0u8..6, 0..200)) {
        if let Ok(records) = parse_records(&bytes) {
            let mut again = Vec::new();
            records.iter().for_each(|record| put_record(record, &mut again));
            prop_assert_eq!(again, bytes);
        }
    }
}
