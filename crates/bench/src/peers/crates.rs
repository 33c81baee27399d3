//! Peers that are crates.

use rusty_erasure::{Coder, Matrix, coder};
use tape_reed_solomon::ReedSolomon;

use claystone_code::{CodeSpec, Shape};

use crate::arena::Layout;
use crate::contender::{Contender, Role};
use crate::plan::{Operation, Plan};

/// Names with the versions of `Cargo.toml`.
pub(super) const NAMES: [&str; 3] = [TAPE, RUSTY, SIMD];

const TAPE: &str = "tape-reed-solomon 0.2.4";
const RUSTY: &str = "rusty_erasure 0.4.3";
const SIMD: &str = "reed-solomon-simd 3.1.0";

/// Those that can do what the plan says.
pub(super) fn contenders<'a>(plan: &Plan, _layout: &Layout) -> Vec<Contender<'a>> {
    let CodeSpec::ReedSolomon { .. } = plan.code else {
        return Vec::new();
    };
    let shape = plan.code.shape();
    let (k, m) = (usize::from(shape.data), usize::from(shape.parity));
    let mut all = Vec::new();
    match &plan.operation {
        Operation::Encode => {
            if k + m <= 256 {
                all.push(tape_encode(k, m));
                let coder = rusty(k, m);
                all.push(Contender::local(RUSTY, Role::Peer, move |stripe| {
                    coder.encode(&stripe.sources, &mut stripe.targets).expect("buffers of one size");
                }));
            }
            all.push(simd_encode(k, m, plan.chunk_bytes));
        }
        Operation::Repair { lost } => {
            if k + m <= 256 {
                all.push(rusty_repair(shape, lost));
            }
        }
        Operation::PlanRepair { lost } => {
            if k + m <= 256 {
                let (coder, present, lost) = (rusty(k, m), present(shape, lost), indices(lost));
                all.push(Contender::local(RUSTY, Role::Peer, move |_| {
                    std::hint::black_box(coder.decode_plan(&present, &lost).expect("within tolerance"));
                }));
            }
        }
    }
    all
}

fn tape_encode<'a>(k: usize, m: usize) -> Contender<'a> {
    let code = ReedSolomon::new(k, m).expect("at most 256 chunks");
    Contender::local(TAPE, Role::Peer, move |stripe| {
        code.encode_sep(&stripe.sources, &mut stripe.targets).expect("buffers of one size");
    })
}

fn rusty(k: usize, m: usize) -> Coder {
    coder(Matrix::cauchy(k, m).expect("at most 256 chunks")).expect("a matrix of this size")
}

fn rusty_repair<'a>(shape: Shape, lost: &[u16]) -> Contender<'a> {
    let coder = rusty(shape.data.into(), shape.parity.into());
    let present = present(shape, lost);
    let plan = coder.decode_plan(&present, &indices(lost)).expect("within tolerance");
    // Its survivors are the first k chunks that are there, which is also the order of our reads.
    let survivors: Vec<usize> = (0..present.len()).filter(|chunk| present[*chunk]).take(shape.data.into()).collect();
    Contender::local(RUSTY, Role::Peer, move |stripe| {
        let mut shards = [None; 256];
        for (chunk, source) in survivors.iter().zip(&stripe.sources) {
            shards[*chunk] = Some(*source);
        }
        coder.recover_with(&plan, &shards[..present.len()], &mut stripe.targets).expect("as planned");
    })
}

fn simd_encode<'a>(k: usize, m: usize, chunk_bytes: usize) -> Contender<'a> {
    let mut encoder = reed_solomon_simd::ReedSolomonEncoder::new(k, m, chunk_bytes).expect("a supported size");
    Contender::local(SIMD, Role::Peer, move |stripe| {
        for source in &stripe.sources {
            encoder.add_original_shard(source).expect("as many as said");
        }
        let result = encoder.encode().expect("all are there");
        for (target, parity) in stripe.targets.iter_mut().zip(result.recovery_iter()) {
            target.copy_from_slice(parity);
        }
    })
}

fn present(shape: Shape, lost: &[u16]) -> Vec<bool> {
    (0..shape.chunks()).map(|chunk| !lost.contains(&chunk)).collect()
}

fn indices(lost: &[u16]) -> Vec<usize> {
    lost.iter().copied().map(usize::from).collect()
}
