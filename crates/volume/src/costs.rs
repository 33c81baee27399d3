//! Bytes that a volume keeps beside contents, to know which pages wait: for whoever counts metadata.
//!
//! In the log they are those of its records; in memory those of the map of diffs, whose trees have nodes of 11 places. Pages
//! that come in order leave leaves with 6 and one above, seven leaves under each inner node: 65 bytes a page, where an
//! allocator that counted saw 67, and 54 for pages in any order.

use crate::diffs::{STRIPE_BYTES, TREE_ENTRY_BYTES};
use crate::log::record::HEAD_BYTES;

/// A record of any kind.
pub const RECORD_BYTES: u64 = HEAD_BYTES as u64;
/// Each page of a record of a write.
pub const WRITTEN_PAGE_BYTES: u64 = 4;
/// Each stripe of an intent.
pub const INTENT_STRIPE_BYTES: u64 = 24;
/// Each sector of an intent.
pub const INTENT_SECTOR_BYTES: u64 = 32;
/// Sectors of stripes after which an intent ends.
pub const INTENT_SECTORS: u64 = crate::merge::INTENT_SECTORS as u64;
/// Each page of a record of merged pages.
pub const MERGED_PAGE_BYTES: u64 = 24;
/// A stripe with diffs, in memory: in two trees whose nodes are half full.
pub const MAP_STRIPE_BYTES: u64 = 2 * STRIPE_BYTES;
/// A leaf of the tree of a stripe's diffs and its part of what is above it, in memory, with what the system keeps of each.
pub const MAP_NODE_BYTES: u64 = LEAF_BYTES + (LEAF_BYTES + 12 * 8) / 7;
/// Diffs in a leaf and above it.
pub const MAP_NODE_PAGES: u64 = 7;

/// 11 places, a parent and two lengths; 16 bytes of the system.
const LEAF_BYTES: u64 = 11 * TREE_ENTRY_BYTES + 16 + 16;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use claystone_chunk::StripeId;
    use claystone_code::ChunkIndex;

    use super::*;
    use crate::geometry::Page;
    use crate::log::record::{Intent, LogPlace, Record, SectorWrite, Source};

    #[test]
    fn costs_are_those_of_records() {
        let place = LogPlace { segment: 1, offset: 2 };
        let content = Bytes::from(vec![0; 2 * 4096]);
        let write = Record::Write { first: Page(1), crcs: vec![0; 2], content };
        assert_eq!(write.bytes() as u64, RECORD_BYTES + 2 * WRITTEN_PAGE_BYTES + 2 * 4096);
        let sector = SectorWrite { stripe: 0, chunk: ChunkIndex(0), sector: 0, crc: 0, source: Source::Log(place) };
        let intent = Intent { stripes: vec![(0, StripeId(1)); 2], sectors: vec![sector; 3], inline: Bytes::new() };
        let expected = RECORD_BYTES + 2 * INTENT_STRIPE_BYTES + 3 * INTENT_SECTOR_BYTES;
        assert_eq!(Record::Intent(intent).bytes() as u64, expected);
        let merged = Record::Merged { intent: Some(place), diffs: vec![(Page(1), place); 5] };
        assert_eq!(merged.bytes() as u64, RECORD_BYTES + 5 * MERGED_PAGE_BYTES);
    }
}
