//! Reads ranges of single chunks of a stripe, data or parity, decoding where a chunk does not give them.

use std::collections::BTreeMap;

use bytes::Bytes;
use claystone_chunk::ByteRange;
use claystone_code::ChunkIndex;
use claystone_meta::StripeRecord;

use crate::gather::{Sources, Window, gather, read_plain};
use crate::{Layout, StripeError, Stripes};

/// As they lie; `None` if one of them fails or is late.
pub(crate) async fn read_columns_plain(
    stripes: &Stripes,
    record: &StripeRecord,
    ranges: &BTreeMap<ChunkIndex, ByteRange>,
) -> Option<BTreeMap<ChunkIndex, Bytes>> {
    check(&Layout::of(record).ok()?, ranges);
    let mut sources = Sources::new(stripes, record, stripes.settings.hedge_delay_min);
    read_plain(stripes, &mut sources, ranges).await
}

pub(crate) async fn read_columns(
    stripes: &Stripes,
    record: &StripeRecord,
    ranges: &BTreeMap<ChunkIndex, ByteRange>,
) -> Result<BTreeMap<ChunkIndex, Bytes>, StripeError> {
    check(&Layout::of(record)?, ranges);
    let mut sources = Sources::new(stripes, record, stripes.settings.hedge_delay_min);
    if let Some(chunks) = read_plain(stripes, &mut sources, ranges).await {
        return Ok(chunks);
    }
    let code = record.code.build()?;
    // Ranges that lie together are decoded together: each window is all chunks that are wanted in the same range.
    let mut windows: BTreeMap<ByteRange, Vec<ChunkIndex>> = BTreeMap::new();
    for (index, range) in ranges {
        windows.entry(*range).or_default().push(*index);
    }
    let mut chunks = BTreeMap::new();
    for (range, want) in windows {
        let window = Window { offset: range.offset, sub_bytes: range.bytes as u32, tile_bytes: range.bytes, tiles: 1 };
        let gathered = gather(stripes, record, &*code, window, &want, &mut sources).await?;
        chunks.extend(want.into_iter().zip(gathered.chunks));
    }
    Ok(chunks)
}

fn check(layout: &Layout, ranges: &BTreeMap<ChunkIndex, ByteRange>) {
    assert_eq!(layout.shape().alpha, 1, "only without sub-chunks any range is a codeword by itself");
    assert!(ranges.values().all(|range| range.bytes > 0 && range.end() <= layout.chunk_bytes()), "within the chunks");
}
