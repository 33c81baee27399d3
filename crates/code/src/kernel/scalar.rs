//! The kernel by table look-ups: the oracle of all tiers, and the tail of those without masked loads.
//!
//! Invariants:
//! 1. Uses nothing but the field's product table.

use std::ops::Range;

use super::{Pass, ROWS_MAX, Start};
use crate::field::MUL;

/// Runs the pass on some of its bytes.
///
/// # Safety
/// As [`Pass::run`], and `part` ends within `bytes`.
pub(super) unsafe fn run(pass: &Pass, part: Range<usize>) {
    let rows = pass.targets.len();
    for at in part {
        let mut sums = [0u8; ROWS_MAX];
        if pass.start == Start::Targets {
            for (sum, target) in sums.iter_mut().zip(pass.targets) {
                // SAFETY: at < bytes, and each pointer is good for so many.
                *sum = unsafe { *target.add(at) };
            }
        }
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
