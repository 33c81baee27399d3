//! Which sequences were given out so long ago, without a time for each.
//!
//! Invariants:
//! 1. Nothing counts as old before it is; and no later than a sixteenth of the age behind that, if it is looked as often.

use std::collections::VecDeque;
use std::time::Duration;

use claystone_env::Moment;

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Ages {
    /// From when on sequences were given out: from the newest that is old up to now.
    noted: VecDeque<(Moment, u64)>,
}

impl Ages {
    /// The sequence below which all are older than `age`; `next_seq` is given out from now on.
    pub fn old_below(&mut self, age: Duration, now: Moment, next_seq: u64) -> u64 {
        if self.noted.back().is_none_or(|(last, _)| now.since(*last) >= age / NOTED_IN_AN_AGE) {
            self.noted.push_back((now, next_seq));
        }
        while self.noted.get(1).is_some_and(|(noted, _)| now.since(*noted) >= age) {
            self.noted.pop_front();
        }
        self.noted.front().filter(|(noted, _)| now.since(*noted) >= age).map_or(0, |(_, seq)| *seq)
    }
}

const NOTED_IN_AN_AGE: u32 = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_old_is_known_to_be_and_little_later(steps in proptest::collection::vec((1..50u64, 0..9u64), 1..400)) {
            const AGE: u64 = 1600;
            let (mut ages, mut now, mut next) = (Ages::default(), 5000, 0);
            let mut given: Vec<u64> = Vec::new();
            for (passed, more) in steps {
                now += passed;
                let moment = Moment(Duration::from_millis(now));
                let below = ages.old_below(Duration::from_millis(AGE), moment, next) as usize;
                prop_assert!(given[..below].iter().all(|at| at + AGE <= now), "{below} of {given:?} at {now}");
                prop_assert!(given[below..].iter().all(|at| at + AGE + AGE / 16 + 50 > now), "{below} of {given:?} at {now}");
                prop_assert!(ages.noted.len() <= 18);
                given.extend((0..more).map(|_| now));
                next += more;
            }
        }
    }
}
