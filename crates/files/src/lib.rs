//! Files on one device: names, runs of groups, a journal; every byte under local parity.
//!
//! The format is docs/formats/disk.md.

mod catalog;
mod change;
mod check;
mod commit;
mod content;
mod copies;
mod core;
mod directory;
mod disk;
#[cfg(test)]
mod emulated;
mod error;
mod fields;
mod flush;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
mod grow;
mod growing;
mod info;
mod inode;
mod journal;
mod keys;
mod loading;
mod loss;
mod lost;
mod malformed;
mod name;
mod namespace;
mod node;
mod overlay;
mod pages;
mod placing;
mod posix;
mod record;
mod replay;
mod resting;
mod run;
mod scrub;
mod seen;
mod shrink;
mod slab;
mod space;
mod state;
mod superblock;
mod taken;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod torn;
mod tree;
mod view;

pub use change::{Change, Record, Table};
pub use check::{CheckReport, Owner, Problem};
pub use claystone_group::DiskId;
pub use directory::DiskDirectory;
pub use disk::{Disk, Format, TendAgain, Tuning};
pub use error::{Damage, DiskError};
pub use info::DiskInfo;
pub use malformed::Malformed;
pub use namespace::NameProblem;
pub use scrub::Scrubbed;
pub use tree::{
    Attributes, DirectoryEntry, FileError, FileTree, Inode, Kind, NewAttributes, NewNode, RenameMode, Seek, Setting,
    SpaceFigures, Timestamp,
};
