//! The kernel by table look-ups: the oracle of all tiers, and the tail of those without masked loads.
//!
//! Invariants:
//! 1. Uses nothing but the field's product table.

use super::{Pass, ROWS_MAX};
use crate::field::MUL;

/// Runs the pass on the bytes from `from` on.
///
/// # Safety
/// As [`Pass::run`].
pub(super) unsafe fn run(pass: &Pass, from: usize) {
    let rows = pass.targets.len();
    for at in from..pass.bytes {
        let mut sums = [0u8; ROWS_MAX];
        let mut coefs = pass.coefs.chunks_exact(pass.stride).map(|term| &term[pass.first..][..rows]);
        let mut add = |value: u8| {
            let coefs = coefs.next().expect("coefficients for each term");
            for (sum, coef) in sums.iter_mut().zip(coefs) {
                *sum ^= MUL[usize::from(*coef)][usize::from(value)];
            }
        };
        for single in pass.singles {
            // SAFETY: at < bytes, and each pointer is good for so many.
            add(unsafe { *single.add(at) });
        }
        for pair in pass.pairs {
            // SAFETY: as above.
            let (near, far) = unsafe { (*pair.near.add(at), *pair.far.add(at)) };
            add(near ^ MUL[usize::from(pair.factor)][usize::from(far)]);
        }
        for (target, sum) in pass.targets.iter().zip(sums) {
            // SAFETY: as above, and targets are good for writing.
            unsafe { *target.add(at) = sum };
        }
    }
}
