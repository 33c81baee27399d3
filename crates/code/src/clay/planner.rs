//! Chooses what to read: planes from many chunks, or k whole chunks.
//!
//! Invariants:
//! 1. A plan never reads more bytes, in granules, than the wanted chunks that are left and further whole chunks up to k.
//! 2. What a plan reads follows from its wants, which of them are read whole, and its method; so these name a program.
//! 3. With all chunks but one readable and sub-chunks of whole granules, a lost chunk is repaired from d * alpha / q
//!    sub-chunks.

use std::ops::Range;

use super::{grid::Grid, stages::Search};
use crate::{
    ChunkIndex, ChunkRead, CodeSpec, Method, ReadCosts, ReadPlan, Unrecoverable,
    code::{cheapest, copies},
};

/// See [`crate::ErasureCode::plan_read`]; `want` and `costs` are checked.
pub(super) fn plan_read(
    grid: &Grid,
    spec: CodeSpec,
    want: &[ChunkIndex],
    costs: &ReadCosts,
) -> Result<ReadPlan, Unrecoverable> {
    let (mut kept, lost): (Vec<ChunkIndex>, Vec<ChunkIndex>) =
        want.iter().partition(|chunk| costs.chunks[chunk.at()].is_some());
    kept.sort_unstable();
    let plan = |reads, method| ReadPlan { want: want.to_vec(), reads, method, alpha: grid.alpha };
    if lost.is_empty() {
        return Ok(plan(whole(grid, &kept), copies(want, &kept)));
    }

    let needed = usize::from(grid.data);
    let mut decode = kept.clone();
    decode.extend(cheapest(costs, &kept, needed.saturating_sub(kept.len())));
    decode.sort_unstable();
    if decode.len() < needed {
        let count = |len: usize| u16::try_from(len).expect("at most 256 chunks");
        return Err(Unrecoverable {
            spec,
            wanted_lost: count(lost.len()),
            available: count(decode.len()),
            needed: grid.data,
            chunks: grid.chunks(),
        });
    }

    let tile = u64::from(grid.alpha) * u64::from(costs.sub_bytes);
    let search = Search { grid, costs, kept: &kept, wanted: &lost };
    if let Some(stages) = search.cheapest_below(decode.len() as u64 * tile) {
        let reads = search.reads(&stages);
        return Ok(plan(reads, Method::ClayRepair { stages }));
    }
    Ok(plan(whole(grid, &decode), Method::ClayDecode))
}

/// All sub-chunks of a tile.
#[expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
pub(super) fn all(grid: &Grid) -> Vec<Range<u32>> {
    vec![0..grid.alpha]
}

fn whole(grid: &Grid, chunks: &[ChunkIndex]) -> Vec<ChunkRead> {
    chunks.iter().map(|chunk| ChunkRead { chunk: *chunk, sub_chunks: all(grid) }).collect()
}
