//! How much a stage takes: what the profile says, until what is seen says otherwise.

use std::collections::VecDeque;

use crate::stage::StageBytes;

/// What became of a limit when a stage ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    Right,
    /// It was made anew.
    Recalibrated,
}

/// Bytes of a stage, and the last ones that were seen.
#[derive(Debug, Clone)]
pub struct Limit {
    bytes: StageBytes,
    seen: VecDeque<(u64, u64)>,
}

impl Limit {
    pub fn new(bytes: StageBytes) -> Limit {
        Limit { bytes, seen: VecDeque::new() }
    }

    pub fn bytes(&self) -> StageBytes {
        self.bytes
    }

    /// A stage took `taken` bytes, and `next` more did not fit: its length is between. When more than `wrong_max` of the last
    /// `judged` were outside of what is believed, these are believed.
    pub fn ended(&mut self, taken: u64, next: u64, judged: usize, wrong_max: usize) -> Judgement {
        self.seen.push_back((taken, next));
        while self.seen.len() > judged {
            self.seen.pop_front();
        }
        let (least, most) = (self.bytes.limit(), self.bytes.most());
        let is_wrong = |(taken, next): &&(u64, u64)| taken + next <= least || *taken > most;
        let wrong: Vec<u64> = self.seen.iter().filter(is_wrong).map(|(taken, _)| *taken).collect();
        if wrong.len() <= wrong_max {
            return Judgement::Right;
        }
        // Those that were as expected are of the drive as it was.
        self.bytes = StageBytes::of(&wrong).expect("more than none");
        self.seen.clear();
        Judgement::Recalibrated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_made_anew_when_too_many_stages_end_outside_of_it() {
        let mut limit = Limit::new(StageBytes { mean: 100, deviation: 3, least: 95, seen: 20 });
        assert_eq!((limit.bytes().limit(), limit.bytes().most()), (90, 110));
        for (taken, judgement) in [
            (86, Judgement::Right),
            (109, Judgement::Right),
            (50, Judgement::Right),
            (52, Judgement::Right),
            (100, Judgement::Right),
            (48, Judgement::Recalibrated),
        ] {
            assert_eq!(limit.ended(taken, 5, 16, 2), judgement, "{taken}");
        }
        assert_eq!(limit.bytes(), StageBytes { mean: 50, deviation: 2, least: 48, seen: 3 });
        // What was long ago does not count.
        let mut limit = Limit::new(StageBytes { mean: 100, deviation: 3, least: 95, seen: 20 });
        for _ in 0..10 {
            for taken in [50, 100, 100, 100] {
                assert_eq!(limit.ended(taken, 5, 8, 2), Judgement::Right);
            }
        }
    }
}
