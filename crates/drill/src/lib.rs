//! A whole simulated store from a seed, with faults that it must survive and checks of what it kept.
//!
//! A run is a sequence of rounds. In each, clients put, copy, upload and delete objects at the same time, disks are
//! damaged, and the process may be killed with the power of all disks. After each round every object is read and
//! compared with what clients were told; at the end everything is repaired and must be verified, and no chunk may be
//! left that no record names.
//!
//! Of four stores one acknowledges before all is synced (`durability = "replicated"`), on few nodes, of which one at a time loses power
//! at any instant in place of such faults.
//!
//! Invariants:
//! 1. A seed replays a run exactly: everything goes through the simulated environment.
//! 2. Faults come from an [`Atlas`] laid out so that all acknowledged data can be recovered; so every failure is a bug
//!    of the store (or of the drill), never bad luck.
//! 3. An operation that returned success happened; one that returned an error did not; one that was cut off by a
//!    crash happened or not, and stays so.
//!
//! Left out: the network and protocol crates, which are tested with real clients, and the files of SQLite, whose
//! transactions count as atomic and durable here.

mod atlas;
mod cluster;
mod conversions;
pub mod disk;
mod model;
mod run;
pub mod tier;
mod volume;

pub use atlas::Atlas;
pub use cluster::{BUCKET, Cluster, Promise};
pub use conversions::{
    ConversionCase, ConversionStep, DiskPart, GiveWayStep, LateLoss, SpreadStep, run_conversion, run_give_way,
    run_late_loss, run_spread, survey_conversion,
};
pub use model::{Model, Stored};
pub use run::{Report, run_seed};
pub use volume::{Step, StepFault, Takeover, VolumeReport, Work, run_step, run_takeover, run_volume_seed};
