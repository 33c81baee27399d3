//! Every tier against the scalar one, and the scalar one against the field.

use std::ops::Range;

use super::{
    Blend, BlendHow, Matrix, ProgramBuilder, Slot, Step, Target, Term, Tier, add_product, add_products, third::Third,
};
use crate::{
    field::{MUL, mul},
    tests::noise,
};

/// Bytes around each buffer that must stay as they are.
const MARGIN: usize = 70;

#[test]
fn scalar_sums_products() {
    let mut state = 3;
    let sources: Vec<Vec<u8>> = (0..3).map(|_| noise(&mut state, 5)).collect();
    let matrix = Matrix::new(&[vec![1, 1, 1], vec![7, 0, 200]], 3);
    let mut outs = vec![vec![9; 5]; 2];
    matrix.combine(Tier::Scalar, &slices(&sources), &mut slices_mut(&mut outs));
    for at in 0..5 {
        let [a, b, c] = [sources[0][at], sources[1][at], sources[2][at]];
        assert_eq!(outs[0][at], a ^ b ^ c);
        assert_eq!(outs[1][at], mul(7, a) ^ mul(200, c));
    }
}

#[test]
fn every_tier_sums_as_scalar_does_at_every_length_and_alignment() {
    for bytes in lengths(&[]) {
        // Row and term counts of different periods meet in all combinations over the lengths; 12 rows take two passes.
        let (rows, terms, plain) = (1 + bytes % 12, 1 + bytes % 5, bytes % 2);
        check_combine(rows, terms, plain == 1, bytes, bytes % 67);
    }
    if cfg!(miri) {
        return;
    }
    for rows in 1..=12 {
        for terms in 1..=7 {
            check_combine(rows, terms, false, 64 * 9 + 31, 1);
            check_combine(rows, terms, true, 64 * 9 + 31, 33);
        }
    }
    check_combine(11, 256, true, 4096 + 4095, 5);
}

#[test]
fn rows_take_their_own_terms_and_parts_of_them() {
    // Two groups of plain rows, dense rows over both, a copy, a row of nothing; more dense rows than a pass takes.
    let (terms, bytes) = (300, 5001);
    let coef = |row: usize, term: usize| match row {
        0 => u8::from(term < 150),
        1 => u8::from(term >= 150),
        2 => u8::from(term == 77),
        3 => 0,
        _ => (1 + (row * 31 + term * 7) % 255) as u8,
    };
    let rows: Vec<Vec<u8>> = (0..16).map(|row| (0..terms).map(|term| coef(row, term)).collect()).collect();
    let matrix = Matrix::new(&rows, terms);
    for (row, coefs) in rows.iter().enumerate() {
        assert!((0..terms).all(|term| matrix.coefficient(row, term) == coefs[term]));
    }
    let sources: Vec<Vec<u8>> = (0..terms).map(|term| noise(&mut (term as u64 + 1), bytes)).collect();
    let sources = slices(&sources);
    let sum = |row: usize, at: usize, from: usize| {
        (from..terms).fold(0, |sum, term| sum ^ mul(coef(row, term), sources[term][at]))
    };
    for tier in Tier::available() {
        let mut outs = vec![vec![0xcc; bytes]; rows.len()];
        matrix.combine(*tier, &sources, &mut slices_mut(&mut outs));
        // Once more from term 100 on leaves what the first hundred contribute.
        let mut first = outs.clone();
        matrix.accumulate(*tier, 100, &sources[100..], &mut slices_mut(&mut first));
        for (row, (out, first)) in outs.iter().zip(&first).enumerate() {
            for at in [0, 1, 4095, 4096, bytes - 1] {
                assert_eq!(out[at], sum(row, at, 0), "{tier}: row {row} at {at}");
                assert_eq!(first[at], sum(row, at, 0) ^ sum(row, at, 100), "{tier}: part of row {row} at {at}");
            }
        }
    }
}

#[test]
fn sums_of_nothing_are_zeros() {
    for tier in Tier::available() {
        for matrix in [Matrix::new(&[vec![], vec![]], 0), Matrix::dense(2, 0, |_, _| 1)] {
            let mut outs = vec![vec![0xcc; 100]; 2];
            matrix.combine(*tier, &[], &mut slices_mut(&mut outs));
            assert_eq!(outs, [[0; 100]; 2], "{tier}");
            outs[0][5] = 1;
            matrix.accumulate(*tier, 0, &[], &mut slices_mut(&mut outs));
            assert_eq!(outs[0][5], 1, "{tier}");
        }
    }
}

#[test]
fn every_manner_of_touching_memory_gives_the_same_bytes() {
    // Fetched ahead, streamed, streamed and fetched ahead; wide sums are streamed slice by slice, and sums of many sources
    // taken a few at a time.
    for (rows, terms, bytes) in
        [(2, 30, 50_001), (3, 30, 70_001), (2, 30, 140_003), (12, 20, 70_001), (3, 10, 70_001), (2, 4, 50_001)]
    {
        check_combine(rows, terms, true, bytes, 13);
    }
}

/// 0 to 257 and these; a few under Miri, which would take minutes.
fn lengths(long: &[usize]) -> impl Iterator<Item = usize> {
    let (step, long) = if cfg!(miri) { (41, &[][..]) } else { (1, long) };
    (0..=257).step_by(step).chain(long.iter().copied())
}

#[test]
fn plain_rows_over_stretches_share_a_pass_with_rows_over_all_terms() {
    // Local groups of an LRC: even, of an odd and of one term, one only, more than wait to be stored.
    let groups: [&[usize]; 6] = [&[6, 6], &[2; 6], &[3, 1, 4], &[5], &[1, 2], &[1; 12]];
    // More other rows than a pass takes, or none.
    let (others, lengths) = match cfg!(miri) {
        true => (&[2][..], &[3][..]),
        false => (&[0, 1, 2, 3, 9, 10, 12][..], &[0, 1, 31, 63, 64, 65, 127, 130, 257, 64 * 9 + 31][..]),
    };
    for (groups, others) in groups.iter().flat_map(|groups| others.iter().map(move |others| (groups, *others))) {
        for bytes in lengths {
            for same_first in [false, true] {
                check_stretches(groups, others, same_first, *bytes, bytes % 67);
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "long")]
fn stretches_are_the_same_in_every_manner_of_touching_memory() {
    for bytes in [70_001, 140_003, 280_001] {
        check_stretches(&[6, 5, 1], 2, false, bytes, 13);
    }
}

/// Rows of ones over `groups`, then `others` over all terms, which begin alike if `same_first`; every part of the terms.
fn check_stretches(groups: &[usize], others: usize, same_first: bool, bytes: usize, shift: usize) {
    let terms = groups.iter().sum();
    let mut rows = Vec::new();
    let mut from = 0;
    for group in groups {
        rows.push((0..terms).map(|term| (from..from + group).contains(&term).into()).collect::<Vec<u8>>());
        from += group;
    }
    let coef = |row: usize, term: usize| if same_first && term == 0 { 1 } else { 2 + (row * 31 + term * 7) % 254 };
    rows.extend((0..others).map(|row| (0..terms).map(|term| coef(row, term) as u8).collect()));
    let matrix = Matrix::new(&rows, terms);
    for (row, coefs) in rows.iter().enumerate() {
        assert!((0..terms).all(|term| matrix.coefficient(row, term) == coefs[term]));
    }
    // Long sums take one part, which begins and ends inside a stretch.
    let firsts = if bytes < 1000 { 0..terms } else { 3..4 };
    for first in firsts {
        for end in [first + 1, terms.div_ceil(2), terms - 1, terms].into_iter().filter(|end| *end > first) {
            if bytes < 1000 || end == terms - 1 {
                check(&matrix, &rows, first..end, bytes, shift);
            }
        }
    }
}

fn check_combine(rows: usize, terms: usize, plain: bool, bytes: usize, shift: usize) {
    let coefs = noise(&mut ((rows * terms + bytes) as u64), rows * terms);
    // Ones where our Reed-Solomon has them; more rows than that begin with other coefficients.
    let is_one = |row, term| plain && (row == 0 || (term == 0 && rows <= 6));
    let coef = |row: usize, term: usize| if is_one(row, term) { 1 } else { coefs[row * terms + term] };
    let matrix = Matrix::dense(rows, terms, coef);
    let rows: Vec<Vec<u8>> = (0..rows).map(|row| (0..terms).map(|term| coef(row, term)).collect()).collect();
    check(&matrix, &rows, terms / 2..terms, bytes, shift);
}

/// Sums all terms of a matrix with these rows, then some of them again, which takes them away.
fn check(matrix: &Matrix, rows: &[Vec<u8>], again: Range<usize>, bytes: usize, shift: usize) {
    let (terms, mut state) = (matrix.terms(), (matrix.terms() + bytes) as u64);
    let sources: Vec<Vec<u8>> = (0..terms).map(|_| noise(&mut state, shift + bytes)).collect();
    let sources: Vec<&[u8]> = sources.iter().map(|source| &source[shift..]).collect();
    let run = |third, tier| {
        // All targets begin at the same place of a line, as streaming wants it.
        let mut buffers = vec![vec![0xcc; 64 + MARGIN + bytes + MARGIN]; rows.len()];
        let mut outs: Vec<&mut [u8]> = buffers
            .iter_mut()
            .map(|buffer| {
                let start = buffer.as_ptr().align_offset(64);
                &mut buffer[start..][..MARGIN + bytes + MARGIN]
            })
            .collect();
        let mut parts: Vec<&mut [u8]> = outs.iter_mut().map(|out| &mut out[MARGIN - shift..][..bytes]).collect();
        matrix.combine_by(third, tier, &sources, &mut parts);
        matrix.accumulate(tier, again.start, &sources[again.clone()], &mut parts);
        outs.into_iter().map(|out| out.to_vec()).collect::<Vec<_>>()
    };
    let context = || format!("{} rows, {terms} terms, {again:?} again, {bytes} bytes, shift {shift}", rows.len());
    let expected = run(Third::Far, Tier::Scalar);
    for (coefs, expected) in rows.iter().zip(&expected) {
        let mut sum = vec![0xcc; MARGIN - shift + bytes + MARGIN + shift];
        sum[MARGIN - shift..][..bytes].fill(0);
        for term in (0..terms).filter(|term| !again.contains(term)) {
            let products = &MUL[usize::from(coefs[term])];
            for (sum, value) in sum[MARGIN - shift..].iter_mut().zip(sources[term]) {
                *sum ^= products[usize::from(*value)];
            }
        }
        assert!(*expected == sum, "{}", context());
    }
    // A small third cache is left by short sums.
    let near = |is_outrun| Third::Near { bytes: 256 << 10, is_outrun };
    for third in [Third::Far, near(false), near(true)] {
        for tier in Tier::available() {
            assert!(run(third, *tier) == expected, "{tier:?}, {third:?}: {}", context());
        }
    }
}

#[test]
fn every_tier_adds_products_as_scalar_does() {
    for bytes in lengths(&[5000]) {
        let mut state = bytes as u64;
        let (delta, parity) = (noise(&mut state, bytes + 1), noise(&mut state, bytes + MARGIN));
        for tier in Tier::available() {
            let mut sum = parity.clone();
            add_product(*tier, 0x8e, &delta[1..], &mut sum[..bytes]);
            assert_eq!(sum[bytes..], parity[bytes..], "{tier:?} wrote past {bytes} bytes");
            for at in 0..bytes {
                assert_eq!(sum[at], parity[at] ^ mul(0x8e, delta[at + 1]), "{tier:?} at {at} of {bytes}");
            }
        }
    }
}

#[test]
fn every_tier_adds_products_of_several_as_scalar_does() {
    for bytes in lengths(&[5000]) {
        let mut state = bytes as u64;
        let [a, b] = [0; 2].map(|_| noise(&mut state, bytes + 1));
        let parity = [0; 2].map(|_| noise(&mut state, bytes + MARGIN));
        let all = [[[3, 1], [0, 0x8e]], [[0, 0], [0, 0]], [[1, 1], [1, 1]]];
        for coefs in all.into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
            for tier in Tier::available() {
                let [mut x, mut y] = parity.clone();
                add_products(*tier, coefs, [&a[1..], &b[1..]], [&mut x[..bytes], &mut y[..bytes]]);
                for (row, sum) in [x, y].iter().enumerate() {
                    assert_eq!(sum[bytes..], parity[row][bytes..], "{tier} wrote past {bytes} bytes");
                    let product = |at: usize| mul(coefs[0][row], a[at + 1]) ^ mul(coefs[1][row], b[at + 1]);
                    let right = (0..bytes).all(|at| sum[at] == parity[row][at] ^ product(at));
                    assert!(right, "{tier}, {bytes} bytes by {coefs:?}");
                }
            }
        }
    }
}

#[test]
fn every_tier_runs_programs_alike() {
    // Two reads of two sub-chunks, one target of three, scratch of one: singles, pairs, a wide step, steps in place.
    let slot = |buffer, sub| Slot { buffer, sub };
    let mut builder = ProgramBuilder::new(&[2, 2], &[3], &[1]);
    let single = |near, coefs: &[u8]| Term { near, far: None, coefs: coefs.to_vec() };
    let pair = |near, far, factor, coefs: &[u8]| Term { near, far: Some((far, factor)), coefs: coefs.to_vec() };
    builder.push(&Step {
        targets: [slot(2, 0), slot(2, 1), slot(3, 0)].map(Target::sum).to_vec(),
        terms: vec![
            pair(slot(0, 0), slot(1, 1), 2, &[1, 9, 31]),
            single(slot(1, 0), &[1, 77, 0]),
            pair(slot(0, 1), slot(1, 0), 200, &[1, 3, 4]),
            pair(slot(1, 1), slot(0, 0), 1, &[1, 0, 5]),
        ],
    });
    let blend = |a, b, own, other, both| Blend { a, b, how: BlendHow { own, other, both } };
    let mut step = Step {
        targets: vec![Target::sum(slot(2, 2))],
        terms: vec![single(slot(3, 0), &[6]), single(slot(2, 1), &[1])],
    };
    assert!(!step.take_in(blend(slot(2, 2), slot(1, 1), 7, 11, true)), "it would write two slots");
    assert!(!step.take_in(blend(slot(2, 1), slot(1, 1), 7, 11, false)), "it would write another slot");
    assert!(step.take_in(blend(slot(2, 2), slot(1, 1), 7, 11, false)));
    assert!(!step.take_in(blend(slot(2, 2), slot(1, 0), 7, 11, false)), "something is added already");
    builder.push(&step);
    builder.push(&Step {
        targets: [slot(2, 0), slot(2, 1)].map(Target::sum).to_vec(),
        terms: vec![single(slot(2, 0), &[3, 5]), single(slot(2, 1), &[5, 3])],
    });
    builder.blend(blend(slot(2, 0), slot(2, 2), 9, 7, true));
    builder.blend(blend(slot(2, 0), slot(0, 1), 1, 5, false));
    builder.blend(blend(slot(2, 1), slot(1, 1), 3, 3, false));
    builder.blend(blend(slot(2, 2), slot(1, 0), 4, 3, false));
    let program = builder.finish();
    for sub_bytes in lengths(&[4096, 9001]).take(if cfg!(miri) { 3 } else { usize::MAX }) {
        let mut state = sub_bytes as u64;
        let reads: Vec<Vec<u8>> = (0..2).map(|_| noise(&mut state, 2 * sub_bytes)).collect();
        let run = |tier| {
            let mut target = vec![0xcc; 3 * sub_bytes];
            program.run(tier, &slices(&reads), [&mut target[..]], sub_bytes);
            target
        };
        let expected = run(Tier::Scalar);
        for tier in Tier::available() {
            assert!(run(*tier) == expected, "{tier:?} with {sub_bytes} bytes");
        }
        if sub_bytes > 0 {
            let sub = |buffer: usize, sub: usize| reads[buffer][sub * sub_bytes];
            let (a, b) = (sub(0, 0) ^ mul(2, sub(1, 1)), sub(0, 1) ^ mul(200, sub(1, 0)));
            let (c, d) = (sub(1, 1) ^ sub(0, 0), sub(1, 0));
            let (x, y) = (a ^ b ^ c ^ d, mul(9, a) ^ mul(3, b) ^ mul(77, d));
            let z = mul(31, a) ^ mul(4, b) ^ mul(5, c);
            let [u, v, w] = [mul(3, x) ^ mul(5, y), mul(5, x) ^ mul(3, y), mul(7, mul(6, z) ^ y) ^ mul(11, sub(1, 1))];
            let first = [
                mul(9, u) ^ mul(7, w) ^ mul(5, sub(0, 1)),
                mul(3, v ^ sub(1, 1)),
                mul(4, mul(7, u) ^ mul(9, w)) ^ mul(3, sub(1, 0)),
            ];
            assert_eq!([expected[0], expected[sub_bytes], expected[2 * sub_bytes]], first);
        }
    }
}

/// Steps that go on with each other become one run; those that need what a run wrote or puts off do not. Steps one by one,
/// in programs of their own, are the reference.
#[test]
fn runs_do_what_their_steps_do() {
    let slot = |buffer, sub| Slot { buffer, sub };
    let step = |target, near, far: Option<Slot>| Step {
        targets: vec![Target::sum(target)],
        terms: vec![Term { near, far: far.map(|far| (far, 2)), coefs: vec![7] }],
    };
    let swap = |a, b| Blend { a, b, how: BlendHow { own: 5, other: 3, both: true } };
    enum Part {
        Step(Step),
        Blend(Blend),
    }
    let plus = |target, near, plus| Step {
        targets: vec![Target { slot: target, plus: Some((plus, 9)) }],
        ..step(target, near, None)
    };
    // Buffers: one read of four sub-chunks, one target of eight. With each case, how many runs it makes.
    let cases: [(usize, Vec<Part>); 7] = [
        (1, (0..4).map(|i| Part::Step(plus(slot(1, i), slot(0, i), slot(1, i + 4)))).collect()),
        // Each writes what the one before adds.
        (4, (0..4).map(|i| Part::Step(plus(slot(1, i), slot(0, i), slot(1, i + 1)))).collect()),
        // Each adds what the one before made.
        (4, (0..4).map(|i| Part::Step(plus(slot(1, i + 1), slot(0, i), slot(1, i)))).collect()),
        (1, (0..4).map(|i| Part::Step(step(slot(1, i), slot(0, i), None))).collect()),
        // Each needs the one before.
        (4, (0..4).map(|i| Part::Step(step(slot(1, i + 1), slot(1, i), Some(slot(0, i))))).collect()),
        // The first blend can wait for the second step, the second cannot wait for the third.
        (
            2,
            vec![
                Part::Step(step(slot(1, 0), slot(0, 0), None)),
                Part::Blend(swap(slot(1, 0), slot(1, 4))),
                Part::Step(step(slot(1, 1), slot(0, 1), None)),
                Part::Blend(swap(slot(1, 1), slot(1, 2))),
                Part::Step(step(slot(1, 2), slot(0, 2), None)),
            ],
        ),
        // A far source that the run has written; then two in place.
        (
            3,
            vec![
                Part::Step(step(slot(1, 4), slot(0, 0), Some(slot(1, 3)))),
                Part::Step(step(slot(1, 5), slot(0, 1), Some(slot(1, 4)))),
                Part::Step(step(slot(1, 5), slot(1, 5), None)),
                Part::Step(step(slot(1, 6), slot(1, 6), None)),
            ],
        ),
    ];
    for (runs, case) in cases {
        let mut builder = ProgramBuilder::new(&[4], &[8], &[]);
        // First eight steps that fill all sub-chunks. Their far sources run backwards, so none goes on with another.
        (0..8).for_each(|i| builder.push(&step(slot(1, i), slot(0, i % 4), Some(slot(0, 3 - i % 4)))));
        for part in &case {
            match part {
                Part::Step(step) => builder.push(step),
                Part::Blend(blend) => builder.blend(*blend),
            }
        }
        let program = builder.finish();
        assert_eq!(program.runs.len(), 8 + runs);
        let lengths = if cfg!(miri) { &[1, 67][..] } else { &[1, 64, 100, 5000] };
        for &sub_bytes in lengths {
            let read = noise(&mut 5, 4 * sub_bytes);
            let mut expected = vec![Vec::new(); 8];
            let sub = |at: usize| read[at * sub_bytes..][..sub_bytes].to_vec();
            let value = |slot: Slot, targets: &[Vec<u8>]| -> Vec<u8> {
                if slot.buffer == 0 { sub(slot.sub.into()) } else { targets[usize::from(slot.sub)].clone() }
            };
            let mix = |a: &[u8], b: &[u8], x: u8, y: u8| -> Vec<u8> {
                a.iter().zip(b).map(|(a, b)| mul(x, *a) ^ mul(y, *b)).collect()
            };
            for (i, expected) in expected.iter_mut().enumerate() {
                *expected = mix(&sub(i % 4), &sub(3 - i % 4), 7, mul(7, 2));
            }
            for part in &case {
                match part {
                    Part::Step(step) => {
                        let near = value(step.terms[0].near, &expected);
                        let far = step.terms[0].far.map_or(vec![0; sub_bytes], |(far, _)| value(far, &expected));
                        let sum = mix(&near, &far, 7, mul(7, 2));
                        let Target { slot, plus } = step.targets[0];
                        let added = plus.map_or(vec![0; sub_bytes], |(plus, _)| value(plus, &expected));
                        expected[usize::from(slot.sub)] = mix(&sum, &added, 1, 9);
                    }
                    Part::Blend(Blend { a, b, .. }) => {
                        let (old_a, old_b) = (value(*a, &expected), value(*b, &expected));
                        expected[usize::from(a.sub)] = mix(&old_a, &old_b, 5, 3);
                        expected[usize::from(b.sub)] = mix(&old_a, &old_b, 3, 5);
                    }
                }
            }
            for tier in Tier::available() {
                let mut target = vec![0xcc; 8 * sub_bytes];
                program.run(*tier, &[&read], [&mut target[..]], sub_bytes);
                assert!(target == expected.concat(), "{tier:?} with {sub_bytes} bytes");
            }
        }
    }
}

#[test]
#[should_panic(expected = "is outside its buffer")]
fn a_program_refuses_slots_outside_its_buffers() {
    let terms = vec![Term { near: Slot { buffer: 0, sub: 2 }, far: None, coefs: vec![1] }];
    ProgramBuilder::new(&[2], &[1], &[]).push(&Step { targets: vec![Target::sum(Slot { buffer: 1, sub: 0 })], terms });
}

#[test]
#[should_panic(expected = "is a read")]
fn a_program_refuses_to_write_reads() {
    ProgramBuilder::new(&[2], &[1], &[])
        .push(&Step { targets: vec![Target::sum(Slot { buffer: 0, sub: 0 })], terms: vec![] });
}

fn slices(buffers: &[Vec<u8>]) -> Vec<&[u8]> {
    buffers.iter().map(Vec::as_slice).collect()
}

fn slices_mut(buffers: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    buffers.iter_mut().map(Vec::as_mut_slice).collect()
}
