//! Jobs that stand alone, on all processors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;

use crate::progress::Progress;

/// Carries out jobs, several at a time; returns their results in order. Each tells `progress` how far it is; then that is over.
///
/// # Errors
/// A job's own, or that it panicked.
pub fn on_all_processors<J: Sync, D: Send>(
    jobs: &[J],
    progress: &Progress,
    carry_out: impl Fn(&J) -> anyhow::Result<D> + Sync,
) -> anyhow::Result<Vec<D>> {
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<anyhow::Result<D>>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    std::thread::scope(|scope| {
        for number in 0..threads {
            let (next, done, carry_out) = (&next, &done, &carry_out);
            scope.spawn(move || {
                stay_on(number);
                while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < jobs.len()) {
                    let result = carry_out(&jobs[at]);
                    *done[at].lock().expect("nobody panics here") = Some(result);
                }
            });
        }
    });
    progress.end();
    let result = |done: Mutex<Option<anyhow::Result<D>>>| done.into_inner().ok().flatten().context("a job panicked")?;
    done.into_iter().map(result).collect()
}

/// Keeps this thread, and those that it starts, on the processor of this number of those that there are. Threads that wait for each other all
/// the time, as calls in simulated time do, take three times as long where each wakes the other on another one. What cannot be kept is left.
#[cfg(target_os = "linux")]
fn stay_on(number: usize) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let Some(processor) = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).nth(number) else {
        return;
    };
    let mut one = CpuSet::new();
    one.set(processor);
    let _ = sched_setaffinity(None, &one);
}

#[cfg(not(target_os = "linux"))]
fn stay_on(_: usize) {}

/// Each may have an emulated drive of 400 MB in memory.
const THREADS_MAX: usize = 8;
