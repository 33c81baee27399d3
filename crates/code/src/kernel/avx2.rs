//! The kernel with AVX2, with and without GFNI: 32 bytes at once.
//!
//! Invariants:
//! 1. Bytes beyond a buffer's end are neither read nor written: the tail is scalar.

use std::arch::x86_64::{
    __m256i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm_sfence, _mm256_and_si256, _mm256_broadcastsi128_si256,
    _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256, _mm256_set1_epi8, _mm256_set1_epi64x, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_stream_si256, _mm256_xor_si256,
};

use super::{
    Pass, scalar,
    tables::{AFFINE, NIBBLES},
    vector::{Vector, by_rows, columns, few},
};

/// # Safety
/// As [`Pass::run`], with AVX2 and GFNI.
pub(super) unsafe fn run_gfni(pass: &Pass) {
    by_rows!(pass, sweep_gfni);
}

/// # Safety
/// As [`Pass::run`], with AVX2.
pub(super) unsafe fn run(pass: &Pass) {
    by_rows!(pass, sweep);
}

/// # Safety
/// As [`Pass::run`], with as many rows as ROWS.
#[target_feature(enable = "avx2,gfni")]
unsafe fn sweep_gfni<const ROWS: usize, const PLAIN: bool, const PAIRED: bool>(pass: &Pass) {
    // SAFETY: the caller's.
    unsafe { halves::<Gfni, ROWS, PLAIN, PAIRED>(pass) }
}

/// # Safety
/// As [`Pass::run`], with as many rows as ROWS.
#[target_feature(enable = "avx2")]
unsafe fn sweep<const ROWS: usize, const PLAIN: bool, const PAIRED: bool>(pass: &Pass) {
    // SAFETY: the caller's.
    unsafe { halves::<Shuffle, ROWS, PLAIN, PAIRED>(pass) }
}

/// # Safety
/// As [`Pass::run`], with as many rows as ROWS.
#[inline(always)]
unsafe fn halves<V: Vector<Mask = ()>, const ROWS: usize, const PLAIN: bool, const PAIRED: bool>(pass: &Pass) {
    let mut at = 0;
    // SAFETY: the caller's; each call stays within `bytes`. Streaming targets share their place within a line, so after
    // the head all of them are aligned.
    unsafe {
        if pass.manner.streamed {
            at = pass.a_target().align_offset(64).min(pass.bytes);
            scalar::run(pass, 0..at);
        }
        if ROWS <= 2 {
            at = few::<V, ROWS, 4, PLAIN, PAIRED>(pass, at);
            while at + 128 <= pass.bytes {
                columns::<V, ROWS, 4, PLAIN, PAIRED>(pass, at, ());
                at += 128;
            }
        }
        if ROWS <= 4 {
            while at + 64 <= pass.bytes {
                columns::<V, ROWS, 2, PLAIN, PAIRED>(pass, at, ());
                at += 64;
            }
        }
        while at + 32 <= pass.bytes {
            columns::<V, ROWS, 1, PLAIN, PAIRED>(pass, at, ());
            at += 32;
        }
        if pass.manner.streamed {
            // Streaming stores are ordered with nothing; whoever reads the targets next must see them.
            _mm_sfence();
        }
        scalar::run(pass, at..pass.bytes);
    }
}

/// What both tiers do alike with a register, beside their products.
macro_rules! ymm {
    ($(#[$doc:meta])* $name:ident, $multiplier:ty, |$coef:ident| $make:expr, |$value:ident, $by:ident| $product:expr) => {
        $(#[$doc])*
        pub(super) struct $name;

        impl Vector for $name {
            type Register = __m256i;
            type Multiplier = $multiplier;
            type Mask = ();
            const BYTES: usize = 32;

            #[inline(always)]
            unsafe fn zero() -> __m256i {
                // SAFETY: the tier's features.
                unsafe { _mm256_setzero_si256() }
            }
            #[inline(always)]
            unsafe fn load(from: *const u8, (): ()) -> __m256i {
                // SAFETY: the caller's.
                unsafe { _mm256_loadu_si256(from.cast()) }
            }
            #[inline(always)]
            unsafe fn store(to: *mut u8, value: __m256i, (): ()) {
                // SAFETY: the caller's.
                unsafe { _mm256_storeu_si256(to.cast(), value) }
            }
            #[inline(always)]
            unsafe fn stream(to: *mut u8, value: __m256i, (): ()) {
                // SAFETY: the caller's.
                unsafe { _mm256_stream_si256(to.cast(), value) }
            }
            #[inline(always)]
            unsafe fn prefetch(from: *const u8) {
                // SAFETY: a hint; it reads nothing.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
            }
            #[inline(always)]
            unsafe fn xor(a: __m256i, b: __m256i) -> __m256i {
                // SAFETY: the tier's features.
                unsafe { _mm256_xor_si256(a, b) }
            }
            #[inline(always)]
            unsafe fn xor3(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
                // SAFETY: the tier's features.
                unsafe { _mm256_xor_si256(_mm256_xor_si256(b, c), a) }
            }
            #[inline(always)]
            unsafe fn multiplier($coef: u8) -> $multiplier {
                // SAFETY: the tier's features; tables are read where they are.
                unsafe { $make }
            }
            #[inline(always)]
            unsafe fn product($value: __m256i, $by: $multiplier) -> __m256i {
                // SAFETY: the tier's features.
                unsafe { $product }
            }
        }
    };
}

ymm!(
    /// AVX2 + GFNI.
    Gfni,
    __m256i,
    |coef| _mm256_set1_epi64x(AFFINE[coef as usize] as i64),
    |value, by| _mm256_gf2p8affine_epi64_epi8::<0>(value, by)
);

ymm!(
    /// AVX2 alone: the products of the low and of the high nibble are looked up and added.
    Shuffle,
    (__m256i, __m256i),
    |coef| {
        // Each table has 16 bytes.
        let [low, high] = &NIBBLES[coef as usize];
        let [low, high] = [_mm_loadu_si128(low.as_ptr().cast()), _mm_loadu_si128(high.as_ptr().cast())];
        (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high))
    },
    |value, by| {
        let ((low, high), nibble) = (by, _mm256_set1_epi8(0x0f));
        let of_low = _mm256_shuffle_epi8(low, _mm256_and_si256(value, nibble));
        let of_high = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi64::<4>(value), nibble));
        _mm256_xor_si256(of_low, of_high)
    }
);
