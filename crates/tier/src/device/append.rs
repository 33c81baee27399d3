//! Writing: a request becomes records at the end of a log.

use std::io;

use bytes::{Bytes, BytesMut};
use claystone_env::{DeviceError, Moment, SECTOR_BYTES, Sector, SectorRange, aligned_buffer};

use super::TieredDevice;
use super::guide::Guide;
use super::line::InLine;
use super::open::Steering;
use super::state::{Held, SsdState, State};
use crate::record::{
    Entry, Header, Kind, List, Member, TABLES_BYTES, entry_bytes, fits_header, looks_like_headers, sector_crcs,
};
use crate::ssd_queue::SsdTicket;
use crate::superblock::Side;

/// A record that has a place and is to be written there.
pub struct Staged {
    pub seq: u64,
    pub side: Side,
    /// On its device.
    pub first: Sector,
    pub bytes: Bytes,
    /// Whose writes it has, of those who stood in line: the predictor waits for what it takes. Nobody: it does not know of it.
    pub line: Vec<InLine>,
    /// It is in the guide's queue of the solid-state drive.
    pub ticket: Option<SsdTicket>,
}

/// What a record will be of.
pub struct Load {
    pub extents: Vec<SectorRange>,
    /// A sector for the header, and the payload.
    pub bytes: BytesMut,
    pub crcs: Vec<u32>,
    /// The record for which it stands; 0: none.
    pub replaces: u64,
}

/// What came of a write so far.
pub enum Attempt {
    /// It has its place.
    Staged(Staged),
    /// It is to be tried again: there is room now, or the hard disk is slow.
    Again(Load),
    /// Somebody before it in the line has written it.
    TakenAlong,
}

impl TieredDevice {
    pub(super) fn write_all(&self, writes: &[(Sector, &[u8])]) -> Result<(), DeviceError> {
        let sectors_max = self.state().payload_sectors_max();
        let mut parts: Vec<(Sector, &[u8])> = Vec::new();
        let mut sectors = 0;
        for (first, bytes) in writes {
            let (mut first, mut bytes) = (first.0, *bytes);
            while !bytes.is_empty() {
                let fits = (sectors_max - sectors).min(bytes.len() / SECTOR_BYTES);
                if fits == 0 || !fits_header(parts.len() + 1, sectors + fits) {
                    self.append(&parts)?;
                    parts.clear();
                    sectors = 0;
                    continue;
                }
                let (part, rest) = bytes.split_at(fits * SECTOR_BYTES);
                parts.push((Sector(first), part));
                (first, bytes, sectors) = (first + fits as u64, rest, sectors + fits);
            }
        }
        if parts.is_empty() { Ok(()) } else { self.append(&parts) }
    }

    /// Writes one record.
    fn append(&self, parts: &[(Sector, &[u8])]) -> Result<(), DeviceError> {
        let mut load = load(parts);
        let staged = loop {
            match self.try_stage(load)? {
                Attempt::Staged(staged) => break staged,
                Attempt::Again(back) => load = back,
                Attempt::TakenAlong => return Ok(()),
            }
        };
        let (seq, side) = (staged.seq, staged.side);
        let begun = (self.now)();
        let written = self.write_staged(&staged);
        let now = (self.now)();
        if let (Err(error), Side::Ssd) = (&written, side) {
            // Memory has it: the next sync brings it to the hard disk.
            self.ssd_failed(error);
        }
        let mut state = self.state();
        state.in_flight.remove(&seq);
        if let Some(guide) = &mut state.guide {
            if !staged.line.is_empty() {
                let took = written.is_ok().then(|| now.since(begun));
                guide.end(staged.line.len(), staged.bytes.len() as u64, took, now);
            }
            if let Some(ticket) = staged.ticket {
                guide.end_ssd(ticket);
            }
        }
        // Whose thread this is knows.
        state.line.answer(staged.line.get(1..).unwrap_or_default(), &written);
        if !staged.line.is_empty() {
            state.line.first().into_iter().for_each(InLine::wake);
        }
        if written.is_err()
            && side == Side::Hdd
            && let Some(held) = state.records.get_mut(&seq)
        {
            // What of it is there, its checksums tell.
            held.memory = None;
        }
        drop(state);
        self.bell.ring();
        if side == Side::Hdd { written } else { Ok(()) }
    }

    /// Gives a record its sequence and its place; or makes room, and gives it back.
    fn try_stage(&self, load: Load) -> Result<Attempt, DeviceError> {
        let range = load.extents[0];
        let failed = |source: io::Error| DeviceError::Write { range, source };
        let (extents, payload) = (load.extents.len(), load.crcs.len());
        let sectors = 1 + payload as u64;
        let now = (self.now)();
        let mut state = self.state();
        state.check(failed)?;
        if state.superblock.at_rest {
            drop(state);
            self.rouse()?;
            return Ok(Attempt::Again(load));
        }
        let mut side = self.side_for(&state, payload, now);
        if side == Side::Hdd && state.ssd == SsdState::Present {
            match (takes(&state, side, extents, payload), state.guide.is_some()) {
                (true, true) => return self.try_in_line(state, load),
                (true, false) => {}
                (false, _) => side = Side::Ssd,
            }
        }
        if !state.may_await(side, sectors, entry_bytes(extents, payload)) {
            drop(state);
            self.sync_all().map_err(|error| DeviceError::Write { range, source: io::Error::other(error) })?;
            return Ok(Attempt::Again(load));
        }
        if !takes(&state, side, extents, payload) {
            state.counts.waits += 1;
            drop(state);
            self.make_room(side, sectors)
                .map_err(|error| DeviceError::Write { range, source: io::Error::other(error) })?;
            return Ok(Attempt::Again(load));
        }
        count(&mut state, side, 1, &load);
        let mut staged = self.stage(&mut state, side, Kind::Data, load);
        if let (Side::Ssd, Some(guide)) = (side, &mut state.guide) {
            staged.ticket = Some(guide.begin_ssd((payload * SECTOR_BYTES) as u64, now));
        }
        Ok(Attempt::Staged(staged))
    }

    /// Where the next write goes.
    fn side_for(&self, state: &State, payload: usize, now: Moment) -> Side {
        match self.tuning.steering {
            _ if state.ssd != SsdState::Present => Side::Hdd,
            Steering::Ssd => Side::Ssd,
            Steering::Predicted { .. } => {
                let bytes = (payload * SECTOR_BYTES) as u64;
                state.guide.as_ref().map_or(Side::Ssd, |guide| guide.side_for(now, bytes))
            }
            Steering::EveryNth(nth) => {
                if (state.writes + 1).is_multiple_of(nth.get()) {
                    Side::Hdd
                } else {
                    Side::Ssd
                }
            }
        }
    }

    /// Takes a sequence and a place for a record that has room, and notes what it is of.
    ///
    /// # Panics
    /// If there is no room.
    pub(super) fn stage(&self, state: &mut State, side: Side, kind: Kind, load: Load) -> Staged {
        let Load { extents, mut bytes, crcs, replaces } = load;
        let kind = match (side, kind) {
            (Side::Ssd, Kind::Data) if !looks_like_headers(&bytes[SECTOR_BYTES..]) => Kind::Bare,
            _ => kind,
        };
        let (header, position) = take_place(state, side, kind, extents, crcs, replaces);
        let is_bare = header.kind == Kind::Bare;
        if !is_bare {
            bytes[..SECTOR_BYTES].copy_from_slice(&header.encode(state.superblock.id));
        }
        let bytes = bytes.freeze();
        let payload = bytes.slice(SECTOR_BYTES..);
        hold_placed(state, &header, position, vec![payload.clone()]);
        self.staged(&header, if is_bare { payload } else { bytes })
    }

    /// Takes sequence and place for a mark or an index, which has this list: a mark's is in its header, if it fits there, else it is the payload. Nothing,
    /// if there is no room for it beside so many sectors.
    pub(super) fn stage_list(
        &self,
        state: &mut State,
        (side, kind): (Side, Kind),
        from: u64,
        list: Vec<u8>,
        reserve: u64,
    ) -> Option<Staged> {
        let is_inline = kind == Kind::Mark && list.len() <= TABLES_BYTES;
        let payload = if is_inline { &[][..] } else { &list };
        let mut bytes = aligned_buffer(SECTOR_BYTES + payload.len().next_multiple_of(SECTOR_BYTES));
        bytes.resize(SECTOR_BYTES, 0);
        bytes.extend_from_slice(payload);
        bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES), 0);
        let crcs = sector_crcs(&bytes[SECTOR_BYTES..]);
        if !state.rings[side as usize].has_room(kind.header_sectors() + crcs.len() as u64, reserve) {
            return None;
        }
        let (mut header, position) = take_place(state, side, kind, Vec::new(), crcs, 0);
        header.list = Some(List { from, bytes: list.len() as u32, inline: is_inline.then_some(list) });
        bytes[..SECTOR_BYTES].copy_from_slice(&header.encode(state.superblock.id));
        hold_unlisted(state, &header, position);
        Some(self.staged(&header, bytes.freeze()))
    }

    /// A record that has its place, with its bytes.
    pub(super) fn staged(&self, header: &Header, bytes: Bytes) -> Staged {
        let first = Sector(self.logs[header.side as usize].first.0 + header.place);
        Staged { seq: header.seq, side: header.side, first, bytes, line: Vec::new(), ticket: None }
    }

    /// Writes a record that a sync needs. Who steers a write meanwhile counts it among what waits in the solid-state drive.
    pub(super) fn write_for_sync(&self, staged: &Staged) -> Result<(), DeviceError> {
        let (bytes, now) = (staged.bytes.len() as u64, (self.now)());
        let waits = |guide: &mut Guide| guide.begin_ssd(bytes, now);
        let ticket = self.state().guide.as_mut().filter(|_| staged.side == Side::Ssd).map(waits);
        let written = self.write_staged(staged);
        if let (Some(guide), Some(ticket)) = (&mut self.state().guide, ticket) {
            guide.end_ssd(ticket);
        }
        written
    }

    pub(super) fn write_staged(&self, staged: &Staged) -> Result<(), DeviceError> {
        let sectors = (staged.bytes.len() / SECTOR_BYTES) as u64;
        let range = SectorRange { first: staged.first, sectors };
        let device = self.device(staged.side).map_err(|source| DeviceError::Write { range, source })?;
        device.write(staged.first, &staged.bytes)
    }
}

/// Takes a sequence and a place for a record that has room. Returns its header, and its position in the ring. Where the next header cannot list
/// what shall be bare, it is data, and has that header.
///
/// # Panics
/// If there is no room.
pub fn take_place(
    state: &mut State,
    side: Side,
    kind: Kind,
    extents: Vec<SectorRange>,
    crcs: Vec<u32>,
    replaces: u64,
) -> (Header, u64) {
    let (of_extents, payload, group_sectors_max) = (extents.len(), crcs.len(), state.group_sectors_max());
    let kind = match kind {
        Kind::Bare if !state.group.takes(of_extents, payload, group_sectors_max) => Kind::Data,
        kind => kind,
    };
    let group = match (side, kind) {
        (Side::Ssd, Kind::Data | Kind::Void) => state.group.take(of_extents, payload),
        _ => Vec::new(),
    };
    let ring = &mut state.rings[side as usize];
    let position = ring.take(kind.header_sectors() + payload as u64, 0).expect("the caller looked for room");
    let place = ring.place(position);
    let seq = state.next_seq;
    state.next_seq += 1;
    let (generation, mark) = (state.superblock.generation, state.durable_mark);
    let header = Header { kind, side, seq, place, generation, mark, replaces, extents, crcs, list: None, group };
    if kind == Kind::Bare {
        state.group.push(Member { replaces, entry: Entry::of(&header) });
    }
    (header, position)
}

/// Notes a record that has its place, and what it is of: it is in flight from now on, and waits for a mark. `memory`: its payload, as
/// [`Held::memory`] has it.
pub fn hold_placed(state: &mut State, header: &Header, position: u64, memory: Vec<Bytes>) {
    hold(
        state,
        header.seq,
        Held { entries: vec![Entry::of(header)], memory: Some(memory), ..Held::of(header, position) },
    );
    state.await_mark(header.seq);
    state.in_flight.insert(header.seq);
}

/// Notes a record that has its place and that no mark will list: there is nothing in it that counts.
pub fn hold_unlisted(state: &mut State, header: &Header, position: u64) {
    hold(state, header.seq, Held::of(header, position));
}

fn hold(state: &mut State, seq: u64, held: Held) {
    if held.side == Side::Ssd {
        state.counts.ssd_sectors += held.sectors;
    }
    state.hold(seq, held);
}

/// Counts users' writes that are staged as one record.
pub fn count(state: &mut State, side: Side, writes: u64, load: &Load) {
    let sectors = load.crcs.len() as u64;
    state.writes += writes;
    state.counts.writes += writes;
    state.counts.write_sectors += sectors;
    if let Some(guide) = &mut state.guide {
        guide.earn(side, sectors * SECTOR_BYTES as u64);
    }
    if side == Side::Hdd {
        state.counts.redirected_writes += writes;
        state.counts.redirected_sectors += sectors;
    }
}

/// Whether a log has room for a record of so many extents and sectors of payload with a header, and may have it in no mark.
pub fn takes(state: &State, side: Side, extents: usize, payload: usize) -> bool {
    let sectors = 1 + payload as u64;
    state.has_room(side, sectors) && state.may_await(side, sectors, entry_bytes(extents, payload))
}

impl Load {
    /// All of them as one.
    ///
    /// # Panics
    /// If there is none.
    pub fn joined(mut loads: Vec<Load>) -> Load {
        if loads.len() == 1 {
            return loads.pop().expect("it is there");
        }
        let payloads = loads.iter().map(|load| load.crcs.len()).sum::<usize>();
        let mut bytes = aligned_buffer((1 + payloads) * SECTOR_BYTES);
        bytes.resize(SECTOR_BYTES, 0);
        let mut joined = Load { extents: Vec::new(), bytes, crcs: Vec::with_capacity(payloads), replaces: 0 };
        for load in loads {
            joined.bytes.extend_from_slice(&load.bytes[SECTOR_BYTES..]);
            joined.extents.extend(load.extents);
            joined.crcs.extend(load.crcs);
        }
        assert!(!joined.extents.is_empty(), "a record has something");
        joined
    }
}

fn load(parts: &[(Sector, &[u8])]) -> Load {
    let payload: usize = parts.iter().map(|(_, bytes)| bytes.len()).sum();
    let mut bytes = aligned_buffer(SECTOR_BYTES + payload);
    bytes.resize(SECTOR_BYTES, 0);
    for (_, part) in parts {
        bytes.extend_from_slice(part);
    }
    let extent =
        |(first, bytes): &(Sector, &[u8])| SectorRange { first: *first, sectors: (bytes.len() / SECTOR_BYTES) as u64 };
    let crcs = sector_crcs(&bytes[SECTOR_BYTES..]);
    Load { extents: parts.iter().map(extent).collect(), bytes, crcs, replaces: 0 }
}
