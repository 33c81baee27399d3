//! A distribution over finitely many values, such as the times that a read may take.
//!
//! Invariants:
//! 1. Values ascend, each with a chance above 0.

use statrs::distribution::{Binomial, Discrete};

/// Values and their chances.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Value and chance, ascending by value.
    points: Vec<(f64, f64)>,
}

impl Distribution {
    /// From values with chances, in any order; chances of one value may be several, and their sum is 1.
    pub fn new(mut points: Vec<(f64, f64)>) -> Self {
        points.retain(|(_, chance)| *chance > 0.0);
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self { points }
    }

    /// The least value that at least `share` of all outcomes do not exceed.
    ///
    /// # Panics
    /// If `share` is not between 0 and 1.
    pub fn quantile(&self, share: f64) -> f64 {
        assert!((0.0..1.0).contains(&share), "{share} is no share");
        let mut sum = 0.0;
        let reached = |(_, chance): &&(f64, f64)| {
            sum += chance;
            sum >= share
        };
        let (value, _) = self.points.iter().find(reached).or(self.points.last()).expect("no distribution is empty");
        *value
    }

    /// The mean.
    pub fn mean(&self) -> f64 {
        self.points.iter().map(|(value, chance)| value * chance).sum()
    }
}

/// The chances of 0, 1, 2, .. of `count` things that each happen with chance `chance`, up to where the rest is negligible.
pub(crate) fn counts(count: u64, chance: f64) -> Vec<f64> {
    let binomial = Binomial::new(chance, count).expect("a chance is from 0 to 1");
    let mut chances = Vec::new();
    let mut sum = 0.0;
    for happened in 0..=count {
        let of_these = binomial.pmf(happened);
        chances.push(of_these);
        sum += of_these;
        if 1.0 - sum < NEGLIGIBLE && happened as f64 > count as f64 * chance {
            break;
        }
    }
    chances
}

/// The chances of the sums of two counts.
pub(crate) fn add(a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut sums = vec![0.0; a.len() + b.len() - 1];
    for (i, a) in a.iter().enumerate() {
        for (j, b) in b.iter().enumerate() {
            sums[i + j] += a * b;
        }
    }
    let mut left = 0.0;
    while sums.len() > 1 && left + sums[sums.len() - 1] < NEGLIGIBLE {
        left += sums.pop().expect("more than one");
    }
    sums
}

/// The chances of the sum of `times` counts that are distributed alike.
pub(crate) fn repeat(counts: &[f64], mut times: u64) -> Vec<f64> {
    let (mut sum, mut power) = (vec![1.0], counts.to_vec());
    while times > 0 {
        if times % 2 == 1 {
            sum = add(&sum, &power);
        }
        power = add(&power, &power);
        times /= 2;
    }
    sum
}

/// What chances below this add up to changes no figure that is printed.
const NEGLIGIBLE: f64 = 1e-14;

#[cfg(test)]
mod tests {
    use super::{Distribution, add, counts, repeat};

    #[test]
    fn quantiles_and_mean() {
        let distribution = Distribution::new(vec![(3.0, 0.25), (1.0, 0.5), (2.0, 0.25), (9.0, 0.0)]);
        assert_eq!([0.0, 0.5, 0.51, 0.75, 0.76].map(|share| distribution.quantile(share)), [1.0, 1.0, 2.0, 2.0, 3.0]);
        assert_eq!(distribution.mean(), 1.75);
    }

    #[test]
    fn repeated_counts_are_counts_of_more() {
        let (some, more) = (counts(50, 0.01), counts(350, 0.01));
        let sum = repeat(&some, 7);
        for (a, b) in sum.iter().zip(&more) {
            assert!((a - b).abs() < 1e-12, "{a} {b}");
        }
        assert_eq!(add(&[0.5, 0.5], &[0.5, 0.5]), [0.25, 0.5, 0.25]);
        assert_eq!(repeat(&some, 0), [1.0]);
    }
}
