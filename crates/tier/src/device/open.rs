//! Making a pair, and opening it: what the logs say, and a mark that makes it stay so.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use claystone_env::{Device, DeviceError, Effort, Random, SECTOR_BYTES, Sector, SectorRange};

use super::bell::{ThreadBell, Turn};
use super::guide::Guide;
use super::info::Opening;
use super::state::{Coverage, Held, SsdState, State};
use super::{Now, TieredDevice};
use crate::error::{Damage, TierError};
use crate::fields::crc32c;
use crate::padding::Padding;
use crate::predictor::Tuning;
use crate::profile::Profile;
use crate::record::{Entry, Kind, epoch_of, first_of};
use crate::recovery::{Indexed, Mark, Scan, Start, position_of, read_indexes, recover, scan};
use crate::ring::Ring;
use crate::scheduler::{Mode, Rule};
use crate::superblock::{
    self, PairId, RECORD_SECTORS, SIDES, SIZES_MAX, Side, Superblock, SuperblockFault, VERSION, kept_label,
};

/// What a pair is formatted with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierFormat {
    /// Sectors of the hard disk's log; `None`: a 64th of the hard disk, 16 GiB at most, but no less than the least that works.
    pub hdd_log_sectors: Option<u64>,
    /// Sectors of a record's payload at most.
    pub record_sectors_max: u16,
    /// Sectors of each log that may wait for a sync: what memory keeps, and what is looked for behind the last mark; `None`: a quarter of the
    /// solid-state drive, but no less than 16 MiB and no more than 64.
    pub unmarked_sectors_max: Option<u32>,
    /// What is known of the hard disk's write buffer; without it nothing is redirected.
    pub profile: Option<Profile>,
    /// The queue of the solid-state drive that is not long yet, if it was measured.
    pub queue_max: Option<u16>,
}

impl Default for TierFormat {
    fn default() -> TierFormat {
        TierFormat {
            hdd_log_sectors: None,
            record_sectors_max: 256,
            unmarked_sectors_max: None,
            profile: None,
            queue_max: None,
        }
    }
}

/// Which log a write goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a pair has one of it, and copies it")]
pub enum Steering {
    /// The solid-state drive's, while it works.
    Ssd,
    /// The one where it completes sooner, by the profile of the hard disk that the pair was formatted with; without one the
    /// solid-state drive's.
    Predicted {
        /// When a write is redirected.
        rule: Rule,
        /// How the predictor decides what the profile leaves open, and with what the drive is padded.
        tuning: Tuning,
    },
    /// Every so many writes the hard disk's: for tests and drills.
    EveryNth(NonZeroU64),
}

/// How an open pair does its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TierTuning {
    /// Which log a write goes to.
    pub steering: Steering,
    /// Sectors that are brought home together.
    pub drain_sectors_max: u64,
    /// From here on [`TieredDevice::tend`] brings home what waits: so full is one of the logs.
    pub drain_from_percent: u64,
    /// And whatever waits, once nobody has read or written for so long;
    pub drain_when_idle: Duration,
    /// or, though somebody reads, has written for so long: a disk that is read all the time would never come to rest.
    pub drain_though_read: Duration,
    /// And, though somebody writes, what waits for so long, so that a solid-state drive that dies takes less: in batches of so many
    /// sectors,
    pub drain_when_old: Duration,
    /// see above,
    pub drain_old_sectors_max: u64,
    /// for so many percent of the time, since nothing is redirected meanwhile;
    pub drain_old_percent: u32,
    /// or for so many, where nothing was redirected for a minute.
    pub drain_old_percent_unused: u32,
    /// A sync copies to the solid-state drive what the hard disk's buffer holds, if that is so many sectors at most, instead of syncing
    /// the hard disk too.
    pub copy_sectors_max: u64,
    /// An index is written when so many sectors of both logs are in marks and in no index: so much an opening reads, and what is in no mark.
    pub index_every_sectors: u64,
    /// Records of both logs that memory has at most, some 400 bytes each: when they are so many, a write waits as if its log were full.
    pub records_max: usize,
}

impl TierTuning {
    /// Whether what waits is brought home, when nobody wrote and nobody read for so long.
    pub(super) fn is_idle(&self, unwritten: Duration, unread: Duration) -> bool {
        unwritten >= self.drain_when_idle && (unread >= self.drain_when_idle || unwritten >= self.drain_though_read)
    }

    /// Writes are steered by the profile of the hard disk. `queue_max`: the queue of the solid-state drive that is not long yet, from
    /// [`queue_threshold`](crate::queue_threshold).
    pub fn steered(mode: Mode, queue_max: usize) -> TierTuning {
        let (padding, copy_sectors_max) = match mode {
            Mode::Disabled => (Padding::for_latency(), COPY_SECTORS_MAX),
            // What is copied wears it.
            Mode::EnabledFast | Mode::Enabled => (Padding::for_wear(), 0),
        };
        let rule = Rule::of(mode, queue_max);
        let steering = Steering::Predicted { rule, tuning: Tuning { padding, ..Tuning::default() } };
        TierTuning { steering, copy_sectors_max, ..TierTuning::default() }
    }
}

impl Default for TierTuning {
    fn default() -> TierTuning {
        TierTuning {
            steering: Steering::Ssd,
            drain_sectors_max: 4096,
            drain_from_percent: 50,
            drain_when_idle: Duration::from_secs(5),
            drain_though_read: Duration::from_secs(60),
            drain_when_old: Duration::from_secs(300),
            drain_old_sectors_max: 256,
            drain_old_percent: 2,
            drain_old_percent_unused: 25,
            copy_sectors_max: 0,
            index_every_sectors: INDEX_EVERY_SECTORS,
            records_max: RECORDS_MAX,
        }
    }
}

impl TieredDevice {
    /// Makes a pair of two devices. **What they held is lost.**
    ///
    /// # Errors
    /// [`TierError::TooSmall`], [`TierError::Setting`], [`TierError::Profile`], [`TierError::Device`].
    pub fn format(
        hdd: &dyn Device,
        ssd: &dyn Device,
        format: &TierFormat,
        random: &dyn Random,
    ) -> Result<PairId, TierError> {
        let superblock = plan_format(hdd, ssd, format, PairId::new(random))?;
        // The hard disk last: what has its superblock is a pair.
        superblock.store(ssd, Side::Ssd)?;
        superblock.store(hdd, Side::Hdd)?;
        Ok(superblock.id)
    }

    /// Opens a pair. `ssd` may be missing if its loss is known to the hard disk; or if the pair is at rest, and then it is lost from now on.
    ///
    /// # Errors
    /// Any of [`TierError`] but those of [`TieredDevice::format`].
    pub fn open(
        hdd: Arc<dyn Device>,
        ssd: Option<Arc<dyn Device>>,
        now: Now,
        tuning: TierTuning,
    ) -> Result<TieredDevice, TierError> {
        let (device, was_at_rest) = TieredDevice::read(hdd, ssd, now, tuning, Reading::ByIndex)?;
        device.settle_opening(was_at_rest)?;
        Ok(device)
    }

    /// What the logs of a pair say, and whether it was at rest. Nothing is written, but that indexes are not read any more which could not be.
    pub(super) fn read(
        hdd: Arc<dyn Device>,
        ssd: Option<Arc<dyn Device>>,
        now: Now,
        tuning: TierTuning,
        reading: Reading,
    ) -> Result<(TieredDevice, bool), TierError> {
        let of_hdd = side_of(&*hdd, Side::Hdd)?;
        let was_at_rest = of_hdd.at_rest;
        let (mut superblock, ssd) = match (of_hdd.ssd_lost, ssd) {
            (true, _) => (of_hdd, None),
            (false, None) if was_at_rest => (Superblock { ssd_lost: true, index: None, ..of_hdd }, None),
            (false, None) => return Err(TierError::SsdMissing { hdd: hdd.label() }),
            (false, Some(ssd)) => {
                let of_ssd = side_of(&*ssd, Side::Ssd)?;
                if of_ssd.id != of_hdd.id {
                    return Err(TierError::OtherPair { hdd: hdd.label(), ssd: ssd.label() });
                }
                // It is always stored on the solid-state drive first, in both slots.
                if of_ssd.generation < of_hdd.generation {
                    return Err(TierError::OlderCopy {
                        hdd: hdd.label(),
                        ssd: ssd.label(),
                        found: of_ssd.generation,
                        known: of_hdd.generation,
                    });
                }
                (of_ssd, Some(ssd))
            }
        };
        if let Some(ssd) = &ssd {
            superblock.ssd_label = kept_label(ssd.label());
        }
        superblock.at_rest = false;
        let mut scans = [Scan::default(), Scan::default()];
        let mut indexed = None;
        if !was_at_rest {
            indexed = match (&ssd, reading) {
                (Some(ssd), Reading::ByIndex) => indexes(&*hdd, &**ssd, &mut superblock)?,
                (Some(_), Reading::Whole) | (None, _) => None,
            };
            let starts = indexed.as_ref().map_or_else(|| Start::whole(&superblock), |indexed| indexed.starts);
            scans[Side::Hdd as usize] = scan(&*hdd, Side::Hdd, &superblock, starts[Side::Hdd as usize])?;
            if let Some(ssd) = &ssd {
                scans[Side::Ssd as usize] = scan(&**ssd, Side::Ssd, &superblock, starts[Side::Ssd as usize])?;
                // Of one that went meanwhile, all that did not read says nothing.
                side_of(&**ssd, Side::Ssd)?;
            }
        }
        let device = TieredDevice {
            now,
            tuning,
            home: superblock.home,
            logs: superblock.logs,
            draining: Turn::default(),
            syncing: Turn::default(),
            state: Mutex::new(State::new(superblock, [Ring::new(1, 0, 0); 2], tuning.records_max)),
            bell: Arc::<ThreadBell>::default(),
            hdd,
            ssd,
        };
        device.take_up(indexed, scans)?;
        Ok((device, was_at_rest))
    }

    /// Makes memory's picture of what indexes and the logs behind them say.
    fn take_up(&self, mut indexed: Option<Indexed>, mut scans: [Scan; 2]) -> Result<(), TierError> {
        let mut state = self.state();
        let damaged = |damage| TierError::Damaged { label: self.hdd.label(), damage };
        let of_indexes = indexed.as_mut().map(|indexed| indexed.take_mark(state.superblock.floor));
        let mut marks: BTreeMap<u64, Mark> = of_indexes.into_iter().collect();
        scans.iter_mut().for_each(|scan| marks.append(&mut scan.marks));
        let recovered = recover(&state.superblock, marks, &scans).map_err(damaged)?;
        let mut unlisted = recovered.unlisted;
        for entry in recovered.unpromised {
            unlisted.extend(self.readable(entry)?);
        }
        let mut seqs: Vec<u64> = unlisted.iter().map(|entry| entry.seq).collect();
        let mut records: BTreeMap<u64, Held> = BTreeMap::new();
        let mut heads = [0, 1].map(|side: usize| scans[side].head);
        for (position, item) in indexed.iter_mut().flat_map(|indexed| std::mem::take(&mut indexed.items)) {
            let (side, kind, sectors) = (item.side, item.kind, item.sectors());
            let (replaces, told) = (item.replaces, item.told);
            let held = Held { side, position, sectors, kind, replaces, told, entries: Vec::new(), memory: None };
            records.insert(item.seq, held);
        }
        for (position, header) in scans.iter().flat_map(|scan| &scan.headers) {
            records.insert(header.seq, Held::of(header, *position));
        }
        for entry in recovered.listed.into_iter().chain(unlisted) {
            let (tail, ring) = (state.superblock.tails[entry.side as usize], self.logs[entry.side as usize].sectors);
            let sectors = entry.sectors_of_record();
            let end = entry.place.checked_add(sectors);
            if end.is_none_or(|end| end > ring) {
                return Err(damaged(Damage::Missing { seq: entry.seq }));
            }
            let held = records.entry(entry.seq).or_insert_with(|| Held {
                side: entry.side,
                // Its header is lost; the mark says where it was.
                position: position_of(entry.place, tail, ring),
                sectors,
                kind: entry.kind,
                replaces: 0,
                told: Vec::new(),
                entries: Vec::new(),
                memory: None,
            });
            let head = &mut heads[entry.side as usize];
            *head = (*head).max(held.position + held.sectors);
            let is_home = |extent: &SectorRange| extent.end().0 <= self.home.sectors || entry.kind == Kind::Void;
            let known = (held.side, held.kind, held.position % ring, held.sectors);
            let is_it = known == (entry.side, entry.kind, entry.place, sectors);
            if !is_it || !entry.extents.iter().all(is_home) {
                return Err(damaged(Damage::Missing { seq: entry.seq }));
            }
            // A mark may list again what headers have told.
            if !held.entries.contains(&entry) {
                held.entries.push(entry);
            }
        }
        let last = records.last_key_value().map_or(0, |(seq, _)| *seq);
        let epoch = state.superblock.epoch.max(epoch_of(last)) + 1;
        state.rings = SIDES.map(|side| {
            let (log, tail) = (self.logs[side as usize], state.superblock.tails[side as usize]);
            Ring::new(log.sectors, tail, heads[side as usize].clamp(tail, tail + log.sectors))
        });
        for (seq, held) in records {
            state.hold(seq, held);
        }
        state.next_seq = first_of(epoch);
        if let (Steering::Predicted { rule, tuning }, Some(profile)) = (self.tuning.steering, &state.superblock.profile)
        {
            state.guide = Some(Guide::new(profile.clone(), rule, tuning));
        }
        state.mark_from = recovered.from;
        let whole = Start::whole(&state.superblock).map(|start| start.position);
        state.indexed = Coverage {
            next: indexed.as_ref().map_or(state.superblock.floor, |indexed| indexed.to + 1),
            positions: indexed.as_ref().map_or(whole, |indexed| indexed.starts.map(|start| start.position)),
        };
        let of_indexes = indexed.map_or(0, |indexed| indexed.read);
        state.opening = Opening { index_sectors: of_indexes, log_sectors: scans.iter().map(|scan| scan.read).sum() };
        seqs.sort_unstable();
        seqs.dedup();
        for seq in seqs {
            state.await_mark(seq);
        }
        state.superblock.epoch = epoch;
        Ok(())
    }

    /// The parts of a record that are there.
    fn readable(&self, entry: Entry) -> Result<Vec<Entry>, TierError> {
        if !entry.kind.has_content() {
            return Ok(vec![entry]);
        }
        let mut bytes = vec![0; entry.crcs.len() * SECTOR_BYTES];
        let first = Sector(self.logs[entry.side as usize].first.0 + entry.place + entry.kind.header_sectors());
        let device = match entry.side {
            Side::Ssd => self.ssd.as_ref().expect("its log was read"),
            Side::Hdd => &self.hdd,
        };
        let failed = device.read(first, &mut bytes, Effort::Retry)?;
        let unread: Vec<u64> = failed.iter().map(|failed| failed.sector.0 - first.0).collect();
        let is_there = |at: u64| {
            let sector = &bytes[at as usize * SECTOR_BYTES..][..SECTOR_BYTES];
            !unread.contains(&at) && crc32c(sector) == entry.crcs[at as usize]
        };
        let mut parts: Vec<Entry> = Vec::new();
        let mut at = 0;
        for extent in &entry.extents {
            for sector in extent.first.0..extent.end().0 {
                if is_there(at) {
                    let crc = entry.crcs[at as usize];
                    let one = SectorRange { first: Sector(sector), sectors: 1 };
                    match parts.last_mut() {
                        Some(part) if u64::from(part.at) + part.crcs.len() as u64 == at => {
                            part.crcs.push(crc);
                            match part.extents.last_mut() {
                                Some(last) if last.end() == one.first => last.sectors += 1,
                                _ => part.extents.push(one),
                            }
                        }
                        _ => parts.push(Entry { at: at as u32, extents: vec![one], crcs: vec![crc], ..entry.clone() }),
                    }
                }
                at += 1;
            }
        }
        Ok(parts)
    }

    /// Makes what was decided stay so. Where the solid-state drive is read and takes nothing, as one that is worn out, all that it has is
    /// brought home, and it is lost from then on.
    fn settle_opening(&self, was_at_rest: bool) -> Result<(), TierError> {
        let settled = self.mark_opening(was_at_rest);
        if self.state().ssd != SsdState::Failed {
            return settled;
        }
        let _draining = self.draining.take(&*self.bell);
        let _syncing = self.syncing.take(&*self.bell);
        self.state().unmark();
        let (floor, lost) = self.rescue()?;
        let is_gone = || self.ssd.as_ref().is_some_and(|ssd| superblock::newest(&**ssd).is_err());
        if self.state().is_unreadable(Side::Ssd) || is_gone() {
            // It may be back for the next opening.
            return settled;
        }
        Ok(self.give_up_ssd(floor, &lost)?)
    }

    /// Marks of a new epoch, and its superblock. Of a pair that was at rest no mark: until the hard disk's superblock says that it is not any
    /// more, the logs stay as they are. If the solid-state drive takes nothing, it is failed, and nothing is settled.
    fn mark_opening(&self, was_at_rest: bool) -> Result<(), TierError> {
        // A process that died leaves what it wrote in the devices' caches: a mark must not stay without what it goes on from.
        // The hard disk first, as in a sync.
        self.sync_hdd()?;
        if let Some(ssd) = &self.ssd {
            self.of_ssd(ssd.sync())?;
        }
        if was_at_rest {
            let floor = self.state().next_seq;
            return self.store_everywhere(floor);
        }
        let mut state = self.state();
        let mark_sectors = 1 + (state.list_bytes.div_ceil(SECTOR_BYTES)) as u64;
        let sides: &[Side] = if self.ssd.is_some() { &SIDES } else { &[Side::Hdd] };
        let has_room = |side: &Side| state.rings[*side as usize].has_room(mark_sectors, mark_sectors);
        let fits = state.list_bytes <= state.list_bytes_max() && sides.iter().all(has_room);
        if !fits {
            let floor = state.next_seq;
            drop(state);
            self.start_over(floor)?;
            return Ok(());
        }
        state.marking = std::mem::take(&mut state.pending);
        let mut marks = Vec::new();
        for side in sides {
            marks.push(self.stage_mark(&mut state, *side)?);
        }
        drop(state);
        for mark in &marks {
            let written = self.write_mark(mark);
            if mark.side == Side::Ssd { self.of_ssd(written)? } else { written? }
        }
        let mut state = self.state();
        let marked = std::mem::take(&mut state.marking);
        state.marked(&marked);
        let last = marks.last().expect("there is a log").seq;
        (state.durable_mark, state.mark_from) = (last, last + 1);
        let floor = state.superblock.floor;
        drop(state);
        self.store_everywhere(floor)
    }

    /// Where a log has no room even for a mark: all comes home, and the logs begin anew with the next epoch.
    fn start_over(&self, floor: u64) -> Result<(), TierError> {
        let lost = self.bring_home(floor)?;
        let mut state = self.state();
        let below: Vec<u64> = std::mem::take(&mut state.pending);
        let in_no_mark = |range: &SectorRange| {
            let pieces = state.overlay.over(*range);
            pieces.iter().filter_map(|piece| piece.place).any(|place| below.binary_search(&place.seq).is_ok())
        };
        // These first: the first mark makes their records void.
        let (first, rest): (Vec<_>, Vec<_>) = lost.into_iter().partition(in_no_mark);
        state.marked(&below);
        drop(state);
        for lost in [first, rest] {
            self.say_lost(&lost, floor, &|| self.sync_all())?;
        }
        self.sync_all()?;
        self.store_everywhere(floor)
    }

    /// Stores the superblock on both devices, with this floor.
    fn store_everywhere(&self, floor: u64) -> Result<(), TierError> {
        let mut state = self.state();
        let superblock = state.superblock_above(floor);
        if let Some(ssd) = self.ssd.as_ref().filter(|_| state.ssd != SsdState::Lost) {
            let stored = superblock.store(&**ssd, Side::Ssd);
            if stored.is_err() {
                drop(state);
                return self.of_ssd(stored);
            }
        }
        superblock.store(&*self.hdd, Side::Hdd)?;
        state.superblock = superblock;
        state.free_below(floor);
        Ok(())
    }

    /// Notes that the solid-state drive did not take something.
    fn of_ssd(&self, result: Result<(), DeviceError>) -> Result<(), TierError> {
        result.inspect_err(|error| self.ssd_failed(error)).map_err(TierError::from)
    }
}

/// How the logs of a pair are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    /// Indexes, and what lies behind the last record that they have.
    ByIndex,
    /// All of both logs.
    #[cfg_attr(not(test), expect(dead_code, reason = "what tests hold the other one to"))]
    Whole,
}

/// The indexes of a pair. Where they do not read, no later opening shall go by them: it might find of older records what this one does not. That is
/// on both devices before anything is decided.
fn indexes(hdd: &dyn Device, ssd: &dyn Device, superblock: &mut Superblock) -> Result<Option<Indexed>, TierError> {
    if superblock.index.is_none() {
        return Ok(None);
    }
    let indexed = read_indexes(ssd, superblock)?;
    if indexed.is_none() {
        tracing::warn!(
            disk = hdd.label(),
            "the index of its logs cannot be read: all of both logs is, which takes longer"
        );
        superblock.index = None;
        superblock.generation += 1;
        superblock.store(ssd, Side::Ssd)?;
        superblock.store(hdd, Side::Hdd)?;
    }
    Ok(indexed)
}

/// Sectors that a log has at least: what is left free, and as much again.
pub(super) fn log_sectors_min(record_sectors_max: u16, unmarked_sectors_max: u32) -> u64 {
    8 * (u64::from(record_sectors_max) + 1) + u64::from(unmarked_sectors_max)
}

fn plan_format(hdd: &dyn Device, ssd: &dyn Device, format: &TierFormat, id: PairId) -> Result<Superblock, TierError> {
    let setting = |what, found: u64, least: u64, most: u64| match (least..=most).contains(&found) {
        true => Ok(()),
        false => Err(TierError::Setting { what, found, least, most }),
    };
    let record = u64::from(format.record_sectors_max);
    setting("a record's sectors", record, (*RECORD_SECTORS.start()).into(), (*RECORD_SECTORS.end()).into())?;
    let usual = || (ssd.geometry().sectors / 4).clamp(*UNMARKED_SECTORS.start(), *UNMARKED_SECTORS.end());
    let unmarked = format.unmarked_sectors_max.map_or_else(usual, u64::from);
    setting("the sectors that may wait for a sync", unmarked, 2 * (record + 1), 1 << 20)?;
    if let Some(profile) = &format.profile {
        profile.check()?;
        setting("the profile's lengths", profile.sizes.len() as u64, 1, SIZES_MAX as u64)?;
    }
    let unmarked_sectors_max = unmarked as u32;
    let sectors = [ssd.geometry().sectors, hdd.geometry().sectors];
    let log_min = log_sectors_min(format.record_sectors_max, unmarked_sectors_max);
    let too_small = |device: &dyn Device, sectors_min: u64| {
        let sectors = device.geometry().sectors;
        if sectors < sectors_min {
            Err(TierError::TooSmall { label: device.label(), sectors, sectors_min })
        } else {
            Ok(())
        }
    };
    too_small(ssd, log_min + 2)?;
    let ssd_log = SectorRange { first: Sector(1), sectors: sectors[0] - 2 };
    let hdd_log_min = log_min + ssd_log.sectors.div_ceil(LOST_SHARE);
    let wanted = format.hdd_log_sectors.unwrap_or((sectors[1] / 64).min(HDD_LOG_SECTORS)).max(hdd_log_min);
    too_small(hdd, wanted + 3)?;
    let hdd_log = SectorRange { first: Sector(1), sectors: wanted };
    let home = SectorRange { first: hdd_log.end(), sectors: sectors[1] - 2 - wanted };
    let tails = [0; 2];
    Ok(Superblock {
        ssd_lost: false,
        at_rest: false,
        id,
        generation: 1,
        floor: first_of(1),
        epoch: 0,
        record_sectors_max: format.record_sectors_max,
        unmarked_sectors_max,
        sectors,
        logs: [ssd_log, hdd_log],
        home,
        tails,
        index: None,
        ssd_label: kept_label(ssd.label()),
        queue_max: format.queue_max.map(|queue| queue.min(u16::MAX - 1)),
        profile: format
            .profile
            .clone()
            .map(|profile| Profile { device: superblock::shortened(&profile.device).to_owned(), ..profile }),
    })
}

/// The superblock of a device that shall be one side.
pub(super) fn side_of(device: &dyn Device, side: Side) -> Result<Superblock, TierError> {
    let label = device.label();
    match superblock::newest(device)? {
        Err(SuperblockFault::Foreign) => Err(TierError::NotATier { label }),
        Err(SuperblockFault::Other(found)) => Err(TierError::OtherVersion { label, found, supported: VERSION }),
        Ok((found, superblock)) => {
            let is_whole = superblock.sectors[side as usize] == device.geometry().sectors;
            if found == side && is_whole {
                Ok(superblock)
            } else {
                Err(TierError::OtherSide { label, side: side.name() })
            }
        }
    }
}

/// Of the solid-state drive's log, what its lost records would take of the other one.
pub(super) const LOST_SHARE: u64 = 64;
/// 16 GiB.
const HDD_LOG_SECTORS: u64 = 4 << 20;
/// Usually: 16 to 64 MiB. Of workload B a burst brings 170 MB a second with its headers, and a sync begins by itself (`sync_early`) when half is reached.
const UNMARKED_SECTORS: RangeInclusive<u64> = 4096..=16384;
/// 16 MiB, more than a second brings even of the heaviest workload of the bench: a sync of the hard disk keeps its buffer from users for 20 ms, and
/// a stall of the solid-state drive that begins then lasts for all of them.
const COPY_SECTORS_MAX: u64 = 4096;
/// 64 MiB: a second's reading, most of it of the hard disk. An index's header, what its last sector leaves free and two superblocks are 16 KiB of that.
const INDEX_EVERY_SECTORS: u64 = 16_384;
/// 400 MiB of memory, for 4 GiB of writes of a sector each.
const RECORDS_MAX: usize = 1 << 20;
