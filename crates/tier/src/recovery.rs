//! What two logs say after a power cut: reading their headers, and deciding which records count. A bare record is as if it had a header,
//! while one that lists it can be read.
//!
//! Invariants:
//! 1. [`recover`] is a pure function of what was read. It never lets an older record count where a newer one was promised: it finds
//!    that one, or its sectors are lost, or the pair is damaged.
//! 2. A record that a mark covers and does not list never counts, nor what it does not list of one. Of two marks that cover it the later
//!    one says so.
//!
//! Left out: the payloads, but those of marks. Whoever reads a sector compares it with its checksum.

use std::collections::{BTreeMap, BTreeSet};

use claystone_env::{Device, DeviceError, Effort, SECTOR_BYTES, Sector, SectorRange, aligned_buffer};

use crate::error::Damage;
use crate::fields::crc32c;
use crate::record::{Entry, Header, Kind, epoch_of};
use crate::superblock::{Side, Superblock};

/// What reading a log found.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    /// Headers, those of bare records too, and the records' positions in the ring, as [`Ring`](crate::ring::Ring) counts them.
    pub headers: Vec<(u64, Header)>,
    /// Lists of marks that can be read, by their sequence.
    pub marks: BTreeMap<u64, Mark>,
    /// The position behind the last record.
    pub head: u64,
}

/// A mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The first sequence that it covers.
    pub from: u64,
    /// What is there of those.
    pub entries: Vec<Entry>,
}

/// Which records count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Durable and listed in a mark, by their sequence.
    pub listed: Vec<Entry>,
    /// Durable, and no mark that can be read lists them.
    pub unlisted: Vec<Entry>,
    /// Behind all marks: what of them can be read counts.
    pub unpromised: Vec<Entry>,
    /// What the next mark must cover from.
    pub from: u64,
}

/// Reads the headers of a log, and the lists of its marks.
///
/// # Errors
/// The device does not answer.
pub fn scan(device: &dyn Device, side: Side, superblock: &Superblock) -> Result<Scan, DeviceError> {
    let log = superblock.logs[side as usize];
    let tail = superblock.tails[side as usize];
    let record_sectors = u64::from(superblock.record_sectors_max) + 1;
    // Without a header, in a log that goes on.
    let gap_max = u64::from(superblock.unmarked_sectors_max) + 2 * record_sectors;
    let mut window =
        Window { device, first: log.first.0, sectors: log.sectors, at: 0, bytes: Vec::new(), failed: BTreeSet::new() };
    let mut found = Scan { head: tail, ..Scan::default() };
    let (mut position, mut gap) = (tail, 0);
    let mut above = superblock.floor;
    while position < tail + log.sectors && gap <= gap_max {
        let place = position % log.sectors;
        let sector = window.sector(place)?;
        let Some(bytes) = sector else {
            position += 1;
            continue;
        };
        let header = Header::parse(bytes, superblock.id, side, place)
            .filter(|header| header.seq >= above && place + header.sectors() <= log.sectors);
        let Some(header) = header else {
            (position, gap) = (position + 1, gap + 1);
            continue;
        };
        if let Some(mark) = read_mark(&header, &mut window)? {
            found.marks.insert(header.seq, mark);
        }
        (above, gap) = (header.seq + 1, 0);
        let end = position + header.sectors();
        for member in &header.group {
            let bare = member.header(&header);
            // They are before it, in this round of the ring or the one before.
            let back = (place + log.sectors - bare.place.min(log.sectors)) % log.sectors;
            let fits = bare.place.checked_add(bare.sectors()).is_some_and(|end| end <= log.sectors);
            if let Some(at) = position.checked_sub(back)
                && (fits && back >= bare.sectors() && bare.seq >= superblock.floor && at >= tail)
            {
                found.headers.push((at, bare));
            }
        }
        found.headers.push((position, header));
        found.head = end;
        position = end;
    }
    Ok(found)
}

fn read_mark(header: &Header, window: &mut Window<'_>) -> Result<Option<Mark>, DeviceError> {
    let Some(list) = &header.list else { return Ok(None) };
    let bytes = match &list.inline {
        Some(inline) => inline.clone(),
        None => {
            let mut bytes = Vec::with_capacity(header.crcs.len() * SECTOR_BYTES);
            for (place, crc) in (header.place + 1..).zip(&header.crcs) {
                match window.sector(place)? {
                    Some(sector) if crc32c(sector) == *crc => bytes.extend_from_slice(sector),
                    Some(_) | None => return Ok(None),
                }
            }
            bytes.truncate(list.bytes as usize);
            bytes
        }
    };
    Ok(Entry::parse_all(&bytes).map(|entries| Mark { from: list.from, entries }))
}

/// Part of a log in memory.
struct Window<'a> {
    device: &'a dyn Device,
    first: u64,
    sectors: u64,
    /// The place of the first sector in memory.
    at: u64,
    bytes: Vec<u8>,
    failed: BTreeSet<u64>,
}

impl Window<'_> {
    /// The content of a place; `None`: it cannot be read.
    fn sector(&mut self, place: u64) -> Result<Option<&[u8]>, DeviceError> {
        let held = (self.bytes.len() / SECTOR_BYTES) as u64;
        if place < self.at || place >= self.at + held {
            let sectors = WINDOW_SECTORS.min(self.sectors - place);
            let mut bytes = aligned_buffer(sectors as usize * SECTOR_BYTES);
            bytes.resize(sectors as usize * SECTOR_BYTES, 0);
            let failed = self.device.read(Sector(self.first + place), &mut bytes, Effort::Retry)?;
            self.failed = failed.iter().map(|failed| failed.sector.0 - self.first).collect();
            self.at = place;
            self.bytes = bytes.to_vec();
        }
        let at = (place - self.at) as usize * SECTOR_BYTES;
        Ok((!self.failed.contains(&place)).then(|| &self.bytes[at..at + SECTOR_BYTES]))
    }
}

/// 64 KiB: headers of short records are near each other, and payloads of long ones need not be read.
const WINDOW_SECTORS: u64 = 16;

/// Decides which records count.
///
/// # Errors
/// Something is missing that was promised, and nothing tells what.
pub fn recover(superblock: &Superblock, scans: &[&Scan]) -> Result<Recovered, Damage> {
    let floor = superblock.floor;
    let mut headers: BTreeMap<u64, &Header> = BTreeMap::new();
    let mut marks: BTreeMap<u64, &Mark> = BTreeMap::new();
    for scan in scans {
        headers.extend(scan.headers.iter().map(|(_, header)| (header.seq, header)));
        marks.extend(scan.marks.iter().map(|(seq, mark)| (*seq, mark)));
    }
    if let Some(later) = headers.values().find(|header| header.generation > superblock.generation) {
        return Err(Damage::Superblock { found: later.generation, known: superblock.generation });
    }
    let mut recovered = Recovered { from: floor, ..Recovered::default() };
    // Sequences of marks that were durable, whether they can be read or not.
    let mut known: BTreeSet<u64> = headers.values().map(|header| header.mark).collect();
    known.extend(marks.values().filter_map(|mark| mark.from.checked_sub(1)));
    let confirmed = known.last().copied().filter(|seq| *seq >= floor);
    let mut listed: BTreeMap<(u64, u32), Entry> = BTreeMap::new();
    for (seq, mark) in &marks {
        if mark.from > recovered.from {
            recovered.unlisted.extend(taken_by_headers(recovered.from..mark.from, &headers, &known)?);
        }
        // A mark of an opening may cover what one before it does, which could not be read then: what the opening decided counts.
        let is_before = |of: u64| of < mark.from || of > *seq;
        listed.retain(|(of, _), _| is_before(*of));
        recovered.unlisted.retain(|entry| is_before(entry.seq));
        let entries = mark.entries.iter().filter(|entry| entry.seq >= floor);
        listed.extend(entries.map(|entry| ((entry.seq, entry.at), entry.clone())));
        recovered.from = recovered.from.max(seq + 1);
    }
    if let Some(confirmed) = confirmed
        && confirmed >= recovered.from
    {
        recovered.unlisted.extend(taken_by_headers(recovered.from..confirmed + 1, &headers, &known)?);
        recovered.from = confirmed + 1;
    }
    recovered.listed = listed.into_values().collect();
    let behind = headers.range(recovered.from..).map(|(_, header)| *header);
    recovered.unpromised = behind.filter(|header| counts(header.kind)).map(Entry::of).collect();
    Ok(recovered)
}

/// The records of a range whose mark is lost.
fn taken_by_headers(
    range: std::ops::Range<u64>,
    headers: &BTreeMap<u64, &Header>,
    known: &BTreeSet<u64>,
) -> Result<Vec<Entry>, Damage> {
    let mut taken = Vec::new();
    if epoch_of(range.start) != epoch_of(range.end - 1) {
        return Err(Damage::Missing { seq: range.start });
    }
    // What stands for them is of a later sequence, and there.
    let replaced: BTreeSet<u64> = headers.values().map(|header| header.replaces).collect();
    let paddings = headers.values().filter(|header| header.kind == Kind::Void).flat_map(|header| &header.extents);
    let paddings: Vec<&SectorRange> = paddings.collect();
    let is_padding = |seq: u64| paddings.iter().any(|range| (range.first.0..range.end().0).contains(&seq));
    for seq in range {
        match headers.get(&seq) {
            _ if replaced.contains(&seq) || is_padding(seq) => {}
            Some(header) if counts(header.kind) => taken.push(Entry::of(header)),
            Some(_) => {}
            None if known.contains(&seq) => {}
            None => return Err(Damage::Missing { seq }),
        }
    }
    Ok(taken)
}

fn counts(kind: Kind) -> bool {
    matches!(kind, Kind::Data | Kind::Bare | Kind::Void | Kind::Lost)
}

#[cfg(test)]
mod tests;
