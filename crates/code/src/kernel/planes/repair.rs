//! Repairs one chunk of a Clay code from a q-th of each other one, with AVX-512 and GFNI, where q is m.
//!
//! The planes that are read have the lost chunk's own digit in its section. In these its section's q nodes are unknown; all others are
//! known, and so are their companions, which differ in other digits. So these planes are solved by groups as those that encode are,
//! but that the digits that a group's planes differ in are those of a known section. The lost chunk is the dot, so that its U
//! is C; and a mate's U gives its C in the plane that has the mate's digit: U = C + g C*.
//!
//! Invariants:
//! 1. Equal to the plan's program (tested for every chunk, on every tier).
//! 2. Nothing is allocated but zeros for a code with nodes that hold them, and scratch, both kept for the next call.

use std::arch::x86_64::{__m512i, _mm512_xor_si512};

use super::{
    super::{
        List, Tier,
        coupled::{Place, broadcast, load, product_matrix, times},
    },
    NODES_MAX, SECTIONS_MAX, Section, Tile, Zeros,
    coupler::{Coupler, put},
    groups::Outcome,
    is_long, power,
};
use crate::field::inv;

/// Repairs one chunk of one code. Nodes are numbered data, zeros, parity.
#[derive(Debug)]
pub(crate) struct PlaneRepairer {
    /// Nodes of a section, and parities: 2, 3 or 4.
    q: usize,
    /// All sections.
    sections: usize,
    /// The lost chunk's, and which of its nodes it is.
    section: usize,
    digit: usize,
    /// The coupling factor.
    coupling: u8,
    /// By known node, a product matrix for each of the section's nodes.
    products: Vec<u64>,
    zeros: Zeros,
}

impl PlaneRepairer {
    /// For q nodes a section and `sections` sections, if there is a kernel for them. `coef(mate, node)` is what U of the section's
    /// node takes of that of another section's.
    pub(crate) fn new(
        tier: Tier,
        [q, sections]: [usize; 2],
        [section, digit]: [usize; 2],
        coupling: u8,
        coef: impl Fn(usize, usize) -> u8,
    ) -> Option<Self> {
        if tier != Tier::Avx512Gfni || !(2..=4).contains(&q) || sections < 2 {
            return None;
        }
        assert!(Tier::available().contains(&tier) && section < sections && digit < q);
        assert!(sections - 1 <= SECTIONS_MAX && q * (sections - 1) <= NODES_MAX, "alpha is limited");
        let known = (0..q * sections).filter(|node| node / q != section);
        let products = known.flat_map(|node| (0..q).map(move |mate| (mate, node)));
        let products = products.map(|(mate, node)| product_matrix(coef(mate, node))).collect();
        Some(Self { q, sections, section, digit, coupling, products, zeros: Zeros::default() })
    }

    /// Whether sub-chunks of this length are repaired here: longer ones are faster by their program.
    pub(crate) fn takes(&self, sub_bytes: usize) -> bool {
        (1..LONG_BYTES[self.q]).contains(&sub_bytes) && !is_long(self.q, sub_bytes)
    }

    /// Repairs one tile of the lost chunk from what is read of each node, which is nothing of the lost one and of those of zeros.
    ///
    /// # Panics
    /// If counts or lengths do not fit the code.
    pub(crate) fn repair(&self, helpers: &[Option<&[u8]>], lost: &mut [u8], sub_bytes: usize) {
        let read_bytes = power(self.q, self.sections - 1) * sub_bytes;
        assert!(helpers.len() == self.q * self.sections, "one helper for each node");
        assert!(helpers.iter().flatten().all(|helper| helper.len() == read_bytes), "helpers of other lengths");
        assert!(helpers[self.section * self.q + self.digit].is_none(), "the lost chunk is read");
        assert!(self.takes(sub_bytes), "sub-chunks of {sub_bytes} bytes are repaired by a program");
        assert!(lost.len() == read_bytes * self.q, "a lost chunk of another length");
        // SAFETY: the tier was checked when this was made; all buffers hold what they must, and the lost one is exclusively borrowed.
        unsafe {
            match self.q {
                2 => self.repair_tile::<2>(helpers, lost.as_mut_ptr(), sub_bytes),
                3 => self.repair_tile::<3>(helpers, lost.as_mut_ptr(), sub_bytes),
                4 => self.repair_tile::<4>(helpers, lost.as_mut_ptr(), sub_bytes),
                q => unreachable!("no kernel for {q} nodes a section"),
            }
        }
    }

    /// # Safety
    /// As [`Tile`] says; Q is q, helpers have a q-th of a tile, and the lost chunk a tile.
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn repair_tile<const Q: usize>(&self, helpers: &[Option<&[u8]>], lost: *mut u8, sub_bytes: usize) {
        // The lost chunk is none of them.
        let zeros = (helpers.iter().flatten().count() + 1 < helpers.len()).then(|| self.zeros.at_least(Q * sub_bytes));
        let zeros = zeros.as_ref().map_or(std::ptr::null(), |zeros| zeros.as_ptr());
        let section = |section: usize, products| {
            Section::new(|node| helpers[section * Q + node].map(<[u8]>::as_ptr), zeros, products)
        };
        let (products, _) = self.products.as_chunks::<Q>();
        let (products, _) = products.as_chunks::<Q>();
        let known = (0..self.sections).filter(|section| *section != self.section);
        let mut sections: List<Section<Q>, SECTIONS_MAX> = List::new();
        sections.extend(known.zip(products).map(|(at, products)| section(at, products)));
        let [sections @ .., inner] = sections.as_slice() else { unreachable!("there are at least two sections") };
        // What of the section's nodes is read needs no products.
        let mates = section(self.section, &[[0; Q]; Q]);
        let coupler = Coupler::new(self.coupling);
        let planes_behind = power(Q, self.sections - 1 - self.section);
        let outcome = Repaired {
            lost,
            digit: self.digit,
            mates,
            half: broadcast(product_matrix(inv(self.coupling))),
            run_bytes: planes_behind * sub_bytes,
            stride_bytes: if planes_behind == 1 { Q * sub_bytes } else { sub_bytes },
        };
        let tile = Tile { sections, inner: Some(inner), coupler, sub_bytes };
        // SAFETY: the caller's.
        unsafe { tile.solve_by_group(&outcome, false) };
    }
}

/// The unknown nodes are a lost chunk and its mates, in the planes where it is the dot.
struct Repaired<'a, const Q: usize> {
    lost: *mut u8,
    /// Which node is lost.
    digit: usize,
    /// What is read of the others.
    mates: Section<'a, Q>,
    /// By 1 / g.
    half: __m512i,
    /// Bytes of planes of the lost chunk that follow each other with the same digit, and from one digit to the next.
    run_bytes: usize,
    /// From one plane of a group to the next.
    stride_bytes: usize,
}

impl<const Q: usize> Outcome<Q> for Repaired<'_, Q> {
    const PLAIN: bool = false;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn put<const SHORT: bool>(&self, values: [[__m512i; Q]; Q], start: usize, place: Place) {
        let first = start / self.run_bytes * self.run_bytes * Q + start % self.run_bytes + place.at;
        for (node, mut values) in values.into_iter().enumerate() {
            if node != self.digit {
                // SAFETY: the caller's: the mate is read there.
                let stored = unsafe { load::<Q, SHORT>(self.mates.chunk(node, start), place) };
                for (value, stored) in values.iter_mut().zip(stored) {
                    *value = times(_mm512_xor_si512(*value, stored), self.half);
                }
            }
            for (plane, value) in values.into_iter().enumerate() {
                let to = self.lost.wrapping_add(first + node * self.run_bytes + plane * self.stride_bytes);
                // SAFETY: the caller's.
                unsafe { put::<false, SHORT>(to, value, place.mask) };
            }
        }
    }
}

/// By q: from where on programs are faster, whatever sides sub-chunks are of.
const LONG_BYTES: [usize; 5] = [0, 0, 4 << 10, 4 << 10, 2 << 10];
