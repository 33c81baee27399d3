//! The systematic MDS code over GF(2^16) under long Reed-Solomon, entry by entry.
//!
//! With T = 2^t parity points y_i = point(i) and data points x_j = point(T + j), parity i of data j carries
//! p(i, j) = point((T + j) >> t) / (x_j + y_i).
//!
//! Invariants:
//! 1. Every square part is a Cauchy matrix with columns scaled by non-zero factors (all x and y differ, and no x lies
//!    among the first T points, where s_t is zero), so it is invertible: any k of the k + m chunks hold the data.
//! 2. p(i, j) depends on T alone: for all m with the same next power of two, and for every k, the codes are nested.
//! 3. Nothing here inverts more than the e x e part of e lost data chunks, and that in closed form.

use super::field16::{inv, mul, point};

/// The coefficient of data chunk `data` in parity chunk `parity`, with 2^`levels` parity points.
pub(crate) fn coefficient(levels: u32, parity: u16, data: u16) -> u16 {
    let x = (1 << levels) + data;
    mul(point(x >> levels), inv(point(x) ^ point(parity)))
}

/// The rows that make the lost chunks `want` of syndromes: `rows[w][i]` belongs to `want[w]` and the syndrome of
/// `parities[i]`. A syndrome is the parity that was read plus the parity of the data with zeros for `lost`. What a row
/// makes is a lost data chunk itself, and of a parity chunk what the lost data add to it. Indices at or above `data`
/// are parity.
///
/// # Panics
/// If there are not as many parities as lost data chunks, or a wanted data chunk is not among the lost.
pub(crate) fn solve(levels: u32, data: u16, want: &[u16], lost: &[u16], parities: &[u16]) -> Vec<Vec<u16>> {
    let inverse = invert(levels, parities, lost);
    let row = |chunk: &u16| match chunk.checked_sub(data) {
        None => inverse[lost.binary_search(chunk).expect("data that is not read is lost")].clone(),
        Some(parity) => {
            let mut row = vec![0; parities.len()];
            for (lost, inverse) in lost.iter().zip(&inverse) {
                let weight = coefficient(levels, parity, *lost);
                row.iter_mut().zip(inverse).for_each(|(sum, entry)| *sum ^= mul(weight, *entry));
            }
            row
        }
    };
    want.iter().map(row).collect()
}

/// The inverse of the part of the matrix with rows `parities` and columns `data`: `inverse[d][p]`.
///
/// It is b(d, p) / scale(d) with prod_k (y_p + x_k) (y_k + x_d) / ((y_p + x_d) prod_(k != p) (y_p + y_k) prod_(k != d)
/// (x_d + x_k)) for b(d, p).
fn invert(levels: u32, parities: &[u16], data: &[u16]) -> Vec<Vec<u16>> {
    assert_eq!(parities.len(), data.len(), "as many parities as lost data chunks");
    let product = |factors: &mut dyn Iterator<Item = u16>| factors.fold(1, mul);
    let ys: Vec<u16> = parities.iter().map(|parity| point(*parity)).collect();
    let numbers: Vec<u16> = data.iter().map(|data| (1 << levels) + data).collect();
    let xs: Vec<u16> = numbers.iter().map(|number| point(*number)).collect();
    let of_y: Vec<u16> = ys
        .iter()
        .map(|y| {
            let up = product(&mut xs.iter().map(|x| x ^ y));
            let down = product(&mut ys.iter().filter(|other| *other != y).map(|other| y ^ other));
            mul(up, inv(down))
        })
        .collect();
    xs.iter()
        .zip(numbers)
        .map(|(x, number)| {
            let up = product(&mut ys.iter().map(|y| x ^ y));
            let down = product(&mut xs.iter().filter(|other| *other != x).map(|other| x ^ other));
            let of_x = mul(up, inv(mul(down, point(number >> levels))));
            ys.iter().zip(&of_y).map(|(y, of_y)| mul(mul(of_x, *of_y), inv(x ^ y))).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{coefficient, invert};
    use crate::long::field16::mul;

    #[test]
    fn one_parity_is_the_sum() {
        assert!((0..1000).all(|data| coefficient(0, 0, data) == 1));
    }

    #[test]
    fn the_closed_form_inverts() {
        let (parities, data) = ([0, 2, 3, 7, 30], [1, 0, 9, 1000, 65_503]);
        let inverse = invert(5, &parities, &data);
        for (d, weights) in inverse.iter().enumerate() {
            for (other, at) in data.iter().enumerate() {
                let terms = parities.iter().zip(weights).map(|(parity, w)| mul(*w, coefficient(5, *parity, *at)));
                assert_eq!(terms.fold(0, |sum, term| sum ^ term), u16::from(d == other));
            }
        }
    }
}
