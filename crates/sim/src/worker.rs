//! A worker without threads: a job runs at once, and its virtual time is charged after it.
//!
//! Invariants:
//! 1. Jobs of one disk take their time one after the other, as on one thread.
//! 2. At most [`QUEUED_MAX`] jobs are charged for at a time; who comes later waits before running.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use claystone_env::{Clock, Job, Moment, Worker, WorkerStopped};
use futures::future::{BoxFuture, FutureExt};
use tokio::sync::Semaphore;

use crate::clock::SimClock;

const QUEUED_MAX: usize = 256;

/// The worker of a simulated disk or device, or of a processor that takes no time.
pub struct SimWorker {
    clock: SimClock,
    // The virtual time that jobs used since it was last called.
    take_cost: Arc<dyn Fn() -> Duration + Send + Sync>,
    room: Arc<Semaphore>,
    free_at: Arc<Mutex<Moment>>,
}

impl SimWorker {
    pub(crate) fn new(clock: SimClock, take_cost: impl Fn() -> Duration + Send + Sync + 'static) -> SimWorker {
        let room = Arc::new(Semaphore::new(QUEUED_MAX));
        SimWorker { clock, take_cost: Arc::new(take_cost), room, free_at: Arc::default() }
    }
}

impl Worker for SimWorker {
    fn run(&self, job: Job) -> BoxFuture<'static, Result<(), WorkerStopped>> {
        let (clock, take_cost) = (self.clock.clone(), self.take_cost.clone());
        let (room, free_at) = (self.room.clone(), self.free_at.clone());
        async move {
            let _room = room.acquire().await.map_err(|_| WorkerStopped)?;
            job();
            let cost = take_cost();
            let wait = {
                let mut free_at = free_at.lock().unwrap_or_else(PoisonError::into_inner);
                *free_at = clock.now().max(*free_at).after(cost);
                free_at.since(clock.now())
            };
            if wait > Duration::ZERO {
                clock.sleep(wait).await;
            } else {
                // Other tasks run between two jobs here too.
                tokio::task::yield_now().await;
            }
            Ok(())
        }
        .boxed()
    }

    fn queued(&self) -> usize {
        QUEUED_MAX - self.room.available_permits()
    }
}
