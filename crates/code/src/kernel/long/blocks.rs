//! The compiled blocks of each tier, by their levels.
//!
//! Invariants:
//! 1. Each compiled function enables just the features of its tier.
//! 2. What is not compiled is not asked for: gathering blocks of fewer than three levels always add.

use super::planar::{Gather, Inner, Planar, gather, gather_last, inner};
#[cfg(target_arch = "aarch64")]
use crate::kernel::neon::Nibbles;
#[cfg(target_arch = "x86_64")]
use crate::kernel::{
    avx2::{Gfni, Shuffle},
    avx512::Wide,
};
use crate::{field::MUL, kernel::Tier};

/// Runs a gathering block whose lowest `full` levels may have factors outside GF(2^8).
///
/// # Safety
/// As [`gather`]; the tier is available.
pub(super) unsafe fn run_gather(tier: Tier, block: &Gather, levels: u32, full: u32, add: bool) {
    macro_rules! by_levels {
        ($run:ident) => {
            match (levels, full.min(levels), add) {
                (0, _, true) => $run::<0, 0, true>(block),
                (1, 0, true) => $run::<1, 0, true>(block),
                (1, _, true) => $run::<1, 1, true>(block),
                (2, 0, true) => $run::<2, 0, true>(block),
                (2, 1, true) => $run::<2, 1, true>(block),
                (2, _, true) => $run::<2, 2, true>(block),
                (3, 0, true) => $run::<3, 0, true>(block),
                (3, 1, true) => $run::<3, 1, true>(block),
                (3, 2, true) => $run::<3, 2, true>(block),
                (3, _, true) => $run::<3, 3, true>(block),
                (3, 0, false) => $run::<3, 0, false>(block),
                (3, 1, false) => $run::<3, 1, false>(block),
                (3, 2, false) => $run::<3, 2, false>(block),
                (3, _, false) => $run::<3, 3, false>(block),
                (levels, _, _) => unreachable!("{levels} levels in one gathering block"),
            }
        };
    }
    // SAFETY: the caller's.
    unsafe {
        match tier {
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => by_levels!(gather_avx2),
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2Gfni => by_levels!(gather_avx2_gfni),
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512Gfni => by_levels!(gather_avx512),
            #[cfg(target_arch = "aarch64")]
            Tier::Neon => by_levels!(gather_neon),
            _ => by_levels!(gather_scalar),
        }
    }
}

/// Runs the last gathering block of a group with the `levels` levels above its three; the lowest `full` levels may have factors
/// outside GF(2^8).
///
/// # Safety
/// As [`gather_last`]; the tier is available.
pub(super) unsafe fn run_gather_last(tier: Tier, block: &Gather, above: &Inner, levels: u32, full: u32) {
    macro_rules! by_levels {
        ($run:ident) => {
            match (levels, full) {
                (1, 0) => $run::<2, 1, 0>(block, above),
                (1, 1) => $run::<2, 1, 1>(block, above),
                (1, 2) => $run::<2, 1, 2>(block, above),
                (1, _) => $run::<2, 1, 3>(block, above),
                (2, 0) => $run::<4, 2, 0>(block, above),
                (2, 1) => $run::<4, 2, 1>(block, above),
                (2, 2) => $run::<4, 2, 2>(block, above),
                (2, _) => $run::<4, 2, 3>(block, above),
                (levels, _) => unreachable!("{levels} levels above a gathering block"),
            }
        };
    }
    // SAFETY: the caller's.
    unsafe {
        match tier {
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => by_levels!(gather_last_avx2),
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2Gfni => by_levels!(gather_last_avx2_gfni),
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512Gfni => by_levels!(gather_last_avx512),
            #[cfg(target_arch = "aarch64")]
            Tier::Neon => by_levels!(gather_last_neon),
            _ => by_levels!(gather_last_scalar),
        }
    }
}

/// What an inner block does with its lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The inverse transform; results replace the targets.
    Inverse,
    /// The inverse transform; results are added to the targets.
    InverseAdd,
    /// The transform; results replace the targets.
    Forward,
}

/// Runs a part of a transform; `full` if factors may lie outside GF(2^8).
///
/// # Safety
/// As [`inner`]; the tier is available.
pub(super) unsafe fn run_inner(tier: Tier, part: &Inner, levels: u32, full: bool, way: Way) {
    macro_rules! by_levels {
        ($run:ident) => {
            match (levels, full, way) {
                (1, false, Way::Inverse) => $run::<2, 1, 0, true, false>(part),
                (2, false, Way::Inverse) => $run::<4, 2, 0, true, false>(part),
                (3, false, Way::Inverse) => $run::<8, 3, 0, true, false>(part),
                (1, true, Way::Inverse) => $run::<2, 1, 1, true, false>(part),
                (2, true, Way::Inverse) => $run::<4, 2, 2, true, false>(part),
                (3, true, Way::Inverse) => $run::<8, 3, 3, true, false>(part),
                (1, false, Way::InverseAdd) => $run::<2, 1, 0, true, true>(part),
                (2, false, Way::InverseAdd) => $run::<4, 2, 0, true, true>(part),
                (3, false, Way::InverseAdd) => $run::<8, 3, 0, true, true>(part),
                (1, true, Way::InverseAdd) => $run::<2, 1, 1, true, true>(part),
                (2, true, Way::InverseAdd) => $run::<4, 2, 2, true, true>(part),
                (3, true, Way::InverseAdd) => $run::<8, 3, 3, true, true>(part),
                (1, false, Way::Forward) => $run::<2, 1, 0, false, false>(part),
                (2, false, Way::Forward) => $run::<4, 2, 0, false, false>(part),
                (3, false, Way::Forward) => $run::<8, 3, 0, false, false>(part),
                (1, true, Way::Forward) => $run::<2, 1, 1, false, false>(part),
                (2, true, Way::Forward) => $run::<4, 2, 2, false, false>(part),
                (3, true, Way::Forward) => $run::<8, 3, 3, false, false>(part),
                (levels, _, _) => unreachable!("{levels} levels in one block"),
            }
        };
    }
    // SAFETY: the caller's.
    unsafe {
        match tier {
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => by_levels!(inner_avx2),
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2Gfni => by_levels!(inner_avx2_gfni),
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512Gfni => by_levels!(inner_avx512),
            #[cfg(target_arch = "aarch64")]
            Tier::Neon => by_levels!(inner_neon),
            _ => by_levels!(inner_scalar),
        }
    }
}

macro_rules! compile {
    ($(#[$features:meta])? $vector:ty, $gather:ident, $gather_last:ident, $inner:ident) => {
        /// # Safety
        /// As [`gather`].
        $(#[$features])?
        unsafe fn $gather<const LEVELS: usize, const FULL: usize, const ADD: bool>(block: &Gather) {
            // SAFETY: the caller's; this function enables the tier's features.
            unsafe { gather::<$vector, LEVELS, FULL, ADD>(block) }
        }

        /// # Safety
        /// As [`gather_last`].
        $(#[$features])?
        unsafe fn $gather_last<const LANES: usize, const ABOVE: usize, const FULL: usize>(
            block: &Gather,
            above: &Inner,
        ) {
            // SAFETY: the caller's; this function enables the tier's features.
            unsafe { gather_last::<$vector, LANES, ABOVE, FULL>(block, above) }
        }

        /// # Safety
        /// As [`inner`].
        $(#[$features])?
        unsafe fn $inner<
            const LANES: usize,
            const LEVELS: usize,
            const FULL: usize,
            const INVERSE: bool,
            const ADD: bool,
        >(
            part: &Inner,
        ) {
            // SAFETY: the caller's; this function enables the tier's features.
            unsafe { inner::<$vector, LANES, LEVELS, FULL, INVERSE, ADD>(part) }
        }
    };
}

compile!(Byte, gather_scalar, gather_last_scalar, inner_scalar);
#[cfg(target_arch = "x86_64")]
compile!(
    #[target_feature(enable = "avx2")]
    Shuffle,
    gather_avx2,
    gather_last_avx2,
    inner_avx2
);
#[cfg(target_arch = "x86_64")]
compile!(
    #[target_feature(enable = "avx2,gfni")]
    Gfni,
    gather_avx2_gfni,
    gather_last_avx2_gfni,
    inner_avx2_gfni
);
#[cfg(target_arch = "x86_64")]
compile!(
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    Wide,
    gather_avx512,
    gather_last_avx512,
    inner_avx512
);
#[cfg(target_arch = "aarch64")]
compile!(
    #[target_feature(enable = "neon")]
    Nibbles,
    gather_neon,
    gather_last_neon,
    inner_neon
);

/// One byte by table look-ups.
struct Byte;

impl Planar for Byte {
    type Register = u8;
    type Factor = u8;
    const BYTES: usize = 1;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> u8 {
        // SAFETY: the caller's.
        unsafe { *from }
    }
    #[inline(always)]
    unsafe fn store(to: *mut u8, value: u8) {
        // SAFETY: the caller's.
        unsafe { *to = value }
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const u8) {}
    #[inline(always)]
    unsafe fn xor(a: u8, b: u8) -> u8 {
        a ^ b
    }
    #[inline(always)]
    unsafe fn xor3(a: u8, b: u8, c: u8) -> u8 {
        a ^ b ^ c
    }
    #[inline(always)]
    unsafe fn factor(coef: u8) -> u8 {
        coef
    }
    #[inline(always)]
    unsafe fn product(value: u8, by: *const u8) -> u8 {
        // SAFETY: the caller's.
        MUL[usize::from(unsafe { *by })][usize::from(value)]
    }
}
