//! Jobs that stand alone, on all processors.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;

use crate::progress::Progress;

/// Carries out jobs, several at a time; returns their results in order.
///
/// # Errors
/// A job's own, or that it panicked.
pub fn on_all_processors<J: Sync, D: Send>(
    jobs: &[J],
    carry_out: impl Fn(&J) -> anyhow::Result<D> + Sync,
) -> anyhow::Result<Vec<D>> {
    let progress = Progress::new("measuring", jobs.len() as u64);
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<anyhow::Result<D>>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < jobs.len()) {
                    let result = carry_out(&jobs[at]);
                    *done[at].lock().expect("nobody panics here") = Some(result);
                    progress.step(1);
                }
            });
        }
    });
    progress.end();
    let result = |done: Mutex<Option<anyhow::Result<D>>>| done.into_inner().ok().flatten().context("a job panicked")?;
    done.into_iter().map(result).collect()
}

/// Each may have an emulated drive of 400 MB in memory.
const THREADS_MAX: usize = 8;
