//! Open directories: rows read once, at offsets that stay.
//!
//! Invariants:
//! 1. Row n of a listing keeps its offset n + 1 until the listing is read from offset 0 again, which begins anew.
//! 2. A row that is in the directory all the while is listed exactly once: rows are fetched by name order, behind the last.
//!
//! A listing keeps the rows that were read, at most those of the directory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use claystone_files::{DirectoryEntry, FileError, FileTree, Inode, Kind};

/// All open directories by handle. Any thread may call.
#[derive(Default)]
pub struct Listings {
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    last_handle: u64,
    by_handle: BTreeMap<u64, Arc<Mutex<Listing>>>,
}

/// One open directory.
pub struct Listing {
    directory: Inode,
    rows: Vec<DirectoryEntry>,
    complete: bool,
}

impl Listings {
    /// Opens a directory and returns the handle.
    pub fn add(&self, directory: Inode) -> u64 {
        let listing = Listing { directory, rows: Vec::new(), complete: false };
        let mut open = self.open();
        open.last_handle += 1;
        let handle = open.last_handle;
        open.by_handle.insert(handle, Arc::new(Mutex::new(listing)));
        handle
    }

    /// Closes it.
    pub fn close(&self, handle: u64) {
        self.open().by_handle.remove(&handle);
    }

    /// Hands rows from `offset` on to `take`, with the offset behind each, until it says `false` or there are no more.
    ///
    /// # Errors
    /// Those of [`FileTree::read_directory`]; an unknown handle is [`FileError::Invalid`].
    pub fn read(
        &self,
        tree: &dyn FileTree,
        handle: u64,
        offset: u64,
        mut take: impl FnMut(&DirectoryEntry, u64) -> bool,
    ) -> Result<(), FileError> {
        let listing = self.open().by_handle.get(&handle).cloned();
        let listing = listing.ok_or(FileError::Invalid)?;
        let mut listing = listing.lock().unwrap_or_else(PoisonError::into_inner);
        if offset == 0 {
            listing.rows.clear();
            listing.complete = false;
        }
        let mut offset = offset;
        while let Some(row) = listing.row(tree, offset)? {
            offset += 1;
            if !take(row, offset) {
                break;
            }
        }
        Ok(())
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listing {
    fn row(&mut self, tree: &dyn FileTree, offset: u64) -> Result<Option<&DirectoryEntry>, FileError> {
        let index = usize::try_from(offset).map_err(|_| FileError::Invalid)?;
        if index == self.rows.len() && !self.complete {
            self.fetch(tree)?;
        }
        Ok(self.rows.get(index))
    }

    fn fetch(&mut self, tree: &dyn FileTree) -> Result<(), FileError> {
        if self.rows.is_empty() {
            let row = |name: &[u8], inode| DirectoryEntry { name: name.to_vec(), inode, kind: Kind::Directory };
            self.rows.push(row(b".", self.directory));
            self.rows.push(row(b"..", tree.lookup(self.directory, b"..")?.inode));
            return Ok(());
        }
        let after = self.rows[2..].last().map(|row| &row.name[..]);
        let more = tree.read_directory(self.directory, after, ROWS_AT_ONCE)?;
        self.complete = more.len() < ROWS_AT_ONCE;
        self.rows.extend(more);
        Ok(())
    }
}

/// About what one answer of 32 KiB holds.
const ROWS_AT_ONCE: usize = 512;

#[cfg(test)]
mod tests {
    use claystone_files::testing::{MemoryTree, SteppingClock, new_node};

    use super::*;

    fn read(listings: &Listings, tree: &dyn FileTree, handle: u64, offset: u64, limit: usize) -> Vec<(String, u64)> {
        let mut rows = Vec::new();
        let take = |row: &DirectoryEntry, offset| {
            rows.push((String::from_utf8_lossy(&row.name).into_owned(), offset));
            rows.len() < limit
        };
        listings.read(tree, handle, offset, take).expect("it is open");
        rows
    }

    #[test]
    fn offsets_stay_while_the_directory_changes() {
        let tree = MemoryTree::new(Arc::new(SteppingClock::default()), 100);
        let make = |name: &str| _ = tree.make(Inode::ROOT, name.as_bytes(), &new_node(Kind::File, 0)).expect("free");
        (0..1500).for_each(|number| make(&format!("{number:04}")));
        let listings = Listings::default();
        let handle = listings.add(Inode::ROOT);
        let first = read(&listings, &tree, handle, 0, 4);
        assert_eq!(first, [(".", 1), ("..", 2), ("0000", 3), ("0001", 4)].map(|(name, at)| (name.to_owned(), at)));
        tree.unlink(Inode::ROOT, b"0001").expect("it is there");
        make("00005");
        assert_eq!(read(&listings, &tree, handle, 4, 1), [("0002".to_owned(), 5)]);
        assert_eq!(read(&listings, &tree, handle, 3, 1), [("0001".to_owned(), 4)]);
        let rest = read(&listings, &tree, handle, 5, usize::MAX);
        assert_eq!((rest.len(), rest.last().map(|row| row.1)), (1497, Some(1502)));
        assert_eq!(read(&listings, &tree, handle, 1502, 1), []);
        assert_eq!(read(&listings, &tree, handle, u64::MAX, 1), []);
        // From the beginning: what is there now.
        let names: Vec<_> = read(&listings, &tree, handle, 0, 6).into_iter().map(|row| row.0).collect();
        assert_eq!(names, [".", "..", "0000", "00005", "0002", "0003"]);
        listings.close(handle);
        assert_eq!(listings.read(&tree, handle, 0, |_, _| true), Err(FileError::Invalid));
    }
}
