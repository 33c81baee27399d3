//! The `env` traits on a real machine.
//!
//! Invariants:
//! 1. This is the one crate of the running program that touches files, devices, clocks, the system's random numbers and
//!    threads for the core crates.
//! 2. System calls go through `rustix`, `std` and, for several requests to a device at once, `io-uring`. The last takes
//!    addresses: `device/ring.rs` is the one file with unsafe code.
//! 3. The one program that it starts is `smartctl`, to ask a drive for its error recovery limits, or on request to tell
//!    it some.
//! 4. Every queue is bounded: [`QUEUED_MAX`] jobs for each worker.

mod clock;
mod device;
mod direct;
mod directory;
mod memory;
mod random;
mod real_time;
mod tasks;
mod worker;

pub use clock::HostClock;
pub use device::{Attachment, Drive, DurationLimits, Engine, ErrorRecovery, HostDevice, RecoveryLimits};
pub use directory::HostDirectory;
pub use memory::memory_bytes;
pub use random::HostRandom;
pub use real_time::{RealTimeDevice, WaitingClock};
pub use tasks::HostTasks;
pub use worker::{QUEUED_MAX, ThreadWorker};

use std::io;
use std::sync::Arc;

use claystone_env::Env;

/// The environment of a process: its clock, randomness, tasks on the current tokio runtime, and a worker with
/// one thread for each processor for computations.
///
/// # Errors
/// The system gives no random seed, or no threads.
///
/// # Panics
/// Outside a tokio runtime.
pub fn env() -> io::Result<Env> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Env {
        clock: Arc::new(HostClock::start()),
        random: Arc::new(HostRandom::from_system()?),
        tasks: Arc::new(HostTasks::current()),
        cpu: Arc::new(ThreadWorker::start("cpu", threads)?),
    })
}

/// Lets this process open as many files as the system allows it; returns how many that is. Every connection and every
/// chunk being written takes one, and the usual first limit is 1024.
pub fn raise_file_limit() -> Option<u64> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Refused: the old limit stays.
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current
}
