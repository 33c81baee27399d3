//! Background tasks on a tokio runtime.

use std::panic::AssertUnwindSafe;

use claystone_env::{Task, Tasks};
use futures::future::{BoxFuture, FutureExt};
use tokio::runtime::Handle;

/// Spawns on one tokio runtime.
#[derive(Debug, Clone)]
pub struct HostTasks {
    runtime: Handle,
}

impl HostTasks {
    /// Tasks on the runtime that this is called in.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn current() -> HostTasks {
        HostTasks { runtime: Handle::current() }
    }
}

impl Tasks for HostTasks {
    fn spawn(&self, name: &'static str, future: BoxFuture<'static, ()>) -> Task {
        let handle = self.runtime.spawn(async move {
            if AssertUnwindSafe(future).catch_unwind().await.is_err() {
                tracing::error!(task = name, "a background task panicked and has ended");
            }
        });
        let abort = handle.abort_handle();
        // An aborted task has ended too.
        Task::new(move || abort.abort(), handle.map(|_| ()).boxed())
    }
}
