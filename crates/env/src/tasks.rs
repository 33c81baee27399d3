//! Background tasks.

use futures::future::BoxFuture;

/// Starts tasks.
pub trait Tasks: Send + Sync + 'static {
    /// Runs `future` in the background under `name` (for logs). It must not block.
    fn spawn(&self, name: &'static str, future: BoxFuture<'static, ()>) -> Task;
}

/// A running task. Dropping the handle leaves the task running.
pub struct Task {
    cancel: Box<dyn Fn() + Send + Sync>,
    done: BoxFuture<'static, ()>,
}

impl Task {
    /// A handle from what an implementation of [`Tasks`] knows: how to stop the task, and when it has ended.
    pub fn new(cancel: impl Fn() + Send + Sync + 'static, done: BoxFuture<'static, ()>) -> Task {
        Task { cancel: Box::new(cancel), done }
    }

    /// Stops the task at its next await point. Does not wait; call [`Task::ended`] for that.
    pub fn cancel(&self) {
        (self.cancel)();
    }

    /// Waits until the task has ended, by itself or by [`Task::cancel`].
    pub async fn ended(self) {
        self.done.await;
    }
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Task")
    }
}
