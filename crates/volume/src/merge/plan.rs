//! How the diffs of a stripe reach its chunks: a pure function.
//!
//! A *row* here is one sector of every chunk, at the same place: what a code without sub-chunks encodes by itself. Rows
//! that follow each other and have diffs in the same chunks are one [`MergeRun`].
//!
//! Invariants:
//! 1. Every diff of the stripe is in exactly one run, or in several where a page is several sectors.
//! 2. A run reads as few chunks as either way of making its parity needs. Where they cannot be read the other way may work
//!    ([`MergeRun::otherwise`]), or either for a row alone ([`MergeRun::each_row`]).
//! 3. A sector that is written whole is read only to see how it changes.
//! 4. No parity changes that has none of a run's data: of a mirror, only the copies of what changed.

use std::collections::{BTreeMap, BTreeSet};

use claystone_chunk::{ByteRange, SECTOR_BYTES};
use claystone_code::ChunkIndex;

use super::reach::Reach;
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
    /// Of these, those whose diffs leave nothing of the sectors as it was.
    pub whole: BTreeSet<ChunkIndex>,
    /// The parity chunks that they are in, of those that have a place.
    pub parity: BTreeSet<ChunkIndex>,
    /// How the parity is made.
    pub method: MergeMethod,
}

/// How new parity is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeMethod {
    /// Old parity plus what the change of the data contributes to it.
    Delta,
    /// From all data that is in it.
    Encode,
}

impl MergeRun {
    /// Its bytes in each chunk.
    pub fn range(&self) -> ByteRange {
        let sector = u64::from(SECTOR_BYTES);
        ByteRange { offset: u64::from(self.first) * sector, bytes: u64::from(self.rows) * sector }
    }

    /// The chunks to read, all of them in these rows, under a code of this reach.
    pub fn reads(&self, reach: &Reach) -> BTreeSet<ChunkIndex> {
        match self.method {
            MergeMethod::Delta => self.columns.union(&self.parity).copied().collect(),
            MergeMethod::Encode => {
                let data = reach.data_of(&self.parity);
                data.union(&self.columns).filter(|index| !self.whole.contains(index)).copied().collect()
            }
        }
    }

    /// How many sectors it changes.
    pub fn sectors(&self) -> usize {
        self.rows as usize * (self.columns.len() + self.parity.len())
    }

    /// The same rows by the other method.
    pub fn otherwise(&self) -> MergeRun {
        let method = match self.method {
            MergeMethod::Delta => MergeMethod::Encode,
            MergeMethod::Encode => MergeMethod::Delta,
        };
        MergeRun { method, ..self.clone() }
    }

    /// Its rows one by one.
    pub fn each_row(&self) -> impl Iterator<Item = MergeRun> {
        (self.first..self.first + self.rows).map(|first| MergeRun { first, rows: 1, ..self.clone() })
    }
}

/// Plans to merge `diffs`, all of one stripe and ascending, under a code of this reach. `placed`: the parity chunks that
/// have a place, of all chunks behind the data.
pub fn plan_merge(
    geometry: &Geometry,
    reach: &Reach,
    placed: &BTreeSet<ChunkIndex>,
    diffs: &[(Page, Diff)],
) -> Vec<MergeRun> {
    let sector = u64::from(SECTOR_BYTES);
    let page_bytes = u64::from(geometry.page_bytes);
    // Bytes of each sector that diffs replace.
    let mut rows: BTreeMap<u32, BTreeMap<ChunkIndex, u64>> = BTreeMap::new();
    for (page, _) in diffs {
        let spot = geometry.spot(geometry.start(*page));
        for row in spot.offset / sector..(spot.offset + page_bytes).div_ceil(sector) {
            *rows.entry(row as u32).or_default().entry(spot.column).or_default() += page_bytes.min(sector);
        }
    }
    let mut runs: Vec<MergeRun> = Vec::new();
    for (row, replaced) in rows {
        let whole = replaced.iter().filter(|(_, bytes)| **bytes == sector).map(|(column, _)| *column).collect();
        let columns: BTreeSet<ChunkIndex> = replaced.into_keys().collect();
        match runs.last_mut() {
            Some(run)
                if run.first + run.rows == row
                    && (&run.columns, &run.whole) == (&columns, &whole)
                    && run.rows < RUN_ROWS_MAX =>
            {
                run.rows += 1;
                continue;
            }
            _ => {}
        }
        // Where both read as much, the chunks that are read are those that are written.
        let parity = reach.parity_of(&columns).intersection(placed).copied().collect();
        let delta = MergeRun { first: row, rows: 1, columns, whole, parity, method: MergeMethod::Delta };
        let encode = delta.otherwise();
        let reads = |run: &MergeRun| run.reads(reach).len();
        runs.push(if reads(&encode) < reads(&delta) { encode } else { delta });
    }
    runs
}

/// Bounds the memory of a run, and how long making its parity takes: chunks of it are this many sectors.
const RUN_ROWS_MAX: u32 = 32;

#[cfg(test)]
mod tests {
    use claystone_code::CodeSpec;

    use super::*;
    use crate::diffs::DiffKind;
    use crate::log::record::LogPlace;

    fn plan(page_bytes: u32, pages: &[u64]) -> Vec<MergeRun> {
        plan_under("rs:4+2", page_bytes, pages)
    }

    fn reach_of(code: &str) -> Reach {
        Reach::of(&*code.parse::<CodeSpec>().expect("a valid code").build().expect("a valid code"))
    }

    /// Under a code of four data chunks and at most eight others.
    fn plan_under(code: &str, page_bytes: u32, pages: &[u64]) -> Vec<MergeRun> {
        let geometry = Geometry { page_bytes, chunk_bytes: 65536, columns: 4 };
        let diff = Diff { at: LogPlace { segment: 1, offset: 0 }, kind: DiffKind::Zeros };
        let diffs: Vec<_> = pages.iter().map(|page| (Page(*page), diff)).collect();
        plan_merge(&geometry, &reach_of(code), &(4..12).map(ChunkIndex).collect(), &diffs)
    }

    fn reads(run: &MergeRun) -> BTreeSet<ChunkIndex> {
        run.reads(&reach_of("rs:4+2"))
    }

    fn chunks(indices: &[u16]) -> BTreeSet<ChunkIndex> {
        indices.iter().copied().map(ChunkIndex).collect()
    }

    #[test]
    fn one_page_reads_itself_and_the_parity() {
        let runs = plan(4096, &[16 + 3]);
        assert_eq!(runs.len(), 1);
        assert_eq!((runs[0].first, runs[0].rows, runs[0].method), (3, 1, MergeMethod::Delta));
        assert_eq!((&runs[0].columns, reads(&runs[0])), (&chunks(&[1]), chunks(&[1, 4, 5])));
    }

    #[test]
    fn a_row_of_diffs_reads_what_has_none() {
        let runs = plan(4096, &[3, 16 + 3, 32 + 3]);
        assert_eq!((runs.len(), runs[0].method), (1, MergeMethod::Encode));
        assert_eq!(reads(&runs[0]), chunks(&[3]));
        let runs = plan(4096, &[3, 16 + 3, 32 + 3, 48 + 3]);
        assert_eq!(reads(&runs[0]), chunks(&[]));
    }

    #[test]
    fn rows_with_diffs_in_the_same_chunks_are_one_run() {
        let runs = plan(4096, &[3, 4, 5, 7, 16 + 5]);
        let shapes: Vec<_> = runs.iter().map(|run| (run.first, run.rows, run.columns.len())).collect();
        assert_eq!(shapes, [(3, 2, 1), (5, 1, 2), (7, 1, 1)]);
    }

    #[test]
    fn the_other_method_reads_nothing_of_what_is_written_whole() {
        let run = &plan(4096, &[3, 4])[0];
        assert_eq!(reads(&run.otherwise()), chunks(&[1, 2, 3]));
        let rows: Vec<_> = run.each_row().map(|run| (run.first, run.rows, run.method)).collect();
        assert_eq!(rows, [(3, 1, MergeMethod::Delta), (4, 1, MergeMethod::Delta)]);
        // Four short pages are a sector, in the second chunk three.
        let run = &plan(1024, &[4, 5, 6, 7, 64 + 4, 64 + 5, 64 + 7])[0];
        assert_eq!((run.columns.clone(), run.whole.clone()), (chunks(&[0, 1]), chunks(&[0])));
        assert_eq!((run.method, reads(run)), (MergeMethod::Encode, chunks(&[1, 2, 3])));
    }

    #[test]
    fn pages_of_other_sizes_cover_their_sectors() {
        let runs = plan(8192, &[1]);
        assert_eq!((runs.len(), runs[0].first, runs[0].rows), (1, 2, 2));
        let runs = plan(1024, &[5, 64 + 5, 128 + 5, 192 + 5]);
        assert_eq!((runs.len(), runs[0].first, runs[0].rows), (1, 1, 1));
        // The rest of each sector is read too.
        assert_eq!((runs[0].method, reads(&runs[0])), (MergeMethod::Encode, chunks(&[0, 1, 2, 3])));
    }

    #[test]
    fn a_page_of_a_mirror_writes_its_copies_and_reads_nothing() {
        let runs = plan_under("mirror:4x3", 4096, &[16 + 3]);
        assert_eq!((runs.len(), runs[0].method), (1, MergeMethod::Encode));
        assert_eq!((&runs[0].columns, &runs[0].parity), (&chunks(&[1]), &chunks(&[5, 9])));
        assert_eq!(runs[0].reads(&reach_of("mirror:4x3")), chunks(&[]));
        // Of a part of a sector the rest.
        let runs = plan_under("mirror:4x3", 1024, &[64 + 5]);
        assert_eq!((runs[0].method, runs[0].reads(&reach_of("mirror:4x3"))), (MergeMethod::Encode, chunks(&[1])));
    }

    #[test]
    fn a_group_without_diffs_keeps_its_parity() {
        let runs = plan_under("lrc:4+2+2", 4096, &[3]);
        assert_eq!((&runs[0].parity, runs[0].method), (&chunks(&[4, 6, 7]), MergeMethod::Encode));
        assert_eq!(runs[0].reads(&reach_of("lrc:4+2+2")), chunks(&[1, 2, 3]));
    }
}
