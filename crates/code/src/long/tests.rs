//! Long codes against their definition, and what they recover.

use proptest::prelude::*;

use super::{LongReedSolomon, cauchy16::coefficient, field16::mul};
use crate::{
    ChunkIndex, CodeSpec, ErasureCode, LocateError, Method, ReadCosts, Tier, Unrecoverable, UpdatePlan,
    tests::{check_plan, check_small, noise, stripe, tier},
};

/// Shapes of every number of levels up to 8, some with a last group that is short.
const SHAPES: [(u16, u16); 15] = [
    (1, 1),
    (7, 1),
    (9, 2),
    (300, 2),
    (530, 3),
    (21, 4),
    (1100, 8),
    (50, 9),
    (300, 19),
    (70, 40),
    (3, 70),
    (200, 129),
    (2100, 9),
    (2100, 19),
    (2100, 33),
];

/// The parity by the definition, symbol by symbol.
fn naive(levels: u32, parity: u16, data: &[Vec<u8>]) -> Vec<u8> {
    let half = data[0].len() / 2;
    let mut sum = vec![0; 2 * half];
    for (j, data) in (0..).zip(data) {
        let factor = coefficient(levels, parity, j);
        for at in 0..half {
            let [low, high] = mul(factor, u16::from_le_bytes([data[at], data[half + at]])).to_le_bytes();
            sum[at] ^= low;
            sum[half + at] ^= high;
        }
    }
    sum
}

fn best(data: u16, parity: u16) -> LongReedSolomon {
    LongReedSolomon::new(data, parity, tier())
}

/// Recovers the lost chunks of a stripe, all others being equally cheap.
fn check_losses(code: &dyn ErasureCode, lost: &[ChunkIndex], chunks: &[Vec<u8>]) {
    let sub_bytes = u32::try_from(chunks[0].len() / 2).expect("short");
    let costs: Vec<Option<u32>> =
        (0..code.shape().chunks()).map(|i| (!lost.contains(&ChunkIndex(i))).then_some(1)).collect();
    let costs = ReadCosts { chunks: &costs, sub_bytes, granule: 1 };
    let plan = code.plan_read(lost, &costs).expect("within tolerance");
    assert_eq!(plan.reads.len(), usize::from(code.shape().data));
    check_plan(code, &plan, chunks, sub_bytes);
}

/// Chunks picked by a seed, in the order they came.
fn some_chunks(seed: u64, chunks: u16, count: u16) -> Vec<ChunkIndex> {
    let mut state = seed;
    let mut some: Vec<ChunkIndex> = Vec::new();
    while some.len() < count.into() {
        let pair = noise(&mut state, 2);
        let chunk = ChunkIndex(u16::from_le_bytes([pair[0], pair[1]]) % chunks);
        if !some.contains(&chunk) {
            some.push(chunk);
        }
    }
    some
}

#[test]
fn every_tier_encodes_the_definition() {
    for (data, parity) in SHAPES {
        for sub_bytes in [1, 63, 64, 65, 700] {
            let reference = stripe(&LongReedSolomon::new(data, parity, Tier::Scalar), sub_bytes, 5);
            let (sources, encoded) = reference.split_at(data.into());
            for i in (0..parity).filter(|i| *i < 2 || i % 9 == 0 || i + 1 == parity) {
                let expected = naive(parity.next_power_of_two().ilog2(), i, sources);
                assert!(expected == encoded[usize::from(i)], "{data}+{parity}: parity {i} of {sub_bytes} bytes");
            }
            for tier in Tier::available() {
                let same = stripe(&LongReedSolomon::new(data, parity, *tier), sub_bytes, 5) == reference;
                assert!(same, "{data}+{parity} on {tier:?}: {sub_bytes} bytes");
            }
        }
    }
}

#[test]
fn every_tier_encodes_alike_at_every_length() {
    for sub_bytes in 0..=257 {
        let [(data, parity), (data_2, parity_2)] = [SHAPES[sub_bytes as usize % 12], (37, 17)];
        for (data, parity) in [(data.min(60), parity), (data_2, parity_2)] {
            let reference = stripe(&LongReedSolomon::new(data, parity, Tier::Scalar), sub_bytes, 5);
            for tier in Tier::available() {
                let same = stripe(&LongReedSolomon::new(data, parity, *tier), sub_bytes, 5) == reference;
                assert!(same, "{data}+{parity} on {tier:?}: {sub_bytes} bytes");
            }
        }
    }
}

#[test]
fn every_loss_within_tolerance_is_recovered() {
    // The construction does not care that these are no long codes by their names.
    for (data, parity) in [(1, 1), (2, 3), (6, 3), (9, 2), (7, 4), (5, 5), (4, 9)] {
        for tier in Tier::available() {
            let code = LongReedSolomon::new(data, parity, *tier);
            let chunks = stripe(&code, 3, 1);
            for pattern in 1u32..1 << (data + parity) {
                if pattern.count_ones() <= parity.into() {
                    let lost = (0..data + parity).filter(|i| pattern >> i & 1 == 1).map(ChunkIndex);
                    check_losses(&code, &lost.collect::<Vec<_>>(), &chunks);
                }
            }
        }
    }
}

/// Test of: [lec §3]: any m failed sectors of a group are recoverable, at every length of the last group.
#[test]
fn sector_groups_recover_as_many_losses_as_they_have_parity() {
    for (data, parity) in [(1019, 4), (1016, 7), (1014, 9), (1004, 19), (256, 1), (300, 19), (700, 300)] {
        let spec = CodeSpec::ReedSolomon { data, parity };
        let code = spec.build_with_tier(tier()).expect("a valid spec");
        assert_eq!((code.spec(), code.shape().alpha), (spec, 2));
        let chunks = stripe(&*code, 70, 3);
        let samples = if std::env::var_os("CLAYSTONE_EXHAUSTIVE").is_some() { 5000 } else { 20 };
        for seed in 0..samples {
            check_losses(&*code, &some_chunks(seed, data + parity, parity), &chunks);
        }
        let ends: Vec<ChunkIndex> =
            (0..parity).map(|i| ChunkIndex(if i % 2 == 0 { i } else { data + parity - i })).collect();
        check_losses(&*code, &ends, &chunks);
    }
}

/// Each number of levels that takes its passes in another way, with and without whole lines. What Miri runs.
#[test]
fn small_codes_encode_grow_change_and_recover() {
    let (shapes, sub_bytes) = if cfg!(miri) { (&[(9, 2)][..], 1) } else { (&[(2, 1), (9, 2), (3, 3), (7, 5)][..], 67) };
    for (data, parity) in shapes {
        check_small(&best(*data, *parity), sub_bytes);
    }
    let code = best(4, 9);
    let chunks = stripe(&code, sub_bytes, 2);
    check_losses(&code, &some_chunks(1, 13, 2), &chunks);
}

#[test]
fn codes_are_parts_of_larger_ones() {
    let wide = stripe(&best(300, 8), 9, 1);
    for parity in 5..8 {
        assert!(stripe(&best(300, parity), 9, 1) == wide[..300 + usize::from(parity)]);
    }
    // A shortened code is the long one over zeros.
    let short = stripe(&best(271, 8), 9, 1);
    let mut data = wide[..300].to_vec();
    data[271..].iter_mut().for_each(|chunk| chunk.fill(0));
    let mut parity = vec![vec![1; 18]; 8];
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    best(300, 8).encode(&data, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    assert!(short[271..] == parity);
}

#[test]
fn parity_grows_from_parts_of_any_size() {
    for (data, parity) in [(300, 1), (300, 3), (300, 19)] {
        for tier in Tier::available() {
            let code = LongReedSolomon::new(data, parity, *tier);
            let chunks = stripe(&code, 67, 8);
            let mut sums = vec![vec![0; 134]; parity.into()];
            let mut first = 0;
            for count in [0, 1, 7, 30, 2, 64, 100, 96] {
                let part: Vec<&[u8]> = chunks[first..first + count].iter().map(Vec::as_slice).collect();
                let mut sums: Vec<&mut [u8]> = sums.iter_mut().map(Vec::as_mut_slice).collect();
                code.encode_add(ChunkIndex(first as u16), &part, &mut sums);
                first += count;
            }
            assert_eq!(first, 300);
            assert!(sums == chunks[300..], "{data}+{parity} on {tier:?}");
        }
    }
}

#[test]
fn a_delta_turns_old_parity_into_new() {
    for tier in Tier::available() {
        let code = LongReedSolomon::new(400, 5, *tier);
        let mut chunks = stripe(&code, 301, 7);
        let delta = noise(&mut 8, 602);
        let UpdatePlan::Delta(deltas) = code.plan_update(ChunkIndex(333)) else { panic!("has deltas") };
        for (parity, coefficient) in deltas {
            code.apply_delta(coefficient, &delta, &mut chunks[parity.at()]);
        }
        chunks[333].iter_mut().zip(&delta).for_each(|(byte, delta)| *byte ^= delta);
        let (data, parity) = chunks.split_at(400);
        let mut encoded = vec![vec![0; 602]; 5];
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        code.encode(&data, &mut encoded.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        assert!(encoded == parity, "{tier:?}");
    }
}

#[test]
fn what_is_wanted_and_left_is_copied() {
    let code = best(300, 4);
    let costs: Vec<Option<u32>> = (0..304).map(|i| (i != 5 && i != 301).then_some(u32::from(i == 7))).collect();
    let costs = ReadCosts { chunks: &costs, sub_bytes: 70, granule: 1 };
    let chunks = stripe(&code, 70, 3);
    // Chunk 7 is dear: it is not read and solved for, since three parity chunks are left.
    let plan = code.plan_read(&[301, 302, 5, 9].map(ChunkIndex), &costs).expect("two losses");
    assert!(plan.reads.len() == 300 && plan.reads.iter().all(|read| read.chunk != ChunkIndex(7)));
    assert!(matches!(&plan.method, Method::Syndromes { sums } if (sums.rows(), sums.terms()) == (4, 4)));
    check_plan(&code, &plan, &chunks, 70);
    let plan = code.plan_read(&[302, 9].map(ChunkIndex), &costs).expect("no loss");
    assert_eq!(plan.method, Method::Copy { from: vec![1, 0] });
    check_plan(&code, &plan, &chunks, 70);
    let costs = ReadCosts { chunks: &[None; 304], ..costs };
    let error = Unrecoverable { spec: code.spec(), wanted_lost: 1, available: 0, needed: 300, chunks: 304 };
    assert_eq!(code.plan_read(&[ChunkIndex(1)], &costs), Err(error));
}

#[test]
fn the_longest_codes_encode_and_recover() {
    for (data, parity) in [(65_531, 4), (32_767, 32_768), (1, 300)] {
        let code = CodeSpec::ReedSolomon { data, parity }.build_with_tier(tier()).expect("within the limits");
        let chunks = stripe(&*code, 1, 3);
        let lost: Vec<ChunkIndex> = (0..4).map(|i| ChunkIndex((data / 4) * i + i)).collect();
        check_losses(&*code, &lost, &chunks);
    }
}

#[test]
fn wrong_chunks_are_named_up_to_half_of_the_parity() {
    for (data, parity, missing) in [(1019, 4, 0), (300, 5, 1), (1014, 9, 2), (1004, 19, 3), (3, 6, 0)] {
        let code = best(data, parity);
        let right = stripe(&code, 70, 6);
        let most = (parity - missing) / 2;
        for seed in 0..10 {
            let mut picked = some_chunks(seed, data + parity, missing + most + 1);
            if seed == 0 && missing == 0 {
                // The point of the first parity chunk is 0, whose powers end at once.
                picked.retain(|z| z.0 != data);
                picked.insert(0, ChunkIndex(data));
            }
            let (missing, wrong) = picked.split_at(missing.into());
            let mut chunks = right.clone();
            let given = |chunks: &[Vec<u8>]| -> Vec<Option<Vec<u8>>> {
                let there = |z: u16| !missing.contains(&ChunkIndex(z));
                (0..).zip(chunks).map(|(z, chunk)| there(z).then(|| chunk.clone())).collect()
            };
            let mut expected: Vec<ChunkIndex> = Vec::new();
            for (i, z) in wrong.iter().enumerate() {
                let found = given(&chunks);
                let found: Vec<Option<&[u8]>> = found.iter().map(Option::as_deref).collect();
                assert_eq!(code.locate(&found), Ok(expected.clone()), "{data}+{parity} without {missing:?}");
                if expected.len() == usize::from(most) {
                    break;
                }
                // One chunk wrong in one byte, the next in all.
                let bytes = if i % 2 == 0 { 139..140 } else { 0..140 };
                chunks[z.at()][bytes].iter_mut().for_each(|byte| *byte ^= 0x41);
                expected.push(*z);
                expected.sort_unstable();
            }
        }
    }
}

#[test]
fn more_wrong_chunks_than_can_be_named_are_an_error_with_the_numbers() {
    let code = best(1014, 9);
    let mut chunks = stripe(&code, 64, 6);
    for (seed, chunk) in (0..).zip(&mut chunks[1..6]) {
        let noise = noise(&mut { seed }, chunk.len());
        chunk.copy_from_slice(&noise);
    }
    let given: Vec<Option<&[u8]>> = chunks.iter().map(|chunk| Some(&chunk[..])).collect();
    let error = LocateError::TooManyWrong { spec: code.spec(), available: 1023, most: 4 };
    assert_eq!(code.locate(&given), Err(error));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any shape, length and losses up to m, on any tier.
    #[test]
    fn lost_chunks_come_back(
        data in 1u16..700,
        parity in 1u16..70,
        sub_bytes in 0u32..140,
        losses in 0u16..70,
        seed: u64,
        tier in prop::sample::select(Tier::available()),
    ) {
        let code = LongReedSolomon::new(data, parity, tier);
        let chunks = stripe(&code, sub_bytes, seed);
        check_losses(&code, &some_chunks(seed, data + parity, losses.clamp(1, parity)), &chunks);
    }
}
