//! Other libraries as contenders, for a comparison in the same rounds.
//!
//! | peer | comes from | runs if |
//! |---|---|---|
//! | tape-reed-solomon, rusty_erasure, reed-solomon-simd, clay-codes | crates, at the versions of `Cargo.toml` | always |
//!
//! Invariants:
//! 1. Peers are compiled with the feature `peers` only.
//! 2. A peer is used as its documentation says for speed: what it can prepare once per code or pattern is prepared.

use thiserror::Error;

use crate::arena::Layout;
use crate::contender::Contender;
use crate::plan::Plan;

#[cfg(feature = "peers")]
mod crates;

/// The peers of a run.
#[derive(Debug)]
pub struct Peers {
    names: Vec<String>,
}

/// Why there are no peers.
#[derive(Debug, Error)]
pub enum PeersError {
    /// The feature is off.
    #[error(
        "this build has no peers: build it with `cargo build --release -p claystone --features peers`, \
         or run `cargo run --release -p claystone --features peers -- bench codes --peers`"
    )]
    NotBuilt,
}

impl Peers {
    /// No peers: ours alone.
    pub fn none() -> Self {
        Self { names: Vec::new() }
    }

    /// All peers that this machine has.
    ///
    /// # Errors
    /// This build has none.
    pub fn find() -> Result<Self, PeersError> {
        #[cfg(feature = "peers")]
        return Ok(Self { names: crates::NAMES.map(str::to_owned).into() });
        #[cfg(not(feature = "peers"))]
        Err(PeersError::NotBuilt)
    }

    /// Names with versions.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Those that can do what the plan says.
    #[cfg_attr(not(feature = "peers"), expect(unused_variables, reason = "there are no peers in this build"))]
    pub(crate) fn contenders<'a>(&'a self, plan: &Plan, layout: &Layout) -> Vec<Contender<'a>> {
        #[cfg(feature = "peers")]
        if !self.names.is_empty() {
            return crates::contenders(plan, layout);
        }
        Vec::new()
    }
}
