//! What can go wrong with upkeep as a whole.
//!
//! A stripe that cannot be mended is no error of upkeep: it is in the status, and is tried again later.

use claystone_meta::MetaError;

/// Why a step of upkeep could not be taken.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// The metadata store failed; nothing is decided without it.
    #[error("upkeep waits for the metadata store")]
    Meta(#[from] MetaError),
}
