//! A process: tasks that can be killed together.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use claystone_env::{Env, Random, Task, Tasks};
use futures::future::{BoxFuture, FutureExt};
use tokio::task::AbortHandle;

use crate::clock::SimClock;
use crate::device::SimDevice;
use crate::disk::SimDisk;
use crate::worker::SimWorker;

/// A process of the world. Dropping it leaves its tasks running.
pub struct Process {
    tasks: Arc<SimTasks>,
    clock: SimClock,
    env: Env,
}

impl Process {
    pub(crate) fn new(random: Arc<dyn Random>, clock: SimClock) -> Process {
        let tasks = Arc::new(SimTasks::default());
        let cpu = Arc::new(SimWorker::new(clock.clone(), || Duration::ZERO));
        let env = Env { clock: Arc::new(clock.clone()), random, tasks: tasks.clone(), cpu };
        Process { tasks, clock, env }
    }

    /// What its components live in.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// Its clock, to make the wall time wrong.
    pub fn clock(&self) -> &SimClock {
        &self.clock
    }

    /// A worker for a disk; use one for each disk.
    pub fn worker(&self, disk: &SimDisk) -> Arc<SimWorker> {
        let disk = disk.clone();
        Arc::new(SimWorker::new(self.clock.clone(), move || disk.take_cost()))
    }

    /// A worker for an emulated device; use one for each device.
    pub fn device_worker(&self, device: &SimDevice) -> Arc<SimWorker> {
        let device = device.clone();
        Arc::new(SimWorker::new(self.clock.clone(), move || device.take_cost()))
    }

    /// Ends all tasks where they wait; later ones never begin. The caller crashes the disks, and drops what it holds
    /// of the process itself.
    pub fn kill(&self) {
        let mut running = self.tasks.running.lock().unwrap_or_else(PoisonError::into_inner);
        for task in running.take().unwrap_or_default() {
            task.abort();
        }
    }
}

struct SimTasks {
    // None once killed.
    running: Mutex<Option<Vec<AbortHandle>>>,
}

impl Default for SimTasks {
    fn default() -> SimTasks {
        SimTasks { running: Mutex::new(Some(Vec::new())) }
    }
}

impl Tasks for SimTasks {
    fn spawn(&self, _name: &'static str, future: BoxFuture<'static, ()>) -> Task {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(running) = running.as_mut() else {
            return Task::new(|| (), futures::future::ready(()).boxed());
        };
        running.retain(|task| !task.is_finished());
        let handle = tokio::spawn(future);
        running.push(handle.abort_handle());
        let abort = handle.abort_handle();
        let done = handle.map(|ended| {
            if let Err(error) = ended
                && error.is_panic()
            {
                // A panic of a task is one of the run.
                std::panic::resume_unwind(error.into_panic());
            }
        });
        Task::new(move || abort.abort(), done.boxed())
    }
}
