//! The parity of the groups that files were last written into, in memory: whoever appends a few sectors at a time reads
//! nothing for the parity.
//!
//! Invariants:
//! 1. What is kept is what the device should hold as the parity of exactly this group: it is given out only for a group at
//!    the same place, of the same length and with the same CRCs.
//! 2. At most [`GROUPS_MAX`] are kept, one for each file; the one not used for longest goes first.
// Source: [lec §3.2]

use std::collections::BTreeMap;

use bytes::Bytes;
use claystone_group::GroupPlace;

use crate::Inode;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Growing {
    groups: BTreeMap<Inode, Group>,
    uses: u64,
}

#[derive(Debug)]
struct Group {
    used: u64,
    place: GroupPlace,
    sums: Vec<u32>,
    parity: Bytes,
}

impl Growing {
    /// Keeps the parity, m sectors, of a group of a file; `sums` are the CRCs of its data.
    pub fn keep(&mut self, inode: Inode, place: GroupPlace, sums: &[u32], parity: Bytes) {
        self.uses += 1;
        self.groups.insert(inode, Group { used: self.uses, place, sums: sums.to_vec(), parity });
        if self.groups.len() > GROUPS_MAX {
            let oldest = self.groups.iter().min_by_key(|(_, group)| group.used).map(|(&inode, _)| inode);
            oldest.map(|inode| self.groups.remove(&inode));
        }
    }

    /// Nothing is kept of a file any more.
    pub fn forget(&mut self, inode: Inode) {
        self.groups.remove(&inode);
    }

    /// The parity of this group of a file, if it is kept.
    pub fn parity(&mut self, inode: Inode, place: GroupPlace, sums: &[u32]) -> Option<Bytes> {
        self.uses += 1;
        let group = self.groups.get_mut(&inode).filter(|group| group.place == place && group.sums == sums)?;
        group.used = self.uses;
        Some(group.parity.clone())
    }
}

/// With m = 5, 5 MiB, and CRCs of a KiB each at most with k = 250.
const GROUPS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use claystone_env::Sector;
    use claystone_group::GroupPlace;

    use super::{GROUPS_MAX, Growing};
    use crate::Inode;

    fn place(first: u64, data: u32) -> GroupPlace {
        GroupPlace { first: Sector(first), data, capacity: 10 }
    }

    #[test]
    fn parity_is_that_of_this_group_as_it_is() {
        let mut growing = Growing::default();
        growing.keep(Inode(7), place(100, 2), &[1, 2], Bytes::from_static(b"parity"));
        assert_eq!(growing.parity(Inode(7), place(100, 2), &[1, 2]).as_deref(), Some(&b"parity"[..]));
        for (inode, place, sums) in [
            (8, place(100, 2), [1, 2]),
            (7, place(101, 2), [1, 2]),
            (7, place(100, 3), [1, 2]),
            (7, place(100, 2), [1, 3]),
        ] {
            assert_eq!(growing.parity(Inode(inode), place, &sums), None, "{inode} {place:?} {sums:?}");
        }
        growing.keep(Inode(7), place(100, 3), &[1, 2, 3], Bytes::from_static(b"newer"));
        assert_eq!(growing.parity(Inode(7), place(100, 2), &[1, 2]), None);
        growing.forget(Inode(7));
        assert_eq!(growing.parity(Inode(7), place(100, 3), &[1, 2, 3]), None);
    }

    #[test]
    fn the_one_not_used_for_longest_goes_first() {
        let mut growing = Growing::default();
        for inode in 0..GROUPS_MAX as u64 {
            growing.keep(Inode(inode), place(inode, 1), &[0], Bytes::new());
        }
        assert!(growing.parity(Inode(0), place(0, 1), &[0]).is_some());
        growing.keep(Inode(9999), place(9999, 1), &[0], Bytes::new());
        assert!(growing.parity(Inode(0), place(0, 1), &[0]).is_some());
        assert!(growing.parity(Inode(1), place(1, 1), &[0]).is_none());
        assert_eq!(growing.groups.len(), GROUPS_MAX);
    }
}
