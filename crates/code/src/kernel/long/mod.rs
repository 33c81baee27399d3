//! Parity of long codes: Reed-Solomon over GF(2^16) by an additive FFT, on split planes.
//!
//! A tile is two sub-chunks: the low and the high bytes of its symbols. Data chunk j stands at point T + j, T = 2^t, so
//! groups of T chunks stand at the cosets of the first T points, where the parity stands. Parity is the transform of the
//! sum of the groups' inverse transforms (`long` says why).
//!
//! Order of work: tiles are cut in strips across all chunks, so short that the sums of a strip stay in the first cache;
//! within a strip all groups one after the other, eight chunks at a time. The first pass reads the sources and does up
//! to three levels in registers, the last pass adds to the sums; at the end of a strip the sums are transformed once. Of groups
//! of 16 and 32 the last eight chunks go on to the last pass in registers, and the others are met in scratch.
//!
//! Invariants:
//! 1. The tiers differ in speed only: the code is the same over registers of 1, 16, 32 and 64 bytes.
//! 2. Nothing is allocated but scratch, kept for the next call of the thread: of at most 4 T lanes of a strip, and for a
//!    recovery the lanes of its syndromes and as many entries in lists.
//! 3. Sources are read only where they are; a strip's last, odd bytes are copied to whole lines first.

mod blocks;
mod planar;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod registers;

use std::cell::Cell;

use self::{
    blocks::{Way, run_gather, run_gather_last, run_inner},
    planar::{Gather, Inner, WIDTH},
};
use super::{
    Matrix, Tier, add_product,
    manner::{chunks_ahead, leaves_caches},
    scratch::{self, LINE_BYTES, lend_list},
    third::Third,
};

/// Data chunks in a row whose parity is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    /// With which instructions.
    pub(crate) tier: Tier,
    /// t: there are 2^t points for parity.
    pub(crate) levels: u32,
    /// Which data chunk the first source is.
    pub(crate) first: usize,
    /// Tiles of `2 * sub_bytes`; empty ones stand for zeros.
    pub(crate) sources: &'a [&'a [u8]],
    /// Bytes of a plane.
    pub(crate) sub_bytes: usize,
}

/// What recovery makes of one lost chunk.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// Which parity chunk it is, if it is one: then its parity of the sources is added to what the syndromes make.
    pub(crate) parity: Option<usize>,
    /// Its tile.
    pub(crate) out: &'a mut [u8],
}

/// Sets `targets`, the first parity chunks, to the parity of a part of the data; adds to them if they are `kept`.
///
/// # Panics
/// If lengths or counts do not fit.
pub(crate) fn encode(part: Part, targets: &mut [&mut [u8]], kept: bool) {
    assert!(targets.iter().all(|target| target.len() == 2 * part.sub_bytes), "a target is not a tile");
    part.each_strip(targets.len(), 0, |strip, _| {
        for (parity, target) in targets.iter_mut().enumerate() {
            for (plane, from) in strip.planes(parity).into_iter().enumerate() {
                let to = &mut target[plane * part.sub_bytes + strip.at..][..strip.bytes];
                if kept { add_product(part.tier, 1, from, to) } else { to.copy_from_slice(from) }
            }
        }
    });
}

/// Recovers lost chunks from all other data, the sources, and some parity: `matrix` makes the planes of what is wanted
/// of those of the syndromes, which are the parity of the sources plus the parity in `known` (its number, its tile).
///
/// # Panics
/// If lengths or counts do not fit.
pub(crate) fn recover(part: Part, known: &[(usize, &[u8])], matrix: &Matrix, wanted: &mut [Wanted]) {
    assert!(known.iter().all(|(_, tile)| tile.len() == 2 * part.sub_bytes), "known parity is not a tile");
    assert!(wanted.iter().all(|wanted| wanted.out.len() == 2 * part.sub_bytes), "a target is not a tile");
    let parities = known.iter().map(|(parity, _)| *parity).chain(wanted.iter().filter_map(|wanted| wanted.parity));
    let parities = parities.max().map_or(0, |parity| parity + 1);
    let plane = part.plane_bytes();
    part.each_strip(parities, 2 * known.len() * plane, |strip, syndromes| {
        let of_tile = |tile: usize| tile * part.sub_bytes + strip.at;
        for ((parity, tile), lane) in known.iter().zip(syndromes.chunks_exact_mut(2 * plane)) {
            for (i, (from, to)) in strip.planes(*parity).into_iter().zip(lane.chunks_exact_mut(plane)).enumerate() {
                to[..strip.bytes].copy_from_slice(from);
                add_product(part.tier, 1, &tile[of_tile(i)..][..strip.bytes], &mut to[..strip.bytes]);
            }
        }
        lend_list(&SYNDROMES, |planes: &mut Vec<&[u8]>| {
            planes.extend(syndromes.chunks_exact(plane).map(|plane| &plane[..strip.bytes]));
            lend_list(&OUTS, |outs: &mut Vec<&mut [u8]>| {
                outs.extend(wanted.iter_mut().flat_map(|wanted| strip.of_tile(wanted.out)));
                matrix.combine(part.tier, planes, outs);
            });
        });
        for Wanted { parity, out } in wanted.iter_mut() {
            let Some(parity) = *parity else { continue };
            for (from, to) in strip.planes(parity).into_iter().zip(strip.of_tile(out)) {
                add_product(part.tier, 1, from, to);
            }
        }
    });
}

/// The parity of a strip.
struct Strip<'a> {
    /// Two planes of `plane` bytes for each parity chunk.
    sums: &'a [u8],
    plane: usize,
    /// Where the strip starts in each plane of a tile.
    at: usize,
    /// How much of it there is in each plane.
    bytes: usize,
}

impl Strip<'_> {
    /// The planes of one parity chunk.
    fn planes(&self, parity: usize) -> [&[u8]; 2] {
        [0, 1].map(|plane| &self.sums[(2 * parity + plane) * self.plane..][..self.bytes])
    }

    /// The strip of both planes of a tile.
    fn of_tile<'a>(&self, tile: &'a mut [u8]) -> [&'a mut [u8]; 2] {
        let (low, high) = tile.split_at_mut(tile.len() / 2);
        [low, high].map(|plane| &mut plane[self.at..][..self.bytes])
    }
}

impl Part<'_> {
    /// Computes the first `parities` parity chunks strip by strip. `take` gets each, and `own_bytes` of scratch.
    fn each_strip(&self, parities: usize, own_bytes: usize, mut take: impl FnMut(&Strip, &mut [u8])) {
        let lanes = 1usize << self.levels;
        assert!(Tier::available().contains(&self.tier));
        assert!(parities <= lanes, "{parities} parity chunks at {lanes} points");
        assert!(lanes + self.first + self.sources.len() <= 1 << 16, "more chunks than points");
        let tile = 2 * self.sub_bytes;
        assert!(self.sources.iter().all(|source| source.is_empty() || source.len() == tile), "a source is not a tile");
        let plane = self.plane_bytes();
        let lanes_bytes = 2 * plane * (2 * lanes + WIDTH);
        scratch::lend(lanes_bytes + own_bytes, |scratch| {
            let (of_run, own) = scratch.split_at_mut(lanes_bytes);
            let all_sources = self.sources.len() * tile;
            let ahead = chunks_ahead(Third::here(), all_sources, self.levels);
            // Of four blocks, the last one with all above takes so long that sources from memory come late behind it.
            let at_once = self.levels == 4 || self.levels == 5 && !leaves_caches(all_sources);
            let whole = self.sub_bytes / LINE_BYTES * LINE_BYTES;
            let strip = self.strip_bytes();
            let starts = (0..whole).step_by(strip.max(1)).map(|at| (at, strip.min(whole - at)));
            let odd = (whole < self.sub_bytes).then(|| (whole, self.sub_bytes - whole));
            for (at, bytes) in starts.chain(odd) {
                let padded = bytes.next_multiple_of(LINE_BYTES);
                let scratch = of_run.as_mut_ptr();
                let mut run = Run { part: self, at, bytes, padded, plane, scratch, parities, ahead, at_once };
                // SAFETY: `scratch` holds sums, group and staged lanes of two planes of `plane` bytes each, from a line's
                // start on, and is lent out to this run alone.
                unsafe { run.sum_groups() };
                take(&Strip { sums: &of_run[..2 * plane * lanes], plane, at, bytes }, own);
            }
        });
    }

    /// Bytes of each plane that a strip has at most: as long as its sums and one group's lanes fill less than a first
    /// cache, but no shorter than what keeps sources coming in time.
    fn strip_bytes(&self) -> usize {
        let most = match self.levels {
            0..=2 => 2048,
            3 => 1024,
            4 => 512,
            _ => 256,
        };
        most.min(self.sub_bytes.next_multiple_of(LINE_BYTES))
    }

    /// Bytes between planes in scratch. Many lanes a power of two apart would share few sets of the first cache.
    fn plane_bytes(&self) -> usize {
        self.strip_bytes() + if self.levels > 3 { LINE_BYTES } else { 0 }
    }
}

/// The work on one strip.
struct Run<'a> {
    part: &'a Part<'a>,
    at: usize,
    /// Bytes of each plane.
    bytes: usize,
    /// The same in whole lines.
    padded: usize,
    /// Bytes between the planes of a lane in scratch.
    plane: usize,
    /// T lanes of sums, T lanes of a group, [`WIDTH`] lanes of sources that are short or not there.
    scratch: *mut u8,
    parities: usize,
    /// How many chunks ahead of their use sources are brought closer, if any.
    ahead: usize,
    /// The levels above three of a group of two or four blocks are taken with its last block, if their factors are in GF(2^8).
    at_once: bool,
}

impl Run<'_> {
    /// Sums all groups and transforms the sums.
    ///
    /// # Safety
    /// `scratch` is good for all its lanes and this run's alone; the part was checked.
    unsafe fn sum_groups(&mut self) {
        let Part { tier, levels, first, sources, .. } = *self.part;
        let lanes = 1usize << levels;
        let lane = 2 * self.plane;
        let end = lanes + first + sources.len();
        let width = lanes.max(WIDTH);
        // SAFETY: the caller's; lanes stay below T in each area, and blocks read and write `padded` bytes of a plane.
        unsafe {
            let sums = self.scratch;
            let group = sums.add(lanes * lane);
            sums.write_bytes(0, lanes * lane);
            // Groups are aligned by their points. Those of fewer than eight lanes share a block, the first of them with
            // the points of the parity, where there is no source.
            for start in ((lanes + first) / width * width..end).step_by(width) {
                let at_once = self.at_once && (start + lanes - 1) >> 3 < 256;
                for point in (start..start + width).step_by(WIDTH) {
                    let outside = levels_outside(point + WIDTH - 1);
                    if at_once && point + WIDTH == start + width {
                        let above = self.inner(group, sums, start, 3);
                        run_gather_last(tier, &self.gather(point, group), &above, levels - 3, outside);
                        continue;
                    }
                    let (to, levels, add) =
                        if levels <= 3 { (sums, levels, true) } else { (group.add((point - start) * lane), 3, false) };
                    run_gather(tier, &self.gather(point, to), levels, outside, add);
                }
                let mut below = if at_once { levels } else { 3 };
                while below < levels {
                    let taken = levels_of_pass(levels - below);
                    let last = below + taken == levels;
                    let (to, way) = if last { (sums, Way::InverseAdd) } else { (group, Way::Inverse) };
                    self.pass(group, to, start, below, taken, lanes, way);
                    below += taken;
                }
            }
            let mut above = levels;
            while above > 0 {
                let taken = levels_of_pass(above);
                above -= taken;
                self.pass(sums, sums, 0, above, taken, self.parities, Way::Forward);
            }
        }
    }

    /// The block of the sources at `point` and after, which goes to the lanes at `target`.
    ///
    /// # Safety
    /// As [`Self::sum_groups`].
    unsafe fn gather(&self, point: usize, target: *mut u8) -> Gather {
        let Part { sources, sub_bytes, .. } = *self.part;
        let lane = 2 * self.plane;
        let first = (1 << self.part.levels) + self.part.first;
        let eight = |point: usize| sources.get(point.checked_sub(first)?..)?.first_chunk::<WIDTH>();
        let block =
            |sources: [*const u8; WIDTH], source_plane: usize, soon: [*const u8; WIDTH], fetches: bool| Gather {
                sources,
                source_plane,
                soon,
                fetches,
                target,
                stride: lane,
                plane: self.plane,
                point: point as u16,
                bytes: self.padded,
            };
        // SAFETY: tiles are `2 * sub_bytes` long and strips end within `sub_bytes`; staged lanes lie behind the sums and
        // the group.
        unsafe {
            if self.bytes == self.padded
                && let Some(tiles) = eight(point)
                && tiles.iter().all(|tile| !tile.is_empty())
            {
                let soon = eight(point + self.ahead).unwrap_or(tiles);
                let soon = soon.map(|tile| tile.as_ptr().wrapping_add(self.at));
                return block(tiles.map(|tile| tile.as_ptr().add(self.at)), sub_bytes, soon, self.ahead > 0);
            }
            let staged = self.scratch.add((2 << self.part.levels) * lane);
            staged.write_bytes(0, WIDTH * lane);
            for (i, point) in (point..point + WIDTH).enumerate() {
                let tile = point.checked_sub(first).and_then(|at| sources.get(at)).copied().unwrap_or_default();
                for (plane, from) in tile.chunks_exact(sub_bytes).enumerate() {
                    let from = from[self.at..][..self.bytes].as_ptr();
                    from.copy_to_nonoverlapping(staged.add(i * lane + plane * self.plane), self.bytes);
                }
            }
            let staged = std::array::from_fn(|i| staged.add(i * lane).cast_const());
            block(staged, self.plane, staged, false)
        }
    }

    /// The levels `below..below + taken` of the lanes at `from`, the first of which stands at `point`, as far as the
    /// first `needed` lanes depend on them.
    ///
    /// # Safety
    /// As [`Self::sum_groups`]; `from` and `to` are the starts of T lanes.
    #[expect(clippy::too_many_arguments, reason = "one transform's pass, called twice")]
    unsafe fn pass(&self, from: *mut u8, to: *mut u8, point: usize, below: u32, taken: u32, needed: usize, way: Way) {
        let (lanes, lane) = (1usize << self.part.levels, 2 * self.plane);
        for start in (0..lanes).step_by(1 << (below + taken)).take_while(|start| *start < needed) {
            // SAFETY: the caller's; a block's lanes are those from `start` on, `1 << (below + taken)` of them.
            unsafe {
                let part = self.inner(from.add(start * lane), to.add(start * lane), point + start, below);
                let full = (point + start + (1 << (below + taken)) - 1) >> below >= 256;
                run_inner(self.part.tier, &part, taken, full, way);
            }
        }
    }

    /// What the levels from `below` on take of the lanes at `from`, the first of which stands at `point`.
    fn inner(&self, from: *const u8, to: *mut u8, point: usize, below: u32) -> Inner {
        let lane = 2 * self.plane;
        Inner {
            from,
            to,
            step: lane << below,
            stride: lane,
            blocks: 1 << below,
            plane: self.plane,
            point: (point >> below) as u16,
            bytes: self.padded,
        }
    }
}

/// How many levels the next pass takes of so many: at most three, and all passes about the same.
fn levels_of_pass(left: u32) -> u32 {
    left.div_ceil(left.div_ceil(3))
}

/// How many of the lowest levels have points outside GF(2^8), for points up to that number.
fn levels_outside(point: usize) -> u32 {
    (usize::BITS - point.leading_zeros()).saturating_sub(8)
}

thread_local! {
    /// Planes of the syndromes.
    static SYNDROMES: Cell<Vec<&'static [u8]>> = const { Cell::new(Vec::new()) };
    /// Planes of what is recovered.
    static OUTS: Cell<Vec<&'static mut [u8]>> = const { Cell::new(Vec::new()) };
}
