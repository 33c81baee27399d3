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
//! 3. One that was parsed has its sequences in order, within its bounds, in logs where they can be.
//!
//! The format: docs/formats/tiered-device.md.

use claystone_env::SectorRange;

use crate::fields::{put, u16_at, u32_at, u64_at};
use crate::record::{EXTENT_BYTES, Entry, Kind, can_be, put_tables, sectors_of, table_bytes, tables};
use crate::superblock::{RECORD_SECTORS, SIDES, Side};

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

    /// How long it is in an index.
    pub fn bytes(&self) -> usize {
        let part = |entry: &Entry| PART_BYTES + table_bytes(entry.extents.len(), entry.crcs.len());
        ITEM_BYTES + table_bytes(self.told.len(), 0) + self.entries.iter().map(part).sum::<usize>()
    }

    fn encode(&self, index: &mut Vec<u8>) {
        let mut head = [0; ITEM_BYTES];
        put(&mut head, 0, self.seq.to_le_bytes());
        put(&mut head, 8, self.place.to_le_bytes());
        put(&mut head, 16, self.replaces.to_le_bytes());
        put(&mut head, 24, self.record_sectors.to_le_bytes());
        head[28] = self.side as u8;
        head[29] = self.kind as u8;
        put(&mut head, 30, (self.entries.len() as u16).to_le_bytes());
        put(&mut head, 32, (self.told.len() as u16).to_le_bytes());
        index.extend_from_slice(&head);
        put_tables(index, &self.told, &[]);
        for entry in &self.entries {
            let mut head = [0; PART_BYTES];
            put(&mut head, 0, entry.at.to_le_bytes());
            put(&mut head, 4, (entry.crcs.len() as u32).to_le_bytes());
            put(&mut head, 8, (entry.extents.len() as u16).to_le_bytes());
            index.extend_from_slice(&head);
            put_tables(index, &entry.extents, &entry.crcs);
        }
    }

    /// The first one of some, and what is behind it.
    fn parse(bytes: &[u8]) -> Option<(Item, &[u8])> {
        let (head, mut rest) = bytes.split_at_checked(ITEM_BYTES)?;
        let (parts, told) = (u16_at(head, 30), usize::from(u16_at(head, 32)));
        let mut item = Item {
            seq: u64_at(head, 0),
            place: u64_at(head, 8),
            replaces: u64_at(head, 16),
            side: *SIDES.get(usize::from(head[28]))?,
            kind: Kind::of(head[29])?,
            record_sectors: u32_at(head, 24),
            told: Vec::new(),
            entries: Vec::new(),
        };
        (item.told, _) = tables(rest, told, 0)?;
        rest = &rest[EXTENT_BYTES * told..];
        for _ in 0..parts {
            let (head, behind) = rest.split_at_checked(PART_BYTES)?;
            let (sectors, extents) = (u32_at(head, 4) as usize, usize::from(u16_at(head, 8)));
            if u16_at(head, 10) != 0 || sectors > usize::from(*RECORD_SECTORS.end()) {
                return None;
            }
            rest = behind.get(table_bytes(extents, sectors)..)?;
            let (extents, crcs) = tables(behind, extents, sectors)?;
            let Item { seq, place, side, kind, record_sectors, .. } = item;
            item.entries.push(Entry { seq, place, at: u32_at(head, 0), side, kind, record_sectors, extents, crcs });
        }
        (u16_at(head, 34) == 0 && item.is_right()).then_some((item, rest))
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

impl Index {
    /// Bytes of its payload.
    pub fn encode(&self) -> Vec<u8> {
        let before = self.before.unwrap_or(IndexAt { seq: 0, place: 0 });
        let mut bytes = Vec::with_capacity(HEAD_BYTES + self.items.iter().map(Item::bytes).sum::<usize>());
        for number in [self.to, before.seq, before.place] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        self.items.iter().for_each(|item| item.encode(&mut bytes));
        bytes
    }

    /// The index of a payload, whose header says that it begins `from` and has the sequence `seq`; `None` if it is none.
    pub fn parse(bytes: &[u8], from: u64, seq: u64) -> Option<Index> {
        let (head, mut rest) = bytes.split_at_checked(HEAD_BYTES)?;
        let before = IndexAt { seq: u64_at(head, 8), place: u64_at(head, 16) };
        let before = (before != IndexAt { seq: 0, place: 0 }).then_some(before);
        let mut index = Index { from, to: u64_at(head, 0), before, items: Vec::new() };
        let mut next = from;
        while !rest.is_empty() {
            let (item, behind) = Item::parse(rest)?;
            if item.seq < next || item.seq > index.to {
                return None;
            }
            next = item.seq + 1;
            index.items.push(item);
            rest = behind;
        }
        let is_behind = index.before.is_none_or(|before| before.seq < seq);
        (from <= index.to && index.to < seq && can_be(seq) && is_behind).then_some(index)
    }
}

/// Bytes of a payload before its items,
pub const HEAD_BYTES: usize = 24;
/// of an item before its tables,
const ITEM_BYTES: usize = 36;
/// and of a part of it.
const PART_BYTES: usize = 12;

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
        assert_eq!([24, 32, 40].map(|at| u64_at(&bytes, at)), [first_of(2) + 1, 10, 0]);
        assert_eq!((u32_at(&bytes, 48), bytes[52], bytes[53]), (3, 1, 1));
        assert_eq!((u16_at(&bytes, 54), u16_at(&bytes, 56), u16_at(&bytes, 58)), (1, 2, 0));
        assert_eq!((u64_at(&bytes, 60), u32_at(&bytes, 68), u64_at(&bytes, 72)), (1000, 2, 5));
        assert_eq!((u32_at(&bytes, 84), u32_at(&bytes, 88), u16_at(&bytes, 92)), (1, 2, 2));
        assert_eq!((u64_at(&bytes, 96), u32_at(&bytes, 120)), (1001, 0xaabb_ccdd));
        assert_eq!(bytes.len(), HEAD_BYTES + index.items.iter().map(Item::bytes).sum::<usize>());
        assert_eq!(crc32c(&bytes), GOLDEN);
        assert_eq!(Index::parse(&bytes, index.from, index.to + 1), Some(index));
    }

    /// Of all bytes of the example.
    const GOLDEN: u32 = 1_479_370_756;

    #[test]
    fn one_that_is_cut_has_fewer_items_or_is_none() {
        let (index, bytes) = (index(), index().encode());
        let mut ends = vec![HEAD_BYTES];
        index.items.iter().for_each(|item| ends.push(ends[ends.len() - 1] + item.bytes()));
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
