//! Finding chunks that are wrong though nobody said so.
//!
//! A code with r chunks beyond k tells up to r / 2 wrong chunks from right ones, byte by byte, because fewer bytes than
//! that lie between any two codewords. Whoever searches goes through the bytes once: where checks fail, the chunks that
//! are wrong at that place are found from that place alone and taken as lost from there on.
//!
//! Invariants:
//! 1. Every byte of every chunk takes part: a single flipped bit is found.
//! 2. What is found is right if no more chunks are wrong than can be found; if more are, that is said wherever the bytes
//!    show it. No code can always show it: enough wrong chunks look like a right stripe.
//!
//! Left out: checksums, which tell wrong chunks up to m and one by one (the chunk layer has them).

use thiserror::Error;

use crate::{ChunkIndex, CodeSpec, ErasureCode, ReadCosts, Tier, grs::Grs, kernel::Matrix};

/// Why the wrong chunks of a stripe cannot be named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LocateError {
    /// Nothing is left to check against.
    #[error("{spec}: {available} chunks can be read, {needed} are needed to see whether one is wrong")]
    NothingToCheck {
        /// The code.
        spec: CodeSpec,
        /// Chunks that can be read.
        available: u16,
        /// One more than recovery needs.
        needed: u16,
    },
    /// The bytes agree with no stripe in which so few chunks are wrong.
    #[error("{spec}: more than {most} of {available} chunks are wrong")]
    TooManyWrong {
        /// The code.
        spec: CodeSpec,
        /// Chunks that were given.
        available: u16,
        /// How many wrong ones could be found.
        most: u16,
    },
    /// Something is wrong, but there are too many sets of chunks to try.
    #[error("{spec}: bytes are wrong, and there are too many sets of {count} of {chunks} chunks to try")]
    TooManySets {
        /// The code.
        spec: CodeSpec,
        /// Chunks among which the wrong ones are.
        chunks: u16,
        /// Chunks of the sets that were not tried.
        count: u16,
    },
    /// The chunks are longer than can be read by a plan.
    #[error("{spec}: sub-chunks of {sub_bytes} bytes are too long to be searched, the limit is {limit}", limit = u32::MAX)]
    TooLong {
        /// The code.
        spec: CodeSpec,
        /// Bytes of a sub-chunk.
        sub_bytes: u64,
    },
}

/// The most sets of chunks of one size that are tried.
const SETS_MAX: usize = 20_000;

/// Bytes of each chunk that are checked at once.
const STRIP_BYTES: usize = 4096;

/// [`ErasureCode::locate`] for codes of the Reed-Solomon family: `chunks[z]` is chunk z.
pub(crate) fn by_points(
    tier: Tier,
    spec: CodeSpec,
    code: &Grs,
    chunks: &[Option<&[u8]>],
) -> Result<Vec<ChunkIndex>, LocateError> {
    let bytes = assert_chunks(chunks, code.chunks());
    let available: Vec<u16> = (0..).zip(chunks).filter(|(_, bytes)| bytes.is_some()).map(|(z, _)| z).collect();
    let room = room(spec, available.len(), usize::from(spec.shape().data))?;
    let most = room / 2;
    let mut wrong: Vec<u16> = Vec::new();
    let mut check = Check::new(code, &available);
    let mut at = 0;
    while at < bytes {
        let strip = STRIP_BYTES.min(bytes - at);
        let Some(place) = check.failing(tier, chunks, at, strip) else {
            at += strip;
            continue;
        };
        // Strips that held with less known to be wrong hold still, so the search goes on here.
        let column: Vec<u8> = check.have.iter().map(|z| chunk(chunks, *z)[place]).collect();
        let found = code.wrong(&check.have, &column, most - wrong.len()).filter(|found| !found.is_empty());
        wrong.extend(found.ok_or_else(|| too_many(spec, available.len(), most))?);
        let rest: Vec<u16> = available.iter().copied().filter(|z| !wrong.contains(z)).collect();
        check = Check::new(code, &rest);
    }
    wrong.sort_unstable();
    Ok(wrong.into_iter().map(ChunkIndex).collect())
}

/// The sums over some chunks that are zero for a codeword.
struct Check {
    have: Vec<u16>,
    sums: Matrix,
    out: Vec<Vec<u8>>,
}

impl Check {
    /// All chunks beyond the first k of `have` are predicted by these and compared.
    fn new(code: &Grs, have: &[u16]) -> Self {
        let (basis, rest) = have.split_at(usize::from(code.data()));
        let rows = code.solve(rest, basis);
        let sums = Matrix::dense(rest.len(), have.len(), |row, term| match term.checked_sub(basis.len()) {
            None => rows[row][term],
            Some(at) => u8::from(at == row),
        });
        Self { have: have.to_vec(), sums, out: vec![vec![0; STRIP_BYTES]; rest.len()] }
    }

    /// The first byte from `at` on, in one strip, at which a sum is not zero.
    fn failing(&mut self, tier: Tier, chunks: &[Option<&[u8]>], at: usize, strip: usize) -> Option<usize> {
        let sources: Vec<&[u8]> = self.have.iter().map(|z| &chunk(chunks, *z)[at..][..strip]).collect();
        let mut out: Vec<&mut [u8]> = self.out.iter_mut().map(|out| &mut out[..strip]).collect();
        self.sums.combine(tier, &sources, &mut out);
        out.iter().filter_map(|out| out.iter().position(|byte| *byte != 0)).min().map(|first| at + first)
    }
}

/// [`ErasureCode::locate`] for any code, by trial: sets of chunks are taken as lost, small ones first, until the rest of
/// a column agrees.
pub(crate) fn by_trial<C: ErasureCode + ?Sized>(
    code: &C,
    chunks: &[Option<&[u8]>],
) -> Result<Vec<ChunkIndex>, LocateError> {
    by_column(code, chunks, |column, most| {
        let left = column.iter().flatten().count();
        for count in 1..=most {
            if sets(left, count) > SETS_MAX {
                let number = |chunks: usize| u16::try_from(chunks).expect("a code has fewer chunks");
                return Err(LocateError::TooManySets { spec: code.spec(), chunks: number(left), count: number(count) });
            }
            if let Some(found) = find_set(code, column, count) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    })
}

/// [`ErasureCode::locate`] for codes whose chunks z, z + k, z + 2k .. are copies of each other: what most copies say is right.
/// No more are wrong than half of those that can be spared, so the right ones are more than the wrong ones of each.
pub(crate) fn by_majority<C: ErasureCode + ?Sized>(
    code: &C,
    chunks: &[Option<&[u8]>],
) -> Result<Vec<ChunkIndex>, LocateError> {
    let data = usize::from(code.shape().data);
    by_column(code, chunks, |column, most| {
        let mut wrong = Vec::new();
        for first in 0..data {
            let copies = || (first..).step_by(data).zip(column[first..].iter().step_by(data));
            let there: Vec<&Vec<u8>> = copies().filter_map(|(_, copy)| copy.as_ref()).collect();
            let like = |bytes: &Vec<u8>| there.iter().filter(|other| **other == bytes).count();
            let Some(right) = there.iter().find(|bytes| 2 * like(bytes) > there.len()) else { return Ok(None) };
            let others = copies().filter(|(_, copy)| copy.as_ref().is_some_and(|copy| copy != *right));
            wrong.extend(others.map(|(z, _)| u16::try_from(z).expect("a code has fewer chunks")));
        }
        Ok((wrong.len() <= most).then_some(wrong))
    })
}

/// [`ErasureCode::locate`] where the stripe fails, column by column: `find` gets the bytes of one column of sub-chunks,
/// of all chunks that can be read and are not known to be wrong, and names so many further wrong ones at most.
pub(crate) fn by_column<C: ErasureCode + ?Sized>(
    code: &C,
    chunks: &[Option<&[u8]>],
    find: impl Fn(&[Option<Vec<u8>>], usize) -> Result<Option<Vec<u16>>, LocateError>,
) -> Result<Vec<ChunkIndex>, LocateError> {
    let (spec, shape) = (code.spec(), code.shape());
    let bytes = assert_chunks(chunks, shape.chunks());
    let missing = chunks.iter().filter(|chunk| chunk.is_none()).count();
    let tolerance = usize::from(spec.tolerance());
    let available = chunks.len() - missing;
    let room = room(spec, available, chunks.len() - tolerance)?;
    let most = room / 2;
    let (alpha, sub_bytes) = (shape.alpha as usize, bytes / shape.alpha as usize);
    assert!(bytes == alpha * sub_bytes, "{bytes} bytes do not divide into {alpha} sub-chunks");
    let Ok(sub_bytes_32) = u32::try_from(sub_bytes) else {
        return Err(LocateError::TooLong { spec, sub_bytes: sub_bytes as u64 });
    };

    let mut known = chunks.to_vec();
    let mut wrong: Vec<u16> = Vec::new();
    while let Some(place) = disagreement(code, &known, sub_bytes_32) {
        let column = |chunk: &Option<&[u8]>| -> Option<Vec<u8>> {
            chunk.map(|bytes| bytes.iter().skip(place).step_by(sub_bytes).copied().collect())
        };
        let column: Vec<Option<Vec<u8>>> = known.iter().map(column).collect();
        let found = find(&column, most - wrong.len())?.ok_or_else(|| too_many(spec, available, most))?;
        for z in &found {
            known[usize::from(*z)] = None;
        }
        wrong.extend(found);
    }
    wrong.sort_unstable();
    Ok(wrong.into_iter().map(ChunkIndex).collect())
}

/// The first byte within the sub-chunks at which the chunks that are known belong to no codeword.
fn disagreement<C: ErasureCode + ?Sized>(code: &C, known: &[Option<&[u8]>], sub_bytes: u32) -> Option<usize> {
    let shape = code.shape();
    let bytes = shape.alpha as usize * sub_bytes as usize;
    let lost = |z: &ChunkIndex| known[z.at()].is_none();
    let costs: Vec<Option<u32>> = known.iter().map(|chunk| chunk.map(|_| 1)).collect();
    let costs = ReadCosts { chunks: &costs, sub_bytes, granule: 1 };
    let want: Vec<ChunkIndex> = (0..shape.data).map(ChunkIndex).filter(lost).collect();
    let plan = code.plan_read(&want, &costs).expect("fewer are taken as lost than the code tolerates");
    let whole = |z: ChunkIndex| known[z.at()].expect("a plan reads what is there");
    let fetched: Vec<Vec<u8>> = plan.reads.iter().map(|read| read.cut(whole(read.chunk), sub_bytes)).collect();
    let fetched: Vec<&[u8]> = fetched.iter().map(Vec::as_slice).collect();
    let mut made = vec![vec![0; bytes]; want.len()];
    code.recover(&plan, &fetched, &mut made.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());

    let mut made = made.iter();
    let data = known[..shape.data.into()].iter().map(|chunk| match chunk {
        Some(bytes) => *bytes,
        None => made.next().expect("one for each lost data chunk"),
    });
    let data: Vec<&[u8]> = data.collect();
    let mut parity = vec![vec![0; bytes]; shape.parity.into()];
    code.encode(&data, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    let checked = parity.iter().zip(&known[shape.data.into()..]);
    let differing = |(made, known): (&Vec<u8>, &Option<&[u8]>)| {
        let differs = made.iter().zip((*known)?).enumerate().filter(|(_, (a, b))| a != b);
        differs.map(|(at, _)| at % sub_bytes as usize).min()
    };
    checked.filter_map(differing).min()
}

/// The first set of so many further chunks without which a column agrees.
fn find_set<C: ErasureCode + ?Sized>(code: &C, column: &[Option<Vec<u8>>], count: usize) -> Option<Vec<u16>> {
    let candidates: Vec<u16> = (0..).zip(column).filter(|(_, chunk)| chunk.is_some()).map(|(z, _)| z).collect();
    let mut picked: Vec<usize> = (0..count).collect();
    loop {
        let set: Vec<u16> = picked.iter().map(|at| candidates[*at]).collect();
        let mut rest: Vec<Option<&[u8]>> = column.iter().map(Option::as_deref).collect();
        for z in &set {
            rest[usize::from(*z)] = None;
        }
        if disagreement(code, &rest, 1).is_none() {
            return Some(set);
        }
        // The next set in lexicographic order.
        let at = (0..count).rev().find(|at| picked[*at] < candidates.len() - count + at)?;
        picked[at] += 1;
        for later in at + 1..count {
            picked[later] = picked[later - 1] + 1;
        }
    }
}

/// How many sets of `count` of so many chunks there are.
fn sets(chunks: usize, count: usize) -> usize {
    (0..count).fold(1, |sets: usize, at| sets.saturating_mul(chunks - at) / (at + 1))
}

/// How many chunks there are beyond what recovery needs.
fn room(spec: CodeSpec, available: usize, needed: usize) -> Result<usize, LocateError> {
    let count = |chunks: usize| u16::try_from(chunks).expect("a code has fewer chunks");
    match available.checked_sub(needed) {
        None | Some(0) => {
            Err(LocateError::NothingToCheck { spec, available: count(available), needed: count(needed + 1) })
        }
        Some(room) => Ok(room),
    }
}

fn too_many(spec: CodeSpec, available: usize, most: usize) -> LocateError {
    let count = |chunks: usize| u16::try_from(chunks).expect("a code has fewer chunks");
    LocateError::TooManyWrong { spec, available: count(available), most: count(most) }
}

/// The length of the chunks.
fn assert_chunks(chunks: &[Option<&[u8]>], count: u16) -> usize {
    assert_eq!(chunks.len(), usize::from(count), "one entry for each chunk");
    let mut lengths = chunks.iter().flatten().map(|chunk| chunk.len());
    let bytes = lengths.next().unwrap_or(0);
    assert!(lengths.all(|length| length == bytes), "chunks differ in length");
    bytes
}

fn chunk<'a>(chunks: &[Option<&'a [u8]>], z: u16) -> &'a [u8] {
    chunks[usize::from(z)].expect("only what can be read is checked")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::{
        ChunkIndex, LocateError, Shape,
        tests::{build, noise, stripe},
    };

    /// Codes that are searched by trial, and how many wrong chunks of a whole stripe they name: half of their tolerance.
    const BY_TRIAL: [(&str, usize); 13] = [
        ("lrc:4+2+1", 1),
        ("lrc:4+2+2", 1),
        ("lrc:12+2+2", 1),
        ("lrc:8+2+4", 2),
        ("pc:2x2", 1),
        ("pc:2x5", 1),
        ("rsm:3+2", 1),
        ("rsm:3+3", 1),
        ("rsm:6+4", 2),
        ("mirror:4x3", 1),
        ("mirror:3x5", 2),
        ("hybrid:rsm:3+2x2", 1),
        ("mixed:3+2x3:1", 1),
    ];

    /// Chunks as `locate` wants them, without those in `missing`.
    fn given<'a>(chunks: &'a [Vec<u8>], missing: &[u16]) -> Vec<Option<&'a [u8]>> {
        (0..).zip(chunks).map(|(z, chunk)| (!missing.contains(&z)).then_some(&chunk[..])).collect()
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    #[cfg_attr(miri, ignore = "it has 4 GiB")]
    fn chunks_that_are_too_long_for_a_plan_are_refused() {
        let code = build("replica:3");
        let sub_bytes = 1_u64 << 32;
        // Nobody reads or writes it, so it takes no memory.
        let chunk = vec![0; sub_bytes as usize];
        let found = code.locate(&[Some(&chunk[..]); 3]);
        assert_eq!(found, Err(LocateError::TooLong { spec: code.spec(), sub_bytes }));
    }

    #[test]
    fn wrong_chunks_are_named_up_to_half_of_the_parity() {
        for (text, sub_bytes) in
            [("rs:10+4", 9001), ("isal:6+5", 300), ("klauspost:6+4", 300), ("replica:5", 67), ("clay:3+4:5", 2)]
        {
            let code = build(text);
            let right = stripe(&*code, sub_bytes, 6);
            let Shape { data, parity, .. } = code.shape();
            let n = code.shape().chunks();
            assert_eq!(code.locate(&given(&right, &[])), Ok(vec![]), "{text}");
            for a in 0..n {
                for b in a..n {
                    // One bit of each, far apart, so that no place shows both.
                    let mut chunks = right.clone();
                    chunks[usize::from(a)][0] ^= 1;
                    *chunks[usize::from(b)].last_mut().expect("chunks of some bytes") ^= 0x80;
                    let mut wrong = vec![ChunkIndex(a), ChunkIndex(b)];
                    wrong.dedup();
                    let missing: Vec<u16> = if parity == 5 { vec![(a + 1) % n] } else { vec![] };
                    if missing != [b] {
                        assert_eq!(code.locate(&given(&chunks, &missing)), Ok(wrong), "{text} without {missing:?}");
                    }
                }
            }
            let missing: Vec<u16> = (0..parity).collect();
            let error = LocateError::NothingToCheck { spec: code.spec(), available: data, needed: data + 1 };
            assert_eq!(code.locate(&given(&right, &missing)), Err(error));
        }
    }

    /// Each way of searching. What Miri runs.
    #[test]
    fn small_codes_name_a_wrong_chunk() {
        for text in ["replica:3", "mirror:2x3", "rs:3+2", "clay:2+2:3", "lrc:4+2+1", "pc:2x2"] {
            let code = build(text);
            let mut chunks = stripe(&*code, 3, 6);
            assert_eq!(code.locate(&given(&chunks, &[])), Ok(vec![]), "{text}");
            chunks[1][2] ^= 0x41;
            assert_eq!(code.locate(&given(&chunks, &[])), Ok(vec![ChunkIndex(1)]), "{text}");
        }
    }

    #[test]
    fn a_majority_of_copies_names_wrong_chunks_of_mirrors_too_wide_for_trial() {
        // 32,385 pairs of the first one's chunks, and far more sets of the other's.
        for (text, wrong) in [("mirror:51x5", vec![7, 200]), ("replica:255", (60..187).collect::<Vec<u16>>())] {
            let code = build(text);
            let mut chunks = stripe(&*code, 40, 6);
            for z in &wrong {
                chunks[usize::from(*z)][usize::from(*z) % 40] ^= 1 + *z as u8 % 3;
            }
            let expected = wrong.iter().copied().map(ChunkIndex).collect();
            assert_eq!(code.locate(&given(&chunks, &[])), Ok(expected), "{text}");
            let available = code.shape().chunks();
            chunks[1][39] ^= 9;
            let most = u16::try_from(wrong.len()).expect("few");
            let error = LocateError::TooManyWrong { spec: code.spec(), available, most };
            assert_eq!(code.locate(&given(&chunks, &[])), Err(error), "{text}");
        }
    }

    proptest! {
        /// Any chunks, as many as can be named, wrong in any bytes, with as many missing as leave the room for it.
        #[test]
        fn wrong_chunks_of_local_product_and_mergeable_codes_are_named(
            (text, most) in prop::sample::select(&BY_TRIAL[..]),
            order in Just((0..16u16).collect::<Vec<_>>()).prop_shuffle(),
            wrong in 0..3usize, missing in 0..6usize,
            errors in prop::collection::vec((0..70usize, 1..=255u8), 1..4),
        ) {
            let code = build(text);
            let n = code.shape().chunks();
            let tolerance = usize::from(code.spec().tolerance());
            let wrong = wrong.min(most);
            let missing = missing.min(tolerance - 2 * wrong);
            let order: Vec<u16> = order.into_iter().filter(|z| *z < n).collect();
            let mut chunks = stripe(&*code, 70, 6);
            for z in &order[..wrong] {
                let mut error = vec![0; 70];
                errors.iter().for_each(|(at, byte)| error[*at] = *byte);
                chunks[usize::from(*z)].iter_mut().zip(error).for_each(|(byte, error)| *byte ^= error);
            }
            let mut expected: Vec<ChunkIndex> = order[..wrong].iter().copied().map(ChunkIndex).collect();
            expected.sort_unstable();
            let found = code.locate(&given(&chunks, &order[wrong..wrong + missing]));
            if missing == tolerance {
                prop_assert!(matches!(found, Err(LocateError::NothingToCheck { .. })), "{found:?}");
            } else {
                prop_assert_eq!(found, Ok(expected), "{}", text);
            }
        }

        /// One more than can be named: where the code keeps stripes far enough apart for it, that is always seen.
        #[test]
        fn one_wrong_chunk_too_many_is_told(
            (text, most) in prop::sample::select(&[BY_TRIAL[1], BY_TRIAL[2], BY_TRIAL[3], BY_TRIAL[5], BY_TRIAL[7]][..]),
            order in Just((0..16u16).collect::<Vec<_>>()).prop_shuffle(),
            places in prop::array::uniform3(0..70usize), error in 1..=255u8,
        ) {
            let code = build(text);
            let n = code.shape().chunks();
            let mut chunks = stripe(&*code, 70, 6);
            for (z, at) in order.iter().filter(|z| **z < n).zip(places).take(most + 1) {
                chunks[usize::from(*z)][at] ^= error;
            }
            let most = u16::try_from(most).expect("few");
            let error = LocateError::TooManyWrong { spec: code.spec(), available: n, most };
            prop_assert_eq!(code.locate(&given(&chunks, &[])), Err(error));
        }
    }

    #[test]
    fn many_wrong_bytes_in_the_longest_codes_are_found() {
        for (text, wrong) in
            [("rs:246+9", vec![0, 99, 245, 246]), ("rs:250+5", vec![3, 254]), ("rs:252+3", vec![255 - 1])]
        {
            let code = build(text);
            let mut chunks = stripe(&*code, 5000, 6);
            for z in &wrong {
                let noise = noise(&mut u64::from(*z), 5000);
                chunks[usize::from(*z)].iter_mut().zip(noise).for_each(|(byte, noise)| *byte ^= noise);
            }
            assert_eq!(
                code.locate(&given(&chunks, &[])),
                Ok(wrong.iter().copied().map(ChunkIndex).collect()),
                "{text}"
            );
        }
    }

    #[test]
    fn more_wrong_chunks_than_can_be_named_are_an_error_with_the_numbers() {
        for text in ["rs:10+4", "clay:4+2:5"] {
            let code = build(text);
            let mut chunks = stripe(&*code, 64, 6);
            for (seed, chunk) in (0..).zip(&mut chunks[1..4]) {
                let noise = noise(&mut { seed }, chunk.len());
                chunk.copy_from_slice(&noise);
            }
            let (available, most) = (code.shape().chunks(), code.shape().parity / 2);
            let error = code.locate(&given(&chunks, &[])).expect_err("three wrong chunks");
            assert_eq!(error, LocateError::TooManyWrong { spec: code.spec(), available, most });
            assert_eq!(error.to_string(), format!("{text}: more than {most} of {available} chunks are wrong"));
        }
    }
}
