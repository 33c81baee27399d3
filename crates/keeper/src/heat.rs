//! Keeps the heat of stripes over restarts: what was counted in memory is written every few minutes, in one transaction.
//!
//! Invariants:
//! 1. Nothing is decided by heat before what the records know of it was read.
//! 2. A transaction takes at most [`WRITTEN_MAX`] stripes, so that no other one waits long; all that was counted is written,
//!    in as many of them as it takes.

use claystone_chunk::StripeId;

use crate::keeper::PAGE;
use crate::{Keeper, KeeperError};

impl Keeper {
    /// Reads what the records know of heat, once.
    ///
    /// # Errors
    /// The metadata store failed.
    pub async fn load_heats(&self) -> Result<(), KeeperError> {
        let mut loaded = self.inner.heats_loaded.lock().await;
        if *loaded {
            return Ok(());
        }
        let mut after: Option<StripeId> = None;
        loop {
            let page = self.inner.meta.heats(after, PAGE).await?;
            self.inner.stripes.heats().load(&page, self.inner.env.clock.wall());
            let Some(last) = page.last().filter(|_| page.len() == PAGE) else { break };
            after = Some(last.stripe);
        }
        *loaded = true;
        Ok(())
    }

    /// Writes what was counted since the last time. Returns of how many stripes.
    ///
    /// # Errors
    /// The metadata store failed; what was counted is written the next time.
    pub async fn write_heats(&self) -> Result<usize, KeeperError> {
        self.load_heats().await?;
        let heats = self.inner.stripes.heats();
        let mut written = 0;
        loop {
            let records = heats.take_unwritten(self.inner.env.clock.wall(), WRITTEN_MAX);
            if records.is_empty() {
                return Ok(written);
            }
            match self.inner.meta.put_heats(records.clone()).await {
                Ok(dead) => heats.forget(&dead),
                Err(error) => {
                    heats.put_back(&records);
                    return Err(error.into());
                }
            }
            written += records.len();
            if records.len() < WRITTEN_MAX {
                return Ok(written);
            }
        }
    }
}

/// A tenth of a second of the metadata's writer.
const WRITTEN_MAX: usize = 16_384;
