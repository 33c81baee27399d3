//! The place of one group, and its members.
//!
//! Invariants:
//! 1. Data sectors in use come first; then room for more, up to the capacity; then parity.

use std::fmt;

use claystone_env::Sector;

/// A sector of a group by what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Member {
    /// The data sector at this position, from 0.
    Data(u32),
    /// The parity sector of this number, from 0.
    Parity(u32),
}

/// Where a group lies: `capacity` data sectors from `first`, of which the first `data` are in use, then its parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GroupPlace {
    /// The sector of data position 0.
    pub first: Sector,
    /// Data sectors in use; the others up to k count as zeros, whatever the device holds there.
    pub data: u32,
    /// Data sectors that there is room for.
    pub capacity: u32,
}

impl GroupPlace {
    /// Where a member lies.
    ///
    /// # Panics
    /// If there is no room for such a data sector.
    pub fn sector(&self, member: Member) -> Sector {
        match member {
            Member::Data(position) => {
                assert!(position < self.capacity, "position {position} of {}", self.capacity);
                Sector(self.first.0 + u64::from(position))
            }
            Member::Parity(number) => Sector(self.first.0 + u64::from(self.capacity) + u64::from(number)),
        }
    }
}

impl fmt::Display for GroupPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the group of {} data sectors at {}", self.data, self.first.0)
    }
}
