//! Systematic Clay encoding where the parity is the last section, with AVX-512 and GFNI.
//!
//! The q planes that differ in the last section's digit are neighbours: their sub-chunks lie side by side in each chunk,
//! and so do their companions', because companions change other digits only. Such a *group* is solved at once: the sums
//! of q parities in q planes stay in registers, their pairs are uncoupled among registers, and only C is ever stored.
//!
//! Invariants:
//! 1. Equal to the encoding program (tested by the golden hashes, for every tier).
//! 2. Each vector of C is read at most twice: once itself and once as a companion.

use std::arch::x86_64::{__m512i, __mmask64, _MM_HINT_T1, _mm_prefetch, _mm512_xor_si512};

use super::{
    Tier,
    coupled::{Coupled, Place, Single, broadcast, product_matrix, store, sums, times},
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
        assert!((0..q * sections).all(|node| coef(0, node) == 1), "the first parity is a plain sum");
        let products = (0..q * sections * q).map(|at| product_matrix(coef(at % q, at / q))).collect();
        Some(Self { q, sections, data, coupling, products })
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
        // One group of zeros stands for all groups of a node of zeros.
        let zeros = vec![0u8; if self.data < self.q * self.sections { self.q * sub_bytes } else { 0 }];
        let zeros = std::iter::repeat(Chunk { start: zeros.as_ptr(), moves: 0 });
        let chunks = data.iter().map(|chunk| Chunk { start: chunk.as_ptr(), moves: usize::MAX });
        let chunks: Vec<Chunk> = chunks.chain(zeros).take(self.q * self.sections).collect();
        let mut parity = parity.iter_mut().map(|chunk| chunk.as_mut_ptr());
        let mut next = |_| parity.next().expect("q parities");
        // SAFETY: the tier was checked when this was made; all buffers hold a tile, and parity is exclusively borrowed.
        unsafe {
            match self.q {
                2 => self.sweep::<2>(&chunks, std::array::from_fn(&mut next), sub_bytes),
                3 => self.sweep::<3>(&chunks, std::array::from_fn(&mut next), sub_bytes),
                4 => self.sweep::<4>(&chunks, std::array::from_fn(&mut next), sub_bytes),
                q => unreachable!("no kernel for {q} nodes a section"),
            }
        }
    }

    /// # Safety
    /// The features are there, Q is q, and there are chunks for all nodes, each good for a tile if it moves, else for a
    /// group; so are the parities.
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn sweep<const Q: usize>(&self, chunks: &[Chunk], parity: [*mut u8; Q], sub_bytes: usize) {
        let unpair = inv(mul(self.coupling, self.coupling) ^ 1);
        let sections = |digits: &[usize]| -> Vec<Section> {
            let weight = |section| power(Q, self.sections - section) * sub_bytes;
            let section = |(section, digit): (usize, &usize)| Section { digit: *digit, weight: weight(section) };
            digits.iter().enumerate().map(section).collect()
        };
        let mut digits = vec![0; self.sections];
        let mut group = Group {
            chunks,
            products: &self.products,
            unpair: broadcast(product_matrix(unpair)),
            coupling: broadcast(product_matrix(self.coupling)),
            sections: sections(&digits),
            start: 0,
            sub_bytes,
            factor: product_matrix(self.coupling),
            singles: vec![Single { near: std::ptr::null(), products: std::ptr::null() }; self.sections],
            pairs: vec![
                Coupled { near: std::ptr::null(), far: std::ptr::null(), factor: 0, products: std::ptr::null() };
                self.sections * (Q - 1)
            ],
        };
        let fetches = self.data * power(Q, self.sections + 1) * sub_bytes > FETCH_BYTES;
        for _ in 0..power(Q, self.sections) {
            for digit in digits.iter_mut().rev() {
                *digit = if *digit + 1 < Q { *digit + 1 } else { 0 };
                if *digit > 0 {
                    break;
                }
            }
            // SAFETY: the caller's; a group and its companions lie within the tile.
            unsafe {
                group.aim::<Q>();
                let targets = parity.map(|parity| parity.add(group.start));
                let mut at = 0;
                while at + 64 <= sub_bytes {
                    if fetches {
                        group.fetch::<Q>(&digits, at + FETCH_AHEAD);
                    }
                    group.solve::<Q, false>(&targets, at, u64::MAX);
                    at += 64;
                }
                if at < sub_bytes {
                    group.solve::<Q, true>(&targets, at, u64::MAX >> (64 - (sub_bytes - at)));
                }
            }
            for (section, digit) in group.sections.iter_mut().zip(&digits) {
                section.digit = *digit;
            }
            group.start += Q * sub_bytes;
        }
    }
}

/// Where a node's sub-chunks are. For nodes of zeros, `moves` clears every offset.
#[derive(Clone, Copy)]
struct Chunk {
    start: *const u8,
    moves: usize,
}

/// A section in a group.
#[derive(Clone, Copy)]
struct Section {
    /// The digit of the group's planes.
    digit: usize,
    /// How far apart planes are that differ by one in this digit, in bytes.
    weight: usize,
}

/// Planes that differ in the last section's digit.
struct Group<'a> {
    chunks: &'a [Chunk],
    products: &'a [u64],
    unpair: __m512i,
    coupling: __m512i,
    /// All but the last.
    sections: Vec<Section>,
    /// Where its first sub-chunk lies in a tile.
    start: usize,
    sub_bytes: usize,
    factor: u64,
    singles: Vec<Single>,
    pairs: Vec<Coupled>,
}

impl Group<'_> {
    /// Makes the list of sources.
    #[inline]
    fn aim<const Q: usize>(&mut self) {
        let (singles, pairs) =
            (&mut self.singles[..self.sections.len()], &mut self.pairs[..self.sections.len() * (Q - 1)]);
        let ptr = |chunk: usize, offset: usize| {
            let Chunk { start, moves } = self.chunks[chunk];
            start.wrapping_add(offset & moves)
        };
        for ((s, Section { digit, weight }), (single, pairs)) in
            self.sections.iter().enumerate().zip(singles.iter_mut().zip(pairs.chunks_exact_mut(Q - 1)))
        {
            let first = s * Q;
            let dot = first + digit;
            let plane_of_dot = self.start - digit * weight;
            *single = Single { near: ptr(dot, self.start), products: self.products[dot * Q..].as_ptr() };
            for (k, pair) in pairs.iter_mut().enumerate() {
                let x = if digit + k + 1 < Q { digit + k + 1 } else { digit + k + 1 - Q };
                *pair = Coupled {
                    near: ptr(first + x, self.start),
                    far: ptr(dot, plane_of_dot + x * weight),
                    factor: self.factor,
                    products: self.products[(first + x) * Q..].as_ptr(),
                };
            }
        }
    }

    /// One vector, up to the mask if it is short, of each of Q parities in Q planes.
    ///
    /// # Safety
    /// As [`PlaneEncoder::sweep`]; so many bytes are left from `at` on in every sub-chunk.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn solve<const Q: usize, const SHORT: bool>(&self, targets: &[*mut u8; Q], at: usize, mask: __mmask64) {
        let place = Place { at, stride: self.sub_bytes, mask };
        // SAFETY: the caller's; `aim` made the sources.
        unsafe {
            let mut sums = sums::<Q, Q, true, SHORT>(&self.singles, &self.pairs, place);
            self.uncouple(&mut sums);
            for (target, sums) in targets.iter().zip(sums) {
                for (plane, sum) in sums.into_iter().enumerate() {
                    store::<SHORT>(target.add(plane * self.sub_bytes + at), sum, mask);
                }
            }
        }
    }

    /// Turns U of node x in the plane with digit j, `values[x][j]`, into C: its companion is node j in the plane with x.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    #[expect(clippy::needless_range_loop, reason = "rows and columns change places")]
    fn uncouple<const Q: usize>(&self, values: &mut [[__m512i; Q]; Q]) {
        for x in 0..Q {
            for j in x + 1..Q {
                let (a, b) = (values[x][j], values[j][x]);
                // C* = (U* + g U) / (1 + g^2), C = U + g C*.
                let companion = times(_mm512_xor_si512(b, times(a, self.coupling)), self.unpair);
                values[j][x] = companion;
                values[x][j] = _mm512_xor_si512(a, times(companion, self.coupling));
            }
        }
    }

    /// Starts to bring closer what is read at `at`; beyond the sub-chunks' end, what the next group, with the digits
    /// `next`, reads from its start on.
    #[inline]
    fn fetch<const Q: usize>(&self, next: &[usize], at: usize) {
        let fetch = |from: *const u8| {
            for plane in 0..Q {
                // SAFETY: a hint; nothing is read.
                unsafe { _mm_prefetch::<_MM_HINT_T1>(from.wrapping_add(at + plane * self.sub_bytes).cast()) }
            }
        };
        if at < self.sub_bytes {
            self.singles.iter().for_each(|single| fetch(single.near));
            self.pairs.iter().for_each(|pair| {
                fetch(pair.near);
                fetch(pair.far);
            });
            return;
        }
        let start = self.start + Q * self.sub_bytes - self.sub_bytes;
        let at = |chunk: usize, offset: usize| {
            let Chunk { start, moves } = self.chunks[chunk];
            start.wrapping_add(offset & moves)
        };
        for (section, (digit, Section { weight, .. })) in next.iter().zip(&self.sections).enumerate() {
            for x in 0..Q {
                fetch(at(section * Q + x, start));
                if x != *digit {
                    fetch(at(section * Q + digit, start.wrapping_sub(digit * weight).wrapping_add(x * weight)));
                }
            }
        }
    }
}

fn power(base: usize, exponent: usize) -> usize {
    base.pow(u32::try_from(exponent).expect("alpha is limited"))
}

/// Tiles whose data are longer than this do not stay in the second cache, and the machine sees too many streams to fetch
/// ahead by itself.
const FETCH_BYTES: usize = 1536 << 10;

/// How far ahead of its use data is fetched then.
const FETCH_AHEAD: usize = 256;
