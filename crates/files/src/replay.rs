//! Opening after a crash: what the journal holds is brought to its place.
//!
//! Invariants:
//! 1. Entries are taken in their order, so the last change of a row and the last writing of a sector count.
//! 2. Sums sectors that an entry holds are written first: a crash may have torn them. Not those from before the last
//!    checkpoint, which were in place by then, nor those whose run was freed since: their sectors may be others' now.
//! 3. The parity of a group is not trusted while sectors of it wait from before the crash: its writing may have been cut
//!    off. Such groups are encoded again from their data.

use std::collections::BTreeMap;

use claystone_env::{Sector, SectorRange};

use crate::catalog::Catalog;
use crate::commit::unless_full;
use crate::core::Core;
use crate::disk::{Disk, guard};
use crate::error::{Damage, DiskError};
use crate::inode::InodeRecord;
use crate::journal::JournalPosition;
use crate::keys::{self, Span};
use crate::space::SpaceMap;
use crate::state::JournalStart;
use crate::view::View;
use crate::{Change, FileError, Inode, Record, Table, namespace};

impl Core {
    /// Where replay begins.
    pub fn journal_start(catalog: &Catalog) -> Result<JournalStart, DiskError> {
        let value = catalog.get(Table::State, keys::JOURNAL)?;
        let start = value.and_then(|value| JournalStart::decode(&value).ok());
        Ok(start.ok_or_else(|| Damage::Row { table: Table::State, key: keys::JOURNAL.to_vec() })?)
    }
}

impl Disk {
    pub(crate) fn replay(&self, entries: Vec<Vec<Record>>, start: JournalStart) -> Result<(), DiskError> {
        let mut waiting: BTreeMap<(Inode, u64), (Vec<u8>, JournalPosition)> = BTreeMap::new();
        let mut sums: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let replayed = entries.len();
        {
            let mut core = guard(&self.core);
            let forgotten = core.load_forgotten()?.to_vec();
            // Each sector keeps its own entry, so that the journal can be freed while they are brought to their places.
            let placed = self.entries_with_places(start, entries);
            let records = placed.into_iter().flat_map(|(at, entry)| entry.into_iter().map(move |record| (at, record)));
            for (at, record) in records {
                let sequence = at.sequence;
                match record {
                    Record::Change(_) | Record::Sums { .. } if sequence < start.changes => {}
                    Record::Change(change) => {
                        if let Some(free) = free_row(&change) {
                            sums.retain(|place, _| !(free.first.0..free.end().0).contains(place));
                        }
                        core.catalog.apply([change]);
                    }
                    Record::Written { inode, sector, .. }
                        if forgotten.iter().any(|forgotten| forgotten.covers(sequence, inode, sector)) => {}
                    Record::Written { inode, sector, bytes } => {
                        waiting.insert((inode, sector), (bytes, at));
                    }
                    Record::Sums { place, bytes } => {
                        sums.insert(place, bytes);
                    }
                    Record::Forget { inode, first, end } => {
                        waiting.retain(|&(of, sector), _| of != inode || !(first..end).contains(&sector));
                    }
                }
            }
            *guard(&self.space) = self.free_rows(&core.catalog)?;
            self.take_up_end(&mut core)?;
            let mut changes = Vec::new();
            for slab in self.superblock.current().slabs {
                let sectors = slab.sectors(self.copies.count());
                guard(&self.space).withhold(SectorRange { first: slab.first, sectors }, &mut changes);
            }
            core.apply(changes);
            core.inodes = count_inodes(&core.catalog)?;
            waiting.retain(|&(inode, _), _| View::new(&core.catalog).inode(inode).is_ok());
            for ((inode, sector), (bytes, at)) in waiting {
                core.nodes.put_journaled(inode, sector, bytes, at);
                core.nodes.node(inode).distrusts_parity = true;
            }
        }
        for (place, bytes) in &sums {
            self.device.write(Sector(*place), bytes)?;
        }
        if replayed > 0 {
            tracing::info!(disk = %self.device.label(), entries = replayed, "replayed the journal");
        }
        let flushing = self.lock_flusher();
        // Each crash while the journal was applied has left more in it: without room nothing could be applied at all.
        unless_full(self.make_room(&flushing))?;
        for inode in self.restless() {
            match self.flush(inode, &flushing) {
                // The sectors stay in the journal and in memory; the next flush tries again.
                Err(error @ (FileError::Lost { .. } | FileError::NoSpace)) => {
                    tracing::warn!(%inode, %error, "sectors from the journal do not find their place yet");
                }
                other => other.map_err(DiskError::from)?,
            }
        }
        drop(flushing);
        self.reap_all()?;
        // Without room for it the next opening replays the same again.
        unless_full(self.checkpoint(&self.lock_flusher())).map_err(DiskError::from)
    }

    /// The entries with where each begins.
    fn entries_with_places(
        &self,
        start: JournalStart,
        entries: Vec<Vec<Record>>,
    ) -> Vec<(JournalPosition, Vec<Record>)> {
        let journal = guard(&self.journal);
        let mut at = JournalPosition { sequence: start.sequence, position: start.position };
        let place = |entry: Vec<Record>| {
            let begin = at;
            let behind = (at.position + journal.positions_of(&entry)) % journal.sectors();
            at = JournalPosition { sequence: at.sequence + 1, position: behind };
            (begin, entry)
        };
        let placed = entries.into_iter().map(place).collect();
        assert_eq!(at, journal.next(), "the last entry ends where the next one begins");
        placed
    }

    fn free_rows(&self, catalog: &Catalog) -> Result<SpaceMap, DiskError> {
        let mut rows = Vec::new();
        for row in catalog.ascending(Table::Free, &Span::all())? {
            let (key, value) = row?;
            let range = free_row(&Change { table: Table::Free, key: key.clone(), value: Some(value) });
            let end = self.superblock.current().back().first.0;
            match range.filter(|range| range.sectors > 0 && range.first.0.saturating_add(range.sectors) <= end) {
                Some(range) => rows.push(range),
                None => return Err(Damage::Row { table: Table::Free, key }.into()),
            }
        }
        if let Some(two) = rows.windows(2).find(|two| two[0].end() > two[1].first) {
            return Err(Damage::Row { table: Table::Free, key: keys::sector(two[1].first.0).to_vec() }.into());
        }
        let mut space = SpaceMap::new(self.shape, rows);
        space.keep_spare(self.spare());
        Ok(space)
    }

    /// Frees what has no name: after a crash nobody has it open.
    fn reap_all(&self) -> Result<(), DiskError> {
        loop {
            let orphans = namespace::orphans(&View::new(&guard(&self.core).catalog), REAP_AT_ONCE)?;
            if orphans.is_empty() {
                return Ok(());
            }
            for inode in orphans {
                self.reap(inode)?;
            }
        }
    }
}

/// The sectors that a change makes a row of free ones.
fn free_row(change: &Change) -> Option<SectorRange> {
    let first = keys::decode_sector(&change.key).ok().filter(|_| change.table == Table::Free)?;
    let sectors = u64::from_le_bytes(change.value.as_deref()?.try_into().ok()?);
    Some(SectorRange { first: Sector(first), sectors })
}

/// How many nodes there are.
fn count_inodes(catalog: &Catalog) -> Result<u64, DiskError> {
    let mut inodes = 0;
    for row in catalog.ascending(Table::Inodes, &Span::all())? {
        let (key, value) = row?;
        InodeRecord::decode(&value).map_err(|_| Damage::Row { table: Table::Inodes, key })?;
        inodes += 1;
    }
    Ok(inodes)
}

const REAP_AT_ONCE: usize = 256;
