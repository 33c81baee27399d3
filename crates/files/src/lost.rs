//! What is to go into groups of which more is lost than parity replaces.
//!
//! New parity of such a group can be made as long as what changes and all parity reads, or once all that is lost is written anew
//! (`claystone_group`). For other sectors it cannot, and they are brought elsewhere, so that nothing in the journal waits for what may never be read again:
//!
//! ```text
//! parity cannot be made
//!   parity is trusted:  moved:  a new group elsewhere; the old one keeps what else it has, with its parity. When no file has a sector of it any
//!                               more that is lost, the rest moves too, for such a group bears no loss
//!                       or, without room for that or within a single run:  in place, and parity is void
//!   after a crash:      in place, and parity is void: it may be torn, and nobody could tell later
//!                       or, where its CRCs cannot be written either:  moved; and parity is void, unless the old group vouches for itself
//!   neither:            they wait on in the journal
//! ```
//!
//! Invariants:
//! 1. What is moved is as every new group: nobody finds it before the entry that names it, and the journal has what was synced until then.
//! 2. A group whose parity does not fit its data has void parity, or sectors of it wait in the journal.
//! 3. No sector that is lost is written but by a file's newer bytes: it may be read some day.

use std::ops::Range;

use claystone_group::{GroupPlace, Known, Member, ShownRun, UpdateChoice, UpdateWay};

use crate::disk::{Disk, FlushLock, guard, write_gate};
use crate::error::with_sources;
use crate::flush::{Part, Snapshot, unreadable};
use crate::placing::clusters;
use crate::run::{Run, Window};
use crate::{FileError, Inode};

impl Disk {
    /// Finds places for those of `part` that were not applied because their groups are lost.
    ///
    /// # Errors
    /// [`FileError::Lost`]: some wait on. As [`Disk::apply_single`].
    pub(crate) fn place_lost(
        &self,
        inode: Inode,
        part: &Part,
        trusts_parity: bool,
        flushing: &FlushLock<'_>,
    ) -> Result<(), FileError> {
        for moves in [trusts_parity, !trusts_parity] {
            if moves {
                self.move_away(inode, part)?;
            } else {
                self.apply_void(inode, part, flushing)?;
            }
        }
        match self.left_of(inode, part).len() as u64 {
            0 => Ok(()),
            sectors => Err(FileError::Lost { inode, sectors }),
        }
    }

    /// Writes them where they are at home, and void parity.
    fn apply_void(&self, inode: Inode, part: &Part, flushing: &FlushLock<'_>) -> Result<(), FileError> {
        let Some(before) = &part.window else { return Ok(()) };
        // Where some moved, several windows are left.
        for window in self.windows_now(inode, before)? {
            let own = own_of(&window, &self.left_of(inode, part));
            if own.is_empty() {
                continue;
            }
            match self.apply(inode, &window, &own, UpdateChoice::Only(UpdateWay::Void), flushing) {
                Ok(()) | Err(FileError::Lost { .. }) => {}
                error => return error,
            }
        }
        Ok(())
    }

    /// Those of `part` that wait as they did.
    fn left_of(&self, inode: Inode, part: &Part) -> Vec<u64> {
        let core = guard(&self.core);
        let node = core.nodes.find(inode);
        let waits = |sector: &u64, version: u64| {
            node.and_then(|node| node.waiting.get(sector)).is_some_and(|now| now.version == version)
        };
        let all = part.sectors.iter().zip(&part.versions);
        all.filter(|(sector, version)| waits(sector, **version)).map(|(sector, _)| *sector).collect()
    }

    /// What is left of a window.
    fn windows_now(&self, inode: Inode, window: &Window) -> Result<Vec<Window>, FileError> {
        let mut windows = guard(&self.core).windows(inode, window.first..window.end(), self.shape.data)?;
        windows.retain(|now| shares_run(now, window));
        Ok(windows)
    }

    /// Writes rows of sectors into groups of their own, as far as there is room that nobody else may need.
    fn move_away(&self, inode: Inode, part: &Part) -> Result<(), FileError> {
        let mut from = 0;
        loop {
            // One may have taken others along.
            let mut left = self.left_of(inode, part);
            left.retain(|sector| *sector >= from);
            let Some(row) = clusters(&left).into_iter().next() else { return Ok(()) };
            let row = row.start..row.end.min(row.start + u64::from(self.shape.data));
            from = row.end;
            for range in self.movable(inode, part.window.as_ref(), &row)? {
                if self.move_row(inode, range.clone())? {
                    from = from.min(range.end);
                    break;
                }
            }
        }
    }

    /// What may be moved with the first sectors of a row, best first. Of a bulk run all that its group still shows, if none of it is lost then, so that
    /// nothing is left in the group, and else nothing. A single run has one window, so all that lies on one side of the row goes along, if none
    /// of that is lost; and where its room is promised to the file nothing is moved.
    fn movable(&self, inode: Inode, window: Option<&Window>, row: &Range<u64>) -> Result<Vec<Range<u64>>, FileError> {
        let Some(window) = window else {
            // It may be promised room.
            let homeless = guard(&self.core).homeless(inode, row.clone(), self.shape.data)?;
            return Ok(Vec::from_iter((homeless == row.end - row.start).then(|| row.clone())));
        };
        let windows = self.windows_now(inode, window)?;
        let Some(now) = windows.iter().rfind(|window| window.first <= row.start) else { return Ok(Vec::new()) };
        let reads = |place: GroupPlace, position: u32, sector: u64| {
            let waits = guard(&self.core).nodes.find_waiting(inode, sector).is_some();
            waits || !self.groups.is_known_lost(place.sector(Member::Data(position)))
        };
        match now.run {
            Run::Promised { .. } | Run::Single { promised: true, .. } => Ok(Vec::new()),
            Run::Single { place, .. } => {
                let all_read = |range: &Range<u64>| {
                    let mut others = range.clone().filter(|sector| !row.contains(sector));
                    range.end - range.start <= u64::from(self.shape.data)
                        && others.all(|sector| sector < now.end() && reads(place, now.position(sector), sector))
                };
                let mut ranges = vec![row.start..row.end.max(now.end()), row.start.min(now.first)..row.end];
                ranges.sort_by_key(|range| range.end - range.start);
                ranges.retain(all_read);
                Ok(ranges)
            }
            Run::Bulk { run } => {
                let k = self.shape.data;
                let group = now.position(row.start) / k;
                let of_group = |window: &Window| {
                    let (shown, positions) = (window.in_run(), group * k..(group + 1) * k);
                    let (start, end) = (shown.start.max(positions.start), shown.end.min(positions.end));
                    let first = window.first + u64::from(start.saturating_sub(shown.start));
                    (start < end).then(|| (start % k, first..first + u64::from(end - start)))
                };
                let own = row.start..row.end.min(row.start + u64::from(k - now.position(row.start) % k));
                let place = run.group(group, self.shape);
                let reads_all = |(start, sectors): &(u32, Range<u64>)| {
                    (*start..).zip(sectors.clone()).all(|(position, sector)| reads(place, position, sector))
                };
                let all = self.windows_on_run(inode, now)?;
                let parts: Vec<(u32, Range<u64>)> = all.iter().filter_map(of_group).collect();
                let whole = match (parts.first(), parts.last()) {
                    (Some((_, first)), Some((_, last))) if parts.iter().all(reads_all) => Some(first.start..last.end),
                    _ => None,
                };
                let whole = match whole {
                    Some(whole) if whole != own && self.is_gapless(inode, &whole)? => Some(whole),
                    _ => None,
                };
                Ok(whole.into_iter().chain([own]).collect())
            }
        }
    }

    /// All windows on the run of one, as far as they can have sectors of its groups.
    fn windows_on_run(&self, inode: Inode, window: &Window) -> Result<Vec<Window>, FileError> {
        let reach = u64::from(self.shape.data);
        let near = window.first.saturating_sub(reach)..window.end() + reach;
        let mut windows = guard(&self.core).windows(inode, near, self.shape.data)?;
        windows.retain(|now| shares_run(now, window));
        Ok(windows)
    }

    /// Whether each of these sectors has a place, and none lies where room is promised.
    fn is_gapless(&self, inode: Inode, sectors: &Range<u64>) -> Result<bool, FileError> {
        let core = guard(&self.core);
        let windows = core.all_windows(inode, sectors.clone(), self.shape.data)?;
        let is_promised =
            |window: &Window| matches!(window.run, Run::Promised { .. } | Run::Single { promised: true, .. });
        Ok(!windows.iter().any(is_promised) && core.homeless(inode, sectors.clone(), self.shape.data)? == 0)
    }

    /// Writes a group of its own, if there is room that nobody else may need, and if what does not wait of it reads. Returns whether it did.
    fn move_row(&self, inode: Inode, row: Range<u64>) -> Result<bool, FileError> {
        let snapshot: Snapshot = {
            let core = guard(&self.core);
            let node = core.nodes.find(inode);
            let waiting = node.into_iter().flat_map(|node| node.waiting.range(row.clone()));
            waiting.map(|(sector, waiting)| (*sector, waiting.clone())).collect()
        };
        let count = (row.end - row.start) as u32;
        // What does not wait was not counted as needing room.
        if !self.is_roomy(u64::from(count) - snapshot.len() as u64) {
            return Ok(false);
        }
        let Some(range) = self.reserve(u64::from(count + self.shape.parity)) else { return Ok(false) };
        let place = GroupPlace { first: range.first, data: count, capacity: count };
        match self.may_leave(inode, &row) {
            Ok(true) => {}
            kept => {
                guard(&self.space).unreserve(range);
                return kept;
            }
        }
        match self.write_single(inode, row.start, place, Some(range), &snapshot) {
            Ok(()) => Ok(true),
            Err(FileError::Lost { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether sectors of a file may leave their groups. After a crash the parity of these may be torn, which nobody could tell later, so that of
    /// those of bulk runs becomes void that do not vouch for themselves, durable before the entry that forgets the sectors. And where their sums
    /// sectors read again nothing leaves them: the next flush writes it in place.
    fn may_leave(&self, inode: Inode, sectors: &Range<u64>) -> Result<bool, FileError> {
        let k = self.shape.data;
        let windows = {
            let core = guard(&self.core);
            match core.nodes.find(inode).is_some_and(|node| node.distrusts_parity) {
                true => core.windows(inode, sectors.clone(), k)?,
                false => return Ok(true),
            }
        };
        for window in windows {
            let Run::Bulk { run } = window.run else { continue };
            let last = sectors.end.min(window.end()) - 1;
            for group in window.position(sectors.start.max(window.first)) / k..=window.position(last) / k {
                let shown = guard(&self.core).shown_of(inode, &window, &(group * k..(group + 1) * k), self.shape)?;
                let known = self.groups.known_by(ShownRun::new(run, &shown), group);
                match known.map_err(|error| unreadable(inode, &error))? {
                    Known::Data => continue,
                    Known::Sums => return Ok(false),
                    Known::Nothing => {}
                }
                let gate = self.gate(inode);
                let _alone = write_gate(&gate);
                if let Err(error) = self.groups.void(run.group(group, self.shape)) {
                    return Err(self.write_failed(&with_sources(&error)));
                }
                guard(&self.core).unsynced = true;
            }
        }
        Ok(true)
    }
}

/// Those of `sectors` that lie in a window, or in a row behind it where it has room.
fn own_of(window: &Window, sectors: &[u64]) -> Vec<u64> {
    let room_end = window.end() + window.room();
    let mut end = window.end();
    let mut own = Vec::new();
    for sector in sectors.iter().copied().filter(|sector| (window.first..room_end).contains(sector)) {
        if sector > end {
            break;
        }
        end = end.max(sector + 1);
        own.push(sector);
    }
    own
}

fn shares_run(one: &Window, other: &Window) -> bool {
    match (&one.run, &other.run) {
        (Run::Single { place: one, .. }, Run::Single { place: other, .. }) => one.first == other.first,
        (Run::Bulk { run: one }, Run::Bulk { run: other }) => one.first == other.first,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
