//! Sums over coupled pairs and blends in place, with AVX-512 and GFNI: what a `Program` spends its time in.
//!
//! Unlike a `Pass`, a run has its products' matrices at hand: no look-up stands between a source and its products, so
//! that sub-chunks of 64 bytes run nearly as fast as long ones.
//!
//! Invariants:
//! 1. Equal to the same steps by `Pass`, on every length (tested through `Program`).
//! 2. Bytes beyond a buffer's end are neither read nor written: a last short vector is masked.
//! 3. All sources of a column are read before its targets are written, but for what a target adds and no target is.

use std::arch::x86_64::{
    __m512i, __mmask64, _MM_HINT_T1, _mm_prefetch, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512,
    _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_storeu_si512,
    _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use super::{
    BlendHow, Slot,
    execute::Strip,
    manner::Ahead,
    program::{Blend, Column, PackedPair, Target},
    tables::AFFINE,
};

/// targets\[r\] = sum over all sources of products\[r\] * source, and what the target adds, for `bytes` bytes from the
/// `first`-th sub-chunk after each slot on. Slots are looked up where they are used: a list of pointers made first costs
/// more, at every length of sub-chunks.
pub(super) struct Run<'a> {
    pub(super) strip: &'a Strip<'a>,
    pub(super) first: u16,
    pub(super) singles: &'a [(Slot, Column)],
    pub(super) pairs: &'a [PackedPair],
    pub(super) targets: &'a [Target],
    /// What columns are in.
    pub(super) products: &'a [u64],
    /// The first target's products are all by 1.
    pub(super) plain_first: bool,
    pub(super) ahead: Ahead,
    pub(super) bytes: usize,
}

/// The product matrix of a coefficient.
pub(super) fn product_matrix(coef: u8) -> u64 {
    AFFINE[usize::from(coef)]
}

impl Run<'_> {
    /// # Safety
    /// AVX-512 F and BW and GFNI are there; each slot is in the strip's buffers and good for `bytes` bytes, those of
    /// targets for writing, and each column for as many products as targets; no target partly overlaps a source or another
    /// target, or is what one adds; there are 1 to 10 targets.
    pub(super) unsafe fn run(&self) {
        macro_rules! by_rows {
            ($($rows:literal)*) => {
                match (self.targets.len(), self.plain_first) {
                    $(
                        // SAFETY: the caller's.
                        ($rows, false) => unsafe { sweep::<$rows, false>(self) },
                        // SAFETY: the same.
                        ($rows, true) => unsafe { sweep::<$rows, true>(self) },
                    )*
                    (rows, _) => unreachable!("{rows} rows in one run"),
                }
            };
        }
        by_rows!(1 2 3 4 5 6 7 8 9 10);
    }
}

/// # Safety
/// As [`Run::run`], with as many targets as ROWS.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn sweep<const ROWS: usize, const PLAIN: bool>(run: &Run) {
    let mut at = 0;
    // SAFETY: the caller's; each call stays within `bytes`, the last one by its mask.
    unsafe {
        if ROWS <= 5 {
            while at + 256 <= run.bytes {
                columns::<ROWS, 4, PLAIN, false>(run, at, u64::MAX);
                at += 256;
            }
        }
        while at + 128 <= run.bytes {
            columns::<ROWS, 2, PLAIN, false>(run, at, u64::MAX);
            at += 128;
        }
        while at + 64 <= run.bytes {
            columns::<ROWS, 1, PLAIN, false>(run, at, u64::MAX);
            at += 64;
        }
        if at < run.bytes {
            columns::<ROWS, 1, PLAIN, true>(run, at, u64::MAX >> (64 - (run.bytes - at)));
        }
    }
}

/// # Safety
/// As [`Run::run`], with as many targets as ROWS and UNROLL vectors left, the last one up to the mask.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn columns<const ROWS: usize, const UNROLL: usize, const PLAIN: bool, const SHORT: bool>(
    run: &Run,
    at: usize,
    mask: __mmask64,
) {
    let place = Place { at, stride: 64, mask };
    // SAFETY: the caller's.
    unsafe {
        let sums = run.sums::<ROWS, UNROLL, PLAIN, SHORT>(place);
        for (row, mut sums) in sums.into_iter().enumerate() {
            let Target { slot, plus } = run.targets.get_unchecked(row);
            if let Some((plus, factor)) = plus {
                let plus = load::<UNROLL, SHORT>(run.slot(*plus), place);
                let factor = broadcast(product_matrix(*factor));
                for (sum, plus) in sums.iter_mut().zip(plus) {
                    *sum = _mm512_xor_si512(*sum, times(plus, factor));
                }
            }
            let target = run.slot(*slot).add(at);
            for (u, sum) in sums.iter().enumerate() {
                store::<SHORT>(target.add(u * 64), *sum, mask);
            }
        }
    }
}

/// Where some vectors lie from the start of each source: at `at`, and each `stride` bytes after the one before.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) at: usize,
    pub(super) stride: usize,
    /// Which bytes of each vector are there, if the vectors are short.
    pub(super) mask: __mmask64,
}

impl Run<'_> {
    /// # Safety
    /// It is one of the run's.
    #[inline]
    unsafe fn slot(&self, slot: Slot) -> *mut u8 {
        // SAFETY: the caller's.
        unsafe { self.strip.resolve_unchecked(slot, self.first) }
    }

    /// # Safety
    /// It is one of the run's.
    #[inline]
    unsafe fn column(&self, column: Column) -> *const u64 {
        debug_assert!(column.0 as usize + self.targets.len() <= self.products.len());
        // SAFETY: the caller's.
        unsafe { self.products.as_ptr().add(column.0 as usize) }
    }

    /// sums\[row\]\[u\]: the sum over all sources of their product for the row, of the u-th vector of the place.
    ///
    /// # Safety
    /// As [`Run::run`], with as many targets as ROWS; the place lies within all sources.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn sums<const ROWS: usize, const UNROLL: usize, const PLAIN: bool, const SHORT: bool>(
        &self,
        place: Place,
    ) -> [[__m512i; UNROLL]; ROWS] {
        let mut sums = [[_mm512_setzero_si512(); UNROLL]; ROWS];
        let (singles, odd_single) = self.singles.as_chunks::<2>();
        let (pairs, odd_pair) = self.pairs.as_chunks::<2>();
        // SAFETY: the caller's.
        unsafe {
            for [(a, by_a), (b, by_b)] in singles {
                let (a, b) = (self.slot(*a), self.slot(*b));
                fetch::<UNROLL>(a, place.at, self.ahead.near);
                fetch::<UNROLL>(b, place.at, self.ahead.near);
                let values = [load::<UNROLL, SHORT>(a, place), load::<UNROLL, SHORT>(b, place)];
                add_two::<ROWS, UNROLL, PLAIN>(&mut sums, values, self.column(*by_a), self.column(*by_b));
            }
            for (a, by) in odd_single {
                let value = load::<UNROLL, SHORT>(self.slot(*a), place);
                add_one::<ROWS, UNROLL, PLAIN>(&mut sums, value, self.column(*by));
            }
            for [a, b] in pairs {
                let values = [self.couple::<UNROLL, SHORT>(a, place), self.couple::<UNROLL, SHORT>(b, place)];
                add_two::<ROWS, UNROLL, PLAIN>(&mut sums, values, self.column(a.column), self.column(b.column));
            }
            for a in odd_pair {
                let value = self.couple::<UNROLL, SHORT>(a, place);
                add_one::<ROWS, UNROLL, PLAIN>(&mut sums, value, self.column(a.column));
            }
        }
        sums
    }

    /// # Safety
    /// The place lies within both sources.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    unsafe fn couple<const UNROLL: usize, const SHORT: bool>(
        &self,
        pair: &PackedPair,
        place: Place,
    ) -> [__m512i; UNROLL] {
        // SAFETY: the caller's.
        let (near, far) = unsafe {
            let (near, far) = (self.slot(pair.near), self.slot(pair.far));
            fetch::<UNROLL>(near, place.at, self.ahead.near);
            fetch::<UNROLL>(far, place.at, self.ahead.far);
            (load::<UNROLL, SHORT>(near, place), load::<UNROLL, SHORT>(far, place))
        };
        let factor = broadcast(product_matrix(pair.factor));
        std::array::from_fn(|u| _mm512_xor_si512(near[u], times(far[u], factor)))
    }
}

/// Brings what lies `ahead` of as many vectors as sums have room for to the second cache, where a run is that long.
#[inline]
fn fetch<const UNROLL: usize>(from: *const u8, at: usize, ahead: usize) {
    if UNROLL == 4 && ahead > 0 {
        for u in 0..UNROLL {
            // SAFETY: a hint; nothing is read, and any address will do.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(from.wrapping_add(at + ahead + 64 * u).cast()) }
        }
    }
}

/// # Safety
/// The place lies within the source.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn load<const UNROLL: usize, const SHORT: bool>(from: *const u8, place: Place) -> [__m512i; UNROLL] {
    // SAFETY: the caller's.
    std::array::from_fn(|u| unsafe {
        let from = from.add(place.at + u * place.stride).cast();
        // A masked load takes a vector port as well, which products and sums want.
        if SHORT { _mm512_maskz_loadu_epi8(place.mask, from) } else { _mm512_loadu_si512(from.cast()) }
    })
}

/// # Safety
/// A vector can be written, up to the mask if it is short.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn store<const SHORT: bool>(to: *mut u8, value: __m512i, mask: __mmask64) {
    // SAFETY: the caller's.
    unsafe {
        if SHORT { _mm512_mask_storeu_epi8(to.cast(), mask, value) } else { _mm512_storeu_si512(to.cast(), value) }
    }
}

/// # Safety
/// ROWS matrices can be read at `products`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) unsafe fn add_one<const ROWS: usize, const UNROLL: usize, const PLAIN: bool>(
    sums: &mut [[__m512i; UNROLL]; ROWS],
    value: [__m512i; UNROLL],
    products: *const u64,
) {
    for (row, sums) in sums.iter_mut().enumerate() {
        // SAFETY: the caller's.
        let by = broadcast(unsafe { *products.add(row) });
        for (sum, value) in sums.iter_mut().zip(value) {
            *sum = _mm512_xor_si512(*sum, if PLAIN && row == 0 { value } else { times(value, by) });
        }
    }
}

/// # Safety
/// ROWS matrices can be read at `by_a` and at `by_b`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) unsafe fn add_two<const ROWS: usize, const UNROLL: usize, const PLAIN: bool>(
    sums: &mut [[__m512i; UNROLL]; ROWS],
    [a, b]: [[__m512i; UNROLL]; 2],
    by_a: *const u64,
    by_b: *const u64,
) {
    for (row, sums) in sums.iter_mut().enumerate() {
        // SAFETY: the caller's.
        let (by_a, by_b) = unsafe { (broadcast(*by_a.add(row)), broadcast(*by_b.add(row))) };
        for (u, sum) in sums.iter_mut().enumerate() {
            let (a, b) = if PLAIN && row == 0 { (a[u], b[u]) } else { (times(a[u], by_a), times(b[u], by_b)) };
            *sum = add_three(*sum, a, b);
        }
    }
}

/// Carries out blends that are all alike.
///
/// # Safety
/// AVX-512 F and BW and GFNI are there; both slots of each blend are in the strip's buffers and good for a strip, a for
/// writing and, if `both`, b as well; a and b do not overlap.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) unsafe fn blend(strip: &Strip, blends: &[Blend], how: BlendHow) {
    let (by_own, by_other) = (broadcast(product_matrix(how.own)), broadcast(product_matrix(how.other)));
    let bytes = strip.bytes;
    for blend in blends {
        let mut at = 0;
        // SAFETY: the caller's.
        unsafe {
            let (a, b) = (strip.resolve_unchecked(blend.a, 0), strip.resolve_unchecked(blend.b, 0));
            while at + 64 <= bytes {
                let (a, b) = (a.add(at), b.add(at));
                let values = [_mm512_loadu_si512(a.cast()), _mm512_loadu_si512(b.cast())];
                let blended = blended(values, how, [by_own, by_other]);
                store::<false>(a, blended[0], u64::MAX);
                if how.both {
                    store::<false>(b, blended[1], u64::MAX);
                }
                at += 64;
            }
            if at < bytes {
                let (a, b, mask) = (a.add(at), b.add(at), u64::MAX >> (64 - (bytes - at)));
                let values = [_mm512_maskz_loadu_epi8(mask, a.cast()), _mm512_maskz_loadu_epi8(mask, b.cast())];
                let blended = blended(values, how, [by_own, by_other]);
                store::<true>(a, blended[0], mask);
                if how.both {
                    store::<true>(b, blended[1], mask);
                }
            }
        }
    }
}

/// The new a and b.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn blended([a, b]: [__m512i; 2], how: BlendHow, [own, other]: [__m512i; 2]) -> [__m512i; 2] {
    if how.both {
        let new_a = _mm512_xor_si512(times(a, own), times(b, other));
        [new_a, _mm512_xor_si512(times(a, other), times(b, own))]
    } else if how.own == how.other {
        [times(_mm512_xor_si512(a, b), own), b]
    } else if how.own == 1 {
        [_mm512_xor_si512(a, times(b, other)), b]
    } else {
        [_mm512_xor_si512(times(a, own), times(b, other)), b]
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn broadcast(matrix: u64) -> __m512i {
    _mm512_set1_epi64(matrix.cast_signed())
}

#[inline]
#[target_feature(enable = "avx512f,gfni")]
pub(super) fn times(value: __m512i, by: __m512i) -> __m512i {
    _mm512_gf2p8affine_epi64_epi8::<0>(value, by)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn add_three(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    // 0x96 is the truth table of a ^ b ^ c.
    _mm512_ternarylogic_epi64::<0x96>(a, b, c)
}
