//! Sums of products in GF(2^8) over long buffers: the one place where codes touch bytes.
//!
//! One step serves all codes: out\[r\] = sum over terms t of c\[t\]\[r\] * s_t, where a term's s_t is one source (`near`) or a
//! coupled pair (`near + factor * far`). Up to [`ROWS_MAX`] rows are summed in registers in one pass over the sources.
//!
//! Invariants:
//! 1. The tiers differ in speed only: each equals `scalar` on every length and alignment (tested).
//! 2. A [`Tier`] that this machine lacks is never run: [`Tier::available`] lists what was detected, and the safe entries
//!    in `sums` and `execute` check it.
//! 3. Pointers live inside one call of a safe entry, which has checked every length.
//! 4. A pass reads all terms of a column before it writes that column, so a target may also be a source; but not where
//!    plain targets take stretches of the terms.
#![allow(unsafe_code)] // Vector loads through pointers; every unsafe part states why it holds.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod coupled;
mod execute;
mod list;
pub(crate) mod long;
mod manner;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod planes;
mod program;
mod scalar;
pub(crate) mod scratch;
mod sums;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod tables;
mod third;
mod tier;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vector;

#[cfg(test)]
mod tests;

use list::List;
use manner::Manner;
#[cfg(target_arch = "x86_64")]
pub(crate) use planes::{PlaneEncoder, PlaneRepairer};
pub(crate) use program::{Blend, BlendHow, Program, ProgramBuilder, Slot, Step, Target, Term};
pub use sums::Matrix;
pub(crate) use sums::{add_product, add_products};
pub use tier::{ForceError, Tier, UnknownTier};

/// The most rows summed in one pass: ten accumulators of two vectors fit 32 registers.
pub(crate) const ROWS_MAX: usize = 10;

/// The most terms of one step: a stripe has at most 256 chunks.
pub(crate) const TERMS_MAX: usize = 256;

/// Bytes of one buffer handled at once where several passes share their sources: these then stay in the first cache.
const STRIP_BYTES: usize = 4096;

/// A coupled pair: near + factor * far.
#[derive(Clone, Copy)]
struct Pair {
    near: *const u8,
    far: *const u8,
    factor: u8,
}

/// One pass over the sources. Its terms are the singles, then the pairs.
struct Pass<'a> {
    singles: &'a [*const u8],
    pairs: &'a [Pair],
    /// One row of plain XORs: none, or stretches that take all terms one after another. With pairs, one at most.
    plain: &'a [Stretch],
    /// The targets of the other rows, each of which takes all terms.
    targets: &'a [*mut u8],
    /// Term by term, one for each of `targets`.
    coefs: &'a [u8],
    start: Start,
    manner: Manner,
    bytes: usize,
}

/// The plain XOR of consecutive terms, from the end of the stretch before.
#[derive(Clone, Copy)]
struct Stretch {
    target: *mut u8,
    /// The term after its last.
    end: usize,
}

/// What the sums of a pass start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    /// Nothing.
    Zero,
    /// What the targets hold: the pass adds to it.
    Targets,
    /// The first single, whose coefficients are all 1: a product and a sum less for each row. Stretches but the first
    /// start from nothing.
    FirstSource,
}

impl Start {
    /// The cheapest way to begin new sums, by the coefficients of the first term.
    fn fresh(singles: &[*const u8], coefs: &[u8]) -> Self {
        if !singles.is_empty() && coefs.iter().all(|coef| *coef == 1) { Self::FirstSource } else { Self::Zero }
    }
}

impl Pass<'_> {
    /// # Safety
    /// Each pointer is good for `bytes` bytes, those of targets for writing; no target partly overlaps a source or
    /// another target, and with several stretches none is a source; there are 1 to [`ROWS_MAX`] rows; several
    /// stretches have a term each at least, the last ends with the terms, and with pairs there is one at most; `coefs`
    /// holds a byte for each term and target; `start` and `manner` hold what they say; the tier is available.
    unsafe fn run(&self, tier: Tier) {
        let terms = self.singles.len() + self.pairs.len();
        debug_assert!((1..=ROWS_MAX).contains(&self.rows()));
        debug_assert!(self.plain.is_sorted_by(|a, b| a.end < b.end));
        debug_assert!(self.plain.len() <= 1 || self.plain[0].end > 0);
        debug_assert!(self.plain.last().is_none_or(|stretch| stretch.end == terms));
        debug_assert!(self.pairs.is_empty() || self.plain.len() <= 1);
        debug_assert_eq!(terms * self.targets.len(), self.coefs.len());
        match tier {
            // SAFETY: the caller's.
            Tier::Scalar => unsafe { scalar::run(self, 0..self.bytes) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the caller's.
            Tier::Avx2 => unsafe { avx2::run(self) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the caller's.
            Tier::Avx2Gfni => unsafe { avx2::run_gfni(self) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the caller's.
            Tier::Avx512Gfni => unsafe { avx512::run(self) },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: the caller's.
            Tier::Neon => unsafe { neon::run(self) },
            tier => unreachable!("{tier:?} is of another architecture"),
        }
    }

    /// How many sums each term is added to.
    fn rows(&self) -> usize {
        usize::from(!self.plain.is_empty()) + self.targets.len()
    }

    /// Any one of its targets.
    fn a_target(&self) -> *mut u8 {
        self.targets.first().copied().unwrap_or_else(|| self.plain[0].target)
    }
}
