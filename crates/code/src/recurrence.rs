//! Which points sums of powers are made of: the search for wrong chunks, over either field.
//!
//! S_l = sum over the wrong points a of e_a a^l. The shortest recurrence that makes these sums (Berlekamp and Massey) has
//! the wrong points as its roots.
//!
//! Invariants:
//! 1. Found is only what explains the sums with as many points as the recurrence has roots.

use std::ops::BitXor;

use crate::{field, long::field16};

/// A member of GF(2^8) or GF(2^16); a sum is the exclusive or.
pub(crate) trait Element: Copy + Eq + BitXor<Output = Self> {
    const ZERO: Self;
    const ONE: Self;
    /// Its product with another one.
    fn times(self, other: Self) -> Self;
    /// One over it.
    ///
    /// # Panics
    /// If it is 0.
    fn inverse(self) -> Self;
}

impl Element for u8 {
    const ZERO: u8 = 0;
    const ONE: u8 = 1;
    fn times(self, other: u8) -> u8 {
        field::mul(self, other)
    }
    fn inverse(self) -> u8 {
        field::inv(self)
    }
}

impl Element for u16 {
    const ZERO: u16 = 0;
    const ONE: u16 = 1;
    fn times(self, other: u16) -> u16 {
        field16::mul(self, other)
    }
    fn inverse(self) -> u16 {
        field16::inv(self)
    }
}

/// The chunks whose points the sums are made of, of `chunks` with their points; `None` if there are more than `most`, which
/// is at most half of the sums, or others.
pub(crate) fn wrong_at<E: Element>(
    sums: &[E],
    most: usize,
    chunks: impl Iterator<Item = (u16, E)>,
) -> Option<Vec<u16>> {
    let roots_of = shortest(sums);
    let count = roots_of.len() - 1;
    if count > most {
        return None;
    }
    let is_root = |point: E| roots_of.iter().fold(E::ZERO, |sum, c| sum.times(point) ^ *c) == E::ZERO;
    let wrong: Vec<u16> = chunks.filter(|(_, point)| is_root(*point)).map(|(chunk, _)| chunk).collect();
    (wrong.len() == count).then_some(wrong)
}

/// The monic polynomial c of least degree L, highest power first, such that for all l from L on c_0 s_l + c_1 s_(l-1) +
/// .. + c_L s_(l-L) = 0. Powers of 0 count: they end the sequence 1, 0, 0, ..
fn shortest<E: Element>(sums: &[E]) -> Vec<E> {
    let (mut now, mut before) = (vec![E::ONE], vec![E::ONE]);
    let (mut length, mut since, mut divisor) = (0, 1, E::ONE);
    for at in 0..sums.len() {
        let gap = now.iter().zip(sums[..=at].iter().rev()).fold(E::ZERO, |sum, (c, s)| sum ^ c.times(*s));
        if gap == E::ZERO {
            since += 1;
            continue;
        }
        let scale = gap.times(divisor.inverse());
        let mut next = now.clone();
        next.resize(next.len().max(before.len() + since), E::ZERO);
        for (c, b) in next[since..].iter_mut().zip(&before) {
            *c = *c ^ scale.times(*b);
        }
        if 2 * length <= at {
            (length, before, divisor, since) = (at + 1 - length, now, gap, 1);
        } else {
            since += 1;
        }
        now = next;
    }
    now.resize(length + 1, E::ZERO);
    now
}
