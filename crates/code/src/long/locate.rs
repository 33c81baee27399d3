//! Which symbols of a column of a long code are wrong.
//!
//! With a(z) the point of chunk z, M(z) = prod (a(z) + y) over the other parity points y, and for data divided by
//! point((T + z) >> t), the sums S_l of a(z)^l c(z) / M(z) over all chunks are 0 for l < m: partial fractions of x^l over
//! prod (x + y). Chunks that are missing are kept out by a factor prod (a(z) + a(e)) over them, which leaves m - |e| sums.
//! What is left is a sum of powers of the wrong points: the shortest recurrence that makes the sums (Berlekamp and
//! Massey) has these as its roots.
//!
//! Invariants:
//! 1. Found is only what explains the column with at most as many wrong symbols as asked for.

use super::{
    LongReedSolomon,
    field16::{inv, mul, point},
};

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
        let roots_of = shortest_recurrence(&sums);
        let count = roots_of.len() - 1;
        if count > most {
            return None;
        }
        let is_root = |z: &usize| roots_of.iter().fold(0, |sum, c| mul(sum, at(*z)) ^ c) == 0;
        let wrong = (0..column.len()).filter(|z| column[*z].is_some()).filter(is_root);
        let wrong: Vec<u16> = wrong.map(|z| u16::try_from(z).expect("at most 65,535 chunks")).collect();
        (wrong.len() == count).then_some(wrong)
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

/// The monic polynomial c of least degree L, highest power first, such that for all l from L on c_0 s_l + c_1 s_(l-1) +
/// .. + c_L s_(l-L) = 0. Powers of 0 count: they end the sequence 1, 0, 0, ..
fn shortest_recurrence(sums: &[u16]) -> Vec<u16> {
    let (mut now, mut before): (Vec<u16>, Vec<u16>) = (vec![1], vec![1]);
    let (mut length, mut since, mut divisor) = (0, 1, 1);
    for at in 0..sums.len() {
        let gap = now.iter().zip(sums[..=at].iter().rev()).fold(0, |sum, (c, s)| sum ^ mul(*c, *s));
        if gap == 0 {
            since += 1;
            continue;
        }
        let scale = mul(gap, inv(divisor));
        let mut next = now.clone();
        next.resize(next.len().max(before.len() + since), 0);
        for (c, b) in next[since..].iter_mut().zip(&before) {
            *c ^= mul(scale, *b);
        }
        if 2 * length <= at {
            (length, before, divisor, since) = (at + 1 - length, now, gap, 1);
        } else {
            since += 1;
        }
        now = next;
    }
    now.resize(length + 1, 0);
    now
}
