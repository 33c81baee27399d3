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

use super::{Contents, Lacks, MergeMethod, MergeRun, Patch, plan_merge};
use crate::MergeReport;
use crate::coding::Coding;
use crate::diffs::Diff;
use crate::geometry::{Page, Spot};
use crate::log::record::LogPlace;
use crate::volume::Inner;

/// What a sector becomes.
pub(super) struct NewSector {
    pub(super) content: Bytes,
    /// Where the log has it already.
    pub(super) logged: Option<LogPlace>,
}

/// What the rows of a run become.
#[derive(Default)]
struct Filled {
    sectors: Vec<((ChunkIndex, u32), NewSector)>,
    /// Rows of which too much is lost.
    lost: Vec<u32>,
    sectors_read: u64,
    parity_updates: u64,
}

impl Inner {
    /// Makes the new sectors of patches. Rows of which too much is lost, and the diffs in them, are left out: they wait for a
    /// repair, or for writes of what is lost.
    pub(super) async fn fill(&self, batch: &mut [(Patch, Hold)], report: &mut MergeReport) {
        let diffs: Vec<(Page, Diff)> = batch.iter().flat_map(|(patch, _)| patch.diffs.iter().copied()).collect();
        let contents = self.contents_there(&diffs).await;
        let pages: Vec<usize> = batch.iter().map(|(patch, _)| patch.diffs.len()).collect();
        for ((patch, _), pages) in batch.iter_mut().zip(&pages) {
            patch.diffs.retain(|(page, _)| contents.contains_key(page));
            if patch.diffs.len() < *pages {
                patch.runs = self.runs(&patch.stripe, &patch.coding, &patch.diffs);
            }
        }
        let mut fills = Vec::new();
        for (at, (patch, hold)) in batch.iter().enumerate() {
            for run in &patch.runs {
                let filled = self.fill_run(patch, run, hold, &contents);
                fills.push(async move { (at, filled.await) });
            }
        }
        let mut lost_rows: BTreeMap<usize, BTreeSet<u32>> = BTreeMap::new();
        for (at, filled) in self.in_turn(fills).await {
            batch[at].0.sectors.extend(filled.sectors);
            lost_rows.entry(at).or_default().extend(filled.lost);
            report.sectors_read += filled.sectors_read;
            report.parity_updates += filled.parity_updates;
        }
        let sector = u64::from(SECTOR_BYTES);
        for (at, ((patch, _), pages)) in batch.iter_mut().zip(pages).enumerate() {
            let lost_rows = lost_rows.remove(&at).unwrap_or_default();
            patch.diffs.retain(|(page, _)| {
                let start = self.geometry.spot(self.geometry.start(*page)).offset;
                let end = start + u64::from(self.geometry.page_bytes);
                lost_rows.range((start / sector) as u32..end.div_ceil(sector) as u32).next().is_none()
            });
            if patch.diffs.len() < pages {
                let left = pages - patch.diffs.len();
                tracing::warn!(stripe = %patch.stripe.id, left, "diffs cannot be merged: too much is lost beside them");
                report.stripes_lost += 1;
                self.put_off(patch.position, Lacks::Else);
            }
        }
    }

    /// How diffs reach the chunks of a stripe.
    pub(super) fn runs(&self, stripe: &StripeRecord, coding: &Coding, diffs: &[(Page, Diff)]) -> Vec<MergeRun> {
        plan_merge(&self.geometry, &coding.reach, &self.parity_of(stripe), diffs)
    }

    /// The parity chunks that a stripe has.
    fn parity_of(&self, stripe: &StripeRecord) -> BTreeSet<ChunkIndex> {
        let parity = (self.geometry.columns..stripe.code.shape().chunks()).map(ChunkIndex);
        parity.filter(|index| stripe.places[index.at()].is_some()).collect()
    }

    /// Makes the new sectors of a run. Where it cannot be read as a whole, of its rows one by one.
    async fn fill_run(&self, patch: &Patch, run: &MergeRun, hold: &Hold, contents: &Contents) -> Filled {
        self.give_way().await;
        if let Some(filled) = self.fill_either_way(patch, run, hold, contents).await {
            return filled;
        }
        let mut all = Filled::default();
        for row in run.each_row() {
            let filled = if run.rows == 1 { None } else { self.fill_either_way(patch, &row, hold, contents).await };
            match filled {
                Some(filled) => all.add(filled),
                None => all.lost.push(row.first),
            }
        }
        all
    }

    /// Makes the new sectors of a run by its method, or else by the other one. `None`: too much of it is lost.
    async fn fill_either_way(&self, patch: &Patch, run: &MergeRun, hold: &Hold, contents: &Contents) -> Option<Filled> {
        match self.fill_by_method(patch, run, hold, contents).await {
            Some(filled) => Some(filled),
            None => self.fill_by_method(patch, &run.otherwise(), hold, contents).await,
        }
    }

    async fn fill_by_method(&self, patch: &Patch, run: &MergeRun, hold: &Hold, contents: &Contents) -> Option<Filled> {
        let columns = self.geometry.columns;
        let Coding { code, reach, .. } = &*patch.coding;
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
                    return None;
                }
            }
        };
        let sectors_read = u64::from(run.rows) * old.len() as u64;
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
        let mut sectors = Vec::with_capacity(run.sectors());
        // The log has whole sectors of data; of a copy it has those of the data chunk.
        let has_sectors = self.geometry.page_bytes >= SECTOR_BYTES;
        for (index, content) in data {
            if patch.stripe.places[index.at()].is_some() {
                let column = has_sectors.then_some(index);
                sectors.extend(self.cut(patch.position, index, run.first, content.freeze(), column, contents));
            }
        }
        let parity_chunks = (columns..).map(ChunkIndex).zip(new_parity);
        for (index, content) in parity_chunks.filter(|(index, _)| run.parity.contains(index)) {
            let copied = reach.copied(index).filter(|_| has_sectors);
            sectors.extend(self.cut(patch.position, index, run.first, content.freeze(), copied, contents));
        }
        Some(Filled { sectors, lost: Vec::new(), sectors_read, parity_updates: u64::from(run.rows) })
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
        position: u64,
        index: ChunkIndex,
        first: u32,
        content: Bytes,
        column: Option<ChunkIndex>,
        contents: &Contents,
    ) -> impl Iterator<Item = ((ChunkIndex, u32), NewSector)> {
        let sector_bytes = u64::from(SECTOR_BYTES);
        let sectors = (0..).zip(first..first + (content.len() as u64 / sector_bytes) as u32);
        sectors.map(move |(at, sector)| {
            let start = at * SECTOR_BYTES as usize;
            let content = content.slice(start..start + SECTOR_BYTES as usize);
            let logged = column.and_then(|column| {
                let offset = u64::from(sector) * sector_bytes;
                let byte = self.geometry.byte(Spot { position, column, offset });
                let page = self.geometry.page(byte);
                let place = contents.get(&page).and_then(|(_, place)| *place)?;
                Some(LogPlace { offset: place.offset + (byte - self.geometry.start(page)), ..place })
            });
            ((index, sector), NewSector { content, logged })
        })
    }
}

impl Filled {
    fn add(&mut self, other: Filled) {
        self.sectors.extend(other.sectors);
        self.lost.extend(other.lost);
        self.sectors_read += other.sectors_read;
        self.parity_updates += other.parity_updates;
    }
}
