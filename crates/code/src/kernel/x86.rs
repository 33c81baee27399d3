//! The kernel with AVX2, AVX2 + GFNI and AVX-512 + GFNI.
//!
//! The loop is written once over [`Vector`] and compiled for 1 to 10 rows, with and without a plain first row. Sources
//! are taken two at a time, so that one three-way XOR adds two products.
//!
//! Invariants:
//! 1. Accumulators are local arrays of constant size, so they live in registers.
//! 2. Code generic over `Vector` is always inlined into a function that enables the tier's features.

use std::arch::x86_64::{
    __m256i, __m512i, __mmask64, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256,
    _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256, _mm256_set1_epi8, _mm256_set1_epi64x, _mm256_setzero_si256,
    _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256, _mm512_gf2p8affine_epi64_epi8,
    _mm512_loadu_si512, _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use super::{Pair, Pass, Tier, scalar};
use crate::field::mul;

/// # Safety
/// As [`Pass::run`], and the tier is none but this module's three.
pub(super) unsafe fn run(pass: &Pass, tier: Tier) {
    macro_rules! by_rows {
        ($run:ident, $($rows:literal)*) => {
            match (pass.targets.len(), pass.plain_first) {
                $(
                    // SAFETY: the caller's; the tier's features are available.
                    ($rows, false) => unsafe { $run::<$rows, false>(pass) },
                    // SAFETY: the same.
                    ($rows, true) => unsafe { $run::<$rows, true>(pass) },
                )*
                (rows, _) => unreachable!("{rows} rows in one pass"),
            }
        };
    }
    match tier {
        Tier::Avx512Gfni => by_rows!(avx512_gfni, 1 2 3 4 5 6 7 8 9 10),
        Tier::Avx2Gfni => by_rows!(avx2_gfni, 1 2 3 4 5 6 7 8 9 10),
        Tier::Avx2 => by_rows!(avx2, 1 2 3 4 5 6 7 8 9 10),
        Tier::Scalar => unreachable!("not a tier of this module"),
    }
}

/// # Safety
/// As [`Pass::run`], with as many targets as ROWS.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn avx512_gfni<const ROWS: usize, const PLAIN: bool>(pass: &Pass) {
    let mut at = 0;
    // SAFETY: the caller's; each call stays within `bytes`, the last one by its mask.
    unsafe {
        if ROWS <= 5 {
            while at + 256 <= pass.bytes {
                columns::<Wide, ROWS, 4, PLAIN>(pass, at, ());
                at += 256;
            }
        }
        while at + 128 <= pass.bytes {
            columns::<Wide, ROWS, 2, PLAIN>(pass, at, ());
            at += 128;
        }
        while at < pass.bytes {
            let left = (pass.bytes - at).min(64);
            columns::<Masked, ROWS, 1, PLAIN>(pass, at, u64::MAX >> (64 - left));
            at += left;
        }
    }
}

/// # Safety
/// As [`Pass::run`], with as many targets as ROWS.
#[target_feature(enable = "avx2,gfni")]
unsafe fn avx2_gfni<const ROWS: usize, const PLAIN: bool>(pass: &Pass) {
    // SAFETY: the caller's.
    unsafe { halves::<Gfni, ROWS, PLAIN>(pass) }
}

/// # Safety
/// As [`Pass::run`], with as many targets as ROWS.
#[target_feature(enable = "avx2")]
unsafe fn avx2<const ROWS: usize, const PLAIN: bool>(pass: &Pass) {
    // SAFETY: the caller's.
    unsafe { halves::<Shuffle, ROWS, PLAIN>(pass) }
}

/// The loop of the 32-byte tiers; the tail is scalar.
///
/// # Safety
/// As [`Pass::run`], with as many targets as ROWS.
#[inline(always)]
unsafe fn halves<V: Vector<Mask = ()>, const ROWS: usize, const PLAIN: bool>(pass: &Pass) {
    let mut at = 0;
    // SAFETY: the caller's; each call stays within `bytes`.
    unsafe {
        if ROWS <= 4 {
            while at + 64 <= pass.bytes {
                columns::<V, ROWS, 2, PLAIN>(pass, at, ());
                at += 64;
            }
        }
        while at + 32 <= pass.bytes {
            columns::<V, ROWS, 1, PLAIN>(pass, at, ());
            at += 32;
        }
        scalar::run(pass, at);
    }
}

/// All terms and rows for UNROLL vectors of columns, from `at` on.
///
/// # Safety
/// As [`Pass::run`], with as many targets as ROWS and UNROLL vectors left, the last one up to the mask.
#[inline(always)]
unsafe fn columns<V: Vector, const ROWS: usize, const UNROLL: usize, const PLAIN: bool>(
    pass: &Pass,
    at: usize,
    mask: V::Mask,
) {
    // SAFETY: the caller's; `coefs` moves on by `stride` for each term, and there are `stride` for each.
    unsafe {
        let mut sums = [[V::zero(); UNROLL]; ROWS];
        let mut coefs = pass.coefs.as_ptr().add(pass.first);
        let (singles, odd_single) = pass.singles.as_chunks::<2>();
        for [a, b] in singles {
            let (a, b) = (load::<V, UNROLL>(a.add(at), mask), load::<V, UNROLL>(b.add(at), mask));
            add_two::<V, ROWS, UNROLL, PLAIN>(&mut sums, a, b, coefs, coefs.add(pass.stride));
            coefs = coefs.add(2 * pass.stride);
        }
        for a in odd_single {
            let a = load::<V, UNROLL>(a.add(at), mask);
            add_one::<V, ROWS, UNROLL, PLAIN>(&mut sums, a, coefs);
            coefs = coefs.add(pass.stride);
        }
        let (pairs, odd_pair) = pass.pairs.as_chunks::<2>();
        for [a, b] in pairs {
            let (a, b) = (load_pair::<V, UNROLL>(a, at, mask), load_pair::<V, UNROLL>(b, at, mask));
            add_two::<V, ROWS, UNROLL, PLAIN>(&mut sums, a, b, coefs, coefs.add(pass.stride));
            coefs = coefs.add(2 * pass.stride);
        }
        for a in odd_pair {
            let a = load_pair::<V, UNROLL>(a, at, mask);
            add_one::<V, ROWS, UNROLL, PLAIN>(&mut sums, a, coefs);
            coefs = coefs.add(pass.stride);
        }
        for (row, sums) in sums.iter().enumerate() {
            let target = pass.targets.get_unchecked(row).add(at);
            for (u, sum) in sums.iter().enumerate() {
                V::store(target.add(u * V::BYTES), *sum, mask);
            }
        }
    }
}

/// # Safety
/// UNROLL vectors can be read, up to the mask.
#[inline(always)]
unsafe fn load<V: Vector, const UNROLL: usize>(from: *const u8, mask: V::Mask) -> [V::Register; UNROLL] {
    // SAFETY: the caller's.
    unsafe {
        let mut values = [V::zero(); UNROLL];
        for (u, value) in values.iter_mut().enumerate() {
            *value = V::load(from.add(u * V::BYTES), mask);
        }
        values
    }
}

/// # Safety
/// UNROLL vectors can be read of both sources from `at` on, up to the mask.
#[inline(always)]
unsafe fn load_pair<V: Vector, const UNROLL: usize>(pair: &Pair, at: usize, mask: V::Mask) -> [V::Register; UNROLL] {
    // SAFETY: the caller's.
    unsafe {
        let factor = V::multiplier(pair.factor);
        let mut values = load::<V, UNROLL>(pair.near.add(at), mask);
        let far = load::<V, UNROLL>(pair.far.add(at), mask);
        for (value, far) in values.iter_mut().zip(far) {
            *value = V::xor(*value, V::product(far, factor));
        }
        values
    }
}

/// # Safety
/// ROWS coefficients can be read at `coefs`.
#[inline(always)]
unsafe fn add_one<V: Vector, const ROWS: usize, const UNROLL: usize, const PLAIN: bool>(
    sums: &mut [[V::Register; UNROLL]; ROWS],
    a: [V::Register; UNROLL],
    coefs: *const u8,
) {
    for (row, sums) in sums.iter_mut().enumerate() {
        // SAFETY: the caller's.
        unsafe {
            let factor = V::multiplier(*coefs.add(row));
            for (sum, a) in sums.iter_mut().zip(a) {
                *sum = V::xor(*sum, if PLAIN && row == 0 { a } else { V::product(a, factor) });
            }
        }
    }
}

/// # Safety
/// ROWS coefficients can be read at `coefs_a` and at `coefs_b`.
#[inline(always)]
unsafe fn add_two<V: Vector, const ROWS: usize, const UNROLL: usize, const PLAIN: bool>(
    sums: &mut [[V::Register; UNROLL]; ROWS],
    a: [V::Register; UNROLL],
    b: [V::Register; UNROLL],
    coefs_a: *const u8,
    coefs_b: *const u8,
) {
    for (row, sums) in sums.iter_mut().enumerate() {
        // SAFETY: the caller's.
        unsafe {
            let (factor_a, factor_b) = (V::multiplier(*coefs_a.add(row)), V::multiplier(*coefs_b.add(row)));
            for (u, sum) in sums.iter_mut().enumerate() {
                *sum = if PLAIN && row == 0 {
                    V::xor3(*sum, a[u], b[u])
                } else {
                    V::xor3(*sum, V::product(a[u], factor_a), V::product(b[u], factor_b))
                };
            }
        }
    }
}

/// A register of bytes and its arithmetic. All functions need the tier's features and, where they take a pointer, that
/// `BYTES` bytes are there.
trait Vector {
    type Register: Copy;
    /// What a product needs of its constant factor.
    type Multiplier: Copy;
    /// Which bytes of a vector are there: nothing where all are.
    type Mask: Copy;
    const BYTES: usize;

    unsafe fn zero() -> Self::Register;
    unsafe fn load(from: *const u8, mask: Self::Mask) -> Self::Register;
    unsafe fn store(to: *mut u8, value: Self::Register, mask: Self::Mask);
    unsafe fn xor(a: Self::Register, b: Self::Register) -> Self::Register;
    unsafe fn xor3(a: Self::Register, b: Self::Register, c: Self::Register) -> Self::Register;
    unsafe fn multiplier(coef: u8) -> Self::Multiplier;
    unsafe fn product(value: Self::Register, by: Self::Multiplier) -> Self::Register;
}

/// AVX-512 + GFNI.
struct Wide;

impl Vector for Wide {
    type Register = __m512i;
    type Multiplier = __m512i;
    type Mask = ();
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn zero() -> __m512i {
        // SAFETY: the tier's features.
        unsafe { _mm512_setzero_si512() }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8, (): ()) -> __m512i {
        // SAFETY: the caller's.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut u8, value: __m512i, (): ()) {
        // SAFETY: the caller's.
        unsafe { _mm512_storeu_si512(to.cast(), value) }
    }
    #[inline(always)]
    unsafe fn xor(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the tier's features.
        unsafe { _mm512_xor_si512(a, b) }
    }
    #[inline(always)]
    unsafe fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        // SAFETY: the tier's features. 0x96 is the truth table of a ^ b ^ c.
        unsafe { _mm512_ternarylogic_epi64::<0x96>(a, b, c) }
    }
    #[inline(always)]
    unsafe fn multiplier(coef: u8) -> __m512i {
        // SAFETY: the tier's features.
        unsafe { _mm512_set1_epi64(AFFINE[coef as usize] as i64) }
    }
    #[inline(always)]
    unsafe fn product(value: __m512i, by: __m512i) -> __m512i {
        // SAFETY: the tier's features.
        unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(value, by) }
    }
}

/// AVX-512 + GFNI for a last vector that may be short; masked-off bytes are neither read nor written.
struct Masked;

impl Vector for Masked {
    type Register = __m512i;
    type Multiplier = __m512i;
    type Mask = __mmask64;
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn zero() -> __m512i {
        // SAFETY: the tier's features.
        unsafe { Wide::zero() }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8, mask: __mmask64) -> __m512i {
        // SAFETY: the caller's.
        unsafe { _mm512_maskz_loadu_epi8(mask, from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut u8, value: __m512i, mask: __mmask64) {
        // SAFETY: the caller's.
        unsafe { _mm512_mask_storeu_epi8(to.cast(), mask, value) }
    }
    #[inline(always)]
    unsafe fn xor(a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: the tier's features.
        unsafe { Wide::xor(a, b) }
    }
    #[inline(always)]
    unsafe fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        // SAFETY: the tier's features.
        unsafe { Wide::xor3(a, b, c) }
    }
    #[inline(always)]
    unsafe fn multiplier(coef: u8) -> __m512i {
        // SAFETY: the tier's features.
        unsafe { Wide::multiplier(coef) }
    }
    #[inline(always)]
    unsafe fn product(value: __m512i, by: __m512i) -> __m512i {
        // SAFETY: the tier's features.
        unsafe { Wide::product(value, by) }
    }
}

/// AVX2 + GFNI.
struct Gfni;

impl Vector for Gfni {
    type Register = __m256i;
    type Multiplier = __m256i;
    type Mask = ();
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn zero() -> __m256i {
        // SAFETY: the tier's features.
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8, (): ()) -> __m256i {
        // SAFETY: the caller's.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut u8, value: __m256i, (): ()) {
        // SAFETY: the caller's.
        unsafe { _mm256_storeu_si256(to.cast(), value) }
    }
    #[inline(always)]
    unsafe fn xor(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the tier's features.
        unsafe { _mm256_xor_si256(a, b) }
    }
    #[inline(always)]
    unsafe fn xor3(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        // SAFETY: the tier's features.
        unsafe { _mm256_xor_si256(_mm256_xor_si256(b, c), a) }
    }
    #[inline(always)]
    unsafe fn multiplier(coef: u8) -> __m256i {
        // SAFETY: the tier's features.
        unsafe { _mm256_set1_epi64x(AFFINE[coef as usize] as i64) }
    }
    #[inline(always)]
    unsafe fn product(value: __m256i, by: __m256i) -> __m256i {
        // SAFETY: the tier's features.
        unsafe { _mm256_gf2p8affine_epi64_epi8::<0>(value, by) }
    }
}

/// AVX2 alone: the products of the low and of the high nibble are looked up and added.
struct Shuffle;

impl Vector for Shuffle {
    type Register = __m256i;
    type Multiplier = (__m256i, __m256i);
    type Mask = ();
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn zero() -> __m256i {
        // SAFETY: the tier's features.
        unsafe { _mm256_setzero_si256() }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8, (): ()) -> __m256i {
        // SAFETY: the caller's.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store(to: *mut u8, value: __m256i, (): ()) {
        // SAFETY: the caller's.
        unsafe { _mm256_storeu_si256(to.cast(), value) }
    }
    #[inline(always)]
    unsafe fn xor(a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: the tier's features.
        unsafe { _mm256_xor_si256(a, b) }
    }
    #[inline(always)]
    unsafe fn xor3(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        // SAFETY: the tier's features.
        unsafe { _mm256_xor_si256(_mm256_xor_si256(b, c), a) }
    }
    #[inline(always)]
    unsafe fn multiplier(coef: u8) -> (__m256i, __m256i) {
        let [low, high] = &NIBBLES[coef as usize];
        // SAFETY: the tier's features; each table has 16 bytes.
        unsafe {
            (
                _mm256_broadcastsi128_si256(_mm_loadu_si128(low.as_ptr().cast())),
                _mm256_broadcastsi128_si256(_mm_loadu_si128(high.as_ptr().cast())),
            )
        }
    }
    #[inline(always)]
    unsafe fn product(value: __m256i, (low, high): (__m256i, __m256i)) -> __m256i {
        // SAFETY: the tier's features.
        unsafe {
            let nibble = _mm256_set1_epi8(0x0f);
            let of_low = _mm256_shuffle_epi8(low, _mm256_and_si256(value, nibble));
            let of_high = _mm256_shuffle_epi8(high, _mm256_and_si256(_mm256_srli_epi64::<4>(value), nibble));
            _mm256_xor_si256(of_low, of_high)
        }
    }
}

/// For each coefficient the 8 x 8 bit matrix of its product: byte 7 - i holds the row of result bit i.
static AFFINE: [u64; 256] = {
    let mut table = [0; 256];
    let mut coef = 0;
    while coef < 256 {
        let mut bit_in = 0;
        while bit_in < 8 {
            let column = mul(coef as u8, 1 << bit_in);
            let mut bit_out = 0;
            while bit_out < 8 {
                if column >> bit_out & 1 == 1 {
                    table[coef] |= 1 << ((7 - bit_out) * 8 + bit_in);
                }
                bit_out += 1;
            }
            bit_in += 1;
        }
        coef += 1;
    }
    table
};

/// For each coefficient its products with the 16 low and with the 16 high nibbles.
static NIBBLES: [[[u8; 16]; 2]; 256] = {
    let mut table = [[[0; 16]; 2]; 256];
    let mut coef = 0;
    while coef < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            table[coef][0][nibble] = mul(coef as u8, nibble as u8);
            table[coef][1][nibble] = mul(coef as u8, (nibble as u8) << 4);
            nibble += 1;
        }
        coef += 1;
    }
    table
};
