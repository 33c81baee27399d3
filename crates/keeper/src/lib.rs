//! Background upkeep: pure planners propose tasks, one executor carries them out at a pace.
//!
//! Invariants:
//! 1. Decisions ([`plan_repairs`], [`plan_drain`], [`plan_conversions`], [`order_costs`], [`due`],
//!    [`pause`]) are pure functions over plain data.
//! 2. Data goes nowhere but through [`Stripes`](claystone_stripe::Stripes), records change through
//!    [`Meta`](claystone_meta::Meta) only; after a crash at any instant upkeep starts from the records alone.
//! 3. A chunk is deleted only if it is superseded by a committed record, its stripe is dead, or no claim and then no
//!    record names it.
//! 4. "Healthy" is said only of what was read back ([`Status`]).
//!
//! Left out: diffs (merge) and the redundancy of volumes, which are crate `volume`'s.

mod backoff;
mod batch;
mod conversions;
mod convert;
mod drain;
mod error;
mod families;
mod heat;
mod keeper;
mod loops;
mod losses;
mod notes;
mod order;
mod overview;
mod pace;
mod parts;
mod plan;
mod policies;
mod progress;
mod queue;
mod reclaim;
mod repair;
mod scrub;
mod settings;
mod snapshot;
mod spread;
mod status;
mod survey;
mod view;
mod waiting;
mod why;

pub use conversions::{BucketSnapshot, Change, Resident, Space, Standing, plan_conversions};
pub use convert::ConversionError;
pub use drain::DrainRound;
pub use error::KeeperError;
pub use keeper::{Idle, Keeper};
pub use losses::LossRound;
pub use order::{OrderCosts, order_costs};
pub use pace::{Activity, ActivityGuard, FADE, RateLimit, load, pause};
pub use plan::{Plan, Task, plan_drain, plan_repairs};
pub use policies::{Explained, Explanation, PolicyRound};
pub use progress::{JobKind, JobReport, Progress, WINDOW};
pub use reclaim::ReclaimRound;
pub use repair::RepairRound;
pub use scrub::{DamageRound, ScrubRound, due};
pub use settings::{Settings, SettingsError};
pub use snapshot::{Condition, Exposure, Outlook, Snapshot};
pub use status::{
    AtRisk, ConversionBytes, ConversionTotals, DiskStatus, Overall, PairStatus, PolicyStatus, RepairTotals,
    ScrubReport, SectorStatus, Status, StripeCounts, Unreachable, counted,
};
pub use why::Why;
