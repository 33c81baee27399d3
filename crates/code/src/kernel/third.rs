//! What the third cache of this machine is to one of its cores.
//!
//! Invariants:
//! 1. It is detected once and never changes, and no byte of a result depends on it.

use std::sync::OnceLock;

/// The third cache, as one core meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Third {
    /// One for a whole socket, a fifth as quick as the second cache and slower to write: what does not fit the second cache is
    /// written past it. The processors of Intel, and all that nobody measured.
    Far,
    /// One for a few cores, almost as quick as the second, of so many bytes: what fits it is written as ever. Those of AMD.
    Near {
        /// Its size.
        bytes: usize,
        /// Whether the cores outrun what the machine fetches by itself, as those of AMD do since Zen 5.
        is_outrun: bool,
    },
}

impl Third {
    /// That of this machine.
    pub(super) fn here() -> Self {
        static HERE: OnceLock<Third> = OnceLock::new();
        *HERE.get_or_init(detect)
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn detect() -> Third {
    let cpu = raw_cpuid::CpuId::new();
    let is_near = cpu.get_vendor_info().is_some_and(|vendor| NEAR.contains(&vendor.as_str()));
    let size = |cache: raw_cpuid::CacheParameter| {
        cache.associativity() * cache.physical_line_partitions() * cache.coherency_line_size() * cache.sets()
    };
    let mut caches = cpu.get_cache_parameters().into_iter().flatten();
    let third = caches.find(|cache| is_near && cache.level() == 3);
    let is_outrun = cpu.get_feature_info().is_some_and(|info| info.family_id() >= ZEN_5);
    third.map_or(Third::Far, |cache| Third::Near { bytes: size(cache), is_outrun })
}

/// The family of AMD's cores from Zen 5 on. Hygon's have lower numbers.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const ZEN_5: u8 = 0x1A;

/// Vendors whose third caches are near: Hygon builds cores of AMD's.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const NEAR: [&str; 2] = ["AuthenticAMD", "HygonGenuine"];

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn detect() -> Third {
    Third::Far
}
