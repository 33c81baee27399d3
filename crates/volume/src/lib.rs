//! Block volumes on erasure codes that write like replicas: to a log now, into stripes later.
//!
//! Source: [drc-dpu §3]: pages are redirected to replicated diffs, parity is updated when diffs are merged.
//!
//! Invariants:
//! 1. A write is in the log on more disks than the code tolerates losses before it returns, or on as many as there are;
//!    no parity and no database is on its way.
//! 2. What a merge writes in place is in the log first, so that a crash at any step is mended by writing it again.
//! 3. A volume has one owner: its lease, and the fence of its term at every store, refuse all former ones.
//!
//! Left out: protocols, which are above ([`Blocks`] is what they translate to).

mod base;
mod blocks;
mod coding;
pub mod comparators;
pub mod costs;
mod diffs;
mod error;
mod flusher;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod gate;
mod geometry;
mod homes;
mod log;
mod merge;
mod open;
mod pace;
mod readers;
mod settings;
mod snapshot;
mod strand;
mod switch;
mod task;
mod tending;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod toll;
mod volume;
mod volumes;
mod zeros;

pub use blocks::{Access, Blocks, BlocksError, Durable, Space, Span, SpanKind, Stretch, Zeroing, joined, within};
pub use error::VolumeError;
pub use geometry::Geometry;
pub use log::LogFailure;
pub use settings::{FormTally, MergeReport, RESERVE_BYTES_MAX, Settings, SwitchReport, VolumeStatus};
pub use snapshot::Snapshot;
pub use strand::{Strand, StrandName};
pub use switch::{Form, FormSpace, Switch, reserve_paid_by, reserve_share};
pub use volume::Volume;
pub use volumes::{Found, FoundSnapshot, NewVolume, Recovered, Scratch, SnapshotName, State, Volumes};
