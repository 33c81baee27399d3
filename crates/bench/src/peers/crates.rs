//! Peers that are crates.

use std::hint::black_box;

use clay_codes::ClayCode;
use claystone_code::{CodeSpec, Shape};
use memmap2::MmapMut;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};
use rusty_erasure::{Coder, Matrix, coder};
use tape_reed_solomon::ReedSolomon;

use crate::contender::{Contender, Role};
use crate::plan::{Operation, Plan};

/// Names with the versions of `Cargo.toml`.
pub(super) const NAMES: [&str; 4] = [TAPE, RUSTY, SIMD, CLAY];

const TAPE: &str = "tape-reed-solomon 0.2.4";
const RUSTY: &str = "rusty_erasure 0.4.3";
const SIMD: &str = "reed-solomon-simd 3.1.0";
const CLAY: &str = "clay-codes 0.2.3";

/// Those that can do what the plan says.
pub(super) fn contenders<'a>(plan: &Plan) -> Vec<Contender<'a>> {
    let shape = plan.code.shape();
    match (plan.code, &plan.operation) {
        (CodeSpec::ReedSolomon { .. }, operation) if shape.chunks() <= 256 => short(shape, operation, plan.chunk_bytes),
        (CodeSpec::ReedSolomon { .. }, Operation::Encode) => vec![simd_encode(shape, plan.chunk_bytes)],
        (CodeSpec::ReedSolomon { .. }, Operation::Repair { lost }) => vec![simd_repair(shape, lost, plan.chunk_bytes)],
        (CodeSpec::Clay { helpers, .. }, Operation::Encode) => vec![clay_encode(shape, helpers, plan.chunk_bytes)],
        (CodeSpec::Clay { helpers, .. }, Operation::Repair { lost }) => match lost[..] {
            [lost] => vec![clay_repair(shape, helpers, plan.chunk_bytes, lost)],
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Reed-Solomon over GF(2^8).
fn short<'a>(shape: Shape, operation: &Operation, chunk_bytes: usize) -> Vec<Contender<'a>> {
    match operation {
        Operation::Encode => {
            vec![tape_encode(shape), rusty_encode(shape), simd_encode(shape, chunk_bytes)]
        }
        Operation::EncodeAdd { .. } => vec![rusty_encode_add(shape)],
        Operation::Repair { lost } => vec![tape_repair(shape, lost, chunk_bytes), rusty_repair(shape, lost)],
        Operation::PlanRepair { lost } => vec![rusty_plan(shape, lost)],
    }
}

fn tape_encode<'a>(shape: Shape) -> Contender<'a> {
    let code = ReedSolomon::new(shape.data.into(), shape.parity.into()).expect("at most 256 chunks");
    Contender::local(TAPE, Role::Peer, move |stripe| {
        code.encode_sep(&stripe.sources, &mut stripe.targets).expect("buffers of one size");
    })
}

/// It rebuilds in place among all chunks, so it has chunks of its own.
fn tape_repair<'a>(shape: Shape, lost: &[u16], chunk_bytes: usize) -> Contender<'a> {
    let code = ReedSolomon::new(shape.data.into(), shape.parity.into()).expect("at most 256 chunks");
    let present = present(shape, lost);
    let decoder = code.prepare_decode(&present).expect("within tolerance");
    let chunk = |i: usize| {
        let mut chunk = MmapMut::map_anon(chunk_bytes).expect("memory for a few chunks");
        chunk.fill(i as u8 + 1);
        chunk
    };
    let mut chunks: Vec<(MmapMut, bool)> = (0..present.len()).map(chunk).zip(present).collect();
    let lost = indices(lost);
    Contender::local(TAPE, Role::Peer, move |stripe| {
        decoder.reconstruct_data(&mut chunks).expect("as prepared");
        for (target, lost) in stripe.targets.iter_mut().zip(&lost) {
            show(target, &chunks[*lost].0);
        }
    })
}

fn rusty(shape: Shape) -> Coder {
    let matrix = Matrix::cauchy(shape.data.into(), shape.parity.into()).expect("at most 256 chunks");
    coder(matrix).expect("a matrix of this size")
}

fn rusty_encode<'a>(shape: Shape) -> Contender<'a> {
    let coder = rusty(shape);
    Contender::local(RUSTY, Role::Peer, move |stripe| {
        coder.encode(&stripe.sources, &mut stripe.targets).expect("buffers of one size");
    })
}

fn rusty_encode_add<'a>(shape: Shape) -> Contender<'a> {
    let coder = rusty(shape);
    Contender::local(RUSTY, Role::Peer, move |stripe| {
        for (i, source) in stripe.sources.iter().enumerate() {
            coder.update(i, source, &mut stripe.targets).expect("buffers of one size");
        }
    })
}

fn rusty_repair<'a>(shape: Shape, lost: &[u16]) -> Contender<'a> {
    let (coder, present) = (rusty(shape), present(shape, lost));
    let plan = coder.decode_plan(&present, &indices(lost)).expect("within tolerance");
    // It reads the first k chunks that are left, as we do.
    let left: Vec<usize> = (0..present.len()).filter(|chunk| present[*chunk]).take(shape.data.into()).collect();
    Contender::local(RUSTY, Role::Peer, move |stripe| {
        let mut chunks = [None; 256];
        for (chunk, source) in left.iter().zip(&stripe.sources) {
            chunks[*chunk] = Some(*source);
        }
        coder.recover_with(&plan, &chunks[..present.len()], &mut stripe.targets).expect("as planned");
    })
}

fn rusty_plan<'a>(shape: Shape, lost: &[u16]) -> Contender<'a> {
    let (coder, present, lost) = (rusty(shape), present(shape, lost), indices(lost));
    Contender::local(RUSTY, Role::Peer, move |_| {
        black_box(coder.decode_plan(&present, black_box(&lost)).expect("within tolerance"));
    })
}

fn simd_encode<'a>(shape: Shape, chunk_bytes: usize) -> Contender<'a> {
    let encoder = ReedSolomonEncoder::new(shape.data.into(), shape.parity.into(), chunk_bytes);
    let mut encoder = encoder.expect("a supported size");
    Contender::local(SIMD, Role::Peer, move |stripe| {
        for source in &stripe.sources {
            encoder.add_original_shard(source).expect("as many as said");
        }
        let parity = encoder.encode().expect("all are there");
        for (target, parity) in stripe.targets.iter_mut().zip(parity.recovery_iter()) {
            show(target, parity);
        }
    })
}

/// It is given the data that is left and the first parities, as we read them.
fn simd_repair<'a>(shape: Shape, lost: &[u16], chunk_bytes: usize) -> Contender<'a> {
    let (k, m) = (usize::from(shape.data), usize::from(shape.parity));
    let mut decoder = ReedSolomonDecoder::new(k, m, chunk_bytes).expect("a supported size");
    let left: Vec<usize> =
        (0..).zip(present(shape, lost)).filter(|(_, is)| *is).map(|(chunk, _)| chunk).take(k).collect();
    Contender::local(SIMD, Role::Peer, move |stripe| {
        for (chunk, source) in left.iter().zip(&stripe.sources) {
            match chunk.checked_sub(k) {
                None => decoder.add_original_shard(*chunk, source),
                Some(parity) => decoder.add_recovery_shard(parity, source),
            }
            .expect("as many as said");
        }
        let made = decoder.decode().expect("enough are there");
        for (target, (_, chunk)) in stripe.targets.iter_mut().zip(made.restored_original_iter()) {
            show(target, chunk);
        }
    })
}

/// It takes the data in one piece and writes all chunks, data too.
fn clay_encode<'a>(shape: Shape, helpers: u8, chunk_bytes: usize) -> Contender<'a> {
    let code = clay(shape, helpers);
    let k = usize::from(shape.data);
    let memory = || MmapMut::map_anon(k * chunk_bytes).expect("memory for a stripe");
    let (mut data, mut copy) = (memory(), memory());
    data.iter_mut().enumerate().for_each(|(i, byte)| *byte = ((i * 31) >> 3) as u8);
    Contender::local(CLAY, Role::Peer, move |stripe| {
        let parity = stripe.targets.iter_mut().map(|target| &mut **target);
        let mut chunks: Vec<&mut [u8]> = copy.chunks_mut(chunk_bytes).chain(parity).collect();
        code.encode_into(&data, &mut chunks).expect("buffers of one size");
    })
}

fn clay_repair<'a>(shape: Shape, helpers: u8, chunk_bytes: usize, lost: u16) -> Contender<'a> {
    let code = clay(shape, helpers);
    let lost = usize::from(lost);
    let left: Vec<usize> = (0..usize::from(shape.chunks())).filter(|chunk| *chunk != lost).collect();
    let helpers = code.minimum_to_repair(lost, &left).expect("one loss");
    let helpers: Vec<usize> = helpers.into_iter().map(|(chunk, _)| chunk).collect();
    Contender::local(CLAY, Role::Peer, move |stripe| {
        let mut reads = [None; 256];
        for (chunk, source) in helpers.iter().zip(&stripe.sources) {
            reads[*chunk] = Some(*source);
        }
        let chunk = code.repair_rows(lost, &reads[..left.len() + 1], chunk_bytes).expect("as many as it asked for");
        show(stripe.targets[0], &chunk);
    })
}

fn clay(shape: Shape, helpers: u8) -> ClayCode {
    ClayCode::new(shape.data.into(), shape.parity.into(), helpers.into()).expect("a size that it has")
}

/// Shows that something was made, for contenders with results of their own. A line of it: copying all would be charged
/// to them.
fn show(target: &mut [u8], made: &[u8]) {
    let bytes = target.len().min(64);
    target[..bytes].copy_from_slice(&made[..bytes]);
}

fn present(shape: Shape, lost: &[u16]) -> Vec<bool> {
    (0..shape.chunks()).map(|chunk| !lost.contains(&chunk)).collect()
}

fn indices(lost: &[u16]) -> Vec<usize> {
    lost.iter().copied().map(usize::from).collect()
}
