//! Which state a drive's next write will meet, by counting bytes since the last change.
//!
//! ```text
//!            new, synced                               hardly anything fits any more
//!                |                          .-----------------------------------------> Due
//!                v                          |                                            | a slow write
//!              Fast --a slow write-----.    |                                            v
//!                |                     |----+------------------------------------------> Slow --a quick write--> Mid
//!                '-------> (Due)       |                                                 ^                        |
//!              Mid ---a slow write-----'                                                 |                        '--> (Due, Slow)
//!                                                                                        |
//!   any --suspend--> Suspended --resume of the last--> Lost --a slow write---------------'
//!                        '--resume_synced of the last--> Fast
//!
//!   Believed --nothing fits what was seen--> GivenUp --try_again--> OnTrial --stages that are alike--> Believed
//!                                               ^                      '--no such stages--.
//!                                               '------------------------------------------'
//! ```
//!
//! | stage | what holds | what is predicted | what upkeep wants |
//! |---|---|---|---|
//! | Fast | `taken` bytes were written since a sync, all quickly | Fast, if the write still fits below the limit | nothing |
//! | Mid | `taken` bytes were written since the last slow one | Mid, if the write still fits below the limit | a little padding when idle; much, in Fast too, when less than the reserve is left |
//! | Due | the limit is reached; the slow write has not come yet | Slow | padding until it comes |
//! | Slow | `taken` bytes were written since the first slow one, all slowly | Slow | padding until one is not |
//! | Lost | where the drive is nobody knows | Slow | padding until a slow write tells, or a sync; when nobody has read for a while |
//! | Suspended | somebody reads or syncs | Slow | nothing |
//! | any, given up | the drive does not do what its limits say | Slow | nothing |
//! | any, on trial | since then so many middle stages were seen as limits are made of, with padding alone | Slow | padding, while the solid-state drive is calm |
//!
//! Source: [bcw §Predict Write State], [bcw §Buffer-Controlled Writes]. Where the paper is silent or differs
//! (docs/decisions): padding leaves a slow stage only after a slow write was seen in it, because a limit of caution is reached
//! earlier than the buffer's; a write that does not fit raises no flag, because shorter ones may fit still; the quick write
//! that ends a slow stage counts in the next one.
//!
//! Invariants:
//! 1. When in doubt, Slow: a write is predicted as Fast or Mid only if all bytes before it, those that are queued too, and its
//!    own are below the limit of the stage, and it is no longer than any that was measured.
//! 2. `taken` never exceeds what was written since the stage began.
//! 3. Nothing is written for ever: after [`Tuning::give_up_after`] times the most that a stage takes without a slow write, or a slow
//!    stage without a quick one, the drive is not what its profile says, and is given up. A trial of it ends in the same way.
//! 4. No user's write is sent to a drive on trial: its limits are made of what padding met.

mod limit;

use std::collections::VecDeque;
use std::time::Duration;

use self::limit::Limit;
use crate::latency::WriteState;
use crate::padding::{Padding, Upkeep};
use crate::profile::Profile;
use crate::stage::StageBytes;

/// Where a drive is believed to be; see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Since a sync.
    Fast,
    /// Since a slow stage.
    Mid,
    /// A slow write is awaited.
    Due,
    /// The last write was slow.
    Slow,
    /// Nobody knows.
    Lost,
    /// Somebody reads or syncs.
    Suspended,
}

/// Whether a predictor believes that its drive does what its limits say; see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// It does.
    Believed,
    /// It does not, and is left alone.
    GivenUp,
    /// It is padded to find out.
    OnTrial,
}

/// Whose a write is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// Somebody waits for it.
    User,
    /// Nobody needs it.
    Padding,
}

/// How a predictor decides what its profile leaves open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// What the drive is padded with.
    pub padding: Padding,
    /// A stage is over when no more than this fits into it.
    pub due_below: u64,
    /// Of the last [`Tuning::stages_judged`] stages, so many may end outside of what the profile says. More, and the limits are
    /// made anew from them.
    pub wrong_max: usize,
    /// See [`Tuning::wrong_max`].
    pub stages_judged: usize,
    /// So many times the most that a stage takes may be written without a slow write, and that a slow stage takes without a quick one.
    pub give_up_after: u64,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning { padding: Padding::default(), due_below: 64 << 10, wrong_max: 3, stages_judged: 16, give_up_after: 4 }
    }
}

/// What a predictor saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Writes of users.
    pub user_writes: u64,
    /// Their bytes.
    pub user_bytes: u64,
    /// Those of them that met a slow stage, which they were not sent into.
    pub user_surprises: u64,
    /// Paddings.
    pub paddings: u64,
    /// Their bytes.
    pub padding_bytes: u64,
    /// Paddings that met a slow stage before it was due.
    pub padding_surprises: u64,
    /// Slow stages.
    pub slow_stages: u64,
    /// Times that a read or a flush of the drive's own made all counting void.
    pub losses: u64,
    /// Times that limits were made anew, after a trial too.
    pub recalibrations: u64,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Predictor {
    profile: Profile,
    tuning: Tuning,
    fast: Limit,
    mid: Limit,
    stage: Stage,
    /// The stage that becomes due: Fast or Mid.
    within: Stage,
    /// Written since `within` began; in Lost and Slow, since then.
    taken: u64,
    /// Bytes of users' writes on their way, in their order.
    queued: VecDeque<u64>,
    queued_bytes: u64,
    suspensions: u32,
    trust: Trust,
    /// Middle stages that were seen on trial.
    tried: Vec<u64>,
    counts: Counts,
}

impl Predictor {
    /// Of a drive whose state nobody knows yet: [`Predictor::synced`] or padding finds out.
    ///
    /// # Panics
    /// If the profile does not pass [`Profile::check`].
    pub fn new(profile: Profile, tuning: Tuning) -> Predictor {
        assert_eq!(profile.check(), Ok(()), "a profile is checked before it is used");
        let (fast, mid) = (Limit::new(profile.fast), Limit::new(profile.mid));
        Predictor {
            profile,
            tuning,
            fast,
            mid,
            stage: Stage::Lost,
            within: Stage::Mid,
            taken: 0,
            queued: VecDeque::new(),
            queued_bytes: 0,
            suspensions: 0,
            trust: Trust::Believed,
            tried: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// What it was made from.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Where the drive is believed to be.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// What it saw.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Users' writes on their way.
    pub fn queued(&self) -> usize {
        self.queued.len()
    }

    /// Whether the drive does what is believed of it. If not, nothing is predicted but Slow.
    pub fn trust(&self) -> Trust {
        self.trust
    }

    /// Puts a drive on trial that was given up.
    pub fn try_again(&mut self) {
        if self.trust == Trust::GivenUp {
            self.trust = Trust::OnTrial;
            self.tried.clear();
            if self.suspensions == 0 {
                self.enter(Stage::Lost, 0);
            }
        }
    }

    /// Bytes that the present stage takes for certain, beside those on their way; 0 in other stages than Fast and Mid.
    pub fn left_bytes(&self) -> u64 {
        match self.stage {
            Stage::Fast | Stage::Mid => self.limit_bytes().saturating_sub(self.taken + self.queued_bytes),
            Stage::Due | Stage::Slow | Stage::Lost | Stage::Suspended => 0,
        }
    }

    /// What a write of so many bytes would meet if it was sent now, behind those on their way.
    pub fn predict(&self, bytes: u64) -> WriteState {
        match self.stage {
            _ if self.trust != Trust::Believed || bytes > self.longest() || bytes > self.left_bytes() => {
                WriteState::Slow
            }
            Stage::Fast => WriteState::Fast,
            Stage::Mid => WriteState::Mid,
            Stage::Due | Stage::Slow | Stage::Lost | Stage::Suspended => WriteState::Slow,
        }
    }

    /// A user's write is on its way. It comes to an end by [`Predictor::wrote`] or [`Predictor::unqueue`].
    pub fn queue(&mut self, bytes: u64) {
        self.queued.push_back(bytes);
        self.queued_bytes += bytes;
    }

    /// Whether the first of those on their way may be written still: what came meanwhile may have made it slow.
    pub fn may_begin(&self) -> bool {
        self.takes(self.queued.front().copied().unwrap_or(0))
    }

    /// Whether so many bytes may be written now, before those on their way.
    pub fn takes(&self, bytes: u64) -> bool {
        let takes = matches!(self.stage, Stage::Fast | Stage::Mid);
        self.trust == Trust::Believed && takes && self.taken + bytes <= self.limit_bytes()
    }

    /// The first of those on their way goes elsewhere.
    ///
    /// # Panics
    /// If none is.
    pub fn unqueue(&mut self) -> u64 {
        let bytes = self.queued.pop_front().expect("a write is on its way");
        self.queued_bytes -= bytes;
        bytes
    }

    /// A write ended: of a user the first of those on their way, or a padding.
    ///
    /// # Panics
    /// If it is a user's, and none was on its way, or the first is of another length.
    pub fn wrote(&mut self, sender: Sender, bytes: u64, took: Duration) {
        match sender {
            Sender::User => {
                assert_eq!(self.queued.front(), Some(&bytes), "writes end in their order");
                self.wrote_together(1, bytes, took);
            }
            Sender::Padding => {
                let is_surprise = self.is_surprise(bytes, took);
                self.counts.paddings += 1;
                self.counts.padding_bytes += bytes;
                self.counts.padding_surprises += u64::from(is_surprise);
                self.saw(bytes, took);
            }
        }
    }

    /// The first of users' writes on their way ended, so many as one of `bytes` bytes.
    ///
    /// # Panics
    /// If fewer were on their way, or they were shorter.
    pub fn wrote_together(&mut self, writes: usize, bytes: u64, took: Duration) {
        let apart: u64 = (0..writes).map(|_| self.unqueue()).sum();
        assert!(bytes <= apart, "{bytes} bytes together, {apart} apart");
        let is_surprise = self.is_surprise(bytes, took);
        self.counts.user_writes += writes as u64;
        self.counts.user_bytes += bytes;
        self.counts.user_surprises += if is_surprise { writes as u64 } else { 0 };
        self.saw(bytes, took);
    }

    /// Whether a write was slow that was not sent into a slow stage.
    fn is_surprise(&self, bytes: u64, took: Duration) -> bool {
        self.profile.is_slow(bytes, took) && matches!(self.stage, Stage::Fast | Stage::Mid)
    }

    /// What the drive took for a write says where it is.
    fn saw(&mut self, bytes: u64, took: Duration) {
        let is_slow = self.profile.is_slow(bytes, took);
        match (self.stage, is_slow) {
            (Stage::Fast | Stage::Mid | Stage::Due, true) => self.stage_ended(bytes),
            (Stage::Fast | Stage::Mid, false) => {
                self.taken += bytes;
                if self.limit_bytes().saturating_sub(self.taken) <= self.tuning.due_below {
                    self.stage = Stage::Due;
                }
            }
            (Stage::Due | Stage::Lost, false) => {
                self.taken += bytes;
                self.give_up_behind(self.limit(self.within).bytes().most());
            }
            (Stage::Lost, true) => self.enter_slow(),
            (Stage::Slow, true) => {
                self.taken += bytes;
                // One write may be all that a slow stage was measured to take.
                self.give_up_behind(self.profile.slow.most().max(self.longest()));
            }
            (Stage::Suspended, _) => {}
            (Stage::Slow, false) => self.enter(Stage::Mid, bytes),
        }
    }

    /// The drive was synced, and nothing was asked of it since.
    pub fn synced(&mut self) {
        if self.suspensions == 0 {
            self.enter(Stage::Fast, 0);
        }
    }

    /// A read or a sync of this drive begins: until [`Predictor::resume`] or [`Predictor::resume_synced`] nothing is sent to it.
    // Source: [bcw §Buffer-Controlled Writes]: suspended while the drive reads.
    pub fn suspend(&mut self) {
        self.suspensions += 1;
        self.stage = Stage::Suspended;
    }

    /// It ended. After the last one nobody knows where the drive is.
    ///
    /// # Panics
    /// If nothing was suspended.
    pub fn resume(&mut self) {
        self.suspensions = self.suspensions.checked_sub(1).expect("only what was suspended is resumed");
        if self.suspensions == 0 {
            self.lose();
        }
    }

    /// A sync ended: if nobody reads, the drive is fast now.
    ///
    /// # Panics
    /// As [`Predictor::resume`].
    pub fn resume_synced(&mut self) {
        self.suspensions = self.suspensions.checked_sub(1).expect("only what was suspended is resumed");
        self.synced();
    }

    /// The drive did something of its own, or may have: it was idle for too long.
    pub fn lose(&mut self) {
        if self.suspensions == 0 && self.stage != Stage::Lost {
            self.counts.losses += 1;
            self.enter(Stage::Lost, 0);
        }
    }

    /// What the drive needs now: it was idle for `idle`, and no user wrote for `unused`. `is_calm`: the solid-state drive takes what
    /// comes.
    pub fn upkeep(&self, idle: Duration, unused: Duration, is_calm: bool) -> Upkeep {
        let padding = &self.tuning.padding;
        let keeps = match self.stage {
            _ if self.trust == Trust::GivenUp || !self.queued.is_empty() => return Upkeep::Nothing,
            Stage::Suspended => return Upkeep::Nothing,
            Stage::Lost if idle < padding.settle_after => return Upkeep::After(padding.settle_after - idle),
            _ if self.trust == Trust::OnTrial && is_calm => return Upkeep::Pad(padding.leave_bytes),
            _ if self.trust == Trust::OnTrial => return Upkeep::After(padding.reserve_after),
            _ if padding.sync_after.is_some_and(|after| unused >= after) && self.is_worn() => return Upkeep::Sync,
            Stage::Due | Stage::Slow | Stage::Lost => return Upkeep::Pad(padding.leave_bytes),
            Stage::Fast | Stage::Mid if is_calm && self.is_below_reserve() => {
                return match padding.reserve_after.checked_sub(unused) {
                    Some(left) if !left.is_zero() => Upkeep::After(left),
                    _ => Upkeep::Pad(padding.leave_bytes),
                };
            }
            Stage::Fast => padding.keeps_fast,
            Stage::Mid => true,
        };
        match padding.keep_every.checked_sub(idle) {
            _ if !keeps => Upkeep::Nothing,
            Some(left) if !left.is_zero() => Upkeep::After(left),
            _ => Upkeep::Pad(padding.keep_bytes),
        }
    }

    /// Whether a sync gains much: not a fast stage of which more than three quarters are left.
    fn is_worn(&self) -> bool {
        self.stage != Stage::Fast || self.taken * 4 >= self.limit_bytes()
    }

    /// Whether a stall of the solid-state drive may use up what is left.
    fn is_below_reserve(&self) -> bool {
        let reserve = self.tuning.padding.reserve_bytes.min(self.limit_bytes() / 4 * 3);
        self.left_bytes() < reserve
    }

    /// Its limits as they are now, of the fast and the middle stage.
    pub fn limits(&self) -> (u64, u64) {
        (self.fast.bytes().limit(), self.mid.bytes().limit())
    }

    fn limit(&self, stage: Stage) -> &Limit {
        if stage == Stage::Fast { &self.fast } else { &self.mid }
    }

    fn limit_bytes(&self) -> u64 {
        self.limit(self.within).bytes().limit()
    }

    fn enter(&mut self, stage: Stage, taken: u64) {
        self.stage = stage;
        self.within = if stage == Stage::Fast { Stage::Fast } else { Stage::Mid };
        self.taken = taken;
    }

    fn enter_slow(&mut self) {
        self.counts.slow_stages += 1;
        self.enter(Stage::Slow, 0);
    }

    /// The longest write that was measured.
    fn longest(&self) -> u64 {
        self.profile.sizes.last().map_or(0, |size| size.bytes)
    }

    fn give_up(&mut self) {
        self.trust = Trust::GivenUp;
    }

    /// Gives the drive up if far more was written than this, which is the most that should have been.
    fn give_up_behind(&mut self, most: u64) {
        if self.taken > most.saturating_mul(self.tuning.give_up_after) {
            self.give_up();
        }
    }

    /// A slow write of so many bytes ended a stage that was counted from its beginning.
    fn stage_ended(&mut self, next: u64) {
        let (taken, tuning, least) = (self.taken, self.tuning, self.longest());
        match self.trust {
            // One that ends as it is given up says nothing more.
            Trust::GivenUp => {}
            Trust::OnTrial if self.within == Stage::Fast => {}
            Trust::OnTrial => self.tried(taken),
            Trust::Believed => {
                let limit = if self.within == Stage::Fast { &mut self.fast } else { &mut self.mid };
                let judgement = limit.ended(taken, next, tuning.stages_judged, tuning.wrong_max);
                if judgement == limit::Judgement::Recalibrated {
                    let is_usable = limit.bytes().limit() >= least;
                    self.counts.recalibrations += 1;
                    if !is_usable {
                        self.give_up();
                    }
                }
            }
        }
        self.enter_slow();
    }

    /// A middle stage of a trial took so many bytes. When there are as many as limits are made anew from, it is judged.
    fn tried(&mut self, taken: u64) {
        self.tried.push(taken);
        if self.tried.len() <= self.tuning.wrong_max {
            return;
        }
        let (bytes, least) = (StageBytes::of(&self.tried).expect("more than none"), self.longest());
        if !bytes.is_regular() || bytes.limit() < least {
            return self.give_up();
        }
        self.mid = Limit::new(bytes);
        if self.fast.bytes().limit() < least {
            // What a sync makes room for is not known any more: hardly less than a slow stage does.
            self.fast = Limit::new(bytes);
        }
        self.counts.recalibrations += 1;
        self.trust = Trust::Believed;
    }
}

#[cfg(test)]
mod tests;
