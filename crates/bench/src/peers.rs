//! Other libraries as contenders, in the same rounds.
//!
//! | peer | comes from | takes part if |
//! |---|---|---|
//! | tape-reed-solomon, rusty_erasure, reed-solomon-simd, clay-codes | crates | always |
//! | ISA-L | `libisal.so.2` of the system, or the file that `CLAYSTONE_ISAL` names | it can be loaded |
//! | klauspost/reedsolomon | Go's modules, through the program in bench/peers/klauspost | `go` is on PATH |
//!
//! Debian 12 has ISA-L 2.30, which knows no GFNI and is a third as fast as 2.31 and later: its name says so. Goals are set against
//! 2.32 or later with GFNI.
//!
//! Invariants:
//! 1. Peers are compiled with the feature `peers` only.
//! 2. A peer is used as its documentation says for speed: what it can prepare once per code or pattern is prepared.
//! 3. All peers have one thread.

use thiserror::Error;

use crate::contender::{Contender, Role};
use crate::plan::Plan;

#[cfg(feature = "peers")]
mod crates;
#[cfg(feature = "peers")]
mod isal;
#[cfg(feature = "peers")]
mod klauspost;

/// What ISA-L's name begins with.
pub(crate) const ISAL: &str = "isa-l";
/// What it ends with where it has no kernels for GFNI.
const WITHOUT_GFNI: &str = " without GFNI";
/// What klauspost/reedsolomon's name begins with.
const KLAUSPOST: &str = "klauspost";

/// The peers of a run.
#[derive(Debug, Default)]
pub struct Peers {
    #[cfg(feature = "peers")]
    found: Option<Found>,
    absent: Vec<String>,
}

#[cfg(feature = "peers")]
#[derive(Debug)]
struct Found {
    isal: Option<isal::Isal>,
    klauspost: Option<klauspost::Klauspost>,
}

/// Why there are no peers.
#[derive(Debug, Error)]
pub enum PeersError {
    /// The feature is off.
    #[error(
        "this build has no peers in it; run `cargo run --release -p claystone --features peers -- bench codes --peers`"
    )]
    NotBuilt,
}

impl Peers {
    /// No peers: ours alone.
    pub fn none() -> Self {
        Self::default()
    }

    /// All peers that this machine has.
    ///
    /// # Errors
    /// This build has none.
    pub fn find() -> Result<Self, PeersError> {
        #[cfg(feature = "peers")]
        {
            let mut absent = Vec::new();
            let isal = isal::Isal::load().map_err(|reason| absent.push(format!("{ISAL}: {reason}"))).ok();
            let klauspost = klauspost::Klauspost::start();
            let klauspost = klauspost.map_err(|reason| absent.push(format!("klauspost: {reason}"))).ok();
            Ok(Self { found: Some(Found { isal, klauspost }), absent })
        }
        #[cfg(not(feature = "peers"))]
        Err(PeersError::NotBuilt)
    }

    /// Names with versions.
    pub fn names(&self) -> Vec<String> {
        #[cfg(feature = "peers")]
        if let Some(Found { isal, klauspost }) = &self.found {
            let mut names = crates::NAMES.map(str::to_owned).to_vec();
            names.extend(isal.iter().map(|isal| isal.name().to_owned()));
            names.extend(klauspost.iter().map(|klauspost| klauspost.name().to_owned()));
            return names;
        }
        Vec::new()
    }

    /// Peers that this machine has not, and why.
    pub fn absent(&self) -> &[String] {
        &self.absent
    }

    /// Whether those that Reed-Solomon's goals are set against are all here: ISA-L 2.32 or later with GFNI, and klauspost.
    pub fn is_complete(&self) -> bool {
        let names = self.names();
        names.iter().any(|name| is_isal_of_goals(name)) && names.iter().any(|name| name.starts_with(KLAUSPOST))
    }

    /// Those that can do what the plan says.
    #[cfg_attr(not(feature = "peers"), expect(unused_variables, reason = "there are no peers in this build"))]
    pub(crate) fn contenders<'a>(&'a self, plan: &Plan) -> Vec<Contender<'a>> {
        #[cfg(feature = "peers")]
        if let Some(Found { klauspost, .. }) = &self.found {
            let mut contenders = crates::contenders(plan);
            contenders.extend(self.isal(plan, &Role::Peer));
            contenders.extend(klauspost.iter().flat_map(|klauspost| klauspost.contenders(plan)));
            return contenders;
        }
        Vec::new()
    }

    /// ISA-L, if it is there and can do what the plan says.
    #[cfg_attr(not(feature = "peers"), expect(unused_variables, reason = "there are no peers in this build"))]
    pub(crate) fn isal<'a>(&'a self, plan: &Plan, role: &Role) -> Option<Contender<'a>> {
        #[cfg(feature = "peers")]
        return self.found.as_ref()?.isal.as_ref()?.contender(plan, role.clone());
        #[cfg(not(feature = "peers"))]
        None
    }
}

/// Whether the name is of an ISA-L that goals are set against. Libraries before 2.32 do not say their version and are named by their
/// file.
fn is_isal_of_goals(name: &str) -> bool {
    let Some(version) = name.strip_prefix(ISAL).filter(|version| !version.ends_with(WITHOUT_GFNI)) else {
        return false;
    };
    let mut numbers = version.trim().split('.').map_while(|number| number.parse::<u32>().ok());
    numbers.next().zip(numbers.next()).is_some_and(|version| version >= ISAL_LEAST)
}

const ISAL_LEAST: (u32, u32) = (2, 32);

#[cfg(test)]
mod tests {
    use super::is_isal_of_goals;

    #[test]
    fn goals_are_set_against_isal_2_32_or_later_with_gfni() {
        for name in ["isa-l 2.32.0", "isa-l 2.32.1", "isa-l 2.40", "isa-l 3.0.0"] {
            assert!(is_isal_of_goals(name), "{name}");
        }
        for name in [
            "isa-l 2.31.1",
            "isa-l 2.32.1 without GFNI",
            "isa-l libisal.so.2.0.30 without GFNI",
            "isa-l libisal.so.2.0.31",
            "isa-l of unknown version",
            "klauspost 2.32.0",
        ] {
            assert!(!is_isal_of_goals(name), "{name}");
        }
    }

    #[test]
    #[cfg(not(feature = "peers"))]
    fn a_build_without_peers_says_how_to_get_them() {
        let text = super::Peers::find().expect_err("the feature is off").to_string();
        assert!(text.contains("--features peers"), "{text}");
    }
}
