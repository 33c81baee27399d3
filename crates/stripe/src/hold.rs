//! Who counts on a stripe's chunks belonging together, and who changes them in place.
//!
//! Parity is patched chunk by chunk (crate `volume`), so for a while a stripe's chunks do not form a codeword. Whoever
//! decodes shares the stripe; whoever patches has it alone. A plain read of a chunk needs neither: each of its sectors is
//! old or new.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use claystone_chunk::StripeId;
use tokio::sync::Notify;

/// The stripes that are held now. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Holds(Arc<Table>);

#[derive(Debug, Default)]
struct Table {
    held: Mutex<BTreeMap<StripeId, Held>>,
    /// Somebody had a stripe alone and is done.
    free: Notify,
}

#[derive(Debug)]
enum Held {
    Alone,
    Shared(usize),
}

/// A stripe's chunks stay a codeword, or change in the hands of who holds this only.
#[derive(Debug)]
#[must_use = "dropping it lets others change the stripe"]
pub struct Hold {
    table: Arc<Table>,
    stripe: StripeId,
}

impl Hold {
    /// Of which stripe.
    pub fn stripe(&self) -> StripeId {
        self.stripe
    }
}

impl Holds {
    /// Waits until nobody has the stripe alone, and keeps it so.
    pub(crate) async fn share(&self, stripe: StripeId) -> Hold {
        loop {
            let free = self.0.free.notified();
            let mut free = std::pin::pin!(free);
            // Whoever lets go after the look below wakes this.
            free.as_mut().enable();
            match self.0.held().entry(stripe).or_insert(Held::Shared(0)) {
                Held::Shared(count) => {
                    *count += 1;
                    return Hold { table: self.0.clone(), stripe };
                }
                Held::Alone => {}
            }
            free.await;
        }
    }

    /// The stripe alone, unless somebody holds it now.
    pub(crate) fn try_alone(&self, stripe: StripeId) -> Option<Hold> {
        let mut held = self.0.held();
        if held.contains_key(&stripe) {
            return None;
        }
        held.insert(stripe, Held::Alone);
        Some(Hold { table: self.0.clone(), stripe })
    }
}

impl Table {
    fn held(&self) -> MutexGuard<'_, BTreeMap<StripeId, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.table.held();
        let over = match held.get_mut(&self.stripe) {
            Some(Held::Shared(count)) => {
                *count -= 1;
                *count == 0
            }
            Some(Held::Alone) => {
                self.table.free.notify_waiters();
                true
            }
            None => unreachable!("a hold is in the table until it is dropped"),
        };
        if over {
            held.remove(&self.stripe);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn one_alone_or_any_number_share() {
        let holds = Holds::default();
        let (a, b) = (StripeId(1), StripeId(2));
        let shared = (holds.share(a).await, holds.share(a).await);
        assert!(holds.try_alone(a).is_none());
        let alone = holds.try_alone(b).expect("nobody holds it");
        assert!(holds.try_alone(b).is_none());
        let mut waiting = Box::pin(holds.share(b));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(alone);
        let waited = waiting.await;
        drop(shared.0);
        assert!(holds.try_alone(a).is_none());
        drop((shared.1, waited));
        assert!(holds.try_alone(a).is_some() && holds.try_alone(b).is_some());
        assert!(holds.0.held().is_empty());
    }
}
