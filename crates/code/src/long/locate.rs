//! Which symbols of a column of a long code are wrong.
//!
//! With a(z) the point of chunk z, M(z) = prod (a(z) + y) over the other parity points y, and for data divided by
//! point((T + z) >> t), the sums S_l of a(z)^l c(z) / M(z) over all chunks are 0 for l < m: partial fractions of x^l over
//! prod (x + y). Chunks that are missing are kept out by a factor prod (a(z) + a(e)) over them, which leaves m - |e| sums.
//! What is left is a sum of powers of the wrong points (`recurrence`).
//!
//! Invariants:
//! 1. Found is only what explains the column with at most as many wrong symbols as asked for.

use super::{
    LongReedSolomon,
    field16::{inv, mul, point},
};
use crate::recurrence::wrong_at;

impl LongReedSolomon {
    /// The wrong chunks of a column, the symbols of those that are there: `None` if there are more than `most`, which is at
    /// most half of what is there beyond k.
    pub(super) fn wrong(&self, column: &[Option<u16>], most: usize) -> Option<Vec<u16>> {
        let at = |z: usize| self.point_of(u16::try_from(z).expect("at most 65,535 chunks"));
        let missing: Vec<u16> = (0..column.len()).filter(|z| column[*z].is_none()).map(at).collect();
        let mut sums = vec![0; usize::from(self.parity).checked_sub(missing.len())?];
        for (z, symbol) in column.iter().enumerate() {
            let Some(symbol) = symbol.filter(|symbol| *symbol != 0) else { continue };
            let product = |others: &mut dyn Iterator<Item = u16>| others.fold(1, |all, other| mul(all, other ^ at(z)));
            let apart = product(&mut (0..self.parity).map(point).filter(|other| *other != at(z)));
            let kept = product(&mut missing.iter().copied());
            let mut term = mul(mul(symbol, self.scale_of(z)), mul(kept, inv(apart)));
            for sum in &mut sums {
                *sum ^= term;
                term = mul(term, at(z));
            }
        }
        let chunks = (0..).zip(column).filter(|(_, symbol)| symbol.is_some());
        wrong_at(&sums, most, chunks.map(|(z, _)| (z, self.point_of(z))))
    }

    /// Where a chunk stands.
    fn point_of(&self, chunk: u16) -> u16 {
        point(chunk.checked_sub(self.data).unwrap_or((1 << self.levels) + chunk))
    }

    /// What a data chunk's column of the matrix is scaled by; 1 for parity.
    fn scale_of(&self, chunk: usize) -> u16 {
        if chunk >= usize::from(self.data) {
            return 1;
        }
        let number = (1usize << self.levels) + chunk;
        point(u16::try_from(number >> self.levels).expect("a data chunk has a point"))
    }
}
