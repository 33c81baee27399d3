//! Lets background work run at full speed while nobody else needs the disks, and step back while clients do.
//!
//! Each step of background work is followed by a pause. With `s` the time the last step took, `f` the foreground load
//! (0 idle .. 1 busy) and `share` the setting `repair_share` or `scrub_share`:
//!
//! ```text
//! share_now = 1 - f * (1 - share)            1 when idle, `share` when busy
//! pause     = s * (1 / share_now - 1)        at most PAUSE_MAX
//! f         = 1 while a request is under way, then falls to 0 evenly over FADE
//! ```
//!
//! So with `share = 0.25` under load a step of 40 ms is followed by 120 ms of rest: background work has a quarter of the
//! time. A step that clients slow down is longer, so its pause is too: the disks' own response is the feedback, no
//! latency target needs tuning. `bytes_per_second_max` bounds the sum of all background work besides.
//!
//! Invariants:
//! 1. Without a request in the last [`FADE`] and without a byte limit nothing ever waits.
//! 2. No single pause for load is longer than `PAUSE_MAX`, so repair always goes on.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use claystone_env::{Clock, Moment};
use claystone_stripe::Pace;
use futures::future::{Either, select};

/// Counts what clients are doing right now. Cheap to clone and to bump: two atomic operations per request.
#[derive(Clone)]
pub struct Activity(Arc<ActivityState>);

struct ActivityState {
    clock: Arc<dyn Clock>,
    requests: AtomicUsize,
    /// When the last request ended, in milliseconds of the monotonic clock plus 1; 0: none yet.
    last_ended_ms: AtomicU64,
}

impl Activity {
    /// No requests yet.
    pub fn new(clock: Arc<dyn Clock>) -> Activity {
        Activity(Arc::new(ActivityState { clock, requests: AtomicUsize::new(0), last_ended_ms: AtomicU64::new(0) }))
    }

    /// A request begins. It lasts until the guard is dropped; keep the guard until the body is sent.
    pub fn begin(&self) -> ActivityGuard {
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        ActivityGuard(self.clone())
    }

    /// Requests under way.
    pub fn requests(&self) -> usize {
        self.0.requests.load(Ordering::Relaxed)
    }

    /// The foreground load: 0 idle, 1 busy.
    pub fn load(&self) -> f64 {
        let last = self.0.last_ended_ms.load(Ordering::Relaxed);
        let since = (last > 0).then(|| {
            let ended = Moment(Duration::from_millis(last - 1));
            self.0.clock.now().since(ended)
        });
        load(self.requests(), since)
    }
}

impl std::fmt::Debug for Activity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Activity({} requests)", self.requests())
    }
}

/// A request under way.
#[derive(Debug)]
#[must_use = "the request counts as ended when this is dropped"]
pub struct ActivityGuard(Activity);

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        let state = &self.0.0;
        let now_ms = state.clock.now().0.as_millis() as u64;
        state.last_ended_ms.fetch_max(now_ms + 1, Ordering::Relaxed);
        state.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The foreground load from the number of requests under way and the time since the last one ended.
pub fn load(requests: usize, since_last: Option<Duration>) -> f64 {
    if requests > 0 {
        return 1.0;
    }
    since_last.map_or(0.0, |since| (1.0 - since.as_secs_f64() / FADE.as_secs_f64()).max(0.0))
}

/// The pause after a step that took `step`.
///
/// # Panics
/// If `share` is not above 0 and up to 1, or `load` not in 0 to 1.
pub fn pause(step: Duration, load: f64, share: f64) -> Duration {
    assert!(share > 0.0 && share <= 1.0, "share {share}");
    assert!((0.0..=1.0).contains(&load), "load {load}");
    let share_now = 1.0 - load * (1.0 - share);
    let seconds = step.as_secs_f64() * (1.0 / share_now - 1.0);
    Duration::from_secs_f64(seconds.min(PAUSE_MAX.as_secs_f64()))
}

/// Spreads bytes so that no more than a number of them pass per second, in the order of asking.
#[derive(Debug, Clone, Copy, Default)]
pub struct RateLimit {
    /// When what was admitted so far has passed at the limited rate.
    passed: Moment,
}

impl RateLimit {
    /// How long `bytes` asked for at `now` must wait.
    pub fn take(&mut self, now: Moment, bytes: u64, bytes_per_second: u64) -> Duration {
        let begin = self.passed.max(now);
        let lasts = Duration::from_secs_f64(bytes as f64 / bytes_per_second as f64);
        self.passed = begin.after(lasts);
        begin.since(now)
    }
}

/// What all background work shares. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pacing {
    clock: Arc<dyn Clock>,
    activity: Activity,
    bytes_per_second_max: Option<u64>,
    limit: Arc<Mutex<RateLimit>>,
}

impl Pacing {
    pub(crate) fn new(clock: Arc<dyn Clock>, activity: Activity, bytes_per_second_max: Option<u64>) -> Pacing {
        Pacing { clock, activity, bytes_per_second_max, limit: Arc::default() }
    }

    /// The pace of one row of steps, one after the other.
    pub(crate) fn pacer(&self, share: f64) -> Pacer {
        Pacer { pacing: self.clone(), share, state: Mutex::default() }
    }
}

/// The pace of one task.
pub(crate) struct Pacer {
    pacing: Pacing,
    share: f64,
    state: Mutex<PacerState>,
}

#[derive(Debug, Default)]
struct PacerState {
    /// When the step under way was admitted.
    step_began: Option<Moment>,
    /// Steps that wait here.
    waiting: usize,
}

impl Pacer {
    /// Carries `work` out while its steps go on. `None`: a step that was admitted has not ended within
    /// [`STEP_TIMEOUT`], so `work` was dropped. A disk that hangs holds up one task and not all of them.
    pub(crate) async fn watch<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let clock = &self.pacing.clock;
        let stalled = async {
            let mut since = clock.now();
            loop {
                clock.sleep(STEP_TIMEOUT).await;
                let (began, waiting) = {
                    let state = self.state();
                    (state.step_began, state.waiting > 0)
                };
                if !waiting && began.is_none_or(|began| began <= since) {
                    return;
                }
                since = clock.now();
            }
        };
        match select(std::pin::pin!(work), std::pin::pin!(stalled)).await {
            Either::Left((output, _)) => Some(output),
            Either::Right(((), _)) => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, PacerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Pace for Pacer {
    async fn admit(&self, bytes: u64) {
        let clock = &self.pacing.clock;
        let now = clock.now();
        let step = {
            let mut state = self.state();
            state.waiting += 1;
            state.step_began.map_or(Duration::ZERO, |began| now.since(began))
        };
        // Also when the task is dropped while it waits.
        let _waits = Waits(self);
        let mut wait = pause(step, self.pacing.activity.load(), self.share);
        if let Some(most) = self.pacing.bytes_per_second_max {
            let mut limit = self.pacing.limit.lock().unwrap_or_else(PoisonError::into_inner);
            wait = wait.max(limit.take(now, bytes, most));
        }
        if !wait.is_zero() {
            clock.sleep(wait).await;
        }
        self.state().step_began = Some(clock.now());
    }
}

struct Waits<'a>(&'a Pacer);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

/// The foreground counts as busy less and less for this long after its last request.
pub const FADE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Ten times the read timeout of a stripe: what takes longer hangs.
const STEP_TIMEOUT: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_foreground_means_no_pause() {
        assert_eq!(load(0, None), 0.0);
        assert_eq!(load(0, Some(FADE)), 0.0);
        assert_eq!(pause(Duration::from_secs(3), 0.0, 0.01), Duration::ZERO);
    }

    #[test]
    fn busy_foreground_leaves_the_share() {
        assert_eq!(load(7, None), 1.0);
        let step = Duration::from_millis(40);
        assert_eq!(pause(step, 1.0, 0.25), Duration::from_millis(120));
        assert_eq!(pause(step, 1.0, 1.0), Duration::ZERO);
        assert_eq!(load(0, Some(FADE / 2)), 0.5);
        // Half busy: share_now = 0.625, so 24 ms.
        assert_eq!(pause(step, 0.5, 0.25), Duration::from_millis(24));
    }

    #[test]
    fn a_pause_is_bounded() {
        assert_eq!(pause(Duration::from_secs(60), 1.0, 0.01), PAUSE_MAX);
    }

    #[test]
    fn the_rate_limit_spreads_bytes_and_forgets_idle_time() {
        let mut limit = RateLimit::default();
        let at = |seconds| Moment(Duration::from_secs(seconds));
        assert_eq!(limit.take(at(10), 200, 100), Duration::ZERO);
        assert_eq!(limit.take(at(10), 100, 100), Duration::from_secs(2));
        assert_eq!(limit.take(at(11), 1, 100), Duration::from_secs(2));
        // An hour of silence saves nothing up.
        assert_eq!(limit.take(at(3600), 100, 100), Duration::ZERO);
        assert_eq!(limit.take(at(3600), 100, 100), Duration::from_secs(1));
    }
}
