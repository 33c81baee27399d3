//! What the fuzz targets feed with bytes: the parsers of what lies on a pair, and pairs whose logs hold anything.
//!
//! Invariants:
//! 1. Nothing here panics but for an error of the parsers, or of what is made of what they took.
//! 2. What a parser takes, it gives out again as the same, so a wrong field cannot hide.
//!
//! Checksums are made right first: else no bytes would get past them.

use std::sync::Arc;

use claystone_env::testing::MemoryDevice;
use claystone_env::{Device, Effort, Moment, Random, SECTOR_BYTES, Sector};

use crate::fields::{crc32c_without, put, u64_at};
use crate::index::{Index, IndexAt};
use crate::record::{Entry, Header, Kind, List, sector_crcs};
use crate::superblock::{PairId, SIDES, Side, Superblock, newest};
use crate::{TierFormat, TierTuning, TieredDevice};

/// A sector that begins with `bytes`; what is beyond one is left away.
fn sector(bytes: &[u8]) -> Vec<u8> {
    let mut sector = bytes[..bytes.len().min(SECTOR_BYTES)].to_vec();
    sector.resize(SECTOR_BYTES, 0);
    sector
}

/// A superblock.
///
/// # Panics
/// If the parser is wrong.
pub fn superblock(bytes: &[u8]) {
    let mut bytes = sector(bytes);
    put(&mut bytes, 0, *b"CLAYTIER");
    let crc = crc32c_without(&bytes, 12);
    put(&mut bytes, 12, crc.to_le_bytes());
    if let Ok((side, superblock)) = Superblock::parse(&bytes) {
        let again = superblock.encode(side);
        assert_eq!(Superblock::parse(&again), Ok((side, superblock)), "it comes out again");
    }
}

/// A header of a record, and the list of a mark.
///
/// # Panics
/// If a parser is wrong.
pub fn record(bytes: &[u8]) {
    let (id, side, place) = (PairId([7; 16]), SIDES[usize::from(bytes.first().is_some_and(|byte| byte % 2 == 1))], 5);
    let bytes = sealed(bytes, id, side as u8, place);
    if let Some(header) = Header::parse(&bytes, id, side, place) {
        let again = header.encode(id);
        assert_eq!(Header::parse(&again, id, side, place), Some(header), "it comes out again");
    }
    if let Some(entries) = Entry::parse_all(&bytes[1..]) {
        let mut again = Vec::new();
        entries.iter().for_each(|entry| entry.encode(&mut again));
        assert_eq!(again, bytes[1..], "it comes out again");
    }
}

/// An index: the first two numbers of 8 bytes say where it begins, and its sequence.
///
/// # Panics
/// If the parser is wrong.
pub fn index(bytes: &[u8]) {
    let Some((head, payload)) = bytes.split_at_checked(16) else { return };
    let (from, seq) = (u64_at(head, 0), u64_at(head, 8));
    if let Some(index) = Index::parse(payload, from, seq) {
        assert_eq!(index.encode(), payload, "it comes out again");
    }
}

/// A sector that is a header of this place, if the rest of it is one.
fn sealed(bytes: &[u8], id: PairId, side: u8, place: u64) -> Vec<u8> {
    let mut bytes = sector(bytes);
    put(&mut bytes, 0, *b"CLAYTREC");
    bytes[13] = side;
    put(&mut bytes, 16, id.0);
    put(&mut bytes, 40, place.to_le_bytes());
    let crc = crc32c_without(&bytes, 8);
    put(&mut bytes, 8, crc.to_le_bytes());
    bytes
}

/// A pair whose logs hold these headers: it opens or not; and if it does, it reads, takes writes, brings all home and opens again.
///
/// Each header is given as its side and place, and its bytes from the kind on.
///
/// # Panics
/// If data from a device can make it panic, or a write that was synced is not there.
pub fn logs(headers: &[(bool, u8, &[u8])]) {
    let (pair, id) = Pair::new();
    for (is_hdd, place, of_header) in headers {
        let place = u64::from(*place) % LOG;
        let mut bytes = vec![0; 12];
        bytes.extend_from_slice(of_header);
        let device = if *is_hdd { &pair.hdd } else { &pair.ssd };
        let bytes = sealed(&bytes, id, u8::from(*is_hdd), place);
        device.write(Sector(1 + place), &bytes).expect("memory takes writes");
    }
    pair.goes_on();
}

/// The same of one whose superblock names an index with this payload.
///
/// # Panics
/// As [`logs`].
pub fn indexed(payload: &[u8]) {
    let (pair, id) = Pair::new();
    let (place, seq) = (LOG / 2, (2 << 40) + 9);
    let bytes = payload.len().min(16 * SECTOR_BYTES) as u32;
    let mut payload = payload[..bytes as usize].to_vec();
    payload.resize(payload.len().next_multiple_of(SECTOR_BYTES), 0);
    let header = Header {
        kind: Kind::Index,
        side: Side::Ssd,
        seq,
        place,
        generation: 1,
        mark: 0,
        replaces: 0,
        extents: Vec::new(),
        crcs: sector_crcs(&payload),
        list: Some(List { from: 1 << 40, bytes, inline: None }),
        group: Vec::new(),
    };
    pair.ssd.write(Sector(1 + place), &[header.encode(id), payload].concat()).expect("memory takes writes");
    let (side, superblock) = newest(&*pair.ssd).expect("memory reads").expect("it has one");
    let superblock = Superblock { generation: 2, index: Some(IndexAt { seq, place }), ..superblock };
    superblock.store(&*pair.ssd, side).expect("memory takes writes");
    pair.goes_on();
}

const LOG: u64 = 200;
const HOME: u64 = 30;

/// In memory.
struct Pair {
    hdd: Arc<dyn Device>,
    ssd: Arc<dyn Device>,
}

impl Pair {
    fn new() -> (Pair, PairId) {
        let hdd: Arc<dyn Device> = Arc::new(MemoryDevice::new(LOG + HOME + 2));
        let ssd: Arc<dyn Device> = Arc::new(MemoryDevice::new(LOG + 2));
        let format = TierFormat {
            hdd_log_sectors: Some(LOG),
            record_sectors_max: 8,
            unmarked_sectors_max: Some(40),
            ..TierFormat::default()
        };
        let id = TieredDevice::format(&*hdd, &*ssd, &format, &Sevens).expect("they are large enough");
        (Pair { hdd, ssd }, id)
    }

    /// Whatever lies in its logs.
    fn goes_on(&self) {
        let open = || {
            let now = Arc::new(Moment::default);
            TieredDevice::open(self.hdd.clone(), Some(self.ssd.clone()), now, TierTuning::default())
        };
        let Ok(device) = open() else { return };
        let read = |device: &TieredDevice| {
            let mut bytes = vec![0; HOME as usize * SECTOR_BYTES];
            let failed = device.read(Sector(0), &mut bytes, Effort::Retry).expect("memory reads");
            (failed, bytes)
        };
        let found = read(&device);
        drop(device);
        let Ok(device) = open() else { panic!("it was opened before") };
        assert!(read(&device) == found, "what was found stays so");
        device.write(Sector(3), &[9; SECTOR_BYTES]).expect("memory takes writes");
        device.sync().expect("memory syncs");
        while device.drain().expect("memory does").more {}
        drop(device);
        let device = open().expect("it was opened before");
        let (failed, bytes) = read(&device);
        assert!(failed.iter().all(|failed| failed.sector != Sector(3)), "it was written");
        assert!(bytes[3 * SECTOR_BYTES..][..SECTOR_BYTES] == [9; SECTOR_BYTES], "it was synced");
    }
}

/// No chance at all: the id of a pair is known.
struct Sevens;

impl Random for Sevens {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }

    fn fork(&self, _: &str) -> Arc<dyn Random> {
        Arc::new(Sevens)
    }
}

#[cfg(test)]
mod tests {
    use claystone_env::SectorRange;

    use super::*;
    use crate::record::Member;

    #[test]
    fn a_mark_that_lists_what_cannot_be_opens_no_pair_and_breaks_nothing() {
        let seq = (1u64 << 40) + 5;
        let entry = Entry {
            seq,
            place: u64::MAX - 3,
            at: 0,
            side: Side::Hdd,
            kind: Kind::Data,
            record_sectors: 1,
            extents: vec![SectorRange { first: Sector(4), sectors: 1 }],
            crcs: vec![1],
        };
        let far = [
            entry.clone(),
            Entry { place: 199, ..entry.clone() },
            Entry { place: 200, ..entry.clone() },
            Entry { place: 0, record_sectors: u32::MAX, ..entry.clone() },
            Entry { place: 0, extents: vec![SectorRange { first: Sector(30), sectors: 1 }], ..entry.clone() },
            Entry { place: 3, ..entry },
        ];
        for entry in far {
            let mut list = Vec::new();
            entry.encode(&mut list);
            let header = Header {
                kind: Kind::Mark,
                side: Side::Ssd,
                seq: seq + 1,
                place: 0,
                generation: 1,
                mark: 0,
                replaces: 0,
                extents: Vec::new(),
                crcs: Vec::new(),
                list: Some(List { from: 1 << 40, bytes: list.len() as u32, inline: Some(list) }),
                group: Vec::new(),
            };
            let bytes = header.encode(PairId([7; 16]));
            logs(&[(false, 0, &bytes[12..])]);
            // The same of a bare record, in a header behind it.
            let entry = Entry { side: Side::Ssd, kind: Kind::Bare, ..entry };
            for place in [0, 3, 4, 199] {
                let group = vec![Member { replaces: 0, entry: entry.clone() }];
                let header = Header { kind: Kind::Void, place, list: None, group, ..header.clone() };
                let bytes = header.encode(PairId([7; 16]));
                logs(&[(false, place as u8, &bytes[12..])]);
            }
        }
    }

    #[test]
    fn an_index_of_what_cannot_be_opens_a_pair_by_its_logs_and_breaks_nothing() {
        let index = crate::index::tests::index();
        let with = |change: &dyn Fn(&mut Index)| {
            let mut changed = index.clone();
            (changed.from, changed.before) = (1 << 40, None);
            change(&mut changed);
            indexed(&changed.encode());
        };
        with(&|_| {});
        for item in 0..index.items.len() {
            with(&|index| index.items[item].place = 0);
            with(&|index| index.items[item].place = 199);
            with(&|index| index.items[item].place = u64::MAX);
            with(&|index| index.items[item].record_sectors = u32::MAX);
            with(&|index| index.items[item].replaces = index.items[0].seq);
            with(&|index| index.items[item].side = Side::Hdd);
            with(&|index| index.items[item].entries.iter_mut().for_each(|entry| entry.extents[0].first = Sector(29)));
            with(&|index| drop(index.items.remove(item)));
        }
        with(&|index| index.before = Some(IndexAt { seq: 1 << 40, place: 100 }));
        with(&|index| index.to += 1);
    }

    #[test]
    fn any_bytes_are_parsed_or_not() {
        for bytes in [&[][..], &[1], &[1; 100], &[255; 5000]] {
            superblock(bytes);
            record(bytes);
            index(bytes);
            indexed(bytes);
        }
    }
}
