//! The coupling of Clay's pairs, and what puts vectors where they belong.
//!
//! Invariants:
//! 1. U = C + g C* both ways: what is uncoupled and coupled again is as it was (tested through whole codes).

use std::arch::x86_64::{__m512i, __mmask64, _mm512_stream_si512, _mm512_xor_si512};

use super::super::coupled::{broadcast, product_matrix, store, times};
use crate::field::inv;

/// The matrices of a coupling by g.
#[derive(Clone, Copy)]
pub(super) struct Coupler {
    /// By g.
    pub(super) factor: __m512i,
    /// By 1 / (1 + g).
    apart: __m512i,
}

impl Coupler {
    #[target_feature(enable = "avx512f")]
    pub(super) fn new(g: u8) -> Self {
        Self { factor: broadcast(product_matrix(g)), apart: broadcast(product_matrix(inv(g ^ 1))) }
    }

    /// C and C* of U and U*.
    #[inline]
    #[target_feature(enable = "avx512f,gfni")]
    pub(super) fn uncoupled(&self, own: __m512i, other: __m512i) -> (__m512i, __m512i) {
        // C + C* = (U + U*) / (1 + g), and U = C + C* + (1 + g) C*.
        let both = times(_mm512_xor_si512(own, other), self.apart);
        let companion = times(_mm512_xor_si512(own, both), self.apart);
        (_mm512_xor_si512(both, companion), companion)
    }
}

/// # Safety
/// A vector can be written, up to the mask if it is short; if it is streamed, a whole line.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn put<const STREAMED: bool, const SHORT: bool>(to: *mut u8, value: __m512i, mask: __mmask64) {
    // SAFETY: the caller's.
    unsafe {
        if STREAMED {
            _mm512_stream_si512(to.cast(), value);
        } else {
            store::<SHORT>(to, value, mask);
        }
    }
}
