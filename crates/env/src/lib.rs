//! All that a run cannot repeat enters through the traits of this crate.
//!
//! Invariants:
//! 1. Core crates reach time, randomness, tasks, threads, files and devices only through [`Env`], [`Worker`], [`Directory`]
//!    and [`Device`].
//! 2. Every trait is object-safe and has two families of implementations: `host` (a real machine) and `sim`
//!    (a seeded world), so a seed replays a run exactly.
//! 3. Nothing here blocks except [`Directory`], [`File`] and [`Device`], and those are called on a [`Worker`] only.
//!
//! Left out: the network. It arrives with the crates that need it.

mod clock;
mod device;
mod directory;
mod emulated;
mod pair;
mod random;
mod sectors;
mod tasks;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod worker;

pub use clock::{Clock, Moment, WallTime, timeout};
pub use device::{
    Device, DeviceError, Effort, FailedSector, Geometry, SECTOR_BYTES, Sector, SectorFailure, SectorRange,
};
pub use directory::{ALIGNED_BYTES, Directory, DirectoryLock, File, Space, aligned_buffer};
pub use emulated::EmulatedTime;
pub use pair::{BufferState, LogFill, PairHealth, SsdState};
pub use random::Random;
pub use sectors::{ParityVerdict, ScrubProgress, SectorHealth, SoftChance};
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
