//! Reads stripes back and says what is right and what is not.
//!
//! The background walk goes through the records in the order of their ids, again and again, and reads back the stripes
//! that are [`due`]. A scrub that somebody asked for reads every stripe once and has a report of its own.
//! Reports of damage from reads are checked by a second look before a chunk is condemned.
//!
//! Invariants:
//! 1. A stripe is marked as verified only if every chunk of it was read back whole, at the revision that was read.
//! 2. A chunk is marked as damaged only if its store, while serving, said that its sectors or the whole chunk are lost.
//!    Silence, time-outs and failing disks condemn nothing.
//! 3. A stripe that could not be read is not read again at once: it is left alone for a growing while.
//!
//! Left out: stripes that wait for repair. They are read when they are repaired, and by a scrub that is asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use claystone_chunk::{ChunkError, ChunkId, DiskId, StripeId};
use claystone_code::ChunkIndex;
use claystone_env::WallTime;
use claystone_meta::StripeRecord;
use claystone_stripe::{ChunkVerdict, Damage, Verification};

use crate::backoff::Cause;
use crate::keeper::{FullScrub, PAGE};
use crate::pace::Pacer;
use crate::progress::JobKind;
use crate::snapshot::Snapshot;
use crate::status::ScrubReport;
use crate::{Keeper, KeeperError, Settings};

/// What one step of scrubbing did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScrubRound {
    /// Records looked at.
    pub looked: u64,
    /// Stripes read back and right.
    pub verified: u64,
    /// Chunks found lost or damaged.
    pub damaged: u64,
    /// Stripes of which something could not be read.
    pub unknown: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// The walk has reached the last stripe; nothing was due in what was left of it.
    pub wrapped: bool,
}

/// What became of reports of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DamageRound {
    /// Chunks marked as damaged.
    pub damaged: u64,
    /// Reports that a second look did not confirm.
    pub soft: u64,
    /// Reports about chunks that no record names, or that are known.
    pub stale: u64,
}

/// What a look at one stripe found.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Look {
    verified: u64,
    damaged: u64,
    pub(crate) unknown: u64,
    /// The chunks that were read back whole are enough to recover all.
    pub(crate) recoverable: bool,
    bytes_read: u64,
}

/// Whether it is this stripe's turn to be read back at `now`.
///
/// A stripe without a verification is due when it is `verify_after` old. A verified one is due when between half and all
/// of `scrub_cycle` has passed, spread evenly by its id: stripes that were written in one hour are not read in one hour.
pub fn due(stripe: &StripeRecord, now: WallTime, settings: &Settings) -> bool {
    let age = |then: WallTime| Duration::from_millis(now.unix_ms.saturating_sub(then.unix_ms));
    match stripe.verified {
        None => age(stripe.id.created()) >= settings.verify_after,
        Some(verified) => {
            // The low 16 bits of an id are random.
            let spread = (stripe.id.0 & 0xffff) as f64 / f64::from(0x1_0000);
            age(verified) >= settings.scrub_cycle.mul_f64(0.5 + 0.5 * spread)
        }
    }
}

impl Keeper {
    /// Begins to read back every stripe; if such a scrub is under way, that one goes on.
    ///
    /// # Errors
    /// The metadata store failed.
    pub async fn start_scrub(&self) -> Result<ScrubReport, KeeperError> {
        let tally = self.inner.meta.tally().await?;
        let started_unix_ms = self.inner.env.clock.wall().unix_ms;
        let report = ScrubReport { stripes_total: tally.stripes, started_unix_ms, ..ScrubReport::default() };
        let report = {
            let mut state = self.state();
            state.full_scrub.get_or_insert(FullScrub { after: None, report }).report.clone()
        };
        self.job_left(JobKind::Scrub, report.stripes_total - report.stripes.min(report.stripes_total), None);
        self.wake_scrub();
        Ok(report)
    }

    /// The scrub that was asked for: the one under way, else the last one.
    pub fn scrub_report(&self) -> Option<ScrubReport> {
        let state = self.state();
        state.full_scrub.as_ref().map(|scrub| scrub.report.clone()).or(state.last_scrub.clone())
    }

    /// Reads back a page of stripes: of a scrub that was asked for, else of those that are due.
    ///
    /// # Errors
    /// The metadata store failed.
    pub async fn scrub_once(&self) -> Result<ScrubRound, KeeperError> {
        let mut walk = self.inner.walk.lock().await;
        if self.state().full_scrub.is_some() {
            return self.scrub_page().await;
        }
        let view = self.observe().await?;
        let snapshot = Snapshot { disks: view.conditions, ..Snapshot::default() };
        let mut round = ScrubRound::default();
        let deferred = self.state().verify_backoff.deferred(self.now());
        let pacer = self.inner.pacing.pacer(self.inner.settings.scrub_share);
        let page = self.inner.meta.stripes(*walk, PAGE).await?;
        self.count_unverified().await?;
        for stripe in &page {
            round.looked += 1;
            let now = self.inner.env.clock.wall();
            let due = due(stripe, now, &self.inner.settings) && !deferred.contains(&stripe.id);
            if due && snapshot.exposure(stripe).whole() {
                let look = self.look_at(stripe, &pacer).await?;
                round.add(look);
                self.job_advance(JobKind::Verify, look.verified, look.bytes_read);
                if look.unknown > 0 {
                    let (min, max) = (self.inner.settings.retry_min, self.inner.settings.retry_max);
                    let now = self.now();
                    self.state().verify_backoff.failed(stripe.id, now, Cause::Failed, min, max);
                } else {
                    self.state().verify_backoff.forget(stripe.id);
                }
            }
            *walk = Some(stripe.id);
            // Somebody waits for a scrub: it comes first, and the walk goes on from here.
            if self.state().full_scrub.is_some() {
                return Ok(round);
            }
        }
        if page.len() < PAGE {
            *walk = None;
            round.wrapped = true;
            self.count_unverified().await?;
        }
        Ok(round)
    }

    /// A page of the scrub that was asked for.
    async fn scrub_page(&self) -> Result<ScrubRound, KeeperError> {
        let Some(scrub) = self.state().full_scrub.clone() else { return Ok(ScrubRound::default()) };
        let mut round = ScrubRound::default();
        let pacer = self.inner.pacing.pacer(self.inner.settings.scrub_share);
        let mut page = self.inner.meta.stripes(scrub.after, PAGE).await?;
        let mut ended = page.len() < PAGE;
        // Stripes that were written since it began would keep it from ever ending. What others were converted to since has their data, which
        // was verified before, if it was.
        page.retain(|stripe| {
            let began = scrub.report.started_unix_ms;
            let is_old = stripe.id.created().unix_ms <= began;
            let has_old_data = stripe.verified.is_some_and(|at| at.unix_ms < began);
            ended |= !is_old && !has_old_data;
            is_old || has_old_data
        });
        for stripe in &page {
            let look = self.look_at(stripe, &pacer).await?;
            round.looked += 1;
            round.add(look);
            if let Some(scrub) = &mut self.state().full_scrub {
                scrub.after = Some(stripe.id);
                scrub.report.stripes += 1;
                scrub.report.verified += look.verified;
                scrub.report.chunks_damaged += look.damaged;
                scrub.report.unknown += look.unknown;
                scrub.report.bytes_read += look.bytes_read;
            }
            self.job_advance(JobKind::Scrub, 1, look.bytes_read);
        }
        if ended {
            let finished_unix_ms = Some(self.inner.env.clock.wall().unix_ms);
            let mut state = self.state();
            let done = state.full_scrub.take();
            state.last_scrub = done.map(|scrub| ScrubReport { finished: true, finished_unix_ms, ..scrub.report });
            drop(state);
            self.job_left(JobKind::Scrub, 0, None);
        }
        Ok(round)
    }

    /// Brings the verify job up to date: what is left are stripes that are whole and not verified.
    async fn count_unverified(&self) -> Result<(), KeeperError> {
        let tally = self.inner.meta.tally().await?;
        let degraded = tally.degraded_by_tolerance_left.iter().sum::<u64>() + tally.unrecoverable;
        self.job_left(JobKind::Verify, tally.stripes.saturating_sub(tally.verified + degraded), None);
        Ok(())
    }

    /// Reads a stripe back at once and writes down what was found.
    pub(crate) async fn look(&self, stripe: &StripeRecord) -> Result<Look, KeeperError> {
        let pacer = self.inner.pacing.pacer(self.inner.settings.scrub_share);
        self.look_at(stripe, &pacer).await
    }

    async fn look_at(&self, stripe: &StripeRecord, pacer: &Pacer) -> Result<Look, KeeperError> {
        let Some(verification) = pacer.watch(self.inner.stripes.verify(stripe, pacer)).await else {
            return Ok(Look { unknown: 1, ..Look::default() });
        };
        let verdicts = (0..).map(ChunkIndex).zip(&verification.chunks);
        let not_whole: Vec<ChunkIndex> =
            verdicts.filter(|(_, verdict)| **verdict != ChunkVerdict::Verified).map(|(index, _)| index).collect();
        let recoverable = stripe.code.tolerance_left(&not_whole) >= 0;
        let mut look = Look { bytes_read: verification.bytes_read, recoverable, ..Look::default() };
        if verification.healthy() {
            let now = self.inner.env.clock.wall();
            self.inner.meta.mark_verified(stripe.id, stripe.revision, now).await?;
            look.verified = 1;
            return Ok(look);
        }
        look.unknown = u64::from(verification.chunks.contains(&ChunkVerdict::Unknown));
        look.damaged = self.mark_found(stripe, &verification).await?;
        Ok(look)
    }

    /// Marks as damaged what was found lost of a stripe. Returns how many chunks that are.
    pub(crate) async fn mark_found(
        &self,
        stripe: &StripeRecord,
        verification: &Verification,
    ) -> Result<u64, KeeperError> {
        let damaged = newly_damaged(stripe, verification);
        if damaged.is_empty() || !self.is_current(stripe).await? {
            return Ok(0);
        }
        tracing::warn!(stripe = %stripe.id, chunks = ?damaged, "scrub found chunks damaged");
        self.inner.meta.mark_damaged(&damaged).await?;
        self.wake_moves();
        Ok(damaged.len() as u64)
    }

    /// Whether the stripe is still as it was read; one that was deleted or swapped meanwhile has lost nothing.
    async fn is_current(&self, stripe: &StripeRecord) -> Result<bool, KeeperError> {
        let current = self.inner.meta.stripe(stripe.id).await?;
        Ok(current.is_some_and(|current| current.revision == stripe.revision))
    }

    /// Handles the reports of reads that wait now. Does nothing where the loop of [`Keeper::start`] takes them.
    ///
    /// # Errors
    /// The metadata store failed; the reports are lost, the next read finds the damage again.
    pub async fn damage_once(&self) -> Result<DamageRound, KeeperError> {
        let mut waiting = Vec::new();
        if let Ok(mut reports) = self.inner.damage.try_lock() {
            while let Ok(report) = reports.try_recv() {
                waiting.push(report);
            }
        }
        self.handle_damage(waiting).await
    }

    /// Checks reports by a second look, and marks what is damaged.
    pub(crate) async fn handle_damage(&self, reports: Vec<Damage>) -> Result<DamageRound, KeeperError> {
        let mut round = DamageRound::default();
        // A stripe that was merged or split has left its name on chunks of others.
        let stripes: BTreeSet<StripeId> = reports.iter().map(|report| report.chunk.stripe).collect();
        let records = self.inner.meta.named(&Vec::from_iter(stripes)).await?;
        let mut by_record: BTreeMap<usize, BTreeSet<(ChunkId, ChunkIndex, DiskId)>> = BTreeMap::new();
        for Damage { chunk, disk, .. } in reports {
            let of = |record: &StripeRecord| record.index_of(chunk, disk);
            match records.iter().enumerate().find_map(|(at, record)| Some((at, of(record)?))) {
                Some((at, index)) => drop(by_record.entry(at).or_default().insert((chunk, index, disk))),
                None => round.stale += 1,
            }
        }
        for (at, chunks) in by_record {
            let record = &records[at];
            let stripe = record.id;
            let mut damaged = Vec::new();
            for (chunk, index, disk) in chunks {
                let named = record.places[index.at()].is_some_and(|place| !place.damaged);
                let Some(store) = self.inner.stripes.stores().readable(disk).filter(|_| named) else {
                    round.stale += 1;
                    continue;
                };
                match self.patiently(store.verify(chunk)).await {
                    Some(Ok(verdict)) if verdict.lost_sectors.is_empty() => {
                        round.soft += 1;
                        *self.state().soft_errors.entry(disk).or_insert(0) += 1;
                    }
                    Some(Ok(_) | Err(ChunkError::NotFound { .. } | ChunkError::ChunkLost { .. })) => {
                        damaged.push(chunk);
                    }
                    Some(Err(_)) | None => {
                        tracing::debug!(%chunk, %disk, "a report of damage could not be checked");
                        round.stale += 1;
                    }
                }
            }
            if !damaged.is_empty() && self.is_current(record).await? {
                tracing::warn!(%stripe, chunks = ?damaged, "a read found chunks damaged");
                round.damaged += damaged.len() as u64;
                self.inner.meta.mark_damaged(&damaged).await?;
                self.wake_moves();
            }
        }
        Ok(round)
    }
}

impl ScrubRound {
    fn add(&mut self, look: Look) {
        self.verified += look.verified;
        self.damaged += look.damaged;
        self.unknown += look.unknown;
        self.bytes_read += look.bytes_read;
    }
}

/// Chunks that were found lost and that the record does not call damaged yet.
fn newly_damaged(stripe: &StripeRecord, verification: &Verification) -> Vec<ChunkId> {
    let lost = verification.lost();
    let fresh = lost.iter().filter(|index| stripe.places[index.at()].as_ref().is_some_and(|place| !place.damaged));
    fresh.filter_map(|index| stripe.chunk_id(*index)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 24 * 60 * 60 * 1000;

    fn stripe(low: u128, verified: Option<u64>) -> StripeRecord {
        StripeRecord {
            id: StripeId((u128::from(100 * DAY_MS) << 80) | low),
            code: "replica:2".parse().expect("a valid code"),
            data_bytes: 1,
            bands: Vec::new(),
            sub_bytes: 64,
            places: vec![None, None],
            origins: BTreeMap::new(),
            revision: 0,
            verified: verified.map(|unix_ms| WallTime { unix_ms }),
        }
    }

    #[test]
    fn a_new_stripe_is_due_after_its_first_minute() {
        let settings = Settings::default();
        let at = |ms| WallTime { unix_ms: 100 * DAY_MS + ms };
        assert!(!due(&stripe(0, None), at(59_999), &settings));
        assert!(due(&stripe(0, None), at(60_000), &settings));
    }

    #[test]
    fn verified_stripes_are_due_spread_over_the_second_half_of_the_cycle() {
        let settings = Settings::default();
        let verified = 200 * DAY_MS;
        let at = |days: u64| WallTime { unix_ms: verified + days * DAY_MS };
        let due_at = |days| {
            let stripes = (0..1000u128).map(|nth| stripe(nth * 65, Some(verified)));
            stripes.filter(|stripe| due(stripe, at(days), &settings)).count()
        };
        assert_eq!(due_at(6), 0);
        let halfway = due_at(10);
        assert!((300..600).contains(&halfway), "{halfway}");
        assert_eq!(due_at(14), 1000);
    }

    #[test]
    fn a_clock_that_jumped_back_makes_nothing_due() {
        let late = stripe(0, Some(300 * DAY_MS));
        assert!(!due(&late, WallTime { unix_ms: 200 * DAY_MS }, &Settings::default()));
    }
}
