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
//! 3. Nothing here inverts more than the e x e part of e lost data chunks, and that in closed form.

use crate::field::{inv, mul};

/// The coefficient of data chunk `data` in parity chunk `parity`.
pub(crate) fn coefficient(parity: u16, data: u16) -> u8 {
    let (x, y) = (point_x(parity), point_y(data));
    let up = mul(point_x(0) ^ y, x ^ point_y(0));
    mul(up, inv(mul(x ^ y, point_x(0) ^ point_y(0))))
}

/// The rows that make the chunks `want` of the chunks `have`, in a code of `data` data chunks. `rows[w][h]` belongs to
/// `want[w]` and `have[h]`. Indices at or above `data` are parity.
///
/// With D the lost data and R the parities used: P[R, D] d_D = p_R + P[R, rest] d_rest, solved for d_D; a lost parity
/// follows from all data.
///
/// # Panics
/// If `have` is not exactly `data` distinct chunks, or `want` and `have` overlap.
pub(crate) fn solve(data: u16, want: &[u16], have: &[u16]) -> Vec<Vec<u8>> {
    assert_eq!(have.len(), usize::from(data), "a solution reads exactly k chunks");
    let lost: Vec<u16> = (0..data).filter(|chunk| !have.contains(chunk)).collect();
    let used: Vec<u16> = have.iter().filter(|chunk| **chunk >= data).map(|chunk| chunk - data).collect();
    let inverse = invert(&used, &lost);

    // lost_rows[l][h]: the lost data l from what is read.
    let column = |h: u16| -> Vec<u8> {
        match h.checked_sub(data) {
            Some(parity) => used.iter().map(|row| u8::from(*row == parity)).collect(),
            None => used.iter().map(|row| coefficient(*row, h)).collect(),
        }
    };
    let mut lost_rows = vec![vec![0; have.len()]; lost.len()];
    for (h, chunk) in have.iter().enumerate() {
        let column = column(*chunk);
        for (row, weights) in lost_rows.iter_mut().zip(&inverse) {
            row[h] = dot(weights, &column);
        }
    }

    want.iter()
        .map(|chunk| {
            assert!(!have.contains(chunk), "chunk {chunk} is both wanted and read");
            let Some(parity) = chunk.checked_sub(data) else {
                let at = lost.binary_search(chunk).expect("data that is not read is lost");
                return lost_rows[at].clone();
            };
            let weights: Vec<u8> = lost.iter().map(|data| coefficient(parity, *data)).collect();
            have.iter()
                .enumerate()
                .map(|(h, chunk)| {
                    let direct = if *chunk < data { coefficient(parity, *chunk) } else { 0 };
                    weights.iter().zip(&lost_rows).fold(direct, |sum, (weight, row)| sum ^ mul(*weight, row[h]))
                })
                .collect()
        })
        .collect()
}

/// The inverse of the part of the matrix with rows `parities` and columns `data`: `inverse[d][p]`.
///
/// A Cauchy matrix has the inverse b(d, p) = prod_k (x_p + y_k) (x_k + y_d) / ((x_p + y_d) prod_(k != p) (x_p + x_k)
/// prod_(k != d) (y_d + y_k)); the scaling of rows and columns is undone around it.
fn invert(parities: &[u16], data: &[u16]) -> Vec<Vec<u8>> {
    assert_eq!(parities.len(), data.len(), "as many parities as lost data chunks");
    let product = |factors: &mut dyn Iterator<Item = u8>| factors.fold(1, mul);
    let xs: Vec<u8> = parities.iter().map(|parity| point_x(*parity)).collect();
    let ys: Vec<u8> = data.iter().map(|data| point_y(*data)).collect();
    // p(i, j) = row(i) c(i, j) column(j).
    let row = |x: u8| mul(x ^ point_y(0), inv(point_x(0) ^ point_y(0)));
    let column = |y: u8| point_x(0) ^ y;
    let of_x: Vec<u8> = xs
        .iter()
        .map(|x| {
            let up = product(&mut ys.iter().map(|y| x ^ y));
            let down = product(&mut xs.iter().filter(|other| *other != x).map(|other| x ^ other));
            mul(up, inv(mul(down, row(*x))))
        })
        .collect();
    ys.iter()
        .map(|y| {
            let up = product(&mut xs.iter().map(|x| x ^ y));
            let down = product(&mut ys.iter().filter(|other| *other != y).map(|other| y ^ other));
            let of_y = mul(up, inv(mul(down, column(*y))));
            xs.iter().zip(&of_x).map(|(x, of_x)| mul(mul(of_y, *of_x), inv(x ^ y))).collect()
        })
        .collect()
}

fn dot(a: &[u8], b: &[u8]) -> u8 {
    a.iter().zip(b).fold(0, |sum, (a, b)| sum ^ mul(*a, *b))
}

fn point_x(parity: u16) -> u8 {
    u8::try_from(parity).expect("a code has at most 256 chunks")
}

fn point_y(data: u16) -> u8 {
    255 - u8::try_from(data).expect("a code has at most 256 chunks")
}

#[cfg(test)]
mod tests {
    use super::{coefficient, dot, invert, solve};

    #[test]
    fn first_row_and_first_column_are_ones() {
        for i in 0..128 {
            assert_eq!(coefficient(0, i), 1);
            assert_eq!(coefficient(i, 0), 1);
        }
    }

    #[test]
    fn the_closed_form_inverts() {
        let (parities, data) = ([0, 2, 3, 7, 30], [1, 0, 9, 100, 200]);
        let inverse = invert(&parities, &data);
        for (d, weights) in inverse.iter().enumerate() {
            for (other, at) in data.iter().enumerate() {
                let column: Vec<u8> = parities.iter().map(|parity| coefficient(*parity, *at)).collect();
                assert_eq!(dot(weights, &column), u8::from(d == other));
            }
        }
    }

    #[test]
    fn a_solution_agrees_with_the_definition_of_parity() {
        // Unit vectors for data; each parity is its row. Then every wanted chunk must come out of the read ones.
        let (k, m) = (5u16, 4u16);
        let value = |chunk: u16| -> Vec<u8> {
            (0..k).map(|j| if chunk < k { u8::from(chunk == j) } else { coefficient(chunk - k, j) }).collect()
        };
        for pattern in 0u32..1 << (k + m) {
            if pattern.count_ones() != u32::from(k) {
                continue;
            }
            let (have, want): (Vec<u16>, Vec<u16>) = (0..k + m).partition(|chunk| pattern >> chunk & 1 == 1);
            for (row, chunk) in solve(k, &want, &have).iter().zip(&want) {
                let mut sum = vec![0; usize::from(k)];
                for (weight, chunk) in row.iter().zip(&have) {
                    for (sum, v) in sum.iter_mut().zip(value(*chunk)) {
                        *sum ^= super::mul(*weight, v);
                    }
                }
                assert_eq!(sum, value(*chunk), "{have:?} -> {chunk}");
            }
        }
    }
}
