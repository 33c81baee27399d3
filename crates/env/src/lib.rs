//! All that a run cannot repeat enters through the traits of this crate.
//!
//! Invariants:
//! 1. Core crates reach time, randomness, tasks, threads and files only through [`Env`], [`Worker`] and [`Directory`].
//! 2. Every trait is object-safe and has two families of implementations: `host` (a real machine) and `sim`
//!    (a seeded world), so a seed replays a run exactly.
//! 3. Nothing here blocks except [`Directory`] and [`File`], and those are called on a [`Worker`] only.
//!
//! Left out: sector devices with per-sector results, and the network. They arrive with the crates that need them.

mod clock;
mod directory;
mod random;
mod tasks;
mod worker;

pub use clock::{Clock, Moment, WallTime, timeout};
pub use directory::{ALIGNED_BYTES, Directory, DirectoryLock, File, Space, aligned_buffer};
pub use random::Random;
pub use tasks::{Task, Tasks};
pub use worker::{Job, Worker, WorkerStopped, call};

use std::sync::Arc;

/// What a component is given to live in. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    /// Monotonic and wall time.
    pub clock: Arc<dyn Clock>,
    /// The source of all randomness; fork it by name so that one component's draws never shift another's.
    pub random: Arc<dyn Random>,
    /// Spawns background tasks.
    pub tasks: Arc<dyn Tasks>,
    /// Where long computations (hashes, encoding of large buffers) run.
    pub cpu: Arc<dyn Worker>,
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Env")
    }
}
