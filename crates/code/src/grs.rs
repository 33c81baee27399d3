//! Generalised Reed-Solomon codes over GF(2^8): chunk z of a codeword holds u_z f(a_z), where f is a polynomial of degree
//! below k, the points a are distinct and the multipliers u are not 0. Any k chunks determine f, so all these codes are
//! MDS; the families differ in points and multipliers only.
//!
//! | family | points of data, of parity | what its authors wrote down |
//! |---|---|---|
//! | ours | 255 - j, i | the Cauchy matrix, scaled so that the first row and column are ones (`cauchy`) |
//! | ISA-L | j, k + i | the Cauchy matrix 1 / (k + i + j) of `gf_gen_cauchy1_matrix` |
//! | klauspost | j, k + i | the Vandermonde matrix of the points times the inverse of its upper part |
//!
//! Instead of u we keep the *base* of each chunk: u_z times the product of a_z + a_j over all data j but z. For the
//! chunks `have` that are read, the products over all but z follow from it by the e lost data and the e parities used
//! in their place: M(z) = base(z) prod_used (a_z + x) / prod_lost (a_z + y), without z itself. Then Lagrange says
//!
//! chunk w = sum over h of M(w) / (M(h) (a_w + a_h)) * chunk h,
//!
//! for data and parity alike: no matrix is inverted, and k + e chunks cost e products each.
//!
//! Invariants:
//! 1. Points of one code are distinct and bases are not 0.

use crate::{
    field::{inv, mul},
    recurrence::wrong_at,
};

/// A code of this family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grs {
    data: u16,
    /// One for each chunk, data first.
    points: Vec<u8>,
    bases: Vec<u8>,
}

impl Grs {
    /// The normalised Cauchy matrix: x_i = i, y_j = 255 - j.
    pub(crate) fn cauchy(data: u16, parity: u16) -> Self {
        let points = (0..data).map(|j| 255 - point(j)).chain((0..parity).map(point)).collect();
        let of_data = (0..data).map(|j| inv(255 - point(j)));
        let of_parity = (0..parity).map(|i| mul(point(i) ^ 255, inv(255)));
        Self { data, points, bases: of_data.chain(of_parity).collect() }
    }

    /// ISA-L's `gf_gen_cauchy1_matrix`: x_i = k + i, y_j = j, nothing scaled.
    pub(crate) fn isal(data: u16, parity: u16) -> Self {
        Self::unscaled(data, (0..data + parity).map(point).collect())
    }

    /// The Cauchy matrix of these points, of the data first, nothing scaled.
    pub(crate) fn unscaled(data: u16, points: Vec<u8>) -> Self {
        Self { data, bases: vec![1; points.len()], points }
    }

    /// The default matrix of klauspost/reedsolomon and reed-solomon-erasure: chunk z is f(z).
    pub(crate) fn klauspost(data: u16, parity: u16) -> Self {
        let points: Vec<u8> = (0..data + parity).map(point).collect();
        let others = |a: &u8| points[..data.into()].iter().filter(|y| *y != a).fold(1, |all, y| mul(all, y ^ a));
        Self { data, bases: points.iter().map(others).collect(), points }
    }

    /// Data chunks, k.
    pub(crate) fn data(&self) -> u16 {
        self.data
    }

    /// Chunks of the code, n.
    pub(crate) fn chunks(&self) -> u16 {
        u16::try_from(self.points.len()).expect("at most 256 chunks")
    }

    /// The coefficient of data chunk `data` in parity chunk `parity`.
    pub(crate) fn coefficient(&self, parity: u16, data: u16) -> u8 {
        let (parity, data) = (usize::from(self.data + parity), usize::from(data));
        mul(self.bases[parity], inv(mul(self.bases[data], self.points[parity] ^ self.points[data])))
    }

    /// The rows that make the chunks `want` of the chunks `have`: `rows[w][h]`.
    ///
    /// # Panics
    /// If `have` is not exactly k distinct chunks, or `want` and `have` overlap.
    pub(crate) fn solve(&self, want: &[u16], have: &[u16]) -> Vec<Vec<u8>> {
        assert_eq!(have.len(), usize::from(self.data), "a solution reads exactly k chunks");
        let span = self.span(have);
        let of_have: Vec<(u8, u8)> =
            have.iter().map(|h| (self.points[usize::from(*h)], self.product(*h, &span))).collect();
        want.iter()
            .map(|w| {
                assert!(!have.contains(w), "chunk {w} is both wanted and read");
                let (point, up) = (self.points[usize::from(*w)], self.product(*w, &span));
                of_have.iter().map(|(other, down)| mul(up, inv(mul(*down, point ^ other)))).collect()
            })
            .collect()
    }

    /// The chunks among `have` that differ from a codeword, from one byte of each: of at most `most` chunks, if
    /// `most` is at most half of what `have` holds beyond k; `None` if more are wrong.
    ///
    /// The sums S_l = sum over z of a_z^l / M(z) * byte(z), l below r = |have| - k, are 0 for a codeword, and in general
    /// a sum of powers of the points that are wrong (`recurrence`).
    pub(crate) fn wrong(&self, have: &[u16], bytes: &[u8], most: usize) -> Option<Vec<u16>> {
        assert_eq!(have.len(), bytes.len(), "one byte of each chunk");
        let span = self.span(have);
        let mut sums = vec![0; have.len() - usize::from(self.data)];
        for (z, byte) in have.iter().zip(bytes) {
            let mut term = mul(*byte, inv(self.product(*z, &span)));
            for sum in &mut sums {
                *sum ^= term;
                term = mul(term, self.points[usize::from(*z)]);
            }
        }
        wrong_at(&sums, most, have.iter().map(|z| (*z, self.points[usize::from(*z)])))
    }

    /// How a set of chunks differs from the data.
    fn span(&self, have: &[u16]) -> Span {
        let mut lost = vec![true; self.data.into()];
        let mut used = Vec::new();
        for chunk in have {
            match lost.get_mut(usize::from(*chunk)) {
                Some(lost) => *lost = false,
                None => used.push(self.points[usize::from(*chunk)]),
            }
        }
        let lost = lost.iter().zip(&self.points).filter(|(lost, _)| **lost).map(|(_, point)| *point).collect();
        Span { lost, used }
    }

    /// M(z) of the module's documentation.
    fn product(&self, z: u16, span: &Span) -> u8 {
        let (point, base) = (self.points[usize::from(z)], self.bases[usize::from(z)]);
        let over = |points: &[u8], base| {
            points.iter().filter(|other| **other != point).fold(base, |all, other| mul(all, other ^ point))
        };
        mul(over(&span.used, base), inv(over(&span.lost, 1)))
    }
}

/// The points of the data that a set of chunks lacks, and of the parities that it has.
struct Span {
    lost: Vec<u8>,
    used: Vec<u8>,
}

fn point(index: u16) -> u8 {
    u8::try_from(index).expect("a code has at most 256 chunks")
}

#[cfg(test)]
mod tests {
    use super::Grs;
    use crate::field::mul;

    /// Unit vectors for data, rows for parity: what chunk z holds of each data chunk.
    fn row(code: &Grs, z: u16) -> Vec<u8> {
        let unit = |j| u8::from(z == j);
        (0..code.data).map(|j| if z < code.data { unit(j) } else { code.coefficient(z - code.data, j) }).collect()
    }

    #[test]
    fn a_solution_agrees_with_the_definition_of_parity() {
        let (k, m) = (5u16, 4u16);
        for code in [Grs::cauchy(k, m), Grs::isal(k, m), Grs::klauspost(k, m)] {
            for pattern in (0u32..1 << (k + m)).filter(|pattern| pattern.count_ones() == u32::from(k)) {
                let (have, want): (Vec<u16>, Vec<u16>) = (0..k + m).partition(|chunk| pattern >> chunk & 1 == 1);
                for (weights, chunk) in code.solve(&want, &have).iter().zip(&want) {
                    let mut sum = vec![0; usize::from(k)];
                    for (weight, chunk) in weights.iter().zip(&have) {
                        sum.iter_mut().zip(row(&code, *chunk)).for_each(|(sum, v)| *sum ^= mul(*weight, v));
                    }
                    assert_eq!(sum, row(&code, *chunk), "{have:?} -> {chunk}");
                }
            }
        }
    }

    #[test]
    fn wrong_bytes_are_found_up_to_half_of_the_redundancy() {
        for code in [Grs::cauchy(6, 5), Grs::isal(6, 5), Grs::klauspost(6, 5)] {
            // All of them, without one, without two data chunks.
            for gone in [&[][..], &[7], &[0, 3]] {
                let have: Vec<u16> = (0..11).filter(|chunk| !gone.contains(chunk)).collect();
                let data = [7, 0, 99, 1, 200, 31];
                let byte = |z| row(&code, z).iter().zip(data).fold(0, |sum, (c, d)| sum ^ mul(*c, d));
                let right: Vec<u8> = have.iter().map(|z| byte(*z)).collect();
                let most = (have.len() - 6) / 2;
                assert_eq!(code.wrong(&have, &right, most), Some(vec![]));
                for a in 0..have.len() {
                    for b in a..have.len() {
                        let mut bytes = right.clone();
                        bytes[a] ^= 0x5a;
                        bytes[b] ^= 0x11;
                        let mut wrong = vec![have[a], have[b]];
                        wrong.dedup();
                        if wrong.len() <= most {
                            assert_eq!(code.wrong(&have, &bytes, most), Some(wrong), "{a} {b} of {have:?}");
                        } else {
                            // With 4 beyond k, one wrong chunk is told from two; with 3, two may look like another one.
                            assert_ne!(code.wrong(&have, &bytes, most), Some(wrong));
                        }
                    }
                }
            }
        }
    }
}
