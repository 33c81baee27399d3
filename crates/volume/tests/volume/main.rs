//! Volumes over stores in memory.

mod comparators;
mod crashes;
mod device;
mod whole;
mod world;
