//! Sums of products in GF(2^8) over long buffers: the one place where codes touch bytes.
//!
//! One step serves all codes: out\[r\] = sum over terms t of c\[t\]\[r\] * s_t, where a term's s_t is one source (`near`) or a
//! coupled pair (`near + factor * far`). Up to [`ROWS_MAX`] rows are summed in registers in one pass over the sources.
//!
//! Invariants:
//! 1. The tiers differ in speed only: each equals `scalar` on every length and alignment (tested).
//! 2. A [`Tier`] that this machine lacks is never run: [`Tier::available`] lists what was detected, and the safe entries
//!    here and in `program` check it.
//! 3. Pointers live inside one call of a safe entry, which has checked every length.
//! 4. A step reads all terms of a column before it writes that column, so a target may also be a source.
//!
//! Left out: NEON (falls to scalar); streaming stores for stripes far larger than the caches.
#![allow(unsafe_code)] // Vector loads through pointers; every unsafe part states why it holds.

mod program;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(test)]
mod tests;

pub(crate) use program::{Program, ProgramBuilder, Slot, Step, Term};

use std::sync::OnceLock;

/// An instruction set to run the kernels with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Table look-ups; runs everywhere and is the oracle of the others.
    Scalar,
    /// AVX2, products by two nibble shuffles.
    Avx2,
    /// AVX2 with GFNI: a product is one instruction.
    Avx2Gfni,
    /// AVX-512 (F, BW) with GFNI, 64 bytes at once.
    Avx512Gfni,
}

impl Tier {
    /// The tiers that this machine has, slowest first; never empty.
    pub fn available() -> &'static [Self] {
        static AVAILABLE: OnceLock<Vec<Tier>> = OnceLock::new();
        AVAILABLE.get_or_init(detect)
    }

    /// The fastest tier that this machine has.
    pub fn best() -> Self {
        *Self::available().last().expect("scalar is always available")
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Vec<Tier> {
    let mut tiers = vec![Tier::Scalar];
    if is_x86_feature_detected!("avx2") {
        tiers.push(Tier::Avx2);
        if is_x86_feature_detected!("gfni") {
            tiers.push(Tier::Avx2Gfni);
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
                tiers.push(Tier::Avx512Gfni);
            }
        }
    }
    tiers
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Vec<Tier> {
    vec![Tier::Scalar]
}

/// The most rows summed in one pass: ten accumulators of two vectors fit 32 registers.
pub(crate) const ROWS_MAX: usize = 10;

/// The most terms of one step: a stripe has at most 256 chunks.
pub(crate) const TERMS_MAX: usize = 256;

/// Bytes of one buffer handled at once where several passes share their sources: these then stay in the first cache.
const STRIP_BYTES: usize = 4096;

/// A matrix over GF(2^8), stored term by term: `coefs[t * rows + r]` is row r's coefficient for term t.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Matrix {
    rows: usize,
    coefs: Vec<u8>,
}

impl Matrix {
    /// From a function of row and term.
    pub(crate) fn new(rows: usize, terms: usize, coef: impl Fn(usize, usize) -> u8) -> Self {
        let coefs = (0..terms * rows).map(|i| coef(i % rows, i / rows)).collect();
        Self { rows, coefs }
    }
}

/// outs\[r\] = sum over t of matrix\[r\]\[t\] * sources\[t\]; without terms, zeros. Allocates nothing.
///
/// # Panics
/// If counts differ from the matrix', lengths differ, or there are more than [`TERMS_MAX`] sources.
pub(crate) fn combine(tier: Tier, matrix: &Matrix, sources: &[&[u8]], outs: &mut [&mut [u8]]) {
    assert_eq!(outs.len(), matrix.rows, "one buffer for each row");
    assert_eq!(sources.len() * matrix.rows, matrix.coefs.len(), "one source for each term");
    assert!(sources.len() <= TERMS_MAX, "too many sources");
    assert!(Tier::available().contains(&tier));
    let Some(bytes) = outs.first().map(|out| out.len()) else {
        return;
    };
    assert!(sources.iter().all(|source| source.len() == bytes), "sources differ in length from targets");
    assert!(outs.iter().all(|out| out.len() == bytes), "targets differ in length");

    let mut singles = [std::ptr::null(); TERMS_MAX];
    let step_bytes = if matrix.rows <= ROWS_MAX { bytes } else { STRIP_BYTES };
    for at in (0..bytes).step_by(step_bytes.max(1)) {
        for (pointer, source) in singles.iter_mut().zip(sources) {
            *pointer = source[at..].as_ptr();
        }
        for (group, outs) in outs.chunks_mut(ROWS_MAX).enumerate() {
            let mut targets = [std::ptr::null_mut(); ROWS_MAX];
            for (pointer, out) in targets.iter_mut().zip(outs.iter_mut()) {
                *pointer = out[at..].as_mut_ptr();
            }
            let first = group * ROWS_MAX;
            let pass = Pass {
                singles: &singles[..sources.len()],
                pairs: &[],
                coefs: &matrix.coefs,
                stride: matrix.rows,
                first,
                plain_first: matrix.coefs.iter().skip(first).step_by(matrix.rows).all(|coef| *coef == 1),
                targets: &targets[..outs.len()],
                bytes: step_bytes.min(bytes - at),
            };
            // SAFETY: every pointer starts a part of at least `pass.bytes` bytes of a live buffer (lengths asserted
            // above), targets are distinct exclusive borrows, coefs has `stride` rows for each term, and the tier is
            // available.
            unsafe { pass.run(tier) };
        }
    }
}

/// parity += coefficient * delta.
///
/// # Panics
/// If the lengths differ.
pub(crate) fn add_product(tier: Tier, coefficient: u8, delta: &[u8], parity: &mut [u8]) {
    assert_eq!(delta.len(), parity.len(), "delta and parity differ in length");
    assert!(Tier::available().contains(&tier));
    let parity_start = parity.as_mut_ptr();
    let pass = Pass {
        singles: &[],
        pairs: &[Pair { near: parity_start, far: delta.as_ptr(), factor: coefficient }],
        coefs: &[1],
        stride: 1,
        first: 0,
        plain_first: true,
        targets: &[parity_start],
        bytes: delta.len(),
    };
    // SAFETY: both buffers hold `bytes` bytes, the target is exclusively borrowed and also a source by invariant 4, one
    // coefficient is there for the one term, and the tier is available.
    unsafe { pass.run(tier) };
}

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
    /// Term by term, `stride` rows each.
    coefs: &'a [u8],
    stride: usize,
    /// The row that belongs to the first target.
    first: usize,
    /// The first target's coefficients are all 1: it is a plain XOR.
    plain_first: bool,
    targets: &'a [*mut u8],
    bytes: usize,
}

impl Pass<'_> {
    /// # Safety
    /// Each pointer is good for `bytes` bytes, those of targets for writing; no target partly overlaps a source or
    /// another target; there are 1 to [`ROWS_MAX`] targets, `coefs` holds `stride` bytes per term and `first` plus
    /// targets is at most `stride`; the tier is available.
    unsafe fn run(&self, tier: Tier) {
        debug_assert!((1..=ROWS_MAX).contains(&self.targets.len()));
        debug_assert!(self.first + self.targets.len() <= self.stride);
        debug_assert_eq!((self.singles.len() + self.pairs.len()) * self.stride, self.coefs.len());
        match tier {
            // SAFETY: the caller's.
            Tier::Scalar => unsafe { scalar::run(self, 0) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the caller's.
            Tier::Avx2 | Tier::Avx2Gfni | Tier::Avx512Gfni => unsafe { x86::run(self, tier) },
            #[cfg(not(target_arch = "x86_64"))]
            Tier::Avx2 | Tier::Avx2Gfni | Tier::Avx512Gfni => unreachable!("not available here"),
        }
    }
}
