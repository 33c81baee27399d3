//! Bulk runs: groups with their CRCs in sums sectors between them, written and read in long strides.
//!
//! A sums sector that does not read is read again, and then retried: it alone tells a group from what it was before a write that the
//! drive has lost. Where no retry reads it, parity is a second checksum. Each of its groups, when it is next
//! read, is read whole and must be a codeword with a parity sector to spare; so its CRCs are learnt, and when those of
//! all groups in use are, the sums sector is written again. Whoever streams through a run does that without a further read.
//!
//! Invariants:
//! 1. Sums in memory are those that the device should hold: both are changed together ([`Groups::write_bulk_update`]).
//! 2. A read that goes on behind a group reads its parity, and the sums sector behind it, in the same call of the device:
//!    the head of a hard disk never waits, and nothing is copied. Sums that it needs and memory does not have come in that call
//!    too, which for a read by itself is a second place on the device (docs/formats/disk.md, *Downsides*), unless memory knows the sums of
//!    its swaths ([`swath`](crate::swath)).
//! 3. What no window shows is neither read nor written ([`ShownRun`]); whoever writes a place anew forgets what memory has
//!    of it.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use claystone_env::{DeviceError, Effort, FailedSector, SECTOR_BYTES, Sector, aligned_buffer};

use crate::code::ZEROS;
use crate::gathering::{Gathering, effort};
use crate::statistics::count;
use crate::update::Preparation;
use crate::{
    BulkRun, Cached, Change, GroupError, GroupShape, Groups, Member, NOTHING_CACHED, SUMS_PER_SECTOR, ShownRun,
    SumsSector, Update, UpdateChoice, sector_sum,
};

/// By what it is known what the data of a group should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// By the CRCs of all of it.
    Sums,
    /// Its parity vouches for its data.
    Data,
    /// Not at all.
    Nothing,
}

/// What a read takes of one group.
struct Part {
    group: u32,
    positions: Range<usize>,
    // Sectors behind the data that are read with it: parity, and maybe a sums sector; or none.
    behind: usize,
}

/// Parts that were read, one behind the other, and what lies between them.
struct Pieces<'a> {
    parts: Vec<Part>,
    data: &'a [u8],
    between: &'a [u8],
    effort: Effort,
    /// Of the data of each part, and of what is behind it if that was read.
    unread: Vec<Result<Vec<FailedSector>, DeviceError>>,
}

/// Consecutive sectors that were asked for.
struct Piece<'a> {
    first: Sector,
    bytes: &'a [u8],
    effort: Effort,
    unread: Result<Vec<FailedSector>, DeviceError>,
}

/// What is to be put right in the data that was read of a group.
struct Mending {
    /// Where the group's part begins in what was read, in sectors.
    at: usize,
    /// By their place in the part; all that is neither here nor lost was read as it should be.
    mended: Vec<(usize, Bytes)>,
    /// By their place in the part: nobody knows what is right.
    lost: Vec<usize>,
    /// Whether nothing is lost.
    result: Result<(), GroupError>,
}

impl Mending {
    /// Puts it right in `data`: zeros where nothing is.
    fn apply(&self, data: &mut [u8]) {
        let part = &mut data[self.at * SECTOR_BYTES..];
        for at in &self.lost {
            part[at * SECTOR_BYTES..][..SECTOR_BYTES].fill(0);
        }
        for (at, bytes) in &self.mended {
            part[at * SECTOR_BYTES..][..SECTOR_BYTES].copy_from_slice(bytes);
        }
    }
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
    /// Those of the groups, in their order, but for those that are lost.
    pub updates: Vec<Update>,
    /// The sums sectors of what changes, each once, ascending.
    pub sums: Vec<SumsUpdate>,
    /// Groups that cannot be updated, ascending: nothing of them is in the update.
    pub lost: Vec<LostGroup>,
}

/// A group that cannot be updated.
#[derive(Debug)]
pub struct LostGroup {
    /// Which group.
    pub group: u32,
    /// Why: [`GroupError::Lost`], of this group or of another under its sums sector.
    pub error: GroupError,
}

/// A sums sector as it will be.
#[derive(Debug, Clone)]
pub struct SumsUpdate {
    /// Where it is.
    pub place: Sector,
    /// What it holds.
    pub sums: SumsSector,
    /// Whether that is other than on the device: what is not is not written.
    pub differs: bool,
}

impl Groups {
    /// Writes a run: `data` are its sectors. Its sums are then in memory. They are written by themselves, behind the rest: where a
    /// write goes astray, an earlier run may be left, and if its sums were left with it they would vouch for it.
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
        let mut all_sums: Vec<(Sector, SumsSector)> = Vec::new();
        self.forget(next..next + total as u64 / SECTOR_BYTES as u64);
        for (group, sectors) in (0..).zip(data.chunks_exact(shape.data as usize)) {
            if let Some(number) = run.sums_before(group, shape) {
                self.write_out(&mut next, &mut buffer)?;
                let summed = run.summed(number);
                let sums = SumsSector::of(&data[summed.start as usize..summed.end as usize]);
                all_sums.push((run.sums(number, shape), sums));
                next += 1;
            }
            for sector in sectors {
                buffer.extend_from_slice(sector);
            }
            let data_end = buffer.len();
            buffer.resize(data_end + parity_bytes, 0);
            self.code().encode(sectors, &mut buffer[data_end..]);
            if buffer.len() >= WRITE_BYTES {
                self.write_out(&mut next, &mut buffer)?;
            }
        }
        self.write_out(&mut next, &mut buffer)?;
        let encoded = all_sums.iter().map(|(place, sums)| (*place, sums.encode(self.disk(), *place)));
        let encoded: Vec<(Sector, Vec<u8>)> = encoded.collect();
        self.device().write_each(&encoded.iter().map(|(place, bytes)| (*place, &bytes[..])).collect::<Vec<_>>())?;
        for (place, sums) in all_sums {
            self.sums_cache().put(place, sums);
        }
        Ok(())
    }

    /// Writes what is in a buffer from sector `next` on, if anything is.
    fn write_out(&self, next: &mut u64, buffer: &mut BytesMut) -> Result<(), GroupError> {
        if !buffer.is_empty() {
            self.device().write(Sector(*next), buffer)?;
            *next += (buffer.len() / SECTOR_BYTES) as u64;
            buffer.clear();
        }
        Ok(())
    }

    /// Reads the data sectors `wanted` of a run into `into`; see [`Groups::read`]. `cached` is asked for the run's data
    /// sectors by number. Of every group with one of these, a window shows some.
    ///
    /// # Errors
    /// As [`Groups::read`] of the first group that has one; groups before it are right in `into`, those behind it are not
    /// checked.
    ///
    /// # Panics
    /// If nothing, or what is not in the run, is wanted, or `into` is not as long.
    // Source: [lec §3.2]
    pub fn read_bulk<'r>(
        &self,
        run: impl Into<ShownRun<'r>>,
        wanted: Range<u64>,
        cached: &dyn Fn(u64) -> Option<Bytes>,
        into: &mut [u8],
    ) -> Result<(), GroupError> {
        let (shape, shown) = (self.shape(), run.into());
        let run = shown.run;
        assert!(wanted.start < wanted.end && wanted.end <= run.data.into(), "sectors {wanted:?} of {}", run.data);
        assert_eq!(into.len(), (wanted.end - wanted.start) as usize * SECTOR_BYTES, "room for what is wanted");
        if let Some(read) = self.read_by_swaths(shown, &wanted)? {
            into.copy_from_slice(&read);
            return Ok(());
        }
        let parts = parts(shown, wanted, shape, false);
        let mut between = between(&parts);
        // They lie before what is wanted; those of later groups are read with it.
        let first_sums = self.sums_missing(run, parts[0].group, parts[0].positions.clone());
        let effort = self.effort_of(&parts);
        let unread = self.read_with_sums(&first_sums, effort, requests(run, shape, &parts, into, &mut between))?;
        let pieces = Pieces { parts, data: into, between: &between, effort, unread };
        let (mendings, result) = self.check(shown, pieces, cached, false);
        mendings.iter().for_each(|mending| mending.apply(into));
        result
    }

    /// As [`Groups::read_bulk`], for who reads much in a row: returns a buffer, and keeps a handle on it for a while, so that
    /// what fails in a later read is mended from it. What a mending reads of the sectors that come next is kept too, until
    /// they are asked for.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    // Source: [lec §3.2], where the file system's cache is asked for the rest of a group. Differs: what lies above has a cache
    // that cannot be asked, so what it was given last is kept here.
    pub fn read_bulk_kept<'r>(&self, run: impl Into<ShownRun<'r>>, wanted: Range<u64>) -> Result<Bytes, GroupError> {
        let (shape, recent, shown) = (self.shape(), self.recent(), run.into());
        let run = shown.run;
        assert!(wanted.start < wanted.end && wanted.end <= run.data.into(), "sectors {wanted:?} of {}", run.data);
        let bytes = (wanted.end - wanted.start) as usize * SECTOR_BYTES;
        if shape.parity == 0 {
            let mut buffer = recent.buffer(bytes);
            self.read_bulk(shown, wanted, &|_| None, &mut buffer)?;
            return Ok(recent.keep_buffer(buffer));
        }
        if let Some(read) = self.read_by_swaths(shown, &wanted)? {
            return Ok(read);
        }
        let mut buffer = recent.buffer(bytes);
        let mut parts = parts(shown, wanted.clone(), shape, true);
        let goes_on = self.goes_on(run, wanted.start);
        let (entry, ahead) = recent.begin(sectors(run, shape, &parts));
        let taken = self.take_ahead(run, &parts[0], &ahead, &mut buffer)?;
        let wanted = wanted.start + taken as u64..wanted.end;
        if wanted.is_empty() {
            return Ok(recent.keep_buffer(buffer));
        }
        if taken > 0 {
            parts = self::parts(shown, wanted, shape, true);
        }
        let mut between = between(&parts);
        let mut first_sums = self.sums_missing(run, parts[0].group, parts[0].positions.clone());
        // Those that come with a read before this one are there when this one is done.
        first_sums.retain(|place| !recent.is_under_way(*place));
        let reads = requests(run, shape, &parts, &mut buffer[taken * SECTOR_BYTES..], &mut between);
        // What a stream reads to decode it reads anyway.
        let effort = if goes_on || taken > 0 { effort(shape.parity) } else { self.effort_of(&parts) };
        let unread = self.read_with_sums(&first_sums, effort, reads)?;
        let (buffer, between) = (buffer.freeze(), between.freeze());
        let data = buffer.slice(taken * SECTOR_BYTES..);
        entry.arrive(buffer.clone(), arrived(run, shape, &parts, &data, &between), &unread);
        let pieces = Pieces { parts, data: &data, between: &between, effort, unread };
        let (mendings, result) = self.check(shown, pieces, &|_| None, true);
        result?;
        if mendings.is_empty() {
            return Ok(buffer);
        }
        // Others may be looking at what was read.
        let mut mended = recent.buffer(buffer.len());
        mended.copy_from_slice(&buffer);
        mendings.iter().for_each(|mending| mending.apply(&mut mended[taken * SECTOR_BYTES..]));
        Ok(recent.keep_buffer(mended))
    }

    /// Whether a read from a data sector on comes behind another one, or is of the begin of the run.
    pub(crate) fn goes_on(&self, run: BulkRun, first: u64) -> bool {
        first.checked_sub(1).is_none_or(|before| self.recent().is_known(run.place_of(before, self.shape())))
    }

    /// A buffer for who returns it by [`Groups::keep_buffer`]: aligned as devices want it, with anything in it.
    pub fn buffer(&self, bytes: usize) -> BytesMut {
        self.recent().buffer(bytes)
    }

    /// Keeps a handle on a buffer, to give it out again once nobody else has one.
    pub fn keep_buffer(&self, buffer: BytesMut) -> Bytes {
        self.recent().keep_buffer(buffer)
    }

    /// Copies what a mending has kept of a part, from its beginning on; returns how many sectors.
    fn take_ahead(&self, run: BulkRun, part: &Part, ahead: &[Bytes], into: &mut [u8]) -> Result<usize, GroupError> {
        let sectors = ahead.len().min(part.positions.len());
        if sectors == 0 {
            return Ok(0);
        }
        let sums = self.group_sums(run, part.group, part.positions.start..part.positions.start + sectors)?;
        let right = sums.iter().zip(ahead).take_while(|(sum, bytes)| **sum == Some(sector_sum(bytes)));
        let mut taken = 0;
        for (into, (_, bytes)) in into.chunks_exact_mut(SECTOR_BYTES).zip(right) {
            into.copy_from_slice(bytes);
            taken += 1;
        }
        Ok(taken)
    }

    /// How parts are read: what fails of one is decoded from the rest of its group.
    fn effort_of(&self, parts: &[Part]) -> Effort {
        let of_group = (self.shape().data + self.shape().parity) as usize;
        let fetched = parts.iter().map(|part| of_group.saturating_sub(part.positions.len() + part.behind)).min();
        let most = parts.iter().map(|part| part.positions.len()).max();
        self.plan_effort(most.unwrap_or(0), fetched.unwrap_or(0))
    }

    /// The sums sectors over positions of a group that are not in memory.
    fn sums_missing(&self, run: BulkRun, group: u32, positions: Range<usize>) -> Vec<Sector> {
        let first = u64::from(group) * u64::from(self.shape().data);
        let number = |position: usize| BulkRun::sums_of(first + position as u64).0;
        let places = (number(positions.start)..=number(positions.end - 1)).map(|number| run.sums(number, self.shape()));
        places.filter(|place| !self.sums_cache().holds(*place)).collect()
    }

    /// Reads these sums sectors into memory, and in the same call of the device what else is asked for, which lies behind them.
    /// Returns what of that was not read.
    fn read_with_sums(
        &self,
        sums: &[Sector],
        effort: Effort,
        others: Vec<(Sector, &mut [u8])>,
    ) -> Result<Vec<Result<Vec<FailedSector>, DeviceError>>, GroupError> {
        let mut bytes = room(sums.len());
        let mut reads: Vec<(Sector, &mut [u8])> =
            sums.iter().copied().zip(bytes.chunks_exact_mut(SECTOR_BYTES)).chain(others).collect();
        let mut unread = self.read_each(&mut reads, effort);
        let of_others = unread.split_off(sums.len());
        for ((place, bytes), unread) in sums.iter().zip(bytes.chunks_exact(SECTOR_BYTES)).zip(unread) {
            let is_read = self.checked(*place, bytes, effort, unread?, |_| None).is_empty();
            self.keep_sums(*place, is_read.then_some(bytes));
        }
        Ok(of_others)
    }

    /// A sums sector of a run, from memory or the device; if it does not read there, from its groups. For groups that no
    /// window shows it may have any CRCs.
    ///
    /// # Errors
    /// [`GroupError::Lost`] if it cannot be had, and its groups cannot be shown to be right. [`GroupError::Device`].
    ///
    /// # Panics
    /// If there is no such sums sector.
    pub fn sums_sector<'r>(&self, run: impl Into<ShownRun<'r>>, number: u32) -> Result<SumsSector, GroupError> {
        let (shape, shown) = (self.shape(), run.into());
        let run = shown.run;
        let place = run.sums(number, shape);
        if let Some(sums) = self.sums_cache().whole(place) {
            return Ok(sums);
        }
        if let Some(sums) = self.load_sums(place, effort(shape.parity))? {
            return Ok(sums);
        }
        let mut sums = SumsSector::default();
        let summed = run.summed(number);
        for group in run.summed_groups(number, shape).filter(|group| shown.shows(*group, shape)) {
            let group_first = u64::from(group) * u64::from(shape.data);
            for (sector, sum) in (group_first..).zip(self.known_sums(shown, group, false)?) {
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
        let updates = &update.updates;
        // The caller's journal has those that change: what a power cut tears of the others would be nowhere.
        let sums: Vec<&SumsUpdate> = update.sums.iter().filter(|sums| sums.differs).collect();
        sums.iter().for_each(|sums| self.sums_cache().forget(sums.place.0..sums.place.0 + 1));
        let encoded: Vec<(Sector, Vec<u8>)> =
            sums.iter().map(|sums| (sums.place, sums.sums.encode(self.disk(), sums.place))).collect();
        let sums_requests = encoded.iter().map(|(place, bytes)| (*place, &bytes[..]));
        let mut requests: Vec<(Sector, &[u8])> =
            updates.iter().flat_map(Update::requests).chain(sums_requests).collect();
        // As the head of a hard disk comes by.
        requests.sort_unstable_by_key(|(first, _)| *first);
        self.write_in_place(updates.iter(), &requests)?;
        sums.iter().for_each(|sums| self.sums_cache().put(sums.place, sums.sums.clone()));
        Ok(())
    }

    /// As [`Groups::prepare_update`], for groups of a bulk run, ascending, of each of which a window shows some: what all of
    /// them take is read in one call of the device. One that is lost keeps none of the others from being updated.
    ///
    /// # Errors
    /// [`GroupError::Device`].
    ///
    /// # Panics
    /// As there, and if there is no such group.
    pub fn prepare_bulk_update<'r>(
        &self,
        run: impl Into<ShownRun<'r>>,
        groups: &[GroupChanges<'_>],
        choice: UpdateChoice,
    ) -> Result<BulkUpdate, GroupError> {
        let (shape, shown) = (self.shape(), run.into());
        let run = shown.run;
        let mut missing: Vec<Sector> =
            groups.iter().flat_map(|of| self.sums_missing(run, of.group, 0..shape.data as usize)).collect();
        missing.dedup();
        if !missing.is_empty() {
            self.read_with_sums(&missing, effort(shape.parity), Vec::new())?;
        }
        let (mut preparations, mut lost) = (Vec::with_capacity(groups.len()), Vec::new());
        for GroupChanges { group, changes } in groups {
            match unless_lost(self.known_sums(shown, *group, choice.distrusts_parity()))? {
                Ok(sums) => {
                    let place = run.group(*group, shape);
                    preparations.push((*group, Preparation::new(self, place, changes, &sums, NOTHING_CACHED, choice)));
                }
                Err(error) => lost.push(LostGroup { group: *group, error }),
            }
        }
        Preparation::fetch_each(self, preparations.iter_mut().map(|(_, preparation)| preparation))?;
        let (mut updates, mut sums) = (Vec::with_capacity(preparations.len()), Vec::new());
        for (group, preparation) in preparations {
            let prepared = preparation.finish().and_then(|update| {
                self.change_sums(shown, group, &update, &mut sums)?;
                Ok(update)
            });
            match unless_lost(prepared)? {
                Ok(update) => updates.push(update),
                Err(error) => lost.push(LostGroup { group, error }),
            }
        }
        lost.sort_unstable_by_key(|lost| lost.group);
        for update in &mut updates {
            update.mended = self.begin_update(update.place);
        }
        Ok(BulkUpdate { updates, sums, lost })
    }

    /// Puts the CRCs of an update of a group into its sums sectors, which come behind `sums` where they are not there yet; into
    /// none if one of them is lost.
    fn change_sums(
        &self,
        shown: ShownRun<'_>,
        group: u32,
        update: &Update,
        sums: &mut Vec<SumsUpdate>,
    ) -> Result<(), GroupError> {
        let group_first = u64::from(group) * u64::from(self.shape().data);
        let of = |position: u32| BulkRun::sums_of(group_first + u64::from(position));
        let mut further: Vec<SumsUpdate> = Vec::new();
        for (position, _) in &update.sums {
            let (number, _) = of(*position);
            let place = shown.run.sums(number, self.shape());
            if further.last().or(sums.last()).is_none_or(|last| last.place < place) {
                let before = self.sums_sector(shown, number)?;
                // What was put together from groups is not on the device.
                let differs = self.sums_cache().whole(place).is_none();
                further.push(SumsUpdate { place, sums: before, differs });
            }
        }
        sums.extend(further);
        for (position, sum) in &update.sums {
            let (number, at) = of(*position);
            let place = shown.run.sums(number, self.shape());
            let own = sums.iter_mut().rev().find(|own| own.place == place).expect("it is among the last ones");
            own.differs |= own.sums.at(at) != *sum;
            own.sums.set(at, *sum);
        }
        Ok(())
    }

    /// Checks what was read, group by group, up to the first one with an error; returns what is to be put right.
    fn check(
        &self,
        run: ShownRun<'_>,
        pieces: Pieces<'_>,
        cached: &dyn Fn(u64) -> Option<Bytes>,
        reads_on: bool,
    ) -> (Vec<Mending>, Result<(), GroupError>) {
        let Pieces { parts, data, between, effort, unread } = pieces;
        let (mut unread, mut at, mut at_between) = (unread.into_iter(), 0, 0);
        let mut mendings = Vec::new();
        for part in parts {
            let place = run.run.group(part.group, self.shape());
            let mut piece = |member, bytes| {
                let unread = unread.next().expect("each piece was read");
                Piece { first: place.sector(member), bytes, effort, unread }
            };
            let bytes = &data[at * SECTOR_BYTES..][..part.positions.len() * SECTOR_BYTES];
            let own = piece(Member::Data(part.positions.start as u32), bytes);
            let bytes = &between[at_between * SECTOR_BYTES..][..part.behind * SECTOR_BYTES];
            let behind = (part.behind > 0).then(|| piece(Member::Parity(0), bytes));
            let group_first = u64::from(part.group) * u64::from(self.shape().data);
            let cached = |member| match member {
                Member::Data(position) => cached(group_first + u64::from(position)),
                Member::Parity(_) => None,
            };
            let (sectors, behind_sectors) = (part.positions.len(), part.behind);
            match self.check_part(run, part, (own, behind), &cached, reads_on) {
                Ok(None) => {}
                Ok(Some(mut mending)) => {
                    mending.at = at;
                    let result = std::mem::replace(&mut mending.result, Ok(()));
                    mendings.push(mending);
                    if result.is_err() {
                        return (mendings, result);
                    }
                }
                Err(error) => return (mendings, Err(error)),
            }
            at += sectors;
            at_between += behind_sectors;
        }
        (mendings, Ok(()))
    }

    /// Checks what was read of a group, and what was read behind it, which is kept. `reads_on` says that what follows is likely to
    /// be asked for next. Where something is wrong it is mended; returns what is to be put right then, and whether all can be.
    fn check_part(
        &self,
        shown: ShownRun<'_>,
        part: Part,
        (data, behind): (Piece<'_>, Option<Piece<'_>>),
        cached: Cached<'_>,
        reads_on: bool,
    ) -> Result<Option<Mending>, GroupError> {
        let (shape, run) = (self.shape(), shown.run);
        let (k, m) = (shape.data as usize, shape.parity as usize);
        let Part { group, positions, .. } = part;
        let behind = behind.map(|Piece { first, bytes, effort, unread }| {
            let failed = self.checked(first, bytes, effort, unread?, |_| None);
            let (parity, sums) = bytes.split_at(m * SECTOR_BYTES);
            if !sums.is_empty() {
                let read = failed.last().is_none_or(|(last, _)| *last != m);
                let number = run.sums_before(group + 1, shape).expect("what was read there is one");
                self.take_sums(run, number, read.then_some(sums));
            }
            Ok::<_, GroupError>((parity, failed))
        });
        let behind = behind.transpose()?;
        let sums = self.group_sums(run, group, positions.clone())?;
        let failed = self.checked(data.first, data.bytes, data.effort, data.unread?, |at| *sums.get(at)?);
        if failed.is_empty() && sums.iter().all(Option::is_some) {
            return Ok(None);
        }
        let place = run.group(group, shape);
        let mut gathering = Gathering::new(self, place, self.group_sums(run, group, 0..k)?);
        gathering.lend(positions.start, data.bytes, &failed);
        if let Some((parity, mut failed)) = behind
            && m > 0
        {
            failed.retain(|(at, _)| *at < m);
            gathering.lend(k, parity, &failed);
        }
        gathering.take_cached(cached);
        // A group whose CRCs are not known vouches for itself only as it lies on the device.
        let claim = gathering.sums_are_known().then(|| gathering.take_recent(self.recent()));
        let ahead = (positions.end..k).take_while(|at| claim.is_some() && reads_on && !gathering.holds(*at)).count();
        let goes_back = (0..positions.start).any(|at| !gathering.holds(at));
        if reads_on && (0..positions.start).all(|at| gathering.knows(at)) {
            gathering.read_on();
        }
        let restored = self.restore(shown, group, &mut gathering, positions.clone(), false).map(drop);
        let ahead: Vec<&[u8]> = (positions.end..positions.end + ahead).map_while(|at| gathering.bytes(at)).collect();
        if restored.is_ok() && !ahead.is_empty() {
            self.recent().keep_ahead(place.sector(Member::Data(positions.end as u32)), &ahead);
            let after = group + 1 < run.groups(shape) && shown.shows(group + 1, shape) && !goes_back;
            if let Some(number) = run.sums_before(group + 1, shape).filter(|_| after) {
                // The head is before it, and who reads on would wait for a turn to get past it unread.
                self.load_sums(run.sums(number, shape), effort(m as u32))?;
            }
        }
        drop(claim);
        let lost: Vec<usize> = match &restored {
            Ok(()) => Vec::new(),
            Err(GroupError::Lost { positions, .. }) => positions.iter().map(|at| *at as usize).collect(),
            Err(_) => positions.clone().collect(),
        };
        let right = gathering.mended(positions.clone()).filter(|(at, _)| !lost.contains(at));
        let mended = right.map(|(at, bytes)| (at - positions.start, Bytes::copy_from_slice(bytes))).collect();
        let lost = lost.into_iter().map(|at| at - positions.start).collect();
        Ok(Some(Mending { at: 0, mended, lost, result: restored }))
    }

    /// Sees to it that `positions` of a group are held: by their CRCs, or where those are not known, by its parity.
    /// Writes what it mends, as [`Gathering::settle`]. Returns whether a sums sector was learnt by it.
    pub(crate) fn restore(
        &self,
        shown: ShownRun<'_>,
        group: u32,
        gathering: &mut Gathering<'_>,
        positions: Range<usize>,
        rewrite_all: bool,
    ) -> Result<bool, GroupError> {
        let needed: Vec<usize> = positions.collect();
        let restored = match self.know(shown.run, group, gathering)? {
            Known::Sums => gathering.restore(&needed).map(|()| false),
            Known::Data => Ok(self.learn(shown, group, gathering)),
            Known::Nothing => return Err(gathering.lost(&needed)),
        };
        gathering.settle(rewrite_all);
        restored
    }

    /// Sees to it that it is known what the data of a group should be: by its CRCs, for which its sums sectors are read again, or where no
    /// retry reads those, by its parity. A group whose writing was lost, data and parity in one, is the codeword that it was. Zeros are one too:
    /// where the sums sector is zeros as well, the device was discarded there, and they vouch for nothing.
    fn know(&self, run: BulkRun, group: u32, gathering: &mut Gathering<'_>) -> Result<Known, GroupError> {
        let k = u64::from(self.shape().data);
        if gathering.sums_are_known() {
            return Ok(Known::Sums);
        }
        if self.shape().parity == 0 {
            return Ok(Known::Nothing);
        }
        let (first, group_first) = (BulkRun::sums_of(u64::from(group) * k).0, u64::from(group) * k);
        let mut is_wiped = false;
        for number in first..=BulkRun::sums_of(group_first + k - 1).0 {
            let place = run.sums(number, self.shape());
            if self.sums_cache().may_be_retried(place) {
                self.load_sums_again(place)?;
            }
            is_wiped |= self.sums_cache().is_wiped(place);
        }
        gathering.learn_sums(self.group_sums(run, group, 0..k as usize)?);
        if gathering.sums_are_known() {
            return Ok(Known::Sums);
        }
        let vouches = |gathering: &Gathering<'_>| !(is_wiped && gathering.is_all_zeros());
        if gathering.vouch()? {
            return Ok(if vouches(gathering) { Known::Data } else { Known::Nothing });
        }
        gathering.retry_all()?;
        let is_known = gathering.vouch_with_losses()? && vouches(gathering);
        Ok(if is_known { Known::Data } else { Known::Nothing })
    }

    /// Keeps the CRCs of a group that was found to be right, all of whose data is held, and writes the sums sectors again of
    /// which now all is known; returns whether there are any.
    pub(crate) fn learn(&self, shown: ShownRun<'_>, group: u32, gathering: &Gathering<'_>) -> bool {
        let (shape, run) = (self.shape(), shown.run);
        let k = u64::from(shape.data);
        let (first, mut any) = (u64::from(group) * k, false);
        let mut from = first;
        while from < first + k {
            let (number, at) = BulkRun::sums_of(from);
            let summed = run.summed(number);
            let part = from..summed.end.min(first + k);
            from = part.end;
            let place = run.sums(number, shape);
            if !self.sums_cache().is_in_part(place) {
                continue;
            }
            let sum = |sector| sector_sum(gathering.bytes((sector - first) as usize).expect("its data is held"));
            let sums: Vec<u32> = part.map(sum).collect();
            // What no window shows any more may be shown again after a power cut, while it is not durable that it was freed. So a
            // sector with sums that nobody learnt is not written: those that the device has may be read by retrying.
            let wanted = |at: usize| summed.start + (at as u64) < summed.end;
            if let Some(sums) = self.sums_cache().learn(place, at, &sums, wanted) {
                count(&self.counts().sums_learnt, 1);
                any |= self.mend_sums(run, number, &sums);
            }
        }
        any
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

    /// The CRCs of a group, from its sums sectors or else from itself; see [`Gathering::retry_soft`].
    fn known_sums(&self, shown: ShownRun<'_>, group: u32, retries_soft: bool) -> Result<Vec<u32>, GroupError> {
        let (k, run) = (self.shape().data as usize, shown.run);
        let sums = self.group_sums(run, group, 0..k)?;
        if let Some(sums) = sums.iter().copied().collect() {
            return Ok(sums);
        }
        let mut gathering = Gathering::new(self, run.group(group, self.shape()), sums);
        if retries_soft {
            gathering.retry_soft();
        }
        gathering.pass_over_lost();
        match self.know(run, group, &mut gathering)? {
            // Whether its data has them is for those to find out who need it: others write over it.
            Known::Sums => {}
            Known::Data => drop(self.learn(shown, group, &gathering)),
            Known::Nothing => return Err(gathering.lost(&(0..k).collect::<Vec<usize>>())),
        }
        gathering.settle(false);
        Ok((0..k).map(|at| gathering.sum(at)).collect())
    }

    /// By what it is known now what the data of a group should be. After a crash parity that vouches for its group is no torn one.
    ///
    /// # Errors
    /// [`GroupError::Device`].
    pub fn known_by<'r>(&self, run: impl Into<ShownRun<'r>>, group: u32) -> Result<Known, GroupError> {
        let shown = run.into();
        if unless_lost(self.known_sums(shown, group, true))?.is_err() {
            return Ok(Known::Nothing);
        }
        let (run, k) = (shown.run, u64::from(self.shape().data));
        let first = u64::from(group) * k;
        let mut numbers = BulkRun::sums_of(first).0..=BulkRun::sums_of(first + k - 1).0;
        // What was learnt of some groups is no sums sector yet.
        let is_whole = |number| self.sums_cache().whole(run.sums(number, self.shape())).is_some();
        Ok(if numbers.all(is_whole) { Known::Sums } else { Known::Data })
    }

    /// Reads a sums sector from the device into memory; `None` if it does not read.
    pub(crate) fn load_sums(&self, place: Sector, effort: Effort) -> Result<Option<SumsSector>, GroupError> {
        let mut bytes = aligned_buffer(SECTOR_BYTES);
        bytes.resize(SECTOR_BYTES, 0);
        let read = match effort {
            Effort::FailFast => self.read_checked(place, &mut bytes, effort, |_| None)?.is_empty(),
            Effort::Retry => self.device().read(place, &mut bytes, effort)?.is_empty(),
        };
        let sums = self.keep_sums(place, read.then_some(&bytes));
        if sums.is_none() && effort == Effort::Retry {
            self.sums_cache().give_up(place);
        }
        Ok(sums)
    }

    /// Reads a sums sector that did not read: as before, and then by retrying. Whoever streams waits for it, and a turn is less than a
    /// retry; see docs/decisions/0032-a-sums-sector-is-read-again-before-it-is-retried.md.
    fn load_sums_again(&self, place: Sector) -> Result<(), GroupError> {
        if self.device().geometry().fails_fast && self.load_sums(place, Effort::FailFast)?.is_some() {
            return Ok(());
        }
        count(&self.counts().retries, 1);
        self.load_sums(place, Effort::Retry).map(drop)
    }

    /// Keeps a sums sector that was read on the way, or writes it again if it did not read and is known.
    fn take_sums(&self, run: BulkRun, number: u32, read: Option<&[u8]>) {
        let place = run.sums(number, self.shape());
        match self.sums_cache().whole(place) {
            Some(sums) if read.is_none() => drop(self.mend_sums(run, number, &sums)),
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
            None => {
                self.sums_cache().begin(place);
                if bytes.is_some_and(|bytes| *bytes == ZEROS) {
                    self.sums_cache().note_wiped(place);
                }
            }
        }
        sums
    }
}

/// What of a group's result is no matter of others: all but that the device failed.
fn unless_lost<T>(result: Result<T, GroupError>) -> Result<Result<T, GroupError>, GroupError> {
    match result {
        Err(error @ GroupError::Device(_)) => Err(error),
        result => Ok(result),
    }
}

/// Room for what lies behind the data of parts.
fn between(parts: &[Part]) -> BytesMut {
    room(parts.iter().map(|part| part.behind).sum())
}

/// Room for so many sectors, or none.
pub(crate) fn room(sectors: usize) -> BytesMut {
    let bytes = sectors * SECTOR_BYTES;
    let mut room = if bytes == 0 { BytesMut::new() } else { aligned_buffer(bytes) };
    room.resize(bytes, 0);
    room
}

/// The reads of the device for parts, in the order of the sectors: data of a part into `into`, what is behind it into
/// `between`.
fn requests<'a>(
    run: BulkRun,
    shape: GroupShape,
    parts: &[Part],
    mut into: &'a mut [u8],
    mut between: &'a mut [u8],
) -> Vec<(Sector, &'a mut [u8])> {
    let mut reads = Vec::new();
    for part in parts {
        let place = run.group(part.group, shape);
        let data = into.split_off_mut(..part.positions.len() * SECTOR_BYTES).expect("room for what is wanted");
        reads.push((place.sector(Member::Data(part.positions.start as u32)), data));
        if part.behind > 0 {
            let behind = between.split_off_mut(..part.behind * SECTOR_BYTES).expect("room for all that is behind");
            reads.push((place.sector(Member::Parity(0)), behind));
        }
    }
    reads
}

/// The sectors of the device of each part, data and then what is behind it.
fn sectors(run: BulkRun, shape: GroupShape, parts: &[Part]) -> Vec<Range<u64>> {
    let of = |part: &Part| {
        let place = run.group(part.group, shape);
        let (data, behind) =
            (place.sector(Member::Data(part.positions.start as u32)).0, place.sector(Member::Parity(0)).0);
        [data..data + part.positions.len() as u64, behind..behind + part.behind as u64]
    };
    parts.iter().flat_map(of).collect()
}

/// What was read of parts, by its place on the device.
fn arrived(run: BulkRun, shape: GroupShape, parts: &[Part], data: &Bytes, between: &Bytes) -> Vec<(Sector, Bytes)> {
    let (mut data, mut between) = (data.clone(), between.clone());
    let mut take = |(number, sectors): (usize, Range<u64>)| {
        let from = if number.is_multiple_of(2) { &mut data } else { &mut between };
        (Sector(sectors.start), from.split_to((sectors.end - sectors.start) as usize * SECTOR_BYTES))
    };
    sectors(run, shape, parts).into_iter().enumerate().map(&mut take).collect()
}

/// What a read of these data sectors takes of each group. Where it goes on farther than to what lies between two groups, it
/// reads that too; and also where the caller will go on, wherever it reaches a group's end.
/// A group behind that no window shows is not gone on to.
fn parts(shown: ShownRun<'_>, wanted: Range<u64>, shape: GroupShape, reads_on: bool) -> Vec<Part> {
    let (run, k) = (shown.run, u64::from(shape.data));
    let groups = (wanted.start / k) as u32..wanted.end.div_ceil(k) as u32;
    let part = |group| {
        let group_first = u64::from(group) * k;
        let end = wanted.end.min(group_first + k);
        let positions = (wanted.start.max(group_first) - group_first) as usize..(end - group_first) as usize;
        let ends = reads_on && positions.end as u64 == k && end < run.data.into();
        let is_passed = wanted.end > end || ends && shown.shows(group + 1, shape);
        let behind = shape.parity as usize + usize::from(is_passed && run.sums_before(group + 1, shape).is_some());
        let goes_on = reads_on || wanted.end - end >= behind as u64;
        Part { group, positions, behind: if goes_on && is_passed { behind } else { 0 } }
    };
    groups.map(part).collect()
}
