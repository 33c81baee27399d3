//! Reads ranges of single chunks of a stripe, data or parity, decoding where a chunk does not give them.

use std::collections::BTreeMap;

use bytes::Bytes;
use claystone_chunk::ByteRange;
use claystone_code::ChunkIndex;
use claystone_meta::StripeRecord;

use crate::gather::{Sources, Window, gather, read_plain};
use crate::{Layout, StripeError, Stripes};

/// Whether the caller holds the stripe: see [`Stripes::try_alone`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holding {
    /// It does, alone or shared.
    Held,
    /// It does not: to decode, the stripe is shared for as long as that takes.
    NotHeld,
}

pub(crate) async fn read_columns(
    stripes: &Stripes,
    record: &StripeRecord,
    ranges: &BTreeMap<ChunkIndex, ByteRange>,
    holding: Holding,
) -> Result<BTreeMap<ChunkIndex, Bytes>, StripeError> {
    let layout = Layout::of(record)?;
    assert_eq!(layout.shape().alpha, 1, "only without sub-chunks any range is a codeword by itself");
    assert!(ranges.values().all(|range| range.bytes > 0 && range.end() <= layout.chunk_bytes()), "within the chunks");
    let mut sources = Sources::new(stripes, record, stripes.settings.hedge_delay_min);
    if let Some(chunks) = read_plain(stripes, &mut sources, ranges).await {
        return Ok(chunks);
    }
    let _hold = match holding {
        Holding::Held => None,
        Holding::NotHeld => Some(stripes.holds.share(record.id).await),
    };
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
