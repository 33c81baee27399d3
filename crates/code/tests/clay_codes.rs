//! Clay beside the crate `clay-codes`, which follows the same paper.
//!
//! That whole chunks are equal, with the scalar code of clay-codes in ours, is a unit test (`clay::tests`); here is what holds
//! of the codes as users have them. Both number nodes data, zeros, parity, planes by digits with that of section 0 first, and couple by 2; they differ in
//! the scalar code of the planes alone. So the same equations hold for both, each with its own coefficients, and both read
//! the same sub-chunks for a repair. Clay-codes takes the systematic Vandermonde matrix, ours is Cauchy.

mod forced;

use claystone_code::{ChunkIndex, CodeSpec, ErasureCode, ReadCosts, UpdatePlan};

/// The least that clay-codes takes.
const SUB_BYTES: usize = 2;

const SHAPES: [[u8; 3]; 8] =
    [[4, 2, 5], [3, 2, 4], [6, 3, 7], [6, 3, 8], [9, 3, 11], [10, 4, 11], [10, 4, 13], [16, 4, 19]];

#[test]
fn both_satisfy_the_same_equations_with_their_own_scalar_code() {
    for [k, m, d] in SHAPES {
        let [data, parity] = [k, m].map(usize::from);
        let theirs = clay_codes::ClayCode::new(data, parity, d.into()).expect("a valid shape");
        let q = usize::from(d - k + 1);
        let zeros = (data + parity).next_multiple_of(q) - data - parity;
        let alpha = q.pow(u32::try_from((data + parity + zeros) / q).expect("few"));
        let object: Vec<u8> = (0..data * alpha * SUB_BYTES).map(|i| (i * i / 7 + i) as u8).collect();
        let scalar = |family: &str| -> Box<dyn Coefficients> {
            let text = format!("{family}:{}+{parity}", data + zeros);
            Box::new(forced::build(text.parse().expect("a valid spec")))
        };

        let chunks = theirs.encode(&object);
        assert_eq!(chunks.len(), data + parity);
        check_planes(&chunks, data, zeros, q, &*scalar("klauspost"));

        let code = forced::build(CodeSpec::Clay { data: k, parity: m, helpers: d });
        let mut chunks = chunks;
        let (data_chunks, parity_chunks) = chunks.split_at_mut(data);
        let data_chunks: Vec<&[u8]> = data_chunks.iter().map(Vec::as_slice).collect();
        code.encode(&data_chunks, &mut parity_chunks.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        check_planes(&chunks, data, zeros, q, &*scalar("rs"));

        // Repairs read the same sub-chunks of the same chunks.
        for lost in 0..data + parity {
            let available: Vec<usize> = (0..data + parity).filter(|chunk| *chunk != lost).collect();
            let mut expected = theirs.minimum_to_repair(lost, &available).expect("one loss");
            expected.sort();
            let costs: Vec<Option<u32>> = (0..data + parity).map(|chunk| (chunk != lost).then_some(1)).collect();
            let want = ChunkIndex(u16::try_from(lost).expect("few"));
            let plan =
                code.plan_read(&[want], &ReadCosts { chunks: &costs, sub_bytes: 1, granule: 1 }).expect("one loss");
            let planes =
                |ranges: &[std::ops::Range<u32>]| ranges.iter().cloned().flatten().map(|sub| sub as usize).collect();
            let reads: Vec<(usize, Vec<usize>)> =
                plan.reads.iter().map(|read| (read.chunk.at(), planes(&read.sub_chunks))).collect();
            if usize::from(d) == data + parity - 1 {
                assert_eq!(reads, expected, "clay:{k}+{m}:{d} without {lost}");
            } else {
                // With fewer helpers than chunks, which of them is a choice; the sub-chunks are not.
                assert!(reads.len() == expected.len() && reads.iter().all(|read| read.1 == expected[0].1));
            }
        }
    }
}

/// The coefficients of a scalar code.
trait Coefficients {
    /// By parity, the coefficient of a data chunk.
    fn column(&self, data: usize) -> Vec<u8>;
}

impl Coefficients for std::sync::Arc<dyn ErasureCode> {
    fn column(&self, data: usize) -> Vec<u8> {
        let UpdatePlan::Delta(deltas) = self.plan_update(ChunkIndex(u16::try_from(data).expect("few"))) else {
            panic!("a linear code has coefficients");
        };
        deltas.into_iter().map(|(_, coefficient)| u8::try_from(coefficient).expect("GF(2^8)")).collect()
    }
}

/// Asserts that each plane of U is a codeword of the scalar code.
fn check_planes(chunks: &[Vec<u8>], data: usize, zeros: usize, q: usize, scalar: &dyn Coefficients) {
    let (alpha, nodes) = (chunks[0].len() / SUB_BYTES, chunks.len() + zeros);
    let t = nodes / q;
    let columns: Vec<Vec<u8>> = (0..data + zeros).map(|node| scalar.column(node)).collect();
    for (plane, byte) in (0..alpha).flat_map(|plane| (0..SUB_BYTES).map(move |byte| (plane, byte))) {
        let c = |node: usize, plane: usize| match node {
            node if node < data => chunks[node][plane * SUB_BYTES + byte],
            node if node < data + zeros => 0,
            node => chunks[node - zeros][plane * SUB_BYTES + byte],
        };
        let u = |node: usize| {
            let (y, x) = (node / q, node % q);
            let weight = q.pow(u32::try_from(t - 1 - y).expect("few"));
            let digit = plane / weight % q;
            let other = c(y * q + digit, plane - digit * weight + x * weight);
            if digit == x { c(node, plane) } else { c(node, plane) ^ mul(2, other) }
        };
        for (parity, node) in (data + zeros..nodes).enumerate() {
            let sum = columns.iter().enumerate().fold(0, |sum, (node, column)| sum ^ mul(column[parity], u(node)));
            assert_eq!(u(node), sum, "parity {parity} of plane {plane}");
        }
    }
}

/// The product in GF(2^8) with 0x11d, a bit at a time.
fn mul(mut a: u8, mut b: u8) -> u8 {
    let mut sum = 0;
    while b != 0 {
        sum ^= if b & 1 == 1 { a } else { 0 };
        a = (a << 1) ^ (if a & 0x80 != 0 { 0x1d } else { 0 });
        b >>= 1;
    }
    sum
}
