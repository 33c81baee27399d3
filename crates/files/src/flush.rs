//! Brings sectors that wait into groups.
//!
//! ```text
//! new groups:  reserve -> write data, parity and sums -> sync -> one journal entry names them, frees the old places
//! home:        journal the sectors -> read, make parity -> journal the sums -> write data, parity and sums in place
//!                                     +- it cannot be made: see `lost`
//! ```
//!
//! Invariants:
//! 1. One flusher works at a time. It holds the gate of the file alone while sectors that readers may know are written or
//!    given up, and while what waits becomes what lies in a group; not while it reads, encodes, or writes new places.
//! 2. Nothing that a catalog row or a journal entry names is overwritten unless the journal has what is written.
//! 3. A sector leaves memory only when its place has it, and not if it was written again meanwhile.
//! 4. While the size of a file waits with a sector in which it was cut, nothing of it finds a place: first the journal gets that sector. Nobody
//!    cuts it while the flusher is at it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use claystone_env::{SECTOR_BYTES, Sector, SectorRange};
use claystone_group::{
    BulkRun, Change, GroupChanges, GroupError, GroupPlace, Member, NewGroup, ShownRun, SumsUpdate, UpdateChoice,
    UpdateWay,
};

use crate::content::is_tiny;
use crate::core::Core;
use crate::disk::{Disk, FlushLock, guard, write_gate};
use crate::error::with_sources;
use crate::node::Waiting;
use crate::placing::{Limits, Scope, Step, clusters, gaps_in_promised_room, plan};
use crate::run::{Run, Window};
use crate::{FileError, Inode, Record};

/// One pass for new groups, one for what goes home; a disk without large gaps may take one more.
const PASSES_MAX: usize = 4;

/// Sectors that are at home in one place.
pub(crate) struct Part {
    /// The window that holds them, or that has room for them behind it.
    pub window: Option<Window>,
    /// Which, ascending.
    pub sectors: Vec<u64>,
    /// Their versions.
    pub versions: Vec<u64>,
}

/// Sectors of a file that wait, as they were when the flush began.
pub(crate) type Snapshot = BTreeMap<u64, Waiting>;

impl Disk {
    /// Brings everything that waits into groups, as far as it can be.
    ///
    /// # Errors
    /// As [`Disk::flush`], the first one.
    pub(crate) fn flush_all(&self, flushing: &FlushLock<'_>) -> Result<(), FileError> {
        self.flush_every(Scope::All, flushing)
    }

    /// As [`Disk::flush_all`], of what `scope` says, for who needs room for `inode`: what of other files finds no place, or belongs to groups
    /// that are lost, is theirs, and waits on.
    ///
    /// # Errors
    /// As [`Disk::flush`], of `inode` alone.
    pub(crate) fn flush_for(&self, inode: Inode, scope: Scope, flushing: &FlushLock<'_>) -> Result<(), FileError> {
        let mut own = Ok(());
        for restless in self.restless() {
            match self.flush_in(restless, scope, flushing) {
                error @ Err(FileError::ReadOnly { .. }) => return error,
                flushed if restless == inode => own = flushed,
                Ok(()) | Err(_) => {}
            }
        }
        own
    }

    /// Brings of every file what `scope` says into groups.
    ///
    /// # Errors
    /// As [`Disk::flush`], the first one.
    pub(crate) fn flush_every(&self, scope: Scope, flushing: &FlushLock<'_>) -> Result<(), FileError> {
        let mut first = Ok(());
        for inode in self.restless() {
            let flushed = self.flush_in(inode, scope, flushing);
            if let Err(FileError::ReadOnly { .. }) = flushed {
                return flushed;
            }
            first = first.and(flushed);
        }
        first
    }

    /// Brings what waits of a file into groups, or into its record if it is tiny, and its size and times into the catalog.
    /// What is written meanwhile may wait on. Durable with the next entry of the journal.
    ///
    /// # Errors
    /// [`FileError::NoSpace`], [`FileError::ReadOnly`]; sectors that found no place wait on.
    pub(crate) fn flush(&self, inode: Inode, flushing: &FlushLock<'_>) -> Result<(), FileError> {
        self.flush_in(inode, Scope::All, flushing)
    }

    /// As [`Disk::flush`], of what `scope` says.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn flush_in(&self, inode: Inode, scope: Scope, flushing: &FlushLock<'_>) -> Result<(), FileError> {
        let mut result = self.flush_anew(inode, scope, flushing);
        if result == Err(FileError::NoSpace) && guard(&self.space).given_sectors() > 0 {
            self.checkpoint(flushing)?;
            result = self.flush_anew(inode, scope, flushing);
        }
        if result == Err(FileError::NoSpace) {
            // What has a place, or was promised one, needs no other.
            result = self.flush_once(inode, scope, true, flushing);
        }
        guard(&self.core).nodes.sweep(inode);
        result
    }

    /// One try, in which what fills groups goes elsewhere: if there is room for all that waits, that of other files too.
    fn flush_anew(&self, inode: Inode, scope: Scope, flushing: &FlushLock<'_>) -> Result<(), FileError> {
        match self.is_roomy(0) {
            true => self.flush_once(inode, scope, false, flushing),
            false => Err(FileError::NoSpace),
        }
    }

    /// One try. `in_place`: what has a place stays there, and comes first.
    fn flush_once(
        &self,
        inode: Inode,
        scope: Scope,
        in_place: bool,
        flushing: &FlushLock<'_>,
    ) -> Result<(), FileError> {
        if guard(&self.core).held(inode).is_some() {
            self.commit_flushing(flushing)?;
        }
        let mut left = self.choose(inode, scope);
        // New groups take in neighbours, so what goes home is planned again once they are there.
        for _ in 0..PASSES_MAX {
            let Some((snapshot, steps)) = self.plan_flush(inode, &mut left, scope, in_place)? else { break };
            let partial = scope.leaves_rest() && covered(&steps) < snapshot.len() as u64;
            let (homes, new): (Vec<Step>, Vec<Step>) =
                steps.into_iter().partition(|step| matches!(step, Step::Home { .. }));
            let mut first = Ok(());
            if new.is_empty() || in_place {
                for step in homes {
                    let Step::Home { window, sectors } = step else { continue };
                    match self.apply_home(inode, window, &sectors, flushing) {
                        Ok(()) => left.retain(|sector| sectors.binary_search(sector).is_err()),
                        // What lies elsewhere finds its place all the same.
                        Err(error @ FileError::Lost { .. }) => first = first.and(Err(error)),
                        Err(error) => return Err(error),
                    }
                }
            }
            for step in &new {
                let placed = match step {
                    Step::Bulk { sectors } => self.place_bulk(inode, sectors.clone(), &snapshot)?,
                    Step::Single { sectors, capacity } => {
                        self.place_single(inode, sectors.clone(), *capacity, &snapshot)?
                    }
                    Step::Promised { sectors, .. } => {
                        self.place_promised(inode, sectors.clone(), &snapshot, flushing)?
                    }
                    Step::Home { .. } => continue,
                };
                left.retain(|sector| !placed.contains(sector));
                self.checkpoint_if_heavy(flushing)?;
            }
            first?;
            if partial {
                return Ok(());
            }
        }
        if !left.is_empty() {
            // Each pass has placed a part of what lies between windows; where they are, all have a place.
            return Err(FileError::NoSpace);
        }
        let mut core = guard(&self.core);
        if core.nodes.find(inode).is_none_or(|node| node.waiting.is_empty()) {
            core.nodes.node(inode).distrusts_parity = false;
            core.settle(inode)?;
        }
        Ok(())
    }

    /// The sectors of a file that a flush is to place.
    fn choose(&self, inode: Inode, scope: Scope) -> BTreeSet<u64> {
        let mut core = guard(&self.core);
        let Some(node) = core.nodes.find(inode) else { return BTreeSet::new() };
        match scope {
            // A group whose parity is not trusted takes all its sectors at once.
            _ if node.distrusts_parity => node.waiting.keys().copied().collect(),
            Scope::All | Scope::FullRuns => node.waiting.keys().copied().collect(),
            Scope::Journaled => {
                let journaled = node.waiting.iter().filter(|(_, waiting)| waiting.needs().is_some());
                journaled.map(|(&sector, _)| sector).collect()
            }
            Scope::Share => {
                let sectors: Vec<u64> = node.waiting.keys().copied().collect();
                let (share, cursor) = share(&sectors, node.cursor, self.tuning.apply_sectors_max);
                core.nodes.node(inode).cursor = cursor;
                share
            }
        }
    }

    /// What waits of the sectors `left`, and where it goes; `None` if nothing does any more.
    fn plan_flush(
        &self,
        inode: Inode,
        left: &mut BTreeSet<u64>,
        scope: Scope,
        in_place: bool,
    ) -> Result<Option<(Snapshot, Vec<Step>)>, FileError> {
        let mut core = guard(&self.core);
        self.assert_writable(&mut core)?;
        let Some(node) = core.nodes.find(inode).filter(|_| !left.is_empty()) else { return Ok(None) };
        let waits = |sector: &u64| Some((*sector, node.waiting.get(sector)?.clone()));
        let mut snapshot: Snapshot = left.iter().filter_map(waits).collect();
        left.retain(|sector| snapshot.contains_key(sector));
        let (Some((&first, _)), Some((&last, _))) = (snapshot.first_key_value(), snapshot.last_key_value()) else {
            return Ok(None);
        };
        if self.place_tiny(&mut core, inode)? {
            left.clear();
            return Ok(None);
        }
        let windows = core.windows_around(inode, first..last + 1, self.shape.data)?;
        let mut sectors: Vec<u64> = snapshot.keys().copied().collect();
        for gap in gaps_in_promised_room(&sectors, &windows) {
            if core.nodes.find_waiting(inode, gap).is_none() {
                core.nodes.put(inode, gap, vec![0; SECTOR_BYTES]);
            }
            snapshot.extend(core.nodes.find_waiting(inode, gap).map(|waiting| (gap, waiting.clone())));
            left.insert(gap);
        }
        sectors.clear();
        sectors.extend(snapshot.keys());
        let in_place = in_place || core.nodes.find(inode).is_some_and(|node| node.distrusts_parity);
        let limits = Limits { data: self.shape.data, sectors_max: self.tuning.bulk_sectors_max, in_place, scope };
        let steps = plan(&sectors, &windows, limits);
        Ok(Some((snapshot, steps)))
    }

    /// Puts a small file without windows into its record.
    pub(crate) fn place_tiny(&self, core: &mut crate::core::Core, inode: Inode) -> Result<bool, FileError> {
        let mut record = core.inode(inode)?;
        if !is_tiny(record.bytes) || !core.windows(inode, 0..u64::MAX, self.shape.data)?.is_empty() {
            return Ok(false);
        }
        let Some(waiting) = core.nodes.take(inode, 0) else { return Ok(false) };
        record.tail = waiting.bytes[..record.bytes as usize].to_vec();
        core.nodes.take_range(inode, 0, u64::MAX);
        core.release_size(inode);
        core.forget_journaled(inode, 0..u64::MAX);
        core.set_inode(inode, &record);
        Ok(true)
    }

    /// Writes whole groups: as many side by side as there is room for, and where no gap takes one with its sums, in pieces. Returns what it
    /// placed: all.
    fn place_bulk(&self, inode: Inode, sectors: Range<u64>, snapshot: &Snapshot) -> Result<Range<u64>, FileError> {
        let mut at = sectors.start;
        while at < sectors.end {
            let groups_left = ((sectors.end - at) / u64::from(self.shape.data)) as u32;
            let Some((groups, range)) = self.reserve_bulk(groups_left) else {
                self.place_in_pieces(inode, at..sectors.end, snapshot)?;
                break;
            };
            let run = BulkRun { first: range.first, data: groups * self.shape.data };
            let part = at..at + u64::from(run.data);
            let data: Vec<&[u8]> = snapshot.range(part.clone()).map(|(_, waiting)| waiting.bytes.as_slice()).collect();
            assert_eq!(data.len() as u64, part.end - part.start, "a bulk run is made of sectors that wait");
            if let Err(error) = self.groups.write_bulk(run, &data) {
                return Err(self.write_failed(&with_sources(&error)));
            }
            let window = Window { first: part.start, sectors: run.data, skipped: 0, run: Run::Bulk { run } };
            self.name(inode, &window, Some(range), snapshot)?;
            at = part.end;
        }
        Ok(sectors)
    }

    fn reserve_bulk(&self, groups: u32) -> Option<(u32, SectorRange)> {
        let mut groups = groups;
        loop {
            let sectors = BulkRun::sectors_total(groups, self.shape);
            if let Some(range) = self.reserve(sectors) {
                return Some((groups, range));
            }
            if groups == 1 {
                return None;
            }
            groups = groups.div_ceil(2);
        }
    }

    /// Writes sectors that all wait in groups of their own, as long as the gaps are.
    ///
    /// # Errors
    /// [`FileError::NoSpace`], also where some have a place, or are promised one: that may be within a group, of which no piece is cut out.
    fn place_in_pieces(&self, inode: Inode, sectors: Range<u64>, snapshot: &Snapshot) -> Result<(), FileError> {
        if !guard(&self.core).all_windows(inode, sectors.clone(), self.shape.data)?.is_empty() {
            return Err(FileError::NoSpace);
        }
        for first in sectors.clone().step_by(self.shape.data as usize) {
            let end = sectors.end.min(first + u64::from(self.shape.data));
            self.place_single(inode, first..end, (end - first) as u32, snapshot)?;
        }
        Ok(())
    }

    /// Writes one group. Returns what it placed: all, unless there is no room for it, and the rest has a place.
    fn place_single(
        &self,
        inode: Inode,
        sectors: Range<u64>,
        capacity: u32,
        snapshot: &Snapshot,
    ) -> Result<Range<u64>, FileError> {
        let count = (sectors.end - sectors.start) as u32;
        let reserved = {
            let parity = u64::from(self.shape.parity);
            // Room to grow is nobody's that waits.
            let roomy = (capacity == count || self.is_roomy((capacity - count).into()))
                .then(|| self.reserve(u64::from(capacity) + parity).map(|range| (capacity, range)));
            roomy.flatten().or_else(|| self.reserve(u64::from(count) + parity).map(|range| (count, range)))
        };
        let Some((capacity, range)) = reserved else {
            return self.place_split(inode, sectors, snapshot);
        };
        let place = GroupPlace { first: range.first, data: count, capacity };
        match self.write_single(inode, sectors.start, place, Some(range), snapshot) {
            // Neighbours that were to be taken in stay where they are.
            Err(error @ FileError::Lost { .. }) => {
                let windows = guard(&self.core).windows(inode, sectors.clone(), self.shape.data)?;
                let (first, last) = alone_among(&sectors, &windows).filter(|_| !windows.is_empty()).ok_or(error)?;
                self.place_single(inode, first..last, (last - first) as u32, snapshot)
            }
            written => written.map(|()| sectors),
        }
    }

    /// Writes groups where room for them is promised, up to their last sectors that wait. Returns what it placed: all.
    fn place_promised(
        &self,
        inode: Inode,
        sectors: Range<u64>,
        snapshot: &Snapshot,
        flushing: &FlushLock<'_>,
    ) -> Result<Range<u64>, FileError> {
        // The room may be what is left of a group's, with the sectors of its parity: first that group must be named nowhere.
        self.commit_flushing(flushing)?;
        // What was written just before may have taken a part of it.
        let windows = guard(&self.core).all_windows(inode, sectors.clone(), self.shape.data)?;
        for window in windows {
            let Run::Promised { first } = window.run else { continue };
            let Some((&last, _)) = snapshot.range(window.first..window.end()).next_back() else { continue };
            let place = GroupPlace { first, data: (last + 1 - window.first) as u32, capacity: window.sectors };
            self.write_single(inode, window.first, place, None, snapshot)?;
        }
        Ok(sectors)
    }

    /// Writes one group of the sectors of a file from `first` on and names it: in reserved sectors, or where room is promised.
    pub(crate) fn write_single(
        &self,
        inode: Inode,
        first: u64,
        place: GroupPlace,
        reserved: Option<SectorRange>,
        snapshot: &Snapshot,
    ) -> Result<(), FileError> {
        let owned: Vec<Arc<Vec<u8>>> = match self.content_of(inode, first..first + u64::from(place.data), snapshot) {
            Ok(content) => content,
            Err(error) => {
                if let Some(range) = reserved {
                    guard(&self.space).unreserve(range);
                }
                return Err(error);
            }
        };
        let data: Vec<&[u8]> = owned.iter().map(|bytes| bytes.as_slice()).collect();
        let NewGroup { sums, parity } = match self.groups.write_new(place, &data) {
            Ok(new) => new,
            Err(error) => return Err(self.write_failed(&with_sources(&error))),
        };
        guard(&self.core).growing.keep(inode, place, &sums, parity);
        let run = Run::Single { place, sums, promised: reserved.is_none() };
        self.name(inode, &Window { first, sectors: place.data, skipped: 0, run }, reserved, snapshot)
    }

    /// On a disk whose gaps are all too small for the group: several small ones. Returns what it placed.
    fn place_split(&self, inode: Inode, sectors: Range<u64>, snapshot: &Snapshot) -> Result<Range<u64>, FileError> {
        let largest = guard(&self.space).largest_beside_spare();
        let fits = largest.saturating_sub(u64::from(self.shape.parity));
        let windows = guard(&self.core).windows(inode, sectors.clone(), self.shape.data)?;
        if fits == 0 || fits >= sectors.end - sectors.start || !windows.is_empty() {
            // Neighbours that were to be taken in keep their places; only what waits is split.
            if let (true, Some((first, last))) = (!windows.is_empty(), alone_among(&sectors, &windows)) {
                return self.place_single(inode, first..last, (last - first) as u32, snapshot);
            }
            return Err(FileError::NoSpace);
        }
        let middle = sectors.start + fits;
        self.place_single(inode, sectors.start..middle, fits as u32, snapshot)?;
        self.place_single(inode, middle..sectors.end, (sectors.end - middle) as u32, snapshot)?;
        Ok(sectors)
    }

    /// The bytes of sectors, from what waits or from where they are.
    fn content_of(
        &self,
        inode: Inode,
        sectors: Range<u64>,
        snapshot: &Snapshot,
    ) -> Result<Vec<Arc<Vec<u8>>>, FileError> {
        let mut content = Vec::with_capacity((sectors.end - sectors.start) as usize);
        let mut at = sectors.start;
        while at < sectors.end {
            if let Some(waiting) = snapshot.get(&at) {
                content.push(waiting.bytes.clone());
                at += 1;
                continue;
            }
            let end = snapshot.range(at..sectors.end).next().map_or(sectors.end, |(&next, _)| next);
            let mut bytes = vec![0; (end - at) as usize * SECTOR_BYTES];
            self.read_sectors(inode, at..end, &mut bytes)?;
            content.extend(bytes.chunks_exact(SECTOR_BYTES).map(|sector| Arc::new(sector.to_vec())));
            at = end;
        }
        Ok(content)
    }

    /// Names a run that was written, in reserved sectors or in promised room: what was in its place before becomes free, and its
    /// sectors wait no more.
    fn name(
        &self,
        inode: Inode,
        window: &Window,
        reserved: Option<SectorRange>,
        snapshot: &Snapshot,
    ) -> Result<(), FileError> {
        let gate = self.gate(inode);
        let _alone = write_gate(&gate);
        // No entry is on its way into the journal now, so all that it has of these sectors is known.
        let _journal = guard(&self.journal);
        let mut core = guard(&self.core);
        core.unsynced = true;
        let mut changes = Vec::new();
        let mut space = guard(&self.space);
        if let Some(reserved) = reserved {
            space.take(reserved, &mut changes);
        }
        core.apply(changes);
        let sectors = window.first..window.end();
        core.replace(inode, sectors.clone(), Some(window), self.shape, &mut space)?;
        drop(space);
        for (&sector, placed) in snapshot.range(sectors.clone()) {
            core.nodes.placed(inode, sector, placed.version);
        }
        core.forget_journaled(inode, sectors);
        let mut record = core.settle_to(inode, window.end())?;
        if window.first == 0 {
            record.tail.clear();
        }
        core.set_stored(inode, &record);
        self.room.notify_all();
        Ok(())
    }

    /// Applies sectors to the groups of a window, in batches that the journal holds. What of it is to go into groups that are lost finds
    /// a place all the same, before the next batch is begun.
    ///
    /// # Errors
    /// [`FileError::Lost`]: those of lost groups wait on for which there is no other place, and what a single run was to grow by behind them;
    /// the others are written.
    fn apply_home(
        &self,
        inode: Inode,
        window: u64,
        sectors: &[u64],
        flushing: &FlushLock<'_>,
    ) -> Result<(), FileError> {
        let trusts_parity = guard(&self.core).nodes.find(inode).is_none_or(|node| !node.distrusts_parity);
        let choice = match trusts_parity {
            true => UpdateChoice::Cheapest,
            false => UpdateChoice::Only(UpdateWay::Reencode),
        };
        let batch_max = self.tuning.apply_sectors_max.min(self.journal_share);
        let mut result = Ok(());
        // Where the catalog had no room when others were applied, too much may be left in the journal: then nothing is begun.
        self.make_room(flushing)?;
        for batch in self.batches(inode, window, sectors, batch_max)? {
            let mut left = batch;
            while let Some(part) = self.next_home(inode, &left)? {
                let last = part.sectors.last().copied().unwrap_or_default();
                left.retain(|sector| *sector > last);
                let unsynced = self.unsynced_of(inode, &part)?;
                let applied = match &part.window {
                    Some(window) => self.apply(inode, window, &part.sectors, choice, flushing),
                    None => Err(FileError::Lost { inode, sectors: part.sectors.len() as u64 }),
                };
                let applied = match applied {
                    Err(FileError::Lost { .. }) => self.place_lost(inode, &part, trusts_parity, flushing),
                    applied => applied,
                };
                match applied {
                    Ok(()) => {}
                    // A group that is lost leaves what is its own where it is, and the others go on.
                    Err(error @ FileError::Lost { .. }) => {
                        let mut core = guard(&self.core);
                        // Not before it is certain that they wait on, and that whoever waits for this flush is told so.
                        unsynced
                            .iter()
                            .for_each(|(sector, version)| core.nodes.need_no_entry(inode, *sector, *version));
                        result = result.and(Err(error));
                    }
                    Err(error) => return Err(error),
                }
            }
            self.make_room(flushing)?;
            self.checkpoint_if_heavy(flushing)?;
        }
        result
    }

    /// The first of `sectors`, ascending, that still wait, and where they are at home: of one window, or in the room behind it, or, where those
    /// before them moved or wait on, nowhere. `None` where none waits.
    fn next_home(&self, inode: Inode, sectors: &[u64]) -> Result<Option<Part>, FileError> {
        let core = guard(&self.core);
        let node = core.nodes.find(inode);
        let waiting = sectors.iter().filter_map(|sector| Some((*sector, node?.waiting.get(sector)?.version)));
        let waiting: Vec<(u64, u64)> = waiting.collect();
        let Some(&(first, _)) = waiting.first() else { return Ok(None) };
        let mut windows = core.windows_around(inode, first..first + 1, self.shape.data)?;
        let next = windows.iter().map(|window| window.first).find(|begin| *begin > first).unwrap_or(u64::MAX);
        windows.retain(|window| !window.is_promised() && window.first <= first);
        let window = windows.pop().filter(|window| first < window.end() + window.room());
        // A group grows in order.
        let (mut end, room_end) =
            window.as_ref().map_or((first, next), |window| (window.end(), next.min(window.end() + window.room())));
        let is_next = |(sector, _): &&(u64, u64)| {
            let grows = *sector >= end;
            let fits = *sector < room_end && (!grows || *sector == end);
            end += u64::from(grows && fits);
            fits
        };
        let part: Vec<(u64, u64)> = waiting.iter().take_while(is_next).copied().collect();
        // It does not grow behind a gap.
        let (window, part) = if part.is_empty() { (None, vec![waiting[0]]) } else { (window, part) };
        let (sectors, versions) = part.into_iter().unzip();
        Ok(Some(Part { window, sectors, versions }))
    }

    /// Those of `part`, with their versions, that no entry holds and nobody has synced before. One of a lost group needs none because it was to be
    /// applied: it waits as it did. But not those that make the file longer, for a size that counts them must not be there without them.
    fn unsynced_of(&self, inode: Inode, part: &Part) -> Result<Vec<(u64, u64)>, FileError> {
        let Some(window) = &part.window else { return Ok(Vec::new()) };
        let core = guard(&self.core);
        let end = (core.stored(inode)?.bytes / SECTOR_BYTES as u64).min(window.end());
        let node = core.nodes.find(inode);
        let unsynced = |sector: &u64| {
            let waiting = node?.waiting.get(sector)?;
            (waiting.needs().is_none() && *sector < end).then_some((*sector, waiting.version))
        };
        Ok(part.sectors.iter().filter_map(unsynced).collect())
    }

    /// Brings sectors that wait into a window, or into the room behind it, by way of the journal; after a crash with what other windows show of
    /// their groups.
    ///
    /// # Errors
    /// As [`Disk::apply_single`] and [`Disk::apply_bulk`].
    pub(crate) fn apply(
        &self,
        inode: Inode,
        window: &Window,
        sectors: &[u64],
        choice: UpdateChoice,
        flushing: &FlushLock<'_>,
    ) -> Result<(), FileError> {
        let content: Vec<(u64, Waiting)> = {
            let core = guard(&self.core);
            let sectors = match choice {
                UpdateChoice::Cheapest => sectors.to_vec(),
                UpdateChoice::Only(_) => self.with_torn(&core, inode, window, sectors)?,
            };
            let node = core.nodes.find(inode);
            let waiting = |sector: &u64| Some((*sector, node?.waiting.get(sector)?.clone()));
            sectors.iter().filter_map(waiting).collect()
        };
        if content.is_empty() {
            return Ok(());
        }
        // All of a group together may be more than an entry takes. The size that they make goes along.
        for (number, portion) in content.chunks(self.journal_share).enumerate() {
            if number > 0 {
                self.make_room(flushing)?;
            }
            let queued = guard(&self.core).journal_waiting(inode, portion.iter().map(|(sector, _)| *sector));
            if let Err(error) = self.commit_flushing(flushing) {
                // Else each flush that finds no room makes the next entry longer. None is on its way, which would bring them back; of one that
                // was, the border of a hole that nobody synced may wait on by itself, as in a checkpoint.
                let _journal = guard(&self.journal);
                guard(&self.core).unqueue_unpromised(queued);
                return Err(error);
            }
        }
        match window.run {
            Run::Promised { .. } => unreachable!("nothing is at home where there is no data"),
            Run::Single { .. } => self.apply_single(inode, window.clone(), &content, choice, flushing),
            Run::Bulk { .. } => self.apply_bulk(inode, window, &content, choice, flushing),
        }
    }

    /// Sectors of a window, and what else the journal has of their groups, that other windows on the run show: after a crash it may be torn in its
    /// place, where it would be read to encode the groups.
    fn with_torn(&self, core: &Core, inode: Inode, window: &Window, sectors: &[u64]) -> Result<Vec<u64>, FileError> {
        let mut all: BTreeSet<u64> = sectors.iter().copied().collect();
        let Run::Bulk { run } = window.run else { return Ok(sectors.to_vec()) };
        let k = self.shape.data;
        let groups: BTreeSet<u32> = sectors.iter().map(|sector| window.position(*sector) / k).collect();
        for part in groups.into_iter().map(|group| group * k..(group + 1) * k) {
            for other in core.windows_on(inode, run, window, &part, self.shape)? {
                let at = |position: u32| {
                    other.first + u64::from(position.clamp(other.in_run().start, other.in_run().end) - other.skipped)
                };
                let waiting = core.nodes.find(inode).into_iter();
                let waiting = waiting.flat_map(|node| node.waiting.range(at(part.start)..at(part.end)));
                all.extend(waiting.filter(|(_, waiting)| waiting.needs().is_some()).map(|(sector, _)| *sector));
            }
        }
        Ok(all.into_iter().collect())
    }

    /// Batches of at most `most` sectors, in which they go to the groups of a window. After a crash those of a group that
    /// the journal has stay together, and come first: each of them may be torn in its place, where it would be read to
    /// encode the others.
    fn batches(&self, inode: Inode, window: u64, sectors: &[u64], most: usize) -> Result<Vec<Vec<u64>>, FileError> {
        let core = guard(&self.core);
        let windows = core.windows(inode, window..window + 1, self.shape.data)?;
        let (Some(node), Some(window)) = (core.nodes.find(inode).filter(|node| node.distrusts_parity), windows.first())
        else {
            return Ok(sectors.chunks(most).map(<[u64]>::to_vec).collect());
        };
        let journaled = |sector: &u64| node.waiting.get(sector).is_some_and(|waiting| waiting.needs().is_some());
        let all = sectors.iter().all(journaled);
        let (mut torn, mut others) = (Vec::new(), Vec::new());
        for &sector in sectors {
            let group = match &window.run {
                // It grows in order.
                Run::Single { .. } | Run::Promised { .. } => (all || sector < window.end()).then_some(0),
                Run::Bulk { .. } => Some(window.position(sector) / self.shape.data),
            };
            match group.filter(|_| journaled(&sector)) {
                Some(group) => torn.push((group, sector)),
                None => others.push(sector),
            }
        }
        let mut batches = whole_groups(&torn, most);
        batches.extend(others.chunks(most).map(<[u64]>::to_vec));
        Ok(batches)
    }

    /// Writes journaled sectors into a single run, growing it into its room if they lie there.
    pub(crate) fn apply_single(
        &self,
        inode: Inode,
        window: Window,
        content: &[(u64, Waiting)],
        choice: UpdateChoice,
        flushing: &FlushLock<'_>,
    ) -> Result<(), FileError> {
        let Run::Single { place, mut sums, promised } = window.run.clone() else { unreachable!("a single run") };
        let at = |sector: u64| window.skipped + (sector - window.first) as u32;
        let changes: Vec<Change<'_>> =
            content.iter().map(|(sector, waiting)| Change { position: at(*sector), bytes: &waiting.bytes }).collect();
        let kept = guard(&self.core).growing.parity(inode, place, &sums);
        let cached = |member| match member {
            Member::Data(_) => None,
            Member::Parity(number) => {
                let at = number as usize * SECTOR_BYTES;
                kept.as_ref().map(|parity| parity.slice(at..at + SECTOR_BYTES))
            }
        };
        let update = self
            .groups
            .prepare_update(place, &changes, &sums, &cached, choice)
            .map_err(|error| unreadable(inode, &error))?;
        sums.resize(update.place.data as usize, 0);
        for &(position, sum) in &update.sums {
            sums[position as usize] = sum;
        }
        let end = content.last().map_or(0, |(sector, _)| at(*sector) + 1);
        let sectors = window.sectors.max(end - window.skipped);
        let before = window.clone();
        let window = Window { sectors, run: Run::Single { place: update.place, sums, promised }, ..window };
        // Its sums are those of what is written below.
        let gate = self.gate(inode);
        let _alone = write_gate(&gate);
        let named = {
            let mut core = guard(&self.core);
            core.unsynced |= update.mended;
            core.set_window(inode, &window);
            core.settle_to(inode, window.end()).map(|record| core.set_stored(inode, &record))
        };
        if let Err(error) = named.and_then(|()| self.commit_flushing(flushing)) {
            self.groups.give_up_update(&update);
            guard(&self.core).set_window(inode, &before);
            return Err(error);
        }
        if let Err(error) = self.groups.write_update(&update) {
            return Err(self.write_failed(&with_sources(&error)));
        }
        if let Run::Single { place, sums, .. } = &window.run
            && update.way != UpdateWay::Void
        {
            guard(&self.core).growing.keep(inode, *place, sums, update.parity);
        }
        self.applied(inode, content);
        Ok(())
    }

    /// Writes journaled sectors into groups of a bulk run.
    ///
    /// # Errors
    /// [`FileError::Lost`]: those of lost groups wait on, the others are written.
    pub(crate) fn apply_bulk(
        &self,
        inode: Inode,
        window: &Window,
        content: &[(u64, Waiting)],
        choice: UpdateChoice,
        flushing: &FlushLock<'_>,
    ) -> Result<(), FileError> {
        let Run::Bulk { run } = window.run else { unreachable!("a bulk run") };
        let data = self.shape.data;
        let position = |sector: &u64| window.position_beside(*sector);
        let by_group = content.chunk_by(|(one, _), (next, _)| position(one) / data == position(next) / data);
        let changes = by_group.map(|group| GroupChanges {
            group: position(&group[0].0) / data,
            changes: group
                .iter()
                .map(|(sector, waiting)| Change { position: position(sector) % data, bytes: &waiting.bytes })
                .collect(),
        });
        let changes: Vec<GroupChanges<'_>> = changes.collect();
        let (Some((first, _)), Some((last, _))) = (content.first(), content.last()) else { return Ok(()) };
        let part = position(first)..position(last) + 1;
        let shown = guard(&self.core).shown_of(inode, window, &part, self.shape)?;
        let update = self.groups.prepare_bulk_update(ShownRun::new(run, &shown), &changes, choice);
        let update = update.map_err(|error| unreadable(inode, &error))?;
        let is_lost =
            |sector: &u64| update.lost.binary_search_by_key(&(position(sector) / data), |lost| lost.group).is_ok();
        let lost = update.lost.first().map_or(Ok(()), |lost| Err(unreadable(inode, &lost.error)));
        if update.updates.is_empty() {
            return lost;
        }
        guard(&self.core).unsynced |= update.updates.iter().any(|update| update.mended);
        let differing = update.sums.iter().filter(|sums| sums.differs);
        let record = |sums: &SumsUpdate| Record::Sums {
            place: sums.place.0,
            bytes: sums.sums.encode(self.disk_id(), sums.place),
        };
        if let Err(error) = self.commit_sums(&differing.map(record).collect::<Vec<_>>(), flushing) {
            update.updates.iter().for_each(|update| self.groups.give_up_update(update));
            // They would go along with an entry behind a checkpoint, when their places may be others'. None is on its way then, which would
            // bring them back if it found no room.
            let places: Vec<Sector> = update.sums.iter().map(|sums| sums.place).collect();
            let _journal = guard(&self.journal);
            guard(&self.core).forget_sums(&places);
            return Err(error);
        }
        let gate = self.gate(inode);
        let _alone = write_gate(&gate);
        if let Err(error) = self.groups.write_bulk_update(&update) {
            return Err(self.write_failed(&with_sources(&error)));
        }
        self.applied(inode, content.iter().filter(|(sector, _)| !is_lost(sector)));
        lost
    }

    /// Sectors are in their groups: they wait no more, unless they were written since.
    fn applied<'c>(&self, inode: Inode, content: impl IntoIterator<Item = &'c (u64, Waiting)>) {
        let mut core = guard(&self.core);
        // The journal has them until a checkpoint, which syncs first. But an entry that takes a sector out of the journal, for a hole or
        // a cut, tells whoever replays it that the sector's group need not be made anew: what was written here is durable before.
        core.unsynced = true;
        for (sector, placed) in content {
            core.nodes.placed(inode, *sector, placed.version);
        }
        // Whoever waits for room looks again.
        self.room.notify_all();
    }

    /// After a write of unknown result the disk takes no more.
    pub(crate) fn write_failed(&self, why: &str) -> FileError {
        guard(&self.core).fail(why.to_owned())
    }
}

pub(crate) fn unreadable(inode: Inode, error: &GroupError) -> FileError {
    match error {
        GroupError::Lost { positions, .. } => FileError::Lost { inode, sectors: positions.len() as u64 },
        other => FileError::Failed { why: with_sources(other) },
    }
}

/// About `most` of the waiting `sectors`, ascending, from `cursor` on and then from the beginning; rows of consecutive
/// ones stay together. Returns them and where to go on.
fn share(sectors: &[u64], cursor: u64, most: usize) -> (BTreeSet<u64>, u64) {
    let mut rows = clusters(sectors);
    let behind = rows.partition_point(|row| row.end <= cursor);
    rows.rotate_left(behind);
    let (mut share, mut cursor) = (BTreeSet::new(), 0);
    for row in rows {
        if share.len() >= most {
            break;
        }
        cursor = row.end;
        share.extend(row);
    }
    (share, cursor)
}

/// Batches of at most so many sectors, but none with a part of a group.
fn whole_groups(sectors: &[(u32, u64)], most: usize) -> Vec<Vec<u64>> {
    let mut batches: Vec<Vec<u64>> = Vec::new();
    for group in sectors.chunk_by(|one, next| one.0 == next.0) {
        let group = group.iter().map(|(_, sector)| *sector);
        match batches.last_mut() {
            Some(batch) if batch.len() + group.len() <= most => batch.extend(group),
            _ => batches.push(group.collect()),
        }
    }
    batches
}

/// How many sectors steps place.
fn covered(steps: &[Step]) -> u64 {
    let sectors = |step: &Step| match step {
        Step::Bulk { sectors } | Step::Single { sectors, .. } => sectors.end - sectors.start,
        Step::Promised { waiting, .. } => *waiting,
        Step::Home { sectors, .. } => sectors.len() as u64,
    };
    steps.iter().map(sectors).sum()
}

/// The part of `sectors` in no window, which is one row.
fn alone_among(sectors: &Range<u64>, windows: &[Window]) -> Option<(u64, u64)> {
    let mut at = sectors.start;
    for window in windows {
        if window.first > at {
            return Some((at, window.first));
        }
        at = window.end();
    }
    (at < sectors.end).then_some((at, sectors.end))
}
