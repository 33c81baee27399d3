//! Version 1 of records, which is read and not written: tables of entries with fixed lengths.

use bytes::Bytes;
use claystone_chunk::StripeId;
use claystone_code::ChunkIndex;

use super::{Intent, LogPlace, Record, SectorWrite, Source, array_at, u32_at, u64_at};
use crate::geometry::Page;

pub const MAGIC: u32 = 0x3152_5643; // "CVR1"
pub const HEAD_BYTES: usize = 40;
const NONE: u64 = u64::MAX;
const STRIPE_ENTRY: usize = 24;
const SECTOR_ENTRY: usize = 32;
const DIFF_ENTRY: usize = 24;

/// Bytes of head, table and content, as the head says.
pub fn lengths(bytes: &[u8]) -> Option<(usize, usize, usize)> {
    let head = bytes.get(..HEAD_BYTES)?;
    Some((HEAD_BYTES, u32_at(head, 12) as usize, usize::try_from(u64_at(head, 16)).ok()?))
}

/// The record with this head, table and content; whether the content fits the table is not looked at.
pub fn decode(head: &[u8], table: &[u8], content: Bytes) -> Option<Record> {
    let (a, b) = (u64_at(head, 24), u64_at(head, 32));
    Some(match (u32_at(head, 8), table.len(), content.len()) {
        (1, 12, 0) => {
            let previous = place_of(b, u64_at(table, 4))?;
            Record::Begin { over_below: a, previous, unsynced_from: None, page_bytes: u32_at(table, 0) }
        }
        (2, ..) if table.len().is_multiple_of(4) && b == table.len() as u64 / 4 => {
            let crcs = table.chunks_exact(4).map(|entry| u32_at(entry, 0)).collect();
            Record::Write { first: Page(a), crcs, content }
        }
        (3, 0, 0) => Record::Zero { first: Page(a), pages: b },
        (4, ..) => Record::Intent(decode_intent(a, b, table, content)?),
        (5, bytes, 0) if bytes.is_multiple_of(DIFF_ENTRY) => {
            let diff = |entry: &[u8]| {
                (Page(u64_at(entry, 0)), LogPlace { segment: u64_at(entry, 8), offset: u64_at(entry, 16) })
            };
            Record::Merged { intent: place_of(a, b)?, diffs: table.chunks_exact(DIFF_ENTRY).map(diff).collect() }
        }
        (6, 0, 0) if b == 0 => Record::Over { below: a },
        _ => return None,
    })
}

fn decode_intent(stripes: u64, sectors: u64, table: &[u8], inline: Bytes) -> Option<Intent> {
    let (stripes, sectors) = (usize::try_from(stripes).ok()?, usize::try_from(sectors).ok()?);
    let stripes_bytes = stripes.checked_mul(STRIPE_ENTRY)?;
    if stripes_bytes.checked_add(sectors.checked_mul(SECTOR_ENTRY)?)? != table.len() {
        return None;
    }
    let (stripe_table, sector_table) = table.split_at(stripes_bytes);
    let stripe_of = |entry: &[u8]| (u64_at(entry, 0), StripeId(u128::from_le_bytes(array_at(entry, 8))));
    let sector_of = |entry: &[u8]| {
        let source = match place_of(u64_at(entry, 16), u64_at(entry, 24)) {
            Some(Some(place)) => Source::Log(place),
            // An inline sector has 0 there.
            _ if u64_at(entry, 16) == NONE && u64_at(entry, 24) == 0 => Source::Inline,
            _ => return None,
        };
        let chunk = ChunkIndex(u16::try_from(u32_at(entry, 12)).ok()?);
        Some(SectorWrite { stripe: u32_at(entry, 0), chunk, sector: u32_at(entry, 4), crc: u32_at(entry, 8), source })
    };
    let sectors = sector_table.chunks_exact(SECTOR_ENTRY).map(sector_of).collect::<Option<_>>()?;
    Some(Intent { stripes: stripe_table.chunks_exact(STRIPE_ENTRY).map(stripe_of).collect(), sectors, inline })
}

/// A place that may be none; `None` if the numbers are neither.
fn place_of(segment: u64, offset: u64) -> Option<Option<LogPlace>> {
    match (segment == NONE, offset == NONE) {
        (true, true) => Some(None),
        (true, false) => None,
        (false, _) => Some(Some(LogPlace { segment, offset })),
    }
}
