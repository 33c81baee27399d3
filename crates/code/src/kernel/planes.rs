//! Systematic Clay encoding where the parity is the last section, with AVX-512 and GFNI.
//!
//! The q planes that differ in the last section's digit are neighbours: their sub-chunks lie side by side in each chunk,
//! and so do their companions', because companions change other digits only. Of short sub-chunks such a *group* is solved at
//! once: the sums of q parities in q planes stay in registers, their pairs are uncoupled among registers, and only C is stored.
//! A group's sources follow from one [`Aspect`] for each section, made once for all groups.
//!
//! Of long sub-chunks a group is solved plane by plane, some vectors side by side, and what waits for a later plane to be uncoupled with stays in the
//! first cache. All at once would read a line each of up to 140 places, which are all of one set of that cache where
//! sub-chunks are whole pages: what the machine fetched ahead was gone when its turn came.
//!
//! Tiles that leave the second cache are read from afar in many short runs, which the machine does not foresee, so the
//! next group is fetched while one is solved, each of its runs from front to back; and C is streamed past the caches.
//! Where the third cache is near, fetching gains for the most runs only, and costs a fifth for fewer.
//!
//! Invariants:
//! 1. Equal to the encoding program (tested by the golden hashes, for every tier).
//! 2. Each vector of C is read at most twice: once itself and once as a companion.
//! 3. Nothing is allocated but zeros for a code with nodes that hold them, kept for the next call.

use std::{
    arch::x86_64::{__m512i, _MM_HINT_T1, _mm_prefetch, _mm_sfence, _mm512_stream_si512, _mm512_xor_si512},
    cmp::Ordering,
    mem::MaybeUninit,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    List, Tier,
    coupled::{Place, add_one, add_two, broadcast, load, product_matrix, store, times},
    manner::PLACES_FOLLOWED,
    third::Third,
};
use crate::field::{inv, mul};

/// Encodes one code. Nodes are numbered data, zeros, parity.
#[derive(Debug)]
pub(crate) struct PlaneEncoder {
    /// Nodes of a section, and parities: 2, 3 or 4.
    q: usize,
    /// Sections before the last one.
    sections: usize,
    /// Nodes that hold data. Those up to the last section hold zeros.
    data: usize,
    /// The coupling factor.
    coupling: u8,
    /// By node, a product matrix for each parity.
    products: Vec<u64>,
    /// A group of zeros, as long as the longest so far.
    zeros: Mutex<Arc<[u8]>>,
}

impl PlaneEncoder {
    /// For q nodes a section and `sections` sections before that of the parity, if there is a kernel for them.
    /// `coef(parity, node)` is the scalar code; those of parity 0 are all 1.
    pub(crate) fn new(
        tier: Tier,
        [q, sections, data]: [usize; 3],
        coupling: u8,
        coef: impl Fn(usize, usize) -> u8,
    ) -> Option<Self> {
        if tier != Tier::Avx512Gfni || !(2..=4).contains(&q) || sections == 0 {
            return None;
        }
        assert!(Tier::available().contains(&tier) && data <= q * sections);
        assert!(
            sections <= SECTIONS_MAX && q * sections <= ASPECTS_MAX,
            "{sections} sections of {q}: alpha is limited"
        );
        assert!((0..q * sections).all(|node| coef(0, node) == 1), "the first parity is a plain sum");
        let products = (0..q * sections * q).map(|at| product_matrix(coef(at % q, at / q))).collect();
        Some(Self { q, sections, data, coupling, products, zeros: Mutex::default() })
    }

    /// Encodes one tile.
    ///
    /// # Panics
    /// If counts or lengths do not fit the code.
    pub(crate) fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]], sub_bytes: usize) {
        let tile = power(self.q, self.sections + 1) * sub_bytes;
        assert!(data.len() == self.data && parity.len() == self.q, "one buffer for each chunk");
        assert!(data.iter().all(|chunk| chunk.len() == tile), "data of other lengths");
        assert!(parity.iter().all(|chunk| chunk.len() == tile), "parity of other lengths");
        if sub_bytes == 0 {
            // Groups of no bytes would not follow one another.
            return;
        }
        let touched = (self.data + self.q) * tile;
        let is_far = touched > NEAR_BYTES;
        let fetches = match Third::here() {
            Third::Far => is_far,
            Third::Near { bytes, .. } => touched > bytes / 4 && self.sections * (2 * self.q - 1) > PLACES_FOLLOWED,
        };
        let is_aligned = |chunk: &&mut [u8]| chunk.as_ptr().addr().is_multiple_of(64);
        let streams = is_far && sub_bytes.is_multiple_of(64) && parity.iter().all(is_aligned);
        let mut chunks: List<*const u8, ASPECTS_MAX> = List::new();
        chunks.extend(data.iter().map(|chunk| chunk.as_ptr()));
        let data = chunks.as_slice();
        let mut parity = parity.iter_mut().map(|chunk| chunk.as_mut_ptr());
        let mut next = |_| parity.next().expect("q parities");
        // SAFETY: the tier was checked when this was made; all buffers hold a tile, and parity is exclusively borrowed
        // and, if it is streamed, in whole lines.
        unsafe {
            match (self.q, streams) {
                (2, false) => self.sweep::<2, false>(data, std::array::from_fn(&mut next), sub_bytes, fetches),
                (3, false) => self.sweep::<3, false>(data, std::array::from_fn(&mut next), sub_bytes, fetches),
                (4, false) => self.sweep::<4, false>(data, std::array::from_fn(&mut next), sub_bytes, fetches),
                (2, true) => self.sweep::<2, true>(data, std::array::from_fn(&mut next), sub_bytes, fetches),
                (3, true) => self.sweep::<3, true>(data, std::array::from_fn(&mut next), sub_bytes, fetches),
                (4, true) => self.sweep::<4, true>(data, std::array::from_fn(&mut next), sub_bytes, fetches),
                (q, _) => unreachable!("no kernel for {q} nodes a section"),
            }
        }
    }

    /// # Safety
    /// The features are there, Q is q, there is a chunk for each node of data, and all chunks are good for a tile. To be
    /// streamed, all sub-chunks of the parities must be whole lines.
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn sweep<const Q: usize, const STREAMED: bool>(
        &self,
        data: &[*const u8],
        parity: [*mut u8; Q],
        sub_bytes: usize,
        fetches: bool,
    ) {
        let unpair = inv(mul(self.coupling, self.coupling) ^ 1);
        let coupler =
            Coupler { factor: broadcast(product_matrix(self.coupling)), unpair: broadcast(product_matrix(unpair)) };
        let mut aspects: List<Aspect<Q>, ASPECTS_MAX> = List::new();
        aspects.extend((0..self.sections * Q).map(|at| self.aspect(data, at / Q, at % Q, sub_bytes)));
        let aspects = aspects.as_mut_slice();
        // One group of zeros stands for all groups of a node of zeros.
        let zeros = (data.len() < self.sections * Q).then(|| self.zeros(Q * sub_bytes));
        // Which aspects a group has, one of each section in turn.
        let mut group: [usize; SECTIONS_MAX] = std::array::from_fn(|section| section * Q);
        let group = &mut group[..self.sections];
        let mut next: [usize; SECTIONS_MAX] = std::array::from_fn(|section| section * Q);
        let next = &mut next[..self.sections];
        let mut fetcher = Fetcher::new(Q * sub_bytes);
        // Zeros here would cost short sub-chunks more than they gain.
        let mut kept = [[const { MaybeUninit::uninit() }; PAIRS_MAX]; BLOCK_BYTES / SIDE_BYTES];
        let blocks_end = if sub_bytes < LONG_BYTES[Q] { 0 } else { sub_bytes / SIDE_BYTES * SIDE_BYTES };
        // To and fro: the sections that one group read last are read first for the next, while they are in the first cache.
        let mut is_back = false;
        for start in (0..).step_by(Q * sub_bytes).take(power(Q, self.sections)) {
            for aspect in next.iter_mut().rev() {
                *aspect = if (*aspect + 1).is_multiple_of(Q) { *aspect + 1 - Q } else { *aspect + 1 };
                if !aspect.is_multiple_of(Q) {
                    break;
                }
            }
            if fetches {
                fetcher.aim(next.iter().map(|at| &aspects[*at]), start + Q * sub_bytes);
            }
            if let Some(zeros) = &zeros {
                group.iter().for_each(|at| aspects[*at].follow(zeros, start));
            }
            // SAFETY: the caller's; a group and its companions lie within the tile.
            unsafe {
                let targets = parity.map(|parity| parity.add(start));
                let sources = Sources { aspects, group, is_back, start };
                let mut at = 0;
                while at < blocks_end {
                    let end = blocks_end.min(at + BLOCK_BYTES);
                    for plane in 0..Q {
                        for (at, kept) in (at..end).step_by(SIDE_BYTES).zip(&mut kept) {
                            if fetches {
                                fetcher.fetch(SIDE);
                            }
                            coupler.solve_plane::<Q, STREAMED>(sources, &targets, plane, at, sub_bytes, kept);
                        }
                    }
                    at = end;
                }
                while at + 64 <= sub_bytes {
                    if fetches {
                        fetcher.fetch(Q);
                    }
                    let place = Place { at, stride: sub_bytes, mask: u64::MAX };
                    coupler.solve::<Q, STREAMED, false>(sources, &targets, place);
                    at += 64;
                }
                if at < sub_bytes {
                    let place = Place { at, stride: sub_bytes, mask: u64::MAX >> (64 - (sub_bytes - at)) };
                    coupler.solve::<Q, false, true>(sources, &targets, place);
                }
            }
            group.copy_from_slice(next);
            is_back = !is_back;
        }
        if STREAMED {
            // Streaming stores are ordered with nothing; whoever reads the parity next must see them.
            _mm_sfence();
        }
    }

    /// At least so many zeros.
    fn zeros(&self, bytes: usize) -> Arc<[u8]> {
        let mut zeros = self.zeros.lock().unwrap_or_else(PoisonError::into_inner);
        if zeros.len() < bytes {
            *zeros = vec![0; bytes].into();
        }
        Arc::clone(&zeros)
    }

    /// A section in planes with this digit.
    fn aspect<const Q: usize>(&self, data: &[*const u8], section: usize, digit: usize, sub_bytes: usize) -> Aspect<Q> {
        let weight = power(Q, self.sections - section) * sub_bytes;
        let turn = |k: usize| (digit + k) % Q;
        let node = |k: usize| section * Q + turn(k);
        let is_zeros: [bool; Q] = std::array::from_fn(|k| node(k) >= data.len());
        let apart = |k: usize| (turn(k) * weight).wrapping_sub(digit * weight);
        Aspect {
            starts: std::array::from_fn(|k| data.get(node(k)).copied().unwrap_or_default()),
            is_zeros,
            apart: std::array::from_fn(|k| if is_zeros[0] { 0 } else { apart(k) }),
            products: std::array::from_fn(|k| std::array::from_fn(|row| self.products[node(k) * Q + row])),
        }
    }
}

/// A section as planes with one digit see it: its nodes from the dot on, in a circle.
#[derive(Clone, Copy, Debug)]
struct Aspect<const Q: usize> {
    /// Where the nodes' chunks start.
    starts: [*const u8; Q],
    /// Which nodes hold zeros.
    is_zeros: [bool; Q],
    /// How far from a plane the plane of each node's companion is, in bytes; it may wrap. 0 for the dot.
    apart: [usize; Q],
    /// Of each node, the product matrix for each parity.
    products: [[u64; Q]; Q],
}

impl<const Q: usize> Aspect<Q> {
    /// Places the nodes of zeros so that the group from `start` on finds `zeros`.
    fn follow(&mut self, zeros: &[u8], start: usize) {
        for (chunk, _) in self.starts.iter_mut().zip(self.is_zeros).filter(|(_, is_zeros)| *is_zeros) {
            *chunk = zeros.as_ptr().wrapping_sub(start);
        }
    }
}

/// What a group is solved from.
#[derive(Clone, Copy)]
struct Sources<'a, const Q: usize> {
    aspects: &'a [Aspect<Q>],
    /// The group's aspects, one of each section in turn.
    group: &'a [usize],
    /// They are taken in the opposite order.
    is_back: bool,
    /// Where the group starts.
    start: usize,
}

/// The matrices of the coupling.
struct Coupler {
    /// By g.
    factor: __m512i,
    /// By 1 / (1 + g^2).
    unpair: __m512i,
}

impl Coupler {
    /// One vector, up to the mask if it is short, of each of Q parities in the group's Q planes.
    ///
    /// # Safety
    /// As [`PlaneEncoder::sweep`]; the place lies within every sub-chunk.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn solve<const Q: usize, const STREAMED: bool, const SHORT: bool>(
        &self,
        sources: Sources<Q>,
        targets: &[*mut u8; Q],
        place: Place,
    ) {
        // SAFETY: the caller's.
        let mut sums = unsafe { self.sums::<Q, Q, false, STREAMED, SHORT>(sources, place) };
        self.uncouple(&mut sums);
        for (target, sums) in targets.iter().zip(sums) {
            for (plane, sum) in sums.into_iter().enumerate() {
                // SAFETY: the caller's.
                unsafe { put::<STREAMED, SHORT>(target.add(plane * place.stride + place.at), sum, place.mask) };
            }
        }
    }

    /// SIDE vectors from `at` on of each of Q parities in one of the group's planes, and those that they are coupled with in planes
    /// before it. What is coupled with planes behind it is kept for them, by the pair.
    ///
    /// # Safety
    /// As [`PlaneEncoder::sweep`]; the vectors lie within the sub-chunk, and planes before have left theirs in `kept`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn solve_plane<const Q: usize, const STREAMED: bool>(
        &self,
        sources: Sources<Q>,
        targets: &[*mut u8; Q],
        plane: usize,
        at: usize,
        sub_bytes: usize,
        kept: &mut [MaybeUninit<[__m512i; SIDE]>; PAIRS_MAX],
    ) {
        let place = Place { at: plane * sub_bytes + at, stride: 64, mask: u64::MAX };
        // SAFETY: the caller's.
        let sums = unsafe { self.sums::<Q, SIDE, true, STREAMED, false>(sources, place) };
        let put = |target: usize, plane: usize, vectors: [__m512i; SIDE]| {
            for (u, vector) in vectors.into_iter().enumerate() {
                // SAFETY: the caller's.
                unsafe {
                    put::<STREAMED, false>(targets[target].add(plane * sub_bytes + at + 64 * u), vector, u64::MAX)
                };
            }
        };
        let pair = |less: usize, more: usize| more * (more - 1) / 2 + less;
        for (node, mut own) in sums.into_iter().enumerate() {
            match node.cmp(&plane) {
                Ordering::Greater => {
                    kept[pair(plane, node)].write(own);
                }
                Ordering::Equal => put(node, plane, own),
                Ordering::Less => {
                    // SAFETY: the caller's: the plane of this node came before.
                    let mut other = unsafe { kept[pair(node, plane)].assume_init() };
                    for (own, other) in own.iter_mut().zip(&mut other) {
                        (*own, *other) = self.uncoupled_pair(*own, *other);
                    }
                    put(plane, node, other);
                    put(node, plane, own);
                }
            }
        }
    }

    /// sums\[parity\]\[u\]: U of the parity, of the u-th vector of the place. PLANE and STREAMED change nothing but that each caller has
    /// a copy of its own, which is inlined: sums that are returned by memory cost a fifth.
    ///
    /// # Safety
    /// As [`PlaneEncoder::sweep`]; the place lies within the group's sub-chunks.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn sums<const Q: usize, const U: usize, const PLANE: bool, const STREAMED: bool, const SHORT: bool>(
        &self,
        Sources { aspects, group, is_back, start }: Sources<Q>,
        place: Place,
    ) -> [[__m512i; U]; Q] {
        let mut sums = [[broadcast(0); U]; Q];
        let count = group.len();
        let aspect = |at: usize| &aspects[group[if is_back { count - 1 - at } else { at }]];
        // Products are added two at a time. Three nodes leave one over, which goes with one of the next section.
        let paired = if Q == 3 { count / 2 * 2 } else { 0 };
        // SAFETY: the caller's; there are Q matrices for each node.
        unsafe {
            for at in (0..paired).step_by(2) {
                let (a, b) = (aspect(at), aspect(at + 1));
                let value = |aspect, k| self.uncoupled::<Q, U, SHORT>(aspect, k, start, place);
                let by = |aspect: &Aspect<Q>, k: usize| aspect.products[k].as_ptr();
                add_two::<Q, U, true>(&mut sums, [value(a, 0), value(a, 1)], by(a, 0), by(a, 1));
                add_two::<Q, U, true>(&mut sums, [value(a, 2), value(b, 0)], by(a, 2), by(b, 0));
                add_two::<Q, U, true>(&mut sums, [value(b, 1), value(b, 2)], by(b, 1), by(b, 2));
            }
            for at in paired..count {
                self.add::<Q, U, SHORT>(&mut sums, aspect(at), start, place);
            }
        }
        sums
    }

    /// Adds the products of a section's U.
    ///
    /// # Safety
    /// As [`Self::solve`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn add<const Q: usize, const U: usize, const SHORT: bool>(
        &self,
        sums: &mut [[__m512i; U]; Q],
        aspect: &Aspect<Q>,
        start: usize,
        place: Place,
    ) {
        let by = |k: usize| aspect.products[k].as_ptr();
        // SAFETY: the caller's; there are Q matrices for each node.
        unsafe {
            let value = |k: usize| self.uncoupled::<Q, U, SHORT>(aspect, k, start, place);
            add_two::<Q, U, true>(sums, [value(0), value(1)], by(0), by(1));
            if Q == 3 {
                add_one::<Q, U, true>(sums, value(2), by(2));
            }
            if Q == 4 {
                add_two::<Q, U, true>(sums, [value(2), value(3)], by(2), by(3));
            }
        }
    }

    /// U of the k-th node of a section, of each vector of the place.
    ///
    /// # Safety
    /// As [`Self::solve`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn uncoupled<const Q: usize, const U: usize, const SHORT: bool>(
        &self,
        Aspect { starts, apart, .. }: &Aspect<Q>,
        k: usize,
        start: usize,
        place: Place,
    ) -> [__m512i; U] {
        // SAFETY: the caller's.
        unsafe {
            let near = load::<U, SHORT>(starts[k].wrapping_add(start), place);
            if k == 0 {
                return near;
            }
            let far = load::<U, SHORT>(starts[0].wrapping_add(start.wrapping_add(apart[k])), place);
            std::array::from_fn(|u| _mm512_xor_si512(near[u], times(far[u], self.factor)))
        }
    }

    /// Turns U of node x in the plane with digit j, `values[x][j]`, into C: its companion is node j in the plane with x.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    #[expect(clippy::needless_range_loop, reason = "rows and columns change places")]
    fn uncouple<const Q: usize>(&self, values: &mut [[__m512i; Q]; Q]) {
        for x in 0..Q {
            for j in x + 1..Q {
                (values[x][j], values[j][x]) = self.uncoupled_pair(values[x][j], values[j][x]);
            }
        }
    }

    /// C and C* of U and U*.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    fn uncoupled_pair(&self, own: __m512i, other: __m512i) -> (__m512i, __m512i) {
        // C* = (U* + g U) / (1 + g^2), C = U + g C*.
        let companion = times(_mm512_xor_si512(other, times(own, self.factor)), self.unpair);
        (_mm512_xor_si512(own, times(companion, self.factor)), companion)
    }
}

/// # Safety
/// A vector can be written, up to the mask if it is short; if it is streamed, a whole line.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn put<const STREAMED: bool, const SHORT: bool>(to: *mut u8, value: __m512i, mask: u64) {
    // SAFETY: the caller's.
    unsafe {
        if STREAMED {
            _mm512_stream_si512(to.cast(), value);
        } else {
            store::<SHORT>(to, value, mask);
        }
    }
}

/// Brings a group's sources closer while the group before it is solved, run by run and each from front to back, which the
/// machine takes up and continues by itself. A run is what a group reads of a chunk in one piece.
struct Fetcher {
    run_bytes: usize,
    runs: List<*const u8, RUNS_MAX>,
    /// The run that is being fetched, and where.
    run: usize,
    at: usize,
}

impl Fetcher {
    fn new(run_bytes: usize) -> Self {
        Self { run_bytes, runs: List::new(), run: 0, at: 0 }
    }

    /// Turns to the group from `start` on.
    fn aim<'a, const Q: usize>(&mut self, group: impl Iterator<Item = &'a Aspect<Q>>, start: usize) {
        (self.run, self.at) = (0, 0);
        self.runs.clear();
        for Aspect { starts, apart, .. } in group {
            self.runs.extend(starts.iter().map(|chunk| chunk.wrapping_add(start)));
            self.runs.extend(apart[1..].iter().map(|apart| starts[0].wrapping_add(start.wrapping_add(*apart))));
        }
    }

    /// Fetches on, for each of the runs as many lines as given.
    #[inline]
    fn fetch(&mut self, lines: usize) {
        let runs = self.runs.as_slice();
        for _ in 0..lines * runs.len() {
            let Some(run) = runs.get(self.run) else { return };
            // SAFETY: a hint; nothing is read, and any address will do.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(run.wrapping_add(self.at).cast()) }
            self.at += 64;
            if self.at >= self.run_bytes {
                (self.run, self.at) = (self.run + 1, 0);
            }
        }
    }
}

fn power(base: usize, exponent: usize) -> usize {
    base.pow(u32::try_from(exponent).expect("alpha is limited"))
}

/// Tiles whose chunks are longer than this together do not stay in the second cache.
const NEAR_BYTES: usize = 2 << 20;

/// By q: shorter sub-chunks are solved in all planes of a group at once.
const LONG_BYTES: [usize; 5] = [0, 0, 1 << 10, 1 << 10, 2 << 10];

/// Vectors that are solved side by side: sixteen sums where q is 4.
const SIDE: usize = 4;
const SIDE_BYTES: usize = SIDE * 64;

/// Bytes of a sub-chunk that are solved in one plane before the next.
const BLOCK_BYTES: usize = 1 << 10;

/// Pairs of planes in a group.
const PAIRS_MAX: usize = 6;

/// Alpha, q to the number of all sections, is at most 4096.
const SECTIONS_MAX: usize = 11;

/// Nodes of these sections, and digits in each: 22 where q is 2, 18 and 20 where it is 3 and 4.
const ASPECTS_MAX: usize = 22;

/// A group reads its nodes in one run each, and as many but one of each section as companions.
const RUNS_MAX: usize = 2 * ASPECTS_MAX;
