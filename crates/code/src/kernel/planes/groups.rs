//! Clay's encoding of short sub-chunks: a group of planes at once, and each pair of C uncoupled once.
//!
//! The planes of a *group* differ in the digit of the last section, the parity's: their sub-chunks lie side by side in each chunk.
//! The sums of q parities in q planes stay in registers, their pairs are uncoupled among registers, and only C is stored.
//!
//! A node of another section is coupled with that section's dot in a group before or behind. If it is behind, both C are read
//! and both U are made, and the U of the group behind *waits* in scratch for its turn. So each vector of C is read once, and what
//! is read twice lies side by side: of the last section little, of each section before it q times as much. A C that was
//! read again, as a companion, came from the second cache: of chunks a power of two apart, a group's vectors lie in few sets of
//! the first. Source: docs/decisions/0077
//!
//! Invariants:
//! 1. Equal to the encoding program (tested by the golden hashes, and on every tier for many lengths).
//! 2. What waits is read in the group that it waits for, before anything else is put in its place (see [`place`], tested).
//! 3. Nothing is allocated once the thread has lent as much scratch.

use std::{
    arch::x86_64::{__m512i, _mm512_xor_si512},
    ops::Range,
};

use super::{
    super::{
        List,
        coupled::{Place, add_one, add_two, broadcast, load, store, times},
        scratch,
    },
    SECTIONS_MAX, Section, Tile,
    coupler::{Coupler, put},
    fetcher::Fetcher,
    power,
    quartet::Quartet,
};

impl<const Q: usize> Tile<'_, Q> {
    /// Solves all planes of the tile, group by group; if `fetches`, the next group's sources are fetched from afar.
    ///
    /// # Safety
    /// As [`Tile`] says, and `outcome` takes what is made.
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    pub(super) unsafe fn solve_by_group<O: Outcome<Q>>(&self, outcome: &O, fetches: bool) {
        let groups_behind = |section: usize| power(Q, self.sections.len() - 1 - section);
        let vector_bytes = (0..self.sections.len()).map(groups_behind).sum::<usize>() * WAITING[Q];
        let vectors = (WAITING_BYTES / vector_bytes.max(1)).clamp(1, self.sub_bytes.div_ceil(64));
        scratch::lend(vector_bytes * vectors, |scratch| {
            let mut wheels: List<Wheel<Q>, SECTIONS_MAX> = List::new();
            let mut free = scratch.as_mut_ptr();
            for (at, section) in self.sections.iter().enumerate() {
                let (groups, bytes) = (groups_behind(at), WAITING[Q] * vectors);
                let end = free.wrapping_add(groups * bytes);
                wheels.push(Wheel::new(section, groups * Q * self.sub_bytes, free..end, bytes));
                free = end;
            }
            for first in (0..self.sub_bytes).step_by(64 * vectors) {
                let bytes = first..self.sub_bytes.min(first + 64 * vectors);
                // SAFETY: the caller's; the wheels share out the scratch, and are back where they began after each sweep.
                unsafe { self.sweep(wheels.as_mut_slice(), bytes, outcome, fetches) };
                debug_assert!(wheels.as_slice().iter().all(|wheel| wheel.digit == 0 && wheel.waiting == wheel.first));
            }
        });
    }

    /// Solves these bytes of every sub-chunk.
    ///
    /// # Safety
    /// As [`Self::solve_by_group`]; the wheels stand at the first group and have room for as many vectors.
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn sweep<O: Outcome<Q>>(&self, wheels: &mut [Wheel<Q>], bytes: Range<usize>, outcome: &O, fetches: bool) {
        let group_bytes = Q * self.sub_bytes;
        let mut fetcher = Fetcher::new(bytes.len());
        for start in (0..).step_by(group_bytes).take(power(Q, self.sections.len())) {
            if fetches {
                fetcher.aim(self.next_reads(wheels, start + group_bytes + bytes.start));
            }
            let mut at = bytes.start;
            let mut vector = 0;
            // SAFETY: the caller's; the group lies within the tile.
            unsafe {
                while at + 64 <= bytes.end {
                    if fetches {
                        fetcher.fetch(1);
                    }
                    let place = Place { at, stride: self.sub_bytes, mask: u64::MAX };
                    self.solve::<O, false>(wheels, outcome, start, place, vector);
                    at += 64;
                    vector += 1;
                }
                if at < bytes.end {
                    let mask = u64::MAX >> (64 - (bytes.end - at));
                    let place = Place { at, stride: self.sub_bytes, mask };
                    self.solve_short(wheels, outcome, start, place, vector);
                }
            }
            let mut carries = true;
            for wheel in wheels.iter_mut().rev() {
                carries = wheel.turn(carries);
            }
        }
    }

    /// What the next group, `start` bytes into each chunk, reads of every plane.
    fn next_reads(&self, wheels: &[Wheel<Q>], start: usize) -> impl Iterator<Item = *const u8> {
        let mut carries = true;
        let reads = wheels.iter().rev().flat_map(move |wheel| {
            let digit = (wheel.digit + usize::from(carries)) % Q;
            carries &= digit == 0;
            let own = (digit..Q).map(move |node| wheel.section.chunk(node, start));
            own.chain((digit + 1..Q).map(move |node| wheel.section.chunk(digit, start + (node - digit) * wheel.weight)))
        });
        let stride = self.sub_bytes;
        reads.flat_map(move |read| (0..Q).map(move |plane| read.wrapping_add(plane * stride)))
    }

    /// The last vector of a sub-chunk, if it is short.
    ///
    /// # Safety
    /// As [`Self::solve`].
    #[inline(never)] // It would take registers of the loop over whole vectors.
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn solve_short<O: Outcome<Q>>(
        &self,
        wheels: &[Wheel<Q>],
        outcome: &O,
        start: usize,
        place: Place,
        vector: usize,
    ) {
        // SAFETY: the caller's.
        unsafe { self.solve::<O, true>(wheels, outcome, start, place, vector) };
    }

    /// One vector, up to the mask if it is short, of Q unknown nodes in the Q planes of the group at `start`. It is the `vector`-th
    /// of what the wheels have room for.
    ///
    /// # Safety
    /// As [`Self::solve_by_group`]; the wheels stand at the group, and the place lies within its sub-chunks.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn solve<O: Outcome<Q>, const SHORT: bool>(
        &self,
        wheels: &[Wheel<Q>],
        outcome: &O,
        start: usize,
        place: Place,
        vector: usize,
    ) {
        let mut sums = [[broadcast(0); Q]; Q];
        let factor = self.coupler.factor;
        let nodes = |section, weight, waiting| Nodes { section, weight, start, place, waiting, factor };
        for wheel in wheels {
            let nodes = nodes(wheel.section, wheel.weight, wheel.waiting.wrapping_add(vector * WAITING[Q]));
            // SAFETY: the caller's; where Q is 4, the sums are a quartet's.
            unsafe {
                match wheel.digit {
                    digit if Q == 4 && !SHORT => {
                        let sums = &mut *(&raw mut sums).cast();
                        if O::PLAIN {
                            nodes.quartet().add::<true>(digit, sums);
                        } else {
                            nodes.quartet().add::<false>(digit, sums);
                        }
                    }
                    0 => nodes.add::<0, O, SHORT>(&mut sums),
                    1 => nodes.add::<1, O, SHORT>(&mut sums),
                    2 if Q > 2 => nodes.add::<2, O, SHORT>(&mut sums),
                    _ => nodes.add::<3, O, SHORT>(&mut sums),
                }
            }
        }
        // SAFETY: the caller's.
        unsafe {
            if let Some(inner) = self.inner {
                let nodes = nodes(inner, self.sub_bytes, std::ptr::null_mut());
                if Q == 4 && !SHORT {
                    nodes.quartet().add_inner(&mut *(&raw mut sums).cast());
                } else {
                    nodes.add_inner::<SHORT>(&mut sums);
                }
            }
            outcome.put::<SHORT>(sums, start, place);
        }
    }
}

/// What becomes of the U of Q unknown nodes in a group.
pub(super) trait Outcome<const Q: usize> {
    /// Whether the products of the first node's sums are all by 1, in sections that wait.
    const PLAIN: bool;

    /// Takes a vector of each, up to the mask if it is short: `values[node][plane]` of the group at `start`.
    ///
    /// # Safety
    /// AVX-512 F and BW and GFNI are there; where it puts them can be written, and what it reads for that be read.
    unsafe fn put<const SHORT: bool>(&self, values: [[__m512i; Q]; Q], start: usize, place: Place);
}

/// The unknown nodes are parities, whose pairs are all in the group.
pub(super) struct Encoded<const Q: usize, const STREAMED: bool> {
    pub(super) parity: [*mut u8; Q],
    pub(super) coupler: Coupler,
}

impl<const Q: usize, const STREAMED: bool> Outcome<Q> for Encoded<Q, STREAMED> {
    const PLAIN: bool = true;

    /// U of node x in the plane with digit j, `values[x][j]`, becomes C: its companion is node j in the plane with x.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    #[expect(clippy::needless_range_loop, reason = "rows and columns change places")]
    unsafe fn put<const SHORT: bool>(&self, mut values: [[__m512i; Q]; Q], start: usize, place: Place) {
        for x in 0..Q {
            for j in x + 1..Q {
                (values[x][j], values[j][x]) = self.coupler.uncoupled(values[x][j], values[j][x]);
            }
        }
        for (parity, values) in self.parity.iter().zip(values) {
            for (plane, value) in values.into_iter().enumerate() {
                let to = parity.wrapping_add(start + plane * place.stride + place.at);
                // SAFETY: the caller's.
                unsafe { put::<STREAMED, SHORT>(to, value, place.mask) };
            }
        }
    }
}

/// A section's digit, which turns from group to group, and what waits with it.
#[derive(Clone, Copy)]
struct Wheel<'a, const Q: usize> {
    section: &'a Section<'a, Q>,
    /// Bytes of a chunk between planes that differ by one in the digit.
    weight: usize,
    digit: usize,
    /// What waits for the group that is solved.
    waiting: *mut u8,
    /// What waits for the groups with any digits of the sections behind, one after another in a ring.
    first: *mut u8,
    end: *mut u8,
    /// What waits for one of them.
    bytes: usize,
}

impl<'a, const Q: usize> Wheel<'a, Q> {
    fn new(section: &'a Section<'a, Q>, weight: usize, ring: Range<*mut u8>, bytes: usize) -> Self {
        Self { section, weight, digit: 0, waiting: ring.start, first: ring.start, end: ring.end, bytes }
    }

    /// Goes on to the next group, with the digit if the section behind `carries`; whether it carries itself.
    fn turn(&mut self, carries: bool) -> bool {
        self.waiting = self.waiting.wrapping_add(self.bytes);
        if self.waiting == self.end {
            self.waiting = self.first;
        }
        self.digit = if carries { (self.digit + 1) % Q } else { self.digit };
        carries && self.digit == 0
    }
}

/// A section's nodes in a group.
struct Nodes<'a, const Q: usize> {
    section: &'a Section<'a, Q>,
    /// Bytes of a chunk between planes that differ by one in the digit.
    weight: usize,
    start: usize,
    place: Place,
    /// What waits for this vector.
    waiting: *mut u8,
    factor: __m512i,
}

impl<const Q: usize> Nodes<'_, Q> {
    /// Adds the products of U, where the digit is D.
    ///
    /// # Safety
    /// As [`Tile::solve`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn add<const D: usize, O: Outcome<Q>, const SHORT: bool>(&self, sums: &mut [[__m512i; Q]; Q]) {
        let mut values = [[broadcast(0); Q]; Q];
        // SAFETY: the caller's.
        unsafe {
            values[0] = self.known::<D, 0, SHORT>();
            values[1] = self.known::<D, 1, SHORT>();
            if Q > 2 {
                values[2] = self.known::<D, 2, SHORT>();
            }
            if Q > 3 {
                values[3] = self.known::<D, 3, SHORT>();
            }
            if O::PLAIN {
                self.add_products::<true>(sums, &values);
            } else {
                self.add_products::<false>(sums, &values);
            }
        }
    }

    /// The same for the section whose digits the group's planes have: all companions are in the group.
    ///
    /// # Safety
    /// As [`Tile::solve`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn add_inner<const SHORT: bool>(&self, sums: &mut [[__m512i; Q]; Q]) {
        // SAFETY: the caller's.
        unsafe {
            let stored: [[__m512i; Q]; Q] =
                std::array::from_fn(|node| load::<Q, SHORT>(self.section.chunk(node, self.start), self.place));
            let coupled = |node: usize, plane: usize| {
                let companion = times(stored[plane][node], self.factor);
                if node == plane { stored[node][plane] } else { _mm512_xor_si512(stored[node][plane], companion) }
            };
            let values = std::array::from_fn(|node| std::array::from_fn(|plane| coupled(node, plane)));
            self.add_products::<false>(sums, &values);
        }
    }

    /// Adds the products of U, `values[node][plane]`.
    ///
    /// # Safety
    /// AVX-512 F and BW and GFNI are there.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn add_products<const PLAIN: bool>(&self, sums: &mut [[__m512i; Q]; Q], values: &[[__m512i; Q]; Q]) {
        let by = |node: usize| self.section.products[node].as_ptr();
        // SAFETY: there are Q matrices for each node.
        unsafe {
            add_two::<Q, Q, PLAIN>(sums, [values[0], values[1]], by(0), by(1));
            if Q == 3 {
                add_one::<Q, Q, PLAIN>(sums, values[2], by(2));
            }
            if Q == 4 {
                add_two::<Q, Q, PLAIN>(sums, [values[2], values[3]], by(2), by(3));
            }
        }
    }

    /// U of node X in each plane, where the digit is D.
    ///
    /// # Safety
    /// As [`Tile::solve`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn known<const D: usize, const X: usize, const SHORT: bool>(&self) -> [__m512i; Q] {
        let waiting = self.waiting.wrapping_add(const { place(X, D) } * Q * 64);
        let near = self.section.chunk(X, self.start);
        // SAFETY: the caller's.
        unsafe {
            if X < D {
                return load::<Q, false>(waiting, Place { at: 0, stride: 64, mask: u64::MAX });
            }
            if X == D {
                return load::<Q, SHORT>(near, self.place);
            }
            let far = self.section.chunk(D, self.start + (X - D) * self.weight);
            std::array::from_fn(|plane| {
                let place = Place { at: self.place.at + plane * self.place.stride, ..self.place };
                let ([near], [far]) = (load::<1, SHORT>(near, place), load::<1, SHORT>(far, place));
                let companion = _mm512_xor_si512(far, times(near, self.factor));
                store::<false>(waiting.wrapping_add(64 * plane), companion, u64::MAX);
                _mm512_xor_si512(near, times(far, self.factor))
            })
        }
    }

    /// The same nodes for the kernel of four.
    #[inline]
    fn quartet(&self) -> Quartet {
        Quartet {
            chunks: std::array::from_fn(|node| self.section.chunks[node]),
            offsets: std::array::from_fn(|node| self.section.offsets[node]),
            start: self.start,
            place: self.place,
            weight: self.weight,
            waiting: self.waiting,
            products: self.section.products.as_ptr().cast(),
            factor: self.factor,
        }
    }
}

/// Where the U waits that the group with the lesser of two digits makes for that with the other, in units of Q vectors. What is
/// as many digits apart takes turns: it is read at the digit where the next is put, and before it, as nodes come in order.
pub(super) const fn place(a: usize, b: usize) -> usize {
    let (less, apart) = if a < b { (a, b - a) } else { (b, a - b) };
    if apart == 0 { 0 } else { apart * (apart - 1) / 2 + less % apart }
}

/// By q: bytes that wait for one vector of a group in q planes, with as many places as pairs of digits wait at once.
const WAITING: [usize; 5] = [0, 0, 2 * 64, 2 * 3 * 64, 4 * 4 * 64];

/// What waits at once, unless that of one vector is more. Little in tests, so that they encode some vectors after others.
const WAITING_BYTES: usize = if cfg!(test) { 1 << 15 } else { 3 << 19 };

#[cfg(test)]
mod tests {
    use super::{WAITING, place};
    use std::collections::BTreeMap;

    #[test]
    fn what_waits_is_read_before_its_place_is_taken() {
        for (q, bytes) in WAITING.into_iter().enumerate().skip(2) {
            let mut waiting = BTreeMap::new();
            for digit in 0..q {
                for node in 0..digit {
                    assert_eq!(waiting.remove(&place(node, digit)), Some((node, digit)), "q is {q}");
                }
                for node in digit + 1..q {
                    assert!(place(digit, node) < bytes / (q * 64));
                    assert_eq!(waiting.insert(place(digit, node), (digit, node)), None, "q is {q}");
                }
            }
            assert!(waiting.is_empty());
        }
    }
}
