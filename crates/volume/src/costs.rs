//! Bytes that a volume keeps beside contents, to know which pages wait: for whoever counts metadata.
//!
//! In the log they are those of its records; in memory those of the map of diffs, whose trees have nodes of 11 places. Pages
//! that come in order leave leaves with 6 and one above, seven leaves under each inner node: 36 bytes a page, where an
//! allocator that counted saw 37, and 30 for pages in any order.

use crate::diffs::{STRIPE_BYTES, TREE_ENTRY_BYTES};
use crate::log::record::{HEAD_BYTES, number_bytes};

/// A record of a write, but for its pages, in a volume of so many. The numbers in a log have as many bytes as they need; these
/// here are of one that is written and merged at random, with segments of up to 128 MiB.
pub fn write_bytes(volume_pages: u64) -> u64 {
    (HEAD_BYTES + number_bytes(volume_pages)) as u64
}

/// Each page of a record of a write.
pub const WRITTEN_PAGE_BYTES: u64 = 4;
/// The first record of a segment, and those that the ones before it are synced.
pub const BEGIN_BYTES: u64 = 3 * HEAD_BYTES as u64 + 35;
/// An intent and the record that it was carried out, but for stripes, sectors and pages.
pub const MERGE_BYTES: u64 = 2 * HEAD_BYTES as u64 + 18;
/// Each stripe of an intent, in a volume of so many.
pub fn intent_stripe_bytes(volume_stripes: u64) -> u64 {
    difference_bytes(volume_stripes) + 16
}

/// Each sector of data of an intent, in a row of its own.
pub const INTENT_DATA_BYTES: u64 = 13;
/// Each sector of parity of an intent.
pub const INTENT_PARITY_BYTES: u64 = 5;
/// Sectors of stripes after which an intent ends.
pub const INTENT_SECTORS: u64 = crate::merge::INTENT_SECTORS as u64;
/// Each page of a record of merged pages, in a volume of so many.
pub fn merged_page_bytes(volume_pages: u64) -> u64 {
    difference_bytes(volume_pages) + 5
}

/// A difference of two numbers below this, with its sign.
fn difference_bytes(bound: u64) -> u64 {
    number_bytes(2 * bound) as u64
}

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

    /// Records of random pages of volumes of 24 MiB, and of 16 TiB.
    #[test]
    fn records_have_no_more_bytes_than_that() {
        records_of(6, 6 << 10, 90);
        records_of(1 << 22, 1 << 32, 100);
    }

    fn records_of(stripes: u64, pages: u64, spared_max: u64) {
        let mut random = 7_u64;
        let mut below = |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 20) % bound
        };
        // Numbers begin with the term of a lease.
        let segment = 900 << 24;
        for _ in 0..100 {
            let content = Bytes::from(vec![0; 2 * 4096]);
            let write = Record::Write { first: Page(below(pages)), crcs: vec![0; 2], content };
            assert!(write.bytes() as u64 <= write_bytes(pages) + 2 * WRITTEN_PAGE_BYTES + 2 * 4096);
            let place = LogPlace { segment: segment + 1, offset: below(1 << 27) };
            let previous = Some(place);
            let begin = Record::Begin { over_below: segment, previous, unsynced_from: Some(segment), page_bytes: 4096 };
            let synced = Record::Synced { below: segment };
            assert!((begin.bytes() + 2 * synced.bytes()) as u64 <= BEGIN_BYTES);

            let (mut intent, mut diffs) = (Intent::default(), Vec::new());
            for stripe in 0..10 {
                intent.stripes.push((below(stripes), StripeId(u128::MAX)));
                let (sector, chunk) = (below(256) as u32, below(4) as u16);
                let place = LogPlace { segment: segment + below(60), offset: below(1 << 27) };
                let sources = [(chunk, Source::Log(place)), (4, Source::Inline), (5, Source::Inline)];
                intent.sectors.extend(sources.map(|(chunk, source)| SectorWrite {
                    stripe,
                    chunk: ChunkIndex(chunk),
                    sector,
                    crc: u32::MAX,
                    source,
                }));
                diffs.push((Page(below(pages)), place));
            }
            let merged = Record::Merged { intent: Some(place), diffs };
            let each =
                intent_stripe_bytes(stripes) + INTENT_DATA_BYTES + 2 * INTENT_PARITY_BYTES + merged_page_bytes(pages);
            let bytes = (Record::Intent(intent).bytes() + merged.bytes()) as u64;
            assert!((0..spared_max).contains(&(MERGE_BYTES + 10 * each - bytes)), "{bytes}");
        }
    }
}
