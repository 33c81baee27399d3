//! What it may cost to know a hard disk's buffer: bytes that nobody needs, earned by what users write.
//!
//! Invariants:
//! 1. No more was spent than was there to begin with and was earned since. So a disk that is only read is left alone.

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit {
    left: u64,
    bytes_max: u64,
}

impl Credit {
    /// Bytes that are there to begin with, and are saved up at most.
    pub fn new(bytes_max: u64) -> Credit {
        Credit { left: bytes_max, bytes_max }
    }

    /// Users wrote, which earns so many of a hundred of their bytes.
    pub fn earn(&mut self, bytes: u64, percent: u64) {
        let more = bytes.saturating_mul(percent) / 100;
        self.left = self.left.saturating_add(more).min(self.bytes_max);
    }

    /// Whether so much may be spent; then it is.
    pub fn spend(&mut self, bytes: u64) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_more_is_spent_than_was_there_and_was_earned(
            steps in proptest::collection::vec((any::<bool>(), 0u64..300), 1..200),
            percent in 0u64..300,
        ) {
            let mut credit = Credit::new(1000);
            let (mut earned, mut spent, mut refused) = (0, 0, 0);
            for (is_write, bytes) in steps {
                if is_write {
                    credit.earn(bytes, percent);
                    earned += bytes;
                } else if credit.spend(bytes) {
                    spent += bytes;
                } else {
                    refused += 1;
                    // Nothing is refused that is there.
                    prop_assert!(spent + bytes > 1000);
                }
                prop_assert!(spent * 100 <= 100_000 + percent * earned);
            }
            prop_assert!(refused > 0 || spent <= 1000 + percent * earned / 100);
        }
    }
}
