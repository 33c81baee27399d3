//! Butterflies of the additive FFT over GF(2^16) on split planes, written once for all tiers.
//!
//! A lane is what stands at one position of a transform: the low bytes of its symbols, and `plane` further the high
//! bytes. Blocks are small transforms that live in registers: eight lanes at most.
//!
//! Invariants:
//! 1. Lane counts and levels are constants, so the lanes of a block live in registers.
//! 2. Code generic over `Planar` is always inlined into a function that enables the tier's features.

use std::ops::BitXor;

use crate::long::field16;

/// A register of bytes of one plane. All functions need the tier's features and, where they take a pointer to bytes,
/// that `BYTES` bytes are there.
pub(super) trait Planar {
    type Register: Copy;
    /// A factor in GF(2^8), as memory holds it; that of a sum is the exclusive or.
    type Factor: Copy + BitXor<Output = Self::Factor>;
    const BYTES: usize;

    unsafe fn load(from: *const u8) -> Self::Register;
    unsafe fn store(to: *mut u8, value: Self::Register);
    /// Starts to bring a line closer; any address will do.
    unsafe fn prefetch(from: *const u8);
    unsafe fn xor(a: Self::Register, b: Self::Register) -> Self::Register;
    unsafe fn xor3(a: Self::Register, b: Self::Register, c: Self::Register) -> Self::Register;
    unsafe fn factor(coef: u8) -> Self::Factor;
    unsafe fn product(value: Self::Register, by: *const Self::Factor) -> Self::Register;
}

/// Both planes of a lane.
type Lane<V> = [<V as Planar>::Register; 2];

/// Factors of one butterfly, see [`field16::parts`]; only the first is used where the factor lies in GF(2^8).
type Factors<V> = [<V as Planar>::Factor; 4];

/// Eight sources to the lowest levels of their inverse transform.
pub(super) struct Gather {
    /// The low plane of each source.
    pub(super) sources: [*const u8; WIDTH],
    /// From a source's low plane to its high one.
    pub(super) source_plane: usize,
    /// Sources that are read soon.
    pub(super) soon: [*const u8; WIDTH],
    /// Those are brought closer.
    pub(super) fetches: bool,
    /// The low plane of the first target lane.
    pub(super) target: *mut u8,
    /// From a target lane to the next.
    pub(super) stride: usize,
    /// From a target's low plane to its high one.
    pub(super) plane: usize,
    /// The number of the first source's point, a multiple of [`WIDTH`].
    pub(super) point: u16,
    /// Bytes of each plane, a multiple of 64.
    pub(super) bytes: usize,
}

/// Part of a transform: butterflies between lanes 1, 2 and 4 `step`s apart, in `blocks` neighbouring blocks.
pub(super) struct Inner {
    pub(super) from: *const u8,
    pub(super) to: *mut u8,
    /// From a lane of a block to the next.
    pub(super) step: usize,
    /// From a block's first lane to the next block's.
    pub(super) stride: usize,
    pub(super) blocks: usize,
    /// From a lane's low plane to its high one.
    pub(super) plane: usize,
    /// The number of the point of the first lane, halved for each level below: a multiple of the lanes of a block.
    pub(super) point: u16,
    /// Bytes of each plane, a multiple of 64.
    pub(super) bytes: usize,
}

/// Sources of one gathering block.
pub(super) const WIDTH: usize = 8;

/// Transforms LEVELS levels of the sources and, if there are fewer than 3, sums lanes that stand at the same place. Adds
/// to the 2^LEVELS targets if ADD. Factors of levels below FULL are any, those of levels from there on in GF(2^8).
///
/// # Safety
/// The tier's features; all planes of all lanes are good for `bytes` bytes, the targets' for writing, and sources and
/// targets do not overlap.
#[inline(always)]
pub(super) unsafe fn gather<V: Planar, const LEVELS: usize, const FULL: usize, const ADD: bool>(block: &Gather) {
    // SAFETY: the caller's.
    unsafe {
        let factors = stage::<V>(block.point, WIDTH, LEVELS);
        let factors = factors.as_ptr();
        for at in (0..block.bytes).step_by(V::BYTES) {
            let mut lanes = sources::<V>(block, at);
            inverse::<V, WIDTH, LEVELS, FULL>(&mut lanes, factors);
            for i in 0..1 << LEVELS {
                let to = block.target.add(i * block.stride + at);
                for plane in 0..2 {
                    let to = to.add(plane * block.plane);
                    let value = match LEVELS {
                        3 => lanes[i][plane],
                        2 => V::xor(lanes[i][plane], lanes[4 + i][plane]),
                        1 => V::xor(
                            V::xor3(lanes[i][plane], lanes[2 + i][plane], lanes[4 + i][plane]),
                            lanes[6 + i][plane],
                        ),
                        _ => {
                            let (a, b) = lanes.split_at(4);
                            let [a, b] =
                                [a, b].map(|c| V::xor(V::xor3(c[0][plane], c[1][plane], c[2][plane]), c[3][plane]));
                            V::xor(a, b)
                        }
                    };
                    V::store(to, if ADD { V::xor(V::load(to), value) } else { value });
                }
            }
        }
    }
}

/// The last eight sources of a group of 16 or 32: their three levels, then the ABOVE levels above these of the whole group, whose
/// other lanes are at `above.from`; adds to the targets of `above`. So what becomes of these eight is not stored on the way. Factors
/// of the three levels below FULL are any, all others in GF(2^8).
///
/// # Safety
/// As [`gather`] and [`inner`], with 2^ABOVE lanes in a block of `above` and as many bytes as `block` has.
#[inline(always)]
pub(super) unsafe fn gather_last<V: Planar, const LANES: usize, const ABOVE: usize, const FULL: usize>(
    block: &Gather,
    above: &Inner,
) {
    // SAFETY: the caller's.
    unsafe {
        let factors = stage::<V>(block.point, WIDTH, 3);
        let factors_above = stage::<V>(above.point, LANES, ABOVE);
        let (factors, factors_above) = (factors.as_ptr(), factors_above.as_ptr());
        for at in (0..block.bytes).step_by(V::BYTES) {
            let mut last = sources::<V>(block, at);
            inverse::<V, WIDTH, 3, FULL>(&mut last, factors);
            // Written out: the compiler leaves a loop over four lanes as one, and keeps `last` in memory for it.
            let [a, b, c, d, e, f, g, h] = last;
            take_above::<V, LANES, ABOVE>(above, factors_above, 0, at, a);
            take_above::<V, LANES, ABOVE>(above, factors_above, 1, at, b);
            take_above::<V, LANES, ABOVE>(above, factors_above, 2, at, c);
            take_above::<V, LANES, ABOVE>(above, factors_above, 3, at, d);
            take_above::<V, LANES, ABOVE>(above, factors_above, 4, at, e);
            take_above::<V, LANES, ABOVE>(above, factors_above, 5, at, f);
            take_above::<V, LANES, ABOVE>(above, factors_above, 6, at, g);
            take_above::<V, LANES, ABOVE>(above, factors_above, 7, at, h);
        }
    }
}

/// The levels above of one block of `above`, whose last lane is in registers.
///
/// # Safety
/// As [`gather_last`]; a vector is left from `at` on.
#[inline(always)]
unsafe fn take_above<V: Planar, const LANES: usize, const ABOVE: usize>(
    above: &Inner,
    factors: *const Factors<V>,
    number: usize,
    at: usize,
    last: Lane<V>,
) {
    // SAFETY: the caller's.
    unsafe {
        let from = above.from.add(number * above.stride + at);
        let mut lanes: [Lane<V>; LANES] = std::array::from_fn(|i| {
            let low = from.add(i * above.step);
            if i + 1 == LANES { last } else { [V::load(low), V::load(low.add(above.plane))] }
        });
        inverse::<V, LANES, ABOVE, 0>(&mut lanes, factors);
        store::<V, LANES, true>(&lanes, above.to.add(number * above.stride + at), above);
    }
}

/// A vector of both planes of each source; fetches those that are read soon.
///
/// # Safety
/// As [`gather`]; a vector is left from `at` on.
#[inline(always)]
unsafe fn sources<V: Planar>(block: &Gather, at: usize) -> [Lane<V>; WIDTH] {
    // SAFETY: the caller's.
    std::array::from_fn(|i| unsafe {
        let low = block.sources[i].add(at);
        if block.fetches {
            V::prefetch(block.soon[i].wrapping_add(at));
            V::prefetch(block.soon[i].wrapping_add(block.source_plane + at));
        }
        [V::load(low), V::load(low.add(block.source_plane))]
    })
}

/// Stores the lanes of a block, or adds them to what is there.
///
/// # Safety
/// As [`inner`]; `to` is the place in the block's first target lane.
#[inline(always)]
unsafe fn store<V: Planar, const LANES: usize, const ADD: bool>(lanes: &[Lane<V>; LANES], to: *mut u8, part: &Inner) {
    for (i, lane) in lanes.iter().enumerate() {
        for (plane, value) in lane.iter().enumerate() {
            // SAFETY: the caller's.
            unsafe {
                let to = to.add(i * part.step + plane * part.plane);
                V::store(to, if ADD { V::xor(V::load(to), *value) } else { *value });
            }
        }
    }
}

/// LEVELS levels of the inverse transform, or of the transform, over blocks of 2^LEVELS lanes each; adds to the targets
/// if ADD. Factors are any if FULL is LEVELS, and in GF(2^8) if it is 0.
///
/// # Safety
/// The tier's features; all planes of all lanes are good for `bytes` bytes, those of `to` for writing; `from` is `to`
/// or does not overlap it.
#[inline(always)]
pub(super) unsafe fn inner<
    V: Planar,
    const LANES: usize,
    const LEVELS: usize,
    const FULL: usize,
    const INVERSE: bool,
    const ADD: bool,
>(
    part: &Inner,
) {
    // SAFETY: the caller's.
    unsafe {
        let factors = stage::<V>(part.point, LANES, LEVELS);
        let factors = factors.as_ptr();
        for block in 0..part.blocks {
            let (from, to) = (part.from.add(block * part.stride), part.to.add(block * part.stride));
            for at in (0..part.bytes).step_by(V::BYTES) {
                let mut lanes: [Lane<V>; LANES] = std::array::from_fn(|i| {
                    let low = from.add(i * part.step + at);
                    [V::load(low), V::load(low.add(part.plane))]
                });
                if INVERSE {
                    inverse::<V, LANES, LEVELS, FULL>(&mut lanes, factors);
                } else {
                    forward::<V, LANES, LEVELS, FULL>(&mut lanes, factors);
                }
                store::<V, LANES, ADD>(&lanes, to.add(at), part);
            }
        }
    }
}

/// The factors of all butterflies: those of level 0 first, then those of level 1 and so on. Lanes beyond the last point
/// are zeros, so their factors are any.
///
/// Points and factors are linear: the factors of a level are that of its first pair plus point(2 pair), which lies in
/// GF(2^8), so what one plane gives the other is the same for all pairs of a level.
///
/// # Safety
/// The tier's features.
#[inline(always)]
unsafe fn stage<V: Planar>(point: u16, lanes: usize, levels: usize) -> [Factors<V>; WIDTH - 1] {
    // SAFETY: the caller's.
    unsafe {
        let mut factors = [[V::factor(0); 4]; WIDTH - 1];
        let mut next = 0;
        for level in 0..levels {
            let [a, b, c, d] = field16::parts(field16::point(point >> level));
            let [a, b, c, d] = [V::factor(a), V::factor(b), V::factor(c), V::factor(d)];
            for pair in 0..lanes >> (level + 1) {
                let [more, _] = field16::point(2 * pair as u16).to_le_bytes();
                factors[next] = [a ^ V::factor(more), b, c, d ^ V::factor(more)];
                next += 1;
            }
        }
        factors
    }
}

/// # Safety
/// The tier's features; as many factors as [`stage`] makes.
#[inline(always)]
unsafe fn inverse<V: Planar, const LANES: usize, const LEVELS: usize, const FULL: usize>(
    lanes: &mut [Lane<V>; LANES],
    mut factors: *const Factors<V>,
) {
    // SAFETY: the caller's.
    unsafe {
        for level in 0..LEVELS {
            for pair in 0..LANES >> (level + 1) {
                for i in 0..1 << level {
                    let (a, b) = ((pair << (level + 1)) + i, (pair << (level + 1)) + (1 << level) + i);
                    lanes[b] = [V::xor(lanes[a][0], lanes[b][0]), V::xor(lanes[a][1], lanes[b][1])];
                    lanes[a] = add_product::<V>(lanes[a], lanes[b], factors, level < FULL);
                }
                factors = factors.add(1);
            }
        }
    }
}

/// # Safety
/// The tier's features; as many factors as [`stage`] makes.
#[inline(always)]
unsafe fn forward<V: Planar, const LANES: usize, const LEVELS: usize, const FULL: usize>(
    lanes: &mut [Lane<V>; LANES],
    factors: *const Factors<V>,
) {
    // SAFETY: the caller's.
    unsafe {
        for level in (0..LEVELS).rev() {
            // Levels below have LANES / 2 + LANES / 4 + ... factors.
            let factors = factors.add(LANES - (LANES >> level));
            for pair in 0..LANES >> (level + 1) {
                for i in 0..1 << level {
                    let (a, b) = ((pair << (level + 1)) + i, (pair << (level + 1)) + (1 << level) + i);
                    lanes[a] = add_product::<V>(lanes[a], lanes[b], factors.add(pair), level < FULL);
                    lanes[b] = [V::xor(lanes[a][0], lanes[b][0]), V::xor(lanes[a][1], lanes[b][1])];
                }
            }
        }
    }
}

/// a + factor * b.
///
/// # Safety
/// The tier's features; `factors` can be read.
#[inline(always)]
unsafe fn add_product<V: Planar>(a: Lane<V>, b: Lane<V>, factors: *const Factors<V>, full: bool) -> Lane<V> {
    // SAFETY: the caller's.
    unsafe {
        let factors: *const V::Factor = factors.cast();
        let factor = |part: usize| factors.add(part);
        if full {
            [
                V::xor3(a[0], V::product(b[0], factor(0)), V::product(b[1], factor(1))),
                V::xor3(a[1], V::product(b[0], factor(2)), V::product(b[1], factor(3))),
            ]
        } else {
            [V::xor(a[0], V::product(b[0], factor(0))), V::xor(a[1], V::product(b[1], factor(0)))]
        }
    }
}
