//! What the journal carries: changes of the catalog, and sectors that wait to be applied.

use crate::Inode;

/// A table of the catalog. The numbers are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Table {
    /// Single values by name.
    State = 0,
    /// Inode records by inode.
    Inodes = 1,
    /// Inodes by directory and name.
    Names = 2,
    /// Extended attributes by inode and name.
    Attributes = 3,
    /// Run records by inode and first file sector.
    Runs = 4,
    /// Free sectors: counts by first sector.
    Free = 5,
    /// Inodes without a name that may be open.
    Orphans = 6,
}

/// One row of the catalog set or deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The table.
    pub table: Table,
    /// The row's key.
    pub key: Vec<u8>,
    /// The row's new value; `None` deletes the row.
    pub value: Option<Vec<u8>>,
}

/// A record of a journal entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A row of the catalog changes.
    Change(Change),
    /// A sector of a file was written and waits to be applied.
    Written {
        /// Whose.
        inode: Inode,
        /// Which sector of the file.
        sector: u64,
        /// Its 4096 bytes.
        bytes: Vec<u8>,
    },
    /// A sums sector is about to be written.
    Sums {
        /// Its place on the device.
        place: u64,
        /// Its 4096 bytes.
        bytes: Vec<u8>,
    },
    /// Sectors of a file that were written before count no more.
    Forget {
        /// Whose.
        inode: Inode,
        /// The first sector of the file.
        first: u64,
        /// The one behind the last.
        end: u64,
    },
}
