//! The sectors that a merge will write: data with its diffs in it, and the parity that belongs to it.
//!
//! Invariants:
//! 1. Of a row all sectors that change are made, data and parity, or none; its diffs are left out of the patch then.
//! 2. A chunk without a place gets no sectors.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Bytes, BytesMut};
use claystone_chunk::SECTOR_BYTES;
use claystone_code::ChunkIndex;
use claystone_meta::StripeRecord;
use claystone_stripe::Hold;

use super::{Contents, MergeMethod, MergeRun, Patch, plan_merge};
use crate::MergeReport;
use crate::coding::Coding;
use crate::geometry::{Page, Spot};
use crate::log::record::LogPlace;
use crate::volume::Inner;

/// What a sector becomes.
pub(super) struct NewSector {
    pub(super) content: Bytes,
    /// Where the log has it already.
    pub(super) logged: Option<LogPlace>,
}

impl Inner {
    /// Makes the new sectors of a patch. Rows of which too much is lost, and the diffs in them, are left out of it: they wait
    /// for a repair, or for writes of what is lost.
    pub(super) async fn fill(&self, patch: &mut Patch, coding: &Coding, hold: &Hold, report: &mut MergeReport) {
        let contents = self.contents_there(&patch.diffs).await;
        let pages = patch.diffs.len();
        patch.diffs.retain(|(page, _)| contents.contains_key(page));
        let mut lost_rows: BTreeSet<u32> = BTreeSet::new();
        for run in plan_merge(&self.geometry, &coding.reach, &self.parity_of(&patch.stripe), &patch.diffs) {
            self.give_way().await;
            if self.fill_either_way(patch, coding, &run, hold, &contents, report).await {
                continue;
            }
            for row in run.each_row() {
                if run.rows == 1 || !self.fill_either_way(patch, coding, &row, hold, &contents, report).await {
                    lost_rows.insert(row.first);
                }
            }
        }
        let sector = u64::from(SECTOR_BYTES);
        patch.diffs.retain(|(page, _)| {
            let start = self.geometry.spot(self.geometry.start(*page)).offset;
            let end = start + u64::from(self.geometry.page_bytes);
            lost_rows.range((start / sector) as u32..end.div_ceil(sector) as u32).next().is_none()
        });
        if patch.diffs.len() < pages {
            let left = pages - patch.diffs.len();
            tracing::warn!(stripe = %patch.stripe.id, left, "diffs cannot be merged: too much is lost beside them");
            report.stripes_lost += 1;
            self.put_off(patch.position);
        }
    }

    /// The parity chunks that a stripe has.
    fn parity_of(&self, stripe: &StripeRecord) -> BTreeSet<ChunkIndex> {
        let parity = (self.geometry.columns..stripe.code.shape().chunks()).map(ChunkIndex);
        parity.filter(|index| stripe.places[index.at()].is_some()).collect()
    }

    /// Makes the new sectors of a run by its method, or else by the other one. False: too much of it is lost.
    async fn fill_either_way(
        &self,
        patch: &mut Patch,
        coding: &Coding,
        run: &MergeRun,
        hold: &Hold,
        contents: &Contents,
        report: &mut MergeReport,
    ) -> bool {
        self.fill_run(patch, coding, run, hold, contents, report).await
            || self.fill_run(patch, coding, &run.otherwise(), hold, contents, report).await
    }

    async fn fill_run(
        &self,
        patch: &mut Patch,
        coding: &Coding,
        run: &MergeRun,
        hold: &Hold,
        contents: &Contents,
        report: &mut MergeReport,
    ) -> bool {
        let columns = self.geometry.columns;
        let Coding { code, reach } = coding;
        let range = run.range();
        let reads = run.reads(reach);
        let ranges: BTreeMap<ChunkIndex, _> = reads.into_iter().map(|index| (index, range)).collect();
        let old = if ranges.is_empty() {
            BTreeMap::new()
        } else {
            match self.stripes.read_columns(&patch.stripe, &ranges, hold).await {
                Ok(old) => old,
                Err(error) => {
                    tracing::debug!(stripe = %patch.stripe.id, ?run, %error, "rows cannot be merged like this");
                    return false;
                }
            }
        };
        report.sectors_read += u64::from(run.rows) * old.len() as u64;
        let data = self.new_data(patch.position, run, &old, contents);
        let mut new_parity = vec![BytesMut::zeroed(range.bytes as usize); code.shape().parity.into()];
        match run.method {
            MergeMethod::Encode => {
                // What is neither new nor read is in none of the parity that is written.
                let zeros = vec![0; range.bytes as usize];
                let column = |index| match (data.get(&index), old.get(&index)) {
                    (Some(new), _) => &new[..],
                    (None, Some(old)) => &old[..],
                    (None, None) => &zeros[..],
                };
                let all: Vec<&[u8]> = (0..columns).map(ChunkIndex).map(column).collect();
                let mut targets: Vec<&mut [u8]> = new_parity.iter_mut().map(|parity| &mut parity[..]).collect();
                code.encode(&all, &mut targets);
            }
            MergeMethod::Delta => {
                for (index, content) in &old {
                    if index.0 >= columns {
                        new_parity[usize::from(index.0 - columns)].copy_from_slice(content);
                    }
                }
                for (index, new) in &data {
                    let delta: Vec<u8> = new.iter().zip(&old[index]).map(|(new, old)| new ^ old).collect();
                    let mut targets: Vec<&mut [u8]> = new_parity.iter_mut().map(|parity| &mut parity[..]).collect();
                    code.encode_add(*index, &[&delta], &mut targets);
                }
            }
        }
        report.parity_updates += u64::from(run.rows);
        // The log has whole sectors of data; of a copy it has those of the data chunk.
        let has_sectors = self.geometry.page_bytes >= SECTOR_BYTES;
        for (index, content) in data {
            if patch.stripe.places[index.at()].is_some() {
                self.cut(patch, index, run.first, content.freeze(), has_sectors.then_some(index), contents);
            }
        }
        let parity_chunks = (columns..).map(ChunkIndex).zip(new_parity);
        for (index, content) in parity_chunks.filter(|(index, _)| run.parity.contains(index)) {
            let copied = reach.copied(index).filter(|_| has_sectors);
            self.cut(patch, index, run.first, content.freeze(), copied, contents);
        }
        true
    }

    /// The data of a run with its diffs in it, for the chunks that have some.
    fn new_data(
        &self,
        position: u64,
        run: &MergeRun,
        old: &BTreeMap<ChunkIndex, Bytes>,
        contents: &Contents,
    ) -> BTreeMap<ChunkIndex, BytesMut> {
        let range = run.range();
        let new = |column: &ChunkIndex| {
            let mut data = match old.get(column) {
                Some(old) => BytesMut::from(&old[..]),
                None => BytesMut::zeroed(range.bytes as usize),
            };
            let start = self.geometry.byte(Spot { position, column: *column, offset: range.offset });
            let end = start + range.bytes;
            let first = self.geometry.page(start);
            let after = Page(self.geometry.page(end - 1).0 + 1);
            for (page, (content, _)) in contents.range(first..after) {
                // A page may begin before the run, or end behind it.
                let page_start = self.geometry.start(*page);
                let from = page_start.max(start);
                let to = (page_start + content.len() as u64).min(end);
                let source = &content[(from - page_start) as usize..(to - page_start) as usize];
                data[(from - start) as usize..(to - start) as usize].copy_from_slice(source);
            }
            (*column, data)
        };
        run.columns.iter().map(new).collect()
    }

    /// Cuts a chunk's part of a run into sectors. `column`: the data chunk whose sectors they are, where the log may have
    /// them.
    fn cut(
        &self,
        patch: &mut Patch,
        index: ChunkIndex,
        first: u32,
        content: Bytes,
        column: Option<ChunkIndex>,
        contents: &Contents,
    ) {
        let sector_bytes = u64::from(SECTOR_BYTES);
        for (at, sector) in (0..).zip(first..first + (content.len() as u64 / sector_bytes) as u32) {
            let start = at * SECTOR_BYTES as usize;
            let content = content.slice(start..start + SECTOR_BYTES as usize);
            let logged = column.and_then(|column| {
                let offset = u64::from(sector) * sector_bytes;
                let byte = self.geometry.byte(Spot { position: patch.position, column, offset });
                let page = self.geometry.page(byte);
                let place = contents.get(&page).and_then(|(_, place)| *place)?;
                Some(LogPlace { offset: place.offset + (byte - self.geometry.start(page)), ..place })
            });
            patch.sectors.insert((index, sector), NewSector { content, logged });
        }
    }
}
