//! Reads a range of the object bytes of a stripe or of a band of it, window by window.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use claystone_chunk::ByteRange;
use claystone_code::{ChunkIndex, ErasureCode};
use claystone_meta::StripeRecord;

use crate::gather::{Sources, Window, gather, read_plain};
use crate::layout::BandLayout;
use crate::{Layout, StripeError, Stripes};

/// The bytes of a range, in order. One window of rows is in memory at a time.
///
/// Each window is first read as it lies, just the bytes that are asked for. If a chunk of it is lost, fails or is
/// late, the window is read again by the code's plans, and the following windows leave that chunk out at once.
pub struct StripeReader {
    stripes: Stripes,
    record: StripeRecord,
    band: u16,
    /// Built when it is needed.
    code: Option<Arc<dyn ErasureCode>>,
    /// An error of the first read, if the record is damaged.
    layout: Option<BandLayout>,
    sources: Sources,
    /// This read was counted as degraded.
    counted: bool,
    next: u64,
    end: u64,
    ready: VecDeque<Bytes>,
}

impl StripeReader {
    pub(crate) fn new(stripes: &Stripes, record: &StripeRecord, band: u16, range: ByteRange) -> StripeReader {
        let data_bytes = record.bands()[usize::from(band)].data_bytes;
        assert!(range.end() <= data_bytes, "bytes up to {} of {data_bytes}", range.end());
        StripeReader {
            stripes: stripes.clone(),
            code: None,
            layout: None,
            sources: Sources::new(stripes, record, stripes.settings.hedge_delay_min),
            counted: false,
            record: record.clone(),
            band,
            next: range.offset,
            end: range.end(),
            ready: VecDeque::new(),
        }
    }

    /// The next bytes, never empty; `None` at the end.
    ///
    /// # Errors
    /// `Unrecoverable`, `Malformed`, `Code`. There is nothing more to read after an error.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StripeError> {
        if let Some(bytes) = self.ready.pop_front() {
            return Ok(Some(bytes));
        }
        if self.next == self.end {
            return Ok(None);
        }
        let layout = match self.layout {
            Some(layout) => layout,
            None => *self.layout.insert(BandLayout::of(&self.record, self.band)?),
        };
        let range = self.window(&layout.layout);
        self.next = range.end();
        self.read(&layout, range).await?;
        Ok(self.ready.pop_front())
    }

    /// The object bytes to read in the next step: up to a border of rows, full rows and the tail apart.
    fn window(&self, layout: &Layout) -> ByteRange {
        let rows = (self.stripes.settings.window_bytes / layout.row_bytes()).max(1);
        let first = layout.row_of(self.next);
        let full = layout.full_rows();
        let after = if first < full { (first + rows).min(full) } else { first + 1 };
        let last = layout.row(after - 1);
        let end = (last.data_offset + last.data_bytes).min(self.end);
        ByteRange { offset: self.next, bytes: end - self.next }
    }

    async fn read(&mut self, layout: &BandLayout, range: ByteRange) -> Result<(), StripeError> {
        let slices = layout.slices(range);
        // The slices of one chunk lie one behind the other: between the first and the last all of its tiles are in.
        let mut ranges: BTreeMap<ChunkIndex, ByteRange> = BTreeMap::new();
        for (chunk, slice) in &slices {
            let whole = ranges.entry(ChunkIndex(*chunk)).or_insert(*slice);
            whole.bytes = slice.end() - whole.offset;
        }
        let (offsets, chunks) = match read_plain(&self.stripes, &mut self.sources, &ranges).await {
            Some(chunks) => (ranges, chunks),
            None => self.recover(&layout.layout, range, &ranges).await?,
        };
        for (chunk, slice) in slices {
            let chunk = ChunkIndex(chunk);
            let start = (slice.offset - offsets[&chunk].offset) as usize;
            self.ready.push_back(chunks[&chunk].slice(start..start + slice.bytes as usize));
        }
        Ok(())
    }

    /// Reads by the code's plans. Returns for each wanted chunk what was got of it, and where that lies.
    async fn recover(
        &mut self,
        layout: &Layout,
        range: ByteRange,
        ranges: &BTreeMap<ChunkIndex, ByteRange>,
    ) -> Result<(BTreeMap<ChunkIndex, ByteRange>, BTreeMap<ChunkIndex, Bytes>), StripeError> {
        if !self.counted && ranges.keys().any(|chunk| self.sources.is_lost(*chunk)) {
            self.counted = true;
            self.stripes.degraded.read(self.record.id, self.stripes.env.clock.now());
        }
        let code = match &self.code {
            Some(code) => code.clone(),
            None => self.code.insert(self.record.code.build()?).clone(),
        };
        let window = if code.shape().alpha == 1 {
            // Without sub-chunks any stretch of bytes is a codeword by itself.
            let offset = ranges.values().map(|range| range.offset).min().expect("a window is not empty");
            let end = ranges.values().map(|range| range.end()).max().expect("a window is not empty");
            Window { offset, sub_bytes: (end - offset) as u32, tile_bytes: end - offset, tiles: 1 }
        } else {
            let first = layout.row_of(range.offset);
            let last = layout.row_of(range.end() - 1);
            let row = layout.row(first);
            Window {
                offset: row.chunk_offset,
                sub_bytes: row.sub_bytes,
                tile_bytes: row.tile_bytes,
                tiles: last - first + 1,
            }
        };
        let want: Vec<ChunkIndex> = ranges.keys().copied().collect();
        let gathered = gather(&self.stripes, &self.record, &*code, window, &want, &mut self.sources).await?;
        let got = ByteRange { offset: window.offset, bytes: window.tiles * window.tile_bytes };
        let offsets = want.iter().map(|index| (*index, got)).collect();
        Ok((offsets, want.into_iter().zip(gathered.chunks).collect()))
    }
}
