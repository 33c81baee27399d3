//! What a device was seen to take, and what follows for a sector that does not read at once: it is decoded, or retried.
//!
//! Decoding reads the rest of a group. Of 255 sectors that is 9 ms of a hard disk and of 1023 it is 34, where a retry takes 20 to 30.
//! So a group may be so long that whoever wants little of it had better wait for the retry, once it is known how long that is.
//!
//! Invariants:
//! 1. The plans are pure: they know what was seen of the device, and nothing of what it is.
//! 2. Until a retry was timed, sectors are decoded, but for the first one whose decoding would take [`TRIED_SECTORS`] sectors or
//!    more: that is retried, to time it.
//! 3. A sector that the device gave up on counts as a retry of that length. A few seconds are enough for no retry to be chosen
//!    again, until the device is opened anew.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use claystone_env::Effort;

/// What a device was seen to take, as moving means.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pace {
    /// Of a long read, each sector; `None` before there was one.
    pub sector: Option<Duration>,
    /// Reading a sector again that had failed, and what the device did first; `None` before there was one.
    pub retry: Option<Duration>,
}

/// How sectors that failed softly are had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mending {
    /// From the rest of their group.
    Decode,
    /// Each by another read of it.
    Retry,
}

impl Pace {
    /// What is done about `failed` sectors of a group, where `fetched` more are to be read to decode them.
    ///
    /// # Panics
    /// If none failed.
    // Source: [lec §3.1]. Differs: the paper retries only what cannot be decoded.
    pub fn plan_mending(&self, failed: u64, fetched: u64) -> Mending {
        assert!(failed > 0, "nothing to be mended");
        self.plan(failed as f64, fetched)
    }

    /// How `wanted` sectors are read, of which each fails with the chance `soft` if that is known, and where `fetched` more would be
    /// read to decode what fails: with [`Effort::Retry`] the device retries while its head is there.
    pub fn plan_effort(&self, wanted: u64, fetched: u64, soft: Option<f64>) -> Effort {
        if self.retry.is_none() {
            return Effort::FailFast;
        }
        match self.plan(failed_if_any(wanted, soft.unwrap_or(0.0)), fetched) {
            Mending::Decode => Effort::FailFast,
            Mending::Retry => Effort::Retry,
        }
    }

    fn plan(&self, failed: f64, fetched: u64) -> Mending {
        let is_cheaper = match (self.sector, self.retry) {
            (Some(sector), Some(retry)) => failed * retry.as_secs_f64() < fetched as f64 * sector.as_secs_f64(),
            (Some(_), None) => fetched >= TRIED_SECTORS,
            (None, _) => false,
        };
        if is_cheaper { Mending::Retry } else { Mending::Decode }
    }
}

/// How many of so many sectors fail, if any does.
fn failed_if_any(sectors: u64, soft: f64) -> f64 {
    let any = 1.0 - (1.0 - soft).powf(sectors as f64);
    if any > 0.0 { (sectors as f64 * soft / any).max(1.0) } else { 1.0 }
}

/// Takes the times of a device. Any number of threads may call it at once.
#[derive(Debug, Default)]
pub(crate) struct PaceMeter {
    pace: Mutex<Pace>,
    retrying: AtomicU64,
}

impl PaceMeter {
    /// What was seen so far.
    pub fn pace(&self) -> Pace {
        *self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A read of so many sectors took so long.
    pub fn note_read(&self, sectors: usize, took: Duration) {
        if sectors >= LONG_SECTORS {
            let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
            pace.sector = Some(moved(pace.sector, took / sectors as u32));
        }
    }

    /// Retrying a sector took so long, whatever came of it.
    pub fn note_retry(&self, took: Duration) {
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.retry = Some(moved(pace.retry, took));
    }

    /// Whether a read that is to be retried at once is done so: one in a few is not, so that the chance of a failure and the time
    /// of a retry are known on.
    pub fn retries_at_once(&self) -> bool {
        !(self.retrying.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(SEEN_SHARE)
    }
}

fn moved(mean: Option<Duration>, sample: Duration) -> Duration {
    match mean {
        Some(mean) => (mean * (WEIGHT - 1) + sample) / WEIGHT,
        None => sample,
    }
}

/// A retry that nobody has timed is tried instead of reading so many sectors: as disks have them that nobody said anything about,
/// groups have 255.
pub const TRIED_SECTORS: u64 = 512;
/// Sectors of a read from which on its time tells what a sector takes: 2 ms of a hard disk, as long as some seeks.
const LONG_SECTORS: usize = 64;
/// A sample counts for one in so many.
const WEIGHT: u32 = 8;
/// One in so many reads that would be retried at once is not.
const SEEN_SHARE: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn pace(sector_us: u64, retry_ms: u64) -> Pace {
        Pace { sector: Some(Duration::from_micros(sector_us)), retry: Some(ms(retry_ms)) }
    }

    #[test]
    fn what_takes_less_is_done() {
        // 1018 sectors of 33 us take 33.6 ms, 250 take 8.3.
        assert_eq!(pace(33, 28).plan_mending(1, 1018), Mending::Retry);
        assert_eq!(pace(33, 28).plan_mending(2, 1018), Mending::Decode);
        assert_eq!(pace(33, 28).plan_mending(1, 250), Mending::Decode);
        assert_eq!(pace(33, 48).plan_mending(1, 1018), Mending::Decode);
        assert_eq!(pace(33, 1).plan_mending(1, 0), Mending::Decode, "nothing is read to decode");
    }

    #[test]
    fn a_retry_is_timed_once_where_decoding_takes_long() {
        let untimed = Pace { sector: Some(Duration::from_micros(33)), retry: None };
        assert_eq!(untimed.plan_mending(1, TRIED_SECTORS), Mending::Retry);
        assert_eq!(untimed.plan_mending(1, TRIED_SECTORS - 1), Mending::Decode);
        assert_eq!(untimed.plan_effort(1, 1018, None), Effort::FailFast);
        let nothing = Pace::default();
        assert_eq!(nothing.plan_mending(1, 1018), Mending::Decode);
        assert_eq!(nothing.plan_effort(1, 1018, None), Effort::FailFast);
    }

    #[test]
    fn few_sectors_of_a_long_group_are_retried_at_once() {
        assert_eq!(pace(33, 28).plan_effort(16, 1007, Some(1e-3)), Effort::Retry);
        assert_eq!(pace(33, 28).plan_effort(16, 239, Some(1e-3)), Effort::FailFast);
        assert_eq!(pace(33, 28).plan_effort(500, 523, None), Effort::FailFast);
        // So many fail that they are decoded together.
        assert_eq!(pace(33, 28).plan_effort(100, 923, Some(1e-3)), Effort::Retry);
        assert_eq!(pace(33, 28).plan_effort(100, 923, Some(1e-2)), Effort::FailFast);
    }

    #[test]
    fn a_sector_that_was_given_up_ends_all_retries() {
        let meter = PaceMeter::default();
        meter.note_read(1018, ms(38));
        meter.note_retry(ms(28));
        assert_eq!(meter.pace().plan_mending(1, 1018), Mending::Retry);
        meter.note_retry(ms(7000));
        assert_eq!(meter.pace().plan_mending(1, 1018), Mending::Decode);
    }

    #[test]
    fn short_reads_say_nothing_of_a_sector_and_long_ones_move_the_mean() {
        let meter = PaceMeter::default();
        meter.note_read(LONG_SECTORS - 1, ms(20));
        assert_eq!(meter.pace(), Pace::default());
        meter.note_read(100, ms(8));
        meter.note_read(100, ms(16));
        assert_eq!(meter.pace().sector, Some(Duration::from_micros(90)));
        assert_eq!((0..160).filter(|_| meter.retries_at_once()).count(), 150);
    }

    #[test]
    fn of_many_sectors_more_than_one_fails() {
        assert_eq!(failed_if_any(1, 0.5), 1.0);
        assert_eq!(failed_if_any(1000, 0.0), 1.0);
        assert!((failed_if_any(1000, 1e-3) - 1.582).abs() < 1e-3);
    }
}
