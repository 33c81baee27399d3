//! Matrix times buffers: encoding, decoding, adding to sums that are there, deltas.
//!
//! Invariants:
//! 1. Nothing here allocates.
//! 2. How sums are cut into passes and how those write changes no byte of the result.

use super::{List, Manner, Pass, ROWS_MAX, Start, TERMS_MAX, Tier};

/// A matrix over GF(2^8), stored term by term: `coefs[t * rows + r]` is row r's coefficient for term t.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Matrix {
    rows: usize,
    coefs: Vec<u8>,
    /// Which rows are all ones.
    plain: Vec<bool>,
}

impl Matrix {
    /// From a function of row and term.
    pub(crate) fn new(rows: usize, terms: usize, coef: impl Fn(usize, usize) -> u8) -> Self {
        let coefs: Vec<u8> = (0..terms * rows).map(|i| coef(i % rows, i / rows)).collect();
        let plain = (0..rows).map(|row| coefs.iter().skip(row).step_by(rows).all(|coef| *coef == 1)).collect();
        Self { rows, coefs, plain }
    }
}

/// outs\[r\] = sum over t of matrix\[r\]\[t\] * sources\[t\]; without terms, zeros.
///
/// # Panics
/// If counts differ from the matrix', lengths differ, or there are more than [`TERMS_MAX`] sources.
pub(crate) fn combine(tier: Tier, matrix: &Matrix, sources: &[&[u8]], outs: &mut [&mut [u8]]) {
    assert_eq!(sources.len() * matrix.rows, matrix.coefs.len(), "one source for each term");
    sum(tier, matrix, 0, sources, outs, false);
}

/// outs\[r\] += sum over t of matrix\[r\]\[first + t\] * sources\[t\].
///
/// # Panics
/// If the matrix has not so many terms or rows, lengths differ, or there are more than [`TERMS_MAX`] sources.
pub(crate) fn accumulate(tier: Tier, matrix: &Matrix, first: usize, sources: &[&[u8]], outs: &mut [&mut [u8]]) {
    assert!((first + sources.len()) * matrix.rows <= matrix.coefs.len(), "one source for each term from the first on");
    sum(tier, matrix, first, sources, outs, true);
}

/// parity += coefficient * delta.
///
/// # Panics
/// If the lengths differ.
pub(crate) fn add_product(tier: Tier, coefficient: u8, delta: &[u8], parity: &mut [u8]) {
    assert_eq!(delta.len(), parity.len(), "delta and parity differ in length");
    assert!(Tier::available().contains(&tier));
    let pass = Pass {
        singles: &[delta.as_ptr()],
        pairs: &[],
        coefs: &[coefficient],
        stride: 1,
        first: 0,
        plain_first: coefficient == 1,
        start: Start::Targets,
        manner: Manner::default(),
        targets: &[parity.as_mut_ptr()],
        bytes: delta.len(),
    };
    // SAFETY: both buffers hold `bytes` bytes, the target is exclusively borrowed, one coefficient is there for the one
    // term, and the tier is available.
    unsafe { pass.run(tier) };
}

/// The sums of [`combine`], or of [`accumulate`] if the outs are `kept`, in passes.
fn sum(tier: Tier, matrix: &Matrix, first: usize, sources: &[&[u8]], outs: &mut [&mut [u8]], kept: bool) {
    assert_eq!(outs.len(), matrix.rows, "one buffer for each row");
    assert!(sources.len() <= TERMS_MAX, "too many sources");
    assert!(Tier::available().contains(&tier));
    let Some(bytes) = outs.first().map(|out| out.len()) else {
        return;
    };
    assert!(sources.iter().all(|source| source.len() == bytes), "sources differ in length from targets");
    assert!(outs.iter().all(|out| out.len() == bytes), "targets differ in length");

    let coefs = &matrix.coefs[first * matrix.rows..][..sources.len() * matrix.rows];
    let mut singles: List<*const u8, TERMS_MAX> = List::new();
    let manner = if kept { Manner::default() } else { Manner::of(sources.len(), outs, bytes) };
    let step_bytes = if matrix.rows <= ROWS_MAX { bytes } else { slice_bytes(sources.len()) };
    for at in (0..bytes).step_by(step_bytes.max(1)) {
        singles.clear();
        singles.extend(sources.iter().map(|source| source[at..].as_ptr()));
        let singles = singles.as_slice();
        for (group, outs) in outs.chunks_mut(ROWS_MAX).enumerate() {
            let mut targets = [std::ptr::null_mut(); ROWS_MAX];
            for (pointer, out) in targets.iter_mut().zip(outs.iter_mut()) {
                *pointer = out[at..].as_mut_ptr();
            }
            let row = group * ROWS_MAX;
            let pass = Pass {
                singles,
                pairs: &[],
                coefs,
                stride: matrix.rows,
                first: row,
                plain_first: matrix.plain[row],
                start: if kept { Start::Targets } else { Start::fresh(singles, &coefs[row..][..outs.len()]) },
                manner,
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

/// How much of each source is summed at once where several passes share them, so that it stays in the first cache.
fn slice_bytes(sources: usize) -> usize {
    (L1_SHARE / sources.max(1)).next_multiple_of(256).min(4096)
}

/// What sources may fill of a first cache: 32 KiB at least on all machines of note.
const L1_SHARE: usize = 24 << 10;
