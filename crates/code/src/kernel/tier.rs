//! Which instruction set the kernels run with.
//!
//! Invariants:
//! 1. What this machine has is detected once and never changes.

use std::sync::OnceLock;

/// An instruction set to run the kernels with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Table look-ups; runs everywhere and is the oracle of the others.
    Scalar,
    /// AVX2, products by two nibble shuffles.
    Avx2,
    /// AVX2 with GFNI: a product is one instruction.
    Avx2Gfni,
    /// AVX-512 (F, BW) with GFNI, 64 bytes at once.
    Avx512Gfni,
}

impl Tier {
    /// The tiers that this machine has, slowest first; never empty.
    pub fn available() -> &'static [Self] {
        static AVAILABLE: OnceLock<Vec<Tier>> = OnceLock::new();
        AVAILABLE.get_or_init(detect)
    }

    /// The fastest tier that this machine has.
    pub fn best() -> Self {
        *Self::available().last().expect("scalar is always available")
    }
}

#[cfg(target_arch = "x86_64")]
fn detect() -> Vec<Tier> {
    let mut tiers = vec![Tier::Scalar];
    if is_x86_feature_detected!("avx2") {
        tiers.push(Tier::Avx2);
        if is_x86_feature_detected!("gfni") {
            tiers.push(Tier::Avx2Gfni);
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
                tiers.push(Tier::Avx512Gfni);
            }
        }
    }
    tiers
}

#[cfg(not(target_arch = "x86_64"))]
fn detect() -> Vec<Tier> {
    vec![Tier::Scalar]
}
