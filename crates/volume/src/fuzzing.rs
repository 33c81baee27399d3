//! Records of a log over given bytes, for a fuzz target.

use bytes::{Bytes, BytesMut};
use claystone_chunk::{OwnerId, SegmentId};

use crate::diffs::Diffs;
use crate::geometry::Geometry;
use crate::log::record::{HEAD_BYTES, HEAD_BYTES_MAX, LogPlace, Record, head_crc};

/// Reads a segment that holds these parts, each with a right checksum of its head where it is long enough for one, and
/// applies what it finds, as an opening does.
///
/// # Panics
/// If a record is read as longer than its bytes, or differs when it is written again.
pub fn segment(parts: &[(Vec<u8>, Vec<u8>)]) {
    const PAGE_BYTES: u32 = 1024;
    const PAGES: u64 = 1 << 12;
    let id = SegmentId { owner: OwnerId(1), number: 1 };
    let mut bytes = BytesMut::new();
    for (number, (head, content)) in parts.iter().enumerate() {
        let offset = bytes.len() as u64;
        let mut head = head.clone();
        // Every other part is of version 1, where it is long enough for that.
        let (version, head_bytes) = match number % 2 {
            1 if head.len() >= HEAD_BYTES_MAX => (b"CVR1", HEAD_BYTES_MAX),
            _ => (b"CVR2", HEAD_BYTES),
        };
        if head.len() >= head_bytes {
            let table_bytes = (head.len() - head_bytes) as u32;
            head[..4].copy_from_slice(version);
            if version == b"CVR1" {
                head[12..16].copy_from_slice(&table_bytes.to_le_bytes());
                head[16..24].copy_from_slice(&(content.len() as u64).to_le_bytes());
            } else {
                head[9..12].copy_from_slice(&table_bytes.to_le_bytes()[..3]);
                head[12..16].copy_from_slice(&(content.len() as u32).to_le_bytes());
            }
            let crc = head_crc(id, offset, &head);
            head[4..8].copy_from_slice(&crc.to_le_bytes());
        }
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(content);
    }
    let bytes = bytes.freeze();
    let mut diffs = Diffs::new(Geometry { page_bytes: PAGE_BYTES, chunk_bytes: 8192, columns: 2 });
    let mut offset = 0;
    while let Some((record, length)) = next(id, offset, &bytes, PAGE_BYTES) {
        assert!(length > 0 && offset + length <= bytes.len(), "a record is within its bytes");
        let mut again = BytesMut::new();
        record.encode(id, offset as u64, &mut again);
        let (again, is_old) = (again.freeze(), bytes[offset..].starts_with(b"CVR1"));
        assert!(is_old || again == bytes.slice(offset..offset + length), "a record is one text");
        assert_eq!(Record::decode(id, offset as u64, &again, PAGE_BYTES), Some((record.clone(), again.len())));
        if record.pages().is_none_or(|pages| pages.end.0 <= PAGES) {
            diffs.apply_read(&record, LogPlace { segment: 1, offset: offset as u64 }, length);
        }
        offset += length;
    }
}

fn next(id: SegmentId, offset: usize, bytes: &Bytes, page_bytes: u32) -> Option<(Record, usize)> {
    Record::decode(id, offset as u64, &bytes.slice(offset..), page_bytes)
}
