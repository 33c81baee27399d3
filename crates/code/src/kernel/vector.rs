//! The loop of all vector tiers, written once over [`Vector`].
//!
//! Compiled for 1 to 10 rows, with and without a plain first row, which begins anew with each stretch. Sources are taken two
//! at a time, so that one three-way XOR adds two products.
//!
//! Invariants:
//! 1. Accumulators are local arrays of constant size, so they live in registers.
//! 2. Code generic over `Vector` is always inlined into a function that enables the tier's features.

use std::mem::MaybeUninit;

use super::{Pair, Pass, Start};

/// A register of bytes and its arithmetic. All functions need the tier's features and, where they take a pointer, that
/// `BYTES` bytes are there.
pub(super) trait Vector {
    type Register: Copy;
    /// What a product needs of its constant factor.
    type Multiplier: Copy;
    /// Which bytes of a vector are there: nothing where all are.
    type Mask: Copy;
    const BYTES: usize;

    unsafe fn zero() -> Self::Register;
    unsafe fn load(from: *const u8, mask: Self::Mask) -> Self::Register;
    unsafe fn store(to: *mut u8, value: Self::Register, mask: Self::Mask);
    /// Stores past the caches; `to` is aligned to BYTES. Short vectors are stored as ever.
    unsafe fn stream(to: *mut u8, value: Self::Register, mask: Self::Mask);
    /// Starts to bring the line of `from` to the first cache, if there is one; any address will do.
    unsafe fn prefetch(from: *const u8);
    unsafe fn xor(a: Self::Register, b: Self::Register) -> Self::Register;
    unsafe fn xor3(a: Self::Register, b: Self::Register, c: Self::Register) -> Self::Register;
    unsafe fn multiplier(coef: u8) -> Self::Multiplier;
    unsafe fn product(value: Self::Register, by: Self::Multiplier) -> Self::Register;
}

/// Calls `$run::<ROWS, PLAIN, PAIRED>($pass)` for the pass' number of rows, its first row and its pairs.
macro_rules! by_rows {
    ($pass:ident, $run:ident) => { by_rows!($pass, $run, 1 2 3 4 5 6 7 8 9 10) };
    ($pass:ident, $run:ident, $($rows:literal)*) => {
        match ($pass.rows(), !$pass.plain.is_empty(), !$pass.pairs.is_empty()) {
            $(
                // SAFETY: the caller's; the tier's features are available.
                ($rows, false, false) => unsafe { $run::<$rows, false, false>($pass) },
                // SAFETY: the same.
                ($rows, true, false) => unsafe { $run::<$rows, true, false>($pass) },
                // SAFETY: the same.
                ($rows, false, true) => unsafe { $run::<$rows, false, true>($pass) },
                // SAFETY: the same.
                ($rows, true, true) => unsafe { $run::<$rows, true, true>($pass) },
            )*
            (rows, ..) => unreachable!("{rows} rows in one pass"),
        }
    };
}
pub(super) use by_rows;

/// All terms and rows for UNROLL vectors of columns, from `at` on.
///
/// # Safety
/// As [`Pass::run`], with as many rows as ROWS and UNROLL vectors left, the last one up to the mask.
#[inline(always)]
pub(super) unsafe fn columns<
    V: Vector,
    const ROWS: usize,
    const UNROLL: usize,
    const PLAIN: bool,
    const PAIRED: bool,
>(
    pass: &Pass,
    at: usize,
    mask: V::Mask,
) {
    // SAFETY: the caller's; `coefs` moves on by a byte for each target at each term, and there are so many for each.
    // A plain pass has a stretch; the sum of each but the last two waits in its place or is stored when the next one is done.
    unsafe {
        let targets = pass.targets.get_unchecked(..ROWS - usize::from(PLAIN));
        if pass.manner.claimed > 0 {
            for target in pass.plain.iter().map(|stretch| &stretch.target).chain(targets) {
                prefetch::<V, UNROLL>(*target, at + pass.manner.claimed);
            }
        }
        let mut coefs = pass.coefs.as_ptr();
        let mut sums = [[V::zero(); UNROLL]; ROWS];
        let mut from = 0;
        match pass.start {
            Start::Zero => {}
            Start::Targets => {
                if PLAIN {
                    sums[0] = load::<V, UNROLL>(pass.plain.get_unchecked(0).target.add(at), mask);
                }
                for (sums, target) in sums[usize::from(PLAIN)..].iter_mut().zip(targets) {
                    *sums = load::<V, UNROLL>(target.add(at), mask);
                }
            }
            Start::FirstSource => {
                sums = [load::<V, UNROLL>(pass.singles.get_unchecked(0).add(at), mask); ROWS];
                coefs = coefs.add(targets.len());
                from = 1;
            }
        }
        // Sums of stretches wait to be stored with all others: a store that misses the first cache holds up the sources that
        // are read behind it. The one done last waits in registers.
        let mut waiting = [const { MaybeUninit::uninit() }; WAITING_MAX];
        let mut done = sums[0];
        // All but one: the row of ones of a Reed-Solomon code takes no turn of this loop.
        if PLAIN && !PAIRED {
            for (number, [stretch, next]) in pass.plain.array_windows().enumerate() {
                let singles = pass.singles.get_unchecked(from..stretch.end);
                coefs = add_singles::<V, ROWS, UNROLL, PLAIN>(&mut sums, pass, singles, coefs, at, mask);
                if let Some(before) = number.checked_sub(1) {
                    match waiting.get_mut(before) {
                        Some(place) => _ = place.write(done),
                        None => store::<V, UNROLL>(pass, pass.plain[before].target.add(at), done, mask),
                    }
                }
                done = sums[0];
                sums[0] = match pass.start {
                    Start::Targets => load::<V, UNROLL>(next.target.add(at), mask),
                    Start::Zero | Start::FirstSource => [V::zero(); UNROLL],
                };
                from = stretch.end;
            }
        }
        let singles = pass.singles.get_unchecked(from..);
        coefs = add_singles::<V, ROWS, UNROLL, PLAIN>(&mut sums, pass, singles, coefs, at, mask);
        if PAIRED {
            add_pairs::<V, ROWS, UNROLL, PLAIN>(&mut sums, pass.pairs, coefs, at, mask);
        }
        if PLAIN {
            let (last, others) = pass.plain.split_last().unwrap_unchecked();
            if !PAIRED && let Some((last, others)) = others.split_last() {
                for (stretch, sums) in others.iter().zip(&waiting) {
                    store::<V, UNROLL>(pass, stretch.target.add(at), sums.assume_init(), mask);
                }
                store::<V, UNROLL>(pass, last.target.add(at), done, mask);
            }
            store::<V, UNROLL>(pass, last.target.add(at), sums[0], mask);
        }
        for (sums, target) in sums[usize::from(PLAIN)..].iter().zip(targets) {
            store::<V, UNROLL>(pass, target.add(at), *sums, mask);
        }
    }
}

/// So many sums of stretches wait in memory; those of further ones are stored when they are done.
const WAITING_MAX: usize = 8;

/// Adds singles, whose coefficients begin at `coefs`; returns where the next term's do.
///
/// # Safety
/// As [`columns`]; `singles` are some of the pass'.
#[inline(always)]
unsafe fn add_singles<V: Vector, const ROWS: usize, const UNROLL: usize, const PLAIN: bool>(
    sums: &mut [[V::Register; UNROLL]; ROWS],
    pass: &Pass,
    singles: &[*const u8],
    mut coefs: *const u8,
    at: usize,
    mask: V::Mask,
) -> *const u8 {
    let factors = ROWS - usize::from(PLAIN);
    // SAFETY: the caller's.
    unsafe {
        let (singles, odd_single) = singles.as_chunks::<2>();
        for [a, b] in singles {
            let (a, b) = (a.add(at), b.add(at));
            if pass.manner.ahead > 0 {
                prefetch::<V, UNROLL>(a, pass.manner.ahead);
                prefetch::<V, UNROLL>(b, pass.manner.ahead);
            }
            let (a, b) = (load::<V, UNROLL>(a, mask), load::<V, UNROLL>(b, mask));
            add_two::<V, ROWS, UNROLL, PLAIN>(sums, a, b, coefs, coefs.add(factors));
            coefs = coefs.add(2 * factors);
        }
        for a in odd_single {
            let a = load::<V, UNROLL>(a.add(at), mask);
            add_one::<V, ROWS, UNROLL, PLAIN>(sums, a, coefs);
            coefs = coefs.add(factors);
        }
    }
    coefs
}

/// Adds pairs, whose coefficients begin at `coefs`.
///
/// # Safety
/// As [`columns`].
#[inline(always)]
unsafe fn add_pairs<V: Vector, const ROWS: usize, const UNROLL: usize, const PLAIN: bool>(
    sums: &mut [[V::Register; UNROLL]; ROWS],
    pairs: &[Pair],
    mut coefs: *const u8,
    at: usize,
    mask: V::Mask,
) {
    let factors = ROWS - usize::from(PLAIN);
    // SAFETY: the caller's.
    unsafe {
        let (pairs, odd_pair) = pairs.as_chunks::<2>();
        for [a, b] in pairs {
            let (a, b) = (load_pair::<V, UNROLL>(a, at, mask), load_pair::<V, UNROLL>(b, at, mask));
            add_two::<V, ROWS, UNROLL, PLAIN>(sums, a, b, coefs, coefs.add(factors));
            coefs = coefs.add(2 * factors);
        }
        for a in odd_pair {
            let a = load_pair::<V, UNROLL>(a, at, mask);
            add_one::<V, ROWS, UNROLL, PLAIN>(sums, a, coefs);
            coefs = coefs.add(factors);
        }
    }
}

/// Column after column from `at` on, as long as UNROLL whole vectors are left, of a pass that starts from the first of two to
/// six sources, has one plain stretch and is not streamed; returns where it stopped. Nothing of other passes.
///
/// # Safety
/// As [`Pass::run`], with as many rows as ROWS, the first of which is plain if PLAIN says so, and pairs if PAIRED does.
#[inline(always)]
pub(super) unsafe fn few<
    V: Vector<Mask = ()>,
    const ROWS: usize,
    const UNROLL: usize,
    const PLAIN: bool,
    const PAIRED: bool,
>(
    pass: &Pass,
    at: usize,
) -> usize {
    let one_plain = PLAIN && !PAIRED && pass.plain.len() == 1;
    if !one_plain || pass.start != Start::FirstSource || pass.manner.streamed {
        return at;
    }
    // SAFETY: the caller's; one stretch, so many singles, no pairs.
    unsafe {
        match pass.singles.len() {
            2 => few_of::<V, ROWS, UNROLL, 2>(pass, at),
            3 => few_of::<V, ROWS, UNROLL, 3>(pass, at),
            4 => few_of::<V, ROWS, UNROLL, 4>(pass, at),
            5 => few_of::<V, ROWS, UNROLL, 5>(pass, at),
            6 => few_of::<V, ROWS, UNROLL, 6>(pass, at),
            _ => at,
        }
    }
}

/// The TERMS sources of such a pass. Pointers and factors of so few terms stay in registers.
///
/// # Safety
/// As [`Pass::run`], with as many rows as ROWS, one stretch, TERMS singles and no pairs.
#[inline(always)]
unsafe fn few_of<V: Vector<Mask = ()>, const ROWS: usize, const UNROLL: usize, const TERMS: usize>(
    pass: &Pass,
    mut at: usize,
) -> usize {
    // SAFETY: the caller's; each column stays within `bytes`.
    unsafe {
        let mut sources = [std::ptr::null(); TERMS];
        sources.copy_from_slice(pass.singles);
        let mut targets = [pass.plain[0].target; ROWS];
        targets[1..].copy_from_slice(pass.targets);
        let mut factors = [[V::multiplier(1); ROWS]; TERMS];
        for (term, factors) in factors.iter_mut().enumerate() {
            for (row, factor) in factors[1..].iter_mut().enumerate() {
                *factor = V::multiplier(*pass.coefs.get_unchecked(term * (ROWS - 1) + row));
            }
        }
        while at + UNROLL * V::BYTES <= pass.bytes {
            if pass.manner.claimed > 0 {
                for target in targets {
                    prefetch::<V, UNROLL>(target, at + pass.manner.claimed);
                }
            }
            let mut sums = [load::<V, UNROLL>(sources[0].add(at), ()); ROWS];
            let mut term = 1;
            while term + 1 < TERMS {
                let (a, b) =
                    (load::<V, UNROLL>(sources[term].add(at), ()), load::<V, UNROLL>(sources[term + 1].add(at), ()));
                for (row, sums) in sums.iter_mut().enumerate() {
                    for (u, sum) in sums.iter_mut().enumerate() {
                        *sum = if row == 0 {
                            V::xor3(*sum, a[u], b[u])
                        } else {
                            V::xor3(
                                *sum,
                                V::product(a[u], factors[term][row]),
                                V::product(b[u], factors[term + 1][row]),
                            )
                        };
                    }
                }
                term += 2;
            }
            if term < TERMS {
                let a = load::<V, UNROLL>(sources[term].add(at), ());
                for (row, sums) in sums.iter_mut().enumerate() {
                    for (u, sum) in sums.iter_mut().enumerate() {
                        *sum = V::xor(*sum, if row == 0 { a[u] } else { V::product(a[u], factors[term][row]) });
                    }
                }
            }
            for (target, sums) in targets.iter().zip(sums) {
                for (u, sum) in sums.into_iter().enumerate() {
                    V::store(target.add(at + u * V::BYTES), sum, ());
                }
            }
            at += UNROLL * V::BYTES;
        }
        at
    }
}

/// Brings the lines `ahead` of UNROLL vectors closer; the place may lie beyond the buffer.
///
/// # Safety
/// The tier's features.
#[inline(always)]
unsafe fn prefetch<V: Vector, const UNROLL: usize>(from: *const u8, ahead: usize) {
    for u in 0..UNROLL {
        // SAFETY: the tier's features; nothing is read.
        unsafe { V::prefetch(from.wrapping_add(ahead + u * V::BYTES)) }
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
/// UNROLL vectors can be written, up to the mask; aligned if the pass streams.
#[inline(always)]
unsafe fn store<V: Vector, const UNROLL: usize>(
    pass: &Pass,
    to: *mut u8,
    values: [V::Register; UNROLL],
    mask: V::Mask,
) {
    for (u, value) in values.into_iter().enumerate() {
        // SAFETY: the caller's.
        unsafe {
            let to = to.add(u * V::BYTES);
            if pass.manner.streamed { V::stream(to, value, mask) } else { V::store(to, value, mask) }
        }
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
/// A coefficient for each row that is not plain can be read at `coefs`.
#[inline(always)]
unsafe fn add_one<V: Vector, const ROWS: usize, const UNROLL: usize, const PLAIN: bool>(
    sums: &mut [[V::Register; UNROLL]; ROWS],
    a: [V::Register; UNROLL],
    coefs: *const u8,
) {
    for (row, sums) in sums.iter_mut().enumerate() {
        // SAFETY: the caller's.
        unsafe {
            if PLAIN && row == 0 {
                for (sum, a) in sums.iter_mut().zip(a) {
                    *sum = V::xor(*sum, a);
                }
                continue;
            }
            let factor = V::multiplier(*coefs.add(row - usize::from(PLAIN)));
            for (sum, a) in sums.iter_mut().zip(a) {
                *sum = V::xor(*sum, V::product(a, factor));
            }
        }
    }
}

/// # Safety
/// A coefficient for each row that is not plain can be read at `coefs_a` and at `coefs_b`.
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
            if PLAIN && row == 0 {
                for (u, sum) in sums.iter_mut().enumerate() {
                    *sum = V::xor3(*sum, a[u], b[u]);
                }
                continue;
            }
            let at = row - usize::from(PLAIN);
            let (factor_a, factor_b) = (V::multiplier(*coefs_a.add(at)), V::multiplier(*coefs_b.add(at)));
            for (u, sum) in sums.iter_mut().enumerate() {
                *sum = V::xor3(*sum, V::product(a[u], factor_a), V::product(b[u], factor_b));
            }
        }
    }
}
