//! Which bytes of a segment its appends have taken, in whichever order they came.
//!
//! ```text
//!  0 ....... end        ahead           ahead                 bytes
//!  [ taken  ]  gap    [ taken ]  gap  [ taken ]  free          |
//! ```
//!
//! Invariants:
//! 1. Each byte is taken once.
//! 2. Ranges in `ahead` begin behind `end`, and no two of them touch.
//! 3. There are no more than [`AHEAD_MAX`] of them.

use std::collections::BTreeMap;

use crate::ByteRange;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Taken {
    end: u64,
    /// Where ranges behind a gap begin and end.
    ahead: BTreeMap<u64, u64>,
}

impl Taken {
    /// Of a segment of which everything up to here is taken.
    pub fn until(end: u64) -> Taken {
        Taken { end, ahead: BTreeMap::new() }
    }

    /// Up to here everything is taken.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Takes a range of a segment of `bytes` bytes. If it is not within them, if a byte of it was taken before, or if
    /// there are too many gaps, nothing is taken; returns whether it was.
    #[must_use]
    pub fn take(&mut self, range: ByteRange, bytes: u64) -> bool {
        let Some(end) = range.offset.checked_add(range.bytes).filter(|end| *end <= bytes) else { return false };
        if range.bytes == 0 {
            return true;
        }
        let before = self.ahead.range(..end).next_back().map(|(start, end)| (*start, *end));
        if range.offset < self.end || before.is_some_and(|(_, before)| before > range.offset) {
            return false;
        }
        let joins = before.filter(|(_, before)| *before == range.offset);
        if joins.is_none() && range.offset > self.end && self.ahead.len() == AHEAD_MAX {
            return false;
        }
        // What touches becomes one.
        let end = self.ahead.remove(&end).unwrap_or(end);
        match joins {
            _ if range.offset == self.end => self.end = end,
            Some((start, _)) => drop(self.ahead.insert(start, end)),
            None => drop(self.ahead.insert(range.offset, end)),
        }
        true
    }
}

/// Stretches behind a gap: more than an owner of a segment has appends under way.
pub const AHEAD_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_taken_once() {
        const BYTES: u64 = 64;
        // Pairs of numbers without order, the same in each run.
        let mut number = 1u64;
        let mut below = |bound: u64| {
            number = number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (number >> 33) % bound
        };
        for begin in (0..20).cycle().take(1000) {
            let mut taken = Taken::until(begin);
            let mut model = [false; BYTES as usize];
            model[..begin as usize].fill(true);
            for _ in 0..60 {
                let (offset, bytes) = (below(70), below(9));
                let range = offset as usize..(offset + bytes) as usize;
                let is_free = range.end <= model.len() && !model[range.clone()].iter().any(|byte| *byte);
                assert_eq!(taken.take(ByteRange { offset, bytes }, BYTES), is_free, "{range:?} of {taken:?}");
                if is_free {
                    model[range].fill(true);
                }
                assert_eq!(taken.end(), model.iter().take_while(|byte| **byte).count() as u64);
            }
        }
    }

    #[test]
    fn gaps_are_bounded() {
        let mut taken = Taken::default();
        let one = |offset| ByteRange { offset, bytes: 1 };
        let most = 2 * AHEAD_MAX as u64;
        assert!((1..=most).step_by(2).all(|offset| taken.take(one(offset), u64::MAX)));
        assert!(!taken.take(one(most + 1), u64::MAX));
        assert!(taken.take(one(most), u64::MAX), "it touches another one");
        assert!(taken.take(one(0), u64::MAX), "it leaves no gap");
        assert!(taken.take(one(most + 2), u64::MAX));
        assert!(!taken.take(ByteRange { offset: u64::MAX, bytes: 2 }, u64::MAX));
    }
}
