//! Keeps reclaim away from chunks that are written and not yet named by a record.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use claystone_chunk::StripeId;

/// The stripes that somebody is writing to now. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claims(Arc<Mutex<BTreeMap<StripeId, usize>>>);

impl Claims {
    pub(crate) fn claim(&self, names: impl IntoIterator<Item = StripeId>) -> Claim {
        let stripes: Vec<StripeId> = names.into_iter().collect();
        let mut claims = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for stripe in &stripes {
            *claims.entry(*stripe).or_insert(0) += 1;
        }
        drop(claims);
        Claim { claims: self.clone(), stripes }
    }

    pub(crate) fn is_claimed(&self, stripe: StripeId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&stripe)
    }
}

/// Somebody is writing chunks with the names of these stripes, or reads them. Hold it until the record is committed or given up.
///
/// Reclaim looks for a claim first and for a record second; so a chunk is either claimed, or committed, or garbage.
#[derive(Debug)]
#[must_use = "dropping the claim before the record is committed lets reclaim delete the chunks"]
pub struct Claim {
    claims: Claims,
    stripes: Vec<StripeId>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claims = self.claims.0.lock().unwrap_or_else(PoisonError::into_inner);
        for stripe in &self.stripes {
            if let Some(count) = claims.get_mut(stripe) {
                *count -= 1;
                if *count == 0 {
                    claims.remove(stripe);
                }
            }
        }
    }
}
