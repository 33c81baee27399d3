//! Records of a volume's log as bytes: docs/formats/volume-log.md. Pure.
//!
//! Invariants:
//! 1. A record is decoded only if its checksums hold, and they cover whose log it is in and where: a record of another
//!    segment, or of another place in this one, is no record here.
//! 2. Whatever the bytes are, decoding ends in a record or in none; it never panics and takes no more memory than they do.

use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use claystone_chunk::{SegmentId, StripeId};
use claystone_code::ChunkIndex;
use crc_fast::{CrcAlgorithm, Digest};

use crate::geometry::Page;

/// Where a record, or a page of one, begins in a log. Later ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPlace {
    /// Number of the segment.
    pub segment: u64,
    /// Bytes from the segment's start.
    pub offset: u64,
}

/// Where the content of a sector that a merge writes is kept until the merge is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// In this record, with the others of this kind, in order.
    Inline,
    /// In a page that was written before: from here.
    Log(LogPlace),
}

/// A sector that a merge writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectorWrite {
    /// Which of the record's stripes.
    pub stripe: u32,
    /// Which chunk of it.
    pub chunk: ChunkIndex,
    /// Which sector of the chunk.
    pub sector: u32,
    /// CRC-32C of its content.
    pub crc: u32,
    /// Where the content is.
    pub source: Source,
}

/// What a merge is about to write in place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Intent {
    /// The stripes, with their positions in the volume.
    pub stripes: Vec<(u64, StripeId)>,
    /// The sectors.
    pub sectors: Vec<SectorWrite>,
    /// The contents that are [`Source::Inline`], one sector each.
    pub inline: Bytes,
}

impl Intent {
    /// The segments that its sectors' contents are in, beside its own; one may come several times.
    pub fn segments(&self) -> impl Iterator<Item = u64> {
        let segment = |write: &SectorWrite| match write.source {
            Source::Inline => None,
            Source::Log(place) => Some(place.segment),
        };
        self.sectors.iter().filter_map(segment)
    }
}

/// What a log is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The first of each segment.
    Begin {
        /// Segments below this are over, also if they are still there.
        over_below: u64,
        /// The segment before, and where it ended: what may be behind that is no part of the log.
        previous: Option<LogPlace>,
        /// Bytes of the volume's pages.
        page_bytes: u32,
    },
    /// Pages that were written.
    Write {
        /// The first.
        first: Page,
        /// CRC-32C of each.
        crcs: Vec<u32>,
        /// Their contents.
        content: Bytes,
    },
    /// Pages that became zeros.
    Zero {
        /// The first.
        first: Page,
        /// How many.
        pages: u64,
    },
    /// A merge is about to write in place; synced before it does.
    Intent(Intent),
    /// Diffs that are in their stripes now.
    Merged {
        /// The intent that is carried out.
        intent: Option<LogPlace>,
        /// Pages, and where their merged diffs are: where the page begins, for zeros where the record does.
        diffs: Vec<(Page, LogPlace)>,
    },
    /// Segments below this are over.
    Over {
        /// The number.
        below: u64,
    },
}

/// Bytes of a record before its table.
pub const HEAD_BYTES: usize = 40;
const MAGIC: u32 = 0x3152_5643; // "CVR1"
const NONE: u64 = u64::MAX;
const SECTOR: usize = claystone_chunk::SECTOR_BYTES as usize;
const STRIPE_ENTRY: usize = 24;
const SECTOR_ENTRY: usize = 32;
const DIFF_ENTRY: usize = 24;

impl Record {
    fn kind(&self) -> u8 {
        match self {
            Record::Begin { .. } => 1,
            Record::Write { .. } => 2,
            Record::Zero { .. } => 3,
            Record::Intent(_) => 4,
            Record::Merged { .. } => 5,
            Record::Over { .. } => 6,
        }
    }

    /// The two numbers of the head.
    fn numbers(&self) -> (u64, u64) {
        match self {
            Record::Begin { over_below, previous, .. } => (*over_below, previous.map_or(NONE, |end| end.segment)),
            Record::Write { first, crcs, .. } => (first.0, crcs.len() as u64),
            Record::Zero { first, pages } => (first.0, *pages),
            Record::Intent(intent) => (intent.stripes.len() as u64, intent.sectors.len() as u64),
            Record::Merged { intent: Some(place), .. } => (place.segment, place.offset),
            Record::Merged { intent: None, .. } => (NONE, NONE),
            Record::Over { below } => (*below, 0),
        }
    }

    fn table_bytes(&self) -> usize {
        match self {
            Record::Begin { .. } => 12,
            Record::Write { crcs, .. } => 4 * crcs.len(),
            Record::Zero { .. } | Record::Over { .. } => 0,
            Record::Intent(intent) => STRIPE_ENTRY * intent.stripes.len() + SECTOR_ENTRY * intent.sectors.len(),
            Record::Merged { diffs, .. } => DIFF_ENTRY * diffs.len(),
        }
    }

    fn put_table(&self, out: &mut BytesMut) {
        match self {
            Record::Begin { page_bytes, previous, .. } => {
                out.put_u32_le(*page_bytes);
                out.put_u64_le(previous.map_or(NONE, |end| end.offset));
            }
            Record::Write { crcs, .. } => crcs.iter().for_each(|crc| out.put_u32_le(*crc)),
            Record::Zero { .. } | Record::Over { .. } => {}
            Record::Intent(intent) => {
                for (position, stripe) in &intent.stripes {
                    out.put_u64_le(*position);
                    out.put_u128_le(stripe.0);
                }
                for write in &intent.sectors {
                    out.put_u32_le(write.stripe);
                    out.put_u32_le(write.sector);
                    out.put_u32_le(write.crc);
                    out.put_u32_le(write.chunk.0.into());
                    let (segment, offset) = match write.source {
                        Source::Inline => (NONE, 0),
                        Source::Log(place) => (place.segment, place.offset),
                    };
                    out.put_u64_le(segment);
                    out.put_u64_le(offset);
                }
            }
            Record::Merged { diffs, .. } => {
                for (page, place) in diffs {
                    out.put_u64_le(page.0);
                    out.put_u64_le(place.segment);
                    out.put_u64_le(place.offset);
                }
            }
        }
    }

    fn content(&self) -> &[u8] {
        match self {
            Record::Write { content, .. } => content,
            Record::Intent(intent) => &intent.inline,
            _ => &[],
        }
    }

    /// Bytes that it takes in a log.
    pub fn bytes(&self) -> usize {
        HEAD_BYTES + self.table_bytes() + self.content().len()
    }

    /// Bytes from the record's start to its content.
    pub fn content_offset(&self) -> usize {
        HEAD_BYTES + self.table_bytes()
    }

    /// Adds the record to `out`, as it is at `offset` of a segment.
    pub fn encode(&self, segment: SegmentId, offset: u64, out: &mut BytesMut) {
        let start = out.len();
        let (a, b) = self.numbers();
        out.reserve(self.bytes());
        out.put_u32_le(MAGIC);
        out.put_u32_le(0);
        out.put_u32_le(self.kind().into());
        out.put_u32_le(self.table_bytes() as u32);
        out.put_u64_le(self.content().len() as u64);
        out.put_u64_le(a);
        out.put_u64_le(b);
        self.put_table(out);
        let crc = head_crc(segment, offset, &out[start..]);
        out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(self.content());
    }

    /// The record at the start of `bytes`, which lie at `offset` of a segment, and how long it is. `None`: there is none,
    /// or not all of it.
    pub fn decode(segment: SegmentId, offset: u64, bytes: &Bytes, page_bytes: u32) -> Option<(Record, usize)> {
        let head = bytes.get(..HEAD_BYTES)?;
        if u32_at(head, 0) != MAGIC {
            return None;
        }
        let table_bytes = u32_at(head, 12) as usize;
        let content_bytes = usize::try_from(u64_at(head, 16)).ok()?;
        let content_start = HEAD_BYTES.checked_add(table_bytes)?;
        let end = content_start.checked_add(content_bytes)?;
        if end > bytes.len() || head_crc(segment, offset, &bytes[..content_start]) != u32_at(head, 4) {
            return None;
        }
        let (a, b) = (u64_at(head, 24), u64_at(head, 32));
        let table = &bytes[HEAD_BYTES..content_start];
        let content = bytes.slice(content_start..end);
        let record = match (u32_at(head, 8), table_bytes, content_bytes) {
            (1, 12, 0) => {
                let previous = place_of(b, u64_at(table, 4))?;
                Record::Begin { over_below: a, previous, page_bytes: u32_at(table, 0) }
            }
            (2, ..) => decode_write(Page(a), b, table, content, page_bytes as usize)?,
            (3, 0, 0) if b > 0 => Record::Zero { first: Page(a), pages: b },
            (4, ..) => decode_intent(a, b, table, content)?,
            (5, _, 0) => decode_merged(a, b, table)?,
            (6, 0, 0) if b == 0 => Record::Over { below: a },
            _ => return None,
        };
        Some((record, end))
    }
}

impl Record {
    /// The pages that it changes.
    pub fn pages(&self) -> Option<Range<Page>> {
        let (first, pages) = match self {
            Record::Write { first, crcs, .. } => (first.0, crcs.len() as u64),
            Record::Zero { first, pages } => (first.0, *pages),
            _ => return None,
        };
        Some(Page(first)..Page(first.saturating_add(pages)))
    }

    /// How long the record that begins with `bytes` is, as its head says. `None`: no record begins so.
    pub fn bytes_of(bytes: &[u8]) -> Option<u64> {
        let head = bytes.get(..HEAD_BYTES)?;
        let rest = u64::from(u32_at(head, 12)).saturating_add(u64_at(head, 16));
        (u32_at(head, 0) == MAGIC).then_some(rest.saturating_add(HEAD_BYTES as u64))
    }
}

fn decode_write(first: Page, pages: u64, table: &[u8], content: Bytes, page_bytes: usize) -> Option<Record> {
    let count = table.len() / 4;
    let right = pages == count as u64 && count > 0 && table.len() == 4 * count;
    if !right || page_bytes == 0 || content.len() != count.checked_mul(page_bytes)? {
        return None;
    }
    first.0.checked_add(pages)?;
    let crcs: Vec<u32> = table.chunks_exact(4).map(|entry| u32_at(entry, 0)).collect();
    let whole = content.chunks_exact(page_bytes).zip(&crcs).all(|(page, crc)| crc32c(page) == *crc);
    whole.then_some(Record::Write { first, crcs, content })
}

fn decode_intent(stripes: u64, sectors: u64, table: &[u8], inline: Bytes) -> Option<Record> {
    let (stripes, sectors) = (usize::try_from(stripes).ok()?, usize::try_from(sectors).ok()?);
    let stripes_bytes = stripes.checked_mul(STRIPE_ENTRY)?;
    if stripes_bytes.checked_add(sectors.checked_mul(SECTOR_ENTRY)?)? != table.len() {
        return None;
    }
    let (stripe_table, sector_table) = table.split_at(stripes_bytes);
    let stripe_of = |entry: &[u8]| (u64_at(entry, 0), StripeId(u128::from_le_bytes(array_at(entry, 8))));
    let mut writes = Vec::with_capacity(sectors);
    let mut contents = inline.chunks_exact(SECTOR);
    for entry in sector_table.chunks_exact(SECTOR_ENTRY) {
        let (segment, offset) = (u64_at(entry, 16), u64_at(entry, 24));
        let write = SectorWrite {
            stripe: u32_at(entry, 0),
            sector: u32_at(entry, 4),
            crc: u32_at(entry, 8),
            chunk: ChunkIndex(u16::try_from(u32_at(entry, 12)).ok()?),
            source: if segment == NONE { Source::Inline } else { Source::Log(LogPlace { segment, offset }) },
        };
        if write.stripe as usize >= stripes || (segment == NONE && offset != 0) {
            return None;
        }
        if write.source == Source::Inline && crc32c(contents.next()?) != write.crc {
            return None;
        }
        writes.push(write);
    }
    if contents.next().is_some() || !contents.remainder().is_empty() {
        return None;
    }
    let stripes = stripe_table.chunks_exact(STRIPE_ENTRY).map(stripe_of).collect();
    Some(Record::Intent(Intent { stripes, sectors: writes, inline }))
}

fn decode_merged(segment: u64, offset: u64, table: &[u8]) -> Option<Record> {
    if !table.len().is_multiple_of(DIFF_ENTRY) {
        return None;
    }
    let intent = place_of(segment, offset)?;
    let diff =
        |entry: &[u8]| (Page(u64_at(entry, 0)), LogPlace { segment: u64_at(entry, 8), offset: u64_at(entry, 16) });
    Some(Record::Merged { intent, diffs: table.chunks_exact(DIFF_ENTRY).map(diff).collect() })
}

/// A place that may be none; `None` if the numbers are neither.
fn place_of(segment: u64, offset: u64) -> Option<Option<LogPlace>> {
    match (segment == NONE, offset == NONE) {
        (true, true) => Some(None),
        (true, false) => None,
        (false, _) => Some(Some(LogPlace { segment, offset })),
    }
}

/// CRC-32C.
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(bytes);
    digest.finalize() as u32
}

/// Of whose log this is, where in it, and head and table with the checksum as 0.
pub fn head_crc(segment: SegmentId, offset: u64, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&segment.owner.0.to_le_bytes());
    digest.update(&segment.number.to_le_bytes());
    digest.update(&offset.to_le_bytes());
    digest.update(&bytes[..4]);
    digest.update(&[0; 4]);
    digest.update(&bytes[8..]);
    digest.finalize() as u32
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has N bytes")
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

#[cfg(test)]
mod tests;
