//! Volumes over stores in memory.

mod appends;
mod comparators;
mod copies;
mod crashes;
mod device;
mod full;
mod hazards;
mod histories;
mod homes;
mod late;
mod nodes;
mod openings;
mod recovery;
mod slowdown;
mod snapshots;
mod switches;
mod takeovers;
mod upkeep;
mod waits;
mod whole;
mod world;
