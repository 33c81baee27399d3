//! What writers pay while the reserve is nearly used up: time for each byte, at the speed of merging.
//!
//! ```text
//!  share of the reserve used                    75 %      82.5 %     90 %      100 %     115 %     135 %
//!  price: bytes merged for a byte written   0   0         1/4        1         2.8       7         16      16
//! ```
//!
//! Writers pass one after another, and each waits for as long as merging takes for what his bytes cost now. So they come down
//! to the speed of merging as the reserve fills, whatever their writes are long and however many are under way, and the share
//! that is used settles near 90 %: a segment gives its room back when all of it is merged, and nobody waits for that.
//!
//! Invariants:
//! 1. While something is merged somebody passes; up to [`HELP_UNTIL_PERCENT`] one passes every [`TOLL_MAX`], also while nothing is
//!    merged for a moment.
//! 2. Beyond that no more is let in than a part of what is merged, so the log grows no further but by what merges write.
//! 3. Where nothing can be merged, from 100 % on who brings no help is refused, and none at all beyond
//!    [`HELP_UNTIL_PERCENT`]; but for who just was refused, only after a round of merging was in vain that began when the log was that full:
//!    it may have carried something over.
//! 4. Discards take no room in the log and pay as for a page, but each page of them is a diff in memory: beyond
//!    [`HELP_UNTIL_PERCENT`] they wait until enough is merged.
//!
//! The speed of merging is measured while somebody waits, from one release of diffs to another.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use claystone_env::{Moment, timeout};

use crate::BlocksError;
use crate::flusher::SLOW_FROM_PERCENT;
use crate::volume::Inner;

/// Where writers pay.
#[derive(Debug, Default)]
pub(crate) struct Toll {
    gatekeeper: tokio::sync::Mutex<Gatekeeper>,
    /// Bytes of those who are before it, or wait to be.
    waiting_bytes: AtomicU64,
    /// When somebody last had to wait, and how many bytes did then.
    waited: Mutex<Option<(Moment, u64)>>,
}

/// A writer of so many bytes before the gatekeeper, until this is dropped.
struct Waiting<'a>(&'a Toll, u64);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting_bytes.fetch_sub(self.1, Ordering::Relaxed);
    }
}

impl Toll {
    /// How many bytes had to wait a moment ago: merging is what their writers wait for. 0: nobody waits.
    pub(crate) fn held_up_bytes(&self, now: Moment) -> u64 {
        let waited = *self.waited.lock().unwrap_or_else(PoisonError::into_inner);
        waited.filter(|(at, _)| now.since(*at) < LATELY).map_or(0, |(_, bytes)| bytes)
    }

    /// Whether somebody had to wait a moment ago.
    pub(crate) fn holds_up(&self, now: Moment) -> bool {
        self.held_up_bytes(now) > 0
    }

    fn begin(&self, bytes: u64) -> Waiting<'_> {
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        Waiting(self, bytes)
    }

    fn note_wait(&self, now: Moment) {
        let bytes = self.waiting_bytes.load(Ordering::Relaxed);
        *self.waited.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, bytes));
    }
}

/// Whoever has it passes next.
#[derive(Debug, Default)]
struct Gatekeeper {
    /// Up to when what has passed is paid for.
    paid_until: Moment,
    speed: Speed,
    /// When a writer was last refused.
    refused: Option<Moment>,
}

/// How fast diffs are released, in bytes of their pages.
#[derive(Debug, Default)]
struct Speed {
    bytes_per_second: Option<f64>,
    /// Since when it is measured, and what was released by then.
    since: Moment,
    released: u64,
    looked: Moment,
}

impl Inner {
    /// Lets a writer of so many bytes go on when there is room for them. `helps`: what he writes may let something be merged.
    ///
    /// # Errors
    /// `NoSpace`: the reserve is full and cannot be merged, since disks or parts of stripes are missing.
    pub(crate) async fn admit(&self, bytes: u64, helps: impl Fn() -> bool) -> Result<(), BlocksError> {
        self.records.fetch_add(1, Ordering::Relaxed);
        if self.used_and_wanted() < SLOW_FROM_PERCENT {
            return Ok(());
        }
        let may_help = |used| used < HELP_UNTIL_PERCENT && helps();
        if self.is_used_up(self.used_percent()) && may_help(self.used_percent()) {
            return Ok(());
        }
        let _waiting = self.toll.begin(bytes);
        let mut gatekeeper = self.toll.gatekeeper.lock().await;
        gatekeeper.next(self.env.clock.now());
        // Since when nothing could be merged, and how many verdicts there had been.
        let mut used_up: Option<(Moment, u64)> = None;
        loop {
            let merged = self.merge_ended.notified();
            let used = self.used_and_wanted();
            // Who finds a failure meets it when he writes.
            if used < SLOW_FROM_PERCENT || self.has_failed() {
                return Ok(());
            }
            let now = self.env.clock.now();
            if self.is_used_up(used) {
                if may_help(used) {
                    return Ok(());
                }
                let verdicts = self.verdicts.load(Ordering::Acquire);
                let (since, before) = *used_up.get_or_insert((now, verdicts));
                let was_refused = gatekeeper.refused.is_some_and(|at| now.since(at) < REFUSED_LATELY);
                // The first of two rounds may have begun before the log was full.
                let is_certain = verdicts >= before + 2 || now.since(since) >= VERDICT_WAIT;
                if was_refused || is_certain {
                    gatekeeper.refused = Some(now);
                    return Err(BlocksError::NoSpace { needed_bytes: self.geometry.page_bytes.into(), free_bytes: 0 });
                }
                timeout(&*self.env.clock, LOOK_AGAIN, merged).await;
                continue;
            }
            used_up = None;
            let released = self.diffs().released() * u64::from(self.geometry.page_bytes);
            match gatekeeper.wait(now, bytes, used, released) {
                Duration::ZERO => return Ok(()),
                // Prices change.
                wait => {
                    self.toll.note_wait(now);
                    self.env.clock.sleep(wait.min(LOOK_AGAIN)).await;
                }
            }
        }
    }

    /// Lets a discard of pages of one stripe go on when there is room for it.
    ///
    /// # Errors
    /// As [`Inner::admit`].
    pub(crate) async fn admit_discard(&self) -> Result<(), BlocksError> {
        let bytes = self.geometry.page_bytes.into();
        let waiting = self.toll.begin(bytes);
        loop {
            let merged = self.merge_ended.notified();
            let is_waited_for = !self.is_stuck.load(Ordering::Acquire) && !self.has_failed();
            if self.used_and_wanted() < HELP_UNTIL_PERCENT || !is_waited_for {
                break;
            }
            self.toll.note_wait(self.env.clock.now());
            timeout(&*self.env.clock, LOOK_AGAIN, merged).await;
        }
        drop(waiting);
        self.admit(bytes, || true).await
    }

    /// Whether nobody without help goes on at this share of the reserve.
    fn is_used_up(&self, used_percent: u64) -> bool {
        used_percent >= 100 && self.is_stuck.load(Ordering::Acquire)
    }

    /// The share of the reserve that is used; merging is told if it is due.
    fn used_and_wanted(&self) -> u64 {
        let used = self.used_percent();
        if used >= self.settings.merge_from_percent {
            self.merge_wanted.notify_one();
        }
        used
    }
}

impl Gatekeeper {
    /// The next one begins to wait.
    fn next(&mut self, now: Moment) {
        self.paid_until = self.paid_until.max(Moment(now.0.saturating_sub(CREDIT)));
    }

    /// How long who writes so many bytes has to wait yet; if not at all he has passed.
    fn wait(&mut self, now: Moment, bytes: u64, used_percent: u64, released: u64) -> Duration {
        let speed = self.speed.look(now, released);
        let due = self.paid_until.after(toll(bytes, used_percent, speed));
        let wait = due.since(now);
        if wait < SLEEP_MIN {
            self.paid_until = due;
            return Duration::ZERO;
        }
        wait
    }
}

impl Speed {
    /// Bytes a second, as measured lately. `released`: in all, up to now.
    fn look(&mut self, now: Moment, released: u64) -> f64 {
        let was_looked_at = now.since(self.looked) < WINDOW_MAX;
        self.looked = now;
        let (elapsed, merged) = (now.since(self.since), released.saturating_sub(self.released));
        if !was_looked_at {
            // Nobody has waited since, so merging may have rested.
            (self.since, self.released) = (now, released);
        } else if (elapsed >= WINDOW && merged > 0) || elapsed >= WINDOW_MAX {
            let latest = merged as f64 / elapsed.as_secs_f64();
            let before = self.bytes_per_second.unwrap_or(latest);
            self.bytes_per_second = Some((before + latest) / 2.0);
            (self.since, self.released) = (now, released);
        }
        self.bytes_per_second.unwrap_or(SPEED_AT_FIRST)
    }
}

/// How long merging takes for what these bytes cost.
fn toll(bytes: u64, used_percent: u64, bytes_per_second: f64) -> Duration {
    let price = price(used_percent);
    let seconds = bytes as f64 * price / bytes_per_second.max(1.0);
    // Where there is room nobody waits long for a merge that rests.
    let most = if used_percent < HELP_UNTIL_PERCENT { TOLL_MAX.mul_f64(price.min(1.0).powi(2)) } else { TOLL_BEYOND };
    most.min(Duration::from_secs_f64(seconds.min(TOLL_BEYOND.as_secs_f64())))
}

/// Bytes that are merged for each byte that is written.
fn price(used_percent: u64) -> f64 {
    let over = used_percent.saturating_sub(SLOW_FROM_PERCENT) as f64 / LIKE_MERGING_OVER;
    (over * over).min(PRICE_MAX)
}

/// What may bring help is let in up to here.
const HELP_UNTIL_PERCENT: u64 = 125;
/// So far beyond [`SLOW_FROM_PERCENT`] writers are as fast as merging.
const LIKE_MERGING_OVER: f64 = 15.0;
const PRICE_MAX: f64 = 16.0;
const TOLL_MAX: Duration = Duration::from_millis(500);
const TOLL_BEYOND: Duration = Duration::from_secs(3600);
/// Timers are not finer: shorter waits are owed to those who come next.
const SLEEP_MIN: Duration = Duration::from_millis(2);
/// Time in which nobody passed counts as paid up to here.
const CREDIT: Duration = Duration::from_millis(20);
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Somebody who waited so long ago may be followed by another one.
const LATELY: Duration = Duration::from_millis(250);
/// Who comes so soon behind one who was refused is refused at once.
const REFUSED_LATELY: Duration = Duration::from_millis(200);
/// How long a writer waits until it is certain that nothing can be merged.
const VERDICT_WAIT: Duration = Duration::from_secs(2);
/// The speed is measured over so much time at least, and at most if nothing is released.
const WINDOW: Duration = Duration::from_millis(250);
const WINDOW_MAX: Duration = Duration::from_secs(2);
/// Until it is measured.
const SPEED_AT_FIRST: f64 = (32 << 20) as f64;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn at(ms: u64) -> Moment {
        Moment(Duration::from_millis(ms))
    }

    #[test]
    fn prices_rise_without_a_step_to_an_end() {
        assert_eq!([74, 75, 90, 105, 200].map(price), [0.0, 0.0, 1.0, 4.0, 16.0]);
        for used in 75..140 {
            let (low, high) = (price(used), price(used + 1));
            assert!(low <= high && high - low < 0.6, "{used}: {low} {high}");
        }
        // 1 MiB/s: at 90 % a page of 8 KiB takes 8 ms, and nothing takes longer than the half second.
        let tolls = [75, 90, 100, 124].map(|used| toll(8192, used, MIB as f64).as_micros());
        assert_eq!(tolls, [0, 7812, 21701, 83368]);
        assert_eq!(toll(MIB, 100, MIB as f64), TOLL_MAX);
        assert_eq!(toll(MIB, 124, 0.0), TOLL_MAX);
        assert_eq!(toll(MIB, 200, 0.0), TOLL_BEYOND);
        assert!(toll(MIB, 80, 0.0) < Duration::from_millis(10), "there is room");
    }

    #[test]
    fn writers_pass_at_the_speed_of_merging_however_many_they_are() {
        for (bytes, used, per_second) in [(8192, 90, 128), (4096, 90, 256), (8192, 105, 32), (MIB, 90, 2)] {
            let mut gatekeeper = Gatekeeper::default();
            gatekeeper.speed.bytes_per_second = Some(MIB as f64);
            let mut passed = 0;
            for ms in 0..10_000 {
                // Merging releases as much in each tenth of a second.
                let released = ms / 100 * (MIB / 10);
                while gatekeeper.wait(at(ms), bytes, used, released) == Duration::ZERO {
                    passed += 1;
                    gatekeeper.next(at(ms));
                }
            }
            let expected = 10 * per_second;
            assert!((expected * 9 / 10..=expected * 11 / 10 + 1).contains(&passed), "{bytes} at {used} %: {passed}");
        }
    }

    #[test]
    fn the_speed_is_that_of_what_was_merged_lately() {
        let mut speed = Speed::default();
        assert_eq!(speed.look(at(100_000), 50 * MIB), SPEED_AT_FIRST);
        assert_eq!(speed.look(at(100_100), 51 * MIB), SPEED_AT_FIRST, "that is too soon to tell");
        assert_eq!(speed.look(at(100_500), 51 * MIB), (2 * MIB) as f64);
        // A batch in each second.
        for second in 1..20 {
            speed.look(at(100_500 + 1000 * second - 500), (50 + second) * MIB);
            speed.look(at(100_500 + 1000 * second), (51 + second) * MIB);
        }
        let now = speed.look(at(119_600), 70 * MIB);
        assert!((now - MIB as f64).abs() < 1e5, "{now}");
        // What comes after a rest is not measured over the rest.
        assert_eq!(speed.look(at(1_000_000), 71 * MIB), now);
        assert_eq!(speed.look(at(1_000_100), 71 * MIB), now);
        // While nothing is merged it falls.
        for second in 0..10 {
            speed.look(at(1_001_000 + 1000 * second), 71 * MIB);
        }
        assert!(speed.look(at(1_011_000), 71 * MIB) < now / 8.0);
    }
}
