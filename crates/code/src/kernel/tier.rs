//! Which instruction set the kernels run with.
//!
//! Invariants:
//! 1. What this machine has is detected once and never changes.
//! 2. Which tier codes are built with is decided once, by [`Tier::force`] or by the first code that is built.

use std::{fmt, str::FromStr, sync::OnceLock};

use thiserror::Error;

/// An instruction set to run the kernels with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// Table look-ups; runs everywhere and is the oracle of the others.
    Scalar,
    /// NEON, products by two look-ups of 16 bytes.
    Neon,
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

    /// The tier that codes are built with: the forced one, else the fastest. From the first call on it stays as it is.
    pub fn chosen() -> Self {
        *CHOSEN.get_or_init(Self::best)
    }

    /// Builds all codes of this process with this tier, whatever faster ones there are. A program calls it once, before
    /// it builds a code.
    ///
    /// # Errors
    /// [`ForceError::Unavailable`] if this machine lacks it, [`ForceError::TooLate`] if another one is in use.
    pub fn force(self) -> Result<(), ForceError> {
        if !Self::available().contains(&self) {
            return Err(ForceError::Unavailable { tier: self });
        }
        match *CHOSEN.get_or_init(|| self) {
            chosen if chosen == self => Ok(()),
            chosen => Err(ForceError::TooLate { tier: self, chosen }),
        }
    }
}

/// What [`Tier::chosen`] says, once decided.
static CHOSEN: OnceLock<Tier> = OnceLock::new();

impl Tier {
    const ALL: [Self; 5] = [Self::Scalar, Self::Neon, Self::Avx2, Self::Avx2Gfni, Self::Avx512Gfni];

    fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Neon => "neon",
            Self::Avx2 => "avx2",
            Self::Avx2Gfni => "avx2-gfni",
            Self::Avx512Gfni => "avx512-gfni",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("unknown instruction set: expected scalar, neon, avx2, avx2-gfni or avx512-gfni")]
pub struct UnknownTier;

impl FromStr for Tier {
    type Err = UnknownTier;

    /// Of any architecture; whether this machine has it, [`Tier::available`] says.
    fn from_str(text: &str) -> Result<Self, UnknownTier> {
        Self::ALL.into_iter().find(|tier| tier.name() == text).ok_or(UnknownTier)
    }
}

/// Why a tier is not forced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ForceError {
    /// This machine lacks it.
    #[error("this machine has not got {tier}, it has {}", Listed(Tier::available()))]
    Unavailable {
        /// The tier asked for.
        tier: Tier,
    },
    /// Codes are built with another one already.
    #[error("{tier} comes too late, codes are built with {chosen} already")]
    TooLate {
        /// The tier asked for.
        tier: Tier,
        /// The tier in use.
        chosen: Tier,
    },
}

/// Tiers with commas between them.
struct Listed<'a>(&'a [Tier]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, tier) in self.0.iter().enumerate() {
            write!(f, "{}{tier}", if at > 0 { ", " } else { "" })?;
        }
        Ok(())
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

#[cfg(target_arch = "aarch64")]
fn detect() -> Vec<Tier> {
    let mut tiers = vec![Tier::Scalar];
    if std::arch::is_aarch64_feature_detected!("neon") {
        tiers.push(Tier::Neon);
    }
    tiers
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn detect() -> Vec<Tier> {
    vec![Tier::Scalar]
}

#[cfg(test)]
mod tests {
    use super::{Tier, UnknownTier};

    #[test]
    fn names_read_back() {
        for tier in Tier::ALL {
            assert_eq!(tier.to_string().parse(), Ok(tier));
        }
        assert_eq!("sse2".parse::<Tier>(), Err(UnknownTier));
    }
}
