//! Where the bytes of a stripe lie: arithmetic only.
//!
//! Object bytes fill rows of tiles: the first tile of every data chunk, then the second, and so on. A row is one
//! codeword and is encoded by itself, so that a stripe can be written and read with a few rows in memory.
//!
//! ```text
//!             chunk 0   chunk 1   chunk 2   chunk 3  | chunk 4  chunk 5      rs:4+2
//!   row 0     bytes 0   64 Ki     128 Ki    192 Ki   | parity   parity      tile = 64 KiB
//!   row 1     256 Ki    320 Ki    ...                |
//!   tail row  what is left, in tiles just long enough; filled up with zeros
//! ```
//!
//! In a stripe that was merged, each *band* has rows of its own over its data chunks, so its bytes lie where they lay:
//!
//! ```text
//!             chunk 0 .. 5       chunk 6 .. 11      | chunk 12 .. 14                   rsm:12+3 of two rsm:6+3
//!   row 0     0 .. 384 Ki of a   0 .. 384 Ki of b   | parity over all twelve
//! ```
//!
//! Invariants:
//! 1. All chunks of a stripe have the same length, decided by shape, `sub_bytes` and `data_bytes` alone.
//! 2. Every tile is `alpha` sub-chunks; a full one has `sub_bytes` each, the tail's are shorter, a multiple of 64.
//! 3. Less than `data * alpha * 64` bytes of a band are padding.

use claystone_chunk::ByteRange;
use claystone_code::{CodeSpec, Shape};
use claystone_meta::{Band, StripeRecord};

use crate::StripeError;

/// The lengths of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    shape: Shape,
    sub_bytes: u32,
    data_bytes: u64,
    full_rows: u64,
    tail_sub_bytes: u32,
}

/// One row of tiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Where its tile begins in every chunk.
    pub chunk_offset: u64,
    /// Sub-chunk bytes of its tiles.
    pub sub_bytes: u32,
    /// Bytes of each of its tiles.
    pub tile_bytes: u64,
    /// Where its first object byte is in the stripe.
    pub data_offset: u64,
    /// Object bytes in it, without padding.
    pub data_bytes: u64,
}

impl Layout {
    /// The layout of a stripe of `data_bytes` object bytes.
    ///
    /// # Panics
    /// If `data_bytes` or `sub_bytes` is 0.
    pub fn new(shape: Shape, sub_bytes: u32, data_bytes: u64) -> Layout {
        assert!(data_bytes > 0, "a stripe holds at least one byte");
        assert!(sub_bytes > 0, "a sub-chunk holds at least one byte");
        let subs_per_row = u64::from(shape.data) * u64::from(shape.alpha);
        let row_bytes = subs_per_row * u64::from(sub_bytes);
        let rest = data_bytes % row_bytes;
        let tail = rest.div_ceil(subs_per_row).next_multiple_of(SUB_BYTES_MIN.into());
        // A tail as long as a full row is a full row.
        let tail_is_full = tail >= u64::from(sub_bytes);
        Layout {
            shape,
            sub_bytes,
            data_bytes,
            full_rows: data_bytes / row_bytes + u64::from(tail_is_full),
            tail_sub_bytes: if tail_is_full { 0 } else { tail as u32 },
        }
    }

    /// The layout of a recorded stripe.
    ///
    /// # Errors
    /// `Malformed` if the record has lengths that no writer gives a stripe: the same chunks would show other bytes.
    pub(crate) fn of(record: &StripeRecord) -> Result<Layout, StripeError> {
        let shape = record.code.shape();
        let good = record.data_bytes > 0
            && record.sub_bytes == sub_bytes_for(record.code)
            && record.places.len() == usize::from(shape.chunks());
        if !good {
            return Err(malformed(record));
        }
        Layout::of_data(record)
    }

    /// As [`Layout::of`], whatever places the record has. Its rows are those of the chunks; which bytes they hold, the
    /// layouts of its bands say.
    pub(crate) fn of_data(record: &StripeRecord) -> Result<Layout, StripeError> {
        let shape = record.code.shape();
        if record.bands.is_empty() {
            return Ok(Layout::new(shape, record.sub_bytes, record.data_bytes));
        }
        let chunks: u64 = record.bands.iter().map(|band| u64::from(band.chunks)).sum();
        let whole = record.bands.iter().all(|band| band.chunks > 0 && band.data_bytes > 0);
        if chunks != u64::from(shape.data) || !whole {
            return Err(malformed(record));
        }
        let of = |band: &Band| Layout::new(Shape { data: band.chunks, ..shape }, record.sub_bytes, band.data_bytes);
        let mut layouts = record.bands.iter().map(of);
        let first = layouts.next().expect("there are bands");
        if layouts.any(|layout| layout.chunk_bytes() != first.chunk_bytes()) {
            return Err(malformed(record));
        }
        // Chunks of one length have one number of full rows and one tail.
        Ok(Layout { shape, data_bytes: record.data_bytes, ..first })
    }

    /// Bytes of each chunk of a recorded stripe.
    ///
    /// # Errors
    /// `Malformed`.
    pub fn chunk_bytes_of(record: &StripeRecord) -> Result<u64, StripeError> {
        Ok(Layout::of(record)?.chunk_bytes())
    }

    /// Whether a recorded stripe has whole rows only.
    ///
    /// # Errors
    /// `Malformed`.
    pub fn is_whole_rows(record: &StripeRecord) -> Result<bool, StripeError> {
        Ok(Layout::of(record)?.tail_sub_bytes == 0)
    }

    /// Data chunks, parity chunks and sub-chunks.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Object bytes in the stripe.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Bytes of a full tile.
    pub fn tile_bytes(&self) -> u64 {
        u64::from(self.shape.alpha) * u64::from(self.sub_bytes)
    }

    /// Object bytes of a full row.
    pub fn row_bytes(&self) -> u64 {
        u64::from(self.shape.data) * self.tile_bytes()
    }

    /// Number of rows, the tail included.
    pub fn rows(&self) -> u64 {
        self.full_rows + u64::from(self.tail_sub_bytes > 0)
    }

    /// Rows of full tiles.
    pub fn full_rows(&self) -> u64 {
        self.full_rows
    }

    /// Length of every chunk.
    pub fn chunk_bytes(&self) -> u64 {
        self.full_rows * self.tile_bytes() + u64::from(self.shape.alpha) * u64::from(self.tail_sub_bytes)
    }

    /// Row number `row`.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, row: u64) -> Row {
        assert!(row < self.rows(), "row {row} of {}", self.rows());
        let sub_bytes = if row < self.full_rows { self.sub_bytes } else { self.tail_sub_bytes };
        let tile_bytes = u64::from(self.shape.alpha) * u64::from(sub_bytes);
        let data_offset = row * self.row_bytes();
        Row {
            chunk_offset: row * self.tile_bytes(),
            sub_bytes,
            tile_bytes,
            data_offset,
            data_bytes: (u64::from(self.shape.data) * tile_bytes).min(self.data_bytes - data_offset),
        }
    }

    /// The row that holds object byte `offset`.
    pub fn row_of(&self, offset: u64) -> u64 {
        (offset / self.row_bytes()).min(self.rows() - 1)
    }

    /// Cuts a range of object bytes at tile borders, in order: data chunk and range of that chunk.
    ///
    /// # Panics
    /// If the range is not inside the stripe.
    pub fn slices(&self, range: ByteRange) -> Vec<(u16, ByteRange)> {
        assert!(range.end() <= self.data_bytes, "bytes up to {} of {}", range.end(), self.data_bytes);
        let mut slices = Vec::new();
        let mut offset = range.offset;
        while offset < range.end() {
            let row = self.row(self.row_of(offset));
            let within_row = offset - row.data_offset;
            let chunk = within_row / row.tile_bytes;
            let within_tile = within_row % row.tile_bytes;
            let bytes = (row.tile_bytes - within_tile).min(range.end() - offset);
            slices.push((chunk as u16, ByteRange { offset: row.chunk_offset + within_tile, bytes }));
            offset += bytes;
        }
        slices
    }
}

/// Where the bytes of one band lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BandLayout {
    /// The first of its data chunks.
    first: u16,
    /// Of its data chunks alone.
    pub(crate) layout: Layout,
}

impl BandLayout {
    /// The layout of band `band` of a recorded stripe.
    ///
    /// # Errors
    /// `Malformed`, as [`Layout::of`], and if there is no such band.
    pub(crate) fn of(record: &StripeRecord, band: u16) -> Result<BandLayout, StripeError> {
        let stripe = Layout::of(record)?;
        let bands = record.bands();
        let Some(this) = bands.get(usize::from(band)) else { return Err(malformed(record)) };
        let first = bands[..usize::from(band)].iter().map(|band| band.chunks).sum();
        let layout = Layout::new(Shape { data: this.chunks, ..stripe.shape }, record.sub_bytes, this.data_bytes);
        Ok(BandLayout { first, layout })
    }

    /// As [`Layout::slices`], in chunks of the stripe.
    pub(crate) fn slices(&self, range: ByteRange) -> Vec<(u16, ByteRange)> {
        let slices = self.layout.slices(range);
        slices.into_iter().map(|(chunk, slice)| (self.first + chunk, slice)).collect()
    }
}

fn malformed(record: &StripeRecord) -> StripeError {
    StripeError::Malformed {
        stripe: record.id,
        data_bytes: record.data_bytes,
        sub_bytes: record.sub_bytes,
        places: record.places.len(),
    }
}

/// The sub-chunk length for a new stripe.
///
/// A code without sub-chunks gets tiles of 64 KiB, so that a small range touches one disk and a row stays in cache.
/// Clay gets 4 KiB, the least that a disk reads; where that would make a row of more than 16 MiB (alpha in the
/// thousands), less, and repair then compares its plan with a plain decode in whole sectors.
pub fn sub_bytes_for(code: CodeSpec) -> u32 {
    let shape = code.shape();
    if shape.alpha == 1 {
        return 64 << 10;
    }
    let subs_per_row = u64::from(shape.data) * u64::from(shape.alpha);
    let most = (ROW_BYTES_MAX / subs_per_row).max(SUB_BYTES_MIN.into());
    // A power of two, so that runs of sub-chunks stay aligned to sectors.
    let most = 1u64 << most.ilog2();
    (most as u32).min(claystone_chunk::SECTOR_BYTES)
}

const SUB_BYTES_MIN: u32 = 64;
const ROW_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn layout(code: &str, data_bytes: u64) -> Layout {
        let code: CodeSpec = code.parse().expect("a valid code");
        Layout::new(code.shape(), sub_bytes_for(code), data_bytes)
    }

    #[test]
    fn clay_tile_of_4_2_is_eight_sectors() {
        let layout = layout("clay:4+2:5", 256 << 10);
        assert_eq!(layout.tile_bytes(), 32 << 10);
        assert_eq!((layout.rows(), layout.chunk_bytes()), (2, 64 << 10));
    }

    #[test]
    fn wide_clay_keeps_its_row_within_16_mib() {
        let layout = layout("clay:16+4:19", 1 << 30);
        assert_eq!(layout.row_bytes(), 16 << 20);
        assert_eq!(layout.row(0).sub_bytes, 1024);
    }

    #[test]
    fn one_byte_costs_one_small_tile() {
        let layout = layout("rs:4+2", 1);
        assert_eq!((layout.rows(), layout.full_rows(), layout.chunk_bytes()), (1, 0, 64));
        assert_eq!(layout.slices(ByteRange { offset: 0, bytes: 1 }), [(0, ByteRange { offset: 0, bytes: 1 })]);
    }

    #[test]
    fn a_tail_as_long_as_a_row_is_a_row() {
        let layout = layout("rs:4+2", (256 << 10) - 1);
        assert_eq!((layout.rows(), layout.full_rows(), layout.chunk_bytes()), (1, 1, 64 << 10));
    }

    proptest! {
        #[test]
        fn slices_cover_a_range_once_and_stay_inside_their_chunk(
            code in prop::sample::select(vec!["rs:4+2", "clay:4+2:5", "replica:3", "clay:9+3:11", "rs:17+3"]),
            data_bytes in 1u64..20_000_000,
            a in any::<prop::sample::Index>(),
            b in any::<prop::sample::Index>(),
        ) {
            let layout = layout(code, data_bytes);
            let (a, b) = (a.index(data_bytes as usize + 1) as u64, b.index(data_bytes as usize + 1) as u64);
            let range = ByteRange { offset: a.min(b), bytes: a.max(b) - a.min(b) };
            let slices = layout.slices(range);
            prop_assert_eq!(slices.iter().map(|(_, slice)| slice.bytes).sum::<u64>(), range.bytes);
            let mut seen = std::collections::BTreeSet::new();
            for (chunk, slice) in slices {
                prop_assert!(chunk < layout.shape().data);
                prop_assert!(slice.end() <= layout.chunk_bytes());
                prop_assert!(seen.insert((chunk, slice.offset)));
            }
            // Padding is bounded: invariant 3.
            let padded = layout.chunk_bytes() * u64::from(layout.shape().data);
            let bound = u64::from(layout.shape().data) * u64::from(layout.shape().alpha) * 64;
            prop_assert!(padded >= data_bytes && padded - data_bytes < bound, "{padded} for {data_bytes}");
        }
    }
}
