//! Diffs that cannot be merged now are carried over: appended to the log again, so that the segments they were in end.
//!
//! Segments end in the order of their numbers, so one page that waits for a repair, or a stripe that somebody holds, would
//! keep all that comes after it. What is carried over is an ordinary record of the same page.
//!
//! Invariants:
//! 1. No newer write of a page is undone: from before its diff is looked at until it is appended again, nobody else hands a
//!    record of the page to the log. A writer who goes away while his record is on its way lets go of the page before; so
//!    the log is asked for a sync in between, which comes behind all that was handed to it.
//! 2. It comes to an end: only while the log has many segments, and a quarter of its bytes are of no use, so that going round
//!    all of it once makes it shorter; or there is little in the oldest, of which one that was filled has more.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures::future::try_join_all;

use super::Inner;
use crate::BlocksError;
use crate::diffs::{Diff, DiffKind};
use crate::gate::Pass;
use crate::geometry::Page;
use crate::log::record::Record;
use crate::volumes::segment_bytes_min;

impl Inner {
    /// Carries the diffs of the oldest segment over, if it is needed for nothing but diffs that could not be merged: now, or also, where a
    /// round of merging was in vain, when they were tried. Returns how many pages. The caller has `merging`.
    pub(super) async fn carry_over(&self, is_in_vain: bool) -> Result<u64, BlocksError> {
        let mut carried = 0;
        for diffs in self.in_the_way(is_in_vain).chunks(PAGES_AT_ONCE) {
            carried += self.carry(diffs).await?;
        }
        Ok(carried)
    }

    /// Whether segments have to end soon.
    pub(super) fn log_is_long(&self) -> bool {
        self.log.view().segment_count() * 4 > self.settings.segments_max() * 3
    }

    /// The diffs of the oldest segment, if they are what keeps it and it is worth while to carry them over; ascending.
    fn in_the_way(&self, is_in_vain: bool) -> Vec<(Page, Diff)> {
        if !self.log_is_long() {
            return Vec::new();
        }
        let view = self.log.view();
        let (oldest, positions, needed) = {
            let diffs = self.diffs();
            let Some(oldest) = diffs.oldest_live() else { return Vec::new() };
            (oldest, diffs.pinning(oldest), diffs.content_pages() * u64::from(self.geometry.page_bytes))
        };
        let waits = |position: &u64| self.is_put_off(*position, is_in_vain) || self.is_held(*position);
        if view.last() == Some(oldest) || !positions.iter().all(waits) {
            return Vec::new();
        }
        let in_oldest: Vec<(Page, Diff)> = {
            let diffs = self.diffs();
            let all = positions.iter().flat_map(|position| diffs.stripe(*position));
            all.filter(|(_, diff)| diff.at.segment == oldest).collect()
        };
        let is_sparse = in_oldest.len() as u64 * u64::from(self.geometry.page_bytes) <= SPARSE_BYTES;
        if is_sparse || needed * 4 <= view.bytes() * 3 { in_oldest } else { Vec::new() }
    }

    /// Whether somebody has a stripe.
    pub(super) fn is_held(&self, position: u64) -> bool {
        self.stripe(position).is_some_and(|stripe| self.stripes.try_alone(stripe.id).is_none())
    }

    async fn carry(&self, diffs: &[(Page, Diff)]) -> Result<u64, BlocksError> {
        let runs = runs(diffs.iter().map(|(page, diff)| (*page, diff.kind == DiffKind::Zeros)));
        // Who writes a page just now takes it out of its segment himself.
        let enter = |(pages, _): (Range<Page>, bool)| Some((self.gate.try_enter(&pages, true)?, pages));
        let entered: Vec<(Pass, Range<Page>)> = runs.into_iter().filter_map(enter).collect();
        // What was handed to the log before is in effect when this is, also for writers who went away.
        let nothing = self.log.append(Record::Over { below: 0 }).await;
        if nothing.map_err(|error| self.log_failed(error))?.is_none() {
            return Ok(0);
        }
        let mut still: Vec<(Page, Diff)> = diffs.to_vec();
        {
            let now = self.diffs();
            let is_same = |page: Page, diff: Diff| now.range(page..Page(page.0 + 1)).any(|(_, now)| now == diff);
            let is_mine = |page: Page| entered.iter().any(|(_, pages)| pages.contains(&page));
            still.retain(|(page, diff)| is_mine(*page) && is_same(*page, *diff));
        }
        let read = async |(page, diff): (Page, Diff)| match diff.kind {
            DiffKind::Zeros => Some((page, None)),
            // One that no disk has stays where it is, until it is written.
            DiffKind::Content { crc } => {
                self.read_log(&[(page, diff)]).await.ok().map(|read| (page, Some((crc, read))))
            }
        };
        let contents = self.in_turn(still.into_iter().map(read)).await;
        let contents: Vec<(Page, Option<(u32, Bytes)>)> = contents.into_iter().flatten().collect();
        let mut records = Vec::new();
        let mut left = contents.as_slice();
        for (pages, zeros) in runs_of(&contents) {
            let (run, rest) = left.split_at((pages.end.0 - pages.start.0) as usize);
            left = rest;
            records.push(if zeros {
                Record::Zero { first: pages.start, pages: run.len() as u64 }
            } else {
                let pages_of = || run.iter().filter_map(|(_, content)| content.as_ref());
                let mut content = BytesMut::new();
                pages_of().for_each(|(_, page)| content.extend_from_slice(page));
                let crcs = pages_of().map(|(crc, _)| *crc).collect();
                Record::Write { first: pages.start, crcs, content: content.freeze() }
            });
        }
        // On disks that are too full for it, it stays where it is.
        let carried = records.into_iter().map(|record| async move {
            let pages = record.pages().map_or(0, |pages| pages.end.0 - pages.start.0);
            self.log.append(record).await.map(|place| place.map_or(0, |_| pages))
        });
        let carried = try_join_all(carried).await.map_err(|error| self.log_failed(error))?;
        Ok(carried.into_iter().sum())
    }
}

fn runs_of(contents: &[(Page, Option<(u32, Bytes)>)]) -> Vec<(Range<Page>, bool)> {
    runs(contents.iter().map(|(page, content)| (*page, content.is_none())))
}

/// Pages that follow each other and are alike, zeros or not; they come ascending.
fn runs(pages: impl Iterator<Item = (Page, bool)>) -> Vec<(Range<Page>, bool)> {
    let mut runs: Vec<(Range<Page>, bool)> = Vec::new();
    for (page, zeros) in pages {
        match runs.last_mut() {
            Some((run, alike)) if run.end == page && *alike == zeros => run.end.0 += 1,
            _ => runs.push((page..Page(page.0 + 1), zeros)),
        }
    }
    runs
}

/// Pages that are in memory at once, and for which writers of the same pages wait.
const PAGES_AT_ONCE: usize = 64;
/// Less than is in a segment that ended because it was full.
const SPARSE_BYTES: u64 = 1 << 20;
const _: () = assert!(SPARSE_BYTES < segment_bytes_min(0) / 2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_follow_each_other_and_are_alike_are_one_run() {
        let pages = [(1, true), (2, true), (3, false), (4, false), (6, false), (7, true)];
        let found = runs(pages.into_iter().map(|(page, zeros)| (Page(page), zeros)));
        let run = |pages: Range<u64>, zeros| (Page(pages.start)..Page(pages.end), zeros);
        assert_eq!(found, [run(1..3, true), run(3..5, false), run(6..7, false), run(7..8, true)]);
    }
}
