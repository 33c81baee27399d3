//! Repairs by planes, in stages, and the search for the cheapest.
//!
//! A stage repairs the lost chunks of one section, the *hit* one, in the planes that no stage before it read. It reads
//! those whose digit of the hit section is in a set S. Let u chunks be unknown (lost and not repaired yet), e of them in
//! the hit section with their digits in S, and a chunks aloof, none of them in a section hit so far. Then
//!
//! - in the planes read, a companion's plane is read as well, but for the nodes of the hit section with a digit outside
//!   S in the planes where a lost chunk is the dot: these are unknown too. So a plane has at most
//!   u + a + (q - |S|) unknown nodes, and all are solved if that is at most m: all lost chunks are known in these planes.
//! - the lost chunks of the hit section follow in the other planes as companions of those q - |S| nodes. They help from
//!   the next stage on, so that u has become less.
//!
//! With one loss, |S| = 1 and a = m - q this is the paper's repair; with all losses in one section its Algorithm 1.
//! More digits pay for losses elsewhere where the paper decodes. Worked example: two losses in different sections of
//! `clay:16+4:19`. Stage 1 has u = 2, so |S| = 2: half of the planes of 18 chunks, 9 chunks. Stage 2 has u = 1 and
//! |S| = 1: a quarter of the other half, 2.25 chunks. Together 11.25 chunks, where the paper and Reed-Solomon read 16.
//! Source: [clay §4]
//!
//! Invariants:
//! 1. Every repair found is one that `compile` can carry out (tested for all losses of small codes).
//! 2. The search is exhaustive over orders of hit sections, up to [`ORDERED_SECTIONS_MAX`] of them, and sizes of S. Its
//!    work is bounded by that and by the cost to undercut.

use std::{cmp::Reverse, ops::Range};

use super::{grid::Grid, planner::all};
use crate::{ChunkIndex, ChunkRead, ReadCosts, RepairStage, plan::granule_bytes};

/// Up to so many hit sections are tried in every order; with more, the one with the most losses comes first.
const ORDERED_SECTIONS_MAX: usize = 4;

/// What a repair is searched for.
pub(super) struct Search<'a> {
    pub(super) grid: &'a Grid,
    pub(super) costs: &'a ReadCosts<'a>,
    /// Wanted chunks that can be read; they are read whole. Ascending.
    pub(super) kept: &'a [ChunkIndex],
    /// Wanted chunks that cannot be read.
    pub(super) wanted: &'a [ChunkIndex],
}

impl Search<'_> {
    /// The repair that reads the least, if that is less than `bytes`.
    pub(super) fn cheapest_below(&self, bytes: u64) -> Option<Vec<RepairStage>> {
        let mut best = (bytes, None);
        self.descend(&mut Vec::new(), &mut best);
        best.1
    }

    /// What a repair reads, chunk by chunk.
    pub(super) fn reads(&self, stages: &[RepairStage]) -> Vec<ChunkRead> {
        let stage_of = self.stage_of_planes(stages);
        let reads = self.readable().map(|chunk| ChunkRead { chunk, sub_chunks: self.ranges(chunk, stages, &stage_of) });
        reads.filter(|read| !read.sub_chunks.is_empty()).collect()
    }

    /// Tries all next stages. Every further stage reads more, so what is not below the best is given up.
    fn descend(&self, stages: &mut Vec<RepairStage>, best: &mut (u64, Option<Vec<RepairStage>>)) {
        let hit: Vec<u16> = stages.iter().map(|stage| stage.section).collect();
        let is_hit = |section: u16| hit.contains(&section);
        let decoded = stages.last().is_some_and(|stage| stage.digits.len() == usize::from(self.grid.q));
        let mut left: Vec<u16> = self.wanted.iter().map(|chunk| self.section(*chunk)).collect();
        left.retain(|section| !decoded && !is_hit(*section));
        left.sort_unstable();
        left.dedup();
        if !stages.is_empty() {
            let bytes = self.bytes(stages);
            if bytes >= best.0 {
                return;
            }
            if left.is_empty() {
                *best = (bytes, Some(stages.clone()));
                return;
            }
        }

        let unknown: Vec<ChunkIndex> = (self.chunks())
            .filter(|chunk| self.costs.chunks[chunk.at()].is_none() && !is_hit(self.section(*chunk)))
            .collect();
        let in_section = |section| unknown.iter().filter(move |chunk| self.section(**chunk) == section);
        if left.len() > ORDERED_SECTIONS_MAX {
            left.sort_by_key(|section| Reverse(in_section(*section).count()));
            left.truncate(1);
        }
        for section in left {
            let lost: Vec<u16> = in_section(section).map(|chunk| self.grid.node(*chunk) % self.grid.q).collect();
            let mut could_be_aloof: Vec<ChunkIndex> = (self.readable())
                .filter(|chunk| !self.kept.contains(chunk) && !is_hit(self.section(*chunk)))
                .filter(|chunk| self.section(*chunk) != section)
                .collect();
            could_be_aloof.sort_by_key(|chunk| (Reverse(self.costs.chunks[chunk.at()]), Reverse(*chunk)));
            // Reading every digit at once is decoding.
            let most = if stages.is_empty() { self.grid.q - 1 } else { self.grid.q };
            for digits in lost.len()..=usize::from(most) {
                let mates = usize::from(self.grid.q) - digits;
                let Some(room) = usize::from(self.grid.parity).checked_sub(unknown.len() + mates) else { continue };
                let mut aloof = could_be_aloof.clone();
                aloof.truncate(room);
                aloof.sort_unstable();
                stages.push(RepairStage { section, digits: self.widen(&lost, digits), aloof });
                self.descend(stages, best);
                stages.pop();
            }
        }
    }

    /// `count` digits, among them those given. The others are next to them, which makes fewer and longer runs.
    fn widen(&self, digits: &[u16], count: usize) -> Vec<u16> {
        let mut widened = digits.to_vec();
        while widened.len() < count {
            let free = (0..self.grid.q).filter(|digit| !widened.contains(digit));
            let nearest = free.min_by_key(|free| widened.iter().map(|digit| digit.abs_diff(*free)).min());
            widened.push(nearest.expect("at most q digits are asked for"));
        }
        widened.sort_unstable();
        widened
    }

    /// The stage that reads each plane: the first that has the plane's digit. Later stages do not see the plane.
    fn stage_of_planes(&self, stages: &[RepairStage]) -> Vec<Option<usize>> {
        let reads = |stage: &RepairStage, plane| stage.digits.contains(&self.grid.digit(plane, stage.section));
        self.grid.planes().map(|plane| stages.iter().position(|stage| reads(stage, plane))).collect()
    }

    /// The planes that are read of a chunk.
    fn ranges(&self, chunk: ChunkIndex, stages: &[RepairStage], stage_of: &[Option<usize>]) -> Vec<Range<u32>> {
        if self.kept.contains(&chunk) {
            return all(self.grid);
        }
        let is_aloof: Vec<bool> = stages.iter().map(|stage| stage.aloof.contains(&chunk)).collect();
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for (plane, stage) in (0..).zip(stage_of) {
            match ranges.last_mut() {
                _ if stage.is_none_or(|stage| is_aloof[stage]) => {}
                Some(range) if range.end == plane => range.end += 1,
                _ => ranges.push(plane..plane + 1),
            }
        }
        ranges
    }

    /// Bytes that a repair reads, in granules.
    fn bytes(&self, stages: &[RepairStage]) -> u64 {
        let stage_of = self.stage_of_planes(stages);
        let cost =
            |ranges: &[Range<u32>]| granule_bytes(ranges, self.grid.alpha, self.costs.sub_bytes, self.costs.granule);
        // Most chunks are read alike, so costs are kept by what makes them differ.
        let mut known: Vec<((bool, Vec<bool>), u64)> = Vec::new();
        self.readable()
            .map(|chunk| {
                let aloof = stages.iter().map(|stage| stage.aloof.contains(&chunk)).collect();
                let key = (self.kept.contains(&chunk), aloof);
                if let Some((_, cost)) = known.iter().find(|(other, _)| *other == key) {
                    return *cost;
                }
                let cost = cost(&self.ranges(chunk, stages, &stage_of));
                known.push((key, cost));
                cost
            })
            .sum()
    }

    fn chunks(&self) -> impl Iterator<Item = ChunkIndex> {
        (0..self.grid.chunks()).map(ChunkIndex)
    }

    fn readable(&self) -> impl Iterator<Item = ChunkIndex> {
        self.chunks().filter(|chunk| self.costs.chunks[chunk.at()].is_some())
    }

    fn section(&self, chunk: ChunkIndex) -> u16 {
        self.grid.section(self.grid.node(chunk))
    }
}
