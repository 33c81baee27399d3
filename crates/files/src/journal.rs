//! The journal: a ring of sectors with what is promised and not yet in its place.
//!
//! ```text
//! position   0 1 2 3 4 5 6 7       trimmed to entry 7; entries 7 (3 positions) and 8 (2) count, 9 comes next;
//! sequence   8 8 5 6 6 7 7 7       5 and 6 are remains
//! ```
//!
//! Invariants:
//! 1. An entry is begun only when the one before is synced. So of all entries only the last may be torn, and one that
//!    cannot be read, but has a successor, was damaged.
//! 2. Sequences rise by 1 from entry to entry. An entry counts only whole, out of sectors of one attempt at it (see
//!    `entry`), and if its records have its checksum.
//! 3. After an error of the device nothing is appended: what it left is unknown until the journal is opened anew.
//! 4. What was replayed is durable when [`Journal::open`] returns, in all its cells, if the disk may be written. Those
//!    of the last entry may be bad in part: then the bad ones alone are written again, for it may have been promised.
//! 5. What cannot be read where the next entry would begin is the end, for a power cut may leave it so, but not where the device
//!    knows that it has lost what was promised there ([`claystone_env::Device::has_lost`]): that may have been an entry. What reads there as anything
//!    else shows that it was none.
//! 6. What was not replayed is gone then: more zeros than parity makes good are where the next entry begins, and that is
//!    another attempt, after which no earlier one counts. Else a torn entry could come back whole later, though much was
//!    built on its absence.
//!
//! Left out: what records mean, and when to trim.

mod entry;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use claystone_env::{DeviceError, Effort, FailedSector, SECTOR_BYTES, Sector, SectorRange, aligned_buffer};
use claystone_group::{DiskId, GroupCode};

use self::entry::{Head, Layout, PAYLOAD_BYTES, Place};
use crate::change::Record;
use crate::copies::{Access, Copies, soft};
use crate::error::{Damage, DiskError};
use crate::fields::{crc32c, put, u32_at, u64_at};
use crate::record::{parse_records, put_record, record_bytes};

pub use self::entry::RingShape;

/// Where an entry begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalPosition {
    /// The entry's sequence, from 1.
    pub sequence: u64,
    /// Its first position in the ring.
    pub position: u64,
}

impl JournalPosition {
    /// Where the first entry of a new disk begins.
    pub const FIRST: JournalPosition = JournalPosition { sequence: 1, position: 0 };
}

/// The journal of an open disk.
pub struct Journal {
    ring: Ring,
    next: JournalPosition,
    attempt: u32,
    used: u64,
    stopped: bool,
}

impl Journal {
    /// Opens the journal in `area`, whose positions take m' sectors each, and returns the entries from `from` on. Long ones
    /// are kept under `code`, that of the disk's groups.
    ///
    /// # Errors
    /// [`DiskError::Damaged`] if an entry that was promised cannot be read, or may be one; [`DiskError::Device`].
    ///
    /// # Panics
    /// If the area is not on the device.
    pub fn open(
        copies: Arc<Copies>,
        code: GroupCode,
        id: DiskId,
        area: SectorRange,
        from: JournalPosition,
    ) -> Result<(Journal, Vec<Vec<Record>>), DiskError> {
        if from.position >= area.sectors {
            return Err(Damage::JournalPosition { position: from.position, sectors: area.sectors }.into());
        }
        let ring = Ring::new(copies, code, id, area);
        let mut seen = ring.look()?;
        let (mut next, mut used, mut entries) = (from, 0, Vec::new());
        while let Some((layout, payload)) = ring.replay(&mut seen, next, area.sectors - used)? {
            let malformed = |at| Damage::JournalRecord { sequence: next.sequence, position: next.position, at };
            entries.push(parse_records(records_in(&payload).ok_or(malformed(0))?).map_err(malformed)?);
            used += layout.positions;
            next = ring.behind(next, layout.positions);
        }
        if seen.latest > next.sequence {
            let JournalPosition { sequence, position } = next;
            return Err(Damage::JournalEntry { sequence, position, later: seen.latest }.into());
        }
        if used < area.sectors && ring.may_have_lost(&seen, next)? {
            let JournalPosition { sequence, position } = next;
            return Err(Damage::JournalLost { sequence, position }.into());
        }
        let journal = Journal { attempt: seen.attempts_at(next.sequence), ring, next, used, stopped: false };
        if journal.ring.copies.access() == Access::Write {
            journal.settle()?;
            journal.clear(seen.lost)?;
        }
        Ok((journal, entries))
    }

    /// Writes an entry, and makes it durable. Returns where the next one begins.
    ///
    /// # Errors
    /// [`DiskError::JournalFull`] and [`DiskError::EntryTooLarge`], and nothing happened; [`DiskError::Device`], and the
    /// entry may be found or not; after that always [`DiskError::Stopped`].
    ///
    /// # Panics
    /// If `records` is empty, a record is malformed, or the disk is only looked at.
    pub fn append(&mut self, records: &[Record]) -> Result<JournalPosition, DiskError> {
        assert!(!records.is_empty(), "an entry has a record");
        let (needed, room, sectors) = (self.positions_of(records), self.room(), self.sectors());
        if self.stopped {
            return Err(DiskError::Stopped);
        }
        if needed > sectors {
            return Err(DiskError::EntryTooLarge { needed, sectors });
        }
        if needed > room {
            return Err(DiskError::JournalFull { needed, room });
        }
        self.stopped = true;
        self.ring.write(Place { at: self.next, attempt: self.attempt }, records)?;
        self.ring.copies.device().sync()?;
        self.stopped = false;
        self.next = self.ring.behind(self.next, needed);
        self.used += needed;
        Ok(self.next)
    }

    /// Gives up the entries before `to`, whose records are elsewhere by now.
    ///
    /// # Panics
    /// If `to` is not where an entry begins that counts, or the next one.
    pub fn trim(&mut self, to: JournalPosition) {
        assert!(to.sequence <= self.next.sequence, "{to:?} comes after {:?}", self.next);
        let left = match to == self.next {
            true => 0,
            // A full ring begins where it ends.
            false => match (self.next.position + self.sectors() - to.position) % self.sectors() {
                0 => self.sectors(),
                left => left,
            },
        };
        assert!(left <= self.used, "{to:?} was given up before");
        self.used = left;
    }

    /// Positions that an entry takes.
    pub fn positions_of(&self, records: &[Record]) -> u64 {
        let bytes: usize = records.iter().map(record_bytes).sum();
        self.ring.shape.layout((ENTRY_HEADER_BYTES + bytes).div_ceil(PAYLOAD_BYTES) as u64).positions
    }

    /// Positions for entries to come.
    pub fn room(&self) -> u64 {
        self.sectors() - self.used
    }

    /// Positions of the ring.
    pub fn sectors(&self) -> u64 {
        self.ring.shape.positions
    }

    /// How its entries lie.
    pub fn shape(&self) -> &RingShape {
        &self.ring.shape
    }

    /// Positions with entries that count.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Where the next entry begins.
    pub fn next(&self) -> JournalPosition {
        self.next
    }

    /// Writes zeros where nothing counts and nothing can be read, so that no opening has to ask whether it was an entry. For
    /// a device that lost some of what it held.
    ///
    /// # Errors
    /// [`DiskError::Device`]; after that always [`DiskError::Stopped`].
    ///
    /// # Panics
    /// If the disk is only looked at.
    pub fn clear_lost(&mut self) -> Result<(), DiskError> {
        if self.stopped {
            return Err(DiskError::Stopped);
        }
        self.stopped = true;
        let mut lost = BTreeSet::new();
        for cell in self.ring.look()?.unread {
            if self.ring.retry(cell)?.is_none() {
                lost.insert(cell);
            }
        }
        self.clear(lost)?;
        self.stopped = false;
        Ok(())
    }

    /// Writes zeros into those of these cells that are free.
    fn clear(&self, mut cells: BTreeSet<u64>) -> Result<(), DiskError> {
        let shape = &self.ring.shape;
        let (first, free) = (self.next.position * shape.copies, self.room() * shape.copies);
        cells.retain(|cell| (cell + shape.cells() - first) % shape.cells() < free);
        for cell in &cells {
            self.ring.copies.device().write(self.ring.place(*cell), &[0; SECTOR_BYTES])?;
        }
        match cells.is_empty() {
            true => Ok(()),
            false => Ok(self.ring.copies.device().sync()?),
        }
    }

    /// Makes sure that no torn entry is found behind the last, and that what was mended stays.
    fn settle(&self) -> Result<(), DiskError> {
        let shape = &self.ring.shape;
        let first = self.next.position * shape.copies;
        let cells = shape.copies.max(u64::from(shape.code.shape().parity) + 1).min(self.room() * shape.copies);
        for cell in (first..first + cells).map(|cell| cell % shape.cells()) {
            self.ring.copies.device().write(self.ring.place(cell), &[0; SECTOR_BYTES])?;
        }
        Ok(self.ring.copies.device().sync()?)
    }
}

/// The sectors of the journal.
struct Ring {
    copies: Arc<Copies>,
    shape: RingShape,
    first: Sector,
}

/// What a look at the whole ring has found.
#[derive(Default)]
struct Seen {
    /// Of each entry, by the cell in which it begins and its sequence, the last attempt at it and its sectors: only that one
    /// may have been promised.
    attempts: BTreeMap<(u64, u64), (u32, u32)>,
    /// The highest sequence.
    latest: u64,
    /// Slots that did not read at once,
    unread: BTreeSet<u64>,
    /// and those that no retry reads.
    lost: BTreeSet<u64>,
}

impl Seen {
    fn take(&mut self, shape: &RingShape, cell: u64, bytes: &[u8]) {
        let Some(head @ Head { sequence, sectors, attempt, .. }) = shape.parse(cell, bytes) else { return };
        if let Some(begin) = shape.begin(cell, head) {
            self.latest = self.latest.max(sequence);
            let last = self.attempts.entry((begin, sequence)).or_insert((attempt, sectors));
            *last = (*last).max((attempt, sectors));
        }
    }

    /// How many attempts there may have been at an entry.
    fn attempts_at(&self, sequence: u64) -> u32 {
        let of_it = self.attempts.iter().filter(|((_, of), _)| *of == sequence);
        of_it.map(|(_, (attempt, _))| attempt.saturating_add(1)).max().unwrap_or(0)
    }
}

impl Ring {
    fn new(copies: Arc<Copies>, code: GroupCode, id: DiskId, area: SectorRange) -> Ring {
        let shape = RingShape { positions: area.sectors, copies: copies.count(), code, id };
        let end = area.first.0.saturating_add(area.sectors.saturating_mul(copies.count()));
        assert!(area.sectors > 0 && end <= copies.device().geometry().sectors, "{area:?} is not on the device");
        Ring { copies, shape, first: area.first }
    }

    fn place(&self, cell: u64) -> Sector {
        Sector(self.first.0 + cell)
    }

    /// Where what comes behind an entry begins.
    fn behind(&self, at: JournalPosition, positions: u64) -> JournalPosition {
        JournalPosition {
            sequence: at.sequence.saturating_add(1),
            position: (at.position + positions) % self.shape.positions,
        }
    }

    /// Writes an entry, in one write of the device, or in two where it goes on at the ring's begin.
    fn write(&self, place: Place, records: &[Record]) -> Result<(), DiskError> {
        assert!(self.copies.access() == Access::Write, "a disk that is only looked at is not written");
        let encoded = self.shape.encode(place, &payload_of(records));
        let first = place.at.position * self.shape.copies;
        let before_end = (self.shape.cells() - first) as usize * SECTOR_BYTES;
        let (head, wrapped) = encoded.split_at(before_end.min(encoded.len()));
        self.copies.device().write(self.place(first), head)?;
        if !wrapped.is_empty() {
            self.copies.device().write(self.place(0), wrapped)?;
        }
        Ok(())
    }

    /// Looks at every cell of the ring.
    fn look(&self) -> Result<Seen, DiskError> {
        let mut seen = Seen::default();
        let mut cell = 0;
        while cell < self.shape.cells() {
            let cells = (self.shape.cells() - cell).min(LOOK_CELLS);
            let (bytes, failed) = self.read(cell, cells)?;
            let unread = self.unread(cell, &failed);
            for (behind, bytes) in (0..).zip(bytes.chunks_exact(SECTOR_BYTES)) {
                match unread.contains(&behind) {
                    true => drop(seen.unread.insert(cell + behind)),
                    false => seen.take(&self.shape, cell + behind, bytes),
                }
            }
            cell += cells;
        }
        Ok(seen)
    }

    /// The entry at a place and its payload, if it is there whole and finds room in so many positions.
    fn replay(&self, seen: &mut Seen, at: JournalPosition, room: u64) -> Result<Option<(Layout, Vec<u8>)>, DiskError> {
        let begin = at.position * self.shape.copies;
        loop {
            if let Some(&(attempt, sectors)) = seen.attempts.get(&(begin, at.sequence)) {
                let layout = self.shape.layout(sectors.into());
                let payload = match layout.positions <= room {
                    true => self.read_entry(Place { at, attempt }, layout)?,
                    false => None,
                };
                if let Some(payload) = payload {
                    return Ok(Some((layout, payload)));
                }
            }
            // It is the end only if nothing else is there.
            if seen.unread.is_empty() {
                return Ok(None);
            }
            for cell in std::mem::take(&mut seen.unread) {
                match self.retry(cell)? {
                    Some(bytes) => seen.take(&self.shape, cell, &bytes),
                    None => drop(seen.lost.insert(cell)),
                }
            }
        }
    }

    /// Whether the entry at a place, which was not replayed, may have been promised and lost: nothing that reads where its
    /// sectors would be is anything else, and some of it does not read, because the device has lost it. All cells of the ring were
    /// retried.
    fn may_have_lost(&self, seen: &Seen, at: JournalPosition) -> Result<bool, DiskError> {
        let begin = at.position * self.shape.copies;
        // However long it was, its first sectors were there.
        let begins = (0..self.shape.sure_cells()).map(|behind| (begin + behind) % self.shape.cells());
        let is_known = |cell: u64| self.copies.device().has_lost(SectorRange { first: self.place(cell), sectors: 1 });
        if begins.clone().all(|cell| seen.lost.contains(&cell)) && begins.clone().any(is_known) {
            return Ok(true);
        }
        let Some(&(attempt, sectors)) = seen.attempts.get(&(begin, at.sequence)) else { return Ok(false) };
        let head = Head { sequence: at.sequence, number: 0, sectors, attempt };
        let mut some_lost = false;
        for (number, cell) in self.shape.sector_cells(self.shape.layout(sectors.into()), at) {
            if seen.lost.contains(&cell) {
                some_lost |= is_known(cell);
                continue;
            }
            let found = self.retry(cell)?.and_then(|bytes| self.shape.parse(cell, &bytes));
            if found != Some(Head { number, ..head }) {
                return Ok(false);
            }
        }
        Ok(some_lost)
    }

    /// The payload of an entry, if it is there whole. What is bad of it is written again.
    fn read_entry(&self, place: Place, layout: Layout) -> Result<Option<Vec<u8>>, DiskError> {
        let first = place.at.position * self.shape.copies;
        let cells = layout.positions * self.shape.copies;
        let before_end = cells.min(self.shape.cells() - first);
        let (mut bytes, failed) = self.read(first, before_end)?;
        let (mut unread, mut avoided) = (self.unread(first, &failed), soft(&failed));
        if cells > before_end {
            let (wrapped, failed) = self.read(0, cells - before_end)?;
            bytes.unsplit(wrapped);
            unread.extend(self.unread(0, &failed).into_iter().map(|behind| before_end + behind));
            avoided += soft(&failed);
        }
        let mut payload = self.shape.decode(place, layout, &bytes, &unread);
        if payload.is_none() && !unread.is_empty() {
            avoided = 0;
            let mut still = BTreeSet::new();
            for behind in unread {
                match self.retry((first + behind) % self.shape.cells())? {
                    Some(read) => bytes[behind as usize * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(&read),
                    None => drop(still.insert(behind)),
                }
            }
            unread = still;
            payload = self.shape.decode(place, layout, &bytes, &unread);
        }
        let records = payload.as_deref().and_then(records_in);
        if let (Some(payload), Some(records)) = (&payload, records)
            && crc32c(&[records]) != u32_at(payload, RECORDS_CRC_AT)
        {
            return Ok(None);
        }
        if payload.is_some() {
            self.copies.count_avoided(avoided);
        }
        if let (Some(payload), Some(_), Access::Write) = (&payload, records, self.copies.access()) {
            let whole = self.shape.encode(place, payload);
            let sectors = whole.chunks_exact(SECTOR_BYTES).zip(bytes.chunks_exact(SECTOR_BYTES));
            for (behind, (right, read)) in (0..).zip(sectors) {
                if right != read || unread.contains(&behind) {
                    self.copies.write_again(self.place((first + behind) % self.shape.cells()), right);
                }
            }
        }
        Ok(payload)
    }

    /// Reads cells that do not go around the ring, at once or not at all. Returns which were not.
    fn read(&self, cell: u64, cells: u64) -> Result<(BytesMut, Vec<FailedSector>), DeviceError> {
        let mut bytes = aligned_buffer(cells as usize * SECTOR_BYTES);
        bytes.resize(cells as usize * SECTOR_BYTES, 0);
        let failed = self.copies.fetch(self.place(cell), &mut bytes, Effort::FailFast)?;
        Ok((bytes, failed))
    }

    /// These cells, counted from `first`.
    fn unread(&self, first: u64, failed: &[FailedSector]) -> BTreeSet<u64> {
        failed.iter().map(|failed| failed.sector.0 - self.place(first).0).collect()
    }

    /// Reads a cell by retrying.
    fn retry(&self, cell: u64) -> Result<Option<Bytes>, DeviceError> {
        let mut bytes = aligned_buffer(SECTOR_BYTES);
        bytes.resize(SECTOR_BYTES, 0);
        let read = self.copies.fetch(self.place(cell), &mut bytes, Effort::Retry)?.is_empty();
        Ok(read.then(|| bytes.freeze()))
    }
}

/// What the sectors of an entry hold.
fn payload_of(records: &[Record]) -> Vec<u8> {
    let bytes: usize = records.iter().map(record_bytes).sum();
    let mut payload = Vec::with_capacity((ENTRY_HEADER_BYTES + bytes).next_multiple_of(PAYLOAD_BYTES));
    payload.resize(ENTRY_HEADER_BYTES, 0);
    for record in records {
        put_record(record, &mut payload);
    }
    let crc = crc32c(&[&payload[ENTRY_HEADER_BYTES..]]);
    put(&mut payload, 0, (bytes as u64).to_le_bytes());
    put(&mut payload, RECORDS_CRC_AT, crc.to_le_bytes());
    payload.resize(payload.len().next_multiple_of(PAYLOAD_BYTES), 0);
    payload
}

/// The bytes of an entry's records, `None` if it says that they take more or less than its sectors.
fn records_in(payload: &[u8]) -> Option<&[u8]> {
    let end = usize::try_from(u64_at(payload, 0)).ok()?.checked_add(ENTRY_HEADER_BYTES)?;
    let fits = end <= payload.len() && end.next_multiple_of(PAYLOAD_BYTES) == payload.len();
    fits.then(|| &payload[ENTRY_HEADER_BYTES..end])
}

/// Bytes of an entry before its records: their length, their checksum, and zeros.
const ENTRY_HEADER_BYTES: usize = 16;
const RECORDS_CRC_AT: usize = 8;
/// Slots of one read while the ring is looked at.
const LOOK_CELLS: u64 = 256;

#[cfg(test)]
mod tests;
