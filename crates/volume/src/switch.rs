//! Gives the data chunks of a volume the form that fits how much they are written: mirrored or coded.
//!
//! ```text
//!  heat of each chunk --plan_switches--> switches --one after another, between merges-->
//!     log synced -> Stripes::recode: new parity, read back -> Meta::recode: one transaction -> old parity deleted
//! ```
//!
//! Data chunks stay where they are. A crash at any step leaves a stripe of the one form or the other, whole
//! (`claystone_stripe`, module `recode`). Where the volume's code has no mixed form, all chunks of a stripe turn together.
//!
//! Invariants:
//! 1. A switch runs between merges, never beside one, and syncs the log before the records change: whatever a merge wrote
//!    into the old parity is known to be carried out, so that no crash has it written again over the new.
//! 2. A stripe that cannot be switched is left alone for a while; merging goes on. So is one whose switch is not over when the
//!    log is full.
//! 3. A stripe that a snapshot or another volume has too never comes to survive less by a switch, nor to take more space for
//!    the same. Whether it is shared is asked between merges, so it does not become so before the switch is over.

mod heat;
mod plan;
mod reserve;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use claystone_chunk::StripeId;
use claystone_code::CodeSpec;
use claystone_meta::{MetaError, Recode, Redundancy, StripeRecord, Swap};
use claystone_stripe::{Rebuilt, StripeError, Unpaced};

pub use self::heat::Heats;
pub use self::plan::{Bound, Form, StripeHeat, Switch, plan_switches};
pub use self::reserve::{FormSpace, reserve_paid_by, reserve_share};
use crate::task::to_its_end;
use crate::volume::{Inner, Volume};
use crate::{BlocksError, Settings, SwitchReport};

/// How a switch ended.
enum Outcome {
    Done {
        /// Data chunks that came to be mirrored, and to be coded.
        turned: (u64, u64),
        bytes_read: u64,
        bytes_written: u64,
    },
    /// It is not as it was planned on.
    Changed,
    /// It stays as it is for a while.
    Refused {
        /// It was to take less.
        shrinks: bool,
    },
}

impl Volume {
    /// Gives at most `limit` stripes the form that fits how much they are written. Does nothing in a volume of one code
    /// whose stripes all have it.
    ///
    /// # Errors
    /// The volume failed.
    pub async fn switch_once(&self, limit: usize) -> Result<SwitchReport, BlocksError> {
        let switches = self.inner.plan(limit).await;
        self.inner.switch_as_task(switches).await
    }

    /// Carries out switches in their order, whatever the heat of the stripes is; none is mirrored beyond the bound.
    ///
    /// # Errors
    /// The volume failed.
    pub async fn switch(&self, switches: Vec<Switch>) -> Result<SwitchReport, BlocksError> {
        self.inner.switch_as_task(switches).await
    }
}

impl Inner {
    /// In a task of its own: whoever waits for it may go away, but a record that is about to change is held until it has.
    pub(crate) async fn switch_as_task(self: &Arc<Self>, switches: Vec<Switch>) -> Result<SwitchReport, BlocksError> {
        let inner = self.clone();
        let switched = to_its_end(&self.env, "switch", async move { inner.switch_all(switches).await }).await;
        switched.unwrap_or_else(|| Err(self.fail("a switch was cut off".to_owned())))
    }

    async fn switch_all(&self, switches: Vec<Switch>) -> Result<SwitchReport, BlocksError> {
        let mut report = SwitchReport::default();
        for switch in switches {
            let began = self.env.clock.now();
            match self.switch(switch).await? {
                Outcome::Done { turned: (mirrored, coded), bytes_read, bytes_written } => {
                    report.mirrored += mirrored;
                    report.coded += coded;
                    report.bytes_read += bytes_read;
                    report.bytes_written += bytes_written;
                }
                Outcome::Changed => report.changed += 1,
                Outcome::Refused { shrinks } => {
                    report.refused += 1;
                    self.leave_alone(switch.position, REFUSED_PAUSE);
                    // What was to take more counts on the room of what was to take less.
                    if shrinks {
                        break;
                    }
                }
            }
            // Clients and merges come first: as long again as it took is theirs.
            self.rest_after(began).await;
        }
        if report != SwitchReport::default() {
            self.switched.lock().unwrap_or_else(PoisonError::into_inner).add(&report);
        }
        Ok(report)
    }

    /// What is to be switched now.
    pub(crate) async fn plan(&self, limit: usize) -> Vec<Switch> {
        let suits_all = |switch: &Switch| {
            let (stripe, to) = (self.stripe(switch.position), self.code_of(switch.to));
            stripe.zip(to).is_none_or(|(stripe, to)| suits_all(stripe.code, to))
        };
        let first = self.plan_known(LOOK_STRIPES);
        let doubtful = first.iter().filter(|switch| !suits_all(switch));
        let asked: BTreeMap<StripeId, u64> =
            doubtful.filter_map(|switch| Some((self.stripe(switch.position)?.id, switch.position))).collect();
        let mut are_some_shared = false;
        if !asked.is_empty() {
            let ids: Vec<StripeId> = asked.keys().copied().collect();
            match self.meta.shared(&ids).await {
                Ok(shared) => {
                    are_some_shared = !shared.is_empty();
                    shared.iter().for_each(|stripe| self.leave_alone(asked[stripe], SHARED_PAUSE));
                }
                Err(error) => {
                    tracing::warn!(volume = self.record.name, %error, "it is not known which stripes are shared");
                    return Vec::new();
                }
            }
        }
        let mut switches = if are_some_shared { self.plan_known(LOOK_STRIPES) } else { first };
        switches.retain(|switch| suits_all(switch) || asked.values().any(|position| *position == switch.position));
        switches.truncate(limit);
        switches
    }

    /// Plans by the stripes as they are known now, shared or not.
    fn plan_known(&self, limit: usize) -> Vec<Switch> {
        let redundancy = self.redundancy();
        let now = self.env.clock.now();
        let stays = {
            let mut unswitchable = self.unswitchable.lock().unwrap_or_else(PoisonError::into_inner);
            unswitchable.retain(|_, until| now < *until);
            unswitchable.clone()
        };
        let known: Vec<(u64, CodeSpec)> = {
            let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
            known.iter().map(|(position, stripe)| (*position, stripe.code)).collect()
        };
        let (by_chunk, columns) = (redundancy.turns_by_chunk(), self.geometry.columns);
        let heats_of = |heats: &Heats, position: u64| -> Vec<f64> {
            if by_chunk { heats.of_chunks(position, columns, now) } else { vec![heats.of_stripe(position, now)] }
        };
        let heat_of = |heats: &Heats, (position, code): (u64, CodeSpec)| StripeHeat {
            position,
            form: form_of(&redundancy, code),
            chunks: code.shape().chunks().into(),
            // Under one code nothing is hot.
            heats: if redundancy.mirroring.is_some() { heats_of(heats, position) } else { vec![0.0] },
            stays: stays.contains_key(&position),
        };
        let heats = || self.heats.lock().unwrap_or_else(PoisonError::into_inner);
        heats().forget_cold(now);
        // Most of a large volume is coded and not written: that is only counted.
        let is_settled = |heats: &Heats, (position, code): (u64, CodeSpec)| {
            code == redundancy.code && (redundancy.mirroring.is_none() || !heats.knows(position))
        };
        let mut stripes: Vec<StripeHeat> = Vec::new();
        // Some at a time: who writes needs the heats too.
        for some in known.chunks(HEATS_AT_ONCE) {
            let heats = heats();
            let others = some.iter().filter(|stripe| !is_settled(&heats, **stripe));
            stripes.extend(others.map(|stripe| heat_of(&heats, *stripe)));
        }
        let settled = (known.len() - stripes.len()) as u64;
        plan_switches(&stripes, settled, &self.bound_of(&redundancy), limit)
    }

    /// `None`: the volume's redundancy has no such form, any more.
    fn code_of(&self, form: Form) -> Option<CodeSpec> {
        match form {
            Form::Coded => Some(self.redundancy().code),
            Form::Mirrored => Some(self.redundancy().hot()),
            Form::Mixed(mirrored) => self.redundancy().partly_hot(mirrored),
        }
    }

    fn leave_alone(&self, position: u64, pause: Duration) {
        let until = self.env.clock.now().after(pause);
        self.unswitchable.lock().unwrap_or_else(PoisonError::into_inner).insert(position, until);
    }

    /// One stripe, between merges.
    async fn switch(&self, switch: Switch) -> Result<Outcome, BlocksError> {
        let _merging = self.merging.lock().await;
        // Also one that was closed: another opening has the stripes.
        self.working()?;
        let Some((known, code)) = self.stripe(switch.position).zip(self.code_of(switch.to)) else {
            return Ok(Outcome::Changed);
        };
        let (chunks, becomes) = (u64::from(known.code.shape().chunks()), u64::from(code.shape().chunks()));
        // What has a code of before is coded whatever room there is: it may survive less.
        if switch.to != Form::Coded && becomes > chunks && !self.has_room(chunks, becomes, 0) {
            return Ok(Outcome::Changed);
        }
        let refused = |error: &dyn std::fmt::Display| {
            tracing::warn!(position = switch.position, to = ?switch.to, %error, "a stripe keeps its form for now");
            Outcome::Refused { shrinks: becomes < chunks }
        };
        let before = match self.meta.stripe(known.id).await {
            Ok(Some(before)) if before.code != code => before,
            Ok(now) => {
                // Who shares it has switched it.
                now.into_iter().for_each(|now| self.remember(switch.position, Some(now)));
                return Ok(Outcome::Changed);
            }
            Err(error) => return Ok(refused(&error)),
        };
        if !suits_all(before.code, code) {
            match self.meta.shared(&[before.id]).await {
                Ok(shared) if shared.is_empty() => {}
                Ok(_) => {
                    self.leave_alone(switch.position, SHARED_PAUSE);
                    return Ok(Outcome::Changed);
                }
                Err(error) => return Ok(refused(&error)),
            }
        }
        // See invariant 1.
        self.log.sync().await.map_err(|error| self.log_failed(error))?;
        let Some(recoded) = self.while_there_is_room(self.stripes.recode(&before, code, &Unpaced)).await else {
            return Ok(refused(&LOG_IS_FULL));
        };
        let recoded = match recoded {
            Ok(recoded) => recoded,
            Err(StripeError::Held { .. }) => return Ok(Outcome::Changed),
            Err(error @ StripeError::Crowded { .. }) => {
                let Some(spread) = self.while_there_is_room(self.stripes.spread(&before, &Unpaced)).await else {
                    return Ok(refused(&LOG_IS_FULL));
                };
                let is_spread = self.name_moved(switch.position, &before, spread).await?;
                return Ok(if is_spread { Outcome::Changed } else { refused(&error) });
            }
            Err(error) => return Ok(refused(&error)),
        };
        let (bytes_read, bytes_written) = (recoded.bytes_read + recoded.bytes_verified, recoded.bytes_written);
        match self.meta.recode(Recode { lease: Some(self.lease), ..recoded.change.clone() }).await {
            Ok(after) => {
                self.remember(switch.position, Some(after.clone()));
                drop(recoded);
                if !self.stripes.discard_superseded(&before, &after).await {
                    tracing::debug!(stripe = %after.id, "old parity is left for the sweep");
                }
                let was = form_of(&self.redundancy(), before.code);
                let turned = switch.to.turned(was, self.geometry.columns);
                Ok(Outcome::Done { turned, bytes_read, bytes_written })
            }
            Err(MetaError::StripeChanged { .. }) => {
                self.stripes.discard_recoded(recoded).await;
                Ok(Outcome::Changed)
            }
            Err(error @ MetaError::LeaseEnded { .. }) => Err(self.fail(format!("stripes cannot be switched: {error}"))),
            // Perhaps it is committed: the record tells the sweep, and the next merge.
            Err(error) => Ok(refused(&error)),
        }
    }

    /// Names chunks of a stripe that were copied to other disks, and deletes what they are copies of. Returns whether there were any.
    pub(crate) async fn name_moved(
        &self,
        position: u64,
        before: &StripeRecord,
        moved: Result<Option<Rebuilt>, StripeError>,
    ) -> Result<bool, BlocksError> {
        let moved = match moved {
            Ok(Some(moved)) => moved,
            Ok(None) => return Ok(false),
            Err(error) => {
                tracing::debug!(position, %error, "chunks stay where they are for now");
                return Ok(false);
            }
        };
        match self.meta.swap(Swap { lease: Some(self.lease), ..moved.swap.clone() }).await {
            Ok(after) => {
                self.remember(position, Some(after.clone()));
                drop(moved);
                if !self.stripes.discard_superseded(before, &after).await {
                    tracing::debug!(stripe = %after.id, "a moved chunk is left for the sweep");
                }
                Ok(true)
            }
            Err(MetaError::StripeChanged { .. }) => {
                self.stripes.discard_rebuilt(moved).await;
                Ok(false)
            }
            Err(error @ MetaError::LeaseEnded { .. }) => Err(self.fail(format!("chunks cannot be moved: {error}"))),
            // Perhaps it is committed: the record tells the sweep.
            Err(error) => {
                tracing::debug!(position, %error, "moved chunks are left for the sweep");
                Ok(false)
            }
        }
    }

    /// The code of a stripe that is about to be written for the first time, or instead of another: it is hot, if there is
    /// room for that.
    pub(crate) fn new_code(&self, instead: Option<&StripeRecord>) -> CodeSpec {
        let redundancy = self.redundancy();
        let (chunks, new) = instead.map_or((0, 1), |old| (old.code.shape().chunks().into(), 0));
        let hot = redundancy.hot();
        if self.has_room(chunks, hot.shape().chunks().into(), new) { hot } else { redundancy.code }
    }

    fn bound_of(&self, redundancy: &Redundancy) -> Bound {
        bound_of(redundancy, &self.settings, self.geometry.chunk_bytes)
    }

    /// Whether a stripe may have so many chunks in the place of `chunks`, with `new` stripes more than there are.
    fn has_room(&self, chunks: u64, becomes: u64, new: u64) -> bool {
        let bound = self.bound_of(&self.redundancy());
        let stripes = self.known.read().unwrap_or_else(PoisonError::into_inner).len() as u64;
        bound.allows(stripes + new, self.chunks.load(Ordering::Acquire) - chunks + becomes)
    }
}

/// Whether all who have a stripe can be content that it is of another code: it survives more, or as much in less space. So
/// those who share a stripe, each with its own redundancy, do not switch it to and fro.
fn suits_all(from: CodeSpec, to: CodeSpec) -> bool {
    let (before, after) = (from.tolerance(), to.tolerance());
    after > before || (after == before && to.shape().chunks() < from.shape().chunks())
}

/// What a stripe of this code is in a volume of this redundancy.
pub(crate) fn form_of(redundancy: &Redundancy, code: CodeSpec) -> Option<Form> {
    match code {
        code if code == redundancy.code => Some(Form::Coded),
        code if code == redundancy.hot() => Some(Form::Mirrored),
        CodeSpec::Mixed { mirrored, .. } if redundancy.partly_hot(mirrored) == Some(code) => {
            Some(Form::Mixed(mirrored))
        }
        _ => None,
    }
}

/// What stripes with chunks of so many bytes may take beside the log.
pub(crate) fn bound_of(redundancy: &Redundancy, settings: &Settings, chunk_bytes: u64) -> Bound {
    let log_bytes = settings.segments_max() * settings.segment_bytes * (u64::from(redundancy.tolerance_max()) + 1);
    Bound {
        data: redundancy.code.shape().data.into(),
        mirrored: redundancy.hot().shape().chunks().into(),
        coded: redundancy.code.shape().chunks().into(),
        log: log_bytes.div_ceil(chunk_bytes),
        percent_max: redundancy.mirroring.and_then(|mirroring| mirroring.percent_max),
    }
}

/// Why a switch was given up half-way: what it had written is garbage.
const LOG_IS_FULL: &str = "writers wait for room in the log";
/// A stripe that could not be switched is left alone for so long.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// One that has to stay as it is while others have it too, for so long.
const SHARED_PAUSE: Duration = Duration::from_secs(600);
/// Stripes that are looked at in one plan, whether others have them too.
const LOOK_STRIPES: usize = 1000;
/// Stripes whose heats are looked up under one lock.
const HEATS_AT_ONCE: usize = 1024;
