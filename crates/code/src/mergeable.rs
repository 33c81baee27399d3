//! Reed-Solomon codes whose stripes merge by their parities alone: Vandermonde rows instead of the Cauchy matrix.
//! Source: [convertible §IV]
//!
//! Parity i of data j carries theta_i^j. The data of a stripe that comes s-th in a merged one stands at powers k * s
//! higher, so parity i of the merged stripe is the sum over s of theta_i^(k s) times parity i of stripe s. A square part
//! of such a matrix may be singular, so how much data a set of thetas carries was searched and is proved by the tests.
//!
//! Invariants:
//! 1. Any m losses are recovered, for all k up to [`data_max`].
//! 2. theta_0 is 1: parity 0 is the XOR of the data.

use crate::{
    field::{mul, power},
    linear::Generator,
};

/// The code of `data` data and `parity` parity chunks.
///
/// # Panics
/// If there are no points for so many parity chunks.
pub(crate) fn generator(data: u8, parity: u8) -> Generator {
    let points = &POINTS[usize::from(parity) - 1];
    let row = |exponent: &u8| {
        let theta = power(u32::from(*exponent));
        std::iter::successors(Some(1), |value| Some(mul(*value, theta))).take(data.into()).collect()
    };
    Generator::new(data.into(), points.exponents.iter().map(row).collect(), Vec::new())
}

/// The most data chunks that are proved for so many parity chunks; 0 if none are.
pub(crate) fn data_max(parity: u8) -> u8 {
    usize::from(parity).checked_sub(1).and_then(|at| POINTS.get(at)).map_or(0, |points| points.data_max)
}

/// Points of the rows, as exponents of 2, and how many data chunks they carry.
struct Points {
    exponents: &'static [u8],
    data_max: u8,
}

/// One entry for each number of parity chunks from 1 on.
const POINTS: [Points; 4] = [
    Points { exponents: &[0], data_max: 255 },
    Points { exponents: &[0, 1], data_max: 254 },
    Points { exponents: &[0, 1, 2], data_max: 253 },
    Points { exponents: &[0, 3, 57, 201], data_max: 33 },
];
