//! The superblock: its bytes, its bounds, and finding it on a device that lost parts of it.

use claystone_sim::{HddModel, SimDevice, run};
use proptest::prelude::*;

use super::*;
use crate::copies::Access;
use crate::emulated::{self, SECTORS, superblock};
use crate::fields::crc32c;

/// With its checksum made right.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc32c_without(&bytes, CRC_AT, &[]);
    put(&mut bytes, CRC_AT, crc.to_le_bytes());
    bytes
}

fn load(hand: &SimDevice) -> Result<Superblock, DiskError> {
    Superblock::load(&*hand.attach())
}

fn store(hand: &SimDevice, superblock: &Superblock) {
    superblock.store(&*hand.attach()).expect("no fault is set");
}

#[test]
fn stored_bytes() {
    let bytes = superblock(2).encode();
    assert_eq!(&bytes[..12], b"CLAYDISK\x02\x00\x02\x00");
    assert_eq!(&bytes[96..102], b"attic\0");
    assert_eq!(crc32c(&[&bytes]), 483_304_653);
}

#[test]
fn every_flipped_byte_is_noticed() {
    let bytes = superblock(3).encode();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x40;
        assert!(Superblock::parse(&flipped).is_err(), "byte {at}");
    }
}

#[test]
fn fields_out_of_bounds_are_refused() {
    let superblock = superblock(2);
    let number = |at: usize, bytes: &[u8]| {
        let mut changed = superblock.encode();
        changed[at..][..bytes.len()].copy_from_slice(bytes);
        Superblock::parse(&sealed(changed))
    };
    let field = |field, value| Err(SuperblockFault::Damaged(Damage::SuperblockField { field, value }));
    assert_eq!(number(8, &[1, 0]), Err(SuperblockFault::Other(1)));
    assert_eq!(number(8, &[3, 0]), Err(SuperblockFault::Other(3)));
    assert_eq!(number(8, &[0, 0]), field("version", 0));
    assert_eq!(number(10, &[0, 0]), field("m'", 0));
    assert_eq!(number(10, &[9, 0]), field("m'", 9));
    assert_eq!(number(32, &[0; 8]), field("the generation", 0));
    assert_eq!(number(40, &[0xff; 8]), field("the number of sectors", u64::MAX));
    assert_eq!(number(40, &63u64.to_le_bytes()), field("the number of sectors", 63));
    assert_eq!(number(48, &[0, 0]), field("k", 0));
    assert_eq!(number(48, &1021u16.to_le_bytes()), field("k", 1021));
    assert_eq!(number(50, &65u16.to_le_bytes()), field("m", 65));
    assert_eq!(number(48, &1019u16.to_le_bytes()), field("k + m", 1024));
    assert_eq!(number(52, &[0, 0]), field("the number of slabs", 0));
    assert_eq!(number(52, &[201, 0]), field("the number of slabs", 201));
    assert_eq!(number(56, &f64::NAN.to_le_bytes()), field("p_h", f64::NAN.to_bits()));
    assert_eq!(number(64, &1f64.to_le_bytes()), field("p_s", 1f64.to_bits()));
    assert_eq!(number(80, &7u64.to_le_bytes()), field("the journal's first sector", 7));
    assert_eq!(number(88, &7u64.to_le_bytes()), field("the journal's length", 7));
    assert_eq!(number(88, &SECTORS.to_le_bytes()), field("the journal's length", SECTORS));
    assert_eq!(number(96, &[0xff]), field("a byte of the label", 0));
    assert_eq!(number(103, b"x"), field("a byte of the label", 0));
    let slab =
        |number, first, pages| Err(SuperblockFault::Damaged(Damage::Slab { number, first: Sector(first), pages }));
    assert_eq!(number(512, &8u64.to_le_bytes()), slab(0, 8, 40), "in the journal");
    assert_eq!(number(512, &(SECTORS - 84).to_le_bytes()), slab(0, SECTORS - 84, 40), "in the last copies");
    assert_eq!(number(520, &0u64.to_le_bytes()), slab(0, 500, 0));
    assert_eq!(number(520, &u64::MAX.to_le_bytes()), slab(0, 500, u64::MAX));
    assert_eq!(number(512, &u64::MAX.to_le_bytes()), slab(0, u64::MAX, 40));
    let mut two = superblock.encode();
    put(&mut two, 52, [2, 0]);
    put(&mut two, 528, 510u64.to_le_bytes());
    put(&mut two, 536, 1u64.to_le_bytes());
    assert_eq!(Superblock::parse(&sealed(two)), slab(1, 510, 1), "in the first slab");
}

proptest! {
    #[test]
    fn any_bytes_with_a_right_checksum_are_refused_or_come_out_again(
        fields in prop::collection::vec(any::<u8>(), 512 + 64),
        first in 0usize..96,
        slabs in 0u16..4,
    ) {
        // Fields from `first` on are anything.
        let mut bytes = superblock(2).encode();
        bytes[first.max(16)..fields.len()].copy_from_slice(&fields[first.max(16)..]);
        put(&mut bytes, 52, slabs.to_le_bytes());
        let bytes = sealed(bytes);
        if let Ok(superblock) = Superblock::parse(&bytes) {
            prop_assert_eq!(Superblock::parse(&superblock.encode()), Ok(superblock));
        }
    }
}

#[test]
fn either_end_is_enough() {
    run(1, |world| async move {
        for copies in 1..=8 {
            let hand = world.device(&format!("d{copies}"), HddModel::new(SECTORS));
            assert!(matches!(load(&hand), Err(DiskError::NotADisk { .. })));
            let superblock = superblock(copies);
            store(&hand, &superblock);
            assert_eq!(load(&hand).expect("it is there"), superblock);
            hand.make_lost(0..copies.into());
            assert_eq!(load(&hand).expect("the end is there"), superblock, "{copies} copies, front lost");
            store(&hand, &superblock);
            hand.make_lost(SECTORS - u64::from(copies)..SECTORS);
            assert_eq!(load(&hand).expect("the front is there"), superblock, "{copies} copies, end lost");
            for copy in 0..u64::from(copies) - 1 {
                hand.flip_bit(Sector(copy), 1000);
            }
            assert_eq!(load(&hand).expect("a shadow is there"), superblock, "{copies} copies, one left");
            hand.flip_bit(Sector(u64::from(copies) - 1), 1000);
            assert!(matches!(load(&hand), Err(DiskError::Damaged(Damage::SuperblockChecksum { .. }))));
            hand.make_lost(0..copies.into());
            assert!(matches!(load(&hand), Err(DiskError::Damaged(Damage::SuperblockLost))));
        }
    });
}

#[test]
fn the_highest_generation_counts() {
    run(1, |world| async move {
        let hand = emulated::device(&world);
        let old = superblock(2);
        store(&hand, &old);
        let new = Superblock { generation: 2, ..old.clone() };
        let device = hand.attach();
        for sector in [1, SECTORS - 1] {
            store(&hand, &old);
            device.write(Sector(sector), &new.encode()).expect("no fault is set");
            assert_eq!(load(&hand).expect("it is there"), new);
        }
        // The image of a disk in a file at the end is not this disk.
        store(&hand, &old);
        let image = Superblock { id: DiskId([7; 16]), generation: 9, ..old.clone() };
        for sector in 2..9 {
            device.write(Sector(SECTORS - sector), &image.encode()).expect("no fault is set");
        }
        assert_eq!(load(&hand).expect("it is there"), old);
    });
}

#[test]
fn a_newer_version_is_named_and_a_shorter_device_too() {
    run(1, |world| async move {
        let hand = emulated::device(&world);
        let mut newer = superblock(1).encode();
        put(&mut newer, 8, [3, 0]);
        hand.attach().write(Sector(0), &sealed(newer)).expect("no fault is set");
        let error = load(&hand).expect_err("it is newer");
        assert!(matches!(error, DiskError::OtherVersion { found: 3, supported: 2, .. }));
        let short = world.device("short", HddModel::new(SECTORS - 1));
        let bytes = superblock(1).encode();
        short.attach().write(Sector(0), &bytes).expect("no fault is set");
        let error = load(&short).expect_err("it is shorter");
        assert!(matches!(error, DiskError::DeviceShrunk { found, expected: SECTORS, .. } if found == SECTORS - 1));
        // And a longer one has the copies at the end where they were.
        let long = world.device("long", HddModel::new(SECTORS + 1000));
        store(&long, &superblock(2));
        long.make_lost(0..1);
        assert_eq!(load(&long).expect("it is there").sectors, SECTORS);
    });
}

#[test]
fn erased_is_gone() {
    run(1, |world| async move {
        let hand = emulated::device(&world);
        store(&hand, &superblock(8));
        Superblock::erase(&*hand.attach()).expect("no fault is set");
        assert!(matches!(load(&hand), Err(DiskError::NotADisk { .. })));
    });
}

#[test]
fn a_power_cut_while_storing_leaves_the_old_or_the_new() {
    for seed in 0..200 {
        run(seed, |world| async move {
            let hand = emulated::device(&world);
            let shared = SharedSuperblock::new(hand.attach(), superblock(2));
            shared.store(|_| ()).expect("no fault is set");
            let old = shared.current();
            hand.cut_power_after(seed % 6);
            assert!(shared.store(|next| next.label = "cellar".to_owned()).is_err());
            assert_eq!(shared.current(), old);
            hand.crash();
            let found = load(&hand).expect("one end is whole");
            let new = Superblock { generation: old.generation + 1, label: "cellar".to_owned(), ..old.clone() };
            assert!(found == old || found == new, "{found:?}");
            assert!(seed % 6 < 3 || found == new, "two copies at the end and a sync");
        });
    }
}

#[test]
fn opening_makes_all_copies_the_same() {
    run(1, |world| async move {
        let hand = emulated::device(&world);
        store(&hand, &superblock(3));
        // A power cut in the middle of storing: two copies in front are new.
        let new = Superblock { generation: 2, ..superblock(3) };
        hand.attach().write(Sector(0), &new.encode().repeat(2)).expect("no fault is set");
        hand.make_lost(2..3);
        let shared = SharedSuperblock::new(hand.attach(), load(&hand).expect("it is there"));
        let copies = emulated::copies(&hand, 3, Access::Write);
        shared.settle(&copies).expect("no fault is set");
        assert_eq!(hand.unsynced_sectors(), 0);
        for sector in (0..3).chain(SECTORS - 3..SECTORS) {
            assert_eq!(hand.content(Sector(sector)), Some(new.encode()), "sector {sector}");
        }
        let before = hand.stats();
        shared.settle(&copies).expect("no fault is set");
        let after = hand.stats();
        assert_eq!((after.sectors_written, after.syncs), (before.sectors_written, before.syncs));
    });
}
