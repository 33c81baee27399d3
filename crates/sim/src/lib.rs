//! The `env` traits in a simulated world: one seed, one run, event for event.
//!
//! Invariants:
//! 1. Nothing here reads a real clock, real randomness or a real file, and everything runs on one thread, but for devices
//!    outside of worlds ([`SimDevice::alone`]): those take calls of any thread, and their time is their caller's.
//! 2. Every operation of a simulated disk or device goes into the world's trace, so two runs can be compared by one number.
//! 3. A simulated disk keeps no more after a crash than the contract of `env::Directory` promises, and no less; a
//!    simulated device, than that of `env::Device`.
//!
//! Left out: messages between processes. They arrive with the crates that need them; until then a link ([`SimLink`]) and a
//! drive ([`SimSsd`], behind a [`SimCache`]) tell how long things take, and whoever asks them does the things.
//!
//! ```
//! let reached = claystone_sim::run(42, |world| async move {
//!     let process = world.process("node-1");
//!     process.env().clock.sleep(std::time::Duration::from_secs(3600)).await;
//!     process.env().clock.now().0.as_secs()
//! });
//! assert_eq!(reached, 3600);
//! ```

mod cache;
mod clock;
mod device;
mod directory;
mod disk;
mod files;
mod link;
mod process;
mod random;
mod ssd;
mod trace;
mod worker;
mod world;

pub use cache::{CacheModel, CacheStats, CachedFile, SimCache};
pub use clock::SimClock;
pub use device::{
    BufferModel, BufferedWrite, DeviceFaults, DeviceMoment, DeviceStats, DriveModel, HddModel, SimDevice,
};
pub use disk::{DiskModel, Fault, SimDisk, Stats};
pub use link::{LinkModel, SimLink};
pub use process::Process;
pub use random::SimRandom;
pub use ssd::{SimSsd, SsdModel, SsdStats, WriteOrder};
pub use trace::TraceSum;
pub use worker::SimWorker;
pub use world::{World, run};
