//! Every tier against the scalar one, and the scalar one against the field.

use super::{Matrix, ProgramBuilder, Slot, Step, Term, Tier, accumulate, add_product, combine};
use crate::{field::mul, tests::noise};

/// Bytes around each buffer that must stay as they are.
const MARGIN: usize = 70;

#[test]
fn scalar_sums_products() {
    let mut state = 3;
    let sources: Vec<Vec<u8>> = (0..3).map(|_| noise(&mut state, 5)).collect();
    let matrix = Matrix::new(2, 3, |row, term| [[1, 1, 1], [7, 0, 200]][row][term]);
    let mut outs = vec![vec![9; 5]; 2];
    combine(Tier::Scalar, &matrix, &slices(&sources), &mut slices_mut(&mut outs));
    for at in 0..5 {
        let [a, b, c] = [sources[0][at], sources[1][at], sources[2][at]];
        assert_eq!(outs[0][at], a ^ b ^ c);
        assert_eq!(outs[1][at], mul(7, a) ^ mul(200, c));
    }
}

#[test]
fn every_tier_sums_as_scalar_does_at_every_length_and_alignment() {
    for bytes in 0..=257 {
        // Row and term counts of different periods meet in all combinations over the lengths; 12 rows take two passes.
        let (rows, terms, plain) = (1 + bytes % 12, 1 + bytes % 5, bytes % 2);
        check_combine(rows, terms, plain == 1, bytes, bytes % 67);
    }
    for rows in 1..=12 {
        for terms in 1..=4 {
            check_combine(rows, terms, false, 64 * 9 + 31, 1);
            check_combine(rows, terms, true, 64 * 9 + 31, 33);
        }
    }
    check_combine(11, 256, true, 4096 + 4095, 5);
}

#[test]
fn every_manner_of_touching_memory_gives_the_same_bytes() {
    // Fetched ahead, streamed, streamed and fetched ahead; wide sums are streamed slice by slice.
    for (rows, terms, bytes) in [(2, 30, 50_001), (3, 30, 70_001), (2, 30, 140_003), (12, 20, 70_001)] {
        check_combine(rows, terms, true, bytes, 13);
    }
}

fn check_combine(rows: usize, terms: usize, plain: bool, bytes: usize, shift: usize) {
    let mut state = (rows * terms + bytes) as u64;
    let coefs = noise(&mut state, rows * terms);
    let matrix = Matrix::new(rows, terms, |row, term| if plain && row == 0 { 1 } else { coefs[row * terms + term] });
    let sources: Vec<Vec<u8>> = (0..terms).map(|_| noise(&mut state, shift + bytes)).collect();
    let sources: Vec<&[u8]> = sources.iter().map(|source| &source[shift..]).collect();
    let run = |tier| {
        // All targets begin at the same place of a line, as streaming wants it.
        let mut buffers = vec![vec![0xcc; 64 + MARGIN + bytes + MARGIN]; rows];
        let mut outs: Vec<&mut [u8]> = buffers
            .iter_mut()
            .map(|buffer| {
                let start = buffer.as_ptr().align_offset(64);
                &mut buffer[start..][..MARGIN + bytes + MARGIN]
            })
            .collect();
        let mut parts: Vec<&mut [u8]> = outs.iter_mut().map(|out| &mut out[MARGIN - shift..][..bytes]).collect();
        combine(tier, &matrix, &sources, &mut parts);
        // Adding the second half once more takes it away.
        accumulate(tier, &matrix, terms / 2, &sources[terms / 2..], &mut parts);
        outs.into_iter().map(|out| out.to_vec()).collect::<Vec<_>>()
    };
    let expected = run(Tier::Scalar);
    let half = |row: &usize| -> Vec<u8> {
        let coef = |term| if plain && *row == 0 { 1 } else { coefs[row * terms + term] };
        (0..bytes).map(|at| (0..terms / 2).fold(0, |sum, term| sum ^ mul(coef(term), sources[term][at]))).collect()
    };
    for row in [0, rows - 1] {
        assert!(
            expected[row][MARGIN - shift..][..bytes] == half(&row)[..],
            "{rows} rows, {terms} terms, {bytes} bytes"
        );
    }
    assert!(expected.iter().all(|out| out[..MARGIN - shift].iter().all(|byte| *byte == 0xcc)));
    for tier in Tier::available() {
        assert!(run(*tier) == expected, "{tier:?}: {rows} rows, {terms} terms, {bytes} bytes, shift {shift}");
    }
}

#[test]
fn every_tier_adds_products_as_scalar_does() {
    for bytes in (0..=257).chain([5000]) {
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
fn every_tier_runs_programs_alike() {
    // Two reads of two sub-chunks, one target of three, scratch of one: singles, pairs, a wide step, steps in place.
    let slot = |buffer, sub| Slot { buffer, sub };
    let mut builder = ProgramBuilder::new(&[2, 2], &[3], &[1]);
    let single = |near, coefs: &[u8]| Term { near, far: None, coefs: coefs.to_vec() };
    let pair = |near, far, factor, coefs: &[u8]| Term { near, far: Some((far, factor)), coefs: coefs.to_vec() };
    builder.push(&Step {
        targets: vec![slot(2, 0), slot(2, 1), slot(3, 0)],
        terms: vec![
            pair(slot(0, 0), slot(1, 1), 2, &[1, 9, 31]),
            single(slot(1, 0), &[1, 77, 0]),
            pair(slot(0, 1), slot(1, 0), 200, &[1, 3, 4]),
            pair(slot(1, 1), slot(0, 0), 1, &[1, 0, 5]),
        ],
    });
    builder.push(&Step { targets: vec![slot(2, 2)], terms: vec![single(slot(3, 0), &[6]), single(slot(2, 1), &[1])] });
    builder.push(&Step {
        targets: vec![slot(2, 0), slot(2, 1)],
        terms: vec![single(slot(2, 0), &[3, 5]), single(slot(2, 1), &[5, 3])],
    });
    let program = builder.finish();
    for sub_bytes in (0..=257).chain([4096, 9001]) {
        let mut state = sub_bytes as u64;
        let reads: Vec<Vec<u8>> = (0..2).map(|_| noise(&mut state, 2 * sub_bytes)).collect();
        let run = |tier| {
            let mut target = vec![0xcc; 3 * sub_bytes];
            program.run(tier, &slices(&reads), &mut [&mut target], sub_bytes);
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
            let first = [mul(3, x) ^ mul(5, y), mul(5, x) ^ mul(3, y), mul(6, z) ^ y];
            assert_eq!([expected[0], expected[sub_bytes], expected[2 * sub_bytes]], first);
        }
    }
}

#[test]
#[should_panic(expected = "is outside its buffer")]
fn a_program_refuses_slots_outside_its_buffers() {
    let terms = vec![Term { near: Slot { buffer: 0, sub: 2 }, far: None, coefs: vec![1] }];
    ProgramBuilder::new(&[2], &[1], &[]).push(&Step { targets: vec![Slot { buffer: 1, sub: 0 }], terms });
}

#[test]
#[should_panic(expected = "is a read")]
fn a_program_refuses_to_write_reads() {
    ProgramBuilder::new(&[2], &[1], &[]).push(&Step { targets: vec![Slot { buffer: 0, sub: 0 }], terms: vec![] });
}

fn slices(buffers: &[Vec<u8>]) -> Vec<&[u8]> {
    buffers.iter().map(Vec::as_slice).collect()
}

fn slices_mut(buffers: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    buffers.iter_mut().map(Vec::as_mut_slice).collect()
}
