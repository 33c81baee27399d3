//! How a pass touches memory: a choice by the bytes that a whole sum touches, which changes no byte of the result.
//!
//! Where the third cache is far (a Xeon of 48 KiB and 2 MiB of first and second cache):
//!
//! | bytes touched | manner |
//! |---|---|
//! | fit the first cache | plainly |
//! | do not, but fit the second easily | targets are claimed one column ahead if there are many, since a store that misses the first cache waits |
//! | nearly fill it | sources are fetched ahead of their use |
//! | a little more | targets are streamed past the caches, so they evict no source |
//! | much more | both: the sources come from far away, and reading a target before it is overwritten would cost a third of the memory's speed |
//!
//! Where it is near (an EPYC of Zen 4, 32 KiB, 1 MiB and 32 MiB): streaming what fits it takes two to three times as long.
//!
//! | bytes touched | manner |
//! |---|---|
//! | fit the first cache | plainly |
//! | do not | one or two targets are claimed ahead if there are few sources |
//! | more than fits the second cache easily | sources are fetched ahead |
//! | half of the third (three eighths with up to ten sources) | targets are streamed, nothing is fetched |
//! | the same, but more than twelve sources for one pass | a few sources at a time, each for a long strip, into targets in the second cache: of more at once the machine loses track |
//!
//! Where it is near and outrun (an EPYC of Zen 5, 48 KiB, 1 MiB and 32 MiB), streaming what fits it takes up to twice as long:
//!
//! | bytes touched | manner |
//! |---|---|
//! | fit the first cache | plainly |
//! | do not | sources are fetched ahead if there are more than seven: of fewer the machine keeps track |
//! | more than the third | the same; targets of up to seven sources are streamed |
//!
//! The runs of a program (Clay) and the groups of a long code are kinds of their own: [`Ahead`], [`chunks_ahead`].
//!
//! Invariants:
//! 1. Targets are streamed only if all of them share their place within a line.
//! 2. Targets that are added to are never streamed: they have to be read anyway.

use super::{STRIP_BYTES, TERMS_MAX, third::Third};

/// How a pass touches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Manner {
    /// Targets are written past the caches.
    pub(super) streamed: bool,
    /// How many bytes ahead of their use sources are brought to the first cache; 0 leaves it to the machine.
    pub(super) ahead: usize,
    /// How many bytes ahead of their use targets are brought to the first cache; 0 leaves it to the machine.
    pub(super) claimed: usize,
    /// How many sources a pass reads at most; the rest is added to what these have made.
    pub(super) together: usize,
    /// How many bytes of each buffer are summed before the next ones, where several passes share sources or targets.
    pub(super) strip: usize,
}

/// New sums: so many sources of so many bytes, which one pass reads, or several.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) sources: usize,
    pub(super) bytes: usize,
    pub(super) is_shared: bool,
}

/// How many chunks ahead of their use the sources of a long code of so many levels are brought to the second cache; 0 leaves it to
/// the machine. The sources are so many bytes together.
pub(super) fn chunks_ahead(third: Third, sources: usize, levels: u32) -> usize {
    match third {
        // With few levels the machine keeps up: `rs:1019+4` encodes 4 KiB at 55 GB/s, and at 46 with anything fetched. Of chunks a
        // power of two apart 32 would be more than a set of the second cache holds.
        Third::Near { is_outrun: false, .. } if levels <= 3 && !leaves_caches(sources) => 0,
        Third::Near { is_outrun: false, .. } => 8,
        Third::Near { is_outrun: true, .. } | Third::Far => 32,
    }
}

/// Whether sources of so many bytes come from memory.
pub(super) fn leaves_caches(sources: usize) -> bool {
    sources > LARGE_BYTES
}

/// How far ahead of their use the sources of a program's run are brought to the second cache, in bytes; 0 leaves it to the
/// machine.
#[cfg(any(target_arch = "x86_64", test))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ahead {
    /// Chunks by themselves.
    pub(super) near: usize,
    /// Their companions, most of which were read as chunks by themselves a short time ago.
    pub(super) far: usize,
}

#[cfg(any(target_arch = "x86_64", test))]
impl Ahead {
    /// For a run that reads so many places at once, of a program whose buffers hold so many bytes.
    pub(super) fn of(third: Third, touched: usize, places: usize) -> Self {
        let (near, far) = match third {
            Third::Near { bytes, is_outrun: false } => {
                let leaves_third = touched > bytes / 2;
                (leaves_third || touched > FAR_BYTES && places > PLACES_FOLLOWED, leaves_third)
            }
            Third::Near { is_outrun: true, .. } | Third::Far => (false, false),
        };
        let ahead = |fetched| if fetched { PROGRAM_AHEAD } else { 0 };
        Self { near: ahead(near), far: ahead(far) }
    }
}

impl Manner {
    /// As the machine does it by itself.
    pub(super) const PLAIN: Self =
        Self { streamed: false, ahead: 0, claimed: 0, together: TERMS_MAX, strip: STRIP_BYTES };

    /// For new sums into these targets.
    pub(super) fn of(third: Third, extent: Extent, targets: &[&mut [u8]]) -> Self {
        let touched = (extent.sources + targets.len()).saturating_mul(extent.bytes);
        match third {
            Third::Far => Self::far(touched, extent, targets),
            Third::Near { bytes, is_outrun: false } => Self::near(bytes, touched, extent, targets),
            Third::Near { bytes, is_outrun: true } => Self::outrun(bytes, touched, extent, targets),
        }
    }

    /// For adding to sums that are there.
    pub(super) fn adding(self) -> Self {
        Self { streamed: false, ahead: 0, claimed: 0, ..self }
    }

    fn far(touched: usize, Extent { sources, bytes, .. }: Extent, targets: &[&mut [u8]]) -> Self {
        // Sources stay in the first cache from pass to pass.
        let plain = Self { strip: short_strip(sources), ..Self::PLAIN };
        if touched > L2_BYTES {
            let ahead = if touched > FAR_BYTES { FAR_AHEAD } else { 0 };
            return Self { streamed: can_stream(targets), ahead, ..plain };
        }
        let many_targets = 2 * targets.len() >= sources;
        // The machine needs some lines of a source to see where it goes on: of short ones there are too few.
        let nearly_full = if bytes <= SHORT_BYTES { L2_BYTES / 2 } else { L2_BYTES / 4 * 3 };
        let claims = many_targets && (L1_BYTES..=L2_BYTES / 4).contains(&touched);
        Self {
            ahead: if touched > nearly_full && !many_targets { NEAR_AHEAD } else { 0 },
            claimed: if claims { CLAIMED_AHEAD } else { 0 },
            ..plain
        }
    }

    fn near(third: usize, touched: usize, Extent { sources, is_shared, .. }: Extent, targets: &[&mut [u8]]) -> Self {
        // Sources, or targets, stay in the second cache from pass to pass.
        let plain = Self { strip: LONG_STRIP_BYTES, ..Self::PLAIN };
        let room = if sources <= 10 { third / 8 * 3 } else { third / 2 };
        if touched > room {
            let passes = sources.div_ceil(TOGETHER);
            return if passes <= 1 || is_shared {
                Self { streamed: can_stream(targets), ..plain }
            } else {
                Self { together: sources.div_ceil(passes), ..plain }
            };
        }
        let claims = targets.len() <= 2 && 2 * targets.len() >= sources && touched > SMALL_L1_BYTES;
        Self {
            ahead: if touched > FAR_BYTES { NEAR_AHEAD } else { 0 },
            claimed: if claims { CLAIMED_AHEAD } else { 0 },
            ..plain
        }
    }

    fn outrun(third: usize, touched: usize, Extent { sources, .. }: Extent, targets: &[&mut [u8]]) -> Self {
        let plain = Self { strip: LONG_STRIP_BYTES, ..Self::PLAIN };
        if sources <= FOLLOWED {
            return Self { streamed: touched > third && can_stream(targets), ..plain };
        }
        Self { ahead: if touched > L1_BYTES { OUTRUN_AHEAD } else { 0 }, ..plain }
    }
}

/// How much of each of so many sources fits a first cache together.
fn short_strip(sources: usize) -> usize {
    (L1_SHARE / sources.max(1)).next_multiple_of(256).min(STRIP_BYTES)
}

fn can_stream(targets: &[&mut [u8]]) -> bool {
    let place = |target: &&mut [u8]| target.as_ptr().addr() % LINE_BYTES;
    targets.iter().map(place).all(|at| at == place(&targets[0]))
}

/// The first cache of the Xeon, and of Zen 5.
const L1_BYTES: usize = 48 << 10;

/// That of Zen 4.
const SMALL_L1_BYTES: usize = 32 << 10;

const LINE_BYTES: usize = 64;

/// The second cache of the Xeon. Elsewhere it is 1 to 2 MiB; in between, streaming and not streaming differ little.
const L2_BYTES: usize = 2 << 20;

/// From here on, fetching ahead beats the machine's own prefetch in spite of its instructions.
const FAR_BYTES: usize = 4 << 20;

/// No third cache of note keeps more for one core.
const LARGE_BYTES: usize = 16 << 20;

const SHORT_BYTES: usize = 16 << 10;

const FAR_AHEAD: usize = 256;
const NEAR_AHEAD: usize = 512;
const OUTRUN_AHEAD: usize = 768;
const CLAIMED_AHEAD: usize = 256;
#[cfg(any(target_arch = "x86_64", test))]
const PROGRAM_AHEAD: usize = 1024;

/// So many places where a Clay code reads a Zen 4 follows by itself, and not 28, those of `clay:16+4:19`.
#[cfg(any(target_arch = "x86_64", test))]
pub(super) const PLACES_FOLLOWED: usize = 24;

/// Of so many sources a Zen 5 keeps track by itself.
const FOLLOWED: usize = 7;

/// The most sources that a pass reads from memory where the third cache is near.
const TOGETHER: usize = 12;

/// What sources may fill of a first cache: 32 KiB at least on all machines of note.
const L1_SHARE: usize = 24 << 10;

/// Runs this long come from memory at its best speed, and ten of them fit the second cache of the EPYC.
const LONG_STRIP_BYTES: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::{Ahead, Extent, L2_BYTES, Manner, OUTRUN_AHEAD, TERMS_MAX, Third, chunks_ahead};

    fn of(third: Third, sources: usize, bytes: usize, targets: &[&mut [u8]]) -> Manner {
        Manner::of(third, Extent { sources, bytes, is_shared: false }, targets)
    }

    #[test]
    fn only_what_leaves_the_second_cache_is_streamed_where_the_third_is_far() {
        let mut buffers = vec![vec![0u8; L2_BYTES / 8 + 64]; 2];
        let [a, b] = &mut buffers[..] else { unreachable!("two buffers") };
        let (first, second) = (a.as_ptr().align_offset(64), b.as_ptr().align_offset(64));
        let bytes = L2_BYTES / 8;
        let streamed = |sources, targets: [&mut [u8]; 2]| of(Third::Far, sources, bytes, &targets).streamed;
        assert!(!streamed(6, [&mut a[first..], &mut b[second..]]));
        assert!(streamed(7, [&mut a[first..], &mut b[second..]]));
        let aside = if second == 0 { 1 } else { second - 1 };
        assert!(!streamed(7, [&mut a[first..], &mut b[aside..]]), "targets that lie differently within a line");
    }

    #[test]
    fn what_leaves_half_of_a_near_third_cache_is_streamed_or_read_a_few_sources_at_a_time() {
        const MIB: usize = 1 << 20;
        let third = Third::Near { bytes: 32 * MIB, is_outrun: false };
        let mut buffers = [[0u8; 128]; 4];
        let mut targets: Vec<&mut [u8]> = Vec::new();
        for buffer in &mut buffers {
            let first = buffer.as_ptr().align_offset(64);
            targets.push(&mut buffer[first..]);
        }
        let of = |sources, bytes| {
            let manner = of(third, sources, bytes, &targets);
            (manner.streamed, manner.together)
        };
        assert_eq!(of(8, MIB), (false, TERMS_MAX), "12 MiB");
        assert_eq!(of(9, MIB), (true, TERMS_MAX));
        assert_eq!(of(12, MIB), (false, TERMS_MAX), "16 MiB");
        assert_eq!(of(12, 2 * MIB), (true, TERMS_MAX));
        assert_eq!(of(17, MIB), (false, 9));
        assert_eq!(of(25, MIB), (false, 9));
        let shared = Extent { sources: 17, bytes: MIB, is_shared: true };
        assert!(Manner::of(third, shared, &targets).streamed);
    }

    #[test]
    fn what_the_machine_keeps_up_with_is_not_fetched() {
        let near = Third::Near { bytes: 32 << 20, is_outrun: false };
        assert_eq!([2, 3, 4, 5].map(|levels| chunks_ahead(near, 4 << 20, levels)), [0, 0, 8, 8]);
        assert_eq!(chunks_ahead(near, 17 << 20, 2), 8, "from memory");
        assert_eq!(chunks_ahead(Third::Far, 4 << 20, 2), 32);
    }

    #[test]
    fn companions_are_fetched_too_where_a_program_leaves_half_of_a_near_third_cache() {
        const MIB: usize = 1 << 20;
        let third = Third::Near { bytes: 32 * MIB, is_outrun: false };
        let of = |touched, places| {
            let ahead = Ahead::of(third, touched, places);
            (ahead.near > 0, ahead.far > 0)
        };
        assert_eq!(of(4 * MIB, 28), (false, false));
        assert_eq!(of(5 * MIB, 28), (true, false));
        assert_eq!(of(16 * MIB, 24), (false, false), "the machine follows so few places");
        assert_eq!(of(17 * MIB, 24), (true, true));
        let outrun = Third::Near { bytes: 32 * MIB, is_outrun: true };
        for unmeasured in [Third::Far, outrun] {
            assert_eq!(Ahead::of(unmeasured, 64 * MIB, 28), Ahead { near: 0, far: 0 });
        }
    }

    #[test]
    fn what_outruns_the_machine_has_many_sources_fetched_and_nothing_in_parts() {
        const MIB: usize = 1 << 20;
        let third = Third::Near { bytes: 32 * MIB, is_outrun: true };
        let mut buffers = [[0u8; 128]; 2];
        let [a, b] = &mut buffers;
        let first = [a.as_ptr().align_offset(64), b.as_ptr().align_offset(64)];
        let targets = [&mut a[first[0]..], &mut b[first[1]..]];
        let of = |sources, bytes| {
            let manner = of(third, sources, bytes, &targets);
            (manner.streamed, manner.ahead, manner.together)
        };
        assert_eq!(of(10, 4096), (false, 0, TERMS_MAX), "48 KiB");
        assert_eq!(of(10, 8192), (false, OUTRUN_AHEAD, TERMS_MAX));
        assert_eq!(of(25, 2 * MIB), (false, OUTRUN_AHEAD, TERMS_MAX));
        assert_eq!(of(6, 4 * MIB), (false, 0, TERMS_MAX), "32 MiB");
        assert_eq!(of(6, 8 * MIB), (true, 0, TERMS_MAX));
    }
}
