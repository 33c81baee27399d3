//! Groups of data and parity sectors on a device: encoded, read with mending, updated.
//!
//! Where the sectors of a run lie, and what is in a sums sector, is in docs/formats/disk.md; what a run belongs to, and
//! what of it is in memory or in a journal, the callers know.
//!
//! Invariants:
//! 1. No wrong byte: a data sector is returned only if it matched its CRC, or, while its sums sector cannot be read, if
//!    its whole group was found to be a codeword with a parity sector to spare.
//! 2. Only [`Groups::write_new`], [`Groups::write_bulk`], [`Groups::write_update`] and [`Groups::write_bulk_update`] change what a
//!    device holds. Reads and scrubs write what was there: mended sectors, parity of data that was checked, sums.
//! 3. Callers see to it that a group is not written while somebody else reads, scrubs or writes it: who reads
//!    a sector under its old sums would take the new one for damaged, and mend it back. Else all calls may be made at once.
//! 4. With m = 0 nothing is decoded: the device is asked to retry at once.
//! 5. What is mended of a group and an update of it are never unsynced at once ([`Groups::sync`]): a power cut may tear both.
//! 6. Parity that cannot be made is void, and told to be by its bytes ([`UpdateWay::Void`]).
//!
//! Left out: when to sync, and what it takes to write a group again safely (the journal of crate `files`).

mod bulk;
mod code;
mod gathering;
mod groups;
mod lost;
mod pace;
mod place;
mod recent;
mod run;
mod scrub;
mod statistics;
mod sums;
mod sums_cache;
mod swath;
mod swaths_sector;
mod unsynced;
mod update;
mod void;
mod written;

pub use bulk::{BulkUpdate, GroupChanges, Known, LostGroup, SumsUpdate};
pub use code::{GroupCode, GroupCodeError};
pub use groups::{Cached, GroupError, Groups, NOTHING_CACHED, NewGroup};
pub use pace::{Mending, Pace, TRIED_SECTORS};
pub use place::{GroupPlace, Member};
pub use run::{BulkRun, GroupShape, ShownRun};
pub use scrub::ScrubReport;
pub use statistics::{Statistics, StatisticsNow};
pub use sums::{DiskId, SUMS_PER_SECTOR, SumsDamage, SumsSector, sector_sum};
pub use update::{Change, SectorWrite, Update, UpdateChoice, UpdatePlan, UpdateWay, plan_update};
