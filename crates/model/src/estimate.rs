//! What a chance is, judged by how often it came true.
//!
//! Invariants:
//! 1. The bounds hold however few trials there were: of none there is no estimate, of few the bounds are far apart.

/// A chance as it was seen, and what it can be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The share of trials in which it came true.
    pub seen: f64,
    /// It is hardly less than this,
    pub at_least: f64,
    /// nor more than this.
    pub at_most: f64,
}

impl Estimate {
    /// The estimate after `trials` trials of which `came_true` came true. One that lies outside the bounds comes up with
    /// a chance of at most `doubt`. `None` before the first trial.
    ///
    /// Chernoff's bounds: a little wider than the exact ones of Clopper and Pearson (by a fifth at a doubt of 1e-4), equal
    /// to them where nothing came true, and without functions that lose their digits at 1e9 trials.
    ///
    /// # Panics
    /// If more came true than were tried, or `doubt` is not between 0 and 1.
    pub fn of(came_true: u64, trials: u64, doubt: f64) -> Option<Estimate> {
        assert!(came_true <= trials, "{came_true} of {trials}");
        assert!(doubt > 0.0 && doubt < 1.0, "{doubt} is no doubt");
        if trials == 0 {
            return None;
        }
        let seen = came_true as f64 / trials as f64;
        let far = (2.0 / doubt).ln() / trials as f64;
        let bound = |mut inside: f64, mut outside: f64| {
            for _ in 0..BISECTIONS {
                let middle = f64::midpoint(inside, outside);
                if distance(seen, middle) <= far {
                    inside = middle;
                } else {
                    outside = middle;
                }
            }
            outside
        };
        Some(Estimate { seen, at_least: bound(seen, 0.0), at_most: bound(seen, 1.0) })
    }
}

/// How unlikely it is to see `seen` where the chance is `chance`: the divergence of Kullback and Leibler, in nats a trial.
fn distance(seen: f64, chance: f64) -> f64 {
    let part = |seen: f64, chance: f64| if seen > 0.0 { seen * (seen / chance).ln() } else { 0.0 };
    part(seen, chance) + part(1.0 - seen, 1.0 - chance)
}

/// Each halves the error: beyond the digits of a double.
const BISECTIONS: usize = 100;

#[cfg(test)]
mod tests {
    use statrs::distribution::{Binomial, DiscreteCDF};

    use super::Estimate;

    fn estimate(came_true: u64, trials: u64) -> Estimate {
        Estimate::of(came_true, trials, DOUBT).expect("it was tried")
    }

    const DOUBT: f64 = 1e-4;

    #[test]
    fn nothing_is_said_of_what_was_never_tried() {
        assert_eq!(Estimate::of(0, 0, DOUBT), None);
        let one = estimate(0, 1);
        assert!(one.at_least == 0.0 && one.at_most > 0.999, "{one:?}");
        let all = estimate(7, 7);
        assert!(all.at_least < 0.5 && all.at_most == 1.0, "{all:?}");
    }

    #[test]
    fn none_of_many_bounds_it_as_exactly_as_can_be() {
        for trials in [10, 1000, 1_000_000] {
            let exact = 1.0 - (DOUBT / 2.0).powf(1.0 / trials as f64);
            let ratio = estimate(0, trials).at_most / exact;
            assert!((0.999_999..1.000_001).contains(&ratio), "{trials}: {ratio}");
        }
    }

    #[test]
    fn what_was_seen_is_as_unlikely_beyond_the_bounds_as_promised() {
        for (came_true, trials) in [(1, 1000), (5, 5000), (300, 1_000_000), (4200, 4_000_000), (50, 100), (1, 2)] {
            let found = estimate(came_true, trials);
            assert!(found.at_least < found.seen && found.seen < found.at_most, "{found:?}");
            let beyond = Binomial::new(found.at_most, trials).expect("a chance").cdf(came_true);
            assert!(beyond <= DOUBT / 2.0, "{came_true} of {trials} at {}: {beyond}", found.at_most);
            let beyond = Binomial::new(found.at_least, trials).expect("a chance").sf(came_true - 1);
            assert!(beyond <= DOUBT / 2.0, "{came_true} of {trials} at {}: {beyond}", found.at_least);
        }
    }

    #[test]
    fn more_trials_bring_the_bounds_together() {
        let width = |trials: u64| {
            let found = estimate(trials / 1000, trials);
            found.at_most / found.at_least
        };
        assert!(width(10_000) > width(1_000_000) && width(4_000_000) < 1.16, "{}", width(4_000_000));
        let many = estimate(1_000_000, 1_000_000_000);
        assert!((many.at_most - 1e-3).abs() < 1e-5 && (many.at_least - 1e-3).abs() < 1e-5, "{many:?}");
    }
}
