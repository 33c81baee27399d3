//! The kernel by table look-ups: the oracle of all tiers, and the tail of those without masked loads.
//!
//! Invariants:
//! 1. Uses nothing but the field's product table.

use std::ops::Range;

use super::{Pass, ROWS_MAX, Start, Stretch};
use crate::field::MUL;

/// Runs the pass on some of its bytes.
///
/// # Safety
/// As [`Pass::run`], and `part` ends within `bytes`.
pub(super) unsafe fn run(pass: &Pass, part: Range<usize>) {
    let (rows, terms) = (pass.targets.len(), pass.singles.len() + pass.pairs.len());
    for at in part {
        let value = |term: usize| match pass.singles.get(term) {
            // SAFETY: at < bytes, and each pointer is good for so many.
            Some(single) => unsafe { *single.add(at) },
            None => {
                let pair = &pass.pairs[term - pass.singles.len()];
                // SAFETY: as above.
                let (near, far) = unsafe { (*pair.near.add(at), *pair.far.add(at)) };
                near ^ MUL[usize::from(pair.factor)][usize::from(far)]
            }
        };
        // SAFETY: as above.
        let first = |target: *mut u8| if pass.start == Start::Targets { unsafe { *target.add(at) } } else { 0 };
        let mut sums = [0u8; ROWS_MAX];
        for (row, target) in pass.targets.iter().enumerate() {
            let product = |term: usize| MUL[usize::from(pass.coefs[term * rows + row])][usize::from(value(term))];
            sums[row] = (0..terms).map(product).fold(first(*target), |sum, product| sum ^ product);
        }
        let mut from = 0;
        for Stretch { target, end } in pass.plain {
            let sum = (from..*end).map(value).fold(first(*target), |sum, value| sum ^ value);
            from = *end;
            // SAFETY: as above, and targets are good for writing.
            unsafe { *target.add(at) = sum };
        }
        for (target, sum) in pass.targets.iter().zip(sums) {
            // SAFETY: as above.
            unsafe { *target.add(at) = sum };
        }
    }
}
