//! Which log a write goes to: what the hard disk would do next, and how long the solid-state drive's queue is.
//!
//! Invariants:
//! 1. At most one record of users or of padding is on its way to the hard disk's log that the predictor knows of, so they reach it in the
//!    order of their places. Who comes meanwhile stands in line ([`Line`](super::line::Line)), or goes to the solid-state drive.
//! 2. Every other request to the hard disk suspends the predictor.
//! 3. What is written or synced for the predictor alone is paid for by what users write: see [`Credit`].
//!
//! Left out: several hard disks for one write. Each pair has its own; what pairs on one solid-state drive know of that, they share
//! ([`TieredDevice::share_ssd`]).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use claystone_env::{BufferState, DeviceError, Moment, SECTOR_BYTES, Sector, SectorRange, aligned_buffer};

use super::TieredDevice;
use super::append::{Staged, hold_unlisted, take_place};
use super::line::InLine;
use super::state::{SsdState, State};
use crate::credit::Credit;
use crate::padding::{Padding, Upkeep};
use crate::predictor::{Counts, Predictor, Sender, Stage, Trust, Tuning};
use crate::profile::Profile;
use crate::recess::Recess;
use crate::record::{Kind, sector_crcs};
use crate::scheduler::{DiskView, Rule, Target, steer};
use crate::ssd_queue::{SsdQueue, SsdTicket};
use crate::superblock::Side;

/// See the module.
pub struct Guide {
    predictor: Predictor,
    /// Writes on their way to the solid-state drive, of users and of syncs, those of other pairs on it too.
    ssd: Arc<Mutex<SsdQueue>>,
    rule: Rule,
    /// For padding and syncs that only the predictor wants.
    credit: Credit,
    padding: Padding,
    recess: Recess,
    /// A record that the predictor knows of is on its way.
    busy: bool,
    /// When the hard disk was last asked for anything,
    idle_since: Moment,
    /// and when a write was last redirected.
    unused_since: Moment,
}

impl Guide {
    pub fn new(profile: Profile, rule: Rule, tuning: Tuning) -> Guide {
        Guide {
            rule: rule.for_drive(&profile),
            predictor: Predictor::new(profile, tuning),
            ssd: Arc::default(),
            credit: Credit::new(tuning.padding.credit_bytes),
            padding: tuning.padding,
            recess: Recess::default(),
            busy: false,
            idle_since: Moment::default(),
            unused_since: Moment::default(),
        }
    }

    /// Whether no write is on its way to the solid-state drive.
    pub fn is_ssd_idle(&self, now: Moment) -> bool {
        self.ssd().view(now).queue == 0
    }

    /// From now on the solid-state drive has this queue.
    ///
    /// # Panics
    /// If a write is on its way to it.
    pub fn share(&mut self, ssd: Arc<Mutex<SsdQueue>>) {
        assert_eq!(self.ssd().view(Moment::default()).queue, 0, "a queue is shared before anybody writes");
        self.ssd = ssd;
    }

    fn ssd(&self) -> MutexGuard<'_, SsdQueue> {
        self.ssd.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a write of so many bytes goes. Its header counts for the hard disk's buffer, but not for what is too long or waits: the rule is of
    /// what users write.
    pub fn side_for(&self, now: Moment, bytes: u64) -> Side {
        let view = DiskView {
            predicted: self.predictor.predict(bytes + SECTOR_BYTES as u64),
            left_bytes: self.predictor.left_bytes(),
            waiting: self.predictor.queued(),
        };
        match steer(&self.rule, &self.ssd().view(now), bytes, &[view]) {
            Target::Ssd => Side::Ssd,
            Target::Hdd(_) => Side::Hdd,
        }
    }

    /// What the predictor saw, and where it believes the drive to be; `None`: it does not believe what it knows of it.
    pub fn seen(&self) -> (Option<Stage>, Counts) {
        let stage = Some(self.predictor.stage()).filter(|_| self.predictor.trust() == Trust::Believed);
        (stage, self.predictor.counts())
    }

    /// The same, of the next write.
    pub fn buffer(&self) -> BufferState {
        match (self.predictor.trust(), self.predictor.stage()) {
            (Trust::GivenUp, _) => BufferState::GivenUp,
            (Trust::OnTrial, _) => BufferState::OnTrial,
            (Trust::Believed, Stage::Fast) => BufferState::Fast,
            (Trust::Believed, Stage::Mid) => BufferState::Mid,
            (Trust::Believed, Stage::Due) => BufferState::Due,
            (Trust::Believed, Stage::Slow) => BufferState::Slow,
            (Trust::Believed, Stage::Lost) => BufferState::Lost,
            (Trust::Believed, Stage::Suspended) => BufferState::Suspended,
        }
    }

    /// A user writes so many bytes, to the log of this side.
    pub fn earn(&mut self, side: Side, bytes: u64) {
        self.credit.earn(bytes, self.padding.credit_percent);
        if side == Side::Hdd {
            self.credit.earn(bytes, self.padding.credit_percent_redirected);
        }
    }

    /// Whether so much may be written for the predictor alone.
    fn spend(&mut self, bytes: u64) -> bool {
        let may = self.credit.spend(bytes);
        if !may && self.predictor.stage() == Stage::Mid {
            // What is not kept in a middle stage leaves it.
            self.predictor.lose();
        }
        may
    }

    /// A write of so many bytes goes to the solid-state drive's log.
    pub fn begin_ssd(&mut self, bytes: u64, now: Moment) -> SsdTicket {
        self.ssd().begin(now, bytes, self.predictor.profile())
    }

    /// It is there, or failed.
    pub fn end_ssd(&mut self, ticket: SsdTicket) {
        self.ssd().end(ticket);
    }

    /// Whether a record is on its way that the predictor knows of.
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    /// A user's write stands in line for the hard disk's log,
    pub fn join(&mut self, bytes: u64) {
        self.predictor.queue(bytes);
    }

    /// and the first one leaves it for somewhere else.
    pub fn leave(&mut self) {
        self.predictor.unqueue();
    }

    /// Whether the hard disk would take a record of so many bytes now, before those in line.
    pub fn takes(&self, bytes: u64) -> bool {
        self.predictor.takes(bytes)
    }

    /// A record of the first in line goes to the hard disk's log.
    pub fn begin(&mut self) {
        assert!(!self.busy, "one at a time");
        self.busy = true;
    }

    /// It is there, with the writes of so many; `None`: it failed.
    pub fn end(&mut self, writes: usize, bytes: u64, took: Option<Duration>, now: Moment) {
        match took {
            Some(took) => self.predictor.wrote_together(writes, bytes, took),
            None => {
                (0..writes).for_each(|_| self.leave());
                self.predictor.lose();
            }
        }
        self.busy = false;
        (self.idle_since, self.unused_since) = (now, now);
    }

    /// For how long no write was redirected.
    pub fn unused(&self, now: Moment) -> Duration {
        now.since(self.unused_since)
    }

    /// Whether users write to the hard disk: what its predictor wants may change at any time.
    fn is_used(&self, now: Moment) -> bool {
        self.busy || self.unused(now) < IN_USE
    }

    /// The hard disk is asked for something else.
    pub fn suspend(&mut self) {
        self.predictor.suspend();
    }

    /// It has done it.
    pub fn resume(&mut self, synced: bool, now: Moment) {
        match synced {
            true => self.predictor.resume_synced(),
            false => self.predictor.resume(),
        }
        self.idle_since = now;
    }
}

/// What a drive was given to stay where the predictor believes it to be.
pub enum Kept {
    /// Nothing; it may need something after so long.
    Nothing(Option<Duration>),
    /// Padding, or a sync.
    Something,
}

impl TieredDevice {
    /// Counts this pair's writes to the solid-state drive in a queue that other pairs on the same drive have too: it is late for all of them
    /// at once. Their clocks are one.
    ///
    /// # Panics
    /// If somebody writes.
    pub fn share_ssd(&self, queue: Arc<Mutex<SsdQueue>>) {
        if let Some(guide) = &mut self.state().guide {
            guide.share(queue);
        }
    }

    /// Does something to the hard disk that is no write to its log. `synced`: it ends with a sync.
    pub(super) fn disturb<T, E>(&self, synced: bool, act: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let with = |change: &dyn Fn(&mut Guide)| {
            if let Some(guide) = &mut self.state().guide {
                change(guide);
            }
        };
        with(&|guide| guide.suspend());
        let done = act();
        let now = (self.now)();
        with(&|guide| guide.resume(synced && done.is_ok(), now));
        done
    }

    /// Gives the hard disk what its predictor wants now.
    pub(super) fn keep_up(&self) -> Result<Kept, DeviceError> {
        let now = (self.now)();
        let mut state = self.state();
        // At rest nothing is written.
        let works = state.ssd == SsdState::Present && !state.failed && !state.superblock.at_rest;
        let Some(guide) = state.guide.as_mut().filter(|_| works) else {
            return Ok(Kept::Nothing(None));
        };
        if guide.recess.is_over(guide.predictor.trust(), now) {
            guide.predictor.try_again();
        }
        let soon = guide.is_used(now).then_some(LOOK_AGAIN);
        if guide.busy {
            return Ok(Kept::Nothing(soon));
        }
        let (idle, unused) = (now.since(guide.idle_since), guide.unused(now));
        let is_calm = guide.rule.is_calm(&guide.ssd().view(now));
        let bytes = match guide.predictor.upkeep(idle, unused, is_calm) {
            Upkeep::Nothing => return Ok(Kept::Nothing(soon)),
            Upkeep::After(wait) => return Ok(Kept::Nothing(Some(wait))),
            Upkeep::Sync => {
                if !guide.spend(Padding::SYNC_BYTES) {
                    return Ok(Kept::Nothing(None));
                }
                state.counts.upkeep_syncs += 1;
                drop(state);
                return self.sync_hdd().map(|()| Kept::Something);
            }
            Upkeep::Pad(bytes) => bytes,
        };
        let sectors = (bytes / SECTOR_BYTES as u64).clamp(1, u64::from(state.superblock.record_sectors_max) + 1);
        // Padding never takes the room of writes: a log that is half full is not padded.
        let ring = &state.rings[Side::Hdd as usize];
        if ring.used() * 2 > ring.sectors() || !ring.has_room(sectors, state.reserve(Side::Hdd)) {
            return Ok(Kept::Nothing(None));
        }
        if let Some(guide) = &mut state.guide {
            if !guide.spend(sectors * SECTOR_BYTES as u64) {
                return Ok(Kept::Nothing(None));
            }
            guide.busy = true;
        }
        let staged = self.stage_padding(&mut state, sectors);
        drop(state);
        let begun = (self.now)();
        let written = self.write_staged(&staged);
        let now = (self.now)();
        let mut state = self.state();
        state.in_flight.remove(&staged.seq);
        state.counts.padding_sectors += sectors;
        if let Some(guide) = &mut state.guide {
            match &written {
                Ok(()) => guide.predictor.wrote(Sender::Padding, sectors * SECTOR_BYTES as u64, now.since(begun)),
                Err(_) => guide.predictor.lose(),
            }
            (guide.busy, guide.idle_since) = (false, now);
        }
        state.line.first().into_iter().for_each(InLine::wake);
        drop(state);
        self.bell.ring();
        written.map(|()| Kept::Something)
    }

    /// Takes sequence and place for padding. No mark lists it.
    fn stage_padding(&self, state: &mut State, sectors: u64) -> Staged {
        let mut bytes = aligned_buffer(sectors as usize * SECTOR_BYTES);
        bytes.resize(sectors as usize * SECTOR_BYTES, 0);
        let crcs = sector_crcs(&bytes[SECTOR_BYTES..]);
        let (header, position) = take_place(state, Side::Hdd, Kind::Padding, Vec::new(), crcs, 0);
        bytes[..SECTOR_BYTES].copy_from_slice(&header.encode(state.superblock.id));
        hold_unlisted(state, &header, position);
        let seq = header.seq;
        match state.padded.last_mut() {
            Some(last) if last.end().0 == seq => last.sectors += 1,
            _ => state.padded.push(SectorRange { first: Sector(seq), sectors: 1 }),
        }
        state.in_flight.insert(seq);
        self.staged(&header, bytes.freeze())
    }
}

/// So long after a user's write to the hard disk another one is to be expected.
const IN_USE: Duration = Duration::from_millis(50);
/// A stage may end meanwhile: a slow one that nobody leaves keeps users away.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::profile;
    use crate::scheduler::Mode;

    #[test]
    fn one_write_that_the_solid_state_drive_is_late_with_sends_others_to_the_hard_disk() {
        let at = |us: u64| Moment(Duration::from_micros(us));
        let mut guide = Guide::new(profile(), Rule::of(Mode::Disabled, 6), Tuning::default());
        guide.predictor.synced();
        let ticket = guide.begin_ssd(8192, at(0));
        assert_eq!(guide.side_for(at(50), 8192), Side::Ssd, "a queue of one is short");
        assert_eq!(guide.side_for(at(5000), 8192), Side::Hdd, "5 ms for 8 KiB");
        assert_eq!(guide.side_for(at(5000), 256 << 10), Side::Ssd, "a long one waits");
        // Some stand in line.
        (0..31).for_each(|_| guide.join(8192));
        assert_eq!(guide.side_for(at(5000), 8192), Side::Hdd);
        guide.join(8192);
        assert_eq!(guide.side_for(at(5000), 8192), Side::Ssd, "it is long");
        guide.begin();
        guide.end(32, 33 * 4096, Some(Duration::from_micros(900)), at(5090));
        guide.end_ssd(ticket);
        assert_eq!(guide.side_for(at(5100), 8192), Side::Ssd);
    }

    #[test]
    fn a_small_buffer_is_for_stalls() {
        let at = |us: u64| Moment(Duration::from_micros(us));
        for (mid, early) in [(8, Side::Hdd), (4, Side::Ssd)] {
            let mut drive = profile();
            drive.mid.mean = mid << 20;
            drive.mid.least = mid << 20;
            let mut guide = Guide::new(drive, Rule::of(Mode::Disabled, 6), Tuning::default());
            guide.predictor.synced();
            let waiting = [0, 10].map(|us| guide.begin_ssd(8192, at(us)));
            assert_eq!(guide.side_for(at(20), 8192), early, "{mid} MiB, and two wait");
            assert_eq!(guide.side_for(at(5000), 8192), Side::Hdd, "{mid} MiB, in a stall");
            waiting.into_iter().for_each(|ticket| guide.end_ssd(ticket));
        }
    }

    #[test]
    fn pairs_on_one_solid_state_drive_know_that_it_is_late() {
        let at = |us: u64| Moment(Duration::from_micros(us));
        let ssd: Arc<Mutex<SsdQueue>> = Arc::default();
        let [mut one, mut other, apart] = [Some(&ssd), Some(&ssd), None].map(|shared| {
            let mut guide = Guide::new(profile(), Rule::of(Mode::Disabled, 6), Tuning::default());
            guide.predictor.synced();
            shared.into_iter().for_each(|ssd| guide.share(ssd.clone()));
            guide
        });
        let first = one.begin_ssd(8192, at(0));
        let second = other.begin_ssd(8192, at(10));
        // Two of one drive are a queue for short writes already.
        assert_eq!([&one, &other, &apart].map(|guide| guide.side_for(at(20), 8192)), [Side::Hdd, Side::Hdd, Side::Ssd]);
        other.end_ssd(second);
        assert_eq!([&one, &other, &apart].map(|guide| guide.side_for(at(30), 8192)), [Side::Ssd; 3]);
        assert_eq!(
            [&one, &other, &apart].map(|guide| guide.side_for(at(5000), 8192)),
            [Side::Hdd, Side::Hdd, Side::Ssd]
        );
        one.end_ssd(first);
        assert_eq!([&one, &other, &apart].map(|guide| guide.side_for(at(5000), 8192)), [Side::Ssd; 3]);
    }
}
