//! Threads with one bounded queue.
//!
//! Invariants:
//! 1. At most [`QUEUED_MAX`] jobs wait or run; who comes later waits in [`Worker::run`] without holding a thread.
//! 2. Jobs begin in the order in which they were queued.
//! 3. A panicking job ends alone: its thread goes on with the next one.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use claystone_env::{Job, Worker, WorkerStopped};
use futures::future::{BoxFuture, FutureExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Jobs that a worker holds, waiting and running.
pub const QUEUED_MAX: usize = 256;

/// A worker of `threads` named threads.
pub struct ThreadWorker {
    queue: Arc<Queue>,
    room: Arc<Semaphore>,
}

struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

struct QueueState {
    waiting: VecDeque<Queued>,
    stopped: bool,
}

struct Queued {
    job: Job,
    done: oneshot::Sender<()>,
    // Held until the job has run.
    room: OwnedSemaphorePermit,
}

impl ThreadWorker {
    /// Starts the threads, named `name-0`, `name-1`, ...
    ///
    /// # Errors
    /// The system gives no thread.
    ///
    /// # Panics
    /// If `threads` is 0.
    pub fn start(name: &str, threads: usize) -> io::Result<ThreadWorker> {
        assert!(threads > 0, "a worker needs a thread");
        let queue = Arc::new(Queue {
            state: Mutex::new(QueueState { waiting: VecDeque::new(), stopped: false }),
            changed: Condvar::new(),
        });
        let worker = ThreadWorker { queue, room: Arc::new(Semaphore::new(QUEUED_MAX)) };
        for number in 0..threads {
            let queue = worker.queue.clone();
            std::thread::Builder::new().name(format!("{name}-{number}")).spawn(move || queue.work())?;
        }
        Ok(worker)
    }

    /// Refuses new jobs. Jobs already queued still run; the threads end after them.
    pub fn stop(&self) {
        self.room.close();
        self.queue.lock().stopped = true;
        self.queue.changed.notify_all();
    }
}

impl Drop for ThreadWorker {
    fn drop(&mut self) {
        // Without waiting: the last owner may be one of the jobs.
        self.stop();
    }
}

impl Worker for ThreadWorker {
    fn run(&self, job: Job) -> BoxFuture<'static, Result<(), WorkerStopped>> {
        let (queue, room) = (self.queue.clone(), self.room.clone());
        async move {
            let room = room.acquire_owned().await.map_err(|_| WorkerStopped)?;
            let (done, finished) = oneshot::channel();
            {
                let mut state = queue.lock();
                if state.stopped {
                    return Err(WorkerStopped);
                }
                state.waiting.push_back(Queued { job, done, room });
            }
            queue.changed.notify_one();
            finished.await.map_err(|_| WorkerStopped)
        }
        .boxed()
    }

    fn queued(&self) -> usize {
        QUEUED_MAX - self.room.available_permits()
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Queued> {
        let mut state = self.lock();
        loop {
            if let Some(queued) = state.waiting.pop_front() {
                return Some(queued);
            }
            if state.stopped {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn work(&self) {
        while let Some(Queued { job, done, room }) = self.next() {
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                let thread = std::thread::current();
                tracing::error!(worker = thread.name().unwrap_or("?"), "a job panicked");
            }
            drop(room);
            // A caller that went away does not mind.
            let _ = done.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use claystone_env::call;

    use super::*;

    #[tokio::test]
    async fn returns_what_the_work_returned() {
        let worker = ThreadWorker::start("test", 2).expect("threads");
        assert_eq!(call(&worker, || 6 * 7).await, Ok(42));
        assert_eq!(worker.queued(), 0);
    }

    #[tokio::test]
    async fn a_panicking_job_fails_alone() {
        let worker = ThreadWorker::start("test", 1).expect("threads");
        assert_eq!(call(&worker, || panic!("on purpose")).await, Err::<(), _>(WorkerStopped));
        assert_eq!(call(&worker, || 1).await, Ok(1));
    }

    #[tokio::test]
    async fn after_stop_queued_jobs_run_and_new_ones_do_not() {
        let worker = Arc::new(ThreadWorker::start("test", 1).expect("threads"));
        let (go, wait) = mpsc::channel::<()>();
        let ran = Arc::new(AtomicUsize::new(0));
        let first = tokio::spawn(worker.run(Box::new(move || wait.recv().expect("the test sends"))));
        let count = ran.clone();
        let second = tokio::spawn(worker.run(Box::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        })));
        while worker.queued() < 2 {
            tokio::task::yield_now().await;
        }
        worker.stop();
        assert_eq!(call(&*worker, || ()).await, Err(WorkerStopped));
        go.send(()).expect("the job waits");
        assert_eq!(first.await.expect("task"), Ok(()));
        assert_eq!(second.await.expect("task"), Ok(()));
        assert_eq!(ran.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn the_queue_is_bounded() {
        let worker = Arc::new(ThreadWorker::start("test", 1).expect("threads"));
        let (go, wait) = mpsc::channel::<()>();
        let mut jobs = vec![tokio::spawn(worker.run(Box::new(move || wait.recv().expect("the test sends"))))];
        for _ in 0..QUEUED_MAX + 10 {
            jobs.push(tokio::spawn(worker.run(Box::new(|| ()))));
        }
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(worker.queued(), QUEUED_MAX);
        go.send(()).expect("the job waits");
        for job in jobs {
            assert_eq!(job.await.expect("task"), Ok(()));
        }
    }
}
