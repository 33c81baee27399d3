//! Local reconstruction codes as Azure has them: data in equal groups with an XOR parity each, and global parities over
//! all data. Source: [hacfs §3.3]
//!
//! `lrc:K+L+G` is maximally recoverable: it recovers every pattern that any code of its shape can, that is, one chunk
//! of each group and then any G more. Take the local parity of a group as the point 0 beside the columns of its data.
//! Then this says: choose more than one point in some groups, as many more as there are global parities left, and the
//! differences within groups are independent in the rows that are left.
//!
//! Chunks: the data group by group, the local parities, the global parities.
//!
//! Invariants:
//! 1. Only parameters that were proved are valid: by the argument at each closed form, and by the tests, which go
//!    through all patterns of every table and of the closed forms for small sizes.
//! 2. Global parities that come from one place do not depend on L: `lrc:12+6+2` turns into `lrc:12+2+2` and back by its
//!    local parities alone.

mod tables;

#[cfg(test)]
mod tests;

use self::tables::TABLES;
use crate::{ChunkIndex, cauchy, field::power, linear::Generator};

/// What can be asked for, for messages.
pub(crate) const PROVED: &str = "G = 1: K up to 254; G = 2: K up to 18, 20, 24 or 28, else groups of at most 15 in up \
    to 17, or of at most 3 in up to 85; G = 3: K = 4, 6, 8, 9, 10, 12, 14 or 15, and 16+2, 16+4, 18+2; G = 4: K = 4, \
    6, 8, 9 or 10, and 12+2, 12+3, 12+4; L = 1: any";

/// The code of `data` chunks in `local` groups with `global` global parities; `None` if none is proved.
pub(crate) fn generator(data: u8, local: u8, global: u8) -> Option<Generator> {
    let global_rows = global_rows(data, local, global)?;
    let (data, local) = (u16::from(data), u16::from(local));
    let group = data / local;
    let local_rows = (0..local).map(|at| (0..data).map(|chunk| u8::from(chunk / group == at)).collect());
    let check = |at| (at * group..(at + 1) * group).chain([data + at]).map(ChunkIndex).collect();
    Some(Generator::new(data, local_rows.chain(global_rows).collect(), (0..local).map(check).collect()))
}

/// [`CodeSpec::tolerance_left`](crate::CodeSpec::tolerance_left).
///
/// The first loss of a group is on its local parity; each further one, and each lost global parity, takes the place of one
/// global parity. Whoever wants to do harm with few losses takes chunks that count before the first of an untouched group.
pub(crate) fn tolerance_left(data: u8, local: u8, is_lost: &[bool]) -> i32 {
    let group = data / local;
    let (grouped, globals) = is_lost.split_at(usize::from(data) + usize::from(local));
    let (data_lost, local_lost) = grouped.split_at(data.into());
    let count = |lost: &[bool]| lost.iter().filter(|lost| **lost).count() as i32;
    let losses: Vec<i32> =
        data_lost.chunks(group.into()).zip(local_lost).map(|(data, local)| count(data) + i32::from(*local)).collect();
    let left = globals.len() as i32 - count(globals) - losses.iter().map(|lost| (lost - 1).max(0)).sum::<i32>();
    if left < 0 {
        return left;
    }
    let touched = losses.iter().filter(|lost| **lost > 0).map(|lost| i32::from(group) + 1 - lost).sum::<i32>();
    let counting = globals.len() as i32 - count(globals) + touched;
    // One more than is left has to be taken; an untouched group has one chunk that does not count, beside `group` that do.
    let beyond = (left + 1 - counting).max(0);
    left + (beyond + i32::from(group) - 1) / i32::from(group)
}

/// A row of coefficients for each global parity, maximally recoverable beside the local ones.
///
/// Two global parities are (x, x^2) for points x: differences are again of this form, y = x + x', and those of y and z
/// are dependent just if y z (y + z) = 0. So what it takes is that no two groups have a sum of two points (0 is one) in
/// common.
pub(crate) fn global_rows(data: u8, local: u8, global: u8) -> Option<Vec<Vec<u8>>> {
    if local == 0 || !data.is_multiple_of(local) {
        return None;
    }
    let group = u32::from(data / local);
    let squares = |exponent: &dyn Fn(u32) -> u32| {
        let row = |times| (0..data.into()).map(|at| power(times * exponent(at))).collect();
        Some(vec![row(1), row(2)])
    };
    let place = |step: u32| move |at: u32| at / group + step * (at % group);
    let table = TABLES
        .iter()
        .find(|table| table.data == data && table.rows.len() == usize::from(global) && table.locals.contains(&local));
    match (global, table) {
        // Points of a group, and 0, are distinct: more is not needed.
        (1, _) if data < 255 => Some(vec![(0..data.into()).map(power).collect()]),
        // The 17th roots of 1, and 0: all their sums are distinct, and no more than 18 points have that.
        (2, _) if data <= 17 => squares(&|at| 15 * at),
        (_, Some(table)) => Some(table.rows.iter().map(|row| row.to_vec()).collect()),
        // Reed-Solomon, with parity 0 as the local one.
        (1.., _) if local == 1 => Some(
            (1..=u16::from(global))
                .map(|row| (0..data.into()).map(|at| cauchy::coefficient(row, at)).collect())
                .collect(),
        ),
        // The multiples of a subfield by 2^0, 2^1, .. meet in 0 only, and each holds the sums of its members. GF(16) has
        // 15 members beside 0 and 17 such multiples, GF(4) has 3 and 85.
        (2, _) if group <= 15 && local <= 17 => squares(&place(17)),
        (2, _) if group <= 3 && local <= 85 => squares(&place(85)),
        _ => None,
    }
}
