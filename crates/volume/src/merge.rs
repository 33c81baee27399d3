//! Brings diffs into their stripes: docs/formats/merge.md has the states and what a crash leaves in each.
//!
//! ```text
//!            read, new parity made     intent synced       chunks written      stripes' disks synced    record appended
//!  diffs ------------------> planned ---------> intended ---------> written ----------> settled ----------> merged
//!                               |                   |                   |                  |                   |
//!  after a crash:             diffs           written again       written again      written again      diffs, or merged
//! ```
//!
//! Invariants:
//! 1. Whoever patches has the stripe alone from before it reads until the merge is settled.
//! 2. Before a chunk is changed, all that will be written is in the log and synced. Writing it again is always right.
//! 3. A chunk that may have missed a patch has no place any more before the diffs are released.
//! 4. Diffs are released only where no later write took their place. Those that cannot be merged keep no segment: `carry`.
//! 5. A stripe that a snapshot or a clone has too is not patched: `copy` gives the volume one of its own.

mod carry;
mod choice;
mod copy;
mod plan;
mod reach;
mod sectors;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use claystone_chunk::{ByteRange, ChunkError, ChunkStore, DiskId, Durability, Overwrite, SECTOR_BYTES, StripeId};
use claystone_code::ChunkIndex;
use claystone_env::timeout;
use claystone_meta::{ChunkPlace, DiskState, MetaError, StripeRecord, Swap};
use claystone_stripe::{Claim, Hold};
use futures::future::{try_join, try_join_all};

pub use self::plan::{MergeMethod, MergeRun, plan_merge};
pub use self::reach::Reach;
use self::sectors::NewSector;
use crate::coding::Coding;
use crate::diffs::{Diff, DiffKind};
use crate::geometry::Page;
use crate::log::record::{Intent, LogPlace, Record, SectorWrite, Source, crc32c};
use crate::task::to_its_end;
use crate::volume::{Inner, Volume};
use crate::volumes::Held;
use crate::zeros::zeros_of;
use crate::{BlocksError, MergeReport};

/// A stripe that is about to be patched.
struct Patch {
    position: u64,
    stripe: StripeRecord,
    diffs: Vec<(Page, Diff)>,
    coding: Arc<Coding>,
    /// How its diffs reach its chunks.
    runs: Vec<MergeRun>,
    /// What becomes of its chunks: sectors in order.
    sectors: BTreeMap<(ChunkIndex, u32), NewSector>,
}

/// A stripe that could not be merged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PutOff {
    /// The first round in which it is tried again, behind those that nobody tried yet. Until it is, it counts as one that cannot be merged: of
    /// many not all are tried within so many rounds.
    until: u64,
    lacks: Lacks,
}

/// Why a stripe could not be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lacks {
    /// Disks for new chunks, or room for these on them or in the records; or who reads a shared stripe is in the way.
    Disks,
    /// Bytes that are lost, or room in the log: what is written may bring that, or show that it is there.
    Else,
}

/// What pages become, and where the log has it if it is not zeros.
type Contents = BTreeMap<Page, (Bytes, Option<LogPlace>)>;

impl Volume {
    /// Merges diffs of the stripes that were written longest ago, about `pages_max` pages of them.
    ///
    /// # Errors
    /// The volume failed; or bytes of a stripe that is in the way are lost.
    pub async fn merge_once(&self, pages_max: u64) -> Result<MergeReport, BlocksError> {
        self.inner.merge_as_task(pages_max).await
    }

    /// Merges as [`Volume::merge_once`] does, about `pages_max` pages, and gives way to writers as merging in the background
    /// does: for who asks for it beside them.
    ///
    /// # Errors
    /// As [`Volume::merge_once`].
    pub async fn merge_beside_writers(&self, pages_max: u64) -> Result<MergeReport, BlocksError> {
        self.inner.merge_in_rounds(|done| done.pages + done.pages_carried < pages_max).await
    }

    /// Merges until no diff is left that was there when this was called, for closing and for tests. Gives up on stripes
    /// that are held by a repair for longer than 1,000 rounds.
    ///
    /// # Errors
    /// As [`Volume::merge_once`].
    pub async fn merge_all(&self) -> Result<MergeReport, BlocksError> {
        let mut all = MergeReport::default();
        for _ in 0..ROUNDS_MAX {
            let report = self.merge_once(u64::MAX).await?;
            all.add(&report);
            if self.inner.diffs().pages() == 0 {
                break;
            }
            tokio::task::yield_now().await;
        }
        Ok(all)
    }
}

impl Inner {
    /// Merges in a task of its own: whoever waits for it may go away, but a merge that has begun to write comes to an end,
    /// with its stripes held until then.
    pub(crate) async fn merge_as_task(self: &Arc<Self>, pages_max: u64) -> Result<MergeReport, BlocksError> {
        let inner = self.clone();
        let merged = to_its_end(&self.env, "merge", async move { inner.merge_once(pages_max).await }).await;
        merged.unwrap_or_else(|| Err(self.fail("a merge was cut off".to_owned())))
    }

    async fn merge_once(&self, pages_max: u64) -> Result<MergeReport, BlocksError> {
        let _merging = self.merging.lock().await;
        if self.has_failed() {
            return Err(self.fail("it failed before".to_owned()));
        }
        let chosen = self.choose(pages_max);
        let mut report = self.merge_stripes(&chosen.positions, chosen.up_to).await?;
        let is_in_vain = report.pages == 0;
        if is_in_vain && !chosen.positions.is_empty() {
            // What it chose somebody has, or it waits for space or for repairs; others go on.
            let others = self.choose_others(pages_max);
            report.add(&self.merge_stripes(&others, u64::MAX).await?);
        }
        report.pages_carried = self.carry_over(is_in_vain).await?;
        if report.pages_carried > 0 {
            self.log.tend().await.map_err(|error| self.log_failed(error))?;
            self.merged.lock().unwrap_or_else(PoisonError::into_inner).1.pages_carried += report.pages_carried;
            // Before those who wait for room look again.
            self.note_progress(&report);
            self.merge_ended.notify_waiters();
        }
        Ok(report)
    }

    /// Merges what these stripes have diffs for in segments up to this one. The caller has `merging`.
    pub(crate) async fn merge_stripes(&self, positions: &[u64], up_to: u64) -> Result<MergeReport, BlocksError> {
        let mut report = MergeReport::default();
        {
            let mut put_off = self.put_off.lock().unwrap_or_else(PoisonError::into_inner);
            positions.iter().for_each(|position| _ = put_off.remove(position));
        }
        let mut left = positions;
        while !left.is_empty() {
            let stripes = if self.gives_way() { TOUCH_STRIPES_BESIDE_WRITERS } else { TOUCH_STRIPES };
            let (positions, rest) = left.split_at(stripes.min(left.len()));
            left = rest;
            let mut batch: Vec<(Patch, Hold)> = Vec::new();
            let mut sectors = 0;
            for (patch, hold) in self.take_alone(positions, up_to, &mut report).await? {
                sectors += patch.runs.iter().map(MergeRun::sectors).sum::<usize>();
                batch.push((patch, hold));
                if sectors >= BATCH_SECTORS {
                    self.carry_out(std::mem::take(&mut batch), &mut report).await?;
                    sectors = 0;
                }
            }
            self.carry_out(batch, &mut report).await?;
        }
        self.log.tend().await.map_err(|error| self.log_failed(error))?;
        if report.pages > 0 {
            self.note_progress(&report);
            {
                let mut merged = self.merged.lock().unwrap_or_else(PoisonError::into_inner);
                merged.0 += 1;
                merged.1.add(&report);
            }
            self.merge_ended.notify_waiters();
        }
        Ok(report)
    }

    /// Leaves a stripe that cannot be merged to later rounds, so that it does not hold up the others.
    fn put_off(&self, position: u64, lacks: Lacks) {
        let until = self.rounds.load(Ordering::Relaxed) + PUT_OFF_ROUNDS;
        let put_off = PutOff { until, lacks };
        self.put_off.lock().unwrap_or_else(PoisonError::into_inner).insert(position, put_off);
    }

    /// Whether a stripe was tried, and could not be merged; also when it will be tried again, or only until then.
    fn is_put_off(&self, position: u64, also_due: bool) -> bool {
        let put_off = self.put_off.lock().unwrap_or_else(PoisonError::into_inner);
        let round = self.rounds.load(Ordering::Relaxed);
        put_off.get(&position).is_some_and(|put_off| also_due || put_off.until > round)
    }

    /// What was written may let a stripe be merged that could not be. One that lacks disks it helps only where all of it is zeros now: else it
    /// stays put off, for only what is can be carried over ([`carry`]).
    pub(crate) fn try_again(&self, pages: &Range<Page>, are_zeros: bool) {
        let mut put_off = self.put_off.lock().unwrap_or_else(PoisonError::into_inner);
        if !put_off.is_empty() {
            let written = self.geometry.positions(pages);
            put_off.retain(|position, put_off| {
                !written.contains(position) || (put_off.lacks == Lacks::Disks && !are_zeros)
            });
        }
    }

    /// What is needed of some stripes no more may let others be merged.
    pub(crate) fn try_all_again(&self) {
        self.put_off.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.merge_wanted.notify_one();
    }

    /// Takes stripes alone, as the records have them now: upkeep may have moved chunks, and from now on it does not. Their
    /// records say from here on that they changed since they were verified. Stripes that somebody else has are left out;
    /// what has no stripe yet gets one, what shares one gets its own, and what is all zeros has none any more.
    async fn take_alone(
        &self,
        positions: &[u64],
        up_to: u64,
        report: &mut MergeReport,
    ) -> Result<Vec<(Patch, Hold)>, BlocksError> {
        let mut known = BTreeMap::new();
        for position in positions {
            match self.stripe(*position) {
                None => self.begin_stripe(*position, report).await?,
                Some(stripe) => drop(known.insert(stripe.id, *position)),
            }
        }
        let shared = self.copy_shared(&known, report).await?;
        let mut holds = BTreeMap::new();
        for (stripe, position) in known.into_iter().filter(|(stripe, _)| !shared.contains(stripe)) {
            match self.stripes.try_alone(stripe) {
                Some(hold) => drop(holds.insert(stripe, (position, hold))),
                None => report.stripes_held += 1,
            }
        }
        let ids: Vec<StripeId> = holds.keys().copied().collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let touched = self.meta.touch(&ids).await;
        let touched = touched.map_err(|error| self.fail(format!("records of stripes cannot be changed: {error}")))?;
        if touched.len() < ids.len() {
            return Err(self.fail("the records have lost a stripe of this volume, or given it away".to_owned()));
        }
        let mut patches = Vec::new();
        for stripe in touched {
            let (position, hold) = holds.remove(&stripe.id).expect("it was asked for once");
            // Nobody shares it, any more.
            self.diffs().set_begun(position, Some(self.codings.logged_bytes(stripe.code)));
            self.remember(position, Some(stripe.clone()));
            let diffs = self.diffs().stripe_up_to(position, up_to);
            if diffs.is_empty() {
                continue;
            }
            if self.zeros().wants_look(position, self.pages_of(position), &diffs) {
                report.sectors_read += self.learn_rest(position, &stripe, &hold, &diffs).await;
            }
            if self.are_all_zeros(position, &diffs) {
                self.drop_stripe(position, &diffs, report).await?;
                continue;
            }
            let spec = stripe.code;
            let Some(coding) = self.codings.of(spec) else {
                let reason = format!("stripe {} has the code {spec}, which none of this volume can have", stripe.id);
                return Err(self.fail(reason));
            };
            let runs = self.runs(&stripe, &coding, &diffs);
            patches.push((Patch { position, stripe, diffs, coding, runs, sectors: BTreeMap::new() }, hold));
        }
        Ok(patches)
    }

    /// Leaves out patches of chunks that have no space yet, and get none: they would miss the merge. A chunk of zeros may have none.
    async fn with_space(&self, patches: Vec<(Patch, Hold)>) -> Vec<(Patch, Hold)> {
        let mut asks = Vec::new();
        for (at, (patch, _)) in patches.iter().enumerate() {
            asks.extend(grown_chunks(patch).into_iter().map(|chunk| async move {
                let (Some(id), Some(place)) = (patch.stripe.chunk_id(chunk), patch.stripe.places[chunk.at()]) else {
                    return None;
                };
                let store = self.stripes.stores().readable(place.disk)?;
                self.give_way().await;
                // What else goes wrong the overwrite tells.
                let taken = self.in_time(place.disk, store.take_space(id)).await;
                taken.err().filter(|error| matches!(error, ChunkError::DiskFull { .. })).map(|error| (at, error))
            }));
        }
        let lacking: BTreeMap<usize, ChunkError> = self.in_turn(asks).await.into_iter().flatten().collect();
        let mut kept = Vec::with_capacity(patches.len());
        for (at, (patch, hold)) in patches.into_iter().enumerate() {
            match lacking.get(&at) {
                None => kept.push((patch, hold)),
                Some(error) => {
                    tracing::warn!(stripe = %patch.stripe.id, %error, "pages stay in the log: there is no space for them");
                    self.put_off(patch.position, Lacks::Disks);
                }
            }
        }
        kept
    }

    /// Pages of a stripe that are within the volume.
    fn pages_of(&self, position: u64) -> u64 {
        let start = position * self.geometry.stripe_bytes();
        let end = self.bytes.load(Ordering::Acquire).min(start + self.geometry.stripe_bytes());
        (end - start) / u64::from(self.geometry.page_bytes)
    }

    /// The contents of diffs, zeros included; those that no disk gives now are left out.
    async fn contents_there(&self, diffs: &[(Page, Diff)]) -> Contents {
        let zeros = Bytes::from(vec![0; self.geometry.page_bytes as usize]);
        let (empty, mut written): (Vec<_>, Vec<_>) =
            diffs.iter().copied().partition(|(_, diff)| diff.kind == DiffKind::Zeros);
        written.sort_unstable_by_key(|(_, diff)| diff.at);
        let of_segments = written.chunk_by(|(_, one), (_, next)| one.at.segment == next.at.segment);
        let together: Vec<&[(Page, Diff)]> = of_segments.flat_map(|diffs| diffs.chunks(READ_TOGETHER)).collect();
        let reads: Vec<_> = together.into_iter().map(|diffs| self.contents_of_segment(diffs)).collect();
        let read =
            self.in_turn(reads).await.into_iter().flatten().map(|(page, content, at)| (page, (content, Some(at))));
        empty.into_iter().map(|(page, _)| (page, (zeros.clone(), None))).chain(read).collect()
    }

    /// Of a few diffs in one segment, the contents of those that a disk gives now. The segment cannot be over: they need it.
    async fn contents_of_segment(&self, diffs: &[(Page, Diff)]) -> Vec<(Page, Bytes, LogPlace)> {
        self.give_way().await;
        let bytes = u64::from(self.geometry.page_bytes);
        let ranges: Vec<_> = diffs.iter().map(|(_, diff)| ByteRange { offset: diff.at.offset, bytes }).collect();
        let read = self.log.view().read_together(diffs[0].1.at.segment, &ranges).await;
        let mut read = read.into_iter().flatten();
        let mut contents = Vec::with_capacity(diffs.len());
        for (page, diff) in diffs {
            let content = match read.next() {
                Some(content) if diff.kind == (DiffKind::Content { crc: crc32c(&content) }) => content,
                // Another disk may have it.
                _ => match self.read_log(&[(*page, *diff)]).await {
                    Ok(content) => content,
                    Err(_) => continue,
                },
            };
            contents.push((*page, content, diff.at));
        }
        contents
    }

    /// The contents of diffs, all of them.
    async fn contents(&self, diffs: &[(Page, Diff)]) -> Result<Contents, BlocksError> {
        let contents = self.contents_there(diffs).await;
        match diffs.iter().find(|(page, _)| !contents.contains_key(page)) {
            None => Ok(contents),
            Some((page, _)) => {
                let (offset, bytes) = (self.geometry.start(*page), u64::from(self.geometry.page_bytes));
                Err(BlocksError::Lost { range: ByteRange { offset, bytes } })
            }
        }
    }

    /// diffs -> merged. If it fails once something was written, or never returns, the stripes stay in nobody's hands but the
    /// next opening's.
    async fn carry_out(&self, mut batch: Vec<(Patch, Hold)>, report: &mut MergeReport) -> Result<(), BlocksError> {
        self.fill(&mut batch, report).await;
        batch.retain(|(patch, _)| !patch.diffs.is_empty());
        let batch = self.with_space(batch).await;
        if batch.is_empty() {
            return Ok(());
        }
        let (patches, holds): (Vec<Patch>, Vec<Hold>) = batch.into_iter().unzip();
        self.kept().extend(holds.into_iter().map(|hold| (hold.stripe(), hold)));
        self.write_batch(&patches, report).await?;
        let mut kept = self.kept();
        patches.iter().for_each(|patch| drop(kept.remove(&patch.stripe.id)));
        Ok(())
    }

    async fn write_batch(&self, batch: &[Patch], report: &mut MergeReport) -> Result<(), BlocksError> {
        let mut intents = Vec::new();
        for intent in intents_of(batch) {
            // One after another: what writers append meanwhile goes between them.
            self.give_way().await;
            let place = self.log.append(Record::Intent(intent)).await;
            match place.map_err(|error| self.log_failed(error))? {
                Some(place) => intents.push(place),
                None => return self.call_off(batch, &intents).await,
            }
        }
        self.log.sync().await.map_err(|error| self.log_failed(error))?;
        let writes = batch.iter().map(|patch| ChunkWrites {
            position: patch.position,
            stripe: patch.stripe.clone(),
            sectors: patch.sectors.iter().map(|(at, sector)| (*at, sector.content.clone())).collect(),
        });
        report.sectors_written += self.write_in_place(writes.collect()).await?;
        batch.iter().for_each(|patch| self.zeros().merged(patch.position, &patch.diffs));
        let diffs: Vec<(Page, LogPlace)> =
            batch.iter().flat_map(|patch| &patch.diffs).map(|(page, diff)| (*page, diff.at)).collect();
        report.stripes += batch.len() as u64;
        let (with_diffs, without) = intents.split_first().expect("a batch has an intent");
        let pages = diffs.len() as u64;
        let release = self.log.append(Record::Merged { intent: Some(*with_diffs), diffs });
        let ends = try_join_all(without.iter().map(|intent| self.log.end(*intent)));
        let (released, _) = try_join(release, ends).await.map_err(|error| self.log_failed(error))?;
        if released.is_some() {
            report.pages += pages;
            return Ok(());
        }
        // Merged again they change nothing.
        batch.iter().for_each(|patch| self.put_off(patch.position, Lacks::Else));
        self.log.end(*with_diffs).await.map_err(|error| self.log_failed(error))
    }

    /// Ends intents of which nothing was written. This is durable before anybody else has their stripes: a later opening
    /// would write what they say.
    async fn call_off(&self, batch: &[Patch], intents: &[LogPlace]) -> Result<(), BlocksError> {
        batch.iter().for_each(|patch| self.put_off(patch.position, Lacks::Else));
        for intent in intents {
            self.log.end(*intent).await.map_err(|error| self.log_failed(error))?;
        }
        self.log.sync().await.map_err(|error| self.log_failed(error))
    }

    /// Releases diffs that are in stripes of their own by now. Where the log has no room for this they stay for later: merged
    /// again they change nothing.
    async fn release(
        &self,
        diffs: Vec<(Page, LogPlace)>,
        positions: &[u64],
        report: &mut MergeReport,
    ) -> Result<(), BlocksError> {
        let pages = diffs.len() as u64;
        let merged = self.log.append(Record::Merged { intent: None, diffs }).await;
        match merged.map_err(|error| self.log_failed(error))? {
            Some(_) => report.pages += pages,
            None => positions.iter().for_each(|position| self.put_off(*position, Lacks::Else)),
        }
        Ok(())
    }

    /// Writes sectors of chunks in place and syncs them; a chunk that does not take them loses its place. Returns how many
    /// sectors were written. The caller has the stripes alone, and the log has all of it, synced.
    pub(crate) async fn write_in_place(&self, writes: Vec<ChunkWrites>) -> Result<u64, BlocksError> {
        let mut chunks = Vec::new();
        for (at, write) in writes.iter().enumerate() {
            let mut by_chunk: BTreeMap<ChunkIndex, Vec<Overwrite>> = BTreeMap::new();
            for ((index, sector), content) in &write.sectors {
                let offset = u64::from(*sector) * u64::from(SECTOR_BYTES);
                by_chunk.entry(*index).or_default().push(Overwrite { offset, bytes: content.clone() });
            }
            chunks.extend(by_chunk.into_iter().map(|(index, changes)| (at, index, changes)));
        }
        let absent = |disk| ChunkError::Unavailable { disk, reason: "the disk is absent".to_owned() };
        let overwrites = chunks.into_iter().map(|(at, index, changes)| {
            let stripe = &writes[at].stripe;
            async move {
                self.give_way().await;
                let sectors = changes.len() as u64;
                let (Some(id), Some(place)) = (stripe.chunk_id(index), stripe.places[index.at()]) else {
                    return (at, index, None, Ok((0, None)));
                };
                let written = match self.stripes.stores().readable(place.disk) {
                    Some(store) => {
                        let overwrite = store.overwrite(id, self.lease, &changes);
                        self.in_time(place.disk, overwrite).await.map(|()| (sectors, Some(store)))
                    }
                    None => Err(absent(place.disk)),
                };
                (at, index, Some(place.disk), written)
            }
        });
        let outcomes = self.in_turn(overwrites).await;
        // The very store that took them: one that was opened in its place since knows nothing of them.
        let mut stores: BTreeMap<DiskId, Arc<dyn ChunkStore>> = BTreeMap::new();
        let mut unsynced: BTreeMap<DiskId, ChunkError> = BTreeMap::new();
        for (_, _, disk, written) in &outcomes {
            let (Some(disk), Ok((_, Some(store)))) = (disk, written) else { continue };
            let first = stores.entry(*disk).or_insert_with(|| store.clone());
            if !Arc::ptr_eq(first, store) {
                unsynced.insert(*disk, absent(*disk));
            }
        }
        let sync = |(disk, store): (DiskId, Arc<dyn ChunkStore>)| async move {
            self.give_way().await;
            (disk, self.in_time(disk, store.sync()).await)
        };
        let syncs: Vec<_> = stores.into_iter().map(sync).collect();
        let synced = self.in_turn(syncs).await;
        unsynced.extend(synced.into_iter().filter_map(|(disk, synced)| Some((disk, synced.err()?))));
        let mut missed: BTreeMap<usize, Vec<ChunkIndex>> = BTreeMap::new();
        let mut sectors = 0;
        for (at, index, disk, written) in outcomes {
            let error = match (written, disk.and_then(|disk| unsynced.get(&disk))) {
                (Ok((written, _)), None) => {
                    sectors += written;
                    continue;
                }
                (Err(error @ ChunkError::Fenced { .. }), _) => return Err(self.fail(error.to_string())),
                (Err(error), _) => error,
                (Ok(_), Some(error)) => error.clone(),
            };
            tracing::warn!(stripe = %writes[at].stripe.id, chunk = index.0, %error, "a chunk missed a merge");
            missed.entry(at).or_default().push(index);
        }
        for (at, lost) in missed {
            self.give_up(writes[at].position, &writes[at].stripe, &lost).await?;
        }
        Ok(sectors)
    }

    /// Waits for a store, but not for ever.
    async fn in_time<T>(
        &self,
        disk: DiskId,
        operation: impl Future<Output = Result<T, ChunkError>>,
    ) -> Result<T, ChunkError> {
        let limit = self.settings.timeout;
        match timeout(&*self.env.clock, limit, operation).await {
            Some(result) => result,
            None => {
                self.stripes.stores().silence(disk);
                Err(ChunkError::Unavailable { disk, reason: format!("no answer within {limit:?}") })
            }
        }
    }

    /// Takes the places of chunks away that missed a patch: repair builds them anew. Unless too much else of the stripe is
    /// missing now: then what missed the patch may be needed, and is not waited for only if its disk was given up.
    async fn give_up(&self, position: u64, stripe: &StripeRecord, lost: &[ChunkIndex]) -> Result<(), BlocksError> {
        let stores = self.stripes.stores();
        let is_there = |place: &ChunkPlace| !place.damaged && stores.readable(place.disk).is_some();
        let comes_back = |disk| {
            stores
                .member(disk)
                .is_some_and(|member| !matches!(member.record.state, DiskState::Lost | DiskState::Removed))
        };
        let mut stripe = stripe.clone();
        for _ in 0..GIVE_UP_TRIES {
            let places = || (0..).map(ChunkIndex).zip(&stripe.places);
            let missing = places().filter(|(_, place)| !place.as_ref().is_some_and(is_there));
            let mut all: Vec<ChunkIndex> = missing.map(|(index, _)| index).chain(lost.iter().copied()).collect();
            all.sort_unstable();
            all.dedup();
            let waits = lost.iter().any(|index| stripe.places[index.at()].is_some_and(|place| comes_back(place.disk)));
            if waits && stripe.code.tolerance_left(&all) < 0 {
                return Err(self.fail(format!("{} chunks of stripe {} did not take a merge", lost.len(), stripe.id)));
            }
            let places = lost.iter().map(|index| (*index, None)).collect();
            let (expected_revision, lease) = (stripe.revision, Some(self.lease));
            let swap = Swap { stripe: stripe.id, expected_revision, places, lease };
            match self.meta.swap(swap).await {
                Ok(swapped) => {
                    self.remember(position, Some(swapped));
                    return Ok(());
                }
                // A chunk was marked as damaged meanwhile; nobody moves one while this has the stripe alone.
                Err(MetaError::StripeChanged { .. }) => match self.meta.stripe(stripe.id).await {
                    Ok(Some(current)) => stripe = current,
                    _ => break,
                },
                Err(error) => return Err(self.fail(format!("a stripe's record cannot be changed: {error}"))),
            }
        }
        Err(self.fail(format!("the record of stripe {} keeps changing", stripe.id)))
    }

    /// The first stripe at a position: its chunks are new, so nothing is patched.
    async fn begin_stripe(&self, position: u64, report: &mut MergeReport) -> Result<(), BlocksError> {
        let diffs = self.diffs().stripe(position);
        let released: Vec<(Page, LogPlace)> = diffs.iter().map(|(page, diff)| (*page, diff.at)).collect();
        if diffs.iter().any(|(_, diff)| diff.kind != DiffKind::Zeros) {
            if !self.stripes.may_write_on_fewer_disks(self.new_code(None)) {
                self.put_off(position, Lacks::Disks);
                return Ok(());
            }
            let contents = match self.contents(&diffs).await {
                Err(BlocksError::Lost { .. }) => {
                    report.stripes_lost += 1;
                    self.put_off(position, Lacks::Else);
                    return Ok(());
                }
                contents => contents?,
            };
            let mut data = BytesMut::zeroed(self.geometry.stripe_bytes() as usize);
            self.lay_over(position, &contents, &mut data);
            let Some((stripe, claim)) = self.write_stripe(&data, None).await else {
                self.put_off(position, Lacks::Disks);
                return Ok(());
            };
            // The diffs that it was made of are durable before it is: what came later must not be undone by a crash.
            self.log.sync().await.map_err(|error| self.log_failed(error))?;
            match self.meta.put_volume_stripes(self.lease, vec![(position, Some(stripe.clone()))]).await {
                Ok(_) => {}
                Err(MetaError::Full) => {
                    self.let_go(vec![(stripe, claim)]).await;
                    self.put_off(position, Lacks::Disks);
                    return Ok(());
                }
                Err(error) => return Err(self.fail(format!("a new stripe cannot be recorded: {error}"))),
            }
            self.remember(position, Some(stripe));
            let zeros = zeros_of(&self.geometry, position, &data);
            self.zeros().learn(position, &zeros);
            drop(claim);
            report.stripes_begun += 1;
        }
        self.release(released, &[position], report).await
    }

    /// Puts pages into the data of their stripe.
    fn lay_over(&self, position: u64, contents: &Contents, data: &mut BytesMut) {
        let start = position * self.geometry.stripe_bytes();
        for (page, (content, _)) in contents {
            let at = (self.geometry.start(*page) - start) as usize;
            data[at..at + content.len()].copy_from_slice(content);
        }
    }

    /// Writes a new stripe, perhaps instead of another. `None`: there are no disks for it now; its diffs stay.
    async fn write_stripe(&self, data: &[u8], instead: Option<&StripeRecord>) -> Option<(StripeRecord, Claim)> {
        let geometry = &self.geometry;
        let written = async {
            let mut writer = self
                .stripes
                .writer_on_fewer_disks(self.new_code(instead), geometry.stripe_bytes(), &self.homes, Durability::Synced)
                .await?;
            writer.append_columns(data).await?;
            writer.finish().await
        };
        match written.await {
            Ok(written) => Some(written),
            Err(error) => {
                tracing::warn!(%error, "a volume's stripe cannot be written now; its pages stay in the log");
                None
            }
        }
    }

    /// Deletes new stripes that the records have no room for: nothing was changed, and their diffs stay.
    async fn let_go(&self, stripes: Vec<(StripeRecord, Claim)>) {
        tracing::warn!(volume = self.record.name, "the database is full: pages stay in the log");
        for (stripe, claim) in stripes {
            // If a disk does not delete its chunk, the sweep does.
            let _ = self.stripes.discard(&stripe).await;
            drop(claim);
        }
    }

    /// A stripe that is all zeros is none.
    async fn drop_stripe(
        &self,
        position: u64,
        diffs: &[(Page, Diff)],
        report: &mut MergeReport,
    ) -> Result<(), BlocksError> {
        if let Err(error) = self.meta.put_volume_stripes(self.lease, vec![(position, None)]).await {
            return Err(self.fail(format!("a stripe that is zeros cannot be given back: {error}")));
        }
        self.remember(position, None);
        report.stripes_dropped += 1;
        let released = diffs.iter().map(|(page, diff)| (*page, diff.at)).collect();
        self.release(released, &[position], report).await
    }

    /// Writes again what an intent of an earlier opening says, so that its stripes are whole.
    /// `held`: stripes that were kept since they were left so; those written are added. They stay until all intents of the
    /// log are written again: another one may be of the same stripe.
    pub(crate) async fn redo(&self, at: LogPlace, intent: &Intent, held: &Held) -> Result<(), BlocksError> {
        let mut inline = intent.inline.chunks_exact(SECTOR_BYTES as usize);
        let mut writes: BTreeMap<u32, ChunkWrites> = BTreeMap::new();
        for (number, (position, id)) in (0..).zip(&intent.stripes) {
            // One that is not there any more was given back since.
            if self.stripe(*position).is_none_or(|stripe| stripe.id != *id) {
                continue;
            }
            if !held.has(*id) {
                held.put(self.alone(*id).await?);
            }
            let touched = self.meta.touch(&[*id]).await;
            let touched =
                touched.map_err(|error| self.fail(format!("a stripe's record cannot be changed: {error}")))?;
            let Some(stripe) = touched.into_iter().next() else { continue };
            self.remember(*position, Some(stripe.clone()));
            writes.insert(number, ChunkWrites { position: *position, stripe, sectors: Vec::new() });
        }
        for write in &intent.sectors {
            let content = match write.source {
                Source::Inline => inline.next().map(Bytes::copy_from_slice),
                Source::Zeros => Some(Bytes::from_static(&[0; SECTOR_BYTES as usize])),
                Source::Log(place) => {
                    let right = |content: &Bytes| crc32c(content) == write.crc;
                    self.log.view().read(place, u64::from(SECTOR_BYTES), right).await
                }
            };
            let Some(content) = content else {
                return Err(self.fail("the log has lost a page that a merge was writing".to_owned()));
            };
            if let Some(chunk) = writes.get_mut(&write.stripe) {
                if write.chunk.at() >= chunk.stripe.places.len() {
                    return Err(self.fail(format!("stripe {} has no chunk {}", chunk.stripe.id, write.chunk.0)));
                }
                chunk.sectors.push(((write.chunk, write.sector), content));
            }
        }
        self.write_in_place(writes.into_values().collect()).await?;
        self.log.end(at).await.map_err(|error| self.log_failed(error))
    }
}

impl Inner {
    /// Waits until nobody shares a stripe; a scrub or a repair of it comes to an end.
    async fn alone(&self, stripe: StripeId) -> Result<Hold, BlocksError> {
        for _ in 0..ALONE_TRIES {
            if let Some(hold) = self.stripes.try_alone(stripe) {
                return Ok(hold);
            }
            self.env.clock.sleep(ALONE_PAUSE).await;
        }
        Err(self.fail(format!("stripe {stripe} is being changed by somebody else")))
    }
}

/// Sectors of one stripe to be written in place.
pub(crate) struct ChunkWrites {
    position: u64,
    stripe: StripeRecord,
    sectors: Vec<((ChunkIndex, u32), Bytes)>,
}

/// What a batch will write, in records that are short, so that no writer waits for a long one. All sectors of a row are in
/// one of them: a crash may leave some of the records, and what each says is written then.
fn intents_of(batch: &[Patch]) -> Vec<Intent> {
    let mut intents = Vec::new();
    let mut intent = Intent::default();
    let mut inline = BytesMut::new();
    for patch in batch {
        let mut rows: BTreeMap<u32, Vec<(ChunkIndex, &NewSector)>> = BTreeMap::new();
        for ((chunk, sector), new) in &patch.sectors {
            rows.entry(*sector).or_default().push((*chunk, new));
        }
        for (sector, chunks) in rows {
            if intent.sectors.len() >= INTENT_SECTORS {
                intents.push(Intent { inline: inline.split().freeze(), ..std::mem::take(&mut intent) });
            }
            if intent.stripes.last().is_none_or(|(_, stripe)| *stripe != patch.stripe.id) {
                intent.stripes.push((patch.position, patch.stripe.id));
            }
            let stripe = intent.stripes.len() as u32 - 1;
            for (chunk, new) in chunks {
                let source = match new.logged {
                    Some(place) => Source::Log(place),
                    None if new.content.iter().all(|byte| *byte == 0) => Source::Zeros,
                    None => {
                        inline.extend_from_slice(&new.content);
                        Source::Inline
                    }
                };
                intent.sectors.push(SectorWrite { stripe, chunk, sector, crc: crc32c(&new.content), source });
            }
        }
    }
    intents.push(Intent { inline: inline.freeze(), ..intent });
    intents
}

/// The chunks that a patch brings other bytes than zeros. Parity can be zeros where data is not.
fn grown_chunks(patch: &Patch) -> BTreeSet<ChunkIndex> {
    let is_more = |sector: &NewSector| sector.content.iter().any(|byte| *byte != 0);
    patch.sectors.iter().filter(|(_, sector)| is_more(sector)).map(|((chunk, _), _)| *chunk).collect()
}

/// Stripes whose records are changed at once, and which are held while a batch of them is written.
const TOUCH_STRIPES: usize = 128;
/// The same while somebody writes. What a batch wrote to a disk goes to its medium at once, and a flush of the log that comes
/// meanwhile waits for it: of pages that are alone in their stripes this is a few hundred KiB.
const TOUCH_STRIPES_BESIDE_WRITERS: usize = 32;
/// Sectors after which a batch gets its intents. It has its log and its disks synced once, so beside writers a round shall be
/// one batch: 512 pages that are alone in their rows are 1,536 sectors under `rs:4+2`. They are in memory, 8 MiB and at most
/// one stripe more, and their stripes are held while they are written.
const BATCH_SECTORS: usize = 2048;
/// Sectors after which an intent gets no further row.
pub(crate) const INTENT_SECTORS: usize = 32;
/// Pages that are read from the log by one call.
const READ_TOGETHER: usize = 16;
const ROUNDS_MAX: usize = 1000;
/// A stripe that could not be merged is left out for so many rounds at least.
const PUT_OFF_ROUNDS: u64 = 16;
const GIVE_UP_TRIES: usize = 8;
const ALONE_TRIES: usize = 6000;
const ALONE_PAUSE: Duration = Duration::from_millis(10);
