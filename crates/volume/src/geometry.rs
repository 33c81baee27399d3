//! Where a volume's pages lie in its stripes: arithmetic only.
//!
//! ```text
//!             chunk 0        chunk 1        ..  chunk k-1      | parity
//!  stripe 0   bytes 0..c     c..2c              (k-1)c..kc     |
//!  stripe 1   kc..(k+1)c     ...                               |          c = chunk_bytes
//! ```
//!
//! A chunk holds bytes of the volume that follow each other, so that a read of them is one read of one disk.

use std::ops::Range;

use claystone_chunk::{ByteRange, SECTOR_BYTES};
use claystone_code::ChunkIndex;

/// The lengths of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of a chunk: whole pages and whole sectors.
    pub chunk_bytes: u64,
    /// Data chunks of a stripe.
    pub columns: u16,
}

/// The number of a page of a volume, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Page(pub u64);

/// A byte of a volume in its stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// The stripe's position in the volume.
    pub position: u64,
    /// The data chunk.
    pub column: ChunkIndex,
    /// The offset in the chunk.
    pub offset: u64,
}

impl Geometry {
    /// Bytes of the volume in one stripe.
    pub fn stripe_bytes(&self) -> u64 {
        self.chunk_bytes * u64::from(self.columns)
    }

    /// Where a byte lies.
    pub fn spot(&self, byte: u64) -> Spot {
        let within = byte % self.stripe_bytes();
        Spot {
            position: byte / self.stripe_bytes(),
            column: ChunkIndex((within / self.chunk_bytes) as u16),
            offset: within % self.chunk_bytes,
        }
    }

    /// The volume's byte at a spot.
    pub fn byte(&self, spot: Spot) -> u64 {
        spot.position * self.stripe_bytes() + u64::from(spot.column.0) * self.chunk_bytes + spot.offset
    }

    /// Cuts bytes of the volume at the borders of chunks.
    pub fn chunks(&self, bytes: Range<u64>) -> impl Iterator<Item = ByteRange> {
        let mut at = bytes.start;
        std::iter::from_fn(move || {
            let start = at;
            at = (start + self.chunk_bytes - self.spot(start).offset).min(bytes.end);
            (start < bytes.end).then(|| ByteRange { offset: start, bytes: at - start })
        })
    }

    /// Where a page begins, in bytes of the volume.
    pub fn start(&self, page: Page) -> u64 {
        page.0 * u64::from(self.page_bytes)
    }

    /// The page that a byte is in.
    pub fn page(&self, byte: u64) -> Page {
        Page(byte / u64::from(self.page_bytes))
    }

    /// Pages of a stripe.
    pub fn stripe_pages(&self) -> u64 {
        self.stripe_bytes() / u64::from(self.page_bytes)
    }

    /// The stripe that a page is in.
    pub fn position(&self, page: Page) -> u64 {
        page.0 / self.stripe_pages()
    }

    /// The stripes that pages are in.
    pub fn positions(&self, pages: &Range<Page>) -> Range<u64> {
        if pages.is_empty() {
            return 0..0;
        }
        self.position(pages.start)..self.position(Page(pages.end.0 - 1)) + 1
    }

    /// Whether chunks are whole pages and whole sectors.
    pub fn is_sound(&self) -> bool {
        let page = u64::from(self.page_bytes);
        self.page_bytes.is_power_of_two()
            && (512..=65536).contains(&self.page_bytes)
            && self.columns > 0
            && self.chunk_bytes > 0
            && self.chunk_bytes.is_multiple_of(page)
            && self.chunk_bytes.is_multiple_of(u64::from(SECTOR_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spots_and_bytes_are_each_others_inverse() {
        let geometry = Geometry { page_bytes: 4096, chunk_bytes: 3 * 4096, columns: 2 };
        assert!(geometry.is_sound());
        assert_eq!(geometry.spot(0), Spot { position: 0, column: ChunkIndex(0), offset: 0 });
        assert_eq!(geometry.spot(5 * 4096 + 7), Spot { position: 0, column: ChunkIndex(1), offset: 2 * 4096 + 7 });
        assert_eq!(geometry.spot(6 * 4096), Spot { position: 1, column: ChunkIndex(0), offset: 0 });
        for byte in (0..20 * 4096).step_by(777) {
            assert_eq!(geometry.byte(geometry.spot(byte)), byte);
        }
        assert_eq!((geometry.position(Page(5)), geometry.position(Page(6))), (0, 1));
    }
}
