//! Clay's encoding of long sub-chunks: a group plane by plane, some vectors side by side.
//!
//! What is uncoupled with a later plane of the group is kept, which the first cache has. All planes at once would read a line each of up
//! to 140 places, which are all of one set of that cache where sub-chunks are whole pages: what the machine fetched ahead
//! was gone when its turn came. A group's sources follow from one [`Aspect`] for each section, made once for all groups.
//!
//! Invariants:
//! 1. Equal to the encoding program (tested against short sub-chunks).
//! 2. Each vector of C is read at most twice, once itself and once as a companion, but for what the last side shares with the one before.

use std::{
    arch::x86_64::{__m512i, _mm512_xor_si512},
    cmp::Ordering,
    mem::MaybeUninit,
};

use super::{
    super::{
        List,
        coupled::{Place, add_one, add_two, broadcast, load, times},
    },
    NODES_MAX, SECTIONS_MAX, Section, Tile,
    coupler::put,
    fetcher::Fetcher,
    power,
};

impl<const Q: usize> Tile<'_, Q> {
    /// Encodes the tile; if `fetches`, the next group's sources are fetched from afar.
    ///
    /// # Safety
    /// As [`Tile`] says; a sub-chunk has at least [`SIDE_BYTES`], and the last digit's section is the parity's, whose first takes all
    /// products by 1.
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    pub(super) unsafe fn encode_by_plane<const STREAMED: bool>(&self, parity: [*mut u8; Q], fetches: bool) {
        debug_assert!(self.inner.is_none());
        let sub_bytes = self.sub_bytes;
        let mut aspects: List<Aspect<Q>, NODES_MAX> = List::new();
        for (at, section) in self.sections.iter().enumerate() {
            let weight = power(Q, self.sections.len() - at) * sub_bytes;
            aspects.extend((0..Q).map(|digit| Aspect::new(section, digit, weight)));
        }
        let aspects = aspects.as_mut_slice();
        let has_zeros = self.sections.iter().any(|section| section.offsets.contains(&0));
        // Which aspects a group has, one of each section in turn.
        let mut group: [usize; SECTIONS_MAX] = std::array::from_fn(|section| section * Q);
        let group = &mut group[..self.sections.len()];
        let mut next: [usize; SECTIONS_MAX] = std::array::from_fn(|section| section * Q);
        let next = &mut next[..self.sections.len()];
        let mut fetcher = Fetcher::new(Q * sub_bytes);
        let mut kept = [[const { MaybeUninit::uninit() }; PAIRS_MAX]; BLOCK_BYTES / SIDE_BYTES];
        // To and fro: the sections that one group read last are read first for the next, while they are in the first cache.
        let mut is_back = false;
        for start in (0..).step_by(Q * sub_bytes).take(power(Q, self.sections.len())) {
            for aspect in next.iter_mut().rev() {
                *aspect = if (*aspect + 1).is_multiple_of(Q) { *aspect + 1 - Q } else { *aspect + 1 };
                if !aspect.is_multiple_of(Q) {
                    break;
                }
            }
            if fetches {
                fetcher.aim(next.iter().flat_map(|at| aspects[*at].runs(start + Q * sub_bytes)));
            }
            if has_zeros {
                group.iter().for_each(|at| aspects[*at].follow(start));
            }
            let targets = parity.map(|parity| parity.wrapping_add(start));
            let sources = Sources { aspects, group, is_back, start };
            for block in (0..sub_bytes).step_by(BLOCK_BYTES) {
                let sides = (block..sub_bytes.min(block + BLOCK_BYTES)).step_by(SIDE_BYTES);
                // The last side begins early, so that all are whole.
                let sides = sides.map(|at| at.min(sub_bytes - SIDE_BYTES));
                for plane in 0..Q {
                    for (at, kept) in sides.clone().zip(&mut kept) {
                        if fetches {
                            fetcher.fetch(SIDE);
                        }
                        // SAFETY: the caller's; a group and its companions lie within the tile.
                        unsafe { self.solve_plane::<STREAMED>(sources, &targets, plane, at, kept) };
                    }
                }
            }
            group.copy_from_slice(next);
            is_back = !is_back;
        }
    }

    /// SIDE vectors from `at` on of each of Q parities in one of the group's planes, and those that they are coupled with in planes
    /// before it. What is coupled with planes behind it is kept for them, by the pair.
    ///
    /// # Safety
    /// As [`Self::encode_by_plane`]; the vectors lie within the sub-chunk, and planes before have left theirs in `kept`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn solve_plane<const STREAMED: bool>(
        &self,
        sources: Sources<Q>,
        targets: &[*mut u8; Q],
        plane: usize,
        at: usize,
        kept: &mut [MaybeUninit<[__m512i; SIDE]>; PAIRS_MAX],
    ) {
        let sub_bytes = self.sub_bytes;
        let place = Place { at: plane * sub_bytes + at, stride: 64, mask: u64::MAX };
        // SAFETY: the caller's.
        let sums = unsafe { self.sums::<STREAMED>(sources, place) };
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
                        (*own, *other) = self.coupler.uncoupled(*own, *other);
                    }
                    put(plane, node, other);
                    put(node, plane, own);
                }
            }
        }
    }

    /// sums\[parity\]\[u\]: U of the parity, of the u-th vector of the place. STREAMED changes nothing but that each caller has a copy of
    /// its own, which is inlined: sums that are returned by memory cost a fifth.
    ///
    /// # Safety
    /// As [`Self::encode_by_plane`]; the place lies within the group's sub-chunks.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn sums<const STREAMED: bool>(
        &self,
        Sources { aspects, group, is_back, start }: Sources<Q>,
        place: Place,
    ) -> [[__m512i; SIDE]; Q] {
        let mut sums = [[broadcast(0); SIDE]; Q];
        let count = group.len();
        let aspect = |at: usize| &aspects[group[if is_back { count - 1 - at } else { at }]];
        // Products are added two at a time. Three nodes leave one over, which goes with one of the next section.
        let paired = if Q == 3 { count / 2 * 2 } else { 0 };
        // SAFETY: the caller's; there are Q matrices for each node.
        unsafe {
            for at in (0..paired).step_by(2) {
                let (a, b) = (aspect(at), aspect(at + 1));
                let value = |aspect, k| self.known(aspect, k, start, place);
                let by = |aspect: &Aspect<Q>, k: usize| aspect.products[k].as_ptr();
                add_two::<Q, SIDE, true>(&mut sums, [value(a, 0), value(a, 1)], by(a, 0), by(a, 1));
                add_two::<Q, SIDE, true>(&mut sums, [value(a, 2), value(b, 0)], by(a, 2), by(b, 0));
                add_two::<Q, SIDE, true>(&mut sums, [value(b, 1), value(b, 2)], by(b, 1), by(b, 2));
            }
            for at in paired..count {
                self.add(&mut sums, aspect(at), start, place);
            }
        }
        sums
    }

    /// Adds the products of a section's U.
    ///
    /// # Safety
    /// As [`Self::sums`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn add(&self, sums: &mut [[__m512i; SIDE]; Q], aspect: &Aspect<Q>, start: usize, place: Place) {
        let by = |k: usize| aspect.products[k].as_ptr();
        // SAFETY: the caller's; there are Q matrices for each node.
        unsafe {
            let value = |k: usize| self.known(aspect, k, start, place);
            add_two::<Q, SIDE, true>(sums, [value(0), value(1)], by(0), by(1));
            if Q == 3 {
                add_one::<Q, SIDE, true>(sums, value(2), by(2));
            }
            if Q == 4 {
                add_two::<Q, SIDE, true>(sums, [value(2), value(3)], by(2), by(3));
            }
        }
    }

    /// U of the k-th node of a section, of each vector of the place.
    ///
    /// # Safety
    /// As [`Self::sums`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn known(&self, aspect: &Aspect<Q>, k: usize, start: usize, place: Place) -> [__m512i; SIDE] {
        // SAFETY: the caller's.
        unsafe {
            let near = load::<SIDE, false>(aspect.near(k, start), place);
            if k == 0 {
                return near;
            }
            let far = load::<SIDE, false>(aspect.far(k, start), place);
            std::array::from_fn(|u| _mm512_xor_si512(near[u], times(far[u], self.coupler.factor)))
        }
    }
}

/// A section as planes with one digit see it: its nodes from the dot on, in a circle.
#[derive(Clone, Copy, Debug)]
struct Aspect<const Q: usize> {
    /// Where the nodes' chunks start.
    starts: [*const u8; Q],
    /// Where the nodes of zeros have them.
    zeros: [Option<*const u8>; Q],
    /// How far from a plane the plane of each node's companion is, in bytes; it may wrap. 0 if the dot
    /// holds zeros.
    apart: [usize; Q],
    /// Of each node, the product matrix for each parity.
    products: [[u64; Q]; Q],
}

impl<const Q: usize> Aspect<Q> {
    /// `weight` is the bytes of a chunk between planes that differ by one in the section's digit.
    fn new(section: &Section<Q>, digit: usize, weight: usize) -> Self {
        let turn = |k: usize| (digit + k) % Q;
        Self {
            starts: std::array::from_fn(|k| section.chunks[turn(k)]),
            zeros: std::array::from_fn(|k| (section.offsets[turn(k)] == 0).then(|| section.chunks[turn(k)])),
            apart: std::array::from_fn(|k| (turn(k) * weight).wrapping_sub(digit * weight) & section.offsets[digit]),
            products: std::array::from_fn(|k| section.products[turn(k)]),
        }
    }

    /// Places the nodes of zeros so that the group from `start` on finds them: a mask for each look-up takes a twentieth.
    fn follow(&mut self, start: usize) {
        for (chunk, zeros) in self.starts.iter_mut().zip(self.zeros) {
            *chunk = zeros.map_or(*chunk, |zeros| zeros.wrapping_sub(start));
        }
    }

    /// Where the k-th node is read, so many bytes from its start on.
    #[inline]
    fn near(&self, k: usize, start: usize) -> *const u8 {
        self.starts[k].wrapping_add(start)
    }

    /// Where its companion is.
    #[inline]
    fn far(&self, k: usize, start: usize) -> *const u8 {
        self.starts[0].wrapping_add(start.wrapping_add(self.apart[k]))
    }

    /// What the group from `start` on reads, as it lies.
    fn runs(&self, start: usize) -> impl Iterator<Item = *const u8> {
        (0..Q).map(move |k| self.near(k, start)).chain((1..Q).map(move |k| self.far(k, start)))
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

/// Vectors that are solved side by side: sixteen sums where q is 4.
const SIDE: usize = 4;
pub(super) const SIDE_BYTES: usize = SIDE * 64;

/// Bytes of a sub-chunk that are solved in one plane before the next.
const BLOCK_BYTES: usize = 1 << 10;

/// Pairs of planes in a group.
const PAIRS_MAX: usize = 6;
