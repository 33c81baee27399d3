//! Clay against `clay_oracle.py`, which is written from the definition and shares nothing with this crate.
//!
//! Needs `python3`.

mod forced;
#[path = "../src/clay/tests/plain_cauchy.rs"]
mod plain_cauchy;

use std::process::Command;

use claystone_code::{ChunkIndex, CodeSpec, ReadCosts};
use sha2::{Digest, Sha256};

/// What the oracle prints.
#[expect(clippy::disallowed_methods, reason = "a test that compares with another program has to start it")]
fn oracle(command: &str, spec: CodeSpec, last: u32) -> String {
    let CodeSpec::Clay { data, parity, helpers } = spec else { panic!("{spec} is no clay code") };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clay_oracle.py");
    let numbers = [u32::from(data), u32::from(parity), u32::from(helpers), last].map(|number| number.to_string());
    let output = Command::new("python3").arg(script).arg(command).args(numbers).output().expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("the oracle prints text").trim().to_owned()
}

/// Shapes of all kinds: shortened, with aloof nodes, parity over several sections, fewer parities than a section.
const SHAPES: [&str; 12] = [
    "clay:1+2:2",
    "clay:2+2:3",
    "clay:3+2:4",
    "clay:4+2:5",
    "clay:4+3:5",
    "clay:5+3:7",
    "clay:5+4:7",
    "clay:6+4:7",
    "clay:7+3:8",
    "clay:9+3:11",
    "clay:10+4:12",
    "clay:16+4:19",
];

#[test]
fn parity_is_the_oracles() {
    for text in SHAPES {
        let spec: CodeSpec = text.parse().expect("a valid spec");
        let code = forced::build(spec);
        let (shape, sub_bytes) = (code.shape(), 3);
        let tile = shape.alpha as usize * sub_bytes as usize;
        let mut state = 1;
        let data: Vec<Vec<u8>> = (0..shape.data).map(|_| noise(&mut state, tile)).collect();
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut parity = vec![vec![0; tile]; shape.parity.into()];
        code.encode(&data, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        assert_eq!(hex::encode(Sha256::digest(parity.concat())), oracle("encode", spec, sub_bytes), "{text}");
    }
}

/// Those that a unit test of the crate holds its planes against, over a scalar code that users cannot have.
#[test]
fn hashes_over_a_plain_cauchy_matrix_are_the_oracles() {
    for ([data, parity, helpers], hash) in plain_cauchy::PLAIN_CAUCHY {
        let spec = CodeSpec::Clay { data, parity, helpers };
        assert_eq!(hash, oracle("plain", spec, 2), "{spec}");
    }
}

/// Test of: [clay §4]: for each number of losses the least, the average and the most that repairs read, in chunks. The
/// planner reads planes one by one; the oracle counts shares of chunks.
#[test]
fn repairs_read_what_the_oracle_counts() {
    for text in SHAPES.into_iter().chain(["clay:6+3:7", "clay:6+3:8", "clay:10+4:11", "clay:10+4:13"]) {
        let spec: CodeSpec = text.parse().expect("a valid spec");
        let code = forced::build(spec);
        let shape = code.shape();
        // One plan takes about a millisecond here, and four losses of twenty chunks have 4845 patterns.
        for losses in 1..=shape.parity.min(if shape.data > 10 { 2 } else { 3 }) {
            let sets = (0u32..1 << shape.chunks()).filter(|set| set.count_ones() == losses.into());
            let reads = sets.map(|set| {
                let is_lost = |chunk: &u16| set >> chunk & 1 == 1;
                let costs: Vec<Option<u32>> = (0..shape.chunks()).map(|i| (!is_lost(&i)).then_some(1)).collect();
                let want: Vec<ChunkIndex> = (0..shape.chunks()).filter(is_lost).map(ChunkIndex).collect();
                let costs = ReadCosts { chunks: &costs, sub_bytes: 1, granule: 1 };
                let plan = code.plan_read(&want, &costs).expect("within tolerance");
                plan.sub_chunks_total() as f64 / f64::from(shape.alpha)
            });
            let reads: Vec<f64> = reads.collect();
            let (least, most) = reads.iter().fold((f64::MAX, 0.0f64), |(a, b), read| (a.min(*read), b.max(*read)));
            let average = reads.iter().sum::<f64>() / reads.len() as f64;
            let found = format!("{least:.3} {average:.3} {most:.3}");
            assert_eq!(found, oracle("reads", spec, losses.into()), "{text}, {losses} losses");
        }
    }
}

/// Bytes of a 64-bit linear congruence (Knuth's constants), its top byte each time.
fn noise(state: &mut u64, bytes: usize) -> Vec<u8> {
    let step = || {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 56) as u8
    };
    std::iter::repeat_with(step).take(bytes).collect()
}
