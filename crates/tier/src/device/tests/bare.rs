//! Records without headers: who lists them, and what is there when that one is hurt, or never came.

use super::*;
use crate::fields::{crc32c_without, put};
use crate::record::{first_of, sector_crcs};
use crate::superblock::VERSION;

/// Writes of 30 sectors, with a sync in between and one in the end; with the power cut then.
fn written(seed: u64) -> Pair {
    let pair = Pair::new(seed, 1_000_000);
    let device = pair.opened();
    for sector in 0..30 {
        write(&device, sector, sector);
        if sector == 13 {
            device.sync().expect("sync");
        }
    }
    device.sync().expect("sync");
    pair.crash();
    pair
}

#[test]
fn most_writes_take_no_sector_more_than_they_have() {
    let device = Pair::new(1, 1_000_000).opened();
    let before = device.info().counts.ssd_sectors;
    for sector in 0..30 {
        write(&device, sector, sector);
    }
    assert_eq!(device.info().counts.ssd_sectors - before, 30 + 5, "every sixth has a header, which lists five");
    device.sync().expect("sync");
    assert_eq!(device.info().counts.ssd_sectors - before, 30 + 5 + 1, "and a mark");
    write(&device, 1, 1);
    device.sync().expect("sync");
    assert_eq!(device.info().counts.ssd_sectors - before, 30 + 5 + 1 + 3, "its header comes with the sync");
}

#[test]
fn no_hurt_sector_of_a_log_takes_more_than_itself() {
    let headers = written(1).sectors_with(Side::Ssd, b"CLAYTREC");
    let last = *headers.last().expect("there are some");
    let mut lost = 0;
    for hurt in 1..=last {
        for is_lost in [false, true] {
            let pair = written(1);
            if is_lost {
                pair.ssd.make_lost(hurt..hurt + 1)
            } else {
                pair.ssd.flip_bit(Sector(hurt), 99)
            }
            let device = pair.open().unwrap_or_else(|error| panic!("sector {hurt}: {error}"));
            let wrong: Vec<_> = (0..30).map(|sector| (sector, content(&device, sector))).collect();
            let wrong: Vec<_> =
                wrong.iter().filter(|(sector, found)| *found != Some(sector_pattern(*sector, 1))).collect();
            let of_headers = headers.contains(&hurt);
            assert!(wrong.len() <= usize::from(!of_headers), "sector {hurt}: {} are wrong", wrong.len());
            assert!(wrong.iter().all(|(_, found)| found.is_none()), "sector {hurt}: stale");
            lost += wrong.len();
        }
    }
    assert_eq!(lost, 2 * 30, "each payload once by either");
}

#[test]
fn what_no_header_lists_when_the_process_dies_was_not_promised_and_the_next_take_its_place() {
    for written in 1..12 {
        let pair = Pair::new(1, 1_000_000);
        let device = pair.opened();
        (0..12).for_each(|sector| write(&device, sector, sector));
        device.sync().expect("sync");
        (0..written).for_each(|sector| write(&device, sector, 100 + sector));
        drop(device);
        let device = pair.opened();
        for sector in 0..12 {
            // Every sixth has a header, which lists those before it.
            let is_listed = sector < written / 6 * 6;
            let seed = if is_listed { 100 + sector } else { sector };
            assert_eq!(content(&device, sector), Some(sector_pattern(seed, 1)), "sector {sector} of {written}");
        }
        (0..3).for_each(|sector| write(&device, sector, 200 + sector));
        device.sync().expect("sync");
        pair.crash();
        let device = pair.opened();
        (0..3).for_each(|sector| assert_eq!(content(&device, sector), Some(sector_pattern(200 + sector, 1))));
    }
}

#[test]
fn content_that_begins_as_a_header_does_is_behind_one() {
    let pair = Pair::new(1, 1_000_000);
    let device = pair.opened();
    write(&device, 1, 1);
    device.sync().expect("sync");
    // What somebody copied who could read the log, and wrote to the pair: it comes to lie where it says that it is, of a later sequence.
    let headers = pair.sectors_with(Side::Ssd, b"CLAYTREC");
    let next = headers.last().expect("there are some") + 1;
    let id = device.info().id;
    let state = device.state();
    let forged = Header {
        kind: Kind::Data,
        side: Side::Ssd,
        seq: state.next_seq + 50,
        place: next - 1,
        generation: 1,
        mark: 0,
        replaces: 0,
        extents: vec![SectorRange { first: Sector(1), sectors: 1 }],
        crcs: sector_crcs(&sector_pattern(2, 1)),
        list: None,
        group: Vec::new(),
    };
    drop(state);
    let bytes = [forged.encode(id), sector_pattern(2, 1)].concat();
    device.write(Sector(40), &bytes).expect("write");
    device.sync().expect("sync");
    pair.crash();
    let device = pair.opened();
    assert_eq!(content(&device, 1), Some(sector_pattern(1, 1)));
    assert_eq!(content(&device, 40).as_deref(), Some(&bytes[..SECTOR_BYTES]));
    assert_eq!(pair.ssd.content(Sector(next + 1)).as_deref(), Some(&bytes[..SECTOR_BYTES]), "its header is before it");
}

#[test]
fn a_pair_of_a_version_before_opens_and_is_of_this_one_then() {
    [1u16, 2, 3].into_iter().for_each(opens_a_pair_of_version);
}

fn version(device: &Arc<dyn Device>, slot: Sector) -> (u16, Vec<u8>) {
    let mut bytes = vec![0; SECTOR_BYTES];
    assert_eq!(device.read(slot, &mut bytes, Effort::Retry).expect("read"), []);
    (u16::from_le_bytes([bytes[8], bytes[9]]), bytes)
}

/// Makes a device's superblocks say that they are of this version.
pub fn set_version(device: &Arc<dyn Device>, to: u16) {
    for slot in crate::superblock::slots(&**device) {
        let (_, mut bytes) = version(device, slot);
        put(&mut bytes, 8, to.to_le_bytes());
        let crc = crc32c_without(&bytes, 12);
        put(&mut bytes, 12, crc.to_le_bytes());
        device.write(slot, &bytes).expect("write");
    }
    device.sync().expect("sync");
}

fn opens_a_pair_of_version(old: u16) {
    let pair = Pair::new(1, 1_000_000);
    let id = pair.opened().info().id;
    // As version 1 writes: a header before each payload, and superblocks that say so.
    let devices = [(Side::Ssd, pair.ssd.attach()), (Side::Hdd, pair.hdd.attach())];
    let (_, superblock) = crate::superblock::newest(&*devices[0].1).expect("read").expect("it has one");
    let seq = first_of(superblock.epoch) + 5;
    let payload = sector_pattern(7, 2);
    let header = Header {
        kind: Kind::Data,
        side: Side::Ssd,
        seq,
        place: 20,
        generation: superblock.generation,
        mark: 0,
        replaces: 0,
        extents: vec![SectorRange { first: Sector(3), sectors: 2 }],
        crcs: sector_crcs(&payload),
        list: None,
        group: Vec::new(),
    };
    devices[0].1.write(Sector(21), &[header.encode(id), payload.clone()].concat()).expect("write");
    for (_, device) in &devices {
        for slot in crate::superblock::slots(&**device) {
            let (found, _) = version(device, slot);
            assert_eq!(found, VERSION);
        }
        set_version(device, old);
    }
    let device = pair.opened();
    let read = |device: &TieredDevice| [content(device, 3), content(device, 4)].map(Option::unwrap).concat();
    assert_eq!(read(&device), payload);
    for (side, device) in &devices {
        for slot in crate::superblock::slots(&**device) {
            assert_eq!(version(device, slot).0, VERSION, "{side:?}");
        }
    }
    pair.crash();
    assert_eq!(read(&pair.opened()), payload);
}
