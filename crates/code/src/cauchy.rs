//! The systematic MDS code under Reed-Solomon and under Clay's planes: a normalised Cauchy matrix.
//!
//! Parity i of data j carries p(i, j) = c(i, j) * c(0, 0) / (c(0, j) * c(i, 0)) with the Cauchy c(i, j) = 1 / (x_i + y_j),
//! x_i = i and y_j = 255 - j. Scaling rows and columns keeps every square part invertible, so any k of the k + m chunks
//! hold the data, for all k + m <= 256.
//!
//! Invariants:
//! 1. The first row and the first column are all ones: parity 0 is the XOR of the data.
//! 2. p(i, j) depends on neither k nor m: the codes are nested, `rs:6+3` is `rs:6+4` without its last parity, and
//!    `rs:6+3` is `rs:9+3` with three data chunks of zeros.
//! 3. It is the matrix of `Grs::cauchy`, which also solves for lost chunks; here are single coefficients of it.

use crate::field::{inv, mul};

/// The coefficient of data chunk `data` in parity chunk `parity`.
pub(crate) fn coefficient(parity: u16, data: u16) -> u8 {
    let (x, y) = (point_x(parity), point_y(data));
    let up = mul(point_x(0) ^ y, x ^ point_y(0));
    mul(up, inv(mul(x ^ y, point_x(0) ^ point_y(0))))
}

fn point_x(parity: u16) -> u8 {
    u8::try_from(parity).expect("a code has at most 256 chunks")
}

fn point_y(data: u16) -> u8 {
    255 - u8::try_from(data).expect("a code has at most 256 chunks")
}

#[cfg(test)]
mod tests {
    use super::coefficient;
    use crate::grs::Grs;

    #[test]
    fn first_row_and_first_column_are_ones() {
        for i in 0..128 {
            assert_eq!(coefficient(0, i), 1);
            assert_eq!(coefficient(i, 0), 1);
        }
    }

    #[test]
    fn points_and_bases_give_the_same_matrix() {
        let code = Grs::cauchy(100, 156);
        for (i, j) in (0..156).flat_map(|i| (0..100).map(move |j| (i, j))) {
            assert_eq!(code.coefficient(i, j), coefficient(i, j));
        }
    }
}
