//! How a pass touches memory: a choice by the bytes that a whole sum touches, which changes no byte of the result.
//!
//! | bytes touched | manner |
//! |---|---|
//! | fit the first cache | plainly |
//! | do not, but fit the second easily | targets are claimed one column ahead if there are many, since a store that misses the first cache waits |
//! | nearly fill it | sources are fetched ahead of their use |
//! | a little more | targets are streamed past the caches, so they evict no source |
//! | much more | both: the sources come from far away, and reading a target before it is overwritten would cost a third of the memory's speed |
//!
//! Invariants:
//! 1. Targets are streamed only if all of them share their place within a line.
//! 2. Targets that are added to are never streamed: they have to be read anyway.

/// How a pass touches memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Manner {
    /// Targets are written past the caches.
    pub(super) streamed: bool,
    /// How many bytes ahead of their use sources are brought to the first cache; 0 leaves it to the machine.
    pub(super) ahead: usize,
    /// How many bytes ahead of their use targets are brought to the first cache; 0 leaves it to the machine.
    pub(super) claimed: usize,
}

impl Manner {
    /// For new sums of so many sources into these targets, of so many bytes each.
    pub(super) fn of(sources: usize, targets: &[&mut [u8]], bytes: usize) -> Self {
        let touched = (sources + targets.len()).saturating_mul(bytes);
        if touched > L2_BYTES {
            let place = |target: &&mut [u8]| target.as_ptr().addr() % LINE_BYTES;
            let streamed = targets.iter().map(place).all(|at| at == place(&targets[0]));
            return Self { streamed, ahead: if touched > FAR_BYTES { FAR_AHEAD } else { 0 }, claimed: 0 };
        }
        let many_targets = 2 * targets.len() >= sources;
        // The machine needs some lines of a source to see where it goes on: of short ones there are too few.
        let nearly_full = if bytes <= SHORT_BYTES { L2_BYTES / 2 } else { L2_BYTES / 4 * 3 };
        Self {
            streamed: false,
            ahead: if touched > nearly_full && !many_targets { NEAR_AHEAD } else { 0 },
            claimed: if many_targets && (L1_BYTES..=L2_BYTES / 4).contains(&touched) { CLAIMED_AHEAD } else { 0 },
        }
    }
}

/// The first cache of that machine.
const L1_BYTES: usize = 48 << 10;

const LINE_BYTES: usize = 64;

/// The second cache of the machine these choices were measured on. Elsewhere it is 1 to 2 MiB; in between, streaming
/// and not streaming differ little.
const L2_BYTES: usize = 2 << 20;

/// From here on, fetching ahead beats the machine's own prefetch in spite of its instructions.
const FAR_BYTES: usize = 4 << 20;

const SHORT_BYTES: usize = 16 << 10;

const FAR_AHEAD: usize = 256;
const NEAR_AHEAD: usize = 512;
const CLAIMED_AHEAD: usize = 256;

#[cfg(test)]
mod tests {
    use super::{L2_BYTES, Manner};

    #[test]
    fn only_what_leaves_the_second_cache_is_streamed() {
        let mut buffers = vec![vec![0u8; L2_BYTES / 8 + 64]; 2];
        let [a, b] = &mut buffers[..] else { unreachable!("two buffers") };
        let (first, second) = (a.as_ptr().align_offset(64), b.as_ptr().align_offset(64));
        let streamed = |sources, bytes, targets: [&mut [u8]; 2]| Manner::of(sources, &targets, bytes).streamed;
        let bytes = L2_BYTES / 8;
        assert!(!streamed(6, bytes, [&mut a[first..], &mut b[second..]]));
        assert!(streamed(7, bytes, [&mut a[first..], &mut b[second..]]));
        let aside = if second == 0 { 1 } else { second - 1 };
        assert!(!streamed(7, bytes, [&mut a[first..], &mut b[aside..]]), "targets that lie differently within a line");
    }
}
