//! Tells a quiet moment of this machine from one that somebody else disturbed.
//!
//! A virtual processor either owns its core or shares it with a neighbour's hyper-thread, and then everything runs at half
//! speed without any counter saying so. So each sample is bracketed by a short loop of dependent additions whose speed is
//! known: if the loop was slow before or after, the sample is not quiet.
//!
//! Invariants:
//! 1. Time is processor time of the calling thread: what other threads take by preemption is not counted.
//! 2. Quiet means that both loops ran at [`QUIET_SHARE`] of the best speed ever seen, or better. The best is known only at
//!    the end, so samples keep their loop's time and are judged late.

use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};

/// The least share of the best speed at which the machine counts as quiet. A shared core runs the loop at 0.65 and less.
/// Work in 512-bit registers lowers the core's clock for about a millisecond, so the loop behind it runs at 0.80 to 0.9
/// though nobody disturbs: that drop is the work's own price, it is in its figure, and must not throw the sample out.
pub const QUIET_SHARE: f64 = 0.75;

/// How long one sample works.
pub const SAMPLE_NS: f64 = 1.5e6;

/// Processor time of this thread, in nanoseconds.
pub fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |value: i64| u64::try_from(value).expect("a thread has used no negative time");
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}

/// One timed stretch of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Nanoseconds of one run.
    pub run_ns: f64,
    /// The slower of the two calibration loops around it, in nanoseconds.
    pub loop_ns: f64,
}

/// The best calibration loop seen.
#[derive(Clone, Debug)]
pub struct Gate {
    best_ns: f64,
}

impl Default for Gate {
    fn default() -> Self {
        Self { best_ns: f64::INFINITY }
    }
}

impl Gate {
    /// A gate that has seen this thread's processor for some milliseconds.
    pub fn warmed() -> Self {
        let mut gate = Self::default();
        for _ in 0..WARM_LOOPS {
            gate.learn(loop_ns());
        }
        gate
    }

    /// Takes note of a calibration loop.
    pub fn learn(&mut self, loop_ns: f64) {
        self.best_ns = self.best_ns.min(loop_ns);
    }

    /// Times `runs` runs of `work`, between two calibration loops.
    pub fn sample(&mut self, runs: u32, mut work: impl FnMut()) -> Sample {
        let before = loop_ns();
        let start = thread_ns();
        for _ in 0..runs {
            work();
        }
        let spent = thread_ns() - start;
        let after = loop_ns();
        self.learn(before.min(after));
        Sample { run_ns: spent as f64 / f64::from(runs), loop_ns: before.max(after) }
    }

    /// Whether the machine was quiet around a sample.
    pub fn is_quiet(&self, sample: &Sample) -> bool {
        self.best_ns >= sample.loop_ns * QUIET_SHARE
    }
}

/// The time of one calibration loop: four chains of additions that depend on each other, about 4 us.
fn loop_ns() -> f64 {
    let start = thread_ns();
    let (mut a, mut b, mut c, mut d) = (black_box(1u64), black_box(2u64), black_box(3u64), black_box(4u64));
    for i in 0..LOOP_STEPS {
        a = a.wrapping_add(b ^ i);
        b = b.wrapping_add(c ^ i);
        c = c.wrapping_add(d ^ i);
        d = d.wrapping_add(a ^ i);
    }
    black_box(a ^ b ^ c ^ d);
    (thread_ns() - start) as f64
}

/// The middle of some figures; `None` of none.
pub fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() {
        0 => None,
        count if count % 2 == 1 => Some(figures[middle]),
        _ => Some((figures[middle - 1] + figures[middle]) / 2.0),
    }
}

const LOOP_STEPS: u64 = 4000;
const WARM_LOOPS: u32 = 2000;

#[cfg(test)]
mod tests {
    use super::{Gate, Sample, median, thread_ns};

    #[test]
    fn a_slow_loop_makes_a_sample_loud() {
        let mut gate = Gate::default();
        gate.learn(75.0);
        gate.learn(100.0);
        assert!(gate.is_quiet(&Sample { run_ns: 1.0, loop_ns: 100.0 }));
        assert!(!gate.is_quiet(&Sample { run_ns: 1.0, loop_ns: 101.0 }));
        // A better loop later makes earlier samples loud.
        gate.learn(70.0);
        assert!(!gate.is_quiet(&Sample { run_ns: 1.0, loop_ns: 100.0 }));
    }

    #[test]
    fn a_sample_counts_each_run_once() {
        let mut gate = Gate::warmed();
        let mut runs = 0;
        let before = thread_ns();
        let sample = gate.sample(10, || {
            runs += 1;
            std::hint::black_box((0..10_000u64).fold(0, |sum, i| std::hint::black_box(sum + i)));
        });
        assert_eq!(runs, 10);
        let all = (thread_ns() - before) as f64;
        assert!(sample.run_ns * 10.0 < all && sample.run_ns > 0.0, "{sample:?} of {all}");
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }
}
