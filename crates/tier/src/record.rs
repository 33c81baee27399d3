//! A record of a log: a header that says what its payload is; and the lists that headers keep of others: a mark, of what is durable; an
//! index, of all from one sequence to another ([`Index`](crate::index::Index)); data and void records, of bare ones before them, which have no
//! header of their own.
//!
//! Invariants:
//! 1. A header that was parsed is of this pair, this log and this place, and its extents have as many sectors as its payload.
//! 2. A sequence is used for one record only, over both logs and all openings.
//! 3. A bare record's sequence is below that of the header that lists it, and no sector of it begins as a header does.
//!
//! The format: docs/formats/tiered-device.md.

use claystone_env::{SECTOR_BYTES, Sector, SectorRange};

use crate::fields::{array_at, crc32c, crc32c_without, put, u16_at, u32_at, u64_at};
use crate::superblock::{EPOCHS, PairId, RECORD_SECTORS, SIDES, Side};

/// What a record means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The payload is the content of the extents.
    Data = 1,
    /// Nothing.
    Padding = 2,
    /// Of the sequences that it covers, those in its list are there.
    Mark = 3,
    /// Records need not be there: the one that it replaces, and padding.
    Void = 4,
    /// What the extents held is lost.
    Lost = 5,
    /// As data, without a header of its own: one behind it lists it.
    Bare = 6,
    /// The payload lists what both logs hold of older sequences.
    Index = 7,
}

const KINDS: [Kind; 7] = [Kind::Data, Kind::Padding, Kind::Mark, Kind::Void, Kind::Lost, Kind::Bare, Kind::Index];

impl Kind {
    /// The one of a number.
    pub fn of(number: u8) -> Option<Kind> {
        KINDS.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Sectors of a record of this kind before its payload.
    pub fn header_sectors(self) -> u64 {
        match self {
            Kind::Bare => 0,
            Kind::Data | Kind::Padding | Kind::Mark | Kind::Void | Kind::Lost | Kind::Index => 1,
        }
    }

    /// Whether its payload is the content of its extents.
    pub fn has_content(self) -> bool {
        matches!(self, Kind::Data | Kind::Bare)
    }
}

/// A record without its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// What it means.
    pub kind: Kind,
    /// In which log it is.
    pub side: Side,
    /// Its sequence.
    pub seq: u64,
    /// Where in the log.
    pub place: u64,
    /// Of the superblock when it was written.
    pub generation: u64,
    /// The last mark that was durable then.
    pub mark: u64,
    /// Sequence of a record in the hard disk's log for which this one stands, and which need not be there; 0: none. Data and void records
    /// only.
    pub replaces: u64,
    /// Sectors of the home, of data and lost records; of a void one sequences.
    pub extents: Vec<SectorRange>,
    /// CRC of each sector of the payload.
    pub crcs: Vec<u32>,
    /// Of a mark or an index.
    pub list: Option<List>,
    /// Bare records before this one, of data and void records.
    pub group: Vec<Member>,
}

/// A bare record, as the header that lists it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// As [`Header::replaces`].
    pub replaces: u64,
    /// All of it.
    pub entry: Entry,
}

/// Of a mark or an index: what it covers, and where its list is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List {
    /// The first sequence that it covers.
    pub from: u64,
    /// Bytes of the list.
    pub bytes: u32,
    /// The list, if it is in the header; never an index's.
    pub inline: Option<Vec<u8>>,
}

impl Header {
    /// Sectors of the payload.
    pub fn payload_sectors(&self) -> u64 {
        self.crcs.len() as u64
    }

    /// Sectors of the record.
    pub fn sectors(&self) -> u64 {
        self.kind.header_sectors() + self.payload_sectors()
    }

    /// Its bytes, a sector.
    ///
    /// # Panics
    /// If it does not fit, or the record has none.
    pub fn encode(&self, id: PairId) -> Vec<u8> {
        assert!(self.kind != Kind::Bare, "a bare record has no header");
        let mut bytes = vec![0; SECTOR_BYTES];
        put(&mut bytes, 0, MAGIC);
        bytes[12] = self.kind as u8;
        bytes[13] = self.side as u8;
        put(&mut bytes, 14, (self.extents.len() as u16).to_le_bytes());
        put(&mut bytes, 16, id.0);
        put(&mut bytes, 32, self.seq.to_le_bytes());
        put(&mut bytes, 40, self.place.to_le_bytes());
        put(&mut bytes, 48, self.generation.to_le_bytes());
        put(&mut bytes, 56, self.mark.to_le_bytes());
        put(&mut bytes, 64, (self.crcs.len() as u32).to_le_bytes());
        put(&mut bytes, 72, self.replaces.to_le_bytes());
        let mut at = HEAD_BYTES;
        if let Some(list) = &self.list {
            put(&mut bytes, 68, list.bytes.to_le_bytes());
            put(&mut bytes, 72, list.from.to_le_bytes());
            if let Some(inline) = &list.inline {
                bytes[at..][..inline.len()].copy_from_slice(inline);
                at += inline.len();
            }
        }
        if !self.group.is_empty() {
            let mut group = Vec::new();
            self.group.iter().for_each(|member| member.encode(&mut group));
            put(&mut bytes, 68, (group.len() as u32).to_le_bytes());
            bytes[at..][..group.len()].copy_from_slice(&group);
            at += group.len();
        }
        let mut tables = Vec::with_capacity(table_bytes(self.extents.len(), self.crcs.len()));
        put_tables(&mut tables, &self.extents, &self.crcs);
        bytes[at..][..tables.len()].copy_from_slice(&tables);
        let crc = crc32c_without(&bytes, CRC_AT);
        put(&mut bytes, CRC_AT, crc.to_le_bytes());
        bytes
    }

    /// The header that a sector of a log holds, if it is one of this pair, this log and this place.
    pub fn parse(bytes: &[u8], id: PairId, side: Side, place: u64) -> Option<Header> {
        let is_header = bytes.len() == SECTOR_BYTES
            && bytes.starts_with(&MAGIC)
            && array_at::<16>(bytes, 16) == id.0
            && bytes[13] == side as u8
            && u64_at(bytes, 40) == place
            && crc32c_without(bytes, CRC_AT) == u32_at(bytes, CRC_AT);
        if !is_header {
            return None;
        }
        let kind = Kind::of(bytes[12]).filter(|kind| *kind != Kind::Bare)?;
        let sectors = u32_at(bytes, 64) as usize;
        if sectors > usize::from(*RECORD_SECTORS.end()) {
            return None;
        }
        let list_bytes = u32_at(bytes, 68);
        let (list, tables_at) = match kind {
            Kind::Mark if sectors == 0 => {
                let inline = bytes.get(HEAD_BYTES..HEAD_BYTES.checked_add(list_bytes as usize)?)?.to_vec();
                let end = HEAD_BYTES + inline.len();
                (Some(List { from: u64_at(bytes, 72), bytes: list_bytes, inline: Some(inline) }), end)
            }
            Kind::Mark | Kind::Index => {
                (Some(List { from: u64_at(bytes, 72), bytes: list_bytes, inline: None }), HEAD_BYTES)
            }
            Kind::Data | Kind::Void => (None, HEAD_BYTES.checked_add(list_bytes as usize)?),
            Kind::Padding | Kind::Lost | Kind::Bare => (None, HEAD_BYTES),
        };
        let group = match kind {
            Kind::Data | Kind::Void => Member::parse_all(bytes.get(HEAD_BYTES..tables_at)?)?,
            Kind::Padding | Kind::Mark | Kind::Lost | Kind::Bare | Kind::Index => Vec::new(),
        };
        let (extents, crcs) = tables(&bytes[tables_at..], u16_at(bytes, 14).into(), sectors)?;
        let header = Header {
            kind,
            side,
            seq: u64_at(bytes, 32),
            place,
            generation: u64_at(bytes, 48),
            mark: u64_at(bytes, 56),
            replaces: match kind {
                Kind::Data | Kind::Void => u64_at(bytes, 72),
                Kind::Padding | Kind::Mark | Kind::Lost | Kind::Bare | Kind::Index => 0,
            },
            extents,
            crcs,
            list,
            group,
        };
        header.is_right().then_some(header)
    }

    fn is_right(&self) -> bool {
        let held = sectors_of(&self.extents);
        let is_before = |member: &Member| member.entry.side == self.side && member.entry.seq < self.seq;
        if !can_be(self.seq) || !self.group.iter().all(is_before) {
            return false;
        }
        match self.kind {
            Kind::Data | Kind::Bare => held == Some(self.payload_sectors()) && !self.crcs.is_empty(),
            Kind::Padding => self.extents.is_empty(),
            Kind::Mark | Kind::Index => {
                let list = self.list.as_ref().map_or(0, |list| u64::from(list.bytes));
                let is_inline = self.kind == Kind::Mark && self.crcs.is_empty();
                let is_apart = list > 0 && list.div_ceil(SECTOR_BYTES as u64) == self.payload_sectors();
                self.extents.is_empty() && (is_inline || is_apart)
            }
            Kind::Void | Kind::Lost => held.is_some() && self.crcs.is_empty(),
        }
    }
}

/// Of a mark's list: payload sectors that follow each other in one record, or all of one that has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The record's sequence.
    pub seq: u64,
    /// Where the record is.
    pub place: u64,
    /// Payload sectors of it before these.
    pub at: u32,
    /// In which log.
    pub side: Side,
    /// What it means.
    pub kind: Kind,
    /// Payload sectors of the record, all.
    pub record_sectors: u32,
    /// Sectors of the home.
    pub extents: Vec<SectorRange>,
    /// CRC of each of the payload sectors.
    pub crcs: Vec<u32>,
}

impl Entry {
    /// Of a whole record.
    pub fn of(header: &Header) -> Entry {
        Entry {
            seq: header.seq,
            place: header.place,
            at: 0,
            side: header.side,
            kind: header.kind,
            record_sectors: header.crcs.len() as u32,
            extents: header.extents.clone(),
            crcs: header.crcs.clone(),
        }
    }

    /// Sectors of the whole record.
    pub fn sectors_of_record(&self) -> u64 {
        self.kind.header_sectors() + u64::from(self.record_sectors)
    }

    /// How long it is in a list.
    pub fn bytes(&self) -> usize {
        entry_bytes(self.extents.len(), self.crcs.len())
    }

    /// Puts it behind others.
    pub fn encode(&self, list: &mut Vec<u8>) {
        list.extend_from_slice(&self.seq.to_le_bytes());
        list.extend_from_slice(&self.place.to_le_bytes());
        list.extend_from_slice(&self.at.to_le_bytes());
        list.extend_from_slice(&(self.crcs.len() as u32).to_le_bytes());
        list.extend_from_slice(&[self.side as u8, self.kind as u8]);
        list.extend_from_slice(&(self.extents.len() as u16).to_le_bytes());
        list.extend_from_slice(&self.record_sectors.to_le_bytes());
        put_tables(list, &self.extents, &self.crcs);
    }

    /// The entries of a list; `None` if it is none.
    pub fn parse_all(mut list: &[u8]) -> Option<Vec<Entry>> {
        let mut entries = Vec::new();
        while !list.is_empty() {
            let (entry, rest) = Entry::parse(list)?;
            entries.push(entry);
            list = rest;
        }
        Some(entries)
    }

    /// The first one of a list, and what is behind it.
    fn parse(list: &[u8]) -> Option<(Entry, &[u8])> {
        let head = list.get(..ENTRY_BYTES)?;
        let (sectors, extents) = (u32_at(head, 20) as usize, usize::from(u16_at(head, 26)));
        if sectors > usize::from(*RECORD_SECTORS.end()) {
            return None;
        }
        let bytes = entry_bytes(extents, sectors);
        let (extents, crcs) = tables(list.get(ENTRY_BYTES..bytes)?, extents, sectors)?;
        let entry = Entry {
            seq: u64_at(head, 0),
            place: u64_at(head, 8),
            at: u32_at(head, 16),
            side: *SIDES.get(usize::from(head[24]))?,
            kind: Kind::of(head[25])?,
            record_sectors: u32_at(head, 28),
            extents,
            crcs,
        };
        let held = sectors_of(&entry.extents)?;
        let fits = !entry.kind.has_content() || held == sectors as u64;
        let end = u64::from(entry.at) + sectors as u64;
        // What goes to the hard disk has headers: there many writes are one record.
        let is_there = entry.kind != Kind::Bare || entry.side == Side::Ssd;
        let is_right = fits && is_there && end <= u64::from(entry.record_sectors) && can_be(entry.seq);
        is_right.then_some((entry, &list[bytes..]))
    }
}

impl Member {
    /// How long it is in a header.
    pub fn bytes(extents: usize, sectors: usize) -> usize {
        REPLACES_BYTES + entry_bytes(extents, sectors)
    }

    /// Of those of a header what the record's own header would say.
    pub fn header(&self, of: &Header) -> Header {
        let Entry { seq, place, side, kind, ref extents, ref crcs, .. } = self.entry;
        let (generation, mark, replaces) = (of.generation, of.mark, self.replaces);
        let (extents, crcs) = (extents.clone(), crcs.clone());
        Header { kind, side, seq, place, generation, mark, replaces, extents, crcs, list: None, group: Vec::new() }
    }

    fn encode(&self, group: &mut Vec<u8>) {
        group.extend_from_slice(&self.replaces.to_le_bytes());
        self.entry.encode(group);
    }

    /// Those of a group; `None` if it is none.
    fn parse_all(mut group: &[u8]) -> Option<Vec<Member>> {
        let mut members = Vec::new();
        while !group.is_empty() {
            let replaces = u64_at(group.get(..REPLACES_BYTES)?, 0);
            let (entry, rest) = Entry::parse(&group[REPLACES_BYTES..])?;
            let is_whole = entry.at == 0 && entry.crcs.len() == entry.record_sectors as usize;
            if entry.kind != Kind::Bare || !is_whole || entry.crcs.is_empty() {
                return None;
            }
            members.push(Member { replaces, entry });
            group = rest;
        }
        Some(members)
    }
}

/// Bytes of an entry of so many extents and sectors.
pub fn entry_bytes(extents: usize, sectors: usize) -> usize {
    ENTRY_BYTES + table_bytes(extents, sectors)
}

/// Whether a header has room for so many bytes of a group, and its own extents and sectors.
pub fn fits_header_with(group_bytes: usize, extents: usize, sectors: usize) -> bool {
    group_bytes + table_bytes(extents, sectors) <= TABLES_BYTES
}

/// Whether a header has room for so many extents and sectors.
pub fn fits_header(extents: usize, sectors: usize) -> bool {
    table_bytes(extents, sectors) <= TABLES_BYTES
}

/// Bytes of so many extents and checksums.
pub fn table_bytes(extents: usize, sectors: usize) -> usize {
    EXTENT_BYTES * extents + 4 * sectors
}

/// Puts extents and checksums behind others.
pub fn put_tables(bytes: &mut Vec<u8>, extents: &[SectorRange], crcs: &[u32]) {
    for extent in extents {
        bytes.extend_from_slice(&extent.first.0.to_le_bytes());
        let sectors = u32::try_from(extent.sectors).expect("an extent is short");
        bytes.extend_from_slice(&sectors.to_le_bytes());
    }
    for crc in crcs {
        bytes.extend_from_slice(&crc.to_le_bytes());
    }
}

/// So many extents and checksums, if there are so many bytes.
pub fn tables(bytes: &[u8], extents: usize, sectors: usize) -> Option<(Vec<SectorRange>, Vec<u32>)> {
    let (extents, crcs) = bytes.get(..table_bytes(extents, sectors))?.split_at(EXTENT_BYTES * extents);
    let extents = extents
        .chunks_exact(EXTENT_BYTES)
        .map(|extent| SectorRange { first: Sector(u64_at(extent, 0)), sectors: u32_at(extent, 8).into() });
    Some((extents.collect(), crcs.chunks_exact(4).map(|crc| u32_at(crc, 0)).collect()))
}

/// Of a record's extents those that may be wanted again when it has been copied.
pub fn told(side: Side, kind: Kind, extents: &[SectorRange]) -> Vec<SectorRange> {
    if (side, kind) == (Side::Hdd, Kind::Data) { extents.to_vec() } else { Vec::new() }
}

/// How many sectors extents have; `None` if they are none.
pub fn sectors_of(extents: &[SectorRange]) -> Option<u64> {
    let is_right = |extent: &SectorRange| extent.sectors > 0 && extent.first.0.checked_add(extent.sectors).is_some();
    extents.iter().all(is_right).then(|| extents.iter().map(|extent| extent.sectors).sum())
}

/// Whether a sequence is of an epoch that has one behind it.
pub fn can_be(seq: u64) -> bool {
    epoch_of(seq) < EPOCHS - 1
}

/// The first sequence of an epoch.
pub fn first_of(epoch: u32) -> u64 {
    u64::from(epoch) << 40
}

/// The epoch of a sequence.
pub fn epoch_of(seq: u64) -> u32 {
    (seq >> 40) as u32
}

/// Whether a sector of a payload begins as a header does: where nothing is before it, it could be taken for one.
pub fn looks_like_headers(payload: &[u8]) -> bool {
    payload.chunks_exact(SECTOR_BYTES).any(|sector| sector.starts_with(&MAGIC))
}

/// CRC of each sector.
pub fn sector_crcs(payload: &[u8]) -> Vec<u32> {
    payload.chunks_exact(SECTOR_BYTES).map(crc32c).collect()
}

const MAGIC: [u8; 8] = *b"CLAYTREC";
const CRC_AT: usize = 8;
const HEAD_BYTES: usize = 80;
/// Bytes that a header has for extents and checksums, or for a list.
pub const TABLES_BYTES: usize = SECTOR_BYTES - HEAD_BYTES;
/// Bytes of an extent.
pub const EXTENT_BYTES: usize = 12;
const ENTRY_BYTES: usize = 32;
const REPLACES_BYTES: usize = 8;
/// Bytes that a group has at most: beside it a header has room for most records of its own.
pub const GROUP_BYTES_MAX: usize = 2900;

const _: () = assert!(TABLES_BYTES >= EXTENT_BYTES * 8 + 4 * 256, "a longest record may have some extents");
const _: () = assert!(TABLES_BYTES >= GROUP_BYTES_MAX + EXTENT_BYTES * 4 + 4 * 256, "beside a group too");

#[cfg(test)]
mod tests {
    use super::*;

    const ID: PairId = PairId([9; 16]);

    fn range(first: u64, sectors: u64) -> SectorRange {
        SectorRange { first: Sector(first), sectors }
    }

    fn header() -> Header {
        Header {
            kind: Kind::Data,
            side: Side::Hdd,
            seq: first_of(2) + 77,
            place: 41,
            generation: 6,
            mark: first_of(2) + 70,
            extents: vec![range(1000, 2), range(5, 1)],
            crcs: vec![0xaabb_ccdd, 2, 3],
            list: None,
            replaces: 0,
            group: Vec::new(),
        }
    }

    fn member(number: u64) -> Member {
        let bare =
            Header { kind: Kind::Bare, seq: first_of(2) + number, place: 2 * number, side: Side::Ssd, ..header() };
        Member { replaces: number, entry: Entry::of(&bare) }
    }

    fn parse(bytes: &[u8]) -> Option<Header> {
        Header::parse(bytes, ID, Side::Hdd, 41)
    }

    #[test]
    fn the_bytes_are_as_the_format_says() {
        let bytes = header().encode(ID);
        assert_eq!((&bytes[..8], bytes[12], bytes[13], u16_at(&bytes, 14)), (&b"CLAYTREC"[..], 1, 1, 2));
        assert_eq!([u64_at(&bytes, 32), u64_at(&bytes, 40), u64_at(&bytes, 48)], [(2 << 40) + 77, 41, 6]);
        assert_eq!((u32_at(&bytes, 64), u64_at(&bytes, 80), u32_at(&bytes, 88)), (3, 1000, 2));
        assert_eq!(u32_at(&bytes, 80 + 2 * 12), 0xaabb_ccdd);
        assert_eq!(crc32c(&bytes), GOLDEN);
        assert_eq!(parse(&bytes), Some(header()));
        let copy = Header { replaces: first_of(2) + 71, ..header() };
        assert_eq!(u64_at(&copy.encode(ID), 72), first_of(2) + 71);
        assert_eq!(parse(&copy.encode(ID)), Some(copy.clone()));
        let void = Header { kind: Kind::Void, extents: vec![], crcs: vec![], ..copy };
        assert_eq!(parse(&void.encode(ID)), Some(void));
    }

    /// Of all bytes of the example.
    const GOLDEN: u32 = 1_487_232_702;

    #[test]
    fn a_header_is_one_only_where_it_was_written() {
        let bytes = header().encode(ID);
        assert_eq!(Header::parse(&bytes, PairId([8; 16]), Side::Hdd, 41), None);
        assert_eq!(Header::parse(&bytes, ID, Side::Ssd, 41), None);
        assert_eq!(Header::parse(&bytes, ID, Side::Hdd, 42), None);
        for at in 0..SECTOR_BYTES {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            assert_eq!(parse(&flipped), None, "byte {at}");
            assert_eq!(parse(&bytes[..at]), None, "{at} bytes");
        }
    }

    #[test]
    fn what_cannot_be_is_no_header() {
        let wrong = |change: &dyn Fn(&mut Header)| {
            let mut wrong = header();
            change(&mut wrong);
            assert_eq!(parse(&wrong.encode(ID)), None, "{wrong:?}");
        };
        wrong(&|header| header.crcs.truncate(2));
        wrong(&|header| header.extents[0].sectors = 0);
        wrong(&|header| header.extents[0].first = Sector(u64::MAX));
        wrong(&|header| header.kind = Kind::Padding);
        wrong(&|header| header.kind = Kind::Lost);
        wrong(&|header| header.kind = Kind::Void);
        wrong(&|header| header.crcs = vec![0; 300]);
    }

    #[test]
    fn a_group_is_read_as_it_was_written_in_headers_of_data_and_of_nothing() {
        let data = Header { side: Side::Ssd, group: (1..4).map(member).collect(), ..header() };
        let void = Header { kind: Kind::Void, extents: vec![], crcs: vec![], ..data.clone() };
        let parse = |header: &Header| Header::parse(&header.encode(ID), ID, Side::Ssd, 41);
        assert_eq!((parse(&data), parse(&void)), (Some(data.clone()), Some(void)));
        let bytes = data.encode(ID);
        assert_eq!((u32_at(&bytes, 68), u64_at(&bytes, 80), u64_at(&bytes, 88)), (3 * 76, 1, first_of(2) + 1));
        assert_eq!((u64_at(&bytes, 96), bytes[80 + 8 + 24], bytes[80 + 8 + 25]), (2, 0, 6));
        assert_eq!(u64_at(&bytes, 80 + 3 * 76), 1000, "its own extents are behind the group");
        assert_eq!(crc32c(&bytes), GOLDEN_GROUP);
        let bare = data.group[1].header(&data);
        assert_eq!((bare.kind, bare.seq, bare.place, bare.replaces), (Kind::Bare, first_of(2) + 2, 4, 2));
        assert_eq!((bare.generation, bare.mark, bare.sectors()), (6, first_of(2) + 70, 3));
        let wrong = |change: &dyn Fn(&mut Member)| {
            let mut wrong = data.clone();
            change(&mut wrong.group[1]);
            assert_eq!(parse(&wrong), None, "{wrong:?}");
        };
        wrong(&|member| member.entry.kind = Kind::Data);
        wrong(&|member| member.entry.side = Side::Hdd);
        wrong(&|member| member.entry.seq = first_of(2) + 77);
        wrong(&|member| member.entry.at = 1);
        wrong(&|member| member.entry.record_sectors = 4);
        let is_read = |kind| parse(&Header { kind, ..data.clone() }).is_some();
        assert!(!is_read(Kind::Padding) && !is_read(Kind::Lost));
        let of_hdd = Header { side: Side::Hdd, ..data.clone() };
        assert_eq!(Header::parse(&of_hdd.encode(ID), ID, Side::Hdd, 41), None);
    }

    /// Of all bytes of the example with a group.
    const GOLDEN_GROUP: u32 = 4_004_046_203;

    #[test]
    fn a_list_is_read_as_it_was_written_in_a_header_and_in_a_payload() {
        let entries: Vec<Entry> = (0..3).map(|at| Entry { at, record_sectors: 7, ..Entry::of(&header()) }).collect();
        let mut list = Vec::new();
        entries.iter().for_each(|entry| entry.encode(&mut list));
        assert_eq!(list.len(), entries.iter().map(Entry::bytes).sum::<usize>());
        assert_eq!(Entry::parse_all(&list), Some(entries));
        for bytes in 0..list.len() {
            let whole = bytes.is_multiple_of(list.len() / 3);
            assert_eq!(Entry::parse_all(&list[..bytes]).is_some(), whole, "{bytes} bytes");
        }
        let inline = List { from: 3, bytes: list.len() as u32, inline: Some(list.clone()) };
        let mark = Header { kind: Kind::Mark, extents: vec![], crcs: vec![], list: Some(inline), ..header() };
        assert_eq!(parse(&mark.encode(ID)), Some(mark.clone()));
        let apart = List { from: 3, bytes: 5000, inline: None };
        let mark = Header { crcs: vec![1, 2], list: Some(apart), ..mark };
        assert_eq!(parse(&mark.encode(ID)), Some(mark.clone()));
        // Its payload is too long for its list.
        assert_eq!(parse(&Header { crcs: vec![1, 2, 3], ..mark.clone() }.encode(ID)), None);
        // An index has its list in its payload, never in its header.
        let index = Header { kind: Kind::Index, ..mark };
        assert_eq!(parse(&index.encode(ID)), Some(index.clone()));
        let none = List { from: 3, bytes: 0, inline: None };
        assert_eq!(parse(&Header { crcs: vec![], list: Some(none), ..index }.encode(ID)), None);
    }
}
