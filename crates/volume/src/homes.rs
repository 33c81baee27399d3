//! The homes of a volume: nodes where its data chunks lie, so that whoever reads it there reads what is near.
//!
//! ```text
//!  rs:2+1, homes a and b                     chunk 0   chunk 1 | parity
//!                             on node           a         b    |   any other          [drc-dpu §3]: 2D1P
//!  rs:4+2, the same           on nodes       a  a      b  b    |   any others
//! ```
//!
//! New stripes are written so. A chunk comes to lie elsewhere where its home takes nothing, and by repairs, which know no homes; it
//! is brought home between merges, when there is room for it there.
//!
//! Invariant: a chunk that is brought home is whole there, read back and named by one transaction before the one elsewhere is deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use claystone_chunk::{DiskId, NodeId};
use claystone_code::ChunkIndex;
use claystone_meta::{StripeRecord, VolumeRecord};
use claystone_stripe::{Homes, Unpaced};

use crate::BlocksError;
use crate::task::to_its_end;
use crate::volume::{Inner, Volume};

/// The home of each data chunk of a volume's stripes; none without homes.
pub(crate) fn homes_of(record: &VolumeRecord) -> Homes {
    let chunks = columns_of_home(record);
    let homes = record.homes.iter().flat_map(|home| std::iter::repeat_n(home, chunks.into()));
    (0..).map(ChunkIndex).zip(homes.cloned()).collect()
}

/// Data chunks of a stripe that have the same home.
pub(crate) fn columns_of_home(record: &VolumeRecord) -> u16 {
    record.redundancy.code.shape().data / (record.homes.len() as u16).max(1)
}

/// The first stripes of these, by position, of which a data chunk is on another node than its home, while a disk of that home
/// takes chunks and has none of the stripe.
fn plan_homing(
    stripes: &[(u64, StripeRecord)],
    homes: &Homes,
    nodes: &BTreeMap<DiskId, NodeId>,
    takers: &BTreeSet<DiskId>,
    limit: usize,
) -> Vec<u64> {
    let is_away = |stripe: &StripeRecord, chunk: &ChunkIndex, home: &NodeId| {
        let place = stripe.places.get(chunk.at()).copied().flatten();
        place.is_some_and(|place| !place.damaged && nodes.get(&place.disk).is_some_and(|node| node != home))
    };
    let has_room = |stripe: &StripeRecord, home: &NodeId| {
        let has = |disk: &DiskId| stripe.places.iter().flatten().any(|place| place.disk == *disk);
        takers.iter().any(|disk| nodes.get(disk) == Some(home) && !has(disk))
    };
    let is_wanted = |stripe: &StripeRecord| {
        homes.iter().any(|(chunk, home)| is_away(stripe, chunk, home) && has_room(stripe, home))
    };
    let wanted = stripes.iter().filter(|(_, stripe)| is_wanted(stripe));
    wanted.map(|(position, _)| *position).take(limit).collect()
}

impl Volume {
    /// Brings chunks of a few stripes home, as is done in the background. Returns whether there may be more where it looked.
    ///
    /// # Errors
    /// The volume failed.
    pub async fn bring_home_once(&self) -> Result<bool, BlocksError> {
        self.inner.bring_some_home().await
    }
}

impl Inner {
    /// Looks at the records of the next stripes, and brings chunks of a few of them home. Returns whether there may be more here.
    pub(crate) async fn bring_some_home(self: &Arc<Self>) -> Result<bool, BlocksError> {
        if self.homes.is_empty() {
            return Ok(false);
        }
        let after = *self.homed();
        // As the records have them: repairs move chunks, and nobody tells.
        let stripes = match self.meta.volume_stripes(self.record.id, after, LOOK_STRIPES).await {
            Ok(stripes) => stripes,
            Err(error) => {
                tracing::warn!(volume = self.record.name, %error, "it is not known which chunks are away from home");
                return Ok(false);
            }
        };
        let away = self.away(&stripes);
        let are_more = away.len() == HOMING_STRIPES;
        *self.homed() = if are_more { away.last().copied() } else { stripes.last().map(|(position, _)| *position) };
        let inner = self.clone();
        let brought = to_its_end(&self.env, "bring home", async move { inner.bring_home(away).await }).await;
        brought.unwrap_or_else(|| Err(self.fail("bringing chunks home was cut off".to_owned())))?;
        Ok(are_more)
    }

    /// The position up to which chunks were brought home; none: from the first on.
    fn homed(&self) -> MutexGuard<'_, Option<u64>> {
        self.homed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn away(&self, stripes: &[(u64, StripeRecord)]) -> Vec<u64> {
        let stores = self.stripes.stores();
        let nodes = stores.members().into_iter().map(|member| (member.record.id, member.record.node)).collect();
        let roomy = stores.candidates().into_iter().filter(|disk| disk.free_bytes > 2 * self.geometry.chunk_bytes);
        let takers = roomy.map(|candidate| candidate.disk).collect();
        plan_homing(stripes, &self.homes, &nodes, &takers, HOMING_STRIPES)
    }

    async fn bring_home(&self, positions: Vec<u64>) -> Result<(), BlocksError> {
        for position in positions {
            let began = self.env.clock.now();
            self.bring_stripe_home(position).await?;
            // Clients and merges come first: as long again as it took is theirs.
            let took = self.env.clock.now().since(began);
            self.env.clock.sleep(took.min(REST_MAX)).await;
        }
        Ok(())
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
        let moved = self.stripes.bring_home(&before, &self.homes, &Unpaced).await;
        self.name_moved(position, &before, moved).await;
        Ok(())
    }
}

/// Records of stripes that are looked at at once.
const LOOK_STRIPES: usize = 1000;
/// Stripes of which chunks are brought home in a row.
const HOMING_STRIPES: usize = 8;
/// The longest rest between two of them.
const REST_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use claystone_chunk::{Generation, StripeId};
    use claystone_env::WallTime;
    use claystone_meta::ChunkPlace;

    use super::*;

    /// Of `rs:2+1`, whose chunks lie on these disks.
    fn stripe(disks: [u128; 3]) -> StripeRecord {
        let place = |disk| Some(ChunkPlace { disk: DiskId(disk), generation: Generation(0), damaged: false });
        StripeRecord {
            id: StripeId(1),
            code: "rs:2+1".parse().expect("a valid code"),
            data_bytes: 8192,
            bands: Vec::new(),
            sub_bytes: 4096,
            places: disks.into_iter().map(place).collect(),
            origins: BTreeMap::new(),
            revision: 0,
            verified: Some(WallTime::default()),
        }
    }

    #[test]
    fn chunks_go_home_where_a_disk_there_is_free() {
        // Disks 0 and 1 on node 0, 2 and 3 on node 1, and so on.
        let nodes: BTreeMap<DiskId, NodeId> =
            (0..6).map(|disk| (DiskId(disk), NodeId(format!("n{}", disk / 2)))).collect();
        let homes: Homes =
            [(0, "n0"), (1, "n1")].map(|(chunk, home)| (ChunkIndex(chunk), NodeId(home.to_owned()))).into();
        let plan = |disks: [u128; 3], takers: &[u128]| {
            let takers = takers.iter().map(|disk| DiskId(*disk)).collect();
            let stripes = [(7, stripe([0, 2, 4])), (8, stripe(disks)), (9, stripe(disks))];
            plan_homing(&stripes, &homes, &nodes, &takers, 1)
        };
        let all = [0, 1, 2, 3, 4, 5];
        assert_eq!(plan([1, 3, 5], &all), [0; 0], "all are at home");
        assert_eq!(plan([4, 2, 5], &all), [8]);
        assert_eq!(plan([0, 4, 2], &all), [8], "beside parity that lies there");
        assert_eq!(plan([4, 2, 5], &[2, 3, 4, 5]), [0; 0], "no disk at home takes it");
        assert_eq!(plan([4, 2, 0], &[0, 2, 3]), [0; 0], "parity has the only one that does");
        let mut damaged = stripe([4, 2, 5]);
        damaged.places[0].as_mut().expect("a place").damaged = true;
        let takers = all.map(DiskId).into();
        assert_eq!(plan_homing(&[(3, damaged)], &homes, &nodes, &takers, 1), [0; 0], "that is repair's");
    }
}
