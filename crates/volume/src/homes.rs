//! The homes of a volume: nodes where its data chunks lie, so that whoever reads it there reads what is near.
//!
//! ```text
//!  rs:2+1, homes a and b                     chunk 0   chunk 1 | parity
//!                             on node           a         b    |   any other          [drc-dpu §3]: 2D1P
//!  rs:4+2, the same           on nodes       a  a      b  b    |   any others
//! ```
//!
//! New stripes are written so. A chunk comes to lie elsewhere where its home takes nothing, and by repairs, which know no homes; it
//! is brought home between merges, when there is room for it there (docs/formats/merge.md, *Chunks come home*).
//!
//! Invariant: a chunk that is brought home is whole there, read back and named by one transaction before the one elsewhere is deleted.

use std::sync::{Arc, MutexGuard, PoisonError};

use claystone_chunk::NodeId;
use claystone_code::ChunkIndex;
use claystone_meta::StripeRecord;
use claystone_stripe::{Homes, Unpaced};

use crate::BlocksError;
use crate::task::to_its_end;
use crate::volume::{Inner, Volume};

/// The home of each of the data chunks of a stripe; none without homes.
pub(crate) fn homes_of(homes: &[NodeId], data: u16) -> Homes {
    let homes = homes.iter().flat_map(|home| std::iter::repeat_n(home, chunks_at_home(homes, data).into()));
    (0..).map(ChunkIndex).zip(homes.cloned()).collect()
}

/// Data chunks of a stripe that have the same home.
pub(crate) fn chunks_at_home(homes: &[NodeId], data: u16) -> u16 {
    data / (homes.len() as u16).max(1)
}

impl Volume {
    /// Looks at the next stripes and brings chunks of a few of them home, as is done in the background. Returns whether there may be more where it
    /// looked.
    ///
    /// # Errors
    /// The volume failed.
    pub async fn bring_home_once(&self) -> Result<bool, BlocksError> {
        self.inner.bring_some_home().await
    }
}

impl Inner {
    /// See [`Volume::bring_home_once`].
    pub(crate) async fn bring_some_home(self: &Arc<Self>) -> Result<bool, BlocksError> {
        if self.homes.is_empty() {
            return Ok(false);
        }
        let inner = self.clone();
        let brought = to_its_end(&self.env, "bring home", async move { inner.look_and_bring_home().await }).await;
        brought.unwrap_or_else(|| Err(self.fail("bringing chunks home was cut off".to_owned())))
    }

    async fn look_and_bring_home(&self) -> Result<bool, BlocksError> {
        let after = *self.homed();
        let Some(stripes) = self.next_records(after).await? else { return Ok(false) };
        let away: Vec<u64> = {
            let homing = self.stripes.homing(&self.homes, self.geometry.chunk_bytes);
            let wanted = stripes.iter().filter(|(_, stripe)| homing.is_wanted(stripe));
            wanted.map(|(position, _)| *position).take(HOMING_STRIPES).collect()
        };
        let are_more = away.len() == HOMING_STRIPES;
        let looked_at = if are_more { away.last().copied() } else { stripes.last().map(|(position, _)| *position) };
        for position in away {
            // Room in the log comes first: the rest has its turn in the next look.
            if self.used_percent() >= self.settings.merge_from_percent {
                return Ok(false);
            }
            let began = self.env.clock.now();
            self.bring_stripe_home(position).await?;
            *self.homed() = Some(position);
            // Clients and merges come first: as long again as it took is theirs.
            self.rest_after(began).await;
        }
        *self.homed() = looked_at;
        Ok(are_more)
    }

    /// The position up to which chunks were brought home; none: from the first on.
    fn homed(&self) -> MutexGuard<'_, Option<u64>> {
        self.homed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next stripes as the records have them: repairs move chunks, as do others who share a stripe, and nobody tells. `None`: they cannot be
    /// read now.
    async fn next_records(&self, after: Option<u64>) -> Result<Option<Vec<(u64, StripeRecord)>>, BlocksError> {
        // No merge changes a record meanwhile.
        let _merging = self.merging.lock().await;
        self.working()?;
        let stripes = match self.meta.volume_stripes(self.record.id, after, LOOK_STRIPES).await {
            Ok(stripes) => stripes,
            Err(error) => {
                tracing::warn!(volume = self.record.name, %error, "it is not known which chunks are away from home");
                return Ok(None);
            }
        };
        for (position, stripe) in &stripes {
            if self.stripe(*position).is_some_and(|known| known.places != stripe.places) {
                self.remember(*position, Some(stripe.clone()));
            }
        }
        Ok(Some(stripes))
    }

    /// One stripe, between merges.
    async fn bring_stripe_home(&self, position: u64) -> Result<(), BlocksError> {
        let _merging = self.merging.lock().await;
        // Also one that was closed: another opening has the stripes.
        self.working()?;
        let Some(known) = self.stripe(position) else { return Ok(()) };
        let before = match self.meta.stripe(known.id).await {
            Ok(Some(before)) => before,
            Ok(None) => return Ok(()),
            Err(error) => {
                tracing::warn!(position, %error, "chunks stay away from home for now");
                return Ok(());
            }
        };
        // Whatever a merge wrote into the chunk elsewhere is known to be carried out, as before another code is named.
        self.log.sync().await.map_err(|error| self.log_failed(error))?;
        let Some(moved) = self.while_there_is_room(self.stripes.bring_home(&before, &self.homes, &Unpaced)).await
        else {
            // The new chunks are garbage.
            tracing::warn!(position, "chunks stay away from home for now: writers wait for room in the log");
            return Ok(());
        };
        self.name_moved(position, &before, moved).await.map(|_| ())
    }
}

/// Records of stripes that are looked at at once.
const LOOK_STRIPES: usize = 1000;
/// Stripes of which chunks are brought home in a row.
const HOMING_STRIPES: usize = 8;
