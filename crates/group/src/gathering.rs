//! What is had of one group while some of it is being mended.
//!
//! ```text
//! unknown --lend, cached, kept--> held
//! unknown --fetch--> held, or failed: soft, lost, or read with another CRC than its own
//! unknown --take_recent--> held, or skipped: another read just found that it fails --look_again--> unknown
//! failed --decode, cached--> held (mended)          failed --retry--> held, or failed for good
//! failed --take_offered--> held: the last resort
//! unknown --pass_over_lost--> failed for good: no retry read it before, and nobody asks the device again
//! ```
//!
//! Invariants:
//! 1. A data member that is held matched its CRC, if that is known; where it is not known, nothing is held for sure until
//!    [`Gathering::vouch`] says so.
//! 2. What is decoded is held only if it matches its CRC, whatever the state of the parity.
//! 3. Each member is retried at most once, and what is offered is taken once, so every loop ends.
//!
//! 4. Void parity is never held: it is failed for good as soon as its bytes are seen.
//!
//! Members are counted as the group has them: data in use from 0, then parity. The code has zeros between them.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use claystone_env::{DeviceError, Effort, SECTOR_BYTES, Sector, SectorFailure, aligned_buffer};

use crate::code::ZEROS;
use crate::groups::{Cached, Failure};
use crate::recent::{Entry, Found, Recent};
use crate::statistics::count;
use crate::void::is_void;
use crate::{GroupError, GroupPlace, Groups, Member, Mending, sector_sum};

/// See the module.
pub(crate) struct Gathering<'a> {
    groups: &'a Groups,
    place: GroupPlace,
    sums: Vec<Option<u32>>,
    slots: Vec<Slot>,
    segments: Vec<Segment<'a>>,
    // Where the head of a hard disk is likely to be.
    next: usize,
    // Whoever asks reads on, and what is read to decode is for that too.
    reads_on: bool,
    // What fails softly is retried, and what can still be read is not written again.
    retries_soft: bool,
    // What members may hold by their CRCs, if nothing else gives what is needed.
    offered: Vec<(usize, &'a [u8])>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    held: Option<Held>,
    // How it failed last.
    failed: Option<Failure>,
    retried: bool,
    // What is held was read by retrying, so nothing was mended.
    by_retry: bool,
    // It failed for another read, which mends it.
    skipped: bool,
    // It is parity, and void.
    void: bool,
}

impl Slot {
    fn is_unknown(&self) -> bool {
        self.held.is_none() && self.failed.is_none() && !self.skipped
    }

    fn void() -> Slot {
        Slot { failed: Some(Failure::Lost), void: true, ..Slot::default() }
    }
}

/// Which sector of which segment.
#[derive(Debug, Clone, Copy)]
struct Held {
    segment: usize,
    sector: usize,
}

enum Segment<'a> {
    Lent(&'a [u8]),
    Own(Bytes),
}

impl Segment<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Segment::Lent(bytes) => bytes,
            Segment::Own(bytes) => bytes,
        }
    }
}

impl<'a> Gathering<'a> {
    /// Nothing is had. `sums` are those of all data in use, `None` where not known.
    pub fn new(groups: &'a Groups, place: GroupPlace, sums: Vec<Option<u32>>) -> Gathering<'a> {
        assert_eq!(sums.len(), place.data as usize, "one CRC for each data sector in use");
        let slots = vec![Slot::default(); place.data as usize + groups.shape().parity as usize];
        let (segments, offered) = (Vec::new(), Vec::new());
        Gathering { groups, place, sums, slots, segments, next: 0, reads_on: false, retries_soft: false, offered }
    }

    /// What is read to decode is not read for that alone, so nothing is retried that can be decoded.
    pub fn read_on(&mut self) {
        self.reads_on = true;
    }

    /// What fails softly is retried, and not written again where that reads it: a power cut may tear it, and the parity may not fit the
    /// data. A retry alone tells it from what a power cut has torn, which is to be mended while the parity has it.
    pub fn retry_soft(&mut self) {
        self.retries_soft = true;
    }

    /// Offers data members as they are going to be written. Where a power cut has torn one that was being written, its CRC may be the new
    /// one already, and then the device has one sector less to make good. It is the last thing to be used: if the cut left the old parity,
    /// the old bytes of the member are what fits the others.
    pub fn offer(&mut self, members: impl Iterator<Item = (usize, &'a [u8])>) {
        self.offered = members.collect();
    }

    /// Holds members that were just read, from `first` on, and were checked; `failed` of them, by their place in
    /// `bytes`, were not read or are wrong.
    pub fn lend(&mut self, first: usize, bytes: &'a [u8], failed: &[(usize, Failure)]) {
        let segment = self.segments.len();
        self.segments.push(Segment::Lent(bytes));
        let sectors = bytes.len() / SECTOR_BYTES;
        for sector in 0..sectors {
            let is_void = self.is_void(first + sector, &bytes[sector * SECTOR_BYTES..][..SECTOR_BYTES]);
            self.slots[first + sector] = match is_void {
                true => Slot::void(),
                false => Slot { held: Some(Held { segment, sector }), ..self.slots[first + sector] },
            };
        }
        for (sector, failure) in failed {
            self.slots[first + sector] = Slot { failed: Some(*failure), ..Slot::default() };
        }
        self.next = first + sectors;
    }

    /// Counts as failed for good what no retry read before, where nothing is known of it.
    pub fn pass_over_lost(&mut self) {
        let end = self.place.sector(Member::Parity(self.groups.shape().parity));
        for sector in self.groups.lost().among(self.place.first.0..end.0) {
            if let Some(at) = self.at_place(Sector(sector)).filter(|at| self.slots[*at].is_unknown()) {
                self.slots[at] = Slot { failed: Some(Failure::Lost), retried: true, ..Slot::default() };
            }
        }
    }

    /// Takes what a cache has of the rest.
    pub fn take_cached(&mut self, cached: Cached<'_>) {
        for at in 0..self.slots.len() {
            if self.slots[at].held.is_none()
                && let Some(bytes) = cached(self.member(at))
            {
                assert_eq!(bytes.len(), SECTOR_BYTES, "a cached sector");
                // What does not match is newer than the group, or none of ours.
                if self.matches(at, &bytes) {
                    self.hold_own(at, bytes);
                }
            }
        }
    }

    /// Takes what other reads and updates have left in memory of the members of which nothing is known; waits for nobody.
    pub fn take_kept(&mut self) {
        let place = self.place;
        let end = place.sector(Member::Parity(self.groups.shape().parity));
        for (sector, bytes) in self.groups.recent().kept(place.first.0..end.0) {
            let Some(at) = self.at_place(sector) else { continue };
            if self.slots[at].is_unknown() && self.matches(at, &bytes) {
                self.hold_own(at, bytes);
            }
        }
    }

    /// Takes what other reads have just read, or are reading, of the members of which nothing is known. What is still not
    /// known then is claimed, until the claim is dropped.
    pub fn take_recent(&mut self, recent: &'a Recent) -> Entry<'a> {
        let members: Vec<usize> = (0..self.slots.len()).filter(|at| self.slots[*at].is_unknown()).collect();
        let places: Vec<Sector> = members.iter().map(|at| self.place.sector(self.member(*at))).collect();
        let (found, claim) = recent.gather(&places);
        for (at, found) in members.into_iter().zip(found) {
            match found {
                Some(Found::Read(bytes)) if self.matches(at, &bytes) => self.hold_own(at, bytes),
                Some(Found::Failed) => self.slots[at].skipped = true,
                Some(Found::Read(_)) | None => {}
            }
        }
        claim
    }

    /// Holds what was offered of members that are gone and matches its CRC; returns whether there is any.
    fn take_offered(&mut self) -> bool {
        let mut any = false;
        for (at, bytes) in std::mem::take(&mut self.offered) {
            if !self.holds(at) && self.matches(at, bytes) {
                // Whoever offered it writes it, so it is not mended.
                self.slots[at] = Slot::default();
                self.slots[at].held = Some(Held { segment: self.segments.len(), sector: 0 });
                self.segments.push(Segment::Lent(bytes));
                any = true;
            }
        }
        any
    }

    /// Lets members be fetched that another read found to fail; returns whether there are any.
    fn look_again(&mut self) -> bool {
        let mut any = false;
        for slot in self.slots.iter_mut().filter(|slot| slot.held.is_none()) {
            any |= std::mem::take(&mut slot.skipped);
        }
        any
    }

    /// Reads, at once or not at all, the chosen members of which nothing is known.
    pub fn fetch(&mut self, chosen: impl Fn(usize) -> bool) -> Result<(), DeviceError> {
        let members: Vec<usize> = (0..self.slots.len()).filter(|at| chosen(*at)).collect();
        Gathering::fetch_each(self.groups, effort(self.groups.shape().parity), &mut [(self, &members)])
    }

    /// As [`Gathering::fetch`] of several groups, each with its members, ascending: all in one call of the device.
    pub fn fetch_each(
        groups: &Groups,
        effort: Effort,
        asked: &mut [(&mut Gathering<'a>, &[usize])],
    ) -> Result<(), DeviceError> {
        let runs: Vec<(usize, Range<usize>)> = asked
            .iter()
            .enumerate()
            .flat_map(|(which, (gathering, members))| gathering.runs(members).into_iter().map(move |run| (which, run)))
            .collect();
        let room = |run: &Range<usize>| {
            let mut bytes = aligned_buffer(run.len() * SECTOR_BYTES);
            bytes.resize(run.len() * SECTOR_BYTES, 0);
            bytes
        };
        let mut rooms: Vec<BytesMut> = runs.iter().map(|(_, run)| room(run)).collect();
        let place = |which: usize, at: usize| {
            let gathering = &asked[which].0;
            gathering.place.sector(gathering.member(at))
        };
        let places = runs.iter().map(|(which, run)| place(*which, run.start));
        let mut reads: Vec<(Sector, &mut [u8])> = places.zip(rooms.iter_mut().map(|bytes| &mut bytes[..])).collect();
        let sum = |read: usize, sector: usize| {
            let (which, run) = &runs[read];
            *asked[*which].0.sums.get(run.start + sector)?
        };
        let failed = groups.read_checked_each(&mut reads, effort, sum)?;
        for (((which, run), bytes), failed) in runs.into_iter().zip(rooms).zip(failed) {
            asked[which].0.take(run, bytes.freeze(), failed);
        }
        Ok(())
    }

    /// The runs in which `members`, ascending, of which nothing is known, are read.
    fn runs(&self, members: &[usize]) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for &at in members {
            if !self.slots[at].is_unknown() {
                continue;
            }
            match runs.last_mut() {
                Some(run) if at - run.end <= self.groups.bridge() && self.leads_on(run.end..at) => {
                    count(&self.groups.counts().sectors_bridged, at - run.end);
                    run.end = at + 1;
                }
                _ => runs.push(at..at + 1),
            }
        }
        // What the head meets first.
        let behind = runs.partition_point(|run| run.start < self.next);
        runs.rotate_left(behind);
        runs
    }

    /// Takes a run that was read and checked; `failed` are counted from its first member.
    fn take(&mut self, run: Range<usize>, bytes: Bytes, failed: Vec<(usize, Failure)>) {
        let segment = self.segments.len();
        self.segments.push(Segment::Own(bytes));
        let mut failed = failed.into_iter().peekable();
        for (sector, at) in run.enumerate() {
            let failure = failed.next_if(|(failed, _)| *failed == sector).map(|(_, failure)| failure);
            // What was read on the way is as good as what was asked for, where nothing is known yet.
            if self.slots[at].held.is_some() || self.slots[at].failed.is_some() {
                continue;
            }
            match failure {
                None if self.is_void(at, self.held_bytes(Held { segment, sector })) => self.slots[at] = Slot::void(),
                None => self.slots[at].held = Some(Held { segment, sector }),
                Some(failure) => self.slots[at] = Slot { failed: Some(failure), ..Slot::default() },
            }
        }
    }

    /// Whether the members in between lie in a row with their neighbours, and nothing is known of them yet.
    fn leads_on(&self, between: Range<usize>) -> bool {
        between.clone().all(|at| self.slots[at].is_unknown())
            && (between.start..=between.end).all(|at| self.follows(at))
    }

    /// Sees to it that the members `needed`, all of them data, are held: fetches the rest of the group and decodes, and
    /// retries no more than it must, unless retrying takes less time than fetching.
    ///
    /// # Errors
    /// [`GroupError::Lost`] names those that could not be had; the others are held.
    ///
    /// # Panics
    /// If a CRC is not known.
    // Source: [lec §3.1]
    pub fn restore(&mut self, needed: &[usize]) -> Result<(), GroupError> {
        assert!(self.sums_are_known(), "the CRCs are known");
        if self.retries_soft {
            for at in self.retriable(needed).0 {
                self.retry(at)?;
            }
        }
        if self.groups.shape().parity > 0 && !self.retry_if_cheaper(needed)? {
            self.fetch(|_| true)?;
        }
        // Whether decoding from what is held gives other bytes than the CRCs want.
        let mut misfit = false;
        loop {
            let missing: Vec<usize> = needed.iter().copied().filter(|at| !self.holds(*at)).collect();
            if missing.is_empty() {
                return Ok(());
            }
            let gone = self.data_gone();
            let excess = gone.len().saturating_sub(self.parity_held());
            if excess == 0 && !misfit {
                misfit = !self.decode(&gone);
                continue;
            }
            if self.look_again() {
                self.fetch(|_| true)?;
                misfit = false;
                continue;
            }
            let (first, others) = self.retriable(&missing);
            let batch = match (first.is_empty(), misfit) {
                (false, true) => first,
                (false, false) => first.into_iter().take(excess).collect(),
                (true, misfit) => others.into_iter().take(if misfit { 1 } else { excess }).collect(),
            };
            if batch.is_empty() {
                // Nothing is left to be read, so parity alone can be in the way.
                if misfit && excess == 0 && self.decode_without_any(&gone) {
                    continue;
                }
                if self.take_offered() {
                    misfit = false;
                    continue;
                }
                return Err(self.lost(&missing));
            }
            for at in batch {
                misfit &= !self.retry(at)?;
            }
        }
    }

    /// Retries those of the members `needed` that are not held, if all of them failed softly and that takes less time than to
    /// fetch what decoding takes. Returns whether all are held.
    pub fn retry_if_cheaper(&mut self, needed: &[usize]) -> Result<bool, DeviceError> {
        let missing: Vec<usize> = needed.iter().copied().filter(|at| !self.holds(*at)).collect();
        if missing.is_empty() {
            return Ok(true);
        }
        let is_soft = |at: &usize| self.slots[*at].failed == Some(Failure::Soft) && !self.slots[*at].retried;
        let fetched = self.unknown() as u64;
        if self.reads_on
            || !missing.iter().all(is_soft)
            || self.groups.pace().plan_mending(missing.len() as u64, fetched) == Mending::Decode
        {
            return Ok(false);
        }
        for at in missing {
            if !self.retry(at)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes sure of data whose CRCs are not known: fetches the whole group, and returns whether all its data is held and is a
    /// codeword with its parity.
    pub fn vouch(&mut self) -> Result<bool, DeviceError> {
        if self.groups.shape().parity == 0 {
            return Ok(false);
        }
        self.fetch(|_| true)?;
        let complete = self.data_gone().is_empty() && self.parity_held() > 0;
        Ok(complete && self.groups.code().locate(&self.codeword()).is_some_and(|wrong| wrong.is_empty()))
    }

    /// Whether all data is held and is zeros.
    pub fn is_all_zeros(&self) -> bool {
        (0..self.sums.len()).all(|at| self.bytes(at).is_some_and(|bytes| *bytes == ZEROS))
    }

    /// As [`Gathering::vouch`], but for members that are gone or that the others show to be wrong, with at least one parity
    /// sector to spare. It is the last thing to ask: parity whose writing was lost shows what has changed since to be wrong, and
    /// decodes what was there before.
    pub fn vouch_with_losses(&mut self) -> Result<bool, DeviceError> {
        self.fetch(|_| true)?;
        if self.groups.shape().parity == 0 || !self.discard_wrong() {
            return Ok(false);
        }
        let gone = self.data_gone();
        if gone.is_empty() {
            return Ok(true);
        }
        let decoded = self.decode_once(&self.codeword(), &gone);
        Ok(decoded.is_some_and(|out| self.hold_decoded(&gone, out)))
    }

    /// Takes CRCs that have become known; what is held and does not match is not held any more.
    pub fn learn_sums(&mut self, sums: Vec<Option<u32>>) {
        assert_eq!(sums.len(), self.sums.len(), "one CRC for each data sector in use");
        self.sums = sums;
        for at in 0..self.sums.len() {
            let is_wrong = self.bytes(at).is_some_and(|bytes| !self.matches(at, bytes));
            if is_wrong {
                count(&self.groups.counts().mismatches, 1);
                self.slots[at] = Slot { failed: Some(Failure::Wrong), ..Slot::default() };
            }
        }
    }

    /// Retries every member that failed softly and was not retried.
    pub fn retry_all(&mut self) -> Result<(), DeviceError> {
        let (_, all) = self.retriable(&[]);
        for at in all {
            self.retry(at)?;
        }
        Ok(())
    }

    /// Counts what was mended, and writes it again; what failed softly for the first time only if `all` is asked for. So with
    /// what was read by retrying, as long as no more than m are written: a power cut may tear them all, and those could be read.
    pub fn settle(&self, all: bool) {
        let counts = self.groups.counts();
        let (mut again, mut by_retrying) = (Vec::new(), Vec::new());
        for at in 0..self.slots.len() {
            let Slot { held: Some(_), failed: Some(failure), retried, by_retry, .. } = self.slots[at] else {
                continue;
            };
            if !by_retry {
                count(&counts.mended, 1);
                count(&counts.mismatches_mended, usize::from(failure == Failure::Wrong));
                count(&counts.retries_avoided, usize::from(failure == Failure::Soft && !retried));
            }
            if self.retries_soft && (failure == Failure::Soft || by_retry) {
                continue;
            }
            let suspect = self.groups.suspect(self.place.sector(self.member(at)));
            if failure == Failure::Soft && !suspect && !all {
                continue;
            }
            if by_retry { by_retrying.push(at) } else { again.push(at) }
        }
        let room = (self.groups.shape().parity as usize).saturating_sub(again.len());
        again.extend(by_retrying.into_iter().take(room));
        again.sort_unstable();
        let mut run: Vec<usize> = Vec::new();
        for at in again {
            if run.last().is_some_and(|last| last + 1 != at || !self.follows(at)) {
                self.write_again(&std::mem::take(&mut run));
            }
            run.push(at);
        }
        self.write_again(&run);
    }

    /// The members of `range` that are held, but not as they were lent: to be copied there.
    pub fn mended(&self, range: Range<usize>) -> impl Iterator<Item = (usize, &[u8])> {
        range.filter_map(|at| {
            let held = self.slots[at].held?;
            let lent = matches!(self.segments[held.segment], Segment::Lent(_));
            (!lent).then(|| (at, self.held_bytes(held)))
        })
    }

    /// Whether the CRCs of all data in use are known.
    pub fn sums_are_known(&self) -> bool {
        self.sums.iter().all(Option::is_some)
    }

    /// The CRC of a data member, which is known or whose bytes are held.
    pub fn sum(&self, at: usize) -> u32 {
        self.sums[at].unwrap_or_else(|| sector_sum(self.bytes(at).expect("it is held")))
    }

    /// The members of `range` that had failed and are held.
    pub fn failed_and_mended(&self, range: Range<usize>) -> Vec<Member> {
        let mended = |at: &usize| self.slots[*at].failed.is_some() && self.slots[*at].held.is_some();
        range.filter(mended).map(|at| self.member(at)).collect()
    }

    /// Whether something is known of a member: that it is held, or that it failed.
    pub fn knows(&self, at: usize) -> bool {
        !self.slots[at].is_unknown()
    }

    /// Whether a member failed for good, as far as is known: what is lost, and void parity.
    pub fn is_lost(&self, at: usize) -> bool {
        self.slots[at].held.is_none() && self.slots[at].failed == Some(Failure::Lost)
    }

    /// The numbers of the parity sectors.
    pub fn parity(&self) -> Range<usize> {
        self.sums.len()..self.slots.len()
    }

    /// How many parity sectors are void.
    pub fn parity_void(&self) -> usize {
        self.slots.iter().filter(|slot| slot.void && slot.held.is_none()).count()
    }

    /// How many members nothing is known of.
    pub fn unknown(&self) -> usize {
        self.slots.iter().filter(|slot| slot.is_unknown()).count()
    }

    /// Whether a member is held.
    pub fn holds(&self, at: usize) -> bool {
        self.slots[at].held.is_some()
    }

    /// The bytes of a member that is held.
    pub fn bytes(&self, at: usize) -> Option<&[u8]> {
        self.slots[at].held.map(|held| self.held_bytes(held))
    }

    /// The number of a member among those of the group.
    pub fn at(&self, member: Member) -> usize {
        match member {
            Member::Data(position) => position as usize,
            Member::Parity(number) => (self.place.data + number) as usize,
        }
    }

    /// What is lost if these members cannot be had.
    pub fn lost(&self, missing: &[usize]) -> GroupError {
        count(&self.groups.counts().sectors_lost, missing.len());
        GroupError::Lost { place: self.place, positions: missing.iter().map(|at| *at as u32).collect() }
    }

    /// The number of the member at a place within the group; `None` for room that is not in use.
    fn at_place(&self, sector: Sector) -> Option<usize> {
        let behind = (sector.0 - self.place.first.0) as u32;
        match behind.checked_sub(self.place.capacity) {
            Some(number) => Some(self.at(Member::Parity(number))),
            None => (behind < self.place.data).then_some(behind as usize),
        }
    }

    fn is_void(&self, at: usize, bytes: &[u8]) -> bool {
        at >= self.sums.len() && is_void(bytes, self.groups.disk(), self.place.sector(self.member(at)))
    }

    fn member(&self, at: usize) -> Member {
        match at.checked_sub(self.sums.len()) {
            None => Member::Data(at as u32),
            Some(number) => Member::Parity(number as u32),
        }
    }

    /// Whether a member lies right behind the one before it.
    fn follows(&self, at: usize) -> bool {
        at != self.sums.len() || self.place.data == self.place.capacity
    }

    fn held_bytes(&self, held: Held) -> &[u8] {
        &self.segments[held.segment].bytes()[held.sector * SECTOR_BYTES..][..SECTOR_BYTES]
    }

    /// Whether bytes may be those of a member: they have its CRC, if that is known, and are not void.
    fn matches(&self, at: usize, bytes: &[u8]) -> bool {
        self.sums.get(at).copied().flatten().is_none_or(|sum| sum == sector_sum(bytes)) && !self.is_void(at, bytes)
    }

    fn hold_own(&mut self, at: usize, bytes: Bytes) {
        self.slots[at].held = Some(Held { segment: self.segments.len(), sector: 0 });
        self.segments.push(Segment::Own(bytes));
    }

    fn data_gone(&self) -> Vec<usize> {
        (0..self.sums.len()).filter(|at| !self.holds(*at)).collect()
    }

    fn parity_held(&self) -> usize {
        (self.sums.len()..self.slots.len()).filter(|at| self.holds(*at)).count()
    }

    /// Members that may be retried: those of `missing`, and others; soft failures first, data first.
    fn retriable(&self, missing: &[usize]) -> (Vec<usize>, Vec<usize>) {
        let retriable = |failure: Failure| {
            (0..self.slots.len()).filter(move |at| {
                let slot = self.slots[*at];
                slot.failed == Some(failure) && slot.held.is_none() && !slot.retried
            })
        };
        retriable(Failure::Soft).chain(retriable(Failure::Wrong)).partition(|at| missing.contains(at))
    }

    /// Reads a member by retrying; returns whether it is held now.
    fn retry(&mut self, at: usize) -> Result<bool, DeviceError> {
        self.slots[at].retried = true;
        let place = self.place.sector(self.member(at));
        let mut bytes = aligned_buffer(SECTOR_BYTES);
        bytes.resize(SECTOR_BYTES, 0);
        let read = self.groups.read_retrying(place, &mut bytes)?;
        let right = read && self.matches(at, &bytes);
        if right {
            self.hold_own(at, bytes.freeze());
            self.slots[at].by_retry = true;
            self.groups.lost().forget(place.0..place.0 + 1);
        } else if read && self.is_void(at, &bytes) {
            self.slots[at] = Slot::void();
        } else {
            self.groups.lost().note(place);
            // The device has nothing that is worth more than what may be decoded.
            self.slots[at].failed = Some(if read { Failure::Wrong } else { Failure::Lost });
        }
        Ok(right)
    }

    /// Decodes the data that is gone, and holds what matches its CRC; returns whether all does. If it does not, parity
    /// may be wrong: it is tried without each sector that was used, where there are more, and then without all those
    /// that the code itself finds wrong (two sectors to spare for each).
    fn decode(&mut self, gone: &[usize]) -> bool {
        let parity: Vec<usize> = (self.sums.len()..self.slots.len()).filter(|at| self.holds(*at)).collect();
        let spare = parity.len() > gone.len();
        let without = std::iter::once(None).chain(parity[..gone.len()].iter().copied().map(Some).filter(|_| spare));
        for without in without {
            let mut codeword = self.codeword();
            if let Some(at) = without {
                codeword[self.chunk(at)] = None;
            }
            let decoded = self.decode_once(&codeword, gone);
            if decoded.is_some_and(|out| self.hold_decoded(gone, out)) {
                return true;
            }
        }
        let before = self.slots.clone();
        if spare && self.discard_wrong() {
            let gone = self.data_gone();
            let decoded = self.decode_once(&self.codeword(), &gone);
            if decoded.is_some_and(|out| self.hold_decoded(&gone, out)) {
                return true;
            }
        }
        // With more wrong than can be found, the code may have named others: they are as good as before.
        self.slots = before;
        false
    }

    /// Decodes the data that is gone as [`Gathering::decode`], leaving out each set of parity sectors in turn, the smallest first:
    /// what was left out is wrong if the data that comes out has its CRCs and fits all other parity, and is mended then. At most
    /// [`TRIES_MAX`] times: all sets of up to ten parity sectors, and of 19 those of two and of most of three.
    fn decode_without_any(&mut self, gone: &[usize]) -> bool {
        let parity: Vec<usize> = (self.sums.len()..self.slots.len()).filter(|at| self.holds(*at)).collect();
        let spare = parity.len().saturating_sub(gone.len());
        let sets = (1..=spare).flat_map(|count| subsets(parity.len(), count)).take(TRIES_MAX);
        for set in sets {
            let wrong: Vec<usize> = set.into_iter().map(|number| parity[number]).collect();
            let mut codeword = self.codeword();
            wrong.iter().for_each(|at| codeword[self.chunk(*at)] = None);
            let Some(out) = self.decode_once(&codeword, gone) else { continue };
            let fits = |(at, bytes): (&usize, &[u8])| self.matches(*at, bytes);
            if !gone.iter().zip(out.chunks_exact(SECTOR_BYTES)).all(fits) {
                continue;
            }
            let right = self.parity_with(gone, &out);
            let right_of = |at: usize| {
                let number = at - self.sums.len();
                right.slice(number * SECTOR_BYTES..(number + 1) * SECTOR_BYTES)
            };
            if parity.iter().any(|at| !wrong.contains(at) && self.bytes(*at) != Some(&right_of(*at)[..])) {
                continue;
            }
            count(&self.groups.counts().mismatches, wrong.len());
            for (at, bytes) in wrong.into_iter().map(|at| (at, right_of(at))).collect::<Vec<(usize, Bytes)>>() {
                self.slots[at] = Slot { failed: Some(Failure::Wrong), ..Slot::default() };
                self.hold_own(at, bytes);
            }
            return self.hold_decoded(gone, out);
        }
        false
    }

    /// The parity of the data that is held and of what was decoded.
    fn parity_with(&self, gone: &[usize], decoded: &Bytes) -> Bytes {
        let mut decoded = gone.iter().zip(decoded.chunks_exact(SECTOR_BYTES)).peekable();
        let data = (0..self.sums.len()).map(|at| match decoded.next_if(|(gone, _)| **gone == at) {
            Some((_, bytes)) => bytes,
            None => self.bytes(at).expect("what is not gone is held"),
        });
        let data: Vec<&[u8]> = data.collect();
        let mut parity = aligned_buffer(self.groups.shape().parity as usize * SECTOR_BYTES);
        parity.resize(self.groups.shape().parity as usize * SECTOR_BYTES, 0);
        self.groups.code().encode(&data, &mut parity);
        parity.freeze()
    }

    /// Lets go of the members that the others show to be wrong; returns whether what is left is a codeword. At least one
    /// more is to be held than the group has data.
    fn discard_wrong(&mut self) -> bool {
        let located = self.groups.code().locate(&self.codeword());
        // Zeros that are stored nowhere cannot be wrong, nor can what matches its CRC: then more is wrong than can be found.
        let members = |wrong: Vec<usize>| -> Option<Vec<usize>> {
            wrong
                .into_iter()
                .map(|chunk| self.at_chunk(chunk).filter(|at| self.sums.get(*at).is_none_or(Option::is_none)))
                .collect()
        };
        let Some(wrong) = located.and_then(members) else {
            return false;
        };
        count(&self.groups.counts().mismatches, wrong.len());
        for at in wrong {
            self.slots[at] = Slot { failed: Some(Failure::Wrong), ..Slot::default() };
        }
        true
    }

    fn decode_once(&self, codeword: &[Option<&[u8]>], gone: &[usize]) -> Option<Bytes> {
        let want: Vec<usize> = gone.iter().map(|at| self.chunk(*at)).collect();
        self.groups.code().decode(codeword, &want).map(Bytes::from)
    }

    fn hold_decoded(&mut self, gone: &[usize], out: Bytes) -> bool {
        let mut all = true;
        for (at, sector) in gone.iter().zip(0..) {
            let bytes = out.slice(sector * SECTOR_BYTES..(sector + 1) * SECTOR_BYTES);
            if self.matches(*at, &bytes) {
                self.hold_own(*at, bytes);
            } else {
                all = false;
            }
        }
        all
    }

    /// What is held, as the code counts it.
    fn codeword(&self) -> Vec<Option<&[u8]>> {
        let shape = self.groups.shape();
        let mut codeword: Vec<Option<&[u8]>> = vec![Some(&ZEROS); (shape.data + shape.parity) as usize];
        for at in 0..self.slots.len() {
            codeword[self.chunk(at)] = self.bytes(at);
        }
        codeword
    }

    fn chunk(&self, at: usize) -> usize {
        if at < self.sums.len() { at } else { at - self.sums.len() + self.groups.shape().data as usize }
    }

    fn at_chunk(&self, chunk: usize) -> Option<usize> {
        match chunk.checked_sub(self.groups.shape().data as usize) {
            None => (chunk < self.sums.len()).then_some(chunk),
            Some(number) => Some(self.sums.len() + number),
        }
    }

    /// Writes members that lie one behind the other. They are what was there, so a failed write changes nothing that
    /// the CRCs would not show.
    fn write_again(&self, run: &[usize]) {
        if let Some(first) = run.first() {
            let mut bytes = aligned_buffer(run.len() * SECTOR_BYTES);
            for at in run {
                bytes.extend_from_slice(self.bytes(*at).expect("only what is held is written"));
            }
            self.groups.mend(self.place, self.place.sector(self.member(*first)), &bytes);
        }
    }
}

impl From<SectorFailure> for Failure {
    fn from(failure: SectorFailure) -> Failure {
        match failure {
            SectorFailure::Soft => Failure::Soft,
            SectorFailure::Lost => Failure::Lost,
        }
    }
}

/// All sets of `count` of the numbers below `of`, ascending.
fn subsets(of: usize, count: usize) -> impl Iterator<Item = Vec<usize>> {
    let first = (count <= of).then(|| (0..count).collect::<Vec<usize>>());
    std::iter::successors(first, move |set| {
        let moves = (0..count).rev().find(|at| set[*at] < of - count + at)?;
        let mut next = set.clone();
        for (index, behind) in next[moves..].iter_mut().zip(1..) {
            *index = set[moves] + behind;
        }
        Some(next)
    })
}

/// Tries of [`Gathering::decode_without_any`]: each is a decoding, 1 to 10 ms.
const TRIES_MAX: usize = 1024;

/// How groups without parity are read: there is nothing to decode from.
pub(crate) fn effort(parity: u32) -> Effort {
    if parity == 0 { Effort::Retry } else { Effort::FailFast }
}
