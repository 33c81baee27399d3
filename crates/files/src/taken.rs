//! How many sectors of the device files take, kept for those that were asked about: counting them reads all windows of a file.
//!
//! Invariants:
//! 1. What is kept of a file is what its windows come to: it follows each change of one, or is forgotten.
//! 2. It is kept of [`FILES_MAX`] files at most.

use std::collections::BTreeMap;

use claystone_group::GroupShape;

use crate::catalog::Catalog;
use crate::run::Window;
use crate::{Change, Inode, Table, keys};

/// See the module.
#[derive(Debug)]
pub(crate) struct Taken {
    shape: GroupShape,
    files: BTreeMap<Inode, u64>,
}

impl Taken {
    /// Of no file yet.
    pub fn new(shape: GroupShape) -> Taken {
        Taken { shape, files: BTreeMap::new() }
    }

    /// What a file takes, if it is kept.
    pub fn of(&self, inode: Inode) -> Option<u64> {
        self.files.get(&inode).copied()
    }

    /// Counts what a file takes by its windows, all of them, and keeps it.
    pub fn count(&mut self, inode: Inode, windows: &[Window]) -> u64 {
        let sectors = windows.iter().map(|window| window.taken(self.shape)).sum();
        if self.files.len() >= FILES_MAX {
            self.files.clear();
        }
        self.files.insert(inode, sectors);
        sectors
    }

    /// Follows changes that are about to be applied to a catalog.
    pub fn follow(&mut self, changes: &[Change], catalog: &Catalog) {
        if self.files.is_empty() {
            return;
        }
        // A row may change twice.
        let mut changed: BTreeMap<&[u8], Option<u64>> = BTreeMap::new();
        for Change { table: _, key, value } in changes.iter().filter(|change| change.table == Table::Runs) {
            let Ok((inode, first)) = keys::decode_run(key) else { continue };
            let Some(sectors) = self.of(inode) else { continue };
            let taken = |row: Option<&[u8]>| match row {
                None => Some(0),
                Some(row) => Some(Window::decode(inode, first, row, self.shape.data).ok()?.taken(self.shape)),
            };
            let before = match changed.get(&key[..]) {
                Some(before) => *before,
                None => catalog.get(Table::Runs, key).ok().and_then(|row| taken(row.as_deref())),
            };
            let after = taken(value.as_deref());
            changed.insert(key, after);
            let now = before.zip(after).and_then(|(before, after)| Some(sectors.checked_sub(before)? + after));
            match now {
                Some(now) => drop(self.files.insert(inode, now)),
                None => drop(self.files.remove(&inode)),
            }
        }
    }

    /// Forgets all: the catalog was opened anew.
    pub fn forget(&mut self) {
        self.files.clear();
    }

    /// What is kept.
    #[cfg(test)]
    pub fn all(&self) -> impl Iterator<Item = (Inode, u64)> {
        self.files.iter().map(|(inode, sectors)| (*inode, *sectors))
    }
}

const FILES_MAX: usize = 65_536;
