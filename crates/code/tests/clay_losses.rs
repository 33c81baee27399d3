//! Clay under all losses within tolerance, and with all sets of helpers.
//!
//! Not one pattern is left out: 6195 of the longest code.

mod forced;

use claystone_code::{ChunkIndex, CodeSpec, ErasureCode, Method, ReadCosts, ReadPlan};

const CODES: [&str; 10] = [
    "clay:4+2:5",
    "clay:3+2:4",
    "clay:5+3:7",
    "clay:6+3:7",
    "clay:6+3:8",
    "clay:9+3:11",
    "clay:10+4:11",
    "clay:10+4:12",
    "clay:10+4:13",
    LONGEST,
];

/// 1024 sub-chunks: it takes as long as all others.
const LONGEST: &str = "clay:16+4:19";

#[test]
fn every_loss_is_repaired_by_a_plan_no_dearer_than_reed_solomon() {
    CODES.into_iter().filter(|text| *text != LONGEST).for_each(check_all_losses);
}

#[test]
fn every_loss_of_the_longest_code_is_repaired_by_a_plan_no_dearer_than_reed_solomon() {
    check_all_losses(LONGEST);
}

fn check_all_losses(text: &str) {
    let (code, chunks) = stripe(text);
    let shape = code.shape();
    let whole = u64::from(shape.data) * u64::from(shape.alpha);
    for losses in 1..=shape.parity {
        for lost in sets(shape.chunks(), losses.into()) {
            let plan = plan(&*code, &lost, &lost);
            assert!(plan.sub_chunks_total() <= whole, "{text} without {lost:?}");
            check(&*code, &plan, &chunks);
        }
    }
}

/// Test of: [clay §4]: any d helpers will do, as long as the lost chunk's section is among them; each sends alpha / q.
#[test]
fn every_set_of_helpers_repairs_a_chunk_at_the_theorys_price() {
    for text in CODES {
        let (code, chunks) = stripe(text);
        let CodeSpec::Clay { helpers, .. } = code.spec() else { unreachable!("all are clay") };
        let shape = code.shape();
        let (n, d, q) = (shape.chunks(), u64::from(helpers), u64::from(helpers) - u64::from(shape.data) + 1);
        let aloof = usize::from(n) - 1 - usize::try_from(d).expect("few");
        for lost in 0..n {
            for absent in sets(n - 1, aloof) {
                let absent: Vec<u16> =
                    absent.iter().map(|chunk| if *chunk < lost { *chunk } else { chunk + 1 }).collect();
                let plan = plan(&*code, &[lost], &[&[lost][..], &absent].concat());
                let theory = d * u64::from(shape.alpha) / q;
                match &plan.method {
                    Method::ClayRepair { stages } if stages[0].digits.len() == 1 => {
                        assert_eq!(plan.sub_chunks_total(), theory, "{text}: {lost} without {absent:?}");
                    }
                    // A chunk of its section cannot help.
                    _ => {
                        let node = |chunk: u16| u64::from(if chunk < shape.data { chunk } else { chunk + zeros(n, q) });
                        assert!(absent.iter().any(|chunk| node(*chunk) / q == node(lost) / q), "{lost}, {absent:?}");
                    }
                }
                check(&*code, &plan, &chunks);
            }
        }
    }
}

/// Nodes of zeros.
fn zeros(n: u16, q: u64) -> u16 {
    let q = u16::try_from(q).expect("few");
    n.next_multiple_of(q) - n
}

/// All sets of `count` of the numbers below `n`.
fn sets(n: u16, count: usize) -> impl Iterator<Item = Vec<u16>> {
    let all = (0u32..1 << n).filter(move |set| set.count_ones() as usize == count);
    all.map(move |set| (0..n).filter(|i| set >> i & 1 == 1).collect())
}

fn plan(code: &dyn ErasureCode, want: &[u16], unreadable: &[u16]) -> ReadPlan {
    let costs: Vec<Option<u32>> = (0..code.shape().chunks()).map(|i| (!unreadable.contains(&i)).then_some(1)).collect();
    let want: Vec<ChunkIndex> = want.iter().copied().map(ChunkIndex).collect();
    code.plan_read(&want, &ReadCosts { chunks: &costs, sub_bytes: 4096, granule: 4096 }).expect("within tolerance")
}

/// Runs a plan on one byte a sub-chunk and compares what it makes.
fn check(code: &dyn ErasureCode, plan: &ReadPlan, chunks: &[Vec<u8>]) {
    let fetched: Vec<Vec<u8>> = plan.reads.iter().map(|read| read.cut(&chunks[read.chunk.at()], 1)).collect();
    let fetched: Vec<&[u8]> = fetched.iter().map(Vec::as_slice).collect();
    let mut out = vec![vec![0x55; chunks[0].len()]; plan.want.len()];
    code.recover(plan, &fetched, &mut out.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    for (chunk, out) in plan.want.iter().zip(&out) {
        assert!(*out == chunks[chunk.at()], "{}: chunk {chunk} of {:?}", code.spec(), plan.method);
    }
}

/// The chunks of one tile, one byte a sub-chunk.
fn stripe(text: &str) -> (std::sync::Arc<dyn ErasureCode>, Vec<Vec<u8>>) {
    let code = forced::build(text.parse().expect("a valid spec"));
    let shape = code.shape();
    let tile = shape.alpha as usize;
    let mut state = 7u64;
    let mut noise = || {
        // Knuth's constants; the top byte.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let data: Vec<Vec<u8>> = (0..shape.data).map(|_| (0..tile).map(|_| noise()).collect()).collect();
    let mut parity = vec![vec![0; tile]; shape.parity.into()];
    let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    code.encode(&slices, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    (code, [data, parity].concat())
}
