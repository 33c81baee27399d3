//! What the operator decided about upkeep.
//!
//! Invariants:
//! 1. A [`Keeper`](crate::Keeper) exists only with settings that passed [`Settings::check`].

use std::time::Duration;

/// Settings of upkeep: plain data, checked once.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// A disk that has not answered for this long counts as gone: its chunks are rebuilt elsewhere.
    pub absent_after: Duration,
    /// Stripes that are rebuilt or moved at once, and conversions carried out at once; at least 1.
    pub repair_concurrency: usize,
    /// Share of the time that repair and drain take while clients are busy, above 0 and up to 1. Without clients they
    /// take all.
    pub repair_share: f64,
    /// The same for reading back what is not known to be wrong.
    pub scrub_share: f64,
    /// Bytes per second that background work reads and writes at most, all of it together; `None`: no limit.
    pub bytes_per_second_max: Option<u64>,
    /// Every stripe is read back whole at least this often.
    pub scrub_cycle: Duration,
    /// A new stripe is verified when it is this old. Many objects are deleted or replaced within their first minute.
    pub verify_after: Duration,
    /// A dead stripe's chunks stay this long after they were first seen dead. Reads of this process that are under way need none of
    /// it: they are waited for in any case.
    pub reclaim_after: Duration,
    /// Each disk is searched this often for chunks that no record names. It also happens at the start and
    /// when a disk returns.
    pub sweep_every: Duration,
    /// Incomplete multipart uploads older than this are aborted; `None`: never, as in S3.
    pub upload_age_max: Option<Duration>,
    /// How often buckets with a policy are looked at.
    pub convert_every: Duration,
    /// A stripe is converted when it is this old, so that reads had time to show, and upkeep has run for as long or for `heat_every`.
    pub convert_after: Duration,
    /// Stripes of a bucket that are looked at at once: some 600 bytes of memory each. Of a larger bucket the next ones are looked
    /// at the next time.
    pub look_stripes_max: usize,
    /// How often the heat of stripes is written to the records: what was counted since is lost in a crash.
    pub heat_every: Duration,
    /// First pause after a failed attempt at a stripe; each further failure doubles it.
    pub retry_min: Duration,
    /// Longest pause between attempts at a stripe.
    pub retry_max: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            absent_after: Duration::from_secs(10 * 60),
            repair_concurrency: 2,
            repair_share: 0.3,
            scrub_share: 0.1,
            bytes_per_second_max: None,
            scrub_cycle: Duration::from_secs(14 * DAY_SECONDS),
            verify_after: Duration::from_secs(60),
            reclaim_after: Duration::from_secs(60),
            sweep_every: Duration::from_secs(6 * 60 * 60),
            upload_age_max: None,
            convert_every: Duration::from_secs(60),
            convert_after: Duration::from_secs(60 * 60),
            look_stripes_max: 1 << 17,
            heat_every: Duration::from_secs(5 * 60),
            retry_min: Duration::from_secs(30),
            retry_max: Duration::from_secs(60 * 60),
        }
    }
}

impl Settings {
    /// Checks each setting against its limits.
    ///
    /// # Errors
    /// The first setting that is outside its limits.
    pub fn check(&self) -> Result<(), SettingsError> {
        if self.repair_concurrency == 0 || self.repair_concurrency > REPAIR_CONCURRENCY_MAX {
            return Err(SettingsError::Concurrency { given: self.repair_concurrency, most: REPAIR_CONCURRENCY_MAX });
        }
        for (name, share) in [("repair_share", self.repair_share), ("scrub_share", self.scrub_share)] {
            if !(SHARE_MIN..=1.0).contains(&share) {
                return Err(SettingsError::Share { name, given: share, least: SHARE_MIN });
            }
        }
        if self.bytes_per_second_max == Some(0) {
            return Err(SettingsError::NoBytes);
        }
        if self.look_stripes_max == 0 {
            return Err(SettingsError::NoStripes);
        }
        let intervals = [self.scrub_cycle, self.sweep_every, self.retry_min, self.convert_every, self.heat_every];
        if intervals.iter().any(Duration::is_zero) {
            return Err(SettingsError::ZeroInterval);
        }
        if self.retry_max < self.retry_min {
            return Err(SettingsError::RetryOrder { min: self.retry_min, max: self.retry_max });
        }
        Ok(())
    }
}

/// A setting outside its limits.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SettingsError {
    /// `repair_concurrency`.
    #[error("repair_concurrency must be 1 to {most}, it is {given}")]
    Concurrency {
        /// Given.
        given: usize,
        /// Limit.
        most: usize,
    },
    /// `repair_share` or `scrub_share`.
    #[error("{name} must be {least} to 1, it is {given}")]
    Share {
        /// Which.
        name: &'static str,
        /// Given.
        given: f64,
        /// Limit.
        least: f64,
    },
    /// `bytes_per_second_max`.
    #[error("bytes_per_second_max must be at least 1; leave it out for no limit")]
    NoBytes,
    /// A look at nothing never comes to an end.
    #[error("look_stripes_max must be at least 1")]
    NoStripes,
    /// An interval of no length would be a busy loop.
    #[error("scrub_cycle, sweep_every, retry_min, convert_every and heat_every must be longer than 0")]
    ZeroInterval,
    /// `retry_min` and `retry_max`.
    #[error("retry_max ({max:?}) must be at least retry_min ({min:?})")]
    RetryOrder {
        /// Given.
        min: Duration,
        /// Given.
        max: Duration,
    },
}

const DAY_SECONDS: u64 = 24 * 60 * 60;
const REPAIR_CONCURRENCY_MAX: usize = 64;
// At 1 % a rebuild of one hour takes four days: less is no repair.
const SHARE_MIN: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_pass_and_each_limit_is_checked() {
        assert_eq!(Settings::default().check(), Ok(()));
        let broken = [
            Settings { repair_concurrency: 0, ..Settings::default() },
            Settings { repair_share: 0.0, ..Settings::default() },
            Settings { repair_share: f64::NAN, ..Settings::default() },
            Settings { repair_share: 1.5, ..Settings::default() },
            Settings { scrub_share: 0.0, ..Settings::default() },
            Settings { bytes_per_second_max: Some(0), ..Settings::default() },
            Settings { look_stripes_max: 0, ..Settings::default() },
            Settings { scrub_cycle: Duration::ZERO, ..Settings::default() },
            Settings { convert_every: Duration::ZERO, ..Settings::default() },
            Settings { heat_every: Duration::ZERO, ..Settings::default() },
            Settings { retry_max: Duration::from_secs(1), ..Settings::default() },
        ];
        for settings in broken {
            assert!(settings.check().is_err(), "{settings:?}");
        }
    }
}
