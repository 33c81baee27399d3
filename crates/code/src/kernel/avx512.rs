//! The kernel with AVX-512 (F, BW) and GFNI: 64 bytes at once, a product is one instruction.
//!
//! Invariants:
//! 1. Bytes beyond a buffer's end are neither read nor written: a last short vector is masked.

use std::arch::x86_64::{
    __m512i, __mmask64, _MM_HINT_T0, _mm_prefetch, _mm_sfence, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512,
    _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_storeu_si512,
    _mm512_stream_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use super::{
    Pass,
    tables::AFFINE,
    vector::{Vector, by_rows, columns, few},
};

/// # Safety
/// As [`Pass::run`], with AVX-512 F and BW and GFNI.
pub(super) unsafe fn run(pass: &Pass) {
    by_rows!(pass, sweep);
}

/// # Safety
/// As [`Pass::run`], with as many rows as ROWS.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn sweep<const ROWS: usize, const PLAIN: bool, const PAIRED: bool>(pass: &Pass) {
    let mut at = 0;
    // SAFETY: the caller's; each call stays within `bytes`, short ones by their mask. Streaming targets share their
    // place within a line, so after the head all of them are aligned.
    unsafe {
        if pass.manner.streamed {
            let head = pass.a_target().align_offset(64).min(pass.bytes);
            if head > 0 {
                columns::<Masked, ROWS, 1, PLAIN, PAIRED>(pass, at, u64::MAX >> (64 - head));
                at += head;
            }
        }
        if ROWS <= 3 {
            at = few::<Wide, ROWS, 4, PLAIN, PAIRED>(pass, at);
        }
        if ROWS <= 5 {
            while at + 256 <= pass.bytes {
                columns::<Wide, ROWS, 4, PLAIN, PAIRED>(pass, at, ());
                at += 256;
            }
        }
        while at + 128 <= pass.bytes {
            columns::<Wide, ROWS, 2, PLAIN, PAIRED>(pass, at, ());
            at += 128;
        }
        while at < pass.bytes {
            let left = (pass.bytes - at).min(64);
            columns::<Masked, ROWS, 1, PLAIN, PAIRED>(pass, at, u64::MAX >> (64 - left));
            at += left;
        }
        if pass.manner.streamed {
            // Streaming stores are ordered with nothing; whoever reads the targets next must see them.
            _mm_sfence();
        }
    }
}

/// AVX-512 + GFNI.
pub(super) struct Wide;

impl Vector for Wide {
    type Register = __m512i;
    type Multiplier = __m512i;
    type Mask = ();
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn zero() -> __m512i {
        // SAFETY: the tier's features.
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8, (): ()) -> __m512i {
        // SAFETY: the caller's.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut u8, value: __m512i, (): ()) {
        // SAFETY: the caller's.
        unsafe { _mm512_storeu_si512(to.cast(), value) }
    }
    #[inline(always)]
    unsafe fn stream(to: *mut u8, value: __m512i, (): ()) {
        // SAFETY: the caller's.
        unsafe { _mm512_stream_si512(to.cast(), value) }
    }
    #[inline(always)]
    unsafe fn prefetch(from: *const u8) {
        // SAFETY: a hint; it reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
    }
    #[inline(always)]
    unsafe fn xor(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the tier's features.
        unsafe { _mm512_xor_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        // SAFETY: the tier's features. 0x96 is the truth table of a ^ b ^ c.
        unsafe { _mm512_ternarylogic_epi64::<0x96>(a, b, c) }
    }
    #[inline(always)]
    unsafe fn multiplier(coef: u8) -> __m512i {
        // SAFETY: the tier's features.
        unsafe { _mm512_set1_epi64(AFFINE[coef as usize] as i64) }
    }
    #[inline(always)]
    unsafe fn product(value: __m512i, by: __m512i) -> __m512i {
        // SAFETY: the tier's features.
        unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(value, by) }
    }
}

/// AVX-512 + GFNI for a last vector that may be short; masked-off bytes are neither read nor written.
struct Masked;

impl Vector for Masked {
    type Register = __m512i;
    type Multiplier = __m512i;
    type Mask = __mmask64;
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn zero() -> __m512i {
        // SAFETY: the tier's features.
        unsafe { Wide::zero() }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8, mask: __mmask64) -> __m512i {
        // SAFETY: the caller's.
        unsafe { _mm512_maskz_loadu_epi8(mask, from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut u8, value: __m512i, mask: __mmask64) {
        // SAFETY: the caller's.
        unsafe { _mm512_mask_storeu_epi8(to.cast(), mask, value) }
    }
    #[inline(always)]
    unsafe fn stream(to: *mut u8, value: __m512i, mask: __mmask64) {
        // SAFETY: the caller's.
        unsafe { Self::store(to, value, mask) }
    }
    #[inline(always)]
    unsafe fn prefetch(from: *const u8) {
        // SAFETY: a hint; it reads nothing.
        unsafe { Wide::prefetch(from) }
    }
    #[inline(always)]
    unsafe fn xor(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the tier's features.
        unsafe { Wide::xor(a, b) }
    }
    #[inline(always)]
    unsafe fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        // SAFETY: the tier's features.
        unsafe { Wide::xor3(a, b, c) }
    }
    #[inline(always)]
    unsafe fn multiplier(coef: u8) -> __m512i {
        // SAFETY: the tier's features.
        unsafe { Wide::multiplier(coef) }
    }
    #[inline(always)]
    unsafe fn product(value: __m512i, by: __m512i) -> __m512i {
        // SAFETY: the tier's features.
        unsafe { Wide::product(value, by) }
    }
}
