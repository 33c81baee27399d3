//! A pair at rest: all is at home, and the solid-state drive may go.

use super::*;
use crate::Member;

fn at_rest(pair: &Pair) -> bool {
    Member::of(&*pair.hdd.attach()).expect("it reads").expect("a side").at_rest
}

fn alone(pair: &Pair) -> Result<TieredDevice, TierError> {
    TieredDevice::open(pair.hdd.attach(), None, now(), tuning(2))
}

#[test]
fn a_pair_at_rest_opens_without_its_solid_state_drive_and_for_good() {
    for seed in 0..20 {
        let pair = Pair::new(seed, 2);
        let device = pair.opened();
        for sector in 0..20 {
            write(&device, sector, sector);
        }
        device.rest().expect("rest");
        assert!(at_rest(&pair), "seed {seed}");
        pair.crash();
        let device = alone(&pair).expect("nothing was on the other");
        assert!(!at_rest(&pair) && !device.info().ssd_works);
        for sector in 0..20 {
            assert_eq!(content(&device, sector), Some(sector_pattern(sector, 1)), "seed {seed}, sector {sector}");
        }
        write(&device, 3, 333);
        device.sync().expect("sync");
        pair.crash();
        // That one is back: what it had is older.
        let device = pair.opened();
        assert!(!device.info().ssd_works);
        assert_eq!(content(&device, 3), Some(sector_pattern(333, 1)), "seed {seed}");
    }
}

#[test]
fn what_is_written_after_a_rest_takes_it_back_first() {
    for seed in 0..20 {
        let pair = Pair::new(seed, 2);
        let device = pair.opened();
        write(&device, 1, 1);
        device.rest().expect("rest");
        write(&device, 1, 2);
        // Not synced.
        assert!(!at_rest(&pair), "seed {seed}");
        device.sync().expect("sync");
        pair.crash();
        assert!(matches!(alone(&pair), Err(TierError::SsdMissing { .. })), "seed {seed}");
        let device = pair.opened();
        assert_eq!(content(&device, 1), Some(sector_pattern(2, 1)), "seed {seed}");
        device.rest().expect("rest");
        drop(device);
        // So does opening it.
        drop(pair.opened());
        assert!(!at_rest(&pair), "seed {seed}");
    }
}

#[test]
fn a_pair_that_has_lost_sectors_is_never_at_rest() {
    let pair = Pair::new(1, 1_000_000);
    let device = pair.opened();
    for sector in 0..20 {
        write(&device, sector, sector);
    }
    device.sync().expect("sync");
    let lost = pair.sectors_with(Side::Ssd, &sector_pattern(7, 1)[..64])[0];
    pair.ssd.flip_bit(Sector(lost), 9);
    device.rest().expect("rest");
    assert_eq!((device.info().waiting_sectors, device.info().lost_sectors), (1, 1));
    assert!(!at_rest(&pair));
    assert_eq!(content(&device, 7), None);
}

#[test]
fn a_solid_state_drive_that_dies_at_rest_takes_nothing_with_it() {
    for removed_after in [false, true] {
        let pair = Pair::new(3, 1_000_000);
        let device = pair.opened();
        write(&device, 1, 1);
        if !removed_after {
            pair.ssd.set_removed(true);
        }
        device.rest().expect("the hard disk works");
        assert_eq!(at_rest(&pair), removed_after);
        pair.ssd.set_removed(true);
        write(&device, 2, 2);
        device.sync().expect("it goes on");
        assert!(!device.info().ssd_works);
        pair.hdd.crash();
        let device = alone(&pair).expect("its loss is known");
        for sector in [1, 2] {
            assert_eq!(content(&device, sector), Some(sector_pattern(sector, 1)), "sector {sector}");
        }
    }
}
