//! Drills of a tiered device: two emulated devices under power cuts, failing operations, hurt sectors, and one of them gone.
//!
//! A run takes steps on a pair and in a [`Model`] of what callers were told. Its logs are so short that they are full all the time. Of five
//! seeds one steers by a profile and pads, the others send every so many writes to the hard disk's log.
//!
//! | fault | what happens |
//! |---|---|
//! | cuts | the power of both is cut during every operation that changes something, some times each, in a branch of one run; in some branches again in every operation of the opening. So in every write and sync of an index, and of the superblock that names it |
//! | cuts of two | the same while two callers write, sync, drain and read at once. They are on threads of which one runs; before and behind each operation of a device, and where calls wait for each other, the seed says which. Of two writes of a sector at once either may be the later one |
//! | hurts | in branches, after the cut or between calls: a sector of a log or of a superblock is lost, or a bit flips |
//! | ssd gone, hdd gone | from the operation after so many on, in the middle of whatever it is for, every call of the device fails; so for each operation of a run |
//! | ssd fails, hdd fails | that operation fails |
//! | alone | after the cut the solid-state drive is gone for good, where the hard disk says that all is at home |
//!
//! Invariants:
//! 1. A seed replays a run exactly.
//! 2. A sector is the newest that a sync promised or newer, or it is said to be lost where a sector of a log was hurt or the solid-state
//!    drive is gone. What was read stays so until it is written.
//!
//! Files on such a device ([`run_files`]): the power is cut in the operations of a mixed load, and what was synced of each file is there.
//! [`run_deaths`]: the solid-state drive dies in use, then the power is cut, and the hard disk is opened alone: what was synced is there, or an error.
//!
//! A store on such disks ([`run_store`]): solid-state drives die, processes are killed, and what was acknowledged is there.
//!
//! Left out: a mark and a record of its list hurt at once, which the format cannot tell apart from a power cut when
//! nothing was written behind them.

mod callers;
mod files;
mod model;
mod pair;
mod run;
mod store;
mod turns;

pub use files::{DeathReport, FilesReport, run_deaths, run_files};
pub use model::{Model, Step};
pub use run::{Fault, TierReport, run_fault, run_seed};
pub use store::{StoreReport, run_store};
