//! Volumes over stores in memory.

mod comparators;
mod crashes;
mod device;
mod hazards;
mod histories;
mod snapshots;
mod recovery;
mod whole;
mod world;
