//! Chooses what to read: planes from many chunks, or k whole chunks.
//!
//! Invariants:
//! 1. A plan never reads more bytes, in granules, than the wanted chunks that are left and further whole chunks up to k.
//! 2. A repair plan satisfies what `compile` needs: per plane at most m unknown nodes, no aloof node in a section with
//!    a lost one.
//! 3. With all chunks but one readable and sub-chunks of whole granules, a lost chunk is repaired from d * alpha / q
//!    sub-chunks.

use std::ops::Range;

use super::grid::Grid;
use crate::{
    ChunkIndex, ChunkRead, CodeSpec, Method, ReadCosts, ReadPlan, Unrecoverable, code::cheapest, plan::granule_bytes,
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
        let from = want.iter().map(|chunk| kept.binary_search(chunk).expect("every wanted chunk is read"));
        let from = from.map(|at| u16::try_from(at).expect("at most 256 chunks")).collect();
        return Ok(plan(whole(grid, &kept), Method::Copy { from }));
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

    if let Some(repair) = Repair::find(grid, &kept, &lost, costs) {
        let bytes = |ranges: &[Range<u32>]| granule_bytes(ranges, grid.alpha, costs.sub_bytes, costs.granule);
        let tile = u64::from(grid.alpha) * u64::from(costs.sub_bytes);
        let partial = (repair.helpers.len() - kept.len()) as u64 * bytes(&repair.planes);
        if partial + kept.len() as u64 * tile < decode.len() as u64 * tile {
            let read = |chunk: &ChunkIndex| ChunkRead {
                chunk: *chunk,
                sub_chunks: if kept.contains(chunk) { all(grid) } else { repair.planes.clone() },
            };
            let reads = repair.helpers.iter().map(read).collect();
            return Ok(plan(reads, Method::ClayRepair { lost: repair.lost, aloof: repair.aloof }));
        }
    }
    Ok(plan(whole(grid, &decode), Method::ClayDecode))
}

/// The planes of a repair of `lost`: those in which one of them is a dot. Source: [clay §4]
pub(super) fn repair_planes(grid: &Grid, lost: &[ChunkIndex]) -> Vec<Range<u32>> {
    let nodes: Vec<u16> = lost.iter().map(|chunk| grid.node(*chunk)).collect();
    let mut ranges: Vec<Range<u32>> = Vec::new();
    for (plane, score) in (0..).zip(grid.scores(&nodes)) {
        match ranges.last_mut() {
            _ if score == 0 => {}
            Some(range) if range.end == plane => range.end += 1,
            _ => ranges.push(plane..plane + 1),
        }
    }
    ranges
}

/// All sub-chunks of a tile.
#[expect(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
pub(super) fn all(grid: &Grid) -> Vec<Range<u32>> {
    vec![0..grid.alpha]
}

fn whole(grid: &Grid, chunks: &[ChunkIndex]) -> Vec<ChunkRead> {
    chunks.iter().map(|chunk| ChunkRead { chunk: *chunk, sub_chunks: all(grid) }).collect()
}

/// A repair by planes, not yet compared with decoding.
struct Repair {
    lost: Vec<ChunkIndex>,
    aloof: Vec<ChunkIndex>,
    /// All other chunks.
    helpers: Vec<ChunkIndex>,
    planes: Vec<Range<u32>>,
}

impl Repair {
    /// Source: [clay §4], with several failures as in its Algorithm 1.
    ///
    /// Unknown in a plane of score 1 are all lost nodes, the other nodes of the section that is hit (their companions
    /// lie in planes that are not read) and the aloof nodes; planes of higher score know the section from lower ones.
    /// These must be at most m. An unreadable chunk in a section that is hit cannot be aloof: it counts as lost.
    fn find(grid: &Grid, kept: &[ChunkIndex], wanted: &[ChunkIndex], costs: &ReadCosts) -> Option<Self> {
        let section = |chunk: ChunkIndex| grid.section(grid.node(chunk));
        let mut hit = vec![0u16; usize::from(grid.t)];
        for chunk in wanted {
            hit[usize::from(section(*chunk))] = 1;
        }
        let is_hit = |chunk: ChunkIndex| hit[usize::from(section(chunk))] > 0;
        let chunks = (0..grid.chunks()).map(ChunkIndex);
        let (lost, others): (Vec<ChunkIndex>, Vec<ChunkIndex>) =
            chunks.partition(|chunk| costs.chunks[chunk.at()].is_none() && is_hit(*chunk));
        let mut failures = vec![0u16; usize::from(grid.t)];
        for chunk in &lost {
            failures[usize::from(section(*chunk))] += 1;
        }
        if failures.contains(&grid.q) {
            return None; // Every plane would be read.
        }
        let mates = failures.iter().filter(|failures| **failures > 0).map(|failures| grid.q - failures).max()?;
        let unknown = u16::try_from(lost.len()).expect("at most 256 chunks") + mates;
        let room = usize::from(grid.parity.checked_sub(unknown)?);

        // Chunks that could be aloof, the unreadable ones first, then the dearest.
        let mut aloof: Vec<ChunkIndex> =
            others.iter().copied().filter(|chunk| !is_hit(*chunk) && !kept.contains(chunk)).collect();
        aloof.sort_by_key(|chunk| {
            (costs.chunks[chunk.at()].is_some(), std::cmp::Reverse(costs.chunks[chunk.at()]), std::cmp::Reverse(*chunk))
        });
        if aloof.iter().filter(|chunk| costs.chunks[chunk.at()].is_none()).count() > room {
            return None;
        }
        aloof.truncate(room);
        aloof.sort_unstable();
        let helpers = others.into_iter().filter(|chunk| !aloof.contains(chunk)).collect();
        let planes = repair_planes(grid, &lost);
        Some(Self { lost, aloof, helpers, planes })
    }
}
