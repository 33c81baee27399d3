//! Drills of one disk: files on an emulated device, under power cuts, failing operations and hurt sectors.
//!
//! A run takes steps on a disk and in a [`Model`] of what callers were told. After each crash the disk is opened again; then
//! its own check must find nothing, all that was promised must be there, and nothing that never was.
//!
//! | fault of a case | what happens |
//! |---|---|
//! | `cut:n` | the power is cut during the operation of the device after n calls of it |
//! | `fail:n` | that operation fails |
//! | `cut:opening:n`, `fail:growing:n` | the same, counted from the begin of some [`Work`] of the disk |
//! | `cuts` | the power is cut during every operation that changes something, each in a branch of one run |
//! | `fails` | every operation of some steps fails, each in a branch of one run |
//! | `crashes` | both, again and again, also while the disk opens, with copies of metadata hurt |
//! | `storm` | both, every few operations of the device |
//! | `hurts` | sectors are lost, flipped, stale or misdirected, as many as a group or copies can lose, between calls and in writes |
//! | `beyond:n` | more than that is lost, of the thing after n: reads give an error that names it, or the right bytes |
//!
//! A case is of a [`Scale`]: groups of eight sectors, unless it says another.
//!
//! Invariants:
//! 1. A [`Case`] replays a run exactly.
//! 2. Sectors fail softly in most runs, up to three in ten, alone or in bursts; that is never an error of a call.
//! 3. What is hurt can be recovered ([`Atlas`]), but for `beyond`; so every failure is a bug of the disk (or of the drill).
//!
//! Left out: hurt groups and power cuts in one run, but during a scrub: a group that lost a sector while others of it are
//! written may need what the cut took.

mod atlas;
mod case;
mod model;
mod report;
mod run;
mod scale;
mod scenario;
mod subject;

pub use atlas::{Atlas, Code};
pub use case::{Case, Fault, NoCase, Work};
pub use model::{Content, Model, Node, Shape, ShapeChange};
pub use report::{DiskReport, FaultCounts};
pub use run::run_case;
pub use scale::Scale;
pub use scenario::{SCENARIOS, Scenario, Step};
