//! Rebuilds lost chunks of a stripe from the others.

use async_trait::async_trait;
use claystone_meta::Swap;

use crate::Claim;

/// Lets background work wait its turn. Called before each step with the bytes it is about to read and write.
#[async_trait]
pub trait Pace: Send + Sync {
    /// Waits until the step may go on.
    async fn admit(&self, bytes: u64);
}

/// No waiting.
#[derive(Debug, Clone, Copy)]
pub struct Unpaced;

#[async_trait]
impl Pace for Unpaced {
    async fn admit(&self, _bytes: u64) {}
}

/// Chunks rebuilt on their new disks, synced and read back, not yet named.
#[derive(Debug)]
pub struct Rebuilt {
    /// The change of the record to commit.
    pub swap: Swap,
    /// Hold it until the swap is committed.
    pub claim: Claim,
    /// Bytes of the chunks that were rebuilt.
    pub bytes_rebuilt: u64,
    /// Bytes read from other chunks to rebuild them, whole sectors.
    pub bytes_read: u64,
    /// Bytes read back to verify the new chunks.
    pub bytes_verified: u64,
}
