//! Whole chunks, byte for byte, against implementations that take another scalar code.

mod plain_cauchy;

use sha2::{Digest, Sha256};

use self::plain_cauchy::PLAIN_CAUCHY;
use super::{Clay, Grid};
use crate::{
    ChunkIndex, CodeSpec, ErasureCode, ReadCosts, Tier,
    grs::Grs,
    tests::{check_plan, noise, stripe},
};

/// Clay over the scalar code that `scalar` makes of its data and parity chunks.
fn over(scalar: fn(u16, u16) -> Grs, [data, parity, helpers]: [u8; 3], tier: Tier) -> Clay {
    let grid = Grid::new(data, parity, helpers).expect("a grid");
    let scalar = scalar(grid.scalar_data(), grid.parity);
    Clay::with_scalar(CodeSpec::Clay { data, parity, helpers }, grid, scalar, tier)
}

/// Loses the first chunks, the last ones, and each alone.
fn check_losses(code: &Clay, chunks: &[Vec<u8>], sub_bytes: u32) {
    let (n, m) = (code.shape().chunks(), code.shape().parity);
    let alone = (0..n).map(|chunk| chunk..chunk + 1);
    for lost in [0..m, n - m..n, 1..m].into_iter().chain(alone) {
        let costs: Vec<Option<u32>> = (0..n).map(|chunk| (!lost.contains(&chunk)).then_some(1)).collect();
        let want: Vec<ChunkIndex> = lost.map(ChunkIndex).collect();
        let plan = code.plan_read(&want, &ReadCosts { chunks: &costs, sub_bytes, granule: 1 });
        check_plan(code, &plan.expect("within tolerance"), chunks, sub_bytes);
    }
}

/// Where q is m, short sub-chunks have a way of their own.
#[test]
fn one_lost_chunk_is_repaired_at_every_length() {
    const CASES: [([u8; 3], &[u32]); 11] = [
        ([2, 2, 3], &[1, 64, 100]),
        ([3, 2, 4], &[63, 64, 65, 1000]),
        ([8, 2, 9], &[7, 192, 4095]),
        ([2, 3, 4], &[5, 128]),
        ([4, 3, 6], &[1, 64, 257]),
        ([5, 3, 7], &[65, 320]),
        ([9, 3, 11], &[64, 1023]),
        ([3, 4, 6], &[64, 130]),
        ([8, 4, 11], &[63, 64, 448]),
        ([10, 4, 13], &[1, 65, 256]),
        ([16, 4, 19], &[64, 70]),
    ];
    for (shape, lengths) in CASES {
        for (tier, sub_bytes) in
            Tier::available().iter().flat_map(|tier| lengths.iter().map(move |bytes| (*tier, *bytes)))
        {
            let code = over(Grs::cauchy, shape, tier);
            let chunks = stripe(&code, sub_bytes, 5);
            let n = code.shape().chunks();
            for lost in (0..n).map(ChunkIndex) {
                let costs: Vec<Option<u32>> = (0..n).map(|chunk| (chunk != lost.0).then_some(1)).collect();
                let plan = code.plan_read(&[lost], &ReadCosts { chunks: &costs, sub_bytes, granule: 1 });
                let plan = plan.expect("within tolerance");
                #[cfg(target_arch = "x86_64")]
                assert_eq!(code.repairer(&plan).is_some(), tier == Tier::Avx512Gfni, "{shape:?} on {tier}");
                check_plan(&code, &plan, &chunks, sub_bytes);
            }
        }
    }
}

/// The crate takes the systematic Vandermonde matrix.
#[test]
fn over_klauspost_it_gives_the_bytes_of_the_crate_clay_codes() {
    const SUB_BYTES: usize = 6;
    const SHAPES: [[u8; 3]; 9] =
        [[4, 2, 5], [3, 2, 4], [6, 3, 7], [6, 3, 8], [9, 3, 11], [10, 4, 11], [10, 4, 12], [10, 4, 13], [16, 4, 19]];
    for shape in SHAPES {
        let [data, parity, helpers] = shape.map(usize::from);
        let theirs = clay_codes::ClayCode::new(data, parity, helpers).expect("a valid shape");
        for tier in Tier::available() {
            let code = over(Grs::klauspost, shape, *tier);
            let ours = stripe(&code, SUB_BYTES as u32, 3);
            assert!(theirs.encode(&ours[..data].concat()) == ours, "{shape:?} on {tier:?}");
            check_losses(&code, &ours, SUB_BYTES as u32);
        }
    }
}

/// The hashes are the oracle's, as `tests/oracle.rs` checks.
#[test]
fn over_a_plain_cauchy_matrix_it_gives_the_bytes_of_the_oracle() {
    let plain = |data: u16, parity: u16| {
        let points = (parity..parity + data).chain(0..parity).map(|at| u8::try_from(at).expect("a byte"));
        Grs::unscaled(data, points.collect())
    };
    for (shape, expected) in PLAIN_CAUCHY {
        for tier in Tier::available() {
            let code = over(plain, shape, *tier);
            let chunks = stripe(&code, 2, 1);
            let hash = hex::encode(Sha256::digest(chunks[usize::from(shape[0])..].concat()));
            assert_eq!(hash, expected, "{shape:?} on {tier:?}");
        }
    }
}

/// The way of encoding changes with the length of sub-chunks, and with what all chunks take together; what it is over short ones,
/// the other tests say.
#[test]
fn long_sub_chunks_are_encoded_as_short_ones() {
    const CASES: [([u8; 3], &[usize]); 8] = [
        ([4, 2, 5], &[4095, 4096, 4096 + 256 + 64 + 7]),
        ([3, 2, 4], &[1024 + 64, 65536]),
        ([6, 3, 8], &[1024, 1024 + 7, 4096 + 192]),
        ([5, 3, 7], &[2048, 65536]),
        ([10, 4, 13], &[1024, 2047, 4096 + 320 + 1]),
        ([9, 3, 11], &[2176]),
        ([10, 2, 11], &[2816]),
        ([9, 4, 12], &[4096]),
    ];
    for (shape, lengths) in CASES {
        for (tier, sub_bytes) in
            Tier::available().iter().flat_map(|tier| lengths.iter().map(move |bytes| (*tier, *bytes)))
        {
            let code = over(Grs::cauchy, shape, tier);
            // Others have one way.
            if tier != Tier::Avx512Gfni && sub_bytes > 2048 {
                continue;
            }
            let (data, tile) = (usize::from(shape[0]), code.shape().alpha as usize * sub_bytes);
            let chunks = usize::from(code.shape().chunks());
            // From a line's start on, as streaming wants it.
            let mut bytes = noise(&mut 7, chunks * (tile + 64) + 64);
            let start = bytes.as_ptr().align_offset(64);
            let mut whole: Vec<&mut [u8]> = bytes[start..]
                .chunks_exact_mut((tile + 64) / 64 * 64)
                .take(chunks)
                .map(|chunk| &mut chunk[..tile])
                .collect();
            let (sources, parity) = whole.split_at_mut(data);
            let sources: Vec<&[u8]> = sources.iter().map(|chunk| &**chunk).collect();
            code.encode(&sources, parity);
            for at in (0..sub_bytes).step_by(PIECE_BYTES) {
                let piece_bytes = PIECE_BYTES.min(sub_bytes - at);
                let piece = |chunk: &[u8]| -> Vec<u8> {
                    chunk.chunks_exact(sub_bytes).flat_map(|sub| sub[at..at + piece_bytes].iter().copied()).collect()
                };
                let pieces: Vec<Vec<u8>> = sources.iter().map(|chunk| piece(chunk)).collect();
                let mut made = vec![vec![0; pieces[0].len()]; parity.len()];
                let slices: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
                code.encode(&slices, &mut made.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
                let is_same = made.iter().zip(&*parity).all(|(made, parity)| *made == piece(parity));
                assert!(is_same, "{shape:?} on {tier}: sub-chunks of {sub_bytes} bytes from {at} on");
            }
        }
    }
}

const PIECE_BYTES: usize = 509;
