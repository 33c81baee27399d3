//! Properties of all codes.

use std::sync::Arc;

use crate::{ChunkIndex, CodeSpec, ErasureCode, ReadCosts, ReadPlan, Tier};

/// A tile of every chunk: pseudo-random data and its parity.
pub(crate) fn stripe(code: &dyn ErasureCode, sub_bytes: u32, seed: u64) -> Vec<Vec<u8>> {
    let shape = code.shape();
    let tile = shape.alpha as usize * sub_bytes as usize;
    let mut state = seed;
    let mut chunks: Vec<Vec<u8>> = (0..shape.data).map(|_| noise(&mut state, tile)).collect();
    let mut parity = vec![vec![0xee; tile]; usize::from(shape.parity)];
    let data: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
    code.encode(
        &data,
        &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>(),
    );
    chunks.extend(parity);
    chunks
}

/// Bytes of a 64-bit linear congruence (Knuth's constants), its top byte each time.
pub(crate) fn noise(state: &mut u64, bytes: usize) -> Vec<u8> {
    let step = || {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (*state >> 56) as u8
    };
    std::iter::repeat_with(step).take(bytes).collect()
}

/// Runs a plan against a stripe and compares what it makes.
fn check_plan(code: &dyn ErasureCode, plan: &ReadPlan, chunks: &[Vec<u8>], sub_bytes: u32) {
    let fetched: Vec<Vec<u8>> = plan
        .reads
        .iter()
        .map(|read| read.cut(&chunks[read.chunk.at()], sub_bytes))
        .collect();
    let fetched: Vec<&[u8]> = fetched.iter().map(Vec::as_slice).collect();
    let mut out = vec![vec![0x55; chunks[0].len()]; plan.want.len()];
    code.recover(
        plan,
        &fetched,
        &mut out.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>(),
    );
    for (chunk, out) in plan.want.iter().zip(&out) {
        assert!(
            *out == chunks[chunk.at()],
            "{}: chunk {chunk} of {plan:?}",
            code.spec()
        );
    }
}

fn build(text: &str) -> Arc<dyn ErasureCode> {
    text.parse::<CodeSpec>()
        .expect("a valid spec")
        .build_with_tier(Tier::best())
        .expect("a valid spec")
}

/// Loses each set of up to m chunks, wants them all, and each of them alone.
fn check_all_losses(text: &str, sub_bytes: u32) {
    let code = build(text);
    let chunks = stripe(&*code, sub_bytes, 1);
    let n = code.shape().chunks();
    for pattern in 0u32..1 << n {
        if pattern.count_ones() > code.shape().parity.into() {
            continue;
        }
        let lost: Vec<ChunkIndex> = (0..n)
            .filter(|i| pattern >> i & 1 == 1)
            .map(ChunkIndex)
            .collect();
        let costs: Vec<Option<u32>> = (0..n)
            .map(|i| (pattern >> i & 1 == 0).then_some(1))
            .collect();
        let costs = ReadCosts {
            chunks: &costs,
            sub_bytes,
            granule: 1,
        };
        check_plan(
            &*code,
            &code.plan_read(&lost, &costs).expect("within tolerance"),
            &chunks,
            sub_bytes,
        );
        for chunk in lost.iter().skip(1) {
            check_plan(
                &*code,
                &code.plan_read(&[*chunk], &costs).expect("within tolerance"),
                &chunks,
                sub_bytes,
            );
        }
    }
}

#[test]
fn every_loss_within_tolerance_is_recovered() {
    for text in [
        "replica:3",
        "rs:4+2",
        "rs:6+3",
        "rs:10+4",
        "rs:1+1",
        "rs:1+3",
    ] {
        check_all_losses(text, 67);
    }
    for text in [
        "clay:4+2:5",
        "clay:6+3:8",
        "clay:6+3:7",
        "clay:4+3:6",
        "clay:4+3:5",
        "clay:3+2:4",
        "clay:1+2:2",
    ] {
        check_all_losses(text, 3);
    }
}
