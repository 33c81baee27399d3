//! What there is to serve, as whoever starts the server knows it.

use std::sync::Arc;

use async_trait::async_trait;
use claystone_volume::Blocks;

/// An export in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name; up to 4096 bytes.
    pub name: String,
    /// What it is, for people. May be empty.
    pub description: String,
}

/// An export that a client asked for.
#[derive(Debug, Clone)]
pub struct Export {
    /// Its own name, where the client asked by another.
    pub listed: Listed,
    /// The device. Dropped when no connection uses it any more.
    pub blocks: Arc<dyn Blocks>,
}

/// Why a client gets no export.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoExport {
    /// There is none of this name.
    #[error("there is no such export")]
    Missing,
    /// There is one, and it cannot be used now.
    #[error("{reason}")]
    Refused {
        /// Why not: the client is told.
        reason: String,
    },
}

/// The exports. Calls may come from many tasks at once.
#[async_trait]
pub trait Exports: Send + Sync + 'static {
    /// All that clients may know of, in the order to show them.
    async fn list(&self) -> Vec<Listed>;

    /// The export of this name; the empty name asks for the one that needs no name. Clients that only ask how large it is
    /// come here too, so this takes nothing away from who uses it already.
    ///
    /// # Errors
    /// All of [`NoExport`].
    async fn open(&self, name: &str) -> Result<Export, NoExport>;
}
