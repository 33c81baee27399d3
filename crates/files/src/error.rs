//! Why a disk does not do what it was asked for.

use std::error::Error;
use std::io;

use claystone_env::{DeviceError, Sector};
use claystone_group::GroupCodeError;

use crate::catalog::CatalogError;
use crate::{FileError, Table};

/// A disk cannot be opened, or an operation on it failed.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// No superblock is where a disk has one.
    #[error("{label} is not a Claystone disk: make it one with `claystone disk format`")]
    NotADisk {
        /// The device.
        label: String,
    },
    /// The disk was formatted by a later or a much earlier program.
    #[error(
        "{label} has disk format {found}, and this program knows {supported}: it needs the claystone that it was formatted with"
    )]
    OtherVersion {
        /// The device.
        label: String,
        /// Its version.
        found: u16,
        /// The one that is known here.
        supported: u16,
    },
    /// The device is smaller than the disk on it.
    #[error("{label} has {found} sectors, and the disk on it {expected}: was it cut short?")]
    DeviceShrunk {
        /// The device.
        label: String,
        /// Sectors of the device.
        found: u64,
        /// Sectors of the disk.
        expected: u64,
    },
    /// What the disk holds is lost or contradicts itself.
    #[error("the disk is damaged")]
    Damaged(#[from] Damage),
    /// The device did not do it.
    #[error("the device failed")]
    Device(#[from] DeviceError),
    /// The journal must be trimmed before.
    #[error("the journal has room for {room} sectors, and the entry takes {needed}")]
    JournalFull {
        /// Sectors that the entry takes.
        needed: u64,
        /// Sectors that are free.
        room: u64,
    },
    /// No trimming makes room for this entry.
    #[error("the journal has {sectors} sectors, and the entry takes {needed}")]
    EntryTooLarge {
        /// Sectors that the entry takes.
        needed: u64,
        /// Sectors of the journal.
        sectors: u64,
    },
    /// The catalog cannot grow.
    #[error("no room for {pages} more pages of the catalog")]
    CatalogFull {
        /// Pages that it lacks.
        pages: u64,
    },
    /// The device is too small for a disk.
    #[error("{sectors} sectors are too few for a disk: it takes {sectors_min}")]
    TooSmall {
        /// Sectors of the device.
        sectors: u64,
        /// The least.
        sectors_min: u64,
    },
    /// No disk can be so.
    #[error("such a disk cannot be made")]
    Format(#[source] Damage),
    /// No such code.
    #[error("a disk cannot have such groups")]
    Code(#[from] GroupCodeError),
    /// The catalog's database did not do it.
    #[error("{0}")]
    Catalog(String),
    /// A file could not be brought to its place.
    #[error("what the journal holds could not be brought to its place")]
    File(#[from] FileError),
    /// After an error whose effect on the device is unknown, nothing more is read or written until it is opened anew.
    #[error("the disk stopped after an earlier error: unmount it and open it again")]
    Stopped,
}

/// What is lost, or does not fit. Places are sectors of the device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// No copy of the superblock has the right checksum.
    #[error("the superblock's checksum is {found:#010x}, not {expected:#010x}, and no other copy is right")]
    SuperblockChecksum {
        /// What is stored.
        found: u32,
        /// What its bytes give.
        expected: u32,
    },
    /// A field of the superblock is out of bounds.
    #[error("the superblock says that {field} is {value}")]
    SuperblockField {
        /// Which field.
        field: &'static str,
        /// Its value; of a double, its bits.
        value: u64,
    },
    /// A slab of the page file lies outside the disk, or where something else is.
    #[error("the superblock puts slab {number} of {pages} pages at sector {}, which cannot be", first.0)]
    Slab {
        /// Its number, from 0.
        number: usize,
        /// Where it begins.
        first: Sector,
        /// How many pages it has.
        pages: u64,
    },
    /// All copies of the superblock are unreadable.
    #[error("no copy of the superblock can be read")]
    SuperblockLost,
    /// No header of the page file is right.
    #[error("no copy of the page file's header can be read")]
    HeaderLost,
    /// Sums are newer than the next header's would be: the newest header is lost.
    #[error("the page file's header is of sync {header}, and its checksums are of sync {sums}")]
    HeaderStale {
        /// The sync of the newest header.
        header: u64,
        /// The sync of the newest sums sector.
        sums: u64,
    },
    /// Neither slot of a sums sector of the page file is right.
    #[error("no copy of the checksums at sector {} can be read", place.0)]
    SumsLost {
        /// Where slot A lies.
        place: Sector,
    },
    /// No copy of a page is right.
    #[error("no copy of page {page} at sector {} can be read", place.0)]
    PageLost {
        /// Which page of the page file.
        page: u64,
        /// Where it lies.
        place: Sector,
    },
    /// A page was asked for that was never written, or lies behind the end.
    #[error("page {page} was never written")]
    PageUnwritten {
        /// Which page of the page file.
        page: u64,
    },
    /// An entry of the journal cannot be read, and a later one can: it was promised.
    #[error("entry {sequence} of the journal, at its sector {position}, cannot be read, and entry {later} is there")]
    JournalEntry {
        /// The entry's sequence.
        sequence: u64,
        /// Where it lies in the journal.
        position: u64,
        /// The highest sequence found.
        later: u64,
    },
    /// Where the next entry of the journal would begin nothing can be read, and the device knows that it has lost what was there: that may
    /// have been an entry that was promised, so what the disk holds may be older than what was promised.
    #[error(
        "entry {sequence} of the journal, at its sector {position}, is lost if there was one: the solid-state drive alone had it. \
         Files may lack what was synced last, so the disk does not open: replace it as a broken one, and other disks rebuild what it had"
    )]
    JournalLost {
        /// The entry's sequence.
        sequence: u64,
        /// Where it lies in the journal.
        position: u64,
    },
    /// An entry of the journal has the right checksum and holds what no entry does.
    #[error("entry {sequence} of the journal, at its sector {position}, is malformed at byte {at}")]
    JournalRecord {
        /// The entry's sequence.
        sequence: u64,
        /// Where it lies in the journal.
        position: u64,
        /// Which byte of its records.
        at: usize,
    },
    /// A row of the catalog makes no sense.
    #[error("row {key:02x?} of the catalog's table {table:?} makes no sense")]
    Row {
        /// The table.
        table: Table,
        /// The row's key.
        key: Vec<u8>,
    },
    /// The journal's position in the catalog is none.
    #[error("the catalog puts the journal at sector {position} of {sectors}")]
    JournalPosition {
        /// The position.
        position: u64,
        /// Sectors of the journal.
        sectors: u64,
    },
}

impl From<CatalogError> for DiskError {
    fn from(error: CatalogError) -> DiskError {
        DiskError::Catalog(with_sources(&error))
    }
}

/// What an error says, with all that caused it.
pub(crate) fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

impl DiskError {
    /// As the page file gives it to the database.
    pub(crate) fn into_io(self) -> io::Error {
        io::Error::other(Whole(self))
    }
}

/// An error that says itself what caused it: the database's errors have no sources.
#[derive(Debug, thiserror::Error)]
#[error("{}", with_sources(.0))]
pub(crate) struct Whole(pub(crate) DiskError);
