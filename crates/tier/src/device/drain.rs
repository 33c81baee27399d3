//! Bringing home: the oldest records of both logs, what of them counts still, in the order of the home.
//!
//! Source: [bcw §MIOS], where it is left open how; the order over both logs and the floor are ours.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use claystone_env::{DeviceError, Effort, Moment, SECTOR_BYTES, Sector, SectorRange, aligned_buffer};

use super::TieredDevice;
use super::append::{self, Staged};
use super::guide::Kept;
use super::original::{Original, asked_for};
use super::state::{LOST_OF_A_RECORD, SsdState, State};
use crate::fields::crc32c;
use crate::record::{Kind, entry_bytes};
use crate::superblock::Side;

/// What [`TieredDevice::tend`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tended {
    /// Sectors that were brought home.
    pub drained_sectors: u64,
    /// Whether there is more to do at once.
    pub more: bool,
    /// When there is something to do again, as far as is known: the hard disk's buffer wants padding then.
    pub after: Option<Duration>,
}

/// What [`TieredDevice::drain`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// Sectors that were brought home. A batch may have none: all of it is lost, or nothing of it counts any more.
    pub sectors: u64,
    /// Whether something waits still, and the next batch is nearer to it.
    pub more: bool,
}

/// Sectors that are brought home: where they are in a log, and their checksums.
struct Load {
    range: SectorRange,
    side: Side,
    /// On the side's device.
    first: Sector,
    crcs: Vec<u32>,
    /// If memory has it.
    content: Option<Bytes>,
    /// Where else it is.
    originals: Vec<Original>,
}

/// What may be brought home together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    /// So many sectors, or one record,
    sectors_max: u64,
    /// of records below this sequence.
    below: u64,
}

impl TieredDevice {
    /// What the device does from time to time: brings home what waits in a log that fills, or for long, or when nobody
    /// uses it, a batch at a time. Blocks, as a write does.
    ///
    /// # Errors
    /// A device failed; nothing is lost by that.
    pub fn tend(&self) -> Result<Tended, DeviceError> {
        let begun = (self.now)();
        let (is_due, old) = {
            let mut state = self.state();
            let fills = state.is_filled(self.tuning.drain_from_percent);
            let is_idle = self.tuning.is_idle(begun.since(state.written_at), begun.since(state.read_at));
            let waits = state.overlay.sectors() > state.overlay.lost();
            (fills || (is_idle && waits), self.old_batch(&mut state, begun))
        };
        if is_due {
            let Drained { sectors, more } = self.drain()?;
            return Ok(Tended { drained_sectors: sectors, more, after: None });
        }
        if let Some(batch) = old {
            // Where nothing could be brought home, nobody is to try again at once.
            let Drained { sectors, more } = self.drain_within(batch)?;
            let (now, mut state) = ((self.now)(), self.state());
            let is_used = state.guide.as_ref().is_some_and(|guide| guide.unused(now) < UNUSED);
            let percent = if is_used { self.tuning.drain_old_percent } else { self.tuning.drain_old_percent_unused };
            state.old_from = now.after(now.since(begun) * (100 / percent).saturating_sub(1));
            return Ok(Tended { drained_sectors: sectors, more, after: None });
        }
        Ok(match self.keep_up()? {
            Kept::Something => Tended { more: true, ..Tended::default() },
            Kept::Nothing(after) => Tended { after, ..Tended::default() },
        })
    }

    /// What is to be brought home because it waits for long, if anything is now.
    fn old_batch(&self, state: &mut State, now: Moment) -> Option<Batch> {
        let below = state.ages.old_below(self.tuning.drain_when_old, now, state.next_seq);
        let is_old = state.records.first_key_value().is_some_and(|(seq, _)| *seq < below);
        let waits = is_old && state.overlay.sectors() > state.overlay.lost();
        // Without a solid-state drive it is where it would be lost with the disk in any case.
        let is_due = waits && state.ssd == SsdState::Present && now >= state.old_from;
        is_due.then_some(Batch { sectors_max: self.tuning.drain_old_sectors_max, below })
    }

    /// Brings a batch home, whether it is due or not.
    ///
    /// # Errors
    /// As [`TieredDevice::tend`].
    pub fn drain(&self) -> Result<Drained, DeviceError> {
        self.drain_within(self.any_batch())
    }

    /// One whose records may be of any age.
    pub(super) fn any_batch(&self) -> Batch {
        Batch { sectors_max: self.tuning.drain_sectors_max, below: u64::MAX }
    }

    /// Brings a batch home.
    fn drain_within(&self, batch: Batch) -> Result<Drained, DeviceError> {
        let _draining = self.draining.take(&*self.bell);
        let before = self.drained();
        self.sync_draining()?;
        self.drain_batch(batch)?;
        let after = self.drained();
        let state = self.state();
        let waits = state.overlay.sectors() > state.overlay.lost();
        Ok(Drained { sectors: after.0 - before.0, more: waits && after != before })
    }

    /// How far it came: sectors that were brought home, and the floor.
    fn drained(&self) -> (u64, u64) {
        let state = self.state();
        (state.counts.drained_sectors, state.superblock.floor)
    }

    /// Makes room in a log for a record.
    pub(super) fn make_room(&self, side: Side, sectors: u64) -> Result<(), DeviceError> {
        let _draining = self.draining.take(&*self.bell);
        loop {
            let mut state = self.state();
            state.check(|source| DeviceError::Sync { source })?;
            let has_room = |state: &State| {
                // A solid-state drive that failed meanwhile is for the caller to see.
                state.has_room(side, sectors) || (side == Side::Ssd && state.ssd != SsdState::Present)
            };
            if has_room(&state) {
                return Ok(());
            }
            if !state.freed.is_empty() {
                // Reads that are under way keep it.
                state = self.wait(state);
                drop(state);
                continue;
            }
            if self.batch_end(&state, self.any_batch()).is_some() {
                drop(state);
                self.drain_batch(self.any_batch())?;
            } else if !state.pending.is_empty() || !state.marking.is_empty() {
                drop(state);
                self.sync_draining()?;
            } else if !state.in_flight.is_empty() {
                drop(self.wait(state));
            } else {
                let what = io::Error::other("a log is full, and nothing of it can be brought home");
                return Err(DeviceError::Sync { source: what });
            }
        }
    }

    /// Brings the oldest marked records home. The caller holds `draining`.
    pub(super) fn drain_batch(&self, batch: Batch) -> Result<(), DeviceError> {
        let end = self.batch_end(&self.state(), batch);
        let Some(floor) = end else { return Ok(()) };
        let lost = self.bring_home(floor)?;
        if self.state().ssd == SsdState::Failed {
            // The sync that settles it finds out what is lost with it, and moves the floor.
            return self.sync_draining();
        }
        if !lost.is_empty() {
            self.say_lost(&lost, floor, &|| self.sync_draining())?;
        }
        // What took the place of something promised is durable before that is freed.
        self.sync_draining()?;
        if self.state().superblock.floor >= floor {
            return Ok(());
        }
        match self.move_floor(floor) {
            Err(_) if self.state().ssd == SsdState::Failed => self.sync_draining(),
            other => other,
        }
    }

    /// The sequence behind the records of the next batch; `None`: there is nothing to bring home.
    pub(super) fn batch_end(&self, state: &State, batch: Batch) -> Option<u64> {
        let (mut sectors, mut end) = (0, None);
        let mut last_copy = 0;
        // Where nothing waits for a mark, what is left is padding, and marks.
        let unmarked = state.pending.len() + state.marking.len() + state.in_flight.len();
        let limit = if unmarked == 0 { state.next_seq } else { state.mark_from };
        // Nobody else writes where one is on its way: padding, or what a sync has copied.
        let limit = state.in_flight.first().map_or(limit, |seq| limit.min(*seq)).min(batch.below);
        for seq in state.records.range(..limit).map(|(seq, _)| *seq) {
            let of_this: u64 = state.newest_of(seq).iter().map(|(range, _)| range.sectors).sum();
            let is_full = sectors > 0 && of_this > 0 && sectors + of_this > batch.sectors_max;
            if is_full && seq > last_copy {
                match state.parted_at(seq) {
                    Some(parted) => last_copy = parted.last_copy,
                    None => break,
                }
            }
            sectors += of_this;
            end = Some(seq + 1);
        }
        let mut end = end?;
        // Where one is on its way that is older than a copy, what was copied waits with it.
        while let Some(parted) = state.parted_at(end) {
            end = parted.first_original;
        }
        state.records.range(..end).next().map(|_| end)
    }

    /// Writes home what counts of the records below `floor`, and makes it durable. Returns what cannot be: it is lost. The caller holds
    /// `draining`.
    pub(super) fn bring_home(&self, floor: u64) -> Result<Vec<SectorRange>, DeviceError> {
        let (loads, mut lost) = self.loads(floor);
        let (mut brought, mut held_bytes) = (Vec::new(), 0);
        let mut whole: Vec<(SectorRange, Bytes)> = Vec::new();
        for load in loads {
            let (content, bad) = match load.content.clone() {
                Some(content) => (content, Vec::new()),
                None => self.read_load(&load)?,
            };
            // Up to each sector that is lost, and to the end.
            let mut at = 0;
            for end in bad.iter().copied().chain([load.range.sectors]) {
                if at < end {
                    let range = SectorRange { first: Sector(load.range.first.0 + at), sectors: end - at };
                    let content = content.slice(at as usize * SECTOR_BYTES..end as usize * SECTOR_BYTES);
                    held_bytes += content.len();
                    brought.push(range);
                    whole.push((range, content));
                }
                at = end + 1;
            }
            lost.extend(bad.iter().map(|at| SectorRange { first: Sector(load.range.first.0 + at), sectors: 1 }));
            if held_bytes >= HELD_BYTES_MAX {
                self.write_home(&std::mem::take(&mut whole))?;
                held_bytes = 0;
            }
        }
        self.write_home(&whole)?;
        if !brought.is_empty() {
            self.sync_hdd()?;
        }
        let mut state = self.state();
        for range in brought {
            state.counts.drained_sectors += state.overlay.remove_where(range, |place| place.seq < floor);
        }
        Ok(lost)
    }

    /// What of the records below `floor` is to be brought home, in the order of the home; and what is lost already.
    fn loads(&self, floor: u64) -> (Vec<Load>, Vec<SectorRange>) {
        let state = self.state();
        let (mut loads, mut lost) = (Vec::new(), Vec::new());
        let below = state.records.range(..floor).flat_map(|(seq, _)| state.newest_of(*seq));
        for (range, place) in below {
            let held = &state.records[&place.seq];
            let content = held.content(place.at, range.sectors);
            if place.lost {
                lost.push(range);
                continue;
            }
            let in_log = state.rings[held.side as usize].place(held.payload()) + u64::from(place.at);
            let first = Sector(self.logs[held.side as usize].first.0 + in_log);
            let crcs = held.crcs(place.at, range.sectors).to_vec();
            let originals = state.originals(range, place);
            loads.push(Load { range, side: held.side, first, crcs, content, originals });
        }
        loads.sort_by_key(|load| load.range.first);
        (loads, lost)
    }

    /// The content of sectors in a log, and those of them that are lost.
    fn read_load(&self, load: &Load) -> Result<(Bytes, Vec<u64>), DeviceError> {
        let (mut content, mut lost) = self.read_log(load.side, load.first, &load.crcs)?;
        let number = |sector: u64| sector - load.range.first.0;
        for original in asked_for(&load.originals, |sector| lost.contains(&number(sector))) {
            let first = Sector(self.logs[Side::Hdd as usize].first.0 + original.in_log);
            let (from, end) = (number(original.range.first.0), number(original.range.end().0));
            let (found, bad) = self.read_log(Side::Hdd, first, &load.crcs[from as usize..end as usize])?;
            content[from as usize * SECTOR_BYTES..end as usize * SECTOR_BYTES].copy_from_slice(&found);
            lost.retain(|at| !(from..end).contains(at) || bad.contains(&(at - from)));
        }
        Ok((content.freeze(), lost))
    }

    /// Sectors of a side's device, and which of them do not read or are not what they must be.
    fn read_log(&self, side: Side, first: Sector, crcs: &[u32]) -> Result<(BytesMut, Vec<u64>), DeviceError> {
        let bytes = crcs.len() * SECTOR_BYTES;
        let mut content = aligned_buffer(bytes);
        content.resize(bytes, 0);
        let range = SectorRange { first, sectors: crcs.len() as u64 };
        let failed = loop {
            if self.state().is_unreadable(side) {
                return Ok((content, (0..range.sectors).collect()));
            }
            let device = self.device(side).map_err(|source| DeviceError::Read { range, source })?;
            let mut read = || device.read(first, &mut content, Effort::Retry);
            let result = if side == Side::Hdd { self.disturb(false, read) } else { read() };
            match (result, side) {
                (Ok(failed), _) => break failed,
                (Err(error), Side::Hdd) => return Err(error),
                (Err(error), Side::Ssd) => self.ssd_read_failed(&error),
            }
        };
        let unread: Vec<u64> = failed.iter().map(|failed| failed.sector.0 - first.0).collect();
        let sectors = (0u64..).zip(content.chunks_exact(SECTOR_BYTES)).zip(crcs);
        let is_bad = |at: u64, sector: &[u8], crc: u32| unread.contains(&at) || crc32c(sector) != crc;
        let bad = sectors.filter(|((at, sector), crc)| is_bad(*at, sector, **crc)).map(|((at, _), _)| at).collect();
        Ok((content, bad))
    }

    /// Writes sectors home, in their order, neighbours together.
    fn write_home(&self, whole: &[(SectorRange, Bytes)]) -> Result<(), DeviceError> {
        let mut writes: Vec<(Sector, BytesMut)> = Vec::new();
        for (range, bytes) in whole {
            let first = Sector(self.home.first.0 + range.first.0);
            match writes.last_mut() {
                Some((before, joined))
                    if before.0 + (joined.len() / SECTOR_BYTES) as u64 == first.0
                        && joined.len() + bytes.len() <= HOME_BYTES_MAX =>
                {
                    joined.extend_from_slice(bytes);
                }
                _ => {
                    let mut joined = aligned_buffer(bytes.len().max(HOME_BYTES_MAX / 16));
                    joined.extend_from_slice(bytes);
                    writes.push((first, joined));
                }
            }
        }
        let writes: Vec<(Sector, &[u8])> = writes.iter().map(|(first, bytes)| (*first, &bytes[..])).collect();
        if writes.is_empty() { Ok(()) } else { self.disturb(false, || self.hdd.write_each(&writes)) }
    }

    /// Puts into a log that sectors are lost which records below `floor` had: in parts, as many as a mark has room for, with a sync behind
    /// each but the last, which is in no mark yet.
    pub(super) fn say_lost(
        &self,
        lost: &[SectorRange],
        floor: u64,
        sync: &dyn Fn() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        loop {
            let (staged, is_all) = self.stage_lost(lost, floor)?;
            // All of them, whatever becomes of the first: none stays in flight.
            let mut written = Ok(());
            for staged in staged {
                let of_this = self.write_staged(&staged);
                if let (Err(error), Side::Ssd) = (&of_this, staged.side) {
                    // It is in memory, and settled by the next sync.
                    self.ssd_failed(error);
                }
                self.state().in_flight.remove(&staged.seq);
                self.bell.ring();
                if staged.side == Side::Hdd {
                    written = written.and(of_this);
                }
            }
            written?;
            if is_all {
                return Ok(());
            }
            sync()?;
        }
    }

    /// Stages lost records, as many as may be in no mark, and says whether those are all.
    fn stage_lost(&self, lost: &[SectorRange], floor: u64) -> Result<(Vec<Staged>, bool), DeviceError> {
        let mut staged: Vec<Staged> = Vec::new();
        let mut state = self.state();
        let mut extents = Vec::new();
        for range in lost {
            // What was said before is not below the floor.
            let still = state
                .overlay
                .over(*range)
                .into_iter()
                .filter(|piece| piece.place.is_some_and(|place| place.seq < floor));
            extents.extend(still.map(|piece| piece.range));
        }
        extents.sort_by_key(|range| range.first);
        extents.dedup_by(|next, before| {
            let touches = before.end() == next.first && before.sectors + next.sectors < u64::from(u32::MAX);
            if touches {
                before.sectors += next.sectors;
            }
            touches
        });
        for extents in extents.chunks(LOST_OF_A_RECORD as usize) {
            let side = state.mark_side();
            if !state.may_await(side, 1, entry_bytes(extents.len(), 0)) {
                return Ok((staged, false));
            }
            if !state.rings[side as usize].has_room(1, 0) {
                if !staged.is_empty() {
                    return Ok((staged, false));
                }
                let source = io::Error::other("a log has no room to say what is lost");
                return Err(DeviceError::Sync { source });
            }
            let mut bytes = aligned_buffer(SECTOR_BYTES);
            bytes.resize(SECTOR_BYTES, 0);
            state.counts.lost_sectors += extents.iter().map(|range| range.sectors).sum::<u64>();
            let load = append::Load { extents: extents.to_vec(), bytes, crcs: Vec::new(), replaces: 0 };
            staged.push(self.stage(&mut state, side, Kind::Lost, load));
        }
        Ok((staged, true))
    }
}

/// After so long without a write that was redirected none is to be expected.
const UNUSED: Duration = Duration::from_secs(60);
/// Neighbours are written home in writes of so many bytes at most.
const HOME_BYTES_MAX: usize = 4 << 20;
/// What is brought home is written when so much is in memory.
const HELD_BYTES_MAX: usize = 32 << 20;
