//! Who may change what a store keeps for one owner.
//!
//! An owner is a volume: its log, and the chunks that its merges write. Whoever opens it takes a lease with a greater
//! term than any before, and *fences* it at the stores: from then on they refuse every change under a lesser term, so
//! that a former owner that lives on, stalled or cut off, changes nothing any more.

use std::fmt;

/// Who owns segments: a volume, for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u128);

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The generation of a lease: each has a greater one than all before it of the same owner. 0 is no lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Term(pub u64);

/// The right to change what an owner has, until a lease of a greater term is fenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease {
    /// Whose.
    pub owner: OwnerId,
    /// Which of its leases.
    pub term: Term,
}
