//! Fetches what is read next from afar in many short runs, which the machine does not foresee.
//!
//! Invariants:
//! 1. Nothing is read: a run may lie anywhere.

use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};

use super::super::List;

/// Brings runs to the second cache one after another, each from front to back, which the machine takes up and continues by itself.
pub(super) struct Fetcher {
    run_bytes: usize,
    runs: List<*const u8, RUNS_MAX>,
    /// The run that is being fetched, and where.
    run: usize,
    at: usize,
}

impl Fetcher {
    pub(super) fn new(run_bytes: usize) -> Self {
        Self { run_bytes, runs: List::new(), run: 0, at: 0 }
    }

    /// Turns to these runs.
    pub(super) fn aim(&mut self, runs: impl Iterator<Item = *const u8>) {
        (self.run, self.at) = (0, 0);
        self.runs.clear();
        self.runs.extend(runs);
    }

    /// Fetches on, for each of the runs as many lines as given.
    #[inline]
    pub(super) fn fetch(&mut self, lines: usize) {
        let runs = self.runs.as_slice();
        for _ in 0..lines * runs.len() {
            let Some(run) = runs.get(self.run) else { return };
            // SAFETY: a hint; nothing is read, and any address will do.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(run.wrapping_add(self.at).cast()) }
            self.at += 64;
            if self.at >= self.run_bytes {
                (self.run, self.at) = (self.run + 1, 0);
            }
        }
    }
}

/// Clay's planes are read in two runs for each of up to 22 nodes, and in pieces one for each of up to four planes.
const RUNS_MAX: usize = 4 * 44;
