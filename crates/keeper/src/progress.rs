//! How far a job is and when it will be done, computed from what it did.
//!
//! Invariants:
//! 1. The rate is what the last [`WINDOW`] really brought, measured up to the moment of asking: a job that hangs
//!    loses its rate and its time to finish within that window.
//! 2. No time to finish is given before one second of work was seen, nor while the rate is zero.
//! 3. A job keeps at most [`SAMPLES_MAX`] samples.

use std::collections::VecDeque;
use std::time::Duration;

use claystone_env::Moment;
use serde::{Deserialize, Serialize};

use crate::Keeper;

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Rebuilds lost chunks; counts chunks.
    Repair,
    /// Moves chunks off draining disks; counts chunks.
    Drain,
    /// Reads back new and changed stripes, and those whose turn it is; counts stripes.
    Verify,
    /// Reads back all stripes because somebody asked; counts stripes.
    Scrub,
    /// Merges and splits stripes as policies want; counts conversions.
    Convert,
}

impl JobKind {
    /// What `done`, `left` and `total` count.
    pub fn unit(self) -> &'static str {
        match self {
            JobKind::Repair | JobKind::Drain => "chunks",
            JobKind::Verify | JobKind::Scrub => "stripes",
            JobKind::Convert => "conversions",
        }
    }

    /// Its name as users see it.
    pub fn name(self) -> &'static str {
        match self {
            JobKind::Repair => "repair",
            JobKind::Drain => "drain",
            JobKind::Verify => "verify",
            JobKind::Scrub => "scrub",
            JobKind::Convert => "convert",
        }
    }
}

/// A job as people see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// What it does.
    pub kind: JobKind,
    /// What the counts count: `chunks`, `stripes` or `conversions`.
    pub unit: String,
    /// Done so far.
    pub done: u64,
    /// Left to do, as known now; it grows when more is found.
    pub left: u64,
    /// Bytes read and written so far.
    pub bytes: u64,
    /// Seconds since it began.
    pub elapsed_seconds: f64,
    /// Units per second over the last minute.
    pub per_second: f64,
    /// Bytes per second over the last minute.
    pub bytes_per_second: f64,
    /// Seconds until it is done at this rate; none while that is unknown.
    pub eta_seconds: Option<u64>,
    /// Why it stands still, if it does.
    pub waiting: Option<String>,
    /// It has ended.
    pub finished: bool,
}

/// A job's counters.
#[derive(Debug, Clone)]
pub struct Progress {
    kind: JobKind,
    started: Moment,
    done: u64,
    left: u64,
    bytes: u64,
    samples: VecDeque<Sample>,
    waiting: Option<String>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Moment,
    done: u64,
    bytes: u64,
}

impl Progress {
    /// A job that begins now.
    pub fn new(kind: JobKind, now: Moment, left: u64) -> Progress {
        let first = Sample { at: now, done: 0, bytes: 0 };
        Progress { kind, started: now, done: 0, left, bytes: 0, samples: VecDeque::from([first]), waiting: None }
    }

    /// `done` more units are done, for which `bytes` were read and written.
    pub fn advance(&mut self, now: Moment, done: u64, bytes: u64) {
        self.done += done;
        self.left = self.left.saturating_sub(done);
        self.bytes += bytes;
        let last = self.samples.back().map_or(self.started, |sample| sample.at);
        if now.since(last) >= SAMPLE_EVERY {
            self.samples.push_back(Sample { at: now, done: self.done, bytes: self.bytes });
        }
        // One sample older than the window stays, as the window's start.
        while self.samples.len() > 1 && now.since(self.samples[1].at) >= WINDOW {
            self.samples.pop_front();
        }
        assert!(self.samples.len() <= SAMPLES_MAX, "samples are a window");
    }

    /// What is left was counted anew.
    pub fn set_left(&mut self, left: u64) {
        self.left = left;
    }

    /// Why it stands still, or `None` if it does not.
    pub fn set_waiting(&mut self, waiting: Option<String>) {
        self.waiting = waiting;
    }

    /// Whether it stands still for a reason.
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Units left.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The job as people see it.
    pub fn report(&self, now: Moment) -> JobReport {
        let inside = self.samples.iter().rev().find(|sample| now.since(sample.at) >= WINDOW);
        let base = inside.or(self.samples.front());
        let base = base.copied().unwrap_or(Sample { at: self.started, done: 0, bytes: 0 });
        let seconds = now.since(base.at).as_secs_f64();
        let rate = |units: u64| {
            if seconds > 0.0 { units as f64 / seconds } else { 0.0 }
        };
        let per_second = rate(self.done - base.done);
        let known = seconds >= 1.0 && per_second > 0.0 && self.waiting.is_none();
        let eta_seconds =
            if self.left == 0 { Some(0) } else { known.then(|| (self.left as f64 / per_second).ceil() as u64) };
        JobReport {
            kind: self.kind,
            unit: self.kind.unit().to_owned(),
            done: self.done,
            left: self.left,
            bytes: self.bytes,
            elapsed_seconds: now.since(self.started).as_secs_f64(),
            per_second,
            bytes_per_second: rate(self.bytes - base.bytes),
            eta_seconds,
            waiting: self.waiting.clone(),
            finished: false,
        }
    }
}

impl Keeper {
    /// Begins, updates or ends a job by what is left of it.
    pub(crate) fn job_left(&self, kind: JobKind, left: u64, waiting: Option<String>) {
        let now = self.now();
        let mut state = self.state();
        if left > 0 {
            let job = state.jobs.entry(kind).or_insert_with(|| Progress::new(kind, now, left));
            job.set_left(left);
            job.set_waiting(waiting);
        } else if let Some(mut job) = state.jobs.remove(&kind) {
            job.set_left(0);
            job.set_waiting(None);
            let report = JobReport { finished: true, ..job.report(now) };
            state.finished.insert(kind, report);
        }
    }

    /// Counts work of a job.
    pub(crate) fn job_advance(&self, kind: JobKind, done: u64, bytes: u64) {
        let now = self.now();
        if let Some(job) = self.state().jobs.get_mut(&kind) {
            job.advance(now, done, bytes);
        }
    }
}

/// Rates are over this long.
pub const WINDOW: Duration = Duration::from_secs(60);
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// One sample a second, one before the window and one at its end.
pub const SAMPLES_MAX: usize = 62;
const _: () = assert!(SAMPLES_MAX as u64 >= WINDOW.as_secs() / SAMPLE_EVERY.as_secs() + 2);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    #[test]
    fn a_steady_job_predicts_its_end() {
        let mut job = Progress::new(JobKind::Repair, at(0), 1000);
        for second in 1..=100 {
            job.advance(at(second), 5, 50);
        }
        let report = job.report(at(100));
        assert_eq!((report.done, report.left), (500, 500));
        assert!((report.per_second - 5.0).abs() < 1e-9, "{report:?}");
        assert!((report.bytes_per_second - 50.0).abs() < 1e-9);
        assert_eq!(report.eta_seconds, Some(100));
    }

    #[test]
    fn a_job_that_became_faster_is_judged_by_its_last_minute() {
        let mut job = Progress::new(JobKind::Repair, at(0), 10_000);
        job.advance(at(1000), 10, 0);
        for second in 1001..=1070 {
            job.advance(at(second), 10, 0);
        }
        let report = job.report(at(1070));
        assert!((report.per_second - 10.0).abs() < 1e-9, "{report:?}");
    }

    #[test]
    fn nothing_is_predicted_before_anything_was_seen() {
        let mut job = Progress::new(JobKind::Scrub, at(0), 10);
        assert_eq!(job.report(at(0)).eta_seconds, None);
        assert_eq!(job.report(at(30)).eta_seconds, None);
        job.advance(at(30), 1, 1);
        assert!(job.report(at(30)).eta_seconds.is_some());
    }

    #[test]
    fn a_job_that_hangs_loses_its_prediction() {
        let mut job = Progress::new(JobKind::Scrub, at(0), 100);
        for second in 1..=10 {
            job.advance(at(second), 1, 1);
        }
        assert!(job.report(at(11)).eta_seconds.is_some());
        let hung = job.report(at(10 + WINDOW.as_secs()));
        assert_eq!((hung.per_second, hung.eta_seconds), (0.0, None));
    }

    #[test]
    fn a_waiting_job_predicts_nothing_and_a_done_one_is_done() {
        let mut job = Progress::new(JobKind::Drain, at(0), 4);
        job.advance(at(5), 2, 2);
        job.set_waiting(Some("waiting for a disk".to_owned()));
        assert_eq!(job.report(at(6)).eta_seconds, None);
        job.set_waiting(None);
        job.advance(at(6), 2, 2);
        assert_eq!(job.report(at(6)).eta_seconds, Some(0));
    }
}
