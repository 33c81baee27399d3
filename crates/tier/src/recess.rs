//! How long a hard disk whose predictor has given it up is left alone, before it is put on trial.
//!
//! Invariants:
//! 1. Each time twice as long as the time before, up to a day; from a minute on again once it was believed for as long as it was left alone. So
//!    one that shows no stages is padded ever less often, and one that is believed and given up in turns too.

use std::time::Duration;

use claystone_env::Moment;

use crate::predictor::Trust;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recess {
    wait: Duration,
    given_up: Option<Moment>,
    believed: Option<Moment>,
}

impl Recess {
    /// Whether the drive is to be put on trial now, of which the predictor thinks so.
    pub fn is_over(&mut self, trust: Trust, now: Moment) -> bool {
        match trust {
            Trust::OnTrial => false,
            Trust::Believed => {
                self.believed.get_or_insert(now);
                false
            }
            Trust::GivenUp => {
                let since = self.given_up.unwrap_or_else(|| self.begin(now));
                let is_over = now.since(since) >= self.wait;
                self.given_up = Some(since).filter(|_| !is_over);
                is_over
            }
        }
    }

    fn begin(&mut self, now: Moment) -> Moment {
        let is_proved = self.believed.take().is_some_and(|believed| now.since(believed) >= self.wait);
        self.wait = if is_proved { WAIT_MIN } else { (self.wait * 2).clamp(WAIT_MIN, WAIT_MAX) };
        now
    }
}

/// A host that was busy for a while may be the cause.
const WAIT_MIN: Duration = Duration::from_secs(60);
const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    /// Seconds until it is over, of a drive that is given up now.
    fn lasts(recess: &mut Recess, now: &mut u64) -> u64 {
        let begun = *now;
        while !recess.is_over(Trust::GivenUp, at(*now)) {
            *now += 1;
        }
        *now - begun
    }

    #[test]
    fn it_lasts_twice_as_long_each_time_up_to_a_day() {
        let (mut recess, mut now) = (Recess::default(), 100);
        let lasted: Vec<u64> = (0..14).map(|_| lasts(&mut recess, &mut now)).collect();
        assert_eq!(lasted[..5], [60, 120, 240, 480, 960]);
        assert_eq!(lasted[11..], [86400, 86400, 86400]);
    }

    #[test]
    fn a_drive_that_is_believed_in_between_waits_longer_unless_it_is_for_long() {
        let (mut recess, mut now) = (Recess::default(), 100);
        let mut lasted = Vec::new();
        for believed in [0, 59, 119, 240, 59, 10] {
            lasted.push(lasts(&mut recess, &mut now));
            // A trial says nothing, however long it is.
            assert!(!recess.is_over(Trust::OnTrial, at(now)));
            now += 10_000;
            assert!(!recess.is_over(Trust::Believed, at(now)));
            now += believed;
        }
        assert_eq!(lasted, [60, 120, 240, 480, 960, 1920], "none was believed for as long");
        now += 2000;
        assert_eq!(lasts(&mut recess, &mut now), 60);
    }
}
