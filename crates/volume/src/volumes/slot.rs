//! A volume as this process has it: closed, open, or on its way from one to the other.
//!
//! ```text
//!              open_in                        it failed: open_in; or close_unused, stop
//!  closed -----------------> open ------------------------------------> closing --> closed
//!    ^  +--- refused <--+
//!    |         |        |
//!    +---------+        error: hold_all
//! ```
//!
//! Each way is gone by one task alone, which has the turn and comes to its end whoever waits for it: a client who goes away
//! must not let go of stripes that a merge left changed in part.
//!
//! Invariants:
//! 1. A stripe that may be changed in part is held: by a merge, by what the open volume kept, or in `held`. It goes from one
//!    to the other under locks and without an await, so no moment is between.
//! 2. Nobody gets a volume that has failed or is closing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use claystone_chunk::{OwnerId, StripeId};
use claystone_env::Task;
use claystone_meta::{MetaError, VolumeRecord};
use claystone_stripe::Hold;

use super::{STRIPES_PAGE, Volumes};
use crate::flusher::flush_in_background;
use crate::open::open;
use crate::{Volume, VolumeError};

/// Stripes that may have been left changed in part: nobody decodes or rebuilds them. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Held(Arc<Mutex<BTreeMap<StripeId, Hold>>>);

impl Held {
    pub(crate) fn has(&self, stripe: StripeId) -> bool {
        self.all().contains_key(&stripe)
    }

    pub(crate) fn put(&self, hold: Hold) {
        self.all().insert(hold.stripe(), hold);
    }

    /// Takes all of them over, and leaves none behind.
    pub(crate) fn append(&self, holds: &mut BTreeMap<StripeId, Hold>) {
        self.all().append(holds);
    }

    /// Lets go of them.
    pub(crate) fn clear(&self) {
        self.all().clear();
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<StripeId, Hold>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A volume of this process.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Had by who changes whether it is open.
    pub(super) turn: tokio::sync::Mutex<()>,
    state: Mutex<SlotState>,
    pub(super) held: Held,
}

#[derive(Debug, Default)]
pub(super) struct SlotState {
    /// Open, failed or closing.
    opened: Option<Opened>,
    is_closing: bool,
    /// Why it did not open when it was to be opened last.
    pub(super) refused: Option<String>,
    /// How often it did not open.
    pub(super) refusals: u64,
    /// Whether every stripe that may be changed in part is held: it was open, or all its stripes are.
    pub(super) is_protected: bool,
}

#[derive(Debug)]
struct Opened {
    volume: Volume,
    flusher: Option<Task>,
}

impl Slot {
    pub(super) fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotState {
    /// The volume, for a new user.
    pub(super) fn working(&self) -> Option<Volume> {
        let opened = self.opened.as_ref().filter(|opened| !self.is_closing && !opened.volume.has_failed());
        opened.map(|opened| opened.volume.clone())
    }

    /// The volume, failed or not, to be looked at.
    pub(super) fn volume(&self) -> Option<&Volume> {
        self.opened.as_ref().map(|opened| &opened.volume)
    }
}

impl Volumes {
    /// Opens a volume in a task of its own. Who comes while another one opens it gets what that one gets. If it does not
    /// open, its stripes are held.
    /// `refusals`: how often it did not open before; who is after one that came since has waited for it.
    pub(super) async fn open_in(
        &self,
        slot: &Arc<Slot>,
        record: VolumeRecord,
        refusals: u64,
    ) -> Result<Volume, VolumeError> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let (volumes, slot) = (self.clone(), slot.clone());
        let task = async move {
            let _turn = slot.turn.lock().await;
            let opened = volumes.open_alone(&slot, &record, refusals).await;
            let must_hold = match &opened {
                Ok(_) | Err(VolumeError::Refused { .. } | VolumeError::Meta(MetaError::NoSuchVolume { .. })) => false,
                Err(_) => true,
            };
            // Nobody may wait any more.
            let _ = sender.send(opened);
            if must_hold {
                volumes.hold_all(&slot, record.id, &record.name).await;
            }
        };
        self.env.tasks.spawn("open volume", Box::pin(task));
        receiver.await.unwrap_or_else(|_| Err(cut_off()))
    }

    /// The caller has the turn.
    async fn open_alone(&self, slot: &Slot, record: &VolumeRecord, refusals: u64) -> Result<Volume, VolumeError> {
        {
            let state = slot.state();
            if let Some(volume) = state.working() {
                return Ok(volume);
            }
            if let Some(reason) = state.refused.clone().filter(|_| state.refusals > refusals) {
                return Err(VolumeError::Refused { name: record.name.clone(), reason });
            }
        }
        // If it failed, its clients see so, and whoever comes now gets a new one.
        self.close(slot, None).await;
        let (meta, stripes) = (self.meta.clone(), self.stripes.clone());
        let opened = open(&self.env, meta, stripes, self.settings.clone(), record, &slot.held).await;
        let mut state = slot.state();
        match opened {
            Ok(volume) => {
                let flusher = Some(flush_in_background(&self.env, &volume));
                state.opened = Some(Opened { volume: volume.clone(), flusher });
                state.refused = None;
                state.is_protected = true;
                Ok(volume)
            }
            Err(error) => {
                state.refused = Some(error.to_string());
                state.refusals += 1;
                Err(error)
            }
        }
    }

    /// Closes a volume that nobody uses. The caller has the turn.
    pub(super) async fn close_unused(&self, slot: &Slot, record: &VolumeRecord) -> Result<(), VolumeError> {
        {
            let mut state = slot.state();
            if state.volume().is_some_and(|volume| volume.users() > 0) {
                return Err(VolumeError::InUse { name: record.name.clone() });
            }
            state.is_closing = true;
        }
        self.close(slot, Some("it is closed")).await;
        Ok(())
    }

    /// Ends what an open volume does, and keeps the stripes that it left changed in part. With a reason it takes nothing from
    /// then on: merges and switches that wait for their turn find it over, and the next opening has the stripes. The caller
    /// has the turn.
    pub(super) async fn close(&self, slot: &Slot, reason: Option<&str>) {
        let (inner, flusher) = {
            let mut state = slot.state();
            state.is_closing = true;
            let opened = state.opened.as_mut();
            opened.map(|opened| (opened.volume.inner.clone(), opened.flusher.take())).unzip()
        };
        if let Some(flusher) = flusher.flatten() {
            flusher.cancel();
            flusher.ended().await;
        }
        // A merge that has begun comes to an end.
        let merging = match &inner {
            Some(inner) => Some(inner.merging.lock().await),
            None => None,
        };
        let mut state = slot.state();
        if let Some(inner) = &inner {
            slot.held.append(&mut inner.kept());
            if let Some(reason) = reason {
                inner.close(reason);
            }
        }
        state.opened = None;
        state.is_closing = false;
        drop(merging);
    }

    /// Of a volume that does not open it is not known which stripes were left changed in part, so all are held, but those
    /// that it shares: nobody changes them in place. The caller has the turn.
    pub(super) async fn hold_all(&self, slot: &Slot, id: OwnerId, volume: &str) {
        let (stripes, is_complete) = self.stripes_of(id, volume).await;
        let mut wanted: Vec<StripeId> = stripes.into_iter().collect();
        // A scrub, a repair or a read of some of them comes to an end.
        for _ in 0..HOLD_TRIES {
            wanted.retain(|stripe| !slot.held.has(*stripe) && self.hold(slot, *stripe).is_none());
            if wanted.is_empty() {
                break;
            }
            self.env.clock.sleep(HOLD_PAUSE).await;
        }
        if is_complete && wanted.is_empty() {
            slot.state().is_protected = true;
        } else {
            tracing::error!(volume, left = wanted.len(), is_complete, "not all stripes of a closed volume are held");
        }
    }

    fn hold(&self, slot: &Slot, stripe: StripeId) -> Option<()> {
        self.stripes.try_alone(stripe).map(|hold| slot.held.put(hold))
    }

    /// The stripes of a volume that it does not share, as far as they can be found out, and whether these are all. One whose
    /// record cannot be read is left out: nobody can repair it either.
    async fn stripes_of(&self, id: OwnerId, volume: &str) -> (BTreeSet<StripeId>, bool) {
        let (mut stripes, mut after, mut limit) = (BTreeSet::new(), None, STRIPES_PAGE);
        let (mut failures, mut damaged) = (0, 0);
        while failures < FAILURES_MAX && damaged < DAMAGED_MAX {
            match self.own_stripes(id, after, limit).await {
                Ok(None) => return (stripes, true),
                Ok(Some((last, own))) => {
                    stripes.extend(own);
                    after = Some(last);
                }
                // Those before it are listed one by one, then it is left out.
                Err(MetaError::Corrupt { .. }) if limit > 1 => limit = 1,
                Err(MetaError::Corrupt { .. }) => {
                    after = Some(after.map_or(0, |after| after + 1));
                    limit = STRIPES_PAGE;
                    damaged += 1;
                }
                Err(error) => {
                    tracing::warn!(volume, %error, "the stripes of a volume cannot be listed now");
                    failures += 1;
                    self.env.clock.sleep(HOLD_PAUSE).await;
                }
            }
        }
        (stripes, false)
    }

    /// The last position of some that follow `after`, and the stripes there that the volume has alone. `None`: there are no
    /// more.
    async fn own_stripes(
        &self,
        volume: OwnerId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<Option<(u64, Vec<StripeId>)>, MetaError> {
        let page = self.meta.volume_stripes(volume, after, limit).await?;
        let Some((last, _)) = page.last() else { return Ok(None) };
        let last = *last;
        let mut ids: Vec<StripeId> = page.into_iter().map(|(_, stripe)| stripe.id).collect();
        let shared = self.meta.shared(&ids).await?;
        ids.retain(|id| shared.binary_search(id).is_err());
        Ok(Some((last, ids)))
    }
}

/// Whoever opened, closed or deleted a volume did not come to an end.
pub(super) fn cut_off() -> VolumeError {
    crate::BlocksError::Failed { reason: "it was cut off".to_owned() }.into()
}

const HOLD_TRIES: usize = 600;
const HOLD_PAUSE: Duration = Duration::from_millis(100);
/// Of listing a volume's stripes.
const FAILURES_MAX: usize = 50;
/// Positions in a row, or not, of which nothing can be read.
const DAMAGED_MAX: usize = 1000;
