//! The registers of the tiers as registers of one plane.
//!
//! Invariants:
//! 1. A factor is kept as what a product loads at once: the 8 x 8 bit matrix with GFNI, the coefficient itself without.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    _MM_HINT_T1, _mm_prefetch, _mm256_gf2p8affine_epi64_epi8, _mm256_set1_epi64x, _mm512_gf2p8affine_epi64_epi8,
    _mm512_set1_epi64,
};

use super::planar::Planar;
#[cfg(target_arch = "aarch64")]
use crate::kernel::neon::Nibbles;
use crate::kernel::vector::Vector;
#[cfg(target_arch = "x86_64")]
use crate::kernel::{
    avx2::{Gfni, Shuffle},
    avx512::Wide,
    tables::AFFINE,
};

macro_rules! planar {
    ($vector:ty, $factor:ty, |$coef:ident| $make:expr, |$value:ident, $by:ident| $product:expr) => {
        impl Planar for $vector {
            type Register = <$vector as Vector>::Register;
            type Factor = $factor;
            const BYTES: usize = <$vector as Vector>::BYTES;

            #[inline(always)]
            unsafe fn load(from: *const u8) -> Self::Register {
                // SAFETY: the caller's.
                unsafe { <$vector as Vector>::load(from, ()) }
            }
            #[inline(always)]
            unsafe fn store(to: *mut u8, value: Self::Register) {
                // SAFETY: the caller's.
                unsafe { <$vector as Vector>::store(to, value, ()) }
            }
            #[inline(always)]
            unsafe fn prefetch(from: *const u8) {
                bring_closer(from);
            }
            #[inline(always)]
            unsafe fn xor(a: Self::Register, b: Self::Register) -> Self::Register {
                // SAFETY: the tier's features.
                unsafe { <$vector as Vector>::xor(a, b) }
            }
            #[inline(always)]
            unsafe fn xor3(a: Self::Register, b: Self::Register, c: Self::Register) -> Self::Register {
                // SAFETY: the tier's features.
                unsafe { <$vector as Vector>::xor3(a, b, c) }
            }
            #[inline(always)]
            unsafe fn factor($coef: u8) -> $factor {
                $make
            }
            #[inline(always)]
            unsafe fn product($value: Self::Register, $by: *const $factor) -> Self::Register {
                // SAFETY: the tier's features, and the factor can be read.
                unsafe { $product }
            }
        }
    };
}

/// Starts to bring a line to the second cache. Stable Rust has no name for that on aarch64, where it does nothing.
#[inline(always)]
fn bring_closer(from: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; it reads nothing.
    unsafe {
        _mm_prefetch::<_MM_HINT_T1>(from.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = from;
}

#[cfg(target_arch = "x86_64")]
planar!(Wide, u64, |coef| AFFINE[usize::from(coef)], |value, by| {
    _mm512_gf2p8affine_epi64_epi8::<0>(value, _mm512_set1_epi64((*by).cast_signed()))
});
#[cfg(target_arch = "x86_64")]
planar!(Gfni, u64, |coef| AFFINE[usize::from(coef)], |value, by| {
    _mm256_gf2p8affine_epi64_epi8::<0>(value, _mm256_set1_epi64x((*by).cast_signed()))
});
#[cfg(target_arch = "x86_64")]
planar!(Shuffle, u8, |coef| coef, |value, by| {
    <Shuffle as Vector>::product(value, <Shuffle as Vector>::multiplier(*by))
});
#[cfg(target_arch = "aarch64")]
planar!(Nibbles, u8, |coef| coef, |value, by| {
    <Nibbles as Vector>::product(value, <Nibbles as Vector>::multiplier(*by))
});
