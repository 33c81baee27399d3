//! Writes that know the drive: a hard disk takes sequential writes into a buffer of its own in microseconds, until the buffer
//! is full and one write waits for milliseconds. Whoever counts bytes knows which write that will be, and sends it elsewhere.
//!
//! ```text
//! profile_device -> Staircase -> Finding::Buffered(Profile)        once for a drive
//! Predictor::new(profile): predict, queue, wrote, upkeep           for each drive, beside every write
//! SsdQueue: begin, end, view                                       beside every write of the solid-state drive
//! steer(rule, its view, views of the hard disks)                   for each write
//! TieredDevice::format, open: write_each, read_each, sync, tend, index    one device over a hard disk and a solid-state drive
//! ```
//!
//! Source: [bcw §BCW], [bcw §MIOS].
//!
//! Invariants:
//! 1. All but [`profile_device`] and [`TieredDevice`] are pure functions and a state machine that is told what happened: no I/O, no
//!    clock, no chance.
//! 2. A write for which [`Predictor::predict`] says [`WriteState::Slow`] is never sent to a hard disk by [`steer`].

mod ages;
mod credit;
mod device;
mod error;
mod fields;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod index;
mod latency;
mod member;
mod overlay;
mod padding;
mod predictor;
mod profile;
mod profiler;
mod recess;
mod record;
mod recovery;
mod ring;
mod scheduler;
mod ssd_queue;
mod stage;
mod staircase;
mod superblock;
mod varint;

pub use device::{
    Bell, Drained, Now, Opening, Steering, Tended, TierCounts, TierFormat, TierInfo, TierTuning, TieredDevice,
};
pub use error::{Damage, TierError};
pub use latency::{SizeLatency, WriteState};
pub use member::Member;
pub use padding::{Padding, Upkeep};
pub use predictor::{Counts, Predictor, Sender, Stage, Trust, Tuning};
pub use profile::{FORMAT_VERSION, Profile, ProfileError};
pub use profiler::{ProfilePlan, profile_device};
pub use scheduler::{DiskView, Early, Mode, Rule, Target, queue_threshold, steer};
pub use ssd_queue::{SsdQueue, SsdTicket, SsdView};
pub use stage::StageBytes;
pub use staircase::{Finding, Irregularity, Run, Staircase};
pub use superblock::{PairId, Side};
