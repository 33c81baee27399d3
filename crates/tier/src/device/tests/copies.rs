//! What a sync copies to the solid-state drive, and what stands for what is not synced.

use super::*;

#[test]
fn a_sync_copies_little_of_the_hard_disk_s_buffer_and_what_was_written_later_stays_the_newest() {
    for seed in 0..40 {
        let pair = Pair { copy_sectors_max: 20, ..Pair::new(seed, 2) };
        let device = pair.opened();
        let before = device.info().counts.hdd_syncs;
        for sector in 0..8 {
            device.write(Sector(sector), &sector_pattern(sector, 3)).expect("write");
        }
        device.sync().expect("sync");
        let counts = device.info().counts;
        // Of four records of three sectors each the next ones left one.
        assert_eq!((counts.copied_sectors, counts.hdd_syncs - before), (6, 0), "seed {seed}");
        write(&device, 0, 100);
        // A hard disk that is not synced has nothing of it.
        pair.crash();
        let device = pair.opened();
        for sector in 1..8 {
            assert_eq!(content(&device, sector), Some(sector_pattern(sector, 1)), "seed {seed}, sector {sector}");
        }
        let last = sector_pattern(7, 3);
        assert_eq!(content(&device, 9).as_deref(), Some(&last[2 * SECTOR_BYTES..]));
        // More than that is synced where it is.
        let before = device.info().counts.hdd_syncs;
        for sector in 0..20 {
            write(&device, sector, 200 + sector);
            write(&device, sector, 300 + sector);
        }
        device.sync().expect("sync");
        assert_eq!(device.info().counts.hdd_syncs - before, 1);
        pair.crash();
        let device = pair.opened();
        assert!((0..20).all(|sector| content(&device, sector) == Some(sector_pattern(300 + sector, 1))));
    }
}

#[test]
fn what_a_sync_copies_is_in_memory_once() {
    let device = Pair { copy_sectors_max: 20, ..Pair::new(1, 1) }.opened();
    // Of the first record the second leaves both ends.
    device.write(Sector(0), &sector_pattern(1, 5)).expect("write");
    write(&device, 2, 2);
    let mut state = device.state();
    state.marking = std::mem::take(&mut state.pending);
    let originals: Vec<_> = state.marking.iter().map(|seq| state.records[seq].memory.clone().expect("it is")).collect();
    let copies = device.replace_volatile(&mut state);
    let held: Vec<_> = state.marking.iter().map(|seq| state.records[seq].memory.clone().expect("it is")).collect();
    drop(state);
    assert_eq!((copies.len(), held.iter().map(Vec::len).collect::<Vec<_>>()), (2, vec![2, 1]));
    for (parts, original) in held.iter().zip(&originals) {
        let within = original[0].as_ptr_range();
        assert!(parts.iter().all(|part| within.contains(&part.as_ptr())));
    }
    assert!(
        held[0].concat()[..] == [&originals[0][0][..2 * SECTOR_BYTES], &originals[0][0][3 * SECTOR_BYTES..]].concat()
    );
    device.write_copies(copies);
    let of_first = sector_pattern(1, 5);
    let found = content(&device, 4);
    assert_eq!(found.as_deref(), Some(&of_first[4 * SECTOR_BYTES..]));
}

#[test]
fn what_was_copied_is_found_in_the_hard_disk_s_log_when_the_solid_state_drive_fails() {
    for settled in [false, true] {
        // All go to the hard disk's log, and are copied.
        let pair = Pair { copy_sectors_max: 20, ..Pair::new(1, 1) };
        let device = pair.opened();
        let hdd_syncs = device.info().counts.hdd_syncs;
        // Of the first record the second leaves both ends.
        device.write(Sector(0), &sector_pattern(1, 5)).expect("write");
        write(&device, 2, 2);
        device.sync().expect("sync");
        let counts = device.info().counts;
        assert_eq!((counts.copied_sectors, counts.hdd_syncs - hdd_syncs), (5, 0));
        pair.ssd.set_removed(true);
        if settled {
            write(&device, 9, 9);
            device.sync().expect("it goes on with the hard disk");
            assert_eq!(device.info().lost_sectors, 0);
        }
        let first = sector_pattern(1, 5);
        for sector in 0..5 {
            let expected = if sector == 2 {
                sector_pattern(2, 1)
            } else {
                first[sector as usize * SECTOR_BYTES..][..SECTOR_BYTES].to_vec()
            };
            assert_eq!(content(&device, sector), Some(expected), "{sector}, settled: {settled}");
        }
    }
}

#[test]
fn a_copy_s_original_that_is_hurt_is_lost_with_the_solid_state_drive() {
    let pair = Pair { copy_sectors_max: 20, ..Pair::new(1, 1) };
    let device = pair.opened();
    write(&device, 3, 1);
    write(&device, 4, 2);
    device.sync().expect("sync");
    let of_3 = sector_pattern(1, 1);
    let place = (1..=LOG).find(|sector| pair.hdd.content(Sector(*sector)).is_some_and(|content| content == of_3[..]));
    let place = place.expect("the hard disk's log has it");
    pair.hdd.attach().write(Sector(place), &[1; SECTOR_BYTES]).expect("write");
    pair.ssd.set_removed(true);
    assert_eq!((content(&device, 3), content(&device, 4)), (None, Some(sector_pattern(2, 1))));
    device.sync().expect("it goes on with the hard disk");
    write(&device, 9, 9);
    device.sync().expect("sync");
    assert_eq!((content(&device, 3), content(&device, 4)), (None, Some(sector_pattern(2, 1))));
    assert_eq!(device.info().lost_sectors, 1);
}

#[test]
fn a_mark_that_is_hurt_misses_no_record_that_was_copied() {
    for seed in 0..40 {
        let pair = Pair { copy_sectors_max: 20, ..Pair::new(seed, 2) };
        let device = pair.opened();
        let before = pair.sectors_with(Side::Ssd, b"CLAYTREC");
        for sector in 0..4 {
            write(&device, sector, sector);
        }
        // All that the hard disk has of this one is older.
        write(&device, 3, 33);
        device.sync().expect("sync");
        // The second of them goes to the solid-state drive, and knows of the mark.
        write(&device, 9, 9);
        write(&device, 10, 10);
        let after = pair.sectors_with(Side::Ssd, b"CLAYTREC");
        let [.., mark, _] = after.iter().copied().filter(|sector| !before.contains(sector)).collect::<Vec<_>>()[..]
        else {
            panic!("records and a mark were written")
        };
        device.ssd.as_ref().expect("it is there").sync().expect("sync");
        pair.crash();
        pair.ssd.make_lost(mark..mark + 1);
        let device = pair.open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let found: Vec<_> = (0..4).map(|sector| content(&device, sector)).collect();
        let expected = [0, 1, 2, 33].map(|seed| Some(sector_pattern(seed, 1)));
        assert_eq!(found, expected, "seed {seed}");
    }
}

#[test]
fn a_mark_that_is_hurt_misses_no_padding() {
    for seed in 0..20 {
        let pair = Pair::new(seed, 1_000_000);
        let mut device = pair.opened();
        let rule = Rule { mode: Mode::Disabled, queue_max: 6, early: None, waiting_max: 1, longest: None };
        device.state().guide = Some(Guide::new(small_profile(), rule, crate::Tuning::default()));
        device.tuning.steering = Steering::Predicted { rule, tuning: crate::Tuning::default() };
        let before = pair.sectors_with(Side::Ssd, b"CLAYTREC");
        write(&device, 1, 1);
        // Nobody knows where the disk is.
        device.tend().expect("tend");
        write(&device, 2, 2);
        device.tend().expect("tend");
        assert!(device.info().counts.padding_sectors > 1);
        device.sync().expect("sync");
        // The last of them has a header, which lists the others.
        (3..9).for_each(|sector| write(&device, sector, sector));
        let after = pair.sectors_with(Side::Ssd, b"CLAYTREC");
        let [.., mark, _] = after.iter().copied().filter(|sector| !before.contains(sector)).collect::<Vec<_>>()[..]
        else {
            panic!("records and a mark were written")
        };
        device.ssd.as_ref().expect("it is there").sync().expect("sync");
        pair.crash();
        pair.ssd.make_lost(mark..mark + 1);
        let device = pair.open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for sector in 1..9 {
            assert_eq!(content(&device, sector), Some(sector_pattern(sector, 1)), "seed {seed}");
        }
    }
}

#[test]
fn padding_that_no_sync_had_room_to_tell_of_is_told_of_by_the_next() {
    let device = Pair::new(1, 1_000_000).opened();
    let padded: Vec<SectorRange> =
        (0..700).map(|at| SectorRange { first: Sector(1000 + 2 * at), sectors: 1 }).collect();
    let mut state = device.state();
    let unmarked_max = u64::from(state.superblock.unmarked_sectors_max);
    state.unmarked[Side::Ssd as usize] += unmarked_max - 1;
    assert_eq!(device.stage_void(&mut state, &padded).len(), 1);
    assert!(state.padded == padded[300..]);
}

#[test]
fn a_drain_that_finds_the_solid_state_drive_failed_calls_no_copy_lost() {
    let pair = Pair { copy_sectors_max: 20, ..Pair::new(1, 1) };
    let device = pair.opened();
    device.write(Sector(0), &sector_pattern(1, 5)).expect("write");
    device.sync().expect("sync");
    assert_eq!(device.info().counts.copied_sectors, 5);
    pair.ssd.set_removed(true);
    device.drain().expect("it goes on with the hard disk");
    let expected = sector_pattern(1, 5);
    for sector in 0..5 {
        let expected = expected[sector as usize * SECTOR_BYTES..][..SECTOR_BYTES].to_vec();
        assert_eq!(content(&device, sector), Some(expected), "{sector}");
    }
    let info = device.info();
    assert_eq!((info.lost_sectors, info.counts.lost_sectors), (0, 0));
}

#[test]
fn what_a_record_has_twice_is_found_where_it_was_written_last() {
    let pair = Pair { copy_sectors_max: 20, ..Pair::new(1, 1) };
    let device = pair.opened();
    let (older, newer) = (sector_pattern(1, 3), sector_pattern(2, 1));
    device.write_each(&[(Sector(0), &older), (Sector(1), &newer)]).expect("write");
    device.sync().expect("sync");
    pair.ssd.set_removed(true);
    let of_older = |sector: usize| older[sector * SECTOR_BYTES..][..SECTOR_BYTES].to_vec();
    let expected = [of_older(0), newer.clone(), of_older(2)].map(Some);
    assert_eq!([0, 1, 2].map(|sector| content(&device, sector)), expected);
}

/// Where a device has a sector of this content.
fn places_of(device: &SimDevice, sector: &[u8]) -> Vec<u64> {
    let holds = |place: &u64| device.content(Sector(*place)).is_some_and(|content| content == sector);
    (1..=LOG).filter(holds).collect()
}

#[test]
fn sectors_of_a_copy_that_are_hurt_are_found_in_the_hard_disk_s_log() {
    for (by_draining, is_lost) in [(false, false), (false, true), (true, false), (true, true)] {
        let pair = Pair { copy_sectors_max: 20, ..Pair::new(1, 1) };
        let device = pair.opened();
        let all = sector_pattern(1, 8);
        let of = |sector: usize| &all[sector * SECTOR_BYTES..][..SECTOR_BYTES];
        device.write(Sector(3), &all).expect("write");
        write(&device, 6, 6);
        device.sync().expect("sync");
        assert_eq!(device.info().counts.copied_sectors, 8);
        for sector in [0, 1, 5] {
            let [place] = places_of(&pair.ssd, of(sector))[..] else { panic!("it was copied") };
            match is_lost {
                true => pair.ssd.make_lost(place..place + 1),
                false => pair.ssd.attach().write(Sector(place), &[1; SECTOR_BYTES]).expect("write"),
            }
        }
        if by_draining {
            let drained = device.drain().expect("drain");
            assert_eq!((drained.sectors, drained.more), (8, false));
        }
        let mut expected = all.clone();
        expected[3 * SECTOR_BYTES..4 * SECTOR_BYTES].copy_from_slice(&sector_pattern(6, 1));
        for effort in [Effort::Retry, Effort::FailFast] {
            let mut found = vec![0xa5; 8 * SECTOR_BYTES];
            assert_eq!(device.read(Sector(3), &mut found, effort).expect("the device answers"), []);
            assert!(found == expected, "by draining: {by_draining}, lost: {is_lost}, {effort:?}");
        }
        assert_eq!((device.info().counts.lost_sectors, device.info().ssd_works), (0, true));
    }
}

#[test]
fn nothing_older_is_read_for_what_is_hurt() {
    let pair = Pair { copy_sectors_max: 20, ..Pair::new(1, 2) };
    let device = pair.opened();
    // The first of two writes goes to the solid-state drive, the second to the hard disk.
    write(&device, 9, 9);
    write(&device, 3, 1);
    device.sync().expect("sync");
    assert_eq!(device.info().counts.copied_sectors, 1);
    write(&device, 3, 2);
    device.sync().expect("sync");
    let [place] = places_of(&pair.ssd, &sector_pattern(2, 1))[..] else { panic!("it was written there") };
    pair.ssd.make_lost(place..place + 1);
    assert_eq!(content(&device, 3), None);
    // Nor for a copy, if what was copied has made room for something else.
    write(&device, 4, 4);
    device.sync().expect("sync");
    let [of_copy] = places_of(&pair.ssd, &sector_pattern(4, 1))[..] else { panic!("it was copied") };
    let [of_original] = places_of(&pair.hdd, &sector_pattern(4, 1))[..] else { panic!("it was written there") };
    pair.ssd.make_lost(of_copy..of_copy + 1);
    pair.hdd.attach().write(Sector(of_original), &sector_pattern(5, 1)).expect("write");
    assert_eq!(content(&device, 4), None);
}

#[test]
fn a_copy_of_before_is_found_in_the_hard_disk_s_log_too() {
    for seed in 0..20 {
        let pair = Pair { copy_sectors_max: 20, ..Pair::new(seed, 1) };
        let device = pair.opened();
        device.write(Sector(0), &sector_pattern(1, 5)).expect("write");
        write(&device, 2, 2);
        device.sync().expect("sync");
        // Whether the hard disk's buffer outlives it or not.
        let cut = seed % 2 == 0;
        if cut {
            pair.crash();
        }
        drop(device);
        let expected = |sector: usize| match sector {
            2 => sector_pattern(2, 1),
            _ => sector_pattern(1, 5)[sector * SECTOR_BYTES..][..SECTOR_BYTES].to_vec(),
        };
        let device = pair.opened();
        for sector in 0..5 {
            for place in places_of(&pair.ssd, &expected(sector)) {
                pair.ssd.make_lost(place..place + 1);
            }
            let found = content(&device, sector as u64);
            assert!(found == Some(expected(sector)) || (cut && found.is_none()), "seed {seed}, sector {sector}");
        }
    }
}

#[test]
fn what_was_copied_is_not_freed_before_its_copy() {
    let pair = Pair { copy_sectors_max: 20, ..Pair::new(1, 2) };
    let mut device = pair.opened();
    // One sector at a time; the second and the fourth write go to the hard disk, and are copied behind the others.
    device.tuning.drain_sectors_max = 1;
    for sector in 0..4 {
        write(&device, sector, sector);
    }
    device.sync().expect("sync");
    assert_eq!(device.info().counts.copied_sectors, 2);
    for sector in [1, 3] {
        let [place] = places_of(&pair.ssd, &sector_pattern(sector, 1))[..] else { panic!("it was copied") };
        pair.ssd.make_lost(place..place + 1);
    }
    for _ in 0..8 {
        let found = [0, 1, 2, 3].map(|sector| content(&device, sector));
        assert_eq!(found, [0, 1, 2, 3].map(|sector| Some(sector_pattern(sector, 1))));
        device.drain().expect("drain");
    }
    let info = device.info();
    assert_eq!((info.waiting_sectors, info.lost_sectors), (0, 0));
}

#[test]
fn what_was_copied_waits_for_an_older_one_that_is_on_its_way() {
    let device = Pair { copy_sectors_max: 20, ..Pair::new(1, 2) }.opened();
    for sector in 0..4 {
        write(&device, sector, sector);
    }
    device.sync().expect("sync");
    let mut state = device.state();
    let first = state.records.keys().copied().find(|seq| !state.newest_of(*seq).is_empty()).expect("they were written");
    // As if the last of four were.
    state.in_flight.insert(first + 3);
    assert_eq!(device.batch_end(&state, device.any_batch()), Some(first + 1));
}

#[test]
fn a_batch_that_was_made_longer_frees_what_counts_no_more_behind_it() {
    let pair = Pair { copy_sectors_max: 20, ..Pair::new(1, 2) };
    let mut device = pair.opened();
    device.tuning.drain_sectors_max = 1;
    for sector in 0..2 {
        write(&device, sector, sector);
    }
    device.sync().expect("sync");
    write(&device, 5, 5);
    device.sync().expect("sync");
    device.discard(SectorRange { first: Sector(5), sectors: 1 }).expect("discard");
    assert!(!device.drain().expect("drain").more);
    assert_eq!(device.state().records.len(), 0);
}
