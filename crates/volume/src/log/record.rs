//! Records of a volume's log as bytes: docs/formats/volume-log.md. Pure.
//!
//! Invariants:
//! 1. A record is decoded only if its checksums hold, and they cover whose log it is in and where: a record of another
//!    segment, or of another place in this one, is no record here.
//! 2. Whatever the bytes are, decoding ends in a record or in none; it never panics and takes no more memory than a few times
//!    what they do.
//! 3. Of a record there is one text in version 2, the only one that is written. Version 1 is still read (`v1`).

mod table;
mod v1;

pub(crate) use table::number_bytes;

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
    /// Nowhere: it becomes zeros.
    Zeros,
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
            Source::Inline | Source::Zeros => None,
            Source::Log(place) => Some(place.segment),
        };
        self.sectors.iter().filter_map(segment)
    }

    /// Whether a sector becomes zeros: such an intent is a kind of its own.
    fn has_zeros(&self) -> bool {
        self.sectors.iter().any(|write| write.source == Source::Zeros)
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
        /// The first segment that may not be synced, when this one begins. `None`: all before it are.
        unsynced_from: Option<u64>,
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
    /// Segments below this are synced on every disk that counts.
    Synced {
        /// The number.
        below: u64,
    },
}

/// Bytes of a record before its table.
pub const HEAD_BYTES: usize = 16;
/// Enough to know how long a record is, whatever its version.
pub const HEAD_BYTES_MAX: usize = v1::HEAD_BYTES;
const MAGIC: u32 = 0x3252_5643; // "CVR2"
const SECTOR: usize = claystone_chunk::SECTOR_BYTES as usize;

impl Record {
    fn kind(&self) -> u8 {
        match self {
            Record::Begin { unsynced_from: None, .. } => 1,
            Record::Write { .. } => 2,
            Record::Zero { .. } => 3,
            Record::Intent(intent) => {
                if intent.has_zeros() {
                    9
                } else {
                    4
                }
            }
            Record::Merged { .. } => 5,
            Record::Over { .. } => 6,
            Record::Begin { unsynced_from: Some(_), .. } => 7,
            Record::Synced { .. } => 8,
        }
    }

    fn table_bytes(&self) -> usize {
        match self {
            // Of every write, so it is not written for that.
            Record::Write { first, crcs, .. } => number_bytes(first.0) + 4 * crcs.len(),
            _ => {
                let mut table = BytesMut::new();
                self.put_table(&mut table);
                table.len()
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

    /// Adds the record to `out`, as it is at `offset` of a segment.
    ///
    /// # Panics
    /// If its table has 16 MiB, or its content 4 GiB.
    pub fn encode(&self, segment: SegmentId, offset: u64, out: &mut BytesMut) {
        let start = out.len();
        out.reserve(self.bytes());
        out.put_u32_le(MAGIC);
        out.put_u32_le(0);
        out.put_u8(self.kind());
        out.put_uint_le(0, 3);
        out.put_u32_le(u32::try_from(self.content().len()).expect("a record has less than 4 GiB"));
        self.put_table(out);
        let table_bytes = out.len() - start - HEAD_BYTES;
        assert!(table_bytes < 1 << 24, "a table has less than 16 MiB");
        out[start + 9..start + 12].copy_from_slice(&(table_bytes as u32).to_le_bytes()[..3]);
        let crc = head_crc(segment, offset, &out[start..]);
        out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(self.content());
    }

    /// The record at the start of `bytes`, which lie at `offset` of a segment, and how long it is. `None`: there is none,
    /// or not all of it.
    pub fn decode(segment: SegmentId, offset: u64, bytes: &Bytes, page_bytes: u32) -> Option<(Record, usize)> {
        let (head_bytes, table_bytes, content_bytes) = lengths(bytes)?;
        let content_start = head_bytes.checked_add(table_bytes)?;
        let end = content_start.checked_add(content_bytes)?;
        if end > bytes.len() || !Record::has_head(segment, offset, bytes) {
            return None;
        }
        let (table, content) = (&bytes[head_bytes..content_start], bytes.slice(content_start..end));
        let record = match u32_at(bytes, 0) {
            MAGIC => table::decode(bytes[8], table, content)?,
            _ => v1::decode(&bytes[..head_bytes], table, content)?,
        };
        record.is_right(page_bytes as usize).then_some((record, end))
    }

    /// How long head and table together, and the whole record, are that begin with `bytes`, as the head says: nothing is
    /// checked. `None`: no record begins so.
    pub fn lengths_of(bytes: &[u8]) -> Option<(u64, u64)> {
        let (head, table, content) = lengths(bytes)?;
        let checked = (head as u64).saturating_add(table as u64);
        Some((checked, checked.saturating_add(content as u64)))
    }

    /// Whether `bytes` begin with all of a record's head and table, and it is one of this segment and offset.
    pub fn has_head(segment: SegmentId, offset: u64, bytes: &[u8]) -> bool {
        let checked = lengths(bytes).and_then(|(head, table, _)| bytes.get(..head.checked_add(table)?));
        checked.is_some_and(|checked| head_crc(segment, offset, checked) == u32_at(checked, 4))
    }

    /// Whether it is what some writer would have written, its contents included.
    fn is_right(&self, page_bytes: usize) -> bool {
        match self {
            Record::Write { first, crcs, content } => {
                let bytes = crcs.len().checked_mul(page_bytes);
                let ends = first.0.checked_add(crcs.len() as u64).is_some();
                let pages = || content.chunks_exact(page_bytes).zip(crcs);
                !crcs.is_empty()
                    && page_bytes > 0
                    && bytes == Some(content.len())
                    && ends
                    && pages().all(|(page, crc)| crc32c(page) == *crc)
            }
            Record::Zero { pages, .. } => *pages > 0,
            Record::Intent(intent) => {
                let inline = intent.sectors.iter().filter(|write| write.source == Source::Inline);
                let contents = intent.inline.chunks_exact(SECTOR);
                inline.clone().count() * SECTOR == intent.inline.len()
                    && inline.zip(contents).all(|(write, content)| crc32c(content) == write.crc)
                    && intent.sectors.iter().all(|write| (write.stripe as usize) < intent.stripes.len())
            }
            Record::Begin { .. } | Record::Merged { .. } | Record::Over { .. } | Record::Synced { .. } => {
                self.content().is_empty()
            }
        }
    }
}

/// Bytes of head, table and content, as the head says.
fn lengths(bytes: &[u8]) -> Option<(usize, usize, usize)> {
    let head = bytes.get(..HEAD_BYTES)?;
    if u32_at(head, 0) == v1::MAGIC {
        return v1::lengths(bytes);
    }
    let table_bytes = u32_at(head, 8) >> 8;
    (u32_at(head, 0) == MAGIC).then_some((HEAD_BYTES, table_bytes as usize, u32_at(head, 12) as usize))
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
