//! Bulk runs: groups with their CRCs in sums sectors between them, written and read in long strides.
//!
//! A sums sector that does not read is not retried: parity is a second checksum. Each of its groups, when it is next
//! read, is read whole and must be a codeword with a parity sector to spare; so its CRCs are learnt, and when those of
//! all groups are, the sums sector is written again. Whoever streams through a run does so without a further read.
//!
//! Invariants:
//! 1. Sums in memory are those that the device should hold: both are changed together ([`Groups::write_bulk_update`]).
//! 2. A read that goes on behind a group reads its parity, and the sums sector behind it, in the same call of the device:
//!    the head of a hard disk never waits, and nothing is copied.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use claystone_env::{DeviceError, Effort, FailedSector, SECTOR_BYTES, Sector, aligned_buffer};

use crate::gathering::{Gathering, effort};
use crate::groups::fill;
use crate::statistics::count;
use crate::update::Preparation;
use crate::{
    BulkRun, Cached, Change, GroupError, GroupShape, Groups, Member, NOTHING_CACHED, SUMS_PER_SECTOR, SumsSector,
    Update, UpdateChoice, sector_sum,
};

/// What a read takes of one group.
struct Part {
    group: u32,
    positions: Range<usize>,
    // Sectors behind the data that are read with it: parity, and maybe a sums sector; or none.
    behind: usize,
}

/// Consecutive sectors that were asked for.
struct Piece<'a> {
    first: Sector,
    bytes: &'a mut [u8],
    unread: Result<Vec<FailedSector>, DeviceError>,
}

/// What a write to a device has at least, where there is more to write.
const WRITE_BYTES: usize = 4 << 20;

/// What changes in a group of a bulk run.
#[derive(Debug, Clone)]
pub struct GroupChanges<'a> {
    /// Which group.
    pub group: u32,
    /// Its changes, in ascending order.
    pub changes: Vec<Change<'a>>,
}

/// Writes that update groups of a bulk run.
#[derive(Debug)]
pub struct BulkUpdate {
    /// Those of the groups, in their order.
    pub updates: Vec<Update>,
    /// The sums sectors of what changes, each once, ascending.
    pub sums: Vec<SumsUpdate>,
}

/// A sums sector as it will be.
#[derive(Debug, Clone)]
pub struct SumsUpdate {
    /// Where it is.
    pub place: Sector,
    /// What it holds.
    pub sums: SumsSector,
    /// Whether that is other than before.
    pub differs: bool,
}

impl Groups {
    /// Writes a run: `data` are its sectors. Its sums are then in memory.
    ///
    /// # Errors
    /// [`GroupError::Device`]; the run may then hold anything.
    ///
    /// # Panics
    /// If there are not as many sectors as the run says, or not whole groups of them.
    pub fn write_bulk(&self, run: BulkRun, data: &[&[u8]]) -> Result<(), GroupError> {
        let shape = self.shape();
        assert_eq!(data.len(), run.data as usize, "one slice for each data sector of the run");
        let parity_bytes = shape.parity as usize * SECTOR_BYTES;
        let group_bytes = shape.data as usize * SECTOR_BYTES + parity_bytes;
        let total = BulkRun::sectors_total(run.groups(shape), shape) as usize * SECTOR_BYTES;
        let mut buffer = aligned_buffer(total.min(WRITE_BYTES + group_bytes + SECTOR_BYTES));
        let mut next = run.first.0;
        let mut written: Vec<(Sector, SumsSector)> = Vec::new();
        for (group, sectors) in (0..).zip(data.chunks_exact(shape.data as usize)) {
            if let Some(number) = run.sums_before(group, shape) {
                let summed = run.summed(number);
                let sums = SumsSector::of(&data[summed.start as usize..summed.end as usize]);
                let place = run.sums(number, shape);
                buffer.extend_from_slice(&sums.encode(self.disk(), place));
                written.push((place, sums));
            }
            for sector in sectors {
                buffer.extend_from_slice(sector);
            }
            let data_end = buffer.len();
            buffer.resize(data_end + parity_bytes, 0);
            self.code().encode(sectors, &mut buffer[data_end..]);
            if buffer.len() >= WRITE_BYTES || group + 1 == run.groups(shape) {
                self.device().write(Sector(next), &buffer)?;
                next += (buffer.len() / SECTOR_BYTES) as u64;
                buffer.clear();
            }
        }
        for (place, sums) in written {
            self.sums_cache().put(place, sums);
        }
        Ok(())
    }

    /// Reads the data sectors `wanted` of a run into `into`; see [`Groups::read`]. `cached` is asked for the run's data
    /// sectors by number.
    ///
    /// # Errors
    /// As [`Groups::read`] of the first group that has one; groups before it are right in `into`, those behind it are not
    /// checked.
    ///
    /// # Panics
    /// If nothing, or what is not in the run, is wanted, or `into` is not as long.
    // Source: [lec §3.2]
    pub fn read_bulk(
        &self,
        run: BulkRun,
        wanted: Range<u64>,
        cached: &dyn Fn(u64) -> Option<Bytes>,
        into: &mut [u8],
    ) -> Result<(), GroupError> {
        let shape = self.shape();
        assert!(wanted.start < wanted.end && wanted.end <= run.data.into(), "sectors {wanted:?} of {}", run.data);
        assert_eq!(into.len(), (wanted.end - wanted.start) as usize * SECTOR_BYTES, "room for what is wanted");
        let parts = parts(run, wanted, shape);
        let behind = parts.iter().map(|part| part.behind).sum::<usize>() * SECTOR_BYTES;
        let mut between = if behind == 0 { BytesMut::new() } else { aligned_buffer(behind) };
        between.resize(behind, 0);
        // They lie before what is wanted; those of later groups are read with it.
        let mut first_sums = Some(self.group_sums(run, parts[0].group, parts[0].positions.clone())?);
        let (mut into, mut between) = (into, &mut between[..]);
        let mut reads: Vec<(Sector, &mut [u8])> = Vec::new();
        for part in &parts {
            let place = run.group(part.group, shape);
            let data = into.split_off_mut(..part.positions.len() * SECTOR_BYTES).expect("room for what is wanted");
            reads.push((place.sector(Member::Data(part.positions.start as u32)), data));
            if part.behind > 0 {
                let behind = between.split_off_mut(..part.behind * SECTOR_BYTES).expect("room for all that is behind");
                reads.push((place.sector(Member::Parity(0)), behind));
            }
        }
        let unread = self.device().read_each(&mut reads, effort(shape.parity));
        let mut done = reads.into_iter().zip(unread).map(|((first, bytes), unread)| Piece { first, bytes, unread });
        for part in parts {
            let mut piece = || done.next().expect("each piece was read");
            let (data, behind) = (piece(), (part.behind > 0).then(piece));
            let group_first = u64::from(part.group) * u64::from(shape.data);
            let cached = |member| match member {
                Member::Data(position) => cached(group_first + u64::from(position)),
                Member::Parity(_) => None,
            };
            self.take_part(run, part, first_sums.take(), data, behind, &cached)?;
        }
        Ok(())
    }

    /// A sums sector of a run, from memory or the device; if it does not read there, from its groups.
    ///
    /// # Errors
    /// [`GroupError::Lost`] if it cannot be had, and its groups cannot be shown to be right. [`GroupError::Device`].
    ///
    /// # Panics
    /// If there is no such sums sector.
    pub fn sums_sector(&self, run: BulkRun, number: u32) -> Result<SumsSector, GroupError> {
        let shape = self.shape();
        let place = run.sums(number, shape);
        if let Some(sums) = self.sums_cache().whole(place) {
            return Ok(sums);
        }
        if let Some(sums) = self.load_sums(place, effort(shape.parity))? {
            return Ok(sums);
        }
        let mut sums = SumsSector::default();
        let summed = run.summed(number);
        for group in run.summed_groups(number, shape) {
            let group_first = u64::from(group) * u64::from(shape.data);
            for (sector, sum) in (group_first..).zip(self.known_sums(run, group)?) {
                if summed.contains(&sector) {
                    sums.set((sector - summed.start) as usize, sum);
                }
            }
        }
        Ok(sums)
    }

    /// Writes an update, to the device and the sums to memory too: all at once, where the device can.
    ///
    /// # Errors
    /// [`GroupError::Device`]; all of it may then hold anything.
    pub fn write_bulk_update(&self, update: &BulkUpdate) -> Result<(), GroupError> {
        let BulkUpdate { updates, sums } = update;
        sums.iter().for_each(|sums| self.sums_cache().forget(sums.place));
        let encoded: Vec<(Sector, Vec<u8>)> =
            sums.iter().map(|sums| (sums.place, sums.sums.encode(self.disk(), sums.place))).collect();
        let sums_requests = encoded.iter().map(|(place, bytes)| (*place, &bytes[..]));
        let mut requests: Vec<(Sector, &[u8])> =
            updates.iter().flat_map(Update::requests).chain(sums_requests).collect();
        // As the head of a hard disk comes by.
        requests.sort_unstable_by_key(|(first, _)| *first);
        self.device().write_each(&requests)?;
        sums.iter().for_each(|sums| self.sums_cache().put(sums.place, sums.sums.clone()));
        Ok(())
    }

    /// As [`Groups::prepare_update`], for groups of a bulk run, ascending: what all of them take is read in one call of the
    /// device.
    ///
    /// # Errors
    /// As there, and as [`Groups::sums_sector`].
    ///
    /// # Panics
    /// As there, and if there is no such group.
    pub fn prepare_bulk_update(
        &self,
        run: BulkRun,
        groups: &[GroupChanges<'_>],
        choice: UpdateChoice,
    ) -> Result<BulkUpdate, GroupError> {
        let shape = self.shape();
        let mut preparations = Vec::with_capacity(groups.len());
        for GroupChanges { group, changes } in groups {
            let (place, sums) = (run.group(*group, shape), self.known_sums(run, *group)?);
            preparations.push(Preparation::new(self, place, changes, &sums, NOTHING_CACHED, choice));
        }
        Preparation::fetch_each(self, &mut preparations)?;
        let updates = preparations.into_iter().map(Preparation::finish).collect::<Result<Vec<Update>, GroupError>>()?;
        let mut sums: Vec<SumsUpdate> = Vec::new();
        for (GroupChanges { group, .. }, update) in groups.iter().zip(&updates) {
            let group_first = u64::from(*group) * u64::from(shape.data);
            for (position, sum) in &update.sums {
                let (number, at) = BulkRun::sums_of(group_first + u64::from(*position));
                let place = run.sums(number, shape);
                if sums.last().is_none_or(|last| last.place != place) {
                    sums.push(SumsUpdate { place, sums: self.sums_sector(run, number)?, differs: false });
                }
                let last = sums.last_mut().expect("just pushed");
                last.differs |= last.sums.at(at) != *sum;
                last.sums.set(at, *sum);
            }
        }
        Ok(BulkUpdate { updates, sums })
    }

    /// Checks, and if need be mends, what was read of a group; and keeps what was read behind it. `sums` are the CRCs of the
    /// positions, if they were had before.
    fn take_part(
        &self,
        run: BulkRun,
        part: Part,
        sums: Option<Vec<Option<u32>>>,
        data: Piece<'_>,
        behind: Option<Piece<'_>>,
        cached: Cached<'_>,
    ) -> Result<(), GroupError> {
        let shape = self.shape();
        let (k, m) = (shape.data as usize, shape.parity as usize);
        let Part { group, positions, .. } = part;
        let behind = behind.map(|Piece { first, bytes, unread }| {
            let failed = self.checked(first, bytes, unread?, |_| None);
            let (parity, sums) = bytes.split_at(m * SECTOR_BYTES);
            if !sums.is_empty() {
                let read = failed.last().is_none_or(|(last, _)| *last != m);
                self.take_sums(Sector(first.0 + m as u64), read.then_some(sums));
            }
            Ok::<_, GroupError>((parity, failed))
        });
        let behind = behind.transpose()?;
        let sums = match sums {
            Some(sums) => sums,
            None => self.group_sums(run, group, positions.clone())?,
        };
        let failed = self.checked(data.first, data.bytes, data.unread?, |at| *sums.get(at)?);
        if failed.is_empty() && sums.iter().all(Option::is_some) {
            return Ok(());
        }
        let mut gathering = Gathering::new(self, run.group(group, shape), self.group_sums(run, group, 0..k)?);
        gathering.lend(positions.start, data.bytes, &failed);
        if let Some((parity, mut failed)) = behind
            && m > 0
        {
            failed.retain(|(at, _)| *at < m);
            gathering.lend(k, parity, &failed);
        }
        gathering.take_cached(cached);
        let restored = self.restore(run, group, &mut gathering, positions.clone(), false);
        let mended: Vec<(usize, Bytes)> =
            gathering.mended(positions.clone()).map(|(at, bytes)| (at, Bytes::copy_from_slice(bytes))).collect();
        let vouched = restored.is_ok() || sums.iter().all(Option::is_some);
        if !vouched {
            data.bytes.fill(0);
        }
        fill(data.bytes, positions.start, &failed, if vouched { &mended } else { &[] });
        restored
    }

    /// Sees to it that `positions` of a group are held: by their CRCs, or where those are not known, by its parity.
    /// Writes what it mends, as [`Gathering::settle`].
    pub(crate) fn restore(
        &self,
        run: BulkRun,
        group: u32,
        gathering: &mut Gathering<'_>,
        positions: Range<usize>,
        rewrite_all: bool,
    ) -> Result<(), GroupError> {
        let k = self.shape().data as usize;
        let needed: Vec<usize> = positions.collect();
        let mut known = gathering.sums_are_known();
        if !known && !gathering.vouch()? && self.shape().parity > 0 {
            for number in BulkRun::sums_of(u64::from(group) * k as u64).0
                ..=BulkRun::sums_of((u64::from(group) + 1) * k as u64 - 1).0
            {
                let place = run.sums(number, self.shape());
                if self.sums_cache().whole(place).is_none() {
                    count(&self.counts().retries, 1);
                    self.load_sums(place, Effort::Retry)?;
                }
            }
            gathering.learn_sums(self.group_sums(run, group, 0..k)?);
            known = gathering.sums_are_known();
            if !known {
                gathering.retry_all()?;
                if !gathering.vouch()? {
                    return Err(gathering.lost(&needed));
                }
            }
        }
        let restored = if known {
            gathering.restore(&needed)
        } else if needed.iter().all(|at| gathering.holds(*at)) && self.shape().parity > 0 {
            self.learn(run, group, gathering);
            Ok(())
        } else {
            Err(gathering.lost(&needed))
        };
        gathering.settle(rewrite_all);
        restored
    }

    /// Keeps the CRCs of a group that was shown to be right, and writes the sums sectors that are now known again.
    fn learn(&self, run: BulkRun, group: u32, gathering: &Gathering<'_>) {
        let shape = self.shape();
        let first = u64::from(group) * u64::from(shape.data);
        let sums: Vec<u32> = (0..shape.data as usize)
            .map(|at| sector_sum(gathering.bytes(at).expect("a codeword is held whole")))
            .collect();
        let mut from = first;
        while from < first + u64::from(shape.data) {
            let (number, at) = BulkRun::sums_of(from);
            let summed = run.summed(number);
            let end = summed.end.min(first + u64::from(shape.data));
            let place = run.sums(number, shape);
            let part = &sums[(from - first) as usize..(end - first) as usize];
            let all = (summed.end - summed.start) as usize;
            if let Some(sums) = self.sums_cache().learn(place, at, part, all) {
                count(&self.counts().sums_learnt, 1);
                self.write_mended(place, &sums.encode(self.disk(), place));
            }
            from = end;
        }
    }

    /// The CRCs of positions of a group, `None` where their sums sector does not read.
    pub(crate) fn group_sums(
        &self,
        run: BulkRun,
        group: u32,
        positions: Range<usize>,
    ) -> Result<Vec<Option<u32>>, GroupError> {
        let shape = self.shape();
        let first = u64::from(group) * u64::from(shape.data);
        let (mut from, end) = (first + positions.start as u64, first + positions.end as u64);
        let mut sums = Vec::with_capacity(positions.len());
        while from < end {
            let (number, at) = BulkRun::sums_of(from);
            let here = at..SUMS_PER_SECTOR.min(at + (end - from) as usize);
            from += here.len() as u64;
            let place = run.sums(number, shape);
            if !self.sums_cache().copy(place, here.clone(), &mut sums) {
                let loaded = self.load_sums(place, effort(shape.parity))?;
                sums.extend(here.map(|at| loaded.as_ref().map(|sums| sums.at(at))));
            }
        }
        Ok(sums)
    }

    /// The CRCs of a group, from its sums sectors or else from itself.
    fn known_sums(&self, run: BulkRun, group: u32) -> Result<Vec<u32>, GroupError> {
        let k = self.shape().data as usize;
        let sums = self.group_sums(run, group, 0..k)?;
        if let Some(sums) = sums.iter().copied().collect() {
            return Ok(sums);
        }
        let mut gathering = Gathering::new(self, run.group(group, self.shape()), sums);
        self.restore(run, group, &mut gathering, 0..k, false)?;
        Ok((0..k).map(|at| sector_sum(gathering.bytes(at).expect("it was restored"))).collect())
    }

    /// Reads a sums sector from the device into memory; `None` if it does not read.
    fn load_sums(&self, place: Sector, effort: Effort) -> Result<Option<SumsSector>, GroupError> {
        let mut bytes = aligned_buffer(SECTOR_BYTES);
        bytes.resize(SECTOR_BYTES, 0);
        let read = match effort {
            Effort::FailFast => self.read_checked(place, &mut bytes, |_| None)?.is_empty(),
            Effort::Retry => self.device().read(place, &mut bytes, effort)?.is_empty(),
        };
        Ok(self.keep_sums(place, read.then_some(&bytes)))
    }

    /// Keeps a sums sector that was read on the way, or writes it again if it did not read and is known.
    fn take_sums(&self, place: Sector, read: Option<&[u8]>) {
        match self.sums_cache().whole(place) {
            Some(sums) if read.is_none() => self.write_mended(place, &sums.encode(self.disk(), place)),
            Some(_) => {}
            None => drop(self.keep_sums(place, read)),
        }
    }

    fn keep_sums(&self, place: Sector, bytes: Option<&[u8]>) -> Option<SumsSector> {
        let sums = bytes.and_then(|bytes| {
            let sums = SumsSector::parse(bytes, self.disk(), place).ok();
            count(&self.counts().mismatches, usize::from(sums.is_none()));
            sums
        });
        match &sums {
            Some(sums) => self.sums_cache().put(place, sums.clone()),
            None => self.sums_cache().begin(place),
        }
        sums
    }
}

/// What a read of these data sectors takes of each group. Where it goes on farther than to what lies between two groups, it
/// reads that too.
fn parts(run: BulkRun, wanted: Range<u64>, shape: GroupShape) -> Vec<Part> {
    let k = u64::from(shape.data);
    let groups = (wanted.start / k) as u32..wanted.end.div_ceil(k) as u32;
    let part = |group| {
        let group_first = u64::from(group) * k;
        let end = wanted.end.min(group_first + k);
        let positions = (wanted.start.max(group_first) - group_first) as usize..(end - group_first) as usize;
        let behind =
            shape.parity as usize + usize::from(wanted.end > end && run.sums_before(group + 1, shape).is_some());
        let goes_on = wanted.end - end >= behind as u64;
        Part { group, positions, behind: if goes_on && wanted.end > end { behind } else { 0 } }
    };
    groups.map(part).collect()
}
