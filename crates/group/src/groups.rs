//! The executor: writes groups, and reads them with mending.
//!
//! Invariants:
//! 1. Device calls happen here and in `gathering`; every sector read is counted once.
//! 2. What a read mends or retries is written again if it was wrong, or failed softly before: a drive that fails one read in a
//!    thousand softly would else write a sector, at 5 ms, for each thousand that it reads in 33 ms. A scrub writes all.
//! 3. A mended sector that cannot be written again is counted, and fails nothing: who asked has the right bytes.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use claystone_env::{Device, DeviceError, Effort, FailedSector, SECTOR_BYTES, Sector, SectorFailure, aligned_buffer};
use thiserror::Error;

use crate::gathering::{Gathering, effort};
use crate::lost::LostPlaces;
use crate::pace::PaceMeter;
use crate::recent::Recent;
use crate::statistics::count;
use crate::sums_cache::SumsCache;
use crate::unsynced::Unsynced;
use crate::{
    BulkRun, DiskId, GroupCode, GroupPlace, GroupShape, Member, Pace, Statistics, SumsSector, Update, sector_sum,
};

/// What a caller has of a group in memory: a data sector, which counts only if it has the CRC of the one on the device,
/// or a parity sector, which must be as on the device.
pub type Cached<'a> = &'a dyn Fn(Member) -> Option<Bytes>;

/// A cache that has nothing.
pub const NOTHING_CACHED: Cached<'static> = &|_| None;

/// Why a group could not be read or written.
#[derive(Debug, Error)]
pub enum GroupError {
    /// The device failed as a whole.
    #[error("the device failed")]
    Device(#[from] DeviceError),
    /// More sectors are lost than parity can replace, and no retry reads them.
    #[error("{} of the data sectors wanted of {place} are lost, the first at position {}", .positions.len(), .positions[0])]
    Lost {
        /// The group.
        place: GroupPlace,
        /// The positions, ascending, at least one.
        positions: Vec<u32>,
    },
}

/// How a sector was not had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Not at once.
    Soft,
    /// Not by any retry.
    Lost,
    /// It was read, and is not what it should be.
    Wrong,
}

/// What was found while a group was written.
#[derive(Debug)]
pub struct NewGroup {
    /// The CRCs of its data.
    pub sums: Vec<u32>,
    /// Its parity, m sectors: who keeps it can append without a read.
    pub parity: Bytes,
}

/// The groups of one disk. Any number of threads may call any method at once, within invariant 3 of the crate.
pub struct Groups {
    device: Arc<dyn Device>,
    code: GroupCode,
    disk: DiskId,
    sums: SumsCache,
    recent: Recent,
    bridge: usize,
    pace: PaceMeter,
    counts: Statistics,
    unsynced: Unsynced,
    // Sectors that failed softly once.
    suspects: Mutex<BTreeSet<u64>>,
    lost: LostPlaces,
}

/// Sectors on the way that cost less than another request. The requests of a group are handed over at once, so that a disk that
/// turns meets them in one turn; then a request costs as much as three to four sectors: on a virtual disk 15 us for 4 KiB and
/// 26 us for 16 KiB, 32 at a time.
const BRIDGE_SECTORS: usize = 4;
/// What the sums of the swaths of a sums sector take of memory.
const SWATHS_BYTES: usize = 320;
/// Suspects that are remembered; then all are forgotten.
const SUSPECTS_MAX: usize = 1 << 16;

impl fmt::Debug for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Groups of {:?} on {}", self.code.shape(), self.device.label())
    }
}

impl Groups {
    /// The groups under `code` of the disk `disk` on `device`, with `sums_bytes` of memory for checksums: sums sectors take 4 KiB each, for 4 MiB of
    /// data. Where another place on the device costs a seek, a quarter is for these, and the rest for sums of swaths, which take 320 bytes for
    /// as much data.
    pub fn new(device: Arc<dyn Device>, code: GroupCode, disk: DiskId, sums_bytes: usize) -> Groups {
        let (sums, swaths) = match device.geometry().rotational {
            true => (sums_bytes / 4 / SECTOR_BYTES, (sums_bytes - sums_bytes / 4) / SWATHS_BYTES),
            false => (sums_bytes / SECTOR_BYTES, 0),
        };
        Groups {
            device,
            code,
            disk,
            sums: SumsCache::new(sums, swaths),
            recent: Recent::default(),
            bridge: BRIDGE_SECTORS,
            pace: PaceMeter::default(),
            counts: Statistics::default(),
            unsynced: Unsynced::default(),
            suspects: Mutex::default(),
            lost: LostPlaces::default(),
        }
    }

    /// The same, which reads up to `sectors` of a group that it does not need, between others that it needs, where that
    /// takes less time than another call of the device. With 0 it reads what the paper counts.
    pub fn with_bridge(self, sectors: usize) -> Groups {
        Groups { bridge: sectors, ..self }
    }

    /// The code of the groups.
    pub fn code(&self) -> &GroupCode {
        &self.code
    }

    /// The device.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }

    /// What the device was seen to take.
    pub fn pace(&self) -> Pace {
        self.pace.pace()
    }

    /// What was counted so far.
    pub fn statistics(&self) -> &Statistics {
        &self.counts
    }

    /// Whether no retry read a sector since the disk was opened, and nothing was written there since.
    pub fn is_known_lost(&self, sector: Sector) -> bool {
        self.lost.holds(sector)
    }

    /// How many such sectors there are, as far as they are remembered.
    pub fn known_lost(&self) -> u64 {
        self.lost.count()
    }

    /// Writes a group: `data` are the sectors in use. Returns their CRCs and the parity. In one call of the device, or two if there is
    /// room between data and parity, whose sectors are not touched.
    ///
    /// # Errors
    /// [`GroupError::Device`]; the group may then hold anything.
    ///
    /// # Panics
    /// If there is no data, more than room for, or not as much as the place says.
    pub fn write_new(&self, place: GroupPlace, data: &[&[u8]]) -> Result<NewGroup, GroupError> {
        self.assert_place(place);
        assert!(!data.is_empty(), "a group without data");
        assert_eq!(data.len(), place.data as usize, "one slice for each data sector in use");
        let parity_bytes = self.shape().parity as usize * SECTOR_BYTES;
        let mut buffer = aligned_buffer(data.len() * SECTOR_BYTES + parity_bytes);
        for sector in data {
            buffer.extend_from_slice(sector);
        }
        let data_bytes = buffer.len();
        buffer.resize(data_bytes + parity_bytes, 0);
        self.code.encode(data, &mut buffer[data_bytes..]);
        self.forget(place.first.0..place.sector(Member::Parity(self.shape().parity)).0);
        if place.data == place.capacity || parity_bytes == 0 {
            self.device.write(place.first, &buffer)?;
        } else {
            self.device.write(place.first, &buffer[..data_bytes])?;
            self.device.write(place.sector(Member::Parity(0)), &buffer[data_bytes..])?;
        }
        let sums = data.iter().map(|sector| sector_sum(sector)).collect();
        Ok(NewGroup { sums, parity: Bytes::copy_from_slice(&buffer[data_bytes..]) })
    }

    /// Reads the data positions `wanted` into `into`. `sums` are the CRCs of all data in use. What fails is mended, if
    /// need be from the rest of the group, of which `cached` is not read from the device.
    ///
    /// # Errors
    /// [`GroupError::Lost`]: the positions that it names are zeros in `into`, the others are right.
    /// [`GroupError::Device`]: nothing in `into` is sure.
    ///
    /// # Panics
    /// If nothing, or what is not in use, is wanted, or `into` is not as long.
    // Source: [lec §3.1]
    pub fn read(
        &self,
        place: GroupPlace,
        wanted: Range<u32>,
        sums: &[u32],
        cached: Cached<'_>,
        into: &mut [u8],
    ) -> Result<(), GroupError> {
        self.assert_place(place);
        assert_eq!(sums.len(), place.data as usize, "one CRC for each data sector in use");
        assert!(!wanted.is_empty() && wanted.end <= place.data, "positions {wanted:?} of {}", place.data);
        assert_eq!(into.len(), wanted.len() * SECTOR_BYTES, "room for what is wanted");
        let first = wanted.start as usize;
        let effort = self.plan_effort(wanted.len(), self.group_sectors(place) - wanted.len());
        let start = place.sector(Member::Data(wanted.start));
        let failed = self.read_checked(start, into, effort, |at| Some(sums[first + at]))?;
        if failed.is_empty() {
            return Ok(());
        }
        let mut gathering = Gathering::new(self, place, sums.iter().copied().map(Some).collect());
        gathering.lend(first, into, &failed);
        gathering.take_cached(cached);
        let needed: Vec<usize> = failed.iter().map(|(at, _)| first + at).collect();
        let restored = gathering.restore(&needed);
        gathering.settle(false);
        let mended: Vec<(usize, Bytes)> = gathering
            .mended(first..wanted.end as usize)
            .map(|(at, bytes)| (at, Bytes::copy_from_slice(bytes)))
            .collect();
        fill(into, first, &failed, &mended);
        restored
    }

    pub(crate) fn shape(&self) -> GroupShape {
        self.code.shape()
    }

    pub(crate) fn disk(&self) -> DiskId {
        self.disk
    }

    pub(crate) fn sums_cache(&self) -> &SumsCache {
        &self.sums
    }

    pub(crate) fn recent(&self) -> &Recent {
        &self.recent
    }

    pub(crate) fn lost(&self) -> &LostPlaces {
        &self.lost
    }

    pub(crate) fn bridge(&self) -> usize {
        self.bridge
    }

    pub(crate) fn counts(&self) -> &Statistics {
        &self.counts
    }

    /// Sectors of a group that are on the device.
    pub(crate) fn group_sectors(&self, place: GroupPlace) -> usize {
        (place.data + self.shape().parity) as usize
    }

    /// How `wanted` sectors of a group are read, where `fetched` more would be read to decode what fails of them.
    pub(crate) fn plan_effort(&self, wanted: usize, fetched: usize) -> Effort {
        let usual = effort(self.shape().parity);
        if usual == Effort::Retry || !self.device.geometry().fails_fast {
            return usual;
        }
        let planned = self.pace.pace().plan_effort(wanted as u64, fetched as u64, self.counts.now().soft_rate());
        if planned == Effort::Retry && self.pace.retries_at_once() { planned } else { usual }
    }

    /// Reads consecutive sectors, and checks those whose CRC is given. Returns the places of those that failed, ascending.
    pub(crate) fn read_checked(
        &self,
        first: Sector,
        into: &mut [u8],
        effort: Effort,
        sum: impl Fn(usize) -> Option<u32>,
    ) -> Result<Vec<(usize, Failure)>, DeviceError> {
        let mut unread = self.read_each(&mut [(first, &mut *into)], effort);
        Ok(self.checked(first, into, effort, unread.pop().expect("one for each read")?, sum))
    }

    /// As [`Device::read_each`](claystone_env::Device::read_each), timed.
    pub(crate) fn read_each(
        &self,
        reads: &mut [(Sector, &mut [u8])],
        effort: Effort,
    ) -> Vec<Result<Vec<FailedSector>, DeviceError>> {
        let begun = self.device.elapsed();
        let unread = match reads {
            [(first, into)] => vec![self.device.read(*first, into, effort)],
            _ => self.device.read_each(reads, effort),
        };
        if let (Some(begun), Some(ended)) = (begun, self.device.elapsed()) {
            let took = ended.saturating_sub(begun);
            let failed = |failure| move |failed: &&FailedSector| failed.failure == failure;
            let given_up = unread.iter().flatten().flatten().filter(failed(SectorFailure::Lost)).count();
            if given_up > 0 {
                self.pace.note_retry(took / given_up as u32);
            } else {
                self.pace.note_read(reads.iter().map(|(_, into)| into.len() / SECTOR_BYTES).sum(), took);
            }
        }
        unread
    }

    /// As [`Groups::read_checked`] of several places at once, each with what gives the CRCs of its sectors.
    pub(crate) fn read_checked_each(
        &self,
        reads: &mut [(Sector, &mut [u8])],
        effort: Effort,
        sum: impl Fn(usize, usize) -> Option<u32>,
    ) -> Result<Vec<Vec<(usize, Failure)>>, DeviceError> {
        let done = self.read_each(reads, effort);
        let reads = reads.iter().zip(done).enumerate();
        reads
            .map(|(read, ((first, into), unread))| Ok(self.checked(*first, into, effort, unread?, |at| sum(read, at))))
            .collect()
    }

    /// Counts what was read, and finds what failed.
    pub(crate) fn checked(
        &self,
        first: Sector,
        bytes: &[u8],
        effort: Effort,
        unread: Vec<FailedSector>,
        sum: impl Fn(usize) -> Option<u32>,
    ) -> Vec<(usize, Failure)> {
        let sectors = bytes.len() / SECTOR_BYTES;
        count(&self.counts.sectors_read, sectors);
        if effort == Effort::FailFast && self.device.geometry().fails_fast {
            count(&self.counts.sectors_fail_fast, sectors);
            count(
                &self.counts.soft_failures,
                unread.iter().filter(|failed| failed.failure == SectorFailure::Soft).count(),
            );
        }
        let mut unread = unread.into_iter().peekable();
        let mut failed = Vec::new();
        for (at, bytes) in bytes.chunks_exact(SECTOR_BYTES).enumerate() {
            if let Some(sector) = unread.next_if(|failed| failed.sector.0 == first.0 + at as u64) {
                failed.push((at, sector.failure.into()));
                if sector.failure == SectorFailure::Lost {
                    self.lost.note(sector.sector);
                }
            } else if sum(at).is_some_and(|sum| sum != sector_sum(bytes)) {
                count(&self.counts.mismatches, 1);
                failed.push((at, Failure::Wrong));
            }
        }
        for place in self.lost.among(first.0..first.0 + sectors as u64) {
            if failed.binary_search_by_key(&((place - first.0) as usize), |(at, _)| *at).is_err() {
                self.lost.forget(place..place + 1);
            }
        }
        failed
    }

    /// Reads a sector that failed by retrying; returns whether that worked.
    pub(crate) fn read_retrying(&self, place: Sector, into: &mut [u8]) -> Result<bool, DeviceError> {
        count(&self.counts.sectors_read, 1);
        count(&self.counts.retries, 1);
        let begun = self.device.elapsed();
        let read = self.device.read(place, into, Effort::Retry)?.is_empty();
        if let (Some(begun), Some(ended)) = (begun, self.device.elapsed()) {
            self.pace.note_retry(ended.saturating_sub(begun));
        }
        Ok(read)
    }

    /// Notes that a sector failed; returns whether it had before.
    pub(crate) fn suspect(&self, sector: Sector) -> bool {
        let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        if suspects.len() == SUSPECTS_MAX {
            suspects.clear();
        }
        !suspects.insert(sector.0)
    }

    /// Syncs the device: all groups that were written are durable.
    ///
    /// # Errors
    /// The device failed, and what was written may be lost.
    pub fn sync(&self) -> Result<(), DeviceError> {
        let sync = self.unsynced.begin_sync();
        self.device.sync()?;
        self.unsynced.end_sync(sync);
        Ok(())
    }

    /// Writes an update of a group.
    ///
    /// # Errors
    /// The device failed: the group may then hold old and new sectors and parity that fits neither.
    pub fn write_update(&self, update: &Update) -> Result<(), DeviceError> {
        self.write_in_place([update].into_iter(), &update.requests().collect::<Vec<_>>())
    }

    /// Writes over what groups hold, for which updates were prepared, and keeps what they have there now for the next ones.
    pub(crate) fn write_in_place<'u>(
        &self,
        updates: impl Iterator<Item = &'u Update> + Clone,
        requests: &[(Sector, &[u8])],
    ) -> Result<(), DeviceError> {
        for (first, bytes) in requests {
            self.recent.forget(first.0..first.0 + (bytes.len() / SECTOR_BYTES) as u64);
        }
        let mended: Vec<bool> = updates.clone().map(|update| self.begin_update(update.place)).collect();
        if mended.contains(&true) {
            self.sync()?;
        }
        self.device.write_each(requests)?;
        for (first, bytes) in requests {
            self.lost.forget(first.0..first.0 + (bytes.len() / SECTOR_BYTES) as u64);
        }
        for update in updates {
            update.written().for_each(|(first, bytes)| self.recent.keep_written(first, bytes));
            self.unsynced.end_update(update.place);
        }
        Ok(())
    }

    /// An update that was prepared is not going to be written: what fails of its group is mended again, behind the next sync.
    pub fn give_up_update(&self, update: &Update) {
        self.unsynced.end_update(update.place);
    }

    /// A group is going to be updated: nothing of it is mended from now on. Returns whether something was that is not synced.
    pub(crate) fn begin_update(&self, place: GroupPlace) -> bool {
        self.unsynced.begin_update(place)
    }

    /// Whether what fails of a group is written again now.
    pub(crate) fn may_mend(&self, place: GroupPlace) -> bool {
        self.unsynced.may_mend(place)
    }

    /// Whether something of a group was mended, and is not synced.
    pub(crate) fn is_mended(&self, place: GroupPlace) -> bool {
        self.unsynced.is_mended(place)
    }

    /// Writes again what a group should hold, but not beside an update that is not synced, nor more than m sectors of it between two syncs: then
    /// it will fail again. Returns whether it was written.
    pub(crate) fn mend(&self, place: GroupPlace, first: Sector, bytes: &[u8]) -> bool {
        let sectors = (bytes.len() / SECTOR_BYTES) as u32;
        self.unsynced.mend(std::iter::once(place), sectors, self.shape().parity, || self.write_mended(first, bytes))
    }

    /// As [`Groups::mend`], a sums sector of a run.
    pub(crate) fn mend_sums(&self, run: BulkRun, number: u32, sums: &SumsSector) -> bool {
        let (shape, place) = (self.shape(), run.sums(number, self.shape()));
        let groups = run.summed_groups(number, shape).map(|group| run.group(group, shape));
        self.unsynced.mend(groups, 1, shape.parity, || self.write_mended(place, &sums.encode(self.disk, place)))
    }

    /// Writes those sums sectors again that memory has and the device does not read: for one that has lost some of what it held. Nobody
    /// updates groups meanwhile. Returns how many that were.
    ///
    /// # Errors
    /// As [`Device::read`].
    pub fn write_sums_again(&self) -> Result<u64, DeviceError> {
        let places = self.sums.whole_places();
        let mut kept = 0;
        for places in places.chunks(KEPT_AT_ONCE) {
            let mut bytes = aligned_buffer(places.len() * SECTOR_BYTES);
            bytes.resize(places.len() * SECTOR_BYTES, 0);
            let mut reads: Vec<(Sector, &mut [u8])> =
                places.iter().copied().zip(bytes.chunks_exact_mut(SECTOR_BYTES)).collect();
            for (place, read) in places.iter().zip(self.device.read_each(&mut reads, Effort::Retry)) {
                if let (false, Some(sums)) = (read?.is_empty(), self.sums.whole(*place)) {
                    self.write_mended(*place, &sums.encode(self.disk, *place));
                    kept += 1;
                }
            }
        }
        Ok(kept)
    }

    /// Makes updates durable, if what fails of their groups is not written again before.
    ///
    /// # Errors
    /// As [`Groups::sync`].
    pub fn sync_updates(&self) -> Result<(), DeviceError> {
        if self.unsynced.wants_sync() { self.sync() } else { Ok(()) }
    }

    /// Writes again what the device should hold.
    fn write_mended(&self, first: Sector, bytes: &[u8]) {
        let sectors = first.0..first.0 + (bytes.len() / SECTOR_BYTES) as u64;
        self.recent.forget(sectors.clone());
        match self.device.write(first, bytes) {
            Ok(()) => self.lost.forget(sectors.clone()),
            Err(_) => count(&self.counts.mends_not_written, bytes.len() / SECTOR_BYTES),
        }
        // Others read meanwhile, and what they read of parity has no CRC to tell it by.
        self.recent.forget(sectors);
    }

    /// Forgets what memory has of sectors whose place something new takes.
    pub(crate) fn forget(&self, sectors: Range<u64>) {
        self.recent.forget(sectors.clone());
        self.lost.forget(sectors.clone());
        self.sums.forget(sectors);
    }

    pub(crate) fn assert_place(&self, place: GroupPlace) {
        assert!(place.data <= place.capacity, "{} data sectors in room for {}", place.data, place.capacity);
        assert!(
            place.capacity <= self.shape().data,
            "room for {} of {} data sectors",
            place.capacity,
            self.shape().data
        );
    }
}

/// Sums sectors that are read together.
const KEPT_AT_ONCE: usize = 256;

/// Puts mended members into what was read from `first` on, and zeros where nothing is right.
pub(crate) fn fill(into: &mut [u8], first: usize, failed: &[(usize, Failure)], mended: &[(usize, Bytes)]) {
    for (at, _) in failed {
        into[at * SECTOR_BYTES..][..SECTOR_BYTES].fill(0);
    }
    for (at, bytes) in mended {
        into[(at - first) * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(bytes);
    }
}
