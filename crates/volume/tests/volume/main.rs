//! Volumes over stores in memory.

mod crashes;
mod device;
mod world;
