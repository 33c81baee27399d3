//! Tables of records: numbers of as many bytes as they need (LEB128), signed ones in zigzag, checksums and ids as they are.
//!
//! Invariants:
//! 1. A table is read to its end, and each number has one text: what is read is written as the same bytes.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use claystone_chunk::StripeId;
use claystone_code::ChunkIndex;
use integer_encoding::VarInt;

use super::{Intent, LogPlace, Record, SectorWrite, Source};
use crate::geometry::Page;

/// In the mark of a sector of an intent: it is of another stripe, or another sector of its chunk, than the one before.
const OTHER_ROW: u64 = 1;
/// Its content is in the log already.
const LOGGED: u64 = 2;
/// In the marks of an intent with zeros: it becomes zeros.
const ZEROS: u64 = 4;
/// The mark has the chunk behind these,
const MARKS: u32 = 2;
/// and in an intent with zeros behind these.
const MARKS_WITH_ZEROS: u32 = 3;

/// Bytes of a number.
pub fn number_bytes(number: u64) -> usize {
    number.required_space()
}

impl Record {
    /// Adds the table of the record.
    pub(super) fn put_table(&self, out: &mut BytesMut) {
        match self {
            Record::Begin { over_below, previous, unsynced_from, page_bytes } => {
                put_number(out, *over_below);
                put_number(out, (*page_bytes).into());
                put_place_or_none(out, *previous);
                unsynced_from.iter().for_each(|number| put_number(out, *number));
            }
            Record::Write { first, crcs, .. } => {
                put_number(out, first.0);
                crcs.iter().for_each(|crc| out.put_u32_le(*crc));
            }
            Record::Zero { first, pages } => {
                put_number(out, first.0);
                put_number(out, *pages);
            }
            Record::Intent(intent) => put_intent(out, intent),
            Record::Merged { intent, diffs } => {
                put_place_or_none(out, *intent);
                let (mut last_page, mut last_place) = (0, START);
                for (page, place) in diffs {
                    put_difference(out, &mut last_page, page.0);
                    put_place(out, &mut last_place, *place);
                }
            }
            Record::Over { below } | Record::Synced { below } => put_number(out, *below),
        }
    }
}

fn put_intent(out: &mut BytesMut, intent: &Intent) {
    put_number(out, intent.stripes.len() as u64);
    let mut last_position = 0;
    for (position, stripe) in &intent.stripes {
        put_difference(out, &mut last_position, *position);
        out.put_u128_le(stripe.0);
    }
    let marks = if intent.has_zeros() { MARKS_WITH_ZEROS } else { MARKS };
    let (mut last_row, mut last_place) = (None, START);
    for write in &intent.sectors {
        let row = Some((write.stripe, write.sector));
        let is_other = if row == last_row { 0 } else { OTHER_ROW };
        let source = match write.source {
            Source::Inline => 0,
            Source::Log(_) => LOGGED,
            Source::Zeros => ZEROS,
        };
        put_number(out, u64::from(write.chunk.0) << marks | source | is_other);
        if row != last_row {
            put_number(out, write.stripe.into());
            put_number(out, write.sector.into());
            last_row = row;
        }
        out.put_u32_le(write.crc);
        if let Source::Log(place) = write.source {
            put_place(out, &mut last_place, place);
        }
    }
}

/// The record of a kind with this table and content; whether that fits its table is not looked at.
pub fn decode(kind: u8, table: &[u8], content: Bytes) -> Option<Record> {
    let mut table = Table(table);
    let record = match kind {
        1 | 7 => {
            let (over_below, page_bytes) = (table.number()?, table.number()?);
            let page_bytes = u32::try_from(page_bytes).ok()?;
            let previous = table.place_or_none()?;
            let unsynced_from = if kind == 1 { None } else { Some(table.number()?) };
            Record::Begin { over_below, previous, unsynced_from, page_bytes }
        }
        2 => {
            let first = Page(table.number()?);
            let mut crcs = Vec::with_capacity(table.0.len() / 4);
            while !table.0.is_empty() {
                crcs.push(table.0.try_get_u32_le().ok()?);
            }
            return Some(Record::Write { first, crcs, content });
        }
        3 => Record::Zero { first: Page(table.number()?), pages: table.number()? },
        4 => return Some(Record::Intent(table.intent(content, MARKS)?)),
        9 => {
            let intent = table.intent(content, MARKS_WITH_ZEROS)?;
            return intent.has_zeros().then_some(Record::Intent(intent));
        }
        5 => {
            let intent = table.place_or_none()?;
            let (mut last_page, mut last_place) = (0, START);
            let mut diffs = Vec::new();
            while !table.0.is_empty() {
                diffs.push((Page(table.difference(&mut last_page)?), table.place(&mut last_place)?));
            }
            Record::Merged { intent, diffs }
        }
        6 => Record::Over { below: table.number()? },
        8 => Record::Synced { below: table.number()? },
        _ => return None,
    };
    (table.0.is_empty() && content.is_empty()).then_some(record)
}

/// What is left of a table.
struct Table<'a>(&'a [u8]);

impl Table<'_> {
    fn number(&mut self) -> Option<u64> {
        let (number, bytes) = u64::decode_var(self.0)?;
        if bytes != number.required_space() {
            return None;
        }
        self.0 = &self.0[bytes..];
        Some(number)
    }

    fn difference(&mut self, last: &mut u64) -> Option<u64> {
        let (difference, bytes) = i64::decode_var(self.0)?;
        if bytes != difference.required_space() {
            return None;
        }
        self.0 = &self.0[bytes..];
        *last = last.wrapping_add_signed(difference);
        Some(*last)
    }

    fn place(&mut self, last: &mut LogPlace) -> Option<LogPlace> {
        self.difference(&mut last.segment)?;
        self.difference(&mut last.offset)?;
        Some(*last)
    }

    fn place_or_none(&mut self) -> Option<Option<LogPlace>> {
        match self.number()?.checked_sub(1) {
            None => Some(None),
            Some(segment) => Some(Some(LogPlace { segment, offset: self.number()? })),
        }
    }

    fn intent(&mut self, inline: Bytes, marks: u32) -> Option<Intent> {
        let count = self.number()?;
        let mut last_position = 0;
        let mut intent = Intent { inline, ..Intent::default() };
        for _ in 0..count {
            let position = self.difference(&mut last_position)?;
            intent.stripes.push((position, StripeId(self.0.try_get_u128_le().ok()?)));
        }
        let (mut row, mut last_place) = (None, START);
        while !self.0.is_empty() {
            let mark = self.number()?;
            if mark & OTHER_ROW != 0 {
                let other = (u32::try_from(self.number()?).ok()?, u32::try_from(self.number()?).ok()?);
                if row.replace(other) == Some(other) {
                    return None;
                }
            }
            let (stripe, sector) = row?;
            let chunk = ChunkIndex(u16::try_from(mark >> marks).ok()?);
            let crc = self.0.try_get_u32_le().ok()?;
            let source = match mark & ((1 << marks) - 1) & !OTHER_ROW {
                0 => Source::Inline,
                LOGGED => Source::Log(self.place(&mut last_place)?),
                ZEROS => Source::Zeros,
                _ => return None,
            };
            intent.sectors.push(SectorWrite { stripe, chunk, sector, crc, source });
        }
        Some(intent)
    }
}

/// What the first place of a table differs from.
const START: LogPlace = LogPlace { segment: 0, offset: 0 };

fn put_number(out: &mut BytesMut, number: u64) {
    let mut bytes = [0; 10];
    let length = number.encode_var(&mut bytes);
    out.put_slice(&bytes[..length]);
}

fn put_difference(out: &mut BytesMut, last: &mut u64, number: u64) {
    let mut bytes = [0; 10];
    let length = number.wrapping_sub(*last).cast_signed().encode_var(&mut bytes);
    out.put_slice(&bytes[..length]);
    *last = number;
}

fn put_place(out: &mut BytesMut, last: &mut LogPlace, place: LogPlace) {
    put_difference(out, &mut last.segment, place.segment);
    put_difference(out, &mut last.offset, place.offset);
}

/// The segment plus one, and the offset; or 0.
fn put_place_or_none(out: &mut BytesMut, place: Option<LogPlace>) {
    put_number(out, place.map_or(0, |place| place.segment + 1));
    if let Some(place) = place {
        put_number(out, place.offset);
    }
}
