//! Gives a volume stripes of its own where it shares them, with its diffs in them; or none, where that leaves zeros only.
//!
//! ```text
//!             share, read     new chunks written, log synced    readers of the old gone    one transaction
//!  diffs, shared ------> laid over -----------------> written ------------------> alone ------------> own --> merged
//!                             |                          |                          |                  |
//!  after a crash:           diffs                      diffs                      diffs               own, and its diffs
//! ```
//!
//! Nobody changes the old stripe, so a crash leaves the one or the other: chunks that no record names are swept, and diffs
//! that are already in the new stripe are merged again.
//!
//! Invariants:
//! 1. A stripe that is not shared when it is asked does not become so before the merge is over: a snapshot of this volume is
//!    taken by who has `merging`, and a clone is made of a snapshot. One that is shared may cease to be: it is copied then
//!    for nothing.
//! 2. When a volume lets go of a stripe, whoever has it alone from then on may change it in place. So nobody reads it for
//!    this volume any more ([`Readers::gone`](crate::readers::Readers::gone)).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use claystone_chunk::{ByteRange, SECTOR_BYTES, StripeId};
use claystone_code::ChunkIndex;
use claystone_meta::{MetaError, StripeRecord};
use claystone_stripe::{Claim, Hold};
use futures::future::join_all;

use super::Lacks;
use crate::diffs::{Diff, DiffKind};
use crate::geometry::Page;
use crate::log::record::LogPlace;
use crate::volume::Inner;
use crate::zeros::zeros_of;
use crate::{BlocksError, MergeReport};

/// What takes the place of a shared stripe.
struct Copied {
    position: u64,
    old: Arc<StripeRecord>,
    /// `None`: all of it is zeros.
    new: Option<(StripeRecord, Claim)>,
    /// Pages of the new one that are zeros.
    zeros: Vec<Page>,
    diffs: Vec<(Page, Diff)>,
}

impl Copied {
    /// All of it is zeros now.
    fn zeros(position: u64, old: Arc<StripeRecord>, diffs: Vec<(Page, Diff)>) -> Copied {
        Copied { position, old, new: None, zeros: Vec::new(), diffs }
    }

    fn stripe(&self) -> Option<StripeRecord> {
        self.new.as_ref().map(|(stripe, _)| stripe.clone())
    }
}

/// What became of a stripe that was to be copied.
enum Outcome {
    Copied(Box<Copied>),
    /// Too much of it is lost.
    Lost,
    /// There is no room, or no disks: later.
    NotNow,
}

impl Inner {
    /// Of these stripes of these positions, copies the shared ones; returns them. The caller has `merging`.
    pub(super) async fn copy_shared(
        &self,
        known: &BTreeMap<StripeId, u64>,
        report: &mut MergeReport,
    ) -> Result<BTreeSet<StripeId>, BlocksError> {
        let ids: Vec<StripeId> = known.keys().copied().collect();
        if ids.is_empty() {
            return Ok(BTreeSet::new());
        }
        let shared = self.meta.shared(&ids).await;
        let shared = shared.map_err(|error| self.fail(format!("records of stripes cannot be read: {error}")))?;
        let positions = shared.iter().map(|stripe| known[stripe]);
        // The merge of a page writes nothing into the log there.
        positions.clone().for_each(|position| self.diffs().set_begun(position, Some(0)));
        let positions: Vec<u64> = positions.filter(|position| !self.diffs().stripe(*position).is_empty()).collect();
        for positions in positions.chunks(COPIES_AT_ONCE) {
            self.copy(positions, report).await?;
        }
        Ok(shared.into_iter().collect())
    }

    /// Copies a few stripes at once; one transaction names them.
    async fn copy(&self, positions: &[u64], report: &mut MergeReport) -> Result<(), BlocksError> {
        let copies = join_all(positions.iter().map(|position| self.copy_stripe(*position))).await;
        let mut copied = Vec::new();
        for (position, outcome) in positions.iter().zip(copies) {
            match outcome? {
                Outcome::Copied(copy) => copied.push(*copy),
                Outcome::Lost => {
                    report.stripes_lost += 1;
                    self.put_off(*position, Lacks::Else);
                }
                Outcome::NotNow => self.put_off(*position, Lacks::Disks),
            }
        }
        if copied.is_empty() {
            return Ok(());
        }
        // The diffs that they were made of are durable before they are: what came later must not be undone by a crash.
        self.log.sync().await.map_err(|error| self.log_failed(error))?;
        for copy in &copied {
            self.remember(copy.position, copy.stripe());
        }
        if !self.readers.gone(&*self.env.clock, self.settings.timeout).await {
            tracing::warn!(volume = self.record.name, "a read takes so long that stripes cannot be let go");
            // The sweep has what was written: reads may have found it.
            drop(self.take_back(copied));
            return Ok(());
        }
        let stripes = copied.iter().map(|copy| (copy.position, copy.stripe())).collect();
        match self.meta.put_volume_stripes(self.lease, stripes).await {
            Ok(_) => {}
            Err(MetaError::Full) => {
                let new = self.take_back(copied);
                // Reads may have found the new stripes. If one of them takes too long, the sweep has these.
                if self.readers.gone(&*self.env.clock, self.settings.timeout).await {
                    self.let_go(new).await;
                }
                return Ok(());
            }
            Err(error) => return Err(self.fail(format!("new stripes cannot be recorded: {error}"))),
        }
        copied.iter().for_each(|copy| self.zeros().learn(copy.position, &copy.zeros));
        let diffs = copied.iter().flat_map(|copy| &copy.diffs).map(|(page, diff)| (*page, diff.at));
        let diffs: Vec<(Page, LogPlace)> = diffs.collect();
        let positions: Vec<u64> = copied.iter().map(|copy| copy.position).collect();
        let claims: Vec<Option<Claim>> = copied.into_iter().map(|copy| copy.new.map(|(_, claim)| claim)).collect();
        let dropped = claims.iter().filter(|claim| claim.is_none()).count() as u64;
        report.stripes_dropped += dropped;
        report.stripes_copied += claims.len() as u64 - dropped;
        drop(claims);
        self.release(diffs, &positions, report).await
    }

    /// Puts the old stripes back where the new ones were not recorded, and returns these, which nobody names.
    fn take_back(&self, copied: Vec<Copied>) -> Vec<(StripeRecord, Claim)> {
        for copy in &copied {
            self.remember(copy.position, Some((*copy.old).clone()));
            self.put_off(copy.position, Lacks::Disks);
            self.diffs().set_begun(copy.position, Some(0));
        }
        copied.into_iter().filter_map(|copy| copy.new).collect()
    }

    /// Writes the data of a shared stripe with the diffs in it as a new stripe, which no record names yet.
    async fn copy_stripe(&self, position: u64) -> Result<Outcome, BlocksError> {
        let Some(old) = self.stripe(position) else { return Ok(Outcome::NotNow) };
        let diffs = self.diffs().stripe(position);
        if self.are_all_zeros(position, &diffs) {
            return Ok(Outcome::Copied(Box::new(Copied::zeros(position, old, diffs))));
        }
        let has_content = diffs.iter().any(|(_, diff)| diff.kind != DiffKind::Zeros);
        if has_content && !self.stripes.may_write_on_fewer_disks(self.new_code(Some(&old))) {
            return Ok(Outcome::NotNow);
        }
        let contents = match self.contents(&diffs).await {
            Err(BlocksError::Lost { .. }) => return Ok(Outcome::Lost),
            contents => contents?,
        };
        let mut data = BytesMut::zeroed(self.geometry.stripe_bytes() as usize);
        let columns = self.kept_columns(position, &contents);
        if !columns.is_empty() {
            // Before its record is looked at: what that names stays while this reads.
            let _claim = self.stripes.claim(old.id);
            let Ok(hold) = self.stripes.share(old.id).await else { return Ok(Outcome::NotNow) };
            let Some(kept) = self.read_kept(&columns, &hold).await? else { return Ok(Outcome::Lost) };
            for (column, content) in kept {
                let at = column.at() * self.geometry.chunk_bytes as usize;
                data[at..at + content.len()].copy_from_slice(&content);
            }
        }
        self.lay_over(position, &contents, &mut data);
        let zeros = zeros_of(&self.geometry, position, &data);
        if data.len() == zeros.len() * self.geometry.page_bytes as usize {
            return Ok(Outcome::Copied(Box::new(Copied::zeros(position, old, diffs))));
        }
        let Some(new) = self.write_stripe(&data, Some(&old)).await else { return Ok(Outcome::NotNow) };
        Ok(Outcome::Copied(Box::new(Copied { position, old, new: Some(new), zeros, diffs })))
    }

    /// The data chunks of which something stays: not all of their pages have a diff.
    fn kept_columns<T>(&self, position: u64, diffs: &BTreeMap<Page, T>) -> BTreeMap<ChunkIndex, ByteRange> {
        let whole = ByteRange { offset: 0, bytes: self.geometry.chunk_bytes };
        let pages = self.geometry.chunk_bytes / u64::from(self.geometry.page_bytes);
        let first = self.geometry.page(position * self.geometry.stripe_bytes()).0;
        let kept = |column: &ChunkIndex| {
            let start = first + u64::from(column.0) * pages;
            (diffs.range(Page(start)..Page(start + pages)).count() as u64) < pages
        };
        (0..self.geometry.columns).map(ChunkIndex).filter(kept).map(|column| (column, whole)).collect()
    }

    /// Reads chunks of a stripe that nobody changes. `None`: they are lost.
    async fn read_kept(
        &self,
        columns: &BTreeMap<ChunkIndex, ByteRange>,
        hold: &Hold,
    ) -> Result<Option<BTreeMap<ChunkIndex, Bytes>>, BlocksError> {
        let current = self.meta.stripe(hold.stripe()).await;
        let current = current.map_err(|error| self.fail(format!("a stripe's record cannot be read: {error}")))?;
        let Some(current) = current else {
            return Err(self.fail("the records have lost a stripe of this volume, or given it away".to_owned()));
        };
        match self.stripes.read_columns(&current, columns, hold).await {
            Ok(read) => Ok(Some(read)),
            Err(error) => {
                tracing::warn!(stripe = %current.id, %error, "diffs cannot be merged: their stripe is lost");
                Ok(None)
            }
        }
    }

    /// Learns which pages of a stripe are zeros that have none of these diffs, and returns how many sectors were read for it. Whoever
    /// asks has the stripe alone. What cannot be read is not known.
    pub(super) async fn learn_rest(
        &self,
        position: u64,
        stripe: &StripeRecord,
        hold: &Hold,
        diffs: &[(Page, Diff)],
    ) -> u64 {
        let diffs: BTreeMap<Page, Diff> = diffs.iter().copied().collect();
        let columns = self.kept_columns(position, &diffs);
        if columns.is_empty() {
            return 0;
        }
        self.give_way().await;
        let read = match self.stripes.read_columns(stripe, &columns, hold).await {
            Ok(read) => read,
            Err(error) => {
                tracing::debug!(stripe = %stripe.id, %error, "a stripe that is discarded bit by bit cannot be looked at");
                return 0;
            }
        };
        let mut data = vec![0; self.geometry.stripe_bytes() as usize];
        for (column, content) in &read {
            let at = column.at() * self.geometry.chunk_bytes as usize;
            data[at..at + content.len()].copy_from_slice(content);
        }
        let mut zeros = zeros_of(&self.geometry, position, &data);
        // They are what they were until they are merged.
        zeros.retain(|page| !diffs.contains_key(page));
        self.zeros().learn(position, &zeros);
        columns.len() as u64 * self.geometry.chunk_bytes / u64::from(SECTOR_BYTES)
    }

    /// Whether a stripe is all zeros with these diffs in it.
    pub(super) fn are_all_zeros(&self, position: u64, diffs: &[(Page, Diff)]) -> bool {
        let first = self.geometry.page(position * self.geometry.stripe_bytes());
        self.zeros().are_all(position, first..Page(first.0 + self.pages_of(position)), diffs)
    }
}

/// Stripes that are copied at once: they are in memory.
const COPIES_AT_ONCE: usize = 4;
