//! What memory knows of the two logs, under one lock.
//!
//! Invariants:
//! 1. `records` has every record whose place is taken, so a log's tail is where the first of its records begins. `of_sides` has their
//!    sequences by their logs: there may be a million of the one between two of the other.
//! 2. `pending` and `marking` are the records that no durable mark lists; `unmarked` are their sectors in each log.
//! 3. `group` has the bare records that no header lists yet. Each of them is pending: a sync ends the group.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use bytes::Bytes;
pub use claystone_env::SsdState;
use claystone_env::{DeviceError, Moment, SECTOR_BYTES, SectorRange};

use super::guide::Guide;
use super::info::{Opening, TierCounts};
use super::line::Line;
use crate::ages::Ages;
use crate::overlay::{Overlay, Place};
use crate::record::{Entry, GROUP_BYTES_MAX, Header, Kind, Member, fits_header_with, told};
use crate::ring::Ring;
use crate::superblock::{SIDES, Side, Superblock};

/// A record.
#[derive(Debug, Clone)]
pub struct Held {
    pub side: Side,
    /// In its ring.
    pub position: u64,
    /// All, with the header, if it has one.
    pub sectors: u64,
    pub kind: Kind,
    /// The record of which it is a copy; 0: none.
    pub replaces: u64,
    /// What its header says of a record in the hard disk's log: it may have been copied, and count no more.
    pub told: Vec<SectorRange>,
    /// What of it counts: all of it, or what was whole after a power cut.
    pub entries: Vec<Entry>,
    /// Its payload, while no mark that lists it is durable: in parts that follow each other, and no extent is in two of them.
    pub memory: Option<Vec<Bytes>>,
}

impl Held {
    /// The one that a header is of, of which nothing counts yet.
    pub fn of(header: &Header, position: u64) -> Held {
        let Header { side, kind, replaces, .. } = *header;
        let (sectors, told) = (header.sectors(), told(side, kind, &header.extents));
        Held { side, position, sectors, kind, replaces, told, entries: Vec::new(), memory: None }
    }

    /// Where its payload is in its ring.
    pub fn payload(&self) -> u64 {
        self.position + self.kind.header_sectors()
    }

    /// The checksums of payload sectors that follow each other.
    ///
    /// # Panics
    /// If they do not count.
    pub fn crcs(&self, at: u32, sectors: u64) -> &[u32] {
        let end = u64::from(at) + sectors;
        let within = |entry: &&Entry| entry.at <= at && end <= u64::from(entry.at) + entry.crcs.len() as u64;
        let entry = self.entries.iter().find(within).expect("the overlay names sectors that count");
        &entry.crcs[(at - entry.at) as usize..][..sectors as usize]
    }

    /// The content of payload sectors, if it is in memory.
    pub fn content(&self, at: u32, sectors: u64) -> Option<Bytes> {
        let memory = self.memory.as_ref().filter(|_| self.kind.has_content())?;
        let mut first = at as usize * SECTOR_BYTES;
        for part in memory {
            if first < part.len() {
                return Some(part.slice(first..first + sectors as usize * SECTOR_BYTES));
            }
            first -= part.len();
        }
        None
    }
}

/// Bare records that follow each other in the solid-state drive's log, but for records with headers between them.
#[derive(Debug, Default)]
pub struct Group {
    members: Vec<Member>,
    /// In a header.
    bytes: usize,
    sectors: u64,
}

impl Group {
    /// Whether one more may be in it, with so many extents and sectors of payload.
    pub fn takes(&self, extents: usize, sectors: usize, sectors_max: u64) -> bool {
        self.bytes + Member::bytes(extents, sectors) <= GROUP_BYTES_MAX && self.sectors + sectors as u64 <= sectors_max
    }

    pub fn push(&mut self, member: Member) {
        self.bytes += Member::bytes(member.entry.extents.len(), member.entry.crcs.len());
        self.sectors += member.entry.crcs.len() as u64;
        self.members.push(member);
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Ends it: a header takes it. Nothing, if there is no room for it beside so many extents and sectors of the header's own.
    pub fn take(&mut self, extents: usize, sectors: usize) -> Vec<Member> {
        match fits_header_with(self.bytes, extents, sectors) {
            true => std::mem::take(self).members,
            false => Vec::new(),
        }
    }
}

/// How far indexes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coverage {
    /// The first sequence that none of them is of,
    pub next: u64,
    /// and positions before which no record from that on is.
    pub positions: [u64; 2],
}

/// See the module.
pub struct State {
    /// As it is on the devices.
    pub superblock: Superblock,
    pub rings: [Ring; 2],
    pub records: BTreeMap<u64, Held>,
    of_sides: [BTreeSet<u64>; 2],
    /// So many of them that no more are written but for syncs.
    records_max: usize,
    pub overlay: Overlay,
    pub next_seq: u64,
    /// What the next mark covers from.
    pub mark_from: u64,
    pub durable_mark: u64,
    /// Of the indexes that the superblock names.
    pub indexed: Coverage,
    pub pending: Vec<u64>,
    pub marking: Vec<u64>,
    /// Sequences of padding that no mark covers, in ranges.
    pub padded: Vec<SectorRange>,
    /// Bytes of their entries in a mark's list.
    pub list_bytes: usize,
    pub unmarked: [u64; 2],
    /// For the next header of the solid-state drive's log.
    pub group: Group,
    /// Given out, and not written yet.
    pub in_flight: BTreeSet<u64>,
    pub ssd: SsdState,
    /// Reads that the solid-state drive did not answer at all, since it failed and since what it has was last brought home for that.
    pub ssd_reads_failed: u32,
    pub failed: bool,
    /// Reads under way.
    pub readers: BTreeSet<u64>,
    pub next_reader: u64,
    /// Tails as they will be when reads that began before have ended.
    pub freed: VecDeque<(u64, [u64; 2])>,
    /// Writes so far, for steering by number.
    pub writes: u64,
    /// What knows the hard disk's buffer, if its profile is known.
    pub guide: Option<Guide>,
    /// Who waits for the hard disk's log.
    pub line: Line,
    /// When somebody wrote,
    pub written_at: Moment,
    /// and read.
    pub read_at: Moment,
    pub ages: Ages,
    /// What is old is left alone until then.
    pub old_from: Moment,
    /// What the opening read.
    pub opening: Opening,
    pub counts: TierCounts,
}

impl State {
    pub fn new(superblock: Superblock, rings: [Ring; 2], records_max: usize) -> State {
        let ssd = if superblock.ssd_lost { SsdState::Lost } else { SsdState::Present };
        State {
            superblock,
            rings,
            records: BTreeMap::new(),
            of_sides: Default::default(),
            records_max,
            overlay: Overlay::default(),
            next_seq: 0,
            mark_from: 0,
            durable_mark: 0,
            indexed: Coverage { next: 0, positions: [0; 2] },
            pending: Vec::new(),
            marking: Vec::new(),
            padded: Vec::new(),
            list_bytes: 0,
            unmarked: [0; 2],
            group: Group::default(),
            in_flight: BTreeSet::new(),
            ssd,
            ssd_reads_failed: 0,
            failed: false,
            readers: BTreeSet::new(),
            next_reader: 0,
            freed: VecDeque::new(),
            writes: 0,
            guide: None,
            line: Line::default(),
            written_at: Moment::default(),
            read_at: Moment::default(),
            ages: Ages::default(),
            old_from: Moment::default(),
            opening: Opening::default(),
            counts: TierCounts::default(),
        }
    }

    /// # Errors
    /// The device has failed.
    pub fn check(&self, error: impl FnOnce(io::Error) -> DeviceError) -> Result<(), DeviceError> {
        match self.failed {
            true => Err(error(io::Error::other("the hard disk did not make writes durable before"))),
            false => Ok(()),
        }
    }

    /// Whether a side's device failed, and nothing is written to it any more.
    pub fn has_lost(&self, side: Side) -> bool {
        side == Side::Ssd && self.ssd != SsdState::Present
    }

    /// Whether a side's device is not even read any more. One that failed is, until what it has is home: it may refuse what is written and have
    /// all that was.
    pub fn is_unreadable(&self, side: Side) -> bool {
        side == Side::Ssd
            && match self.ssd {
                SsdState::Present => false,
                SsdState::Failed => self.ssd_reads_failed >= SSD_READS_FAILED_MAX,
                SsdState::Lost => true,
            }
    }

    /// Puts what a mark was to list back to what is in none.
    pub fn unmark(&mut self) {
        let behind = std::mem::take(&mut self.pending);
        self.pending = std::mem::take(&mut self.marking);
        self.pending.extend(behind);
    }

    /// Sectors of a record's payload at most: one that is longer than what was measured of the hard disk would never be redirected.
    pub fn payload_sectors_max(&self) -> usize {
        let measured =
            self.guide.as_ref().and(self.superblock.profile.as_ref()).and_then(|profile| profile.sizes.last());
        let measured =
            measured.map_or(usize::MAX, |size| (size.bytes as usize / SECTOR_BYTES).saturating_sub(1).max(1));
        measured.min(self.superblock.record_sectors_max.into())
    }

    /// Sectors of bare records that one header lists, at most: a log whose headers are hurt is not taken for its end before many of them are.
    pub fn group_sectors_max(&self) -> u64 {
        (u64::from(self.superblock.unmarked_sectors_max) / 8).min(GROUP_SECTORS_MAX)
    }

    /// Where marks go.
    pub fn mark_side(&self) -> Side {
        if self.ssd == SsdState::Present { Side::Ssd } else { Side::Hdd }
    }

    /// Sectors of a log that data leaves free: for a mark or two and what a skipped end of the ring takes; and on the hard disk for the
    /// lost records of a solid-state drive that fails, an extent of 12 bytes for each sector of its log at the most.
    pub fn reserve(&self, side: Side) -> u64 {
        let record = u64::from(self.superblock.record_sectors_max) + 1;
        let could_be_lost = match (side, self.ssd) {
            (Side::Hdd, SsdState::Present | SsdState::Failed) => self.superblock.logs[Side::Ssd as usize].sectors,
            _ => 0,
        };
        4 * record + (could_be_lost + self.overlay.lost()).div_ceil(LOST_OF_A_RECORD) * 2
    }

    /// Whether memory and a log have room for a record of data; and, for one in the hard disk's, the other one for the mark that follows.
    pub fn has_room(&self, side: Side, sectors: u64) -> bool {
        let has = |side: Side, sectors: u64| self.rings[side as usize].has_room(sectors, self.reserve(side));
        let in_memory = self.records.len() < self.records_max;
        in_memory && has(side, sectors) && (side == self.mark_side() || has(self.mark_side(), 1))
    }

    /// Whether one of the logs, or memory's room for records, is taken by more than so many percent.
    pub fn is_filled(&self, percent: u64) -> bool {
        let is_filled = |used: u64, all: u64| used * 100 > all.saturating_mul(percent);
        self.rings.iter().any(|ring| is_filled(ring.used(), ring.sectors()))
            || is_filled(self.records.len() as u64, self.records_max as u64)
    }

    /// Notes a record that has its place, from now on the newest of what it has.
    pub fn hold(&mut self, seq: u64, held: Held) {
        for entry in &held.entries {
            let mut at = entry.at;
            for extent in &entry.extents {
                match entry.kind {
                    Kind::Data | Kind::Bare | Kind::Lost => {
                        let place = Place { seq, at, lost: entry.kind == Kind::Lost };
                        self.overlay.insert(*extent, place);
                    }
                    Kind::Padding | Kind::Mark | Kind::Void | Kind::Index => {}
                }
                // Of lost ones it says nothing, and may be anything.
                at = at.wrapping_add(extent.sectors as u32);
            }
        }
        self.of_sides[held.side as usize].insert(seq);
        self.records.insert(seq, held);
    }

    /// Notes that a record is in no mark.
    pub fn await_mark(&mut self, seq: u64) {
        let held = &self.records[&seq];
        self.list_bytes += held.entries.iter().map(Entry::bytes).sum::<usize>();
        self.unmarked[held.side as usize] += held.sectors;
        self.pending.push(seq);
    }

    /// Takes records off those that are in no mark.
    pub fn marked(&mut self, seqs: &[u64]) {
        for seq in seqs {
            let Some(held) = self.records.get_mut(seq) else { continue };
            held.memory = None;
            self.list_bytes -= held.entries.iter().map(Entry::bytes).sum::<usize>();
            self.unmarked[held.side as usize] -= held.sectors;
        }
    }

    /// Whether a record may be in no mark beside those that are not.
    pub fn may_await(&self, side: Side, sectors: u64, entry_bytes: usize) -> bool {
        self.unmarked[side as usize] + sectors <= u64::from(self.superblock.unmarked_sectors_max)
            && self.list_bytes + entry_bytes <= self.list_bytes_max()
    }

    /// Whether so much is in no mark that who writes would soon wait for one; or that a sync would soon find more in the hard disk's log than
    /// it may copy, which is `copy_sectors_max`, or 0.
    pub fn waits_long_for_a_mark(&self, copy_sectors_max: u64) -> bool {
        let max = u64::from(self.superblock.unmarked_sectors_max);
        let copies = copy_sectors_max > 0 && self.mark_side() == Side::Ssd;
        let hdd_max = if copies { max.min(copy_sectors_max) } else { max };
        let [ssd, hdd] = self.unmarked;
        ssd * 2 > max || hdd * 2 > hdd_max || self.list_bytes * 2 > self.list_bytes_max()
    }

    /// Bytes that a mark has for its list, at most.
    pub fn list_bytes_max(&self) -> usize {
        usize::from(self.superblock.record_sectors_max) * SECTOR_BYTES
    }

    /// What of a record is the newest of its sectors.
    pub fn newest_of(&self, seq: u64) -> Vec<(SectorRange, Place)> {
        let of_home = |entry: &&Entry| entry.kind != Kind::Void;
        let extents = self.records[&seq].entries.iter().filter(of_home).flat_map(|entry| &entry.extents);
        let pieces = extents.flat_map(|extent| self.overlay.over(*extent));
        pieces.filter_map(|piece| Some((piece.range, piece.place.filter(|place| place.seq == seq)?))).collect()
    }

    /// Whether any of these sectors is said to be lost, or was on a solid-state drive that is gone. One of a record that was torn with
    /// its mark, as a power cut leaves it, is not.
    pub fn knows_lost(&self, range: SectorRange) -> bool {
        let is_lost = |place: Place| {
            let held = &self.records[&place.seq];
            place.lost || (self.is_unreadable(held.side) && held.memory.is_none())
        };
        self.overlay.over(range).into_iter().filter_map(|piece| piece.place).any(is_lost)
    }

    /// Where the first of a log's records from a sequence on begins; its head if there is none.
    pub fn first_position(&self, side: Side, seq: u64) -> u64 {
        let first = self.of_sides[side as usize].range(seq..).next();
        first.map_or(self.rings[side as usize].head(), |seq| self.records[seq].position)
    }

    /// The superblock that is to be stored with this floor: the next one, which names an index only while that is of something above.
    pub fn superblock_above(&self, floor: u64) -> Superblock {
        let tails = SIDES.map(|side| self.rings[side as usize].place(self.first_position(side, floor)));
        let index = self.superblock.index.filter(|_| floor < self.indexed.next);
        Superblock { floor, tails, index, generation: self.superblock.generation + 1, ..self.superblock.clone() }
    }

    /// Sectors in both logs that indexes do not have, up to a sequence.
    pub fn unindexed_below(&self, seq: u64) -> u64 {
        let of = |side: Side| {
            let ring = &self.rings[side as usize];
            let from = self.indexed.positions[side as usize].max(ring.head() - ring.used());
            self.first_position(side, seq).saturating_sub(from)
        };
        SIDES.map(of).iter().sum()
    }

    /// Nobody needs records below the floor any more, but reads that are under way.
    pub fn free_below(&mut self, floor: u64) {
        let tails = SIDES.map(|side| self.first_position(side, floor));
        self.records = self.records.split_off(&floor);
        for seqs in &mut self.of_sides {
            *seqs = seqs.split_off(&floor);
        }
        if floor >= self.indexed.next {
            self.indexed = Coverage { next: floor, positions: tails };
        }
        self.freed.push_back((self.next_reader, tails));
        self.free_unread();
    }

    /// Frees what reads that have ended kept. Returns whether there was any.
    pub fn free_unread(&mut self) -> bool {
        let oldest = self.readers.first().copied().unwrap_or(u64::MAX);
        let before = self.freed.len();
        while let Some((reader, tails)) = self.freed.front().copied() {
            // Reads below that number began before.
            if oldest < reader {
                break;
            }
            self.freed.pop_front();
            for (ring, tail) in self.rings.iter_mut().zip(tails) {
                ring.free(tail);
            }
        }
        self.freed.len() < before
    }
}

/// A drive that is gone answers none, and each may take as long as a drive takes to give up.
const SSD_READS_FAILED_MAX: u32 = 3;
/// 2 MiB.
const GROUP_SECTORS_MAX: u64 = 512;
/// Extents that a record without payload has, at least.
pub const LOST_OF_A_RECORD: u64 = 300;
