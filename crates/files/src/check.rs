//! Whether the catalog of a disk is right: its names, its runs, and whose each sector is.
//!
//! 1. What `namespace::check` says of names holds.
//! 2. A window is of a file that is there, and no two of a file overlap.
//! 3. Each sector behind the journal and before the last superblock is in one group, one slab, or free; nothing is two of
//!    these, and nothing is none.
//!
//! It reads the catalog only. Whether data is right, a scrub tells. It holds a few words of memory for each node, run and
//! row of free sectors.

use std::collections::BTreeSet;
use std::fmt;

use claystone_env::{Sector, SectorRange};
use claystone_group::BulkRun;

use crate::core::Core;
use crate::disk::{Disk, guard};
use crate::inode::InodeRecord;
use crate::keys::{self, Span};
use crate::namespace::{NameProblem, check_names};
use crate::run::{Run, Window};
use crate::view::View;
use crate::{FileError, Inode, Kind, Table};

/// What a sector is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// Groups and sums of a file.
    File(Inode),
    /// A slab of the page file.
    Catalog,
    /// Nothing: a row of free sectors.
    Nobody,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::File(inode) => write!(f, "inode {inode}"),
            Owner::Catalog => write!(f, "the catalog"),
            Owner::Nobody => write!(f, "free sectors"),
        }
    }
}

/// Something that is not as it has to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Of names.
    #[error(transparent)]
    Name(#[from] NameProblem),
    /// A row of a table makes no sense.
    #[error("row {key:02x?} of table {table:?} makes no sense")]
    Row {
        /// The table.
        table: Table,
        /// The row's key.
        key: Vec<u8>,
    },
    /// Runs of what is no file.
    #[error("inode {inode} has runs, and is no file")]
    RunsOfNoFile {
        /// Which.
        inode: Inode,
    },
    /// Two windows of a file have a sector of it in common.
    #[error("inode {inode}: two windows have file sector {sector}")]
    WindowsOverlap {
        /// Whose.
        inode: Inode,
        /// The first common one.
        sector: u64,
    },
    /// Sectors of the device are two things.
    #[error("{range}: {one} and {other}")]
    Shared {
        /// Which.
        range: SectorRange,
        /// One.
        one: Owner,
        /// The other.
        other: Owner,
    },
    /// Sectors of the device are nothing: lost space.
    #[error("{range} are neither used nor free")]
    Leaked {
        /// Which.
        range: SectorRange,
    },
    /// Sectors that cannot be a file's are.
    #[error("{range} of {owner} lie outside")]
    Outside {
        /// Which.
        range: SectorRange,
        /// Whose.
        owner: Owner,
    },
}

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// All that is wrong.
    pub problems: Vec<Problem>,
    /// Nodes there are.
    pub nodes: u64,
    /// Windows of files.
    pub windows: u64,
    /// Sectors of the device in files, parity and sums included.
    pub file_sectors: u64,
    /// Sectors of the device in slabs of the catalog.
    pub catalog_sectors: u64,
    /// Free ones.
    pub free_sectors: u64,
}

impl Disk {
    /// Checks the catalog. Calls wait meanwhile.
    ///
    /// # Errors
    /// [`FileError::Failed`] where the catalog does not read.
    pub fn check(&self) -> Result<CheckReport, FileError> {
        // A slab on its way to become free sectors is both.
        let _no_slab_goes = self.lock_flusher();
        let core = guard(&self.core);
        let names = check_names(&View::new(&core.catalog))?;
        let mut report =
            CheckReport { problems: names.into_iter().map(Problem::Name).collect(), ..CheckReport::default() };
        let mut owned: Vec<(SectorRange, Owner)> = self.file_sectors(&core, &mut report)?;
        for slab in self.superblock.current().slabs {
            let range = SectorRange { first: slab.first, sectors: slab.sectors(self.copies.count()) };
            report.catalog_sectors += range.sectors;
            owned.push((range, Owner::Catalog));
        }
        for range in guard(&self.space).rows() {
            report.free_sectors += range.sectors;
            owned.push((range, Owner::Nobody));
        }
        self.check_sectors(owned, &mut report);
        Ok(report)
    }

    /// All sectors of the device in files; what is wrong with the rows of runs is reported.
    fn file_sectors(&self, core: &Core, report: &mut CheckReport) -> Result<Vec<(SectorRange, Owner)>, FileError> {
        let mut files = BTreeSet::new();
        for row in core.catalog.ascending(Table::Inodes, &Span::all())? {
            let (key, value) = row?;
            report.nodes += 1;
            if let (Ok(inode), Ok(record)) = (keys::decode_inode(&key), InodeRecord::decode(&value))
                && record.kind == Kind::File
            {
                files.insert(inode);
            }
        }
        // A group or a sums sector that several windows show counts once.
        let mut owned = BTreeSet::new();
        let mut last: Option<(Inode, Window)> = None;
        for row in core.catalog.ascending(Table::Runs, &Span::all())? {
            let (key, value) = row?;
            let decoded = keys::decode_run(&key).ok().and_then(|(inode, first)| {
                Window::decode(inode, first, &value, self.shape.data).ok().map(|window| (inode, window))
            });
            let Some((inode, window)) = decoded else {
                report.problems.push(Problem::Row { table: Table::Runs, key });
                continue;
            };
            report.windows += 1;
            let is_new = last.as_ref().is_none_or(|(last, _)| *last != inode);
            if is_new && !files.contains(&inode) {
                report.problems.push(Problem::RunsOfNoFile { inode });
            }
            if let Some((_, before)) = last.as_ref().filter(|(of, before)| *of == inode && before.end() > window.first)
            {
                report.problems.push(Problem::WindowsOverlap { inode, sector: window.first.max(before.first) });
            }
            owned.extend(self.sectors_shown(&window).into_iter().map(|range| (range, Owner::File(inode))));
            last = Some((inode, window));
        }
        let owned: Vec<(SectorRange, Owner)> = owned.into_iter().collect();
        report.file_sectors = owned.iter().map(|(range, _)| range.sectors).sum();
        Ok(owned)
    }

    /// The groups, and the sums sectors of them, that a window shows a part of.
    fn sectors_shown(&self, window: &Window) -> Vec<SectorRange> {
        let (k, m) = (self.shape.data, self.shape.parity);
        match &window.run {
            Run::Single { place, .. } => {
                vec![SectorRange { first: place.first, sectors: u64::from(place.capacity + m) }]
            }
            Run::Promised { first } => vec![SectorRange { first: *first, sectors: u64::from(window.sectors + m) }],
            Run::Bulk { run } => {
                let shown = window.in_run();
                let groups = shown.start / k..shown.end.div_ceil(k);
                let sums =
                    BulkRun::sums_of(u64::from(groups.start * k)).0..=BulkRun::sums_of(u64::from(groups.end * k) - 1).0;
                let groups = groups
                    .map(|group| SectorRange { first: run.group(group, self.shape).first, sectors: u64::from(k + m) });
                let sums = sums.map(|number| SectorRange { first: run.sums(number, self.shape), sectors: 1 });
                groups.chain(sums).collect()
            }
        }
    }

    /// Whether the sectors for files and the catalog are each owned once.
    fn check_sectors(&self, mut owned: Vec<(SectorRange, Owner)>, report: &mut CheckReport) {
        let superblock = self.superblock.current();
        let start = superblock.journal.first.0 + superblock.journal.sectors * self.copies.count();
        let end = superblock.back().first.0;
        owned.sort_unstable();
        let mut at = start;
        let mut before = Owner::Nobody;
        for (range, owner) in owned {
            if range.first.0 < start || range.end().0 > end {
                report.problems.push(Problem::Outside { range, owner });
                continue;
            }
            if range.first.0 < at {
                let sectors = at.min(range.end().0) - range.first.0;
                let range = SectorRange { first: range.first, sectors };
                report.problems.push(Problem::Shared { range, one: before, other: owner });
            } else if range.first.0 > at {
                let range = SectorRange { first: Sector(at), sectors: range.first.0 - at };
                report.problems.push(Problem::Leaked { range });
            }
            (at, before) = (at.max(range.end().0), owner);
        }
        if at < end {
            let range = SectorRange { first: Sector(at), sectors: end - at };
            report.problems.push(Problem::Leaked { range });
        }
    }
}
