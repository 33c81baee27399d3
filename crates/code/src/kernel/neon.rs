//! The kernel with NEON: 16 bytes at once, products by two look-ups of nibbles.
//!
//! Invariants:
//! 1. Bytes beyond a buffer's end are neither read nor written: the tail is scalar.
//!
//! Left out: prefetching and stores past the caches, which stable Rust has no names for here; both are hints.

use std::arch::aarch64::{uint8x16_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8, vshrq_n_u8, vst1q_u8};

use super::{
    Pass, scalar,
    tables::NIBBLES,
    vector::{Vector, by_rows, columns},
};

/// # Safety
/// As [`Pass::run`], with NEON.
pub(super) unsafe fn run(pass: &Pass) {
    by_rows!(pass, sweep);
}

/// # Safety
/// As [`Pass::run`], with as many rows as ROWS.
#[target_feature(enable = "neon")]
unsafe fn sweep<const ROWS: usize, const PLAIN: bool, const PAIRED: bool>(pass: &Pass) {
    let mut at = 0;
    // SAFETY: the caller's; each call stays within `bytes`.
    unsafe {
        if ROWS <= 6 {
            while at + 32 <= pass.bytes {
                columns::<Nibbles, ROWS, 2, PLAIN, PAIRED>(pass, at, ());
                at += 32;
            }
        }
        while at + 16 <= pass.bytes {
            columns::<Nibbles, ROWS, 1, PLAIN, PAIRED>(pass, at, ());
            at += 16;
        }
        scalar::run(pass, at..pass.bytes);
    }
}

/// The products of the low and of the high nibble are looked up and added.
pub(super) struct Nibbles;

impl Vector for Nibbles {
    type Register = uint8x16_t;
    type Multiplier = (uint8x16_t, uint8x16_t);
    type Mask = ();
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> uint8x16_t {
        // SAFETY: the tier's features.
        unsafe { vdupq_n_u8(0) }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8, (): ()) -> uint8x16_t {
        // SAFETY: the caller's.
        unsafe { vld1q_u8(from) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut u8, value: uint8x16_t, (): ()) {
        // SAFETY: the caller's.
        unsafe { vst1q_u8(to, value) }
    }
    #[inline(always)]
    unsafe fn stream(to: *mut u8, value: uint8x16_t, (): ()) {
        // SAFETY: the caller's.
        unsafe { vst1q_u8(to, value) }
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
    #[inline(always)]
    unsafe fn xor(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        // SAFETY: the tier's features.
        unsafe { veorq_u8(a, b) }
    }
    #[inline(always)]
    unsafe fn xor3(a: uint8x16_t, b: uint8x16_t, c: uint8x16_t) -> uint8x16_t {
        // SAFETY: the tier's features.
        unsafe { veorq_u8(veorq_u8(b, c), a) }
    }
    #[inline(always)]
    unsafe fn multiplier(coef: u8) -> (uint8x16_t, uint8x16_t) {
        let [low, high] = &NIBBLES[coef as usize];
        // SAFETY: the tier's features; each table has 16 bytes.
        unsafe { (vld1q_u8(low.as_ptr()), vld1q_u8(high.as_ptr())) }
    }
    #[inline(always)]
    unsafe fn product(value: uint8x16_t, (low, high): (uint8x16_t, uint8x16_t)) -> uint8x16_t {
        // SAFETY: the tier's features.
        unsafe {
            let of_low = vqtbl1q_u8(low, vandq_u8(value, vdupq_n_u8(0x0f)));
            veorq_u8(of_low, vqtbl1q_u8(high, vshrq_n_u8::<4>(value)))
        }
    }
}
