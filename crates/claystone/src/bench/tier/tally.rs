//! Requests at their times, and what came of them.
//!
//! Invariants:
//! 1. A request is sent at its time, whatever became of those before it.

use std::cell::{Cell, RefCell, RefMut};
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use claystone_env::{Clock, Moment};
use claystone_tier::Counts;
use futures::future::select;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::cache::CacheCounts;
use super::workload::Request;
use crate::progress::Progress;

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// How long each write took, in the order of their ends.
    pub latencies: Vec<Duration>,
    /// Requests in the solid-state drive that each write found there.
    pub queues: Vec<u32>,
    /// Bytes that went to the solid-state drive.
    pub ssd_bytes: u64,
    /// Writes that were sent to a hard disk, and went to the solid-state drive because it became slow.
    pub bounced: u64,
    /// From the first write until all are done.
    pub lasted: Duration,
    /// Time that hard disks took for users' writes,
    pub hdd_user: Duration,
    /// and for all else.
    pub hdd_other: Duration,
    /// What the predictors saw, all together.
    pub counts: Counts,
    /// Stalls of the solid-state drive.
    pub stalls: u64,
    /// What a cache did.
    pub cache: CacheCounts,
}

/// How far a run is.
#[derive(Debug)]
pub struct Advance {
    progress: Progress,
    /// What a write counts,
    each: u64,
    /// and what is left of the run's share.
    left: Cell<u64>,
    writes: Cell<u64>,
}

impl Advance {
    /// Of a run of so many writes, with this share of all that is done.
    pub fn new(progress: &Progress, share: u64, writes: usize) -> Advance {
        let each = share / writes.max(1) as u64;
        Advance { progress: progress.clone(), each, left: Cell::new(share), writes: Cell::new(0) }
    }

    /// A write has ended.
    fn wrote(&self) {
        self.writes.set(self.writes.get() + 1);
        if self.writes.get().is_multiple_of(TOLD_EVERY) {
            self.step(self.each * TOLD_EVERY);
        }
    }

    /// All have.
    fn end(&self) {
        self.step(self.left.get());
    }

    fn step(&self, by: u64) {
        self.left.set(self.left.get() - by);
        self.progress.step(by);
    }
}

/// Writes. A bar is drawn a few times in a second, and there are a million writes in one.
const TOLD_EVERY: u64 = 4096;

/// See the module. On one thread, so that nothing is locked.
pub struct Tally {
    clock: Arc<dyn Clock>,
    advance: Advance,
    left: Cell<usize>,
    all_done: Notify,
    outcome: RefCell<Outcome>,
}

impl Tally {
    /// Of no request yet.
    pub fn new(clock: Arc<dyn Clock>, advance: Advance) -> Tally {
        Tally { clock, advance, left: Cell::new(0), all_done: Notify::new(), outcome: RefCell::default() }
    }

    /// What came of those that have ended.
    pub fn outcome(&self) -> RefMut<'_, Outcome> {
        self.outcome.borrow_mut()
    }

    /// Sends all, with the number of each, and waits for their ends. Tasks in the background must not end before, and do then.
    ///
    /// # Errors
    /// A task of the background did.
    pub async fn carry_out(
        &self,
        requests: &[Request],
        background: Vec<JoinHandle<anyhow::Result<()>>>,
        begin: impl Fn(Request, usize),
    ) -> anyhow::Result<Outcome> {
        self.left.set(requests.len());
        let begun = self.clock.now();
        for (number, request) in requests.iter().enumerate() {
            let at = begun.after(request.at);
            let wait = at.since(self.clock.now());
            if !wait.is_zero() {
                self.clock.sleep(wait).await;
            }
            begin(Request { at: at.0, ..*request }, number);
        }
        while self.left.get() > 0 {
            if background.iter().any(JoinHandle::is_finished) {
                break;
            }
            select(std::pin::pin!(self.all_done.notified()), self.clock.sleep(Duration::from_secs(1))).await;
        }
        let lasted = self.clock.now().since(begun);
        for task in background {
            if task.is_finished() {
                task.await??;
                bail!("a task of the bench ended early");
            }
            task.abort();
        }
        self.advance.end();
        Ok(Outcome { lasted, ..self.outcome.take() })
    }

    /// A request has ended.
    pub fn end(&self, request: Request) {
        self.outcome().latencies.push(self.clock.now().since(Moment(request.at)));
        self.left.set(self.left.get() - 1);
        self.advance.wrote();
        if self.left.get() == 0 {
            self.all_done.notify_one();
        }
    }
}

impl Outcome {
    /// Adds what a predictor saw.
    pub fn add(&mut self, of: Counts) {
        let all = &mut self.counts;
        for (sum, more) in [
            (&mut all.user_writes, of.user_writes),
            (&mut all.user_bytes, of.user_bytes),
            (&mut all.user_surprises, of.user_surprises),
            (&mut all.paddings, of.paddings),
            (&mut all.padding_bytes, of.padding_bytes),
            (&mut all.padding_surprises, of.padding_surprises),
            (&mut all.slow_stages, of.slow_stages),
            (&mut all.losses, of.losses),
            (&mut all.recalibrations, of.recalibrations),
        ] {
            *sum += more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_counts_for_its_share_while_it_writes_and_in_the_end() {
        for writes in [0, 1, 4095, 4096, 10_000] {
            let progress = Progress::share("simulating", 3_000_000);
            let advance = Advance::new(&progress, 1_000_003, writes);
            (0..writes).for_each(|_| advance.wrote());
            let told = writes as u64 / TOLD_EVERY * TOLD_EVERY;
            assert_eq!(progress.position(), 1_000_003 / writes.max(1) as u64 * told, "{writes}");
            advance.end();
            assert_eq!(progress.position(), 1_000_003, "{writes}");
        }
    }
}
