//! An index: of the sequences from one to another, what both logs hold. So an opening need not read the logs for it.
//!
//! ```text
//! superblock -> newest index -> the one before -> ... until one begins at the floor or below; behind the last record that they have, the logs are read
//! ```
//!
//! Invariants:
//! 1. An index is written when all that it lists is durable and in marks; and the superblock names it when it is durable itself. It says of
//!    its sequences what marks say, and no other: those that it lists count, and no others do.
//! 2. It begins behind the one that it names, so a chain says everything once.
//! 3. One that was parsed has its sequences in order, within its bounds, in logs where they can be; and is put as the same bytes again.
//!
//! Each record is told from the one before: most begin where that ends in their log, and are of the next sequence, and then nothing is said of either. So
//! a record of 4 KiB takes some 12 bytes, 4 of them its checksum.
//!
//! The format: docs/formats/tiered-device.md.

use claystone_env::{Sector, SectorRange};

use crate::fields::{put, u64_at};
use crate::record::{Entry, Kind, can_be, put_tables, sectors_of, tables, told};
use crate::superblock::{NO_INDEX, RECORD_SECTORS, SIDES, Side};
use crate::varint::{put_from, put_varint, take_from, take_varint};

/// Where an index is, in the solid-state drive's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexAt {
    /// Its sequence.
    pub seq: u64,
    /// Its place.
    pub place: u64,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// The first sequence that it is of,
    pub from: u64,
    /// and the last.
    pub to: u64,
    /// The index of what is before `from`, while that is above the floor.
    pub before: Option<IndexAt>,
    /// All records of these sequences whose places are taken, in their order.
    pub items: Vec<Item>,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its sequence.
    pub seq: u64,
    /// Where it is.
    pub place: u64,
    /// As [`Header::replaces`](crate::record::Header::replaces).
    pub replaces: u64,
    /// In which log.
    pub side: Side,
    /// What it means.
    pub kind: Kind,
    /// Sectors of its payload.
    pub record_sectors: u32,
    /// What it had when it was written, of data in the hard disk's log: it may have been copied, and count no more.
    pub told: Vec<SectorRange>,
    /// What of it counts: nothing, all, or what was whole after a power cut.
    pub entries: Vec<Entry>,
}

impl Item {
    /// Sectors of the record.
    pub fn sectors(&self) -> u64 {
        self.kind.header_sectors() + u64::from(self.record_sectors)
    }

    /// Whether all of it counts, as most records do.
    fn is_whole(&self) -> bool {
        let [entry] = &self.entries[..] else { return false };
        self.kind.has_content()
            && entry.at == 0
            && entry.crcs.len() as u64 == u64::from(self.record_sectors)
            && sectors_of(&entry.extents) == Some(self.record_sectors.into())
            && self.told == told(self.side, self.kind, &entry.extents)
    }

    fn entry(&self, at: u32, extents: Vec<SectorRange>, crcs: Vec<u32>) -> Entry {
        let Item { seq, place, side, kind, record_sectors, .. } = *self;
        Entry { seq, place, at, side, kind, record_sectors, extents, crcs }
    }

    fn is_right(&self) -> bool {
        let fits = |entry: &Entry| {
            let sectors = entry.crcs.len() as u64;
            let held = sectors_of(&entry.extents);
            let end = u64::from(entry.at) + sectors;
            let is_held = if self.kind.has_content() { held == Some(sectors) } else { held.is_some() && sectors == 0 };
            is_held && end <= u64::from(self.record_sectors)
        };
        let is_there = match self.kind {
            // Many writes are one record in the hard disk's log: there each has a header.
            Kind::Bare | Kind::Index => self.side == Side::Ssd,
            Kind::Data | Kind::Padding | Kind::Mark | Kind::Void | Kind::Lost => true,
        };
        let told = sectors_of(&self.told) == Some(self.record_sectors.into()) && self.side == Side::Hdd;
        is_there && (self.told.is_empty() || told) && self.entries.iter().all(fits)
    }
}

/// Where the items before one lead to: what it says is how it differs.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// The next sequence,
    seq: u64,
    /// the next place in each log,
    places: [u64; 2],
    /// and the next sector of the home.
    home: u64,
}

impl Run {
    /// Before the first item.
    fn new(from: u64) -> Run {
        Run { seq: from, places: [0; 2], home: 0 }
    }

    fn flags(&self, item: &Item) -> u8 {
        let flag = |is_set, flag: u8| if is_set { flag } else { 0 };
        item.kind as u8
            | flag(item.side == Side::Hdd, OF_HDD)
            | flag(item.seq != self.seq, LATER)
            | flag(item.place != self.places[item.side as usize], ELSEWHERE)
            | flag(item.replaces != 0, REPLACES)
            | flag(!item.is_whole(), IN_PARTS)
    }

    fn put(&mut self, item: &Item, bytes: &mut Vec<u8>) {
        let flags = self.flags(item);
        bytes.push(flags);
        if flags & LATER != 0 {
            put_varint(bytes, item.seq.wrapping_sub(self.seq));
        }
        if flags & ELSEWHERE != 0 {
            put_from(bytes, self.places[item.side as usize], item.place);
        }
        if flags & REPLACES != 0 {
            put_from(bytes, item.seq, item.replaces);
        }
        let mut next = self.first_of(item);
        if flags & IN_PARTS != 0 {
            put_varint(bytes, item.record_sectors.into());
            put_extents(bytes, &mut next, &item.told);
            put_varint(bytes, item.entries.len() as u64);
        }
        for entry in &item.entries {
            if flags & IN_PARTS != 0 {
                put_varint(bytes, entry.at.into());
                put_varint(bytes, entry.crcs.len() as u64);
            }
            put_extents(bytes, &mut next, &entry.extents);
            put_tables(bytes, &[], &entry.crcs);
        }
        self.pass(item, next);
    }

    /// Takes the first item off some bytes.
    fn take(&mut self, bytes: &mut &[u8]) -> Option<Item> {
        let (flags, rest) = bytes.split_first()?;
        let (flags, side) = (*flags, SIDES[usize::from(flags & OF_HDD != 0)]);
        *bytes = rest;
        let kind = Kind::of(flags & KIND)?;
        let ahead = if flags & LATER == 0 { 0 } else { take_varint(bytes)? };
        let seq = self.seq.checked_add(ahead)?;
        let next = self.places[side as usize];
        let place = if flags & ELSEWHERE == 0 { next } else { take_from(bytes, next)? };
        let replaces = if flags & REPLACES == 0 { 0 } else { take_from(bytes, seq)? };
        let mut item =
            Item { seq, place, replaces, side, kind, record_sectors: 0, told: Vec::new(), entries: Vec::new() };
        let mut next = self.first_of(&item);
        if flags & IN_PARTS == 0 {
            let extents = take_extents(bytes, &mut next)?;
            let crcs = take_crcs(bytes, sectors_of(&extents)?)?;
            item.record_sectors = crcs.len() as u32;
            item.told = told(side, kind, &extents);
            item.entries.push(item.entry(0, extents, crcs));
        } else {
            item.record_sectors = take_varint(bytes)?.try_into().ok()?;
            item.told = take_extents(bytes, &mut next)?;
            for _ in 0..take_varint(bytes)? {
                let (at, sectors) = (take_varint(bytes)?.try_into().ok()?, take_varint(bytes)?);
                let extents = take_extents(bytes, &mut next)?;
                item.entries.push(item.entry(at, extents, take_crcs(bytes, sectors)?));
            }
        }
        let is_it = item.is_right() && self.flags(&item) == flags;
        self.pass(&item, next);
        is_it.then_some(item)
    }

    /// From where the first extent of an item is told. Those of a void record are sequences before its own.
    fn first_of(&self, item: &Item) -> u64 {
        if item.kind == Kind::Void { item.seq } else { self.home }
    }

    /// Goes on behind an item whose extents lead to `next`.
    fn pass(&mut self, item: &Item, next: u64) {
        self.seq = item.seq.wrapping_add(1);
        self.places[item.side as usize] = item.place.wrapping_add(item.sectors());
        if item.kind != Kind::Void {
            self.home = next;
        }
    }
}

fn put_extents(bytes: &mut Vec<u8>, next: &mut u64, extents: &[SectorRange]) {
    put_varint(bytes, extents.len() as u64);
    for extent in extents {
        put_from(bytes, *next, extent.first.0);
        put_varint(bytes, extent.sectors);
        *next = extent.first.0.wrapping_add(extent.sectors);
    }
}

fn take_extents(bytes: &mut &[u8], next: &mut u64) -> Option<Vec<SectorRange>> {
    let mut extents = Vec::new();
    // A mark has two bytes for how many they are,
    for _ in 0..u16::try_from(take_varint(bytes)?).ok()? {
        let first = take_from(bytes, *next)?;
        // and four for how long each is.
        let sectors = u32::try_from(take_varint(bytes)?).ok()?.into();
        extents.push(SectorRange { first: Sector(first), sectors });
        *next = first.wrapping_add(sectors);
    }
    Some(extents)
}

fn take_crcs(bytes: &mut &[u8], sectors: u64) -> Option<Vec<u32>> {
    if sectors > u64::from(*RECORD_SECTORS.end()) {
        return None;
    }
    let (_, crcs) = tables(bytes, 0, sectors as usize)?;
    *bytes = &bytes[4 * crcs.len()..];
    Some(crcs)
}

/// What puts an index together, item by item.
pub struct Writer {
    payload: Vec<u8>,
    run: Run,
}

impl Writer {
    /// Of an index of these sequences on.
    pub fn new(from: u64, before: Option<IndexAt>) -> Writer {
        let before = before.unwrap_or(NO_INDEX);
        let mut payload = vec![0; TO_BYTES];
        payload.extend_from_slice(&before.seq.to_le_bytes());
        payload.extend_from_slice(&before.place.to_le_bytes());
        Writer { payload, run: Run::new(from) }
    }

    /// Puts one more item, if the payload has no more bytes than so many then. Returns whether it did.
    pub fn push(&mut self, item: &Item, bytes_max: usize) -> bool {
        let (bytes, run) = (self.payload.len(), self.run);
        self.run.put(item, &mut self.payload);
        let fits = self.payload.len() <= bytes_max;
        if !fits {
            self.payload.truncate(bytes);
            self.run = run;
        }
        fits
    }

    /// The payload of an index of the sequences up to this one.
    pub fn end(mut self, to: u64) -> Vec<u8> {
        put(&mut self.payload, 0, to.to_le_bytes());
        self.payload
    }
}

impl Index {
    /// Its payload.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(self.from, self.before);
        self.items.iter().for_each(|item| assert!(writer.push(item, usize::MAX), "there is room"));
        writer.end(self.to)
    }

    /// The index of a payload, whose header says that it begins `from` and has the sequence `seq`; `None` if it is none.
    pub fn parse(bytes: &[u8], from: u64, seq: u64) -> Option<Index> {
        let (head, mut rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let before = Some(IndexAt { seq: u64_at(head, 8), place: u64_at(head, 16) }).filter(|at| *at != NO_INDEX);
        let mut index = Index { from, to: u64_at(head, 0), before, items: Vec::new() };
        let mut run = Run::new(from);
        while !rest.is_empty() {
            let item = run.take(&mut rest)?;
            if item.seq > index.to {
                return None;
            }
            index.items.push(item);
        }
        let is_behind = index.before.is_none_or(|before| before.seq < seq);
        (from <= index.to && index.to < seq && can_be(seq) && is_behind).then_some(index)
    }
}

/// Bytes of a payload before its items,
const HEAD_BYTES: usize = 24;
/// and those of them that say how far it goes.
const TO_BYTES: usize = 8;
/// Of an item's first byte: its kind,
const KIND: u8 = 7;
/// that it is in the hard disk's log,
const OF_HDD: u8 = 1 << 3;
/// that it is not of the next sequence,
const LATER: u8 = 1 << 4;
/// that it is not behind the item before it in its log,
const ELSEWHERE: u8 = 1 << 5;
/// that it stands for another record,
const REPLACES: u8 = 1 << 6;
/// and that not all of it counts, or it has no content.
const IN_PARTS: u8 = 1 << 7;

#[cfg(test)]
pub mod tests {
    use claystone_env::Sector;

    use super::*;
    use crate::fields::crc32c;
    use crate::record::first_of;

    fn range(first: u64, sectors: u64) -> SectorRange {
        SectorRange { first: Sector(first), sectors }
    }

    /// One of everything.
    pub fn index() -> Index {
        let seq = |number| first_of(2) + number;
        let item = |number, side, kind, record_sectors| Item {
            seq: seq(number),
            place: 10 * number,
            replaces: 0,
            side,
            kind,
            record_sectors,
            told: Vec::new(),
            entries: Vec::new(),
        };
        let entry = |item: &Item, at, extents: Vec<SectorRange>, crcs: Vec<u32>| {
            let Item { seq, place, side, kind, record_sectors, .. } = *item;
            vec![Entry { seq, place, at, side, kind, record_sectors, extents, crcs }]
        };
        let mut items = vec![
            item(1, Side::Hdd, Kind::Data, 3),
            item(2, Side::Hdd, Kind::Padding, 7),
            item(3, Side::Ssd, Kind::Bare, 1),
            item(5, Side::Ssd, Kind::Void, 0),
            item(6, Side::Ssd, Kind::Mark, 2),
            item(7, Side::Ssd, Kind::Lost, 0),
            item(8, Side::Ssd, Kind::Index, 1),
        ];
        items[0].told = vec![range(1000, 2), range(5, 1)];
        items[0].entries = entry(&items[0], 1, vec![range(1001, 1), range(5, 1)], vec![0xaabb_ccdd, 3]);
        items[2].replaces = seq(1);
        items[2].entries = entry(&items[2], 0, vec![range(1000, 1)], vec![4]);
        items[3].entries = entry(&items[3], 0, vec![range(seq(2), 1)], vec![]);
        items[5].entries = entry(&items[5], 0, vec![range(77, 9)], vec![]);
        Index { from: seq(0), to: seq(8), before: Some(IndexAt { seq: first_of(1) + 4, place: 30 }), items }
    }

    #[test]
    fn the_bytes_are_as_the_format_says() {
        let (index, bytes) = (index(), index().encode());
        assert_eq!([0, 8, 16].map(|at| u64_at(&bytes, at)), [first_of(2) + 8, first_of(1) + 4, 30]);
        // In parts, elsewhere than at 0, one later than the first one, in the hard disk's log, data; 10 is 20 if it may be less.
        let (first, rest) = bytes[HEAD_BYTES..].split_at(28);
        assert_eq!(first[..4], [0xb9, 1, 20, 3]);
        assert_eq!(first[4..11], [2, 0xd0, 0x0f, 2, 0xc9, 0x0f, 1], "1000 from 0, 2 of them; 5 from 1002");
        assert_eq!(first[11..14], [1, 1, 2], "one part, behind one sector, of two");
        assert_eq!(first[14..21], [2, 0xc6, 0x0f, 1, 0xc9, 0x0f, 1], "1001 from 6; 5 from 1002");
        assert_eq!(first[21..], [0xdd, 0xcc, 0xbb, 0xaa, 3, 0, 0], "and one byte more");
        // Padding of 7 sectors, at 20 instead of 14; and a bare record that stands for the one two before it.
        assert_eq!(rest[1..6], [0xaa, 12, 7, 0, 0]);
        assert_eq!(rest[6..16], [0x66, 60, 3, 1, 0xc4, 0x0f, 1, 4, 0, 0]);
        assert_eq!((bytes.len(), crc32c(&bytes)), GOLDEN);
        assert_eq!(Index::parse(&bytes, index.from, index.to + 1), Some(index));
    }

    /// Of all bytes of the example.
    const GOLDEN: (usize, u32) = (101, 2_007_377_636);

    #[test]
    fn a_record_behind_another_takes_its_extent_and_its_checksum() {
        let from = first_of(3);
        let record = |number| {
            let mut item =
                Item { seq: from + number, place: 70 + number, record_sectors: 1, ..index().items[2].clone() };
            item.replaces = 0;
            item.entries = vec![item.entry(0, vec![range(1_000_000 + 1000 * number, 1)], vec![7])];
            item
        };
        let mut writer = Writer::new(from, None);
        let lens = [0, 1, 2].map(|number| {
            assert!(writer.push(&record(number), usize::MAX));
            writer.payload.len()
        });
        assert_eq!(
            [lens[1] - lens[0], lens[2] - lens[1]],
            [9; 2],
            "what it is, one extent of two bytes and one, and its checksum"
        );
        // What has no room changes nothing.
        assert!(!writer.push(&record(3), lens[2] + 8));
        assert!(writer.push(&record(3), lens[2] + 9));
        let index = Index { from, to: from + 3, before: None, items: (0..4).map(record).collect() };
        assert_eq!(writer.end(index.to), index.encode());
        assert_eq!(Index::parse(&index.encode(), from, from + 4), Some(index));
    }

    #[test]
    fn one_that_is_cut_has_fewer_items_or_is_none() {
        let (index, bytes) = (index(), index().encode());
        let cut = |items: usize| Index { items: index.items[..items].to_vec(), ..index.clone() };
        let ends: Vec<usize> = (0..=index.items.len()).map(|items| cut(items).encode().len()).collect();
        for end in 0..bytes.len() {
            let found = Index::parse(&bytes[..end], index.from, index.to + 1);
            assert_eq!(
                found.map(|found| found.items.len()),
                ends.iter().position(|known| *known == end),
                "{end} bytes"
            );
        }
    }

    #[test]
    fn what_is_parsed_is_put_as_the_same_bytes_again() {
        let (index, bytes) = (index(), index().encode());
        for at in 0..bytes.len() {
            for change in 1..=255 {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                if let Some(other) = Index::parse(&changed, index.from, index.to + 1) {
                    assert!(other.encode() == changed, "byte {at}, {change:02x}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_is_no_index() {
        let wrong = |change: &dyn Fn(&mut Index)| {
            let mut wrong = index();
            change(&mut wrong);
            assert_eq!(Index::parse(&wrong.encode(), wrong.from, first_of(2) + 9), None, "{wrong:?}");
        };
        wrong(&|index| index.from = first_of(2) + 2);
        wrong(&|index| index.to = first_of(2) + 7);
        wrong(&|index| index.to = first_of(2) + 9);
        wrong(&|index| index.before = Some(IndexAt { seq: first_of(2) + 9, place: 1 }));
        wrong(&|index| index.items.swap(0, 1));
        wrong(&|index| index.items[2].side = Side::Hdd);
        wrong(&|index| index.items[0].told[1].sectors = 0);
        wrong(&|index| index.items[0].told.truncate(1));
        wrong(&|index| index.items[0].record_sectors = 2);
        wrong(&|index| index.items[0].entries[0].extents[0].sectors = 2);
        wrong(&|index| index.items[5].entries[0].extents[0].sectors = 0);
    }
}
