//! Systematic Clay encoding where the parity is the last section, with AVX-512 and GFNI.
//!
//! The q planes that differ in the last section's digit are neighbours: their sub-chunks lie side by side in each chunk, and so do
//! their companions', because companions change other digits only. Such a *group* is solved at once where sub-chunks are short
//! (`groups`, for four nodes with the sums of `quartet`), and plane by plane where they are long (`sides`). One lost chunk is repaired
//! by the same groups (`repair`).
//!
//! Tiles that leave the second cache are read from afar in many short runs, which the machine does not foresee, so the
//! next group is fetched while one is solved, each of its runs from front to back; and C is streamed past the caches.
//! Where the third cache is near, fetching gains for the most runs only, and costs a fifth for fewer.
//!
//! Invariants:
//! 1. Equal to the encoding program (tested by the golden hashes, for every tier).
//! 2. Nothing is allocated but zeros for a code with nodes that hold them, and scratch, both kept for the next call.

mod coupler;
mod fetcher;
mod groups;
mod quartet;
mod repair;
mod sides;

use std::{
    arch::x86_64::_mm_sfence,
    sync::{Arc, Mutex, PoisonError},
};

use super::{List, Tier, coupled::product_matrix, manner::PLACES_FOLLOWED, third::Third};
use coupler::Coupler;
use groups::Encoded;
pub(crate) use repair::PlaneRepairer;
use sides::SIDE_BYTES;

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
    zeros: Zeros,
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
        assert!(sections <= SECTIONS_MAX && q * sections <= NODES_MAX, "{sections} sections of {q}: alpha is limited");
        assert!((0..q * sections).all(|node| coef(0, node) == 1), "the first parity is a plain sum");
        let products = (0..q * sections * q).map(|at| product_matrix(coef(at % q, at / q))).collect();
        Some(Self { q, sections, data, coupling, products, zeros: Zeros::default() })
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
        let is_long = is_long(self.q, sub_bytes);
        let fetches = match Third::here() {
            Third::Far => is_far,
            Third::Near { bytes, .. } => {
                touched > bytes / if is_long { 4 } else { 2 } && self.sections * (2 * self.q - 1) > PLACES_FOLLOWED
            }
        };
        let is_aligned = |chunk: &&mut [u8]| chunk.as_ptr().addr().is_multiple_of(64);
        let streams = is_far && sub_bytes.is_multiple_of(64) && parity.iter().all(is_aligned);
        let mut chunks: List<*const u8, NODES_MAX> = List::new();
        chunks.extend(data.iter().map(|chunk| chunk.as_ptr()));
        let data = chunks.as_slice();
        let mut parity = parity.iter_mut().map(|chunk| chunk.as_mut_ptr());
        let mut next = |_| parity.next().expect("q parities");
        // SAFETY: the tier was checked when this was made; all buffers hold a tile, and parity is exclusively borrowed
        // and, if it is streamed, in whole lines.
        unsafe {
            match (self.q, streams) {
                (2, false) => self.encode_tile::<2, false>(data, std::array::from_fn(&mut next), sub_bytes, fetches),
                (3, false) => self.encode_tile::<3, false>(data, std::array::from_fn(&mut next), sub_bytes, fetches),
                (4, false) => self.encode_tile::<4, false>(data, std::array::from_fn(&mut next), sub_bytes, fetches),
                (2, true) => self.encode_tile::<2, true>(data, std::array::from_fn(&mut next), sub_bytes, fetches),
                (3, true) => self.encode_tile::<3, true>(data, std::array::from_fn(&mut next), sub_bytes, fetches),
                (4, true) => self.encode_tile::<4, true>(data, std::array::from_fn(&mut next), sub_bytes, fetches),
                (q, _) => unreachable!("no kernel for {q} nodes a section"),
            }
        }
    }

    /// # Safety
    /// As [`Tile`] says; Q is q, and there is a chunk for each node of data.
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn encode_tile<const Q: usize, const STREAMED: bool>(
        &self,
        data: &[*const u8],
        parity: [*mut u8; Q],
        sub_bytes: usize,
        fetches: bool,
    ) {
        // One group of zeros stands for all groups of a node of zeros.
        let zeros = (data.len() < self.sections * Q).then(|| self.zeros.at_least(Q * sub_bytes));
        let zeros = zeros.as_ref().map_or(std::ptr::null(), |zeros| zeros.as_ptr());
        let mut sections: List<Section<Q>, SECTIONS_MAX> = List::new();
        let (products, _) = self.products.as_chunks::<Q>();
        sections.extend(products.chunks_exact(Q).enumerate().map(|(section, products)| {
            let products = products.first_chunk().expect("Q nodes a section");
            Section::new(|node| data.get(section * Q + node).copied(), zeros, products)
        }));
        let coupler = Coupler::new(self.coupling);
        let tile = Tile { sections: sections.as_slice(), inner: None, coupler, sub_bytes };
        // SAFETY: the caller's; long sub-chunks have more than a side.
        unsafe {
            if is_long(Q, sub_bytes) {
                tile.encode_by_plane::<STREAMED>(parity, fetches);
            } else {
                tile.solve_by_group(&Encoded::<Q, STREAMED> { parity, coupler }, fetches);
            }
        }
        if STREAMED {
            // Streaming stores are ordered with nothing; whoever reads the parity next must see them.
            _mm_sfence();
        }
    }
}

/// Zeros that stand for the chunk of each node that holds them: as many as the longest group so far.
#[derive(Debug, Default)]
struct Zeros(Mutex<Arc<[u8]>>);

impl Zeros {
    fn at_least(&self, bytes: usize) -> Arc<[u8]> {
        let mut zeros = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if zeros.len() < bytes {
            *zeros = vec![0; bytes].into();
        }
        Arc::clone(&zeros)
    }
}

/// A tile, or the planes of one that are read.
///
/// Whoever solves it promises that AVX-512 F and BW and GFNI are there, that Q is 2, 3 or 4, that all chunks are good for a tile,
/// those that are made for writing and those of zeros for a group, and that parities and sub-chunks are whole lines if they
/// are streamed.
struct Tile<'a, const Q: usize> {
    /// Those whose nodes are known and whose digits are not the last.
    sections: &'a [Section<'a, Q>],
    /// That of the last digit, if its nodes are known.
    inner: Option<&'a Section<'a, Q>>,
    coupler: Coupler,
    sub_bytes: usize,
}

/// A section's nodes.
#[derive(Clone, Copy)]
struct Section<'a, const Q: usize> {
    /// Where each node's chunk starts.
    chunks: [*const u8; Q],
    /// Which bits of an offset into each chunk count: all, or of zeros none but those within a group.
    offsets: [usize; Q],
    /// Of each node, the product matrix for each unknown node.
    products: &'a [[u64; Q]; Q],
}

impl<'a, const Q: usize> Section<'a, Q> {
    /// Nodes without a chunk hold zeros.
    fn new(chunk: impl Fn(usize) -> Option<*const u8>, zeros: *const u8, products: &'a [[u64; Q]; Q]) -> Self {
        Self {
            chunks: std::array::from_fn(|node| chunk(node).unwrap_or(zeros)),
            offsets: std::array::from_fn(|node| if chunk(node).is_some() { usize::MAX } else { 0 }),
            products,
        }
    }

    /// Where a node's chunk has the group that is so many bytes from its start.
    #[inline]
    fn chunk(&self, node: usize, start: usize) -> *const u8 {
        self.chunks[node].wrapping_add(start & self.offsets[node])
    }
}

fn power(base: usize, exponent: usize) -> usize {
    base.pow(u32::try_from(exponent).expect("alpha is limited"))
}

/// Tiles whose chunks are longer than this together do not stay in the second cache.
const NEAR_BYTES: usize = 2 << 20;

/// Whether sub-chunks are solved plane by plane.
fn is_long(q: usize, sub_bytes: usize) -> bool {
    sub_bytes >= if sub_bytes.is_multiple_of(SIDE_BYTES) { LONG_BYTES[q] } else { LONG_ODD_BYTES }
}

/// By q: where sub-chunks of whole sides are long.
const LONG_BYTES: [usize; 5] = [0, 0, 4 << 10, 1 << 10, 4 << 10];

/// Where others are.
const LONG_ODD_BYTES: usize = 4 << 10;

/// Alpha, q to the number of all sections, is at most 4096.
const SECTIONS_MAX: usize = 11;

/// Nodes of these sections: 22 where q is 2, 18 and 20 where it is 3 and 4.
const NODES_MAX: usize = 22;
