//! When a volume is merged.
//!
//! ```text
//!  share of the reserve used   0 %        merge_from        75 %               100 %                         125 %
//!  merging                      when idle  |  always          always             always                        always
//!  a writer                     goes on       goes on         pays (crate::toll) pays; refused if nothing can  the same
//!                                                                                be merged
//!  one who may bring help       goes on       goes on         pays               pays; goes on if nothing can  the same;
//!                                                                                be merged                     refused
//!  a discard                    goes on       goes on         pays for a page    the same                      waits;
//!                                                                                                              refused
//! ```
//!
//! Nothing can be merged where disks or parts of stripes are missing, or stripes are held by others for longer than the
//! timeout. Help is a discard, or whole pages of stripes with diffs that wait: it may be what is lost that they bring back.
//!
//! Every 10 s, and at once when what they get was set, stripes are given the form that fits how much they are written
//! ([`crate::switch`]). Where merging is due room in the log comes first: between two of its rounds one or two stripes are, which takes a
//! fifth of the time at most; from 100 % on none is.
//!
//! As often, chunks that lie elsewhere are brought home ([`crate::homes`]), while merging is not due.
//!
//! Both keep merges waiting while they read and write new chunks. On a disk that hardly answers that may take long: what has not come to its
//! end when the reserve is used up, or after a few seconds while writers wait, is given up, and merging goes on.
//!
//! A log on disks that take no writes, or that misses copies, is looked after meanwhile ([`crate::tending`]).
//!
//! Between its rounds merging rests while somebody writes, twice as long as a round where it begins, and from 75 % on not at
//! all; what somebody asks for goes the same way. Its steps are short, one at a time, and begin between writes, for which they
//! wait less and less too ([`crate::pace`]); its records in the log are short: no writer waits long for it. While writers
//! wait for it at the toll it begins no rest, and does not give way.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use claystone_env::{Env, Moment, Task, timeout};
use claystone_stripe::Member;
use futures::FutureExt;
use futures::future::{Either, select};

use crate::diffs::Diffs;
use crate::tending::{Situation, Tending};
use crate::volume::{Inner, Volume};
use crate::{BlocksError, MergeReport};

/// Starts the task that merges a volume until it is cancelled, or the volume fails or is gone.
pub(crate) fn flush_in_background(env: &Env, volume: &Volume) -> Task {
    let wanted = volume.inner.merge_wanted.clone();
    let inner = Arc::downgrade(&volume.inner);
    let clock = env.clock.clone();
    let run = async move {
        let mut idle = Duration::ZERO;
        let mut written = 0;
        let mut switch_at = clock.now().after(SWITCH_EVERY);
        let mut home_at = switch_at;
        let mut tending = Tending::default();
        loop {
            let was_wanted = timeout(&*clock, TICK, wanted.notified()).await.is_some();
            let Some(inner) = inner.upgrade() else { return };
            let now = inner.records.load(Ordering::Relaxed);
            idle = if now == written && !was_wanted { idle + TICK } else { Duration::ZERO };
            written = now;
            let is_idle = idle >= inner.settings.merge_when_idle;
            let tended = async {
                inner.flush_diffs(is_idle, switch_at).await?;
                if tending.is_due(clock.now(), inner.situation()) {
                    inner.tend_log().await?;
                }
                if inner.switch_wanted.swap(false, Ordering::AcqRel) || clock.now() >= switch_at {
                    let again = inner.switch_some().await?;
                    switch_at = clock.now().after(again.unwrap_or(SWITCH_EVERY));
                }
                if clock.now() >= home_at && inner.used_percent() < inner.settings.merge_from_percent {
                    let are_more = inner.bring_some_home().await?;
                    home_at = clock.now().after(if are_more { Duration::ZERO } else { SWITCH_EVERY });
                }
                Ok::<(), BlocksError>(())
            };
            let flushed = tended.await;
            if let Err(error) = flushed {
                tracing::error!(volume = inner.record.name, %error, "a volume is not merged any more");
                return;
            }
        }
    };
    env.tasks.spawn("volume merge", run.boxed())
}

impl Inner {
    /// Merges while more of the reserve is used than shall be, or all there is. After a round of it stripes are switched, where that
    /// is due.
    async fn flush_diffs(self: &Arc<Self>, all: bool, switch_at: Moment) -> Result<(), BlocksError> {
        let is_due = || all || self.has_many_segments() || self.used_percent() >= self.settings.merge_from_percent;
        let mut is_first = true;
        let goes_on = |_: &MergeReport| {
            let is_turn = std::mem::take(&mut is_first) || self.env.clock.now() < switch_at;
            is_turn && self.diffs().pages() > 0 && is_due()
        };
        self.merge_in_rounds(goes_on).await.map(|_| ())
    }

    /// Merges in short rounds, as long as this wants another one and something is merged. Between them it rests while somebody
    /// writes.
    pub(crate) async fn merge_in_rounds(
        self: &Arc<Self>,
        mut goes_on: impl FnMut(&MergeReport) -> bool,
    ) -> Result<MergeReport, BlocksError> {
        let mut all = MergeReport::default();
        while goes_on(&all) {
            let (began, written) = (self.env.clock.now(), self.records.load(Ordering::Relaxed));
            let report = self.merge_as_task(ROUND_PAGES).await?;
            self.note_progress(&report);
            all.add(&report);
            if report.pages + report.pages_carried == 0 {
                break;
            }
            if self.records.load(Ordering::Relaxed) != written {
                let now = self.env.clock.now();
                if !self.toll.holds_up(now) {
                    self.env.clock.sleep(now.since(began).mul_f64(RESTS_MAX * self.ease()).min(REST_MAX)).await;
                }
            }
        }
        Ok(all)
    }

    /// Before a step of a merge: lets writers go first, unless merging is what they wait for.
    pub(crate) async fn give_way(&self) {
        if !self.toll.holds_up(self.env.clock.now()) {
            self.pace.give_way(&*self.env.clock, GIVE_WAY_MAX.mul_f64(self.ease())).await;
        }
    }

    /// How much merging may take its time: 1 where it begins, 0 where writers would have to pay.
    fn ease(&self) -> f64 {
        ease(self.used_percent(), self.settings.merge_from_percent)
    }

    /// Gives stripes the form that fits them, a few where merging is due. Returns when more can be done, if there may be more.
    async fn switch_some(self: &Arc<Self>) -> Result<Option<Duration>, BlocksError> {
        let (began, switches) = (self.env.clock.now(), self.plan(SWITCHES).await);
        let (planned, mut tried, mut done) = (switches.len(), 0, 0);
        for switch in switches {
            let used = self.used_percent();
            let is_merged = used >= self.settings.merge_from_percent;
            if used >= 100 || (is_merged && tried >= SWITCHES_BETWEEN_ROUNDS) {
                break;
            }
            let report = self.switch_as_task(vec![switch]).await?;
            (tried, done) = (tried + 1, done + report.coded + report.mirrored);
            if report.refused > 0 && self.env.clock.now().since(began) >= STEP_MAX {
                break;
            }
        }
        let are_more = done > 0 && (tried < planned || planned == SWITCHES);
        let is_merged = self.used_percent() >= self.settings.merge_from_percent;
        let took = self.env.clock.now().since(began);
        // Also of what was given up.
        let pause = if is_merged { MERGING_SHARE * took } else { Duration::ZERO };
        Ok(are_more.then_some(pause).or((pause > SWITCH_EVERY).then_some(pause)))
    }

    /// Works while merges wait for it. `None`: it was dropped, because the reserve is used up, or writers have waited for as long as one
    /// may have them wait.
    pub(crate) async fn while_there_is_room<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let began = self.env.clock.now();
        let is_too_long = |now: Moment| now.since(began) >= STEP_MAX && self.toll.holds_up(now);
        let used_up = async {
            while self.used_percent() < 100 && !is_too_long(self.env.clock.now()) {
                self.env.clock.sleep(LOOK_AGAIN).await;
            }
        };
        match select(pin!(work), pin!(used_up)).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(_) => None,
        }
    }

    /// Rests as long as something took that merges had to wait for, unless writers wait for these.
    pub(crate) async fn rest_after(&self, began: Moment) {
        let now = self.env.clock.now();
        if !self.toll.holds_up(now) {
            self.env.clock.sleep(now.since(began).min(REST_MAX)).await;
        }
    }

    /// What is left waits for repairs, or for disks: it is stuck. Or for who holds its stripes, which comes to an end, mostly.
    pub(crate) fn note_progress(&self, report: &MergeReport) {
        let now = self.env.clock.now();
        self.verdicts.fetch_add(1, Ordering::AcqRel);
        let mut idle_since = self.idle_since.lock().unwrap_or_else(PoisonError::into_inner);
        // All of it may have been merged by somebody else: a snapshot that was taken.
        if report.pages + report.pages_carried > 0 || self.diffs().pages() == 0 {
            *idle_since = None;
            self.is_stuck.store(false, Ordering::Release);
            return;
        }
        let since = *idle_since.get_or_insert(now);
        let is_stuck = report.stripes_held == 0 || now.since(since) >= self.settings.timeout;
        self.is_stuck.store(is_stuck, Ordering::Release);
    }

    /// What of the log is on disks that take no writes any more, or on too few, and what there is to help it.
    fn situation(&self) -> Situation {
        let unwell = self.log.unwell();
        if unwell.is_empty() {
            return Situation::default();
        }
        let members = self.stripes.stores().members().into_iter().filter(Member::writable);
        let has_room = |member: &Member| member.space.free_bytes > self.settings.segment_bytes;
        Situation { unwell, takers: members.map(|member| (member.record.id, has_room(&member))).collect() }
    }

    /// Moves the log off disks, and gives it the copies that it misses, also while nobody merges.
    async fn tend_log(&self) -> Result<(), BlocksError> {
        // A merge that is about to write refers to segments which only its intent will keep.
        let _merging = self.merging.lock().await;
        self.log.tend().await.map_err(|error| self.log_failed(error))
    }

    /// The share of the reserve that is used: by what the log has, and what merging all that waits writes into it before
    /// the segments of what waits are over. Of what has no stripe yet, or shares one, it writes nothing there.
    pub(crate) fn used_percent(&self) -> u64 {
        self.used_percent_with(&self.diffs())
    }

    /// The same, with diffs that are locked.
    pub(crate) fn used_percent_with(&self, diffs: &Diffs) -> u64 {
        let limit = self.settings.segments_max() * self.settings.segment_bytes;
        // Zeros take no room in the log before they are merged, but their diffs take memory.
        let waiting = diffs.pages() * u64::from(self.geometry.page_bytes);
        100 * (self.log.view().bytes().max(waiting) + diffs.to_come()) / limit
    }

    /// Each opening begins a segment, which takes its whole length on its disks: of a store that keeps dying they are many
    /// and hardly used.
    fn has_many_segments(&self) -> bool {
        self.log.view().segment_count() > self.settings.segments_max()
    }
}

/// The share of the way from where merging begins to where writers pay that is left.
fn ease(used_percent: u64, merge_from_percent: u64) -> f64 {
    let left = SLOW_FROM_PERCENT.saturating_sub(used_percent) as f64;
    let all = SLOW_FROM_PERCENT.saturating_sub(merge_from_percent).max(1) as f64;
    (left / all).min(1.0)
}

const TICK: Duration = Duration::from_secs(1);
/// How often stripes are looked at whose form may not fit how much they are written, or whose chunks may be away from home; and how many
/// get another form then.
const SWITCH_EVERY: Duration = Duration::from_secs(10);
const SWITCHES: usize = 16;
const SWITCHES_BETWEEN_ROUNDS: usize = 2;
/// Writers who wait for merges do so no longer for what is done between them.
const STEP_MAX: Duration = Duration::from_secs(5);
/// How often those who keep merges waiting look whether there is room.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Merging has so many times as long as they took then.
const MERGING_SHARE: u32 = 4;
const ROUND_PAGES: u64 = 512;
/// From here on writers are slowed down.
pub(crate) const SLOW_FROM_PERCENT: u64 = 75;
/// Merging rests so many times as long as it works where it begins, less and less from there on.
const RESTS_MAX: f64 = 2.0;
const REST_MAX: Duration = Duration::from_secs(1);
/// And a step waits so long for writes there.
const GIVE_WAY_MAX: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_takes_less_and_less_time_off() {
        assert_eq!([0, 50, 60, 75, 120].map(|used| ease(used, 50)), [1.0, 1.0, 0.6, 0.0, 0.0]);
        assert_eq!([70, 75, 90].map(|used| ease(used, 80)), [1.0, 0.0, 0.0], "where it begins beyond");
    }
}
