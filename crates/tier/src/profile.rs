//! What is known of one drive's write buffer, as it is kept in a file.
//!
//! Invariants:
//! 1. A checked profile has ascending lengths, a fast and a middle stage that take at least one of the longest measured
//!    writes for certain, and slow writes that are told from others.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::latency::{self, SizeLatency, WriteState};
use crate::stage::StageBytes;

/// A drive's write buffer: how much it takes, and how long that takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`FORMAT_VERSION`].
    pub version: u32,
    /// The drive, as a person knows it.
    pub device: String,
    /// Bytes from a sync to the first slow write.
    pub fast: StageBytes,
    /// Bytes between two slow stages.
    pub mid: StageBytes,
    /// Bytes written while slow.
    pub slow: StageBytes,
    /// Times by length of write, ascending.
    pub sizes: Vec<SizeLatency>,
}

/// Why a profile cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Of another program.
    #[error("the profile is of version {version}, this program knows {FORMAT_VERSION}")]
    Version {
        /// The file's.
        version: u32,
    },
    /// Lengths of writes must be whole sectors, ascending, at least one.
    #[error("the profile's lengths of writes are not whole sectors in ascending order")]
    Sizes,
    /// A slow write must take longer than any other.
    #[error("the profile does not tell slow writes of {bytes} bytes from others")]
    Latencies {
        /// Which length.
        bytes: u64,
    },
    /// A stage takes nothing for certain.
    #[error("the profile's {stage} stage takes no write for certain: its lengths vary too much")]
    Stage {
        /// Which.
        stage: &'static str,
    },
}

impl Profile {
    /// Whether it can be used.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), ProfileError> {
        if self.version != FORMAT_VERSION {
            return Err(ProfileError::Version { version: self.version });
        }
        let whole =
            |size: &SizeLatency| size.bytes > 0 && size.bytes.is_multiple_of(claystone_env::SECTOR_BYTES as u64);
        let ascending = self.sizes.windows(2).all(|pair| pair[0].bytes < pair[1].bytes);
        let Some(longest) = self.sizes.last().filter(|_| ascending && self.sizes.iter().all(whole)) else {
            return Err(ProfileError::Sizes);
        };
        for size in &self.sizes {
            let quick = size.fast_ns.max(size.mid_ns);
            if !(quick < size.slow_from_ns && size.slow_from_ns <= size.slow_ns) {
                return Err(ProfileError::Latencies { bytes: size.bytes });
            }
        }
        for (stage, bytes) in [("fast", &self.fast), ("middle", &self.mid)] {
            if bytes.limit() < longest.bytes {
                return Err(ProfileError::Stage { stage });
            }
        }
        Ok(())
    }

    /// The mean time of a write.
    ///
    /// # Panics
    /// If no length was measured, which [`Profile::check`] excludes.
    pub fn latency(&self, state: WriteState, bytes: u64) -> Duration {
        latency::latency(&self.sizes, state, bytes)
    }

    /// Whether a write that took so long met a full buffer.
    ///
    /// # Panics
    /// As [`Profile::latency`].
    pub fn is_slow(&self, bytes: u64, took: Duration) -> bool {
        took >= latency::slow_from(&self.sizes, bytes)
    }
}

/// Of the file.
pub const FORMAT_VERSION: u32 = 1;

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A drive that takes 16 MiB after a sync, 8 MiB between slow writes; all within 5 %.
    pub fn profile() -> Profile {
        let stage = |mean: u64| StageBytes { mean, deviation: mean / 40, least: mean - mean / 20, seen: 20 };
        let us = |bytes: u64, fast: u64, mid: u64| SizeLatency {
            bytes,
            fast_ns: fast * 1000,
            mid_ns: mid * 1000,
            slow_ns: 12_000_000,
            slow_from_ns: 2_000_000,
        };
        Profile {
            version: FORMAT_VERSION,
            device: "a drive".to_owned(),
            fast: stage(16 << 20),
            mid: stage(8 << 20),
            slow: StageBytes { mean: 65536, deviation: 0, least: 65536, seen: 20 },
            sizes: vec![us(4096, 35, 55), us(16384, 66, 104), us(65536, 180, 283)],
        }
    }

    #[test]
    fn a_profile_that_says_too_little_is_refused() {
        assert_eq!(profile().check(), Ok(()));
        let broken = |change: &dyn Fn(&mut Profile)| {
            let mut profile = profile();
            change(&mut profile);
            profile.check().expect_err("broken")
        };
        assert_eq!(broken(&|profile| profile.version = 2), ProfileError::Version { version: 2 });
        assert_eq!(broken(&|profile| profile.sizes.clear()), ProfileError::Sizes);
        assert_eq!(broken(&|profile| profile.sizes.reverse()), ProfileError::Sizes);
        assert_eq!(broken(&|profile| profile.sizes[0].bytes = 100), ProfileError::Sizes);
        let slow = broken(&|profile| profile.sizes[1].slow_from_ns = 104_000);
        assert_eq!(slow, ProfileError::Latencies { bytes: 16384 });
        let short = broken(&|profile| profile.mid.deviation = 4 << 20);
        assert_eq!(short, ProfileError::Stage { stage: "middle" });
    }
}
