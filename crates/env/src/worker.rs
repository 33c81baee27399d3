//! A queue with threads of its own behind it, for work that blocks or computes.
//!
//! Invariants:
//! 1. The queue is bounded: [`Worker::run`] waits for room, it never grows without limit.
//! 2. A job that was accepted runs to its end, also when nobody waits for it any more.

use futures::future::BoxFuture;

/// A piece of blocking or computing work.
pub type Job = Box<dyn FnOnce() + Send>;

/// The worker has been shut down; the job did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the worker has stopped")]
pub struct WorkerStopped;

/// Runs jobs on threads of its own (in a simulation: at once, charging virtual time).
pub trait Worker: Send + Sync + 'static {
    /// Queues `job` and completes when it has run.
    ///
    /// # Errors
    /// [`WorkerStopped`] if the worker shut down before the job began.
    fn run(&self, job: Job) -> BoxFuture<'static, Result<(), WorkerStopped>>;

    /// Jobs waiting or running now.
    fn queued(&self) -> usize;
}

/// Runs `work` on `worker` and returns what it returned.
///
/// # Errors
/// [`WorkerStopped`] if the worker shut down, or the work panicked.
pub async fn call<R: Send + 'static>(
    worker: &dyn Worker,
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, WorkerStopped> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    worker
        .run(Box::new(move || {
            // A caller that went away does not need the result.
            let _ = sender.send(work());
        }))
        .await?;
    receiver.await.map_err(|_| WorkerStopped)
}
