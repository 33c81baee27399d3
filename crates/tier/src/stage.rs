//! How many bytes a drive takes in one stage, as it was seen.
//!
//! Invariants:
//! 1. [`StageBytes::limit`] is at most what was seen least, and at most the mean.

use serde::{Deserialize, Serialize};

/// Bytes of a stage: several that were seen, in three numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageBytes {
    /// Mean.
    pub mean: u64,
    /// Standard deviation.
    pub deviation: u64,
    /// The least that was seen.
    pub least: u64,
    /// How many were seen.
    pub seen: u32,
}

impl StageBytes {
    /// Of these; `None` of none.
    pub fn of(bytes: &[u64]) -> Option<StageBytes> {
        let least = *bytes.iter().min()?;
        let count = bytes.len() as f64;
        let mean = bytes.iter().map(|bytes| *bytes as f64).sum::<f64>() / count;
        let variance = bytes.iter().map(|bytes| (*bytes as f64 - mean).powi(2)).sum::<f64>() / count;
        Some(StageBytes {
            mean: mean.round() as u64,
            deviation: variance.sqrt().round() as u64,
            least,
            seen: bytes.len().min(u32::MAX as usize) as u32,
        })
    }

    /// Bytes that the stage takes almost certainly, and no more than the least that was seen.
    ///
    /// Of a buffer of 8 MiB that varies by 5 % either way (a deviation of 2.9 %) that is 91 % of the mean.
    pub fn limit(&self) -> u64 {
        self.mean.saturating_sub(self.doubt()).min(self.least)
    }

    /// Bytes by which the stage has almost certainly ended.
    pub fn most(&self) -> u64 {
        self.mean + self.doubt()
    }

    /// Three deviations; more where few stages were seen, whose mean and deviation are in doubt themselves: 3.9 deviations of 10
    /// stages, as it takes to have 99 in a hundred of a normal distribution with 95 % confidence.
    fn doubt(&self) -> u64 {
        3 * self.deviation + 9 * self.deviation / u64::from(self.seen.max(1))
    }

    /// Whether the stages that were seen are alike: a deviation of less than a third of the mean.
    pub fn is_regular(&self) -> bool {
        self.seen >= 2 && self.deviation.saturating_mul(3) < self.mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_below_all_that_was_seen() {
        assert_eq!(StageBytes::of(&[]), None);
        let stage = StageBytes::of(&[90, 110, 100, 100]).expect("some");
        assert_eq!(stage, StageBytes { mean: 100, deviation: 7, least: 90, seen: 4 });
        // 21 for three deviations, 15 because they are of four stages only.
        assert_eq!((stage.limit(), stage.most(), stage.is_regular()), (64, 136, true));
        // An outlier counts though the deviation is small.
        let many: Vec<u64> = std::iter::repeat_n(1000, 99).chain([600]).collect();
        let stage = StageBytes::of(&many).expect("some");
        assert!(stage.limit() <= 600, "{stage:?}");
        // What varies more than it is takes nothing for certain.
        let stage = StageBytes::of(&[10, 1000, 20, 30]).expect("some");
        assert_eq!((stage.limit(), stage.is_regular()), (0, false));
    }
}
