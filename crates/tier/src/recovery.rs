//! What two logs say after a power cut: reading indexes, and the headers behind what those have; and deciding which records count. A bare record
//! is as if it had a header, while one that lists it can be read.
//!
//! ```text
//! read_indexes -> Some(Indexed): it is as one mark of all that it has -> Start behind its last record in each log  -> scan, scan -> recover
//!              -> None: there is none, or part of it does not read    -> Start at the tails: all of both logs      -> scan, scan -> recover
//! ```
//!
//! Invariants:
//! 1. [`recover`] is a pure function of what was read. It never lets an older record count where a newer one was promised: it finds
//!    that one, or its sectors are lost, or the pair is damaged.
//! 2. A record that a mark covers and does not list never counts, nor what it does not list of one. Of two marks that cover it the later
//!    one says so.
//! 3. Indexes hide nothing: what both logs hold above the last sequence that they have lies behind the last record that they have. And they
//!    add nothing: marks list all that counts of what they have, and a reading of the whole logs finds the same.
//!
//! Left out: the payloads, but those of marks. Whoever reads a sector compares it with its checksum.

use std::collections::{BTreeMap, BTreeSet};

use claystone_env::{Device, DeviceError, Effort, SECTOR_BYTES, Sector, SectorRange, aligned_buffer};

use crate::error::Damage;
use crate::fields::crc32c;
use crate::index::{Index, IndexAt, Item};
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
    /// Sectors behind it that do not read.
    pub unread: u64,
    /// Sectors of the log that were looked at.
    pub read: u64,
}

/// Where a log is read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// The position.
    pub position: u64,
    /// No record from there on has a lower sequence.
    pub above: u64,
}

impl Start {
    /// All that is above the floor.
    pub fn whole(superblock: &Superblock) -> [Start; 2] {
        superblock.tails.map(|position| Start { position, above: superblock.floor })
    }
}

/// What the indexes of a pair have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Indexed {
    /// The last sequence that they are of.
    pub to: u64,
    /// Records from the floor on, and their positions.
    pub items: Vec<(u64, Item)>,
    /// Where the logs are read from: behind the last of these records in each.
    pub starts: [Start; 2],
    /// Sectors that the indexes take.
    pub read: u64,
}

impl Indexed {
    /// Takes from the items what counts of their records: as a mark says it, and its sequence.
    pub fn take_mark(&mut self, floor: u64) -> (u64, Mark) {
        let entries = self.items.iter_mut().flat_map(|(_, item)| std::mem::take(&mut item.entries));
        (self.to, Mark { from: floor, entries: entries.collect() })
    }
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

/// Reads the indexes of a pair. `None`: the superblock names none, or one of them is not what it must be, or they do not reach the floor.
///
/// # Errors
/// The device does not answer.
pub fn read_indexes(ssd: &dyn Device, superblock: &Superblock) -> Result<Option<Indexed>, DeviceError> {
    let mut window = Window::new(ssd, superblock.logs[Side::Ssd as usize]);
    let mut indexes: Vec<Index> = Vec::new();
    let (mut next, mut read) = (superblock.index, 0);
    while let Some(at) = next {
        let Some((index, sectors)) = read_index(at, superblock, &mut window)? else { return Ok(None) };
        let is_before = indexes.last().is_none_or(|behind| index.to + 1 == behind.from);
        if !is_before || index.to < superblock.floor {
            return Ok(None);
        }
        read += sectors;
        next = index.before.filter(|_| index.from > superblock.floor);
        indexes.push(index);
    }
    let reaches = indexes.last().is_some_and(|first| first.from <= superblock.floor);
    Ok(if reaches { indexed(superblock, indexes, read) } else { None })
}

/// An index, and its sectors.
fn read_index(
    at: IndexAt,
    superblock: &Superblock,
    window: &mut Window<'_>,
) -> Result<Option<(Index, u64)>, DeviceError> {
    if at.place >= window.sectors {
        return Ok(None);
    }
    let sector = window.sector(at.place)?;
    let header = sector.and_then(|sector| Header::parse(sector, superblock.id, Side::Ssd, at.place));
    let header = header.filter(|header| (header.kind, header.seq) == (Kind::Index, at.seq));
    let Some(header) = header.filter(|header| at.place + header.sectors() <= window.sectors) else { return Ok(None) };
    let from = header.list.as_ref().map_or(0, |list| list.from);
    let payload = read_list(&header, window)?;
    let index = payload.and_then(|payload| Index::parse(&payload, from, at.seq));
    Ok(index.map(|index| (index, header.sectors())))
}

/// All of a chain of them, the newest first; `None`: what they have cannot be in these logs.
fn indexed(superblock: &Superblock, indexes: Vec<Index>, read: u64) -> Option<Indexed> {
    let to = indexes.first()?.to;
    let mut starts = superblock.tails.map(|position| Start { position, above: to + 1 });
    let mut items = Vec::new();
    for item in indexes.into_iter().rev().flat_map(|index| index.items).filter(|item| item.seq >= superblock.floor) {
        let (tail, ring) = (superblock.tails[item.side as usize], superblock.logs[item.side as usize].sectors);
        if item.place.checked_add(item.sectors()).is_none_or(|end| end > ring) {
            return None;
        }
        let position = position_of(item.place, tail, ring);
        let start = &mut starts[item.side as usize].position;
        // In their order they follow each other, once round at most.
        if position < *start || position + item.sectors() > tail + ring {
            return None;
        }
        *start = position + item.sectors();
        items.push((position, item));
    }
    Some(Indexed { to, items, starts, read })
}

/// Sectors without a header in a log that goes on, at most: what a power cut may have torn, an index, and a mark.
fn gap_max(superblock: &Superblock) -> u64 {
    u64::from(superblock.unmarked_sectors_max) + 2 * (u64::from(superblock.record_sectors_max) + 1)
}

/// The position of a place in a ring whose tail is at this position, in its first round.
pub fn position_of(place: u64, tail: u64, ring: u64) -> u64 {
    tail + (place + ring - tail) % ring
}

/// Reads the headers of a log from a start on, and the lists of its marks.
///
/// # Errors
/// The device does not answer.
pub fn scan(device: &dyn Device, side: Side, superblock: &Superblock, start: Start) -> Result<Scan, DeviceError> {
    let log = superblock.logs[side as usize];
    let tail = superblock.tails[side as usize];
    let gap_max = gap_max(superblock);
    let mut window = Window::new(device, log);
    let mut found = Scan { head: start.position, ..Scan::default() };
    let (mut position, mut gap) = (start.position, 0);
    let mut above = start.above;
    while position < tail + log.sectors && gap <= gap_max {
        let place = position % log.sectors;
        let sector = window.sector(place)?;
        let Some(bytes) = sector else {
            (position, found.unread) = (position + 1, found.unread + 1);
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
                && (fits && back >= bare.sectors() && bare.seq >= start.above && at >= start.position)
            {
                found.headers.push((at, bare));
            }
        }
        found.headers.push((position, header));
        (found.head, found.unread) = (end, 0);
        position = end;
    }
    found.read = position - start.position;
    Ok(found)
}

fn read_mark(header: &Header, window: &mut Window<'_>) -> Result<Option<Mark>, DeviceError> {
    let Some(from) = header.list.as_ref().filter(|_| header.kind == Kind::Mark).map(|list| list.from) else {
        return Ok(None);
    };
    let entries = read_list(header, window)?.and_then(|list| Entry::parse_all(&list));
    Ok(entries.map(|entries| Mark { from, entries }))
}

/// The list of a mark or an index; `None`: it has none, or it cannot be read.
fn read_list(header: &Header, window: &mut Window<'_>) -> Result<Option<Vec<u8>>, DeviceError> {
    let Some(list) = &header.list else { return Ok(None) };
    match &list.inline {
        Some(inline) => Ok(Some(inline.clone())),
        None => {
            let mut bytes = Vec::with_capacity(header.crcs.len() * SECTOR_BYTES);
            for (place, crc) in (header.place + 1..).zip(&header.crcs) {
                match window.sector(place)? {
                    Some(sector) if crc32c(sector) == *crc => bytes.extend_from_slice(sector),
                    Some(_) | None => return Ok(None),
                }
            }
            bytes.truncate(list.bytes as usize);
            Ok(Some(bytes))
        }
    }
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

impl<'a> Window<'a> {
    fn new(device: &'a dyn Device, log: SectorRange) -> Window<'a> {
        Window { device, first: log.first.0, sectors: log.sectors, at: 0, bytes: Vec::new(), failed: BTreeSet::new() }
    }

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

/// Decides which records count, by the headers of the scans and by all marks: those of the scans, and what indexes say.
///
/// # Errors
/// Something is missing that was promised, and nothing tells what.
pub fn recover(superblock: &Superblock, marks: BTreeMap<u64, Mark>, scans: &[Scan; 2]) -> Result<Recovered, Damage> {
    let floor = superblock.floor;
    let headers = scans.iter().flat_map(|scan| &scan.headers).map(|(_, header)| (header.seq, header));
    let headers: BTreeMap<u64, &Header> = headers.collect();
    if let Some(later) = headers.values().find(|header| header.generation > superblock.generation) {
        return Err(Damage::Superblock { found: later.generation, known: superblock.generation });
    }
    let marks_in = if superblock.ssd_lost { Side::Hdd } else { Side::Ssd };
    let unread = scans[marks_in as usize].unread;
    // More than a power cut explains: marks may be there, of what was promised.
    if unread > gap_max(superblock) {
        return Err(Damage::Unread { sectors: unread });
    }
    let mut recovered = Recovered { from: floor, ..Recovered::default() };
    // Sequences of marks that were durable, whether they can be read or not.
    let mut known: BTreeSet<u64> = headers.values().map(|header| header.mark).collect();
    known.extend(marks.values().filter_map(|mark| mark.from.checked_sub(1)));
    let confirmed = known.last().copied().filter(|seq| *seq >= floor);
    let mut listed: BTreeMap<(u64, u32), Entry> = BTreeMap::new();
    for (seq, mark) in marks {
        if mark.from > recovered.from {
            recovered.unlisted.extend(taken_by_headers(recovered.from..mark.from, &headers, &known)?);
        }
        // A mark of an opening may cover what one before it does, which could not be read then: what the opening decided counts.
        let is_before = |of: u64| of < mark.from || of > seq;
        listed.retain(|(of, _), _| is_before(*of));
        recovered.unlisted.retain(|entry| is_before(entry.seq));
        let entries = mark.entries.into_iter().filter(|entry| entry.seq >= floor);
        listed.extend(entries.map(|entry| ((entry.seq, entry.at), entry)));
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
