//! The journal: a ring of sectors with what is promised and not yet in its place.
//!
//! ```text
//! position   0 1 2 3 4 5 6 7       trimmed to entry 7; entries 7 (3 sectors) and 8 (2) count, 9 comes next;
//! sequence   8 8 5 6 6 7 7 7       5 and 6 are remains
//! ```
//!
//! Invariants:
//! 1. An entry is begun only when the one before is synced. So of all entries only the last may be torn, and one that
//!    cannot be read, but has a successor, was damaged.
//! 2. Sequences rise by 1 from entry to entry. A sector counts only for its disk, position, entry and number in it, and
//!    an entry only if its records have its checksum: what a torn entry of the same sequence left behind joins no other.
//! 3. After an error of the device nothing is appended: what it left is unknown until the journal is opened anew.
//! 4. What was replayed is durable when [`Journal::open`] returns, in all its copies, if the disk may be written. Those
//!    of the last entry may differ: then the bad ones alone are written again, for it may have been promised.
//! 5. What was not replayed is gone then: zeros are where the next entry begins. Else a torn entry could come back whole
//!    from its shadows when the next one of its sequence is torn, though much was built on its absence.
//!
//! Left out: what records mean, and when to trim.

use std::sync::Arc;

use claystone_env::{SECTOR_BYTES, Sector, SectorRange};
use claystone_group::DiskId;

use crate::change::Record;
use crate::copies::{Access, Copies, Scope};
use crate::error::{Damage, DiskError};
use crate::fields::{crc32c, put, u32_at, u64_at};
use crate::record::{parse_records, put_record, record_bytes};

/// Where an entry begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalPosition {
    /// The entry's sequence, from 1.
    pub sequence: u64,
    /// Its first sector, counted from the journal's.
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
    used: u64,
    stopped: bool,
}

impl Journal {
    /// Opens the journal in `area`, whose sectors are each counted once, and returns the entries from `from` on.
    ///
    /// # Errors
    /// [`DiskError::Damaged`] if an entry that was promised cannot be read; [`DiskError::Device`].
    ///
    /// # Panics
    /// If the area is not on the device.
    pub fn open(
        copies: Arc<Copies>,
        id: DiskId,
        area: SectorRange,
        from: JournalPosition,
    ) -> Result<(Journal, Vec<Vec<Record>>), DiskError> {
        if from.position >= area.sectors {
            return Err(Damage::JournalPosition { position: from.position, sectors: area.sectors }.into());
        }
        let mut journal = Journal { ring: Ring::new(copies, id, area), next: from, used: 0, stopped: false };
        let mut replay = Replay { next: from, used: 0, sectors: area.sectors, entry: Vec::new(), ..Replay::default() };
        journal.ring.scan(from.position, &mut |found| replay.take(found))?;
        if replay.later > replay.next.sequence {
            let JournalPosition { sequence, position } = replay.next;
            return Err(Damage::JournalEntry { sequence, position, later: replay.later }.into());
        }
        (journal.next, journal.used) = (replay.next, replay.used);
        if journal.ring.copies.access() == Access::Write {
            journal.ring.settle(journal.next, replay.entries.last(), journal.room())?;
        }
        Ok((journal, replay.entries))
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
        let (needed, room, sectors) = (entry_sectors(records), self.room(), self.ring.area.sectors);
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
        self.ring.write(self.next, records)?;
        self.ring.copies.device().sync()?;
        self.stopped = false;
        self.next =
            JournalPosition { sequence: self.next.sequence + 1, position: (self.next.position + needed) % sectors };
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
            false => match (self.next.position + self.ring.area.sectors - to.position) % self.ring.area.sectors {
                0 => self.ring.area.sectors,
                left => left,
            },
        };
        assert!(left <= self.used, "{to:?} was given up before");
        self.used = left;
    }

    /// Sectors for entries to come, each counted once.
    pub fn room(&self) -> u64 {
        self.ring.area.sectors - self.used
    }

    /// Sectors of the ring.
    pub fn sectors(&self) -> u64 {
        self.ring.area.sectors
    }

    /// Sectors with entries that count.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Where the next entry begins.
    pub fn next(&self) -> JournalPosition {
        self.next
    }
}

/// Sectors of the journal that an entry takes, each counted once.
pub fn entry_sectors(records: &[Record]) -> u64 {
    let bytes: usize = records.iter().map(record_bytes).sum();
    (ENTRY_HEADER_BYTES + bytes).div_ceil(PAYLOAD_BYTES) as u64
}

/// The sectors of the journal.
struct Ring {
    copies: Arc<Copies>,
    id: DiskId,
    area: SectorRange,
}

/// A sector of the ring that has the right checksum.
struct Found<'a> {
    sequence: u64,
    number: u32,
    payload: &'a [u8],
}

impl Ring {
    fn new(copies: Arc<Copies>, id: DiskId, area: SectorRange) -> Ring {
        let end = area.first.0.saturating_add(area.sectors.saturating_mul(copies.count()));
        assert!(area.sectors > 0 && end <= copies.device().geometry().sectors, "{area:?} is not on the device");
        Ring { copies, id, area }
    }

    fn place(&self, position: u64) -> Sector {
        Sector(self.area.first.0 + position * self.copies.count())
    }

    /// Writes an entry, in one write of the device, or in two where it goes on at the ring's begin.
    fn write(&self, at: JournalPosition, records: &[Record]) -> Result<(), DiskError> {
        let bytes = encode_entry(self.id, self.area.sectors, at, records);
        let before_end = (self.area.sectors - at.position) as usize * SECTOR_BYTES;
        let (head, wrapped) = bytes.split_at(before_end.min(bytes.len()));
        self.copies.write(self.place(at.position), head)?;
        if !wrapped.is_empty() {
            self.copies.write(self.place(0), wrapped)?;
        }
        Ok(())
    }

    /// Makes sure that the last entry is found again, in all its copies, and that no torn one is, behind it.
    fn settle(&self, next: JournalPosition, last: Option<&Vec<Record>>, room: u64) -> Result<(), DiskError> {
        if let Some(records) = last {
            let sectors = entry_sectors(records);
            let position = (next.position + self.area.sectors - sectors) % self.area.sectors;
            self.mend(JournalPosition { sequence: next.sequence - 1, position }, sectors)?;
        }
        if room > 0 {
            self.copies.write(self.place(next.position), &[0; SECTOR_BYTES])?;
        }
        Ok(self.copies.device().sync()?)
    }

    /// Mends the copies of a whole entry.
    fn mend(&self, at: JournalPosition, sectors: u64) -> Result<(), DiskError> {
        let before_end = sectors.min(self.area.sectors - at.position);
        for (position, number, sectors) in [(at.position, 0, before_end), (0, before_end, sectors - before_end)] {
            let valid = |offset: usize, bytes: &[u8]| {
                let found = parse_sector(self.id, position + offset as u64, bytes);
                found.is_some_and(|found| {
                    found.sequence == at.sequence && u64::from(found.number) == number + offset as u64
                })
            };
            let mut bytes = vec![0; sectors as usize * SECTOR_BYTES];
            self.copies.read(self.place(position), &mut bytes, Scope::Every, &valid)?;
        }
        Ok(())
    }

    /// Reads the whole ring from `from` on, and gives each of its sectors, or `None` where no copy is one.
    fn scan(
        &self,
        from: u64,
        take: &mut dyn FnMut(Option<Found<'_>>) -> Result<(), DiskError>,
    ) -> Result<(), DiskError> {
        for (begin, end) in [(from, self.area.sectors), (0, from)] {
            let mut position = begin;
            while position < end {
                let sectors = (end - position).min(SCAN_SECTORS);
                let mut bytes = vec![0; sectors as usize * SECTOR_BYTES];
                let valid =
                    |number: usize, bytes: &[u8]| parse_sector(self.id, position + number as u64, bytes).is_some();
                self.copies.read(self.place(position), &mut bytes, Scope::Every, &valid)?;
                for (position, bytes) in (position..).zip(bytes.chunks_exact(SECTOR_BYTES)) {
                    take(parse_sector(self.id, position, bytes))?;
                }
                position += sectors;
            }
        }
        Ok(())
    }
}

/// What a scan of the ring has found.
#[derive(Default)]
struct Replay {
    next: JournalPosition,
    used: u64,
    sectors: u64,
    /// Payload of the entry that is being read, and the sectors it takes, once known.
    entry: Vec<u8>,
    entries: Vec<Vec<Record>>,
    ended: bool,
    /// The highest sequence found after the end.
    later: u64,
}

impl Default for JournalPosition {
    fn default() -> JournalPosition {
        JournalPosition::FIRST
    }
}

impl Replay {
    fn take(&mut self, found: Option<Found<'_>>) -> Result<(), DiskError> {
        let read = (self.entry.len() / PAYLOAD_BYTES) as u32;
        match found {
            Some(found) if !self.ended && found.sequence == self.next.sequence && found.number == read => {
                self.entry.extend_from_slice(found.payload);
                self.complete()
            }
            found => {
                self.ended = true;
                self.later = self.later.max(found.map_or(0, |found| found.sequence));
                Ok(())
            }
        }
    }

    /// Takes the entry that is being read, if this was its last sector.
    fn complete(&mut self) -> Result<(), DiskError> {
        let JournalPosition { sequence, position } = self.next;
        let malformed = |at| Damage::JournalRecord { sequence, position, at };
        let bytes = u64_at(&self.entry, 0);
        let needed = bytes.saturating_add(ENTRY_HEADER_BYTES as u64).div_ceil(PAYLOAD_BYTES as u64);
        if needed > self.sectors - self.used {
            // Every sector has its checksum, so this was written so.
            return Err(malformed(0).into());
        }
        if ((self.entry.len() / PAYLOAD_BYTES) as u64) < needed {
            return Ok(());
        }
        let records = &self.entry[ENTRY_HEADER_BYTES..][..bytes as usize];
        if crc32c(&[records]) != u32_at(&self.entry, 8) {
            // Remains of two entries of this sequence, both torn.
            self.ended = true;
            return Ok(());
        }
        self.entries.push(parse_records(records).map_err(malformed)?);
        self.entry.clear();
        self.used += needed;
        self.next =
            JournalPosition { sequence: sequence.saturating_add(1), position: (position + needed) % self.sectors };
        Ok(())
    }
}

/// The sectors of an entry.
fn encode_entry(id: DiskId, ring_sectors: u64, at: JournalPosition, records: &[Record]) -> Vec<u8> {
    let sectors = entry_sectors(records) as usize;
    let mut payload = Vec::with_capacity(sectors * PAYLOAD_BYTES);
    payload.resize(ENTRY_HEADER_BYTES, 0);
    for record in records {
        put_record(record, &mut payload);
    }
    let bytes = payload.len() - ENTRY_HEADER_BYTES;
    let crc = crc32c(&[&payload[ENTRY_HEADER_BYTES..]]);
    put(&mut payload, 0, (bytes as u64).to_le_bytes());
    put(&mut payload, 8, crc.to_le_bytes());
    payload.resize(sectors * PAYLOAD_BYTES, 0);
    let mut encoded = Vec::with_capacity(sectors * SECTOR_BYTES);
    for (number, payload) in payload.chunks_exact(PAYLOAD_BYTES).enumerate() {
        let begin = encoded.len();
        encoded.extend_from_slice(payload);
        encoded.extend_from_slice(&at.sequence.to_le_bytes());
        encoded.extend_from_slice(&(number as u32).to_le_bytes());
        let position = (at.position + number as u64) % ring_sectors;
        let crc = crc32c(&[&encoded[begin..], &id.0, &position.to_le_bytes()]);
        encoded.extend_from_slice(&crc.to_le_bytes());
    }
    encoded
}

/// What the sector at `position` of the ring holds, if it is one of this disk and place.
fn parse_sector(id: DiskId, position: u64, bytes: &[u8]) -> Option<Found<'_>> {
    let crc = crc32c(&[&bytes[..CRC_AT], &id.0, &position.to_le_bytes()]);
    let found = Found {
        sequence: u64_at(bytes, SEQUENCE_AT),
        number: u32_at(bytes, NUMBER_AT),
        payload: &bytes[..PAYLOAD_BYTES],
    };
    (u32_at(bytes, CRC_AT) == crc).then_some(found)
}

/// Bytes of an entry in one sector.
const PAYLOAD_BYTES: usize = 4080;
const SEQUENCE_AT: usize = PAYLOAD_BYTES;
const NUMBER_AT: usize = 4088;
const CRC_AT: usize = 4092;
/// Bytes of an entry before its records: their length and checksum.
const ENTRY_HEADER_BYTES: usize = 16;
/// Sectors of one read while the ring is scanned, each counted once.
const SCAN_SECTORS: u64 = 128;

#[cfg(test)]
mod tests;
