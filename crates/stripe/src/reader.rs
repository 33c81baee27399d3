//! Reads a range of a stripe's object bytes, window by window.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use claystone_chunk::ByteRange;
use claystone_code::{ChunkIndex, ErasureCode};
use claystone_meta::StripeRecord;

use crate::gather::{Sources, Window, gather, read_plain};
use crate::{Layout, StripeError, Stripes};

/// The bytes of a range, in order. One window of rows is in memory at a time.
///
/// Each window is first read as it lies, just the bytes that are asked for. If a chunk of it is lost, fails or is
/// late, the window is read again by the code's plans, and the following windows leave that chunk out at once.
pub struct StripeReader {
    stripes: Stripes,
    record: StripeRecord,
    /// Built at the first read; a code that cannot be built is an error of that read.
    code: Option<Arc<dyn ErasureCode>>,
    layout: Layout,
    sources: Sources,
    next: u64,
    end: u64,
    ready: VecDeque<Bytes>,
}

impl StripeReader {
    pub(crate) fn new(stripes: &Stripes, record: &StripeRecord, range: ByteRange) -> StripeReader {
        assert!(range.end() <= record.data_bytes, "bytes up to {} of {}", range.end(), record.data_bytes);
        StripeReader {
            stripes: stripes.clone(),
            code: None,
            layout: Layout::new(record.code.shape(), record.sub_bytes, record.data_bytes),
            sources: Sources::new(stripes, record),
            record: record.clone(),
            next: range.offset,
            end: range.end(),
            ready: VecDeque::new(),
        }
    }

    /// The next bytes, never empty; `None` at the end.
    ///
    /// # Errors
    /// `Unrecoverable`, `Code`. There is nothing more to read after an error.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StripeError> {
        if let Some(bytes) = self.ready.pop_front() {
            return Ok(Some(bytes));
        }
        if self.next == self.end {
            return Ok(None);
        }
        let range = self.window();
        self.next = range.end();
        self.read(range).await?;
        Ok(self.ready.pop_front())
    }

    /// The object bytes to read in the next step: up to a border of rows, full rows and the tail apart.
    fn window(&self) -> ByteRange {
        let rows = (self.stripes.settings.window_bytes / self.layout.row_bytes()).max(1);
        let first = self.layout.row_of(self.next);
        let full = self.layout.full_rows();
        let after = if first < full { (first + rows).min(full) } else { first + 1 };
        let last = self.layout.row(after - 1);
        let end = (last.data_offset + last.data_bytes).min(self.end);
        ByteRange { offset: self.next, bytes: end - self.next }
    }

    async fn read(&mut self, range: ByteRange) -> Result<(), StripeError> {
        let slices = self.layout.slices(range);
        // The slices of one chunk lie one behind the other: between the first and the last all of its tiles are in.
        let mut ranges: BTreeMap<ChunkIndex, ByteRange> = BTreeMap::new();
        for (chunk, slice) in &slices {
            let whole = ranges.entry(ChunkIndex(*chunk)).or_insert(*slice);
            whole.bytes = slice.end() - whole.offset;
        }
        let (offsets, chunks) = match read_plain(&self.stripes, &mut self.sources, &ranges).await {
            Some(chunks) => (ranges, chunks),
            None => self.recover(range, &ranges).await?,
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
        range: ByteRange,
        ranges: &BTreeMap<ChunkIndex, ByteRange>,
    ) -> Result<(BTreeMap<ChunkIndex, ByteRange>, BTreeMap<ChunkIndex, Bytes>), StripeError> {
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
            let first = self.layout.row_of(range.offset);
            let last = self.layout.row_of(range.end() - 1);
            let row = self.layout.row(first);
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
