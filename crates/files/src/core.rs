//! The state of a disk that its lock guards: the catalog, what the journal does not hold yet, and the nodes in memory.
//!
//! Invariants:
//! 1. A call's changes are applied at once, under the lock, so the journal never holds half of a call.
//! 2. What was applied and is not journaled is in `changes` and `records`; each entry takes all of both.
//! 3. A size that a file has by sectors that go along with an entry is in that entry, and in the catalog when the entry is durable: where
//!    there is no room for it, the size waits with the sectors. So does the size of a file that was cut within a sector, and all that it is
//!    set to later, until an entry has the zeros behind the cut ([`Held`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use claystone_env::{SECTOR_BYTES, Sector, SectorRange};
use claystone_group::{BulkRun, GroupShape};

use crate::catalog::{Catalog, CatalogError};
use crate::error::{Damage, DiskError};
use crate::growing::Growing;
use crate::inode::InodeRecord;
use crate::journal::JournalPosition;
use crate::keys::{self, Span};
use crate::node::{Held, Live, Nodes, OlderJournaled, Waiting};
use crate::overlay::Overlay;
use crate::run::{Run, Window, cut_promise, freed_of_bulk, reach};
use crate::space::SpaceMap;
use crate::state::{Forgotten, JournalStart};
use crate::taken::Taken;
use crate::view::View;
use crate::{Change, FileError, Inode, Kind, Record, Table, Timestamp};

/// See the module.
#[derive(Debug)]
pub(crate) struct Core {
    /// All rows.
    pub catalog: Catalog,
    /// Nodes in memory.
    pub nodes: Nodes,
    /// Parity of groups that files grow in.
    pub growing: Growing,
    /// Whether groups were written since the device was last synced.
    pub unsynced: bool,
    /// Whether somebody holds the flusher's lock, and so makes room for those who wait for it.
    pub flushing: bool,
    /// Why the disk takes no writes any more.
    pub failed: Option<String>,
    /// Nodes there are.
    pub inodes: u64,
    /// What files take.
    pub taken: Taken,
    changes: Overlay,
    records: Vec<Record>,
    queued: BTreeSet<(Inode, u64)>,
    forgotten: Vec<Forgotten>,
}

/// A sector that waits, on its way into the journal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Journaling {
    inode: Inode,
    sector: u64,
    version: u64,
}

/// What the next entry of the journal takes.
#[derive(Debug)]
pub(crate) struct Entry {
    /// Its records; last those of `settled`, in the same order.
    pub records: Vec<Record>,
    written: Vec<Journaling>,
    settled: Vec<Settling>,
}

/// A file whose record goes along with its sectors.
#[derive(Debug)]
struct Settling {
    inode: Inode,
    /// Behind the last of these sectors.
    end: u64,
    /// The record that was to be in the catalog before.
    before: InodeRecord,
    /// The size that the file has by them.
    bytes: u64,
    /// The version of the sector that a size waited with.
    zeros: Option<u64>,
    change: Change,
}

impl Core {
    /// The state over a catalog.
    pub fn new(catalog: Catalog, shape: GroupShape) -> Core {
        Core {
            catalog,
            taken: Taken::new(shape),
            nodes: Nodes::default(),
            growing: Growing::default(),
            unsynced: false,
            flushing: false,
            failed: None,
            inodes: 0,
            changes: Overlay::default(),
            records: Vec::new(),
            queued: BTreeSet::new(),
            forgotten: Vec::new(),
        }
    }

    /// Applies what a call changes.
    pub fn apply(&mut self, changes: Vec<Change>) {
        self.taken.follow(&changes, &self.catalog);
        for change in &changes {
            self.changes.put(change.clone());
        }
        self.catalog.apply(changes);
    }

    /// Sends a record along with the next entry.
    pub fn record(&mut self, record: Record) {
        self.records.push(record);
    }

    /// Sends sums sectors along no more: what they are of is not going to be written.
    pub fn forget_sums(&mut self, places: &[Sector]) {
        self.records.retain(|record| !matches!(record, Record::Sums { place, .. } if places.contains(&Sector(*place))));
    }

    /// Sends sectors that wait along with the next entry, but for those that are in the journal. Returns those that did not go along yet.
    pub fn journal_waiting(&mut self, inode: Inode, sectors: impl IntoIterator<Item = u64>) -> Vec<(Inode, u64)> {
        let Some(node) = self.nodes.find(inode) else { return Vec::new() };
        let waits = |sector: &u64| node.waiting.get(sector).is_some_and(|waiting| waiting.journaled.is_none());
        let queued = sectors.into_iter().filter(waits).map(|sector| (inode, sector));
        queued.filter(|sector| self.queued.insert(*sector)).collect()
    }

    /// Sends sectors along with the next entry of which the journal does not have the newest bytes, as far as it takes `most` in all.
    /// Returns those that did not go along yet.
    pub fn journal_placeless(&mut self, most: usize) -> Vec<(Inode, u64)> {
        let mut new = self.nodes.unjournaled();
        new.retain(|sector| !self.queued.contains(sector));
        new.truncate(most.saturating_sub(self.queued.len()));
        self.queued.extend(&new);
        new
    }

    /// Sends sectors, ascending, along no more that did not go along before, and that an entry found no room for: they wait on. But those that
    /// somebody was told of since, or that a size waits with.
    pub fn unqueue_unpromised(&mut self, mut sectors: Vec<(Inode, u64)>) {
        let is_needed = |(inode, sector): &(Inode, u64)| {
            let node = self.nodes.find(*inode);
            let is_held = node.and_then(|node| node.held).is_some_and(|held| held.sector == *sector);
            is_held || node.and_then(|node| node.waiting.get(sector)).is_some_and(|waiting| waiting.promised)
        };
        sectors.retain(|sector| !is_needed(sector));
        self.unqueue(&sectors);
    }

    /// Sends sectors, ascending, along no more that nothing else depends on: they wait on.
    pub fn unqueue(&mut self, sectors: &[(Inode, u64)]) {
        self.queued.retain(|sector| sectors.binary_search(sector).is_err());
    }

    /// How many sectors go along with the next entry.
    pub fn queued(&self) -> usize {
        self.queued.len()
    }

    /// All that the journal does not hold: first what is forgotten, then sectors as they wait now.
    pub fn take_news(&mut self) -> Entry {
        let queued = std::mem::take(&mut self.queued);
        // With the size that the file has now: the sectors may have grown since they were queued.
        let ends: BTreeMap<Inode, u64> = queued.iter().map(|(inode, sector)| (*inode, sector + 1)).collect();
        // A record that does not read is left to the next caller.
        let settling = |(inode, end)| self.settling(inode, self.end_with(inode, end, &queued));
        let settled: Vec<Settling> = ends.into_iter().filter_map(settling).collect();
        let mut entry = Entry { records: std::mem::take(&mut self.records), written: Vec::new(), settled };
        for (inode, sector) in queued {
            let waiting = self.nodes.find_waiting(inode, sector).filter(|waiting| waiting.journaled.is_none());
            if let Some(waiting) = waiting {
                entry.records.push(Record::Written { inode, sector, bytes: waiting.bytes.to_vec() });
                entry.written.push(Journaling { inode, sector, version: waiting.version });
            }
        }
        let changes = std::mem::take(&mut self.changes).into_changes();
        entry.records.extend(changes.into_iter().map(Record::Change));
        entry.records.extend(entry.settled.iter().map(|settling| Record::Change(settling.change.clone())));
        entry
    }

    /// Up to which sector the size of a file counts once its sectors of these are in the journal, of which the last is before `end`: to its end, where
    /// none is left that is in memory only.
    fn end_with(&self, inode: Inode, end: u64, queued: &BTreeSet<(Inode, u64)>) -> u64 {
        let node = self.nodes.find(inode);
        let Some((node, live)) = node.and_then(|node| Some((node, node.live?))) else { return end };
        let file_end = live.bytes.div_ceil(SECTOR_BYTES as u64);
        let goes_along =
            |(sector, waiting): (&u64, &Waiting)| waiting.older().is_some() || queued.contains(&(inode, *sector));
        if file_end > end && node.waiting.iter().all(goes_along) { file_end } else { end }
    }

    /// What the catalog is to say of a file whose sectors up to `end` go into the journal, with them the one that a size waits with; `None` if
    /// it says that.
    fn settling(&self, inode: Inode, end: u64) -> Option<Settling> {
        let (before, record) = (self.known(inode).ok()?, self.settle_to(inode, end).ok()?);
        let held = self.held(inode);
        if held.is_none() && record == before {
            return None;
        }
        let zeros = held.and_then(|held| Some(self.nodes.find(inode)?.waiting.get(&held.sector)?.version));
        let mut view = View::new(&self.catalog);
        view.set_inode(inode, &record);
        let change = view.into_changes().pop()?;
        Some(Settling { inode, end, before, bytes: record.bytes, zeros, change })
    }

    /// What became of an entry: it begins here and is synced, or the journal has no room for it (`false`), or it is not
    /// known.
    ///
    /// # Errors
    /// [`FileError::ReadOnly`].
    pub fn entered(&mut self, entry: Entry, at: Result<Option<JournalPosition>, String>) -> Result<bool, FileError> {
        match at {
            Ok(Some(at)) => {
                for journaling in &entry.written {
                    let Some(waiting) = self.nodes.find_waiting(journaling.inode, journaling.sector) else { continue };
                    if waiting.version == journaling.version {
                        waiting.enter(at);
                    } else {
                        waiting.older_journaled = Some(OlderJournaled { at, version: journaling.version });
                    }
                }
                entry.settled.into_iter().for_each(|settling| self.settled(settling));
                Ok(true)
            }
            Ok(None) => {
                self.return_news(entry);
                Ok(false)
            }
            Err(why) => Err(self.fail(why)),
        }
    }

    /// A file's record is in an entry with its sectors.
    fn settled(&mut self, Settling { inode, end, before, bytes, zeros, change }: Settling) {
        let (Ok(known), Ok(now), Ok(size)) = (self.known(inode), self.settle_to(inode, end), self.inode(inode)) else {
            // It is gone.
            return;
        };
        if let Some(held) = self.nodes.find_held(inode)
            && held.is_some_and(|held| zeros.is_some_and(|zeros| held.version <= zeros))
        {
            *held = None;
        }
        self.catalog.apply([change]);
        let is_new = self.changes.row(Table::Inodes, &keys::inode(inode)).is_some();
        if is_new || known != before || size.bytes < bytes {
            // It was changed meanwhile, and the next entry has that, also where it is what was there before this one.
            let record = self.held_back(inode, &now);
            self.put_stored(inode, &record);
        }
    }

    /// Puts back what did not get into the journal, under what came since.
    fn return_news(&mut self, entry: Entry) {
        let newer = std::mem::take(&mut self.changes).into_changes();
        let mut records = Vec::new();
        // Sizes wait with the sectors.
        let others = entry.records.len() - entry.settled.len();
        for record in entry.records.into_iter().take(others) {
            match record {
                Record::Change(change) => self.changes.put(change),
                // They wait still, and are taken as they are then.
                Record::Written { inode, sector, .. } => {
                    self.queued.insert((inode, sector));
                }
                other => records.push(other),
            }
        }
        for change in newer {
            self.changes.put(change);
        }
        records.append(&mut self.records);
        self.records = records;
    }

    /// Brings all rows into the page file, with where replay begins then, from which entry on it takes changes, and what it
    /// passes over in older ones: that is not journaled, so that it holds if and only if the rows do. `kept` goes along.
    ///
    /// # Errors
    /// As [`Catalog::checkpoint`].
    pub fn checkpoint(
        &mut self,
        start: JournalPosition,
        next: JournalPosition,
        kept: Vec<Change>,
    ) -> Result<(), CatalogError> {
        let before = next.sequence;
        let new = self.records.iter().filter_map(|record| match *record {
            Record::Forget { inode, first, end } => Some(Forgotten { before, inode, first, end }),
            _ => None,
        });
        let mut all: Vec<Forgotten> = self.forgotten.iter().cloned().chain(new).collect();
        all.retain(|forgotten| forgotten.before > start.sequence);
        let start = JournalStart { sequence: start.sequence, position: start.position, changes: before };
        let row = |key: &[u8], value| Change { table: Table::State, key: key.to_vec(), value };
        let forgotten = (!all.is_empty()).then(|| Forgotten::encode_all(&all));
        let rows = [row(keys::JOURNAL, Some(start.encode())), row(keys::FORGOTTEN, forgotten)];
        // If it is not made, the next entry has all that this one was to have.
        self.catalog.checkpoint(&[&rows[..], &kept].concat())?;
        self.forgotten = all;
        self.records.retain(|record| !matches!(record, Record::Forget { .. }));
        self.changes = Overlay::default();
        Ok(())
    }

    /// Rows that the catalog is to get and that the journal has, but for those that changed since: what frees space first. While an
    /// entry is on its way into the journal there is no telling.
    pub fn journaled_rows(&self) -> Vec<(Table, Vec<u8>)> {
        self.catalog.keys_beside(&self.changes)
    }

    /// Loads what is passed over in older entries.
    ///
    /// # Errors
    /// [`DiskError::Damaged`].
    pub fn load_forgotten(&mut self) -> Result<&[Forgotten], DiskError> {
        if let Some(value) = self.catalog.get(Table::State, keys::FORGOTTEN)? {
            let damaged = || Damage::Row { table: Table::State, key: keys::FORGOTTEN.to_vec() };
            self.forgotten = Forgotten::decode_all(&value).ok_or_else(damaged)?;
        }
        Ok(&self.forgotten)
    }

    /// The disk takes no writes from now on: what a failed write or sync left is unknown.
    pub fn fail(&mut self, why: String) -> FileError {
        if self.failed.is_none() {
            tracing::error!(why, "the disk takes no writes any more");
        }
        FileError::ReadOnly { why: self.failed.get_or_insert(why).clone() }
    }

    /// # Errors
    /// [`FileError::ReadOnly`] if the disk takes no writes.
    pub fn assert_writable(&self) -> Result<(), FileError> {
        match &self.failed {
            Some(why) => Err(FileError::ReadOnly { why: why.clone() }),
            None => Ok(()),
        }
    }

    /// A node's record, with what memory knows better.
    ///
    /// # Errors
    /// As [`View::inode`].
    pub fn inode(&self, inode: Inode) -> Result<InodeRecord, FileError> {
        let mut record = self.known(inode)?;
        if let Some(live) = self.nodes.find(inode).and_then(|node| node.live) {
            (record.bytes, record.modified) = (live.bytes, live.modified);
            record.changed = record.changed.max(live.changed);
        }
        Ok(record)
    }

    /// A file's record.
    ///
    /// # Errors
    /// [`FileError::IsDirectory`], [`FileError::Invalid`] for other kinds, and as [`View::inode`].
    pub fn file(&self, inode: Inode) -> Result<InodeRecord, FileError> {
        let record = self.inode(inode)?;
        match record.kind {
            Kind::File => Ok(record),
            Kind::Directory => Err(FileError::IsDirectory),
            _ => Err(FileError::Invalid),
        }
    }

    /// A node's record as the catalog has it.
    ///
    /// # Errors
    /// As [`View::inode`].
    pub fn stored(&self, inode: Inode) -> Result<InodeRecord, FileError> {
        View::new(&self.catalog).inode(inode)
    }

    /// A node's record as the catalog is to have it once all zeros behind a cut are durable.
    ///
    /// # Errors
    /// As [`View::inode`].
    fn known(&self, inode: Inode) -> Result<InodeRecord, FileError> {
        let mut record = self.stored(inode)?;
        if let Some(held) = self.held(inode) {
            record.bytes = held.bytes;
        }
        Ok(record)
    }

    /// Sets a node's record in the catalog, but for a size that waits with a sector; what memory knows better stays.
    pub fn set_stored(&mut self, inode: Inode, record: &InodeRecord) {
        let record = self.held_back(inode, record);
        if self.stored(inode).is_ok_and(|stored| stored == record) {
            return;
        }
        self.put_stored(inode, &record);
    }

    /// The record that the catalog may have now. Of a size that waits with a sector that remembers the record's.
    fn held_back(&mut self, inode: Inode, record: &InodeRecord) -> InodeRecord {
        let before = self.stored(inode).map_or(0, |stored| stored.bytes);
        let held = self.nodes.find_held(inode).and_then(Option::as_mut);
        let bytes = held.map_or(record.bytes, |held| {
            held.bytes = record.bytes;
            before.min(held.bytes_max())
        });
        InodeRecord { bytes, ..record.clone() }
    }

    fn put_stored(&mut self, inode: Inode, record: &InodeRecord) {
        let mut view = View::new(&self.catalog);
        view.set_inode(inode, record);
        let changes = view.into_changes();
        self.apply(changes);
    }

    /// The size that the catalog is to say once sectors up to `end` are in their places: no more than the file has.
    ///
    /// # Errors
    /// As [`View::inode`].
    pub fn settle_to(&self, inode: Inode, end: u64) -> Result<InodeRecord, FileError> {
        let mut record = self.known(inode)?;
        if let Some(live) = self.nodes.find(inode).and_then(|node| node.live) {
            record.bytes = record.bytes.max(live.bytes.min(end * SECTOR_BYTES as u64));
            (record.modified, record.changed) = (live.modified, live.changed.max(record.changed));
        }
        Ok(record)
    }

    /// Sets the row of a window.
    pub fn set_window(&mut self, inode: Inode, window: &Window) {
        let key = keys::run(inode, window.first).to_vec();
        let known = self.catalog.get(Table::Runs, &key);
        if known.is_ok_and(|known| known.is_some_and(|known| known == window.encode())) {
            return;
        }
        self.apply(vec![Change { table: Table::Runs, key, value: Some(window.encode()) }]);
    }

    /// What the oldest entries have that must stay, of `most` sectors, goes into the journal again, so that they can go.
    /// Only entries before the sequence `before` count. Returns whether there were any.
    pub fn journal_again(&mut self, before: u64, most: usize) -> bool {
        let oldest = self.nodes.journaled(before, most);
        for &(inode, sector) in &oldest {
            if let Some(waiting) = self.nodes.find_waiting(inode, sector) {
                (waiting.older_journaled, waiting.journaled) = (waiting.older(), None);
            }
            self.queued.insert((inode, sector));
        }
        !oldest.is_empty()
    }

    /// What the journal has of these sectors counts no more, but for those of which it has something newer.
    pub fn forget_journaled(&mut self, inode: Inode, sectors: Range<u64>) {
        let needs = |(&sector, waiting): (&u64, &Waiting)| waiting.needs().map(|_| sector);
        let node = self.nodes.find(inode);
        let newer: Vec<u64> =
            node.map_or_else(Vec::new, |node| node.waiting.range(sectors.clone()).filter_map(needs).collect());
        let mut first = sectors.start;
        for end in newer.into_iter().chain([sectors.end]) {
            if first < end {
                self.records.push(Record::Forget { inode, first, end });
            }
            first = end.saturating_add(1);
        }
    }

    /// Brings what memory knows better of a node into the catalog.
    ///
    /// # Errors
    /// As [`View::inode`].
    pub fn settle(&mut self, inode: Inode) -> Result<(), FileError> {
        if self.nodes.find(inode).is_some_and(|node| node.live.is_some()) {
            let record = self.inode(inode)?;
            self.set_inode(inode, &record);
        }
        Ok(())
    }

    /// Sets a node's record, which says all that memory knows.
    pub fn set_inode(&mut self, inode: Inode, record: &InodeRecord) {
        if let Some(live) = self.nodes.find_live(inode) {
            *live = None;
        }
        self.set_stored(inode, record);
    }

    /// Sets a node's record but for its size: what waits of that waits on for the bytes, so that no crash leaves a size without them.
    ///
    /// # Errors
    /// As [`View::inode`].
    pub fn set_but_size(&mut self, inode: Inode, record: &InodeRecord) -> Result<(), FileError> {
        let bytes = self.known(inode)?.bytes;
        if let Some(live) = self.nodes.find_live(inode).and_then(Option::as_mut) {
            (live.modified, live.changed) = (record.modified, record.changed);
        }
        self.set_stored(inode, &InodeRecord { bytes, ..record.clone() });
        Ok(())
    }

    /// A file is cut within a sector that waits, with zeros behind the cut: it goes along with the next entry, and the size waits with it, so that
    /// no crash leaves old bytes behind the end. One that waits with a sector before this one stays with that: what is behind it is nowhere
    /// but in memory.
    pub fn hold_size(&mut self, inode: Inode, sector: u64) {
        self.journal_waiting(inode, [sector]);
        let (known, waiting) = (self.known(inode), self.nodes.find_waiting(inode, sector));
        let (Ok(InodeRecord { bytes, .. }), Some(&mut Waiting { version, .. })) = (known, waiting) else { return };
        let held = &mut self.nodes.node(inode).held;
        if held.is_none_or(|held| sector <= held.sector) {
            *held = Some(Held { sector, version, bytes });
        }
    }

    /// Lets a size wait no more if the sector that it waited with is gone.
    pub fn release_size(&mut self, inode: Inode) {
        let waits = |held: Held| self.nodes.find(inode).is_some_and(|node| node.waiting.contains_key(&held.sector));
        if self.held(inode).is_none_or(waits) {
            return;
        }
        let known = self.known(inode);
        self.nodes.node(inode).held = None;
        if let Ok(record) = known {
            self.set_stored(inode, &record);
        }
    }

    /// The size of a file that waits with a sector.
    pub fn held(&self, inode: Inode) -> Option<Held> {
        self.nodes.find(inode)?.held
    }

    /// Sets when a node was last read. A record that does not read is left to the next caller.
    pub fn set_accessed(&mut self, inode: Inode, now: Timestamp) {
        let mut view = View::new(&self.catalog);
        if let Ok(mut record) = view.inode(inode) {
            record.accessed = now;
            view.set_inode(inode, &record);
            let changes = view.into_changes();
            self.apply(changes);
        }
    }

    /// Sets the size and the times of a file in memory only.
    pub fn set_live(&mut self, inode: Inode, live: Live) {
        self.nodes.node(inode).live = Some(live);
    }

    /// The windows with data in a range of the file, ascending.
    ///
    /// # Errors
    /// [`FileError::Failed`] if the catalog does not read or a row makes no sense.
    pub fn windows(&self, inode: Inode, range: Range<u64>, data: u32) -> Result<Vec<Window>, FileError> {
        let mut windows = self.all_windows(inode, range, data)?;
        windows.retain(|window| !window.is_promised());
        Ok(windows)
    }

    /// The windows with sectors in a range of the file, ascending: those with data, and those for which room is kept.
    ///
    /// # Errors
    /// As [`Core::windows`].
    pub fn all_windows(&self, inode: Inode, range: Range<u64>, data: u32) -> Result<Vec<Window>, FileError> {
        let mut windows = Vec::new();
        if range.is_empty() {
            return Ok(windows);
        }
        let decode = |(key, value): (Vec<u8>, Vec<u8>)| -> Result<Option<Window>, FileError> {
            let Ok((of, first)) = keys::decode_run(&key) else { return Ok(None) };
            if of != inode {
                return Ok(None);
            }
            Ok(Some(Window::decode(inode, first, &value, data)?))
        };
        if let Some(before) = self.catalog.last_before(Table::Runs, &keys::run(inode, range.start))?
            && let Some(window) = decode(before)?
            && window.end() > range.start
        {
            windows.push(window);
        }
        if range.start + 1 < range.end {
            for row in self.catalog.ascending(Table::Runs, &Span::runs(inode, range.start + 1..range.end))? {
                windows.extend(decode(row?)?);
            }
        }
        Ok(windows)
    }

    /// All windows with sectors in a range, and their neighbours on both sides.
    ///
    /// # Errors
    /// As [`Core::windows`].
    pub fn windows_around(&self, inode: Inode, range: Range<u64>, data: u32) -> Result<Vec<Window>, FileError> {
        let mut start = range.start;
        if let Some(before) = start.checked_sub(1)
            && let Some((key, _)) = self.catalog.last_before(Table::Runs, &keys::run(inode, before))?
            && let Ok((of, first)) = keys::decode_run(&key)
            && of == inode
        {
            start = first;
        }
        let mut end = range.end;
        if let Some((key, _)) = self.catalog.range(Table::Runs, &Span::runs(inode, end..u64::MAX), 1)?.first()
            && let Ok((_, first)) = keys::decode_run(key)
        {
            end = first + 1;
        }
        self.all_windows(inode, start..end, data)
    }

    /// How many sectors of a range have neither a place nor room that is kept for them.
    ///
    /// # Errors
    /// As [`Core::windows`].
    pub fn homeless(&self, inode: Inode, range: Range<u64>, data: u32) -> Result<u64, FileError> {
        let (mut homeless, mut at) = (0, range.start);
        for window in self.windows_around(inode, range.clone(), data)? {
            let end = window.end() + window.promised_room();
            let (first, end) = (window.first.min(range.end), end.min(range.end));
            homeless += first.saturating_sub(at);
            at = at.max(end);
        }
        Ok(homeless + (range.end - at))
    }

    /// Puts windows in place of what is in their ranges of the file, or nothing in place of a range. What the
    /// windows before lose becomes free, but for room that was promised and that the new window is in.
    ///
    /// # Errors
    /// As [`Core::windows`].
    ///
    /// # Panics
    /// If a range lies strictly within a single run, so that two windows on it would be left.
    pub fn replace(
        &mut self,
        inode: Inode,
        range: Range<u64>,
        new: Option<&Window>,
        shape: GroupShape,
        space: &mut SpaceMap,
    ) -> Result<(), FileError> {
        let mut changes = Vec::new();
        let key = |first: u64| keys::run(inode, first).to_vec();
        let olds = self.all_windows(inode, range.clone(), shape.data)?;
        let mut bulks: BTreeMap<Sector, Bulk> = BTreeMap::new();
        for old in &olds {
            let mut cut = |room: &Window, first: Sector, gone: &Range<u64>| {
                let (left, free) = cut_promise(room, first, gone, shape.parity);
                changes.push(Change { table: Table::Runs, key: key(old.first), value: None });
                if let Some(left) = left {
                    changes.push(Change { table: Table::Runs, key: key(left.first), value: Some(left.encode()) });
                }
                space.give(free, &mut changes);
            };
            match &old.run {
                Run::Promised { first } if new.is_some_and(|new| new.is_at(*first)) => {
                    changes.push(Change { table: Table::Runs, key: key(old.first), value: None });
                    continue;
                }
                Run::Promised { first } => {
                    cut(old, *first, &range);
                    continue;
                }
                Run::Single { place, .. }
                    if old.promised_room() > 0 && range.start <= old.first && old.end() <= range.end =>
                {
                    // Its data goes, and what its room was promised to keeps that.
                    let (start, first) = (old.first - u64::from(old.skipped), place.first);
                    let run = Run::Promised { first };
                    cut(&Window { first: start, sectors: place.capacity, skipped: 0, run }, first, &(0..range.end));
                    continue;
                }
                Run::Single { .. } | Run::Bulk { .. } => {}
            }
            let left = (old.first < range.start).then(|| old.cut(old.first..range.start));
            let right = (range.end < old.end()).then(|| old.cut(range.end..old.end()));
            let row = |first, value| Change { table: Table::Runs, key: key(first), value };
            if left.is_none() {
                changes.push(row(old.first, None));
            }
            for rest in left.iter().chain(&right) {
                changes.push(row(rest.first, Some(rest.encode())));
            }
            match &old.run {
                Run::Single { place, .. } => {
                    assert!(left.is_none() || right.is_none(), "{range:?} would leave two windows on a single run");
                    if left.is_none() && right.is_none() {
                        let sectors = u64::from(place.capacity + shape.parity);
                        space.give(SectorRange { first: place.first, sectors }, &mut changes);
                    }
                }
                Run::Promised { .. } => unreachable!("promised room is cut above"),
                Run::Bulk { run } => {
                    let start = old.position(range.start.max(old.first));
                    let gone = start..start + (range.end.min(old.end()) - range.start.max(old.first)) as u32;
                    let bulk = bulks.entry(run.first).or_insert_with(|| Bulk::new(*run));
                    bulk.kept.extend(self.others_of(inode, *run, &olds, old, &gone, shape)?);
                    bulk.kept.extend(left.iter().chain(&right).map(Window::in_run));
                    bulk.gone.push(gone);
                }
            }
        }
        for bulk in bulks.values() {
            for freed in freed_of_bulk(bulk.run, &bulk.gone, &bulk.kept, shape) {
                space.give(freed, &mut changes);
            }
        }
        if let Some(new) = new {
            changes.push(Change { table: Table::Runs, key: key(new.first), value: Some(new.encode()) });
        }
        self.apply(changes);
        Ok(())
    }

    /// What windows show of a bulk run near `part` of it, which `window` shows: all that lies on the same groups, on those
    /// right behind, and on groups of the same sums sectors. Nothing of a single run.
    ///
    /// # Errors
    /// As [`Core::windows`].
    pub fn shown_of(
        &self,
        inode: Inode,
        window: &Window,
        part: &Range<u32>,
        shape: GroupShape,
    ) -> Result<Vec<Range<u32>>, FileError> {
        let Run::Bulk { run } = window.run else { return Ok(Vec::new()) };
        let (shown, reach) = (window.in_run(), reach(shape) as u32);
        if shown.start <= part.start.saturating_sub(reach) && run.data.min(part.end.saturating_add(reach)) <= shown.end
        {
            return Ok(vec![shown]);
        }
        Ok(self.windows_on(inode, run, window, part, shape)?.iter().map(Window::in_run).collect())
    }

    /// The parts of a bulk run near `gone`, which `old` shows, that other windows than `olds` show.
    fn others_of(
        &self,
        inode: Inode,
        run: BulkRun,
        olds: &[Window],
        old: &Window,
        gone: &Range<u32>,
        shape: GroupShape,
    ) -> Result<Vec<Range<u32>>, FileError> {
        let windows = self.windows_on(inode, run, old, gone, shape)?;
        let others = windows.into_iter().filter(|window| olds.iter().all(|old| window.first != old.first));
        Ok(others.map(|window| window.in_run()).collect())
    }

    /// The windows on a bulk run near `part` of it, where `window` is one of them.
    pub fn windows_on(
        &self,
        inode: Inode,
        run: BulkRun,
        window: &Window,
        part: &Range<u32>,
        shape: GroupShape,
    ) -> Result<Vec<Window>, FileError> {
        // Windows on a run keep their distance to it, so those that share a group or a sums sector with the part
        // lie at most this far from it in the file.
        let reach = reach(shape);
        let origin = window.first as i128 - i128::from(window.skipped);
        let at = |position: u32| (origin + i128::from(position)).max(0) as u64;
        let near = at(part.start).saturating_sub(reach)..at(part.end) + reach;
        let windows = self.windows(inode, near, shape.data)?.into_iter();
        Ok(windows
            .filter(|window| matches!(&window.run, Run::Bulk { run: other } if other.first == run.first))
            .collect())
    }
}

/// A bulk run of which some sectors are in no window any more.
struct Bulk {
    run: BulkRun,
    gone: Vec<Range<u32>>,
    kept: Vec<Range<u32>>,
}

impl Bulk {
    fn new(run: BulkRun) -> Bulk {
        Bulk { run, gone: Vec::new(), kept: Vec::new() }
    }
}
