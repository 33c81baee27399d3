//! Copies: which one is taken, and what is mended.

use claystone_env::testing::sector_pattern;
use claystone_sim::{DeviceFaults, SimDevice, run};

use super::*;
use crate::emulated;

const FIRST: Sector = Sector(100);

fn put(hand: &SimDevice, count: u16, sectors: u64) -> Vec<u8> {
    let bytes = sector_pattern(7, sectors as usize);
    let copies = emulated::copies(hand, count, Access::Write);
    copies.write(FIRST, &bytes).and_then(|()| copies.device().sync()).expect("no fault is set");
    bytes
}

/// Reads, and takes only the right bytes.
fn read(copies: &Copies, expected: &[u8], scope: Scope) -> (Vec<u8>, Vec<usize>) {
    let mut into = vec![0xa5; expected.len()];
    let valid = |number: usize, bytes: &[u8]| bytes == &expected[number * SECTOR_BYTES..][..SECTOR_BYTES];
    let lost = copies.read(FIRST, &mut into, scope, &valid).expect("the device answers");
    (into, lost)
}

#[test]
fn any_copy_is_enough_and_the_others_are_mended() {
    run(1, |world| async move {
        for (count, sectors, flip) in [(2u16, 1u64, false), (2, 1, true), (3, 300, false), (3, 300, true), (4, 5, true)]
        {
            let hand = world.device(&format!("{count} {sectors} {flip}"), claystone_sim::HddModel::new(2000));
            let bytes = put(&hand, count, sectors);
            // Of each sector another copy is left.
            let mut bad = 0;
            for sector in 0..sectors {
                for copy in (0..u64::from(count)).filter(|copy| *copy != sector % u64::from(count)) {
                    let place = FIRST.0 + sector * u64::from(count) + copy;
                    if flip {
                        hand.flip_bit(Sector(place), 9)
                    } else {
                        hand.make_lost(place..place + 1)
                    }
                    bad += 1;
                }
            }
            let look = emulated::copies(&hand, count, Access::Look);
            assert_eq!(read(&look, &bytes, Scope::Needed), (bytes.clone(), vec![]));
            assert_eq!((look.mended(), hand.unsynced_sectors()), (0, 0), "looking writes nothing");
            let copies = emulated::copies(&hand, count, Access::Write);
            assert_eq!(read(&copies, &bytes, Scope::Every), (bytes.clone(), vec![]));
            assert_eq!(copies.mended(), bad);
            copies.device().sync().expect("no fault is set");
            for place in 0..sectors * u64::from(count) {
                let expected = &bytes[(place / u64::from(count)) as usize * SECTOR_BYTES..][..SECTOR_BYTES];
                assert_eq!(hand.content(Sector(FIRST.0 + place)).as_deref(), Some(expected), "copy {place}");
            }
        }
    });
}

#[test]
fn what_has_no_good_copy_is_lost_and_zeros() {
    run(1, |world| async move {
        let hand = emulated::device(&world);
        let mut bytes = put(&hand, 2, 5);
        hand.make_lost(FIRST.0 + 2..FIRST.0 + 4);
        hand.flip_bit(Sector(FIRST.0 + 8), 1);
        hand.make_lost(FIRST.0 + 9..FIRST.0 + 10);
        let copies = emulated::copies(&hand, 2, Access::Write);
        let (found, lost) = read(&copies, &bytes, Scope::Needed);
        assert_eq!(lost, [1, 4]);
        bytes[SECTOR_BYTES..2 * SECTOR_BYTES].fill(0);
        bytes[4 * SECTOR_BYTES..].fill(0);
        assert_eq!(found, bytes);
        assert_eq!(copies.mended(), 0);
    });
}

#[test]
fn shadows_spare_retries() {
    run(1, |world| async move {
        let hand = emulated::device(&world);
        let bytes = put(&hand, 2, 2000);
        hand.set_faults(DeviceFaults::soft(0.01));
        let before = hand.stats();
        let copies = emulated::copies(&hand, 2, Access::Write);
        for _ in 0..5 {
            assert!(read(&copies, &bytes, Scope::Needed).1.is_empty());
        }
        let (soft, retries) =
            (hand.stats().soft_failures - before.soft_failures, hand.stats().retries - before.retries);
        // 20,000 sectors, one in 100 of them; both copies of 10,000 pairs, one in 10,000.
        assert!((120..300).contains(&soft), "{soft} soft failures");
        assert!(retries <= 6, "{retries} retries");
        assert!(copies.mended() > 40, "{} mended", copies.mended());
        let counts = copies.reads();
        // The device counts what it retries once more.
        assert_eq!((counts.soft_failures + retries, counts.retries), (soft, retries));
        assert!(counts.sectors == counts.fail_fast + retries && counts.fail_fast >= 20_000, "{counts:?}");
        // Shadows that failed beside a good lead were not missed.
        assert!((copies.mended() - retries..=copies.mended()).contains(&counts.retries_avoided), "{counts:?}");
    });
}

#[test]
fn one_copy_is_retried() {
    run(1, |world| async move {
        let hand = emulated::device(&world);
        let bytes = put(&hand, 1, 2000);
        hand.set_faults(DeviceFaults::soft(0.01));
        let copies = emulated::copies(&hand, 1, Access::Write);
        assert_eq!(read(&copies, &bytes, Scope::Every), (bytes.clone(), vec![]));
        assert!(hand.stats().retries > 5);
        let counts = copies.reads();
        assert_eq!((counts.retries, counts.retries_avoided), (hand.stats().retries, 0));
    });
}

#[test]
fn a_single_lead_is_read_alone() {
    run(1, |world| async move {
        let hand = emulated::device(&world);
        let bytes = put(&hand, 4, 1);
        let before = hand.stats().sectors_read;
        read(&emulated::copies(&hand, 4, Access::Write), &bytes, Scope::Needed);
        assert_eq!(hand.stats().sectors_read - before, 1);
    });
}

/// One write went astray, so that a copy is older, and the newest fails softly.
#[test]
fn the_newest_copy_counts_though_it_does_not_read_at_once() {
    run(1, |world| async move {
        for (softly, others) in [(0u64, [1u8, 1]), (1, [1, 1]), (2, [1, 2]), (2, [2, 1])] {
            let hand = world.device(&format!("{softly} {others:?}"), claystone_sim::HddModel::new(2000));
            let mut fills = others.to_vec();
            fills.insert(softly as usize, 2);
            for (place, fill) in (FIRST.0..).zip(&fills) {
                hand.attach().write(Sector(place), &[*fill; SECTOR_BYTES]).expect("no fault is set");
            }
            let device = emulated::Softly(hand.attach(), std::sync::Mutex::new([FIRST.0 + softly].into()));
            let copies = Copies::new(Arc::new(device), 3, Access::Write);
            let mut into = [0; SECTOR_BYTES];
            let lost = copies.read_newest(FIRST, &mut into, &|_, bytes| Some(bytes[0].into())).expect("it answers");
            assert_eq!((lost, into[0]), (vec![], 2), "{fills:?}");
            for place in FIRST.0..FIRST.0 + 3 {
                assert_eq!(hand.content(Sector(place)).expect("there")[0], 2, "copy {place} of {fills:?}");
            }
            // The one that failed too, where another is as new.
            assert_eq!(copies.mended(), 2, "{fills:?}");
        }
    });
}
