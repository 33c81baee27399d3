//! Disks that say themselves that they have lost sectors: pairs of drives whose solid-state drive died, or gave back what it
//! was not given. What they have is read back at once, and not when a read or its turn comes.
//!
//! ```text
//! at rest --more sectors are lost, or the solid-state drive has gone--> read back, stripe by stripe --the last--> at rest
//!                                                                         more is lost: from the first one again
//! ```
//!
//! Invariants:
//! 1. A disk whose loss is first seen when the store starts is read back too: what is remembered here ends with the program.
//! 2. A chunk is marked as damaged as by a scrub: only if its store, while serving, said that it is lost.
//!
//! Left out: volumes' logs. Their copies are on other disks, and who reads one finds out.

use std::collections::BTreeMap;

use claystone_chunk::{DiskId, StripeId};
use claystone_env::SsdState;

use crate::keeper::PAGE;
use crate::{Keeper, KeeperError};

/// What one step of reading back found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LossRound {
    /// Stripes of which chunks were read back.
    pub stripes: u64,
    /// Chunks found lost or damaged.
    pub damaged: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// A disk is not read back to its end.
    pub more: bool,
}

/// What is known of disks' losses, and how far each is read back that is.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    seen: BTreeMap<DiskId, Loss>,
    walks: BTreeMap<DiskId, Option<StripeId>>,
}

/// What a pair says that it has lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Loss {
    ssd: SsdState,
    sectors: u64,
}

impl Losses {
    /// Takes down what disks say now, and begins to read back those that have lost more.
    fn take(&mut self, now: BTreeMap<DiskId, Loss>) {
        for (disk, loss) in &now {
            let before = self.seen.get(disk);
            let rose = loss.sectors > before.map_or(0, |before| before.sectors);
            let died = before.is_some_and(|before| before.ssd == SsdState::Present) && loss.ssd != SsdState::Present;
            if rose || died {
                tracing::warn!(%disk, ssd = loss.ssd.word(), sectors = loss.sectors, "a disk lost sectors: it is read back");
                self.walks.insert(*disk, None);
            }
        }
        // One that is away is looked at anew when it is back.
        self.walks.retain(|disk, _| now.contains_key(disk));
        self.seen = now;
    }
}

impl Keeper {
    /// Looks at what disks say that they have lost, and reads back a page of the stripes on one that lost more.
    ///
    /// # Errors
    /// The metadata store failed.
    pub async fn losses_once(&self) -> Result<LossRound, KeeperError> {
        let members = self.inner.stripes.stores().members();
        let pairs = members.iter().filter(|member| member.readable()).filter_map(|member| {
            let pair = member.store.as_ref().ok()?.sectors()?.pair?;
            Some((member.record.id, Loss { ssd: pair.ssd, sectors: pair.lost_sectors }))
        });
        let walk = {
            let mut state = self.state();
            state.losses.take(pairs.collect());
            state.losses.walks.first_key_value().map(|(disk, after)| (*disk, *after))
        };
        let mut round = LossRound::default();
        let Some((disk, after)) = walk else { return Ok(round) };
        let page = self.inner.meta.stripes_on(disk, after, PAGE).await?;
        // As repairs: what is lost there endangers stripes.
        let pacer = self.inner.pacing.pacer(self.inner.settings.repair_share);
        for stripe in &page {
            if let Some(found) = pacer.watch(self.inner.stripes.verify_on(stripe, disk, &pacer)).await {
                round.stripes += 1;
                round.bytes_read += found.bytes_read;
                round.damaged += self.mark_found(stripe, &found).await?;
            }
            self.state().losses.walks.insert(disk, Some(stripe.id));
        }
        if page.len() < PAGE {
            self.state().losses.walks.remove(&disk);
        }
        round.more = !self.state().losses.walks.is_empty();
        Ok(round)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: DiskId = DiskId(1);

    fn begins(losses: &mut Losses, ssd: SsdState, sectors: u64) -> bool {
        losses.take(BTreeMap::from([(DISK, Loss { ssd, sectors })]));
        losses.walks.remove(&DISK).is_some()
    }

    #[test]
    fn a_disk_is_read_back_whenever_it_lost_more() {
        let mut losses = Losses::default();
        assert!(!begins(&mut losses, SsdState::Present, 0));
        assert!(begins(&mut losses, SsdState::Failed, 0), "its drive died");
        assert!(begins(&mut losses, SsdState::Lost, 7), "and now it knows what that had");
        assert!(!begins(&mut losses, SsdState::Lost, 3), "some were written since");
        assert!(begins(&mut losses, SsdState::Lost, 4));
        // It was away.
        losses.take(BTreeMap::new());
        assert!(begins(&mut losses, SsdState::Lost, 4));
        assert!(!begins(&mut Losses::default(), SsdState::Lost, 0), "a disk that has long gone on alone");
    }
}
