//! The bytes of files: reads, writes, sizes and holes.
//!
//! Invariants:
//! 1. Bytes behind the end of a file are zeros, in its last sector and in every later one that has a place.
//! 2. A write is in memory when it returns; before it is taken, there is room on the device for the worst placing. A file that stays tiny takes
//!    none but in the catalog, and does not wait: its bytes are in its record at once, so whatever lets it grow later asks for room with them.
//! 3. A reader holds the gate of the file shared from the moment it learns places until it has read them. A writer of whole
//!    sectors holds no gate: what it writes only waits. So who read a sector to change it looks again when it has the core.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use claystone_env::{SECTOR_BYTES, Sector, SectorRange, aligned_buffer};
use claystone_group::{GroupError, NOTHING_CACHED, ShownRun};

use crate::commit::unless_full;
use crate::core::Core;
use crate::disk::{Disk, FlushLock, guard, read_gate, write_gate};
use crate::error::with_sources;
use crate::inode::{InodeRecord, TINY_BYTES_MAX};
use crate::keys::{self, Span};
use crate::node::{Live, Waiting};
use crate::placing::{Scope, clusters};
use crate::run::{Run, Window};
use crate::view::senseless;
use crate::{FileError, Inode, Seek, Table};

/// The longest file: file sectors are numbers of 32 bits and more, and offsets are positive in 64 bits with sign.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 56;

const BYTES: u64 = SECTOR_BYTES as u64;

/// A window that is read.
struct Source {
    window: Window,
    /// What windows show of its run, if that is a bulk run, near what is read.
    shown: Vec<Range<u32>>,
}

/// Why sectors of a file are given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropping {
    /// The file ends before them.
    Cut,
    /// There is to be a hole.
    Hole,
    /// The file has no name any more.
    Orphan,
}

/// What is needed to read a range of a file, taken under the lock.
struct Sources {
    windows: Vec<Source>,
    waiting: Vec<(u64, Arc<Vec<u8>>)>,
    tiny: Vec<u8>,
}

impl Disk {
    pub(crate) fn read_file(&self, inode: Inode, offset: u64, into: &mut [u8]) -> Result<usize, FileError> {
        let gate = self.gate(inode);
        let _shared = read_gate(&gate);
        let Some((len, sources)) = self.begin_reading(inode, offset, into.len())? else { return Ok(0) };
        self.read_sources(inode, &sources, offset, &mut into[..len])?;
        Ok(len)
    }

    /// As [`Disk::read_file`] of up to `count` bytes. What lies in bulk runs and nowhere else is read where it may be kept, so that
    /// what fails of a stream is mended from that.
    pub(crate) fn read_file_bytes(&self, inode: Inode, offset: u64, count: usize) -> Result<Bytes, FileError> {
        let gate = self.gate(inode);
        let _shared = read_gate(&gate);
        let Some((len, sources)) = self.begin_reading(inode, offset, count)? else { return Ok(Bytes::new()) };
        if offset.is_multiple_of(BYTES)
            && len.is_multiple_of(SECTOR_BYTES)
            && let Some(read) = self.read_kept(&sources, offset / BYTES..(offset + len as u64) / BYTES)
        {
            return read.map_err(|error| failed(&error));
        }
        let mut buffer = self.groups.buffer(len);
        self.read_sources(inode, &sources, offset, &mut buffer)?;
        Ok(self.groups.keep_buffer(buffer))
    }

    /// Learns what is needed to read up to `count` bytes, and how many there are; `None` at the end of the file. Who calls
    /// holds the gate until they are read.
    fn begin_reading(&self, inode: Inode, offset: u64, count: usize) -> Result<Option<(usize, Sources)>, FileError> {
        let mut core = guard(&self.core);
        let record = core.file(inode)?;
        let len = (count as u64).min(record.bytes.saturating_sub(offset)) as usize;
        if len == 0 {
            return Ok(None);
        }
        self.touch_accessed(&mut core, inode, &record);
        let sectors = offset / BYTES..(offset + len as u64).div_ceil(BYTES);
        Ok(Some((len, self.sources(&core, inode, &record, sectors)?)))
    }

    /// Reads sectors that all lie in bulk runs, where none of them waits. `None` if they do not, or if some are lost, for what
    /// waits may stand for those.
    fn read_kept(&self, sources: &Sources, sectors: Range<u64>) -> Option<Result<Bytes, GroupError>> {
        if !sources.waiting.is_empty() || !sources.tiny.is_empty() {
            return None;
        }
        let mut parts = Vec::with_capacity(sources.windows.len());
        let mut next = sectors.start;
        for Source { window, shown } in &sources.windows {
            let Run::Bulk { run } = window.run else { return None };
            if window.first > next {
                return None;
            }
            let end = window.end().min(sectors.end);
            let first = u64::from(window.position(next));
            parts.push((ShownRun::new(run, shown), first..first + (end - next)));
            next = end;
        }
        if next < sectors.end {
            return None;
        }
        let mut read = Vec::with_capacity(parts.len());
        for (run, wanted) in parts {
            match self.groups.read_bulk_kept(run, wanted) {
                Ok(bytes) => read.push(bytes),
                Err(GroupError::Lost { .. }) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        if read.len() == 1 {
            return read.pop().map(Ok);
        }
        // A read in fifty crosses from one run of a file into the next.
        let mut whole = self.groups.buffer((sectors.end - sectors.start) as usize * SECTOR_BYTES);
        let mut into = &mut whole[..];
        for bytes in read {
            into.split_off_mut(..bytes.len()).expect("room for all parts").copy_from_slice(&bytes);
        }
        Some(Ok(self.groups.keep_buffer(whole)))
    }

    /// What is needed to read these sectors. Who calls holds the gate until they are read.
    fn sources(
        &self,
        core: &Core,
        inode: Inode,
        record: &InodeRecord,
        sectors: Range<u64>,
    ) -> Result<Sources, FileError> {
        let waiting = core.nodes.find(inode).map_or_else(Vec::new, |node| {
            node.waiting.range(sectors.clone()).map(|(&sector, waiting)| (sector, waiting.bytes.clone())).collect()
        });
        let windows = core.windows(inode, sectors.clone(), self.shape.data)?.into_iter().map(|window| {
            let (from, to) = (window.first.max(sectors.start), window.end().min(sectors.end));
            let part = window.position(from)..window.position(from) + (to - from) as u32;
            Ok(Source { shown: core.shown_of(inode, &window, &part, self.shape)?, window })
        });
        let windows = windows.collect::<Result<Vec<Source>, FileError>>()?;
        Ok(Sources { windows, waiting, tiny: record.tail.clone() })
    }

    /// Reads whole sectors of a file. Who calls holds the gate.
    pub(crate) fn read_sectors(&self, inode: Inode, sectors: Range<u64>, into: &mut [u8]) -> Result<(), FileError> {
        let sources = {
            let core = guard(&self.core);
            let record = core.file(inode)?;
            self.sources(&core, inode, &record, sectors.clone())?
        };
        self.read_sources(inode, &sources, sectors.start * BYTES, into)
    }

    /// Fills `into` with the bytes of a file from `offset` on.
    fn read_sources(&self, inode: Inode, sources: &Sources, offset: u64, into: &mut [u8]) -> Result<(), FileError> {
        let end = offset + into.len() as u64;
        let sectors = offset / BYTES..end.div_ceil(BYTES);
        if offset.is_multiple_of(BYTES) && into.len().is_multiple_of(SECTOR_BYTES) {
            return self.read_whole(inode, sources, sectors, into);
        }
        let bytes = (sectors.end - sectors.start) as usize * SECTOR_BYTES;
        let mut whole = aligned_buffer(bytes);
        whole.resize(bytes, 0);
        self.read_whole(inode, sources, sectors.clone(), &mut whole)?;
        let skip = (offset - sectors.start * BYTES) as usize;
        into.copy_from_slice(&whole[skip..skip + into.len()]);
        Ok(())
    }

    fn read_whole(
        &self,
        inode: Inode,
        sources: &Sources,
        sectors: Range<u64>,
        into: &mut [u8],
    ) -> Result<(), FileError> {
        let at = |sector: u64| (sector - sectors.start) as usize * SECTOR_BYTES;
        let waits = |sector: u64| sources.waiting.binary_search_by_key(&sector, |(sector, _)| *sector).is_ok();
        let mut filled = sectors.start;
        let mut lost = 0;
        for source in &sources.windows {
            let window = &source.window;
            let mut part = window.first.max(sectors.start)..window.end().min(sectors.end);
            into[at(filled)..at(part.start)].fill(0);
            filled = part.end;
            // What waits needs not be read, at least not at the borders.
            while part.start < part.end && waits(part.start) {
                part.start += 1;
            }
            while part.start < part.end && waits(part.end - 1) {
                part.end -= 1;
            }
            if part.is_empty() {
                continue;
            }
            match self.read_window(source, part.clone(), &mut into[at(part.start)..at(part.end)]) {
                Err(GroupError::Lost { .. }) => {
                    // What waits may stand for what is lost.
                    let missing: Vec<u64> = part.filter(|&sector| !waits(sector)).collect();
                    for row in clusters(&missing) {
                        match self.read_window(source, row.clone(), &mut into[at(row.start)..at(row.end)]) {
                            Err(GroupError::Lost { positions, .. }) => lost += positions.len() as u64,
                            other => other.map_err(|error| failed(&error))?,
                        }
                    }
                }
                other => other.map_err(|error| failed(&error))?,
            }
        }
        into[at(filled)..].fill(0);
        if !sources.tiny.is_empty() && sectors.start == 0 {
            into[..sources.tiny.len()].copy_from_slice(&sources.tiny);
        }
        for (sector, bytes) in &sources.waiting {
            into[at(*sector)..][..SECTOR_BYTES].copy_from_slice(bytes);
        }
        match lost {
            0 => Ok(()),
            sectors => Err(FileError::Lost { inode, sectors }),
        }
    }

    fn read_window(&self, source: &Source, part: Range<u64>, into: &mut [u8]) -> Result<(), GroupError> {
        let Source { window, shown } = source;
        let wanted = window.position(part.start)..window.position(part.start) + (part.end - part.start) as u32;
        match &window.run {
            Run::Single { place, sums, .. } => self.groups.read(*place, wanted, sums, NOTHING_CACHED, into),
            Run::Bulk { run } => {
                let wanted = u64::from(wanted.start)..wanted.end.into();
                self.groups.read_bulk(ShownRun::new(*run, shown), wanted, &|_| None, into)
            }
            Run::Promised { .. } => unreachable!("sources have data"),
        }
    }

    pub(crate) fn write_file(&self, inode: Inode, offset: u64, bytes: &[u8]) -> Result<(), FileError> {
        let end = offset.saturating_add(bytes.len() as u64);
        if end > FILE_BYTES_MAX {
            return Err(FileError::TooLarge { bytes: end, bytes_max: FILE_BYTES_MAX });
        }
        if self.write_tiny(inode, offset, bytes)? {
            return Ok(());
        }
        // What has a place, or room that is kept for it, takes little of the catalog, and was promised.
        let sectors = offset / BYTES..end.div_ceil(BYTES);
        let is_homeless = || guard(&self.core).homeless(inode, sectors, self.shape.data).map(|homeless| homeless > 0);
        if !self.has_catalog_room() && is_homeless()? {
            self.assert_catalog_room()?;
        }
        // In pieces, so that a long write does not outgrow what may wait.
        let piece_max = (self.tuning.waiting_sectors_max / 4).max(1) * BYTES;
        let mut at = offset;
        while at < end {
            let piece_end = end.min((at / BYTES * BYTES).saturating_add(piece_max));
            let piece = &bytes[(at - offset) as usize..(piece_end - offset) as usize];
            self.make_way(inode, at / BYTES..piece_end.div_ceil(BYTES))?;
            // Others may have taken the room since.
            if self.write_piece(inode, at, piece)? {
                at = piece_end;
            }
        }
        Ok(())
    }

    /// Writes into the record of a file that stays tiny, and has no sector anywhere. Returns `false` where it is no such file.
    ///
    /// # Errors
    /// [`FileError::NoSpace`] if the catalog has no room; as [`Disk::commit`].
    fn write_tiny(&self, inode: Inode, offset: u64, bytes: &[u8]) -> Result<bool, FileError> {
        let end = offset + bytes.len() as u64;
        if !is_tiny(end) || bytes.is_empty() {
            return Ok(false);
        }
        if !self.has_catalog_room() {
            // Not for one that lies elsewhere.
            if self.tiny_record(&guard(&self.core), inode, end)?.is_none() {
                return Ok(false);
            }
            self.assert_catalog_room()?;
        }
        let heavy = {
            let mut core = guard(&self.core);
            self.assert_writable(&mut core)?;
            let Some(mut record) = self.tiny_record(&core, inode, end)? else { return Ok(false) };
            record.bytes = record.bytes.max(end);
            record.tail.resize(record.bytes as usize, 0);
            record.tail[offset as usize..end as usize].copy_from_slice(bytes);
            let now = self.now();
            (record.modified, record.changed) = (now, now);
            core.set_inode(inode, &record);
            self.is_heavy(&core)
        };
        if heavy {
            unless_full(self.checkpoint(&self.lock_flusher()))?;
        }
        Ok(true)
    }

    /// The record of a file that is tiny once it is written up to `end`, and has no sector that waits, lies in a group, or has room
    /// promised.
    fn tiny_record(&self, core: &Core, inode: Inode, end: u64) -> Result<Option<InodeRecord>, FileError> {
        let record = core.file(inode)?;
        let waits = core.nodes.find(inode).is_some_and(|node| !node.waiting.is_empty() || node.held.is_some());
        if waits || !is_tiny(record.bytes.max(end)) {
            return Ok(None);
        }
        let has_windows = !core.all_windows(inode, 0..u64::MAX, self.shape.data)?.is_empty();
        Ok((!has_windows).then_some(record))
    }

    /// Puts bytes into sectors that wait; the first and the last one keep what they have beside them. `false`: there is no room for the worst
    /// placing of them, and nothing was put.
    fn write_piece(&self, inode: Inode, offset: u64, bytes: &[u8]) -> Result<bool, FileError> {
        let end = offset + bytes.len() as u64;
        let gate = self.gate(inode);
        // Whole sectors need nothing from the device, so they do not wait for who writes there.
        let is_whole = offset.is_multiple_of(BYTES) && end.is_multiple_of(BYTES);
        let _shared = (!is_whole).then(|| read_gate(&gate));
        let mut partial: Vec<(u64, Vec<u8>)> = Vec::new();
        for sector in [offset / BYTES, (end - 1) / BYTES] {
            let whole = offset <= sector * BYTES && (sector + 1) * BYTES <= end;
            if !whole && partial.last().is_none_or(|(last, _)| *last != sector) {
                let mut content = vec![0; SECTOR_BYTES];
                self.read_sectors(inode, sector..sector + 1, &mut content)?;
                partial.push((sector, content));
            }
        }
        let mut core = guard(&self.core);
        self.assert_writable(&mut core)?;
        let record = core.file(inode)?;
        if self.is_tight(&core, inode, offset / BYTES..end.div_ceil(BYTES))? {
            return Ok(false);
        }
        for sector in offset / BYTES..end.div_ceil(BYTES) {
            let from = (sector * BYTES).max(offset);
            let to = ((sector + 1) * BYTES).min(end);
            let source = &bytes[(from - offset) as usize..(to - offset) as usize];
            let content = if source.len() == SECTOR_BYTES {
                source.to_vec()
            } else {
                let read = partial.iter().find(|(read, _)| *read == sector).map(|(_, content)| content);
                let read = read.expect("the first and the last sector were read");
                // An fsync may have put it into the record.
                let tiny = first_sector_of(&record.tail).filter(|_| sector == 0);
                let mut content = newest(&mut core, inode, sector, tiny.as_ref().unwrap_or(read));
                content[(from - sector * BYTES) as usize..][..source.len()].copy_from_slice(source);
                content
            };
            core.nodes.put(inode, sector, content);
        }
        if let Some(tiny) = first_sector_of(&record.tail)
            && core.nodes.find_waiting(inode, 0).is_none()
        {
            core.nodes.put(inode, 0, tiny);
        }
        let now = self.now();
        core.set_live(inode, Live { bytes: record.bytes.max(end), modified: now, changed: now });
        Ok(true)
    }

    /// Whether there may be no room for the worst placing of these sectors, written now. Those that have a place, or room that is kept for
    /// them, need no other.
    fn is_tight(&self, core: &Core, inode: Inode, range: Range<u64>) -> Result<bool, FileError> {
        // A tiny file's bytes come along as its first sector.
        let tail = u64::from(range.start > 0 && !core.file(inode)?.tail.is_empty());
        // The sum counts what waits and is at home too, which makes others flush sooner than they need to.
        if self.is_sure_of(core, range.end - range.start + tail) {
            return Ok(false);
        }
        let homeless = core.homeless(inode, range, self.shape.data)? + tail;
        Ok(homeless > 0 && !self.is_sure_of(core, homeless))
    }

    /// Flushes until these sectors of a file may wait, and there is room for the worst placing of them ([`Disk::is_tight`]).
    fn make_way(&self, inode: Inode, range: Range<u64>) -> Result<(), FileError> {
        let sectors = range.end - range.start + 1;
        let is_tight = |core: &Core| self.is_tight(core, inode, range.clone());
        for tried in 0..MAKE_WAY_TRIES {
            let (full, tight) = {
                let mut core = guard(&self.core);
                self.assert_writable(&mut core)?;
                core.file(inode)?;
                let full = core.nodes.waiting + sectors > self.tuning.waiting_sectors_max;
                (full, is_tight(&core)?)
            };
            if !full && !tight {
                return Ok(());
            }
            if !tight && self.await_room(sectors) {
                return Ok(());
            }
            let flushing = self.lock_flusher();
            if tight && tried > 0 {
                // What cannot be flushed takes its worst in the sum below.
                let _ = self.flush_all(&flushing);
                self.checkpoint(&flushing)?;
                if is_tight(&guard(&self.core))? {
                    self.shrink_for_room(&flushing)?;
                }
                return match is_tight(&guard(&self.core))? {
                    true => Err(FileError::NoSpace),
                    false => Ok(()),
                };
            }
            let mut flushed = self.flush_in(inode, Scope::Share, &flushing);
            let is_full = || guard(&self.core).nodes.waiting + sectors > self.tuning.waiting_sectors_max;
            for scope in [Scope::Share, Scope::All] {
                if is_full() {
                    flushed = self.flush_for(inode, scope, &flushing);
                }
            }
            if is_full() {
                flushed?;
            }
        }
        Ok(())
    }

    /// While somebody flushes, waits until `sectors` more may wait. Returns whether they may now.
    fn await_room(&self, sectors: u64) -> bool {
        let is_full = |core: &Core| core.nodes.waiting + sectors > self.tuning.waiting_sectors_max;
        let core = guard(&self.core);
        let core = self.room.wait_while(core, |core| is_full(core) && core.flushing && core.failed.is_none());
        !is_full(&core.unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether so many sectors more, in two rows at most, are sure to find places beside all that wait.
    pub(crate) fn is_sure_of(&self, core: &Core, sectors: u64) -> bool {
        let worst = self.worst(core.nodes.waiting + sectors, core.nodes.clusters + 2);
        worst <= self.room(&guard(&self.space))
    }

    /// Room that `waiting` sectors in `clusters` rows may take, parity, sums and the catalog's rows included. A group that fills its gap
    /// takes no more of the room than its data, any other that and its parity; and a step of a flush ends in one of those at most.
    pub(crate) fn worst(&self, waiting: u64, clusters: u64) -> u64 {
        let groups = waiting / u64::from(self.shape.data) + clusters;
        waiting + groups * u64::from(self.shape.parity) + waiting.div_ceil(1000) + groups
    }

    /// Cuts a file, or lets it grow by a hole.
    pub(crate) fn resize(&self, inode: Inode, bytes: u64) -> Result<(), FileError> {
        if bytes > FILE_BYTES_MAX {
            return Err(FileError::TooLarge { bytes, bytes_max: FILE_BYTES_MAX });
        }
        let flushing = self.lock_flusher();
        self.admit_queued(inode, 1, &flushing)?;
        let keep = bytes.div_ceil(BYTES);
        let torn = self.flush_torn(inode, keep..u64::MAX, &flushing)?;
        let gate = self.gate(inode);
        let _alone = write_gate(&gate);
        let old = guard(&self.core).file(inode)?;
        let mut last = None;
        if bytes < old.bytes && !bytes.is_multiple_of(BYTES) {
            let mut content = vec![0; SECTOR_BYTES];
            self.read_sectors(inode, bytes / BYTES..bytes / BYTES + 1, &mut content)?;
            last = Some(content);
        }
        self.void_torn(inode, &torn)?;
        if bytes < old.bytes {
            self.drop_portions(inode, keep..u64::MAX, Dropping::Cut, &flushing)?;
        }
        let mut core = guard(&self.core);
        self.assert_writable(&mut core)?;
        // Names, attributes and a tiny content may have changed meanwhile; nothing in groups, for the gate is held.
        let mut record = core.file(inode)?;
        if bytes < old.bytes.max(record.bytes) {
            self.drop_sectors(&mut core, inode, keep..u64::MAX)?;
            record.tail.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
            // What was not read waits, or has zeros behind the end that it had.
            let waits = core.nodes.find_waiting(inode, bytes / BYTES).map(|waiting| waiting.bytes.to_vec());
            if let Some(mut content) = waits.or(last).filter(|_| !bytes.is_multiple_of(BYTES))
                && self.has_sector(&core, inode, bytes / BYTES)?
            {
                content[(bytes % BYTES) as usize..].fill(0);
                core.nodes.put(inode, bytes / BYTES, content);
                core.hold_size(inode, bytes / BYTES);
            }
        }
        let now = self.now();
        (record.bytes, record.modified, record.changed) = (bytes, now, now);
        core.set_inode(inode, &record);
        Ok(())
    }

    /// Whether a sector of a file has a place or waits for one.
    fn has_sector(&self, core: &Core, inode: Inode, sector: u64) -> Result<bool, FileError> {
        let waits = core.nodes.find(inode).is_some_and(|node| node.waiting.contains_key(&sector));
        Ok(waits || !core.windows(inode, sector..sector + 1, self.shape.data)?.is_empty())
    }

    /// Forgets sectors of a file that lie in many windows, from behind, and frees what they take, but for the last portion: that is
    /// for the caller, with what else belongs to it. Each portion is a change of its own, and a checkpoint comes as often as one is
    /// due, so no transaction frees more than a portion and what may be in memory anyway. Who calls holds the gate alone.
    ///
    /// A crash between two leaves a shorter file, a smaller hole than was asked for, or an orphan that has lost its end.
    ///
    /// # Errors
    /// As [`Core::windows`]; as [`Disk::commit`].
    pub(crate) fn drop_portions(
        &self,
        inode: Inode,
        sectors: Range<u64>,
        dropping: Dropping,
        flushing: &FlushLock<'_>,
    ) -> Result<(), FileError> {
        let mut left = sectors;
        loop {
            {
                let mut core = guard(&self.core);
                self.assert_writable(&mut core)?;
                let first = {
                    let mut rows = core.catalog.descending(Table::Runs, &Span::runs(inode, left.clone()))?;
                    match rows.nth(self.tuning.freed_windows_max.max(1) - 1).transpose()? {
                        Some((key, _)) => {
                            keys::decode_run(&key).map_err(|source| senseless(Table::Runs, &key, source))?.1
                        }
                        None => return Ok(()),
                    }
                };
                self.drop_sectors(&mut core, inode, first..left.end)?;
                match dropping {
                    Dropping::Cut => {
                        let mut record = core.file(inode)?;
                        let now = self.now();
                        (record.bytes, record.modified, record.changed) = (record.bytes.min(first * BYTES), now, now);
                        core.set_inode(inode, &record);
                    }
                    Dropping::Hole => left.end = first,
                    Dropping::Orphan => {}
                }
            }
            self.checkpoint_if_heavy(flushing)?;
        }
    }

    /// Forgets sectors of a file, and frees what they take. Who calls holds the gate alone.
    pub(crate) fn drop_sectors(&self, core: &mut Core, inode: Inode, sectors: Range<u64>) -> Result<(), FileError> {
        let end = sectors.end;
        self.drop_placed(core, inode, sectors, end)
    }

    /// The same, but those that wait from `kept` on wait on.
    fn drop_placed(&self, core: &mut Core, inode: Inode, sectors: Range<u64>, kept: u64) -> Result<(), FileError> {
        core.nodes.take_range(inode, sectors.start, kept);
        core.release_size(inode);
        core.forget_journaled(inode, sectors.clone());
        let mut space = guard(&self.space);
        core.replace(inode, sectors, None, self.shape, &mut space)
    }

    /// Makes a hole: whole sectors go, and at its borders, and where a single run would keep both ends, zeros are written.
    pub(crate) fn punch_file(&self, inode: Inode, offset: u64, bytes: u64) -> Result<(), FileError> {
        let flushing = self.lock_flusher();
        self.admit_queued(inode, PUNCHED_MAX, &flushing)?;
        let end = offset.saturating_add(bytes);
        let mut torn = self.flush_torn(inode, offset / BYTES..end.div_ceil(BYTES), &flushing)?;
        let gate = self.gate(inode);
        let _alone = write_gate(&gate);
        let size = guard(&self.core).file(inode)?.bytes;
        let end = end.min(size);
        if offset >= end {
            return Ok(());
        }
        let mut whole = offset.div_ceil(BYTES)..if end == size { end.div_ceil(BYTES) } else { end / BYTES };
        let windows = guard(&self.core).windows(inode, offset / BYTES..end.div_ceil(BYTES), self.shape.data)?;
        let within = windows.iter().any(|window| {
            let single = matches!(window.run, Run::Single { .. });
            single && window.first < whole.start && whole.end < window.end()
        });
        if within || whole.is_empty() {
            whole = end..end;
        }
        let mut zeroed = Vec::new();
        for sector in (offset / BYTES..end.div_ceil(BYTES)).filter(|sector| !whole.contains(sector)) {
            let mut content = vec![0; SECTOR_BYTES];
            self.read_sectors(inode, sector..sector + 1, &mut content)?;
            zeroed.push((sector, content));
        }
        torn.retain(|sector| whole.contains(sector));
        self.void_torn(inode, &torn)?;
        // But for the last sector, of which more is to be known.
        self.drop_portions(inode, whole.start..whole.end.min(end / BYTES), Dropping::Hole, &flushing)?;
        let mut core = guard(&self.core);
        self.assert_writable(&mut core)?;
        let mut record = core.file(inode)?;
        let last = end / BYTES;
        let behind = match core.nodes.find_waiting(inode, last) {
            // Somebody has written on behind the end that there was. What lies in groups of that sector goes.
            Some(waiting) if whole.contains(&last) && record.bytes > size => Some(waiting.clone()),
            _ => None,
        };
        if let Some(Waiting { bytes, .. }) = behind {
            // What the journal has of it stays, and it waits on.
            self.drop_placed(&mut core, inode, whole, last)?;
            zeroed.push((last, bytes.to_vec()));
        } else if !whole.is_empty() {
            self.drop_sectors(&mut core, inode, whole)?;
        }
        for (sector, content) in zeroed {
            if self.has_sector(&core, inode, sector)? {
                let mut content = newest(&mut core, inode, sector, &content);
                let start = sector * BYTES;
                content[(offset.max(start) - start) as usize..(end.min(start + BYTES) - start) as usize].fill(0);
                core.nodes.put(inode, sector, content);
                // With the hole. Within a single run there is none, and the zeros wait as any others.
                if !within {
                    core.journal_waiting(inode, [sector]);
                }
            }
        }
        let tiny_end = end.min(record.tail.len() as u64);
        if offset < tiny_end {
            record.tail[offset as usize..tiny_end as usize].fill(0);
        }
        let now = self.now();
        (record.modified, record.changed) = (now, now);
        core.set_but_size(inode, &record)
    }

    pub(crate) fn seek_file(&self, inode: Inode, offset: u64, what: Seek) -> Result<u64, FileError> {
        let core = guard(&self.core);
        let record = core.file(inode)?;
        if offset >= record.bytes {
            return Err(FileError::NothingThere);
        }
        if !record.tail.is_empty() {
            return match what {
                Seek::Data => Ok(offset),
                Seek::Hole => Ok(record.bytes),
            };
        }
        let end = record.bytes.div_ceil(BYTES);
        let mut sector = offset / BYTES;
        while sector < end {
            // A row of sectors with a place or waiting, and where the next one begins.
            let held = core.windows_around(inode, sector..sector + 1, self.shape.data)?;
            let at = |window: &&Window| window.first <= sector && sector < window.end();
            let holding = held.iter().find(|window| at(window) && !window.is_promised());
            let promised = held.iter().find(|window| at(window) && window.is_promised());
            let node = core.nodes.find(inode);
            let waits = node.is_some_and(|node| node.waiting.contains_key(&sector));
            let is_data = waits || holding.is_some();
            match (what, is_data) {
                (Seek::Data, true) | (Seek::Hole, false) => return Ok((sector * BYTES).max(offset)),
                (Seek::Hole, true) => sector = holding.map_or(sector + 1, Window::end),
                (Seek::Data, false) => {
                    let behind = held.iter().map(|window| window.first).find(|&first| first > sector);
                    let window = promised.map(Window::end).or(behind);
                    let waiting = node.and_then(|node| node.waiting.range(sector..).next()).map(|(&sector, _)| sector);
                    match window.into_iter().chain(waiting).min() {
                        Some(next) => sector = next,
                        None => break,
                    }
                }
            }
        }
        match what {
            Seek::Data => Err(FileError::NothingThere),
            Seek::Hole => Ok(record.bytes),
        }
    }

    /// Keeps room for sectors that have no place.
    pub(crate) fn allocate_file(
        &self,
        inode: Inode,
        offset: u64,
        bytes: u64,
        keep_size: bool,
    ) -> Result<(), FileError> {
        let end = offset.saturating_add(bytes);
        if end > FILE_BYTES_MAX {
            return Err(FileError::TooLarge { bytes: end, bytes_max: FILE_BYTES_MAX });
        }
        self.assert_catalog_room()?;
        let flushing = self.lock_flusher();
        self.flush_for(inode, Scope::All, &flushing)?;
        let holes = {
            let core = guard(&self.core);
            core.file(inode)?;
            self.holes(&core, inode, offset / BYTES..end.div_ceil(BYTES))?
        };
        let lacks_room = || {
            let core = guard(&self.core);
            let missing: u64 = holes.iter().map(|hole| hole.end - hole.start).sum();
            // What waits still takes its worst.
            let worst = self.worst(core.nodes.waiting + missing, core.nodes.clusters + holes.len() as u64);
            missing > 0 && worst > self.usable(&guard(&self.space))
        };
        if lacks_room() {
            self.shrink_for_room(&flushing)?;
        }
        if lacks_room() {
            return Err(FileError::NoSpace);
        }
        let promised_max = PROMISES_AT_ONCE * u64::from(self.shape.data);
        for hole in holes {
            for first in (hole.start..hole.end).step_by(promised_max as usize) {
                self.promise(inode, first..hole.end.min(first + promised_max), &flushing)?;
            }
        }
        self.note_allocated(inode, (!keep_size).then_some(end))
    }

    /// Room was kept for a file, which is so long by that, or longer.
    pub(crate) fn note_allocated(&self, inode: Inode, bytes_min: Option<u64>) -> Result<(), FileError> {
        let mut core = guard(&self.core);
        self.assert_writable(&mut core)?;
        let mut record = core.file(inode)?;
        let now = self.now();
        (record.modified, record.changed) = (now, now);
        match bytes_min.filter(|bytes| *bytes > record.bytes) {
            Some(bytes) => {
                record.bytes = bytes;
                core.set_inode(inode, &record);
                Ok(())
            }
            // What others write meanwhile has its size with it.
            None => core.set_but_size(inode, &record),
        }
    }

    /// The parts of a range of a file that have neither a place nor room that is kept for them.
    fn holes(&self, core: &Core, inode: Inode, range: Range<u64>) -> Result<Vec<Range<u64>>, FileError> {
        let (mut holes, mut at) = (Vec::new(), range.start);
        for window in core.windows_around(inode, range.clone(), self.shape.data)? {
            holes.push(at..window.first.min(range.end));
            at = at.max(window.end() + window.promised_room());
        }
        holes.push(at..range.end);
        holes.retain(|hole| !hole.is_empty());
        Ok(holes)
    }

    /// Keeps room for sectors that are a hole; on a disk whose gaps are small, in groups as small as they are.
    fn promise(&self, inode: Inode, hole: Range<u64>, flushing: &FlushLock<'_>) -> Result<(), FileError> {
        let found = match self.find_room(hole.clone()) {
            Err(FileError::NoSpace) if guard(&self.space).given_sectors() > 0 => {
                self.checkpoint(flushing)?;
                self.find_room(hole)?
            }
            found => found?,
        };
        let gate = self.gate(inode);
        let _alone = write_gate(&gate);
        let mut core = guard(&self.core);
        self.assert_writable(&mut core)?;
        let mut changes = Vec::new();
        {
            let mut space = guard(&self.space);
            for (range, _) in &found {
                space.take(*range, &mut changes);
            }
        }
        core.apply(changes);
        for (_, window) in found.iter().flat_map(|(range, windows)| windows.iter().map(move |window| (range, window))) {
            core.set_window(inode, window);
        }
        drop(core);
        self.checkpoint_if_heavy(flushing)
    }

    /// Reserves room for sectors of a file, one group of it a window, and leaves enough for what waits.
    fn find_room(&self, hole: Range<u64>) -> Result<Vec<(SectorRange, Vec<Window>)>, FileError> {
        let (k, m) = (u64::from(self.shape.data), u64::from(self.shape.parity));
        let mut found: Vec<(SectorRange, Vec<Window>)> = Vec::new();
        let mut at = hole.start;
        let mut sectors = hole.end - at;
        while at < hole.end {
            sectors = sectors.min(hole.end - at);
            if let Some(range) = self.reserve(sectors + sectors.div_ceil(k) * m) {
                let window = |first: u64| Window {
                    first: at + first,
                    sectors: k.min(sectors - first) as u32,
                    skipped: 0,
                    run: Run::Promised { first: Sector(range.first.0 + first / k * (k + m)) },
                };
                found.push((range, (0..sectors).step_by(k as usize).map(window).collect()));
                at += sectors;
            } else if sectors > k {
                sectors = (sectors / 2).next_multiple_of(k);
            } else if sectors > 1 {
                sectors /= 2;
            } else {
                break;
            }
        }
        let core = guard(&self.core);
        let mut space = guard(&self.space);
        if at < hole.end || self.worst(core.nodes.waiting, core.nodes.clusters) > self.room(&space) {
            for (range, _) in found {
                space.unreserve(range);
            }
            return Err(FileError::NoSpace);
        }
        Ok(found)
    }

    /// Sets when a file was last read, where that matters: before it was changed, or a day ago.
    pub(crate) fn touch_accessed(&self, core: &mut Core, inode: Inode, record: &InodeRecord) {
        let now = self.now();
        let recent = record.accessed > record.modified && record.accessed > record.changed;
        if !self.tuning.keeps_access_times {
            return;
        }
        if core.failed.is_some() || recent && now.seconds - record.accessed.seconds < DAY_SECONDS {
            return;
        }
        core.set_accessed(inode, now);
    }
}

fn failed(error: &GroupError) -> FileError {
    FileError::Failed { why: with_sources(error) }
}

/// A sector as it is now, that was `read` under the gate: nobody placed it in a group since, but writers of whole sectors do
/// not wait for the gate.
fn newest(core: &mut Core, inode: Inode, sector: u64, read: &[u8]) -> Vec<u8> {
    core.nodes.find_waiting(inode, sector).map_or_else(|| read.to_vec(), |waiting| waiting.bytes.to_vec())
}

/// The first sector of a file whose content lies in its record.
fn first_sector_of(tail: &[u8]) -> Option<Vec<u8>> {
    let mut sector = tail.to_vec();
    sector.resize(SECTOR_BYTES, 0);
    (!tail.is_empty()).then_some(sector)
}

/// Whether a file of this size may lie in its record.
pub(crate) fn is_tiny(bytes: u64) -> bool {
    bytes <= TINY_BYTES_MAX as u64
}

/// Sectors that a hole has zeros written in at most: at its borders, and at the end that the file had.
const PUNCHED_MAX: usize = 3;
const DAY_SECONDS: i64 = 86_400;
/// Groups for which room is found at once: 256 MiB with k = 250, in rows of a checkpoint's size.
const PROMISES_AT_ONCE: u64 = 256;
/// Other writers may take the room that a flush made; then it is flushed again, but not for ever.
const MAKE_WAY_TRIES: usize = 8;

#[cfg(test)]
mod tests;
