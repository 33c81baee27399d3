//! How the diffs of a stripe reach its chunks: a pure function.
//!
//! A *row* here is one sector of every chunk, at the same place: what a code without sub-chunks encodes by itself. Rows
//! that follow each other and have diffs in the same chunks are one [`MergeRun`].
//!
//! Invariants:
//! 1. Every diff of the stripe is in exactly one run, or in several where a page is several sectors.
//! 2. A run reads as few chunks as either way of making its parity needs.

use std::collections::{BTreeMap, BTreeSet};

use claystone_chunk::{ByteRange, SECTOR_BYTES};
use claystone_code::ChunkIndex;

use crate::diffs::Diff;
use crate::geometry::{Geometry, Page};

/// Rows whose diffs are merged alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeRun {
    /// The first row.
    pub first: u32,
    /// How many.
    pub rows: u32,
    /// The data chunks with diffs in them.
    pub columns: BTreeSet<ChunkIndex>,
    /// How the parity is made.
    pub method: MergeMethod,
    /// Chunks to read, all of them in these rows.
    pub reads: BTreeSet<ChunkIndex>,
}

/// How new parity is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeMethod {
    /// Old parity plus what the change of the data contributes to it.
    Delta,
    /// From all data.
    Encode,
}

impl MergeRun {
    /// Its bytes in each chunk.
    pub fn range(&self) -> ByteRange {
        let sector = u64::from(SECTOR_BYTES);
        ByteRange { offset: u64::from(self.first) * sector, bytes: u64::from(self.rows) * sector }
    }
}

/// Plans to merge `diffs`, all of one stripe and ascending. `parity`: the parity chunks that have a place, of all chunks
/// behind the data.
pub fn plan_merge(geometry: &Geometry, parity: &BTreeSet<ChunkIndex>, diffs: &[(Page, Diff)]) -> Vec<MergeRun> {
    let sector = u64::from(SECTOR_BYTES);
    let page_bytes = u64::from(geometry.page_bytes);
    let mut rows: BTreeMap<u32, BTreeSet<ChunkIndex>> = BTreeMap::new();
    for (page, _) in diffs {
        let spot = geometry.spot(geometry.start(*page));
        for row in spot.offset / sector..(spot.offset + page_bytes).div_ceil(sector) {
            rows.entry(row as u32).or_default().insert(spot.column);
        }
    }
    // A page shorter than a sector leaves the sector's other bytes as they are.
    let keeps_old = page_bytes < sector;
    let mut runs: Vec<MergeRun> = Vec::new();
    for (row, columns) in rows {
        match runs.last_mut() {
            Some(run) if run.first + run.rows == row && run.columns == columns && run.rows < RUN_ROWS_MAX => {
                run.rows += 1;
                continue;
            }
            _ => {}
        }
        let others = usize::from(geometry.columns) - columns.len();
        let encode_reads = if keeps_old { usize::from(geometry.columns) } else { others };
        let delta_reads = columns.len() + parity.len();
        // Where both read as much, the chunks that are read are those that are written.
        let method = if encode_reads < delta_reads { MergeMethod::Encode } else { MergeMethod::Delta };
        let reads = match method {
            MergeMethod::Delta => columns.union(parity).copied().collect(),
            MergeMethod::Encode => {
                let all = (0..geometry.columns).map(ChunkIndex);
                all.filter(|column| keeps_old || !columns.contains(column)).collect()
            }
        };
        runs.push(MergeRun { first: row, rows: 1, columns, method, reads });
    }
    runs
}

/// Bounds the memory of a run: chunks of it are this many sectors.
const RUN_ROWS_MAX: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diffs::DiffKind;
    use crate::log::record::LogPlace;

    fn plan(page_bytes: u32, pages: &[u64]) -> Vec<MergeRun> {
        let geometry = Geometry { page_bytes, chunk_bytes: 65536, columns: 4 };
        let diff = Diff { at: LogPlace { segment: 1, offset: 0 }, kind: DiffKind::Zeros };
        let diffs: Vec<_> = pages.iter().map(|page| (Page(*page), diff)).collect();
        plan_merge(&geometry, &[ChunkIndex(4), ChunkIndex(5)].into(), &diffs)
    }

    fn chunks(indices: &[u16]) -> BTreeSet<ChunkIndex> {
        indices.iter().copied().map(ChunkIndex).collect()
    }

    #[test]
    fn one_page_reads_itself_and_the_parity() {
        let runs = plan(4096, &[16 + 3]);
        assert_eq!(runs.len(), 1);
        assert_eq!((runs[0].first, runs[0].rows, runs[0].method), (3, 1, MergeMethod::Delta));
        assert_eq!((&runs[0].columns, &runs[0].reads), (&chunks(&[1]), &chunks(&[1, 4, 5])));
    }

    #[test]
    fn a_row_of_diffs_reads_what_has_none() {
        let runs = plan(4096, &[3, 16 + 3, 32 + 3]);
        assert_eq!((runs.len(), runs[0].method), (1, MergeMethod::Encode));
        assert_eq!(runs[0].reads, chunks(&[3]));
        let runs = plan(4096, &[3, 16 + 3, 32 + 3, 48 + 3]);
        assert_eq!(runs[0].reads, chunks(&[]));
    }

    #[test]
    fn rows_with_diffs_in_the_same_chunks_are_one_run() {
        let runs = plan(4096, &[3, 4, 5, 7, 16 + 5]);
        let shapes: Vec<_> = runs.iter().map(|run| (run.first, run.rows, run.columns.len())).collect();
        assert_eq!(shapes, [(3, 2, 1), (5, 1, 2), (7, 1, 1)]);
    }

    #[test]
    fn pages_of_other_sizes_cover_their_sectors() {
        let runs = plan(8192, &[1]);
        assert_eq!((runs.len(), runs[0].first, runs[0].rows), (1, 2, 2));
        let runs = plan(1024, &[5, 64 + 5, 128 + 5, 192 + 5]);
        assert_eq!((runs.len(), runs[0].first, runs[0].rows), (1, 1, 1));
        // The rest of each sector is read too.
        assert_eq!((runs[0].method, &runs[0].reads), (MergeMethod::Encode, &chunks(&[0, 1, 2, 3])));
    }
}
