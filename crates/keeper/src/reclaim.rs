//! Gives back the space of what nobody names any more.
//!
//! Three kinds of garbage:
//!
//! ```text
//! dead stripe   its object was deleted or replaced,   discard its chunks, then forget the record
//! orphan chunk  a crash, a lost swap, a disk that     sweep: listed on a disk, no claim, no record that names
//!               was away                              this chunk in this generation on this disk
//! old upload    never completed                       aborted, if the operator says so; its stripes die
//! ```
//!
//! Invariants:
//! 1. The sweep asks for a claim first and for a record second. A chunk that is being written has a claim until its
//!    record is committed, so whoever sees neither sees garbage; and no chunk id is ever used twice.
//! 2. Without an answer from the metadata store nothing is deleted.
//! 3. A dead stripe is not discarded before those are done who may have found it alive and have not claimed it yet, however short
//!    `reclaim_after` is.
//! 4. A dead stripe is forgotten only when every chunk of it is gone: deleted, or on a disk that was given up.
//!    A crash in between discards it again, which is no error.

use std::collections::BTreeSet;

use claystone_chunk::{ChunkId, ChunkStore, DiskId, StripeId};
use claystone_code::ChunkIndex;
use claystone_meta::{ListQuery, StripeRecord};

use crate::keeper::{BATCH, PAGE};
use crate::{Keeper, KeeperError};

/// What one step of reclaim did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReclaimRound {
    /// Dead stripes whose chunks are gone and that are forgotten.
    pub forgotten: u64,
    /// Dead stripes that wait: they died a short while ago, somebody reads them, or a disk does not answer.
    pub waiting: u64,
    /// Disks searched for orphans.
    pub swept: u64,
    /// Chunks deleted that no record named.
    pub orphans: u64,
    /// Uploads aborted.
    pub uploads: u64,
}

impl Keeper {
    /// Reclaims a batch of dead stripes, sweeps the disks whose turn it is, and aborts old uploads if told to.
    ///
    /// # Errors
    /// The metadata store failed.
    pub async fn reclaim_once(&self) -> Result<ReclaimRound, KeeperError> {
        let _reclaiming = self.inner.reclaiming.lock().await;
        let mut round = ReclaimRound::default();
        self.abort_old_uploads(&mut round).await?;
        self.discard_dead(&mut round).await?;
        for disk in self.disks_to_sweep().await? {
            let Some(store) = self.inner.stripes.stores().readable(disk) else { continue };
            match self.sweep(&*store).await {
                Ok(orphans) => {
                    round.swept += 1;
                    round.orphans += orphans;
                }
                Err(error) => {
                    self.state().sweep_wanted.insert(disk);
                    return Err(error);
                }
            }
        }
        if round.orphans > 0 {
            tracing::info!(chunks = round.orphans, "chunks that no record names were deleted");
        }
        Ok(round)
    }

    /// Searches every disk for orphans at the next step of reclaim.
    pub fn request_sweep(&self) {
        self.state().sweep_at = None;
    }

    async fn discard_dead(&self, round: &mut ReclaimRound) -> Result<(), KeeperError> {
        // Those that wait are the oldest, so they come first: ask for as many more.
        let remembered = self.state().dead_since.len();
        let limit = BATCH + remembered;
        let dead = self.inner.meta.dead_stripes(limit).await?;
        let (now, begun) = (self.now(), self.inner.stripes.lookups_begun());
        let mut ripe = Vec::new();
        {
            let mut state = self.state();
            let ids: BTreeSet<StripeId> = dead.iter().map(|stripe| stripe.id).collect();
            if dead.len() < limit {
                state.dead_since.retain(|id, _| ids.contains(id));
            }
            for stripe in &dead {
                let (since, looked_up) = *state.dead_since.entry(stripe.id).or_insert((now, begun));
                let is_old = now.since(since) >= self.inner.settings.reclaim_after;
                if is_old && self.inner.stripes.are_lookups_done(looked_up) {
                    ripe.push(stripe);
                }
            }
        }
        let mut gone = Vec::new();
        for stripe in ripe {
            // A repair of it is about to find out that it is dead; its new chunks are then orphans.
            if !self.inner.stripes.is_record_claimed(stripe)
                && self.patiently(self.inner.stripes.discard(stripe)).await == Some(true)
            {
                gone.push(stripe.id);
            }
        }
        self.inner.meta.forget(&gone).await?;
        let mut state = self.state();
        for id in &gone {
            state.dead_since.remove(id);
        }
        round.forgotten += gone.len() as u64;
        round.waiting += (dead.len() - gone.len()) as u64;
        Ok(())
    }

    /// Takes the disks that are to be swept now: all of them every so often, and those that returned.
    async fn disks_to_sweep(&self) -> Result<BTreeSet<DiskId>, KeeperError> {
        self.observe().await?;
        let now = self.now();
        let members = self.inner.stripes.stores().members();
        let mut state = self.state();
        if state.sweep_at.is_none_or(|at| now >= at) {
            state.sweep_at = Some(now.after(self.inner.settings.sweep_every));
            state.sweep_wanted.extend(members.iter().filter(|member| member.readable()).map(|member| member.record.id));
        }
        Ok(std::mem::take(&mut state.sweep_wanted))
    }

    /// Deletes the orphans of one disk. A disk that stops answering is left; it is swept again when it returns.
    async fn sweep(&self, store: &dyn ChunkStore) -> Result<u64, KeeperError> {
        let mut orphans = 0;
        let mut after = None;
        loop {
            let Some(Ok(page)) = self.patiently(store.list(after, PAGE)).await else { return Ok(orphans) };
            for chunk in self.unnamed(store.disk(), &page).await? {
                if !matches!(self.patiently(store.delete(chunk)).await, Some(Ok(()))) {
                    tracing::debug!(%chunk, disk = %store.disk(), "an orphan could not be deleted");
                    return Ok(orphans);
                }
                orphans += 1;
            }
            let Some(last) = page.last().filter(|_| page.len() == PAGE) else { return Ok(orphans) };
            after = Some(*last);
        }
    }

    /// Of chunks that were listed on `disk`, those that nobody is writing and no record names there.
    async fn unnamed(&self, disk: DiskId, listed: &[ChunkId]) -> Result<Vec<ChunkId>, KeeperError> {
        // First the claims, then the records: see invariant 1.
        let stripes: BTreeSet<StripeId> = listed.iter().map(|chunk| chunk.stripe).collect();
        let unclaimed: Vec<StripeId> =
            stripes.into_iter().filter(|stripe| !self.inner.stripes.is_claimed(*stripe)).collect();
        if unclaimed.is_empty() {
            return Ok(Vec::new());
        }
        // Whatever stripe a chunk was written for, the record of the one that has it now names it.
        let named_here = |record: StripeRecord| -> Vec<ChunkId> {
            let places = (0..).map(ChunkIndex).zip(&record.places);
            let here = places.filter(|(_, place)| place.is_some_and(|place| place.disk == disk));
            here.filter_map(|(index, _)| record.chunk_id(index)).collect()
        };
        let named: BTreeSet<ChunkId> =
            self.inner.meta.named(&unclaimed).await?.into_iter().flat_map(named_here).collect();
        let garbage = |chunk: &&ChunkId| unclaimed.binary_search(&chunk.stripe).is_ok() && !named.contains(chunk);
        Ok(listed.iter().filter(garbage).copied().collect())
    }

    async fn abort_old_uploads(&self, round: &mut ReclaimRound) -> Result<(), KeeperError> {
        let Some(age_max) = self.inner.settings.upload_age_max else { return Ok(()) };
        let now = self.now();
        if self.state().uploads_at.is_some_and(|at| now < at) {
            return Ok(());
        }
        let age_max_ms = age_max.as_millis() as u64;
        let wall = self.inner.env.clock.wall().unix_ms;
        for bucket in self.inner.meta.buckets().await? {
            let mut query = ListQuery { limit: PAGE, ..ListQuery::default() };
            let mut after = None;
            loop {
                let page = self.inner.meta.list_uploads(bucket.id, &query, after.as_ref()).await?;
                for upload in &page.entries {
                    if wall.saturating_sub(upload.created.unix_ms) >= age_max_ms {
                        self.inner.meta.abort_upload(bucket.id, &upload.key, &upload.id).await?;
                        tracing::info!(bucket = bucket.name, key = upload.key, "an old upload was aborted");
                        round.uploads += 1;
                    }
                }
                let Some(last) = page.entries.last().filter(|_| page.truncated) else { break };
                query.after = Some(last.key.clone());
                after = Some(last.id.clone());
            }
        }
        self.state().uploads_at = Some(now.after(self.inner.settings.sweep_every));
        Ok(())
    }
}
